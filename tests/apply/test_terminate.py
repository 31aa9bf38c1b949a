"""Terminating: the mark before the end, and too late is done, too."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from reconciler.core.identity import MAX_DESCRIPTION
from reconciler.decide.outcome import Status
from reconciler.decide.plan import Action, Plan, Reason
from reconciler.emulator import Effect, Fault
from reconciler.modelarts.clock import Backoff
from tests.apply.service import PROJECT, SHOW, STOP, UPDATE, Service, marker, the_only
from tests.builders import a_job, absent

CHANGED = Fault(
    Effect.ANSWER, operation=STOP, status=409, code="ModelArts.2878", message="The status changed."
)


@pytest.fixture
def ending(service: Service) -> Plan:
    """The plan to terminate a job that runs."""
    service.run(a_job())
    plan = service.plan(absent())
    assert [action.action for action in plan.actions] == [Action.TERMINATE]
    service.forget_requests()
    return plan


def test_stopped_flag_is_written_before_the_terminate(service: Service, ending: Plan) -> None:
    outcome = the_only(service.carry_out(ending))
    assert service.changes == [UPDATE, STOP]
    assert (outcome.status, outcome.job) == (Status.DONE, service.job("a").id)
    assert service.description("a") == marker("a", 1, a_job().digest, "stopped")
    assert service.plan(a_job()).actions[0].reason is Reason.WAITS_FOR_TERMINATION


def test_stopped_flag_keeps_the_description_text(service: Service) -> None:
    service.run(a_job(description="nightly"))
    service.apply(absent())
    assert service.description("a") == "nightly " + marker("a", 1, a_job().digest, "stopped")


def test_description_without_room_for_the_stopped_flag_is_cut(service: Service) -> None:
    service.run(a_job())
    ours = marker("a", 1, a_job().digest)
    service.describe("a", "x" * (MAX_DESCRIPTION - len(ours) - 1) + " " + ours)
    assert the_only(service.apply(absent())).status is Status.DONE
    assert service.description("a").endswith("x " + marker("a", 1, a_job().digest, "stopped"))
    assert service.phases() == {"a": "Terminating"}


@pytest.mark.parametrize("phase", ["Completed", "Failed", "Terminated", "Abnormal", "Terminating"])
@pytest.mark.parametrize("when", ["before the look", "before the mark", "between mark and terminate"])
def test_terminate_of_a_job_that_has_ended_meanwhile_is_done(
    service: Service, ending: Plan, phase: str, when: str
) -> None:
    def end() -> None:
        service.store.set_phase(service.job("a").id, phase)
        service.store.hold(service.job("a").id)

    at = {"before the look": SHOW, "before the mark": UPDATE, "between mark and terminate": STOP}[when]
    service.gate.before(at, end)
    outcome = the_only(service.carry_out(ending))
    assert (outcome.status, outcome.detail) == (Status.DONE, f"now {phase}")
    assert service.phases() == {"a": phase}
    is_marked = service.description("a").endswith(".stopped")
    if when == "before the look":
        assert not is_marked, "it was not us"


def test_terminate_refused_for_a_changed_status_is_read_again_and_retried(
    service: Service, ending: Plan
) -> None:
    service.fail(CHANGED, CHANGED)
    assert the_only(service.carry_out(ending)).status is Status.DONE
    assert service.changes == [UPDATE, STOP, STOP, STOP], "it is marked once"
    assert service.asked(SHOW) == 4
    assert service.phases() == {"a": "Terminating"}


def test_terminate_refused_for_a_changed_status_every_time_fails(service: Service, ending: Plan) -> None:
    service.fail(Fault(Effect.ANSWER, operation=STOP, status=409, code="ModelArts.2878", count=None))
    outcome = the_only(service.carry_out(ending))
    assert (outcome.status, outcome.code) == (Status.FAILED, "ModelArts.2878")
    assert service.phases() == {"a": "Running"}


def test_last_attempt_on_a_job_that_has_ended_meanwhile_is_done(service: Service, ending: Plan) -> None:
    service.fail(CHANGED, CHANGED, CHANGED)
    asked: list[str] = []

    def complete_before_the_fourth() -> None:
        asked.append("")
        if len(asked) == 4:
            service.store.set_phase(service.job("a").id, "Completed")

    service.gate.before(STOP, complete_before_the_fourth, always=True)
    outcome = the_only(service.carry_out(ending))
    assert (outcome.status, outcome.detail) == (Status.DONE, "now Completed")


@pytest.mark.parametrize(
    "effect", [Effect.LOST_BEFORE, Effect.LOST_AFTER, Effect.ANSWER, Effect.ANSWER_AFTER, Effect.UNREADABLE]
)
@pytest.mark.parametrize("operation", [STOP, UPDATE, SHOW])
def test_lost_answer_to_any_request_does_not_fail_the_terminate(
    service: Service, ending: Plan, operation: str, effect: Effect
) -> None:
    if (operation, effect) == (SHOW, Effect.UNREADABLE):
        effect = Effect.TRUNCATED
    service.fail(Fault(effect, operation=operation, status=503))
    assert the_only(service.carry_out(ending)).status is Status.DONE
    assert service.phases() == {"a": "Terminating"}
    assert service.description("a").endswith(".stopped")


@pytest.mark.parametrize("operation", [STOP, UPDATE])
def test_failing_request_of_a_terminate_is_retried_by_the_backend_only(
    service: Service, ending: Plan, operation: str
) -> None:
    service.fail(Fault(Effect.ANSWER, operation=operation, status=503, code="ModelArts.4302", count=None))
    outcome = the_only(service.carry_out(ending))
    assert (outcome.status, outcome.code) == (Status.FAILED, "ModelArts.4302")
    assert service.asked(operation) == Backoff().attempts
    assert service.phases() == {"a": "Running"}


@pytest.mark.parametrize("operation", [STOP, UPDATE])
def test_terminate_whose_answers_are_all_lost_is_done(service: Service, ending: Plan, operation: str) -> None:
    service.fail(Fault(Effect.LOST_AFTER, operation=operation, count=None))
    assert the_only(service.carry_out(ending)).status is Status.DONE
    assert service.phases()["a"] in ("Terminating", "Terminated")
    assert service.description("a").endswith(".stopped")


@pytest.mark.parametrize("at", [SHOW, UPDATE, STOP])
def test_terminate_of_a_deleted_job_is_done(service: Service, ending: Plan, at: str) -> None:
    service.gate.before(at, lambda: service.store.delete(PROJECT, service.job("a").id))
    outcome = the_only(service.carry_out(ending))
    assert (outcome.status, outcome.detail) == (Status.DONE, "its record no longer exists")


def test_refused_stopped_flag_fails_the_action_without_a_terminate(service: Service, ending: Plan) -> None:
    service.fail(Fault(Effect.ANSWER, operation=UPDATE, status=400, code="ModelArts.2788", count=None))
    outcome = the_only(service.carry_out(ending))
    assert (outcome.status, outcome.code) == (Status.FAILED, "ModelArts.2788")
    assert service.changes == [UPDATE]


# --- killed between the mark and the terminate


class Killed(BaseException):
    """The program ends here."""


def kill() -> None:
    """End the program."""
    raise Killed


@pytest.fixture
def half_stopped(service: Service, ending: Plan) -> Service:
    """A job that was marked and not terminated, since we were killed."""
    service.gate.before(STOP, kill)
    with pytest.raises(Killed):
        service.carry_out(ending)
    assert service.description("a").endswith(".stopped")
    assert service.phases() == {"a": "Running"}
    return service


def test_terminate_killed_after_the_stopped_flag_is_finished_by_the_next_apply(half_stopped: Service) -> None:
    assert the_only(half_stopped.apply(absent())).status is Status.DONE
    assert half_stopped.phases() == {"a": "Terminating"}


def test_stopped_flag_left_by_a_kill_is_removed_from_a_declared_job(
    half_stopped: Service,
) -> None:
    outcome = the_only(half_stopped.apply(a_job()))
    assert (outcome.action.action, outcome.status) == (Action.UPDATE, Status.DONE)
    assert half_stopped.description("a") == marker("a", 1, a_job().digest)
    assert half_stopped.plan(a_job()).actions[0].action is Action.KEEP


# --- the job is not any more what it was when the plan was made


def protect(service: Service) -> None:
    service.describe("a", marker("a", 1, a_job().digest, "protected"))


def give_away(service: Service) -> None:
    service.describe("a", marker("a", 1, a_job().digest, stack="other"))


def renew(service: Service) -> None:
    service.describe("a", marker("a", 1, "a" + "f" * 12))


def wipe(service: Service) -> None:
    service.describe("a", "mine now")


@pytest.mark.parametrize("move", [protect, give_away, renew, wipe])
def test_job_protected_or_remarked_since_the_plan_is_not_terminated(
    service: Service, ending: Plan, move: Callable[[Service], None]
) -> None:
    move(service)
    said = service.description("a")
    outcome = the_only(service.carry_out(ending))
    assert (outcome.status, service.changes) == (Status.CONFLICT, [])
    assert service.description("a") == said
    assert service.phases() == {"a": "Running"}


def test_job_protected_before_the_terminate_is_retried_is_not_terminated(
    service: Service, ending: Plan
) -> None:
    service.fail(CHANGED)
    service.gate.after(
        UPDATE, lambda: service.describe("a", marker("a", 1, a_job().digest, "protected", "stopped"))
    )
    assert the_only(service.carry_out(ending)).status is Status.CONFLICT
    assert service.phases() == {"a": "Running"}


def test_job_in_an_unknown_phase_is_not_terminated(service: Service, ending: Plan) -> None:
    service.store.set_phase(service.job("a").id, "Hibernating")
    outcome = the_only(service.carry_out(ending))
    assert (outcome.status, service.changes) == (Status.FAILED, [])
    assert "Hibernating" in outcome.detail
