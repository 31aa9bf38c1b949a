"""The history: revisions with their observed phases, declarations of applies, and runs.

Source: docs/operations/records.md.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from itertools import groupby
from typing import Any

from reconciler.core.code import Code
from reconciler.core.ownership import Revision
from reconciler.core.past import FinishedWork, PastAction, PastChange, PastRevision, PastRun, PastStep
from reconciler.core.phase import Phase, parse_phase
from reconciler.core.record import Declared, HistorySnapshot, RevisionId, Scope
from reconciler.decide.outcome import Run, RunEnd, Status
from reconciler.records.database import IS_SCOPE, storable
from reconciler.records.dialects import Transaction
from reconciler.records.lock import Locks
from reconciler.records.schema import LARGEST, declared_document, dump

#: Maximum number of keys or digests in one statement.
_AT_ONCE = 500
#: An observation older than the recorded one by less than this, in seconds, arrived late; by more, the clock
#: was wrong.
_LATE_S = 3600.0
#: The columns of past runs and revisions, in the order of their fields.
_RUN = ", ".join(f"run.{'place' if name == 'where' else name}" for name in PastRun._fields[:10])
_REVISION = ", ".join(f"revision.{'phase' if n == 'phase_text' else n}" for n in PastRevision._fields)
_REVISIONS = (
    f"SELECT {_REVISION} FROM reconciler_revisions AS revision"
    f" JOIN reconciler_scopes AS scope ON scope.id = revision.scope_id WHERE {IS_SCOPE}"
)
#: Keep the recorded declaration if the digest is the same.
_DECLARED_NOW = (
    "CASE WHEN reconciler_revisions.digest = excluded.digest"
    " THEN coalesce(excluded.declared, reconciler_revisions.declared) ELSE excluded.declared END"
)

#: The id of a renamed job, its former revision, and its present one.
Move = tuple[str, RevisionId, RevisionId]


class History(Locks):
    """The history in a store."""

    def memory(self, scope: Scope) -> HistorySnapshot:
        self.find_scope(scope)
        with self.reading() as transaction:
            past = _read_past(transaction, _REVISIONS, **scope._asdict())
            sweeps = transaction.rows(
                "SELECT key, sweep FROM reconciler_keys AS of_key"
                f" JOIN reconciler_scopes AS scope ON scope.id = of_key.scope_id WHERE {IS_SCOPE}",
                **scope._asdict(),
            )
            of_stack = transaction.rows(
                f"SELECT {', '.join(Scope._fields)} FROM reconciler_scopes AS scope WHERE stack = :stack"
                " AND EXISTS (SELECT 1 FROM reconciler_revisions WHERE scope_id = scope.id)",
                stack=scope.stack,
            )
        scopes = map(Scope._make, of_stack)
        past.sort(key=lambda one: (one.key, one.number))
        by_key = {key: tuple(of_key) for key, of_key in groupby(past, key=lambda one: one.key)}
        others = (one for one in scopes if one != scope and not (one.is_local or scope.is_local))
        return HistorySnapshot(by_key, tuple(sorted(one.place for one in others)), sweeps=dict(sweeps))

    def revisions(self, scope: Scope, *keys: str) -> Sequence[PastRevision]:
        """Return the revisions of some keys, oldest first."""
        with self.reading() as transaction:
            look = f"{_REVISIONS} AND revision.key IN :keys"
            past = _read_past(transaction, look, keys=[*keys], **scope._asdict())
        return tuple(sorted(past, key=lambda one: one.number))

    def codes(self, digests: Iterable[str]) -> Mapping[str, Code]:
        """Return the recorded code of digests."""
        look = "SELECT digest, content AS listing FROM reconciler_code WHERE digest IN :digests"
        found = {}
        with self.reading() as transaction:
            for some in _portions(digests):
                for digest, (name, files) in transaction.rows(look, digests=some):
                    found[digest] = Code(name, files, digest)
        return found

    def remember(self, scope: Scope, seen: Iterable[Revision], at_s: float) -> None:
        """Record observed revisions: new ones, and new phases of known ones.

        A job that now has another key or number was renamed, and its history moves with it.
        """
        if not (seen := list(seen)):
            return
        with self.reading() as transaction:
            past = _read_past(transaction, _REVISIONS, **scope._asdict())
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
        with self.writing() as transaction:
            move(transaction, scope_id, moves)
            declared = _journaled(transaction, scope_id, undeclared)
            for row in rows:
                place = (row["key"], row["number"], row["digest"])
                row |= {"scope_id": scope_id, "declared": declared.get(place)}
            _write_revisions(transaction, rows)

    def take_over(self, scope: Scope, old: Scope, jobs: Collection[str]) -> int:
        """Copy the history of these jobs from another scope. Returns the number of new revisions.

        Existing revisions stay, unless they are older observations of the same job.
        """
        if not jobs or self.find_scope(old) is None:
            return 0
        to_id = self.scope_id(scope)
        with self.writing() as transaction:
            theirs, ours = (_read_past(transaction, _REVISIONS, **one._asdict()) for one in (old, scope))
            taken = {(one.key, one.number): one for one in ours}
            rows = []
            for one in theirs:
                if one.job in jobs and one.supersedes(taken.get((one.key, one.number))):
                    row = one._asdict()
                    rows.append({"scope_id": to_id, "phase": row.pop("phase_text"), **row})
            _write_revisions(transaction, rows)
        return len(rows)

    # --- declarations

    def declare(self, scope: Scope, sweeps: Mapping[str, str], place: str) -> None:
        """Record the keys that an apply declares, each with its sweep or "", and the place of the manifest.

        Writes nothing if they are recorded already.
        """
        scope_id, place = self.scope_id(scope), self.text(place)
        with self.reading() as transaction:
            look = "SELECT key, sweep, is_declared FROM reconciler_keys WHERE scope_id = :scope_id"
            known = {key: (sweep, is_) for key, sweep, is_ in transaction.rows(look, scope_id=scope_id)}
            look = "SELECT applied_from FROM reconciler_scopes WHERE id = :scope_id"
            was_from = transaction.value(look, scope_id=scope_id)
        # Keep the sweep of keys that are no longer declared.
        now = {key: (sweep, False) for key, (sweep, _) in known.items()}
        now |= {key: (sweep, True) for key, sweep in sweeps.items()}
        changed = [
            {"scope_id": scope_id, "key": key, "sweep": sweep, "is_declared": is_declared}
            for key, (sweep, is_declared) in sorted(now.items())
            if known.get(key) != (sweep, is_declared)
        ]
        if not changed and was_from == place:
            return
        with self.writing() as transaction:
            transaction.upsert("reconciler_keys", ("scope_id", "key"), changed)
            change = "UPDATE reconciler_scopes SET applied_from = :place WHERE id = :scope_id"
            transaction.execute(change, place=place, scope_id=scope_id)

    def rename(self, scope: Scope, new_keys: Mapping[str, str], observed: Collection[str]) -> None:
        """Move the revisions of former keys to the new ones, if the numbers are free there.

        Jobs that were `observed` have a marker, and move when that is updated.
        """
        with self.reading() as transaction:
            past = _read_past(transaction, _REVISIONS, **scope._asdict())
        taken = {RevisionId(one.key, one.number) for one in past}
        moves: list[Move] = []
        for one in past:
            to = RevisionId(new_keys.get(one.key, one.key), one.number)
            if to not in taken and one.job not in observed and one.released_at_s is None:
                taken.add(to)
                moves.append((one.job, RevisionId(one.key, one.number), to))
        if moves:
            scope_id = self.scope_id(scope)
            with self.writing() as transaction:
                move(transaction, scope_id, moves)

    def finished(self, scope: Scope, digests: Collection[str], place: str) -> Mapping[str, FinishedWork]:
        """Return completed work of other stacks on the same target, by digest, that they no longer declare.

        A stack whose last apply was from `place` is this one under a former name, so all of its work counts.
        """
        look = (
            "SELECT revision.digest, revision.key, revision.number, scope.stack"
            " FROM reconciler_revisions AS revision"
            " JOIN reconciler_scopes AS scope ON scope.id = revision.scope_id"
            " LEFT JOIN reconciler_keys AS of_key"
            " ON of_key.scope_id = revision.scope_id AND of_key.key = revision.key"
            " WHERE scope.host = :host AND scope.project_id = :project_id"
            " AND scope.workspace_id = :workspace_id AND scope.stack <> :stack"
            " AND scope.applied_from IS NOT NULL"
            " AND (scope.applied_from = :place OR coalesce(of_key.is_declared, FALSE) = FALSE)"
            " AND lower(revision.phase) = :phase AND revision.released_at_s IS NULL"
            " AND revision.digest IN :digests ORDER BY scope.stack, revision.key, revision.number"
        )
        values = {**scope._asdict(), "place": self.text(place), "phase": Phase.COMPLETED.value.lower()}
        found: dict[str, FinishedWork] = {}
        with self.reading() as transaction:
            for some in _portions(digests):
                for digest, *work in transaction.rows(look, digests=some, **values):
                    found.setdefault(digest, FinishedWork(*work))
        return found

    # --- runs

    def insert_run(
        self, transaction: Transaction, scope_id: int, run: Run, ended: RunEnd | None = None
    ) -> int:
        """Insert a run, with its end if it has ended. Returns its number."""
        row: dict[str, Any] = {
            "scope_id": scope_id,
            "kind": run.kind.value,
            "who": self.text(run.who),
            "place": self.text(run.where),
            "command": self.text(run.command),
            "plan_digest": self.text(run.plan_digest),
            "at_s": run.at_s,
        }
        if ended is not None:
            row |= self.end_of_run(ended)
        return self.dialect.insert_numbered(transaction, "reconciler_runs", row)

    def end_of_run(self, ended: RunEnd) -> dict[str, Any]:
        summary = self.document(ended.summary)
        return {"ended_at_s": ended.at_s, "result": ended.result, "summary": summary}

    def runs(
        self, scope: Scope, *, keys: Collection[str] | None = None, limit: int | None = None
    ) -> Sequence[PastRun]:
        """Return the runs of a scope, newest first; with `keys` only those about them, with their actions."""
        of_scope = (
            "FROM reconciler_runs AS run JOIN reconciler_scopes AS scope ON scope.id = run.scope_id"
            f" WHERE {IS_SCOPE}"
        )
        wanted, of_keys = of_scope, ""
        if keys is not None:
            of_keys = " AND key IN :keys"
            lines = "SELECT run_id FROM reconciler_lines WHERE key IN :keys"
            outcomes = "SELECT run_id FROM reconciler_outcomes WHERE key IN :keys AND status <> :skipped"
            wanted += f" AND (run.id IN ({lines}) OR run.id IN ({outcomes}))"
        wanted += " ORDER BY run.at_s DESC, run.id DESC" + ("" if limit is None else " LIMIT :limit")
        values = {**scope._asdict(), "keys": [*(keys or ())], "limit": limit, "skipped": Status.SKIPPED.value}

        def of_runs(table: str, kind: Any, order: str) -> dict[int, list[Any]]:
            look = (
                f"SELECT run_id, {', '.join(kind._fields)} FROM {table}"
                f" WHERE run_id IN (SELECT run.id {wanted}){of_keys} ORDER BY {order}"
            )
            found = defaultdict(list)
            for run_id, *row in transaction.rows(look, **values):
                found[run_id].append(kind(*row))
            return found

        with self.reading() as transaction:
            steps = of_runs("reconciler_lines", PastStep, "line")
            actions = of_runs("reconciler_outcomes", PastAction, "position")
            rows = transaction.rows(f"SELECT {_RUN} {wanted}", **values)
            look = f"SELECT max(run.id) AS id {of_scope} AND run.ended_at_s IS NULL"
            newest = transaction.value(look, **values)
        # A run in progress holds the lock, so only the newest unfinished run may be one; others crashed.
        running = newest if newest is not None and self.holder(scope) else None
        return [
            PastRun._make((number, *row, tuple(actions[number]), tuple(steps[number]), number == running))
            for number, *row in rows
        ]

    def last_changes(self, scope: Scope) -> Mapping[str, PastChange]:
        """Return the newest successful call that changed a job, by key."""
        fields = ", ".join(PastChange._fields)
        newest_first = "line.at_s DESC, line.run_id DESC, line.line DESC"
        look = (
            f"SELECT {fields} FROM (SELECT line.key, line.action, line.call, run.kind, run.who, line.job,"
            f" line.at_s, row_number() OVER (PARTITION BY line.key ORDER BY {newest_first}) AS age"
            " FROM reconciler_lines AS line JOIN reconciler_runs AS run ON run.id = line.run_id"
            " JOIN reconciler_scopes AS scope ON scope.id = run.scope_id"
            f" WHERE {IS_SCOPE} AND line.ok = TRUE) AS change WHERE age = 1"
        )
        with self.reading() as transaction:
            changes = map(PastChange._make, transaction.rows(look, **scope._asdict()))
            return {change.key: change for change in changes}


def _read_past(transaction: Transaction, look: str, **values: Any) -> list[PastRevision]:
    return [PastRevision._make(row) for row in transaction.rows(look, **values)]


# --- new observations


def _compare(
    past: Iterable[PastRevision], seen: Iterable[dict[str, Any]], at_s: float
) -> tuple[list[dict[str, Any]], list[Move], set[str]]:
    """Compare observations with the recorded revisions.

    Returns rows to write, rows to move first, and keys whose declarations may be in the journal.
    """
    known = {RevisionId(one.key, one.number): one for one in past}
    # If two jobs claim one revision, the younger one counts.
    by_place = {
        RevisionId(one["key"], one["number"]): one
        for one in sorted(seen, key=lambda one: one["created_at_s"] or 0.0)
    }
    # The row of a released job stays: if the job was adopted since, it is another revision.
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
        # The phases observed so far, and this one if it is new.
        seen_in = [phase for one in earlier if one.job == now["job"] for phase in one.phases]
        looks = groupby([*seen_in, (now["phase"], at_s)], key=lambda look: look[0])
        phases = [next(first) for _, first in looks]
        rows.append({**now, "seen_at_s": at_s, "phases": phases})
        if row is None or row.digest != now["digest"]:
            undeclared.add(place.key)
    return rows, moves, undeclared


def _is_change(row: PastRevision, now: Mapping[str, Any], at_s: float) -> bool:
    """Whether an observation is new. That an active job is still running is not."""
    if row.job == now["job"]:
        if row.seen_at_s is not None and 0 < row.seen_at_s - at_s < _LATE_S:
            return False
        if row.released_at_s is not None and at_s <= row.released_at_s:
            return False  # released since
    phase = parse_phase(now["phase"])
    passed_over = {"duration_s"} if phase is not None and phase.is_active else set()
    return any(
        getattr(row, "phase_text" if name == "phase" else name) != value
        for name, value in now.items()
        if name not in passed_over
    )


# --- writing revisions


def _write_revisions(transaction: Transaction, rows: list[dict[str, Any]]) -> None:
    """Write observed revisions, always in the same order, to avoid deadlocks."""
    rows.sort(key=lambda row: (row["key"], row["number"]))
    for row in rows:
        row |= {"phases": dump(row["phases"]), "schedule": str(row["schedule"] or "")}
        row["declared"] = _written(row["declared"])
    upsert_revisions(transaction, rows)


def upsert_revisions(transaction: Transaction, rows: Sequence[Mapping[str, Any]], **changes: str) -> None:
    key, changes = ("scope_id", "key", "number"), {"declared": _DECLARED_NOW, **changes}
    transaction.upsert("reconciler_revisions", key, rows, **changes)


def _written(declared: Declared | None) -> str | None:
    """Serialize a redacted declaration."""
    return None if declared is None else dump(declared_document(declared))


def _journaled(
    transaction: Transaction, scope_id: int, keys: Iterable[str]
) -> dict[tuple[str, int | None, str], Declared]:
    """Read declarations from the journal: a run may have crashed before writing the revision."""
    found: dict[tuple[str, int | None, str], Declared] = {}
    look = (
        "SELECT line.key, line.number, line.digest, line.declared"
        " FROM reconciler_lines AS line JOIN reconciler_runs AS run ON run.id = line.run_id"
        " WHERE run.scope_id = :scope_id AND line.declared IS NOT NULL"
        # Except of calls that certainly had no effect.
        " AND (line.ok IS NOT FALSE OR line.is_certain IS FALSE)"
        " AND line.key IN :keys ORDER BY line.run_id, line.line"
    )
    for some in _portions(keys):
        for *place, declared in transaction.rows(look, scope_id=scope_id, keys=some):
            found[tuple(place)] = declared
    return found


def move(transaction: Transaction, scope_id: int, moves: Sequence[Move]) -> None:
    """Move the rows of renamed jobs to their new keys and numbers.

    An existing row is replaced, but the declaration of the same job is kept. Jobs that have been moved
    already are skipped.
    """
    look = (
        "SELECT key, number, job, digest, declared FROM reconciler_revisions"
        " WHERE scope_id = :scope_id AND key IN :keys FOR UPDATE"
    )
    is_at = "WHERE scope_id = :scope_id AND key = :key AND number = :number"
    rows = {
        RevisionId(key, number): (*of_job, declared)
        for some in _portions(place.key for _, *places in moves for place in places)
        for key, number, *of_job, declared in transaction.rows(look, scope_id=scope_id, keys=some)
    }
    for job, at, to in moves:
        here, there = rows.get(at), rows.get(to)
        if here is None or here[0] != job:
            continue
        declared = here[-1]
        if there is not None:
            if declared is None and there[:-1] == here[:-1]:
                declared = there[-1]
            forget = f"DELETE FROM reconciler_revisions {is_at}"
            transaction.execute(forget, scope_id=scope_id, **to._asdict())
        rename = "UPDATE reconciler_revisions SET key = :to_key, number = :to_number, declared = :declared"
        values = {"to_key": to.key, "to_number": to.number, "declared": _written(declared), "job": job}
        transaction.execute(f"{rename} {is_at} AND job = :job", scope_id=scope_id, **at._asdict(), **values)


def _portions(things: Iterable[str]) -> Iterator[list[str]]:
    """Split unique keys or digests into batches for one statement."""
    every = sorted(set(things))
    return (every[start : start + _AT_ONCE] for start in range(0, len(every), _AT_ONCE))
