"""The editors' manifest schema: it accepts what loads, and refuses misspelt names."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft202012Validator
from ruamel.yaml import YAML

from reconciler.core.schema import manifest_schema
from reconciler.core.settings import Manifest
from reconciler.core.stack import JobEntry
from reconciler.manifest.yaml import parse
from tests.manifest.test_stacks import sections

SCHEMA = manifest_schema()
VALIDATOR = Draft202012Validator(SCHEMA)


def an_entry(**changes: Any) -> dict[str, Any]:
    algorithm = {"code_dir": "obs://b/", "boot_file": "obs://b/t.py", "engine": {"engine_id": "pt"}}
    return {"algorithm": algorithm, "spec": {"resource": {"flavor_id": "g"}}, **changes}


def a_manifest(entry: Any = None, **changes: Any) -> dict[str, Any]:
    return {"stack": "vision", "jobs": {"train": an_entry() if entry is None else entry}, **changes}


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
            assert definition["description"], name


def test_schema_has_every_field_of_the_models() -> None:
    assert SCHEMA["properties"].keys() >= Manifest.model_fields.keys()
    assert SCHEMA["$defs"]["JobEntry"]["properties"].keys() == JobEntry.model_fields.keys()


def test_schema_references_resolve() -> None:
    targets = re.findall(r'"\$ref": "#/\$defs/(\w+)"', json.dumps(SCHEMA))
    assert set(targets) <= SCHEMA["$defs"].keys()
    assert json.dumps(SCHEMA).count('"$ref"') == len(targets) > 80


def manifests(text: str) -> list[Any]:
    """Parse a manifest per line: `entry` is its only job, `job` one completed with `an_entry`."""
    found = []
    for line in text.replace("\\\n", "").strip().splitlines():
        members = YAML(typ="safe", pure=True).load(f"{{{line.partition('  # ')[0]}}}")
        entry = members.pop("entry", None) or an_entry(**members.pop("job", {}))
        found.append(pytest.param({"stack": "vision", "jobs": {"train": entry}, **members}, id=line))
    return found


INVALID = manifests(
    """
joob: {}
targets: {t: {region: r}}
targets: {t: {kind: locl}}
variables: {v: {sensitive: "${var.x}"}}  # variables are not expanded
defaults: {spec: {resource: {node_cout: 1}}}
templates: {gpu: {spce: {}}}
limits: {lost_time: 3600}
policies: [{deny: "true"}]
notify: [{url: u, on: [vanished]}]
job: {algorithm: {parameters: [{nmae: lr}]}}
job: {algorithm: {parameters: {lr: {valu: 1}}}}
job: {tasks: [{task_resource: {flavour_id: g}}]}
job: {lifecycle: {on_change: replce}}
entry: {spec: {resource: {node_count: 0}}}
entry: {spec: {volumes: [{nfs: {path: x}}]}}
stack: Vision
variables: {a b: {default: x}}
jobs: {train.py: {state: absent}}
jobs: {train-R2: {state: absent}}
policies: [{name: a, deny: "true", warn: "true"}]
policies: [{name: a, warn: null}]
job: {matrix: {}}
job: {matrix: {lr: 1}}
job: {matrix: {lr: []}}
job: {matrix: {lr: [null]}}
job: {matrix: {l r: [1]}}
job: {matrix: {lr: [1], include: [{}]}}
job: {matrix: {lr: [1], exclude: {lr: 1}}}
templates: {t: {matrix: {lr: [1]}}}
defaults: {needs: [train]}
targets: {t: {kind: local, defaults: {targets: t}}}
"""
)


@pytest.mark.parametrize("manifest", [[], *INVALID])
def test_invalid_manifest_is_invalid_by_the_schema(manifest: Any) -> None:
    assert not VALIDATOR.is_valid(manifest)


def first_files(name: str) -> Iterator[tuple[Any, list[str]]]:
    """Return the first file of each manifest in a case file, and the lines after it."""
    for text, behind in (case for _, of_section in sections(name) for case in of_section):
        yield parse(text.partition("\n@ ")[0].encode(), Path("jobs.yaml"), "jobs.yaml").tree, behind


def test_schema_accepts_what_loads_and_refuses_every_unknown_key() -> None:
    loaded = [one for one, behind in first_files("loaded.txt") if any(line[0] == "=" for line in behind)]
    long = a_manifest({"description": "${var.of_any_length}" * 20})
    assert [one for one in (*loaded, {}, long) if not VALIDATOR.is_valid(one)] == []
    # Lists of environments are not checked.
    unknown = re.compile(r"> \d+:\d+ (?!.*\.environments\[).* unknown field: ")
    wrong = [one for one, behind in first_files("refused.txt") if any(map(unknown.match, behind))]
    assert [one for one in wrong if VALIDATOR.is_valid(one)] == []
