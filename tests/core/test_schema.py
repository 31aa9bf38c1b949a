"""The schema that editors check manifests with: it takes what loads, and refuses what is misspelt."""

from __future__ import annotations

import copy
import json
from collections.abc import Iterator
from typing import Any

import pytest
from jsonschema import Draft202012Validator

from reconciler.core.schema import manifest_schema, properties, title_of
from reconciler.core.settings import Manifest
from reconciler.core.stack import JobEntry

SCHEMA = manifest_schema()
VALIDATOR = Draft202012Validator(SCHEMA)


def an_entry(**changes: Any) -> dict[str, Any]:
    algorithm = {"code_dir": "obs://b/", "boot_file": "obs://b/t.py", "engine": {"engine_id": "pt"}}
    return {"algorithm": algorithm, "spec": {"resource": {"flavor_id": "g"}}, **changes}


def a_manifest(entry: Any = None, **changes: Any) -> dict[str, Any]:
    return {"stack": "vision", "jobs": {"train": an_entry() if entry is None else entry}, **changes}


def is_valid(manifest: Any) -> bool:
    return bool(VALIDATOR.is_valid(manifest))


def objects(node: Any) -> Iterator[dict[str, Any]]:
    """Every schema in a schema."""
    if isinstance(node, list):
        for item in node:
            yield from objects(item)
    elif isinstance(node, dict):
        yield node
        for value in node.values():
            yield from objects(value)


def test_manifest_schema_is_valid_and_deterministic() -> None:
    Draft202012Validator.check_schema(SCHEMA)
    assert json.dumps(manifest_schema()) == json.dumps(SCHEMA)
    assert SCHEMA["$schema"].endswith("2020-12/schema")
    assert "$id" not in SCHEMA
    assert list(SCHEMA["$defs"]) == sorted(SCHEMA["$defs"])


def test_schema_allows_no_unknown_field() -> None:
    for name, definition in SCHEMA["$defs"].items():
        if definition.get("type") == "object":
            assert definition["additionalProperties"] is False, name
            assert definition["title"], name
            assert definition["description"], name


def lacking(schema: dict[str, Any]) -> list[str]:
    """The properties that lack a title, a description, an example, or a default and may be left out."""
    found = []
    for path, owner, name in properties(schema):
        member = owner["properties"][name]
        wanted = {"title", "description", "examples"}
        if name not in owner.get("required", ()):
            wanted.add("default")
        found += [f"{path}: {one}" for one in sorted(wanted - {one for one in member if member[one] != ""})]
    return found


def test_schema_property_has_title_description_example_and_default() -> None:
    assert lacking(SCHEMA) == []
    assert len(list(properties(SCHEMA))) > 250


@pytest.mark.parametrize("word", ["title", "description", "default", "examples"])
def test_schema_property_without_title_description_example_or_default_is_found(word: str) -> None:
    schema = copy.deepcopy(SCHEMA)
    del schema["$defs"]["Resource"]["properties"]["pool_id"][word]
    assert lacking(schema) == [f".Resource.pool_id: {word}"]


def test_examples_and_defaults_are_valid() -> None:
    for path, owner, name in properties(SCHEMA):
        member = owner["properties"][name]
        validator = Draft202012Validator({**member, "$defs": SCHEMA["$defs"]})
        # The default null says that nothing is said.
        default = [] if member.get("default") is None else [member["default"]]
        for value in (*member["examples"], *default):
            assert validator.is_valid(value), f"{path}: {value}"


@pytest.mark.parametrize(
    ("name", "title"),
    [("pool_id", "Pool ID"), ("matchFields", "Match fields"), ("apiVersion", "API version"), ("raw", "Raw")],
)
def test_schema_title_is_the_field_name_in_words(name: str, title: str) -> None:
    assert title_of(name) == title


def test_schema_has_every_field_of_the_models() -> None:
    assert SCHEMA["properties"].keys() >= Manifest.model_fields.keys()
    assert SCHEMA["$defs"]["JobEntry"]["properties"].keys() == JobEntry.model_fields.keys()


def test_schema_references_resolve() -> None:
    targets = {schema["$ref"] for schema in objects(SCHEMA) if "$ref" in schema}
    assert {target.removeprefix("#/$defs/") for target in targets} <= SCHEMA["$defs"].keys()


def test_schema_defaults_are_written_as_in_a_manifest() -> None:
    assert SCHEMA["$defs"]["Lifecycle"]["properties"]["retry_delay"]["default"] == "2m"
    assert SCHEMA["$defs"]["Limits"]["properties"]["lost_time"]["default"] == "1h"
    assert SCHEMA["$defs"]["Resource"]["properties"]["node_count"]["default"] == 1


@pytest.mark.parametrize(
    "manifest",
    [
        a_manifest(),
        {},
        {"jobs": None, "targets": None, "defaults": None},
        a_manifest(
            apiVersion="reconciler/v1",
            target="prod",
            targets={
                "local": {"kind": "local"},
                "prod": {
                    "kind": "modelarts",
                    "region": "cn-north-4",
                    "project_id": "${env.HUAWEICLOUD_SDK_PROJECT_ID}",
                    "workspace_id": "0",
                    "cloud": "huawei",
                },
            },
            variables={"bucket": {"default": [1]}, "hf_token": {"env": "HF_TOKEN", "sensitive": True}},
            limits={"terminations": 5, "terminations_percent": 30, "lost_time": "1h"},
            policies=[],
            defaults={
                "spec": {"resource": {"node_count": 1}},
                "algorithm": {"inputs": {"a": {"local_dir": "/x"}}},
            },
        ),
        a_manifest({"state": "absent"}),
        a_manifest({"state": "absent", "lifecycle": {"protect": False}}),
        a_manifest({"spec": {"log_export_path": {"obs_url": "obs://b/"}}}),  # the rest comes from defaults
        a_manifest(an_entry(lifecycle={"on_change": "replace", "max_retries": 2, "retry_delay": "90s"})),
        a_manifest(
            an_entry(lifecycle={"on_change": "${var.x}", "max_retries": "${var.n}", "protect": "${var.p}"})
        ),
        a_manifest({"needs": "a", "formerly": ["b", "${var.c}"]}),
        a_manifest({"needs": ["a", "b"], "formerly": None}),
        a_manifest({"needs": [], "formerly": "${job.key}-old"}),
        a_manifest(records="postgresql://me@db/app"),
        a_manifest(records="sqlite:///records.db"),
        a_manifest(records="${env.RECORDS}"),
        a_manifest(records=None),
        a_manifest(templates={"gpu.big": {"extends": "base one"}, "base one": {}}),
        a_manifest({"extends": ["gpu.big", "${var.base}"]}),
        a_manifest({"spec": "${var.spec}", "algorithm": {"inputs": "${var.inputs}", "engine": None}}),
        a_manifest({"spec": {"resource": {"node_count": None}}, "kind": None, "lifecycle": None}),
        a_manifest({"algorithm": {"engine": {"engine_id": None, "image_url": "i"}}}),
        a_manifest({"description": "${var.of_any_length}" * 20}),
        a_manifest({"matrix": {"lr": [0.1], "include": [{"lr": 1}], "exclude": "${var.x}"}}),
        a_manifest(an_entry(raw={"anything": {"goes": [1]}, "metadata": {"labels": {}}})),
        a_manifest(
            an_entry(algorithm={"parameters": {"lr": 0.1, "n": None, "s": {"value": 1, "sensitive": True}}})
        ),
        a_manifest(an_entry(algorithm={"parameters": [{"name": "lr", "value": True}]})),
        a_manifest(
            an_entry(algorithm={"inputs": {"a": "obs://b/", "c": {"remote": {"obs": {"obs_url": "/b"}}}}})
        ),
        a_manifest(an_entry(algorithm={"outputs": [{"name": "a", "remote": {"obs": {"obs_url": "/b/"}}}]})),
        a_manifest(
            an_entry(algorithm={"environments": {"A": 1, "B": {"value": "x", "sensitive": True}, "C": None}})
        ),
        a_manifest(an_entry(algorithm={"environments": [{"A": 1}, {"B": "b"}]})),
        a_manifest(an_entry(algorithm={"environments": [{"name": "A", "value": 1, "sensitive": True}]})),
        a_manifest(an_entry(algorithm={"environments": [{"name": "A", "value": None}, {"B": 1}]})),
        a_manifest(an_entry(algorithm={"environments": [{"name": "A"}]})),
        a_manifest(
            an_entry(spec={"resource": {"node_count": "${var.nodes}"}, "runtime_type": "${var.kind}"})
        ),
        a_manifest(
            an_entry(
                spec=None,
                kind="hetero_job",
                tasks=[
                    {
                        "algorithm": {"job_config": {"inputs": {"a": "/b/x"}}},
                        "task_resource": {"node_count": 1},
                    }
                ],
            )
        ),
    ],
)
def test_loadable_manifest_is_valid_by_the_schema(manifest: dict[str, Any]) -> None:
    assert [error.message for error in VALIDATOR.iter_errors(manifest)] == []


@pytest.mark.parametrize(
    "manifest",
    [
        [],
        a_manifest(job={}),
        a_manifest(stack="Vision"),
        a_manifest(apiVersion="reconciler/v2"),
        a_manifest(policies=[{}]),
        a_manifest(targets={"t": {"kind": "locl"}}),
        a_manifest(targets={"t": {"region": "r"}}),
        a_manifest(targets={"t": {"kind": "modelarts", "regoin": "r"}}),
        a_manifest(variables={"v": {"sensitve": True}}),
        a_manifest(variables={"v": {"sensitive": "${var.x}"}}),  # variables are not expanded
        a_manifest(variables={"1v": {}}),
        a_manifest(limits={"lost_time": 1}),
        a_manifest(defaults={"spec": {"resource": {"node_cout": 1}}}),
        {"jobs": {"a b": {}}},
        {"jobs": {"a-r2": {}}},
        {"jobs": {"a": None}},
        a_manifest(an_entry(descripton="x")),
        a_manifest({"needs": 3}),
        a_manifest({"needs": ["a b"]}),
        a_manifest({"formerly": "a-r2"}),
        a_manifest({"formerly": {"a": None}}),
        a_manifest(defaults={"needs": ["a"]}),
        a_manifest(defaults={"formerly": "a"}),
        a_manifest(records="oracle://db"),
        a_manifest(records=["sqlite:///r.db"]),
        a_manifest(an_entry(state="gone")),
        a_manifest(an_entry(lifecycle={"on_change": "replce"})),
        a_manifest(an_entry(lifecycle={"max_retries": "2"})),
        a_manifest(an_entry(spec={"resource": {"node_count": 0}})),
        a_manifest(an_entry(spec={"resource": {"node_count": "1"}})),
        a_manifest(an_entry(algorithm={"parameters": {"lr": [1]}})),
        a_manifest(an_entry(algorithm={"parameters": {"l r": 1}})),
        a_manifest(an_entry(algorithm={"parameters": {"lr": {"valu": 1}}})),
        a_manifest(an_entry(algorithm={"parameters": [{"value": 1}]})),
        a_manifest(an_entry(algorithm={"inputs": {"a": 3}})),
        a_manifest(an_entry(algorithm={"environments": {"A-B": "x"}})),
        a_manifest(an_entry(algorithm={"environments": {"A": {"value": "x", "secret": True}}})),
        a_manifest(an_entry(algorithm={"environments": [{"name": "A", "value": "x", "secret": True}]})),
        a_manifest(an_entry(algorithm={"environments": [{"name": "A", "sensitive": True}]})),
        a_manifest(an_entry(algorithm={"environments": [{"name": "A-B", "value": "x"}]})),
        a_manifest(an_entry(algorithm={"environments": [{f"A{n}": 1} for n in range(101)]})),
        a_manifest(an_entry(tasks=[{"task_resource": {"flavor_id": "g"}}])),
        a_manifest(an_entry(raw={"status": {}})),
        a_manifest({"spec": "x"}),
        a_manifest({"spec": {"resource": {"node_count": "1${var.zero}"}}}),
        a_manifest({"spec": {"runtime_type": "$${var.x}"}}),
        a_manifest({"description": "x" * 257}),
        a_manifest({"algorithm": {"code_dir": "obs://b/no-directory"}}),
        a_manifest({"algorithm": {"outputs": {"a": "obs://b/no-directory"}}}),
        a_manifest({"algorithm": {"engine": {"engine_id": "e", "image_url": "i"}}}),
        a_manifest({"algorithm": {"id": "a", "subscription_id": "s"}}),
        a_manifest({"tasks": [{}], "spec": {"resource": {}}}),
        a_manifest({"spec": {"volumes": [{}]}}),
        a_manifest({"spec": {"volumes": [{"nfs": {}, "pfs": {}}]}}),
        a_manifest({"algorithm": {"inputs": {"a": {"remote": {"obs": {"obs_url": "/b"}, "dataset": {}}}}}}),
        a_manifest(targets={"t": {"kind": "local", "region": "r"}}),
        a_manifest(targets={"t": {"kind": "modelarts"}}),
        a_manifest(targets={"t": {"kind": "modelarts", "endpoint": "ftp://h"}}),
        a_manifest(targets={"t": {"kind": "modelarts", "region": "r", "workspace_id": "1"}}),
        a_manifest(an_entry(raw={"metadata": {"name": "x"}})),
        a_manifest(an_entry(matrix={"1x": [1]})),
        a_manifest(an_entry(matrix={"x": [1], "include": [{"": 1}]})),
        a_manifest(an_entry(matrix={"x": [1], "exclude": [{"a b": 1}]})),
    ],
)
def test_wrong_manifest_is_invalid_by_the_schema(manifest: Any) -> None:
    assert not is_valid(manifest)
