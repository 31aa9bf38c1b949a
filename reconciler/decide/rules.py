"""The decision table: from the state of one key to its actions.

`decide` tries the `RULES` in order; the first that applies decides. Source: docs/concepts/decisions.md.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING, NamedTuple

from reconciler.core.body import is_known
from reconciler.core.ownership import ConflictingJob
from reconciler.core.phase import Operation, Phase, may
from reconciler.core.values import PlanWarning, timestamp
from reconciler.decide.actions import (
    PROTECTED,
    Decision,
    adopt_command,
    after_of,
    block_unknown_digest,
    create,
    draft,
    end,
    keep,
    keep_or_update,
    next_revision,
    release_command,
    rename_command,
    replacement,
    restore_marker,
    single,
    with_other_revisions,
)
from reconciler.decide.key_state import Completion, KeyState, bad_run, next_attempt
from reconciler.decide.plan import LOSS_WAY_OUT, Action, Guard, PlannedAction, Reason
from reconciler.text import few

if TYPE_CHECKING:
    from reconciler.core.past import PastRevision

Judge = Callable[[KeyState], Decision | None]
Scope = Callable[[KeyState], bool]


class Rule(NamedTuple):
    """A row of the decision table: its stable name, when it applies, and the actions that it may choose.

    A rule with a `scope` is tried only for keys in that scope, may rely on what the scope guarantees, and its
    decision is completed for the key's other revisions. `hints` override `HINTS` for the given reasons.
    """

    name: str
    when: str
    actions: tuple[Action, ...]
    scope: Scope | None
    judge: Judge
    hints: Mapping[Reason, tuple[str, ...]] = MappingProxyType({})

    def hints_for(self, reason: Reason) -> tuple[str, ...]:
        return self.hints[reason] if reason in self.hints else HINTS[reason]


def decide(state: KeyState) -> Decision:
    """Choose the actions for one key by the first rule that applies."""
    for rule in RULES:
        if rule.scope and not rule.scope(state):
            continue
        if (decision := rule.judge(state)) is not None:
            decision = with_other_revisions(state, decision) if rule.scope else decision
            return decision._replace(rule=rule.name)
    raise AssertionError("the last rule applies to every job that the others leave")


def details_needed_of(state: KeyState) -> list[str]:
    """Return the ids of the jobs whose details are needed to see what was edited."""
    if state.declared is None or state.latest is None or state.unreadable:
        return []
    return [r.job.id for r in state.compared if is_known(r.marker.digest) and state.needs_details(r)]


def assumes_absence(action: PlannedAction, state: KeyState) -> bool:
    """Whether the action is valid only if the key has no newer job, under any name.

    True if it starts a job, or takes a job that was last seen active as ended because it is gone. A job that
    had ended before would be found by the search for active jobs if it had become active again.
    """
    if action.traits.starts_a_job:
        return True
    if state.latest is None or not state.latest.is_aged_out:
        return False
    past = state.view.past_of(state.latest.job.id)
    return past is None or not past.has_ended


# --- hints: what would change the decision


RUN_AGAIN = "edit the entry, or `lifecycle.rerun`, and it runs again as the next revision"
COUNT_ANEW = "edit the entry, or `lifecycle.rerun`, and the retry count starts over"
REPLACE_IT = "change a field that is fixed at creation, and the job is replaced"
LET_IT_GO_ON = "set `lifecycle.overlap: skip`, and the job keeps running"
DO_NOT_WAIT = "remove `needs`, or the reference to an output, and it starts at once"
KEEP_IT = "set `lifecycle.on_upstream: keep`, and it is kept, with a warning"
_AT_ONCE = (
    "set `lifecycle.on_change: replace` and edit the entry, or `lifecycle.rerun`, and it runs again at once"
)
#: Replacements for keys whose edits wait for their schedule.
WHERE_EDITS_WAIT: Mapping[str, str] = {
    RUN_AGAIN: _AT_ONCE,
    COUNT_ANEW: _AT_ONCE,
    REPLACE_IT: f"set `lifecycle.on_change: replace` and {REPLACE_IT}",
}
_REMOVE = "remove the entry, or set `state: absent`, and nothing is created"
_OLD_VALUES = "restore the old values, and the job is kept"
_START_EDIT = "set `lifecycle.on_change: replace`, and the edit starts a new job"
_NOTHING_UPDATED = ("restore the old values into the entry, and nothing is updated",)

#: Defaults by reason; a rule may override them.
HINTS: Mapping[Reason, tuple[str, ...]] = {
    Reason.UNREADABLE: ("fix what could not be read, and plan again",),
    Reason.UNKNOWN_PHASE: ("use a version of reconciler that knows the phase",),
    Reason.UNKNOWN_DIGEST: ("use the newer version of reconciler that created the job",),
    Reason.NOT_IN_MANIFEST: (
        "declare the key again, and the job is kept",
        "name it under `formerly` of another key, and it becomes a revision of that key",
    ),
    Reason.STATE_ABSENT: ("remove `state: absent`, and the job is kept",),
    Reason.DESTROYED: (),
    Reason.RENAME_CLASH: ("remove `formerly`, or release one of the keys first",),
    Reason.NAME_TAKEN: ("adopt the job, have its stack release it, or rename the key",),
    Reason.NAME_TOO_LONG: ("shorten the key",),
    Reason.MARKER_RESTORED: ("nothing: the marker is needed to identify the owner of the job",),
    Reason.NOT_FOUND: (_REMOVE,),
    Reason.SCHEDULED: (
        "set a later `lifecycle.schedule`, or remove it, and nothing is started",
        LET_IT_GO_ON,
    ),
    Reason.UNCHANGED: (REPLACE_IT, "remove the entry, or set `state: absent`, and the job is terminated"),
    Reason.UPSTREAM_NEWER: (KEEP_IT,),
    Reason.COMPLETED: (RUN_AGAIN,),
    Reason.AGED_OUT: (RUN_AGAIN,),
    Reason.AUTO_STOPPED: (RUN_AGAIN,),
    Reason.DECLARED_AGAIN: ("set `state: absent`, and it stays terminated",),
    Reason.WAITS_FOR_TERMINATION: (_REMOVE,),
    Reason.RETRIES_EXHAUSTED: ("raise `lifecycle.max_retries`, and it is tried again", COUNT_ANEW),
    Reason.RETRY_LATER: ("set a shorter `lifecycle.retry_delay`, and it is tried sooner",),
    Reason.RETRY: ("set `lifecycle.on_failure: keep`, and it is not tried again",),
    Reason.RECREATE: ("set `lifecycle.on_terminated: keep`, and it is not started again",),
    Reason.RERUN_REQUESTED: ("omit `--rerun`, and it is kept, unless something else starts it",),
    Reason.FAILED: ("set `lifecycle.on_failure: retry`, and it is tried again", RUN_AGAIN),
    Reason.TERMINATED_OUTSIDE: (
        "set `lifecycle.on_terminated: recreate`, and it is started again",
        RUN_AGAIN,
    ),
    Reason.MUTABLE_CHANGED: _NOTHING_UPDATED,
    Reason.MARKER_CHANGED: _NOTHING_UPDATED,
    Reason.CHANGE_IGNORED: (_START_EDIT,),
    Reason.CHANGE_REFUSED: (_OLD_VALUES, _START_EDIT),
    Reason.WAITS_FOR_SCHEDULE: (
        f"{_START_EDIT} at once",
        "restore the old values, and the next time of the schedule runs them",
    ),
    Reason.IMMUTABLE_CHANGED: (
        _OLD_VALUES,
        "set `lifecycle.on_change: keep`, and the job is kept although it differs",
        "set `lifecycle.on_change: fail`, and the edit is a conflict",
    ),
    Reason.WOULD_LOSE_WORK: (
        "set `lifecycle.on_change: replace`, or pass `--allow lost-work=KEY`, and the job is replaced",
        "restore the old values, or set `lifecycle.on_change: keep`, and the job is kept",
    ),
    Reason.PROTECTED: ("set `protect: false`, apply, and plan again",),
    Reason.PROTECTION_RELEASED: ("remove `protect: false`, and the job stays protected",),
    Reason.SUPERSEDED: ("nothing: a key can have only one active job",),
    Reason.RENAMED: ("remove `formerly`, and the old key is terminated and this one created",),
    Reason.NEEDS_PENDING: ("wait until the needed keys have completed", DO_NOT_WAIT),
    Reason.NEEDS_FAILED: ("run the needed keys again (edit them, or their `lifecycle.rerun`)", DO_NOT_WAIT),
    Reason.WAITS_FOR_TURN: ("raise `max_parallel` of its entry, and it starts at once",),
    Reason.GUARD: ("review the plan, then pass `--allow GUARD`, and it is applied",),
    Reason.DENIED: ("change the job or the policy, and it is applied; --force does not override a policy",),
    Reason.PREFLIGHT: ("change the job to what the target offers, and it is applied",),
}

_TERMINATE_MEMBER = "set `lifecycle.on_change: replace` on its entry, and the job is terminated"
_PRODUCE_MEMBER = (
    "make the entry produce the key again, and the job is kept",
    "name the key under `formerly` of the entry, and the job becomes the job of a new member",
)
#: Overrides for a member that its sweep no longer produces.
_HINTS_OF_MEMBER: Mapping[Reason, tuple[str, ...]] = {
    Reason.NOT_IN_MANIFEST: (
        *_PRODUCE_MEMBER,
        "set `lifecycle.on_change: keep` on its entry, and the job is kept",
    ),
    Reason.WOULD_LOSE_WORK: (f"{_TERMINATE_MEMBER}; or pass `--allow lost-work=KEY`", *_PRODUCE_MEMBER),
    Reason.CHANGE_REFUSED: (_TERMINATE_MEMBER, *_PRODUCE_MEMBER),
    Reason.CHANGE_IGNORED: (_TERMINATE_MEMBER,),
}


# --- the rules

#: In order; docs/concepts/decisions.md has the same rows.
RULES: list[Rule] = []


def _new(state: KeyState) -> bool:
    return not state.has_revision


def _exists(state: KeyState) -> bool:
    return state.has_revision


def _unedited(state: KeyState) -> bool:
    return state.has_revision and state.edit is None


def _edited(state: KeyState) -> bool:
    return state.has_revision and state.edit is not None


def rule(
    when: str,
    scope: Scope | None,
    *actions: Action,
    hints: Mapping[Reason, tuple[str, ...]] = MappingProxyType({}),
) -> Callable[[Judge], Judge]:
    """Add the decorated function to `RULES`: `judge_marker_lost` is the rule `marker-lost`."""

    def add(judge: Judge) -> Judge:
        name = judge.__name__.removeprefix("judge_").replace("_", "-")
        RULES.append(Rule(name, when, actions, scope, judge, hints))
        return judge

    return add


# --- unknown, absent, or with a name that is taken


@rule("The list, or a job of the key, could not be read", None, Action.UNKNOWN)
def judge_unreadable(state: KeyState) -> Decision | None:
    return single(state, Action.UNKNOWN, Reason.UNREADABLE, state.unreadable) if state.unreadable else None


@rule("A job of the key is in a phase that this version does not know", None, Action.BLOCKED)
def judge_unknown_phase(state: KeyState) -> Decision | None:
    revision = next((r for r in state.view.owned if r.job.phase is None), None)
    if revision is None:
        return None
    verdict = may(Operation.TERMINATE, None)
    detail = f'phase "{revision.job.phase_text}": {verdict.why}; legal {verdict.legal_when}'
    return single(state, Action.BLOCKED, Reason.UNKNOWN_PHASE, detail, revision=revision)


@rule("A job of the key has a digest algorithm that this version does not know", None, Action.BLOCKED)
def judge_unknown_digest(state: KeyState) -> Decision | None:
    revision = next((r for r in state.view.owned if not is_known(r.marker.digest)), None)
    return Decision([block_unknown_digest(state, revision)]) if revision else None


@rule(
    "Its entry no longer produces it; active; an edit of the entry, which ends it or not",
    None,
    Action.TERMINATE,
    Action.CONFLICT,
    Action.KEEP,
    Action.UPDATE,
    Action.BLOCKED,
    hints=_HINTS_OF_MEMBER,
)
def judge_no_longer_produced(state: KeyState) -> Decision | None:
    entry = state.former_entry
    if entry is None or not state.live:
        return None
    lost_time, on_change = state.context.limits.lost_time, entry.lifecycle.on_change
    is_allowed = state.context.allowances.permits(Guard.LOST_WORK, state.key, entry.sweep)
    actions = []
    for revision in state.live:
        if revision is not state.latest:
            actions.append(end(state, revision, Reason.SUPERSEDED, "superseded", entry))
            continue
        detail = f"no longer produced by {entry.sweep or entry.key}"
        action = end(state, revision, Reason.NOT_IN_MANIFEST, detail, entry)
        if action.action is not Action.TERMINATE or on_change == "replace":
            pass
        elif on_change == "keep":
            why, after = f"{detail}; on_change: keep", after_of(revision)
            action = draft(state, Action.KEEP, Reason.CHANGE_IGNORED, why, after=after)
        elif on_change == "fail":
            action = draft(state, Action.CONFLICT, Reason.CHANGE_REFUSED, f"{detail}; on_change: fail")
        elif not is_allowed and revision.job.ran_s(state.at_s) > lost_time:
            action = draft(state, Action.CONFLICT, Reason.WOULD_LOSE_WORK, detail + LOSS_WAY_OUT)
        elif not is_allowed:
            action = action.model_copy(update={"lost_time": lost_time})
        actions.append(action)
    return Decision(actions)


@rule(
    "Not declared, or `state: absent`; what is active ends, unless it is protected",
    None,
    Action.TERMINATE,
    Action.UPDATE,
    Action.BLOCKED,
)
def judge_absent(state: KeyState) -> Decision | None:
    if state.declared:
        return None
    reason, detail = Reason.NOT_IN_MANIFEST, "not in the manifest"
    if state.context.destroys:
        reason, detail = Reason.DESTROYED, "destroy"
    elif state.entry:
        reason, detail = Reason.STATE_ABSENT, "state: absent"
    return Decision([end(state, revision, reason, detail) for revision in state.live])


@rule("Both keys of a `formerly` own jobs", None, Action.CONFLICT)
def judge_rename_clash(state: KeyState) -> Decision | None:
    clash = state.rename_problem
    return single(state, Action.CONFLICT, Reason.RENAME_CLASH, clash) if clash else None


@rule(
    "The history could not be read, and no job is owned or a newer name of the key is taken",
    None,
    Action.UNKNOWN,
)
def judge_history_unreadable(state: KeyState) -> Decision | None:
    problem = state.view.history_problem
    if problem is None or (state.view.owned and not state.name_holders):
        return None
    return single(state, Action.UNKNOWN, Reason.UNREADABLE, f"the history could not be read: {problem}")


@rule("An unmanaged or foreign job has a name of the key, and no newer job is owned", None, Action.CONFLICT)
def judge_name_taken(state: KeyState) -> Decision | None:
    others = [other for other in state.name_holders if _restorable_record(state, other) is None]
    if not others:
        return None
    # Name the best candidate for adoption: the active one, else the newest.
    unmanaged = [other for other in others if other.is_unmanaged]
    holder = max(unmanaged, key=lambda other: (other.job.is_active, other.number), default=others[0])
    job, marker = holder.job, holder.job.marker
    fix = f"adopt it ({adopt_command(state.key, job.id)})"
    if marker is not None:
        fix = f"have stack {marker.stack} release it (there: {release_command(marker.key)})"
        if marker.key == state.key:
            fix += f", adopt its jobs if this stack was renamed ({rename_command(marker.stack)})"
    detail = f"{job.name} is taken by job {job.id} ({holder.why}); {fix}, or rename the key"
    return single(state, Action.CONFLICT, Reason.NAME_TAKEN, detail)


@rule(
    "A job that the history knows as ours has a name of the key, without a marker; no newer job is owned",
    None,
    Action.UPDATE,
)
def judge_marker_lost(state: KeyState) -> Decision | None:
    lost = [(job, past) for job in state.name_holders if (past := _restorable_record(state, job))]
    return Decision([restore_marker(state, job, past) for job, past in lost]) if lost else None


def _restorable_record(state: KeyState, holder: ConflictingJob) -> PastRevision | None:
    """Return the history's record of a job that lost its marker; None if it cannot be restored."""
    if not holder.is_unmanaged or holder.job.phase in (None, Phase.TERMINATING):
        return None
    return state.view.past_of(holder.job.id)


@rule("No job of the key exists or is on record", _new, Action.CREATE)
def judge_not_found(state: KeyState) -> Decision:
    return create(state, Reason.NOT_FOUND, "new")


@rule("The digest differs, and what was declared before could not be read", None, Action.UNKNOWN)
def judge_details_unreadable(state: KeyState) -> Decision | None:
    if not state.has_revision or state.details is not None or not state.needs_details(state.revision):
        return None
    why = state.snapshot.unread.get(state.revision.job.id)
    # Without the request, which differs by job, so that equal problems are folded.
    detail = "its details could not be read" + (f": {why.what}: {why.message}" if why else "")
    return single(state, Action.UNKNOWN, Reason.UNREADABLE, detail)


# --- schedules
#
# Whether a time is due follows from the jobs alone: it lies after the key's last start and after the schedule
# began to count, but not after now by the service's clock. Starting a job settles all due times, so each
# runs once. Source: docs/concepts/schedules.md.


@rule(
    "Scheduled; the creation time of its newest job is unknown, and a start depends on it",
    _exists,
    Action.UNKNOWN,
)
def judge_start_unknown(state: KeyState) -> Decision | None:
    if state.counts_from_s is None or state.view.last_start_s is not None:
        return None
    if not (state.is_ended or state.desired.lifecycle.overlap == "replace"):
        return None
    name = state.view.ever_owned[-1].job.name
    detail = f"the creation time of {name} is unknown, so it is unknown whether a start is due"
    return single(state, Action.UNKNOWN, Reason.UNREADABLE, detail)


@rule(
    "Ended, in any way; a time of its schedule has come since the key was last started",
    _exists,
    Action.CREATE,
)
def judge_scheduled(state: KeyState) -> Decision | None:
    if state.due_s is None or not state.is_ended or _is_refused(state):
        return None
    detail = _scheduled_for(state) + (f"; {state.edit_summary}" if state.edit else "")
    # A schedule is meant to run finished work again: not worth a warning.
    more = {"scheduled_for": timestamp(state.due_s), "rerun_of": None}
    return next_revision(state, Reason.SCHEDULED, detail, **more)


@rule(
    "Active; a time of its schedule has come since; `overlap: replace`; blocked if it is protected",
    _exists,
    Action.REPLACE,
    Action.BLOCKED,
)
def judge_overlapping(state: KeyState) -> Decision | None:
    lifecycle = state.desired.lifecycle
    if state.due_s is None or state.is_ended or _is_refused(state):
        return None
    if lifecycle.overlap != "replace":
        return None
    if state.revision.marker.protected and lifecycle.protect is False:
        return None  # an update removes the protection first
    detail = _scheduled_for(state) + (f"; {state.edit_summary}" if state.edit else "")
    if state.is_protected:
        return _blocked_by_protection(state, detail)
    when = timestamp(state.due_s)
    return replacement(state, Reason.SCHEDULED, detail, scheduled_for=when)


def _is_refused(state: KeyState) -> bool:
    return state.desired.lifecycle.on_change == "fail" and state.edit is not None


def _scheduled_for(state: KeyState) -> str:
    assert state.desired.schedule is not None
    assert state.due_s is not None
    return f"scheduled for {state.desired.schedule.spell(state.due_s)}"


def _kept_status(state: KeyState) -> str:
    """Say how a kept job ended, or that a scheduled start waits for its end; "" if neither."""
    bad_end = state.bad_end and f"; {state.bad_end}"
    if state.due_s is None or state.is_ended:
        return bad_end
    return f"{bad_end}; {_scheduled_for(state)}, starts once it has ended (overlap: skip)"


@rule("Ended, in any way; `--rerun` names the key", _exists, Action.CREATE)
def judge_rerun_requested(state: KeyState) -> Decision | None:
    if state.key not in state.context.rerun or not state.phase.is_terminal or _is_refused(state):
        return None
    detail = "rerun requested" + (f"; {state.edit_summary}" if state.edit else "")
    return next_revision(state, Reason.RERUN_REQUESTED, detail)


# --- the job is as declared


@rule("Creating, Pending or Running; as declared", _unedited, Action.KEEP, Action.UPDATE)
def judge_unchanged(state: KeyState) -> Decision | None:
    detail = state.phase.value.lower() + _kept_status(state)
    return None if state.is_ended else keep_or_update(state, Reason.UNCHANGED, detail)


@rule(
    "Ended; a needed key has completed a newer revision since, or is about to; `on_upstream: rerun`",
    _exists,
    Action.CREATE,
)
def judge_upstream_newer(state: KeyState) -> Decision | None:
    """If a needed key is about to complete again, `needs` holds the create back.

    Edits are left to their own rules, unless `on_change: keep` ignores them or they wait for a schedule.
    """
    lifecycle = state.desired.lifecycle
    if not state.is_ended or lifecycle.on_upstream == "keep":
        return None
    if state.edit is not None and not (lifecycle.on_change == "keep" or state.edit_waits):
        return None
    if state.upstream_reruns:
        return create(state, Reason.UPSTREAM_NEWER, spell_reruns(state.upstream_reruns))
    if not state.newer_upstream:
        return None
    detail = f"{made_from_older(state.newer_upstream)}; on_upstream: rerun"
    return next_revision(state, Reason.UPSTREAM_NEWER, detail)


def made_from_older(newer: Sequence[Completion]) -> str:
    return f"made from an older {few([completion.key for completion in newer])}"


def spell_reruns(keys: Sequence[str]) -> str:
    return f"{few(keys)} {'runs' if len(keys) == 1 else 'run'} again"


@rule("Completed; as declared", _unedited, Action.KEEP, Action.UPDATE)
def judge_completed(state: KeyState) -> Decision | None:
    if state.phase is not Phase.COMPLETED:
        return None
    if not state.revision.is_aged_out:
        return keep_or_update(state, Reason.COMPLETED, "completed")
    past = state.view.remembered[-1]
    # If the service did not report the time of the end, use when it was first seen ended.
    ended_at_s = past.ended_at_s or (past.phases[-1][1] if past.phases else None)
    when = "" if ended_at_s is None else f" on {timestamp(ended_at_s)[:10]}"
    return keep(state, Reason.AGED_OUT, f"completed{when}")


@rule(
    "Ended otherwise; as declared; it ran for its `auto_stop`, give or take five minutes",
    _unedited,
    Action.KEEP,
    Action.UPDATE,
)
def judge_auto_stopped(state: KeyState) -> Decision | None:
    if not state.stopped_itself(state.revision):
        return None
    return keep_or_update(state, Reason.AUTO_STOPPED, "stopped by its own auto_stop")


@rule("Terminated; as declared; marked as stopped by us", _unedited, Action.CREATE)
def judge_declared_again(state: KeyState) -> Decision | None:
    if state.phase.ended_badly or not state.revision.marker.stopped:
        return None
    return next_revision(state, Reason.DECLARED_AGAIN, "declared again after we stopped it")


@rule(
    "Ended badly; as declared; `on_failure: retry` or `on_terminated: recreate`; all retries used",
    _unedited,
    Action.KEEP,
    Action.UPDATE,
)
def judge_retries_exhausted(state: KeyState) -> Decision | None:
    if (attempt := state.attempt) is None or attempt.reason is not Reason.RETRIES_EXHAUSTED:
        return None
    return keep_or_update(state, Reason.RETRIES_EXHAUSTED, f"{state.bad_end}; {attempt.detail}")


@rule(
    "Ended badly; as declared; `on_failure: retry` or `on_terminated: recreate`; a retry is not due yet",
    _unedited,
    Action.DEFER,
)
def judge_retry_later(state: KeyState) -> Decision | None:
    if (attempt := state.attempt) is None or attempt.reason is not Reason.RETRY_LATER:
        return None
    detail = f"{state.bad_end}; {attempt.detail}"
    return single(state, Action.DEFER, attempt.reason, detail, due_s=attempt.due_s)


@rule(
    "Ended badly; as declared; `on_failure: retry` or `on_terminated: recreate`; a retry is due",
    _unedited,
    Action.CREATE,
)
def judge_retry(state: KeyState) -> Decision | None:
    if state.attempt is None:
        return None
    reason = Reason.RETRY if state.phase.ended_badly else Reason.RECREATE
    return next_revision(state, reason, f"{state.bad_end}; {state.attempt.detail}")


@rule("Failed or Abnormal; as declared; `on_failure: keep`", _unedited, Action.KEEP, Action.UPDATE)
def judge_failed(state: KeyState) -> Decision | None:
    detail = f"{state.bad_end}; on_failure: keep"
    return keep_or_update(state, Reason.FAILED, detail) if state.phase.ended_badly else None


@rule(
    "Terminated; as declared; not stopped by us; `on_terminated: keep`", _unedited, Action.KEEP, Action.UPDATE
)
def judge_terminated_outside(state: KeyState) -> Decision:
    rerun = "`rerun` with `on_change: replace`" if state.edit_waits else "`rerun`"
    detail = f"{state.bad_end}; {rerun} or `recreate` starts it again"
    return keep_or_update(state, Reason.TERMINATED_OUTSIDE, detail)


# --- the declaration was edited


@rule("Edited; `on_change: keep`", _edited, Action.KEEP, Action.UPDATE)
def judge_change_ignored(state: KeyState) -> Decision | None:
    if state.desired.lifecycle.on_change != "keep":
        return None
    detail = f"{state.edit_summary}; on_change: keep{_kept_status(state)}"
    return keep_or_update(state, Reason.CHANGE_IGNORED, detail)


@rule("Edited; `on_change: fail`", _edited, Action.CONFLICT)
def judge_change_refused(state: KeyState) -> Decision | None:
    if not _is_refused(state):
        return None
    detail = f"{state.edit_summary}; on_change: fail"
    return single(state, Action.CONFLICT, Reason.CHANGE_REFUSED, detail, changes=state.changes)


@rule(
    "Edited; scheduled; `on_change` is unset; no time of the schedule has come, or the job is active",
    _edited,
    Action.KEEP,
    Action.UPDATE,
)
def judge_change_waits(state: KeyState) -> Decision | None:
    if not state.edit_waits:
        return None
    detail = f"{state.edit_summary}; waits for the next time of the schedule{_kept_status(state)}"
    decision = keep_or_update(state, Reason.WAITS_FOR_SCHEDULE, detail)
    # Kept keys are not listed, so without a warning the edit would seem to have been overlooked.
    warning = PlanWarning(
        what="edit waits for the schedule",
        why=f"{state.edit_summary}; the next job that lifecycle.schedule starts has it",
        fix="not to wait: lifecycle.on_change: replace",
        key=state.key,
    )
    return decision._replace(warnings=[*decision.warnings, warning])


@rule("Edited; ended", _edited, Action.CREATE)
def judge_changed_after_end(state: KeyState) -> Decision | None:
    if not state.is_ended:
        return None
    return next_revision(state, Reason.IMMUTABLE_CHANGED, _edit_and_precedent(state))


def _edit_and_precedent(state: KeyState) -> str:
    """Say what was edited, and which older revision completed the same declaration."""
    latest = state.revision.number
    done = [
        revision.number
        for revision in state.view.ever_owned
        if state.desired.is_declared_by(revision.marker.digest)
        and revision.job.phase is Phase.COMPLETED
        and revision.number < latest
    ]
    note = done and f"; r{done[-1]} completed this declaration, and r{latest} came after it: runs again"
    return state.edit_summary + (note or "")


@rule("Edited; active; protected", _edited, Action.BLOCKED)
def judge_protected(state: KeyState) -> Decision | None:
    return _blocked_by_protection(state, state.edit_summary) if state.is_protected else None


def _blocked_by_protection(state: KeyState, cause: str) -> Decision:
    detail = f"{cause}, and {PROTECTED}"
    return single(state, Action.BLOCKED, Reason.PROTECTED, detail, changes=state.changes)


@rule(
    "Edited; active; it has run longer than `limits.lost_time`; the loss is not allowed",
    _edited,
    Action.CONFLICT,
)
def judge_would_lose_work(state: KeyState) -> Decision | None:
    lost_time = _lost_time(state)
    if lost_time is None or state.revision.job.ran_s(state.at_s) <= lost_time:
        return None
    detail = state.edit_summary + LOSS_WAY_OUT
    return single(state, Action.CONFLICT, Reason.WOULD_LOSE_WORK, detail, changes=state.changes)


def _lost_time(state: KeyState) -> float | None:
    """Return how long the job may have run; None if the replace was explicitly requested or allowed."""
    is_requested = state.desired.lifecycle.on_change == "replace"
    if is_requested or state.context.allowances.permits(Guard.LOST_WORK, state.key, state.desired.sweep):
        return None
    return state.context.limits.lost_time


@rule(
    "Edited; active; this declaration ended badly before, and no retry of it is due",
    _edited,
    Action.KEEP,
    Action.UPDATE,
    Action.DEFER,
)
def judge_ended_badly_before(state: KeyState) -> Decision | None:
    """Such a replace counts as a retry.

    Otherwise every apply would try again a `create_first` replace whose new job fails.
    """
    latest, desired = state.revision, state.desired
    run = bad_run((r for r in state.view.ever_owned if r.number != latest.number), state.declaration_of)
    if not run:
        return None
    ended = f"this declaration ended as {run[0].job.phase_text} in r{run[0].number}"
    attempt = next_attempt(run, desired, state.service_s)
    if attempt is None:
        return keep_or_update(state, Reason.FAILED, f"{ended}; keeping r{latest.number}")
    detail = f"{ended}; {attempt.detail}"
    if attempt.reason is Reason.RETRIES_EXHAUSTED:
        return keep_or_update(state, attempt.reason, detail)
    if attempt.reason is Reason.RETRY_LATER:
        due_s, changes = attempt.due_s, state.changes
        return single(state, Action.DEFER, attempt.reason, detail, changes=changes, due_s=due_s)
    return None


@rule("Edited; active", _edited, Action.REPLACE)
def judge_changed(state: KeyState) -> Decision:
    detail, lost_time = _edit_and_precedent(state), _lost_time(state)
    return replacement(state, Reason.IMMUTABLE_CHANGED, detail, lost_time=lost_time)
