"""The decision: one key's entry and what was seen of it, to its actions.

`RULES` are asked in their order, and the first that answers decides. The rules for a job that exists are
in `existing_job_rules.py`. Source: docs/semantics.md, "Decisions".
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from functools import wraps
from typing import NamedTuple

from reconciler.core.digest import is_known
from reconciler.core.identity import MAX_NAME, parse_remote_name
from reconciler.core.lifecycle import ReplaceOrder
from reconciler.core.observed_job import ObservedJob
from reconciler.core.ownership import ConflictingJob, KeyView, Ownership, OwnershipState, Revision
from reconciler.core.phase import Operation, Phase, may
from reconciler.core.record import PastRevision
from reconciler.core.schedule import Overlap
from reconciler.core.stack import DesiredJob
from reconciler.core.values import PlanWarning
from reconciler.decide import existing_job_rules as existing
from reconciler.decide import schedule_rules as schedule
from reconciler.decide.action_builder import Draft, PlanContext
from reconciler.decide.dependencies import Completion, completed_since
from reconciler.decide.existing_job_rules import Difference, ExistingJob, Row, declared_then
from reconciler.decide.plan import Action, PlannedAction, Reason


class Decision(NamedTuple):
    """The actions for one key: its own first, then those on its other revisions.

    `rule` is the name of the rule that decided; those before it in `RULES` did not apply.
    """

    actions: Sequence[PlannedAction]
    warnings: Sequence[PlanWarning] = ()
    rule: str = ""


class Case(NamedTuple):
    """One key, and all that a rule may look at.

    `latest` is the revision that stands for the key, and `existing` compares it with the entry; None where
    there is none, or its phase is not known. `entry` is a job of the entry that no longer produces the key.
    """

    view: KeyView
    desired: DesiredJob | None
    ownership: Ownership
    latest: Revision | None
    draft: Draft
    existing: ExistingJob | None
    entry: DesiredJob | None = None

    @classmethod
    def of(
        cls,
        view: KeyView,
        desired: DesiredJob | None,
        ownership: Ownership,
        context: PlanContext,
        details: Mapping[str, ObservedJob],
        upstream: Collection[Completion] = (),
        upstream_reruns: Sequence[str] = (),
        entry: DesiredJob | None = None,
    ) -> Case:
        """`desired` is None for a key that no file declares.

        `details` holds the jobs that `needs_details` asked for, as far as they could be read, `upstream` the
        last completions of the keys that this one needs, and `upstream_reruns` those of these keys that are
        about to complete once more.
        """
        latest = newest(view, desired)
        draft = Draft(view, desired, context, latest)
        existing = None
        if desired and latest and latest.job.phase:
            job, is_same = latest.job, desired.is_declared_by(latest.marker.digest)
            newer = completed_since(latest, upstream)
            existing = ExistingJob(
                draft,
                desired,
                latest,
                latest.job.phase,
                details.get(job.id),
                is_same,
                newer,
                tuple(upstream_reruns),
            )
        return cls(view, desired, ownership, latest, draft, existing, entry)

    @property
    def conflicting_jobs(self) -> list[ConflictingJob]:
        """Who holds a name of the key, the lowest number first."""
        return sorted(
            name_holders(self.view, self.latest), key=lambda conflicting_job: conflicting_job.number
        )

    def complete(self, action: PlannedAction, warnings: Sequence[PlanWarning] = ()) -> Decision:
        """Add to the key's own action what follows for its other revisions."""
        if action.traits.starts_a_job and (why := _name_problem(action)):
            action = self.draft.plain(Action.BLOCKED, Reason.NAME_TOO_LONG, why)
        more = _superseded(self.draft, self.latest)
        if action.traits.starts_a_job:
            action = _after_others(action, self.view, self.latest, more)
        touched = {a.before.id for a in (action, *more) if _writes_the_marker(a) and a.before}
        return Decision([action, *more, *_renamed(self.draft, touched)], warnings)


Judge = Callable[[Case], Decision | None]


class Rule(NamedTuple):
    """A rule of the decision: a name that stays, when it applies, and the actions that it may choose."""

    name: str
    when: str
    actions: tuple[Action, ...]
    judge: Judge

    @classmethod
    def of(cls, judge: Judge, *actions: Action) -> Rule:
        """Name a rule by its function; the first line of the docstring says when it applies."""
        when, _, _ = (judge.__doc__ or "").partition("\n")
        return cls(judge.__name__.replace("_", "-"), when.removesuffix("."), actions, judge)


def newest(view: KeyView, desired: DesiredJob | None) -> Revision | None:
    """Pick `L`, the revision that stands for the key; one that has aged out of the service may be it.

    The newest one, unless an active one is not outdone by a newer that completed with the declared
    digest: then the active one with the declared digest (the longest running, if several; the newest with
    `overlap: replace`, which was started for the last time), else the newest active one. Terminating ones
    do not stand for the key while another one is active.
    """

    def is_declared(revision: Revision) -> bool:
        return desired is not None and desired.is_declared_by(revision.marker.digest)

    aged_out = view.aged_out
    revisions = view.owned if aged_out is None else [*view.owned, aged_out]
    completed = (r.number for r in revisions if r.job.phase is Phase.COMPLETED and is_declared(r))
    done = max(completed, default=0)
    live = [r for r in view.owned if may(Operation.TERMINATE, r.job.phase) and r.number > done]
    as_declared = [r for r in live if is_declared(r)]
    if as_declared:
        return _of_several(as_declared, desired)
    return next(reversed(live or revisions), None)


def _of_several(active: Sequence[Revision], desired: DesiredJob | None) -> Revision:
    """Which of several active revisions with the declared digest, the newest last, stands for the key."""
    if desired and desired.schedule and desired.lifecycle.overlap is Overlap.REPLACE:
        return active[-1]
    return max(active, key=lambda r: (r.job.duration_s or 0.0, -r.number))


def needs_details(view: KeyView, desired: DesiredJob | None, ownership: Ownership) -> str | None:
    """Return the id of the job whose details the decision needs: its declaration changed since."""
    latest = newest(view, desired)
    if desired is None or desired.is_absent or latest is None or _why_unreadable(view, ownership):
        return None
    if latest.is_aged_out:  # the service has no details of it any more
        return None
    digest = latest.marker.digest
    if desired.is_declared_by(digest) or not is_known(digest) or declared_then(view, latest) is not None:
        return None
    return latest.job.id


def decide(case: Case) -> Decision:
    """Choose the actions for one key, by the first of `RULES` that applies."""
    for rule in RULES:
        if (decision := rule.judge(case)) is not None:
            return decision._replace(rule=rule.name)
    raise AssertionError("the last rule applies to every job that the others leave")


def rests_on_absence(action: PlannedAction, view: KeyView, desired: DesiredJob | None) -> bool:
    """Whether an action holds only if nothing newer of the key exists, under whatever name.

    A job is only ever started then. And one that was active when it was seen last has ended only if it
    is not there any more; one that had ended would be found by the search for active jobs.
    """
    if action.traits.starts_a_job:
        return True
    latest = newest(view, desired)
    if latest is None or not latest.is_aged_out:
        return False
    past = view.past_of(latest.job.id)
    return past is None or not past.has_ended


# --- the rules for what cannot be judged, is to be absent, or has a name that is taken


def unreadable(case: Case) -> Decision | None:
    """The list, or a job of the key, could not be read."""
    why = _why_unreadable(case.view, case.ownership)
    return Decision([case.draft.plain(Action.UNKNOWN, Reason.UNREADABLE, why)]) if why else None


def unknown_phase(case: Case) -> Decision | None:
    """A job of the key is in a phase that this version does not know."""
    strange = next((r for r in case.view.owned if r.job.phase is None), None)
    return Decision([case.draft.unknown_phase(strange)]) if strange else None


def unknown_digest(case: Case) -> Decision | None:
    """A job of the key has a digest algorithm that this version does not know."""
    newer = next((r for r in case.view.owned if not is_known(r.marker.digest)), None)
    if newer is None:
        return None
    detail = f"digest {newer.marker.digest} needs a newer reconciler"
    return Decision([case.draft.plain(Action.BLOCKED, Reason.UNKNOWN_DIGEST, detail, revision=newer)])


def no_longer_produced(case: Case) -> Decision | None:
    """Its entry no longer produces it; active; an edit of the entry, which ends it or not."""
    if case.entry is None:
        return None
    live = [r for r in case.view.owned if may(Operation.TERMINATE, r.job.phase)]
    ends = (
        case.draft.end_member(revision, case.entry)
        if revision is case.latest
        else case.draft.end(revision, Reason.SUPERSEDED, "superseded", case.entry)
        for revision in live
    )
    return Decision([*ends]) if live else None


def absent(case: Case) -> Decision | None:
    """Not declared, or `state: absent`; what is active ends, unless it is protected."""
    if case.desired and not case.desired.is_absent:
        return None
    reason, said = Reason.NOT_IN_MANIFEST, "not in the manifest"
    if case.draft.context.destroys:
        reason, said = Reason.DESTROYED, "destroy"
    elif case.desired:
        reason, said = Reason.STATE_ABSENT, "state: absent"
    live = (r for r in case.view.owned if may(Operation.TERMINATE, r.job.phase))
    return Decision([case.draft.end(revision, reason, said) for revision in live])


def rename_clash(case: Case) -> Decision | None:
    """Both keys of a `formerly` own jobs."""
    clash = rename_problem(case.view, case.desired) if case.desired else None
    return Decision([case.draft.plain(Action.CONFLICT, Reason.RENAME_CLASH, clash)]) if clash else None


def history_unreadable(case: Case) -> Decision | None:
    """The history could not be read, and no job is owned or a newer name of the key is taken."""
    if case.view.history_problem is None or (case.view.owned and not case.conflicting_jobs):
        return None
    why = f"the history could not be read: {case.view.history_problem}"
    return Decision([case.draft.plain(Action.UNKNOWN, Reason.UNREADABLE, why)])


def name_taken(case: Case) -> Decision | None:
    """An unmanaged or foreign job has a name of the key, and no newer job is owned."""
    others = [s for s in case.conflicting_jobs if _as_ours(case.view, s) is None]
    chosen = next(iter([*adoption_order(others, case.view, case.latest), *others]), None)
    return Decision([case.draft.name_taken(chosen)]) if chosen else None


def marker_lost(case: Case) -> Decision | None:
    """The same, but the history knows such a job as ours."""
    ours = [(s, past) for s in case.conflicting_jobs if (past := _as_ours(case.view, s))]
    return (
        Decision([case.draft.restored(conflicting_job, past) for conflicting_job, past in ours])
        if ours
        else None
    )


def not_found(case: Case) -> Decision | None:
    """No job of the key exists or is on record."""
    return None if case.existing else case.complete(case.draft.create(Reason.NOT_FOUND, "new"))


def details_unreadable(case: Case) -> Decision | None:
    """The digest differs, and what was declared before could not be read."""
    if case.existing is None or not case.existing.is_unreadable:
        return None
    return Decision([case.draft.plain(Action.UNKNOWN, Reason.UNREADABLE, "its details could not be read")])


# --- the rules for a job that exists


def _existing(rule: Callable[[ExistingJob], Row | None]) -> Judge:
    """Ask a rule about a job, edited or not."""

    @wraps(rule)
    def judge(case: Case) -> Decision | None:
        row = rule(case.existing) if case.existing else None
        return None if row is None else case.complete(*row)

    return judge


def _as_declared(rule: Callable[[ExistingJob], Row | None]) -> Judge:
    """Ask a rule about a job of which nothing was edited that its digest covers."""

    @wraps(rule)
    def judge(case: Case) -> Decision | None:
        job = case.existing
        row = rule(job) if job and job.edit is None else None
        return None if row is None else case.complete(*row)

    return judge


def _edited(rule: Callable[[ExistingJob, Difference], Row | None]) -> Judge:
    """Ask a rule about a job, and what was edited since it was created."""

    @wraps(rule)
    def judge(case: Case) -> Decision | None:
        job = case.existing
        row = rule(job, job.edit) if job and job.edit else None
        return None if row is None else case.complete(*row)

    return judge


#: In this order; the first that applies decides. docs/semantics.md, "Decisions", has the same rows.
RULES = (
    Rule.of(unreadable, Action.UNKNOWN),
    Rule.of(unknown_phase, Action.BLOCKED),
    Rule.of(unknown_digest, Action.BLOCKED),
    Rule.of(
        no_longer_produced, Action.TERMINATE, Action.CONFLICT, Action.KEEP, Action.UPDATE, Action.BLOCKED
    ),
    Rule.of(absent, Action.TERMINATE, Action.UPDATE, Action.BLOCKED),
    Rule.of(rename_clash, Action.CONFLICT),
    Rule.of(history_unreadable, Action.UNKNOWN),
    Rule.of(name_taken, Action.CONFLICT),
    Rule.of(marker_lost, Action.UPDATE),
    Rule.of(not_found, Action.CREATE),
    Rule.of(details_unreadable, Action.UNKNOWN),
    Rule.of(_existing(schedule.start_unknown), Action.UNKNOWN),
    Rule.of(_existing(schedule.scheduled), Action.CREATE),
    Rule.of(_existing(schedule.overlapping), Action.REPLACE, Action.BLOCKED),
    Rule.of(_as_declared(existing.unchanged), Action.KEEP, Action.UPDATE),
    Rule.of(_existing(existing.upstream_newer), Action.CREATE),
    Rule.of(_as_declared(existing.completed), Action.KEEP, Action.UPDATE),
    Rule.of(_as_declared(existing.auto_stopped), Action.KEEP, Action.UPDATE),
    Rule.of(_as_declared(existing.declared_again), Action.CREATE),
    Rule.of(_as_declared(existing.retries_exhausted), Action.KEEP, Action.UPDATE),
    Rule.of(_as_declared(existing.retry_later), Action.DEFER),
    Rule.of(_as_declared(existing.retry), Action.CREATE),
    Rule.of(_as_declared(existing.failed), Action.KEEP, Action.UPDATE),
    Rule.of(_as_declared(existing.terminated_outside), Action.KEEP, Action.UPDATE),
    Rule.of(_edited(existing.change_ignored), Action.KEEP, Action.UPDATE),
    Rule.of(_edited(existing.change_refused), Action.CONFLICT),
    Rule.of(_edited(schedule.change_waits), Action.KEEP, Action.UPDATE),
    Rule.of(_edited(existing.changed_after_end), Action.CREATE),
    Rule.of(_edited(existing.protected), Action.BLOCKED),
    Rule.of(_edited(existing.would_lose_work), Action.CONFLICT),
    Rule.of(_edited(existing.ended_badly_before), Action.KEEP, Action.DEFER),
    Rule.of(_edited(existing.changed), Action.REPLACE),
)


# --- what they ask


def name_holders(view: KeyView, latest: Revision | None) -> list[ConflictingJob]:
    """Who holds a remote name of the key: any one if nothing of it is owned, else a newer one.

    So the revisions of two stacks never interleave.
    """
    number = latest.number if latest and view.owned else 0
    return [conflicting_job for conflicting_job in view.conflicting_jobs if conflicting_job.number > number]


def adoption_order(
    conflicting_jobs: Iterable[ConflictingJob], view: KeyView, latest: Revision | None
) -> list[ConflictingJob]:
    """The unmanaged ones of these: first what holds a name that the key needs, what is active, what is newer.

    A conflict names the first of them, and `adopt --all` takes it.
    """
    in_the_way = {conflicting_job.job.id for conflicting_job in name_holders(view, latest)}
    return sorted(
        (one for one in conflicting_jobs if one.standing is OwnershipState.UNMANAGED),
        key=lambda one: (one.job.id in in_the_way, one.job.is_active, one.number),
        reverse=True,
    )


def rename_problem(view: KeyView, desired: DesiredJob) -> str | None:
    """Why a renaming cannot be, or None.

    A revision of the new key that has a name of the old one shows that the renaming is under way.
    """
    if not desired.formerly:
        return None
    old = sorted({r.marker.key for r in view.owned} - {desired.key})
    is_under_way = any(
        parse_remote_name(r.job.name).key in desired.formerly
        for r in view.owned
        if r.marker.key == desired.key
    )
    own = any(r.marker.key == desired.key for r in view.owned)
    if not old or not own or is_under_way:
        return None
    return f"formerly: {', '.join(old)}, but {desired.key} already has revisions"


def _why_unreadable(view: KeyView, ownership: Ownership) -> str | None:
    """Why the key cannot be judged, or None."""
    if ownership.problem is not None:
        # What the problem is, a warning says once for all keys.
        return "the list could not be read"
    return view.unreadable[0].why if view.unreadable else None


def _as_ours(view: KeyView, conflicting_job: ConflictingJob) -> PastRevision | None:
    """What the history store knows of a job of ours that has lost its marker, if it can be restored."""
    if conflicting_job.standing is not OwnershipState.UNMANAGED or conflicting_job.job.phase in (
        None,
        Phase.TERMINATING,
    ):
        return None
    return view.past_of(conflicting_job.job.id)


def _name_problem(action: PlannedAction) -> str | None:
    """Why the service would refuse the name of the next revision: the longest keys run out of digits."""
    name = action.after.name if action.after else ""
    if len(name) <= MAX_NAME:
        return None
    return f"{name} has {len(name)} characters, the service allows {MAX_NAME}; shorten the key"


def _superseded(draft: Draft, latest: Revision | None) -> list[PlannedAction]:
    """Every other active revision ends: a key has one.

    With `create_first` the old job stays until the new one has shown that it runs, also where an apply
    stopped waiting for that.
    """
    others = [r for r in draft.view.owned if r is not latest and may(Operation.TERMINATE, r.job.phase)]
    if latest and draft.creates_first and latest.job.phase in (Phase.CREATING, Phase.PENDING):
        detail = f"terminated once r{latest.number} is running (replace_order: create_first)"
        return [draft.plain(Action.DEFER, Reason.SUPERSEDED, detail, revision=r) for r in others]
    return [draft.end(revision, Reason.SUPERSEDED, "superseded") for revision in others]


def _after_others(
    action: PlannedAction, view: KeyView, latest: Revision | None, more: Iterable[PlannedAction]
) -> PlannedAction:
    """Let a new job wait for every other revision that is ending, or that `more` ends: a key has one job.

    Whatever stands for the key: it may have aged out of the service, or have ended, while an older one runs.
    """
    superseded = {one.before.id for one in more if one.before and one.traits.stops_a_job}
    others = [
        revision
        for revision in view.owned
        if revision is not latest
        and (revision.job.phase is Phase.TERMINATING or revision.job.id in superseded)
    ]
    if not others:
        return action
    names = ", ".join(f"r{revision.number}" for revision in others)
    return action.model_copy(
        update={
            "waits_for_jobs": tuple(revision.job.id for revision in others),
            "detail": f"waits for the end of {names}; {action.detail}",
        }
    )


def _writes_the_marker(action: PlannedAction) -> bool:
    """Whether the marker of the job that is there follows a renaming on the way.

    Where the new job is created first it would not do so in time: a crash after that would leave both
    keys with revisions of their own.
    """
    creates_first = action.replace_order is ReplaceOrder.CREATE_FIRST
    return action.traits.is_executed and not (action.action is Action.REPLACE and creates_first)


def _renamed(draft: Draft, touched: Collection[str]) -> list[PlannedAction]:
    """Every further revision that still bears the old key: its marker follows."""
    return [
        draft.renamed(revision)
        for revision in draft.view.owned
        if revision.marker.key != draft.view.key
        and revision.job.id not in touched
        and may(Operation.UPDATE_DESCRIPTION, revision.job.phase)
    ]
