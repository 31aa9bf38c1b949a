"""Two applies of one stack at the same time, as real processes on one service over HTTP.

With a shared record store they exclude each other: one executes its plan, the other exits 6 and names the
holder. Without one they meet on the service: its unique names decide who starts a job, and the second one
finds the existing job. In each round every key has an action, and the first process waits for the other.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.scenarios.every_action import APPLY
from tests.scenarios.fork_server import ForkServer
from tests.scenarios.hooks import BEFORE, STAND, Accident
from tests.scenarios.over_http import Service, a_service, entry

RecordProperty = Callable[[str, object], None]
ROUNDS = 10
RACES = ("CreateTrainingJob", "StopTrainingJob")
CREATE_FIRST = {"on_change": "replace", "replace_order": "create_first"}


@pytest.fixture
def service(fork_server: ForkServer) -> Iterator[Service]:
    with a_service(fork_server) as service:
        yield service


def declared(turn: int) -> dict[str, Any]:
    """The jobs of one round: replaced, updated, created, terminated against those of the round before."""
    always = {
        "edited": entry(description=f"round {turn}"),
        "kept": entry(),
        "overlapping": entry(lr=turn, lifecycle=CREATE_FIRST),
        "replaced": entry(lr=turn),
        f"new-{turn}": entry(),
    }
    return always | ({"on-and-off": entry()} if turn % 2 else {})


def _check_all_is_well(service: Service, home: Path, turn: int) -> None:
    # Where the jobs are those that are declared, the plan is the same each time.
    assert turn % 3 or service.changes(home) == []
    assert set(service.jobs_of_each_revision().values()) == {1}
    assert service.active() == dict.fromkeys(declared(turn), 1)
    [kept] = [job for job in service.store.jobs() if job.name == "kept"]
    assert [step.phase for step in kept.life.past] == ["Creating", "Pending", "Running"]


def test_concurrent_applies_with_one_record_store_exclude_each_other(
    service: Service, tmp_path: Path, record_property: RecordProperty
) -> None:
    places = [Accident(f"{BEFORE} write #1", STAND), Accident(f"{BEFORE} ListTrainingJobs #1", STAND)]
    apply = (*APPLY[:2], "--records", f"sqlite:///{tmp_path / 'records.sqlite3'}")
    for turn in range(ROUNDS):
        # The same working copy, or two with one store.
        homes = [tmp_path / "a", tmp_path / ("a" if turn % 2 else "b")]
        for home in homes:
            service.declare(home, declared(turn))
        winner = service.start(homes[0], *apply, accidents=places, name="winner-")
        assert winner.stands()  # about to take the lock
        loser = service.start(homes[1], *apply, name="loser-")
        winner.go_on()
        assert winner.stands()  # and has it
        ended = loser.end()
        assert ended.code == 6, ended.err
        assert "another process holds the lock" in ended.err
        assert f"process {winner.pid} since" in ended.err
        winner.go_on()
        ended = winner.end()
        assert ended.code == 0, ended.err
        service.store.clock.advance(seconds=60)
        _check_all_is_well(service, homes[0], turn)
    record_property("figure", ["of two applies at once, sharing records, were refused the lock", ROUNDS])


def test_concurrent_applies_without_a_common_store_create_no_duplicates(
    service: Service, tmp_path: Path, record_property: RecordProperty
) -> None:
    homes = [tmp_path / "a", tmp_path / "b"]
    codes: Counter[int] = Counter()
    for turn in range(ROUNDS):
        for home in homes:
            service.declare(home, declared(turn))
        place = Accident(f"{BEFORE} CreateTrainingJob new-{turn} #1", STAND)
        both = [service.start(home, *APPLY[:2], accidents=[place]) for home in homes]
        assert all(one.stands() for one in both)
        for one in both:
            one.go_on()
        ended = [one.end() for one in both]
        codes.update(run.code for run in ended)
        assert {run.code for run in ended} <= {0, 3, 5}, [run.err for run in ended]
        service.store.clock.advance(seconds=60)
        if any(run.code for run in ended):
            assert service.run(homes[0], *APPLY).code == 0
            service.store.clock.advance(seconds=60)
        _check_all_is_well(service, homes[turn % 2], turn)
    late = sum(served.operation in RACES and served.status >= 400 for served in service.app.requests)
    assert late >= ROUNDS
    record_property("figure", ["creates and terminates that came second, and were settled", late])
    for code, many in sorted(codes.items()):
        record_property(
            "figure", [f"of two applies at once, without common records, ended with {code}", many]
        )
