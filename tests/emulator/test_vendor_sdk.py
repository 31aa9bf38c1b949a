"""The vendor's own SDK against the emulator: it signs, sends and reads every operation it has.

Where the two disagree, the emulator is wrong.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator
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


@pytest.fixture
def modelarts(store: Store) -> Iterator[Any]:
    app = create_app(store, project_id=PROJECT, access_key="AK", secret_key="SK")
    with running(app) as url, connected(url, "SK") as client:
        yield client


@contextmanager
def connected(url: str, secret_key: str) -> Iterator[Any]:
    credentials = BasicCredentials("AK", secret_key, PROJECT)
    client = sdk.ModelArtsClient.new_builder().with_credentials(credentials).with_endpoint(url).build()
    with closing(client):
        yield client


def a_request(name: str = "from-the-sdk") -> Any:
    obs = sdk.Remote(obs=sdk.RemoteObs(obs_url="/ml-team/out/"))
    return sdk.CreateTrainingJobRequest(
        body=sdk.Job(
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
    )


def create(modelarts: Any, name: str = "from-the-sdk") -> str:
    return str(modelarts.create_training_job(a_request(name)).metadata.id)


def show(modelarts: Any, job_id: str) -> Any:
    return modelarts.show_training_job_details(sdk.ShowTrainingJobDetailsRequest(training_job_id=job_id))


def test_sdk_creates_and_shows_a_job(modelarts: Any, clock: ManualClock) -> None:
    made = modelarts.create_training_job(a_request())
    assert (made.status_code, made.status.phase, made.status.tasks) == (
        201,
        "Creating",
        ["worker-0", "worker-1"],
    )

    clock.advance(minutes=1)
    job = show(modelarts, made.metadata.id)
    assert job.metadata.name == "from-the-sdk"
    assert job.metadata.description == "first, 新"
    assert job.metadata.create_time == made.metadata.create_time
    assert job.status.phase == "Running"
    assert job.status.duration == 57_000
    assert job.status.running_records[0].start_type == "init_or_rescheduled"
    assert job.algorithm.engine.engine_name == "PyTorch"
    assert job.algorithm.environments == [{"NCCL_DEBUG": "INFO"}]
    assert job.algorithm.parameters[0].constraint.type == "Float"
    assert job.algorithm.outputs[0].remote.obs.obs_url == "/ml-team/out/"
    assert job.spec.resource.flavor_detail.flavor_info.gpu.product_name == "GP-Vnt1"


def test_sdk_lists_a_page_of_jobs(modelarts: Any) -> None:
    for number in range(3):
        create(modelarts, f"job-{number}")
    search = sdk.JobSearches(
        offset=1,
        limit=1,
        order="asc",
        workspace_id="0",
        filters=[sdk.Filter(key="name", operator="like", value=["job-"])],
    )
    page = modelarts.list_training_jobs(sdk.ListTrainingJobsRequest(body=search))
    assert (page.total, page.count, page.limit, page.offset) == (3, 3, 1, 1)
    assert [job.metadata.name for job in page.items] == ["job-1"]


def test_sdk_changes_the_description(modelarts: Any) -> None:
    job_id = create(modelarts)
    body = sdk.JobUpdateRequestBody(description="second")
    request = sdk.ChangeTrainingJobDescriptionRequest(training_job_id=job_id, body=body)
    assert modelarts.change_training_job_description(request).status_code == 200
    assert show(modelarts, job_id).metadata.description == "second"


def test_sdk_changes_every_mutable_field(modelarts: Any, store: Store) -> None:
    asked = a_request()
    asked.body.spec.resource = sdk.SpecResource(pool_id="pool-1", node_count=1)
    asked.body.endpoints = sdk.JobEndpointsReq(ssh=sdk.SSHReq(key_pair_names=["key-1"]))
    job_id = str(modelarts.create_training_job(asked).metadata.id)
    store.set_phase(job_id, "Pending")
    body = sdk.JobUpdateRequestBody(
        spec=sdk.JobUpdateRequestBodySpec(
            schedule_policy=sdk.JobUpdateRequestBodySpecSchedulePolicy(priority=3, preemptible=True),
            notification=sdk.Notification(topic_urn="urn:smn:x", events=["JobFailed"]),
        ),
        endpoints=sdk.JobEndpointsReq(ssh=sdk.SSHReq(key_pair_names=["key-2"])),
        metadata=sdk.JobUpdateRequestBodyMetadata(annotation={"jupyter-lab/enable": "true"}),
    )
    request = sdk.ChangeTrainingJobDescriptionRequest(training_job_id=job_id, body=body)
    assert modelarts.change_training_job_description(request).status_code == 200
    job = show(modelarts, job_id)
    assert job.metadata.description == "first, 新"
    assert (job.spec.schedule_policy.priority, job.spec.schedule_policy.preemptible) == (3, True)
    assert job.endpoints.ssh.key_pair_names == ["key-2"]
    assert job.endpoints.jupyter_lab.url


def test_sdk_signs_with_temporary_credentials(store: Store) -> None:
    app = create_app(
        store, project_id=PROJECT, access_key="AK", secret_key="SK", security_token="MIIFSecurityToken"
    )
    with running(app) as url:
        credentials = BasicCredentials("AK", "SK", PROJECT).with_security_token("MIIFSecurityToken")
        client = sdk.ModelArtsClient.new_builder().with_credentials(credentials).with_endpoint(url).build()
        with closing(client):
            assert show(client, create(client)).metadata.name == "from-the-sdk"
        with connected(url, "SK") as without, pytest.raises(ClientRequestException) as refused:
            create(without)
        assert refused.value.error_code == "APIGW.0301"


def test_sdk_stops_and_deletes_a_job(modelarts: Any, clock: ManualClock) -> None:
    job_id = create(modelarts)
    stop = sdk.StopTrainingJobRequest(training_job_id=job_id, body=sdk.JobActionType(action_type="terminate"))
    stopped = modelarts.stop_training_job(stop)
    assert (stopped.status_code, stopped.status.phase) == (202, "Terminating")
    clock.advance(seconds=1)
    assert show(modelarts, job_id).status.phase == "Terminated"

    with pytest.raises(ClientRequestException) as refused:
        modelarts.stop_training_job(stop)
    assert (refused.value.status_code, refused.value.error_code) == (409, "ModelArts.2796")

    delete = sdk.DeleteTrainingJobRequest(training_job_id=job_id)
    assert modelarts.delete_training_job(delete).status_code == 202
    with pytest.raises(ClientRequestException) as missing:
        show(modelarts, job_id)
    assert (missing.value.status_code, missing.value.error_code) == (400, "ModelArts.2775")
    assert missing.value.request_id


def test_sdk_deletes_several_jobs(modelarts: Any) -> None:
    ids = [create(modelarts, f"job-{number}") for number in range(2)]
    items = [
        sdk.BatchDeleteJobItem(kind="job", metadata=sdk.BatchDeleteJobMetadata(id=job_id)) for job_id in ids
    ]
    request = sdk.BatchDeleteTrainingJobRequest(body=sdk.BatchDeleteJobsReq(jobs=items))
    assert modelarts.batch_delete_training_job(request).status_code == 202
    assert modelarts.list_training_jobs(sdk.ListTrainingJobsRequest(body=sdk.JobSearches())).total == 0


def test_sdk_checks_a_name(modelarts: Any) -> None:
    create(modelarts, "taken")
    taken, free = (
        modelarts.validate_training_job_name(
            sdk.ValidateTrainingJobNameRequest(job_name=name, workspace_id="0")
        ).is_duplicate
        for name in ("taken", "free")
    )
    assert (taken, free) == (True, False)


def test_sdk_reads_catalogue_and_quota(modelarts: Any) -> None:
    flavors = modelarts.show_training_job_flavors(sdk.ShowTrainingJobFlavorsRequest(flavor_type="Ascend"))
    assert flavors.total_count == len(flavors.flavors)
    assert flavors.flavors[0].flavor_info.npu.product_name == "Ascend-910"
    engines = modelarts.show_training_job_engines(sdk.ShowTrainingJobEnginesRequest())
    assert engines.items[0].image_info.image_version
    quota = modelarts.show_training_quotas(sdk.ShowTrainingQuotasRequest()).quotas[0]
    assert (quota.resource, quota.quota, quota.used) == ("job-num", 10_000, 0)


def test_sdk_changes_the_quota(modelarts: Any) -> None:
    item = sdk.ModifyTrainingQuotaItem(resource="job-num", quota=7)
    body = sdk.ModifyTrainingQuotaRequest(user_id="u1", quotas=[item])
    changed = modelarts.modify_training_quotas(sdk.ModifyTrainingQuotasRequest(body=body))
    assert (changed.status_code, changed.user_id, changed.quotas[0].quota) == (200, "u1", 7)
    assert modelarts.show_training_quotas(sdk.ShowTrainingQuotasRequest()).quotas[0].quota == 7


def test_sdk_reads_the_route_plan(modelarts: Any) -> None:
    request = sdk.ShowTrainingJobRoutePlanRequest(training_job_id=create(modelarts))
    plan = modelarts.show_training_job_route_plan(request)
    assert (plan.job_id, plan.status, plan.rank_mapping) == (request.training_job_id, "failed", "0-0,1-1")


def test_sdk_reads_the_variant_forms_of_a_job(modelarts: Any) -> None:
    create(modelarts, "first")
    job = show(modelarts, create(modelarts, "second"))
    assert job.status.start_time == 0, "the SDK makes it a number"
    assert job.spec.resource.flavor_detail.flavor_info.disk.size == "500"
    assert job.algorithm.engine.engine_name == "PyTorch"


def test_sdk_reads_events_tasks_stages_logs_and_metrics(modelarts: Any, clock: ManualClock) -> None:
    job_id = create(modelarts)
    clock.advance(minutes=3)
    task = {"training_job_id": job_id, "task_id": "worker-0"}

    events = modelarts.list_training_job_events(sdk.ListTrainingJobEventsRequest(training_job_id=job_id))
    assert (events.total, events.events[-1].message) == (3, "Training job created.")
    tasks = modelarts.list_training_job_tasks(sdk.ListTrainingJobTasksRequest(training_job_id=job_id))
    assert [task.task for task in tasks.body] == ["worker-0", "worker-1"]
    stages = modelarts.list_training_job_stages(sdk.ListTrainingJobStagesRequest(training_job_id=job_id))
    assert [stage.stage_order for stage in stages.running_records[0].stages] == [1, 2, 3]
    preview = modelarts.show_training_job_logs_preview(sdk.ShowTrainingJobLogsPreviewRequest(**task))
    assert "step 0" in preview.content
    lines = modelarts.show_training_job_logs_from_aom(sdk.ShowTrainingJobLogsFromAomRequest(**task, lines=2))
    assert lines.lines == 2
    metrics = modelarts.show_training_job_metrics(sdk.ShowTrainingJobMetricsRequest(**task))
    assert metrics.metrics[0].metric == "cpuUsage"


def test_sdk_adds_finds_and_deletes_tags(modelarts: Any) -> None:
    job_id = create(modelarts)
    tags = sdk.CreateTmsTagsRequest(tags=[sdk.TmsTag(key="team", value="ml")])
    made = modelarts.create_train_job_tags(sdk.CreateTrainJobTagsRequest(training_job_id=job_id, body=tags))
    assert made.status_code == 204
    shown = modelarts.show_train_job_tags(sdk.ShowTrainJobTagsRequest(training_job_id=job_id))
    assert [(tag.key, tag.value) for tag in shown.tags] == [("team", "ml")]
    everything = modelarts.list_training_job_tags(sdk.ListTrainingJobTagsRequest(limit=10))
    assert everything.tags[0].values == ["ml"]
    asked = sdk.ResourceInstancesFilterReq(tags=[sdk.ListTagFilter(key="team", values=["ml"])])
    found = modelarts.list_training_jobs_by_tags(sdk.ListTrainingJobsByTagsRequest(limit=10, body=asked))
    assert found.resources[0].resource_id == job_id
    counted = modelarts.count_training_jobs_by_tags(
        sdk.CountTrainingJobsByTagsRequest(body=sdk.CountResourceInstancesReq())
    )
    assert counted.total_count == 1
    keys = sdk.DeleteTmsTagsRequest(tags=[sdk.TmsTagForDeletion(key="team")])
    gone = modelarts.delete_train_job_tags(sdk.DeleteTrainJobTagsRequest(training_job_id=job_id, body=keys))
    assert gone.status_code == 204


def test_sdk_with_a_wrong_secret_is_refused(store: Store) -> None:
    app = create_app(store, access_key="AK", secret_key="SK")
    with (
        running(app) as url,
        connected(url, "wrong") as client,
        pytest.raises(ClientRequestException) as refused,
    ):
        create(client)
    assert (refused.value.status_code, refused.value.error_code) == (401, "APIGW.0301")
