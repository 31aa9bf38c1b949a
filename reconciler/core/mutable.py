"""What can be changed on a job that exists, for which cloud and in which phase.

The table itself stands on the fields of a job (`UpdateInPlace`); here it is read.
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
from reconciler.secrets import REDACTED, SecretText, holds_secret, map_beside, map_leaves, show

_Path = tuple[str, ...]

DESCRIPTION = ("description",)
_PROTECT, _STOPPED, _KEY = "lifecycle.protect", "marker.stopped", "marker.key"
#: What a review says in place of it: the declarations, for there is no marker.
SCHEDULE_OPTIONS = ("lifecycle.schedule", "lifecycle.timezone")
_MARKER_PATHS = frozenset({_PROTECT, _STOPPED, _KEY, MARKER_SCHEDULE, *SCHEDULE_OPTIONS})


def is_changeable(path: _Path, phase: Phase, cloud: Cloud) -> bool:
    """Whether the service would change this field on a job in this phase."""
    update = rule_at(path).update
    if update is None or cloud not in update.clouds or (phase.is_terminal and not update.on_ended):
        return False
    return bool(may(update.operation, phase))


def are_of_marker_only(changes: Iterable[Change]) -> bool:
    """Whether nothing is changed but the marker."""
    return all(change.path in _MARKER_PATHS for change in changes)


def _fields(body: Mapping[str, Any] | None) -> Iterator[tuple[_Path, Any]]:
    """The mutable fields that a body has, each with its path; the description, which we write, aside."""
    for path in mutable_paths():
        if path != DESCRIPTION and (value := value_at(body, path)) is not None:
            yield path, value


class MutableChanges(NamedTuple):
    """The mutable fields that differ: those that can be changed now, and those that wait.

    `unreported` are declared fields that the service does not report and that are taken to be as they
    are declared; `is_recorded` says whether a record of what was sent bears that out.
    """

    now: tuple[Change, ...] = ()
    waiting: tuple[Change, ...] = ()
    unreported: tuple[str, ...] = ()
    is_recorded: bool = False

    def warnings(self, key: str, job: ObservedJob) -> list[PlanWarning]:
        """What a person should know of fields that wait, or cannot be compared."""
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
    desired: DesiredJob,
    job: ObservedJob,
    marker: Marker,
    cloud: Cloud,
    sent: Mapping[str, Any] | None = None,
) -> MutableChanges:
    """Compare the mutable part of a declaration with the observed job.

    `sent` are the mutable fields that were last sent for it, as a history store has them; None where
    nobody knows. A field that the service does not report is compared with them.

    On a job that has ended only a difference of the marker counts, its digest and `stopped` aside.
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
    for path, wanted, found in differing:
        (now if is_changeable(path, job.phase, cloud) else waiting).extend(_changes(path, found, wanted))
    return MutableChanges(tuple(now), tuple(waiting), tuple(unreported), sent is not None)


def unreported_paths(declared: Mapping[str, Any], job: ObservedJob) -> tuple[_Path, ...]:
    """The declared mutable fields that this job does not show, and that a service need not show.

    Whether such a field was ever sent only a record can tell.
    Source: docs/reference/modelarts.md, "Responses".
    """
    return tuple(
        path
        for path, value in _fields(declared)
        if value and not rule_at(path).is_reported and value_at(job.body, path) is None
    )


def _was_sent(path: _Path, value: Any, sent: Mapping[str, Any]) -> bool:
    """Whether a value is the one that was last sent. A record leaves out what holds a secret."""
    last = value_at(sent, path)
    if holds_secret(value):
        return last is None
    return bool(_form(path, value) == _form(path, last))


def _form(path: _Path, value: Any) -> Any:
    return value_at(canonical(_nest(path, value)), path)


def _nest(path: _Path, value: Any) -> Canonical:
    return {} if value is None else _put([(path, value)])


def description_change(wanted: str, found: str) -> Change:
    """The change of a description, both texts without a marker."""
    shown = show(wanted)
    sensitive = shown != wanted
    before = REDACTED if sensitive and found else found
    return Change(path="description", before=before or None, after=shown or None, sensitive=sensitive)


def _changes(path: _Path, found: Any, wanted: Any) -> tuple[Change, ...]:
    if isinstance(found, dict) and isinstance(wanted, dict):
        from reconciler.core.diff import changes_between

        return changes_between(_nest(path, found), _nest(path, wanted), forces_new_job=False)
    sensitive = isinstance(wanted, SecretName)
    before = REDACTED if sensitive and found is not None else found
    return (Change(path=".".join(path), before=before, after=wanted, sensitive=sensitive),)


def _differing(declared: Mapping[str, Any], reported: Mapping[str, Any]) -> Iterator[tuple[_Path, Any, Any]]:
    """Yield path, wanted and found form of each declared mutable field that the job shows otherwise.

    A field that is not there, and need not be reported, shows nothing. A declared default counts:
    priority 1 was asked for where the job has 2.
    """
    for path, value in _fields(declared):
        seen = value_at(reported, path)
        if seen is None and not rule_at(path).is_reported:
            continue
        value = map_beside(value, seen, _assumed)
        wanted, found = _form(path, value), _form(path, seen)
        # The service got the values of secrets, for their names.
        if map_leaves(wanted, lambda leaf: leaf.value if isinstance(leaf, SecretName) else leaf) != found:
            # A default has no canonical form; people are shown what stands there.
            yield path, _shown(wanted, value), _shown(found, seen)


def _marker_changes(desired: DesiredJob, job: ObservedJob, marker: Marker) -> list[Change]:
    changes = []
    if marker.key != desired.key:
        changes.append(Change(path=_KEY, before=marker.key, after=desired.key))
    protect = desired.lifecycle.protect
    if protect is not None and protect != marker.protected:
        changes.append(_flag(_PROTECT, marker.protected, protect))
    if marker.stopped and job.is_active:
        # We meant to end it once and did not; left there, a stop by somebody else would look like ours.
        changes.append(_flag(_STOPPED, before=True, after=False))
    there, wanted = marker.schedule, desired.schedule_mark
    if (there and there.digest) != (wanted and wanted.digest):
        # The time from which it counts is that of the plan: as any time that grows it is not shown.
        before, after = (str(one) if one else None for one in (there, wanted))
        changes.append(Change(path=MARKER_SCHEDULE, before=before, after=after))
    return changes


def _flag(path: str, before: bool, after: bool) -> Change:
    return Change(path=path, before=str(before).lower(), after=str(after).lower())


def renewed_marker(
    desired: DesiredJob, job: ObservedJob, marker: Marker, digest: str, service_s: float
) -> Marker:
    """The marker as an update writes it at `service_s`, by the service's clock."""
    protect = desired.lifecycle.protect
    ended = job.phase is not None and job.phase.is_terminal
    renewed = marker._replace(
        key=desired.key,
        digest=digest,
        schedule=desired.renewed_schedule_mark(marker.schedule, service_s),
        protected=marker.protected if protect is None else protect,
        stopped=marker.stopped and ended,
    )
    # Adopted jobs keep the part that says which job it is, whatever their name.
    return renewed if marker.key == desired.key else renewed.for_job(job.name, job.id)


def update_body(desired: DesiredJob, job: ObservedJob, marker: Marker, cloud: Cloud) -> dict[str, Any]:
    """The body of the service's update call: the whole description, and all declared fields legal now."""
    assert job.phase is not None
    # A description that `raw` puts into the body is none of ours, and would take the marker's place.
    described = {**(desired.body or {}), "description": str(Description(desired.description, marker))}
    return legal_now(described, job.phase, cloud)


def overwritten_fields(body: Mapping[str, Any], job: ObservedJob) -> tuple[Change, ...]:
    """The fields of an update's body that the job shows otherwise: what is there now, and what is written."""
    changes = []
    text = parse_description(str(body.get("description", ""))).text
    if text.strip() != job.text.strip():
        changes.append(description_change(text, job.text))
    for path, wanted, found in _differing(body, job.body):
        changes.extend(_changes(path, found, wanted))
    return tuple(changes)


def mutable_part(body: Mapping[str, Any], *, secret: bool = False) -> dict[str, Any]:
    """The mutable fields of a create body that hold no secret, for the history; or those that do."""
    return _put((path, value) for path, value in _fields(body) if holds_secret(value) is secret)


def _put(fields: Iterable[tuple[_Path, Any]]) -> dict[str, Any]:
    tree: dict[str, Any] = {}
    for (*above, last), value in fields:
        place = tree
        for name in above:
            place = place.setdefault(name, {})
        place[last] = value
    return tree


def edited_paths(desired: DesiredJob, applied: Declared) -> frozenset[str]:
    """The mutable fields that are declared otherwise than they were last applied."""
    fields = _fields(desired.body)
    edited = {".".join(path) for path, value in fields if not _was_sent(path, value, applied.mutable)}
    if show(desired.description).strip() != applied.description.strip():
        edited.add("description")
    if desired.lifecycle.protect is not None and desired.lifecycle.protect != applied.protect:
        edited.add(_PROTECT)
    return frozenset(edited)


def with_secrets_of(body: Mapping[str, Any], part: Mapping[str, Any]) -> dict[str, Any]:
    """The recorded mutable part, with the fields of a body that it leaves out because they hold a secret."""
    return _put((*_fields(mutable_part(body, secret=True)), *_fields(part)))


def declared_changes(before: DesiredJob, after: DesiredJob) -> tuple[list[Change], list[Change]]:
    """Compare the mutable part of two declarations of the same job.

    Returns what an update sends, and what is declared no longer, so that the job keeps its values.
    """
    from reconciler.core.diff import changes_between

    sent, left = list[Change](), list[Change]()
    if before.description.strip() != after.description.strip():
        sent.append(description_change(after.description, show(before.description)))
    for path in mutable_paths():
        was, now = value_at(before.body, path), value_at(after.body, path)
        if path != DESCRIPTION and _form(path, was) != _form(path, now):
            forms = (_nest(path, _shown(_form(path, value), value)) for value in (was, now))
            (left if now is None else sent).extend(changes_between(*forms, forces_new_job=False))
    was_protected, protect = before.lifecycle.protect is True, after.lifecycle.protect
    if protect is not None and protect != was_protected:
        sent.append(_flag(_PROTECT, was_protected, protect))
    elif protect is None and was_protected:
        left.append(Change(path=_PROTECT, before="true"))
    if before.schedule_mark != after.schedule_mark:
        spelled = [one[:2] if (one := job.schedule) else (None, None) for job in (before, after)]
        pairs = zip(SCHEDULE_OPTIONS, *spelled, strict=True)
        sent += [Change(path=option, before=was, after=now) for option, was, now in pairs if was != now]
    return sent, left


def _assumed(declared: Any, seen: Any) -> Any:
    """What is declared; a secret whose value is not at hand is taken for what stands there.

    Nobody can say whether it is the declared one, and what cannot be compared is no drift.
    """
    is_open = isinstance(declared, SecretText) and not declared.has_value and isinstance(seen, str)
    return seen if is_open else declared


def _shown(form: Any, value: Any) -> Any:
    return scalar(value) if form is None and isinstance(value, str | int | float) else form


def did_not_take(sent: Mapping[str, Any], job: ObservedJob) -> tuple[str, ...]:
    """The paths of an update that the job, read back, shows otherwise."""
    missing = [] if job.description.rstrip() == str(sent["description"]).rstrip() else ["description"]
    return (*missing, *(".".join(path) for path, _, _ in _differing(sent, job.body)))


def legal_now(body: Mapping[str, Any], phase: Phase, cloud: Cloud) -> dict[str, Any]:
    """The mutable fields of a body that can be changed in a phase, which may have moved since."""
    fields = ((path, value_at(body, path)) for path in mutable_paths() if is_changeable(path, phase, cloud))
    return _put((path, value) for path, value in fields if value not in (None, {}))
