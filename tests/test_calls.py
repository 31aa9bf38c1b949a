"""docs/coming-from/vendor-sdk.md names only existing things, and every operation of the service."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

import reconciler
from reconciler.cli.main import cli, run
from reconciler.emulator.app import ROUTES
from reconciler.modelarts.workspace import HUAWEI_ONLY

PAGES = Path(__file__).parents[1] / "docs"
PAGE = (PAGES / "coming-from/vendor-sdk.md").read_text(encoding="utf-8")
PROSE = re.sub(r"^```.*?^```$", "", PAGE, flags=re.M | re.S)
CODE = re.findall(r"`([^`]+)`", PROSE)
COMMANDS = sorted({text for text in CODE if text.startswith("reconciler ")})
NAMES = sorted({text for text in CODE if re.match(r"(reconciler|session)\.", text)})
SEARCH_OPTIONS = sorted({text.split()[0] for text in CODE if text.startswith("--") and text != "--follow"})
ROWS = {
    cells[0]: cells[1:]
    for line in PROSE.splitlines()
    if line.startswith("|")
    for cells in [[cell.strip() for cell in line.strip("|").split(" | ")]]
}
#: The methods of `session` and of its `jobs`.
SESSION = {"": reconciler.Session, "jobs": reconciler.JobClient}
#: The fields of the search. Source: docs/reference/modelarts.md, "Search".
FIELDS = {
    *("filters", "sort_by", "order", "offset", "limit", "tags", "host_ips"),
    *("train_type", "unified_jobs", "group_by", "workspace_id"),
}


def test_call_tables_are_not_empty() -> None:
    assert len(COMMANDS) > 12
    assert len(NAMES) > 15
    assert len(ROWS) > 50


def test_example_on_the_calls_page_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    manifest = PAGES.parent / "examples/update-in-place/jobs.yaml"
    (tmp_path / "jobs").mkdir()
    (tmp_path / "jobs/jobs.yaml").write_text(manifest.read_text(encoding="utf-8"), encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    [example] = re.findall(r"^```python\n(.*?)^```$", PAGE, re.M | re.S)
    assert run(cli, ["apply", "--yes", "jobs"]) == 0
    capsys.readouterr()
    exec(example.replace('"Running"', '["Creating", "Pending", "Running"]'), {})
    assert capsys.readouterr().out == "resnet50 1\n"


def test_every_command_exists(capsys: pytest.CaptureFixture[str]) -> None:
    search = " ".join(["reconciler jobs list", *(f"{option} " for option in SEARCH_OPTIONS)])
    for text in (*COMMANDS, search):
        words = text.split()[1:]
        assert run(cli, [*(word for word in words if not word.startswith("-")), "--help"]) == 0, text
        output = capsys.readouterr().out
        assert [word for word in words if word.startswith("-") and word not in output] == [], text


def test_every_python_name_resolves() -> None:
    assert [name for name in NAMES if _resolve(name) is None] == []


def _resolve(name: str) -> Any:
    first, *rest = name.split(".")
    if first == "session":
        *group, name = rest
        return getattr(SESSION[".".join(group)], name)
    return getattr(reconciler, ".".join(rest))


def test_every_operation_of_the_service_is_on_the_page() -> None:
    for route in ROUTES:
        request, command, python = ROWS[route.operation]
        path = re.sub(r"<(\w+)>", r"{\1}", route.path).removeprefix("/v2/{project_id}")
        assert request == f"`{route.method} {path}`"
        assert command
        assert python
        assert ("*Huawei*" in python) is (route.clouds == {"huawei"})


def test_every_search_field_has_an_option_and_its_support() -> None:
    rows = {
        field: cells
        for name, cells in ROWS.items()
        for field in re.findall(r"`(\w+)(?:\[\])?`", name)
        if field in FIELDS
    }
    assert rows.keys() == FIELDS
    assert {field for field, (_, python) in rows.items() if "*Huawei*" in python} == set(HUAWEI_ONLY)
    asked = {
        field: re.findall(r"--[\w-]+", option)
        for field, (option, _) in rows.items()
        if field != "workspace_id"
    }
    assert all(asked.values())
    assert {option for options in asked.values() for option in options} <= set(SEARCH_OPTIONS)


def test_page_has_no_operation_missing_from_the_service() -> None:
    listed = {cell for cell in ROWS if re.fullmatch(r"([A-Z][a-z]+){3,}", cell)}
    assert listed == {route.operation for route in ROUTES}
