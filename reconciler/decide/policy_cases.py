"""Cases for policies: a job, what is done about it, and which policies are to deny it or warn of it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence, Set
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import Field

from reconciler.core.fields.field_types import Strict
from reconciler.core.stack import NO_PRICES, DesiredJob, Policy, Prices
from reconciler.core.values import TargetIdentity
from reconciler.decide.plan import Action, Reason
from reconciler.decide.policies import Subject, Surroundings, declared, judge

if TYPE_CHECKING:
    from reconciler.core.ports import (
        EvaluateExpressions,
    )


class CaseAction(Strict):
    """What is done about the job; what it does not say is that of a create."""

    kind: Literal["create", "update", "replace"] = Field("create", description="Kind of action.")
    reason: Annotated[Reason, Field(strict=False)] = Field(Reason.NOT_FOUND, description="Reason.")
    node_hours: float | None = Field(None, ge=0, description="At most; default: by the job's auto_stop.")
    cost: float | None = Field(None, ge=0, description="At most; default: by the stack's prices.")
    lost_node_hours: float = Field(0.0, ge=0, description="Node-hours of work that the action discards.")


class Expectation(Strict):
    """The names of the policies that are to deny the job and to warn of it; all others are silent."""

    deny: list[str] = Field(default_factory=list, description="Policies that deny the job.")
    warn: list[str] = Field(default_factory=list, description="Policies that warn of the job.")


class CaseFile(Strict):
    """One file of cases: a job, and what the policies of the stack are to say of it."""

    job: dict[str, Any] = Field(description="Entry as under `jobs`, or as much of it as matters.")
    key: str | None = Field(None, description="Key of the job; default: the name of the file.")
    action: CaseAction = Field(
        default_factory=lambda: CaseAction(), description="What is done about the job; default: a create."
    )
    target: dict[str, Any] | None = Field(
        None, description="Target as in a plan document; default: the stack's, as far as it is known."
    )
    expect: Expectation = Field(description="What the policies are to say.")


@dataclass(frozen=True)
class PolicyCase:
    """A case that was read: `name` is its file, `job` the entry as a job."""

    name: str
    says: CaseFile
    job: DesiredJob


@dataclass(frozen=True)
class CaseResult:
    """What became of a case; `problems` say what was expected and what the policies said."""

    name: str
    problems: tuple[str, ...] = ()

    @property
    def has_passed(self) -> bool:
        """Whether the policies said what was expected."""
        return not self.problems


@dataclass(frozen=True)
class CasesReport:
    """All cases of a stack, in the order of their files."""

    stack: str
    results: tuple[CaseResult, ...]

    @property
    def failed(self) -> tuple[CaseResult, ...]:
        """The cases that did not pass."""
        return tuple(result for result in self.results if not result.has_passed)

    def document(self) -> dict[str, Any]:
        """The report as plain JSON data."""
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
    cases: Iterable[PolicyCase],
    policies: Sequence[Policy],
    around: Surroundings,
    evaluate: EvaluateExpressions,
    prices: Prices = NO_PRICES,
) -> CasesReport:
    """Ask the policies about each case, and compare what they say with what is expected."""
    results = (CaseResult(case.name, _problems(case, policies, around, evaluate, prices)) for case in cases)
    return CasesReport(around.stack, tuple(results))


def _problems(
    case: PolicyCase,
    policies: Sequence[Policy],
    around: Surroundings,
    evaluate: EvaluateExpressions,
    prices: Prices,
) -> tuple[str, ...]:
    expected, known = case.says.expect, {policy.name for policy in policies}
    unknown = [name for name in (*expected.deny, *expected.warn) if name not in known]
    if unknown:
        return tuple(f"expects {name}, which is not a policy of the stack" for name in unknown)
    if case.says.target is not None:
        target = dict.fromkeys(TargetIdentity.model_fields, "") | case.says.target
        around = Surroundings(around.stack, target)
    verdicts = judge(policies, [_subject(case, prices)], around, evaluate)
    failed = {one.policy: one.problem for one in verdicts.denied if one.problem is not None}
    denied = {one.policy for one in verdicts.denied} - failed.keys()
    warned = {one.policy for one in verdicts.warned}
    return (
        *(f"{name} could not be evaluated: {problem}" for name, problem in sorted(failed.items())),
        *_differences("deny", "denies", set(expected.deny) - failed.keys(), denied),
        *_differences("warn", "warns", set(expected.warn) - failed.keys(), warned),
        *(f"{name} needs {field}, which the case does not say" for name, field in verdicts.unasked.items()),
    )


def _differences(word: str, says: str, expected: Set[str], found: Set[str]) -> Iterator[str]:
    yield from (f"{name} is expected to {word}, and does not" for name in sorted(expected - found))
    yield from (f"{name} {says}, which is not expected" for name in sorted(found - expected))


def _subject(case: PolicyCase, prices: Prices) -> Subject:
    says = case.says.action
    kind = Action(says.kind)
    subject = declared(case.job, prices, kind=kind, reason=says.reason)
    assert subject is not None  # a case has a body, and is not absent
    own = {name: getattr(says, name) for name in says.model_fields_set}
    action = {**subject.action, "lost_node_hours": 0.0, **own, "reason": says.reason.value}
    return Subject(subject.key, says.kind, subject.job, action)
