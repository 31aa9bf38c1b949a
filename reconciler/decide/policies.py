"""Policies: their input, their verdicts on a plan, and the cases that test them.

An expression that fails on a job denies it, whatever its effect: its result is unknown. Source:
docs/reference/policies.md.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING, Annotated, Any, Literal, NamedTuple

from pydantic import Field

from reconciler.core.body import manifest_form
from reconciler.core.fields.field_types import Strict
from reconciler.core.policy_expression import NotJudged, Question, not_evaluated
from reconciler.core.stack import DesiredJob, Effect, Prices, Stack
from reconciler.core.values import DENIED_BY_A_POLICY, Denial, PlanWarning, Source, TargetIdentity
from reconciler.decide.cost import cost_of
from reconciler.decide.plan import ACTIONS, Action, Cost, PlannedAction, Reason
from reconciler.errors import Diagnostic, Location
from reconciler.secrets import show
from reconciler.text import few

if TYPE_CHECKING:
    from reconciler.core.ports import EvaluateExpressions

# --- the input of an expression


_NAMED_LISTS = ("inputs", "outputs")
#: The range of integers in CEL.
_INTEGERS = range(-(2**63), 2**63)


class Subject(NamedTuple):
    """An action and its job; a field of the action that cannot be known here is left out."""

    key: str
    kind: str
    job: Mapping[str, Any]
    action: Mapping[str, Any]


def _subject(
    desired: DesiredJob | None, kind: Action, reason: Reason, cost: Cost | None, lost_node_hours: float | None
) -> Subject | None:
    """Return the subject for an action; None if policies do not cover it, or the job is absent.

    `lost_node_hours` is None if it is unknown, because only the service knows what a replace discards.
    """
    if desired is None or desired.body is None or desired.is_absent:
        return None
    if not (ACTIONS[kind].starts_a_job or kind is Action.UPDATE):
        return None
    cost = Cost(node_hours_max=0.0, cost_max=0.0) if kind is Action.UPDATE else cost or Cost()
    values: dict[str, Any] = {"kind": kind.value, "reason": reason.value}
    values |= {"node_hours": cost.node_hours_max, "cost": cost.cost_max}
    if lost_node_hours is not None:
        values["lost_node_hours"] = lost_node_hours
    return Subject(desired.key, kind.value, job_values(desired), values)


def planned(action: PlannedAction, desired: DesiredJob | None) -> Subject | None:
    """Return the subject for an action of a plan; None if policies do not cover it, or the job is absent."""
    if desired is not None and action.after is not None:
        desired = desired.numbered(action.after.revision, action.made_from.get)
    return _subject(desired, action.action, action.reason, action.cost, action.lost_node_hours)


def declared(
    desired: DesiredJob, prices: Prices, *, kind: Action = Action.CREATE, reason: Reason = Reason.NOT_FOUND
) -> Subject | None:
    """Return the subject for an action that follows from the declaration alone."""
    cost = cost_of(desired.body or {}, (), prices)
    return _subject(desired, kind, reason, cost, None if kind is Action.REPLACE else 0.0)


def job_values(desired: DesiredJob) -> dict[str, Any]:
    """Return a job as policies see it: key, create body in the manifest's terms, and lifecycle."""
    job: dict[str, Any] = _plain(show(manifest_form(desired.body or {})))
    # A job of tasks has no algorithm of its own; a case may leave both out.
    job.setdefault("algorithm", {})
    job.setdefault("spec", {}).setdefault("resource", {}).setdefault("node_count", 1)
    tasks = [task.get("algorithm") for task in job.get("tasks") or () if isinstance(task, Mapping)]
    for algorithm in (job.get("algorithm"), *tasks):
        if isinstance(algorithm, dict):
            _list_members(algorithm)
    lifecycle = desired.lifecycle.model_dump(mode="json", exclude_none=True)
    lifecycle["retry_delay"] = f"{desired.lifecycle.retry_delay:g}s"
    return {**job, "key": desired.key, "description": str(desired.description), "lifecycle": lifecycle}


def _list_members(algorithm: dict[str, Any]) -> None:
    """Make parameters, inputs, outputs and environments lists of name and value, possibly empty."""
    environments = algorithm.get("environments")
    if isinstance(environments, Mapping):
        algorithm["environments"] = [{"name": name, "value": value} for name, value in environments.items()]
    for kind in _NAMED_LISTS:
        if isinstance(items := algorithm.get(kind), list):
            algorithm[kind] = [_with_value(item) for item in items]
    # Lists are always present, so that an expression about them does not fail on jobs without any.
    for kind in ("parameters", *_NAMED_LISTS, "environments"):
        algorithm.setdefault(kind, [])


def _with_value(item: Any) -> Any:
    """Add to an input or output the path that it stands for, as its value."""
    url = item
    for name in ("remote", "obs", "obs_url"):
        url = url.get(name) if isinstance(url, Mapping) else None
    return {**item, "value": url} if isinstance(url, str) else item


def _plain(tree: Any) -> Any:
    """Copy plain data into the types that expressions know."""
    if isinstance(tree, Mapping):
        return {str(name): _plain(value) for name, value in tree.items()}
    if isinstance(tree, list | tuple):
        return [_plain(value) for value in tree]
    if isinstance(tree, str):
        return str(tree)
    if isinstance(tree, bool) or tree is None:
        return tree
    return int(tree) if isinstance(tree, int) and tree in _INTEGERS else float(tree)


# --- verdicts


_FIX = "change the jobs, or the policy; --force does not override it"
#: Maximum number of keys in a message.
_MOST_KEYS = 5


class Verdicts(NamedTuple):
    """Denials and warnings, by key, then in the order of the policies.

    `unevaluated` maps policies that need the service for some job to the field that they need.
    """

    denied: tuple[Denial, ...] = ()
    warned: tuple[Denial, ...] = ()
    unevaluated: Mapping[str, str] = MappingProxyType({})

    @property
    def warnings(self) -> tuple[PlanWarning, ...]:
        warned = (
            PlanWarning(what=f"policy {one.policy}", why=one.explanation, key=one.key) for one in self.warned
        )
        unevaluated = (
            PlanWarning(what=f"policy {name}", why=f"it can only be evaluated in a plan: it needs {field}")
            for name, field in self.unevaluated.items()
        )
        return (*warned, *unevaluated)


def judge_plan(
    stack: Stack,
    target: TargetIdentity,
    actions: Iterable[PlannedAction],
    evaluate: EvaluateExpressions | None,
) -> Verdicts:
    """Evaluate the policies of a stack for the actions of a plan."""
    if not stack.policies:
        return Verdicts()
    subjects = [one for action in actions if (one := planned(action, stack.find(action.key)))]
    return judge(stack, target.model_dump(mode="json"), subjects, evaluate or not_evaluated)


def judge_declared(stack: Stack, target: Mapping[str, object], evaluate: EvaluateExpressions) -> Verdicts:
    """Evaluate the policies of a stack for all its jobs in view, as if each had to be created."""
    subjects = [one for _, job in sorted(stack.jobs.items()) if (one := declared(job, stack.prices))]
    return judge(stack, target, subjects, evaluate)


def judge(
    stack: Stack, target: Mapping[str, object], subjects: Sequence[Subject], evaluate: EvaluateExpressions
) -> Verdicts:
    """Evaluate each policy of a stack for each action of the kinds that it covers.

    `target` is that of the plan, as far as it is known.
    """
    questions = [
        Question(policy.expression, [place for place, one in enumerate(subjects) if one.kind in policy.only])
        for policy in stack.policies
    ]
    values = [
        {"job": one.job, "action": one.action, "stack": stack.name, "target": target} for one in subjects
    ]
    evaluated = zip(stack.policies, questions, evaluate(questions, values), strict=True)
    answers = [(policy, dict(zip(one.places, found, strict=True))) for policy, one, found in evaluated]
    found: dict[Effect, list[Denial]] = {Effect.DENY: [], Effect.WARN: []}
    unevaluated: dict[str, str] = {}
    for place, subject in enumerate(subjects):
        for policy, by_place in answers:
            answer, problem = by_place.get(place, False), None
            if isinstance(answer, NotJudged):
                left_out = {"lost_node_hours"} - subject.action.keys()
                if answer.missing in left_out | (TargetIdentity.model_fields.keys() - target.keys()):
                    unevaluated.setdefault(policy.name, str(answer.missing))
                    continue
                problem = answer.why
            if problem is not None or answer:
                effect = Effect.DENY if problem is not None else policy.effect
                fields = {"key": subject.key, "policy": policy.name, "message": policy.message}
                source = Source.of(policy.location)
                found[effect].append(Denial(**fields, problem=problem, source=source))
    return Verdicts(tuple(found[Effect.DENY]), tuple(found[Effect.WARN]), unevaluated)


def refusals_of(denied: Iterable[Denial]) -> tuple[Diagnostic, ...]:
    """Return a diagnostic for each policy, with the keys that it denies."""
    keys_by_reason: dict[Denial, list[str]] = {}
    for denial in denied:
        keys_by_reason.setdefault(denial.model_copy(update={"key": ""}), []).append(denial.key)
    diagnostics = []
    for reason, keys in keys_by_reason.items():
        why = f"{reason.policy} denies {few(keys, _MOST_KEYS)}: {reason.explanation}"
        source = reason.source
        location = None if source is None else Location(source.file, source.line, source.column)
        diagnostics.append(Diagnostic(DENIED_BY_A_POLICY, why, _FIX, location, f"policies.{reason.policy}"))
    return tuple(diagnostics)


# --- cases: a job, an action, and the policies that must deny it or warn of it


class CaseAction(Strict):
    """The action on the job; the defaults are those of a create."""

    kind: Literal["create", "update", "replace"] = Field("create", description="Kind of action.")
    reason: Annotated[Reason, Field(strict=False)] = Field(Reason.NOT_FOUND, description="Reason.")
    node_hours: float | None = Field(None, ge=0, description="At most; default: by the job's auto_stop.")
    cost: float | None = Field(None, ge=0, description="At most; default: by the stack's prices.")
    lost_node_hours: float = Field(0.0, ge=0, description="Node-hours of work that the action discards.")


class Expectation(Strict):
    """The policies that must deny the job, or warn of it; no others may."""

    deny: list[str] = Field(default_factory=list, description="Policies that deny the job.")
    warn: list[str] = Field(default_factory=list, description="Policies that warn of the job.")


class CaseFile(Strict):
    """A file of cases: a job, and the expected verdicts of the stack's policies."""

    job: dict[str, Any] = Field(description="Entry as under `jobs`, or the relevant part of it.")
    key: str | None = Field(None, description="Key of the job; default: the name of the file.")
    action: CaseAction = Field(
        default_factory=lambda: CaseAction(), description="What is done about the job; default: a create."
    )
    target: dict[str, Any] | None = Field(
        None, description="Target as in a plan document; default: the stack's, as far as it is known."
    )
    expect: Expectation = Field(description="Expected result of the policies.")


@dataclass(frozen=True)
class PolicyCase:
    """A case: `name` is its file, `job` its entry as a job."""

    name: str
    content: CaseFile
    job: DesiredJob


@dataclass(frozen=True)
class CaseResult:
    """The result of a case; `problems` compare expected and actual verdicts."""

    name: str
    problems: tuple[str, ...] = ()

    @property
    def has_passed(self) -> bool:
        return not self.problems


@dataclass(frozen=True)
class CasesReport:
    """The results of all cases of a stack, in the order of their files."""

    stack: str
    results: tuple[CaseResult, ...]

    @property
    def failed(self) -> tuple[CaseResult, ...]:
        return tuple(result for result in self.results if not result.has_passed)

    def document(self) -> dict[str, Any]:
        cases = [
            {"name": one.name, "passed": one.has_passed, "problems": list(one.problems)}
            for one in self.results
        ]
        return {
            "stack": self.stack,
            "passed": len(cases) - len(self.failed),
            "failed": len(self.failed),
            "cases": cases,
        }


def run_cases(
    cases: Iterable[PolicyCase], stack: Stack, target: Mapping[str, object], evaluate: EvaluateExpressions
) -> CasesReport:
    """Evaluate the policies for each case, and compare the verdicts with the expected ones."""
    known, results = {policy.name for policy in stack.policies}, []
    for case in cases:
        expected = case.content.expect
        unknown = [name for name in (*expected.deny, *expected.warn) if name not in known]
        problems = [f"expects {name}, which is not a policy of the stack" for name in unknown]
        if not unknown:
            given = case.content.target
            where = target if given is None else dict.fromkeys(TargetIdentity.model_fields, "") | given
            problems += _problems(
                expected, judge(stack, where, [_case_subject(case, stack.prices)], evaluate)
            )
        results.append(CaseResult(case.name, tuple(problems)))
    return CasesReport(stack.name, tuple(results))


def _problems(expected: Expectation, verdicts: Verdicts) -> Iterator[str]:
    failed = {one.policy: one.problem for one in verdicts.denied if one.problem is not None}
    for name, problem in sorted(failed.items()):
        yield f"{name} could not be evaluated: {problem}"
    for effect, names, actual in (
        ("deny", expected.deny, {one.policy for one in verdicts.denied} - failed.keys()),
        ("warn", expected.warn, {one.policy for one in verdicts.warned}),
    ):
        verb = {"deny": "denies", "warn": "warns"}[effect]
        expected_names = set(names) - failed.keys()
        yield from (
            f"{name} is expected to {effect}, but does not" for name in sorted(expected_names - actual)
        )
        yield from (f"{name} {verb}, which is not expected" for name in sorted(actual - expected_names))
    for name, field in verdicts.unevaluated.items():
        yield f"{name} needs {field}, which the case does not give"


def _case_subject(case: PolicyCase, prices: Prices) -> Subject:
    given = case.content.action
    subject = declared(case.job, prices, kind=Action(given.kind), reason=given.reason)
    assert subject is not None  # a case has a body, and is not absent
    own = {name: getattr(given, name) for name in given.model_fields_set}
    action = {**subject.action, "lost_node_hours": 0.0, **own, "reason": given.reason.value}
    return Subject(subject.key, given.kind, subject.job, action)
