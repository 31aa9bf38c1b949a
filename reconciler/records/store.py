"""An open record store: journal, lock, history and drift checks."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from pydantic import ValidationError

from reconciler.core.past import PastAction, RunKind
from reconciler.core.record import Scope
from reconciler.decide.outcome import Run, RunEnd
from reconciler.records.dialects import Transaction
from reconciler.records.history import History
from reconciler.records.journal import StoredJournal, Warn
from reconciler.records.schema import TABLES, Damaged, dump

if TYPE_CHECKING:
    from reconciler.decide.drift_check import CheckRecord, DriftEvent, DriftId, LastCheck, StandingDrift

#: Number of checks without events that are kept. Those with events always are.
KEPT_CHECKS = 100
#: Maximum length of keys and job ids, because the size of index entries is limited.
_LONGEST_ID = 200
_IS = "WHERE scope_id = :scope_id AND key = :key AND class = :class AND job = :job"
_QUIET = (
    "scope_id = :scope_id AND kind = :kind"
    " AND NOT EXISTS (SELECT 1 FROM reconciler_outcomes WHERE run_id = reconciler_runs.id)"
)
#: Deletes all but the newest checks without events.
_FORGET = (
    f"DELETE FROM reconciler_runs WHERE {_QUIET} AND id NOT IN"
    f" (SELECT id FROM reconciler_runs WHERE {_QUIET} ORDER BY at_s DESC, id DESC LIMIT :kept)"
)


class Records(History):
    """A record store. Any method may raise `RecordsUnavailable`."""

    def check(self) -> None:
        """Read the whole store, of all stacks, to find damage."""
        with self.reading() as transaction:
            self.dialect.check(transaction, is_thorough=True)
            for table, columns in TABLES.items():
                transaction.rows(f"SELECT {', '.join(columns)} FROM {table}")

    def begin(self, run: Run, warn: Warn | None = None) -> StoredJournal:
        """Open a run. Its journal is fenced by the scope's lock, if this process holds it.

        With `warn`, calls continue without a journal if the store becomes unavailable, after one warning.
        """
        scope_id = self.scope_id(run.scope)
        with self.writing() as transaction:
            run_id = self.insert_run(transaction, scope_id, run)
        return StoredJournal(self, run, run_id, scope_id, warn)

    def last_check(self, scope: Scope) -> LastCheck:
        """Return the lasting drift, and the time of the last check that compared."""
        from reconciler.decide.drift_check import NO_CHECK, LastCheck  # a plan needs none of it

        scope_id = self.find_scope(scope)
        if scope_id is None:
            return NO_CHECK
        with self.reading() as transaction:
            look = "SELECT compared_at_s FROM reconciler_scopes WHERE id = :scope_id"
            at_s = transaction.value(look, scope_id=scope_id)
            return LastCheck(at_s, tuple(_read_standing(transaction, scope_id)))

    def record_check(self, run: Run, ended: RunEnd, check: CheckRecord) -> None:
        """Record a finished check: the run, its events, and the lasting drift.

        Drift that the check did not judge is kept. Old checks without events are deleted.
        """
        with self._changing(run.scope, check.compared_at_s) as (transaction, scope_id):
            run_id = self.insert_run(transaction, scope_id, run, ended)
            events = [
                {"run_id": run_id, "position": position, **self._event(event)._asdict()}
                for position, event in enumerate(check.events, start=1)
            ]
            transaction.insert("reconciler_outcomes", events)
            for one in sorted(check.gone):
                transaction.execute(f"DELETE FROM reconciler_drift {_IS}", **self._place(scope_id, one))
            rows = {one.id: self._row(scope_id, one) for one in check.standing}
            key = ("scope_id", "key", "class", "job")
            transaction.upsert("reconciler_drift", key, [rows[place] for place in sorted(rows)])
            if not check.events:
                kind = RunKind.DRIFT.value
                transaction.execute(_FORGET, scope_id=scope_id, kind=kind, kept=KEPT_CHECKS)

    def mark_reported(
        self,
        scope: Scope,
        drift: Collection[DriftId],
        at_s: float,
        delivered: Mapping[DriftId, Mapping[str, float]],
    ) -> None:
        """Record when lasting drift was reported, and to which URLs other drift was `delivered`."""
        mark = f"UPDATE reconciler_drift SET reported_at_s = :at_s, delivered = '' {_IS}"
        note = f"UPDATE reconciler_drift SET delivered = :delivered {_IS}"
        with self._changing(scope) as (transaction, scope_id):
            for one in sorted(drift):
                transaction.execute(mark, at_s=at_s, **self._place(scope_id, one))
            for one, sent in sorted(delivered.items()):
                transaction.execute(note, delivered=dump(sent), **self._place(scope_id, one))

    @contextmanager
    def _changing(self, scope: Scope, at_s: float | None = None) -> Iterator[tuple[Transaction, int]]:
        """A transaction that updates the row of the scope first, so that other checks of it wait."""
        scope_id = self.scope_id(scope)
        change = "UPDATE reconciler_scopes SET compared_at_s = coalesce(:at_s, compared_at_s) WHERE id = :id"
        with self.writing() as transaction:
            transaction.execute(change, at_s=at_s, id=scope_id)
            yield transaction, scope_id

    def _event(self, event: DriftEvent) -> PastAction:
        key, class_, job = event.entry.key, event.entry.class_.value, event.entry.job
        what = (self.text(key), RunKind.DRIFT.value, class_, event.change.value)
        return PastAction(*what, self.text(event.entry.detail), None if job is None else self.text(job))

    def _row(self, scope_id: int, one: StandingDrift) -> dict[str, Any]:
        from reconciler.decide.drift_check import Drift

        # Without the fields of an ignore rule: the next check decides that again.
        fields = {name for name, field in Drift.model_fields.items() if not field.exclude}
        entry = one.entry.model_dump(mode="json", by_alias=True, include=fields)
        return {
            **self._place(scope_id, one.id),
            "entry": self.document(entry),
            "content": self.text(one.content),
            "since_s": one.since_s,
            "reported_at_s": one.reported_at_s,
            "is_hidden": one.is_hidden,
            "delivered": dump(dict(one.delivered)) if one.delivered else "",
        }

    def _place(self, scope_id: int, one: DriftId) -> dict[str, Any]:
        key, class_, job = (self.text(part)[:_LONGEST_ID] for part in one)
        return {"scope_id": scope_id, "key": key, "class": class_, "job": job}


def _read_standing(transaction: Transaction, scope_id: int) -> list[StandingDrift]:
    from reconciler.decide.drift_check import Drift, StandingDrift

    look = (
        "SELECT entry, content, since_s, reported_at_s, is_hidden, delivered FROM reconciler_drift"
        " WHERE scope_id = :scope_id ORDER BY key, class, job"
    )
    found = []
    for entry, *rest in transaction.rows(look, scope_id=scope_id):
        try:
            found.append(StandingDrift(Drift.model_validate(entry), *rest))
        except ValidationError:
            raise Damaged("a drift differs from what was written") from None
    return found


open_records = Records.connect
