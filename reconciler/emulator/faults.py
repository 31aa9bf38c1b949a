"""Faults, as data: which requests are affected, and how, before or after they take effect."""

from __future__ import annotations

import json
import random
import threading
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from fnmatch import fnmatchcase
from typing import Any

UNKNOWN_PHASE = "Hibernating"
"""The phase that `Effect.UNKNOWN_PHASE` shows; no document has it."""


class ResponseLost(Exception):
    """The request got no response. The application raises this; the server closes the connection."""


class Effect(StrEnum):
    # Answer `status` and `code`; the request has no effect, or had it (a gateway timeout).
    ANSWER = "answer"
    ANSWER_AFTER = "answer_after"
    # Close the connection; the request has no effect, or had it.
    LOST_BEFORE = "lost_before"
    LOST_AFTER = "lost_after"
    # Answer after `delay_s` real seconds.
    DELAY = "delay"
    # Send half of the announced body, then close the connection; or half a JSON document of the right length.
    TRUNCATED = "truncated"
    UNREADABLE = "unreadable"
    # Make the first job of the response one whose status cannot be read, or whose phase no document has.
    MALFORMED_JOB = "malformed_job"
    UNKNOWN_PHASE = "unknown_phase"
    # Answer a later page of the job list as if it had moved by `shift` jobs since the page before.
    MOVED_LIST = "moved_list"


@dataclass(frozen=True)
class Fault:
    """One fault.

    It affects requests with this `method`, `operation` (a name of `app.ROUTES`) and whole `path`, in which
    `*` is any text; None means any. It is triggered by the `nth` of them (from 1) and those after it, `count`
    in all (None: without end), each with `probability`, which is drawn from `seed` and so can be repeated.

    A moved list affects all pages of a search but the first. `shift` is the number of jobs that are gone
    before the page, which a reader misses; if negative they are new, and a reader reads as many twice.
    """

    effect: Effect
    method: str | None = None
    operation: str | None = None
    path: str | None = None
    nth: int = 1
    count: int | None = 1
    probability: float = 1.0
    seed: int = 0
    status: int = 500
    code: str = "ModelArts.0010"
    message: str = "Internal error."
    retry_after_s: int | None = None
    delay_s: float = 0.0
    shift: int = 1

    def __post_init__(self) -> None:
        if self.path is not None and not _REGEX_SIGNS.isdisjoint(self.path):
            raise ValueError("path is not a regular expression: it is the whole path, and * matches any text")
        if self.nth < 1 or not 0 <= self.probability <= 1 or not 0 <= self.delay_s <= MAX_DELAY_S:
            raise ValueError("nth must be at least 1, probability 0 to 1, delay_s 0 to 3600")
        if not 200 <= self.status <= 599:
            raise ValueError("status must be 200 to 599")
        if type(self.shift) is not int or not 0 < abs(self.shift) < 1 << 31:
            raise ValueError("shift must be a whole number of jobs, not 0")

    def is_for(self, method: str, operation: str, path: str, body: bytes = b"") -> bool:
        is_chosen = self.method in {None, method} and self.operation in {None, operation}
        if not is_chosen or (self.path is not None and not fnmatchcase(path, self.path)):
            return False
        if self.effect is not Effect.MOVED_LIST:
            return True
        try:
            offset = json.loads(body)["offset"] if operation == "ListTrainingJobs" else 0
        except (ValueError, KeyError, TypeError):
            offset = 0
        return isinstance(offset, int) and offset > 0


MAX_DELAY_S = 3600
#: Signs of a regular expression; no path of the service has them.
_REGEX_SIGNS = frozenset("^$()[]{}|\\+?")


def read_fault(body: Mapping[str, Any]) -> Fault:
    """Return the fault that a JSON object describes, its keys being those of `Fault`.

    Raises:
        ValueError: an unknown key or effect, or a value that the fault cannot have.
    """
    if unknown := body.keys() - _TYPES.keys():
        raise ValueError(f"unknown fields of a fault: {', '.join(sorted(unknown))}")
    if "effect" not in body:
        raise ValueError("effect is required")
    for name, value in body.items():
        if isinstance(value, bool) or not isinstance(value, _TYPES[name]):
            raise ValueError(f"{name} of a fault has the wrong type")
    return Fault(**{**body, "effect": Effect(body["effect"])})


_TYPES: dict[str, Any] = {
    **dict.fromkeys(("effect", "code", "message"), str),
    **dict.fromkeys(("method", "operation", "path"), str | None),
    **dict.fromkeys(("nth", "seed", "status", "shift"), int),
    **dict.fromkeys(("count", "retry_after_s"), int | None),
    **dict.fromkeys(("probability", "delay_s"), int | float),
}


def chaos(probability: float, seed: int = 0) -> tuple[Fault, ...]:
    """Return faults that make each request fail with `probability`, in one of several ways alike.

    Raises:
        ValueError: `probability` is not between 0 and 1.
    """
    if not 0 <= probability <= 1:
        raise ValueError("the probability of chaos must be 0 to 1")
    kinds: list[dict[str, Any]] = [
        {"effect": Effect.ANSWER, "status": 429, "code": "APIGW.0308", "retry_after_s": 1},
        {"effect": Effect.ANSWER, "status": 500, "code": "ModelArts.0010"},
        {"effect": Effect.ANSWER, "status": 503, "code": "ModelArts.4302"},
        {"effect": Effect.ANSWER_AFTER, "status": 504, "code": "APIGW.0201"},
        {"effect": Effect.LOST_BEFORE},
        {"effect": Effect.LOST_AFTER},
    ]
    share = probability / len(kinds)
    # A later fault is asked only where the earlier ones were not triggered.
    return tuple(
        Fault(**kind, count=None, probability=min(1.0, share / (1 - index * share)), seed=seed + index)
        for index, kind in enumerate(kinds)
    )


class Faults:
    """The table of faults of one application. Threads may share it."""

    def __init__(self, *faults: Fault) -> None:
        self._lock = threading.Lock()
        self._faults: list[_CountedFault] = []
        self.add(*faults)

    def add(self, *faults: Fault) -> None:
        with self._lock:
            self._faults += map(_CountedFault, faults)

    def clear(self) -> None:
        with self._lock:
            self._faults.clear()

    def __iter__(self) -> Iterator[Fault]:
        with self._lock:
            return iter([counted.fault for counted in self._faults])

    def trigger(self, method: str, operation: str, path: str, body: bytes = b"") -> Fault | None:
        """Return the first fault that this request triggers; every fault that is for it counts it."""
        with self._lock:
            matching = [one for one in self._faults if one.fault.is_for(method, operation, path, body)]
            for counted in matching:
                counted.seen += 1
            return next((counted.fault for counted in matching if counted.triggers()), None)


class _CountedFault:
    def __init__(self, fault: Fault) -> None:
        self.fault, self.seen, self.triggered = fault, 0, 0
        self._chance = random.Random(fault.seed)  # noqa: S311 - repeatable, not secret

    def triggers(self) -> bool:
        fault = self.fault
        if self.seen < fault.nth or (fault.count is not None and self.triggered >= fault.count):
            return False
        is_due = fault.probability >= 1 or self._chance.random() < fault.probability
        self.triggered += is_due
        return is_due


def corrupt(effect: Effect, text: str) -> str:
    """Return the text of a response as a fault leaves it; other effects leave it as it is."""
    if effect is Effect.UNREADABLE:
        return text[: len(text) // 2] if text else "{"
    if effect not in {Effect.MALFORMED_JOB, Effect.UNKNOWN_PHASE}:
        return text
    response = json.loads(text) if text else {}
    jobs = response.get("items", [response]) if isinstance(response, dict) else []
    if jobs and "status" in jobs[0]:
        malformed = {"phase": ["Running"], "start_time": "never"}
        unknown = {"phase": UNKNOWN_PHASE, "secondary_phase": UNKNOWN_PHASE}
        jobs[0]["status"] = malformed if effect is Effect.MALFORMED_JOB else jobs[0]["status"] | unknown
    return json.dumps(response)
