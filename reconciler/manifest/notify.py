"""Where a stack tells of drift: what its files say under `notify`, read as far as the environment goes.

A URL is a secret, whatever it is made of. It is put together only where something is sent, so that a check
for drift needs no value of it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from reconciler.core.expression import Reference, parts_of
from reconciler.core.notification_url import refused_url
from reconciler.core.notify_entry import NOTIFY_CLASSES, Destination, NotifyEntry
from reconciler.core.scalar import scalar_text
from reconciler.core.store_url import HOLE
from reconciler.errors import Diagnostic, Location
from reconciler.manifest.expression_problems import ENV_NOT_SET, NO_VALUE, NotExpanded, Problem
from reconciler.manifest.expressions import Expander, problems_in
from reconciler.manifest.merge import MergedItem
from reconciler.manifest.positions import diagnose, format_path, location_of_key
from reconciler.manifest.problems import Origin, validated
from reconciler.manifest.variables import VariableValues
from reconciler.manifest.yaml import Document
from reconciler.secrets import SecretText, whole_url_secrets


class _NotifyEntry(NamedTuple):
    """An entry that could be read, and where it stands."""

    item: MergedItem
    entry: NotifyEntry


@dataclass(frozen=True)
class NotifySetting:
    """The entries of `notify` of a stack."""

    entries: tuple[_NotifyEntry, ...] = ()
    values: VariableValues = field(default_factory=lambda: VariableValues({}))
    environ: Mapping[str, str] = field(default_factory=dict)
    written: tuple[str, ...] = field(default=(), repr=False)

    @classmethod
    def read(
        cls, items: Sequence[MergedItem], values: VariableValues, environ: Mapping[str, str]
    ) -> tuple[NotifySetting, list[Diagnostic]]:
        """Return the setting, and what is wrong with it whatever the environment holds."""
        entries: list[_NotifyEntry] = []
        problems: list[Diagnostic] = []
        for item in items:
            origin = Origin(((item.document, item.steps),))
            read, found = validated(NotifyEntry, item.value, origin)
            problems += found if _is_reference(item) else [one._replace(snippet=None) for one in found]
            if read is not None:
                entries.append(_NotifyEntry(item, read))
        setting = cls(tuple(entries), values, environ, tuple(_written_urls(items)))
        return setting, [*problems, *setting._problems()]

    def destinations(self) -> tuple[Destination, ...]:
        """Where something is told, in file order; a URL without a value says why it has none."""
        expander = Expander(self.values.online(), self.environ)
        return tuple(_destination(entry, expander) for entry in self.entries)

    def secrets(self) -> set[str]:
        """The URLs, and what in them may be a token, as far as they are known."""
        expander = Expander(self.values, self.environ, budget=self.values.budget)
        found = (_destination(entry, expander).url for entry in self.entries)
        return {part for url in (*found, *self.written) if url for part in whole_url_secrets(url)}

    def _problems(self) -> Iterator[Diagnostic]:
        expander = Expander(self.values, self.environ, budget=self.values.budget)
        for entry in self.entries:
            for _, problem in problems_in(entry.entry.url, expander):
                if problem.what not in (ENV_NOT_SET, NO_VALUE):
                    yield _diagnosed(entry, problem)
            if refused := _refused(_as_far_as_known(entry.entry.url, expander)):
                yield _diagnosed(entry, refused)


def misplaced_urls(documents: Iterable[Document], known: Collection[str]) -> set[str]:
    """URLs of `notify`, and of sections that are not `known` and so may be a misspelt one, and their parts.

    They are kept out of what is said of a manifest, whatever is wrong with it. OBS paths are no such URLs.
    """
    found = (
        text
        for document in documents
        for key, value in document.tree.items()
        if key == "notify" or key not in known
        for text in _texts_of(value)
        if "://" in text and not text.startswith("obs://")
    )
    return {part for url in found for part in whole_url_secrets(url)}


def _texts_of(value: Any) -> Iterator[str]:
    """Every text in a value, keys included."""
    if isinstance(value, str):
        yield str(value)
    elif isinstance(value, dict):
        yield from (text for item in value.items() for part in item for text in _texts_of(part))
    elif isinstance(value, list | tuple):
        yield from (text for item in value for text in _texts_of(item))


def _destination(entry: _NotifyEntry, expander: Expander) -> Destination:
    on = frozenset(entry.entry.on or NOTIFY_CLASSES)
    place, path = _place(entry), format_path((*entry.item.steps, "url"))
    try:
        value = scalar_text(expander.text(entry.entry.url))
    except NotExpanded as error:
        return Destination(None, on, place, path, _diagnosed(entry, error.problem))
    is_known = not (isinstance(value, SecretText) and not value.has_value)
    if not isinstance(value, str) or not is_known or not value.strip():
        problem = Problem("", "wrong type", "the URL of a notification must be text with a value", None)
        return Destination(None, on, place, path, _diagnosed(entry, problem))
    url = str.__str__(value).strip()
    if refused := _refused(url):
        return Destination(None, on, place, path, _diagnosed(entry, refused))
    return Destination(url, on, place, path)


def _refused(url: str) -> Problem | None:
    why = refused_url(url)
    return None if why is None else Problem("", "notification URL not allowed", why, None)


def _as_far_as_known(url: str, expander: Expander) -> str:
    """The URL with something in place of each expression that has no value yet."""
    return "".join(part if isinstance(part, str) else _known(part, expander) for part in parts_of(url))


def _known(reference: Reference, expander: Expander) -> str:
    try:
        value = scalar_text(expander.text(reference.text))
    except NotExpanded:
        return HOLE
    is_known = isinstance(value, str) and not (isinstance(value, SecretText) and not value.has_value)
    return str.__str__(value) if is_known else HOLE


def _place(entry: _NotifyEntry) -> Location:
    return location_of_key(entry.item.document, (*entry.item.steps, "url"))


def _diagnosed(entry: _NotifyEntry, problem: Problem) -> Diagnostic:
    steps = (*entry.item.steps, "url")
    return diagnose(
        entry.item.document, steps, problem.what, problem.why, problem.fix, text=problem.text or None,
        show_line=False,
    )  # fmt: skip


def _is_reference(item: MergedItem) -> bool:
    """Whether its URL is one expression, so that its line holds nothing of it."""
    url = item.value.get("url") if isinstance(item.value, dict) else None
    parts = parts_of(url) if isinstance(url, str) else ()
    return len(parts) == 1 and isinstance(parts[0], Reference)


def _written_urls(items: Iterable[MergedItem]) -> Iterator[str]:
    """What stands in the files as a URL, right or wrong."""
    for item in items:
        values = item.value.values() if isinstance(item.value, dict) else (item.value,)
        yield from (str(value) for value in values if isinstance(value, str) and "://" in value)
