"""Several files, one manifest: what is united, and where two of them disagree."""

from __future__ import annotations

import pytest

from tests.manifest.conftest import JOB, Place, marked, place_of


def test_sections_of_several_files_are_united(place: Place) -> None:
    place.write("stack: s\ntargets: {a: {kind: local}}\nvariables: {x: {default: 1}}\n")
    place.write(
        f"targets: {{b: {{kind: local}}}}\nvariables: {{y: {{default: 2}}}}\njobs:\n  j:{JOB}", "more.yaml"
    )
    place.write("target: b\nlimits: {terminations: 9}\n", "rest.yaml")
    loaded = place.load()
    assert loaded.targets.keys() == {"a", "b"}
    assert loaded.target_name == "b"
    assert loaded.limits.terminations == 9
    assert loaded.stack.limits == loaded.limits
    assert loaded.stack.jobs.keys() == {"j"}


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("target: a", "target: a"),
        ("targets: {b: {kind: local}}", "targets: {b: {kind: local}}"),
        ("variables: {v: {default: 1}}", "variables: {v: {default: 1}}"),
        ("limits: {terminations: 5}", "limits: {terminations: 5, lost_time: 2h}"),
        ("defaults: {spec: {resource: {node_count: 1}}}", "defaults: {spec: {resource: {flavor_id: f}}}"),
        ("defaults: {algorithm: {parameters: {a: 1}}}", "defaults: {algorithm: {parameters: {b: 1}}}"),
        (
            "defaults: {algorithm: {parameters: {a: 1}}}",
            "defaults: {algorithm: {parameters: [{name: a, value: 1}]}}",
        ),
    ],
)
def test_files_may_say_the_same_or_different_parts(place: Place, one: str, other: str) -> None:
    place.write("stack: s\ntargets: {a: {kind: local}}\n")
    place.write(one + "\n", "b.yaml")
    place.write(other + "\n", "c.yaml")
    place.load()


@pytest.mark.parametrize(
    ("one", "other", "at", "text"),
    [
        ("target: a", "target: b", "c.yaml:1:1", "target"),
        ("targets: {x: {kind: local}}", "targets: {x: {kind: modelarts, region: r}}", "c.yaml:1:11", "x"),
        ("variables: {v: {default: 1}}", "variables: {v: {default: 1.0}}", "c.yaml:1:13", "v"),
        ("variables: {v: {default: 1}}", "variables: {v: {default: true}}", "c.yaml:1:13", "v"),
        ("limits: {terminations: 5}", "limits: {terminations: 6}", "c.yaml:1:10", "terminations"),
        (
            "defaults: {spec: {resource: {node_count: 1}}}",
            "defaults: {spec: {resource: {node_count: 2}}}",
            "c.yaml:1:30",
            "node_count",
        ),
        (
            "defaults: {algorithm: {parameters: {a: 1}}}",
            "defaults: {algorithm: {parameters: {b: 1, a: 2}}}",
            "c.yaml:1:43",
            "a",
        ),
    ],
)
def test_disagreement_is_told_at_the_second_place_and_names_the_first(
    place: Place, one: str, other: str, at: str, text: str
) -> None:
    place.write("stack: s\ntargets: {a: {kind: local}, b: {kind: local}}\n")
    place.write(one + "\n", "b.yaml")
    place.write(other + "\n", "c.yaml")
    problem = place.problem()
    assert (problem.what, place_of(problem)) == ("files disagree", at)
    assert marked(problem) == text
    assert "b.yaml:1:" in problem.why


def test_job_in_two_files_is_an_error_even_if_it_is_the_same(place: Place) -> None:
    place.write(f"stack: s\njobs:\n  a:{JOB}")
    place.write(f"jobs:\n  a:{JOB}", "more.yaml")
    problem = place.problem()
    assert (problem.what, place_of(problem)) == ("duplicate key", "more.yaml:2:3")
    assert "main.yaml:3:3" in problem.why


def test_keys_that_differ_only_in_case_are_an_error(place: Place) -> None:
    place.write(f"stack: s\njobs:\n  Train:{JOB}  train:{JOB}")
    problem = place.problem()
    assert (problem.what, place_of(problem)) == ("keys differ only in case", "main.yaml:6:3")
    assert '"Train" at' in problem.why


@pytest.mark.parametrize("key", ["a b", "x" * 59, "train-r2", "Train-R10", "''", "a.b", "ü"])
def test_key_that_cannot_name_a_job(place: Place, key: str) -> None:
    place.write(f"stack: s\njobs:\n  {key}:{JOB}")
    problem = place.problem()
    assert (problem.what, place_of(problem)) == ("invalid key", "main.yaml:3:3")


@pytest.mark.parametrize("name", ["Vision", "-a", "a-", "a_b", "x" * 33, "''"])
def test_name_that_no_stack_can_have(place: Place, name: str) -> None:
    place.write(f"stack: {name}\n")
    problem = place.problem()
    assert (problem.what, place_of(problem)) == ("invalid stack name", "main.yaml:1:8")


@pytest.mark.parametrize(
    ("text", "what", "at", "fix"),
    [
        ("job: {}", "unknown field", "2:1", 'did you mean "jobs"?'),
        ("needs: []", "unknown field", "2:1", None),
        ("policies: {deny: x}", "wrong type", "2:1", None),
        ("policy: []", "unknown field", "2:1", 'did you mean "policies"?'),
        ("jobs: [a]", "wrong type", "2:1", None),
        ("targets: local", "wrong type", "2:10", None),
        ("apiVersion: 1", "wrong type", "2:13", None),
        ("apiVersion: reconciler/v2", "value not allowed", "2:13", None),
        ("limits: {terminations: 0}", "value not allowed", "2:24", None),
        ("limits: {lost_time: 1}", "value not allowed", "2:21", 'write it with its unit: "1s"'),
        ("limits: {terminatons: 5}", "unknown field", "2:10", 'did you mean "terminations"?'),
        ("variables: {v: 1}", "wrong type", "2:16", None),
        ("variables: {1v: {}}", "invalid key", "2:13", None),
        ("variables: {v: {sensitve: true}}", "unknown field", "2:17", 'did you mean "sensitive"?'),
    ],
)
def test_mistake_at_the_first_level_is_named_with_its_place(
    place: Place, text: str, what: str, at: str, fix: str | None
) -> None:
    place.write(f"stack: s\n{text}\n")
    problem = place.problem()
    assert (problem.what, place_of(problem)) == (what, f"main.yaml:{at}")
    if fix:
        assert problem.fix == fix


def test_no_policies_are_fine(place: Place) -> None:
    place.write("stack: s\npolicies: []\n")
    place.load()
