"""stderr: lines for people or, with --log-format json, one JSON object per line."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from reconciler.cli import exits
from reconciler.cli.console import console
from reconciler.errors import ExitCode
from tests.cli.conftest import Reconciler, Result, manifest, write


@pytest.fixture(autouse=True)
def _text_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(console, "log_format", "text")


def lines(result: Result) -> list[dict[str, Any]]:
    return [json.loads(line) for line in result.err.splitlines()]


def test_progress_of_an_apply_is_json_lines(reconciler: Reconciler) -> None:
    write(manifest("a"))
    told = lines(reconciler("apply --yes --log-format json"))
    assert {"level": "info", "message": "create a: started"} in told
    assert all(line["level"] in ("info", "warning") for line in told)


def test_error_is_a_json_line_with_what_where_why_and_fix(reconciler: Reconciler) -> None:
    write(manifest("a").replace("spec:", "spce:"))
    result = reconciler.ends(65, "validate --log-format json")
    errors = {line["message"]: line for line in lines(result)}
    error = errors["unknown field"]
    assert error["level"] == "error"
    assert error["location"] == "jobs.yaml:13:5"
    assert error["path"] == "jobs.a"
    assert '"spce" is not one of' in error["why"]
    assert error["fix"] == 'did you mean "spec"?'


@pytest.mark.parametrize(
    ("arguments", "fix"),
    [
        (["pln", "--log-format", "json"], "reconciler --help"),
        (["plan", "--nonsense", "--log-format", "json"], "reconciler plan --help"),
        (["plan", "--nonsense", "--log-format=json"], "reconciler plan --help"),
        (["plan", "--log-format", "text", "--nonsense", "--log-format=json"], "reconciler plan --help"),
        (["plan", "--parallelism", "many", "--log-format", "json"], "reconciler plan --help"),
        (["jobs", "--log-format", "json"], "reconciler jobs --help"),
        (["explain", "nonsense", "--log-format", "json"], "reconciler explain --help"),
    ],
)
def test_wrong_usage_is_a_json_line(reconciler: Reconciler, arguments: list[str], fix: str) -> None:
    result = reconciler.ends(64, *arguments)
    (line,) = lines(result)
    assert line["level"] == "error"
    assert line["message"]
    assert line["fix"] == fix


def test_log_format_of_the_environment_applies_to_usage_errors(reconciler: Reconciler) -> None:
    reconciler.setenv("RECONCILER_LOG_FORMAT", "json")
    assert len(lines(reconciler("plan --nonsense"))) == 1
    assert "error: No such option" in reconciler("plan --nonsense --log-format text").err
    reconciler.patch.delenv("RECONCILER_LOG_FORMAT")
    assert "error: No such option" in reconciler("plan --nonsense -- --log-format=json").err


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (KeyboardInterrupt(), ExitCode.INTERRUPTED),
        (PermissionError(13, "Permission denied", "a\x1b.yaml"), ExitCode.FAILED),
        (RuntimeError("a secret perhaps"), ExitCode.INTERNAL_ERROR),
    ],
)
def test_any_error_that_ends_a_run_is_a_json_line(
    error: BaseException,
    code: ExitCode,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    monkeypatch.setattr(console, "log_format", "json")
    assert exits.of_exception(error) is code
    (line,) = capsys.readouterr().err.splitlines()
    assert json.loads(line)["message"]
