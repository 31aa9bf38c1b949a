"""What holds for every manifest: it loads or is refused with places, and meaning decides the digest."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from reconciler.errors import Diagnostic, ManifestInvalid
from reconciler.manifest import load
from tests.manifest.conftest import HEAD

MANIFEST = """\
stack: vision
target: prod
targets:
  local: {kind: local}
  prod: {kind: modelarts, region: cn-north-4, project_id: "${env.PROJECT}"}
variables:
  bucket: {default: data}
  token: {env: TOKEN, sensitive: true}
limits: {lost_time: 1h}
records: postgresql://me:${var.token}@${env.DB}/app
defaults: &d
  spec: {resource: {flavor_id: gpu, node_count: 1}}
jobs:
  train:
    description: about ${job.key}
    algorithm:
      code_dir: obs://${var.bucket}/code/
      boot_file: obs://${var.bucket}/code/train.py
      engine: {engine_id: pt}
      parameters: {lr: 0.1, epochs: 3, secret: {value: x, sensitive: true}}
      inputs: [{name: data, remote: {obs: {obs_url: obs://b/}}}]
      environments: [{TOKEN: "${var.token}"}]
    spec: {volumes: [{nfs: {nfs_server_path: "a:/", local_path: /a}}]}
    raw: {spec: {extra: 1}, algorithm: {parameters: {z: 1}}}
  tasks:
    <<: *d
    spec:
    kind: hetero_job
    tasks: [{role: w, algorithm: {environments: {A: 1}}, task_resource: {node_count: 1}}]
    needs: [train, gone]
    formerly: chores
  gone: {state: absent, formerly: [went]}
"""
PIECES = st.sampled_from(
    [
        *"{}[]:,-?|>#%&*!'\"~@` \t\n\r\0\u2028\ufdd0é",
        *("<<:", "&a", "*a", "*d", "!!int", "!x", ": ", "- ", "---\n", "\n  ", "  a: 1\n", "spec: 3\n"),
        *("${", "$${", "${var.bucket}", "${var.token}", "${job.key}", "${var.none}", "null", "true", "0"),
        *("needs", "formerly", "train", "tasks", "records: postgresql://a:b@c", "[train, went]"),
        *("1e999", ".nan", "obs://", "raw", "metadata", "spec", "tasks", "parameters", "inputs", "name"),
    ]
)


def loads_or_says_where(root: Path, text: str) -> None:
    (root / "main.yaml").write_bytes(text.encode())
    problems: tuple[Diagnostic, ...] = ()
    try:
        load([root / "main.yaml"], environ={"TOKEN": "hunter2!", "PROJECT": "p"})
    except ManifestInvalid as error:
        problems = error.diagnostics or (Diagnostic("said nothing"),)
    for problem in problems:
        assert problem.what
        assert problem.location is not None
        assert problem.location.line >= 1
        assert problem.location.column >= 1
        assert "hunter2!" not in repr(problem)


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("stack")


def test_manifest_that_is_varied_is_valid(root: Path) -> None:
    (root / "main.yaml").write_text(MANIFEST)
    assert load([root], environ={"TOKEN": "hunter2!"}).stack.jobs.keys() == {"train", "tasks", "gone"}


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.text(st.characters(exclude_categories=["Cs"])) | st.lists(PIECES).map("".join))
def test_any_text_loads_or_is_refused_with_a_place(root: Path, text: str) -> None:
    loads_or_says_where(root, "stack: vision\n" + text)


@settings(max_examples=400, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    st.lists(
        st.tuples(st.integers(0, len(MANIFEST)), st.integers(0, 30), st.lists(PIECES, max_size=3)),
        min_size=1,
        max_size=3,
    )
)
def test_any_damage_to_a_manifest_is_refused_with_a_place(
    root: Path, damage: list[tuple[int, int, list[str]]]
) -> None:
    text = MANIFEST
    for start, length, pieces in damage:
        text = text[:start] + "".join(pieces) + text[start + length :]
    loads_or_says_where(root, text)


VALUES: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=6,
)
FIELDS = st.sampled_from(
    [
        *("kind", "description", "annotations", "algorithm", "tasks", "spec", "lifecycle", "state", "raw"),
        *("resource", "parameters", "inputs", "outputs", "environments", "engine", "volumes", "metadata"),
        *("name", "value", "sensitive", "remote", "obs", "obs_url", "local_path", "nfs", "endpoints"),
        *("needs", "formerly"),
    ]
)
TREES = st.recursive(
    VALUES,
    lambda inner: st.dictionaries(FIELDS, inner, max_size=4) | st.lists(inner, max_size=2),
    max_leaves=12,
)


@settings(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.dictionaries(FIELDS, TREES, max_size=4), st.dictionaries(FIELDS, TREES, max_size=2))
def test_any_tree_of_an_entry_loads_or_is_refused(
    root: Path, entry: dict[str, Any], defaults: dict[str, Any]
) -> None:
    tree = {"stack": "s", "defaults": defaults, "jobs": {"a": entry}}
    loads_or_says_where(root, json.dumps(tree, ensure_ascii=False).replace("Infinity", ".inf"))


# Digests follow the meaning, and nothing else.

ENTRIES = st.fixed_dictionaries(
    {
        "algorithm": st.fixed_dictionaries(
            {
                "code_dir": st.just("obs://b/code/"),
                "boot_file": st.just("obs://b/code/train.py"),
                "engine": st.just({"engine_id": "pt"}),
                "parameters": st.dictionaries(
                    st.from_regex(r"[a-z]{1,4}", fullmatch=True),
                    st.integers() | st.booleans() | st.from_regex("[a-z]{0,4}", fullmatch=True),
                ),
                "inputs": st.dictionaries(
                    st.sampled_from(["x", "y", "z"]), st.sampled_from(["obs://b/x/", "obs://b/y/"])
                ),
                "environments": st.dictionaries(st.sampled_from(["A", "B", "C"]), st.integers()),
            }
        ),
        "spec": st.fixed_dictionaries(
            {"resource": st.fixed_dictionaries({"flavor_id": st.just("g"), "node_count": st.integers(1, 9)})}
        ),
    }
)


def reordered(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {key: reordered(value[key]) for key in reversed(list(value))}
    return value


def as_lists(entry: Mapping[str, Any]) -> dict[str, Any]:
    algorithm = entry["algorithm"]
    return {
        **entry,
        "algorithm": {
            **algorithm,
            "parameters": [{"name": name, "value": value} for name, value in algorithm["parameters"].items()],
            "environments": [
                {name: str(value)} if value % 2 else {"name": name, "value": value}
                for name, value in algorithm["environments"].items()
            ],
        },
    }


def without_prefixes(entry: Mapping[str, Any]) -> Any:
    return json.loads(json.dumps(entry).replace("obs:/", ""))


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(ENTRIES)
def test_digests_do_not_see_order_form_or_prefix(root: Path, entry: dict[str, Any]) -> None:
    variants = [
        entry,
        reordered(entry),
        as_lists(entry),
        without_prefixes(entry),
        {**entry, "description": "x"},
    ]
    jobs = {f"j{number}": variant for number, variant in enumerate(variants)}
    (root / "main.yaml").write_text(HEAD + json.dumps({"jobs": jobs})[1:-1] + "\n")
    loaded = load([root / "main.yaml"], environ={})
    assert len({job.digest for job in loaded.stack.jobs.values()}) == 1
