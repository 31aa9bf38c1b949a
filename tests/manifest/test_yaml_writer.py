"""Written YAML round-trips, in the layout of `fmt`."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from reconciler.manifest.format import format_text, scalar_text, yaml_text
from reconciler.text import printable_lines, visible
from tests.manifest.conftest import read

#: Texts that some YAML parser would misread, or that end their context.
ODD = [
    "", " ", "~", "null", "true", "False", "yes", "off", "n", "0", "-1", "1.10", "1e-5", "0x1F", "0o17",
    "0123", ".inf", ".nan", "2026-11-21", "12:30:45", "1_000", "=", "<<", "- a", "-", "---", "...",
    "? a", "a: b", "a:", "a #b", "#a", "&a", "*a", "!a", "|", ">", "'a'", '"a"', "%a", "@a", "`a",
    "{a}", "[a]", "a, b", "${var.x}", "$${x}", "obs://b/x/", "\\", "a\\nb", "\ttab", "trailing ", "é",
    "語", "\x1b[31m", "\u202e", "\x85", "\u2028", "\ufeff", "\ufdd0", "##[error]x", "x ##vso[a]",
    "::error::x", "a\nb", "a\nb\n", "a\n\n", "\na", " a\nb", "a\n b", "a \nb", "a\n\nb",
    "a\n::error::x", "a\n\tb", "a\r\nb", "\n", "line\n# no comment\n", "a\n---\nb",
]  # fmt: skip

texts = st.sampled_from(ODD) | st.text(
    st.characters(exclude_categories=["Cs"], exclude_characters="\x00"), max_size=30
)
values = st.recursive(
    texts
    | st.integers(-(2**63), 2**64 - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.booleans(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3),
    max_leaves=12,
)


@pytest.mark.parametrize("text", ODD, ids=repr)
def test_odd_text_stays_text(text: str) -> None:
    for value in ({"a": text}, {text: "a"}, {"a": [text, {"b": text}]}):
        tree = {"free": value}
        written = yaml_text(tree)
        assert read(written).tree == tree
        assert format_text(written, "a.yaml") == written
        assert visible(written) == written
        assert printable_lines(written) == written


@settings(max_examples=60)
@given(st.dictionaries(texts, values, max_size=4))
@example({"a": [[["b"]], [], {}, [{}]]})
@example({"": [], "a\\nb": [], "a\nb": {}})
@example({"\ue000": "\ue001:{\ue008"})
def test_any_value_is_read_back_and_written_in_canonical_layout(tree: dict[str, Any]) -> None:
    written = yaml_text({"free": tree})
    assert read(written).tree == {"free": tree}
    assert format_text(written, "a.yaml") == written


@pytest.mark.parametrize(
    "text",
    ["resnet", "obs://b/x/", "${var.x}", "48h", "a, b", "python train.py --lr 0.1", "a-b", "/b/x", "it's"],
)
def test_ordinary_text_needs_no_quotes(text: str) -> None:
    assert scalar_text(text) == text
