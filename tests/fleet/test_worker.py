"""A worker checking one stack of a fleet: its files, and mismatches with the client's."""

from __future__ import annotations

import os
import pickle
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from threading import Event
from typing import Any

import pytest
from distributed.protocol.core import dumps, loads
from distributed.protocol.serialize import Serialize, ToPickle

from reconciler.core.record import Scope
from reconciler.decide.fleet import StackResult
from reconciler.decide.outcome import Goal
from reconciler.errors import Diagnostic, ExitCode, Location, WrongUsage
from reconciler.fleet import (
    RESULT,
    SENT,
    FleetRequest,
    StackCheck,
    StackTask,
    check_sendable,
    check_sent,
    no_unpickling,
    result_from,
)
from reconciler.manifest.files import files_digest
from tests.cli.dask_cluster import HostileValue

MANIFEST = "apiVersion: reconciler/v1\nstack: a\ntargets: {here: {kind: local}}\njobs: {}\n"
VALIDATE = FleetRequest("validate")


OTHER = (8, "the worker sees different files")


def write(file: Path, text: str) -> None:
    file.parent.mkdir()
    file.write_text(text, encoding="utf-8")


@pytest.fixture
def task(tmp_path: Path) -> StackTask:
    """A stack with the digest of its files."""
    write(tmp_path / "a" / "stack.yaml", MANIFEST)
    return StackTask(str(tmp_path / "a"), "a", "a/", "a", files_digest(tmp_path / "a"))


@pytest.mark.parametrize(
    ("edit", "end"),
    [
        (lambda root: None, (0, "")),
        (lambda root: (root / "stack.yaml").write_text(MANIFEST + "# edited\n"), OTHER),
        (lambda root: (root / "more.yaml").write_text("jobs: {}\n"), OTHER),
        # those of a nested stack are not those of the outer one
        (
            lambda root: write(root / "inner" / "stack.yaml", MANIFEST.replace("stack: a", "stack: b")),
            (0, ""),
        ),
        (lambda root: root.rename(root.with_name("elsewhere")), OTHER),
    ],
    ids=["the same", "edited", "one more", "a nested stack", "nothing"],
)
def test_worker_checks_the_files_only_if_equal_to_those_of_the_client(
    task: StackTask, edit: Callable[[Path], object], end: tuple[int, str]
) -> None:
    edit(Path(task.directory))
    result = StackCheck(VALIDATE, task, {}, Event()).run()
    assert (result.exit_code, result.errors[0].what if result.errors else "") == end


def test_task_is_sent_as_text_and_returns_a_result(task: StackTask) -> None:
    request = FleetRequest("validate", {"target": "here"})
    text = SENT.dump_json((request, task)).decode()
    assert SENT.validate_json(text) == (request, task)
    result = result_from(task, lambda: check_sent(text))
    assert (result.root, int(result.exit_code)) == ("a", 0)


def test_worker_of_another_version_checks_nothing(task: StackTask) -> None:
    text = SENT.dump_json((FleetRequest("validate", version="9.9.9"), task)).decode()
    result = result_from(task, lambda: check_sent(text))
    assert (result.exit_code, result.errors[0].what) == (1, "a worker has a different version")
    assert "was started with 9.9.9" in result.errors[0].why


def test_options_are_sent_as_plain_data(task: StackTask) -> None:
    request = FleetRequest(
        "plan", {"only": ("a",), "var_files": [Path("b")], "goal": Goal.RUNNING, "n": None}
    )
    [sent, _] = SENT.validate_json(SENT.dump_json((request, task)))
    assert sent.options == {"only": ["a"], "var_files": ["b"], "goal": "running", "n": None}
    with pytest.raises(ValueError, match="Unable to serialize"):
        SENT.dump_json((FleetRequest("plan", {"odd": object()}), task))


VARIABLES = "variables: {secret: {env: S, sensitive: true}, open: {default: a}}\n"


@pytest.mark.parametrize(
    ("given", "file", "refused", "unclear"),
    [
        ("open", VARIABLES, False, False),
        ("secret", VARIABLES, True, False),
        ("secret", "variables: {secret: {default: '', sensitive: 1}}\n", True, False),
        ("open", VARIABLES + "oops: {\n", False, True),  # its contents are unpredictable
        ("secret", VARIABLES + "oops: {\n", False, True),
    ],
)
def test_value_of_a_sensitive_variable_is_never_sent(
    task: StackTask, given: str, file: str, refused: bool, unclear: bool
) -> None:
    Path(task.directory, "variables.yaml").write_text(file, encoding="utf-8")
    request = FleetRequest("validate", {"variables": [[given, "value"]]})
    if refused:
        with pytest.raises(WrongUsage, match="declares secret as sensitive"):
            check_sendable(request, [task])
    else:
        assert check_sendable(request, [task]) == ([task] if unclear else [])


def test_records_url_is_sent_only_without_a_password() -> None:
    assert check_sendable(FleetRequest("plan", {"records": "postgresql://host/records"}), []) == []
    with pytest.raises(WrongUsage, match="a password is never sent"):
        check_sendable(FleetRequest("plan", {"records": "postgresql://me:password@host/records"}), [])


# ── docs/operations/fleets.md, "On a cluster": what comes back is data ────────────────────────────────

SCOPE = Scope("vision", "host", "p1", "0")
FOUND = StackResult(
    "teams/a",
    "vision",
    ExitCode.CHANGES,
    errors=(Diagnostic("what", "why", "fix", Location("jobs.yaml", 1, 2), "jobs.a"),),
    summary={"create": 1},
    parts={"text": "a\x1b[0m \u65e5\u672c", "json": "{}"},
    messages=((1, "said"),),
    problems=(Diagnostic("what", "why"),),
    scopes=(SCOPE,),
    unmatched=frozenset({"k"}),
)
TASK = StackTask("/teams/a", "teams/a", "a/")
JSON = RESULT.dump_json(FOUND).decode()


def test_result_round_trips() -> None:
    assert result_from(TASK, lambda: JSON) == FOUND


@pytest.mark.parametrize(
    ("answer", "why"),
    [
        (7, "JSON input should be"),
        (None, "JSON input should be"),
        ("", "Invalid JSON"),
        ("null", "an object"),
        ('{"root": "teams/a"}', "required"),
        (RESULT.dump_json(replace(FOUND, root="teams/b")), "it is for another stack"),
    ],
)
def test_unexpected_response_is_an_error_of_the_stack(answer: Any, why: str) -> None:
    result = result_from(TASK, lambda: answer)
    assert (result.exit_code, result.errors[0].what) == (8, "invalid response from a worker")
    assert why in result.errors[0].why


def test_exception_of_a_worker_is_an_error_of_the_stack() -> None:
    def fail() -> str:
        raise SystemExit(b"a pickle")

    assert result_from(TASK, fail).errors[0].what == "the worker failed"


def test_pickle_runs_nothing_while_a_cluster_is_connected(tmp_path: Path) -> None:
    trace = tmp_path / "trace"
    hostile, plain = pickle.dumps(HostileValue(trace)), pickle.dumps({"a": [1, b"2"]})
    with no_unpickling():
        with pytest.raises(TypeError, match="leave_trace is not read"):
            pickle.loads(hostile)
        assert pickle.loads(plain) == {"a": [1, b"2"]}
    assert not trace.exists()
    pickle.loads(hostile)
    assert trace.read_text(encoding="utf-8").split() == [str(os.getpid())]


def test_scheduler_message_with_a_pickle_is_not_read(tmp_path: Path) -> None:
    trace = tmp_path / "trace"
    frames = [
        dumps({"op": "warn", "message": wrapped(HostileValue(trace))}) for wrapped in (Serialize, ToPickle)
    ]
    with no_unpickling():
        for one in frames:
            with pytest.raises(TypeError, match="is not read"):
                loads(one)  # type: ignore[no-untyped-call]
    assert not trace.exists()
