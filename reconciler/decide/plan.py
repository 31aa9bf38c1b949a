"""A plan: the actions that make the service match the manifest, as plain data.

`Plan` crosses the process boundary (`plan --json`, `--out`), so it is a frozen model with a schema.
Source of the format: docs/reference/schemas.md, "Plan".
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from enum import StrEnum
from typing import Any, Literal, NamedTuple

from pydantic import Field

from reconciler.core.body import summarize
from reconciler.core.code import Code, CodeFile
from reconciler.core.identity import Description, parse_description
from reconciler.core.lifecycle import ReplaceOrder
from reconciler.core.stack import Declared
from reconciler.core.values import (
    MARKER_SCHEDULE,
    OF_BLOCKED,
    OF_SCHEDULES,
    Change,
    Denial,
    Frozen,
    Head,
    PlanWarning,
    PreflightReason,
    Source,
)
from reconciler.errors import Diagnostic, ExitCode
from reconciler.text import few, format_count, format_duration, short_number


class Action(StrEnum):
    """What is to be done about a key."""

    CREATE = "create"
    KEEP = "keep"
    UPDATE = "update"
    REPLACE = "replace"
    TERMINATE = "terminate"
    DEFER = "defer"
    BLOCKED = "blocked"
    CONFLICT = "conflict"
    UNKNOWN = "unknown"


class ActionTraits(NamedTuple):
    """What the rest of the program needs to know of a kind of action, so that no other code lists kinds.

    `symbol` and `colour` are for text output; `place` sorts for people: what ends work comes first, then what
    needs attention. `summary` is the wording in the plan's last line, which has skipped actions only if there
    are any. A harmless action ends no job and needs no attention.
    """

    symbol: str
    colour: str
    place: int
    summary: str
    is_executed: bool = False
    stops_a_job: bool = False
    starts_a_job: bool = False
    needs_attention: bool = False
    is_harmless: bool = False

    @property
    def is_skipped(self) -> bool:
        return not self.is_executed and self is not ACTIONS[Action.KEEP]

    @property
    def keeps_the_job(self) -> bool:
        """Whether the existing job stays, updated or not."""
        return self in (ACTIONS[Action.KEEP], ACTIONS[Action.UPDATE])


ACTIONS: dict[Action, ActionTraits] = {
    Action.CREATE: ActionTraits(
        "+", "green", 6, "to create", is_executed=True, starts_a_job=True, is_harmless=True
    ),
    Action.UPDATE: ActionTraits("~", "yellow", 5, "to update", is_executed=True, is_harmless=True),
    Action.REPLACE: ActionTraits(
        "-/+", "yellow", 1, "to replace", is_executed=True, stops_a_job=True, starts_a_job=True
    ),
    Action.TERMINATE: ActionTraits("-", "red", 0, "to terminate", is_executed=True, stops_a_job=True),
    Action.KEEP: ActionTraits("=", "dim", 8, "to keep", is_harmless=True),
    Action.DEFER: ActionTraits(">", "blue", 7, "deferred", is_harmless=True),
    Action.BLOCKED: ActionTraits("!", "magenta", 3, "blocked", needs_attention=True),
    Action.CONFLICT: ActionTraits("!", "magenta", 2, "in conflict", needs_attention=True),
    Action.UNKNOWN: ActionTraits("?", "magenta", 4, "unknown"),
}
#: The end of the detail of a conflict over lost work.
LOSS_WAY_OUT = "; set `on_change: replace`, or pass `--allow lost-work`"


def symbol_of(action: Action, order: ReplaceOrder) -> str:
    """Return the symbol of an action; that of a replace shows what it does first."""
    creates_first = action is Action.REPLACE and order == "create_first"
    return "+/-" if creates_first else ACTIONS[action].symbol


class Reason(StrEnum):
    """Why the planner chose the action: a closed list."""

    #: For people, as in docs/reference/reasons.md.
    meaning: str

    def __new__(cls, word: str, meaning: str) -> Reason:
        reason = str.__new__(cls, word)
        reason._value_, reason.meaning = word, meaning
        return reason

    NOT_FOUND = "not_found", "the key has no job"
    UNCHANGED = "unchanged", "active, as declared"
    COMPLETED = "completed", "completed, as declared"
    AGED_OUT = "aged_out", "completed by the history; the service has deleted the record"
    MUTABLE_CHANGED = "mutable_changed", "a mutable field differs"
    MARKER_CHANGED = "marker_changed", "only the marker differs"
    IMMUTABLE_CHANGED = "immutable_changed", "an immutable field differs"
    CHANGE_IGNORED = "change_ignored", "an immutable field differs, with `on_change: keep`"
    CHANGE_REFUSED = "change_refused", "an immutable field differs, with `on_change: fail`"
    WOULD_LOSE_WORK = (
        "would_lose_work",
        "an immutable field differs, and the job has run longer than `limits.lost_time`",
    )
    WAITS_FOR_TERMINATION = "waits_for_termination", "the previous job is being terminated"
    AUTO_STOPPED = "auto_stopped", "stopped by its own `auto_stop`"
    FAILED = "failed", "Failed or Abnormal, and not retried"
    RETRY = "retry", "Failed or Abnormal, and retried"
    RETRY_LATER = "retry_later", "the next retry is not due yet"
    RETRIES_EXHAUSTED = "retries_exhausted", "all retries used"
    DECLARED_AGAIN = "declared_again", "terminated by an apply, and declared again"
    TERMINATED_OUTSIDE = "terminated_outside", "terminated outside reconciler, and kept"
    RECREATE = "recreate", "terminated outside reconciler, with `on_terminated: recreate`"
    RERUN_REQUESTED = "rerun_requested", "`--rerun` names the key"
    UPSTREAM_NEWER = (
        "upstream_newer",
        "a needed key has completed a newer revision, with `on_upstream: rerun`",
    )
    SCHEDULED = "scheduled", "a time of `lifecycle.schedule` has been reached"
    WAITS_FOR_SCHEDULE = (
        "waits_for_schedule",
        "an immutable field differs; the edit waits for the next time of the schedule",
    )
    SUPERSEDED = "superseded", "a different revision of the key is kept"
    NOT_IN_MANIFEST = "not_in_manifest", "no file declares the key"
    STATE_ABSENT = "state_absent", "the entry says `state: absent`"
    DESTROYED = "destroyed", "terminated by `destroy`"
    PROTECTION_RELEASED = "protection_released", "the protection is removed; the next plan terminates the job"
    NAME_TAKEN = "name_taken", "the name is taken by a job that the stack does not own"
    NAME_TOO_LONG = "name_too_long", "the name of the next revision is too long for the service"
    MARKER_RESTORED = (
        "marker_restored",
        "known from the history as a job of the stack; its marker was removed",
    )
    RENAMED = "renamed", "the marker follows a renamed key"
    RENAME_CLASH = "rename_clash", "both keys of a `formerly` own revisions"
    NEEDS_PENDING = "needs_pending", "a key under `needs` is not settled yet"
    WAITS_FOR_TURN = "waits_for_turn", "as many members of the sweep are active as `max_parallel` allows"
    NEEDS_FAILED = "needs_failed", "a key under `needs` ended badly or is absent"
    PROTECTED = "protected", "the job is protected"
    UNKNOWN_PHASE = "unknown_phase", "the phase is not known to this version"
    UNKNOWN_DIGEST = "unknown_digest", "the digest's algorithm is not known to this version"
    UNREADABLE = "unreadable", "something could not be read"
    ADOPTED = "adopted", "`adopt` makes the job a revision of the key"
    ALREADY_OWNED = "already_owned", "the job to adopt is a revision of the stack already"
    DIFFERS = "differs", "the job to adopt differs from the declaration"
    KEY_IN_USE = "key_in_use", "the key has another job that is newer, or active"
    NOT_ADOPTABLE = "not_adoptable", "the job to adopt is elsewhere, or cannot be marked"
    WRONG_PHASE = "wrong_phase", "the description cannot be changed in this phase"
    RELEASED = "released", "`release` removes the marker"
    STACK_RENAMED = "stack_renamed", "`adopt --from-stack` writes another stack on the marker"
    GUARD = "guard", "a guard blocks the key"
    DENIED = "denied", "a policy blocks the key"
    PREFLIGHT = "preflight", "a finding of pre-flight blocks the key"


#: Reasons to block a key after its rules have chosen an action.
BLOCKERS = frozenset({Reason.GUARD, Reason.DENIED, Reason.PREFLIGHT})


# --- guards, and which of them are overridden


class Guard(StrEnum):
    """A rule that refuses a plan, or blocks keys of it, unless `--allow` names it."""

    LOST_WORK = "lost-work"
    TERMINATIONS = "terminations"
    RERUNS = "reruns"
    FOUND_NOTHING = "found-nothing"
    EMPTY = "empty"
    BUDGET = "budget"


#: Guards that can be overridden for a key: `lost-work=KEY`.
BY_KEY = (Guard.LOST_WORK, Guard.RERUNS)


class Allowances(frozenset[str]):
    """The values of `--allow`: guards to override, as a whole or for a key (`lost-work=KEY`)."""

    @classmethod
    def of(cls, words: Iterable[str] = (), *, force: bool = False) -> Allowances:
        """Check the values; `force` adds all guards.

        Raises:
            ValueError: a value names no guard; the message lists them.
        """
        words = [*words, *((guard.value for guard in Guard) if force else ())]
        for word in words:
            name, equals, key = word.partition("=")
            if name not in list(Guard):
                from difflib import get_close_matches

                near = get_close_matches(name, list(Guard), n=1)
                hint = f'; did you mean "{near[0]}"?' if near else ""
                raise ValueError(f'"{word}" is not one of {", ".join(Guard)}{hint}')
            if equals and not (name in BY_KEY and key):
                forms = " or ".join(f"{one.value}=KEY" for one in BY_KEY)
                raise ValueError(f'"{word}" takes no value; write the guard alone, or {forms}')
        return cls(words)

    @property
    def named_keys(self) -> frozenset[str]:
        return frozenset(key for word in self if (key := word.partition("=")[2]))

    def permits(self, guard: Guard, key: str = "", sweep: str | None = "") -> bool:
        """Whether a guard is overridden, as a whole, for the key or for its sweep."""
        return not self.isdisjoint({guard.value, f"{guard.value}={key}", f"{guard.value}={sweep or ''}"})


NO_ALLOWANCES = Allowances()
EVERY_GUARD = Allowances.of(force=True)


# --- actions


def internal(default: Any, description: str | None = None) -> Any:
    """Return a field that is not part of the document: it is for executing or showing a plan."""
    return Field(default, exclude=True, description=description)


class CodeChange(Frozen):
    """A file of a job's code that is not what it was in the code of the revision before."""

    path: str
    change: Literal["added", "changed", "removed"]
    size: int = Field(description="In bytes; the former size for a removed file.")
    old_size: int | None = internal(None)
    diff: tuple[str, ...] | None = internal(
        None, "Hunks of a unified diff, of a text file that is not large."
    )

    @property
    def words(self) -> str:
        """The file and how it changed: `train.py +14 -3`, `data.py new`."""
        if self.diff is not None:
            added, removed = (sum(line.startswith(sign) for line in self.diff) for sign in "+-")
            return f"{self.path} +{added} -{removed}"
        return self.path + {"added": " new", "removed": " removed"}.get(self.change, "")


def code_changes(before: Iterable[CodeFile], after: Iterable[CodeFile]) -> tuple[CodeChange, ...]:
    """Return the files that differ, in the order of their paths."""
    old, new = {file.path: file for file in before}, {file.path: file for file in after}

    def change(path: str) -> CodeChange:
        previous, current = old.get(path), new.get(path)
        if current is None:
            return CodeChange(path=path, change="removed", size=old[path].size, old_size=old[path].size)
        if previous is None:
            return CodeChange(path=path, change="added", size=current.size)
        return CodeChange(path=path, change="changed", size=current.size, old_size=previous.size)

    paths = sorted(old.keys() | new.keys())
    return tuple(change(path) for path in paths if old.get(path) != new.get(path))


def spell_code_changes(files: Sequence[CodeChange]) -> str:
    """Summarize the changed files: `2 files changed (train.py +14 -3, data.py new)`."""
    return f"{format_count(len(files), 'file')} changed ({name_files(files)})"


def name_files(files: Sequence[CodeChange]) -> str:
    """List the first few changed files: `train.py +14 -3, data.py new`."""
    return few([one.words for one in files], 5)


class PlannedCode(Frozen):
    """The code that a new job is started with.

    The fields after `upload_bytes` are what an upload needs; they are no part of `plan --json`.
    """

    digest: str = Field(description="sha256: and 64 hex digits.")
    files: tuple[CodeChange, ...] | None = Field(
        None, description="What changed; null: the code before is not known."
    )
    upload_bytes: int | None = Field(None, description="What apply would upload; null: it is not known.")

    before: str | None = internal(None, 'Digest of the code before, or how it begins; "": there is none.')
    upload_count: int | None = internal(None)
    name: str = internal("")
    store: str = internal("")
    source: str = internal("", "Relative to the directory of the root file.")
    exclude: tuple[str, ...] = internal(())
    include: tuple[str, ...] = internal(())
    max_size: int = internal(0)
    listed: tuple[tuple[str, int, str], ...] = internal(())

    @property
    def code(self) -> Code:
        files = tuple(CodeFile(*one) for one in self.listed)
        return Code(self.name, files, self.digest, self.source, self.exclude, self.include, self.max_size)


class Before(Frozen):
    """The job that is there."""

    id: str
    name: str
    revision: int
    phase: str
    digest: str


class After(Frozen):
    """The job that will be there."""

    name: str
    revision: int
    digest: str


class Cost(Frozen):
    """What is started, in node-hours and in money; null where it is unknown, or bounded by nothing."""

    node_hours_max: float | None = Field(None, description="At most, by auto_stop; null: unbounded.")
    node_hours_expected: float | None = Field(
        None, description="Median of the key's completed revisions; null: there are none."
    )
    cost_max: float | None = Field(None, description="Price of node_hours_max.")
    cost_expected: float | None = Field(None, description="Price of node_hours_expected.")
    currency: str | None = Field(None, description="Currency of the prices; null: the manifest has none.")


#: Fields that are reset if an action is not executed.
_CARRIED_OUT = (
    *("after", "desired", "declared", "replace_order", "elapsed", "nodes"),
    *("lost_node_hours", "lost_time", "cost", "ended_badly", "scheduled_for", "waits_for_jobs"),
    *("rerun_of", "rerun_of_key", "rerun_of_stack"),
    *("needs", "made_from", "max_parallel", "beside", "code"),
)


class PlannedAction(Frozen):
    """What to do about one key, and why.

    The fields after `timezone` are what apply needs to do it; they are no part of `plan --json`.
    """

    key: str = Field(description="Name of the job in the manifest.")
    action: Action = Field(description="Kind of action.")
    reason: Reason = Field(description="Reason, as a fixed word.")
    detail: str = Field("", description="Reason, in words.")
    blocked_action: Action | None = Field(
        None, description="What it would be if no guard, policy or pre-flight finding blocked the key."
    )
    blocked_by: tuple[str, ...] = Field(
        (), description="Names of the guard, of the policies, or the words for the findings that block it."
    )
    before: Before | None = Field(None, description="Job before the action; null for a create.")
    after: After | None = Field(None, description="Job after the action; null for a terminate.")
    changes: tuple[Change, ...] = Field((), description="Changed fields.")
    source: Source | None = Field(None, description="Location of the key in the manifest.")
    code: PlannedCode | None = Field(
        None, description="For create and replace: the code of the new job; null: it declares none."
    )
    elapsed: float | None = Field(
        None, description="Seconds that the job in `before` has run so far, if its work is at stake."
    )
    nodes: int | None = Field(None, description="Number of nodes that this work runs on.")
    lost_node_hours: float = Field(0.0, description="Node-hours of work that the action discards.")
    cost: Cost | None = Field(
        None,
        description="For create and replace, deferred and blocked ones included: what the new job costs.",
    )
    ended_badly: bool = Field(False, description="For keep: whether its job ended badly.")
    rerun_of: int | None = Field(
        None, description="For create: the completed revision whose work runs again; null: none does."
    )
    rerun_of_key: str | None = Field(
        None, description="Key of that revision, where the key seems to be renamed; null: this key."
    )
    rerun_of_stack: str | None = Field(
        None, description="Stack of that key, where it seems to come from another one; null: this stack."
    )
    scheduled_for: str | None = Field(
        None,
        description="For create and replace: the first time of the schedule since the key was last started; "
        "RFC 3339, UTC.",
    )
    next_run_at: str | None = Field(
        None, description="Next time of the key's schedule after created_at; RFC 3339, UTC."
    )
    timezone: str | None = Field(
        None, description="Time zone of the key's schedule; null: it has no schedule."
    )

    desired: dict[str, Any] | None = internal(None)
    replace_order: ReplaceOrder = internal("terminate_first")
    follows: str | None = internal(None, "Id of the ended revision before it.")
    waits_for_jobs: tuple[str, ...] = internal(
        (), "Ids of the key's other jobs, which have to end before the new one starts."
    )
    needs: tuple[str, ...] = internal((), "Keys that have to be settled when the new job starts.")
    made_from: dict[str, int] = internal(
        {}, "Revisions of other keys that wrote the numbered paths which the new job is sent."
    )
    max_parallel: int | None = internal(None, "How many members of its sweep may be active when it starts.")
    beside: tuple[str, ...] = internal((), "Those members that were active.")
    declared: Declared | None = internal(None, "What is declared, for the history.")
    formerly: str | None = internal(None, "Key that the job's marker still names.")
    former_stack: str | None = internal(None, "Stack that the job's marker still names.")
    former_keys: tuple[str, ...] = internal((), "Former names of the key.")
    aged_out_as: str | None = internal(
        None, "How the newest revision ended, if the service has forgotten it."
    )
    due_s: float | None = internal(None, "Time at which a deferred retry is due.")
    waits_for: tuple[str, ...] = internal((), "Needed keys that are not settled yet.")
    next_run: str = internal(
        "", "next_run_at for people, in the schedule's time zone, as seen from created_at."
    )
    lost_time: float | None = internal(
        None, "Where the end of a job was not requested explicitly: how long it may have run."
    )

    @property
    def traits(self) -> ActionTraits:
        return ACTIONS[self.action]

    @property
    def symbol(self) -> str:
        return symbol_of(self.action, self.replace_order)

    @property
    def job_id(self) -> str | None:
        """The id of the existing job; None for a create."""
        return self.before.id if self.before else None

    @property
    def needs_capacity(self) -> bool:
        """Whether it waits for actions that free capacity, as a `create_first` replace does, too."""
        frees_first = self.traits.stops_a_job and self.replace_order == "terminate_first"
        return self.traits.starts_a_job and not frees_first

    @property
    def frees_capacity(self) -> bool:
        """Whether actions that need capacity wait for it."""
        return self.traits.stops_a_job and not self.needs_capacity

    def without_effect(self, action: Action, reason: Reason, detail: str, **more: Any) -> PlannedAction:
        """Return an action that does nothing about the key, without what would be sent, made or discarded."""
        update = {name: PlannedAction.model_fields[name].default for name in _CARRIED_OUT}
        update |= {"action": action, "reason": reason, "detail": detail, **more}
        return self.model_copy(update=update)

    def hold_back(self, action: Action, reason: Reason, cause: str, **more: Any) -> PlannedAction:
        """Hold the action back; the detail names the reason first, then what would be done."""
        why = "" if self.reason is Reason.NOT_FOUND else f": {self.detail}"
        return self.without_effect(action, reason, f"{cause} {self.action.value}{why}", **more)

    def block(self, reason: Reason, by: tuple[str, ...], detail: str) -> PlannedAction:
        """Block the action by a guard, a policy or pre-flight.

        What it would discard, cost and run again is kept for people; sums and guards do not count it.
        """
        names = ("elapsed", "nodes", "cost", "rerun_of", "rerun_of_key", "rerun_of_stack")
        more = {name: getattr(self, name) for name in names}
        more |= {"blocked_action": self.action, "blocked_by": by, "follows": None}
        return self.hold_back(Action.BLOCKED, reason, f"{detail}; blocks", **more)

    @property
    def rests_on(self) -> str | None:
        """The id of the existing job, or of the ended revision before the one that is created."""
        return self.job_id or self.follows

    @property
    def phase_before(self) -> str:
        """The phase of the key's latest revision, by the service or the history; "" without one."""
        return self.before.phase if self.before else self.aged_out_as or ""

    @property
    def explanation(self) -> str:
        """The detail, with amounts that grow with time, which `detail` never contains."""
        time = format_duration(self.elapsed or 0.0)
        nodes = "1 node" if self.nodes in (None, 1) else f"{self.nodes} nodes"
        if self.reason is Reason.WOULD_LOSE_WORK:
            return self.would_lose(f"{time} on {nodes}")
        parts = [self.detail]
        if self.rerun_of is not None:
            stack = f" of stack {self.rerun_of_stack}" if self.rerun_of_stack else ""
            whose = f" of {self.rerun_of_key} r{self.rerun_of}{stack}" if self.rerun_of_key else ""
            parts.append(f"runs finished work{whose} again")
        if self.lost_node_hours:
            parts.append(f"discards {time} of work on {nodes}")
        if self.reason in BLOCKERS and self.elapsed:
            parts.append(f"would discard {time} of work on {nodes}")
        if self.next_run:
            parts.append(f"next: {self.next_run}")
        return "; ".join(parts)

    def would_lose(self, work: str) -> str:
        """Insert the amount of work that would be lost before the way out of the conflict."""
        changed, found, way_out = self.detail.rpartition(LOSS_WAY_OUT)
        return f"{changed}; would lose {work}{found}{way_out}"

    @property
    def starts(self) -> str:
        """What a create starts, in one line; "" for other actions."""
        return summarize(self.desired) if self.action is Action.CREATE and self.desired else ""


class PreflightFinding(Frozen):
    """What the target would refuse of one job that a plan starts."""

    key: str = Field(description="Name of the job in the manifest.")
    reason: PreflightReason = Field(description="Reason, as a fixed word.")
    path: str = Field("", description="Field of the job, as in a manifest; empty for a quota.")
    detail: str = Field("", description="Reason, in words.")
    fix: str | None = Field(None, description="How to fix it, where that is known.")
    source: Source | None = Field(None, description="Location of the key in the manifest.")


#: Reasons to keep a key whose job ended badly.
BAD_ENDS = frozenset({Reason.FAILED, Reason.RETRIES_EXHAUSTED, Reason.TERMINATED_OUTSIDE})


class Plan(Head):
    """The actions for one stack on one target, sorted by key, then revision."""

    applyable: bool = Field(
        description="At least one action would be executed, and no guard refuses the whole plan."
    )
    complete: bool = Field(description="False when something could not be read.")
    summary: dict[Action, int] = Field(description="How many actions of each kind.")
    lost_node_hours: float = Field(0.0, description="Node-hours of work that the actions discard.")
    cost: Cost | None = Field(None, description="Sums of the costs; null in a sum: one of them is unknown.")
    actions: tuple[PlannedAction, ...] = Field(description="Sorted by key, then revision.")
    denied: tuple[Denial, ...] = Field((), description="Actions that policies deny, sorted by key.")
    preflight: tuple[PreflightFinding, ...] | None = Field(
        None, description="What the target would refuse, sorted by key; null: it was not asked."
    )
    warnings: tuple[PlanWarning, ...] = Field((), description="Warnings.")

    refusals: tuple[Diagnostic, ...] = internal(())
    declared: tuple[str, ...] = internal((), "Keys in the order of the manifest.")
    has_budget: bool = internal(False, "Whether node-hours or cost are limited.")
    history: tuple[tuple[str, Before], ...] = internal(
        (), "Ended jobs of older revisions and of keys no longer declared, each with its key."
    )

    def document(self) -> dict[str, Any]:
        """Return the plan as plain JSON data, as `plan --json` prints it, without secrets."""
        document = super().document()
        return {**document, "actions": [*map(without_unset, document["actions"])]}

    def exit_code(self, *, detailed: bool) -> ExitCode:
        """Return the exit code of `plan`: unknown, refused, changes (docs/reference/exit-codes.md).

        Only keys blocked by a guard, a policy or pre-flight count as refused; conflicts and other blocked
        keys do not.
        """
        if not self.complete:
            return ExitCode.UNKNOWN
        if self.refusals or self.blocked:
            return ExitCode.REFUSED
        return ExitCode.CHANGES if detailed and self.to_execute else ExitCode.DONE

    @property
    def to_execute(self) -> tuple[PlannedAction, ...]:
        return tuple(a for a in self.actions if a.traits.is_executed)

    @property
    def needing_attention(self) -> tuple[PlannedAction, ...]:
        """Keys in conflict or blocked, which apply skips and reports."""
        return tuple(a for a in self.actions if a.traits.needs_attention)

    @property
    def blocked(self) -> tuple[PlannedAction, ...]:
        """Actions blocked by a guard, a policy or pre-flight; all other keys are applied."""
        return tuple(a for a in self.actions if a.reason in BLOCKERS)

    @property
    def unknown(self) -> tuple[PlannedAction, ...]:
        return tuple(a for a in self.actions if a.action is Action.UNKNOWN)

    @property
    def reruns(self) -> tuple[PlannedAction, ...]:
        return tuple(a for a in self.actions if a.rerun_of is not None and a.traits.starts_a_job)

    @property
    def last_line(self) -> str:
        bad_ends = sum(action.ended_badly for action in self.actions)
        return last_line(self.summary, ended_badly=bad_ends, reruns=len(self.reruns))


#: Document fields that change with time even if the service does not.
GROWING = frozenset({"created_at", "elapsed", "lost_node_hours", "cost", "next_run_at"})


def without_unset(action: Mapping[str, Any]) -> dict[str, Any]:
    """Leave out an action's fields about schedules, and about what blocks it, if they are all unset."""
    unset = {
        name for names in (OF_SCHEDULES, OF_BLOCKED) if not any(map(action.get, names)) for name in names
    }
    return {name: value for name, value in action.items() if name not in unset}


def without_growing(document: Mapping[str, Any]) -> dict[str, Any]:
    """Leave out of a plan's document what grows with time: equal inputs give equal bytes."""
    actions = [
        {name: value for name, value in _without_start(action).items() if name not in GROWING}
        for action in document["actions"]
    ]
    return {name: value for name, value in document.items() if name not in GROWING} | {"actions": actions}


def _without_start(action: Mapping[str, Any]) -> Mapping[str, Any]:
    """Leave out the time from which a schedule counts, if the action writes one."""
    desired, changes = action.get("desired"), action.get("changes", ())
    if not desired or not any(change.get("path") == MARKER_SCHEDULE for change in changes):
        return action
    text, marker = parse_description(str(desired.get("description", "")))
    if marker is None or marker.schedule is None:
        return action
    timeless = marker._replace(schedule=marker.schedule._replace(since_s=None))
    return {**action, "desired": {**desired, "description": str(Description(text, timeless))}}


def lost_sum(actions: Iterable[PlannedAction]) -> float:
    return round(sum(action.lost_node_hours for action in actions), 6)


def count(actions: Iterable[PlannedAction]) -> dict[Action, int]:
    """Count the actions of each kind, in the order of the plan document."""
    summary = dict.fromkeys(Action, 0)
    for action in actions:
        summary[action.action] += 1
    return summary


def last_line(summary: dict[Action, int], *, ended_badly: int = 0, reruns: int = 0) -> str:
    """Return the last line of a plan, worded as in docs/reference/cli.md, "Text output"."""
    always = [f"{summary[a]} {t.summary}" for a, t in ACTIONS.items() if not t.is_skipped]
    more = [f"{summary[a]} {t.summary}" for a, t in ACTIONS.items() if t.is_skipped and summary[a]]
    if ended_badly:
        more.append(f"{ended_badly} kept although they ended badly")
    line = f"Plan: {', '.join(always)}." + (f" {', '.join(more)}." if more else "")
    return line + (f" {reruns} of them run finished work again." if reruns else "")


# --- the order of execution


def in_order(actions: Iterable[PlannedAction]) -> list[PlannedAction]:
    """Return the actions to execute, in the order in which they start; those of one key run one by one."""
    return sorted(
        (action for action in actions if action.traits.is_executed),
        # Terminates, updates, replaces that terminate first; then, as they need capacity, other starts.
        key=lambda one: (one.needs_capacity, one.traits.starts_a_job, not one.traits.stops_a_job),
    )


# --- words for people


def spell_work(hours: float) -> str:
    """Format node-hours, small amounts in node-minutes or node-seconds."""
    if hours >= 0.1:
        return f"{short_number(hours)} node-hours"
    seconds = round(hours * 3600)
    return f"{round(seconds / 60)} node-minutes" if seconds >= 120 else format_count(seconds, "node-second")
