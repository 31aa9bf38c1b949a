"""The vendor's own SDK against the emulator: it signs, sends and reads every operation it has.

Where the two disagree, the emulator is wrong. That the SDK and we send the same is shown in tests/modelarts.
"""

from __future__ import annotations

import re
import warnings
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from typing import Any

import pytest

from reconciler.emulator import ManualClock, Store, create_app, running

with warnings.catch_warnings():
    # The SDK uses what newer versions of Python call old.
    warnings.simplefilter("ignore")
    sdk = pytest.importorskip("huaweicloudsdkmodelarts.v1")
    from huaweicloudsdkcore.auth.credentials import BasicCredentials
    from huaweicloudsdkcore.exceptions.exceptions import ClientRequestException

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning:huaweicloudsdkcore")
PROJECT = "0123456789abcdef0123456789abcdef"
Call = Callable[..., Any]


@contextmanager
def connected(url: str, secret_key: str = "SK", security_token: str = "") -> Iterator[Call]:
    """A function that calls an operation by its name."""
    credentials = BasicCredentials("AK", secret_key, PROJECT)
    if security_token:
        credentials.with_security_token(security_token)
    client = sdk.ModelArtsClient.new_builder().with_credentials(credentials).with_endpoint(url).build()

    def call(operation: str, **arguments: Any) -> Any:
        method = re.sub(r"(?<!^)(?=[A-Z])", "_", operation).lower()
        return getattr(client, method)(getattr(sdk, f"{operation}Request")(**arguments))

    with closing(client):
        yield call


@pytest.fixture
def call(store: Store) -> Iterator[Call]:
    app = create_app(store, project_id=PROJECT, access_key="AK", secret_key="SK")
    with running(app) as url, connected(url) as calling:
        yield calling


def a_body(name: str = "from-the-sdk") -> Any:
    obs = sdk.Remote(obs=sdk.RemoteObs(obs_url="/ml-team/out/"))
    return sdk.Job(
        kind="job",
        metadata=sdk.JobMetadata(name=name, description="first, 新"),
        algorithm=sdk.JobAlgorithm(
            code_dir="obs://ml-team/code/",
            boot_file="obs://ml-team/code/train.py",
            engine=sdk.JobEngine(engine_id="pytorch_1.8.0-cuda_10.2-py_3.7-ubuntu_18.04-x86_64"),
            parameters=[sdk.Parameters(name="lr", value="0.1")],
            outputs=[sdk.Output(name="out", remote=obs)],
            environments={"NCCL_DEBUG": "INFO"},
        ),
        spec=sdk.Spec(
            resource=sdk.SpecResource(flavor_id="modelarts.p3.large.public", node_count=2),
            auto_stop=sdk.AutoStop(time_unit="HOURS", duration=24),
        ),
    )


def create(call: Call, body: Any = None) -> str:
    return str(call("CreateTrainingJob", body=body or a_body()).metadata.id)


def show(call: Call, job_id: str) -> Any:
    return call("ShowTrainingJobDetails", training_job_id=job_id)


def refusal_of(operation: Callable[[], object]) -> tuple[int, str]:
    with pytest.raises(ClientRequestException) as refused:
        operation()
    assert refused.value.request_id
    return refused.value.status_code, refused.value.error_code


def test_sdk_creates_shows_and_lists_a_job(call: Call, clock: ManualClock) -> None:
    made = call("CreateTrainingJob", body=a_body())
    assert (made.status_code, made.status.phase) == (201, "Creating")
    assert made.status.tasks == ["worker-0", "worker-1"]
    clock.advance(minutes=1)
    job = show(call, made.metadata.id)
    assert (job.metadata.name, job.metadata.description) == ("from-the-sdk", "first, 新")
    assert job.metadata.create_time == made.metadata.create_time
    assert (job.status.phase, job.status.duration) == ("Running", 57_000)
    assert job.status.running_records[0].start_type == "init_or_rescheduled"
    assert job.algorithm.engine.engine_name == "PyTorch"
    assert job.algorithm.environments == [{"NCCL_DEBUG": "INFO"}]
    assert job.algorithm.parameters[0].constraint.type == "Float"
    assert job.algorithm.outputs[0].remote.obs.obs_url == "/ml-team/out/"
    assert job.spec.resource.flavor_detail.flavor_info.gpu.product_name == "GP-Vnt1"
    other = show(call, create(call, a_body("other")))
    assert other.status.start_time == 0, "of a variant the SDK makes it a number"
    assert other.spec.resource.flavor_detail.flavor_info.disk.size == "500"
    named = sdk.Filter(key="name", operator="like", value=["other", "from"])
    search = sdk.JobSearches(offset=1, limit=1, order="asc", workspace_id="0", filters=[named])
    page = call("ListTrainingJobs", body=search)
    assert (page.total, page.count, page.limit, page.offset) == (2, 2, 1, 1)
    assert [one.metadata.name for one in page.items] == ["other"]


def test_sdk_changes_every_mutable_field(call: Call, store: Store) -> None:
    body = a_body()
    body.spec.resource = sdk.SpecResource(pool_id="pool-1", node_count=1)
    body.endpoints = sdk.JobEndpointsReq(ssh=sdk.SSHReq(key_pair_names=["key-1"]))
    job_id = create(call, body)
    store.set_phase(job_id, "Pending")
    changes = sdk.JobUpdateRequestBody(
        spec=sdk.JobUpdateRequestBodySpec(
            schedule_policy=sdk.JobUpdateRequestBodySpecSchedulePolicy(priority=3, preemptible=True),
            notification=sdk.Notification(topic_urn="urn:smn:x", events=["JobFailed"]),
        ),
        endpoints=sdk.JobEndpointsReq(ssh=sdk.SSHReq(key_pair_names=["key-2"])),
        metadata=sdk.JobUpdateRequestBodyMetadata(annotation={"jupyter-lab/enable": "true"}),
    )
    for body, description in (
        (changes, "first, 新"),
        (sdk.JobUpdateRequestBody(description="second"), "second"),
    ):
        changed = call("ChangeTrainingJobDescription", training_job_id=job_id, body=body)
        assert changed.status_code == 200
        assert show(call, job_id).metadata.description == description
    job = show(call, job_id)
    assert (job.spec.schedule_policy.priority, job.spec.schedule_policy.preemptible) == (3, True)
    assert job.endpoints.ssh.key_pair_names == ["key-2"]
    assert job.endpoints.jupyter_lab.url


def test_sdk_stops_and_deletes_a_job(call: Call, clock: ManualClock) -> None:
    job_id = create(call)
    stop = {"training_job_id": job_id, "body": sdk.JobActionType(action_type="terminate")}
    stopped = call("StopTrainingJob", **stop)
    assert (stopped.status_code, stopped.status.phase) == (202, "Terminating")
    clock.advance(seconds=1)
    assert show(call, job_id).status.phase == "Terminated"
    assert refusal_of(lambda: call("StopTrainingJob", **stop)) == (409, "ModelArts.2796")
    assert call("DeleteTrainingJob", training_job_id=job_id).status_code == 202
    assert refusal_of(lambda: show(call, job_id)) == (400, "ModelArts.2775")


def test_sdk_reads_catalogue_quota_and_route_plan(call: Call) -> None:
    flavors = call("ShowTrainingJobFlavors", flavor_type="Ascend")
    assert flavors.total_count == len(flavors.flavors)
    assert flavors.flavors[0].flavor_info.npu.product_name == "Ascend-910"
    assert call("ShowTrainingJobEngines").items[0].image_info.image_version
    quota = call("ShowTrainingQuotas").quotas[0]
    assert (quota.resource, quota.quota, quota.used) == ("job-num", 10_000, 0)
    item = sdk.ModifyTrainingQuotaItem(resource="job-num", quota=7)
    changed = call("ModifyTrainingQuotas", body=sdk.ModifyTrainingQuotaRequest(user_id="u1", quotas=[item]))
    assert (changed.status_code, changed.user_id, changed.quotas[0].quota) == (200, "u1", 7)
    assert call("ShowTrainingQuotas").quotas[0].quota == 7
    job_id = create(call)
    plan = call("ShowTrainingJobRoutePlan", training_job_id=job_id)
    assert (plan.job_id, plan.status, plan.rank_mapping) == (job_id, "failed", "0-0,1-1")


def test_sdk_reads_events_tasks_stages_logs_and_metrics(call: Call, clock: ManualClock) -> None:
    job = {"training_job_id": create(call)}
    clock.advance(minutes=3)
    task = {**job, "task_id": "worker-0"}
    events = call("ListTrainingJobEvents", **job)
    assert (events.total, events.events[-1].message) == (3, "Training job created.")
    tasks = call("ListTrainingJobTasks", **job)
    assert [one.task for one in tasks.body] == ["worker-0", "worker-1"]
    stages = call("ListTrainingJobStages", **job)
    assert [stage.stage_order for stage in stages.running_records[0].stages] == [1, 2, 3]
    assert "step 0" in call("ShowTrainingJobLogsPreview", **task).content
    assert call("ShowTrainingJobLogsFromAom", **task, lines=2).lines == 2
    assert call("ShowTrainingJobMetrics", **task).metrics[0].metric == "cpuUsage"


def test_sdk_adds_finds_and_deletes_tags(call: Call) -> None:
    job = {"training_job_id": create(call)}
    tags = sdk.CreateTmsTagsRequest(tags=[sdk.TmsTag(key="team", value="ml")])
    assert call("CreateTrainJobTags", **job, body=tags).status_code == 204
    assert [(tag.key, tag.value) for tag in call("ShowTrainJobTags", **job).tags] == [("team", "ml")]
    assert call("ListTrainingJobTags", limit=10).tags[0].values == ["ml"]
    asked = sdk.ResourceInstancesFilterReq(tags=[sdk.ListTagFilter(key="team", values=["ml"])])
    found = call("ListTrainingJobsByTags", limit=10, body=asked)
    assert found.resources[0].resource_id == job["training_job_id"]
    assert call("CountTrainingJobsByTags", body=sdk.CountResourceInstancesReq()).total_count == 1
    keys = sdk.DeleteTmsTagsRequest(tags=[sdk.TmsTagForDeletion(key="team")])
    assert call("DeleteTrainJobTags", **job, body=keys).status_code == 204


def test_sdk_without_the_right_credentials_is_refused(store: Store) -> None:
    app = create_app(store, project_id=PROJECT, access_key="AK", secret_key="SK", security_token="MIIFToken")
    with running(app) as url:
        with connected(url, security_token="MIIFToken") as call:
            assert show(call, create(call)).metadata.name == "from-the-sdk"
        for more in ({}, {"secret_key": "wrong", "security_token": "MIIFToken"}):
            with connected(url, **more) as call:
                assert refusal_of(lambda call=call: create(call)) == (401, "APIGW.0301")  # type: ignore[misc]
