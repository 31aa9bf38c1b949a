"""The sections of a manifest: its variables, and its settings for drift, policies and notifications."""

from __future__ import annotations

import re
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import date
from typing import Annotated, Any, Literal, Self, get_args
from urllib.parse import unquote

from pydantic import BeforeValidator, model_validator
from pydantic_core import PydanticCustomError

from reconciler.core.fields.field_types import Choice, Exclusive, Flag, Strict, described, optional
from reconciler.core.stack import Effect, EnvName, JobEntry, Keys, Limits, Prices, TargetEntry
from reconciler.errors import Diagnostic, Location

# --- The section `drift`: known drift, and until when it is ignored

#: The classes of drift that a rule may ignore: not `unknown`, since the drift itself could not be read.
IgnorableClass = Literal[
    "missing", "failed", "terminated", "missed", "modified", "duplicate", "orphaned", "unowned", "stuck"
]


def _day(value: Any) -> Any:
    if isinstance(value, str) and re.fullmatch(r"\d{4}-\d{2}-\d{2}", value):
        with suppress(ValueError):
            return date.fromisoformat(value)
    raise PydanticCustomError("day", "must be a date such as 2026-12-31")


#: Written as `2026-12-31` in a manifest.
Day = Annotated[date, BeforeValidator(_day, json_schema_input_type=str)]


class IgnoreEntry(Strict):
    """One entry under `drift.ignore`."""

    key: str = described("Key, or glob over keys, declared or not.", min_length=1)
    class_: IgnorableClass = described("Class of drift; unknown cannot be ignored.", alias="class")
    until: Day | None = optional("Last day on which it is ignored, in UTC; default: no end.")
    reason: str = described("Why it is ignored; shown with the drift.", min_length=1)


class DriftSettings(Strict):
    """What a drift check does not count."""

    ignore: list[IgnoreEntry] = described(
        "Known drift: listed in the report, but not counted.", default_factory=list
    )


# --- A policy: an expression that denies an action, or warns of it


class PolicyEntry(Exclusive):
    """One entry under `policies`: exactly one of `deny` and `warn`."""

    choices = (Choice((Effect.DENY.value, Effect.WARN.value), is_required=True),)

    name: str = described("Name of the policy; it is shown with what it denies.", min_length=1, max_length=64)
    deny: str | None = optional(
        "CEL expression over job, action, stack and target; true: the key is blocked.", min_length=1
    )
    warn: str | None = optional("CEL expression over the same; true: the plan warns.", min_length=1)
    message: str | None = optional("Message shown where the expression is true.")
    only: list[Literal["create", "update", "replace"]] | None = optional(
        "Kinds of actions that it applies to; default: all three.", min_length=1
    )

    @property
    def effect(self) -> Effect:
        return Effect.WARN if self.deny is None else Effect.DENY

    @property
    def expression(self) -> str:
        return self.deny or self.warn or ""


# --- notification_url

_DESKTOP = "shows messages on the desktop of this machine"
#: Schemes that are refused, and why.
REFUSED_SCHEMES = {
    **dict.fromkeys(("dbus", "kde", "qt", "glib", "gio", "gnome", "windows"), _DESKTOP),
    "macosx": "runs a command on this machine",
    "blink1": "opens a device of this machine",
    "syslog": "writes the log of this machine",
    "vapid": "reads and writes files",
    "file": "names a file",
}
#: Parameters that are refused for any service, since they name a file.
FILE_PARAMETERS = frozenset(
    ("attach", "attachment", "file", "file_url", "keyfile", "subfile", "pgpkey", "pgppub", "pgpprv")
)
#: Also names a file, except for services that store templates and take the id of one.
_TEMPLATE = "template"
TEMPLATES_BY_ID = frozenset(
    ("gupshup", "kaleyra", "klr", "notifyre", "onesignal", "sendgrid", "sendpulse", "whatsapp")
)


def refused_url(url: str) -> str | None:
    """Return why notifications must not go to a URL, without its secrets; None if they may."""
    match = re.match(r"(?i)\s*([a-z0-9]{1,32})://", url)
    scheme = match[1].lower() if match else ""
    if (effect := REFUSED_SCHEMES.get(scheme)) is not None:
        return f"{scheme}:// {effect}; notifications go to services on the network only"
    # Parse like Apprise, where a leading `+` marks another kind of parameter.
    names = (pair.partition("=")[0] for pair in re.split("[?&;]", url.partition("?")[2]))
    for name in (unquote(one[:1] + one[1:].replace("+", " ")).strip().lower() for one in names):
        if name in FILE_PARAMETERS or (name == _TEMPLATE and scheme not in TEMPLATES_BY_ID):
            return f'the parameter "{name}" names a file'
    return None


# --- The section `notify`: where notifications of drift and of failed applies are sent

APPLY_FAILED = "apply_failed"
#: An unreadable key is not drift; the exit code and the metrics show it.
NotifyClass = Literal[IgnorableClass, "apply_failed"]
NOTIFY_CLASSES: tuple[str, ...] = get_args(NotifyClass)


class NotifyEntry(Strict):
    """One entry under `notify`."""

    url: str = described("An Apprise URL; it is a secret, and never shown.", min_length=1)
    on: list[NotifyClass] | None = optional(
        "Classes of drift, and apply_failed, that are sent there; default: all.", min_length=1
    )


@dataclass(frozen=True)
class Destination:
    """A destination of notifications: an entry of `notify`, with the value of its URL.

    `url` is None if it has none; `problem` says why. `place` is the location of the URL in the manifest, and
    `path` its key path.
    """

    url: str | None = field(repr=False)
    on: frozenset[str] = frozenset(NOTIFY_CLASSES)
    place: Location | None = None
    path: str = "notify"
    problem: Diagnostic | None = None

    @property
    def name(self) -> str:
        """A name for messages, since the URL must not be shown."""
        return f"notify at {self.place}" if self.place else "notify"


# --- The whole manifest, and its variables


#: The types of variables.
VariableType = Literal["string", "number", "bool", "list", "mapping"]


class Variable(Strict):
    """A value that is given from outside."""

    type: VariableType | None = optional(
        "Type of the value; default: the type of `default`, for values given as text."
    )
    default: Any = optional("Default value; it may hold ${env.X} and other variables.")
    allowed: list[Any] | None = optional("The values that are allowed.", min_length=1)
    description: str | None = optional("Description of the variable.")
    env: EnvName | None = optional(
        "Environment variable that holds the value; not one of reconciler's own credentials."
    )
    sensitive: Flag = optional("Never show the value.", default=False)


class VariableSource(Strict):
    """Where the value of a sensitive variable came from, so that it can be read again; one of the five."""

    env: EnvName | None = optional("Environment variable that held the value.")
    file: str | None = optional("File of values (--var-file) that gave it.")
    given: bool = optional("Given by --var.", default=False)
    default: bool = optional("Given in the manifest.", default=False)
    text: str | None = optional("Text in the manifest that uses other variables, as an expression.")

    @model_validator(mode="after")
    def _is_one(self) -> Self:
        texts = (self.env, self.file, self.text)
        if sum([*(text is not None for text in texts), self.given, self.default]) != 1:
            raise PydanticCustomError("rule", "one of env, file, given, default and text is required")
        return self


class Manifest(Strict):
    """One manifest file, or the merge of a stack's files."""

    apiVersion: Literal["reconciler/v1"] | None = optional("Version of the manifest format; may be omitted.")  # noqa: N815
    stack: str | None = optional("Name of the stack; in the root file only.")
    target: str | None = optional("Default target; may be omitted if there is only one.")
    include: Keys | None = optional(
        "Manifest files, as globs relative to the root file, which has this key; default: all below it."
    )
    targets: dict[str, TargetEntry] = described("Targets, by name.", default_factory=dict)
    variables: dict[str, Variable] = described("Input variables, by name.", default_factory=dict)
    limits: Limits = described("What a plan may do without confirmation.", default_factory=Limits)
    records: str | None = optional(
        "URL of the record store, postgresql://user@host/database or sqlite:///PATH; default: a file in "
        ".reconciler/ beside the root file."
    )
    code_store: str | None = optional(
        "Where the code of jobs is uploaded to: obs://BUCKET/PREFIX/; that of a target takes precedence."
    )
    prices: Prices = described("Prices of compute, for the costs that a plan shows.", default_factory=Prices)
    policies: list[PolicyEntry] = described(
        "Rules that deny what a plan would do, or warn of it.", default_factory=list
    )
    drift: DriftSettings = described("Settings of drift checks.", default_factory=DriftSettings)
    notify: list[NotifyEntry] = described(
        "Where notifications of drift and of failed applies are sent.", default_factory=list
    )
    defaults: dict[str, Any] = described("Defaults merged into every job of the stack.", default_factory=dict)
    templates: dict[str, Any] = described(
        "Jobs that are never created, by name; others inherit from them by extends.", default_factory=dict
    )
    jobs: dict[str, JobEntry] = described("The jobs, by key.", default_factory=dict)
