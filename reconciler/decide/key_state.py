"""The state of one key: what is declared, observed and on record, and what follows from that.

`KeyState` is computed once per key; the rules, drift, status and `why` are functions of it. Source:
docs/concepts/decisions.md.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import islice, takewhile
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from reconciler.core.body import (
    CURRENT,
    auto_stop_hours,
    digest_of,
    is_known,
    manifest_form,
    normalize_aliases,
)
from reconciler.core.canonical import Canonical, canonical, immutable_part
from reconciler.core.code import CODE, declared_form, is_shortened, known_code, reported_form
from reconciler.core.fields.field_types import Cloud
from reconciler.core.identity import parse_remote_name
from reconciler.core.masking import mask
from reconciler.core.observed import ObservedJob
from reconciler.core.ownership import ConflictingJob, KeyView, Ownership, Revision
from reconciler.core.phase import Phase
from reconciler.core.record import NO_HISTORY, HistorySnapshot
from reconciler.core.scalar import RevisionText
from reconciler.core.stack import Declared, DesiredJob, Limits, Stack
from reconciler.core.values import Change, TargetIdentity, timestamp
from reconciler.decide.plan import NO_ALLOWANCES, Allowances, Reason
from reconciler.errors import NotFound, ServiceError

if TYPE_CHECKING:
    from reconciler.core.past import PastChange
    from reconciler.core.ports import EvaluateExpressions

_ENDED_OTHERWISE_THAN_WELL = frozenset({Phase.FAILED, Phase.ABNORMAL, Phase.TERMINATING, Phase.TERMINATED})
#: The service rounds times: an end this close to a creation does not count as later.
_SAME_TIME_S = 1.0


class PlanContext(NamedTuple):
    """What all keys of a plan share: stack, cloud, the time by our clock, limits and allowances.

    `destroys` is true for `destroy`; `rerun` are the keys of `--rerun`. `changed_files` lists what changed in
    a job's code since a digest, "" if unknown. `manifest_digest` and `version` go into documents.
    """

    stack: str
    workspace_id: str = "0"
    cloud: Cloud = Cloud.HUAWEI
    at_s: float = 0.0
    limits: Limits = Limits()
    allowances: Allowances = NO_ALLOWANCES
    destroys: bool = False
    rerun: Collection[str] = ()
    evaluate: EvaluateExpressions | None = None
    changed_files: Callable[[DesiredJob, str | None], str] = lambda _, digest: ""
    manifest_digest: str = ""
    version: str = ""

    def head(self, target: TargetIdentity) -> dict[str, Any]:
        """Return the fields that every document about the stack on a target begins with."""
        return {
            "reconciler_version": self.version,
            "created_at": timestamp(self.at_s),
            "stack": self.stack,
            "target": target,
            "manifest_digest": self.manifest_digest,
        }


class Snapshot(NamedTuple):
    """What was observed, by key, with the job details that were requested.

    `unread` says why details could not be read: a job that was listed, and not found afterwards, is gone.
    `memory` is what was read from the history; `skew_s` is how far our clock is ahead of the service's.
    `changes` has the newest recorded call on each key's job, for reports that name who ended it. `codes` are
    the known digests of the code of jobs in `details`.
    """

    ownership: Ownership
    details: Mapping[str, ObservedJob] = MappingProxyType({})
    unread: Mapping[str, ServiceError] = MappingProxyType({})
    memory: HistorySnapshot = NO_HISTORY
    skew_s: float = 0.0
    changes: Mapping[str, PastChange] = MappingProxyType({})
    codes: Collection[str] = ()

    def view(self, key: str, desired: DesiredJob | None = None) -> KeyView:
        """Return what was seen of a key and of its former keys, without the jobs that are gone."""
        return self.view_of(key, desired.formerly if desired else ())

    def view_of(self, key: str, former_keys: Collection[str]) -> KeyView:
        view = self.ownership.view(key)
        for old in former_keys:
            view = view.merged_with(self.ownership.view(old))
        if self.unread:
            gone = (r.job.id for r in view.owned if isinstance(self.unread.get(r.job.id), NotFound))
            view = view.without({*gone})
        if self.memory.problem is not None:
            return replace(view, history_problem=self.memory.problem)
        # The current key comes last: its record wins if a job is on record under several keys.
        past = self.ownership.remembered(self.memory, (*former_keys, key)) if self.memory.by_key else ()
        return view.with_past(past, self.ownership.unmanaged) if past else view


def keys_in_view(stack: Stack, ownership: Ownership) -> tuple[str, ...]:
    """Return the keys that the plan is about, sorted, without former keys.

    In a partial view no key counts as absent just because it was not seen.
    """
    undeclared = set() if stack.is_partial else set(ownership.concerned_keys) - stack.declared_keys
    return tuple(sorted({*stack.jobs, *(undeclared - stack.former_keys)}))


def keys_owned_in_view(stack: Stack, ownership: Ownership) -> tuple[str, ...]:
    """Return the keys in view that own a job, or may; `--only` may name undeclared ones."""
    chosen = stack.chosen or frozenset()
    concerned = set(ownership.concerned_keys)
    owners = {key for key, job in stack.jobs.items() if concerned & {key, *job.formerly}}
    others = {key for key in concerned - stack.former_keys if key in chosen or not stack.is_partial}
    return tuple(sorted(owners | others))


def keys_with_upstream(stack: Stack, ownership: Ownership) -> tuple[str, ...]:
    """Return the keys that the plan is about and all that they need, in view or not."""
    keys = set(keys_in_view(stack, ownership))
    waiting = list(keys)
    while waiting:
        job = stack.find(waiting.pop())
        needed = set(job.needs if job and not job.is_absent else ()) - keys
        keys |= needed
        waiting += needed
    return tuple(sorted(keys))


# --- the current revision of a key


def current_revision(view: KeyView, desired: DesiredJob | None) -> Revision | None:
    """Pick the revision that stands for the key; it may have aged out of the service.

    An active revision comes first, unless a newer one completed with the declared digest. Of several active
    ones it is the longest running with the declared digest (with `overlap: replace` the newest, which was
    started for the latest time), else the newest. Otherwise it is the newest revision. Terminating ones count
    as ended.
    """

    def is_declared(revision: Revision) -> bool:
        return desired is not None and desired.is_declared_by(revision.marker.digest)

    aged_out = view.aged_out
    revisions = view.owned if aged_out is None else [*view.owned, aged_out]
    if len(revisions) == 1:
        return revisions[0]
    completed = (r.number for r in revisions if r.job.phase is Phase.COMPLETED and is_declared(r))
    newest_done = max(completed, default=0)
    live = [r for r in view.owned if r.job.is_live and r.number > newest_done]
    declared = [r for r in live if is_declared(r)]
    if not declared:
        return next(reversed(live or revisions), None)
    if desired and desired.schedule and desired.lifecycle.overlap == "replace":
        return declared[-1]
    return max(declared, key=lambda r: (r.job.duration_s or 0.0, -r.number))


# --- what was edited


class Difference(NamedTuple):
    """What changed in a declaration whose digest is not the marker's; empty if only the marker is outdated.

    `unreported` are changed, or possibly changed, fields that the service does not report. There may be more
    changes if the previous declaration is unknown (not `is_known`) or only partly known (not `is_exact`).
    """

    changes: tuple[Change, ...] = ()
    unreported: tuple[str, ...] = ()
    is_known: bool = True
    is_exact: bool = True

    @property
    def is_empty(self) -> bool:
        return self.is_known and not self.changes and not self.unreported

    def is_below(self, paths: Collection[str]) -> bool:
        """Whether all known changes lie at or below these paths.

        False also if everything below the paths is reported and does not explain the digest: then an
        unreported field elsewhere was edited.
        """
        is_unknown = any(_meets(one, paths) for one in self.unreported)
        if self.is_known and not (self.is_exact or is_unknown) and (self.unreported or not self.changes):
            return False
        return all(_is_below(field, paths) for field in self.fields)

    @property
    def fields(self) -> list[str]:
        """The paths of the values that changed: a change may be of a whole object, with all its members."""
        return [
            field
            for change in self.changes
            for value in (change.before, change.after)
            if value is not None
            for field in _fields(change.path, value)
        ]

    @property
    def summary(self) -> str:
        if not self.is_known:
            return "the declaration changed; the previous one is not on record"
        # A change of code is certain: the reported digits of its digest differ.
        if {change.path for change in self.changes} <= {*self.unreported} - {CODE}:
            return f"changed in a field that the service does not report ({', '.join(self.unreported)})"
        return f"{', '.join(change.path for change in self.changes)} changed"


def _is_below(path: str, paths: Iterable[str]) -> bool:
    return any(f"{path}.".startswith(f"{one}.") for one in paths)


def _meets(path: str, paths: Iterable[str]) -> bool:
    """Whether a path lies at, below or above one of these."""
    return any(_is_below(path, [one]) or _is_below(one, [path]) for one in paths)


def _fields(path: str, value: Any) -> Iterator[str]:
    """Yield the paths of all values in an object; of anything else its own."""
    if not (isinstance(value, Mapping) and value):
        yield path
        return
    for name, member in value.items():
        yield from _fields(f"{path}.{name}", member)


#: Placeholder for an unknown revision number.
_ANY_NUMBER = "\ue000"


def _matches(text: str, pattern: str) -> bool:
    """Whether a text equals a pattern in which `_ANY_NUMBER` stands for any revision number."""
    return re.fullmatch(r"[1-9]\d*".join(map(re.escape, pattern.split(_ANY_NUMBER))), text) is not None


def with_expressions(
    reported: Canonical, declared: Canonical, desired: DesiredJob, letter: str, number: int
) -> Canonical:
    """Put the expressions of the declaration in the place of the revision numbers that the service reports.

    These are the revision's own number and those in the paths of other jobs' outputs.
    """
    if not desired.is_numbered:
        return reported
    filled = desired.numbered(number, lambda _: _ANY_NUMBER).covered_by(letter)

    def walk(value: Any, expr: Any, filled: Any) -> Any:
        match value, expr, filled:
            case dict(), dict(), dict():
                # Keys may contain numbers, too: names of list items, and paths of volumes.
                names = dict(zip(filled, expr if len(expr) == len(filled) else filled, strict=True))
                result = {}
                for key, item in value.items():
                    pattern = (
                        key if key in filled else next((item for item in filled if _matches(key, item)), key)
                    )
                    shown = names.get(pattern, key)
                    result[shown] = walk(item, expr.get(shown), filled.get(pattern))
                return result
            case list(), list(), list() if len(value) == len(expr) == len(filled):
                return [walk(*three) for three in zip(value, expr, filled, strict=True)]
            case str(), str(), str() if expr != filled:
                return expr if _matches(value, filled) else value
        return value

    named: Canonical = walk(reported, declared, filled)
    return named


def _with_number(value: Any, number: int) -> Any:
    """Fill the number of a revision in for `${job.revision}`."""
    match value:
        case dict():
            return {_with_number(key, number): _with_number(item, number) for key, item in value.items()}
        case list():
            return [_with_number(item, number) for item in value]
    return value.replace(str(RevisionText([None])), str(number)) if isinstance(value, str) else value


def difference(
    desired: DesiredJob,
    details: ObservedJob | None,
    digest: str,
    then: Canonical | None = None,
    number: int = 0,
    codes: Collection[str] = (),
) -> Difference:
    """Compare the declaration of a job with the current one: docs/concepts/revisions.md, "Comparison".

    `digest` and `number` come from its marker, `codes` are known code digests, `then` is the recorded
    declaration, if any. Without one, the declarations that `details` allow are tried against the digest; the
    one that matches gives the changes that a history would give. If none matches, the details are compared as
    far as they go.
    """
    # Imported here: most runs compare nothing.
    from reconciler.core.diff import changes_between, comparable_with_details, declared_for, unreported_among

    declared, reported = desired.covered_by(digest[:1]), None
    # Changes are shown with the values that a new job would get.
    shown = declared if digest[:1] == CURRENT else desired.covered_by(CURRENT)
    if then is not None:
        then = with_expressions(_with_number(then, number), declared, desired, digest[:1], number)
    elif details is not None:
        reported = immutable_part(canonical(normalize_aliases(manifest_form(details.body))))
        reported = reported_form(reported, declared, codes)
        reported = with_expressions(reported, declared, desired, digest[:1], number)
        then = declared_for(reported, declared, digest)
        if then is None and CODE not in declared and (code := known_code(reported, codes)):
            # The job was declared with code, and the entry has none now.
            then = declared_for(declared_form(reported, code), declared, digest)
    if then is not None:
        changes = changes_between(then, declared, forces_new_job=True, shown=shown)
        if reported is None:
            return Difference(changes)
        # What was put together says of its secrets what a record would.
        changes = mask(changes, [Declared(immutable=then)])
        return Difference(changes, unreported_among(changes, then, declared, reported))
    if reported is None:
        return Difference(is_known=False, is_exact=False)
    comparable = comparable_with_details(reported, declared)
    changes = changes_between(comparable.before, comparable.after, forces_new_job=True, shown=shown)
    unreported = (*comparable.unreported, CODE) if is_shortened(reported) else comparable.unreported
    return Difference(changes or comparable.secrets, unreported, is_exact=False)


# --- retries


class Attempt(NamedTuple):
    """Whether a retry is due (RETRY), not due yet (RETRY_LATER), or all are used (RETRIES_EXHAUSTED)."""

    reason: Literal[Reason.RETRY, Reason.RETRY_LATER, Reason.RETRIES_EXHAUSTED]
    detail: str
    due_s: float | None = None


def stopped_itself(desired: DesiredJob, job: ObservedJob) -> bool:
    """Whether the job was ended by its own `auto_stop`."""
    if job.phase not in _ENDED_OTHERWISE_THAN_WELL:
        return False
    return has_run_for(job.duration_s, auto_stop_hours(desired.body or {}))


def has_run_for(duration_s: float | None, hours: float | None) -> bool:
    """Whether a run lasted for its auto_stop, give or take five minutes (a tenth of it below an hour).

    Source: docs/concepts/decisions.md.
    """
    return hours is not None and (duration_s or 0.0) >= hours * 3600 - min(300.0, hours * 360)


def next_attempt(run: Sequence[Revision], desired: DesiredJob, service_s: float) -> Attempt | None:
    """Judge the retry that would follow an unbroken run of bad ends, newest first.

    Retry k is due `retry_delay` x 2^(k-1) after the last end. None if the lifecycle does not retry such an
    end.
    """
    last, lifecycle, attempt = run[0].job, desired.lifecycle, len(run)
    was_ended = last.phase in (Phase.TERMINATED, Phase.TERMINATING)
    if not (lifecycle.on_terminated == "recreate" if was_ended else lifecycle.on_failure == "retry"):
        return None
    if attempt > (most := lifecycle.max_retries):
        return Attempt(Reason.RETRIES_EXHAUSTED, f"{most} of {most} retries used")
    doublings = min(attempt - 1, 64)  # a float cannot hold 2^1024
    due_s = (last.ended_at_s() or 0.0) + lifecycle.retry_delay * 2**doublings
    which = f"{attempt} of {most}"
    if due_s > service_s:
        return Attempt(Reason.RETRY_LATER, f"retry {which} at {timestamp(due_s)}", due_s)
    return Attempt(Reason.RETRY, f"attempt {which}")


def bad_run(
    revisions: Iterable[Revision], declaration_of: Callable[[Revision], DesiredJob]
) -> list[Revision]:
    """Return the newest revisions, newest first, that all have the current declaration and ended badly.

    `declaration_of` returns the declaration to compare a revision with. A scheduled start ends the run: each
    scheduled time has its own retries.
    """
    run: list[Revision] = []
    for revision in sorted(revisions, key=lambda r: r.number, reverse=True):
        desired = declaration_of(revision)
        if not desired.is_declared_by(revision.marker.digest) or not bad_end_of(revision, desired):
            break
        if run and desired.schedule is not None:
            started_s, since_s = run[-1].job.created_at_s, revision.job.created_at_s
            counts_from_s = desired.schedule_counts_from(revision.marker.schedule)
            if counts_from_s is None or started_s is None or since_s is None:
                pass
            elif desired.schedule.due(max(since_s, counts_from_s), started_s) is not None:
                break
        run.append(revision)
    return run


def bad_end_of(revision: Revision, desired: DesiredJob) -> str:
    """Say how a job ended badly; "" if it did not."""
    phase = revision.job.phase
    if phase is None or stopped_itself(desired, revision.job):
        return ""
    if phase.ended_badly:
        return phase.value.lower()
    was_ended = phase in (Phase.TERMINATED, Phase.TERMINATING) and not revision.marker.stopped
    return "terminated outside the manifest" if was_ended else ""


# --- completions


class Completion(NamedTuple):
    """The last completion of a key: its revision, and when the job completed and was created."""

    key: str
    number: int
    at_s: float
    created_at_s: float


def newest_completed(view: KeyView) -> int | None:
    """Return the number of the newest completed revision, or None."""
    numbers = (one.number for one in view.ever_owned if one.job.phase is Phase.COMPLETED)
    return max(numbers, default=None)


@dataclass(frozen=True, eq=False, repr=False)
class KeyState:
    """One key at one moment.

    `entry` is None for an undeclared key; `former_entry` is then a job of the sweep that it was a member of,
    if any. `upstream` are the needed keys, `upstream_reruns` those of them that are about to complete again.

    Attributes from `desired` on need `has_revision`: a known entry, revision and phase.
    """

    view: KeyView
    entry: DesiredJob | None
    snapshot: Snapshot
    context: PlanContext
    former_entry: DesiredJob | None = None
    upstream: tuple[KeyState, ...] = ()
    upstream_reruns: tuple[str, ...] = ()

    @property
    def key(self) -> str:
        return self.view.key

    @property
    def ownership(self) -> Ownership:
        return self.snapshot.ownership

    @property
    def at_s(self) -> float:
        return self.context.at_s

    @property
    def service_s(self) -> float:
        """Now, by the service's clock as far as it is known."""
        return self.context.at_s - self.snapshot.skew_s

    # --- the key

    @property
    def declared(self) -> DesiredJob | None:
        """The entry, unless it says `state: absent`."""
        return self.entry if self.entry and not self.entry.is_absent else None

    @cached_property
    def latest(self) -> Revision | None:
        return current_revision(self.view, self.entry)

    @cached_property
    def live(self) -> list[Revision]:
        """The active revisions that are not terminating, oldest first."""
        return [revision for revision in self.view.owned if revision.job.is_live]

    @property
    def unreadable(self) -> str | None:
        if self.ownership.problem is not None:
            # One warning for all keys has the details.
            return "the list could not be read"
        return self.view.unreadable[0].why if self.view.unreadable else None

    @cached_property
    def name_holders(self) -> list[ConflictingJob]:
        """Other jobs with a remote name of the key, oldest first; if the key owns a job, only newer ones.

        This keeps the revisions of two stacks from interleaving.
        """
        number = self.latest.number if self.latest and self.view.owned else 0
        newer = (one for one in self.view.conflicting_jobs if one.number > number)
        return sorted(newer, key=lambda one: one.number)

    @property
    def rename_problem(self) -> str | None:
        """Why `formerly` is contradictory, or None.

        Both keys may own revisions while a rename is under way: then one of the new key has a name of the
        old, or an `id` part if the name is its own again, or its number follows the old ones, whose markers
        could not be written while the last was ending. The last two must not end an active job as superseded.
        """
        if self.entry is None or not self.entry.formerly:
            return None
        own = [r for r in self.view.owned if r.marker.key == self.key]
        old = [r for r in self.view.owned if r.marker.key != self.key]
        if not old or not own or any(parse_remote_name(r.job.name).key in self.entry.formerly for r in own):
            return None
        own_numbers, old_numbers = {r.number for r in own}, {r.number for r in old}
        follows_on = min(own_numbers) == max(old_numbers) + 1
        has_moved = any(r.marker.id_part for r in own) and own_numbers.isdisjoint(old_numbers)
        if (follows_on or has_moved) and all(r is self.latest for r in self.live):
            return None
        keys = sorted({r.marker.key for r in old})
        return f"formerly: {', '.join(keys)}, but {self.key} already has revisions"

    @cached_property
    def completion(self) -> Completion | None:
        """The last completion of the key, by the service or the history; None if unknown.

        None also for an absent key: it will not complete again, so what was made from it is kept.
        """
        completions = (
            Completion(self.key, revision.number, at_s, revision.job.created_at_s or 0.0)
            for revision in (self.view.ever_owned if self.declared else ())
            if revision.job.phase is Phase.COMPLETED and (at_s := revision.job.ended_at_s()) is not None
        )
        return max(completions, key=lambda completion: completion.at_s, default=None)

    # --- its job

    @cached_property
    def has_revision(self) -> bool:
        """Whether the key is declared and has a revision in a known phase."""
        return self.declared is not None and self.latest is not None and self.latest.job.phase is not None

    @property
    def desired(self) -> DesiredJob:
        assert self.entry is not None
        return self.entry

    @cached_property
    def completed(self) -> Mapping[str, int]:
        """The newest completed revision of each needed key that has one."""
        numbers = {one.key: newest_completed(one.view) for one in self.upstream}
        return {key: number for key, number in numbers.items() if number is not None}

    def numbered(self, number: int) -> DesiredJob:
        """Fill the revision numbers in: the job's own, and those of the keys that it needs."""
        return self.desired.numbered(number, lambda key: self.completed.get(key))

    def number_in(self, revision: Revision) -> int:
        """Return the number in the texts of a job: from its name, if it is a name of the key."""
        named, keys = parse_remote_name(revision.job.name), {self.key, *self.desired.formerly}
        return named.revision if named.key in keys else revision.number

    def numbered_as(self, revision: Revision) -> DesiredJob:
        """Return the entry as it was sent for a job, whose description may have older paths."""
        number, text = self.number_in(revision), revision.job.text
        desired = self.numbered(number)
        pattern = self.desired.numbered(number, lambda _: _ANY_NUMBER).description
        is_as_sent = pattern != desired.description and _matches(text.strip(), pattern.strip())
        return replace(desired, description=text) if is_as_sent else desired

    @property
    def revision(self) -> Revision:
        assert self.latest is not None
        return self.latest

    @property
    def phase(self) -> Phase:
        assert self.revision.job.phase is not None
        return self.revision.job.phase

    @property
    def is_ended(self) -> bool:
        return not self.phase.is_live

    @property
    def is_protected(self) -> bool:
        return self.revision.marker.protected or bool(self.desired.lifecycle.protect)

    @cached_property
    def has_declared_digest(self) -> bool:
        return self.desired.is_declared_by(self.revision.marker.digest)

    @property
    def details(self) -> ObservedJob | None:
        return self.snapshot.details.get(self.revision.job.id)

    def previous_declaration(self, revision: Revision) -> Canonical | None:
        """Return what was declared for a job, if it is on record and its digest matches."""
        digest, past = revision.marker.digest, self.view.past_of(revision.job.id)
        if past is None or past.declared is None or not is_known(digest):
            return None
        recorded = dict(past.declared.immutable)
        return recorded if digest_of(recorded, digest[:1]) == digest else None

    def needs_details(self, revision: Revision) -> bool:
        """Whether only the details of the job can tell what was edited."""
        is_edited = not self.desired.is_declared_by(revision.marker.digest)
        return is_edited and not revision.is_aged_out and self.previous_declaration(revision) is None

    @property
    def compared(self) -> Iterator[Revision]:
        """The revisions that are compared with the declaration.

        With `ignore_changes` these include earlier ones that ended badly, as far back as retries count.
        """
        yield self.revision
        lifecycle, is_bad = self.desired.lifecycle, _ENDED_OTHERWISE_THAN_WELL.__contains__
        retries = lifecycle.on_failure == "retry" or lifecycle.on_terminated == "recreate"
        may_retry = is_bad(self.revision.job.phase) or not self.has_declared_digest
        if lifecycle.ignore_changes and retries and may_retry:
            others = (one for one in reversed(self.view.owned) if one is not self.revision)
            tries = islice(others, lifecycle.max_retries + 1)
            yield from takewhile(lambda one: is_bad(one.job.phase), tries)

    def _ignored_since(self, revision: Revision) -> Difference | None:
        """Return what was edited since a revision was made, if all of it is ignored."""
        paths, found = self.desired.lifecycle.ignore_changes, None
        if paths:
            found = self._difference if revision is self.latest else self._difference_from(revision)
        return found if found and not found.is_empty and found.is_below(paths) else None

    def _difference_from(self, revision: Revision) -> Difference | None:
        marker = revision.marker
        if self.desired.is_declared_by(marker.digest) or not is_known(marker.digest):
            return None
        details, then = self.snapshot.details.get(revision.job.id), self.previous_declaration(revision)
        number, codes = self.number_in(revision), self.snapshot.codes
        return difference(self.desired, details, marker.digest, then, number, codes)

    @cached_property
    def _difference(self) -> Difference | None:
        return self._difference_from(self.revision)

    @cached_property
    def ignored(self) -> str:
        """The edits that are ignored; "" if there are none, or also others."""
        found, paths = self._ignored_since(self.revision), self.desired.lifecycle.ignore_changes
        if found is None:
            return ""
        fields = found.fields
        changed = [one for one in paths if any(_is_below(field, [one]) for field in fields)] or paths
        unknown = "" if found.is_exact else "; what was declared before is not on record"
        return f"ignored: {', '.join(changed)}{unknown}"

    @cached_property
    def edit(self) -> Difference | None:
        """What was edited in the immutable part and is not ignored, or None.

        Must not be read if details are needed and missing.
        """
        found, paths = self._difference, self.desired.lifecycle.ignore_changes
        if found is None or found.is_empty or self.ignored:
            return None
        is_elsewhere = not found.is_exact and all(_is_below(field, paths) for field in found.fields)
        return found._replace(changes=()) if is_elsewhere else found

    def declaration_of(self, revision: Revision) -> DesiredJob:
        """Return the entry as the revision was made from it if all edits since are ignored, else as it is."""
        if self._ignored_since(revision) is None:
            return self.desired
        body = dict(self.desired.body or {})
        if _meets("spec.auto_stop", self.desired.lifecycle.ignore_changes):
            reported = (self.snapshot.details.get(revision.job.id) or revision.job).body.get("spec") or {}
            body["spec"] = {**(body.get("spec") or {}), "auto_stop": reported.get("auto_stop")}
        return replace(self.desired, body=body, digest=revision.marker.digest)

    @property
    def changes(self) -> tuple[Change, ...]:
        return self.edit.changes if self.edit else ()

    @property
    def edit_summary(self) -> str:
        return self.edit.summary if self.edit else ""

    @property
    def is_marker_outdated(self) -> bool:
        """Whether the digest differs although no field does."""
        return not self.has_declared_digest and self.edit is None and not self.ignored

    @property
    def as_declared(self) -> Revision:
        """The revision, with the declared digest if only its marker is outdated."""
        if not self.is_marker_outdated:
            return self.revision
        return self.revision._replace(marker=self.revision.marker._replace(digest=self.desired.digest))

    def retry_of(self, last: Revision) -> Attempt | None:
        """Judge the retry of a revision that ended badly as declared; None if it is not retried."""
        revisions = [last if r.job.id == last.job.id else r for r in self.view.ever_owned]
        run = bad_run(revisions, self.declaration_of)
        is_newest = bool(run) and run[0].job.id == last.job.id
        return next_attempt(run, self.desired, self.service_s) if is_newest else None

    @cached_property
    def attempt(self) -> Attempt | None:
        return self.retry_of(self.as_declared)

    @property
    def bad_end(self) -> str:
        return bad_end_of(self.revision, self.declaration_of(self.revision))

    def stopped_itself(self, revision: Revision) -> bool:
        return stopped_itself(self.declaration_of(revision), revision.job)

    # --- its schedule and its upstream

    @property
    def counts_from_s(self) -> float | None:
        """From when the schedule counts; None if the marker does not name this schedule."""
        return self.desired.schedule_counts_from(self.revision.marker.schedule)

    @cached_property
    def due_s(self) -> float | None:
        """The first time due since the last start and since the schedule began to count, or None."""
        schedule = self.desired.schedule
        if schedule is None or (since_s := self.view.last_start_s) is None or self.counts_from_s is None:
            return None
        return schedule.due(max(since_s, self.counts_from_s), self.service_s)

    @property
    def edit_waits(self) -> bool:
        """Whether edits wait for the schedule. Those of a job that is declared again after a stop do not."""
        return self.desired.edits_wait and not (self.is_ended and self.revision.marker.stopped)

    @property
    def newer_upstream(self) -> tuple[Completion, ...]:
        """The completions of needed keys that came after the job was created."""
        created_at_s = self.revision.job.created_at_s
        if created_at_s is None:
            return ()
        last = (one.completion for one in self.upstream if one.completion is not None)
        return tuple(
            one
            for one in last
            # A job that was created later also completed later, even within the same second.
            if one.at_s > created_at_s + _SAME_TIME_S or one.created_at_s > created_at_s
        )


def state_of(key: str, desired: DesiredJob | None, snapshot: Snapshot, context: PlanContext) -> KeyState:
    return KeyState(snapshot.view(key, desired), desired, snapshot, context)
