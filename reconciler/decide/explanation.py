"""Why a key gets its action: what is declared, what was seen, which rule decided, what would change it.

`Explanation` crosses the process boundary (`why --json`), so it is a frozen model with a schema. Nothing is
decided here: the rules are asked as a plan asks them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from pydantic import Field

from reconciler.core.body_summary import summarize
from reconciler.core.lifecycle import Lifecycle
from reconciler.core.ownership import KeyView, Revision
from reconciler.core.secret import show
from reconciler.core.stack import DesiredJob
from reconciler.core.values import Frozen, Head, PlanWarning, Source, timestamp
from reconciler.decide.drift_entry import Drift, Pending
from reconciler.decide.drift_rules import check_key
from reconciler.decide.objections import (
    GuardVerdict,
    PolicyVerdict,
    guard_verdicts,
    policy_verdicts,
)
from reconciler.decide.plan import BLOCKERS, Action, Plan, PlannedAction, PreflightFinding, Reason, spoken
from reconciler.decide.planner import KeyDecision, ProposedPlan, decisions_of, snapshot_warnings
from reconciler.decide.rules import RULES
from reconciler.decide.snapshot import keys_in_view
from reconciler.decide.sweep_members import SweepEntries

_RUN_AGAIN = "edit the entry, or `lifecycle.rerun`, and it runs again as the next revision"
_COUNT_ANEW = "edit the entry, or `lifecycle.rerun`, and the retries are counted anew"
_REPLACE_IT = "change a field that is fixed at creation, and the job is replaced"
_LET_IT_GO_ON = "set `lifecycle.overlap: skip`, and the job goes on"
_DO_NOT_WAIT = "remove `needs`, or the reference to an output, and it starts at once"
_KEEP_IT = "set `lifecycle.on_upstream: keep`, and it is kept, with a warning"
_AT_ONCE = (
    "set `lifecycle.on_change: replace` and edit the entry, or `lifecycle.rerun`, and it runs again at once"
)
#: What stands in their place where edits wait for the next time of a schedule.
_WHERE_EDITS_WAIT: Mapping[str, str] = {
    _RUN_AGAIN: _AT_ONCE,
    _COUNT_ANEW: _AT_ONCE,
    _REPLACE_IT: f"set `lifecycle.on_change: replace` and {_REPLACE_IT}",
}
#: What would make an action another one, by its reason; nothing where only time, or the service, can.
OTHERWISE: Mapping[Reason, tuple[str, ...]] = {
    Reason.NOT_FOUND: ("remove the entry, or set `state: absent`, and nothing is created",),
    Reason.UNCHANGED: (
        _REPLACE_IT,
        "remove the entry, or set `state: absent`, and the job is terminated",
    ),
    Reason.COMPLETED: (_RUN_AGAIN,),
    Reason.AGED_OUT: (_RUN_AGAIN,),
    Reason.MUTABLE_CHANGED: ("put the old values back into the entry, and nothing is updated",),
    Reason.MARKER_CHANGED: ("put the old values back into the entry, and nothing is updated",),
    Reason.MARKER_RESTORED: ("nothing else: the marker is needed to tell whose job it is",),
    Reason.IMMUTABLE_CHANGED: (
        "put the old values back, and the job is kept",
        "set `lifecycle.on_change: keep`, and the job is kept although it differs",
        "set `lifecycle.on_change: fail`, and the edit is a conflict",
    ),
    Reason.CHANGE_IGNORED: ("set `lifecycle.on_change: replace`, and the edit starts a new job",),
    Reason.CHANGE_REFUSED: (
        "put the old values back, and the job is kept",
        "set `lifecycle.on_change: replace`, and the edit starts a new job",
    ),
    Reason.WOULD_LOSE_WORK: (
        "set `lifecycle.on_change: replace`, or pass `--allow lost-work=KEY`, and the job is replaced",
        "put the old values back, or set `lifecycle.on_change: keep`, and the job is kept",
    ),
    Reason.WAITS_FOR_TERMINATION: ("remove the entry, or set `state: absent`, and nothing is created",),
    Reason.AUTO_STOPPED: (_RUN_AGAIN,),
    Reason.FAILED: (
        "set `lifecycle.on_failure: retry`, and it is tried again",
        _RUN_AGAIN,
    ),
    Reason.RETRY: ("set `lifecycle.on_failure: keep`, and it is not tried again",),
    Reason.RETRY_LATER: ("set a shorter `lifecycle.retry_delay`, and it is tried sooner",),
    Reason.RETRIES_EXHAUSTED: (
        "raise `lifecycle.max_retries`, and it is tried again",
        _COUNT_ANEW,
    ),
    Reason.DECLARED_AGAIN: ("set `state: absent`, and it stays terminated",),
    Reason.TERMINATED_OUTSIDE: (
        "set `lifecycle.on_terminated: recreate`, and it is started again",
        _RUN_AGAIN,
    ),
    Reason.RECREATE: ("set `lifecycle.on_terminated: keep`, and it is not started again",),
    Reason.UPSTREAM_NEWER: (_KEEP_IT,),
    Reason.SCHEDULED: (
        "set a later `lifecycle.schedule`, or remove it, and nothing is started",
        _LET_IT_GO_ON,
    ),
    Reason.WAITS_FOR_SCHEDULE: (
        "set `lifecycle.on_change: replace`, and the edit starts a new job at once",
        "put the old values back, and the next time of the schedule runs them",
    ),
    Reason.SUPERSEDED: ("nothing else: a key has one active job",),
    Reason.NOT_IN_MANIFEST: (
        "declare the key again, and the job is kept",
        "name it under `formerly` of another key, and it becomes that key's",
    ),
    Reason.STATE_ABSENT: ("remove `state: absent`, and the job is kept",),
    Reason.DESTROYED: (),
    Reason.PROTECTION_RELEASED: ("remove `protect: false`, and the job stays protected",),
    Reason.NAME_TAKEN: ("adopt the job, have its stack release it, or rename the key",),
    Reason.NAME_TOO_LONG: ("shorten the key",),
    Reason.RENAMED: ("remove `formerly`, and the old key is terminated and this one created",),
    Reason.RENAME_CLASH: ("remove `formerly`, or let one of the keys go first",),
    Reason.NEEDS_PENDING: (
        "wait until the needed keys have completed",
        _DO_NOT_WAIT,
    ),
    Reason.NEEDS_FAILED: (
        "run the needed keys again (edit them, or their `lifecycle.rerun`)",
        _DO_NOT_WAIT,
    ),
    Reason.PROTECTED: ("set `protect: false`, apply, and plan again",),
    Reason.UNKNOWN_PHASE: ("use a version of reconciler that knows the phase",),
    Reason.UNKNOWN_DIGEST: ("use the newer version of reconciler that made the job",),
    Reason.UNREADABLE: ("repair what could not be read, and plan again",),
    Reason.GUARD: ("review the plan, then pass `--allow GUARD`, and it is done",),
    Reason.DENIED: ("change the job, or the policy, and it is done; --force does not override a policy",),
    Reason.PREFLIGHT: ("change the job to what the target offers, and it is done",),
}


_TERMINATE_IT = "set `lifecycle.on_change: replace` on its entry, and the job is terminated"
_PRODUCE_IT = (
    "let the entry produce the key again, and the job is kept",
    "name the key under `formerly` of the entry, and the job is that of a new member",
)
#: The same for a key that its entry no longer produces.
_OF_A_MEMBER: Mapping[Reason, tuple[str, ...]] = {
    Reason.NOT_IN_MANIFEST: (
        *_PRODUCE_IT,
        "set `lifecycle.on_change: keep` on its entry, and the job is kept",
    ),
    Reason.WOULD_LOSE_WORK: (
        f"{_TERMINATE_IT}; or pass `--allow lost-work=KEY`",
        *_PRODUCE_IT,
    ),
    Reason.CHANGE_REFUSED: (_TERMINATE_IT, *_PRODUCE_IT),
    Reason.CHANGE_IGNORED: (_TERMINATE_IT,),
    Reason.PROTECTED: OTHERWISE[Reason.PROTECTED],
    Reason.GUARD: OTHERWISE[Reason.GUARD],
}


#: Nothing is done about a key that PATH does not cover, whatever the rules would say.
_NOT_IN_VIEW = KeyDecision(None, (), (), "")


class RuleCheck(Frozen):
    """A rule that was asked, in the order of the decision."""

    name: str = Field(description="Name of the rule, as in `explain rules`.")
    when: str = Field(description="When it applies.")
    applies: bool = Field(description="Whether it applied: the last one did, and decided.")


class DeclaredValues(Frozen):
    """What the manifest declares for the key."""

    source: Source | None = Field(None, description="Location of the key in the manifest.")
    digest: str = Field("", description="Digest of the declaration.")
    starts: str = Field("", description="What a job of it takes and runs.")
    is_absent: bool = Field(False, description="Whether it says state: absent.")
    needs: tuple[str, ...] = Field((), description="Keys that have to be settled first.")
    formerly: tuple[str, ...] = Field((), description="Former keys.")
    lifecycle: dict[str, Any] = Field(
        default_factory=dict, description="Lifecycle options that are not the default."
    )


class ObservedRevision(Frozen):
    """A revision of the key, as the service reported it, or the history where the service forgot it."""

    id: str
    name: str
    revision: int
    phase: str
    digest: str
    as_declared: bool | None = Field(
        None, description="Whether it was made of what is declared now; null: nothing is declared."
    )
    created_at: str | None = Field(None, description="RFC 3339, UTC.")
    ran_s: float | None = Field(None, description="Seconds that it has run.")
    nodes: int = Field(1, description="Nodes that it runs on.")
    stopped: bool = Field(False, description="Whether we terminated it.")
    protected: bool = Field(False, description="Whether its marker protects it.")
    aged_out: bool = Field(False, description="Whether the service has deleted its record.")


class Explanation(Head):
    """Why one key gets its action."""

    key: str = Field(description="Name of the job in the manifest.")
    actions: tuple[PlannedAction, ...] = Field(description="What is to be done, the key's own action first.")
    rules: tuple[RuleCheck, ...] = Field(description="The rules that were asked, in order; the last decided.")
    chosen: Action | None = Field(
        None,
        description="Action that the rule chose, where `needs`, a gap in what was read, or what blocks the "
        "key changed it.",
    )
    policies: tuple[PolicyVerdict, ...] = Field(
        (), description="Policies that deny its actions, or warn of them."
    )
    guards: tuple[GuardVerdict, ...] = Field(
        (), description="Guards that block it, or refuse the plan because of it."
    )
    preflight: tuple[PreflightFinding, ...] | None = Field(
        None, description="What the target would refuse of its job; null: it is about to start none."
    )
    declared: DeclaredValues | None = Field(None, description="What is declared; null: nothing is.")
    observed: tuple[ObservedRevision, ...] = Field((), description="The key's revisions, the newest first.")
    drift: tuple[Drift, ...] = Field((), description="What changed behind the manifest's back.")
    pending: tuple[Pending, ...] = Field((), description="What is yet to be applied.")
    otherwise: tuple[str, ...] = Field((), description="What would make it another action.")
    warnings: tuple[PlanWarning, ...] = Field((), description="Warnings.")

    def document(self) -> dict[str, Any]:
        """The explanation as plain JSON data. No secret is in it."""
        document: dict[str, Any] = show(self.model_dump(mode="json", by_alias=True))
        return {**document, "actions": [*map(spoken, document["actions"])]}

    @property
    def is_known(self) -> bool:
        """Whether the key could be judged."""
        return not any(action.action is Action.UNKNOWN for action in self.actions)


def explain(key: str, proposed: ProposedPlan, plan: Plan) -> Explanation:
    """Ask the rules about one key of a stack, and say what they were asked about.

    `plan` is what is proposed for the whole stack after pre-flight and the guards.
    """
    stack, snapshot, context = proposed.stack, proposed.snapshot, proposed.context
    desired = stack.find(key)
    is_in_view = key in keys_in_view(stack, snapshot.ownership)
    decision = decisions_of(stack, snapshot, context)[key] if is_in_view else _NOT_IN_VIEW
    view = snapshot.view(key, desired)
    entry = SweepEntries(stack).former_entry(key, snapshot.memory.sweeps)
    findings = check_key(key, desired, snapshot, context, decision.upstream_rerun, entry)
    own = [action for action in proposed.decided if action.key == key]
    actions = _own_first(key, plan.actions, decision)
    found = None if plan.preflight is None else tuple(one for one in plan.preflight if one.key == key)
    return Explanation(
        reconciler_version=plan.reconciler_version,
        created_at=plan.created_at,
        stack=stack.name,
        target=plan.target,
        manifest_digest=plan.manifest_digest,
        key=key,
        actions=actions,
        policies=tuple(policy_verdicts(stack, plan.target, own, context.evaluate)),
        guards=tuple(guard_verdicts(key, proposed.proposal(plan.preflight or ()), context.allowances)),
        preflight=found,
        rules=tuple(_asked(decision.rule)),
        chosen=_chosen(decision, actions),
        declared=_declared(desired) if desired else None,
        observed=tuple(_observed(view, desired, context.at_s)),
        drift=findings.drift,
        pending=() if findings.pending is None else (findings.pending,),
        otherwise=tuple(_otherwise(actions, decision, key, desired, entry)),
        warnings=tuple(_about(key, (*snapshot_warnings(stack, snapshot), *decision.warnings))),
    )


def _own_first(
    key: str, actions: Iterable[PlannedAction], decision: KeyDecision
) -> tuple[PlannedAction, ...]:
    """What a plan has for a key, in the order in which it was decided."""
    jobs = [action.before for action in decision.actions]
    of_key = [action for action in actions if action.key == key]
    return tuple(sorted(of_key, key=lambda action: jobs.index(action.before)))


def _chosen(decision: KeyDecision, actions: Sequence[PlannedAction]) -> Action | None:
    """What the rule chose for the key, where its action became another one."""
    if decision.chosen is None or not actions or actions[0].action is decision.chosen.action:
        return None
    return decision.chosen.action


def _about(key: str, warnings: Iterable[PlanWarning]) -> Iterator[PlanWarning]:
    """The warnings that are about the key, or about all keys."""
    return (one for one in warnings if one.key in (None, key))


def _asked(decided: str) -> Iterator[RuleCheck]:
    for rule in RULES if decided else ():
        yield RuleCheck(name=rule.name, when=rule.when, applies=rule.name == decided)
        if rule.name == decided:
            return


def _declared(desired: DesiredJob) -> DeclaredValues:
    given = desired.lifecycle.model_dump(mode="json", exclude_defaults=True)
    return DeclaredValues(
        source=Source.of(desired.location),
        digest=desired.digest,
        starts=summarize(desired.body) if desired.body else "",
        is_absent=desired.is_absent,
        needs=desired.needs,
        formerly=desired.formerly,
        lifecycle={name: value for name, value in given.items() if name in Lifecycle.model_fields},
    )


def _observed(view: KeyView, desired: DesiredJob | None, at_s: float) -> Iterator[ObservedRevision]:
    for one in reversed(view.ever_owned):
        yield ObservedRevision(
            id=one.job.id,
            name=one.job.name,
            revision=one.number,
            phase=one.job.phase_text,
            digest=one.marker.digest,
            as_declared=_is_as_declared(one, desired),
            created_at=None if one.job.created_at_s is None else timestamp(one.job.created_at_s),
            ran_s=_ran_s(one, at_s),
            nodes=one.job.node_count,
            stopped=one.marker.stopped,
            protected=one.marker.protected,
            aged_out=one.is_aged_out,
        )


def _is_as_declared(revision: Revision, desired: DesiredJob | None) -> bool | None:
    if desired is None or not desired.digest:
        return None
    return desired.is_declared_by(revision.marker.digest)


def _ran_s(revision: Revision, at_s: float) -> float | None:
    return round(revision.job.ran_s(at_s), 3) if revision.job.is_active else revision.job.duration_s


def _otherwise(
    actions: Sequence[PlannedAction],
    decision: KeyDecision,
    key: str,
    desired: DesiredJob | None,
    entry: DesiredJob | None,
) -> Iterator[str]:
    """What would make it otherwise: first what blocks it, then what the rules rest on."""
    reasons: Iterable[Reason] = dict.fromkeys(
        action.reason for action in (*(a for a in actions if a.reason in BLOCKERS), *decision.actions)
    )
    guards = " --allow ".join(dict.fromkeys(name for one in actions for name in one.blocked_by))
    if entry is not None:
        texts = (text for reason in reasons for text in _OF_A_MEMBER.get(reason, ()))
        yield from (text.replace("KEY", key).replace("GUARD", guards) for text in texts)
        return
    ends_a_job = any(action.action is Action.REPLACE for action in decision.actions)
    edits_wait = desired is not None and desired.edits_wait
    for text in (text for reason in reasons for text in OTHERWISE[reason]):
        if text == _DO_NOT_WAIT and decision.upstream_rerun:
            text = _KEEP_IT
        if text != _LET_IT_GO_ON or ends_a_job:
            text = _WHERE_EDITS_WAIT.get(text, text) if edits_wait else text
            yield text.replace("KEY", key).replace("GUARD", guards)
