"""The emulator over HTTP, and working copies of a stack on it."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from reconciler.emulator import Application, Durations, Job, ManualClock, Store, create_app, running
from tests.apply.service import Gate
from tests.builders import a_startable_entry
from tests.scenarios.every_action import ACTIVE, marker_of
from tests.scenarios.fork_server import ForkServer, Run, Started

PROJECT = "p1"
TOKEN = "tell-nobody-1"


def entry(lr: float = 0.1, **more: Any) -> dict[str, Any]:
    """An entry of a manifest."""
    return a_startable_entry(lr, **{"lifecycle": {"on_change": "replace"}, **more})


class Service(NamedTuple):
    """A service at a URL; its clock is advanced instead of sleeping."""

    url: str
    app: Application
    gate: Gate
    fork_server: ForkServer

    @property
    def store(self) -> Store:
        """Its jobs."""
        return self.app.store

    def declare(self, home: Path, jobs: Mapping[str, Any]) -> None:
        """Write a manifest for it into a working copy; JSON is YAML."""
        target = {"kind": "modelarts", "endpoint": self.url, "project_id": PROJECT}
        document = {
            "apiVersion": "reconciler/v1",
            "stack": "shared",
            "targets": {"there": target},
            "limits": {"terminations": 1000},
            "jobs": dict(jobs),
        }
        home.mkdir(exist_ok=True)
        (home / "jobs.yaml").write_text(json.dumps(document), encoding="utf-8")

    def start(self, home: Path, *arguments: str, **more: Any) -> Started:
        """Start the command line in a working copy."""
        environ = {"MODELARTS_AUTH_TOKEN": TOKEN}
        return self.fork_server.start(home, *arguments, clock_url=self.url, environ=environ, **more)

    def run(self, home: Path, *arguments: str, **more: Any) -> Run:
        """Run the command line in a working copy."""
        return self.start(home, *arguments, **more).end()

    def changes(self, home: Path) -> list[tuple[str, str, str]]:
        """Return the actions of the next plan: key, action, reason."""
        run = self.run(home, "plan", "--json")
        assert run.code == 0, run.err
        actions = json.loads(run.out)["actions"]
        return [(a["key"], a["action"], a["reason"]) for a in actions if a["action"] not in ("keep", "defer")]

    def active(self) -> dict[str, int]:
        """Return the number of active jobs of each key."""
        return Counter(_key(job) for job in self.store.jobs() if job.life.phase in ACTIVE)

    def jobs_of_each_revision(self) -> dict[tuple[str, int], int]:
        """Return the number of jobs ever started for each revision."""
        return Counter((_key(job), _revision(job)) for job in self.store.jobs())

    def phases(self) -> dict[str, str]:
        """The phase of each job, by its name."""
        return {job.name: job.life.phase for job in self.store.jobs()}


def _key(job: Job) -> str:
    found = marker_of(job)
    assert found is not None
    return found.key


def _revision(job: Job) -> int:
    found = marker_of(job)
    assert found is not None
    return found.revision


@contextmanager
def a_service(fork_server: ForkServer) -> Iterator[Service]:
    """Open an empty service."""
    with Store(clock=ManualClock(), durations=Durations(running=1e8)) as store:
        app = create_app(store, project_id=PROJECT, token=TOKEN, control=True)
        gate = Gate(app)
        with running(gate) as url:
            yield Service(url, app, gate, fork_server)
