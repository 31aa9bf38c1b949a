"""Small values for every layer: a change, a warning, a source, a target, the head of a document.

They are part of published documents, so they are frozen models with a schema.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime
from enum import StrEnum
from typing import Annotated, Any, NamedTuple

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, WithJsonSchema
from pydantic_core import PydanticCustomError

from reconciler.errors import Location, limit_warnings
from reconciler.secrets import show

FORMAT_VERSION = "1.0"


#: The path of a change to the marker's schedule.
MARKER_SCHEDULE = "marker.schedule"
#: Members of an action that are only present if its key has a schedule.
OF_SCHEDULES = ("scheduled_for", "next_run_at", "timezone")
#: Members of an action that are only present if a guard, a policy or pre-flight blocks its key.
OF_BLOCKED = ("blocked_action", "blocked_by")


class Frozen(BaseModel):
    """A value that leaves the program."""

    model_config = ConfigDict(frozen=True, extra="forbid", hide_input_in_errors=True, defer_build=True)

    @classmethod
    def published_schema(cls) -> dict[str, Any]:
        """Return the JSON Schema of the document. It allows unknown members, which readers must ignore."""
        schema = cls.model_json_schema(mode="serialization")
        for model in (schema, *schema.get("$defs", {}).values()):
            model.pop("additionalProperties", None)
            if "required" in model:
                left_out = (*OF_SCHEDULES, *OF_BLOCKED)
                model["required"] = [name for name in model["required"] if name not in left_out]
        return {"$schema": "https://json-schema.org/draft/2020-12/schema", **schema}


class Change(Frozen):
    """One field with its value before and after; null where there was, or will be, none."""

    path: str = Field(description="Path of the field, as in a manifest.")
    before: Any = Field(None, description="Value last declared, or reported by the service.")
    after: Any = Field(None, description="Value declared now.")
    sensitive: bool = Field(False, description="Whether the values are masked.")
    forces_new_job: bool = Field(False, description="Whether changing it requires a new job.")


class Source(Frozen):
    """Where in the manifest the key stands; line and column count from 1."""

    file: str
    line: int
    column: int

    @classmethod
    def of(cls, location: Location | None) -> Source | None:
        return (
            None if location is None else cls(file=location.file, line=location.line, column=location.column)
        )


class TargetKind(NamedTuple):
    """A kind of target.

    `module` has the functions `open_target` and `identity_of` (see `modelarts.connect`); it is imported when
    a target of the kind is opened. `is_embedded`: jobs and records are stored beside the root file.
    `has_address`: a target needs a region or an endpoint. `note` is shown to users who look at its jobs.
    `takes_seconds`: `auto_stop` need not be whole hours. `settings` are members of a target that only some
    kinds have.
    """

    summary: str
    module: str
    is_embedded: bool = False
    has_address: bool = False
    note: str = ""
    takes_seconds: bool = False
    settings: tuple[str, ...] = ()


LOCAL = "local"
MODELARTS = "modelarts"
PROCESS = "process"

#: To add a kind of target, add a row.
TARGET_KINDS: dict[str, TargetKind] = {
    LOCAL: TargetKind(
        "local (the embedded emulator)",
        "reconciler.modelarts.local",
        is_embedded=True,
        note="emulator: jobs are pretended",
    ),
    PROCESS: TargetKind(
        "process (processes of this machine)",
        "reconciler.processes.target",
        is_embedded=True,
        note="this machine: flavor, pool and engine have no effect",
        takes_seconds=True,
        settings=("python", "storage", "slots", "environment", "install_requirements", "images", "keep"),
    ),
    MODELARTS: TargetKind(
        "modelarts",
        "reconciler.modelarts.connect",
        has_address=True,
        settings=("region", "endpoint", "project_id", "cloud", "profile"),
    ),
}


def _known(name: str) -> str:
    if name not in TARGET_KINDS:
        raise PydanticCustomError("enum", "must be one of {choices}", {"choices": tuple(TARGET_KINDS)})
    return name


#: The name of a kind of target.
KindName = Annotated[
    str, AfterValidator(_known), WithJsonSchema({"type": "string", "enum": list(TARGET_KINDS)})
]


class TargetIdentity(Frozen):
    """Where the jobs live. Its identity is endpoint host, project and workspace, never its name."""

    name: str
    kind: KindName
    endpoint: str
    project_id: str
    workspace_id: str

    @property
    def about(self) -> str:
        """The kind and place of the target, for people."""
        kind = TARGET_KINDS[self.kind]
        about = kind.note or self.kind
        return about if kind.is_embedded else f"{about}, {self.endpoint}, project {self.project_id}"


class Denial(Frozen):
    """What a policy does not let pass: one action of a plan."""

    key: str = Field(description="Name of the job in the manifest.")
    policy: str = Field(description="Name of the policy.")
    message: str = Field("", description="Message of the policy.")
    problem: str | None = Field(
        None, description="Why the expression could not be evaluated; null: it is true."
    )
    source: Source | None = Field(None, description="Location of the expression in the manifest.")

    @property
    def explanation(self) -> str:
        if self.problem is None:
            return self.message or "its expression is true"
        about = f" ({self.message})" if self.message else ""
        return f"the expression could not be evaluated: {self.problem}{about}"


class PlanWarning(Frozen):
    """Something that does not stop the plan, and that a person should know."""

    what: str
    why: str = ""
    fix: str | None = None
    key: str | None = None


def fold_similar_warnings(warnings: Iterable[PlanWarning]) -> tuple[PlanWarning, ...]:
    """Keep `MAX_SIMILAR` warnings of each `what`, and add one that counts the rest."""
    return limit_warnings(warnings, lambda what, why: PlanWarning(what=what, why=why))


class Head(Frozen):
    """What every document about a stack on a target begins with."""

    format_version: str = Field(
        FORMAT_VERSION, pattern=r"^\d+\.\d+$", description="Version of the document format."
    )
    reconciler_version: str = Field(description="Version of reconciler that created it.")
    created_at: str = Field(description="RFC 3339, UTC.")
    stack: str = Field(description="Name of the stack.")
    target: TargetIdentity = Field(description="Where the jobs live.")
    manifest_digest: str = Field(description="Digest over the files of the stack.")

    def document(self) -> dict[str, Any]:
        """Return the value as plain JSON data, as in `-o json`, without secrets."""
        document: dict[str, Any] = show(self.model_dump(mode="json", by_alias=True))
        return document


def node_hours(elapsed_s: float | None, nodes: int | None) -> float:
    """Return the work of a job that has run for `elapsed_s` on `nodes`, in node-hours."""
    # A plan file may contain numbers that exceed the range of a float.
    return round((elapsed_s or 0.0) * min(nodes or 1, 2**53) / 3600, 6)


def timestamp(at_s: float) -> str:
    """Format seconds since 1970 as RFC 3339 in UTC, to the second, clamped to the calendar."""
    at_s = min(max(at_s, 0.0), 253_402_300_799.0)
    return datetime.fromtimestamp(at_s, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def timestamp_or_none(at_s: float | None) -> str | None:
    """Format a time; None if it is unknown."""
    return None if at_s is None else timestamp(at_s)


class PreflightReason(StrEnum):
    """Why a target would refuse a create: a closed list."""

    FLAVOR_NOT_OFFERED = "flavor_not_offered"
    TOO_MANY_NODES = "too_many_nodes"
    ENGINE_NOT_OFFERED = "engine_not_offered"
    POOL_REJECTED = "pool_rejected"
    QUOTA_EXCEEDED = "quota_exceeded"
    NEEDS_ITS_CONTAINER_IMAGE = "needs_its_container_image"

    @property
    def words(self) -> str:
        """The reason in words, which are the same for the same problem."""
        return self.value.replace("_", " ")


DENIED_BY_A_POLICY = "denied by a policy"
#: Diagnostics that repeat what the action of a key says.
SHOWN_WITH_ACTIONS = frozenset({DENIED_BY_A_POLICY, *(reason.words for reason in PreflightReason)})
