"""The schema that editors check manifests with: it takes what loads, and refuses what is misspelt."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
from jsonschema import Draft202012Validator

from reconciler.core.declared.schema import manifest_schema
from reconciler.core.declared.stack import JobEntry, Manifest

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


def test_it_is_a_schema_and_the_same_every_time() -> None:
    Draft202012Validator.check_schema(SCHEMA)
    assert json.dumps(manifest_schema()) == json.dumps(SCHEMA)
    assert SCHEMA["$schema"].endswith("2020-12/schema")
    assert "$id" not in SCHEMA
    assert list(SCHEMA["$defs"]) == sorted(SCHEMA["$defs"])


def test_every_field_is_described_and_no_unknown_one_allowed() -> None:
    for name, definition in SCHEMA["$defs"].items():
        if definition.get("type") == "object":
            assert definition["additionalProperties"] is False, name
            for field, schema in definition["properties"].items():
                # A reference without words of its own shows those of the model.
                assert schema.get("description") or "$ref" in schema, f"{name}.{field}"


def test_titles_say_nothing_and_are_left_out() -> None:
    assert not [schema for schema in objects(SCHEMA) if isinstance(schema.get("title"), str)]


def test_every_field_of_the_models_is_there() -> None:
    assert SCHEMA["properties"].keys() >= Manifest.model_fields.keys()
    assert SCHEMA["$defs"]["JobEntry"]["properties"].keys() == JobEntry.model_fields.keys()


def test_every_reference_leads_somewhere() -> None:
    targets = {schema["$ref"] for schema in objects(SCHEMA) if "$ref" in schema}
    assert {target.removeprefix("#/$defs/") for target in targets} <= SCHEMA["$defs"].keys()


def test_defaults_are_spelled_as_people_write_them() -> None:
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
        a_manifest(an_entry(raw={"anything": {"goes": [1]}, "metadata": {"labels": {}}})),
        a_manifest(
            an_entry(algorithm={"parameters": {"lr": 0.1, "n": None, "s": {"value": 1, "sensitive": True}}})
        ),
        a_manifest(an_entry(algorithm={"parameters": [{"name": "lr", "value": True}]})),
        a_manifest(
            an_entry(algorithm={"inputs": {"a": "obs://b/", "c": {"remote": {"obs": {"obs_url": "/b"}}}}})
        ),
        a_manifest(an_entry(algorithm={"outputs": [{"name": "a", "remote": {"obs": {"obs_url": "/b"}}}]})),
        a_manifest(
            an_entry(algorithm={"environments": {"A": 1, "B": {"value": "x", "sensitive": True}, "C": None}})
        ),
        a_manifest(an_entry(algorithm={"environments": [{"A": 1}, {"B": "b"}]})),
        a_manifest(
            an_entry(spec={"resource": {"node_count": "${var.nodes}"}, "runtime_type": "${var.kind}"})
        ),
        a_manifest(
            an_entry(
                tasks=[
                    {"algorithm": {"job_config": {"inputs": {"a": "x"}}}, "task_resource": {"node_count": 1}}
                ]
            )
        ),
    ],
)
def test_what_loads_is_valid(manifest: dict[str, Any]) -> None:
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
        a_manifest(an_entry(tasks=[{"task_resource": {"flavor_id": "g"}}])),
        a_manifest(an_entry(raw={"status": {}})),
        a_manifest(an_entry(raw={"metadata": {"name": "x"}})),
    ],
)
def test_what_is_wrong_is_refused(manifest: Any) -> None:
    assert not is_valid(manifest)
