"""docs/concepts/guards.md: what a plan must not do unless allowed."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, NamedTuple, get_args

import pytest

from reconciler.core.lifecycle import Lifecycle, ReplaceOrder
from reconciler.core.observed import ObservedJob
from reconciler.core.phase import Phase
from reconciler.core.record import NO_HISTORY, HistorySnapshot
from reconciler.core.stack import DesiredJob, Limits, Policy, Stack
from reconciler.core.values import PreflightReason
from reconciler.decide.guards import REFUSES_THE_PLAN, CatalogCheck, blockers, limit_actions
from reconciler.decide.plan import Action, Allowances, Guard, Plan, PreflightFinding, Reason
from reconciler.decide.planner import guarded_plan, propose_plan
from reconciler.errors import ExitCode
from reconciler.render.plan import explain_group, grouping_key
from reconciler.render.text import group_by
from tests.builders import HOUR, TARGET, a_job, a_stack, absent, seen
from tests.core.history import a_memory, past
from tests.core.test_cost import bounded
from tests.core.test_decision_table import plan_for
from tests.core.test_policies import a_policy
from tests.core.worlds import a_context, a_world

OLD: dict[str, Any] = {"algorithm__parameters": {"lr": 9}}
FIVE = [a_job(str(n)) for n in range(5)]


class Case(NamedTuple):
    """A stack, its jobs and its history."""

    stack: Stack
    jobs: list[ObservedJob]
    memory: HistorySnapshot = NO_HISTORY

    def plan(self, **allowed: Any) -> Plan:
        """Plan it."""
        return plan_for(self.stack, *self.jobs, memory=self.memory, **allowed)


def ending(stopping: int, active: int, **limits: float) -> Case:
    """A stack with `stopping` of its `active` jobs removed from the manifest."""
    kept = [a_job(f"keep-{n}") for n in range(active - stopping)]
    ended = [a_job(f"end-{n}") for n in range(stopping)]
    stack = a_stack(a_job("new"), *kept, limits=Limits.model_validate(limits))
    return Case(stack, [seen(job) for job in (*kept, *ended)])


def losing(node_hours: float, limit: float = 24, lifecycle: dict[str, Any] | None = None) -> Case:
    """One edited job that has run for half an hour, on as many nodes as it takes."""
    stack = a_stack(a_job(lifecycle=lifecycle), limits=Limits(lost_node_hours=limit))
    return Case(stack, [seen(a_job(**OLD), ran_s=HOUR / 2, node_count=round(node_hours * 2))])


def rerunning(again: int, keys: int, **limits: float) -> Case:
    """A stack with completed keys that were edited since."""
    edited = [a_job(f"edited-{n}") for n in range(again)]
    same = [a_job(f"same-{n}") for n in range(keys - again)]
    before = [a_job(job.key, **OLD) for job in edited]
    stack = a_stack(*edited, *same, limits=Limits.model_validate(limits))
    return Case(stack, [seen(job, phase="Completed") for job in (*before, *same)])


def losing_sight(*phases: Phase) -> Case:
    """A stack whose recorded jobs, in these phases, are all missing."""
    known = (past(a_job(f"old-{n}", **OLD), phase=phase) for n, phase in enumerate(phases))
    return Case(a_stack(a_job("new")), [], a_memory(*known))


def in_view(active: int) -> Case:
    """Five edited jobs in view, among further active ones out of view."""
    others = [a_job(f"other-{n}") for n in range(active - 5)]
    stack = a_stack(*FIVE, *others)
    stack = replace(stack, jobs={job.key: job for job in FIVE}, whole=stack.jobs, is_partial=True)
    return Case(stack, [*(seen(a_job(job.key, **OLD)) for job in FIVE), *map(seen, others)])


def with_ended(case: Case, count: int) -> Case:
    ended = [seen(a_job(f"old-{n}"), phase="Completed") for n in range(count)]
    return case._replace(jobs=[*ended, *case.jobs])


class Stops(NamedTuple):
    """What a guard stops: the whole plan, or only some keys."""

    case: Case
    keys: tuple[str, ...] = ()


def with_more(case: Case, *jobs: DesiredJob) -> Case:
    """The case with further entries in the manifest."""
    stack = case.stack
    return case._replace(stack=a_stack(*stack.jobs.values(), *jobs, limits=stack.limits))


def over_budget() -> Case:
    return Case(a_stack(bounded("big", hours=100, nodes=1), limits=Limits(node_hours=50)), [])


STOPS = {
    Guard.EMPTY: Stops(Case(a_stack(), [seen(a_job())])),
    Guard.FOUND_NOTHING: Stops(losing_sight(Phase.RUNNING)),
    Guard.TERMINATIONS: Stops(ending(5, 16)),
    Guard.LOST_WORK: Stops(with_more(losing(24.5), a_job("new")), ("a",)),
    Guard.RERUNS: Stops(with_more(rerunning(5, 15), a_job("new")), tuple(f"edited-{n}" for n in range(5))),
    Guard.BUDGET: Stops(with_more(over_budget(), absent("gone")), ("big",)),
}
BY_KEY = [guard for guard, stops in STOPS.items() if stops.keys]


def test_every_guard_refuses_the_plan_or_blocks_keys() -> None:
    assert STOPS.keys() == set(Guard)
    assert {*STOPS} - {*BY_KEY} == REFUSES_THE_PLAN


@pytest.mark.parametrize("guard", sorted(REFUSES_THE_PLAN))
def test_plan_guard_refuses_the_plan_and_blocks_no_key(guard: Guard) -> None:
    plan = STOPS[guard].case.plan()
    [refusal] = plan.refusals
    assert f"--allow {guard.value}" in str(refusal.fix)
    assert plan.to_execute
    assert not plan.applyable
    assert not plan.blocked
    assert plan.exit_code(detailed=False) is ExitCode.REFUSED


@pytest.mark.parametrize("guard", BY_KEY)
def test_key_guard_blocks_its_keys_only(guard: Guard) -> None:
    case, keys = STOPS[guard]
    plan, free = case.plan(), case.plan(force=True)
    assert not plan.refusals
    assert tuple(action.key for action in plan.blocked) == keys
    planned = {action.key: action for action in free.actions}
    for action in plan.actions:
        if action.key not in keys:
            assert action == planned[action.key]
            continue
        assert (action.action, action.reason) == (Action.BLOCKED, Reason.GUARD)
        assert (action.blocked_action, action.blocked_by) == (planned[action.key].action, (guard.value,))
        assert action.detail.startswith(f"guard {guard.value}: ")
        assert f"--allow {guard.value}" in action.detail
        assert (action.after, action.desired, action.lost_node_hours) == (None, None, 0)
    assert plan.summary[Action.BLOCKED] == len(keys)
    assert f"{len(keys)} blocked" in plan.last_line
    assert "again" not in plan.last_line
    assert plan.exit_code(detailed=True) is ExitCode.REFUSED
    [diagnostic] = blockers(plan)
    assert f"blocks {', '.join(keys)}: " in diagnostic.why
    assert f"--allow {guard.value}" in str(diagnostic.fix)


@pytest.mark.parametrize("guard", BY_KEY)
def test_plan_with_every_key_blocked_executes_none_of_them(guard: Guard) -> None:
    case, keys = STOPS[guard]
    plan = Case(a_stack(*(case.stack.jobs[key] for key in keys), limits=case.stack.limits), case.jobs).plan()
    assert {action.key for action in plan.blocked} == {*keys}
    assert not any(action.key in keys for action in plan.to_execute)
    assert plan.applyable is bool(plan.to_execute)


@pytest.mark.parametrize("guard", STOPS)
def test_guard_is_lifted_only_by_allowing_its_own_name(guard: Guard) -> None:
    case = STOPS[guard].case
    for other in Guard:
        plan = case.plan(allow=(other.value,))
        assert bool(plan.refusals or plan.blocked) is (other is not guard)
    assert not case.plan(force=True).refusals
    assert not case.plan(force=True).blocked


def test_refusals_of_several_guards_name_each_guard() -> None:
    jobs = [seen(a_job(f"end-{n}"), ran_s=HOUR, node_count=1) for n in range(5)]
    refusals = plan_for(a_stack(), *jobs).refusals
    named = [str(refusal.fix).partition("--allow ")[2] for refusal in refusals]
    assert named == ["empty", "terminations"]
    assert plan_for(a_stack(), *jobs, allow=("empty", "terminations")).applyable


def test_detail_of_a_blocked_key_names_its_action_without_growing_figures() -> None:
    stack, jobs, _ = losing(24.5)
    [early], [late] = (
        plan_for(stack, replace(job, duration_s=(job.duration_s or 0) + more)).actions
        for job in jobs
        for more in (0, 60)
    )
    assert early.detail == late.detail
    assert early.detail == (
        "guard lost-work: more than 24 node-hours of work would be discarded in all; add --allow lost-work, "
        "or --allow lost-work=KEY for one key; blocks replace: algorithm.parameters.lr changed"
    )
    assert early.explanation.endswith("; would discard 30 min of work on 49 nodes")


# --- the order: policies and pre-flight, lost-work, reruns, budget, terminations


def denied(*keys: str) -> tuple[Policy, ...]:
    return (a_policy(" || ".join(f'job.key == "{key}"' for key in keys)),)


def test_key_denied_by_policy_is_not_counted_by_guards() -> None:
    stack, jobs, _ = rerunning(5, 5)
    plan = plan_for(replace(stack, policies=denied("edited-0")), *jobs)
    assert {action.key: action.reason for action in plan.blocked} == {"edited-0": Reason.DENIED}
    assert plan.summary[Action.CREATE] == 4
    assert plan.last_line.endswith("1 blocked. 4 of them run finished work again.")


def test_key_blocked_by_preflight_is_not_counted_by_guards() -> None:
    stack, jobs, _ = rerunning(5, 5)
    look = a_world(stack, *jobs).look
    proposed = propose_plan(stack, look, a_context(limits=stack.limits), TARGET)
    finding = PreflightFinding(key="edited-0", reason=PreflightReason.FLAVOR_NOT_OFFERED, detail="no")
    plan = guarded_plan(proposed, CatalogCheck((finding,)))
    assert {action.key: action.reason for action in plan.blocked} == {"edited-0": Reason.PREFLIGHT}
    assert plan.summary[Action.CREATE] == 4


def test_key_blocked_by_the_reruns_guard_is_not_counted_by_the_budget() -> None:
    before = [a_job(str(n), **OLD) for n in range(5)]
    again = [bounded(str(n), hours=10, nodes=1) for n in range(5)]
    new = bounded("new", hours=10, nodes=1)
    stack = a_stack(*again, new, limits=Limits(node_hours=45))
    done = [seen(job, phase="Completed") for job in before]
    assert {one.blocked_by for one in plan_for(stack, *done).blocked} == {("reruns",)}
    assert [one.key for one in plan_for(stack, *done).to_execute] == ["new"]
    allowed = plan_for(stack, *done, allow=("reruns",))
    assert {one.blocked_by for one in allowed.blocked} == {("budget",)}
    assert allowed.summary[Action.BLOCKED] == 6


def test_key_blocked_by_the_lost_work_guard_is_not_counted_by_terminations() -> None:
    jobs = [seen(a_job(f"end-{n}"), ran_s=HOUR, node_count=9) for n in range(5)]
    plan = plan_for(a_stack(a_job("new")), *jobs)
    assert {one.blocked_by for one in plan.blocked} == {("lost-work",)}
    assert not plan.refusals
    [refusal] = plan_for(a_stack(a_job("new")), *jobs, allow=("lost-work",)).refusals
    assert "--allow terminations" in str(refusal.fix)


# --- needs of a blocked key


def test_create_that_needs_a_blocked_key_is_deferred() -> None:
    stack = replace(
        a_stack(a_job("first"), replace(a_job("then"), needs=("first",))), policies=denied("first")
    )
    first, then = plan_for(stack).actions
    assert (first.action, first.blocked_action) == (Action.BLOCKED, Action.CREATE)
    assert (then.action, then.reason) == (Action.DEFER, Reason.NEEDS_PENDING)


@pytest.mark.parametrize("lifecycle", [{}, {"on_change": "replace"}])
def test_replace_needing_a_key_with_a_denied_update_is_deferred(lifecycle: dict[str, Any]) -> None:
    first = a_job("first", lifecycle={"protect": True})
    then = replace(a_job("then", lifecycle=lifecycle), needs=("first",))
    stack = replace(a_stack(first, then), policies=denied("first"))
    jobs = [seen(a_job("first"), phase="Completed"), seen(a_job("then", **OLD))]
    update, deferred = plan_for(stack, *jobs).actions
    assert (update.action, update.blocked_action) == (Action.BLOCKED, Action.UPDATE)
    assert (deferred.action, deferred.waits_for) == (Action.DEFER, ("first",))
    assert deferred.detail.startswith("waiting for first, which is blocked; then replace")


# --- explicitly requested: one notion for all guards


#: Requests, and the lifecycle that expresses them.
WORDS: dict[str, dict[str, Any]] = {
    "nothing": {},
    "on_change: replace": {"on_change": "replace"},
    "overlap: replace": {"schedule": "* * * * *", "overlap": "replace"},
    "schedule": {"schedule": "* * * * *"},
    "on_upstream: rerun": {"on_upstream": "rerun"},
    "rerun": {"rerun": "2"},
}


def of_words(word: str, *, is_active: bool) -> Plan:
    """Plan five keys with a request; each has an active or a completed job."""
    loss: dict[str, Any] = {"ran_s": HOUR / 2, "node_count": 10} if is_active else {"phase": "Completed"}
    entries, jobs = [], []
    for key in "01234":
        job = absent(key) if word == "state: absent" else a_job(key, lifecycle=WORDS[word])
        if word == "on_upstream: rerun":
            up = a_job(f"{key}-up")
            job = replace(job, needs=(up.key,))
            entries.append(up)
            jobs.append(seen(up, phase="Completed", ended_s_ago=HOUR))
        is_edited = word in ("nothing", "on_change: replace", "state: absent")
        before = a_job(key, **OLD) if is_edited else replace(job, digest=a_job(key).digest)
        entries.append(job)
        jobs.append(seen(before, **loss))
    return plan_for(a_stack(*entries), *jobs)


ENDS = ["on_change: replace", "overlap: replace", "state: absent", "rerun"]
RERUNS = ["on_change: replace", "schedule", "overlap: replace", "on_upstream: rerun", "rerun"]


def test_unrequested_terminations_and_reruns_are_counted_by_guards() -> None:
    assert {one.blocked_by for one in of_words("nothing", is_active=True).blocked} == {("lost-work",)}
    assert {one.blocked_by for one in of_words("nothing", is_active=False).blocked} == {("reruns",)}


@pytest.mark.parametrize(
    ("word", "is_active"), [(word, True) for word in ENDS] + [(word, False) for word in RERUNS]
)
def test_requested_terminations_and_reruns_are_not_counted_by_guards(word: str, is_active: bool) -> None:
    plan = of_words(word, is_active=is_active)
    assert (plan.refusals, plan.blocked) == ((), ())
    assert plan.lost_node_hours == (25 if is_active else 0)
    counted = [
        one for one in plan.actions if (one.traits.stops_a_job if is_active else one.traits.starts_a_job)
    ]
    assert len(counted) == 5


# --- limits


@pytest.mark.parametrize(
    ("case", "guard"),
    [
        # from 5 jobs and 30 %
        (ending(4, 4), None),
        (ending(5, 5), Guard.TERMINATIONS),
        (ending(5, 16), Guard.TERMINATIONS),
        (ending(5, 17), None),
        (ending(1, 100, terminations=1, terminations_percent=0), Guard.TERMINATIONS),
        (ending(50, 100, terminations=60), None),
        (ending(5, 8, terminations_percent=62.6), None),
        # over the whole stack, not only the keys in view
        (in_view(16), Guard.TERMINATIONS),
        (in_view(17), None),
        # replaces count, and jobs that have ended are not among the active ones
        (Case(a_stack(*FIVE), [seen(a_job(job.key, **OLD)) for job in FIVE]), Guard.TERMINATIONS),
        (with_ended(ending(5, 5), 50), Guard.TERMINATIONS),
        # over the limit, not at it
        (losing(24), None),
        (losing(24.5), Guard.LOST_WORK),
        (losing(0.5, limit=0), Guard.LOST_WORK),
        (rerunning(4, 4), None),
        (rerunning(5, 5), Guard.RERUNS),
        (rerunning(5, 16), Guard.RERUNS),
        (rerunning(5, 17), None),
        (rerunning(1, 100, reruns=1, reruns_percent=0), Guard.RERUNS),
        # failed and new jobs run no finished work again, one that has aged out does
        (Case(a_stack(*FIVE), [seen(a_job(job.key, **OLD), phase="Failed") for job in FIVE]), None),
        (Case(a_stack(*FIVE), [], a_memory(*(past(a_job(job.key, **OLD)) for job in FIVE))), Guard.RERUNS),
        # jobs last seen active are missing
        (losing_sight(Phase.COMPLETED, Phase.PENDING), Guard.FOUND_NOTHING),
        (losing_sight(Phase.COMPLETED, Phase.FAILED, Phase.TERMINATED, Phase.ABNORMAL), None),
        (losing_sight(), None),
        (losing_sight(Phase.RUNNING)._replace(jobs=[seen(a_job("old-9"))]), None),
        (
            losing_sight(Phase.RUNNING)._replace(jobs=[seen(a_job("new"), stack="other", name="x")]),
            Guard.FOUND_NOTHING,
        ),
        (Case(a_stack(absent()), [seen(a_job())]), None),
    ],
)
def test_guard_applies_above_its_limit(case: Case, guard: Guard | None) -> None:
    plan = case.plan()
    assert {name for one in plan.blocked for name in one.blocked_by} == (
        {guard} if guard in BY_KEY else set()
    )
    fixes = [str(one.fix).partition("--allow ")[2] for one in plan.refusals]
    assert fixes == ([guard] if guard in REFUSES_THE_PLAN else [])


# --- lost work


LOSS: dict[str, Any] = {"ran_s": 10 * HOUR, "node_count": 3}


@pytest.mark.parametrize(
    ("lifecycle", "before"),
    [
        ({"on_change": "replace"}, a_job(**OLD)),
        ({"overlap": "replace", "schedule": "0 0 1 1 *"}, a_job()),
    ],
)
@pytest.mark.parametrize("order", get_args(ReplaceOrder))
def test_requested_replace_also_covers_ending_the_old_job_with_create_first(
    lifecycle: dict[str, Any], before: DesiredJob, order: ReplaceOrder
) -> None:
    job = a_job(lifecycle={**lifecycle, "replace_order": order})
    jobs = [seen(before, **LOSS), seen(job, revision=2, ran_s=11 * HOUR)]
    ended, kept = plan_for(a_stack(job), *jobs).actions
    expected = Action.TERMINATE if order == "create_first" else Action.BLOCKED
    assert ended.action is expected
    assert not kept.traits.starts_a_job


def test_lost_work_is_summed_without_the_allowed_keys() -> None:
    jobs = [seen(a_job(key), ran_s=HOUR, node_count=nodes) for key, nodes in (("x", 10), ("y", 15))]
    stack = a_stack(a_job("other"))
    assert [one.key for one in plan_for(stack, *jobs).blocked] == ["x", "y"]
    [diagnostic] = blockers(plan_for(stack, *jobs))
    assert diagnostic.why == "blocks x, y: 25 node-hours of running work would be discarded"
    assert not plan_for(stack, *jobs, allow=("lost-work=x",)).blocked
    assert plan_for(stack, *jobs, allow=("lost-work=other",)).blocked


# --- a long run is not replaced without being requested


@pytest.mark.parametrize(
    ("hours", "action", "message"),
    [
        ((2, 3, 4, 5, 6), Action.CONFLICT, "changed; would lose 160 node-hours; set `on_change: replace`"),
        ((0.1, 0.2, 0.3, 0.4, 0.5), Action.REPLACE, "changed; discards 12 node-hours of work"),
    ],
)
def test_same_change_on_many_jobs_states_their_total_loss(
    hours: tuple[float, ...], action: Action, message: str
) -> None:
    stack = a_stack(*(a_job(str(n)) for n in range(5)))
    jobs = [seen(a_job(str(n), **OLD), ran_s=ran_h * HOUR, node_count=8) for n, ran_h in enumerate(hours)]
    [group] = group_by(plan_for(stack, *jobs, allow=("terminations",)).actions, grouping_key)
    assert group[0].action is action
    assert message in explain_group(group)


# --- reruns


def test_reruns_are_counted_in_detail_and_last_line() -> None:
    stack, jobs, _ = rerunning(6, 8)
    blocked = plan_for(stack, *jobs[:7]).blocked
    assert "6 of 8 keys would run finished work again; the limits are 5 keys and 30 %" in blocked[0].detail
    plan = plan_for(stack, *jobs[:7], allow=("reruns",))
    assert plan.last_line.endswith("1 to keep. 6 of them run finished work again.")


def test_reruns_are_counted_without_the_allowed_keys() -> None:
    stack, jobs, _ = rerunning(6, 8)
    allowed = plan_for(stack, *jobs, allow=("reruns=edited-0",))
    assert [one.key for one in allowed.to_execute] == ["edited-0"]
    assert len(allowed.blocked) == 5
    assert not plan_for(stack, *jobs, allow=("reruns=edited-0", "reruns=edited-1")).blocked


# --- budget


@pytest.mark.parametrize(("chosen", "jobs"), [("create", []), ("replace", [seen(a_job("then", **OLD))])])
def test_budget_counts_deferred_creates(chosen: str, jobs: list[ObservedJob]) -> None:
    then = replace(bounded("then", hours=30, nodes=1), needs=("first",))
    stack = a_stack(bounded("first", hours=10, nodes=1), then, limits=Limits(node_hours=35))
    first, deferred = plan_for(stack, *jobs).actions
    assert (deferred.action, deferred.cost and deferred.cost.node_hours_max) == (Action.DEFER, 30)
    assert chosen in deferred.detail
    assert (first.action, first.blocked_by) == (Action.BLOCKED, ("budget",))
    enough = plan_for(replace(stack, limits=Limits(node_hours=40)), *jobs)
    assert (enough.blocked, enough.cost and enough.cost.node_hours_max) == ((), 40)


def test_budget_omits_creates_waiting_for_a_blocked_key() -> None:
    """It does not start in this apply, and must not block unrelated keys."""
    then = replace(bounded("then", hours=30, nodes=1), needs=("first",))
    last = replace(bounded("last", hours=30, nodes=1), needs=("then",))
    stack = a_stack(bounded("first", hours=10, nodes=1), then, last, bounded("other", hours=10, nodes=1))
    stack = replace(stack, limits=Limits(node_hours=20), policies=denied("first"))
    plan = plan_for(stack)
    assert [(one.key, one.action) for one in plan.actions] == [
        ("first", Action.BLOCKED),
        ("last", Action.DEFER),
        ("other", Action.CREATE),
        ("then", Action.DEFER),
    ]


def test_budget_counts_a_retry_that_is_due_later() -> None:
    retried = bounded("retried", hours=30, nodes=1)
    retried = replace(
        retried, lifecycle=Lifecycle.model_validate({"on_failure": "retry", "retry_delay": "9h"})
    )
    stack = a_stack(bounded("new", hours=10, nodes=1), retried, limits=Limits(node_hours=35))
    new, later = plan_for(stack, seen(retried, phase="Failed", ended_s_ago=0)).actions
    assert (later.action, later.reason) == (Action.DEFER, Reason.RETRY_LATER)
    assert new.blocked_by == ("budget",)


# --- allowances


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["lost-wrok"], 'did you mean "lost-work"?'),
        (["everything"], "lost-work, terminations, reruns, found-nothing, empty, budget"),
        ([""], "is not one of"),
        (["lost-work="], "lost-work=KEY or reruns=KEY"),
        (["terminations=a"], "lost-work=KEY or reruns=KEY"),
    ],
)
def test_unknown_guard_name_is_refused(words: list[str], message: str) -> None:
    with pytest.raises(ValueError, match="lost-work") as error:
        Allowances.of(words)
    assert message in str(error.value)


# --- protection


def test_destroy_is_exempt_from_guards_and_keeps_protected_jobs() -> None:
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
    plan = a_world(stack, *jobs).destroy_plan()
    by_action = {a: [x.key for x in plan.actions if x.action is a] for a in Action}
    assert by_action[Action.TERMINATE] == [str(n) for n in range(6)]
    assert by_action[Action.BLOCKED] == ["declared", "marked", "released"]
    assert len(plan.actions) == 9
    assert (plan.refusals, plan.applyable) == ((), True)


def test_refusal_of_a_plan_with_a_single_action_uses_the_singular() -> None:
    [refusal] = limit_actions(plan_for(a_stack(a_job())), 0).refusals
    assert refusal.why == "the plan has 1 action; --max-actions allows 0"
