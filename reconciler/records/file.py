"""The SQLite file of a store: there, not there, or something else."""

from __future__ import annotations

import shlex
import stat
from contextlib import suppress
from glob import escape
from pathlib import Path

from reconciler.core.record import RecordsUnavailable
from reconciler.errors import Diagnostic
from reconciler.files import kind_of

UNREACHABLE = "the record store cannot be reached"
UNREADABLE = "the record store cannot be read"
UNWRITABLE = "the record store cannot be written"
#: For any SQLite file that cannot be used as it is.
MOVE_AWAY = "move it away; the next apply creates a new one: mv {place} {place}.broken"
#: Of a SQLite file the first bytes say what it is, and how large its pages are.
_HEAD = 18


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
