"""The same call by the vendor's SDK and by us: the emulator is sent the same request.

Equal are method, path, query and body. What else differs stands in a table, each with its reason.
"""

from __future__ import annotations

import io
import json
import warnings
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing
from typing import Any, NamedTuple
from urllib.parse import parse_qsl

import pytest

from reconciler.core.stack import Target
from reconciler.emulator import ManualClock, Store, create_app, running
from reconciler.emulator.routes import ROUTES
from reconciler.modelarts.backend import ModelArtsBackend
from reconciler.modelarts.connect import connect
from tests.modelarts.building import ACCESS_KEY, PROJECT, SECRET_KEY, a_body

with warnings.catch_warnings():
    # The SDK uses what newer versions of Python call old.
    warnings.simplefilter("ignore")
    sdk = pytest.importorskip("huaweicloudsdkmodelarts.v1")
    from huaweicloudsdkcore.auth.credentials import BasicCredentials

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning:huaweicloudsdkcore")

TEXT = 'first, 新 ä/é & "quotes"'


class Sent(NamedTuple):
    """One request, as the server received it."""

    method: str
    path: str
    query: list[tuple[str, str]]
    body: Any
    headers: dict[str, str]

    @property
    def request(self) -> tuple[Any, ...]:
        """What has to be equal."""
        return self[:4]


class Recorder:
    """A service that starts anew for each call, and writes each request down."""

    def __init__(self) -> None:
        self.sent: list[Sent] = []
        self.app: Any = None

    def __call__(self, environ: dict[str, Any], start_response: Callable[..., Any]) -> Iterable[bytes]:
        """Serve one request."""
        data = environ["wsgi.input"].read(int(environ.get("CONTENT_LENGTH") or 0))
        environ["wsgi.input"] = io.BytesIO(data)
        headers = {
            name.removeprefix("HTTP_").replace("_", "-").lower(): value
            for name, value in environ.items()
            if (name.startswith("HTTP_") or name in {"CONTENT_TYPE", "CONTENT_LENGTH"}) and value
        }
        path = environ["PATH_INFO"].encode("latin-1").decode()
        query = sorted(parse_qsl(environ["QUERY_STRING"], keep_blank_values=True))
        body = json.loads(data) if data else None
        self.sent.append(Sent(environ["REQUEST_METHOD"], path, query, body, headers))
        answer: Iterable[bytes] = self.app(environ, start_response)
        return answer

    def record(self, call: Callable[[str], object]) -> Sent:
        """Let a job run, call with its id, and return the one request that came."""
        with Store(clock=ManualClock()) as store:
            self.app = create_app(store, project_id=PROJECT, access_key=ACCESS_KEY, secret_key=SECRET_KEY)
            job_id = store.create(PROJECT, a_body("old")).id
            store.tag(PROJECT, job_id, {"team": "vision"})
            store.clock.advance(minutes=3)
            self.sent.clear()
            call(job_id)
            (served,) = self.app.requests
            assert 200 <= served.status < 300
            (sent,) = self.sent
        told = json.dumps(sent.body).replace(job_id, "{id}")
        return sent._replace(path=sent.path.replace(job_id, "{id}"), body=json.loads(told))


class Sides(NamedTuple):
    """Two clients of one service."""

    recorder: Recorder
    client: Any
    backend: ModelArtsBackend

    def sent_for(self, pair: Pair) -> tuple[Sent, Sent]:
        """What the SDK sends for a call, and what we send."""
        call = getattr(self.client, pair.method)
        return (
            self.recorder.record(lambda job_id: call(pair.request(job_id))),
            self.recorder.record(lambda job_id: pair.ours(self.backend, job_id)),
        )


@pytest.fixture(scope="module")
def sides() -> Iterator[Sides]:
    """The vendor's SDK and our backend, with the same access key."""
    recorder = Recorder()
    with running(recorder) as url:
        credentials = BasicCredentials(ACCESS_KEY, SECRET_KEY, PROJECT)
        client = sdk.ModelArtsClient.new_builder().with_credentials(credentials).with_endpoint(url).build()
        target = Target.model_validate({"kind": "modelarts", "endpoint": url, "project_id": PROJECT})
        environ = {"HUAWEICLOUD_SDK_AK": ACCESS_KEY, "HUAWEICLOUD_SDK_SK": SECRET_KEY}
        with closing(client), connect(target, environ) as backend:
            yield Sides(recorder, client, backend)


class Pair(NamedTuple):
    """One call: the SDK's method and its request for a job id, and ours."""

    method: str
    request: Callable[[str], Any]
    ours: Callable[[ModelArtsBackend, str], object]


def a_job_of_the_sdk() -> Any:
    return sdk.Job(
        kind="job",
        metadata=sdk.JobMetadata(name="new", workspace_id="0", description=TEXT),
        algorithm=sdk.JobAlgorithm(
            code_dir="obs://ml/code/",
            boot_file="obs://ml/code/train.py",
            engine=sdk.JobEngine(engine_id="pytorch_1.8.0-cuda_10.2-py_3.7-ubuntu_18.04-x86_64"),
        ),
        spec=sdk.Spec(resource=sdk.SpecResource(flavor_id="modelarts.p3.large.public", node_count=2)),
    )


PHASES = {"key": "phase", "operator": "in", "value": ["Running", "Pending"]}
NAME = {"key": "name", "operator": "like", "value": ["öld"]}
VISION = {"key": "team", "values": ["vision"]}
EVENTS: dict[str, Any] = {"offset": 0, "limit": 7, "order": "asc", "level": "Info", "pattern": "job é & ~"}
WORKER = {"task_id": "worker-0"}

PAIRS: dict[str, Pair] = {
    "CreateTrainingJob": Pair(
        "create_training_job",
        lambda _: sdk.CreateTrainingJobRequest(body=a_job_of_the_sdk()),
        lambda backend, _: backend.create(a_body("new", TEXT)),
    ),
    "ListTrainingJobs": Pair(
        "list_training_jobs",
        lambda _: sdk.ListTrainingJobsRequest(
            body=sdk.JobSearches(
                offset=0,
                limit=50,
                sort_by="create_time",
                order="asc",
                workspace_id="0",
                filters=[sdk.Filter(**PHASES), sdk.Filter(**NAME)],
                tags=[sdk.ListTagFilter(**VISION)],
            )
        ),
        lambda backend, _: backend.search([PHASES, NAME], more={"tags": [VISION]}),
    ),
    "ShowTrainingJobDetails": Pair(
        "show_training_job_details",
        lambda job_id: sdk.ShowTrainingJobDetailsRequest(training_job_id=job_id),
        lambda backend, job_id: backend.details(job_id),
    ),
    "ChangeTrainingJobDescription": Pair(
        "change_training_job_description",
        lambda job_id: sdk.ChangeTrainingJobDescriptionRequest(
            training_job_id=job_id,
            body=sdk.JobUpdateRequestBody(
                description=TEXT,
                spec=sdk.JobUpdateRequestBodySpec(
                    schedule_policy=sdk.JobUpdateRequestBodySpecSchedulePolicy(preemptible=True),
                    notification=sdk.Notification(topic_urn="urn:smn:x", events=["JobFailed"]),
                ),
                endpoints=sdk.JobEndpointsReq(ssh=sdk.SSHReq(key_pair_names=["key-1"])),
            ),
        ),
        lambda backend, job_id: backend.update(
            job_id,
            {
                "description": TEXT,
                "spec": {
                    "schedule_policy": {"preemptible": True},
                    "notification": {"topic_urn": "urn:smn:x", "events": ["JobFailed"]},
                },
                "endpoints": {"ssh": {"key_pair_names": ["key-1"]}},
            },
        ),
    ),
    "StopTrainingJob": Pair(
        "stop_training_job",
        lambda job_id: sdk.StopTrainingJobRequest(
            training_job_id=job_id, body=sdk.JobActionType(action_type="terminate")
        ),
        lambda backend, job_id: backend.terminate(job_id),
    ),
    "DeleteTrainingJob": Pair(
        "delete_training_job",
        lambda job_id: sdk.DeleteTrainingJobRequest(training_job_id=job_id),
        lambda backend, job_id: backend.delete(job_id),
    ),
    "BatchDeleteTrainingJob": Pair(
        "batch_delete_training_job",
        lambda job_id: sdk.BatchDeleteTrainingJobRequest(
            body=sdk.BatchDeleteJobsReq(
                jobs=[sdk.BatchDeleteJobItem(kind="job", metadata=sdk.BatchDeleteJobMetadata(id=job_id))]
            )
        ),
        lambda backend, job_id: backend.delete_many({job_id: "job"}),
    ),
    "ValidateTrainingJobName": Pair(
        "validate_training_job_name",
        lambda _: sdk.ValidateTrainingJobNameRequest(job_name="old", workspace_id="0"),
        lambda backend, _: backend.name_is_taken("old"),
    ),
    "ShowTrainingJobFlavors": Pair(
        "show_training_job_flavors",
        lambda _: sdk.ShowTrainingJobFlavorsRequest(flavor_type="Ascend"),
        lambda backend, _: backend.catalog.flavors("Ascend"),
    ),
    "ShowTrainingJobEngines": Pair(
        "show_training_job_engines",
        lambda _: sdk.ShowTrainingJobEnginesRequest(),
        lambda backend, _: backend.catalog.engines(),
    ),
    "ShowTrainingQuotas": Pair(
        "show_training_quotas",
        lambda _: sdk.ShowTrainingQuotasRequest(resource="job-num", user_id="me"),
        lambda backend, _: backend.catalog.quotas("job-num", "me"),
    ),
    "ListTrainingJobEvents": Pair(
        "list_training_job_events",
        lambda job_id: sdk.ListTrainingJobEventsRequest(training_job_id=job_id, **EVENTS),
        lambda backend, job_id: backend.logs.events(job_id, **EVENTS),
    ),
    "ListTrainingJobTasks": Pair(
        "list_training_job_tasks",
        lambda job_id: sdk.ListTrainingJobTasksRequest(training_job_id=job_id, schedule_count=1),
        lambda backend, job_id: backend.logs.tasks(job_id, 1),
    ),
    "ListTrainingJobStages": Pair(
        "list_training_job_stages",
        lambda job_id: sdk.ListTrainingJobStagesRequest(training_job_id=job_id),
        lambda backend, job_id: backend.logs.stages(job_id),
    ),
    "ShowTrainingJobLogsPreview": Pair(
        "show_training_job_logs_preview",
        lambda job_id: sdk.ShowTrainingJobLogsPreviewRequest(training_job_id=job_id, **WORKER),
        lambda backend, job_id: backend.logs.preview(job_id, "worker-0"),
    ),
    "ShowTrainingJobLogsFromAom": Pair(
        "show_training_job_logs_from_aom",
        lambda job_id: sdk.ShowTrainingJobLogsFromAomRequest(
            training_job_id=job_id, **WORKER, base_line="1", lines=2, order="asc"
        ),
        lambda backend, job_id: backend.logs.lines(
            job_id, "worker-0", base_line="1", lines=2, order="asc"
        ),
    ),
    "ShowTrainingJobMetrics": Pair(
        "show_training_job_metrics",
        lambda job_id: sdk.ShowTrainingJobMetricsRequest(training_job_id=job_id, **WORKER),
        lambda backend, job_id: backend.logs.metrics(job_id, "worker-0"),
    ),
    "CreateTrainJobTags": Pair(
        "create_train_job_tags",
        lambda job_id: sdk.CreateTrainJobTagsRequest(
            training_job_id=job_id, body=sdk.CreateTmsTagsRequest(tags=[sdk.TmsTag(key="a", value="新")])
        ),
        lambda backend, job_id: backend.tags.add(job_id, {"a": "新"}),
    ),
    "DeleteTrainJobTags": Pair(
        "delete_train_job_tags",
        lambda job_id: sdk.DeleteTrainJobTagsRequest(
            training_job_id=job_id, body=sdk.DeleteTmsTagsRequest(tags=[sdk.TmsTagForDeletion(key="team")])
        ),
        lambda backend, job_id: backend.tags.remove(job_id, ["team"]),
    ),
    "ShowTrainJobTags": Pair(
        "show_train_job_tags",
        lambda job_id: sdk.ShowTrainJobTagsRequest(training_job_id=job_id),
        lambda backend, job_id: backend.tags.of_job(job_id),
    ),
    "ListTrainingJobTags": Pair(
        "list_training_job_tags",
        lambda _: sdk.ListTrainingJobTagsRequest(limit=1000, offset=0),
        lambda backend, _: backend.tags.of_project(),
    ),
    "ListTrainingJobsByTags": Pair(
        "list_training_jobs_by_tags",
        lambda _: sdk.ListTrainingJobsByTagsRequest(
            limit=1000,
            offset=0,
            body=sdk.ResourceInstancesFilterReq(
                workspace_id="0", tags=[sdk.MutiValueTag(key="team", values=["vision", "nlp"])]
            ),
        ),
        lambda backend, _: backend.tags.find({"team": ["vision", "nlp"]}),
    ),
    "CountTrainingJobsByTags": Pair(
        "count_training_jobs_by_tags",
        lambda _: sdk.CountTrainingJobsByTagsRequest(
            body=sdk.CountResourceInstancesReq(
                workspace_id="0", tags=[sdk.CountResourceInstancesReqTags(key="team", values=["vision"])]
            )
        ),
        lambda backend, _: backend.tags.count({"team": ["vision"]}),
    ),
}  # fmt: skip

#: Training-job operations of one side only.
NOT_IN_THE_SDK = {
    "ShowObsUrlOfTrainingJobLogs": "documented for OTC and by the service's own tools, missing in the SDK",
}
NOT_OURS = {
    "modify_training_quotas": "for administrators of an account, not for jobs",
    "notify_training_job_information": "called from inside a job",
    "show_training_job_route_plan": "network topology of super pods, not part of the documents of the jobs",
}

#: Headers that only one of the two sends, or with another value, and why.
SDK_SENDS = {
    "content-type": "on a GET or DELETE without a body too, where it says nothing",
    "content-length": "0, on a DELETE without a body",
    "connection": "keep-alive, which HTTP/1.1 does without being asked",
}
WE_SEND = {
    "x-language": "the service's messages in English, whatever the account's language",
}
OTHER_VALUE = {
    "user-agent": "names the program; we do not sign it, for a proxy may change it",
    "accept": "we take JSON only",
    "authorization": "signs the User-Agent or not, and the time",
    "x-sdk-date": "the time",
    "content-length": "the same JSON with other white space",
    "content-type": "charset=UTF-8, which it writes in lower case",
}


@pytest.mark.parametrize("operation", PAIRS)
def test_request_equals_that_of_the_sdk(sides: Sides, operation: str) -> None:
    sdks, ours = sides.sent_for(PAIRS[operation])
    assert ours.request == sdks.request


@pytest.mark.parametrize(
    "operation", ["ShowTrainingJobDetails", "StopTrainingJob", "ListTrainingJobs", "DeleteTrainingJob"]
)
def test_headers_differ_from_the_sdk_only_as_listed(sides: Sides, operation: str) -> None:
    sdks, ours = (sent.headers for sent in sides.sent_for(PAIRS[operation]))
    assert ours.keys() - sdks.keys() == WE_SEND.keys()
    assert sdks.keys() - ours.keys() <= SDK_SENDS.keys()
    assert {name for name in ours.keys() & sdks.keys() if ours[name] != sdks[name]} <= OTHER_VALUE.keys()


def test_operations_of_sdk_and_backend_are_all_compared_or_listed() -> None:
    assert PAIRS.keys() | NOT_IN_THE_SDK.keys() == {route.operation for route in ROUTES}
    compared = {pair.method for pair in PAIRS.values()}
    offered = {
        name
        for name in dir(sdk.ModelArtsClient)
        if ("training_job" in name or "train_job" in name or "training_quotas" in name)
        and not name.startswith("_")
        and not name.endswith("_invoker")
    }
    assert offered == compared | NOT_OURS.keys()
