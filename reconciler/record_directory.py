"""The directory beside a stack's root file: its records, its lock and the local target's jobs.

The records say what runs where and who did what, and the local target's jobs are whole bodies, secrets
included. So the directory is 0700 and every file in it 0600, from the moment it is made, whatever the
umask says. Source: docs/records.md, "What is in them".
"""

from __future__ import annotations

import os
import stat
from contextlib import suppress
from pathlib import Path

NAME = ".reconciler"
_DIRECTORY, _FILE = 0o700, 0o600
_OTHERS = 0o077


def record_directory(root: Path) -> Path:
    """Return the directory of the stack whose root file is in `root`; it is made, or made private.

    Raises:
        OSError: it cannot be made.
    """
    directory = root / NAME
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
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, _FILE)
    except FileExistsError:
        return
    with os.fdopen(descriptor, "w", encoding="utf-8") as file:
        path.chmod(_FILE)
        file.write(text)


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
    mode = stat.S_IMODE(path.stat().st_mode)
    if mode & _OTHERS:
        path.chmod(mode & ~_OTHERS)
