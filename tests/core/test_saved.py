"""A saved plan round-trips, and holds as long as nothing relevant changed.

Source: docs/reference/cli.md, "Saved plans"; docs/reference/saved-plans.md, "Stale".
"""

from __future__ import annotations

import json
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings

from reconciler.core.observed import ObservedJob, Unreadable
from reconciler.core.phase import Phase
from reconciler.core.record import NO_HISTORY, HistorySnapshot
from reconciler.core.scalar import OutputName, RevisionText, spelled
from reconciler.core.settings import VariableSource
from reconciler.core.stack import DesiredJob, Stack, Target
from reconciler.core.values import LOCAL
from reconciler.decide.plan import Action, Plan
from reconciler.decide.saved_plan import SavedOptions
from reconciler.plan_file import (
    ReadPlan,
    document_of,
    failed_preconditions,
    read_document,
    sealed,
)
from reconciler.secrets import SecretText, show
from tests.builders import HOUR, NOW, a_job, a_stack, absent, made_by_0_1_0, seen
from tests.core.history import a_memory, past
from tests.core.test_decision_table import AB, DONE, OLD, TD, C, F, P, R, T, plan_for
from tests.core.worlds import World, a_look, worlds

VERSION = "0"
OPTIONS = SavedOptions(target=Target(kind=LOCAL), root=".")

NEW, BEFORE = a_job(), a_job(**OLD)
RETRIED = a_job(lifecycle={"on_failure": "retry"})
RECREATED = a_job(lifecycle={"on_terminated": "recreate"})
LABELLED = a_job(description="new")
PHASES = (C, P, R, T, DONE, F, TD, AB)
ACTIVE, ENDED = {C, P, R}, {T, DONE, F, TD, AB}

ANY_WORLD = settings(max_examples=100, deadline=None, suppress_health_check=list(HealthCheck))


def there_and_back(plan: Plan, options: SavedOptions = OPTIONS, *, strict: bool = True) -> ReadPlan:
    """Write the plan to a file and read it back."""
    return read_document(
        json.loads(json.dumps(written(plan, options))), Path("plan.json"), VERSION, strict=strict
    )


def written(plan: Plan, options: SavedOptions = OPTIONS) -> dict[str, Any]:
    """Return the contents of its file."""
    return sealed(document_of(plan, options))


# --- round trip


@ANY_WORLD
@given(worlds())
def test_saved_plan_round_trips_and_holds_when_nothing_changed(world: World) -> None:
    plan = world.plan()
    back = there_and_back(plan).plan
    saved = (a.model_copy(update={"desired": show(a.desired), "next_run": ""}) for a in plan.actions)
    by_name = plan.model_copy(update={"actions": tuple(saved)})
    assert back.to_execute == by_name.to_execute
    assert back.document() == plan.document()
    assert [r.what for r in back.refusals] == [r.what for r in plan.refusals]
    assert document_of(back, OPTIONS) == document_of(by_name, OPTIONS)
    assert failed_preconditions(back, world.look, NOW) == ()


KEPT = {"on_change": "keep"}
TAKEN_FIRST: dict[str, Any] = {"algorithm__parameters": {"lr": spelled(1.1, "1.10")}}
TAKEN_NOW: dict[str, Any] = {"algorithm__parameters": {"lr": spelled(1.2, "1.20")}}


RELEASED = made_by_0_1_0(a_job(**TAKEN_FIRST))


def policed(**members: Any) -> DesiredJob:
    return a_job(spec__schedule_policy=members)


#: The current declaration, the earlier one, and the phase of the job.
EDITS: dict[str, tuple[DesiredJob, DesiredJob, Phase]] = {
    "update of a job whose change is ignored": (a_job(lifecycle=KEPT, description="new"), BEFORE, R),
    "the same of one that an earlier version made": (
        a_job(lifecycle=KEPT, description="new", **TAKEN_NOW), RELEASED, R
    ),
    "replace of such a job, with a number that it spelt otherwise": (a_job(**TAKEN_NOW), RELEASED, R),
    "create after such a job": (a_job(**TAKEN_NOW), RELEASED, DONE),
    "removal of such a number": (a_job(algorithm__command=["python", "x"]), RELEASED, R),
    "priority that was not declared": (policed(priority=2), a_job(), P),
    "another priority": (policed(priority=2), policed(priority=1), P),
    "another preemptible": (
        policed(priority=2, preemptible=True), policed(priority=2, preemptible=False), P
    ),
}  # fmt: skip


@pytest.mark.parametrize("is_recorded", [True, False])
@pytest.mark.parametrize("edit", EDITS)
def test_saved_plan_of_an_edit_holds_when_nothing_changed(edit: str, is_recorded: bool) -> None:
    now, then, phase = EDITS[edit]
    stack, job = a_stack(now), seen(then, phase=phase)
    memory = a_memory(past(then, 1, phase, job=job)) if is_recorded else NO_HISTORY
    assert plan_for(stack, job, memory=memory).to_execute
    assert moved(stack, [job], [job], memory) == ()


def test_change_of_a_job_of_an_earlier_version_shows_the_sent_values() -> None:
    [action] = plan_for(a_stack(a_job(**TAKEN_NOW)), seen(made_by_0_1_0(a_job(**TAKEN_FIRST)))).actions
    assert [(c.before, c.after) for c in action.changes] == [("1.1", "1.20")]


def test_options_of_the_plan_are_saved_with_it() -> None:
    options = SavedOptions(
        target=Target(kind=LOCAL),
        root="../stack",
        records="sqlite:///r",
        only=("a", "b*"),
        allow=("empty", "lost-work=a"),
        sources={"token": VariableSource(env="TOKEN")},
    )
    assert there_and_back(plan_for(a_stack(a_job())), options).options == options


# --- changes and their effect


def moved(
    stack: Stack, then: list[ObservedJob], now: list[ObservedJob], memory: HistorySnapshot = NO_HISTORY
) -> tuple[str, ...]:
    """Return the failed preconditions, now, of a plan made `then`."""
    plan = there_and_back(plan_for(stack, *then, memory=memory)).plan
    return failed_preconditions(plan, a_look(stack, *now, memory=memory), NOW)


@pytest.mark.parametrize("now", PHASES)
@pytest.mark.parametrize(
    ("action", "desired", "made_of", "then", "holds"),
    [
        (Action.UPDATE, LABELLED, NEW, R, ACTIVE),
        (Action.REPLACE, NEW, BEFORE, P, ACTIVE),
        (Action.REPLACE, NEW, BEFORE, R, ACTIVE),
        (Action.TERMINATE, absent(), NEW, P, ACTIVE),
        (Action.TERMINATE, absent(), NEW, R, ACTIVE),
        # the predecessor of a create must not be active again; a retry follows a bad end
        (Action.CREATE, NEW, BEFORE, DONE, ENDED),
        (Action.CREATE, RETRIED, NEW, F, {F, AB}),
        (Action.CREATE, RECREATED, NEW, TD, {TD}),
        (Action.CREATE, NEW, BEFORE, T, ENDED),
    ],
)
def test_saved_plan_is_stale_when_a_job_left_its_phase_class(
    action: Action, desired: DesiredJob, made_of: DesiredJob, then: Phase, holds: set[Phase], now: Phase
) -> None:
    stack, before, after = a_stack(desired), seen(made_of, phase=then), seen(made_of, phase=now)
    assert [a.action for a in plan_for(stack, before).actions] == [action]
    found = moved(stack, [before], [after])
    assert (found == ()) is (now in holds)
    assert all(reason.startswith("a: ") for reason in found)


#: Planned action of a key that is not executed → its declaration, and its job then.
NOT_EXECUTED: dict[Action, tuple[DesiredJob, ObservedJob]] = {
    Action.KEEP: (NEW, seen(NEW)),
    Action.CONFLICT: (a_job(lifecycle={"on_change": "fail"}), seen(BEFORE)),
    Action.BLOCKED: (absent(protect=True), seen(NEW)),
    Action.DEFER: (a_job(lifecycle={"on_failure": "retry", "retry_delay": "9999h"}), seen(NEW, phase=F)),
}
#: What may happen to its jobs.
MOVEMENTS: dict[str, list[ObservedJob]] = {
    **{phase.value: [seen(NEW, phase=phase)] for phase in PHASES},
    "an unknown phase": [seen(NEW, phase="Frozen")],
    "gone": [],
    "without its marker": [seen(NEW, description="")],
    "of another stack": [seen(NEW, stack="other")],
    "another digest": [seen(NEW, digest="a" + "1" * 12)],
    "protected": [seen(NEW, protected=True)],
    "edited": [seen(NEW, text="mine")],
    "a duplicate": [seen(NEW), seen(NEW, revision=2)],
    "a newer one": [seen(NEW, phase=F), seen(NEW, revision=2)],
    "the next name taken": [seen(NEW), seen(key="a", revision=2, description="")],
}


@pytest.mark.parametrize("movement", MOVEMENTS)
@pytest.mark.parametrize("kind", NOT_EXECUTED)
def test_saved_plan_holds_despite_changes_to_keys_it_does_not_execute(kind: Action, movement: str) -> None:
    desired, then = NOT_EXECUTED[kind]
    stack = a_stack(desired, a_job("b"))
    assert [a.action for a in plan_for(stack, then).actions] == [kind, Action.CREATE]
    assert moved(stack, [then], MOVEMENTS[movement]) == ()


def queued(**members: Any) -> ObservedJob:
    priority, text = members.pop("priority", 1), members.pop("text", "")
    return seen(a_job(spec__schedule_policy={"priority": priority}), phase=P, text=text, **members)


URGENT = a_job(spec__schedule_policy={"priority": 2})
SAID = a_job(description="new", spec__schedule_policy={"priority": 1})
UNPROTECTED = absent(protect=False)
new, old = partial(seen, NEW), partial(seen, BEFORE)
SECOND = old(revision=2, phase=DONE)
ENDING = [old(phase=T), SECOND]
TWO = [new(), new(revision=2)]
#: One is terminated, the other replaced.
TWO_OLD = [old(), old(revision=2)]
HELD = [*TWO, new(revision=3, description="")]
NEWER = [new(digest="z" + "0" * 12)]
GONE = "a ({id}) is gone or no longer carries our marker"
UNKNOWN = "a-r2 exists, but is not in the plan"


def notifying(topic: str) -> DesiredJob:
    return a_job(description="new", spec__notification={"topic_urn": topic, "events": ["JobFailed"]})


def taken(name: str) -> ObservedJob:
    """A foreign job."""
    return seen(key=name, description="")


Row = tuple[DesiredJob, list[ObservedJob], list[ObservedJob], str]
#: Change → declaration, jobs then and now, and what makes the plan stale ("" if it holds).
MOVED: dict[str, Row] = {
    "update: unknown phase": (LABELLED, [new()], [new(phase="Frozen")], "a was Running, now Frozen"),
    "update: other digest": (LABELLED, [new()], [old()], "the marker of a has changed"),
    "update: another revision": (LABELLED, [new()], TWO, UNKNOWN),
    "replace: protected": (NEW, [old()], [old(protected=True)], "a is now protected"),
    "terminate: description edited": (absent(), [new()], [new(text="mine")], ""),
    "terminate: ran long": (absent(), [new(ran_s=60)], [new(ran_s=30 * HOUR)], ""),
    "update: gone": (LABELLED, [new()], [], GONE),
    "update: other stack": (LABELLED, [new()], [new(stack="other")], GONE),
    "terminate: marker removed": (absent(), [new()], [new(description="")], GONE),
    # names
    "create: made by a colleague": (NEW, [], [new()], "r1 is no longer the next revision; r2 is"),
    "create: name taken": (NEW, [], [taken("a")], "the name a is taken"),
    "create: name taken in another case": (NEW, [], [taken("A")], "the name A is taken"),
    "create: later name taken": (
        NEW, [], [new(stack="other", revision=4)], "r1 is no longer the next revision; r5 is"
    ),
    "replace: next name taken": (NEW, [old()], [old(), taken("a-r2")], "the name a-r2 is taken"),
    # one of two is kept, the other one ended for it
    "duplicate: ended": (NEW, TWO, [new(), new(revision=2, phase=F)], "a-r2 was Running, now Failed"),
    "duplicate: the one that ends is gone": (
        NEW, [new(revision=2), new(phase=T)], [new(revision=2)], ""
    ),
    "duplicate: beside a conflict": (NEW, HELD, HELD, ""),
    "newer reconciler's digest": (NEW, NEWER, NEWER, ""),
    # a create waits for another job of its key, which may end but not restart
    "waited for: goes on": (NEW, ENDING, ENDING, ""),
    "waited for: ended": (NEW, ENDING, [old(phase=TD), SECOND], ""),
    "waited for: ended, of an older one": (
        NEW, [old(phase=T), old(phase=TD, revision=3)], [old(phase=TD), old(phase=TD, revision=3)], ""
    ),
    "waited for: ended, beside a retry": (
        RETRIED, [new(phase=T), new(revision=2, phase=F)], [new(phase=TD), new(revision=2, phase=F)], ""
    ),
    "waited for: runs again": (NEW, ENDING, [old(), SECOND], "a is Running again"),
    "waited for: gone": (NEW, ENDING, [SECOND], "the previous job, {id}, is gone"),
    "stopped by us: completed": (
        NEW, [new(phase=TD, stopped=True)], [new(phase=DONE)], "a was Terminated, now Completed"
    ),
    "had ended: is ending": (NEW, [old(phase=TD), SECOND], ENDING, "a exists, but is not in the plan"),
    "was not there: is ending": (NEW, [SECOND], ENDING, "a exists, but is not in the plan"),
    "superseded: is ending": (
        NEW, TWO_OLD, [old(phase=T), TWO_OLD[1]], "a was Running, now Terminating"
    ),
    "superseded: queued": (NEW, TWO_OLD, [old(phase=P), TWO_OLD[1]], ""),
    # an update overwrites only values that were shown
    "update: priority": (
        URGENT, [queued()], [queued(priority=3)], "spec.schedule_policy.priority of a has changed, now"
    ),
    "update: priority as declared": (URGENT, [queued()], [queued(priority=2)], ""),
    "update: description that was as declared": (
        URGENT, [queued()], [queued(text="mine")], 'description of a has changed, now "mine"'
    ),
    "update: description": (
        SAID, [queued(text="old")], [queued(text="older")], 'description of a has changed, now "older"'
    ),
    "update: priority that was as declared": (
        SAID, [queued(text="old")], [queued(text="old", priority=3)], "priority of a has changed, now"
    ),
    "update: protected": (
        SAID, [queued(text="old")], [queued(text="old", protected=True)], "the marker of a has changed"
    ),
    "update: a secret, which may have another value": (
        notifying(SecretText("hush", "${var.token}")),
        [seen(notifying("hush"), text="old")], [seen(notifying("loud"), text="old")], "",
    ),
    "release: protection released already": (
        UNPROTECTED, [new(protected=True)], [new()], "the marker of a has changed"
    ),
    "release: text in front of the marker": (
        UNPROTECTED, [new(protected=True)], [new(protected=True, text="mine")],
        'description of a has changed, now "mine"',
    ),
}  # fmt: skip


@pytest.mark.parametrize("what", MOVED)
def test_saved_plan_is_stale_only_for_a_relevant_change(what: str) -> None:
    desired, then, now, message = MOVED[what]
    stack = a_stack(desired)
    assert moved(stack, then, then) == ()
    found = "; ".join(moved(stack, then, now))
    assert message.format(id=new().id) in found
    assert bool(found) is bool(message)


def test_every_failed_precondition_of_every_executed_key_is_listed() -> None:
    stack = a_stack(a_job("a"), a_job("b", description="new"), a_job("c"))
    then = [seen(a_job("a")), seen(a_job("b"))]
    found = moved(stack, then, [seen(a_job("a"), phase=F), seen(a_job("b"), phase=F), seen(a_job("c"))])
    assert [reason[0] for reason in found] == ["b", "c", "c"]


# --- needs of an executed action

UP = a_job("up")
DOWN = replace(a_job("down"), needs=("up",))
UP_DONE = seen(UP, phase=DONE)


@pytest.mark.parametrize(
    ("now", "message"),
    [
        ([UP_DONE], ""),
        ([seen(UP, phase=DONE, text="mine")], ""),
        ([seen(UP, phase=DONE, protected=True)], ""),
        ([seen(UP, phase=R)], "up: up was Completed, now Running"),
        ([seen(UP, phase=F)], "up: up was Completed, now Failed"),
        ([], "up: up ({id}) is gone or no longer carries our marker"),
        ([seen(UP, phase=DONE, description="")], "up: up ({id}) is gone or no longer carries our marker"),
        ([UP_DONE, seen(UP, revision=2)], "up: up-r2 exists, but is not in the plan"),
        ([UP_DONE, seen(UP, revision=2, phase=F)], "up: needed, but up-r2 is Failed"),
        ([seen(UP, digest="a" + "1" * 12, phase=DONE)], "up: the marker of up has changed"),
    ],
)
@pytest.mark.parametrize("is_in_view", [True, False])
def test_saved_plan_is_stale_when_the_needs_of_an_action_are_no_longer_met(
    now: list[ObservedJob], message: str, is_in_view: bool
) -> None:
    stack = a_stack(UP, DOWN)
    if not is_in_view:
        stack = replace(stack, jobs={"down": DOWN}, whole=stack.jobs, is_partial=True)
    plan = there_and_back(plan_for(stack, UP_DONE)).plan
    assert [a.key for a in plan.actions] == (["down", "up"] if is_in_view else ["down"])
    found = failed_preconditions(plan, a_look(stack, *now), NOW)
    if is_in_view:
        assert "; ".join(found) == message.format(id=UP_DONE.id)
    else:  # out of view only its newest revision counts
        assert bool(found) is (not now or now[-1].phase is not DONE or now[-1].marker is None)


def test_saved_plan_holds_when_a_needed_job_aged_out_completed_by_history() -> None:
    memory = a_memory(past(UP, 1, DONE, job=UP_DONE))
    assert moved(a_stack(UP, DOWN), [UP_DONE], [], memory) == ()


@pytest.mark.parametrize(
    ("last", "phase", "stale"),
    [
        (1, DONE, ()),
        (2, R, ("up: needed, but up-r2 is Running",)),
        (2, DONE, ("up: r2 has completed, but the plan has the path of r1",)),
    ],
)
def test_plan_with_a_numbered_path_is_stale_once_its_upstream_has_a_newer_revision(
    last: int, phase: Phase, stale: tuple[str, ...]
) -> None:
    path = RevisionText([(OutputName("up", "o"), RevisionText(["obs://b/o/", None, "/"]))])
    down = a_job("down", algorithm__inputs={"i": path})
    down = replace(down, needs=("up",), is_numbered=True)
    stack = replace(a_stack(down, UP), jobs={"down": down}, whole={"up": UP, "down": down}, is_partial=True)
    plan = there_and_back(plan_for(stack, UP_DONE)).plan
    [action] = plan.to_execute
    assert action.desired
    assert action.desired["algorithm"]["inputs"][0]["remote"]["obs"]["obs_url"] == "obs://b/o/1/"
    there = [UP_DONE, *([seen(UP, revision=last, phase=phase)] if last > 1 else [])]
    assert failed_preconditions(plan, a_look(stack, *there), NOW) == stale


@pytest.mark.parametrize(
    ("now", "is_stale"),
    [("", False), ("d", False), ("de", True), ("dg", True), ("x", False)],
)
def test_saved_plan_is_stale_once_more_sweep_members_are_active_than_max_parallel(
    now: str, is_stale: bool
) -> None:
    """Three may be active: the former member `g`, and `a` and `b`, which are started."""
    jobs = {key: replace(a_job(key), sweep="s", matrix={"k": key}, max_parallel=3) for key in "abcdefgh"}
    members = [jobs[key] for key in "abcde"]
    done = [seen(jobs[key], phase=DONE) for key in "cde"]
    stack = a_stack(*members)
    memory = replace(a_memory(), sweeps={"g": "s"})
    plan = there_and_back(plan_for(stack, *done, seen(jobs["g"]), memory=memory)).plan
    assert [one.key for one in plan.to_execute if one.action is Action.CREATE] == ["a", "b"]
    active = [seen(a_job(key), revision=2) for key in now if key != "g"]
    there = [*done, *active, *([seen(jobs["g"])] if "g" in now else [])]
    found = failed_preconditions(plan, a_look(stack, *there), NOW, dict.fromkeys("abcde", "s"))
    about_the_sweep = [one for one in found if one.startswith("s: ")]
    assert bool(about_the_sweep) is is_stale


def test_saved_plan_counts_a_sweep_member_with_a_removed_marker() -> None:
    members = [replace(a_job(key), sweep="s", matrix={"k": key}, max_parallel=3) for key in "abcde"]
    stack, done = a_stack(*members), [seen(job, phase=DONE) for job in members[2:]]
    plan = there_and_back(plan_for(stack, *done)).plan
    again = [seen(members[3], revision=2), seen(members[4], revision=2, description="")]
    memory = a_memory(past(members[4], 2, R))
    found = failed_preconditions(
        plan, a_look(stack, *done, *again, memory=memory), NOW, dict.fromkeys("abcde", "s")
    )
    assert found == ("s: d, e are active; max_parallel: 3, and the plan starts 2",)


def test_create_after_an_aged_out_revision_is_stale_when_an_older_one_exists() -> None:
    memory = a_memory(past(BEFORE, 2, DONE))
    assert moved(a_stack(NEW), [], [seen(BEFORE, phase=T)], memory) == (
        "a: a exists, but is not in the plan",
    )


def test_create_is_stale_when_the_revision_before_has_lost_its_marker() -> None:
    job, memory = seen(BEFORE, phase=DONE), a_memory(past(BEFORE, 1, DONE))
    assert moved(a_stack(NEW), [job], [replace(job, description="")], memory) == (
        f"a: the previous job, {job.id}, no longer carries our marker",
    )


def test_create_is_stale_when_the_history_has_a_new_revision() -> None:
    stack = a_stack(NEW)
    plan = there_and_back(plan_for(stack)).plan
    found = failed_preconditions(plan, a_look(stack, memory=a_memory(past(NEW))), NOW)
    assert found == ("a: r1 is no longer the next revision; r2 is",)


@pytest.mark.parametrize(("desired", "is_stale"), [(LABELLED, True), (NEW, False)])
def test_saved_plan_is_stale_when_a_job_to_change_became_unreadable(
    desired: DesiredJob, is_stale: bool
) -> None:
    stack = a_stack(desired)
    plan = there_and_back(plan_for(stack, seen(NEW))).plan
    lost = Unreadable("status is missing", name="a")
    found = failed_preconditions(plan, a_look(stack, unreadable=(lost,)), NOW)
    assert found == (("a: could not be read: status is missing",) if is_stale else ())


def test_saved_plan_is_stale_for_a_digest_of_another_algorithm() -> None:
    plan = plan_for(a_stack(NEW))
    [action] = plan.actions
    assert action.after is not None
    after = action.after.model_copy(update={"digest": "z" + "0" * 12})
    foreign = plan.model_copy(update={"actions": (action.model_copy(update={"after": after}),)})
    assert (
        "needs another version of reconciler" in failed_preconditions(foreign, a_look(a_stack(NEW)), NOW)[0]
    )


# --- lost_time applies to a saved plan


@pytest.mark.parametrize(
    ("lifecycle", "allow", "ran_s", "holds"),
    [
        ({}, (), HOUR, True),
        ({}, (), HOUR + 1, False),
        ({"on_change": "replace"}, (), 30 * HOUR, True),
        ({}, ("lost-work",), 30 * HOUR, True),
        ({}, ("lost-work=a",), 30 * HOUR, True),
        ({}, ("terminations",), 30 * HOUR, False),
    ],
)
@pytest.mark.parametrize("phase", [P, R])
def test_replace_beyond_the_lost_time_limit_is_stale(
    lifecycle: dict[str, Any], allow: tuple[str, ...], ran_s: float, holds: bool, phase: Phase
) -> None:
    stack = a_stack(a_job(lifecycle=lifecycle))
    plan = there_and_back(plan_for(stack, seen(BEFORE, ran_s=60), allow=allow)).plan
    assert [action.action for action in plan.actions] == [Action.REPLACE]
    found = failed_preconditions(plan, a_look(stack, seen(BEFORE, phase=phase, ran_s=ran_s)), NOW)
    assert (found == ()) is holds
    assert holds or "has now run for" in found[0]


# --- renamed keys, and restored markers


RENAMED = replace(a_job("new"), formerly=("old", "older"))


def was(key: str, **members: Any) -> ObservedJob:
    return seen(replace(a_job("new"), key=key), **members)


@pytest.mark.parametrize("phase", [R, T, DONE])
def test_key_rename_holds_while_the_old_key_is_in_the_marker(phase: Phase) -> None:
    stack, jobs = a_stack(RENAMED), [was("older", phase=DONE), was("old", revision=2, phase=phase)]
    assert moved(stack, jobs, jobs) == ()
    assert moved(stack, jobs, [jobs[0], was("old", revision=2, phase=F)])


def test_next_revision_number_counts_several_old_keys() -> None:
    desired = replace(a_job("new", **OLD), formerly=("old", "older"))
    jobs = [was("older", revision=5, phase=DONE), was("old", revision=2)]
    plan = plan_for(a_stack(desired), *jobs)
    assert [a.after.name for a in plan.actions if a.action is Action.REPLACE and a.after] == ["new-r6"]
    assert moved(a_stack(desired), jobs, jobs) == ()


@pytest.mark.parametrize("key", ["old", "new"])
def test_marker_restoration_is_stale_when_the_marker_is_back(key: str) -> None:
    stack, wiped = a_stack(RENAMED), was("old", description="mine now")
    memory = a_memory(past(replace(a_job("new"), key=key), 1, R, job=wiped))
    assert moved(stack, [wiped], [wiped], memory) == ()
    [reason] = moved(stack, [wiped], [was("new", name="old", job_id=wiped.id, id_part=wiped.id[:8])], memory)
    assert reason == f"new: old ({wiped.id}) is no longer a known job without a marker"


def test_marker_restoration_is_stale_when_the_history_no_longer_has_the_job() -> None:
    stack, wiped = a_stack(NEW), seen(NEW, description="mine now")
    plan = there_and_back(plan_for(stack, wiped, memory=a_memory(past(NEW, 1, R)))).plan
    assert failed_preconditions(plan, a_look(stack, wiped, memory=a_memory(past(NEW, 1, R))), NOW) == ()
    [reason] = failed_preconditions(plan, a_look(stack, wiped), NOW)
    assert "no longer a known job" in reason
