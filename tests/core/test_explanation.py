"""Why a key gets its action: the rules that were asked, the values, and what would make it otherwise."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from reconciler.core.observed import ObservedJob, Unreadable
from reconciler.core.phase import Phase
from reconciler.core.record import NO_HISTORY, HistorySnapshot
from reconciler.core.stack import DesiredJob, Stack
from reconciler.decide.key_state import PlanContext
from reconciler.decide.plan import Action, Reason
from reconciler.decide.planner import guarded_plan, propose_plan
from reconciler.decide.reports import Explanation, explain
from reconciler.decide.rules import HINTS, RULES
from reconciler.errors import Location
from reconciler.expressions.evaluator import evaluate
from reconciler.render.commands import render_why
from tests.builders import HOUR, NOW, STACK, TARGET, a_job, a_stack, absent, seen
from tests.core.worlds import a_world

EDITED: dict[str, Any] = {"algorithm__parameters": {"lr": 9}}


def why(
    stack: Stack,
    *jobs: ObservedJob,
    key: str = "a",
    unreadable: tuple[Unreadable, ...] = (),
    memory: HistorySnapshot = NO_HISTORY,
) -> Explanation:
    """What is said of one key."""
    snapshot = a_world(stack, *jobs, unreadable=unreadable, memory=memory).look
    context = PlanContext(STACK, at_s=NOW, limits=stack.limits, evaluate=evaluate)
    proposed = propose_plan(stack, snapshot, context, TARGET)
    return explain(key, proposed, guarded_plan(proposed))


def one(desired: DesiredJob, **seen_as: Any) -> Explanation:
    """The same of one job that exists."""
    return why(a_stack(desired), seen(desired, **seen_as))


@pytest.mark.parametrize(
    ("explanation", "rule", "action"),
    [
        (why(a_stack(a_job())), "not-found", Action.CREATE),
        (one(a_job()), "unchanged", Action.KEEP),
        (one(a_job(), phase="Completed"), "completed", Action.KEEP),
        (one(a_job(), phase="Failed"), "failed", Action.KEEP),
        (one(a_job(), phase="Strange"), "unknown-phase", Action.BLOCKED),
        (one(a_job(lifecycle={"on_failure": "retry"}), phase="Failed"), "retry", Action.CREATE),
        (why(a_stack(a_job()), seen(a_job(**EDITED))), "changed", Action.REPLACE),
        (why(a_stack(a_job()), seen(a_job(**EDITED), ran_s=HOUR * 2)), "would-lose-work", Action.CONFLICT),
        (why(a_stack(absent()), seen(a_job())), "absent", Action.TERMINATE),
        (why(a_stack(), seen(a_job())), "absent", Action.TERMINATE),
    ],
)
def test_rules_are_listed_up_to_the_deciding_one(explanation: Explanation, rule: str, action: Action) -> None:
    names = [one.name for one in RULES]
    assert [one.name for one in explanation.rules] == names[: names.index(rule) + 1]
    assert [one.applies for one in explanation.rules] == [False] * names.index(rule) + [True]
    assert explanation.actions[0].action is action
    hints = RULES[names.index(rule)].hints_for(explanation.actions[0].reason)
    assert explanation.otherwise == tuple(text.replace("KEY", "a") for text in hints)


#: Reasons of the plans of adopt and release, which decide by no rule.
OF_ADOPTION = {
    *(Reason.ADOPTED, Reason.ALREADY_OWNED, Reason.DIFFERS, Reason.KEY_IN_USE, Reason.NOT_ADOPTABLE),
    *(Reason.RELEASED, Reason.STACK_RENAMED, Reason.WRONG_PHASE),
}


def test_every_reason_says_what_would_change_the_decision() -> None:
    hints = [*HINTS.items(), *(pair for rule in RULES for pair in rule.hints.items())]
    assert {reason for reason, _ in hints} == set(Reason) - OF_ADOPTION
    assert [reason for reason, texts in hints if not texts] == [Reason.DESTROYED]


@pytest.mark.parametrize("phase", [Phase.COMPLETED, Phase.FAILED, Phase.TERMINATED, Phase.RUNNING])
@pytest.mark.parametrize("on_change", [None, "replace"])
def test_edit_that_would_wait_for_a_schedule_is_not_said_to_run_again(
    phase: Phase, on_change: str | None
) -> None:
    desired = a_job(lifecycle={"schedule": "0 2 * * *", "on_change": on_change})
    job = seen(desired, phase=phase, ran_s=HOUR, ended_s_ago=HOUR)
    said = why(a_stack(desired), job).otherwise
    of_edits = [text for text in said if "edit the entry" in text or "change a field" in text]
    assert of_edits
    assert all(text.startswith("set `lifecycle.on_change: replace`") is (not on_change) for text in of_edits)


@pytest.mark.parametrize(("phase", "is_said"), [(Phase.COMPLETED, False), (Phase.RUNNING, True)])
def test_overlap_is_named_where_a_time_ends_a_job(phase: Phase, is_said: bool) -> None:
    desired = a_job(lifecycle={"schedule": "0 2 * * *", "overlap": "replace"})
    job = seen(desired, phase=phase, ran_s=7 * HOUR, ended_s_ago=0)
    explanation = why(a_stack(desired), job)
    assert [one.reason for one in explanation.actions] == [Reason.SCHEDULED]
    assert any("overlap: skip" in text for text in explanation.otherwise) is is_said


def test_needs_defer_the_action_of_the_deciding_rule() -> None:
    stack = a_stack(a_job("up"), replace(a_job("a"), needs=("up",)))
    found = why(stack, seen(a_job("up")))
    assert (found.rules[-1].name, found.chosen) == ("not-found", Action.CREATE)
    assert found.actions[0].action is Action.DEFER
    assert "It chose create; `needs` makes it defer." in render_why([found])


def test_turn_in_a_sweep_defers_the_action_of_the_deciding_rule() -> None:
    members = [replace(a_job(key), sweep="s", max_parallel=1) for key in "ab"]
    found = why(a_stack(*members), seen(members[1]))
    assert "It chose create; `max_parallel` makes it defer." in render_why([found])
    assert found.otherwise[0] == "raise `max_parallel` of its entry, and it starts at once"


def test_ignored_edit_is_said_and_how_it_would_count() -> None:
    found = why(a_stack(a_job(lifecycle={"ignore_changes": ["algorithm"]})), seen(a_job(**EDITED)))
    assert found.actions[0].detail == "running; ignored: algorithm"
    assert found.otherwise[0] == "remove the path from `lifecycle.ignore_changes`, and its edit counts"


def test_declaration_is_shown_with_position_and_non_default_fields() -> None:
    job = replace(
        a_job(lifecycle={"on_change": "fail", "max_retries": 3}),
        location=Location("jobs.yaml", 7, 3),
        formerly=("old",),
    )
    found = why(a_stack(job)).declared
    assert found is not None
    assert found.source is not None
    assert (found.source.file, found.source.line) == ("jobs.yaml", 7)
    assert (found.lifecycle, found.formerly) == ({"on_change": "fail", "max_retries": 3}, ("old",))


def test_revisions_are_shown_newest_first_with_their_declarations() -> None:
    old = seen(a_job(**EDITED), phase="Completed", ran_s=HOUR)
    new = seen(a_job(), revision=2)
    found = why(a_stack(a_job()), old, new).observed
    assert [(one.revision, one.phase, one.as_declared) for one in found] == [
        (2, "Running", True),
        (1, "Completed", False),
    ]
    assert found[1].ran_s == HOUR


def test_explanation_of_an_unreadable_key_is_unknown() -> None:
    job = seen(a_job())
    lost = Unreadable(id=job.id, name=job.name, why="a field is missing")
    found = why(a_stack(a_job()), unreadable=(lost,))
    assert not found.is_known
    assert found.rules[-1].name == "unreadable"


def test_document_is_json_and_text_is_printable() -> None:
    found = why(a_stack(a_job(**EDITED)), seen(a_job(), name="a", text="\x1b[2J"))
    json.dumps(found.document())
    assert "\x1b" not in render_why([found])
