"""A stack on the local target whose next apply has every kind of action.

The first manifest is applied, then the service and other users make changes, and the second manifest is
written. The clock stands still unless advanced.
"""

from __future__ import annotations

import json
import os
import shutil
import sqlite3
import tempfile
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import closing
from hashlib import sha256
from pathlib import Path
from typing import Any, NamedTuple

from reconciler.core.identity import Marker, parse_description
from reconciler.emulator import Job, Store
from reconciler.files import RECORD_DIRECTORY as RECORDS
from reconciler.modelarts.local import LOCAL_PROJECT
from tests.builders import a_startable_entry
from tests.scenarios.fork_server import ERR, OUT, ForkServer
from tests.scenarios.hooks import BEFORE, EVERY, STAND, Accident

STACK = "every"
APPLY = ("apply", "--yes", "--parallelism", "1")
PLAN_FILE = "saved.plan"
#: The minimum share of the chosen moments a test must reach: those of look-ups may not occur.
MET = 0.8
APPLY_SAVED = (*APPLY, "--plan", PLAN_FILE)
ACTIVE = frozenset({"Creating", "Pending", "Running", "Terminating"})

#: The plan of the second manifest: action and reason of each key.
PLANNED = {
    "again": ("create", "declared_again"),
    "doubled": ("terminate", "superseded"),
    "edited": ("update", "mutable_changed"),
    "failed": ("create", "retry"),
    "gone": ("terminate", "not_in_manifest"),
    "guarded": ("update", "marker_changed"),
    "lost": ("update", "marker_restored"),
    "moved": ("update", "marker_changed"),
    "moved-and-edited": ("replace", "immutable_changed"),
    "new": ("create", "not_found"),
    "overlapping": ("replace", "immutable_changed"),
    "replaced": ("replace", "immutable_changed"),
    "waiting": ("defer", "needs_pending"),
}
#: Jobs that must not be touched: kept or foreign ones.
KEPT = frozenset({"kept", "kept-done"})
NOT_OURS = frozenset({"by-hand", "copy-of-kept", "somebody-elses"})


def _entry(lr: float = 0.1, **more: Any) -> dict[str, Any]:
    entry = a_startable_entry(lr, **more)
    entry["algorithm"]["environments"] = {"EMULATOR_RUN_SECONDS": "100000000"}
    return entry


def _first() -> dict[str, Any]:
    same = ("again", "doubled", "gone", "guarded", "kept", "kept-done", "lost")
    changed = ("edited", "failed", "overlapping", "replaced", "was-edited", "was-here")
    return {key: _entry(lifecycle={"on_failure": "retry", "retry_delay": "1s"}) for key in (*same, *changed)}


def _second() -> dict[str, Any]:
    jobs: dict[str, Any] = _first()
    for key in ("gone", "was-here", "was-edited"):
        del jobs[key]
    replace = {"on_change": "replace"}
    return jobs | {
        "edited": _entry(description="another text"),
        "guarded": _entry(lifecycle={"protect": True}),
        "moved": _entry(formerly="was-here"),
        "moved-and-edited": _entry(lr=0.2, formerly="was-edited", lifecycle=replace),
        "new": _entry(),
        "overlapping": _entry(lr=0.2, lifecycle=replace | {"replace_order": "create_first"}),
        "replaced": _entry(lr=0.2, lifecycle=replace),
        "waiting": _entry(needs=["kept"]),
    }


class Fate(NamedTuple):
    """The state in which a run left a job."""

    phase: str
    description: str
    past: tuple[str, ...]


class Place(NamedTuple):
    """A directory with the manifest, the records and the local target."""

    home: Path

    @property
    def store(self) -> Store:
        return Store(self.home / RECORDS / "local.sqlite3")

    def declare(self, jobs: Mapping[str, Any]) -> None:
        """Write a manifest; JSON is YAML."""
        document = {
            "apiVersion": "reconciler/v1",
            "stack": STACK,
            "targets": {"here": {"kind": "local"}},
            "limits": {"terminations": 1000},
            "jobs": dict(jobs),
        }
        (self.home / "jobs.yaml").write_text(json.dumps(document), encoding="utf-8")

    def copy(self, to: Path) -> Place:
        shutil.copytree(self.home, to, copy_function=_copy)
        return Place(to)

    def state(self) -> bytes:
        """Return what a process killed now would leave, except its output."""
        state = sha256()
        for file in sorted(self.home.rglob("*")):
            # The index of a log is rebuilt from the log.
            if file.is_file() and file.name not in (OUT, ERR) and not file.name.endswith("-shm"):
                state.update(f"{file.name} {file.stat().st_size}\n".encode() + file.read_bytes())
        return state.digest()

    def let_pass(self, seconds: float) -> None:
        with self.store as store:
            store.clock.advance(seconds=seconds)

    def jobs(self) -> list[Job]:
        with self.store as store:
            return store.jobs()

    def fates(self) -> dict[str, Fate]:
        return {job.name: _fate(job) for job in self.jobs()}

    def is_locked(self) -> bool:
        """Whether the lock is held, by the record store and its lease."""
        asked = "SELECT count(*) FROM reconciler_locks WHERE token <> '' AND expires_s > ?"
        return self.ask_records(asked, time.time()) == [(1,)]

    def open_lines(self) -> list[tuple[str, str]]:
        """Return the calls in the journal without an outcome: call, name."""
        return self.ask_records("SELECT call, name FROM reconciler_lines WHERE ended_at_s IS NULL")

    def ask_records(self, query: str, *values: float) -> list[tuple[Any, ...]]:
        """Query a copy, so that the next process finds the files unchanged."""
        with tempfile.TemporaryDirectory() as directory:
            for file in (self.home / RECORDS).glob("records.sqlite3*"):
                shutil.copy(file, directory)
            with closing(sqlite3.connect(Path(directory) / "records.sqlite3")) as connection:
                try:
                    return connection.execute(query, values).fetchall()
                except sqlite3.OperationalError:  # there are no tables yet
                    return []

    def untouchable(self) -> dict[str, tuple[str, object]]:
        """Return everything stored of the untouchable jobs."""
        return {
            job.name: (job.body_text, job.life)
            for job in self.jobs()
            if job.name in KEPT | NOT_OURS or job.name.startswith("foreign-")
        }


def _copy(source: str, to: str) -> None:
    """The proof that a holder is gone needs its original file, not a copy."""
    (os.link if ".lock-" in source else shutil.copy2)(source, to)


def _fate(job: Job) -> Fate:
    return Fate(
        job.life.phase,
        str(job.body["metadata"]["description"]),
        tuple(step.phase for step in job.life.past),
    )


def marker_of(job: Job) -> Marker | None:
    """Return the valid marker of a job."""
    found = parse_description(str(job.body["metadata"]["description"])).marker
    return found if found and found.is_on_its_own_job(job.name, job.id) else None


def build(home: Path, fork_server: ForkServer, *, with_records: bool = True, foreign: int = 0) -> Place:
    """Make such a place; without records, as after their loss; with `foreign` jobs before ours."""
    home.mkdir()
    place = Place(home)
    (home / RECORDS).mkdir()
    with Store(home / RECORDS / "local.sqlite3", speed=1e-6) as store:
        _foreign(store, foreign)
    place.declare(_first())
    _apply(place, fork_server)
    place.let_pass(60)
    with place.store as store:
        ids = {job.name: job.id for job in store.jobs()}
        for key in ("doubled", "failed"):
            store.set_phase(ids[key], "Failed")
        for key in ("kept-done", "guarded"):
            store.set_phase(ids[key], "Completed")
    jobs = _first()
    jobs["failed"]["lifecycle"]["on_failure"] = "keep"
    del jobs["again"]
    place.declare(jobs)
    place.let_pass(3600)
    _apply(place, fork_server)
    place.let_pass(60)
    with place.store as store:
        store.set_phase(ids["doubled"], "Running")
        _strangers(store)
        if with_records:
            store.edit(ids["lost"], lambda body: body["metadata"].update(description="mine now"))
        store.clock.advance(seconds=3600)
    if not with_records:
        for file in (home / RECORDS).glob("records.sqlite3*"):
            file.unlink()
    place.declare(_second())
    return place


def _apply(place: Place, fork_server: ForkServer) -> None:
    run = fork_server.run(place.home, "apply", "--yes")
    assert run.code == 0, run.err


def _foreign(store: Store, count: int) -> None:
    for number in range(count):
        name = f"foreign-{number}"
        description = f"reconciler.other.{name}.r1.a3f9a2c1b7d4e"
        metadata = {"name": name, "workspace_id": "0", "description": description}
        body = {"kind": "job", "metadata": metadata, "algorithm": {}, "spec": {"resource": {}}}
        job = store.create(LOCAL_PROJECT, body)
        store.set_phase(job.id, "Running" if number % 70 == 0 else "Completed")


def _strangers(store: Store) -> None:
    kept = next(job for job in store.jobs() if job.name == "kept")
    described = {
        "by-hand": "nobody's",
        "copy-of-kept": str(kept.body["metadata"]["description"]),
        "somebody-elses": "reconciler.other.somebody-elses.r1.a3f9a2c1b7d4e",
    }
    for name, description in described.items():
        body = kept.body
        body["metadata"] = {"name": name, "workspace_id": "0", "description": description}
        store.create(LOCAL_PROJECT, body)


def check_none_is_there_twice(place: Place) -> None:
    """Check that at most one job was ever started for each revision."""
    started: Counter[tuple[str, int]] = Counter()
    for job in place.jobs():
        if (marker := marker_of(job)) and marker.stack == STACK:
            started[marker.key, marker.revision] += 1
    assert set(started.values()) == {1}, started


def check_one_is_active(place: Place) -> None:
    """Check that each key has at most one active revision after an apply."""
    active = Counter(
        marker.key
        for job in place.jobs()
        if (marker := marker_of(job)) and marker.stack == STACK and job.life.phase in ACTIVE
    )
    assert set(active.values()) == {1}, active


def changes(place: Place, fork_server: ForkServer) -> list[tuple[str, str, str]]:
    """Return the actions of the next plan: key, action, reason."""
    run = fork_server.run(place.home, "plan", "--json")
    assert run.code == 0, run.err
    actions = json.loads(run.out)["actions"]
    return [(a["key"], a["action"], a["reason"]) for a in actions if a["action"] not in ("keep", "defer")]


class World(NamedTuple):
    """A place to copy, the moments of an apply there, and the result of an undisturbed one."""

    place: Place
    moments: tuple[str, ...]
    end: dict[str, Fate]
    untouchable: dict[str, tuple[str, object]]

    @property
    def requests(self) -> tuple[str, ...]:
        """The requests of an apply."""
        names = (moment.removeprefix(f"{BEFORE} ") for moment in self.moments if moment.startswith(BEFORE))
        return tuple(name for name in names if not name.startswith("write "))


class StillLife(NamedTuple):
    """The state of the disk at successive moments of an apply: what a kill would leave."""

    place: Place
    moments: list[str]


def still_lives(
    world: World, directory: Path, fork_server: ForkServer, *, apply: Sequence[str] = APPLY
) -> list[StillLife]:
    """Pause an apply at every moment, and copy each distinct state of the disk."""
    place, log = world.place.copy(directory / "running"), directory / "moments.txt"
    found: dict[bytes, StillLife] = {}
    # They are repaired later, while the lease runs.
    started = fork_server.start(
        place.home, *apply, "--lease", "1h", accidents=[Accident(EVERY, STAND)], log=log
    )
    while started.stands():
        moment, state = log.read_text(encoding="utf-8").splitlines()[-1], place.state()
        if state not in found:
            found[state] = StillLife(place.copy(directory / f"state-{len(found)}"), [])
        found[state].moments.append(moment)
        started.go_on()
    run = started.end()
    assert run.code == 0, run.err
    return list(found.values())


def a_world(
    directory: Path,
    fork_server: ForkServer,
    *,
    with_records: bool = True,
    foreign: int = 0,
    apply: Sequence[str] = APPLY,
) -> World:
    place = build(directory / "first", fork_server, with_records=with_records, foreign=foreign)
    assert fork_server.run(place.home, "plan", "--out", PLAN_FILE).code == 0
    undisturbed, log = place.copy(directory / "undisturbed"), directory / "moments.txt"
    run = fork_server.run(undisturbed.home, *apply, log=log)
    assert run.code == 0, run.err
    undisturbed.let_pass(60)
    assert changes(undisturbed, fork_server) == []
    moments = tuple(log.read_text(encoding="utf-8").splitlines())
    return World(place, moments, undisturbed.fates(), place.untouchable())


def check_the_next_apply_does_the_rest(
    world: World, place: Place, fork_server: ForkServer, after: object = None, *, with_plan: bool = True
) -> None:
    """Check that one apply after an accident leaves the undisturbed result and an empty plan.

    The plan may be skipped: it is the same if the jobs are those of an undisturbed apply.
    """
    again = fork_server.run(place.home, *APPLY)
    assert again.code == 0, (after, again.err)
    place.let_pass(60)
    if place.fates() != world.end and changes(place, fork_server) == _SPARED:
        # The new one existed, but was not yet seen running.
        assert fork_server.run(place.home, *APPLY).code == 0, after
        place.let_pass(60)
    check_it_ended_well(world, place, after)
    if with_plan:
        assert changes(place, fork_server) == [], after


_SPARED = [("overlapping", "terminate", "superseded")]


def check_it_ended_well(world: World, place: Place, after: object = None) -> None:
    """Check for the result of an undisturbed apply."""
    check_none_is_there_twice(place)
    check_one_is_active(place)
    assert place.fates() == world.end, after
    assert place.untouchable() == world.untouchable, after
