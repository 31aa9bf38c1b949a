"""`explain FIELD`: the effect of editing a field, by its path or a path suffix."""

from __future__ import annotations

import pytest

from reconciler.core.lifecycle import Lifecycle
from reconciler.core.schema import fields, find_fields
from reconciler.core.stack import JobEntry
from tests.cli.conftest import Reconciler

FIELDS = {one.path: one for one in fields()}


def test_every_field_of_an_entry_is_explained() -> None:
    names = {*JobEntry.model_fields, *(f"lifecycle.{name}" for name in Lifecycle.model_fields)}
    assert names - FIELDS.keys() == set()
    for path, field in FIELDS.items():
        assert find_fields(path) == (field,)
        assert field.edit, path
        assert field.description, path


@pytest.mark.parametrize(
    ("path", "names"),
    [
        ("lifecycle.on_change", "lifecycle.on_change on_change"),
        ("spec.resource.node_count", "resource.node_count"),
        ("algorithm.inputs[].name", "algorithm.inputs[].name algorithm.inputs[0].name algorithm.inputs.name"),
        *((name, name) for name in ("matrix", "needs", "raw")),
    ],
)
def test_field_is_found_by_path_or_unique_path_suffix(path: str, names: str) -> None:
    assert [find_fields(name) for name in names.split()] == [(FIELDS[path],)] * len(names.split())


def test_field_is_printed_with_its_subfields(reconciler: Reconciler) -> None:
    output = reconciler.ends(0, "explain key_pair_names").out
    assert output.splitlines()[2].split()[:3] == ["endpoints.ssh.key_pair_names", "update", "(huawei)"]
    output = reconciler.ends(0, "explain schedule_policy").out
    assert [line.split()[0] for line in output.splitlines()[2:4]] == [
        "spec.schedule_policy",
        "spec.schedule_policy.priority",
    ]
    assert "spec.resource" not in output


@pytest.mark.parametrize(
    ("path", "edit"),
    [
        ("lifecycle.rerun", "new job"),
        ("lifecycle.protect", "update (the marker in the description)"),
        ("needs", "nothing on the service; later plans use it"),
        ("spec.schedule_policy.priority", "update (huawei, while Pending)"),
        ("spec.resource.flavor_id", "new job"),
        ("spec.schedule_policy", "see its members"),
    ],
)
def test_effect_of_editing_a_field_is_documented(path: str, edit: str) -> None:
    assert FIELDS[path].edit == edit


def test_ambiguous_name_is_wrong_usage_and_lists_the_paths(reconciler: Reconciler) -> None:
    result = reconciler.ends(64, "explain node_count", out="", err='several fields are called "node_count"')
    assert "\n  spec.resource.node_count\n" in result.err
    assert "\n  tasks[].task_resource.node_count\n" in result.err


def test_misspelt_name_is_wrong_usage_with_the_nearest_field(reconciler: Reconciler) -> None:
    for typo, meant in (
        ("matrx", "matrix"),
        ("field", "fields"),
        ("on_chnge", "on_change"),
        ("spec.resource.node_cout", "spec.resource.node_count"),
    ):
        reconciler.ends(64, f"explain {typo}", err=f'Did you mean "{meant}"?')
    words = '"xyzzy" is not "states", "fields", "origin" or a field of a job.'
    reconciler.ends(64, "explain xyzzy", err=words, lacks="Did you mean")
