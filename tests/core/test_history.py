"""A history over time: how a revision is drawn, which lie side by side, what is marked, and what differs."""

from __future__ import annotations

from typing import Any

import pytest

from reconciler.core.record import HistorySnapshot, PastAction, PastRevision, PastRun, PastStep
from reconciler.core.stack import Declared
from reconciler.decide.history import (
    Bar,
    BarState,
    HistoryExcerpt,
    Lane,
    MarkKind,
    Timeline,
    changes_of,
    make_timeline,
    newest_revisions,
)
from tests.builders import HOUR, NOW, STACK, TARGET


def a_revision(number: int = 1, key: str = "a", **more: Any) -> PastRevision:
    """Created an hour before now, queued for a minute, and ran for ten."""
    name = key if number == 1 else f"{key}-r{number}"
    times = {"created_at_s": NOW - HOUR, "started_at_s": NOW - HOUR + 60, "duration_s": 600.0}
    return PastRevision(key, number, name, f"id-{name}", "a1", **{"phase_text": "Completed", **times, **more})


def a_run(number: int = 1, at_s: float = NOW - HOUR, **more: Any) -> PastRun:
    about = {"who": "alice", "where": "there", "command": "apply", "commit": "", "plan_digest": ""}
    ends = {"ended_at_s": at_s + 5, "result": "complete"}
    return PastRun(**{"id": number, "kind": "apply", "at_s": at_s, **about, **ends, **more})


def a_step(call: str, name: str = "a", at_s: float = NOW - HOUR, **more: Any) -> PastStep:
    return PastStep("a", call, call, name, f"id-{name}", at_s, **{"ended_at_s": at_s + 1, "ok": True, **more})


def laid_out(*revisions: PastRevision, runs: tuple[PastRun, ...] = (), key: str | None = None) -> Timeline:
    """Both are given oldest first, and handed on newest first, as a store has them."""
    shown = HistoryExcerpt(key, runs[::-1], revisions[::-1])
    return make_timeline(STACK, TARGET, shown, version="0.1.0", at_s=NOW)


def lane_of(*revisions: PastRevision, runs: tuple[PastRun, ...] = ()) -> Lane:
    (lane,) = laid_out(*revisions, runs=runs).lanes
    return lane


def bar_of(one: PastRevision, *runs: PastRun) -> Bar:
    (bar,) = lane_of(one, runs=runs).bars
    return bar


def tracks(lane: Lane) -> int:
    """How many revisions at most are side by side."""
    return 1 + max(bar.track for bar in lane.bars)


def marked(*revisions: PastRevision, runs: tuple[PastRun, ...] = ()) -> list[tuple[MarkKind, float]]:
    return [(mark.kind, mark.at_s) for mark in lane_of(*revisions, runs=runs).marks]


# ── how it is drawn ────────────────────────────────────────────────────────────────────────────────

ODD_STOP = Declared({"spec": {"auto_stop": {"duration": "x"}}})
STOPS_ITSELF = Declared({"spec": {"auto_stop": {"time_unit": "HOURS", "duration": "2"}}})


@pytest.mark.parametrize(
    ("phase", "more", "state"),
    [
        ("", {}, BarState.QUEUED),
        ("Creating", {}, BarState.QUEUED),
        ("等待中", {}, BarState.QUEUED),
        ("Running", {}, BarState.RUNNING),
        ("Terminating", {}, BarState.TERMINATING),
        ("Completed", {}, BarState.COMPLETED),
        ("Failed", {}, BarState.FAILED),
        ("Abnormal", {}, BarState.ABNORMAL),
        ("Terminated", {}, BarState.TERMINATED_OUTSIDE),
        ("Terminated", {"stopped": True}, BarState.TERMINATED),
        ("Terminated", {"declared": STOPS_ITSELF, "duration_s": 2 * HOUR - 299}, BarState.TERMINATED),
        ("Terminated", {"declared": STOPS_ITSELF, "duration_s": 2 * HOUR - 301}, BarState.TERMINATED_OUTSIDE),
        ("Terminated", {"declared": Declared({"spec": ["raw"]})}, BarState.TERMINATED_OUTSIDE),
        ("Terminated", {"declared": ODD_STOP}, BarState.TERMINATED_OUTSIDE),
        ("Running", {"released_at_s": NOW}, BarState.RELEASED),
        ("Completed", {"released_at_s": NOW}, BarState.COMPLETED),
        ("Hibernating", {}, BarState.UNKNOWN),
    ],
)
def test_state_of_a_revision(phase: str, more: dict[str, Any], state: BarState) -> None:
    assert bar_of(a_revision(phase_text=phase, **more)).state is state


@pytest.mark.parametrize(
    ("ok", "state"), [(True, "terminated"), (None, "terminated"), (False, "terminated elsewhere")]
)
def test_job_that_we_ended_was_not_terminated_elsewhere(ok: bool | None, state: str) -> None:
    """Also where no look has shown our note on it yet; a call that failed ended nothing."""
    run = a_run(steps=(a_step("terminate", ok=ok),))
    assert bar_of(a_revision(phase_text="Terminated"), run).state == state


def test_bar_lasts_from_the_creation_to_the_end_with_the_queue_apart() -> None:
    bar = bar_of(a_revision())
    assert (bar.begin_s, bar.started_s, bar.end_s) == (NOW - HOUR, NOW - HOUR + 60, NOW - HOUR + 660)
    assert not bar.is_open


@pytest.mark.parametrize(
    ("more", "end_s"),
    [
        ({"phase_text": "Running"}, NOW),
        ({"phase_text": "Pending", "started_at_s": None, "duration_s": None}, NOW),
        ({"phase_text": "Running", "released_at_s": NOW - 60}, NOW - 60),
        ({"duration_s": None, "phases": (("Running", NOW - 50.0), ("Completed", NOW - 40.0))}, NOW - 40),
        ({"duration_s": None}, NOW - HOUR),
    ],
)
def test_bar_without_a_known_end_is_open(more: dict[str, Any], end_s: float) -> None:
    bar = bar_of(a_revision(**more))
    assert bar.is_open
    assert bar.end_s == end_s


def test_revision_that_was_active_when_seen_last_ends_at_the_latest_when_the_next_begins() -> None:
    old, new = lane_of(a_revision(phase_text="Running"), a_revision(2, created_at_s=NOW - 10)).bars
    assert (old.end_s, old.is_open, old.track, new.track) == (NOW - 10, True, 0, 0)


def test_unseen_revision_begins_with_the_call_that_created_it() -> None:
    run = a_run(7, steps=(a_step("create", at_s=NOW - 20),))
    bar = bar_of(a_revision(created_at_s=None, started_at_s=None, duration_s=None, phase_text=""), run)
    assert (bar.begin_s, bar.end_s, bar.run) == (NOW - 20, NOW, 7)
    alone = bar_of(a_revision(created_at_s=None, started_at_s=None, duration_s=None, phase_text=""))
    assert (alone.begin_s, alone.run) == (NOW, None)
    assert (bar.is_found, alone.is_found) == (False, True)


@pytest.mark.parametrize(
    ("more", "begin_s"),
    [
        ({"phases": (("Running", NOW - 90.0), ("Completed", NOW - 40.0)), "seen_at_s": NOW - 10}, NOW - 90),
        ({"seen_at_s": NOW - 10}, NOW - 10),
        ({"seen_at_s": NOW + 10}, NOW),
    ],
)
def test_revision_whose_creation_is_not_known_begins_when_it_was_seen_first(
    more: dict[str, Any], begin_s: float
) -> None:
    bar = bar_of(a_revision(created_at_s=None, started_at_s=None, duration_s=None, **more))
    assert (bar.begin_s, bar.is_found) == (begin_s, True)


def test_revisions_of_one_time_are_side_by_side() -> None:
    first = a_revision(1, duration_s=3000.0)
    second = a_revision(2, created_at_s=NOW - HOUR + 600)
    third = a_revision(3, created_at_s=NOW - 60, phase_text="Running")
    lane = lane_of(first, second, third)
    assert [bar.track for bar in lane.bars] == [0, 1, 0]
    assert tracks(lane) == 2


def test_revision_that_follows_within_a_second_is_not_beside_the_one_before() -> None:
    first, second = a_revision(), a_revision(2, created_at_s=NOW - HOUR + 659.5)
    assert tracks(lane_of(first, second)) == 1


def test_times_that_no_calendar_has_are_its_ends() -> None:
    timeline = laid_out(a_revision(created_at_s=-5.0, started_at_s=1e300, duration_s=1e300))
    (bar,) = timeline.lanes[0].bars
    assert (bar.begin_s, bar.end_s) == (0.0, 253_402_300_799.0)
    assert (timeline.begin_s, timeline.end_s) == (0.0, 253_402_300_799.0)


# ── what is marked ─────────────────────────────────────────────────────────────────────────────────


def done(action: str, reason: str, status: str = "done", **more: Any) -> PastAction:
    return PastAction("a", action, reason, status, **more)


@pytest.mark.parametrize(
    ("action", "kind"),
    [
        (done("update", "mutable_changed"), MarkKind.UPDATED),
        (done("update", "renamed"), MarkKind.UPDATED),
        (done("update", "adopted"), MarkKind.ADOPTED),
        (done("update", "marker_restored"), MarkKind.MARKER_RESTORED),
        (done("terminate", "not_in_manifest"), MarkKind.TERMINATED),
        (done("conflict", "name_taken", "skipped"), MarkKind.NAME_TAKEN),
        (done("create", "not_found", "failed"), MarkKind.FAILED),
        (done("replace", "immutable_changed", "timed_out"), MarkKind.FAILED),
        (done("create", "not_found", "unknown"), MarkKind.FAILED),
        (done("drift", "modified", "new"), MarkKind.DRIFT),
        (done("drift", "modified", "changed"), MarkKind.DRIFT),
        (done("drift", "modified", "gone"), MarkKind.DRIFT_GONE),
        (done("accept", "failed", "accepted"), MarkKind.DRIFT_ACCEPTED),
        (done("accept", "failed", "removed"), None),
        (done("drift", "failed", "new"), None),
        (done("drift", "unknown", "new"), None),
        (done("create", "not_found"), None),
        (done("replace", "immutable_changed"), None),
        (done("update", "released"), None),
        (done("defer", "needs_pending", "skipped"), None),
        (done("blocked", "protected", "skipped"), None),
        (done("create", "not_found", "interrupted"), None),
    ],
)
def test_mark_of_an_outcome(action: PastAction, kind: MarkKind | None) -> None:
    run = a_run(steps=(a_step("update", at_s=NOW - 30),), actions=(action,))
    expected = [] if kind is None else [(kind, NOW - 29)]
    assert marked(a_revision(), runs=(run,)) == expected


def test_mark_of_an_outcome_without_a_call_is_at_the_end_of_its_run() -> None:
    run = a_run(at_s=NOW - 100, actions=(done("conflict", "name_taken", "skipped"),))
    assert marked(a_revision(), runs=(run,)) == [(MarkKind.NAME_TAKEN, NOW - 95)]


def test_what_one_run_after_another_finds_is_marked_once_until_it_was_settled() -> None:
    taken = done("conflict", "name_taken", "skipped", detail="by id-9")
    actions = [taken, taken, done("create", "not_found"), taken]
    runs = tuple(a_run(n, NOW - 1000 + n, actions=(action,)) for n, action in enumerate(actions))
    assert [mark.run for mark in lane_of(a_revision(), runs=runs).marks] == [0, 3]


def test_failure_says_what_failed_and_with_which_code() -> None:
    failed = done("create", "not_found", "failed", detail="sold out", code="ModelArts.2815")
    (mark,) = lane_of(a_revision(), runs=(a_run(actions=(failed,)),)).marks
    assert mark.text == "create failed: sold out (ModelArts.2815)"


def test_termination_elsewhere_is_marked_at_the_end_of_the_revision() -> None:
    assert marked(a_revision(phase_text="Terminated")) == [(MarkKind.TERMINATED_OUTSIDE, NOW - HOUR + 660)]


def test_release_is_marked_by_the_record_of_the_revision() -> None:
    assert marked(a_revision(released_at_s=NOW - 5)) == [(MarkKind.RELEASED, NOW - 5)]


def test_restart_by_the_service_is_marked_when_it_was_seen() -> None:
    times = {"Running": 90, "Completed": 80, "Pending": 70, "Failed": 60}
    phases = tuple((phase, NOW - ago) for phase, ago in times.items())
    assert marked(a_revision(phase_text="Failed", phases=phases)) == [(MarkKind.RESTARTED, NOW - 70)]


def test_marks_of_what_we_did_are_not_outside() -> None:
    ours = {"updated", "terminated by us", "action failed", "drift gone", "drift accepted"}
    assert {kind.value for kind in MarkKind if not kind.is_outside} == ours


def test_drift_is_marked_with_its_class() -> None:
    run = a_run(kind="drift", actions=(done("drift", "modified", "new", detail="priority 1 -> 3"),))
    assert [mark.text for mark in lane_of(a_revision(), runs=(run,)).marks] == ["modified: priority 1 -> 3"]


# ── what is in view ────────────────────────────────────────────────────────────────────────────────


def test_lanes_are_sorted_by_key_and_one_has_no_revision_yet() -> None:
    run = a_run(actions=(PastAction("c", "create", "not_found", "failed"),))
    timeline = laid_out(a_revision(key="b"), a_revision(key="a"), runs=(run,))
    assert [(lane.key, len(lane.bars), len(lane.marks)) for lane in timeline.lanes] == [
        *(("a", 1, 0), ("b", 1, 0), ("c", 0, 1))
    ]


def test_period_is_from_the_first_sign_to_now() -> None:
    timeline = laid_out(a_revision(), runs=(a_run(at_s=NOW - 2 * HOUR),))
    assert (timeline.begin_s, timeline.end_s) == (NOW - 2 * HOUR, NOW)
    nothing = laid_out()
    assert (nothing.begin_s, nothing.end_s, nothing.lanes) == (NOW, NOW, ())


def test_key_without_records_has_an_empty_lane() -> None:
    assert [lane.key for lane in laid_out(key="a").lanes] == ["a"]


# ── the document ───────────────────────────────────────────────────────────────────────────────────


def test_newest_revisions_are_sorted_by_creation_with_unknown_ones_first() -> None:
    of_a = a_revision(1, created_at_s=NOW), a_revision(2, created_at_s=None)
    memory = HistorySnapshot({"a": of_a, "b": (a_revision(1, "b", created_at_s=NOW + 1),)})
    assert [(one.key, one.number) for one in newest_revisions(memory, 2)] == [("a", 2), ("b", 1)]
    assert len(newest_revisions(memory, 9)) == 3


def test_changes_of_a_declaration_say_which_force_a_new_job() -> None:
    before = Declared({"algorithm": {"parameters": {"lr": {"value": "1"}}}}, {}, "one", protect=False)
    mutable = {"spec": {"schedule_policy": {"priority": 3}}}
    after = Declared({"algorithm": {"parameters": {"lr": {"value": "2"}}}}, mutable, "two")
    found = [(c.path, c.before, c.after, c.forces_new_job) for c in changes_of(before, after)]
    assert found == [
        ("algorithm.parameters.lr", "1", "2", True),
        ("description", "one", "two", False),
        ("spec.schedule_policy.priority", None, 3, False),
    ]
    assert changes_of(after, after) == ()
