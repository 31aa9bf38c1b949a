"""Translations of pages: `NAME.zh.md` is beside `NAME.md`.

    python -m docs.translations             # list outdated translations
    python -m docs.translations FILE...     # mark these as up to date

A translation has the headings, code and links of its page; `python -m docs.generate` copies the blocks of
code. Its last line has the digest of the prose that was translated, so that an edit of the page is detected.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from hashlib import sha256
from pathlib import Path

from markdown.extensions.toc import slugify, unique

ROOT = Path(__file__).parents[1]
_FENCED = re.compile(r"^( *)```[^\n]*\n(.*?)^\1```$", re.M | re.S)
_HEADING = re.compile(r"^(#+) (.+)$", re.M)
_CODE = re.compile(r"(`+)(.+?)\1", re.S)
_LINK = re.compile(r"\]\(([^)\s]+)\)")
_SOURCE = re.compile(r"\n*<!-- source: (\w+) -->\n*\Z")


def translations() -> list[Path]:
    """Return the paths of all translations, relative to the root."""
    found = [*ROOT.glob("*.zh.md"), *(ROOT / "docs").rglob("*.zh.md")]
    return sorted(path.relative_to(ROOT) for path in found)


def original_of(translation: Path) -> Path:
    """Return the page of a translation; a page is returned unchanged."""
    return translation.with_name(translation.name.replace(".zh.md", ".md"))


def with_code_of(page: str, translation: str) -> str:
    """Return the translation with the page's code blocks; unchanged if their number differs."""
    blocks = [found[0] for found in _FENCED.finditer(page)]
    if len(blocks) != len(_FENCED.findall(translation)):
        return translation
    remaining = iter(blocks)
    return _FENCED.sub(lambda found: next(remaining), translation)


def differences(page: str, translation: str) -> Iterator[str]:
    """Yield the differences in code, headings and links."""
    for what, parts_of in (
        ("block of code", _blocks),
        ("heading of level", _levels),
        ("code in the text", _code),
        ("link", _links),
    ):
        ours, theirs = parts_of(page), parts_of(translation)
        yield from (f"{what} is missing: {part}" for part in ours if part not in theirs)
        yield from (f"{what} is not on the page: {part}" for part in theirs if part not in ours)
        if parts_of in (_blocks, _levels) and ours != theirs:
            yield f"{what}: another order or number"


def digest_of(page: str) -> str:
    """Return the digest of the prose: of everything except code blocks."""
    return sha256(_FENCED.sub("", page).encode()).hexdigest()[:12]


def is_behind(page: str, translation: str) -> bool:
    """Return whether the prose of the page has been edited since it was translated."""
    found = _SOURCE.search(translation)
    return found is None or found[1] != digest_of(page)


def marked(page: str, translation: str) -> str:
    """Return the translation with the page's current digest."""
    return f"{_SOURCE.sub('', translation).rstrip()}\n\n<!-- source: {digest_of(page)} -->\n"


def with_anchors_of(page: str, translation: str) -> str:
    """Return the translation with the anchors of the page's headings, so that links work in both."""
    used: set[str] = set()
    anchors = [unique(slugify(found[2].replace("`", ""), "-"), used) for found in _headings(page)]
    headings = list(_headings(translation))
    if len(anchors) != len(headings):
        return translation
    for found, anchor in reversed(list(zip(headings, anchors, strict=True))):
        translation = f"{translation[: found.end()]} {{#{anchor}}}{translation[found.end() :]}"
    return translation


def _prose(text: str) -> str:
    """Return the text with code blocks replaced by blanks, so that offsets stay the same."""
    return _FENCED.sub(lambda found: re.sub(r"[^\n]", " ", found[0]), text)


def _headings(text: str) -> Iterator[re.Match[str]]:
    return _HEADING.finditer(_prose(text))


def _blocks(text: str) -> list[str]:
    return [found[0] for found in _FENCED.finditer(text)]


def _levels(text: str) -> list[str]:
    return [found[1] for found in _headings(text)]


def _code(text: str) -> list[str]:
    return sorted({" ".join(found[2].split()) for found in _CODE.finditer(_prose(text))})


def _links(text: str) -> list[str]:
    """Return the link targets, except for links between the languages of a page."""
    found = {target.replace(".zh.md", ".md") for target in _LINK.findall(_prose(text))}
    return sorted(found - {"README.md"})


def _read(path: Path) -> str:
    return (ROOT / path).read_text(encoding="utf-8")


def main(arguments: list[str]) -> int:
    """List the outdated translations, or mark some as up to date."""
    for path in map(Path, arguments):
        path.write_text(marked(_read(original_of(path)), _read(path)), encoding="utf-8")
    if not arguments:
        for path in translations():
            if is_behind(_read(original_of(path)), _read(path)):
                sys.stdout.write(f"{path} has fallen behind {original_of(path)}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
