"""Replacing: never two side by side, and never none for longer than it takes."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import pytest

from reconciler.core.stack import DesiredJob
from reconciler.decide.outcome import EventType, Status
from reconciler.decide.plan import Action, Reason
from reconciler.emulator import Effect, Fault, Job
from tests.apply.service import CHECK_NAME, CREATE, PROJECT, SHOW, STOP, UPDATE, Service, marker, the_only
from tests.builders import a_job

NEW: dict[str, Any] = {"algorithm__parameters": {"lr": 0.5}}


def changed(**lifecycle: Any) -> DesiredJob:
    """The job with another parameter."""
    return a_job(**NEW, lifecycle=lifecycle)


def new_first(**lifecycle: Any) -> DesiredJob:
    """The same, to stand before the old one goes."""
    return changed(replace_order="create_first", **lifecycle)


# --- the old one first


def test_replacement_is_created_after_the_old_job_has_ended(either: Service) -> None:
    old = either.run(a_job())
    plan = either.plan(changed())
    assert plan.actions[0].action is Action.REPLACE
    either.forget_requests()
    outcome = the_only(either.carry_out(plan))
    assert either.changes == [UPDATE, STOP, CREATE]
    assert (outcome.status, outcome.job) == (Status.DONE, either.job("a-r2").id)
    assert either.store.find(old.id).life.ended_ms <= either.job("a-r2").create_ms
    assert either.description("a").endswith(".stopped")
    assert either.description("a-r2") == marker("a", 2, changed().digest)
    assert either.plan(changed()).actions[0].action is Action.KEEP


def put_second_job(service: Service) -> Job:
    """A newer revision that a colleague runs beside the first, of another declaration."""
    newer = a_job(algorithm__parameters={"lr": 0.7})
    job = service.put_job("a-r2", marker("a", 2, newer.digest), dict(newer.body or {}))
    service.store.set_phase(job.id, "Running")
    return job


def test_replace_waits_for_the_superseded_revision_too(either: Service) -> None:
    jobs = [either.run(a_job()), put_second_job(either)]
    plan = either.plan(changed())
    assert [(a.action, a.waits_for_jobs) for a in plan.actions] == [
        (Action.TERMINATE, ()),
        (Action.REPLACE, (jobs[0].id,)),
    ]
    assert all(outcome.status is Status.DONE for outcome in either.carry_out(plan).outcomes)
    assert either.phases() == {"a": "Terminated", "a-r2": "Terminated", "a-r3": "Creating"}
    ended = [either.store.find(job.id).life.ended_ms for job in jobs]
    assert max(ended) <= either.job("a-r3").create_ms


@pytest.mark.parametrize("desired", [changed(), new_first()], ids=["old one first", "new one first"])
def test_job_is_not_replaced_while_a_superseded_one_does_not_end(
    either: Service, desired: DesiredJob
) -> None:
    first, _ = either.run(a_job()), put_second_job(either)
    plan = either.plan(desired)
    either.store.hold(first.id)
    ended, replaced = either.carry_out(plan, timeout_s=120).outcomes
    assert (ended.status, replaced.status) == (Status.DONE, Status.TIMED_OUT)
    assert "a is still Terminating after 120 s" in replaced.detail
    assert either.phases() == {"a": "Terminating", "a-r2": "Running"}, "the job to be replaced goes on"


def test_replace_timeout_creates_no_job_beside_the_old_one(either: Service) -> None:
    old = either.run(a_job())
    plan = either.plan(changed())
    either.store.hold(old.id)
    began = either.time.now()
    outcome = the_only(either.carry_out(plan, timeout_s=120))
    assert (outcome.status, outcome.job) == (Status.TIMED_OUT, old.id)
    assert "a is still Terminating after 120 s" in outcome.detail
    assert either.time.now() - began == pytest.approx(120)
    assert either.phases() == {"a": "Terminating"}
    either.store.release(old.id)
    assert the_only(either.apply(changed())).status is Status.DONE
    assert either.phases() == {"a": "Terminated", "a-r2": "Creating"}


@pytest.mark.parametrize("phase", ["Completed", "Failed", "Terminated", "Terminating"])
def test_old_job_ended_by_itself_is_not_terminated(either: Service, phase: str) -> None:
    old = either.run(a_job())
    plan = either.plan(changed())
    either.store.set_phase(old.id, phase)
    either.forget_requests()
    assert the_only(either.carry_out(plan)).status is Status.DONE
    assert either.changes == [CREATE]


@pytest.mark.parametrize("at", [SHOW, UPDATE, STOP])
def test_replace_continues_when_the_old_job_was_deleted(either: Service, at: str) -> None:
    old = either.run(a_job())
    plan = either.plan(changed())
    either.gate.before(at, lambda: either.store.delete(PROJECT, old.id))
    assert the_only(either.carry_out(plan)).status is Status.DONE
    assert either.phases() == {"a-r2": "Creating"}


def test_replace_continues_when_the_old_job_is_deleted_while_waiting(either: Service) -> None:
    old = either.run(a_job())
    plan = either.plan(changed())
    either.store.hold(old.id)
    either.time.at(5, lambda: either.store.delete(PROJECT, old.id))
    assert the_only(either.carry_out(plan)).status is Status.DONE
    assert either.phases() == {"a-r2": "Creating"}


@pytest.mark.parametrize("who", ["stranger", "hidden"])
def test_old_job_keeps_running_when_the_next_name_is_taken(service: Service, who: str) -> None:
    service.run(a_job())
    plan = service.plan(changed())
    put = service.put_job if who == "stranger" else service.put_hidden_job
    put("a-r2")
    service.forget_requests()
    outcome = the_only(service.carry_out(plan))
    assert outcome.status is Status.CONFLICT
    assert service.changes == []
    assert service.phases()["a"] == "Running"


@pytest.mark.parametrize("status", [400, 401, 403, 404, 500, 502, 503])
def test_replace_needs_no_right_to_check_names(service: Service, status: int) -> None:
    service.run(a_job())
    plan = service.plan(changed())
    service.fail(Fault(Effect.ANSWER, operation=CHECK_NAME, count=None, status=status, code="ModelArts.2771"))
    outcome = the_only(service.carry_out(plan))
    assert (outcome.status, outcome.job) == (Status.DONE, service.job("a-r2").id)
    assert service.phases()["a"] == "Terminated"


def test_replacement_already_created_is_used_and_the_old_job_ends(either: Service) -> None:
    either.run(a_job())
    plan = either.plan(changed())
    sent = either.put_job("a-r2", marker("a", 2, changed().digest))
    outcome = the_only(either.carry_out(plan))
    assert (outcome.status, outcome.job) == (Status.DONE, sent.id)
    assert either.phases()["a"] in ("Terminating", "Terminated")


def test_old_job_protected_since_the_plan_stays(either: Service) -> None:
    either.run(a_job())
    plan = either.plan(changed())
    either.describe("a", marker("a", 1, a_job().digest, "protected"))
    either.forget_requests()
    assert the_only(either.carry_out(plan)).status is Status.CONFLICT
    assert either.changes == []


def test_old_job_with_marker_updated_since_the_plan_stays(either: Service) -> None:
    either.run(a_job())
    plan = either.plan(changed())
    either.describe("a", marker("a", 1, changed().digest))
    either.forget_requests()
    assert the_only(either.carry_out(plan)).status is Status.CONFLICT
    assert either.changes == []


def test_temporary_failure_to_read_the_old_job_does_not_fail_the_replace(either: Service) -> None:
    either.run(a_job())
    plan = either.plan(changed())
    either.fail(Fault(Effect.ANSWER, operation=SHOW, nth=3, count=8, status=503))
    assert the_only(either.carry_out(plan)).status is Status.DONE


def test_replace_reports_progress_every_ten_seconds(service: Service) -> None:
    old = service.run(a_job())
    plan = service.plan(changed())
    service.store.hold(old.id)
    service.carry_out(plan, timeout_s=60)
    told = [event for event in service.events if event.type is EventType.ACTION_PROGRESS]
    assert len(told) == 5
    [started] = [event for event in service.events if event.type is EventType.ACTION_STARTED]
    assert {(event.key, event.action, event.job, event.detail) for event in told} == {
        ("a", Action.REPLACE, old.id, "Terminating")
    }
    seconds = [int(event.ts[17:19]) for event in [started, *told]]
    assert {(later - sooner) % 60 for sooner, later in pairwise(seconds)} == {10}


# --- the new one first


def test_create_first_terminates_the_old_job_when_the_new_one_runs(either: Service) -> None:
    old = either.run(a_job())
    plan = either.plan(new_first())
    either.forget_requests()
    outcome = the_only(either.carry_out(plan))
    assert either.changes == [CREATE, UPDATE, STOP]
    assert (outcome.status, outcome.job) == (Status.DONE, either.job("a-r2").id)
    terminating = either.store.find(old.id).life.since("Terminating")
    assert either.job("a-r2").life.since("Running") <= terminating
    either.time.sleep(10)
    assert either.phases() == {"a": "Terminated", "a-r2": "Running"}


def test_create_first_with_a_new_job_completed_at_once_is_done(either: Service) -> None:
    either.run(a_job())
    quick = a_job(
        algorithm__environments={"EMULATOR_RUN_SECONDS": "0"}, lifecycle={"replace_order": "create_first"}
    )
    assert the_only(either.apply(quick)).status is Status.DONE
    assert either.phases() == {"a": "Terminating", "a-r2": "Completed"}


@pytest.mark.parametrize("phase", ["Failed", "Abnormal", "Terminated"])
def test_create_first_keeps_the_old_job_when_the_new_one_ends_badly(either: Service, phase: str) -> None:
    either.run(a_job())
    plan = either.plan(new_first())
    either.time.at(1, lambda: either.store.set_phase(either.job("a-r2").id, phase))
    outcome = the_only(either.carry_out(plan))
    assert (outcome.status, outcome.job) == (Status.FAILED, either.job("a-r2").id)
    assert f"a-r2 ended as {phase}; the old job is kept" in outcome.detail
    assert either.phases() == {"a": "Running", "a-r2": phase}
    again = either.plan(new_first()).actions
    assert [(action.action, action.before and action.before.revision) for action in again] == [
        (Action.KEEP, 1)
    ], "on_failure: keep"


def test_create_first_that_times_out_leaves_the_old_job_running(either: Service) -> None:
    either.run(a_job())
    plan = either.plan(new_first())
    either.gate.after(CREATE, lambda: either.store.hold(either.job("a-r2").id))
    outcome = the_only(either.carry_out(plan, timeout_s=60))
    assert (outcome.status, outcome.job) == (Status.TIMED_OUT, either.job("a-r2").id)
    assert either.phases() == {"a": "Running", "a-r2": "Creating"}


def test_create_first_keeps_a_job_protected_since_the_plan_beside_the_new_one(either: Service) -> None:
    either.run(a_job())
    plan = either.plan(new_first())
    either.time.at(1, lambda: either.describe("a", marker("a", 1, a_job().digest, "protected")))
    assert the_only(either.carry_out(plan)).status is Status.CONFLICT
    assert either.phases() == {"a": "Running", "a-r2": "Running"}


def test_create_first_with_a_lost_answer_makes_one_new_job(either: Service) -> None:
    either.run(a_job())
    either.fail(Fault(Effect.LOST_AFTER, operation=CREATE))
    assert the_only(either.apply(new_first())).status is Status.DONE
    assert set(either.phases()) == {"a", "a-r2"}


def test_create_first_of_a_deleted_job_creates_the_next_revision(either: Service) -> None:
    old = either.run(a_job())
    plan = either.plan(new_first())
    either.store.delete(PROJECT, old.id)
    assert the_only(either.carry_out(plan)).status is Status.DONE
    assert set(either.phases()) == {"a-r2"}


def test_reverted_declaration_creates_a_further_revision(service: Service) -> None:
    service.run(a_job())
    service.apply(changed())
    service.time.sleep(10)
    assert the_only(service.apply(a_job())).status is Status.DONE
    assert set(service.phases()) == {"a", "a-r2", "a-r3"}
    assert service.plan(a_job()).actions[0].reason is Reason.UNCHANGED
