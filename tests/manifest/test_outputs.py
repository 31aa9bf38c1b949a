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


def jobs_of(place: Place, jobs: str, more: str = "", **options: Any) -> dict[str, DesiredJob]:
    place.write(manifest(jobs, more))
    return dict(place.load(**options).stack.whole)


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
