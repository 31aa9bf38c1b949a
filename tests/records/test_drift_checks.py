"""Drift checks in the store: standing drift, and pruning of checks without events."""

from __future__ import annotations

import sqlite3
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from typing import Any

import pytest

from reconciler.core.past import RunKind
from reconciler.core.record import RecordsUnavailable
from reconciler.core.values import Change
from reconciler.decide.drift_check import (
    NO_CHECK,
    CheckRecord,
    Drift,
    DriftChange,
    DriftEvent,
    DriftId,
    LastCheck,
    StandingDrift,
    compare,
    content_of,
)
from reconciler.decide.outcome import Run, RunEnd
from reconciler.records.database import Database
from reconciler.records.dialects import dialect_of
from reconciler.records.schema import latest
from reconciler.records.store import KEPT_CHECKS, Records
from tests.builders import NOW
from tests.records.locations import OTHER_STACK, SCOPE, Place, a_run
from tests.records.test_declarations import OF_SPEECH, THERE, found, remember

ENDED = RunEnd(NOW + 1, "drift", {"failed": 1})


def check_at(at_s: float = NOW) -> Run:
    return a_run(at_s=at_s, kind=RunKind.DRIFT, command="drift")


def a_drift(key: str = "a", class_: str = "failed", job: str | None = "j1", **more: Any) -> StandingDrift:
    """A standing drift since the first check."""
    entry = Drift.model_validate({"key": key, "class": class_, "job": job, "detail": "ended", **more})
    return StandingDrift(entry, content_of(entry, str), since_s=NOW, reported_at_s=NOW)


def write(records: Records, *standing: StandingDrift, at_s: float = NOW, **more: Any) -> None:
    record = CheckRecord(at_s, standing, **more)
    records.record_check(check_at(at_s), ENDED._replace(at_s=at_s), record)


def test_standing_drift_round_trips(place: Place) -> None:
    changes = (Change(path="description", before="x", after="y"),)
    standing = (
        a_drift("a", "failed", node_hours=1.5, fix="look", began_at="2026-01-01T00:00:00Z"),
        a_drift("b", "missing", None)._replace(reported_at_s=None, is_hidden=True),
        a_drift("c", "modified", changes=changes)._replace(delivered={"notify[0].url": NOW}),
    )
    assert place.open().last_check(SCOPE) == NO_CHECK
    write(place.open(), *standing)
    assert place.open().last_check(SCOPE) == LastCheck(NOW, standing)
    assert place.open().last_check(OTHER_STACK) == NO_CHECK


def test_check_keeps_the_drift_it_did_not_examine(records: Records) -> None:
    write(records, a_drift("a"), a_drift("b"), a_drift("c"))
    gone = (DriftId("b", "failed", "j1"),)
    write(records, a_drift("c")._replace(content="changed"), at_s=NOW + 60, gone=gone)
    last = records.last_check(SCOPE)
    assert [(one.entry.key, one.content) for one in last.standing] == [
        ("a", a_drift("a").content),
        ("c", "changed"),
    ]
    assert last.at_s == NOW + 60


def test_check_that_compared_nothing_does_not_become_the_last_check(records: Records) -> None:
    write(records)
    records.record_check(check_at(NOW + 60), ENDED, CheckRecord(None, (a_drift("a", "unknown", None),)))
    last = records.last_check(SCOPE)
    assert (last.at_s, [one.entry.class_ for one in last.standing]) == (NOW, ["unknown"])
    assert len(records.runs(SCOPE)) == 2


def test_events_of_a_check_are_its_actions_in_the_history(records: Records) -> None:
    seen = {DriftChange.NEW: a_drift("a").entry, DriftChange.GONE: a_drift("b").entry}
    events = tuple(DriftEvent(change, entry) for change, entry in seen.items())
    write(records, a_drift("a"), events=events)
    [run] = records.runs(SCOPE)
    assert [(one.key, one.action, one.reason, one.status, one.detail, one.job) for one in run.actions] == [
        ("a", "drift", "failed", "new", "ended", "j1"),
        ("b", "drift", "failed", "gone", "ended", "j1"),
    ]
    assert (run.kind, run.result, run.summary, run.is_running) == ("drift", "drift", {"failed": 1}, False)
    assert len(records.runs(SCOPE, keys=["b"])) == 1
    assert not records.runs(SCOPE, keys=["c"])


def test_only_the_newest_checks_without_events_are_kept(records: Records) -> None:
    records.begin(a_run()).end(ENDED)
    event = DriftEvent(DriftChange.NEW, a_drift("a").entry)
    for number in range(KEPT_CHECKS + 20):
        write(records, at_s=NOW + number, events=(event,) if number == 3 else ())
    runs = records.runs(SCOPE)
    quiet = [run for run in runs if run.kind == "drift" and not run.actions]
    assert [run.at_s for run in quiet] == [NOW + number for number in range(KEPT_CHECKS + 19, 19, -1)]
    assert [run.kind for run in runs if run not in quiet] == ["drift", "apply"]


@pytest.mark.parametrize("job", ["j" * 5000, "a\0b", "\udc80"], ids=["long", "NUL", "surrogate"])
def test_id_of_any_form_is_written_and_found_again(place: Place, job: str) -> None:
    records, drift = place.open(), a_drift("a", job=job)
    for at_s in (NOW, NOW + 60):
        write(records, drift, at_s=at_s)
    [standing] = records.last_check(SCOPE).standing
    assert standing.entry.job is not None
    write(records, at_s=NOW + 120, gone=(standing.id,))
    assert not records.last_check(SCOPE).standing


def test_concurrent_checks_record_each_drift_once(place: Place) -> None:
    place.open()

    def look(number: int) -> None:
        records = place.open()
        for step in range(5):
            at_s = NOW + number * 10 + step
            write(records, *(a_drift(key) for key in "cab"), at_s=at_s, gone=(DriftId("d", "failed", ""),))

    with ThreadPoolExecutor(4) as threads:
        list(threads.map(look, range(4)))
    assert [one.entry.key for one in place.open().last_check(SCOPE).standing] == ["a", "b", "c"]
    assert len(place.open().runs(SCOPE)) == 20


@pytest.mark.parametrize(
    "damage",
    [
        "entry = '{'",
        "entry = '{}'",
        """entry = '{"key": "a", "class": "eaten"}'""",
    ],
)
def test_damaged_drift_makes_the_store_unreadable(sqlite: Place, damage: str) -> None:
    records = sqlite.open()
    write(records, a_drift("a"))
    records.close()
    assert sqlite.path is not None
    with closing(sqlite3.connect(sqlite.path)) as connection, connection:
        connection.execute(f"UPDATE reconciler_drift SET {damage}")
    with pytest.raises(RecordsUnavailable):
        sqlite.open().last_check(SCOPE)


#: Downgrades the tables to version 5.
UNDO = (
    "ALTER TABLE reconciler_revisions DROP COLUMN schedule",
    "DROP TABLE reconciler_keys",
    "DROP INDEX reconciler_revisions_by_digest",
    "ALTER TABLE reconciler_scopes DROP COLUMN applied_from",
    "DROP TABLE reconciler_drift",
    "ALTER TABLE reconciler_scopes DROP COLUMN compared_at_s",
    "DROP TABLE reconciler_code",
    "UPDATE reconciler_version SET version = 5",
)


def test_store_of_schema_version_5_is_migrated_and_takes_checks_and_declarations(place: Place) -> None:
    with closing(Database(dialect_of(place.url), place.clock, str)) as database:
        assert database.prepare(create=True)
        with database.writing() as connection:
            for statement in UNDO:
                connection.execute(statement)
    assert latest() == 12
    records = place.open()
    write(records, a_drift("a"))
    [standing] = place.open().last_check(SCOPE).standing
    assert standing.since_s == NOW
    remember(records, OTHER_STACK, "a")
    records.declare(OTHER_STACK, {}, THERE)
    assert found(records) == OF_SPEECH
    place.open().check()


def test_drift_accepted_in_schema_version_8_is_new_for_the_next_check(place: Place) -> None:
    write(place.open(), a_drift("a")._replace(is_hidden=True))
    with closing(Database(dialect_of(place.url), place.clock, str)) as database, database.writing() as to:
        for column in ("accepted_at_s DOUBLE PRECISION", "accepted_by TEXT DEFAULT '' NOT NULL"):
            to.execute(f"ALTER TABLE reconciler_drift ADD COLUMN {column}")
        to.execute("ALTER TABLE reconciler_drift DROP COLUMN delivered")
        to.execute("DROP TABLE reconciler_code")
        to.execute("UPDATE reconciler_drift SET accepted_at_s = 1, accepted_by = 'alice'")
        to.execute("UPDATE reconciler_version SET version = 8")
    last = place.open().last_check(SCOPE)
    [standing] = last.standing
    assert standing.is_hidden
    compared = compare(last, [standing.entry], lambda _: True, at_s=NOW + 60)
    assert [one.key for one in compared.new] == [one.key for one in compared.due] == ["a"]
    place.open().record_check(check_at(), ENDED, compared.record(compared=True))
    place.open().check()
