"""Sixty days of one stack: two people who edit it, and a cron job that applies it unattended.

Each start is explained from the log of the service and the manifest alone, without asking the planner; each
time of a schedule is run, or listed as missed; whatever is blocked, in conflict or refused is in the drift
report of that moment. `QUARTERS=20 pytest tests/scenarios/test_quarter.py -s` looks at more of them.
"""

from __future__ import annotations

import copy
import json
import os
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from random import Random
from typing import Any

import cel
import pytest

from reconciler import reconcile
from reconciler.apply.executor import EventStream
from reconciler.core.fields.field_types import Cloud
from reconciler.core.lifecycle import Schedule
from reconciler.core.past import RunKind
from reconciler.core.policy_expression import Question
from reconciler.core.stack import DesiredJob, Stack
from reconciler.decide.plan import Action
from reconciler.decide.wait import Goal
from reconciler.emulator import Durations, Job, ManualClock, Store
from reconciler.manifest import load_mapping
from reconciler.records.recording import Recording
from reconciler.rollout import Rollout
from tests.apply.service import PROJECT, Service, marker_in
from tests.builders import CODE

HOUR, DAY = 3600.0, 86400.0
DAYS, TICK_S = 60, 12 * HOUR
QUARTERS = int(os.environ.get("QUARTERS", "1"))
#: The service forgets what ended so long ago, so a monthly job is not there when its next time comes.
FORGETS_AFTER_S = 21 * DAY
#: Nobody applies in these days.
OUTAGE = range(40, 43)
#: How these end, each time.
ENDS = {"flaky": "Failed", "fragile": "Terminated"}
#: Why a job is started; each of these happens.
RULES = ("new", "scheduled", "edited", "retried", "recreated", "upstream ran again")

Manifest = dict[str, Any]


def _entry(run_s: float, lr: float = 0.1, **more: Any) -> dict[str, Any]:
    environments = {"EMULATOR_RUN_SECONDS": str(int(run_s))}
    return {"algorithm": {"parameters": {"lr": lr}, "environments": environments}, **more}


def _manifest() -> Manifest:
    return {
        "apiVersion": "reconciler/v1",
        "stack": "vision",
        "targets": {"local": {"kind": "local"}},
        "limits": {"lost_time": "2h"},
        "policies": [
            {
                "name": "four-nodes-at-most",
                "deny": "job.spec.resource.node_count > 4",
                "message": "ask the platform team",
            }
        ],
        "defaults": {
            "algorithm": CODE,
            "spec": {"resource": {"flavor_id": "modelarts.vm.cpu.2u", "node_count": 1}},
        },
        "jobs": {
            "nightly": _entry(2 * HOUR, lifecycle={"schedule": "30 2 * * *", "timezone": "Europe/Berlin"}),
            "twice": _entry(20 * HOUR, lifecycle={"schedule": "0 7,19 * * *", "overlap": "replace"}),
            "weekly": _entry(30 * HOUR, lifecycle={"schedule": "0 7 * * 1"}),
            "monthly": _entry(5 * HOUR, lifecycle={"schedule": "0 4 1 * *"}),
            "prepare": _entry(120),
            "train": _entry(180, needs=["prepare"], lifecycle={"on_upstream": "rerun"}),
            "report": _entry(60, needs=["train"], lifecycle={"on_upstream": "rerun"}),
            "sweep": _entry(9 * HOUR, matrix={"lr": [0.1, 0.2, 0.3], "batch": [1, 2]}),
            "flaky": _entry(
                40 * HOUR, lifecycle={"on_failure": "retry", "max_retries": 2, "retry_delay": "1h"}
            ),
            "fragile": _entry(60 * HOUR, lifecycle={"on_terminated": "recreate", "retry_delay": "1h"}),
            "long": _entry(400 * HOUR),
            "guarded": _entry(500 * HOUR, lifecycle={"protect": True}),
            "legacy": _entry(3 * HOUR),
        },
    }


def _load(manifest: Manifest, root: Path) -> Stack:
    return load_mapping(manifest, root, environ={}).stack


@dataclass
class Seen:
    """A job of the stack, as long as the service knew it; later, as it was seen last."""

    id: str
    name: str
    key: str
    revision: int
    digest: str
    created_s: float
    phase: str
    ended_s: float | None
    stopped: bool
    protected: bool


class Log:
    """Every job of the stack that there ever was, by id."""

    def __init__(self) -> None:
        self.jobs: dict[str, Seen] = {}

    def update(self, jobs: list[Job]) -> list[Seen]:
        """Look at the service; returns the jobs that were not there before."""
        made = []
        for job in jobs:
            marker = marker_in(job.body_text)
            if marker is None:
                continue
            if job.id not in self.jobs:
                made.append(job.id)
            self.jobs[job.id] = Seen(
                id=job.id,
                name=job.name,
                key=marker.key,
                revision=marker.revision,
                digest=marker.digest,
                created_s=job.create_ms / 1000,
                phase=job.life.phase,
                ended_s=job.life.ended_ms / 1000 if job.life.ended_ms else None,
                stopped=marker.stopped,
                protected=marker.protected,
            )
        return [self.jobs[job_id] for job_id in made]

    def revisions(self, key: str, former: tuple[str, ...] = ()) -> list[Seen]:
        """The revisions of a key, oldest first."""
        found = [job for job in self.jobs.values() if job.key in (key, *former)]
        return sorted(found, key=lambda job: job.revision)


@dataclass
class Quarter:
    """The service, the repository, and who works with them."""

    service: Service
    root: Path
    random: Random
    #: The records that all share.
    recording: Recording
    manifest: Manifest = field(default_factory=_manifest)
    log: Log = field(default_factory=Log)
    #: Per key the schedule that counts, and since when: when somebody first applied it.
    counting: dict[str, tuple[tuple[str, str], float]] = field(default_factory=dict)
    runs: Counter[tuple[str, float]] = field(default_factory=Counter)
    told: Counter[str] = field(default_factory=Counter)
    undo: list[tuple[float, Manifest]] = field(default_factory=list)
    _stacks: dict[str, Stack] = field(default_factory=dict)

    @property
    def now_s(self) -> float:
        """The time of the service."""
        return self.service.time.now()

    @property
    def stack(self) -> Stack:
        """The main branch, loaded."""
        text = json.dumps(self.manifest)
        if text not in self._stacks:
            self._stacks[text] = _load(self.manifest, self.root)
        return self._stacks[text]

    def context(self, *, is_applied: bool = False) -> reconcile.Context:
        """The stack in somebody's checkout."""
        context = self.service.context(self.stack, parallelism=1)
        return context._replace(recording=self.recording, is_applied=is_applied)

    # --- what people and the cron job do

    def apply(self, goal: Goal | None = None) -> None:
        """Apply the main branch, as everybody does, and see that each start and each end has its reason."""
        self.log.update(self.service.store.jobs())
        before = dict(self.log.jobs)
        stack, began_s = self.stack, self.now_s
        context = self.context(is_applied=True)
        plan = reconcile.plan(context)
        stream = EventStream(self.service.time, lambda _: None)
        Rollout(context, RunKind.APPLY, stream, self.service.stop, 120, goal=goal).run(plan)
        made = self.log.update(self.service.store.jobs())
        if not plan.refusals:
            self._note_schedules(stack, began_s)
        for job in sorted(made, key=lambda job: job.created_s):
            self.told[f"start: {self._rule_for(job, stack)}"] += 1
        for job in self.log.jobs.values():
            known = before.get(job.id)
            if job.stopped and known is not None and not known.stopped:
                self.told[f"end: {self._why_ended(job, known, stack)}"] += 1

    def _note_schedules(self, stack: Stack, at_s: float) -> None:
        for key, job in stack.jobs.items():
            schedule = job.schedule
            spelled = (schedule.expression, schedule.timezone) if schedule else None
            if spelled is None:
                self.counting.pop(key, None)
            elif self.counting.get(key, (None, 0.0))[0] != spelled:
                self.counting[key] = spelled, at_s

    # --- why a job was started

    def _rule_for(self, made: Seen, stack: Stack) -> str:
        entry = stack.jobs[made.key]
        earlier = [
            job for job in self.log.revisions(made.key, entry.formerly) if job.revision < made.revision
        ]
        if not earlier:
            return "new"
        assert all(job.ended_s is not None for job in earlier), f"{made.name} was started beside another"
        last = earlier[-1]
        if (due_s := self._due(made.key, entry, last.created_s, made.created_s)) is not None:
            self.runs[made.key, due_s] += 1
            assert self.runs[made.key, due_s] == 1, (
                f"{made.key} ran twice for {datetime.fromtimestamp(due_s)}"
            )
            return "scheduled"
        if last.stopped and last.digest == made.digest:
            return "declared again"
        assert entry.schedule is None, f"{made.name} of a scheduled key was started, and no time had come"
        if last.digest != made.digest:
            return "edited"
        if last.phase in ("Failed", "Abnormal") and entry.lifecycle.on_failure == "retry":
            run = _unbroken(earlier, made.digest)
            assert run <= (entry.lifecycle.max_retries or 1), f"{made.name} is one retry too many"
            return "retried"
        if last.phase == "Terminated" and entry.lifecycle.on_terminated == "recreate":
            return "recreated"
        upstream = [job for need in entry.needs for job in self.log.revisions(need)]
        newer = [job for job in upstream if job.phase == "Completed" and (job.ended_s or 0) > last.created_s]
        assert entry.lifecycle.on_upstream == "rerun", f"{made.name} was started for no reason"
        assert newer, f"{made.name} was started for no reason"
        return "upstream ran again"

    def _due(self, key: str, entry: DesiredJob, since_s: float, at_s: float) -> float | None:
        """The last time of a schedule that a job created then was started for, if any."""
        if entry.schedule is None:
            return None
        since_s = max(since_s, self.counting[key][1])
        times = list(_times(entry.schedule, since_s, at_s))
        return times[-1] if times and at_s - times[-1] <= _deadline_s(entry.schedule, times[-1]) else None

    def _why_ended(self, job: Seen, before: Seen, stack: Stack) -> str:
        entry = next((one for key, one in stack.jobs.items() if job.key in (key, *one.formerly)), None)
        assert not before.protected, f"{job.name} is protected, and was ended"
        if entry is None or entry.is_absent:
            return "not declared"
        replaces = entry.lifecycle.overlap == "replace"
        if replaces and self._due(entry.key, entry, before.created_s, self.now_s) is not None:
            return "overlapping"
        assert entry.digest != job.digest, f"{job.name} ran as declared, and was ended"
        ran_s = (job.ended_s or self.now_s) - job.created_s
        assert ran_s <= 2 * HOUR + 60, f"{job.name} had run for {ran_s / HOUR:.1f} h, and was replaced"
        return "edited"

    # --- what the report of the moment has to say

    def check_nothing_is_silent(self) -> None:
        """Whatever apply could not do is in the drift report, and so is each time that was missed."""
        self.log.update(self.service.store.jobs())
        plan, report = reconcile.plan(self.context()), reconcile.drift(self.context())
        classes: dict[str, set[str]] = {}
        for one in report.drift:
            classes.setdefault(one.key, set()).add(one.class_.value)
        pending = {one.key for one in report.pending}
        for action in plan.actions:
            if action.action in (Action.BLOCKED, Action.CONFLICT, Action.UNKNOWN) or plan.refusals:
                in_report = action.action is Action.KEEP or action.key in pending or action.key in classes
                assert in_report, f"{action.key}: {action.action} ({action.reason}) is silent"
                self.told[f"said: {action.action.value} ({action.reason.value})"] += (
                    action.action is not Action.KEEP
                )
        for key, job in self.stack.jobs.items():
            if job.schedule is not None and key in self.counting:
                self._check_missed(key, job.schedule, "missed" in classes.get(key, set()))

    def _check_missed(self, key: str, schedule: Schedule, is_listed: bool) -> None:
        revisions = self.log.revisions(key)
        last_s = max((job.created_s for job in revisions), default=0.0)
        missed = [
            time_s
            for time_s in _times(schedule, max(last_s, self.counting[key][1]), self.now_s)
            if self.now_s - time_s > _deadline_s(schedule, time_s)
            and not any(job.created_s <= time_s < (job.ended_s or 1e12) for job in revisions)
        ]
        assert bool(missed) == is_listed, f"{key}: missed {missed}, listed {is_listed} at {self.now_s}"
        self.told["listed: missed"] += is_listed

    # --- what happens

    def day(self) -> None:
        """What people and the service do on a day."""
        random, jobs = self.random, self.service.store.jobs()
        for job in jobs:
            if job.life.ended_ms and self.now_s - job.life.ended_ms / 1000 > FORGETS_AFTER_S:
                self.service.store.delete(PROJECT, job.id)
        active = [job for job in jobs if job.life.phase in ("Pending", "Running")]
        for job in active:
            if how := ENDS.get(job.name.partition("-r")[0]):
                self.service.store.set_phase(job.id, how)
        if active and random.random() < 0.5:
            phase = random.choice(["Failed", "Failed", "Abnormal", "Terminated"])
            self.service.store.set_phase(random.choice(active).id, phase)
        if self.undo and self.undo[0][0] <= self.now_s:
            self.manifest = self.undo.pop(0)[1]
        elif not self.undo and random.random() < 0.5:
            random.choice(EDITS)(self, self.manifest["jobs"])
            if random.random() < 0.4:
                self.apply(random.choice([None, Goal.RUNNING, Goal.COMPLETED]))

    def undo_in(self, days: float) -> None:
        """What is edited now goes back in some days, when somebody has seen the report."""
        self.undo.append((self.now_s + days * DAY, copy.deepcopy(self.manifest)))


def _unbroken(revisions: list[Seen], digest: str) -> int:
    """How many of the last revisions ended badly with a digest."""
    count = 0
    for job in reversed(revisions):
        if job.digest != digest or job.phase not in ("Failed", "Abnormal"):
            break
        count += 1
    return count


def _times(schedule: Schedule, since_s: float, until_s: float) -> Iterator[float]:
    time_s = schedule.next_after(since_s)
    while time_s is not None and time_s <= until_s:
        yield time_s
        time_s = schedule.next_after(time_s)


def _deadline_s(schedule: Schedule, time_s: float) -> float:
    after_s = schedule.next_after(time_s)
    assert after_s is not None
    return (after_s - time_s) / 2


# --- edits


def _edit_a_job(world: Quarter, jobs: Manifest) -> None:
    key = world.random.choice([key for key in jobs if key not in ("guarded", "sweep")])
    jobs[key]["algorithm"]["parameters"]["lr"] = round(world.random.random(), 3)


def _run_prepare_again(world: Quarter, jobs: Manifest) -> None:
    jobs["prepare"]["lifecycle"] = {"rerun": str(world.now_s)}


def _move_the_schedule(world: Quarter, jobs: Manifest) -> None:
    jobs["nightly"]["lifecycle"]["schedule"] = world.random.choice(
        ["30 2 * * *", "0 14 * * *", "15 */8 * * *"]
    )


def _schedule_a_job(world: Quarter, jobs: Manifest) -> None:
    if "schedule" in jobs["legacy"].get("lifecycle", {}):
        jobs["legacy"]["lifecycle"] = {}
    else:
        jobs["legacy"]["lifecycle"] = {"schedule": world.random.choice(["0 1 * * *", "0 9 * * 5"])}


def _ask_for_too_much(world: Quarter, jobs: Manifest) -> None:
    """A policy denies it, for some days."""
    world.undo_in(world.random.choice([1, 3]))
    key = world.random.choice(["nightly", "prepare", "legacy"])
    jobs[key]["spec"] = {"resource": {"node_count": 5}}


def _rename_without_formerly(world: Quarter, jobs: Manifest) -> None:
    """Every member of a sweep that is done has another name: finished work again."""
    world.undo_in(world.random.choice([1, 2]))
    entry = copy.deepcopy(jobs["sweep"])
    del jobs["sweep"]
    jobs["grid"] = entry


def _rename(world: Quarter, jobs: Manifest) -> None:
    old = next(key for key in ("long", "eternal") if key in jobs)
    new = "eternal" if old == "long" else "long"
    jobs[new] = {**jobs.pop(old), "formerly": [old]}


def _add_an_axis(world: Quarter, jobs: Manifest) -> None:
    world.undo_in(world.random.choice([1, 2]))
    jobs["sweep"] = copy.deepcopy(jobs["sweep"])
    jobs["sweep"]["matrix"]["seed"] = [1]


def _add_a_value(world: Quarter, jobs: Manifest) -> None:
    batches = jobs["sweep"]["matrix"]["batch"]
    batches.append(len(batches) + 1)


def _remove_a_job(world: Quarter, jobs: Manifest) -> None:
    world.undo_in(2)
    key = world.random.choice(["fragile", "flaky", "weekly", "guarded"])
    world.manifest["jobs"] = {name: entry for name, entry in jobs.items() if name != key}


EDITS: tuple[Callable[[Quarter, Manifest], None], ...] = (
    _edit_a_job,
    _edit_a_job,
    _run_prepare_again,
    _move_the_schedule,
    _schedule_a_job,
    _ask_for_too_much,
    _rename_without_formerly,
    _rename,
    _add_an_axis,
    _add_a_value,
    _remove_a_job,
)


@contextmanager
def a_quarter(seed: int, root: Path) -> Iterator[Quarter]:
    """Open a service on a day of March, with nothing on it."""
    clock = ManualClock(round(datetime.fromisoformat("2026-03-05T08:00+00:00").timestamp() * 1000))
    with Store(clock=clock, durations=Durations(running=2 * HOUR), noise=False) as store:
        service = Service(store, clock, Cloud.HUAWEI)
        url = f"sqlite://{root}/shared.sqlite3"
        with service.backend, closing(Recording(url, root, service.time)) as recording:
            yield Quarter(service, root, Random(seed), recording)


def _evaluate_here(
    questions: Sequence[Question], values: Sequence[Mapping[str, Any]], stop: object
) -> list[list[bool]]:
    contexts = [cel.Context(dict(one)) for one in values]
    return [
        [cel.compile(asked.expression).execute(contexts[at]) for at in asked.places] for asked in questions
    ]


@pytest.fixture(autouse=True)
def _no_process_for_policies(monkeypatch: pytest.MonkeyPatch) -> None:
    """Hundreds of plans would start one each; what it protects from is no subject here."""
    monkeypatch.setattr(reconcile, "_evaluate", _evaluate_here)
    monkeypatch.setattr("reconciler.manifest.sections.find_invalid", lambda texts: [None] * len(texts))


@pytest.mark.usefixtures("_rare_looks")
@pytest.mark.timeout(600)  # A busy machine takes its time.
@pytest.mark.parametrize("seed", range(QUARTERS))
def test_quarter_alone_has_a_reason_for_each_start_and_hides_nothing(
    seed: int, tmp_path: Path, record_property: Callable[[str, object], None]
) -> None:
    with a_quarter(seed, tmp_path) as world:
        world.apply()
        for day in range(DAYS):
            for _ in range(round(DAY / TICK_S)):
                world.service.time.sleep(TICK_S)
                if day not in OUTAGE:
                    world.apply()
            if day % 3 == 0 or day in OUTAGE:
                world.check_nothing_is_silent()
            world.day()
        print("\n" + ", ".join(f"{count} {what}" for what, count in sorted(world.told.items())))  # noqa: T201
        starts = {what: count for what, count in world.told.items() if what.startswith("start: ")}
    assert QUARTERS > 1 or starts.keys() >= {f"start: {rule}" for rule in RULES}
    record_property("figure", ["starts in sixty days that a rule explains", sum(starts.values())])
