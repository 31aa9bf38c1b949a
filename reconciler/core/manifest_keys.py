"""The keys of the manifest language: of each its path, type, default, example, and what an edit means.

All of it is read off the schema and the marks on the models; nothing is said here a second time.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from functools import cache
from typing import Any, get_args

from pydantic import BaseModel

from reconciler.core.canonical import FieldRule, mutable_paths, rule_at
from reconciler.core.drift_rule import DriftSettings
from reconciler.core.fields.field_types import fields_of
from reconciler.core.fields.marks import Edit, SeeAlso
from reconciler.core.manifest_schema import manifest_schema
from reconciler.core.notify_entry import NotifyEntry
from reconciler.core.phase import Operation
from reconciler.core.policy import PolicyEntry
from reconciler.core.stack import JobEntry, Limits, Manifest, Prices, TargetEntry, Variable

Schema = Mapping[str, Any]

#: Where the keys of a section stand: below a name of the user's own, right below the section, or in a list.
_BELOW_A_NAME: Mapping[str, type[BaseModel]] = {"targets": TargetEntry, "variables": Variable}
_RIGHT_BELOW: Mapping[str, type[BaseModel]] = {"limits": Limits, "prices": Prices, "drift": DriftSettings}
_IN_A_LIST: Mapping[str, type[BaseModel]] = {"policies": PolicyEntry, "notify": NotifyEntry}
_NAME = "NAME"
#: What leads to a job, whose keys are named without it.
_JOBS = ("jobs", "templates")
_DEFAULTS = "defaults"
#: Where the fields of the service are described.
_SERVICE = 'docs/modelarts.md, "Create request"'
_FILES = 'docs/manifest.md, "A stack and its files"'


@dataclass(frozen=True)
class LanguageKey:
    """One key of the language. `path` begins at the manifest or at a job: `limits.lost_time`, `needs`."""

    path: str
    title: str
    description: str
    type: str
    limits: str
    default: Any
    example: Any
    edit: str
    see: str

    @property
    def has_default(self) -> bool:
        """Whether leaving the key out means a value."""
        return self.default is not None


class NoSuchKey(LookupError):
    """No key has that name, or several have; `candidates` are those, and `nearest` one that was meant."""

    def __init__(self, name: str, candidates: tuple[str, ...], nearest: str | None) -> None:
        self.name, self.candidates, self.nearest = name, candidates, nearest
        super().__init__(name)


@cache
def language_keys() -> tuple[LanguageKey, ...]:
    """Every key: those of the manifest, of its sections, then of a job."""
    schema = manifest_schema()
    walk = _SchemaWalk(schema["$defs"])
    keys: list[LanguageKey] = []
    for name, member in schema["properties"].items():
        inherited = walk.marks(Manifest, name, _Marks(Edit.OF_DECISION, _FILES))
        keys.append(walk.key((name,), member, inherited))
        if name in _BELOW_A_NAME:
            keys += walk.below((name, _NAME), _BELOW_A_NAME[name], inherited)
        elif name in _RIGHT_BELOW:
            keys += walk.below((name,), _RIGHT_BELOW[name], inherited)
        elif name in _IN_A_LIST:
            keys += walk.below((name, "[]"), _IN_A_LIST[name], inherited)
    keys += walk.below((), JobEntry, _Marks())
    return tuple(keys)


def find_key(name: str) -> LanguageKey:
    """The key that a path means, or the end of one if only one ends so.

    Raises:
        NoSuchKey: none does, or several do.
    """
    wanted = _steps(name)
    by_steps = {_steps(key.path): key for key in language_keys()}
    for steps in (wanted, _of_a_job(wanted)):
        if steps in by_steps:
            return by_steps[steps]
    ending = [key for steps, key in by_steps.items() if wanted and steps[-len(wanted) :] == wanted]
    if len(ending) == 1:
        return ending[0]
    raise NoSuchKey(name, tuple(key.path for key in ending), None if ending else _nearest(name))


def keys_below(key: LanguageKey) -> tuple[LanguageKey, ...]:
    """The keys below one, on every level."""
    beginnings = (f"{key.path}.", f"{key.path}[")
    return tuple(one for one in language_keys() if one.path.startswith(beginnings))


def _steps(path: str) -> tuple[str, ...]:
    """The steps of a path, with NAME for the user's own names; whether one leads into a list is left out."""
    steps = tuple(step.partition("[")[0] for step in path.split("."))
    return (steps[0], _NAME, *steps[2:]) if steps[0] in _BELOW_A_NAME and len(steps) > 1 else steps


def _of_a_job(steps: tuple[str, ...]) -> tuple[str, ...]:
    """The steps from the job on, of a path that leads to a job."""
    if steps[0] in _JOBS:
        return steps[2:]
    return steps[steps.index(_DEFAULTS) + 1 :] if _DEFAULTS in steps else steps


def _nearest(name: str) -> str | None:
    paths = [key.path for key in language_keys()]
    if found := get_close_matches(name, paths, n=1):
        return found[0]
    by_last = {path.rpartition(".")[2].lower(): path for path in reversed(paths)}
    found = get_close_matches(name.rpartition(".")[2].lower(), by_last, n=1)
    return by_last[found[0]] if found else None


@dataclass(frozen=True)
class _Marks:
    """What is said of a key and of those below it, unless they say otherwise."""

    edit: Edit | None = None
    see: str = _SERVICE


@dataclass(frozen=True)
class _SchemaWalk:
    definitions: Mapping[str, Schema]

    def below(
        self, path: tuple[str, ...], model: type[BaseModel], inherited: _Marks
    ) -> Iterator[LanguageKey]:
        """The keys of a model, and those below them."""
        yield from self._members(path, self.definitions[model.__name__], model, inherited)

    def _members(
        self, path: tuple[str, ...], owner: Schema, model: type[BaseModel] | None, inherited: _Marks
    ) -> Iterator[LanguageKey]:
        for name, schema in owner["properties"].items():
            if not isinstance(schema, Mapping):
                continue
            marks = self.marks(model, name, inherited)
            yield self.key((*path, name), schema, marks)
            for steps, inner in self._objects(schema):
                yield from self._members((*path, name, *steps), inner, _model_of(model, name), marks)

    def marks(self, model: type[BaseModel] | None, name: str, inherited: _Marks) -> _Marks:
        """The marks on the line of a field, and what it inherits."""
        field = fields_of(model).get(name) if model else None
        metadata = field.metadata if field else []
        edit = next((one for one in metadata if isinstance(one, Edit)), inherited.edit)
        see = next((one.page for one in metadata if isinstance(one, SeeAlso)), inherited.see)
        return _Marks(edit, see)

    def key(self, path: tuple[str, ...], schema: Schema, marks: _Marks) -> LanguageKey:
        """What is known of one key."""
        options = list(self._options(schema))
        rule = None if marks.edit else rule_at(path)
        return LanguageKey(
            path=format_field(path),
            title=schema["title"],
            description=schema["description"],
            type=" or ".join(dict.fromkeys(map(self._type, options))),
            limits=", ".join(dict.fromkeys(limit for one in options for limit in _limits(one))),
            default=schema.get("default"),
            example=schema["examples"][0],
            edit=str(marks.edit) if rule is None else meaning(path, rule),
            see=marks.see,
        )

    def _options(self, schema: Schema) -> Iterator[Schema]:
        """What may stand there: one schema for each form, expressions and null aside."""
        if "anyOf" in schema:
            for one in schema["anyOf"]:
                yield from self._options(one)
        elif "$ref" in schema:
            name = schema["$ref"].removeprefix("#/$defs/")
            if "Expression" not in name:
                yield self.definitions[name]
        elif schema.get("type") != "null":
            yield schema

    def _objects(self, schema: Schema) -> Iterator[tuple[tuple[str, ...], Schema]]:
        """The objects with keys of the language that may stand at a place, and the steps to each."""
        for one in self._options(schema):
            if _has_keys(one):
                yield (), one
            elif one.get("type") == "array":
                yield from ((("[]",), inner) for inner in self._options(one["items"]) if _has_keys(inner))

    def _type(self, schema: Schema) -> str:
        if "enum" in schema or "const" in schema:
            return _choices(schema.get("enum", [schema.get("const")]))
        if "allOf" in schema and "type" not in schema:
            return "mapping"  # a job, or a part of one
        if schema.get("type") == "array":
            items = dict.fromkeys(map(self._type, self._options(schema["items"])))
            return f"list of {' or '.join(_PLURAL.get(one, one) for one in items)}" if items else "list"
        kinds = schema.get("type", [])
        names = [_TYPES[kind] for kind in ([kinds] if isinstance(kinds, str) else kinds) if kind != "null"]
        return " or ".join(names) or "any value"


def _choices(values: Sequence[Any]) -> str:
    choices = [yaml_text(one) for one in values]
    return choices[0] if len(choices) == 1 else f"one of {', '.join(choices)}"


def _model_of(model: type[BaseModel] | None, name: str) -> type[BaseModel] | None:
    """The model of a field's value, or of the items of its list."""
    field = fields_of(model).get(name) if model else None
    waiting: list[Any] = [field.annotation] if field else []
    for one in waiting:
        if isinstance(one, type) and issubclass(one, BaseModel):
            return one
        waiting += get_args(one)
    return None


def _has_keys(schema: Schema) -> bool:
    """Whether it is an object whose keys are the language's own."""
    return "properties" in schema and "additionalProperties" in schema


_TYPES = {
    "string": "text",
    "number": "number",
    "integer": "integer",
    "boolean": "true or false",
    "object": "mapping",
    "array": "list",
}
_PLURAL = {"text": "texts", "integer": "integers", "number": "numbers", "mapping": "mappings"}
_LIMITS = {
    "minimum": "at least {}",
    "exclusiveMinimum": "more than {}",
    "maximum": "at most {}",
    "maxLength": "at most {} characters",
    "maxItems": "at most {} items",
    "maxProperties": "at most {} members",
}


def _limits(schema: Schema) -> Iterator[str]:
    for name, words in _LIMITS.items():
        if name in schema:
            yield words.format(schema[name])
    if comment := schema.get("$comment"):
        yield comment
    elif "pattern" in schema:
        yield f"matches {schema['pattern']}"


def yaml_text(value: Any) -> str:
    """A value as YAML in one line: words are bare, all else is JSON, which is YAML."""
    if isinstance(value, str):
        return value if _BARE.fullmatch(value) and value not in _NOT_TEXT else json.dumps(value)
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{yaml_text(name)}: {yaml_text(one)}" for name, one in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(map(yaml_text, value)) + "]"
    return json.dumps(value)


_BARE = re.compile(r"[A-Za-z/][\w./-]*(?: [A-Za-z][\w./-]*)*|[a-z]+://[\w./-]+|(?:\d+[dhms])+")
_NOT_TEXT = frozenset({"true", "false", "null", "yes", "no", "on", "off"})


def format_field(path: tuple[str, ...]) -> str:
    """`algorithm.inputs[].name`."""
    return ".".join(path).replace(".[]", "[]")


def meaning(path: tuple[str, ...], rule: FieldRule) -> str:
    """What an edit of the field means for a job that exists."""
    above = [path[:length] for length in range(1, len(path) + 1)]
    update = next((rule_at(p).update for p in above if p in mutable_paths()), None)
    if update is None:
        below = any(path == p[: len(path)] for p in mutable_paths())
        return "see its members" if below else "new job"
    clouds = ", ".join(sorted(update.clouds))
    when = "" if update.operation is Operation.UPDATE_DESCRIPTION else ", while Pending"
    return f"update ({clouds}{when})"
