"""`${jobs.KEY.outputs.NAME}`: which path it stands for, what it needs, and what is wrong with it."""

from __future__ import annotations

import textwrap
from typing import Any

import pytest

from reconciler.core.stack import DesiredJob
from reconciler.manifest.jobs import Outputs
from tests.manifest.conftest import DEFAULTS, HEAD, Place

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


def test_reference_in_defaults_is_for_every_job_but_those_that_take_it_away(place: Place) -> None:
    prepare = "prepare: {algorithm: {outputs: {data: obs://b/data/}, inputs: {data: null}}}\n"
    text = manifest(f"{prepare}train: {{}}\nmore: {{}}\n").replace(
        "algorithm: {code_dir", f'algorithm: {{inputs: {{data: "{USE}"}}, code_dir'
    )
    place.write(text)
    found = place.load().stack.jobs
    assert {key: job.needs for key, job in found.items()} == {
        "prepare": (),
        "train": ("prepare",),
        "more": ("prepare",),
    }


def test_paths_are_followed_through_a_chain_of_jobs(place: Place) -> None:
    count = 2_000
    chain = "".join(
        f'j{n}: {{algorithm: {{outputs: {{o: "${{jobs.j{n + 1}.outputs.o}}{"x/" if n < 3 else ""}"}}}}}}\n'
        for n in range(count)
    )
    jobs = jobs_of(place, chain + f"j{count}: {{algorithm: {{outputs: {{o: obs://b/}}}}}}\n")
    assert algorithm(jobs["j0"])["outputs"][0]["remote"]["obs"]["obs_url"] == "obs://b/x/x/x/"
    assert jobs["j0"].needs == ("j1",)


def test_sensitive_variable_without_a_value_is_no_problem_offline(place: Place) -> None:
    jobs = jobs_of(
        place,
        'prepare: {algorithm: {outputs: {data: "obs://${var.bucket}/data/"}}}\n'
        f'train: {{algorithm: {{inputs: {{D: "{USE}"}}}}}}\n',
        "variables: {bucket: {env: BUCKET, sensitive: true}}\n",
        offline=True,
    )
    assert jobs["train"].needs == ("prepare",)


def test_reference_reaches_a_file_that_is_out_of_view(place: Place) -> None:
    place.write(manifest(PREPARE))
    place.write(f'jobs:\n  train: {{algorithm: {{inputs: {{data: "{USE}"}}}}}}\n', "train.yaml")
    stack = place.load("train.yaml").stack
    assert set(stack.jobs) == {"train"}
    assert algorithm(stack.jobs["train"])["inputs"][0]["remote"]["obs"]["obs_url"] == "obs://b/data/"


def test_broken_file_does_not_make_an_output_unknown(place: Place) -> None:
    place.write(manifest("prepare: {extends: t}\n" + train_with(USE)))
    place.write("templates:\n  t: {\n", "more.yaml")
    assert "unknown output" not in [problem.what for problem in place.problems()]


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
