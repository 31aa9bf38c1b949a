"""A saved plan whose checksums were computed anew after an edit: they are no signature.

What still is accepted sends what the plan sent, or shows with `-v` that it sends something else.
"""

from __future__ import annotations

import copy
import json
from functools import cache
from typing import Any

import pytest

from reconciler.core.declared.body import manifest_form
from reconciler.core.declared.canonical import canonical
from reconciler.core.diagnostic import ManifestInvalid
from reconciler.core.planning.plan import Plan
from reconciler.core.saved_plan.document import CHECKSUM, read, seal_of_action, seal_of_options
from reconciler.core.saved_plan.preconditions import StalePlan, failed_preconditions
from reconciler.render.style import View
from reconciler.render.text import render_plan
from tests.builders import NOW
from tests.core.test_edited_plans import SITUATIONS, VERSION, PlanContext, changed, edits, saved
from tests.hostile.sizes import FUZZ, RecordProperty, count_tried

RESEALED = "edits of saved plans, with checksums that fit"

#: Of the edits, each so-many-th where nobody asked for more.
STRIDE = 1 if FUZZ else 11


def resealed(document: dict[str, Any]) -> dict[str, Any]:
    """The document with checksums that fit it, wherever it has the shape for them."""
    document = {**document}
    if isinstance(actions := document.get("actions"), list):
        document["actions"] = [
            {**action, CHECKSUM: seal_of_action(action)} if isinstance(action, dict) else action
            for action in actions
        ]
    if isinstance(options := document.get("options"), dict):
        document["options"] = {**options, CHECKSUM: seal_of_options(document, options)}
    return document


def accepted(document: dict[str, Any], situation: PlanContext) -> Plan | None:
    """The plan as it would be applied; None if it is invalid or stale."""
    try:
        plan = read(document, "plan.json", VERSION, strict=True).plan
    except (ManifestInvalid, StalePlan):
        return None
    return None if failed_preconditions(plan, situation.look, NOW) else plan


def requests(plan: Plan) -> list[Any]:
    """What is sent, as the service takes it: a default that is left out is that default."""
    return sorted(
        json.dumps(
            [
                action.action,
                action.before and action.before.id,
                action.replace_order,
                action.desired and action.desired.get("metadata"),
                action.desired and canonical(manifest_form(action.desired)),
            ]
        )
        for action in plan.to_execute
    )


def shown(plan: Plan) -> str:
    return render_plan(plan, View(show_keep=True, verbose=True))


@pytest.mark.parametrize("name", SITUATIONS)
def test_resealed_plan_sends_nothing_that_it_does_not_show(
    name: str, record_property: RecordProperty
) -> None:
    situation = SITUATIONS[name]
    data = saved(situation)
    was = accepted(data, situation)
    assert was is not None
    assert accepted(resealed(data), situation) == was
    hidden = []
    tried = list(edits(data))[::STRIDE]
    for said, edited in tried:
        plan = accepted(resealed(edited), situation)
        if plan is not None and requests(plan) != requests(was) and shown(plan) == shown(was):
            hidden.append(said)
    assert hidden == []
    count_tried(record_property, RESEALED, len(tried))


PARTS = ("action", "reason", "before", "after", "desired", "declared", "follows", "replace_order", "changes")


@cache
def actions_of_all() -> list[dict[str, Any]]:
    return [action for situation in SITUATIONS.values() for action in saved(situation)["actions"]]


@pytest.mark.parametrize("part", PARTS)
@pytest.mark.parametrize("name", SITUATIONS)
def test_plan_with_a_part_of_another_action_is_invalid_stale_or_shown(
    name: str, part: str, record_property: RecordProperty
) -> None:
    """Each part of each action of each plan stands in the place of this one's, or is taken away."""
    situation = SITUATIONS[name]
    data = saved(situation)
    was = accepted(data, situation)
    assert was is not None
    hidden, count = [], 0
    for place in range(len(data["actions"])):
        for other in actions_of_all()[place % STRIDE :: STRIDE]:
            count += 1
            edited = copy.deepcopy(data)
            mine = edited["actions"][place]
            mine.pop(part, None)
            if part in other:
                mine[part] = copy.deepcopy(other[part])
            edited["summary"] = {
                kind: sum(action.get("action") == kind for action in edited["actions"])
                for kind in edited["summary"]
            }
            plan = accepted(resealed(edited), situation)
            if plan is not None and requests(plan) != requests(was) and shown(plan) == shown(was):
                hidden.append(edited)
    assert hidden == []
    count_tried(record_property, RESEALED, count)


@pytest.mark.parametrize("follows", ["", None])
def test_create_of_a_next_revision_names_the_one_before(follows: str | None) -> None:
    situation = SITUATIONS["create the next"]
    assert (
        accepted(resealed(changed(saved(situation), ("actions", 0, "follows"), follows)), situation) is None
    )


@pytest.mark.parametrize("edit", ["no other", "twice", "no id", "the one that is replaced"])
def test_new_job_waits_once_for_each_job_that_the_plan_terminates(edit: str) -> None:
    situation = SITUATIONS["replace of two"]
    data = saved(situation)
    superseded, replaced = (action["before"]["id"] for action in data["actions"])
    assert data["actions"][1]["waits_for_jobs"] == [superseded]
    awaited = {
        "no other": [],
        "twice": [superseded, superseded],
        "no id": [superseded, ""],
        "the one that is replaced": [superseded, replaced],
    }[edit]
    with pytest.raises(ManifestInvalid, match="waits_for_jobs"):
        read(resealed(changed(data, ("actions", 1, "waits_for_jobs"), awaited)), "p", VERSION, strict=True)


@pytest.mark.parametrize("name", ["create the next", "replace", "update", "update of much"])
def test_change_to_another_value_than_is_declared_is_invalid(name: str) -> None:
    situation = SITUATIONS[name]
    data = saved(situation)
    tried = 0
    for place, change in enumerate(data["actions"][0]["changes"]):
        if isinstance(change["after"], str) and not change["sensitive"]:
            tried += 1
            edited = changed(data, ("actions", 0, "changes", place, "after"), "another")
            assert accepted(resealed(edited), situation) is None, change
    assert tried
