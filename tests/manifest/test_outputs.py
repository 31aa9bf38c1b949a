"""`${jobs.KEY.outputs.NAME}`: which path it stands for, what it needs, and what is wrong with it."""

from __future__ import annotations

import textwrap
from typing import Any

import pytest

from reconciler.core.stack import DesiredJob
from reconciler.manifest import expressions as budget
from reconciler.manifest.jobs import Outputs
from reconciler.secrets import SecretText
from tests.manifest.conftest import HEAD, JOB, Place, marked, place_of

DEFAULTS = f"defaults:\n{textwrap.indent(textwrap.dedent(JOB).strip(), '  ')}\n"
PREPARE = "prepare: {algorithm: {outputs: {data: obs://b/data/}}}\n"
#: As the job `train` refers to the output.
USE = "${jobs.prepare.outputs.data}"


def manifest(jobs: str, more: str = "") -> str:
    return HEAD + more + DEFAULTS + "jobs:\n" + textwrap.indent(textwrap.dedent(jobs), "  ")


def train_with(text: str) -> str:
    return f'train: {{algorithm: {{environments: {{D: "{text}"}}}}}}\n'


def jobs_of(place: Place, jobs: str, more: str = "", **options: Any) -> dict[str, DesiredJob]:
    place.write(manifest(jobs, more))
    return dict(place.load(**options).stack.whole)


def algorithm(job: DesiredJob) -> dict[str, Any]:
    assert job.body is not None
    found: dict[str, Any] = job.body["algorithm"]
    return found


# --- the value


@pytest.mark.parametrize(
    "outputs",
    [
        "algorithm: {outputs: {data: obs://b/data/}}",
        "algorithm: {outputs: [{name: data, remote: {obs: {obs_url: obs://b/data/}}}]}",
        "algorithm: {outputs: {data: {remote: {obs: {obs_url: obs://b/data/}}}}}",
        "raw: {algorithm: {outputs: {data: obs://b/data/}}}",
        'algorithm: {outputs: {data: "obs://${var.bucket}/data/"}}',
    ],
    ids=["mapping", "list", "mapping of objects", "raw", "expression"],
)
def test_output_in_each_form_is_its_path(place: Place, outputs: str) -> None:
    text = f'prepare: {{{outputs}}}\ntrain: {{algorithm: {{inputs: {{data: "{USE}"}}}}}}\n'
    jobs = jobs_of(place, text, "variables: {bucket: {default: b}}\n")
    [data] = algorithm(jobs["train"])["inputs"]
    assert data["remote"]["obs"]["obs_url"] == "obs://b/data/"


def test_path_stands_as_declared_in_parameters_inputs_environments_and_longer_text(place: Place) -> None:
    jobs = jobs_of(
        place,
        """\
        prepare: {algorithm: {outputs: {data: /b/data/}}}
        train:
          algorithm:
            parameters: {data: "${jobs.prepare.outputs.data}"}
            inputs: {data: "${ jobs.prepare.outputs.data }part/"}
            environments: {FROM: "${job.key} <- ${jobs.prepare.outputs.data}, $${jobs.a.outputs.b}"}
        """,
    )
    train = algorithm(jobs["train"])
    assert train["parameters"] == [{"name": "data", "value": "/b/data/"}]
    assert train["inputs"][0]["remote"]["obs"]["obs_url"] == "/b/data/part/"
    assert train["environments"] == {"FROM": "train <- /b/data/, ${jobs.a.outputs.b}"}


def test_digest_covers_the_path_and_not_the_expression(place: Place) -> None:
    jobs = jobs_of(
        place,
        PREPARE
        + f'train: {{algorithm: {{inputs: {{data: "{USE}"}}}}}}\n'
        + "same: {algorithm: {inputs: {data: obs://b/data/}}}\n",
    )
    assert jobs["train"].digest == jobs["same"].digest


OUTPUT, INPUT = (
    "{algorithm: {outputs: {data: obs://b/data/}}}",
    f'{{algorithm: {{inputs: {{data: "{USE}"}}}}}}',
)


@pytest.mark.parametrize(
    ("templates", "jobs"),
    [
        (f"t: {OUTPUT}", f"prepare: {{extends: t}}\ntrain: {INPUT}\n"),
        (f"t: {INPUT}", f"prepare: {OUTPUT}\ntrain: {{extends: t}}\n"),
        (f"t: {INPUT}\n  u: {OUTPUT}", "prepare: {extends: u}\ntrain: {extends: t}\n"),
    ],
)
def test_outputs_and_references_come_through_templates(place: Place, templates: str, jobs: str) -> None:
    place.write(manifest(jobs, f"templates:\n  {templates}\n"))
    found = place.load().stack.jobs
    assert algorithm(found["train"])["inputs"][0]["remote"]["obs"]["obs_url"] == "obs://b/data/"
    assert (found["train"].needs, found["prepare"].needs) == (("prepare",), ())


def test_reference_in_defaults_is_for_every_job_but_those_that_take_it_away(place: Place) -> None:
    jobs = f"prepare: {OUTPUT[:-2]}, inputs: {{data: null}}}}}}\ntrain: {{}}\nmore: {{}}\n"
    text = manifest(jobs).replace("algorithm: {code_dir", f'algorithm: {{inputs: {{data: "{USE}"}}, code_dir')
    place.write(text)
    found = place.load().stack.jobs
    assert {key: job.needs for key, job in found.items()} == {
        "prepare": (),
        "train": ("prepare",),
        "more": ("prepare",),
    }


def test_reference_that_the_job_overrides_needs_nobody(place: Place) -> None:
    templates = 'templates: {t: {algorithm: {environments: {D: "${jobs.nobody.outputs.data}"}}}}\n'
    jobs = jobs_of(place, "train: {extends: t, algorithm: {environments: {D: obs://b/other/}}}\n", templates)
    assert jobs["train"].needs == ()


def test_paths_are_followed_through_a_chain_of_jobs(place: Place) -> None:
    count = 2_000
    chain = "".join(
        f'j{n}: {{algorithm: {{outputs: {{o: "${{jobs.j{n + 1}.outputs.o}}{"x/" if n < 3 else ""}"}}}}}}\n'
        for n in range(count)
    )
    jobs = jobs_of(place, chain + f"j{count}: {{algorithm: {{outputs: {{o: obs://b/}}}}}}\n")
    assert algorithm(jobs["j0"])["outputs"][0]["remote"]["obs"]["obs_url"] == "obs://b/x/x/x/"
    assert jobs["j0"].needs == ("j1",)


TASKS = """\
prepare:
  kind: hetero_job
  algorithm: null
  spec: null
  tasks:
    - {role: a, algorithm: {outputs: {data: obs://b/data/}}}
    - {role: b, algorithm: {job_config: {outputs: {data: obs://b/data/, log: obs://b/log/}}}}
"""


def test_output_of_a_task_is_one_of_the_job(place: Place) -> None:
    jobs = jobs_of(place, TASKS + train_with(USE + " ${jobs.prepare.outputs.log}"))
    assert algorithm(jobs["train"])["environments"] == {"D": "obs://b/data/ obs://b/log/"}


def test_output_with_a_path_of_its_own_in_each_task_is_ambiguous(place: Place) -> None:
    place.write(
        manifest(TASKS.replace("{data: obs://b/data/, ", "{data: obs://b/other/, ") + train_with(USE))
    )
    assert place.problem().what == "ambiguous output"


# --- secrets


def test_path_with_a_sensitive_variable_is_a_secret_by_the_same_name(place: Place) -> None:
    jobs = jobs_of(
        place,
        'prepare: {algorithm: {outputs: {data: "obs://${var.bucket}/data/"}}}\n'
        f'train: {{algorithm: {{environments: {{D: "{USE}part/"}}}}}}\n',
        "variables: {bucket: {env: BUCKET, sensitive: true}}\n",
        environ={"BUCKET": "very-secret"},
    )
    value = algorithm(jobs["train"])["environments"]["D"]
    assert isinstance(value, SecretText)
    assert (str(value), value.reference) == (
        "obs://very-secret/data/part/",
        "obs://${var.bucket}/data/part/",
    )


def test_sensitive_variable_without_a_value_is_no_problem_offline(place: Place) -> None:
    jobs = jobs_of(
        place,
        'prepare: {algorithm: {outputs: {data: "obs://${var.bucket}/data/"}}}\n'
        f'train: {{algorithm: {{inputs: {{D: "{USE}"}}}}}}\n',
        "variables: {bucket: {env: BUCKET, sensitive: true}}\n",
        offline=True,
    )
    assert jobs["train"].needs == ("prepare",)


@pytest.mark.parametrize(
    ("where", "name"),
    [
        ("environments: {D: {value: USE, sensitive: true}}", "${environment.D}"),
        ("parameters: [{name: D, value: USE, sensitive: true}]", "${parameter.D}"),
    ],
)
def test_value_that_is_sensitive_in_place_is_shown_by_the_name_of_its_place(
    place: Place, where: str, name: str
) -> None:
    jobs = jobs_of(place, PREPARE + f"train: {{algorithm: {{{where.replace('USE', repr(USE))}}}}}\n")
    train = algorithm(jobs["train"])
    value = train["environments"]["D"] if "environments" in train else train["parameters"][0]["value"]
    assert isinstance(value, SecretText)
    assert (str(value), value.reference) == ("obs://b/data/", name)


# --- needs


def test_reference_implies_the_need_once_beside_those_that_are_written(place: Place) -> None:
    jobs = jobs_of(
        place,
        PREPARE
        + "other: {}\n"
        + f'train: {{needs: [other, prepare], algorithm: {{environments: {{A: "{USE}", B: "{USE}"}}}}}}\n',
    )
    assert jobs["train"].needs == ("other", "prepare")


def test_member_of_a_sweep_is_named_in_full(place: Place) -> None:
    jobs = jobs_of(
        place,
        'sweep: {matrix: {lr: [0.1, 0.01]}, algorithm: {outputs: {m: "obs://b/${matrix.lr}/"}}}\n'
        'best: {algorithm: {inputs: {m: "${jobs.sweep-lr-0_01.outputs.m}"}}}\n',
    )
    assert algorithm(jobs["best"])["inputs"][0]["remote"]["obs"]["obs_url"] == "obs://b/0.01/"
    assert jobs["best"].needs == ("sweep-lr-0_01",)


def test_member_refers_to_the_member_of_another_sweep_that_has_its_values(place: Place) -> None:
    jobs = jobs_of(
        place,
        'train: {matrix: {lr: [0.1, 0.01]}, algorithm: {outputs: {m: "obs://b/${matrix.lr}/"}}}\n'
        "eval: {matrix: {lr: [0.1, 0.01]}, "
        'algorithm: {inputs: {m: "${jobs.train-lr-${matrix.lr}.outputs.m}"}}}\n',
    )
    member = jobs["eval-lr-0_01"]
    assert algorithm(member)["inputs"][0]["remote"]["obs"]["obs_url"] == "obs://b/0.01/"
    assert member.needs == ("train-lr-0_01",)


def test_axis_in_the_key_of_a_reference_must_be_one_of_the_job(place: Place) -> None:
    sweep = f"a: {{matrix: {{n: [1]}}, {OUTPUT[1:]}\n"
    place.write(manifest(sweep + train_with("${jobs.a-n-${matrix.n}.outputs.data}")))
    assert "only in an entry with a matrix" in place.problem().why


def test_reference_reaches_a_file_that_is_out_of_view(place: Place) -> None:
    place.write(manifest(PREPARE))
    place.write(f'jobs:\n  train: {{algorithm: {{inputs: {{data: "{USE}"}}}}}}\n', "train.yaml")
    stack = place.load("train.yaml").stack
    assert set(stack.jobs) == {"train"}
    assert algorithm(stack.jobs["train"])["inputs"][0]["remote"]["obs"]["obs_url"] == "obs://b/data/"


# --- what is wrong


SWEEP = "s: {matrix: {n: [1, 2, 3, 4]}}\n"
WRITE = "write ${jobs.KEY.outputs.NAME}"


@pytest.mark.parametrize(
    ("jobs", "use", "what", "why", "fix"),
    [
        (PREPARE, "${jobs.prepar.outputs.data}", "unknown key", "not declared", 'did you mean "prepare"?'),
        (PREPARE, "${jobs.prepare.outputs.dta}", "unknown output", "it has data", 'did you mean "data"?'),
        ("prepare: {}\n", USE, "unknown output", '"prepare" at main.yaml:7:3 has no output "data"', None),
        ("prepare: {state: absent}\n", USE, "reference to an absent job", "says state: absent", None),
        ("new: {formerly: prepare}\n", USE, "unknown key", "not declared", 'which was "prepare"'),
        ("", "${jobs.train.outputs.x}", "reference to itself", "outputs of other jobs", "write the path"),
        (SWEEP, "${jobs.s.outputs.m}", "reference to a sweep", "4 jobs: s-n-1, s-n-2, s-n-3 and 1 more",
         "name one job: ${jobs.s-n-1.outputs.m}"),
        (PREPARE, "${jobs.prepare.output.x}", "invalid expression", "is not a valid expression", WRITE),
        (PREPARE, "${jobs.prepare}", "invalid expression", "is not a valid expression", WRITE),
    ],
)  # fmt: skip
def test_reference_that_has_no_path_is_refused_at_its_place(
    place: Place, jobs: str, use: str, what: str, why: str, fix: str | None
) -> None:
    place.write(manifest(jobs + train_with(use)))
    problem = place.problem()
    assert problem.what == what
    assert why in problem.why.replace(f"{place.root}/", "")
    assert (fix or "") in (problem.fix or "")
    assert marked(problem) == use
    assert problem.path == "jobs.train.algorithm.environments.D"


def test_output_without_a_path_is_refused(place: Place) -> None:
    place.write(manifest("prepare: {algorithm: {outputs: [{name: data}]}}\n" + train_with(USE)))
    assert [problem.what for problem in place.problems()] == [
        "missing field",
        "output without an OBS path",
    ]


@pytest.mark.parametrize(
    ("jobs", "why"),
    [
        (
            'a: {algorithm: {outputs: {o: "${jobs.b.outputs.o}"}}}\n'
            'b: {algorithm: {outputs: {o: "${jobs.c.outputs.o}"}}}\n'
            'c: {algorithm: {outputs: {o: "${jobs.a.outputs.o}"}}}\n',
            "a needs b needs c needs a",
        ),
        (
            'a: {algorithm: {outputs: {o: obs://b/}, parameters: {x: "${jobs.b.outputs.o}"}}}\n'
            'b: {algorithm: {outputs: {o: obs://b/}, parameters: {x: "${jobs.a.outputs.o}"}}}\n',
            "a needs b needs a",
        ),
        (
            "a: {needs: b, algorithm: {outputs: {o: obs://b/}}}\n"
            'b: {algorithm: {parameters: {x: "${jobs.a.outputs.o}"}}}\n',
            "a needs b needs a",
        ),
    ],
    ids=["outputs of each other", "values of each other", "a need and a reference"],
)
def test_circle_is_told_once_and_named(place: Place, jobs: str, why: str) -> None:
    place.write(manifest(jobs))
    problem = place.problem()
    assert (problem.what, problem.why) == ("dependency cycle", why)


def test_mistake_in_a_chain_is_told_once_where_it_stands(place: Place) -> None:
    place.write(
        manifest(
            'a: {algorithm: {inputs: {i: "${jobs.b.outputs.o}"}}}\n'
            'b: {algorithm: {outputs: {o: "${jobs.c.outputs.x}"}}}\n'
            "c: {algorithm: {outputs: {y: obs://b/}}}\n"
        )
    )
    problem = place.problem()
    assert (problem.what, place_of(problem)) == ("unknown output", "main.yaml:8:33")


def test_mistake_in_defaults_is_told_once(place: Place) -> None:
    text = manifest("a: {}\nb: {}\n").replace(
        "algorithm: {code_dir", 'algorithm: {inputs: {i: "${jobs.a.outputs.o}"}, code_dir'
    )
    place.write(text)
    problems = place.problems()
    assert [problem.what for problem in problems] == ["reference to itself", "unknown output"]
    assert {place_of(problem) for problem in problems} == {"main.yaml:4:28"}


@pytest.mark.parametrize(
    ("section", "what"),
    [
        ("templates: {t: {algorithm: {inputs: {i: USE}}}}\n", "unknown output"),
        ("templates: {t: {algorithm: {inputs: {i: \"${jobs.b.outputs.o}\"}}}}\n", "unknown key"),
    ],
)  # fmt: skip
def test_template_that_no_job_uses_is_checked_too(place: Place, section: str, what: str) -> None:
    place.write(manifest("prepare: {}\n") + section.replace("USE", f'"{USE}"'))
    assert place.problem().what == what


def test_reference_in_a_template_that_no_job_uses_may_be_right(place: Place) -> None:
    place.write(manifest(PREPARE) + f'templates: {{t: {{algorithm: {{inputs: {{i: "{USE}"}}}}}}}}\n')
    assert place.load().stack.jobs["prepare"].needs == ()


@pytest.mark.parametrize(
    "text",
    [
        f'records: "sqlite:///{USE}"\n',
        f'jobs: {{s: {{matrix: {{n: ["{USE}"]}}}}}}\n',
        f'jobs: {{s: {{matrix: {{n: [1]}}, name: "s-${{matrix.n}}-{USE}"}}}}\n',
    ],
)
def test_expression_elsewhere_says_where_it_is_available(place: Place, text: str) -> None:
    place.write(manifest(PREPARE))
    place.write(text, "more.yaml")
    available = f"{USE} is available only in the values of jobs, templates and defaults"
    assert place.problem().why.endswith(available)


def test_broken_file_does_not_make_an_output_unknown(place: Place) -> None:
    place.write(manifest("prepare: {extends: t}\n" + train_with(USE)))
    place.write("templates:\n  t: {\n", "more.yaml")
    assert "unknown output" not in [problem.what for problem in place.problems()]


def test_paths_that_double_with_each_job_are_refused_and_no_job_is_left_out(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(budget, "MAX_EXPANDED", 1_000_000)
    twice = "${jobs.jN.outputs.o}${jobs.jN.outputs.o}"
    chain = "".join(
        f'j{n}: {{algorithm: {{outputs: {{o: "{twice.replace("N", str(n + 1))}"}}}}}}\n' for n in range(60)
    )
    place.write(manifest(chain + "j60: {algorithm: {outputs: {o: obs://b/}}}\n"))
    assert "expansion too large" in {problem.what for problem in place.problems()}


def test_path_made_of_many_outputs_asks_for_each_once(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[object] = []
    in_full = Outputs._in_full

    def counted(self: Outputs, *arguments: Any) -> Any:
        asked.append(arguments)
        return in_full(self, *arguments)

    monkeypatch.setattr(Outputs, "_in_full", counted)
    paths = "".join(f"${{jobs.j{n}.outputs.o}}" for n in range(100))
    jobs = "".join(f"j{n}: {{algorithm: {{outputs: {{o: obs://b/{n}/}}}}}}\n" for n in range(100))
    first = "first: {algorithm: {inputs: {i: '${jobs.middle.outputs.o}'}}}\n"
    middle = f'middle: {{algorithm: {{outputs: {{o: "{paths}"}}}}}}\n'
    place.write(manifest(first + middle + jobs))
    assert len(place.load().stack.jobs) == 102
    assert len(asked) < 1_000


# --- beside targets and variables


TARGETS = """\
stack: vision
target: dev
targets:
  dev: {kind: local, variables: {bucket: dev-data}}
  prod:
    kind: local
    variables: {bucket: prod-data}
    defaults: {algorithm: {environments: {FROM: "${jobs.prepare.outputs.data}"}}}
variables: {bucket: {default: none}}
"""


def test_path_is_that_of_the_target(place: Place) -> None:
    text = 'prepare: {algorithm: {outputs: {data: "obs://${var.bucket}/d/"}, environments: {FROM: null}}}\n'
    place.write(manifest(text + train_with(USE)).replace(HEAD, TARGETS))
    dev, prod = (place.load(target=name).stack.jobs for name in ("dev", "prod"))
    assert algorithm(dev["train"])["environments"] == {"D": "obs://dev-data/d/"}
    assert algorithm(prod["train"])["environments"] == {
        "FROM": "obs://prod-data/d/",
        "D": "obs://prod-data/d/",
    }
    assert (dev["train"].needs, dev["prepare"].needs) == (("prepare",), ())


@pytest.mark.parametrize(
    "section",
    [
        f'variables: {{v: {{default: "{USE}"}}}}',
        f'variables: {{v: {{}}}}\ntargets: {{t: {{kind: local, variables: {{v: "{USE}"}}}}}}\ntarget: t',
        f'targets: {{more: {{kind: modelarts, region: "{USE}", project_id: p}}}}\ntarget: more',
    ],
)
def test_expression_in_a_variable_or_target_says_where_it_is_available(place: Place, section: str) -> None:
    place.write(manifest(PREPARE))
    place.write(section + "\n", "more.yaml")
    assert "is available only in the values of jobs, templates and defaults" in place.problem().why
