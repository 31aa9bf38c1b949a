"""A saved plan that was cut or edited is invalid: one seal covers all of it.

Every place of real plans is spoilt in every way that is cheap: a few thousand edits.

Source: docs/cli.md, "Saved plans".
"""

from __future__ import annotations

import json
import operator
import re
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from reconciler.core.lifecycle import ReplaceOrder
from reconciler.core.phase import Phase
from reconciler.core.settings import LOCAL, TARGET_KINDS
from reconciler.core.stack import Target, VariableSource
from reconciler.decide.plan import Action, Plan, Reason
from reconciler.decide.saved_plan import SavedOptions
from reconciler.errors import ManifestInvalid
from reconciler.plan_file import SEAL, StalePlan, document_of, read_document, sealed
from reconciler.render import Content, render
from reconciler.render.style import View
from reconciler.secrets import SecretText
from tests.builders import HOUR, a_job, a_stack, absent, seen
from tests.core.test_decision_table import AB, DONE, OLD, F, P, plan_for
from tests.hostile.sizes import FUZZ, RecordProperty, count_tried

VERSION = "0"
OPTIONS = SavedOptions(target=Target(kind=LOCAL), root=".", sources={"token": VariableSource(env="TOKEN")})
BEFORE = a_job(**OLD)
FULL = a_job(
    description="costs ${a} lot",
    spec__schedule_policy={"priority": 2},
    spec__notification={"topic_urn": SecretText("urn", "${var.token}"), "events": ["JobFailed"]},
)
PLANS = {
    "create": plan_for(a_stack(FULL)),
    "create after a failure": plan_for(a_stack(a_job(lifecycle={"on_failure": "retry"})), seen(phase=F)),
    "update": plan_for(a_stack(FULL), seen(FULL, phase=P, text="was")),
    "replace of two": plan_for(a_stack(a_job()), seen(BEFORE), seen(BEFORE, revision=2)),
    "terminate": plan_for(a_stack(absent()), seen(a_job(), ran_s=HOUR, node_count=3)),
    "keep": plan_for(a_stack(a_job()), seen(a_job(), phase=AB)),
    "conflict": plan_for(a_stack(a_job()), seen(BEFORE, ran_s=30 * HOUR)),
    "several keys": plan_for(a_stack(a_job(), a_job("b"), a_job("c", **OLD)), seen(a_job("b"), phase=DONE)),
}
#: What grows with time is under no seal: it adds up, or nothing rests on it.
GROWING = re.compile(r"(without )?(created_at|(actions\.\d+\.)?(elapsed|lost_node_hours|cost)\b)")
#: What stands in the place of any value: other types, nothing, too much.
OTHERS: tuple[Any, ...] = (
    *(None, "", "x", "${var.other}", 0, -1, 10**400, 1.5, True),
    *([], {}, ["x"], {"x": "y"}),
)
ENUMS: dict[str, tuple[str, ...]] = {
    "action": tuple(map(str, Action)),
    "reason": tuple(map(str, Reason)),
    "phase": (*map(str, Phase), "Frozen"),
    "replace_order": tuple(map(str, ReplaceOrder)),
    "kind": tuple(TARGET_KINDS),
}


def saved(plan: Plan) -> dict[str, Any]:
    """The plan as it is in its file."""
    data: dict[str, Any] = json.loads(json.dumps(sealed(document_of(plan, OPTIONS))))
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
    if len(actions) > 1:
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


@pytest.mark.parametrize("name", PLANS)
def test_edited_plan_is_invalid_wherever_it_was_edited(name: str, record_property: RecordProperty) -> None:
    data = saved(PLANS[name])
    assert read_document(data, "plan.json", VERSION, strict=True).plan.document() == PLANS[name].document()
    accepted, count = [], 0
    for said, edited in edits(data):
        count += 1
        try:
            read_document(edited, "plan.json", VERSION, strict=True)
        except ManifestInvalid:
            continue
        except StalePlan:
            assert said.startswith("reconciler_version")
            continue
        accepted.append(said)
    assert [said for said in accepted if not GROWING.match(said)] == []
    assert [said for said in accepted if said.startswith("without")] == [], "a key is missing"
    count_tried(record_property, "edits of saved plans", count)


@pytest.mark.parametrize("field", ["lost_node_hours", "elapsed"])
@pytest.mark.parametrize("value", [0.0, 1.0, 10**300])
def test_edited_loss_is_invalid(field: str, value: float) -> None:
    data = saved(PLANS["terminate"])
    with pytest.raises(ManifestInvalid, match="modified since it was written"):
        read_document(changed(data, ("actions", 0, field), value), "plan.json", VERSION, strict=True)


@pytest.mark.parametrize("part", ["before", "after", "desired", "declared"])
def test_sealed_action_without_what_it_needs_is_invalid(part: str) -> None:
    data = saved(PLANS["replace of two"])
    replaced = next(place for place, one in enumerate(data["actions"]) if one["action"] == "replace")
    edited = sealed(changed(data, ("actions", replaced, part), None))
    with pytest.raises(ManifestInvalid, match=rf"actions\.{replaced} \(a\): {part} is missing"):
        read_document(edited, "plan.json", VERSION, strict=True)


@pytest.mark.parametrize("seal", [None, "", "sha256:" + "0" * 64])
def test_plan_without_its_seal_is_invalid(seal: str | None) -> None:
    data = changed(saved(PLANS["create"]), ("options", SEAL), seal)
    with pytest.raises(ManifestInvalid, match="its seal does not match"):
        read_document(data, "plan.json", VERSION, strict=True)


@pytest.mark.parametrize("is_strict", [True, False])
def test_plan_without_format_version_is_invalid(is_strict: bool) -> None:
    data = saved(PLANS["create"])
    del data["format_version"]
    for edited in (data, sealed(data)):
        with pytest.raises(ManifestInvalid, match="format_version is missing"):
            read_document(edited, "plan.json", VERSION, strict=is_strict)


@pytest.mark.parametrize("name", ["update", "replace of two", "several keys"])
def test_edited_plan_is_shown_or_invalid(name: str) -> None:
    tried = list(edits(saved(PLANS[name])))
    for said, edited in tried[:: 1 if FUZZ else 3]:
        try:
            plan, _ = read_document(edited, "plan.json", VERSION, strict=False)
        except ManifestInvalid:
            continue
        view = View(show_keep=True)
        assert render(Content.PLAN, plan, "text", view), said
        assert render(Content.PLAN, plan, "json", view), said
