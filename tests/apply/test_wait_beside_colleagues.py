"""apply --wait beside concurrent users with their own checkouts and records, whose changes are respected."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, nullcontext
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from reconciler import reconcile
from reconciler.core.record import RecordsUnavailable, Scope
from reconciler.core.stack import DesiredJob
from reconciler.decide.outcome import EventType, Waited, WaitEnd
from reconciler.decide.plan import EVERY_GUARD, Action
from reconciler.errors import Diagnostic, LockHeld
from reconciler.records.recording import Recording
from tests.apply.service import CREATE, FIND, PROJECT, Service, a_service, marker
from tests.apply.test_rollout import PIPELINE, RUNS_S, Applied, needing, rollout
from tests.builders import STACK, TARGET, a_job, a_stack

RETRIED: dict[str, Any] = {"lifecycle": {"on_failure": "retry", "retry_delay": "1m", "max_retries": 5}}
NEW: dict[str, Any] = {"algorithm__parameters": {"lr": 0.5}}


@pytest.fixture
def service() -> Iterator[Service]:
    with a_service(running=RUNS_S) as opened:
        yield opened


def destroys(service: Service, *jobs: DesiredJob) -> Callable[[], object]:
    """Another user runs `destroy`, without our records."""
    return lambda: service.carry_out(reconcile.destroy_plan(service.context(a_stack(*jobs))))


def applies(service: Service, *jobs: DesiredJob) -> Callable[[], object]:
    """Another user applies another manifest."""
    return lambda: service.carry_out(service.plan(*jobs, allowances=EVERY_GUARD))


def superseded(applied: Applied, key: str = "a") -> Waited:
    [waited] = [waited for waited in applied.result.waits if waited.key == key]
    assert waited.end is WaitEnd.SUPERSEDED
    return waited


# --- terminations and replacements by others are respected


def retried_elsewhere(service: Service, phase: str | None = None, job: DesiredJob | None = None) -> None:
    """The job fails and another process retries it; the retry ends, too, if a phase is given."""
    service.store.set_phase(service.job("a").id, "Failed")
    service.put_job("a-r2", marker("a", 2, (job or a_job(**RETRIED)).digest))
    if phase is not None:
        service.store.set_phase(service.job("a-r2").id, phase)


def made_again_elsewhere(service: Service) -> None:
    """The same, but the retry is terminated, so that the next revision is no retry."""
    retried_elsewhere(service, "Terminated")
    service.put_job("a-r3", marker("a", 3, a_job().digest))


Deed = Callable[[Service], object]


def destroy(*jobs: DesiredJob) -> Deed:
    return lambda service: destroys(service, *jobs)()


def apply(*jobs: DesiredJob) -> Deed:
    return lambda service: applies(service, *jobs)()


def fails_and_is_deleted(service: Service) -> None:
    service.store.set_phase(service.job("a").id, "Failed")
    service.store.delete(PROJECT, service.job("a").id)
    service.time.clock.advance(seconds=3600)


def fails_and_others_are_applied(service: Service) -> None:
    service.store.set_phase(service.job("a").id, "Failed")
    service.time.at(4, applies(service, a_job(**RETRIED), a_job("b")))


def runs_for(key: str, seconds: float) -> DesiredJob:
    return a_job(key, algorithm__environments={"EMULATOR_RUN_SECONDS": str(seconds)})


class Case(NamedTuple):
    """A concurrent change during a wait, and the end for each key; `detail` is that of the last."""

    jobs: tuple[DesiredJob, ...]
    deed: Deed
    ends: dict[str, str]
    #: The final jobs, and how many of them we created.
    names: str
    created: int
    detail: str = ""
    phases: dict[str, str] | None = None
    at_s: float = 8
    had: tuple[DesiredJob, ...] = ()
    is_saved: bool = False


A, REACHED = a_job(), "reached"
GONE = {"a": "superseded_elsewhere"}
MINE = marker("other", 1, A.digest, stack="other")
RECREATED = a_job(lifecycle={"on_terminated": "recreate", "max_retries": 3})
B_TOO = (a_job(**RETRIED), needing("a", key="b"))
CASES = {
    "destroys it": Case((A,), destroy(A), GONE, "a", 1, "a was ended elsewhere"),
    "destroys one that is recreated": Case(
        (RECREATED,), destroy(RECREATED), GONE, "a", 1, "a was ended elsewhere"
    ),
    "destroys one that was kept": Case((A,), destroy(A), GONE, "a", 0, at_s=5, had=(A,)),
    "terminates it by hand": Case((RECREATED,), lambda s: s.backend.terminate(s.job("a").id), GONE, "a", 1),
    "edits it": Case(
        (a_job(lifecycle={"on_change": "replace"}),),
        apply(a_job(**NEW)),
        GONE,
        "a a-r2",
        2,
        phases={"a": "Terminated", "a-r2": "Creating"},
    ),
    "edits it, and the plan was saved": Case((A,), apply(a_job(**NEW)), GONE, "a a-r2", 2, is_saved=True),
    "edits one that has completed": Case(
        (A, runs_for("slow", 100)),
        apply(a_job(**NEW), runs_for("slow", 100)),
        {"a": REACHED, "slow": REACHED},
        "a a-r2 slow",
        3,
        at_s=60,
    ),
    "retries it": Case(B_TOO, retried_elsewhere, {"a": REACHED, "b": REACHED}, "a a-r2 b", 2),
    "retries one that we keep": Case(
        (A, needing("a", key="b")), retried_elsewhere, {"a": REACHED, "b": REACHED}, "a a-r2 b", 2
    ),
    "retries one that was kept, and the plan was saved": Case(
        (A,),
        retried_elsewhere,
        {"a": REACHED},
        "a a-r2",
        0,
        phases={"a": "Failed", "a-r2": "Completed"},
        at_s=4,
        had=(A,),
        is_saved=True,
    ),
    "retries it in vain": Case(
        B_TOO[:1],
        lambda s: retried_elsewhere(s, "Failed"),
        {"a": REACHED},
        "a a-r2 a-r3",
        2,
        phases={"a": "Failed", "a-r2": "Failed", "a-r3": "Completed"},
    ),
    "retries it in vain, and we do not": Case(
        (A,), lambda s: retried_elsewhere(s, "Failed", A), {"a": "ended_badly"}, "a a-r2", 1
    ),
    "retries another declaration": Case(
        B_TOO[:1], lambda s: retried_elsewhere(s, job=a_job(**NEW)), GONE, "a a-r2", 1, "created elsewhere"
    ),
    "retries it and ends the retry": Case(
        B_TOO[:1], lambda s: retried_elsewhere(s, "Terminated"), GONE, "a a-r2", 1, "created elsewhere"
    ),
    "retries it, ends the retry and makes the next": Case(
        B_TOO[:1], made_again_elsewhere, GONE, "a a-r2 a-r3", 1, "created elsewhere"
    ),
    "applies beside our retries": Case(
        B_TOO[:1],
        fails_and_others_are_applied,
        {"a": REACHED},
        "a a-r2 b",
        3,
    ),
    "releases it": Case(
        (A,), lambda s: s.describe("a", "mine now"), GONE, "a", 1, "a no longer carries our marker"
    ),
    "adopts it": Case((A,), lambda s: s.describe("a", MINE), GONE, "a", 1, "a no longer carries our marker"),
    "renames it": Case((A,), apply(replace(a_job("b"), formerly=("a",))), GONE, "a", 1),
    "deletes it": Case((A,), fails_and_is_deleted, GONE, "", 1, "no longer exists"),
    "destroys the upstream": Case(
        PIPELINE, destroy(*PIPELINE), {**GONE, "b": "blocked", "c": "blocked"}, "a", 1
    ),
    "destroys what was to be replaced": Case(
        (A, needing("a", key="b", **NEW)),
        destroy(a_job("b")),
        {**GONE, "b": "superseded_elsewhere"},
        "a b",
        0,
        at_s=5,
        had=(A, runs_for("b", 1000)),
    ),
    "starts what was deferred": Case(
        PIPELINE[:2],
        lambda s: s.put_job("b", marker("b", 1, a_job("b").digest)),
        {"a": REACHED, "b": REACHED},
        "a b",
        1,
    ),
}


@pytest.mark.parametrize("case", CASES.values(), ids=CASES.keys())
def test_wait_handles_concurrent_changes(service: Service, case: Case) -> None:
    if case.had:
        service.run(*case.had)
    plan = service.plan(*case.jobs) if case.is_saved else None
    service.time.at(case.at_s, lambda: case.deed(service))
    applied = rollout(service, *(() if plan else case.jobs), plan=plan)
    assert applied.ends == case.ends
    assert set(service.phases()) == set(case.names.split())
    assert service.asked(CREATE) == case.created
    assert case.detail in applied.result.waits[-1].describe(0)
    assert case.phases is None or service.phases() == case.phases
    last = [e for e in applied.events if e.type is EventType.ACTION_PROGRESS][-1]
    assert case.detail in (last.detail or "")


def test_deferred_rerun_started_by_another_process_is_waited_for(service: Service) -> None:
    rerun = needing("a", key="b", lifecycle={"on_upstream": "rerun"})
    rollout(service, a_job("a"), rerun)

    def starts_the_rerun() -> None:
        service.store.set_phase(service.job("a-r2").id, "Completed")
        service.put_job("b-r2", marker("b", 2, rerun.digest))

    service.time.at(8, starts_the_rerun)
    applied = rollout(service, a_job("a", **NEW), rerun)
    assert applied.ends == {"a": "reached", "b": "reached"}
    assert set(service.phases()) == {"a", "a-r2", "b", "b-r2"}


def test_create_not_in_the_plan_is_not_started_by_the_wait(service: Service) -> None:
    """The first observation cannot read the key; later it has no job."""
    plan = service.plan(a_job())
    [create] = plan.actions
    unknown = create.model_copy(update={"action": Action.UNKNOWN, "after": None, "desired": None})
    applied = rollout(service, a_job(), plan=plan.model_copy(update={"actions": (unknown,)}))
    assert applied.ends == {"a": "blocked"}
    assert service.phases() == {}


# --- the lock is held only during actions


OpenRecording = Callable[..., Recording]


@pytest.fixture
def open_recording(service: Service, tmp_path: Path) -> Iterator[OpenRecording]:
    """Open records in one directory, as separate processes would; all are closed at the end."""
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


def rollout_under_lock(service: Service, recording: Recording, *jobs: DesiredJob, **members: Any) -> Applied:
    lock = recording.lock(Scope.of(STACK, TARGET), service.stop.set)
    lock.take()
    try:
        return rollout(service, *jobs, recording=recording, lock=lock, **members)
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
    applied = rollout_under_lock(service, recording, *PIPELINE)
    assert set(applied.ends.values()) == {"reached"}
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
    applied = rollout_under_lock(service, recording, a_job())
    superseded(applied)
    assert not applied.result.lost_lock


def test_step_waits_for_a_lock_held_by_another_process_and_warns_once(
    service: Service, open_recording: OpenRecording
) -> None:
    warned: list[str] = []
    recording, other = open_recording(warned), open_recording()
    held = other.lock(Scope.of(STACK, TARGET), lambda: None)
    service.time.at(20, held.take)
    service.time.at(50, held.release)
    applied = rollout_under_lock(service, recording, *PIPELINE[:2])
    assert applied.ends == {"a": "reached", "b": "reached"}
    assert len([text for text in warned if "held by" in text]) == 1
    created_s = service.job("b").create_ms / 1000
    assert created_s >= service.job("a").create_ms / 1000 + 48


@pytest.mark.parametrize(("timeout_s", "taken_at_s"), [(0, None), (19, None), (60, 20)])
def test_lock_is_waited_for_until_the_timeout(
    service: Service, open_recording: OpenRecording, timeout_s: float, taken_at_s: float | None
) -> None:
    warned: list[str] = []
    recording, other = open_recording(warned), open_recording()
    recording.lock_timeout_s = timeout_s
    held, waiting = (one.lock(Scope.of(STACK, TARGET), lambda: None) for one in (other, recording))
    held.take()
    begun_s = service.time.now()
    service.time.at(20, held.release)
    with ExitStack() as cleanup:
        cleanup.callback(waiting.release)
        with nullcontext() if taken_at_s else pytest.raises(LockHeld, match="another process holds the lock"):
            waiting.take_in_time()
    assert service.time.now() - begun_s == (taken_at_s or timeout_s)
    assert len([text for text in warned if "waiting for up to" in text]) == (timeout_s > 0)
    held.release()


@pytest.mark.parametrize("away", ["reading", "writing"])
def test_records_unavailable_for_a_minute_do_not_end_the_wait(
    service: Service, open_recording: OpenRecording, away: str
) -> None:
    recording, back_s = open_recording(), service.time.now() + 68

    def is_away() -> None:
        raise RecordsUnavailable(Diagnostic("the record store cannot be read", "it is unavailable"))

    service.time.at(8, lambda: setattr(recording, away, is_away))
    service.time.at(68, lambda: delattr(recording, away))
    applied = rollout_under_lock(service, recording, *PIPELINE[:2])
    assert applied.ends == {"a": "reached", "b": "reached"}
    assert service.asked(CREATE) == 2
    assert service.job("b").create_ms / 1000 >= back_s


# --- messages


def test_key_superseded_by_a_job_in_the_same_phase_is_reported_while_waiting(service: Service) -> None:
    def is_running_and_made_anew() -> None:
        applies(service, a_job(**NEW), a_job("slow"))()
        service.store.set_phase(service.job("a-r2").id, "Running")

    service.time.at(8, is_running_and_made_anew)
    applied = rollout(service, a_job(lifecycle={"on_change": "replace"}), a_job("slow"))
    superseded(applied)
    assert [e.detail for e in applied.progress("a")][-1] == "a-r2 was created elsewhere"
