"""What a look at the service adds to what is written down: a comparison of values, without a database."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple, Protocol

from reconciler.core.ownership import Revision
from reconciler.core.record import RevisionId
from reconciler.records.serialization import read_phases, storable_text

#: A look that is older than the one written down by less than this came late; by more, a clock was wrong.
_LATE_S = 3600.0
#: PostgreSQL's integers go so far; the service's word is taken for what fits.
_MOST = 2**31 - 1


class RecordedRow(Protocol):
    """A revision as it is written down; a row of the table."""

    job: str
    digest: str
    phases: str
    duration_s: float | None
    seen_at_s: float | None
    released_at_s: float | None


class ObservationChanges(NamedTuple):
    """Rows to write, rows to move first, and keys of which the journal may know what was declared."""

    rows: list[dict[str, Any]]
    moves: list[dict[str, Any]]
    undeclared: set[str]


def observation_changes(
    known: Mapping[RevisionId, RecordedRow],
    seen: Iterable[Revision],
    at_s: float,
    to_text: Callable[[str], str] = storable_text,
) -> ObservationChanges:
    """Compare a look with what is known; `to_text` makes of a phase that nobody knows what may be written.

    A job that stands under another key or number now has been renamed (`formerly`): it takes its past along.
    """
    # Of two jobs that claim one revision the younger is meant.
    by_place = {
        RevisionId(one.marker.key, one.number): one
        for one in sorted(seen, key=lambda one: one.job.created_at_s or 0.0)
    }
    # A row of a job that was released stays what it is: the job is another revision if it was adopted since.
    place_by_job = {
        row.job: place for place, row in known.items() if place not in by_place and row.released_at_s is None
    }
    found = ObservationChanges([], [], set())
    for place, one in by_place.items():
        row, now = known.get(place), _now(place, one, to_text)
        was = place_by_job.get(now["job"])
        past: tuple[RecordedRow | None, ...] = (row,)
        if was is not None:
            past = (known[was], row)
            row = known[was]
            to = {"to_key": place.key, "to_number": place.number}
            found.moves.append({"of_job": now["job"], "at_key": was.key, "at_number": was.number, **to})
        if was is None and row is not None and not _is_change(row, now, one, at_s):
            continue
        found.rows.append({**now, "seen_at_s": at_s, "phases": _phases(past, now, at_s)})
        if row is None or row.digest != now["digest"]:
            found.undeclared.add(place.key)
    return found


def _now(place: RevisionId, one: Revision, to_text: Callable[[str], str]) -> dict[str, Any]:
    """The columns that a look fills."""
    job = one.job
    return {
        **place._asdict(),
        "name": storable_text(job.name),
        "job": storable_text(job.id),
        "digest": one.marker.digest,
        "phase": to_text(job.phase_text) if job.phase is None else job.phase_text,
        "created_at_s": job.created_at_s,
        "started_at_s": job.started_at_s,
        "duration_s": job.duration_s,
        "node_count": max(0, min(job.node_count, _MOST)),
        "stopped": one.marker.stopped,
        "schedule": "" if one.marker.schedule is None else str(one.marker.schedule),
        "released_at_s": None,
    }


def _is_change(row: RecordedRow, now: Mapping[str, Any], one: Revision, at_s: float) -> bool:
    """Whether the look shows something new. That an active job runs on is nothing new."""
    if row.seen_at_s is not None and row.job == now["job"] and 0 < row.seen_at_s - at_s < _LATE_S:
        return False
    if row.job == now["job"] and row.released_at_s is not None and at_s <= row.released_at_s:
        return False  # the marker has been taken off since
    passed_over = {"duration_s"} if one.job.is_active else set()
    return any(getattr(row, name) != value for name, value in now.items() if name not in passed_over)


def _phases(rows: Iterable[RecordedRow | None], now: Mapping[str, Any], at_s: float) -> str:
    """The phases seen so far, and this one if it is another than the last."""
    past: list[tuple[str, float]] = []
    for row in rows:
        if row is not None and row.job == now["job"]:
            seen = read_phases(row.phases)
            past += seen[1:] if past and seen and seen[0][0] == past[-1][0] else seen
    if not past or past[-1][0] != now["phase"]:
        past.append((now["phase"], at_s))
    return json.dumps(past)
