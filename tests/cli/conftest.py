"""A stack in a directory of its own, and the command line as a user calls it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from reconciler.cli.console import console
from reconciler.cli.main import cli, run
from reconciler.emulator import Application, ManualClock, Store, create_app, running
from reconciler.secrets import Redactor

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


class Said(NamedTuple):
    """What a run ended with and wrote."""

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


class Reconciler(NamedTuple):
    """The command line: `reconciler("plan", "--json")`."""

    capsys: pytest.CaptureFixture[str]

    def __call__(self, *arguments: str) -> Said:
        code = run(cli, list(arguments))
        captured = self.capsys.readouterr()
        return Said(code, captured.out, captured.err)

    def apply(self, text: str) -> None:
        """Have a manifest in the current directory, and its jobs on the target."""
        write(text)
        assert self("apply", "--yes").code == 0


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


@pytest.fixture
def reconciler(capsys: pytest.CaptureFixture[str]) -> Reconciler:
    return Reconciler(capsys)


class Service(NamedTuple):
    """An emulator over HTTP."""

    url: str
    app: Application
    clock: ManualClock

    @property
    def store(self) -> Store:
        """Its jobs."""
        return self.app.store


@pytest.fixture
def service(monkeypatch: pytest.MonkeyPatch) -> Iterator[Service]:
    """A service that asks for a token, which the environment holds."""
    clock = ManualClock()
    with Store(clock=clock) as store:
        app = create_app(store, project_id="p1", token="tell-nobody-1")
        monkeypatch.setenv("MODELARTS_AUTH_TOKEN", "tell-nobody-1")
        with running(app) as url:
            yield Service(url, app, clock)


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
    """Let the stack have a job that completed, of a key that is not declared any more.

    So the stack is known, and a declared key of which there is nothing is missing.
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
