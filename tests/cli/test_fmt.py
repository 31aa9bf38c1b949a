"""`reconciler fmt`, as its user calls it."""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest

from tests.cli.conftest import Reconciler, write

MESSY = "jobs: { }\nstack:   test   # its name\n"
TIDY = "jobs: {}\nstack: test     # its name\n"


def test_changed_files_are_named_and_a_second_time_there_is_nothing_to_do(reconciler: Reconciler) -> None:
    for name in ("jobs.yaml", "team/more.yml"):
        write(MESSY, name)
    said = reconciler("fmt")
    assert (said.code, said.out, said.err) == (0, "jobs.yaml\nteam/more.yml\n", "")
    assert Path("jobs.yaml").read_text(encoding="utf-8") == TIDY
    reconciler.ends(0, "fmt jobs.yaml team", out="")


def test_check_changes_nothing_shows_a_diff_and_exits_1(reconciler: Reconciler) -> None:
    write(MESSY)
    said = reconciler.ends(1, "fmt --check .")
    assert said.out.splitlines()[:2] == ["--- jobs.yaml", "+++ jobs.yaml"]
    assert "+stack: test     # its name" in said.out
    assert Path("jobs.yaml").read_text(encoding="utf-8") == MESSY
    reconciler.ends(0, "fmt")
    reconciler.ends(0, "fmt --check")


SECRET = "hunter-2-hunter"
#: Lines of a manifest with a secret that no mark tells.
UNMARKED = {
    "by the name of a variable": f"variables: {{hf_token:   {{default: {SECRET}}}}}",
    "by the name of a value on a target": f"targets: {{t:   {{variables: {{password: {SECRET}}}}}}}",
    "by the name of a parameter": f"defaults: {{algorithm: {{parameters:   {{api_key: {SECRET}}}}}}}",
    "in a list": f"defaults: {{algorithm: {{parameters:   [{{name: api_key, value: {SECRET}}}]}}}}",
    "in an environment": f"defaults: {{algorithm: {{environments:   {{DB_PASSWORD: {SECRET}}}}}}}",
    "in a command": f"defaults: {{algorithm: {{command:   'run --token {SECRET}'}}}}",
    "beside an expression": f"defaults: {{algorithm: {{command:   '${{var.x}} --token {SECRET}'}}}}",
    "by its look": "defaults: {description:   hf_hunter2hunter2hunter2hunter}",
    "in a target": f"targets: {{t: {{kind: modelarts,   region: r, sk: {SECRET}}}}}",
    "in the address of records": f"records:   postgresql://u:{SECRET}@h/d",
    "in a notification": f"notify:   [{{url: json://host/{SECRET}}}]",
    "in a comment": f"limits:   {{}}  # password: {SECRET}",
    "in a comment on a line of its own": f"# token = {SECRET}\nlimits:   {{}}",
    "in a folded line": "variables:\n   key:\n      default: hunter\n        hunter-2\n      sensitive: true",
    "in a quoted line": 'variables:\n   key:\n      default: "hunter\n       hunter"\n      sensitive: true',
    "in several lines": f"defaults:\n   raw:\n      api_key: |\n         {SECRET}\n         {SECRET}",
}


@pytest.mark.parametrize("text", UNMARKED.values(), ids=UNMARKED)
def test_diff_of_check_shows_no_literal_secret(reconciler: Reconciler, text: str) -> None:
    write(f"{text}\nstack: test\n")
    reconciler.ends(1, "fmt --check", out="stack: test", lacks="hunter")


def test_diff_of_check_shows_what_is_no_secret(reconciler: Reconciler) -> None:
    text = (
        "variables: {hf_token:   {env: HF_TOKEN, sensitive: true, description: of the team}}\n"
        "defaults: {algorithm: {parameters:   {max_tokens: 5000, token: '${var.hf_token}', lr: 0.125}}}\n"
        "stack: test\n"
    )
    write(text)
    assert "(sensitive)" not in reconciler("fmt --check .").out


#: What a CI service would obey if it stood in the log as it stands in the file.
COMMANDS = (
    "::error::x", "::add-mask::a", "::set-output name=a::b", "##[error]x", "##vso[task.setvariable]x",
    "##VSO[x]y", "##teamcity[x]",
)  # fmt: skip


@pytest.mark.parametrize(
    "text", ["x: '@'", "x: |\n  @\n  y", "# @", '"@": 1', "x: 'a\n\n  @'", "x: 'a\x85@\u2028@'"]
)
@pytest.mark.parametrize("end", ["\n", "\r\n", "\r"])
def test_diff_of_check_holds_no_workflow_command_and_no_hidden_line_break(
    reconciler: Reconciler, tmp_path: Path, text: str, end: str
) -> None:
    for number, command in enumerate(COMMANDS):
        written = f"{text}\nstack:   test\n".replace("@", command).replace("\n", end)
        (tmp_path / f"{number}.yaml").write_bytes(written.encode())
    said = reconciler.ends(1, "fmt --check")
    assert said.out.count("+++") == len(COMMANDS)
    lines = said.out.split("\n")
    assert said.out.splitlines() == lines[:-1]
    assert not [line for line in lines if line.lstrip().startswith("::")]
    assert not re.search(r"##(\[|vso\[|teamcity\[)", said.out, re.IGNORECASE)


def test_name_of_a_file_is_no_workflow_command(reconciler: Reconciler, tmp_path: Path) -> None:
    (tmp_path / "::error::x\n::.yaml").write_text(MESSY, encoding="utf-8")
    for arguments in (("--check",), ()):
        said = reconciler("fmt", *arguments)
        assert not [line for line in said.out.splitlines() if line.lstrip().startswith("::")]


def test_other_yaml_in_a_directory_is_left_alone(reconciler: Reconciler) -> None:
    write(TIDY)
    write("services:   {}\n", "compose.yaml")
    assert reconciler("fmt").out == ""
    reconciler.ends(64, "fmt nowhere")


def test_invalid_file_is_65_with_its_place_and_the_others_are_formatted(reconciler: Reconciler) -> None:
    write("stack: [\n", "a.yaml")
    write(MESSY, "b.yaml")
    said = reconciler("fmt")
    assert (said.code, said.out) == (65, "b.yaml\n")
    assert "a.yaml:2" in said.err
    assert Path("a.yaml").read_text(encoding="utf-8") == "stack: [\n"


@pytest.mark.skipif(os.geteuid() == 0, reason="root writes everywhere")
def test_file_that_cannot_be_written_stays_as_it_is(reconciler: Reconciler, tmp_path: Path) -> None:
    write(MESSY)
    tmp_path.chmod(0o500)
    try:
        reconciler.ends(1, "fmt")
    finally:
        tmp_path.chmod(0o700)
    assert Path("jobs.yaml").read_text(encoding="utf-8") == MESSY


def test_formatting_changes_no_plan(reconciler: Reconciler) -> None:
    text = """\
targets: {local: {kind: local}}
jobs:
    a:
        spec: {resource: {node_count: 1, flavor_id: modelarts.vm.cpu.2u}}
        algorithm:
            parameters:
            - {value: 0.10, name: lr}
            boot_file: obs://b/code/train.py
            code_dir: obs://b/code/
            engine: {engine_id: pytorch_1.8.0-cuda_10.2-py_3.7-ubuntu_18.04-x86_64}
stack: test
"""
    write(text)
    (before,) = reconciler("plan --json").document["actions"]
    assert reconciler("fmt").out == "jobs.yaml\n"
    (after,) = reconciler("plan --json").document["actions"]
    assert before | {"source": None} == after | {"source": None}
