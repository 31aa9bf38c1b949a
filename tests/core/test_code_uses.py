"""Which revisions use which code, and which code may be deleted."""

from __future__ import annotations

from typing import Any

import pytest

from reconciler.core.observed import ObservedJob
from reconciler.core.past import PastRevision
from reconciler.core.stack import Declared
from reconciler.decide.code import Place, Prefix, uses_of, why_kept

A, B = "a" * 16, "b" * 16


def job(name: str, owner: str = "", phase: str = "Completed", code: str = A, **body: Any) -> ObservedJob:
    """`owner` is STACK.KEY.rN; `code` is the location in its code_dir."""
    marker = f"reconciler.{owner}.a000000000000" if owner else ""
    algorithm = {"algorithm": {"code_dir": f"/bucket/pre/vision/{code}/src/"}}
    return ObservedJob(f"id-{name}", name, marker, phase, body={**algorithm, **body})


def past(key: str, number: int, digest: str = B, **more: Any) -> PastRevision:
    declared = Declared(immutable={"code": f"sha256:{digest}{'0' * 48}"})
    return PastRevision(key, number, key, f"past-{number}", "", "Completed", declared=declared, **more)


IN_TASKS: dict[str, Any] = {"tasks": [{"algorithm": {"code_dir": f"obs://b/p/vision/{A}/src/"}}]}
ACTIVE, NEWEST = "used by an active job", "used by the newest revision of a key"


@pytest.mark.parametrize(
    ("jobs", "history", "why"),
    [
        ([], [], None),
        ([job("t", "vision.t.r1")], [], NEWEST),
        ([job("t", "vision.t.r1"), job("t-r2", "vision.t.r2", code=B)], [], None),
        ([job("t", "vision.t.r1", "Running"), job("t-r2", "vision.t.r2", code=B)], [], ACTIVE),
        ([job("t", "vision.t.r1", "Terminating"), job("t-r2", "vision.t.r2", code=B)], [], ACTIVE),
        ([job("t", "vision.t.r1", "Hibernating"), job("t-r2", "vision.t.r2", code=B)], [], ACTIVE),
        ([job("t", "other.t.r1"), job("t-r2", "vision.t.r2", code=B)], [], NEWEST),
        ([job("t", "vision.u.r1"), job("t-r2", "vision.t.r2", code=B)], [], None),
        ([job("t", phase="Failed")], [], None),
        ([job("t", phase="Pending")], [], ACTIVE),
        ([job("t", phase="Running", algorithm={}, **IN_TASKS)], [], ACTIVE),
        ([job("t", phase="Running", algorithm={"parameters": [{"value": f"/x/vision/{A}/"}]})], [], ACTIVE),
        ([job("t", phase="Running", algorithm={"code_dir": f"/b/other/{A}/src/"})], [], None),
        ([job("t", phase="Running", algorithm={"code_dir": f"/b/{B}/vision/{A}/src/"})], [], ACTIVE),
        ([], [past("t", 1, A)], NEWEST),
        ([], [past("t", 1, A), past("t", 2)], None),
        ([], [past("t", 1, A, released_at_s=1.0)], None),
        ([job("t", "vision.t.r1")], [past("t", 2)], None),
        ([job("t-r3", "vision.t.r3", code=B)], [past("t", 2, A)], None),
        ([job("t-r2", "vision.t.r2", code=B)], [past("t", 3, A)], NEWEST),
    ],
)
def test_used_code_is_kept(jobs: list[ObservedJob], history: list[PastRevision], why: str | None) -> None:
    uses = tuple(use for place, use in uses_of(jobs, "vision", history) if place == ("vision", A))
    upload = Prefix(Place("vision", A), None, False, 1, 1, 100.0, (), uses)
    assert why_kept(upload, until_s=100.0) == why
    assert "no job of the stack" in str(why_kept(upload, until_s=100.0, is_known=False))
    assert why_kept(upload, until_s=99.0) == (why or "too recent")
