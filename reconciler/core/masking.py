"""Secrets in jobs: masked in changes and answers, and variables for those that become manifest entries."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache
from typing import Any, NamedTuple

from reconciler.core.canonical import walk_rules
from reconciler.core.diff import spell_path
from reconciler.core.identity import parse_remote_name
from reconciler.core.observed import ObservedJob
from reconciler.core.scalar import Reference, escape, parts_of, variables_of
from reconciler.core.stack import Declared, DesiredJob, Stack
from reconciler.core.values import Change
from reconciler.secrets import (
    REDACTED,
    SecretPart,
    SecretText,
    holds_secret,
    is_credential_name,
    is_secret_name,
    looks_secret,
    secret_parts,
    stands_out,
    without_parts,
)

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
    return tuple(
        _masked(change, ("before",), recorded) if _may_be_hidden(change) else change for change in changes
    )


def mask_declared(changes: Iterable[Change]) -> tuple[Change, ...]:
    """The same changes between two manifests, with the values on either side hidden that look like a secret.

    Both stand in files, but what is made of them is read by more people than the files are.
    """
    nothing = _Recorded()
    return tuple(
        change if change.sensitive else _masked(change, ("before", "after"), nothing, MASKED)
        for change in changes
    )


def _may_be_hidden(change: Change) -> bool:
    return change.before is not None and not change.sensitive and change.path.split(".")[0] not in _OURS


def _masked(change: Change, sides: tuple[str, ...], recorded: _Recorded, words: str = LOOKS_SECRET) -> Change:
    values = {side: getattr(change, side) for side in sides}
    shown = {side: _hide(change.path, value, recorded, words) for side, value in values.items()}
    return change if shown == values else change.model_copy(update={**shown, "sensitive": True})


def _hide(path: str, value: Any, recorded: _Recorded, words: str) -> Any:
    if isinstance(value, Mapping):
        above = path.split(".")
        return {n: _hide(spell_path([*above, n]), one, recorded, words) for n, one in value.items()}
    if isinstance(value, list | tuple):
        return [_hide(path, item, recorded, words) for item in value]
    if not isinstance(value, str):
        return value
    standing = recorded.standing(path, value)
    if standing is None:
        return words if looks_secret(_name_of(path), value) else value
    return value if standing else REDACTED


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


# --- secret_variables

IsSecret = Callable[[str], bool]

#: Names that are shown and compared, so that no variable that is sensitive may stand there.
_SHOWN = frozenset({"name", "local_path", "description", "kind"})
#: Environment variables that mean something to every program.
_TAKEN = frozenset({"HOME", "PATH", "USER", "SHELL", "LANG", "TMPDIR"})


class SecretVariables:
    """One variable for each secret value, named by the first field that holds it.

    `taken` are names of variables that mean something else already.
    """

    def __init__(self, taken: Iterable[str] = ()) -> None:
        self._name_by_value: dict[str, str] = {}
        self._taken = {name.upper() for name in taken}

    def reference(self, value: str, field: str, key: str) -> str:
        """The expression for a value: its variable is named after the field, if need be after the key too."""
        if value not in self._name_by_value:
            long = _name(f"{key}_{field}")
            names = (_name(field), long, *(f"{long}_{number}" for number in range(2, len(self._taken) + 3)))
            name = next(name for name in names if name not in self._taken and not _is_in_use(name))
            self._taken.add(name)
            self._name_by_value[value] = name
        return f"${{var.{self._name_by_value[value]}}}"

    def declarations(self, trees: Iterable[Any] | None = None) -> dict[str, dict[str, Any]]:
        """What a manifest says of them under `variables`: of all, or of those used in entries as written."""
        names = set(self._name_by_value.values())
        if trees is not None:
            names &= {name for tree in trees for text in texts_in(tree) for name in variables_of(text)}
        return {name: {"env": name, "sensitive": True} for name in sorted(names)}

    def parts(self, text: str) -> list[SecretPart]:
        """Where in a text the values stand that have a variable already, in order."""
        values = [value for value in self._name_by_value if stands_out(value) and value in text]
        pattern = re.compile("|".join(map(re.escape, sorted(values, key=len, reverse=True))))
        return [SecretPart(*found.span()) for found in pattern.finditer(text)] if values else []

    @property
    def value_by_name(self) -> dict[str, str]:
        """The secrets themselves, which nothing may show."""
        return {name: value for value, name in self._name_by_value.items()}


def texts_in(tree: Any) -> Iterator[str]:
    """Every text in plain data that is no name of a member."""
    if isinstance(tree, str):
        yield tree
    elif isinstance(tree, Mapping | list | tuple):
        for value in tree.values() if isinstance(tree, Mapping) else tree:
            yield from texts_in(value)


def _name(text: str) -> str:
    """A text as the name of an environment variable: hfToken is HF_TOKEN."""
    spread = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", text).upper()
    name = re.sub(r"[^A-Z0-9]+", "_", spread).strip("_")
    return name if name[:1].isalpha() else f"SECRET_{name}".rstrip("_")


def _is_in_use(name: str) -> bool:
    # A name of one or two letters may be set for some other reason.
    return len(name) < 3 or is_credential_name(name) or name.startswith("RECONCILER_") or name in _TAKEN


@dataclass(frozen=True)
class SecretHider:
    """Puts `SecretText` where the tree of an entry holds a secret.

    `is_secret` says of a text that it holds a value which is known to be secret.
    """

    key: str
    variables: SecretVariables
    is_secret: IsSecret

    def argument(self, name: str, value: str, *, is_marked: bool = False) -> str:
        """The value of a parameter or an environment variable, hidden if it is a secret."""
        if is_marked and value:
            return self._hidden(value, [SecretPart(0, len(value), name)], name)
        if not (looks_secret(name, value) or self._is_known(value)):
            return value
        whole = [SecretPart(0, len(value), name)]
        return self._hidden(value, whole if is_secret_name(name) else secret_parts(value) or whole, name)

    def tree(self, tree: Any, field: str = "") -> Any:
        """A tree in which the texts that look secret by themselves, or are known, are hidden."""
        if isinstance(tree, Mapping):
            return {name: self.tree(value, name) for name, value in tree.items()}
        if isinstance(tree, list):
            return [self.tree(item, field) for item in tree]
        if not isinstance(tree, str) or isinstance(tree, SecretText) or field in _SHOWN:
            return tree
        # What a field of the service means is known, so neither its name nor a long id in it is a sign.
        if not (looks_secret("id", tree) or self._is_known(tree)):
            return tree
        return self._hidden(tree, secret_parts(tree), field)

    def _is_known(self, text: str) -> bool:
        """Whether a text holds a known secret, as it is or as it is written: escaping may make it one."""
        return self.is_secret(text) or self.is_secret(escape(text))

    def _hidden(self, text: str, parts: list[SecretPart], field: str) -> SecretText:
        if not parts:
            parts = self.variables.parts(text)
        if not parts or self._is_known(without_parts(text, parts)):
            parts = [SecretPart(0, len(text), field)]
        reference, end = "", 0
        for part in parts:
            literal = escape(text[end : part.start], before_expression=True)
            value = text[part.start : part.end]
            reference += literal + self.variables.reference(value, part.name or field, self.key)
            end = part.end
        return SecretText(text, reference + escape(text[end:]))
