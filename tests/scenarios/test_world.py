"""Invariants for any manifest, service, history and accident, in any order.

Five hundred runs take about a minute. `WORLDS=20000 pytest tests/scenarios/test_world.py -s` tells more
of them, and says how much happened.
"""

from __future__ import annotations

import json
import math
import os
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, ClassVar

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from reconciler import reconcile
from reconciler.apply.executor import EventStream
from reconciler.core.fields.field_types import Cloud
from reconciler.core.identity import Marker, remote_name
from reconciler.core.past import PastRevision, RunKind
from reconciler.core.phase import Phase
from reconciler.core.record import NO_HISTORY, HistorySnapshot, Scope
from reconciler.core.stack import DesiredJob, Stack, Target
from reconciler.core.values import LOCAL
from reconciler.decide.outcome import Goal, Result, Status, WaitEnd
from reconciler.decide.plan import (
    EVERY_GUARD,
    NO_ALLOWANCES,
    Action,
    Allowances,
    Plan,
    PlannedAction,
    Reason,
    without_growing,
)
from reconciler.decide.saved_plan import SavedOptions
from reconciler.emulator import Job, ManualClock, chaos
from reconciler.plan_file import (
    StalePlan,
    check_preconditions,
    document_of,
    read_document,
    sealed,
)
from reconciler.reconcile import Context
from reconciler.records.database import Database
from reconciler.records.dialects import Transaction
from reconciler.records.recording import Recording
from reconciler.rollout import Rollout
from reconciler.version import __version__
from tests.apply.kill_helpers import killed_at
from tests.apply.service import (
    CREATE,
    PROJECT,
    STOP,
    UPDATE,
    Service,
    SharedTime,
    a_service,
    marker,
    marker_in,
)
from tests.builders import STACK, TARGET, a_job, a_stack, absent

#: Number of runs, and of steps per run.
WORLDS, STEPS = int(os.environ.get("WORLDS", "500")), 14
#: Shards per cloud, for parallel workers.
PARTS = 5

KEYS = ("a", "b", "c", "d")
ACTIVE = ("Creating", "Pending", "Running", "Terminating")
ENDED = ("Completed", "Failed", "Terminated", "Abnormal")
PHASES = ("Pending", "Running", *ENDED)
DIGEST = "a" + "0" * 12
#: The sweep with max_parallel, and its limit.
SWEEP, AT_ONCE = "s", 2

Lifecycle = dict[str, Any]
_OF_EVENTS: dict[str, st.SearchStrategy[str | int]] = {
    "on_change": st.sampled_from(["replace", "keep", "fail"]),
    "on_failure": st.sampled_from(["keep", "retry"]),
    "on_upstream": st.sampled_from(["keep", "rerun"]),
    "on_terminated": st.sampled_from(["keep", "recreate"]),
    "max_retries": st.integers(0, 2),
    "retry_delay": st.sampled_from(["1s", "10m"]),
    "replace_order": st.sampled_from(["terminate_first", "create_first"]),
    "rerun": st.sampled_from(["once", "twice"]),
}
_OF_TIMES = {
    "schedule": st.sampled_from(["*/30 * * * *", "0 2 * * *"]),
    "overlap": st.sampled_from(["skip", "replace"]),
}
# A scheduled key is restarted only by its times.
lifecycles = st.one_of(
    st.fixed_dictionaries({}, optional=_OF_EVENTS),
    st.fixed_dictionaries({}, optional=_OF_EVENTS | _OF_TIMES),
)

keys = st.sampled_from(KEYS)
Change = dict[str, Any]
changes: st.SearchStrategy[Change] = st.one_of(
    st.builds(dict, lr=st.sampled_from([0.1, 0.2]), is_absent=st.just(False)),
    st.builds(
        dict, lr=st.sampled_from([0.1, 0.2]), lifecycle=lifecycles.map(lambda said: tuple(said.items()))
    ),
    st.builds(dict, text=st.sampled_from(["", "text", "another text"])),
    st.builds(dict, priority=st.sampled_from([None, 1, 3])),
    st.builds(dict, protect=st.sampled_from([None, True, False])),
    st.builds(dict, is_absent=st.just(True)),
    st.builds(dict, takes_turns=st.booleans()),
    st.builds(dict, needs=st.sets(keys, max_size=2).map(lambda needed: tuple(sorted(needed)))),
)

# Draws must not depend on state: ids and times may differ between runs of the same story.
places = st.integers(0, 11)


@dataclass(frozen=True)
class Entry:
    """The entry of one key."""

    lr: float = 0.1
    text: str = ""
    priority: int | None = None
    protect: bool | None = None
    lifecycle: tuple[tuple[str, Any], ...] = ()
    is_absent: bool = False
    needs: tuple[str, ...] = ()
    formerly: tuple[str, ...] = ()
    takes_turns: bool = False

    @cache  # noqa: B019
    def job(self, key: str) -> DesiredJob:
        lifecycle = dict(self.lifecycle) | ({} if self.protect is None else {"protect": self.protect})
        more: dict[str, Any] = {"algorithm__parameters": {"lr": self.lr}, "description": self.text}
        if self.priority:
            more["spec__schedule_policy"] = {"priority": self.priority}
        job = absent(key, **lifecycle) if self.is_absent else a_job(key, lifecycle=lifecycle, **more)
        job = replace(job, needs=self.needs, formerly=self.formerly)
        return replace(job, sweep=SWEEP, max_parallel=AT_ONCE) if self.takes_turns else job

    @property
    def creates_first(self) -> bool:
        return ("replace_order", "create_first") in self.lifecycle


Entries = Mapping[str, Entry]


@dataclass(frozen=True)
class Saved:
    """A saved plan, its manifest, and the jobs at that time."""

    plan: Plan
    entries: Entries
    there: object


@dataclass
class Checkout:
    """A working copy of the manifest, with its own records or none."""

    root: Path | None
    entries: dict[str, Entry] = field(default_factory=dict)
    recording: Recording | None = None
    saved: Saved | None = None


class World(RuleBasedStateMachine):
    """Two checkouts of a small manifest on a changing service with other users.

    `wiped` are owned jobs with a wiped marker; `lost` those that the history store of the
    checkout where we are knows, so that they can be restored from there.
    """

    cloud = Cloud.HUAWEI
    events_by_kind: ClassVar[Counter[str]] = Counter()

    def __init__(self) -> None:
        super().__init__()
        self._cleanup = ExitStack()
        self.service: Service = self._cleanup.enter_context(a_service(self.cloud, running=6000))
        self.here, self.there = Checkout(None), Checkout(None)
        self.not_ours: dict[str, str] = {}
        self.wiped: set[str] = set()
        self.lost: set[str] = set()
        self._plans = 0
        self._read: tuple[Recording | None, int, HistorySnapshot] = None, 0, NO_HISTORY
        self.events_by_kind["worlds"] += 1

    @property
    def entries(self) -> dict[str, Entry]:
        return self.here.entries

    @property
    def recording(self) -> Recording | None:
        return self.here.recording

    @initialize(
        remembers=st.tuples(*[st.sampled_from([True, True, False])] * 2),
        foreign=st.sampled_from([0] * 49 + [120]),
        keys=st.sets(st.sampled_from(KEYS), max_size=3),
        lifecycle=lifecycles,
        phase=st.sampled_from(["Creating", "Running", "Completed", "Failed"]),
        takes_turns=st.booleans(),
    )
    def begin(
        self,
        remembers: tuple[bool, bool],
        foreign: int,
        keys: set[str],
        lifecycle: Lifecycle,
        phase: str,
        takes_turns: bool,
    ) -> None:
        """Some jobs exist already; in a few worlds after two pages of foreign jobs."""
        for number in range(foreign):
            self._put_foreign(number)
        for checkout, has_records in zip((self.here, self.there), remembers, strict=True):
            if has_records:
                shm = Path("/dev/shm")
                where = TemporaryDirectory(dir=shm if shm.is_dir() else None)
                checkout.root = Path(self._cleanup.enter_context(where))
                (checkout.root / "records.sqlite3").write_bytes(_empty_records())
                self._open_records(checkout)
        if keys:
            entry = Entry(lifecycle=tuple(lifecycle.items()), takes_turns=takes_turns)
            self.entries.update(dict.fromkeys(sorted(keys), entry))
            self._apply_for_good(EVERY_GUARD)
            for job in self._ours():
                self.service.store.set_phase(job.id, phase)

    def _put_foreign(self, number: int) -> None:
        job = self.service.put_job(f"foreign-{number}", marker(f"foreign-{number}", 1, DIGEST, stack="other"))
        self.service.store.set_phase(job.id, "Running" if number % 40 == 0 else "Completed")
        self.not_ours[job.id] = job.body_text

    def _open_records(self, checkout: Checkout) -> None:
        if checkout.root is not None:
            self._close_records(checkout)
            url = f"sqlite://{checkout.root}/records.sqlite3"
            checkout.recording = Recording(url, checkout.root, self.service.time)

    def _close_records(self, checkout: Checkout) -> None:
        if checkout.recording is not None:
            checkout.recording.close()

    def teardown(self) -> None:
        for checkout in (self.here, self.there):
            self._close_records(checkout)
        self._cleanup.close()

    # --- the other checkout

    @rule(pulls=st.booleans())
    def go_to_the_other_checkout(self, pulls: bool) -> None:
        """Continue in the other checkout, with its own records; `pulls`: with our manifest."""
        entries = dict(self.entries)
        self.here, self.there = self.there, self.here
        if pulls:
            self.here.entries = entries
        known = {past.job for past in self._all_remembered()}
        for job_id in self.wiped:
            if job_id in known:
                self.lost.add(job_id)
                self.not_ours.pop(job_id, None)
            else:
                self.lost.discard(job_id)
                self.not_ours[job_id] = self.service.store.find(job_id).body_text

    # --- the manifest

    @rule(key=keys, change=changes, applies=st.booleans())
    def edit(self, key: str, change: Change, applies: bool) -> None:
        self._edit(key, change)
        if applies:
            self._apply_for_good(EVERY_GUARD)

    def _edit(self, key: str, change: Change) -> None:
        self.entries[key] = replace(self.entries.get(key, Entry()), **change)

    @rule(key=keys)
    def remove(self, key: str) -> None:
        self.entries.pop(key, None)

    @rule(place=places, new=keys, change=st.just({}) | changes, applies=st.booleans())
    def rename(self, place: int, new: str, change: Change, applies: bool) -> None:
        if self.entries and new not in self.entries:
            old = sorted(self.entries)[place % len(self.entries)]
            entry = self.entries.pop(old)
            # No manifest may name a former key twice, or the key's own.
            formerly = tuple(dict.fromkeys(key for key in (*entry.formerly, old) if key != new))
            self.entries[new] = replace(entry, **change, formerly=formerly)
            for key, other in self.entries.items():
                needs = tuple(new if needed == old else needed for needed in other.needs)
                self.entries[key] = replace(other, needs=needs)
        if applies:
            self._apply_for_good(EVERY_GUARD)

    @rule(key=keys)
    def forget_the_old_name(self, key: str) -> None:
        if key in self.entries:
            self.entries[key] = replace(self.entries[key], formerly=())

    # --- other people

    @rule(
        key=keys,
        revision=st.integers(1, 4),
        how=st.sampled_from(["plain", "foreign", "copied", "copied name"]),
    )
    def put_stranger(self, key: str, revision: int, how: str) -> None:
        name, digest = remote_name(key, revision), Entry().job(key).digest
        text = {
            "plain": "by hand",
            "foreign": marker(key, revision, digest, stack="other"),
            "copied": marker(key, revision + 1, digest),
            "copied name": marker(key, revision, digest),
        }[how]
        if how == "copied name":
            name = f"{name}-copy"
        if name not in self.service.phases():
            job = self.service.put_job(name, text, self._body())
            self.not_ours[job.id] = job.body_text

    def _body(self) -> dict[str, Any]:
        return dict(Entry().job("a").body or {})

    # --- the service moves

    @rule(seconds=st.sampled_from([1, 2, 5, 60, 200, 4000]))
    def let_time_pass(self, seconds: float) -> None:
        self.service.time.sleep(seconds)

    @rule(place=places, phase=st.sampled_from(PHASES))
    def move_a_job(self, place: int, phase: str) -> None:
        entries, ours = self._manifest, self._ours()
        for job in self._at(place, self._near()):
            beside = [other for other in ours if other.life.phase in ACTIVE and other.id != job.id]
            # An old revision restarted outside beside the new one is allowed.
            keys = {self._key(other, entries) for other in beside}
            if phase in ENDED or job not in ours or self._key(job, entries) not in keys:
                self.service.store.set_phase(job.id, phase)

    @rule(place=places)
    def delete_a_record(self, place: int) -> None:
        for job in self._at(place, self._near()):
            self._delete(job)

    @rule(all_completed=st.booleans(), somebody_looked=st.booleans())
    def age_out(self, all_completed: bool, somebody_looked: bool) -> None:
        """Age out an ended job."""
        for job in self._ours() if all_completed else []:
            self.service.store.set_phase(job.id, "Completed")
        if somebody_looked:
            self._plan(EVERY_GUARD)
        for job in self.service.store.jobs():
            if job.life.phase in ENDED and not job.name.startswith("foreign-"):
                self._delete(job)

    @rule(place=places)
    def wipe_a_marker(self, place: int) -> None:
        self._write_by_hand(place, "wiped")

    def _delete(self, job: Job) -> None:
        self.not_ours.pop(job.id, None)
        self.lost.discard(job.id)
        self.wiped.discard(job.id)
        self.service.store.delete(PROJECT, job.id)

    @rule()
    def forget_the_history(self) -> None:
        if self.here.root is not None:
            self._close_records(self.here)
            for file in self.here.root.iterdir():
                file.unlink()
            self._open_records(self.here)
            for job_id in self.lost:
                self.not_ours[job_id] = self.service.store.find(job_id).body_text
            self.lost.clear()

    @rule(place=places, how=st.sampled_from(["text", "given away", "protected", "stopped"]))
    def edit_by_hand(self, place: int, how: str) -> None:
        self._write_by_hand(place, how)

    def _write_by_hand(self, place: int, how: str) -> None:
        for job in self._at(place, self._ours()):
            ours = _marker(job)
            text = {
                "text": f"somebody's {ours}",
                "wiped": "mine now",
                "given away": str(ours._replace(stack="other")),
                "protected": str(ours._replace(protected=True)),
                "stopped": str(ours._replace(stopped=True)),
            }[how]
            self.service.describe(job.name, text)
            if how == "wiped":
                self.wiped.add(job.id)
            if how == "wiped" and any(past.job == job.id for past in self._all_remembered()):
                self.lost.add(job.id)
            elif how in ("wiped", "given away"):
                self.not_ours[job.id] = self.service.store.find(job.id).body_text

    def _at(self, place: int, jobs: list[Job]) -> list[Job]:
        """Return the job at an index modulo the number of jobs, if any."""
        return sorted(jobs, key=lambda job: job.name)[place % len(jobs) :][:1] if jobs else []

    # --- we

    @rule(force=st.booleans())
    def apply(self, force: bool) -> None:
        self._apply_for_good(Allowances.of(["empty"], force=force))

    @rule(key=keys, change=changes, seed=st.integers(0, 1000), probability=st.sampled_from([0.05, 0.3]))
    def apply_amid_faults(self, key: str, change: Change, seed: int, probability: float) -> None:
        self._edit(key, change)
        self.service.fail(*chaos(probability, seed))
        self._carry_out(self._plan(EVERY_GUARD), self._manifest)
        self.service.app.faults.clear()
        self._apply_for_good(EVERY_GUARD)

    @rule(key=keys, change=changes, nth=st.integers(1, 9), has_effect=st.booleans())
    def die_while_applying(self, key: str, change: Change, nth: int, has_effect: bool) -> None:
        self._edit(key, change)
        plan = self._plan(EVERY_GUARD)
        with self._checked(plan, self._manifest), killed_at(self.service, nth, has_effect=has_effect) as dead:
            self._rollout(plan, self._manifest).run(plan)
        self.events_by_kind["deaths"] += bool(dead)
        self._open_records(self.here)
        clashing = {action.key for action in plan.actions if action.reason is Reason.RENAME_CLASH}
        again = self._apply_for_good(EVERY_GUARD)
        clashes = {action.key for action in again.actions if action.reason is Reason.RENAME_CLASH}
        assert clashes <= clashing, "a renaming that was cut off is no clash"

    @rule(key=keys, change=changes, goal=st.sampled_from(Goal), timeout_s=st.sampled_from([5, 30]))
    def apply_and_wait(self, key: str, change: Change, goal: Goal, timeout_s: float) -> None:
        self._edit(key, change)
        plan, entries = self._plan(EVERY_GUARD), self._manifest
        with self._checked(plan, entries, waits=True):
            result = self._rollout(plan, entries, goal=goal, timeout_s=timeout_s).run(plan)
        self.events_by_kind["waits"] += len(result.waits)
        assert not result.faults
        assert not any(waited.end is WaitEnd.WAITING for waited in result.waits)

    @rule(key=keys)
    def apply_only_one(self, key: str) -> None:
        if key in self._manifest:
            plan = self._plan(EVERY_GUARD, only=(key,))
            assert {action.key for action in plan.actions} <= {key}
            self._carry_out(plan, self._manifest)

    @rule()
    def save_a_plan(self) -> None:
        plan, entries = self._plan(EVERY_GUARD), self._manifest
        options = SavedOptions(target=Target(kind=LOCAL), root=".")
        text = json.dumps(sealed(document_of(plan, options)))
        self.here.saved = Saved(
            read_document(json.loads(text), Path("plan.json"), __version__, strict=True).plan,
            entries,
            self._state(),
        )
        # Texts for people are not saved.
        to_execute = tuple(action.model_copy(update={"next_run": ""}) for action in plan.to_execute)
        assert self.here.saved.plan.to_execute == to_execute

    @precondition(lambda self: self.here.saved is not None)
    @rule()
    def apply_the_saved_plan(self) -> None:
        assert self.here.saved is not None
        plan, entries = self.here.saved.plan, self.here.saved.entries
        keys = {key for one in plan.actions for key in (one.key, *one.former_keys, *one.needs)}
        context = self._context(Stack(STACK, {}, frozenset(keys)))
        declared = {key: SWEEP if entry.takes_turns else "" for key, entry in entries.items()}
        context = context._replace(loaded=replace(context.loaded, declared=declared))
        self.service.forget_requests()
        has_moved = self.here.saved.there != self._state()
        try:
            check_preconditions(context, plan)
        except StalePlan:
            assert has_moved, "what has not moved is not stale"
            assert not self.service.changes, "of a stale plan nothing is done"
            self.events_by_kind["stale plans"] += 1
            return
        self.events_by_kind["saved plans"] += 1
        if has_moved:
            self._carry_out(plan, entries)
        else:
            self._check_all_was_done(plan, entries)

    @rule(key=keys)
    def destroy_one(self, key: str) -> None:
        if key in self._manifest or key in {_marker(job).key for job in self._ours()}:
            context = self._context(self._stack(self._manifest), only=(key,))
            plan = reconcile.destroy_plan(context)
            assert all(key in (action.key, *action.former_keys) for action in plan.actions)
            self._carry_out(plan, self._manifest, destroys=True)

    # --- how we do it

    @property
    def _manifest(self) -> Entries:
        """Return the valid entries: without unknown needs, cycles, or declared old keys."""
        claimed: set[str] = set(self.entries)
        found = {}
        for key, entry in sorted(self.entries.items()):
            needs = tuple(needed for needed in entry.needs if needed in self.entries and needed < key)
            formerly = tuple(old for old in entry.formerly if old not in claimed)
            claimed |= set(formerly)
            found[key] = replace(entry, needs=needs, formerly=formerly)
        return found

    def _stack(self, entries: Entries) -> Stack:
        stack = a_stack(*(entry.job(key) for key, entry in entries.items()))
        return replace(stack, whole=stack.jobs)

    def _context(self, stack: Stack, only: tuple[str, ...] = ()) -> Context:
        context = self.service.context(stack, only=only, parallelism=1)
        return context._replace(recording=self.recording or context.recording)

    def _rollout(
        self, plan: Plan, entries: Entries, goal: Goal | None = None, timeout_s: float = 600
    ) -> Rollout:
        stream = EventStream(self.service.time, lambda _: None)
        context = self._context(self._stack(entries))
        allowances = EVERY_GUARD if goal else NO_ALLOWANCES
        return Rollout(context, RunKind.APPLY, stream, self.service.stop, timeout_s, allowances, goal)

    def _plan(self, allowances: Allowances, only: tuple[str, ...] = ()) -> Plan:
        context = self._context(self._stack(self._manifest), only)
        memory = self._memory()
        first = reconcile.plan(context, allowances)
        if not list(self.service.app.faults):
            self._check_it_is_sound(first, memory)
            self._plans += 1
            if self._plans % 6 == 0:
                assert _bytes(first) == _bytes(reconcile.plan(context, allowances))
        return first

    def _apply_for_good(self, allowances: Allowances) -> Plan:
        plan = self._plan(allowances)
        self._check_all_was_done(plan, self._manifest, allowances)
        return plan

    def _check_all_was_done(self, plan: Plan, entries: Entries, allowances: Allowances = EVERY_GUARD) -> None:
        """Check that without faults everything is done, and the next plan is empty."""
        before = self._phases()
        result = self._carry_out(plan, entries)
        after = self._phases()
        stopped = self._asked_about(STOP)
        if any(after[job_id] != phase for job_id, phase in before.items() if job_id not in stopped):
            return  # the service changed during the wait
        assert not [o for o in result.outcomes if o.status not in (Status.DONE, Status.SKIPPED)]
        if entries != self._manifest:
            return
        restores = any(action.reason is Reason.MARKER_RESTORED for action in plan.actions)
        in_two_steps = {
            action.key
            for action in plan.actions
            # A conflicting name may belong to a job whose marker is restored first.
            if _has_a_second_step(action) or (restores and action.reason is Reason.NAME_TAKEN)
        }
        left = [a for a in self._plan(allowances).to_execute if a.key not in in_two_steps]
        assert plan.refusals or not left, f"left: {_described(left)}\nplanned: {_described(plan.actions)}"

    def _carry_out(self, plan: Plan, entries: Entries, *, destroys: bool = False) -> Result:
        with self._checked(plan, entries, destroys=destroys):
            return self._rollout(plan, entries).run(plan)

    # --- invariants of a plan

    def _check_it_is_sound(self, plan: Plan, memory: HistorySnapshot) -> None:
        entries, ours = self._manifest, self._ours()
        former = {old for entry in entries.values() for old in entry.formerly}
        assert not former & {action.key for action in plan.actions}, "an old key is the new one's"
        for action in plan.actions:
            if not action.traits.starts_a_job:
                continue
            assert action.after is not None
            entry = entries[action.key]
            past = self._past_of(action.key, entry, memory, entries)
            owned = [_marker(job).revision for job in ours if self._key(job, entries) == action.key]
            newest = max(past, key=lambda revision: revision.number, default=None)
            numbers = [*owned, *(revision.number for revision in past)]
            assert action.after.revision > max(numbers, default=0), "no revision is given twice"
            if newest is not None and newest.number > max(owned, default=0):
                is_done = newest.phase is Phase.COMPLETED and newest.digest == action.after.digest
                assert not is_done or action.scheduled_for, "finished work stays finished"

    def _past_of(
        self, key: str, entry: Entry, memory: HistorySnapshot, entries: Entries
    ) -> list[PastRevision]:
        """Return the history of a key, without jobs that now have another key."""
        keys = (key, *entry.formerly)
        past = [revision for key in keys for revision in memory.by_key.get(key, ())]
        if not past:
            return []
        now = {job.id: self._key(job, entries) for job in self._ours()}
        return [r for r in past if now.get(r.job, memory.key_by_job[r.job]) in keys]

    # --- invariants of an apply

    @contextmanager
    def _checked(
        self, plan: Plan, entries: Entries, *, destroys: bool = False, waits: bool = False
    ) -> Iterator[None]:
        """Check that nothing forbidden is done; `waits`: deferred actions may be executed."""
        before = {job.id: job for job in self._ours()}
        active = {self._key(job, entries) for job in before.values() if job.life.phase in ACTIVE}
        all_lost = set(self.lost)
        lost = {job_id for job_id in self.lost if self.service.store.find(job_id).life.phase in ACTIVE}
        protected = {
            job.id
            for job in before.values()
            if _marker(job).protected or entries.get(self._key(job, entries), Entry()).protect
        }
        memory = self._memory()
        as_declared = {} if destroys else self._running_as_declared(entries, memory)
        self.service.forget_requests()
        yield
        self.events_by_kind["applies"] += 1
        self.events_by_kind.update(
            f"{action.action.value} ({action.reason.value})" for action in plan.to_execute
        )
        stopped, written = self._asked_about(STOP), self._asked_about(UPDATE)
        deferred = {a.key for a in plan.actions if a.action is Action.DEFER} if waits else set()
        of_deferred = {job.id for job in before.values() if self._key(job, entries) in deferred}
        to_stop = {a.before.id for a in plan.actions if a.before and a.traits.stops_a_job} | of_deferred
        to_touch = {a.before.id for a in plan.to_execute if a.before} | of_deferred
        assert stopped <= to_stop, "only what the plan names is terminated"
        assert written <= to_touch, "only what the plan names is written on"
        assert stopped <= before.keys(), "only our own jobs"
        # A saved plan knows a job without its marker, even if the history is gone.
        restored = {a.before.id for a in plan.actions if a.before and a.reason is Reason.MARKER_RESTORED}
        assert written <= before.keys() | all_lost | restored, "only our own jobs"
        for job_id in written & restored:
            self.not_ours.pop(job_id, None)
        self.wiped -= {job.id for job in self._ours()}
        assert not stopped & protected, "no protected job is terminated"
        assert all(_marker(job).stopped for job in self._ours() if job.id in stopped), "and says so"
        ended_for_a_time = {a.key for a in plan.actions if a.scheduled_for} | deferred
        goes_on = [ids for key, ids in as_declared.items() if key not in ended_for_a_time]
        assert not any(ids <= stopped for ids in goes_on), "what runs as declared goes on"
        made = [job for job in self._ours() if job.id not in before.keys() | all_lost]
        self._check_none_was_started_beside_another(made, plan, entries)
        self._check_turns_were_taken(made, active, entries)
        for job in made:
            key = self._key(job, entries)
            entry = entries[key]
            assert all(self._has_completed(needed, entries) for needed in entry.needs), "in its turn"
            ours = {past.job for past in self._past_of(key, entry, memory, self._manifest)}
            assert not lost & ours, "not beside one of ours that has lost its marker"
        self._check_it_was_journaled()
        self.lost -= {job.id for job in self._ours()}

    def _running_as_declared(self, entries: Entries, memory: HistorySnapshot) -> dict[str, set[str]]:
        """Return the running jobs of each key with the declared digest; one of them must keep running."""
        found: dict[str, set[str]] = {}
        for key, entry in entries.items():
            digest = entry.job(key).digest
            mine = [job for job in self._ours() if self._key(job, entries) == key]
            same = [job for job in mine if _marker(job).digest == digest]
            done = [_marker(job).revision for job in same if job.life.phase == "Completed"]
            past = self._past_of(key, entry, memory, self._manifest)
            done += [r.number for r in past if r.phase is Phase.COMPLETED and r.digest == digest]
            running = {job.id for job in same if _runs(job) and _marker(job).revision > max(done, default=0)}
            if running and not entry.is_absent:
                found[key] = running
        return found

    def _check_none_was_started_beside_another(
        self, made: Iterable[Job], plan: Plan, entries: Entries
    ) -> None:
        create_first = {a.key for a in plan.actions if a.replace_order == "create_first"}
        create_first |= {key for key, entry in entries.items() if entry.creates_first}
        for job in made:
            key = self._key(job, entries)
            if key in create_first:
                continue
            for other in self._ours():
                is_beside = other.id != job.id and self._key(other, entries) == key
                if is_beside and not _marker(other).protected:
                    assert other.life.phase in ENDED, f"{job.name} was started beside {other.name}"
                    assert min(job.life.ended_ms or math.inf, other.life.ended_ms) <= max(
                        job.create_ms, other.create_ms
                    ), f"{job.name} was started beside {other.name}"

    def _check_turns_were_taken(self, made: Iterable[Job], active: set[str], entries: Entries) -> None:
        """Check that starting a member of an inactive key never exceeded max_parallel."""
        members = {key for key, entry in entries.items() if entry.takes_turns}
        jobs = [(self._key(job, entries), job) for job in self._ours()]
        for job in made:
            if (key := self._key(job, entries)) in members - active:
                at_ms = job.create_ms
                running = {
                    other
                    for other, one in jobs
                    if other in members and one.create_ms <= at_ms < (one.life.ended_ms or math.inf)
                }
                assert len(running | {key}) <= AT_ONCE, f"{job.name} was started out of its turn"
                self.events_by_kind["turns"] += 1

    def _has_completed(self, key: str, entries: Entries) -> bool:
        entry = entries[key]
        of_key = [job for job in self._ours() if self._key(job, entries) == key]
        past = self._past_of(key, entry, self._memory(), self._manifest)
        is_done = [job.life.phase == "Completed" for job in of_key]
        is_done += [revision.phase is Phase.COMPLETED for revision in past]
        return any(is_done) and not entry.is_absent

    def _check_it_was_journaled(self) -> None:
        """Check that every call has its journal line, even if the process died."""
        asked = Counter(served.operation for served in self.service.app.requests)
        if self.recording is None or not asked[CREATE] + asked[UPDATE] + asked[STOP]:
            return
        records = self.recording.reading()
        assert records is not None
        [run] = records.runs(self._scope, limit=1)
        lines = Counter(step.call for step in run.steps)
        assert lines["create"] >= asked[CREATE]
        for call, operation in (("update", UPDATE), ("terminate", STOP)):
            assert {step.job for step in run.steps if step.call == call} >= self._asked_about(operation)

    # --- state

    @property
    def _scope(self) -> Scope:
        return Scope.of(STACK, TARGET)

    def _memory(self) -> HistorySnapshot:
        if self.recording is None:
            return NO_HISTORY
        # Unchanged until the next write.
        if self._read[:2] != (self.recording, _written[0]):
            self._read = self.recording, _written[0], self.recording.memory(self._scope)
        return self._read[2]

    def _all_remembered(self) -> list[PastRevision]:
        return [past for of_key in self._memory().by_key.values() for past in of_key]

    def _state(self) -> object:
        """Return everything a plan's preconditions depend on."""
        jobs = [(j.id, j.life.phase, j.body_text) for j in self.service.store.jobs()]
        return jobs, sorted((past.key, past.number, past.job) for past in self._all_remembered())

    def _asked_about(self, operation: str) -> set[str]:
        paths = [served.path for served in self.service.app.requests if served.operation == operation]
        return {path.split("/")[4] for path in paths}

    def _phases(self) -> dict[str, str]:
        return {job.id: job.life.phase for job in self.service.store.jobs()}

    def _near(self) -> list[Job]:
        return [job for job in self.service.store.jobs() if not job.name.startswith("foreign-")]

    def _ours(self) -> list[Job]:
        return [job for job in self.service.store.jobs() if _owner(job) == STACK]

    def _key(self, job: Job, entries: Entries) -> str:
        key = _marker(job).key
        return next((new for new, entry in entries.items() if key in entry.formerly), key)

    # --- invariants at all times

    @invariant()
    def foreign_jobs_are_never_touched(self) -> None:
        found = {job.id: job.body_text for job in self.service.store.jobs()}
        for job_id, body in self.not_ours.items():
            assert found[job_id] == body


@cache
def _empty_records() -> bytes:
    """Copy an empty store: creating its tables is slow."""
    with TemporaryDirectory() as root:
        url, clock = f"sqlite://{root}/records.sqlite3", SharedTime(ManualClock())
        with closing(Recording(url, Path(root), clock)) as recording:
            recording.writing()
        return Path(root, "records.sqlite3").read_bytes()


def _owner(job: Job) -> str | None:
    found = marker_in(job.body_text)
    return found.stack if found and found.is_on_its_own_job(job.name, job.id) else None


def _marker(job: Job) -> Marker:
    found = marker_in(job.body_text)
    assert found is not None
    return found


def _runs(job: Job) -> bool:
    return job.life.phase in ("Creating", "Pending", "Running")


def _has_a_second_step(action: PlannedAction) -> bool:
    """Whether the next plan may have a second step: after a release or restore, or due by now."""
    comes_first = (Reason.PROTECTION_RELEASED, Reason.MARKER_RESTORED)
    return action.reason in comes_first or action.action is Action.DEFER


def _described(actions: Iterable[PlannedAction]) -> list[tuple[str, ...]]:
    return [(a.key, a.action, a.reason, a.before.name if a.before else "", a.detail) for a in actions]


def _bytes(plan: Plan) -> str:
    return json.dumps(without_growing(plan.document()))


class OtcWorld(World):
    """The same on a cloud without name checks, where only descriptions can be changed."""

    cloud = Cloud.OTC


STORIES = settings(
    max_examples=WORLDS // 2 // PARTS,
    stateful_step_count=STEPS,
    deadline=None,
    suppress_health_check=list(HealthCheck),
)


#: Number of writes to a record store.
_written = [0]


@pytest.fixture(scope="module", autouse=True)
def _count_what_is_written() -> Iterator[None]:
    writing = Database.writing

    @contextmanager
    def counted(database: Database) -> Iterator[Transaction]:
        with writing(database) as connection:
            yield connection
        _written[0] += 1

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Database, "writing", counted)
        yield


@pytest.fixture(scope="module", autouse=True)
def _print_events() -> Iterator[None]:
    yield
    print("\n" + ", ".join(f"{count} {what}" for what, count in World.events_by_kind.most_common()))  # noqa: T201


@pytest.mark.usefixtures("_rare_looks")
@pytest.mark.timeout(300)  # A hundred worlds per test, which takes long on a busy machine.
@pytest.mark.parametrize("part", range(PARTS))
@pytest.mark.parametrize("world", [World, OtcWorld])
def test_invariants_hold_in_any_world(
    world: type[World], part: int, record_property: Callable[[str, object], None]
) -> None:
    before = World.events_by_kind["worlds"]
    # A class each, so that each draws other worlds even with a fixed seed.
    run_state_machine_as_test(type(f"{world.__name__}{part}", (world,), {}), settings=STORIES)
    record_property("figure", ["worlds in which all promises held", World.events_by_kind["worlds"] - before])
