"""`needs`, `formerly` and the history, carried out: what stands on the service afterwards."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from reconciler import reconcile
from reconciler.apply.executor import EventStream
from reconciler.core.past import RunKind
from reconciler.core.stack import DesiredJob
from reconciler.decide.outcome import Result, Status
from reconciler.decide.plan import EVERY_GUARD, Action, Plan, Reason
from reconciler.reconcile import Context
from reconciler.records.recording import Recording
from reconciler.rollout import Rollout
from tests.apply.kill_helpers import killed_at
from tests.apply.service import PROJECT, Service, a_service
from tests.builders import a_job, a_stack

NEW: dict[str, Any] = {"algorithm__parameters": {"lr": 0.5}}


@pytest.fixture
def recorded(service: Service, tmp_path: Path) -> Iterator[Service]:
    """The same with a history."""
    service.recording = Recording(f"sqlite://{tmp_path}/records.sqlite3", tmp_path, service.time)
    yield service
    service.recording.close()


def in_context(service: Service, *jobs: DesiredJob) -> Context:
    stack = a_stack(*jobs)
    return service.context(replace(stack, whole=stack.jobs), parallelism=1)


def planned(service: Service, *jobs: DesiredJob) -> Plan:
    return reconcile.plan(in_context(service, *jobs), EVERY_GUARD)


def applied(service: Service, *jobs: DesiredJob) -> Result:
    context = in_context(service, *jobs)
    stream = EventStream(service.time, service.events.append)
    rollout = Rollout(context, RunKind.APPLY, stream, service.stop, allowances=EVERY_GUARD)
    return rollout.run(reconcile.plan(context, EVERY_GUARD))


def statuses(result: Result) -> dict[str, Status]:
    return {outcome.action.key: outcome.status for outcome in result.outcomes}


def decisions(plan: Plan) -> dict[str, tuple[Action, Reason]]:
    return {action.key: (action.action, action.reason) for action in plan.actions}


def owners(service: Service) -> dict[str, str]:
    """The key on the marker of each job, by its name."""
    return {
        name: service.description(name).split("reconciler.vision.")[1].split(".")[0]
        for name in service.phases()
    }


def renamed(**said: Any) -> DesiredJob:
    return replace(a_job("new", **said), formerly=("old",))


def needing(*upstream: str, key: str, **said: Any) -> DesiredJob:
    return replace(a_job(key, **said), needs=upstream)


def three_revisions_of_old(service: Service) -> None:
    """Two that ended, and one that runs."""
    service.run(a_job("old", **NEW))
    service.store.set_phase(service.job("old").id, "Completed")
    service.run(a_job("old", algorithm__parameters={"lr": 0.9}))
    service.store.set_phase(service.job("old-r2").id, "Failed")
    service.run(a_job("old"))


# --- formerly


def test_key_rename_updates_markers_and_leaves_jobs_running(service: Service) -> None:
    three_revisions_of_old(service)
    before = service.phases()
    assert statuses(applied(service, renamed())) == {"new": Status.DONE}
    assert service.phases() == before
    assert owners(service) == {"old": "new", "old-r2": "new", "old-r3": "new"}
    assert service.description("old-r3").endswith(f".r3.{a_job().digest}.id{service.job('old-r3').id[:8]}")
    assert not planned(service, renamed()).to_execute
    assert not planned(service, a_job("new")).to_execute


def test_next_revision_of_a_renamed_key_has_the_new_name(service: Service) -> None:
    service.run(a_job("old"))
    applied(service, renamed(**NEW))
    assert service.phases() == {"old": "Terminated", "new-r2": "Creating"}
    assert owners(service) == {"old": "new", "new-r2": "new"}


def test_renamed_job_is_remembered_under_its_new_key(recorded: Service) -> None:
    applied(recorded, a_job("old"))
    applied(recorded, renamed())
    recorded.store.set_phase(recorded.job("old").id, "Completed")
    planned(recorded, a_job("new"))
    recorded.store.delete(PROJECT, recorded.job("old").id)
    assert decisions(planned(recorded, a_job("new"))) == {"new": (Action.KEEP, Reason.AGED_OUT)}
    assert decisions(planned(recorded, a_job("old"))) == {"old": (Action.CREATE, Reason.NOT_FOUND)}


@pytest.mark.parametrize("has_effect", [False, True])
@pytest.mark.parametrize(
    ("said", "lifecycle"), [({}, {}), (NEW, {}), (NEW, {"replace_order": "create_first"})]
)
def test_key_rename_killed_at_any_request_is_finished_by_the_next_apply(
    said: dict[str, Any], lifecycle: dict[str, Any], has_effect: bool
) -> None:
    desired = renamed(**said, lifecycle={"on_change": "replace", **lifecycle})
    for nth in count(1):
        with a_service() as service:
            three_revisions_of_old(service)
            plan = planned(service, desired)
            with killed_at(service, nth, has_effect=has_effect) as happened:
                service.carry_out(plan, parallelism=1)
            service.time.sleep(30)
            again = applied(service, desired)
            assert {o.status for o in again.outcomes} <= {Status.DONE}, nth
            service.time.sleep(30)
            applied(service, desired)  # with create_first the old job ends once the new one runs
            assert not planned(service, desired).to_execute
            assert set(owners(service).values()) == {"new"}
            running = [name for name, phase in service.phases().items() if phase == "Running"]
            assert running == (["new-r4"] if said else ["old-r3"]), nth
            assert len(service.phases()) == (4 if said else 3)
        if not happened:
            break


# --- needs


PIPELINE = (a_job("a"), needing("a", key="b"), needing("b", key="c"))


def test_successive_applies_start_each_pipeline_job_once(service: Service) -> None:
    seen = []
    for _ in range(4):
        applied(service, *PIPELINE)
        service.time.sleep(30)
        seen.append(sorted(service.phases()))
        for job in service.store.jobs():
            service.store.set_phase(job.id, "Completed")
    assert seen == [["a"], ["a", "b"], ["a", "b", "c"], ["a", "b", "c"]]


def test_upstream_rerun_leaves_downstream_jobs_alone(service: Service) -> None:
    for _ in range(3):
        applied(service, *PIPELINE)
        service.time.sleep(30)
        for job in service.store.jobs()[:2]:
            service.store.set_phase(job.id, "Completed")
    assert service.phases() == {"a": "Completed", "b": "Completed", "c": "Running"}
    again = a_job("a", lifecycle={"rerun": "again"})
    assert [a.key for a in planned(service, again, *PIPELINE[1:]).to_execute] == ["a"]
    applied(service, again, *PIPELINE[1:])
    assert service.phases() == {"a": "Completed", "b": "Completed", "c": "Running", "a-r2": "Creating"}


# --- the history


@pytest.mark.parametrize("phase", ["Running", "Completed", "Failed"])
def test_wiped_marker_is_restored_and_the_next_plan_is_empty(recorded: Service, phase: str) -> None:
    applied(recorded, a_job(description="a text"))
    recorded.store.set_phase(recorded.job("a").id, phase)
    recorded.describe("a", "mine now")
    result = applied(recorded, a_job(description="a text"))
    assert [(o.action.reason, o.status) for o in result.outcomes] == [(Reason.MARKER_RESTORED, Status.DONE)]
    assert recorded.description("a") == f"a text reconciler.vision.a.r1.{a_job().digest}"
    assert not planned(recorded, a_job(description="a text")).to_execute
    assert recorded.phases() == {"a": phase}


def test_marker_put_back_since_the_plan_is_not_overwritten(recorded: Service) -> None:
    applied(recorded, a_job())
    whole = recorded.description("a")
    recorded.describe("a", "mine now")
    plan = planned(recorded, a_job())
    recorded.describe("a", f"somebody put it back {whole}")
    recorded.carry_out(plan)
    assert recorded.description("a").endswith(whole)


def test_restored_job_of_another_declaration_is_replaced_by_the_next_apply(recorded: Service) -> None:
    applied(recorded, a_job())
    recorded.time.sleep(10)
    recorded.describe("a", "mine now")
    changed = a_job(**NEW, lifecycle={"on_change": "replace"})
    applied(recorded, changed)
    assert recorded.phases() == {"a": "Running"}
    applied(recorded, changed)
    assert recorded.phases() == {"a": "Terminated", "a-r2": "Creating"}
