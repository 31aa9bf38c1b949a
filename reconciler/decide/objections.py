"""What stands against the actions of one key: policies, and guards that block it or refuse the plan."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from types import MappingProxyType
from typing import Any

from pydantic import Field

from reconciler.core.policy import Effect
from reconciler.core.policy_expression import fields_in, not_evaluated
from reconciler.core.ports import EvaluateExpressions
from reconciler.core.stack import Stack
from reconciler.core.values import Frozen, Source, TargetIdentity
from reconciler.decide.cost import spell_cost
from reconciler.decide.guards import Proposal, guard
from reconciler.decide.plan import NO_ALLOWANCES, Allowances, Guard, PlannedAction, spell_work
from reconciler.decide.policy_subject import Subject, planned
from reconciler.decide.policy_verdict import judge_plan


class PolicyVerdict(Frozen):
    """A policy that denies one of the key's actions, or warns of it."""

    policy: str = Field(description="Name of the policy.")
    effect: Effect = Field(description="Whether it denies the action or warns of it.")
    message: str = Field("", description="Message of the policy.")
    problem: str | None = Field(
        None, description="Why the expression could not be evaluated; null: it is true."
    )
    expression: str = Field("", description="The expression.")
    values: dict[str, Any] = Field(
        default_factory=dict, description="The fields that it names, with the values they have here."
    )
    source: Source | None = Field(None, description="Location of the expression in the manifest.")


class GuardVerdict(Frozen):
    """A guard that blocks the key, or refuses the plan, because of the key's action among others."""

    guard: Guard = Field(description="Name of the guard, as `--allow` takes it.")
    what: str = Field(description="What the guard refuses.")
    why: str = Field(description="The values of the whole plan, and the limit.")
    share: str = Field(description="What the key adds to it.")
    fix: str | None = Field(None, description="How to let the plan pass.")


def policy_verdicts(
    stack: Stack,
    target: TargetIdentity,
    actions: Iterable[PlannedAction],
    evaluate: EvaluateExpressions = not_evaluated,
) -> Iterator[PolicyVerdict]:
    """What the policies of a stack say of some actions, those that deny first, with the values they saw."""
    policies = {policy.name: policy for policy in stack.policies}
    around = {"stack": stack.name, "target": target.model_dump(mode="json")}
    for action in actions:
        subject = planned(action, stack.find(action.key))
        if subject is None:
            continue
        verdicts = judge_plan(stack, target, [action], evaluate)
        problems = {one.policy: one.problem for one in verdicts.denied}
        for name in (*problems, *(one.policy for one in verdicts.warned)):
            policy = policies[name]
            yield PolicyVerdict(
                policy=name,
                effect=Effect.DENY if name in problems else Effect.WARN,
                message=policy.message,
                problem=problems.get(name),
                expression=policy.expression,
                values={path: _value(path, subject, around) for path in fields_in(policy.expression)},
                source=Source.of(policy.location),
            )


def _value(path: str, subject: Subject, around: Mapping[str, Any]) -> Any:
    """The value of a field, null where there is none."""
    value: Any = {"job": subject.job, "action": subject.action, **around}
    for name in path.split("."):
        value = value.get(name) if isinstance(value, Mapping) else None
    return value


def guard_verdicts(
    key: str, proposal: Proposal, allowances: Allowances = NO_ALLOWANCES
) -> Iterator[GuardVerdict]:
    """The guards that block a key, or refuse the plan because of one of its actions, among others."""
    for name, found in guard(proposal, allowances).found.items():
        own = [action for action in found.because_of if action.key == key]
        if own:
            said = found.diagnostic
            share = "; ".join(_SHARES[name](action) for action in own)
            yield GuardVerdict(guard=name, what=said.what, why=said.why, share=share, fix=said.fix)


def _starts(action: PlannedAction) -> str:
    return f"starts {action.after.name}" if action.after else "starts a job"


def _ends(action: PlannedAction) -> str:
    return f"ends {action.before.name}" if action.before else "ends a job"


#: What an action adds to what a guard refuses.
_SHARES: Mapping[Guard, Callable[[PlannedAction], str]] = MappingProxyType(
    {
        Guard.EMPTY: _ends,
        Guard.FOUND_NOTHING: _starts,
        Guard.TERMINATIONS: _ends,
        Guard.LOST_WORK: lambda action: f"discards {spell_work(action.lost_node_hours)} of work",
        Guard.RERUNS: lambda action: f"runs the work of {action.finished_work} again",
        Guard.BUDGET: lambda action: spell_cost(action.cost) if action.cost else "",
    }
)
