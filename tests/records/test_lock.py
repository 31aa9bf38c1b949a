"""The lock: its holder, its lease, and late actions of a former holder."""

from __future__ import annotations

import gc
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, nullcontext, suppress
from dataclasses import replace
from functools import partial
from itertools import count
from unittest.mock import Mock

import pytest

from reconciler.core.past import Holder
from reconciler.core.record import RecordsUnavailable
from reconciler.errors import LockHeld, LockLost
from reconciler.records import file as store_file
from reconciler.records.database import Database
from reconciler.records.dialects import Transaction
from reconciler.records.lock import ScopeLock
from reconciler.records.store import Records
from tests.builders import NOW
from tests.hostile.sizes import RecordProperty, count_tried
from tests.records.locations import (
    ALICE,
    BOB,
    LEASE_S,
    OTHER_STACK,
    SCOPE,
    Place,
    a_run,
    a_step,
    nothing_lost,
)

Two = tuple[Records, Records]


@pytest.fixture
def two(place: Place) -> Two:
    return place.open(), place.open()


def _locked(records: Records, **options: object) -> ExitStack:
    """Enter the lock, to be left by `close`."""
    stack = ExitStack()
    given = {"scope": SCOPE, "holder": ALICE, "lease_s": LEASE_S, "on_lost": nothing_lost, **options}
    stack.enter_context(records.locked(**given))  # type: ignore[arg-type]
    return stack


def test_lock_holder_is_visible_to_other_stores(place: Place) -> None:
    records = place.open()
    assert records.holder(SCOPE) is None
    with _locked(records):
        assert place.open().holder(SCOPE) == replace(ALICE, since_s=NOW, expires_s=NOW + LEASE_S)


def test_held_lock_error_names_holder_start_and_expiry(place: Place) -> None:
    with _locked(place.open()):
        place.advance(18)
        with pytest.raises(LockHeld) as refused:
            _locked(place.open(), holder=BOB)
    (diagnostic,) = refused.value.diagnostics
    assert diagnostic.what == "another process holds the lock"
    assert "held by alice on laptop since 2027-01-15T08:00:00Z, for reconciler apply" in diagnostic.why
    assert "it expires in 42 s unless renewed" in diagnostic.why
    assert "reconciler unlock" in (diagnostic.fix or "")


def test_held_lock_error_has_no_terminal_escapes(place: Place) -> None:
    mallory = replace(ALICE, who="mallory\x1b[2J")
    with _locked(place.open(), holder=mallory), pytest.raises(LockHeld) as refused:
        _locked(place.open())
    assert "\x1b" not in str(refused.value)


def test_lock_is_free_after_release_and_after_an_exception(place: Place) -> None:
    records = place.open()
    _locked(records).close()
    assert records.holder(SCOPE) is None
    with pytest.raises(ZeroDivisionError), _locked(place.open(), holder=BOB):
        raise ZeroDivisionError
    assert records.holder(SCOPE) is None


def test_second_lock_in_the_same_store_is_refused(records: Records) -> None:
    with _locked(records):
        with pytest.raises(LockHeld):
            _locked(records)
        records.begin(a_run()).before(a_step())  # the refused attempt did not affect the holder


def test_locks_of_different_scopes_are_independent(two: Two) -> None:
    with _locked(two[0]), _locked(two[1], scope=OTHER_STACK):
        pass


@pytest.mark.parametrize("is_released_late", [False, True])
def test_expired_lease_is_taken_over_and_a_late_release_changes_nothing(
    place: Place, two: Two, is_released_late: bool
) -> None:
    theirs, ours = two
    with _locked(theirs) as left:
        place.advance(LEASE_S)
        assert ours.holder(SCOPE) is None
        with _locked(ours, holder=BOB):
            if is_released_late:
                left.close()
            holder = ours.holder(SCOPE)
            assert holder is not None
            assert holder.who == "bob"


def test_broken_lock_is_free_and_its_holder_is_named(two: Two) -> None:
    theirs, ours = two
    assert ours.break_lock(SCOPE) is None
    with _locked(theirs):
        broken = ours.break_lock(SCOPE)
        assert broken is not None
        assert broken.who == "alice"
        assert ours.holder(SCOPE) is None
        _locked(ours, holder=BOB).close()


def test_break_lock_breaks_the_given_hold_only(two: Two) -> None:
    theirs, ours = two
    with _locked(theirs):
        seen = ours.holder(SCOPE)
    assert seen is not None
    assert seen.hold not in repr(seen)
    assert ours.break_lock(SCOPE, seen) is None
    with _locked(theirs) as held:  # the same person, at the same time
        assert ours.break_lock(SCOPE, seen) is None
        now = ours.holder(SCOPE)
        assert now == seen
        theirs.begin(a_run()).before(a_step())
        assert ours.break_lock(SCOPE, now) == now
        assert ours.holder(SCOPE) is None
        held.close()


# --- journal lines are fenced


@pytest.mark.parametrize("how", ["ran out", "was released", "broken", "taken over"])
def test_journal_lines_are_refused_without_the_lock(place: Place, two: Two, how: str) -> None:
    theirs, ours = two
    with _locked(theirs) as held:
        journal = theirs.begin(a_run())
        journal.before(a_step())
        if how == "was released":
            held.close()
        elif how == "broken":
            ours.break_lock(SCOPE)
        else:
            place.advance(LEASE_S)
        with _locked(ours, holder=BOB) if how in ("broken", "taken over") else nullcontext():
            with pytest.raises(LockLost, match="the lock was lost"):
                journal.before(a_step())
            ours.begin(a_run()).before(a_step())


def test_journal_without_a_lock_is_not_fenced(place: Place) -> None:
    with _locked(place.open()):
        place.open().begin(a_run()).before(a_step())


# --- the heartbeat


def _held(records: Records) -> ScopeLock:
    return records.held[SCOPE]


@pytest.mark.parametrize("how", ["kept alive", "broken", "taken over", "ran out"])
def test_heartbeat_extends_the_lease_or_detects_a_lost_lock(place: Place, two: Two, how: str) -> None:
    records, ours = two
    lost: list[None] = []
    with _locked(records, on_lost=lambda: lost.append(None)):
        if how == "kept alive":
            place.advance(LEASE_S - 1)
            assert _held(records)._beat() == LEASE_S / 3
            place.advance(LEASE_S - 1)
            with pytest.raises(LockHeld):
                _locked(ours)
            return
        if how == "broken":
            ours.break_lock(SCOPE)
        else:
            place.advance(LEASE_S)
        with _locked(ours, holder=BOB) if how == "taken over" else nullcontext():
            assert _held(records)._beat() is None
        assert len(lost) == 1
        with pytest.raises(LockLost):
            records.begin(a_run()).before(a_step())


def test_unavailable_store_loses_the_lock_only_when_the_lease_expires(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    records = place.open()
    lost: list[None] = []
    with _locked(records, on_lost=lambda: lost.append(None)):

        def away() -> None:
            raise RecordsUnavailable

        monkeypatch.setattr(_held(records), "_renew", away)
        place.advance(LEASE_S - 1)
        assert _held(records)._beat() == LEASE_S / 10  # sooner than otherwise
        assert lost == []
        place.advance(1)
        assert _held(records)._beat() is None
        assert len(lost) == 1


def test_heartbeat_thread_reports_a_lost_lock_once(place: Place) -> None:
    lost = Mock()
    with _locked(place.open(), lease_s=0.03, on_lost=lost):
        place.advance(0.03)
        ends_s = time.monotonic() + 30
        while not lost.called and time.monotonic() < ends_s:
            time.sleep(0.01)
    lost.assert_called_once_with()


# --- a dead holder (SQLite only, detected by the kernel)


def _die(records: Records) -> None:
    """Release what the kernel releases when a process dies."""
    held = _held(records)._process_lock
    assert held is not None
    held.release()


def test_lock_of_a_dead_holder_is_free(sqlite: Place) -> None:
    theirs, ours = sqlite.open(), sqlite.open()
    with _locked(theirs):
        assert all(ours.holder(SCOPE) for _ in range(3))  # reading does not disturb it
        _die(theirs)
        assert not any(ours.holder(SCOPE) for _ in range(3))
        assert ours.break_lock(SCOPE) is None
        _locked(ours, holder=BOB).close()


@pytest.mark.parametrize("what", ["another boot", "no boot id", "its file was removed"])
def test_lock_without_proof_of_a_dead_holder_stays_held(
    sqlite: Place, monkeypatch: pytest.MonkeyPatch, what: str
) -> None:
    theirs, ours = sqlite.open(), sqlite.open()
    if what == "no boot id":
        monkeypatch.setattr(store_file, "_boot_id", lambda: "")
    with _locked(theirs):
        if what == "another boot":
            _die(theirs)
            monkeypatch.setattr(store_file, "_boot_id", lambda: "another-boot")
        elif what == "its file was removed":
            assert sqlite.path is not None
            [file] = sqlite.path.parent.glob("records.db.lock-*")
            file.unlink()
        assert ours.holder(SCOPE) is not None
        with pytest.raises(LockHeld):
            _locked(ours)
        sqlite.advance(LEASE_S)
        _locked(ours).close()


def test_stopped_holder_keeps_its_process_lock_but_not_the_lock(sqlite: Place) -> None:
    theirs, ours, third = sqlite.open(), sqlite.open(), sqlite.open()
    with _locked(theirs):
        sqlite.advance(LEASE_S)
        with _locked(ours, holder=BOB):
            assert third.holder(SCOPE) is not None
            with pytest.raises(LockHeld):
                _locked(third)


class _Interrupt(BaseException):
    """Raised by a signal."""


@contextmanager
def _signals_are_raised() -> Iterator[threading.Event]:
    is_raised = threading.Event()

    def interrupt(number: int, frame: object) -> None:
        is_raised.set()
        raise _Interrupt

    before = signal.signal(signal.SIGTERM, interrupt)
    try:
        yield is_raised
    finally:
        signal.signal(signal.SIGTERM, before)


def _hold(records: Records, holder: Holder = ALICE) -> None:
    with records.locked(SCOPE, holder, lease_s=LEASE_S, on_lost=nothing_lost):
        pass


def _calls_until_interrupted(deed: Callable[[], None], at: int) -> int:
    """Run something interrupted by a signal at one of its function calls; return the number of calls."""
    calls = 0

    def profile(frame: object, event: str, argument: object) -> None:
        nonlocal calls
        calls += event == "call"
        if event == "call" and calls == at:
            signal.raise_signal(signal.SIGTERM)

    with _signals_are_raised(), suppress(_Interrupt):
        try:
            gc.disable()  # exceptions in garbage collector callbacks are lost
            sys.setprofile(profile)
            deed()
        finally:
            sys.setprofile(None)
            gc.enable()
    return calls


def test_lock_is_free_after_a_signal_in_any_acquire_or_release_call(
    place: Place, record_property: RecordProperty
) -> None:
    records, other = place.open(), place.open()
    _hold(records)
    # The calls of the main thread are the same on any database.
    calls = range(1, _calls_until_interrupted(partial(_hold, records), 0), 1 if place.path else 4)
    for at in calls:
        _calls_until_interrupted(partial(_hold, records), at)
        records.close()
        _hold(other, BOB)
        records = place.open()
        records.holder(SCOPE)  # reads the name of the scope, once
    count_tried(record_property, "signals", len(calls))


@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize("write", ["taken", "let go"])
def test_lock_is_free_after_a_signal_around_an_acquire_or_release_commit(
    place: Place, monkeypatch: pytest.MonkeyPatch, when: str, write: str
) -> None:
    records, writes = place.open(), count(1)
    _hold(records)
    writing = Database.writing

    @contextmanager
    def watched(database: Database) -> Iterator[Transaction]:
        is_it = next(writes) == (1 if write == "taken" else 2)
        with writing(database) as connection:
            yield connection
            if is_it and when == "before":
                interrupt()
        if is_it and when == "after":
            interrupt()

    def interrupt() -> None:
        signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGTERM)
        # A main thread about to sleep handles it only after this one is done.
        is_raised.wait(1)

    monkeypatch.setattr(Database, "writing", watched)
    with _signals_are_raised() as is_raised, pytest.raises(_Interrupt):
        _hold(records)
    monkeypatch.undo()
    records.close()
    assert place.open().holder(SCOPE) is None
