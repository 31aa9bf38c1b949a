"""Any manifest, any service, any accident: what must hold whatever happens in which order."""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import dataclass, replace
from typing import Any

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from reconciler import reconcile
from reconciler.apply.executor import EventStream
from reconciler.core.identity import Marker, parse_description, remote_name
from reconciler.core.marks import Cloud
from reconciler.core.outcome import Result, Status
from reconciler.core.plan import Action, Plan, PlannedAction, Reason
from reconciler.core.planner import Options
from reconciler.core.stack import DesiredJob, ReplaceOrder, Stack
from reconciler.emulator import Job, chaos
from tests.apply.service import PROJECT, STOP, UPDATE, Service, a_service, marker
from tests.builders import STACK, a_job, a_stack, absent

KEYS = ("a", "b", "c")
ACTIVE = ("Creating", "Pending", "Running", "Terminating")
ENDED = ("Completed", "Failed", "Terminated", "Abnormal")
PHASES = ("Pending", "Running", *ENDED)
WITHOUT_GUARDS = Options(force=True, allow_empty=True)

Lifecycle = dict[str, Any]
lifecycles = st.fixed_dictionaries(
    {},
    optional={
        "on_change": st.sampled_from(["replace", "keep", "fail"]),
        "on_failure": st.sampled_from(["keep", "retry"]),
        "on_terminated": st.sampled_from(["keep", "recreate"]),
        "max_retries": st.integers(0, 2),
        "retry_delay": st.sampled_from(["1s", "10m"]),
        "replace_order": st.sampled_from(["terminate_first", "create_first"]),
        "rerun": st.sampled_from(["once", "twice"]),
    },
)

# What is drawn must not depend on what there is: two runs of the same story may differ in ids and times.
places = st.integers(0, 11)


@dataclass(frozen=True)
class Entry:
    """What the manifest says under one key."""

    lr: float = 0.1
    text: str = ""
    priority: int | None = None
    protect: bool | None = None
    lifecycle: tuple[tuple[str, Any], ...] = ()
    is_absent: bool = False

    def job(self, key: str) -> DesiredJob:
        """The desired job."""
        lifecycle = dict(self.lifecycle) | ({} if self.protect is None else {"protect": self.protect})
        if self.is_absent:
            return absent(key, **lifecycle)
        more: dict[str, Any] = {"algorithm__parameters": {"lr": self.lr}, "description": self.text}
        if self.priority:
            more["spec__schedule_policy"] = {"priority": self.priority}
        return a_job(key, lifecycle=lifecycle, **more)


class World(RuleBasedStateMachine):
    """A manifest of three keys, a service that lives, strangers on it, and us."""

    cloud = Cloud.HUAWEI

    def __init__(self) -> None:
        super().__init__()
        self._cleanup = ExitStack()
        self.service: Service = self._cleanup.enter_context(a_service(self.cloud, running=6000))
        self.entries: dict[str, Entry] = {}
        self.not_ours: dict[str, str] = {}

    def teardown(self) -> None:
        self._cleanup.close()

    # --- the manifest

    @rule(key=st.sampled_from(KEYS), lr=st.sampled_from([0.1, 0.2]))
    def declare(self, key: str, lr: float) -> None:
        self.entries[key] = replace(self.entries.get(key, Entry()), lr=lr, is_absent=False)

    @rule(key=st.sampled_from(KEYS), lifecycle=lifecycles)
    def declare_lifecycle(self, key: str, lifecycle: Lifecycle) -> None:
        entry = self.entries.get(key, Entry())
        self.entries[key] = replace(entry, lifecycle=tuple(lifecycle.items()))

    @rule(key=st.sampled_from(KEYS), text=st.sampled_from(["", "text", "another text"]))
    def edit_description(self, key: str, text: str) -> None:
        self.entries[key] = replace(self.entries.get(key, Entry()), text=text)

    @rule(key=st.sampled_from(KEYS), priority=st.sampled_from([None, 1, 3]))
    def edit_priority(self, key: str, priority: int | None) -> None:
        self.entries[key] = replace(self.entries.get(key, Entry()), priority=priority)

    @rule(key=st.sampled_from(KEYS), protect=st.sampled_from([None, True, False]))
    def protect(self, key: str, protect: bool | None) -> None:
        self.entries[key] = replace(self.entries.get(key, Entry()), protect=protect)

    @rule(key=st.sampled_from(KEYS))
    def say_absent(self, key: str) -> None:
        self.entries[key] = replace(self.entries.get(key, Entry()), is_absent=True)

    @rule(key=st.sampled_from(KEYS))
    def remove(self, key: str) -> None:
        self.entries.pop(key, None)

    # --- other people

    @rule(
        key=st.sampled_from(KEYS),
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
        for job in self._at(place, self.service.store.jobs()):
            beside = [other for other in self._ours() if other.life.phase in ACTIVE and other.id != job.id]
            # Who restarts an old revision beside the new one has two of his own making.
            if phase in ENDED or job.id in self.not_ours or _key(job) not in map(_key, beside):
                self.service.store.set_phase(job.id, phase)

    @rule(place=places)
    def delete_a_record(self, place: int) -> None:
        for job in self._at(place, self.service.store.jobs()):
            self.not_ours.pop(job.id, None)
            self.service.store.delete(PROJECT, job.id)

    @rule(place=places, how=st.sampled_from(["text", "wiped", "given away", "protected", "stopped"]))
    def edit_by_hand(self, place: int, how: str) -> None:
        for job in self._at(place, self._ours()):
            ours = _marker(job)
            said = {
                "text": f"somebody's {ours}",
                "wiped": "mine now",
                "given away": str(replace(ours, stack="other")),
                "protected": str(replace(ours, protected=True)),
                "stopped": str(replace(ours, stopped=True)),
            }[how]
            self.service.describe(job.name, said)
            if how in ("wiped", "given away"):
                self.not_ours[job.id] = self.service.store.find(job.id).body_text

    def _at(self, place: int, jobs: list[Job]) -> list[Job]:
        """The job at a place, counted round and round; none where there are none."""
        return sorted(jobs, key=lambda job: job.name)[place % len(jobs) :][:1] if jobs else []

    # --- we

    @rule(force=st.booleans())
    def apply(self, force: bool) -> None:
        self._apply_for_good(Options(force=force, allow_empty=True))

    @rule(seed=st.integers(0, 1000), probability=st.sampled_from([0.05, 0.3]))
    def apply_amid_faults(self, seed: int, probability: float) -> None:
        self.service.fail(*chaos(probability, seed))
        self._carry_out(self._plan(WITHOUT_GUARDS))
        self.service.app.faults.clear()
        self._apply_for_good(WITHOUT_GUARDS)

    @rule(key=st.sampled_from(KEYS))
    def destroy_one(self, key: str) -> None:
        if key in self.entries or key in map(_key, self._ours()):
            context = self.service.context(self._stack(), only=(key,))
            plan = reconcile.destroy_plan(context)
            assert {action.key for action in plan.actions} <= {key}
            self._carry_out(plan, destroys=True)

    def _stack(self) -> Stack:
        return a_stack(*(entry.job(key) for key, entry in self.entries.items()))

    def _plan(self, options: Options) -> Plan:
        first = reconcile.plan(self.service.context(self._stack()), options)
        if not list(self.service.app.faults):
            second = reconcile.plan(self.service.context(self._stack()), options)
            assert _bytes(first) == _bytes(second)
        return first

    def _apply_for_good(self, options: Options) -> None:
        """Without faults everything is done, and the next plan has nothing to do."""
        plan, before = self._plan(options), self._phases()
        result = self._carry_out(plan)
        after = self._phases()
        stopped = self._asked_about(STOP)
        if any(after[job_id] != phase for job_id, phase in before.items() if job_id not in stopped):
            return  # the service moved while we waited
        assert not [o for o in result.outcomes if o.status not in (Status.DONE, Status.SKIPPED)]
        in_two_steps = {action.key for action in plan.actions if _has_a_second_step(action)}
        left = [a for a in self._plan(options).to_execute if a.key not in in_two_steps]
        assert not left, [(a.key, a.action, a.reason, a.detail) for a in left]

    def _carry_out(self, plan: Plan, *, destroys: bool = False) -> Result:
        service, before = self.service, {job.id: job for job in self._ours()}
        protected = {job.id for job in before.values() if _marker(job).protected or self._entry(job).protect}
        as_declared = {} if destroys else self._running_as_declared()
        service.forget_requests()
        result = reconcile.apply(
            service.context(self._stack(), parallelism=1),
            plan,
            EventStream(service.time, lambda _: None),
            service.stop,
            timeout_s=600,
        )
        stopped, written = self._asked_about(STOP), self._asked_about(UPDATE)
        to_stop = {a.before.id for a in plan.actions if a.before and a.traits.stops_a_job}
        to_touch = {a.before.id for a in plan.to_execute if a.before}
        assert stopped <= to_stop, "only what the plan names is terminated"
        assert written <= to_touch, "only what the plan names is written on"
        assert stopped | written <= before.keys(), "only our own jobs"
        assert not stopped & protected, "no protected job is terminated"
        assert all(_marker(job).stopped for job in self._ours() if job.id in stopped), "and says so"
        assert not any(ids <= stopped for ids in as_declared.values()), "what runs as declared goes on"
        self._see_that_none_was_started_beside_another(plan, set(before))
        return result

    def _entry(self, job: Job) -> Entry:
        return self.entries.get(_key(job), Entry())

    def _running_as_declared(self) -> dict[str, set[str]]:
        """The jobs of each key that run with the declared digest; one of them must go on."""
        found: dict[str, set[str]] = {}
        for key, entry in self.entries.items():
            same = [
                job
                for job in self._ours()
                if _key(job) == key and _marker(job).digest == entry.job(key).digest
            ]
            done = max((_marker(job).revision for job in same if job.life.phase == "Completed"), default=0)
            running = {job.id for job in same if _runs(job) and _marker(job).revision > done}
            if running and not entry.is_absent:
                found[key] = running
        return found

    def _see_that_none_was_started_beside_another(self, plan: Plan, before: set[str]) -> None:
        create_first = {a.key for a in plan.actions if a.replace_order is ReplaceOrder.CREATE_FIRST}
        for job in self._ours():
            if job.id in before or _key(job) in create_first:
                continue
            for other in self._ours():
                if other.id != job.id and _key(other) == _key(job) and not _marker(other).protected:
                    assert other.life.phase in ENDED, f"{job.name} was started beside {other.name}"
                    assert other.life.ended_ms <= job.create_ms

    def _asked_about(self, operation: str) -> set[str]:
        """The jobs for which an operation was asked."""
        paths = [served.path for served in self.service.app.requests if served.operation == operation]
        return {path.split("/")[4] for path in paths}

    def _phases(self) -> dict[str, str]:
        return {job.id: job.life.phase for job in self.service.store.jobs()}

    def _ours(self) -> list[Job]:
        return [job for job in self.service.store.jobs() if _owner(job) == STACK]

    # --- what holds at all times

    @invariant()
    def what_is_not_ours_is_never_touched(self) -> None:
        found = {job.id: job.body_text for job in self.service.store.jobs()}
        for job_id, body in self.not_ours.items():
            assert found[job_id] == body


def _owner(job: Job) -> str | None:
    found = parse_description(str(job.body["metadata"]["description"])).marker
    return found.stack if found and found.is_on_its_own_job(job.name, job.id) else None


def _marker(job: Job) -> Marker:
    found = parse_description(str(job.body["metadata"]["description"])).marker
    assert found is not None
    return found


def _key(job: Job) -> str:
    return _marker(job).key


def _runs(job: Job) -> bool:
    return job.life.phase in ("Creating", "Pending", "Running")


def _has_a_second_step(action: PlannedAction) -> bool:
    """Whether the next plan may go on: released first, or due by now."""
    return action.reason is Reason.PROTECTION_RELEASED or action.action is Action.DEFER


def _bytes(plan: Plan) -> str:
    return plan.model_copy(update={"created_at": ""}).model_dump_json()


class OtcWorld(World):
    """The same on a cloud that cannot check a name, and changes descriptions only."""

    cloud = Cloud.OTC


LONG_STORIES = settings(
    max_examples=100,
    stateful_step_count=30,
    deadline=None,
    suppress_health_check=list(HealthCheck),
)
TestWorld = World.TestCase
TestOtcWorld = OtcWorld.TestCase
TestWorld.settings = TestOtcWorld.settings = LONG_STORIES
