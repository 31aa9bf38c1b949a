"""Templates: jobs that are never made, and the order in which a job takes over what they say."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from reconciler.core.diagnostic import Diagnostic
from reconciler.manifests.links import keys_in
from reconciler.manifests.merge import MergedEntry
from reconciler.manifests.suggestions import did_you_mean
from reconciler.manifests.yaml.document import shorten
from reconciler.manifests.yaml.positions import diagnose

EXTENDS = "extends"


@dataclass
class Templates:
    """The templates of one stack. A template is merged once into a job, at its first place."""

    entries: Mapping[str, MergedEntry] = field(default_factory=dict)
    used: set[str] = field(default_factory=set)

    def chain(self, names: Iterable[str]) -> tuple[MergedEntry, ...]:
        """The templates of those names with all that they extend, the ones that are overridden first."""
        found: dict[str, MergedEntry] = {}
        for name in names:
            self._take(name, found, ())
        self.used.update(found)
        return tuple(found.values())

    def _take(self, name: str, found: dict[str, MergedEntry], below: tuple[str, ...]) -> None:
        entry = self.entries.get(name)
        if entry is None or name in found or name in below:
            return
        for base in extended_by(entry.value):
            self._take(base, found, (*below, name))
        found[name] = entry

    def check(self, entry: MergedEntry, value: Any) -> Iterator[Diagnostic]:
        """Yield each template that an entry extends and the stack does not have."""
        for number, name in enumerate(extended_by(value)):
            if name not in self.entries:
                steps = (EXTENDS, number) if isinstance(value[EXTENDS], list) else (EXTENDS,)
                why = f'"{shorten(name)}" is not declared under templates in any file of the stack'
                nearest = did_you_mean(name, tuple(self.entries))
                yield diagnose(entry.document, (*entry.steps, *steps), "unknown template", why, nearest)

    def problems(self) -> Iterator[Diagnostic]:
        """Yield what is wrong with what templates extend: names that do not exist, and cycles."""
        for entry in self.entries.values():
            yield from self.check(entry, entry.value)
        done: set[str] = set()
        for name, entry in self.entries.items():
            if name not in done and (cycle := self._cycle(name)):
                done.update(cycle)
                why = " extends ".join(shorten(one) for one in (*cycle, cycle[0]))
                steps = (*entry.steps, EXTENDS)
                yield diagnose(entry.document, steps, "template cycle", why, "remove one of them")

    def _cycle(self, start: str) -> tuple[str, ...]:
        """The way from a template back to itself, if there is one."""
        way_to: dict[str, tuple[str, ...]] = {start: (start,)}
        waiting = [start]
        while waiting:
            name = waiting.pop(0)
            for base in extended_by(self.entries[name].value):
                if base == start:
                    return way_to[name]
                if base in self.entries and base not in way_to:
                    way_to[base] = (*way_to[name], base)
                    waiting.append(base)
        return ()


def extended_by(value: Any) -> tuple[str, ...]:
    """The templates that an entry names, as far as it does."""
    return keys_in(value.get(EXTENDS)) if isinstance(value, dict) else ()
