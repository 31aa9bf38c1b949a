"""From a stack and what was observed to the plan: every key decided, guarded, sorted and counted."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import NamedTuple

from reconciler.core.decide import decide, needs_details
from reconciler.core.draft import Situation
from reconciler.core.guards import refusals
from reconciler.core.observed import ObservedJob
from reconciler.core.ownership import KeyView, Ownership
from reconciler.core.plan import Action, Plan, PlannedAction, PlanWarning, TargetIdentity, count, timestamp
from reconciler.core.stack import DesiredJob, Lifecycle, Stack


class Options(NamedTuple):
    """What the person who asked for the plan allowed."""

    force: bool = False
    allow_empty: bool = False


NO_OPTIONS = Options()


class Look(NamedTuple):
    """What was seen, and when: everything observed, sorted by key, and the details that were asked for.

    `gone` are jobs that the service listed and then did not know any more.
    """

    ownership: Ownership
    details: Mapping[str, ObservedJob]
    gone: frozenset[str] = frozenset()

    def view(self, key: str) -> KeyView:
        """What was seen of a key, without the jobs that are gone."""
        view = self.ownership.view(key)
        for job_id in self.gone:
            view = view.without(job_id)
        return view


def keys_in_view(stack: Stack, ownership: Ownership) -> tuple[str, ...]:
    """The keys that the plan is about, sorted.

    With a partial view nothing is absent because it was not seen.
    """
    undeclared = set() if stack.is_partial else set(ownership.concerned_keys) - stack.declared_keys
    return tuple(sorted({*stack.jobs, *undeclared}))


def keys_owned_in_view(stack: Stack, ownership: Ownership) -> tuple[str, ...]:
    """The keys in view of which something is, or may be, owned; `--only` may name undeclared ones."""
    chosen = stack.chosen or frozenset()
    return tuple(
        key for key in ownership.concerned_keys if key in stack.jobs or key in chosen or not stack.is_partial
    )


def details_needed(stack: Stack, look: Look) -> tuple[str, ...]:
    """The ids of the jobs whose details the decisions need, sorted by key."""
    needed = (
        needs_details(look.view(key), stack.jobs.get(key), look.ownership)
        for key in keys_in_view(stack, look.ownership)
    )
    return tuple(job_id for job_id in needed if job_id)


def rests_on_absence(stack: Stack, look: Look, situation: Situation) -> bool:
    """Whether a decision rests on a job not being there, so that a filtered look is not enough.

    A job is only ever started if nothing newer of its key exists, under whatever name.
    """
    for key, entry in stack.jobs.items():
        view = look.view(key)
        if entry.is_absent:
            continue
        if not view.owned or needs_details(view, entry, look.ownership):
            return True
        actions, _ = decide(view, entry, look.ownership, situation, look.details)
        if any(action.traits.starts_a_job for action in actions):
            return True
    return False


def make_plan(
    stack: Stack,
    look: Look,
    situation: Situation,
    target: TargetIdentity,
    *,
    manifest_digest: str,
    version: str,
    options: Options = NO_OPTIONS,
) -> Plan:
    """Decide every key. For the same inputs the plan is the same, byte for byte."""
    actions: list[PlannedAction] = []
    warnings: list[PlanWarning] = []
    for key in keys_in_view(stack, look.ownership):
        decided, warned = decide(look.view(key), stack.jobs.get(key), look.ownership, situation, look.details)
        actions += decided
        warnings += warned
    actions.sort(key=_by_key_then_revision)
    refused = refusals(
        stack,
        actions,
        active_jobs=look.ownership.active_jobs,
        force=options.force,
        allow_empty=options.allow_empty,
    )
    return Plan(
        reconciler_version=version,
        created_at=timestamp(situation.at_s),
        stack=stack.name,
        target=target,
        manifest_digest=manifest_digest,
        applyable=any(action.traits.is_executed for action in actions) and not refused,
        complete=_is_complete(actions, look.ownership),
        summary=count(actions),
        actions=tuple(actions),
        warnings=(*partial_view(stack, look.ownership), *unread(look.ownership), *warnings),
        refusals=refused,
    )


def make_destroy_plan(
    stack: Stack,
    look: Look,
    situation: Situation,
    target: TargetIdentity,
    *,
    manifest_digest: str,
    version: str,
) -> Plan:
    """Terminate what the stack owns, in view: as if every key said `state: absent`."""
    absent = {key: _as_absent(key, stack.jobs.get(key)) for key in keys_owned_in_view(stack, look.ownership)}
    emptied = Stack(
        name=stack.name,
        jobs=absent,
        declared_keys=stack.declared_keys | set(absent),
        limits=stack.limits,
        is_partial=True,
        left_out=stack.left_out,
        chosen=stack.chosen,
    )
    plan = make_plan(
        emptied,
        look,
        replace(situation, destroys=True),
        target,
        manifest_digest=manifest_digest,
        version=version,
        options=Options(force=True, allow_empty=True),
    )
    return plan.model_copy(
        update={"warnings": (*partial_view(stack, look.ownership), *unread(look.ownership))}
    )


def _as_absent(key: str, declared: DesiredJob | None) -> DesiredJob:
    """What destroy makes of an entry: only a protection survives it, and it is not released on the way."""
    is_protected = declared is not None and declared.lifecycle.protect is True
    return DesiredJob(
        key=key,
        body=None,
        digest="",
        lifecycle=Lifecycle(protect=True if is_protected else None),
        is_absent=True,
        location=declared.location if declared else None,
    )


def _by_key_then_revision(action: PlannedAction) -> tuple[str, int]:
    shown = action.before or action.after
    return action.key, shown.revision if shown else 0


def _is_complete(actions: list[PlannedAction], ownership: Ownership) -> bool:
    nothing_unknown = not any(action.action is Action.UNKNOWN for action in actions)
    return nothing_unknown and ownership.problem is None and not ownership.unattributed


def partial_view(stack: Stack, ownership: Ownership) -> list[PlanWarning]:
    """Say how much a partial view leaves out: declared keys, and keys that the stack owns."""
    if not stack.is_partial:
        return []
    left_alone = sum(key not in stack.jobs for key in ownership.owned_keys)
    told = [f"{_keys(left_alone)} owned, and left alone"]
    if stack.chosen is not None:
        told.insert(0, f"{_keys(stack.left_out)} declared, and left out of this view")
    return [PlanWarning(what="partial view", why=said) for said in told]


def unread(ownership: Ownership) -> list[PlanWarning]:
    """Say what could not be read, and belongs to no key that the plan could show it with."""
    warnings = [PlanWarning(what="a job could not be read", why=lost.why) for lost in ownership.unattributed]
    if ownership.problem is not None:
        warnings.insert(0, PlanWarning(what="the list could not be read", why=ownership.problem))
    return warnings


def _keys(count: int) -> str:
    return "1 key is" if count == 1 else f"{count} keys are"
