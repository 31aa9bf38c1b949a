"""An emulator called in-process, on a clock that only a test moves."""

# A response without JSON fails the test anyway.
# mypy: disable-error-code="index"

from __future__ import annotations

import copy
from collections.abc import Iterator
from typing import Any

import pytest
from werkzeug.test import Client

from reconciler.emulator import ManualClock, Store, create_app

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


def a_job(name: str = "resnet50-r1", edits: dict[str, Any] | None = None) -> dict[str, Any]:
    """Make the smallest create request. `edits` maps dotted paths to values, `...` drops the field."""
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


class Api(Client):
    def __init__(self, store: Store, clock: ManualClock) -> None:
        self.app = create_app(store, control=True)
        self.store, self.clock = store, clock
        super().__init__(self.app)

    def create(self, name: str = "resnet50-r1", edits: dict[str, Any] | None = None) -> str:
        response = self.post("/v2/project/training-jobs", json=a_job(name, edits))
        assert response.status_code == 201, response.text
        return str(response.json["metadata"]["id"])


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def store(clock: ManualClock) -> Iterator[Store]:
    with Store(clock=clock) as opened:
        yield opened


@pytest.fixture
def api(store: Store, clock: ManualClock) -> Api:
    return Api(store, clock)
