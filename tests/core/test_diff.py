"""The diff between the reported details and the current declaration.

Source: docs/concepts/revisions.md, "Comparison".
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest

from reconciler.core.observed import ObservedJob
from reconciler.decide.key_state import Difference, difference
from reconciler.secrets import SecretText
from tests.builders import a_job, seen
from tests.core.fields import reported

#: In no declaration, so only the details can be compared.
UNKNOWN = "b" + "0" * 12


def differing(before: dict[str, Any], after: dict[str, Any], digest: str | None = None) -> Difference:
    """Diff a job sent as `before`, and reported with all the service's noise, against `after`."""
    sent = a_job(**before)
    return difference(a_job(**after), reported(sent), digest or sent.digest)


FULL: dict[str, Any] = {
    "algorithm__parameters": {"lr": 0.1, "epochs": 90},
    "algorithm__inputs": {"data_url": "obs://b/in/"},
    "algorithm__outputs": {"train_url": "obs://b/out/"},
    "algorithm__environments": {"NCCL_DEBUG": "INFO"},
    "spec__auto_stop": {"time_unit": "HOURS", "duration": 3},
    "spec__log_export_path": {"obs_url": "obs://b/log/"},
}


BY_ID: dict[str, Any] = {"algorithm": {"id": "some-algorithm"}}


@pytest.mark.parametrize("digest", [None, UNKNOWN])
@pytest.mark.parametrize(
    ("entry", "now"),
    [({}, {}), (FULL, FULL), (FULL, {**FULL, "algorithm__code_dir": "/b/code/"}), (BY_ID, BY_ID)],
)
def test_additions_by_the_service_are_no_change(
    entry: dict[str, Any], now: dict[str, Any], digest: str | None
) -> None:
    found = differing(entry, now, digest)
    assert found.changes == ()
    assert found.is_empty


@pytest.mark.parametrize(
    ("name", "value", "path", "before", "after"),
    [
        ("algorithm__parameters", {"lr": 0.2, "epochs": 90}, "algorithm.parameters.lr", "0.1", "0.2"),
        ("algorithm__parameters", {"lr": 0.1}, "algorithm.parameters.epochs", "90", None),
        ("algorithm__parameters", {"lr": 0.1, "epochs": 90, "b": 8}, "algorithm.parameters.b", None, "8"),
        ("algorithm__environments", {}, "algorithm.environments", {"NCCL_DEBUG": "INFO"}, None),
        (
            *("algorithm__environments", {"NCCL_DEBUG": "WARN"}),
            *("algorithm.environments.NCCL_DEBUG", "INFO", "WARN"),
        ),
        ("spec__auto_stop", None, "spec.auto_stop", {"time_unit": "HOURS", "duration": "3"}, None),
        ("spec__log_export_path", None, "spec.log_export_path", {"obs_url": "/b/log/"}, None),
        ("spec__resource__flavor_id", "cpu.8u", "spec.resource.flavor_id", "modelarts.vm.cpu.2u", "cpu.8u"),
        ("spec__resource__node_count", 2, "spec.resource.node_count", None, "2"),
        (
            *("algorithm__inputs", {"data_url": "obs://b/other/"}),
            *("algorithm.inputs.data_url.remote.obs.obs_url", "/b/in/", "/b/other/"),
        ),
    ],
)
def test_changed_field_has_its_path_and_its_values_before_and_after(
    name: str, value: Any, path: str, before: Any, after: Any
) -> None:
    [change] = differing(FULL, {**FULL, name: value}).changes
    assert (change.path, change.before, change.after) == (path, before, after)
    assert change.forces_new_job


@pytest.mark.parametrize(
    ("then", "now"),
    [
        (FULL, {**FULL, "spec__log_export_path": None}),  # the service may have filled in a default
        (
            {"algorithm": {"id": "x", "parameters": {"lr": 0.1}}},
            {"algorithm": {"id": "x"}},
        ),
    ],
)
def test_field_with_a_service_default_counts_as_removed_only_by_digest(
    then: dict[str, Any], now: dict[str, Any]
) -> None:
    assert differing(then, now, UNKNOWN).is_empty
    assert not differing(then, now).is_empty
    assert not differing({}, {"algorithm__parameters": {}}, UNKNOWN).is_empty


@pytest.mark.parametrize(
    "declared",
    [
        {"annotations": {"tensorboard/enable": "true"}},
        {"spec__retention": {"policy": "enabled"}},
        {"lifecycle": {"rerun": "x"}},
        {"raw": {"spec": {"brand": {"new": 1}}}},
    ],
)
def test_change_of_an_unreported_field_is_named_by_the_digest(declared: dict[str, Any]) -> None:
    found = differing({}, declared)
    assert not found.is_empty
    assert "a field that the service does not report" in found.summary or declared.keys() == {"raw"}


def test_rotated_secret_in_a_list_is_not_shown() -> None:
    def metrics(value: str, word: str) -> dict[str, Any]:
        command = ["curl", SecretText(value, "${var.t}"), word]
        return {"spec__custom_metrics": [{"exec": {"command": command}}]}

    [change] = differing(metrics("old-secret", "a"), metrics("new-secret", "b")).changes
    assert change.path == "spec.custom_metrics"
    assert "secret" not in str(change.before) + str(change.after)


def test_secret_counts_as_changed_only_if_no_other_change_explains_the_digest() -> None:
    then = {"algorithm__environments": {"T": SecretText("old", "${var.t}")}}
    now = {"algorithm__environments": {"T": SecretText("new", "${var.t}")}}
    [change] = differing(then, now, UNKNOWN).changes
    assert (change.path, change.before, change.after, change.sensitive) == (
        "algorithm.environments.T",
        "(sensitive)",
        "${var.t}",
        True,
    )
    [change] = differing(then, {**now, "algorithm__parameters": {"lr": 7}}, UNKNOWN).changes
    assert change.path == "algorithm.parameters.lr"
    assert differing(then, then).is_empty


# --- fields with two spellings (docs/reference/modelarts.md, "Contradictions")

DECLARED: dict[str, Any] = {
    "algorithm__parameters": {"lr": 0.1},
    "algorithm__inputs": {"data_url": "obs://b/in/"},
    "algorithm__outputs": {"train_url": "obs://b/out/"},
    "algorithm__environments": {"NCCL_DEBUG": "INFO", "WORKERS": 4},
    "spec__volumes": [{"nfs": {"nfs_server_path": "10.0.0.1:/", "local_path": "/home/ma-user/nfs/"}}],
}
TASK = {
    "role": "learner",
    "algorithm": {"code_dir": "obs://b/c/", "boot_file": "obs://b/c/t.py", "engine": {"engine_id": "e"}},
    "task_resource": {"flavor_id": "f", "node_count": 2},
}
DATA = {"name": "data_url", "remote": {"obs": {"obs_url": "/b/in/"}}}


def respelled(job: Any, respell: Callable[[dict[str, Any]], object]) -> ObservedJob:
    """The job as the service would report it, except for one spelling."""
    body = copy.deepcopy(job.body)
    respell(body)
    return seen(job, body=body)


def as_maps(body: dict[str, Any]) -> None:
    algorithm = body["algorithm"]
    algorithm["environments"] = [{name: value} for name, value in algorithm["environments"].items()]


def as_one_map(body: dict[str, Any]) -> None:
    body["algorithm"]["environments"] = [body["algorithm"]["environments"]]


def direct(body: dict[str, Any]) -> None:
    body["algorithm"]["outputs"][0]["remote"] = {"obs_url": "/b/out/"}


def period(value: object) -> Callable[[dict[str, Any]], None]:
    def respell(body: dict[str, Any]) -> None:
        body["algorithm"]["outputs"][0] |= {"mode": "upload_periodically", "period": value}

    return respell


def flat(body: dict[str, Any]) -> None:
    body["spec"]["volumes"] = [volume["nfs"] for volume in body["spec"]["volumes"]]


@pytest.mark.parametrize(
    "respell",
    [
        pytest.param(as_maps, id="environments as a list of maps"),
        pytest.param(as_one_map, id="environments as a list of one map"),
        pytest.param(period("30s"), id='period "30s"'),
        pytest.param(period("30"), id='period "30"'),
        pytest.param(period(30), id="period 30"),
        pytest.param(lambda body: body.update(endpoints=None), id="endpoints null"),
        pytest.param(lambda body: body["algorithm"].update(policies={"auto_search": None}), id="no policies"),
        pytest.param(lambda body: body["spec"]["resource"].update(node_count="1"), id="node_count as text"),
        pytest.param(lambda body: body["spec"]["resource"].update(policy="economic"), id="resource.policy"),
        pytest.param(lambda body: body["spec"].update(is_hosted_log=True), id="is_hosted_log"),
        pytest.param(direct, id="outputs[].remote.obs_url"),
        pytest.param(flat, id="volumes flat"),
    ],
)
def test_job_reported_in_another_spelling_has_no_change(respell: Callable[[dict[str, Any]], object]) -> None:
    job = a_job(**DECLARED)
    assert difference(job, respelled(job, respell), UNKNOWN).is_empty


def test_period_that_raw_sends_is_compared_as_a_number_of_seconds() -> None:
    job = a_job(raw={"algorithm": {"outputs": {"train_url": {"period": "30s"}}}}, **DECLARED)
    assert difference(job, respelled(job, period(30)), UNKNOWN).is_empty
    assert not difference(job, respelled(job, period(60)), UNKNOWN).is_empty


@pytest.mark.parametrize("kind", ["inputs", "outputs"])
def test_task_reported_with_a_single_input_and_output_is_no_change(kind: str) -> None:
    task = {**TASK, "algorithm": {**TASK["algorithm"], kind: [DATA]}}  # type: ignore[dict-item]
    job = a_job(kind="hetero_job", tasks=[task], spec=None, algorithm=None)

    def one(body: dict[str, Any]) -> None:
        algorithm = body["tasks"][0]["algorithm"]
        algorithm[kind] = algorithm[kind][0]

    assert difference(job, respelled(job, one), UNKNOWN).is_empty


def test_fields_added_to_a_task_by_the_service_are_no_change() -> None:
    job = a_job(kind="hetero_job", tasks=[TASK], spec=None, algorithm=None)

    def noise(body: dict[str, Any]) -> None:
        body["tasks"][0]["task_resource"] |= {"flavor_name": "F", "flavor_type": "CPU", "max_num": 16}

    assert difference(job, respelled(job, noise), UNKNOWN).is_empty


def test_removed_empty_argument_is_a_change_beside_unreported_fields() -> None:
    then = {"algorithm__parameters": {"lr": 0.1, "resume": ""}, "annotations": {"team": "x"}}
    found = differing(then, {"algorithm__parameters": {"lr": 0.1}})
    assert [change.path for change in found.changes] == ["algorithm.parameters.resume"]


def test_field_added_to_a_task_by_raw_is_a_change_of_the_tasks() -> None:
    job = a_job(kind="hetero_job", tasks=[TASK], spec=None, algorithm=None)
    now = a_job(kind="hetero_job", tasks=[{**TASK, "raw": {"new": 1}}], spec=None, algorithm=None)
    details = respelled(job, lambda body: None)
    assert [change.path for change in difference(now, details, UNKNOWN).changes] == ["tasks"]
