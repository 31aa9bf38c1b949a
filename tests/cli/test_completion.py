"""Shell completion: the scripts, and what a shell is offered."""

from __future__ import annotations

import re
import shutil
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import click
import pytest
from click.shell_completion import BashComplete

from reconciler.cli.main import COMMANDS, cli
from tests.cli.conftest import Reconciler, manifest, write

BROKEN = (
    b"stack: [\n",
    b"hello: world\n",
    b"jobs: {a: {}}\n",
    b"\xff\xfe\x00stack",
    b"- stack: a\n",
    b"stack: a\njobs: [1]\ntargets: 3\nvariables: x\n",
    b"stack: a\njobs: {a: {matrix: {b: []}}, c: 3}\n",
    b"stack: a\njobs: " + b"[" * 500 + b"]" * 500,
)


def offered(*args: str, incomplete: str = "") -> list[str]:
    """What follows some words of a command line."""
    complete = BashComplete(cli, {}, "reconciler", "_RECONCILER_COMPLETE")
    return [item.value for item in complete.get_completions(list(args), incomplete)]


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_script_names_the_program_and_is_accepted_by_its_shell(reconciler: Reconciler, shell: str) -> None:
    said = reconciler.ends(0, "completion", shell, out="_RECONCILER_COMPLETE")
    if found := shutil.which(shell):
        subprocess.run([found, "-n"], input=said.out, text=True, check=True, timeout=30)


SWEEP = """
variables: {bucket: {default: b}, token: {env: TOKEN, sensitive: true}}
jobs:
  lr-sweep:
    matrix: {lr: [0.1, 0.01]}
    algorithm: {code_dir: "obs://${var.bucket}/", command: run, engine: {engine_id: pt}}
    spec: {resource: {flavor_id: g}}
"""


def test_members_of_a_sweep_are_offered_in_place_of_its_entry(reconciler: Reconciler) -> None:
    write(manifest("train"))
    write(SWEEP, "sweep.yaml")
    assert offered("plan", "--only", incomplete="lr") == ["lr-sweep-lr-0_01", "lr-sweep-lr-0_1"]
    write("jobs: {other: {spec: 3}}", "more.yaml")
    assert offered("plan", "--only") == ["lr-sweep", "other", "train"]


@pytest.mark.parametrize(
    ("words", "incomplete", "names"),
    [
        ([], "pl", ["plan"]),
        (["plan", "--only"], "t", ["test", "train"]),
        (["apply", "--only"], "other,tr", ["other,train"]),
        (["plan", "--target"], "", ["there"]),
        (["history"], "tr", ["train"]),
        (["explain"], "lifecycle.on_c", ["lifecycle.on_change"]),
        (["explain"], "or", ["origin"]),
        (["explain", "origin"], "tr", ["train"]),
        (["explain", "matrix"], "tr", []),
        (["status"], "tr", ["train"]),
        (["jobs", "logs"], "tr", ["train"]),
        (["jobs", "wait", "train"], "te", ["test"]),
        (["plan", "--var"], "b", ["bucket="]),
        (["plan", "--var"], "bucket=", []),
        (["plan", "--allow"], "lost", ["lost-work"]),
        (["plan", "--allow"], "lost-work=tr", ["lost-work=train"]),
        (["plan", "-o"], "j", ["json", "junit"]),
        (["apply", "--wait"], "", ["completed", "running"]),
        (["jobs", "list", "-t"], "th", ["there"]),
    ],
)
def test_names_are_offered_where_they_are_wanted(
    reconciler: Reconciler, words: list[str], incomplete: str, names: list[str]
) -> None:
    text = manifest("train", "test", "other") + "variables: {bucket: {default: b}}\n"
    write(text)
    assert offered(*words, incomplete=incomplete) == names


def test_stack_of_the_path_on_the_line_is_asked(tmp_path: Path, reconciler: Reconciler) -> None:
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
        text = manifest(f"train-{name}").replace("stack: test", f"stack: {name}")
        (tmp_path / name / "jobs.yaml").write_text(text, encoding="utf-8")
    assert offered("plan", "two", "--only") == ["train-two"]
    assert offered("status", "one", incomplete="tr") == ["train-one"]
    assert offered("plan", "--only") == []


def parameters() -> Iterator[tuple[str, click.Parameter]]:
    """Every argument and option of every command."""
    context = click.Context(cli)
    for name in COMMANDS:
        command = cli.get_command(context, name)
        assert command is not None
        inner = list(command.commands.values()) if isinstance(command, click.Group) else [command]
        for one in inner:
            yield from ((f"{name} {one.name} {parameter.name}", parameter) for parameter in one.params)


#: What stands in a metavar, and what is offered there in a stack with the job `train` on the target `there`.
OFFERED = {"KEY": "train", "JOB": "train", "GUARD": "lost-work"}


def test_every_parameter_that_wants_a_name_offers_it(reconciler: Reconciler) -> None:
    write(manifest("train"))
    context = click.Context(cli)
    checked, lacking = 0, []
    for where, parameter in parameters():
        words = re.findall(r"\b[A-Z]+\b(?!\W*[=:])", parameter.metavar or "")
        wanted = {OFFERED[word] for word in words if word in OFFERED and parameter.name != "topic"}
        if parameter.name == "target":
            wanted.add("there")
        found = {item.value for name in wanted for item in parameter.shell_complete(context, name[:2])}
        lacking += [f"{where}: {name}" for name in wanted - found]
        checked += len(wanted)
    assert lacking == []
    assert checked > 20


def test_every_parameter_that_wants_a_file_offers_files() -> None:
    names = {"paths", "plan_file", "var_files", "file", "directory"}
    found = [(where, parameter) for where, parameter in parameters() if parameter.name in names]
    assert [where for where, parameter in found if not isinstance(parameter.type, click.Path)] == []
    assert len(found) > 20


def test_broken_or_missing_manifest_offers_and_says_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert offered("plan", "--only") == offered("plan", "-t") == []
    for data in BROKEN:
        (tmp_path / "jobs.yaml").write_bytes(data)
        for words in (["plan", "--only"], ["plan", "-t"], ["plan", "--var"], ["status"]):
            offered(*words)
    assert capfd.readouterr() == ("", "")


def test_keys_of_a_thousand_jobs_are_offered_at_once(tmp_path: Path, reconciler: Reconciler) -> None:
    (tmp_path / "jobs.yaml").write_text(manifest(*(f"job-{n}" for n in range(1000))), encoding="utf-8")
    started = time.process_time()
    assert len(offered("plan", "--only")) == 1000
    assert time.process_time() - started < 2
