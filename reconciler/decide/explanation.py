"""Why a key gets its action: what is declared, what was seen, which rule decided, what would change it.

`Explanation` crosses the process boundary (`why --json`), so it is a frozen model with a schema. Nothing is
decided here: the rules are asked as a plan asks them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Any

from pydantic import Field

from reconciler.core.body_summary import summarize
from reconciler.core.lifecycle import Lifecycle
from reconciler.core.stack import DesiredJob
from reconciler.core.values import Frozen, Head, PlanWarning, Source, timestamp
from reconciler.decide.drift_entry import Drift, Pending
from reconciler.decide.drift_rules import check_key
from reconciler.decide.key_state import KeyState, keys_in_view, state_of
from reconciler.decide.objections import (
    GuardVerdict,
    PolicyVerdict,
    guard_verdicts,
    policy_verdicts,
)
from reconciler.decide.plan import BLOCKERS, Action, Plan, PlannedAction, PreflightFinding, Reason, spoken
from reconciler.decide.planner import KeyDecision, ProposedPlan, decisions_of, snapshot_warnings
from reconciler.decide.rules import DO_NOT_WAIT, KEEP_IT, LET_IT_GO_ON, RULES, WHERE_EDITS_WAIT
from reconciler.decide.sweep_members import SweepEntries
from reconciler.secrets import show


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
    if key in keys_in_view(stack, snapshot.ownership):
        decision = decisions_of(stack, snapshot, context)[key]
    else:  # nothing is done about it, whatever the rules would say
        entry = SweepEntries(stack).former_entry(key, snapshot.memory.sweeps)
        state = state_of(key, stack.find(key), snapshot, context)
        decision = KeyDecision(replace(state, former_entry=entry))
    desired = decision.state.entry
    findings = check_key(decision.state, decision.upstream_rerun)
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
        observed=tuple(_observed(decision.state)),
        drift=findings.drift,
        pending=() if findings.pending is None else (findings.pending,),
        otherwise=tuple(_otherwise(actions, decision)),
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


def _observed(state: KeyState) -> Iterator[ObservedRevision]:
    desired = state.entry
    for one in reversed(state.view.ever_owned):
        job = one.job
        yield ObservedRevision(
            id=one.job.id,
            name=one.job.name,
            revision=one.number,
            phase=one.job.phase_text,
            digest=one.marker.digest,
            as_declared=desired.is_declared_by(one.marker.digest) if desired and desired.digest else None,
            created_at=None if one.job.created_at_s is None else timestamp(one.job.created_at_s),
            ran_s=round(job.ran_s(state.at_s), 3) if job.is_active else job.duration_s,
            nodes=one.job.node_count,
            stopped=one.marker.stopped,
            protected=one.marker.protected,
            aged_out=one.is_aged_out,
        )


def _otherwise(actions: Sequence[PlannedAction], decision: KeyDecision) -> Iterator[str]:
    """What would make it otherwise: first what blocks it, then what the rules rest on."""
    rule = next((one for one in RULES if one.name == decision.rule), None)
    reasons: Iterable[Reason] = dict.fromkeys(
        action.reason for action in (*(a for a in actions if a.reason in BLOCKERS), *decision.actions)
    )
    guards = " --allow ".join(dict.fromkeys(name for one in actions for name in one.blocked_by))
    ends_a_job = any(one.traits.starts_a_job and one.traits.stops_a_job for one in decision.actions)
    desired = decision.state.entry
    for text in (text for reason in reasons for text in (rule.hints_for(reason) if rule else ())):
        if text == LET_IT_GO_ON and not ends_a_job:
            continue
        if text == DO_NOT_WAIT and decision.upstream_rerun:
            text = KEEP_IT
        if desired is not None and desired.edits_wait:
            text = WHERE_EDITS_WAIT.get(text, text)
        yield text.replace("KEY", decision.state.key).replace("GUARD", guards)
