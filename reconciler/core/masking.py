"""Secrets in jobs: in the old values of changes, in what the service answers, in the tokens of endpoints.

The value before a change often comes from the service, which knows no secrets; whether it was one only
the manifest of that time said. Where a history recorded that, the record decides; else its look does.
What a manifest declares sensitive is found again by name in the answers about its jobs: a command that only
looks needs no secret's value, and the answer holds it all the same.

Sources: docs/semantics.md, "Secrets"; docs/modelarts.md, "Responses".
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache
from typing import Any, NamedTuple

from reconciler.core.canonical import walk_rules
from reconciler.core.diff import spell_path
from reconciler.core.identity import parse_remote_name
from reconciler.core.observed import ObservedJob
from reconciler.core.scalar import Reference, parts_of
from reconciler.core.stack import Declared, DesiredJob, Stack
from reconciler.core.values import Change
from reconciler.secrets import REDACTED, SecretText, holds_secret, looks_secret

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


# ── answers of the service ─────────────────────────────────────────────────────────────────────

_ENVIRONMENTS, _PARAMETERS = "environments", "parameters"


class Hidden(NamedTuple):
    """An answer that may be shown, and the texts that were taken out of it."""

    body: dict[str, Any]
    values: tuple[str, ...]


@dataclass(frozen=True)
class DeclaredSecrets:
    """The entries of a stack that hold secrets, by key; former keys lead to the entry that has them now."""

    stack: str = ""
    entry_by_key: Mapping[str, DesiredJob] = field(default_factory=dict)

    @classmethod
    def of(cls, stack: Stack) -> DeclaredSecrets:
        """Take over a stack, whether or not its secrets have values."""
        entries = {key: job for key, job in (stack.whole or stack.jobs).items() if holds_secret(job.body)}
        former = {old: job for job in entries.values() for old in job.formerly}
        return cls(stack.name, {**former, **entries})

    def hide(self, job: ObservedJob, body: Mapping[str, Any]) -> Hidden:
        """Take out of `body`, an answer about `job`, what the job's entry declares sensitive."""
        entry = self._entry_of(job)
        if entry is None or entry.body is None:
            return Hidden(dict(body), ())
        names = _Names.of(entry.body)
        values: list[str] = []
        shown = names.hide(_hide_declared(body, entry.body, values), values)
        return Hidden(shown, tuple(dict.fromkeys(values)))

    def _entry_of(self, job: ObservedJob) -> DesiredJob | None:
        # A copied job holds what the original held, and one that lost its marker has its name yet.
        marker = job.marker or job.claimed_marker
        if marker is not None:
            return self.entry_by_key.get(marker.key) if marker.stack == self.stack else None
        return self.entry_by_key.get(parse_remote_name(job.name).key)


def _hide_declared(shown: Any, declared: Any, values: list[str]) -> Any:
    """The answer without what stands where a secret is declared. Lists of another length are hidden whole."""
    if isinstance(declared, SecretText):
        values += _texts(shown)
        return None if shown is None else REDACTED
    if isinstance(declared, Mapping) and isinstance(shown, Mapping):
        return {n: _hide_declared(v, declared[n], values) if n in declared else v for n, v in shown.items()}
    if not (isinstance(declared, list) and isinstance(shown, list) and holds_secret(declared)):
        return shown
    if any(isinstance(item, Mapping) and "name" in item for item in declared):
        return shown  # found by their names, in whatever order
    if len(declared) == len(shown):
        return [_hide_declared(one, other, values) for one, other in zip(shown, declared, strict=True)]
    values += _texts(shown)
    return [REDACTED]


class _Names(NamedTuple):
    """The names of sensitive parameters and environments: the service repeats them in more than one place."""

    parameters: frozenset[str]
    environments: frozenset[str]

    @classmethod
    def of(cls, tree: Any) -> _Names:
        found = list(_named_in(tree))
        return cls(
            frozenset(name for kind, name in found if kind == _PARAMETERS),
            frozenset(name for kind, name in found if kind == _ENVIRONMENTS),
        )

    def hide(self, shown: Any, values: list[str], within: str = "") -> Any:
        """The answer without the values that go by these names, wherever they stand."""
        if isinstance(shown, Mapping):
            hidden = {}
            for name, member in shown.items():
                is_value = within == _PARAMETERS and name == "value" and shown.get("name") in self.parameters
                if is_value or (within == _ENVIRONMENTS and name in self.environments):
                    values += (text for text in _texts(member) if text != REDACTED)
                    hidden[name] = None if member is None else REDACTED
                else:
                    hidden[name] = self.hide(member, values, str(name))
            return hidden
        if isinstance(shown, list):
            # A list of parameters, or the list of maps that environments are in some answers.
            return [self.hide(item, values, within) for item in shown]
        return shown


def _named_in(tree: Any, within: str = "") -> Iterator[tuple[str, str]]:
    if isinstance(tree, Mapping):
        if within == _PARAMETERS and isinstance(tree.get("value"), SecretText):
            yield within, str(tree.get("name"))
        for name, member in tree.items():
            if within == _ENVIRONMENTS and isinstance(member, SecretText):
                yield within, str(name)
            else:
                yield from _named_in(member, str(name))
    elif isinstance(tree, list):
        for item in tree:
            yield from _named_in(item, within)


def _texts(tree: Any) -> Iterator[str]:
    if isinstance(tree, Mapping):
        for member in tree.values():
            yield from _texts(member)
    elif isinstance(tree, list):
        for item in tree:
            yield from _texts(item)
    elif tree is not None and not isinstance(tree, bool):
        yield str(tree)


# ── tokens of endpoints: whoever has one is inside the running job ─────────────────────────────


def tokens_of(body: Mapping[str, Any]) -> list[str]:
    """Return every token that a job's answer holds."""
    return list(_tokens(body.get("endpoints")))


def _tokens(value: Any) -> Iterator[str]:
    if isinstance(value, Mapping):
        for name, member in value.items():
            if name == "token" and isinstance(member, str):
                yield member
            else:
                yield from _tokens(member)
    elif isinstance(value, list):
        for member in value:
            yield from _tokens(member)


def without_tokens(body: Mapping[str, Any]) -> dict[str, Any]:
    """Return a job's answer that may be shown, all other fields as they are."""
    if "endpoints" not in body:
        return dict(body)
    return {**body, "endpoints": _without_tokens(body["endpoints"])}


def _without_tokens(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {
            name: REDACTED if name == "token" and member else _without_tokens(member)
            for name, member in value.items()
        }
    if isinstance(value, list):
        return [_without_tokens(member) for member in value]
    return value
