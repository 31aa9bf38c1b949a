"""docs/semantics.md, "Decisions", `formerly`: a key is renamed, and its run goes on."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import pytest

from reconciler.core.identity import Marker, parse_description
from reconciler.core.observed import Observation, ObservedJob
from reconciler.core.ownership import sort_by_key
from reconciler.core.phase import Phase
from reconciler.core.record import NO_HISTORY, HistorySnapshot
from reconciler.core.selection import narrow
from reconciler.core.stack import DesiredJob, Stack
from reconciler.decide.drift import make_drift_report
from reconciler.decide.key_state import PlanContext, Snapshot
from reconciler.decide.plan import Action, Plan, PlannedAction, Reason, in_order
from reconciler.decide.planner import make_destroy_plan
from tests.builders import HOUR, NOW, STACK, TARGET, a_job, a_stack, absent, made_by_0_1_0, seen
from tests.core.history import a_memory, past
from tests.core.test_decision_table import AB, DONE, OLD, TD, C, F, P, R, T, plan_for

Line = tuple[Action, Reason, str | None, str | None]
ENDED = (DONE, F, TD, AB)


def renamed(*old: str, **said: Any) -> DesiredJob:
    """The key `new`, which was called `old` before."""
    return replace(a_job("new", **said), formerly=old or ("old",))


def was(key: str = "old", **said: Any) -> ObservedJob:
    """A job that was made under the old key, of the same declaration."""
    changed = said.pop("changed", {})
    return seen(replace(a_job("new", **changed), key=key), **said)


def lines(plan: Plan) -> list[Line]:
    """Action, reason, and the names of the jobs before and after."""
    return lines_of(plan.actions)


def lines_of(actions: Iterable[PlannedAction]) -> list[Line]:
    return [
        (a.action, a.reason, a.before.name if a.before else None, a.after.name if a.after else None)
        for a in actions
    ]


def applied(plan: Plan, jobs: Iterable[ObservedJob]) -> list[ObservedJob]:
    """The jobs after the updates of a plan."""
    written = {a.before.id: a.desired["description"] for a in plan.to_execute if a.before and a.desired}
    return [replace(job, description=written.get(job.id, job.description)) for job in jobs]


def marker_of(job: ObservedJob) -> Marker:
    assert job.marker is not None
    return job.marker


# --- a run of the old key goes on under the new one


@pytest.mark.parametrize("phase", [C, P, R, *ENDED])
def test_key_rename_changes_only_the_marker(phase: Phase) -> None:
    job = was(phase=phase)
    plan = plan_for(a_stack(renamed()), job)
    assert lines(plan) == [(Action.UPDATE, Reason.MARKER_CHANGED, "old", "old")]
    [action] = plan.actions
    assert action.formerly == "old"
    assert action.desired is not None
    assert action.desired["description"] == str(Marker(STACK, "new", 1, renamed().digest, id_part=job.id[:8]))
    assert [(c.path, c.before, c.after) for c in action.changes] == [("marker.key", "old", "new")]


def test_terminating_job_is_renamed_after_it_has_ended() -> None:
    assert lines(plan_for(a_stack(renamed()), was(phase=T))) == [
        (Action.KEEP, Reason.TERMINATED_OUTSIDE, "old", "old")
    ]
    assert lines(plan_for(a_stack(renamed()), was(phase=TD))) == [
        (Action.UPDATE, Reason.MARKER_CHANGED, "old", "old")
    ]


@pytest.mark.parametrize("phase", [C, P, R, *ENDED])
def test_plan_after_a_key_rename_is_empty_with_or_without_formerly(phase: Phase) -> None:
    jobs = [was(revision=1, phase=TD, stopped=True), was(revision=2, phase=phase)]
    plan = plan_for(a_stack(renamed()), *jobs)
    after = applied(plan, jobs)
    assert {marker_of(job).key for job in after} == {"new"}
    assert [marker_of(job).revision for job in after] == [1, 2]
    assert not plan_for(a_stack(renamed()), *after).to_execute
    assert not plan_for(a_stack(a_job("new")), *after).to_execute


def test_every_revision_of_the_old_key_is_renamed() -> None:
    jobs = [was(revision=1, phase=F), was(revision=2, phase=TD, stopped=True), was(revision=3)]
    assert lines(plan_for(a_stack(renamed()), *jobs)) == [
        (Action.UPDATE, Reason.RENAMED, "old", "old"),
        (Action.UPDATE, Reason.RENAMED, "old-r2", "old-r2"),
        (Action.UPDATE, Reason.MARKER_CHANGED, "old-r3", "old-r3"),
    ]


def test_key_rename_keeps_flags_and_text_of_an_older_revision() -> None:
    job = was(revision=1, phase=TD, stopped=True, protected=True, text="somebody's words")
    plan = plan_for(a_stack(renamed()), job, was(revision=2))
    [first, _] = plan.actions
    assert first.desired is not None
    text, marker = parse_description(first.desired["description"])
    assert text == "somebody's words"
    assert marker == marker_of(job)._replace(key="new", id_part=job.id[:8])


def test_key_rename_updates_other_mutable_fields_in_the_same_action() -> None:
    plan = plan_for(a_stack(renamed(description="new text")), was(text="old text"))
    [action] = plan.actions
    assert (action.action, action.reason) == (Action.UPDATE, Reason.MUTABLE_CHANGED)
    assert {change.path for change in action.changes} == {"marker.key", "description"}


def test_renamed_job_is_owned_by_its_id_part_and_a_copy_is_not() -> None:
    desired = a_job("new")
    job = seen(desired, name="old", job_id="12345678-aaaa", id_part="12345678")
    copy = seen(desired, name="old-copy", job_id="99999999-aaaa", id_part="12345678")
    assert lines(plan_for(a_stack(desired), job, copy)) == [(Action.KEEP, Reason.UNCHANGED, "old", "old")]


# --- the next revision of a renamed key


@pytest.mark.parametrize(
    ("phase", "lifecycle", "more", "reason"),
    [
        (F, {"on_failure": "retry"}, {}, Reason.RETRY),
        (TD, {"on_terminated": "recreate"}, {}, Reason.RECREATE),
        (TD, {}, {"stopped": True}, Reason.DECLARED_AGAIN),
        (DONE, {}, {"changed": OLD}, Reason.IMMUTABLE_CHANGED),
    ],
)
def test_revision_after_a_key_rename_has_the_new_name_and_next_number(
    phase: Phase, lifecycle: dict[str, Any], more: dict[str, Any], reason: Reason
) -> None:
    jobs = [was(revision=3, phase=phase, **more)]
    assert lines(plan_for(a_stack(renamed(lifecycle=lifecycle)), *jobs)) == [
        (Action.UPDATE, Reason.RENAMED, "old-r3", "old-r3"),
        (Action.CREATE, reason, None, "new-r4"),
    ]


def test_retries_are_counted_across_a_key_rename() -> None:
    desired = renamed(lifecycle={"on_failure": "retry", "max_retries": 1})
    jobs = [was(revision=1, phase=F), was(revision=2, phase=F)]
    assert [(line[0], line[2]) for line in lines(plan_for(a_stack(desired), *jobs))] == [
        (Action.UPDATE, "old"),
        (Action.UPDATE, "old-r2"),
    ]


def test_key_rename_with_a_changed_declaration_is_a_replace() -> None:
    assert lines(plan_for(a_stack(renamed(**OLD)), was(revision=2))) == [
        (Action.REPLACE, Reason.IMMUTABLE_CHANGED, "old-r2", "new-r3")
    ]


def test_create_first_renames_the_marker_before_the_new_job_is_created() -> None:
    """Or a crash between the two would leave both keys with revisions of their own."""
    desired = renamed(**OLD, lifecycle={"replace_order": "create_first"})
    plan = plan_for(a_stack(desired), was(revision=2))
    assert [line[:2] for line in lines_of(in_order(plan.actions))] == [
        (Action.UPDATE, Reason.RENAMED),
        (Action.REPLACE, Reason.IMMUTABLE_CHANGED),
    ]


def test_second_active_revision_of_the_old_key_is_superseded() -> None:
    plan = plan_for(a_stack(renamed()), was(revision=1, ran_s=9), was(revision=2, ran_s=99))
    assert lines(plan) == [
        (Action.TERMINATE, Reason.SUPERSEDED, "old", None),
        (Action.UPDATE, Reason.MARKER_CHANGED, "old-r2", "old-r2"),
    ]


# --- several old keys, and both keys with revisions


def test_several_old_keys_are_renamed_to_one() -> None:
    jobs = [was("older", revision=1, phase=DONE, changed=OLD), was("old", revision=2)]
    assert lines(plan_for(a_stack(renamed("old", "older")), *jobs)) == [
        (Action.UPDATE, Reason.RENAMED, "older", "older"),
        (Action.UPDATE, Reason.MARKER_CHANGED, "old-r2", "old-r2"),
    ]


@pytest.mark.parametrize("old_phase", [R, DONE])
@pytest.mark.parametrize("new_phase", [R, F])
def test_old_and_new_key_that_both_own_revisions_are_a_conflict(old_phase: Phase, new_phase: Phase) -> None:
    plan = plan_for(a_stack(renamed()), was(phase=old_phase), seen(a_job("new"), phase=new_phase))
    assert [(a.action, a.reason) for a in plan.actions] == [(Action.CONFLICT, Reason.RENAME_CLASH)]
    assert "old" in plan.actions[0].detail


@pytest.mark.parametrize("done", [0, 1, 2])
def test_partial_key_rename_is_continued_without_conflict(done: int) -> None:
    """A crash between two updates of markers: the next plan goes on where it ended."""
    jobs = [was(revision=1, phase=F), was(revision=2, phase=DONE, changed=OLD), was(revision=3)]
    plan = plan_for(a_stack(renamed()), *jobs)
    left = [*applied(plan, jobs)[:done], *jobs[done:]]
    again = plan_for(a_stack(renamed()), *left)
    assert lines(again) == lines(plan)[done:]


def test_key_rename_with_the_next_revision_already_created_is_no_conflict() -> None:
    """A crash after the create of a retry: what is left of the old key's history follows."""
    desired = renamed(lifecycle={"on_failure": "retry"})
    jobs = [was(revision=1, phase=F)]
    [first, *_] = applied(plan_for(a_stack(desired), *jobs), jobs)
    assert lines(plan_for(a_stack(desired), first, seen(a_job("new"), revision=2))) == [
        (Action.KEEP, Reason.UNCHANGED, "new-r2", "new-r2")
    ]


# --- what is not there, or not wanted


def test_new_key_is_created_when_the_old_key_has_no_job() -> None:
    assert lines(plan_for(a_stack(renamed()))) == [(Action.CREATE, Reason.NOT_FOUND, None, "new")]


def test_old_key_of_a_rename_is_not_terminated_as_undeclared() -> None:
    plan = plan_for(a_stack(renamed(), a_job("b")), was(), seen(a_job("b")))
    assert Action.TERMINATE not in {action.action for action in plan.actions}
    assert {action.key for action in plan.actions} == {"new", "b"}


@pytest.mark.parametrize("phase", [R, P])
def test_state_absent_terminates_the_job_of_the_old_key(phase: Phase) -> None:
    gone = replace(absent("new"), formerly=("old",))
    plan = plan_for(a_stack(gone), was(phase=phase))
    assert lines(plan) == [(Action.TERMINATE, Reason.STATE_ABSENT, "old", None)]
    assert plan.actions[0].formerly == "old"


def test_destroy_terminates_the_job_of_the_old_key() -> None:
    stack = a_stack(renamed(), a_job("b"))
    plan = destroy(stack, was(), seen(a_job("b")))
    assert lines(plan) == [
        (Action.TERMINATE, Reason.DESTROYED, "b", None),
        (Action.TERMINATE, Reason.DESTROYED, "old", None),
    ]


@pytest.mark.parametrize("how", ["declared", "marked"])
@pytest.mark.parametrize("what", ["state: absent", "destroy", "a change"])
def test_protected_job_stays_protected_under_its_new_key(how: str, what: str) -> None:
    protect = True if how == "declared" else None
    job = was(protected=how == "marked")
    if what == "state: absent":
        stack = a_stack(
            replace(absent("new", **({"protect": protect} if protect else {})), formerly=("old",))
        )
        plan = plan_for(stack, job)
    elif what == "destroy":
        plan = destroy(a_stack(renamed(lifecycle={"protect": protect})), job)
    else:
        plan = plan_for(a_stack(renamed(**OLD, lifecycle={"protect": protect})), job)
    assert (Action.BLOCKED, Reason.PROTECTED) in {(a.action, a.reason) for a in plan.actions}
    assert not any(action.traits.stops_a_job for action in plan.actions)


def test_removal_of_protection_writes_the_new_key_into_the_marker() -> None:
    job = was(protected=True)
    plan = plan_for(a_stack(replace(absent("new", protect=False), formerly=("old",))), job)
    assert lines(plan) == [(Action.UPDATE, Reason.PROTECTION_RELEASED, "old", "old")]
    [after] = applied(plan, [job])
    assert marker_of(after) == Marker(STACK, "new", 1, renamed().digest, id_part=job.id[:8])


# --- views


def test_view_of_the_new_key_alone_renames() -> None:
    whole = {"new": renamed(), "b": a_job("b")}
    stack = narrow(replace(a_stack(*whole.values()), whole=whole), ["new"], ["old", "b"])
    assert lines(plan_for(stack, was(), seen(a_job("b")))) == [
        (Action.UPDATE, Reason.MARKER_CHANGED, "old", "old")
    ]


def test_view_of_another_key_alone_does_not_rename() -> None:
    whole = {"new": renamed(), "b": a_job("b")}
    stack = narrow(replace(a_stack(*whole.values()), whole=whole), ["b"], ["old", "b"])
    assert lines(plan_for(stack, was(), seen(a_job("b")))) == [(Action.KEEP, Reason.UNCHANGED, "b", "b")]


@pytest.mark.parametrize("is_partial", [True, False])
def test_old_key_is_not_terminated_when_the_new_one_is_out_of_view(is_partial: bool) -> None:
    stack = replace(a_stack(a_job("b"), is_partial=is_partial), whole={"new": renamed(), "b": a_job("b")})
    assert lines(plan_for(stack, was(), seen(a_job("b")))) == [(Action.KEEP, Reason.UNCHANGED, "b", "b")]


def test_unreadable_job_of_the_old_key_makes_the_new_key_unknown() -> None:
    from reconciler.core.observed import Unreadable

    plan = plan_for(a_stack(renamed()), unreadable=(Unreadable("status is missing", name="old"),))
    assert [(a.key, a.action) for a in plan.actions] == [("new", Action.UNKNOWN)]


# --- drift


def drift_classes(stack: Stack, *jobs: ObservedJob, memory: HistorySnapshot = NO_HISTORY) -> list[str]:
    look = a_look(stack, *jobs, memory=memory)
    report = make_drift_report(
        stack, look, PlanContext(STACK, at_s=NOW), TARGET, manifest_digest="", version="0"
    )
    return [item.class_.value for item in report.drift]


@pytest.mark.parametrize("remembers", [True, False])
def test_key_rename_not_yet_applied_is_no_drift(remembers: bool) -> None:
    of_old = replace(a_job("new"), key="old")
    memory = a_memory(past(of_old, 1, R)) if remembers else NO_HISTORY
    assert drift_classes(a_stack(renamed()), was(), memory=memory) == []


def test_failed_job_of_the_old_key_is_drift_of_the_new_key() -> None:
    assert drift_classes(a_stack(renamed()), was(phase=F)) == ["failed"]


def test_edited_job_of_the_old_key_is_modified() -> None:
    assert drift_classes(a_stack(renamed()), was(text="edited by hand")) == ["modified"]


# --- with the history store


def test_aged_out_completed_job_of_the_old_key_is_kept() -> None:
    of_old = replace(a_job("new"), key="old")
    plan = plan_for(a_stack(renamed()), memory=a_memory(past(of_old, 2)))
    assert lines(plan) == [(Action.KEEP, Reason.AGED_OUT, None, "old-r2")]


def test_next_revision_number_follows_those_of_the_old_key() -> None:
    of_old = replace(a_job("new", **OLD), key="old")
    plan = plan_for(a_stack(renamed()), memory=a_memory(past(of_old, 4, F)))
    assert lines(plan) == [(Action.CREATE, Reason.IMMUTABLE_CHANGED, None, "new-r5")]


@pytest.mark.parametrize("key", ["old", "new"])
def test_wiped_marker_of_a_renamed_job_is_restored_with_the_new_key(key: str) -> None:
    of_key = replace(a_job("new"), key=key)
    job = was(description="mine now")
    plan = plan_for(a_stack(renamed()), job, memory=a_memory(past(of_key, 1, R, job=job)))
    assert lines(plan) == [(Action.UPDATE, Reason.MARKER_RESTORED, "old", "old")]
    assert marker_of(applied(plan, [job])[0]).key == "new"


def test_reused_old_key_has_no_history_of_the_renamed_job() -> None:
    """The store knows the job under both keys, and it is the new one's: `old` has never completed."""
    of_old, of_new = replace(a_job("new"), key="old"), a_job("new")
    job = seen(of_new, name="old", id_part="12345678", job_id="12345678-aaaa", phase=DONE)
    memory = a_memory(past(of_old, 1, DONE, job=job), past(of_new, 1, DONE, job=job))
    stack = a_stack(of_new, of_old)
    for there in ([job], []):
        with_it, without = (plan_for(stack, *there, memory=m).actions[1] for m in (memory, NO_HISTORY))
        assert with_it == without
    assert lines(plan_for(stack, memory=memory)) == [
        (Action.KEEP, Reason.AGED_OUT, None, "old"),
        (Action.CREATE, Reason.NOT_FOUND, None, "old"),
    ]


def test_reused_old_key_without_history_is_created_after_the_renamed_job() -> None:
    of_new = a_job("new")
    job = seen(of_new, name="old", id_part="12345678", job_id="12345678-aaaa")
    plan = plan_for(a_stack(of_new, a_job("old")), job)
    assert [(a.key, a.action) for a in plan.actions] == [("new", Action.KEEP), ("old", Action.CREATE)]
    assert plan.actions[1].after is not None
    assert plan.actions[1].after.name == "old-r2"


def destroy(stack: Stack, *jobs: ObservedJob) -> Plan:
    look = a_look(stack, *jobs)
    return make_destroy_plan(stack, look, PlanContext(STACK), TARGET, manifest_digest="", version="0")


def a_look(stack: Stack, *jobs: ObservedJob, memory: HistorySnapshot = NO_HISTORY) -> Snapshot:
    declared = stack.declared_keys | frozenset(stack.jobs) | stack.former_keys
    return Snapshot(sort_by_key(Observation(jobs), STACK, declared), memory=memory)


# --- a renaming that nobody wrote down


def hints(plan: Plan) -> list[tuple[str | None, str | None]]:
    return [(one.key, one.fix) for one in plan.warnings if one.what == "may be a rename"]


@pytest.mark.parametrize("phase", [C, P, R, DONE])
def test_new_key_with_the_declaration_of_a_removed_key_gets_a_rename_hint(phase: Phase) -> None:
    plan = plan_for(a_stack(a_job("new")), was(phase=phase))
    assert hints(plan) == [("new", "add `formerly: old` to new to keep its job")]
    assert hints(plan_for(a_stack(renamed()), was(phase=phase))) == []


@pytest.mark.parametrize(
    ("stack", "job"),
    [
        (a_stack(a_job("new", **OLD)), was()),
        (a_stack(a_job("new")), was(phase=F)),
        (a_stack(a_job("new")), was(phase=T)),
        (a_stack(a_job("new"), a_job("old")), was()),
        (a_stack(a_job("new"), absent("old")), was()),
        (a_stack(renamed("other")), was()),
        (a_stack(a_job("new")), was(stack="other")),
        (a_stack(absent("new")), was()),
    ],
    ids=["edited", "failed", "ending", "declared", "absent", "renamed", "foreign", "not wanted"],
)
def test_unlikely_rename_gets_no_hint(stack: Stack, job: ObservedJob) -> None:
    assert hints(plan_for(stack, job)) == []


def test_key_with_a_job_of_its_own_gets_no_rename_hint() -> None:
    assert hints(plan_for(a_stack(a_job("new")), was(), seen(a_job("new"), phase=F))) == []


def test_removed_key_is_proposed_for_one_rename_only() -> None:
    new = a_stack(*(a_job(f"new-{n}") for n in range(3)))
    plan = plan_for(new, *(was(f"old-{n}") for n in range(2)))
    assert [key for key, _ in hints(plan)] == ["new-0", "new-1"]


def test_members_of_a_renamed_sweep_get_one_hint() -> None:
    members = [replace(a_job(f"new-{n}", algorithm__parameters={"n": n}), sweep="new") for n in range(3)]
    jobs = [seen(replace(job, key=job.key.replace("new", "old"))) for job in members]
    fix = "add `formerly` to new, with ${matrix.AXIS} where old-0 has a value, to keep its jobs"
    assert hints(plan_for(a_stack(*members), *jobs)) == [("new-0", fix)]


def test_rename_hint_compares_a_job_of_an_older_version_by_its_own_digest() -> None:
    job = seen(made_by_0_1_0(replace(a_job("new"), key="old")))
    assert [key for key, _ in hints(plan_for(a_stack(a_job("new")), job))] == ["new"]


def test_undeclared_rename_of_a_long_running_job_ends_nothing_and_gives_a_hint() -> None:
    job = was(ran_s=30 * HOUR)
    plan = plan_for(a_stack(a_job("new")), job)
    assert lines(plan) == [
        (Action.CREATE, Reason.NOT_FOUND, None, "new"),
        (Action.BLOCKED, Reason.GUARD, "old", None),
    ]
    assert [action.blocked_by for action in plan.blocked] == [("lost-work",)]
    assert hints(plan) == [("new", "add `formerly: old` to new to keep its job")]
    plan = plan_for(a_stack(renamed()), job)
    assert lines(plan) == [(Action.UPDATE, Reason.MARKER_CHANGED, "old", "old")]
    assert plan.refusals == ()
