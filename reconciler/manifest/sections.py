"""The sections `policies`, `drift` and `notify`, read where a stack has one of them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

from reconciler.core.addresses import (
    HOLE,
)
from reconciler.core.policy_expression import NAMES
from reconciler.core.scalar import Reference, parts_of, scalar_text
from reconciler.core.settings import (
    NOTIFY_CLASSES,
    Destination,
    DriftSettings,
    NotifyEntry,
    PolicyEntry,
    refused_url,
)
from reconciler.core.stack import POLICY_ACTIONS, IgnoreRule, Policy
from reconciler.errors import Diagnostic, Location
from reconciler.expressions.evaluator import find_invalid
from reconciler.manifest.expressions import (
    Expander,
    expand_partly,
    problems_in,
)
from reconciler.manifest.merge import (
    MergedItem,
)
from reconciler.manifest.problems import (
    ENV_NOT_SET,
    NO_VALUE,
    NotExpanded,
    Origin,
    Problem,
    diagnose,
    diagnose_inside,
    did_you_mean,
    format_path,
    location_of_key,
    validated,
)
from reconciler.manifest.variables import VariableValues
from reconciler.manifest.yaml import Document
from reconciler.secrets import SecretText, whole_url_secrets

if TYPE_CHECKING:
    pass


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


def read_policies(entries: Iterable[MergedItem]) -> tuple[tuple[Policy, ...], list[Diagnostic]]:
    """Return the policies that all files say together, in file order, and what is wrong with them."""
    problems: list[Diagnostic] = []
    policies: dict[str, Policy] = {}
    places: dict[str, Location] = {}
    valid: list[tuple[MergedItem, PolicyEntry]] = []
    for entry in entries:
        origin = Origin(((entry.document, entry.steps),))
        read, found = validated(PolicyEntry, entry.value, origin)
        problems += found
        if read is None:
            continue
        valid.append((entry, read))
        if read.name in places:
            why = f'the policy "{read.name}" is already defined at {places[read.name]}'
            steps = (*entry.steps, "name")
            problems.append(diagnose(entry.document, steps, "duplicate policy", why, "rename one of them"))
            continue
        places[read.name] = location_of_key(entry.document, (*entry.steps, "name"))
        place = location_of_key(entry.document, (*entry.steps, read.effect.value))
        only = POLICY_ACTIONS if read.only is None else tuple(read.only)
        policies[read.name] = Policy(read.name, read.effect, read.expression, read.message or "", only, place)
    return tuple(policies.values()), [*problems, *_invalid_expressions(valid)]


def _invalid_expressions(valid: Sequence[tuple[MergedItem, PolicyEntry]]) -> Iterator[Diagnostic]:
    """What does not compile. Nothing is started for a stack without policies."""
    if not valid:
        return
    found = find_invalid([read.expression for _, read in valid])
    for (entry, read), problem in zip(valid, found, strict=True):
        if problem is not None:
            unknown = problem.unknown_name
            yield diagnose_inside(
                entry.document,
                (*entry.steps, read.effect.value),
                (problem.line, problem.column),
                "invalid expression",
                problem.why,
                did_you_mean(unknown, NAMES) if unknown else None,
            )


SECTION = "drift"


def read_ignore_rules(
    documents: Iterable[Document], expander: Expander
) -> tuple[tuple[IgnoreRule, ...], list[Diagnostic]]:
    """Return the rules that all files say together, in file order, and what is wrong with them."""
    problems: list[Diagnostic] = []
    rules: list[IgnoreRule] = []
    for document in documents:
        value = document.tree[SECTION]
        problems += _not_expanded(document, value, expander)
        section, found = validated(
            DriftSettings, expand_partly(value, expander), Origin(((document, (SECTION,)),))
        )
        problems += found
        for position, entry in enumerate(section.ignore if section else ()):
            place = location_of_key(document, (SECTION, "ignore", position))
            rules.append(IgnoreRule(entry.key, entry.class_, entry.reason, entry.until, place))
    return tuple(rules), problems


def _not_expanded(document: Document, value: Any, expander: Expander) -> Iterator[Diagnostic]:
    for steps, problem in problems_in(value, expander, (SECTION,)):
        yield diagnose(document, steps, problem.what, problem.why, problem.fix, text=problem.text)
