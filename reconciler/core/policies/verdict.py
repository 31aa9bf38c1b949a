"""What policies say of actions: what they deny and what they warn of.

An expression that fails on a job denies it, whichever of the two it is for: nobody knows what it would say.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from reconciler.core.declared.policy import Effect, Policy
from reconciler.core.declared.stack import Stack
from reconciler.core.diagnostic import Diagnostic, Location
from reconciler.core.planning.groups import few
from reconciler.core.planning.plan import Denial, PlannedAction, PlanWarning, Source, TargetIdentity
from reconciler.core.policies.expression import Expression, ExpressionValues, NotJudged
from reconciler.core.policies.subject import Subject, Surroundings, declared, planned

DENIED_BY_A_POLICY = "denied by a policy"
_FIX = "change the jobs, or the policy; --force does not override it"
#: So many keys stand in a message.
_MOST_KEYS = 5


class PolicyWarning(NamedTuple):
    """A policy that warns of one action."""

    key: str
    policy: str
    message: str


@dataclass(frozen=True, slots=True)
class Verdicts:
    """What was denied and warned of, by key, then in the order of the policies.

    `unasked` are policies, by name, that could not be asked of every job without the service, with the
    field that they need.
    """

    denied: tuple[Denial, ...] = ()
    warned: tuple[PolicyWarning, ...] = ()
    unasked: Mapping[str, str] = field(default_factory=dict)

    @property
    def warnings(self) -> tuple[PlanWarning, ...]:
        """What is warned of, and which policies were not asked, for people."""
        warned = (
            PlanWarning(what=f"policy {one.policy}", why=one.message or "its expression is true", key=one.key)
            for one in self.warned
        )
        unasked = (
            PlanWarning(what=f"policy {name}", why=f"only a plan can ask it: it needs {field}")
            for name, field in self.unasked.items()
        )
        return (*warned, *unasked)


def judge_plan(stack: Stack, target: TargetIdentity, actions: Iterable[PlannedAction]) -> Verdicts:
    """Ask the policies of a stack about the actions of a plan."""
    if not stack.policies:
        return Verdicts()
    subjects = (planned(action, stack.find(action.key)) for action in actions)
    return judge(stack.policies, _there(subjects), Surroundings(stack.name, target.model_dump(mode="json")))


def judge_declared(stack: Stack, target: Mapping[str, object]) -> Verdicts:
    """Ask the policies of a stack about all its jobs in view, as if each had to be created.

    `target` is the plan's, as far as it is known.
    """
    subjects = (declared(job, stack.prices) for _, job in sorted(stack.jobs.items()))
    return judge(stack.policies, _there(subjects), Surroundings(stack.name, target))


def _there(subjects: Iterable[Subject | None]) -> list[Subject]:
    return [subject for subject in subjects if subject is not None]


def judge(policies: Sequence[Policy], subjects: Iterable[Subject], around: Surroundings) -> Verdicts:
    """Ask each policy about each action of the kinds that it is for."""
    expressions = [(policy, Expression(policy.expression)) for policy in policies]
    denied: list[Denial] = []
    warned: list[PolicyWarning] = []
    unasked: dict[str, str] = {}
    for subject in subjects:
        asked = [(policy, found) for policy, found in expressions if subject.kind in policy.only]
        withheld = subject.withheld | around.withheld
        for policy, verdict in _verdicts(asked, subject, around):
            if isinstance(verdict, NotJudged):
                if verdict.missing in withheld:
                    unasked.setdefault(policy.name, str(verdict.missing))
                else:
                    denied.append(_denial(policy, subject.key, str(verdict)))
            elif verdict and policy.effect is Effect.DENY:
                denied.append(_denial(policy, subject.key))
            elif verdict:
                warned.append(PolicyWarning(subject.key, policy.name, policy.message))
    return Verdicts(tuple(denied), tuple(warned), unasked)


def _verdicts(
    asked: Sequence[tuple[Policy, Expression]], subject: Subject, around: Surroundings
) -> Iterable[tuple[Policy, bool | NotJudged]]:
    if not asked:
        return
    values: ExpressionValues | NotJudged
    try:
        values = ExpressionValues(
            {"job": subject.job, "action": subject.action, "stack": around.stack, "target": around.target}
        )
    except NotJudged as error:
        values = error
    for policy, expression in asked:
        if isinstance(values, NotJudged):
            yield policy, values
            continue
        try:
            yield policy, expression.holds(values)
        except NotJudged as error:
            yield policy, error


def _denial(policy: Policy, key: str, problem: str | None = None) -> Denial:
    source = Source.of(policy.location)
    return Denial(key=key, policy=policy.name, message=policy.message, problem=problem, source=source)


def refusals_of(denied: Iterable[Denial]) -> tuple[Diagnostic, ...]:
    """Why a plan must not be applied: each policy with the keys that it denies."""
    keys_by_reason: dict[Denial, list[str]] = {}
    for one in denied:
        keys_by_reason.setdefault(one.model_copy(update={"key": ""}), []).append(one.key)
    return tuple(_refusal(reason, keys) for reason, keys in keys_by_reason.items())


def _refusal(reason: Denial, keys: Sequence[str]) -> Diagnostic:
    why = f"{reason.policy} denies {few(keys, _MOST_KEYS)}: {reason.explanation}"
    source = reason.source
    location = None if source is None else Location(source.file, source.line, source.column)
    return Diagnostic(DENIED_BY_A_POLICY, why, _FIX, location, f"policies.{reason.policy}")
