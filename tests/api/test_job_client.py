"""Single jobs from Python: typed results like `reconciler jobs`, redacted."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from unittest.mock import Mock

import pytest

from reconciler import (
    Event,
    ExitCode,
    JobClient,
    Metric,
    NotFound,
    Refused,
    ReportedJob,
    Session,
    WaitFailed,
    WrongUsage,
)
from reconciler.modelarts.operations import LogPreview
from reconciler.secrets import REDACTED
from tests.api.conftest import ENVIRON, TOKEN, Service


@pytest.fixture
def session(service: Service) -> Iterator[Session]:
    """A stack with two jobs, Running for an hour."""
    with service.stack("a", "b").connect(environ=ENVIRON) as session:
        session.apply().raise_for_failures()
        service.clock.advance(seconds=60)
        yield session


def names(session: Session, **filters: object) -> list[str]:
    return [one.metadata.name for one in session.jobs.list(**filters)]  # type: ignore[arg-type]


def test_list_takes_the_filters_of_the_command_line(session: Session, service: Service) -> None:
    assert isinstance(session.jobs, JobClient)
    session.jobs.terminate("b", force=True)
    service.clock.advance(seconds=86_400)
    assert sorted(names(session)) == ["a", "b"]
    assert names(session, name="b") == ["b"]
    assert names(session, phase="terminated") == ["b"]
    assert sorted(names(session, phase=["Running", "Terminated", "Completed"])) == ["a", "b"]
    assert names(session, created_after="2h") == []
    assert len(names(session, created_after=datetime(2020, 1, 1, tzinfo=UTC), created_before="1h")) == 2
    assert names(session, filters=[{"key": "name", "operator": "in", "value": ["a"]}]) == ["a"]
    assert names(session, tags=[{"key": "team"}]) == []
    assert len(session.jobs.list(limit=1)) == 1
    assert session.jobs.list().unreadable == ()
    assert names(session, order="asc") == names(session)[::-1]


@pytest.mark.parametrize(
    "filters",
    [
        {"phase": "Happy"},
        {"created_after": "sometime"},
        {"host_ips": [str(n) for n in range(11)], "kind": ["k"] * 11},
    ],
)
def test_invalid_filter_is_wrong_usage(session: Session, filters: dict[str, object]) -> None:
    with pytest.raises(WrongUsage):
        names(session, **filters)


def test_get_takes_a_key_a_name_or_an_id(session: Session) -> None:
    by_key = session.jobs.get("a")
    assert isinstance(by_key, ReportedJob)
    assert by_key == session.jobs.get(by_key.metadata.id)
    assert by_key.model_dump()["algorithm"]
    assert repr(by_key) == f"<ReportedJob a {by_key.metadata.id}: Running>"
    with pytest.raises(NotFound) as caught:
        session.jobs.get("c")
    assert caught.value.exit_code == ExitCode.FAILED


@pytest.mark.usefixtures("_growing_logs")
def test_logs_are_returned_as_text_or_followed_line_by_line(session: Session, service: Service) -> None:
    text = session.jobs.logs("a")
    assert isinstance(text, str)
    assert len(text.splitlines()) > 1
    assert session.jobs.logs("a", lines=1) == text.splitlines(keepends=True)[-1]
    service.clock.advance(seconds=30 * 86_400)
    lines = session.jobs.logs("a", follow=True, lines=2)
    assert not isinstance(lines, str)
    assert len(list(lines)) == 2


def test_secret_truncated_at_the_start_of_a_log_is_redacted(
    session: Session, service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    service.clock.advance(seconds=30 * 86_400)
    cut = LogPreview(content=f"{TOKEN[3:]} was here\n", full_size=6_000_000)
    monkeypatch.setattr("reconciler.modelarts.connect.ModelArtsBackend.logs", Mock(preview=lambda *_: cut))
    assert session.jobs.logs("a") == f"{REDACTED} was here\n"
    assert list(session.jobs.logs("a", follow=True)) == [f"{REDACTED} was here"]


def test_events_and_metrics_are_typed(session: Session) -> None:
    first = session.jobs.events("a")[0]
    assert (first.level, first.message) == ("Info", "Training job created.")
    assert len(session.jobs.events("a", limit=1)) == 1
    assert isinstance(first, Event)
    metrics = {one.metric: one.value for one in session.jobs.metrics("a") if isinstance(one, Metric)}
    assert {one[0] for one in metrics.values()} == {None}


def test_job_of_a_stack_is_terminated_only_with_force(session: Session, service: Service) -> None:
    with pytest.raises(Refused) as caught:
        session.jobs.terminate("a")
    assert caught.value.exit_code == ExitCode.REFUSED
    assert service.asked("StopTrainingJob") == 0
    assert session.jobs.terminate("a", force=True).metadata.name == "a"
    assert service.asked("StopTrainingJob") == 1


def test_wait_returns_the_job_at_its_goal(session: Session, service: Service) -> None:
    assert session.jobs.wait("a", "running").metadata.name == "a"
    service.clock.advance(seconds=30 * 86_400)
    assert session.jobs.wait("a", until="completed", timeout_s=5).status.phase == "Completed"


def test_wait_that_fails_says_how_the_job_ended(session: Session, service: Service) -> None:
    with pytest.raises(WaitFailed) as caught:
        session.jobs.wait("b", timeout_s=0)
    assert caught.value.exit_code == ExitCode.TIMED_OUT
    session.jobs.terminate("b", force=True)
    service.clock.advance(seconds=60)
    with pytest.raises(WaitFailed) as caught:
        session.jobs.wait("b")
    assert caught.value.exit_code == ExitCode.ENDED_BADLY
    assert caught.value.job.status.phase == "Terminated"
    assert session.jobs.wait("b", "ended").metadata.name == "b"
    with pytest.raises(WrongUsage):
        session.jobs.wait("b", "happy")  # type: ignore[arg-type]
