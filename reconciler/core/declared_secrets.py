"""What a manifest declares sensitive, found again by name in what the service answers about its jobs.

A command that only looks needs no secret's value, and the service's answer holds it all the same.
Source: docs/semantics.md, "Secrets".
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from reconciler.core.identity import parse_remote_name
from reconciler.core.observed_job import ObservedJob
from reconciler.core.secret import REDACTED, SecretText
from reconciler.core.stack import DesiredJob, Stack

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
        entries = {key: job for key, job in (stack.whole or stack.jobs).items() if _holds_secret(job.body)}
        former = {old: job for job in entries.values() for old in job.formerly}
        return cls(stack.name, {**former, **entries})

    def hide(self, job: ObservedJob, body: Mapping[str, Any]) -> Hidden:
        """Take out of `body`, an answer about `job`, what the job's entry declares sensitive."""
        entry = self._entry_of(job)
        if entry is None or entry.body is None:
            return Hidden(dict(body), ())
        names = _Names.of(entry.body)
        values: list[str] = []
        shown = names.hide(_hide(body, entry.body, values), values)
        return Hidden(shown, tuple(dict.fromkeys(values)))

    def _entry_of(self, job: ObservedJob) -> DesiredJob | None:
        # A copied job holds what the original held, and one that lost its marker has its name yet.
        marker = job.marker or job.claimed_marker
        if marker is not None:
            return self.entry_by_key.get(marker.key) if marker.stack == self.stack else None
        return self.entry_by_key.get(parse_remote_name(job.name).key)


def _holds_secret(tree: Any) -> bool:
    if isinstance(tree, Mapping):
        return any(map(_holds_secret, tree.values()))
    if isinstance(tree, list | tuple):
        return any(map(_holds_secret, tree))
    return isinstance(tree, SecretText)


def _hide(shown: Any, declared: Any, values: list[str]) -> Any:
    """The answer without what stands where a secret is declared. Lists of another length are hidden whole."""
    if isinstance(declared, SecretText):
        values += _texts(shown)
        return None if shown is None else REDACTED
    if isinstance(declared, Mapping) and isinstance(shown, Mapping):
        return {n: _hide(v, declared[n], values) if n in declared else v for n, v in shown.items()}
    if isinstance(declared, list) and isinstance(shown, list) and _holds_secret(declared):
        return _hide_items(shown, declared, values)
    return shown


def _hide_items(shown: list[Any], declared: list[Any], values: list[str]) -> list[Any]:
    if any(isinstance(item, Mapping) and "name" in item for item in declared):
        return shown  # found by their names, in whatever order
    if len(declared) == len(shown):
        return [_hide(one, other, values) for one, other in zip(shown, declared, strict=True)]
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
