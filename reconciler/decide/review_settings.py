"""What differs outside of the jobs: stack, targets, limits, policies, rules and where the records lie."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from pydantic import BaseModel

from reconciler.core.masking import mask_declared
from reconciler.core.stack import Limits, Target
from reconciler.core.values import Change, PlanWarning
from reconciler.decide.actions import rename_command
from reconciler.decide.review_side import Side
from reconciler.text import format_duration

#: What a target says of the jobs shows in the jobs.
_OF_JOBS = frozenset({"variables", "defaults"})
#: What makes a target another one; its name does not.
_IDENTITY = ("kind", "region", "endpoint", "project_id", "workspace_id")
_SPANS = frozenset({"lost_time"})


def settings_changes(base: Side, head: Side) -> tuple[Change, ...]:
    """Every setting that differs, by its path in a manifest."""
    if base.stack is None or head.stack is None:
        return ()
    was, now = dict(_settings(base)), dict(_settings(head))
    paths = [path for path in {**was, **now} if was.get(path) != now.get(path)]
    changes = (Change(path=path, before=was.get(path), after=now.get(path)) for path in sorted(paths))
    return mask_declared(changes)


def _settings(side: Side) -> Iterator[tuple[str, Any]]:
    assert side.stack is not None
    yield "stack", side.stack.name
    yield "target", side.default_target
    yield "records", side.records
    for name, value in _members(side.stack.limits, Limits):
        yield f"limits.{name}", format_duration(value) if name in _SPANS else value
    for policy in side.stack.policies:
        yield f"policies.{policy.name}.{policy.effect}", policy.expression
        yield f"policies.{policy.name}.message", policy.message or None
        yield f"policies.{policy.name}.only", list(policy.only)
    for rule in side.stack.ignored_drift:
        until = None if rule.until is None else rule.until.isoformat()
        yield f"drift.ignore.{rule.class_}.{rule.key}", {"until": until, "reason": rule.reason}
    for target_name, target in side.targets.items():
        for name, value in _members(target, Target):
            if name not in _OF_JOBS:
                yield f"targets.{target_name}.{name}", value


def _members(value: BaseModel, model: type[BaseModel]) -> Iterator[tuple[str, Any]]:
    dumped: Mapping[str, Any] = value.model_dump(mode="json", include=set(model.model_fields) - _OF_JOBS)
    yield from dumped.items()


def settings_warnings(base: Side, head: Side, target: str | None) -> Iterator[PlanWarning]:
    """What follows for every job from what differs, as far as nobody would see it in a line."""
    if base.stack is None or head.stack is None:
        return
    if base.stack.name != head.stack.name:
        yield PlanWarning(
            what="another stack",
            why=f"the jobs of stack {base.stack.name} stay its own, and go on; stack {head.stack.name} has "
            "none yet, and their names are taken",
            fix=f"if it is the same stack, first run: {rename_command(base.stack.name)}",
        )
    was, now = (side.targets.get(target or side.default_target or "") for side in (base, head))
    if was is not None and now is not None and _identity(was) != _identity(now):
        yield PlanWarning(
            what="another target",
            why="the jobs on the former one go on there; on the new one every job is created",
        )


def _identity(target: Target) -> tuple[Any, ...]:
    return tuple(getattr(target, name) for name in _IDENTITY)
