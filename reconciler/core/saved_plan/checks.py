"""What contradicts itself in a saved plan: no plan that we wrote says it, so the file was cut or edited.

A plan file is carried out without its manifest, so all that it says is held against all else that it
says: the kind of an action against the jobs it names, those against their names and markers, a body
against its digest. What could be movement of the service is not asked here.

Source: docs/cli.md, "Saved plans".
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from enum import Enum
from itertools import groupby
from typing import TYPE_CHECKING, NamedTuple
from urllib.parse import urlsplit

from reconciler.core.declared.lifecycle import ReplaceOrder
from reconciler.core.observed.identity import (
    key_problem,
    remote_name,
    stack_problem,
)
from reconciler.core.observed.phase import Operation, may, parse_phase
from reconciler.core.planning.cost import node_hours_max, total_cost
from reconciler.core.planning.plan import (
    Action,
    After,
    Before,
    Plan,
    PlannedAction,
    Reason,
    Source,
    count,
    lost_sum,
    node_hours,
)
from reconciler.core.saved_plan.bodies import change_problems, create_body_problems, update_body_problems

if TYPE_CHECKING:
    from reconciler.core.saved_plan.document import SavedOptions

_DIGEST = re.compile(r"[a-z][0-9a-f]{12}")
_MANIFEST_DIGEST = re.compile(r"sha256:[0-9a-f]+")
_VERSION = re.compile(r"[0-9]+(\.[0-9A-Za-z+-]+)*")
_TIME = re.compile(r"[0-9]{4}-[01][0-9]-[0-3][0-9]T[0-2][0-9]:[0-5][0-9]:[0-5][0-9]Z")


class Part(Enum):
    """Whether an action has a part."""

    NEEDED = "is missing"
    ABSENT = "is not allowed here"
    FREE = ""


_NEEDED, _ABSENT, _FREE = Part.NEEDED, Part.ABSENT, Part.FREE


class ActionShape(NamedTuple):
    """What an action of one kind is made of, its reasons, and what the phase of its job has to allow."""

    reasons: frozenset[Reason]
    before: Part = _ABSENT
    after: Part = _ABSENT
    desired: Part = _ABSENT
    declared: Part = _ABSENT
    follows: Part = _ABSENT
    changes: Part = _FREE
    is_legal: Operation | None = None


#: A new kind of action, or a new reason for one, is a word here.
SHAPES: Mapping[Action, ActionShape] = {
    Action.CREATE: ActionShape(
        frozenset(
            {
                Reason.NOT_FOUND,
                Reason.IMMUTABLE_CHANGED,
                Reason.WAITS_FOR_TERMINATION,
                Reason.DECLARED_AGAIN,
                Reason.RETRY,
                Reason.RECREATE,
                Reason.UPSTREAM_NEWER,
                Reason.SCHEDULED,
            }
        ),
        after=_NEEDED,
        desired=_NEEDED,
        declared=_NEEDED,
        follows=_FREE,
    ),
    Action.UPDATE: ActionShape(
        frozenset(
            {
                Reason.MUTABLE_CHANGED,
                Reason.MARKER_CHANGED,
                Reason.MARKER_RESTORED,
                Reason.PROTECTION_RELEASED,
                Reason.RENAMED,
            }
        ),
        before=_NEEDED,
        after=_NEEDED,
        desired=_NEEDED,
        declared=_FREE,
        is_legal=Operation.UPDATE_DESCRIPTION,
    ),
    Action.REPLACE: ActionShape(
        frozenset({Reason.IMMUTABLE_CHANGED, Reason.SCHEDULED}),
        before=_NEEDED,
        after=_NEEDED,
        desired=_NEEDED,
        declared=_NEEDED,
        is_legal=Operation.TERMINATE,
    ),
    Action.TERMINATE: ActionShape(
        frozenset({Reason.NOT_IN_MANIFEST, Reason.STATE_ABSENT, Reason.DESTROYED, Reason.SUPERSEDED}),
        before=_NEEDED,
        changes=_ABSENT,
        is_legal=Operation.TERMINATE,
    ),
    Action.KEEP: ActionShape(
        frozenset(
            {
                Reason.UNCHANGED,
                Reason.COMPLETED,
                Reason.AGED_OUT,
                Reason.CHANGE_IGNORED,
                Reason.WAITS_FOR_SCHEDULE,
                Reason.AUTO_STOPPED,
                Reason.FAILED,
                Reason.RETRIES_EXHAUSTED,
                Reason.TERMINATED_OUTSIDE,
            }
        ),
        before=_FREE,
        after=_NEEDED,
    ),
    Action.DEFER: ActionShape(
        frozenset({Reason.RETRY_LATER, Reason.NEEDS_PENDING, Reason.SUPERSEDED}), before=_FREE
    ),
    Action.BLOCKED: ActionShape(
        frozenset(
            {
                Reason.PROTECTED,
                Reason.UNKNOWN_PHASE,
                Reason.UNKNOWN_DIGEST,
                Reason.NEEDS_FAILED,
                Reason.NAME_TOO_LONG,
            }
        ),
        before=_FREE,
    ),
    Action.CONFLICT: ActionShape(
        frozenset({Reason.NAME_TAKEN, Reason.CHANGE_REFUSED, Reason.WOULD_LOSE_WORK, Reason.RENAME_CLASH}),
        before=_FREE,
    ),
    Action.UNKNOWN: ActionShape(frozenset({Reason.UNREADABLE}), before=_FREE, changes=_FREE),
}
#: Reasons of the plans of adopt and release, which are carried out at once and never saved.
NEVER_SAVED = frozenset(
    {
        Reason.ADOPTED,
        Reason.ALREADY_OWNED,
        Reason.DIFFERS,
        Reason.KEY_IN_USE,
        Reason.NOT_ADOPTABLE,
        Reason.RELEASED,
        Reason.STACK_RENAMED,
        Reason.WRONG_PHASE,
    }
)
#: Updates that write a marker only, behind whatever text the job has.
_MARKER_ONLY = frozenset({Reason.PROTECTION_RELEASED, Reason.RENAMED})
_NOT_MARKER_ONLY = SHAPES[Action.UPDATE].reasons - _MARKER_ONLY
#: Updates that say what changes.
_NAMES_CHANGES = frozenset({Reason.MUTABLE_CHANGED, Reason.RENAMED, Reason.MARKER_RESTORED})
#: Updates that may put another digest on the job: the marker was behind the manifest.
_MOVES_DIGEST = frozenset({Reason.MUTABLE_CHANGED, Reason.MARKER_CHANGED})
#: Where a job may be in a phase that nobody knows.
_ANY_PHASE = frozenset({Reason.UNKNOWN_PHASE, Reason.UNREADABLE})


def contradictions(plan: Plan, options: SavedOptions) -> Iterator[str]:
    """Say, for people, where a saved plan contradicts itself; nothing for one that we wrote."""
    yield from _of_the_head(plan, options)
    places = [(f"actions.{place} ({action.key})", action) for place, action in enumerate(plan.actions)]
    seen: set[tuple[str, Action, str]] = set()
    for where, action in places:
        said = list(_of_one(plan.stack, options.target.workspace_id, action))
        identity = (action.key, action.action, action.before.id if action.before else "")
        if identity in seen:
            said.append("duplicate action")
        seen.add(identity)
        yield from (f"{where}: {one}" for one in said)
    yield from _of_keys(places)


def _of_the_head(plan: Plan, options: SavedOptions) -> Iterator[str]:
    if problem := stack_problem(plan.stack):
        yield f"stack: {problem}"
    for name, pattern in (
        ("reconciler_version", _VERSION),
        ("created_at", _TIME),
        ("manifest_digest", _MANIFEST_DIGEST),
    ):
        if not pattern.fullmatch(getattr(plan, name)):
            yield f"{name}: cannot be parsed"
    yield from miscounted(plan)
    yield from _refused_or_not(plan, options)
    if plan.complete and plan.unknown:
        yield "complete: something is unknown"
    if [_order_of(a) for a in plan.actions] != sorted(_order_of(a) for a in plan.actions):
        yield "actions: not sorted by key and revision"
    yield from _unreadable_places(plan, options)
    # Another project or workspace is another target, for which the plan is stale.
    if options.target.kind != plan.target.kind:
        yield "target: differs in kind from options.target"


def _refused_or_not(plan: Plan, options: SavedOptions) -> Iterator[str]:
    if plan.applyable != (bool(plan.to_execute) and not options.refusals):
        yield "applyable: contradicts the actions and the refusals"
    if plan.denied and not options.refusals:
        yield "denied: contradicts the refusals"
    if plan.preflight and not options.refusals:
        yield "preflight: contradicts the refusals"


def _unreadable_places(plan: Plan, options: SavedOptions) -> Iterator[str]:
    """Say which path, name or address of an endpoint no system could make sense of."""
    texts = {"root": options.root, "records": options.records or ""}
    for name, source in options.sources.items():
        texts[f"sources.{name}"] = f"{source.env or ''}{source.file or ''}"
    yield from (f"options.{name}: not a valid path or name" for name, text in texts.items() if "\0" in text)
    for where, endpoint in (
        ("target", plan.target.endpoint),
        ("options.target", options.target.endpoint or ""),
    ):
        try:
            urlsplit(endpoint)
        except ValueError:
            yield f"{where}.endpoint: not a valid URL"


def miscounted(plan: Plan) -> Iterator[str]:
    """Say whether the summary does not count the actions."""
    if plan.summary != count(plan.actions):
        yield "summary: does not match the actions"
    if plan.lost_node_hours != lost_sum(plan.actions):
        yield "lost_node_hours: not the sum of the actions"
    if plan.cost != total_cost(plan.actions):
        yield "cost: not the sum of the actions"
    if len({action.cost.currency for action in plan.actions if action.cost is not None}) > 1:
        yield "cost: the actions name several currencies"


def _order_of(action: PlannedAction) -> tuple[str, int]:
    shown = action.before or action.after
    return action.key, shown.revision if shown else 0


def _of_keys(places: list[tuple[str, PlannedAction]]) -> Iterator[str]:
    """What several actions of one key say of that key, they all say; its new job waits for what they end."""
    for _, group in groupby(places, key=lambda place: place[1].key):
        of_key = list(group)
        (_, first), *others = of_key
        ended = {a.before.id for _, a in of_key if a.before and a.action is Action.TERMINATE}
        for where, action in of_key:
            if action.traits.starts_a_job and not ended <= {*action.waits_for_jobs}:
                yield f"{where}: waits_for_jobs lacks a job that the plan terminates"
        for where, action in others:
            if (action.source, action.former_keys) != (first.source, first.former_keys):
                yield f"{where}: another action of the key has a different source or different former keys"


# --- one action


def _of_one(stack: str, workspace_id: str, action: PlannedAction) -> Iterator[str]:
    shape = SHAPES[action.action]
    said = [*_of_its_shape(action, shape), *_of_its_keys(action), *_of_its_jobs(action, shape)]
    yield from said
    if said or action.desired is None:
        return
    try:
        if action.traits.starts_a_job:
            found = create_body_problems(stack, workspace_id, action, action.desired)
        else:
            found = update_body_problems(stack, action, action.desired)
        yield from found
        yield from change_problems(action)
    except (TypeError, ValueError, AttributeError, LookupError, RecursionError):
        yield "desired: not a valid body"


def _of_its_shape(action: PlannedAction, shape: ActionShape) -> Iterator[str]:
    if action.reason not in shape.reasons:
        yield f"{action.action} is never done for reason {action.reason}"
    for name in ("before", "after", "desired", "declared", "follows", "changes"):
        wanted, is_there = getattr(shape, name), getattr(action, name) not in (None, ())
        if wanted is (_ABSENT if is_there else _NEEDED):
            yield f"{name} {wanted.value}"
    yield from (said for said, is_so in _CONTRADICTIONS if is_so(action))


def _lost_node_hours(action: PlannedAction) -> float:
    return node_hours(action.elapsed, action.nodes) if action.traits.stops_a_job else 0.0


def _is_cost_of(action: PlannedAction) -> bool:
    """Whether an action that starts a job, and no other, says what that may take."""
    if action.cost is None:
        return not action.traits.starts_a_job
    return action.traits.starts_a_job and action.cost.node_hours_max == node_hours_max(action.desired or {})


def _is_update(action: PlannedAction, reasons: frozenset[Reason]) -> bool:
    return action.action is Action.UPDATE and action.reason in reasons


def _is_scheduled_as_said(action: PlannedAction) -> bool:
    """Whether what a schedule starts, and nothing else, says for which of its times."""
    if action.scheduled_for is None:
        return not (action.traits.starts_a_job and action.reason is Reason.SCHEDULED)
    reasons = (Reason.SCHEDULED, Reason.WAITS_FOR_TERMINATION)
    return (
        action.traits.starts_a_job
        and action.reason in reasons
        and bool(_TIME.fullmatch(action.scheduled_for))
    )


def _is_next_run_as_said(action: PlannedAction) -> bool:
    if action.next_run_at is None:
        return True
    return action.timezone is not None and bool(_TIME.fullmatch(action.next_run_at))


def _lacks_follows(action: PlannedAction) -> bool:
    """Whether a create says nothing of the revision before, and there is one that the service has."""
    is_next = action.action is Action.CREATE and action.reason is not Reason.NOT_FOUND
    return is_next and action.follows is None and action.aged_out_as is None


def _are_other_jobs(action: PlannedAction) -> bool:
    """Whether what the new job waits for are different jobs, and none that the action names otherwise."""
    named = ["", action.follows, action.before.id if action.before else None, *action.waits_for_jobs]
    return all(named.count(job_id) == 1 for job_id in action.waits_for_jobs)


#: What is wrong with an action, beside its parts, and whether it is so.
_CONTRADICTIONS: tuple[tuple[str, Callable[[PlannedAction], bool]], ...] = (
    ("follows: not a job id", lambda a: a.follows == ""),
    (
        "lost_node_hours does not match elapsed and nodes",
        lambda a: a.lost_node_hours != _lost_node_hours(a),
    ),
    ("cost: not what the body may take", lambda a: not _is_cost_of(a)),
    (
        "replace_order is not allowed here",
        lambda a: a.replace_order is not ReplaceOrder.TERMINATE_FIRST and a.action is not Action.REPLACE,
    ),
    ("scheduled_for contradicts the reason", lambda a: not _is_scheduled_as_said(a)),
    ("next_run_at: not a time of a schedule", lambda a: not _is_next_run_as_said(a)),
    ("declared is missing", lambda a: _is_update(a, _NOT_MARKER_ONLY) and a.declared is None),
    ("declared is not allowed here", lambda a: _is_update(a, _MARKER_ONLY) and a.declared is not None),
    ("changes is missing", lambda a: _is_update(a, _NAMES_CHANGES) and not a.changes),
    (
        "before: contradicts aged_out_as",
        lambda a: a.action is Action.KEEP and (a.before is None) != (a.aged_out_as is not None),
    ),
    ("follows is missing", _lacks_follows),
    ("waits_for_jobs is not allowed here", lambda a: bool(a.waits_for_jobs) and not a.traits.starts_a_job),
    ("waits_for_jobs: not the ids of other jobs", lambda a: not _are_other_jobs(a)),
    (
        "follows is not allowed here",
        lambda a: a.follows is not None and a.reason is Reason.NOT_FOUND,
    ),
)


def _of_its_keys(action: PlannedAction) -> Iterator[str]:
    keys = (action.key, *action.former_keys)
    yield from (problem for key in keys if (problem := key_problem(key)))
    if action.formerly is not None and action.formerly not in {*action.former_keys} - {action.key}:
        yield "formerly is not one of former_keys"
    if action.formerly is None and action.reason is Reason.RENAMED:
        yield "formerly is missing"
    if len(set(keys)) < len(keys):
        yield "former_keys contains a key twice"
    if action.source is not None and not _is_location(action.source):
        yield "source: not a location in a file"


def _is_location(source: Source) -> bool:
    return bool(source.file) and source.line > 0 and source.column > 0


def _of_its_jobs(action: PlannedAction, shape: ActionShape) -> Iterator[str]:
    before, after = action.before, action.after
    for name, job in (("before", before), ("after", after)):
        if job is not None and not _is_revision(job):
            yield f"{name}: not a revision of a job"
    if before is not None:
        yield from _of_the_old_job(action, before, shape)
    if action.aged_out_as is not None and (before is not None or not parse_phase(action.aged_out_as)):
        yield "aged_out_as: not a terminal phase"
    if after is not None:
        yield from _of_the_new_job(action, before, after)


def _is_revision(job: Before | After) -> bool:
    return bool(job.name and job.revision > 0 and _DIGEST.fullmatch(job.digest))


def _of_the_old_job(action: PlannedAction, before: Before, shape: ActionShape) -> Iterator[str]:
    phase = parse_phase(before.phase)
    if not before.id:
        yield "before: id is missing"
    if phase is None and action.reason not in _ANY_PHASE:
        yield f"before: {before.phase} is not a phase"
    elif shape.is_legal is not None and not may(shape.is_legal, phase):
        yield f"before: not allowed in phase {before.phase}"


def _of_the_new_job(action: PlannedAction, before: Before | None, after: After) -> Iterator[str]:
    if action.traits.starts_a_job:
        if after.name != remote_name(action.key, after.revision):
            yield "after: name does not match key and revision"
        is_again = before is not None and after.digest == before.digest and action.scheduled_for is None
        if before is not None and (after.revision <= before.revision or is_again):
            yield "after: does not follow the job in before"
        return
    if before is None:
        return
    if (after.name, after.revision) != (before.name, before.revision):
        yield "after: not the job in before"
    if after.digest != before.digest and action.reason not in _MOVES_DIGEST:
        yield "after: the digest is unchanged"
