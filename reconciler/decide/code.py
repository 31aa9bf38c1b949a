"""The uploads in a code store: which revisions use them, and which may be deleted."""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterable, Iterator
from typing import TYPE_CHECKING, Any, NamedTuple

from reconciler.core.code import DIGITS, digits
from reconciler.core.values import timestamp

if TYPE_CHECKING:
    from reconciler.core.observed import ObservedJob
    from reconciler.core.past import PastRevision


class Place(NamedTuple):
    """Where an upload lies, below the URL of its store: `STACK/DIGEST16/`."""

    stack: str
    digits: str


class CodeUse(NamedTuple):
    """A job that was started with some code; `stack`, `key` and `revision` are None if it is not owned."""

    job: str
    phase: str
    active: bool
    stack: str | None = None
    key: str | None = None
    revision: int | None = None
    newest: bool = False

    def spell(self, stack: str) -> str:
        """Name the job for people; `stack` is that of the code."""
        prefix = "" if self.stack == stack else f"{self.stack}/"
        name = self.job if self.key is None else f"{prefix}{self.key} r{self.revision}"
        return f"{name} ({self.phase})" if self.active else name


class Prefix(NamedTuple):
    """What lies at a place. `digest` is None if the manifest object is missing or unreadable.

    `keys` begin with the manifest object, which `files` does not count. `changed_s` is when it was written,
    else the time of the newest file, by the clock of the store.
    """

    place: Place
    digest: str | None
    is_complete: bool
    files: int
    size: int
    changed_s: float
    keys: tuple[str, ...]
    uses: tuple[CodeUse, ...] = ()

    def document(self, address: str) -> dict[str, Any]:
        """Return the value as plain JSON data; `address` is the URL of the store."""
        return {
            "stack": self.place.stack,
            "digest": self.digest,
            "prefix": f"{address}{'/'.join(self.place)}/",
            "complete": self.is_complete,
            "files": self.files,
            "size": self.size,
            "changed_at": timestamp(self.changed_s),
            "used_by": [use._asdict() for use in self.uses],
        }


def uses_of(
    jobs: Collection[ObservedJob], stack: str, past: Iterable[PastRevision]
) -> Iterator[tuple[Place, CodeUse]]:
    """Yield which jobs of a workspace use which code; `past` is what the history knows of a stack there.

    A job uses the code named anywhere in its body, whoever owns it: rather keep too much than too little.
    """
    seen = {job.id for job in jobs}
    aged_out = [r for r in past if r.job not in seen and r.released_at_s is None]
    owned = [(job.marker.stack, job.marker.key, job.marker.revision) for job in jobs if job.marker]
    owned += [(stack, r.key, r.number) for r in aged_out]
    newest = {(of_stack, key): number for of_stack, key, number in sorted(owned)}
    named = re.compile(rf"(?<=/)(?=([a-z0-9-]+)/([0-9a-f]{{{DIGITS}}})/)")
    for job in jobs:
        # A job in an unknown phase may be active.
        use = CodeUse(job.name, job.phase_text, job.is_active or job.phase is None)
        if marker := job.marker:
            owner = (marker.stack, marker.key)
            use = CodeUse(*use[:3], *owner, marker.revision, marker.revision == newest[owner])
        for place in {Place(*found) for found in named.findall(json.dumps(job.body))}:
            yield place, use
    for r in aged_out:
        if r.code_digest:
            is_newest = r.number == newest[stack, r.key]
            use = CodeUse(r.name, r.phase_text, False, stack, r.key, r.number, is_newest)
            yield Place(stack, digits(r.code_digest)), use


def why_kept(upload: Prefix, until_s: float, *, is_known: bool = True) -> str | None:
    """Return why an upload must not be deleted; None if it may. It must be older than `until_s`.

    `is_known` is false if no job of its stack is known here: its jobs may be in another workspace.
    """
    if not is_known:
        return "no job of the stack is known in this workspace"
    if any(use.active for use in upload.uses):
        return "used by an active job"
    if any(use.newest for use in upload.uses):
        return "used by the newest revision of a key"
    return None if upload.changed_s <= until_s else "too recent"
