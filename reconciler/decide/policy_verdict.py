"""What policies say of actions: what they deny and what they warn of.

An expression that fails on a job denies it, whichever of the two it is for: nobody knows what it would say.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from reconciler.core.policy import Effect, Policy
from reconciler.core.policy_expression import Answer, NotJudged, Question
from reconciler.core.ports import EvaluateExpressions
from reconciler.core.stack import Stack
from reconciler.core.values import PlanWarning, Source, TargetIdentity
from reconciler.decide.plan import Denial, PlannedAction, few
from reconciler.decide.policy_subject import Subject, Surroundings, declared, planned
from reconciler.errors import Diagnostic, Location

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


def judge_plan(
    stack: Stack, target: TargetIdentity, actions: Iterable[PlannedAction], evaluate: EvaluateExpressions
) -> Verdicts:
    """Ask the policies of a stack about the actions of a plan."""
    if not stack.policies:
        return Verdicts()
    subjects = (planned(action, stack.find(action.key)) for action in actions)
    around = Surroundings(stack.name, target.model_dump(mode="json"))
    return judge(stack.policies, _there(subjects), around, evaluate)


def judge_declared(stack: Stack, target: Mapping[str, object], evaluate: EvaluateExpressions) -> Verdicts:
    """Ask the policies of a stack about all its jobs in view, as if each had to be created.

    `target` is the plan's, as far as it is known.
    """
    subjects = (declared(job, stack.prices) for _, job in sorted(stack.jobs.items()))
    return judge(stack.policies, _there(subjects), Surroundings(stack.name, target), evaluate)


def _there(subjects: Iterable[Subject | None]) -> list[Subject]:
    return [subject for subject in subjects if subject is not None]


def judge(
    policies: Sequence[Policy],
    subjects: Sequence[Subject],
    around: Surroundings,
    evaluate: EvaluateExpressions,
) -> Verdicts:
    """Ask each policy about each action of the kinds that it is for."""
    answers = _answers(policies, subjects, around, evaluate)
    denied: list[Denial] = []
    warned: list[PolicyWarning] = []
    unasked: dict[str, str] = {}
    for place, subject in enumerate(subjects):
        withheld = subject.withheld | around.withheld
        for policy, by_place in zip(policies, answers, strict=True):
            answer = by_place.get(place, False)
            if isinstance(answer, NotJudged):
                if answer.missing in withheld:
                    unasked.setdefault(policy.name, str(answer.missing))
                else:
                    denied.append(_denial(policy, subject.key, answer.why))
            elif answer and policy.effect is Effect.DENY:
                denied.append(_denial(policy, subject.key))
            elif answer:
                warned.append(PolicyWarning(subject.key, policy.name, policy.message))
    return Verdicts(tuple(denied), tuple(warned), unasked)


def _answers(
    policies: Sequence[Policy],
    subjects: Sequence[Subject],
    around: Surroundings,
    evaluate: EvaluateExpressions,
) -> list[dict[int, Answer]]:
    """What the expression of each policy gives, by the place of the action that it was asked about."""
    questions = [
        Question(policy.expression, [place for place, one in enumerate(subjects) if one.kind in policy.only])
        for policy in policies
    ]
    values = [
        {"job": one.job, "action": one.action, "stack": around.stack, "target": around.target}
        for one in subjects
    ]
    found = evaluate(questions, values)
    return [
        dict(zip(one.places, answers, strict=True)) for one, answers in zip(questions, found, strict=True)
    ]


def _denial(policy: Policy, key: str, problem: str | None = None) -> Denial:
    source = Source.of(policy.location)
    return Denial(key=key, policy=policy.name, message=policy.message, problem=problem, source=source)


def refusals_of(denied: Iterable[Denial]) -> tuple[Diagnostic, ...]:
    """Why keys are blocked: each policy with the keys that it denies."""
    keys_by_reason: dict[Denial, list[str]] = {}
    for one in denied:
        keys_by_reason.setdefault(one.model_copy(update={"key": ""}), []).append(one.key)
    return tuple(_refusal(reason, keys) for reason, keys in keys_by_reason.items())


def _refusal(reason: Denial, keys: Sequence[str]) -> Diagnostic:
    why = f"{reason.policy} denies {few(keys, _MOST_KEYS)}: {reason.explanation}"
    source = reason.source
    location = None if source is None else Location(source.file, source.line, source.column)
    return Diagnostic(DENIED_BY_A_POLICY, why, _FIX, location, f"policies.{reason.policy}")
