"""An open record store: journal, lock, history, and the drift that stands by the checks that saw it."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, Any

from pydantic import ValidationError
from sqlalchemy import (
    ColumnElement,
    Connection,
    and_,
    delete,
    exists,
    insert,
    select,
    update,
)

from reconciler.core.past import RunKind
from reconciler.core.record import Scope
from reconciler.decide.outcome import Run, RunEnd
from reconciler.records.database import HasNow, unavailable
from reconciler.records.dialects import dialect_of
from reconciler.records.journal import Journals
from reconciler.records.process_lock import ProcessLocks
from reconciler.records.schema import DRIFT, METADATA, OUTCOMES, RUNS, SCOPES, Damaged

if TYPE_CHECKING:
    from reconciler.decide.drift_check import (
        CheckRecord,
        DriftEvent,
        DriftId,
        LastCheck,
        StandingDrift,
    )

#: So many checks stay that saw nothing come, change or go; those that did stay.
KEPT_CHECKS = 100
#: No key and no id of a job is longer; an index takes no text of any length.
_LONGEST_ID = 200


def open_records(url: str, *, clock: HasNow, redact: Callable[[str], str], create: bool) -> Records | None:
    """Open the store at `sqlite:///absolute/path` or `postgresql://user@host/database`.

    With `create` it is made where there is none; without, the answer is None where there is none, or
    nothing in it. Leases go by the clock of the PostgreSQL server, and by `clock` in a SQLite file.
    `redact` is asked about every text before it is written.

    Raises:
        WrongUsage: the URL is not one of a store.
        RecordsUnavailable: the store cannot be reached, read or written, or needs a newer reconciler.
    """
    dialect = dialect_of(url)
    if not dialect.has_store():
        if not create:
            return None
        # The locks of a store that was moved away: beside an empty file they would mean that it was cut.
        ProcessLocks(dialect.file).remove_dead()
        try:
            dialect.make_store()
        except OSError as error:
            raise unavailable(error, dialect, redact) from None
    with ExitStack() as unless_open:
        store = Records(dialect, clock, redact)
        unless_open.callback(store.close)
        if not store.prepare(create=create):
            return None
        unless_open.pop_all()
    return store


class Records(Journals):
    """A store as it is used. Any method may raise `RecordsUnavailable`."""

    def check(self) -> None:
        """Read the whole store, of all stacks: `RecordsUnavailable` says what in it is damaged."""
        with self.reading() as connection:
            self.dialect.check(connection, is_thorough=True)
            for table in METADATA.sorted_tables:
                connection.execute(select(table)).all()

    def last_check(self, scope: Scope) -> LastCheck:
        """The drift that stands by earlier checks, and when the last one could compare."""
        from reconciler.decide.drift_check import NO_CHECK, LastCheck  # a plan needs none of it

        scope_id = self.find_scope(scope)
        if scope_id is None:
            return NO_CHECK
        with self.reading() as connection:
            at_s = connection.execute(select(SCOPES.c.compared_at_s).where(SCOPES.c.id == scope_id)).scalar()
            return LastCheck(at_s, tuple(_read_standing(connection, scope_id)))

    def record_check(self, run: Run, ended: RunEnd, check: CheckRecord) -> None:
        """Write a check that has ended: the run, its events, and the drift that stands by now.

        A drift of another check that this one says nothing of stays as it is. Of the checks without an
        event only the newest stay.
        """
        with self._changing(run.scope, check.compared_at_s) as (connection, scope_id):
            run_id = self.insert_run(connection, scope_id, run, ended)
            self._write_events(connection, run_id, run, check.events)
            for one in sorted(check.gone):
                connection.execute(delete(DRIFT).where(self._is(scope_id, one)))
            if rows := {one.id: self._row(scope_id, one) for one in check.standing}:
                upsert = self.dialect.upsert(DRIFT, _changes)
                connection.execute(upsert, [rows[place] for place in sorted(rows)])
            if run.kind is RunKind.DRIFT and not check.events:
                connection.execute(_forget_old(scope_id))

    def mark_reported(self, scope: Scope, drift: Collection[DriftId], at_s: float) -> None:
        """Write that drifts which stand were reported at a time: somebody was notified of them."""
        with self._changing(scope) as (connection, scope_id):
            for one in sorted(drift):
                connection.execute(update(DRIFT).where(self._is(scope_id, one)).values(reported_at_s=at_s))

    @contextmanager
    def _changing(self, scope: Scope, compared_at_s: float | None = None) -> Iterator[tuple[Connection, int]]:
        """A transaction that changes the row of the scope first: other checks of it wait for its end."""
        scope_id = self.scope_id(scope)
        at_s = SCOPES.c.compared_at_s if compared_at_s is None else compared_at_s
        with self.writing() as connection:
            connection.execute(update(SCOPES).where(SCOPES.c.id == scope_id).values(compared_at_s=at_s))
            yield connection, scope_id

    def _write_events(
        self, connection: Connection, run_id: int, run: Run, events: Iterable[DriftEvent]
    ) -> None:
        rows = [
            {
                "run_id": run_id,
                "position": position,
                "key": self.text(event.entry.key),
                "action": run.kind.value,
                "reason": event.entry.class_.value,
                "status": event.change.value,
                "detail": self.text(event.entry.detail),
                "job": None if event.entry.job is None else self.text(event.entry.job),
                "code": "",
            }
            for position, event in enumerate(events, start=1)
        ]
        if rows:
            connection.execute(insert(OUTCOMES), rows)

    def _row(self, scope_id: int, one: StandingDrift) -> dict[str, Any]:
        from reconciler.decide.drift_check import Drift

        # Of a drift that is ignored its own fields only: the next check says whether it is.
        fields = {name for name, field in Drift.model_fields.items() if not field.exclude}
        entry = one.entry.model_dump(mode="json", by_alias=True, include=fields)
        return {
            **self._place(scope_id, one.id),
            "entry": self.document(entry),
            "content": self.text(one.content),
            "since_s": one.since_s,
            "reported_at_s": one.reported_at_s,
            "is_hidden": one.is_hidden,
        }

    def _place(self, scope_id: int, one: DriftId) -> dict[str, Any]:
        key, class_, job = (self.text(part)[:_LONGEST_ID] for part in one)
        return {"scope_id": scope_id, "key": key, "class": class_, "job": job}

    def _is(self, scope_id: int, one: DriftId) -> ColumnElement[bool]:
        return and_(*(DRIFT.c[name] == value for name, value in self._place(scope_id, one).items()))


def _read_standing(connection: Connection, scope_id: int) -> list[StandingDrift]:
    from reconciler.decide.drift_check import Drift, StandingDrift

    look = select(DRIFT).where(DRIFT.c.scope_id == scope_id)
    found = []
    for row in connection.execute(look.order_by(DRIFT.c.key, DRIFT.c["class"], DRIFT.c.job)):
        try:
            entry = Drift.model_validate(row.entry)
        except ValidationError:
            raise Damaged("a drift differs from what was written") from None
        found.append(StandingDrift(entry, row.content, row.since_s, row.reported_at_s, row.is_hidden))
    return found


def _changes(new: Any) -> Mapping[str, ColumnElement[Any]]:
    return {column.name: new[column.name] for column in DRIFT.c if not column.primary_key}


def _forget_old(scope_id: int) -> Any:
    """Delete the checks in which nothing happened, but the newest of them."""
    quiet = (
        (RUNS.c.scope_id == scope_id)
        & (RUNS.c.kind == RunKind.DRIFT.value)
        & ~exists().where(OUTCOMES.c.run_id == RUNS.c.id)
    )
    newest = select(RUNS.c.id).where(quiet).order_by(RUNS.c.at_s.desc(), RUNS.c.id.desc()).limit(KEPT_CHECKS)
    kept = newest.subquery()
    return delete(RUNS).where(quiet, RUNS.c.id.not_in(select(kept.c.id)))
