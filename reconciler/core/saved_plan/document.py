"""A saved plan: the plan, the bodies to send, and what shaped it. No manifest is read to apply it.

It is the document of `plan --json` with, for each action that is carried out, what is needed for that;
and `options`. A secret stands there by its name. Source of the format: docs/cli.md, "Saved plans".
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, fields
from itertools import groupby
from typing import Any, NamedTuple

from pydantic import Field, ValidationError

from reconciler.core.declared.digest import CURRENT, is_known
from reconciler.core.declared.stack import Declared, Target, VariableSource
from reconciler.core.diagnostic import Diagnostic, ManifestInvalid, ReconcilerError
from reconciler.core.exit_code import ExitCode
from reconciler.core.observed.ownership import KeyView, Revision
from reconciler.core.observed.phase import Operation, Phase, may, parse_phase
from reconciler.core.planning.plan import Action, Frozen, Plan, PlannedAction, Reason, without_growing
from reconciler.core.planning.planner import Snapshot
from reconciler.core.saved_plan.checks import contradictions, miscounted
from reconciler.core.saved_plan.parser import unreadable_texts
from reconciler.core.saved_plan.seal import CHECKSUM, broken, seal_of_action, seal_of_options, without_seals
from reconciler.core.text.duration import format_duration
from reconciler.core.text.secret import save

#: What says of an action which jobs are its key's, beside its line in `plan --json`; left out where it
#: says nothing.
_WHOSE = ("formerly", "former_keys", "aged_out_as")
#: What an action that is carried out needs besides.
_MORE = (*_WHOSE, "desired", "declared", "replace_order", "follows", "lost_time")

#: A body is nested a dozen levels deep.
_DEEPEST = 100


class StalePlan(ReconcilerError):
    """The service, or the program, is not what the plan was made for: nothing was changed."""

    exit_code = ExitCode.STALE


class Refusal(Frozen):
    """A guard's word, as it was when the plan was made."""

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
    sources: dict[str, VariableSource] = Field(
        default_factory=dict, description="Source of each secret's value."
    )
    refusals: tuple[Refusal, ...] = Field((), description="Refusals by guards.")


class SavedPlan(NamedTuple):
    """A plan as it was read from a file; secrets in its bodies are references yet."""

    plan: Plan
    options: SavedOptions


def document(plan: Plan, options: SavedOptions) -> dict[str, Any]:
    """The saved plan as plain JSON data. Texts of bodies are escaped: `${` only begins a reference."""
    result = plan.document()
    for shown, action in zip(result["actions"], plan.actions, strict=True):
        shown |= _more(action, _MORE if action.traits.is_executed else _WHOSE)
        shown[CHECKSUM] = seal_of_action(shown, PlannedAction.model_fields)
    refusals = tuple(Refusal(what=r.what, why=r.why, fix=r.fix) for r in plan.refusals)
    return with_options(result, options.model_copy(update={"refusals": refusals}))


def with_options(document: Mapping[str, Any], options: SavedOptions) -> dict[str, Any]:
    """The same document with other options."""
    said = options.model_dump(mode="json", exclude_none=True)
    said[CHECKSUM] = seal_of_options(document, said, SavedOptions.model_fields)
    return {**document, "options": said}


def digest(document: Mapping[str, Any]) -> str:
    """Name a saved plan by what it says, what grows with time aside. Source: docs/cli.md, "Saved plans"."""
    text = json.dumps(without_growing(document), sort_keys=True, separators=(",", ":"))
    return f"sha256:{hashlib.sha256(text.encode()).hexdigest()}"


def _more(action: PlannedAction, names: Iterable[str]) -> dict[str, Any]:
    declared = None if action.declared is None else asdict(action.declared)
    as_json = {
        "desired": save(action.desired),
        "declared": declared,
        "former_keys": list(action.former_keys),
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
    if damages := [*unreadable_texts(data)]:
        raise ManifestInvalid(*(_invalid(file, said) for said in damages))
    is_ours = _made_by_other(data, version) is None
    if strict and not is_ours:
        why = f"{file} was created by reconciler {_made_by_other(data, version)}; this is {version}"
        raise StalePlan(Diagnostic("stale plan", why, "create a new plan"))
    content = without_seals(data)
    try:
        options = SavedOptions.model_validate(_known(SavedOptions, content.pop("options"), strict))
        plan = Plan.model_validate(_known(Plan, content, strict))
    except ValidationError as error:
        raise ManifestInvalid(
            *(
                _invalid(file, f"{'.'.join(map(str, problem['loc'])) or 'the document'}: {problem['msg']}")
                for problem in error.errors(include_input=False, include_url=False)
            )
        ) from None
    if plan.format_version.partition(".")[0] != "1":
        raise ManifestInvalid(_invalid(file, f"unknown format_version {plan.format_version}"))
    # What another version contradicts, it may have meant; what is counted, everybody shows.
    damages = [*contradictions(plan, options)] if is_ours else [*miscounted(plan)]
    if is_ours and not damages:
        damages += broken(data, PlannedAction.model_fields, SavedOptions.model_fields)
    if strict:
        damages += _unknown_in_declared(data)
    if damages:
        raise ManifestInvalid(*(_invalid(file, said) for said in damages))
    refusals = tuple(Diagnostic(r.what, r.why, r.fix) for r in options.refusals)
    return SavedPlan(plan.model_copy(update={"refusals": refusals}), options)


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


# --- whether it still holds

_ACTIVE = "active"
#: Phase → its class. A move within a class changes no action.
_CLASSES: dict[Phase, str] = {
    Phase.CREATING: _ACTIVE,
    Phase.PENDING: _ACTIVE,
    Phase.RUNNING: _ACTIVE,
    Phase.ABNORMAL: Phase.FAILED.value,
}
#: Moves from one class to another that leave a keep what it is.
_KEPT_ALL_THE_SAME = frozenset(
    {(_ACTIVE, Phase.COMPLETED.value), (Phase.TERMINATING.value, Phase.TERMINATED.value)}
)


def movements(plan: Plan, look: Snapshot, at_s: float) -> tuple[str, ...]:
    """Compare each action's precondition with what is there at `at_s`; what moved, for people, by key."""
    found: list[str] = []
    known = {action.before.id for action in plan.actions if action.before}
    for key, of_key in groupby(plan.actions, key=lambda action: action.key):
        actions = list(of_key)
        view = look.view_of(key, actions[0].former_keys)
        for action in actions:
            found += (f"{key}: {said}" for said in _moved(action, view, at_s))
        if not all(_stops_looking(action) for action in actions):
            strange = (r for r in view.owned if _is_live(r) and r.job.id not in known)
            found += (f"{key}: {r.job.name} exists, which the plan does not know" for r in strange)
    return tuple(found)


def _is_live(revision: Revision) -> bool:
    """Whether the job is active and nobody has asked for its end."""
    return bool(may(Operation.TERMINATE, revision.job.phase))


def _stops_looking(action: PlannedAction) -> bool:
    """Whether the action may say nothing of the key's other jobs: it came before they were looked at."""
    is_first = action.traits.stands_in_the_way or action.reason is Reason.MARKER_RESTORED
    return is_first or action.action is Action.UNKNOWN


def _moved(action: PlannedAction, view: KeyView, at_s: float) -> Iterator[str]:
    if action.action is Action.UNKNOWN:
        return
    if view.unreadable:
        yield f"could not be read: {view.unreadable[0].why}"
        return
    if action.before is not None:
        yield from _job_moved(action, view, at_s)
    if action.after is not None and action.traits.starts_a_job:
        yield from _name_moved(action, view)
    if not action.traits.stands_in_the_way:
        digests = [shown.digest for shown in (action.before, action.after) if shown is not None]
        yield from (
            f"digest {digest} needs another version of reconciler"
            for digest in digests
            if not is_known(digest)
        )
        if action.after and action.traits.starts_a_job and action.after.digest[:1] != CURRENT:
            yield f"digest {action.after.digest} was computed by another version of reconciler"


def _job_moved(action: PlannedAction, view: KeyView, at_s: float) -> Iterator[str]:
    before = action.before
    assert before is not None
    if action.reason is Reason.MARKER_RESTORED:
        bears_none = before.id in {stranger.job.id for stranger in view.strangers}
        if not bears_none or view.past_of(before.id) is None:
            yield f"{before.name} ({before.id}) is no longer a known job without a marker"
        return
    revision = next((r for r in view.owned if r.job.id == before.id), None)
    if revision is None:
        yield f"{before.name} ({before.id}) is gone or no longer carries our marker"
        return
    if revision.job.name != before.name or revision.marker.key != (action.formerly or action.key):
        yield f"{before.name} ({before.id}) is now {revision.job.name} of key {revision.marker.key}"
    if (revision.marker.revision, revision.marker.digest) != (before.revision, before.digest):
        yield f"the marker of {before.name} has changed"
    then, now = _class(parse_phase(before.phase), before.phase), _class_of(revision)
    is_kept = action.action is Action.KEEP and (then, now) in _KEPT_ALL_THE_SAME
    if then != now and not is_kept:
        yield f"{before.name} was {before.phase}, now {revision.job.phase_text}"
    ran_s = revision.job.ran_s(at_s)
    if action.lost_time is not None and ran_s > action.lost_time:
        # Planned now, this would be a conflict: the plan was made when less was at stake.
        yield f"{before.name} has now run for {format_duration(ran_s)}, longer than limits.lost_time"


def _name_moved(action: PlannedAction, view: KeyView) -> Iterator[str]:
    after = action.after
    assert after is not None
    if any(stranger.job.name == after.name for stranger in view.strangers):
        yield f"the name {after.name} is taken"
    elif view.next_revision != after.revision:
        yield f"r{after.revision} is no longer the next revision; r{view.next_revision} is"
    elif last := next((r for r in view.owned if r.job.id == action.follows and _is_live(r)), None):
        yield f"{last.job.name} is {last.job.phase_text} again"
    elif action.follows and action.follows not in {r.job.id for r in view.owned} | {
        past.job for past in view.remembered
    }:
        yield f"the previous job, {action.follows}, is gone"


def _class_of(revision: Revision) -> str:
    return _class(revision.job.phase, revision.job.phase_text)


def _class(phase: Phase | None, text: str) -> str:
    return text if phase is None else _CLASSES.get(phase, phase.value)
