"""Two manifests side by side: every key that differs, and what that means for its job."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property

from reconciler.core.body_summary import nodes_by_place
from reconciler.core.policy_expression import not_evaluated
from reconciler.core.ports import EvaluateExpressions
from reconciler.core.stack import DesiredJob, Limits, Stack
from reconciler.core.values import PlanWarning, Source, few_of_a_kind
from reconciler.decide.plan import Action, Denial
from reconciler.decide.policy_subject import Surroundings, declared
from reconciler.decide.policy_verdict import Verdicts, judge
from reconciler.decide.review_consequence import added, changed, clash, dropped, is_present, removed, renamed
from reconciler.decide.review_renames import hints, likely_renames, renamed_members
from reconciler.decide.review_report import (
    ChangeKind,
    NodeCount,
    Nodes,
    Review,
    ReviewedJob,
    ReviewSummary,
)
from reconciler.decide.review_settings import settings_changes, settings_warnings
from reconciler.decide.review_side import Side
from reconciler.decide.sweep_members import SweepEntries


def make_review(
    base: Side,
    head: Side,
    *,
    target: str | None,
    version: str,
    evaluate: EvaluateExpressions = not_evaluated,
) -> Review:
    """Compare two manifests. A manifest that is not there declares nothing."""
    comparison = _Comparison.of(base, head)
    found = sorted(comparison.jobs(), key=lambda job: job.key)
    counts = Counter(job.change.value for job in found)
    verdicts = _judged(found, head, comparison, evaluate)
    warnings = (
        *base.warnings,
        *head.warnings,
        *settings_warnings(base, head, target),
        *_warnings(base, head, comparison),
        *_rename_hints(comparison, found),
        *verdicts.warnings,
    )
    actions = Counter(job.action for job in found if not _is_quiet(job))
    stack = head.stack or base.stack
    return Review(
        reconciler_version=version,
        stack=stack.name if stack else "",
        target=target or head.default_target,
        base=base.head,
        head=head.head,
        summary=ReviewSummary(**counts, unchanged=comparison.count - len(found)),
        actions={action: actions[action] for action in Action},
        jobs=tuple(found),
        settings=settings_changes(base, head),
        nodes=_nodes(comparison),
        denied=tuple(_without_prefix(one, head.file_prefix) for one in verdicts.denied),
        warnings=few_of_a_kind(warnings),
    )


def _rename_hints(comparison: _Comparison, found: Iterable[ReviewedJob]) -> Iterator[PlanWarning]:
    """Keys that may have been renamed without `formerly`: members of sweeps, and others."""
    gone, new = comparison.removed_and_added(found)
    taken: set[str] = set()
    if comparison.head is not None and comparison.entries is not None:
        for hint, pairs in renamed_members(gone, new, comparison.entries, comparison.head.declared_keys):
            taken |= {*pairs, *pairs.values()}
            yield hint
    rest = ([job for job in jobs if job.key not in taken] for jobs in (gone, new))
    yield from hints(likely_renames(*rest))


def _judged(
    found: Iterable[ReviewedJob], head: Side, comparison: _Comparison, evaluate: EvaluateExpressions
) -> Verdicts:
    """Ask the policies of HEAD about what starts or changes a job, if every job is active."""
    if head.stack is None or not head.stack.policies:
        return Verdicts()
    prices, after = head.stack.prices, comparison.after
    subjects = [
        subject
        for job in found
        if job.key in after and (job.traits.starts_a_job or job.action is Action.UPDATE)
        if (subject := declared(after[job.key], prices, kind=job.action, reason=job.reason))
    ]
    around = Surroundings(head.stack.name, head.policy_target)
    return judge(head.stack.policies, subjects, around, evaluate)


def _without_prefix(denial: Denial, prefix: str) -> Denial:
    source = denial.source
    if source is None:
        return denial
    place = source.model_copy(update={"file": source.file.removeprefix(prefix)})
    return denial.model_copy(update={"source": place})


def _is_quiet(job: ReviewedJob) -> bool:
    return job.action is Action.KEEP


@dataclass(frozen=True)
class _Comparison:
    """The jobs in view of either side. `former` are keys of BASE that HEAD names in a `formerly`, by key."""

    before: Mapping[str, DesiredJob]
    after: Mapping[str, DesiredJob]
    limits: Limits
    former: Mapping[str, str]
    prefixes: tuple[str, str]
    head: Stack | None = None

    @classmethod
    def of(cls, base: Side, head: Side) -> _Comparison:
        keys = {key for side in (base, head) if side.stack for key in side.stack.jobs}
        before, after = (_in_view(side.stack, keys) for side in (base, head))
        former = {
            key: old
            for key, job in after.items()
            for old in job.formerly
            if is_present(job) and is_present(before.get(old)) and not is_present(after.get(old))
        }
        limits = head.stack.limits if head.stack else Limits()
        return cls(before, after, limits, former, (base.file_prefix, head.file_prefix), head.stack)

    @property
    def count(self) -> int:
        """How many keys there are; a renamed one is one."""
        return len((self.before.keys() | self.after.keys()) - set(self.former.values()))

    def jobs(self) -> Iterator[ReviewedJob]:
        """Every key that differs."""
        renamed_keys = set(self.former.values())
        for key in self.before.keys() | self.after.keys():
            if key in renamed_keys:
                continue
            job = self._job(key, self.before.get(key), self.after.get(key))
            if job is not None:
                yield job.model_copy(update={"source": self._source(key)})

    def _job(self, key: str, before: DesiredJob | None, after: DesiredJob | None) -> ReviewedJob | None:
        old = self.before.get(self.former.get(key, ""))
        if after is not None and old is not None:
            is_taken = before is not None and not before.is_absent
            return clash(old, after) if is_taken else renamed(old, after, self.limits)
        match is_present(before), is_present(after):
            case True, True:
                assert before is not None
                assert after is not None
                return changed(before, after, self.limits)
            case False, True:
                assert after is not None
                return added(before, after)
            case True, False:
                assert before is not None
                entry = self._entry_without(before)
                return removed(before, after) if entry is None else dropped(before, entry, self.limits)
        # Of a key that only HEAD has, and as absent, there may be a job: it ends.
        return removed(after, after) if after is not None and before is None else None

    @cached_property
    def entries(self) -> SweepEntries | None:
        """The sweeps of HEAD; None if it has no manifest."""
        return None if self.head is None else SweepEntries(self.head)

    def _entry_without(self, before: DesiredJob) -> DesiredJob | None:
        """A job of the entry that no longer produces a member of its sweep."""
        recorded = {before.key: before.sweep or ""}
        return None if self.entries is None else self.entries.former_entry(before.key, recorded)

    def _source(self, key: str) -> Source | None:
        job, prefix = self.after.get(key), self.prefixes[1]
        if job is None:
            job, prefix = self.before[key], self.prefixes[0]
        source = Source.of(job.location)
        return source and source.model_copy(update={"file": source.file.removeprefix(prefix)})

    def removed_and_added(self, found: Iterable[ReviewedJob]) -> tuple[list[DesiredJob], list[DesiredJob]]:
        """The jobs that only one side declares."""
        kinds = {job.key: job.change for job in found}
        gone = [job for key, job in sorted(self.before.items()) if kinds.get(key) is ChangeKind.REMOVED]
        new = [job for key, job in sorted(self.after.items()) if kinds.get(key) is ChangeKind.ADDED]
        return [job for job in gone if key_is_gone(self.after, job)], [job for job in new if job.body]


def key_is_gone(after: Mapping[str, DesiredJob], job: DesiredJob) -> bool:
    """Whether a job is not declared any more, not even as absent."""
    return job.key not in after and job.body is not None


def _in_view(stack: Stack | None, keys: Iterable[str]) -> dict[str, DesiredJob]:
    """The entries of the keys; what lies out of view on this side is declared all the same."""
    if stack is None:
        return {}
    return {key: job for key in keys if (job := stack.find(key)) is not None}


def _nodes(comparison: _Comparison) -> Nodes:
    before, after = (_count(jobs.values()) for jobs in (comparison.before, comparison.after))
    flavors = {name: NodeCount(before=before[name], after=after[name]) for name in sorted({*before, *after})}
    return Nodes(before=before.total(), after=after.total(), flavors=flavors)


def _count(jobs: Iterable[DesiredJob]) -> Counter[str]:
    total: Counter[str] = Counter()
    for job in jobs:
        if not job.is_absent and job.body is not None:
            total += nodes_by_place(job.body)
    return total


def _warnings(base: Side, head: Side, comparison: _Comparison) -> Iterator[PlanWarning]:
    """What follows from HEAD as a whole."""
    if head.stack is None:
        yield PlanWarning(
            what="no manifest",
            why=f"{head.head.name} has none of this stack: nothing can be applied, and what runs goes on",
            fix="to end the jobs, run `reconciler destroy` with the manifest of BASE first",
        )
    elif base.stack is not None and not head.stack.declared_keys and base.stack.declared_keys:
        yield PlanWarning(
            what="no jobs",
            why="a manifest without any job is refused",
            fix="if that is meant, apply with --allow empty",
        )
