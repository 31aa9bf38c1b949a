"""SEMANTICS 11: what changed on the service, told apart from what changed in the manifest."""

from __future__ import annotations

from typing import Any

import pytest

from reconciler.core.draft import Situation
from reconciler.core.drift import DriftReport, make_drift_report
from reconciler.core.marks import Cloud
from reconciler.core.observed import Observation, ObservedJob, Unreadable
from reconciler.core.ownership import sort_by_key
from reconciler.core.phase import Phase
from reconciler.core.planner import Look
from reconciler.core.stack import Stack
from tests.builders import HOUR, NOW, STACK, TARGET, a_job, a_stack, absent, seen


def report(stack: Stack, *jobs: ObservedJob, cloud: Cloud = Cloud.HUAWEI, **observation: Any) -> DriftReport:
    ownership = sort_by_key(Observation(jobs, **observation), STACK, stack.declared_keys)
    situation = Situation(STACK, cloud=cloud, at_s=NOW)
    return make_drift_report(
        stack, Look(ownership, {}), situation, TARGET, manifest_digest="sha256:0", version="0"
    )


def classes(found: DriftReport) -> list[str]:
    return [item.class_.value for item in found.drift]


NEW = a_job()
OLD = a_job(algorithm__parameters={"lr": 9})
STOPPING = a_job(spec__auto_stop={"time_unit": "HOURS", "duration": 2})


@pytest.mark.parametrize(
    ("stack", "jobs", "expected"),
    [
        (a_stack(NEW), [], ["missing"]),
        (a_stack(NEW), [seen(NEW)], []),
        (a_stack(NEW), [seen(NEW, phase="Completed")], []),
        (a_stack(NEW), [seen(NEW, phase="Failed")], ["failed"]),
        (a_stack(NEW), [seen(NEW, phase="Abnormal")], ["failed"]),
        (a_stack(STOPPING), [seen(STOPPING, phase="Failed", ran_s=2 * HOUR)], []),
        (a_stack(STOPPING), [seen(STOPPING, phase="Terminated", ran_s=2 * HOUR)], []),
        (a_stack(NEW), [seen(NEW, phase="Terminated")], ["terminated"]),
        (a_stack(NEW), [seen(NEW, phase="Terminated", stopped=True)], []),
        (a_stack(NEW), [seen(NEW, phase="Failed"), seen(NEW, revision=2)], []),
        (a_stack(NEW), [seen(OLD), seen(NEW, revision=2, phase="Failed")], ["failed"]),
        (
            a_stack(a_job("b")),
            [seen(NEW), seen(NEW, revision=2), seen(a_job("b"))],
            ["duplicate", "orphaned", "orphaned"],
        ),
        (a_stack(NEW), [seen(NEW, description=""), seen(NEW, revision=2)], ["unowned"]),
        (a_stack(NEW), [seen(NEW, phase="Terminating", ended_s_ago=2 * HOUR, ran_s=0)], []),
        (a_stack(NEW), [seen(NEW, text="edited by hand")], ["modified"]),
        (a_stack(NEW), [seen(NEW, text="edited by hand", phase="Completed")], []),
        (a_stack(NEW), [seen(NEW), seen(NEW, revision=2)], ["duplicate"]),
        (
            a_stack(NEW),
            [seen(NEW, phase="Terminating", ended_s_ago=60), seen(NEW, revision=2)],
            ["duplicate"],
        ),
        (a_stack(a_job("b")), [seen(NEW), seen(a_job("b"))], ["orphaned"]),
        (a_stack(a_job("b"), is_partial=True), [seen(NEW), seen(a_job("b"))], []),
        (a_stack(absent()), [seen(NEW)], ["orphaned"]),
        (a_stack(a_job("b")), [seen(NEW, phase="Completed"), seen(a_job("b"))], []),
        (a_stack(NEW), [seen(NEW, description="")], ["unowned", "missing"]),
        (a_stack(NEW), [seen(NEW), seen(NEW, revision=2, description="")], ["unowned"]),
        (a_stack(NEW), [seen(NEW, phase="Terminating", ended_s_ago=2 * HOUR)], ["stuck"]),
        (a_stack(NEW), [seen(NEW, phase="Terminating", ended_s_ago=60)], []),
        (a_stack(NEW), [seen(NEW, phase="Frozen")], ["unknown"]),
    ],
)
def test_classes(stack: Stack, jobs: list[ObservedJob], expected: list[str]) -> None:
    found = report(stack, *jobs)
    assert classes(found) == expected
    assert found.has_drifted is bool([name for name in expected if name != "unknown"])
    assert found.summary == {name: expected.count(name.value) for name in found.summary}


def test_a_manifest_that_is_ahead_is_pending_and_no_drift() -> None:
    found = report(a_stack(NEW), seen(OLD))
    assert not found.has_drifted
    [pending] = found.pending
    assert (pending.key, pending.job) == ("a", seen(OLD).id)


def test_what_cannot_be_changed_now_waits_and_is_no_drift() -> None:
    wanted = a_job(spec__schedule_policy={"priority": 3})
    running = seen(wanted, body=NEW.body)
    assert classes(report(a_stack(wanted), running)) == []
    queued = seen(wanted, phase=Phase.PENDING, body=NEW.body)
    assert classes(report(a_stack(wanted), queued)) == ["modified"]
    assert classes(report(a_stack(wanted), queued, cloud=Cloud.OTC)) == []


def test_what_could_not_be_read_is_unknown_and_hides_no_other() -> None:
    lost = Unreadable("status is missing", name="a")
    found = report(a_stack(NEW, a_job("b")), seen(a_job("b"), phase="Failed"), unreadable=(lost,))
    assert classes(found) == ["unknown", "failed"]
    assert not found.complete
    assert found.compared == 1


def test_a_list_that_could_not_be_read_compares_nothing() -> None:
    found = report(a_stack(NEW), problem="timeout", is_whole=False)
    assert classes(found) == ["unknown"]
    assert found.compared == 0
    assert not found.has_drifted


def test_since_when() -> None:
    [item] = report(a_stack(NEW), seen(NEW, phase="Failed", ended_s_ago=HOUR)).drift
    assert item.since == "2027-01-15T07:00:00Z"
