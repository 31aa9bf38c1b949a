"""The mutable fields: what the update operation may change of a job, in one table.

Source: the request of "Changing the Description of a Training Job" in the API documents; those of Open
Telekom Cloud know the description only.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from reconciler.emulator import validation
from reconciler.emulator.errors import ApiError, invalid
from reconciler.emulator.schemas import TEXT_MAP, Schema, put_at, value_at

_ANNOTATIONS = frozenset({"jupyter-lab/enable"})
"""The annotations that may be changed."""


class MutableField(NamedTuple):
    """One field. `path` is its place in the update request, `stored_at` its place in the job.

    Of a mapping each member is changed by itself. `check` refuses a value, None where the field is absent.
    `only_in` is the one phase in which it may be changed; None: any but Terminating.
    """

    path: str
    stored_at: str
    schema: Schema
    check: Callable[[Any], None] = lambda _: None
    on_otc: bool = False
    only_in: str | None = None


def _check_annotations(annotations: Mapping[str, str] | None) -> None:
    if others := (annotations or {}).keys() - _ANNOTATIONS:
        raise invalid(f"metadata.annotation {', '.join(sorted(others))} cannot be changed")


FIELDS = (
    MutableField("description", "metadata.description", str, validation.check_description, on_otc=True),
    MutableField(
        "spec.schedule_policy.priority",
        "spec.schedule_policy.priority",
        int,
        validation.check_priority,
        only_in="Pending",
    ),
    MutableField("spec.schedule_policy.preemptible", "spec.schedule_policy.preemptible", bool),
    MutableField(
        "spec.notification",
        "spec.notification",
        {"topic_urn": str, "events": [str]},
        validation.check_notification,
    ),
    MutableField("endpoints.ssh.key_pair_names", "endpoints.ssh.key_pair_names", [str]),
    MutableField("metadata.annotation", "metadata.annotations", TEXT_MAP, _check_annotations),
)


def _update_schema() -> Schema:
    schema: dict[str, Any] = {}
    for field in FIELDS:
        put_at(schema, field.path, field.schema)
    return schema


UPDATE = _update_schema()
"""The schema of an update request."""


def check_update(update: Mapping[str, Any], cloud: str) -> None:
    """Refuse an update that no job could take; its types have been checked before.

    Raises:
        ApiError: a field that this cloud does not change, or a value that is not allowed.
    """
    known = {field.path for field in FIELDS if field.on_otc}
    if cloud == "otc" and (others := update.keys() - known):
        raise invalid(f"{', '.join(sorted(others))} cannot be changed")
    for field in FIELDS:
        field.check(value_at(update, field.path))


def check_phase(update: Mapping[str, Any], phase: str) -> None:
    """Refuse an update of what a job in this phase keeps.

    Raises:
        ApiError: 400 ModelArts.2858.
    """
    if phase == "Terminating":
        raise ApiError("ModelArts.2858", "The job is being terminated and cannot be changed.")
    for field in FIELDS:
        if field.only_in not in (None, phase) and value_at(update, field.path) is not None:
            name = field.path.rpartition(".")[2]
            raise ApiError(
                "ModelArts.2858", f"The {name} can be changed only while the job is {field.only_in}."
            )


def merge(body: dict[str, Any], update: Mapping[str, Any]) -> None:
    """Put the values of an update into the body of a job; what is absent or null is left alone."""
    for field in FIELDS:
        value = value_at(update, field.path)
        if isinstance(value, Mapping):
            given = {name: member for name, member in value.items() if member is not None}
            value = (value_at(body, field.stored_at) or {}) | given if given else None
        if value is not None:
            put_at(body, field.stored_at, value)
