"""Why a key gets its action: the rules, what blocks it, and what would change it."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from reconciler.core.observed import ObservedJob, Unreadable
from reconciler.core.phase import Phase
from reconciler.core.record import NO_HISTORY, HistorySnapshot
from reconciler.core.stack import DesiredJob, Effect, Limits, Stack
from reconciler.decide.plan import Action, Guard, Reason
from reconciler.decide.planner import guarded_plan, propose_plan
from reconciler.decide.reports import Explanation, explain
from reconciler.decide.rules import HINTS, RULES
from reconciler.errors import Location
from reconciler.expressions.evaluator import evaluate
from reconciler.render.commands import render_why
from reconciler.secrets import SecretText
from tests.builders import HOUR, TARGET, a_job, a_stack, absent, seen
from tests.core.history import a_memory, past
from tests.core.test_cost import bounded
from tests.core.test_guards import ending, losing, losing_sight
from tests.core.test_policies import a_policy
from tests.core.worlds import a_context, a_world

EDITED: dict[str, Any] = {"algorithm__parameters": {"lr": 9}}


def why(
    stack: Stack,
    *jobs: ObservedJob,
    key: str = "a",
    unreadable: tuple[Unreadable, ...] = (),
    memory: HistorySnapshot = NO_HISTORY,
    problem: str | None = None,
) -> Explanation:
    """Explain one key; `problem` is why the list could not be read."""
    observation: dict[str, Any] = {"is_whole": problem is None, "problem": problem}
    snapshot = a_world(stack, *jobs, unreadable=unreadable, memory=memory, **observation).look
    context = a_context(limits=stack.limits, evaluate=evaluate)
    proposed = propose_plan(stack, snapshot, context, TARGET)
    return explain(key, proposed, guarded_plan(proposed))


def one(desired: DesiredJob, **seen_as: Any) -> Explanation:
    """Explain the key of one existing job."""
    return why(a_stack(desired), seen(desired, **seen_as))


# --- the rules


@pytest.mark.parametrize(
    ("explanation", "rule", "action"),
    [
        (why(a_stack(a_job())), "not-found", Action.CREATE),
        (one(a_job()), "unchanged", Action.KEEP),
        (one(a_job(), phase="Strange"), "unknown-phase", Action.BLOCKED),
        (why(a_stack(a_job()), seen(a_job(**EDITED))), "changed", Action.REPLACE),
        (why(a_stack(), seen(a_job())), "absent", Action.TERMINATE),
    ],
)
def test_rules_are_listed_up_to_the_deciding_rule(
    explanation: Explanation, rule: str, action: Action
) -> None:
    names = [one.name for one in RULES]
    assert [one.name for one in explanation.rules] == names[: names.index(rule) + 1]
    assert [one.applies for one in explanation.rules] == [False] * names.index(rule) + [True]
    assert explanation.actions[0].action is action
    hints = RULES[names.index(rule)].hints_for(explanation.actions[0].reason)
    assert explanation.otherwise == tuple(text.replace("KEY", "a") for text in hints)


#: Reasons in plans of adopt and release, which use no rules.
OF_ADOPTION = {
    *(Reason.ADOPTED, Reason.ALREADY_OWNED, Reason.DIFFERS, Reason.KEY_IN_USE, Reason.NOT_ADOPTABLE),
    *(Reason.RELEASED, Reason.STACK_RENAMED, Reason.WRONG_PHASE),
}


def test_every_reason_has_a_hint_that_changes_the_decision() -> None:
    hints = [*HINTS.items(), *(pair for rule in RULES for pair in rule.hints.items())]
    assert {reason for reason, _ in hints} == set(Reason) - OF_ADOPTION
    assert [reason for reason, texts in hints if not texts] == [Reason.DESTROYED]


@pytest.mark.parametrize("phase", [Phase.COMPLETED, Phase.FAILED, Phase.RUNNING])
@pytest.mark.parametrize("on_change", [None, "replace"])
def test_hint_promises_no_rerun_for_an_edit_that_waits_for_its_schedule(
    phase: Phase, on_change: str | None
) -> None:
    desired = a_job(lifecycle={"schedule": "0 2 * * *", "on_change": on_change})
    hints = one(desired, phase=phase, ran_s=HOUR, ended_s_ago=HOUR).otherwise
    of_edits = [text for text in hints if "edit the entry" in text or "change a field" in text]
    assert of_edits
    assert all(text.startswith("set `lifecycle.on_change: replace`") is (not on_change) for text in of_edits)


@pytest.mark.parametrize(("phase", "is_said"), [(Phase.COMPLETED, False), (Phase.RUNNING, True)])
def test_overlap_hint_is_shown_if_the_schedule_ends_a_job(phase: Phase, is_said: bool) -> None:
    desired = a_job(lifecycle={"schedule": "0 2 * * *", "overlap": "replace"})
    explanation = one(desired, phase=phase, ran_s=7 * HOUR, ended_s_ago=0)
    assert [one.reason for one in explanation.actions] == [Reason.SCHEDULED]
    assert any("overlap: skip" in text for text in explanation.otherwise) is is_said


MEMBERS = [replace(a_job(key), sweep="s", max_parallel=1) for key in "ab"]


@pytest.mark.parametrize(
    ("stack", "running", "by", "otherwise"),
    [
        (a_stack(a_job("up"), replace(a_job("a"), needs=("up",))), a_job("up"), "needs", "wait until the"),
        (a_stack(*MEMBERS), MEMBERS[1], "max_parallel", "raise `max_parallel` of its entry"),
    ],
)
def test_cause_of_a_deferred_action_is_named(
    stack: Stack, running: DesiredJob, by: str, otherwise: str
) -> None:
    found = why(stack, seen(running))
    assert (found.rules[-1].name, found.chosen) == ("not-found", Action.CREATE)
    assert found.actions[0].action is Action.DEFER
    assert found.otherwise[0].startswith(otherwise)
    assert f"It chose create; `{by}` makes it defer." in render_why([found])


def test_ignored_edit_is_named_with_a_hint() -> None:
    found = why(a_stack(a_job(lifecycle={"ignore_changes": ["algorithm"]})), seen(a_job(**EDITED)))
    assert found.actions[0].detail == "running; ignored: algorithm"
    assert found.otherwise[0] == "remove the path from `lifecycle.ignore_changes`, and its edit counts"


# --- declared and observed


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
    assert (found.needs, found.is_absent, found.starts) == ((), False, "1 × modelarts.vm.cpu.2u, pytorch")
    gone = why(a_stack(absent())).declared
    assert gone is not None
    assert (gone.is_absent, gone.starts, gone.source) == (True, "", None)


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


def test_recorded_job_has_not_aged_out_if_the_list_could_not_be_read() -> None:
    memory = a_memory(past(a_job(), phase="Running"))
    unread = why(a_stack(a_job()), problem="timeout", memory=memory)
    assert not unread.observed
    assert "no job of the key was read" in render_why([unread])
    assert [one.aged_out for one in why(a_stack(a_job()), memory=memory).observed] == [True]


def test_document_is_json_and_text_is_printable() -> None:
    found = why(a_stack(a_job(**EDITED)), seen(a_job(), name="a", text="\x1b[2J"))
    json.dumps(found.document())
    assert "\x1b" not in render_why([found])


# --- policies with their values, and guards

NODES = "job.spec.resource.node_count > 8"
BIG = a_job(spec={"resource": {"flavor_id": "gpu", "node_count": 9}})
HUSH = a_job(algorithm__command=SecretText("hush-hush", "${var.token}"))
COUNT, COMMAND, NOTHING = "job.spec.resource.node_count", "job.algorithm.command", "job.spec.nothing"
UNKNOWN_FIELD = 'there is no field "nothing"'


@pytest.mark.parametrize(
    ("job", "policy", "effect", "problem", "values"),
    [
        (BIG, a_policy(NODES, message="too large"), Effect.DENY, None, {COUNT: 9}),
        (BIG, a_policy(NODES, "warn"), Effect.WARN, None, {COUNT: 9}),
        # one that fails denies, whatever its effect
        (BIG, a_policy(f"{NOTHING} > 1", "warn"), Effect.DENY, UNKNOWN_FIELD, {NOTHING: None}),
        # a secret is shown by its name
        (HUSH, a_policy(f'{COMMAND} != ""'), Effect.DENY, None, {COMMAND: "${var.token}"}),
    ],
)
def test_policy_is_shown_with_expression_values_and_location(
    job: DesiredJob, policy: Any, effect: Effect, problem: str | None, values: dict[str, Any]
) -> None:
    others = (a_policy("false", name="r"), a_policy(name="q", only=("replace",)))
    found = why(a_stack(job, a_job("b"), policies=(*others, policy)))
    [seen_by] = found.policies
    assert (seen_by.policy, seen_by.effect, seen_by.message) == ("p", effect, policy.message)
    assert (seen_by.expression, seen_by.problem, seen_by.values) == (policy.expression, problem, values)
    text = render_why([found])
    assert ("  not applied: denied by p\n" in text) is (effect is Effect.DENY)
    assert "hush" not in text + str(found.document())
    if policy.message:
        output = f"    {NODES}\n    job.spec.resource.node_count: 9\n"
        assert f"  p denies: too large (jobs.yaml:5:7)\n{output}" in text
        assert found.chosen is found.actions[0].blocked_action is Action.CREATE
        assert found.otherwise[0].startswith("change the job or the policy")


@pytest.mark.parametrize(
    ("case", "key", "guard", "is_whole"),
    [
        (losing(25), "a", Guard.LOST_WORK, False),
        (losing(25, lifecycle={"on_change": "replace"}), "a", None, False),
        (ending(5, 10), "end-0", Guard.TERMINATIONS, True),
        (ending(5, 10), "keep-0", None, True),
        (losing_sight(Phase.RUNNING), "new", Guard.FOUND_NOTHING, True),
    ],
)
def test_guard_that_blocks_the_key_or_refuses_its_plan_is_named(
    case: Any, key: str, guard: Guard | None, is_whole: bool
) -> None:
    found = why(case.stack, *case.jobs, key=key, memory=case.memory)
    assert [one.guard for one in found.guards] == ([guard] if guard else [])
    text = render_why([found])
    if guard is None:
        assert "not applied" not in text
        return
    assert f"--allow {guard.value}" in (found.guards[0].fix or "")
    assert f"  not applied: {'refused' if is_whole else 'blocked'} by guard {guard.value}\n" in text
    assert f"\n  {guard.value} {'refuses the plan' if is_whole else 'blocks the key'}: " in text
    if not is_whole:
        assert found.chosen is found.actions[0].blocked_action is Action.REPLACE
        assert found.otherwise[0] == f"review the plan, then pass `--allow {guard.value}`, and it is applied"


def test_explanation_has_the_cost_of_the_plan_and_the_budget_guard() -> None:
    found = why(a_stack(bounded(hours=10, nodes=1), limits=Limits(node_hours=5)))
    assert found.actions[0].cost is not None
    assert found.actions[0].cost.node_hours_max == 10
    assert [one.guard for one in found.guards] == [Guard.BUDGET]
