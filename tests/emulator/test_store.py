"""The store: persistence, and concurrent users of one file."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from reconciler.emulator import ApiError, Durations, ManualClock, Store
from reconciler.emulator import database as database_module
from tests.emulator.conftest import a_job


def test_jobs_are_kept_after_their_store_is_closed(tmp_path: Path, clock: ManualClock) -> None:
    path = tmp_path / "jobs.sqlite3"
    with Store(path, clock=clock) as store:
        job_id = store.create("project", a_job("kept")).id
    clock.advance(minutes=5)
    with Store(path, clock=clock) as store:
        job = store.get("project", job_id)
        assert (job.name, job.life.phase) == ("kept", "Running")


def test_stores_on_the_same_file_agree(tmp_path: Path, clock: ManualClock) -> None:
    path = tmp_path / "jobs.sqlite3"
    with Store(path, clock=clock) as one, Store(path, clock=clock) as two:
        job_id = one.create("project", a_job()).id
        clock.advance(minutes=1)
        assert one.get("project", job_id).text == two.get("project", job_id).text
        two.terminate("project", job_id)
        assert one.get("project", job_id).life.phase == "Terminating"
        one.delete("project", job_id)
        with pytest.raises(ApiError, match="not found"):
            two.get("project", job_id)


def test_store_file_can_be_shared_by_processes(tmp_path: Path) -> None:
    program = """
import sys
from reconciler.emulator import ApiError, Store
with Store(sys.argv[1]) as store:
    made = 0
    for number in range(20):
        try:
            store.create("project", {"kind": "job", "metadata": {"name": f"job-{number}"}})
            made += 1
        except ApiError:
            pass
print(made)
"""
    path = tmp_path / "jobs.sqlite3"
    workers = [
        subprocess.Popen([sys.executable, "-c", program, str(path)], stdout=subprocess.PIPE, text=True)
        for _ in range(3)
    ]
    assert sum(int(worker.communicate()[0]) for worker in workers) == 20
    with Store(path) as store:
        assert store.count("project") == 20


def test_create_time_never_decreases() -> None:
    class Erratic(ManualClock):
        def now_ms(self) -> int:
            self._now_ms -= 10
            return self._now_ms

    with Store(clock=Erratic()) as store:
        times = [store.create("project", a_job(f"job-{number}")).create_ms for number in range(5)]
    assert times == sorted(times)


def test_failed_change_is_rolled_back(store: Store) -> None:
    job_id = store.create("project", a_job()).id

    def fail(body: dict[str, Any]) -> None:
        body["metadata"]["description"] = "half done"
        raise LookupError

    with pytest.raises(LookupError):
        store.edit(job_id, fail)
    assert "description" not in store.find(job_id).body["metadata"]


def test_noise_is_set_per_store_and_not_in_the_file(tmp_path: Path, clock: ManualClock) -> None:
    path = tmp_path / "jobs.sqlite3"
    with Store(path, clock=clock) as noisy, Store(path, clock=clock, noise=False) as quiet:
        job_id = noisy.create("project", a_job()).id
        assert "flavor_detail" in noisy.find(job_id).text
        assert "flavor_detail" not in quiet.find(job_id).text


# ── the file's own clock ───────────────────────────────────────────────────────────────────────────


@pytest.fixture
def wall(monkeypatch: pytest.MonkeyPatch) -> ManualClock:
    """A wall clock advanced by hand."""
    real = ManualClock()
    monkeypatch.setattr(database_module, "wall_ms", real.now_ms)
    return real


def test_speed_makes_time_pass_faster(wall: ManualClock) -> None:
    with Store(speed=60, durations=Durations(running=60)) as store:
        job_id = store.create("project", a_job()).id
        wall.advance(seconds=0.5)
        assert store.find(job_id).life.phase == "Running"
        wall.advance(seconds=1)
        assert store.find(job_id).life.phase == "Completed"


def test_time_goes_on_while_the_file_is_closed(wall: ManualClock, tmp_path: Path) -> None:
    path = tmp_path / "jobs.sqlite3"
    with Store(path) as store:
        job_id = store.create("project", a_job()).id
    wall.advance(hours=1)
    with Store(path) as store:
        assert store.find(job_id).life.phase == "Completed"


def test_time_is_continuous_when_the_speed_changes(wall: ManualClock, tmp_path: Path) -> None:
    path = tmp_path / "jobs.sqlite3"
    with Store(path, speed=60) as one:
        start = one.clock.now_ms()
        wall.advance(seconds=1)
        with Store(path, speed=2) as two, Store(path) as three:
            assert one.clock.now_ms() == two.clock.now_ms() == three.clock.now_ms() == start + 60_000
            wall.advance(seconds=1)
            assert one.clock.now_ms() == two.clock.now_ms() == three.clock.now_ms() == start + 62_000


def test_clock_advance_is_seen_by_every_store_of_the_file(wall: ManualClock, tmp_path: Path) -> None:
    path = tmp_path / "jobs.sqlite3"
    with Store(path) as one, Store(path) as two:
        start = one.clock.now_ms()
        two.clock.advance(hours=1, minutes=1, seconds=1)
        assert one.clock.now_ms() == start + 3_661_000


def test_time_does_not_go_back_when_the_machine_clock_is_set_back(
    wall: ManualClock, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    path = tmp_path / "jobs.sqlite3"
    with Store(path) as store:
        wall.advance(hours=1)
        store.create("project", a_job())
        before = store.clock.now_ms()
        monkeypatch.setattr(database_module, "wall_ms", lambda: wall.now_ms() - 1_800_000)
        assert store.clock.now_ms() == before
        with Store(path) as again:
            assert again.clock.now_ms() == before


@pytest.mark.parametrize("speed", [0, -1, float("nan"), float("inf")])
def test_speed_of_zero_or_less_is_refused(speed: float) -> None:
    with pytest.raises(ValueError, match="speed must be above 0"):
        Store(speed=speed)
