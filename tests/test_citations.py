"""Citations exist: `docs/concepts/guards.md, "Costs"` is a page with a section of that heading."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path

from tests.pages import ROOT, headings

_SUFFIXES = (".py", ".md", ".txt")
#: Directories to skip, and dot directories to read.
_LEFT_OUT = {"build", "dist", "node_modules", "venv"}
_HIDDEN = {".ci", ".github"}
#: A citation may continue on the next line, also in a comment.
_BREAK = re.compile(r"[ \t]*\n[ \t]*(?:#:?[ \t]+)?")
_QUOTED = r'"[^"]+"'
_CITATION = re.compile(rf"\b(docs/[\w./-]+\.md)(, {_QUOTED}(?:(?:,| and) {_QUOTED})*)?")
#: Documents outside the repository.
_GONE = re.compile(
    r"\bSEMANTICS(?:\.md\b| \d)|\bCLI(?:\.md\b| \d)|\breference \d"
    r"|\bmodelarts-(?:api|errors|fields)\b"
)
#: A module by its path.
_MODULE_PATH = re.compile(r"(?<![\w./<-])((?:[\w-]+/)+[\w-]+\.py)\b")
PACKAGE = ROOT / "reconciler"
#: The changelog and the decisions describe the past.
_PAST = {"CHANGELOG.md", "docs/contributing/decisions"}
#: These name files that the reader writes.
_OF_READERS = "docs/start"


def _files() -> Iterator[Path]:
    for directory, inner, names in os.walk(ROOT):
        inner[:] = [n for n in inner if n not in _LEFT_OUT and (not n.startswith(".") or n in _HIDDEN)]
        yield from (Path(directory, name) for name in sorted(names) if name.endswith(_SUFFIXES))


#: This file has examples of wrong citations.
FILES = [path.relative_to(ROOT) for path in _files() if path != Path(__file__)]


def wrong_citations(text: str) -> list[str]:
    """Return the citations of a page or section that does not exist."""
    wrong = []
    for page, cited in _CITATION.findall(_BREAK.sub(" ", text)):
        if not (ROOT / page).is_file():
            wrong.append(page)
            continue
        known = {heading.title for heading in headings(page)}
        wrong += [f'{page}, "{title}"' for title in re.findall(r'"([^"]+)"', cited) if title not in known]
    return wrong


def _is_module_path(name: str, page: Path) -> bool:
    """Whether a path is a file relative to the root, the package, its tests, or the citing page."""
    return any((base / name).is_file() for base in (ROOT, PACKAGE, ROOT / "tests", (ROOT / page).parent))


def wrong_modules(text: str, page: Path) -> list[str]:
    """Return the named modules that do not exist."""
    return [name for name in _MODULE_PATH.findall(text) if not _is_module_path(name, page)]


def _explains(path: Path) -> bool:
    """Whether a file describes the current program; test data may name any path."""
    is_past = any(str(path).startswith(past) for past in (*_PAST, _OF_READERS))
    return not is_past and (path.suffix == ".md" or path.parts[0] == "reconciler")


def _problems(path: Path) -> list[str]:
    text = (ROOT / path).read_text(encoding="utf-8")
    return wrong_citations(text) + [found[0] for found in _GONE.finditer(text)]


def test_every_citation_has_an_existing_page_and_section() -> None:
    assert {str(path): found for path in FILES if (found := _problems(path))} == {}


def test_every_named_module_exists() -> None:
    texts = {path: (ROOT / path).read_text(encoding="utf-8") for path in FILES if _explains(path)}
    assert sum(len(_MODULE_PATH.findall(text)) for text in texts.values()) > 40
    assert {str(path): found for path, text in texts.items() if (found := wrong_modules(text, path))} == {}


def test_citations_are_found() -> None:
    texts = [_BREAK.sub(" ", (ROOT / path).read_text(encoding="utf-8")) for path in FILES]
    cited = [found for text in texts for found in _CITATION.findall(text) if found[1]]
    assert len(cited) > 80


def test_citation_without_a_page_or_section_is_detected() -> None:
    text = 'docs/concepts/guards.md, "Costs" and "Gates"; docs/x.md; docs/concepts/drift.md,\n# "Drift".'
    assert wrong_citations(text) == ['docs/concepts/guards.md, "Gates"', "docs/x.md"]
    assert wrong_modules("`errors.py`, tests/pages.py, `operations/lifecycle.py`", Path("docs/index.md")) == [
        "operations/lifecycle.py"
    ]
