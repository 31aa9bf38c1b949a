"""Secrets in jobs: masked in changes and in the service's responses."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Set
from functools import cache
from types import MappingProxyType
from typing import Any, NamedTuple

from reconciler.core.body import dotted_path
from reconciler.core.canonical import walk_rules
from reconciler.core.identity import parse_remote_name
from reconciler.core.observed import ObservedJob
from reconciler.core.scalar import Reference, parts_of
from reconciler.core.stack import Declared, DesiredJob, Stack
from reconciler.core.values import Change
from reconciler.secrets import REDACTED, SecretText, holds_secret, leaves, looks_secret

#: Replaces a value that may be a secret, and says how to see it.
LOOKS_SECRET = "(masked: looks like a secret; to see it: reconciler jobs show JOB --json)"  # noqa: S105 - words
#: The same for a value in a file.
MASKED = "(masked: looks like a secret)"

#: Users choose the names below these.
_USER_NAMED = ("parameters", "environments", "annotations")
#: Our own fields have only names and digests.
_OWN_FIELDS = ("marker", "lifecycle")
#: Kinds of references to secrets: a variable, or a value marked `sensitive` in place.
_SECRET_KINDS = ("var", "parameter", "environment")


def mask(changes: tuple[Change, ...], declared: Iterable[Declared | None] = ()) -> tuple[Change, ...]:
    """Return the changes with `before` values masked that were, or may have been, secrets.

    `declared` are the recorded declarations of any revision of the key: values that one of them marks as
    sensitive are masked, and values that a record has in plain text are shown, whatever they look like.
    """
    if not any(map(_may_need_masking, changes)):
        return changes
    recorded = _recorded(record for record in declared if record is not None)
    return tuple(
        _mask_change(change, ("before",), recorded, LOOKS_SECRET) if _may_need_masking(change) else change
        for change in changes
    )


def mask_declared(changes: Iterable[Change]) -> tuple[Change, ...]:
    """Return the changes between two manifests with values masked, on either side, that look like secrets.

    Both values are in files, but more people read the output than the files.
    """
    sides, nothing = ("before", "after"), (set[str](), dict[str, set[str]]())
    return tuple(
        change if change.sensitive else _mask_change(change, sides, nothing, MASKED) for change in changes
    )


def _may_need_masking(change: Change) -> bool:
    return change.before is not None and not change.sensitive and change.path.split(".")[0] not in _OWN_FIELDS


#: The recorded values of a key: the paths that held a secret, and by path the values that may be shown.
_Recorded = tuple[set[str], dict[str, set[str]]]


def _recorded(declared: Iterable[Declared]) -> _Recorded:
    plain: defaultdict[str, set[str]] = defaultdict(set)
    beside: defaultdict[str, set[str]] = defaultdict(set)
    for record in declared:
        texts: defaultdict[str, set[str]] = defaultdict(set)
        for path, text in (*_texts_by_path(record.immutable), *_texts_by_path(record.mutable)):
            texts[path].add(text)
        texts["description"].add(record.description)
        for path, values in texts.items():
            plain[path] |= values
            if any(map(_is_secret, values)):
                # A reference, and what is beside it in a list, was recorded to be shown.
                beside[path] |= values
    return set(beside), {**plain, **beside}


def _mask_change(change: Change, sides: tuple[str, ...], recorded: _Recorded, placeholder: str) -> Change:
    values = {side: getattr(change, side) for side in sides}
    shown = {side: _hide(change.path, value, recorded, placeholder) for side, value in values.items()}
    was_secret = change.path in recorded[0] and any(map(_is_secret, texts_in(change.before)))
    is_sensitive = was_secret or shown != values
    return change.model_copy(update={**shown, "sensitive": True}) if is_sensitive else change


def _hide(path: str, value: Any, recorded: _Recorded, placeholder: str) -> Any:
    if isinstance(value, Mapping):
        above = path.split(".")
        return {n: _hide(dotted_path([*above, n]), item, recorded, placeholder) for n, item in value.items()}
    if isinstance(value, list | tuple):
        return [_hide(path, item, recorded, placeholder) for item in value]
    secret, shown = recorded
    if not isinstance(value, str) or value in shown.get(path, ()):
        return value
    if path in secret:
        return REDACTED
    return placeholder if looks_secret(_name_of(path), value) else value


def _name_of(path: str) -> str:
    """Return the name of a value as chosen by the user, or "" for a field name of the service."""
    parts = path.split(".")
    for place, part in enumerate(parts[:-1]):
        if part in _USER_NAMED:
            return ".".join(parts[place + 1 :])
    return "" if parts[-1] in _service_field_names() else parts[-1]


@cache
def _service_field_names() -> frozenset[str]:
    return frozenset(path[-1] for path, _ in walk_rules())


def _is_secret(text: str) -> bool:
    kinds = (part.inner.partition(".")[0] for part in parts_of(text) if isinstance(part, Reference))
    return text == REDACTED or not set(kinds).isdisjoint(_SECRET_KINDS)


def _texts_by_path(tree: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[str, str]]:
    """Yield the texts of a form with their paths. All items of a list have the path of the list."""
    if isinstance(tree, Mapping):
        for name, member in tree.items():
            yield from _texts_by_path(member, (*path, str(name)))
    else:
        yield from ((dotted_path(path), text) for text in texts_in(tree))


def texts_in(tree: Any) -> Iterator[str]:
    """Yield every text in plain data, except for member names."""
    return (leaf for leaf in leaves(tree) if isinstance(leaf, str))


# --- Responses of the service

_ENVIRONMENTS, _PARAMETERS = "environments", "parameters"


class DeclaredSecrets(NamedTuple):
    """The entries of a stack that contain secrets, by key. Former keys lead to the current entry."""

    stack: str = ""
    entry_by_key: Mapping[str, DesiredJob] = MappingProxyType({})

    @classmethod
    def of(cls, stack: Stack) -> DeclaredSecrets:
        """Collect the entries of a stack, whether or not their secrets have values."""
        entries = {key: job for key, job in (stack.whole or stack.jobs).items() if holds_secret(job.body)}
        former = {old: job for job in entries.values() for old in job.formerly}
        return cls(stack.name, {**former, **entries})

    def hide(self, job: ObservedJob, add_secrets: Callable[[Iterable[str]], None]) -> dict[str, Any]:
        """Return the service's response about a job without tokens and without values declared sensitive.

        `add_secrets` is called with the removed values, so that later output, such as a log, does not show
        them.
        """
        values = tokens_of(job.body)
        shown = {n: _without_tokens(one, []) if n == "endpoints" else one for n, one in job.body.items()}
        # A copied job has the values of the original, and one without a marker still has its name.
        marker = job.marker or job.claimed_marker
        key = parse_remote_name(job.name).key if marker is None else marker.key
        entry = self.entry_by_key.get(key) if marker is None or marker.stack == self.stack else None
        if entry is not None and entry.body is not None:
            shown = _hide_declared(shown, entry.body, values)
            shown = _hide_named(shown, frozenset(_named_in(entry.body)), values)
        add_secrets(dict.fromkeys(values))
        return shown


def _hide_declared(shown: Any, declared: Any, values: list[str]) -> Any:
    """Mask the places at which a secret is declared. Lists of different length are masked as a whole."""
    if isinstance(declared, SecretText):
        values += _values_in(shown)
        return None if shown is None else REDACTED
    if isinstance(declared, Mapping) and isinstance(shown, Mapping):
        return {n: _hide_declared(v, declared[n], values) if n in declared else v for n, v in shown.items()}
    if not (isinstance(declared, list) and isinstance(shown, list) and holds_secret(declared)):
        return shown
    if any(isinstance(item, Mapping) and "name" in item for item in declared):
        return shown  # found by name instead
    if len(declared) == len(shown):
        return [_hide_declared(item, other, values) for item, other in zip(shown, declared, strict=True)]
    values += _values_in(shown)
    return [REDACTED]


def _hide_named(shown: Any, names: Set[tuple[str, str]], values: list[str], within: str = "") -> Any:
    """Mask the values with these names, since the service repeats them in several places."""
    if isinstance(shown, list):
        # Parameters are a list, and environments a list of maps in some responses.
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
    """Yield the sensitive parameters and environment variables as pairs of kind and name."""
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


# --- Tokens of endpoints, which give access to the running job


def tokens_of(body: Mapping[str, Any]) -> list[str]:
    """Return all tokens in the service's response about a job."""
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
