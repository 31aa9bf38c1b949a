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


@pytest.mark.parametrize(
    ("edits", "path", "answered"),
    [
        ({}, "metadata.description", ""),
        ({"metadata.description": None}, "metadata.description", ""),
        ({}, "metadata.workspace_id", "0"),
        ({}, "metadata.ai_project", "default-ai-project"),
        ({}, "metadata.user_name", "emulator"),
        ({}, "metadata.annotations", {"job_template": "Template DL", "key_task": "worker"}),
        ({"metadata.annotations": {"mine": "1"}}, "metadata.annotations.mine", "absent"),
        (
            {"metadata.annotations": {"fault-tolerance/hang-retry": "true"}},
            "metadata.annotations.fault-tolerance/hang-retry",
            "true",
        ),
        # paths
        ({}, "algorithm.code_dir", "obs://ml-team/resnet/code/"),
        ({"algorithm.inputs": [obs("d", "obs://b/in/")]}, "algorithm.inputs.0.remote.obs.obs_url", "/b/in/"),
        ({"algorithm.outputs": [obs("d", "/b/o/")]}, "algorithm.outputs.0.remote.obs.obs_url", "/b/o/"),
        ({"spec.log_export_path": {"obs_url": "obs://b/log/"}}, "spec.log_export_path.obs_url", "/b/log/"),
        ({"spec.log_export_path": {"obs_url": ""}}, "spec.log_export_path", {}),
        ({}, "spec.log_export_path", {}),
        # algorithm
        ({}, "algorithm.policies", {}),
        ({"algorithm.policies": {"auto_search": None}}, "algorithm.policies", {}),
        ({"algorithm.environments": {}}, "algorithm.environments", "absent"),
        ({"algorithm.environments": {"A": "1"}}, "algorithm.environments", {"A": "1"}),
        ({}, "algorithm.local_code_dir", "/home/ma-user/modelarts/user-job-dir"),
        (
            {"algorithm.inputs": [obs("d", "/b/")]},
            "algorithm.inputs.0.local_dir",
            "/home/ma-user/modelarts/inputs/d_0",
        ),
        ({"algorithm.outputs": [obs("d", "/b/")]}, "algorithm.outputs.0.mode", "upload_periodically"),
        ({"algorithm.outputs": [obs("d", "/b/")]}, "algorithm.outputs.0.period", 30),
        (
            {"algorithm.inputs": [{"name": "d", "remote": {"dataset": {"id": "i", "version_id": "v"}}}]},
            "algorithm.inputs.0.remote.dataset.obs_url",
            "/modelarts-emulator/datasets/i/v/",
        ),
        ({"algorithm.parameters": [{"name": "p", "value": "1"}]}, "algorithm.parameters.0.description", ""),
        (
            {"algorithm.parameters": [{"name": "p", "value": "1"}]},
            "algorithm.parameters.0.i18n_description",
            None,
        ),
        (
            {"algorithm.parameters": [{"name": "p", "value": "1"}]},
            "algorithm.parameters.0.constraint.type",
            "Integer",
        ),
        (
            {"algorithm.parameters": [{"name": "p", "value": "0.1"}]},
            "algorithm.parameters.0.constraint.type",
            "Float",
        ),
        (
            {"algorithm.parameters": [{"name": "p", "value": "x"}]},
            "algorithm.parameters.0.constraint.type",
            "String",
        ),
        # engine
        ({}, "algorithm.engine.engine_name", "PyTorch"),
        ({}, "algorithm.engine.engine_version", ENGINE),
        (
            {"algorithm.engine": {"engine_name": "PyTorch", "engine_version": ENGINE}},
            "algorithm.engine.engine_id",
            ENGINE,
        ),
        (
            {"algorithm.engine": {"engine_id": "pytorch_9-x"}},
            "algorithm.engine.engine_version",
            "pytorch_9-x",
        ),
        (
            {"algorithm": {"command": "sh x", "engine": {"image_url": "a/b:1"}}},
            "algorithm.engine",
            {"v1_compatible": False, "run_user": "1000", "image_url": "a/b:1"},
        ),
        ({"algorithm": {"id": "abcdefghij"}}, "algorithm.name", "algorithm-abcdefgh"),
        ({"algorithm": {"id": "abc"}}, "algorithm.engine.engine_id", ENGINE),
        (
            {"algorithm": {"id": "abc"}},
            "algorithm.boot_file",
            "/modelarts-emulator/algorithms/abc/code/train.py",
        ),
        # spec
        ({}, "spec.resource.flavor_name", "Computing CPU(2U) instance"),
        ({}, "spec.resource.policy", "regular"),
        ({}, "spec.resource.flavor_detail.flavor_type", "CPU"),
        ({"spec.resource.flavor_id": "my.flavor"}, "spec.resource.flavor_detail.billing.code", "my.flavor"),
        ({"spec.resource.node_count": ...}, "spec.resource.node_count", 1),
        ({"spec.resource": {"pool_id": "p"}}, "spec.resource.flavor_detail", "absent"),
        ({"spec.resource": {"pool_id": "p"}}, "spec.schedule_policy.priority", 1),
        ({}, "spec.runtime_type", "production"),
        ({}, "spec.is_hosted_log", True),
        ({"spec.retention": {"policy": "enabled"}}, "spec.retention", "absent"),
        ({"spec.reserved_time": {"time_unit": "HOURS", "duration": 3}}, "status.retention_time", 3),
        (
            {"spec.volumes": [{"nfs": {"local_path": "/a", "read_only": False}}]},
            "spec.volumes.0.nfs",
            {"local_path": "/a"},
        ),
        # the rest
        ({"endpoints.ssh.key_pair_names": ["k"]}, "endpoints.ssh.task_urls.0.task", "worker-0"),
        ({"train_type": "SFT"}, "train_type", "absent"),
        ({"something_new": [1, {"a": None}]}, "something_new", [1, {"a": None}]),
    ],
)
def test_job_response_has_the_documented_value(
    api: Api, edits: dict[str, Any], path: str, answered: Any
) -> None:
    job = api.get(f"/v2/project/training-jobs/{api.create(edits=edits)}").json
    assert at(job, path) == answered


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
