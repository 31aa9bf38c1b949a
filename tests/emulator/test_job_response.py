"""Noise: how a job response differs from its create request."""

# A response without JSON fails the test anyway.
# mypy: disable-error-code="index,union-attr"

from __future__ import annotations

from typing import Any

import pytest
from werkzeug.test import Client, TestResponse

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
#: What is sent, and the response at which paths.
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
        {f"{INPUT}.remote.obs.obs_url": "/b/in/", f"{INPUT}.local_dir": "/home/ma-user/modelarts/inputs/d_0"},
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


def test_missing_experiment_is_refused(api: Api) -> None:
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


JOBS = "/v2/project/training-jobs"
EVERYTHING: dict[str, Any] = {
    "metadata.annotations": {"fault-tolerance/hang-retry": "true"},
    "algorithm.environments": {"A": "1", "B": "2"},
    "algorithm.parameters": [{"name": "lr", "value": "0.1"}],
    "algorithm.inputs": [{"name": "in", "remote": {"obs": {"obs_url": "/b/in/"}}}],
    "algorithm.outputs": [{"name": "out", "remote": {"obs": {"obs_url": "obs://b/out/"}}}],
    "spec.resource.flavor_id": "modelarts.p3.large.public",
    "spec.volumes": [{"nfs": {"nfs_server_path": "10.0.0.1:/", "local_path": "/mnt/a"}}],
    "spec.auto_stop": {"time_unit": "HOURS", "duration": 24},
    "spec.schedule_policy": {"priority": 2},
    "spec.log_export_path": {"obs_url": "obs://b/log/"},
}


def both(store: Store, cloud: str, **edits: Any) -> list[dict[str, Any]]:
    client = Client(create_app(store, cloud=cloud))
    made = [body_of(client.post(JOBS, json=a_job(name, EVERYTHING | edits))) for name in ("one", "two")]
    answers = [body_of(client.get(f"{JOBS}/{job['metadata']['id']}")) for job in made]
    found = body_of(client.post("/v2/project/training-job-searches", json={"order": "asc"}))["items"]
    assert found == answers, "a search says the same"
    assert [{**job, "metadata": 0} for job in made] == [{**job, "metadata": 0} for job in answers]
    return answers


def body_of(response: TestResponse) -> dict[str, Any]:
    return dict(response.json or {})


INFO = "spec.resource.flavor_detail.flavor_info"
FILLED = [
    ("status.start_time", 0, "0"),
    ("status.node_count_metrics", None, []),
    ("metadata.ai_project", "default-ai-project", "absent"),
    ("algorithm.outputs.0.period", 30, "30s"),
    ("algorithm.engine.run_user", "1102", "absent"),
    ("algorithm.parameters.0.i18n_description", None, "absent"),
    ("algorithm.policies", {}, "absent"),
    (f"{INFO}.disk.size", 500, "500"),
    (f"{INFO}.gpu.product_name", "GP-Vnt1", "absent"),
    (f"{INFO}.gpu.product_nume", "absent", "GP-Vnt1"),
    (f"{INFO}.gpu.unit_num", 1, "1"),
    ("spec.resource.flavor_detail.billing", *[{"code": "modelarts.vm.gpu.v100", "unit_num": 1}] * 2),
    ("spec.resource.policy", "regular", "absent"),
    ("spec.resource.flavor_name", *["Computing GPU(Vnt1) instance"] * 2),
    ("spec.is_hosted_log", True, "absent"),
]
DECLARED = [
    ("metadata.description", "", None),
    ("metadata.annotations.fault-tolerance/hang-retry", "true", "absent"),
    ("algorithm.code_dir", "obs://ml-team/resnet/code/", "/ml-team/resnet/code/"),
    ("algorithm.boot_file", "obs://ml-team/resnet/code/train.py", "/ml-team/resnet/code/train.py"),
    ("algorithm.environments", {"A": "1", "B": "2"}, [{"A": "1"}, {"B": "2"}]),
    ("algorithm.inputs.0.remote.obs.obs_url", "/b/in/", "obs://b/in/"),
    ("algorithm.outputs.0.remote", {"obs": {"obs_url": "/b/out/"}}, {"obs_url": "obs://b/out/"}),
    ("spec.volumes.0.nfs", {"nfs_server_path": "10.0.0.1:/", "local_path": "/mnt/a"}, "absent"),
    ("spec.volumes.0.local_path", "absent", "/mnt/a"),
    ("spec.auto_stop.duration", 24, "24"),
    ("spec.schedule_policy.priority", 2, "2"),
    ("spec.log_export_path.obs_url", "/b/log/", "obs://b/log/"),
]


@pytest.mark.parametrize("cloud", ["huawei", "otc"])
def test_every_second_job_has_the_other_form_of_each_field(store: Store, cloud: str) -> None:
    """Values set by the service vary everywhere, declared ones on OTC only."""
    declared = DECLARED if cloud == "otc" else [(path, first, first) for path, first, _ in DECLARED]
    jobs = both(store, cloud)
    for path, first, second in [*FILLED, *declared]:
        assert [at(job, path) for job in jobs] == [first, second], path


def test_npu_count_is_a_number(store: Store) -> None:
    npu = {"spec.resource.flavor_id": "modelarts.kat1.4xlarge.public"}
    jobs = both(store, "huawei", **npu)
    assert [at(job, f"{INFO}.npu.unit_num") for job in jobs] == ["4", 4]


def test_event_count_is_text(api: Api) -> None:
    totals = [api.get(f"{JOBS}/{api.create(name)}/events").json["total"] for name in ("one", "two")]
    assert totals == [1, "1"]


def test_variants_do_not_change_the_catalogue(store: Store) -> None:
    client = Client(create_app(store))
    before = client.get("/v2/project/training-job-flavors").json
    both(store, "otc")
    assert client.get("/v2/project/training-job-flavors").json == before


def test_every_second_job_is_a_variant(api: Api) -> None:
    ids = [api.create(f"job-{number}") for number in range(6)]
    assert [int(job_id[-1], 16) % 2 for job_id in ids] == [0, 1, 0, 1, 0, 1]
    assert len(set(ids)) == 6
