"""Policies: what they are asked about, what they say of a plan, and cases that test them.

An expression that fails on a job denies it, whichever of the two effects it has: nobody knows what it would
say.
Source: docs/policies.md.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

from reconciler.core.body import manifest_form
from reconciler.core.policy_expression import Answer, NotJudged, Question, not_evaluated
from reconciler.core.stack import NO_PRICES, DesiredJob, Effect, Policy, Prices, Stack
from reconciler.core.values import PlanWarning, Source, TargetIdentity
from reconciler.decide.cost import cost_of
from reconciler.decide.plan import Action, Denial, PlannedAction, Reason, few
from reconciler.errors import Diagnostic, Location
from reconciler.secrets import show

if TYPE_CHECKING:
    from reconciler.core.ports import (
        EvaluateExpressions,
    )


# --- what a policy is asked about


_NAMED_LISTS = ("inputs", "outputs")
#: Numbers beyond these are no integers in CEL.
_INTEGERS = range(-(2**63), 2**63)
#: What of an action only the service knows, where a job of the key is there already.
_OF_THE_SERVICE = frozenset({"lost_node_hours"})


@dataclass(frozen=True)
class Subject:
    """One action and its job; `withheld` are fields that nobody can know where it is asked about."""

    key: str
    kind: str
    job: Mapping[str, Any]
    action: Mapping[str, Any]
    withheld: frozenset[str] = field(default_factory=frozenset)


@dataclass(frozen=True)
class Surroundings:
    """What is the same for all actions; `target` is the plan's, as far as it is known."""

    stack: str
    target: Mapping[str, Any]

    @property
    def withheld(self) -> frozenset[str]:
        """The fields of the target that are not known."""
        return frozenset(TargetIdentity.model_fields) - self.target.keys()


def planned(action: PlannedAction, desired: DesiredJob | None) -> Subject | None:
    """An action of a plan; None if it is none that policies are asked about, or declares no job."""
    if desired is None or desired.body is None or desired.is_absent:
        return None
    if not (action.traits.starts_a_job or action.action is Action.UPDATE):
        return None
    cost = action.cost
    is_started = action.traits.starts_a_job
    values = {
        "kind": action.action.value,
        "reason": action.reason.value,
        # An update starts nothing.
        "node_hours": cost.node_hours_max if cost is not None else None if is_started else 0.0,
        "cost": cost.cost_max if cost is not None else None if is_started else 0.0,
        "lost_node_hours": action.lost_node_hours,
    }
    return Subject(action.key, action.action.value, job_values(desired), values)


def declared(
    desired: DesiredJob,
    prices: Prices = NO_PRICES,
    *,
    kind: Action = Action.CREATE,
    reason: Reason = Reason.NOT_FOUND,
) -> Subject | None:
    """An action that follows from the declaration alone, where no service is asked.

    A create discards nothing; what a replace discards only the service knows.
    """
    if desired.body is None or desired.is_absent:
        return None
    cost = cost_of(desired.body, (), prices)
    is_update = kind is Action.UPDATE
    values: dict[str, Any] = {
        "kind": kind.value,
        "reason": reason.value,
        "node_hours": 0.0 if is_update else cost.node_hours_max,
        "cost": 0.0 if is_update else cost.cost_max,
        "lost_node_hours": 0.0,
    }
    withheld: frozenset[str] = frozenset()
    if kind is Action.REPLACE:
        withheld = _OF_THE_SERVICE
        values = {name: value for name, value in values.items() if name not in withheld}
    return Subject(desired.key, kind.value, job_values(desired), values, withheld)


def job_values(desired: DesiredJob) -> dict[str, Any]:
    """A job as policies see it: its key, the create body in the manifest's words, and its lifecycle."""
    job: dict[str, Any] = _plain(show(manifest_form(desired.body or {})))
    for algorithm in _algorithms(job):
        _list_members(algorithm)
    lifecycle = desired.lifecycle.model_dump(mode="json", exclude_none=True)
    lifecycle["retry_delay"] = f"{desired.lifecycle.retry_delay:g}s"
    return {**job, "key": desired.key, "description": str(desired.description), "lifecycle": lifecycle}


def _algorithms(job: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The algorithm of a job, and those of its tasks."""
    tasks = job.get("tasks")
    inside = [task.get("algorithm") for task in tasks or () if isinstance(task, Mapping)]
    return [one for one in (job.get("algorithm"), *inside) if isinstance(one, dict)]


def _list_members(algorithm: dict[str, Any]) -> None:
    """Let parameters, inputs, outputs and environments be lists of name and value, empty ones included."""
    environments = algorithm.get("environments")
    if isinstance(environments, Mapping):
        algorithm["environments"] = [{"name": name, "value": value} for name, value in environments.items()]
    for kind in _NAMED_LISTS:
        items = algorithm.get(kind)
        if isinstance(items, list):
            algorithm[kind] = [_with_value(item) for item in items]
    # Whoever asks whether one of them is of some kind must not deny the jobs that have none.
    for kind in ("parameters", *_NAMED_LISTS, "environments"):
        algorithm.setdefault(kind, [])


def _with_value(item: Any) -> Any:
    """An input or output, and the path that it stands for as its value."""
    remote = item.get("remote") if isinstance(item, Mapping) else None
    place = remote.get("obs") if isinstance(remote, Mapping) else None
    url = place.get("obs_url") if isinstance(place, Mapping) else None
    return {**item, "value": url} if isinstance(url, str) else item


def _plain(tree: Any) -> Any:
    """A copy of plain data in the types that an expression knows, whatever subclass stands there."""
    if isinstance(tree, Mapping):
        return {str(name): _plain(value) for name, value in tree.items()}
    if isinstance(tree, list | tuple):
        return [_plain(value) for value in tree]
    if isinstance(tree, str):
        return str(tree)
    if isinstance(tree, bool) or tree is None:
        return tree
    return int(tree) if isinstance(tree, int) and tree in _INTEGERS else float(tree)


# --- what policies say


DENIED_BY_A_POLICY = "denied by a policy"
_FIX = "change the jobs, or the policy; --force does not override it"
#: So many keys stand in a message.
_MOST_KEYS = 5


class PolicyWarning(NamedTuple):
    """A policy that warns of one action."""

    key: str
    policy: str
    message: str


@dataclass(frozen=True)
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
    stack: Stack,
    target: TargetIdentity,
    actions: Iterable[PlannedAction],
    evaluate: EvaluateExpressions | None,
) -> Verdicts:
    """Ask the policies of a stack about the actions of a plan."""
    if not stack.policies:
        return Verdicts()
    subjects = (planned(action, stack.find(action.key)) for action in actions)
    around = Surroundings(stack.name, target.model_dump(mode="json"))
    return judge(stack.policies, _there(subjects), around, evaluate or not_evaluated)


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
