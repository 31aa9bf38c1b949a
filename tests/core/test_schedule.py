"""docs/concepts/schedules.md: when a scheduled time comes, and its effect on a key."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from hashlib import sha256
from itertools import cycle, pairwise
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from reconciler.core.identity import ScheduleMark
from reconciler.core.lifecycle import Schedule, spell_relative
from reconciler.core.observed import ObservedJob
from reconciler.core.phase import Phase
from reconciler.core.stack import DesiredJob
from reconciler.core.values import timestamp
from reconciler.decide.drift import check_key
from reconciler.decide.drift_check import DriftClass
from reconciler.decide.key_state import PlanContext, state_of
from reconciler.decide.plan import Action, Plan, PlannedAction, Reason, without_growing
from reconciler.decide.planner import needs_history
from reconciler.decide.reports import WaitKind, make_status
from reconciler.render import Content, View, render
from reconciler.render.plan import plan_text as render_plan
from tests.builders import HOUR, NOW, STACK, a_job, a_stack, absent, seen
from tests.core.history import a_memory, past
from tests.core.test_decision_table import (
    DONE,
    TD,
    F,
    P,
    R,
    declared_as,
    observed_as,
    plan_for,
    recorded_as,
    rows,
    spelled,
)
from tests.core.worlds import a_look, a_world

# NOW is 2027-01-15T08:00Z: the nightly time was six hours ago.
NIGHTLY: dict[str, Any] = {"schedule": "0 2 * * *"}
OLD: dict[str, Any] = {"algorithm__parameters": {"lr": 0.5}, "lifecycle": NIGHTLY}
BEFORE_IT, AFTER_IT = 7 * HOUR, 5 * HOUR


# --- times


def at(text: str) -> float:
    return datetime.fromisoformat(text).timestamp()


BERLIN, NEW_YORK = "Europe/Berlin", "America/New_York"
ADELAIDE, LORD_HOWE = "Australia/Adelaide", "Australia/Lord_Howe"


@pytest.mark.parametrize(
    ("cron", "zone", "since", "expected"),
    [
        [cell.strip() for cell in line.split("|")]
        # In Berlin 02:00 to 03:00 is missing on 29 March, and is there twice on 25 October; New York changes
        # on 8 March and 1 November; Adelaide is half an hour off, and Lord Howe changes by half an hour.
        for line in """
0 1 * * * | Europe/Berlin | 2026-03-28T12:00Z | 03-29T00:00 03-29T23:00
30 2 * * * | Europe/Berlin | 2026-03-28T12:00Z | 03-29T01:00 03-30T00:30
0,30 2 * * * | Europe/Berlin | 2026-03-28T12:00Z | 03-29T01:00 03-30T00:00 03-30T00:30
30 2,3 * * * | Europe/Berlin | 2026-03-28T12:00Z | 03-29T01:00 03-29T01:30 03-30T00:30 03-30T01:30
30 2 * * * | Europe/Berlin | 2026-10-24T12:00Z | 10-25T00:30 10-26T01:30
0 3 * * * | Europe/Berlin | 2026-10-24T12:00Z | 10-25T02:00 10-26T02:00
30 2 * * * | America/New_York | 2026-03-07T18:00Z | 03-08T07:00 03-09T06:30
30 1 * * * | America/New_York | 2026-10-31T18:00Z | 11-01T05:30 11-02T06:30
30 2 * * * | Australia/Adelaide | 2026-10-03T12:00Z | 10-03T16:30 10-04T16:00
30 2 * * * | Australia/Adelaide | 2026-04-04T12:00Z | 04-04T16:00 04-05T17:00
15 2 * * * | Australia/Lord_Howe | 2026-10-03T12:00Z | 10-03T15:30 10-04T15:15
45 1 * * * | Australia/Lord_Howe | 2026-04-04T12:00Z | 04-04T14:45 04-05T15:15
30 2 * * * | Asia/Kolkata | 2026-03-28T12:00Z | 03-28T21:00 03-29T21:00
30 2 * * * | UTC | 2026-03-28T12:00Z | 03-29T02:30 03-30T02:30
""".strip().splitlines()
    ],
)
def test_daily_time_comes_once_a_day_across_daylight_saving_changes(
    cron: str, zone: str, since: str, expected: str
) -> None:
    schedule, until_s = Schedule(cron, zone), at(since) + 39 * HOUR
    found, time_s = [], schedule.next_after(at(since))
    while time_s is not None and time_s <= until_s:
        found.append(datetime.fromtimestamp(time_s, UTC).strftime("%m-%dT%H:%M"))
        time_s = schedule.next_after(time_s)
    assert found == expected.split()


@pytest.mark.parametrize(
    ("since", "now", "is_due"),
    [(-1, 0, True), (-1, -1, False), (0, 0, False), (0, 1, False), (-90_000, 0, True), (1, -1, False)],
)
def test_time_is_due_after_the_start_and_not_after_now(since: float, now: float, is_due: bool) -> None:
    time_s = at("2026-05-01T02:00Z")
    assert (Schedule("0 2 * * *").due(time_s + since, time_s + now) is not None) is is_due


@pytest.mark.parametrize(
    ("deadline_s", "now", "due"),
    [
        # by default half of the interval to the next time, which is a day
        (None, "05-02T14:00:00", "05-02T02:00"),
        (None, "05-02T14:00:01", None),
        (None, "05-03T01:59:59", None),
        (None, "05-03T02:00:00", "05-03T02:00"),
        (None, "05-31T03:00:00", "05-31T02:00"),
        (60.0, "05-02T02:01:00", "05-02T02:00"),
        (60.0, "05-02T02:01:01", None),
        # the first of several due times is named
        (3 * 86_400.0, "05-05T01:00:00", "05-02T02:00"),
        (3 * 86_400.0, "05-05T02:00:00", "05-02T02:00"),
        (3 * 86_400.0, "05-05T02:00:01", "05-03T02:00"),
    ],
)
def test_time_is_due_until_its_starting_deadline(deadline_s: float | None, now: str, due: str | None) -> None:
    schedule = Schedule("0 2 * * *", starting_deadline_s=deadline_s)
    found = schedule.due(at("2026-05-01T03:00Z"), at(f"2026-{now}Z"))
    assert found == (None if due is None else at(f"2026-{due}Z"))


def test_default_deadline_is_half_the_interval_to_the_next_time() -> None:
    schedule, since_s = Schedule("0 8,10 * * *"), at("2026-05-01T00:00Z")
    assert schedule.start_by(at("2026-05-01T08:00Z")) == at("2026-05-01T09:00Z")
    assert schedule.start_by(at("2026-05-01T10:00Z")) == at("2026-05-01T21:00Z")
    assert schedule.missed(since_s, at("2026-05-01T09:00Z")) is None
    assert schedule.missed(since_s, at("2026-05-01T09:01Z")) == at("2026-05-01T08:00Z")


@pytest.mark.parametrize(
    ("schedule", "text"),
    [
        (Schedule("0 2 * * *", BERLIN), "0 2 * * * Europe/Berlin"),
        (Schedule(" 0  2 * *\t* "), "0 2 * * * UTC"),
        (Schedule("0 2 * * *", starting_deadline_s=60), "0 2 * * * UTC"),
    ],
)
def test_digest_of_a_schedule_covers_fields_and_time_zone(schedule: Schedule, text: str) -> None:
    assert schedule.digest == sha256(text.encode()).hexdigest()[:4]


@pytest.mark.parametrize("at_s", [-1e300, -1.0, 0.0, 2.4e11, 2.5e11, 1e300])
def test_extreme_time_raises_nothing(at_s: float) -> None:
    schedule = Schedule("0 2 * * *", BERLIN)
    schedule.due(at_s, NOW)
    schedule.next_after(at_s)


@pytest.mark.parametrize(
    ("zone", "time", "now", "text"),
    [
        ("UTC", "2026-03-29T02:00Z", None, "2026-03-29T02:00 UTC"),
        (BERLIN, "2026-03-28T01:00Z", None, "2026-03-28T02:00 Europe/Berlin"),
        (BERLIN, "2026-10-25T00:30Z", None, "2026-10-25T02:30+02:00 Europe/Berlin"),
        (BERLIN, "2026-10-25T01:30Z", None, "2026-10-25T02:30+01:00 Europe/Berlin"),
        ("UTC", "2026-11-22T02:00Z", "2026-11-22T01:00Z", "02:00 today"),
        ("UTC", "2026-11-22T02:00Z", "2026-11-21T03:00Z", "02:00 tomorrow"),
        ("UTC", "2026-11-22T02:00Z", "2026-11-19T03:00Z", "02:00 on Sunday"),
        ("UTC", "2026-11-22T02:00Z", "2026-11-15T02:00Z", "02:00 on 2026-11-22"),
        (BERLIN, "2026-11-22T02:00Z", "2026-11-21T22:30Z", "03:00 tomorrow Europe/Berlin"),
        (BERLIN, "2026-11-22T02:00Z", "2026-11-21T23:30Z", "03:00 today Europe/Berlin"),
        (NEW_YORK, "2026-11-22T02:00Z", "2026-11-22T01:00Z", "21:00 today America/New_York"),
    ],
)
def test_time_is_spelled_in_its_zone_or_as_seen_from_now(
    zone: str, time: str, now: str | None, text: str
) -> None:
    spelled = spell_relative(at(time), at(now), zone) if now else Schedule("0 2 * * *", zone).spell(at(time))
    assert spelled == text


# --- effect


def plan_of(
    desired: DesiredJob, *jobs: ObservedJob, others: tuple[DesiredJob, ...] = (), **more: Any
) -> Plan:
    return plan_for(a_stack(desired, *others), *jobs, **more)


def decided(desired: DesiredJob, *jobs: ObservedJob, **more: Any) -> PlannedAction:
    [action] = [one for one in plan_of(desired, *jobs, **more).actions if one.key == desired.key]
    return action


def ended(desired: DesiredJob, phase: Phase, created_s_ago: float, **more: Any) -> ObservedJob:
    return seen(desired, phase=phase, ran_s=60, ended_s_ago=created_s_ago - 70, **more)


def active(desired: DesiredJob, phase: Phase, created_s_ago: float, **more: Any) -> ObservedJob:
    return seen(desired, phase=phase, ran_s=created_s_ago - 10, ended_s_ago=0, **more)


SKIPPED = "scheduled for 2027-01-15T02:00 UTC, starts once it has ended (overlap: skip)"
OVERLAPPING = "overlap: replace, replace_order: create_first"


@pytest.mark.parametrize(
    ("declared", "observed", "remembered", "expected", "says"),
    rows(
        """
new key | | | | create not_found r1 | new; next: 02:00 tomorrow
# a time has come: ended, whatever it ended as and whatever else is declared
completed | | Completed made=7 | | create scheduled r2 | scheduled for 2027-01-15T02:00 UTC; next
terminated | | Terminated made=7 | | create scheduled r2
stopped by us | | Terminated made=7 stopped | | create scheduled r2
retries exhausted | on_failure: retry, max_retries: 0 | Failed made=7 | | create scheduled r2
retry later | on_failure: retry, retry_delay: 2d | Abnormal made=7 | | create scheduled r2
edited | | Completed made=7 old | | create scheduled r2 | UTC; algorithm.parameters.lr changed; next
edited, keep | on_change: keep | Completed made=7 old | | create scheduled r2
edited, replace | on_change: replace | Completed made=7 old | | create scheduled r2
fail | on_change: fail | Completed made=7 | | create scheduled r2
edited, fail | on_change: fail | Completed made=7 old | | conflict change_refused r1
terminating | | Terminating made=7 | | create waits_for_termination r2 | scheduled for 2027-01-15T02:00 UTC
aged out | | | Completed made=7 | create scheduled r2
# active: kept, or ended for the time
skip, pending | | Pending made=7 | | keep unchanged r1 | pending; SKIPPED
skip | | Running made=7 | | keep unchanged r1 | running; SKIPPED
skip, edited | | Running made=7 old | | keep waits_for_schedule r1 | SKIPPED
skip, edited, keep | on_change: keep | Running made=7 old | | keep change_ignored r1 \
    | on_change: keep; SKIPPED
replace | overlap: replace | Running made=7 | | replace scheduled r2 | UTC; discards 7 h of work
replace, edited | overlap: replace | Running made=7 old | | replace scheduled r2 \
    | UTC; algorithm.parameters.lr changed
replace, edited, fail | overlap: replace, on_change: fail | Running made=7 old | | conflict change_refused r1
replace, protected by its entry | overlap: replace, protect: true | Running made=7 | | blocked protected r1
replace, protected by its marker | overlap: replace | Running made=7 protected | | blocked protected r1
replace, released | overlap: replace, protect: false | Running made=7 protected | | update marker_changed r1
replace, not protected | overlap: replace, protect: false | Running made=7 | | replace scheduled r2
# each time once
failed to take its place | OVERLAPPING | Running made=7, r2 Failed made=5 | | keep unchanged r1
runs in its place | OVERLAPPING | Running made=7, r2 Running made=1 | \
    | terminate superseded r1; keep unchanged r2
waits in its place | OVERLAPPING | Running made=7, r2 Pending made=1 | \
    | defer superseded r1; keep unchanged r2
# between two times the other rules decide, and an edit waits
started, completed | | Completed made=5 | | keep completed r1
started, failed | | Failed made=5 | | keep failed r1 badly
started, retry | on_failure: retry | Failed made=5 | | create retry r2
started, terminated | | Terminated made=5 | | keep terminated_outside r1 badly \
    | `rerun` with `on_change: replace` or `recreate` starts it again
started, terminated, replace | on_change: replace | Terminated made=5 | \
    | keep terminated_outside r1 badly | ; `rerun` or
started, recreate | on_terminated: recreate | Terminated made=5 | | create recreate r2
started, stopped by us | | Terminated made=5 stopped | | create declared_again r2
started, stopped, edited | | Terminated made=5 old stopped | | create immutable_changed r2
started, active | | Running made=5 | | keep unchanged r1
started, edited | | Completed made=5 old | | keep waits_for_schedule r1 | lr changed; waits for the next time
started, edited, failed | | Failed made=5 old | | keep waits_for_schedule r1 badly | of the schedule; failed
started, edited, recreate | on_terminated: recreate | Terminated made=5 old | \
    | keep waits_for_schedule r1 badly
started, edited, keep | on_change: keep | Completed made=5 old | | keep change_ignored r1
started, edited, fail | on_change: fail | Completed made=5 old | | conflict change_refused r1
started, edited, replace | on_change: replace | Completed made=5 old | | create immutable_changed r2 reruns r1
started, edited, active, replace | on_change: replace | Running made=5 old | | replace immutable_changed r2
started, rerun edited | rerun: twice | Completed made=5 old | | keep waits_for_schedule r1
started, rerun edited, replace | rerun: twice, on_change: replace | Completed made=5 old | \
    | create immutable_changed r2 reruns r1
started, aged out | | | Completed made=5 | keep aged_out r1
""",
        6,
    ),
)
def test_scheduled_key_actions_match_the_table(
    declared: str, observed: str, remembered: str, expected: str, says: str
) -> None:
    declared = declared.replace("OVERLAPPING", OVERLAPPING)
    desired = declared_as(f'schedule: "0 2 * * *", {declared}')
    memory = recorded_as(remembered, desired)
    plan = plan_of(desired, *observed_as(observed, desired), memory=memory)
    assert [spelled(action) for action in plan.actions] == [one.strip() for one in expected.split(";")]
    assert any(says.replace("SKIPPED", SKIPPED) in action.explanation for action in plan.actions)
    own = plan.actions[-1]
    is_due = own.reason in (Reason.SCHEDULED, Reason.WAITS_FOR_TERMINATION)
    assert own.scheduled_for == ("2027-01-15T02:00:00Z" if is_due else None)
    assert (own.next_run_at, own.next_run) == ("2027-01-16T02:00:00Z", "02:00 tomorrow")
    if own.reason is Reason.SCHEDULED:
        assert own.after is not None
        assert own.after.digest == desired.digest
    # Only a waiting edit has a warning.
    waits = own.reason is Reason.WAITS_FOR_SCHEDULE
    assert [one.what for one in plan.warnings] == ["edit waits for the schedule"] * waits


def test_runner_with_a_slow_clock_starts_nothing_twice() -> None:
    desired = a_job(lifecycle=NIGHTLY)
    made_for_it = ended(desired, DONE, 6 * HOUR - 5)
    for at_s in (NOW - 6 * HOUR - 60, NOW):
        assert decided(desired, made_for_it, at_s=at_s).action is Action.KEEP


def test_plan_warns_of_an_edit_waiting_for_its_schedule() -> None:
    plan = plan_of(a_job(lifecycle=NIGHTLY), ended(a_job(**OLD), F, AFTER_IT))
    assert [(one.key, one.what) for one in plan.warnings] == [("a", "edit waits for the schedule")]
    text = render_plan(plan, View())
    assert "algorithm.parameters.lr changed; the next job that lifecycle.schedule starts has it" in text
    assert "fix: not to wait: lifecycle.on_change: replace" in text


def test_mutable_fields_are_updated_while_an_edit_waits() -> None:
    desired = a_job(lifecycle=NIGHTLY, description="new")
    action = decided(desired, active(a_job(**OLD, description="old"), R, AFTER_IT))
    assert (action.action, action.reason) == (Action.UPDATE, Reason.MUTABLE_CHANGED)


def test_unknown_creation_time_starts_nothing() -> None:
    desired = a_job(lifecycle=NIGHTLY)
    job = replace(ended(desired, DONE, BEFORE_IT), created_at_s=None)
    action = decided(desired, job)
    assert (action.action, action.reason) == (Action.UNKNOWN, Reason.UNREADABLE)
    assert "the creation time of a is unknown" in action.detail
    recorded = past(desired, job=ended(desired, DONE, BEFORE_IT))
    assert decided(desired, job, memory=a_memory(recorded)).reason is Reason.SCHEDULED
    running = replace(active(desired, R, BEFORE_IT), created_at_s=None)
    assert decided(desired, running).action is Action.KEEP


def test_aged_out_job_without_a_creation_time_counts_from_its_first_observation() -> None:
    desired = a_job(lifecycle=NIGHTLY)
    seen_once = past(desired, job=ended(desired, DONE, BEFORE_IT))._replace(
        created_at_s=None,
        phases=(("Running", NOW - AFTER_IT),),
    )
    assert decided(desired, memory=a_memory(seen_once)).action is Action.KEEP


def test_each_time_has_its_own_retries() -> None:
    desired = a_job(lifecycle={**NIGHTLY, "on_failure": "retry", "max_retries": 1})
    yesterday = [ended(desired, F, 30 * HOUR - 5), ended(desired, F, 29 * HOUR, revision=2)]
    assert decided(desired, *yesterday, at_s=NOW - 7 * HOUR).reason is Reason.RETRIES_EXHAUSTED
    today = ended(desired, F, 6 * HOUR - 5, revision=3)
    assert decided(desired, *yesterday, today).reason is Reason.RETRY
    retried = ended(desired, F, AFTER_IT, revision=4)
    assert decided(desired, *yesterday, today, retried).reason is Reason.RETRIES_EXHAUSTED


def test_start_waits_for_a_needed_key() -> None:
    prepare = a_job("prepare", lifecycle=NIGHTLY)
    train = replace(a_job("train", lifecycle=NIGHTLY), needs=("prepare",))
    before = ended(train, DONE, BEFORE_IT)

    def decide_train(*jobs: ObservedJob) -> PlannedAction:
        return decided(train, before, *jobs, others=(prepare,))

    due = decide_train(ended(prepare, DONE, BEFORE_IT + 60))
    assert (due.action, due.reason) == (Action.DEFER, Reason.NEEDS_PENDING)
    assert due.detail == "waiting for prepare, then create: scheduled for 2027-01-15T02:00 UTC"
    runs = decide_train(active(prepare, R, 6 * HOUR - 5, revision=2))
    assert runs.action is Action.DEFER
    settled = decide_train(ended(prepare, DONE, 6 * HOUR - 5, revision=2))
    assert (settled.action, settled.reason) == (Action.CREATE, Reason.SCHEDULED)
    failed = decide_train(ended(prepare, F, 6 * HOUR - 5, revision=2))
    assert (failed.action, failed.reason) == (Action.BLOCKED, Reason.NEEDS_FAILED)


def test_newer_upstream_starts_a_key_with_a_waiting_edit() -> None:
    prepare = a_job("prepare")
    train = replace(a_job("train", lifecycle={**NIGHTLY, "on_upstream": "rerun"}), needs=("prepare",))
    jobs = ended(a_job("train", **OLD), DONE, AFTER_IT), ended(prepare, DONE, HOUR)
    assert decided(train, *jobs, others=(prepare,)).reason is Reason.UPSTREAM_NEWER


def test_renamed_key_keeps_the_schedule_state_of_the_old_key() -> None:
    new = replace(a_job("new", lifecycle=NIGHTLY), formerly=("a",))
    made = ended(a_job(lifecycle=NIGHTLY), DONE, AFTER_IT)
    assert {a.action for a in plan_of(new, made).actions} == {Action.UPDATE}


def test_key_declared_absent_has_no_schedule() -> None:
    assert plan_of(absent(**NIGHTLY), ended(a_job(), DONE, BEFORE_IT)).actions == ()


def test_plan_is_the_same_at_any_moment_between_two_times() -> None:
    desired = a_job(lifecycle=NIGHTLY)
    job = ended(desired, DONE, BEFORE_IT)
    # Its deadline is 14:00; it is due again at 02:00.
    plans = [plan_of(desired, job, at_s=NOW + hours * HOUR).document() for hours in (0, 1, 6)]
    assert all(without_growing(plan) == without_growing(plans[0]) for plan in plans)


@pytest.mark.parametrize(("created_s_ago", "asks"), [(BEFORE_IT, True), (AFTER_IT, False)])
@pytest.mark.parametrize("make", [ended, active])
def test_history_is_read_if_a_scheduled_time_has_come(make: Any, created_s_ago: float, asks: bool) -> None:
    desired = a_job(lifecycle=NIGHTLY)
    stack, job = a_stack(desired), make(desired, DONE if make is ended else R, created_s_ago)
    assert needs_history(stack, a_look(stack, job), {}, NOW) is asks


@pytest.mark.parametrize(
    ("job", "kind", "next_run"),
    [
        (ended(a_job(lifecycle=NIGHTLY), DONE, AFTER_IT), WaitKind.SCHEDULE, "02:00 tomorrow"),
        (ended(a_job(lifecycle=NIGHTLY), DONE, BEFORE_IT), WaitKind.APPLY, "02:00 tomorrow"),
        (active(a_job(lifecycle=NIGHTLY), P, AFTER_IT), WaitKind.QUEUE, "02:00 tomorrow"),
        (active(a_job(lifecycle=NIGHTLY), R, AFTER_IT), None, "02:00 tomorrow"),
        (ended(a_job(), DONE, AFTER_IT), None, None),
    ],
)
def test_status_says_when_a_key_starts_next(
    job: ObservedJob, kind: WaitKind | None, next_run: str | None
) -> None:
    stack = a_stack(a_job(lifecycle=NIGHTLY if next_run else {}))
    world = a_world(stack, job, details={})
    report = make_status(world.proposed(), world.plan(), {})
    [one] = report.jobs
    assert (one.waits_for.kind if one.waits_for else None) is kind
    assert one.next_run == next_run
    assert one.next_run_at == ("2027-01-16T02:00:00Z" if next_run else None)
    text = render(Content.STATUS, report, "text", View())
    assert ("next: 02:00 tomorrow" in text) is (next_run is not None)


# --- properties


SCHEDULES = st.builds(
    lambda cron, zone, deadline: {"schedule": cron, "timezone": zone, "starting_deadline": deadline},
    st.sampled_from(
        ["0 2 * * *", "30 2 * * *", "15 */3 * * *", "0 1,2,3 * * *", "*/30 * * * *", "0 3 * * SUN"]
    ),
    st.sampled_from(["UTC", BERLIN, NEW_YORK, ADELAIDE]),
    st.sampled_from([None, None, "10m", "5h", "3d"]),
)


@dataclass
class Story:
    """A key whose schedule is edited; applied at any time, with jobs of any duration."""

    lasting: Iterator[tuple[int, Phase]]
    jobs: list[ObservedJob] = field(default_factory=list)
    starts: list[tuple[float, PlannedAction]] = field(default_factory=list)
    began_s: float = 0.0
    applied: Schedule | None = None

    def observed(self, now_s: float) -> list[ObservedJob]:
        return [replace(job, phase_text=_phase_at(job, now_s)) for job in self.jobs]

    def is_active(self, at_s: float) -> bool:
        return any((job.created_at_s or 0.0) <= at_s < (job.ended_at_s() or 0.0) for job in self.jobs)

    def apply(self, desired: DesiredJob, now_s: float, skew_s: float) -> PlannedAction:
        assert desired.schedule is not None
        action = decided(desired, *self.observed(now_s), at_s=now_s + skew_s, skew_s=skew_s)
        if self.applied is None or desired.schedule.digest != self.applied.digest:
            self.began_s = now_s
        self.applied = desired.schedule
        if action.action is Action.UPDATE:
            assert action.before is not None
            assert action.desired is not None
            text = action.desired["description"]
            self.jobs = [
                replace(job, description=text) if job.id == action.before.id else job for job in self.jobs
            ]
        if action.action is Action.CREATE:
            assert action.after is not None
            assert action.after.revision == len(self.jobs) + 1
            lasting_min, phase = next(self.lasting)
            job = seen(desired, revision=len(self.jobs) + 1, phase=phase)
            self.jobs.append(
                replace(job, created_at_s=now_s, started_at_s=now_s, duration_s=lasting_min * 60.0)
            )
            self.starts.append((now_s, action))
        return action

    def open_times(self, desired: DesiredJob, now_s: float) -> list[float]:
        """Return the times of the current schedule not settled by a start."""
        assert desired.schedule is not None
        since_s = max(self.starts[-1][0] if self.starts else now_s, self.began_s)
        found, time_s = [], desired.schedule.next_after(since_s)
        while time_s is not None and time_s <= now_s:
            found.append(time_s)
            time_s = desired.schedule.next_after(time_s)
        return found


@settings(max_examples=150)
@given(
    begin=st.sampled_from(
        ["2026-03-07T12:00Z", "2026-03-28T12:00Z", "2026-10-03T12:00Z", "2026-10-24T12:00Z"]
    ),
    schedules=st.lists(SCHEDULES, min_size=1, max_size=3),
    looks=st.lists(
        st.tuples(st.integers(1, 900), st.integers(-900, 900), st.integers(0, 9)), min_size=1, max_size=12
    ),
    runs=st.lists(st.tuples(st.sampled_from([1, 20, 90, 600]), st.sampled_from([DONE, F, TD])), min_size=1),
)
def test_each_scheduled_time_is_started_once_in_time_or_listed_as_missed(
    begin: str,
    schedules: list[dict[str, Any]],
    looks: list[tuple[int, int, int]],
    runs: list[tuple[int, Phase]],
) -> None:
    """Every apply uses the service's clock; the schedule is edited at times."""
    now_s, story, later = at(begin), Story(cycle(runs)), iter(schedules[1:])
    desired = a_job(lifecycle=schedules[0])
    for pause_min, skew_s, edit in [(0, 0, 9), *looks, (6000, 0, 9)]:
        now_s += pause_min * 60
        missed = _missed(desired, story, now_s)
        open_times, was_active = story.open_times(desired, now_s), story.is_active(now_s)
        schedule = desired.schedule
        assert schedule is not None
        # A time missed while idle is drift from its deadline until the next start.
        # A job that ended at that very time counts as active.
        idle = (t for t in open_times if not story.is_active(t) and not story.is_active(t - 1))
        lost = [t for t in idle if now_s > schedule.start_by(t)]
        assert missed == bool(lost and not was_active)
        if edit == 0:
            desired = a_job(lifecycle=next(later, schedules[0]))
        is_new = story.applied is None or desired.schedule_mark != ScheduleMark(story.applied.digest)
        action = story.apply(desired, now_s, float(skew_s))
        startable = [t for t in open_times if now_s <= schedule.start_by(t)]
        if is_new or was_active:
            assert action.action is not Action.CREATE or not story.jobs[:-1]
        elif desired.schedule == schedule:
            assert (action.action is Action.CREATE) == bool(startable)
            assert action.scheduled_for == (timestamp(startable[0]) if startable else None)
        # The next plan has nothing left to do.
        again = decided(desired, *story.observed(now_s), at_s=now_s)
        assert again.action is Action.KEEP
    times_s = [at(action.scheduled_for) for _, action in story.starts if action.scheduled_for]
    assert all(one < other for one, other in pairwise(times_s)), "no time is run twice"


def _missed(desired: DesiredJob, story: Story, now_s: float) -> bool:
    snapshot = a_look(a_stack(desired), *story.observed(now_s))
    found = check_key(state_of(desired.key, desired, snapshot, PlanContext(STACK, at_s=now_s)))
    return DriftClass.MISSED in {one.class_ for one in found.drift}


def _phase_at(job: ObservedJob, now_s: float) -> str:
    has_ended = (job.created_at_s or 0.0) + (job.duration_s or 0.0) <= now_s
    return job.phase_text if has_ended else R.value
