"""From entry to desired jobs: templates, sweeps, needs, and errors."""

from __future__ import annotations

import textwrap
import time
from collections.abc import Mapping
from contextlib import suppress
from graphlib import CycleError, TopologicalSorter
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reconciler.core.body import merge
from reconciler.core.identity import room_for_description
from reconciler.core.stack import DesiredJob
from reconciler.errors import ManifestInvalid
from reconciler.manifest.jobs import Outputs
from reconciler.manifest.matrix import combinations, value_text
from reconciler.manifest.merge import cycles
from tests.manifest.conftest import DEFAULTS, HEAD, JOB, Place, marked, place_of

#: References to the output, in the job `train`.
USE = "${jobs.prepare.outputs.data}"


def manifest(jobs: str, more: str = "") -> str:
    return HEAD + more + DEFAULTS + "jobs:\n" + textwrap.indent(textwrap.dedent(jobs), "  ")


def with_templates(templates: str, jobs: str) -> str:
    return manifest(f"{jobs}\n", f"templates:\n{textwrap.indent(templates, '  ')}\n")


def jobs_of(place: Place, jobs: str) -> dict[str, DesiredJob]:
    place.write(manifest(jobs))
    return dict(place.load().stack.jobs)


def test_description_leaves_room_for_the_marker(place: Place) -> None:
    room = room_for_description("vision", "a")
    assert place.job(f"    description: {'x' * room}{JOB}").description == "x" * room
    place.write(f"{HEAD}jobs:\n  a:\n    description: {'x' * (room + 1)}{JOB}")
    problem = place.problem()
    assert (problem.what, place_of(problem)) == ("description too long", "main.yaml:5:18")
    assert f"it has {room + 1} characters" in problem.why
    assert f"at most {room} are allowed" in problem.why


@pytest.mark.parametrize("member", ["parameters", "inputs", "volumes", "environments", "annotations"])
@pytest.mark.parametrize("value", ["null", "[]", "{}", "[null]", "[{}]", "3", "x", "[[1]]", "{a: {b: 1}}"])
def test_odd_raw_is_accepted_or_refused(place: Place, member: str, value: str) -> None:
    for raw in (f"{{algorithm: {{{member}: {value}}}}}", f"{{spec: {{{member}: {value}}}}}"):
        place.write(f"{HEAD}jobs:\n  a:{JOB}    raw: {raw}\n")
        try:
            loaded: Any = place.load()
        except ManifestInvalid:
            continue
        assert loaded.stack.jobs["a"].digest


def test_overlong_value_of_a_named_item_is_reported_at_the_value(place: Place) -> None:
    place.write(f"{HEAD}defaults: {{algorithm: {{environments: [{{name: A, value: '${{var.v}}'}}]}}}}\n"
                f"variables: {{v: {{default: {'x' * 4097}}}}}\njobs:\n  a:{JOB}")  # fmt: skip
    problem = place.problem()
    assert marked(problem) == "'${var.v}'"
    assert "4096" in problem.why


# ── templates ──────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("last", ["{description: deep}", "{extends: t0}"])
def test_template_depth_is_bounded_only_by_file_size(place: Place, last: str) -> None:
    templates = [f"t{n}: {{extends: t{n + 1}}}" for n in range(3000)]
    place.write(with_templates("\n".join([*templates, f"t3000: {last}"]), "a: {extends: t0}"))
    if "extends" in last:
        assert [problem.what for problem in place.problems()] == ["template cycle"]
    else:
        assert place.load().stack.jobs["a"].description == "deep"


def test_many_templates_that_extend_each_other_are_merged_once_each(place: Place) -> None:
    """Each extends the two before it: naive merging would take billions of steps."""
    templates = "t0: {}\nt1: {}\n" + "".join(
        f"t{n}: {{extends: [t{n - 1}, t{n - 2}]}}\n" for n in range(2, 60)
    )
    place.write(with_templates(templates, "a: {extends: t59}"))
    assert list(place.load().stack.jobs) == ["a"]


def test_template_chain_shared_by_jobs_is_merged_once(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each template is merged once, for any number of templates and jobs."""
    merges: list[object] = []

    def counted(under: Mapping[str, Any], over: Mapping[str, Any]) -> dict[str, Any]:
        merges.append(over)
        return merge(under, over)

    def count(depth: int, jobs: int) -> int:
        templates = "".join(f"t{n}: {{extends: t{n - 1}}}\n" if n else "t0: {}\n" for n in range(depth))
        entries = "".join(f"j{n}: {{extends: t{depth - 1}}}\n" for n in range(jobs))
        place.write(with_templates(templates, entries))
        merges.clear()
        assert len(place.load().stack.jobs) == jobs
        return len(merges)

    monkeypatch.setattr("reconciler.manifest.jobs.merge", counted)
    per_job = count(1, 101) - count(1, 1)
    assert count(40, 101) - count(40, 1) == per_job


# ── sweeps ─────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0.01, "0_01"), (1e-3, "0_001"), (1e-7, "0_0000001"), (1.0, "1"), (1e20, "100000000000000000000"),
        (64, "64"), (-1, "_1"), (True, "true"), ("a b", "a_b"), ("0.10", "0_10"), ("ä", "_"), (100, "100"),
    ],
)  # fmt: skip
def test_number_in_a_key_is_its_shortest_decimal_form(value: Any, text: str) -> None:
    assert value_text(value) == text


@given(st.lists(st.integers() | st.floats(allow_nan=False, allow_infinity=False), unique=True, min_size=2))
def test_number_in_a_key_has_only_letters_digits_and_underscores(numbers: list[float]) -> None:
    for number in numbers:
        assert value_text(number).replace("_", "a").isalnum()


def test_added_axis_value_adds_its_members_only(place: Place) -> None:
    text = "a:\n  matrix: {lr: [%s], batch: [64, 128]}\n  algorithm: {parameters: {lr: '${matrix.lr}'}}\n"
    before, after = jobs_of(place, text % "1, 2"), jobs_of(place, text % "2, 3, 1")
    assert set(after) - set(before) == {"a-batch-64-lr-3", "a-batch-128-lr-3"}
    assert {key: after[key].digest for key in before} == {key: job.digest for key, job in before.items()}


def test_too_many_combinations_are_refused(place: Place) -> None:
    axes = ", ".join(f"a{n}: [1, 2, 3, 4, 5, 6, 7, 8, 9]" for n in range(40))
    place.write(manifest(f"a: {{matrix: {{{axes}}}}}"))
    (problem,) = place.problems()
    assert "at most 10,000 are allowed" in problem.why


@pytest.mark.parametrize("section", ["include", "exclude"])
def test_combinations_are_computed_in_linear_time(section: str) -> None:
    values = list(range(4000))
    listed: dict[str, list[dict[str, Any]]] = {"include": [], "exclude": []}
    listed[section] = [{"x": value + 0.5} for value in values]
    started = time.process_time()
    found = combinations({"x": values}, listed["include"], listed["exclude"])
    assert len(found) == 4000 + len(listed["include"])
    assert time.process_time() - started < 2


# ── needs and former keys ──────────────────────────────────────────────────────────────────────────


def test_needed_key_may_be_in_another_file_out_of_view(place: Place) -> None:
    place.write(HEAD + DEFAULTS)
    place.write("jobs: {a: {needs: b}}", "a/jobs.yaml")
    place.write("jobs: {b: {formerly: old}}", "b/jobs.yaml")
    stack = place.load("a").stack
    assert stack.jobs.keys() == {"a"}
    assert stack.whole.keys() == {"a", "b"}
    assert stack.former_keys == {"old"}
    assert (found := stack.find("b")) is not None
    assert found.key == "b"


def test_long_chain_is_no_cycle_and_needs_no_recursion(place: Place) -> None:
    chain = "".join(f"j{n}: {{needs: j{n + 1}}}\n" for n in range(1500)) + "j1500: {}\n"
    assert len(jobs_of(place, chain)) == 1501


def test_sweep_needing_a_sweep_loads_in_linear_time(place: Place) -> None:
    """Each member needs all members of the other: a million implicit pairs."""
    values = ", ".join(map(str, range(1_000)))
    jobs = jobs_of(place, f"a: {{matrix: {{x: [{values}]}}}}\nb: {{matrix: {{x: [{values}]}}, needs: a}}\n")
    assert len(jobs["b-x-1"].needs) == 1_000
    assert jobs["b-x-1"].needs is jobs["b-x-2"].needs


@given(
    st.dictionaries(
        st.sampled_from("abcdefgh"), st.lists(st.sampled_from("abcdefgh"), max_size=4, unique=True).map(tuple)
    )
)
def test_removing_the_found_cycles_leaves_none(graph: dict[str, tuple[str, ...]]) -> None:
    found = [(*cycle, cycle[0]) for cycle in cycles(graph, tuple("abcdefgh"))]
    assert len(set(found)) == len(found)
    closing = {pair for cycle in found for pair in pairwise(cycle)}
    assert all(below in graph[key] for key, below in closing)
    left = {key: {one for one in needs if (key, one) not in closing} for key, needs in graph.items()}
    TopologicalSorter(left).prepare()
    with suppress(CycleError):
        TopologicalSorter(graph).prepare()
        assert not found


# ── outputs of others ──────────────────────────────────────────────────────────────────────────────


PREPARE = "prepare: {algorithm: {outputs: {data: obs://b/data/}}}\n"


def algorithm(job: DesiredJob) -> dict[str, Any]:
    assert job.body is not None
    found: dict[str, Any] = job.body["algorithm"]
    return found


def test_paths_are_followed_through_a_chain_of_jobs(place: Place) -> None:
    count = 2_000
    chain = "".join(
        f'j{n}: {{algorithm: {{outputs: {{o: "${{jobs.j{n + 1}.outputs.o}}{"x/" if n < 3 else ""}"}}}}}}\n'
        for n in range(count)
    )
    jobs = jobs_of(place, chain + f"j{count}: {{algorithm: {{outputs: {{o: obs://b/}}}}}}\n")
    assert algorithm(jobs["j0"])["outputs"][0]["remote"]["obs"]["obs_url"] == "obs://b/x/x/x/"
    assert jobs["j0"].needs == ("j1",)


def test_reference_reaches_a_file_that_is_out_of_view(place: Place) -> None:
    place.write(manifest(PREPARE))
    place.write(f'jobs:\n  train: {{algorithm: {{inputs: {{data: "{USE}"}}}}}}\n', "train.yaml")
    stack = place.load("train.yaml").stack
    assert set(stack.jobs) == {"train"}
    assert algorithm(stack.jobs["train"])["inputs"][0]["remote"]["obs"]["obs_url"] == "obs://b/data/"


def test_path_of_many_outputs_expands_each_once(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[object] = []
    expanded = Outputs._expanded

    def counted(self: Outputs, *arguments: Any) -> Any:
        asked.append(arguments)
        return expanded(self, *arguments)

    monkeypatch.setattr(Outputs, "_expanded", counted)
    paths = "".join(f"${{jobs.j{n}.outputs.o}}" for n in range(100))
    jobs = "".join(f"j{n}: {{algorithm: {{outputs: {{o: obs://b/{n}/}}}}}}\n" for n in range(100))
    first = "first: {algorithm: {inputs: {i: '${jobs.middle.outputs.o}'}}}\n"
    middle = f'middle: {{algorithm: {{outputs: {{o: "{paths}"}}}}}}\n'
    place.write(manifest(first + middle + jobs))
    assert len(place.load().stack.jobs) == 102
    assert len(asked) < 1_000
