"""A stack that differs by target, from Python and from the command line."""

from __future__ import annotations

from pathlib import Path

import pytest

import reconciler as api
from tests.cli.conftest import Reconciler, write

STACK = """\
stack: envs
target: dev
targets:
  dev: {kind: local, variables: {token: "${env.TOKEN}"}}
  prod:
    kind: local
    variables: {lr: 0.5, bucket: "${env.PROD}", token: "${env.PROD_TOKEN}"}
    defaults: {description: on prod}
variables:
  lr: {type: number, allowed: [0.1, 0.5], default: 0.1}
  bucket: {default: b}
  token: {sensitive: true}
jobs:
  train:
    matrix: {lr: ["${var.lr}"]}
    algorithm:
      code_dir: obs://${var.bucket}/code/
      boot_file: obs://${var.bucket}/code/train.py
      engine: {engine_id: pytorch_1.8.0-cuda_10.2-py_3.7-ubuntu_18.04-x86_64}
      environments: {TOKEN: "${var.token}"}
    spec: {resource: {flavor_id: modelarts.vm.cpu.2u, node_count: 1}}
"""

DEV = {"TOKEN": "t0ken-dev"}
PROD = {"PROD": "p", "PROD_TOKEN": "t0ken-prod"}


@pytest.fixture(autouse=True)
def _stack(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(STACK)
    monkeypatch.chdir(tmp_path)


def set_all(monkeypatch: pytest.MonkeyPatch, environ: dict[str, str]) -> None:
    for name, value in environ.items():
        monkeypatch.setenv(name, value)


def test_session_on_a_target_has_the_jobs_of_that_target(tmp_path: Path) -> None:
    stack = api.load(tmp_path, environ=DEV | PROD)
    assert stack.keys == ("train-lr-0_1",)
    with stack.connect("prod", environ={}) as session:
        assert [action.key for action in session.plan().actions] == ["train-lr-0_5"]
        assert session.stack.keys == ("train-lr-0_5",)
        assert "t0ken" not in str(session.plan().to_dict())
    with stack.connect(environ={}) as session:
        assert [action.key for action in session.plan().actions] == ["train-lr-0_1"]


def test_invalid_value_of_another_target_fails_validate_but_not_plan(reconciler: Reconciler) -> None:
    reconciler.setenv("TOKEN", "t0ken-dev")
    reconciler.ends(0, "validate", err='the target "prod" was not checked: PROD is not set')
    write(STACK.replace("lr: 0.5", "lr: 0.3"))
    reconciler.ends(0, "plan")
    reconciler.ends(65, "validate", err='the value of "lr" from the target must be one of 0.1, 0.5; got 0.3')
    reconciler.ends(65, "plan -t prod")
    reconciler.ends(0, "validate -t dev")


def test_saved_plan_resolves_the_secret_of_its_target(reconciler: Reconciler) -> None:
    set_all(reconciler.patch, PROD)
    reconciler.ends(0, "plan -t prod --out prod.plan")
    assert "t0ken" not in Path("prod.plan").read_text(encoding="utf-8")
    reconciler.ends(0, "apply --plan prod.plan --yes")
    result = reconciler("jobs show train-lr-0_5 -t prod --json")
    assert "on prod" in result.out
    reconciler.ends(0, "plan -t prod --detailed-exitcode")


def test_every_command_reads_the_stack_on_its_target(reconciler: Reconciler) -> None:
    set_all(reconciler.patch, PROD)
    reconciler.ends(0, "apply -t prod --yes")
    reconciler.patch.delenv("PROD_TOKEN")  # none of them sends it
    for line in ("status", "drift", "history", "doctor", "unlock --yes", "destroy --yes"):
        result = reconciler(f"{line} -t prod")
        assert result.code in (0, 1), result.err
        assert "lr-0_1" not in result.out
