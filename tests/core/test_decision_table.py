"""docs/semantics.md, "Decisions", row by row: manifest x observed -> action and reason.

Every row is decided in three workspaces: an empty one, one where 350 jobs of others stand before ours, and
the same without a history, as in a fresh checkout. The decision is the same.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextvars import ContextVar
from enum import Enum
from typing import Any

import pytest

from reconciler.core.fields.field_types import Cloud
from reconciler.core.observed import Observation, ObservedJob, Unreadable
from reconciler.core.ownership import sort_by_key
from reconciler.core.phase import Phase
from reconciler.core.record import NO_HISTORY, HistorySnapshot
from reconciler.core.stack import DesiredJob, Stack
from reconciler.decide.key_state import PlanContext, Snapshot
from reconciler.decide.plan import Action, Allowances, Plan, PlannedAction, Reason
from reconciler.decide.planner import make_plan
from reconciler.expressions.evaluator import evaluate
from tests.builders import HOUR, NOW, STACK, TARGET, a_job, a_stack, absent, seen
from tests.crowd import as_recorded, plan_among_foreign_jobs

C, P, R, T = Phase.CREATING, Phase.PENDING, Phase.RUNNING, Phase.TERMINATING
DONE, F, TD, AB = Phase.COMPLETED, Phase.FAILED, Phase.TERMINATED, Phase.ABNORMAL

OLD: dict[str, Any] = {"algorithm__parameters": {"lr": 0.5}}
LONG = 10 * HOUR


class Around(Enum):
    """What stands around the jobs of a row."""

    NOTHING = "an empty workspace"
    FOREIGN = "350 foreign jobs"
    FOREIGN_FRESH = "350 foreign jobs, a fresh checkout"


_AROUND = ContextVar("around", default=Around.NOTHING)


@pytest.fixture(params=Around, ids=lambda around: around.value, autouse=True)
def around(request: pytest.FixtureRequest) -> Iterator[Around]:
    token = _AROUND.set(request.param)
    yield request.param
    _AROUND.reset(token)


def plan_for(
    stack: Stack,
    *jobs: ObservedJob,
    unreadable: tuple[Unreadable, ...] = (),
    is_whole: bool = True,
    problem: str | None = None,
    details: dict[str, ObservedJob] | None = None,
    cloud: Cloud = Cloud.HUAWEI,
    force: bool = False,
    allow: tuple[str, ...] = (),
    memory: HistorySnapshot = NO_HISTORY,
) -> Plan:
    allowances = Allowances.of(allow, force=force)
    could_read = is_whole and problem is None and details is None and not unreadable
    if _AROUND.get() is not Around.NOTHING and could_read:
        if _AROUND.get() is Around.FOREIGN and memory is NO_HISTORY:
            memory = as_recorded(jobs, STACK)
        return plan_among_foreign_jobs(stack, jobs, memory, cloud, allowances)
    observation = Observation(jobs, unreadable, is_whole, problem)
    declared = stack.declared_keys | frozenset(stack.jobs) | stack.former_keys
    ownership = sort_by_key(observation, STACK, declared)
    known = {job.id: job for job in jobs} if details is None else details
    situation = PlanContext(
        STACK, cloud=cloud, at_s=NOW, limits=stack.limits, allowances=allowances, evaluate=evaluate
    )
    return make_plan(
        stack,
        Snapshot(ownership, known, memory=memory),
        situation,
        TARGET,
        manifest_digest="sha256:0",
        version="0",
    )


def decided(desired: DesiredJob, *jobs: ObservedJob, **more: Any) -> PlannedAction:
    """The one action for a key."""
    [action] = plan_for(a_stack(desired), *jobs, **more).actions
    return action


def outcome(action: PlannedAction) -> tuple[Action, Reason, int | None]:
    return action.action, action.reason, action.after.revision if action.after else None


# --- nothing owned


def test_key_without_a_job_is_created_as_the_first_revision() -> None:
    action = decided(a_job())
    assert outcome(action) == (Action.CREATE, Reason.NOT_FOUND, 1)
    assert action.before is None
    assert action.after is not None
    assert action.after.name == "a"
    assert action.desired is not None
    assert action.desired["metadata"]["description"] == f"reconciler.vision.a.r1.{a_job().digest}"


@pytest.mark.parametrize("stack", ["other", None])
@pytest.mark.parametrize("revision", [1, 2, 4, 10_000])
@pytest.mark.parametrize("phase", [R, DONE])
def test_key_without_owned_revision_conflicts_with_any_job_of_its_names(
    stack: str | None, revision: int, phase: Phase
) -> None:
    holder = seen(key="a", revision=revision, stack=stack or "x", phase=phase)
    if stack is None:
        holder = seen(key="a", revision=revision, phase=phase, description="by hand")
    found = decided(a_job(), holder)
    assert (found.action, found.reason) == (Action.CONFLICT, Reason.NAME_TAKEN)
    assert holder.id in found.detail


def test_newer_foreign_revision_is_a_conflict() -> None:
    desired = a_job()
    found = decided(desired, seen(desired), seen(key="a", revision=2, stack="other", phase=DONE))
    assert (found.action, found.reason) == (Action.CONFLICT, Reason.NAME_TAKEN)


def test_older_foreign_revision_is_no_conflict() -> None:
    desired = a_job()
    found = decided(desired, seen(desired, revision=3), seen(key="a", revision=2, stack="other"))
    assert found.action is Action.KEEP


def test_revision_ten_thousand_is_followed_by_ten_thousand_and_one() -> None:
    found = decided(a_job(), seen(a_job(**OLD), revision=10_000, phase=DONE))
    assert outcome(found) == (Action.CREATE, Reason.IMMUTABLE_CHANGED, 10_001)


def test_revision_of_the_longest_key_is_blocked_at_the_name_length_limit() -> None:
    key = "k" * 58
    found = decided(a_job(key), seen(a_job(key, **OLD), revision=9_999, phase=DONE))
    assert (found.action, found.reason) == (Action.BLOCKED, Reason.NAME_TOO_LONG)
    found = decided(a_job(key), seen(a_job(key, **OLD), revision=9_998, phase=DONE))
    assert found.action is Action.CREATE


def test_key_reused_after_a_rename_is_created_after_the_job_with_its_name() -> None:
    of_new = a_job("new")
    job = seen(of_new, name="a", id_part="12345678", job_id="12345678-aaaa")
    actions = plan_for(a_stack(of_new, a_job()), job).actions
    assert [outcome(action) for action in actions] == [
        (Action.CREATE, Reason.NOT_FOUND, 2),
        (Action.KEEP, Reason.UNCHANGED, 1),
    ]


@pytest.mark.parametrize("phase", [R, DONE])
@pytest.mark.parametrize("revision", [1, 7])
def test_unmanaged_job_with_our_name_is_a_conflict(phase: Phase, revision: int) -> None:
    stranger = seen(key="a", revision=revision, phase=phase, description="by hand")
    action = decided(a_job(), stranger)
    assert (action.action, action.reason) == (Action.CONFLICT, Reason.NAME_TAKEN)
    assert "unmanaged" in action.detail


def by_hand(revision: int, phase: Phase = R) -> ObservedJob:
    return seen(key="a", revision=revision, phase=phase, description="by hand")


@pytest.mark.parametrize(
    ("jobs", "named"),
    [
        ([by_hand(1), by_hand(2)], "a-r2"),
        ([by_hand(1), by_hand(2, DONE)], "a"),
        ([by_hand(1, DONE), by_hand(3, F), by_hand(2, DONE)], "a-r3"),
        ([seen(key="a", stack="other"), by_hand(2, DONE)], "a-r2"),
        ([seen(key="a", stack="other", revision=3), seen(key="a", stack="other", revision=2)], "a-r2"),
        ([seen(a_job(), revision=2, phase=F), by_hand(1), by_hand(3, DONE)], "a-r3"),
    ],
    ids=["both active", "one active", "none active", "beside a foreign one", "foreign ones", "in the way"],
)
def test_conflict_names_the_job_that_adopt_all_takes(jobs: list[ObservedJob], named: str) -> None:
    action = decided(a_job(), *jobs)
    assert (action.action, action.reason) == (Action.CONFLICT, Reason.NAME_TAKEN)
    assert action.detail.startswith(f"{named} is taken by job ")


def test_foreign_job_with_the_name_of_the_next_revision_is_a_conflict() -> None:
    action = decided(a_job(), seen(key="a", stack="other"))
    assert action.action is Action.CONFLICT
    assert "stack other" in action.detail


def test_name_differing_in_case_only_is_a_clash() -> None:
    assert decided(a_job(), seen(key="A", description="")).action is Action.CONFLICT


def test_newer_unmanaged_revision_is_a_conflict_beside_our_running_job() -> None:
    desired = a_job()
    action = decided(desired, seen(desired), seen(key="a", revision=2, description=""))
    assert action.action is Action.CONFLICT


def test_older_unmanaged_revision_is_no_conflict() -> None:
    desired = a_job()
    action = decided(desired, seen(desired, revision=3), seen(key="a", revision=2, description=""))
    assert action.action is Action.KEEP


def test_job_with_a_copied_marker_is_not_owned() -> None:
    desired = a_job()
    copy = seen(desired, name="a-copy")
    assert outcome(decided(desired, copy)) == (Action.CREATE, Reason.NOT_FOUND, 1)


def test_conflict_with_a_copied_marker_says_that_it_was_copied() -> None:
    copied = seen(key="a", description=f"reconciler.vision.b.r1.a{'0' * 12}")
    assert "copied marker" in decided(a_job(), copied).detail


# --- the declared digest is the observed one


@pytest.mark.parametrize(
    ("phase", "lifecycle", "more", "action", "reason"),
    [
        (C, {}, {}, Action.KEEP, Reason.UNCHANGED),
        (P, {}, {}, Action.KEEP, Reason.UNCHANGED),
        (R, {}, {}, Action.KEEP, Reason.UNCHANGED),
        (DONE, {}, {}, Action.KEEP, Reason.COMPLETED),
        (DONE, {"on_failure": "retry", "on_terminated": "recreate"}, {}, Action.KEEP, Reason.COMPLETED),
        (T, {}, {}, Action.KEEP, Reason.TERMINATED_OUTSIDE),
        (T, {}, {"stopped": True}, Action.CREATE, Reason.WAITS_FOR_TERMINATION),
        (F, {}, {}, Action.KEEP, Reason.FAILED),
        (AB, {}, {}, Action.KEEP, Reason.FAILED),
        (F, {"on_failure": "retry"}, {}, Action.CREATE, Reason.RETRY),
        (AB, {"on_failure": "retry"}, {}, Action.CREATE, Reason.RETRY),
        (F, {"on_failure": "retry", "max_retries": 0}, {}, Action.KEEP, Reason.RETRIES_EXHAUSTED),
        (F, {"on_failure": "retry"}, {"ended_s_ago": 60}, Action.DEFER, Reason.RETRY_LATER),
        (F, {"on_terminated": "recreate"}, {}, Action.KEEP, Reason.FAILED),
        (TD, {}, {}, Action.KEEP, Reason.TERMINATED_OUTSIDE),
        (TD, {"on_failure": "retry"}, {}, Action.KEEP, Reason.TERMINATED_OUTSIDE),
        (TD, {"on_terminated": "recreate"}, {}, Action.CREATE, Reason.RECREATE),
        (TD, {"on_terminated": "recreate"}, {"ended_s_ago": 60}, Action.DEFER, Reason.RETRY_LATER),
        (TD, {}, {"stopped": True}, Action.CREATE, Reason.DECLARED_AGAIN),
    ],
)
def test_unchanged_job_has_action_by_phase_and_lifecycle(
    phase: Phase, lifecycle: dict[str, Any], more: dict[str, Any], action: Action, reason: Reason
) -> None:
    desired = a_job(lifecycle=lifecycle)
    found = decided(desired, seen(desired, phase=phase, **more))
    assert (found.action, found.reason) == (action, reason)
    if action is Action.CREATE:
        assert found.after is not None
        assert found.after.revision == 2


@pytest.mark.parametrize(
    ("ran_s", "action"), [(2 * HOUR, Action.KEEP), (2 * HOUR - 299, Action.KEEP), (HOUR, Action.CREATE)]
)
@pytest.mark.parametrize("phase", [F, AB, TD])
def test_job_ended_by_its_auto_stop_is_kept(phase: Phase, ran_s: float, action: Action) -> None:
    desired = a_job(
        spec__auto_stop={"time_unit": "HOURS", "duration": 2},
        lifecycle={"on_failure": "retry", "on_terminated": "recreate"},
    )
    found = decided(desired, seen(desired, phase=phase, ran_s=ran_s))
    assert found.action is action
    assert (found.reason is Reason.AUTO_STOPPED) == (action is Action.KEEP)


@pytest.mark.parametrize(
    ("failures", "ended_s_ago", "action"),
    [
        (1, 119, Action.DEFER),  # not before retry_delay (2m)
        (1, 121, Action.CREATE),
        (2, 239, Action.DEFER),  # x 2
        (2, 241, Action.CREATE),
        (3, 479, Action.DEFER),  # x 4
        (3, 481, Action.CREATE),
        (4, 10_000, Action.KEEP),  # at most max_retries (3)
    ],
)
def test_retries_are_counted_with_growing_delay(failures: int, ended_s_ago: float, action: Action) -> None:
    desired = a_job(lifecycle={"on_failure": "retry", "max_retries": 3})
    jobs = [seen(desired, revision=n, phase=F) for n in range(1, failures)]
    jobs.append(seen(desired, revision=failures, phase=AB, ended_s_ago=ended_s_ago))
    assert decided(desired, *jobs).action is action


def test_retry_count_restarts_after_another_declaration_or_a_success() -> None:
    desired = a_job(lifecycle={"on_failure": "retry", "max_retries": 1})
    before = [seen(desired, revision=1, phase=F), seen(a_job(**OLD), revision=2, phase=F)]
    assert decided(desired, *before, seen(desired, revision=3, phase=F)).action is Action.CREATE
    before[1] = seen(desired, revision=2, phase=DONE)
    assert decided(desired, *before, seen(desired, revision=3, phase=F)).action is Action.CREATE


# --- the declaration changed


@pytest.mark.parametrize(
    ("phase", "lifecycle", "more", "action", "reason"),
    [
        (C, {}, {}, Action.REPLACE, Reason.IMMUTABLE_CHANGED),
        (P, {}, {"ran_s": LONG}, Action.CONFLICT, Reason.WOULD_LOSE_WORK),
        (R, {}, {}, Action.REPLACE, Reason.IMMUTABLE_CHANGED),
        (R, {}, {"ran_s": HOUR}, Action.REPLACE, Reason.IMMUTABLE_CHANGED),
        (R, {}, {"ran_s": HOUR + 1}, Action.CONFLICT, Reason.WOULD_LOSE_WORK),
        (R, {"on_change": "replace"}, {"ran_s": LONG}, Action.REPLACE, Reason.IMMUTABLE_CHANGED),
        (R, {"on_change": "keep"}, {"ran_s": LONG}, Action.KEEP, Reason.CHANGE_IGNORED),
        (R, {"on_change": "fail"}, {}, Action.CONFLICT, Reason.CHANGE_REFUSED),
        (T, {}, {}, Action.CREATE, Reason.WAITS_FOR_TERMINATION),
        (T, {"on_change": "keep"}, {}, Action.KEEP, Reason.CHANGE_IGNORED),
        (T, {"on_change": "fail"}, {}, Action.CONFLICT, Reason.CHANGE_REFUSED),
        *[
            (phase, lifecycle, {}, action, reason)
            for phase in (DONE, F, TD, AB)
            for lifecycle, action, reason in [
                ({}, Action.CREATE, Reason.IMMUTABLE_CHANGED),
                ({"on_change": "replace"}, Action.CREATE, Reason.IMMUTABLE_CHANGED),
                ({"on_change": "keep"}, Action.KEEP, Reason.CHANGE_IGNORED),
                ({"on_change": "fail"}, Action.CONFLICT, Reason.CHANGE_REFUSED),
            ]
        ],
    ],
)
def test_changed_job_has_action_by_phase_and_lifecycle(
    phase: Phase, lifecycle: dict[str, Any], more: dict[str, Any], action: Action, reason: Reason
) -> None:
    desired = a_job(lifecycle=lifecycle)
    found = decided(desired, seen(a_job(**OLD), phase=phase, **more))
    assert (found.action, found.reason) == (action, reason)
    [change] = found.changes
    assert (change.path, change.before, change.after) == ("algorithm.parameters.lr", "0.5", "0.1")
    assert change.forces_new_job
    assert "algorithm.parameters.lr" in found.detail


def test_conflict_states_the_work_that_would_be_lost() -> None:
    found = decided(a_job(), seen(a_job(**OLD), ran_s=30 * HOUR, node_count=8))
    way_out = "set `on_change: replace`, or pass `--allow lost-work`"
    assert found.explanation == f"algorithm.parameters.lr changed; would lose 30 h on 8 nodes; {way_out}"
    assert found.detail == f"algorithm.parameters.lr changed; {way_out}"
    assert (found.elapsed, found.nodes, found.lost_node_hours) == (30 * HOUR, 8, 0)


@pytest.mark.parametrize("allow", ["lost-work", "lost-work=a"])
def test_long_running_job_is_replaced_when_its_loss_is_allowed(allow: str) -> None:
    found = decided(a_job(), seen(a_job(**OLD), ran_s=30 * HOUR, node_count=8), allow=(allow,))
    assert found.action is Action.REPLACE
    assert found.lost_node_hours == 240
    assert found.explanation.endswith("; discards 30 h of work on 8 nodes")


def test_long_running_job_stays_when_only_another_loss_is_allowed() -> None:
    running = seen(a_job(**OLD), ran_s=30 * HOUR)
    for allow in ("lost-work=b", "terminations", "budget"):
        action, _ = plan_for(a_stack(a_job(), a_job("b")), running, allow=(allow,)).actions
        assert action.action is Action.CONFLICT


@pytest.mark.parametrize("phase", [C, P, R])
@pytest.mark.parametrize(
    ("ran_s", "action"), [(HOUR, Action.REPLACE), (HOUR + 1, Action.CONFLICT), (30 * HOUR, Action.CONFLICT)]
)
def test_lost_time_counts_by_duration_whatever_the_phase(phase: Phase, ran_s: float, action: Action) -> None:
    assert decided(a_job(), seen(a_job(**OLD), phase=phase, ran_s=ran_s)).action is action


# --- going back to an older declaration


@pytest.mark.parametrize(
    ("phase", "action"), [(R, Action.REPLACE), (F, Action.CREATE), (DONE, Action.CREATE)]
)
def test_declaration_completed_by_an_older_revision_runs_again_and_names_it(
    phase: Phase, action: Action
) -> None:
    desired = a_job()
    first, second = seen(desired, phase=DONE), seen(a_job(**OLD), revision=2, phase=phase)
    found = decided(desired, first, second)
    assert outcome(found) == (action, Reason.IMMUTABLE_CHANGED, 3)
    assert "r1 completed this declaration, and r2 came after it" in found.detail


def test_declaration_failed_in_an_older_revision_names_no_completed_one() -> None:
    desired = a_job()
    first, second = seen(desired, phase=F), seen(a_job(**OLD), revision=2, phase=DONE)
    assert decided(desired, first, second).detail == "algorithm.parameters.lr changed"


# --- what is run again, and what ended badly


@pytest.mark.parametrize(
    ("desired", "jobs", "rerun_of"),
    [
        (a_job(), [seen(a_job(**OLD), phase=DONE)], 1),
        (a_job(), [seen(a_job(**OLD), phase=DONE), seen(a_job(**OLD), revision=2, phase=DONE)], 2),
        (a_job(), [seen(a_job(**OLD), phase=DONE), seen(a_job(**OLD), revision=2, phase=F)], None),
        (a_job(), [seen(a_job(), phase=DONE), seen(a_job(**OLD), revision=2, phase=R)], None),
        (a_job(), [seen(a_job(**OLD), phase=F)], None),
        (a_job(), [], None),
    ],
)
def test_create_after_a_completed_revision_is_a_rerun(
    desired: DesiredJob, jobs: list[ObservedJob], rerun_of: int | None
) -> None:
    found = decided(desired, *jobs)
    assert found.traits.starts_a_job
    assert found.rerun_of == rerun_of
    assert ("runs finished work again" in found.explanation) is (rerun_of is not None)


RETRY: dict[str, Any] = {"on_failure": "retry", "max_retries": 0}
AN_HOUR: dict[str, Any] = {"spec__auto_stop": {"time_unit": "HOURS", "duration": 1}}


@pytest.mark.parametrize(
    ("desired", "job", "is_bad"),
    [
        (a_job(), seen(a_job(), phase=F), True),
        (a_job(), seen(a_job(), phase=AB), True),
        (a_job(), seen(a_job(), phase=TD), True),
        (a_job(lifecycle=RETRY), seen(a_job(), phase=F), True),
        (a_job(lifecycle={"on_change": "keep"}), seen(a_job(**OLD), phase=F), True),
        (a_job(lifecycle={"on_change": "keep"}), seen(a_job(**OLD), phase=TD), True),
        (a_job(lifecycle={"on_change": "keep"}), seen(a_job(**OLD), phase=TD, stopped=True), False),
        (a_job(lifecycle={"on_change": "keep"}), seen(a_job(**OLD), phase=DONE), False),
        (a_job(lifecycle={"on_change": "keep"}), seen(a_job(**OLD)), False),
        (a_job(**AN_HOUR), seen(a_job(**AN_HOUR), phase=F, ran_s=HOUR), False),
        (a_job(), seen(a_job(), phase=DONE), False),
        (a_job(), seen(a_job()), False),
    ],
)
def test_kept_key_says_whether_it_ended_badly(desired: DesiredJob, job: ObservedJob, is_bad: bool) -> None:
    found = decided(desired, job)
    assert (found.action, found.ended_badly) == (Action.KEEP, is_bad)


def test_running_job_kept_since_its_declaration_failed_before_counts_as_ended_badly() -> None:
    found = decided(a_job(), seen(a_job(**OLD)), seen(a_job(), revision=2, phase=F))
    assert (found.action, found.reason, found.ended_badly) == (Action.KEEP, Reason.FAILED, True)


def test_lifecycle_alone_changes_no_digest_but_rerun_does() -> None:
    assert a_job(lifecycle={"on_change": "fail", "max_retries": 9}).digest == a_job().digest
    assert a_job(lifecycle={"rerun": "2026-11-21"}).digest != a_job().digest


def test_rerun_runs_the_same_thing_again(around: Around) -> None:
    found = decided(a_job(lifecycle={"rerun": "again"}), seen(a_job(), phase=DONE))
    assert outcome(found) == (Action.CREATE, Reason.IMMUTABLE_CHANGED, 2)
    # Only a history has the earlier `rerun`; the action is the same.
    why = "lifecycle.rerun" if around is Around.FOREIGN else "a field that the service does not report"
    assert why in found.detail


def test_key_with_unreadable_details_is_unknown() -> None:
    assert decided(a_job(), seen(a_job(**OLD)), details={}).action is Action.UNKNOWN


def test_outdated_marker_is_updated_and_the_job_goes_on() -> None:
    desired = a_job()
    found = decided(desired, seen(desired, digest="a" + "f" * 12, ran_s=LONG))
    assert (found.action, found.reason) == (Action.UPDATE, Reason.MARKER_CHANGED)
    assert found.after is not None
    assert found.after.digest == desired.digest


@pytest.mark.parametrize("phase", [DONE, F, TD])
def test_outdated_marker_on_an_ended_job_is_updated(phase: Phase) -> None:
    desired = a_job()
    assert decided(desired, seen(desired, digest="a" + "f" * 12, phase=phase)).action is Action.UPDATE


@pytest.mark.parametrize(
    ("phase", "lifecycle", "more", "reason"),
    [
        (TD, {}, {"stopped": True}, Reason.DECLARED_AGAIN),
        (T, {}, {"stopped": True}, Reason.WAITS_FOR_TERMINATION),
        (F, {"on_failure": "retry"}, {}, Reason.RETRY),
        (TD, {"on_terminated": "recreate"}, {}, Reason.RECREATE),
    ],
)
def test_next_revision_is_created_without_updating_an_outdated_marker_first(
    phase: Phase, lifecycle: dict[str, Any], more: dict[str, Any], reason: Reason
) -> None:
    desired = a_job(lifecycle=lifecycle)
    behind = seen(a_job(lifecycle={"rerun": "once"}), phase=phase, **more)
    assert outcome(decided(desired, behind)) == (Action.CREATE, reason, 2)


def test_retries_count_an_ended_job_with_an_outdated_marker() -> None:
    desired = a_job(lifecycle={"on_failure": "retry", "max_retries": 1})
    before = seen(desired, revision=1, phase=F)
    behind = seen(desired, revision=2, phase=F, digest="a" + "f" * 12)
    assert decided(desired, before, behind).action is Action.UPDATE  # no retry is left: renew the marker


def test_empty_diff_with_an_unreported_declared_field_is_a_change() -> None:
    desired = a_job(annotations={"tensorboard/enable": "true"})
    found = decided(desired, seen(desired, digest="a" + "f" * 12))
    assert found.action is Action.REPLACE
    assert "a field that the service does not report" in found.detail


# --- what can be changed on the job


@pytest.mark.parametrize(
    ("phase", "action"),
    [(C, Action.UPDATE), (P, Action.UPDATE), (R, Action.UPDATE), (T, Action.KEEP)]
    + [(phase, Action.KEEP) for phase in (DONE, F, TD, AB)],
)
def test_edited_description_is_updated_on_an_active_job(phase: Phase, action: Action) -> None:
    desired = a_job(description="new")
    found = decided(desired, seen(desired, phase=phase, text="old"))
    assert found.action is action
    if action is Action.UPDATE:
        assert found.desired == {"description": f"new reconciler.vision.a.r1.{desired.digest}"}


@pytest.mark.parametrize(
    ("phase", "cloud", "action"),
    [
        (P, Cloud.HUAWEI, Action.UPDATE),
        (R, Cloud.HUAWEI, Action.KEEP),
        (C, Cloud.HUAWEI, Action.KEEP),
        (P, Cloud.OTC, Action.KEEP),
    ],
)
def test_priority_change_is_deferred_when_phase_or_cloud_does_not_allow_it(
    phase: Phase, cloud: Cloud, action: Action
) -> None:
    desired = a_job(spec__schedule_policy={"priority": 3})
    stack = a_stack(desired)
    plan = plan_for(stack, seen(desired, phase=phase, body=a_job().body), cloud=cloud)
    assert plan.actions[0].action is action
    assert [w.what for w in plan.warnings] == ([] if action is Action.UPDATE else ["deferred"])
    if action is Action.UPDATE:
        assert plan.actions[0].desired == {
            "description": f"reconciler.vision.a.r1.{desired.digest}",
            "spec": {"schedule_policy": {"priority": 3}},
        }


def test_declared_default_value_is_updated_like_any_other() -> None:
    desired = a_job(spec__schedule_policy={"priority": 1})
    reported = a_job(spec__schedule_policy={"priority": 2})
    assert decided(desired, seen(desired, phase=P, body=reported.body)).action is Action.UPDATE


def test_value_filled_in_by_the_service_is_no_difference() -> None:
    desired = a_job()
    reported = a_job(spec__schedule_policy={"priority": 2, "preemptible": True})
    assert decided(desired, seen(desired, phase=P, body=reported.body)).action is Action.KEEP


def test_on_change_keep_updates_mutable_fields_and_keeps_the_old_digest() -> None:
    desired = a_job(description="new", lifecycle={"on_change": "keep"})
    old = a_job(**OLD)
    found = decided(desired, seen(old, text="old"))
    assert found.action is Action.UPDATE
    assert found.after is not None
    assert found.after.digest == old.digest


@pytest.mark.parametrize("phase", [R, DONE, F, TD])
def test_declared_protection_is_written_to_the_marker(phase: Phase) -> None:
    desired = a_job(lifecycle={"protect": True})
    found = decided(desired, seen(desired, phase=phase))
    assert (found.action, found.reason) == (Action.UPDATE, Reason.MARKER_CHANGED)
    assert found.desired is not None
    assert found.desired["description"].endswith(".protected")


def test_stopped_flag_on_a_running_job_is_removed() -> None:
    desired = a_job()
    assert decided(desired, seen(desired, stopped=True)).action is Action.UPDATE


# --- protection


def test_protected_job_is_not_replaced() -> None:
    found = decided(a_job(), seen(a_job(**OLD), protected=True))
    assert (found.action, found.reason) == (Action.BLOCKED, Reason.PROTECTED)
    found = decided(a_job(lifecycle={"protect": True}), seen(a_job(**OLD)))
    assert (found.action, found.reason) == (Action.BLOCKED, Reason.PROTECTED)


def test_protected_undeclared_job_is_not_terminated() -> None:
    [found] = plan_for(a_stack(a_job("b")), seen(a_job(), protected=True), seen(a_job("b"))).actions[:1]
    assert (found.key, found.action) == ("a", Action.BLOCKED)


def test_protected_superseded_revision_is_blocked() -> None:
    desired = a_job()
    old = seen(desired, revision=1, protected=True, ran_s=1)
    found = plan_for(a_stack(desired), old, seen(desired, revision=2, ran_s=99)).actions
    assert [(a.action, a.before.revision if a.before else 0) for a in found] == [
        (Action.BLOCKED, 1),
        (Action.KEEP, 2),
    ]


def test_protection_is_removed_first_and_the_job_terminated_by_the_next_plan() -> None:
    release = absent(protect=False)
    running = seen(a_job(), protected=True, text="mine")
    found = decided(release, running)
    assert (found.action, found.reason) == (Action.UPDATE, Reason.PROTECTION_RELEASED)
    assert found.desired == {"description": f"mine reconciler.vision.a.r1.{a_job().digest}"}
    assert decided(release, seen(a_job())).action is Action.TERMINATE


def test_protection_set_to_false_is_an_update_of_the_marker() -> None:
    desired = a_job(lifecycle={"protect": False})
    assert decided(desired, seen(desired, protected=True)).action is Action.UPDATE
    assert decided(desired, seen(desired)).action is Action.KEEP


def test_protection_without_declaration_stays() -> None:
    assert decided(a_job(), seen(a_job(), protected=True)).action is Action.KEEP


# --- absent


@pytest.mark.parametrize(
    ("phase", "is_ended"),
    [(C, True), (P, True), (R, True), (T, False), (DONE, False), (F, False), (TD, False), (AB, False)],
)
@pytest.mark.parametrize("how", ["undeclared", "state: absent"])
def test_undeclared_or_absent_active_job_is_terminated(phase: Phase, is_ended: bool, how: str) -> None:
    stack = a_stack(a_job("b"), *([absent()] if how == "state: absent" else []))
    plan = plan_for(stack, seen(a_job(), phase=phase), seen(a_job("b")))
    mine = [action for action in plan.actions if action.key == "a"]
    assert [action.action for action in mine] == ([Action.TERMINATE] if is_ended else [])
    if is_ended:
        assert mine[0].after is None
        assert mine[0].reason is (Reason.NOT_IN_MANIFEST if how == "undeclared" else Reason.STATE_ABSENT)


def test_partial_view_terminates_only_keys_declared_absent() -> None:
    stack = a_stack(a_job("b"), absent("c"), is_partial=True)
    plan = plan_for(stack, seen(a_job()), seen(a_job("b")), seen(a_job("c")))
    assert [(a.key, a.action) for a in plan.actions] == [("b", Action.KEEP), ("c", Action.TERMINATE)]
    assert [w.why for w in plan.warnings] == ["1 key is owned but not in view; left alone"]


def test_other_stacks_and_unmanaged_jobs_are_never_touched() -> None:
    others = seen(a_job(), stack="other"), seen(key="b", description=""), seen(key="c", name="c-copy")
    assert plan_for(a_stack(a_job("d")), *others, seen(a_job("d"))).to_execute == ()


# --- which revision stands for the key


def revisions(*rows: tuple[int, Phase, str, float]) -> list[ObservedJob]:
    """Revision, phase, 'new' or 'old' declaration, seconds it ran."""
    jobs = {"new": a_job(), "old": a_job(**OLD)}
    return [seen(jobs[which], revision=n, phase=phase, ran_s=ran) for n, phase, which, ran in rows]


@pytest.mark.parametrize(
    ("rows", "expected"),
    [
        # the active one with the declared digest, the longest running if several
        ([(1, R, "new", 99), (2, R, "new", 9)], [(1, Action.KEEP), (2, Action.TERMINATE)]),
        ([(1, R, "new", 9), (2, R, "new", 99)], [(1, Action.TERMINATE), (2, Action.KEEP)]),
        ([(1, R, "new", 9), (2, R, "old", 99)], [(1, Action.KEEP), (2, Action.TERMINATE)]),
        # else the newest active one
        ([(1, R, "old", 9), (2, R, "old", 9)], [(1, Action.TERMINATE), (2, Action.REPLACE)]),
        ([(1, R, "new", 9), (2, F, "new", 9)], [(1, Action.KEEP)]),
        ([(1, R, "new", 9), (2, DONE, "old", 9)], [(1, Action.KEEP)]),
        # one that is being terminated does not stand for the key
        ([(1, R, "new", 9), (2, T, "new", 9)], [(1, Action.KEEP)]),
        ([(1, T, "new", 9), (2, R, "new", 9)], [(2, Action.KEEP)]),
        ([(1, DONE, "new", 9), (2, T, "old", 9)], [(3, Action.CREATE)]),
        # what completed with the declared digest outdoes older active ones
        ([(1, R, "new", 9), (2, DONE, "new", 9)], [(1, Action.TERMINATE), (2, Action.KEEP)]),
        ([(1, DONE, "new", 9), (2, R, "new", 9)], [(2, Action.KEEP)]),
        # without an active one the newest
        ([(1, DONE, "new", 9), (2, F, "new", 9)], [(2, Action.KEEP)]),
    ],
)
def test_representative_revision_of_a_key_is_kept_and_others_are_superseded(
    rows: list[tuple[int, Phase, str, float]], expected: list[tuple[int, Action]]
) -> None:
    plan = plan_for(a_stack(a_job()), *revisions(*rows))
    found = []
    for action in plan.actions:
        shown = action.after if action.action is Action.CREATE else action.before
        assert shown is not None
        found.append((shown.revision, action.action))
    assert found == expected


@pytest.mark.parametrize(
    ("lifecycle", "ended_s_ago", "action"),
    [
        ({}, LONG, Action.KEEP),
        ({"on_failure": "retry"}, 60, Action.DEFER),
        ({"on_failure": "retry"}, LONG, Action.REPLACE),
        ({"on_failure": "retry", "max_retries": 0}, LONG, Action.KEEP),
    ],
)
def test_replace_with_a_declaration_that_failed_before_counts_like_a_retry(
    lifecycle: dict[str, Any], ended_s_ago: float, action: Action
) -> None:
    desired = a_job(lifecycle=lifecycle)
    running = seen(a_job(**OLD), revision=1)
    failed = seen(desired, revision=2, phase=F, ended_s_ago=ended_s_ago)
    assert decided(desired, running, failed).action is action


def test_return_to_a_declaration_stopped_by_us_is_an_ordinary_replace() -> None:
    desired = a_job()
    stopped = seen(desired, revision=1, phase=TD, stopped=True)
    found = decided(desired, stopped, seen(a_job(**OLD), revision=2))
    assert outcome(found) == (Action.REPLACE, Reason.IMMUTABLE_CHANGED, 3)


# --- what could not be read


def test_unreadable_job_makes_its_key_unknown_and_hides_no_other() -> None:
    stack = a_stack(a_job(), a_job("b"))
    lost = Unreadable("status.phase is missing", name="a-r2", id="x")
    plan = plan_for(stack, seen(a_job()), seen(a_job("b")), unreadable=(lost,))
    assert [(a.key, a.action) for a in plan.actions] == [("a", Action.UNKNOWN), ("b", Action.KEEP)]
    assert not plan.complete


def test_nameless_job_makes_a_key_without_job_unknown() -> None:
    plan = plan_for(a_stack(a_job(), a_job("b")), seen(a_job("b")), unreadable=(Unreadable("no name"),))
    assert [(a.key, a.action) for a in plan.actions] == [("a", Action.UNKNOWN), ("b", Action.KEEP)]
    assert not plan.complete


def test_incomplete_observation_makes_a_key_without_job_unknown() -> None:
    assert decided(a_job(), is_whole=False).action is Action.UNKNOWN


def test_unreadable_list_makes_every_key_unknown() -> None:
    plan = plan_for(a_stack(a_job(), a_job("b")), seen(a_job("b")), problem="timeout", is_whole=False)
    assert {a.action for a in plan.actions} == {Action.UNKNOWN}
    assert not plan.applyable


def test_unreadable_job_of_an_undeclared_key_is_not_terminated() -> None:
    marker = seen(a_job()).marker
    lost = Unreadable("status.phase is missing", name="a", id="x", claimed=marker)
    [action] = plan_for(a_stack(a_job("b")), seen(a_job("b")), unreadable=(lost,)).actions[:1]
    assert (action.key, action.action) == ("a", Action.UNKNOWN)


# --- what nobody knows


@pytest.mark.parametrize("entry", [a_job(), absent(), a_job(**OLD)])
def test_job_in_an_unknown_phase_is_blocked(entry: DesiredJob) -> None:
    found = decided(entry, seen(a_job(), phase="Frozen"))
    assert (found.action, found.reason) == (Action.BLOCKED, Reason.UNKNOWN_PHASE)
    assert "Frozen" in found.detail


def test_digest_of_a_newer_reconciler_is_blocked() -> None:
    found = decided(a_job(), seen(a_job(), digest="z" + "0" * 12))
    assert (found.action, found.reason) == (Action.BLOCKED, Reason.UNKNOWN_DIGEST)
    assert "needs a newer reconciler" in found.detail


@pytest.mark.parametrize("entries", [(), (absent(),), (a_job(),)])
def test_digest_of_a_newer_reconciler_is_blocked_with_any_declaration(
    entries: tuple[DesiredJob, ...],
) -> None:
    jobs = [seen(a_job(), digest="z" + "0" * 12), seen(a_job(), revision=2, ran_s=999), seen(a_job("b"))]
    actions = plan_for(a_stack(a_job("b"), *entries), *jobs).actions
    assert [(a.key, a.action) for a in actions] == [("a", Action.BLOCKED), ("b", Action.KEEP)]


def test_nameless_job_makes_a_retry_unknown() -> None:
    desired = a_job(lifecycle={"on_failure": "retry"})
    plan = plan_for(a_stack(desired), seen(desired, phase=F), unreadable=(Unreadable("no name"),))
    assert [action.action for action in plan.actions] == [Action.UNKNOWN]
    assert [warning.why for warning in plan.warnings] == ["no name"]


def test_job_being_ended_by_its_auto_stop_is_not_started_again() -> None:
    desired = a_job(
        spec__auto_stop={"time_unit": "HOURS", "duration": 1}, lifecycle={"on_terminated": "recreate"}
    )
    found = decided(desired, seen(desired, phase=T, ran_s=HOUR))
    assert (found.action, found.reason) == (Action.KEEP, Reason.AUTO_STOPPED)


@pytest.mark.parametrize(("phase", "action"), [(P, Action.DEFER), (C, Action.DEFER), (R, Action.TERMINATE)])
def test_create_first_keeps_the_old_job_until_the_new_one_runs(phase: Phase, action: Action) -> None:
    desired = a_job(lifecycle={"replace_order": "create_first"})
    old = seen(a_job(**OLD), revision=1, ran_s=LONG)
    plan = plan_for(a_stack(desired), old, seen(desired, revision=2, phase=phase))
    assert [a.action for a in plan.actions] == [action, Action.KEEP]


def test_key_renamed_in_case_only_continues_after_the_old_name() -> None:
    """Whether the service tells names apart that differ in case only is not documented."""
    actions = plan_for(a_stack(a_job("Aa")), seen(a_job("aA"))).actions
    assert [(a.key, outcome(a)) for a in actions] == [
        ("Aa", (Action.CREATE, Reason.NOT_FOUND, 2)),
        ("aA", (Action.TERMINATE, Reason.NOT_IN_MANIFEST, None)),
    ]


def test_deferred_retry_states_when_it_is_due() -> None:
    desired = a_job(lifecycle={"on_failure": "retry"})
    assert "at 2027-01-15T08:01:00Z" in decided(desired, seen(desired, phase=F, ended_s_ago=60)).detail


def test_running_time_without_a_readable_start_counts_from_creation() -> None:
    from dataclasses import replace

    running = replace(seen(a_job(**OLD)), started_at_s=None, duration_s=None, created_at_s=NOW - LONG)
    assert decided(a_job(), running).action is Action.CONFLICT


def test_unknown_takes_precedence_over_blocked_and_blocked_over_conflict() -> None:
    frozen = seen(a_job(), phase="Frozen")
    stranger = seen(key="a", revision=2, description="")
    assert decided(a_job(), frozen, stranger).action is Action.BLOCKED
    lost = (Unreadable("broken", name="a-r3"),)
    assert decided(a_job(), frozen, stranger, unreadable=lost).action is Action.UNKNOWN


# --- adoption


def test_next_revision_of_an_adopted_job_is_named_after_its_key() -> None:
    adopted = seen(a_job(**OLD), name="by-hand", job_id="12345678-aaaa", id_part="12345678", phase=DONE)
    found = decided(a_job(), adopted)
    assert found.after is not None
    assert found.after.name == "a-r2"


@pytest.mark.parametrize(
    "job", [seen(a_job(**OLD), ran_s=HOUR / 2), seen(a_job(**OLD), phase=DONE), seen(a_job(), phase=F)]
)
def test_action_unknown_for_lack_of_proof_has_no_request_and_no_loss(job: ObservedJob) -> None:
    desired = a_job(lifecycle={"on_failure": "retry"})
    details = {job.id: job}
    found = plan_for(a_stack(desired), job, is_whole=False, details=details)
    [action] = found.actions
    assert action.action is Action.UNKNOWN
    assert (action.desired, action.declared, action.after, action.follows) == (None, None, None, None)
    assert (action.lost_node_hours, action.lost_time, action.rerun_of) == (0.0, None, None)
    assert (found.lost_node_hours, found.reruns) == (0.0, ())
    assert action.__dict__.keys() == PlannedAction.model_fields.keys()
