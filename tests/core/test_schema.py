"""The schema that editors check manifests with: it takes what loads, and refuses what is misspelt."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest
from jsonschema import Draft202012Validator
from ruamel.yaml import YAML

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
    targets = re.findall(r'"\$ref": "#/\$defs/(\w+)"', json.dumps(SCHEMA))
    assert set(targets) <= SCHEMA["$defs"].keys()
    assert json.dumps(SCHEMA).count('"$ref"') == len(targets) > 100


def test_schema_defaults_are_written_as_in_a_manifest() -> None:
    assert SCHEMA["$defs"]["Lifecycle"]["properties"]["retry_delay"]["default"] == "2m"
    assert SCHEMA["$defs"]["Limits"]["properties"]["lost_time"]["default"] == "1h"
    assert SCHEMA["$defs"]["Resource"]["properties"]["node_count"]["default"] == 1


def manifests(text: str) -> list[Any]:
    """A manifest a line: `entry` is its only job, `job` one whose other members are those of `an_entry`."""
    found = []
    for line in text.replace("\\\n", "").strip().splitlines():
        said = YAML(typ="safe", pure=True).load(f"{{{line.partition('  # ')[0]}}}")
        entry = said.pop("entry", None) or an_entry(**said.pop("job", {}))
        found.append(pytest.param({"stack": "vision", "jobs": {"train": entry}, **said}, id=line))
    return found


VALID = manifests(
    """
jobs: null, targets: null, defaults: null
apiVersion: reconciler/v1, target: prod, \
    targets: {local: {kind: local}, prod: {kind: modelarts, region: cn-north-4, \
    project_id: "${env.HUAWEICLOUD_SDK_PROJECT_ID}", workspace_id: "0", cloud: huawei}}, \
    variables: {bucket: {default: [1]}, hf_token: {env: HF_TOKEN, sensitive: true}}, \
    limits: {terminations: 5, terminations_percent: 30, lost_time: "1h"}, policies: [], \
    defaults: {spec: {resource: {node_count: 1}}, algorithm: {inputs: {a: {local_dir: "/x"}}}}
entry: {state: absent}
entry: {state: absent, lifecycle: {protect: false}}
entry: {spec: {log_export_path: {obs_url: "obs://b/"}}}  # the rest comes from defaults
job: {lifecycle: {on_change: replace, max_retries: 2, retry_delay: "90s"}}
job: {lifecycle: {on_change: "${var.x}", max_retries: "${var.n}", protect: "${var.p}"}}
entry: {needs: a, formerly: [b, "${var.c}"]}
entry: {needs: [a, b], formerly: null}
entry: {needs: [], formerly: "${job.key}-old"}
records: "postgresql://me@db/app"
records: "sqlite:///records.db"
records: "${env.RECORDS}"
records: null
templates: {gpu.big: {extends: "base one"}, "base one": {}}
entry: {extends: [gpu.big, "${var.base}"]}
job: {spec: "${var.spec}", algorithm: {inputs: "${var.inputs}", engine: null}}
entry: {spec: {resource: {node_count: null}}, kind: null, lifecycle: null}
entry: {algorithm: {engine: {engine_id: null, image_url: i}}}
entry: {matrix: {lr: [0.1], include: [{lr: 1}], exclude: "${var.x}"}}
job: {raw: {anything: {goes: [1]}, metadata: {labels: {}}}}
job: {algorithm: {parameters: {lr: 0.1, n: null, s: {value: 1, sensitive: true}}}}
job: {algorithm: {parameters: [{name: lr, value: true}]}}
job: {algorithm: {inputs: {a: "obs://b/", c: {remote: {obs: {obs_url: "/b"}}}}}}
job: {algorithm: {outputs: [{name: a, remote: {obs: {obs_url: "/b/"}}}]}}
job: {algorithm: {environments: {A: 1, B: {value: x, sensitive: true}, C: null}}}
job: {algorithm: {environments: [{A: 1}, {B: b}]}}
job: {algorithm: {environments: [{name: A, value: 1, sensitive: true}]}}
job: {algorithm: {environments: [{name: A, value: null}, {B: 1}]}}
job: {algorithm: {environments: [{name: A}]}}
job: {spec: {resource: {node_count: "${var.nodes}"}, runtime_type: "${var.kind}"}}
job: {spec: null, kind: hetero_job, \
    tasks: [{algorithm: {job_config: {inputs: {a: "/b/x"}}}, task_resource: {node_count: 1}}]}
"""
)
INVALID = manifests(
    """
joob: {}
targets: {t: {region: r}}
variables: {v: {sensitive: "${var.x}"}}  # variables are not expanded
variables: {"1v": {}}
defaults: {spec: {resource: {node_cout: 1}}}
jobs: {"a b": {}}
jobs: {a-r2: {}}
entry: {needs: ["a b"]}
entry: {formerly: a-r2}
defaults: {needs: [a]}
defaults: {formerly: a}
records: "oracle://db"
job: {algorithm: {parameters: {lr: [1]}}}
job: {algorithm: {parameters: {"l r": 1}}}
job: {algorithm: {parameters: {lr: {valu: 1}}}}
job: {algorithm: {parameters: [{value: 1}]}}
job: {algorithm: {inputs: {a: 3}}}
job: {algorithm: {environments: {A-B: x}}}
job: {algorithm: {environments: {A: {value: x, secret: true}}}}
job: {algorithm: {environments: [{name: A, value: x, secret: true}]}}
job: {algorithm: {environments: [{name: A, sensitive: true}]}}
job: {algorithm: {environments: [{name: A-B, value: x}]}}
job: {tasks: [{task_resource: {flavor_id: g}}]}
job: {raw: {status: {}}}
entry: {spec: {resource: {node_count: "1${var.zero}"}}}
entry: {spec: {runtime_type: "$${var.x}"}}
entry: {algorithm: {outputs: {a: "obs://b/no-directory"}}}
entry: {algorithm: {engine: {engine_id: e, image_url: i}}}
entry: {algorithm: {id: a, subscription_id: s}}
entry: {tasks: [{}], spec: {resource: {}}}
entry: {spec: {volumes: [{}]}}
entry: {spec: {volumes: [{nfs: {}, pfs: {}}]}}
entry: {algorithm: {inputs: {a: {remote: {obs: {obs_url: "/b"}, dataset: {}}}}}}
targets: {t: {kind: local, region: r}}
targets: {t: {kind: modelarts}}
targets: {t: {kind: modelarts, endpoint: "ftp://h"}}
targets: {t: {kind: modelarts, region: r, workspace_id: "1"}}
job: {raw: {metadata: {name: x}}}
job: {matrix: {"1x": [1]}}
job: {matrix: {x: [1], include: [{"": 1}]}}
job: {matrix: {x: [1], exclude: [{"a b": 1}]}}
"""
)


@pytest.mark.parametrize("manifest", [{}, *VALID, a_manifest({"description": "${var.of_any_length}" * 20})])
def test_loadable_manifest_is_valid_by_the_schema(manifest: dict[str, Any]) -> None:
    assert [error.message for error in VALIDATOR.iter_errors(manifest)] == []


@pytest.mark.parametrize(
    "manifest",
    [
        [],
        *INVALID,
        a_manifest({"description": "x" * 257}),
        a_manifest(an_entry(algorithm={"environments": [{f"A{n}": 1} for n in range(101)]})),
    ],
)
def test_wrong_manifest_is_invalid_by_the_schema(manifest: Any) -> None:
    assert not VALIDATOR.is_valid(manifest)
