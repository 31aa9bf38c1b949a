"""JSON for programs, in which nothing steers the terminal or the CI service that shows it."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reconciler.render.json import dump


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("训练 é 🚀 # ##", "训练 é 🚀 # ##"),
        ("a\u202eb", r"a\u202eb"),
        ("\u061c\u200b\u200f\u2066\ufeff", r"\u061c\u200b\u200f\u2066\ufeff"),
        ("\U000e0041", r"\udb40\udc41"),
        ("\x9b\u2028", r"\u009b\u2028"),
        ("\udc80", r"\udc80"),
        ("##vso[x] ##[error]", r"\u0023#vso[x] \u0023#[error]"),
    ],
)
def test_what_steers_is_escaped_and_the_value_stays(text: str, shown: str) -> None:
    assert dump({text: text}, indent=None) == f'{{"{shown}": "{shown}"}}'
    assert json.loads(dump(text)) == text


@given(st.text(st.characters(categories=["Cc", "Cf", "Cs", "Zl", "Zp"])))
def test_every_text_comes_back(text: str) -> None:
    # Surrogates that make a pair are one character again; nobody can tell them apart in JSON.
    assert json.loads(dump(text)) == json.loads(json.dumps(text))
