"""The runs that were recorded, read back."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any

from sqlalchemy import ColumnElement, Connection, Row, Select, Table, exists, func, insert, or_, select, true

from reconciler.core.record import PastAction, PastChange, PastRun, PastStep, Scope
from reconciler.decide.journal import Run, RunEnd
from reconciler.decide.outcome import Status
from reconciler.records.database import Database
from reconciler.records.history import is_scope
from reconciler.records.locks.liveness import running_runs
from reconciler.records.schema import LINES, OUTCOMES, RUNS, SCOPES
from reconciler.records.serialization import Texts, read_summary


def insert_run(
    connection: Connection, scope_id: int, run: Run, texts: Texts, ended: RunEnd | None = None
) -> int:
    """Write a run down, and its end if it is over; return its number."""
    text = texts.text
    row: dict[str, Any] = {
        "scope_id": scope_id,
        "kind": run.kind.value,
        "who": text(run.who),
        "place": text(run.where),
        "command": text(run.command),
        "commit_id": text(run.commit),
        "plan_digest": text(run.plan_digest),
        "at_s": run.at_s,
    }
    if ended is not None:
        row |= {"ended_at_s": ended.at_s, "result": ended.result, "summary": texts.document(ended.summary)}
    made = connection.execute(insert(RUNS).values(row)).inserted_primary_key
    assert made is not None
    return int(made[0])


def read_runs(
    database: Database, connection: Connection, scope: Scope, key: str | None, limit: int | None
) -> Sequence[PastRun]:
    """The runs of a scope, newest first; with `key` those that did something about it, and only that."""
    look = select(RUNS).join(SCOPES, SCOPES.c.id == RUNS.c.scope_id).where(is_scope(scope))
    if key is not None:
        look = look.where(
            or_(_has(LINES, key), _has(OUTCOMES, key, OUTCOMES.c.status != Status.SKIPPED.value))
        )
    look = look.order_by(RUNS.c.at_s.desc(), RUNS.c.id.desc()).limit(limit)
    steps, actions = defaultdict(list), defaultdict(list)
    for row in connection.execute(_of_runs(LINES, look, key).order_by(LINES.c.line)):
        steps[row.run_id].append(_step(row))
    for row in connection.execute(_of_runs(OUTCOMES, look, key).order_by(OUTCOMES.c.position)):
        actions[row.run_id].append(_action(row))
    rows = connection.execute(look).all()
    alive = running_runs(database, connection, [row for row in rows if row.ended_at_s is None])
    return [_run(row, actions[row.id], steps[row.id], is_running=row.id in alive) for row in rows]


def read_last_changes(connection: Connection, scope: Scope) -> Mapping[str, PastChange]:
    """The newest call that changed a job of each key, by key; failed and unanswered ones aside."""
    of_key = (
        select(*LINES.c["key", "action", "call", "job", "at_s"], RUNS.c.kind, RUNS.c.who)
        .add_columns(
            func.row_number()
            .over(
                partition_by=LINES.c.key,
                order_by=(LINES.c.at_s.desc(), LINES.c.run_id.desc(), LINES.c.line.desc()),
            )
            .label("age")
        )
        .join(RUNS, RUNS.c.id == LINES.c.run_id)
        .join(SCOPES, SCOPES.c.id == RUNS.c.scope_id)
        .where(is_scope(scope), LINES.c.ok == true())
        .subquery()
    )
    return {
        row.key: PastChange(row.key, row.action, row.call, row.kind, row.who, row.job, row.at_s)
        for row in connection.execute(select(of_key).where(of_key.c.age == 1))
    }


def _has(table: Table, key: str, *more: ColumnElement[bool]) -> ColumnElement[bool]:
    return exists().where(table.c.run_id == RUNS.c.id, table.c.key == key, *more)


def _of_runs(table: Table, runs: Select[Any], key: str | None) -> Select[Any]:
    # Named first: not every database takes a LIMIT inside IN.
    wanted = runs.with_only_columns(RUNS.c.id).subquery()
    look = select(table).where(table.c.run_id.in_(select(wanted.c.id)))
    return look if key is None else look.where(table.c.key == key)


def _run(
    row: Row[Any], actions: Sequence[PastAction], steps: Sequence[PastStep], *, is_running: bool
) -> PastRun:
    return PastRun(
        id=row.id,
        kind=row.kind,
        who=row.who,
        where=row.place,
        command=row.command,
        commit=row.commit_id,
        plan_digest=row.plan_digest,
        at_s=row.at_s,
        ended_at_s=row.ended_at_s,
        result=row.result,
        summary=read_summary(row.summary),
        actions=tuple(actions),
        steps=tuple(steps),
        is_running=is_running,
    )


def _step(row: Row[Any]) -> PastStep:
    return PastStep(
        key=row.key,
        action=row.action,
        call=row.call,
        name=row.name,
        job=row.job,
        at_s=row.at_s,
        ended_at_s=row.ended_at_s,
        ok=row.ok,
        code=row.code,
        message=row.message,
        request_id=row.request_id,
    )


def _action(row: Row[Any]) -> PastAction:
    return PastAction(
        key=row.key,
        action=row.action,
        reason=row.reason,
        status=row.status,
        detail=row.detail,
        job=row.job,
        code=row.code,
    )
