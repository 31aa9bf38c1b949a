"""A stack in its own directory, and the command line as a user calls it."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from reconciler.cli.console import console
from reconciler.cli.main import cli, run
from reconciler.emulator import Application, Effect, Fault, Job, ManualClock, Store, create_app, running
from reconciler.modelarts import local
from reconciler.processes.table import ProcessStore
from reconciler.secrets import Redactor
from tests.apply.service import SharedTime
from tests.modelarts.building import a_body

#: One text, or several.
Texts = str | Sequence[str]
#: The mutating operations of the service.
CHANGING = {
    "CreateTrainingJob",
    "ChangeTrainingJobDescription",
    "StopTrainingJob",
    "DeleteTrainingJob",
    "BatchDeleteTrainingJob",
}
JOB = """\
  {key}:
    description: {key} of the test
    algorithm:
      code_dir: obs://b/code/
      boot_file: obs://b/code/train.py
      engine: {{engine_id: pytorch_1.8.0-cuda_10.2-py_3.7-ubuntu_18.04-x86_64}}
      parameters: {{lr: {lr}}}
    spec:
      resource: {{flavor_id: modelarts.vm.cpu.2u}}
"""


class Result(NamedTuple):
    """The exit code and output of a run."""

    code: int
    out: str
    err: str

    @property
    def document(self) -> Any:
        """stdout as JSON."""
        return json.loads(self.out)

    @property
    def events(self) -> list[dict[str, Any]]:
        """stdout as JSON lines."""
        return [json.loads(line) for line in self.out.splitlines()]


class Reconciler:
    """The command line: `reconciler("jobs show --json", job_id)`; the first argument is split at spaces."""

    def __init__(self, capsys: pytest.CaptureFixture[str], patch: pytest.MonkeyPatch) -> None:
        self.capsys, self.patch, self.setenv = capsys, patch, patch.setenv

    def __call__(self, line: str = "", *more: str) -> Result:
        code = run(cli, [*line.split(), *more])
        captured = self.capsys.readouterr()
        return Result(code, captured.out, captured.err)

    def ends(
        self,
        code: int,
        line: str,
        *more: str,
        out: Texts | None = None,
        err: Texts | None = None,
        lacks: Texts = (),
    ) -> Result:
        """Run a command that must exit with this code.

        `out` and `err` must contain the texts, and neither stream those of `lacks`; "" means empty.
        """
        result = self(line, *more)
        assert result.code == code, result
        for texts, written in ((out, result.out), (err, result.err)):
            assert texts != "" or written == ""
            for text in _each(texts or ()):
                assert text in written
        for text in _each(lacks):
            assert text not in result.out + result.err
        return result

    def apply(self, text: str) -> None:
        """Write a manifest into the current directory and apply it."""
        write(text)
        self.ends(0, "apply --yes")


def _each(texts: Texts) -> Sequence[str]:
    return [texts] if isinstance(texts, str) else texts


@pytest.fixture(autouse=True)
def _fresh_console(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(console, "redact", Redactor())
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("NO_COLOR", raising=False)
    for name in ("GITHUB_WORKSPACE", "GITHUB_STEP_SUMMARY", "GITHUB_OUTPUT"):
        monkeypatch.delenv(name, raising=False)
    for name in ("MODELARTS_AUTH_TOKEN", "OS_AUTH_TOKEN", "OS_TOKEN", "HUAWEICLOUD_SDK_AK", "HW_ACCESS_KEY"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))


@pytest.fixture(autouse=True)
def _local_time_is_moved(monkeypatch: pytest.MonkeyPatch) -> None:
    """Advance the emulator clock of a local target; for a process target wait briefly."""
    sleep = local._LocalClock.sleep

    def put_forward(clock: local._LocalClock, seconds: float) -> None:
        if isinstance(clock._store, ProcessStore):
            sleep(clock, min(seconds, 0.05))
        else:
            clock._store.clock.advance(seconds=seconds)

    monkeypatch.setattr(local._LocalClock, "sleep", put_forward)


@pytest.fixture
def reconciler(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Reconciler:
    return Reconciler(capsys, monkeypatch)


class Service(NamedTuple):
    """An emulator over HTTP."""

    url: str
    app: Application
    clock: ManualClock

    @property
    def store(self) -> Store:
        """Its jobs."""
        return self.app.store


@contextmanager
def a_service(
    patch: pytest.MonkeyPatch, *, unreported: tuple[str, ...] = (), tells_time: bool = False
) -> Iterator[Service]:
    """A service that requires the token of the environment."""
    clock = ManualClock()
    with Store(clock=clock, unreported=unreported) as store:
        app = create_app(store, project_id="p1", token="tell-nobody-1", tells_time=tells_time)
        patch.setenv("MODELARTS_AUTH_TOKEN", "tell-nobody-1")
        with running(app) as url:
            yield Service(url, app, clock)


@pytest.fixture
def service(monkeypatch: pytest.MonkeyPatch) -> Iterator[Service]:
    with a_service(monkeypatch) as service:
        yield service


class World(Reconciler):
    """The command line and a service; waiting advances the clock of both at once."""

    def __init__(
        self, capsys: pytest.CaptureFixture[str], patch: pytest.MonkeyPatch, service: Service
    ) -> None:
        super().__init__(capsys, patch)
        self.service, self.store, self.url = service, service.store, service.url
        self.time = SharedTime(service.clock)

    def manifest(self, *keys: str, **more: str) -> str:
        """A manifest with these jobs, on this service."""
        return manifest(*keys, url=self.url, **more)

    def write(self, *keys: str, **more: str) -> Path:
        """Declare these jobs in the current directory."""
        return write(self.manifest(*keys, **more))

    def put(self, name: str = "a", phase: str = "", description: str = "", **body: Any) -> Job:
        """Create a foreign job, held in its phase if given."""
        job = self.store.create("p1", {**a_body(name, description), **body})
        if phase:
            self.store.set_phase(job.id, phase)
            self.store.hold(job.id)
        return job

    def fail(self, operation: str | None = None, effect: Effect = Effect.ANSWER, **more: Any) -> None:
        """Make requests fail from now on."""
        self.service.app.faults.add(Fault(effect, operation=operation, **more))

    def job(self, name: str) -> Job:
        """The job of that name."""
        return next(job for job in self.store.jobs() if job.name == name)

    def phases(self) -> dict[str, str]:
        """The phase of each job, by its name."""
        return {job.name: job.life.phase for job in self.store.jobs()}

    def set_phase(self, phase: str, *names: str) -> None:
        """Put these jobs, or all, into a phase."""
        for job in self.store.jobs():
            if not names or job.name in names:
                self.store.set_phase(job.id, phase)

    def describe(self, name: str, text: str) -> None:
        """Change the description of a job by hand."""
        self.store.edit(self.job(name).id, lambda body: body["metadata"].update(description=text))

    def descriptions(self) -> dict[str, str]:
        """The description of each job, by its name."""
        return {job.name: job.body["metadata"]["description"] for job in self.store.jobs()}

    @property
    def requests(self) -> list[str]:
        """The requested operations, in order."""
        return [served.operation for served in self.service.app.requests]

    @property
    def changes(self) -> list[str]:
        """The mutating ones of them."""
        return [operation for operation in self.requests if operation in CHANGING]

    def forget_requests(self) -> None:
        """Clear the recorded requests."""
        self.service.app.requests.clear()


@pytest.fixture
def world(capsys: pytest.CaptureFixture[str], service: Service, monkeypatch: pytest.MonkeyPatch) -> World:
    """A service, and the command line in an empty directory."""
    world = World(capsys, monkeypatch, service)
    for module in ("reconciler.modelarts.clock", "reconciler.fleet"):
        monkeypatch.setattr(f"{module}.SystemClock", lambda *_: world.time)
    return world


def manifest(*keys: str, url: str | None = None, lr: str = "0.1", more: str = "") -> str:
    """A manifest with these jobs, on the service or on the embedded emulator."""
    target = "{kind: local}" if url is None else f"{{kind: modelarts, endpoint: '{url}', project_id: p1}}"
    jobs = "".join(JOB.format(key=key, lr=lr) for key in keys)
    head = f"apiVersion: reconciler/v1\nstack: test\ntargets:\n  there: {target}\n{more}"
    return head + (f"jobs:\n{jobs}" if keys else "")


def write(text: str, name: str = "jobs.yaml") -> Path:
    """Write a file below the current directory."""
    path = Path(name)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
    return path


def put_finished_job(store: Store | None = None, stack: str = "test", project: str = "local") -> None:
    """Create a completed job of a key that is no longer declared.

    The stack is then known, so a declared key without a job is missing.
    """
    if store is None:
        Path(".reconciler").mkdir(mode=0o700, exist_ok=True)
        with Store(".reconciler/local.sqlite3") as local:
            put_finished_job(local, stack)
        return
    description = f"reconciler.{stack}.earlier.r1.a000000000000"
    body = {"kind": "job", "metadata": {"name": "earlier", "workspace_id": "0", "description": description}}
    job = store.create(project, {**body, "algorithm": {}, "spec": {"resource": {"node_count": 1}}})
    store.set_phase(job.id, "Completed")
