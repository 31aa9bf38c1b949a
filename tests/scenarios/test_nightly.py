"""Three runners, each with its own checkout and records, start a nightly job once per night.

Both changes of daylight saving are among the nights. There is no shared lock: the runners plan at the
same time and apply their plans in turn or concurrently; one dies before or after sending the create; a
response is lost. Source: docs/concepts/schedules.md.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from datetime import UTC, datetime
from itertools import cycle
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import pytest

from reconciler import reconcile
from reconciler.apply.executor import EventStream
from reconciler.core.fields.field_types import Cloud
from reconciler.core.identity import parse_description
from reconciler.core.lifecycle import Schedule
from reconciler.core.past import RunKind
from reconciler.core.phase import Phase
from reconciler.core.stack import DesiredJob
from reconciler.decide.outcome import Goal, Result, Status
from reconciler.decide.plan import NO_ALLOWANCES, Action, Plan, Reason
from reconciler.emulator import Durations, Effect, Fault, Job, ManualClock, Store
from reconciler.plan_file import StalePlan, check_preconditions
from reconciler.records.recording import Recording
from reconciler.rollout import Rollout
from tests.apply.kill_helpers import killed_at
from tests.apply.service import CREATE, Service, SharedTime
from tests.apply.test_rollout import rollout
from tests.builders import a_job, a_stack

HOUR, NIGHTS = 3600.0, 16
ZONE = "Europe/Berlin"
SCHEDULE = Schedule("30 2 * * *", ZONE)
NIGHTLY: dict[str, Any] = {"schedule": SCHEDULE.expression, "timezone": ZONE}


class Runner(Service):
    """A checkout of the stack with its own records, on a shared service."""

    def __init__(self, store: Store, clock: ManualClock, root: Path) -> None:
        super().__init__(store, clock, Cloud.HUAWEI)
        self._root = root

    @contextmanager
    def _recording(self) -> Iterator[Recording]:
        recording = Recording(f"sqlite://{self._root}/records.sqlite3", self._root, self.time)
        try:
            yield recording
        finally:
            recording.close()

    def look(self, *jobs: DesiredJob) -> Plan:
        """Plan."""
        with self._recording() as recording:
            context = self.context(a_stack(*jobs))._replace(recording=recording)
            return reconcile.plan(context)

    def do(self, job: DesiredJob, plan: Plan | None = None, *others: DesiredJob) -> Result:
        """Apply, the given plan if any."""
        with self._recording() as recording:
            stack = a_stack(job, *others)
            context = self.context(stack)._replace(recording=recording).to_apply()
            stream = EventStream(self.time, lambda _: None)
            run = Rollout(context, RunKind.APPLY, stream, self.stop, 600, NO_ALLOWANCES, None, lambda _: None)
            return run.run(plan or reconcile.plan(context))


@contextmanager
def runners(begin: str, root: Path, count: int = 3, **durations: float) -> Iterator[list[Runner]]:
    """Open a service at a time, and runners on it."""
    clock = ManualClock(round(datetime.fromisoformat(begin).timestamp() * 1000))
    lasting = Durations(**({"running": HOUR} | durations))
    with Store(clock=clock, durations=lasting, noise=False) as store, ExitStack() as opened:
        made = []
        for number in range(count):
            home = root / str(number)
            home.mkdir()
            made.append(runner := Runner(store, clock, home))
            opened.enter_context(runner.backend)
        yield made


def one_after_the_other(job: DesiredJob, ours: list[Runner]) -> None:
    plans = [runner.look(job) for runner in ours]
    for runner, plan in zip(ours, plans, strict=True):
        assert {one.status for one in runner.do(job, plan).outcomes} == {Status.DONE}


def at_once(job: DesiredJob, ours: list[Runner]) -> None:
    threads = [threading.Thread(target=runner.do, args=(job,)) for runner in ours]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def one_dies_before_it_creates(job: DesiredJob, ours: list[Runner]) -> None:
    _dies(job, ours, has_effect=False)


def one_dies_after_it_created(job: DesiredJob, ours: list[Runner]) -> None:
    _dies(job, ours, has_effect=True)


def _dies(job: DesiredJob, ours: list[Runner], *, has_effect: bool) -> None:
    """The first runner writes its journal line, and dies sending the create."""
    first, *others = ours
    plans = [runner.look(job) for runner in ours]
    with killed_at(first, 3, has_effect=has_effect) as happened:
        first.do(job, plans[0])
    assert happened == [True]
    for runner, plan in zip(others, plans[1:], strict=True):
        runner.do(job, plan)
    first.do(job)


def an_answer_is_lost(job: DesiredJob, ours: list[Runner]) -> None:
    ours[0].fail(Fault(Effect.LOST_AFTER, operation=CREATE))
    one_after_the_other(job, ours)


Night = Callable[[DesiredJob, list[Runner]], None]
KINDS: tuple[Night, ...] = (
    one_after_the_other,
    at_once,
    one_dies_before_it_creates,
    one_dies_after_it_created,
    an_answer_is_lost,
)


@pytest.mark.parametrize("begin", ["2026-03-14T12:00Z", "2026-10-11T12:00Z"], ids=["spring", "autumn"])
def test_each_night_around_a_change_of_the_clocks_starts_one_job(begin: str, tmp_path: Path) -> None:
    job = a_job(lifecycle=NIGHTLY)
    kinds = cycle(KINDS)
    with runners(begin, tmp_path) as ours:
        store, time = ours[0].store, ours[0].time
        ours[0].do(job)
        dues: list[float] = []
        for _ in range(NIGHTS):
            due_s = SCHEDULE.next_after(time.now())
            assert due_s is not None
            dues.append(due_s)
            time.sleep(due_s - 5 - time.now())
            assert ours[len(dues) % 3].look(job).to_execute == ()
            time.sleep(6)
            next(kinds)(job, ours)
            time.sleep(3 * HOUR)
            assert ours[len(dues) % 3].look(job).to_execute == ()
        jobs = store.jobs()
    assert {one.name for one in jobs} == {"a", *(f"a-r{number}" for number in range(2, NIGHTS + 2))}
    assert len(jobs) == NIGHTS + 1
    created = sorted(_created_s(one) for one in jobs)[1:]
    assert all(due_s <= created_s < due_s + 60 for due_s, created_s in zip(dues, created, strict=True))
    # 02:30 does not exist on one of the nights, and exists twice on another.
    usual = {time.strftime("%H:%M") for time in map(_local, dues)}
    assert usual == ({"02:30", "03:00"} if "-03-" in begin else {"02:30"})
    assert len({time.date() for time in map(_local, dues)}) == NIGHTS


def _created_s(job: Job) -> float:
    return job.create_ms / 1000


def _local(time_s: float) -> datetime:
    return datetime.fromtimestamp(time_s, ZoneInfo(ZONE))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("order", ["terminate_first", "create_first"])
def test_job_still_running_at_its_time_is_replaced_once(kind: Night, order: str, tmp_path: Path) -> None:
    job = a_job(lifecycle={**NIGHTLY, "overlap": "replace", "replace_order": order})
    with runners("2026-05-01T12:00Z", tmp_path, running=1e6) as ours:
        ours[0].do(job)
        ours[0].time.sleep(13 * HOUR)
        kind(job, ours)
        for runner in ours:
            ours[0].time.sleep(10)
            runner.do(job)
        ours[0].time.sleep(10)
        phases = ours[0].phases()
        assert set(phases) == {"a", "a-r2"}
        assert phases["a"] == Phase.TERMINATED
        assert phases["a-r2"] in ("Creating", "Pending", "Running")


class _AheadTime(SharedTime):
    """A machine clock ahead of the service's."""

    def __init__(self, clock: ManualClock, ahead_s: float) -> None:
        super().__init__(clock)
        self._ahead_s = ahead_s

    def now(self) -> float:
        return super().now() + self._ahead_s


def _is_ahead(runner: Runner, ahead_s: float) -> None:
    runner.time = _AheadTime(runner.clock, ahead_s)
    runner.backend.session._clock = runner.time


@pytest.mark.parametrize("ahead_s", [2, 30, 800, 7200, -7200])
@pytest.mark.parametrize("lifecycle", [{}, {"overlap": "replace"}], ids=str)
def test_runner_uses_the_clock_of_the_service(
    ahead_s: float, lifecycle: dict[str, Any], tmp_path: Path
) -> None:
    """Otherwise a job created before 02:30 of the service would be started again for 02:30."""
    job = a_job(lifecycle={**NIGHTLY, **lifecycle})
    with runners("2026-05-01T12:00Z", tmp_path, 2, running=1e6 if lifecycle else HOUR) as (right, other):
        right.do(job)
        due_s = SCHEDULE.next_after(right.time.now())
        assert due_s is not None
        _is_ahead(other, ahead_s)
        _tells_the_time(other)
        right.time.sleep(due_s - 1 - right.time.now())
        assert other.look(job).to_execute == ()
        right.time.sleep(1)
        other.do(job)
        assert set(right.phases()) == {"a", "a-r2"}
        assert due_s <= _created_s(right.job("a-r2")) < due_s + 60
        right.time.sleep(3 * HOUR)
        assert right.look(job).to_execute == ()


@pytest.mark.parametrize("order", ["terminate_first", "create_first"])
@pytest.mark.parametrize("lifecycle", [{}, {"overlap": "replace"}], ids=str)
def test_plan_made_with_a_fast_clock_waits_for_the_service_clock(
    lifecycle: dict[str, Any], order: str, tmp_path: Path
) -> None:
    job = a_job(lifecycle={**NIGHTLY, **lifecycle, "replace_order": order})
    with runners("2026-05-01T12:00Z", tmp_path, 2, running=1e6 if lifecycle else HOUR) as (right, ahead):
        right.do(job)
        due_s = SCHEDULE.next_after(right.time.now())
        assert due_s is not None
        right.time.sleep(due_s - 600 - right.time.now())
        _is_ahead(ahead, 700)
        plan = ahead.look(job)
        assert [action.reason for action in plan.to_execute] == [Reason.SCHEDULED]
        _tells_the_time(ahead)
        phases = []
        ahead.time.at(590, lambda: phases.append(right.phases()["a"]))
        ahead.do(job, plan)
        assert phases == ["Running" if lifecycle else "Completed"]
        assert set(right.phases()) == {"a", "a-r2"}
        assert _created_s(right.job("a-r2")) >= due_s


HOURLY = {"schedule": "0 * * * *"}


def marks(runner: Runner) -> list[str | None]:
    """Return the schedule in the marker of each job, oldest first."""
    found = (
        parse_description(str(one.body["metadata"]["description"])).marker for one in runner.store.jobs()
    )
    return [None if one is None or one.schedule is None else str(one.schedule) for one in found]


@pytest.mark.parametrize("edit", [{}, HOURLY, {"schedule": "30 2 * * *", "timezone": "UTC"}], ids=str)
def test_added_or_edited_schedule_starts_no_past_time(edit: dict[str, Any], tmp_path: Path) -> None:
    """The missed time is long or just past; another runner has no history."""
    before, after = a_job(lifecycle=edit), a_job(lifecycle=NIGHTLY)
    with runners("2026-05-01T10:00Z", tmp_path, 2, running=60) as (runner, other):
        runner.do(before)
        runner.time.sleep(20 * HOUR + 10)
        now_s = int(runner.time.now())
        [update] = other.look(after).to_execute
        assert (update.action, update.reason) == (Action.UPDATE, Reason.MARKER_CHANGED)
        assert [(one.path, one.after) for one in update.changes] == [("marker.schedule", SCHEDULE.digest)]
        one_after_the_other(after, [runner, other])
        assert marks(runner) == [f"{SCHEDULE.digest}{now_s:08x}"]
        assert other.look(after).to_execute == ()
        due_s = SCHEDULE.next_after(now_s)
        assert due_s is not None
        runner.time.sleep(due_s - 1 - runner.time.now())
        assert other.look(after).to_execute == ()
        runner.time.sleep(1)
        one_after_the_other(after, [runner, other])
        assert set(runner.phases()) == {"a", "a-r2"}
        assert marks(runner)[1] == SCHEDULE.digest


def _tells_the_time(runner: Runner) -> None:
    """Let the service report its time with each response, as gateways do."""
    app = runner.gate._app

    def dated(environ: dict[str, Any], start_response: Callable[..., Any]) -> Any:
        date = datetime.fromtimestamp(runner.clock.now_ms() // 1000, UTC)
        header = ("Date", date.strftime("%a, %d %b %Y %H:%M:%S GMT"))
        return app(environ, lambda status, headers, *more: start_response(status, [*headers, header], *more))

    runner.gate._app = dated  # type: ignore[assignment]


def test_saved_plan_holds_after_a_later_scheduled_time(tmp_path: Path) -> None:
    job = a_job(lifecycle={"schedule": "0 * * * *"})
    with runners("2026-05-01T12:30Z", tmp_path, running=60) as ours:
        ours[0].do(job)
        ours[0].time.sleep(HOUR)
        plan = ours[0].look(job)
        assert [one.scheduled_for for one in plan.actions] == ["2026-05-01T13:00:00Z"]
        ours[0].time.sleep(HOUR)
        check_preconditions(ours[0].context(a_stack(job)), plan)
        ours[1].do(job)
        with pytest.raises(StalePlan) as stale:
            check_preconditions(ours[0].context(a_stack(job)), plan)
        assert "r2 is no longer the next revision" in stale.value.diagnostics[0].why


@pytest.mark.parametrize("ends_as", ["Failed", "Completed"])
def test_wait_leaves_a_new_scheduled_time_to_the_next_apply(ends_as: str, tmp_path: Path) -> None:
    job = a_job(lifecycle={"schedule": "* * * * *"})
    with runners("2026-05-01T12:00Z", tmp_path, 1, running=300) as [runner]:
        runner.time.at(150, lambda: runner.store.set_phase(runner.job("a").id, ends_as))
        told = rollout(runner, job, goal=Goal.COMPLETED)
        assert set(runner.phases()) == {"a"}
        assert told.ends == {"a": "reached" if ends_as == "Completed" else "ended_badly"}
