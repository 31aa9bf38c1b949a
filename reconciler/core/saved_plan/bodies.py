"""Whether the body of a saved plan's action is the one that the action says: its digest, marker and changes.

Source: docs/cli.md, "Saved plans".
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from reconciler.core.declared.body import manifest_form
from reconciler.core.declared.canonical import by_name, canonical, mutable_paths, scalar, split
from reconciler.core.declared.diff import spell_path
from reconciler.core.declared.digest import CURRENT, RERUN, declared, digest_of, is_known
from reconciler.core.declared.expression import Reference, parts_of
from reconciler.core.declared.fields.marks import Cloud
from reconciler.core.declared.mutable import DESCRIPTION, is_changeable
from reconciler.core.declared.stack import Declared
from reconciler.core.observed.identity import Description, Marker, parse_description
from reconciler.core.observed.phase import Operation, may, parse_phase
from reconciler.core.planning.plan import Action, After, Before, PlannedAction, Reason
from reconciler.core.text.secret import SecretText

_SECRET = "\0"  # noqa: S105 - stands for a value that is not at hand; no reference looks like it


def _read(tree: Any) -> Any:
    """Saved data as it was before `core.text.secret.save`; secrets without their values."""
    if isinstance(tree, str):
        parts = parts_of(tree)
        if any(isinstance(part, Reference) for part in parts):
            return SecretText(_SECRET, tree)
        return "".join(str(part) for part in parts)
    if isinstance(tree, Mapping):
        return {name: _read(value) for name, value in tree.items()}
    return [_read(value) for value in tree] if isinstance(tree, list | tuple) else tree


def _holds_secret(tree: Any) -> bool:
    if isinstance(tree, Mapping):
        return any(map(_holds_secret, tree.values()))
    if isinstance(tree, list):
        return any(map(_holds_secret, tree))
    return isinstance(tree, SecretText)


def create_body_problems(
    stack: str, workspace_id: str, action: PlannedAction, desired: Mapping[str, Any]
) -> Iterator[str]:
    after, said = action.after, action.declared
    assert after is not None
    assert said is not None
    body = _read(desired)
    metadata = body["metadata"]
    marker = Marker(stack, action.key, after.revision, after.digest, protected=said.protect is True)
    identity = (metadata["name"], metadata["workspace_id"], metadata["description"])
    if identity != (after.name, workspace_id, str(Description(said.description, marker))):
        yield "desired: not the body of this action"
    elif after.digest[:1] == CURRENT:  # one of another algorithm is stale
        covered = by_name(
            declared(split(canonical(manifest_form(body))).immutable, said.immutable.get(RERUN))
        )
        is_covered = digest_of(covered, after.digest[:1]) == after.digest
        if not is_covered or covered != said.immutable:
            yield "desired: does not match the digest"
    if _mutable_in(body) != dict(said.mutable):
        yield "desired: mutable fields differ from declared"


def _mutable_in(body: Mapping[str, Any]) -> dict[str, Any]:
    """The mutable fields of a body, as they stand in `declared`: without those that hold a secret."""
    return _nested({p: v for p, v in _mutable_values(body).items() if not _holds_secret(v)})


def update_body_problems(stack: str, action: PlannedAction, desired: Mapping[str, Any]) -> Iterator[str]:
    before, after = action.before, action.after
    assert before is not None
    assert after is not None
    body = _read(desired)
    text, marker = parse_description(body["description"])
    said = action.declared
    if marker is None or not _is_of_action(marker, stack, action.key, before, after):
        yield "desired: does not set the marker of this job"
    elif said is None:
        yield from _marker_update_problems(action, body, marker)
    else:
        if marker.stopped and may(Operation.TERMINATE, parse_phase(before.phase)):
            yield "desired: marks a running job as stopped"
        if text != said.description or said.protect not in (None, marker.protected):
            yield "desired: description differs from declared"
        if not _is_legal_update(body, said, before):
            yield "desired: contains other fields than those that can be changed now"


def _is_of_action(marker: Marker, stack: str, key: str, before: Before, after: After) -> bool:
    whose = (marker.stack, marker.key, marker.revision, marker.digest)
    is_ours = whose == (stack, key, after.revision, after.digest)
    return is_ours and marker.is_on_its_own_job(before.name, before.id)


def _marker_update_problems(action: PlannedAction, body: Mapping[str, Any], marker: Marker) -> Iterator[str]:
    if body.keys() != {"description"}:
        yield "desired: changes more than the marker"
    elif marker.protected and action.reason is Reason.PROTECTION_RELEASED:
        yield "desired: does not release the protection"


def _is_legal_update(body: Mapping[str, Any], said: Declared, before: Before) -> bool:
    """Whether an update sends all declared mutable fields that are legal, on some cloud, and no others."""
    phase = parse_phase(before.phase)
    assert phase is not None
    sent, declared_now = _mutable_values(body), _mutable_values(said.mutable)
    is_whole = {"description": body["description"], **_nested(sent)} == dict(body)
    if not is_whole or _nested(declared_now) != dict(said.mutable):
        return False
    secret = {path: value for path, value in sent.items() if _holds_secret(value)}
    return any(
        {**{p: v for p, v in declared_now.items() if is_changeable(p, phase, cloud)}, **secret} == sent
        for cloud in Cloud
    )


def _mutable_values(tree: Mapping[str, Any]) -> dict[tuple[str, ...], Any]:
    """The mutable fields of a tree that have a value, the description aside."""
    found = {path: _at(tree, path) for path in mutable_paths() if path != DESCRIPTION}
    return {path: value for path, value in found.items() if value is not None}


def _at(tree: Any, path: tuple[str, ...]) -> Any:
    for name in path:
        tree = tree.get(name) if isinstance(tree, Mapping) else None
    return tree


def _nested(value_by_path: Mapping[tuple[str, ...], Any]) -> dict[str, Any]:
    tree: dict[str, Any] = {}
    for path, value in value_by_path.items():
        place = tree
        for name in path[:-1]:
            place = place.setdefault(name, {})
        place[path[-1]] = value
    return tree


# --- changes


def change_problems(action: PlannedAction) -> Iterator[str]:
    """Say, for people, which change names another value than what is declared.

    A field is compared if both say a plain value for it: lists and mappings are shown as far as they
    differ only, and a secret by its name. A number is one, however it is written.
    """
    said = action.declared
    if said is None or not action.changes:
        return
    made_of = {spell_path(path): value for path, value in _leaves(said.immutable)}
    changeable = {spell_path(path): value for path, value in _leaves(said.mutable)}
    changeable[spell_path(DESCRIPTION)] = said.description
    # `on_change: keep`: declared is what the job was made of, as far as a record says it.
    kept = made_of if _is_of(action, said) else {}
    for change in action.changes:
        is_kept = action.action is Action.UPDATE and change.forces_new_job and change.path not in changeable
        wanted = kept.get(change.path) if is_kept else {**made_of, **changeable}.get(change.path)
        if not change.sensitive and _differ(wanted, change.before if is_kept else change.after):
            yield f"changes: {change.path} differs from declared"


def _differ(wanted: Any, shown: Any) -> bool:
    """Whether two plain values differ."""
    return _is_plain(wanted) and _is_plain(shown) and scalar(wanted) != scalar(shown)


def _is_of(action: PlannedAction, said: Declared) -> bool:
    """Whether an action's job was made of what is declared: a record may be behind."""
    digest = action.after.digest if action.after else ""
    return is_known(digest) and digest_of(dict(said.immutable), digest[:1]) == digest


def _is_plain(value: Any) -> bool:
    return isinstance(value, str | int | float | bool)


def _leaves(tree: Mapping[str, Any], path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Any]]:
    for name, value in tree.items():
        if isinstance(value, Mapping):
            yield from _leaves(value, (*path, str(name)))
        else:
            yield (*path, str(name)), value
