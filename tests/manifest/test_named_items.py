"""The list form of environments, `{name, value, sensitive}`; and names that a list has twice."""

from __future__ import annotations

import pytest

from tests.manifest.conftest import HEAD, JOB, Place, marked, place_of


def with_algorithm(text: str) -> str:
    return JOB.replace("engine:", f"{text}, engine:")


def test_defaults_of_two_files_are_merged_by_name_and_disagree_at_the_variable(place: Place) -> None:
    place.write("defaults: {algorithm: {environments: [{name: A, value: 1}]}}\n", "a.yaml")
    place.write("defaults:\n  algorithm:\n    environments:\n    - {name: A, value: 2}\n", "b.yaml")
    place.write(f"{HEAD}jobs:\n  a:{JOB}")
    problem = place.problem()
    assert (problem.what, place_of(problem)) == ("files disagree", "b.yaml:4:14")
    assert "a.yaml:1:46" in problem.why


def test_value_too_long_is_told_at_the_value_of_its_item(place: Place) -> None:
    place.write(f"{HEAD}defaults: {{algorithm: {{environments: [{{name: A, value: '${{var.v}}'}}]}}}}\n"
                f"variables: {{v: {{default: {'x' * 4097}}}}}\njobs:\n  a:{JOB}")  # fmt: skip
    problem = place.problem()
    assert marked(problem) == "'${var.v}'"
    assert "4096" in problem.why


# --- a name twice


@pytest.mark.parametrize("within", ["defaults", "templates"])
def test_name_twice_where_it_is_inherited_is_told_once_and_there(place: Place, within: str) -> None:
    part = "{algorithm: {parameters: [{name: A, value: 1}, {name: A, value: 2}]}}"
    head = f"defaults: {part}\n" if within == "defaults" else f"templates: {{t: {part}}}\n"
    extends = "" if within == "defaults" else "    extends: t\n"
    own = with_algorithm("parameters: {A: 3}").lstrip("\n")
    place.write(f"{HEAD}{head}jobs:\n  s:\n{extends}    matrix: {{x: [1, 2, 3]}}{JOB}  own:\n{extends}{own}")
    problem = place.problem()
    assert problem.what == "duplicate name"
    assert problem.path.startswith(within)


# --- what is sensitive stays so when it is merged
