"""A chain of jobs that run again when the one before them has, as people and CI apply it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from tests.scenarios.every_action import APPLY
from tests.scenarios.fork_server import ForkServer
from tests.scenarios.over_http import Service, a_service, entry

WAIT = (*APPLY[:2], "--wait", "completed", "--timeout", "10000h")
KEYS = ("prepare", "train", "report")
RERUN: dict[str, Any] = {"lifecycle": {"on_upstream": "rerun"}}


def chain(lr: float = 0.1, result: str = "Completed") -> dict[str, Any]:
    """Three jobs that run for 20 s each; `lr` is a parameter of the first, which ends with `result`."""
    jobs = {
        "prepare": entry(lr),
        "train": entry(needs=["prepare"], **RERUN),
        "report": entry(needs=["train"], **RERUN),
    }
    for key, job in jobs.items():
        ends = result if key == "prepare" else "Completed"
        job["algorithm"]["environments"] = {"EMULATOR_RUN_SECONDS": "20", "EMULATOR_RESULT": ends}
    return jobs


@pytest.fixture
def service(fork_server: ForkServer) -> Iterator[Service]:
    with a_service(fork_server) as service:
        yield service


@pytest.fixture
def home(service: Service, tmp_path: Path) -> Path:
    """A working copy whose chain has run once, and whose first link was edited since."""
    home = tmp_path / "home"
    service.declare(home, chain())
    assert service.run(home, *WAIT).code == 0
    service.declare(home, chain(0.5))
    return home


@pytest.fixture(params=["beside a history", "in a fresh checkout"])
def anywhere(request: pytest.FixtureRequest, service: Service, home: Path, tmp_path: Path) -> Path:
    """The same, or another working copy of it without records."""
    if request.param == "beside a history":
        return home
    fresh = tmp_path / "fresh"
    service.declare(fresh, chain(0.5))
    return fresh


def names(service: Service) -> list[str]:
    """The jobs in the order in which they were made."""
    return [job.name for job in sorted(service.store.jobs(), key=lambda job: job.create_ms)]


def test_plan_announces_the_whole_chain(service: Service, anywhere: Path) -> None:
    text = service.run(anywhere, "plan").out
    assert "> defer     train         prepare runs again" in text
    assert "> defer     report        train runs again" in text
    document = json.loads(service.run(anywhere, "plan", "--json").out)
    assert {a["key"]: (a["action"], a["detail"]) for a in document["actions"]} == {
        "prepare": ("create", "algorithm.parameters.lr changed"),
        "train": ("defer", "prepare runs again"),
        "report": ("defer", "train runs again"),
    }


def test_wait_runs_each_link_once_in_order(service: Service, anywhere: Path) -> None:
    run = service.run(anywhere, *WAIT)
    assert run.code == 0, run.err
    assert names(service) == [*KEYS, *(f"{key}-r2" for key in KEYS)]
    assert set(service.phases().values()) == {"Completed"}
    jobs = sorted(service.store.jobs(), key=lambda job: job.create_ms)[3:]
    assert all(sooner.life.ended_ms <= later.create_ms for sooner, later in pairwise(jobs))
    assert service.changes(anywhere) == []
    assert service.run(anywhere, *WAIT).code == 0
    assert len(names(service)) == 6


def test_repeated_applies_run_each_link_once_in_order(service: Service, anywhere: Path) -> None:
    for _ in range(3):
        assert service.run(anywhere, *APPLY).code == 0
        assert service.run(anywhere, *APPLY).code == 0
        service.store.clock.advance(seconds=60)
    assert service.run(anywhere, *APPLY).code == 0
    assert names(service) == [*KEYS, *(f"{key}-r2" for key in KEYS)]
    assert service.changes(anywhere) == []


def test_chain_stays_as_it_was_where_its_first_link_fails(service: Service, home: Path) -> None:
    service.declare(home, chain(result="Failed"))
    run = service.run(home, *WAIT, "--json")
    assert run.code == 10, run.err
    assert {one["key"]: one["result"] for one in run.events[-1]["waits"]} == {
        "prepare": "ended_badly",
        "train": "blocked",
        "report": "blocked",
    }
    assert names(service) == [*KEYS, "prepare-r2"]
    assert service.changes(home) == []


def test_chain_is_pending_in_drift_and_named_by_status_and_why(service: Service, home: Path) -> None:
    report = json.loads(service.run(home, "drift", "--json").out)
    assert report["drift"] == []
    assert {one["key"]: one["detail"] for one in report["pending"]}["report"] == "train runs again"
    status = json.loads(service.run(home, "status", "--json").out)
    waits = {one["key"]: one["waits_for"] for one in status["jobs"]}
    assert (waits["train"]["kind"], waits["train"]["keys"]) == ("needs", ["prepare"])
    assert "prepare runs again" in service.run(home, "why", "train").out
