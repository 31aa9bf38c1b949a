"""The code of a job as the core knows it: which files it is, its digest, and where a canonical form says so.

The digest is computed from exactly the list of files that is uploaded: their paths, sizes and contents; no
times, owners or modes, which an object store does not keep. It stands in the digest of the job as `code`; the
`code_dir` that follows from it does not, so that the store may move.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:  # the supervisor of a job needs what is below, and no models
    from reconciler.core.canonical import Canonical

#: Files in the code of a job that name the packages it needs; one of a preset image is installed.
REQUIREMENTS = ("pip-requirement.txt", "pip-requirements.txt", "requirement.txt", "requirements.txt")
#: Where the digest of the code stands in a canonical form.
CODE = "code"
#: So many digits of a digest name the place of code in a store.
DIGITS = 16
_PLACE = rf"^(?:obs:)?/+(.+)/([^/]+)/([0-9a-f]{{{DIGITS}}})/[^/]+/?$"
#: Ends a digest of which only the first digits are known.
_AND_MORE = "…"


class CodeFile(NamedTuple):
    """A file that is code. `path` is relative to the source, with slashes; `size` in bytes."""

    path: str
    size: int
    sha256: str


class Code(NamedTuple):
    """The code of a job. `name` is the name of its directory, `files` are sorted by path.

    They were read in `source`, relative to the directory of the stack's root file, by the rules that follow.
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
    """Return the ETag by which an object store knows an object: the MD5 of its bytes, in hex."""
    return hashlib.md5(data, usedforsecurity=False).hexdigest()


def digits(digest: str) -> str:
    return digest.removeprefix("sha256:")[:DIGITS]


def declared_form(form: Canonical, digest: str) -> Canonical:
    """Return a canonical form with the digest of the code in the place of where it lies."""
    algorithm = dict(form.get("algorithm") or {})
    code_dir = str(algorithm.pop("code_dir", ""))
    if "boot_file" in algorithm:
        algorithm["boot_file"] = str(algorithm["boot_file"]).removeprefix(code_dir.rstrip("/") + "/")
    return {**form, CODE: digest, "algorithm": algorithm}


def place_of(form: Mapping[str, Any]) -> tuple[str, str, str] | None:
    """Return the store, the stack and the digits in the `code_dir` of a reported job, if it has them."""
    found = re.search(_PLACE, str((form.get("algorithm") or {}).get("code_dir", "")))
    return None if found is None else (f"obs://{found[1]}/", found[2], found[3])


def reported_form(form: Canonical, wanted: Canonical, digests: Iterable[str] = ()) -> Canonical:
    """Return the canonical form of a reported job as its declaration would say it, where that declares code.

    Its place has the first digits of its digest; the whole is the wanted one, or one of `digests`.
    """
    code, place = wanted.get(CODE), place_of(form)
    if code is None or place is None:
        return form
    return declared_form(form, known_code(form, [code, *digests]) or f"sha256:{place[2]}{_AND_MORE}")


def known_code(form: Mapping[str, Any], digests: Iterable[str]) -> str | None:
    """Return the one of some digests whose digits are in the `code_dir` of a reported job."""
    place = place_of(form)
    return next((one for one in digests if place and digits(one) == place[2]), None)


def is_shortened(form: Canonical) -> bool:
    """Whether a form has only the first digits of its code, so that no digest covers what it says."""
    return str(form.get(CODE, "")).endswith(_AND_MORE)
