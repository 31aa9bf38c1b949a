"""One job as the service answers it → `ObservedJob`, or `Unreadable` where a field we need is not there.

Lenient: unknown fields stay in `body`, numbers may be text, null is absent. Needed are `metadata.id`,
`metadata.name`, `status.phase`, and a description that is text or nothing.

Written by hand: a thousand jobs in a few milliseconds.

Source: docs/modelarts.md, "Responses" and "Contradictions".
"""

from __future__ import annotations

from math import isfinite
from typing import Any, TypeGuard

from reconciler.core.identity import MARKER_BEGIN, Marker, parse_description
from reconciler.core.observed_job import ObservedJob, Unreadable


def read_job(answer: Any) -> ObservedJob | Unreadable:
    """Read one job; times come in milliseconds, and 0 stands for none."""
    if not isinstance(answer, dict):
        return Unreadable("a list entry is not an object")
    metadata, status = answer.get("metadata"), answer.get("status")
    if not isinstance(metadata, dict):
        return Unreadable("metadata is missing or not an object")
    job_id, name, description = metadata.get("id"), metadata.get("name"), metadata.get("description")
    if not isinstance(status, dict):
        status = {}
    phase = status.get("phase")
    is_described = isinstance(description, str | None)
    if not (_is_text(job_id) and _is_text(name) and _is_text(phase) and is_described):
        return _unreadable(metadata, status)
    # Of other people's jobs nothing is compared or stored, and a thousand of them would take their time.
    if description and MARKER_BEGIN in description and (oddity := find_oddity(answer)):
        return _withheld(job_id, name, description, oddity)
    secondary = status.get("secondary_phase")
    return ObservedJob(
        id=job_id,
        name=name,
        description=description or "",
        phase_text=phase,
        secondary_phase=_text(secondary) or "",
        created_at_s=_seconds(metadata.get("create_time")),
        started_at_s=_seconds(status.get("start_time")),
        duration_s=_seconds(status.get("duration")),
        node_count=_node_count(answer),
        body=answer,
    )


def _is_text(value: Any) -> TypeGuard[str]:
    return isinstance(value, str) and value != ""


def _unreadable(metadata: dict[str, Any], status: dict[str, Any]) -> Unreadable:
    job_id, name, description = (_text(metadata.get(key)) for key in ("id", "name", "description"))
    needed = {
        "metadata.id": job_id,
        "metadata.name": name,
        "status.phase": _text(status.get("phase")),
    }
    wrong = [path for path, value in needed.items() if not value]
    if not (metadata.get("description") is None or isinstance(metadata["description"], str)):
        wrong.append("metadata.description")
    claimed: Marker | None = parse_description(description).marker if description else None
    return Unreadable(f"{', '.join(wrong)} missing or not text", name or None, job_id or None, claimed)


#: A job has ten levels at most, and numbers of 64 bits.
_DEEPEST = 64
_LARGEST = 10**30
_CONTAINERS = frozenset({dict, list})
_NUMBERS = frozenset({int, float})


def find_oddity(answer: dict[str, Any]) -> str | None:
    """Return what in a job no document, comparison or store could hold; None if there is nothing like it."""
    holders: list[Any] = [answer]
    for _ in range(_DEEPEST):
        texts: list[str] = []
        below: list[Any] = []
        for holder in holders:
            if holder.__class__ is dict:
                texts += holder
                holder = holder.values()
            for value in holder:
                kind = value.__class__
                if kind is str:
                    texts.append(value)
                elif kind in _CONTAINERS:
                    below.append(value)
                elif kind in _NUMBERS and not -_LARGEST < value < _LARGEST:
                    return "a number that is out of range or not finite"
        if not all(map(str.isascii, texts)) and not _is_unicode("".join(texts)):
            return "text that is not valid Unicode"
        if not below:
            return None
        holders = below
    return f"values nested more deeply than {_DEEPEST} levels"


def _is_unicode(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _withheld(job_id: str, name: str, description: str | None, oddity: str) -> Unreadable:
    # These three are shown and compared, so they must be texts like any other.
    job_id, name, description = (
        text.encode("utf-8", "replace").decode() for text in (job_id, name, description or "")
    )
    return Unreadable(f"it contains {oddity}", name, job_id, parse_description(description).marker)


def _text(value: Any) -> str | None:
    return value if isinstance(value, str) else None


def number(value: Any) -> float | None:
    """Read a finite number that may be spelled as text, or None."""
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        return None
    try:
        read = float(value)
    except (ValueError, OverflowError):
        return None
    return read if isfinite(read) else None


def _seconds(milliseconds: Any) -> float | None:
    if milliseconds.__class__ is int:
        # Nearly all of them, and a thousand jobs have three thousand.
        return milliseconds / 1000 if 0 < milliseconds < 1 << 60 else None
    read = number(milliseconds)
    return read / 1000 if read and read > 0 else None


def _node_count(answer: dict[str, Any]) -> int:
    """Nodes of the job; of all its tasks for a heterogeneous one. 1 where nothing is said."""
    spec = answer.get("spec")
    resource = spec.get("resource") if isinstance(spec, dict) else None
    if isinstance(resource, dict) and "node_count" in resource:
        return _count(resource["node_count"])
    tasks = answer.get("tasks")
    if not isinstance(tasks, list):
        return 1
    resources = [task.get("task_resource") for task in tasks if isinstance(task, dict)]
    return sum(_count(r.get("node_count")) for r in resources if isinstance(r, dict)) or 1


def _count(value: Any) -> int:
    if value.__class__ is int:
        return max(1, value)
    read = number(value)
    return max(1, int(read)) if read else 1
