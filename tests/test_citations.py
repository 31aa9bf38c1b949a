"""What is cited exists: `docs/semantics.md, "Guards"` is a page with a section of that heading."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.pages import ROOT, headings

_SUFFIXES = (".py", ".md", ".txt")
#: Directories that hold nothing of ours, and those with a dot that do.
_LEFT_OUT = {"build", "dist", "node_modules", "venv"}
_HIDDEN = {".ci", ".github"}
#: A citation may go on in the next line, also of a comment.
_BREAK = re.compile(r"[ \t]*\n[ \t]*(?:#:?[ \t]+)?")
_QUOTED = r'"[^"]+"'
_CITATION = re.compile(rf"\b(docs/[\w./-]+\.md)(, {_QUOTED}(?:(?:,| and) {_QUOTED})*)?")
#: Documents that the repository does not hold.
_GONE = re.compile(
    r"\bSEMANTICS(?:\.md\b| \d)|\bCLI(?:\.md\b| \d)|\breference \d|\breference/modelarts"
    r"|\bmodelarts-(?:api|errors|fields)\b"
)
#: A module by its path, `errors.py`, or by its dotted name, `core.values.Change`.
_MODULE_PATH = re.compile(r"(?<![\w./<-])((?:[\w-]+/)+[\w-]+\.py)\b")
_DOTTED = re.compile(r"`((?:reconciler\.)?[a-z_]+(?:\.\w+)+)`")
PACKAGE = ROOT / "reconciler"
#: `jobs` is a section of the manifest as well, where a dotted name is the path of a field.
_ROOMS = {path.name for path in PACKAGE.iterdir() if (path / "__init__.py").is_file()} - {"jobs"}
#: Of the changelog and the decisions what was true when they were written stands.
_PAST = {"CHANGELOG.md", "docs/decisions"}


def _files() -> Iterator[Path]:
    for directory, inner, names in os.walk(ROOT):
        inner[:] = [n for n in inner if n not in _LEFT_OUT and (not n.startswith(".") or n in _HIDDEN)]
        yield from (Path(directory, name) for name in sorted(names) if name.endswith(_SUFFIXES))


#: This file has examples of what it refuses.
FILES = [path.relative_to(ROOT) for path in _files() if path != Path(__file__)]


def wrong_citations(text: str) -> list[str]:
    """The citations in a text of a page, or of a section, that does not exist."""
    wrong = []
    for page, cited in _CITATION.findall(_BREAK.sub(" ", text)):
        if not (ROOT / page).is_file():
            wrong.append(page)
            continue
        known = {heading.title for heading in headings(page)}
        wrong += [f'{page}, "{title}"' for title in re.findall(r'"([^"]+)"', cited) if title not in known]
    return wrong


def _is_module_path(name: str, page: Path) -> bool:
    """Whether a path leads to a file: from the root, the package, its tests, or the page it stands on."""
    return any((base / name).is_file() for base in (ROOT, PACKAGE, ROOT / "tests", (ROOT / page).parent))


def _defines(module: Path, names: list[str]) -> bool:
    """Whether a module has the first of the names; what that one has of its own is not looked at."""
    return not names or re.search(rf"^(?:(?:class|def) )?{names[0]}\b", module.read_text(), re.M) is not None


def _is_dotted_name(name: str) -> bool:
    """Whether a dotted name is one of the program; names of other things are let pass."""
    steps = name.removeprefix("reconciler.").split(".")
    # The vendor's SDK is a package `modelarts`.
    if steps[0] not in _ROOMS or name.startswith("modelarts."):
        return True
    folder = PACKAGE
    while steps and (folder / steps[0]).is_dir():
        folder /= steps.pop(0)
    if steps and (module := folder / f"{steps[0]}.py").is_file():
        return _defines(module, steps[1:])
    return _defines(folder / "__init__.py", steps)


def wrong_modules(text: str, page: Path) -> list[str]:
    """The modules that a text names, and that do not exist."""
    paths = [name for name in _MODULE_PATH.findall(text) if not _is_module_path(name, page)]
    return paths + [name for name in _DOTTED.findall(text) if not _is_dotted_name(name)]


def _explains(path: Path) -> bool:
    """Whether a file is about the program as it is; the data of tests may have any path."""
    is_past = any(str(path).startswith(past) for past in _PAST)
    return not is_past and (path.suffix == ".md" or path.parts[0] == "reconciler")


def _problems(path: Path) -> list[str]:
    text = (ROOT / path).read_text(encoding="utf-8")
    return wrong_citations(text) + [found[0] for found in _GONE.finditer(text)]


def test_every_citation_leads_to_a_page_and_a_section() -> None:
    assert {str(path): found for path in FILES if (found := _problems(path))} == {}


def test_every_module_that_is_named_exists() -> None:
    texts = {path: (ROOT / path).read_text(encoding="utf-8") for path in FILES if _explains(path)}
    assert sum(len(_MODULE_PATH.findall(text)) for text in texts.values()) > 40
    assert {str(path): found for path, text in texts.items() if (found := wrong_modules(text, path))} == {}


def test_there_is_something_to_look_at() -> None:
    texts = [_BREAK.sub(" ", (ROOT / path).read_text(encoding="utf-8")) for path in FILES]
    cited = [found for text in texts for found in _CITATION.findall(text) if found[1]]
    assert len(cited) > 80


@pytest.mark.parametrize(
    ("text", "wrong"),
    [
        ('Source: docs/semantics.md, "Guards".', []),
        ('Source: docs/semantics.md, "Guards" and "Apply"; docs/cli.md, "Exit codes".', []),
        ('Source: docs/modelarts.md, "Calls",\n    "Search" and "Updates".', []),
        ('#: Source: docs/modelarts.md,\n#: "Nowhere".', ['docs/modelarts.md, "Nowhere"']),
        ('Source: docs/semantics.md, "Guards" and "Gates".', ['docs/semantics.md, "Gates"']),
        ("Source: docs/design.md.", ["docs/design.md"]),
        ('read("docs/drift.md", "any")', []),
        # A comment in a block of code is no heading.
        ('docs/cli.md, "yaml-language-server: $schema=../schemas/manifest.schema.json"', ["docs/cli.md"]),
    ],
)
def test_citations_without_a_page_or_section_are_seen(text: str, wrong: list[str]) -> None:
    found = wrong_citations(text)
    assert len(found) == len(wrong)
    assert all(one.startswith(begin) for one, begin in zip(found, wrong, strict=True))


@pytest.mark.parametrize(
    "text",
    [
        "SEMANTICS 5",
        "SEMANTICS.md 3",
        "CLI.md 4",
        "CLI 3",
        "reference 3",
        "reference/modelarts-api.md",
        "modelarts-fields.yaml",
    ],
)
def test_documents_that_the_repository_does_not_hold_are_seen(text: str) -> None:
    assert _GONE.search(f"Source: {text}.")


@pytest.mark.parametrize(
    ("text", "wrong"),
    [
        ("`errors.py` has it.", []),
        ("See `reconciler/errors.py` and tests/pages.py.", []),
        ("`operations/lifecycle.py`", ["operations/lifecycle.py"]),
        ("`core/desired.py`, and backends/told.py", ["core/desired.py", "backends/told.py"]),
        ("`core.values`, `core.values.Change`, `reconciler.records.store.open_records`", []),
        ("`core.printable`", ["core.printable"]),
        ("`core.values.Gravity`", ["core.values.Gravity"]),
        # No module of ours.
        ("`spec.resource.flavor_id`, `reconciler.load`, https://example.com/a/b.py", []),
    ],
)
def test_modules_that_do_not_exist_are_seen(text: str, wrong: list[str]) -> None:
    assert wrong_modules(text, Path("docs/README.md")) == wrong
