"""The JSON Schema of a manifest file, for editors and CI: read off the models, with what they cannot say.

What is added: mapping forms beside list forms, `${…}` in the place of every number, boolean and choice,
and the patterns of names. What is taken away: `required` wherever `defaults` may supply the field.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from reconciler.core.declared.body import RAW_FORBIDDEN
from reconciler.core.declared.expression import VARIABLE_NAME
from reconciler.core.declared.stack import (
    NOT_IN_DEFAULTS,
    NOT_IN_TEMPLATES,
    JobEntry,
    Limits,
    Manifest,
    Prices,
    Target,
    Variable,
)
from reconciler.core.observed.identity import KEY_PATTERN, STACK_PATTERN
from reconciler.core.store_url import STORES

DIALECT = "https://json-schema.org/draft/2020-12/schema"

Schema = dict[str, Any]

#: A URL may begin with an expression, or have one as its path.
_BEGINNINGS = (
    re.escape(scheme) + (":///." if kind.is_file else "://") for kind in STORES for scheme in kind.schemes
)
_RECORDS = rf"^(?:{'|'.join(_BEGINNINGS)}|[^:]*\$\{{)"
_EXPRESSION: Schema = {"$ref": "#/$defs/Expression"}
_NAMED_LISTS = {"parameters": "Parameter", "inputs": "Input", "outputs": "Output"}
_SCALAR: Schema = {"type": ["string", "number", "boolean"]}


def _whole(pattern: str) -> str:
    return f"^(?:{pattern})$"


_KEY: Schema = {"pattern": _whole(KEY_PATTERN.pattern), "not": {"pattern": "-[rR][0-9]+$"}}


def manifest_schema() -> dict[str, Any]:
    """Return the schema of one manifest file, the same at every call."""
    definitions = _definitions()
    job = {"$ref": "#/$defs/JobEntry"}
    defaults = {"allOf": [job, {"properties": dict.fromkeys(NOT_IN_DEFAULTS, False)}]}
    template = {"allOf": [job, {"properties": dict.fromkeys(NOT_IN_TEMPLATES, False)}]}
    sections: dict[str, Schema] = {
        "stack": {"type": "string", "pattern": _whole(STACK_PATTERN.pattern)},
        "targets": _section({"$ref": "#/$defs/Target"}, {"minLength": 1}),
        "variables": _section({"$ref": "#/$defs/Variable"}, {"pattern": _whole(VARIABLE_NAME)}),
        "limits": {"anyOf": [{"$ref": "#/$defs/Limits"}, {"type": "null"}]},
        "prices": {"anyOf": [{"$ref": "#/$defs/Prices"}, {"type": "null"}]},
        "records": {"type": ["string", "null"], "pattern": _RECORDS},
        "defaults": {"anyOf": [defaults, {"type": "null"}]},
        "templates": _section(template, {"minLength": 1}),
        "jobs": _section(job, _KEY),
    }
    properties = {}
    for name, member in _clean(Manifest.model_json_schema())["properties"].items():
        properties[name] = sections.get(name, _bare(member)) | {"description": member["description"]}
    properties["policies"] = {"type": ["array", "null"], "maxItems": 0, "description": "Rules for plans."}
    return {
        "$schema": DIALECT,
        "description": "Manifest of reconciler: one file of a stack.",
        "type": "object",
        "properties": properties,
        "additionalProperties": False,
        "$defs": definitions,
    }


def _section(member: Schema, names: Schema) -> Schema:
    return {"type": ["object", "null"], "propertyNames": names, "additionalProperties": member}


def _definitions() -> dict[str, Schema]:
    """Every model below a manifest, by name; those in which expressions are expanded take them."""
    definitions: dict[str, Schema] = {
        "Expression": {
            "type": "string",
            "pattern": r"\$\{[^{}]+\}",
            "description": "Text that contains ${var.NAME}, ${env.NAME} or ${job.key}.",
        }
    }
    expanded: tuple[type[Any], ...] = (Target, JobEntry)
    for model in expanded:
        for name, schema in _models(model).items():
            definitions[name] = _with_expressions(schema)
    definitions |= _models(Variable) | _models(Limits) | _models(Prices)
    _relax_required(definitions)
    _add_mapping_forms(definitions)
    definitions["JobEntry"]["properties"]["raw"] |= _raw()
    for name in ("extends", "needs", "formerly"):
        definitions["JobEntry"]["properties"][name] |= _keys()
    definitions["JobEntry"]["properties"]["matrix"] |= _matrix()
    return dict(sorted(definitions.items()))


def _models(model: type[Any]) -> dict[str, Schema]:
    schema = _clean(model.model_json_schema())
    definitions: dict[str, Schema] = schema.pop("$defs", {})
    definitions[model.__name__] = schema
    choices = {name: definitions.pop(name) for name in list(definitions) if "enum" in definitions[name]}
    return {name: _inlined(definition, choices) for name, definition in definitions.items()}


def _clean(node: Any) -> Any:
    """Drop titles and defaults that say nothing, and spell the default of a duration as people write it."""
    if isinstance(node, list):
        return [_clean(item) for item in node]
    if not isinstance(node, dict):
        return node
    result: Schema = {}
    for name, value in node.items():
        if name in ("properties", "$defs"):
            result[name] = {member: _clean(schema) for member, schema in value.items()}
        elif name != "title" and not (name == "default" and value is None):
            result[name] = _clean(value)
    if result.get("type") == "string" and isinstance(result.get("default"), float):
        result["default"] = _duration(result["default"])
    return result


def _duration(seconds: float) -> str:
    for unit, size in (("h", 3600), ("m", 60)):
        if seconds % size == 0:
            return f"{seconds / size:g}{unit}"
    return f"{seconds:g}s"


def _bare(schema: Schema) -> Schema:
    return {name: value for name, value in schema.items() if name != "description"}


def _inlined(node: Any, choices: dict[str, Schema]) -> Any:
    """Put the choices of an enumeration where they are used: an editor shows them better there."""
    if isinstance(node, list):
        return [_inlined(item, choices) for item in node]
    if not isinstance(node, dict):
        return node
    name = str(node.get("$ref", "")).removeprefix("#/$defs/")
    if name in choices:
        return {**_bare(choices[name]), **{key: value for key, value in node.items() if key != "$ref"}}
    return {key: _inlined(value, choices) for key, value in node.items()}


def _with_expressions(model: Schema) -> Schema:
    return {
        **model,
        "properties": {name: _member(schema) for name, schema in model.get("properties", {}).items()},
    }


def _member(schema: Schema) -> Schema:
    """Let one field, or one item of it, be an expression where it is not free text anyway."""
    if "anyOf" in schema:
        return {**schema, "anyOf": _options([_member(option) for option in schema["anyOf"]])}
    if schema.get("type") == "array":
        return {**schema, "items": _member(schema["items"])}
    if schema.get("type") == "object" or not _is_strict(schema):
        return schema
    about: Schema = {name: schema[name] for name in ("description", "default") if name in schema}
    rest = {name: value for name, value in schema.items() if name not in about}
    return {**about, "anyOf": [rest, _EXPRESSION]}


def _options(options: list[Schema]) -> list[Schema]:
    """The options without any in them, and an expression once, if one of them may be one."""
    nested = any(_EXPRESSION in option.get("anyOf", ()) for option in options)
    flat = [one for option in options for one in option.get("anyOf", [option]) if one != _EXPRESSION]
    takes_text = any(one.get("type") == "string" and len(one) == 1 for one in flat)
    return flat + ([_EXPRESSION] if nested and not takes_text else [])


def _is_strict(schema: Schema) -> bool:
    """Whether not every text fits."""
    is_text = schema.get("type") not in ("integer", "number", "boolean")
    return not is_text or bool(schema.keys() & {"enum", "const", "pattern"})


def _relax_required(definitions: dict[str, Schema]) -> None:
    """Only members of plain lists are written as a whole; all else may come from `defaults`."""
    whole = _reachable("JobEntry", definitions, through_lists=True) - _reachable(
        "JobEntry", definitions, through_lists=False
    )
    for name in _reachable("JobEntry", definitions, through_lists=True) | {"JobEntry"}:
        if name in _NAMED_LISTS.values():
            definitions[name]["required"] = ["name"]
        elif name not in whole:
            definitions[name].pop("required", None)


def _reachable(start: str, definitions: dict[str, Schema], *, through_lists: bool) -> set[str]:
    """The models below one; those of the lists that are keyed by name count as mappings."""
    met: set[str] = set()
    waiting = [start]
    while waiting:
        for name, schema in definitions[waiting.pop()].get("properties", {}).items():
            for below in _references(schema, through_lists or name in _NAMED_LISTS):
                if below not in met and below != "Expression":
                    met.add(below)
                    waiting.append(below)
    return met


def _references(node: Any, through_lists: bool) -> Iterator[str]:
    if isinstance(node, list):
        for item in node:
            yield from _references(item, through_lists)
    elif isinstance(node, dict):
        if "$ref" in node:
            yield node["$ref"].removeprefix("#/$defs/")
        for name, value in node.items():
            if name != "items" or through_lists:
                yield from _references(value, through_lists)


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
    short: Schema = (
        {"type": ["string", "number", "boolean", "null"]} if kind == "Parameter" else {"type": "string"}
    )
    form: Schema = {
        "type": "object",
        "additionalProperties": {"anyOf": [short, {"$ref": f"#/$defs/{kind}Member"}]},
    }
    if (pattern := _pattern(definitions[kind]["properties"]["name"])) is not None:
        form["propertyNames"] = {"pattern": pattern}
    return form


def _pattern(schema: Schema) -> str | None:
    return next((one["pattern"] for one in (schema, *schema.get("anyOf", ())) if "pattern" in one), None)


def _environments(schema: Schema) -> None:
    """Values may say that they are sensitive, or be null to take one of `defaults` away."""
    mapping = next(option for option in schema["anyOf"] if option.get("type") == "object")
    pattern, value = next(iter(mapping["patternProperties"].items()))
    value = {**_SCALAR, **{name: limit for name, limit in value.items() if name != "anyOf"}}
    secret: Schema = {
        "type": "object",
        "properties": {
            "value": {**value, "description": "The value."},
            "sensitive": {"type": "boolean", "default": False, "description": "Never show the value."},
        },
        "required": ["value"],
        "additionalProperties": False,
    }
    mapping["patternProperties"] = {pattern: {"anyOf": [value, secret, {"type": "null"}]}}
    mapping["additionalProperties"] = False
    schema["anyOf"].insert(1, {"type": "array", "items": dict(mapping)})


def _keys() -> Schema:
    key: Schema = {"anyOf": [{"type": "string", **_KEY}, _EXPRESSION]}
    return {"anyOf": [key, {"type": "array", "items": key}, {"type": "null"}]}


def _matrix() -> Schema:
    """Axes with their values; `include` and `exclude` list combinations."""
    value = {"type": ["string", "number", "boolean"]}
    combinations = {
        "type": "array",
        "items": {"type": "object", "minProperties": 1, "additionalProperties": value},
    }
    expression = {"$ref": "#/$defs/Expression"}
    return {
        "anyOf": [
            {
                "type": "object",
                "minProperties": 1,
                "properties": {"include": combinations, "exclude": combinations},
                "additionalProperties": {
                    "anyOf": [{"type": "array", "minItems": 1, "items": value}, expression]
                },
            },
            expression,
        ]
    }


def _raw() -> Schema:
    metadata = {"type": "object", "properties": dict.fromkeys(RAW_FORBIDDEN["metadata"], False)}
    return {
        "anyOf": [{"type": "object", "properties": {"metadata": metadata, "status": False}}, {"type": "null"}]
    }
