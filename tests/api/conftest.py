"""A stack for the Python API: files in a directory, on the embedded emulator or one over HTTP."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from reconciler import Stack
from reconciler.emulator import Application, ManualClock, Store, create_app, running
from tests.builders import a_startable_entry

TOKEN = "tell-nobody-1"
ENVIRON = {"MODELARTS_AUTH_TOKEN": TOKEN}


def write(root: Path, content: str | dict[str, Any], name: str = "jobs.yaml") -> Path:
    """Write a file, JSON being YAML, and return its directory."""
    text = content if isinstance(content, str) else json.dumps(content)
    (root / name).write_text(text, encoding="utf-8")
    return root


def manifest(*keys: str, url: str | None = None, lr: float = 0.1, **more: Any) -> dict[str, Any]:
    """A manifest as data, with these jobs."""
    target = {"kind": "local"} if url is None else {"kind": "modelarts", "endpoint": url, "project_id": "p1"}
    return {
        "stack": "test",
        "targets": {"there": target},
        "jobs": {key: a_startable_entry(lr) for key in keys},
        **more,
    }


def secret_manifest(text: str = "${var.token}", *, url: str, **source: Any) -> dict[str, Any]:
    """A job with a secret from the environment variable TOKEN or from `source`."""
    variables = {"token": {"sensitive": True, **(source or {"env": "TOKEN"})}}
    data = manifest("a", url=url, variables=variables)
    data["jobs"]["a"]["algorithm"]["environments"] = {"TOKEN": text}
    return data


class Service(NamedTuple):
    """An emulator over HTTP, and a directory for the stack."""

    url: str
    app: Application
    clock: ManualClock
    root: Path

    def stack(self, *keys: str, **more: Any) -> Stack:
        """A stack with these jobs on it."""
        return Stack.from_dict(manifest(*keys, url=self.url, **more), self.root)

    def asked(self, operation: str) -> int:
        """Return the number of requests of an operation."""
        return sum(request.operation == operation for request in self.app.requests)


@pytest.fixture
def service(tmp_path: Path) -> Iterator[Service]:
    """A service that requires a token."""
    clock = ManualClock()
    with Store(clock=clock) as store:
        app = create_app(store, project_id="p1", token=TOKEN)
        with running(app) as url:
            yield Service(url, app, clock, tmp_path)
