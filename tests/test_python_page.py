"""docs/reference/python.md: its code runs as it stands, top to bottom, and its tables name what exists."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

import reconciler
from reconciler.modelarts import local as local_target

PAGE = (Path(__file__).parents[1] / "docs/reference/python.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"^```python\n(.*?)^```$", PAGE, re.M | re.S)
EXAMPLE = (Path(__file__).parents[1] / "examples/update-in-place/jobs.yaml").read_text(encoding="utf-8")
SHORT = '      environments: {EMULATOR_RUN_SECONDS: "60"}\n'
JOBS = (
    EXAMPLE.replace("      parameters:", f"{SHORT}      parameters:")
    + "\nvariables: {bucket: {default: any}}\n"
)


def _airflow() -> ModuleType:
    """What a task looks like where Airflow is not installed: the function itself."""

    def task(**_: Any) -> Callable[[Any], Any]:
        return lambda function: function

    module = ModuleType("airflow.decorators")
    module.task = task  # type: ignore[attr-defined]
    return module


@pytest.fixture(autouse=True)
def _here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def pass_time(clock: Any, seconds: float) -> None:
        clock._store.clock.advance(seconds=seconds)

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(local_target._LocalClock, "sleep", pass_time)
    monkeypatch.setitem(sys.modules, "airflow", ModuleType("airflow"))
    monkeypatch.setitem(sys.modules, "airflow.decorators", _airflow())
    (tmp_path / "jobs").mkdir()
    (tmp_path / "jobs" / "jobs.yaml").write_text(JOBS, encoding="utf-8")


def _run(block: str) -> dict[str, Any]:
    names: dict[str, Any] = {"__name__": "page"}
    exec(compile(block, "docs/reference/python.md", "exec"), names)
    return names


def test_notebook_applies_and_finds_no_drift(capsys: pytest.CaptureFixture[str]) -> None:
    names = _run(BLOCKS[0])
    assert "Plan: 1 to create" in capsys.readouterr().out
    assert names["result"].ok
    assert _run(BLOCKS[0])["plan"].has_changes is False


def test_sweep_from_data_runs(capsys: pytest.CaptureFixture[str]) -> None:
    _run(BLOCKS[1])
    assert {line.split()[0] for line in capsys.readouterr().out.splitlines()} == {"lr-0", "lr-1", "lr-2"}


def test_airflow_task_can_be_tried_again() -> None:
    train = _run(BLOCKS[2])["train"]
    assert train("jobs/", "vision")["done"] == 1
    assert train("jobs/", "vision")["done"] == 0


def test_every_block_of_the_page_is_run() -> None:
    assert len(BLOCKS) == 3


def test_names_on_the_page_are_there() -> None:
    objects = {"session": reconciler.Session, "stack": reconciler.Stack, "reconciler": reconciler}
    calls = set(re.findall(r"`(session|stack|reconciler)\.(\w+)", PAGE))
    assert len(calls) > 8
    assert [call for call in sorted(calls) if not hasattr(objects[call[0]], call[1])] == []
    errors = re.findall(r"^\| `([A-Z]\w+)` \| ", PAGE, re.M)
    assert len(errors) > 8
    assert set(errors) <= set(reconciler.__all__)
