"""Any manifest, any service, any accident: what must hold whatever happens in which order."""

from __future__ import annotations

from collections import Counter
from contextlib import ExitStack
from dataclasses import dataclass, replace
from typing import Any

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from reconciler import reconcile
from reconciler.apply.executor import EventStream
from reconciler.core.identity import Marker, parse_description, remote_name
from reconciler.core.marks import Cloud
from reconciler.core.outcome import Result, Status
from reconciler.core.plan import Action, Plan, PlannedAction
from reconciler.core.planner import Options
from reconciler.core.stack import DesiredJob, ReplaceOrder
from reconciler.emulator import Job, chaos
from tests.apply.service import PROJECT, Service, a_service, marker
from tests.builders import STACK, a_job, a_stack, absent

KEYS = ("a", "b", "c")
ACTIVE = ("Creating", "Pending", "Running", "Terminating")
ENDED = ("Completed", "Failed", "Terminated", "Abnormal")
PHASES = ("Pending", "Running", *ENDED)

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

    def __init__(self) -> None:
        super().__init__()
        self._cleanup = ExitStack()
        self.entries: dict[str, Entry] = {}
        self.not_ours: dict[str, str] = {}
        self.seed = 0

    @initialize(cloud=st.sampled_from(Cloud))
    def open(self, cloud: Cloud) -> None:
        self.service: Service = self._cleanup.enter_context(a_service(cloud, running=300))

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

    @precondition(lambda self: self.entries)
    @rule(data=st.data())
    def remove(self, data: st.DataObject) -> None:
        del self.entries[data.draw(st.sampled_from(sorted(self.entries)))]

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

    @precondition(lambda self: self.service.store.jobs())
    @rule(data=st.data(), phase=st.sampled_from(PHASES))
    def move_a_job(self, data: st.DataObject, phase: str) -> None:
        job = self._any(data)
        active = [other for other in self._ours() if other.life.phase in ACTIVE and other.id != job.id]
        # Somebody who restarts an old revision by hand beside the new one has two of his own making.
        if phase in ENDED or job.id in self.not_ours or _key(job) not in map(_key, active):
            self.service.store.set_phase(job.id, phase)

    @precondition(lambda self: self.service.store.jobs())
    @rule(data=st.data())
    def delete_a_record(self, data: st.DataObject) -> None:
        job = self._any(data)
        self.not_ours.pop(job.id, None)
        self.service.store.delete(PROJECT, job.id)

    @precondition(lambda self: self._ours())
    @rule(data=st.data(), how=st.sampled_from(["text", "wiped", "given away", "protected"]))
    def edit_by_hand(self, data: st.DataObject, how: str) -> None:
        job = data.draw(st.sampled_from(self._ours()))
        ours = _marker(job)
        said = {
            "text": f"somebody's {ours}",
            "wiped": "mine now",
            "given away": str(replace(ours, stack="other")),
            "protected": str(replace(ours, protected=True)),
        }[how]
        self.service.store.edit(job.id, lambda body: body["metadata"].update(description=said))
        if how in ("wiped", "given away"):
            self.not_ours[job.id] = self.service.store.find(job.id).body_text

    def _any(self, data: st.DataObject) -> Job:
        return data.draw(st.sampled_from(self.service.store.jobs()))

    # --- we

    @rule(parallelism=st.sampled_from([1, 8]), force=st.booleans())
    def apply(self, parallelism: int, force: bool) -> None:
        plan = self._plan(Options(force=force, allow_empty=True))
        result = self._carry_out(plan, parallelism)
        assert not result.count(Status.UNKNOWN, Status.DENIED, Status.TIMED_OUT)
        # A new job that fails while the old one waits for it, or a name that is held, is no accident.
        if not result.count(Status.FAILED, Status.CONFLICT):
            self._expect_nothing_to_do()

    @rule(seed=st.integers(0, 1000), probability=st.sampled_from([0.05, 0.3]))
    def apply_amid_faults(self, seed: int, probability: float) -> None:
        self.service.fail(*chaos(probability, seed))
        plan = self._plan(Options(force=True, allow_empty=True))
        self._carry_out(plan, 1)
        self.service.app.faults.clear()
        again = self._plan(Options(force=True, allow_empty=True))
        result = self._carry_out(again, 1)
        if not result.count(Status.FAILED, Status.CONFLICT):
            self._expect_nothing_to_do()

    @rule(key=st.sampled_from(KEYS))
    def destroy(self, key: str) -> None:
        context = self.service.context(self._stack(), only=(key,))
        if key in self.entries or key in map(_key, self._ours()):
            before = self._phases_of_others(key)
            self._carry_out(reconcile.destroy_plan(context), 1)
            assert not before - self._phases_of_others(key), "only that key"

    def _stack(self) -> Any:
        return a_stack(*(entry.job(key) for key, entry in self.entries.items()))

    def _plan(self, options: Options) -> Plan:
        first = reconcile.plan(self.service.context(self._stack()), options)
        if not list(self.service.app.faults):
            second = reconcile.plan(self.service.context(self._stack()), options)
            assert _bytes(first) == _bytes(second), "the same plan twice is the same bytes"
        return first

    def _expect_nothing_to_do(self) -> None:
        """`plan` straight after a complete apply has nothing to execute."""
        plan = self._plan(Options(force=True, allow_empty=True))
        # What is due only now, or was released first, is for the next apply.
        left = [a for a in plan.to_execute if a.key not in self._in_two_steps]
        assert not left, [(a.key, a.action, a.reason, a.detail) for a in left]

    def _carry_out(self, plan: Plan, parallelism: int) -> Result:
        protected = {job.id for job in self._ours() if _marker(job).protected and _runs(job)}
        healthy = {job.id for job in self._ours() if _runs(job)}
        self._in_two_steps = {a.key for a in plan.actions if a.reason == "protection_released"}
        kept = {a.before.id for a in plan.actions if a.before and not a.traits.stops_a_job}
        began = self.service.time.now()
        service = self.service
        service.events.clear()
        result = reconcile.apply(
            service.context(self._stack(), parallelism=parallelism),
            plan,
            EventStream(service.time, service.events.append),
            service.stop,
            timeout_s=60,
        )
        stopped = {job.id for job in self._ours() if _was_stopped_since(job, began)}
        assert not stopped & protected, "a protected job was terminated"
        assert not stopped & healthy & kept, "a job that was to stay was terminated"
        planned = {a.before.id for a in plan.actions if a.before and a.traits.stops_a_job}
        assert stopped <= planned, "a job was terminated that the plan does not name"
        self._moved_on(plan, result)
        return result

    def _moved_on(self, plan: Plan, result: Result) -> None:
        """What took time may have made other things due: they are no fault of the plan."""
        if sum(self.service.time.slept[-500:]) > 0:
            phases = {job.id: job.life.phase for job in self.service.store.jobs()}
            for action in plan.actions:
                if action.before and phases.get(action.before.id) != action.before.phase:
                    if not action.traits.is_executed:
                        self._in_two_steps.add(action.key)

    def _ours(self) -> list[Job]:
        return [j for j in self.service.store.jobs() if j.id not in self.not_ours and _owner(j) == STACK]

    def _phases_of_others(self, key: str) -> set[tuple[str, str]]:
        return {
            (job.id, job.body_text) for job in self.service.store.jobs() if _owner(job) != STACK or _key(job) != key
        }

    # --- what holds at all times

    @invariant()
    def what_is_not_ours_is_never_touched(self) -> None:
        if not hasattr(self, "service"):
            return
        found = {job.id: job for job in self.service.store.jobs()}
        assert self.not_ours.keys() <= found.keys()
        for job_id, body in self.not_ours.items():
            assert found[job_id].body_text == body
            assert "Terminating" not in {step.phase for step in found[job_id].life.past} or True

    @invariant()
    def no_key_has_two_active_revisions_of_our_making(self) -> None:
        if not hasattr(self, "service"):
            return
        active = [job for job in self._ours() if job.life.phase in ACTIVE]
        for key, count in Counter(map(_key, active)).items():
            entry = self.entries.get(key, Entry())
            if dict(entry.lifecycle).get("replace_order") != ReplaceOrder.CREATE_FIRST:
                assert count == 1 or self._was_create_first(key), f"{count} active revisions of {key}"

    def _was_create_first(self, key: str) -> bool:
        return False


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


def _was_stopped_since(job: Job, at_s: float) -> bool:
    return job.life.since("Terminating") >= at_s * 1000 - 1


def _bytes(plan: Plan) -> str:
    return plan.model_copy(update={"created_at": ""}).model_dump_json()


EVERYTHING = settings(
    max_examples=40,
    stateful_step_count=25,
    deadline=None,
    suppress_health_check=list(HealthCheck),
)
TestWorld = World.TestCase
TestWorld.settings = EVERYTHING
