"""Plans for existing jobs (`adopt`, `release`, renaming a stack), and the manifest that `export` makes.

The plans are executed like any other, see `rollout`.
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

    `forgotten` are the revisions that only the old stack's history knows; they are taken over.
    """

    plan: Plan
    old: Scope
    forgotten: tuple[PastRevision, ...] = ()


def adopt_plan(
    context: Context, key: str, job_id: str, *, takes_as_is: bool = False
) -> tuple[Plan, EntryPatch | None]:
    """Decide about one job; return the plan, and the edit that would make the entry equal to the job.

    Raises:
        WrongUsage: the stack has no such key.
        NotFound: there is no such job.
        ServiceError: the job could not be read.
    """
    stack = context.loaded.stack
    desired = stack.jobs.get(key)
    if desired is None:
        diagnostic = unknown_key(stack, key, stack.jobs, declared_only=True)
        fix = diagnostic.fix or f"declare it; reconciler export {job_id} prints its entry"
        raise WrongUsage(diagnostic._replace(fix=fix))
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
    """Plan the release of a key, or of all members of an entry with a matrix.

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
    for owned_key in keys:
        desired = stack.find(owned_key)
        released = release(state_of(owned_key, desired, snapshot, context.plan_context()))
        actions += released
        warnings += release_warnings(desired, released)
    if not actions:
        warnings.append(PlanWarning(what="nothing to do", why=f"stack {stack.name} owns no job of key {key}"))
    return _make_plan(context, snapshot, actions, warnings)


def move_plan(context: Context, old: str) -> MovePlan:
    """Plan the renaming of a stack to this one; `check_old_name` validates the name.

    Raises:
        WrongUsage: no job belongs to that stack, and its name looks like a typo.
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
        actions += renamed.move(snapshot.view(key), stack.find(key), key)
    forgotten = renamed.aged_out(names, seen.jobs, snapshot.memory) if ownership.proves_absence else ()
    warnings = [*renamed.left_behind(names), *renamed.taken_over(forgotten)]
    if not actions and not forgotten and ownership.problem is None:
        stacks = {job.marker.stack for job in seen.jobs if job.marker is not None} - {stack.name}
        if old not in stacks and (fix := suggest_key(old, stacks)):
            # A close match with a stack on the target is taken for a typo.
            why = f"no job on this target belongs to stack {old}"
            raise WrongUsage(Diagnostic("no such stack", why, fix))
        why = f"stack {old} owns no job of a key declared here"
        warnings.append(PlanWarning(what="nothing to do", why=why))
    return MovePlan(_make_plan(context, snapshot, actions, warnings), scope, forgotten)


def take_over_history(context: Context, move: MovePlan) -> None:
    """Take over what only the old stack's history knows, so that finished work stays finished.

    Raises:
        RecordsUnavailable: it cannot be recorded.
    """
    if move.forgotten:
        jobs = {past.job for past in move.forgotten}
        count_ = context.recording.take_over(context.scope, move.old, jobs)
        context.log_debug(f"took over {count_} revisions of the history of stack {move.old.stack}")


def check_old_name(context: Context, old: str) -> None:
    """Raise WrongUsage if a name cannot be that of another stack."""
    if old == context.loaded.stack.name:
        why = f"{old} is the current name of this stack; give its former name"
        raise WrongUsage(Diagnostic("not another stack", why))
    if problem := stack_problem(old):
        raise WrongUsage(Diagnostic("not a stack name", f'"{old}": {problem}'))


def _read_job(context: Context, key: str, job_id: str, seen: Observation) -> ObservedJob:
    """Return the details of a job that was given by id or name; `seen` is the workspace.

    Raises:
        WrongUsage: several jobs have that name.
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
        message = f"workspace {workspace} has no job with the id or name {job_id}"
        raise NotFound(
            message, code=refusal.code, status=refusal.status, request_id=refusal.request_id, fix=fix
        ) from None


def export_jobs(
    loaded: LoadedStack, target: Connected, found: Iterable[ObservedJob], redactor: Redactor
) -> tuple[ExportedStack, list[Diagnostic], list[Diagnostic]]:
    """Return the manifest of some jobs, with problems about what it lacks, and notes about what differs.

    `redactor` learns what a stack declares sensitive, and what the jobs have to hide.

    Raises:
        Unauthorized: the target denies reading.
    """
    name_by_id = {job.id: job.name for job in found}
    details, secrets = read_details(target.backend, [*name_by_id]), DeclaredSecrets.of(loaded.stack)
    jobs = [job for job in details.values() if isinstance(job, ObservedJob)]
    for job in jobs:
        secrets.hide(job, redactor.add_secrets)
    name, declared = loaded.target(target.identity.name)
    if declared.traits.has_address and not declared.project_id:
        declared = declared.model_copy(update={"project_id": target.identity.project_id})
    exported = export_stack(
        loaded.stack.name,
        name,
        declared,
        jobs,
        is_secret=lambda text: redactor(text) != text,
        add_secrets=redactor.add_secrets,
    )
    problems, notes = list[Diagnostic](), list[Diagnostic]()
    for job_id, failure in details.items():
        if isinstance(failure, NotFound):
            notes.append(_left_out("a job is gone", f"{name_by_id[job_id]} has been deleted"))
        elif isinstance(failure, ServiceError):
            problems.append(_left_out("a job cannot be read", f"{name_by_id[job_id]}: {failure.message}"))
    problems += (_left_out("a job cannot be declared", f"{job.name}: {why}") for job, why in exported.skipped)
    return exported, problems, [*notes, *_losses(exported)]


def _losses(exported: ExportedStack) -> Iterator[Diagnostic]:
    for entry in exported.unmatched:
        why = f"apply would create {entry.key} beside {entry.job.name}, whose name does not match the key"
        fix = f"before anything is applied, {adopt_command(entry.key, entry.job.id)}"
        yield _left_out("key does not match the job's name", why, f"jobs.{entry.key}", fix)
    for entry in exported.entries:
        for path, why in entry.omissions:
            yield _left_out("not exported exactly", why, f"jobs.{entry.key}.{path}")
    if exported.unreported:
        why = f"the service does not report {', '.join(exported.unreported)}"
        yield _left_out("fields not reported", why, fix="add them if the jobs have them")


def _left_out(what: str, why: str, path: str = "", fix: str | None = None) -> Diagnostic:
    return Diagnostic(what, printable(why), fix, path=path, severity=Severity.WARNING)


def _make_plan(
    context: Context, snapshot: Snapshot, actions: Iterable[PlannedAction], warnings: Iterable[PlanWarning]
) -> Plan:
    """Return a plan of these actions. No guard applies, because none starts or ends a job."""
    ordered = sorted(actions, key=lambda action: (action.key, action.before.revision if action.before else 0))
    ownership = snapshot.ownership
    return Plan(
        **context.plan_context().head(context.target.identity),
        applyable=any(action.traits.is_executed for action in ordered),
        complete=ownership.is_complete and not any(action.action is Action.UNKNOWN for action in ordered),
        summary=count(ordered),
        actions=tuple(ordered),
        warnings=fold_similar_warnings((*unread(ownership), *warnings)),
    )
