"""Hiding the old values of changes: what a record calls sensitive, and what looks like a secret.

The value before a change often comes from the service, which knows no secrets; whether it was one only
the manifest of that time said. Where a history recorded that, the record decides; else its look does.
Source: docs/semantics.md, "Secrets".
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache
from typing import Any

from reconciler.core.canonical import walk_rules
from reconciler.core.diff import spell_path
from reconciler.core.expression import Reference, parts_of
from reconciler.core.secret import REDACTED
from reconciler.core.secret_detection import looks_secret
from reconciler.core.stack import Declared
from reconciler.core.values import Change

#: What stands in the place of a value that may be a secret, and how to see it all the same.
LOOKS_SECRET = "(masked: looks like a secret; to see it: reconciler jobs show JOB --json)"  # noqa: S105 - words
#: The same for a value that stands in a file.
MASKED = "(masked: looks like a secret)"

#: Below these people choose the names.
_NAMED_BY_PEOPLE = ("parameters", "environments", "annotations")
#: What is ours and not the job's holds names and digests only.
_OURS = ("marker", "lifecycle")
#: What a reference may be made of: a variable, or a value that is marked as sensitive in place.
_SECRET_KINDS = ("var", "parameter", "environment")


def mask(changes: tuple[Change, ...], declared: Iterable[Declared | None] = ()) -> tuple[Change, ...]:
    """The same changes, with the values before them hidden that were, or may have been, secrets.

    `declared` is what the history has of any revision of the key: a value that one of them calls
    sensitive is hidden, and one that a record holds in plain text is shown, whatever it looks like.
    """
    if not any(_may_be_hidden(change) for change in changes):
        return changes
    recorded = _Recorded.of(one for one in declared if one is not None)
    return tuple(_masked(change, recorded) if _may_be_hidden(change) else change for change in changes)


def mask_declared(changes: Iterable[Change]) -> tuple[Change, ...]:
    """The same changes between two manifests, with the values on either side hidden that look like a secret.

    Both stand in files, but what is made of them is read by more people than the files are.
    """
    return tuple(change if change.sensitive else _masked_by_look(change) for change in changes)


def _masked_by_look(change: Change) -> Change:
    nothing = _Recorded()
    shown = {
        "before": _hide(change.path, change.before, nothing, MASKED),
        "after": _hide(change.path, change.after, nothing, MASKED),
    }
    if (shown["before"], shown["after"]) == (change.before, change.after):
        return change
    return change.model_copy(update={**shown, "sensitive": True})


def _may_be_hidden(change: Change) -> bool:
    return change.before is not None and not change.sensitive and change.path.split(".")[0] not in _OURS


def _masked(change: Change, recorded: _Recorded) -> Change:
    before = _hide(change.path, change.before, recorded)
    return (
        change if before == change.before else change.model_copy(update={"before": before, "sensitive": True})
    )


def _hide(path: str, value: Any, recorded: _Recorded, words: str = LOOKS_SECRET) -> Any:
    if isinstance(value, Mapping):
        return {
            name: _hide(_below(path, str(name)), member, recorded, words) for name, member in value.items()
        }
    if isinstance(value, list | tuple):
        return [_hide(path, item, recorded, words) for item in value]
    if not isinstance(value, str):
        return value
    standing = recorded.standing(path, value)
    if standing is None:
        return words if looks_secret(_name_of(path), value) else value
    return value if standing else REDACTED


def _below(path: str, name: str) -> str:
    return spell_path([*path.split("."), name])


def _name_of(path: str) -> str:
    """The name by which people know a value; "" where the field's name is the service's."""
    parts = path.split(".")
    for place, part in enumerate(parts[:-1]):
        if part in _NAMED_BY_PEOPLE:
            return ".".join(parts[place + 1 :])
    return "" if parts[-1] in _names_of_the_service() else parts[-1]


@cache
def _names_of_the_service() -> frozenset[str]:
    return frozenset(path[-1] for path, _ in walk_rules())


@dataclass
class _Recorded:
    """What records say of the values of a key: which paths held a secret, and what stood there openly."""

    secret: set[str] = field(default_factory=set)
    plain: dict[str, set[str]] = field(default_factory=lambda: defaultdict(set))
    beside: dict[str, set[str]] = field(default_factory=lambda: defaultdict(set))

    @classmethod
    def of(cls, declared: Iterable[Declared]) -> _Recorded:
        """Read records; a list is one value, whatever its length."""
        recorded = cls()
        for one in declared:
            texts: dict[str, set[str]] = defaultdict(set)
            for path, text in (
                *_leaves(one.immutable),
                *_leaves(one.mutable),
                ("description", one.description),
            ):
                texts[path].add(text)
            for path, found in texts.items():
                if any(map(_is_secret, found)):
                    recorded.secret.add(path)
                    # A reference, and what stands beside it in a list, was written down to be read.
                    recorded.beside[path] |= found
                recorded.plain[path] |= found
        return recorded

    def standing(self, path: str, value: str) -> bool | None:
        """Whether a value may be shown; None if no record knows it."""
        if path in self.secret:
            return value in self.beside[path]
        return True if value in self.plain.get(path, ()) else None


def _is_secret(text: str) -> bool:
    references = (part for part in parts_of(text) if isinstance(part, Reference))
    return text == REDACTED or any(one.inner.partition(".")[0] in _SECRET_KINDS for one in references)


def _leaves(tree: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[str, str]]:
    if isinstance(tree, Mapping):
        for name, member in tree.items():
            yield from _leaves(member, (*path, str(name)))
    elif isinstance(tree, list | tuple):
        for item in tree:
            for _, text in _leaves(item):
                yield spell_path(path), text
    elif isinstance(tree, str):
        yield spell_path(path), tree
