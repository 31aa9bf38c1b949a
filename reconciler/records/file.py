"""The SQLite file of a store: there, not there, or something else; and what an unchanged plan reads of it.

Without SQLAlchemy. Every plan asks whether a newer revision was recorded than the service lists, and whether
what was seen is new. Importing SQLAlchemy would cost an unchanged plan more than all its other work.
"""

from __future__ import annotations

import shlex
import sqlite3
import stat
from collections.abc import Mapping
from contextlib import closing, suppress
from glob import escape
from pathlib import Path

from reconciler.core.identity import read_schedule_mark
from reconciler.core.record import RecordedRevision, RecordsUnavailable, RevisionId, Scope
from reconciler.errors import Diagnostic
from reconciler.files import kind_of

UNREACHABLE = "the record store cannot be reached"
UNREADABLE = "the record store cannot be read"
UNWRITABLE = "the record store cannot be written"
#: For any SQLite file that cannot be used as it is.
MOVE_AWAY = "move it away; the next apply creates a new one: mv {place} {place}.broken"
#: Of a SQLite file the first bytes say what it is, and how large its pages are.
_HEAD = 18
_REVISIONS = """\
SELECT revision.key, revision.number, revision.job, revision.digest, revision.phase, revision.stopped,
    revision.schedule, revision.released_at_s IS NOT NULL
FROM reconciler_revisions AS revision
JOIN reconciler_scopes AS scope ON scope.id = revision.scope_id
WHERE (scope.stack, scope.host, scope.project_id, scope.workspace_id) = (?, ?, ?, ?)
"""


def has_content(file: Path) -> bool:
    """Whether there is a file with something in it. False: there is none, or it was only just made.

    Raises:
        RecordsUnavailable: something is there that is no such file, or cannot be judged.
    """
    try:
        found = file.stat()
    except (FileNotFoundError, NotADirectoryError):
        # A dangling link is no missing file: the disk with the records may not be mounted just now.
        links = (place for place in (file, *file.parents) if place.is_symlink() and not place.exists())
        if (link := next(links, None)) is not None:
            why = f"{file}: {link} is a link to {link.readlink()}, which does not exist"
            fix = f"mount its target, or remove the link: rm {shlex.quote(str(link))}"
            raise RecordsUnavailable(Diagnostic(UNREACHABLE, why, fix)) from None
        return False
    except OSError as error:
        fix = f"check the file and its directory: ls -l {shlex.quote(str(file))}"
        raise RecordsUnavailable(Diagnostic(UNREACHABLE, f"{file}: {error.strerror}", fix)) from None
    if not stat.S_ISREG(found.st_mode):
        raise _refused(UNREACHABLE, file, f"is {kind_of(found.st_mode)}, not a regular file")
    head = b""
    with suppress(OSError):  # SQLite says better why it cannot be read
        head = _head(file)
        if not head:
            # A store that is just being made, unless a lock of it was held already.
            place = file.resolve()
            if any(place.parent.glob(f"{escape(place.name)}.lock-*")) and not _head(place):
                raise _refused(UNREADABLE, place, "is empty, but was in use before")
            return False
    # SQLite takes a file of one byte for an empty one, and one of the kernel, which has no size. The size is
    # asked again, for the file may have been empty before its head was read.
    size, page_size = file.stat().st_size, 1
    if head.startswith(b"SQLite format 3\0"):
        # It has whole pages. Any other file is not judged here.
        page_size = {0: 1, 1: 65536}.get(said := int.from_bytes(head[16:18], "big"), said)
    if head and (size < _HEAD or size % page_size):
        raise _refused(UNREADABLE, file, "is truncated or not a database")
    return True


def _head(file: Path) -> bytes:
    with file.open("rb") as opened:
        return opened.read(_HEAD)


def _refused(what: str, file: Path, why: str) -> RecordsUnavailable:
    fix = MOVE_AWAY.format(place=shlex.quote(str(file)))
    return RecordsUnavailable(Diagnostic(what, f"{file} {why}", fix))


def read_revisions(file: Path, scope: Scope) -> Mapping[RevisionId, RecordedRevision] | None:
    """Return what the file has of the revisions of a scope; None if it cannot be read like this.

    The tables may be of an older version, say, or damaged: whoever opens the store finds out.
    """
    where = (scope.stack, scope.host, scope.project_id, scope.workspace_id)
    try:
        with closing(sqlite3.connect(f"{file.as_uri()}?mode=ro", uri=True, timeout=1.0)) as connection:
            rows = connection.execute(_REVISIONS, where).fetchall()
    except (sqlite3.Error, ValueError, OverflowError, MemoryError):
        return None
    found = {}
    for key, number, job, digest, phase, stopped, schedule, released in rows:
        # A damaged file may hold anything in any cell.
        if not all(isinstance(text, str) for text in (key, job, digest, phase, schedule)):
            return None
        mark = read_schedule_mark(schedule)
        if not isinstance(number, int) or number < 1 or stopped not in (0, 1) or (schedule and mark is None):
            return None
        place = RevisionId(key, number)
        found[place] = RecordedRevision(job, digest, phase, bool(stopped), mark, bool(released))
    return found
