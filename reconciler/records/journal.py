"""The journal of a run: a line before each call, and its outcome.

Source: docs/concepts/crash-safety.md, "Apply"; docs/operations/records.md.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection
from itertools import count
from typing import Any

from reconciler.core.identity import parse_description
from reconciler.core.past import Call, PastAction, RunKind
from reconciler.core.record import Declared, RecordsUnavailable, RevisionId
from reconciler.decide.outcome import Journal, Outcome, Run, RunEnd, Status, Step, StepEnd
from reconciler.decide.plan import After, Before, Reason
from reconciler.records.database import storable
from reconciler.records.dialects import Transaction
from reconciler.records.history import History, move, upsert_revisions

_END = (
    "UPDATE reconciler_runs SET ended_at_s = :ended_at_s, result = :result, summary = :summary"
    " WHERE id = :run_id"
)
_OF_JOB = "WHERE scope_id = :scope_id AND job = :job"
_STOPPED = f"UPDATE reconciler_revisions SET stopped = TRUE {_OF_JOB}"
_RELEASED = f"UPDATE reconciler_revisions SET released_at_s = :at_s {_OF_JOB}"
#: Columns that are kept, unless the revision is another job now.
_SEEN = {
    name: f"CASE WHEN reconciler_revisions.job = excluded.job"
    f" THEN reconciler_revisions.{name} ELSE excluded.{name} END"
    for name in ("phase", "phases", "created_at_s", "started_at_s", "duration_s", "seen_at_s", "stopped")
}

Warn = Callable[[str], None]


class _Entry:
    """The statements that a thread has to write, and whether they need the lock."""

    def __init__(self, execute: Callable[[Transaction], object], *, is_fenced: bool = False) -> None:
        self.execute, self.is_fenced = execute, is_fenced
        #: Entries that this thread writes in one transaction, its own first; empty if another thread does.
        self.batch: list[_Entry] = []
        self.error: BaseException | None = None
        #: Released when the entry is written, or when this thread has to write a batch.
        self.turn = threading.Lock()
        self.turn.acquire()


class StoredJournal(Journal):
    """The journal of one run in a store.

    A run that began with the lock of its scope needs it for every line before a call; it may release the lock
    and take it again. Entries that arrive during a write share the next transaction.
    """

    def __init__(self, store: History, run: Run, run_id: int, scope_id: int, warn: Warn | None) -> None:
        self._store, self._run, self._run_id, self._scope_id, self._warn = store, run, run_id, scope_id, warn
        self._began_under = store.held.get(run.scope)
        self._lines, self._positions = count(1), count(1)
        self._open: dict[int, Step] = {}
        self._recorded: set[tuple[object, ...]] = set()
        self._codes: set[str] = set()
        self._has_warned = False
        self._guard = threading.Lock()
        self._waiting: list[_Entry] = []
        self._is_writing = False

    def before(self, step: Step) -> int:
        """Write a call that is about to be sent. Returns the number of the line."""
        store, action, about = self._store, step.action, _about(step)
        line, at_s = next(self._lines), store.clock.now()
        row = {
            "run_id": self._run_id,
            "line": line,
            "key": action.key,
            "number": about.revision if about else None,
            "digest": about.digest if about else "",
            "action": action.action.value,
            "call": step.call.value,
            "name": storable(about.name) if about else "",
            "job": _job_of(step),
            "at_s": at_s,
            "declared": store.declared(step.declared),
        }
        code = action.code if step.declared is not None else None

        def execute(transaction: Transaction) -> None:
            transaction.insert("reconciler_lines", [row])
            if code is not None and code.digest not in self._codes:
                content = store.document({"name": code.name, "files": list(map(list, code.listed))})
                added = {"digest": code.digest, "content": content}
                transaction.insert("reconciler_code", [added], "ON CONFLICT DO NOTHING")
            if action.reason is Reason.RELEASED:
                # Before the call, because a recorded job without marker would get its marker back.
                transaction.execute(_RELEASED, at_s=at_s, **self._of_job(step))

        try:
            self._commit(_Entry(execute, is_fenced=True))
            if code is not None:
                self._codes.add(code.digest)
        except RecordsUnavailable as unavailable:
            if self._warn is None:
                raise
            if not self._has_warned:
                self._has_warned = True
                self._warn(f"{unavailable}; continuing without a journal")
        self._open[line] = step
        return line

    def after(self, line: int, end: StepEnd) -> None:
        store, step = self._store, self._open.pop(line, None)
        ended = {
            "ended_at_s": store.clock.now(),
            "ok": end.ok,
            "is_certain": end.is_certain,
            "code": store.text(end.code),
            "message": store.text(end.message),
            "request_id": store.text(end.request_id),
        }
        if end.job is not None:
            ended["job"] = storable(end.job)
        sets = ", ".join(f"{name} = :{name}" for name in ended)
        of_line = f"UPDATE reconciler_lines SET {sets} WHERE run_id = :run_id AND line = :line"

        def change(transaction: Transaction) -> None:
            transaction.execute(of_line, run_id=self._run_id, line=line, **ended)
            if step is None:
                return
            # For its stack, a job terminated by hand was terminated outside.
            if step.call is Call.TERMINATE and end.ok and self._run.kind is not RunKind.TERMINATE:
                transaction.execute(_STOPPED, **self._of_job(step))
            if step.action.reason is Reason.RELEASED and not end.ok and end.is_certain:
                transaction.execute(_RELEASED, at_s=None, **self._of_job(step))

        self._write(change)

    def outcome(self, outcome: Outcome, declared: Declared | None) -> None:
        """Write the outcome of an action, and the revision that it created or changed."""
        action, before, after = outcome.action, outcome.action.before, outcome.action.after
        is_done = outcome.status is Status.DONE

        def change(transaction: Transaction) -> None:
            if is_done and action.formerly is not None and before is not None:
                # The job was renamed: move its history.
                at, to = (RevisionId(key, before.revision) for key in (action.formerly, action.key))
                move(transaction, self._scope_id, [(storable(before.id), at, to)])
            if is_done and after is not None and outcome.job is not None:
                marker = parse_description(str((action.desired or {}).get("description", ""))).marker
                revision = {
                    "scope_id": self._scope_id,
                    "key": action.key,
                    "number": after.revision,
                    "name": storable(after.name),
                    "job": storable(outcome.job),
                    "digest": after.digest,
                    "declared": self._store.declared(declared),
                    "schedule": "" if marker is None else str(marker.schedule or ""),
                    "released_at_s": None,
                }
                upsert_revisions(transaction, [revision], **_SEEN)

        self._write(change, [outcome])

    def end(self, ended: RunEnd) -> None:
        """Close the run, and write outcomes that have not been written yet."""
        row = {"run_id": self._run_id, **self._store.end_of_run(ended)}
        left = [one for one in ended.outcomes if _identity(one) not in self._recorded]
        self._write(lambda transaction: transaction.execute(_END, **row), left)

    def _outcome(self, outcome: Outcome) -> dict[str, Any]:
        self._recorded.add(_identity(outcome))
        action, text = outcome.action, self._store.text
        job = None if outcome.job is None else storable(outcome.job)
        what = (action.key, action.action.value, action.reason.value, outcome.status.value)
        row = PastAction(*what, text(outcome.detail or outcome.message), job, text(outcome.code))
        return {"run_id": self._run_id, "position": next(self._positions), **row._asdict()}

    def _of_job(self, step: Step) -> dict[str, Any]:
        return {"scope_id": self._scope_id, "job": _job_of(step)}

    def _write(self, change: Callable[[Transaction], object], outcomes: Collection[Outcome] = ()) -> None:
        """Write outcomes and other entries that no call depends on. Failures are tolerated."""
        rows = [self._outcome(one) for one in outcomes]

        def execute(transaction: Transaction) -> None:
            change(transaction)
            transaction.insert("reconciler_outcomes", rows)

        try:
            self._commit(_Entry(execute))
        except RecordsUnavailable as unavailable:
            self.problem = self.problem or str(unavailable)

    def _commit(self, entry: _Entry) -> None:
        """Wait until an entry is on disk. One thread at a time writes the entries of all waiting threads."""
        with self._guard:
            self._waiting.append(entry)
            if not self._is_writing:
                self._hand_over()
        entry.turn.acquire()
        # Breaks a reference cycle: the garbage collector is off.
        batch, entry.batch = entry.batch, []
        if batch:
            self._write_batch(batch)
            with self._guard:
                self._hand_over()
            for other in batch[1:]:
                other.turn.release()
        if entry.error is not None:
            raise entry.error

    def _hand_over(self) -> None:
        """Let the first waiting thread write for all."""
        batch, self._waiting = self._waiting, []
        self._is_writing = bool(batch)
        if batch:
            batch[0].batch = batch
            batch[0].turn.release()

    def _write_batch(self, batch: list[_Entry]) -> None:
        """Write entries in one transaction, except those that need the lock if it is lost."""
        try:
            with self._store.writing() as transaction:
                lock = self._store.held.get(self._run.scope) or self._began_under
                lost = None
                if lock is not None and any(entry.is_fenced for entry in batch):
                    lost = None if lock.is_held(transaction) else lock.lost()
                for entry in batch:
                    if lost is not None and entry.is_fenced:
                        entry.error = lost
                    else:
                        entry.execute(transaction)
        except BaseException as error:
            if len(batch) > 1 and not isinstance(error, RecordsUnavailable):
                for entry in batch:  # an error of one entry must not fail the others
                    entry.error = None
                    self._write_batch([entry])
                return
            for entry in batch:
                entry.error = entry.error or error


def _job_of(step: Step) -> str | None:
    """The job of a call, if any."""
    before = step.action.before
    job = step.job or (before.id if before and step.call is not Call.CREATE else None)
    return None if job is None else storable(job)


def _about(step: Step) -> Before | After | None:
    """The revision of a call: a replace first marks and terminates the existing job."""
    action = step.action
    is_about_new = step.call is Call.CREATE or not action.traits.stops_a_job
    return (action.after or action.before) if is_about_new else (action.before or action.after)


def _identity(outcome: Outcome) -> tuple[object, ...]:
    action = outcome.action
    before, after = action.before, action.after
    return action.key, action.action, before and before.id, after and after.revision
