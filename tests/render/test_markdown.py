"""Markdown for a comment: what is omitted for lack of space, and in which order."""

from __future__ import annotations

import re
from collections.abc import Iterable

import pytest

from reconciler.core.values import Change, TargetIdentity
from reconciler.decide.plan import Action, Plan, PlannedAction, Reason, count
from reconciler.render import Content, View, render
from reconciler.render.markdown import MOST_CHARACTERS, code, prose

STAYING = {
    Action.TERMINATE: Reason.NOT_IN_MANIFEST,
    Action.REPLACE: Reason.IMMUTABLE_CHANGED,
    Action.CONFLICT: Reason.NAME_TAKEN,
    Action.BLOCKED: Reason.PROTECTED,
}
OTHERS = {
    Action.CREATE: Reason.NOT_FOUND,
    Action.UPDATE: Reason.MUTABLE_CHANGED,
    Action.UNKNOWN: Reason.UNREADABLE,
    Action.DEFER: Reason.NEEDS_PENDING,
}
REASONS = STAYING | OTHERS


def an_action(kind: Action, number: int, *, name: str = "", detail: str = "") -> PlannedAction:
    key = f"{kind.value}-{number:04}{name}"
    # All differ, so that none is folded.
    edit = Change(path="algorithm.parameters.lr", before="0.1", after=str(number), forces_new_job=True)
    return PlannedAction(
        key=key,
        action=kind,
        reason=REASONS[kind],
        detail=detail or f"the words that say why {number}",
        changes=(edit,) if kind in (Action.REPLACE, Action.UPDATE) else (),
    )


def a_plan(actions: Iterable[PlannedAction]) -> Plan:
    actions = tuple(sorted(actions, key=lambda action: action.key))
    target = TargetIdentity(name="prod", kind="local", endpoint="local", project_id="p", workspace_id="0")
    return Plan(
        reconciler_version="0",
        created_at="2027-01-15T08:00:00Z",
        stack="vision",
        target=target,
        manifest_digest="sha256:0",
        applyable=True,
        complete=True,
        summary=count(actions),
        actions=actions,
    )


def plan_of(numbers: dict[Action, int], **more: str) -> Plan:
    return a_plan(an_action(kind, n, **more) for kind, count_ in numbers.items() for n in range(count_))


def markdown(plan: Plan) -> str:
    text = render(Content.PLAN, plan, "markdown", View(digest=f"sha256:{'0' * 64}"))
    assert len(text) <= MOST_CHARACTERS
    assert text.startswith("<!-- reconciler: vision@prod -->\n")
    assert f"**{plan.last_line}**" in text
    return text


def shown(text: str, kind: Action) -> int:
    return len(set(re.findall(rf"{kind.value}-\d{{4}}", text)))


def test_plan_that_fits_is_whole() -> None:
    text = markdown(plan_of(dict.fromkeys(REASONS, 10)))
    assert all(shown(text, kind) == 10 for kind in REASONS)
    assert "Left out" not in text


@pytest.mark.parametrize("staying", [20, 60, 120, 400])
def test_plan_of_2000_actions_fits_and_keeps_its_mandatory_parts(staying: int) -> None:
    creates = 2_000 - 4 * staying
    plan = plan_of({**dict.fromkeys(STAYING, staying), Action.CREATE: creates})
    text = markdown(plan)
    assert all(shown(text, kind) == staying for kind in STAYING)
    left_out = re.search(r"Left out because of the size limit:\*\* (\d+) to create\.", text)
    assert shown(text, Action.CREATE) + (int(left_out[1]) if left_out else 0) == creates


def test_creates_and_updates_are_left_out_before_anything_else() -> None:
    plan = plan_of({Action.UNKNOWN: 200, Action.DEFER: 200, Action.CREATE: 600, Action.UPDATE: 600})
    text = markdown(plan)
    assert shown(text, Action.UNKNOWN) == shown(text, Action.DEFER) == 200
    assert "to create" in text.partition("Left out")[2]


def test_action_that_does_not_fit_is_listed_by_key_only() -> None:
    numbers = {Action.TERMINATE: 200, Action.REPLACE: 300, Action.BLOCKED: 300}
    text = markdown(plan_of(numbers))
    assert {kind: shown(text, kind) for kind in numbers} == numbers
    assert "the words that say why" not in text
    assert "\nterminate-0199\n" in text
    assert "\nblocked-0299\n" in text
    assert "Left out" not in text


def test_keys_that_do_not_fit_are_counted() -> None:
    name = "-with-a-name-as-long-as-it-may-be-in-a-plan"
    text = markdown(plan_of({Action.TERMINATE: 500, Action.BLOCKED: 1_500}, name=name))
    assert shown(text, Action.TERMINATE) == 500
    left_out = re.search(r"limit:\*\* (\d+) blocked\.", text)
    assert left_out is not None
    assert shown(text, Action.BLOCKED) + int(left_out[1]) == 1_500


def test_sweep_that_is_too_long_shows_its_first_keys() -> None:
    one = an_action(Action.UPDATE, 1)
    text = markdown(a_plan(one.model_copy(update={"key": f"update-{n:04}"}) for n in range(5_000)))
    assert shown(text, Action.UPDATE) == 20
    assert "… and 4980 more" in text
    assert "**Left out because of the size limit:** 4980 to update." in text


def test_terminations_come_first() -> None:
    text = markdown(plan_of(dict.fromkeys(REASONS, 1)))
    headings = re.findall(r"^#### \d+ (.+)$", text, re.MULTILINE)
    assert headings[:4] == ["to terminate", "to replace", "in conflict", "blocked"]


@pytest.mark.parametrize(
    ("text", "written"),
    [
        ("algorithm.parameters.lr changed; discards 2 h", "algorithm.parameters.lr changed; discards 2 h"),
        ("set `on_change: replace`, or wait", "set `on_change: replace`, or wait"),
        ("until 2027-01-15T08:01:30Z", "until 2027-01-15T08:01:30Z"),
        ("max_retries used", "max_retries used"),
        ("_not emphasis_", "`_not emphasis_`"),
        ("**bold**", "`**bold**`"),
        ("<b>", "`<b>`"),
        ("@everyone", "`@everyone`"),
        ("see #1", "`see #1`"),
        ("see https://example.com", "`see https://example.com`"),
        ("www.example.com", "`www.example.com`"),
        ("a `b", "``a `b``"),
        ("a | b", "`a | b`"),
        ("`<b>` and <i>", "`` `<b>` and <i> ``"),
    ],
)
def test_markdown_syntax_in_text_is_shown_as_code(text: str, written: str) -> None:
    assert prose(text) == written


@pytest.mark.parametrize(
    ("text", "written"),
    [("a", "`a`"), ("", ""), ("`", "`` ` ``"), ("a``b`c", "```a``b`c```"), (" a", "`  a `")],
)
def test_text_cannot_close_its_code_span(text: str, written: str) -> None:
    assert code(text) == written
