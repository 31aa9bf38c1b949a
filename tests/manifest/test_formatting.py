"""The canonical layout: what it changes, and what it keeps."""

from __future__ import annotations

import re
from pathlib import Path
from textwrap import dedent
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from reconciler.errors import ManifestInvalid
from reconciler.manifest.format import format_text
from reconciler.manifest.yaml import parse

EXAMPLES = sorted((Path(__file__).parents[2] / "examples").rglob("*.yaml"))


def formatted(text: str) -> str:
    """Format a text, and check that formatting is idempotent."""
    once = format_text(dedent(text), "jobs.yaml")
    assert format_text(once, "jobs.yaml") == once
    return once


def cases() -> list[Any]:
    """The texts of `formatted.txt`, before and after."""
    text = Path(__file__).with_name("formatted.txt").read_text(encoding="utf-8")
    found = []
    for number, case in enumerate(text.split("\n## ")[1:]):
        title, _, body = case.partition("\n")
        before, _, after = body.partition("\n--->\n")
        found.append(pytest.param(before + "\n", after.rstrip("\n") + "\n", id=f"{number}: {title}"))
    return found


@pytest.mark.parametrize(("before", "after"), cases())
def test_text_has_its_canonical_layout(before: str, after: str) -> None:
    assert formatted(before) == after


def test_windows_line_ends_and_byte_order_mark_are_removed() -> None:
    assert formatted("\ufeffstack: test\r\njobs: {}\r\n") == "stack: test\njobs: {}\n"


@pytest.mark.parametrize("text", ["", "\n", "# nothing\n"])
def test_file_without_values_keeps_its_comments(text: str) -> None:
    assert formatted(text) == text.lstrip("\n")


@pytest.mark.parametrize(
    "text",
    [
        "a:\n  # one\n  x\n",  # between a key and its value
        "a:\n  - |  # one\n    x\n",
    ],
)
def test_text_is_refused_if_formatting_would_change_a_value_or_lose_a_comment(text: str) -> None:
    with pytest.raises(ManifestInvalid, match="cannot be formatted"):
        format_text(text, "jobs.yaml")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a:\n   b: |+\n     x\n\n\n", "a:\n  b: |+\n    x\n\n\n...\n"),
        ("a:\n   - |+\n     x\n\n   - y\n", "a:\n  - |+\n    x\n\n  - y\n"),
        ("a:\n   b: |\n     x\n         \nc: 1\n", "a:\n  b: |\n    x\n        \nc: 1\n"),
        ("a:\n   b: |\n     x  \n\nc: 1\n", "a:\n  b: |\n    x  \n\nc: 1\n"),
        ("a:\n   b: |2\n       x\n     \n   \nc: 1\n", "a:\n  b: |2\n      x\n\n\nc: 1\n"),
        ("a: |\n\nb: |+\n   \n\nc: >-\nd: 1\n", "a: |\n\nb: |2+\n\n\nc: >\nd: 1\n"),
        ("a:\n   b: |\n     x", "a:\n  b: |-\n    x\n"),
        ("a:\n   b: |+\n     x", "a:\n  b: |-\n    x\n"),
    ],
)
def test_block_scalar_keeps_trailing_space(text: str, expected: str) -> None:
    assert format_text(text, "jobs.yaml") == expected
    assert format_text(expected, "jobs.yaml") == expected


def test_space_that_is_content_in_yaml_is_kept() -> None:
    assert formatted("a:  x\u00a0\nl:\n- \u00a0k:   1\n") == "a: x\u00a0\nl:\n  - \u00a0k: 1\n"


def test_line_breaks_of_yaml_end_lines() -> None:
    assert formatted("# one\ra:  1\r\nb: 2\n") == "# one\na: 1\nb: 2\n"


def test_separator_in_quotes_is_kept() -> None:
    text = "a: 'x\u2028 y\x85'\n\"k\u2029\": 1\n"
    assert formatted(text.replace(": ", ":  ")) == text


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: f"{path.parent.name}/{path.name}")
def test_examples_are_in_the_canonical_layout(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    assert formatted(text) == text


_PLAIN = st.sampled_from(
    [
        *("a", "x1", "0.10", "0123", "1e-5", "true", "obs://b/c/", "'q # q'", '"d\\n"', "'${var.x} $${y}'"),
        *("", "~", "é", "a:b", "a#b", "-x", "&anchor a", "*anchor", "!!str 1"),
    ]
)
_NAMES = st.sampled_from(
    [
        *("a", "b", "c d", '"q"', "stack", "jobs"),
        *("spec", "algorithm", "description", "parameters", "name", "value"),
    ]
)
_COMMENTS = st.sampled_from(["", "", "", "# one", "# two: {", "#", "# - three"])


@st.composite
def blocks(draw: st.DrawFn, indent: int = 0, depth: int = 0) -> list[str]:
    """The lines of a block mapping with random style, comments and blank lines."""
    lines: list[str] = [] if depth or draw(st.booleans()) else ["# top", "---", "x: &anchor {a: 1}"]
    space = " " * indent
    for key in draw(st.lists(_NAMES, min_size=1, max_size=4, unique=True)):
        for _ in range(draw(st.integers(0, 2))):
            comment = draw(_COMMENTS)
            lines.append(" " * draw(st.integers(0, indent)) + comment if comment else "")
        trailing = draw(_COMMENTS)
        trailing = " " * draw(st.integers(1, 3)) + trailing if trailing else ""
        kind = draw(
            st.sampled_from(["plain", "flow", "text", "list", "map", "items", "merge"])
            if depth < 3
            else st.just("plain")
        )
        step = draw(st.integers(1, 5))
        if kind == "plain":
            lines.append(f"{space}{key}:{' ' * draw(st.integers(1, 3))}{draw(_PLAIN)}{trailing}")
        elif kind == "flow":
            lines.append(f"{space}{key}: {{ a:  [1,{draw(_PLAIN) or 2}],b: {{}} }}{trailing}")
        elif kind == "merge":
            lines.append(f"{space}{key}: {{<<: *anchor,b: 2}}{trailing}")
        elif kind == "text":
            mark = draw(st.sampled_from(["|", "|-", ">", ">-", "|+"]))
            lines += [
                f"{space}{key}: {mark}",
                f"{space}{' ' * step}one",
                "",
                f"{space}{' ' * step}  two # no",
            ]
        elif kind == "list":
            lines.append(f"{space}{key}:{trailing}")
            inner = " " * (indent + draw(st.integers(0, 3)))
            lines += [f"{inner}-{' ' * step}{draw(_PLAIN)}" for _ in range(draw(st.integers(1, 3)))]
        elif kind == "items":
            lines.append(f"{space}{key}:{trailing}")
            for _ in range(draw(st.integers(1, 2))):
                first, *others = [
                    one for one in draw(blocks(indent + 2, depth + 2)) if one.strip()[:1] not in ("", "#")
                ]
                lines += [f"{space}- {first.lstrip()}", *others]
        else:
            lines += [f"{space}{key}:{trailing}", *draw(blocks(indent + step, depth + 1))]
    return lines


def _comments(text: str) -> list[str]:
    return sorted(re.findall(r"(?:^|\s)(#(?: top| one| two: \{| - three)?)$", text, flags=re.MULTILINE))


@settings(max_examples=300)
@given(blocks())
def test_layout_of_any_manifest_is_idempotent_and_keeps_values_and_comments(lines: list[str]) -> None:
    text = "\n".join(lines) + "\n"
    before = parse(text.encode(), Path("x"), "x")
    if before.problems:
        with pytest.raises(ManifestInvalid):
            format_text(text, "x")
        return
    once = formatted(text)
    assert parse(once.encode(), Path("x"), "x").tree == before.tree
    assert _comments(once) == _comments(text)
