"""The digest: a letter that names the algorithm, and 12 hex digits over the immutable part.

A released algorithm never changes: a change of it would replace every job that runs. A new one gets a
new letter, and the old one stays, so that an upgrade of the tool changes no plan.

| letter | since | covers |
|---|---|---|
| a | 0.1.0 | the canonical form; a number or boolean as Python writes it, however the file spells it |
| b | the version after 0.1.0 | the same, with the spelling of the file where the service wants text |
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping
from typing import Any

from reconciler.core.body import manifest_form
from reconciler.core.canonical import Canonical, canonical, split
from reconciler.core.scalar import as_released, walk_texts

#: lifecycle.rerun is part of what was declared; the space keeps it apart from every field of the service.
RERUN = "lifecycle rerun"


def _sha256_of_json(immutable: Canonical) -> str:
    text = json.dumps(immutable, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:12]


ALGORITHMS: dict[str, Callable[[Canonical], str]] = {"a": _sha256_of_json, "b": _sha256_of_json}
CURRENT = "b"


def declared(immutable: Canonical, rerun: str | None) -> Canonical:
    """What the digest covers: the immutable part, and the text of `lifecycle.rerun`."""
    return {**immutable, RERUN: rerun} if rerun else immutable


def covered_by(letter: str, body: Mapping[str, Any], rerun: str | None) -> Canonical:
    """What a digest with that letter covers of a create body and of `lifecycle.rerun`."""
    if letter == "a":
        body, rerun = walk_texts(body, as_released), None if rerun is None else as_released(rerun)
    return declared(split(canonical(manifest_form(body))).immutable, rerun)


def digest_of(covered: Canonical, algorithm: str = CURRENT) -> str:
    """Return e.g. `a3f9a2c1b7d4e` for what `declared` returned."""
    return algorithm + ALGORITHMS[algorithm](covered)


def is_of_same_form(one: str, other: str) -> bool:
    """Whether two digests are of one canonical form, whichever version computed each.

    The algorithms hash a form in the same way, so equal digits are an equal form. Unequal ones of two
    letters say nothing: the letters give some manifests two forms.
    """
    return one == other or (is_known(one) and is_known(other) and one[1:] == other[1:])


def is_known(digest: str) -> bool:
    """Whether this version can compute a digest with that letter."""
    return digest[:1] in ALGORITHMS
