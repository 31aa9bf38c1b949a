"""The published JSON Schema of a manifest, and what an edit of each field of a job means."""

from __future__ import annotations

import re
from functools import cache
from typing import Any, NamedTuple

from reconciler.core.canonical import mutable_paths, rule_at, walk_rules
from reconciler.core.identity import KEY_PATTERN, STACK_PATTERN
from reconciler.core.lifecycle import Lifecycle
from reconciler.core.phase import Operation
from reconciler.core.scalar import AXIS_NAME, VARIABLE_NAME
from reconciler.core.settings import DriftSettings, IgnoreEntry, Manifest, NotifyEntry, PolicyEntry, Variable
from reconciler.core.stack import (
    NOT_IN_DEFAULTS,
    NOT_IN_TEMPLATES,
    CodeEntry,
    Effect,
    JobEntry,
    Limits,
    Prices,
    TargetEntry,
)

Schema = dict[str, Any]

DIALECT = "https://json-schema.org/draft/2020-12/schema"
_ENTRY: Schema = {"$ref": "#/$defs/JobEntry"}
_EXPRESSION: Schema = {"type": "string", "pattern": r"\$\{"}
_NULL: Schema = {"type": "null"}
_SCALAR: Schema = {"type": ["string", "number", "boolean"]}
_COMBINATION: Schema = {"type": "object", "minProperties": 1, "additionalProperties": _SCALAR}
_COMBINATIONS: Schema = {
    "anyOf": [{"type": "array", "items": {"anyOf": [_COMBINATION, _EXPRESSION]}}, _EXPRESSION]
}
#: Axes with at least one value, and the combinations that are added and removed.
_MATRIX: Schema = {
    "minProperties": 1,
    "propertyNames": {"pattern": f"^{AXIS_NAME}$"},
    "properties": {"include": _COMBINATIONS, "exclude": _COMBINATIONS},
    "additionalProperties": {"anyOf": [{"type": "array", "items": _SCALAR, "minItems": 1}, _EXPRESSION]},
}
_AS_WRITTEN = {item.__name__ for item in (Variable, Limits, Prices, PolicyEntry, NotifyEntry)}
_SECTIONS = {item.__name__ for item in (TargetEntry, DriftSettings, IgnoreEntry)} | _AS_WRITTEN


def manifest_schema() -> Schema:
    """Return the schema of a manifest file, which is deterministic.

    It describes every key and allows no others. Rules that involve several keys are left to `validate`.
    """
    schema = Manifest.model_json_schema()
    sections, definitions = schema["properties"], schema["$defs"]
    for name, definition in definitions.items():
        members = definition.get("properties", {})
        if name not in _SECTIONS:
            definition.pop("required", None)  # may be inherited
        for member, value in members.items():
            members[member] = _with_null(value) if name in _AS_WRITTEN else _with_expressions(value)
            if member in ("parameters", "inputs", "outputs"):
                item = members[member]["anyOf"][0]["items"]
                values = {"anyOf": [_SCALAR, *item["anyOf"]]}
                members[member]["anyOf"].append({"type": "object", "additionalProperties": values})
            elif member == "environments":
                members[member]["anyOf"] += [{"type": "object"}, {"type": "array"}]
    definitions["JobEntry"]["properties"]["matrix"]["anyOf"][0] |= _MATRIX
    one_of = [{"required": [effect], "properties": {effect: {"type": "string"}}} for effect in Effect]
    definitions["PolicyEntry"]["oneOf"] = one_of
    sections["stack"]["anyOf"][0]["pattern"] = f"^{STACK_PATTERN.pattern}$"
    sections["variables"]["propertyNames"] = {"pattern": f"^{VARIABLE_NAME}$"}
    not_a_revision = {"not": {"pattern": "-[rR][0-9]+$"}}
    sections["jobs"]["propertyNames"] = {"pattern": f"^{KEY_PATTERN.pattern}$", **not_a_revision}
    defaults = _ENTRY | {"properties": dict.fromkeys(NOT_IN_DEFAULTS, False)}
    sections["defaults"] |= defaults
    sections["templates"]["additionalProperties"] = _ENTRY | {
        "properties": dict.fromkeys(NOT_IN_TEMPLATES, False)
    }
    definitions["TargetEntry"]["properties"]["defaults"]["anyOf"][0] = defaults
    schema["properties"] = {name: _with_null(section) for name, section in sections.items()}
    return {"$schema": DIALECT, **schema}


def _with_null(schema: Schema) -> Schema:
    """Allow null for a key, which means that it is not set."""
    kept = {name: schema[name] for name in ("description", "default") if name in schema}
    options = schema.get("anyOf") or [{k: v for k, v in schema.items() if k not in (*kept, "title")}]
    return kept | {"anyOf": [*(item for item in options if item != _NULL), _NULL]}


def _with_expressions(schema: Schema) -> Schema:
    """Allow expressions, and null, which removes an inherited value, for a value and its items."""
    schema = _with_null(schema)
    for item in schema["anyOf"]:
        for name in ("items", "additionalProperties"):
            if isinstance(item.get(name), dict):
                item[name] = _with_expressions(item[name])
    schema["anyOf"].append(_EXPRESSION)
    return schema


# --- What an edit of a field means

_OF_MARKER = "update (the marker in the description)"
#: For fields that the service does not have.
_OWN = {
    "raw": "new job",
    "lifecycle.rerun": "new job",
    **dict.fromkeys(
        ("formerly", "lifecycle.protect", "lifecycle.schedule", "lifecycle.timezone"), _OF_MARKER
    ),
    "state": "absent terminates the job; present starts it again",
    "extends": "the same as of the fields it changes",
    **dict.fromkeys(("matrix", "name"), "jobs of new keys are created, those of removed keys terminated"),
    **dict.fromkeys(("lifecycle", "code"), "see its members"),
    **dict.fromkeys(("code.source", "code.exclude", "code.include"), "new job, if it changes the files"),
}


_PLACE = re.compile(r"\[\d*\]")


class EditedField(NamedTuple):
    """A field of an entry, by its path such as `algorithm.inputs[].name`."""

    path: str
    edit: str
    description: str


@cache
def fields() -> tuple[EditedField, ...]:
    """Every field of an entry: those of the create body, then the reconciler's own."""
    # Fields without a description only occur in responses.
    declared = [(path, rule.description) for path, rule in walk_rules() if rule.description]
    body = [EditedField(format_field(path), meaning(path), description) for path, description in declared]
    tops = {path.path for path in body}
    own = {name: field for name, field in JobEntry.model_fields.items() if name not in tops}
    for name, model in (("code", CodeEntry), ("lifecycle", Lifecycle)):
        own |= {f"{name}.{member}": field for member, field in model.model_fields.items()}
    decides = "nothing on the service; later plans use it"
    return (
        *body,
        *(EditedField(path, _OWN.get(path, decides), item.description or "") for path, item in own.items()),
    )


def find_fields(name: str) -> tuple[EditedField, ...]:
    """Return the field at a path, or if there is none, all fields whose paths end in it."""
    suffix = _PLACE.sub("", name)
    paths = {_PLACE.sub("", item.path): item for item in fields()}
    return (
        (paths[suffix],)
        if suffix in paths
        else tuple(item for path, item in paths.items() if path.endswith(f".{suffix}"))
    )


def format_field(path: tuple[str, ...]) -> str:
    """Format a path: `algorithm.inputs[].name`."""
    return ".".join(path).replace(".[]", "[]")


def meaning(path: tuple[str, ...]) -> str:
    """Return what an edit of the field means for an existing job."""
    above = [path[:length] for length in range(1, len(path) + 1)]
    update = next((rule_at(p).update for p in above if p in mutable_paths()), None)
    if update is None:
        below = any(path == p[: len(path)] for p in mutable_paths())
        return "see its members" if below else "new job"
    clouds = ", ".join(sorted(update.clouds))
    when = "" if update.operation is Operation.UPDATE_DESCRIPTION else ", while Pending"
    return f"update ({clouds}{when})"
