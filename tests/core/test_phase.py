"""docs/concepts/revisions.md, "Phases": one table of the operations legal in each phase."""

from __future__ import annotations

import pytest

from reconciler.core.phase import ACTIVE, RULES, TERMINAL, Operation, Phase, may, parse_phase

C, P, R, T = Phase.CREATING, Phase.PENDING, Phase.RUNNING, Phase.TERMINATING
DONE, F, TD, A = Phase.COMPLETED, Phase.FAILED, Phase.TERMINATED, Phase.ABNORMAL


@pytest.mark.parametrize(
    ("phase", "expected", "legal"),
    [
        # terminate, description, priority, delete, create next
        (C, {P, R, T, F, A}, "xx---"),
        (P, {C, R, T, F, A}, "xxx--"),
        (R, {P, C, DONE, F, T, TD, A}, "xx---"),
        (T, {TD, DONE, F, A}, "-----"),
        (DONE, {C, P}, "-x-xx"),
        (F, {C, P}, "-x-xx"),
        (TD, {C, P}, "-x-xx"),
        (A, {C, P}, "-x-xx"),
        (None, set(), "-----"),
    ],
)
def test_operations_and_next_phases_are_legal_by_phase(
    phase: Phase | None, expected: set[Phase], legal: str
) -> None:
    verdicts = [may(operation, phase) for operation in Operation]
    assert "".join("x" if verdict else "-" for verdict in verdicts) == legal
    assert all(verdict or (verdict.why and verdict.legal_when) for verdict in verdicts)
    assert phase is None or RULES[phase].expected_next == expected


def test_every_phase_is_active_or_terminal() -> None:
    assert set(Phase) == ACTIVE | TERMINAL
    assert not ACTIVE & TERMINAL
    assert {C, P, R, T} == ACTIVE


OF_QUEUE = ("Pending", "Waiting", "awaiting", "等待中")


@pytest.mark.parametrize(
    ("text", "phase"), [*((text, P) for text in OF_QUEUE), ("running", R), ("Frozen", None), ("", None)]
)
def test_phase_is_parsed_in_any_spelling_or_none_if_unknown(text: str, phase: Phase | None) -> None:
    assert parse_phase(text) is phase
