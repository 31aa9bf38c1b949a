"""Templates: jobs that are never made, and the order in which a job takes over what they say."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from reconciler.errors import Diagnostic
from reconciler.manifest.links import cycles, keys_in
from reconciler.manifest.merge import MergedEntry
from reconciler.manifest.positions import diagnose
from reconciler.manifest.suggestions import did_you_mean
from reconciler.manifest.yaml import shorten

EXTENDS, TEMPLATES = "extends", "templates"


@dataclass
class Templates:
    """The templates of one stack. A template is merged once into a job, at its first place."""

    entries: Mapping[str, MergedEntry] = field(default_factory=dict)
    used: set[str] = field(default_factory=set)

    def chain(self, names: Iterable[str]) -> tuple[MergedEntry, ...]:
        """The templates of those names with all that they extend, the ones that are overridden first."""
        found: dict[str, MergedEntry] = {}
        met: set[str] = set()
        for name in names:
            way = self._unmet([name], met)
            while way:
                base = next(way[-1][1], None)
                if base is None:
                    last = way.pop()[0]
                    found[last] = self.entries[last]
                else:
                    way += self._unmet([base], met)
        self.used.update(found)
        return tuple(found.values())

    def _unmet(self, names: Iterable[str], met: set[str]) -> list[tuple[str, Iterator[str]]]:
        """Those templates that exist and were not met yet, each with what it extends."""
        new = [name for name in names if name in self.entries and name not in met]
        met.update(new)
        return [(name, iter(extended_by(self.entries[name].value))) for name in new]

    def check(self, entry: MergedEntry, value: Any) -> Iterator[Diagnostic]:
        """Yield each template that an entry extends and the stack does not have."""
        for number, name in enumerate(extended_by(value)):
            if name not in self.entries:
                steps = (EXTENDS, number) if isinstance(value[EXTENDS], list) else (EXTENDS,)
                why = f'"{shorten(name)}" is not declared under templates in any file of the stack'
                own = entry.names if entry.section == TEMPLATES else ()
                nearest = did_you_mean(name, tuple(self.entries), but_not=own)
                yield diagnose(entry.document, (*entry.steps, *steps), "unknown template", why, nearest)

    def problems(self) -> Iterator[Diagnostic]:
        """Yield what is wrong with what templates extend: names that do not exist, and cycles."""
        for entry in self.entries.values():
            yield from self.check(entry, entry.value)
        extends = {name: extended_by(entry.value) for name, entry in self.entries.items()}
        for cycle in cycles(extends, tuple(self.entries)):
            why = " extends ".join(shorten(one) for one in (*cycle, cycle[0]))
            entry = self.entries[cycle[0]]
            steps = (*entry.steps, EXTENDS)
            yield diagnose(entry.document, steps, "template cycle", why, "remove one of them")


def extended_by(value: Any) -> tuple[str, ...]:
    """The templates that an entry names, as far as it does."""
    return keys_in(value.get(EXTENDS)) if isinstance(value, dict) else ()
