"""Validation of a create request: one row for each rule of the service."""

# A response without JSON fails the test anyway.
# mypy: disable-error-code="index,union-attr"

from __future__ import annotations

from typing import Any

import pytest
from werkzeug.test import Client

from reconciler.emulator import Store, create_app
from tests.emulator.conftest import Api, a_job

JOBS = "/v2/project/training-jobs"
IMAGE = {"image_url": "ml-team/fastseq:1.2"}
OBS_IN = {"name": "data", "remote": {"obs": {"obs_url": "obs://bucket/in/"}}}
POOL = {"pool_id": "poolfaf38d76"}
NFS = {"nfs": {"nfs_server_path": "10.0.0.1:/", "local_path": "/mnt/a"}}
CODE: dict[str, Any] = {"algorithm.code_dir": ..., "algorithm.boot_file": ...}


VALID: dict[str, dict[str, Any]] = {
    "longest name": {"metadata.name": "a" * 64},
    "double hyphen": {"metadata.name": "trainjob--py14_mem06-110"},
    "longest description": {"metadata.description": "新" * 256},
    "null is absent": {"metadata.description": None},
    "one node by default": {"spec.resource.node_count": ...},
    "dedicated pool": {"spec.resource": {"pool_id": "poolfaf38d76", "node_count": 1}},
    "any plausible flavor": {"spec.resource.flavor_id": "my.new-flavor_1"},
    "any plausible engine": {"algorithm.engine": {"engine_id": "pytorch_9"}},
    "algorithm id": {"algorithm": {"id": "any-algorithm"}},
    "id and its own code": {"algorithm": {"id": "x", "code_dir": "/a/b/", "boot_file": "/a/b/c.py"}},
    "subscription": {"algorithm": {"subscription_id": "s", "item_version_id": "1"}},
    "custom image": {"algorithm": {"command": "sh run.sh", "engine": IMAGE}},
    "framework on own image": {"algorithm.engine": IMAGE | {"engine_name": "PyTorch"}},
    "paths in both forms": {"algorithm.boot_file": "/ml-team/resnet/code/train.py"},
    "input": {"algorithm.inputs": [OBS_IN]},
    "100 variables": {"algorithm.environments": {f"V{n}": "x" for n in range(100)}},
    "auto stop": {"spec.auto_stop": {"time_unit": "HOURS", "duration": 1}},
    "empty log path": {"spec.log_export_path": {"obs_url": ""}},
    "default dir": {"algorithm.local_code_dir": "/home/ma-user/modelarts/user-job-dir"},
    "schedule on a public pool": {
        "spec.schedule_policy": {"priority": 2, "required_affinity": {"affinity_type": "cabinet"}}
    },
    "volumes on a public pool": {"spec.volumes": [NFS]},
    "any workspace": {"metadata.workspace_id": "w" * 32},
    "unknown fields": {"next_years_feature": {"a": [1]}, "spec.another": 1},
}


@pytest.mark.parametrize("name", VALID)
def test_valid_body_is_accepted(api: Api, name: str) -> None:
    response = api.post(JOBS, json=a_job(edits=VALID[name]))
    assert response.status_code == 201, response.text


@pytest.mark.parametrize(
    ("edits", "code"),
    [
        # metadata
        ({"kind": ...}, 2788),
        ({"kind": "homework"}, 2788),
        ({"metadata": None}, 2788),
        ({"metadata.name": ...}, 2788),
        ({"metadata.name": ""}, 2788),
        ({"metadata.name": "a" * 65}, 2788),
        ({"metadata.name": "a b"}, 2788),
        ({"metadata.name": "name\n"}, 2788),
        ({"metadata.workspace_id": "7"}, 2788),
        ({"metadata.description": "x" * 257}, 2788),
        # where the algorithm comes from
        ({"algorithm": ...}, 2788),
        ({"algorithm": {"parameters": []}}, 2788),
        ({"algorithm": {"id": "a", "subscription_id": "s", "item_version_id": "1"}}, 2788),
        ({"algorithm": {"subscription_id": "s"}}, 2788),
        ({"algorithm.code_dir": ...}, 2757),
        ({"algorithm.boot_file": ...}, 2758),
        ({"algorithm.boot_file": "obs://ml-team/resnet/code2/train.py"}, 2792),
        (CODE, 2757),
        # engine
        ({"algorithm.engine": ...}, 2830),
        ({"algorithm.engine": {"engine_name": "PyTorch"}}, 2830),
        ({"algorithm.engine": {"engine_id": "no engine!"}}, 2780),
        ({"algorithm.engine": IMAGE}, 2806),
        ({"algorithm": {"command": "sh run.sh"}}, 2806),
        ({"algorithm.engine": IMAGE | {"engine_name": "PyTorch", "install_sys_packages": True}}, 2788),
        # parameters, data, environments
        ({"algorithm.parameters": [{"name": "lr", "value": "1"}, {"name": "lr", "value": "2"}]}, 2767),
        ({"algorithm.parameters": [{"name": "lr", "value": 0.1}]}, 2825),
        ({"algorithm.inputs": [{"remote": OBS_IN["remote"]}]}, 2753),
        ({"algorithm.inputs": [{"name": "data"}]}, 2753),
        ({"algorithm.inputs": [{"name": "data", "remote": {"ftp": {}}}]}, 2854),
        ({"algorithm.inputs": [{"name": "data", "remote": {"obs": {"obs_url": "bucket"}}}]}, 2791),
        ({"algorithm.inputs": [{"name": "data", "remote": {"dataset": {"version_id": "1"}}}]}, 2783),
        ({"algorithm.inputs": [{"name": "data", "remote": {"dataset": {"id": "1"}}}]}, 2782),
        ({"algorithm.outputs": [{"name": "out", "remote": {"obs": {"obs_url": "/bucket/out"}}}]}, 2791),
        ({"algorithm.outputs": [{"name": "out", "remote": {"dataset": {"id": "1"}}}]}, 2854),
        ({"algorithm.environments": {"1A": "x"}}, 2788),
        ({"algorithm.environments": {"A": 1}}, 2825),
        ({"algorithm.environments": {"A": "x" * 4097}}, 2816),
        ({"algorithm.environments": {f"V{n}": "x" for n in range(101)}}, 2816),
        ({"algorithm.environments": {"EMULATOR_RESULT": "Sunny"}}, 2788),
        ({"algorithm.environments": {"EMULATOR_RUN_SECONDS": "nan"}}, 2788),
        ({"algorithm.environments": {"EMULATOR_RUN_SECONDS": "a while"}}, 2788),
        ({"algorithm.local_code_dir": "/tmp"}, 2857),
        ({"algorithm.local_code_dir": "/home/ma-user/infer/x"}, 2857),
        # resource
        ({"spec": ...}, 2788),
        ({"spec.resource": ...}, 2788),
        ({"spec.resource.flavor_id": ...}, 2763),
        ({"spec.resource.flavor_id": "no flavor!"}, 2781),
        ({"spec.resource.node_count": 0}, 2788),
        ({"spec.resource.node_count": "1"}, 2825),
        ({"spec.resource.node_count": True}, 2825),
        ({"spec.resource.node_count": 17}, 2793),
        ({"kind": "federated_pool_job"}, 2788),
        ({"spec.runtime_type": "debug"}, 2788),
        ({"spec.runtime_type": "fast"}, 2788),
        # the rest of the spec
        ({"spec.auto_stop": {"time_unit": "DAYS", "duration": 1}}, 2788),
        ({"spec.auto_stop": {"time_unit": "HOURS", "duration": 0}}, 2788),
        ({"spec.auto_stop": {"time_unit": "HOURS"}}, 2788),
        ({"spec.log_export_path": {"obs_url": "/bucket/log"}}, 2791),
        ({"spec.schedule_policy": {"priority": 4}}, 2816),
        ({"spec.schedule_policy": {"priority": -1}}, 2788),
        (
            {
                "spec.schedule_policy": {
                    "required_affinity": {"affinity_type": "cabinet"},
                    "preferred_affinity": {"a": 1},
                }
            },
            2788,
        ),
        ({"spec.schedule_policy": {"required_affinity": {"affinity_type": "friendship"}}}, 2788),
        ({"spec.notification": {"events": ["JobDreaming"]}}, 2788),
        ({"spec.volumes": [{}]}, 2788),
        ({"spec.volumes": [NFS, NFS]}, 2788),
        ({"spec.volumes": [{"pfs": {"local_path": f"/mnt/{n}"}} for n in range(9)]}, 2816),
        ({"spec.custom_metrics": [{}]}, 2788),
        ({"spec.retention": {"policy": "never"}}, 2788),
        # tasks
        ({"tasks": [{"role": "worker"}]}, 2788),
        ({"tasks": [{"role": "worker"}], "spec": ...}, 2788),
        ({"tasks": [None], "spec": ..., "kind": "hetero_job"}, 2825),
    ],
)
def test_invalid_body_is_refused_with_its_code(api: Api, edits: dict[str, Any], code: int) -> None:
    response = api.post(JOBS, json=a_job(edits=edits))
    assert (response.status_code, response.json["error_code"]) == (400, f"ModelArts.{code}")
    assert api.post("/v2/project/training-job-searches", json={}).json["total"] == 0


def test_input_with_two_remotes_is_refused(api: Api) -> None:
    remote = {"obs": {"obs_url": "/b/"}, "dataset": {"id": "1", "version_id": "1"}}
    body = a_job(edits={"algorithm.inputs": [{"name": "data", "remote": remote}]})
    assert api.post(JOBS, json=body).json["error_code"] == "ModelArts.2753"


@pytest.mark.parametrize(
    ("body", "code"),
    [
        (b"", "ModelArts.2787"),
        (b"{", "ModelArts.2787"),
        (b"\xff", "ModelArts.2787"),
        (b"[" * 100_000, "ModelArts.2787"),
        (b"[]", "ModelArts.2825"),
        (b'"job"', "ModelArts.2825"),
        (b'{"metadata": []}', "ModelArts.2825"),
        (b'{"algorithm": {"inputs": {}}}', "ModelArts.2825"),
    ],
)
def test_body_that_is_no_job_is_refused(api: Api, body: bytes, code: str) -> None:
    response = api.post(JOBS, data=body)
    assert (response.status_code, response.json["error_code"]) == (400, code)


@pytest.mark.parametrize(
    ("edits", "code"),
    [
        ({}, None),
        ({"spec.resource.flavor_id": "my.flavor"}, 2781),
        ({"algorithm.engine": {"engine_id": "pytorch_9"}}, 2780),
        ({"algorithm.engine": {"engine_name": "PyTorch", "engine_version": "9"}}, 2780),
        ({"spec.resource": POOL | {"flavor_id": "modelarts.pool.visual.2xlarge"}}, None),
        # The flavor of a pool's nodes is not a flavor of the pool.
        ({"spec.resource": POOL | {"flavor_id": "modelarts.vm.cpu.2u"}}, 2781),
        ({"spec.resource": {"pool_id": "p"}}, 2890),
        ({"algorithm": {"id": "2e5451fe-913f-4ed6-a8ce-c5a9e1b4e9d1"}}, None),
        ({"algorithm": {"id": "any-algorithm"}}, 2755),
        ({"metadata.workspace_id": "0a1b2c3d4e5f60718293a4b5c6d7e8f9"}, None),
        ({"metadata.workspace_id": "w" * 32}, "0102"),
        # Only for a dedicated pool.
        ({"spec.volumes": [NFS]}, 2788),
        ({"spec.schedule_policy": {"priority": 1}}, 2788),
        ({"spec.resource": POOL, "spec.volumes": [NFS], "spec.schedule_policy": {"priority": 1}}, None),
        ({"spec.volumes": [], "spec.schedule_policy": {}}, None),
    ],
)
def test_strict_catalogue_refuses_unlisted_values(
    api: Api, edits: dict[str, Any], code: int | str | None
) -> None:
    strict, body = Client(create_app(api.store, strict_catalogue=True)), a_job(edits=edits)
    response = strict.post(JOBS, json=body)
    assert response.json.get("error_code") == (code and f"ModelArts.{code}")
    assert response.status_code == (201 if code is None else 404 if code == 2890 else 400)
    if code != 2781 and code is not None:
        assert api.post(JOBS, json=body).status_code == 201, "others accept it"


def test_strict_service_changes_a_schedule_on_a_dedicated_pool_only(store: Store) -> None:
    client = Client(create_app(store, strict_catalogue=True))
    change = {"spec": {"schedule_policy": {"preemptible": True}}}
    for name, edits, status in (("public", {}, 400), ("dedicated", {"spec.resource": POOL}, 200)):
        job_id = client.post(JOBS, json=a_job(name, edits)).json["metadata"]["id"]
        assert client.put(f"{JOBS}/{job_id}", json=change).status_code == status
        assert client.put(f"{JOBS}/{job_id}", json={"description": "new"}).status_code == 200


@pytest.mark.parametrize(
    ("method", "path", "status", "code"),
    [
        ("GET", "/", 404, "APIGW.0101"),
        ("GET", "/v3/project/training-jobs", 404, "APIGW.0101"),
        ("GET", "/v2/project/no-such-thing", 404, "APIGW.0101"),
        ("GET", "/v2/project/training-jobs", 405, "ModelArts.2803"),
        ("PATCH", "/v2/project/training-jobs/x", 405, "ModelArts.2803"),
        ("GET", "/v2/project/training-job-names?job_name=a%20b", 400, "ModelArts.2788"),
        ("GET", "/v2/project/training-job-names", 400, "ModelArts.2788"),
    ],
)
def test_request_without_a_valid_operation_is_refused(
    api: Api, method: str, path: str, status: int, code: str
) -> None:
    response = api.open(path, method=method)
    assert (response.status_code, response.json["error_code"]) == (status, code)


def test_body_above_the_gateway_limit_is_refused(api: Api) -> None:
    response = api.post(JOBS, data=b"x" * (12 * 1024 * 1024 + 1))
    assert (response.status_code, response.json["error_code"]) == (413, "ModelArts.4104")
