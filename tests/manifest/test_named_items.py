"""The list form of environments, `{name, value, sensitive}`; and names that a list has twice."""

from __future__ import annotations

import re
from typing import Any

import pytest

from reconciler.secrets import SecretText
from tests.manifest.conftest import HEAD, JOB, Place, marked, place_of


def with_algorithm(text: str) -> str:
    return JOB.replace("engine:", f"{text}, engine:")


def environments(place: Place, text: str, **options: Any) -> dict[str, Any]:
    body = place.job(with_algorithm(f"environments: {text}"), **options).body
    assert body is not None
    return dict(body["algorithm"].get("environments", {}))


@pytest.mark.parametrize(
    ("written", "meant"),
    [
        ("[{name: A, value: '1'}]", {"A": "1"}),
        ("[{value: 1.10, name: A}, {name: B, value: x, sensitive: false}]", {"A": "1.10", "B": "x"}),
        ("[{name: A, value: 1}, {B: 2, C: 3}]", {"A": "1", "B": "2", "C": "3"}),
        ("[{name: name, value: value}]", {"name": "value"}),
        ("[{name: a}]", {"name": "a"}),
        ("[{value: a}]", {"value": "a"}),
        ("{name: a, value: b}", {"name": "a", "value": "b"}),
        ("[{name: '${job.key}_A', value: '${job.key}'}]", {"a_A": "a"}),
        ("[{name: A, value: null}]", {}),
    ],
)
def test_item_with_name_and_value_is_one_variable(place: Place, written: str, meant: dict[str, str]) -> None:
    assert environments(place, written) == meant


def test_item_of_a_task_is_one_variable(place: Place) -> None:
    job = place.job(
        """
        kind: hetero_job
        tasks:
          - role: w
            algorithm: {environments: [{name: A, value: 1}]}
            task_resource: {node_count: 1}
        """
    )
    assert job.body is not None
    assert job.body["tasks"][0]["algorithm"]["environments"] == {"A": "1"}


def test_each_form_has_the_same_digest(place: Place) -> None:
    forms = ("{A: 1, B: b}", "[{A: 1}, {B: b}]", "[{name: B, value: b}, {name: A, value: '1'}]")
    assert len({place.job(with_algorithm(f"environments: {form}")).digest for form in forms}) == 1


def test_sensitive_item_is_kept_by_its_name(place: Place) -> None:
    listed = place.job(with_algorithm("environments: [{name: P, value: hunter2!, sensitive: true}]"))
    mapped = place.job(with_algorithm("environments: {P: {value: hunter2!, sensitive: true}}"))
    assert listed.body is not None
    value = listed.body["algorithm"]["environments"]["P"]
    assert isinstance(value, SecretText)
    assert value.reference == "${environment.P}"
    assert listed.digest == mapped.digest
    assert "hunter2!" in place.load().secrets


INHERITED = ("{A: 1, B: 2}", "[{A: 1}, {B: 2}]", "[{name: A, value: 1}, {name: B, value: 2}]")


@pytest.mark.parametrize("inherited", INHERITED)
@pytest.mark.parametrize(
    ("own", "left"),
    [
        ("{A: 5}", {"A": "5", "B": "2"}),
        ("[{name: A, value: 5}, {name: C, value: 3}]", {"A": "5", "B": "2", "C": "3"}),
        ("{A: null}", {"B": "2"}),
        ("[{A: null}]", {"B": "2"}),
        ("[{name: A, value: null}]", {"B": "2"}),
        ("[{name: A, value: null, sensitive: true}]", {"B": "2"}),
        ("null", {}),
        ("[]", {"A": "1", "B": "2"}),
    ],
)
def test_variables_are_merged_and_removed_by_name(
    place: Place, inherited: str, own: str, left: dict[str, str]
) -> None:
    head = f"{HEAD}defaults: {{algorithm: {{environments: {inherited}}}}}\n"
    assert environments(place, own, head=head) == left


def test_defaults_of_two_files_are_merged_by_name_and_disagree_at_the_variable(place: Place) -> None:
    place.write("defaults: {algorithm: {environments: [{name: A, value: 1}]}}\n", "a.yaml")
    place.write("defaults:\n  algorithm:\n    environments:\n    - {name: A, value: 2}\n", "b.yaml")
    place.write(f"{HEAD}jobs:\n  a:{JOB}")
    problem = place.problem()
    assert (problem.what, place_of(problem)) == ("files disagree", "b.yaml:4:14")
    assert "a.yaml:1:46" in problem.why


@pytest.mark.parametrize(
    ("item", "what", "where", "path", "why"),
    [
        ("{name: A-B, value: x}", "value not allowed", "A-B", "[0].name", "must match"),
        ("{name: 1, value: x}", "wrong type", "1", "[0].name", "expected text, got 1"),
        ("{name: null, value: x}", "wrong type", "null", "[0].name", "expected text, got null"),
        ("{name: [A], value: x}", "wrong type", "name", "[0].name", "expected text, got a list"),
        ("{name: A, value: [x]}", "wrong type", "value", "[0].value", "expected text, got a list"),
        ("{name: A, valu: 1, value: 2}", "unknown field", "valu", "[0]", "not one of name, value, sensitive"),
        ("{name: A, value: 1, sensitive: yes}", "wrong type", "yes", "[0].sensitive", "true or false"),
        ("{name: A, sensitive: true}", "missing field", "{", "[0]", '"value" is required'),
        ("A", "wrong type", "A", "[0]", 'expected a mapping, got "A"'),
        ("null", "wrong type", "null", "[0]", "expected a mapping, got null"),
        ("{A: [x]}", "wrong type", "A", ".A", "expected text, got a list"),
    ],
)
def test_wrong_item_is_told_at_its_place(
    place: Place, item: str, what: str, where: str, path: str, why: str
) -> None:
    place.write(f"{HEAD}jobs:\n  a:{with_algorithm(f'environments: [{item}]')}")
    problem = place.problem()
    assert (problem.what, problem.path) == (what, f"jobs.a.algorithm.environments{path}")
    assert marked(problem) == where
    assert why in problem.why


def test_value_too_long_is_told_at_the_value_of_its_item(place: Place) -> None:
    place.write(f"{HEAD}defaults: {{algorithm: {{environments: [{{name: A, value: '${{var.v}}'}}]}}}}\n"
                f"variables: {{v: {{default: {'x' * 4097}}}}}\njobs:\n  a:{JOB}")  # fmt: skip
    problem = place.problem()
    assert marked(problem) == "'${var.v}'"
    assert "4096" in problem.why


def test_name_that_is_a_secret_is_refused(place: Place) -> None:
    head = f"{HEAD}variables: {{t: {{env: T, sensitive: true}}}}\n"
    job = with_algorithm("environments: [{name: '${var.t}', value: x}]")
    place.write(f"{head}jobs:\n  a:{job}")
    problem = place.problem(environ={"T": "hunter2hunter2"})
    assert problem.what == "secret not allowed here"
    assert "hunter2hunter2" not in repr(problem)


# --- a name twice


LISTS = {
    "parameters": ("{name: A, value: 1}", "{name: A, value: 2}"),
    "inputs": ("{name: A, remote: {obs: {obs_url: obs://b/1/}}}", "{name: A, remote: {obs: {obs_url: obs://b/2/}}}"),
    "outputs": ("{name: A, remote: {obs: {obs_url: obs://b/1/}}}", "{name: A, remote: {obs: {obs_url: obs://b/2/}}}"),
    "environments": ("{name: A, value: 1}", "{name: A, value: 2}"),
}  # fmt: skip


@pytest.mark.parametrize("kind", LISTS)
@pytest.mark.parametrize("inherits", [False, True])
def test_name_twice_in_a_list_is_refused_with_both_places(place: Place, kind: str, inherits: bool) -> None:
    first, second = LISTS[kind]
    inherited = first.replace("A", "other", 1)
    head = (
        HEAD.replace("\n", f"\ndefaults: {{algorithm: {{{kind}: [{inherited}]}}}}\n", 1) if inherits else HEAD
    )
    listed = f"{kind}: [\n      {first},\n      {second}]"
    place.write(f"{head}jobs:\n  a:{with_algorithm(listed)}")
    problem = place.problem()
    line = 8 if inherits else 7
    assert (problem.what, place_of(problem)) == ("duplicate name", f"main.yaml:{line}:14")
    assert 'the name "A" is used twice' in problem.why
    assert re.search(rf"main.yaml:{line - 1}:14", problem.why)
    assert problem.path == f"jobs.a.algorithm.{kind}[1].name"


@pytest.mark.parametrize("second", ["{A: 2}", "{name: A, value: 2}", "{A: 1}"])
def test_variable_twice_in_a_list_of_maps_is_refused(place: Place, second: str) -> None:
    place.write(f"{HEAD}jobs:\n  a:{with_algorithm(f'environments: [{{A: 1}}, {second}]')}")
    problem = place.problem()
    assert problem.what == "duplicate name"
    assert marked(problem) == "A"


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


def _argument(place: Place, inherited: str, own: str, kind: str = "parameters") -> Any:
    place.write(
        f"{HEAD}templates: {{t: {{algorithm: {{{kind}: {inherited}}}}}}}\n"
        f"jobs:\n  a:\n    extends: t{with_algorithm(f'{kind}: {own}')}"
    )
    body = place.load().stack.jobs["a"].body
    assert body is not None
    listed = body["algorithm"][kind]
    return listed["P"] if kind == "environments" else listed[0].get("value")


@pytest.mark.parametrize("kind", ["parameters", "environments"])
@pytest.mark.parametrize(
    "inherited",
    ["{P: {value: one-hunter2, sensitive: true}}", "[{name: P, value: one-hunter2, sensitive: true}]"],
)
@pytest.mark.parametrize("own", ["{P: hunter2!}", "[{name: P, value: hunter2!}]", "{P: {value: hunter2!}}"])
def test_value_that_replaces_a_sensitive_one_is_sensitive(
    place: Place, kind: str, inherited: str, own: str
) -> None:
    value = _argument(place, inherited, own, kind)
    assert isinstance(value, SecretText)
    assert str.__str__(value) == "hunter2!"
    assert value.reference == f"${{{kind.removesuffix('s')}.P}}"
    assert "hunter2!" in place.load().secrets


@pytest.mark.parametrize("own", ["{P: {sensitive: true}}", "[{name: P, sensitive: true}]"])
def test_inherited_value_can_be_made_sensitive(place: Place, own: str) -> None:
    value = _argument(place, "{P: hunter2!}", own)
    assert isinstance(value, SecretText)
    assert str.__str__(value) == "hunter2!"


@pytest.mark.parametrize("kind", ["parameters", "environments"])
def test_raw_value_of_a_sensitive_one_is_sensitive(place: Place, kind: str) -> None:
    text = with_algorithm(f"{kind}: {{P: {{value: one-hunter2, sensitive: true}}}}")
    job = place.job(f"{text}    raw: {{algorithm: {{{kind}: {{P: hunter2!}}}}}}\n")
    assert job.body is not None
    listed = job.body["algorithm"][kind]
    value = listed["P"] if kind == "environments" else listed[0]["value"]
    assert isinstance(value, SecretText)


def test_removed_and_given_again_it_is_what_is_given(place: Place) -> None:
    place.write(
        f"{HEAD}templates:\n"
        "  t: {algorithm: {environments: {P: {value: one-hunter2, sensitive: true}}}}\n"
        "  u: {extends: t, algorithm: {environments: {P: null}}}\n"
        f"jobs:\n  a:\n    extends: u{with_algorithm('environments: {P: plain}')}"
    )
    body = place.load().stack.jobs["a"].body
    assert body is not None
    assert type(body["algorithm"]["environments"]["P"]) is str
