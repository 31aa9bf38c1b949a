"""docs/semantics.md, "Phases": one table says what is legal in which phase."""

from __future__ import annotations

import pytest

from reconciler.core.phase import ACTIVE, RULES, TERMINAL, Operation, Phase, may, parse_phase

C, P, R, T = Phase.CREATING, Phase.PENDING, Phase.RUNNING, Phase.TERMINATING
DONE, F, TD, A = Phase.COMPLETED, Phase.FAILED, Phase.TERMINATED, Phase.ABNORMAL

TABLE = [
    # phase, expected next,            terminate, description, priority, delete, create next
    (C, {P, R, T, F, A}, True, True, False, False, False),
    (P, {C, R, T, F, A}, True, True, True, False, False),
    (R, {P, C, DONE, F, T, TD, A}, True, True, False, False, False),
    (T, {TD, DONE, F, A}, False, False, False, False, False),
    (DONE, {C, P}, False, True, False, True, True),
    (F, {C, P}, False, True, False, True, True),
    (TD, {C, P}, False, True, False, True, True),
    (A, {C, P}, False, True, False, True, True),
]


@pytest.mark.parametrize(("phase", "expected", "end", "describe", "prioritise", "delete", "create"), TABLE)
def test_operations_and_next_phases_are_legal_by_phase(
    phase: Phase,
    expected: set[Phase],
    end: bool,
    describe: bool,
    prioritise: bool,
    delete: bool,
    create: bool,
) -> None:
    verdicts = [bool(may(operation, phase)) for operation in Operation]
    assert verdicts == [end, describe, prioritise, delete, create]
    assert RULES[phase].expected_next == expected


@pytest.mark.parametrize("operation", Operation)
@pytest.mark.parametrize("phase", [*Phase, None])
def test_forbidden_operation_says_why_and_when_it_is_legal(phase: Phase | None, operation: Operation) -> None:
    verdict = may(operation, phase)
    assert verdict or (verdict.why and verdict.legal_when)


@pytest.mark.parametrize("operation", Operation)
def test_operations_are_illegal_in_an_unknown_phase(operation: Operation) -> None:
    assert not may(operation, None)


def test_every_phase_is_active_or_terminal() -> None:
    assert set(Phase) == ACTIVE | TERMINAL
    assert not ACTIVE & TERMINAL
    assert {C, P, R, T} == ACTIVE


@pytest.mark.parametrize(
    ("text", "phase"),
    [
        ("Pending", P),
        ("Waiting", P),
        ("awaiting", P),
        ("等待中", P),
        ("running", R),
        ("Frozen", None),
        ("", None),
    ],
)
def test_spelling_of_a_phase_is_parsed_and_an_unknown_one_is_none(text: str, phase: Phase | None) -> None:
    assert parse_phase(text) is phase
