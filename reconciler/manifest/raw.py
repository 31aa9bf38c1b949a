"""What is wrong with `raw`: members that it must not hold, and those whose type would break the body."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from reconciler.core.body import HOISTED, RAW_FORBIDDEN
from reconciler.core.canonical import FieldRule, rules
from reconciler.errors import Diagnostic
from reconciler.manifest.positions import Member, PathStep
from reconciler.manifest.problems import NAMED_LISTS, Origin, found


def raw_problems(raw: Any, origin: Origin) -> Iterator[Diagnostic]:
    """What `raw` must not hold, and members whose type would break the body."""
    if not isinstance(raw, dict):
        return
    if "status" in raw:
        yield origin.diagnose(
            ("raw", "status"), "not allowed in raw", "status is reported by the service", at_key=True
        )
    metadata = raw.get("metadata", {})
    if not isinstance(metadata, dict):
        yield _raw_type(origin, ("raw", "metadata"), metadata, "a mapping")
        metadata = {}
    for name in RAW_FORBIDDEN["metadata"]:
        if name in metadata:
            why = f"metadata.{name} is part of the job's identity"
            yield origin.diagnose(("raw", "metadata", name), "not allowed in raw", why, at_key=True)
    for name in HOISTED:
        if name in metadata:
            yield from _raw_types(metadata[name], rules().members[name], origin, ("raw", "metadata", name))
    for name, value in raw.items():
        if name not in ("metadata", "status") and (rule := rules().members.get(name)) is not None:
            yield from _raw_types(value, rule, origin, ("raw", name))


def _raw_types(
    value: Any, rule: FieldRule, origin: Origin, steps: tuple[PathStep, ...]
) -> Iterator[Diagnostic]:
    if value is None:
        return
    if rule.item is not None:
        if isinstance(value, dict) and steps[-1] in NAMED_LISTS:
            return
        if not isinstance(value, list):
            yield _raw_type(origin, steps, value, "a list")
            return
        for index, item in enumerate(value):
            step: PathStep = Member(index, None) if steps[-1] in NAMED_LISTS else index
            if rule.item.members:
                yield from _raw_types(item, rule.item, origin, (*steps, step))
    elif rule.members:
        if not isinstance(value, dict):
            yield _raw_type(origin, steps, value, "a mapping")
            return
        for name, member in rule.members.items():
            if name in value:
                yield from _raw_types(value[name], member, origin, (*steps, name))


def _raw_type(origin: Origin, steps: tuple[PathStep, ...], value: Any, kind: str) -> Diagnostic:
    return origin.diagnose(steps, "wrong type", f"expected {kind}, got {found(value)}")
