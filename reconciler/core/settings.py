"""What a stack says of its targets, of drift, policies and notifications."""

from __future__ import annotations

import re
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, timedelta
from enum import StrEnum
from fnmatch import fnmatchcase
from typing import Annotated, Any, Literal, NamedTuple, Self, get_args
from urllib.parse import unquote

from pydantic import (
    AfterValidator,
    BeforeValidator,
    Field,
    GetJsonSchemaHandler,
    WithJsonSchema,
    model_validator,
)
from pydantic_core import PydanticCustomError

from reconciler.core.fields.field_types import Choice, Strict
from reconciler.errors import Diagnostic, Location


class TargetKind(NamedTuple):
    """What sort of place jobs live in.

    `module` has two functions, `open_target` and `identity_of`, see `modelarts.target.KindModule`; it is
    imported when a target of the kind is opened. `is_embedded` says that the jobs lie beside the root file,
    and the records with them; `has_address` that a target needs a region or an endpoint.
    """

    summary: str
    module: str
    is_embedded: bool = False
    has_address: bool = False


#: What only a target that has an address may say.
CLOUD_ONLY = ("region", "endpoint", "project_id", "cloud", "profile")

LOCAL = "local"
MODELARTS = "modelarts"

#: A new kind of target is a row here.
TARGET_KINDS: dict[str, TargetKind] = {
    LOCAL: TargetKind("local (the embedded emulator)", "reconciler.modelarts.local", is_embedded=True),
    MODELARTS: TargetKind("modelarts", "reconciler.modelarts.connect", has_address=True),
}


def _known(name: str) -> str:
    if name not in TARGET_KINDS:
        raise PydanticCustomError("enum", "must be one of {choices}", {"choices": tuple(TARGET_KINDS)})
    return name


class _Choices:
    @classmethod
    def __get_pydantic_json_schema__(cls, core: Any, handler: GetJsonSchemaHandler) -> dict[str, Any]:
        return {**handler(core), "enum": list(TARGET_KINDS)}


#: The name of a kind of target.
KindName = Annotated[str, AfterValidator(_known), _Choices]


# --- The section `drift` of a manifest: drift that is known, and for how long it is ignored

_DAY = re.compile(r"\d{4}-\d{2}-\d{2}")
#: The classes of drift that a rule may ignore: what could not be read is never taken for known.
IgnorableClass = Literal[
    "missing", "failed", "terminated", "missed", "modified", "duplicate", "orphaned", "unowned", "stuck"
]


def _day(value: Any) -> Any:
    if isinstance(value, str) and _DAY.fullmatch(value):
        with suppress(ValueError):
            return date.fromisoformat(value)
    raise PydanticCustomError("day", "must be a date such as 2026-12-31")


#: A day in the program, `2026-12-31` in a file.
Day = Annotated[
    date,
    BeforeValidator(_day),
    WithJsonSchema(
        {"type": "string", "pattern": r"^\d{4}-\d{2}-\d{2}$", "$comment": "a date such as 2026-12-31"}
    ),
]


class IgnoreEntry(Strict):
    """One entry under `drift.ignore`."""

    key: Annotated[str, Field(min_length=1)] = Field(
        description="Key, or glob over keys, declared or not.", examples=["lr-sweep-*"]
    )
    class_: IgnorableClass = Field(
        alias="class",
        description="Class of drift; unknown cannot be ignored.",
        examples=["failed"],
    )
    until: Day | None = Field(
        None,
        description="Last day on which it is ignored, in UTC; default: no end.",
        examples=["2026-12-31"],
    )
    reason: Annotated[str, Field(min_length=1)] = Field(
        description="Why it is known; shown with what it ignores.", examples=["known gap in the data"]
    )


class DriftSettings(Strict):
    """What a drift check does not count."""

    ignore: list[IgnoreEntry] = Field(
        default_factory=list,
        description="Drift that is known: listed in the report, and not counted.",
        examples=[[{"key": "lr-sweep-*", "class": "failed", "until": "2026-12-31", "reason": "known gap"}]],
    )


class IgnoreRule(NamedTuple):
    """A rule as it is asked. `key` is a glob, `until` the last day (UTC), `location` its place."""

    key: str
    class_: str
    reason: str
    until: date | None = None
    location: Location | None = None

    @classmethod
    def of(cls, entry: IgnoreEntry, location: Location | None = None) -> IgnoreRule:
        """Take over an entry of a manifest."""
        return cls(entry.key, entry.class_, entry.reason, entry.until, location)

    def matches(self, key: str, class_: str) -> bool:
        """Whether the rule is about a drift, expired or not."""
        return class_ == self.class_ and fnmatchcase(key, self.key)

    def has_expired(self, at_s: float) -> bool:
        """Whether its last day is over."""
        if self.until is None or self.until == date.max:
            return False
        end = datetime.combine(self.until + timedelta(days=1), datetime.min.time(), UTC)
        return at_s >= end.timestamp()


# --- A policy: an expression that warns of, or denies, what a plan would do

#: The kinds of actions that policies are asked about.
POLICY_ACTIONS = ("create", "update", "replace")


class Effect(StrEnum):
    """What follows if the expression of a policy is true."""

    DENY = "deny"
    WARN = "warn"


class PolicyEntry(Strict):
    """One entry under `policies`: exactly one of `deny` and `warn`."""

    choices = (Choice((Effect.DENY.value, Effect.WARN.value), is_required=True),)

    name: Annotated[str, Field(min_length=1, max_length=64)] = Field(
        description="Name of the policy; it is shown with what it denies.", examples=["eight-nodes-at-most"]
    )
    deny: Annotated[str | None, Field(min_length=1)] = Field(
        None,
        description="CEL expression over job, action, stack and target; true: the key is blocked.",
        examples=["job.spec.resource.node_count > 8"],
    )
    warn: Annotated[str | None, Field(min_length=1)] = Field(
        None,
        description="CEL expression over the same; true: the plan warns.",
        examples=['job.description == ""'],
    )
    message: str | None = Field(
        None,
        description="What people are told where the expression is true.",
        examples=["more than 8 nodes need the platform team"],
    )
    only: Annotated[list[Literal["create", "update", "replace"]] | None, Field(min_length=1)] = Field(
        None,
        description="Kinds of actions that it is asked about; default: all three.",
        examples=[["create", "replace"]],
    )

    @model_validator(mode="after")
    def _is_one(self) -> Self:
        self.check_choices()
        return self

    @property
    def effect(self) -> Effect:
        """Which of the two it is."""
        return Effect.WARN if self.deny is None else Effect.DENY


class Policy(NamedTuple):
    """A policy as it is asked. `only` are kinds of actions; `location` is the place of its expression."""

    name: str
    effect: Effect
    expression: str
    message: str = ""
    only: tuple[str, ...] = POLICY_ACTIONS
    location: Location | None = None

    @classmethod
    def of(cls, entry: PolicyEntry, location: Location | None = None) -> Policy:
        """Take over an entry of a manifest."""
        expression = entry.warn if entry.deny is None else entry.deny
        only = POLICY_ACTIONS if entry.only is None else tuple(entry.only)
        return cls(entry.name, entry.effect, expression or "", entry.message or "", only, location)


# --- notification_url

_DESKTOP = "shows messages on the desktop of this machine"
#: Schemes that are refused, and what their services do.
REFUSED_SCHEMES = {
    **dict.fromkeys(("dbus", "kde", "qt", "glib", "gio", "gnome", "windows"), _DESKTOP),
    "macosx": "runs a command on this machine",
    "blink1": "opens a device of this machine",
    "syslog": "writes the log of this machine",
    "vapid": "reads and writes files",
    "file": "names a file",
}
#: Parameters that are refused whatever the service, for they name a file.
FILE_PARAMETERS = frozenset(
    ("attach", "attachment", "file", "file_url", "keyfile", "subfile", "pgpkey", "pgppub", "pgpprv")
)
#: It names a file, unless the service has its templates itself and takes the id of one.
_TEMPLATE = "template"
TEMPLATES_BY_ID = frozenset(
    ("gupshup", "kaleyra", "klr", "notifyre", "onesignal", "sendgrid", "sendpulse", "whatsapp")
)
_SCHEME = re.compile(r"\s*([a-z0-9]{1,32})://", re.IGNORECASE)


def refused_url(url: str) -> str | None:
    """Why a notification must not be sent to a URL, without any secret of it; None if it may."""
    found = _SCHEME.match(url)
    scheme = found[1].lower() if found else ""
    if (does := REFUSED_SCHEMES.get(scheme)) is not None:
        return f"{scheme}:// {does}; notifications go to services on the network only"
    for name in _parameters(url):
        if name in FILE_PARAMETERS or (name == _TEMPLATE and scheme not in TEMPLATES_BY_ID):
            return f'the parameter "{name}" names a file'
    return None


def _parameters(url: str) -> list[str]:
    """The names of parameters, as Apprise reads them: a `+` at the beginning marks one of another kind."""
    names = (pair.partition("=")[0] for pair in re.split("[?&;]", url.partition("?")[2]))
    return [unquote(name[:1] + name[1:].replace("+", " ")).strip().lower() for name in names]


# --- The section `notify` of a manifest: where notifications of drift and of failed applies are sent

APPLY_FAILED = "apply_failed"
#: A key that could not be read is no drift, and shows in the exit code and the metrics.
NotifyClass = Literal[IgnorableClass, "apply_failed"]
NOTIFY_CLASSES: tuple[str, ...] = get_args(NotifyClass)


class NotifyEntry(Strict):
    """One entry under `notify`."""

    url: Annotated[str, Field(min_length=1)] = Field(
        description="An Apprise URL; it is a secret, and never shown.", examples=["${var.slack}"]
    )
    on: Annotated[list[NotifyClass] | None, Field(min_length=1)] = Field(
        None,
        description="What is sent there: classes of drift, and apply_failed; default: all.",
        examples=[["failed", "missing"]],
    )


@dataclass(frozen=True)
class Destination:
    """Where something is told: an entry of `notify` whose URL has its value.

    `url` is None where it has none: `problem` says why. `place` is where the manifest has the URL, and `path`
    its key path.
    """

    url: str | None = field(repr=False)
    on: frozenset[str] = frozenset(NOTIFY_CLASSES)
    place: Location | None = None
    path: str = "notify"
    problem: Diagnostic | None = None

    @property
    def name(self) -> str:
        """What it is called where the URL must not be seen."""
        return f"notify at {self.place}" if self.place else "notify"
