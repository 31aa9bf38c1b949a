"""Regular files, read and written so that nobody who shares a directory can turn it against us.

What is read is a regular file of a bounded size: nothing blocks on a pipe, and no device is opened for
what it holds. What is written goes to a temporary file beside the target, made by nobody else, and is
renamed: readers see the old content or the new one, and a link that somebody planted at the target's
place is replaced, never followed.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

_MEGABYTE = 1024 * 1024
_KINDS: tuple[tuple[Callable[[int], bool], str], ...] = (
    (stat.S_ISDIR, "a directory"),
    (stat.S_ISFIFO, "a pipe"),
    (stat.S_ISSOCK, "a socket"),
    (stat.S_ISCHR, "a device"),
    (stat.S_ISBLK, "a device"),
)
_DEVICES, _PROCESSES = Path("/dev"), Path("/proc")
#: The names that are in use, for whoever ends the program without unwinding it.
_temporary: set[Path] = set()


class NotRegular(OSError):
    """The path names something else than a regular file; `strerror` says what."""


class TooLarge(OSError):
    """The file has more bytes than anything of its kind; `strerror` says how many it may have."""


def read_file(path: Path, most: int) -> bytes:
    """Read a regular file of at most `most` bytes, or a link to one. Never blocks.

    Raises:
        FileNotFoundError: there is none.
        NotRegular: it is a directory, a pipe, a socket or a device.
        TooLarge: it is larger.
        OSError: it cannot be read.
    """
    # Looked at first: opening some devices does something already. Looked at again once it is open.
    _check_regular(path, os.stat(path))  # noqa: PTH116 - a name that holds NUL is a ValueError either way
    flags = os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
    with os.fdopen(os.open(path, flags), "rb") as stream:
        _check_regular(path, os.fstat(stream.fileno()))
        data = stream.read(most + 1)
    if len(data) > most:
        raise TooLarge(errno.EFBIG, f"larger than {most // _MEGABYTE} MB", str(path))
    return data


def _check_regular(path: Path, status: os.stat_result) -> None:
    if not stat.S_ISREG(status.st_mode):
        raise NotRegular(errno.EINVAL, kind_of(status.st_mode), str(path))


def kind_of(mode: int) -> str:
    """What a file is that is no regular one, for people."""
    return next((words for is_it, words in _KINDS if is_it(mode)), "not a regular file")


def write_file(path: Path, data: bytes, mode: int | None = None) -> None:
    """Write a file whole or not at all.

    It has `mode` from its first byte on; without one it keeps the mode of the file of ours that was there,
    else the umask decides. What stands in a directory of the system (`/dev/stdout`) is written into, if
    no `mode` is asked for.

    Raises:
        NotRegular: a directory, a device, a pipe or a socket is there.
        OSError: it cannot be written. What was there stays as it was.
    """
    target = Path(os.path.realpath(path.parent)) / path.name
    if mode is None and (target.parent == _DEVICES or _PROCESSES in target.parents):
        _write_into(target, data)
        return
    # A link is replaced wherever it leads, unless it is a directory that is named by it.
    if target.is_dir():
        raise NotRegular(errno.EISDIR, "a directory", str(target))
    found = None
    with suppress(OSError):  # there is none, or whatever is wrong will be said when it is written
        found = target.lstat()
    if found is not None and not stat.S_ISREG(found.st_mode) and not stat.S_ISLNK(found.st_mode):
        raise NotRegular(errno.EINVAL, kind_of(found.st_mode), str(target))
    if mode is None and found is not None and stat.S_ISREG(found.st_mode) and found.st_uid == os.geteuid():
        mode = stat.S_IMODE(found.st_mode)
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
        # The temporary name tells nobody anything, and some errors name no file at all.
        raise OSError(error.errno, error.strerror, str(target)) from error
    finally:
        _remove(temporary)
    # Have the new name survive a loss of power, where the system can say so.
    with suppress(OSError):
        descriptor = os.open(target.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def append_file(path: Path, data: bytes) -> None:
    """Write lines at the end of a file, which others write as well; they begin on a line of their own.

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
    """Write a file that does not exist yet; False, and nothing is done, where anything has its name.

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
                path.chmod(mode)  # the umask may have taken something off
            stream.write(data)
    except OSError:
        _remove(path)
        raise
    _temporary.discard(path)
    return True


def remove_temporary_files() -> None:
    """Remove what is being written just now: the program is about to end without unwinding."""
    for temporary in list(_temporary):
        _remove(temporary)


def _write_into(path: Path, data: bytes) -> None:
    """Write into what is there. A pipe that nobody reads is an error, and nothing to wait for."""
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


# --- the directory beside a stack's root file

#: It has the records of a stack, its lock and the local target's jobs. They say what runs where and who did
#: what, and jobs are whole bodies, secrets included: so the directory is 0700 and every file in it 0600, from
#: the moment it is made, whatever the umask says. Source: docs/operations/records.md, "What is in them".
RECORD_DIRECTORY = ".reconciler"
_DIRECTORY, _FILE, _OTHERS = 0o700, 0o600, 0o077


def record_directory(root: Path) -> Path:
    """Return the directory of the stack whose root file is in `root`; it is made, or made private.

    Raises:
        OSError: it cannot be made.
    """
    directory = root / RECORD_DIRECTORY
    try:
        directory.mkdir(mode=_DIRECTORY)
        directory.chmod(_DIRECTORY)  # the umask may have taken something off
    except FileExistsError:
        if not directory.is_dir():
            raise
        tighten(directory)
    ignore = directory / ".gitignore"
    if not ignore.exists():
        private_file(ignore, "*\n")
    return directory


def private_file(path: Path, text: str = "") -> None:
    """Make a file that nobody else can read; one that is there stays as it is.

    SQLite gives what it puts beside a database the permissions of the database.
    """
    write_new_file(path, text.encode(), _FILE)


def tighten(directory: Path) -> None:
    """Take from everybody else what an older version, a copy or an archive let them read.

    Files of another user stay as they are: only their owner can change them.
    """
    with suppress(OSError):
        _close_to_others(directory)
        for entry in os.scandir(directory):
            # Beside us another process may be removing a journal; a link leads to what is not ours.
            with suppress(OSError):
                if entry.is_file(follow_symlinks=False):
                    _close_to_others(Path(entry.path))


def _close_to_others(path: Path) -> None:
    if (mode := path.stat().st_mode) & _OTHERS:
        path.chmod(stat.S_IMODE(mode) & ~_OTHERS)
