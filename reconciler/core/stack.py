"""A stack with its jobs, after its manifest files are merged, and the part of it that is in view."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, date, datetime, timedelta
from enum import StrEnum
from fnmatch import fnmatchcase
from typing import Annotated, Any, Literal, NamedTuple, Self

from pydantic import AfterValidator, BeforeValidator, Field, model_validator
from pydantic_core import PydanticCustomError

from reconciler.core.body import covered_by, digest_of, is_known, is_of_same_form
from reconciler.core.canonical import Canonical
from reconciler.core.code import Code, declared_form
from reconciler.core.fields.field_types import Cloud, Flag, Strict, Text, described, optional
from reconciler.core.fields.job import JobBody
from reconciler.core.identity import ScheduleMark
from reconciler.core.lifecycle import Duration, Lifecycle, Schedule
from reconciler.core.scalar import numbered
from reconciler.core.values import TARGET_KINDS, KindName, TargetKind
from reconciler.errors import Diagnostic, Location, WrongUsage
from reconciler.secrets import is_credential_name
from reconciler.text import few


def _as_list(value: Any) -> Any:
    if isinstance(value, str):
        return [value]
    if not isinstance(value, list | None):
        raise PydanticCustomError("keys_type", "must be a key or a list of keys")
    return value


Keys = Annotated[list[str], BeforeValidator(_as_list, json_schema_input_type=str | list[str])]


def _size(value: Any) -> Any:
    """Parse a size such as `100MB` into bytes; units are powers of ten."""
    match = re.fullmatch(r"(\d+)\s*(B|kB|KB|MB|GB)", value.strip()) if isinstance(value, str) else None
    if match is None:
        raise PydanticCustomError("size", "a size must be text such as 500kB, 100MB or 2GB")
    return int(match[1]) * {"B": 1, "KB": 10**3, "MB": 10**6, "GB": 10**9}[match[2].upper()]


Size = Annotated[int, BeforeValidator(_size, json_schema_input_type=str)]


class CodeEntry(Strict):
    """Which files are the code of a job."""

    source: str = described("Directory of the code, relative to the file that declares it.")
    exclude: list[str] = described("Files to leave out, in git's pattern language.", default_factory=list)
    include: list[str] = described(
        "Files to upload even if they would otherwise be left out.", default_factory=list
    )
    max_size: Size = optional(
        "Maximum size; at most 5GB.",
        default=100_000_000,
        le=5_000_000_000,
        json_schema_extra={"default": "100MB"},
    )


class JobEntry(JobBody):
    """One entry under `jobs`: the create body, and what is the reconciler's own."""

    matrix: dict[str, Any] | None = optional(
        "Axes of a sweep, each a list of values: one job for each combination of them."
    )
    code: CodeEntry | None = optional("The code of the job, uploaded under a digest of its content.")
    name: str | None = optional("Pattern of the keys of a sweep, with every axis, e.g. s-${matrix.lr}.")
    max_parallel: int | None = optional("How many members of a sweep may be active at once.", ge=1)
    lifecycle: Lifecycle = described("When to replace, retry or protect the job.", default_factory=Lifecycle)
    state: Literal["present", "absent"] = optional("absent: the job must not run.", default="present")
    targets: Keys | None = optional("The only targets on which the job is declared; default: all.")
    extends: Keys | None = optional("Templates to inherit from; later ones take precedence.")
    needs: Keys | None = optional("Keys of jobs that must complete before this one starts.")
    formerly: Keys | None = optional("Former keys of the job; their revisions count as its own.")
    raw: dict[str, Any] | None = optional(
        "Merged into the create body last, for fields that reconciler does not know."
    )


#: Keys that are only valid below a single job, and what they mean there.
NOT_IN_DEFAULTS = {
    "matrix": "the members of one entry",
    "name": "how the members of one entry are named",
    "max_parallel": "how many members of one entry are active at once",
    "targets": "on which targets one job is declared",
    "extends": "what one entry builds on",
    "needs": "what one job waits for",
    "formerly": "the former keys of one job",
}
#: The same for `templates`.
NOT_IN_TEMPLATES = {name: NOT_IN_DEFAULTS[name] for name in ("matrix", "name", "max_parallel", "formerly")}


def _not_a_credential(name: str) -> str:
    if is_credential_name(name):
        raise PydanticCustomError("credential", "{name} holds a credential", {"name": name})
    return name


#: An environment variable that a manifest may name: none of reconciler's own credentials.
EnvName = Annotated[str, AfterValidator(_not_a_credential)]


class ProcessEnvironment(Strict):
    """What processes get of the variables of the caller."""

    inherit: list[EnvName] = described("Names of the variables passed to a job; credentials are not allowed.")


class Target(Strict):
    """Where the jobs live. Its identity is endpoint host, project and workspace, never its name."""

    kind: KindName = described(" or ".join(kind.summary for kind in TARGET_KINDS.values()) + ".")
    region: str | None = optional("Region of Huawei Cloud, e.g. cn-north-4.")
    endpoint: str | None = optional("URL of the service, for any cloud including private ones.")
    project_id: str | None = optional(
        "Project id; default: HUAWEICLOUD_SDK_PROJECT_ID, OS_PROJECT_ID, or that of the credentials."
    )
    workspace_id: Text = optional('Workspace; "0" is the default one.', default="0")
    cloud: Annotated[Cloud | None, Field(strict=False)] = optional(
        "huawei or otc; default: otc on that cloud's hosts, else huawei."
    )
    profile: str | None = optional("Section of the credentials file.")
    code_store: str | None = optional(
        "Where code is uploaded to: obs://BUCKET/PREFIX/; default: that of the stack."
    )
    obs_endpoint: str | None = optional("URL of the object store; default: that of the region.")
    iam_endpoint: str | None = optional(
        "URL of IAM, for keys to the object store; default: OS_AUTH_URL's host."
    )
    insecure: Flag = optional("Allow plain http to an address other than this machine.", default=False)

    # Only for targets of kind process.
    python: str | None = optional(
        "Interpreter of preset engines, relative to the root file; default: the one that runs reconciler."
    )
    storage: str | dict[str, str] | None = optional(
        "Where obs:// paths are stored: a directory, or directories by prefix; default: .reconciler/obs."
    )
    slots: int | None = optional("How many jobs run at once; default: 1.", ge=1)
    environment: ProcessEnvironment | None = optional(
        "Variables of the caller passed to jobs; default: a short list without credentials."
    )
    install_requirements: Flag = optional(
        "Install the requirements file in the code of a job.", default=False
    )
    images: Literal["host"] | None = optional("host: run the commands of images on this machine.")
    keep: int | None = optional("How many ended jobs keep their files; default: 20.", ge=0)

    @property
    def traits(self) -> TargetKind:
        return TARGET_KINDS[self.kind]

    @property
    def code_address(self) -> str:
        """Where code is uploaded: `code_store`, or for an embedded target a place beside its jobs; or ""."""
        return self.code_store or ("obs://local/code/" if self.traits.is_embedded else "")


class TargetEntry(Target):
    """One entry under `targets`: where the jobs live, and what differs there."""

    variables: dict[str, Any] = described(
        "Values of variables on this target; they may hold ${env.X} and other variables.",
        default_factory=dict,
    )
    defaults: dict[str, Any] = described(
        "Merged over the stack's defaults on this target.", default_factory=dict
    )


class Limits(Strict):
    """What a plan may do without --allow."""

    terminations: int = described("Fewer terminations than this are always allowed.", default=5, ge=1)
    terminations_percent: float = described(
        "A smaller percentage of the active jobs is always allowed.", default=30, ge=0, le=100
    )
    lost_time: Duration = optional(
        "A job that has run longer is not replaced without confirmation.",
        default=3600.0,
        json_schema_extra={"default": "1h"},
    )
    lost_node_hours: float = described(
        "Node-hours of running work that a plan may discard without confirmation.", default=24.0, ge=0
    )
    reruns: int = described("Fewer keys than this may run finished work again.", default=5, ge=1)
    reruns_percent: float = described(
        "A smaller percentage of the stack's keys may do so, too.", default=30, ge=0, le=100
    )

    node_hours: float | None = optional("Maximum node-hours of the jobs started by one apply.", ge=0)
    cost: float | None = optional(
        "Maximum cost of the jobs started by one apply, in the currency of the prices.", ge=0
    )


class Prices(Strict):
    """What compute costs, so that a plan can say what it would spend."""

    currency: str | None = optional("Currency of the prices, e.g. CNY.", min_length=1, max_length=16)
    node_hour: dict[str, Annotated[float, Field(ge=0)]] = described(
        "Price of one node for one hour, by flavor.", default_factory=dict
    )

    @model_validator(mode="after")
    def _has_currency(self) -> Self:
        if self.node_hour and self.currency is None:
            message = "currency is required where node_hour has prices"
            raise PydanticCustomError("rule", "{message}", {"message": message})
        return self


NO_PRICES = Prices()


#: The keys of a manifest.
SECTIONS = (
    "apiVersion", "stack", "target", "include", "targets", "variables", "limits", "records", "prices",
    "policies", "drift", "notify", "code_store", "defaults", "templates", "jobs",
)  # fmt: skip


@dataclass(frozen=True)
class DesiredJob:
    """One entry after variables and defaults are expanded.

    `body` is the create body without `metadata.name`, `metadata.workspace_id` and description; secrets in it
    are `SecretText`. It is None for an entry with `state: absent` and nothing else. `description` is the
    user's text, without marker. `needs` are keys that must be settled before this one starts, `formerly` keys
    whose revisions count as this one's. `sweep` is the entry whose `matrix` it is a member of, `matrix` its
    values there as spelled in keys, and `max_parallel` the number of members that may be active at once
    (None: any). `is_numbered`: a text of it contains the revision number.
    """

    key: str
    body: Mapping[str, Any] | None
    digest: str
    description: str = ""
    lifecycle: Lifecycle = field(default_factory=Lifecycle)
    is_absent: bool = False
    needs: tuple[str, ...] = ()
    formerly: tuple[str, ...] = ()
    location: Location | None = None
    sweep: str | None = None
    matrix: Mapping[str, str] = field(default_factory=dict)
    max_parallel: int | None = None
    is_numbered: bool = False
    code: Code | None = None
    code_store: str = ""

    def numbered(self, number: object, completed: Callable[[str], object]) -> DesiredJob:
        """Return the entry with the numbers of one revision filled in. The digest covers the expressions."""
        if not self.is_numbered:
            return self
        body, description = (numbered(one, number, completed) for one in (self.body, self.description))
        return replace(self, body=body, description=description)

    @property
    def schedule(self) -> Schedule | None:
        cron = self.lifecycle.schedule
        if cron is None:
            return None
        return Schedule(cron, self.lifecycle.timezone, self.lifecycle.starting_deadline)

    @property
    def schedule_mark(self) -> ScheduleMark | None:
        """The schedule for the marker of a new job: it counts from the creation of the job."""
        return None if self.schedule is None else ScheduleMark(self.schedule.digest)

    def renewed_schedule_mark(self, marked: ScheduleMark | None, at_s: float) -> ScheduleMark | None:
        """Return the schedule for the marker of an existing job: a different one counts from `at_s`."""
        declared = self.schedule_mark
        if declared is None or (marked is not None and marked.digest == declared.digest):
            return marked if declared else None
        return declared.counting_from(at_s)

    def schedule_counts_from(self, marked: ScheduleMark | None) -> float | None:
        """Return the time from which a marker's schedule counts; None if it has none, or another one.

        It may be earlier than the creation of the job; only later times count.
        """
        declared = self.schedule_mark
        if declared is None or marked is None or marked.digest != declared.digest:
            return None
        return 0.0 if marked.since_s is None else float(marked.since_s)

    @property
    def edits_wait(self) -> bool:
        return self.schedule is not None and self.lifecycle.on_change is None

    def covered_by(self, letter: str) -> Canonical:
        """Return what a digest with that letter covers of the declaration."""
        form = covered_by(letter, self.body or {}, self.lifecycle.rerun)
        return form if self.code is None else declared_form(form, self.code.digest)

    def is_declared_by(self, digest: str) -> bool:
        """Whether a job with this digest in its marker was made from the current declaration.

        If another version computed the digest, the algorithm of its letter is used.
        """
        if is_of_same_form(digest, self.digest):
            return True
        letter = digest[:1]
        if not self.digest or letter == self.digest[:1] or not is_known(digest):
            return False
        return digest_of(self.covered_by(letter), letter) == digest


@dataclass(frozen=True)
class Declared:
    """What was declared for a revision, for the history. Secrets appear by name.

    `immutable` is what the digest covers, in canonical form; `mutable` the fields that can be changed on a
    job, except for those with a secret; `description` the text without marker. `commit` is the commit checked
    out around its code, followed by `-dirty` if the code differed from it.
    """

    immutable: Mapping[str, Any] = field(default_factory=dict)
    mutable: Mapping[str, Any] = field(default_factory=dict)
    description: str = ""
    protect: bool | None = None
    commit: str = ""


class Effect(StrEnum):
    """What follows if the expression of a policy is true."""

    DENY = "deny"
    WARN = "warn"


#: The kinds of actions that policies apply to.
POLICY_ACTIONS = ("create", "update", "replace")


class Policy(NamedTuple):
    """A policy. `only` are kinds of actions; `location` is that of its expression."""

    name: str
    effect: Effect
    expression: str
    message: str = ""
    only: tuple[str, ...] = POLICY_ACTIONS
    location: Location | None = None


class IgnoreRule(NamedTuple):
    """A rule for drift. `key` is a glob, `until` the last day (UTC), `location` that of the rule."""

    key: str
    class_: str
    reason: str
    until: date | None = None
    location: Location | None = None

    def matches(self, key: str, class_: str) -> bool:
        """Whether the rule matches this drift, expired or not."""
        return class_ == self.class_ and fnmatchcase(key, self.key)

    def has_expired(self, at_s: float) -> bool:
        """Whether its last day has passed."""
        if self.until is None or self.until == date.max:
            return False
        end = datetime.combine(self.until + timedelta(days=1), datetime.min.time(), UTC)
        return at_s >= end.timestamp()


@dataclass(frozen=True, eq=False, repr=False)
class Stack:
    """A stack, as the planner sees it.

    `jobs` are those in view, by key. `declared_keys` are all keys that any file of the stack declares as
    present. `is_partial`: PATH or `--only` leaves something out, so a key is not absent because it is not in
    view. `left_out` is the number of declared keys that `--only` leaves out, and `chosen` are the keys that
    it names, declared or not (None: all). `whole` are the jobs of all files, since needed jobs may be out of
    view. `elsewhere` has the targets of each entry that is only declared on other targets.
    """

    name: str
    jobs: Mapping[str, DesiredJob]
    declared_keys: frozenset[str]
    limits: Limits = field(default_factory=Limits)
    prices: Prices = NO_PRICES
    policies: tuple[Policy, ...] = ()
    ignored_drift: tuple[IgnoreRule, ...] = ()
    is_partial: bool = False
    left_out: int = 0
    chosen: frozenset[str] | None = None
    warnings: tuple[Diagnostic, ...] = ()
    whole: Mapping[str, DesiredJob] = field(default_factory=dict)
    elsewhere: Mapping[str, tuple[str, ...]] = field(default_factory=dict)

    def find(self, key: str) -> DesiredJob | None:
        """Return the entry of a key, in view or not."""
        return self.jobs.get(key) or self.whole.get(key)

    def named_by(self, name: str, known: Collection[str]) -> tuple[str, ...]:
        """Return the known keys for a name: the key itself, or all members of a sweep."""
        return tuple(key for key in dict.fromkeys((name, *self.members_of(name))) if key in known)

    def members_of(self, entry: str) -> tuple[str, ...]:
        """Return the keys of the members of a sweep, in view or not; none if it is not a sweep."""
        return tuple(job.key for job in self.whole.values() if job.sweep == entry)

    @property
    def former_keys(self) -> frozenset[str]:
        """All former keys of jobs."""
        return frozenset(old for job in (self.whole or self.jobs).values() for old in job.formerly)


# --- Partial views, by key or glob: `--only`, and the KEY arguments of `status`

_GLOB = frozenset("*?[")


#: Is called with the patterns that match nothing.
TakeUnmatched = Callable[[Iterable[str]], None]


def narrow(
    stack: Stack, only: Sequence[str], owned: Iterable[str], unmatched: TakeUnmatched | None = None
) -> Stack:
    """Return the stack with only the requested keys in view; without any, the stack as it is.

    A name selects a declared or an owned key, or all members of a sweep; a glob selects declared keys only.
    The former name of a key, which may still own its jobs, selects that key. What PATH leaves out stays out
    of view. Guards are not affected: they count over the whole stack. If the stack is one of several,
    `unmatched` is called with the names and globs that match nothing, and the view may be empty.

    Raises:
        WrongUsage: a name or glob matches nothing, and `unmatched` is None.
    """
    if not only:
        return stack
    # Users may name keys that are declared in view, or owned and neither declared nor renamed out of view.
    new_keys = {old: key for key, job in stack.jobs.items() for old in job.formerly}
    out_of_view = (stack.whole.keys() - stack.jobs.keys()) | (stack.former_keys - new_keys.keys())
    known = {*stack.jobs, *owned} - out_of_view
    chosen = frozenset(new_keys.get(key, key) for key in keys_of(stack, only, known, unmatched))
    jobs = {key: job for key, job in stack.jobs.items() if key in chosen}
    left_out = stack.left_out + len(stack.jobs) - len(jobs)
    return replace(stack, jobs=jobs, is_partial=True, left_out=left_out, chosen=chosen)


def matching_keys(stack: Stack, word: str, known: Collection[str]) -> frozenset[str]:
    """Return the keys that one word selects: a key, all members of a sweep, or the matches of a glob.

    A glob matches declared keys in view. `known` are the keys that may be named.
    """
    if is_glob(word):
        return frozenset(key for key in stack.jobs if fnmatchcase(key, word))
    return frozenset(stack.named_by(word, known))


def keys_of(
    stack: Stack,
    words: Iterable[str],
    known: Collection[str],
    unmatched: TakeUnmatched | None = None,
    *,
    declared_only: bool = False,
) -> frozenset[str]:
    """Return the keys that the words select; `unmatched` as for `narrow`, the last as for `unknown_key`.

    Raises:
        WrongUsage: a word selects none, and `unmatched` is None.
    """
    keys_by_word = {word: matching_keys(stack, word, known) for word in words}
    missing = [word for word, keys in keys_by_word.items() if not keys]
    if unmatched is not None:
        unmatched(missing)
    elif missing:
        raise WrongUsage(*(_no_match(stack, word, known, declared_only) for word in missing))
    return frozenset().union(*keys_by_word.values())


def is_glob(pattern: str) -> bool:
    """Whether the pattern is a glob over declared keys, and not one key."""
    return not _GLOB.isdisjoint(pattern)


def unknown_key(stack: Stack, key: str, known: Iterable[str], *, declared_only: bool = False) -> Diagnostic:
    """Return the error for a key that the stack does not have, with the nearest known key.

    With `declared_only` an owned key does not suffice.
    """
    what, members = "unknown key", stack.members_of(key)
    if hidden := next((one for one in (key, *members) if one in stack.whole and one not in stack.jobs), None):
        where = stack.whole[hidden].location
        why = f'PATH does not include "{key}"' + (f", which {where.file} declares" if where else "")
        return Diagnostic(what, why, "add its file to PATH")
    if targets := stack.elsewhere.get(key):
        why = f'"{key}" belongs to target {few(targets)} only'
        return Diagnostic(what, why, f"add --target {targets[0]}")
    if members:
        why = f'"{key}" is a sweep of {len(members)} jobs, and one job is required'
        return Diagnostic(what, why, f"name one of them, e.g. {members[0]}")
    kind = "not a declared" if declared_only else "neither a declared nor an owned"
    return Diagnostic(what, f'"{key}" is {kind} key of stack {stack.name}', suggest_key(key, known))


def suggest_key(key: str, known: Iterable[str]) -> str | None:
    """Return a question that suggests the nearest known key, or None if none is similar."""
    from difflib import get_close_matches  # only for errors

    by_fold = {name.casefold(): name for name in sorted(known)}
    near = get_close_matches(key.casefold(), by_fold, n=1)
    return f'did you mean "{by_fold[near[0]]}"?' if near else None


def _no_match(stack: Stack, pattern: str, known: Iterable[str], declared_only: bool) -> Diagnostic:
    if is_glob(pattern):
        why = f'no declared key of stack {stack.name} matches "{pattern}"'
        fix = None if declared_only else "an owned key that is not declared must be given in full"
        return Diagnostic("no matching key", why, fix)
    return unknown_key(stack, pattern, known, declared_only=declared_only)


def check_keys(
    keys: Iterable[str], stack: Stack, owned: Iterable[str], unmatched: TakeUnmatched | None = None
) -> None:
    """Check that the stack has all these keys; `unmatched` as for `narrow`.

    Raises:
        WrongUsage: one is neither declared nor owned, and `unmatched` is None.
    """
    known = {*stack.whole, *stack.jobs, *stack.declared_keys, *owned}
    unknown = sorted(key for key in set(keys) if key not in known and not stack.members_of(key))
    if unmatched is not None:
        unmatched(unknown)
    elif unknown:
        raise WrongUsage(*(unknown_key(stack, key, known) for key in unknown))
