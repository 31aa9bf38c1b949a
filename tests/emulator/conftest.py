"""An emulator called in-process, on a clock that only a test moves."""

# An answer without JSON fails the test by itself.
# mypy: disable-error-code="index"

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from werkzeug.test import Client

from reconciler.emulator import Application, ManualClock, Store, create_app

_JOB: dict[str, Any] = {
    "kind": "job",
    "metadata": {"name": "resnet50-r1"},
    "algorithm": {
        "code_dir": "obs://ml-team/resnet/code/",
        "boot_file": "obs://ml-team/resnet/code/train.py",
        "engine": {"engine_id": "pytorch_1.8.0-cuda_10.2-py_3.7-ubuntu_18.04-x86_64"},
    },
    "spec": {"resource": {"flavor_id": "modelarts.vm.cpu.2u", "node_count": 1}},
}


@pytest.fixture
def a_job() -> Callable[..., dict[str, Any]]:
    """Make the smallest create request. `edits` maps dotted paths to values, `...` drops the field."""

    def build(name: str = "resnet50-r1", edits: dict[str, Any] | None = None) -> dict[str, Any]:
        body = copy.deepcopy(_JOB)
        body["metadata"]["name"] = name
        for path, value in (edits or {}).items():
            *parents, last = path.split(".")
            place = body
            for parent in parents:
                place = place.setdefault(parent, {})
            if value is ...:
                del place[last]
            else:
                place[last] = value
        return body

    return build


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def store(clock: ManualClock) -> Iterator[Store]:
    with Store(clock=clock) as opened:
        yield opened


@pytest.fixture
def app(store: Store) -> Application:
    return create_app(store, control=True)


@pytest.fixture
def client(app: Application) -> Client:
    return Client(app)


@pytest.fixture
def create(client: Client, a_job: Callable[..., dict[str, Any]]) -> Callable[..., str]:
    """Create a job; return its id."""

    def send(name: str = "resnet50-r1", edits: dict[str, Any] | None = None) -> str:
        response = client.post("/v2/project/training-jobs", json=a_job(name, edits))
        assert response.status_code == 201, response.text
        return str(response.json["metadata"]["id"])

    return send
