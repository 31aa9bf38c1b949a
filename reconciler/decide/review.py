"""A review: what a change of the manifests means. HEAD is planned against BASE as if every job of BASE ran.

`Review` crosses the process boundary (`review --json`), so it is a frozen model. It depends neither on the
time nor on where files are read: equal manifests give equal bytes. Source of the format:
docs/reference/schemas.md, "Review".
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from functools import cached_property
from operator import attrgetter
from typing import TYPE_CHECKING, Any

from pydantic import Field

from reconciler.core.body import CURRENT, nodes_by_place, summarize
from reconciler.core.canonical import by_name
from reconciler.core.diff import changes_between
from reconciler.core.identity import Marker
from reconciler.core.lifecycle import Lifecycle, ReplaceOrder
from reconciler.core.masking import mask_declared
from reconciler.core.mutable import SCHEDULE_OPTIONS, changes_only_marker, declared_changes
from reconciler.core.observed import ObservedJob
from reconciler.core.ownership import KeyView, Ownership, Revision
from reconciler.core.past import PastRevision
from reconciler.core.phase import Phase
from reconciler.core.policy_expression import not_evaluated
from reconciler.core.record import HistorySnapshot
from reconciler.core.stack import Declared, DesiredJob, Limits, Prices, Stack, Target
from reconciler.core.values import (
    FORMAT_VERSION,
    Change,
    Denial,
    Frozen,
    PlanWarning,
    Source,
    fold_similar_warnings,
)
from reconciler.decide.actions import PROTECTED, KeyDecision, rename_command
from reconciler.decide.cost import cost_of_all
from reconciler.decide.key_state import PlanContext, Snapshot, state_of
from reconciler.decide.plan import ACTIONS, Action, ActionTraits, PlannedCode, Reason, symbol_of
from reconciler.decide.planner import decisions_of
from reconciler.decide.policies import Verdicts, declared, judge
from reconciler.decide.renames import rename_hints
from reconciler.decide.rules import decide
from reconciler.secrets import show
from reconciler.text import few, format_duration

if TYPE_CHECKING:
    from reconciler.core.ports import EvaluateExpressions


class ChangeKind(StrEnum):
    """How a key changed between the two manifests."""

    ADDED = "added"
    REMOVED = "removed"
    RENAMED = "renamed"
    CHANGED = "changed"


class ReviewedSide(Frozen):
    """One of the two manifests; stack and digest are null if there is no manifest."""

    name: str
    commit: str | None = None
    stack: str | None = None
    manifest_digest: str | None = None


class ReviewedJob(Frozen):
    """A key that differs, and what that means for its job."""

    key: str
    change: ChangeKind
    action: Action
    reason: Reason
    detail: str = ""
    formerly: str | None = None
    sweep: str | None = None
    starts: str = ""
    changes: tuple[Change, ...] = ()
    source: Source | None = None
    code: PlannedCode | None = None

    replace_order: ReplaceOrder = Field("terminate_first", exclude=True)

    @property
    def traits(self) -> ActionTraits:
        return ACTIONS[self.action]

    @property
    def symbol(self) -> str:
        """The symbol of the action in text output."""
        return symbol_of(self.action, self.replace_order)


class NodeCount(Frozen):
    """Nodes that the declared jobs use together."""

    before: int = 0
    after: int = 0


class Nodes(NodeCount):
    """The nodes of all jobs, and by flavor."""

    flavors: dict[str, NodeCount]


class Amount(Frozen):
    """An amount of money; null if unknown."""

    before: float | None
    after: float | None


class ReviewedCost(Frozen):
    """The cost of the declared jobs by the prices of HEAD: at most, and per hour if all run."""

    currency: str | None
    cost_max: Amount
    cost_per_hour: Amount


class Review(Frozen):
    """What the change from BASE to HEAD means for the jobs of a stack.

    It is the same on all `targets`; `others` are the differences on other targets.
    """

    format_version: str = FORMAT_VERSION
    reconciler_version: str
    stack: str
    target: str | None = None
    targets: tuple[str, ...] = ()
    base: ReviewedSide
    head: ReviewedSide
    summary: dict[str, int]
    actions: dict[Action, int]
    jobs: tuple[ReviewedJob, ...]
    settings: tuple[Change, ...] = ()
    nodes: Nodes
    cost: ReviewedCost | None = None
    denied: tuple[Denial, ...] = ()
    warnings: tuple[PlanWarning, ...] = ()
    others: tuple[Review, ...] = ()
    declared: tuple[str, ...] = Field((), exclude=True, description="Keys in the order of the manifests.")

    @property
    def each(self) -> tuple[Review, ...]:
        """This review and those of other groups of targets."""
        return self, *self.others

    @property
    def every_denial(self) -> tuple[Denial, ...]:
        """The denials on all targets."""
        return tuple(dict.fromkeys(denial for one in self.each for denial in one.denied))

    @property
    def target_names(self) -> str:
        """The targets, for people; "" if the manifest has none."""
        return ", ".join(self.targets) or self.target or ""

    def document(self) -> dict[str, Any]:
        """Return the review as plain JSON data, as `review --json` prints it, without secrets."""
        document: dict[str, Any] = show(self.model_dump(mode="json"))
        return document

    @property
    def last_line(self) -> str:
        """The last line, worded as in docs/reference/cli.md, "Review"."""
        counts = ", ".join(f"{number} {kind}" for kind, number in self.summary.items())
        actions = [f"{number} {ACTIONS[kind].summary}" for kind, number in self.actions.items() if number]
        return f"Review: {counts}." + (f" {', '.join(actions)} where the jobs are active." if actions else "")


@dataclass(frozen=True)
class Side:
    """A manifest as far as a review compares it; `stack` is None if there is none.

    `file_prefix` is removed from file names in documents. `records` is the URL of the record store, redacted;
    `policy_target` is the target as policies see it, as far as it is known without the service.
    """

    head: ReviewedSide
    stack: Stack | None = None
    targets: Mapping[str, Target] = field(default_factory=dict)
    default_target: str | None = None
    records: str | None = None
    policy_target: Mapping[str, Any] = field(default_factory=dict)
    file_prefix: str = ""
    warnings: tuple[PlanWarning, ...] = ()


# --- HEAD planned against BASE


def make_review(
    base: Side, head: Side, *, target: str | None, version: str, evaluate: EvaluateExpressions = not_evaluated
) -> Review:
    """Compare two manifests; a missing one declares nothing."""
    plan = _Plan.of(base, head)
    reviewed = [job for key in sorted(plan.keys) if (job := plan.reviewed(key)) is not None]
    verdicts = Verdicts()
    if head.stack is not None and head.stack.policies:
        # Actions that start or change a job, assuming that every job is active.
        subjects = [
            subject
            for job in reviewed
            if job.key in plan.after and (job.traits.starts_a_job or job.action is Action.UPDATE)
            if (
                subject := declared(
                    plan.after[job.key], head.stack.prices, kind=job.action, reason=job.reason
                )
            )
        ]
        verdicts = judge(head.stack, head.policy_target, subjects, evaluate)
    nodes_before, nodes_after = Counter[str](), Counter[str]()
    for total, jobs in ((nodes_before, plan.before), (nodes_after, plan.after)):
        for body in _bodies(jobs):
            total += nodes_by_place(body)
    flavors = {
        name: NodeCount(before=nodes_before[name], after=nodes_after[name])
        for name in sorted({*nodes_before, *nodes_after})
    }
    before, after = (dict(_settings(side)) if base.stack and head.stack else {} for side in (base, head))
    kinds = Counter(job.change for job in reviewed)
    actions = Counter[Action](job.action for job in reviewed if job.action is not Action.KEEP)
    warnings = (
        *base.warnings,
        *head.warnings,
        *_warnings(base, head, target),
        *rename_hints(plan.stack, plan.snapshot),
        *verdicts.warnings,
    )
    return Review(
        reconciler_version=version,
        stack=plan.stack.name,
        target=target or head.default_target,
        base=base.head,
        head=head.head,
        summary={
            **{kind.value: kinds[kind] for kind in ChangeKind},
            "unchanged": len(plan.keys) - len(reviewed),
        },
        actions={action: actions[action] for action in Action},
        jobs=tuple(reviewed),
        settings=mask_declared(
            Change(path=path, before=before.get(path), after=after.get(path))
            for path in sorted({*before, *after})
            if before.get(path) != after.get(path)
        ),
        nodes=Nodes(before=nodes_before.total(), after=nodes_after.total(), flavors=flavors),
        cost=_cost(plan, (head.stack or base.stack or plan.stack).prices),
        denied=tuple(
            one.model_copy(update={"source": _without_prefix(one.source, head.file_prefix)})
            for one in verdicts.denied
        ),
        warnings=fold_similar_warnings(warnings),
        declared=tuple(key for one in (head, base) if one.stack for key in one.stack.whole or one.stack.jobs),
    )


def merge_reviews(reviews: Iterable[Review]) -> Review:
    """Merge the reviews of several targets: equal ones become one, others omit what the first one has."""
    groups: list[list[Review]] = []
    for review in reviews:
        same = (group for group in groups if group[0].model_copy(update={"target": review.target}) == review)
        if (group := next(same, None)) is None:
            groups.append([review])
        else:
            group.append(review)
    first, *others = (
        group[0].model_copy(update={"targets": tuple(review.target for review in group if review.target)})
        for group in groups
    )

    def without_common(review: Review) -> Review:
        common = {"settings": first.settings, "warnings": first.warnings}
        more = {
            name: tuple(x for x in getattr(review, name) if x not in known) for name, known in common.items()
        }
        return review.model_copy(update=more)

    return first.model_copy(update={"others": tuple(map(without_common, others))})


def _is_present(job: DesiredJob | None) -> bool:
    return job is not None and not job.is_absent


def _bodies(jobs: Mapping[str, DesiredJob]) -> list[Mapping[str, Any]]:
    return [job.body for job in jobs.values() if not job.is_absent and job.body is not None]


def _cost(plan: _Plan, prices: Prices) -> ReviewedCost | None:
    """Return the cost before and after, by the same prices; None without prices."""
    if not prices.node_hour:
        return None
    sides = zip(*(cost_of_all(_bodies(jobs), prices) for jobs in (plan.before, plan.after)), strict=True)
    most, hourly = (Amount(before=before, after=after) for before, after in sides)
    return ReviewedCost(currency=prices.currency, cost_max=most, cost_per_hour=hourly)


@dataclass(frozen=True)
class _Plan:
    """HEAD planned against BASE: `before` and `after` are the entries in view of either side, by key.

    `former` maps keys of HEAD to the keys of BASE in their `formerly`. `stack` is that of HEAD, or, if HEAD
    has no manifest, that of BASE without jobs.
    """

    before: Mapping[str, DesiredJob]
    after: Mapping[str, DesiredJob]
    former: Mapping[str, str]
    stack: Stack
    prefixes: tuple[str, str]

    @classmethod
    def of(cls, base: Side, head: Side) -> _Plan:
        """Combine both sides; a key in view of one counts as declared on the other even if out of view."""
        keys = {key for side in (base, head) if side.stack for key in side.stack.jobs}
        before, after = (
            {key: job for key in keys if stack and (job := stack.find(key)) is not None}
            for stack in (base.stack, head.stack)
        )
        former = {
            key: old
            for key, job in after.items()
            for old in job.formerly
            if _is_present(job) and _is_present(before.get(old)) and not _is_present(after.get(old))
        }
        stack = head.stack
        if stack is None:
            stack = Stack(base.stack.name if base.stack else "", {}, frozenset())
        # Decide every key, even one of BASE that is out of view in HEAD.
        stack = replace(stack, jobs=after, is_partial=False, chosen=None)
        return cls(before, after, former, stack, (base.file_prefix, head.file_prefix))

    @cached_property
    def keys(self) -> set[str]:
        """All keys; a renamed key counts once."""
        return (self.before.keys() | self.after.keys()) - set(self.former.values())

    @cached_property
    def snapshot(self) -> Snapshot:
        """A service on which every job of BASE is Pending, and a history with their declarations.

        A key that is only in HEAD, and absent there, may have a job, too.
        """
        present = {key: job for key, job in self.before.items() if not job.is_absent}
        present |= {key: job for key, job in self.after.items() if job.is_absent and key not in self.before}
        views, past = {}, {}
        for place, (key, job) in enumerate(sorted(present.items())):
            job_id, digest = f"{place:08x}", job.digest or f"{CURRENT}{0:012x}"
            protected = job.lifecycle.protect is True
            marker = Marker(self.stack.name, key, 1, digest, schedule=job.schedule_mark, protected=protected)
            # The job has no body: mutable fields are compared by the declarations.
            seen = ObservedJob(job_id, key, str(marker), Phase.PENDING.value, created_at_s=0.0)
            views[key] = KeyView(key, self.stack.name, [Revision(seen, marker)])
            recorded = Declared(by_name(job.covered_by(CURRENT)))
            past[key] = (PastRevision(key, 1, key, job_id, digest, created_at_s=0.0, declared=recorded),)
        sweeps = {key: job.sweep or "" for key, job in self.before.items()}
        memory = HistorySnapshot(past, sweeps=sweeps)
        return Snapshot(Ownership(views, stack=self.stack.name), memory=memory)

    @cached_property
    def context(self) -> PlanContext:
        return PlanContext(self.stack.name, limits=self.stack.limits)

    @cached_property
    def decisions(self) -> Mapping[str, KeyDecision]:
        return decisions_of(self.stack, self.snapshot, self.context)

    def reviewed(self, key: str) -> ReviewedJob | None:
        """Return the review of a key; None if it does not differ."""
        before, after = self.before.get(key), self.after.get(key)
        old = self.before.get(self.former.get(key, ""))
        job, previous = after or before, old or before
        assert job is not None
        if before is not None and not (_is_present(before) or _is_present(after)):
            return None
        if decision := self.decisions.get(key):
            # The action before `needs` holds it back.
            action, rule = decision.chosen or decision.actions[0], decision.rule
        else:  # one of several keys that were merged
            [action, *_], _, rule = decide(state_of(key, None, self.snapshot, self.context))
        chosen, reason = action.action, action.reason
        kind, summary, changes, starts = ChangeKind.CHANGED, "", list[Change](), ""
        if after is not None and previous is not None and _is_present(after) and _is_present(previous):
            edit: tuple[Change, ...] = ()
            if previous.digest != after.digest:
                old_form, new_form = previous.covered_by(CURRENT), after.covered_by(CURRENT)
                edit = changes_between(old_form, new_form, forces_new_job=True)
            sent, ignored = declared_changes(previous, after)
            changes = [*edit, *sent, *ignored, *_policy_changes(previous, after)]
            if action.traits.keeps_the_job:
                # The declarations tell what is sent, not the pretended service.
                chosen = Action.UPDATE if sent else Action.KEEP
                unedited = Reason.MARKER_CHANGED if changes_only_marker(sent) else Reason.MUTABLE_CHANGED
                reason = _KEPT_BY.get(rule, unedited if sent else Reason.UNCHANGED)
            named = edit or changes
            summary = f"{few([change.path for change in named], 5)} changed"
        elif _is_present(after):
            kind, starts = ChangeKind.ADDED, summarize(job.body or {})
            reason = Reason.NOT_FOUND if before is None else Reason.DECLARED_AGAIN
            summary = "new" if before is None else "no longer `state: absent`"
            summary += f"; starts after {few(job.needs)}" if job.needs else ""
        else:
            kind = ChangeKind.REMOVED
            summary = "removed" if after is None else "`state: absent`"
            if before and decision and decision.state.former_entry:
                summary = f"no longer produced by {before.sweep}"
        if kind is ChangeKind.CHANGED and not (changes or old):
            return None
        detail = summary + _CONSEQUENCES.get(reason, "")
        if action.lost_time is not None:
            detail += f"; refused after {format_duration(action.lost_time)} of work"
        if old is not None:
            kind, detail = ChangeKind.RENAMED, f"formerly {old.key}; {detail}"
            if reason is Reason.RENAME_CLASH:
                detail, changes = f"formerly {old.key}: conflict if both keys have jobs", []
            elif chosen is Action.KEEP:
                chosen, reason = Action.UPDATE, Reason.RENAMED
                detail = detail if changes else f"formerly {old.key}; the job continues"
        prefix = self.prefixes[0 if after is None else 1]
        return ReviewedJob(
            key=job.key,
            change=kind,
            action=chosen,
            reason=reason,
            detail=detail,
            formerly=old.key if old else None,
            sweep=job.sweep,
            starts=starts,
            changes=mask_declared(changes),
            source=_without_prefix(Source.of(job.location), prefix),
            replace_order=job.lifecycle.replace_order,
        )


#: Rules that keep an edited job as it is.
_KEPT_BY = {"change-ignored": Reason.CHANGE_IGNORED, "change-waits": Reason.WAITS_FOR_SCHEDULE}
#: The consequence for the job, by the reason of its action.
_CONSEQUENCES: Mapping[Reason, str] = {
    Reason.NOT_IN_MANIFEST: "; terminated if active",
    Reason.STATE_ABSENT: "; terminated if active",
    Reason.PROTECTION_RELEASED: "; protection released, the next apply terminates it",
    Reason.PROTECTED: f", and {PROTECTED}",
    Reason.CHANGE_IGNORED: "; on_change: keep",
    Reason.CHANGE_REFUSED: "; on_change: fail",
    Reason.WAITS_FOR_SCHEDULE: "; waits for the next time of the schedule",
    Reason.IMMUTABLE_CHANGED: "; replaced if active, else run again",
    Reason.UNCHANGED: "; the job is not changed",
    Reason.MUTABLE_CHANGED: "; the job continues",
    Reason.MARKER_CHANGED: "; the job continues",
}


def _policy_changes(before: DesiredJob, after: DesiredJob) -> Iterator[Change]:
    """Yield changes of options that affect only later plans."""
    old, new = _policy(before), _policy(after)
    # A new schedule is a change of the marker, and a rename is reported separately.
    left_out = {*(SCHEDULE_OPTIONS if before.schedule_mark != after.schedule_mark else ())}
    if before.key != after.key:
        left_out.add("formerly")
    for path in old:
        if old[path] != new[path] and path not in left_out:
            yield Change(path=path, before=old[path], after=new[path])


def _policy(job: DesiredJob) -> dict[str, Any]:
    """Return the options of a job that neither its digest nor the service's values cover."""
    options = ((name, getattr(job.lifecycle, name)) for name in Lifecycle.model_fields)
    # All floats in a lifecycle are durations.
    policy: dict[str, Any] = {
        f"lifecycle.{name}": format_duration(value) if isinstance(value, float) else value
        for name, value in options
        if name not in ("rerun", "protect")
    }
    names = {"needs": list(job.needs) or None, "formerly": list(job.formerly) or None}
    return {**policy, **names, "max_parallel": job.max_parallel}


def _without_prefix(source: Source | None, prefix: str) -> Source | None:
    return source and source.model_copy(update={"file": source.file.removeprefix(prefix)})


def _warnings(base: Side, head: Side, target: str | None) -> Iterator[PlanWarning]:
    """Yield warnings about HEAD as a whole, and about settings that affect every job."""
    if head.stack is not None and base.stack is not None:
        if base.stack.name != head.stack.name:
            yield PlanWarning(
                what="another stack",
                why=f"the jobs of stack {base.stack.name} remain its own and keep running; stack "
                f"{head.stack.name} has none yet, and the names are taken",
                fix=f"if it is the same stack, first run: {rename_command(base.stack.name)}",
            )
        defaults = (base.default_target, head.default_target)
        names = {(target, target), defaults if target in (None, defaults[1]) else (target, target)}
        pairs = ((base.targets.get(was or ""), head.targets.get(now or "")) for was, now in names)
        # The identity of a target, which does not depend on its name.
        identity = attrgetter("kind", "region", "endpoint", "project_id", "workspace_id")
        if any(was is not None and now is not None and identity(was) != identity(now) for was, now in pairs):
            yield PlanWarning(
                what="another target",
                why="the jobs on the former one keep running there; on the new one every job is created",
            )
    if head.stack is None:
        yield PlanWarning(
            what="no manifest",
            why=f"{head.head.name} lacks this stack: nothing can be applied, and running jobs continue",
            fix="to end the jobs, run `reconciler destroy` with the manifest of BASE first",
        )
    elif base.stack is not None and not head.stack.declared_keys and base.stack.declared_keys:
        yield PlanWarning(
            what="no jobs",
            why="a manifest without any job is refused",
            fix="if this is intended, apply with --allow empty",
        )


# --- settings outside of the jobs


def _settings(side: Side) -> Iterator[tuple[str, Any]]:
    assert side.stack is not None
    yield "stack", side.stack.name
    yield "target", side.default_target
    yield "records", side.records
    for name, value in side.stack.limits.model_dump(mode="json", include=set(Limits.model_fields)).items():
        yield f"limits.{name}", format_duration(value) if name == "lost_time" else value
    for policy in side.stack.policies:
        yield f"policies.{policy.name}.{policy.effect}", policy.expression
        yield f"policies.{policy.name}.message", policy.message or None
        yield f"policies.{policy.name}.only", list(policy.only)
    for rule in side.stack.ignored_drift:
        until = None if rule.until is None else rule.until.isoformat()
        yield f"drift.ignore.{rule.class_}.{rule.key}", {"until": until, "reason": rule.reason}
    # The variables and defaults of a target show in its jobs.
    members = set(Target.model_fields) - {"variables", "defaults"}
    for target_name, target in side.targets.items():
        for name, value in target.model_dump(mode="json", include=members).items():
            yield f"targets.{target_name}.{name}", value
