"""The effect of a manifest change: two declarations of a key per row, and the consequence."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reconciler.core.stack import DesiredJob, Effect, IgnoreRule, Limits, Policy, Prices, Stack, Target
from reconciler.decide.plan import Action, Reason
from reconciler.decide.review import Amount, ChangeKind, Review, ReviewedSide, Side, make_review
from reconciler.errors import Location
from reconciler.secrets import SecretText
from tests.builders import a_job, a_stack, absent

EDITED: dict[str, Any] = {"algorithm__parameters": {"lr": 0.5}}
FOUR: dict[str, Any] = {"spec__resource": {"flavor_id": "modelarts.vm.cpu.2u", "node_count": 4}}


def side(*jobs: DesiredJob, stack: Stack | None = None, **more: Any) -> Side:
    head = ReviewedSide(name="side", stack="vision", manifest_digest="sha256:0")
    return Side(head, stack or a_stack(*jobs), **more)


def reviewed(before: Sequence[DesiredJob], after: Sequence[DesiredJob]) -> Review:
    return make_review(side(*before), side(*after), target=None, version="1")


def protected(value: bool | None, **changed: Any) -> DesiredJob:
    return a_job(lifecycle={"protect": value}, **changed)


def life(**lifecycle: Any) -> DesiredJob:
    return a_job(lifecycle=lifecycle)


def edited(**lifecycle: Any) -> DesiredJob:
    return a_job(lifecycle=lifecycle, **EDITED)


def urgent(priority: int | None) -> DesiredJob:
    return a_job(spec__schedule_policy={} if priority is None else {"priority": priority})


DAILY = "0 2 * * *"
KEPT, UPDATED, REPLACED = Action.KEEP, Action.UPDATE, Action.REPLACE
ENDED, BLOCKED = Action.TERMINATE, Action.BLOCKED
ADDED, REMOVED, CHANGED = ChangeKind.ADDED, ChangeKind.REMOVED, ChangeKind.CHANGED


@pytest.mark.parametrize(
    ("before", "after", "change", "action", "reason"),
    [
        (None, a_job(), ADDED, Action.CREATE, Reason.NOT_FOUND),
        (absent(), a_job(), ADDED, Action.CREATE, Reason.DECLARED_AGAIN),
        (a_job(), None, REMOVED, ENDED, Reason.NOT_IN_MANIFEST),
        (a_job(), absent(), REMOVED, ENDED, Reason.STATE_ABSENT),
        (None, absent(), REMOVED, ENDED, Reason.STATE_ABSENT),
        (protected(True), absent(protect=False), REMOVED, UPDATED, Reason.PROTECTION_RELEASED),
        (a_job(), absent(protect=True), REMOVED, BLOCKED, Reason.PROTECTED),
        (a_job(), edited(), CHANGED, REPLACED, Reason.IMMUTABLE_CHANGED),
        (protected(True), edited(), CHANGED, BLOCKED, Reason.PROTECTED),
        (a_job(), a_job(description="new"), CHANGED, UPDATED, Reason.MUTABLE_CHANGED),
        (urgent(2), urgent(1), CHANGED, UPDATED, Reason.MUTABLE_CHANGED),  # 1 is the documented default
        (urgent(2), urgent(None), CHANGED, KEPT, Reason.UNCHANGED),  # the job keeps its priority
        (a_job(), protected(True), CHANGED, UPDATED, Reason.MARKER_CHANGED),
        (protected(True), a_job(), CHANGED, KEPT, Reason.UNCHANGED),  # the marker still says it
        (a_job(), replace(a_job(), needs=("other",)), CHANGED, KEPT, Reason.UNCHANGED),
        (replace(a_job(), max_parallel=2), replace(a_job(), max_parallel=8), CHANGED, KEPT, Reason.UNCHANGED),
        (life(schedule=DAILY), edited(schedule=DAILY), CHANGED, KEPT, Reason.WAITS_FOR_SCHEDULE),
    ],
)
def test_change_in_the_manifest_has_an_action_and_a_reason(
    before: DesiredJob | None, after: DesiredJob | None, change: ChangeKind, action: Action, reason: Reason
) -> None:
    found = reviewed([before] if before else [], [after] if after else [])
    [job] = found.jobs
    assert (job.key, job.change, job.action, job.reason) == ("a", change, action, reason)
    assert (job.starts != "") is (change is ADDED)
    if change is not CHANGED:
        words = ("no longer `state: absent`", "new") if change is ADDED else ("removed", "`state: absent`")
        assert job.detail.startswith(words[(before is None) if change is ADDED else (after is not None)])
    assert found.summary[change] == 1
    assert found.actions[action] == (0 if action is KEPT else 1)


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (a_job(), a_job()),
        (absent(), absent()),
        (absent(), None),
        (a_job(), protected(False)),  # the marker had no protection
        (a_job(), a_job(algorithm__parameters={"lr": "0.1"})),  # equal for the service
        (
            a_job(algorithm__parameters={"t": SecretText("old", "${var.t}")}),
            a_job(algorithm__parameters={"t": SecretText("new", "${var.t}")}),
        ),
    ],
)
def test_equivalent_declaration_is_no_change(before: DesiredJob, after: DesiredJob | None) -> None:
    found = reviewed([before], [after] if after else [])
    assert found.jobs == ()
    assert found.summary["unchanged"] == 1


def test_location_of_a_job_omits_the_git_revision() -> None:
    old, new = (replace(a_job(key), location=Location(f"{key}:jobs.yaml", 7, 3)) for key in "xy")
    found = make_review(side(old, file_prefix="x:"), side(new, file_prefix="y:"), target=None, version="1")
    assert [job.source and job.source.file for job in found.jobs] == ["jobs.yaml", "jobs.yaml"]


def test_changed_fields_say_which_force_a_new_job() -> None:
    [job] = reviewed([a_job()], [a_job(description="new", lifecycle={"max_retries": 3}, **EDITED)]).jobs
    assert job.detail.startswith("algorithm.parameters.lr changed; replaced"), "what forces it"
    assert [(change.path, change.forces_new_job) for change in job.changes] == [
        ("algorithm.parameters.lr", True),
        ("description", False),
        ("lifecycle.max_retries", False),
    ]


@pytest.mark.parametrize(
    ("after", "changes"),
    [
        (life(retry_delay="90s"), [("lifecycle.retry_delay", "2 min", "90 s")]),
        (life(schedule=DAILY), [("lifecycle.schedule", None, DAILY), ("lifecycle.timezone", None, "UTC")]),
    ],
)
def test_changed_lifecycle_is_shown_once_in_manifest_form(after: DesiredJob, changes: Any) -> None:
    [job] = reviewed([a_job()], [after]).jobs
    assert [(change.path, change.before, change.after) for change in job.changes] == changes


def test_replace_states_the_lost_work_limit() -> None:
    limits = Limits.model_validate({"lost_time": "2h"})
    found = make_review(side(a_job()), side(stack=a_stack(edited(), limits=limits)), target=None, version="1")
    assert found.jobs[0].detail.endswith("refused after 2 h of work")
    asked_for = reviewed([a_job()], [edited(on_change="replace")])
    assert "refused" not in asked_for.jobs[0].detail


# ── renames ────────────────────────────────────────────────────────────────────────────────────────


def formerly(key: str, old: str, **changed: Any) -> DesiredJob:
    return replace(a_job(key, **changed), formerly=(old,))


def test_renamed_job_is_an_update() -> None:
    found = reviewed([a_job("old")], [formerly("new", "old")])
    [job] = found.jobs
    assert (job.key, job.formerly, job.change) == ("new", "old", ChangeKind.RENAMED)
    assert (job.action, job.reason, job.changes) == (Action.UPDATE, Reason.RENAMED, ())
    assert found.warnings == ()


def test_former_key_not_declared_in_base_is_no_rename() -> None:
    found = reviewed([formerly("new", "old")], [formerly("new", "old")])
    assert (found.jobs, found.summary["unchanged"]) == ((), 1)


def test_removed_and_added_job_of_the_same_declaration_get_a_rename_hint() -> None:
    [hint] = reviewed([a_job("old"), a_job("x", **FOUR)], [a_job("new"), a_job("x", **FOUR)]).warnings
    assert hint.what == "may be a rename"
    assert "old is no longer declared, and new is new with the same declaration" in hint.why
    assert hint.fix == "add `formerly: old` to new to keep its job"


def of_axes(*axes: str, lifecycle: Mapping[str, Any] | None = None) -> list[DesiredJob]:
    """The members of a sweep with two values on its first axis, and one on each other."""
    found = []
    for lr in ("1", "2"):
        texts = {axis: lr if axis == axes[0] else "64" for axis in axes}
        key = "-".join(("s", *(f"{axis}-{texts[axis]}" for axis in sorted(axes))))
        job = a_job(key, lifecycle=lifecycle, algorithm__parameters={"lr": lr, "axes": len(axes)})
        found.append(replace(job, sweep="s", matrix=texts))
    return found


@pytest.mark.parametrize(
    ("lifecycle", "action", "detail"),
    [
        ({}, Action.TERMINATE, "; terminated if active; refused after 60 min of work"),
        ({"on_change": "replace"}, Action.TERMINATE, "; terminated if active"),
        ({"on_change": "fail"}, Action.CONFLICT, "; on_change: fail"),
        ({"on_change": "keep"}, Action.KEEP, "; on_change: keep"),
        ({"protect": True}, Action.BLOCKED, ", and protected; "),
    ],
)
def test_former_sweep_member_ends_like_an_edit(
    lifecycle: dict[str, Any], action: Action, detail: str
) -> None:
    found = reviewed(of_axes("lr"), of_axes("lr", "batch", lifecycle=lifecycle))
    gone = [job for job in found.jobs if job.change is ChangeKind.REMOVED]
    assert [job.key for job in gone] == ["s-lr-1", "s-lr-2"]
    assert {job.action for job in gone} == {action}
    assert all(job.detail.startswith(f"no longer produced by s{detail}") for job in gone)


# ── totals and settings ────────────────────────────────────────────────────────────────────────────


def test_nodes_are_counted_per_flavor() -> None:
    gpu = a_job("gpu", spec__resource={"flavor_id": "p3", "node_count": 8})
    nodes = reviewed([a_job("a"), a_job("b")], [a_job("a", **FOUR), gpu, absent("b")]).nodes
    assert (nodes.before, nodes.after) == (2, 12)
    assert {name: (count.before, count.after) for name, count in nodes.flavors.items()} == {
        "modelarts.vm.cpu.2u": (2, 4),
        "p3": (0, 8),
    }


def test_heterogeneous_job_counts_the_nodes_of_each_task() -> None:
    resource = {"node_count": 3}
    tasks = [{"role": name, "task_resource": {**resource, "flavor_id": name}} for name in ("ps", "worker")]
    nodes = reviewed([], [a_job(spec={}, tasks=tasks)]).nodes
    assert {name: count.after for name, count in nodes.flavors.items()} == {"ps": 3, "worker": 3}


def target(**more: Any) -> Target:
    return Target.model_validate({"kind": "modelarts", "region": "r", "project_id": "p", **more})


def test_changed_settings_are_named_by_their_paths() -> None:
    before = side(targets={"prod": target(), "dev": target()}, default_target="prod")
    limits = Limits.model_validate({"terminations": 9})
    policies = (Policy("big", Effect.DENY, "job.nodes > 8", "ask first"), Policy("new", Effect.WARN, "true"))
    rules = (IgnoreRule("a*", "failed", "known"),)
    stack = a_stack(limits=limits, policies=policies, ignored_drift=rules)
    after = side(stack=stack, targets={"prod": target(insecure=True)}, default_target="prod")
    found = make_review(before, after, target=None, version="1")
    paths = {change.path: (change.before, change.after) for change in found.settings}
    assert paths["limits.terminations"] == (5, 9)
    assert paths["targets.prod.insecure"] == (False, True)
    assert paths["targets.dev.project_id"] == ("p", None)
    assert paths["policies.big.deny"] == (None, "job.nodes > 8")
    assert paths["policies.big.message"] == (None, "ask first")
    assert "policies.new.message" not in paths
    assert paths["drift.ignore.failed.a*"] == (None, {"until": None, "reason": "known"})
    assert found.warnings == ()


def on_target(project_id: str) -> Side:
    return side(a_job(), targets={"t": target(project_id=project_id)}, default_target="t")


@pytest.mark.parametrize(
    ("base", "head", "what", "fix"),
    [
        (on_target("p"), on_target("q"), "another target", ""),
        (
            side(a_job()),
            side(stack=replace(a_stack(a_job()), name="other")),
            "another stack",
            f"reconciler adopt --from-stack {a_stack().name}",
        ),
        (side(a_job()), side(), "no jobs", "if this is intended, apply with --allow empty"),
    ],
)
def test_change_that_affects_all_jobs_is_a_warning(base: Side, head: Side, what: str, fix: str) -> None:
    [warning] = make_review(base, head, target=None, version="1").warnings
    assert warning.what == what
    assert (warning.fix or "").endswith(fix)


def test_deleted_manifest_is_a_warning() -> None:
    nothing = Side(ReviewedSide(name="HEAD"))
    prices = Prices.model_validate({"currency": "CNY", "node_hour": {"modelarts.vm.cpu.2u": 1.5}})
    found = make_review(side(stack=a_stack(a_job(), prices=prices)), nothing, target=None, version="1")
    assert found.cost is not None
    assert found.cost.cost_per_hour == Amount(before=1.5, after=0.0)
    assert [warning.what for warning in found.warnings] == ["no manifest"]
    assert found.settings == ()


def test_job_out_of_view_on_one_side_is_compared() -> None:
    """It was moved to a file outside of PATH."""
    after = replace(a_stack(is_partial=True), whole={"a": edited()}, declared_keys=frozenset("a"))
    [job] = make_review(side(a_job()), side(stack=after), target=None, version="1").jobs
    assert job.change is ChangeKind.CHANGED


# ── secrets ────────────────────────────────────────────────────────────────────────────────────────


def test_literal_that_looks_like_a_secret_is_masked_on_both_sides() -> None:
    jobs = (a_job(algorithm__environments={"API_TOKEN": f"tell-nobody-{n}"}) for n in (1, 2))
    found = reviewed(*([job] for job in jobs))
    assert "tell-nobody" not in str(found.document())
    [change] = found.jobs[0].changes
    assert change.sensitive


# ── properties ─────────────────────────────────────────────────────────────────────────────────────

_JOBS = st.dictionaries(
    st.sampled_from("abcdef"),
    st.sampled_from([None, edited(), life(on_change="keep"), protected(True), a_job(), a_job(**FOUR)]),
)


def _declared(jobs: dict[str, DesiredJob | None]) -> list[DesiredJob]:
    return [absent(key) if job is None else replace(job, key=key) for key, job in jobs.items()]


@given(_JOBS, _JOBS)
def test_every_key_is_counted_once(
    before: dict[str, DesiredJob | None], after: dict[str, DesiredJob | None]
) -> None:
    found = reviewed(_declared(before), _declared(after))
    assert sum(found.summary.values()) == len(before.keys() | after.keys())
    assert [job.key for job in found.jobs] == sorted(job.key for job in found.jobs)


@given(_JOBS)
def test_manifest_compared_with_itself_has_no_change(jobs: dict[str, DesiredJob | None]) -> None:
    found = reviewed(_declared(jobs), _declared(jobs))
    assert (found.jobs, found.settings, found.nodes.before) == ((), (), found.nodes.after)
