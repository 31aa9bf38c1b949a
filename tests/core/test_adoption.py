"""Preconditions of an adoption, and its effect.

Source: docs/concepts/ownership.md, "Adopting and releasing jobs".
"""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest

from reconciler.core.body import CURRENT, covered_by, create_body, desugar, digest_of, manifest_form, merge
from reconciler.core.entry import compare_with_job, entry_patch
from reconciler.core.identity import parse_description
from reconciler.core.observed import Observation, ObservedJob, Unreadable
from reconciler.core.ownership import sort_by_key
from reconciler.core.past import PastRevision
from reconciler.core.phase import Phase
from reconciler.core.record import HistorySnapshot
from reconciler.core.stack import DesiredJob, JobEntry
from reconciler.decide.actions import adopt_command, release_command
from reconciler.decide.adoption import Adoption, Candidate, RenamedStack, adopt, release, release_warnings
from reconciler.decide.key_state import PlanContext, Snapshot, state_of
from reconciler.decide.plan import Action, Reason
from tests.builders import NOW, STACK, a_job, absent, seen
from tests.core.fields import FIELDS, FORMS, Field, declared, is_accepted, reported
from tests.each import each

CONTEXT = PlanContext(STACK, at_s=NOW)
JOB_ID = "0123abcd-0000-0000-0000-000000000000"


def unmanaged(job: ObservedJob, *, name: str = "by-hand", text: str = "") -> ObservedJob:
    return replace(job, id=JOB_ID, name=name, description=text)


def taken(
    desired: DesiredJob,
    job: ObservedJob,
    *others: ObservedJob,
    past: tuple[PastRevision, ...] = (),
    accept: bool = False,
    **more: Any,
) -> Adoption:
    """Adopt a job, beside the others in the workspace."""
    observation = Observation((job, *others), **more)
    ownership = sort_by_key(observation, STACK, frozenset({desired.key}))
    memory = HistorySnapshot({desired.key: past} if past else {})
    state = state_of(desired.key, desired, Snapshot(ownership, memory=memory), CONTEXT)
    return adopt(Candidate(state, job, accept))


def without_null(tree: Any) -> Any:
    """Return the tree without the fields that a patch sets to null."""
    if isinstance(tree, Mapping):
        return {name: without_null(value) for name, value in tree.items() if value is not None}
    return [without_null(item) for item in tree] if isinstance(tree, list) else tree


def with_entry(desired: DesiredJob, patch: Mapping[str, Any]) -> DesiredJob:
    merged = without_null(merge(manifest_form(desired.body or {}), desugar(patch)))
    if "brand_new" not in merged.get("spec", {}):  # declared by `raw`, so the models do not know it
        JobEntry.model_validate(merged)
    body = create_body(merged)
    return replace(desired, body=body, digest=digest_of(covered_by(CURRENT, body, None)))


# --- compared with its details

#: Omitted by the second response form; a job with it is adopted with --accept only.
LEFT_OUT = {"algorithm.engine.image_repo_id", "algorithm.parameters.a.i18n_description"}


@pytest.mark.parametrize("form", FORMS)
@each("field", FIELDS)
def test_job_equals_the_declaration_it_was_created_from(field: Field, form: str) -> None:
    for value in (field.value, field.other):
        desired = declared(field.base, {field: value})
        if is_accepted(desired):
            found = compare_with_job(desired, reported(desired, form))
            left_out = LEFT_OUT if form != "first" else set()
            assert {change.path for change in found.changes} <= left_out
            assert found.secrets == ()


@pytest.mark.parametrize("form", ["first", "second on OTC"])
@each("field", FIELDS)
def test_patch_pasted_into_the_entry_leaves_no_difference(field: Field, form: str) -> None:
    one, other = (declared(field.base, {field: value}) for value in (field.value, field.other))
    without = declared(field.base, {})
    for desired, running in ((one, other), (one, without), (without, one)):
        if not is_accepted(running):
            continue
        job = reported(running, form)
        if not compare_with_job(desired, job).changes:
            continue
        patch = entry_patch(desired, job, STACK)
        if not patch.variables:  # their values are in no file
            pasted = with_entry(desired, patch.entry)
            assert compare_with_job(pasted, job).changes == (), patch.entry


# --- adopted


@pytest.mark.parametrize("phase", [phase for phase in Phase if phase is not Phase.TERMINATING])
def test_equal_job_gets_the_declared_description_and_a_marker(phase: Phase) -> None:
    desired = a_job(description="ours", lifecycle={"protect": True})
    job = unmanaged(reported(desired, phase=phase), text="theirs")
    action = taken(desired, job).action
    assert (action.action, action.reason) == (Action.UPDATE, Reason.ADOPTED)
    assert action.desired is not None
    text, marker = parse_description(action.desired["description"])
    assert (text, str(marker)) == ("ours", f"reconciler.{STACK}.a.r1.{desired.digest}.id0123abcd.protected")
    assert [change.path for change in action.changes] == ["marker", "description"]
    assert action.declared is not None
    assert action.declared.immutable == desired.covered_by(CURRENT)


def test_adopted_revision_number_follows_owned_recorded_and_named_revisions() -> None:
    desired = a_job()
    job = unmanaged(reported(desired))

    def number(*others: ObservedJob, **more: Any) -> int:
        after = taken(desired, job, *others, **more).action.after
        assert after is not None
        return after.revision

    past = PastRevision("a", 6, "a-r6", "gone", "b" + "0" * 12, "Completed")
    assert number() == 1
    assert number(seen(desired, revision=3, phase=Phase.FAILED)) == 4
    assert number(replace(seen(desired), name="a-r5", description="", id="other")) == 6
    assert number(past=(past,)) == 7
    assert number(past=(past._replace(released_at_s=NOW),)) == 7


@pytest.mark.parametrize(
    ("name", "number", "is_equal"),
    [("a", 1, True), ("a-r3", 3, True), ("a-r3", 4, False), ("by-hand", 1, True), ("by-hand", 2, False)],
)
def test_adopted_job_keeps_the_revision_number_of_its_name_in_texts(
    name: str, number: int, is_equal: bool
) -> None:
    """Otherwise it gets the number of the revision it becomes."""
    desired = a_job(algorithm__outputs={"o": "obs://b/o/${job.revision}/"}, description="r${job.revision}")
    job = unmanaged(seen(desired, revision=number), name=name, text=f"r{number}")
    action = taken(desired, job).action
    assert action.action is (Action.UPDATE if is_equal else Action.CONFLICT)
    assert not action.desired or action.desired["description"].startswith(f"r{number} ")


@pytest.mark.parametrize(
    ("desired", "warned"),
    [
        (a_job(annotations={"fault-tolerance/job-retry-num": "3"}), ["field not compared"]),
        (a_job(lifecycle={"rerun": "again"}), []),
    ],
    ids=["unreported", "rerun"],
)
def test_unreported_fields_of_an_adopted_job_are_assumed_as_declared(
    desired: DesiredJob, warned: list[str]
) -> None:
    adoption = taken(desired, unmanaged(reported(desired)))
    assert adoption.action.reason is Reason.ADOPTED
    assert [warning.what for warning in adoption.warnings] == warned


# --- refused

A = a_job()
FREE_JOB = unmanaged(reported(A))
MARKER = f"reconciler.{STACK}.a.r1.{A.digest}"
OTHER = "b" + "0" * 12
LR_9, LONG = a_job(algorithm__parameters={"lr": 9}), a_job(description="x" * 230)


CONFLICT, BLOCKED = Action.CONFLICT, Action.BLOCKED
OWNED, IN_USE, NOT_ADOPTABLE = Reason.ALREADY_OWNED, Reason.KEY_IN_USE, Reason.NOT_ADOPTABLE
ELSEWHERE = replace(FREE_JOB, body={**FREE_JOB.body, "metadata": {"workspace_id": "7"}})
NO_HEX = replace(FREE_JOB, id="no-hex")
TERMINATING, DREAMING = (replace(FREE_JOB, phase_text=phase) for phase in ("Terminating", "Dreaming"))


@pytest.mark.parametrize(
    ("desired", "jobs", "action", "reason", "message"),
    [
        (LR_9, [FREE_JOB], CONFLICT, Reason.DIFFERS, "parameters.lr; edit the entry, or add --accept"),
        (A, [seen(A)], Action.KEEP, OWNED, "a is already r1 of this key"),
        (A, [seen(A, key="b")], CONFLICT, OWNED, "of key b of this stack; to rename that key"),
        (A, [seen(A, stack="other")], CONFLICT, Reason.NAME_TAKEN, "first (there: reconciler release a)"),
        (absent(), [FREE_JOB], CONFLICT, Reason.STATE_ABSENT, "state: absent"),
        (A, [ELSEWHERE], CONFLICT, NOT_ADOPTABLE, "is in workspace 7, but the target is workspace 0"),
        (A, [FREE_JOB, seen(A, digest=OTHER)], CONFLICT, IN_USE, "is Running; terminate it or release"),
        (A, [FREE_JOB, seen(A, phase=Phase.TERMINATING)], CONFLICT, IN_USE, "is Terminating"),
        (A, [FREE_JOB, seen(A, phase="Dreaming")], CONFLICT, IN_USE, "Dreaming"),
        (A, [TERMINATING], BLOCKED, Reason.WRONG_PHASE, "terminated; legal once the job has ended"),
        (A, [DREAMING], BLOCKED, Reason.UNKNOWN_PHASE, "by-hand is Dreaming"),
        (LONG, [FREE_JOB], CONFLICT, NOT_ADOPTABLE, "leaves no room for the marker; it may have"),
        (A, [NO_HEX], CONFLICT, NOT_ADOPTABLE, "the id no-hex does not start with 8 hex digits"),
    ],
)
def test_adoption_is_refused_with_action_and_reason(
    desired: DesiredJob, jobs: list[ObservedJob], action: Action, reason: Reason, message: str
) -> None:
    found = taken(desired, *jobs).action
    assert (found.action, found.reason, found.desired) == (action, reason, None)
    assert message in found.detail


@pytest.mark.parametrize(
    ("seen_as", "message"),
    [
        ({"problem": "gone"}, "could not be read"),
        ({"unreadable": (Unreadable("odd", name="a-r2"),)}, "odd; it may be a revision of this key"),
        ({"unreadable": (Unreadable("odd"),)}, "odd; it may be a revision of this key"),
    ],
)
def test_adoption_is_unknown_if_another_job_of_the_key_may_be_unread(seen_as: Any, message: str) -> None:
    found = taken(A, FREE_JOB, **seen_as).action
    assert (found.action, found.reason, found.desired) == (Action.UNKNOWN, Reason.UNREADABLE, None)
    assert message in found.detail


def test_job_with_a_copied_marker_can_be_adopted() -> None:
    action = taken(A, unmanaged(reported(A), name="copy", text=f"text {MARKER}")).action
    assert action.reason is Reason.ADOPTED
    assert action.desired == {"description": f"{MARKER}.id0123abcd"}


# --- released


def released(*jobs: ObservedJob, desired: DesiredJob | None = A, **more: Any) -> list[Any]:
    ownership = sort_by_key(Observation(jobs, **more), STACK, frozenset({"a"}))
    return release(state_of("a", desired, Snapshot(ownership), CONTEXT))


@pytest.mark.parametrize("desired", [A, None], ids=["declared", "not declared"])
def test_release_removes_the_marker_of_every_revision_oldest_first(desired: DesiredJob | None) -> None:
    jobs = (
        seen(A, revision=3, protected=True, text="their words"),
        seen(A, phase=Phase.COMPLETED),
        seen(A, revision=2, phase=Phase.TERMINATING),
        seen(A, stack="other", name="a-r4", revision=4),
        unmanaged(seen(A), text=f"x reconciler.{STACK}.a.r1.{A.digest}"),
    )
    actions = released(*jobs, desired=desired)
    assert [(a.action, a.reason, a.before.revision) for a in actions] == [
        (Action.UPDATE, Reason.RELEASED, 1),
        (Action.BLOCKED, Reason.WRONG_PHASE, 2),  # one that cannot be updated does not block the others
        (Action.UPDATE, Reason.RELEASED, 3),
    ]
    assert actions[2].desired == {"description": "their words"}
    assert all(action.after is None for action in actions)


def test_release_of_an_unreadable_job_is_unknown() -> None:
    assert [a.action for a in released(seen(A), problem="gone")] == [Action.UNKNOWN]
    unreadable = (Unreadable("odd", name="a-r2"),)
    assert [a.action for a in released(seen(A), unreadable=unreadable)] == [Action.UNKNOWN]


@pytest.mark.parametrize(
    ("desired", "name", "then"),
    [
        (A, "a", "be in conflict (name taken)"),
        (A, "by-hand", "create a new job"),
        (None, "a", None),
        (absent(), "a", None),
    ],
)
def test_release_of_a_declared_key_says_what_the_next_plan_does(
    desired: DesiredJob | None, name: str, then: str | None
) -> None:
    job = seen(A, name=name, id_part="0123abcd", job_id=JOB_ID)
    warnings = release_warnings(desired, released(job, desired=desired))
    assert [warning.why.partition("next plan will ")[2] for warning in warnings] == ([then] if then else [])


# --- a stack that was renamed


def moved(*jobs: ObservedJob, **more: Any) -> list[Any]:
    observation = Observation(jobs, **more)
    theirs, ours = (sort_by_key(observation, stack, frozenset({"a"})) for stack in ("old", STACK))
    renamed = RenamedStack("old", theirs, HistorySnapshot(), CONTEXT)
    return renamed.move(Snapshot(ours).view("a"), A, "a")


def of_old(**more: Any) -> ObservedJob:
    return seen(A, stack="old", **more)


ODD = {"name": "odd", "job_id": JOB_ID, "id_part": "0123abcd", "protected": True, "text": "text"}


@pytest.mark.parametrize(
    ("job", "description"),
    [
        (
            of_old(revision=4, digest=OTHER, **ODD),
            f"text reconciler.{STACK}.a.r4.{OTHER}.id0123abcd.protected",
        ),
        (of_old(phase=Phase.TERMINATED, stopped=True), f"{MARKER}.stopped"),
        (of_old(text="x" * 230), f"{'x' * (255 - len(MARKER))} {MARKER}"),
    ],
    ids=["whatever its name", "stopped", "without room for a longer marker"],
)
def test_stack_rename_changes_only_the_stack_in_the_marker(job: ObservedJob, description: str) -> None:
    [action] = moved(job)
    assert (action.action, action.reason, action.former_stack) == (Action.UPDATE, Reason.STACK_RENAMED, "old")
    assert action.desired == {"description": description}
    assert ("its description is cut to" in action.detail) is (len(description) == 256)


@pytest.mark.parametrize(
    ("jobs", "action", "message"),
    [
        ((of_old(phase=Phase.TERMINATING),), Action.BLOCKED, "Terminating"),
        ((of_old(phase="Dreaming"),), Action.BLOCKED, "Dreaming"),
        ((of_old(digest="z" + "0" * 12),), Action.BLOCKED, "needs a newer reconciler"),
        ((of_old(), seen(A, name="a-x", id_part="0123abcd", job_id=JOB_ID)), Action.CONFLICT, "own r1"),
        ((of_old(revision=2), seen(A)), Action.CONFLICT, "an active revision"),
    ],
)
def test_revision_that_cannot_change_stack_says_why(
    jobs: tuple[ObservedJob, ...], action: Action, message: str
) -> None:
    [found] = moved(*jobs)
    assert found.action is action
    assert message in found.detail


def test_revision_moved_earlier_does_not_block_the_stack_rename() -> None:
    [action] = moved(of_old(revision=2), seen(A, phase=Phase.COMPLETED))
    assert action.reason is Reason.STACK_RENAMED


def test_undeclared_keys_stay_in_the_old_stack_and_are_named() -> None:
    theirs = sort_by_key(Observation((of_old(), of_old(key="b"))), "old", frozenset())
    renamed = RenamedStack("old", theirs, HistorySnapshot(), CONTEXT)
    [warning] = renamed.left_behind(["a"])
    assert warning.why == "not declared here, so still owned by stack old: b"


def test_aged_out_revisions_move_with_the_renamed_stack() -> None:
    gone = PastRevision("a", 1, "a", "gone", A.digest, "Completed")
    memory = HistorySnapshot({"a": (gone, gone._replace(number=2, job="there")), "b": (gone,)})
    renamed = RenamedStack("old", sort_by_key(Observation(), "old", frozenset()), memory, CONTEXT)
    there = seen(A, job_id="there")
    assert renamed.aged_out(["a"], [there], HistorySnapshot()) == (gone,)
    assert renamed.aged_out(["a"], [there], HistorySnapshot({"a": (gone,)})) == ()


@pytest.mark.parametrize(
    ("command", "words"),
    [
        (adopt_command("a", "id"), ["adopt", "a", "id"]),
        (adopt_command("-a", "id"), ["adopt", "--", "-a", "id"]),
        (release_command("-a"), ["release", "--", "-a"]),
    ],
)
def test_suggested_command_does_not_parse_a_hyphenated_key_as_an_option(
    command: str, words: list[str]
) -> None:
    assert shlex.split(command) == ["reconciler", *words]
