"""What can be changed on an existing job, on which cloud and in which phase.

The models of the fields have the table (`UpdateInPlace`); this module applies it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple

from reconciler.core.canonical import (
    Canonical,
    SecretName,
    canonical,
    mutable_paths,
    rule_at,
    scalar,
    value_at,
)
from reconciler.core.fields.field_types import Cloud
from reconciler.core.identity import Description, Marker, parse_description
from reconciler.core.observed import ObservedJob
from reconciler.core.phase import Phase, may
from reconciler.core.stack import Declared, DesiredJob
from reconciler.core.values import MARKER_SCHEDULE, Change, PlanWarning
from reconciler.secrets import REDACTED, SecretText, holds_secret, map_leaves, map_with, show

_Path = tuple[str, ...]

DESCRIPTION = ("description",)
_PROTECT, _STOPPED, _KEY = "lifecycle.protect", "marker.stopped", "marker.key"
#: Shown in a review instead of the marker's schedule: a review compares declarations.
SCHEDULE_OPTIONS = ("lifecycle.schedule", "lifecycle.timezone")
_MARKER_PATHS = frozenset({_PROTECT, _STOPPED, _KEY, MARKER_SCHEDULE, *SCHEDULE_OPTIONS})


def is_changeable(path: _Path, phase: Phase, cloud: Cloud) -> bool:
    """Whether the service can change this field on a job in this phase."""
    update = rule_at(path).update
    if update is None or cloud not in update.clouds or (phase.is_terminal and not update.on_ended):
        return False
    return bool(may(update.operation, phase))


def changes_only_marker(changes: Iterable[Change]) -> bool:
    return all(change.path in _MARKER_PATHS for change in changes)


def _fields(body: Mapping[str, Any] | None) -> Iterator[tuple[_Path, Any]]:
    """Yield the mutable fields of a body with their paths, except for the description."""
    for path in mutable_paths():
        if path != DESCRIPTION and (value := value_at(body, path)) is not None:
            yield path, value


class MutableChanges(NamedTuple):
    """The mutable fields that differ: those that can be changed `now`, and those that are `waiting`.

    `unreported` are declared fields that the service does not report and that are assumed to be as declared;
    `is_recorded`: a record of what was sent confirms that.
    """

    now: tuple[Change, ...] = ()
    waiting: tuple[Change, ...] = ()
    unreported: tuple[str, ...] = ()
    is_recorded: bool = False

    def warnings(self, key: str, job: ObservedJob) -> list[PlanWarning]:
        """Return warnings about fields that wait, or that cannot be compared."""
        phase = f"cannot be changed on this target while the job is {job.phase_text}"
        basis = "no record of what was sent; assuming the declared value"
        if self.is_recorded:
            basis = "assuming the value last sent"
        whys = [("deferred", f"{change.path} {phase}") for change in self.waiting]
        whys += [
            ("field not reported", f"the service does not report {path}; {basis}") for path in self.unreported
        ]
        return [PlanWarning(what=what, why=why, key=key) for what, why in whys]


def mutable_changes(
    desired: DesiredJob, job: ObservedJob, marker: Marker, cloud: Cloud, sent: Mapping[str, Any] | None = None
) -> MutableChanges:
    """Compare the mutable part of a declaration with the observed job.

    `sent` are the mutable fields that were last sent for it, by the history; None if unknown. Fields that the
    service does not report are compared with them.

    On a job that has ended only differences of the marker count, except for its digest and `stopped`.
    """
    assert job.phase is not None  # unknown phases are blocked before anything is compared
    now, waiting = _marker_changes(desired, job, marker), list[Change]()
    if job.phase.is_terminal:
        return MutableChanges(tuple(now))
    if desired.description.strip() != job.text.strip():
        now.append(description_change(desired.description, job.text))
    declared = desired.body or {}
    if not any(_fields(declared)):
        return MutableChanges(tuple(now), is_recorded=sent is not None)
    differing = list(_differing(declared, job.body))
    unreported = []
    for path in unreported_paths(declared, job):
        value = value_at(declared, path)
        if sent is not None and not _was_sent(path, value, sent):
            differing.append((path, _form(path, value), _form(path, value_at(sent, path))))
        else:
            unreported.append(".".join(path))
    for path, after, before in differing:
        (now if is_changeable(path, job.phase, cloud) else waiting).extend(_changes(path, before, after))
    return MutableChanges(tuple(now), tuple(waiting), tuple(unreported), sent is not None)


def unreported_paths(declared: Mapping[str, Any], job: ObservedJob) -> tuple[_Path, ...]:
    """Return the declared mutable fields that the job does not show, and that the service may omit.

    Only a record can tell whether such a field was ever sent.
    Source: docs/reference/modelarts.md, "Responses".
    """
    return tuple(
        path
        for path, value in _fields(declared)
        if value and not rule_at(path).is_reported and value_at(job.body, path) is None
    )


def _was_sent(path: _Path, value: Any, sent: Mapping[str, Any]) -> bool:
    """Whether the value equals the one last sent. Records omit fields that contain a secret."""
    last = value_at(sent, path)
    if holds_secret(value):
        return last is None
    return bool(_form(path, value) == _form(path, last))


def _form(path: _Path, value: Any) -> Any:
    return value_at(canonical(_nest(path, value)), path)


def _nest(path: _Path, value: Any) -> Canonical:
    return {} if value is None else _tree_of([(path, value)])


def description_change(declared: str, reported: str) -> Change:
    """Return the change of a description; both texts are without marker."""
    shown = show(declared)
    sensitive = shown != declared
    before = REDACTED if sensitive and reported else reported
    return Change(path="description", before=before or None, after=shown or None, sensitive=sensitive)


def _changes(path: _Path, reported: Any, declared: Any) -> tuple[Change, ...]:
    if isinstance(reported, dict) and isinstance(declared, dict):
        from reconciler.core.diff import changes_between

        return changes_between(_nest(path, reported), _nest(path, declared), forces_new_job=False)
    sensitive = isinstance(declared, SecretName)
    before = REDACTED if sensitive and reported is not None else reported
    return (Change(path=".".join(path), before=before, after=declared, sensitive=sensitive),)


def _differing(declared: Mapping[str, Any], reported: Mapping[str, Any]) -> Iterator[tuple[_Path, Any, Any]]:
    """Yield path, declared form and reported form of each declared mutable field that differs.

    A field that is missing and need not be reported does not differ. A declared default does: e.g. priority 1
    where the job has 2.
    """

    def known(leaf: Any, other: Any) -> Any:
        # A secret without a value may be the one on the job, and what cannot be compared is not drift.
        is_open = isinstance(leaf, SecretText) and not leaf.has_value and isinstance(other, str)
        return other if is_open else leaf

    for path, value in _fields(declared):
        current = value_at(reported, path)
        if current is None and not rule_at(path).is_reported:
            continue
        value = map_with(value, current, known)
        after, before = _form(path, value), _form(path, current)
        # The service has the values of secrets, not their names.
        if map_leaves(after, lambda leaf: leaf.value if isinstance(leaf, SecretName) else leaf) != before:
            # A default has no canonical form, so show the plain value.
            yield path, _shown(after, value), _shown(before, current)


def _marker_changes(desired: DesiredJob, job: ObservedJob, marker: Marker) -> list[Change]:
    changes = []
    if marker.key != desired.key:
        changes.append(Change(path=_KEY, before=marker.key, after=desired.key))
    protect = desired.lifecycle.protect
    if protect is not None and protect != marker.protected:
        changes.append(_flag(_PROTECT, marker.protected, protect))
    if marker.stopped and job.is_active:
        # A stop of ours that never happened: if the flag stayed, a later stop by others would count as ours.
        changes.append(_flag(_STOPPED, before=True, after=False))
    marked, declared = marker.schedule, desired.schedule_mark
    if (marked and marked.digest) != (declared and declared.digest):
        # The start time is not shown, since it changes with each plan.
        before, after = (str(mark) if mark else None for mark in (marked, declared))
        changes.append(Change(path=MARKER_SCHEDULE, before=before, after=after))
    return changes


def _flag(path: str, before: bool, after: bool) -> Change:
    return Change(path=path, before=str(before).lower(), after=str(after).lower())


def renewed_marker(
    desired: DesiredJob, job: ObservedJob, marker: Marker, digest: str, service_s: float
) -> Marker:
    """Return the marker that an update at `service_s`, by the service's clock, writes."""
    protect = desired.lifecycle.protect
    ended = job.phase is not None and job.phase.is_terminal
    renewed = marker._replace(
        key=desired.key,
        digest=digest,
        schedule=desired.renewed_schedule_mark(marker.schedule, service_s),
        protected=marker.protected if protect is None else protect,
        stopped=marker.stopped and ended,
    )
    # The `id` part of an adopted job is kept, whatever the job's name.
    return renewed if marker.key == desired.key else renewed.for_job(job.name, job.id)


def update_body(desired: DesiredJob, job: ObservedJob, marker: Marker, cloud: Cloud) -> dict[str, Any]:
    """Return the body of an update: the whole description, and the declared fields that may change now."""
    assert job.phase is not None
    # A description from `raw` must not replace ours, which has the marker.
    described = {**(desired.body or {}), "description": str(Description(desired.description, marker))}
    return legal_now(described, job.phase, cloud)


def overwritten_fields(body: Mapping[str, Any], job: ObservedJob) -> tuple[Change, ...]:
    """Return the fields of an update's body that differ on the job, as changes from the job's values."""
    changes = []
    text = parse_description(str(body.get("description", ""))).text
    if text.strip() != job.text.strip():
        changes.append(description_change(text, job.text))
    for path, after, before in _differing(body, job.body):
        changes.extend(_changes(path, before, after))
    return tuple(changes)


def mutable_part(body: Mapping[str, Any], *, secret: bool = False) -> dict[str, Any]:
    """Return the mutable fields of a body without secrets, for the history; or those with secrets."""
    return _tree_of((path, value) for path, value in _fields(body) if holds_secret(value) is secret)


def _tree_of(fields: Iterable[tuple[_Path, Any]]) -> dict[str, Any]:
    tree: dict[str, Any] = {}
    for (*above, last), value in fields:
        place = tree
        for name in above:
            place = place.setdefault(name, {})
        place[last] = value
    return tree


def edited_paths(desired: DesiredJob, applied: Declared) -> frozenset[str]:
    """Return the mutable fields whose declaration differs from what was last applied."""
    fields = _fields(desired.body)
    edited = {".".join(path) for path, value in fields if not _was_sent(path, value, applied.mutable)}
    if show(desired.description).strip() != applied.description.strip():
        edited.add("description")
    if desired.lifecycle.protect is not None and desired.lifecycle.protect != applied.protect:
        edited.add(_PROTECT)
    return frozenset(edited)


def with_secrets_of(body: Mapping[str, Any], part: Mapping[str, Any]) -> dict[str, Any]:
    """Return a recorded mutable part, completed by the fields of a body that contain secrets."""
    return _tree_of((*_fields(mutable_part(body, secret=True)), *_fields(part)))


def declared_changes(before: DesiredJob, after: DesiredJob) -> tuple[list[Change], list[Change]]:
    """Compare the mutable parts of two declarations of the same job.

    Returns what an update sends, and what is no longer declared, so that the job keeps its values.
    """
    from reconciler.core.diff import changes_between

    sent, dropped = list[Change](), list[Change]()
    if before.description.strip() != after.description.strip():
        sent.append(description_change(after.description, show(before.description)))
    for path in mutable_paths():
        old, new = value_at(before.body, path), value_at(after.body, path)
        if path != DESCRIPTION and _form(path, old) != _form(path, new):
            forms = (_nest(path, _shown(_form(path, value), value)) for value in (old, new))
            (dropped if new is None else sent).extend(changes_between(*forms, forces_new_job=False))
    was_protected, protect = before.lifecycle.protect is True, after.lifecycle.protect
    if protect is not None and protect != was_protected:
        sent.append(_flag(_PROTECT, was_protected, protect))
    elif protect is None and was_protected:
        dropped.append(Change(path=_PROTECT, before="true"))
    if before.schedule_mark != after.schedule_mark:
        spelled = [schedule[:2] if (schedule := job.schedule) else (None, None) for job in (before, after)]
        pairs = zip(SCHEDULE_OPTIONS, *spelled, strict=True)
        sent += [Change(path=option, before=old, after=new) for option, old, new in pairs if old != new]
    return sent, dropped


def _shown(form: Any, value: Any) -> Any:
    return scalar(value) if form is None and isinstance(value, str | int | float) else form


def unapplied_paths(sent: Mapping[str, Any], job: ObservedJob) -> tuple[str, ...]:
    """Return the paths of an update that the job, read back, does not have."""
    missing = [] if job.description.rstrip() == str(sent["description"]).rstrip() else ["description"]
    return (*missing, *(".".join(path) for path, _, _ in _differing(sent, job.body)))


def legal_now(body: Mapping[str, Any], phase: Phase, cloud: Cloud) -> dict[str, Any]:
    """Return the mutable fields of a body that can be changed in this phase."""
    fields = ((path, value_at(body, path)) for path in mutable_paths() if is_changeable(path, phase, cloud))
    return _tree_of((path, value) for path, value in fields if value not in (None, {}))
