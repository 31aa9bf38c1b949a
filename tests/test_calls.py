"""docs/calls.md, walked line by line: what it names is there, and what the service has is on it."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

import reconciler
from reconciler.cli.main import cli, run
from reconciler.emulator.app import ROUTES, Route
from reconciler.modelarts.workspace import HUAWEI_ONLY

PAGES = Path(__file__).parents[1] / "docs"
PAGE = (PAGES / "calls.md").read_text(encoding="utf-8")
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
#: The calls of `session` itself, and those of its `jobs`.
SESSION = {"": reconciler.Session, "jobs": reconciler.JobClient}
#: The fields of the search. Source: docs/modelarts.md, "Search".
FIELDS = {
    *("filters", "sort_by", "order", "offset", "limit", "tags", "host_ips"),
    *("train_type", "unified_jobs", "group_by", "workspace_id"),
}
#: The vendor's calls, from its documents. Source: docs/modelarts.md, "Sources".
VENDOR = (
    *("get_job_info", "get_job_list", "control_job_by_id", "control_job", "delete_job_by_id", "delete_job"),
    *("update_job_configs", "get_train_instance_types", "fit", "set_endpoint", "ma-cli configure"),
    *(
        f"ma-cli ma-job {name}"
        for name in ("submit", "get-job", "get-log", "get-engine", "get-event", "get-flavor", "get-pool")
    ),
    *("ma-cli ma-job stop", "ma-cli ma-job delete"),
)


def test_there_is_something_to_walk() -> None:
    assert len(COMMANDS) > 12
    assert len(NAMES) > 15
    assert len(ROWS) > 50


def test_example_of_the_page_of_calls_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    manifest = PAGES.parent / "examples/first-job/jobs.yaml"
    (tmp_path / "jobs").mkdir()
    (tmp_path / "jobs/jobs.yaml").write_text(manifest.read_text(encoding="utf-8"), encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    [example] = re.findall(r"^```python\n(.*?)^```$", PAGE, re.M | re.S)
    assert run(cli, ["apply", "--yes", "jobs"]) == 0
    capsys.readouterr()
    exec(example.replace('"Running"', '["Creating", "Pending", "Running"]'), {})
    assert capsys.readouterr().out == "py-minist 1\n"


@pytest.mark.parametrize("text", COMMANDS)
def test_every_command_exists(text: str, capsys: pytest.CaptureFixture[str]) -> None:
    words = text.split()[1:]
    assert run(cli, [*(word for word in words if not word.startswith("-")), "--help"]) == 0
    said = capsys.readouterr().out
    for option in (word for word in words if word.startswith("-")):
        assert option in said


@pytest.mark.parametrize("option", SEARCH_OPTIONS)
def test_every_option_of_the_search_exists(option: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(cli, ["jobs", "list", "--help"]) == 0
    assert f"{option} " in capsys.readouterr().out


@pytest.mark.parametrize("name", NAMES)
def test_every_python_name_resolves(name: str) -> None:
    assert _resolve(name) is not None


def _resolve(name: str) -> Any:
    first, *rest = name.split(".")
    if first == "session":
        *group, name = rest
        return getattr(SESSION[".".join(group)], name)
    return getattr(reconciler, ".".join(rest))


@pytest.mark.parametrize("route", ROUTES, ids=lambda route: route.operation)
def test_every_operation_of_the_service_is_on_the_page(route: Route) -> None:
    request, command, python = ROWS[route.operation]
    path = re.sub(r"<(\w+)>", r"{\1}", route.path).removeprefix("/v2/{project_id}")
    assert request == f"`{route.method} {path}`"
    assert command
    assert python
    assert ("*Huawei*" in python) is (route.clouds == {"huawei"})


def test_every_field_of_the_search_has_an_option_and_says_where_it_is_known() -> None:
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


@pytest.mark.parametrize("route", ROUTES, ids=lambda route: route.operation)
def test_operation_has_the_name_of_the_vendors_sdk(route: Route) -> None:
    sdk = pytest.importorskip("huaweicloudsdkmodelarts.v1.modelarts_client")
    if route.operation == "ShowObsUrlOfTrainingJobLogs":
        pytest.skip("documented, and missing in the vendor's SDK")
    method = re.sub(r"(?<!^)(?=[A-Z])", "_", route.operation).lower()
    assert hasattr(sdk.ModelArtsClient, method), f"the vendor's SDK has no {method}: rename the route"


def test_no_operation_is_on_the_page_that_the_service_does_not_have() -> None:
    listed = {cell for cell in ROWS if re.fullmatch(r"([A-Z][a-z]+){3,}", cell)}
    assert listed == {route.operation for route in ROUTES}


@pytest.mark.parametrize("call", VENDOR)
def test_every_call_of_the_vendors_tools_is_on_the_page(call: str) -> None:
    rows = [cells for name, cells in ROWS.items() if re.search(rf"{re.escape(call)}(?![\w-])", name)]
    assert rows
    assert all(cells[0] for cells in rows)
