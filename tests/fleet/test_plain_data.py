"""docs/fleets.md, "On a cluster": what comes back is data."""

from __future__ import annotations

import os
import pickle
from pathlib import Path
from typing import Any

import pytest
from distributed.protocol.core import dumps, loads
from distributed.protocol.serialize import Serialize, ToPickle

from reconciler.core.record import Scope
from reconciler.decide.drift_check import DriftId
from reconciler.decide.fleet import DriftToShow, StackMessage, StackResult
from reconciler.errors import Diagnostic, ExitCode, Location
from reconciler.fleet import RESULTS, InvalidAnswer, no_unpickling, results_from
from tests.cli.dask_cluster import HostileValue

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
    with pytest.raises(InvalidAnswer):
        results_from(text, roots)


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
    """Whoever controls a worker controls the scheduler, which reads pickles itself."""
    trace = tmp_path / "trace"
    frames = [
        dumps({"op": "warn", "message": wrapped(HostileValue(trace))}) for wrapped in (Serialize, ToPickle)
    ]
    with no_unpickling():
        for one in frames:
            with pytest.raises(TypeError, match="is not read"):
                loads(one)  # type: ignore[no-untyped-call]
    assert not trace.exists()
