"""docs/concepts/decisions.md, `formerly`: a key is renamed, and its run continues."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import pytest

from reconciler.core.identity import Marker, parse_description
from reconciler.core.observed import ObservedJob, Unreadable
from reconciler.core.phase import Phase
from reconciler.core.record import NO_HISTORY, HistorySnapshot
from reconciler.core.stack import DesiredJob, Stack, narrow
from reconciler.decide.plan import Action, Plan, Reason, in_order
from tests.builders import STACK, a_job, a_stack, absent, made_by_0_1_0, seen
from tests.core.history import a_memory, past
from tests.core.test_decision_table import DONE, OLD, TD, F, R, T, declared_as, observed_as, plan_for, rows
from tests.core.worlds import a_world


def renamed(*old: str, **members: Any) -> DesiredJob:
    """The key `new`, formerly `old`."""
    return replace(a_job("new", **members), formerly=old or ("old",))


def was(key: str = "old", **members: Any) -> ObservedJob:
    """A job of the same declaration, made under the old key."""
    changed = members.pop("changed", {})
    return seen(replace(a_job("new", **changed), key=key), **members)


def lines(plan: Plan) -> list[str]:
    """Format each action: job name before, action, reason, job name after."""
    found = []
    for one in plan.actions:
        before, after = (shown.name if shown else "" for shown in (one.before, one.after))
        found.append(f"{before} {one.action.value} {one.reason.value} {after}".strip())
    return found


def applied(plan: Plan, jobs: Iterable[ObservedJob]) -> list[ObservedJob]:
    """Return the jobs after the updates of a plan."""
    written = {
        a.before.id: a.desired["description"]
        for a in plan.actions
        if a.action is Action.UPDATE and a.before and a.desired
    }
    return [replace(job, description=written.get(job.id, job.description)) for job in jobs]


def marker_of(job: ObservedJob) -> Marker:
    assert job.marker is not None
    return job.marker


# --- a run of the old key continues under the new one


@pytest.mark.parametrize(
    ("declared", "observed", "remembered", "expected"),
    rows(
        """
# its marker follows, and nothing else
pending | | old Pending | | old update marker_changed old
running | | old | | old update marker_changed old
completed | | old Completed | | old update marker_changed old
terminating | | old Terminating | | old keep terminated_outside old
every revision | | old Failed, old r2 Terminated stopped, old r3 | \
    | old update renamed old; old-r2 update renamed old-r2; old-r3 update marker_changed old-r3
several old keys | formerly: old+older | older Completed edited, old r2 | \
    | older update renamed older; old-r2 update marker_changed old-r2
superseded | | old ran_s=9, old r2 ran_s=99 | | old terminate superseded; old-r2 update marker_changed old-r2
# the next revision has the new name and the next number
no job | | | | create not_found new
retry | on_failure: retry | old r3 Failed | | old-r3 update renamed old-r3; create retry new-r4
recreate | on_terminated: recreate | old r3 Terminated | \
    | old-r3 update renamed old-r3; create recreate new-r4
declared again | | old r3 Terminated stopped | | old-r3 update renamed old-r3; create declared_again new-r4
edited | | old r3 Completed edited | | old-r3 update renamed old-r3; create immutable_changed new-r4
edited, running | | old r2 edited | | old-r2 replace immutable_changed new-r3
retries exhausted | on_failure: retry | old Failed, old r2 Failed | \
    | old update renamed old; old-r2 update marker_changed old-r2
aged out | | | old r2 Completed | keep aged_out old-r2
aged out, edited | | | old r4 Failed edited | create immutable_changed new-r5
cut off | | old Terminated stopped, new r2 | | old update renamed old; new-r2 keep unchanged new-r2
# both keys own jobs
both run | | old, new | | new conflict rename_clash
new failed | | old Completed, new Failed | | old conflict rename_clash
old completed | | old Completed, new | | old conflict rename_clash
both run, new r2 | | old, new r2 | | old conflict rename_clash
# what is not wanted
absent | absent | old | | old terminate state_absent
absent, protected | absent | old protected | | old blocked protected
absent, protected by its entry | absent protect: true | old | | old blocked protected
absent, released | absent protect: false | old protected | | old update protection_released old
edited, protected | | old edited protected | | old blocked protected; old update renamed old
edited, protected by its entry | protect: true | old edited | | old blocked protected; old update renamed old
""",
        5,
    ),
)
def test_renamed_key_actions_match_the_table(
    declared: str, observed: str, remembered: str, expected: str
) -> None:
    absence, entry = ("absent ", declared[6:]) if declared.startswith("absent") else ("", declared)
    formerly = "" if "formerly" in entry else "formerly: old, "
    desired = declared_as(f"{absence}{formerly}{entry.strip()}", "new")
    plan = plan_for(a_stack(desired), *_made(observed), memory=_known(remembered))
    assert lines(plan) == expected.split("; ")
    assert {one.key for one in plan.actions} == {"new"}
    jobs = [one for one in _made(observed) if one.name.startswith("old")]
    for after in applied(plan, jobs):
        written = marker_of(after)
        if written.key == "new":
            [job] = [one for one in jobs if one.id == after.id]
            was_digest = marker_of(job).digest
            assert (written.id_part, written.revision) == (job.id[:8], marker_of(job).revision)
            assert written.digest in (desired.digest, was_digest)


def _made(observed: str) -> list[ObservedJob]:
    """Parse jobs of other keys; they have the declaration of `new` unless `edited`."""
    found = []
    for key, _, words in (one.strip().partition(" ") for one in observed.split(",") if one.strip()):
        made_of = replace(a_job("new", **(OLD if "edited" in words else {})), key=key)
        found += observed_as(words.replace("edited", "") or "r1", made_of)
    return found


def _known(remembered: str) -> HistorySnapshot:
    jobs = [(job, marker_of(job)) for job in _made(remembered)]
    made_of = {
        job.id: replace(a_job("new", **(OLD if "edited" in remembered else {})), key="old") for job, _ in jobs
    }
    return a_memory(
        *(past(made_of[job.id], marker.revision, job.phase_text, job=job) for job, marker in jobs)
    )


def test_key_rename_changes_only_the_marker() -> None:
    job = was()
    [action] = plan_for(a_stack(renamed()), job).actions
    assert action.formerly == "old"
    assert action.desired is not None
    assert action.desired["description"] == str(Marker(STACK, "new", 1, renamed().digest, id_part=job.id[:8]))
    assert [(c.path, c.before, c.after) for c in action.changes] == [("marker.key", "old", "new")]


@pytest.mark.parametrize("phase", [R, DONE])
def test_plan_after_a_key_rename_is_empty_with_or_without_formerly(phase: Phase) -> None:
    jobs = [was(revision=1, phase=TD, stopped=True), was(revision=2, phase=phase)]
    after = applied(plan_for(a_stack(renamed()), *jobs), jobs)
    assert [(marker_of(job).key, marker_of(job).revision) for job in after] == [("new", 1), ("new", 2)]
    for desired in (renamed(), a_job("new")):
        assert not plan_for(a_stack(desired), *after).to_execute


def test_create_first_renames_the_marker_before_the_new_job_is_created() -> None:
    """Otherwise a crash between the two would leave both keys with revisions of their own."""
    desired = renamed(**OLD, lifecycle={"replace_order": "create_first"})
    actions = in_order(plan_for(a_stack(desired), was(revision=2)).actions)
    assert [one.reason for one in actions] == [Reason.RENAMED, Reason.IMMUTABLE_CHANGED]


def test_renaming_back_that_was_cut_off_between_two_markers_goes_on() -> None:
    """The name of the first job is that of its new key again, so only its `id` part tells of the renaming."""
    first = seen(a_job("new"), revision=1, phase=TD, stopped=True)
    under_old = marker_of(first)._replace(key="old").for_job(first.name, first.id)
    jobs = [replace(first, description=str(under_old)), was(revision=2)]
    [renaming, _] = plan_for(a_stack(renamed()), *jobs).actions
    assert renaming.desired is not None
    jobs[0] = replace(first, description=renaming.desired["description"])
    assert lines(plan_for(a_stack(renamed()), *jobs)) == ["old-r2 update marker_changed old-r2"]


@pytest.mark.parametrize("phase", [R, DONE])
def test_running_adopted_job_beside_a_newer_job_of_the_old_key_is_a_rename_clash(phase: Phase) -> None:
    """Its marker has an `id` part, too, and a renaming would end it as superseded."""
    adopted = seen(a_job("new"), name="by-hand", id_part="12345678", job_id="12345678-aaaa")
    plan = plan_for(a_stack(renamed()), adopted, was(revision=2, phase=phase))
    assert [one.reason for one in plan.actions] == [Reason.RENAME_CLASH]


@pytest.mark.parametrize("protect", [None, True])
def test_destroy_spares_a_protected_job_of_the_old_key(protect: bool | None) -> None:
    plan = a_world(
        a_stack(renamed(lifecycle={"protect": protect})), was(protected=not protect)
    ).destroy_plan()
    assert [(one.action, one.reason) for one in plan.actions] == [(Action.BLOCKED, Reason.PROTECTED)]


@pytest.mark.parametrize(
    ("view", "expected"),
    [
        (["new"], ["old update marker_changed old"]),
        (["old"], ["old update marker_changed old"]),
        (["b"], ["b keep unchanged b"]),
    ],
)
def test_old_key_is_in_view_with_the_new_key(view: list[str], expected: list[str]) -> None:
    whole = {"new": renamed(), "b": a_job("b")}
    stack = narrow(replace(a_stack(*whole.values()), whole=whole), view, ["old", "b"])
    assert lines(plan_for(stack, was(), seen(a_job("b")))) == expected


@pytest.mark.parametrize("is_partial", [True, False])
def test_old_key_is_not_terminated_when_the_new_one_is_out_of_view(is_partial: bool) -> None:
    stack = replace(a_stack(a_job("b"), is_partial=is_partial), whole={"new": renamed(), "b": a_job("b")})
    assert lines(plan_for(stack, was(), seen(a_job("b")))) == ["b keep unchanged b"]


@pytest.mark.parametrize(
    ("job", "memory", "classes"),
    [
        (was(), NO_HISTORY, []),
        (was(), a_memory(past(replace(a_job("new"), key="old"), 1, R)), []),
        (was(phase=F), NO_HISTORY, ["failed"]),
        (was(text="edited by hand"), NO_HISTORY, ["modified"]),
    ],
    ids=["not yet applied", "recorded", "failed", "edited"],
)
def test_drift_of_the_old_key_is_reported_for_the_new_key(
    job: ObservedJob, memory: HistorySnapshot, classes: list[str]
) -> None:
    drift = a_world(a_stack(renamed()), job, memory=memory).drift().drift
    assert [item.class_.value for item in drift] == classes


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


def test_renamed_job_is_owned_by_its_id_part_but_a_copy_is_not() -> None:
    desired = a_job("new")
    job = seen(desired, name="old", job_id="12345678-aaaa", id_part="12345678")
    copy = seen(desired, name="old-copy", job_id="99999999-aaaa", id_part="12345678")
    assert lines(plan_for(a_stack(desired), job, copy)) == ["old keep unchanged old"]


# --- both keys with revisions


@pytest.mark.parametrize("done", [0, 1, 2])
def test_partial_key_rename_is_continued_without_conflict(done: int) -> None:
    """After a crash between two marker updates, the next plan continues."""
    jobs = [was(revision=1, phase=F), was(revision=2, phase=DONE, changed=OLD), was(revision=3)]
    plan = plan_for(a_stack(renamed()), *jobs)
    left = [*applied(plan, jobs)[:done], *jobs[done:]]
    again = plan_for(a_stack(renamed()), *left)
    assert lines(again) == lines(plan)[done:]


def test_destroy_terminates_the_job_of_the_old_key() -> None:
    stack = a_stack(renamed(), a_job("b"))
    plan = a_world(stack, was(), seen(a_job("b"))).destroy_plan()
    assert lines(plan) == [
        "b terminate destroyed",
        "old terminate destroyed",
    ]


def test_destroy_of_an_undeclared_key_counts_only_the_others_as_left_alone() -> None:
    stack = narrow(a_stack(a_job("b")), ["old"], ["old", "b"])
    plan = a_world(stack, was(), seen(a_job("b"))).destroy_plan()
    assert lines(plan) == ["old terminate destroyed"]
    left_out = "1 key is declared but not in view; 1 key is owned but not in view; left alone"
    assert [one.why for one in plan.warnings] == [left_out]


def test_unreadable_job_of_the_old_key_makes_the_new_key_unknown() -> None:
    plan = plan_for(a_stack(renamed()), unreadable=(Unreadable("status is missing", name="old"),))
    assert [(a.key, a.action) for a in plan.actions] == [("new", Action.UNKNOWN)]


# --- with the history store


@pytest.mark.parametrize("key", ["old", "new"])
def test_wiped_marker_of_a_renamed_job_is_restored_with_the_new_key(key: str) -> None:
    of_key = replace(a_job("new"), key=key)
    job = was(description="mine now")
    plan = plan_for(a_stack(renamed()), job, memory=a_memory(past(of_key, 1, R, job=job)))
    assert lines(plan) == ["old update marker_restored old"]
    assert marker_of(applied(plan, [job])[0]).key == "new"


def test_reused_old_key_has_no_history_of_the_renamed_job() -> None:
    """The store knows the job under both keys, but it belongs to the new one: `old` has never completed."""
    of_old, of_new = replace(a_job("new"), key="old"), a_job("new")
    job = seen(of_new, name="old", id_part="12345678", job_id="12345678-aaaa", phase=DONE)
    memory = a_memory(past(of_old, 1, DONE, job=job), past(of_new, 1, DONE, job=job))
    stack = a_stack(of_new, of_old)
    for there in ([job], []):
        with_it, without = (plan_for(stack, *there, memory=m).actions[1] for m in (memory, NO_HISTORY))
        assert with_it == without
    assert lines(plan_for(stack, memory=memory)) == [
        "keep aged_out old",
        "create not_found old",
    ]


# --- an undeclared rename


def hints(plan: Plan) -> list[tuple[str | None, str | None]]:
    return [(one.key, one.fix) for one in plan.warnings if one.what == "may be a rename"]


@pytest.mark.parametrize(
    ("stack", "jobs", "is_given"),
    [
        *((a_stack(a_job("new")), [was(phase=phase)], True) for phase in (R, DONE)),
        (a_stack(renamed()), [was()], False),
        (a_stack(a_job("new", **OLD)), [was()], False),
        (a_stack(a_job("new")), [was(phase=F)], False),
        (a_stack(a_job("new")), [was(phase=T)], False),
        (a_stack(a_job("new"), a_job("old")), [was()], False),
        (a_stack(a_job("new"), absent("old")), [was()], False),
        (a_stack(renamed("other")), [was()], False),
        (a_stack(a_job("new")), [was(stack="other")], False),
        (a_stack(absent("new")), [was()], False),
        (a_stack(a_job("new")), [was(), seen(a_job("new"), phase=F)], False),
    ],
)
def test_new_key_with_the_declaration_of_a_removed_key_gets_a_rename_hint(
    stack: Stack, jobs: list[ObservedJob], is_given: bool
) -> None:
    hint = [("new", "add `formerly: old` to new to keep its job")]
    assert hints(plan_for(stack, *jobs)) == (hint if is_given else [])


def test_rename_hint_accounts_for_the_key_in_declared_texts() -> None:
    outputs = {
        key: a_job(key, algorithm__outputs={"o": f"obs://b/{key}/new-ones/"}) for key in ("old", "new")
    }
    hint = [("new", "add `formerly: old` to new to keep its job")]
    assert hints(plan_for(a_stack(outputs["new"]), seen(outputs["old"]))) == hint
    other = a_job("old", algorithm__outputs={"o": "obs://b/elsewhere/new-ones/"})
    assert hints(plan_for(a_stack(outputs["new"]), seen(other))) == []


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
