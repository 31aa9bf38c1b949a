"""A stack whose records were kept by what the program does, and what its commands say of them."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import NamedTuple

from reconciler import reconcile
from reconciler.apply.executor import EventStream
from reconciler.core.record import RecordsUnavailable, RunKind
from reconciler.decide.history import HistoryReport, newest_revisions
from reconciler.decide.plan import Action, Plan
from reconciler.reconcile import Context
from reconciler.records.recording import Recording
from reconciler.records.store import Records
from reconciler.render import Content, View, render
from reconciler.render.commands import render_status
from reconciler.render.history import history_text
from reconciler.render.json import dump
from reconciler.rollout import Rollout
from tests.apply.service import PROJECT, Service, a_service
from tests.builders import a_job, a_stack

JOBS = tuple(a_job(key) for key in ("aged-out", "finished", "lost", "new", "runs"))
#: What a plan may make of each key, whatever the records say; a healthy one says the first of them.
MAY = {
    "aged-out": (Action.KEEP, Action.UNKNOWN, Action.BLOCKED),
    "finished": (Action.KEEP, Action.UNKNOWN, Action.BLOCKED),
    "lost": (Action.UPDATE, Action.UNKNOWN, Action.CONFLICT),
    "new": (Action.CREATE, Action.UNKNOWN),
    "runs": (Action.KEEP, Action.UNKNOWN),
}


class Cell(NamedTuple):
    """A column of a table, in each of its rows."""

    table: str
    column: str


class Told(NamedTuple):
    """What was said of damaged records: the actions of a plan, and each failure of the store."""

    actions: Mapping[str, Action]
    problem: str | None
    failures: tuple[RecordsUnavailable, ...]


@dataclass
class Scene:
    """The stack, its service, and what was in the file of its records when it was whole."""

    service: Service
    root: Path
    whole: bytes = b""
    warnings: list[str] = field(default_factory=list)

    @property
    def file(self) -> Path:
        return self.root / ".reconciler" / "records.sqlite3"

    @contextmanager
    def context(self, *, is_applied: bool = False) -> Iterator[Context]:
        recording = Recording(None, self.root, self.service.time, warn=self.warnings.append)
        context = self.service.context(a_stack(*JOBS))
        try:
            yield context._replace(recording=recording, is_applied=is_applied)
        finally:
            recording.close()

    def apply(self, *keys: str) -> None:
        """Apply some of the jobs, as the command does."""
        jobs = [job for job in JOBS if job.key in keys]
        with self.context(is_applied=True) as context:
            loaded = self.service.context(a_stack(*jobs, is_partial=True)).loaded
            context = context._replace(loaded=replace(loaded, declared={job.key: "" for job in JOBS}))
            with context.recording.lock(context.scope, lambda: None) as lock:
                plan = reconcile.plan(context)
                stream = EventStream(context.target.clock, self.service.events.append)
                Rollout(context, RunKind.APPLY, stream, self.service.stop, lock=lock).run(plan)

    def put(self, content: bytes) -> None:
        """Put a file in the place of the records. Only what the lock leaves lies beside it."""
        self.clear()
        self.file.write_bytes(content)

    def clear(self) -> None:
        """Take away what is in the place of the records, and beside them."""
        for left in self.file.parent.glob(f"{self.file.name}*"):
            if ".lock-" in left.name:
                continue
            if left.is_dir() and not left.is_symlink():
                left.rmdir()
            else:
                left.unlink()

    def cells(self) -> list[Cell]:
        """Every column of every table that holds something."""
        named = "SELECT name FROM sqlite_schema WHERE type = 'table' AND name LIKE 'reconciler%'"
        with closing(sqlite3.connect(self.file)) as connection:
            tables = [name for (name,) in connection.execute(named)]
            assert all(connection.execute(f"SELECT count(*) FROM {one}").fetchone()[0] for one in tables)
            columns = {one: connection.execute(f"PRAGMA table_info({one})").fetchall() for one in tables}
        return [Cell(one, row[1]) for one, rows in columns.items() for row in rows]

    # --- what the commands read

    def look(self) -> Told:
        """Plan, report on drift and status, as the commands do; see that nothing is started or ended."""
        with self.context() as context:
            plan = reconcile.plan(context)
            check_no_harm_is_planned(plan)
            for format_ in ("text", "json"):
                render(Content.PLAN, plan, format_, View()).encode()
        with self.context() as context:
            render(Content.DRIFT, reconcile.drift(context), "json", View()).encode()
            render_status(reconcile.status(context)).encode()
        problem = None
        for warning in plan.warnings:
            if warning.what == "the history could not be read":
                problem = warning.why
                assert warning.fix, problem
                assert str(self.file) in problem
        failures = tuple(self.failures())
        for failure in failures:
            [said] = failure.diagnostics
            assert str(self.file.parent) in said.why, said
            assert said.fix, said
        actions = {action.key: action.action for action in plan.actions}
        return Told(actions, problem, failures)

    def failures(self) -> Iterator[RecordsUnavailable]:
        """What `history`, `unlock`, `doctor` and the plan of an `apply` fail with."""
        with self.context(is_applied=True) as context:
            for read in (_read_history, _break_lock, _examine, _plan_to_apply):
                try:
                    read(context)
                except RecordsUnavailable as unavailable:
                    yield unavailable


def _records(context: Context) -> Records | None:
    return context.recording.reading()


def _read_history(context: Context) -> None:
    records, scope = _records(context), context.scope
    if records is None:
        return
    revisions = newest_revisions(records.memory(scope), 20)
    head = (scope.stack, context.target.identity, "", "", context.target.clock.now())
    report = HistoryReport(*head, None, records.runs(scope), revisions)
    history_text(report, View(verbose=True)).encode()
    dump(report.document()).encode()
    for key in MAY:
        records.runs(scope, key=key)
        records.revisions(scope, key)


def _break_lock(context: Context) -> None:
    if records := _records(context):
        records.break_lock(context.scope, records.holder(context.scope))


def _examine(context: Context) -> None:
    if records := _records(context):
        records.check()


def _plan_to_apply(context: Context) -> None:
    with context.recording.lock(context.scope, lambda: None):
        check_no_harm_is_planned(reconcile.plan(context))


def check_no_harm_is_planned(plan: Plan) -> None:
    """Nothing that runs is ended, and nothing that has finished is started again."""
    for action in plan.actions:
        assert action.action in MAY[action.key], (action.key, action.action, action.detail)


@contextmanager
def a_scene(root: Path) -> Iterator[Scene]:
    """A stack of which one job finished and was forgotten, one lost its marker, and one still runs."""
    with a_service(running=100) as service:
        scene = Scene(service, root)
        scene.apply("aged-out", "finished")
        service.time.sleep(1000)
        scene.apply("lost", "runs")
        service.time.sleep(10)
        with scene.context() as context:
            reconcile.drift(context)
        service.store.delete(PROJECT, service.job("aged-out").id)
        service.describe("lost", "somebody edited it")
        with scene.context() as context:
            reconcile.drift(context)
        scene.whole = scene.file.read_bytes()
        yield scene
