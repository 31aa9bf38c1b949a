"""What a schema says to people: title, default and examples of every property.

A title is the property's name in words. An example is the one on the field's line; a choice, a boolean and
an object whose members have examples need none of their own.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

Schema = dict[str, Any]

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
            member["description"] = _target(member, definitions)["description"]
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
                    if key == "properties" and is_described(node):
                        yield f"{path}.{name}", node, name
                    yield from properties(member, f"{path}.{name}")
            elif key not in ("examples", "default", "allOf", "if", "then"):
                yield from properties(value, path)


def is_described(owner: Schema) -> bool:
    """Whether an object is one that people write, and no condition on another one."""
    return "additionalProperties" in owner


def _target(member: Schema, definitions: dict[str, Schema]) -> Schema:
    """The first model that a property refers to."""
    options = [member, *member.get("anyOf", ())]
    name = next(one["$ref"] for one in options if "$ref" in one).removeprefix("#/$defs/")
    return definitions[name]


def example_of(schema: Schema, definitions: dict[str, Schema]) -> Any:
    """A value that the schema takes: its own example, or one made of what it says."""
    if examples := schema.get("examples"):
        return examples[0]
    if "const" in schema or "enum" in schema:
        return schema.get("const", schema.get("enum", [None])[0])
    if "anyOf" in schema:
        return example_of(schema["anyOf"][0], definitions)
    if "$ref" in schema:
        return _object(definitions[schema["$ref"].removeprefix("#/$defs/")], definitions)
    if schema.get("type") == "array":
        return [example_of(schema["items"], definitions)]
    if schema.get("type") == "boolean":
        return schema.get("default") is not True
    raise ValueError(f"no example: {schema}")


def _object(definition: Schema, definitions: dict[str, Schema]) -> Schema:
    """An object with the members that it must have, or else with its first."""
    members = definition["properties"]
    names = definition.get("required") or list(members)[:1]
    return {name: example_of(members[name], definitions) for name in names}


_ORDER = ("$schema", "title", "description", "default", "examples")


def _ordered(schema: Schema) -> Schema:
    first = {name: schema[name] for name in _ORDER if name in schema}
    return first | {name: value for name, value in schema.items() if name not in first}
