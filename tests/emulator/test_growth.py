"""The cost of a call is independent of the number of jobs, and the indexes are correct."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from reconciler.emulator import ManualClock, Store
from reconciler.emulator.search import SearchRequest, read_search
from tests.emulator.conftest import Api, a_job

FEW, MANY = 100, 1500
#: B-trees may grow by a level.
MOST = 1.5


def search(store: Store, *filters: tuple[str, str, list[str]], **more: Any) -> SearchRequest:
    body = {"filters": [{"key": key, "operator": how, "value": value} for key, how, value in filters], **more}
    return read_search(body, store.clock.now_ms())


def work(store: Store, call: Callable[[Store], object]) -> int:
    """Return the SQLite work of a call, in tens of VM instructions: machine-independent."""
    done = 0

    def step() -> int:
        nonlocal done
        done += 1
        return 0

    connection = store.database._connection
    connection.set_progress_handler(step, 10)
    try:
        call(store)
    finally:
        connection.set_progress_handler(None, 0)
    return done


@pytest.fixture(scope="module")
def stores() -> Iterator[tuple[Store, Store]]:
    """Few jobs and many, all completed but the last ten."""
    with Store(clock=ManualClock()) as few, Store(clock=ManualClock()) as many:
        for store, count in ((few, FEW), (many, MANY)):
            for number in range(count):
                if number == count - 10:
                    store.clock.advance(hours=1)
                body = {"kind": "job", "metadata": {"name": f"job-{number:05d}"}}
                store.create("project", body)
            store.clock.advance(seconds=10)
        yield few, many


ACTIVE = ("phase", "in", ["Creating", "Pending", "Running", "Terminating"])


def found(*filters: tuple[str, str, list[str]]) -> Callable[[Store], object]:
    return lambda store: store.search("project", search(store, *filters))


CALLS: dict[str, Callable[[Store], object]] = {
    "create": lambda store: store.create("project", {"kind": "job", "metadata": {"name": "one-more"}}),
    "name check": lambda store: store.is_taken("project", "0", "job-00042"),
    "newest page": found(),
    "by name": found(("name", "like", ["job-00042"])),
    "by names": found(("name", "like", ["B-00042", "b-00043"])),
    "exact name": found(("name", "in", ["job-00042"])),
    "active": found(ACTIVE),
    "both": found(ACTIVE, ("name", "like", ["no-such"])),
    "count": lambda store: store.count("project"),
    "terminate": lambda store: store.terminate("project", newest(store)),
}


@pytest.mark.parametrize("name", CALLS)
def test_work_of_a_call_is_independent_of_the_number_of_jobs(stores: tuple[Store, Store], name: str) -> None:
    few, many = (work(store, CALLS[name]) for store in stores)
    assert many <= MOST * few + 2


def newest(store: Store) -> str:
    return store.search("project", search(store, ACTIVE, limit=1)).jobs[0].id


# ── indexes ────────────────────────────────────────────────────────────────────────────────────────

NAMES = st.lists(
    st.text("abAB-_1", min_size=1, max_size=8), min_size=1, max_size=12, unique_by=lambda name: name.lower()
)


@settings(max_examples=25)
@given(NAMES, st.lists(st.text("abAB-_1ü%", min_size=1, max_size=3), min_size=1, max_size=3), st.data())
def test_search_by_name_finds_every_name_containing_the_text(
    names: list[str], texts: list[str], data: st.DataObject
) -> None:
    with Store(clock=ManualClock()) as store:
        for number in range(58):  # the 64th name moves all of them to the index
            store.create("other", {"kind": "job", "metadata": {"name": f"job-{number}"}})
        ids = {name: store.create("p", {"kind": "job", "metadata": {"name": name}}).id for name in names}
        gone = data.draw(st.sets(st.sampled_from(names)))
        store.delete("p", *(ids[name] for name in gone))
        page = store.search("p", search(store, ("name", "like", texts), limit=50))
    wanted = {name for name in names if any(text.lower() in name.lower() for text in texts)} - gone
    assert {job.name for job in page.jobs} == wanted
    assert page.count == len(wanted)


def test_counts_follow_every_change(api: Api) -> None:
    ids = [api.store.create("project", a_job(f"job-{number}")).id for number in range(4)]
    api.clock.advance(seconds=5)
    api.store.terminate("project", ids[0])
    api.store.set_phase(ids[1], "Failed")
    api.store.delete("project", ids[2])
    for phase in ("Running", "Terminating", "Failed", "Terminated", "Completed"):
        page = api.store.search("project", search(api.store, ("phase", "in", [phase])))
        assert page.count == len(page.jobs)
        others = api.store.search("project", search(api.store, ("phase", "not", [phase])))
        assert others.count == len(others.jobs) == 3 - page.count
    assert api.store.count("project") == 3
    assert api.store.count("elsewhere") == 0


def test_phase_follows_the_clock_in_details_and_search(api: Api) -> None:
    job_id = api.store.create("project", a_job()).id
    for seconds, phase in ((0, "Creating"), (1, "Pending"), (2, "Running"), (600, "Completed")):
        api.clock.advance(seconds=seconds)
        assert api.store.get("project", job_id).life.phase == phase
        assert [job.life.phase for job in api.store.search("project", search(api.store)).jobs] == [phase]
        assert api.store.search("project", search(api.store, ("phase", "in", [phase]))).count == 1


def test_file_of_an_older_version_is_brought_up_to_date(tmp_path: Path) -> None:
    path, clock = tmp_path / "jobs.sqlite3", ManualClock()
    with Store(path, clock=clock) as store:
        for number in range(3):
            store.create("project", a_job(f"Train-{number}"))
        clock.advance(minutes=1)
        make_old(store)
    with Store(path, clock=clock) as store:
        assert store.count("project") == 3
        assert store.search("project", search(store, ("name", "like", ["rain-1"]))).count == 1
        assert store.search("project", search(store, ("phase", "in", ["Running"]))).count == 3
        store.create("project", a_job("Train-3"))
        assert store.search("project", search(store, ("name", "like", ["TRAIN"]))).count == 4


def make_old(store: Store) -> None:
    dropped = {
        "TRIGGER": ("job_added", "job_moved", "job_removed", "name_added", "new_job_removed"),
        "TABLE": ("counts", "name_ends", "letters", "new_names"),
        "INDEX": ("jobs_by_create", "jobs_by_experiment", "tags_by_key"),
    }
    for kind, name in ((kind, name) for kind, names in dropped.items() for name in names):
        store.database.run(f"DROP {kind} {name}")
    store.database.run("PRAGMA user_version = 1")
