"""A saved plan that was cut or edited is invalid or stale; or it says what it said.

Every place of real plans is spoilt in every way that is cheap: a few thousand edits.

Source: docs/cli.md, "Saved plans".
"""

from __future__ import annotations

import json
import operator
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import pytest

from reconciler.core.declared.lifecycle import ReplaceOrder
from reconciler.core.declared.stack import DesiredJob, Stack, Target, VariableSource
from reconciler.core.declared.target_kind import LOCAL, TARGET_KINDS
from reconciler.core.diagnostic import ManifestInvalid
from reconciler.core.observed.job import Observation, ObservedJob
from reconciler.core.observed.ownership import sort_by_key
from reconciler.core.observed.phase import Phase
from reconciler.core.planning.plan import Action, Plan, PlannedAction, Reason
from reconciler.core.planning.planner import Snapshot
from reconciler.core.record import NO_HISTORY, HistorySnapshot
from reconciler.core.saved_plan.checks import NEVER_SAVED, SHAPES
from reconciler.core.saved_plan.document import SavedOptions, document, read
from reconciler.core.saved_plan.preconditions import StalePlan, failed_preconditions
from reconciler.core.text.secret import SecretText
from reconciler.render.json import render_plan as render_json
from reconciler.render.style import View
from reconciler.render.text import render_plan
from tests.builders import HOUR, NOW, STACK, a_job, a_stack, absent, seen
from tests.core.history import a_memory, past
from tests.core.test_decision_table import AB, DONE, OLD, TD, F, P, R, T, plan_for
from tests.hostile.sizes import FUZZ

VERSION = "0"
OPTIONS = SavedOptions(target=Target(kind=LOCAL), root=".", sources={"token": VariableSource(env="TOKEN")})
NEW, BEFORE = a_job(), a_job(**OLD)
SECRET = a_job(algorithm__environments={"T": SecretText("hush", "x ${var.token}"), "LIKE": "${var.no}"})
FULL = a_job(
    description="costs ${a} lot",
    spec__schedule_policy={"priority": 2},
    spec__notification={"topic_urn": SecretText("urn", "${var.token}"), "events": ["JobFailed"]},
)
PRIOR = a_job(spec__schedule_policy={"priority": 2, "preemptible": True})
STAYS = a_job(description="other", lifecycle={"on_change": "keep"})
RERUN = a_job(lifecycle={"rerun": "x"})
RETRIED = a_job(lifecycle={"on_failure": "retry"})
LATER = a_job(lifecycle={"on_failure": "retry", "retry_delay": "9999h"})
CREATE_FIRST = a_job(lifecycle={"replace_order": "create_first"})
RENAMED = replace(a_job("new"), formerly=("old", "older"))


def was(key: str, **said: Any) -> ObservedJob:
    return seen(replace(a_job("new"), key=key), **said)


@dataclass(frozen=True, eq=False)
class PlanContext:
    """A stack, what is there, and the action of its first key."""

    action: Action
    reason: Reason
    stack: Stack
    jobs: tuple[ObservedJob, ...] = ()
    memory: HistorySnapshot = NO_HISTORY

    @cached_property
    def look(self) -> Snapshot:
        declared = self.stack.declared_keys | frozenset(self.stack.jobs) | self.stack.former_keys
        return Snapshot(sort_by_key(Observation(self.jobs), STACK, declared), memory=self.memory)

    @cached_property
    def plan(self) -> Plan:
        return plan_for(self.stack, *self.jobs, memory=self.memory)

    @cached_property
    def text(self) -> str:
        """The plan as it is saved."""
        return json.dumps(document(self.plan, OPTIONS))


def one(action: Action, reason: Reason, desired: DesiredJob, *jobs: ObservedJob, **more: Any) -> PlanContext:
    return PlanContext(action, reason, a_stack(desired), jobs, **more)


WIPED = was("old", description="mine now")
A, W = Action, Reason
SITUATIONS = {
    "create": one(A.CREATE, W.NOT_FOUND, NEW),
    "create with secrets": one(A.CREATE, W.NOT_FOUND, SECRET),
    "create with all": one(A.CREATE, W.NOT_FOUND, FULL),
    "create the next": one(A.CREATE, W.IMMUTABLE_CHANGED, NEW, seen(BEFORE, phase=DONE)),
    "create when it has ended": one(A.CREATE, W.WAITS_FOR_TERMINATION, NEW, seen(BEFORE, phase=T)),
    "create after a failure": one(A.CREATE, W.RETRY, RETRIED, seen(NEW, phase=F)),
    "create again": one(A.CREATE, W.DECLARED_AGAIN, NEW, seen(NEW, phase=TD, stopped=True)),
    "create with rerun": one(A.CREATE, W.IMMUTABLE_CHANGED, RERUN, seen(NEW, phase=DONE)),
    "create of a protected job": one(A.CREATE, W.NOT_FOUND, a_job(lifecycle={"protect": True})),
    "update": one(A.UPDATE, W.MUTABLE_CHANGED, a_job(description="other"), seen(NEW)),
    "update of much": one(A.UPDATE, W.MUTABLE_CHANGED, FULL, seen(FULL, phase=P, text="was")),
    "update of numbers": one(A.UPDATE, W.MUTABLE_CHANGED, PRIOR, seen(NEW, phase=P)),
    "update, change ignored": one(
        A.UPDATE, W.MUTABLE_CHANGED, STAYS, seen(BEFORE),
        memory=a_memory(past(BEFORE, 1, R)),
    ),
    "update of a marker": one(A.UPDATE, W.MARKER_CHANGED, a_job(lifecycle={"protect": True}), seen(NEW)),
    "release": one(A.UPDATE, W.PROTECTION_RELEASED, absent(protect=False), seen(NEW, protected=True)),
    "rename": one(A.UPDATE, W.MARKER_CHANGED, RENAMED, was("old", revision=2), was("older", phase=DONE)),
    "restore": one(
        A.UPDATE, W.MARKER_RESTORED, RENAMED, WIPED,
        memory=a_memory(past(replace(a_job("new"), key="old"), 1, R, job=WIPED)),
    ),
    "replace": one(A.REPLACE, W.IMMUTABLE_CHANGED, NEW, seen(BEFORE)),
    "replace of two": one(A.REPLACE, W.IMMUTABLE_CHANGED, NEW, seen(BEFORE), seen(BEFORE, revision=2)),
    "create behind an older one": one(
        A.CREATE, W.IMMUTABLE_CHANGED, NEW, seen(BEFORE, phase=T), seen(BEFORE, revision=2, phase=DONE)
    ),
    "replace, create first": one(A.REPLACE, W.IMMUTABLE_CHANGED, CREATE_FIRST, seen(BEFORE)),
    "replace of a renamed one": one(
        A.REPLACE, W.IMMUTABLE_CHANGED, replace(a_job("new", **OLD), formerly=("old",)), was("old")
    ),
    "terminate": one(A.TERMINATE, W.STATE_ABSENT, absent(), seen(NEW)),
    "terminate what is superseded": one(A.KEEP, W.UNCHANGED, NEW, seen(NEW, revision=2), seen(NEW)),
    "keep": one(A.KEEP, W.UNCHANGED, NEW, seen(NEW)),
    "keep what ended badly": one(A.KEEP, W.FAILED, NEW, seen(NEW, phase=AB)),
    "keep what aged out": one(A.KEEP, W.AGED_OUT, NEW, memory=a_memory(past(NEW, 1, DONE))),
    "defer": one(A.DEFER, W.RETRY_LATER, LATER, seen(NEW, phase=F)),
    "blocked": one(A.BLOCKED, W.PROTECTED, absent(protect=True), seen(NEW)),
    "conflict": one(A.CONFLICT, W.CHANGE_REFUSED, a_job(lifecycle={"on_change": "fail"}), seen(BEFORE)),
    "lost work": one(A.CONFLICT, W.WOULD_LOSE_WORK, NEW, seen(BEFORE, ran_s=30 * HOUR)),
    "name taken": one(A.CONFLICT, W.NAME_TAKEN, NEW, seen(NEW, stack="other")),
}  # fmt: skip

#: What is under no seal: what may move or grow, another place, another version.
OPEN = re.compile(
    r"(format_version|reconciler_version|created_at|lost_node_hours|target\.|"
    r"actions\.\d+\.(before|after|elapsed|lost_node_hours)\b|"
    r"options\.target\.(endpoint|region|project_id|workspace_id)\b)"
)
#: What stands in the place of any value: other types, nothing, too much.
OTHERS: tuple[Any, ...] = (
    None,
    "",
    "x",
    "${var.other}",
    0,
    -1,
    10**400,
    1.5,
    True,
    [],
    {},
    ["x"],
    {"x": "y"},
)
ENUMS: dict[str, tuple[str, ...]] = {
    "action": tuple(Action),
    "reason": tuple(Reason),
    "phase": (*Phase, "Frozen"),
    "replace_order": tuple(ReplaceOrder),
    "kind": tuple(TARGET_KINDS),
}


def saved(situation: PlanContext) -> dict[str, Any]:
    data: dict[str, Any] = json.loads(situation.text)
    return data


def places(tree: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Every place in plain data, the root aside."""
    steps = tree.items() if isinstance(tree, dict) else enumerate(tree) if isinstance(tree, list) else ()
    for step, value in steps:
        yield (*path, step)
        yield from places(value, (*path, step))


def at(tree: Any, path: tuple[Any, ...]) -> Any:
    for step in path:
        tree = tree[step]
    return tree


def edits(data: dict[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    """Every cheap edit of a plan file, each with what was done."""
    for path in places(data):
        value, *where = at(data, path), ".".join(map(str, path))
        others = [*OTHERS, *ENUMS.get(str(path[-1]), ())]
        if isinstance(value, str):
            others += [value + "x", value[:-1], value.upper()]
        if type(value) is int:
            others += [value + 1, str(value)]
        for other in others:
            if (type(other), other) != (type(value), value):
                yield f"{where[0]} = {other!r}", changed(data, path, other)
        yield f"without {where[0]}", _edited(data, path, lambda tree, step: tree.pop(step))
        if isinstance(value, dict):
            yield f"{where[0]} with more", changed(data, (*path, "of_next_year"), 1)
    yield "a new key", {**data, "of_next_year": 1}
    actions = data["actions"]
    yield "actions twice", {**data, "actions": [*actions, *actions]}
    yield "the first twice", {**data, "actions": [*actions[:1], *actions]}
    yield "actions turned round", {**data, "actions": actions[::-1]}


def changed(data: dict[str, Any], path: tuple[Any, ...], value: Any) -> dict[str, Any]:
    edited: dict[str, Any] = _edited(data, path, lambda tree, step: operator.setitem(tree, step, value))
    return edited


def _edited(data: Any, path: tuple[Any, ...], edit: Callable[[Any, Any], object]) -> Any:
    """A copy that is edited at a place. What is not on the way there is shared, for there are many."""
    step, *rest = path
    copied = data.copy()
    if rest:
        copied[step] = _edited(data[step], tuple(rest), edit)
    else:
        edit(copied, step)
    return copied


def effect(plan: Plan) -> list[Any]:
    """What is done, in the words of the requests that are sent and the record that is written."""
    return [
        _effect(action)
        for action in sorted(plan.to_execute, key=lambda a: (a.key, a.before.id if a.before else ""))
    ]


def _effect(action: PlannedAction) -> Any:
    before = action.before and (
        action.before.id,
        action.before.name,
        action.before.revision,
        action.before.digest,
    )
    body = json.dumps(action.desired, sort_keys=True)
    return (
        action.key,
        action.action,
        before,
        action.after,
        body,
        action.follows,
        action.waits_for_jobs,
        action.replace_order,
        action.formerly,
    )


def outcome(data: dict[str, Any], situation: PlanContext) -> list[Any] | None:
    """What the plan would do; None if nothing is done because it is invalid or stale."""
    try:
        plan = read(data, "plan.json", VERSION, strict=True).plan
    except (ManifestInvalid, StalePlan):
        return None
    return None if failed_preconditions(plan, situation.look, NOW) else effect(plan)


@pytest.mark.parametrize("name", SITUATIONS)
def test_situation_has_the_action_and_reason_of_its_name(name: str) -> None:
    situation = SITUATIONS[name]
    actions = [(action.action, action.reason) for action in situation.plan.actions]
    assert (situation.action, situation.reason) in actions
    assert outcome(saved(situation), situation) == [
        *effect(read(saved(situation), "plan.json", VERSION, strict=True).plan)
    ]


def is_open(said: str) -> bool:
    """Whether an edit is of what may have moved or grown, of another target, or of another version."""
    return OPEN.match(said.removeprefix("without ")) is not None


@pytest.mark.parametrize("name", SITUATIONS)
def test_edited_plan_is_refused_or_has_the_same_effect(name: str) -> None:
    """Invalid, unless movement of the service explains the edit; then stale, or what is done is the same."""
    situation = SITUATIONS[name]
    data = saved(situation)
    meant, was_effect = read(data, "plan.json", VERSION, strict=True), outcome(data, situation)
    accepted, wrong, count = [], [], 0
    for said, edited in edits(data):
        count += 1
        try:
            found = read(edited, "plan.json", VERSION, strict=True)
        except (ManifestInvalid, StalePlan):
            continue
        if found != meant and not is_open(said) and json.dumps(edited) != situation.text:
            accepted.append(said)
        is_stale = failed_preconditions(found.plan, situation.look, NOW)
        if not is_stale and effect(found.plan) != was_effect:
            wrong.append(said)
    assert count > 300
    assert accepted == [], "nothing that may move explains the edit"
    assert wrong == [], "something else is done"


@pytest.mark.parametrize("field", ["env", "given"])
def test_edited_source_of_a_secret_is_invalid(field: str) -> None:
    data = saved(SITUATIONS["create with secrets"])
    data["options"]["sources"]["token"] = {field: "AWS_SECRET_ACCESS_KEY" if field == "env" else True}
    with pytest.raises(ManifestInvalid, match="options"):
        read(data, "plan.json", VERSION, strict=True)


@pytest.mark.parametrize("name", ["create with all", "update of much", "replace", "rename", "restore"])
def test_edited_plan_is_shown_or_invalid(name: str) -> None:
    tried = list(edits(saved(SITUATIONS[name])))
    for said, edited in tried[:: 1 if FUZZ else 3]:
        try:
            plan, _ = read(edited, "plan.json", VERSION, strict=False)
        except ManifestInvalid:
            continue
        view = View(show_keep=True)
        assert render_plan(plan, view), said
        assert render_json(plan, view), said


def test_every_saved_reason_belongs_to_an_action() -> None:
    fix = "give it a row, or a word in one, in SHAPES of core/saved_plan/checks.py"
    assert set(SHAPES) == set(Action), fix
    saved = {reason for shape in SHAPES.values() for reason in shape.reasons}
    assert saved == set(Reason) - NEVER_SAVED, fix
