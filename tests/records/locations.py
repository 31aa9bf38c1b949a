"""Stores for tests, each with a manually advanced clock."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from reconciler.core.ownership import Revision
from reconciler.core.past import Call, Holder, RunKind
from reconciler.core.record import Declared, Scope
from reconciler.decide.outcome import Outcome, Run, Status, Step
from reconciler.decide.plan import Action, After, Before, PlannedAction, Reason
from reconciler.records.store import Records, open_records
from reconciler.secrets import Redactor
from tests.builders import NOW, STACK, seen

SCOPE = Scope(STACK, "modelarts.example", "p1", "0")
OTHER_STACK = Scope("speech", "modelarts.example", "p1", "0")
ELSEWHERE = Scope(STACK, "other.example", "p2", "0")
ALICE = Holder("alice", "laptop", "reconciler apply", 0, 0)
BOB = Holder("bob", "ci-7", "reconciler destroy", 0, 0)
SECRET = "tell-nobody-1"
LEASE_S = 60.0
DIGEST, OTHER_DIGEST = "a" + "1" * 12, "a" + "2" * 12
DECLARED = Declared(
    {"algorithm": {"parameters": {"lr": "0.1"}}}, {"spec": {"priority": "1"}}, "nightly", protect=True
)


@dataclass
class FileClock:
    """A time in a file, shared with other processes."""

    path: Path

    def now(self) -> float:
        return float(self.path.read_text())

    def set(self, at_s: float) -> None:
        """Replace the file, because others read it concurrently."""
        new = self.path.with_suffix(".new")
        new.write_text(repr(at_s))
        new.rename(self.path)


@dataclass
class Place:
    """A URL at which any number of stores can be opened, with its clock."""

    kind: str
    url: str
    clock: FileClock
    path: Path | None = None
    #: The database's own clock follows.
    on_move: Callable[[float], None] = lambda at_s: None
    opened: list[Records] = field(default_factory=list)

    def open(self, **options: Any) -> Records:
        """Open the store, as another process would."""
        records = self.maybe(**options)
        assert records is not None
        return records

    def maybe(self, *, create: bool = True, redact: Callable[[str], str] | None = None) -> Records | None:
        records = open_records(self.url, clock=self.clock, redact=redact or Redactor([SECRET]), create=create)
        if records is not None:
            self.opened.append(records)
        return records

    def move_to(self, at_s: float) -> None:
        self.clock.set(at_s)
        self.on_move(at_s)

    def advance(self, seconds: float) -> None:
        self.move_to(self.clock.now() + seconds)

    def close(self) -> None:
        for records in self.opened:
            records.close()


def nothing_lost() -> None:
    raise AssertionError("the lock was lost")


def a_run(
    scope: Scope = SCOPE, *, at_s: float = NOW, kind: RunKind = RunKind.APPLY, command: str = "apply"
) -> Run:
    return Run(scope, kind, "alice", "laptop", command, "d1", at_s)


def an_action(
    key: str = "a",
    action: Action = Action.CREATE,
    *,
    number: int = 1,
    digest: str = DIGEST,
    job: str | None = None,
) -> PlannedAction:
    """An action; a create makes revision `number`, a replace the next one, others concern `job`."""
    name = key if number == 1 else f"{key}-r{number}"
    before = Before(id=job or f"job-{name}", name=name, revision=number, phase="Running", digest=digest)
    after = After(name=name, revision=number, digest=digest)
    following = After(name=f"{key}-r{number + 1}", revision=number + 1, digest=OTHER_DIGEST)
    return PlannedAction(
        key=key,
        action=action,
        reason=Reason.NOT_FOUND,
        before=None if action is Action.CREATE else before,
        after={Action.TERMINATE: None, Action.REPLACE: following}.get(action, after),
    )


def a_step(
    action: PlannedAction | None = None, call: Call = Call.CREATE, declared: Declared | None = DECLARED
) -> Step:
    return Step(action or an_action(), call, declared=declared)


def done(action: PlannedAction | None = None, job: str = "job-a") -> Outcome:
    return Outcome(action or an_action(), Status.DONE, job=job)


def owned(key: str = "a", number: int = 1, **members: Any) -> Revision:
    """An owned revision, as taken by `remember`."""
    job = seen(key=key, revision=number, **{"digest": DIGEST, **members})
    assert job.marker is not None
    return Revision(job, job.marker)


@contextmanager
def statements(records: Records) -> Iterator[list[str]]:
    """Collect the statements sent meanwhile, by first word, without transactions."""
    dialect, sent = records.dialect, []
    statement = dialect.statement

    def note(sql: str) -> str:
        sent.append(sql.split()[0])
        return statement(sql)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(dialect, "statement", note)
        yield sent
