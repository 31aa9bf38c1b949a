"""A saved plan: the plan, the bodies to send, and what shaped it. No manifest is read to apply it.

It is the document of `plan --json` with, for each action that is carried out, what is needed for that;
and `options`. A secret stands there by its name. Source of the format: docs/cli.md, "Saved plans".

Each action is sealed by a checksum, and the options by one for themselves and the head of the document. What
may have moved meanwhile, another version or another target is stale and not damaged, so it is not under a
seal; nor is what grows with time, for the same plan is the same file.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, fields
from datetime import datetime
from typing import Any, NamedTuple

from pydantic import Field, ValidationError

from reconciler.core.declared.schedule import spell_relative
from reconciler.core.declared.stack import Declared, Target, VariableSource
from reconciler.core.diagnostic import Diagnostic, ManifestInvalid
from reconciler.core.planning.plan import Frozen, Plan, PlannedAction, without_growing
from reconciler.core.saved_plan.checks import contradictions, miscounted
from reconciler.core.saved_plan.parser import unreadable_texts
from reconciler.core.saved_plan.preconditions import StalePlan
from reconciler.core.text.secret import save

#: What says of an action which jobs are its key's, beside its line in `plan --json`; left out where it
#: says nothing.
_WHOSE = ("formerly", "former_keys", "aged_out_as")
#: What an action that is carried out needs besides.
_MORE = (*_WHOSE, "desired", "declared", "replace_order", "follows", "waits_for_jobs", "lost_time")

#: A body is nested a dozen levels deep.
_DEEPEST = 100


CHECKSUM = "checksum"
#: The jobs may move, and what they have done grows.
_OPEN_IN_ACTION = ("before", "after", "elapsed", "lost_node_hours", "cost", "next_run_at")
#: The head's part under the seal of the options.
_HEAD = ("stack", "manifest_digest", "applyable", "complete", "summary", "denied", "preflight", "warnings")
#: Another place is another target, and the plan stale there.
_IDENTITY = ("endpoint", "region", "project_id", "workspace_id")


class Refusal(Frozen):
    """The word of a guard, a policy or pre-flight, as it was when the plan was made."""

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
    refusals: tuple[Refusal, ...] = Field((), description="Refusals by guards, policies and pre-flight.")


class SavedPlan(NamedTuple):
    """A plan as it was read from a file; secrets in its bodies are references yet."""

    plan: Plan
    options: SavedOptions


def document(plan: Plan, options: SavedOptions) -> dict[str, Any]:
    """The saved plan as plain JSON data. Texts of bodies are escaped: `${` only begins a reference."""
    result = plan.document()
    for shown, action in zip(result["actions"], plan.actions, strict=True):
        shown |= _more(action, _MORE if action.traits.is_executed else _WHOSE)
        shown[CHECKSUM] = seal_of_action(shown)
    refusals = tuple(Refusal(what=r.what, why=r.why, fix=r.fix) for r in plan.refusals)
    return with_options(result, options.model_copy(update={"refusals": refusals}))


def with_options(document: Mapping[str, Any], options: SavedOptions) -> dict[str, Any]:
    """The same document with other options."""
    said = options.model_dump(mode="json", exclude_none=True)
    said[CHECKSUM] = seal_of_options(document, said)
    return {**document, "options": said}


def digest(document: Mapping[str, Any]) -> str:
    """Name a saved plan by what it says, what grows with time aside. Source: docs/cli.md, "Saved plans"."""
    return _checksum(without_growing(document))


def _more(action: PlannedAction, names: Iterable[str]) -> dict[str, Any]:
    declared = None if action.declared is None else asdict(action.declared)
    as_json = {
        "desired": save(action.desired),
        "declared": declared,
        "former_keys": list(action.former_keys),
        "waits_for_jobs": list(action.waits_for_jobs),
    }
    said = (n for n in names if getattr(action, n) != PlannedAction.model_fields[n].default)
    return {name: as_json.get(name, getattr(action, name)) for name in said}


def read(data: Any, file: str, version: str, *, strict: bool) -> SavedPlan:
    """Read a saved plan from plain JSON data.

    `strict` is for one that is to be applied: another minor version of the program made it stale, and
    a key that is not known makes it invalid. Readers who only show it ignore such keys.

    Raises:
        StalePlan: another version of the program made it.
        ManifestInvalid: it is no saved plan, or damaged, or contradicts itself.
    """
    if not isinstance(data, Mapping) or "options" not in data or _is_too_deep(data):
        raise ManifestInvalid(_invalid(file, "it differs from what `plan --out` wrote"))
    _raise(file, unreadable_texts(data))
    made_by = _made_by_other(data, version)
    if strict and made_by is not None:
        why = f"{file} was created by reconciler {made_by}; this is {version}"
        raise StalePlan(Diagnostic("stale plan", why, "create a new plan"))
    plan, options = _as_values(data, file, strict=strict)
    damages = [*_contradictions(data, plan, options, is_ours=made_by is None)]
    _raise(file, [*damages, *(_unknown_in_declared(data) if strict else ())])
    refusals = tuple(Diagnostic(r.what, r.why, r.fix) for r in options.refusals)
    actions = tuple(_with_next_run(action, plan.created_at) for action in plan.actions)
    return SavedPlan(plan.model_copy(update={"refusals": refusals, "actions": actions}), options)


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
    content = _without_seals(data)
    try:
        options = SavedOptions.model_validate(_known(SavedOptions, content.pop("options"), strict))
        plan = Plan.model_validate(_known(Plan, content, strict))
    except ValidationError as error:
        problems = error.errors(include_input=False, include_url=False)
        said = [f"{'.'.join(map(str, p['loc'])) or 'the document'}: {p['msg']}" for p in problems]
        raise ManifestInvalid(*(_invalid(file, one) for one in said)) from None
    if plan.format_version.partition(".")[0] != "1":
        raise ManifestInvalid(_invalid(file, f"unknown format_version {plan.format_version}"))
    return plan, options


def _contradictions(
    data: Mapping[str, Any], plan: Plan, options: SavedOptions, *, is_ours: bool
) -> Iterator[str]:
    """What another version contradicts, it may have meant; what is counted, everybody shows."""
    if not is_ours:
        return miscounted(plan)
    found = [*contradictions(plan, options)]
    return iter(found) if found else _broken_seals(data)


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


def _unknown_in_declared(data: Mapping[str, Any]) -> Iterator[str]:
    known = {one.name for one in fields(Declared)}
    for place, action in enumerate(data["actions"]):
        unknown = sorted((action.get("declared") or {}).keys() - known)
        yield from (f"actions.{place}.declared.{name}: unknown to this version" for name in unknown)


def _known(model: type[Frozen], value: Any, strict: bool) -> Any:
    if strict or not isinstance(value, Mapping):
        return value
    known = {name: member for name, member in value.items() if name in model.model_fields}
    if model is Plan and isinstance(actions := known.get("actions"), list):
        known["actions"] = [_known(PlannedAction, action, strict) for action in actions]
    return known


def _made_by_other(data: Mapping[str, Any], version: str) -> str | None:
    """The version that made a plan, if it is another minor one; what is no version is not asked here."""
    made_by = data.get("reconciler_version")
    if not isinstance(made_by, str) or not made_by[:1].isdigit():
        return None
    return made_by if made_by.split(".")[:2] != version.split(".")[:2] else None


def _invalid(file: str, why: str) -> Diagnostic:
    return Diagnostic("invalid plan file", f"{file}: {why}", "create a new plan: reconciler plan --out FILE")


# --- the seals: checksums over what no movement of the service explains


def seal_of_action(action: Mapping[str, Any]) -> str:
    """The seal of an action, over those of its members that this version knows."""
    known = (name for name in PlannedAction.model_fields if name in action)
    return _checksum({name: action[name] for name in known if name not in _OPEN_IN_ACTION})


def seal_of_options(document: Mapping[str, Any], options: Mapping[str, Any]) -> str:
    """The seal of the options, over those of their members that this version knows, and over the head."""
    said = {name: options[name] for name in SavedOptions.model_fields if name in options}
    if isinstance(target := said.get("target"), Mapping):
        said["target"] = {name: value for name, value in target.items() if name not in _IDENTITY}
    return _checksum([{name: document.get(name) for name in _HEAD}, said])


def _checksum(said: Any) -> str:
    text = json.dumps(said, sort_keys=True, separators=(",", ":"))
    return f"sha256:{hashlib.sha256(text.encode()).hexdigest()}"


def _broken_seals(document: Mapping[str, Any]) -> Iterator[str]:
    """Say, for people, where a document is not what was written; its shape has been checked."""
    for place, action in enumerate(document["actions"]):
        if action.get(CHECKSUM) != seal_of_action(action):
            yield f"actions.{place} ({action['key']}): modified since it was written"
    options = document["options"]
    if options.get(CHECKSUM) != seal_of_options(document, options):
        yield "the options or the head of the document were modified since they were written"


def _without_seals(document: Mapping[str, Any]) -> dict[str, Any]:
    """The same document without its checksums, which no model knows."""
    result = dict(document)
    if isinstance(actions := result.get("actions"), list):
        result["actions"] = [_without(action) for action in actions]
    result["options"] = _without(result.get("options"))
    return result


def _without(said: Any) -> Any:
    return {k: v for k, v in said.items() if k != CHECKSUM} if isinstance(said, Mapping) else said
