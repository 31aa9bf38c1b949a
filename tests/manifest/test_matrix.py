"""Sweeps: one entry, one job for each combination of its axes."""

from __future__ import annotations

import textwrap
import time
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reconciler.core.stack import DesiredJob
from reconciler.manifest.matrix import combinations, value_text
from tests.manifest.conftest import DEFAULTS, HEAD, Place


def manifest(text: str) -> str:
    return HEAD + DEFAULTS + "jobs:\n" + textwrap.indent(textwrap.dedent(text), "  ")


def jobs_of(place: Place, text: str, **options: Any) -> dict[str, DesiredJob]:
    place.write(manifest(text))
    return dict(place.load(**options).stack.jobs)


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0.01, "0_01"), (1e-3, "0_001"), (1e-7, "0_0000001"), (1.0, "1"), (1e20, "100000000000000000000"),
        (64, "64"), (-1, "_1"), (True, "true"), ("a b", "a_b"), ("0.10", "0_10"), ("ä", "_"), (100, "100"),
    ],
)  # fmt: skip
def test_value_in_a_name_is_its_shortest_decimal_form(value: Any, text: str) -> None:
    assert value_text(value) == text


@given(st.lists(st.integers() | st.floats(allow_nan=False, allow_infinity=False), unique=True, min_size=2))
def test_name_of_a_number_has_only_letters_digits_and_underscores(numbers: list[float]) -> None:
    for number in numbers:
        assert value_text(number).replace("_", "a").isalnum()


def test_adding_a_value_adds_its_members_and_changes_no_other(place: Place) -> None:
    text = "a:\n  matrix: {lr: [%s], batch: [64, 128]}\n  algorithm: {parameters: {lr: '${matrix.lr}'}}\n"
    before, after = jobs_of(place, text % "1, 2"), jobs_of(place, text % "2, 3, 1")
    assert set(after) - set(before) == {"a-batch-64-lr-3", "a-batch-128-lr-3"}
    assert {key: after[key].digest for key in before} == {key: job.digest for key, job in before.items()}


@pytest.mark.parametrize("values", ["[1, '1']", "[a.b, a_b]", "[1, 1.0]", "[x, X]"])
@pytest.mark.parametrize("name", ["", ", name: 's-${matrix.x}'"])
def test_clash_of_values_that_keys_spell_alike_says_a_way_out_that_works(
    place: Place, values: str, name: str
) -> None:
    place.write(manifest(f"a: {{matrix: {{x: {values}}}{name}}}"))
    (problem,) = place.problems()
    assert problem.fix is not None
    assert "let another axis name the jobs and give each its value with include" in problem.fix
    include = "id: [a, b], include: [{id: a, x: 1}, {id: b, x: '1'}]"
    assert set(jobs_of(place, f"a: {{matrix: {{{include}}}, description: 'x is ${{matrix.x}}'}}\n")) == {
        "a-id-a",
        "a-id-b",
    }


def test_more_combinations_than_anybody_means_are_refused_at_once(place: Place) -> None:
    axes = ", ".join(f"a{n}: [1, 2, 3, 4, 5, 6, 7, 8, 9]" for n in range(40))
    place.write(manifest(f"a: {{matrix: {{{axes}}}}}"))
    (problem,) = place.problems()
    assert "at most 10,000 are allowed" in problem.why


@pytest.mark.parametrize("section", ["include", "exclude"])
def test_combinations_are_found_without_comparing_each_with_each(section: str) -> None:
    values = list(range(4000))
    listed: dict[str, list[dict[str, Any]]] = {"include": [], "exclude": []}
    listed[section] = [{"x": value + 0.5} for value in values]
    started = time.process_time()
    found = combinations({"x": values}, listed["include"], listed["exclude"])
    assert len(found) == 4000 + len(listed["include"])
    assert time.process_time() - started < 2
