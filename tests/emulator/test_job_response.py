"""The noise: how the answer about a job differs from the request that made it."""

# An answer without JSON fails the test by itself.
# mypy: disable-error-code="index,union-attr"

from __future__ import annotations

from typing import Any

import pytest
from werkzeug.test import Client

from reconciler.emulator import ManualClock, Store, create_app
from tests.emulator.conftest import Api, a_job

ENGINE = "pytorch_1.8.0-cuda_10.2-py_3.7-ubuntu_18.04-x86_64"


def at(value: Any, path: str) -> Any:
    for part in path.split("."):
        value = value[int(part)] if isinstance(value, list) else value.get(part, "absent")
    return value


def obs(name: str, url: str) -> dict[str, Any]:
    return {"name": name, "remote": {"obs": {"obs_url": url}}}


DATASET = {"name": "d", "remote": {"dataset": {"id": "i", "version_id": "v"}}}
INPUT, OUTPUT = "algorithm.inputs.0", "algorithm.outputs.0"
FLAVOR = "spec.resource.flavor_detail"
HANG_RETRY = "fault-tolerance/hang-retry"
#: What is sent, and what is answered at which paths.
ANSWERED: list[tuple[dict[str, Any], dict[str, Any]]] = [
    (
        {},
        {
            "metadata.description": "",
            "metadata.workspace_id": "0",
            "metadata.ai_project": "default-ai-project",
            "metadata.user_name": "emulator",
            "metadata.annotations": {"job_template": "Template DL", "key_task": "worker"},
            "algorithm.code_dir": "obs://ml-team/resnet/code/",
            "algorithm.local_code_dir": "/home/ma-user/modelarts/user-job-dir",
            "algorithm.policies": {},
            "algorithm.engine.engine_name": "PyTorch",
            "algorithm.engine.engine_version": ENGINE,
            "spec.log_export_path": {},
            "spec.resource.flavor_name": "Computing CPU(2U) instance",
            "spec.resource.policy": "regular",
            f"{FLAVOR}.flavor_type": "CPU",
            "spec.runtime_type": "production",
            "spec.is_hosted_log": True,
        },
    ),
    ({"metadata.description": None}, {"metadata.description": ""}),
    (
        {"metadata.annotations": {"mine": "1", HANG_RETRY: "true"}},
        {"metadata.annotations.mine": "absent", f"metadata.annotations.{HANG_RETRY}": "true"},
    ),
    (
        {"algorithm.inputs": [obs("d", "obs://b/in/")]},
        {
            f"{INPUT}.remote.obs.obs_url": "/b/in/",
            f"{INPUT}.local_dir": "/home/ma-user/modelarts/inputs/d_0",
        },
    ),
    (
        {"algorithm.inputs": [DATASET]},
        {f"{INPUT}.remote.dataset.obs_url": "/modelarts-emulator/datasets/i/v/"},
    ),
    (
        {"algorithm.outputs": [obs("d", "/b/o/")]},
        {
            f"{OUTPUT}.remote.obs.obs_url": "/b/o/",
            f"{OUTPUT}.mode": "upload_periodically",
            f"{OUTPUT}.period": 30,
        },
    ),
    ({"spec.log_export_path": {"obs_url": "obs://b/log/"}}, {"spec.log_export_path.obs_url": "/b/log/"}),
    ({"spec.log_export_path": {"obs_url": ""}}, {"spec.log_export_path": {}}),
    (
        {"algorithm.policies": {"auto_search": None}, "algorithm.environments": {}},
        {"algorithm.policies": {}, "algorithm.environments": "absent"},
    ),
    ({"algorithm.environments": {"A": "1"}}, {"algorithm.environments": {"A": "1"}}),
    (
        {"algorithm.parameters": [{"name": value, "value": value} for value in ("1", "0.1", "x")]},
        {
            "algorithm.parameters.0.description": "",
            "algorithm.parameters.0.i18n_description": None,
            "algorithm.parameters.0.constraint.type": "Integer",
            "algorithm.parameters.1.constraint.type": "Float",
            "algorithm.parameters.2.constraint.type": "String",
        },
    ),
    (
        {"algorithm.engine": {"engine_name": "PyTorch", "engine_version": ENGINE}},
        {"algorithm.engine.engine_id": ENGINE},
    ),
    ({"algorithm.engine": {"engine_id": "pytorch_9-x"}}, {"algorithm.engine.engine_version": "pytorch_9-x"}),
    (
        {"algorithm": {"command": "sh x", "engine": {"image_url": "a/b:1"}}},
        {"algorithm.engine": {"v1_compatible": False, "run_user": "1000", "image_url": "a/b:1"}},
    ),
    (
        {"algorithm": {"id": "abcdefghij"}},
        {
            "algorithm.name": "algorithm-abcdefgh",
            "algorithm.engine.engine_id": ENGINE,
            "algorithm.boot_file": "/modelarts-emulator/algorithms/abcdefghij/code/train.py",
        },
    ),
    ({"spec.resource.flavor_id": "my.flavor"}, {f"{FLAVOR}.billing.code": "my.flavor"}),
    ({"spec.resource.node_count": ...}, {"spec.resource.node_count": 1}),
    ({"spec.resource": {"pool_id": "p"}}, {FLAVOR: "absent", "spec.schedule_policy.priority": 1}),
    ({"spec.retention": {"policy": "enabled"}}, {"spec.retention": "absent"}),
    ({"spec.reserved_time": {"time_unit": "HOURS", "duration": 3}}, {"status.retention_time": 3}),
    (
        {"spec.volumes": [{"nfs": {"local_path": "/a", "read_only": False}}]},
        {"spec.volumes.0.nfs": {"local_path": "/a"}},
    ),
    ({"endpoints.ssh.key_pair_names": ["k"]}, {"endpoints.ssh.task_urls.0.task": "worker-0"}),
    ({"train_type": "SFT"}, {"train_type": "absent"}),
    ({"something_new": [1, {"a": None}]}, {"something_new": [1, {"a": None}]}),
]


@pytest.mark.parametrize(("edits", "answered"), ANSWERED, ids=[" ".join(edits) for edits, _ in ANSWERED])
def test_job_response_has_the_documented_values(
    api: Api, edits: dict[str, Any], answered: dict[str, Any]
) -> None:
    job = api.get(f"/v2/project/training-jobs/{api.create(edits=edits)}").json
    assert {path: at(job, path) for path in answered} == answered


def test_job_response_has_the_tokens_of_the_web_tools(api: Api) -> None:
    job_id = api.create(edits={"metadata.annotations": {"jupyter-lab/enable": "true"}})
    tool = api.get(f"/v2/project/training-jobs/{job_id}").json["endpoints"]["jupyter_lab"]
    assert tool.keys() == {"url", "token"}


def test_experiment_is_reported_by_id_without_its_name(api: Api) -> None:
    def reference(job_name: str, **asked: str) -> dict[str, str]:
        job_id = api.create(job_name, {"metadata.training_experiment_reference": asked})
        metadata = api.get(f"/v2/project/training-jobs/{job_id}").json["metadata"]
        return dict(metadata["training_experiment_reference"])

    made = reference("one", name="mine")
    assert made.keys() == {"id", "serial_number"}
    assert reference("two", name="mine") == reference("three", id=made["id"], name="any") == made
    assert reference("four", name="another")["id"] != made["id"]


def test_missing_experiment_is_refused(api: Api) -> None:
    api.create("one", {"metadata.training_experiment_reference": {"name": "mine"}})
    body = a_job("two", {"metadata.training_experiment_reference": {"id": "e1"}})
    response = api.post("/v2/project/training-jobs", json=body)
    assert (response.status_code, response.json["error_code"]) == (400, "ModelArts.2842")


def test_tasks_are_reported_with_single_inputs(api: Api) -> None:
    task = {
        "role": "worker",
        "algorithm": {"inputs": [obs("d", "/b/")], "outputs": []},
        "task_resource": {"flavor_id": "modelarts.vm.cpu.2u", "node_count": 2},
    }
    job_id = api.create(edits={"kind": "hetero_job", "tasks": [task], "spec": ..., "algorithm": ...})
    job = api.get(f"/v2/project/training-jobs/{job_id}").json
    assert job["tasks"][0]["algorithm"] == {"inputs": obs("d", "/b/"), "outputs": None}
    assert job["tasks"][0]["task_resource"]["flavor_type"] == "CPU"
    assert job["metadata"]["annotations"]["job_template"] == "Template RL"
    assert job["status"]["tasks"] == ["worker-0", "worker-1"]


def test_job_without_noise_is_reported_as_sent(clock: ManualClock) -> None:
    with Store(clock=clock, noise=False) as store:
        client, sent = Client(create_app(store)), a_job()
        answer = client.post("/v2/project/training-jobs", json=sent).json
    assert answer.pop("status")["phase"] == "Creating"
    given = {"id": answer["metadata"]["id"], "create_time": clock.now_ms(), "workspace_id": "0"}
    assert answer == sent | {"metadata": sent["metadata"] | given}


def test_stored_body_equals_the_sent_body(api: Api) -> None:
    sent = a_job(edits={"algorithm.inputs": [obs("d", "obs://b/in/")], "metadata.annotations": {"mine": "1"}})
    job_id = api.post("/v2/project/training-jobs", json=sent).json["metadata"]["id"]
    assert api.store.find(job_id).body == sent
