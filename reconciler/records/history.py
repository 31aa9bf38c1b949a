"""The history of a scope: what each revision was, and in which phases it was seen."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from typing import Any

from sqlalchemy import (
    ColumnElement,
    Connection,
    Row,
    Select,
    bindparam,
    case,
    delete,
    exists,
    false,
    func,
    or_,
    select,
    update,
)
from sqlalchemy.sql.dml import Insert

from reconciler.core.identity import read_schedule_mark
from reconciler.core.phase import parse_phase
from reconciler.core.record import HistorySnapshot, PastRevision, RevisionId, Scope
from reconciler.records.cells import damaged
from reconciler.records.database import Database
from reconciler.records.observation_changes import ObservationChanges
from reconciler.records.schema import KEYS, LINES, REVISIONS, RUNS, SCOPES
from reconciler.records.serialization import read_declared, read_phases

#: So many keys are asked about in one statement.
_AT_ONCE = 500


class History:
    """The revisions of a store."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def memory(self, scope: Scope) -> HistorySnapshot:
        """What is known of a scope."""
        with self._database.reading() as connection:
            rows = connection.execute(_revisions(scope)).all()
            sweeps = {row.key: row.sweep for row in connection.execute(_sweeps(scope))}
            scopes = [Scope(*row) for row in connection.execute(_known_scopes(scope.stack))]
            by_key = defaultdict(list)
            for row in rows:
                by_key[row.key].append(read_revision(row))
            _check_ids(rows)
        elsewhere = sorted(
            found.place for found in scopes if found != scope and not (found.is_local or scope.is_local)
        )
        return HistorySnapshot(
            {key: _oldest_first(past) for key, past in sorted(by_key.items())},
            tuple(elsewhere),
            sweeps=sweeps,
        )

    def revisions(self, scope: Scope, key: str) -> Sequence[PastRevision]:
        """The revisions of one key, oldest first."""
        look = _revisions(scope).where(REVISIONS.c.key == key)
        with self._database.reading() as connection:
            return _oldest_first(read_revision(row) for row in connection.execute(look))

    def known(self, scope: Scope) -> Mapping[RevisionId, Row[Any]]:
        """The rows of a scope, without what was declared."""
        with self._database.reading() as connection:
            found = connection.execute(_revisions(scope, without="declared"))
            return {RevisionId(row.key, row.number): row for row in found}

    def write(self, scope_id: int, changes: ObservationChanges) -> None:
        """Write down what a look showed."""
        with self._database.writing() as connection:
            move(connection, scope_id, changes.moves)
            declared = _journalled(connection, scope_id, changes.undeclared)
            rows = [
                {
                    **row,
                    "scope_id": scope_id,
                    "declared": declared.get((row["key"], row["number"], row["digest"])),
                }
                for row in changes.rows
            ]
            rows.sort(key=write_order)
            connection.execute(_upsert(self._database), rows)

    def copy(self, from_id: int, to_id: int, jobs: Collection[str]) -> int:
        """Copy the rows of these jobs to another scope, where it has none in their places.

        An older look at the same job gives way, too; another job does not.
        """
        look, there = (select(REVISIONS).where(REVISIONS.c.scope_id == one) for one in (from_id, to_id))
        with self._database.writing() as connection:
            taken = {(row.key, row.number): read_revision(row) for row in connection.execute(there)}
            rows = [
                {**row._mapping, "scope_id": to_id}
                for row in connection.execute(look)
                if row.job in jobs and read_revision(row).says_more_than(taken.get((row.key, row.number)))
            ]
            if rows:
                connection.execute(_upsert(self._database), sorted(rows, key=write_order))
        return len(rows)

    def prune(self, connection: Connection, scope_id: int, before_s: float) -> None:
        """Delete the revisions that are neither the newest of their key, nor young, nor maybe active."""
        gone = [
            {"of_scope": scope_id, "at_key": key, "at_number": number}
            for key, number in old_revisions(connection, scope_id, before_s)
        ]
        if gone:
            connection.execute(delete(REVISIONS).where(_at()), gone)


def old_revisions(connection: Connection, scope_id: int, before_s: float) -> Sequence[RevisionId]:
    """The revisions that are neither the newest of their key, nor young, nor maybe active."""
    newest: dict[str, int] = {}
    old: list[RevisionId] = []
    columns = REVISIONS.c["key", "number", "phase", "created_at_s", "started_at_s", "duration_s", "seen_at_s"]
    for row in connection.execute(select(*columns).where(REVISIONS.c.scope_id == scope_id)):
        newest[row.key] = max(row.number, newest.get(row.key, 0))
        phase = parse_phase(row.phase)
        if phase is not None and phase.is_terminal and _last_sign_s(row) < before_s:
            old.append(RevisionId(row.key, row.number))
    return [place for place in old if place.number < newest[place.key]]


# A statement takes longer to put together than to execute, and every plan asks these.
@lru_cache
def is_scope(scope: Scope) -> ColumnElement[bool]:
    """Whether a row of the scopes is this one."""
    table = SCOPES.c
    return (
        (table.stack == scope.stack)
        & (table.host == scope.host)
        & (table.project_id == scope.project_id)
        & (table.workspace_id == scope.workspace_id)
    )


def write_order(row: Mapping[str, Any]) -> tuple[str, int]:
    """All who write revisions do so in this order, so that none waits for one who waits for it."""
    return row.get("key", ""), row.get("number") or 0


def declared_now(new: Any) -> ColumnElement[Any]:
    """Of the same digest, what was declared stays known; of another one, only what is said now counts."""
    old = REVISIONS.c
    return case((old.digest == new.digest, func.coalesce(new.declared, old.declared)), else_=new.declared)


@lru_cache
def _revisions(scope: Scope, without: str = "") -> Select[Any]:
    look = select(*(column for column in REVISIONS.c if column.name != without))
    return look.join(SCOPES, SCOPES.c.id == REVISIONS.c.scope_id).where(is_scope(scope))


@lru_cache
def _sweeps(scope: Scope) -> Select[Any]:
    """The keys that were ever applied, each with its sweep or ""."""
    look = select(KEYS.c.key, KEYS.c.sweep).join(SCOPES, SCOPES.c.id == KEYS.c.scope_id)
    return look.where(is_scope(scope))


@lru_cache
def _known_scopes(stack: str) -> Select[Any]:
    of_stack = select(*SCOPES.c["stack", "host", "project_id", "workspace_id"]).where(SCOPES.c.stack == stack)
    return of_stack.where(exists().where(REVISIONS.c.scope_id == SCOPES.c.id))


def _oldest_first(past: Iterable[PastRevision]) -> tuple[PastRevision, ...]:
    return tuple(sorted(past, key=lambda revision: revision.number))


def read_revision(row: Row[Any]) -> PastRevision:
    """Read a row.

    Raises:
        Damaged: it says what no look at a job can have shown.
    """
    phases, schedule = read_phases(row.phases), read_schedule_mark(row.schedule)
    if row.schedule and schedule is None:
        raise damaged("the schedule of a revision is not one that a marker can have")
    if row.phase != (phases[-1][0] if phases else ""):
        raise damaged("the phase of a revision differs from the last one observed")
    return PastRevision(
        key=row.key,
        number=row.number,
        name=row.name,
        job=row.job,
        digest=row.digest,
        phase_text=row.phase,
        created_at_s=row.created_at_s,
        started_at_s=row.started_at_s,
        duration_s=row.duration_s,
        node_count=row.node_count,
        seen_at_s=row.seen_at_s,
        declared=read_declared(row.declared),
        phases=phases,
        stopped=row.stopped,
        released_at_s=row.released_at_s,
        schedule=schedule,
    )


def _journalled(
    connection: Connection, scope_id: int, keys: Iterable[str]
) -> dict[tuple[str, int | None, str], str]:
    """What the journal says was declared for revisions: a run may have died before it could say more."""
    found: dict[tuple[str, int | None, str], str] = {}
    look = (
        select(LINES.c.key, LINES.c.number, LINES.c.digest, LINES.c.declared)
        .join(RUNS, RUNS.c.id == LINES.c.run_id)
        .where(RUNS.c.scope_id == scope_id, LINES.c.declared.is_not(None))
        # What certainly did not take effect was not declared of any job.
        .where(or_(LINES.c.ok.is_not(false()), LINES.c.is_certain.is_(false())))
        .order_by(LINES.c.run_id, LINES.c.line)
    )
    for some in _portions(sorted(keys)):
        for row in connection.execute(look.where(LINES.c.key.in_(some))):
            # What cannot be read is not handed on: it would make the revision unreadable, too.
            if read_declared(row.declared) is not None:
                found[row.key, row.number, row.digest] = row.declared
    return found


def _check_ids(rows: Iterable[Row[Any]]) -> None:
    """A job keeps its name for good, also under another key: whatever was seen under two names is two jobs.

    Raises:
        Damaged: one id stands for several.
    """
    names: dict[str, str] = {}
    for row in rows:
        if row.seen_at_s is not None and names.setdefault(row.job, row.name) != row.name:
            raise damaged("one job has two names")


def _portions(keys: Sequence[str]) -> Iterator[Sequence[str]]:
    return (keys[start : start + _AT_ONCE] for start in range(0, len(keys), _AT_ONCE))


def _at() -> ColumnElement[bool]:
    return (
        (REVISIONS.c.scope_id == bindparam("of_scope"))
        & (REVISIONS.c.key == bindparam("at_key"))
        & (REVISIONS.c.number == bindparam("at_number"))
    )


def move(connection: Connection, scope_id: int, moves: Sequence[Mapping[str, Any]]) -> None:
    """Give rows of jobs that were renamed their new key and number, with all that is known of them.

    A row that stands there already gives way; what was declared for the same job stays known. A job
    that is not at the old place any more was moved before.
    """
    rows = _rows_of(connection, scope_id, {one[name] for one in moves for name in ("at_key", "to_key")})
    moved, replaced = [], []
    for one in moves:
        here, there = rows.get((one["at_key"], one["at_number"])), rows.get((one["to_key"], one["to_number"]))
        if here is None or here.job != one["of_job"]:
            continue
        declared = here.declared
        if there is not None:
            replaced.append({"at_key": there.key, "at_number": there.number, "of_scope": scope_id})
            if declared is None and (there.job, there.digest) == (here.job, here.digest):
                declared = there.declared
        moved.append({**one, "of_scope": scope_id, "now_declared": declared})
    if replaced:
        connection.execute(delete(REVISIONS).where(_at()), replaced)
    if moved:
        to: dict[str, Any] = {name: bindparam(f"to_{name}") for name in ("key", "number")}
        here_still = _at() & (REVISIONS.c.job == bindparam("of_job"))
        renamed = update(REVISIONS).where(here_still).values(**to, declared=bindparam("now_declared"))
        connection.execute(renamed, moved)


def _rows_of(connection: Connection, scope_id: int, keys: Iterable[str]) -> dict[tuple[str, int], Row[Any]]:
    """What a rename needs of the revisions of some keys, by key and number; they hold still meanwhile."""
    look = select(*REVISIONS.c["key", "number", "job", "digest", "declared"])
    look = look.where(REVISIONS.c.scope_id == scope_id).with_for_update()
    found = (
        connection.execute(look.where(REVISIONS.c.key.in_(some))).all() for some in _portions(sorted(keys))
    )
    return {(row.key, row.number): row for rows in found for row in rows}


def _upsert(database: Database) -> Insert:
    def changes(new: Any) -> dict[str, ColumnElement[Any]]:
        seen = {c.name: new[c.name] for c in REVISIONS.c if not c.primary_key and c.name != "declared"}
        return {"declared": declared_now(new), **seen}

    return database.dialect.upsert(REVISIONS, changes)


def _last_sign_s(row: Row[Any]) -> float:
    begin = row.started_at_s or row.created_at_s or 0.0
    return max(begin + (row.duration_s or 0.0), row.seen_at_s or 0.0)
