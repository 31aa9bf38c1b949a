"""A waiting apply and a colleague, as real processes in two checkouts, with or without shared records."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from tests.scenarios.every_action import APPLY
from tests.scenarios.fork_server import ForkServer, Run
from tests.scenarios.over_http import Service, a_service, entry

WAIT = (*APPLY[:2], "--wait", "completed", "--timeout", "10000h", "--json")


@pytest.fixture
def service(fork_server: ForkServer) -> Iterator[Service]:
    with a_service(fork_server) as service:
        yield service


def waited(
    service: Service, tmp_path: Path, jobs: Mapping[str, Any], meanwhile: Callable[[Path], Run], *options: str
) -> tuple[Run, Run]:
    """Let one wait for its jobs while a colleague does something; returns both runs."""
    ours, theirs = tmp_path / "ours", tmp_path / "theirs"
    for home in (ours, theirs):
        service.declare(home, jobs)
    started = service.start(ours, *WAIT, *options)
    until_s = time.monotonic() + 20
    while not service.active() and time.monotonic() < until_s:
        time.sleep(0.01)
    colleague = meanwhile(theirs)
    return started.end(), colleague


def ends(run: Run) -> dict[str, str]:
    return {wait["key"]: wait["result"] for wait in run.events[-1]["waits"]}


@pytest.mark.parametrize("shared", [False, True], ids=["own records", "shared records"])
def test_job_destroyed_by_another_process_is_not_recreated_by_the_wait(
    service: Service, tmp_path: Path, shared: bool
) -> None:
    options = ("--records", f"sqlite:///{tmp_path / 'records.sqlite3'}") if shared else ()
    run, colleague = waited(
        service,
        tmp_path,
        {"a": entry(), "b": entry(needs=["a"])},
        lambda home: service.run(home, "destroy", "--yes", *options),
        *options,
    )
    assert colleague.code == 0, colleague.err
    assert (run.code, ends(run)) == (10, {"a": "superseded_elsewhere", "b": "blocked"}), run.err
    service.store.clock.advance(seconds=60)
    assert service.phases() == {"a": "Terminated"}


def test_job_edited_by_another_process_is_not_reverted_by_the_wait(service: Service, tmp_path: Path) -> None:
    def edits(home: Path) -> Run:
        service.declare(home, {"a": entry(lr=0.5)})
        return service.run(home, *APPLY)

    run, colleague = waited(service, tmp_path, {"a": entry()}, edits)
    assert colleague.code == 0, colleague.err
    assert (run.code, ends(run)) == (10, {"a": "superseded_elsewhere"}), run.err
    service.store.clock.advance(seconds=60)
    assert service.phases() == {"a": "Terminated", "a-r2": "Running"}


def test_retry_made_by_another_process_is_followed_by_the_wait(service: Service, tmp_path: Path) -> None:
    """A cron job applies the same manifest every few minutes, while somebody waits for it."""
    quick = entry(needs=["a"])
    quick["algorithm"]["environments"] = {"EMULATOR_RUN_SECONDS": "20"}
    jobs = {"a": entry(lifecycle={"on_failure": "retry", "retry_delay": "0s"}), "b": quick}

    def fails_and_is_retried(home: Path) -> Run:
        [job] = service.store.jobs()
        service.store.set_phase(job.id, "Failed")
        colleague = service.run(home, *APPLY)
        [again] = [one for one in service.store.jobs() if one.name == "a-r2"]
        service.store.set_phase(again.id, "Completed")
        return colleague

    run, colleague = waited(service, tmp_path, jobs, fails_and_is_retried)
    assert colleague.code == 0, colleague.err
    assert (run.code, ends(run)) == (0, {"a": "reached", "b": "reached"}), run.err
    assert service.phases() == {"a": "Failed", "a-r2": "Completed", "b": "Completed"}
