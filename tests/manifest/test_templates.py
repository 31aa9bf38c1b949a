"""Templates: what a job takes over, in which order, and where it is said to come from."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping
from typing import Any

import pytest

from reconciler.core.body import merge
from reconciler.core.stack import DesiredJob
from tests.manifest.conftest import HEAD, JOB, Place, marked, place_of

DEFAULTS = f"defaults:\n{textwrap.indent(textwrap.dedent(JOB).strip(), '  ')}\n"


def manifest(templates: str, jobs: str) -> str:
    sections = (("templates", templates), ("jobs", jobs))
    return (
        HEAD
        + DEFAULTS
        + "".join(f"{name}:\n{textwrap.indent(textwrap.dedent(text), '  ')}\n" for name, text in sections)
    )


def jobs_of(place: Place, templates: str, jobs: str, **options: Any) -> dict[str, DesiredJob]:
    place.write(manifest(templates, jobs))
    return dict(place.load(**options).stack.jobs)


def parameters(job: DesiredJob) -> dict[str, Any]:
    assert job.body is not None
    return {one["name"]: one["value"] for one in job.body["algorithm"].get("parameters", [])}


def resource(job: DesiredJob) -> dict[str, Any]:
    assert job.body is not None
    found: dict[str, Any] = job.body["spec"]["resource"]
    return found


def test_job_wins_over_its_template_and_the_template_over_defaults(place: Place) -> None:
    jobs = jobs_of(
        place,
        "big: {description: big, spec: {resource: {flavor_id: huge, node_count: 8}}}",
        "a: {extends: big, spec: {resource: {node_count: 2}}}\nb: {}\n",
    )
    assert resource(jobs["a"]) == {"flavor_id": "huge", "node_count": 2}
    assert jobs["a"].description == "big"
    assert resource(jobs["b"]) == {"flavor_id": "gpu", "node_count": 1}


def test_later_template_wins_over_the_earlier(place: Place) -> None:
    templates = "one: {description: one, kind: job}\ntwo: {description: two}\n"
    jobs = jobs_of(place, templates, "a: {extends: [one, two]}\nb: {extends: [two, one]}\n")
    assert (jobs["a"].description, jobs["b"].description) == ("two", "one")


def test_template_takes_over_what_it_extends_first(place: Place) -> None:
    templates = """\
        base: {description: base, spec: {resource: {node_count: 4}}}
        gpu: {extends: base, description: gpu}
        """
    job = jobs_of(place, templates, "a: {extends: gpu}\n")["a"]
    assert (job.description, resource(job)["node_count"]) == ("gpu", 4)


def test_template_named_twice_is_merged_once_at_its_first_place(place: Place) -> None:
    templates = """\
        base: {description: base}
        one: {extends: base, description: one}
        two: {extends: base}
        """
    assert jobs_of(place, templates, "a: {extends: [one, two, base]}\n")["a"].description == "one"


@pytest.mark.parametrize(
    "inherited",
    ["parameters: {lr: 1, epochs: 2}", "parameters: [{name: lr, value: 1}, {name: epochs, value: 2}]"],
)
@pytest.mark.parametrize(
    ("own", "left"),
    [
        ("parameters: {lr: 5}", {"lr": "5", "epochs": "2"}),
        ("parameters: [{name: lr, value: 5}]", {"lr": "5", "epochs": "2"}),
        ("parameters: {lr: null}", {"epochs": "2"}),
        ("parameters: [{name: lr, value: null}]", {"epochs": "2"}),
        ("parameters: null", {}),
    ],
)
def test_members_are_merged_and_removed_by_name_in_each_form(
    place: Place, inherited: str, own: str, left: dict[str, str]
) -> None:
    jobs = jobs_of(place, f"t: {{algorithm: {{{inherited}}}}}", f"a: {{extends: t, algorithm: {{{own}}}}}\n")
    assert parameters(jobs["a"]) == left


@pytest.mark.parametrize("form", ["inputs: {x: null}", "inputs: [{name: x, remote: null}]"])
def test_null_removes_an_input(place: Place, form: str) -> None:
    jobs = jobs_of(
        place,
        "t: {algorithm: {inputs: {x: obs://b/x/, y: obs://b/y/}}}",
        f"a: {{extends: t, algorithm: {{{form}}}}}\n",
    )
    body = jobs["a"].body
    assert body is not None
    assert [one["name"] for one in body["algorithm"]["inputs"]] == ["y"]


def test_null_removes_what_was_inherited_on_any_level(place: Place) -> None:
    jobs = jobs_of(
        place,
        """\
        t:
          description: t
          spec: {log_export_path: {obs_url: obs://b/log/}}
          algorithm: {environments: {A: '1', B: '2'}}
        """,
        """\
        a:
          extends: t
          description: null
          spec: {log_export_path: null}
          algorithm: {environments: {A: null}}
        """,
    )
    body = jobs["a"].body
    assert body is not None
    assert jobs["a"].description == ""
    assert "log_export_path" not in body["spec"]
    assert body["algorithm"]["environments"] == {"B": "2"}


def test_same_job_through_a_template_and_by_itself_has_the_same_digest(place: Place) -> None:
    jobs = jobs_of(
        place,
        "t: {algorithm: {parameters: {lr: 0.1}}}",
        "a: {extends: t}\nb: {algorithm: {parameters: [{name: lr, value: 0.1}]}}\n",
    )
    assert jobs["a"].digest == jobs["b"].digest


def test_expressions_of_a_template_are_those_of_the_job(place: Place) -> None:
    jobs = jobs_of(
        place, "t: {description: '${job.key} ${matrix.lr}'}", "a: {extends: t, matrix: {lr: [1, 2]}}\n"
    )
    assert [job.description for job in jobs.values()] == ["a-lr-1 1", "a-lr-2 2"]


def test_templates_may_stand_in_another_file(place: Place) -> None:
    place.write("templates: {t: {description: shared}}\n", "templates.yaml")
    place.write(HEAD + DEFAULTS + "jobs: {a: {extends: t}}\n")
    assert place.load().stack.jobs["a"].description == "shared"


def test_which_templates_there_are_makes_no_job(place: Place) -> None:
    assert list(jobs_of(place, "t: {description: never made}", "a: {}\n")) == ["a"]


@pytest.mark.parametrize(
    ("templates", "jobs", "what", "text"),
    [
        ("t: {}", "a: {extends: tt}", "unknown template", "tt"),
        ("t: {}", "a: {extends: [t, no]}", "unknown template", "no"),
        ("t: {extends: no}", "a: {}", "unknown template", "no"),
        ("t: {extends: t}", "a: {extends: t}", "template cycle", "t"),
        ("t: {extends: u}\nu: {extends: v}\nv: {extends: [t]}", "a: {}", "template cycle", "u"),
        ("t: {extends: u}\nu: {extends: u}", "a: {extends: t}", "template cycle", "u"),
        ("t: {needs: a}", "a: {extends: t}", "not allowed in templates", "needs"),
        ("t: {matrix: {x: [1]}}", "a: {}", "not allowed in templates", "matrix"),
        ("t: {spce: {}}", "a: {}", "unknown field", "spce"),
        ("t: {spce: {}}", "a: {extends: t}", "unknown field", "spce"),
        ("t: {spec: {resource: {node_count: x1}}}", "a: {extends: t}\nb: {extends: t}", "wrong type", "x1"),
        ("t: {description: '${var.no}'}", "a: {}", "unknown variable", "${var.no}"),
        ("t: [1]", "a: {extends: t}", "wrong type", None),
        ("t: {}", "a: {extends: 5}", "wrong type", "5"),
        ("t: {}", "a: {extends: {t: 1}}", "wrong type", None),
        ("t: {extends: 5}", "a: {extends: t}", "wrong type", "5"),
        ("t: {extends: [u, 5]}\nu: {}", "a: {extends: t}", "wrong type", "5"),
        ("t: {extends: {u: 1}}\nu: {}", "a: {}", "wrong type", None),
        ("t: {description: [1]}", "a: {extends: t, description: d}", "wrong type", None),
        ("t: {description: [1]}\nu: {extends: t, description: d}", "a: {extends: u}", "wrong type", None),
    ],
)  # fmt: skip
def test_what_cannot_be_meant_is_told_once_where_it_stands(
    place: Place, templates: str, jobs: str, what: str, text: str | None
) -> None:
    place.write(manifest(templates, jobs))
    (problem,) = place.problems()
    assert problem.what == what
    assert place_of(problem).startswith("main.yaml:")
    if text is not None:
        assert marked(problem) == text


def test_misspelt_template_is_answered_with_the_nearest(place: Place) -> None:
    place.write(manifest("gpu-large: {}", "a: {extends: gpu-lagre}"))
    (problem,) = place.problems()
    assert problem.fix == 'did you mean "gpu-large"?'


def test_defaults_extend_nothing(place: Place) -> None:
    place.write(HEAD + DEFAULTS + "  extends: t\ntemplates: {t: {}}\njobs: {a: {}}\n")
    assert [problem.what for problem in place.problems()] == ["not allowed in defaults"]


@pytest.mark.parametrize("last", ["{description: deep}", "{extends: t0}"])
def test_depth_of_templates_is_bounded_by_nothing_but_the_file(place: Place, last: str) -> None:
    templates = [f"t{n}: {{extends: t{n + 1}}}" for n in range(3000)]
    place.write(manifest("\n".join([*templates, f"t3000: {last}"]), "a: {extends: t0}"))
    if "extends" in last:
        assert [problem.what for problem in place.problems()] == ["template cycle"]
    else:
        assert place.load().stack.jobs["a"].description == "deep"


def test_many_templates_that_extend_each_other_are_merged_once_each(place: Place) -> None:
    """Each names the two before it: without the rule of the first place there would be billions."""
    templates = "t0: {}\nt1: {}\n" + "".join(
        f"t{n}: {{extends: [t{n - 1}, t{n - 2}]}}\n" for n in range(2, 60)
    )
    assert list(jobs_of(place, templates, "a: {extends: t59}\n")) == ["a"]


def test_jobs_of_one_chain_of_templates_share_what_it_says(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However many templates a job builds on, and however many jobs there are, each is merged once."""
    merges: list[object] = []

    def counted(under: Mapping[str, Any], over: Mapping[str, Any]) -> dict[str, Any]:
        merges.append(over)
        return merge(under, over)

    def count(depth: int, jobs: int) -> int:
        templates = "".join(f"t{n}: {{extends: t{n - 1}}}\n" if n else "t0: {}\n" for n in range(depth))
        entries = "".join(f"j{n}: {{extends: t{depth - 1}}}\n" for n in range(jobs))
        place.write(manifest(templates, entries))
        merges.clear()
        assert len(place.load().stack.jobs) == jobs
        return len(merges)

    monkeypatch.setattr("reconciler.manifest.jobs.merge", counted)
    per_job = count(1, 101) - count(1, 1)
    assert count(40, 101) - count(40, 1) == per_job


def test_what_a_job_removes_stays_for_the_others_of_its_template(place: Place) -> None:
    jobs = jobs_of(
        place,
        "t: {algorithm: {environments: {A: 1, B: null}, parameters: {x: 1, y: 2}}}\n",
        """\
        a: {extends: t}
        b: {extends: t, algorithm: {environments: {A: null}, parameters: {x: null}}}
        c: {extends: t}
        d: {extends: t, algorithm: {environments: {B: 2}}}
        """,
    )
    bodies = {key: job.body["algorithm"] for key, job in jobs.items() if job.body is not None}
    assert {key: body["environments"] for key, body in bodies.items()} == {
        "a": {"A": "1"},
        "b": {},
        "c": {"A": "1"},
        "d": {"A": "1", "B": "2"},
    }
    assert parameters(jobs["b"]) == {"y": "2"}
    assert parameters(jobs["c"]) == {"x": "1", "y": "2"}


def test_null_removes_a_value_that_has_a_default(place: Place) -> None:
    head = (
        HEAD + "defaults: {spec: {resource: {node_count: 4}}, lifecycle: {max_retries: 9, protect: true}}\n"
    )
    job = place.job(
        """
        algorithm: {code_dir: obs://b/code/, boot_file: obs://b/code/train.py, engine: {engine_id: pt}}
        spec: {resource: {flavor_id: gpu, node_count: null}}
        lifecycle: {max_retries: null}
        kind: null
        """,
        head,
    )
    assert job.body is not None
    assert job.body["spec"]["resource"] == {"flavor_id": "gpu", "node_count": 1}
    assert job.lifecycle.max_retries == 1
    assert job.lifecycle.protect


def test_null_of_a_template_removes_for_every_job_that_extends_it(place: Place) -> None:
    templates = "big: {spec: {resource: {node_count: 4}}}\ncalm: {spec: {resource: {node_count: null}}}"
    entries = "a: {extends: [big, calm]}\nb: {extends: [big, calm]}\nc: {extends: big}"
    jobs = jobs_of(place, templates, entries)
    assert [resource(jobs[key])["node_count"] for key in "abc"] == [1, 1, 4]


@pytest.mark.parametrize(
    "text",
    [
        "defaults: {lifecycle: {on_failure: null}, spec: null}\n",
        "targets: {local: {kind: local, defaults: {lifecycle: {on_failure: null}}}}\n",
        "templates: {t: {lifecycle: {on_failure: null}, algorithm: {parameters: {lr: null}}}}\n",
    ],
)
def test_null_removes_where_no_job_is_there_to_be_read_with_it(place: Place, text: str) -> None:
    targets = "" if text.startswith("targets") else "targets: {local: {kind: local}}\n"
    place.write(f"stack: s\n{targets}{text}")
    assert place.load().stack.jobs == {}
