"""What the last apply of each stack declared, and from where: by it a key that was renamed is told."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any

from sqlalchemy import Connection, delete, exists, func, select, update
from sqlalchemy import false as sql_false

from reconciler.core.phase import Phase
from reconciler.core.record import FinishedWork, Scope
from reconciler.records.database import Database
from reconciler.records.schema import KEYS, REVISIONS, SCOPES

#: So many digests are asked about in one statement.
_AT_ONCE = 500


def write_declared(database: Database, scope_id: int, sweeps: Mapping[str, str], place: str) -> None:
    """Write down what an apply declares, each key with its sweep or "", and where its manifest is.

    Nothing is written where that is known already.
    """
    of_scope = select(KEYS).where(KEYS.c.scope_id == scope_id)
    with database.reading() as connection:
        known = {row.key: (row.sweep, row.is_declared) for row in connection.execute(of_scope)}
        was_from = connection.execute(select(SCOPES.c.applied_from).where(SCOPES.c.id == scope_id)).scalar()
    rows = {key: (sweep, True) for key, sweep in sweeps.items()}
    # Whose member a key was stays known.
    rows |= {key: (sweep, False) for key, (sweep, _) in known.items() if key not in rows}
    changed = [
        {"scope_id": scope_id, "key": key, "sweep": sweep, "is_declared": is_declared}
        for key, (sweep, is_declared) in sorted(rows.items())
        if known.get(key) != (sweep, is_declared)
    ]
    if not changed and was_from == place:
        return
    with database.writing() as connection:
        if changed:
            connection.execute(_upsert(database), changed)
        moved = update(SCOPES).where(SCOPES.c.id == scope_id).values(applied_from=place)
        connection.execute(moved)


def read_finished(
    connection: Connection, scope: Scope, digests: Collection[str], place: str
) -> Mapping[str, FinishedWork]:
    """What other stacks completed on the same target, by digest, and do not declare any more.

    A stack whose last apply was from `place` is this one under its former name: all that it completed counts.
    """
    is_declared = func.coalesce(KEYS.c.is_declared, sql_false())
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
            (SCOPES.c.applied_from == place) | (is_declared == sql_false()),
            func.lower(REVISIONS.c.phase) == Phase.COMPLETED.value.lower(),
            REVISIONS.c.released_at_s.is_(None),
        )
        .order_by(SCOPES.c.stack, REVISIONS.c.key, REVISIONS.c.number)
    )
    found: dict[str, FinishedWork] = {}
    for some in _portions(sorted(digests)):
        for row in connection.execute(look.where(REVISIONS.c.digest.in_(some))):
            found.setdefault(row.digest, FinishedWork(row.key, row.number, row.stack))
    return found


def forget_keys(connection: Connection, scope_id: int) -> None:
    """Delete the keys that are not declared any more, and of which no revision is left."""
    is_theirs = (REVISIONS.c.scope_id == KEYS.c.scope_id) & (REVISIONS.c.key == KEYS.c.key)
    is_left = exists().where(is_theirs)
    old = delete(KEYS).where(KEYS.c.scope_id == scope_id, KEYS.c.is_declared == sql_false(), ~is_left)
    connection.execute(old)


def _portions(digests: Sequence[str]) -> Iterator[Sequence[str]]:
    return (digests[start : start + _AT_ONCE] for start in range(0, len(digests), _AT_ONCE))


def _upsert(database: Database) -> Any:
    return database.dialect.upsert(KEYS, lambda new: {"sweep": new.sweep, "is_declared": new.is_declared})
