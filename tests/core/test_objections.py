"""What stands against the action of a key: policies with their values, and guards that refuse it."""

from __future__ import annotations

from typing import Any

import pytest

from reconciler.core.phase import Phase
from reconciler.core.stack import Effect, Limits
from reconciler.decide.guards import REFUSES_THE_PLAN
from reconciler.decide.plan import Action, Guard
from reconciler.decide.reports import Explanation
from reconciler.render.commands import render_why
from reconciler.secrets import SecretText
from tests.builders import HOUR, a_job, a_stack, seen
from tests.core.history import a_memory, past
from tests.core.test_cost import bounded
from tests.core.test_explanation import EDITED, why
from tests.core.test_guards import Case, ending, losing, losing_sight, rerunning
from tests.core.test_policies import a_policy

NODES = "job.spec.resource.node_count > 8"
BIG = a_job(spec={"resource": {"flavor_id": "gpu", "node_count": 9}})


def of_case(case: Case, key: str) -> Explanation:
    return why(case.stack, *case.jobs, key=key, memory=case.memory)


# ── policies ───────────────────────────────────────────────────────────────────────────────────────


def test_policy_that_denies_is_named_with_expression_values_and_place() -> None:
    found = why(a_stack(BIG, policies=(a_policy(NODES, message="too large"),)))
    [policy] = found.policies
    assert (policy.policy, policy.effect, policy.message) == ("p", Effect.DENY, "too large")
    assert (policy.expression, policy.values) == (NODES, {"job.spec.resource.node_count": 9})
    text = render_why([found])
    assert "  not applied: denied by p\n" in text
    assert (
        f"  p denies: too large (jobs.yaml:5:7)\n    {NODES}\n    job.spec.resource.node_count: 9\n" in text
    )


def test_policy_that_warns_does_not_keep_the_plan_from_being_applied() -> None:
    found = why(a_stack(BIG, policies=(a_policy(NODES, effect="warn"),)))
    assert [policy.effect for policy in found.policies] == [Effect.WARN]
    assert "not applied" not in render_why([found])


@pytest.mark.parametrize("effect", ["deny", "warn"])
def test_policy_that_fails_on_the_job_says_why(effect: str) -> None:
    found = why(a_stack(BIG, policies=(a_policy("job.spec.nothing > 1", effect=effect),)))
    [policy] = found.policies
    assert policy.effect is Effect.DENY
    assert policy.problem == 'there is no field "nothing"'
    assert policy.values == {"job.spec.nothing": None}


def test_policies_of_other_keys_and_of_other_kinds_of_actions_are_not_named() -> None:
    policies = (a_policy(NODES), a_policy(name="q", only=("replace",)), a_policy("false", name="r"))
    stack = a_stack(a_job("a"), a_job("b", spec=BIG.body["spec"] if BIG.body else {}), policies=policies)
    assert why(stack, key="a").policies == ()
    assert [policy.policy for policy in why(stack, key="b").policies] == ["p"]


def test_secret_stands_among_the_values_by_its_name() -> None:
    secret = a_job(algorithm__command=SecretText("hush-hush", "${var.token}"))
    found = why(a_stack(secret, policies=(a_policy('job.algorithm.command != ""'),)))
    assert found.policies[0].values == {"job.algorithm.command": "${var.token}"}
    assert "hush" not in render_why([found]) + str(found.document())


# ── guards ─────────────────────────────────────────────────────────────────────────────────────────

BUDGET = a_stack(bounded(hours=10, nodes=1), limits=Limits(node_hours=5))


@pytest.mark.parametrize(
    ("explanation", "guard"),
    [
        (of_case(ending(5, 10), "end-0"), Guard.TERMINATIONS),
        (of_case(losing(25), "a"), Guard.LOST_WORK),
        (of_case(rerunning(5, 10), "edited-0"), Guard.RERUNS),
        (of_case(losing_sight(Phase.RUNNING), "new"), Guard.FOUND_NOTHING),
        (why(BUDGET), Guard.BUDGET),
        (why(a_stack(), seen(a_job())), Guard.EMPTY),
    ],
    ids=[guard.value for guard in (Guard.TERMINATIONS, Guard.LOST_WORK, Guard.RERUNS, Guard.FOUND_NOTHING)]
    + [Guard.BUDGET.value, Guard.EMPTY.value],
)
def test_guard_that_blocks_the_key_or_refuses_the_plan_is_named(
    explanation: Explanation, guard: Guard
) -> None:
    [found] = explanation.guards
    assert found.guard is guard
    assert f"--allow {guard.value}" in (found.fix or "")
    text = render_why([explanation])
    word = "refused" if guard in REFUSES_THE_PLAN else "blocked"
    assert f"  not applied: {word} by guard {guard.value}\n" in text


@pytest.mark.parametrize(
    ("case", "key"),
    [
        (ending(5, 10), "keep-0"),
        (ending(5, 10), "new"),
        (rerunning(5, 10), "same-0"),
        (ending(4, 10), "end-0"),
    ],
)
def test_guard_that_has_nothing_to_do_with_the_key_is_not_named(case: Case, key: str) -> None:
    assert of_case(case, key).guards == ()


def test_work_that_the_manifest_gives_up_blocks_nothing() -> None:
    asked: dict[str, Any] = {"on_change": "replace"}
    assert of_case(losing(25, lifecycle=asked), "a").guards == ()


def test_action_shows_what_the_job_costs() -> None:
    [action] = why(a_stack(bounded(hours=10, nodes=1))).actions
    assert action.cost is not None
    assert action.cost.node_hours_max == 10
    assert why(a_stack(a_job()), seen(a_job(**EDITED), ran_s=HOUR / 2)).actions[0].lost_node_hours == 0.5


@pytest.mark.parametrize(
    ("explanation", "otherwise"),
    [
        (of_case(losing(25), "a"), "review the plan, then pass `--allow lost-work`"),
        (why(a_stack(BIG, policies=(a_policy(NODES),))), "change the job, or the policy"),
    ],
)
def test_blocked_key_says_what_the_rule_chose_and_what_would_make_it_otherwise(
    explanation: Explanation, otherwise: str
) -> None:
    assert explanation.actions[0].action is Action.BLOCKED
    assert explanation.chosen is explanation.actions[0].blocked_action
    assert explanation.otherwise[0].startswith(otherwise)


def test_memory_of_another_key_is_no_guard() -> None:
    assert why(a_stack(a_job()), memory=a_memory(past(a_job()))).guards == ()
