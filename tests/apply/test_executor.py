"""Executing a whole plan: order, concurrency, independent failures, interrupts, events."""

from __future__ import annotations

import math
import threading
from dataclasses import replace
from datetime import datetime
from itertools import pairwise
from typing import Any

import pytest

from reconciler import reconcile
from reconciler.apply.executor import EventStream
from reconciler.apply.journaled import Scheduler
from reconciler.decide.outcome import ApplyEvent, EventType, Journal, Outcome, Result, Status, Step
from reconciler.decide.plan import Action, in_order
from reconciler.emulator import Effect, Fault, Job
from reconciler.errors import Diagnostic, LockLost
from tests.apply.service import CREATE, SHOW, STOP, UPDATE, Service, marker, the_only
from tests.builders import a_job, a_stack, absent

NOTHING = dict.fromkeys(map(str, Status), 0)
NEW: dict[str, Any] = {"algorithm__parameters": {"lr": 0.5}}


def statuses(result: Result) -> dict[str, Status]:
    return {outcome.key: outcome.status for outcome in result.outcomes}


def everything(service: Service) -> dict[str, Action]:
    """Return a plan with one key for each action, by key."""
    service.run(a_job("ended"), a_job("edited", description="old"), a_job("replaced"))
    service.put_job("taken", "by hand")
    jobs = [
        a_job("created"),
        absent("ended"),
        a_job("edited", description="new"),
        a_job("replaced", **NEW),
        a_job("taken"),
    ]
    service.forget_requests()
    plan = service.plan(*jobs)
    service.carry_out(plan)
    return {action.key: action.action for action in plan.actions}


# --- order


def test_actions_that_free_capacity_run_before_actions_that_need_it(service: Service) -> None:
    assert everything(service) == {
        "created": Action.CREATE,
        "edited": Action.UPDATE,
        "ended": Action.TERMINATE,
        "replaced": Action.REPLACE,
        "taken": Action.CONFLICT,
    }
    started = [event.key for event in service.events if event.type is EventType.ACTION_STARTED]
    assert started.index("created") > max(started.index("ended"), started.index("replaced"))
    sent = {call: [n for n, one in enumerate(service.changes) if one == call] for call in (CREATE, STOP)}
    # The replacement waits only for its own termination, so it may precede the other one.
    new = [job.name for job in service.store.jobs() if job.name in {"created", "replaced-r2"}]
    assert sent[CREATE][new.index("created")] > max(sent[STOP])


@pytest.mark.parametrize("parallelism", [1, 8])
def test_hanging_termination_delays_only_its_own_replacement(service: Service, parallelism: int) -> None:
    """It hangs until all the others are done."""
    service.run(a_job("a"), a_job("b"), a_job("c"))
    first = service.job("a").id

    def see() -> None:
        phases = service.phases()
        if phases["a"] == "Terminating":
            service.store.hold(first)
        if {"b-r2", "d"} <= phases.keys() and phases["c"] != "Running":
            service.store.release(first)

    service.gate.before(SHOW, see, always=True)
    jobs = [a_job("a", **NEW), a_job("b", **NEW), absent("c"), a_job("d")]
    result = service.carry_out(service.plan(*jobs), parallelism=parallelism, timeout_s=30_000)
    assert statuses(result) == dict.fromkeys("abcd", Status.DONE)
    assert service.job("a-r2").create_ms >= service.job("d").create_ms


def test_actions_of_the_same_key_run_sequentially(service: Service) -> None:
    service.run(a_job("old"))
    service.put_job("old-r2", marker("old", 2, a_job("old").digest))
    service.store.set_phase(service.job("old-r2").id, "Running")
    plan = service.plan(replace(a_job("new", **NEW), formerly=("old",)))
    kinds = [action.action for action in in_order(plan.actions)]
    result = service.carry_out(plan)
    assert len(kinds) > 1
    assert result.count(Status.DONE) == len(kinds)
    assert [e.action for e in service.events if e.type is EventType.ACTION_STARTED] == kinds


def test_outcomes_are_in_plan_order_without_kept_keys(service: Service) -> None:
    service.run(a_job("kept"))
    service.put_job("b")
    result = service.apply(*map(a_job, ("c", "b", "a", "kept")))
    assert [*statuses(result).items()] == [("a", Status.DONE), ("b", Status.SKIPPED), ("c", Status.DONE)]
    assert result.summary == {**NOTHING, "done": 2, "skipped": 1}
    assert {event.key for event in service.events} == {"a", "b", "c"}


# --- beside other revisions of the key


def put_second_job(service: Service) -> Job:
    """Create a newer revision of another declaration beside the first."""
    newer = a_job(algorithm__parameters={"lr": 0.7})
    job = service.put_job("a-r2", marker("a", 2, newer.digest), dict(newer.body or {}))
    service.store.set_phase(job.id, "Running")
    return job


def test_replace_waits_for_the_superseded_revision_too(either: Service) -> None:
    jobs = [either.run(a_job()), put_second_job(either)]
    plan = either.plan(a_job(**NEW))
    assert [(a.action, a.waits_for_jobs) for a in plan.actions] == [
        (Action.TERMINATE, ()),
        (Action.REPLACE, (jobs[0].id,)),
    ]
    assert all(outcome.status is Status.DONE for outcome in either.carry_out(plan).outcomes)
    assert either.phases() == {"a": "Terminated", "a-r2": "Terminated", "a-r3": "Creating"}
    assert max(either.store.find(job.id).life.ended_ms for job in jobs) <= either.job("a-r3").create_ms


@pytest.mark.parametrize("order", ["terminate_first", "create_first"])
def test_job_is_not_replaced_while_a_superseded_one_does_not_end(either: Service, order: str) -> None:
    first, _ = either.run(a_job()), put_second_job(either)
    plan = either.plan(a_job(**NEW, lifecycle={"replace_order": order}))
    either.store.hold(first.id)
    ended, replaced = either.carry_out(plan, timeout_s=120).outcomes
    assert (ended.status, replaced.status) == (Status.DONE, Status.TIMED_OUT)
    assert "a is still Terminating after 120 s" in replaced.detail
    assert either.phases() == {"a": "Terminating", "a-r2": "Running"}, "the job to be replaced goes on"


# --- one failure stops no other


def test_failed_action_does_not_stop_independent_actions(service: Service) -> None:
    service.run(a_job("old"))
    service.fail(
        Fault(Effect.ANSWER, operation=STOP, status=400, code="ModelArts.2796", count=None),
        Fault(Effect.ANSWER, operation=CREATE, status=400, code="ModelArts.2815", nth=2),
    )
    result = service.apply(*[a_job(key) for key in "abcd"], absent("old"), parallelism=1)
    done = dict.fromkeys("acd", Status.DONE)
    assert statuses(result) == {**done, "b": Status.FAILED, "old": Status.FAILED}
    assert not result.interrupted


# --- side by side


@pytest.mark.parametrize("parallelism", [1, 3])
def test_parallelism_limits_concurrent_creates(service: Service, parallelism: int) -> None:
    together = threading.Barrier(parallelism)
    counting = threading.Lock()
    inside = most = 0

    def enter() -> None:
        nonlocal inside, most
        with counting:
            inside += 1
            most = max(most, inside)
        together.wait(timeout=10)
        with counting:
            inside -= 1

    service.gate.before(CREATE, enter, always=True)
    result = service.apply(*[a_job(f"job{n}") for n in range(6)], parallelism=parallelism)
    assert result.count(Status.DONE) == 6
    assert most == parallelism


@pytest.mark.parametrize(
    ("turn_s", "looks", "early_s"),
    [
        (0.05, 4, math.inf),  # two for each turn, at most
        (1.0, 2, 0.5),
        (4.0, 0, 2.5),  # it takes a second, and is fresh for half of one
    ],
)
def test_early_observation_ends_shortly_before_its_turn(
    service: Service, turn_s: float, looks: int, early_s: float
) -> None:
    now = [0.0]
    actions = service.plan(*[a_job(f"job{n}") for n in range(8)]).actions
    scheduler = Scheduler(2, actions, lambda: now[0])

    def begin(*places: int) -> None:
        for place in places:
            scheduler.start(place)
        now[0] += 1.0
        for place in places:
            scheduler.take(place)

    assert scheduler._early_s() == 0
    begin(0, 1)
    now[0] += turn_s
    for place in (0, 1):
        scheduler.rest(place)
    begin(2, 3)
    ahead = 0
    while scheduler._early_s() <= 0:
        scheduler.start(4 + ahead)
        ahead += 1
    assert ahead == looks
    assert scheduler._early_s() == pytest.approx(early_s)


# --- interrupted


CREATE_FIRST: dict[str, Any] = {"lifecycle": {"replace_order": "create_first"}}
#: The replaced jobs, the request in flight at the interrupt, and the message.
CUT_SHORT = [
    ({}, UPDATE, [UPDATE], "a was marked as stopped, but not terminated"),
    ({}, STOP, [UPDATE, STOP], "a was terminated, a-r2 was not created"),
    (CREATE_FIRST, CREATE, [CREATE], "a-r2 was created, a was not terminated"),
]


@pytest.mark.parametrize(("how", "operation", "sent", "message"), CUT_SHORT)
def test_interrupted_replace_reports_its_progress_and_is_completed_by_the_next_apply(
    service: Service, how: dict[str, Any], operation: str, sent: list[str], message: str
) -> None:
    service.run(a_job())
    jobs = a_job(**NEW, **how), a_job("b")
    plan = service.plan(*jobs)
    service.gate.before(operation, service.stop.set)
    service.forget_requests()
    result = service.carry_out(plan, parallelism=1)
    assert service.changes == sent
    assert statuses(result) == {"a": Status.INTERRUPTED, "b": Status.SKIPPED}
    detail = f"interrupted: {message}; the next apply completes it"
    assert (result.outcomes[0].detail, result.word) == (detail, "interrupted")
    [told] = [event for event in service.events if event.type is EventType.ACTION_FAILED]
    assert told.message == detail
    service.stop.clear()
    for _ in range(2):
        service.time.sleep(60)
        service.apply(*jobs)
    service.time.sleep(60)
    assert service.phases() == {"a": "Terminated", "a-r2": "Running", "b": "Running"}
    assert not service.plan(*jobs).to_execute


def test_interrupted_terminate_that_was_sent_is_done(service: Service) -> None:
    service.run(a_job())
    plan = service.plan(absent())

    def interrupt() -> None:
        service.stop.set()
        service.fail(Fault(Effect.ANSWER, operation=SHOW, status=503, count=None))

    service.gate.after(STOP, interrupt)
    outcome = the_only(service.carry_out(plan))
    assert (outcome.status, outcome.detail) == (Status.DONE, "its termination was requested")


THROTTLED = Fault(Effect.ANSWER, status=429, code="APIGW.0308", retry_after_s=30, count=None)


@pytest.mark.parametrize("operation", [CREATE, UPDATE, STOP])
def test_throttled_call_is_not_repeated_after_an_interrupt(service: Service, operation: str) -> None:
    service.run(a_job("ended"), a_job("edited", description="old"))
    jobs = {CREATE: a_job("new"), UPDATE: a_job("edited", description="new"), STOP: absent("ended")}
    plan = service.plan(jobs[operation])
    plan = plan.model_copy(update={"actions": tuple(a for a in plan.actions if a.key == jobs[operation].key)})
    service.fail(replace(THROTTLED, operation=operation))
    service.time.at(1, service.stop.set)
    service.forget_requests()
    result = service.carry_out(plan)
    assert service.asked(operation) == 1
    assert the_only(result).status in (Status.SKIPPED, Status.INTERRUPTED)
    assert result.interrupted


@pytest.mark.parametrize(("effect", "status"), [(Effect.LOST_AFTER, "done"), (Effect.LOST_BEFORE, "skipped")])
def test_interrupted_create_without_answer_is_looked_up_and_not_resent(
    service: Service, effect: Effect, status: str
) -> None:
    plan = service.plan(a_job())
    service.fail(Fault(effect, operation=CREATE, count=1))
    service.gate.before(CREATE, service.stop.set)
    service.forget_requests()
    result = service.carry_out(plan)
    assert the_only(result).status == status
    assert service.asked(CREATE) <= 1
    assert len(service.store.jobs()) == (status == "done")


# --- events


def test_replace_reports_progress_every_ten_seconds(service: Service) -> None:
    old = service.run(a_job())
    plan = service.plan(a_job(**NEW))
    service.store.hold(old.id)
    service.carry_out(plan, timeout_s=60)
    told = [event for event in service.events if event.type is EventType.ACTION_PROGRESS]
    assert [(one.key, one.action, one.job, one.detail) for one in told] == [
        ("a", Action.REPLACE, old.id, "Terminating")
    ] * 5
    [started] = [event for event in service.events if event.type is EventType.ACTION_STARTED]
    seconds = [int(event.ts[17:19]) for event in [started, *told]]
    assert {(later - sooner) % 60 for sooner, later in pairwise(seconds)} == {10}


def test_create_that_waits_for_the_end_of_a_job_starts_before_its_progress(service: Service) -> None:
    old = service.run(a_job())
    service.store.set_phase(old.id, "Terminating")
    service.store.hold(old.id)
    service.carry_out(service.plan(a_job(**NEW)), timeout_s=25)
    assert [event.type for event in of(service, "a")] == [
        EventType.ACTION_STARTED,
        *[EventType.ACTION_PROGRESS] * 2,
        EventType.ACTION_FAILED,
    ]


def of(service: Service, key: str) -> list[ApplyEvent]:
    return [event for event in service.events if event.key == key]


def test_events_have_consecutive_numbers_and_ascending_times(service: Service) -> None:
    everything(service)
    assert [event.sequence for event in service.events] == list(range(1, len(service.events) + 1))
    times = [datetime.fromisoformat(event.ts) for event in service.events]
    assert times == sorted(times)
    for key in ("created", "edited", "ended", "replaced"):
        assert [event.type for event in of(service, key)] == [
            EventType.ACTION_STARTED,
            EventType.ACTION_COMPLETED,
        ]
    assert [event.type for event in of(service, "taken")] == [EventType.ACTION_SKIPPED]
    assert "adopt it" in (of(service, "taken")[0].detail or "")


def test_events_after_completion_are_dropped(service: Service) -> None:
    create = service.plan(a_job("a")).actions[0]
    stream = EventStream(service.time, service.events.append)
    stream.outcome(Outcome(create, Status.DONE))
    stream.complete()
    stream.outcome(Outcome(create, Status.FAILED))
    stream.complete()
    assert [event.type for event in service.events] == [
        EventType.ACTION_COMPLETED,
        EventType.APPLY_COMPLETED,
    ]
    assert service.events[-1].summary == {**NOTHING, "done": 1}


def test_action_events_name_their_job_or_null(service: Service) -> None:
    everything(service)
    started, completed = (event.document() for event in of(service, "created"))
    assert {**started, "ts": "", "sequence": 0} == {
        **{"type": "action_started", "ts": "", "sequence": 0, "key": "created", "action": "create"},
        "job": None,
    }
    assert completed["job"] == service.job("created").id
    assert [event.job for event in of(service, "replaced")] == [
        service.job("replaced").id,
        service.job("replaced-r2").id,
    ]
    for key in ("ended", "edited"):
        assert {event.job for event in of(service, key)} == {service.job(key).id}
    [skipped] = of(service, "taken")
    assert skipped.document()["job"] is None


# --- the lock


class BrokenLater(Journal):
    """A journal whose lock is broken at some time."""

    is_broken = False

    def before(self, step: Step) -> int:
        if self.is_broken:
            raise LockLost(Diagnostic("the lock was lost", "somebody broke it"))
        return super().before(step)


def test_queued_call_is_not_sent_after_the_lock_is_lost(service: Service) -> None:
    """Its line was written while the lock was held, but its turn comes after the loss."""
    service.run(a_job("a"), a_job("b"))
    plan = service.plan(absent("a"), absent("b"))
    journal = BrokenLater()
    both_wait = threading.Event()

    def somebody_breaks_it() -> None:
        both_wait.wait(0.2)  # the other action writes its line, and waits for the only turn
        journal.is_broken = True
        service.time.sleep(10)

    service.gate.before(UPDATE, somebody_breaks_it)
    stream = EventStream(service.time, service.events.append)
    service.forget_requests()
    result = reconcile.apply(
        service.context(a_stack(), parallelism=1), plan, stream, service.stop, timeout_s=60, journal=journal
    )
    assert result.lost_lock
    assert service.changes == [UPDATE], "what was under way, and nothing after it"
    assert set(service.phases().values()) == {"Running"}
