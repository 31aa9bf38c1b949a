"""docs/reference/policies.md: which actions policies apply to, what they see, and their effect."""

from __future__ import annotations

from typing import Any

import pytest

from reconciler.core.stack import NO_PRICES, POLICY_ACTIONS, Effect, Policy, Prices
from reconciler.decide.guards import blockers
from reconciler.decide.plan import Action, Plan, Reason
from reconciler.decide.policies import declared, job_values, judge, judge_declared
from reconciler.errors import Location
from reconciler.expressions.evaluator import evaluate
from reconciler.secrets import SecretText
from tests.builders import HOUR, a_job, a_stack, absent, seen
from tests.core.test_cost import bounded
from tests.core.test_decision_table import plan_for

PLACE = Location("jobs.yaml", 5, 7)


def a_policy(expression: str = "true", effect: str = "deny", **more: Any) -> Policy:
    return Policy(more.pop("name", "p"), Effect(effect), expression, location=PLACE, **more)


def planned(*jobs: Any, policies: Any, observed: Any = (), **more: Any) -> Plan:
    return plan_for(a_stack(*jobs, policies=tuple(policies), **more), *observed)


def denied(plan: Plan) -> list[tuple[str, str]]:
    return [(one.key, one.policy) for one in plan.denied]


# ── effect ────────────────────────────────────────────────────────────────────────────────────────


def test_warning_policy_gives_a_warning_with_its_name_and_the_key() -> None:
    plan = planned(a_job(), policies=[a_policy(effect="warn", message="think twice")])
    assert [(one.what, one.why, one.key) for one in plan.warnings] == [("policy p", "think twice", "a")]
    assert plan.applyable
    assert plan.denied == ()


@pytest.mark.parametrize("effect", ["deny", "warn"])
@pytest.mark.parametrize(
    ("expression", "problem"),
    [
        ("job.spec.nonsense == 1", 'there is no field "nonsense"'),
        ("job.key", "its value is text, not true or false"),
    ],
)
def test_failing_expression_denies_the_job(expression: str, problem: str, effect: str) -> None:
    [denial] = planned(a_job(), policies=[a_policy(expression, effect)]).denied
    assert (denial.problem, denial.explanation) == (
        problem,
        f"the expression could not be evaluated: {problem}",
    )


def test_key_denied_by_several_policies_names_all_of_them() -> None:
    plan = planned(a_job(), policies=[a_policy(name="one", message="no"), a_policy(name="two")])
    [action] = plan.actions
    assert action.blocked_by == ("one", "two")
    assert action.detail == "denied by one: no; denied by two; blocks create"


def test_refusal_names_a_few_keys_and_counts_the_others() -> None:
    plan = planned(*(a_job(f"j{number}") for number in range(8)), policies=[a_policy()])
    [refusal] = blockers(plan)
    assert refusal.why == "p denies j0, j1, j2, j3, j4 and 3 more: its expression is true"


# ── which actions ──────────────────────────────────────────────────────────────────────────────────

OLD = a_job(algorithm__parameters={"lr": 9})
RENAMED = a_job(description="another text")


@pytest.mark.parametrize(
    ("job", "observed", "kind"),
    [
        (a_job(), [], "create"),
        (a_job(), [seen(OLD)], "replace"),
        (RENAMED, [seen(a_job())], "update"),
        (a_job(), [seen(a_job())], None),
        (absent(), [seen(a_job())], None),
        (a_job(), [seen(a_job(), phase="Completed")], None),
    ],
    ids=["create", "replace", "update", "keep", "terminate", "completed"],
)
@pytest.mark.parametrize("only", [POLICY_ACTIONS, ("create",), ("update", "replace")])
def test_policy_applies_only_to_its_action_kinds(
    job: Any, observed: Any, kind: str | None, only: tuple[str, ...]
) -> None:
    plan = planned(job, observed=observed, policies=[a_policy(only=only)])
    assert bool(plan.denied) is (kind in only)


def test_policy_does_not_apply_to_the_removal_of_protection_of_an_absent_job() -> None:
    observed = [seen(a_job(), protected=True)]
    plan = planned(absent(protect=False), observed=observed, policies=[a_policy()])
    assert [action.action for action in plan.actions] == [Action.UPDATE]
    assert plan.denied == ()


# ── values in expressions ─────────────────────────────────────────────────────────────────────────


def test_policy_sees_a_job_with_manifest_names_and_lists_of_name_and_value() -> None:
    job = a_job(
        description="what for",
        annotations={"team": "vision"},
        algorithm__inputs={"data": "obs://b/in/"},
        algorithm__outputs={"out": "obs://b/out/"},
        algorithm__environments={"N": 4},
        lifecycle={"on_failure": "retry", "retry_delay": "5m"},
    )
    values = job_values(job)
    assert (values["key"], values["description"], values["annotations"]) == (
        "a",
        "what for",
        {"team": "vision"},
    )
    algorithm = values["algorithm"]
    assert algorithm["parameters"] == [{"name": "lr", "value": "0.1"}]
    assert [(one["name"], one["value"]) for one in algorithm["inputs"]] == [("data", "obs://b/in/")]
    assert [(one["name"], one["value"]) for one in algorithm["outputs"]] == [("out", "obs://b/out/")]
    assert algorithm["environments"] == [{"name": "N", "value": "4"}]
    assert values["spec"]["resource"] == {"flavor_id": "modelarts.vm.cpu.2u", "node_count": 1}
    assert (values["lifecycle"]["on_failure"], values["lifecycle"]["retry_delay"]) == ("retry", "300s")


@pytest.mark.parametrize("member", ["parameters", "inputs", "outputs", "environments"])
def test_members_that_a_job_does_not_have_are_empty_lists(member: str) -> None:
    expression = f'job.algorithm.{member}.exists(one, one.name == "forbidden")'
    tasks = [{"role": "worker", "algorithm": {"boot_file": "obs://b/code/worker.py"}}]
    job = a_job(tasks=tasks)
    assert planned(job, policies=[a_policy(expression)]).denied == ()
    assert [job_values(job)["tasks"][0]["algorithm"][member]] == [[]]


def test_policy_sees_a_secret_by_its_name_only() -> None:
    secret = SecretText("hunter2-hunter2", "${var.token}")
    job = a_job(algorithm__environments={"TOKEN": secret}, algorithm__parameters={"t": secret})
    assert "hunter2" not in str(job_values(job))
    sees = a_policy('job.algorithm.environments.exists(e, e.value.contains("hunter2"))')
    names = a_policy("job.algorithm.environments[0].value == '${var.token}'", "warn", name="named")
    plan = planned(job, policies=[sees, names])
    assert plan.denied == ()
    assert [one.what for one in plan.warnings] == ["policy named"]


@pytest.mark.parametrize(
    "expression",
    [
        'action.kind == "create" && action.reason == "not_found"',
        "action.node_hours == 384.0",
        "action.cost == 960.0",
        "action.lost_node_hours == 0",
        'stack == "vision"',
        'target.name == "local" && target.kind == "local" && target.workspace_id == "0"',
    ],
)
def test_policy_sees_action_stack_and_target_of_a_create(expression: str) -> None:
    prices = Prices.model_validate({"currency": "CNY", "node_hour": {"modelarts.vm.cpu.2u": 2.5}})
    assert denied(planned(bounded(), policies=[a_policy(expression)], prices=prices)) == [("a", "p")]


@pytest.mark.parametrize(
    ("job", "observed", "expression"),
    [
        (a_job(), [], "action.node_hours == null && action.cost == null"),
        (RENAMED, [seen(a_job())], "action.node_hours == 0 && action.cost == 0"),
        (
            a_job(),
            [seen(OLD, ran_s=HOUR / 2, node_count=4)],
            'action.kind == "replace" && action.lost_node_hours > 1',
        ),
    ],
    ids=["unbounded", "update", "replace"],
)
def test_policy_sees_cost_and_loss_of_an_action(job: Any, observed: Any, expression: str) -> None:
    assert denied(planned(job, observed=observed, policies=[a_policy(expression)])) == [("a", "p")]


# ── without the service ────────────────────────────────────────────────────────────────────────────


def test_policy_sees_the_revision_number_to_be_sent() -> None:
    numbered: dict[str, Any] = {
        "algorithm__outputs": {"o": "obs://b/${job.revision}/"},
        "description": "r${job.revision}",
    }
    policy = a_policy("job.algorithm.outputs[0].value == 'obs://b/2/' && job.description == 'r2'")
    plan = planned(a_job(**numbered), policies=[policy], observed=[seen(a_job())])
    assert plan.actions[0].blocked_action is Action.REPLACE


def test_policies_without_the_service_check_every_job_in_view_as_a_create() -> None:
    stack = a_stack(a_job(), absent("gone"), policies=(a_policy('action.reason == "not_found"'),))
    assert [one.key for one in judge_declared(stack, {}, evaluate).denied] == ["a"]


@pytest.mark.parametrize("expression", ['target.project_id == "p1"', "action.lost_node_hours > 24"])
def test_policy_that_needs_the_service_is_skipped_with_a_warning(expression: str) -> None:
    subject = declared(a_job(), NO_PRICES, kind=Action.REPLACE, reason=Reason.IMMUTABLE_CHANGED)
    assert subject is not None
    verdicts = judge(a_stack(policies=(a_policy(expression),)), {"name": "prod"}, [subject], evaluate)
    assert verdicts.denied == ()
    assert [one.what for one in verdicts.warnings] == ["policy p"]
    assert "it can only be evaluated in a plan" in verdicts.warnings[0].why


def test_policy_with_an_unknown_field_denies_without_the_service() -> None:
    stack = a_stack(a_job(), policies=(a_policy("target.nme == ''"),))
    verdicts = judge_declared(stack, {"name": "x"}, evaluate)
    assert [one.problem for one in verdicts.denied] == ['there is no field "nme"']
