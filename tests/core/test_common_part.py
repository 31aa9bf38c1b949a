"""Defaults lifted out of entries, and entries merged over them, are what the entries were."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from reconciler.core.body import desugar, merge
from reconciler.core.entry import common_part

values = st.sampled_from(["a", "b", "1", 1, True])
names = st.sampled_from(["x", "y", "z"])
arguments = st.dictionaries(names, values | st.fixed_dictionaries({"value": values, "description": values}))
data = st.dictionaries(names, st.sampled_from(["obs://b/", "obs://c/"]))
entries = st.fixed_dictionaries(
    {},
    optional={
        "kind": st.sampled_from(["job", "mrs_job"]),
        "description": values,
        "annotations": st.dictionaries(names, values),
        "algorithm": st.fixed_dictionaries(
            {},
            optional={
                "id": values,
                "parameters": arguments | st.just([{"name": "an odd name", "value": "1"}]),
                "inputs": data,
                "outputs": data,
                "environments": st.dictionaries(names, values),
                "engine": st.fixed_dictionaries({}, optional={"engine_id": values, "image_url": values}),
            },
        ),
        "tasks": st.lists(st.fixed_dictionaries({"role": values}), max_size=2),
        "spec": st.dictionaries(names, st.dictionaries(names, values, min_size=1), min_size=1),
        "raw": st.fixed_dictionaries({"spec": st.dictionaries(names, values)}),
    },
)


def by_name(entry: dict[str, Any]) -> dict[str, Any]:
    """A desugared entry whose parameters are in one order, which means nothing; that of data does."""
    algorithm = entry.get("algorithm", {})
    if isinstance(parameters := algorithm.get("parameters"), list):
        ordered = sorted(parameters, key=lambda item: str(item["name"]))
        return {**entry, "algorithm": {**algorithm, "parameters": ordered}}
    return entry


def without_empty(tree: Any) -> Any:
    """The tree without empty mappings, which say nothing."""
    if isinstance(tree, dict):
        members = {name: without_empty(value) for name, value in tree.items()}
        return {name: value for name, value in members.items() if value != {}}
    return tree


@given(st.dictionaries(st.sampled_from("abcd"), entries, max_size=4))
def test_common_part_merged_with_the_rest_equals_each_entry(trees: dict[str, dict[str, Any]]) -> None:
    trees = {key: without_empty(tree) for key, tree in trees.items()}
    shared, rest = common_part(trees)
    for key, tree in trees.items():
        merged = merge(desugar(shared), desugar(rest[key]))
        assert by_name(merged) == by_name(desugar(tree))


def test_fields_of_all_entries_become_the_common_part_and_others_stay() -> None:
    one = {"description": "D", "spec": {"resource": {"flavor_id": "f", "node_count": 2}}}
    other = {"description": "D", "spec": {"resource": {"flavor_id": "f"}}}
    shared, rest = common_part(
        {
            "a": {**one, "algorithm": {"parameters": {"lr": "1", "n": "1"}}},
            "b": {**other, "algorithm": {"parameters": {"n": "1"}}},
        }
    )
    assert shared == {"spec": {"resource": {"flavor_id": "f"}}, "algorithm": {"parameters": {"n": "1"}}}
    assert rest == {
        "a": {
            "description": "D",
            "spec": {"resource": {"node_count": 2}},
            "algorithm": {"parameters": {"lr": "1"}},
        },
        "b": {"description": "D"},
    }


def test_order_of_data_is_kept() -> None:
    one, other = {"x": "obs://b/", "y": "obs://b/"}, {"y": "obs://b/", "x": "obs://b/"}
    shared, rest = common_part({"a": {"algorithm": {"inputs": one}}, "b": {"algorithm": {"inputs": other}}})
    assert shared == {}
    assert list(rest["b"]["algorithm"]["inputs"]) == ["y", "x"]


def test_single_entry_has_no_common_part() -> None:
    assert common_part({"a": {"kind": "mrs_job"}}) == ({}, {"a": {"kind": "mrs_job"}})
