"""What is newest in a history, and what was declared differently."""

from __future__ import annotations

from typing import Any

from reconciler.core.record import HistorySnapshot, PastRevision
from reconciler.core.stack import Declared
from reconciler.decide.history import changes_of, newest_revisions
from tests.builders import NOW


def a_revision(number: int, key: str = "a", **more: Any) -> PastRevision:
    return PastRevision(key, number, key, "id", "a1", **{"phase_text": "Completed", **more})


def a_memory(*revisions: PastRevision) -> HistorySnapshot:
    by_key: dict[str, tuple[PastRevision, ...]] = {}
    for one in revisions:
        by_key[one.key] = (*by_key.get(one.key, ()), one)
    return HistorySnapshot(by_key)


def test_newest_revisions_are_sorted_by_creation_with_unknown_ones_first() -> None:
    memory = a_memory(
        a_revision(1, created_at_s=NOW),
        a_revision(2, created_at_s=None),
        a_revision(1, "b", created_at_s=NOW + 1),
    )
    assert [(one.key, one.number) for one in newest_revisions(memory, 2)] == [("a", 2), ("b", 1)]
    assert len(newest_revisions(memory, 9)) == 3


def test_changes_of_a_declaration_say_which_force_a_new_job() -> None:
    before = Declared({"algorithm": {"parameters": {"lr": {"value": "1"}}}}, {}, "one", protect=False)
    after = Declared(
        {"algorithm": {"parameters": {"lr": {"value": "2"}}}},
        {"spec": {"schedule_policy": {"priority": 3}}},
        "two",
    )
    found = [(c.path, c.before, c.after, c.forces_new_job) for c in changes_of(before, after)]
    assert found == [
        ("algorithm.parameters.lr", "1", "2", True),
        ("description", "one", "two", False),
        ("spec.schedule_policy.priority", None, 3, False),
    ]
    assert changes_of(after, after) == ()
