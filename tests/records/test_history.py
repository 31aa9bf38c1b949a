"""The history: what each revision was, how it went, and what is left after tidying up."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

import pytest
from sqlalchemy import event

from reconciler.core.observed.phase import Phase
from reconciler.core.outcome import Outcome, Status
from reconciler.core.planning.plan import Action, Reason
from reconciler.core.ports import Journal
from reconciler.core.record import Call, HistorySnapshot, Prunable, RunEnd, Step, StepEnd
from reconciler.records.store import StoredRecords
from tests.builders import HOUR, NOW
from tests.records.locations import (
    DECLARED,
    DIGEST,
    ELSEWHERE,
    OTHER_DIGEST,
    OTHER_STACK,
    SCOPE,
    Place,
    a_run,
    a_step,
    an_action,
    done,
    owned,
)


@contextmanager
def _statements(records: StoredRecords) -> Iterator[list[str]]:
    """The statements that are sent meanwhile, by their first word; transactions aside."""
    engine, sent = records._database._engine, []

    def note(connection: object, cursor: object, statement: str, *rest: object) -> None:
        sent.append(statement.split()[0])

    event.listen(engine, "before_cursor_execute", note)
    yield sent
    event.remove(engine, "before_cursor_execute", note)


def test_nothing_is_known_of_a_stack_at_first(place: Place) -> None:
    memory = place.open().memory(SCOPE)
    assert memory == HistorySnapshot()
    assert not memory.knows_stack


def test_a_look_is_remembered(place: Place) -> None:
    records = place.open()
    seen = owned("a", phase=Phase.COMPLETED, node_count=4)
    records.remember(SCOPE, [seen], NOW)
    (revision,) = place.open().memory(SCOPE).by_key["a"]
    job = seen.job
    assert (revision.key, revision.number, revision.name, revision.job) == ("a", 1, "a", job.id)
    assert (revision.digest, revision.phase, revision.node_count) == (DIGEST, Phase.COMPLETED, 4)
    assert (revision.created_at_s, revision.started_at_s) == (job.created_at_s, job.started_at_s)
    assert (revision.duration_s, revision.seen_at_s) == (job.duration_s, NOW)
    assert revision.ended_at_s == job.ended_at_s()
    assert revision.phases == (("Completed", NOW),)
    assert revision.declared is None


def test_phases_are_kept_with_the_first_look_that_saw_each(place: Place) -> None:
    records = place.open()
    looks = [
        Phase.CREATING,
        Phase.PENDING,
        Phase.PENDING,
        Phase.RUNNING,
        Phase.PENDING,
        Phase.RUNNING,
        Phase.FAILED,
    ]
    for minute, phase in enumerate(looks):
        records.remember(SCOPE, [owned(phase=phase)], NOW + minute)
    (revision,) = records.revisions(SCOPE, "a")
    assert [(phase, at_s - NOW) for phase, at_s in revision.phases] == [
        ("Creating", 0),
        ("Pending", 1),
        ("Running", 3),
        ("Pending", 4),
        ("Running", 5),
        ("Failed", 6),
    ]


def test_a_thousand_unchanged_revisions_cost_one_select_and_no_write(place: Place) -> None:
    records = place.open()
    seen = [owned(f"k{number}", phase=Phase.COMPLETED) for number in range(1000)]
    records.remember(SCOPE, seen, NOW)
    records = place.open()
    with _statements(records) as sent:
        records.remember(SCOPE, seen, NOW + 60)
    assert [word for word in sent if word != "BEGIN"] == ["SELECT"]


def test_that_an_active_job_ran_on_is_nothing_new_and_that_it_ended_is(place: Place) -> None:
    records = place.open()
    started = owned(phase=Phase.RUNNING, ran_s=60, ended_s_ago=0)
    records.remember(SCOPE, [started], NOW)
    with _statements(records) as sent:
        records.remember(SCOPE, [owned(phase=Phase.RUNNING, ran_s=120, ended_s_ago=-60)], NOW + 60)
    assert "INSERT" not in sent
    records.remember(SCOPE, [owned(phase=Phase.COMPLETED, ran_s=180, ended_s_ago=-120)], NOW + 120)
    assert records.revisions(SCOPE, "a")[0].duration_s == 180


def test_a_look_that_comes_late_is_passed_over(place: Place) -> None:
    records = place.open()
    records.remember(SCOPE, [owned(phase=Phase.COMPLETED)], NOW + 10)
    records.remember(SCOPE, [owned(phase=Phase.RUNNING)], NOW)
    assert records.revisions(SCOPE, "a")[0].phase is Phase.COMPLETED


def test_a_clock_that_was_far_ahead_once_does_not_blind_us(place: Place) -> None:
    records = place.open()
    records.remember(SCOPE, [owned(phase=Phase.RUNNING)], NOW + 1000 * HOUR)
    records.remember(SCOPE, [owned(phase=Phase.COMPLETED)], NOW)
    assert records.revisions(SCOPE, "a")[0].phase is Phase.COMPLETED


def test_a_look_adds_to_what_the_journal_said(place: Place) -> None:
    records = place.open()
    seen = owned(phase=Phase.RUNNING)
    records.begin(a_run()).outcome(done(job=seen.job.id), DECLARED)
    records.remember(SCOPE, [seen], NOW)
    (revision,) = records.revisions(SCOPE, "a")
    assert (revision.declared, revision.phase) == (DECLARED, Phase.RUNNING)


def test_an_update_keeps_what_was_seen(place: Place) -> None:
    records = place.open()
    seen = owned(phase=Phase.RUNNING)
    records.remember(SCOPE, [seen], NOW)
    records.begin(a_run()).outcome(done(an_action("a", Action.UPDATE), seen.job.id), DECLARED)
    (revision,) = records.revisions(SCOPE, "a")
    assert (revision.phase, revision.seen_at_s) == (Phase.RUNNING, NOW)
    assert revision.phases == (("Running", NOW),)


@pytest.mark.parametrize("odd", ["nul \0 byte", "half a pair \ud800"])
def test_what_the_service_says_may_be_odd(place: Place, odd: str) -> None:
    records = place.open()
    seen = owned(job_id=odd, phase=odd, node_count=10**30)
    for minute in range(2):
        records.remember(SCOPE, [seen], NOW + minute)
    (revision,) = records.revisions(SCOPE, "a")
    assert (revision.seen_at_s, len(revision.phases)) == (NOW, 1)
    journal = records.begin(a_run())
    journal.after(journal.before(a_step()), StepEnd(ok=True, job=odd))
    journal.outcome(done(job=odd), DECLARED)
    assert journal.problem is None


def test_another_job_of_the_same_number_begins_anew(place: Place) -> None:
    records = place.open()
    records.remember(SCOPE, [owned(phase=Phase.FAILED, job_id="first")], NOW)
    records.begin(a_run()).outcome(done(job="second"), DECLARED)
    (revision,) = records.revisions(SCOPE, "a")
    assert (revision.job, revision.phase, revision.phases) == ("second", None, ())


def test_of_another_digest_nothing_is_known_to_be_declared(place: Place) -> None:
    records = place.open()
    records.begin(a_run()).outcome(done(), DECLARED)
    records.remember(SCOPE, [owned(digest=OTHER_DIGEST)], NOW)
    assert records.revisions(SCOPE, "a")[0].declared is None


# --- a crash between the call and its outcome


def test_what_was_declared_survives_a_crash_after_the_call(place: Place) -> None:
    place.open().begin(a_run()).before(a_step())
    records = place.open()
    records.remember(SCOPE, [owned()], NOW)
    assert records.revisions(SCOPE, "a")[0].declared == DECLARED


@pytest.mark.parametrize(
    ("what", "then"),
    [
        ("another key", owned("b")),
        ("another number", owned("a", 2)),
        ("another digest", owned("a", digest=OTHER_DIGEST)),
    ],
)
def test_a_journal_line_speaks_for_its_own_revision_only(place: Place, what: str, then: object) -> None:
    records = place.open()
    records.begin(a_run()).before(a_step())
    records.remember(SCOPE, [then], NOW)  # type: ignore[list-item]
    (past,) = records.memory(SCOPE).by_key.values()
    assert past[0].declared is None


def test_a_journal_line_speaks_for_its_own_scope_only(place: Place) -> None:
    records = place.open()
    records.begin(a_run(ELSEWHERE)).before(a_step())
    records.remember(SCOPE, [owned()], NOW)
    assert records.revisions(SCOPE, "a")[0].declared is None


@pytest.mark.parametrize(("is_certain", "declared"), [(True, None), (False, DECLARED)])
def test_a_call_that_certainly_failed_declared_nothing(
    place: Place, is_certain: bool, declared: object
) -> None:
    records = place.open()
    journal = records.begin(a_run())
    journal.after(journal.before(a_step()), StepEnd(ok=False, is_certain=is_certain))
    records.remember(SCOPE, [owned()], NOW)
    assert records.revisions(SCOPE, "a")[0].declared == declared


def test_an_update_of_the_marker_survives_a_crash_too(place: Place) -> None:
    records = place.open()
    journal = records.begin(a_run())
    journal.outcome(done(), None)
    journal.before(a_step(an_action("a", Action.UPDATE, digest=OTHER_DIGEST), Call.UPDATE))
    records.remember(SCOPE, [owned(digest=OTHER_DIGEST)], NOW)
    assert records.revisions(SCOPE, "a")[0].declared == DECLARED


# --- memory


def test_memory_holds_the_revisions_of_each_key_oldest_first(place: Place) -> None:
    records = place.open()
    seen = [owned("b"), *(owned("a", number) for number in (10, 2, 1))]
    records.remember(SCOPE, seen, NOW)
    memory = records.memory(SCOPE)
    assert {key: [r.number for r in past] for key, past in memory.by_key.items()} == {
        "a": [1, 2, 10],
        "b": [1],
    }
    newest = memory.by_key["a"][-1]
    assert newest.name == "a-r10"
    assert memory.elsewhere == ()


def test_memory_says_under_which_other_targets_the_stack_is_known(place: Place) -> None:
    records = place.open()
    records.remember(ELSEWHERE, [owned()], NOW)
    records.remember(OTHER_STACK, [owned()], NOW)
    records.begin(a_run(SCOPE))
    memory = records.memory(SCOPE)
    assert not memory.knows_stack
    assert memory.elsewhere == ("other.example, project p2, workspace 0",)


def test_a_job_that_went_over_to_another_key_takes_its_past_along(place: Place) -> None:
    records = place.open()
    before = owned("old", phase=Phase.RUNNING)
    records.begin(a_run()).outcome(done(an_action("old"), before.job.id), DECLARED)
    records.remember(SCOPE, [before], NOW)
    after = owned("new", phase=Phase.COMPLETED, name="old", job_id=before.job.id, id_part=before.job.id[:8])
    records.remember(SCOPE, [after], NOW + 60)
    memory = records.memory(SCOPE)
    assert list(memory.by_key) == ["new"]
    (revision,) = memory.by_key["new"]
    assert revision.declared == DECLARED
    assert revision.phases == (("Running", NOW), ("Completed", NOW + 60))


def _renamed(job: str) -> Outcome:
    """The marker of the job of `old` names `new` now."""
    before = an_action("old", Action.UPDATE, job=job).before
    action = an_action("new", Action.UPDATE).model_copy(update={"before": before, "formerly": "old"})
    return done(action, job)


def test_a_renaming_takes_the_past_of_the_job_along(place: Place) -> None:
    records = place.open()
    seen = owned("old", phase=Phase.RUNNING)
    other = owned("old", 2, phase=Phase.RUNNING)
    journal = records.begin(a_run())
    journal.outcome(done(an_action("old"), seen.job.id), DECLARED)
    records.remember(SCOPE, [seen, other], NOW)
    for _ in range(2):
        journal.outcome(_renamed(seen.job.id), None)
        by_key = records.memory(SCOPE).by_key
        assert {key: [r.number for r in past] for key, past in by_key.items()} == {"new": [1], "old": [2]}
        (revision,) = by_key["new"]
        assert (revision.declared, revision.phases) == (DECLARED, (("Running", NOW),))
    assert journal.problem is None


def test_a_renaming_that_was_not_done_moves_nothing(place: Place) -> None:
    records = place.open()
    journal = records.begin(a_run())
    journal.outcome(done(an_action("old"), "job-a"), DECLARED)
    journal.outcome(replace(_renamed("job-a"), status=Status.FAILED), None)
    assert list(records.memory(SCOPE).by_key) == ["old"]


def test_a_renaming_leaves_other_scopes_and_other_jobs_alone(place: Place) -> None:
    records = place.open()
    for scope, job in ((SCOPE, "another"), (ELSEWHERE, "job-a")):
        records.begin(a_run(scope)).outcome(done(an_action("old"), job), DECLARED)
    records.begin(a_run()).outcome(_renamed("job-a"), None)
    assert {key: past[0].job for key, past in records.memory(SCOPE).by_key.items()} == {
        "old": "another",
        "new": "job-a",
    }
    assert list(records.memory(ELSEWHERE).by_key) == ["old"]


def test_a_job_that_was_written_down_under_both_keys_is_put_together(place: Place) -> None:
    """As a renaming once left it."""
    records = place.open()
    before = owned("old", phase=Phase.RUNNING)
    journal = records.begin(a_run())
    journal.outcome(done(an_action("old"), before.job.id), DECLARED)
    records.remember(SCOPE, [before], NOW)
    journal.outcome(done(an_action("new", Action.UPDATE), before.job.id), None)
    assert sorted(records.memory(SCOPE).by_key) == ["new", "old"]
    after = owned("new", phase=Phase.COMPLETED, name="old", job_id=before.job.id, id_part=before.job.id[:8])
    records.remember(SCOPE, [after], NOW + 60)
    ((key, (revision,)),) = records.memory(SCOPE).by_key.items()
    assert (key, revision.declared) == ("new", DECLARED)
    assert revision.phases == (("Running", NOW), ("Completed", NOW + 60))
    with _statements(records) as sent:
        records.remember(SCOPE, [after], NOW + 120)
    assert "INSERT" not in sent


def test_several_thousand_new_revisions_find_their_lines(place: Place) -> None:
    records = place.open()
    journal = records.begin(a_run())
    journal.before(a_step(an_action("k1999")))
    records.remember(SCOPE, [owned(f"k{number}") for number in range(2000)], NOW)
    by_key = records.memory(SCOPE).by_key
    assert len(by_key) == 2000
    assert by_key["k1999"][0].declared == DECLARED


# --- tidying up


def _ended_run(records: StoredRecords, at_s: float) -> None:
    journal = records.begin(a_run(at_s=at_s))
    journal.before(a_step())
    journal.end(RunEnd(at_s + 1, "complete", {}, (Outcome(an_action(), Status.FAILED),)))


def test_runs_that_ended_before_are_deleted_with_their_lines(place: Place) -> None:
    records = place.open()
    for hours in (3, 2, 1):
        _ended_run(records, NOW - hours * HOUR)
    assert records.prunable(SCOPE, NOW - 1.5 * HOUR) == Prunable(runs=2, revisions=0)
    assert records.prune(SCOPE, NOW - 1.5 * HOUR) == 2
    (run,) = records.runs(SCOPE)
    assert (run.at_s, len(run.steps), len(run.actions)) == (NOW - HOUR, 1, 1)
    assert records.prune(ELSEWHERE, NOW) == 0
    assert not records.prunable(ELSEWHERE, NOW)


def test_a_run_that_died_is_deleted_unless_it_may_be_going_on(place: Place) -> None:
    records = place.open()
    records.begin(a_run(at_s=NOW - 2 * HOUR))
    assert not records.prunable(SCOPE, NOW)
    assert records.prune(SCOPE, NOW) == 0
    place.move_to(NOW + HOUR)
    assert not records.prunable(SCOPE, NOW), "it was alive later than that"
    assert records.prunable(SCOPE, NOW + HOUR).runs == 1
    assert records.prune(SCOPE, NOW + HOUR) == 1


def test_old_revisions_are_deleted_but_not_the_newest_nor_what_may_be_active(place: Place) -> None:
    records = place.open()
    old = NOW - 10 * HOUR
    kept_active = owned("a", 1, phase=Phase.RUNNING, ended_s_ago=9 * HOUR)
    gone = owned("a", 2, phase=Phase.FAILED, ended_s_ago=9 * HOUR)
    kept_odd = owned("a", 3, phase="Hibernating", ended_s_ago=9 * HOUR)
    kept_newest = owned("a", 4, phase=Phase.COMPLETED, ended_s_ago=9 * HOUR)
    only = owned("b", 1, phase=Phase.COMPLETED, ended_s_ago=9 * HOUR)
    records.remember(SCOPE, [kept_active, gone, kept_odd, kept_newest, only], old)
    young = [owned("c", 1, phase=Phase.COMPLETED), owned("c", 2, phase=Phase.COMPLETED)]
    records.remember(SCOPE, young, NOW)
    records.remember(OTHER_STACK, [gone, kept_newest], old)
    assert records.prunable(SCOPE, NOW - HOUR) == Prunable(runs=0, revisions=1)
    records.prune(SCOPE, NOW - HOUR)
    assert not records.prunable(SCOPE, NOW - HOUR)
    left = {key: [r.number for r in past] for key, past in records.memory(SCOPE).by_key.items()}
    assert left == {"a": [1, 3, 4], "b": [1], "c": [1, 2]}
    assert len(records.revisions(OTHER_STACK, "a")) == 2


def test_counting_what_is_old_reads_no_run(place: Place) -> None:
    records = place.open()
    for hours in range(20):
        _ended_run(records, NOW - hours * HOUR)
    records = place.open()
    with _statements(records) as sent:
        assert records.prunable(SCOPE, NOW).runs == 19
    assert len([word for word in sent if word == "SELECT"]) <= 4


# --- released and taken over

RELEASED = an_action("a", Action.UPDATE).model_copy(update={"reason": Reason.RELEASED, "after": None})


def _release(journal: Journal, job: str, end: StepEnd | None) -> None:
    """Take a marker off, as far as the journal sees it; without an end the process died in the call."""
    line = journal.before(Step(RELEASED, Call.UPDATE, job))
    if end is not None:
        journal.after(line, end)


@pytest.mark.parametrize(
    ("end", "is_released"),
    [
        (StepEnd(ok=True), True),
        (None, True),
        (StepEnd(ok=False, is_certain=False), True),
        (StepEnd(ok=False), False),
    ],
    ids=["answered", "killed", "no answer", "refused"],
)
def test_release_is_written_down_before_the_call_and_taken_back_only_by_a_refusal(
    place: Place, end: StepEnd | None, is_released: bool
) -> None:
    records = place.open()
    seen = owned(phase=Phase.RUNNING)
    records.remember(SCOPE, [seen], NOW)
    _release(records.begin(a_run()), seen.job.id, end)
    memory = place.open().memory(SCOPE)
    [revision] = memory.by_key["a"]
    assert (revision.released_at_s is not None) == is_released
    assert memory.knows_stack == (not is_released)


def test_look_that_sees_the_marker_after_the_release_makes_the_job_ours_again(place: Place) -> None:
    records = place.open()
    seen = owned(phase=Phase.RUNNING)
    records.remember(SCOPE, [seen], NOW)
    _release(records.begin(a_run()), seen.job.id, None)
    released_at_s = records.revisions(SCOPE, "a")[0].released_at_s
    assert released_at_s is not None
    records.remember(SCOPE, [seen], released_at_s - 1)  # it looked before, and writes late
    assert records.revisions(SCOPE, "a")[0].released_at_s == released_at_s
    records.remember(SCOPE, [seen], released_at_s + 1)
    assert records.revisions(SCOPE, "a")[0].released_at_s is None


def test_job_that_is_adopted_again_is_a_revision_of_its_own(place: Place) -> None:
    records = place.open()
    seen = owned(phase=Phase.RUNNING)
    records.remember(SCOPE, [seen], NOW)
    journal = records.begin(a_run())
    _release(journal, seen.job.id, StepEnd(ok=True))
    again = an_action("a", Action.UPDATE, number=2).model_copy(update={"reason": Reason.ADOPTED})
    line = journal.before(Step(again, Call.UPDATE, seen.job.id))
    journal.after(line, StepEnd(ok=True, job=seen.job.id))
    records.remember(
        SCOPE, [owned(number=2, job_id=seen.job.id, id_part=seen.job.id[:8], name="a")], NOW + HOUR
    )
    revisions = records.revisions(SCOPE, "a")
    assert [(one.number, one.released_at_s is None) for one in revisions] == [(1, False), (2, True)]


def test_what_was_declared_for_an_adopted_job_is_known_though_the_process_died(place: Place) -> None:
    records = place.open()
    adopted = an_action("a", Action.UPDATE).model_copy(update={"reason": Reason.ADOPTED})
    seen = owned(phase=Phase.RUNNING)
    records.begin(a_run()).before(Step(adopted, Call.UPDATE, seen.job.id, DECLARED))
    records.remember(SCOPE, [seen], NOW)
    assert records.revisions(SCOPE, "a")[0].declared == DECLARED


def test_history_of_some_jobs_is_taken_over_by_another_scope_once(place: Place) -> None:
    records = place.open()
    one, other = owned(phase=Phase.COMPLETED), owned("b", phase=Phase.COMPLETED)
    records.remember(SCOPE, [one, other], NOW)
    assert records.take_over(OTHER_STACK, SCOPE, [one.job.id]) == 1
    assert records.take_over(OTHER_STACK, SCOPE, [one.job.id]) == 0
    assert records.memory(OTHER_STACK).by_key == {"a": records.memory(SCOPE).by_key["a"]}
    assert records.take_over(SCOPE, ELSEWHERE, [one.job.id]) == 0
