"""The journal of one run: a line before each call, and what became of it."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from enum import Enum, auto
from itertools import count
from typing import Any

from sqlalchemy import ColumnElement, Connection, Executable, bindparam, case, func, insert, update

from reconciler.core.identity import parse_description
from reconciler.core.record import Call, Declared, RecordsUnavailable
from reconciler.decide.journal import RunEnd, Step, StepEnd
from reconciler.decide.outcome import Outcome, Status
from reconciler.decide.plan import After, Before, PlannedAction, Reason
from reconciler.records.database import Database
from reconciler.records.group_commit import GroupCommit, PendingWrite
from reconciler.records.history import declared_now, move, write_order
from reconciler.records.locks.lock import Lease
from reconciler.records.schema import LINES, OUTCOMES, REVISIONS, RUNS
from reconciler.records.serialization import Texts, storable_text


class Move(Enum):
    """What is done to a table, in the order in which one transaction does it."""

    BEFORE = auto()
    AFTER = auto()
    STOPPED = auto()
    RELEASED = auto()
    RENAMED = auto()
    REVISION = auto()
    OUTCOME = auto()
    END = auto()


class Rows(PendingWrite):
    """The rows that one call of the journal writes. A fenced one is refused if the lock is not ours."""

    def __init__(self, *rows: tuple[Move, dict[str, Any]], is_fenced: bool = False) -> None:
        super().__init__()
        self.rows = rows
        self.is_fenced = is_fenced


class StoredJournal:
    """What `decide.journal.Journal` asks for.

    `lease` tells how this process holds the lock just now, None if it does not. A run that began under the
    lock writes nothing that a call waits for without it; it may let the lock go, and take it again.
    """

    def __init__(
        self,
        database: Database,
        texts: Texts,
        run_id: int,
        scope_id: int,
        lease: Callable[[], Lease | None],
        on_end: Callable[[], None],
        *,
        marks_stopped: bool = True,
    ) -> None:
        self._database, self._texts = database, texts
        self._run_id, self._scope_id, self._lease = run_id, scope_id, lease
        self._began_under, self._on_end, self._marks_stopped = lease(), on_end, marks_stopped
        self._problem: str | None = None
        self._lines, self._positions = count(1), count(1)
        self._told: set[tuple[object, ...]] = set()
        self._terminations: dict[int, str] = {}
        self._releases: dict[int, str] = {}
        self._statements = _statements(database)
        self._group_commit: GroupCommit[Rows] = GroupCommit(self._write)

    @property
    def problem(self) -> str | None:
        """Why lines that no call waits for could not be written; None if all were."""
        return self._problem

    def before(self, step: Step) -> int:
        """Write down what is about to be asked; return the line's number."""
        line, action, about = next(self._lines), step.action, _about(step)
        old = action.before.id if action.before and step.call is not Call.CREATE else None
        at_s = self._database.clock.now()
        row = {
            "run_id": self._run_id,
            "line": line,
            "key": action.key,
            "number": about.revision if about else None,
            "digest": about.digest if about else "",
            "action": action.action.value,
            "call": step.call.value,
            "name": storable_text(about.name) if about else "",
            "job": _maybe(step.job or old),
            "at_s": at_s,
            "declared": self._texts.declared(step.declared),
        }
        rows = [(Move.BEFORE, row)]
        if action.reason is Reason.RELEASED and (released := _maybe(step.job or old)) is not None:
            # Before the call: a job without marker that the history calls ours would get it back.
            rows.append((Move.RELEASED, self._released(released, at_s)))
            self._releases[line] = released
        self._group_commit.commit(Rows(*rows, is_fenced=True))
        if (
            self._marks_stopped
            and step.call is Call.TERMINATE
            and (job := _maybe(step.job or old)) is not None
        ):
            self._terminations[line] = job
        return line

    def after(self, line: int, end: StepEnd) -> None:
        """Write down how it went."""
        row = {
            "of_run": self._run_id,
            "of_line": line,
            "of_job": _maybe(end.job),
            "ended_at_s": self._database.clock.now(),
            "ok": end.ok,
            "is_certain": end.is_certain,
            "code": self._texts.text(end.code),
            "message": self._texts.text(end.message),
            "request_id": self._texts.text(end.request_id),
        }
        rows: list[tuple[Move, dict[str, Any]]] = [(Move.AFTER, row)]
        job = self._terminations.pop(line, None)
        if end.ok and job is not None:
            rows.append((Move.STOPPED, {"of_scope": self._scope_id, "of_job": job}))
        kept = self._releases.pop(line, None)
        if kept is not None and not end.ok and end.is_certain:
            rows.append((Move.RELEASED, self._released(kept, None)))
        self._hand_in(Rows(*rows))

    def _released(self, job: str, at_s: float | None) -> dict[str, Any]:
        return {"of_scope": self._scope_id, "of_job": job, "now_released_at_s": at_s}

    def outcome(self, outcome: Outcome, declared: Declared | None) -> None:
        """Write down what became of an action, and the revision that it made or changed."""
        rows = [(Move.OUTCOME, self._outcome(outcome))]
        action = outcome.action
        if outcome.status is Status.DONE and action.formerly is not None and action.before is not None:
            rows.append((Move.RENAMED, self._renamed(action.key, action.formerly, action.before)))
        if outcome.status is Status.DONE and action.after is not None and outcome.job is not None:
            revision = {
                "scope_id": self._scope_id,
                "key": action.key,
                "number": action.after.revision,
                "name": storable_text(action.after.name),
                "job": storable_text(outcome.job),
                "digest": action.after.digest,
                "declared": self._texts.declared(declared),
                "schedule": _schedule_written(action),
            }
            rows.append((Move.REVISION, revision))
        self._hand_in(Rows(*rows))

    def _renamed(self, key: str, formerly: str, job: Before) -> dict[str, Any]:
        """The job's marker names another key now: its past goes along."""
        at = {"at_key": formerly, "at_number": job.revision, "of_job": storable_text(job.id)}
        return {**at, "to_key": key, "to_number": job.revision}

    def end(self, ended: RunEnd) -> None:
        """Close the run; outcomes that were not told one by one are written now."""
        untold = [outcome for outcome in ended.outcomes if _identity(outcome) not in self._told]
        end = {
            "of_run": self._run_id,
            "ended_at_s": ended.at_s,
            "result": ended.result,
            "summary": self._texts.document(ended.summary),
        }
        self._hand_in(Rows(*((Move.OUTCOME, self._outcome(one)) for one in untold), (Move.END, end)))
        self._on_end()

    def _outcome(self, outcome: Outcome) -> dict[str, Any]:
        self._told.add(_identity(outcome))
        return {
            "run_id": self._run_id,
            "position": next(self._positions),
            "key": outcome.action.key,
            "action": outcome.action.action.value,
            "reason": outcome.action.reason.value,
            "status": outcome.status.value,
            "detail": self._texts.text(outcome.detail or outcome.message),
            "job": _maybe(outcome.job),
            "code": self._texts.text(outcome.code),
        }

    def _hand_in(self, rows: Rows) -> None:
        """Write what no call waits for: the work goes on if the store does not."""
        try:
            self._group_commit.commit(rows)
        except RecordsUnavailable as unavailable:
            self._problem = self._problem or str(unavailable)

    def _write(self, entries: Sequence[Rows]) -> None:
        rows = defaultdict[Move, list[dict[str, Any]]](list)
        with self._database.writing() as connection:
            self._refuse_fenced(connection, [entry for entry in entries if entry.is_fenced])
            for entry in entries:
                for kind, row in entry.rows if entry.refusal is None else ():
                    rows[kind].append(row)
            move(connection, self._scope_id, rows[Move.RENAMED])
            for kind, statement in self._statements.items():
                if rows[kind]:
                    connection.execute(statement, sorted(rows[kind], key=write_order))

    def _refuse_fenced(self, connection: Connection, fenced: Sequence[Rows]) -> None:
        """Refuse what is to be written under the lock only, if the lock is lost."""
        lease = self._lease() or self._began_under
        if fenced and lease and not lease.is_held(connection):
            for entry in fenced:
                entry.refusal = lease.lost()


def _maybe(text: str | None) -> str | None:
    return None if text is None else storable_text(text)


def _schedule_written(action: PlannedAction) -> str:
    """What the marker says of the schedule that an action writes."""
    marker = parse_description(str((action.desired or {}).get("description", ""))).marker
    return "" if marker is None or marker.schedule is None else str(marker.schedule)


def _about(step: Step) -> Before | After | None:
    """The revision that a call is about: a replace first marks and ends the job that is there."""
    action = step.action
    is_about_new = step.call is Call.CREATE or not action.traits.stops_a_job
    return (action.after or action.before) if is_about_new else (action.before or action.after)


def _identity(outcome: Outcome) -> tuple[object, ...]:
    action = outcome.action
    before, after = action.before, action.after
    return action.key, action.action, before and before.id, after and after.revision


def _statements(database: Database) -> Mapping[Move, Executable]:
    return {
        Move.BEFORE: insert(LINES),
        Move.AFTER: update(LINES)
        .where(LINES.c.run_id == bindparam("of_run"), LINES.c.line == bindparam("of_line"))
        .values(
            job=func.coalesce(bindparam("of_job", type_=LINES.c.job.type), LINES.c.job),
            **{
                name: bindparam(name, type_=LINES.c[name].type)
                for name in ("ended_at_s", "ok", "is_certain", "code", "message", "request_id")
            },
        ),
        Move.STOPPED: update(REVISIONS)
        .where(REVISIONS.c.scope_id == bindparam("of_scope"), REVISIONS.c.job == bindparam("of_job"))
        .values(stopped=True),
        Move.RELEASED: update(REVISIONS)
        .where(REVISIONS.c.scope_id == bindparam("of_scope"), REVISIONS.c.job == bindparam("of_job"))
        .values(released_at_s=bindparam("now_released_at_s", type_=REVISIONS.c.released_at_s.type)),
        Move.REVISION: _made_or_changed(database),
        Move.OUTCOME: insert(OUTCOMES),
        Move.END: update(RUNS)
        .where(RUNS.c.id == bindparam("of_run"))
        .values(
            **{name: bindparam(name, type_=RUNS.c[name].type) for name in ("ended_at_s", "result", "summary")}
        ),
    }


def _made_or_changed(database: Database) -> Executable:
    """Write the revision of an action. What was seen of it stays, unless it is another job by now."""
    old = REVISIONS.c
    seen = ("phase", "phases", "created_at_s", "started_at_s", "duration_s", "seen_at_s", "stopped")

    def changes(new: Any) -> dict[str, ColumnElement[Any]]:
        return {
            "declared": declared_now(new),
            **{name: case((old.job == new.job, old[name]), else_=new[name]) for name in seen},
            **{name: new[name] for name in ("name", "job", "digest", "released_at_s", "schedule")},
        }

    return database.dialect.upsert(REVISIONS, changes)
