"""Backends for the contract tests: the emulator, called in each way, and the live service.

The live service is used only if RECONCILER_LIVE_ENDPOINT is set, with RECONCILER_LIVE_PROJECT_ID, the
credentials of the environment, and RECONCILER_LIVE_BODY: a JSON file with a cheap create body (kind,
algorithm, spec) that the account may run. Each test starts jobs there, which costs money; it ends and
deletes what it started, and a guard refuses to touch anything else.
"""

from __future__ import annotations

import copy
import json
import os
import re
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

from reconciler.core.observed import ObservedJob
from reconciler.core.phase import ACTIVE
from reconciler.core.stack import Target
from reconciler.emulator.app import Application, create_app
from reconciler.emulator.database import ManualClock
from reconciler.emulator.server import running
from reconciler.emulator.store import Store
from reconciler.errors import NotFound, ServiceError
from reconciler.modelarts.connect import ModelArtsBackend, connect, connect_inprocess
from reconciler.modelarts.http import ServiceResponse
from tests.modelarts.building import ACCESS_KEY, PROJECT, SECRET_KEY, TOKEN, a_body

EMULATED = ("in process", "token", "access key", "otc")
LIVE_VARIABLES = ("RECONCILER_LIVE_ENDPOINT", "RECONCILER_LIVE_PROJECT_ID", "RECONCILER_LIVE_BODY")
#: An unused id.
NOBODY = "00000000-0000-0000-0000-000000000000"
#: Timeout and poll interval for a job of the live service.
_PATIENCE_S, _STEP_S = 900.0, 2.0


@dataclass
class Place:
    """A backend, the names a test may use, and its emulator (None: the live service)."""

    backend: ModelArtsBackend
    prefix: str = ""
    emulator: Application | None = None
    template: Mapping[str, Any] | None = None

    def name(self, name: str) -> str:
        return self.prefix + name

    def body(self, name: str = "resnet50", description: str = "") -> dict[str, Any]:
        body = a_body(self.name(name), description)
        if self.template:
            body |= {k: copy.deepcopy(self.template[k]) for k in ("kind", "algorithm", "spec")}
        return body

    def create(self, name: str = "resnet50", description: str = "") -> ObservedJob:
        return self.backend.create(self.body(name, description))

    def ours(self) -> list[ObservedJob]:
        return [job for job in self.backend.observe().jobs if job.name.startswith(self.prefix)]

    def directed(self, why: str) -> Application:
        """The emulator, for behavior that cannot be provoked on a live service."""
        if self.emulator is None:
            pytest.skip(f"live service: {why}")
        return self.emulator

    def wait(self, is_so: Callable[[], bool]) -> None:
        """Wait for a condition: simulated on the emulator, real on the live service."""
        for _ in range(int(_PATIENCE_S / _STEP_S)):
            if is_so():
                return
            if self.emulator is None:
                time.sleep(_STEP_S)
            else:
                self.emulator.store.clock.advance(seconds=_STEP_S)
        raise AssertionError("it never came to be so")

    def is_gone(self, job_id: str) -> bool:
        try:
            self.backend.details(job_id)
        except NotFound:
            return True
        return False


@contextmanager
def emulated(kind: str) -> Iterator[Place]:
    cloud = "otc" if kind == "otc" else "huawei"
    secured: dict[str, Any] = {"token": TOKEN}
    environ = {"MODELARTS_AUTH_TOKEN": TOKEN}
    if kind == "access key":
        secured = {"access_key": ACCESS_KEY, "secret_key": SECRET_KEY}
        environ = {"HUAWEICLOUD_SDK_AK": ACCESS_KEY, "HUAWEICLOUD_SDK_SK": SECRET_KEY}
    with Store(clock=ManualClock()) as store, ExitStack() as cleanup:
        if kind == "in process":
            app = create_app(store, project_id=PROJECT)
            backend = connect_inprocess(app, project_id=PROJECT)
        else:
            app = create_app(store, project_id=PROJECT, cloud=cloud, **secured)
            url = cleanup.enter_context(running(app))
            said = {"kind": "modelarts", "endpoint": url, "project_id": PROJECT, "cloud": cloud}
            backend = connect(Target.model_validate(said), environ)
        yield Place(cleanup.enter_context(backend), emulator=app)


def live_variables_missing(environ: Mapping[str, str]) -> list[str]:
    return [name for name in LIVE_VARIABLES if not environ.get(name)]


@contextmanager
def live(environ: Mapping[str, str] = os.environ) -> Iterator[Place]:
    """Open the live service; finally terminate and delete what the test started."""
    endpoint, project_id, file = (environ[name] for name in LIVE_VARIABLES)
    said = {"kind": "modelarts", "endpoint": endpoint, "project_id": project_id}
    prefix = f"reconciler-test-{uuid4().hex[:8]}-"
    with connect(Target.model_validate(said), environ) as backend:
        place = Place(backend, prefix, template=json.loads(Path(file).read_text(encoding="utf-8")))
        started = guard(backend, prefix)
        try:
            yield place
        finally:
            for job_id in started:
                _end(place, job_id)


def _end(place: Place, job_id: str) -> None:
    with suppress(ServiceError):  # it has ended, or is gone
        place.backend.terminate(job_id)
    with suppress(NotFound):
        place.wait(lambda: place.is_gone(job_id) or place.backend.details(job_id).phase not in ACTIVE)
        place.backend.delete(job_id)


class NotOurs(AssertionError):
    """A test tried to touch a job it did not create."""


def guard(backend: ModelArtsBackend, prefix: str) -> list[str]:
    """Restrict a backend to changing jobs it created, named with `prefix`; return their ids."""
    started: list[str] = []
    send = backend.session.call

    def call(method: str, path: str, *, body: Any = None, **more: Any) -> ServiceResponse:
        operation = f"{method} {path.partition(backend.project_id)[2]}"
        if operation == "POST /training-jobs":
            if not body["metadata"]["name"].startswith(prefix):
                raise NotOurs(operation)
            answer = send(method, path, body=body, **more)
            started.append(answer.json()["metadata"]["id"])
            return answer
        if not _CHANGES_NOTHING.fullmatch(operation):
            touched = _ids(operation, body)
            if not touched or touched - {NOBODY, *started}:
                raise NotOurs(operation)
        return send(method, path, body=body, **more)

    backend.session.call = call  # type: ignore[method-assign]
    return started


_CHANGES_NOTHING = re.compile(
    r"GET .*|POST /training-job-searches|POST /modelarts-training-job/resource-instances/(filter|count)"
)


def _ids(operation: str, body: Any) -> set[str]:
    if operation.endswith("/batch-delete"):
        return {job["metadata"]["id"] for job in body["jobs"]}
    found = re.match(r"\w+ /(?:training-jobs|modelarts-training-job)/([^/]+)", operation)
    return {found[1]} if found else set()
