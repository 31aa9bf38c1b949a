"""Every documented field of search, details, terminate and update has a place, under its documented name."""

from __future__ import annotations

import json
import re
import warnings
from collections.abc import Iterator
from typing import Any

import pytest
from pydantic import BaseModel, TypeAdapter

from reconciler.core.fields.field_types import type_of
from reconciler.core.fields.job import JobBody
from reconciler.core.fields.rare import NodeSelectorTerm, PreferredTerm
from reconciler.modelarts import operations
from reconciler.modelarts.job_models import JobPage, ReportedJob
from reconciler.modelarts.operations import MODELS
from tests.modelarts.building import PROJECT, a_body, an_answer
from tests.modelarts.conftest import LocalBackend
from tests.modelarts.documented import (
    FIELDS,
    MESSAGES,
    OTHER_SPELLINGS,
    ROWS,
    Row,
    at,
    extras,
    kind_of,
    put,
    sample,
    whole,
)


def dumped(read: BaseModel) -> Any:
    return read.model_dump(mode="json", exclude_unset=True)


def test_documented_fields_are_loaded() -> None:
    assert len(ROWS) > 300
    assert len(set(ROWS)) == len(ROWS)
    assert {row.message for row in ROWS} == MESSAGES.keys()
    assert kind_of(ReportedJob, "metadata.colour") is None


def test_documented_fields_all_have_a_place_in_the_models() -> None:
    assert [str(row) for row in FIELDS if not kind_of(MESSAGES[row.message], row.path)] == []


@pytest.mark.parametrize("message", MESSAGES)
def test_message_with_every_field_round_trips(message: str) -> None:
    read = MESSAGES[message].model_validate(whole(message))
    assert list(extras(read)) == []
    assert dumped(read) == whole(message)


@pytest.mark.parametrize("row", OTHER_SPELLINGS, ids=str)
def test_field_in_its_alternative_spelling_has_the_same_place(row: Row) -> None:
    model = MESSAGES[row.message]
    document: dict[str, Any] = {}
    # What a document cannot show without.
    for beginning, name in (
        ("tasks[].algorithm.inputs", ".name"),
        ("tasks[].algorithm.outputs", ".name"),
        ("spec.volumes[]", ".nfs_server_path"),
    ):
        if row.path.startswith(beginning):
            put(document, beginning + name, "text")
    value = sample(kind_of(model, row.place))
    put(document, row.path, value)
    read = model.model_validate(document)
    assert list(extras(read)) == []
    assert at(dumped(read), row.place) == value


@pytest.mark.parametrize(
    ("path", "told", "read"),
    [
        ("status.start_time", "1641892655000", 1_641_892_655_000),
        ("status.start_time", 0, 0),
        ("status.start_time", "", None),
        ("status.node_count_metrics", None, ()),
        ("status.node_count_metrics", [[1_641_892_645_000, 0]], ((1_641_892_645_000, 0),)),
        ("metadata.description", None, ""),
        ("metadata.annotations", None, {}),
        ("algorithm.environments", {"A": "1"}, {"A": "1"}),
        ("algorithm.environments", [{"A": "1"}, {"B": 2}], {"A": "1", "B": "2"}),
        ("algorithm.outputs[].period", "30s", 30),
        ("algorithm.outputs[].period", "30", 30),
        ("algorithm.outputs[].period", 30, 30),
        ("algorithm.engine.run_user", 1102, "1102"),
        ("algorithm.policies.auto_search", None, None),
        ("algorithm.policies.auto_search.search_params[].param_type", "discreate", "discrete"),
        ("algorithm.policies.auto_search.search_params[].param_type", "continuous", "continuous"),
        ("spec.resource.policy", "economic", "economic"),
        ("spec.resource.flavor_detail.flavor_info.gpu.unit_num", "8", 8),
        ("spec.resource.flavor_detail.flavor_info.npu.unit_num", 8, 8),
        ("spec.resource.flavor_detail.flavor_info.disk.size", "50", 50),
        ("spec.resource.flavor_detail.flavor_info.disk.size", 50, 50),
        ("spec.resource.flavor_detail.attributes", {"is_multi_nodes_supported": "true"}, None),
        ("kind", "quantum_job", "quantum_job"),
    ],
)
def test_value_documented_in_several_forms_is_read_as_the_same(path: str, told: object, read: object) -> None:
    answer: dict[str, Any] = {}
    put(answer, path, told)
    found: Any = ReportedJob.model_validate(answer)
    for part in path.split("."):
        found = getattr(found, part.rstrip("[]"))
        found = found[0] if part.endswith("[]") else found
    assert found == (told if read is None and told else read)


def test_declarable_fields_have_a_place_in_the_reported_job() -> None:
    ours = "parameters[].sensitive"  # never sent
    paths = [path for path in _paths(JobBody) if not path.endswith(ours)]
    assert len(paths) > 150
    assert [path for path in paths if not kind_of(ReportedJob, path)] == []


def _paths(model: type[BaseModel], path: str = "") -> Iterator[str]:
    """Where the fields of a declaration stand in an answer; Kubernetes' own words are left to Kubernetes."""
    for name, field in model.model_fields.items():
        if model is JobBody and name in {"description", "annotations", "training_experiment_reference"}:
            name = f"metadata.{name}"
        below = f"{path}{name}" + ("[]" if "list[" in str(type_of(field)) else "")
        members = [
            kind for kind in _models_in(type_of(field)) if kind not in {NodeSelectorTerm, PreferredTerm}
        ]
        if not members:
            yield below
        for member in members:
            yield from _paths(member, f"{below}.")


def _models_in(kind: Any) -> list[type[BaseModel]]:
    if isinstance(kind, type) and issubclass(kind, BaseModel):
        return [kind]
    return [found for one in getattr(kind, "__args__", ()) for found in _models_in(one)]


# ── unknown and mistyped fields ────────────────────────────────────────────────────────────────────

UNKNOWN: dict[str, Any] = {"next": [1, {"x": None, "token": 1.5}], "null": None}


def test_unknown_field_at_any_place_is_kept() -> None:
    answer = whole("job")
    put(answer, "future", UNKNOWN)
    for holder in (
        answer["metadata"],
        answer["status"]["running_records"][0]["recover_records"][0],
        answer["algorithm"]["inputs"][0]["remote"]["obs"],
        answer["spec"]["resource"]["flavor_detail"]["flavor_info"]["gpu"],
        answer["endpoints"]["ssh"]["task_urls"][0],
        answer["tasks"][0]["algorithm"]["job_config"],
    ):
        holder |= UNKNOWN
    page = {"total": 1, "items": [answer], **UNKNOWN}
    assert dumped(JobPage.model_validate(page)) == page
    job = ReportedJob.model_validate(answer)
    assert job.metadata.model_extra == UNKNOWN
    assert dumped(ReportedJob.model_validate(dumped(job))) == answer


@pytest.mark.parametrize("wrong", [{"a": []}, [[]], "a text", 1.5, True], ids=str)
def test_mistyped_field_is_kept_and_hides_no_other(wrong: object) -> None:
    kept = 0
    for path in (row.path.rstrip("[]") for row in FIELDS if row.message == "job"):
        answer = whole("job")
        put(answer, path, wrong)
        read = ReportedJob.model_validate(answer)
        aside = list(extras(read))
        assert all(found.startswith(path) for found in aside)
        # A number may be text, and 1.5 the text "1.5": what was read otherwise than it stood is no mistake.
        if aside:
            assert dumped(read) == answer
            kept += 1
    assert kept > 50


@pytest.mark.parametrize("answer", [None, [], "x", 7])
def test_reported_job_that_is_no_object_is_refused(answer: object) -> None:
    with pytest.raises(ValueError, match="dictionary"):
        ReportedJob.model_validate(answer)


def test_token_of_a_reported_job_is_hidden_in_its_repr() -> None:
    job = ReportedJob.model_validate({"endpoints": {"jupyter_lab": {"url": "u", "token": "tell-nobody"}}})
    assert job.endpoints is not None
    assert job.endpoints.jupyter_lab is not None
    assert job.endpoints.jupyter_lab.token == "tell-nobody"
    assert "tell-nobody" not in repr(job)


# ── two witnesses: the emulator, and the vendor's SDK ──────────────────────────────────────────────

_DATA = {"name": "data_url", "remote": {"obs": {"obs_url": "obs://ml/in/"}}}
_CODE = {"code_dir": "obs://ml/code/", "boot_file": "obs://ml/code/train.py"}
POOL = {"pool_id": "pool-1", "node_count": 1}
TASK = {
    "role": "learner",
    "algorithm": {**_CODE, "inputs": [_DATA], "outputs": [_DATA], "engine": {"engine_id": "e"}},
    "task_resource": {"flavor_id": "modelarts.p3.large.public", "node_count": 2},
}
BODIES: dict[str, dict[str, Any]] = {
    "plain": {},
    "data": {
        "algorithm": {
            **a_body()["algorithm"],
            "parameters": [{"name": "lr", "value": "0.1"}],
            "inputs": [_DATA, {"name": "set", "remote": {"dataset": {"id": "d", "version_id": "v"}}}],
            "outputs": [_DATA],
            "environments": {"A": "1"},
            "policies": {"auto_search": None},
        }
    },
    "pool": {
        "spec": {
            "resource": POOL,
            "volumes": [{"nfs": {"nfs_server_path": "h:/", "local_path": "/x", "read_only": False}}],
            "log_export_path": {"obs_url": "obs://ml/log/"},
            "auto_stop": {"time_unit": "HOURS", "duration": 1},
            "reserved_time": {"time_unit": "HOURS", "duration": 1},
            "notification": {"topic_urn": "urn:smn:x", "events": ["JobFailed"]},
            "asset_model": {"name": "n", "version": "1", "type": "t"},
        },
        "endpoints": {"ssh": {"key_pair_names": ["key-1"]}},
        "annotations": {"jupyter-lab/enable": "true", "tensorboard/enable": "true"},
        "training_experiment_reference": {"name": "e"},
    },
    "hetero": {"kind": "hetero_job", "tasks": [TASK], "spec": None, "algorithm": None},
}


@pytest.mark.parametrize("kind", BODIES)
@pytest.mark.parametrize("phase", ["Creating", "Running", "Failed"])
def test_emulator_response_has_no_field_without_a_place(local: LocalBackend, kind: str, phase: str) -> None:
    body = {**a_body(), **BODIES[kind]}
    of_metadata = {
        name: body.pop(name) for name in ("annotations", "training_experiment_reference") if name in body
    }
    body["metadata"] = {**body["metadata"], **of_metadata}
    job_id = local.emulator.store.create(PROJECT, json.loads(json.dumps(body))).id
    local.emulator.store.clock.advance(minutes=15)
    local.emulator.store.set_phase(job_id, phase)
    job = local.jobs.details(job_id)
    assert list(extras(job)) == []
    assert list(extras(local.jobs.search())) == []
    assert job.status.phase == phase
    told = json.loads(local.emulator.store.find(job_id).text)
    assert ReportedJob.model_validate(told) == job


def test_answer_in_canonical_spelling_round_trips_exactly() -> None:
    answer = an_answer()
    assert dumped(ReportedJob.model_validate(answer)) == answer


#: What the vendor's SDK reads an answer with, and what we do.
OTHERS: dict[str, Any] = {
    "ListTrainingJobsResponse": JobPage,
    "ShowTrainingJobDetailsResponse": ReportedJob,
    "CreateTrainingJobResponse": ReportedJob,
    "StopTrainingJobResponse": ReportedJob,
    "JobSearches": MESSAGES["search"],
    "JobActionType": MESSAGES["terminate"],
    "JobUpdateRequestBody": MESSAGES["update"],
    "ListTrainingJobEventsResponse": operations.Events,
    "TaskIP": operations.Task,
    "ListTrainingJobStagesResponse": operations.Stages,
    "ShowTrainingJobLogsPreviewResponse": operations.LogPreview,
    "ShowTrainingJobLogsFromAomResponse": operations.LogLines,
    "ShowTrainingJobMetricsResponse": MODELS["Metrics"],
    "ShowTrainingJobFlavorsResponse": MODELS["Flavors"],
    "ShowTrainingJobEnginesResponse": MODELS["Engines"],
    "ShowTrainingQuotasResponse": MODELS["Quotas"],
    "ShowTrainJobTagsResponse": MODELS["TagList"],
    "ListTrainingJobTagsResponse": MODELS["ProjectTags"],
    "ListTrainingJobsByTagsResponse": MODELS["TaggedJobs"],
    "CountTrainingJobsByTagsResponse": operations.TaggedCount,
}


@pytest.mark.parametrize("name", OTHERS)
def test_fields_read_by_the_vendor_sdk_have_a_place(name: str) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        sdk = pytest.importorskip("huaweicloudsdkmodelarts.v1")
    answer = _of_the_sdk(sdk, name)
    read = TypeAdapter(OTHERS[name]).validate_python(answer)
    assert list(extras(read)) == []
    assert _names(dumped(read)) == _names(answer)


def _of_the_sdk(sdk: Any, kind: str, above: tuple[str, ...] = ()) -> Any:
    if found := re.fullmatch(r"list\[(.*)]", kind):
        return [_of_the_sdk(sdk, found[1], above)]
    shape = getattr(sdk, kind, None)
    if shape is None:
        return {"str": "3", "int": 3, "float": 3, "bool": True, "object": {}}.get(kind, {"key": "value"})
    if kind in above:
        return {}
    below = (*above, kind)
    return {
        shape.attribute_map[name]: _literal(shape.attribute_map[name], _of_the_sdk(sdk, member, below))
        for name, member in shape.openapi_types.items()
    }


def _literal(name: str, value: Any) -> Any:
    """What is asked is checked by us: these take certain words only."""
    ours = {"operator": "in", "order": "asc", "action_type": "terminate", "train_type": "job"}
    return ours.get(name, value)


def _names(value: Any) -> Any:
    """The names of all fields; a list of maps and an only item of a list count as the map and the item."""
    if isinstance(value, list):
        return _names(value[0]) if len(value) == 1 else [_names(item) for item in value]
    return {name: _names(member) for name, member in value.items()} if isinstance(value, dict) else None
