"""What one job says of others: needs and former keys, and every way in which they cannot be meant."""

from __future__ import annotations

import json
import textwrap
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from reconciler.core.stack import DesiredJob
from reconciler.errors import Diagnostic, ManifestInvalid
from reconciler.manifest import load
from tests.manifest.conftest import DEFAULTS, HEAD, Place


def jobs_of(place: Place, text: str) -> dict[str, DesiredJob]:
    place.write(HEAD + DEFAULTS + "jobs:\n" + textwrap.indent(textwrap.dedent(text), "  "))
    return dict(place.load().stack.jobs)


def test_a_needed_key_may_be_declared_in_another_file_and_be_out_of_view(place: Place) -> None:
    place.write(HEAD + DEFAULTS)
    place.write("jobs: {a: {needs: b}}", "a/jobs.yaml")
    place.write("jobs: {b: {formerly: old}}", "b/jobs.yaml")
    stack = place.load("a").stack
    assert stack.jobs.keys() == {"a"}
    assert stack.whole.keys() == {"a", "b"}
    assert stack.former_keys == {"old"}
    assert (found := stack.find("b")) is not None
    assert found.key == "b"


def test_a_long_chain_is_no_cycle_and_no_recursion(place: Place) -> None:
    chain = "".join(f"j{n}: {{needs: j{n + 1}}}\n" for n in range(1500)) + "j1500: {}\n"
    assert len(jobs_of(place, chain)) == 1501


def test_sweep_that_needs_a_sweep_costs_what_both_cost(place: Place) -> None:
    """Each member needs all members of the other: a million pairs that nobody writes down."""
    values = ", ".join(map(str, range(1_000)))
    jobs = jobs_of(place, f"a: {{matrix: {{x: [{values}]}}}}\nb: {{matrix: {{x: [{values}]}}, needs: a}}\n")
    assert len(jobs["b-x-1"].needs) == 1_000
    assert jobs["b-x-1"].needs is jobs["b-x-2"].needs


@settings(max_examples=100)
@given(st.dictionaries(st.sampled_from("abcdefgh"), st.lists(st.sampled_from("abcdefgh"), max_size=4)))
def test_without_the_items_that_are_told_nothing_goes_in_circles(
    tmp_path_factory: pytest.TempPathFactory, graph: dict[str, list[str]]
) -> None:
    root = tmp_path_factory.mktemp("stack")
    for _ in range(2):
        jobs = {key: {"state": "absent", "needs": graph.get(key, [])} for key in "abcdefgh"}
        (root / "main.yaml").write_text(json.dumps({"stack": "s", "jobs": jobs}))
        problems: tuple[Diagnostic, ...] = ()
        try:
            load([root], environ={})
        except ManifestInvalid as error:
            problems = error.diagnostics
        told = [problem.why.partition(",")[0].split(" needs ") for problem in problems]
        assert len({tuple(cycle) for cycle in told}) == len(told)
        for cycle in told:
            assert cycle[0] == cycle[-1]
            assert all(below in graph[key] for key, below in pairwise(cycle))
        if not _goes_in_circles(graph):
            assert not told
            return
        assert told
        graph = {key: [n for n in needs if not _closes(told, key, n)] for key, needs in graph.items()}
    assert not _goes_in_circles(graph)


def _closes(cycles: list[list[str]], key: str, below: str) -> bool:
    return any((key, below) in pairwise(cycle) for cycle in cycles)


def _goes_in_circles(graph: dict[str, list[str]]) -> bool:
    left = {key: set(needs) for key, needs in graph.items()}
    while free := [key for key, needs in left.items() if not needs & left.keys()]:
        for key in free:
            del left[key]
    return bool(left)
