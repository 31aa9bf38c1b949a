"""docs/semantics.md, "Adopting and releasing jobs": carried out as every update, whatever gets in the way."""

from __future__ import annotations

from typing import Any

import pytest

from reconciler.adoption import adopt_plan, move_plan, release_plan
from reconciler.decide.outcome import Outcome, Status
from reconciler.decide.plan import Plan
from reconciler.emulator import Effect, Fault, Job
from tests.apply.service import SHOW, UPDATE, Service, marker, the_only
from tests.builders import STACK, a_job, a_stack

A = a_job(description="a text")


def by_hand(service: Service) -> Job:
    """The job of the declaration, started by somebody."""
    return service.put_job("by-hand", "their text", dict(A.body or {}))


def ours(job: Job) -> str:
    return f"a text {marker('a', 1, A.digest)}.id{job.id[:8]}"


def adoption(service: Service, job: Job) -> Plan:
    return adopt_plan(service.context(a_stack(A)), "a", job.id).plan


def carried_out(service: Service, plan: Plan) -> Outcome:
    return the_only(service.carry_out(plan))


def test_adopted_job_is_read_written_once_and_read_back(either: Service) -> None:
    job = by_hand(either)
    plan = adoption(either, job)
    either.forget_requests()
    assert carried_out(either, plan).status is Status.DONE
    assert [served.operation for served in either.app.requests] == [SHOW, UPDATE, SHOW]
    assert either.description("by-hand") == ours(job)
    assert not either.plan(A).to_execute


@pytest.mark.parametrize("effect", [Effect.LOST_AFTER, Effect.ANSWER_AFTER, Effect.UNREADABLE])
def test_lost_answer_to_adoption_is_settled_by_reading_back(service: Service, effect: Effect) -> None:
    job = by_hand(service)
    plan = adoption(service, job)
    service.fail(Fault(effect, operation=UPDATE, count=None))
    assert carried_out(service, plan).status is Status.DONE
    assert service.description("by-hand") == ours(job)


def test_adoption_request_lost_on_the_way_fails_and_next_apply_adopts(service: Service) -> None:
    job = by_hand(service)
    plan = adoption(service, job)
    service.fail(Fault(Effect.LOST_BEFORE, operation=UPDATE, count=None))
    assert carried_out(service, plan).status is Status.FAILED
    service.app.faults.clear()
    assert carried_out(service, adoption(service, job)).status is Status.DONE


def test_update_without_effect_fails_the_adoption(service: Service) -> None:
    plan = adoption(service, by_hand(service))
    service.gate.after(UPDATE, lambda: service.describe("by-hand", "their text"))
    outcome = carried_out(service, plan)
    assert (outcome.status, outcome.detail) == (Status.FAILED, "the service did not apply description")


@pytest.mark.parametrize("operation", [SHOW, UPDATE])
def test_job_adopted_by_another_stack_since_the_plan_is_a_conflict(service: Service, operation: str) -> None:
    plan = adoption(service, by_hand(service))
    theirs = marker("x", 1, A.digest, f"id{service.job('by-hand').id[:8]}", stack="rival")
    do: Any = service.gate.before if operation == SHOW else service.gate.after
    do(operation, lambda: service.describe("by-hand", theirs))
    outcome = carried_out(service, plan)
    assert outcome.status is Status.CONFLICT
    assert outcome.detail == "by-hand was adopted in the meantime: it belongs to key x of stack rival"
    assert service.description("by-hand") == theirs


def test_job_terminating_since_the_plan_is_not_updated(service: Service) -> None:
    job = by_hand(service)
    plan = adoption(service, job)
    service.store.set_phase(job.id, "Terminating")
    service.store.hold(job.id)
    assert carried_out(service, plan).status is Status.FAILED
    assert service.asked(UPDATE) == 0


def test_interrupt_before_the_adoption_sends_no_update(service: Service) -> None:
    plan = adoption(service, by_hand(service))
    service.stop.set()
    result = service.carry_out(plan)
    assert result.interrupted
    assert service.asked(UPDATE) == 0


def test_adoption_applied_twice_is_done_both_times(service: Service) -> None:
    job = by_hand(service)
    plan = adoption(service, job)
    assert carried_out(service, plan).status is Status.DONE
    assert carried_out(service, plan).status is Status.DONE
    assert service.description("by-hand") == ours(job)


# --- release


def test_release_keeps_the_description_and_is_idempotent(either: Service) -> None:
    either.run(A)
    plan = release_plan(either.context(a_stack(A)), "a")
    assert carried_out(either, plan).status is Status.DONE
    assert either.description("a") == "a text"
    assert carried_out(either, plan).detail == "its marker is gone already"


def test_job_moved_to_another_stack_since_the_plan_is_not_released(service: Service) -> None:
    service.run(A)
    plan = release_plan(service.context(a_stack(A)), "a")
    theirs = f"a text {marker('a', 1, A.digest, stack='rival')}"
    service.describe("a", theirs)
    assert carried_out(service, plan).status is Status.CONFLICT
    assert service.description("a") == theirs


# --- a stack that was renamed


def test_stack_rename_writes_markers_only(either: Service) -> None:
    either.run(A)
    old = either.description("a").replace(f".{STACK}.", ".old.")
    either.describe("a", old)
    plan = move_plan(either.context(a_stack(A)), "old").plan
    either.forget_requests()
    assert carried_out(either, plan).status is Status.DONE
    assert either.changes == [UPDATE]
    assert either.description("a") == f"a text {marker('a', 1, A.digest)}"
    assert not either.plan(A).to_execute


def test_marker_changed_since_the_plan_is_not_overwritten(service: Service) -> None:
    service.run(A)
    old = service.description("a").replace(f".{STACK}.", ".old.")
    service.describe("a", old)
    plan = move_plan(service.context(a_stack(A)), "old").plan
    service.describe("a", f"{old}.stopped")
    assert carried_out(service, plan).status is Status.CONFLICT
    assert service.description("a") == f"{old}.stopped"
