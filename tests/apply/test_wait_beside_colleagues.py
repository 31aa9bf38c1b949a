"""apply --wait beside colleagues who have checkouts, and records, of their own: what they did stays done."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from reconciler import reconcile
from reconciler.core.record import Call, LockHeld, LockLost, RecordsUnavailable, RunKind, Scope
from reconciler.core.stack import DesiredJob
from reconciler.decide.journal import Step
from reconciler.decide.outcome import EventType, Waited, WaitEnd
from reconciler.decide.plan import EVERY_GUARD, Action
from reconciler.decide.wait import Goal
from reconciler.emulator import Effect, Fault
from reconciler.errors import Diagnostic
from reconciler.records.recording import Recording, StackLock
from tests.apply.service import CREATE, FIND, PROJECT, STOP, Service, a_service, marker
from tests.apply.test_rollout import PIPELINE, RUNS_S, Told, needing, rollout, saved
from tests.builders import STACK, TARGET, a_job, a_stack

RETRIED: dict[str, Any] = {"lifecycle": {"on_failure": "retry", "retry_delay": "1m", "max_retries": 5}}
NEW: dict[str, Any] = {"algorithm__parameters": {"lr": 0.5}}


@pytest.fixture
def service() -> Iterator[Service]:
    with a_service(running=RUNS_S) as opened:
        yield opened


def destroys(service: Service, *jobs: DesiredJob) -> Callable[[], object]:
    """A colleague runs `destroy`, without the records of ours."""
    return lambda: service.carry_out(reconcile.destroy_plan(service.context(a_stack(*jobs))))


def applies(service: Service, *jobs: DesiredJob) -> Callable[[], object]:
    """A colleague applies a manifest of his own."""
    return lambda: service.carry_out(service.plan(*jobs, allowances=EVERY_GUARD))


def superseded(told: Told, key: str = "a") -> Waited:
    [waited] = [waited for waited in told.result.waits if waited.key == key]
    assert waited.end is WaitEnd.SUPERSEDED
    return waited


# --- what a colleague ended or replaced stays so


@pytest.mark.parametrize("lifecycle", [{}, {"on_terminated": "recreate", "max_retries": 3}])
def test_job_destroyed_by_another_process_is_not_recreated(
    service: Service, lifecycle: dict[str, Any]
) -> None:
    job = a_job(lifecycle=lifecycle)
    service.time.at(8, destroys(service, job))
    told = rollout(service, job)
    assert superseded(told).describe(0) == "a was ended elsewhere"
    assert set(service.phases()) == {"a"}
    assert service.asked(CREATE) == 1


def test_kept_job_destroyed_by_another_process_is_not_recreated(service: Service) -> None:
    service.run(a_job())
    service.time.at(5, destroys(service, a_job()))
    told = rollout(service, a_job())
    superseded(told)
    assert set(service.phases()) == {"a"}


def test_job_that_was_terminated_by_hand_is_not_recreated_by_the_wait(service: Service) -> None:
    job = a_job(lifecycle={"on_terminated": "recreate", "max_retries": 3})
    service.time.at(8, lambda: service.backend.terminate(service.job("a").id))
    told = rollout(service, job)
    superseded(told)
    assert set(service.phases()) == {"a"}


def test_edit_applied_by_another_process_is_not_reverted(service: Service) -> None:
    service.time.at(8, applies(service, a_job(**NEW)))
    told = rollout(service, a_job(lifecycle={"on_change": "replace"}))
    superseded(told)
    assert service.phases() == {"a": "Terminated", "a-r2": "Creating"}


def test_completed_job_has_reached_its_goal_whatever_follows(service: Service) -> None:
    slow = a_job("slow", algorithm__environments={"EMULATOR_RUN_SECONDS": "100"})
    service.time.at(60, applies(service, a_job(**NEW), slow))
    told = rollout(service, a_job(), slow)
    assert told.ends == {"a": "reached", "slow": "reached"}
    assert set(service.phases()) == {"a", "a-r2", "slow"}


def retried_elsewhere(service: Service, phase: str | None = None, job: DesiredJob | None = None) -> None:
    """The job fails, and another process tries it again; that revision ends, too, if a phase is given."""
    service.store.set_phase(service.job("a").id, "Failed")
    service.put_job("a-r2", marker("a", 2, (job or a_job(**RETRIED)).digest))
    if phase is not None:
        service.store.set_phase(service.job("a-r2").id, phase)


def made_again_elsewhere(service: Service) -> None:
    """The same, but somebody ends the retry, and the next revision is no retry any more."""
    retried_elsewhere(service, "Terminated")
    service.put_job("a-r3", marker("a", 3, a_job().digest))


@pytest.mark.parametrize("lifecycle", [RETRIED, {}], ids=["retried", "kept here"])
def test_retry_made_by_another_process_is_followed(service: Service, lifecycle: dict[str, Any]) -> None:
    service.time.at(8, lambda: retried_elsewhere(service))
    told = rollout(service, a_job(**lifecycle), needing("a", key="b"))
    assert told.ends == {"a": "reached", "b": "reached"}
    assert told.done == [("a", Action.CREATE), ("b", Action.CREATE)]
    assert set(service.phases()) == {"a", "a-r2", "b"}


def test_retry_made_by_another_process_that_fails_is_retried(service: Service) -> None:
    service.time.at(8, lambda: retried_elsewhere(service, "Failed"))
    told = rollout(service, a_job(**RETRIED))
    assert told.ends == {"a": "reached"}
    assert service.phases() == {"a": "Failed", "a-r2": "Failed", "a-r3": "Completed"}


def test_retry_made_by_another_process_that_fails_ends_badly_without_a_retry_left(service: Service) -> None:
    service.time.at(8, lambda: retried_elsewhere(service, "Failed", a_job()))
    told = rollout(service, a_job())
    assert told.ends == {"a": "ended_badly"}
    assert set(service.phases()) == {"a", "a-r2"}


def test_retry_of_a_kept_job_made_by_another_process_is_followed_by_a_saved_plan(service: Service) -> None:
    service.run(a_job())
    plan = service.plan(a_job())
    service.time.at(4, lambda: retried_elsewhere(service))
    told = rollout(service, plan=plan)
    assert told.ends == {"a": "reached"}
    assert service.phases() == {"a": "Failed", "a-r2": "Completed"}


@pytest.mark.parametrize(
    "replaced",
    [
        lambda service: retried_elsewhere(service, job=a_job(**NEW)),
        lambda service: retried_elsewhere(service, "Terminated"),
        made_again_elsewhere,
    ],
    ids=["of another declaration", "retry ended elsewhere", "retry ended elsewhere and made again"],
)
def test_replacement_made_by_another_process_ends_the_wait(
    service: Service, replaced: Callable[[Service], object]
) -> None:
    service.time.at(8, lambda: replaced(service))
    told = rollout(service, a_job(**RETRIED))
    assert "made elsewhere" in superseded(told).describe(0)
    assert service.asked(CREATE) == 1


def test_deferred_rerun_started_by_another_process_is_waited_for(service: Service) -> None:
    rerun = needing("a", key="b", lifecycle={"on_upstream": "rerun"})
    rollout(service, a_job("a"), rerun)

    def starts_the_rerun() -> None:
        service.store.set_phase(service.job("a-r2").id, "Completed")
        service.put_job("b-r2", marker("b", 2, rerun.digest))

    service.time.at(8, starts_the_rerun)
    told = rollout(service, a_job("a", **NEW), rerun)
    assert told.ends == {"a": "reached", "b": "reached"}
    assert set(service.phases()) == {"a", "a-r2", "b", "b-r2"}


@pytest.mark.parametrize(
    "text", ["mine now", marker("other", 1, a_job().digest, stack="other")], ids=["released", "adopted"]
)
def test_released_job_is_neither_recreated_nor_waited_for(service: Service, text: str) -> None:
    service.time.at(8, lambda: service.describe("a", text))
    told = rollout(service, a_job())
    assert superseded(told).describe(0) == "a no longer carries our marker"
    assert set(service.phases()) == {"a"}


def test_renamed_job_is_neither_recreated_nor_waited_for(service: Service) -> None:
    service.time.at(8, applies(service, replace(a_job("b"), formerly=("a",))))
    told = rollout(service, a_job())
    superseded(told)
    assert set(service.phases()) == {"a"}


def test_deleted_job_is_not_recreated_by_the_wait(service: Service) -> None:
    def fails_and_is_deleted() -> None:
        service.store.set_phase(service.job("a").id, "Failed")
        service.store.delete(PROJECT, service.job("a").id)
        service.time.clock.advance(seconds=3600)

    service.time.at(8, fails_and_is_deleted)
    told = rollout(service, a_job())
    assert "no longer exists" in superseded(told).describe(0)
    assert service.asked(CREATE) == 1


def test_saved_plan_follows_its_own_job_only(service: Service) -> None:
    plan = service.plan(a_job())
    service.time.at(8, applies(service, a_job(**NEW)))
    told = rollout(service, plan=plan)
    superseded(told)
    assert saved(plan).declared_keys == {"a"}


def test_superseded_upstream_blocks_its_downstream_jobs(service: Service) -> None:
    service.time.at(8, destroys(service, *PIPELINE))
    told = rollout(service, *PIPELINE)
    assert told.ends == {"a": "superseded_elsewhere", "b": "blocked", "c": "blocked"}
    assert set(service.phases()) == {"a"}


def test_deferred_replace_of_a_job_ended_elsewhere_is_not_carried_out(service: Service) -> None:
    service.run(a_job("a"), a_job("b", algorithm__environments={"EMULATOR_RUN_SECONDS": "1000"}))
    service.time.at(5, destroys(service, a_job("b")))
    told = rollout(service, a_job("a"), needing("a", key="b", **NEW))
    superseded(told, "b")
    assert set(service.phases()) == {"a", "b"}


def test_deferred_job_started_by_another_process_is_waited_for(service: Service) -> None:
    """Whoever sent it: it is what the plan announced."""
    service.time.at(8, lambda: service.put_job("b", marker("b", 1, a_job("b").digest)))
    told = rollout(service, *PIPELINE[:2])
    assert told.ends == {"a": "reached", "b": "reached"}
    assert service.asked(CREATE) == 1


def test_create_not_in_the_plan_is_not_started_by_the_wait(service: Service) -> None:
    """The first look cannot read the key; later it turns out that nothing is there."""
    plan = service.plan(a_job())
    [create] = plan.actions
    unknown = create.model_copy(update={"action": Action.UNKNOWN, "after": None, "desired": None})
    told = rollout(service, a_job(), plan=plan.model_copy(update={"actions": (unknown,)}))
    assert told.ends == {"a": "blocked"}
    assert service.phases() == {}


def test_own_retries_continue_beside_another_process(service: Service) -> None:
    service.time.at(8, lambda: service.store.set_phase(service.job("a").id, "Failed"))
    service.time.at(12, applies(service, a_job(**RETRIED), a_job("b")))
    told = rollout(service, a_job(**RETRIED))
    assert told.ends == {"a": "reached"}
    assert set(service.phases()) == {"a", "a-r2", "b"}


# --- the lock is held only while something is done


OpenRecording = Callable[..., Recording]


@pytest.fixture
def open_recording(service: Service, tmp_path: Path) -> Iterator[OpenRecording]:
    """Open the records of one directory, as each process does for itself; all are closed in the end."""
    with ExitStack() as opened:

        def open_one(warned: list[str] | None = None) -> Recording:
            warn = (warned if warned is not None else []).append
            recording = Recording(None, tmp_path, service.time, warn=warn)
            opened.callback(recording.close)
            return recording

        yield open_one


def is_locked(recording: Recording) -> bool:
    store = recording.writing()
    return store is not None and store.holder(Scope.of(STACK, TARGET)) is not None


def rollout_under_lock(service: Service, recording: Recording, *jobs: DesiredJob, **said: Any) -> Told:
    lock = recording.lock(Scope.of(STACK, TARGET), service.stop.set)
    lock.take()
    try:
        return rollout(service, *jobs, recording=recording, lock=lock, **said)
    finally:
        lock.release()
        recording.close()


def test_lock_is_held_for_each_step_and_not_between(service: Service, open_recording: OpenRecording) -> None:
    recording, other = (open_recording() for _ in range(2))
    seen: dict[str, set[bool]] = {CREATE: set(), FIND: set()}

    def look_at_the_lock(operation: str) -> None:
        seen[operation].add(is_locked(other))

    for operation in seen:
        service.gate.before(operation, partial(look_at_the_lock, operation), always=True)
    told = rollout_under_lock(service, recording, *PIPELINE)
    assert set(told.ends.values()) == {"reached"}
    assert seen == {CREATE: {True}, FIND: {True, False}}
    assert not is_locked(other)


def test_another_process_with_the_same_store_can_apply_during_the_wait(
    service: Service, open_recording: OpenRecording
) -> None:
    recording, other = (open_recording() for _ in range(2))

    def destroy_under_the_lock() -> None:
        with other.lock(Scope.of(STACK, TARGET), lambda: None):
            destroys(service, a_job())()

    service.time.at(8, destroy_under_the_lock)
    told = rollout_under_lock(service, recording, a_job())
    superseded(told)
    assert not told.result.lost_lock


def test_step_waits_for_a_lock_held_by_another_process_and_warns_once(
    service: Service, open_recording: OpenRecording
) -> None:
    warned: list[str] = []
    recording, other = open_recording(warned), open_recording()
    held = other.lock(Scope.of(STACK, TARGET), lambda: None)
    service.time.at(20, held.take)
    service.time.at(50, held.release)
    told = rollout_under_lock(service, recording, *PIPELINE[:2])
    assert told.ends == {"a": "reached", "b": "reached"}
    assert len([text for text in warned if "held by" in text]) == 1
    created_s = service.job("b").create_ms / 1000
    assert created_s >= service.job("a").create_ms / 1000 + 48


class Away(StackLock):
    """A lock whose store cannot be reached for a while."""

    until_s = 0.0

    def take(self) -> None:
        if self._recording.clock.now() < self.until_s:
            raise RecordsUnavailable(Diagnostic("the record store cannot be read", "it is unavailable"))
        super().take()


def test_unavailable_record_store_between_steps_does_not_end_the_wait(
    service: Service, open_recording: OpenRecording
) -> None:
    recording = open_recording()
    lock = Away(recording, Scope.of(STACK, TARGET), service.stop.set)
    lock.take()
    lock.until_s = service.time.now() + 60
    told = rollout(service, *PIPELINE[:2], recording=recording, lock=lock)
    lock.release()
    assert told.ends == {"a": "reached", "b": "reached"}
    assert service.job("b").create_ms / 1000 >= lock.until_s
    recording.close()


class AwayRecords(Recording):
    """Records whose store cannot be read for a while."""

    until_s = 0.0

    def reading(self) -> Any:
        if self.clock.now() < self.until_s:
            raise RecordsUnavailable(Diagnostic("the record store cannot be read", "it is unavailable"))
        return super().reading()


def test_temporarily_unreadable_history_does_not_end_the_wait(service: Service, tmp_path: Path) -> None:
    recording = AwayRecords(None, tmp_path, service.time)
    service.time.at(8, lambda: setattr(recording, "until_s", service.time.now() + 60))
    told = rollout_under_lock(service, recording, *PIPELINE[:2])
    assert told.ends == {"a": "reached", "b": "reached"}
    assert service.asked(CREATE) == 2


def test_lock_held_until_the_timeout_times_out_the_step(
    service: Service, open_recording: OpenRecording
) -> None:
    recording, other = (open_recording() for _ in range(2))
    held = other.lock(Scope.of(STACK, TARGET), lambda: None)
    service.time.at(20, held.take)
    told = rollout_under_lock(service, recording, *PIPELINE[:2], timeout_s=40)
    assert told.ends == {"a": "reached", "b": "timed_out"}
    held.release()


def test_journal_refuses_a_call_after_the_lock_was_released(
    service: Service, open_recording: OpenRecording
) -> None:
    recording, scope = open_recording(), Scope.of(STACK, TARGET)
    context = service.context(a_stack(a_job()))._replace(recording=recording)
    lock = recording.lock(scope, lambda: None)
    lock.take()
    journal = recording.begin(scope, RunKind.APPLY, "")
    [create] = reconcile.plan(context).actions
    journal.before(Step(create, Call.CREATE))
    lock.release()
    with pytest.raises(LockLost):
        journal.before(Step(create, Call.CREATE))
    with lock:
        journal.before(Step(create, Call.CREATE))
    recording.close()


def test_second_lock_of_a_scope_is_refused_while_the_first_is_held(
    service: Service, open_recording: OpenRecording
) -> None:
    one, other = (open_recording() for _ in range(2))
    scope = Scope.of(STACK, TARGET)
    with one.lock(scope, lambda: None), pytest.raises(LockHeld), other.lock(scope, lambda: None):
        pass
    with other.lock(scope, lambda: None):
        assert is_locked(one)


# --- what it says


def test_superseded_key_is_reported_as_superseded_elsewhere(service: Service) -> None:
    service.time.at(8, destroys(service, a_job()))
    told = rollout(service, a_job(), goal=Goal.COMPLETED)
    last = [e for e in told.events if e.type is EventType.ACTION_PROGRESS][-1]
    assert last.detail == "a was ended elsewhere"
    assert superseded(told).document()["result"] == "superseded_elsewhere"


def test_key_superseded_by_a_job_in_the_same_phase_is_reported_while_waiting(service: Service) -> None:
    def is_running_and_made_anew() -> None:
        applies(service, a_job(**NEW), a_job("slow"))()
        service.store.set_phase(service.job("a-r2").id, "Running")

    service.time.at(8, is_running_and_made_anew)
    told = rollout(service, a_job(lifecycle={"on_change": "replace"}), a_job("slow"))
    superseded(told)
    assert [e.detail for e in told.progress("a")][-1] == "a-r2 was made elsewhere"


def test_temporarily_failing_reads_supersede_no_key(service: Service) -> None:
    service.time.at(2, lambda: service.fail(Fault(Effect.ANSWER, operation=FIND, status=500, count=12)))
    assert rollout(service, a_job()).ends == {"a": "reached"}
    assert service.asked(STOP) == 0
