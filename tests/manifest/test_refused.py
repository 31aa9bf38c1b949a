"""Manifests that are refused: all that is said of each, in words and at its place, is in `refused.txt`."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from reconciler.errors import Diagnostic
from tests.manifest.conftest import Place, marked

ENVIRON = {"TOKEN": "hunter2-hunter2", "HUAWEICLOUD_SDK_SK": "hunter2-hunter2"}


def cases() -> Iterator[object]:
    """Each manifest with the lines that are said of it; the common end of a section is behind its text."""
    text = Path(__file__).with_name("refused.txt").read_text(encoding="utf-8")
    for section in text.split("\n## ")[1:]:
        head, _, body = section.partition("\n\n")
        title, _, end = head.partition("\n")
        manifest: list[str] = []
        said: list[str] = []
        for line in [*body.rstrip().split("\n"), ""]:
            if said and not line.startswith("> "):
                identity = f"{title}: {' '.join(manifest)}"
                yield pytest.param("\n".join([*manifest, end, ""]), said, id=identity)
                manifest, said = [], []
            (said if line.startswith("> ") else manifest).append(line.removeprefix("> "))


def line_of(problem: Diagnostic, root: Path) -> str:
    """`1:30 jobs.a.spec [spce] unknown field: "spce" is not one of …; did you mean "spec"?`."""
    assert problem.location is not None
    mark = f" [{marked(problem)}]" if problem.snippet else ""
    place = f"{problem.location.line}:{problem.location.column} {problem.path}{mark}"
    fix = f"; {problem.fix}" if problem.fix else ""
    return f"{place} {problem.what}: {problem.why}{fix}".replace(f"{root}/", "")


@pytest.mark.parametrize(("manifest", "said"), list(cases()))
def test_all_that_is_wrong_is_told_at_its_place(place: Place, manifest: str, said: list[str]) -> None:
    place.write(manifest, "jobs.yaml")
    told = [line_of(problem, place.root) for problem in place.problems(environ=ENVIRON)]
    assert told == said
    assert "hunter2" not in " ".join(told)
