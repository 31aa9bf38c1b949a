"""Sweeps: one entry, one job for each combination of its axes."""

from __future__ import annotations

import textwrap
import time
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reconciler.core.stack import DesiredJob
from reconciler.manifest.matrix import _Matrix, value_text
from tests.manifest.conftest import HEAD, JOB, Place, marked, place_of

DEFAULTS = f"defaults:\n{textwrap.indent(textwrap.dedent(JOB).strip(), '  ')}\n"


def manifest(text: str) -> str:
    return HEAD + DEFAULTS + "jobs:\n" + textwrap.indent(textwrap.dedent(text), "  ")


def jobs_of(place: Place, text: str, **options: Any) -> dict[str, DesiredJob]:
    place.write(manifest(text))
    return dict(place.load(**options).stack.jobs)


def parameters(job: DesiredJob) -> dict[str, Any]:
    assert job.body is not None
    return {one["name"]: one["value"] for one in job.body["algorithm"]["parameters"]}


def test_members_are_named_by_their_values_with_the_axes_in_alphabetical_order(place: Place) -> None:
    assert list(jobs_of(place, "lr-sweep: {matrix: {lr: [0.1, 0.01], batch: [64, 128]}}")) == [
        "lr-sweep-batch-64-lr-0_1",
        "lr-sweep-batch-128-lr-0_1",
        "lr-sweep-batch-64-lr-0_01",
        "lr-sweep-batch-128-lr-0_01",
    ]


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0.01, "0_01"), (1e-3, "0_001"), (1e-7, "0_0000001"), (1.0, "1"), (1e20, "100000000000000000000"),
        (64, "64"), (-1, "_1"), (True, "true"), ("a b", "a_b"), ("0.10", "0_10"), ("ä", "_"), (100, "100"),
    ],
)  # fmt: skip
def test_value_in_a_name_is_its_shortest_decimal_form(value: Any, text: str) -> None:
    assert value_text(value) == text


@pytest.mark.parametrize("spelling", ["0.10", "1e-1", ".1", "0.1"])
def test_spelling_of_a_number_changes_no_name(place: Place, spelling: str) -> None:
    assert list(jobs_of(place, f"a: {{matrix: {{lr: [{spelling}]}}}}")) == ["a-lr-0_1"]


@given(st.lists(st.integers() | st.floats(allow_nan=False, allow_infinity=False), unique=True, min_size=2))
def test_name_of_a_number_has_only_letters_digits_and_underscores(numbers: list[float]) -> None:
    for number in numbers:
        assert value_text(number).replace("_", "a").isalnum()


def test_values_keep_their_type_and_spelling_where_they_are_used(place: Place) -> None:
    text = """\
        a:
          matrix: {n: [2], fast: [true], lr: [1e-2]}
          spec: {resource: {node_count: "${matrix.n}"}}
          algorithm: {parameters: {fast: "${matrix.fast}", lr: "${matrix.lr}", text: "x${matrix.n}"}}
        """
    (job,) = jobs_of(place, text).values()
    assert job.body is not None
    assert job.body["spec"]["resource"]["node_count"] == 2
    assert parameters(job) == {"fast": "true", "lr": "1e-2", "text": "x2"}


def test_name_that_is_null_is_none(place: Place) -> None:
    assert list(jobs_of(place, "a: {matrix: {x: [1]}, name: null}\n")) == ["a-x-1"]


def test_defaults_and_job_key_know_the_member(place: Place) -> None:
    place.write(
        HEAD
        + DEFAULTS.replace("    code_dir", "    code_dir")
        + "jobs:\n  a:\n    matrix: {lr: [1, 2]}\n    description: ${job.key} with ${matrix.lr}\n"
    )
    jobs = place.load().stack.jobs
    assert [job.description for job in jobs.values()] == ["a-lr-1 with 1", "a-lr-2 with 2"]


def test_axis_in_defaults_is_refused_for_an_entry_without_it(place: Place) -> None:
    place.write(
        HEAD + DEFAULTS + "  description: lr ${matrix.lr}\njobs:\n  a: {matrix: {lr: [1]}}\n  b: {}\n"
    )
    (problem,) = place.problems()
    assert problem.what == "invalid expression"
    assert "only in an entry with a matrix" in problem.why


def test_adding_a_value_adds_its_members_and_changes_no_other(place: Place) -> None:
    text = "a:\n  matrix: {lr: [%s], batch: [64, 128]}\n  algorithm: {parameters: {lr: '${matrix.lr}'}}\n"
    before, after = jobs_of(place, text % "1, 2"), jobs_of(place, text % "2, 3, 1")
    assert set(after) - set(before) == {"a-batch-64-lr-3", "a-batch-128-lr-3"}
    assert {key: after[key].digest for key in before} == {key: job.digest for key, job in before.items()}


@pytest.mark.parametrize(
    ("matrix", "keys"),
    [
        ("{x: [1, 2], y: [3, 4], exclude: [{x: 1, y: 3}]}", ["a-x-1-y-4", "a-x-2-y-3", "a-x-2-y-4"]),
        ("{x: [1, 2], y: [3, 4], exclude: [{x: 1}]}", ["a-x-2-y-3", "a-x-2-y-4"]),
        ("{x: [0.10, 2], exclude: [{x: 0.1}]}", ["a-x-2"]),
        ("{x: [1, true], exclude: [{x: true}]}", ["a-x-1"]),
        ("{x: [1], include: [{x: 5}]}", ["a-x-1", "a-x-5"]),
        ("{x: [1], y: [2], include: [{x: 5, y: 6}]}", ["a-x-1-y-2", "a-x-5-y-6"]),
        ("{x: [1, 2], include: [{x: 1, z: 9}]}", ["a-x-1", "a-x-2"]),
        ("{include: [{x: 1}, {x: 2}]}", ["a-x-1", "a-x-2"]),
        ("{x: [1, 2], exclude: [{x: 1}], include: [{x: 1}]}", ["a-x-1", "a-x-2"]),
    ],
)
def test_exclude_takes_away_and_include_adds(place: Place, matrix: str, keys: list[str]) -> None:
    assert sorted(jobs_of(place, f"a: {{matrix: {matrix}}}")) == sorted(keys)


def test_include_gives_a_value_to_the_combinations_that_it_names_and_renames_none(place: Place) -> None:
    text = """\
        a:
          matrix: {x: [1, 2], include: [{x: 1, epochs: 9}, {epochs: 3}]}
          algorithm: {parameters: {epochs: "${matrix.epochs}"}}
        """
    jobs = jobs_of(place, text)
    assert {key: parameters(job)["epochs"] for key, job in jobs.items()} == {"a-x-1": "3", "a-x-2": "3"}


def test_name_spells_the_keys(place: Place) -> None:
    text = 'a: {matrix: {lr: [0.1], batch: [64]}, name: "s-${matrix.lr}-${matrix.batch}"}'
    assert list(jobs_of(place, text)) == ["s-0_1-64"]


def test_axes_may_be_made_of_variables(place: Place) -> None:
    place.write(
        HEAD
        + "variables: {rates: {default: [0.1, 0.2]}, big: {default: 128}}\n"
        + DEFAULTS
        + "jobs:\n  a: {matrix: {lr: '${var.rates}', batch: [64, '${var.big}']}}\n"
    )
    assert len(place.load().stack.jobs) == 4


def test_needs_on_an_entry_means_all_its_members_and_on_a_member_that_one(place: Place) -> None:
    jobs = jobs_of(place, "a: {matrix: {x: [1, 2]}}\nb: {needs: a}\nc: {needs: [a-x-2, b]}\n")
    assert jobs["b"].needs == ("a-x-1", "a-x-2")
    assert jobs["c"].needs == ("a-x-2", "b")


def test_members_may_need_one_another_by_their_values(place: Place) -> None:
    text = "a: {matrix: {x: [1, 2]}}\nb: {matrix: {x: [1, 2]}, needs: 'a-x-${matrix.x}'}\n"
    jobs = jobs_of(place, text)
    assert (jobs["b-x-1"].needs, jobs["b-x-2"].needs) == (("a-x-1",), ("a-x-2",))


def test_former_keys_are_spelled_with_the_values(place: Place) -> None:
    jobs = jobs_of(place, "a: {matrix: {x: [1, 2]}, formerly: 'old-${matrix.x}'}\n")
    assert [job.formerly for job in jobs.values()] == [("old-1",), ("old-2",)]


@pytest.mark.parametrize("section", ["needs: 'a-x-${matrix.x}'", "needs: [b, 'a-x-${matrix.x}']"])
def test_needed_member_is_found_by_values_that_keys_spell_in_another_way(place: Place, section: str) -> None:
    text = f"a: {{matrix: {{x: [0.01, k-v]}}}}\nb: {{}}\nc: {{matrix: {{x: [0.01, k-v]}}, {section}}}\n"
    jobs = jobs_of(place, text)
    assert (jobs["c-x-0_01"].needs[-1], jobs["c-x-k_v"].needs[-1]) == ("a-x-0_01", "a-x-k_v")


def test_needed_job_that_has_the_very_value_in_its_name_goes_before_a_member(place: Place) -> None:
    text = "prep-k-v: {}\nprep: {matrix: {x: [k-v]}, name: 'prep-${matrix.x}'}\n"
    jobs = jobs_of(place, text + "a: {matrix: {x: [k-v]}, needs: 'prep-${matrix.x}'}\n")
    assert jobs["a-x-k_v"].needs == ("prep-k-v",)


def test_former_key_is_the_value_itself_or_as_keys_spell_it(place: Place) -> None:
    jobs = jobs_of(place, "a: {matrix: {x: [0.01, k-v]}, formerly: 'old-${matrix.x}'}\n")
    assert [job.formerly for job in jobs.values()] == [("old-0_01",), ("old-k-v", "old-k_v")]


@pytest.mark.parametrize(
    ("text", "what", "text_at"),
    [
        ("a: {matrix: {x: []}}", "invalid matrix", "x"),
        ("a: {matrix: {}}", "invalid matrix", "matrix"),
        ("a: {matrix: [1]}", "invalid matrix", None),
        ("a: {matrix: }", "invalid matrix", None),
        ("a: {matrix: {x: 1}}", "invalid matrix", "1"),
        ("a: {matrix: {x: [{}]}}", "wrong type", "{"),
        ("a: {matrix: {x: [null]}}", "wrong type", "null"),
        ("a: {matrix: {x y: [1]}}", "invalid key", None),
        ("a: {matrix: {x: [1], include: {x: 1}}}", "invalid matrix", None),
        ("a: {matrix: {x: [1], exclude: [{z: 1}]}}", "unknown axis", "1"),
        ("a: {matrix: {x: [1], exclude: [{x: 1}]}}", "invalid matrix", None),
        ("a: {matrix: {x: [1, 1.0]}}", "duplicate key", None),
        ("a: {matrix: {x: [A, a]}}", "duplicate key", None),
        ("a-x-1: {}\na: {matrix: {x: [1]}}", "duplicate key", None),
        ("a: {matrix: {x: [" + "b" * 60 + "]}}", "invalid key", None),
        ("a: {matrix: {x: [1]}, name: fixed}", "invalid name", "fixed"),
        ("a: {matrix: {x: [1]}, name: '${matrix.x}-${matrix.z}'}", "invalid expression", None),
        ("a: {name: b}", "name without matrix", "b"),
        ("a: {matrix: {x: [1]}, description: '${matrix.z}'}", "invalid expression", "${matrix.z}"),
        ("a: {matrix: {x: ['${var.no}']}}", "unknown variable", "${var.no}"),
        ("a: {matrix: {x: [1]}, needs: a}", "dependency cycle", "a"),
    ],
)
def test_matrix_that_cannot_be_meant_is_refused_where_it_stands(
    place: Place, text: str, what: str, text_at: str | None
) -> None:
    place.write(manifest(text))
    problems = place.problems()
    assert [problem.what for problem in problems] == [what]
    assert place_of(problems[0]).startswith("main.yaml:")
    if text_at is not None:
        assert marked(problems[0]) == text_at


def test_clash_names_both_combinations(place: Place) -> None:
    place.write(manifest("a: {matrix: {x: [a.b, a_b]}}"))
    (problem,) = place.problems()
    assert '{x: "a_b"} and {x: "a.b"}' in problem.why


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


def test_clash_with_another_entry_says_that_name_spells_the_keys(place: Place) -> None:
    place.write(manifest("a-x-1: {}\na: {matrix: {x: [1]}}"))
    (problem,) = place.problems()
    assert problem.fix is not None
    assert "set name:" in problem.fix


@pytest.mark.parametrize("name", ["matrix: {x: [1]}", "name: b"])
def test_defaults_take_no_sweep(place: Place, name: str) -> None:
    place.write(HEAD + DEFAULTS + f"  {name}\njobs: {{a: {{}}}}\n")
    assert [problem.what for problem in place.problems()] == ["not allowed in defaults"]


def test_more_combinations_than_anybody_means_are_refused_at_once(place: Place) -> None:
    axes = ", ".join(f"a{n}: [1, 2, 3, 4, 5, 6, 7, 8, 9]" for n in range(40))
    place.write(manifest(f"a: {{matrix: {{{axes}}}}}"))
    (problem,) = place.problems()
    assert "at most 10,000 are allowed" in problem.why


def test_secret_names_no_job(place: Place) -> None:
    place.write(
        HEAD
        + "variables: {key: {env: KEY, sensitive: true}}\n"
        + DEFAULTS
        + "jobs: {a: {matrix: {x: ['${var.key}']}}}\n"
    )
    (problem,) = place.problems(environ={"KEY": "hunter2-hunter2"})
    assert problem.what == "secret not allowed here"
    assert "hunter2" not in str(problem)


def test_secret_in_the_spelling_of_names_is_refused(place: Place) -> None:
    place.write(
        HEAD
        + "variables: {key: {env: KEY, sensitive: true}}\n"
        + DEFAULTS
        + "jobs: {a: {matrix: {x: [1]}, name: 'a-${matrix.x}-${var.key}'}}\n"
    )
    (problem,) = place.problems(environ={"KEY": "hunter2-hunter2"})
    assert problem.what == "secret not allowed here"
    assert marked(problem) == "'a-${matrix.x}-${var.key}'"
    assert "hunter2" not in str(problem)


def test_name_needs_the_axes_only_and_not_what_an_include_adds(place: Place) -> None:
    text = 'a: {matrix: {x: [1], include: [{x: 2, more: b}]}, name: "s-${matrix.x}"}'
    assert list(jobs_of(place, text)) == ["s-1", "s-2"]


def test_name_that_is_wrong_for_every_combination_is_one_problem(place: Place) -> None:
    place.write(manifest("a: {matrix: {x: [1, 2, 3]}, name: fixed}"))
    assert [problem.what for problem in place.problems()] == ["invalid name"]


def test_include_and_exclude_tell_true_from_1_and_take_every_spelling_of_a_number(place: Place) -> None:
    text = "a: {matrix: {x: [1, true, 2], exclude: [{x: 1.0}], include: [{x: 0x2, y: b}]}, raw: {y: c}}"
    assert list(jobs_of(place, text)) == ["a-x-true", "a-x-2"]


@pytest.mark.parametrize("section", ["include", "exclude"])
def test_combinations_are_found_without_comparing_each_with_each(section: str) -> None:
    values = list(range(4000))
    listed: dict[str, list[dict[str, Any]]] = {"include": [], "exclude": []}
    listed[section] = [{"x": value + 0.5} for value in values]
    matrix = _Matrix({"x": values}, listed["include"], listed["exclude"])
    started = time.process_time()
    assert len(matrix.combinations()) == 4000 + len(listed["include"])
    assert time.process_time() - started < 2
