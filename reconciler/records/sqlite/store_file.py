"""The file of a store: there, not there, or something else in its place. What opens it comes later."""

from __future__ import annotations

import shlex
import stat
from glob import escape
from pathlib import Path

from reconciler.core.record import RecordsUnavailable
from reconciler.errors import Diagnostic

UNREACHABLE = "the record store cannot be reached"
UNREADABLE = "the record store cannot be read"
#: Of a SQLite file the first bytes say what it is, and how large its pages are.
_HEAD = 18


def has_content(file: Path) -> bool:
    """Whether there is a file with something in it. False: there is none, or it was only just made.

    Raises:
        RecordsUnavailable: something is there, and it is no such file, or nobody can say.
    """
    try:
        found = file.stat()
    except (FileNotFoundError, NotADirectoryError):
        _check_links(file)
        return False
    except OSError as error:
        fix = f"check the file and its directory: ls -l {_quoted(file)}"
        raise RecordsUnavailable(Diagnostic(UNREACHABLE, f"{file}: {error.strerror}", fix)) from None
    if not stat.S_ISREG(found.st_mode):
        raise RecordsUnavailable(
            Diagnostic(
                UNREACHABLE, f"{file} is {_kind(found.st_mode)}, not a regular file", _how_to_replace(file)
            )
        )
    if (head := _head(file)) is None:
        return True
    if not head:
        _check_unused(file)
        return False
    # SQLite takes a file of one byte for an empty one, and one of the kernel, which has no size. It is asked
    # again, for the file may have been empty before its head was read.
    size = file.stat().st_size
    if size < _HEAD or size % _page_size(head):
        raise RecordsUnavailable(
            Diagnostic(UNREADABLE, f"{file} is truncated or not a database", _how_to_replace(file))
        )
    return True


def _head(file: Path) -> bytes | None:
    """The first bytes; None if they cannot be read, which SQLite says better."""
    try:
        with file.open("rb") as opened:
            return opened.read(_HEAD)
    except OSError:
        return None


def _page_size(head: bytes) -> int:
    """A SQLite file has whole pages. Of any other file that is not judged here."""
    size = int.from_bytes(head[16:18], "big")
    if not head.startswith(b"SQLite format 3\0"):
        return 1
    return 65536 if size == 1 else size or 1


def _check_links(file: Path) -> None:
    """A link that leads nowhere is no missing file: the disk with the records may not be there just now."""
    link = next((place for place in (file, *file.parents) if place.is_symlink() and not place.exists()), None)
    if link is not None:
        why = f"{file}: {link} is a link to {link.readlink()}, which does not exist"
        fix = f"mount its target, or remove the link: rm {_quoted(link)}"
        raise RecordsUnavailable(Diagnostic(UNREACHABLE, why, fix))


def _check_unused(file: Path) -> None:
    """An empty file is a store that is just being made, unless somebody has held its lock already."""
    file = file.resolve()
    if any(file.parent.glob(f"{escape(file.name)}.lock-*")) and not _head(file):
        raise RecordsUnavailable(
            Diagnostic(UNREADABLE, f"{file} is empty, but was in use before", _how_to_replace(file))
        )


def _kind(mode: int) -> str:
    kinds = {
        stat.S_IFDIR: "a directory",
        stat.S_IFCHR: "a device",
        stat.S_IFBLK: "a device",
        stat.S_IFIFO: "a pipe",
        stat.S_IFSOCK: "a socket",
    }
    return kinds.get(stat.S_IFMT(mode), "something else")


def _how_to_replace(file: Path) -> str:
    return f"move it away; the next apply creates a new one: mv {_quoted(file)} {_quoted(file)}.broken"


def _quoted(file: Path) -> str:
    return shlex.quote(str(file))
