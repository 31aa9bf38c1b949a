"""docs/concepts/decisions.md, sweeps: members no longer produced by their entry."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace
from itertools import product
from typing import Any

import pytest

from reconciler.core.observed import ObservedJob, Unreadable
from reconciler.core.phase import Phase
from reconciler.core.record import HistorySnapshot, RecordedRevision, RevisionId
from reconciler.core.stack import DesiredJob, Effect, Limits, Policy, Stack
from reconciler.decide.plan import Action, Plan, PlannedAction, Reason
from reconciler.decide.planner import needs_history
from reconciler.decide.renames import SweepEntries, values_in
from tests.builders import HOUR, a_job, a_stack, absent, seen
from tests.core.history import a_memory, past
from tests.core.test_decision_table import DONE, C, F, P, R, T, plan_everywhere
from tests.core.worlds import a_look, a_world

LONG = 5 * HOUR


def sweep(
    entry: str = "s", lifecycle: Mapping[str, Any] | None = None, **axes: Collection[object]
) -> list[DesiredJob]:
    """The members of an entry; an axis named lr is a parameter, any other has no effect."""
    found = []
    for values in product(*axes.values()):
        texts = {axis: str(value).replace(".", "_") for axis, value in zip(axes, values, strict=True)}
        key = "-".join((entry, *(f"{axis}-{texts[axis]}" for axis in sorted(axes))))
        lr = texts.get("lr") or texts.get("rate") or "0"
        job = a_job(key, lifecycle=lifecycle, algorithm__parameters={"lr": lr})
        found.append(replace(job, sweep=entry, matrix=texts))
    return found


BEFORE = sweep(lr=[0.1, 0.01])
#: The same entry with one more axis, of one value.
AFTER = sweep(lr=[0.1, 0.01], batch=[64])


def running(jobs: Collection[DesiredJob], ran_s: float = LONG, **members: Any) -> list[ObservedJob]:
    return [seen(job, ran_s=ran_s, **members) for job in jobs]


def left_over(plan: Plan) -> list[PlannedAction]:
    """Return the actions for removed keys."""
    return [action for action in plan.actions if action.key in {job.key for job in BEFORE}]


def outcomes(plan: Plan) -> set[tuple[Action, Reason]]:
    return {(action.action, action.reason) for action in left_over(plan)}


NINE = [replace(job, max_parallel=4) for job in sweep(lr=range(9))]


@pytest.mark.parametrize(
    ("phases", "more", "started", "deferred"),
    [
        # observed phases of members 0, 1, 2, …; members that start; members that wait
        ([], {}, [0, 1, 2, 3], [4, 5, 6, 7, 8]),
        ([R, R, R], {}, [3], [4, 5, 6, 7, 8]),
        ([R, P, C, T], {}, [], [4, 5, 6, 7, 8]),
        # an unknown phase may be active
        ([R, "Frozen", R], {}, [3], [4, 5, 6, 7, 8]),
        ([DONE, R, DONE, R], {}, [4, 5], [6, 7, 8]),
        ([DONE] * 8, {}, [8], []),
        # a retry takes a turn; a kept bad end takes none
        ([F, R, R], {"on_failure": "retry"}, [0, 3], [4, 5, 6, 7, 8]),
        ([F, R, R, R], {"on_failure": "retry"}, [0], [4, 5, 6, 7, 8]),
        ([F, R, R, R], {}, [4], [5, 6, 7, 8]),
    ],
)
def test_at_most_max_parallel_sweep_members_are_active(
    phases: list[str], more: dict[str, Any], started: list[int], deferred: list[int]
) -> None:
    jobs = [replace(job, lifecycle=a_job(lifecycle=more).lifecycle) for job in NINE]
    plan = plan_everywhere(
        a_stack(*jobs), *(seen(job, phase=one) for job, one in zip(jobs, phases, strict=False))
    )
    found = {reason: [a.key for a in plan.actions if a.reason is reason] for reason in Reason}
    starting = [action.key for action in plan.actions if action.action is Action.CREATE]
    assert starting == [jobs[one].key for one in started]
    assert found[Reason.WAITS_FOR_TURN] == [jobs[one].key for one in deferred]
    assert {len(a.waits_for) for a in plan.actions if a.reason is Reason.WAITS_FOR_TURN} <= {4}
    assert plan.summary[Action.DEFER] == len(deferred)


def test_unreadable_member_counts_as_active() -> None:
    lost = Unreadable("status is missing", name="s-lr-0")
    plan = plan_everywhere(a_stack(*NINE), *running(NINE[1:3]), unreadable=(lost,), details={})
    assert [a.key for a in plan.actions if a.reason is Reason.WAITS_FOR_TURN] == [j.key for j in NINE[4:]]


@pytest.mark.parametrize(("phase", "starting"), [(R, 1), (C, 1), (DONE, 2)])
def test_member_with_a_restored_marker_counts_while_active(phase: Phase, starting: int) -> None:
    wiped = seen(NINE[0], phase=phase, description="mine now")
    plan = plan_everywhere(
        a_stack(*NINE), wiped, *running(NINE[1:3]), memory=a_memory(past(NINE[0], job=wiped))
    )
    assert (plan.actions[0].key, plan.actions[0].reason) == (NINE[0].key, Reason.MARKER_RESTORED)
    assert sum(action.action is Action.CREATE for action in plan.actions) == starting


def test_requested_rerun_waiting_for_its_turn_gets_a_warning() -> None:
    plan = plan_everywhere(a_stack(*NINE), *(seen(job, phase=DONE) for job in NINE), rerun=("*",))
    deferred = [one for one in plan.warnings if one.what == "rerun deferred"]
    assert [one.key for one in deferred[:5]] == [job.key for job in NINE[4:]]
    assert deferred[0].why == "waits for its turn (max_parallel: 4), then create: rerun requested"


def test_replacement_takes_the_turn_of_the_replaced_job() -> None:
    was = [replace(a_job(job.key, algorithm__parameters={"lr": "9"}), sweep="s") for job in NINE]
    plan = plan_everywhere(a_stack(*NINE), *(seen(job) for job in was[:4]))
    assert [a.key for a in plan.actions if a.action is Action.REPLACE] == [job.key for job in NINE[:4]]
    assert not [a for a in plan.actions if a.action is Action.CREATE]


def test_running_former_member_counts_and_a_blocked_member_does_not() -> None:
    left = seen(a_job("s-lr-10"), ran_s=HOUR / 2)
    policy = Policy("no-first", Effect.DENY, "job.key == 's-lr-0'")
    plan = plan_everywhere(a_stack(*NINE, policies=(policy,)), left)
    starting = [action.key for action in plan.actions if action.action is Action.CREATE]
    assert starting == ["s-lr-1", "s-lr-2", "s-lr-3"]


CONFLICT = (Action.CONFLICT, Reason.WOULD_LOSE_WORK)
TERMINATE = (Action.TERMINATE, Reason.NOT_IN_MANIFEST)


@pytest.mark.parametrize(
    ("lifecycle", "state", "expected"),
    [
        *[({}, {"phase": phase}, CONFLICT) for phase in (C, P, R)],
        *[({}, {"phase": phase, "ran_s": HOUR}, TERMINATE) for phase in (C, P, R)],
        ({"on_change": "replace"}, {}, TERMINATE),
        ({"on_change": "fail"}, {"ran_s": 60}, (Action.CONFLICT, Reason.CHANGE_REFUSED)),
        ({"on_change": "keep"}, {}, (Action.KEEP, Reason.CHANGE_IGNORED)),
        ({"protect": True}, {"ran_s": 60}, (Action.BLOCKED, Reason.PROTECTED)),
        ({"protect": True, "on_change": "replace"}, {}, (Action.BLOCKED, Reason.PROTECTED)),
        ({}, {"protected": True, "ran_s": 60}, (Action.BLOCKED, Reason.PROTECTED)),
        # the entry removes the protection: released first
        ({"protect": False}, {"protected": True, "ran_s": 60}, (Action.UPDATE, Reason.PROTECTION_RELEASED)),
        *[({}, {"phase": phase}, None) for phase in (DONE, F, T)],
    ],
)
def test_member_no_longer_produced_ends_like_an_edit(
    lifecycle: dict[str, Any], state: dict[str, Any], expected: tuple[Action, Reason] | None
) -> None:
    after = sweep(lr=[0.1, 0.01], batch=[64], lifecycle=lifecycle)
    found = outcomes(plan_everywhere(a_stack(*after), *running(BEFORE, **state)))
    assert found == ({expected} if expected else set())


def test_conflict_of_a_former_member_names_its_entry_and_the_lost_work() -> None:
    plan = plan_everywhere(a_stack(*AFTER), *running(BEFORE))
    assert {action.explanation for action in left_over(plan)} == {
        "no longer produced by s; would lose 5 h on 1 node; "
        "set `on_change: replace`, or pass `--allow lost-work`"
    }
    assert plan.lost_node_hours == 0


def test_removed_axis_value_is_an_edit_of_the_entry() -> None:
    plan = plan_everywhere(a_stack(*sweep(lr=[0.1])), *running(BEFORE))
    assert [(a.key, a.action) for a in plan.actions] == [
        ("s-lr-0_01", Action.CONFLICT),
        ("s-lr-0_1", Action.KEEP),
    ]


def test_loss_of_a_member_is_allowed_for_all_or_by_key() -> None:
    stack = a_stack(*AFTER, whole={job.key: job for job in AFTER})
    words = ("", "=s", "=s-lr-0_1")
    plans = (plan_everywhere(stack, *running(BEFORE), allow=(f"lost-work{word}",)) for word in words)
    assert [outcomes(plan) for plan in plans] == [{TERMINATE}, {TERMINATE}, {TERMINATE, CONFLICT}]


@pytest.mark.parametrize(("allow", "action"), [((), Action.CONFLICT), (("lost-work=s",), Action.REPLACE)])
def test_allowed_loss_of_a_sweep_covers_all_members(allow: tuple[str, ...], action: Action) -> None:
    """Together they also lose more than `limits.lost_node_hours`."""
    was = [replace(a_job(job.key, algorithm__parameters={"lr": "9"}), sweep="s") for job in NINE]
    stack = a_stack(*NINE, whole={job.key: job for job in NINE}, limits=Limits(terminations=99))
    plan = plan_everywhere(stack, *running(was), allow=allow)
    assert {one.action for one in plan.actions} == {action}


def test_older_active_revision_of_a_former_member_is_superseded() -> None:
    older = seen(BEFORE[0], ran_s=LONG)
    newer = seen(BEFORE[0], revision=2, ran_s=LONG)
    assert [(a.action, a.reason) for a in left_over(plan_everywhere(a_stack(*AFTER), older, newer))] == [
        (Action.TERMINATE, Reason.SUPERSEDED),
        CONFLICT,
    ]


# --- the entry of a former member


def entry_of(key: str, *jobs: DesiredJob, recorded: Mapping[str, str] | None = None) -> str | None:
    job = SweepEntries(a_stack(*jobs)).former_entry(key, recorded or {})
    return None if job is None else job.sweep or job.key


@pytest.mark.parametrize(
    ("key", "entry"),
    [
        ("s-lr-0_5", "s"),
        ("s-batch-64-lr-0_5", "s"),
        ("s-lr-0_5-seed-1", "s"),
        ("s-old", None),
        ("s-lr", None),
        ("s-old-lr", None),
        ("s-seed-1", None),  # no axis of the entry
        ("s-seed-1-lr-0_5", None),  # not in alphabetical order
        ("s-lr-0_5-lr-1", None),
        ("s-lr-0_5-x", None),
        ("slr-0_5", None),
        ("s", None),
        ("other-lr-0_5", None),
        ("s-lr-0_1", None),  # declared
    ],
)
def test_key_matching_a_declared_sweep_is_its_former_member(key: str, entry: str | None) -> None:
    assert entry_of(key, *sweep(lr=[0.1])) == entry


def test_ambiguous_member_key_belongs_to_the_longer_entry_name() -> None:
    assert values_in("s-a-b-1-lr-2", "s", {"a-b", "lr"}) == {"a-b": "1", "lr": "2"}
    jobs = [*sweep("s", lr=[1], a=[1]), *sweep("s-a-1", lr=[1])]
    assert entry_of("s-a-1-lr-2", *jobs) == "s-a-1"  # the longer name


def test_recorded_member_is_found_under_any_name() -> None:
    recorded = {"x": "s", "s-lr-0_5": "", "gone": "other"}
    jobs = sweep(lr=[0.1])
    assert [entry_of(key, *jobs, recorded=recorded) for key in recorded] == ["s", None, None]


def test_former_sweep_entry_still_owns_its_members() -> None:
    assert entry_of("s-lr-0_5", a_job("s"), recorded={"s-lr-0_5": "s"}) == "s"
    assert entry_of("s-lr-0_5", absent("s"), recorded={"s-lr-0_5": "s"}) is None


def test_removed_plain_key_is_terminated() -> None:
    plan = plan_everywhere(a_stack(*BEFORE), seen(a_job("s-old"), ran_s=LONG), allow=("lost-work",))
    [action] = [action for action in plan.actions if action.key == "s-old"]
    assert (action.action, action.detail) == (Action.TERMINATE, "not in the manifest")


# --- hints that keep the jobs


def hints(plan: Plan) -> list[str | None]:
    return [one.fix for one in plan.warnings if one.what == "may be a rename"]


def fix(expression: str, entry: str = "s") -> list[str]:
    return [f'add `formerly: "{expression}"` to {entry} to keep its jobs']


RATES = sweep(rate=[0.1, 0.01])
GRID = sweep(batch=[64, 128], lr=[0.1, 0.01])


@pytest.mark.parametrize("phase", [R, DONE])
@pytest.mark.parametrize(
    ("before", "after", "expected"),
    [
        (BEFORE, AFTER, fix("s-lr-${matrix.lr}")),
        (AFTER, BEFORE, fix("s-batch-64-lr-${matrix.lr}")),
        (
            GRID,
            sweep(batch=[64, 128], lr=[0.1, 0.01], seed=[1]),
            fix("s-batch-${matrix.batch}-lr-${matrix.lr}"),
        ),
        (GRID, sweep(size=[64, 128], lr=[0.1, 0.01]), fix("s-batch-${matrix.size}-lr-${matrix.lr}")),
        # more added than removed, or unrelated ones
        (BEFORE, sweep(lr=[0.1, 0.01], batch=[64, 128]), []),
        (BEFORE, sweep(lr=[0.1, 0.01, 0.5]), []),
        (BEFORE, sweep(lr=[0.1, 0.02]), []),
        (BEFORE, sweep(lr=[0.1]), []),
        # a kept member would take over a removed one
        (sweep(lr=[1, 2]), sweep(lr=[2, 3]), []),
    ],
)
def test_plan_suggests_the_formerly_expression_that_keeps_the_jobs(
    phase: str, before: list[DesiredJob], after: list[DesiredJob], expected: list[str]
) -> None:
    assert hints(plan_everywhere(a_stack(*after), *running(before, phase=phase))) == expected


def test_rename_expression_maps_each_job_to_its_own_declaration() -> None:
    """Two axes with the same values: only the declarations tell which one was renamed."""
    before = sweep(lr=[1, 2], x=[1, 2])
    after = [
        replace(
            job,
            key=f"s-a-{job.matrix['x']}-b-{job.matrix['lr']}",
            matrix={"a": job.matrix["x"], "b": job.matrix["lr"]},
        )
        for job in before
    ]
    memory = HistorySnapshot(sweeps={job.key: "s" for job in before})
    plan = plan_everywhere(a_stack(*after), *running(before), memory=memory)
    assert hints(plan) == fix("s-lr-${matrix.b}-x-${matrix.a}")


REMEMBERED = replace(
    a_memory(*(past(job, phase=R) for job in BEFORE)), sweeps={job.key: "s" for job in BEFORE}
)


@pytest.mark.parametrize(
    ("after", "memory", "expected"),
    [
        (RATES, REMEMBERED, fix("s-lr-${matrix.rate}")),
        (RATES, HistorySnapshot(), fix("s-lr-${matrix.rate}")),
        (sweep("new", lr=[0.1, 0.01]), HistorySnapshot(), fix("s-lr-${matrix.lr}", "new")),
    ],
)
def test_renamed_axis_or_entry_keeps_its_jobs_by_one_expression(
    after: list[DesiredJob], memory: HistorySnapshot, expected: list[str]
) -> None:
    assert hints(plan_everywhere(a_stack(*after), *running(BEFORE, 60), memory=memory)) == expected


@pytest.mark.parametrize("entry", ["s", "new"])
def test_member_that_still_waited_for_its_turn_does_not_hide_the_rename(entry: str) -> None:
    recorded = HistorySnapshot(sweeps={job.key: "s" for job in [*BEFORE, *sweep(lr=[7])]})
    axes = {"lr": [0.1, 0.01], "batch": [64]} if entry == "s" else {"lr": [0.1, 0.01]}
    after = a_stack(*sweep(entry, **axes))
    assert hints(plan_everywhere(after, *running(BEFORE[:1]), memory=recorded)) == fix(
        "s-lr-${matrix.lr}", entry
    )
    # If no job would be kept, there is nothing to suggest.
    assert hints(plan_everywhere(after, *running(sweep(lr=[5])), memory=recorded)) == []


def followed(jobs: Collection[DesiredJob], former: Mapping[str, str]) -> Stack:
    return a_stack(*(replace(job, formerly=(former[job.key],)) for job in jobs))


@pytest.mark.parametrize("phase", [R, DONE])
def test_following_the_hint_leaves_updates_only(phase: str) -> None:
    former = {job.key: f"s-lr-{job.matrix['lr']}" for job in AFTER}
    plan = plan_everywhere(followed(AFTER, former), *running(BEFORE, phase=phase))
    assert {action.action for action in plan.actions} == {Action.UPDATE}
    assert hints(plan) == []


# --- drift, and destroy


@pytest.mark.parametrize("is_recorded", [True, False])
def test_member_in_conflict_is_pending_and_no_drift(is_recorded: bool) -> None:
    memory = a_memory(*(past(job, phase=R) for job in BEFORE)) if is_recorded else HistorySnapshot()
    stack = a_stack(*AFTER)
    report = a_world(stack, *running(BEFORE), details={}, memory=memory).drift()
    assert [entry for entry in report.drift if entry.key in {job.key for job in BEFORE}] == []
    assert {one.key: one.detail for one in report.pending if one.key in {job.key for job in BEFORE}} == {
        job.key: f"no longer produced by s; {job.key} (Running)" for job in BEFORE
    }


def test_destroy_terminates_former_members() -> None:
    plan = a_world(a_stack(*AFTER), *running(BEFORE)).destroy_plan()
    assert {(a.action, a.reason) for a in plan.actions} == {(Action.TERMINATE, Reason.DESTROYED)}


@pytest.mark.parametrize(
    ("stack", "asks"),
    [(a_stack(*AFTER), True), (a_stack(a_job("s")), True), (a_stack(a_job("other")), False)],
    ids=["a sweep", "the entry without its matrix", "none"],
)
def test_possible_former_member_needs_the_history(stack: Stack, asks: bool) -> None:
    jobs = [*running(BEFORE), *(seen(job) for job in stack.jobs.values())]
    known = {
        RevisionId(job.marker.key, 1): RecordedRevision(job.id, job.marker.digest, job.phase_text, False)
        for job in jobs
        if job.marker
    }
    assert needs_history(stack, a_look(stack, *jobs), known) is asks
