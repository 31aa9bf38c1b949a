"""Text on a terminal: tables drop columns where it is narrow, and no line is broken."""

from __future__ import annotations

import sys

import pytest

from reconciler.cli.main import cli, run
from tests.cli.conftest import Reconciler, manifest, write
from tests.cli.terminal import Terminal

LAST = "Plan: 1 to create, 0 to update, 0 to replace, 0 to terminate, 0 to keep."


def test_columns_of_the_environment_are_those_of_a_terminal_and_not_of_a_pipe(reconciler: Reconciler) -> None:
    key = "lr-sweep-batch-64-lr-0_0001"
    write(manifest(key))
    reconciler.setenv("COLUMNS", "40")
    assert reconciler("plan").out.splitlines()[-1] == LAST
    assert "WAITS FOR" in reconciler("status").out

    def shown(command: str) -> list[str]:
        screen = Terminal()
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(sys, "stdout", screen)
            assert run(cli, [command, "--no-color"]) == 0
        return screen.getvalue().splitlines()

    assert shown("plan")[-1] == LAST
    head, row = (line for line in shown("status") if line.startswith(("KEY", key)))
    assert head.startswith("KEY")
    assert head.endswith("  …")
    assert row.startswith(key)
    assert max(map(len, (head, row))) <= 40


def test_terminal_of_unknown_width_gets_the_first_problems_only(
    reconciler: Reconciler, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(manifest(*(f"job-{n}" for n in range(30))).replace("spec:", "specs:"))
    monkeypatch.delenv("COLUMNS", raising=False)
    monkeypatch.setattr(sys, "stderr", screen := Terminal())
    assert run(cli, ["validate"]) == 65
    assert screen.getvalue().splitlines()[-1].endswith(" more; -v shows all")
