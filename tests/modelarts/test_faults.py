"""What goes wrong between us and the service, in-process and over HTTP: each a story with a name."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from reconciler.core.phase import Phase
from reconciler.core.stack import Target
from reconciler.emulator.app import Application
from reconciler.emulator.control import Effect, Fault
from reconciler.emulator.server import running
from reconciler.errors import ServerError, Unanswered, Unreachable, UnreadableAnswer, WrongPhase
from reconciler.modelarts.connect import ModelArtsBackend, connect, connect_inprocess
from reconciler.modelarts.http import SessionOptions
from tests.modelarts.building import PROJECT, TOKEN, StoppedClock, a_body


@pytest.fixture(params=["in process", "http"])
def place(
    request: pytest.FixtureRequest, emulator: Application, clock: StoppedClock
) -> Iterator[ModelArtsBackend]:
    if request.param == "in process":
        with connect_inprocess(emulator, project_id=PROJECT, options=SessionOptions(clock=clock)) as backend:
            yield backend
        return
    with running(emulator) as url:
        target = Target.model_validate({"kind": "modelarts", "endpoint": url, "project_id": PROJECT})
        with connect(target, {"MODELARTS_AUTH_TOKEN": TOKEN}, SessionOptions(clock=clock)) as backend:
            yield backend


@pytest.mark.parametrize(
    ("effect", "failure", "jobs"),
    [
        (Effect.LOST_BEFORE, Unanswered, 0),
        (Effect.LOST_AFTER, Unanswered, 1),
        (Effect.ANSWER_AFTER, ServerError, 1),
        (Effect.ANSWER, ServerError, 0),
        (Effect.UNREADABLE, UnreadableAnswer, 1),
        (Effect.TRUNCATED, (Unanswered, UnreadableAnswer), 1),
        (Effect.MALFORMED_JOB, UnreadableAnswer, 1),
    ],
)
def test_create_is_sent_once_whatever_fails(
    emulator: Application,
    place: ModelArtsBackend,
    effect: Effect,
    failure: type[Exception] | tuple[type[Exception], ...],
    jobs: int,
) -> None:
    emulator.faults.add(Fault(effect, operation="CreateTrainingJob", status=504, code="APIGW.0203"))
    with pytest.raises(failure) as raised:
        place.create(a_body())
    assert not isinstance(raised.value, Unreachable)
    assert len(emulator.store.jobs()) == jobs
    assert len(emulator.requests) == 1


@pytest.mark.parametrize("effect", [Effect.LOST_BEFORE, Effect.LOST_AFTER, Effect.ANSWER])
def test_failed_search_is_retried(emulator: Application, place: ModelArtsBackend, effect: Effect) -> None:
    place.create(a_body())
    emulator.faults.add(Fault(effect, operation="ListTrainingJobs", count=2, status=503))
    seen = place.observe()
    assert (len(seen.jobs), seen.problem, seen.requests) == (1, None, 3)


@pytest.mark.parametrize("operation", ["ShowTrainingJobDetails", "ChangeTrainingJobDescription"])
def test_lost_answer_to_an_idempotent_request_is_retried(
    emulator: Application, place: ModelArtsBackend, operation: str
) -> None:
    job_id = place.create(a_body()).id
    emulator.faults.add(Fault(Effect.LOST_AFTER, operation=operation))
    place.update(job_id, {"description": "new"})
    assert place.details(job_id).description == "new"


def test_retried_terminate_after_a_lost_answer_raises_wrong_phase(
    emulator: Application, place: ModelArtsBackend
) -> None:
    # The second request meets a job that is Terminating already: the caller reads it again.
    job_id = place.create(a_body()).id
    emulator.faults.add(Fault(Effect.LOST_AFTER, operation="StopTrainingJob"))
    with pytest.raises(WrongPhase):
        place.terminate(job_id)
    assert place.details(job_id).phase is Phase.TERMINATING


def test_find_raises_when_the_list_cannot_be_read(emulator: Application, place: ModelArtsBackend) -> None:
    place.create(a_body("resnet50"))
    emulator.faults.add(Fault(Effect.ANSWER, operation="ListTrainingJobs", count=None, status=500))
    with pytest.raises(ServerError):
        place.find("resnet50")


def test_find_raises_for_an_unreadable_job_of_that_name(
    emulator: Application, place: ModelArtsBackend
) -> None:
    place.create(a_body("resnet50-r2"))
    place.create(a_body("resnet50"))
    emulator.faults.add(Fault(Effect.MALFORMED_JOB, operation="ListTrainingJobs", count=2))
    assert len(place.find("resnet50")) == 1, "the other one hides nothing"
    with pytest.raises(UnreadableAnswer, match="may be resnet50-r2"):
        place.find("resnet50-r2")
