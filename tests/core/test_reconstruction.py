"""An edit gives the same plan with a history and in a fresh checkout.

Source: docs/concepts/revisions.md, "Comparison".
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from reconciler.core.body import manifest_form
from reconciler.core.canonical import canonical, mutable_paths, walk_rules
from reconciler.core.stack import DesiredJob
from reconciler.decide.plan import Action, PlannedAction, Reason
from reconciler.secrets import SecretText
from tests.builders import a_job
from tests.core.fields import ABSENT, FIELDS, FORMS, Field, declared, is_accepted, reported
from tests.core.history import a_memory, past
from tests.core.test_decision_table import decided
from tests.each import each


def planned(action: PlannedAction) -> tuple[Any, ...]:
    return action.action, action.reason, action.changes, action.after and action.after.digest


def both_ways(before: DesiredJob, after: DesiredJob, form: str) -> tuple[tuple[Any, ...], tuple[Any, ...]]:
    """Plan an edit with a history, and in a fresh checkout."""
    job = reported(before, form)
    return planned(decided(after, job, memory=a_memory(past(before, job=job)))), planned(decided(after, job))


def edits_of(field: Field) -> Iterator[tuple[str, Any, Any]]:
    yield "add", ABSENT, field.value
    yield "remove", field.value, ABSENT
    if field.other is not None:
        yield "edit", field.value, field.other
        yield "edit back", field.other, field.value


EDITS = [(field, before, after) for field in FIELDS for _, before, after in edits_of(field)]

#: Fields missing from the details: the earlier value cannot be read back.
I18N = "algorithm__parameters__a__i18n_description"
NEVER_REPORTED = frozenset(
    {
        "training_experiment_reference__name",
        "training_experiment_reference__description",
        "spec__retention",
        "train_type",
        "ftjob_config",
        "lifecycle",
    }
)
#: The same, in the second response form or on OTC.
NOT_IN_SECOND_FORM = frozenset(
    {"algorithm__engine__image_repo_id", "algorithm__parameters__a__i18n_description"}
)
NOT_ON_OTC = frozenset({"annotations"})


def can_be_read_back(field: Field, before: Any, form: str) -> bool:
    path = field.path
    if isinstance(before, dict) and "i18n_description" in str(before):
        path = I18N
    hidden = NEVER_REPORTED
    hidden |= NOT_IN_SECOND_FORM if form != "first" else frozenset()
    hidden |= NOT_ON_OTC if form == "second on OTC" else frozenset()
    return before is ABSENT or path not in hidden


@pytest.mark.parametrize("form", FORMS)
@each(("field", "before", "after"), EDITS)
def test_same_edit_gives_the_same_plan_without_a_history(
    field: Field, before: Any, after: Any, form: str
) -> None:
    then, now = (declared(field.base, {field: value}) for value in (before, after))
    beside, fresh = both_ways(then, now, form)
    if can_be_read_back(field, before, form):
        assert fresh == beside
    else:
        assert fresh[:2] in (beside[:2], (Action.UPDATE, Reason.MARKER_CHANGED))


def is_small(field: Field) -> bool:
    """Whether the field has at most two values; larger ones are only compared in part."""
    return all(len(list(values_in(value))) <= 2 for value in (field.value, field.other))


def values_in(value: Any) -> Iterator[Any]:
    if not isinstance(value, dict | list):
        yield value
        return
    for member in value.values() if isinstance(value, dict) else value:
        yield from values_in(member)


@given(st.data())
@settings(max_examples=100)
def test_combined_edits_give_the_same_plan_without_a_history(data: st.DataObject) -> None:
    base = data.draw(st.sampled_from(sorted({field.base for field in FIELDS})))
    fields = [field for field in FIELDS if field.base == base and is_small(field)]
    assume(len(fields) > 1)
    chosen = data.draw(st.lists(st.sampled_from(fields), min_size=2, max_size=2, unique_by=lambda f: f.path))
    form = data.draw(st.sampled_from(FORMS))
    edits = {field: data.draw(st.sampled_from(list(edits_of(field)))) for field in chosen}
    if not all(can_be_read_back(field, edit[1], form) for field, edit in edits.items()):
        return
    then, now = (declared(base, {field: edit[place] for field, edit in edits.items()}) for place in (1, 2))
    assume(is_accepted(then))
    beside, fresh = both_ways(then, now, form)
    # Where no record has the earlier rerun, the changes may be empty (docs/concepts/revisions.md,
    # "Comparison").
    has_rerun = any(field.path == "lifecycle" for field in chosen)
    assert fresh[:2] == beside[:2]
    assert has_rerun or fresh == beside


def test_every_immutable_field_is_covered_by_the_edits() -> None:
    """A new field needs a row in `fields.py`."""
    met: set[tuple[str, ...]] = set()
    for field in FIELDS:
        for value in (field.value, field.other):
            if value is not None:
                met |= set(leaves(canonical(manifest_form(declared(field.base, {field: value}).body or {}))))
    known = {
        path for path, rule in walk_rules() if not rule.members and not (rule.item and rule.item.members)
    }
    of_models = {tuple(part for part in path if part != "[]") for path in known}
    mutable = mutable_paths()
    needed = {path for path in of_models if not any(path[: len(one)] == one for one in mutable)}
    missing = {path for path in needed if not any(is_at(path, one) for one in met)}
    # The name of an item is its key in the canonical form; the emulator sets the period by itself.
    assert {path for path in missing if path[-1] != "name"} == {("algorithm", "outputs", "period")}


def leaves(form: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    yield path
    items = form.items() if isinstance(form, dict) else enumerate(form) if isinstance(form, list) else ()
    for name, value in items:
        yield from leaves(value, path if isinstance(name, int) else (*path, name))


def is_at(path: tuple[str, ...], met: tuple[str, ...]) -> bool:
    """Whether a model path matches a path in a job, ignoring item names."""
    found = iter(met)
    return met[:1] == path[:1] and met[-1:] == path[-1:] and all(part in found for part in path)


# --- shown to people


IMAGE: dict[str, Any] = {"engine": {"image_url": "org/image:1"}, "command": "run"}
TOKEN = {"T": SecretText("old-value", "${var.t}")}


def test_removed_command_is_a_change_beside_a_rotated_secret() -> None:
    before = a_job(algorithm={**IMAGE, "code_dir": "obs://b/c/", "environments": TOKEN})
    rotated = {"T": SecretText("new-value", "${var.t}")}
    after = a_job(algorithm={"engine": IMAGE["engine"], "code_dir": "obs://b/c/", "environments": rotated})
    [change] = decided(after, reported(before)).changes
    assert (change.path, change.before, change.after) == ("algorithm.command", "run", None)


def test_value_that_became_a_secret_is_a_masked_change() -> None:
    before = a_job(algorithm={**IMAGE, "environments": {"T": "old-value"}})
    action = decided(a_job(algorithm={**IMAGE, "environments": TOKEN}), reported(before))
    [change] = action.changes
    assert (change.path, change.before, change.after, change.sensitive) == (
        "algorithm.environments.T",
        "(sensitive)",
        "${var.t}",
        True,
    )


def test_removal_of_an_unreported_field_is_an_update_of_the_marker() -> None:
    before = a_job(spec__retention={"policy": "enabled"})
    action = decided(a_job(), reported(before))
    assert (action.action, action.reason) == (Action.UPDATE, Reason.MARKER_CHANGED)


def test_edit_of_an_unreported_field_is_a_replace_that_names_it() -> None:
    before = a_job(spec__retention={"policy": "enabled"})
    action = decided(a_job(spec__retention={"policy": "disabled"}), reported(before))
    assert action.action is Action.REPLACE
    assert "in a field that the service does not report (spec.retention)" in action.detail


def test_addition_missing_from_the_details_is_named_as_unreported() -> None:
    action = decided(a_job(spec__retention={"policy": "enabled"}), reported(a_job()))
    assert [change.path for change in action.changes] == ["spec.retention"]
    assert "in a field that the service does not report (spec.retention)" in action.detail


def test_search_for_the_old_declaration_is_bounded() -> None:
    many = {f"p{number}": {"value": number, "description": "d"} for number in range(60)}
    before = a_job(algorithm__parameters=many, lifecycle={"rerun": "once"})
    after = a_job(algorithm__parameters=many, lifecycle={"rerun": "twice"})
    assert decided(after, reported(before)).action is Action.REPLACE
