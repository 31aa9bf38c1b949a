"""A history over time: when a revision begins and ends, and its marks."""

from __future__ import annotations

from typing import Any

import pytest

from reconciler.core.past import PastAction, PastRevision, PastRun, PastStep
from reconciler.core.record import HistorySnapshot
from reconciler.core.stack import Declared
from reconciler.decide.history import (
    Bar,
    HistoryReport,
    Lane,
    MarkKind,
    Timeline,
    make_timeline,
    newest_revisions,
)
from tests.builders import HOUR, NOW, STACK, TARGET


def a_revision(number: int = 1, key: str = "a", **more: Any) -> PastRevision:
    """A revision created an hour ago, queued for a minute, run for ten."""
    name = key if number == 1 else f"{key}-r{number}"
    times = {"created_at_s": NOW - HOUR, "started_at_s": NOW - HOUR + 60, "duration_s": 600.0}
    return PastRevision(key, number, name, f"id-{name}", "a1", **{"phase_text": "Completed", **times, **more})


def a_run(number: int = 1, at_s: float = NOW - HOUR, **more: Any) -> PastRun:
    about = {"who": "alice", "where": "there", "command": "apply", "plan_digest": ""}
    ends = {"ended_at_s": at_s + 5, "result": "complete"}
    return PastRun(**{"id": number, "kind": "apply", "at_s": at_s, **about, **ends, **more})


def a_step(call: str, name: str = "a", at_s: float = NOW - HOUR, **more: Any) -> PastStep:
    return PastStep("a", call, call, name, f"id-{name}", at_s, **{"ended_at_s": at_s + 1, "ok": True, **more})


def laid_out(*revisions: PastRevision, runs: tuple[PastRun, ...] = (), key: str | None = None) -> Timeline:
    """Lay out revisions and runs given oldest first; a store has them newest first."""
    return make_timeline(HistoryReport(STACK, TARGET, "", "0.1.0", NOW, key, runs[::-1], revisions[::-1]))


def lane_of(*revisions: PastRevision, runs: tuple[PastRun, ...] = ()) -> Lane:
    (lane,) = laid_out(*revisions, runs=runs).lanes
    return lane


def bar_of(one: PastRevision, *runs: PastRun) -> Bar:
    (bar,) = lane_of(one, runs=runs).bars
    return bar


def marked(*revisions: PastRevision, runs: tuple[PastRun, ...] = ()) -> list[tuple[MarkKind, float]]:
    return [(mark.kind, mark.at_s) for mark in lane_of(*revisions, runs=runs).marks]


# ── duration ─────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("more", "end_s"),
    [
        ({}, NOW - HOUR + 660),
        ({"phase_text": "Running"}, NOW),
        ({"phase_text": "Pending", "started_at_s": None, "duration_s": None}, NOW),
        ({"phase_text": "Running", "released_at_s": NOW - 60}, NOW - 60),
        ({"duration_s": None, "phases": (("Running", NOW - 50.0), ("Completed", NOW - 40.0))}, NOW - 40),
        ({"duration_s": None}, NOW - HOUR),
        ({"duration_s": 1e300}, NOW),
    ],
)
def test_bar_ends_at_the_last_known_time(more: dict[str, Any], end_s: float) -> None:
    bar = bar_of(a_revision(**more))
    assert (bar.begin_s, bar.end_s) == (NOW - HOUR, end_s)


def test_last_seen_active_revision_ends_no_later_than_the_next_begins() -> None:
    old, new = lane_of(a_revision(phase_text="Running"), a_revision(2, created_at_s=NOW - 10)).bars
    assert (old.end_s, new.begin_s) == (NOW - 10, NOW - 10)


@pytest.mark.parametrize(
    ("more", "begin_s"),
    [
        ({"phases": (("Running", NOW - 90.0), ("Completed", NOW - 40.0)), "seen_at_s": NOW - 10}, NOW - 90),
        ({"seen_at_s": NOW - 10}, NOW - 10),
        ({"seen_at_s": NOW + 10}, NOW),
        ({"created_at_s": -5.0}, 0.0),
        ({}, NOW),
    ],
)
def test_revision_without_a_creation_time_begins_when_first_seen(
    more: dict[str, Any], begin_s: float
) -> None:
    bar = bar_of(a_revision(**{"created_at_s": None, "started_at_s": None, "duration_s": None, **more}))
    assert bar.begin_s == begin_s


def test_unseen_revision_begins_with_the_call_that_created_it() -> None:
    run = a_run(7, steps=(a_step("create", at_s=NOW - 20),))
    bar = bar_of(a_revision(created_at_s=None, started_at_s=None, duration_s=None, phase_text=""), run)
    assert (bar.begin_s, bar.end_s) == (NOW - 20, NOW)


# ── marks ────────────────────────────────────────────────────────────────────────────────────────

ODD_STOP = Declared({"spec": {"auto_stop": {"duration": "x"}}})
STOPS_ITSELF = Declared({"spec": {"auto_stop": {"time_unit": "HOURS", "duration": "2"}}})


@pytest.mark.parametrize(
    ("more", "ok", "is_outside"),
    [
        ({}, False, True),
        ({"stopped": True}, False, False),
        # Also before our note on it was observed; a failed call ended nothing.
        ({}, True, False),
        ({}, None, False),
        ({"declared": STOPS_ITSELF, "duration_s": 2 * HOUR - 299}, False, False),
        ({"declared": STOPS_ITSELF, "duration_s": 2 * HOUR - 301}, False, True),
        ({"declared": Declared({"spec": ["raw"]})}, False, True),
        ({"declared": ODD_STOP}, False, True),
    ],
)
def test_job_terminated_outside_is_marked_at_its_end(
    more: dict[str, Any], ok: bool | None, is_outside: bool
) -> None:
    one, run = a_revision(phase_text="Terminated", **more), a_run(steps=(a_step("terminate", ok=ok),))
    expected = [(MarkKind.OUTSIDE, bar_of(one).end_s)] if is_outside else []
    assert marked(one, runs=(run,)) == expected


def done(action: str, reason: str, status: str = "done", **more: Any) -> PastAction:
    return PastAction("a", action, reason, status, **more)


@pytest.mark.parametrize(
    ("action", "kind"),
    [
        (done("update", "mutable_changed"), MarkKind.APPLY),
        (done("update", "adopted"), MarkKind.APPLY),
        (done("terminate", "not_in_manifest"), MarkKind.APPLY),
        (done("conflict", "name_taken", "skipped"), MarkKind.OUTSIDE),
        (done("create", "not_found", "failed"), MarkKind.FAILED),
        (done("replace", "immutable_changed", "timed_out"), MarkKind.FAILED),
        (done("create", "not_found", "unknown"), MarkKind.FAILED),
        (done("create", "not_found"), None),
        (done("replace", "immutable_changed"), None),
        (done("defer", "needs_pending", "skipped"), None),
        (done("blocked", "protected", "skipped"), None),
        (done("create", "not_found", "interrupted"), None),
        # of a former version
        (done("accept", "failed", "accepted"), None),
    ],
)
def test_outcome_has_its_mark(action: PastAction, kind: MarkKind | None) -> None:
    run = a_run(steps=(a_step("update", at_s=NOW - 30),), actions=(action,))
    expected = [] if kind is None else [(kind, NOW - 29)]
    assert marked(a_revision(), runs=(run,)) == expected


@pytest.mark.parametrize(
    ("status", "kind"),
    [("new", MarkKind.OUTSIDE), ("changed", MarkKind.OUTSIDE), ("gone", MarkKind.GONE)],
)
def test_drift_mark_names_its_class(status: str, kind: MarkKind) -> None:
    run = a_run(kind="drift", actions=(done("drift", "modified", status, detail="priority 1 -> 3"),))
    (mark,) = lane_of(a_revision(), runs=(run,)).marks
    assert (mark.kind, mark.at_s, mark.text) == (kind, NOW - HOUR + 5, f"modified {status}: priority 1 -> 3")


def test_recurring_finding_is_marked_once_until_settled() -> None:
    taken = done("conflict", "name_taken", "skipped", detail="by id-9")
    actions = [taken, taken, done("create", "not_found"), taken]
    runs = tuple(a_run(n, NOW - 1000 + n, actions=(action,)) for n, action in enumerate(actions))
    assert [mark.at_s for mark in lane_of(a_revision(), runs=runs).marks] == [NOW - 995, NOW - 992]


def test_failure_says_what_failed_and_with_which_code() -> None:
    failed = done("create", "not_found", "failed", detail="sold out", code="ModelArts.2815")
    (mark,) = lane_of(a_revision(), runs=(a_run(actions=(failed,)),)).marks
    assert mark.text == "create failed: sold out (ModelArts.2815)"


def test_restart_by_the_service_is_marked_at_its_observation() -> None:
    times = {"Running": 90, "Completed": 80, "Pending": 70, "Failed": 60}
    phases = tuple((phase, NOW - ago) for phase, ago in times.items())
    assert marked(a_revision(phase_text="Failed", phases=phases)) == [(MarkKind.OUTSIDE, NOW - 70)]


# ── view ─────────────────────────────────────────────────────────────────────────────────────────


def test_lanes_are_sorted_by_key_and_one_has_no_revision_yet() -> None:
    run = a_run(actions=(PastAction("c", "create", "not_found", "failed"),))
    timeline = laid_out(a_revision(key="b"), a_revision(key="a"), runs=(run,))
    assert [(lane.key, len(lane.bars), len(lane.marks)) for lane in timeline.lanes] == [
        *(("a", 1, 0), ("b", 1, 0), ("c", 0, 1))
    ]
    assert [lane.key for lane in laid_out(key="a").lanes] == ["a"]


def test_period_is_from_the_first_sign_to_now() -> None:
    assert laid_out(a_revision(), runs=(a_run(at_s=NOW - 2 * HOUR),)).begin_s == NOW - 2 * HOUR
    assert (laid_out().begin_s, laid_out().lanes) == (NOW, ())


def test_newest_revisions_are_sorted_by_creation_with_unknown_ones_first() -> None:
    of_a = a_revision(1, created_at_s=NOW), a_revision(2, created_at_s=None)
    memory = HistorySnapshot({"a": of_a, "b": (a_revision(1, "b", created_at_s=NOW + 1),)})
    assert [(one.key, one.number) for one in newest_revisions(memory.revisions, 2)] == [("a", 2), ("b", 1)]
    assert len(newest_revisions(memory.revisions, 9)) == 3
