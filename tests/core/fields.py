"""Every optional field of a job that cannot be changed in place, with two values for each.

A row is the entry that the field needs around it, its path in the manifest, and the values. The answers are
those of the emulated service, in each of its forms.
"""

from __future__ import annotations

import copy
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from reconciler.core.body import with_identity
from reconciler.core.observed import ObservedJob
from reconciler.core.stack import DesiredJob
from reconciler.emulator import responses
from reconciler.emulator.schemas import ApiError
from reconciler.emulator.validation import check_job
from tests.builders import ENTRY, a_job, seen

FORMS = ("first", "second", "second on OTC")


def reported(job: DesiredJob, form: str = "first", **more: Any) -> ObservedJob:
    """The job with the details that the service answers; `form` as in `emulator/responses.py`."""
    number = "2" if form == "first" else "1"
    identity = responses.Identity("0" * 35 + number, 1_700_000_000_000, "me")
    told = responses.job(_sent(job), identity)
    if form == "second on OTC":
        responses.vary_declared(told)
    return seen(job, body=told, **more)


def is_accepted(job: DesiredJob) -> bool:
    """Whether the service takes the job."""
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
    """A field with two values; `path` is that of the manifest, with `__` between its parts."""

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


def _data(**more: Any) -> list[dict[str, Any]]:
    return [{"name": "d", "remote": {"obs": {"obs_url": "obs://b/d/"}}, **more}]


_DATA_SET = {"id": "i", "version_id": "v"}
_TERM = {"matchExpressions": [{"key": "k", "operator": "In", "values": ["a"]}]}
_FIELDS = {"matchFields": [{"key": "k", "operator": "In", "values": [7]}]}
_SEARCH: dict[str, Any] = {
    "skip_search_params": "none",
    "reward_attrs": [{"name": "acc", "mode": "max", "regex": ".*"}],
    "search_params": [
        {
            "name": "lr",
            "param_type": "continuous",
            "lower_bound": 0.1,
            "upper_bound": 1,
            "discrete_points_num": 3,
            "discrete_values": [1, 2],
        }
    ],
    "algo_configs": [{"name": "bayes", "params": [{"key": "n", "value": 3, "type": "Integer"}]}],
}
_CONSTRAINT = {
    "type": "String",
    "editable": False,
    "required": True,
    "sensitive": True,
    "valid_type": "Choice",
    "valid_range": ["a", "b"],
}
_ENGINE = {"engine_id": "e", "engine_name": "n", "engine_version": "v", "image_url": "i", "run_user": 1000}
_NAMED = {
    "parameters": [
        {
            "name": "p",
            "value": "1",
            "description": "P",
            "constraint": _CONSTRAINT,
            "i18n_description": {"language": "en-us", "description": "P"},
            "sensitive": False,
        }
    ],
    "inputs": _data(
        local_dir="/in",
        description="I",
        access_method="env",
        remote_constraint=[{"data_type": "obs", "attributes": "data_format"}],
    ),
    "outputs": _data(local_dir="/out", description="O", access_method="env"),
}
_TASK: dict[str, Any] = {
    "role": "learner",
    "algorithm": {
        "code_dir": "obs://b/c/",
        "boot_file": "obs://b/c/t.py",
        "engine": _ENGINE,
        "local_code_dir": "/home/a",
        "working_dir": "/home/b",
        "environments": {"A": "1"},
        "inputs": _NAMED["inputs"],
        "outputs": _NAMED["outputs"],
        "job_config": {**_NAMED, "engine": _ENGINE},
    },
    "task_resource": {"flavor_id": "f", "node_count": 2, "pool_id": "p"},
    "log_export_path": {"obs_url": "obs://b/l/", "host_path": "/logs"},
}
_FULL_DATA_SET = {**_DATA_SET, "service_type": "V3", "name": "n", "dataset_proportion": 5}
_READING: dict[str, Any] = {"inputs": _data(remote={"dataset": _FULL_DATA_SET})}
_READING_TASK = {**_TASK, "algorithm": {**_READING, "job_config": _READING}}
_BARE_TASK = {**_TASK, "algorithm": {"code_dir": "obs://b/c/", "boot_file": "obs://b/c/t.py"}}

FIELDS = (
    Field("preset", "kind", "mrs_job", "edge_job"),
    Field("preset", "annotations", {"tensorboard/enable": "true"}, {"tensorboard/enable": "false"}),
    Field("preset", "training_experiment_reference", {"id": "e1"}, {"id": "e2"}),
    Field("preset", "training_experiment_reference__name", "n", "m"),
    Field("preset", "training_experiment_reference__description", "n", "m"),
    Field("image", "algorithm__command", "run", "walk"),
    Field("image", "algorithm__engine__image_url", "org/image:1", "org/image:2"),
    Field("image", "algorithm__engine__image_repo_id", "r1", "r2"),
    Field("image", "algorithm__code_dir", "obs://b/c/", "obs://b/other/"),
    Field("framework on image", "algorithm__engine__install_sys_packages", True, False),
    Field("framework on image", "algorithm__engine__engine_version", "v", "w"),
    Field("framework on image", "algorithm__command", "run", "walk"),
    Field("preset", "algorithm__code_dir", "obs://b/c/", "obs://b/other/"),
    Field("preset", "algorithm__boot_file", "obs://b/c/a.py", "obs://b/c/b.py"),
    Field("preset", "algorithm__engine", {"engine_id": "pt-1"}, {"engine_id": "pt-2"}),
    Field("preset", "algorithm__engine", {"engine_name": "A", "engine_version": "a"}, {"engine_id": "pt-2"}),
    Field("preset", "algorithm__autosearch_config_path", "obs://b/s.yaml", "obs://b/t.yaml"),
    Field("preset", "algorithm__autosearch_framework_path", "obs://b/f/", "obs://b/g/"),
    Field("preset", "algorithm__local_code_dir", "/home/a", "/home/b"),
    Field("preset", "algorithm__working_dir", "/home/a", "/home/b"),
    Field("preset", "algorithm__parameters", {"lr": 0.1, "epochs": 9}, {"lr": 1.5}),
    Field("preset", "algorithm__parameters", {"a": {"value": "x", "description": "X"}}, {"a": "x"}),
    Field("preset", "algorithm__parameters", {"a": {"value": "x", "constraint": _CONSTRAINT}}, {"a": "x"}),
    Field("preset", "algorithm__parameters", {"a": {"value": "s", "sensitive": True}}, {"a": "s"}),
    Field(
        "preset",
        "algorithm__parameters",
        {"a": {"value": "x", "i18n_description": {"language": "en-us", "description": "X"}}},
        {"a": "x"},
    ),
    Field("preset", "algorithm__environments", {"A": "1", "B": "2"}, {"A": "2"}),
    Field("preset", "algorithm__environments", {"A": {"value": "s", "sensitive": True}}, {"A": "s"}),
    Field("preset", "algorithm__inputs", _data(), _data(local_dir="/in", description="D")),
    Field("preset", "algorithm__inputs", _data(access_method="env"), _data()),
    Field(
        "preset",
        "algorithm__inputs",
        _data(remote={"dataset": _DATA_SET}),
        _data(remote_constraint=[{"data_type": "obs", "attributes": "data_format"}]),
    ),
    Field(
        "preset",
        "algorithm__inputs",
        _data(remote={"dataset": {**_DATA_SET, "service_type": "V3", "name": "n", "dataset_proportion": 5}}),
        None,
    ),
    Field("preset", "algorithm__outputs", _data(), _data(local_dir="/out", description="D")),
    Field("preset", "algorithm__outputs", _data(access_method="env"), _data()),
    Field(
        "preset",
        "algorithm__policies",
        {"auto_search": _SEARCH},
        {"auto_search": {"skip_search_params": "a"}},
    ),
    Field(
        "preset",
        "algorithm__summary",
        {
            "log_type": "tensorboard",
            "log_dir": {"pfs": {"pfs_path": "/p"}},
            "data_sources": [{"job": {"job_id": "j"}}],
        },
        {"data_sources": [{"nfs": {"nfs_path": "/n"}}]},
    ),
    Field("by id", "algorithm__id", "some-algorithm", "other-algorithm"),
    Field("preset", "algorithm__name", "n", "m"),
    Field("by id", "algorithm__code_dir", "obs://b/c/", "obs://b/d/"),
    Field("by id", "algorithm__parameters", {"lr": 0.1, "epochs": 9}, {"lr": 1.5}),
    Field("by id", "algorithm__inputs", _data(), None),
    Field("by id", "algorithm", {"subscription_id": "s", "item_version_id": "v"}, {"id": "other"}),
    Field("preset", "spec__resource__node_count", 2, 3),
    Field("preset", "spec__resource__flavor_id", "modelarts.vm.cpu.4u", "modelarts.vm.cpu.8u"),
    Field("pool", "spec__resource__flavor_id", "modelarts.vm.cpu.4u", "modelarts.vm.cpu.8u"),
    Field("pool", "spec__resource__pool_id", "pool", "other"),
    Field("federated", "spec__resource__pool_group_id", "g", "h"),
    Field(
        "pool",
        "spec__resource__main_container_customized_flavor",
        {"cpu_core_num": 1.5, "mem_size": 2, "accelerator_num": 1},
        {"cpu_core_num": 2.0, "mem_size": 2},
    ),
    Field("pool", "spec__runtime_type", "debug", "production"),
    Field(
        "pool",
        "spec__volumes",
        [
            {"nfs": {"nfs_server_path": "h:/", "local_path": "/a", "read_only": True}},
            {"pfs": {"pfs_path": "/p", "local_path": "/b"}},
        ],
        [
            {"nfs": {"nfs_server_path": "h:/", "local_path": "/a"}},
            {"obs": {"obs_path": "/o", "local_path": "/c"}},
        ],
    ),
    Field("preset", "spec__log_export_path", {"obs_url": "obs://b/l/"}, {"host_path": "/logs"}),
    Field(
        "preset", "spec__log_export_config", {"version": "v1", "rotation_enabled": True}, {"version": "v1"}
    ),
    Field(
        "preset",
        "spec__auto_stop",
        {"time_unit": "HOURS", "duration": 3},
        {"time_unit": "HOURS", "duration": 4},
    ),
    Field("preset", "spec__retention", {"policy": "enabled"}, {"policy": "disabled"}),
    Field(
        "preset",
        "spec__reserved_time",
        {"time_unit": "HOURS", "duration": 3},
        {"time_unit": "HOURS", "duration": 4},
    ),
    Field(
        "pool",
        "spec__schedule_policy__required_affinity",
        {
            "affinity_type": "networkTopology",
            "affinity_group_size": 2,
            "job_level": "hyperinstanceGroup",
            "affinity_group_level": "slice",
            "node_affinity": {"nodeSelectorTerms": [{**_TERM, **_FIELDS}]},
        },
        {"affinity_type": "hyperinstance"},
    ),
    Field(
        "pool",
        "spec__schedule_policy__preferred_affinity",
        {"node_affinity": [{"weight": 1, "preference": {**_TERM, **_FIELDS}}]},
        {"node_affinity": [{"weight": 2, "preference": _TERM}]},
    ),
    Field(
        "preset",
        "spec__custom_metrics",
        [{"exec": {"command": ["a", "b"]}}],
        [{"http_get": {"path": "/m", "port": 1}}],
    ),
    Field(
        "preset",
        "spec__output_model",
        {"obs": {"obs_path": "/o", "local_path": "/l"}},
        {"obs": {"obs_path": "/p"}},
    ),
    Field(
        "preset",
        "spec__asset_model",
        {
            "name": "n",
            "version": "1",
            "type": "t",
            "code": "c",
            "desc": "d",
            "series": "s",
            "model_desc": "m",
            "parent_asset_id": "p",
        },
        {"name": "n", "version": "2", "type": "t"},
    ),
    Field("preset", "spec__asset_id", "a", "b"),
    Field("preset", "train_type", "SFT", "LORA"),
    Field(
        "preset",
        "ftjob_config",
        {
            "ft_job_uuid": "u",
            "ft_train_type": "t",
            "model_type": "m",
            "train_output_path": "/o",
            "train_process": 0.5,
            "checkpoint_id": "c",
            "task_env": {"envs": [{"A": 1}]},
            "checkpoint_config": {"keep": 2},
        },
        {"model_type": "n"},
    ),
    Field("hetero", "tasks", [_TASK, {**_TASK, "role": "worker"}], [_TASK, {**_BARE_TASK, "role": "worker"}]),
    Field("hetero", "tasks", [_TASK], [_READING_TASK]),
    Field("preset", "raw", {"spec": {"brand_new": {"a": 1}}}, {"spec": {"brand_new": {"a": 2, "b": [1, 2]}}}),
    Field("preset", "lifecycle", {"rerun": "once"}, {"rerun": "twice"}),
)

ABSENT = object()


def declared(base: str, said: Mapping[Field, Any]) -> DesiredJob:
    """The job of a base entry with these values; ABSENT takes a field out, later fields win."""
    entry: dict[str, Any] = copy.deepcopy({**ENTRY, **BASES[base]})
    for field, value in said.items():
        *parts, last = field.path.split("__")
        place = entry
        for part in parts:
            place = place.setdefault(part, {})
        if value is ABSENT:
            place.pop(last, None)
        else:
            place[last] = copy.deepcopy(value)
    return a_job(**{"algorithm": None, "spec": None, **entry})
