"""The plans of `adopt` and `release`: what they look at, and what `decide.adoption` makes of it.

They are carried out as every plan is, see `rollout`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from fnmatch import fnmatchcase
from typing import NamedTuple

from reconciler.core.entry import EntryPatch
from reconciler.core.identity import stack_problem
from reconciler.core.observed import Observation, ObservedJob
from reconciler.core.ownership import sort_by_key
from reconciler.core.record import NO_HISTORY, PastRevision, RecordsUnavailable, Scope
from reconciler.core.selection import suggest_key, unknown_key
from reconciler.core.stack import DesiredJob
from reconciler.core.values import PlanWarning, few_of_a_kind, timestamp
from reconciler.decide.actions import adopt_command
from reconciler.decide.adoption import (
    Adoption,
    Candidate,
    RenamedStack,
    adopt,
    release,
    release_warnings,
)
from reconciler.decide.key_state import Snapshot, adoption_order, newest, state_of
from reconciler.decide.plan import Action, Plan, PlannedAction, Reason, count
from reconciler.decide.planner import unread
from reconciler.errors import Diagnostic, NotFound, Rejected, ServiceError, Unauthorized, WrongUsage
from reconciler.reconcile import Context, survey
from reconciler.version import __version__


class AdoptionPlan(NamedTuple):
    """A plan that takes jobs in, and what would make the entries of those that differ equal to them."""

    plan: Plan
    patches: tuple[EntryPatch, ...] = ()


class MovePlan(NamedTuple):
    """A plan that renames a stack.

    `forgotten` are the revisions that only the history of the old stack knows; they are taken over.
    """

    plan: Plan
    old: Scope
    forgotten: tuple[PastRevision, ...] = ()


def adopt_plan(context: Context, key: str, job_id: str, *, takes_as_is: bool = False) -> AdoptionPlan:
    """Decide about one job.

    Raises:
        WrongUsage: the stack has no such key.
        NotFound: there is no such job.
        ServiceError: the job could not be read.
    """
    desired = _declared(context, key)
    seen, snapshot = survey(context)
    job = read_job(context, key, job_id, seen)
    return _plan_of(context, snapshot, [adopt(_candidate(context, snapshot, desired, job, takes_as_is))])


def adopt_all_plan(context: Context, pattern: str, *, takes_as_is: bool = False) -> AdoptionPlan:
    """Decide about every unmanaged job that has a name of a declared key, and matches a glob.

    Of several of one key that one is meant which the plan's conflict names, see `adoption_order`.
    """
    _, snapshot = survey(context)
    jobs = context.loaded.stack.jobs
    chosen: list[tuple[DesiredJob, ObservedJob]] = []
    others: list[Adoption] = []
    for key in sorted(jobs):
        view = snapshot.view(key, jobs[key])
        ordered = adoption_order(view.conflicting_jobs, view, newest(view, jobs[key]))
        named = [one.job for one in ordered if fnmatchcase(one.job.name, pattern)]
        chosen += [(jobs[key], job) for job in named[:1]]
        others += [_second_choice(context, snapshot, jobs[key], job, named[0]) for job in named[1:]]
    read = _read_all(context, [job.id for _, job in chosen])
    decided = [
        _decided(context, snapshot, desired, job, read[job.id], takes_as_is) for desired, job in chosen
    ]
    return _plan_of(context, snapshot, [*decided, *others])


def release_plan(context: Context, key: str) -> Plan:
    """Decide what it takes to release a key; without revisions of it there is nothing to do.

    Raises:
        WrongUsage: the key is neither declared nor owned.
    """
    _, snapshot = survey(context)
    stack, ownership = context.loaded.stack, snapshot.ownership
    desired = stack.find(key)
    known = {*stack.whole, *stack.jobs, *stack.declared_keys, *stack.former_keys}
    if key not in known and key not in ownership.concerned_keys:
        if ownership.problem is not None:
            raise ServiceError(f"cannot tell what key {key} owns: {ownership.problem}")
        raise WrongUsage(unknown_key(stack, key, {*known, *ownership.owned_keys}))
    actions = release(state_of(key, desired, snapshot, context.plan_context()))
    warnings = list(release_warnings(desired, actions))
    if not actions:
        warnings.append(PlanWarning(what="nothing to do", why=f"stack {stack.name} owns no job of key {key}"))
    return _make_plan(context, snapshot, actions, warnings)


def move_plan(context: Context, old: str) -> MovePlan:
    """Decide what it takes to rename a stack to this one.

    Raises:
        WrongUsage: that is no other stack.
    """
    stack = context.loaded.stack
    check_old_name(context, old)
    seen, snapshot = survey(context)
    names = frozenset({*stack.jobs, *stack.former_keys})
    ownership = sort_by_key(seen, old, names)
    scope = old_scope(context, old)
    memory = context.recording.memory(scope) if context.recording else NO_HISTORY
    if memory.problem is not None:
        raise RecordsUnavailable(Diagnostic("the history could not be read", memory.problem, memory.fix))
    renamed = RenamedStack(old, ownership, memory, context.plan_context())
    actions: list[PlannedAction] = []
    for key in sorted({*ownership.concerned_keys} & names):
        actions += renamed.moved(snapshot.view(key), stack.find(key), key)
    forgotten = renamed.aged_out(names, seen.jobs, snapshot.memory) if ownership.proves_absence else ()
    warnings = [*renamed.left_behind(names), *renamed.taken_over(forgotten)]
    if not actions and not forgotten and ownership.problem is None:
        _check_spelling(old, stack.name, seen)
        warnings.append(
            PlanWarning(what="nothing to do", why=f"stack {old} owns no job of a key declared here")
        )
    return MovePlan(_make_plan(context, snapshot, actions, warnings), scope, forgotten)


def take_over_history(context: Context, move: MovePlan) -> None:
    """Keep what only the history of the old stack knows: finished work stays finished.

    Raises:
        RecordsUnavailable: it cannot be written down.
    """
    if context.recording is not None and move.forgotten:
        jobs = {past.job for past in move.forgotten}
        count_ = context.recording.take_over(context.scope, move.old, jobs)
        context.tell(f"took over {count_} revisions of the history of stack {move.old.stack}")


def old_scope(context: Context, old: str) -> Scope:
    """What lock and records of the stack under its old name are about."""
    return context.scope._replace(stack=old)


def check_old_name(context: Context, old: str) -> None:
    """See that a name can be that of another stack.

    Raises:
        WrongUsage: it cannot.
    """
    if old == context.loaded.stack.name:
        why = f"{old} is the name of this stack; name the one that it had before"
        raise WrongUsage(Diagnostic("not another stack", why))
    if problem := stack_problem(old):
        raise WrongUsage(Diagnostic("not a stack name", f'"{old}": {problem}'))


def _check_spelling(old: str, new: str, seen: Observation) -> None:
    """A name that is nearly that of a stack on the target is a typo.

    Raises:
        WrongUsage: it is.
    """
    there = {job.marker.stack for job in seen.jobs if job.marker is not None} - {new}
    if old not in there and (fix := suggest_key(old, there)):
        raise WrongUsage(Diagnostic("no such stack", f"no job on this target is of stack {old}", fix))


def _declared(context: Context, key: str) -> DesiredJob:
    stack = context.loaded.stack
    desired = stack.jobs.get(key)
    if desired is None:
        diagnostic = unknown_key(stack, key, stack.jobs)
        if key not in stack.whole:
            why = f'"{key}" is not a declared key of stack {stack.name}'
            fix = diagnostic.fix or "declare it, or let --write do that"
            diagnostic = diagnostic._replace(why=why, fix=fix)
        raise WrongUsage(diagnostic)
    return desired


def read_job(context: Context, key: str, job_id: str, seen: Observation) -> ObservedJob:
    """The details of a job that a person named for a key; `seen` is the workspace.

    Raises:
        WrongUsage: it is the name of a job, and no id.
        NotFound: there is no such job.
    """
    try:
        return context.target.backend.details(job_id)
    except Rejected as refusal:
        named = next((job for job in seen.jobs if job.name == job_id), None)
        if named is not None:
            why = f"{job_id} is the name of a job, whose id is {named.id}"
            fix = adopt_command(key, named.id)
            raise WrongUsage(Diagnostic("not the id of a job", why, fix)) from None
        if any(job.id == job_id for job in seen.jobs):
            raise
        workspace = context.target.identity.workspace_id
        fix = "reconciler jobs list shows the jobs"
        said = f"workspace {workspace} has no job with the id {job_id}"
        raise NotFound(
            said, code=refusal.code, status=refusal.status, request_id=refusal.request_id, fix=fix
        ) from None


def _candidate(
    context: Context, snapshot: Snapshot, desired: DesiredJob, job: ObservedJob, takes_as_is: bool
) -> Candidate:
    return Candidate(state_of(desired.key, desired, snapshot, context.plan_context()), job, takes_as_is)


def _second_choice(
    context: Context, snapshot: Snapshot, desired: DesiredJob, job: ObservedJob, first: ObservedJob
) -> Adoption:
    candidate = _candidate(context, snapshot, desired, job, takes_as_is=False)
    rank = "active" if first.is_active and not job.is_active else "newer"
    detail = f"{job.name} ({job.id}) stays unmanaged: {first.name} is the {rank} job of this key"
    return Adoption(candidate.refused(Action.CONFLICT, Reason.KEY_IN_USE, detail))


def _read_all(context: Context, job_ids: Sequence[str]) -> dict[str, ObservedJob | ServiceError]:
    """The details of each job, or why they could not be read."""

    def read(job_id: str) -> ObservedJob | ServiceError:
        try:
            return context.target.backend.details(job_id)
        except Unauthorized:
            raise
        except ServiceError as failure:
            return failure

    with ThreadPoolExecutor(max(1, min(context.parallelism, len(job_ids)))) as pool:
        return dict(zip(job_ids, pool.map(read, job_ids), strict=True))


def _decided(
    context: Context,
    snapshot: Snapshot,
    desired: DesiredJob,
    job: ObservedJob,
    read: ObservedJob | ServiceError,
    takes_as_is: bool,
) -> Adoption:
    if isinstance(read, ServiceError):
        candidate = _candidate(context, snapshot, desired, job, takes_as_is)
        detail = f"the details of {job.name} ({job.id}) could not be read: {read.message}"
        return Adoption(candidate.refused(Action.UNKNOWN, Reason.UNREADABLE, detail))
    return adopt(_candidate(context, snapshot, desired, read, takes_as_is))


def _plan_of(context: Context, snapshot: Snapshot, adoptions: Sequence[Adoption]) -> AdoptionPlan:
    warnings = [warning for one in adoptions for warning in one.warnings]
    if not adoptions and snapshot.ownership.problem is None:
        why = "no unmanaged job has a name of a declared key and matches"
        warnings.append(PlanWarning(what="nothing to do", why=why))
    warnings += [
        PlanWarning(what="nothing to do", why=one.action.detail, key=one.action.key)
        for one in adoptions
        if one.action.action is Action.KEEP
    ]
    plan = _make_plan(context, snapshot, [one.action for one in adoptions], warnings)
    return AdoptionPlan(plan, tuple(one.patch for one in adoptions if one.patch is not None))


def _make_plan(
    context: Context, snapshot: Snapshot, actions: Iterable[PlannedAction], warnings: Iterable[PlanWarning]
) -> Plan:
    """A plan of these actions; no guard judges them, for none starts or ends a job."""
    done = sorted(actions, key=lambda one: (one.key, one.before.revision if one.before else 0))
    ownership = snapshot.ownership
    is_complete = ownership.problem is None and not ownership.unattributed
    return Plan(
        reconciler_version=__version__,
        created_at=timestamp(context.target.clock.now()),
        stack=context.loaded.stack.name,
        target=context.target.identity,
        manifest_digest=context.loaded.manifest_digest,
        applyable=any(action.traits.is_executed for action in done),
        complete=is_complete and not any(action.action is Action.UNKNOWN for action in done),
        summary=count(done),
        actions=tuple(done),
        warnings=few_of_a_kind((*unread(ownership), *warnings)),
    )
