"""`reconciler fmt`, as its user calls it."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.cli.conftest import Reconciler, write

MESSY = "jobs: { }\nstack:   test   # its name\n"
TIDY = "jobs: {}\nstack: test     # its name\n"


def test_changed_files_are_named_and_a_second_run_changes_nothing(reconciler: Reconciler) -> None:
    for name in ("jobs.yaml", "team/more.yml"):
        write(MESSY, name)
    result = reconciler("fmt")
    assert (result.code, result.out, result.err) == (0, "jobs.yaml\nteam/more.yml\n", "")
    assert Path("jobs.yaml").read_text(encoding="utf-8") == TIDY
    reconciler.ends(0, "fmt jobs.yaml team", out="")


def test_check_changes_nothing_names_the_files_and_exits_1(reconciler: Reconciler) -> None:
    write(MESSY)
    assert reconciler.ends(1, "fmt --check .").out == "jobs.yaml\n"
    assert Path("jobs.yaml").read_text(encoding="utf-8") == MESSY
    reconciler.ends(0, "fmt")
    reconciler.ends(0, "fmt --check")


def test_file_name_is_not_interpreted_as_a_workflow_command(reconciler: Reconciler, tmp_path: Path) -> None:
    (tmp_path / "::error::x\n::.yaml").write_text(MESSY, encoding="utf-8")
    for arguments in (("--check",), ()):
        result = reconciler("fmt", *arguments)
        assert not [line for line in result.out.splitlines() if line.lstrip().startswith("::")]


def test_other_yaml_in_a_directory_is_left_alone(reconciler: Reconciler) -> None:
    write(TIDY)
    write("services:   {}\n", "compose.yaml")
    assert reconciler("fmt").out == ""
    reconciler.ends(64, "fmt nowhere")


def test_invalid_file_is_65_with_its_location_and_the_others_are_formatted(reconciler: Reconciler) -> None:
    write("stack: [\n", "a.yaml")
    write(MESSY, "b.yaml")
    result = reconciler("fmt")
    assert (result.code, result.out) == (65, "b.yaml\n")
    assert "a.yaml:2" in result.err
    assert Path("a.yaml").read_text(encoding="utf-8") == "stack: [\n"


@pytest.mark.skipif(os.geteuid() == 0, reason="root writes everywhere")
def test_unwritable_file_stays_unchanged(reconciler: Reconciler, tmp_path: Path) -> None:
    write(MESSY)
    tmp_path.chmod(0o500)
    try:
        reconciler.ends(1, "fmt")
    finally:
        tmp_path.chmod(0o700)
    assert Path("jobs.yaml").read_text(encoding="utf-8") == MESSY
