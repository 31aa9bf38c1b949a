"""A status agrees with the plan of the same moment: one table row per revision state."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest

from reconciler.core.observed import ObservedJob, Unreadable
from reconciler.core.past import PastChange
from reconciler.core.phase import Phase
from reconciler.core.stack import DesiredJob, narrow
from reconciler.decide.reports import JobStatus, StatusReport, make_status
from tests.builders import NOW, a_job, a_stack, absent, seen
from tests.core.worlds import a_world

A = a_job()
OTHER = a_job(algorithm__command="python other.py")
CREATE_FIRST = a_job(lifecycle={"replace_order": "create_first"})
RETRIED_LATER = a_job(lifecycle={"on_failure": "retry"})
QUEUED, PROTECTED = seen(A, revision=2, phase=Phase.PENDING), seen(OTHER, protected=True)


def status_of(
    entries: Sequence[DesiredJob],
    *jobs: ObservedJob,
    unreadable: Sequence[Unreadable] = (),
    changes: Sequence[PastChange] = (),
    only: Sequence[str] = (),
) -> StatusReport:
    stack = narrow(a_stack(*entries), only, [job.marker.key for job in jobs if job.marker])
    world = a_world(stack, *jobs, unreadable=tuple(unreadable))
    return make_status(world.proposed(), world.plan(), {one.key: one for one in changes})


def line(one: JobStatus) -> tuple[int | None, str | None, str | None]:
    return one.revision, one.phase, one.waits_for.kind.value if one.waits_for else None


@pytest.mark.parametrize(
    ("entry", "jobs", "lines"),
    [
        (A, [], [(None, None, "apply")]),
        (A, [seen(A)], [(1, "Running", None)]),
        (A, [seen(A, phase=Phase.PENDING)], [(1, "Pending", "queue")]),
        (A, [seen(A, phase=Phase.COMPLETED)], [(1, "Completed", None)]),
        (A, [seen(A, phase=Phase.FAILED)], [(1, "Failed", None)]),
        (A, [seen(A, phase=Phase.TERMINATING, stopped=True)], [(1, "Terminating", "termination")]),
        (OTHER, [seen(A)], [(1, "Running", "apply")]),
        (OTHER, [seen(A, phase=Phase.COMPLETED)], [(1, "Completed", "apply")]),
        # A further active revision follows that of the key.
        (A, [seen(OTHER), seen(A, revision=2)], [(2, "Running", None), (1, "Running", "apply")]),
        (A, [seen(A), seen(OTHER, revision=2)], [(1, "Running", None), (2, "Running", "apply")]),
        (CREATE_FIRST, [seen(OTHER), QUEUED], [(2, "Pending", "queue"), (1, "Running", "successor")]),
        (A, [PROTECTED, seen(A, revision=2)], [(2, "Running", None), (1, "Running", "blocked")]),
        # Ended revisions other than the newest are history.
        (A, [seen(OTHER, phase=Phase.FAILED), seen(A, revision=2)], [(2, "Running", None)]),
        (A, [seen(A, phase="Dancing")], [(1, "Dancing", "blocked")]),
        (absent(), [seen(A)], [(1, "Running", "apply")]),
        (absent(), [seen(A, phase=Phase.COMPLETED)], []),
        (absent(), [seen(A, phase=Phase.COMPLETED, digest="z" + "0" * 12)], [(1, "Completed", "blocked")]),
        (absent(), [], []),
        (absent(protect=True), [seen(A)], [(1, "Running", "blocked")]),
    ],
)
def test_status_rows_show_revision_phase_and_pending_step(
    entry: DesiredJob, jobs: list[ObservedJob], lines: list[tuple[int | None, str | None, str | None]]
) -> None:
    assert [line(one) for one in status_of([entry], *jobs).jobs] == lines


@pytest.mark.parametrize(
    ("entry", "phase", "detail", "due"),
    [
        (A, Phase.CREATING, "the service to create it", False),
        (A, Phase.PENDING, "its turn in the queue", False),
        (A, Phase.TERMINATING, "its termination", False),
        (RETRIED_LATER, Phase.FAILED, "retry 1 of 1 at", True),
    ],
)
def test_waiting_job_states_cause_and_due_time(
    entry: DesiredJob, phase: Phase, detail: str, due: bool
) -> None:
    [one] = status_of([entry], seen(entry, phase=phase, ended_s_ago=60.0)).jobs
    assert one.waits_for is not None
    assert detail in one.waits_for.detail
    assert (one.waits_for.due_at is not None) is due
    assert (one.waits_for.due_at or "") in one.waits_for.detail


def test_unreadable_job_affects_its_key_only() -> None:
    report = status_of([A, a_job("b")], seen(a_job("b")), unreadable=[Unreadable("mistyped phase", name="a")])
    assert [(one.key, one.problem, one.phase) for one in report.jobs] == [
        ("a", "mistyped phase", None),
        ("b", None, "Running"),
    ]
    assert (report.complete, report.unknown, report.without_a_job) == (False, 1, 0)


@pytest.mark.parametrize(("only", "keys"), [((), ["a"]), (("old",), ["old"]), (("a", "old"), ["a", "old"])])
def test_undeclared_ended_key_is_shown_only_when_selected(only: tuple[str, ...], keys: list[str]) -> None:
    report = status_of([A], seen(key="old", phase=Phase.FAILED), only=only)
    assert [one.key for one in report.jobs] == keys


def a_change(job: ObservedJob, at_s: float, call: str = "create", key: str = "a") -> PastChange:
    return PastChange(key, call, call, "apply", "alice", job.id, at_s)


RAN = seen(A, ran_s=60.0, ended_s_ago=0.0)  # created 70 s ago
ENDED = seen(A, phase=Phase.COMPLETED, ran_s=60.0, ended_s_ago=30.0)  # 100 s ago


@pytest.mark.parametrize(
    ("job", "change", "expected"),
    [
        (RAN, None, ("created", None)),
        (RAN, a_change(RAN, NOW - 71), ("create", "alice")),
        (RAN, a_change(RAN, NOW - 5, "update"), ("update", "alice")),
        (RAN, a_change(seen(A, revision=7), NOW - 5), ("created", None)),
        (ENDED, None, ("Completed", None)),
        (ENDED, a_change(ENDED, NOW - 101), ("Completed", None)),
        (ENDED, a_change(ENDED, NOW - 5, "update"), ("update", "alice")),
        (ENDED, a_change(ENDED, NOW - 101, "terminate"), ("terminate", "alice")),
    ],
)
def test_last_change_is_the_latest_and_names_its_author_if_known(
    job: ObservedJob, change: PastChange | None, expected: tuple[str, str | None]
) -> None:
    [one] = status_of([A], job, changes=[change] if change else []).jobs
    assert one.last_change is not None
    assert (one.last_change.what, one.last_change.who) == expected


def test_last_change_of_a_renamed_key_is_found_under_its_old_name() -> None:
    job = seen(replace(A, key="old"))
    renamed = replace(A, key="new", formerly=("old",))
    [one] = status_of([renamed], job, changes=[a_change(job, NOW - 5, key="old")]).jobs
    assert one.last_change is not None
    assert one.last_change.who == "alice"


def test_nodes_and_flavors_of_every_task_are_shown() -> None:
    tasks = [
        {"task_resource": {"flavor_id": "cpu", "node_count": 1}},
        {"task_resource": {"flavor_id": "gpu", "node_count": 4}},
        {"task_resource": {"pool_id": "mine", "node_count": 2}},
    ]
    [one] = status_of([replace(A, body={"metadata": {}, "tasks": tasks})]).jobs
    assert (one.nodes, one.flavor) == (7, "cpu + gpu")
