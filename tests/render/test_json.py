"""JSON for programs: it controls neither the terminal nor the CI service that shows it.

Values that programs rely on are kept, although a secret may be a word or a short number.
"""

from __future__ import annotations

import json
from collections.abc import Iterable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reconciler.core.phase import Phase
from reconciler.core.values import TARGET_KINDS
from reconciler.decide.drift_check import DriftClass
from reconciler.decide.outcome import EventType
from reconciler.decide.plan import Action, Reason
from reconciler.render.json import dump, redacted
from reconciler.secrets import REDACTED, Redactor


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
def test_control_characters_are_escaped_and_the_value_round_trips(text: str, shown: str) -> None:
    assert dump({text: text}, indent=None) == f'{{"{shown}": "{shown}"}}'
    assert json.loads(dump(text)) == text


@given(st.text(st.characters(categories=["Cc", "Cf", "Cs", "Zl", "Zp"])))
def test_every_text_round_trips(text: str) -> None:
    # Surrogate pairs become one character; JSON cannot distinguish them.
    assert json.loads(dump(text)) == json.loads(json.dumps(text))


JOB = "3faf5c03-1234-4c27-aad5-8a6a1ee96fb8"
WORDS: dict[str, Iterable[str]] = {"action": Action, "reason": Reason, "phase": Phase, "kind": TARGET_KINDS}
WORDS |= {"class": DriftClass, "type": EventType}


@pytest.mark.parametrize(("field", "words"), WORDS.items())
def test_enumerated_word_is_kept_and_any_other_is_redacted(field: str, words: Iterable[str]) -> None:
    for word in map(str, words):
        redact = Redactor([word])
        assert redacted({field: word}, redact) == {field: word}
        if len(word) > 3:
            assert redacted({"detail": word}, redact) == {"detail": REDACTED}
    assert redacted({field: "tell-nobody-1"}, Redactor(["tell-nobody-1"])) == {field: REDACTED}


def test_count_is_kept_and_any_other_number_is_redacted() -> None:
    document = {"summary": {"keep": 1234}, "sequence": 1234, "source": {"line": 1234}, "port": 1234}
    assert redacted(document, Redactor(["1234"])) == document | {"port": REDACTED}


@pytest.mark.parametrize(
    "name",
    [JOB.replace("1234", "12f4"), "sha256:" + "0" * 60 + "12f4", "a12f40c1b7d4e", "0" * 28 + "12f4"],
    ids=len,
)
def test_id_containing_a_short_secret_by_chance_is_kept(name: str) -> None:
    hidden = f"see {name.replace('12f4', REDACTED)}"
    assert redacted([name, f"see {name}"], Redactor(["12f4"])) == [name, hidden]


@pytest.mark.parametrize(
    ("secret", "text"),
    [(JOB, JOB), ("3f9a2c1b7d4e", "a3f9a2c1b7d4e"), ("0123456789", "0123456789" + "a" * 22)],
)
def test_secret_that_looks_like_an_id_is_redacted(secret: str, text: str) -> None:
    assert secret not in str(redacted([text], Redactor([secret])))
