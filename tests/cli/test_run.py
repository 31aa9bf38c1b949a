"""`run` runs one job in the foreground, and leaves no trace of it on the target."""

from __future__ import annotations

import signal
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from reconciler.errors import ExitCode
from tests.cli.conftest import Reconciler, write

MANIFEST = """\
apiVersion: reconciler/v1
stack: vision
target: laptop
targets: {laptop: {kind: process, storage: store}, emulated: {kind: local}}
variables: {token: {sensitive: true, default: "hunter2-hunter2"}}
jobs:
  train:
    algorithm:
      code_dir: obs://b/code/
      boot_file: obs://b/code/train.py
      engine: {engine_id: any}
      parameters: {code: 0, text: "of train"}
      environments: {TOKEN: "${var.token}"}
      outputs: {out: "obs://b/out/r${job.revision}/"}
    spec: {resource: {flavor_id: any}}
  next:
    algorithm:
      code_dir: obs://b/code/
      boot_file: obs://b/code/train.py
      engine: {engine_id: any}
      parameters: {code: 0}
      inputs: {data: "${jobs.train.outputs.out}"}
    spec: {resource: {flavor_id: any}}
  own:
    code: {source: src, exclude: [left-out]}
    algorithm: {boot_file: pkg/main.py, engine: {engine_id: any}}
    spec: {resource: {flavor_id: any}}
"""
TRAIN = """
import argparse, os, signal, sys, time
p = argparse.ArgumentParser()
for name in ("code", "text", "out", "data"): p.add_argument(f"--{name}")
a = p.parse_args()
print("text", a.text, "data", a.data, flush=True)
if a.out: open(a.out + "/model", "w").write(os.environ["TOKEN"])
if a.code == "wait":
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(print("asked to end", flush=True)))
    print("waits", flush=True)
    time.sleep(600)
sys.exit(int(a.code))
"""


@pytest.fixture(autouse=True)
def stack(reconciler: Reconciler) -> None:
    write(MANIFEST)
    Path("store/b/code").mkdir(parents=True)
    Path("store/b/code/train.py").write_text(TRAIN, encoding="utf-8")
    Path("src/pkg").mkdir(parents=True)
    Path("src/left-out").touch()
    Path("src/pkg/main.py").write_text(
        "import os; print(sorted(os.listdir(os.environ['WORKSPACE'])), os.environ['WORKSPACE'][-4:])"
    )


def started(*arguments: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "reconciler", "run", *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )


@pytest.mark.parametrize(("code", "ends"), [("0", 0), ("63", 63), ("64", 1)])
def test_exit_code_of_the_job_is_returned(code: str, ends: int) -> None:
    with started("train", "--param", f"code={code}", "--param", "text=a b") as run:
        out, err = run.communicate(timeout=60)
    assert run.returncode == ends
    assert out == "text a b data None\n"
    [output] = [
        Path(line.removeprefix("output: ")) for line in err.splitlines() if line.startswith("output: ")
    ]
    assert (output / "model").read_text(encoding="utf-8") == "hunter2-hunter2"
    assert not Path("store/b/out").exists()


def test_run_records_nothing(reconciler: Reconciler) -> None:
    reconciler.ends(ExitCode.DONE, "run train")
    reconciler.ends(ExitCode.DONE, "plan", out="create    train  r1")
    assert reconciler("jobs list --json").document["items"] == []


@pytest.mark.parametrize(
    ("number", "ends"),
    [
        (signal.SIGINT, ExitCode.INTERRUPTED),
        (signal.SIGTERM, ExitCode.TERMINATED),
        (signal.SIGHUP, ExitCode.HUNG_UP),
    ],
)
def test_interrupt_ends_the_job(number: int, ends: ExitCode) -> None:
    with started("train", "--param", "code=wait") as run:
        assert run.stdout is not None
        assert [run.stdout.readline() for _ in range(2)] == ["text of train data None\n", "waits\n"]
        run.send_signal(number)
        out, err = run.communicate(timeout=120)  # until the job has closed its output
    assert (run.returncode, out) == (ends, "asked to end\n")
    assert ("interrupt again to kill it" in err) == (number == signal.SIGINT)


def test_declared_code_runs_as_it_is_now_and_is_not_uploaded(tmp_path: Path) -> None:
    before = set(Path(tempfile.gettempdir()).glob("reconciler-own-*"))
    with started("own") as run:
        out, _ = run.communicate(timeout=60)
    assert (run.returncode, out) == (0, "['pkg'] /src\n")
    assert [path.name for path in Path("store").iterdir()] == ["b"]
    # A job without outputs leaves nothing.
    assert set(Path(tempfile.gettempdir()).glob("reconciler-own-*")) == before


def test_missing_requirements_are_reported(reconciler: Reconciler) -> None:
    Path("store/b/code/requirements.txt").touch()
    reconciler.ends(ExitCode.DONE, "run train", err="requirements.txt is not installed")


def test_missing_interpreter_is_named(reconciler: Reconciler) -> None:
    write(MANIFEST.replace("storage: store", "storage: store, python: nowhere/python"))
    why = f"python: {Path.cwd()}/nowhere/python cannot be executed"
    reconciler.ends(ExitCode.FAILED, "run train", err=why)
    reconciler.ends(ExitCode.ENDED_BADLY, "apply --yes --wait completed")
    reconciler.ends(ExitCode.DONE, "jobs logs train", out=why)


def test_print_shows_secrets_by_name_and_starts_nothing(reconciler: Reconciler) -> None:
    result = reconciler.ends(
        ExitCode.DONE, "run train --print", out=["--text=of train", "export TOKEN='${var.token}'"]
    )
    assert "hunter2" not in result.out + result.err
    assert "export MA_JOB_DIR=" in result.out


def test_print_shows_a_secret_of_the_caller_by_its_name(
    reconciler: Reconciler, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WANDB_API_KEY", "hunter3-hunter3")
    write(MANIFEST.replace("storage: store", "storage: store, environment: {inherit: [WANDB_API_KEY]}"))
    result = reconciler.ends(
        ExitCode.DONE, "run own --print", out="export WANDB_API_KEY='${env.WANDB_API_KEY}'"
    )
    assert "hunter3" not in result.out + result.err


def test_input_is_the_output_of_the_newest_completed_revision(reconciler: Reconciler) -> None:
    result = reconciler.ends(ExitCode.FAILED, "run next", err="train has not completed on this machine")
    assert "fix: apply it first" in result.err
    reconciler.ends(ExitCode.DONE, "apply --yes --only train --wait completed")
    with started("next") as run:
        out, _ = run.communicate(timeout=60)
    assert (run.returncode, out) == (0, f"text None data {Path.cwd() / 'store/b/out/r1'}\n")


def test_job_that_cannot_run_locally_is_reported_and_leaves_no_files(reconciler: Reconciler) -> None:
    Path("store/b/code/train.py").unlink()
    before = set(Path(tempfile.gettempdir()).glob("reconciler-train-*"))
    reconciler.ends(ExitCode.FAILED, "run train", err="train.py does not exist")
    assert set(Path(tempfile.gettempdir()).glob("reconciler-train-*")) == before


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("run trian", "trian"),
        ("run train --param lr=1", "train has no parameter lr; it has: code, text"),
        ("run train --param lr", "write NAME=VALUE"),
        ("run train -t emulated", "run needs one of kind process"),
    ],
)
def test_run_wrong_usage_is_64(reconciler: Reconciler, line: str, words: str) -> None:
    reconciler.ends(ExitCode.WRONG_USAGE, line, err=words)
