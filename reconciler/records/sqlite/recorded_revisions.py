"""What a SQLite store has of each revision, read without SQLAlchemy.

Every plan asks, also the unchanged one: whether a newer revision was recorded than the service lists, and
whether what was seen is new. Importing SQLAlchemy would cost it more than all its other work.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Mapping
from contextlib import closing
from pathlib import Path

from reconciler.core.identity import read_schedule_mark
from reconciler.core.record import RecordedRevision, RevisionId, Scope

_QUERY = """\
SELECT revision.key, revision.number, revision.job, revision.digest, revision.phase, revision.stopped,
    revision.schedule, revision.released_at_s IS NOT NULL
FROM reconciler_revisions AS revision
JOIN reconciler_scopes AS scope ON scope.id = revision.scope_id
WHERE (scope.stack, scope.host, scope.project_id, scope.workspace_id) = (?, ?, ?, ?)
"""


def read_revisions(file: Path, scope: Scope) -> Mapping[RevisionId, RecordedRevision] | None:
    """Return what the file has of a scope; None if it cannot be read like this.

    The tables may be of an older version, say, or damaged: whoever opens the store finds out.
    """
    where = (scope.stack, scope.host, scope.project_id, scope.workspace_id)
    try:
        with closing(sqlite3.connect(f"{file.as_uri()}?mode=ro", uri=True, timeout=1.0)) as connection:
            rows = connection.execute(_QUERY, where).fetchall()
    except (sqlite3.Error, ValueError, OverflowError, MemoryError):
        return None
    if not all(map(_is_sound, rows)):
        return None
    return {
        RevisionId(key, number): RecordedRevision(
            job, digest, phase, bool(stopped), read_schedule_mark(schedule), bool(released)
        )
        for key, number, job, digest, phase, stopped, schedule, released in rows
    }


def _is_sound(row: tuple[object, ...]) -> bool:
    """Whether a store can have written these cells: a damaged file may hold anything in any of them."""
    key, number, job, digest, phase, stopped, schedule, _ = row
    is_named = isinstance(key, str) and isinstance(job, str) and isinstance(digest, str)
    is_numbered = isinstance(number, int) and number >= 1
    if schedule != "" and not (isinstance(schedule, str) and read_schedule_mark(schedule)):
        return False
    return is_named and is_numbered and isinstance(phase, str) and stopped in (0, 1)
