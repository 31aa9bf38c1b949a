"""Creating: one job, whatever becomes of the answers."""

from __future__ import annotations

import pytest

from reconciler.apply.steps import ATTEMPTS
from reconciler.core.stack import DesiredJob
from reconciler.decide.outcome import EventType, Status
from reconciler.decide.plan import Action, Plan, Reason
from reconciler.emulator import Effect, Fault, Job
from reconciler.errors import Unreachable
from tests.apply.service import CHECK_NAME, CREATE, FIND, PROJECT, Service, marker, the_only
from tests.builders import a_job, absent

NO_ANSWER = [Effect.LOST_BEFORE, Effect.LOST_AFTER, Effect.ANSWER, Effect.ANSWER_AFTER]
REFUSED_CHECKS = [400, 401, 403, 404, 500, 503]
LOOK_UP_FAILS = Fault(Effect.ANSWER, operation=FIND, nth=2, count=None, status=503)


def test_job_is_created_with_its_marker_after_one_lookup(service: Service) -> None:
    plan = service.plan(a_job())
    service.forget_requests()
    outcome = the_only(service.carry_out(plan))
    assert (outcome.status, outcome.job) == (Status.DONE, service.job("a").id)
    assert [served.operation for served in service.app.requests] == [FIND, CREATE]
    assert service.description("a") == marker("a", 1, a_job().digest)


@pytest.mark.parametrize("effect", [*NO_ANSWER, Effect.UNREADABLE, Effect.TRUNCATED, Effect.MALFORMED_JOB])
def test_lost_answer_to_create_makes_one_job(either: Service, effect: Effect) -> None:
    either.fail(Fault(effect, operation=CREATE, status=504))
    outcome = the_only(either.apply(a_job()))
    assert (outcome.status, outcome.job) == (Status.DONE, either.job("a").id)
    had_no_effect = effect in (Effect.LOST_BEFORE, Effect.ANSWER)
    assert either.asked(CREATE) == (2 if had_no_effect else 1), "a blind second POST"
    assert either.plan(a_job()).actions[0].action is Action.KEEP


def test_second_post_is_sent_only_after_proof_that_the_first_had_no_effect(either: Service) -> None:
    either.fail(Fault(Effect.LOST_BEFORE, operation=CREATE))
    either.apply(a_job())
    asked = [served.operation for served in either.app.requests]
    first, second = (place for place, operation in enumerate(asked) if operation == CREATE)
    proof = CHECK_NAME if either.cloud == "huawei" else FIND
    assert FIND in asked[first + 1 : second]
    assert asked[second - 1] == proof


def test_lost_create_is_retried_up_to_the_attempt_limit_after_proof_of_absence(either: Service) -> None:
    plan = either.plan(a_job())
    either.forget_requests()
    either.fail(Fault(Effect.LOST_BEFORE, operation=CREATE, count=None))
    outcome = the_only(either.carry_out(plan))
    assert either.asked(CREATE) == ATTEMPTS
    assert outcome.status is Status.FAILED, "it is certain that nothing was created"
    assert not either.store.jobs()
    assert [slept for slept in either.time.slept if slept >= 1] == [2.0**n for n in range(ATTEMPTS)]
    asked = [served.operation for served in either.app.requests]
    proof = CHECK_NAME if either.cloud == "huawei" else FIND
    again = [place for place, operation in enumerate(asked) if operation == CREATE][1:]
    assert [asked[place - 1] for place in again] == [proof] * (ATTEMPTS - 1)


def test_create_lost_on_all_but_the_last_attempt_is_done(either: Service) -> None:
    either.fail(Fault(Effect.LOST_BEFORE, operation=CREATE, count=ATTEMPTS - 1))
    outcome = the_only(either.apply(a_job()))
    assert (outcome.status, outcome.job) == (Status.DONE, either.job("a").id)
    assert either.asked(CREATE) == ATTEMPTS


def test_create_is_not_retried_when_absence_cannot_be_proven(otc: Service) -> None:
    plan = otc.plan(a_job())
    otc.fail(Fault(Effect.LOST_BEFORE, operation=CREATE, count=None))
    asked: list[str] = []

    def break_the_list_after_the_second() -> None:
        asked.append("")
        if len(asked) == 2:
            otc.fail(Fault(Effect.ANSWER, operation=FIND, count=None, status=503))

    otc.gate.before(CREATE, break_the_list_after_the_second, always=True)
    assert the_only(otc.carry_out(plan)).status is Status.UNKNOWN
    assert otc.asked(CREATE) == 2


def test_create_taking_effect_after_its_answer_was_lost_is_found(either: Service) -> None:
    plan = either.plan(a_job())
    either.fail(Fault(Effect.LOST_BEFORE, operation=CREATE))
    either.time.at(0.9, lambda: either.put_job("a", marker("a", 1, a_job().digest)))
    outcome = the_only(either.carry_out(plan))
    assert (outcome.status, outcome.job) == (Status.DONE, either.job("a").id)
    assert either.asked(CREATE) == 1


@pytest.mark.parametrize("status", REFUSED_CHECKS)
def test_full_list_proves_absence_when_the_name_check_fails(service: Service, status: int) -> None:
    service.fail(
        Fault(Effect.LOST_BEFORE, operation=CREATE),
        Fault(Effect.ANSWER, operation=CHECK_NAME, count=None, status=status, code="ModelArts.0010"),
    )
    assert the_only(service.apply(a_job())).status is Status.DONE
    assert service.asked(CREATE) == 2


def test_create_lost_before_and_then_after_its_effect_is_found(either: Service) -> None:
    either.fail(
        Fault(Effect.LOST_BEFORE, operation=CREATE), Fault(Effect.LOST_AFTER, operation=CREATE, nth=2)
    )
    assert the_only(either.apply(a_job())).job == either.job("a").id
    assert either.asked(CREATE) == 2


@pytest.mark.parametrize("effect", NO_ANSWER)
def test_create_with_lost_answer_and_failed_lookup_is_reported_as_unknown(
    either: Service, effect: Effect
) -> None:
    plan = either.plan(a_job())
    either.fail(Fault(effect, operation=CREATE), LOOK_UP_FAILS)
    outcome = the_only(either.carry_out(plan))
    assert outcome.status is Status.UNKNOWN
    assert "it is unknown whether a was created" in outcome.message
    assert (outcome.code, bool(outcome.request_id)) == ("ModelArts.0010", True), "of the look-up"
    assert either.asked(CREATE) == 1


def test_create_refused_for_a_taken_name_is_unknown_when_the_lookup_fails(service: Service) -> None:
    plan = service.plan(a_job())
    service.gate.before(CREATE, lambda: service.put_job("a"))
    service.fail(LOOK_UP_FAILS)
    assert the_only(service.carry_out(plan)).status is Status.UNKNOWN
    assert service.asked(CREATE) == 1


def test_incomplete_list_permits_no_second_post(otc: Service) -> None:
    plan = otc.plan(a_job())
    # The second look by name works, the scan of the workspace that follows does not.
    otc.fail(
        Fault(Effect.LOST_BEFORE, operation=CREATE),
        Fault(Effect.ANSWER, operation=FIND, nth=3, count=None, status=503),
    )
    assert the_only(otc.carry_out(plan)).status is Status.UNKNOWN
    assert otc.asked(CREATE) == 1


def test_failed_lookup_before_the_create_fails_the_action(service: Service) -> None:
    plan = service.plan(a_job())
    service.fail(Fault(Effect.ANSWER, operation=FIND, count=None, status=503, code="ModelArts.4302"))
    outcome = the_only(service.carry_out(plan))
    assert (outcome.status, outcome.code) == (Status.FAILED, "ModelArts.4302")
    assert outcome.request_id
    assert service.changes == []


# --- the name


@pytest.mark.parametrize("when", ["before the look", "between look and create"])
def test_name_taken_by_an_identical_job_of_ours_counts_as_created(service: Service, when: str) -> None:
    plan = service.plan(a_job())
    if when == "before the look":
        service.apply(a_job())
    else:
        text = marker("a", 1, a_job().digest)
        service.gate.before(CREATE, lambda: service.put_job("a", text))
    outcome = the_only(service.carry_out(plan))
    assert (outcome.status, outcome.job) == (Status.DONE, service.job("a").id)
    assert "already created" in outcome.detail
    assert len(service.store.jobs()) == 1


@pytest.mark.parametrize(
    "description",
    [
        "somebody's",
        marker("a", 1, a_job().digest, stack="other"),
        marker("b", 1, a_job().digest),
        marker("a", 2, a_job().digest),
        marker("a", 1, "a" + "f" * 12),
    ],
    ids=["unmanaged", "other stack", "copied marker", "other revision", "other declaration"],
)
@pytest.mark.parametrize("when", ["before the look", "between look and create", "after a lost answer"])
def test_name_taken_by_a_foreign_job_is_a_conflict(service: Service, when: str, description: str) -> None:
    plan = service.plan(a_job())
    if when == "before the look":
        service.put_job("a", description)
    else:
        service.gate.before(CREATE, lambda: service.put_job("a", description))
    if when == "after a lost answer":
        service.fail(Fault(Effect.LOST_AFTER, operation=CREATE))
    outcome = the_only(service.carry_out(plan))
    assert outcome.status is Status.CONFLICT
    assert service.job("a").id in outcome.detail
    assert service.description("a") == description
    assert service.asked(CREATE) == (0 if when == "before the look" else 1)


def test_name_differing_in_case_only_is_taken(service: Service) -> None:
    plan = service.plan(a_job())
    service.put_job("A", "by hand")
    assert the_only(service.carry_out(plan)).status is Status.CONFLICT


@pytest.mark.parametrize("effect", [None, *NO_ANSWER])
def test_name_taken_by_an_invisible_job_is_a_conflict_that_says_so(
    service: Service, effect: Effect | None
) -> None:
    service.put_hidden_job("a")
    if effect:
        service.fail(Fault(effect, operation=CREATE))
    outcome = the_only(service.apply(a_job()))
    assert outcome.status is Status.CONFLICT
    assert "a is held by a job that this account cannot see" in outcome.detail
    assert service.asked(CREATE) == 1


def test_name_taken_by_an_invisible_job_is_a_conflict_without_name_check(otc: Service) -> None:
    otc.put_hidden_job("a")
    outcome = the_only(otc.apply(a_job()))
    assert outcome.status is Status.CONFLICT
    assert "held by a job that this account cannot see" in outcome.detail
    assert outcome.code == "ModelArts.2751"
    assert outcome.request_id


def test_conflict_after_a_refused_create_keeps_code_and_request_id(service: Service) -> None:
    plan = service.plan(a_job())
    service.gate.before(CREATE, lambda: service.put_job("a", "by hand"))
    outcome = the_only(service.carry_out(plan))
    assert (outcome.status, outcome.code) == (Status.CONFLICT, "ModelArts.2751")
    assert "a is taken by job" in outcome.message
    assert outcome.request_id
    failed = next(event for event in service.events if event.type is EventType.ACTION_FAILED)
    assert (failed.code, failed.request_id) == (outcome.code, outcome.request_id)


# --- refusals


def test_throttled_create_is_retried_after_retry_after(service: Service) -> None:
    service.fail(
        Fault(Effect.ANSWER, operation=CREATE, status=429, code="APIGW.0308", retry_after_s=7),
        Fault(Effect.ANSWER, operation=CREATE, status=429, code="ModelArts.4206"),
    )
    assert the_only(service.apply(a_job())).status is Status.DONE
    assert service.asked(CREATE) == 3
    assert 7 in service.time.slept


def test_retry_after_longer_than_the_action_timeout_is_capped(service: Service) -> None:
    service.fail(Fault(Effect.ANSWER, operation=CREATE, status=429, code="APIGW.0308", retry_after_s=3000))
    assert the_only(service.apply(a_job(), timeout_s=60)).status is Status.DONE
    assert max(service.time.slept) <= 60


def test_create_throttled_on_every_attempt_fails(service: Service) -> None:
    service.fail(Fault(Effect.ANSWER, operation=CREATE, status=429, code="APIGW.0308", count=None))
    outcome = the_only(service.apply(a_job()))
    assert (outcome.status, outcome.code) == (Status.FAILED, "APIGW.0308")


def test_unsent_create_is_retried_without_a_name_check(service: Service) -> None:
    def nobody_listens() -> None:
        raise Unreachable("Connection refused")

    service.gate.before(CREATE, nobody_listens)
    assert the_only(service.apply(a_job())).status is Status.DONE
    assert service.asked(CHECK_NAME) == 0


def test_create_with_unreachable_service_fails_without_effect(service: Service) -> None:
    def nobody_listens() -> None:
        raise Unreachable("Connection refused")

    service.gate.before(CREATE, nobody_listens, always=True)
    outcome = the_only(service.apply(a_job()))
    assert outcome.status is Status.FAILED
    assert "cannot be reached" in outcome.detail


def test_refused_create_keeps_error_code_and_request_id(service: Service) -> None:
    service.fail(Fault(Effect.ANSWER, operation=CREATE, status=400, code="ModelArts.2815", message="quota"))
    outcome = the_only(service.apply(a_job()))
    assert (outcome.status, outcome.code, outcome.message) == (Status.FAILED, "ModelArts.2815", "quota")
    assert outcome.request_id
    assert service.asked(CREATE) == 1


def test_forbidden_create_is_denied(service: Service) -> None:
    service.fail(Fault(Effect.ANSWER, operation=CREATE, status=403, code="ModelArts.2771"))
    assert the_only(service.apply(a_job())).status is Status.DENIED


# --- a further revision


def test_failed_job_restarted_since_the_plan_is_not_duplicated(
    service: Service,
) -> None:
    job = a_job(lifecycle={"on_failure": "retry"})
    first = service.run(job)
    service.store.set_phase(first.id, "Failed")
    service.time.sleep(3600)
    plan = service.plan(job)
    assert plan.actions[0].action is Action.CREATE
    service.store.set_phase(first.id, "Pending")
    service.forget_requests()
    outcome = the_only(service.carry_out(plan))
    assert outcome.status is Status.CONFLICT
    assert "a is Pending again" in outcome.detail
    assert service.changes == []


def test_failed_job_completed_since_the_plan_is_not_retried(service: Service) -> None:
    job = a_job(lifecycle={"on_failure": "retry"})
    first = service.run(job)
    service.store.set_phase(first.id, "Failed")
    service.time.sleep(3600)
    plan = service.plan(job)
    service.store.set_phase(first.id, "Completed")
    outcome = the_only(service.carry_out(plan))
    assert (outcome.status, outcome.job) == (Status.DONE, first.id)
    assert "completed in the meantime" in outcome.detail
    assert service.phases() == {"a": "Completed"}


def test_next_revision_is_created_after_the_last_one_was_deleted(service: Service) -> None:
    first = service.run(a_job())
    service.store.set_phase(first.id, "Completed")
    changed = a_job(algorithm__parameters={"lr": 0.5})
    plan = service.plan(changed)
    service.store.delete("local", first.id)
    assert the_only(service.carry_out(plan)).status is Status.DONE
    assert set(service.phases()) == {"a-r2"}


def test_create_waits_for_the_terminating_revision(service: Service) -> None:
    first = service.run(a_job())
    service.apply(absent())
    plan = service.plan(a_job())
    assert plan.actions[0].reason is Reason.WAITS_FOR_TERMINATION
    assert the_only(service.carry_out(plan)).status is Status.DONE
    assert service.phases() == {"a": "Terminated", "a-r2": "Creating"}
    assert service.store.find(first.id).life.ended_ms <= service.job("a-r2").create_ms


def test_create_times_out_while_the_old_revision_is_terminating(service: Service) -> None:
    first = service.run(a_job())
    service.apply(absent())
    service.store.hold(first.id)
    outcome = the_only(service.apply(a_job(), timeout_s=120))
    assert outcome.status is Status.TIMED_OUT
    assert service.phases() == {"a": "Terminating"}


def put_revision(service: Service, number: int, phase: str) -> Job:
    """A revision of another declaration, as a colleague made it."""
    before = a_job(algorithm__parameters={"lr": 0.7})
    job = service.put_job(f"a-r{number}", marker("a", number, before.digest), dict(before.body or {}))
    service.store.set_phase(job.id, phase)
    return job


def test_create_waits_for_an_older_terminating_revision_behind_an_ended_one(either: Service) -> None:
    first = either.run(a_job())
    either.apply(absent())
    put_revision(either, 2, "Completed")
    plan = either.plan(a_job())
    assert plan.actions[0].waits_for_jobs == (first.id,)
    assert the_only(either.carry_out(plan)).status is Status.DONE
    assert either.phases() == {"a": "Terminated", "a-r2": "Completed", "a-r3": "Creating"}
    assert either.store.find(first.id).life.ended_ms <= either.job("a-r3").create_ms


def test_create_times_out_while_an_older_revision_is_terminating(either: Service) -> None:
    first = either.run(a_job())
    either.apply(absent())
    put_revision(either, 2, "Completed")
    either.store.hold(first.id)
    outcome = the_only(either.apply(a_job(), timeout_s=120))
    assert (outcome.status, outcome.job) == (Status.TIMED_OUT, first.id)
    assert either.phases() == {"a": "Terminating", "a-r2": "Completed"}


def test_create_goes_on_when_the_older_revision_it_waits_for_is_deleted(either: Service) -> None:
    first = either.run(a_job())
    either.apply(absent())
    put_revision(either, 2, "Completed")
    plan = either.plan(a_job())
    either.time.sleep(600)
    either.store.delete(PROJECT, first.id)
    assert the_only(either.carry_out(plan)).status is Status.DONE
    assert either.phases() == {"a-r2": "Completed", "a-r3": "Creating"}


def test_job_that_completed_while_it_was_to_be_terminated_is_not_run_again(service: Service) -> None:
    first = service.run(a_job())
    service.apply(absent())
    plan = service.plan(a_job())
    service.store.hold(first.id)
    service.time.at(5, lambda: service.store.set_phase(first.id, "Completed"))
    assert the_only(service.carry_out(plan)).status is Status.DONE
    assert service.phases() == {"a": "Completed"}
    assert service.plan(a_job()).actions[0].reason is Reason.COMPLETED


# --- a termination that was under way turns out to be the job's own


def test_job_that_was_stopped_by_its_own_auto_stop_is_not_run_again(service: Service) -> None:
    plan = plan_while_terminating(service, auto_stop_h=1)
    outcome = the_only(service.carry_out(plan))
    assert (outcome.status, outcome.job) == (Status.DONE, service.job("a").id)
    assert outcome.detail == "a is Terminated: stopped by its own auto_stop"
    assert service.phases() == {"a": "Terminated"}


def test_job_that_was_stopped_long_before_its_auto_stop_is_followed(service: Service) -> None:
    plan = plan_while_terminating(service, auto_stop_h=2)
    assert the_only(service.carry_out(plan)).status is Status.DONE
    assert service.phases() == {"a": "Terminated", "a-r2": "Creating"}


def test_edited_job_is_created_after_the_last_one_was_stopped_by_auto_stop(service: Service) -> None:
    plan = plan_while_terminating(service, auto_stop_h=1, lr=0.5)
    assert the_only(service.carry_out(plan)).status is Status.DONE
    assert service.phases() == {"a": "Terminated", "a-r2": "Creating"}


def plan_while_terminating(service: Service, *, auto_stop_h: int, lr: float = 0.1) -> Plan:
    """The plan made 54 minutes into a run that is terminating; it ends a few minutes later."""

    def job(lr: float) -> DesiredJob:
        return a_job(
            spec__auto_stop={"time_unit": "HOURS", "duration": auto_stop_h}, algorithm__parameters={"lr": lr}
        )

    first = service.run(job(0.1))
    service.time.sleep(54 * 60)
    service.store.set_phase(first.id, "Terminating")
    service.describe("a", marker("a", 1, job(0.1).digest, "stopped"))
    service.store.hold(first.id)
    plan = service.plan(job(lr))
    assert plan.actions[0].reason is Reason.WAITS_FOR_TERMINATION
    service.time.at(4 * 60, lambda: service.store.release(first.id))
    return plan
