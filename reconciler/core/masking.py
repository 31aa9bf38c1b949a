"""Secrets in jobs: masked in changes and in the answers of the service."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Set
from functools import cache
from types import MappingProxyType
from typing import Any, NamedTuple

from reconciler.core.body import spell_path
from reconciler.core.canonical import walk_rules
from reconciler.core.identity import parse_remote_name
from reconciler.core.observed import ObservedJob
from reconciler.core.scalar import Reference, parts_of
from reconciler.core.stack import Declared, DesiredJob, Stack
from reconciler.core.values import Change
from reconciler.secrets import REDACTED, SecretText, holds_secret, leaves, looks_secret

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
    if not any(map(_may_be_hidden, changes)):
        return changes
    recorded = _recorded(one for one in declared if one is not None)
    return tuple(
        _masked(change, ("before",), recorded, LOOKS_SECRET) if _may_be_hidden(change) else change
        for change in changes
    )


def mask_declared(changes: Iterable[Change]) -> tuple[Change, ...]:
    """The same changes between two manifests, with the values on either side hidden that look like a secret.

    Both stand in files, but what is made of them is read by more people than the files are.
    """
    sides, nothing = ("before", "after"), (set[str](), dict[str, set[str]]())
    return tuple(
        change if change.sensitive else _masked(change, sides, nothing, MASKED) for change in changes
    )


def _may_be_hidden(change: Change) -> bool:
    return change.before is not None and not change.sensitive and change.path.split(".")[0] not in _OURS


#: What records say of the values of a key: the paths that held a secret, and by path what may be shown.
_Recorded = tuple[set[str], dict[str, set[str]]]


def _recorded(declared: Iterable[Declared]) -> _Recorded:
    plain: defaultdict[str, set[str]] = defaultdict(set)
    beside: defaultdict[str, set[str]] = defaultdict(set)
    for one in declared:
        texts: defaultdict[str, set[str]] = defaultdict(set)
        for path, text in (*_texts_by_path(one.immutable), *_texts_by_path(one.mutable)):
            texts[path].add(text)
        texts["description"].add(one.description)
        for path, found in texts.items():
            plain[path] |= found
            if any(map(_is_secret, found)):
                # A reference, and what stands beside it in a list, was written down to be read.
                beside[path] |= found
    return set(beside), {**plain, **beside}


def _masked(change: Change, sides: tuple[str, ...], recorded: _Recorded, words: str) -> Change:
    values = {side: getattr(change, side) for side in sides}
    shown = {side: _hide(change.path, value, recorded, words) for side, value in values.items()}
    return change if shown == values else change.model_copy(update={**shown, "sensitive": True})


def _hide(path: str, value: Any, recorded: _Recorded, words: str) -> Any:
    if isinstance(value, Mapping):
        above = path.split(".")
        return {n: _hide(spell_path([*above, n]), one, recorded, words) for n, one in value.items()}
    if isinstance(value, list | tuple):
        return [_hide(path, item, recorded, words) for item in value]
    secret, shown = recorded
    if not isinstance(value, str) or value in shown.get(path, ()):
        return value
    if path in secret:
        return REDACTED
    return words if looks_secret(_name_of(path), value) else value


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


def _is_secret(text: str) -> bool:
    kinds = (part.inner.partition(".")[0] for part in parts_of(text) if isinstance(part, Reference))
    return text == REDACTED or not set(kinds).isdisjoint(_SECRET_KINDS)


def _texts_by_path(tree: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[str, str]]:
    """The texts of a form by their paths; a list is one value, whatever its length."""
    if isinstance(tree, Mapping):
        for name, member in tree.items():
            yield from _texts_by_path(member, (*path, str(name)))
    else:
        yield from ((spell_path(path), text) for text in texts_in(tree))


def texts_in(tree: Any) -> Iterator[str]:
    """Every text in plain data that is no name of a member."""
    return (leaf for leaf in leaves(tree) if isinstance(leaf, str))


# --- answers of the service

_ENVIRONMENTS, _PARAMETERS = "environments", "parameters"


class DeclaredSecrets(NamedTuple):
    """The entries of a stack that hold secrets, by key; former keys lead to the entry that has them now."""

    stack: str = ""
    entry_by_key: Mapping[str, DesiredJob] = MappingProxyType({})

    @classmethod
    def of(cls, stack: Stack) -> DeclaredSecrets:
        """Take over a stack, whether or not its secrets have values."""
        entries = {key: job for key, job in (stack.whole or stack.jobs).items() if holds_secret(job.body)}
        former = {old: job for job in entries.values() for old in job.formerly}
        return cls(stack.name, {**former, **entries})

    def hide(self, job: ObservedJob, learn: Callable[[Iterable[str]], None]) -> dict[str, Any]:
        """The service's answer about a job as it may be shown: no tokens, nothing declared sensitive.

        `learn` is told what was taken out: no later output, such as a log, may show it.
        """
        values = tokens_of(job.body)
        shown = {n: _without_tokens(one, []) if n == "endpoints" else one for n, one in job.body.items()}
        # A copied job holds what the original held, and one that lost its marker has its name yet.
        marker = job.marker or job.claimed_marker
        key = parse_remote_name(job.name).key if marker is None else marker.key
        entry = self.entry_by_key.get(key) if marker is None or marker.stack == self.stack else None
        if entry is not None and entry.body is not None:
            shown = _hide_declared(shown, entry.body, values)
            shown = _hide_named(shown, frozenset(_named_in(entry.body)), values)
        learn(dict.fromkeys(values))
        return shown


def _hide_declared(shown: Any, declared: Any, values: list[str]) -> Any:
    """The answer without what stands where a secret is declared. Lists of another length are hidden whole."""
    if isinstance(declared, SecretText):
        values += _values_in(shown)
        return None if shown is None else REDACTED
    if isinstance(declared, Mapping) and isinstance(shown, Mapping):
        return {n: _hide_declared(v, declared[n], values) if n in declared else v for n, v in shown.items()}
    if not (isinstance(declared, list) and isinstance(shown, list) and holds_secret(declared)):
        return shown
    if any(isinstance(item, Mapping) and "name" in item for item in declared):
        return shown  # found by their names, in whatever order
    if len(declared) == len(shown):
        return [_hide_declared(one, other, values) for one, other in zip(shown, declared, strict=True)]
    values += _values_in(shown)
    return [REDACTED]


def _hide_named(shown: Any, names: Set[tuple[str, str]], values: list[str], within: str = "") -> Any:
    """The answer without the values that go by these names: the service repeats them in several places."""
    if isinstance(shown, list):
        # A list of parameters, or the list of maps that environments are in some answers.
        return [_hide_named(item, names, values, within) for item in shown]
    if not isinstance(shown, Mapping):
        return shown
    hidden = {}
    for name, member in shown.items():
        is_value = within == _PARAMETERS and name == "value" and (within, shown.get("name")) in names
        if is_value or (within == _ENVIRONMENTS and (within, name) in names):
            values += (text for text in _values_in(member) if text != REDACTED)
            hidden[name] = None if member is None else REDACTED
        else:
            hidden[name] = _hide_named(member, names, values, str(name))
    return hidden


def _named_in(tree: Any, within: str = "") -> Iterator[tuple[str, str]]:
    """The sensitive parameters and environment variables, each with what it is and its name."""
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


def _values_in(tree: Any) -> Iterator[str]:
    return (str(leaf) for leaf in leaves(tree) if leaf is not None and not isinstance(leaf, bool))


# --- tokens of endpoints: whoever has one is inside the running job


def tokens_of(body: Mapping[str, Any]) -> list[str]:
    """Return every token that a job's answer holds."""
    tokens: list[str] = []
    _without_tokens(body.get("endpoints"), tokens)
    return tokens


def _without_tokens(value: Any, tokens: list[str]) -> Any:
    if isinstance(value, list):
        return [_without_tokens(member, tokens) for member in value]
    if not isinstance(value, Mapping):
        return value
    shown = {}
    for name, member in value.items():
        shown[name] = _without_tokens(member, tokens)
        if name == "token" and member:
            shown[name] = REDACTED
            tokens += [member] if isinstance(member, str) else []
    return shown
