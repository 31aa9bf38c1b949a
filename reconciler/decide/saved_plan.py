"""A saved plan: the plan, the bodies to send, and what shaped it. No manifest is read to apply it.

It is the document of `plan --json` with, for each action that is carried out, what is needed for that;
`options`; and a seal, a digest over all of it but what grows with time, for the same plan is the same file.
A secret stands there by its name. Source of the format: docs/cli.md, "Saved plans".
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping
from copy import deepcopy
from dataclasses import asdict
from datetime import datetime
from typing import Any, NamedTuple, TypeVar

from pydantic import Field, ValidationError

from reconciler.core.expression import save
from reconciler.core.schedule import spell_relative
from reconciler.core.stack import Target, VariableSource
from reconciler.core.values import Frozen, node_hours
from reconciler.decide.cost import total_cost
from reconciler.decide.plan import GROWING, Plan, PlannedAction, count, lost_sum, without_growing
from reconciler.decide.preconditions import StalePlan
from reconciler.decide.saved_plan_parser import unreadable_texts
from reconciler.errors import Diagnostic, ManifestInvalid

#: What says of an action which jobs are its key's, beside its line in `plan --json`; left out where it
#: says nothing.
_WHOSE = ("formerly", "former_keys", "aged_out_as")
#: What an action that is carried out needs besides.
_MORE = (*_WHOSE, "desired", "declared", "replace_order", "follows", "waits_for_jobs", "needs", "lost_time")

#: A body is nested a dozen levels deep.
_DEEPEST = 100
SEAL = "seal"
_Model = TypeVar("_Model", bound=Frozen)
_UNKNOWN_KEY = frozenset({"extra_forbidden", "unexpected_keyword_argument"})


class Refusal(Frozen):
    """The word of a guard that refuses the whole plan, as it was when the plan was made."""

    what: str
    why: str = ""
    fix: str | None = None


class SavedOptions(Frozen):
    """What shaped the plan, and what is needed to carry it out."""

    target: Target = Field(description="Target entry, expanded; must not contain a secret.")
    root: str = Field(description="Directory of the stack's root file, relative to the plan file.")
    records: str | None = Field(None, description="Record store, as given in the manifest.")
    only: tuple[str, ...] = Field((), description="Requested keys.")
    allow: tuple[str, ...] = Field((), description="Guards that were allowed to pass.")
    declared: dict[str, str] = Field(
        default_factory=dict, description='Declared keys, each with its sweep, or "".'
    )
    sources: dict[str, VariableSource] = Field(
        default_factory=dict, description="Source of each secret's value."
    )
    refusals: tuple[Refusal, ...] = Field((), description="Guards that refuse the whole plan.")


class SavedPlan(NamedTuple):
    """A plan as it was read from a file; secrets in its bodies are references yet."""

    plan: Plan
    options: SavedOptions


def document(plan: Plan, options: SavedOptions) -> dict[str, Any]:
    """The saved plan as plain JSON data, not sealed yet. Texts of bodies are escaped: `${` only begins a
    reference."""
    result = plan.document()
    for shown, action in zip(result["actions"], plan.actions, strict=True):
        shown |= _more(action, _MORE if action.traits.is_executed else _WHOSE)
    refusals = tuple(Refusal(what=r.what, why=r.why, fix=r.fix) for r in plan.refusals)
    saved_options = options.model_copy(update={"refusals": refusals})
    return {**result, "options": saved_options.model_dump(mode="json", exclude_none=True)}


def sealed(document: Mapping[str, Any]) -> dict[str, Any]:
    """The same document with the seal that fits it, as the last of its options."""
    content = _without_seal(document)
    return {**content, "options": {**content["options"], SEAL: _seal_of(content)}}


def is_modified(document: Mapping[str, Any], plan: Plan) -> bool:
    """Whether a document, whose values are `plan`, differs from what was written."""
    return document["options"].get(SEAL) != _seal_of(_without_seal(document)) or not _adds_up(plan)


def digest(document: Mapping[str, Any]) -> str:
    """Name a saved plan by what it says, what grows with time aside. Source: docs/cli.md, "Saved plans"."""
    return _sha256(without_growing(document))


def _seal_of(content: Mapping[str, Any]) -> str:
    """The digest over all names of a document, and all values but those that grow with time."""
    still = [_without_grown_values(part) for part in (content, *content["actions"])]
    return _sha256(still)


def _without_grown_values(part: Mapping[str, Any]) -> dict[str, Any]:
    return {
        name: _names_of(value) if name in GROWING else value
        for name, value in part.items()
        if name != "actions"
    }


def _names_of(value: Any) -> list[str] | None:
    return sorted(value) if isinstance(value, Mapping) else None


def _sha256(tree: Any) -> str:
    text = json.dumps(tree, sort_keys=True, separators=(",", ":"))
    return f"sha256:{hashlib.sha256(text.encode()).hexdigest()}"


def _without_seal(document: Mapping[str, Any]) -> dict[str, Any]:
    options = document["options"]
    if isinstance(options, Mapping):
        options = {name: value for name, value in options.items() if name != SEAL}
    return {**document, "options": options}


def _more(action: PlannedAction, names: Iterable[str]) -> dict[str, Any]:
    declared = None if action.declared is None else asdict(action.declared)
    as_json = {
        "desired": save(action.desired),
        "declared": declared,
        "former_keys": list(action.former_keys),
        "waits_for_jobs": list(action.waits_for_jobs),
        "needs": list(action.needs),
    }
    said = (n for n in names if getattr(action, n) != PlannedAction.model_fields[n].default)
    return {name: as_json.get(name, getattr(action, name)) for name in said}


def read(data: Any, file: str, version: str, *, strict: bool) -> SavedPlan:
    """Read a saved plan from plain JSON data.

    `strict` is for one that is to be applied: another minor version of the program made it stale, and
    a key that is not known, or a seal that does not fit, makes it invalid. Readers who only show it ignore
    such keys.

    Raises:
        StalePlan: another version of the program made it.
        ManifestInvalid: it is no saved plan, or was damaged or edited.
    """
    if not isinstance(data, Mapping) or "options" not in data or _is_too_deep(data):
        raise ManifestInvalid(_invalid(file, "it differs from what `plan --out` wrote"))
    _raise(file, unreadable_texts(data))
    made_by = made_by_other(data, version)
    if strict and made_by is not None:
        why = f"{file} was created by reconciler {made_by}; this is {version}"
        raise StalePlan(Diagnostic("stale plan", why, "create a new plan"))
    plan, options = _as_values(data, file, strict=strict)
    if strict:
        _raise(file, _damages(data, plan))
    refusals = tuple(Diagnostic(r.what, r.why, r.fix) for r in options.refusals)
    actions = tuple(_with_next_run(action, plan.created_at) for action in plan.actions)
    # Another version may count other kinds.
    read_now = {"refusals": refusals, "actions": actions, "summary": count(actions)}
    return SavedPlan(plan.model_copy(update=read_now), options)


def _with_next_run(action: PlannedAction, created_at: str) -> PlannedAction:
    """Say when the schedule comes next, as the plan did; another version may say what we cannot read."""
    if action.next_run_at is None or action.timezone is None:
        return action
    try:
        time_s, made_s = (
            datetime.fromisoformat(text).timestamp() for text in (action.next_run_at, created_at)
        )
        said = spell_relative(time_s, made_s, action.timezone)
    except (LookupError, ValueError, OSError):
        return action
    return action.model_copy(update={"next_run": said})


def _raise(file: str, damages: Iterable[str]) -> None:
    if found := [*damages]:
        raise ManifestInvalid(*(_invalid(file, said) for said in found))


def _as_values(data: Mapping[str, Any], file: str, *, strict: bool) -> tuple[Plan, SavedOptions]:
    content = _without_seal(data)
    try:
        options = _validated(SavedOptions, content.pop("options"), strict=strict)
        plan = _validated(Plan, content, strict=strict)
    except ValidationError as error:
        problems = error.errors(include_input=False, include_url=False)
        said = [f"{'.'.join(map(str, p['loc'])) or 'the document'}: {p['msg']}" for p in problems]
        raise ManifestInvalid(*(_invalid(file, one) for one in said)) from None
    if "format_version" not in data:
        raise ManifestInvalid(_invalid(file, "format_version is missing"))
    if plan.format_version.partition(".")[0] != "1":
        raise ManifestInvalid(_invalid(file, f"unknown format_version {plan.format_version}"))
    return plan, options


def _validated(model: type[_Model], value: Any, *, strict: bool) -> _Model:
    """Read a part of a document; unless `strict`, without the keys that this version does not know.

    Raises:
        ValidationError: it is not what the model says.
    """
    try:
        return model.model_validate(value)
    except ValidationError as error:
        unknown = [problem["loc"] for problem in error.errors() if problem["type"] in _UNKNOWN_KEY]
        if strict or not unknown:
            raise
    known = deepcopy(value)
    for *path, name in unknown:
        place = known
        for step in path:
            place = place[step]
        del place[name]
    return model.model_validate(known)


def _damages(data: Mapping[str, Any], plan: Plan) -> Iterator[str]:
    """Say, for people, why a document that can be read cannot be applied."""
    for place, action in enumerate(plan.actions):
        missing = [name for name in _parts_of(action) if getattr(action, name) is None]
        yield from (f"actions.{place} ({action.key}): {name} is missing" for name in missing)
    if is_modified(data, plan):
        yield "modified since it was written; its seal does not match"


def _parts_of(action: PlannedAction) -> tuple[str, ...]:
    """What is needed to carry an action out."""
    traits = action.traits
    if not traits.is_executed:
        return ()
    old = () if traits.starts_a_job and not traits.stops_a_job else ("before",)
    new = () if traits.stops_a_job and not traits.starts_a_job else ("after", "desired")
    return (*old, *new, *(("declared",) if traits.starts_a_job else ()))


def _adds_up(plan: Plan) -> bool:
    """Whether the sums of what grows with time, which the seal leaves out, are those of the actions."""
    lost = all(
        action.lost_node_hours
        == (node_hours(action.elapsed, action.nodes) if action.traits.stops_a_job else 0)
        for action in plan.actions
    )
    sums = (lost_sum(plan.actions), total_cost(plan.actions))
    return lost and (plan.lost_node_hours, plan.cost) == sums


def _is_too_deep(data: Any) -> bool:
    """Whether data is nested as nothing that we wrote, so that walking it would end the program."""
    level = [data]
    for _ in range(_DEEPEST):
        level = [
            member
            for tree in level
            if isinstance(tree, Mapping | list)
            for member in (tree.values() if isinstance(tree, Mapping) else tree)
        ]
        if not level:
            return False
    return True


def made_by_other(data: Mapping[str, Any], version: str) -> str | None:
    """The version that made a plan, if it is another minor one, whose seal may be another; else None."""
    made_by = data.get("reconciler_version")
    if not isinstance(made_by, str) or not made_by[:1].isdigit():
        return None
    return made_by if made_by.split(".")[:2] != version.split(".")[:2] else None


def _invalid(file: str, why: str) -> Diagnostic:
    return Diagnostic("invalid plan file", f"{file}: {why}", "create a new plan: reconciler plan --out FILE")
