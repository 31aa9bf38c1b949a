"""Durations, printable text, the order of execution."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reconciler.decide.plan import Action, in_order
from reconciler.text import format_duration, parse_duration, printable
from tests.builders import a_job, a_stack, seen
from tests.core.test_decision_table import OLD, plan_for


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("90s", 90),
        ("2m", 120),
        ("1h", 3600),
        ("1h30m", 5400),
        ("2d", 172800),
        ("1.5s", 1.5),
        ("0s", 0),
        ("0", 0),
    ],
)
def test_duration_is_parsed_to_seconds(text: str, seconds: float) -> None:
    assert parse_duration(text) == seconds


@pytest.mark.parametrize("text", ["", "5", "m", "1m1h", "-1m", "1 h 2", "soon", "1h٣m"])
def test_invalid_duration_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="not a valid duration"):
        parse_duration(text)


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0, "0 s"),
        (45, "45 s"),
        (119, "119 s"),
        (720, "12 min"),
        (5400, "90 min"),
        (108_000, "30 h"),
        (864_000, "10 d"),
    ],
)
def test_duration_is_formatted_for_people(seconds: float, text: str) -> None:
    assert format_duration(seconds) == text


@given(st.text())
def test_printable_text_has_no_terminal_control_characters(text: str) -> None:
    shown = printable(text)
    assert shown.isprintable() or all(c.isprintable() or c == "\t" or not c.isascii() for c in shown)
    assert "\n" not in shown
    assert "\x1b" not in shown


def test_printable_text_keeps_ordinary_text() -> None:
    assert printable("ResNet-50 训练 é") == "ResNet-50 训练 é"
    for text in ("std::vector", "::1", "fe80::1", "# a comment", "## [a]", "#[derive]", "a ::b:: c"):
        assert printable(text) == text


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("::error::gone", r"\x3a:error::gone"),
        ("  ::set-output name=a::b", r"  \x3a:set-output name=a::b"),
        ("\t::stop-commands::x", "\t" + r"\x3a:stop-commands::x"),
        ("##[error]gone", r"\x23#[error]gone"),
        ("a ##vso[task.setvariable]b", r"a \x23#vso[task.setvariable]b"),
        ("##VSO[task.setvariable]b", r"\x23#VSO[task.setvariable]b"),
        ("###[x]", r"#\x23#[x]"),
        ("##teamcity[x]", r"\x23#teamcity[x]"),
    ],
)
def test_printable_text_has_no_ci_commands(text: str, shown: str) -> None:
    assert printable(text) == shown


def test_actions_that_free_capacity_are_ordered_before_those_that_need_it() -> None:
    stack = a_stack(a_job("create"), a_job("keep"), a_job("replace"), a_job("update", description="new"))
    plan = plan_for(
        stack,
        seen(a_job("keep")),
        seen(a_job("replace", **OLD)),
        seen(a_job("update"), text="old"),
        seen(a_job("end")),
    )
    actions = in_order(plan.actions)
    assert [a.action for a in actions] == [Action.TERMINATE, Action.UPDATE, Action.REPLACE, Action.CREATE]
    assert [a.action for a in actions if a.frees_capacity] == [Action.TERMINATE, Action.REPLACE]
    assert [a.action for a in actions if a.needs_capacity] == [Action.CREATE]


def test_replace_that_creates_first_needs_capacity_before_it_frees_any() -> None:
    creates_first = {"lifecycle": {"replace_order": "create_first"}}
    stack = a_stack(a_job("replace", **creates_first), a_job("create"))
    actions = in_order(plan_for(stack, seen(a_job("replace", **OLD))).actions)
    assert [(a.action, a.needs_capacity) for a in actions] == [
        (Action.REPLACE, True),
        (Action.CREATE, True),
    ]
