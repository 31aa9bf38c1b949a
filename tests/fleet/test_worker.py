"""One stack of a fleet as a worker checks it: what it sees, and what it says where it sees something else."""

from __future__ import annotations

import os
import pickle
from bisect import bisect_left
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from distributed.protocol.core import dumps, loads
from distributed.protocol.serialize import Serialize, ToPickle
from hypothesis import given, settings
from hypothesis import strategies as st

from reconciler.core.record import Scope
from reconciler.decide.drift_check import DriftId
from reconciler.decide.fleet import DriftToShow, StackMessage, StackResult
from reconciler.errors import Diagnostic, ExitCode, Location, WrongUsage
from reconciler.fleet import (
    BATCH,
    RESULTS,
    FleetBatch,
    FleetRequest,
    StackRunner,
    StackTask,
    WorkerFailed,
    _answer,
    _problem_of,
    _remote,
    as_plain,
    check_batch,
    check_variables,
    limiter_of,
    no_unpickling,
    results_from,
    sent,
    with_digest,
)
from reconciler.modelarts.clock import RateLimiter
from reconciler.modelarts.connect import PROCESS_LIMITER
from tests.cli.dask_cluster import HostileValue

MANIFEST = "apiVersion: reconciler/v1\nstack: a\ntargets: {here: {kind: local}}\njobs: {}\n"
VALIDATE = FleetRequest("validate")


OTHER = (8, "the worker sees other files")


def write(file: Path, text: str) -> None:
    file.parent.mkdir()
    file.write_text(text, encoding="utf-8")


@pytest.fixture
def task(tmp_path: Path) -> StackTask:
    """A stack with the digest of its files."""
    write(tmp_path / "a" / "stack.yaml", MANIFEST)
    return with_digest(StackTask(str(tmp_path / "a"), "a", "a/", "a"), VALIDATE)


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
        (lambda root: root.rename(root.with_name("elsewhere")), (8, "the worker does not see the stack")),
    ],
    ids=["the same", "edited", "one more", "a nested stack", "nothing"],
)
def test_worker_checks_the_files_only_if_they_are_those_of_the_client(
    task: StackTask, edit: Callable[[Path], object], end: tuple[int, str]
) -> None:
    edit(Path(task.directory))
    result = StackRunner({}).check(VALIDATE, task)
    assert (result.exit_code, result.errors[0].what if result.errors else "") == end


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
    with pytest.raises(WorkerFailed) as caught:
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


# ── docs/fleets.md, "On a cluster": what comes back is data ─────────────────────────────────────────

SCOPE = Scope("vision", "host", "p1", "0")
RESULT = StackResult(
    "teams/a",
    "vision",
    ExitCode.CHANGES,
    errors=(Diagnostic("what", "why", "fix", Location("jobs.yaml", 1, 2), "jobs.a"),),
    summary={"create": 1},
    parts={"text": "a\x1b[0m \u65e5\u672c", "json": "{}"},
    messages=(StackMessage("said", 1, Diagnostic("what", "why")),),
    scopes=(SCOPE,),
    unmatched=frozenset({"k"}),
    to_show=DriftToShow(SCOPE, (DriftId("a", "failed", "j1"),), 1.5),
)

JSON = RESULTS.dump_json([RESULT]).decode()


def test_result_is_the_same_after_the_journey() -> None:
    assert results_from(JSON, ["teams/a"]) == [RESULT]


@pytest.mark.parametrize(
    ("text", "roots"),
    [
        (7, ["a"]),
        (None, ["a"]),
        ("", ["a"]),
        ("null", ["a"]),
        ('[{"root": "a"}]', ["a"]),
        (JSON, ["teams/b"]),
        (RESULTS.dump_json([RESULT, RESULT]).decode(), ["teams/a"]),
        ("[]", ["teams/a"]),
    ],
)
def test_answer_that_is_not_what_was_asked_for_is_invalid(text: Any, roots: list[str]) -> None:
    with pytest.raises(WorkerFailed) as refused:
        results_from(text, roots)
    assert not str(refused.value).startswith("("), "it says why in words"


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


def test_message_of_a_scheduler_that_holds_a_pickle_is_not_read(tmp_path: Path) -> None:
    trace = tmp_path / "trace"
    frames = [
        dumps({"op": "warn", "message": wrapped(HostileValue(trace))}) for wrapped in (Serialize, ToPickle)
    ]
    with no_unpickling():
        for one in frames:
            with pytest.raises(TypeError, match="is not read"):
                loads(one)  # type: ignore[no-untyped-call]
    assert not trace.exists()


# ── the workers of a cluster together send no more requests than one process may ─────────────────────

RATE = PROCESS_LIMITER.per_second
NOW = 1_000_000.0


def _send(limiter: RateLimiter, at_s: float, requests: int, answer_s: float) -> list[float]:
    """When the requests of one batch are sent, each as soon as it may be."""
    times = []
    for _ in range(requests):
        at_s += limiter.reserve(at_s)
        times.append(at_s)
        at_s += answer_s
    return times


def _most_in_a_second(times: list[float]) -> int:
    ordered = sorted(times)
    return max(bisect_left(ordered, one + 1) - place for place, one in enumerate(ordered))


@settings(max_examples=60)
@given(
    batches=st.lists(st.lists(st.integers(1, 40), min_size=1, max_size=12), min_size=1, max_size=8),
    answer_s=st.sampled_from([0.0, 0.001, 0.05]),
)
def test_batches_side_by_side_and_one_after_the_other_keep_to_the_rate_of_one_process(
    batches: list[list[int]], answer_s: float
) -> None:
    times: list[float] = []
    for of_worker in batches:
        at_s = NOW
        for requests in of_worker:
            sent = _send(limiter_of(1 / len(batches), at_s), at_s, requests, answer_s)
            times += sent
            at_s = sent[-1] + answer_s
    assert _most_in_a_second(times) <= RATE + len(batches)


def test_workers_that_are_busy_use_the_whole_rate() -> None:
    times = [time for _ in range(4) for time in _send(limiter_of(1 / 4, NOW), NOW, 250, 0.0)]
    assert (max(times) - NOW) * RATE <= 1.01 * len(times)
