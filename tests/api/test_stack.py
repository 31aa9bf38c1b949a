"""Loading from Python, and the errors that calls raise."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import date
from decimal import Decimal
from enum import Enum
from pathlib import Path
from typing import Any

import pytest

import reconciler
from reconciler import (
    ExitCode,
    Location,
    ManifestInvalid,
    ReconcilerError,
    RecordsUnavailable,
    ServiceError,
    Stack,
    Unauthorized,
    WrongUsage,
    load,
)
from reconciler.cli.main import cli, run
from tests.api.conftest import ENVIRON, Service, manifest, write
from tests.builders import a_startable_entry


def test_invalid_manifest_error_has_every_problem(tmp_path: Path) -> None:
    data = manifest("a", "b")
    data["jobs"]["a"]["spec"]["resource"]["node_cout"] = 2
    data["jobs"]["b"]["lifecycle"] = {"on_change": "replce"}
    write(tmp_path, json.dumps(data, indent=1))
    with pytest.raises(ManifestInvalid) as caught:
        load(tmp_path)
    assert caught.value.exit_code == ExitCode.INVALID
    assert [one.path for one in caught.value.diagnostics] == [
        "jobs.a.spec.resource",
        "jobs.b.lifecycle.on_change",
    ]
    assert all(isinstance(one.location, Location) for one in caught.value.diagnostics)
    with pytest.raises(ManifestInvalid) as from_data:
        Stack.from_dict(data, tmp_path)
    assert [one.path for one in from_data.value.diagnostics] == [one.path for one in caught.value.diagnostics]


def test_load_takes_several_paths_variables_and_variable_files(tmp_path: Path) -> None:
    entry = a_startable_entry()
    entry["algorithm"]["code_dir"] = "obs://${var.bucket}/${env.WHERE}/"
    entry["algorithm"]["boot_file"] = "obs://${var.bucket}/${env.WHERE}/train.py"
    entry["algorithm"]["parameters"] = {"lr": "${var.lr}"}
    head = manifest() | {"variables": {"bucket": {}, "lr": {"default": 0.1}}}
    del head["jobs"]
    write(tmp_path, head, "stack.yaml")
    write(tmp_path, {"jobs": {"a": entry}}, "one.yaml")
    write(tmp_path, {"jobs": {"b": entry}}, "two.yaml")
    values = tmp_path / "values"
    values.mkdir()
    write(values, "bucket: vision\n", "prod.yaml.txt")
    stack = load(
        str(tmp_path / "one.yaml"),
        tmp_path / "stack.yaml",
        variables={"lr": 0.01},
        var_files=[values / "prod.yaml.txt"],
        environ={"WHERE": "here"},
    )
    assert stack.keys == ("a",)
    body: Any = stack._loaded.stack.jobs["a"].body
    assert body["algorithm"]["code_dir"] == "obs://vision/here/"
    assert body["algorithm"]["parameters"] == [{"name": "lr", "value": "0.01"}]


def test_load_without_a_path_takes_the_current_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(tmp_path, manifest("a"))
    monkeypatch.chdir(tmp_path)
    assert load().keys == ("a",)
    assert repr(load()) == "Stack('test', 1 jobs)"


CIRCLE: dict[str, Any] = manifest("a")
CIRCLE["jobs"]["a"]["raw"] = CIRCLE
NO_MANIFESTS = {
    "no stack": {"jobs": {}},
    "no number": {"stack": "test", "jobs": {"a": float("nan")}},
    "no data": {"stack": "test", "jobs": {"a": object()}},
    "no name": {"stack": "test", "jobs": {("a", "b"): {}}},
    "no message": {"stack": "test", "variables": {"x": {"default": "\ud800"}}},
    "no mapping": ["stack"],
    "misspelt": {"stack": "test", "jbos": {}},
    "a circle": CIRCLE,
}


@pytest.mark.parametrize("data", NO_MANIFESTS.values(), ids=NO_MANIFESTS)
def test_data_other_than_a_manifest_is_invalid(data: Any, tmp_path: Path) -> None:
    with pytest.raises(ManifestInvalid) as caught:
        Stack.from_dict(data, tmp_path)
    assert caught.value.diagnostics


def connect(root: Path, **options: Any) -> object:
    return Stack.from_dict(manifest("a"), root).connect(**options)


WRONG_USAGES: dict[str, Callable[[Path], object]] = {
    "a path that does not exist": lambda root: load(root / "none"),
    "a path that is empty": lambda root: load(root, ""),
    "a root that does not exist": lambda root: Stack.from_dict(manifest("a"), root / "none"),
    "a target that does not exist": lambda root: connect(root, target="prod"),
    "a store that is none": lambda root: connect(root, records="nonsense"),
    "a plan file that does not exist": lambda root: reconciler.load_plan(root / "none"),
    "no parallelism": lambda root: connect(root, parallelism=0),
}


@pytest.mark.parametrize("call", WRONG_USAGES.values(), ids=WRONG_USAGES)
def test_contradictory_argument_is_wrong_usage(call: Callable[[Path], object], tmp_path: Path) -> None:
    with pytest.raises(WrongUsage) as caught:
        call(tmp_path)
    assert caught.value.exit_code == ExitCode.WRONG_USAGE


@pytest.mark.parametrize("value", [None, [object], {1, 2}, object])
def test_variable_of_an_unsupported_type_is_wrong_usage(value: object, tmp_path: Path) -> None:
    data = manifest("a") | {"variables": {"v": {"default": "x"}}}
    with pytest.raises(WrongUsage, match='invalid value of variable "v"'):
        Stack.from_dict(data, tmp_path, variables={"v": value})


@pytest.mark.parametrize("environ", [{}, {"MODELARTS_AUTH_TOKEN": "wrong"}], ids=["none", "wrong"])
def test_missing_or_wrong_credentials_are_unauthorized(
    service: Service, environ: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    write(service.root, manifest("a", url=service.url))
    with pytest.raises(Unauthorized) as caught, load(service.root).connect(environ=environ) as session:
        session.plan()
    for name, value in environ.items():
        monkeypatch.setenv(name, value)
    assert run(cli, ["plan", str(service.root)]) == caught.value.exit_code == ExitCode.UNAUTHORIZED


@pytest.mark.usefixtures("_no_retry_delay")
def test_unreachable_service_leaves_the_plan_incomplete(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(tmp_path, manifest("a", url="http://127.0.0.1:9"))
    with load(tmp_path).connect(environ=ENVIRON) as session:
        plan = session.plan()
        with pytest.raises(ServiceError) as caught:
            session.jobs.get("a")
    monkeypatch.setenv("MODELARTS_AUTH_TOKEN", "any")
    assert not plan.complete
    assert run(cli, ["plan", str(tmp_path)]) == plan.exit_code == ExitCode.UNKNOWN
    assert caught.value.exit_code == ExitCode.UNKNOWN


def test_apply_with_an_unavailable_record_store_is_refused_unless_allowed(service: Service) -> None:
    records = f"sqlite:///{service.root}/none/records.sqlite3"
    (service.root / "none").write_text("no directory", encoding="utf-8")
    with service.stack("a").connect(environ=ENVIRON, records=records) as session:
        with pytest.raises(RecordsUnavailable) as caught:
            session.apply()
        assert caught.value.exit_code == ExitCode.FAILED
    assert service.asked("CreateTrainingJob") == 0
    connection = service.stack("a").connect(environ=ENVIRON, records=records, without_records=True)
    with connection as session:
        assert session.apply().ok


def test_records_variable_names_the_store_as_on_the_command_line(service: Service, tmp_path: Path) -> None:
    environ = {**ENVIRON, "RECONCILER_RECORDS": f"sqlite:///{tmp_path}/shared.sqlite3"}
    with service.stack("a").connect(environ=environ) as session:
        session.apply()
    assert (tmp_path / "shared.sqlite3").exists()


def test_every_error_is_a_reconciler_error() -> None:
    errors = [
        value
        for name in reconciler.__all__
        if isinstance(value := getattr(reconciler, name), type) and issubclass(value, Exception)
    ]
    assert len(errors) > 15
    assert all(issubclass(error, ReconcilerError) for error in errors)
    assert all(
        isinstance(error.exit_code, ExitCode) for error in errors if issubclass(error, ReconcilerError)
    )


def description_of(stack: Stack) -> str:
    """Return the description of the job `a` of a stack."""
    return stack._loaded.stack.jobs["a"].description


def test_single_variable_file_needs_no_list(tmp_path: Path) -> None:
    entry = a_startable_entry() | {"description": "${var.text}"}
    write(tmp_path, manifest() | {"variables": {"text": {}}, "jobs": {"a": entry}})
    values = write(tmp_path, "text: nightly", "values.yaml") / "values.yaml"
    loaded = [load(tmp_path, var_files=files) for files in (values, str(values), [values])]
    assert set(map(description_of, loaded)) == {"nightly"}


class _Colour(str, Enum):  # noqa: UP042 - str() of a member is not its value
    RED = "red"


def test_list_or_mapping_variable_takes_a_list_or_mapping(tmp_path: Path) -> None:
    types = {"lrs": {"type": "list"}, "tags": {"type": "mapping"}}
    entry = a_startable_entry() | {"matrix": {"lr": "${var.lrs}"}, "algorithm": "${var.tags}"}
    data = manifest() | {"variables": types, "jobs": {"a": entry}}
    algorithm = a_startable_entry()["algorithm"]
    stack = Stack.from_dict(data, tmp_path, variables={"lrs": (0.1, 1), "tags": algorithm})
    assert stack.keys == ("a-lr-0_1", "a-lr-1")


def test_variable_of_a_list_takes_any_character(tmp_path: Path) -> None:
    word = "\U0001f600 \\ud83d \u00e9\u2028\x7f"
    variable = {"type": "list", "allowed": [[word]]}
    data = manifest("a") | {"variables": {"words": variable}}
    assert Stack.from_dict(data, tmp_path, variables={"words": [word]}).keys == ("a",)


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ("a", "a"),
        (0.1, "0.1"),
        (3, "3"),
        (True, "true"),
        (Decimal("0.10"), "0.10"),
        (date(2026, 11, 22), "2026-11-22"),
        (Path("x/y"), "x/y"),
        (_Colour.RED, "red"),
    ],
    ids=repr,
)
def test_variable_of_a_plain_type_is_converted_to_text(tmp_path: Path, value: object, text: str) -> None:
    data = manifest() | {"variables": {"v": {}}, "jobs": {"a": a_startable_entry(description="v: ${var.v}")}}
    stack = Stack.from_dict(data, tmp_path, variables={"v": value})
    assert description_of(stack) == f"v: {text}"
