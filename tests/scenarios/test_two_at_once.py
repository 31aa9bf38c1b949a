"""Two applies of one stack that are started together, as real processes on one service over HTTP.

Those that share a record store exclude each other: one carries its plan out, the other exits 6 and says
who is at it. Those that do not share one meet on the service: its unique names decide who starts a job,
and whoever comes second finds that it is there. In each round every key has something to do.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.scenarios.every_action import APPLY
from tests.scenarios.fork_server import ForkServer, Run
from tests.scenarios.over_http import Service, a_service, entry

RecordProperty = Callable[[str, object], None]
#: So many rounds each, in so many parts for several workers.
ROUNDS, CHUNKS = 30, 3
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


def _start_both(service: Service, homes: list[Path], *options: str) -> list[tuple[int, Run]]:
    both = [service.start(home, *APPLY[:2], *options, name=f"{number}-") for number, home in enumerate(homes)]
    return [(started.pid, started.end()) for started in both]


def _check_all_is_well(service: Service, home: Path, turn: int) -> None:
    # Where the jobs are those that are declared, the plan is the same each time.
    assert turn % 3 or service.changes(home) == []
    assert set(service.jobs_of_each_revision().values()) == {1}
    assert service.active() == dict.fromkeys(declared(turn), 1)
    [kept] = [job for job in service.store.jobs() if job.name == "kept"]
    assert [step.phase for step in kept.life.past] == ["Creating", "Pending", "Running"]


@pytest.mark.parametrize("chunk", range(CHUNKS))
def test_concurrent_applies_with_one_record_store_exclude_each_other(
    service: Service, tmp_path: Path, chunk: int, record_property: RecordProperty
) -> None:
    refused = 0
    # The same working copy, or two with one store.
    homes = [tmp_path / "a", tmp_path / ("a" if chunk % 2 else "b")]
    store = f"sqlite:///{tmp_path / 'records.sqlite3'}"
    for turn in range(ROUNDS // CHUNKS):
        for home in homes:
            service.declare(home, declared(turn))
        first, second = _start_both(service, homes, "--records", store)
        codes = sorted([first[1].code, second[1].code])
        assert codes in ([0, 6], [0, 0]), first[1].err + second[1].err
        if codes == [0, 6]:
            refused += 1
            (winner, _), (_, loser) = sorted([first, second], key=lambda one: one[1].code)
            assert "another process holds the lock" in loser.err
            assert f"process {winner} since" in loser.err
        service.store.clock.advance(seconds=60)
        _check_all_is_well(service, homes[0], turn)
    # On a busy machine one may have ended before the other began.
    assert refused >= ROUNDS // CHUNKS // 2
    record_property("figure", ["of two applies at once, sharing records, were refused the lock", refused])


@pytest.mark.parametrize("chunk", range(CHUNKS))
def test_concurrent_applies_without_a_common_store_create_no_duplicates(
    service: Service, tmp_path: Path, chunk: int, record_property: RecordProperty
) -> None:
    homes = [tmp_path / "a", tmp_path / "b"]
    codes: Counter[int] = Counter()
    for turn in range(ROUNDS // CHUNKS):
        for home in homes:
            service.declare(home, declared(turn))
        # Now one is ahead, now the other.
        ended = [run for _, run in _start_both(service, homes[:: 1 if (turn + chunk) % 2 else -1])]
        codes.update(run.code for run in ended)
        assert {run.code for run in ended} <= {0, 3, 5}, [run.err for run in ended]
        service.store.clock.advance(seconds=60)
        if any(run.code for run in ended):
            assert service.run(homes[0], *APPLY).code == 0
            service.store.clock.advance(seconds=60)
        _check_all_is_well(service, homes[turn % 2], turn)
    late = sum(served.operation in RACES and served.status >= 400 for served in service.app.requests)
    record_property("figure", ["creates and terminates that came second, and were settled", late])
    for code, many in sorted(codes.items()):
        record_property(
            "figure", [f"of two applies at once, without common records, ended with {code}", many]
        )
