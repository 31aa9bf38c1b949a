"""The bytes of one file that a person wrote: of a regular file only, never blocking, and bounded."""

from __future__ import annotations

import errno
from pathlib import Path

from reconciler.files import NotRegular, TooLarge, read_file

#: A file beyond this is no manifest; what the parser makes of it takes many times as much.
MAX_FILE_BYTES = 32_000_000


def read_manifest_file(path: Path) -> bytes:
    """Return what a file holds.

    Raises:
        OSError: it cannot be read, is no regular file, or is too large; `strerror` says which.
    """
    try:
        return read_file(path, MAX_FILE_BYTES).data
    except NotRegular as error:
        raise OSError(errno.EINVAL, f"not a regular file: {error.strerror}") from None
    except TooLarge:
        why = f"larger than {MAX_FILE_BYTES:,} bytes, the limit for a manifest"
        raise OSError(errno.EFBIG, why) from None
