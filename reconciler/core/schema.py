"""The published JSON Schema of a manifest: its keys, with titles, defaults and examples."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from functools import cache
from itertools import combinations
from typing import Any, NamedTuple, get_args

from pydantic import BaseModel
from pydantic.json_schema import GenerateJsonSchema

from reconciler.core.addresses import STORES
from reconciler.core.body import RAW_FORBIDDEN
from reconciler.core.canonical import FieldRule, mutable_paths, rule_at
from reconciler.core.fields.field_types import Choice, Edit, SeeAlso, Strict, fields_of, type_of
from reconciler.core.identity import KEY_PATTERN, STACK_PATTERN, room_for_description
from reconciler.core.phase import Operation
from reconciler.core.scalar import AXIS_NAME, VARIABLE_NAME
from reconciler.core.settings import DriftSettings, Manifest, NotifyEntry, PolicyEntry, Variable
from reconciler.core.stack import NOT_IN_DEFAULTS, NOT_IN_TEMPLATES, JobEntry, Limits, Prices, TargetEntry
from reconciler.core.values import CLOUD_ONLY, TARGET_KINDS

Schema = dict[str, Any]

#: What begins a reference to a model.
_DEFS = "#/$defs/"
_ACRONYMS = {
    name.lower(): name
    for name in ("API", "CPU", "ID", "NFS", "OBS", "PFS", "SFT", "SSH", "SWR", "URL", "URN", "UUID")
}
_WORDS = re.compile(r"[A-Z]?[a-z0-9]+|[A-Z]+(?![a-z])")


def annotate(schema: Schema) -> Schema:
    """Return a schema with `$defs`, in which every property has a title and examples.

    A property that may be left out and whose model has no default has the default null.
    """
    definitions = schema["$defs"]
    for name, definition in definitions.items():
        definition.setdefault("title", title_of(name))
        definitions[name] = _ordered(definition)
    for _, owner, name in properties(schema):
        member = owner["properties"][name]
        member.setdefault("title", title_of(name))
        if "description" not in member:
            target = next(one["$ref"] for one in (member, *member.get("anyOf", ())) if "$ref" in one)
            member["description"] = definitions[target.removeprefix(_DEFS)]["description"]
        if name not in owner.get("required", ()):
            member.setdefault("default", None)
        if "examples" not in member:
            member["examples"] = [example_of(member, definitions)]
        owner["properties"][name] = _ordered(member)
    return _ordered(schema)


def title_of(name: str) -> str:
    """`pool_id` is "Pool ID", `matchFields` is "Match fields"."""
    words = [word.lower() for word in _WORDS.findall(name)]
    title = " ".join(_ACRONYMS.get(word, word) for word in words)
    return title[:1].upper() + title[1:]


def properties(node: Any, path: str = "") -> Iterator[tuple[str, Schema, str]]:
    """Yield each described property of a schema: where it stands, the object that has it, and its name."""
    if isinstance(node, list):
        for index, item in enumerate(node):
            yield from properties(item, f"{path}[{index}]")
    elif isinstance(node, dict):
        for key, value in node.items():
            if key in ("properties", "$defs", "patternProperties"):
                for name, member in value.items():
                    # One that people write, and no condition on another one.
                    if key == "properties" and "additionalProperties" in node:
                        yield f"{path}.{name}", node, name
                    yield from properties(member, f"{path}.{name}")
            elif key not in ("examples", "default", "allOf", "if", "then"):
                yield from properties(value, path)


def example_of(schema: Schema, definitions: dict[str, Schema]) -> Any:
    """A value that the schema takes: its own example, or one made of what it says."""
    if examples := schema.get("examples"):
        return examples[0]
    if "const" in schema or "enum" in schema:
        return schema.get("const", schema.get("enum", [None])[0])
    if "anyOf" in schema:
        return example_of(schema["anyOf"][0], definitions)
    if "$ref" in schema:
        definition = definitions[schema["$ref"].removeprefix(_DEFS)]
        members = definition["properties"]
        names = definition.get("required") or list(members)[:1]
        return {name: example_of(members[name], definitions) for name in names}
    if schema.get("type") == "array":
        return [example_of(schema["items"], definitions)]
    if schema.get("type") == "boolean":
        return schema.get("default") is not True
    raise ValueError(f"no example: {schema}")


_ORDER = ("$schema", "title", "description", "default", "examples")


def _ordered(schema: Schema) -> Schema:
    first = {name: schema[name] for name in _ORDER if name in schema}
    return first | {name: value for name, value in schema.items() if name not in first}


# --- manifest_schema

DIALECT = "https://json-schema.org/draft/2020-12/schema"


#: A URL may begin with an expression, or have one as its path.
_BEGINNINGS = (
    re.escape(scheme) + (":///." if kind.is_file else "://") for kind in STORES for scheme in kind.schemes
)
_RECORDS = rf"^(?:{'|'.join(_BEGINNINGS)}|[^:]*\$\{{)"
#: Text with an expression in it, and text that is one expression and keeps the type of its value.
_TEXT_WITH_EXPRESSION: Schema = {"$ref": "#/$defs/TextWithExpression"}
_EXPRESSION: Schema = {"$ref": "#/$defs/Expression"}
_NULL: Schema = {"type": "null"}
_NAMED_LISTS = {"parameters": "Parameter", "inputs": "Input", "outputs": "Output"}
_SCALAR: Schema = {"type": ["string", "number", "boolean"]}
#: What says nothing: a member that is one of these is not given.
_SAYS_NOTHING: Schema = {"enum": [None, "", []]}


def _whole(pattern: str) -> str:
    return f"^(?:{pattern})$"


_KEY: Schema = {
    "pattern": _whole(KEY_PATTERN.pattern),
    "not": {"pattern": "-[rR][0-9]+$"},
    "$comment": "1 to 58 letters, digits, _ and -, not ending in -r and digits",
}


def manifest_schema() -> dict[str, Any]:
    """Return the schema of one manifest file, the same at every call."""
    definitions = _definitions()
    job = {"$ref": "#/$defs/JobEntry"}
    sections: dict[str, Schema] = {
        "stack": {
            "type": "string",
            "pattern": _whole(STACK_PATTERN.pattern),
            "$comment": "1 to 32 characters of a-z, 0-9 and -, the first and last no -",
        },
        "targets": _section({"$ref": "#/$defs/TargetEntry"}, {"minLength": 1}),
        "variables": _section({"$ref": "#/$defs/Variable"}, {"pattern": _whole(VARIABLE_NAME)}),
        "limits": {"anyOf": [{"$ref": "#/$defs/Limits"}, _NULL]},
        "prices": {"anyOf": [{"$ref": "#/$defs/Prices"}, _NULL]},
        "policies": {"type": ["array", "null"], "items": {"$ref": "#/$defs/PolicyEntry"}},
        "drift": {"anyOf": [{"$ref": "#/$defs/DriftSettings"}, _NULL]},
        "notify": {"type": ["array", "null"], "items": {"$ref": "#/$defs/NotifyEntry"}},
        "records": {
            "type": ["string", "null"],
            "pattern": _RECORDS,
            "$comment": " or ".join(kind.form for kind in STORES),
        },
        "defaults": _defaults(),
        "templates": _section(_job_without(NOT_IN_TEMPLATES), {"minLength": 1}),
        "jobs": _section(job, _KEY),
    }
    manifest = _clean(Manifest.model_json_schema(schema_generator=_InOrder))["properties"]
    properties = {
        name: _about(member) | sections.get(name, _bare(member)) for name, member in manifest.items()
    }
    for name in ("targets", "variables", "limits", "prices", "drift", "defaults", "templates", "jobs"):
        properties[name]["default"] = {}
    for name in ("policies", "notify"):
        properties[name]["default"] = []
    return annotate(
        {
            "$schema": DIALECT,
            "title": "Manifest",
            "description": "Manifest of reconciler: one file of a stack.",
            "type": "object",
            "properties": properties,
            "additionalProperties": False,
            "$defs": definitions,
        }
    )


class _InOrder(GenerateJsonSchema):
    """Leaves the members of examples in the order in which they were written."""

    def sort(self, value: Schema, parent_key: str | None = None) -> Schema:
        """Return it as it is."""
        return value


def _section(member: Schema, names: Schema) -> Schema:
    return {"type": ["object", "null"], "propertyNames": names, "additionalProperties": member}


def _job_without(names: dict[str, str]) -> Schema:
    return {"allOf": [{"$ref": "#/$defs/JobEntry"}, {"properties": dict.fromkeys(names, False)}]}


def _defaults() -> Schema:
    return {"anyOf": [_job_without(NOT_IN_DEFAULTS), _NULL]}


def _definitions() -> dict[str, Schema]:
    """Every model below a manifest, by name; those in which expressions are expanded take them."""
    definitions: dict[str, Schema] = {
        "Expression": {
            "title": "Expression",
            "type": "string",
            "pattern": r"^\$\{[^{}]+\}$",
            "description": "One expression, such as ${var.NAME}; it keeps the type of its value.",
            "examples": ["${var.nodes}"],
        },
        "TextWithExpression": {
            "title": "Text with an expression",
            "type": "string",
            "pattern": r"(?:^|[^$])\$\{[^{}]+\}",
            "description": "Text that contains ${var.NAME}, ${env.NAME}, ${matrix.AXIS}, ${job.key} or "
            "${jobs.KEY.outputs.NAME}.",
            "examples": ["obs://${var.bucket}/code/"],
        },
    }
    expanded: tuple[type[Strict], ...] = (TargetEntry, JobEntry, DriftSettings)
    for model in expanded:
        for name, schema in _models(model).items():
            members = {member: _member(one) for member, one in schema.get("properties", {}).items()}
            definitions[name] = {**schema, "properties": members}
    definitions |= _models(Variable) | _models(Limits) | _models(Prices)
    definitions |= _models(PolicyEntry) | _models(NotifyEntry)
    entry = definitions["JobEntry"]["properties"]
    whole = _relax_required(definitions)
    for name in _reachable("JobEntry", definitions, through_lists=True) | {"JobEntry"}:
        _take_nulls(definitions[name])
    _add_choices(definitions, whole | {PolicyEntry.__name__})
    _add_mapping_forms(definitions)
    _add_target_rules(definitions["TargetEntry"])
    entry["description"] = _limited(entry["description"], maxLength=room_for_description("a", "a"))
    entry["lifecycle"]["default"] = {}
    entry["raw"] |= _raw()
    entry["extends"] |= _names({"type": "string", "minLength": 1})
    for name in ("needs", "formerly"):
        entry[name] |= _names({"type": "string", **_KEY})
    entry["matrix"] |= _matrix()
    return dict(sorted(definitions.items()))


def _models(model: type[BaseModel]) -> dict[str, Schema]:
    schema = _clean(model.model_json_schema(schema_generator=_InOrder))
    definitions: dict[str, Schema] = schema.pop("$defs", {})
    definitions[model.__name__] = schema
    choices = {name: definitions.pop(name) for name in list(definitions) if "enum" in definitions[name]}
    return {name: _inlined(definition, choices) for name, definition in definitions.items()}


def _clean(node: Any) -> Any:
    """Drop pydantic's titles, and spell the default of a duration as people write it."""
    if isinstance(node, list):
        return [_clean(item) for item in node]
    if not isinstance(node, dict):
        return node
    result: Schema = {}
    for name, value in node.items():
        if name in ("properties", "$defs"):
            result[name] = {member: _clean(schema) for member, schema in value.items()}
        elif name != "title":
            result[name] = _clean(value)
    if result.get("type") == "string" and isinstance(result.get("default"), float):
        seconds = result["default"]
        unit, size = ("h", 3600) if seconds % 3600 == 0 else ("m", 60) if seconds % 60 == 0 else ("s", 1)
        result["default"] = f"{seconds / size:g}{unit}"
    return result


_ABOUT = ("description", "default", "examples")


def _about(schema: Schema) -> Schema:
    return {name: schema[name] for name in _ABOUT if name in schema}


def _bare(schema: Schema) -> Schema:
    return {name: value for name, value in schema.items() if name not in _ABOUT}


def _inlined(node: Any, choices: dict[str, Schema]) -> Any:
    """Put the choices of an enumeration where they are used: an editor shows them better there."""
    if isinstance(node, list):
        return [_inlined(item, choices) for item in node]
    if not isinstance(node, dict):
        return node
    name = str(node.get("$ref", "")).removeprefix(_DEFS)
    if name in choices:
        return {**_bare(choices[name]), **{key: value for key, value in node.items() if key != "$ref"}}
    return {key: _inlined(value, choices) for key, value in node.items()}


def _member(schema: Schema) -> Schema:
    """Let one field, and each item of it, be an expression where it is not free text anyway."""
    options = _options(schema)
    own = [{**one, "items": _member(one["items"])} if one.get("type") == "array" else one for one in options]
    if {} not in own and {"type": "string"} not in own:
        is_text = any(one.get("type", "string") == "string" and "$ref" not in one for one in own)
        own.append(_TEXT_WITH_EXPRESSION if is_text else _EXPRESSION)
    return _about(schema) | (own[0] if len(own) == 1 else {"anyOf": own})


def _options(schema: Schema) -> list[Schema]:
    options: list[Schema] = schema.get("anyOf") or [_bare(schema)]
    return options


def _limited(schema: Schema, **limits: Any) -> Schema:
    """A text with limits that its model does not say; one with an expression may come to less."""
    options = [{**one, **limits} if one.get("type") == "string" else one for one in _options(schema)]
    return _about(schema) | {"anyOf": [*options, _TEXT_WITH_EXPRESSION]}


def _relax_required(definitions: dict[str, Schema]) -> set[str]:
    """Only members of plain lists are written as a whole; all else may come from `defaults`.

    Returns the names of the former.
    """
    inherited = _reachable("JobEntry", definitions, through_lists=False) | {"JobEntry"}
    whole = _reachable("JobEntry", definitions, through_lists=True) - inherited
    for name in inherited:
        if name in _NAMED_LISTS.values():
            definitions[name]["required"] = ["name"]
        else:
            definitions[name].pop("required", None)
    return whole


def _reachable(start: str, definitions: dict[str, Schema], *, through_lists: bool) -> set[str]:
    """The models below one; those of the lists that are keyed by name count as mappings."""
    met: set[str] = set()
    waiting = [start]
    while waiting:
        for name, schema in definitions[waiting.pop()].get("properties", {}).items():
            for below in _references(schema, through_lists or name in _NAMED_LISTS):
                if below not in met and "properties" in definitions[below]:
                    met.add(below)
                    waiting.append(below)
    return met


def _references(node: Any, through_lists: bool) -> Iterator[str]:
    if isinstance(node, list):
        for item in node:
            yield from _references(item, through_lists)
    elif isinstance(node, dict):
        if "$ref" in node:
            yield node["$ref"].removeprefix(_DEFS)
        for name, value in node.items():
            if name != "items" or through_lists:
                yield from _references(value, through_lists)


def _take_nulls(definition: Schema) -> None:
    """Let every member that is not required be null, which removes what is inherited."""
    for name, schema in definition["properties"].items():
        if name not in definition.get("required", ()):
            options = _options(schema)
            if _NULL not in options and {} not in options:
                definition["properties"][name] = _about(schema) | {"anyOf": [*options, _NULL]}


def _add_choices(definitions: dict[str, Schema], whole: set[str]) -> None:
    """Say of which members only one may be given, and one must be where nothing is inherited."""
    for model in _subclasses(Strict):
        definition = definitions.get(model.__name__)
        if definition is not None and model.choices:
            is_whole = model.__name__ in whole
            definition["allOf"] = [rule for choice in model.choices for rule in _choice(choice, is_whole)]


def _subclasses(model: type[Strict]) -> Iterator[type[Strict]]:
    for one in model.__subclasses__():
        yield one
        yield from _subclasses(one)


def _choice(choice: Choice, is_whole: bool) -> Iterator[Schema]:
    given = [{"required": [name], "properties": {name: {"not": _SAYS_NOTHING}}} for name in choice.members]
    if choice.is_required and is_whole:
        yield {"oneOf": given, "description": f"{choice.rule}."}
    else:
        for pair in combinations(given, 2):
            yield {"not": {"allOf": list(pair)}, "description": f"{choice.rule}."}


def _add_mapping_forms(definitions: dict[str, Schema]) -> None:
    for kind in _NAMED_LISTS.values():
        properties = {n: s for n, s in definitions[kind]["properties"].items() if n != "name"}
        definitions[f"{kind}Member"] = {
            "description": f"{definitions[kind]['description'].rstrip('.')}, below its name.",
            "type": "object",
            "properties": properties,
            "additionalProperties": False,
        }
    for definition in definitions.values():
        for name, schema in definition.get("properties", {}).items():
            if name in _NAMED_LISTS:
                schema["anyOf"].insert(0, _mapping_form(_NAMED_LISTS[name], definitions))
            elif name == "environments":
                _environments(schema)


def _mapping_form(kind: str, definitions: dict[str, Schema]) -> Schema:
    short: list[Schema] = [{"type": ["string", "number", "boolean", "null"]}]
    if kind != "Parameter":
        # What stands for `{remote: {obs: {obs_url: …}}}`; null takes the inherited one away.
        place = definitions["Obs" if kind == "Input" else "ObsTree"]["properties"]["obs_url"]
        short = [*(one for one in _options(place) if one != _NULL), _NULL]
    form: Schema = {
        "type": "object",
        "additionalProperties": {"anyOf": [*short, {"$ref": f"#/$defs/{kind}Member"}]},
    }
    name = definitions[kind]["properties"]["name"]
    if patterns := [one["pattern"] for one in (name, *name.get("anyOf", ())) if "pattern" in one]:
        form["propertyNames"] = {"pattern": patterns[0]}
    return form


def _environments(schema: Schema) -> None:
    """Values may say that they are sensitive, or be null to take one of `defaults` away.

    An item of the list is one variable with its name, or a mapping of variables.
    """
    mapping = next(option for option in schema["anyOf"] if option.get("type") == "object")
    pattern, value = next(iter(mapping["patternProperties"].items()))
    value = {**_SCALAR, **{name: limit for name, limit in value.items() if name != "anyOf"}}
    said: Schema = {
        "value": {
            "anyOf": [value, _TEXT_WITH_EXPRESSION, _NULL],
            "description": "The value.",
            "examples": ["INFO"],
        },
        "sensitive": {
            "anyOf": [{"type": "boolean"}, _EXPRESSION],
            "default": False,
            "description": "Never show the value.",
            "examples": [True],
        },
    }
    limit = {name: one for name, one in mapping["propertyNames"].items() if name == "maxLength"}
    name: Schema = {
        "anyOf": [{"type": "string", "pattern": pattern, **limit}, _TEXT_WITH_EXPRESSION],
        "description": "Name of the variable.",
        "examples": ["NCCL_DEBUG"],
    }
    member: Schema = {"type": "object", "additionalProperties": False}
    secret = member | {"properties": said, "required": ["value"]}
    item = member | {"properties": {"name": name, **said}, "required": ["name", "value"]}
    mapping["patternProperties"] = {pattern: {"anyOf": [value, _TEXT_WITH_EXPRESSION, secret, _NULL]}}
    mapping["additionalProperties"] = False
    is_item = {"required": ["name"], "anyOf": [{"required": ["value"]}, {"required": ["sensitive"]}]}
    items: Schema = {"anyOf": [item, mapping | {"not": is_item}]}
    schema["anyOf"].insert(1, {"type": "array", "maxItems": mapping["maxProperties"], "items": items})


def _add_target_rules(target: Schema) -> None:
    """What the kinds of target take, and which of them need an address."""
    rules = []
    for name, kind in TARGET_KINDS.items():
        applies = {"properties": {"kind": {"const": name}}, "required": ["kind"]}
        if kind.is_embedded:
            rules.append({"if": applies, "then": {"properties": dict.fromkeys(CLOUD_ONLY, _NULL)}})
        elif kind.has_address:
            given: list[Schema] = [
                {"required": [one], "properties": {one: {"type": "string", "minLength": 1}}}
                for one in ("region", "endpoint")
            ]
            rules.append({"if": applies, "then": {"anyOf": given}})
    target["allOf"] = rules
    members = target["properties"]
    members["variables"] = _about(members["variables"]) | _section({}, {"pattern": _whole(VARIABLE_NAME)})
    members["defaults"] = _about(members["defaults"]) | _defaults()
    for name in ("variables", "defaults"):
        members[name]["default"] = {}
    members["endpoint"] = _limited(
        members["endpoint"],
        pattern=r"^\s*[Hh][Tt][Tt][Pp][Ss]?://[^\s/?#@]+/*\s*$",
        **{"$comment": "a URL of a host, without path, query and password"},
    )
    id_of_workspace = {"type": "string", "pattern": "^(?:0|.{32})$", "$comment": "0 or 32 characters"}
    members["workspace_id"] = _about(members["workspace_id"]) | {"anyOf": [id_of_workspace, {"enum": [0]}]}
    members["workspace_id"]["anyOf"].append(_TEXT_WITH_EXPRESSION)


def _names(name: Schema) -> Schema:
    """One name, or a list of names."""
    one: Schema = {"anyOf": [name, _TEXT_WITH_EXPRESSION]}
    items: Schema = {"type": "array", "items": one}
    return {"anyOf": [name, _TEXT_WITH_EXPRESSION, items, _NULL]}


def _matrix() -> Schema:
    """Axes with their values; `include` and `exclude` list combinations."""
    value = {"type": ["string", "number", "boolean"]}
    names = {"pattern": _whole(AXIS_NAME)}
    combination: Schema = {
        "type": "object", "minProperties": 1, "propertyNames": names, "additionalProperties": value
    }  # fmt: skip
    combinations = {"type": "array", "items": {"anyOf": [combination, _EXPRESSION]}}
    axis: Schema = {"anyOf": [{"type": "array", "minItems": 1, "items": value}, _EXPRESSION]}
    of_combinations = {"anyOf": [combinations, _EXPRESSION]}
    include = {
        "description": "Combinations to add; one with the values of another adds its other values to that.",
        "default": [],
        "examples": [[{"lr": 0.5, "batch": 32}]],
    }
    exclude = {
        "description": "Combinations to leave out.",
        "default": [],
        "examples": [[{"lr": 0.1, "batch": 128}]],
    }
    form: Schema = {
        "type": "object",
        "minProperties": 1,
        "propertyNames": names,
        "properties": {"include": include | of_combinations, "exclude": exclude | of_combinations},
        "additionalProperties": axis,
    }
    return {"anyOf": [form, _EXPRESSION]}


def _raw() -> Schema:
    metadata = {"type": "object", "properties": dict.fromkeys(RAW_FORBIDDEN["metadata"], False)}
    form = {"type": "object", "properties": {"metadata": metadata, "status": False}}
    return {"anyOf": [form, _EXPRESSION, _NULL]}


# --- The keys of the manifest language: of each its path, type, default, example, and what an edit means

_SchemaView = Mapping[str, Any]

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
            keys += walk.members((name, _NAME), _BELOW_A_NAME[name], inherited)
        elif name in _RIGHT_BELOW:
            keys += walk.members((name,), _RIGHT_BELOW[name], inherited)
        elif name in _IN_A_LIST:
            keys += walk.members((name, "[]"), _IN_A_LIST[name], inherited)
    keys += walk.members((), JobEntry, _Marks())
    return tuple(keys)


def find_key(name: str) -> LanguageKey:
    """The key that a path means, or the end of one if only one ends so.

    Raises:
        NoSuchKey: none does, or several do.
    """
    wanted = _steps(name)
    by_steps = {_steps(key.path): key for key in language_keys()}
    of_a_job = wanted
    if wanted[0] in _JOBS:
        of_a_job = wanted[2:]
    elif _DEFAULTS in wanted:
        of_a_job = wanted[wanted.index(_DEFAULTS) + 1 :]
    for steps in (wanted, of_a_job):
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


def _nearest(name: str) -> str | None:
    paths = [key.path for key in language_keys()]
    if found := get_close_matches(name, paths, n=1):
        return found[0]
    by_last = {path.rpartition(".")[2].lower(): path for path in reversed(paths)}
    found = get_close_matches(name.rpartition(".")[2].lower(), by_last, n=1)
    return by_last[found[0]] if found else None


class _Marks(NamedTuple):
    """What is said of a key and of those below it, unless they say otherwise."""

    edit: Edit | None = None
    see: str = _SERVICE


@dataclass(frozen=True)
class _SchemaWalk:
    definitions: Mapping[str, _SchemaView]

    def members(
        self,
        path: tuple[str, ...],
        model: type[BaseModel] | None,
        inherited: _Marks,
        owner: _SchemaView | None = None,
    ) -> Iterator[LanguageKey]:
        """The keys of an object, or of a model, and those below them."""
        owner = owner or self.definitions[model.__name__ if model else ""]
        for name, schema in owner["properties"].items():
            if not isinstance(schema, Mapping):
                continue
            marks = self.marks(model, name, inherited)
            yield self.key((*path, name), schema, marks)
            for steps, inner in self._objects(schema):
                yield from self.members((*path, name, *steps), _model_of(model, name), marks, inner)

    def marks(self, model: type[BaseModel] | None, name: str, inherited: _Marks) -> _Marks:
        """The marks on the line of a field, and what it inherits."""
        field = fields_of(model).get(name) if model else None
        metadata = field.metadata if field else []
        edit = next((one for one in metadata if isinstance(one, Edit)), inherited.edit)
        see = next((str(one) for one in metadata if isinstance(one, SeeAlso)), inherited.see)
        return _Marks(edit, see)

    def key(self, path: tuple[str, ...], schema: _SchemaView, marks: _Marks) -> LanguageKey:
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

    def _options(self, schema: _SchemaView) -> Iterator[_SchemaView]:
        """What may stand there: one schema for each form, expressions and null aside."""
        if "anyOf" in schema:
            for one in schema["anyOf"]:
                yield from self._options(one)
        elif "$ref" in schema:
            name = schema["$ref"].removeprefix(_DEFS)
            if "Expression" not in name:
                yield self.definitions[name]
        elif schema.get("type") != "null":
            yield schema

    def _objects(self, schema: _SchemaView) -> Iterator[tuple[tuple[str, ...], _SchemaView]]:
        """The objects with keys of the language that may stand at a place, and the steps to each."""
        for one in self._options(schema):
            is_list = one.get("type") == "array"
            for inner in self._options(one["items"]) if is_list else (one,):
                if {"properties", "additionalProperties"} <= inner.keys():
                    yield ("[]",) if is_list else (), inner

    def _type(self, schema: _SchemaView) -> str:
        if "enum" in schema or "const" in schema:
            choices = [yaml_text(one) for one in schema.get("enum", [schema.get("const")])]
            return choices[0] if len(choices) == 1 else f"one of {', '.join(choices)}"
        if "allOf" in schema and "type" not in schema:
            return "mapping"  # a job, or a part of one
        if schema.get("type") == "array":
            items = dict.fromkeys(map(self._type, self._options(schema["items"])))
            return f"list of {' or '.join(_PLURAL.get(one, one) for one in items)}" if items else "list"
        kinds = schema.get("type", [])
        names = [_TYPES[kind] for kind in ([kinds] if isinstance(kinds, str) else kinds) if kind != "null"]
        return " or ".join(names) or "any value"


def _model_of(model: type[BaseModel] | None, name: str) -> type[BaseModel] | None:
    """The model of a field's value, or of the items of its list."""
    field = fields_of(model).get(name) if model else None
    waiting: list[Any] = [type_of(field)] if field else []
    for one in waiting:
        if isinstance(one, type) and issubclass(one, BaseModel):
            return one
        waiting += get_args(one)
    return None


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


def _limits(schema: _SchemaView) -> Iterator[str]:
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
