"""The history: each revision, its outcome, and what remains after pruning."""

from __future__ import annotations

import pytest

from reconciler.core.ownership import Revision
from reconciler.core.past import Call, PastRevision
from reconciler.core.phase import Phase
from reconciler.core.record import Declared, HistorySnapshot
from reconciler.decide.outcome import Outcome, Status, Step, StepEnd
from reconciler.decide.plan import Action, Reason
from reconciler.records.journal import StoredJournal
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
    statements,
)


def the_revision(records: Records, key: str = "a") -> PastRevision:
    [revision] = records.revisions(SCOPE, key)
    return revision


def numbers(memory: HistorySnapshot) -> dict[str, list[int]]:
    return {key: [one.number for one in past] for key, past in memory.by_key.items()}


def test_new_store_has_no_history_of_a_stack(records: Records) -> None:
    memory = records.memory(SCOPE)
    assert memory == HistorySnapshot()
    assert not memory.knows_stack


def test_observation_is_recorded(place: Place) -> None:
    seen = owned("a", phase=Phase.COMPLETED, node_count=4)
    place.open().remember(SCOPE, [seen], NOW)
    [revision] = place.open().memory(SCOPE).by_key["a"]
    job = seen.job
    assert revision == PastRevision(
        "a",
        1,
        "a",
        job.id,
        DIGEST,
        "Completed",
        job.created_at_s,
        job.started_at_s,
        job.duration_s,
        4,
        NOW,
        phases=(("Completed", NOW),),
    )
    assert revision.ended_at_s == job.ended_at_s()


def test_phases_are_recorded_with_the_time_of_their_first_observation(records: Records) -> None:
    looks = ("Creating", "Pending", "Pending", "Running", "Pending", "Running", "Failed")
    for minute, phase in enumerate(looks):
        records.remember(SCOPE, [owned(phase=Phase(phase))], NOW + minute)
    assert [(phase, at_s - NOW) for phase, at_s in the_revision(records).phases] == [
        ("Creating", 0),
        ("Pending", 1),
        ("Running", 3),
        ("Pending", 4),
        ("Running", 5),
        ("Failed", 6),
    ]


def test_thousand_unchanged_revisions_need_one_select_and_no_write(place: Place) -> None:
    seen = [owned(f"k{number}", phase=Phase.COMPLETED) for number in range(1000)]
    place.open().remember(SCOPE, seen, NOW)
    records = place.open()
    with statements(records) as sent:
        records.remember(SCOPE, seen, NOW + 60)
    assert [word for word in sent if word != "BEGIN"] == ["SELECT"]


def test_longer_duration_of_an_active_job_is_not_written_but_its_end_is(records: Records) -> None:
    records.remember(SCOPE, [owned(phase=Phase.RUNNING, ran_s=60, ended_s_ago=0)], NOW)
    with statements(records) as sent:
        records.remember(SCOPE, [owned(phase=Phase.RUNNING, ran_s=120, ended_s_ago=-60)], NOW + 60)
    assert "INSERT" not in sent
    records.remember(SCOPE, [owned(phase=Phase.COMPLETED, ran_s=180, ended_s_ago=-120)], NOW + 120)
    assert the_revision(records).duration_s == 180


@pytest.mark.parametrize(
    ("first", "at_s"),
    [
        ((Phase.COMPLETED, Phase.RUNNING), NOW + 10),  # the second look came late
        ((Phase.RUNNING, Phase.COMPLETED), NOW + 1000 * HOUR),  # the first had a wrong clock
    ],
)
def test_older_observation_is_ignored_unless_the_recorded_one_is_far_in_the_future(
    records: Records, first: tuple[Phase, Phase], at_s: float
) -> None:
    for phase, looked_at_s in zip(first, (at_s, NOW), strict=True):
        records.remember(SCOPE, [owned(phase=phase)], looked_at_s)
    assert the_revision(records).phase is Phase.COMPLETED


@pytest.mark.parametrize("is_seen_first", [True, False])
def test_journal_and_observations_combine_into_one_revision(
    records: Records, journal: StoredJournal, is_seen_first: bool
) -> None:
    seen = owned(phase=Phase.RUNNING)
    if is_seen_first:
        records.remember(SCOPE, [seen], NOW)
        journal.outcome(done(an_action("a", Action.UPDATE), seen.job.id), DECLARED)
    else:
        journal.outcome(done(job=seen.job.id), DECLARED)
        records.remember(SCOPE, [seen], NOW)
    revision = the_revision(records)
    assert (revision.declared, revision.seen_at_s) == (DECLARED, NOW)
    assert (revision.phase, revision.phases) == (Phase.RUNNING, (("Running", NOW),))


@pytest.mark.parametrize("odd", ["nul \0 byte", "half a pair \ud800"])
def test_odd_values_of_the_service_are_recorded(records: Records, journal: StoredJournal, odd: str) -> None:
    for minute in range(2):
        records.remember(SCOPE, [owned(job_id=odd, phase=odd, node_count=10**30)], NOW + minute)
    revision = the_revision(records)
    assert (revision.seen_at_s, len(revision.phases)) == (NOW, 1)
    journal.after(journal.before(a_step()), StepEnd(ok=True, job=odd))
    journal.outcome(done(job=odd), DECLARED)
    assert journal.problem is None


def test_another_job_of_the_same_revision_has_no_earlier_phases(
    records: Records, journal: StoredJournal
) -> None:
    records.remember(SCOPE, [owned(phase=Phase.FAILED, job_id="first")], NOW)
    journal.outcome(done(job="second"), DECLARED)
    revision = the_revision(records)
    assert (revision.job, revision.phase, revision.phases) == ("second", None, ())


def test_observation_with_another_digest_has_no_recorded_declaration(
    records: Records, journal: StoredJournal
) -> None:
    journal.outcome(done(), DECLARED)
    records.remember(SCOPE, [owned(digest=OTHER_DIGEST)], NOW)
    assert the_revision(records).declared is None


# --- a crash between the call and its outcome


@pytest.mark.parametrize(
    ("seen", "declared"),
    [(owned(), DECLARED), (owned("b"), None), (owned("a", 2), None), (owned("a", digest=OTHER_DIGEST), None)],
    ids=["that revision", "another key", "another number", "another digest"],
)
def test_declaration_survives_a_crash_after_the_call_for_its_own_revision_only(
    place: Place, seen: Revision, declared: Declared | None
) -> None:
    place.open().begin(a_run()).before(a_step())
    records = place.open()
    records.remember(SCOPE, [seen], NOW)
    [[revision]] = records.memory(SCOPE).by_key.values()
    assert revision.declared == declared


def test_journal_line_declares_in_its_own_scope_only(records: Records) -> None:
    records.begin(a_run(ELSEWHERE)).before(a_step())
    records.remember(SCOPE, [owned()], NOW)
    assert the_revision(records).declared is None


@pytest.mark.parametrize(("is_certain", "declared"), [(True, None), (False, DECLARED)])
def test_call_that_certainly_failed_has_no_recorded_declaration(
    records: Records, journal: StoredJournal, is_certain: bool, declared: object
) -> None:
    journal.after(journal.before(a_step()), StepEnd(ok=False, is_certain=is_certain))
    records.remember(SCOPE, [owned()], NOW)
    assert the_revision(records).declared == declared


@pytest.mark.parametrize("reason", [Reason.MARKER_CHANGED, Reason.ADOPTED])
def test_declaration_of_an_update_survives_a_crash(
    records: Records, journal: StoredJournal, reason: Reason
) -> None:
    seen = owned(digest=OTHER_DIGEST, phase=Phase.RUNNING)
    action = an_action("a", Action.UPDATE, digest=OTHER_DIGEST).model_copy(update={"reason": reason})
    journal.outcome(done(), None)
    journal.before(Step(action, Call.UPDATE, seen.job.id, DECLARED))
    records.remember(SCOPE, [seen], NOW)
    assert the_revision(records).declared == DECLARED


def test_thousands_of_new_revisions_get_their_journaled_declarations(
    records: Records, journal: StoredJournal
) -> None:
    journal.before(a_step(an_action("k1999")))
    records.remember(SCOPE, [owned(f"k{number}") for number in range(2000)], NOW)
    by_key = records.memory(SCOPE).by_key
    assert len(by_key) == 2000
    assert by_key["k1999"][0].declared == DECLARED


# --- memory


def test_memory_holds_the_revisions_of_each_key_oldest_first(records: Records) -> None:
    records.remember(SCOPE, [owned("b"), *(owned("a", number) for number in (10, 2, 1))], NOW)
    memory = records.memory(SCOPE)
    assert numbers(memory) == {"a": [1, 2, 10], "b": [1]}
    assert memory.by_key["a"][-1].name == "a-r10"
    assert memory.elsewhere == ()


def test_memory_names_other_targets_of_the_stack(records: Records) -> None:
    records.remember(ELSEWHERE, [owned()], NOW)
    records.remember(OTHER_STACK, [owned()], NOW)
    records.begin(a_run(SCOPE))
    memory = records.memory(SCOPE)
    assert not memory.knows_stack
    assert memory.elsewhere == ("other.example, project p2, workspace 0",)


@pytest.mark.parametrize(
    "is_under_both", [False, True], ids=["seen under the new key", "as a rename left it"]
)
def test_job_observed_under_another_key_keeps_its_history(
    records: Records, journal: StoredJournal, is_under_both: bool
) -> None:
    before = owned("old", phase=Phase.RUNNING)
    journal.outcome(done(an_action("old"), before.job.id), DECLARED)
    records.remember(SCOPE, [before], NOW)
    if is_under_both:
        journal.outcome(done(an_action("new", Action.UPDATE), before.job.id), None)
        assert sorted(records.memory(SCOPE).by_key) == ["new", "old"]
    after = owned("new", phase=Phase.COMPLETED, name="old", job_id=before.job.id, id_part=before.job.id[:8])
    records.remember(SCOPE, [after], NOW + 60)
    [[key, [revision]]] = records.memory(SCOPE).by_key.items()
    assert (key, revision.declared) == ("new", DECLARED)
    assert revision.phases == (("Running", NOW), ("Completed", NOW + 60))
    with statements(records) as sent:
        records.remember(SCOPE, [after], NOW + 120)
    assert "INSERT" not in sent


def _renamed(job: str) -> Outcome:
    """Rename the marker of the job of `old` to `new`."""
    before = an_action("old", Action.UPDATE, job=job).before
    action = an_action("new", Action.UPDATE).model_copy(update={"before": before, "formerly": "old"})
    return done(action, job)


def test_key_rename_moves_the_history_of_the_job(records: Records, journal: StoredJournal) -> None:
    seen, other = owned("old", phase=Phase.RUNNING), owned("old", 2, phase=Phase.RUNNING)
    journal.outcome(done(an_action("old"), seen.job.id), DECLARED)
    records.remember(SCOPE, [seen, other], NOW)
    for _ in range(2):
        journal.outcome(_renamed(seen.job.id), None)
        memory = records.memory(SCOPE)
        assert numbers(memory) == {"new": [1], "old": [2]}
        [revision] = memory.by_key["new"]
        assert (revision.declared, revision.phases) == (DECLARED, (("Running", NOW),))
    assert journal.problem is None


def test_failed_key_rename_moves_no_history(records: Records, journal: StoredJournal) -> None:
    journal.outcome(done(an_action("old"), "job-a"), DECLARED)
    journal.outcome(_renamed("job-a")._replace(status=Status.FAILED), None)
    assert list(records.memory(SCOPE).by_key) == ["old"]


def test_key_rename_leaves_other_scopes_and_jobs_alone(records: Records, journal: StoredJournal) -> None:
    for scope, job in ((SCOPE, "another"), (ELSEWHERE, "job-a")):
        records.begin(a_run(scope)).outcome(done(an_action("old"), job), DECLARED)
    journal.outcome(_renamed("job-a"), None)
    assert {key: past[0].job for key, past in records.memory(SCOPE).by_key.items()} == {
        "old": "another",
        "new": "job-a",
    }
    assert list(records.memory(ELSEWHERE).by_key) == ["old"]


def test_renamed_key_keeps_its_aged_out_revisions_with_free_numbers(
    records: Records,
) -> None:
    theirs = [owned("old", number, phase=Phase.COMPLETED) for number in (1, 2, 3)]
    records.remember(SCOPE, [*theirs, owned("new", 3)], NOW)
    records.rename(SCOPE, {"old": "new"}, {theirs[1].job.id})
    assert numbers(records.memory(SCOPE)) == {"new": [1, 3], "old": [2, 3]}


# --- released and taken over


def _release(journal: StoredJournal, job: str, end: StepEnd | None) -> None:
    """Journal the removal of a marker; without an end the process died in the call."""
    released = an_action("a", Action.UPDATE).model_copy(update={"reason": Reason.RELEASED, "after": None})
    line = journal.before(Step(released, Call.UPDATE, job))
    if end is not None:
        journal.after(line, end)


@pytest.fixture
def seen(records: Records) -> Revision:
    one = owned(phase=Phase.RUNNING)
    records.remember(SCOPE, [one], NOW)
    return one


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
    place: Place, seen: Revision, journal: StoredJournal, end: StepEnd | None, is_released: bool
) -> None:
    _release(journal, seen.job.id, end)
    memory = place.open().memory(SCOPE)
    assert (memory.by_key["a"][0].released_at_s is not None) == is_released
    assert memory.knows_stack == (not is_released)


def test_observed_marker_after_a_release_undoes_the_release(
    records: Records, seen: Revision, journal: StoredJournal
) -> None:
    _release(journal, seen.job.id, None)
    released_at_s = the_revision(records).released_at_s
    assert released_at_s is not None
    records.remember(SCOPE, [seen], released_at_s - 1)  # observed earlier, but written late
    assert the_revision(records).released_at_s == released_at_s
    records.remember(SCOPE, [seen], released_at_s + 1)
    assert the_revision(records).released_at_s is None


def test_readopted_job_is_a_separate_revision(
    records: Records, seen: Revision, journal: StoredJournal
) -> None:
    job = seen.job.id
    _release(journal, job, StepEnd(ok=True))
    again = an_action("a", Action.UPDATE, number=2).model_copy(update={"reason": Reason.ADOPTED})
    journal.after(journal.before(Step(again, Call.UPDATE, job)), StepEnd(ok=True, job=job))
    records.remember(SCOPE, [owned(number=2, job_id=job, id_part=job[:8], name="a")], NOW + HOUR)
    revisions = records.revisions(SCOPE, "a")
    assert [(one.number, one.released_at_s is None) for one in revisions] == [(1, False), (2, True)]


def test_history_of_given_jobs_is_copied_to_another_scope_once(records: Records) -> None:
    one, other = owned(phase=Phase.COMPLETED), owned("b", phase=Phase.COMPLETED)
    records.remember(SCOPE, [one, other], NOW)
    assert [records.take_over(OTHER_STACK, SCOPE, [one.job.id]) for _ in range(2)] == [1, 0]
    assert records.memory(OTHER_STACK).by_key == {"a": records.memory(SCOPE).by_key["a"]}
    assert records.take_over(SCOPE, ELSEWHERE, [one.job.id]) == 0


@pytest.mark.parametrize(("at_s", "phase"), [(NOW + 1, "Completed"), (NOW - 1, "Running")])
def test_copied_history_replaces_an_older_observation_of_the_job(
    records: Records, seen: Revision, at_s: float, phase: str
) -> None:
    records.remember(OTHER_STACK, [owned(phase=Phase.COMPLETED)], at_s)
    assert records.take_over(SCOPE, OTHER_STACK, [seen.job.id]) == (at_s > NOW)
    assert the_revision(records).phase_text == phase
