"""What becomes of jobs that exist: the plans of `adopt` and `release`, and the manifest that `export` makes.

The plans are carried out as every plan is, see `rollout`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from reconciler.core.entry import EntryPatch
from reconciler.core.identity import stack_problem
from reconciler.core.masking import DeclaredSecrets
from reconciler.core.observed import Observation, ObservedJob
from reconciler.core.ownership import sort_by_key
from reconciler.core.past import PastRevision
from reconciler.core.record import RecordsUnavailable, Scope
from reconciler.core.stack import suggest_key, unknown_key
from reconciler.core.values import PlanWarning, fold_similar_warnings
from reconciler.decide.actions import adopt_command
from reconciler.decide.adoption import Candidate, RenamedStack, adopt, release, release_warnings
from reconciler.decide.key_state import Snapshot, state_of
from reconciler.decide.plan import Action, Plan, PlannedAction, count
from reconciler.decide.planner import decisions_of, unread
from reconciler.errors import Diagnostic, NotFound, Rejected, ServiceError, Severity, WrongUsage
from reconciler.manifest import LoadedStack
from reconciler.manifest.export import ExportedStack, export_stack
from reconciler.modelarts.target import Connected
from reconciler.reconcile import Context, describe_code, read_details, survey
from reconciler.secrets import Redactor
from reconciler.text import few, printable


class MovePlan(NamedTuple):
    """A plan that renames a stack.

    `forgotten` are the revisions that only the history of the old stack knows; they are taken over.
    """

    plan: Plan
    old: Scope
    forgotten: tuple[PastRevision, ...] = ()


def adopt_plan(
    context: Context, key: str, job_id: str, *, takes_as_is: bool = False
) -> tuple[Plan, EntryPatch | None]:
    """Decide about one job; return the plan, and what would make an entry that differs equal to it.

    Raises:
        WrongUsage: the stack has no such key.
        NotFound: there is no such job.
        ServiceError: the job could not be read.
    """
    stack = context.loaded.stack
    desired = stack.jobs.get(key)
    if desired is None:
        diagnostic = unknown_key(stack, key, stack.jobs)
        if key not in stack.whole:
            why = f'"{key}" is not a declared key of stack {stack.name}'
            fix = diagnostic.fix or f"declare it; reconciler export {job_id} prints its entry"
            diagnostic = diagnostic._replace(why=why, fix=fix)
        raise WrongUsage(diagnostic)
    seen, snapshot = survey(context)
    job = _read_job(context, key, job_id, seen)
    state = decisions_of(stack, snapshot, context.plan_context())[key].state
    candidate = Candidate(state, job, takes_as_is)
    adoption = adopt(candidate)
    action, warnings = adoption.action, list(adoption.warnings)
    if action.action is Action.KEEP:
        warnings.append(PlanWarning(what="nothing to do", why=action.detail, key=key))
    return describe_code(context, _make_plan(context, snapshot, [action], warnings)), adoption.patch


def release_plan(context: Context, key: str) -> Plan:
    """Decide what it takes to release a key, or all members of an entry with a matrix.

    Without revisions there is nothing to do.

    Raises:
        WrongUsage: the key is neither declared nor owned.
    """
    _, snapshot = survey(context)
    stack, ownership = context.loaded.stack, snapshot.ownership
    known = {*stack.whole, *stack.jobs, *stack.declared_keys, *stack.former_keys}
    keys = stack.named_by(key, {*known, *ownership.concerned_keys})
    if not keys:
        if ownership.problem is not None:
            raise ServiceError(f"cannot tell what key {key} owns: {ownership.problem}")
        raise WrongUsage(unknown_key(stack, key, {*known, *ownership.owned_keys}))
    actions: list[PlannedAction] = []
    warnings: list[PlanWarning] = []
    for one in keys:
        desired = stack.find(one)
        released = release(state_of(one, desired, snapshot, context.plan_context()))
        actions += released
        warnings += release_warnings(desired, released)
    if not actions:
        warnings.append(PlanWarning(what="nothing to do", why=f"stack {stack.name} owns no job of key {key}"))
    return _make_plan(context, snapshot, actions, warnings)


def move_plan(context: Context, old: str) -> MovePlan:
    """Decide what it takes to rename a stack to this one; `check_old_name` takes the name.

    Raises:
        WrongUsage: no job is of that stack, and the name is nearly that of another one.
        RecordsUnavailable: the history of that stack cannot be read.
    """
    stack = context.loaded.stack
    seen, snapshot = survey(context)
    names = frozenset({*stack.jobs, *stack.former_keys})
    ownership = sort_by_key(seen, old, names)
    scope = context.scope._replace(stack=old)
    memory = context.recording.memory(scope)
    if memory.problem is not None:
        raise RecordsUnavailable(Diagnostic("the history could not be read", memory.problem, memory.fix))
    renamed = RenamedStack(old, ownership, memory, context.plan_context())
    actions: list[PlannedAction] = []
    for key in sorted({*ownership.concerned_keys} & names):
        actions += renamed.moved(snapshot.view(key), stack.find(key), key)
    forgotten = renamed.aged_out(names, seen.jobs, snapshot.memory) if ownership.proves_absence else ()
    warnings = [*renamed.left_behind(names), *renamed.taken_over(forgotten)]
    if not actions and not forgotten and ownership.problem is None:
        there = {job.marker.stack for job in seen.jobs if job.marker is not None} - {stack.name}
        if old not in there and (fix := suggest_key(old, there)):
            # A name that is nearly that of a stack on the target is a typo.
            raise WrongUsage(Diagnostic("no such stack", f"no job on this target is of stack {old}", fix))
        why = f"stack {old} owns no job of a key declared here"
        warnings.append(PlanWarning(what="nothing to do", why=why))
    return MovePlan(_make_plan(context, snapshot, actions, warnings), scope, forgotten)


def take_over_history(context: Context, move: MovePlan) -> None:
    """Keep what only the history of the old stack knows: finished work stays finished.

    Raises:
        RecordsUnavailable: it cannot be written down.
    """
    if move.forgotten:
        jobs = {past.job for past in move.forgotten}
        count_ = context.recording.take_over(context.scope, move.old, jobs)
        context.tell(f"took over {count_} revisions of the history of stack {move.old.stack}")


def check_old_name(context: Context, old: str) -> None:
    """Raise WrongUsage if a name cannot be that of another stack."""
    if old == context.loaded.stack.name:
        why = f"{old} is the name of this stack; name the one that it had before"
        raise WrongUsage(Diagnostic("not another stack", why))
    if problem := stack_problem(old):
        raise WrongUsage(Diagnostic("not a stack name", f'"{old}": {problem}'))


def _read_job(context: Context, key: str, job_id: str, seen: Observation) -> ObservedJob:
    """The details of a job that a person named for a key, by its id or name; `seen` is the workspace.

    Raises:
        WrongUsage: it is the name of several jobs.
        NotFound: there is no such job.
    """
    ids = {job.id for job in seen.jobs}
    if job_id not in ids and (named := sorted(job.id for job in seen.jobs if job.name == job_id)):
        if len(named) > 1:
            why = f"{len(named)} jobs have the name {job_id}: {few(named)}"
            raise WrongUsage(Diagnostic("not the name of one job", why, adopt_command(key, named[0])))
        job_id = named[0]
    try:
        return context.target.backend.details(job_id)
    except Rejected as refusal:
        if job_id in ids:
            raise
        workspace = context.target.identity.workspace_id
        fix = "reconciler jobs list shows the jobs"
        said = f"workspace {workspace} has no job with the id or name {job_id}"
        raise NotFound(
            said, code=refusal.code, status=refusal.status, request_id=refusal.request_id, fix=fix
        ) from None


def export_jobs(
    loaded: LoadedStack, target: Connected, found: Iterable[ObservedJob], redactor: Redactor
) -> tuple[ExportedStack, list[Diagnostic], list[Diagnostic]]:
    """The manifest of some jobs; what is not in it, and what is otherwise there than it was.

    `redactor` learns what a stack declares sensitive, and what the jobs have to hide.

    Raises:
        Unauthorized: the target does not let us read at all.
    """
    name_by_id = {job.id: job.name for job in found}
    details, secrets = read_details(target.backend, [*name_by_id]), DeclaredSecrets.of(loaded.stack)
    jobs = [job for job in details.values() if isinstance(job, ObservedJob)]
    for job in jobs:
        secrets.hide(job, redactor.learn)
    name, declared = loaded.target(target.identity.name)
    if declared.traits.has_address and not declared.project_id:
        declared = declared.model_copy(update={"project_id": target.identity.project_id})
    exported = export_stack(
        loaded.stack.name,
        name,
        declared,
        jobs,
        is_secret=lambda text: redactor(text) != text,
        learn=redactor.learn,
    )
    problems, notes = list[Diagnostic](), list[Diagnostic]()
    for job_id, failure in details.items():
        if isinstance(failure, NotFound):
            notes.append(_left_out("a job is gone", f"{name_by_id[job_id]} was deleted meanwhile"))
        elif isinstance(failure, ServiceError):
            problems.append(_left_out("a job cannot be read", f"{name_by_id[job_id]}: {failure.message}"))
    problems += (_left_out("a job cannot be declared", f"{job.name}: {why}") for job, why in exported.skipped)
    return exported, problems, [*notes, *_losses(exported)]


def _losses(exported: ExportedStack) -> Iterator[Diagnostic]:
    for entry in exported.unmatched:
        why = f"apply would create {entry.key} beside {entry.job.name}, which is no name of this key"
        fix = f"before anything is applied, {adopt_command(entry.key, entry.job.id)}"
        yield _left_out("not in conflict with its job", why, f"jobs.{entry.key}", fix)
    for entry in exported.entries:
        for path, why in entry.omissions:
            yield _left_out("not exported as it is", why, f"jobs.{entry.key}.{path}")
    if exported.unreported:
        why = f"the service does not report {', '.join(exported.unreported)}"
        yield _left_out("fields not reported", why, fix="add them if the jobs have them")


def _left_out(what: str, why: str, path: str = "", fix: str | None = None) -> Diagnostic:
    return Diagnostic(what, printable(why), fix, path=path, severity=Severity.WARNING)


def _make_plan(
    context: Context, snapshot: Snapshot, actions: Iterable[PlannedAction], warnings: Iterable[PlanWarning]
) -> Plan:
    """A plan of these actions; no guard judges them, for none starts or ends a job."""
    done = sorted(actions, key=lambda one: (one.key, one.before.revision if one.before else 0))
    ownership = snapshot.ownership
    return Plan(
        **context.plan_context().head(context.target.identity),
        applyable=any(action.traits.is_executed for action in done),
        complete=ownership.is_complete and not any(one.action is Action.UNKNOWN for one in done),
        summary=count(done),
        actions=tuple(done),
        warnings=fold_similar_warnings((*unread(ownership), *warnings)),
    )
