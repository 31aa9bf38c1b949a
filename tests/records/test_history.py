"""The history: what each revision was, how it went, and what is left after tidying up."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

import pytest
from sqlalchemy import event

from reconciler.core.phase import Phase
from reconciler.core.record import Call, HistorySnapshot, Prunable
from reconciler.decide.outcome import Journal, Outcome, RunEnd, Status, Step, StepEnd
from reconciler.decide.plan import Action, Reason
from reconciler.records.store import Records
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
def _statements(records: Records) -> Iterator[list[str]]:
    """The statements that are sent meanwhile, by their first word; transactions aside."""
    engine, sent = records._engine, []

    def note(connection: object, cursor: object, statement: str, *rest: object) -> None:
        sent.append(statement.split()[0])

    event.listen(engine, "before_cursor_execute", note)
    yield sent
    event.remove(engine, "before_cursor_execute", note)


def test_new_store_has_no_history_of_a_stack(place: Place) -> None:
    memory = place.open().memory(SCOPE)
    assert memory == HistorySnapshot()
    assert not memory.knows_stack


def test_observation_is_recorded(place: Place) -> None:
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


def test_phases_are_recorded_with_the_time_of_their_first_observation(place: Place) -> None:
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


def test_thousand_unchanged_revisions_need_one_select_and_no_write(place: Place) -> None:
    records = place.open()
    seen = [owned(f"k{number}", phase=Phase.COMPLETED) for number in range(1000)]
    records.remember(SCOPE, seen, NOW)
    records = place.open()
    with _statements(records) as sent:
        records.remember(SCOPE, seen, NOW + 60)
    assert [word for word in sent if word != "BEGIN"] == ["SELECT"]


def test_longer_duration_of_an_active_job_is_not_written_but_its_end_is(place: Place) -> None:
    records = place.open()
    started = owned(phase=Phase.RUNNING, ran_s=60, ended_s_ago=0)
    records.remember(SCOPE, [started], NOW)
    with _statements(records) as sent:
        records.remember(SCOPE, [owned(phase=Phase.RUNNING, ran_s=120, ended_s_ago=-60)], NOW + 60)
    assert "INSERT" not in sent
    records.remember(SCOPE, [owned(phase=Phase.COMPLETED, ran_s=180, ended_s_ago=-120)], NOW + 120)
    assert records.revisions(SCOPE, "a")[0].duration_s == 180


def test_older_observation_is_ignored(place: Place) -> None:
    records = place.open()
    records.remember(SCOPE, [owned(phase=Phase.COMPLETED)], NOW + 10)
    records.remember(SCOPE, [owned(phase=Phase.RUNNING)], NOW)
    assert records.revisions(SCOPE, "a")[0].phase is Phase.COMPLETED


def test_observation_far_in_the_future_does_not_block_later_ones(place: Place) -> None:
    records = place.open()
    records.remember(SCOPE, [owned(phase=Phase.RUNNING)], NOW + 1000 * HOUR)
    records.remember(SCOPE, [owned(phase=Phase.COMPLETED)], NOW)
    assert records.revisions(SCOPE, "a")[0].phase is Phase.COMPLETED


def test_observation_is_added_to_the_journaled_revision(place: Place) -> None:
    records = place.open()
    seen = owned(phase=Phase.RUNNING)
    records.begin(a_run()).outcome(done(job=seen.job.id), DECLARED)
    records.remember(SCOPE, [seen], NOW)
    (revision,) = records.revisions(SCOPE, "a")
    assert (revision.declared, revision.phase) == (DECLARED, Phase.RUNNING)


def test_journaled_update_keeps_the_observed_phase(place: Place) -> None:
    records = place.open()
    seen = owned(phase=Phase.RUNNING)
    records.remember(SCOPE, [seen], NOW)
    records.begin(a_run()).outcome(done(an_action("a", Action.UPDATE), seen.job.id), DECLARED)
    (revision,) = records.revisions(SCOPE, "a")
    assert (revision.phase, revision.seen_at_s) == (Phase.RUNNING, NOW)
    assert revision.phases == (("Running", NOW),)


@pytest.mark.parametrize("odd", ["nul \0 byte", "half a pair \ud800"])
def test_odd_values_of_the_service_are_recorded(place: Place, odd: str) -> None:
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


def test_another_job_of_the_same_revision_has_no_earlier_phases(place: Place) -> None:
    records = place.open()
    records.remember(SCOPE, [owned(phase=Phase.FAILED, job_id="first")], NOW)
    records.begin(a_run()).outcome(done(job="second"), DECLARED)
    (revision,) = records.revisions(SCOPE, "a")
    assert (revision.job, revision.phase, revision.phases) == ("second", None, ())


def test_observation_with_another_digest_has_no_recorded_declaration(place: Place) -> None:
    records = place.open()
    records.begin(a_run()).outcome(done(), DECLARED)
    records.remember(SCOPE, [owned(digest=OTHER_DIGEST)], NOW)
    assert records.revisions(SCOPE, "a")[0].declared is None


# --- a crash between the call and its outcome


def test_declaration_survives_a_crash_after_the_call(place: Place) -> None:
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
def test_journal_line_declares_its_own_revision_only(place: Place, what: str, then: object) -> None:
    records = place.open()
    records.begin(a_run()).before(a_step())
    records.remember(SCOPE, [then], NOW)  # type: ignore[list-item]
    (past,) = records.memory(SCOPE).by_key.values()
    assert past[0].declared is None


def test_journal_line_declares_in_its_own_scope_only(place: Place) -> None:
    records = place.open()
    records.begin(a_run(ELSEWHERE)).before(a_step())
    records.remember(SCOPE, [owned()], NOW)
    assert records.revisions(SCOPE, "a")[0].declared is None


@pytest.mark.parametrize(("is_certain", "declared"), [(True, None), (False, DECLARED)])
def test_call_that_certainly_failed_has_no_recorded_declaration(
    place: Place, is_certain: bool, declared: object
) -> None:
    records = place.open()
    journal = records.begin(a_run())
    journal.after(journal.before(a_step()), StepEnd(ok=False, is_certain=is_certain))
    records.remember(SCOPE, [owned()], NOW)
    assert records.revisions(SCOPE, "a")[0].declared == declared


def test_marker_update_survives_a_crash_after_the_call(place: Place) -> None:
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


def test_memory_names_other_targets_of_the_stack(place: Place) -> None:
    records = place.open()
    records.remember(ELSEWHERE, [owned()], NOW)
    records.remember(OTHER_STACK, [owned()], NOW)
    records.begin(a_run(SCOPE))
    memory = records.memory(SCOPE)
    assert not memory.knows_stack
    assert memory.elsewhere == ("other.example, project p2, workspace 0",)


def test_job_observed_under_another_key_keeps_its_history(place: Place) -> None:
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


def test_key_rename_moves_the_history_of_the_job(place: Place) -> None:
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


def test_failed_key_rename_moves_no_history(place: Place) -> None:
    records = place.open()
    journal = records.begin(a_run())
    journal.outcome(done(an_action("old"), "job-a"), DECLARED)
    journal.outcome(replace(_renamed("job-a"), status=Status.FAILED), None)
    assert list(records.memory(SCOPE).by_key) == ["old"]


def test_key_rename_leaves_other_scopes_and_jobs_alone(place: Place) -> None:
    records = place.open()
    for scope, job in ((SCOPE, "another"), (ELSEWHERE, "job-a")):
        records.begin(a_run(scope)).outcome(done(an_action("old"), job), DECLARED)
    records.begin(a_run()).outcome(_renamed("job-a"), None)
    assert {key: past[0].job for key, past in records.memory(SCOPE).by_key.items()} == {
        "old": "another",
        "new": "job-a",
    }
    assert list(records.memory(ELSEWHERE).by_key) == ["old"]


def test_job_recorded_under_both_keys_is_merged(place: Place) -> None:
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


def test_thousands_of_new_revisions_get_their_journaled_declarations(place: Place) -> None:
    records = place.open()
    journal = records.begin(a_run())
    journal.before(a_step(an_action("k1999")))
    records.remember(SCOPE, [owned(f"k{number}") for number in range(2000)], NOW)
    by_key = records.memory(SCOPE).by_key
    assert len(by_key) == 2000
    assert by_key["k1999"][0].declared == DECLARED


# --- tidying up


def _ended_run(records: Records, at_s: float) -> None:
    journal = records.begin(a_run(at_s=at_s))
    journal.before(a_step())
    journal.end(RunEnd(at_s + 1, "complete", {}, (Outcome(an_action(), Status.FAILED),)))


def test_prune_deletes_runs_ended_before_with_their_lines(place: Place) -> None:
    records = place.open()
    for hours in (3, 2, 1):
        _ended_run(records, NOW - hours * HOUR)
    assert records.prunable(SCOPE, NOW - 1.5 * HOUR) == Prunable(runs=2, revisions=0)
    assert records.prune(SCOPE, NOW - 1.5 * HOUR) == 2
    (run,) = records.runs(SCOPE)
    assert (run.at_s, len(run.steps), len(run.actions)) == (NOW - HOUR, 1, 1)
    assert records.prune(ELSEWHERE, NOW) == 0
    assert not records.prunable(ELSEWHERE, NOW)


def test_prune_deletes_an_interrupted_run_only_after_its_last_heartbeat(place: Place) -> None:
    records = place.open()
    records.begin(a_run(at_s=NOW - 2 * HOUR))
    assert not records.prunable(SCOPE, NOW)
    assert records.prune(SCOPE, NOW) == 0
    place.move_to(NOW + HOUR)
    assert not records.prunable(SCOPE, NOW), "it was alive later than that"
    assert records.prunable(SCOPE, NOW + HOUR).runs == 1
    assert records.prune(SCOPE, NOW + HOUR) == 1


def test_prune_deletes_old_revisions_except_newest_and_active_ones(place: Place) -> None:
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


def test_counting_prunable_records_reads_no_run(place: Place) -> None:
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
def test_release_is_recorded_before_the_call_and_undone_by_a_refusal_only(
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


def test_observed_marker_after_a_release_undoes_the_release(place: Place) -> None:
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


def test_readopted_job_is_a_separate_revision(place: Place) -> None:
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


def test_declaration_of_an_adopted_job_survives_a_crash(place: Place) -> None:
    records = place.open()
    adopted = an_action("a", Action.UPDATE).model_copy(update={"reason": Reason.ADOPTED})
    seen = owned(phase=Phase.RUNNING)
    records.begin(a_run()).before(Step(adopted, Call.UPDATE, seen.job.id, DECLARED))
    records.remember(SCOPE, [seen], NOW)
    assert records.revisions(SCOPE, "a")[0].declared == DECLARED


def test_history_of_given_jobs_is_copied_to_another_scope_once(place: Place) -> None:
    records = place.open()
    one, other = owned(phase=Phase.COMPLETED), owned("b", phase=Phase.COMPLETED)
    records.remember(SCOPE, [one, other], NOW)
    assert records.take_over(OTHER_STACK, SCOPE, [one.job.id]) == 1
    assert records.take_over(OTHER_STACK, SCOPE, [one.job.id]) == 0
    assert records.memory(OTHER_STACK).by_key == {"a": records.memory(SCOPE).by_key["a"]}
    assert records.take_over(SCOPE, ELSEWHERE, [one.job.id]) == 0


@pytest.mark.parametrize(("at_s", "phase"), [(NOW + 1, "Completed"), (NOW - 1, "Running")])
def test_history_that_is_taken_over_replaces_an_older_look_at_the_same_job(
    place: Place, at_s: float, phase: str
) -> None:
    records = place.open()
    job = owned(phase=Phase.RUNNING)
    records.remember(SCOPE, [job], NOW)
    records.remember(OTHER_STACK, [owned(phase=Phase.COMPLETED)], at_s)
    is_later = at_s > NOW
    assert records.take_over(SCOPE, OTHER_STACK, [job.job.id]) == is_later
    assert [past.phase_text for past in records.revisions(SCOPE, "a")] == [phase]
