"""Read and write regular files safely in directories that others can write to.

Reading takes a regular file of limited size; it never blocks on a pipe or opens a device. Writing goes to a
new temporary file beside the target, which is then renamed: readers see the old content or the new, and
a link planted at the target is replaced, never followed.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import IO

_MEGABYTE = 1024 * 1024
_KINDS: tuple[tuple[Callable[[int], bool], str], ...] = (
    (stat.S_ISDIR, "a directory"),
    (stat.S_ISFIFO, "a pipe"),
    (stat.S_ISSOCK, "a socket"),
    (stat.S_ISCHR, "a device"),
    (stat.S_ISBLK, "a device"),
)
_DEVICES, _PROCESSES = Path("/dev"), Path("/proc")
#: Temporary files in use, to be removed if the program ends without unwinding.
_temporary: set[Path] = set()


class NotRegular(OSError):
    """The path is not a regular file; `strerror` says what it is."""


class TooLarge(OSError):
    """The file is larger than the limit, which `strerror` names."""


def read_file(path: Path, max_bytes: int) -> bytes:
    """Read a regular file of at most `max_bytes`, or a link to one. Never blocks.

    Raises:
        FileNotFoundError: it does not exist.
        NotRegular: it is a directory, a pipe, a socket or a device.
        TooLarge: it is larger than `max_bytes`.
        OSError: it cannot be read.
    """
    # Check before opening, since opening some devices has side effects, and again once it is open.
    _check_regular(path, os.stat(path))  # noqa: PTH116 - a name that holds NUL is a ValueError either way
    flags = os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
    with os.fdopen(os.open(path, flags), "rb") as stream:
        _check_regular(path, os.fstat(stream.fileno()))
        data = stream.read(max_bytes + 1)
    if len(data) > max_bytes:
        raise TooLarge(errno.EFBIG, f"larger than {max_bytes // _MEGABYTE} MB", str(path))
    return data


def _check_regular(path: Path, status: os.stat_result) -> None:
    if not stat.S_ISREG(status.st_mode):
        raise NotRegular(errno.EINVAL, kind_of(status.st_mode), str(path))


def kind_of(mode: int) -> str:
    """Name the kind of a file that is not regular, for people."""
    return next((name for matches, name in _KINDS if matches(mode)), "not a regular file")


def write_file(path: Path, data: bytes, mode: int | None = None) -> None:
    """Write a file atomically.

    It has `mode` from its first byte on. Without one it keeps the mode of the file that it replaces, if that
    is ours, else the umask decides. Without a mode, system files such as `/dev/stdout` are written in place.

    Raises:
        NotRegular: the path is a directory, a device, a pipe or a socket.
        OSError: it cannot be written. An existing file is unchanged.
    """
    target = Path(os.path.realpath(path.parent)) / path.name
    if mode is None and (target.parent == _DEVICES or _PROCESSES in target.parents):
        _write_into(target, data)
        return
    # A link is replaced wherever it leads, unless to a directory.
    if target.is_dir():
        raise NotRegular(errno.EISDIR, "a directory", str(target))
    old = None
    with suppress(OSError):  # there is none, or writing it will fail as well
        old = target.lstat()
    if old is not None and not stat.S_ISREG(old.st_mode) and not stat.S_ISLNK(old.st_mode):
        raise NotRegular(errno.EINVAL, kind_of(old.st_mode), str(target))
    if mode is None and old is not None and stat.S_ISREG(old.st_mode) and old.st_uid == os.geteuid():
        mode = stat.S_IMODE(old.st_mode)
    temporary = target.with_name(f".{os.urandom(8).hex()}.tmp")
    _temporary.add(temporary)
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    try:
        with os.fdopen(
            os.open(temporary, flags, 0o666 if mode is None else 0o600), "wb", buffering=0
        ) as stream:
            _write_all(stream.fileno(), data)
            if mode is not None:
                os.fchmod(stream.fileno(), mode)
            os.fsync(stream.fileno())
        temporary.replace(target)
    except OSError as error:
        # The error names the temporary file, which means nothing to the user, or no file at all.
        raise OSError(error.errno, error.strerror, str(target)) from error
    finally:
        _remove(temporary)
    # Make the rename survive a power loss, if the system can.
    with suppress(OSError):
        descriptor = os.open(target.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def append_file(path: Path, data: bytes) -> None:
    """Append lines to a file that others also write; they begin on a line of their own.

    Raises:
        OSError: it cannot be written.
    """
    descriptor = os.open(path, os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC | os.O_NOCTTY, 0o666)
    with os.fdopen(descriptor, "r+b", buffering=0) as stream:
        end = stream.seek(0, os.SEEK_END)
        if end:
            stream.seek(end - 1)
        _write_all(descriptor, data if not end or stream.read(1) == b"\n" else b"\n" + data)


def write_new_file(path: Path, data: bytes, mode: int = 0o666) -> bool:
    """Write a new file. Returns False, without any effect, if the path exists.

    Raises:
        OSError: it cannot be written. Nothing is left behind.
    """
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    try:
        descriptor = os.open(path, flags, mode)
    except FileExistsError:
        return False
    _temporary.add(path)
    try:
        with os.fdopen(descriptor, "wb") as stream:
            if mode == _FILE:
                path.chmod(mode)  # the umask may have removed bits
            stream.write(data)
    except OSError as error:
        _remove(path)
        raise OSError(error.errno, error.strerror, str(path)) from error
    _temporary.discard(path)
    return True


def remove_temporary_files() -> None:
    """Remove unfinished files, before the program ends without unwinding."""
    for temporary in list(_temporary):
        _remove(temporary)


def _write_into(path: Path, data: bytes) -> None:
    """Write into an existing file. A pipe without a reader is an error, not a wait."""
    flags = os.O_WRONLY | os.O_APPEND | os.O_NOCTTY | os.O_NONBLOCK | os.O_CLOEXEC
    try:
        with os.fdopen(os.open(path, flags), "wb", buffering=0) as stream:
            if stat.S_ISBLK(os.fstat(stream.fileno()).st_mode):
                raise NotRegular(errno.EINVAL, "a device")
            os.set_blocking(stream.fileno(), True)
            _write_all(stream.fileno(), data)
    except IsADirectoryError as error:
        raise NotRegular(errno.EISDIR, "a directory", str(path)) from error
    except OSError as error:
        raise type(error)(error.errno, error.strerror, str(path)) from error


def _write_all(descriptor: int, data: bytes) -> None:
    left = memoryview(data)
    while left:
        left = left[os.write(descriptor, left) :]


def _remove(temporary: Path) -> None:
    with suppress(OSError):
        temporary.unlink(missing_ok=True)
    _temporary.discard(temporary)


# --- The directory beside a stack's root file

#: It has the stack's records and lock, and the local target's jobs, whose bodies include secrets: so the
#: directory is 0700 and every file in it 0600 from the start, whatever the umask.
#: Source: docs/operations/records.md, "Contents".
RECORD_DIRECTORY = ".reconciler"
_DIRECTORY, _FILE, _OTHERS = 0o700, 0o600, 0o077


def record_directory(root: Path) -> Path:
    """Return the record directory of the stack whose root file is in `root`, made or tightened as needed.

    Raises:
        OSError: it cannot be made.
    """
    directory = root / RECORD_DIRECTORY
    try:
        directory.mkdir(mode=_DIRECTORY)
        directory.chmod(_DIRECTORY)  # the umask may have removed bits
    except FileExistsError:
        if not directory.is_dir():
            raise
        tighten(directory)
    ignore = directory / ".gitignore"
    if not ignore.exists():
        private_file(ignore, "*\n")
    return directory


def private_file(path: Path, text: str = "") -> None:
    """Make a file that only we can read, unless it exists.

    SQLite gives the files beside a database the permissions of the database.
    """
    write_new_file(path, text.encode(), _FILE)


def append_private(path: Path) -> IO[bytes]:
    """Open a file that only its owner can read for appending, unbuffered; it is created if missing."""
    flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC
    return os.fdopen(os.open(path, flags, _FILE), "ab", buffering=0)


def tighten(directory: Path) -> None:
    """Remove the permissions of others that an older version, a copy or an archive left.

    Files of another user are skipped: only their owner can change them.
    """
    with suppress(OSError):
        _close_to_others(directory)
        for entry in os.scandir(directory):
            # Another process may be removing a journal meanwhile; a link may lead outside.
            with suppress(OSError):
                if entry.is_file(follow_symlinks=False):
                    _close_to_others(Path(entry.path))


def _close_to_others(path: Path) -> None:
    if (mode := path.stat().st_mode) & _OTHERS:
        path.chmod(stat.S_IMODE(mode) & ~_OTHERS)
