"""The bytes of one file that a person wrote: of a regular file only, never blocking, and bounded."""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path

#: A file beyond this is no manifest; what the parser makes of it takes many times as much.
MAX_FILE_BYTES = 32_000_000
_CHUNK = 1 << 20
# A pipe would be waited for, and a terminal may become the one that controls the process.
_FLAGS = os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_NOCTTY", 0) | getattr(os, "O_CLOEXEC", 0)


def read_file(path: Path) -> bytes:
    """Return what a file holds.

    Raises:
        OSError: it cannot be read, is no regular file, or is too large; `strerror` says which.
    """
    # Opening alone may do something to a device.
    _check_regular(path.stat())
    with os.fdopen(os.open(path, _FLAGS), "rb") as stream:
        _check_regular(os.fstat(stream.fileno()))
        data = bytearray()
        while chunk := stream.read(_CHUNK):
            data += chunk
            if len(data) > MAX_FILE_BYTES:
                raise OSError(
                    errno.EFBIG, f"it has more than {MAX_FILE_BYTES:,} bytes, which no manifest has"
                )
        return bytes(data)


def _check_regular(status: os.stat_result) -> None:
    if not stat.S_ISREG(status.st_mode):
        raise OSError(errno.EINVAL, "it is no regular file")
