"""The smallest valid history records."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from typing import Any

from reconciler.core.canonical import by_name
from reconciler.core.mutable import mutable_part
from reconciler.core.observed import ObservedJob
from reconciler.core.past import PastRevision
from reconciler.core.phase import Phase
from reconciler.core.record import HistorySnapshot
from reconciler.core.stack import Declared, DesiredJob
from tests.builders import seen


def recorded_declaration(desired: DesiredJob) -> Declared:
    """Return the declaration as an apply records it."""
    return Declared(
        immutable=by_name(desired.covered_by(desired.digest[:1])),
        mutable=mutable_part(desired.body or {}),
        description=desired.description,
        protect=desired.lifecycle.protect,
    )


def past(
    desired: DesiredJob,
    revision: int = 1,
    phase: str | Phase = Phase.COMPLETED,
    *,
    declared: DesiredJob | None = None,
    is_declared_known: bool = True,
    job: ObservedJob | None = None,
    is_stopped: bool = False,
    **members: Any,
) -> PastRevision:
    """A recorded revision of `desired`, or of `job` if given."""
    job = job or seen(desired, revision=revision, phase=phase, **members)
    known = recorded_declaration(declared or desired) if is_declared_known else None
    return PastRevision(
        key=desired.key,
        number=revision,
        name=job.name,
        job=job.id,
        digest=desired.digest,
        phase_text=str(phase),
        created_at_s=job.created_at_s,
        started_at_s=job.started_at_s,
        duration_s=job.duration_s,
        seen_at_s=job.created_at_s,
        declared=known,
        stopped=is_stopped,
        schedule=job.marker.schedule if job.marker else None,
    )


def a_memory(
    *revisions: PastRevision, elsewhere: tuple[str, ...] = (), problem: str | None = None
) -> HistorySnapshot:
    """A history snapshot with these revisions."""
    by_key: Mapping[str, list[PastRevision]] = defaultdict(list)
    for revision in revisions:
        by_key[revision.key].append(revision)
    ordered = {key: tuple(sorted(known, key=lambda r: r.number)) for key, known in sorted(by_key.items())}
    return HistorySnapshot(ordered, elsewhere, problem)
