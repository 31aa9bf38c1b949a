"""`reconciler explain origin KEY`: the file and line that gave each value."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cli.conftest import Reconciler, write

SHARED = """\
defaults:
  spec: {resource: {flavor_id: gpu, node_count: 1}, auto_stop: 8h}
templates:
  base:
    algorithm:
      code_dir: obs://${var.bucket}/code/
      boot_file: obs://${var.bucket}/code/train.py
      engine: {engine_id: pt}
"""
JOBS = """\
stack: test
targets: {local: {kind: local}}
variables:
  bucket: {default: data}
  key: {env: KEY, sensitive: true}
jobs:
  sweep:
    extends: base
    matrix: {lr: [0.1, 0.2]}
    algorithm:
      parameters:
        lr: ${matrix.lr}
        seed: 007
      environments: {API_KEY: "${var.key}"}
    spec: {resource: {node_count: 4}}
"""


@pytest.fixture(autouse=True)
def _stack(tmp_path: Path) -> None:
    write(SHARED, "shared.yaml")
    write(JOBS)


def origins(text: str) -> dict[str, list[str]]:
    words = (line.removesuffix(" -").split() for line in text.splitlines()[1:])
    return {path: rest for path, *rest in words}


def test_each_value_is_shown_with_its_location_through_every_layer(reconciler: Reconciler) -> None:
    reconciler.setenv("KEY", "hunter2-hunter2")
    result = reconciler.ends(0, "explain origin sweep-lr-0_1")
    assert origins(result.out) == {
        "spec.resource.flavor_id": ['"gpu"', "shared.yaml:2"],
        "spec.resource.node_count": ["4", "jobs.yaml:15"],
        "spec.auto_stop.time_unit": ['"HOURS"', "shared.yaml:2"],
        "spec.auto_stop.duration": ["8", "shared.yaml:2"],
        "algorithm.code_dir": [
            '"obs://data/code/"', "shared.yaml:6", "obs://${var.bucket}/code/", "(var.bucket:", "jobs.yaml:4)"
        ],
        "algorithm.boot_file": [
            '"obs://data/code/train.py"', "shared.yaml:7", "obs://${var.bucket}/code/train.py",
            "(var.bucket:", "jobs.yaml:4)",
        ],
        "algorithm.engine.engine_id": ['"pt"', "shared.yaml:8"],
        "algorithm.parameters.lr.value": [
            "0.1", "jobs.yaml:12", "${matrix.lr}", "(matrix.lr:", "jobs.yaml:9)"
        ],
        "algorithm.parameters.seed.value": ["007", "jobs.yaml:13"],
        "algorithm.environments.API_KEY": [
            '"${var.key}"', "jobs.yaml:14", "${var.key}", "(var.key:", "environment", "variable", "KEY)"
        ],
    }  # fmt: skip


def test_values_and_defaults_of_the_target_are_shown_with_their_location(reconciler: Reconciler) -> None:
    targets = """\
targets:
  local: {kind: local}
  prod:
    kind: local
    variables: {bucket: prod-data}
    defaults: {spec: {resource: {flavor_id: big}}}
target: local
"""
    text = JOBS.replace("targets: {local: {kind: local}}\n", targets)
    write(text)
    result = reconciler("explain origin sweep-lr-0_1 -t prod")
    found = origins(result.out)
    assert found["spec.resource.flavor_id"] == ['"big"', "jobs.yaml:7"]
    assert found["algorithm.code_dir"][0] == '"obs://prod-data/code/"'
    assert found["algorithm.code_dir"][-1] == "jobs.yaml:6)"
    found = origins(reconciler("explain origin sweep-lr-0_1 --var bucket=b").out)
    assert found["algorithm.code_dir"][-2:] == ["(var.bucket:", "--var)"]


@pytest.mark.parametrize(
    ("words", "hint"),
    [
        (("origin",), "needs the key"),
        (("origin", "swep-lr-0_1"), 'did you mean "sweep-lr-0_1"?'),
        (("origin", "sweep-lr-0_1", "nowhere"), "does not exist"),
        (("states", "more"), "unexpected"),
    ],
)
def test_unknown_field_or_key_to_explain_is_wrong_usage(
    reconciler: Reconciler, words: tuple[str, ...], hint: str
) -> None:
    reconciler.ends(64, "explain", *words, err=hint)


def test_reference_is_shown_with_the_output_that_it_names_and_the_need_that_it_implies(
    reconciler: Reconciler, tmp_path: Path
) -> None:
    more = """\
jobs:
  use:
    extends: base
    algorithm:
      inputs: {model: "${jobs.make.outputs.model}"}
  make:
    extends: base
    algorithm:
      outputs:
        model: obs://b/model/
"""
    write(more, "more.yaml")
    lines = reconciler("explain origin use").out.splitlines()
    [value] = [line for line in lines if line.startswith("algorithm.inputs.model")]
    [need] = [line for line in lines if line.startswith("needs")]
    assert '"obs://b/model/"' in value
    assert "more.yaml:5" in value
    assert "${jobs.make.outputs.model}" in value
    assert "jobs.make.outputs.model: more.yaml:10" in value
    assert need.split()[:3] == ["needs", '"make"', "more.yaml:5"]
