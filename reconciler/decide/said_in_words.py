"""Which ends and reruns the manifest asks for in words: no guard counts those.

Every guard reads this table, so that one word means the same to all of them. Source: docs/semantics.md,
"Guards".
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType

from reconciler.core.lifecycle import OnChange, ReplaceOrder
from reconciler.core.schedule import Overlap
from reconciler.core.stack import DesiredJob
from reconciler.decide.plan import Action, PlannedAction, Reason

#: The path of a change of `lifecycle.rerun`.
_RERUN = "lifecycle.rerun"


def _on_change_replace(action: PlannedAction, desired: DesiredJob | None) -> bool:
    if desired is None or desired.lifecycle.on_change is not OnChange.REPLACE:
        return False
    # A member that its entry no longer produces is an edit of the entry.
    is_edited = action.reason in (Reason.IMMUTABLE_CHANGED, Reason.NOT_IN_MANIFEST)
    return is_edited or (_is_rest_of_replace(action, desired) and not _has_declared_digest(action, desired))


def _overlap_replace(action: PlannedAction, desired: DesiredJob | None) -> bool:
    if desired is None or desired.schedule is None or desired.lifecycle.overlap is not Overlap.REPLACE:
        return False
    is_due = action.action is Action.REPLACE and action.scheduled_for is not None
    return is_due or _is_rest_of_replace(action, desired)


def _is_rest_of_replace(action: PlannedAction, desired: DesiredJob) -> bool:
    """Whether it ends the job that an interrupted replace has left beside the one that it created first."""
    return action.reason is Reason.SUPERSEDED and desired.lifecycle.replace_order is ReplaceOrder.CREATE_FIRST


def _has_declared_digest(action: PlannedAction, desired: DesiredJob) -> bool:
    return action.before is not None and desired.is_declared_by(action.before.digest)


def _state_absent(action: PlannedAction, _: DesiredJob | None) -> bool:
    return action.reason is Reason.STATE_ABSENT


def _schedule(action: PlannedAction, _: DesiredJob | None) -> bool:
    return action.action is Action.CREATE and action.scheduled_for is not None


def _on_upstream_rerun(action: PlannedAction, _: DesiredJob | None) -> bool:
    return action.reason is Reason.UPSTREAM_NEWER


def _rerun_edited(action: PlannedAction, desired: DesiredJob | None) -> bool:
    """The earlier text may be on no record; where nothing else differs, it was this one that was edited."""
    if action.reason is not Reason.IMMUTABLE_CHANGED:
        return False
    has_rerun = desired is not None and desired.lifecycle.rerun is not None
    return any(change.path == _RERUN for change in action.changes) or (has_rerun and not action.changes)


#: What the manifest says, and whether an action follows from it.
WORDS: Mapping[str, Callable[[PlannedAction, DesiredJob | None], bool]] = MappingProxyType(
    {
        "on_change: replace": _on_change_replace,
        "overlap: replace": _overlap_replace,
        "state: absent": _state_absent,
        "schedule": _schedule,
        "on_upstream: rerun": _on_upstream_rerun,
        "rerun": _rerun_edited,
    }
)


def is_said_in_words(action: PlannedAction, desired: DesiredJob | None) -> bool:
    """Whether the manifest asks in words for what an action ends or runs again; `desired` is the entry."""
    return any(asks(action, desired) for asks in WORDS.values())
