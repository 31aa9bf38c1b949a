"""What every backend promises, whatever lies between it and the service."""

from __future__ import annotations

import threading

import pytest

from reconciler.backends.modelarts import ModelArtsBackend
from reconciler.core.marks import Cloud
from reconciler.core.phase import Phase
from reconciler.core.ports import Backend, NameTaken, NotFound, Rejected, WrongPhase
from reconciler.core.secret import SecretText
from tests.backends.building import MARKER, a_body


def test_satisfies_the_port(backend: ModelArtsBackend) -> None:
    port: Backend = backend
    assert port.observe().jobs == ()


def test_created_job_is_observed_with_its_marker(backend: ModelArtsBackend) -> None:
    created = backend.create(a_body(description=MARKER))
    (seen,) = backend.observe().jobs
    assert (seen.id, seen.name, seen.node_count) == (created.id, "resnet50", 2)
    assert str(seen.marker) == MARKER
    assert created.phase is Phase.CREATING


def test_details_are_those_of_the_search(backend: ModelArtsBackend) -> None:
    created = backend.create(a_body())
    (listed,) = backend.observe().jobs
    assert backend.details(created.id) == listed


def test_workspace_of_a_new_job_is_the_targets(backend: ModelArtsBackend) -> None:
    body = a_body()
    del body["metadata"]["workspace_id"]
    assert backend.create(body).body["metadata"]["workspace_id"] == "0"


def test_secret_in_a_body_is_sent_as_it_is(backend: ModelArtsBackend) -> None:
    body = a_body()
    body["algorithm"]["environments"] = {"HF_TOKEN": SecretText("hf_välue", "${var.hf}")}
    created = backend.create(body)
    assert backend.details(created.id).body["algorithm"]["environments"] == {"HF_TOKEN": "hf_välue"}


def test_second_job_of_a_name_is_refused(backend: ModelArtsBackend) -> None:
    backend.create(a_body())
    with pytest.raises(NameTaken) as refusal:
        backend.create(a_body())
    assert refusal.value.code == "ModelArts.2751"
    assert refusal.value.request_id


@pytest.mark.parametrize(("name", "found"), [("resnet50", 1), ("RESNET50", 1), ("resnet", 0), ("x", 0)])
def test_find_compares_the_whole_name_and_no_case(backend: ModelArtsBackend, name: str, found: int) -> None:
    backend.create(a_body("resnet50"))
    backend.create(a_body("resnet50-r2"))
    assert len(backend.find(name)) == found


def test_name_is_taken_is_unknown_on_otc(backend: ModelArtsBackend) -> None:
    backend.create(a_body())
    asked = (backend.name_is_taken("resnet50"), backend.name_is_taken("other"))
    assert asked == ((None, None) if backend.cloud is Cloud.OTC else (True, False))


def test_update_changes_the_description_only(backend: ModelArtsBackend) -> None:
    created = backend.create(a_body(description="old"))
    backend.update(created.id, {"description": f"new {MARKER}"})
    assert backend.details(created.id).text == "new"


def test_terminated_job_is_terminating(backend: ModelArtsBackend) -> None:
    created = backend.create(a_body())
    backend.terminate(created.id)
    assert backend.details(created.id).phase is Phase.TERMINATING


def test_terminate_comes_too_late(backend: ModelArtsBackend) -> None:
    created = backend.create(a_body())
    backend.terminate(created.id)
    with pytest.raises(WrongPhase) as refusal:
        backend.terminate(created.id)
    assert refusal.value.status == 409


@pytest.mark.parametrize("method", ["details", "terminate", "delete"])
@pytest.mark.parametrize("job_id", ["00000000-0000-0000-0000-000000000000", "..", "a/b", "", "batch-delete"])
def test_no_such_job(backend: ModelArtsBackend, method: str, job_id: str) -> None:
    with pytest.raises(NotFound):
        getattr(backend, method)(job_id)


def test_refused_body_names_its_reason(backend: ModelArtsBackend) -> None:
    with pytest.raises(Rejected) as refusal:
        backend.create(a_body("not a name!"))
    assert type(refusal.value) is Rejected
    assert refusal.value.code.startswith("ModelArts.")


def test_threads_share_a_backend(backend: ModelArtsBackend) -> None:
    threads = [threading.Thread(target=backend.create, args=(a_body(f"job-{n}"),)) for n in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert {job.name for job in backend.observe().jobs} == {f"job-{n}" for n in range(4)}
