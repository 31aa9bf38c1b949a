"""The history: what each revision was and in which phases it was seen, what applies declared, and the runs.

Source: docs/records.md; docs/semantics.md, "Records".
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from itertools import groupby
from typing import Any

from sqlalchemy import (
    ColumnElement,
    Connection,
    Select,
    Table,
    case,
    delete,
    exists,
    false,
    func,
    or_,
    select,
    true,
    update,
)

from reconciler.core.code import Code
from reconciler.core.ownership import Revision
from reconciler.core.past import FinishedWork, PastAction, PastChange, PastRevision, PastRun, PastStep
from reconciler.core.phase import Phase, parse_phase
from reconciler.core.record import Declared, HistorySnapshot, RevisionId, Scope
from reconciler.decide.outcome import Status
from reconciler.records.database import is_scope, storable
from reconciler.records.lock import Locks
from reconciler.records.schema import CODES, KEYS, LARGEST, LINES, OUTCOMES, REVISIONS, RUNS, SCOPES

#: So many keys or digests are asked about in one statement.
_AT_ONCE = 500
#: A look that is older than the one recorded by less than this came late, by more by a wrong clock; seconds.
_LATE_S = 3600.0
#: The columns of a past run and revision, by the fields.
_RUN = [RUNS.c["place" if name == "where" else name] for name in PastRun._fields[:10]]
_PAST = [REVISIONS.c["phase" if name == "phase_text" else name] for name in PastRevision._fields]


#: The id of a job that was renamed, the revision that it was, and the one that it is.
Move = tuple[str, RevisionId, RevisionId]


class History(Locks):
    """A store, as far as it is about what was done and seen."""

    def memory(self, scope: Scope) -> HistorySnapshot:
        self.find_scope(scope)
        with self.reading() as connection:
            past = _read_past(connection, _revisions(scope))
            of_keys = select(KEYS.c.key, KEYS.c.sweep).join(SCOPES, SCOPES.c.id == KEYS.c.scope_id)
            sweeps = {row.key: row.sweep for row in connection.execute(of_keys.where(is_scope(scope)))}
            of_stack = select(*SCOPES.c[Scope._fields]).where(SCOPES.c.stack == scope.stack)
            is_known = exists().where(REVISIONS.c.scope_id == SCOPES.c.id)
            scopes = [Scope(*row) for row in connection.execute(of_stack.where(is_known))]
        past.sort(key=lambda one: (one.key, one.number))
        by_key = {key: tuple(of_key) for key, of_key in groupby(past, key=lambda one: one.key)}
        others = (one for one in scopes if one != scope and not (one.is_local or scope.is_local))
        return HistorySnapshot(by_key, tuple(sorted(one.place for one in others)), sweeps=sweeps)

    def revisions(self, scope: Scope, *keys: str) -> Sequence[PastRevision]:
        """The revisions of some keys, oldest first."""
        with self.reading() as connection:
            past = _read_past(connection, _revisions(scope).where(REVISIONS.c.key.in_(keys)))
        return tuple(sorted(past, key=lambda one: one.number))

    def codes(self, digests: Iterable[str]) -> Mapping[str, Code]:
        """The code of those digests, as far as a revision with it was started."""
        found = {}
        with self.reading() as connection:
            for some in _portions(digests):
                look = select(CODES).where(CODES.c.digest.in_(some))
                for digest, (name, files) in connection.execute(look):
                    found[digest] = Code(name, files, digest)
        return found

    def remember(self, scope: Scope, seen: Iterable[Revision], at_s: float) -> None:
        """Write owned revisions as they were seen at a time: new ones, and new phases of those known.

        A job that has another key or number now was renamed, and takes its past along.
        """
        if not (seen := list(seen)):
            return
        with self.reading() as connection:
            past = _read_past(connection, _revisions(scope))
        observed = [
            {
                "key": one.marker.key,
                "number": one.number,
                "name": storable(one.job.name),
                "job": storable(one.job.id),
                "digest": one.marker.digest,
                "phase": self.text(one.job.phase_text) if one.job.phase is None else one.job.phase_text,
                "created_at_s": one.job.created_at_s,
                "started_at_s": one.job.started_at_s,
                "duration_s": one.job.duration_s,
                "node_count": max(0, min(one.job.node_count, LARGEST)),
                "stopped": one.marker.stopped,
                "schedule": one.marker.schedule,
                "released_at_s": None,
            }
            for one in seen
        ]
        rows, moves, undeclared = _compare(past, observed, at_s)
        if not rows:
            return
        scope_id = self.scope_id(scope)
        with self.writing() as connection:
            move(connection, scope_id, moves)
            declared = _journaled(connection, scope_id, undeclared)
            for row in rows:
                place = (row["key"], row["number"], row["digest"])
                row |= {"scope_id": scope_id, "declared": declared.get(place)}
            self._write_revisions(connection, rows)

    def take_over(self, scope: Scope, old: Scope, jobs: Collection[str]) -> int:
        """Write for a scope what is known of these jobs in another one; return how many revisions were new.

        What is known of the scope already stays as it is, unless it is an older look at the same job.
        """
        from_id = self.find_scope(old)
        if from_id is None or not jobs:
            return 0
        to_id = self.scope_id(scope)
        with self.writing() as connection:
            theirs, ours = (
                _read_past(connection, select(*_PAST).where(REVISIONS.c.scope_id == one))
                for one in (from_id, to_id)
            )
            taken = {(one.key, one.number): one for one in ours}
            rows = []
            for one in theirs:
                if one.job in jobs and one.says_more_than(taken.get((one.key, one.number))):
                    row = one._asdict()
                    rows.append({"scope_id": to_id, "phase": row.pop("phase_text"), **row})
            self._write_revisions(connection, rows)
        return len(rows)

    def _write_revisions(self, connection: Connection, rows: list[dict[str, Any]]) -> None:
        """Write revisions as they were seen.

        All who write some do so in one order, so that none waits for one who waits for it.
        """

        def changes(new: Any) -> dict[str, ColumnElement[Any]]:
            seen = {c.name: new[c.name] for c in REVISIONS.c if not c.primary_key and c.name != "declared"}
            return {"declared": declared_now(new), **seen}

        if rows:
            rows.sort(key=lambda row: (row["key"], row["number"]))
            connection.execute(self.dialect.upsert(REVISIONS, changes), rows)

    # --- what applies declared

    def declare(self, scope: Scope, sweeps: Mapping[str, str], place: str) -> None:
        """Write what an apply declares, each key with its sweep or "", and where its manifest is.

        Nothing is written where that is known already.
        """
        scope_id, place = self.scope_id(scope), self.text(place)
        of_scope = SCOPES.c.id == scope_id
        with self.reading() as connection:
            rows = connection.execute(select(KEYS).where(KEYS.c.scope_id == scope_id))
            known = {row.key: (row.sweep, row.is_declared) for row in rows}
            was_from = connection.execute(select(SCOPES.c.applied_from).where(of_scope)).scalar()
        # Whose member a key was stays known.
        now = {key: (sweep, False) for key, (sweep, _) in known.items()}
        now |= {key: (sweep, True) for key, sweep in sweeps.items()}
        changed = [
            {"scope_id": scope_id, "key": key, "sweep": sweep, "is_declared": is_declared}
            for key, (sweep, is_declared) in sorted(now.items())
            if known.get(key) != (sweep, is_declared)
        ]
        if not changed and was_from == place:
            return
        upsert = self.dialect.upsert(KEYS, lambda new: {"sweep": new.sweep, "is_declared": new.is_declared})
        with self.writing() as connection:
            if changed:
                connection.execute(upsert, changed)
            connection.execute(update(SCOPES).where(of_scope).values(applied_from=place))

    def finished(self, scope: Scope, digests: Collection[str], place: str) -> Mapping[str, FinishedWork]:
        """What other stacks completed on the same target, by digest, and do not declare any more.

        A stack whose last apply was from `place` is this one under its former name: all that it completed
        counts.
        """
        is_declared = func.coalesce(KEYS.c.is_declared, false())
        look = (
            select(SCOPES.c.stack, *REVISIONS.c["key", "number", "digest"])
            .join(SCOPES, SCOPES.c.id == REVISIONS.c.scope_id)
            .outerjoin(KEYS, (KEYS.c.scope_id == REVISIONS.c.scope_id) & (KEYS.c.key == REVISIONS.c.key))
            .where(
                SCOPES.c.host == scope.host,
                SCOPES.c.project_id == scope.project_id,
                SCOPES.c.workspace_id == scope.workspace_id,
                SCOPES.c.stack != scope.stack,
                SCOPES.c.applied_from.is_not(None),
                (SCOPES.c.applied_from == self.text(place)) | (is_declared == false()),
                func.lower(REVISIONS.c.phase) == Phase.COMPLETED.value.lower(),
                REVISIONS.c.released_at_s.is_(None),
            )
            .order_by(SCOPES.c.stack, REVISIONS.c.key, REVISIONS.c.number)
        )
        found: dict[str, FinishedWork] = {}
        with self.reading() as connection:
            for some in _portions(digests):
                for row in connection.execute(look.where(REVISIONS.c.digest.in_(some))):
                    found.setdefault(row.digest, FinishedWork(row.key, row.number, row.stack))
        return found

    # --- runs

    def runs(
        self, scope: Scope, *, keys: Collection[str] | None = None, limit: int | None = None
    ) -> Sequence[PastRun]:
        """The runs of a scope, newest first; with `keys` what was done about them, and that only."""
        look = select(*_RUN).join(SCOPES, SCOPES.c.id == RUNS.c.scope_id).where(is_scope(scope))
        if keys is not None:
            is_done = OUTCOMES.c.status != Status.SKIPPED.value
            lines = exists().where(LINES.c.run_id == RUNS.c.id, LINES.c.key.in_(keys))
            outcomes = exists().where(OUTCOMES.c.run_id == RUNS.c.id, OUTCOMES.c.key.in_(keys), is_done)
            look = look.where(lines | outcomes)
        look = look.order_by(RUNS.c.at_s.desc(), RUNS.c.id.desc()).limit(limit)
        wanted = look.with_only_columns(RUNS.c.id)

        def of_runs(table: Table, kind: Any, order: Any) -> dict[int, list[Any]]:
            what = select(table.c.run_id, *table.c[kind._fields]).where(table.c.run_id.in_(wanted))
            found = defaultdict(list)
            for run_id, *row in connection.execute(
                (what if keys is None else what.where(table.c.key.in_(keys))).order_by(order)
            ):
                found[run_id].append(kind(*row))
            return found

        with self.reading() as connection:
            steps = of_runs(LINES, PastStep, LINES.c.line)
            actions = of_runs(OUTCOMES, PastAction, OUTCOMES.c.position)
            rows: Sequence[Any] = connection.execute(look).all()
            of_scope = select(func.max(RUNS.c.id)).join(SCOPES, SCOPES.c.id == RUNS.c.scope_id)
            is_open = is_scope(scope) & RUNS.c.ended_at_s.is_(None)
            newest = connection.execute(of_scope.where(is_open)).scalar()
        # Who applies holds the lock: of the runs without an end the newest goes on, and others were cut off.
        running = newest if newest is not None and self.holder(scope) else None
        return [
            PastRun._make((*row, tuple(actions[row.id]), tuple(steps[row.id]), row.id == running))
            for row in rows
        ]

    def last_changes(self, scope: Scope) -> Mapping[str, PastChange]:
        """The newest call that changed a job of each key, by key; failed and unanswered ones aside."""
        newest_first = (LINES.c.at_s.desc(), LINES.c.run_id.desc(), LINES.c.line.desc())
        of_key = (
            select(*LINES.c["key", "action", "call"], *RUNS.c["kind", "who"], *LINES.c["job", "at_s"])
            .add_columns(func.row_number().over(partition_by=LINES.c.key, order_by=newest_first).label("age"))
            .join(RUNS, RUNS.c.id == LINES.c.run_id)
            .join(SCOPES, SCOPES.c.id == RUNS.c.scope_id)
            .where(is_scope(scope), LINES.c.ok == true())
            .subquery()
        )
        with self.reading() as connection:
            return {
                row.key: PastChange(*row[:-1])
                for row in connection.execute(select(of_key).where(of_key.c.age == 1))
            }


# --- reading revisions


# A statement takes longer to put together than to execute, and every plan asks this one.
@lru_cache
def _revisions(scope: Scope) -> Select[Any]:
    return select(*_PAST).join(SCOPES, SCOPES.c.id == REVISIONS.c.scope_id).where(is_scope(scope))


def _read_past(connection: Connection, look: Select[Any]) -> list[PastRevision]:
    return [PastRevision._make(row) for row in connection.execute(look)]


# --- what a look at the service adds


def _compare(
    past: Iterable[PastRevision], seen: Iterable[dict[str, Any]], at_s: float
) -> tuple[list[dict[str, Any]], list[Move], set[str]]:
    """Compare a look with what is known.

    Returns rows to write, rows to move first, and keys of which the journal may know what was declared.
    """
    known = {RevisionId(one.key, one.number): one for one in past}
    # Of two jobs that claim one revision the younger is meant.
    by_place = {
        RevisionId(one["key"], one["number"]): one
        for one in sorted(seen, key=lambda one: one["created_at_s"] or 0.0)
    }
    # A row of a job that was released stays what it is: the job is another revision if it was adopted since.
    place_by_job = {
        row.job: place for place, row in known.items() if place not in by_place and row.released_at_s is None
    }
    rows: list[dict[str, Any]] = []
    moves: list[Move] = []
    undeclared = set()
    for place, now in by_place.items():
        earlier = [row] if (row := known.get(place)) else []
        if (was := place_by_job.get(now["job"])) is not None:
            row = known[was]
            earlier.insert(0, row)
            moves.append((now["job"], was, place))
        elif row is not None and not _is_change(row, now, at_s):
            continue
        # The phases seen so far, and this one if it is another than the last.
        seen_in = [phase for one in earlier if one.job == now["job"] for phase in one.phases]
        looks = groupby([*seen_in, (now["phase"], at_s)], key=lambda look: look[0])
        phases = [next(first) for _, first in looks]
        rows.append({**now, "seen_at_s": at_s, "phases": phases})
        if row is None or row.digest != now["digest"]:
            undeclared.add(place.key)
    return rows, moves, undeclared


def _is_change(row: PastRevision, now: Mapping[str, Any], at_s: float) -> bool:
    """Whether the look shows something new. That an active job runs on is nothing new."""
    if row.job == now["job"]:
        if row.seen_at_s is not None and 0 < row.seen_at_s - at_s < _LATE_S:
            return False
        if row.released_at_s is not None and at_s <= row.released_at_s:
            return False  # the marker has been taken off since
    phase = parse_phase(now["phase"])
    passed_over = {"duration_s"} if phase is not None and phase.is_active else set()
    return any(
        getattr(row, "phase_text" if name == "phase" else name) != value
        for name, value in now.items()
        if name not in passed_over
    )


# --- writing revisions


def declared_now(new: Any) -> ColumnElement[Any]:
    """Of the same digest, what was declared stays known; of another one, only what is said now counts."""
    old = REVISIONS.c
    return case((old.digest == new.digest, func.coalesce(new.declared, old.declared)), else_=new.declared)


def _journaled(
    connection: Connection, scope_id: int, keys: Iterable[str]
) -> dict[tuple[str, int | None, str], Declared]:
    """What the journal says was declared for revisions: a run may have died before it could say more."""
    found: dict[tuple[str, int | None, str], Declared] = {}
    look = (
        select(*LINES.c["key", "number", "digest", "declared"])
        .join(RUNS, RUNS.c.id == LINES.c.run_id)
        .where(RUNS.c.scope_id == scope_id, LINES.c.declared.is_not(None))
        # What certainly did not take effect was not declared of any job.
        .where(or_(LINES.c.ok.is_not(false()), LINES.c.is_certain.is_(false())))
        .order_by(LINES.c.run_id, LINES.c.line)
    )
    for some in _portions(keys):
        for key, number, digest, declared in connection.execute(look.where(LINES.c.key.in_(some))):
            found[key, number, digest] = declared
    return found


def move(connection: Connection, scope_id: int, moves: Sequence[Move]) -> None:
    """Give rows of jobs that were renamed their new key and number, with all that is known of them.

    A row that is there already gives way; what was declared for the same job stays known. A job that is
    not at the old place any more was moved before.
    """
    of_scope, columns = REVISIONS.c.scope_id == scope_id, REVISIONS.c
    look = select(*columns["key", "number", "job", "digest", "declared"]).where(of_scope)
    rows = {
        (row.key, row.number): row
        for some in _portions(place.key for _, *places in moves for place in places)
        # They hold still meanwhile.
        for row in connection.execute(look.with_for_update().where(columns.key.in_(some)))
    }
    for job, at, to in moves:
        here, there = rows.get(at), rows.get(to)
        if here is None or here.job != job:
            continue
        declared = here.declared
        if there is not None:
            if declared is None and (there.job, there.digest) == (here.job, here.digest):
                declared = there.declared
            is_there = (columns.key == to.key) & (columns.number == to.number)
            connection.execute(delete(REVISIONS).where(of_scope, is_there))
        is_here = (columns.key == at.key) & (columns.number == at.number) & (columns.job == job)
        renamed = update(REVISIONS).where(of_scope, is_here)
        connection.execute(renamed.values(key=to.key, number=to.number, declared=declared))


def _portions(things: Iterable[str]) -> Iterator[Sequence[str]]:
    """Distinct keys or digests, so many as are asked about in one statement."""
    every = sorted(set(things))
    return (every[start : start + _AT_ONCE] for start in range(0, len(every), _AT_ONCE))
