"""The smallest valid values, and doubles for time."""

from __future__ import annotations

from typing import Any

PROJECT = "0123456789abcdef0123456789abcdef"
TOKEN = "MIIFtokenExample0123456789"
ACCESS_KEY = "AKEXAMPLE0000000000"
SECRET_KEY = "SKexampleExampleExampleExampleExample000"
MARKER = "reconciler.vision.resnet50.r1.a3f9a2c1b7d4e"


class StoppedClock:
    def __init__(self, now_s: float = 1_786_000_000.0) -> None:
        self.now_s = now_s
        self.slept: list[float] = []

    def now(self) -> float:
        return self.now_s

    def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        self.now_s += seconds


def a_body(name: str = "resnet50", description: str = "") -> dict[str, Any]:
    return {
        "kind": "job",
        "metadata": {"name": name, "workspace_id": "0", "description": description},
        "algorithm": {
            "code_dir": "obs://ml/code/",
            "boot_file": "obs://ml/code/train.py",
            "engine": {"engine_id": "pytorch_1.8.0-cuda_10.2-py_3.7-ubuntu_18.04-x86_64"},
        },
        "spec": {"resource": {"flavor_id": "modelarts.p3.large.public", "node_count": 2}},
    }


def an_answer(**changes: Any) -> dict[str, Any]:
    """A job as the service responds; `changes` are paths with __ for dots, `...` removes one."""
    answer: dict[str, Any] = {
        "kind": "job",
        "metadata": {
            "id": "66ff6991-fd66-40b6-8101-0829a46d3731",
            "name": "resnet50",
            "description": MARKER,
            "create_time": 1_641_892_642_625,
            "workspace_id": "0",
        },
        "status": {
            "phase": "Running",
            "secondary_phase": "Running",
            "duration": 268_000,
            "start_time": 1_641_892_655_000,
        },
        "spec": {"resource": {"node_count": 2}},
    }
    for path, value in changes.items():
        *parents, last = path.split("__")
        holder = answer
        for parent in parents:
            holder = holder[parent]
        if value is ...:
            del holder[last]
        else:
            holder[last] = value
    return answer
