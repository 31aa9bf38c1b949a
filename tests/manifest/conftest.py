"""A stack in its own directory, written and loaded in one step."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from reconciler.core.stack import DesiredJob
from reconciler.errors import Diagnostic, ManifestInvalid
from reconciler.manifest import LoadedStack, files, load
from reconciler.manifest.yaml import Document, parse

#: The smallest stack with a job, to be extended by more files.
JOB = """
    algorithm: {code_dir: obs://b/code/, boot_file: obs://b/code/train.py, engine: {engine_id: pt}}
    spec: {resource: {flavor_id: gpu, node_count: 1}}
"""
HEAD = "stack: vision\ntargets: {local: {kind: local}}\n"
#: The same with an environment variable X of a given value.
WITH_X = JOB.replace("engine: {engine_id: pt}", "engine: {engine_id: pt}, environments: {X: %s}")
#: The same body for every job.
DEFAULTS = f"defaults:\n{textwrap.indent(textwrap.dedent(JOB).strip(), '  ')}\n"


def read(text: str | bytes) -> Document:
    """A text as the file a.yaml."""
    return parse(text.encode() if isinstance(text, str) else text, Path("a.yaml"), "a.yaml")


class Place:
    """A directory with manifest files."""

    def __init__(self, root: Path) -> None:
        self.root = root

    def write(self, text: str, name: str = "main.yaml") -> Path:
        """Write one file; its text may be indented with the test."""
        path = self.root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(textwrap.dedent(text), encoding="utf-8")
        return path

    def load(self, *paths: str, **options: Any) -> LoadedStack:
        """Load the stack, by default from the directory and with an empty environment."""
        options.setdefault("environ", {})
        return load([self.root / path for path in paths] or [self.root], **options)

    def problems(self, *paths: str, **options: Any) -> tuple[Diagnostic, ...]:
        """Return the problems reported by `load`."""
        with pytest.raises(ManifestInvalid) as raised:
            self.load(*paths, **options)
        return raised.value.diagnostics

    def problem(self, **options: Any) -> Diagnostic:
        """Return the only problem reported by `load`."""
        problems = self.problems(**options)
        assert len(problems) == 1, problems
        return problems[0]

    def job(self, body: str = JOB, head: str = HEAD, **options: Any) -> DesiredJob:
        """Load the job `a` with that body."""
        self.write(f"{head}jobs:\n  a:\n{textwrap.indent(textwrap.dedent(body).strip(), '    ')}\n")
        return self.load(**options).stack.jobs["a"]


def place_of(problem: Diagnostic) -> str:
    """Return the location, relative to the test directory: `main.yaml:3:5`."""
    assert problem.location is not None
    return str(problem.location).rpartition("/")[2]


def marked(problem: Diagnostic) -> str:
    """Return the part of the line the diagnostic marks."""
    assert problem.snippet is not None
    start = problem.snippet.start
    return problem.snippet.text[start : start + problem.snippet.length]


@pytest.fixture(autouse=True, scope="session")
def _nothing_above(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Hide the directories above those of the tests."""
    base = tmp_path_factory.getbasetemp().resolve()

    def upwards(directory: Path) -> Iterator[Path]:
        yield from (one for one in (directory, *directory.parents) if one not in (base, *base.parents))

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(files, "upwards", upwards)
        yield


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path)
