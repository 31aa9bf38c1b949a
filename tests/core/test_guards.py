"""docs/semantics.md, "Guards": what a plan may not do unless somebody says so."""

from __future__ import annotations

from typing import Any, NamedTuple

import pytest

from reconciler.core.declared.stack import DesiredJob, Limits, Stack
from reconciler.core.observed.job import ObservedJob
from reconciler.core.planning.allowance import Allowances, Guard
from reconciler.core.planning.groups import fold
from reconciler.core.planning.plan import Action, Plan, PlannedAction, Reason
from reconciler.core.planning.planner import make_destroy_plan
from reconciler.core.record import NO_HISTORY, HistorySnapshot
from tests.builders import HOUR, TARGET, a_job, a_stack, absent, seen
from tests.core.history import a_memory, past
from tests.core.test_decision_table import plan_for

OLD: dict[str, Any] = {"algorithm__parameters": {"lr": 9}}


class Case(NamedTuple):
    """A stack and what there is of it."""

    stack: Stack
    jobs: list[ObservedJob]
    memory: HistorySnapshot = NO_HISTORY

    def plan(self, **allowed: Any) -> Plan:
        """What is planned for it."""
        return plan_for(self.stack, *self.jobs, memory=self.memory, **allowed)


def ending(stopping: int, active: int, **limits: float) -> Case:
    """So many of so many active jobs are in the manifest no more."""
    kept = [a_job(f"keep-{n}") for n in range(active - stopping)]
    ended = [a_job(f"end-{n}") for n in range(stopping)]
    stack = a_stack(a_job("new"), *kept, limits=Limits.model_validate(limits))
    return Case(stack, [seen(job) for job in (*kept, *ended)])


def losing(node_hours: float, limit: float = 24, lifecycle: dict[str, Any] | None = None) -> Case:
    """One edited job that has run for half an hour, on as many nodes as it takes."""
    stack = a_stack(a_job(lifecycle=lifecycle), limits=Limits(lost_node_hours=limit))
    return Case(stack, [seen(a_job(**OLD), ran_s=HOUR / 2, node_count=round(node_hours * 2))])


def rerunning(again: int, keys: int, **limits: float) -> Case:
    """So many of so many keys completed, and were edited since."""
    edited = [a_job(f"edited-{n}") for n in range(again)]
    same = [a_job(f"same-{n}") for n in range(keys - again)]
    before = [a_job(job.key, **OLD) for job in edited]
    stack = a_stack(*edited, *same, limits=Limits.model_validate(limits))
    return Case(stack, [seen(job, phase="Completed") for job in (*before, *same)])


def losing_sight() -> Case:
    """The history knows the stack, and nothing of it is there."""
    return Case(a_stack(a_job("new")), [], a_memory(past(a_job("old"))))


CASES = {
    Guard.EMPTY: Case(a_stack(), [seen(a_job())]),
    Guard.FOUND_NOTHING: losing_sight(),
    Guard.TERMINATIONS: ending(5, 16),
    Guard.LOST_WORK: losing(24.5),
    Guard.RERUNS: rerunning(5, 16),
}


@pytest.mark.parametrize("guard", CASES)
def test_guard_refuses_by_name_and_passes_when_allowed(guard: Guard) -> None:
    case = CASES[guard]
    plan = case.plan()
    [refusal] = plan.refusals
    assert f"--allow {guard.value}" in str(refusal.fix)
    assert plan.to_execute
    assert not plan.applyable
    for others in Guard:
        allowed = case.plan(allow=(others.value,))
        assert bool(allowed.refusals) is (others is not guard)
        assert allowed.applyable is (others is guard)
    assert case.plan(force=True).applyable


def test_refusals_of_several_guards_name_each_guard() -> None:
    jobs = [seen(a_job(f"end-{n}"), ran_s=HOUR, node_count=9) for n in range(5)]
    refusals = plan_for(a_stack(), *jobs).refusals
    named = [str(refusal.fix).partition("--allow ")[2].split(",")[0].split(" ")[0] for refusal in refusals]
    assert named == ["empty", "terminations", "lost-work"]
    passed = plan_for(a_stack(), *jobs, allow=("empty", "terminations", "lost-work"))
    assert passed.applyable


# --- terminations


@pytest.mark.parametrize(
    ("stopping", "active", "is_refused"),
    [
        (4, 4, False),
        (5, 5, True),
        (5, 16, True),
        (5, 17, False),
        (6, 20, True),
        (6, 21, False),
        (0, 9, False),
    ],
)
def test_terminations_are_refused_from_5_jobs_and_30_percent(
    stopping: int, active: int, is_refused: bool
) -> None:
    assert bool(ending(stopping, active).plan().refusals) is is_refused


def test_terminations_are_refused_by_the_limits_of_the_stack() -> None:
    assert ending(1, 100, terminations=1, terminations_percent=0).plan().refusals
    assert not ending(50, 100, terminations=60).plan().refusals
    assert not ending(50, 100, terminations_percent=51).plan().refusals


def test_replacements_count_as_terminations() -> None:
    stack = a_stack(*(a_job(str(n)) for n in range(5)))
    assert plan_for(stack, *(seen(a_job(str(n), **OLD)) for n in range(5))).refusals


def test_ended_jobs_are_not_counted_among_the_active_ones() -> None:
    ended = [seen(a_job(f"old-{n}"), phase="Completed") for n in range(50)]
    running = [seen(a_job(f"end-{n}")) for n in range(5)]
    assert plan_for(a_stack(a_job("new")), *ended, *running).refusals


# --- lost work


@pytest.mark.parametrize(
    ("case", "is_refused"),
    [
        (losing(24), False),  # over the limit, not at it
        (losing(24.5), True),
        (losing(24.5, limit=25), False),
        (losing(0.5, limit=0), True),
        (losing(100, lifecycle={"on_change": "replace"}), False),
    ],
)
def test_lost_work_over_the_limit_is_refused_unless_requested(case: Case, is_refused: bool) -> None:
    plan = case.plan()
    assert [action.action for action in plan.actions] == [Action.REPLACE]
    assert bool(plan.refusals) is is_refused


LOSS: dict[str, Any] = {"ran_s": 10 * HOUR, "node_count": 3}


@pytest.mark.parametrize(
    ("entries", "jobs", "reason", "is_refused"),
    [
        ([absent()], [seen(a_job(), **LOSS)], Reason.STATE_ABSENT, False),
        ([], [seen(a_job(), **LOSS)], Reason.NOT_IN_MANIFEST, True),
        ([a_job()], [seen(a_job(**OLD), **LOSS), seen(a_job(), revision=2)], Reason.SUPERSEDED, True),
        (
            [a_job(lifecycle={"on_change": "replace"})],
            [seen(a_job(**OLD), **LOSS), seen(a_job(), revision=2)],
            Reason.SUPERSEDED,
            True,
        ),
    ],
)
def test_lost_work_of_a_terminate_is_allowed_only_by_state_absent(
    entries: list[DesiredJob], jobs: list[ObservedJob], reason: Reason, is_refused: bool
) -> None:
    plan = plan_for(a_stack(a_job("other"), *entries), *jobs)
    [ended] = [action for action in plan.actions if action.traits.stops_a_job]
    assert (ended.reason, ended.lost_node_hours) == (reason, 30)
    assert "discards 10 h of work on 3 nodes" in ended.explanation
    assert bool(plan.refusals) is is_refused


def test_lost_work_is_summed_without_the_allowed_keys() -> None:
    jobs = [seen(a_job(key), ran_s=HOUR, node_count=nodes) for key, nodes in (("x", 10), ("y", 15))]
    stack = a_stack(a_job("other"))
    [refusal] = plan_for(stack, *jobs).refusals
    assert "25.0 node-hours of running work would be discarded, most of them of y" in refusal.why
    assert not plan_for(stack, *jobs, allow=("lost-work=x",)).refusals
    assert plan_for(stack, *jobs, allow=("lost-work=other",)).refusals


def test_discarded_work_is_shown_per_action_and_in_total() -> None:
    jobs = [
        seen(a_job("a"), ran_s=30 * HOUR, node_count=8),
        seen(a_job("b"), ran_s=HOUR, node_count=2),
    ]
    plan = plan_for(a_stack(a_job("new")), *jobs)
    said = {action.key: action.explanation for action in plan.actions}
    assert said["a"] == "not in the manifest; discards 30 h of work on 8 nodes"
    assert said["b"] == "not in the manifest; discards 60 min of work on 2 nodes"
    assert plan.lost_node_hours == 242
    assert [action.detail for action in plan.actions if action.before] == ["not in the manifest"] * 2


# --- a long run that is not replaced unasked


@pytest.mark.parametrize(
    ("hours", "action", "said"),
    [
        ((2, 3, 4, 5, 6), Action.CONFLICT, "changed; would lose 160.0 node-hours; set `on_change: replace`"),
        ((30,) * 5, Action.CONFLICT, "changed; would lose 1200.0 node-hours; set `on_change: replace`"),
        ((0.1, 0.2, 0.3, 0.4, 0.5), Action.REPLACE, "changed; discards 12.0 node-hours of work"),
        ((0.5,) * 5, Action.REPLACE, "changed; discards 20.0 node-hours of work"),
    ],
)
def test_same_change_on_many_jobs_states_their_total_loss(
    hours: tuple[float, ...], action: Action, said: str
) -> None:
    stack = a_stack(*(a_job(str(n)) for n in range(5)))
    jobs = [seen(a_job(str(n), **OLD), ran_s=ran_h * HOUR, node_count=8) for n, ran_h in enumerate(hours)]
    [group] = fold(plan_for(stack, *jobs).actions)
    assert group.first.action is action
    assert said in group.explanation


# --- reruns


@pytest.mark.parametrize(
    ("case", "is_refused"),
    [
        (rerunning(4, 4), False),
        (rerunning(5, 5), True),
        (rerunning(5, 16), True),
        (rerunning(5, 17), False),
        (rerunning(1, 100, reruns=1, reruns_percent=0), True),
        (rerunning(50, 100, reruns=60), False),
        (rerunning(50, 100, reruns_percent=51), False),
    ],
)
def test_reruns_are_refused_from_5_keys_and_30_percent(case: Case, is_refused: bool) -> None:
    assert bool(case.plan().refusals) is is_refused


def test_reruns_are_counted_in_the_refusal_and_in_the_last_line() -> None:
    stack, jobs, _ = rerunning(6, 8)
    plan = plan_for(stack, *jobs[:7])
    [refusal] = plan.refusals
    assert refusal.why.startswith(
        "6 of the 7 jobs to start run finished work again, of 8 keys of stack vision"
    )
    assert plan.last_line.endswith("1 to keep. 6 of them run finished work again.")


def test_creates_of_failed_or_new_jobs_are_no_reruns() -> None:
    stack = a_stack(*(a_job(str(n)) for n in range(12)))
    failed = [seen(a_job(str(n), **OLD), phase="Failed") for n in range(6)]
    plan = plan_for(stack, *failed)
    assert plan.summary[Action.CREATE] == 12
    assert not plan.refusals


def test_create_after_an_aged_out_completed_job_counts_as_rerun() -> None:
    keys = [str(n) for n in range(5)]
    stack = a_stack(*map(a_job, keys), a_job("other"))
    known = a_memory(*(past(a_job(key, **OLD)) for key in keys))
    [refusal] = plan_for(stack, seen(a_job("other")), memory=known).refusals
    assert "--allow reruns" in str(refusal.fix)


# --- an empty manifest


def test_manifest_without_jobs_is_refused_unless_allowed() -> None:
    assert plan_for(a_stack(), seen(a_job()), allow=("empty",)).applyable
    assert not plan_for(a_stack(absent()), seen(a_job())).refusals


# --- what may be allowed


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["lost-wrok"], 'did you mean "lost-work"?'),
        (["everything"], "lost-work, terminations, reruns, found-nothing, empty, budget"),
        ([""], "is not one of"),
        (["lost-work="], "lost-work=KEY"),
        (["terminations=a"], "lost-work=KEY"),
    ],
)
def test_unknown_guard_name_is_refused(words: list[str], said: str) -> None:
    with pytest.raises(ValueError, match="lost-work") as error:
        Allowances.of(words)
    assert said in str(error.value)


def test_allowances_round_trip_through_their_words() -> None:
    for allowances in (Allowances.of(["lost-work=b", "reruns"], allow_empty=True), Allowances.of(force=True)):
        assert Allowances.of(allowances.words) == allowances


# --- protection


PROTECTED: dict[str, Any] = {"protect": True}
RELEASED: dict[str, Any] = {"protect": False}


@pytest.mark.parametrize(
    ("entry", "jobs", "expected"),
    [
        # entry or no entry, by the marker or by the manifest
        (None, [seen(a_job(), protected=True)], Action.BLOCKED),
        (absent(), [seen(a_job(), protected=True)], Action.BLOCKED),
        (absent(**PROTECTED), [seen(a_job())], Action.BLOCKED),
        (a_job(), [seen(a_job(**OLD), protected=True)], Action.BLOCKED),
        (a_job(lifecycle=PROTECTED), [seen(a_job(**OLD))], Action.BLOCKED),
        (a_job(lifecycle={"on_change": "replace", **PROTECTED}), [seen(a_job(**OLD))], Action.BLOCKED),
        # superseded
        (a_job(), [seen(a_job(**OLD), protected=True), seen(a_job(), revision=2)], Action.BLOCKED),
        (a_job(lifecycle=PROTECTED), [seen(a_job(**OLD)), seen(a_job(), revision=2)], Action.BLOCKED),
        # released: an update now, the end in the next plan
        (absent(**RELEASED), [seen(a_job(), protected=True)], Action.UPDATE),
        (absent(**RELEASED), [seen(a_job())], Action.TERMINATE),
        (a_job(lifecycle=RELEASED), [seen(a_job(), protected=True)], Action.UPDATE),
        # not along with a change
        (a_job(lifecycle=RELEASED), [seen(a_job(**OLD), protected=True)], Action.BLOCKED),
    ],
)
def test_protected_job_is_never_terminated(
    entry: DesiredJob | None, jobs: list[ObservedJob], expected: Action
) -> None:
    stack = a_stack(a_job("other"), *([entry] if entry else []))
    for allowed in (False, True):
        actions = [a for a in plan_for(stack, *jobs, force=allowed).actions if _is_about(a, jobs[0])]
        assert [action.action for action in actions] == [expected]
        if expected is Action.BLOCKED:
            assert "set `protect: false` first" in actions[0].detail


def _is_about(action: PlannedAction, job: ObservedJob) -> bool:
    return action.before is not None and action.before.id == job.id


def test_destroy_is_exempt_from_guards_and_keeps_protected_jobs() -> None:
    from reconciler.core.observed.job import Observation
    from reconciler.core.observed.ownership import sort_by_key
    from reconciler.core.planning.action_builder import PlanContext
    from reconciler.core.planning.planner import Snapshot

    jobs = [seen(a_job(str(n)), ran_s=30 * HOUR, node_count=8) for n in range(6)]
    jobs += [
        seen(a_job("marked"), protected=True),
        seen(a_job("released"), protected=True),
        seen(a_job("declared")),
        seen(a_job("done"), phase="Completed"),
        seen(a_job("other"), stack="other"),
    ]
    stack = a_stack(
        a_job("0"),
        a_job("declared", lifecycle={"protect": True}),
        a_job("released", lifecycle={"protect": False}),
    )
    look = Snapshot(sort_by_key(Observation(tuple(jobs)), "vision", stack.declared_keys), {})
    plan = make_destroy_plan(stack, look, PlanContext("vision"), TARGET, manifest_digest="", version="0")
    by_action = {a: [x.key for x in plan.actions if x.action is a] for a in Action}
    assert by_action[Action.TERMINATE] == [str(n) for n in range(6)]
    assert by_action[Action.BLOCKED] == ["declared", "marked", "released"]
    assert len(plan.actions) == 9
    assert not plan.refusals
