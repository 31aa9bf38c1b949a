"""The same call by the vendor's SDK and by us: equal requests, and both parse the response.

Method, path, query and body are equal. Other differences are listed with their reasons. Where the
SDK and the emulator disagree, the emulator is wrong.
"""

from __future__ import annotations

import io
import json
import re
import warnings
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing, nullcontext
from typing import Any, NamedTuple
from urllib.parse import parse_qsl

import pytest

from reconciler.core.stack import Target
from reconciler.emulator import ManualClock, Store, create_app, running
from reconciler.emulator.app import ROUTES
from reconciler.modelarts.connect import ModelArtsBackend, connect
from tests.modelarts.building import ACCESS_KEY, PROJECT, SECRET_KEY, a_body

with warnings.catch_warnings():
    # The SDK uses features deprecated in newer versions of Python.
    warnings.simplefilter("ignore")
    sdk = pytest.importorskip("huaweicloudsdkmodelarts.v1")
    from huaweicloudsdkcore.auth.credentials import BasicCredentials
    from huaweicloudsdkcore.exceptions.exceptions import ClientRequestException

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning:huaweicloudsdkcore")

TEXT = 'first, 新 ä/é & "quotes"'


class Sent(NamedTuple):
    method: str
    path: str
    query: list[tuple[str, str]]
    body: Any
    headers: dict[str, str]

    @property
    def request(self) -> tuple[Any, ...]:
        return self[:4]


class Recorder:
    """A service that is new for each call, and records each request."""

    def __init__(self) -> None:
        self.sent: list[Sent] = []
        self.app: Any = None
        self.answer: Any = None

    def __call__(self, environ: dict[str, Any], start_response: Callable[..., Any]) -> Iterable[bytes]:
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
        answer = b"".join(self.app(environ, start_response))
        self.answer = json.loads(answer or b"null")
        return [answer]

    def record(self, call: Callable[[str], object]) -> Sent:
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
        body = json.dumps(sent.body).replace(job_id, "{id}")
        return sent._replace(path=sent.path.replace(job_id, "{id}"), body=json.loads(body))


class Sides(NamedTuple):
    recorder: Recorder
    client: Any
    backend: ModelArtsBackend

    def by_sdk(self, operation: str, read: Callable[[Any], object] = bool) -> Sent:
        """Return what the SDK sends for an operation; `read` gets its parsed response."""
        call, shape = getattr(self.client, method_of(operation)), getattr(sdk, f"{operation}Request")

        def ask(job_id: str) -> object:
            given = PAIRS[operation][0]
            given = (
                given
                | {name: job_id for name, value in given.items() if value == "{id}"}
                | {name: doomed(job_id) for name, value in given.items() if value is doomed}
            )
            return read(call(shape(**given)))

        return self.recorder.record(ask)

    def sent_for(self, operation: str) -> tuple[Sent, Sent]:
        call = PAIRS[operation][1]
        assert call is not None
        return self.by_sdk(operation), self.recorder.record(lambda job_id: call(self.backend, job_id))


def method_of(operation: str) -> str:
    return re.sub(r"(?<!^)(?=[A-Z])", "_", operation).lower()


@pytest.fixture(scope="module")
def sides() -> Iterator[Sides]:
    recorder = Recorder()
    with running(recorder) as url:
        credentials = BasicCredentials(ACCESS_KEY, SECRET_KEY, PROJECT)
        client = sdk.ModelArtsClient.new_builder().with_credentials(credentials).with_endpoint(url).build()
        target = Target.model_validate({"kind": "modelarts", "endpoint": url, "project_id": PROJECT})
        environ = {"HUAWEICLOUD_SDK_AK": ACCESS_KEY, "HUAWEICLOUD_SDK_SK": SECRET_KEY}
        with closing(client), connect(target, environ) as backend:
            yield Sides(recorder, client, backend)


JOB = sdk.Job(
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
SEARCHES = sdk.JobSearches(
    offset=0,
    limit=50,
    sort_by="create_time",
    order="asc",
    workspace_id="0",
    filters=[sdk.Filter(**PHASES), sdk.Filter(**NAME)],
    tags=[sdk.ListTagFilter(**VISION)],
)
NOTIFICATION = {"topic_urn": "urn:smn:x", "events": ["JobFailed"]}
CHANGES = {
    "description": TEXT,
    "spec": {"schedule_policy": {"preemptible": True}, "notification": NOTIFICATION},
    "endpoints": {"ssh": {"key_pair_names": ["key-1"]}},
}
CHANGES_OF_THE_SDK = sdk.JobUpdateRequestBody(
    description=TEXT,
    spec=sdk.JobUpdateRequestBodySpec(
        schedule_policy=sdk.JobUpdateRequestBodySpecSchedulePolicy(preemptible=True),
        notification=sdk.Notification(**NOTIFICATION),
    ),
    endpoints=sdk.JobEndpointsReq(ssh=sdk.SSHReq(key_pair_names=["key-1"])),
)
EVENTS: dict[str, Any] = {"offset": 0, "limit": 7, "order": "asc"}
LINES: dict[str, Any] = {"base_line": "1", "lines": 2, "order": "asc"}

OF_JOB = {"training_job_id": "{id}"}
OF_WORKER = {**OF_JOB, "task_id": "worker-0"}


def doomed(job_id: str) -> Any:
    job = sdk.BatchDeleteJobItem(kind="job", metadata=sdk.BatchDeleteJobMetadata(id=job_id))
    return sdk.BatchDeleteJobsReq(jobs=[job])


#: The arguments of the SDK's request, and our equivalent call, if any.
PAIRS: dict[str, tuple[dict[str, Any], Callable[[ModelArtsBackend, str], object] | None]] = {
    "CreateTrainingJob": ({"body": JOB}, lambda our, _: our.create(a_body("new", TEXT))),
    "ListTrainingJobs": (
        {"body": SEARCHES},
        lambda our, _: our.search([PHASES, NAME], more={"tags": [VISION]}),
    ),
    "ShowTrainingJobDetails": (OF_JOB, lambda our, job_id: our.details(job_id)),
    "ChangeTrainingJobDescription": (
        {**OF_JOB, "body": CHANGES_OF_THE_SDK},
        lambda our, job_id: our.update(job_id, CHANGES),
    ),
    "StopTrainingJob": (
        {**OF_JOB, "body": sdk.JobActionType(action_type="terminate")},
        lambda our, job_id: our.terminate(job_id),
    ),
    "DeleteTrainingJob": (OF_JOB, lambda our, job_id: our.delete(job_id)),
    "BatchDeleteTrainingJob": ({"body": doomed}, lambda our, job_id: our.delete_many({job_id: "job"})),
    "ValidateTrainingJobName": (
        {"job_name": "old", "workspace_id": "0"},
        lambda our, _: our.name_is_taken("old"),
    ),
    "ShowTrainingJobFlavors": ({"flavor_type": "GPU"}, lambda our, _: our.catalog.flavor_offers("GPU")),
    "ShowTrainingJobEngines": ({}, lambda our, _: our.catalog.engine_offers()),
    "ShowTrainingQuotas": (
        {"resource": "job-num"},
        lambda our, _: our.catalog.record_quota(),
    ),
    "ListTrainingJobEvents": ({**OF_JOB, **EVENTS}, lambda our, job_id: our.logs.events(job_id, 0, 7)),
    "ListTrainingJobTasks": ({**OF_JOB, "schedule_count": 1}, None),
    "ListTrainingJobStages": (OF_JOB, None),
    "ShowTrainingJobLogsPreview": (OF_WORKER, lambda our, job_id: our.logs.preview(job_id, "worker-0")),
    "ShowTrainingJobLogsFromAom": (
        {**OF_WORKER, **LINES},
        None,
    ),
    "ShowTrainingJobMetrics": (OF_WORKER, lambda our, job_id: our.logs.metrics(job_id, "worker-0")),
    "CreateTrainJobTags": (
        {**OF_JOB, "body": sdk.CreateTmsTagsRequest(tags=[sdk.TmsTag(key="a", value="新")])},
        None,
    ),
    "DeleteTrainJobTags": (
        {**OF_JOB, "body": sdk.DeleteTmsTagsRequest(tags=[sdk.TmsTagForDeletion(key="team")])},
        None,
    ),
    "ShowTrainJobTags": (OF_JOB, None),
    "ListTrainingJobTags": ({"limit": 1000, "offset": 0}, None),
    "ListTrainingJobsByTags": (
        {
            "limit": 1000,
            "offset": 0,
            "body": sdk.ResourceInstancesFilterReq(
                workspace_id="0", tags=[sdk.MutiValueTag(key="team", values=["vision", "nlp"])]
            ),
        },
        None,
    ),
    "CountTrainingJobsByTags": (
        {
            "body": sdk.CountResourceInstancesReq(
                workspace_id="0", tags=[sdk.CountResourceInstancesReqTags(**VISION)]
            )
        },
        None,
    ),
}

#: Training-job operations of one side only.
NOT_IN_THE_SDK = {
    "ShowObsUrlOfTrainingJobLogs": "documented for OTC and by the service's own tools, missing in the SDK"
}
NOT_OURS = {
    "modify_training_quotas": "for administrators of an account, not for jobs",
    "notify_training_job_information": "called from inside a job",
    "show_training_job_route_plan": "network topology of super pods, not part of the documents of the jobs",
}

#: Headers sent by one of the two only, or with different values, and why.
SDK_SENDS = {
    "content-type": "on a GET or DELETE without a body too, where it says nothing",
    "content-length": "0, on a DELETE without a body",
    "connection": "keep-alive, which HTTP/1.1 does without being asked",
}
WE_SEND = {"x-language": "the service's messages in English, whatever the account's language"}
OTHER_VALUE = {
    "user-agent": "names the program; we do not sign it, for a proxy may change it",
    "accept": "we take JSON only",
    "authorization": "signs the User-Agent or not, and the time",
    "x-sdk-date": "the time",
    "content-length": "the same JSON with other white space",
    "content-type": "charset=UTF-8, which it writes in lower case",
}


@pytest.mark.parametrize("operation", [name for name, (_, call) in PAIRS.items() if call])
def test_request_equals_that_of_the_sdk(sides: Sides, operation: str) -> None:
    sdks, ours = sides.sent_for(operation)
    assert ours.request == sdks.request


#: Parts of responses missing from the SDK's models.
UNREAD = (
    *("engine.", "attributes.", "items[].tags[]", "metadata.ai_project"),
    *("spec.is_hosted_log", "spec.runtime_type", "gpu.product_nume"),
)


@pytest.mark.parametrize("operation", PAIRS)
def test_sdk_reads_every_field_that_the_emulator_answers(sides: Sides, operation: str) -> None:
    read: list[Any] = []
    sides.by_sdk(operation, read.append)
    missed = unread(read[0], sides.recorder.answer)
    assert [path for path in missed if not any(part in path for part in UNREAD)] == []


@pytest.mark.parametrize(
    ("secret_key", "token", "status"), [(SECRET_KEY, "T", 200), ("wrong", "T", 401), (SECRET_KEY, "", 401)]
)
def test_sdk_is_accepted_with_the_right_credentials_only(secret_key: str, token: str, status: int) -> None:
    keys: dict[str, Any] = {"access_key": ACCESS_KEY, "secret_key": SECRET_KEY, "security_token": "T"}
    with Store() as store, running(create_app(store, project_id=PROJECT, **keys)) as url:
        credentials = BasicCredentials(ACCESS_KEY, secret_key, PROJECT).with_security_token(token)
        builder = sdk.ModelArtsClient.new_builder().with_credentials(credentials)
        with closing(builder.with_endpoint(url).build()) as client:
            refusal = pytest.raises(ClientRequestException) if status == 401 else nullcontext()
            with refusal as refused:
                assert client.show_training_job_engines(sdk.ShowTrainingJobEnginesRequest()).items
            if refused:
                assert (refused.value.status_code, refused.value.error_code) == (status, "APIGW.0301")
                assert refused.value.request_id


def unread(value: Any, answer: Any, path: str = "") -> Iterator[str]:
    if isinstance(answer, list):
        value = getattr(value, "body", value)
        for inner, part in zip(value or [None] * len(answer), answer, strict=True):
            yield from unread(inner, part, f"{path}[]")
    elif isinstance(answer, dict):
        names = {name: own for own, name in getattr(value, "attribute_map", {}).items()}
        for name, part in answer.items():
            inner = value.get(name) if isinstance(value, dict) else getattr(value, names.get(name, ""), None)
            yield from unread(inner, part, f"{path}.{name}")
    elif answer is not None and value is None:
        yield path


@pytest.mark.parametrize(
    "operation", ["ShowTrainingJobDetails", "StopTrainingJob", "ListTrainingJobs", "DeleteTrainingJob"]
)
def test_headers_differ_from_the_sdk_only_as_listed(sides: Sides, operation: str) -> None:
    sdks, ours = (sent.headers for sent in sides.sent_for(operation))
    assert ours.keys() - sdks.keys() == WE_SEND.keys()
    assert sdks.keys() - ours.keys() <= SDK_SENDS.keys()
    assert {name for name in ours.keys() & sdks.keys() if ours[name] != sdks[name]} <= OTHER_VALUE.keys()


def test_operations_of_sdk_and_backend_are_all_compared_or_listed() -> None:
    assert PAIRS.keys() | NOT_IN_THE_SDK.keys() == {route.operation for route in ROUTES}
    compared = set(map(method_of, PAIRS))
    offered = {
        name
        for name in dir(sdk.ModelArtsClient)
        if ("training_job" in name or "train_job" in name or "training_quotas" in name)
        and not name.startswith("_")
        and not name.endswith("_invoker")
    }
    assert offered == compared | NOT_OURS.keys()
