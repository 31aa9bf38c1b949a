"""apply --wait: executing a plan and waiting for its jobs, in simulated time."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from reconciler import reconcile
from reconciler.apply.executor import EventStream
from reconciler.core.observed import Observation
from reconciler.core.past import PastRun, RunKind
from reconciler.core.record import Scope
from reconciler.core.stack import DesiredJob, Limits, Policy, Stack
from reconciler.core.stack import Effect as PolicyEffect
from reconciler.decide.outcome import ApplyEvent, EventType, Goal, Result, Status, Waited, WaitEnd
from reconciler.decide.plan import EVERY_GUARD, NO_ALLOWANCES, Action, Allowances, Plan
from reconciler.emulator import Effect, Fault
from reconciler.errors import Unauthorized
from reconciler.records.recording import Recording, StackLock
from reconciler.rollout import Rollout
from tests.apply.service import CREATE, FIND, UPDATE, Service, a_service, marker
from tests.builders import STACK, TARGET, a_job, a_stack, absent

#: A job is Creating for 1 s, queued for 2 s, and runs for 20 s.
RUNS_S = 20.0
NEW: dict[str, Any] = {"algorithm__parameters": {"lr": 0.5}}


@pytest.fixture
def service() -> Iterator[Service]:
    with a_service(running=RUNS_S) as opened:
        yield opened


@dataclass
class Applied:
    """An apply with a wait, and everything reported meanwhile."""

    service: Service
    result: Result
    took_s: float
    events: list[ApplyEvent] = field(default_factory=list)
    shown: list[tuple[Waited, ...]] = field(default_factory=list)

    @property
    def ends(self) -> dict[str, str]:
        return {waited.key: waited.end.value for waited in self.result.waits}

    @property
    def done(self) -> list[tuple[str, Action]]:
        return [(o.action.key, o.action.action) for o in self.result.outcomes if o.status is Status.DONE]

    def progress(self, key: str) -> list[ApplyEvent]:
        return [e for e in self.events if e.type is EventType.ACTION_PROGRESS and e.key == key]


def rollout(
    service: Service,
    *jobs: DesiredJob,
    goal: Goal | None = Goal.COMPLETED,
    timeout_s: float = 600,
    only: tuple[str, ...] = (),
    rerun: tuple[str, ...] = (),
    plan: Plan | None = None,
    recording: Recording | None = None,
    lock: StackLock | None = None,
    stack: Stack | None = None,
    allowances: Allowances = EVERY_GUARD,
) -> Applied:
    """Apply jobs and wait; a given plan is applied as a saved one, without a manifest."""
    if stack is None:
        stack = replace(a_stack(*jobs), whole=a_stack(*jobs).jobs) if jobs else saved(plan)
    context = service.context(stack, only=only)
    context = context._replace(recording=recording or context.recording, rerun=rerun)
    began_s, applied = service.time.now(), Applied(service, Result(), 0.0)
    stream = EventStream(service.time, applied.events.append)
    service.forget_requests()
    run = Rollout(
        context, RunKind.APPLY, stream, service.stop, timeout_s, allowances, goal, applied.shown.append, lock
    )
    applied.result = run.run(plan or reconcile.plan(context, allowances))
    applied.took_s = service.time.now() - began_s
    return applied


def saved(plan: Plan | None) -> Stack:
    """Return the stack as known from a saved plan."""
    assert plan is not None
    return Stack(STACK, {}, frozenset({action.key for action in plan.actions}))


def needing(*upstream: str, key: str, **members: Any) -> DesiredJob:
    return replace(a_job(key, **members), needs=upstream)


def failing(service: Service, name: str) -> Callable[[], object]:
    return lambda: service.store.set_phase(service.job(name).id, "Failed")


#: Five members of a sweep, two of which may be active at once.
SWEEP = tuple(replace(a_job(key), sweep="s", max_parallel=2) for key in "abcde")
PIPELINE = (a_job("a"), needing("a", key="b"), needing("b", key="c"))
RERUN: dict[str, Any] = {"lifecycle": {"on_upstream": "rerun"}}
CHAIN = (needing("a", key="b", **RERUN), needing("b", key="c", **RERUN))


# --- waits


@pytest.mark.parametrize(
    ("goal", "phase", "at_least_s", "at_most_s"),
    [
        (None, "Creating", 0, 0),
        (Goal.RUNNING, "Running", 3, 6),
        (Goal.COMPLETED, "Completed", 23, 35),
        (Goal.ENDED, "Completed", 23, 35),
    ],
)
def test_apply_waits_for_its_goal(
    service: Service, goal: Goal | None, phase: str, at_least_s: float, at_most_s: float
) -> None:
    applied = rollout(service, a_job(), goal=goal)
    assert service.phases() == {"a": phase}
    assert at_least_s <= applied.took_s <= at_most_s
    assert applied.ends == ({} if goal is None else {"a": "reached"})
    assert applied.done == [("a", Action.CREATE)]


def runs_for(seconds: float) -> dict[str, Any]:
    return {"algorithm__environments": {"EMULATOR_RUN_SECONDS": str(seconds)}}


def retried(delay: str = "1m", **more: Any) -> DesiredJob:
    return a_job(lifecycle={"on_failure": "retry", "retry_delay": delay}, **more)


REFUSED = Fault(Effect.ANSWER, operation=CREATE, status=400, code="ModelArts.2815", count=1)
UPDATE_REFUSED = Fault(Effect.ANSWER, operation=UPDATE, status=400, code="ModelArts.1", count=None)
CHANGED = {"lifecycle": {"on_change": "replace"}, **NEW}
A, B = a_job(), a_job("b")
LATE_B = needing("a", key="b", **NEW)
REACHED, BLOCKED, BADLY, LATE = "reached", "blocked", "ended_badly", "timed_out"


class Case(NamedTuple):
    """A wait: the end for each key, the calls, and the final phases where relevant."""

    jobs: tuple[DesiredJob, ...]
    ends: dict[str, str]
    done: list[tuple[str, Action]] | None = None
    phases: dict[str, str] | None = None
    #: Minimum and maximum duration in seconds.
    took_s: tuple[float, float] = (0, 10_000)
    word: str | None = None
    #: Earlier jobs, and their phases before the plan.
    had: tuple[DesiredJob, ...] = ()
    ended: Mapping[str, str] = {}
    #: The phase in which a job ends during the wait, and when.
    ends_as: tuple[float, str, str] | None = None
    fault: Fault | None = None
    fails_at_s: float = 0
    goal: Goal | None = Goal.COMPLETED
    timeout_s: float = 600
    rerun: tuple[str, ...] = ()
    #: Whether the plan was saved, so that there is no manifest.
    is_saved: bool = False


CREATES_B = [("b", Action.CREATE)]
AWAY = Fault(Effect.ANSWER, operation=FIND, status=500, count=12)
CASES = {
    "kept": Case((A,), {"a": REACHED}, [], {"a": "Completed"}, had=(A,)),
    "already at its goal": Case((A,), {"a": REACHED}, took_s=(0, 0), had=(A,), ended={"a": "Completed"}),
    "already failed": Case((A,), {"a": BADLY}, took_s=(0, 0), had=(A,), ended={"a": "Failed"}),
    "terminated key": Case((absent(), B), {"b": REACHED}, had=(A, B), goal=Goal.RUNNING),
    "protection removed": Case(
        (absent(protect=False), B),
        {"b": REACHED},
        had=(a_job(lifecycle={"protect": True}), B),
        goal=Goal.RUNNING,
    ),
    **{
        f"ends as {phase}": Case(
            (A, B), {"a": BADLY, "b": REACHED}, phases={"a": phase, "b": "Completed"}, ends_as=(8, "a", phase)
        )
        for phase in ("Failed", "Abnormal", "Terminated")
    },
    "timed out": Case((A,), {"a": LATE}, None, {"a": "Running"}, (12, 13), timeout_s=12),
    "one timed out": Case(
        (a_job("slow", **runs_for(500)), a_job("quick")), {"quick": REACHED, "slow": LATE}, timeout_s=24
    ),
    "create refused": Case((A,), {}, [], {}, (0, 0), "partial", fault=REFUSED, timeout_s=3600),
    "update refused": Case(
        (a_job(description="new"),), {"a": REACHED}, [], word="partial", had=(A,), fault=UPDATE_REFUSED
    ),
    "retry not due yet": Case((retried("1h"),), {"a": LATE}, ends_as=(8, "a", "Failed"), timeout_s=100),
    "create of a retry refused": Case(
        (retried(),),
        {},
        [("a", Action.CREATE)],
        {"a": "Failed"},
        word="partial",
        ends_as=(8, "a", "Failed"),
        fault=replace(REFUSED, nth=2),
    ),
    # --- pipelines
    "no wait": Case(PIPELINE, {}, [("a", Action.CREATE)], {"a": "Creating"}, goal=None),
    "stage timed out": Case(PIPELINE, {"a": LATE, "b": BLOCKED, "c": BLOCKED}, took_s=(10, 11), timeout_s=10),
    **{
        f"upstream {phase}": Case(
            PIPELINE,
            {"a": BADLY, "b": BLOCKED, "c": BLOCKED},
            phases={"a": phase},
            took_s=(0, 30),
            ends_as=(8, "a", phase),
            timeout_s=3600,
        )
        for phase in ("Failed", "Terminated")
    },
    "create of a stage refused": Case(
        PIPELINE, {"b": BLOCKED, "c": BLOCKED}, took_s=(0, 0), fault=REFUSED, timeout_s=3600
    ),
    "retry of a stage": Case(
        (retried("2m"), *PIPELINE[1:]),
        dict.fromkeys("abc", REACHED),
        phases={"a": "Failed", "a-r2": "Completed", "b": "Completed", "c": "Completed"},
        ends_as=(8, "a", "Failed"),
        timeout_s=150,
    ),
    "until the last stage runs": Case(
        PIPELINE,
        dict.fromkeys("abc", REACHED),
        phases={"a": "Completed", "b": "Completed", "c": "Running"},
        goal=Goal.RUNNING,
    ),
    "stage that runs for longer than the timeout": Case(
        (a_job(**runs_for(300)), *PIPELINE[1:]),
        dict.fromkeys("abc", REACHED),
        goal=Goal.RUNNING,
        timeout_s=30,
    ),
    "until all run, and one failed": Case(
        PIPELINE, {"a": BADLY, "b": BLOCKED, "c": BLOCKED}, goal=Goal.RUNNING, ends_as=(10, "a", "Failed")
    ),
    "deferred replace": Case(
        (
            a_job(lifecycle={"rerun": "again", "on_change": "replace"}),
            needing("a", key="b", lifecycle={"on_change": "replace"}, **NEW),
        ),
        {"a": REACHED, "b": REACHED},
        [("a", Action.REPLACE), *CREATES_B],
        had=(A, B),
    ),
    # --- members of a sweep, two at once: three runs one after the other
    "turns": Case(
        SWEEP,
        dict.fromkeys("abcde", REACHED),
        [(key, Action.CREATE) for key in "abcde"],
        dict.fromkeys("abcde", "Completed"),
        (3 * RUNS_S, 4 * RUNS_S),
        timeout_s=30,
    ),
    "turns, until all run": Case(SWEEP, dict.fromkeys("abcde", REACHED), goal=Goal.RUNNING, timeout_s=30),
    "turns, after a failed member": Case(
        SWEEP, {**dict.fromkeys("abcde", REACHED), "a": BADLY}, ends_as=(8, "a", "Failed"), timeout_s=30
    ),
    # --- reruns
    "rerun": Case(
        (A,),
        {"a": REACHED},
        [("a", Action.CREATE)],
        {"a": "Completed", "a-r2": "Completed"},
        had=(A,),
        ended={"a": "Completed"},
        rerun=("a",),
    ),
    "rerun that fails": Case(
        (A,),
        {"a": BADLY},
        [("a", Action.CREATE)],
        {"a": "Completed", "a-r2": "Failed"},
        had=(A,),
        ended={"a": "Completed"},
        rerun=("*",),
        ends_as=(8, "a-r2", "Failed"),
    ),
    "rerun that fails and is retried": Case(
        (retried(),),
        {"a": REACHED},
        [("a", Action.CREATE)] * 2,
        {"a": "Completed", "a-r2": "Failed", "a-r3": "Completed"},
        had=(retried(),),
        ended={"a": "Completed"},
        rerun=("a",),
        ends_as=(8, "a-r2", "Failed"),
    ),
    "rerun by a glob, of what was active: its retry goes on": Case(
        (retried(), B),
        {"a": REACHED, "b": REACHED},
        [("b", Action.CREATE), ("a", Action.CREATE)],
        {"a": "Failed", "a-r2": "Completed", "b": "Completed", "b-r2": "Completed"},
        had=(retried(), B),
        ended={"b": "Completed"},
        rerun=("*",),
        ends_as=(8, "a", "Failed"),
    ),
    "rerun by a glob, of what is new: it starts once, and is retried": Case(
        (A, replace(retried(), key="b", needs=("a",))),
        {"a": REACHED, "b": REACHED},
        [("a", Action.CREATE), ("b", Action.CREATE), ("b", Action.CREATE)],
        had=(A,),
        ended={"a": "Completed"},
        rerun=("*",),
        ends_as=(30, "b", "Failed"),
    ),
    "rerun of a sweep": Case(
        SWEEP[:3],
        dict.fromkeys("abc", REACHED),
        [(key, Action.CREATE) for key in "abc"],
        {name: "Completed" for key in "abc" for name in (key, f"{key}-r2")},
        had=tuple(map(a_job, "abc")),
        ended=dict.fromkeys("abc", "Completed"),
        rerun=("*",),
    ),
    "rerun of a chain": Case(
        PIPELINE[:2],
        {"a": REACHED, "b": REACHED},
        [("a", Action.CREATE), ("b", Action.CREATE)],
        had=(A, B),
        ended={"a": "Completed", "b": "Completed"},
        rerun=("a", "b"),
    ),
    "terminated before the plan": Case(
        (A, LATE_B), {"a": REACHED, "b": REACHED}, CREATES_B, had=(A, B), ended={"b": "Terminated"}
    ),
    "running job is replaced in its turn": Case(
        (A, LATE_B),
        {"a": REACHED, "b": REACHED},
        [("b", Action.REPLACE)],
        {"a": "Completed", "b": "Terminated", "b-r2": "Completed"},
        had=(A, a_job("b", **runs_for(1000))),
    ),
    "rerun that was not announced, of a job that ends later": Case(
        (a_job(**NEW), needing("a", key="b", **runs_for(200), **RERUN)),
        {"a": REACHED, "b": REACHED},
        [("a", Action.CREATE)],
        had=(A, a_job("b", **runs_for(200))),
        ended={"a": "Completed"},
    ),
    "rerun that was not announced, of a job that runs": Case(
        (a_job(**CHANGED), needing("a", key="b", **runs_for(100), **RERUN)),
        {"a": REACHED, "b": REACHED},
        [("a", Action.REPLACE)],
        had=(A, a_job("b", **runs_for(100))),
    ),
    "both branches of a diamond": Case(
        (A, needing("a", key="l", **runs_for(100)), needing("a", key="r"), needing("l", "r", key="z")),
        dict.fromkeys("alrz", REACHED),
        [("a", Action.CREATE), ("l", Action.CREATE), ("r", Action.CREATE), ("z", Action.CREATE)],
        took_s=(23 + 103 + 23, 200),
    ),
    # --- a saved plan: without a manifest
    "saved: all kinds of actions": Case(
        (
            a_job("edited", description="new"),
            absent("ended"),
            a_job("kept"),
            a_job("made"),
            a_job("replaced", **NEW),
        ),
        dict.fromkeys(["edited", "kept", "made", "replaced"], REACHED),
        phases={
            "edited": "Completed",
            "ended": "Terminated",
            "kept": "Completed",
            "made": "Completed",
            "replaced": "Terminated",
            "replaced-r2": "Completed",
        },
        had=tuple(map(a_job, ("edited", "ended", "kept", "replaced"))),
        is_saved=True,
    ),
    "saved: deferred actions are not started": Case(
        PIPELINE, {"a": REACHED, "b": BLOCKED, "c": BLOCKED}, phases={"a": "Completed"}, is_saved=True
    ),
    "saved: retry that is not due": Case(
        (retried(),), {"a": BLOCKED}, took_s=(0, 0), had=(A,), ended={"a": "Failed"}, is_saved=True
    ),
    "saved: renamed key": Case(
        (replace(a_job("new"), formerly=("a",)),), {"new": REACHED}, had=(A,), is_saved=True
    ),
    # --- temporarily unreadable
    **{
        f"no look for a while: {effect}": Case(
            (A,), {"a": REACHED}, fault=replace(AWAY, effect=effect), fails_at_s=8
        )
        for effect in (Effect.LOST_BEFORE, Effect.ANSWER, Effect.UNREADABLE)
    },
    "no look any more": Case((A,), {"a": LATE}, fault=replace(AWAY, count=None), fails_at_s=8, timeout_s=120),
}


@pytest.mark.parametrize("case", CASES.values(), ids=CASES.keys())
def test_wait_of_an_apply_ends_as_expected(service: Service, case: Case) -> None:
    if case.had:
        service.run(*case.had)
    for name, phase in case.ended.items():
        service.store.set_phase(service.job(name).id, phase)
    plan = service.plan(*case.jobs, allowances=EVERY_GUARD) if case.is_saved else None
    if case.ends_as is not None:
        at_s, name, phase = case.ends_as
        service.time.at(at_s, lambda: service.store.set_phase(service.job(name).id, phase))
    if case.fault is not None:
        fault = case.fault
        service.time.at(case.fails_at_s, lambda: service.fail(fault)) if case.fails_at_s else service.fail(
            fault
        )
    jobs = () if case.is_saved else case.jobs
    applied = rollout(service, *jobs, goal=case.goal, timeout_s=case.timeout_s, plan=plan, rerun=case.rerun)
    assert applied.ends == case.ends
    assert case.done is None or applied.done == case.done
    assert case.phases is None or service.phases() == case.phases
    assert case.word is None or applied.result.word == case.word
    assert case.took_s[0] <= applied.took_s <= case.took_s[1]


def test_saved_plan_waits_for_the_revision_that_it_kept(service: Service) -> None:
    """Revision 2 failed; the revision that counts for the key is running."""
    service.run(A)
    plan = service.plan(A)
    service.put_job("a-r2", marker("a", 2, A.digest))
    service.store.set_phase(service.job("a-r2").id, "Failed")
    assert rollout(service, plan=plan).ends == {"a": REACHED}


def test_upstream_out_of_view_is_waited_for_until_the_timeout(service: Service) -> None:
    service.run(A)
    assert rollout(service, *PIPELINE[:2], only=("b",)).ends == {"b": REACHED}
    service.store.set_phase(service.job("a").id, "Running")
    service.store.hold(service.job("a").id)
    applied = rollout(service, A, needing("a", key="d"), only=("d",), timeout_s=30)
    assert applied.ends == {"d": LATE}
    assert 30 <= applied.took_s <= 31


def test_kept_job_is_waited_for_beside_a_newer_one_that_cannot_be_terminated(service: Service) -> None:
    service.run(a_job())
    service.put_job("a-r2", marker("a", 2, a_job().digest))
    service.time.sleep(10)
    stack = replace(a_stack(a_job()), limits=Limits(lost_node_hours=0))
    applied = rollout(service, stack=stack, allowances=NO_ALLOWANCES, goal=Goal.RUNNING)
    [waited] = applied.result.waits
    assert (waited.job and waited.job.name, waited.end) == ("a", WaitEnd.REACHED)
    assert applied.result.count(Status.SKIPPED) == 1


def test_newest_of_several_revisions_is_waited_for(service: Service) -> None:
    """The failed old revision of a renamed key does not affect the new one."""
    service.run(a_job("old"))
    service.store.set_phase(service.job("old").id, "Failed")
    retried = a_job("old", lifecycle={"on_failure": "retry", "retry_delay": "0s"})
    service.apply(retried)
    # The old revision's marker cannot be written: its rename fails and is planned again.
    of_r1 = service.job("old").id
    service.fail(Fault(Effect.ANSWER, operation=UPDATE, path=f"*{of_r1}*", status=400, code="x", count=None))
    applied = rollout(service, replace(a_job("new"), formerly=("old",)))
    assert applied.ends == {"new": "reached"}
    assert service.phases() == {"old": "Failed", "old-r2": "Completed"}


# --- ends


def test_key_in_conflict_is_not_waited_for(service: Service) -> None:
    service.put_job("a", "by hand")
    applied = rollout(service, a_job(), a_job("b"))
    assert applied.ends == {"a": "blocked", "b": "reached"}


# --- interrupted


@pytest.mark.parametrize("at_s", [2, 10, 23], ids=["queued", "running", "with the look that shows the end"])
def test_interrupt_ends_the_wait_and_starts_and_ends_no_job(service: Service, at_s: float) -> None:
    service.time.at(at_s, service.stop.set)
    applied = rollout(service, a_job(), needing("a", key="b"))
    assert applied.result.interrupted
    assert applied.ends == {"a": "reached" if at_s == 23 else "waiting", "b": "waiting"}
    assert at_s <= applied.took_s <= at_s + 10
    assert set(service.phases()) == {"a"}
    assert service.changes == [CREATE]


# --- retries


def test_retry_delay_doubles_and_exhausted_retries_end_badly(service: Service) -> None:
    bad = {"EMULATOR_RESULT": "Failed"}
    lifecycle = {"on_failure": "retry", "retry_delay": "1m", "max_retries": 3}
    applied = rollout(service, a_job(lifecycle=lifecycle, algorithm__environments=bad))
    assert applied.ends == {"a": "ended_badly"}
    assert service.phases() == dict.fromkeys(["a", "a-r2", "a-r3", "a-r4"], "Failed")
    jobs = [service.job(name) for name in service.phases()]
    waited = [(later.create_ms - sooner.life.ended_ms) / 1000 for sooner, later in pairwise(jobs)]
    assert [60 <= waited[0] <= 62, 120 <= waited[1] <= 122, 240 <= waited[2] <= 242] == [True] * 3


# --- pipelines


def test_pipeline_of_three_jobs_runs_within_one_apply(service: Service) -> None:
    applied = rollout(service, *PIPELINE, timeout_s=40)
    assert applied.ends == {"a": "reached", "b": "reached", "c": "reached"}
    assert applied.done == [("a", Action.CREATE), ("b", Action.CREATE), ("c", Action.CREATE)]
    assert len(applied.result.outcomes) == 3, "what was deferred first counts once"
    assert applied.result.word == "complete"
    jobs = [service.job(key) for key in "abc"]
    assert all(sooner.life.ended_ms <= later.create_ms for sooner, later in pairwise(jobs))
    assert applied.took_s <= 3 * (3 + RUNS_S + 10)


@pytest.mark.parametrize("goal", [Goal.COMPLETED, Goal.RUNNING])
def test_reruns_are_carried_through_by_one_wait(service: Service, goal: Goal) -> None:
    """A chain, and a diamond with slow branches."""
    left, right = needing("a", key="l", **runs_for(100), **RERUN), needing("a", key="r", **RERUN)
    jobs = *CHAIN, left, right, needing("l", "r", key="z", **RERUN)
    rollout(service, a_job("a"), *jobs)
    applied = rollout(service, a_job("a", **NEW), *jobs, goal=goal)
    assert sorted(applied.done) == [(key, Action.CREATE) for key in "abclrz"]
    assert set(applied.ends.values()) == {"reached"}
    assert set(service.phases()) == {name for key in "abclrz" for name in (key, f"{key}-r2")}
    for needed, key in ("ab", "bc", "al", "ar", "lz", "rz"):
        assert service.job(f"{needed}-r2").life.ended_ms <= service.job(f"{key}-r2").create_ms
    service.time.sleep(RUNS_S)
    assert rollout(service, a_job("a", **NEW), *jobs).done == []


def test_chain_of_reruns_waits_for_a_retry_of_its_first_link(service: Service) -> None:
    retried = a_job("a", lifecycle={"on_failure": "retry", "retry_delay": "1m"}, **NEW)
    rollout(service, a_job("a"), *CHAIN)
    service.time.at(8, failing(service, "a-r2"))
    applied = rollout(service, retried, *CHAIN)
    assert applied.done == [*[("a", Action.CREATE)] * 2, ("b", Action.CREATE), ("c", Action.CREATE)]
    assert set(applied.ends.values()) == {"reached"}


def test_chain_of_reruns_is_blocked_if_its_first_link_fails(service: Service) -> None:
    rollout(service, a_job("a"), *CHAIN)
    service.time.at(8, failing(service, "a-r2"))
    applied = rollout(service, a_job("a", **NEW), *CHAIN, timeout_s=3600)
    assert applied.ends == {"a": "ended_badly", "b": "blocked", "c": "blocked"}
    assert {waited.key: waited.detail for waited in applied.result.waits if waited.key != "a"} == {
        "b": "not run again, since a did not complete; b stays Completed",
        "c": "not run again, since b did not complete; c stays Completed",
    }
    assert service.phases() == {"a": "Completed", "a-r2": "Failed", "b": "Completed", "c": "Completed"}
    assert rollout(service, a_job("a", **NEW), *CHAIN, goal=None).done == []


def test_stage_denied_by_a_policy_blocks_the_pipeline(service: Service) -> None:
    policy = Policy("not-b", PolicyEffect.DENY, 'job.key == "b"', "not now")
    stack = a_stack(*PIPELINE, policies=(policy,))
    applied = rollout(service, stack=replace(stack, whole=stack.jobs))
    assert applied.ends == {"a": "reached", "b": "blocked", "c": "blocked"}
    assert applied.done == [("a", Action.CREATE)]
    assert applied.took_s < 60
    waited = next(one for one in applied.result.waits if one.key == "b")
    assert waited.detail == "denied by not-b: not now; blocks create"
    [blocked] = [o for o in applied.result.outcomes if o.action.key == "b"]
    assert (blocked.status, blocked.action.action) == (Status.SKIPPED, Action.BLOCKED)


# --- temporarily unreadable


def test_unauthorized_read_during_the_wait_raises_and_closes_the_run(
    service: Service, tmp_path: Path
) -> None:
    recording = Recording(None, tmp_path, service.time)
    service.time.at(8, lambda: service.fail(Fault(Effect.ANSWER, operation=FIND, status=403, count=None)))
    with pytest.raises(Unauthorized):
        rollout(service, a_job(), recording=recording)
    [run] = runs(recording)
    assert run.ended_at_s is not None
    assert [(action.key, action.status) for action in run.actions] == [("a", "done")]


# --- events


def test_progress_is_reported_on_change_and_every_ten_seconds_and_not_more_often(service: Service) -> None:
    applied = rollout(service, a_job("a", **runs_for(100)), *PIPELINE[1:2])
    phases = [(e.detail or "").partition(" ")[0] for e in applied.progress("a")]
    assert list(dict.fromkeys(phases)) == ["Creating", "Pending", "Running", "Completed"]
    assert applied.progress("a")[-1].detail == "Completed (3 s queued, 100 s elapsed)"
    first = applied.progress("b")[0]
    assert (first.detail, first.job) == ("waiting for a, then create", None)
    for key in "ab":
        events = applied.progress(key)
        times = [datetime.fromisoformat(e.ts).timestamp() for e in events]
        for (sooner, later), (one, other) in zip(pairwise(times), pairwise(events), strict=True):
            assert later - sooner <= 11, "times are told in whole seconds"
            assert one.detail != other.detail or later - sooner >= 4


# --- requests


def test_lagging_list_causes_no_second_create_and_no_request_burst(service: Service) -> None:
    """The job is found by name at once; the list has it half a minute later."""
    listed = service.backend.observe
    until_s = service.time.now() + 30

    def observe(*args: Any) -> Observation:
        seen = listed(*args)
        return seen if service.time.now() >= until_s else seen._replace(jobs=())

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(service.backend, "observe", observe)
        applied = rollout(service, a_job())
    assert applied.ends == {"a": "reached"}
    assert applied.done == [("a", Action.CREATE)]
    assert service.asked(CREATE) == 1
    assert len(service.app.requests) <= 200


# --- records


def runs(recording: Recording) -> list[PastRun]:
    records = recording.reading()
    assert records is not None
    found = list(records.runs(Scope.of(STACK, TARGET)))
    recording.close()
    return found


def test_apply_and_its_wait_are_recorded_as_one_run(service: Service, tmp_path: Path) -> None:
    recording = Recording(None, tmp_path, service.time)
    rollout(service, *PIPELINE, recording=recording)
    [run] = runs(recording)
    assert run.result == "complete"
    assert [(step.key, step.call, step.ok) for step in run.steps] == [
        ("a", "create", True),
        ("b", "create", True),
        ("c", "create", True),
    ]
    assert {(a.key, a.status) for a in run.actions} >= {("a", "done"), ("b", "done"), ("c", "done")}
