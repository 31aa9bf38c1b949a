"""The digest: a letter that names the algorithm, and 12 hex digits over the immutable part.

A released algorithm never changes: a change of it would replace every job that runs. A new one gets a
new letter, and the old one stays, so that an upgrade of the tool changes no plan.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable

from reconciler.core.normal import Canonical

#: lifecycle.rerun is part of what was declared; the space keeps it apart from every field of the service.
RERUN = "lifecycle rerun"


def _sha256_of_json(immutable: Canonical) -> str:
    text = json.dumps(immutable, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:12]


ALGORITHMS: dict[str, Callable[[Canonical], str]] = {"a": _sha256_of_json}
CURRENT = "a"


def declared(immutable: Canonical, rerun: str | None) -> Canonical:
    """What the digest covers: the immutable part, and the text of `lifecycle.rerun`."""
    return {**immutable, RERUN: rerun} if rerun else immutable


def digest_of(covered: Canonical, algorithm: str = CURRENT) -> str:
    """Return e.g. `a3f9a2c1b7d4e` for what `declared` returned."""
    return algorithm + ALGORITHMS[algorithm](covered)


def is_known(digest: str) -> bool:
    """Whether this version can compute a digest with that letter."""
    return digest[:1] in ALGORITHMS
