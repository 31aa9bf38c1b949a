"""Whatever happens to several holders, at most one may write at a time."""

from __future__ import annotations

import tempfile
from dataclasses import dataclass
from pathlib import Path

import pytest
from hypothesis import Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule, run_state_machine_as_test

from reconciler.errors import LockHeld, LockLost
from reconciler.records.dialects import Sqlite, dialect_of
from reconciler.records.journal import StoredJournal
from reconciler.records.lock import ScopeLock
from reconciler.records.store import Records
from tests.builders import NOW
from tests.records.locations import ALICE, LEASE_S, SCOPE, a_run, a_step, nothing_lost

#: Without shrinking, which takes minutes; thirty steps are readable.
PHASES = (Phase.explicit, Phase.reuse, Phase.generate)
HOLDERS = st.integers(0, 1)
DEEDS = ["take", "take", "take", "write", "write", "renew", "release", "die", "break_it"]


@dataclass
class Moment:
    at_s: float = NOW

    def now(self) -> float:
        return self.at_s


@dataclass
class Contender:
    """A process: its connections to the file, its last lock, and its journal."""

    records: Records
    lock: ScopeLock | None = None
    journal: StoredJournal | None = None


class LockMachine(RuleBasedStateMachine):
    """The model: the holder, and the end of its lease."""

    def __init__(self) -> None:
        super().__init__()
        self._directory = tempfile.TemporaryDirectory()
        self._moment = Moment()
        self._contenders = [self._contender() for _ in range(2)]
        self._holder: int | None = None
        self._until_s = 0.0
        self._is_dead = False

    def _contender(self) -> Contender:
        dialect = dialect_of(f"sqlite://{Path(self._directory.name) / 'records.db'}")
        assert isinstance(dialect, Sqlite)
        dialect.synchronous = "OFF"  # no power failures here
        records = Records(dialect, self._moment, str)
        records.prepare(create=True)
        return Contender(records)

    @property
    def _is_held(self) -> bool:
        return self._holder is not None and self._moment.at_s < self._until_s

    def _has_it(self, number: int) -> bool:
        return self._is_held and self._holder == number and not self._is_dead

    def take(self, number: int) -> None:
        contender = self._contenders[number]
        if contender.lock is not None and not contender.lock._is_lost and self._has_it(number):
            return
        lock = contender.records.locked(SCOPE, ALICE, lease_s=LEASE_S, on_lost=nothing_lost)
        if self._is_held and not self._is_dead:
            with pytest.raises(LockHeld):
                lock._take()
            return
        lock._take()
        if contender.lock is not None:
            contender.lock._release_process_lock()
        contender.lock = lock
        contender.journal = contender.records.begin(a_run())
        self._holder, self._until_s, self._is_dead = number, self._moment.at_s + LEASE_S, False

    def write(self, number: int) -> None:
        journal = self._contenders[number].journal
        if journal is None:
            return
        if self._has_it(number):
            journal.before(a_step())
        else:
            with pytest.raises(LockLost):
                journal.before(a_step())

    def renew(self, number: int) -> None:
        lock = self._contenders[number].lock
        if lock is None:
            return
        if self._has_it(number):
            lock._renew()
            self._until_s = self._moment.at_s + LEASE_S
        else:
            with pytest.raises(LockLost):
                lock._renew()

    def release(self, number: int) -> None:
        contender = self._contenders[number]
        if contender.lock is None:
            return
        contender.lock._release()
        if self._holder == number:
            self._holder = None

    def die(self, number: int) -> None:
        """The kernel releases the process lock; the row stays."""
        contender = self._contenders[number]
        if contender.lock is None:
            return
        # A holder that took over from a stopped process has no process lock, only a lease.
        proves = contender.lock._process_lock is not None
        contender.lock._release_process_lock()
        contender.lock = contender.journal = None
        if self._has_it(number) and proves:
            self._is_dead = True
        elif self._has_it(number):
            self._holder = -1

    def break_it(self, by: int) -> None:
        broken = self._contenders[by].records.break_lock(SCOPE)
        assert (broken is not None) == (self._is_held and not self._is_dead)
        self._holder, self._is_dead = None, False

    @rule(number=HOLDERS, deed=st.sampled_from(DEEDS))
    def somebody_acts(self, number: int, deed: str) -> None:
        """One rule, not seven: runs without any lock prove little."""
        getattr(self, deed)(number)

    @rule(seconds=st.sampled_from([1.0, LEASE_S / 3, LEASE_S - 1, LEASE_S]))
    def time_passes(self, seconds: float) -> None:
        self._moment.at_s += seconds

    @invariant()
    def everybody_sees_the_same_holder(self) -> None:
        seen = {contender.records.holder(SCOPE) is not None for contender in self._contenders}
        assert seen == {self._is_held and not self._is_dead}

    def teardown(self) -> None:
        for contender in self._contenders:
            if contender.lock is not None:
                contender.lock._release_process_lock()
            contender.records.close()
        self._directory.cleanup()


def test_lock_allows_at_most_one_writer_at_a_time() -> None:
    run_state_machine_as_test(
        LockMachine, settings=settings(max_examples=60, stateful_step_count=30, phases=PHASES)
    )
