"""Loaded values of manifests, and errors of refused ones: `loaded.txt` and `refused.txt`.

A section begins with the common end of its manifests; `@` begins another file. After a manifest, `$` gives
options and environment variables as in a shell, `=` a loaded path and its value, and `>` a line of an
error or warning.
"""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from reconciler.errors import Diagnostic
from reconciler.manifest import LoadedStack
from reconciler.secrets import show
from tests.each import each
from tests.manifest.conftest import Place, marked

#: The default environment; its secrets must not appear in any message.
ENVIRON = {"TOKEN": "hunter2-hunter2", "HUAWEICLOUD_SDK_SK": "hunter2-hunter2"}
OF_STACK = ("keys", "declared", "secrets", "source", "warnings")


Case = tuple[str, list[str]]


def sections(file: str) -> Iterator[tuple[str, list[Case]]]:
    """Return the sections of a file: manifests with the lines after them."""
    text = Path(__file__).with_name(file).read_text(encoding="utf-8")
    for section in text.split("\n## ")[1:]:
        head, _, body = section.partition("\n\n")
        title, _, end = head.partition("\n")
        manifest: list[str] = []
        behind: list[str] = []
        found: list[Case] = []
        for line in [*body.rstrip().split("\n"), ""]:
            is_behind = line.startswith(("= ", "$ ", "> "))
            if behind and not is_behind:
                at = next((n for n, one in enumerate(manifest) if one.startswith("@ ")), len(manifest))
                texts = "\n".join([*manifest[:at], end, *manifest[at:], ""])
                found.append((texts, behind))
                manifest, behind = [], []
            (behind if is_behind else manifest).append(line)
        yield title, found


def by_options(lines: list[str]) -> Iterator[tuple[dict[str, Any], list[str]]]:
    """Return the lines of values and messages, by the options before them."""
    options: dict[str, Any] = {"environ": ENVIRON}
    found: list[str] = []
    for line in lines:
        if not line.startswith("$ "):
            found.append(line)
            continue
        if found:
            yield options, found
        options, found = {"variables": {}, "environ": {}}, []
        words = iter(shlex.split(line[2:]))
        for word in words:
            if word == "--offline":
                options["offline"] = True
            elif word == "--target":
                options["target"] = next(words)
            elif word == "--var-file":
                options.setdefault("var_files", []).append(next(words))
            else:
                kind = "variables" if word == "--var" else "environ"
                name, _, value = (next(words) if word == "--var" else word).partition("=")
                options[kind][name] = value
    yield options, found


def line_of(problem: Diagnostic, root: Path) -> str:
    """`1:30 jobs.a.spec [spce] unknown field: "spce" is not one of …; did you mean "spec"?`."""
    assert problem.location is not None
    mark = f" [{marked(problem)}]" if problem.snippet else ""
    location = str(problem.location).removeprefix(f"{root}/").removeprefix("jobs.yaml:")
    place = f"{location} {problem.path}{mark}"
    fix = f"; {problem.fix}" if problem.fix else ""
    return f"{place} {problem.what}: {problem.why}{fix}".replace(f"{root}/", "")


def value_of(loaded: LoadedStack, subject: str, name: str) -> Any:
    """Return a loaded value of a job or of the stack, as JSON."""
    if subject == "source":
        found = loaded.sources[name].model_dump(exclude_defaults=True) if name in loaded.sources else None
        return found and {kind: Path(one).name if kind == "file" else one for kind, one in found.items()}
    if subject in OF_STACK:
        secrets = [one for one in loaded.secrets if one not in ENVIRON.values()]
        warnings = [line_of(one, loaded.root) for one in loaded.warnings]
        found = {
            "keys": loaded.stack.jobs,
            "declared": sorted(loaded.stack.declared_keys),
            "warnings": warnings,
        }
        return list(found.get(subject, secrets))
    job = loaded.stack.jobs[subject]
    name, is_sent, number = name.partition("@")
    if is_sent:  # as sent for that revision, if every needed job has completed its third
        job = job.numbered(int(number), lambda _: 3)
    if name == "lifecycle":
        return [job.lifecycle.on_change, job.lifecycle.max_retries, job.lifecycle.protect]
    if name == "schedule":
        return job.schedule and [job.schedule.expression, job.schedule.timezone]
    if name in ("needs", "formerly", "description", "is_absent", "body", "max_parallel"):
        value = getattr(job, name)
        return list(value) if isinstance(value, tuple) else value
    assert job.body is not None
    algorithm = job.body.get("algorithm", {})
    listed = {"parameters": ("value",), "inputs": ("remote", "obs", "obs_url")}
    if name == "environments":
        return algorithm.get(name, {})
    if name in listed:
        return {one["name"]: _below(one, listed[name]) for one in algorithm.get(name, [])}
    return _below(job.body, name.split("."))


def _below(tree: Any, steps: Any) -> Any:
    for step in steps:
        tree = tree[int(step)] if isinstance(tree, list) else tree[step]
    return tree


def check_value(loaded: LoadedStack, line: str) -> None:
    subject, rest = line[2:].split(" ", 1)
    if subject in ("same", "differ"):
        digests = [loaded.stack.jobs[key].digest for key in rest.split()]
        assert len(set(digests)) == (1 if subject == "same" else len(digests)), line
        return
    is_named = subject not in OF_STACK or subject == "source"
    name, _, value = rest.partition(" ") if is_named else ("", "", rest)
    # JSON distinguishes true from 1, and 2 from 2.0.
    assert json.dumps(show(value_of(loaded, subject, name))) == json.dumps(json.loads(value)), line


SECTIONS = [*sections("loaded.txt"), *sections("refused.txt")]


@pytest.mark.parametrize("section", [of for _, of in SECTIONS], ids=[title for title, _ in SECTIONS])
def test_stack_is_loaded_or_refused_as_the_case_file_states(tmp_path: Path, section: list[Case]) -> None:
    @each(("number", "case"), enumerate(section))
    def check_case(number: int, case: Case) -> None:
        check(Place(tmp_path / str(number)), *case)

    check_case()


def check(place: Place, manifest: str, behind: list[str]) -> None:
    for file in f"jobs.yaml\n{manifest}".split("\n@ "):
        name, _, text = file.partition("\n")
        place.write(text, name)
    for options, lines in by_options(behind):
        options["var_files"] = [place.root / name for name in options.get("var_files", ())]
        if lines[0].startswith("= "):
            loaded = place.load(**options)
            for line in lines:
                check_value(loaded, line)
        else:
            reported = [f"> {line_of(problem, place.root)}" for problem in place.problems(**options)]
            assert reported == lines
            assert "hunter2" not in " ".join(reported)
