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
from tests.manifest.conftest import HEAD, JOB, Place, marked, place_of

DEFAULTS = f"defaults:\n{textwrap.indent(textwrap.dedent(JOB).strip(), '  ')}\n"


def jobs_of(place: Place, text: str) -> dict[str, DesiredJob]:
    place.write(HEAD + DEFAULTS + "jobs:\n" + textwrap.indent(textwrap.dedent(text), "  "))
    return dict(place.load().stack.jobs)


def problems_of(place: Place, text: str, **options: object) -> list[tuple[str, str, str]]:
    """What, line and column of the jobs' own lines, and the marked text of each problem."""
    place.write(HEAD + DEFAULTS + "jobs:\n" + textwrap.indent(textwrap.dedent(text), "  "))
    above = (HEAD + DEFAULTS + "jobs:\n").count("\n")
    told = []
    for problem in place.problems(**options):
        _, line, column = place_of(problem).split(":")
        told.append((problem.what, f"{int(line) - above}:{int(column) - 2}", marked(problem)))
    return told


@pytest.mark.parametrize(
    ("written", "read"),
    [
        ("b", ("b",)),
        ("[c, b]", ("c", "b")),
        ("[c, b, c]", ("c", "b")),
        ("[]", ()),
        ("", ()),
        ("null", ()),
        ("'${var.upstream}'", ("b",)),
        ("['${job.key}2', c]", ("a2", "c")),
        ("'${var.several}'", ("c", "b")),
    ],
)
def test_needs_is_a_key_or_several_in_their_order(place: Place, written: str, read: tuple[str, ...]) -> None:
    place.write("variables: {upstream: {default: b}, several: {default: [c, b]}}", "v.yaml")
    jobs = jobs_of(place, f"a: {{needs: {written}}}\na2: {{}}\nb: {{}}\nc: {{state: absent}}\n")
    assert jobs["a"].needs == read
    assert jobs["b"].needs == ()


@pytest.mark.parametrize(
    ("written", "read"), [("old", ("old",)), ("[o1, o2, o1]", ("o1", "o2")), ("", ()), ("[]", ())]
)
def test_formerly_is_a_key_or_several(place: Place, written: str, read: tuple[str, ...]) -> None:
    assert jobs_of(place, f"a: {{formerly: {written}}}\n")["a"].formerly == read


def test_neither_is_part_of_body_or_digest(place: Place) -> None:
    jobs = jobs_of(place, "a: {needs: b, formerly: old}\nb: {}\n")
    assert jobs["a"].body == jobs["b"].body
    assert jobs["a"].digest == jobs["b"].digest


def test_an_absent_entry_may_have_them_and_needs_no_body(place: Place) -> None:
    job = jobs_of(place, "a: {state: absent, needs: b, formerly: [old]}\nb: {}\n")["a"]
    assert (job.is_absent, job.body, job.needs, job.formerly) == (True, None, ("b",), ("old",))


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


# What may not be needed


def test_an_unknown_key(place: Place) -> None:
    assert problems_of(place, "a: {needs: [b, trian]}\nb: {needs: Train}\ntrain: {}\n") == [
        ("unknown key", "1:16", "trian"),
        ("unknown key", "2:12", "Train"),
    ]
    assert {problem.fix for problem in place.problems()} == {'did you mean "train"?'}


def test_a_key_that_has_another_name_now(place: Place) -> None:
    assert problems_of(place, "a: {needs: old}\nnew: {formerly: old}\n") == [("unknown key", "1:12", "old")]
    assert place.problem().fix == 'write "new", which was "old" before'


@pytest.mark.parametrize(
    ("jobs", "cycles"),
    [
        ("a: {needs: a}", {"a needs a"}),
        ("a: {needs: b}\nb: {needs: c}\nc: {needs: a}", {"a needs b needs c needs a"}),
        ("d: {needs: [b]}\na: {needs: [b]}\nb: {needs: [a]}", {"a needs b needs a"}),
        ("a: {needs: [b, b]}\nb: {needs: [a, c]}\nc: {needs: b}", {"a needs b needs a", "b needs c needs b"}),
        ("a: {needs: [b, c]}\nb: {needs: d}\nc: {needs: d}\nd: {}", None),
        ("a: {needs: b}\nb: {needs: a, state: absent}", {"a needs b needs a"}),
    ],
)
def test_cycles_are_told_once_and_whole(place: Place, jobs: str, cycles: set[str] | None) -> None:
    if cycles is None:
        assert jobs_of(place, jobs)
        return
    told = problems_of(place, jobs)
    assert {what for what, _, _ in told} == {"dependency cycle"}
    assert {problem.why.partition(",")[0] for problem in place.problems()} == cycles
    assert len(told) == len(cycles)


def test_a_cycle_is_told_where_its_first_job_says_it(place: Place) -> None:
    jobs = "x: {needs: [c]}\na: {needs: [x, b]}\nb: {needs: c}\nc: {needs: a}\n"
    assert problems_of(place, jobs) == [("dependency cycle", "1:13", "c"), ("dependency cycle", "2:16", "b")]


def test_a_long_chain_is_no_cycle_and_no_recursion(place: Place) -> None:
    chain = "".join(f"j{n}: {{needs: j{n + 1}}}\n" for n in range(1500)) + "j1500: {}\n"
    assert len(jobs_of(place, chain)) == 1501


# What a job cannot have been


@pytest.mark.parametrize(
    ("jobs", "problem"),
    [
        ("a: {formerly: b}\nb: {}", ("former key still declared", "1:15", "b")),
        ("a: {formerly: [x, b]}\nb: {state: absent}", ("former key still declared", "1:19", "b")),
        ("a: {formerly: a}", ("former key still declared", "1:15", "a")),
        ("a: {formerly: A}", ("keys differ only in case", "1:15", "A")),
        ("a: {formerly: B}\nb: {}", ("keys differ only in case", "1:15", "B")),
        ("a: {formerly: [x, X]}", ("keys differ only in case", "1:19", "X")),
        ("a: {formerly: x}\nb: {formerly: X}", ("keys differ only in case", "2:15", "X")),
        ("a: {formerly: x}\nb: {formerly: [x]}", ("former key claimed twice", "2:16", "x")),
        ("a: {formerly: x y}", ("invalid key", "1:15", "x y")),
        ("a: {formerly: [x-r2]}", ("invalid key", "1:16", "x-r2")),
        ("a: {formerly: ['']}", ("invalid key", "1:16", "''")),
    ],
)
def test_what_a_job_cannot_have_been(place: Place, jobs: str, problem: tuple[str, str, str]) -> None:
    assert problems_of(place, jobs) == [problem]


def test_a_key_claimed_twice_names_both_places(place: Place) -> None:
    place.write(HEAD + DEFAULTS + "jobs:\n  a: {formerly: [x]}\n")
    place.write("jobs:\n  b: {formerly: x}\n", "more.yaml")
    problem = place.problem()
    assert place_of(problem) == "more.yaml:2:17"
    assert "main.yaml:7:18" in problem.why
    assert '"a" also lists' in problem.why


# Shapes


@pytest.mark.parametrize("name", ["needs", "formerly"])
@pytest.mark.parametrize(
    ("value", "what", "marked_text", "fix"),
    [
        ("3", "wrong type", "3", 'quote it: "3"'),
        ("[3]", "wrong type", "3", 'quote it: "3"'),
        ("{b: c}", "wrong type", None, None),
        ("[[b]]", "wrong type", None, None),
        ("'${var.token}'", "secret not allowed here", "'${var.token}'", None),
        ("['${var.token}']", "secret not allowed here", "'${var.token}'", None),
        ("'${var.none}'", "unknown variable", "${var.none}", None),
    ],
)
def test_they_are_texts(
    place: Place, name: str, value: str, what: str, marked_text: str | None, fix: str | None
) -> None:
    place.write("variables: {token: {env: TOKEN, sensitive: true}}", "v.yaml")
    place.write(HEAD + DEFAULTS + f"jobs:\n  a: {{{name}: {value}}}\n  b: {{}}\n")
    problem = place.problem(environ={"TOKEN": "hunter2!"})
    assert (problem.what, problem.path.startswith(f"jobs.a.{name}")) == (what, True)
    assert problem.fix == fix
    assert "hunter2!" not in repr(problem)
    assert marked_text is None or marked(problem) == marked_text


@pytest.mark.parametrize("name", ["needs", "formerly"])
def test_they_do_not_belong_into_defaults(place: Place, name: str) -> None:
    place.write(HEAD + f"defaults: {{{name}: [x]}}\njobs:\n  a:{JOB}  b:{JOB}")
    problem = place.problem()
    assert (problem.what, problem.path, marked(problem)) == (
        "not allowed in defaults",
        f"defaults.{name}",
        name,
    )


def test_all_is_told_at_once_and_a_job_with_another_problem_too(place: Place) -> None:
    jobs = "a: {needs: b, formerly: b, sepc: {}}\nb: {needs: [nothing, a]}\n"
    assert [what for what, _, _ in problems_of(place, jobs)] == [
        "dependency cycle",
        "former key still declared",
        "unknown field",
        "unknown key",
    ]


def test_what_a_broken_file_would_declare_is_not_unknown(place: Place) -> None:
    place.write(HEAD + DEFAULTS + "jobs:\n  a: {needs: b}\n")
    place.write("jobs:\n  b: {\n", "more.yaml")
    assert [problem.what for problem in place.problems()] == ["invalid YAML"]


@pytest.mark.parametrize(
    ("jobs", "why", "at"),
    [
        ("a: {matrix: {x: [1, 2, 3]}, needs: a}", "a needs a", "a"),
        ("a: {matrix: {x: [1, 2, 3]}, needs: b}\nb: {needs: a}", "b needs a needs b", "a"),
        (
            "a: {matrix: {x: [1, 2, 3]}, needs: b}\nb: {matrix: {x: [1, 2, 3]}, needs: [c, a]}\nc: {}",
            "a needs b needs a",
            "b",
        ),
        ("a: {matrix: {x: [1, 2]}, needs: b}\nb: {needs: a-x-2}", "b needs a-x-2 needs b", "a-x-2"),
    ],
)
def test_cycle_through_a_sweep_is_told_once_as_it_is_written(
    place: Place, jobs: str, why: str, at: str
) -> None:
    place.write(HEAD + DEFAULTS + "jobs:\n" + textwrap.indent(jobs, "  "))
    problem = place.problem()
    assert (problem.what, problem.why) == ("dependency cycle", why)
    assert marked(problem) == at


def test_sweep_that_needs_a_sweep_costs_what_both_cost(place: Place) -> None:
    """Each member needs all members of the other: a million pairs that nobody writes down."""
    values = ", ".join(map(str, range(1_000)))
    jobs = jobs_of(place, f"a: {{matrix: {{x: [{values}]}}}}\nb: {{matrix: {{x: [{values}]}}, needs: a}}\n")
    assert len(jobs["b-x-1"].needs) == 1_000
    assert jobs["b-x-1"].needs is jobs["b-x-2"].needs


@settings(max_examples=100, deadline=None)
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


@pytest.mark.parametrize(
    ("jobs", "fix"),
    [
        ("train: {needs: [trian], state: absent}", None),
        ("train: {needs: [trian], state: absent}\n  trial: {state: absent}", 'did you mean "trial"?'),
        ("tests: {needs: [tets], state: absent}\n  test: {state: absent}", 'did you mean "test"?'),
    ],
)
def test_key_that_is_misspelt_is_never_taken_for_the_own_one(
    place: Place, jobs: str, fix: str | None
) -> None:
    place.write(f"{HEAD}jobs:\n  {jobs}\n")
    problem = place.problem()
    assert (problem.what, problem.fix) == ("unknown key", fix)


def test_sweep_is_never_offered_to_its_members(place: Place) -> None:
    place.write(f"{HEAD}jobs:\n  sweep: {{matrix: {{a: [1]}}, needs: [swep], state: absent}}\n")
    assert place.problem().fix is None


def test_template_is_never_offered_to_itself(place: Place) -> None:
    place.write(f"{HEAD}templates: {{base: {{extends: bas}}}}\njobs: {{a: {{state: absent}}}}\n")
    assert place.problem().fix is None
