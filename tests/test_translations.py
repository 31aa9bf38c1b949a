"""Translated pages have the code, headings and links of their originals; outdated ones are named."""

from __future__ import annotations

from pathlib import Path

import pytest

from docs.translations import (
    ROOT,
    differences,
    is_behind,
    marked,
    original_of,
    translations,
    with_anchors_of,
    with_code_of,
)

TRANSLATIONS = translations()
#: Pages that need a Chinese translation.
TRANSLATED = ("README.md", "docs/index.md", "docs/start/*.md", "docs/guides/*.md")

PAGE = """\
# Install

Run `pip install`, or see [uv](uv.md#tools).

```sh
# the newest
pip install reconciler
```

## From a `clone`

## From a clone
"""
TRANSLATION = """\
# 安装

执行 `pip install`,或参见 [uv](uv.md#tools)。

```sh
# the newest
pip install reconciler
```

## 通过克隆

## 通过克隆
"""


def _texts(path: Path) -> tuple[str, str]:
    page, translation = ((ROOT / one).read_text(encoding="utf-8") for one in (original_of(path), path))
    return page, translation


@pytest.mark.parametrize("path", TRANSLATIONS, ids=str)
def test_translation_has_the_code_headings_and_links_of_its_page(path: Path) -> None:
    assert list(differences(*_texts(path))) == []


@pytest.mark.parametrize("path", TRANSLATIONS, ids=str)
def test_translation_is_up_to_date(path: Path) -> None:
    """A warning only: an edit of a page need not wait for a translator."""
    if is_behind(*_texts(path)):
        pytest.skip(f"{path} has fallen behind {original_of(path)}")


def test_every_newcomer_page_is_translated() -> None:
    found = {page.relative_to(ROOT) for pattern in TRANSLATED for page in ROOT.glob(pattern)}
    expected = {page for page in found if not page.name.endswith(".zh.md")}
    assert expected - {original_of(path) for path in TRANSLATIONS} == set()


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        (
            "pip install reconciler",
            "pip install another",
            ["block of code is missing", "block of code is not"],
        ),
        ("## 通过克隆", "### 通过克隆", ["heading of level is not on the page: ###"]),
        ("`pip install`", "`pip`", ["code in the text is missing: pip install", "code in the text is not"]),
        ("uv.md#tools", "uv.md", ["link is missing: uv.md#tools", "link is not on the page: uv.md"]),
    ],
)
def test_difference_between_page_and_translation_is_found(old: str, new: str, expected: list[str]) -> None:
    page = PAGE.replace("From a `clone`", "From a clone")
    assert list(differences(page, TRANSLATION)) == []
    found = list(differences(page, TRANSLATION.replace(old, new, 1)))
    assert all(any(line.startswith(start) for line in found) for start in expected), found


def test_translation_copies_code_and_anchors_of_its_page() -> None:
    edited = PAGE.replace("pip install reconciler", "pip install --user reconciler")
    copied = with_code_of(edited, TRANSLATION)
    assert "pip install --user reconciler" in copied
    assert with_code_of(f"{PAGE}\n```sh\nls\n```\n", TRANSLATION) == TRANSLATION
    anchored = with_anchors_of(PAGE, TRANSLATION)
    assert [line for line in anchored.splitlines() if line.endswith("}")] == [
        "# 安装 {#install}",
        "## 通过克隆 {#from-a-clone}",
        "## 通过克隆 {#from-a-clone_1}",
    ]


def test_only_a_prose_edit_outdates_a_translation() -> None:
    translation = marked(PAGE, TRANSLATION)
    assert marked(PAGE, translation) == translation
    assert is_behind(PAGE, TRANSLATION)
    assert not is_behind(PAGE.replace("pip install reconciler", "pipx install reconciler"), translation)
    assert is_behind(PAGE.replace("Run", "Use"), translation)
