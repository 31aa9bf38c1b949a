"""The journal: what is on disk before a call, after it, and when the store becomes unavailable in between."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any

import pytest

from reconciler.core.canonical import SecretName
from reconciler.core.record import (
    Call,
    Declared,
    PastAction,
    PastStep,
    RecordsUnavailable,
    RunKind,
)
from reconciler.decide.outcome import Outcome, RunEnd, Status, StepEnd
from reconciler.decide.plan import Action
from reconciler.records.database import unavailable
from reconciler.records.journal import StoredJournal
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


def _lines(records: Records) -> tuple[PastStep, ...]:
    (run,) = records.runs(SCOPE)
    return run.steps


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
    assert (run.commit, run.plan_digest, run.at_s, run.ended_at_s) == ("c0ffee", "d1", NOW, NOW + 4)
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
    assert run.word == "interrupted"
    assert [(step.call, step.ended_at_s, step.ok) for step in run.steps] == [("create", None, None)]


def words(place: Place) -> list[str]:
    return [run.word for run in place.open().runs(SCOPE)]


def test_run_is_running_until_it_ends_or_its_store_is_closed(place: Place) -> None:
    records = place.open()
    journal = records.begin(a_run())
    assert words(place) == ["running"]
    journal.end(RunEnd(NOW + 1, "complete", {}))
    assert words(place) == ["complete"]
    records.begin(a_run(at_s=NOW + 2))
    assert words(place) == ["running", "complete"]
    records.close()
    place.move_to(NOW + 61)
    assert words(place) == ["interrupted", "complete"]


def test_run_without_heartbeat_is_interrupted(place: Place) -> None:
    """Of a process on another machine nothing else is known."""
    records = place.open()
    records.begin(a_run())
    place.move_to(NOW + 59)
    assert words(place) == ["running"]
    place.move_to(NOW + 61)
    assert words(place) == ["interrupted"]


def test_run_is_running_with_or_without_the_lock(place: Place) -> None:
    records = place.open()
    with records.locked(SCOPE, ALICE, lease_s=LEASE_S, on_lost=nothing_lost):
        records.begin(a_run())
    assert words(place) == ["running"]


def test_ended_run_leaves_no_file(sqlite: Place) -> None:
    records = sqlite.open()
    assert sqlite.path is not None
    before = sorted(sqlite.path.parent.glob("*.run-*"))
    journal = records.begin(a_run())
    [file] = sqlite.path.parent.glob("*.run-*")
    assert file.stat().st_mode & 0o777 == 0o600
    journal.end(RunEnd(NOW + 1, "complete", {}))
    assert sorted(sqlite.path.parent.glob("*.run-*")) == before == []


def test_file_of_a_killed_run_is_deleted_by_the_next_run(sqlite: Place) -> None:
    assert sqlite.path is not None
    left = sqlite.path.with_name(f"{sqlite.path.name}.run-77")
    left.touch()
    sqlite.open().begin(a_run())
    assert not left.exists()


def test_refused_call_is_recorded_with_its_code(place: Place) -> None:
    records = place.open()
    journal = records.begin(a_run())
    end = StepEnd(ok=False, code="ModelArts.2751", message="the name is taken", request_id="req-2")
    journal.after(journal.before(a_step()), end)
    (line,) = _lines(records)
    assert (line.ok, line.code, line.message, line.request_id) == (
        False,
        "ModelArts.2751",
        "the name is taken",
        "req-2",
    )


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
    place: Place, action: Action, call: Call, name: str, job: str | None
) -> None:
    records = place.open()
    records.begin(a_run()).before(a_step(an_action("a", action), call))
    (line,) = _lines(records)
    assert (line.name, line.job) == (name, job)


def test_outcomes_not_yet_recorded_are_written_once_at_the_end(place: Place) -> None:
    records = place.open()
    journal = records.begin(a_run())
    journal.outcome(done(), DECLARED)
    left = Outcome(an_action("b"), Status.SKIPPED, "interrupted before it started")
    journal.end(RunEnd(NOW, "interrupted", {"done": 1, "skipped": 1}, (done(), left)))
    (run,) = records.runs(SCOPE)
    assert [(action.key, action.status, action.detail) for action in run.actions] == [
        ("a", "done", ""),
        ("b", "skipped", "interrupted before it started"),
    ]


def test_concurrent_threads_write_every_line_once(place: Place) -> None:
    records = place.open()

    def one(number: int) -> None:
        action = an_action(f"k{number}")
        line = journal.before(a_step(action))
        journal.after(line, StepEnd(ok=True, job=f"job-{number}"))
        journal.outcome(done(action, f"job-{number}"), DECLARED)

    with records.locked(SCOPE, ALICE, lease_s=LEASE_S, on_lost=nothing_lost):
        journal = records.begin(a_run())
        with ThreadPoolExecutor(64) as threads:
            list(threads.map(one, range(256)))
    (run,) = records.runs(SCOPE)
    assert sorted((step.key, step.job) for step in run.steps) == sorted(
        (f"k{n}", f"job-{n}") for n in range(256)
    )
    assert len({action.key for action in run.actions}) == 256
    assert len(records.memory(SCOPE).by_key) == 256


def test_runs_are_read_newest_first_by_scope_and_key_up_to_the_limit(place: Place) -> None:
    records = place.open()
    for number, key in enumerate(["a", "b", "a"]):
        journal = records.begin(a_run(at_s=NOW + number))
        journal.before(a_step(an_action(key)))
        journal.end(RunEnd(NOW + number, "complete", {}, (Outcome(an_action("c"), Status.SKIPPED),)))
    records.begin(a_run(ELSEWHERE))
    records.begin(a_run(at_s=NOW + 9, kind=RunKind.DRIFT))
    assert [run.at_s - NOW for run in records.runs(SCOPE)] == [9, 2, 1, 0]
    assert [run.at_s - NOW for run in records.runs(SCOPE, limit=2)] == [9, 2]
    assert [run.at_s - NOW for run in records.runs(SCOPE, key="a")] == [2, 0]
    assert [run.at_s - NOW for run in records.runs(SCOPE, key="a", limit=1)] == [2]
    assert records.runs(SCOPE, key="c") == []  # skipping is no doing
    assert [run.kind for run in records.runs(SCOPE, limit=1)] == ["drift"]
    assert records.runs(SCOPE._replace(stack="unheard-of")) == []


# --- a store that becomes unavailable


class _Gone(Exception):
    pass


@pytest.fixture(name="journal")
def _journal(place: Place, monkeypatch: pytest.MonkeyPatch) -> StoredJournal:
    """The journal of a store that became unavailable after the run began."""
    journal = place.open().begin(a_run())

    def writing() -> Any:
        raise unavailable(OSError(5, "gone"), journal._store.dialect, str)

    monkeypatch.setattr(journal._store, "writing", writing)
    return journal


def test_journal_failure_before_a_call_raises(journal: StoredJournal) -> None:
    with pytest.raises(RecordsUnavailable):
        journal.before(a_step())


def test_journal_failure_after_a_call_is_kept_as_a_problem(journal: StoredJournal) -> None:
    assert journal.problem is None
    journal.after(1, StepEnd(ok=True))
    assert journal.problem is not None
    assert "cannot be reached" in journal.problem
    journal.outcome(done(), DECLARED)
    journal.end(RunEnd(NOW, "complete", {}))


def test_interrupted_write_raises_and_the_journal_goes_on(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    journal = place.open().begin(a_run())

    def writing() -> Any:
        raise KeyboardInterrupt

    monkeypatch.setattr(journal._store, "writing", writing)
    with pytest.raises(KeyboardInterrupt):
        journal.before(a_step())
    monkeypatch.undo()
    assert journal.before(a_step()) == 2  # the journal goes on


# --- secrets, and texts that databases do not take


def _everything_written(place: Place) -> bytes:
    assert place.path is not None
    return b"".join(file.read_bytes() for file in place.path.parent.glob("records.db*"))


def test_secrets_are_not_written_to_the_record_files(sqlite: Place) -> None:
    records = sqlite.open()
    declared = Declared(
        {
            "algorithm": {
                "environments": {"TOKEN": SecretName("var.token", SECRET), "URL": f"https://{SECRET}@x"}
            }
        },
        {"spec": {"notification": SecretText(f"Bearer {SECRET}", "Bearer ${var.token}")}},
        f"about {SECRET}",
    )
    told = replace(ALICE, command=f"apply --var token={SECRET}")
    with records.locked(SCOPE, told, lease_s=LEASE_S, on_lost=nothing_lost):
        journal = records.begin(a_run(command=f"apply --var token={SECRET}"))
        line = journal.before(a_step(declared=declared))
        journal.after(line, StepEnd(ok=False, code=SECRET, message=f"bad token {SECRET}", request_id=SECRET))
        journal.outcome(replace(done(), detail=f"said {SECRET}"), declared)
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
def test_journal_accepts_any_text(place: Place, text: str) -> None:
    records = place.open()
    journal = records.begin(a_run(command=text))
    journal.after(
        journal.before(a_step(declared=Declared(description=text))), StepEnd(ok=False, message=text)
    )
    journal.outcome(Outcome(an_action(), Status.DONE, text, job="job-a"), Declared({"x": {text: text}}))
    assert journal.problem is None
    assert records.revisions(SCOPE, "a")[0].declared == Declared({"x": {text: text}})
    if text.isprintable():
        (run,) = records.runs(SCOPE)
        assert (run.command, run.steps[0].message, run.actions[0].detail) == (text, text, text)


# --- the revision that an action made or changed


def test_create_that_is_done_is_recorded_as_a_revision(place: Place) -> None:
    records = place.open()
    records.begin(a_run()).outcome(done(), DECLARED)
    (revision,) = records.revisions(SCOPE, "a")
    assert (revision.name, revision.number, revision.job, revision.digest) == ("a", 1, "job-a", DIGEST)
    assert revision.declared == DECLARED
    assert (revision.phase, revision.seen_at_s, revision.phases) == (None, None, ())


@pytest.mark.parametrize(
    "outcome",
    [
        Outcome(an_action(), Status.FAILED, job="job-a"),
        Outcome(an_action(), Status.DONE, job=None),
        Outcome(an_action("a", Action.TERMINATE), Status.DONE, job="job-a"),
    ],
    ids=["failed", "no job", "terminate"],
)
def test_outcome_without_a_new_job_is_no_revision(place: Place, outcome: Outcome) -> None:
    records = place.open()
    records.begin(a_run()).outcome(outcome, DECLARED)
    assert records.revisions(SCOPE, "a") == ()


def test_update_replaces_the_recorded_declaration(place: Place) -> None:
    records = place.open()
    journal = records.begin(a_run())
    journal.outcome(done(), DECLARED)
    now = replace(DECLARED, mutable={"spec": {"priority": "3"}})
    journal.outcome(done(an_action("a", Action.UPDATE, digest=OTHER_DIGEST)), now)
    (revision,) = records.revisions(SCOPE, "a")
    assert (revision.digest, revision.declared) == (OTHER_DIGEST, now)


def test_update_without_a_declaration_keeps_the_recorded_one(place: Place) -> None:
    records = place.open()
    journal = records.begin(a_run())
    journal.outcome(done(), DECLARED)
    journal.outcome(done(an_action("a", Action.UPDATE)), None)
    assert records.revisions(SCOPE, "a")[0].declared == DECLARED


# --- without records


def test_optional_journal_lets_calls_be_made_without_a_store(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    warned: list[str] = []
    journal = place.open().begin(a_run(), warned.append)

    def writing() -> Any:
        raise unavailable(OSError(5, "gone"), journal._store.dialect, str)

    with monkeypatch.context() as gone:
        gone.setattr(journal._store, "writing", writing)
        lines = [journal.before(a_step()), journal.before(a_step())]
    assert len(set(lines)) == 2
    [warning] = warned
    assert "cannot be reached" in warning
    assert warning.endswith("; continuing without a journal")
    for line in lines:
        journal.after(line, StepEnd(ok=True, job="job-a"))
    assert journal.problem is None
    assert journal.before(a_step()) == 3


# ── the last change of each key ────────────────────────────────────────────────────────────────────


def test_last_change_is_the_newest_call_of_a_key_that_took_effect(place: Place) -> None:
    records = place.open()
    assert records.last_changes(SCOPE) == {}
    journal = records.begin(a_run())
    made = journal.before(a_step())
    journal.after(made, StepEnd(ok=True, job="job-a"))
    place.advance(60)
    refused = journal.before(a_step())
    journal.after(refused, StepEnd(ok=False, code="ModelArts.2751"))
    journal.before(a_step())  # nobody knows what became of it
    change = records.last_changes(SCOPE)["a"]
    assert (change.action, change.call, change.job, change.at_s) == ("create", "create", "job-a", NOW)
    assert (change.kind, change.who) == ("apply", "alice")


def test_last_change_is_of_its_own_scope_only(place: Place) -> None:
    records = place.open()
    journal = records.begin(replace(a_run(), scope=ELSEWHERE))
    journal.after(journal.before(a_step()), StepEnd(ok=True, job="job-a"))
    assert records.last_changes(SCOPE) == {}
    assert records.last_changes(ELSEWHERE).keys() == {"a"}
