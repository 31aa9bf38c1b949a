"""The mutable fields of one job: changed on the service since the last apply, or edited in the manifest."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any, NamedTuple

from reconciler.core.expression import Reference, parts_of
from reconciler.core.fields.marks import Cloud
from reconciler.core.lifecycle import Lifecycle
from reconciler.core.masking import mask
from reconciler.core.mutable import MutableChanges, edited_paths, mutable_changes, with_secrets_of
from reconciler.core.observed_job import ObservedJob
from reconciler.core.ownership import Revision
from reconciler.core.stack import Declared, DesiredJob
from reconciler.core.values import MARKER_SCHEDULE, Change, PlanWarning
from reconciler.secrets import matches_redacted, show


class FieldDrift(NamedTuple):
    """The mutable fields that differ on one job.

    `modified` are other than what `basis` says, each as it was and as it is now; `pending` are those
    that an update would change because they were edited in the manifest.
    """

    modified: tuple[Change, ...]
    pending: tuple[Change, ...]
    basis: str
    compared: MutableChanges

    def warnings(self, key: str, job: ObservedJob) -> list[PlanWarning]:
        """What cannot be changed now, or cannot be compared."""
        return self.compared.warnings(key, job)


def compare_fields(
    declared: DesiredJob, revision: Revision, applied: Declared | None, cloud: Cloud
) -> FieldDrift:
    """Compare a job with what was last applied to it, and where that is not known with what is declared."""
    job, marker = revision.job, revision.marker
    # A renaming that waits to be applied is said apart, so the key is the one on the marker.
    as_named = replace(declared, key=marker.key)
    sent = applied.mutable if applied else None
    wanted = mutable_changes(as_named, job, marker, cloud, sent)
    # What the marker says of the schedule was written by an apply, as its digest was: the manifest is ahead.
    schedule = tuple(change for change in wanted.now if change.path == MARKER_SCHEDULE)
    if applied is None:
        return FieldDrift(_modified(mask(wanted.now)), schedule, "is declared", wanted)
    since = mutable_changes(_as_applied(as_named, revision, applied), job, marker, cloud, sent)
    edited = edited_paths(declared, applied)
    pending = tuple(change for change in mask(wanted.now, [applied]) if _is_below(change.path, edited))
    modified = _modified(mask(since.now, [applied]))
    return FieldDrift(modified, (*pending, *schedule), "was last applied", wanted)


def _as_applied(declared: DesiredJob, revision: Revision, applied: Declared) -> DesiredJob:
    """The declaration as it was last applied. A secret is not recorded, so the declared one stands for it.

    Neither is a text that only has the letters of one; a short secret may be an ordinary word.
    """
    description = _restored(applied.description, declared.description, revision.job.text)
    if show(declared.description) == description:
        description = declared.description
    elif any(isinstance(part, Reference) for part in parts_of(description)):
        description = revision.job.text  # of a secret only the name is recorded: nobody knows the text
    return DesiredJob(
        key=declared.key,
        body=with_secrets_of(
            declared.body or {}, _restored(applied.mutable, declared.body, revision.job.body)
        ),
        digest=revision.marker.digest,
        description=description,
        lifecycle=Lifecycle(protect=applied.protect),
    )


def _restored(recorded: Any, *others: Any) -> Any:
    """What was recorded; in the place of a text that was redacted the first other that it may have been."""
    if isinstance(recorded, str):
        texts = (text for text in _of_type(str, others) if matches_redacted(recorded, text))
        return next(texts, recorded)
    if isinstance(recorded, Mapping):
        trees = _of_type(Mapping, others)
        return {
            name: _restored(value, *(tree.get(name) for tree in trees)) for name, value in recorded.items()
        }
    if isinstance(recorded, list):
        lists = (other for other in _of_type(list, others) if len(other) == len(recorded))
        return [_restored(*items) for items in zip(recorded, *lists, strict=True)]
    return recorded


def _of_type(kind: type, values: Iterable[Any]) -> list[Any]:
    return [value for value in values if isinstance(value, kind)]


def _is_below(path: str, fields: Iterable[str]) -> bool:
    return any(path == field or path.startswith(f"{field}.") for field in fields)


def _modified(changes: Iterable[Change]) -> tuple[Change, ...]:
    return tuple(_turned(change) for change in changes if change.path != MARKER_SCHEDULE)


def _turned(change: Change) -> Change:
    """An update's change seen from the other side: what was left, and what is there now."""
    return change.model_copy(update={"before": change.after, "after": change.before})


def spell_changes(changes: Iterable[Change]) -> str:
    """Each field with its value before and after, on one line."""
    return "; ".join(f"{one.path} {_spell(one.before)} -> {_spell(one.after)}" for one in changes)


def _spell(value: Any) -> str:
    return "(none)" if value is None else json.dumps(show(value), ensure_ascii=False)
