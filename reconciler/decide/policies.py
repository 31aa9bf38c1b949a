"""Policies: what they are asked about, what they say of a plan, and cases that test them.

An expression that fails on a job denies it, whichever of the two effects it has: nobody knows what it would
say.
Source: docs/policies.md.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple

from reconciler.core.body import manifest_form
from reconciler.core.policy_expression import NotJudged, Question, not_evaluated
from reconciler.core.stack import NO_PRICES, DesiredJob, Effect, Policy, Prices, Stack
from reconciler.core.values import Denial, PlanWarning, Source, TargetIdentity
from reconciler.decide.cost import cost_of
from reconciler.decide.plan import Action, PlannedAction, Reason
from reconciler.errors import Diagnostic, Location
from reconciler.secrets import show
from reconciler.text import few

if TYPE_CHECKING:
    from reconciler.core.ports import (
        EvaluateExpressions,
    )


# --- what a policy is asked about


_NAMED_LISTS = ("inputs", "outputs")
#: Numbers beyond these are no integers in CEL.
_INTEGERS = range(-(2**63), 2**63)


class Subject(NamedTuple):
    """One action and its job; `withheld` are fields that nobody can know where it is asked about."""

    key: str
    kind: str
    job: Mapping[str, Any]
    action: Mapping[str, Any]
    withheld: frozenset[str] = frozenset()


class Surroundings(NamedTuple):
    """What is the same for all actions; `target` is the plan's, as far as it is known."""

    stack: str
    target: Mapping[str, Any]

    @property
    def withheld(self) -> frozenset[str]:
        """The fields of the target that are not known."""
        return frozenset(TargetIdentity.model_fields) - self.target.keys()


def planned(action: PlannedAction, desired: DesiredJob | None) -> Subject | None:
    """An action of a plan; None if it is none that policies are asked about, or declares no job."""
    is_started, cost = action.traits.starts_a_job, action.cost
    if desired is None or desired.body is None or desired.is_absent:
        return None
    if not (is_started or action.action is Action.UPDATE):
        return None
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
    cost, is_update = cost_of(desired.body, (), prices), kind is Action.UPDATE
    values: dict[str, Any] = {
        "kind": kind.value,
        "reason": reason.value,
        "node_hours": 0.0 if is_update else cost.node_hours_max,
        "cost": 0.0 if is_update else cost.cost_max,
    }
    if kind is Action.REPLACE:
        return Subject(desired.key, kind.value, job_values(desired), values, frozenset({"lost_node_hours"}))
    return Subject(desired.key, kind.value, job_values(desired), {**values, "lost_node_hours": 0.0})


def job_values(desired: DesiredJob) -> dict[str, Any]:
    """A job as policies see it: its key, the create body in the manifest's words, and its lifecycle."""
    job: dict[str, Any] = _plain(show(manifest_form(desired.body or {})))
    tasks = [task.get("algorithm") for task in job.get("tasks") or () if isinstance(task, Mapping)]
    for algorithm in (job.get("algorithm"), *tasks):
        if isinstance(algorithm, dict):
            _list_members(algorithm)
    lifecycle = desired.lifecycle.model_dump(mode="json", exclude_none=True)
    lifecycle["retry_delay"] = f"{desired.lifecycle.retry_delay:g}s"
    return {**job, "key": desired.key, "description": str(desired.description), "lifecycle": lifecycle}


def _list_members(algorithm: dict[str, Any]) -> None:
    """Let parameters, inputs, outputs and environments be lists of name and value, empty ones included."""
    environments = algorithm.get("environments")
    if isinstance(environments, Mapping):
        algorithm["environments"] = [{"name": name, "value": value} for name, value in environments.items()]
    for kind in _NAMED_LISTS:
        if isinstance(items := algorithm.get(kind), list):
            algorithm[kind] = [_with_value(item) for item in items]
    # Whoever asks whether one of them is of some kind must not deny the jobs that have none.
    for kind in ("parameters", *_NAMED_LISTS, "environments"):
        algorithm.setdefault(kind, [])


def _with_value(item: Any) -> Any:
    """An input or output, and the path that it stands for as its value."""
    url = item
    for name in ("remote", "obs", "obs_url"):
        url = url.get(name) if isinstance(url, Mapping) else None
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


class Verdicts(NamedTuple):
    """What was denied and warned of, by key, then in the order of the policies.

    `unasked` are policies, by name, that could not be asked of every job without the service, with the
    field that they need.
    """

    denied: tuple[Denial, ...] = ()
    warned: tuple[PolicyWarning, ...] = ()
    unasked: Mapping[str, str] = MappingProxyType({})

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
    subjects = [one for action in actions if (one := planned(action, stack.find(action.key)))]
    around = Surroundings(stack.name, target.model_dump(mode="json"))
    return judge(stack.policies, subjects, around, evaluate or not_evaluated)


def judge_declared(stack: Stack, target: Mapping[str, object], evaluate: EvaluateExpressions) -> Verdicts:
    """Ask the policies of a stack about all its jobs in view, as if each had to be created.

    `target` is the plan's, as far as it is known.
    """
    subjects = [one for _, job in sorted(stack.jobs.items()) if (one := declared(job, stack.prices))]
    return judge(stack.policies, subjects, Surroundings(stack.name, target), evaluate)


def judge(
    policies: Sequence[Policy],
    subjects: Sequence[Subject],
    around: Surroundings,
    evaluate: EvaluateExpressions,
) -> Verdicts:
    """Ask each policy about each action of the kinds that it is for."""
    questions = [
        Question(policy.expression, [place for place, one in enumerate(subjects) if one.kind in policy.only])
        for policy in policies
    ]
    values = [
        {"job": one.job, "action": one.action, "stack": around.stack, "target": around.target}
        for one in subjects
    ]
    answered = zip(policies, questions, evaluate(questions, values), strict=True)
    answers = [(policy, dict(zip(one.places, found, strict=True))) for policy, one, found in answered]
    denied: list[Denial] = []
    warned: list[PolicyWarning] = []
    unasked: dict[str, str] = {}
    for place, subject in enumerate(subjects):
        withheld = subject.withheld | around.withheld
        for policy, by_place in answers:
            answer, problem = by_place.get(place, False), None
            if isinstance(answer, NotJudged):
                if answer.missing in withheld:
                    unasked.setdefault(policy.name, str(answer.missing))
                    continue
                problem = answer.why
            if problem is not None or (answer and policy.effect is Effect.DENY):
                source, said = Source.of(policy.location), policy.message
                denied.append(
                    Denial(key=subject.key, policy=policy.name, message=said, problem=problem, source=source)
                )
            elif answer:
                warned.append(PolicyWarning(subject.key, policy.name, policy.message))
    return Verdicts(tuple(denied), tuple(warned), unasked)


def refusals_of(denied: Iterable[Denial]) -> tuple[Diagnostic, ...]:
    """Why keys are blocked: each policy with the keys that it denies."""
    keys_by_reason: dict[Denial, list[str]] = {}
    for one in denied:
        keys_by_reason.setdefault(one.model_copy(update={"key": ""}), []).append(one.key)
    found = []
    for reason, keys in keys_by_reason.items():
        why = f"{reason.policy} denies {few(keys, _MOST_KEYS)}: {reason.explanation}"
        source = reason.source
        location = None if source is None else Location(source.file, source.line, source.column)
        found.append(Diagnostic(DENIED_BY_A_POLICY, why, _FIX, location, f"policies.{reason.policy}"))
    return tuple(found)
