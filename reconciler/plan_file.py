"""Saved plans: written, read, checked, and prepared to be executed without their manifest.

This includes the document, the seal over it, and the preconditions of its actions.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from copy import deepcopy
from dataclasses import asdict
from itertools import chain, groupby
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple, TypeVar

from pydantic import ValidationError
from pydantic_core import to_jsonable_python

from reconciler.core.addresses import absolute_url, passwords_in
from reconciler.core.body import CURRENT, is_known
from reconciler.core.mutable import overwritten_fields
from reconciler.core.ownership import KeyView, Revision, sort_by_key
from reconciler.core.phase import Phase, parse_phase
from reconciler.core.record import Scope
from reconciler.core.scalar import parts_of, save, unresolvable_references, variables_of, walk_texts
from reconciler.core.stack import Stack
from reconciler.core.values import Frozen, node_hours
from reconciler.decide.actions import has_planned_flags
from reconciler.decide.cost import total_cost
from reconciler.decide.key_state import Snapshot, newest_completed
from reconciler.decide.plan import (
    GROWING,
    Action,
    Allowances,
    Before,
    Plan,
    PlannedAction,
    PlannedCode,
    Reason,
    count,
    lost_sum,
    without_growing,
)
from reconciler.decide.saved_plan import Refusal, SavedOptions
from reconciler.errors import (
    Diagnostic,
    ExitCode,
    ManifestInvalid,
    ReconcilerError,
    Refused,
    ServiceError,
    Severity,
    WrongUsage,
)
from reconciler.files import NotRegular, TooLarge, read_file, write_file
from reconciler.manifest import LoadedStack
from reconciler.manifest.saved_secrets import SecretSources, resolve, resolve_records
from reconciler.reconcile import Context, memory_of
from reconciler.records.recording import digest_of
from reconciler.render.json import dump, redacted
from reconciler.secrets import SecretText, matches_redacted
from reconciler.text import few, format_duration
from reconciler.version import __version__

#: Ten times the size of a plan of ten thousand jobs.
MOST_BYTES = 256 * 1024 * 1024

# --- preconditions


class StalePlan(ReconcilerError):
    """The service, or the program, is not as when the plan was made; nothing was changed."""

    exit_code = ExitCode.STALE


#: Phase → class, if other than the phase. A change within a class changes no action.
_CLASSES = {
    Phase.CREATING: "active",
    Phase.PENDING: "active",
    Phase.RUNNING: "active",
    Phase.ABNORMAL: "Failed",
}
#: Changes of class that do not affect a keep.
_HARMLESS_FOR_KEEP = frozenset(
    {("active", Phase.COMPLETED.value), (Phase.TERMINATING.value, Phase.TERMINATED.value)}
)
#: Required class of the previous revision, by the reason of the create.
_FOLLOWS_CLASS = {
    Reason.RETRY: "Failed",
    Reason.RECREATE: Phase.TERMINATED.value,
    Reason.DECLARED_AGAIN: Phase.TERMINATED.value,
}


def failed_preconditions(
    plan: Plan, snapshot: Snapshot, at_s: float, sweeps: Mapping[str, str] = MappingProxyType({})
) -> tuple[str, ...]:
    """Check the preconditions of each executed action at `at_s`; return the failed ones, for people.

    These are the job, phase class, digest and name of its own key, the keys that it needs, and its turn in
    its sweep; `sweeps` has the sweep of each declared key. Other changes (a kept job failed, a key is
    deferred or blocked) do not affect what is executed.
    """
    failed: list[str] = []
    known = {action.before.id for action in plan.actions if action.before}
    needed = {key for action in plan.to_execute for key in action.needs}
    executed = {action.key for action in plan.to_execute}
    actions_by_key = {key: [*of_key] for key, of_key in groupby(plan.actions, key=lambda action: action.key)}

    def view_of(key: str) -> KeyView:
        return snapshot.view_of(key, next((one.former_keys for one in actions_by_key.get(key, ())), ()))

    for key in sorted(executed | needed):
        actions, view = actions_by_key.get(key, []), view_of(key)
        checked = (one for one in actions if one.traits.is_executed or one.action is Action.KEEP)
        problems = [problem for action in checked for problem in _key_problems(action, view, at_s, known)]
        # The action was chosen with the key's other jobs in view, so there must be no new ones.
        if any(
            not (one.traits.needs_attention or one.reason is Reason.MARKER_RESTORED)
            and one.action is not Action.UNKNOWN
            for one in actions
        ):
            # A terminating one matters only if a new job would start beside it.
            starts_a_job = any(action.traits.starts_a_job for action in actions)
            named = {*known, *chain.from_iterable(map(_awaited, actions))}
            problems += (
                f"{one.job.name} exists, but is not in the plan"
                for one in view.owned
                if (one.job.is_active if starts_a_job else one.job.is_live) and one.job.id not in named
            )
        newest = view.aged_out or (view.owned[-1] if view.owned else None)
        if key in needed and not problems and (newest is None or newest.job.phase is not Phase.COMPLETED):
            where = "gone" if newest is None else f"{newest.job.name} is {newest.job.phase_text}"
            problems.append(f"needed, but {where}")
        sent = min((one.made_from[key] for one in plan.to_execute if key in one.made_from), default=None)
        if sent is not None and (last := newest_completed(view) or 0) > sent:
            problems.append(f"r{last} has completed, but the plan has the path of r{sent}")
        failed += (f"{key}: {problem}" for problem in problems)
    starting = [action for action in plan.to_execute if action.max_parallel is not None]
    for sweep, first in {sweeps.get(action.key): action for action in starting}.items():
        members = {key for key, entry in sweeps.items() if entry == sweep}.union(first.beside)
        new = {action.key for action in starting if sweeps.get(action.key) == sweep}
        active = sorted(key for key in members - new if view_of(key).may_be_active)
        if len(active) + len(new) > (first.max_parallel or 0):
            limit = f"max_parallel: {first.max_parallel}, and the plan starts {len(new)}"
            failed.append(f"{sweep}: {few(active)} {'is' if len(active) == 1 else 'are'} active; {limit}")
    return tuple(failed)


def _awaited(action: PlannedAction) -> tuple[str, ...]:
    """Return the jobs that must end before the action starts one, except those that it ends itself."""
    return action.waits_for_jobs if action.follows is None else (action.follows, *action.waits_for_jobs)


def _key_problems(action: PlannedAction, view: KeyView, at_s: float, known: Collection[str]) -> Iterator[str]:
    """Yield what changed about the jobs and names of an action's key; `known` jobs are checked elsewhere."""
    if view.unreadable:
        yield f"could not be read: {view.unreadable[0].why}"
        return
    before, after, starts_a_job = action.before, action.after, action.traits.starts_a_job
    if before is not None:
        yield from _job_problems(action, before, view, at_s)
    if after is not None and starts_a_job:
        holders = (conflicting_job.job.name for conflicting_job in view.conflicting_jobs)
        # It is not documented whether the service's names are case-sensitive.
        if taken := next((name for name in holders if name.casefold() == after.name.casefold()), None):
            yield f"the name {taken} is taken"
        elif view.next_revision != after.revision:
            yield f"r{after.revision} is no longer the next revision; r{view.next_revision} is"
        owned = {revision.job.id: revision for revision in view.owned}
        for job_id in (one for one in _awaited(action) if one not in known):
            last = owned.get(job_id)
            required = _FOLLOWS_CLASS.get(action.reason) if job_id == action.follows else None
            if any(one.job.id == job_id for one in view.conflicting_jobs):
                yield f"the previous job, {job_id}, no longer carries our marker"
            elif last is None and view.past_of(job_id) is None:
                yield f"the previous job, {job_id}, is gone"
            elif last is not None and last.job.is_live:
                yield f"{last.job.name} is {last.job.phase_text} again"
            elif last is not None and required and required != _class(last.job.phase, last.job.phase_text):
                yield f"{last.job.name} was {required}, now {last.job.phase_text}"
    if not action.traits.needs_attention:
        digests = [shown.digest for shown in (before, after) if shown is not None]
        other = "another version of reconciler"
        yield from (f"digest {one} needs {other}" for one in digests if not is_known(one))
        if after is not None and starts_a_job and after.digest[:1] != CURRENT:
            yield f"digest {after.digest} was computed by {other}"


def _job_problems(action: PlannedAction, before: Before, view: KeyView, at_s: float) -> Iterator[str]:
    """Yield what changed about the existing job of an action."""
    has_no_marker = any(one.job.id == before.id for one in view.conflicting_jobs)
    past = view.past_of(before.id)
    if action.reason is Reason.MARKER_RESTORED:
        if not has_no_marker or past is None:
            yield f"{before.name} ({before.id}) is no longer a known job without a marker"
        return
    planned = _class(parse_phase(before.phase), before.phase)
    revision = next((r for r in view.owned if r.job.id == before.id), None)
    if revision is None:
        # A job that is left alone may have aged out, if the history knows how it ended.
        aged_out = past is not None and not has_no_marker and not action.traits.is_executed
        if not (aged_out and past and past.has_ended and _class(past.phase, past.phase_text) == planned):
            yield f"{before.name} ({before.id}) is gone or no longer carries our marker"
        return
    job, marker = revision.job, revision.marker
    if job.name != before.name or marker.key != (action.formerly or action.key):
        yield f"{before.name} ({before.id}) is now {job.name} of key {marker.key}"
    if (marker.revision, marker.digest) != (before.revision, before.digest):
        yield f"the marker of {before.name} has changed"
    if action.traits.stops_a_job and marker.protected:
        yield f"{job.name} is now protected"
    if action.action is Action.UPDATE:
        yield from _overwritten(action, revision)
    current = _class(job.phase, job.phase_text)
    if planned != current and not (action.action is Action.KEEP and (planned, current) in _HARMLESS_FOR_KEEP):
        yield f"{before.name} was {before.phase}, now {job.phase_text}"
    ran_s = job.ran_s(at_s)
    if action.lost_time is not None and ran_s > action.lost_time:
        # Planned now, this would be a conflict.
        yield f"{before.name} has now run for {format_duration(ran_s)}, longer than limits.lost_time"


def _overwritten(action: PlannedAction, revision: Revision) -> Iterator[str]:
    job = revision.job
    if not has_planned_flags(action, revision.marker):
        yield f"the marker of {job.name} has changed"
    # Text that refers to a variable is a secret; it may be unresolved, or rotated.
    body = walk_texts(
        action.desired or {},
        lambda text: SecretText(text, text) if type(text) is str and variables_of(text) else text,
    )
    # Without a declaration only the marker is written, and on an ended job only the marker is compared.
    if action.declared is not None and (job.phase is None or job.phase.is_terminal):
        return
    shown_by_path = {change.path: change for change in action.changes if not change.forces_new_job}
    for change in (one for one in overwritten_fields(body, job) if not one.sensitive):
        planned, current = shown_by_path.get(change.path), json.dumps(change.before, ensure_ascii=False)
        shown = "" if planned is None else json.dumps(planned.before, ensure_ascii=False)
        # The shown value may have been masked.
        if planned is None or not (planned.sensitive or shown == current or matches_redacted(shown, current)):
            yield f"{change.path} of {job.name} has changed, now {current}"


def _class(phase: Phase | None, text: str) -> str:
    return text if phase is None else _CLASSES.get(phase, phase.value)


# --- the document: the plan, the bodies to send, and the options that shaped it


#: Fields, besides those of `plan --json`, that identify a key's jobs; left out if unset.
_OWNERSHIP_FIELDS = ("formerly", "former_keys", "aged_out_as")
#: Further fields of executed actions.
_EXECUTED_FIELDS = (
    *("desired", "declared", "replace_order", "follows", "waits_for_jobs", "needs", "lost_time"),
    *("made_from", "max_parallel", "beside", "code"),
)

#: Maximum nesting of a document; a body has a dozen levels.
_DEEPEST = 100
SEAL = "seal"
_Model = TypeVar("_Model", bound=Frozen)
_UNKNOWN_KEY = frozenset({"extra_forbidden", "unexpected_keyword_argument"})


def document_of(plan: Plan, options: SavedOptions) -> dict[str, Any]:
    """Return the saved plan as plain JSON data, without seal.

    Texts of bodies are escaped, so that `${` only begins references.
    """
    result = plan.document()
    for shown, action in zip(result["actions"], plan.actions, strict=True):
        for name in _OWNERSHIP_FIELDS + (_EXECUTED_FIELDS if action.traits.is_executed else ()):
            value = getattr(action, name)
            if value == PlannedAction.model_fields[name].default:
                continue
            if name == "desired":
                value = save(value)
            elif name == "declared":
                value = asdict(value)
            elif name == "code":  # with the fields for reading it again
                value = {one: to_jsonable_python(getattr(value, one)) for one in PlannedCode.model_fields}
            shown[name] = list(value) if isinstance(value, tuple) else value
    refusals = tuple(Refusal(what=r.what, why=r.why, fix=r.fix) for r in plan.refusals)
    saved_options = options.model_copy(update={"refusals": refusals, "has_budget": plan.has_budget})
    return {**result, "options": saved_options.model_dump(mode="json", exclude_none=True)}


def sealed(document: Mapping[str, Any]) -> dict[str, Any]:
    """Return the document with its seal, as the last of its options.

    The seal is the digest over all names of a document, and all values but those that grow with time.
    """
    content = _without_seal(document)
    parts = [
        {
            name: (sorted(value) if isinstance(value, Mapping) else None) if name in GROWING else value
            for name, value in part.items()
            if name != "actions"
        }
        for part in (content, *content["actions"])
    ]
    return {**content, "options": {**content["options"], SEAL: digest_of(parts)}}


def is_modified(document: Mapping[str, Any], plan: Plan) -> bool:
    """Whether the document of `plan` differs from what was written."""
    # Growing values are not sealed, but the sums must match the actions.
    adds_up = (plan.lost_node_hours, plan.cost) == (lost_sum(plan.actions), total_cost(plan.actions)) and all(
        one.lost_node_hours == (node_hours(one.elapsed, one.nodes) if one.traits.stops_a_job else 0)
        for one in plan.actions
    )
    return not adds_up or document["options"].get(SEAL) != sealed(document)["options"][SEAL]


def digest_of_document(document: Mapping[str, Any]) -> str:
    """Return the digest of a saved plan, without what grows with time.

    Source: docs/reference/cli.md, "Saved plans".
    """
    return digest_of(without_growing(document))


def _without_seal(document: Mapping[str, Any]) -> dict[str, Any]:
    options = document["options"]
    if isinstance(options, Mapping):
        options = {name: value for name, value in options.items() if name != SEAL}
    return {**document, "options": options}


def read_document(data: Any, file: Path, version: str, *, strict: bool) -> ReadPlan:
    """Parse a saved plan from plain JSON data.

    With `strict`, for plans to be applied, another minor version of the program makes it stale, and unknown
    keys or a wrong seal make it invalid. Otherwise unknown keys are ignored.

    Raises:
        StalePlan: another version of the program made it.
        ManifestInvalid: it is not a saved plan, or was damaged or edited.
    """

    def check(damages: Iterable[str]) -> None:
        fix = "create a new plan: reconciler plan --out FILE"
        if problems := [Diagnostic("invalid plan file", f"{file}: {problem}", fix) for problem in damages]:
            raise ManifestInvalid(*problems)

    if not isinstance(data, Mapping) or "options" not in data or _is_too_deep(data):
        check(["it differs from what `plan --out` wrote"])
    made_by = made_by_other(data, version)
    if strict and made_by is not None:
        why = f"{file} was created by reconciler {made_by}; this is {version}"
        raise StalePlan(Diagnostic("stale plan", why, "create a new plan"))
    content = _without_seal(data)
    try:
        options = _validate_part(SavedOptions, content.pop("options"), strict=strict)
        plan = _validate_part(Plan, content, strict=strict)
    except ValidationError as error:
        problems = error.errors(include_input=False, include_url=False)
        check(f"{'.'.join(map(str, p['loc'])) or 'the document'}: {p['msg']}" for p in problems)
        raise
    if "format_version" not in data:
        check(["format_version is missing"])
    if plan.format_version.partition(".")[0] != "1":
        check([f"unknown format_version {plan.format_version}"])
    if strict:
        missing = [
            f"actions.{place} ({action.key}): {name} is missing"
            for place, action in enumerate(plan.actions)
            for name in _parts_of(action)
            if getattr(action, name) is None
        ]
        is_edited = is_modified(data, plan)
        check([*missing, *(["modified since it was written; its seal does not match"] if is_edited else [])])
    refusals = tuple(Diagnostic(r.what, r.why, r.fix) for r in options.refusals)
    # Another version may have other kinds of actions.
    read_now: dict[str, Any] = {"refusals": refusals, "summary": count(plan.actions)}
    read_now |= {"declared": tuple(options.declared), "has_budget": options.has_budget}
    return ReadPlan(file, plan.model_copy(update=read_now), options, data)


def _parts_of(action: PlannedAction) -> Iterator[str]:
    traits = action.traits
    if traits.is_executed:
        yield from () if traits.starts_a_job and not traits.stops_a_job else ("before",)
        yield from () if traits.stops_a_job and not traits.starts_a_job else ("after", "desired")
        yield from ("declared",) if traits.starts_a_job else ()


def _validate_part(model: type[_Model], value: Any, *, strict: bool) -> _Model:
    """Validate a part of a document; unless `strict`, without unknown keys."""
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


def _is_too_deep(data: Any) -> bool:
    """Whether data is nested so deeply that walking it would fail; no saved plan is."""
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
    """Return the version that made a plan if it is another minor one, whose seal may differ, else None."""
    made_by = data.get("reconciler_version")
    if not isinstance(made_by, str) or not made_by[:1].isdigit():
        return None
    return made_by if made_by.split(".")[:2] != version.split(".")[:2] else None


# --- files

_DIGEST = re.compile("sha256:[0-9a-f]{64}")


def write_plan(document: Mapping[str, Any], file: Path) -> None:
    """Write the document of `document_to_save` atomically, readable by its owner only.

    Raises:
        WrongUsage: there is a directory, device, pipe or socket at this path.
        OSError: it cannot be written.
    """
    try:
        write_file(file, (dump(document) + "\n").encode("utf-8", "backslashreplace"), 0o600)
    except NotRegular as found:
        fix = "use a regular file, or a new one"
        why = f"{found.filename} is {found.strerror}"
        raise WrongUsage(Diagnostic("not a regular file", why, fix)) from None


def document_to_save(
    plan: Plan,
    context: Context,
    allowances: Allowances,
    file: Path | None,
    *,
    records: str | None,
    environ: Mapping[str, str],
    redact: Callable[[str], str],
) -> dict[str, Any]:
    """Make the document of a plan to be saved as `file`; its paths are relative to that.

    `context` and `allowances` are those that the plan was made with. Without a file, paths are relative to
    the stack's root. `records` is the given URL of the record store; None for that of the manifest. Secrets
    are masked in parts that only people read.

    Raises:
        Refused: a body has a secret that cannot be found without the manifest; a password was given on the
            command line; or a secret is in a part that apply needs.
    """
    loaded = context.loaded
    unresolvable = {
        (action.key, name) for action in plan.to_execute for name in unresolvable_references(action.desired)
    }
    fix = "declare a variable with `sensitive: true` and `env: NAME`, and use ${var.…} instead"
    _refuse(
        (f"jobs.{key}: {name} is in the manifest, and a plan file must not contain secrets", fix)
        for key, name in sorted(unresolvable)
    )
    # A symbolic link at the path itself is replaced, so only its directory is resolved.
    directory = os.path.realpath(file.parent if file else loaded.root)
    _, target = loaded.target(plan.target.name)
    reference = loaded.records_reference
    if target.traits.is_embedded:
        reference = None
    elif records is not None and environ.get("RECONCILER_RECORDS") == records:
        reference = "${env.RECONCILER_RECORDS}"
    elif records is not None:
        if any(passwords_in(records)):
            why = "--records contains a password, and a plan file must not contain secrets"
            _refuse([(why, "set the URL in RECONCILER_RECORDS")])
        reference = save(absolute_url(records, str(loaded.root.resolve())))
    # Relative to the plan file, because it may be applied elsewhere.
    sources = {
        name: source
        if source.file is None
        else source.model_copy(update={"file": os.path.relpath(Path(source.file).resolve(), directory)})
        for name, source in loaded.sources.items()
    }
    options = SavedOptions(
        target=target,
        root=os.path.relpath(loaded.root.resolve(), directory),
        records=reference,
        only=context.only,
        rerun=context.rerun,
        allow=tuple(sorted(allowances)),
        declared=dict(loaded.declared),
        sources=sources,
    )
    document = document_of(plan, options)
    shown: dict[str, Any] = redacted(document, redact)
    # Keep the text of a sensitive variable if it only refers to other variables.
    for name, source in document["options"]["sources"].items():
        if all(redact(part) == part for part in parts_of(source.get("text", "")) if isinstance(part, str)):
            shown["options"]["sources"][name] = source
    _refuse(map(_why_not_saved, _masked(document, shown)))
    return sealed(shown)


def _refuse(reasons: Iterable[tuple[str, str]]) -> None:
    if problems := [Diagnostic("a secret cannot be saved", why, fix) for why, fix in reasons]:
        raise Refused(*problems)


def _why_not_saved(path: tuple[str, ...]) -> tuple[str, str]:
    also, fix = (
        "also contains the value of a secret as plain text",
        "use ${var.…} wherever the secret is intended",
    )
    if path[:2] == ("options", "sources"):
        return f"variables.{path[2]}: its text {also}", f"{fix}, or `env: NAME`"
    if "desired" in path:
        return f"{'.'.join(path[:2])}: its body {also}", f"{fix}, or another value"
    why = f"{'.'.join(path)} contains the value of a secret, and could not be applied with the value removed"
    return why, "choose another name"


#: Parts of the document, its actions and its options that only people read: secrets in them are masked.
#: Masking any other part would change the plan, so such a plan is not written.
_FOR_PEOPLE = frozenset({"detail", "changes", "source", "warnings", "denied", "preflight", "refusals"})


def _masked(tree: Any, shown: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    """Yield the paths of data that was masked although programs read it; actions are named by key."""
    if tree == shown:
        return
    if isinstance(tree, Mapping) and tree.keys() == shown.keys():
        has_parts_for_people = path in ((), ("options",)) or (path[:1] == ("jobs",) and len(path) == 2)
        for name, value in tree.items():
            if not (has_parts_for_people and name in _FOR_PEOPLE):
                yield from _masked(value, shown[name], (*path, name))
    elif path == ("actions",):
        for action, masked in zip(tree, shown, strict=True):
            yield from _masked(action, masked, ("jobs", action["key"]))
    else:
        yield path


class ReadPlan(NamedTuple):
    """A saved plan as read from a file, and the options that shaped it.

    Secrets in its bodies are still references.
    """

    file: Path
    plan: Plan
    options: SavedOptions
    document: dict[str, Any]

    @property
    def digest(self) -> str:
        return digest_of_document(self.document)

    @property
    def _base(self) -> Path:
        return Path(os.path.realpath(self.file)).parent

    def check_approved(self, digest: str | None) -> None:
        """Raise `StalePlan` if another plan was approved."""
        if digest is None or digest == self.digest:
            return
        why = f"{self.file} is {self.digest}, but {digest or 'an empty digest'} was approved"
        if not _DIGEST.fullmatch(digest):
            why += "; digests are compared whole: sha256: and 64 hex digits in lower case"
        raise StalePlan(Diagnostic("a different plan was approved", why, "review this plan"))

    def as_loaded(self) -> LoadedStack:
        """Return the stack as far as it is known without its manifest.

        Raises:
            ManifestInvalid: the root of the stack is not where the plan says.
        """
        plan, options = self.plan, self.options
        keys = {key for action in plan.actions for key in (action.key, *action.former_keys, *action.needs)}
        try:
            root = (self._base / options.root).resolve()
            exists = os.path.isdir(root)  # noqa: PTH112 - false for a name that is too long, not an error
        except ValueError:  # it contains NUL
            root, exists = self._base, False
        if not exists:
            why = f"its stack root {options.root}, relative to the plan file, is not a directory"
            fix = "keep the plan file where it was created"
            raise ManifestInvalid(Diagnostic("invalid plan file", why, fix))
        return LoadedStack(
            stack=Stack(plan.stack, {}, frozenset(keys)),
            root=root,
            targets={plan.target.name: options.target},
            target_name=plan.target.name,
            manifest_digest=plan.manifest_digest,
            declared=options.declared,
        )

    def resolve(self, values: SecretSources) -> Plan:
        """Return the plan with the secrets in its bodies resolved.

        Raises:
            ManifestInvalid: a secret has no value now.
        """
        actions = self.plan.actions
        bodies = [action.desired if action.traits.is_executed else None for action in actions]
        bodies = resolve(bodies, self.options.sources, self._base, values)
        pairs = zip(actions, bodies, strict=True)
        resolved = tuple(action.model_copy(update={"desired": body}) for action, body in pairs)
        return self.plan.model_copy(update={"actions": resolved})

    def records_url(self, values: SecretSources, root: Path) -> str | None:
        """Return the URL of the plan's record store; None for the file beside the root file.

        Raises:
            ManifestInvalid: a variable in it has no value now.
        """
        records, sources = self.options.records, self.options.sources
        if records is None:
            return None
        return resolve_records(records, sources, self._base, values, root)


def read_plan(file: Path, warn: Callable[[Diagnostic], object], *, strict: bool) -> ReadPlan:
    """Read a plan file; `strict` is for one that is to be applied.

    Raises:
        WrongUsage: there is no such file, or it is not a regular one.
        ManifestInvalid: it is not a plan, or damaged.
        StalePlan: another version of the program made it.
    """
    try:
        data = read_file(file, MOST_BYTES)
    except (FileNotFoundError, NotADirectoryError, NotRegular) as error:
        why = f"{file} is {error.strerror}" if isinstance(error, NotRegular) else f"{file}: file not found"
        raise WrongUsage(Diagnostic("no such plan file", why, "reconciler plan --out FILE")) from None
    except TooLarge as error:
        why = f"{file} is {error.strerror}, not a plan"
        raise ManifestInvalid(Diagnostic("invalid plan file", why, "create a new plan")) from None
    try:
        document = json.loads(data.decode())
        # Reject infinity, and lone surrogates except for undecodable bytes of file names.
        json.dumps(document, ensure_ascii=False, allow_nan=False).encode("utf-8", "surrogateescape")
    except (ValueError, RecursionError):
        why = f"{file}: not a valid JSON document; it may be truncated"
        raise ManifestInvalid(Diagnostic("invalid plan file", why, "create a new plan")) from None
    read = read_document(document, file, __version__, strict=strict)
    is_ours = made_by_other(document, __version__) is None
    if not strict and is_ours and is_modified(document, read.plan):
        why = f"{file}: its seal does not match, so it cannot be applied"
        modified = Diagnostic("plan file modified since it was written", why, "create a new plan")
        warn(modified._replace(severity=Severity.WARNING))
    return read


def check_target(context: Context, plan: Plan) -> None:
    """Check that a saved plan is for this target: endpoint host, project and workspace, not the name.

    Raises:
        StalePlan: it is for another one.
    """
    planned, current = Scope.of(plan.stack, plan.target), context.scope
    if planned != current:
        why = f"it was created for {planned.place}; this is {current.place}"
        raise StalePlan(Diagnostic("stale plan", why, "create a new plan"))


def _code_problems(root: Path, plan: Plan) -> list[str]:
    """Return how the code of the jobs that a plan starts differs from the planned one, with its files."""
    problems = []
    codes = (one.code for one in plan.to_execute if one.code is not None)
    for code in {(one.digest, one.source, one.exclude, one.include): one for one in codes}.values():
        from reconciler.code import CodeRejected, CodeSource, read_code  # few stacks declare code

        where = CodeSource((root / code.source).resolve(), code.exclude, code.include, code.max_size)
        try:
            current = {file.path: file for file in read_code(where).files}
        except CodeRejected as problem:
            problems.append(f"the code in {code.source}: {problem.message}")
            continue
        planned = {file.path: file for file in code.code.files}
        changed = [
            path for path in sorted(current.keys() | planned.keys()) if current.get(path) != planned.get(path)
        ]
        if changed:
            problems.append(f"the code in {code.source} has changed: {few(changed, 5)}")
    return problems


def check_preconditions(context: Context, plan: Plan) -> None:
    """Check the preconditions of a saved plan's actions.

    Raises:
        StalePlan: one of them does not hold.
        ServiceError: the workspace could not be read.
    """
    problems: Sequence[str] = _code_problems(context.loaded.root, plan)
    if not problems:
        starts_jobs = any(action.traits.starts_a_job for action in plan.actions)
        stack, sweeps = context.loaded.stack, context.loaded.declared
        seen = context.target.backend.observe(stack.declared_keys, lambda _: starts_jobs)
        if seen.problem is not None:
            raise ServiceError(f"cannot verify the plan: {seen.problem}")
        ownership = sort_by_key(seen, stack.name, stack.declared_keys)
        snapshot = Snapshot(ownership, memory=memory_of(context))
        problems = failed_preconditions(plan, snapshot, context.target.clock.now(), sweeps)
    if problems:
        fix = "nothing was changed; create a new plan"
        raise StalePlan(*(Diagnostic("stale plan", problem, fix) for problem in problems))
