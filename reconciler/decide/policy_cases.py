"""Cases for policies: a job, what is done about it, and which policies are to deny it or warn of it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import Field

from reconciler.core.fields.field_types import Strict
from reconciler.core.stack import NO_PRICES, DesiredJob, Policy, Prices
from reconciler.core.values import TargetIdentity
from reconciler.decide.plan import Action, Reason
from reconciler.decide.policies import Subject, Surroundings, Verdicts, declared, judge

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
    known, results = {policy.name for policy in policies}, []
    for case in cases:
        expected = (*case.says.expect.deny, *case.says.expect.warn)
        unknown = [name for name in expected if name not in known]
        problems = [f"expects {name}, which is not a policy of the stack" for name in unknown]
        if not unknown:
            target = around.target
            if case.says.target is not None:
                target = dict.fromkeys(TargetIdentity.model_fields, "") | case.says.target
            where = Surroundings(around.stack, target)
            problems = [
                *_problems(case.says.expect, judge(policies, [_subject(case, prices)], where, evaluate))
            ]
        results.append(CaseResult(case.name, tuple(problems)))
    return CasesReport(around.stack, tuple(results))


def _problems(expected: Expectation, verdicts: Verdicts) -> Iterator[str]:
    """What the policies said otherwise than expected."""
    failed = {one.policy: one.problem for one in verdicts.denied if one.problem is not None}
    for name, problem in sorted(failed.items()):
        yield f"{name} could not be evaluated: {problem}"
    for word, names, found in (
        ("deny", expected.deny, {one.policy for one in verdicts.denied} - failed.keys()),
        ("warn", expected.warn, {one.policy for one in verdicts.warned}),
    ):
        says = {"deny": "denies", "warn": "warns"}[word]
        meant = set(names) - failed.keys()
        yield from (f"{name} is expected to {word}, and does not" for name in sorted(meant - found))
        yield from (f"{name} {says}, which is not expected" for name in sorted(found - meant))
    for name, field in verdicts.unasked.items():
        yield f"{name} needs {field}, which the case does not say"


def _subject(case: PolicyCase, prices: Prices) -> Subject:
    says = case.says.action
    subject = declared(case.job, prices, kind=Action(says.kind), reason=says.reason)
    assert subject is not None  # a case has a body, and is not absent
    own = {name: getattr(says, name) for name in says.model_fields_set}
    action = {**subject.action, "lost_node_hours": 0.0, **own, "reason": says.reason.value}
    return Subject(subject.key, says.kind, subject.job, action)
