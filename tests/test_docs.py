"""Documents cannot go stale: generated parts are regenerated, and links are checked."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from docs.generate import PAGES as GENERATED
from docs.generate import REFERENCE, ROOT, generate
from docs.translations import original_of
from reconciler.cli.main import COMMANDS

PAGES = sorted(
    page.relative_to(ROOT)
    for pattern in ("*.md", "docs/**/*.md", "examples/**/*.md", "benchmarks/*.md")
    for page in ROOT.glob(pattern)
)
#: Pages of examples are tested with the examples.
WRITTEN = [page for page in GENERATED if page.parts[0] != "examples"]
_LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")
_FENCE = re.compile(r"^( *)```.*?^\1```$", re.M | re.S)
_HEADING = re.compile(r"^#+ (.+)$", re.M)


@pytest.mark.parametrize("page", WRITTEN, ids=str)
def test_page_is_up_to_date(page: Path) -> None:
    written = (ROOT / page).read_text(encoding="utf-8")
    assert written == generate(page), f"{page} is not up to date: python -m docs.generate"


def test_every_command_is_documented() -> None:
    page = (ROOT / REFERENCE / "commands.md").read_text(encoding="utf-8")
    for name in COMMANDS:
        assert f"\n## reconciler {name}\n" in page


@pytest.mark.parametrize("page", PAGES, ids=str)
def test_links_lead_somewhere(page: Path) -> None:
    for target in _links(page):
        path, _, anchor = target.partition("#")
        # The sections of a translation have the anchors of the page.
        there = (ROOT / page).parent / path if path else ROOT / original_of(page)
        assert there.exists(), f"{page}: {target}"
        if anchor and there.suffix == ".md":
            assert anchor in _anchors(there.read_text(encoding="utf-8")), f"{page}: {target}"


def _links(page: Path) -> Iterator[str]:
    prose = _FENCE.sub("", (ROOT / page).read_text(encoding="utf-8"))
    return (target for target in _LINK.findall(prose) if not target.startswith(("https:", "http:")))


def _anchors(text: str) -> set[str]:
    return {re.sub(r"[^\w -]", "", title).lower().replace(" ", "-") for title in _HEADING.findall(text)}


def test_every_decision_record_has_number_and_sections() -> None:
    decisions = sorted((ROOT / "docs/contributing/decisions").glob("*.md"))
    index = (ROOT / "docs/contributing/index.md").read_text(encoding="utf-8")
    assert decisions
    for number, page in enumerate(decisions, start=1):
        text = page.read_text(encoding="utf-8")
        assert page.name.startswith(f"{number:04}-")
        assert text.startswith(f"# {number:04} ")
        assert re.findall("^## (.+)$", text, re.M) == ["Context", "Options", "Choice", "What it costs"]
        assert f"decisions/{page.name}" in index
