"""One stack of a fleet as a worker checks it: what it sees, and what it says where it sees something else."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from reconciler.errors import ExitCode, WrongUsage
from reconciler.fleet import (
    BATCH,
    FleetBatch,
    FleetRequest,
    StackRunner,
    StackTask,
    _answer,
    _FailedThere,
    _problem_of,
    _remote,
    as_plain,
    check_batch,
    check_variables,
    results_from,
    sent,
    with_digest,
)

MANIFEST = "apiVersion: reconciler/v1\nstack: a\ntargets: {here: {kind: local}}\njobs: {}\n"
VALIDATE = FleetRequest("validate")


@pytest.fixture
def task(tmp_path: Path) -> StackTask:
    """A stack with the digest of its files."""
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "stack.yaml").write_text(MANIFEST, encoding="utf-8")
    return with_digest(StackTask(str(tmp_path / "a"), "a", "a/", "a"), VALIDATE)


def _check(task: StackTask) -> tuple[ExitCode, str]:
    result = StackRunner({}).check(VALIDATE, task)
    return result.exit_code, result.errors[0].what if result.errors else ""


def test_worker_that_sees_the_same_files_checks_them(task: StackTask) -> None:
    assert _check(task) == (0, "")


@pytest.mark.parametrize(
    ("name", "text"), [("stack.yaml", MANIFEST + "# edited\n"), ("more.yaml", "jobs: {}\n")]
)
def test_worker_that_sees_other_files_says_so(task: StackTask, name: str, text: str) -> None:
    Path(task.directory, name).write_text(text, encoding="utf-8")
    assert _check(task) == (8, "the worker sees other files")


def test_files_of_a_nested_stack_are_not_those_of_the_outer_one(task: StackTask) -> None:
    inner = Path(task.directory, "inner")
    inner.mkdir()
    (inner / "stack.yaml").write_text(MANIFEST.replace("stack: a", "stack: b"), encoding="utf-8")
    assert _check(task) == (0, "")


def test_worker_that_does_not_see_the_stack_says_so(task: StackTask, tmp_path: Path) -> None:
    assert _check(replace(task, directory=str(tmp_path / "nowhere"))) == (
        8,
        "the worker does not see the stack",
    )


def test_batch_travels_as_text_and_comes_back_as_results(task: StackTask) -> None:
    batch = FleetBatch(FleetRequest("validate", {"target": "here"}), (task, replace(task, root="b")), 0.5, 2)
    text = BATCH.dump_json(batch).decode()
    assert BATCH.validate_json(text) == batch
    results = results_from(check_batch(text), ["a", "b"])
    assert sorted((one.root, int(one.exit_code)) for one in results) == [("a", 0), ("b", 0)]


def test_worker_of_another_version_that_came_later_checks_nothing(task: StackTask) -> None:
    batch = FleetBatch(FleetRequest("validate", version="9.9.9"), (task,))
    [result] = results_from(check_batch(BATCH.dump_json(batch).decode()), [task.root])
    assert (result.exit_code, result.errors[0].what) == (1, "another version on a worker")
    assert "was started with 9.9.9" in result.errors[0].why


def test_worker_without_reconciler_is_named() -> None:
    missing = _remote()("reconciler_that_is_not_there", "version")
    with pytest.raises(_FailedThere) as caught:
        _answer(missing)
    assert _problem_of(caught.value).what == "the worker has no reconciler"


def test_option_that_is_no_plain_data_is_not_sent() -> None:
    assert as_plain({"a": (Path("b"), 1, None)}) == {"a": ["b", 1, None]}
    with pytest.raises(TypeError, match="object cannot be sent"):
        as_plain(object())


VARIABLES = "variables: {secret: {env: S, sensitive: true}, open: {default: a}}\n"


@pytest.mark.parametrize(
    ("given", "file", "refused", "unclear"),
    [
        ("open", VARIABLES, False, False),
        ("secret", VARIABLES, True, False),
        ("secret", "variables: {secret: {default: '', sensitive: 1}}\n", True, False),
        ("open", VARIABLES + "oops: {\n", False, True),  # who knows what it would say
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
            check_variables(request, [task])
    else:
        assert check_variables(request, [task]) == ([task] if unclear else [])


@pytest.mark.parametrize(
    ("url", "from_environment", "shown"),
    [
        (None, False, None),
        ("postgresql://host/records", False, "postgresql://host/records"),
        ("postgresql://me:password@host/records", True, None),
        ("postgresql://host/records", True, None),
    ],
)
def test_address_of_the_records_is_sent_without_a_password_only(
    url: str | None, from_environment: bool, shown: str | None
) -> None:
    request = FleetRequest("plan", {"records": url})
    assert sent(request, is_records_from_environment=from_environment).options["records"] == shown
