"""Updating: what is legal now is written, and read back."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from reconciler.core.stack import DesiredJob
from reconciler.decide.outcome import Status
from reconciler.decide.plan import Action, Reason
from reconciler.emulator import Effect, Fault
from reconciler.modelarts.clock import Backoff
from tests.apply.service import PROJECT, SHOW, STOP, UPDATE, Service, marker, the_only
from tests.builders import a_job, absent

OURS = marker("a", 1, a_job().digest)


def edited(**lifecycle: Any) -> DesiredJob:
    """The job with another description."""
    return a_job(description="new", lifecycle=lifecycle)


def urgent(**more: Any) -> DesiredJob:
    """The job with a priority."""
    return a_job(spec__schedule_policy={"priority": 3}, **more)


def test_update_is_written_once_and_read_back(either: Service) -> None:
    either.run(a_job(description="old"))
    plan = either.plan(edited())
    either.forget_requests()
    outcome = the_only(either.carry_out(plan))
    assert (outcome.status, outcome.job) == (Status.DONE, either.job("a").id)
    assert [served.operation for served in either.app.requests] == [SHOW, UPDATE, SHOW]
    assert either.description("a") == f"new {OURS}"
    assert either.plan(edited()).actions[0].action is Action.KEEP


def test_update_without_effect_fails_the_action(either: Service) -> None:
    either.run(a_job(description="old"))
    either.gate.after(UPDATE, lambda: either.describe("a", f"old {OURS}"))
    outcome = the_only(either.apply(edited()))
    assert (outcome.status, outcome.detail) == (Status.FAILED, "the service did not apply description")


def test_priority_update_without_effect_is_named(service: Service) -> None:
    service.apply(a_job())
    service.time.sleep(1.5)
    assert service.phases() == {"a": "Pending"}
    plan = service.plan(urgent())
    job_id = service.job("a").id

    def forget() -> None:
        service.store.edit(job_id, lambda body: body["spec"].pop("schedule_policy"))

    service.gate.after(UPDATE, forget)
    outcome = the_only(service.carry_out(plan))
    assert outcome.status is Status.FAILED
    assert "spec.schedule_policy.priority" in outcome.detail


def test_job_that_began_to_run_since_the_plan_gets_its_description_and_keeps_its_priority(
    service: Service,
) -> None:
    service.apply(a_job())
    service.time.sleep(1.5)
    plan = service.plan(urgent(description="new"))
    assert [change.path for change in plan.actions[0].changes] == [
        "description",
        "spec.schedule_policy.priority",
    ]
    service.time.sleep(10)
    assert service.phases() == {"a": "Running"}
    assert the_only(service.carry_out(plan)).status is Status.DONE
    assert service.description("a") == f"new {OURS}"
    assert "schedule_policy" not in service.job("a").body["spec"]
    again = service.plan(urgent(description="new"))
    assert (again.actions[0].action, [w.what for w in again.warnings]) == (Action.KEEP, ["deferred"])


def test_pending_job_gets_its_priority(service: Service) -> None:
    service.apply(a_job())
    service.time.sleep(1.5)
    assert the_only(service.apply(urgent())).status is Status.DONE
    assert service.job("a").body["spec"]["schedule_policy"] == {"priority": 3}


@pytest.mark.parametrize(
    "effect", [Effect.LOST_BEFORE, Effect.LOST_AFTER, Effect.ANSWER, Effect.ANSWER_AFTER]
)
def test_update_with_a_lost_answer_is_retried(either: Service, effect: Effect) -> None:
    either.run(a_job())
    either.fail(Fault(effect, operation=UPDATE, status=503))
    assert the_only(either.apply(edited())).status is Status.DONE
    assert either.description("a") == f"new {OURS}"


def test_update_without_an_answer_is_retried_by_the_backend_only(either: Service) -> None:
    either.run(a_job())
    plan = either.plan(edited())
    either.forget_requests()
    either.fail(Fault(Effect.ANSWER, operation=UPDATE, status=503, code="ModelArts.4302", count=None))
    outcome = the_only(either.carry_out(plan))
    assert (outcome.status, outcome.code) == (Status.FAILED, "ModelArts.4302")
    assert either.asked(UPDATE) == Backoff().attempts


def test_update_with_effect_but_without_an_answer_is_done(either: Service) -> None:
    either.run(a_job())
    plan = either.plan(edited())
    either.fail(Fault(Effect.LOST_AFTER, operation=UPDATE, count=None))
    assert the_only(either.carry_out(plan)).status is Status.DONE
    assert either.description("a") == f"new {OURS}"


def test_update_of_a_terminating_job_fails_without_waiting(either: Service) -> None:
    either.run(a_job())
    plan = either.plan(edited())
    either.store.set_phase(either.job("a").id, "Terminating")
    either.store.hold(either.job("a").id)
    either.forget_requests()
    outcome = the_only(either.carry_out(plan))
    assert (outcome.status, either.changes) == (Status.FAILED, [])
    assert "Terminating" in outcome.detail


def test_update_of_a_deleted_job_fails(either: Service) -> None:
    either.run(a_job())
    plan = either.plan(edited())
    either.store.delete(PROJECT, either.job("a").id)
    outcome = the_only(either.carry_out(plan))
    assert (outcome.status, outcome.code) == (Status.FAILED, "ModelArts.2775")


# --- protection


def test_protection_is_removed_first_and_the_next_apply_terminates(either: Service) -> None:
    either.run(a_job(lifecycle={"protect": True}))
    released = the_only(either.apply(absent(protect=False)))
    assert (released.action.reason, released.status) == (Reason.PROTECTION_RELEASED, Status.DONE)
    assert either.phases() == {"a": "Running"}
    assert STOP not in either.changes
    assert the_only(either.apply(absent(protect=False))).action.action is Action.TERMINATE
    assert either.phases() == {"a": "Terminating"}


@pytest.mark.parametrize("protect", [True, False])
def test_protected_flag_follows_the_manifest(either: Service, protect: bool) -> None:
    either.run(a_job(lifecycle={"protect": not protect}))
    assert the_only(either.apply(a_job(lifecycle={"protect": protect}))).status is Status.DONE
    assert either.description("a").endswith(".protected") is protect


# --- the marker is not any more what it was when the plan was made


@pytest.mark.parametrize(
    "now",
    [
        f"{OURS}.protected",
        f"{OURS}.stopped",
        marker("a", 1, "a" + "f" * 12),
        marker("a", 1, a_job().digest, stack="other"),
        "mine now",
    ],
    ids=["protected", "stopped", "digest", "stack", "gone"],
)
def test_marker_changed_since_the_plan_is_not_overwritten(either: Service, now: str) -> None:
    either.run(a_job())
    plan = either.plan(edited())
    either.describe("a", now)
    either.forget_requests()
    outcome = the_only(either.carry_out(plan))
    assert (outcome.status, either.changes) == (Status.CONFLICT, [])
    assert either.description("a") == now


def protected() -> DesiredJob:
    return a_job(lifecycle={"protect": True})


@pytest.mark.parametrize(
    ("before", "wanted"),
    [
        (protected, lambda: edited()),
        (protected, lambda: edited(protect=False)),
        (protected, lambda: absent(protect=False)),
    ],
    ids=["edited", "edited and released", "released"],
)
def test_protection_removed_since_the_plan_is_not_restored(
    either: Service, before: Callable[[], DesiredJob], wanted: Callable[[], DesiredJob]
) -> None:
    either.run(before())
    plan = either.plan(wanted())
    assert plan.actions[0].action is Action.UPDATE
    either.describe("a", OURS)
    assert the_only(either.carry_out(plan)).status is Status.CONFLICT


def test_description_edited_since_the_plan_is_overwritten(either: Service) -> None:
    either.run(a_job(description="old"))
    plan = either.plan(edited())
    either.describe("a", f"somebody's {OURS}")
    assert the_only(either.carry_out(plan)).status is Status.DONE
    assert either.description("a") == f"new {OURS}"


def test_stopped_flag_stays_on_a_job_that_ended_since_the_plan(either: Service) -> None:
    either.run(a_job())
    either.describe("a", f"{OURS}.stopped")
    plan = either.plan(a_job())
    assert [change.path for change in plan.actions[0].changes] == ["marker.stopped"]
    either.store.set_phase(either.job("a").id, "Terminated")
    either.carry_out(plan)
    assert either.description("a") == f"{OURS}.stopped"
    assert either.plan(a_job()).actions[0].reason is Reason.DECLARED_AGAIN
