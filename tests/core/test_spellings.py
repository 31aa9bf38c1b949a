"""Some fields have two spellings (docs/modelarts.md, "Contradictions"): the same job, either way.

What the service tells beside jobs is read in both spellings too, see tests/modelarts/test_operations.py.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest

from reconciler.core.observed import ObservedJob
from reconciler.decide.key_state import Difference, difference
from tests.builders import a_job, seen

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


def reported(job: Any, respell: Callable[[dict[str, Any]], object]) -> ObservedJob:
    """The job as the service would tell of it, but for one spelling."""
    body = copy.deepcopy(job.body)
    respell(body)
    return seen(job, body=body)


def compared(job: Any, details: ObservedJob) -> Difference:
    """What the details alone say: no declaration has a digest of noughts."""
    return difference(job, details, "b" + "0" * 12)


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
def test_same_job_in_another_spelling_has_no_change(respell: Callable[[dict[str, Any]], object]) -> None:
    job = a_job(**DECLARED)
    assert compared(job, reported(job, respell)).is_empty


def test_period_that_raw_sends_is_compared_as_a_number_of_seconds() -> None:
    job = a_job(raw={"algorithm": {"outputs": {"train_url": {"period": "30s"}}}}, **DECLARED)
    assert compared(job, reported(job, period(30))).is_empty
    assert not compared(job, reported(job, period(60))).is_empty


@pytest.mark.parametrize("kind", ["inputs", "outputs"])
def test_task_reported_with_a_single_input_and_output_is_no_change(kind: str) -> None:
    task = {**TASK, "algorithm": {**TASK["algorithm"], kind: [DATA]}}  # type: ignore[dict-item]
    job = a_job(kind="hetero_job", tasks=[task], spec=None, algorithm=None)

    def one(body: dict[str, Any]) -> None:
        algorithm = body["tasks"][0]["algorithm"]
        algorithm[kind] = algorithm[kind][0]

    assert compared(job, reported(job, one)).is_empty


def test_fields_added_to_a_task_by_the_service_are_no_change() -> None:
    job = a_job(kind="hetero_job", tasks=[TASK], spec=None, algorithm=None)

    def noise(body: dict[str, Any]) -> None:
        body["tasks"][0]["task_resource"] |= {"flavor_name": "F", "flavor_type": "CPU", "max_num": 16}

    assert compared(job, reported(job, noise)).is_empty
