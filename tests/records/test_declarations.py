"""The last applied declaration of each stack and its origin, on every database."""

from __future__ import annotations

import pytest

from reconciler.core.past import FinishedWork
from reconciler.core.phase import Phase
from reconciler.core.record import Scope
from reconciler.records.store import Records
from tests.builders import NOW
from tests.records.locations import (
    DIGEST,
    ELSEWHERE,
    OTHER_DIGEST,
    OTHER_STACK,
    SCOPE,
    Place,
    owned,
    statements,
)

_WRITES = {"INSERT", "UPDATE", "DELETE"}
HERE, THERE = "github.com/o/r//vision", "github.com/o/r//speech"


def remember(records: Records, scope: Scope, key: str, phase: Phase = Phase.COMPLETED) -> None:
    """Record an observed revision of a key."""
    records.remember(scope, [owned(key, stack=scope.stack, phase=phase, digest=DIGEST)], NOW)


def found(records: Records, place: str = HERE) -> dict[str, FinishedWork]:
    return dict(records.finished(SCOPE, {DIGEST, OTHER_DIGEST}, place))


OF_SPEECH = {DIGEST: FinishedWork("a", 1, OTHER_STACK.stack)}


@pytest.mark.parametrize(
    ("declared", "applied_from", "is_found"),
    [
        ("ab", THERE, False),
        ("b", THERE, True),  # a key that is not declared any more
        ("a", HERE, True),  # the stack under its former name
        (None, "", False),  # without an applied declaration
    ],
)
def test_undeclared_work_of_another_stack_is_found_by_its_digest(
    records: Records, declared: str | None, applied_from: str, is_found: bool
) -> None:
    remember(records, OTHER_STACK, "a")
    if declared is not None:
        records.declare(OTHER_STACK, dict.fromkeys("ab", ""), HERE if applied_from == THERE else THERE)
        records.declare(OTHER_STACK, dict.fromkeys(declared, ""), applied_from)
    assert found(records) == (OF_SPEECH if is_found else {})


@pytest.mark.parametrize(
    ("scope", "phase"),
    [
        *((OTHER_STACK, phase) for phase in Phase if phase is not Phase.COMPLETED),
        (ELSEWHERE, Phase.COMPLETED),
        (OTHER_STACK._replace(workspace_id="1"), Phase.COMPLETED),
        (SCOPE, Phase.COMPLETED),
    ],
)
def test_unfinished_foreign_target_or_own_work_is_not_found(
    records: Records, scope: Scope, phase: Phase
) -> None:
    remember(records, scope, "a", phase)
    records.declare(scope, {}, HERE)
    assert found(records) == {}


def test_thousands_of_digests_are_queried_in_batches(records: Records) -> None:
    remember(records, OTHER_STACK, "a")
    records.declare(OTHER_STACK, {}, THERE)
    digests = {f"b{number:012x}" for number in range(1200)} | {DIGEST}
    assert records.finished(SCOPE, digests, HERE) == OF_SPEECH


def test_sweep_of_an_undeclared_key_stays_recorded(place: Place) -> None:
    records = place.open()
    records.declare(SCOPE, {"lr-sweep-lr-1": "lr-sweep", "plain": ""}, HERE)
    records.declare(SCOPE, {"plain": ""}, HERE)
    assert place.open().memory(SCOPE).sweeps == {"lr-sweep-lr-1": "lr-sweep", "plain": ""}
    assert place.open().memory(OTHER_STACK).sweeps == {}


def test_recorded_declaration_is_not_written_again(records: Records) -> None:
    records.declare(SCOPE, {"a": ""}, HERE)
    with statements(records) as sent:
        records.declare(SCOPE, {"a": ""}, HERE)
        assert not _WRITES & {*sent}
        records.declare(SCOPE, {"a": ""}, THERE)
        assert [word for word in sent if word in _WRITES] == ["UPDATE"]
