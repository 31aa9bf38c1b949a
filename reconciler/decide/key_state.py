"""One key at one moment: what is declared, what was seen and what is on record of it, and what follows.

`KeyState` is computed once a key. The rules, drift, status and `why` are functions of it.
Source: docs/concepts/decisions.md.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import islice, takewhile
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from reconciler.core.body import CURRENT, auto_stop_hours, digest_of, is_known, manifest_form, one_spelling
from reconciler.core.canonical import Canonical, canonical, immutable_part
from reconciler.core.code import CODE, declared_form, is_shortened, known_code, reported_form
from reconciler.core.fields.field_types import Cloud
from reconciler.core.identity import parse_remote_name
from reconciler.core.observed import ObservedJob
from reconciler.core.ownership import ConflictingJob, KeyView, Ownership, Revision
from reconciler.core.phase import Operation, Phase, may
from reconciler.core.record import NO_HISTORY, HistorySnapshot
from reconciler.core.scalar import RevisionText
from reconciler.core.stack import DesiredJob, Limits, Stack
from reconciler.core.values import Change, TargetIdentity, timestamp
from reconciler.decide.plan import NO_ALLOWANCES, Allowances, Reason

if TYPE_CHECKING:
    from reconciler.core.past import PastChange
    from reconciler.core.ports import EvaluateExpressions

_ENDED_OTHERWISE_THAN_WELL = frozenset({Phase.FAILED, Phase.ABNORMAL, Phase.TERMINATING, Phase.TERMINATED})
#: The service rounds times; an end this close to a creation is not after it.
_SAME_TIME_S = 1.0


class PlanContext(NamedTuple):
    """What is the same for every key: whose stack, which cloud, the time by our clock, what was allowed.

    `destroys` says that every job is to end because somebody asked for just that; `rerun` are the keys that
    somebody asked to run again. `changed_files` names what changed in the code of a job since a digest, "" if
    that is not known. `manifest_digest` and `version` are those of the documents that are made.
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
        """What every document about the stack on a target begins with."""
        return {
            "reconciler_version": self.version,
            "created_at": timestamp(self.at_s),
            "stack": self.stack,
            "target": target,
            "manifest_digest": self.manifest_digest,
        }


class Snapshot(NamedTuple):
    """What was seen: everything observed, sorted by key, and the details that were asked for.

    `gone` are jobs that the service listed and then did not know any more; `memory` is what the history
    store knows, as far as it was asked. `skew_s` is how far our clock was ahead of the service's.
    `unread` says of jobs why their details could not be read.
    `changes` is the newest recorded call on a job of each key, where a report says by whom it ended.
    `codes` are digests of code that jobs in `details` have, as far as the code store was asked and has them.
    """

    ownership: Ownership
    details: Mapping[str, ObservedJob] = MappingProxyType({})
    gone: frozenset[str] = frozenset()
    unread: Mapping[str, str] = MappingProxyType({})
    memory: HistorySnapshot = NO_HISTORY
    skew_s: float = 0.0
    changes: Mapping[str, PastChange] = MappingProxyType({})
    codes: Collection[str] = ()

    def view(self, key: str, desired: DesiredJob | None = None) -> KeyView:
        """What was seen of a key and of those it had before, without the jobs that are gone."""
        return self.view_of(key, desired.formerly if desired else ())

    def view_of(self, key: str, former_keys: Collection[str]) -> KeyView:
        view = self.ownership.view(key)
        for old in former_keys:
            view = view.joined(self.ownership.view(old))
        if self.gone:
            view = view.without(self.gone)
        if self.memory.problem is not None:
            return replace(view, history_problem=self.memory.problem)
        # The newest name last: of a job that is remembered under both this record counts.
        past = self.ownership.remembered(self.memory, (*former_keys, key)) if self.memory.by_key else ()
        return view.remembering(past, self.ownership.unmanaged) if past else view


def keys_in_view(stack: Stack, ownership: Ownership) -> tuple[str, ...]:
    """The keys that the plan is about, sorted.

    With a partial view nothing is absent because it was not seen. A key that another one had before
    is that one's.
    """
    undeclared = set() if stack.is_partial else set(ownership.concerned_keys) - stack.declared_keys
    return tuple(sorted({*stack.jobs, *(undeclared - stack.former_keys)}))


def keys_owned_in_view(stack: Stack, ownership: Ownership) -> tuple[str, ...]:
    """The keys in view of which something is, or may be, owned; `--only` may name undeclared ones."""
    chosen = stack.chosen or frozenset()
    concerned = set(ownership.concerned_keys)
    owners = {key for key, job in stack.jobs.items() if concerned & {key, *job.formerly}}
    others = {key for key in concerned - stack.former_keys if key in chosen or not stack.is_partial}
    return tuple(sorted(owners | others))


def keys_with_upstream(stack: Stack, ownership: Ownership) -> tuple[str, ...]:
    """The keys that the plan is about, and those that they need, in view or not."""
    keys = set(keys_in_view(stack, ownership))
    waiting = list(keys)
    while waiting:
        job = stack.find(waiting.pop())
        more = set(job.needs if job and not job.is_absent else ()) - keys
        keys |= more
        waiting += more
    return tuple(sorted(keys))


# --- the revision that stands for a key


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
    if len(revisions) == 1:
        return revisions[0]
    completed = (r.number for r in revisions if r.job.phase is Phase.COMPLETED and is_declared(r))
    done = max(completed, default=0)
    live = [r for r in view.owned if may(Operation.TERMINATE, r.job.phase) and r.number > done]
    as_declared = [r for r in live if is_declared(r)]
    if not as_declared:
        return next(reversed(live or revisions), None)
    if desired and desired.schedule and desired.lifecycle.overlap == "replace":
        return as_declared[-1]
    return max(as_declared, key=lambda r: (r.job.duration_s or 0.0, -r.number))


# --- what was edited


class Difference(NamedTuple):
    """What changed of a declaration whose digest is not the marker's; empty: only the marker is behind.

    `unreported` are the fields that details do not show, in which it may have changed, or has. Where nobody
    knows what was declared before (not `is_known`), or all of it (not `is_exact`), there may be more.
    """

    changes: tuple[Change, ...] = ()
    unreported: tuple[str, ...] = ()
    is_known: bool = True
    is_exact: bool = True

    @property
    def is_empty(self) -> bool:
        return self.is_known and not self.changes and not self.unreported

    def is_below(self, paths: Collection[str]) -> bool:
        """Whether what changed lies at or below some paths, as far as anybody knows.

        Where all that was declared there is reported, and does not explain the digest, a field that the
        service does not report was edited.
        """
        is_unknown = any(
            _is_below(one, paths) or _is_below(path, [one]) for one in self.unreported for path in paths
        )
        if self.is_known and not (self.is_exact or is_unknown) and (self.unreported or not self.changes):
            return False
        return all(_is_below(change.path, paths) for change in self.changes)

    @property
    def said(self) -> str:
        if not self.is_known:
            return "the declaration changed; the previous one is not on record"
        # That the code is another one, the digits that are known say.
        if {change.path for change in self.changes} <= {*self.unreported} - {CODE}:
            return f"changed in a field that the service does not report ({', '.join(self.unreported)})"
        return f"{', '.join(change.path for change in self.changes)} changed"


def _is_below(path: str, paths: Iterable[str]) -> bool:
    return any(f"{path}.".startswith(f"{one}.") for one in paths)


#: Stands for a number that nobody knows.
_ANY_NUMBER = "\ue000"


def _is_like(found: str, text: str) -> bool:
    """Whether a text is another one, whatever the numbers in that are that nobody knows."""
    return re.fullmatch(r"[1-9]\d*".join(map(re.escape, text.split(_ANY_NUMBER))), found) is not None


def with_names(
    reported: Canonical, wanted: Canonical, desired: DesiredJob, letter: str, number: int
) -> Canonical:
    """What is reported, with expressions in the place of the numbers that a declaration would have there.

    Those are the revision's own, and any where the path of another job's output stands.
    """
    if not desired.is_numbered:
        return reported
    filled = desired.numbered(number, lambda _: _ANY_NUMBER).covered_by(letter)

    def walk(found: Any, name: Any, text: Any) -> Any:
        match found, name, text:
            case dict(), dict(), dict():
                # The names in a list are keys, and so are the paths of volumes: numbers may be in them, too.
                names = dict(zip(text, name if len(name) == len(text) else text, strict=True))
                result = {}
                for key, one in found.items():
                    like = key if key in text else next((one for one in text if _is_like(key, one)), key)
                    shown = names.get(like, key)
                    result[shown] = walk(one, name.get(shown), text.get(like))
                return result
            case list(), list(), list() if len(found) == len(name) == len(text):
                return [walk(*three) for three in zip(found, name, text, strict=True)]
            case str(), str(), str() if name != text:
                return name if _is_like(found, text) else found
        return found

    named: Canonical = walk(reported, wanted, filled)
    return named


def _at(then: Any, number: int) -> Any:
    """What was declared, with the number of a revision in the place of `${job.revision}`."""
    match then:
        case dict():
            return {_at(key, number): _at(one, number) for key, one in then.items()}
        case list():
            return [_at(one, number) for one in then]
    return then.replace(str(RevisionText([None])), str(number)) if isinstance(then, str) else then


def difference(
    desired: DesiredJob,
    details: ObservedJob | None,
    digest: str,
    then: Canonical | None = None,
    number: int = 0,
    codes: Collection[str] = (),
) -> Difference:
    """Compare what was declared for a job with what is declared now: docs/concepts/revisions.md,
    "Comparison".

    `digest` is its marker's, `number` that of its revision, `codes` are digests of code that is known, and
    `then` what was declared, where that is on record. If a declaration that can be put together from
    `details` has the digest, that is what was declared, and the changes are those that a history would show.
    If not, what details report is compared, as far as it goes.
    """
    # Where nothing was edited nothing is compared.
    from reconciler.core.diff import changes_between, comparable_with_details, declared_for, unreported_among

    wanted, reported = desired.covered_by(digest[:1]), None
    # What changed is shown with the texts that a new job would get.
    shown = wanted if digest[:1] == CURRENT else desired.covered_by(CURRENT)
    if then is not None:
        # As the details of the job would have it.
        then = with_names(_at(then, number), wanted, desired, digest[:1], number)
    elif details is not None:
        reported = immutable_part(canonical(one_spelling(manifest_form(details.body))))
        reported = reported_form(reported, wanted, codes)
        reported = with_names(reported, wanted, desired, digest[:1], number)
        then = declared_for(reported, wanted, digest)
        if then is None and CODE not in wanted and (code := known_code(reported, codes)):
            # It was declared as code, which is declared no more.
            then = declared_for(declared_form(reported, code), wanted, digest)
    if then is not None:
        changes = changes_between(then, wanted, forces_new_job=True, shown=shown)
        return Difference(
            changes, unreported_among(changes, then, wanted, reported) if reported is not None else ()
        )
    if reported is None:
        return Difference(is_known=False, is_exact=False)
    comparable = comparable_with_details(reported, wanted)
    changes = changes_between(comparable.before, comparable.after, forces_new_job=True, shown=shown)
    unreported = (*comparable.unreported, CODE) if is_shortened(reported) else comparable.unreported
    return Difference(changes or comparable.secrets, unreported, is_exact=False)


# --- retries


class Attempt(NamedTuple):
    """Whether a retry is due (RETRY), not yet (RETRY_LATER), or none is left (RETRIES_EXHAUSTED)."""

    reason: Literal[Reason.RETRY, Reason.RETRY_LATER, Reason.RETRIES_EXHAUSTED]
    detail: str
    due_s: float | None = None


def stopped_itself(desired: DesiredJob, job: ObservedJob) -> bool:
    """Whether the job ended by its own auto_stop: it ran for that long, give or take five minutes."""
    if job.phase not in _ENDED_OTHERWISE_THAN_WELL:
        return False
    return has_run_for(job.duration_s, auto_stop_hours(desired.body or {}))


def has_run_for(duration_s: float | None, hours: float | None) -> bool:
    """Whether a run came to its auto_stop, give or take five minutes, or a tenth of one below an hour.

    Source: docs/concepts/decisions.md.
    """
    return hours is not None and (duration_s or 0.0) >= hours * 3600 - min(300.0, hours * 360)


def next_attempt(run: Sequence[Revision], desired: DesiredJob, at_s: float) -> Attempt | None:
    """Judge the retry that would follow an unbroken run of bad ends, newest first.

    The k-th retry comes no earlier than `retry_delay` x 2^(k-1) after the end of the last. None if the
    declared lifecycle does not let a job that ended like this one be started again.
    """
    last, lifecycle, attempt = run[0].job, desired.lifecycle, len(run)
    was_ended = last.phase in (Phase.TERMINATED, Phase.TERMINATING)
    if not (lifecycle.on_terminated == "recreate" if was_ended else lifecycle.on_failure == "retry"):
        return None
    if attempt > lifecycle.max_retries:
        return Attempt(Reason.RETRIES_EXHAUSTED, f"all {lifecycle.max_retries} retries used")
    due_s = (last.ended_at_s() or 0.0) + lifecycle.retry_delay * 2 ** (attempt - 1)
    which = f"{attempt} of {lifecycle.max_retries}"
    if due_s > at_s:
        return Attempt(Reason.RETRY_LATER, f"retry {which} at {timestamp(due_s)}", due_s)
    return Attempt(Reason.RETRY, f"attempt {which}")


def bad_run(revisions: Iterable[Revision], made_as: Callable[[Revision], DesiredJob]) -> list[Revision]:
    """The unbroken run of revisions, newest first, that were made as declared and ended badly.

    `made_as` is the declaration, as a revision counts for it. A start by the schedule breaks the run: each
    time has its own retries.
    """
    run: list[Revision] = []
    for revision in sorted(revisions, key=lambda r: r.number, reverse=True):
        desired = made_as(revision)
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
    """How a job ended, if it ended badly, for people; else ""."""
    phase = revision.job.phase
    if phase is None or stopped_itself(desired, revision.job):
        return ""
    if phase.ended_badly:
        return phase.value.lower()
    was_ended = phase in (Phase.TERMINATED, Phase.TERMINATING) and not revision.marker.stopped
    return "terminated outside the manifest" if was_ended else ""


# --- what a key is made from


class Completion(NamedTuple):
    """The revision of a key that completed last, and when."""

    key: str
    number: int
    at_s: float


def newest_completed(view: KeyView) -> int | None:
    """The number of the newest revision that completed; None if none did."""
    numbers = (one.number for one in view.ever_owned if one.job.phase is Phase.COMPLETED)
    return max(numbers, default=None)


@dataclass(frozen=True, eq=False, repr=False)
class KeyState:
    """One key at one moment.

    `entry` is None for a key that no file declares; `former_entry` is then a job of the entry that no longer
    produces it, if it was a member of one. `upstream` are the keys that this one needs, and `upstream_reruns`
    those of them that are about to complete once more.

    What is said of the job of the key, from `desired` on, may be asked only where the entry, the revision and
    its phase are known: where `is_there` is true, that is.
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
        """What time it is by the service's clock, as far as that is known."""
        return self.context.at_s - self.snapshot.skew_s

    # --- the key

    @property
    def declared(self) -> DesiredJob | None:
        """The entry, if it declares a job: not as absent."""
        return self.entry if self.entry and not self.entry.is_absent else None

    @cached_property
    def latest(self) -> Revision | None:
        return newest(self.view, self.entry)

    @cached_property
    def live(self) -> list[Revision]:
        """The active revisions that nobody has begun to end, the oldest first."""
        return [revision for revision in self.view.owned if may(Operation.TERMINATE, revision.job.phase)]

    @property
    def unreadable(self) -> str | None:
        if self.ownership.problem is not None:
            # What the problem is, a warning says once for all keys.
            return "the list could not be read"
        return self.view.unreadable[0].why if self.view.unreadable else None

    @cached_property
    def name_holders(self) -> list[ConflictingJob]:
        """Who holds a remote name of the key: any one if nothing of it is owned, else a newer one.

        So the revisions of two stacks never interleave.
        """
        number = self.latest.number if self.latest and self.view.owned else 0
        return [one for one in self.view.conflicting_jobs if one.number > number]

    @property
    def rename_problem(self) -> str | None:
        """Why a renaming cannot be, or None.

        A revision of the new key that has a name of the old one shows that the renaming is under way; so does
        one whose number follows the old ones: their markers could not be written while the last was ending.
        """
        if self.entry is None or not self.entry.formerly:
            return None
        own = [r for r in self.view.owned if r.marker.key == self.key]
        old = [r for r in self.view.owned if r.marker.key != self.key]
        if not old or not own or any(parse_remote_name(r.job.name).key in self.entry.formerly for r in own):
            return None
        if min(r.number for r in own) == max(r.number for r in old) + 1:
            return None
        keys = sorted({r.marker.key for r in old})
        return f"formerly: {', '.join(keys)}, but {self.key} already has revisions"

    @cached_property
    def completion(self) -> Completion | None:
        """The last completion of the key, by the service or else the history; None if none is known.

        What is to be absent will not complete again: who needs it keeps what was made from it.
        """
        found = (
            Completion(self.key, revision.number, at_s)
            for revision in (self.view.ever_owned if self.declared else ())
            if revision.job.phase is Phase.COMPLETED and (at_s := revision.job.ended_at_s()) is not None
        )
        return max(found, key=lambda completion: completion.at_s, default=None)

    # --- its job

    @cached_property
    def is_there(self) -> bool:
        """Whether a job is declared, and one of a known phase stands for the key."""
        return self.declared is not None and self.latest is not None and self.latest.job.phase is not None

    @property
    def desired(self) -> DesiredJob:
        assert self.entry is not None
        return self.entry

    @cached_property
    def completed(self) -> Mapping[str, int]:
        """The numbers of the newest completed revisions of the keys that this one needs."""
        numbers = {one.key: newest_completed(one.view) for one in self.upstream}
        return {key: number for key, number in numbers.items() if number is not None}

    def numbered(self, number: int) -> DesiredJob:
        """The entry as it is sent for a revision: with its number, and with those of what it needs."""
        return self.desired.numbered(number, lambda key: self.completed.get(key))

    def number_in(self, revision: Revision) -> int:
        """The number that stands in the texts of a job: that of its name, if it has a name of the key."""
        named, keys = parse_remote_name(revision.job.name), {self.key, *self.desired.formerly}
        return named.revision if named.key in keys else revision.number

    def numbered_as(self, revision: Revision) -> DesiredJob:
        """The entry as it was sent for a job: its description has the paths of then."""
        number, text = self.number_in(revision), revision.job.text
        desired = self.numbered(number)
        likely = self.desired.numbered(number, lambda _: _ANY_NUMBER).description
        is_as_sent = likely != desired.description and _is_like(text.strip(), likely.strip())
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
        return self.phase.is_terminal or self.phase is Phase.TERMINATING

    @property
    def is_protected(self) -> bool:
        return self.revision.marker.protected or bool(self.desired.lifecycle.protect)

    @cached_property
    def has_declared_digest(self) -> bool:
        return self.desired.is_declared_by(self.revision.marker.digest)

    @property
    def details(self) -> ObservedJob | None:
        return self.snapshot.details.get(self.revision.job.id)

    def declared_then(self, revision: Revision) -> Canonical | None:
        """What was declared for a job, if the history store has it and it is what the digest covers."""
        digest, past = revision.marker.digest, self.view.past_of(revision.job.id)
        if past is None or past.declared is None or not is_known(digest):
            return None
        then = dict(past.declared.immutable)
        return then if digest_of(then, digest[:1]) == digest else None

    def needs_details(self, revision: Revision) -> bool:
        """Whether only the details can say what was edited: nothing else is on record."""
        is_edited = not self.desired.is_declared_by(revision.marker.digest)
        return is_edited and not revision.is_aged_out and self.declared_then(revision) is None

    @property
    def compared(self) -> Iterator[Revision]:
        """The revisions that are compared with the declaration.

        Where edits are ignored, those are also earlier ones that ended badly, as far as retries count them.
        """
        yield self.revision
        lifecycle, is_bad = self.desired.lifecycle, _ENDED_OTHERWISE_THAN_WELL.__contains__
        retries = lifecycle.on_failure == "retry" or lifecycle.on_terminated == "recreate"
        is_over = is_bad(self.revision.job.phase) or not self.has_declared_digest
        if lifecycle.ignore_changes and retries and is_over:
            others = (one for one in reversed(self.view.owned) if one is not self.revision)
            tries = islice(others, lifecycle.max_retries + 1)
            yield from takewhile(lambda one: is_bad(one.job.phase), tries)

    def _ignored_since(self, revision: Revision) -> Difference | None:
        """What was edited since a revision was made, if all of that is ignored."""
        paths, found = self.desired.lifecycle.ignore_changes, None
        if paths:
            found = self._difference if revision is self.latest else self._difference_from(revision)
        return found if found and not found.is_empty and found.is_below(paths) else None

    def _difference_from(self, revision: Revision) -> Difference | None:
        marker = revision.marker
        if self.desired.is_declared_by(marker.digest) or not is_known(marker.digest):
            return None
        details, then = self.snapshot.details.get(revision.job.id), self.declared_then(revision)
        number, codes = self.number_in(revision), self.snapshot.codes
        return difference(self.desired, details, marker.digest, then, number, codes)

    @cached_property
    def _difference(self) -> Difference | None:
        return self._difference_from(self.revision)

    @cached_property
    def ignored(self) -> str:
        """What was edited and is ignored, for people; "" if nothing was, or something that is not ignored."""
        found, paths = self._ignored_since(self.revision), self.desired.lifecycle.ignore_changes
        if found is None:
            return ""
        changed = [
            one for one in paths if any(_is_below(change.path, [one]) for change in found.changes)
        ] or paths
        unknown = "" if found.is_exact else "; what was declared before is not on record"
        return f"ignored: {', '.join(changed)}{unknown}"

    @cached_property
    def edit(self) -> Difference | None:
        """What was edited of what the digest covers; None if nothing was, or only what the entry ignores.

        Not to be asked where details are needed and there are none.
        """
        found, paths = self._difference, self.desired.lifecycle.ignore_changes
        if found is None or found.is_empty or self.ignored:
            return None
        is_elsewhere = not found.is_exact and all(_is_below(change.path, paths) for change in found.changes)
        return found._replace(changes=()) if is_elsewhere else found

    def made_as(self, revision: Revision) -> DesiredJob:
        """The entry as a revision was made of it, where all that was edited since is ignored."""
        if self._ignored_since(revision) is None:
            return self.desired
        body = dict(self.desired.body or {})
        if _is_below("spec.auto_stop", self.desired.lifecycle.ignore_changes):
            there = (self.snapshot.details.get(revision.job.id) or revision.job).body.get("spec") or {}
            body["spec"] = {**(body.get("spec") or {}), "auto_stop": there.get("auto_stop")}
        return replace(self.desired, body=body, digest=revision.marker.digest)

    @property
    def changes(self) -> tuple[Change, ...]:
        return self.edit.changes if self.edit else ()

    @property
    def edit_said(self) -> str:
        return self.edit.said if self.edit else ""

    @property
    def is_marker_outdated(self) -> bool:
        """Whether the digest differs and no field does: the job is what is declared."""
        return not self.has_declared_digest and self.edit is None and not self.ignored

    @property
    def as_declared(self) -> Revision:
        """The job's revision, with the declared digest where only its marker is outdated."""
        if not self.is_marker_outdated:
            return self.revision
        return self.revision._replace(marker=self.revision.marker._replace(digest=self.desired.digest))

    def retry_of(self, last: Revision) -> Attempt | None:
        """The retry of a revision that ended badly as declared; None if the lifecycle asks for none."""
        revisions = [last if r.job.id == last.job.id else r for r in self.view.ever_owned]
        run = bad_run(revisions, self.made_as)
        return next_attempt(run, self.desired, self.at_s) if run and run[0].job.id == last.job.id else None

    @cached_property
    def attempt(self) -> Attempt | None:
        return self.retry_of(self.as_declared)

    @property
    def bad_end(self) -> str:
        return bad_end_of(self.revision, self.made_as(self.revision))

    # --- its schedule and its upstream

    @property
    def counts_from_s(self) -> float | None:
        """From when the schedule counts; None if the marker has none, or another one."""
        return self.desired.schedule_counts_from(self.revision.marker.schedule)

    @cached_property
    def due_s(self) -> float | None:
        """The first time of the schedule that is to be started now; None if there is none.

        It has come since the key was last started, and since the schedule began to count.
        """
        schedule = self.desired.schedule
        if schedule is None or (since_s := self.view.last_start_s) is None or self.counts_from_s is None:
            return None
        return schedule.due(max(since_s, self.counts_from_s), self.service_s)

    @property
    def edit_waits(self) -> bool:
        """Whether an edit waits for the next time of the schedule; what we stopped and is back does not."""
        return self.desired.edits_wait and not (self.is_ended and self.revision.marker.stopped)

    @property
    def newer_upstream(self) -> tuple[Completion, ...]:
        """The completions of needed keys that came after the job was created: it was made from older ones."""
        created_at_s = self.revision.job.created_at_s
        if created_at_s is None:
            return ()
        last = (one.completion for one in self.upstream)
        return tuple(one for one in last if one is not None and one.at_s > created_at_s + _SAME_TIME_S)


def state_of(key: str, desired: DesiredJob | None, snapshot: Snapshot, context: PlanContext) -> KeyState:
    return KeyState(snapshot.view(key, desired), desired, snapshot, context)
