"""The published JSON Schema of a manifest: its keys, with titles, defaults and examples."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from difflib import get_close_matches
from functools import cache
from itertools import combinations
from typing import Any, NamedTuple, get_args

from pydantic import BaseModel
from pydantic.json_schema import GenerateJsonSchema
from pydantic_core.core_schema import WithDefaultSchema

from reconciler.core.addresses import STORES
from reconciler.core.body import RAW_FORBIDDEN
from reconciler.core.canonical import mutable_paths, rule_at
from reconciler.core.fields.field_types import Choice, Edit, SeeAlso, Strict, fields_of, type_of
from reconciler.core.identity import KEY_PATTERN, STACK_PATTERN, room_for_description
from reconciler.core.phase import Operation
from reconciler.core.scalar import AXIS_NAME, VARIABLE_NAME
from reconciler.core.settings import DriftSettings, Manifest, NotifyEntry, PolicyEntry, Variable
from reconciler.core.stack import NOT_IN_DEFAULTS, NOT_IN_TEMPLATES, JobEntry, Limits, Prices, TargetEntry
from reconciler.core.values import CLOUD_ONLY, TARGET_KINDS

Schema = dict[str, Any]

DIALECT = "https://json-schema.org/draft/2020-12/schema"
#: What begins a reference to a model.
_DEFS = "#/$defs/"
_ACRONYMS = {
    name.lower(): name
    for name in ("API", "CPU", "ID", "NFS", "OBS", "PFS", "SFT", "SSH", "SWR", "URL", "URN", "UUID")
}


def _ref(name: str) -> Schema:
    return {"$ref": _DEFS + name}


def _whole(pattern: str) -> str:
    return f"^(?:{pattern})$"


#: Text with an expression in it, and text that is one expression and keeps the type of its value.
_TEXT_WITH_EXPRESSION, _EXPRESSION = _ref("TextWithExpression"), _ref("Expression")
_NULL: Schema = {"type": "null"}
_SCALAR: Schema = {"type": ["string", "number", "boolean"]}
#: What says nothing: a member that is one of these is not given.
_SAYS_NOTHING: Schema = {"enum": [None, "", []]}
_KEY: Schema = {
    "pattern": _whole(KEY_PATTERN.pattern),
    "not": {"pattern": "-[rR][0-9]+$"},
    "$comment": "1 to 58 letters, digits, _ and -, not ending in -r and digits",
}
_NAMED_LISTS = {"parameters": "Parameter", "inputs": "Input", "outputs": "Output"}
#: Models of sections in which no expression is expanded.
_AS_WRITTEN = frozenset(one.__name__ for one in (Variable, Limits, Prices, PolicyEntry, NotifyEntry))


def manifest_schema() -> Schema:
    """Return the schema of one manifest file, the same at every call.

    Every property has a title and examples; one that may be left out, and has no other default, has null.
    """
    manifest, definitions = _models()
    _expand(definitions)
    # A URL may begin with an expression, or have one as its path.
    urls = [
        re.escape(scheme) + (":///." if kind.is_file else "://") for kind in STORES for scheme in kind.schemes
    ]
    sections: dict[str, Schema] = {
        "stack": {
            "type": "string",
            "pattern": _whole(STACK_PATTERN.pattern),
            "$comment": "1 to 32 characters of a-z, 0-9 and -, the first and last no -",
        },
        "targets": _section(_ref("TargetEntry"), {"minLength": 1}),
        "variables": _section(_ref("Variable"), {"pattern": _whole(VARIABLE_NAME)}),
        "limits": {"anyOf": [_ref("Limits"), _NULL]},
        "prices": {"anyOf": [_ref("Prices"), _NULL]},
        "policies": {"type": ["array", "null"], "items": _ref("PolicyEntry")},
        "drift": {"anyOf": [_ref("DriftSettings"), _NULL]},
        "notify": {"type": ["array", "null"], "items": _ref("NotifyEntry")},
        "records": {
            "type": ["string", "null"],
            "pattern": rf"^(?:{'|'.join(urls)}|[^:]*\$\{{)",
            "$comment": " or ".join(kind.form for kind in STORES),
        },
        "defaults": _defaults(),
        "templates": _section(_job_without(NOT_IN_TEMPLATES), {"minLength": 1}),
        "jobs": _section(_ref("JobEntry"), _KEY),
    }
    members = {name: _about(member) | sections.get(name, _bare(member)) for name, member in manifest.items()}
    for name, member in members.items():
        if name in ("policies", "notify"):
            member["default"] = []
        elif name in sections.keys() - {"stack", "records"}:
            member["default"] = {}
    schema = {
        "$schema": DIALECT,
        "title": "Manifest",
        "description": "Manifest of reconciler: one file of a stack.",
        "type": "object",
        "properties": members,
        "additionalProperties": False,
        "$defs": {
            name: _ordered({"title": title_of(name), **definition})
            for name, definition in sorted(definitions.items())
        },
    }
    for _, owner, name in properties(schema):
        member = {"title": title_of(name), **owner["properties"][name]}
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
    words = [word.lower() for word in re.findall(r"[A-Z]?[a-z0-9]+|[A-Z]+(?![a-z])", name)]
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
    match schema:
        case {"examples": [first, *_]} | {"const": first} | {"enum": [first, *_]}:
            return first
        case {"anyOf": [first, *_]}:
            return example_of(first, definitions)
        case {"$ref": name}:
            definition = definitions[name.removeprefix(_DEFS)]
            members = definition["properties"]
            names = definition.get("required") or list(members)[:1]
            return {name: example_of(members[name], definitions) for name in names}
        case {"type": "array"}:
            return [example_of(schema["items"], definitions)]
        case {"type": "boolean"}:
            return schema.get("default") is not True
    raise ValueError(f"no example: {schema}")


def _ordered(schema: Schema) -> Schema:
    names = ("$schema", "title", "description", "default", "examples")
    return {name: schema[name] for name in names if name in schema} | schema


class _Generator(GenerateJsonSchema):
    """No titles of fields, the members of examples as they were written, durations as people write them."""

    def sort(self, value: Schema, parent_key: str | None = None) -> Schema:
        return value

    def field_title_should_be_set(self, schema: Any) -> bool:
        return False

    def default_schema(self, schema: WithDefaultSchema) -> Schema:
        result = super().default_schema(schema)
        seconds = result.get("default")
        if result.get("type") == "string" and isinstance(seconds, float):
            unit, size = next(one for one in (("h", 3600), ("m", 60), ("s", 1)) if seconds % one[1] == 0)
            result["default"] = f"{seconds / size:g}{unit}"
        return result


def _models() -> tuple[dict[str, Schema], dict[str, Schema]]:
    """The sections of a manifest, and every model below it by name, as pydantic describes them."""
    manifest = Manifest.model_json_schema(schema_generator=_Generator)
    definitions: dict[str, Schema] = manifest.pop("$defs")
    for definition in definitions.values():
        definition.pop("title", None)
    choices = {name: definitions.pop(name) for name in list(definitions) if "enum" in definitions[name]}

    def inlined(node: Any) -> Any:
        """Put the choices of an enumeration where they are used: an editor shows them better there."""
        if isinstance(node, list):
            return [inlined(item) for item in node]
        if not isinstance(node, dict):
            return node
        name = str(node.get("$ref", "")).removeprefix(_DEFS)
        if name in choices:
            return {**_bare(choices[name]), **{key: value for key, value in node.items() if key != "$ref"}}
        return {key: inlined(value) for key, value in node.items()}

    return inlined(manifest["properties"]), inlined(definitions)


def _expand(definitions: dict[str, Schema]) -> None:
    """Say what no model says: expressions, what may be inherited, mappings for lists, one of several keys."""
    for name in definitions.keys() - _AS_WRITTEN:
        members = definitions[name].get("properties", {})
        definitions[name]["properties"] = {member: _member(one) for member, one in members.items()}
    definitions["Expression"] = {
        "type": "string",
        "pattern": r"^\$\{[^{}]+\}$",
        "description": "One expression, such as ${var.NAME}; it keeps the type of its value.",
        "examples": ["${var.nodes}"],
    }
    definitions["TextWithExpression"] = {
        "title": "Text with an expression",
        "type": "string",
        "pattern": r"(?:^|[^$])\$\{[^{}]+\}",
        "description": "Text that contains ${var.NAME}, ${env.NAME}, ${matrix.AXIS}, ${job.key} or "
        "${jobs.KEY.outputs.NAME}.",
        "examples": ["obs://${var.bucket}/code/"],
    }
    # Only members of plain lists are written as a whole; all else may come from `defaults`.
    inherited = _reachable("JobEntry", definitions, through_lists=False)
    for name in inherited:
        if name in _NAMED_LISTS.values():
            definitions[name]["required"] = ["name"]
        else:
            definitions[name].pop("required", None)
    reachable = _reachable("JobEntry", definitions, through_lists=True)
    for name in reachable:
        _take_nulls(definitions[name])
    whole = reachable - inherited | {PolicyEntry.__name__}
    for model in _subclasses(Strict):
        if model.choices and (definition := definitions.get(model.__name__)) is not None:
            is_whole = model.__name__ in whole
            definition["allOf"] = [rule for choice in model.choices for rule in _choice(choice, is_whole)]
    _add_mapping_forms(definitions)
    _add_target_rules(definitions["TargetEntry"])
    entry = definitions["JobEntry"]["properties"]
    entry["description"] = _limited(entry["description"], maxLength=room_for_description("a", "a"))
    entry["lifecycle"]["default"] = {}
    metadata = {"type": "object", "properties": dict.fromkeys(RAW_FORBIDDEN["metadata"], False)}
    raw = {"type": "object", "properties": {"metadata": metadata, "status": False}}
    entry["raw"]["anyOf"] = [raw, _EXPRESSION, _NULL]
    for name, form in (("extends", {"minLength": 1}), ("needs", _KEY), ("formerly", _KEY)):
        one = [{"type": "string", **form}, _TEXT_WITH_EXPRESSION]
        entry[name]["anyOf"] = [*one, {"type": "array", "items": {"anyOf": one}}, _NULL]
    entry["matrix"]["anyOf"] = [_matrix(), _EXPRESSION]


def _section(member: Schema, names: Schema) -> Schema:
    return {"type": ["object", "null"], "propertyNames": names, "additionalProperties": member}


def _job_without(names: dict[str, str]) -> Schema:
    return {"allOf": [_ref("JobEntry"), {"properties": dict.fromkeys(names, False)}]}


def _defaults() -> Schema:
    return {"anyOf": [_job_without(NOT_IN_DEFAULTS), _NULL]}


_ABOUT = ("description", "default", "examples")


def _about(schema: Schema) -> Schema:
    return {name: schema[name] for name in _ABOUT if name in schema}


def _bare(schema: Schema) -> Schema:
    return {name: value for name, value in schema.items() if name not in _ABOUT}


def _options(schema: Schema) -> list[Schema]:
    return schema.get("anyOf") or [_bare(schema)]


def _member(schema: Schema) -> Schema:
    """Let one field, and each item of it, be an expression where it is not free text anyway."""
    options = _options(schema)
    own = [{**one, "items": _member(one["items"])} if one.get("type") == "array" else one for one in options]
    if {} not in own and {"type": "string"} not in own:
        is_text = any(one.get("type", "string") == "string" and "$ref" not in one for one in own)
        own.append(_TEXT_WITH_EXPRESSION if is_text else _EXPRESSION)
    return _about(schema) | (own[0] if len(own) == 1 else {"anyOf": own})


def _limited(schema: Schema, **limits: Any) -> Schema:
    """A text with limits that its model does not say; one with an expression may come to less."""
    options = [{**one, **limits} if one.get("type") == "string" else one for one in _options(schema)]
    return _about(schema) | {"anyOf": [*options, _TEXT_WITH_EXPRESSION]}


def _reachable(start: str, definitions: dict[str, Schema], *, through_lists: bool) -> set[str]:
    """A model and those below it; those of the lists that are keyed by name count as mappings."""
    met = [start]
    for model in met:
        for name, schema in definitions[model]["properties"].items():
            for below in _references(schema, through_lists or name in _NAMED_LISTS):
                if below not in met and "properties" in definitions[below]:
                    met.append(below)
    return set(met)


def _references(node: Any, through_lists: bool) -> Iterator[str]:
    if isinstance(node, dict):
        if "$ref" in node:
            yield node["$ref"].removeprefix(_DEFS)
        node = [value for name, value in node.items() if name != "items" or through_lists]
    if isinstance(node, list):
        for item in node:
            yield from _references(item, through_lists)


def _take_nulls(definition: Schema) -> None:
    """Let every member that is not required be null, which removes what is inherited."""
    for name, schema in definition["properties"].items():
        if name not in definition.get("required", ()):
            options = _options(schema)
            if _NULL not in options and {} not in options:
                definition["properties"][name] = _about(schema) | {"anyOf": [*options, _NULL]}


def _subclasses(model: type[Strict]) -> Iterator[type[Strict]]:
    for one in model.__subclasses__():
        yield one
        yield from _subclasses(one)


def _choice(choice: Choice, is_whole: bool) -> Iterator[Schema]:
    """Only one member may be given, and one must be where nothing is inherited."""
    given = [{"required": [name], "properties": {name: {"not": _SAYS_NOTHING}}} for name in choice.members]
    if choice.is_required and is_whole:
        yield {"oneOf": given, "description": f"{choice.rule}."}
    else:
        for pair in combinations(given, 2):
            yield {"not": {"allOf": list(pair)}, "description": f"{choice.rule}."}


def _add_mapping_forms(definitions: dict[str, Schema]) -> None:
    forms = {}
    for member, kind in _NAMED_LISTS.items():
        fields = dict(definitions[kind]["properties"])
        name = fields.pop("name")
        definitions[f"{kind}Member"] = {
            "description": f"{definitions[kind]['description'].rstrip('.')}, below its name.",
            "type": "object",
            "properties": fields,
            "additionalProperties": False,
        }
        short: list[Schema] = [{"type": ["string", "number", "boolean", "null"]}]
        if kind != "Parameter":
            # What stands for `{remote: {obs: {obs_url: …}}}`; null takes the inherited one away.
            place = definitions["Obs" if kind == "Input" else "ObsTree"]["properties"]["obs_url"]
            short = [*(one for one in _options(place) if one != _NULL), _NULL]
        values: Schema = {"additionalProperties": {"anyOf": [*short, _ref(f"{kind}Member")]}}
        patterns = [one["pattern"] for one in (name, *name.get("anyOf", ())) if "pattern" in one]
        names = {"propertyNames": {"pattern": patterns[0]}} if patterns else {}
        forms[member] = {"type": "object", **values, **names}
    for definition in definitions.values():
        for member, schema in definition.get("properties", {}).items():
            if member in forms:
                schema["anyOf"].insert(0, forms[member])
            elif member == "environments":
                _environments(schema)


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
    target["allOf"] = []
    for name, kind in TARGET_KINDS.items():
        applies = {"properties": {"kind": {"const": name}}, "required": ["kind"]}
        if kind.is_embedded:
            target["allOf"].append({"if": applies, "then": {"properties": dict.fromkeys(CLOUD_ONLY, _NULL)}})
        elif kind.has_address:
            text = {"type": "string", "minLength": 1}
            given = [{"required": [one], "properties": {one: text}} for one in ("region", "endpoint")]
            target["allOf"].append({"if": applies, "then": {"anyOf": given}})
    members = target["properties"]
    variables = _section({}, {"pattern": _whole(VARIABLE_NAME)})
    for name, form in (("variables", variables), ("defaults", _defaults())):
        members[name] = _about(members[name]) | form | {"default": {}}
    members["endpoint"] = _limited(
        members["endpoint"],
        pattern=r"^\s*[Hh][Tt][Tt][Pp][Ss]?://[^\s/?#@]+/*\s*$",
        **{"$comment": "a URL of a host, without path, query and password"},
    )
    id_of_workspace = {"type": "string", "pattern": "^(?:0|.{32})$", "$comment": "0 or 32 characters"}
    forms = [id_of_workspace, {"enum": [0]}, _TEXT_WITH_EXPRESSION]
    members["workspace_id"] = _about(members["workspace_id"]) | {"anyOf": forms}


def _matrix() -> Schema:
    """Axes with their values; `include` and `exclude` list combinations."""
    names: Schema = {"minProperties": 1, "propertyNames": {"pattern": _whole(AXIS_NAME)}}
    combination: Schema = {"type": "object", **names, "additionalProperties": _SCALAR}
    combinations = {"type": "array", "items": {"anyOf": [combination, _EXPRESSION]}}
    lists: Schema = {"default": [], "anyOf": [combinations, _EXPRESSION]}
    return {
        "type": "object",
        **names,
        "properties": {
            "include": {
                "description": "Combinations to add; one with the values of another adds its other values "
                "to that.",
                "examples": [[{"lr": 0.5, "batch": 32}]],
                **lists,
            },
            "exclude": {
                "description": "Combinations to leave out.",
                "examples": [[{"lr": 0.1, "batch": 128}]],
                **lists,
            },
        },
        "additionalProperties": {"anyOf": [{"type": "array", "minItems": 1, "items": _SCALAR}, _EXPRESSION]},
    }


# --- The keys of the manifest language: of each its path, type, default, example, and what an edit means

_NAME = "NAME"
#: Where the keys of a section stand: below a name of the user's own, right below the section, or in a list.
_SECTIONS: Mapping[str, tuple[tuple[str, ...], type[BaseModel]]] = {
    "targets": ((_NAME,), TargetEntry),
    "variables": ((_NAME,), Variable),
    "limits": ((), Limits),
    "prices": ((), Prices),
    "drift": ((), DriftSettings),
    "policies": (("[]",), PolicyEntry),
    "notify": (("[]",), NotifyEntry),
}
#: What an edit of a key means, and the page that tells more of it; keys below it inherit both.
_Marks = tuple[Edit | None, str]
_OF_SECTIONS: _Marks = (Edit.OF_DECISION, str(SeeAlso("A stack and its files")))
_OF_SERVICE: _Marks = (None, str(SeeAlso("Create request", "docs/modelarts.md")))


class LanguageKey(NamedTuple):
    """One key of the language. `path` begins at the manifest or at a job: `limits.lost_time`, `needs`."""

    path: str
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
    definitions = schema["$defs"]
    keys: list[LanguageKey] = []
    for name, member in schema["properties"].items():
        marks = _marks(Manifest, name, _OF_SECTIONS)
        keys.append(_key((name,), member, marks, definitions))
        if name in _SECTIONS:
            steps, model = _SECTIONS[name]
            keys += _keys((name, *steps), model, marks, definitions[model.__name__], definitions)
    return (*keys, *_keys((), JobEntry, _OF_SERVICE, definitions["JobEntry"], definitions))


def find_key(name: str) -> LanguageKey:
    """The key that a path means, or the end of one if only one ends so.

    Raises:
        NoSuchKey: none does, or several do.
    """
    wanted = of_a_job = _steps(name)
    by_steps = {_steps(key.path): key for key in language_keys()}
    if wanted[0] in ("jobs", "templates"):
        of_a_job = wanted[2:]
    elif "defaults" in wanted:
        of_a_job = wanted[wanted.index("defaults") + 1 :]
    for steps in (wanted, of_a_job):
        if steps in by_steps:
            return by_steps[steps]
    ending = [key for steps, key in by_steps.items() if steps[-len(wanted) :] == wanted]
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
    return (steps[0], _NAME, *steps[2:]) if steps[0] in ("targets", "variables") and len(steps) > 1 else steps


def _nearest(name: str) -> str | None:
    paths = [key.path for key in language_keys()]
    if found := get_close_matches(name, paths, n=1):
        return found[0]
    by_last = {path.rpartition(".")[2].lower(): path for path in reversed(paths)}
    found = get_close_matches(name.rpartition(".")[2].lower(), by_last, n=1)
    return by_last[found[0]] if found else None


def _keys(
    path: tuple[str, ...],
    model: type[BaseModel] | None,
    inherited: _Marks,
    owner: Schema,
    definitions: Schema,
) -> Iterator[LanguageKey]:
    """The keys of an object, whose model is known for most, and those below them."""
    for name, schema in owner["properties"].items():
        if not isinstance(schema, dict):
            continue  # one that must not be given here
        marks = _marks(model, name, inherited)
        yield _key((*path, name), schema, marks, definitions)
        for one in _forms(schema, definitions):
            is_list = one.get("type") == "array"
            for inner in _forms(one["items"], definitions) if is_list else (one,):
                if {"properties", "additionalProperties"} <= inner.keys():
                    below = (*path, name, "[]") if is_list else (*path, name)
                    yield from _keys(below, _model_of(model, name), marks, inner, definitions)


def _marks(model: type[BaseModel] | None, name: str, inherited: _Marks) -> _Marks:
    field = fields_of(model).get(name) if model else None
    marks = field.metadata if field else []
    edit = next((one for one in marks if isinstance(one, Edit)), inherited[0])
    return edit, next((str(one) for one in marks if isinstance(one, SeeAlso)), inherited[1])


def _key(path: tuple[str, ...], schema: Schema, marks: _Marks, definitions: Schema) -> LanguageKey:
    edit, see = marks
    forms = list(_forms(schema, definitions))
    return LanguageKey(
        path=format_field(path),
        description=schema["description"],
        type=" or ".join(dict.fromkeys(_type(one, definitions) for one in forms)),
        limits=", ".join(dict.fromkeys(limit for one in forms for limit in _limits(one))),
        default=schema.get("default"),
        example=schema["examples"][0],
        edit=str(edit) if edit else meaning(path),
        see=see,
    )


def _forms(schema: Schema, definitions: Schema) -> Iterator[Schema]:
    """What may stand at a place: one schema for each form, expressions and null aside."""
    if "anyOf" in schema:
        for one in schema["anyOf"]:
            yield from _forms(one, definitions)
    elif "$ref" in schema:
        if "Expression" not in schema["$ref"]:
            yield definitions[schema["$ref"].removeprefix(_DEFS)]
    elif schema.get("type") != "null":
        yield schema


def _type(schema: Schema, definitions: Schema) -> str:
    if "enum" in schema or "const" in schema:
        choices = [yaml_text(one) for one in schema.get("enum", [schema.get("const")])]
        return choices[0] if len(choices) == 1 else f"one of {', '.join(choices)}"
    if "allOf" in schema and "type" not in schema:
        return "mapping"  # a job, or a part of one
    if schema.get("type") == "array":
        items = dict.fromkeys(_type(one, definitions) for one in _forms(schema["items"], definitions))
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


def _limits(schema: Schema) -> Iterator[str]:
    yield from (words.format(schema[name]) for name, words in _LIMITS.items() if name in schema)
    if comment := schema.get("$comment"):
        yield comment
    elif "pattern" in schema:
        yield f"matches {schema['pattern']}"


def yaml_text(value: Any) -> str:
    """A value as YAML in one line: words are bare, all else is JSON, which is YAML."""
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{yaml_text(name)}: {yaml_text(one)}" for name, one in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(map(yaml_text, value)) + "]"
    bare = r"[A-Za-z/][\w./-]*(?: [A-Za-z][\w./-]*)*|[a-z]+://[\w./-]+|(?:\d+[dhms])+"
    is_word = isinstance(value, str) and re.fullmatch(bare, value)
    return value if is_word and value not in _NOT_TEXT else json.dumps(value)


_NOT_TEXT = frozenset({"true", "false", "null", "yes", "no", "on", "off"})


def format_field(path: tuple[str, ...]) -> str:
    """`algorithm.inputs[].name`."""
    return ".".join(path).replace(".[]", "[]")


def meaning(path: tuple[str, ...]) -> str:
    """What an edit of the field means for a job that exists."""
    above = [path[:length] for length in range(1, len(path) + 1)]
    update = next((rule_at(p).update for p in above if p in mutable_paths()), None)
    if update is None:
        below = any(path == p[: len(path)] for p in mutable_paths())
        return "see its members" if below else "new job"
    clouds = ", ".join(sorted(update.clouds))
    when = "" if update.operation is Operation.UPDATE_DESCRIPTION else ", while Pending"
    return f"update ({clouds}{when})"
