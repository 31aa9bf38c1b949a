"""Every optional field of a job that cannot be changed in place, with two values for each.

The rows are in `fields.yaml`; the responses are those of the emulator, in each of its forms.
"""

from __future__ import annotations

import copy
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ruamel.yaml import YAML

from reconciler.core.body import with_identity
from reconciler.core.observed import ObservedJob
from reconciler.core.stack import DesiredJob
from reconciler.emulator import responses
from reconciler.emulator.schemas import ApiError
from reconciler.emulator.validation import check_job
from tests.builders import ENTRY, a_job, seen

FORMS = ("first", "second", "second on OTC")


def reported(job: DesiredJob, form: str = "first", **more: Any) -> ObservedJob:
    """Return the job with the details the service reports; `form` as in `emulator/responses.py`."""
    number = "2" if form == "first" else "1"
    told = responses.job(_sent(job), "0" * 35 + number, 1_700_000_000_000, "me")
    if form == "second on OTC":
        responses.vary_declared(told)
    return seen(job, body=told, **more)


def is_accepted(job: DesiredJob) -> bool:
    """Whether the service accepts the job."""
    try:
        check_job(_sent(job))
    except ApiError:
        return False
    return True


def _sent(job: DesiredJob) -> dict[str, Any]:
    assert job.body is not None
    body = with_identity(job.body, name=job.key, workspace_id="0", description="")
    sent: dict[str, Any] = json.loads(json.dumps(body))
    return sent


@dataclass(frozen=True, eq=False)
class Field:
    """A field with two values; `path` is its manifest path with `__` for dots."""

    base: str
    path: str
    value: Any
    other: Any


PRESET: dict[str, Any] = {}
IMAGE: dict[str, Any] = {"algorithm": {"command": "run", "engine": {"image_url": "org/image:1"}}}
POOL: dict[str, Any] = {"spec": {"resource": {"pool_id": "pool", "flavor_id": "modelarts.vm.cpu.2u"}}}
BY_ID: dict[str, Any] = {"algorithm": {"id": "some-algorithm"}}
FRAMED: dict[str, Any] = {
    "algorithm": {
        "code_dir": "obs://b/c/",
        "boot_file": "obs://b/c/t.py",
        "engine": {"engine_name": "PyTorch", "engine_version": "v", "image_url": "org/image:1"},
    }
}
HETERO: dict[str, Any] = {"kind": "hetero_job", "algorithm": None, "spec": None}
FEDERATED: dict[str, Any] = {
    "kind": "federated_pool_job",
    "spec": {"resource": {"pool_group_id": "g"}},
}
BASES = {
    "preset": PRESET,
    "image": IMAGE,
    "pool": POOL,
    "by id": BY_ID,
    "framework on image": FRAMED,
    "hetero": HETERO,
    "federated": FEDERATED,
}


_ROWS = YAML(typ="safe", pure=True).load(Path(__file__).with_suffix(".yaml"))
FIELDS = tuple(Field(*row) for row in _ROWS)

ABSENT = object()


def declared(base: str, values: Mapping[Field, Any]) -> DesiredJob:
    """Return the job of a base entry with these values; ABSENT removes a field, later fields win."""
    entry: dict[str, Any] = copy.deepcopy({**ENTRY, **BASES[base]})
    for field, value in values.items():
        *parts, last = field.path.split("__")
        place = entry
        for part in parts:
            place = place.setdefault(part, {})
        if value is ABSENT:
            place.pop(last, None)
        else:
            place[last] = copy.deepcopy(value)
    return a_job(**{"algorithm": None, "spec": None, **entry})
