"""Which fields differ between two canonical forms.

DeepDiff costs about 1.5 ms a pair, equal or not, so it is asked only about jobs whose digests differ,
and imported then.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from reconciler.core.canonical import Canonical, FieldRule, SecretName, member_rule, rules
from reconciler.core.digest import RERUN
from reconciler.core.reconstruction import is_by_reference
from reconciler.core.values import Change
from reconciler.secrets import REDACTED

_NAMED_ARGUMENTS = "parameters"


def changes_between(
    before: Canonical, after: Canonical, *, forces_new_job: bool, shown: Canonical | None = None
) -> tuple[Change, ...]:
    """Return the fields that differ, sorted by path. A list that differs is one field.

    `shown` is `after` with the texts that are sent and shown: what was compared may spell them as an
    earlier version did.
    """
    found = []
    for path in differing_paths(before, after):
        one, other = _at(before, path), _at(after, path)
        after_it = other if shown is None else _respelled(other, _at(shown, path))
        found.append(_change(path, one, after_it, forces_new_job=forces_new_job))
    return tuple(sorted(found, key=lambda change: change.path))


def differing_paths(before: Canonical, after: Canonical) -> tuple[tuple[str, ...], ...]:
    """The places in which two forms differ, sorted. A list that differs is one place."""
    if before == after:
        return ()
    from deepdiff import DeepDiff

    tree = DeepDiff(before, after, view="tree", threshold_to_diff_deeper=0)
    paths = {_to_list(level.path(output_format="list")) for kind in tree.values() for level in kind}
    # DeepDiff tells a secret from its name, which is all that the history has of it.
    return tuple(sorted(path for path in paths if _at(before, path) != _at(after, path)))


def _to_list(path: list[Any]) -> tuple[str, ...]:
    """The path as far as the first list: the place in a list means nothing to people."""
    names = []
    for part in path:
        if isinstance(part, int):
            break
        names.append(part)
    return tuple(names)


def _at(form: Canonical, path: tuple[str, ...]) -> Any:
    value: Any = form
    for name in path:
        value = value.get(name) if isinstance(value, dict) else None
    return value


def _respelled(form: Any, shown: Any) -> Any:
    """The form with the texts that `shown` has in the same places."""
    if isinstance(form, Mapping) and isinstance(shown, Mapping):
        return {name: _respelled(value, shown.get(name)) for name, value in form.items()}
    if isinstance(form, list) and isinstance(shown, list) and len(form) == len(shown):
        return [_respelled(one, other) for one, other in zip(form, shown, strict=True)]
    return shown if isinstance(form, str) and isinstance(shown, str) else form


def _change(path: Iterable[Any], before: Any, after: Any, *, forces_new_job: bool) -> Change:
    sensitive = isinstance(before, SecretName) or isinstance(after, SecretName)
    return Change(
        path=spell_path(path),
        before=_hidden(before) if sensitive else _plain(before),
        after=_hidden(after) if sensitive else _plain(after),
        sensitive=sensitive,
        forces_new_job=forces_new_job,
    )


def _hidden(value: Any) -> Any:
    # The name of a secret may be read; a value that a secret replaced, or replaces, may not.
    return None if value is None else str(value) if isinstance(value, SecretName) else REDACTED


def _plain(value: Any) -> Any:
    if isinstance(value, Mapping):
        # An argument that has a value only reads better as that value.
        return _plain(value["value"]) if set(value) == {"value"} else {k: _plain(v) for k, v in value.items()}
    if isinstance(value, list):
        return [_plain(item) for item in value]
    return str(value) if isinstance(value, str) else value


def spell_path(path: Iterable[Any]) -> str:
    """Write a path as people know it: `algorithm.parameters.lr`, `lifecycle.rerun`."""
    parts = [str(part) for part in path]
    if parts == [RERUN]:
        return "lifecycle.rerun"
    if len(parts) > 2 and parts[-1] == "value" and parts[-3] == _NAMED_ARGUMENTS:
        parts.pop()
    return ".".join(parts)


class Comparable(NamedTuple):
    """Two canonical forms cut down to what can be compared.

    `unreported` are the declared fields that details do not show. `secrets` are changes of
    fields that hold another value than the sensitive one that is declared: it may have been rotated,
    which restarts nothing, so they count only where nothing else explains a changed digest.
    """

    before: Canonical
    after: Canonical
    unreported: tuple[str, ...]
    secrets: tuple[Change, ...] = ()


def comparable_with_details(reported: Canonical, declared: Canonical) -> Comparable:
    """Make a job that the service returned comparable with what is declared now.

    What only the service sets is left out, and what it may fill in never counts as removed; what it does
    not report cannot be compared. Source: docs/semantics.md, "Comparison"; docs/modelarts.md, "Responses".
    """
    declared = dict(declared)
    rerun = ["lifecycle.rerun"] if declared.pop(RERUN, None) is not None else []
    pruner = _Pruner(keeps_named_lists=not is_by_reference(declared))
    after = pruner.declared(declared, reported, rules())
    before = pruner.reported(reported, declared, rules())
    return Comparable(
        before,
        after,
        (*pruner.unreported, *rerun),
        tuple(sorted(pruner.secrets, key=lambda change: change.path)),
    )


def unreported_among(
    changes: Iterable[Change], before: Canonical, after: Canonical, reported: Canonical
) -> tuple[str, ...]:
    """The paths of those changes between two declarations that show in no field of the details."""
    pruner = _Pruner(keeps_named_lists=True)
    for form in (before, after):
        pruner.declared(form, reported, rules())
    below = tuple(f"{path}." for path in pruner.unreported)
    return tuple(
        change.path for change in changes if change.path in pruner.unreported or change.path.startswith(below)
    )


class _Pruner:
    """Walks both forms beside the rules."""

    def __init__(self, *, keeps_named_lists: bool) -> None:
        self._keeps_named_lists = keeps_named_lists
        self.unreported: list[str] = []
        self.secrets: list[Change] = []

    def declared(
        self, declared: Canonical, reported: Canonical, rule: FieldRule, path: tuple[str, ...] = ()
    ) -> Canonical:
        """What is declared, without what the service does not report."""
        result: Canonical = {}
        for name, value in declared.items():
            member = member_rule(rule, name)
            other = reported.get(name)
            is_unknown_and_unseen = member is None and other is None
            if is_unknown_and_unseen or (member and not member.is_reported):
                self.unreported.append(spell_path((*path, name)))
            elif isinstance(value, dict):
                below = other if isinstance(other, dict) else {}
                if kept := self.declared(value, below, member or _FREE, (*path, name)):
                    result[name] = kept
            else:
                result[name] = value
        return result

    def reported(
        self, reported: Canonical, declared: Canonical, rule: FieldRule, path: tuple[str, ...] = ()
    ) -> Canonical:
        """What the service returned, without what it set by itself."""
        result: Canonical = {}
        for name, value in reported.items():
            member = member_rule(rule, name)
            if member is not None and not member.is_reported:
                continue
            mine = declared.get(name)
            if name not in declared:
                if (removed := self._removed(value, member, rule)) is not None:
                    result[name] = removed
            elif isinstance(value, dict) and isinstance(mine, dict):
                if member is None:
                    # Declared by `raw`: its own members are compared, others are the service's.
                    result[name] = {k: v for k, v in value.items() if k in mine}
                elif kept := self.reported(value, mine, member, (*path, name)):
                    result[name] = kept
            else:
                result[name] = self._matched(value, mine, member, (*path, name))
        return result

    def _matched(self, value: Any, mine: Any, member: FieldRule | None, path: tuple[str, ...]) -> Any:
        """One reported value beside the declared one: secrets by their names, lists item by item."""
        if isinstance(mine, SecretName):
            if mine.value != value:
                self.secrets.append(_change(path, REDACTED, mine, forces_new_job=True))
            return mine
        if isinstance(value, list) and isinstance(mine, list) and len(value) == len(mine):
            item = (member and member.item) or _FREE
            return [self._item(one, other, item, path) for one, other in zip(value, mine, strict=True)]
        return value

    def _item(self, value: Any, mine: Any, rule: FieldRule, path: tuple[str, ...]) -> Any:
        if isinstance(value, dict) and isinstance(mine, dict):
            return self.reported(value, mine, rule, path)
        return self._matched(value, mine, rule, path)

    def _removed(self, value: Any, member: FieldRule | None, parent: FieldRule) -> Any:
        """What of an undeclared value was declared once: None for what the service may have put there."""
        if parent.has_named_members:
            return self._removed_member(value, member, parent)
        if member is None:
            return None
        is_object = isinstance(value, dict)
        if member.is_filled_in and not (member.has_named_members and is_object):
            return None
        if is_object and (member.has_named_members or member.members):
            return self.reported(value, {}, member) or None
        return value

    def _removed_member(self, value: Any, member: FieldRule | None, parent: FieldRule) -> Any:
        """The same for a member of a named list: it may be the algorithm's own."""
        if parent.keyed_by == "name" and not self._keeps_named_lists:
            return None
        if member is not None and isinstance(value, dict):
            return self.reported(value, {}, member) or value
        return value


_FREE = FieldRule()
