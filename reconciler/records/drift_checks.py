"""The drift that stands, and the checks that saw it come and go."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from itertools import count
from typing import Any, NamedTuple

from pydantic import ValidationError
from sqlalchemy import (
    ColumnElement,
    Connection,
    Row,
    bindparam,
    case,
    delete,
    exists,
    insert,
    select,
    update,
)

from reconciler.core.record import RunKind
from reconciler.decide.drift_check import (
    Acceptance,
    CheckRecord,
    Drift,
    DriftChange,
    DriftEvent,
    DriftId,
    LastCheck,
    StandingDrift,
)
from reconciler.decide.journal import Run, RunEnd
from reconciler.records.cells import damaged
from reconciler.records.database import Database
from reconciler.records.runs import insert_run
from reconciler.records.schema import DRIFT, OUTCOMES, RUNS, SCOPES
from reconciler.records.serialization import Texts, read_document

#: So many checks stay that saw nothing come, change or go; those that did stay until somebody prunes them.
KEPT_CHECKS = 100
#: No key and no id of a job is longer; an index takes no text of any length.
_LONGEST_ID = 200
_ACCEPTED = ("accepted_at_s", "accepted_by", "accept_reason")


def read_last_check(connection: Connection, scope_id: int) -> LastCheck:
    """Read the drift that stands.

    Raises:
        Damaged: a row holds what no check wrote.
    """
    at_s = connection.execute(select(SCOPES.c.compared_at_s).where(SCOPES.c.id == scope_id)).scalar()
    rows = connection.execute(
        select(DRIFT).where(DRIFT.c.scope_id == scope_id).order_by(DRIFT.c.key, DRIFT.c["class"], DRIFT.c.job)
    )
    return LastCheck(at_s, tuple(map(read_standing, rows)))


def read_standing(row: Row[Any]) -> StandingDrift:
    """Read one drift.

    Raises:
        Damaged: it is not as it was written.
    """
    try:
        entry = Drift.model_validate(read_document(row.entry, "a drift"))
    except ValidationError:
        raise damaged("a drift differs from what was written") from None
    if (entry.key, entry.class_.value) != (row.key, row._mapping["class"]):
        raise damaged("a drift is written down under another key or class")
    acceptance = None
    if row.accepted_at_s is not None:
        acceptance = Acceptance(row.accepted_at_s, row.accepted_by, row.accept_reason)
    return StandingDrift(entry, row.content, row.since_s, row.reported_at_s, row.is_hidden, acceptance)


class DriftChecks(NamedTuple):
    """Writes checks of one scope down, in a transaction of the caller's."""

    database: Database
    texts: Texts
    connection: Connection
    scope_id: int

    def write(self, run: Run, ended: RunEnd, check: CheckRecord) -> None:
        """Write down a check, and let the oldest of those go that saw nothing happen."""
        self._wait_for_others(check.compared_at_s)
        run_id = insert_run(self.connection, self.scope_id, run, self.texts, ended)
        self._write_events(run_id, run.kind, check.events)
        if check.gone:
            gone = [self._place(one, "at_") for one in sorted(check.gone)]
            self.connection.execute(delete(DRIFT).where(_at()), gone)
        if check.standing:
            rows = {one.id: self._row(one) for one in check.standing}
            self.connection.execute(_upsert(self.database), [rows[place] for place in sorted(rows)])
        if run.kind is RunKind.DRIFT and not check.events:
            self.connection.execute(_forget_old(self.scope_id))

    def accept(
        self, run: Run, ended: RunEnd, drift: Collection[DriftId], acceptance: Acceptance | None
    ) -> int:
        """Mark drifts that stand as known, or take that back; return how many were not so before."""
        self._wait_for_others(None)
        standing = {one.id: one for one in read_last_check(self.connection, self.scope_id).standing}
        is_new = acceptance is not None
        marked = [
            one
            for one in (standing.get(place) for place in sorted(drift))
            if one is not None and (one.acceptance is None) is is_new
        ]
        values: dict[str, Any] = {"accepted_at_s": None, "accepted_by": "", "accept_reason": ""}
        if acceptance is not None:
            text = self.texts.text
            values = {
                "accepted_at_s": acceptance.at_s,
                "accepted_by": text(acceptance.who),
                "accept_reason": text(acceptance.reason),
                # Where it changes, or is accepted no more, it counts as seen for the first time.
                "is_hidden": True,
            }
        if marked:
            places = [self._place(one.id, "at_") for one in marked]
            self.connection.execute(update(DRIFT).where(_at()).values(**values), places)
        change = DriftChange.ACCEPTED if is_new else DriftChange.REMOVED
        reason = acceptance.reason if acceptance else "no longer accepted"
        run_id = insert_run(self.connection, self.scope_id, run, self.texts, ended)
        self._write_events(run_id, run.kind, [DriftEvent(change, one.entry, reason) for one in marked])
        return len(marked)

    def mark_reported(self, drift: Collection[DriftId], at_s: float) -> None:
        """Write down that drifts which stand were reported."""
        self._wait_for_others(None)
        places = [self._place(one, "at_") for one in sorted(drift)]
        if places:
            self.connection.execute(update(DRIFT).where(_at()).values(reported_at_s=at_s), places)

    def _wait_for_others(self, compared_at_s: float | None) -> None:
        """Change the row of the scope first: whoever else writes a check of it waits for us then."""
        at_s = SCOPES.c.compared_at_s if compared_at_s is None else compared_at_s
        self.connection.execute(update(SCOPES).where(SCOPES.c.id == self.scope_id).values(compared_at_s=at_s))

    def _write_events(self, run_id: int, kind: RunKind, events: Iterable[DriftEvent]) -> None:
        positions = count(1)
        rows = [
            {
                "run_id": run_id,
                "position": next(positions),
                "key": self.texts.text(event.entry.key),
                "action": kind.value,
                "reason": event.entry.class_.value,
                "status": event.change.value,
                "detail": self.texts.text(event.detail or event.entry.detail),
                "job": None if event.entry.job is None else self.texts.text(event.entry.job),
                "code": "",
            }
            for event in events
        ]
        if rows:
            self.connection.execute(insert(OUTCOMES), rows)

    def _row(self, one: StandingDrift) -> dict[str, Any]:
        fields = {name for name, field in Drift.model_fields.items() if not field.exclude}
        entry = one.entry.model_dump(mode="json", by_alias=True, include=fields)
        return {
            **self._place(one.id),
            "entry": self.texts.document(entry),
            "content": self.texts.text(one.content),
            "since_s": one.since_s,
            "reported_at_s": one.reported_at_s,
            "is_hidden": one.is_hidden,
        }

    def _place(self, one: DriftId, prefix: str = "") -> dict[str, Any]:
        key, class_, job = (self.texts.text(part)[:_LONGEST_ID] for part in one)
        place = {"scope_id": self.scope_id, "key": key, "class": class_, "job": job}
        return {f"{prefix}{name}": value for name, value in place.items()}


def _at() -> ColumnElement[bool]:
    return (
        (DRIFT.c.scope_id == bindparam("at_scope_id"))
        & (DRIFT.c.key == bindparam("at_key"))
        & (DRIFT.c["class"] == bindparam("at_class"))
        & (DRIFT.c.job == bindparam("at_job"))
    )


def _upsert(database: Database) -> Any:
    """Write a drift down; what somebody accepted meanwhile stays so, unless it is another one by now."""
    old = DRIFT.c

    def changes(new: Any) -> Mapping[str, ColumnElement[Any]]:
        is_same = old.content == new.content
        accepted = {name: case((is_same, old[name]), else_=new[name]) for name in _ACCEPTED}
        seen = ("entry", "since_s", "reported_at_s", "is_hidden", "content")
        return {**accepted, **{name: new[name] for name in seen}}

    return database.dialect.upsert(DRIFT, changes)


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
