"""The journal: its state on disk before and after a call, and with the store unavailable in between."""

from __future__ import annotations

import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from threading import Event
from typing import Any

import pytest

from reconciler.core.canonical import SecretName
from reconciler.core.past import Call, PastAction, PastChange, PastRevision, PastStep, RunKind
from reconciler.core.record import Declared, RecordsUnavailable
from reconciler.decide.outcome import Outcome, RunEnd, Status, StepEnd
from reconciler.decide.plan import Action
from reconciler.errors import LockLost
from reconciler.records.database import unavailable
from reconciler.records.dialects import Transaction
from reconciler.records.journal import StoredJournal, _Entry
from reconciler.records.store import Records
from reconciler.secrets import SecretText
from tests.builders import NOW
from tests.records.locations import (
    ALICE,
    DECLARED,
    DIGEST,
    ELSEWHERE,
    LEASE_S,
    OTHER_DIGEST,
    SCOPE,
    SECRET,
    Place,
    a_run,
    a_step,
    an_action,
    done,
    nothing_lost,
)


def the_line(records: Records) -> PastStep:
    [[line]] = [run.steps for run in records.runs(SCOPE)]
    return line


@pytest.fixture
def gone(journal: StoredJournal, monkeypatch: pytest.MonkeyPatch) -> StoredJournal:
    """The journal of a store that became unavailable after the run began."""

    def writing() -> Any:
        raise unavailable(OSError(5, "gone"), journal._store.dialect, str)

    monkeypatch.setattr(journal._store, "writing", writing)
    return journal


def test_recorded_run_round_trips(place: Place) -> None:
    records = place.open()
    journal = records.begin(a_run())
    place.advance(1)
    line = journal.before(a_step())
    place.advance(2)
    journal.after(line, StepEnd(ok=True, job="job-a", request_id="req-1"))
    journal.outcome(done(), DECLARED)
    journal.end(RunEnd(NOW + 4, "complete", {"done": 1}))
    (run,) = place.open().runs(SCOPE)
    assert (run.kind, run.who, run.where, run.command) == ("apply", "alice", "laptop", "apply")
    assert (run.plan_digest, run.at_s, run.ended_at_s) == ("d1", NOW, NOW + 4)
    assert (run.result, run.summary) == ("complete", {"done": 1})
    assert run.steps == (
        PastStep("a", "create", "create", "a", "job-a", NOW + 1, NOW + 3, ok=True, request_id="req-1"),
    )
    assert run.actions == (PastAction("a", "create", "not_found", "done", job="job-a"),)
    assert journal.problem is None


def test_interrupted_run_shows_its_unfinished_call(place: Place) -> None:
    place.open().begin(a_run()).before(a_step())
    place.move_to(NOW + 61)
    (run,) = place.open().runs(SCOPE)
    assert (run.ended_at_s, run.result, run.actions) == (None, "", ())
    assert run.word == "unfinished"
    assert [(step.call, step.ended_at_s, step.ok) for step in run.steps] == [("create", None, None)]


def words(place: Place) -> list[str]:
    return [run.word for run in place.open().runs(SCOPE)]


def test_newest_run_without_an_end_is_running_while_the_lock_is_held(place: Place) -> None:
    records = place.open()
    records.begin(a_run())
    assert words(place) == ["unfinished"]
    with records.locked(SCOPE, ALICE, lease_s=LEASE_S, on_lost=nothing_lost):
        journal = records.begin(a_run(at_s=NOW + 1))
        assert words(place) == ["running", "unfinished"]
        journal.end(RunEnd(NOW + 2, "complete", {}))
        assert words(place)[0] == "complete"
        records.begin(a_run(at_s=NOW + 3))
    assert words(place) == ["unfinished", "complete", "unfinished"]


def test_refused_call_is_recorded_with_its_code(records: Records, journal: StoredJournal) -> None:
    end = StepEnd(ok=False, code="ModelArts.2751", message="the name is taken", request_id="req-2")
    journal.after(journal.before(a_step()), end)
    line = the_line(records)
    recorded = (line.ok, line.code, line.message, line.request_id)
    assert recorded == (False, "ModelArts.2751", "the name is taken", "req-2")


@pytest.mark.parametrize(
    ("action", "call", "name", "job"),
    [
        (Action.CREATE, Call.CREATE, "a", None),
        (Action.UPDATE, Call.UPDATE, "a", "job-a"),
        (Action.TERMINATE, Call.TERMINATE, "a", "job-a"),
        (Action.REPLACE, Call.UPDATE, "a", "job-a"),
        (Action.REPLACE, Call.TERMINATE, "a", "job-a"),
        (Action.REPLACE, Call.CREATE, "a-r2", None),
    ],
)
def test_journal_line_names_the_job_of_its_call(
    records: Records, journal: StoredJournal, action: Action, call: Call, name: str, job: str | None
) -> None:
    journal.before(a_step(an_action("a", action), call))
    line = the_line(records)
    assert (line.name, line.job) == (name, job)


def test_outcomes_not_yet_recorded_are_written_once_at_the_end(
    records: Records, journal: StoredJournal
) -> None:
    journal.outcome(done(), DECLARED)
    left = Outcome(an_action("b"), Status.SKIPPED, "interrupted before it started")
    journal.end(RunEnd(NOW, "interrupted", {"done": 1, "skipped": 1}, (done(), left)))
    [run] = records.runs(SCOPE)
    assert [(action.key, action.status, action.detail) for action in run.actions] == [
        ("a", "done", ""),
        ("b", "skipped", "interrupted before it started"),
    ]


def test_concurrent_threads_write_every_line_once(records: Records) -> None:
    def one(number: int) -> None:
        action, job = an_action(f"k{number}"), f"job-{number}"
        shared.after(shared.before(a_step(action)), StepEnd(ok=True, job=job))
        shared.outcome(done(action, job), DECLARED)

    with records.locked(SCOPE, ALICE, lease_s=LEASE_S, on_lost=nothing_lost):
        shared = records.begin(a_run())
        with ThreadPoolExecutor(64) as threads:
            list(threads.map(one, range(256)))
    [run] = records.runs(SCOPE)
    assert {(step.key, step.job) for step in run.steps} == {(f"k{n}", f"job-{n}") for n in range(256)}
    assert len(run.steps) == len({action.key for action in run.actions}) == 256
    assert len(records.memory(SCOPE).by_key) == 256


def wait_for_entries(journal: StoredJournal, count: int) -> None:
    ends_s = time.monotonic() + 30
    while len(journal._waiting) < count and time.monotonic() < ends_s:
        time.sleep(0.001)
    assert len(journal._waiting) == count


def test_entries_that_wait_share_one_transaction(
    records: Records, journal: StoredJournal, monkeypatch: pytest.MonkeyPatch
) -> None:
    writing, may_write, begun = records.writing, Event(), list[None]()

    @contextmanager
    def slow() -> Iterator[Transaction]:
        begun.append(None)
        may_write.wait(30)
        with writing() as transaction:
            yield transaction

    monkeypatch.setattr(records, "writing", slow)
    with ThreadPoolExecutor(9) as threads:
        lines = [threads.submit(journal.before, a_step(an_action(f"k{n}"))) for n in range(9)]
        wait_for_entries(journal, 8)
        may_write.set()
    assert len(begun) == 2
    assert {line.result() for line in lines} == set(range(1, 10))
    assert len(records.runs(SCOPE)[0].steps) == 9


def test_lost_lock_refuses_the_calls_of_a_shared_transaction_only(records: Records) -> None:
    with records.locked(SCOPE, ALICE, lease_s=LEASE_S, on_lost=nothing_lost):
        journal = records.begin(a_run())
        line = journal.before(a_step())
    journal._is_writing = True
    with ThreadPoolExecutor(2) as threads:
        end = threads.submit(journal.after, line, StepEnd(ok=True, job="job-a"))
        wait_for_entries(journal, 1)
        call = threads.submit(journal.before, a_step(an_action("b")))
        wait_for_entries(journal, 2)
        journal._hand_over()
    end.result()
    with pytest.raises(LockLost):
        call.result()
    assert [(step.key, step.ok) for step in records.runs(SCOPE)[0].steps] == [("a", True)]


def test_runs_are_read_newest_first_by_scope_and_key_up_to_the_limit(records: Records) -> None:
    for number, key in enumerate(["a", "b", "a"]):
        journal = records.begin(a_run(at_s=NOW + number))
        journal.before(a_step(an_action(key)))
        journal.end(RunEnd(NOW + number, "complete", {}, (Outcome(an_action("c"), Status.SKIPPED),)))
    records.begin(a_run(ELSEWHERE))
    records.begin(a_run(at_s=NOW + 9, kind=RunKind.DRIFT))
    assert [run.at_s - NOW for run in records.runs(SCOPE)] == [9, 2, 1, 0]
    assert [run.at_s - NOW for run in records.runs(SCOPE, limit=2)] == [9, 2]
    assert [run.at_s - NOW for run in records.runs(SCOPE, keys=["a"])] == [2, 0]
    assert [run.at_s - NOW for run in records.runs(SCOPE, keys=["a"], limit=1)] == [2]
    assert records.runs(SCOPE, keys=["c"]) == []  # a skipped action is no change
    assert [run.kind for run in records.runs(SCOPE, limit=1)] == ["drift"]
    assert records.runs(SCOPE._replace(stack="unheard-of")) == []


# --- a store that becomes unavailable


def test_journal_failure_raises_before_a_call_and_is_a_problem_after_it(gone: StoredJournal) -> None:
    with pytest.raises(RecordsUnavailable):
        gone.before(a_step())
    assert gone.problem is None
    gone.after(1, StepEnd(ok=True))
    assert gone.problem is not None
    assert "cannot be reached" in gone.problem
    gone.outcome(done(), DECLARED)
    gone.end(RunEnd(NOW, "complete", {}))


def test_interrupted_write_raises_and_the_journal_goes_on(
    journal: StoredJournal, monkeypatch: pytest.MonkeyPatch
) -> None:
    def writing() -> Any:
        raise KeyboardInterrupt

    monkeypatch.setattr(journal._store, "writing", writing)
    with pytest.raises(KeyboardInterrupt):
        journal.before(a_step())
    monkeypatch.undo()
    assert journal.before(a_step()) == 2


# --- secrets, and texts that databases do not take


def _everything_written(place: Place) -> bytes:
    assert place.path is not None
    return b"".join(file.read_bytes() for file in place.path.parent.glob("records.db*"))


def test_secrets_are_not_written_to_the_record_files(sqlite: Place) -> None:
    records = sqlite.open()
    environments = {"TOKEN": SecretName("var.token", SECRET), "URL": f"https://{SECRET}@x"}
    declared = Declared(
        {"algorithm": {"environments": environments}},
        {"spec": {"notification": SecretText(f"Bearer {SECRET}", "Bearer ${var.token}")}},
        f"about {SECRET}",
    )
    holder = replace(ALICE, command=f"apply --var token={SECRET}")
    with records.locked(SCOPE, holder, lease_s=LEASE_S, on_lost=nothing_lost):
        journal = records.begin(a_run(command=f"apply --var token={SECRET}"))
        line = journal.before(a_step(declared=declared))
        journal.after(line, StepEnd(ok=False, code=SECRET, message=f"bad token {SECRET}", request_id=SECRET))
        journal.outcome(done()._replace(detail=f"said {SECRET}"), declared)
        assert SECRET.encode() not in _everything_written(sqlite)
        journal.end(RunEnd(NOW, "complete", {}, (Outcome(an_action("b"), Status.FAILED, message=SECRET),)))
    records.close()
    written = _everything_written(sqlite)
    assert SECRET.encode() not in written
    assert b"var.token" in written
    kept = sqlite.open().memory(SCOPE).by_key["a"][0].declared
    assert kept == Declared(
        {"algorithm": {"environments": {"TOKEN": "var.token", "URL": "https://(sensitive)@x"}}},
        {"spec": {"notification": "Bearer ${var.token}"}},
        "about (sensitive)",
    )


def test_redaction_of_json_syntax_does_not_break_the_record(place: Place) -> None:
    records = place.open(redact=lambda text: text.replace('":', "(sensitive)"))
    records.begin(a_run()).outcome(done(), DECLARED)
    assert records.revisions(SCOPE, "a")[0].declared == DECLARED


@pytest.mark.parametrize("text", ["nul \0 byte", "half a pair \ud800", "训练 🚂", "it's 100%; DROP TABLE x"])
def test_journal_accepts_any_text(records: Records, text: str) -> None:
    journal = records.begin(a_run(command=text))
    step = a_step(declared=Declared(description=text))
    journal.after(journal.before(step), StepEnd(ok=False, message=text))
    journal.outcome(Outcome(an_action(), Status.DONE, text, job="job-a"), Declared({"x": {text: text}}))
    assert journal.problem is None
    assert records.revisions(SCOPE, "a")[0].declared == Declared({"x": {text: text}})
    if text.isprintable():
        [run] = records.runs(SCOPE)
        assert (run.command, run.steps[0].message, run.actions[0].detail) == (text, text, text)


# --- the revision that an action made or changed


def test_create_that_is_done_is_recorded_as_a_revision(records: Records, journal: StoredJournal) -> None:
    journal.outcome(done(), DECLARED)
    assert records.revisions(SCOPE, "a") == (PastRevision("a", 1, "a", "job-a", DIGEST, declared=DECLARED),)


@pytest.mark.parametrize(
    "outcome",
    [
        Outcome(an_action(), Status.FAILED, job="job-a"),
        Outcome(an_action(), Status.DONE, job=None),
        Outcome(an_action("a", Action.TERMINATE), Status.DONE, job="job-a"),
    ],
    ids=["failed", "no job", "terminate"],
)
def test_outcome_without_a_new_job_is_no_revision(
    records: Records, journal: StoredJournal, outcome: Outcome
) -> None:
    journal.outcome(outcome, DECLARED)
    assert records.revisions(SCOPE, "a") == ()


PRIORITY = replace(DECLARED, mutable={"spec": {"priority": "3"}})


@pytest.mark.parametrize(
    ("digest", "recorded", "declared"), [(OTHER_DIGEST, PRIORITY, PRIORITY), (DIGEST, None, DECLARED)]
)
def test_update_replaces_the_recorded_declaration_if_it_has_one(
    records: Records, journal: StoredJournal, digest: str, recorded: Declared | None, declared: Declared
) -> None:
    journal.outcome(done(), DECLARED)
    journal.outcome(done(an_action("a", Action.UPDATE, digest=digest)), recorded)
    [revision] = records.revisions(SCOPE, "a")
    assert (revision.digest, revision.declared) == (digest, declared)


# --- without records


def test_optional_journal_lets_calls_be_made_without_a_store(
    gone: StoredJournal, monkeypatch: pytest.MonkeyPatch
) -> None:
    warned: list[str] = []
    gone._warn = warned.append
    lines = [gone.before(a_step()), gone.before(a_step())]
    monkeypatch.undo()
    assert len(set(lines)) == 2
    [warning] = warned
    assert "cannot be reached" in warning
    assert warning.endswith("; continuing without a journal")
    for line in lines:
        gone.after(line, StepEnd(ok=True, job="job-a"))
    assert gone.problem is None
    assert gone.before(a_step()) == 3


# ── the last change of each key ────────────────────────────────────────────────────────────────────


def test_last_change_is_the_newest_call_of_a_key_that_took_effect(place: Place) -> None:
    records = place.open()
    assert records.last_changes(SCOPE) == {}
    journal = records.begin(a_run())
    journal.after(journal.before(a_step()), StepEnd(ok=True, job="job-a"))
    place.advance(60)
    journal.after(journal.before(a_step()), StepEnd(ok=False, code="ModelArts.2751"))
    journal.before(a_step())  # unknown outcome
    of_another = records.begin(a_run()._replace(scope=ELSEWHERE))
    of_another.after(of_another.before(a_step(an_action("b"))), StepEnd(ok=True, job="job-b"))
    assert records.last_changes(SCOPE) == {
        "a": PastChange("a", "create", "create", "apply", "alice", "job-a", NOW)
    }
    assert records.last_changes(ELSEWHERE).keys() == {"b"}


def test_failing_entry_does_not_affect_entries_in_its_batch(journal: StoredJournal) -> None:
    def faulty(transaction: object) -> None:
        raise KeyError("a fault")

    journal._is_writing = True
    with ThreadPoolExecutor(3) as threads:
        good = threads.submit(journal.before, a_step())
        wait_for_entries(journal, 1)
        bad = threads.submit(journal._commit, _Entry(faulty))
        wait_for_entries(journal, 2)
        journal._hand_over()
    assert isinstance(bad.exception(), KeyError)
    assert good.exception() is None
