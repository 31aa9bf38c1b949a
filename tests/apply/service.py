"""A service to apply against: the emulator in this process, one clock for both, a gate in front of it."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from functools import lru_cache
from pathlib import Path
from typing import Any

from reconciler import reconcile
from reconciler.apply.executor import EventStream
from reconciler.core.fields.field_types import Cloud
from reconciler.core.identity import Marker, parse_description
from reconciler.core.ports import Clock
from reconciler.core.record import RecordsUnavailable
from reconciler.core.stack import DesiredJob, Stack
from reconciler.decide.outcome import ApplyEvent, Outcome, Result
from reconciler.decide.plan import Allowances, Plan
from reconciler.emulator import Application, Durations, Fault, Job, ManualClock, Store, create_app
from reconciler.manifest import LoadedStack
from reconciler.modelarts.connect import ModelArtsBackend, connect_inprocess
from reconciler.modelarts.http import SessionOptions
from reconciler.modelarts.target import Connected
from reconciler.reconcile import Context
from reconciler.records.recording import Recording
from tests.builders import STACK, TARGET, a_stack

PROJECT = "local"

CREATE, FIND, SHOW = "CreateTrainingJob", "ListTrainingJobs", "ShowTrainingJobDetails"
UPDATE, STOP, CHECK_NAME = "ChangeTrainingJobDescription", "StopTrainingJob", "ValidateTrainingJobName"


#: Tests use stacks without jobs on purpose.
UNFORCED = Allowances.of(["empty"])


class SharedTime:
    """Our clock: sleeping advances the emulator's clock at once.

    `at` runs a callback after that much sleep.
    """

    def __init__(self, clock: ManualClock) -> None:
        self.clock = clock
        self.slept: list[float] = []
        self._due: list[tuple[float, Callable[[], object]]] = []

    def now(self) -> float:
        """Seconds since 1970, as the emulator counts them."""
        return self.clock.now_ms() / 1000

    def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        self.clock.advance(seconds=seconds)
        due = [do for at, do in self._due if at <= self.now()]
        self._due = [(at, do) for at, do in self._due if at > self.now()]
        for do in due:
            do()

    def at(self, seconds: float, do: Callable[[], object]) -> None:
        self._due.append((self.now() + seconds, do))


class Gate:
    """Wraps the emulator: runs a callback just before, or just after, a request."""

    def __init__(self, app: Application) -> None:
        self._app = app
        self._before: list[tuple[str, Callable[[], object]]] = []
        self._after: list[tuple[str, Callable[[], object]]] = []

    def before(self, operation: str, do: Callable[[], object], *, always: bool = False) -> None:
        """Run a callback before the next request for an operation; `always`: before each."""
        self._before.append((operation, do if always else _once(do)))

    def after(self, operation: str, do: Callable[[], object]) -> None:
        """Run a callback after the effect of the next request for an operation, before its response."""
        self._after.append((operation, _once(do)))

    def __call__(self, environ: dict[str, Any], start_response: Callable[..., Any]) -> Iterable[bytes]:
        operation = _operation(environ["REQUEST_METHOD"], environ["PATH_INFO"])
        for wanted, do in list(self._before):
            if wanted == operation:
                do()
        answer = self._app(environ, start_response)
        for wanted, do in list(self._after):
            if wanted == operation:
                do()
        return answer


def _once(do: Callable[[], object]) -> Callable[[], object]:
    left = [do]

    def run() -> None:
        if left:
            left.pop()()

    return run


def _operation(method: str, path: str) -> str:
    last = path.rpartition("/")[2]
    by_last = {"training-jobs": CREATE, "training-job-searches": FIND, "actions": STOP}
    if last == "training-job-names":
        return CHECK_NAME
    return by_last.get(last) or {"GET": SHOW, "PUT": UPDATE}.get(method, "")


def unrecorded(clock: Clock) -> Recording:
    recording = Recording(None, Path(), clock, goes_on_without=True)
    recording.go_on_without(RecordsUnavailable())
    return recording


class Service:
    def __init__(self, store: Store, clock: ManualClock, cloud: Cloud) -> None:
        self.store, self.clock, self.cloud = store, clock, cloud
        self.app = create_app(store, project_id=PROJECT, cloud=cloud.value)
        self.gate = Gate(self.app)
        self.time = SharedTime(clock)
        self.stop = threading.Event()
        self.backend: ModelArtsBackend = connect_inprocess(
            self.gate,
            project_id=PROJECT,
            cloud=cloud,
            options=SessionOptions(clock=self.time, stop=self.stop),
        )
        self.events: list[ApplyEvent] = []
        self.recording = unrecorded(self.time)

    def context(self, stack: Stack, *, only: tuple[str, ...] = (), parallelism: int = 8) -> Context:
        loaded = LoadedStack(stack, Path(), {}, None, manifest_digest="sha256:0")
        target = Connected(self.backend, TARGET, self.cloud, self.time)
        return Context(loaded, target, self.recording, only=only, parallelism=parallelism)

    def plan(self, *jobs: DesiredJob, allowances: Allowances = UNFORCED) -> Plan:
        """Plan a stack of these jobs."""
        return reconcile.plan(self.context(a_stack(*jobs)), allowances)

    def carry_out(self, plan: Plan, *, parallelism: int = 8, timeout_s: float = 600) -> Result:
        self.events.clear()
        stream = EventStream(self.time, self.events.append)
        context = self.context(a_stack(), parallelism=parallelism)
        return reconcile.apply(context, plan, stream, self.stop, timeout_s=timeout_s)

    def apply(self, *jobs: DesiredJob, timeout_s: float = 600, parallelism: int = 8) -> Result:
        return self.carry_out(self.plan(*jobs), timeout_s=timeout_s, parallelism=parallelism)

    def run(self, *jobs: DesiredJob) -> Job:
        """Apply jobs for the first time and let them run; return the last of them."""
        result = self.apply(*jobs)
        assert all(outcome.status == "done" for outcome in result.outcomes)
        self.time.sleep(10)
        return self.store.jobs()[-1]

    def fail(self, *faults: Fault) -> None:
        self.app.faults.add(*faults)

    def forget_requests(self) -> None:
        """Count from here on."""
        self.app.requests.clear()

    def asked(self, operation: str) -> int:
        return sum(served.operation == operation for served in self.app.requests)

    @property
    def changes(self) -> list[str]:
        """The mutating operations, in order."""
        changing = {CREATE, UPDATE, STOP}
        return [served.operation for served in self.app.requests if served.operation in changing]

    def phases(self) -> dict[str, str]:
        return {job.name: job.life.phase for job in self.store.jobs()}

    def job(self, name: str) -> Job:
        [job] = [job for job in self.store.jobs() if job.name == name]
        return job

    def description(self, name: str) -> str:
        return str(self.job(name).body["metadata"]["description"])

    def describe(self, name: str, text: str) -> None:
        self.store.edit(self.job(name).id, lambda body: body["metadata"].update(description=text))

    def put_job(self, name: str, description: str = "", body: dict[str, Any] | None = None) -> Job:
        made = dict(body or {"kind": "job", "algorithm": {}, "spec": {"resource": {"node_count": 1}}})
        made["metadata"] = {"name": name, "workspace_id": "0", "description": description}
        return self.store.create(PROJECT, made)

    def put_hidden_job(self, name: str) -> Job:
        """Create a foreign job that takes a name but is invisible to our account."""
        job = self.put_job(name)
        # It appears as a job of another workspace, which the backend skips.
        return self.store.edit(job.id, lambda body: body["metadata"].update(workspace_id="w" * 32))


@contextmanager
def a_service(cloud: Cloud = Cloud.HUAWEI, **durations: float) -> Iterator[Service]:
    clock = ManualClock()
    lasting = Durations(**({"running": 1e6} | durations))
    with Store(clock=clock, durations=lasting, noise=False) as store:
        service = Service(store, clock, cloud)
        with service.backend:
            yield service


def the_only(result: Result) -> Outcome:
    [outcome] = result.outcomes
    return outcome


def marker(key: str, revision: int, digest: str, *flags: str, stack: str = STACK) -> str:
    return ".".join([f"reconciler.{stack}.{key}.r{revision}.{digest}", *flags])


@lru_cache(maxsize=4096)
def marker_in(body_text: str) -> Marker | None:
    return parse_description(str(json.loads(body_text)["metadata"]["description"])).marker
