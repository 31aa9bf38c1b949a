"""`explain NAME`: each key of the manifest language, by its path or by the end of one."""

from __future__ import annotations

import re

import pytest
from ruamel.yaml import YAML

from reconciler.core.lifecycle import Lifecycle
from reconciler.core.schema import find_key, keys_below, language_keys, manifest_schema, properties, yaml_text
from reconciler.core.settings import Manifest, Variable
from reconciler.core.stack import JobEntry, Limits, Prices, TargetEntry
from tests.cli.conftest import Reconciler

KEYS = {key.path: key for key in language_keys()}


def test_every_key_of_the_models_is_explained() -> None:
    names = {
        *Manifest.model_fields,
        *JobEntry.model_fields,
        *(f"targets.NAME.{name}" for name in TargetEntry.model_fields),
        *(f"variables.NAME.{name}" for name in Variable.model_fields),
        *(f"limits.{name}" for name in Limits.model_fields),
        *(f"prices.{name}" for name in Prices.model_fields),
        *(f"lifecycle.{name}" for name in Lifecycle.model_fields),
    }
    assert names - KEYS.keys() == set()
    lasts = {path.rpartition(".")[2] for path in KEYS}
    assert {name for _, _, name in properties(manifest_schema())} - lasts == {"value", "sensitive"} - lasts


def test_key_says_type_example_edit_and_page() -> None:
    for path, key in KEYS.items():
        assert find_key(path) is key
        assert all((key.description, key.type, key.edit)), path
        assert re.fullmatch(r'docs/\w+\.md, "[^"]+"', key.see), path
        name = path.rpartition(".")[2]
        example = YAML(typ="safe", pure=True).load(f"{name}: {yaml_text(key.example)}")
        assert example == {name: key.example}


@pytest.mark.parametrize(
    ("path", "names"),
    [
        ("lifecycle.on_change", "lifecycle.on_change on_change"),
        ("limits.lost_time", "lost_time"),
        ("spec.resource.node_count", "resource.node_count"),
        ("targets.NAME.region", "targets.NAME.region targets.prod.region"),
        ("targets.NAME.variables", "targets.NAME.variables"),
        ("targets.NAME.defaults", "targets.prod.defaults"),
        ("spec.resource", "targets.prod.defaults.spec.resource templates.gpu.spec.resource"),
        ("spec", "defaults.spec"),
        ("needs", "jobs.train.needs"),
        ("variables.NAME.allowed", "allowed"),
        ("variables.NAME.default", "variables.bucket.default"),
        ("algorithm.inputs[].name", "algorithm.inputs[].name algorithm.inputs[0].name algorithm.inputs.name"),
        ("matrix.include", "matrix.include"),
        *((name, name) for name in ("matrix", "templates", "variables", "jobs", "defaults")),
    ],
)
def test_path_and_unique_end_of_a_path_mean_the_key(path: str, names: str) -> None:
    assert {find_key(name).path for name in names.split()} == {path}


def test_key_is_printed_with_what_is_known_of_it(reconciler: Reconciler) -> None:
    said = reconciler.ends(0, "explain retry_delay")
    assert said.out == (
        "lifecycle.retry_delay: Wait before the first retry; it doubles with each one.\n\n"
        "  type     text\n"
        "  limits   a duration such as 90s, 2m, 1h30m or 2d\n"
        "  default  2m\n"
        "  example  retry_delay: 5m\n"
        "  an edit  nothing on the service; the next plan goes by it\n"
        '  see      docs/manifest.md, "Lifecycle"\n'
    )


def test_keys_below_are_listed(reconciler: Reconciler) -> None:
    said = reconciler("explain limits").out
    assert all(f"\nlimits.{name} " in said for name in Limits.model_fields)
    expected = ["endpoints.ssh", "endpoints.ssh.key_pair_names"]
    assert [key.path for key in keys_below(find_key("endpoints"))] == expected


@pytest.mark.parametrize(
    ("path", "edit"),
    [
        ("lifecycle.rerun", "new job"),
        ("lifecycle.protect", "update (the marker in the description)"),
        ("formerly", "update (the marker in the description)"),
        ("lifecycle.on_failure", "nothing on the service; the next plan goes by it"),
        ("needs", "nothing on the service; the next plan goes by it"),
        ("raw", "new job"),
        ("description", "update (huawei, otc)"),
        ("spec.schedule_policy.priority", "update (huawei, while Pending)"),
        ("spec.resource.flavor_id", "new job"),
        ("spec.schedule_policy", "see its members"),
        ("targets.NAME.project_id", "other jobs are meant; those that were meant before are left alone"),
        ("targets.NAME.profile", "nothing on the service; the next plan goes by it"),
    ],
)
def test_edit_of_a_key_means(path: str, edit: str) -> None:
    assert KEYS[path].edit == edit


def test_ambiguous_name_is_wrong_use_and_lists_the_paths(reconciler: Reconciler) -> None:
    said = reconciler.ends(64, "explain node_count", out="", err='several keys are called "node_count"')
    assert "\n  spec.resource.node_count\n" in said.err
    assert "\n  tasks[].task_resource.node_count\n" in said.err


def test_misspelt_name_is_wrong_use_with_the_nearest_key(reconciler: Reconciler) -> None:
    for typo, meant in (
        ("matrx", "matrix"),
        ("limits.lost_tim", "limits.lost_time"),
        ("lost_tiem", "limits.lost_time"),
        ("spec.resource.node_cout", "spec.resource.node_count"),
    ):
        reconciler.ends(64, f"explain {typo}", err=f'Did you mean "{meant}"?')
    words = '"xyzzy" is not "states", "rules", "fields", "origin" or a key of a manifest.'
    reconciler.ends(64, "explain xyzzy", err=words, lacks="Did you mean")
