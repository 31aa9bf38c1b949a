"""The code of a job: its files, its digest, and its place in a canonical form.

The digest covers exactly what is uploaded: paths, sizes and contents, but no times, owners or modes, which
object stores do not keep. The digest of the job covers it as `code`, but not the resulting `code_dir`, so the
store may move.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:  # a job's supervisor imports this module, but no models
    from reconciler.core.canonical import Canonical

#: Files that list the packages of a job; a preset image installs the one that it finds.
REQUIREMENTS = ("pip-requirement.txt", "pip-requirements.txt", "requirement.txt", "requirements.txt")
#: The key of the code's digest in a canonical form.
CODE = "code"
#: How many digits of a digest name the code's directory in a store.
DIGITS = 16
_PLACE = rf"^(?:obs:)?/+(.+)/([^/]+)/([0-9a-f]{{{DIGITS}}})/[^/]+/?$"
#: The end of a digest of which only the first digits are known.
_ELLIPSIS = "…"


class CodeFile(NamedTuple):
    """A code file. `path` is relative to the source, with slashes; `size` is in bytes."""

    path: str
    size: int
    sha256: str


class Code(NamedTuple):
    """The code of a job. `name` is the name of its directory; `files` are sorted by path.

    They were read in `source`, relative to the stack's root file, with `exclude`, `include` and `max_size`.
    """

    name: str
    files: tuple[CodeFile, ...]
    digest: str
    source: str = ""
    exclude: tuple[str, ...] = ()
    include: tuple[str, ...] = ()
    max_size: int = 0

    @property
    def size(self) -> int:
        return sum(file.size for file in self.files)

    def place(self, store: str, stack: str) -> str:
        """Return the `code_dir` of a job with this code: `STORE/STACK/DIGEST16/NAME/`."""
        return f"{store.rstrip('/')}/{stack}/{digits(self.digest)}/{self.name}/"


def digest_of(files: Iterable[CodeFile]) -> str:
    """Return the digest of a tree: `sha256:` and 64 hex digits."""
    listed = sorted((file.path, file.size, file.sha256) for file in files)
    text = json.dumps(listed, ensure_ascii=False, separators=(",", ":"))
    return "sha256:" + hashlib.sha256(text.encode()).hexdigest()


def etag_of(data: bytes) -> str:
    """Return the ETag of an object in an object store: the MD5 of its bytes, in hex."""
    return hashlib.md5(data, usedforsecurity=False).hexdigest()


def digits(digest: str) -> str:
    return digest.removeprefix("sha256:")[:DIGITS]


def declared_form(form: Canonical, digest: str) -> Canonical:
    """Return a canonical form with the digest of the code instead of its location."""
    algorithm = dict(form.get("algorithm") or {})
    code_dir = str(algorithm.pop("code_dir", ""))
    if "boot_file" in algorithm:
        algorithm["boot_file"] = str(algorithm["boot_file"]).removeprefix(code_dir.rstrip("/") + "/")
    return {**form, CODE: digest, "algorithm": algorithm}


def place_of(form: Mapping[str, Any]) -> tuple[str, str, str] | None:
    """Return the store, stack and digits in a reported job's `code_dir`, or None."""
    match = re.search(_PLACE, str((form.get("algorithm") or {}).get("code_dir", "")))
    return None if match is None else (f"obs://{match[1]}/", match[2], match[3])


def reported_form(form: Canonical, declared: Canonical, digests: Iterable[str] = ()) -> Canonical:
    """Return the canonical form of a reported job with its code as in `declared`, if that has code.

    The location has the first digits of the digest; the rest comes from `declared` or `digests`, if they fit.
    """
    code, place = declared.get(CODE), place_of(form)
    if code is None or place is None:
        return form
    return declared_form(form, known_code(form, [code, *digests]) or f"sha256:{place[2]}{_ELLIPSIS}")


def known_code(form: Mapping[str, Any], digests: Iterable[str]) -> str | None:
    """Return the digest whose digits are in a reported job's `code_dir`, or None."""
    place = place_of(form)
    return next((digest for digest in digests if place and digits(digest) == place[2]), None)


def is_shortened(form: Canonical) -> bool:
    """Whether the code's digest is incomplete, so that no digest of the job covers it."""
    return str(form.get(CODE, "")).endswith(_ELLIPSIS)
