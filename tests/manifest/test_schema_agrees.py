"""The schema and the program agree on the shape of a manifest: an editor says what `validate` says."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from jsonschema import Draft202012Validator

from reconciler.core.fields.field_types import Strict
from reconciler.core.schema import manifest_schema
from reconciler.core.values import CLOUD_ONLY
from reconciler.errors import Diagnostic, ManifestInvalid
from reconciler.manifest.load import load_mapping

SCHEMA = manifest_schema()
DEFINITIONS = SCHEMA["$defs"]
VALIDATOR = Draft202012Validator(SCHEMA)

ALGORITHM = {"code_dir": "obs://b/", "boot_file": "obs://b/t.py", "engine": {"engine_id": "pt"}}
JOB = {"algorithm": ALGORITHM, "spec": {"resource": {"flavor_id": "g", "pool_id": "p"}}}


def models(model: type[Strict] = Strict) -> Iterator[type[Strict]]:
    """Every model of what people write."""
    for one in model.__subclasses__():
        yield one
        yield from models(one)


#: Values that are wrong in most places, and right in some.
ODD: dict[str, Any] = {
    "null": None,
    "true": True,
    "zero": 0,
    "minus one": -1,
    "a half": 0.5,
    "million": 1_000_000,
    "empty text": "",
    "word": "x",
    "words": "x y",
    "digits": "12",
    "long text": "x" * 9000,
    "empty list": [],
    "list of text": ["x"],
    "list of numbers": [1],
    "list of null": [None],
    "list of lists": [[]],
    "list of mappings": [{}],
    "long list": [{"nfs": {"local_path": f"/m{n}"}} for n in range(101)],
    "empty mapping": {},
    "mapping": {"x": 1},
    "mapping of mappings": {"x": {"y": {}}},
    "mapping with an odd key": {"x y": "z"},
}
#: Problems with the shape of a manifest. Others concern what several places say together.
SHAPE = frozenset(
    {
        "unknown field", "wrong type", "value not allowed", "invalid key", "invalid OBS path",
        "not allowed in raw", "not allowed in templates", "not allowed in defaults", "invalid stack name",
        "number out of range",  "description too long", "credential not allowed here", "invalid schedule",
    }
)  # fmt: skip


#: What cannot stand beside a member.
RIVALS: dict[Any, tuple[str, ...]] = {
    **{member: choice.members for model in models() for choice in model.choices for member in choice.members},
    "kind": CLOUD_ONLY,
}


class Field(NamedTuple):
    """A property of the language: how people write its path, its schema, and a manifest that has it."""

    path: str
    schema: dict[str, Any]
    manifest: dict[str, Any]
    steps: tuple[str | int, ...]

    def with_value(self, value: Any) -> dict[str, Any]:
        """The manifest with another value there."""
        manifest = copy.deepcopy(self.manifest)
        place: Any = manifest
        for step in self.steps[:-1]:
            place = place[step]
        place[self.steps[-1]] = value
        for rival in RIVALS.get(self.steps[-1], ()):
            if rival != self.steps[-1]:
                place.pop(rival, None)
        return manifest


def resolved(schema: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """The alternatives of a schema, its references followed."""
    if "$ref" in schema:
        yield from resolved(DEFINITIONS[schema["$ref"].removeprefix("#/$defs/")])
    elif "anyOf" in schema and "type" not in schema:
        for one in schema["anyOf"]:
            yield from resolved(one)
    else:
        yield schema


MET: set[int] = set()


def objects_at(schema: dict[str, Any]) -> Iterator[tuple[tuple[int, ...], dict[str, Any]]]:
    """The objects that may stand at a place: the steps to each, and its schema."""
    for one in resolved(schema):
        if "additionalProperties" in one and "properties" in one:
            yield (), one
        elif one.get("type") == "array":
            yield from (((0,), inner) for inner in resolved(one["items"]) if "properties" in inner)


def fields_below(
    owner: dict[str, Any], path: str, manifest: dict[str, Any], steps: tuple[str | int, ...]
) -> Iterator[Field]:
    """Every field below an object that stands in a manifest, in a manifest that has what is above it."""
    if id(owner) in MET:
        return  # A model that stands in several places is the same in each.
    MET.add(id(owner))
    for name, schema in owner["properties"].items():
        field = Field(f"{path}{name}", schema, manifest, (*steps, name))
        yield field
        for more, inner in objects_at(schema):
            below = {one: inner["properties"][one]["examples"][0] for one in inner.get("required", ())}
            there = value_at(manifest, field.steps)
            above = field.with_value([below] if more else below | (there if isinstance(there, dict) else {}))
            prefix = f"{field.path}{'[]' if more else ''}."
            yield from fields_below(inner, prefix, above, (*field.steps, *more))


def value_at(manifest: Any, steps: tuple[str | int, ...]) -> Any:
    for step in steps:
        manifest = manifest.get(step, {}) if isinstance(manifest, dict) else manifest[step]
    return manifest


def a_manifest(**changes: Any) -> dict[str, Any]:
    return {"stack": "vision", "targets": {"local": {"kind": "local"}}, "jobs": {"a": JOB}, **changes}


TARGET = {"kind": "modelarts", "region": "cn-north-4", "project_id": "p"}
FIELDS = [
    *(Field(name, schema, a_manifest(), (name,)) for name, schema in SCHEMA["properties"].items()),
    *fields_below(DEFINITIONS["JobEntry"], "jobs.KEY.", a_manifest(), ("jobs", "a")),
    *fields_below(
        DEFINITIONS["TargetEntry"],
        "targets.NAME.",
        a_manifest(targets={"there": TARGET}),
        ("targets", "there"),
    ),
    *fields_below(
        DEFINITIONS["Variable"], "variables.NAME.", a_manifest(variables={"v": {}}), ("variables", "v")
    ),
    *fields_below(DEFINITIONS["Limits"], "limits.", a_manifest(limits={}), ("limits",)),
    *fields_below(DEFINITIONS["Prices"], "prices.", a_manifest(prices={"currency": "CNY"}), ("prices",)),
]


def problems_of(manifest: dict[str, Any], root: Path) -> tuple[Diagnostic, ...]:
    try:
        load_mapping(manifest, root, environ={"HF_TOKEN": "t"}, offline=True)
    except ManifestInvalid as invalid:
        return invalid.diagnostics
    return ()


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("stack")


@pytest.mark.parametrize("field", FIELDS, ids=lambda field: field.path)
def test_editor_and_program_agree_on_odd_values(field: Field, root: Path) -> None:
    accepted_by_program, refused_by_program = [], []
    for name, odd in ODD.items():
        manifest = field.with_value(odd)
        problems = problems_of(manifest, root)
        refuses = not VALIDATOR.is_valid(manifest)
        if refuses and not problems:
            accepted_by_program.append(name)
        if not refuses and (shape := [one for one in problems if one.what in SHAPE]):
            refused_by_program.append(f"{name}: {shape[0].what}: {shape[0].why}")
    assert accepted_by_program == [], "the schema refuses what loads"
    assert refused_by_program == [], "the schema takes what is refused"


@pytest.mark.parametrize("field", FIELDS, ids=lambda field: field.path)
def test_example_of_every_field_is_valid_for_editor_and_program(field: Field, root: Path) -> None:
    for example in field.schema["examples"]:
        manifest = field.with_value(example)
        assert [error.message for error in VALIDATOR.iter_errors(manifest)] == []
        assert [one for one in problems_of(manifest, root) if one.what in SHAPE] == []


@pytest.mark.parametrize(
    "field", [one for one in FIELDS if one.path.startswith("jobs.KEY.")], ids=lambda field: field.path
)
def test_expression_may_stand_for_the_value_of_every_field_of_a_job(field: Field, root: Path) -> None:
    [example, *_] = field.schema["examples"]
    manifest = field.with_value("${var.given}")
    manifest["variables"] = {"given": {"default": example}}
    assert [error.message for error in VALIDATOR.iter_errors(manifest)] == []
    assert [one for one in problems_of(manifest, root) if one.what in SHAPE] == []


@pytest.mark.parametrize("section", ["algorithm", "spec", "lifecycle", "endpoints", "description"])
def test_editor_and_program_agree_on_defaults_that_every_job_overrides(section: str, root: Path) -> None:
    below = ("jobs", "a", section)
    for field in FIELDS:
        # A list is overridden as a whole, so nothing of it is inherited.
        if field.steps[:3] != below or any(isinstance(step, int) for step in field.steps):
            continue
        manifest = field.with_value(field.schema["examples"][0])
        for odd in ("a half", "word", "list of lists"):
            inherited: Any = ODD[odd]
            for step in reversed(field.steps[2:]):
                inherited = {step: inherited}
            manifest["defaults"] = inherited
            refuses = any(one.what in SHAPE for one in problems_of(manifest, root))
            assert refuses is not VALIDATOR.is_valid(manifest), (field.path, odd)
