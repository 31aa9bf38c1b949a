"""A stack's files as one manifest: what each may say, and where two of them disagree."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from reconciler.core.body import desugar
from reconciler.core.identity import key_problem, stack_problem
from reconciler.core.scalar import scalar_text
from reconciler.core.stack import NOT_IN_DEFAULTS, NOT_IN_TEMPLATES, Manifest
from reconciler.errors import Diagnostic
from reconciler.manifest.positions import Member, PathStep, diagnose, location_of_key
from reconciler.manifest.problems import NAMED_LISTS, found
from reconciler.manifest.suggestions import MOST_LISTED, did_you_mean, listed
from reconciler.manifest.yaml import Document, shorten

_MAPPINGS = ("targets", "variables", "limits", "prices", "drift", "defaults", "templates", "jobs")
_LISTS = ("policies", "notify")
_TEXTS = ("apiVersion", "stack", "target", "records")
#: What a manifest may say on its first level.
SECTIONS = frozenset((*_MAPPINGS, *_LISTS, *_TEXTS))
#: Sections that all files may add to.
SETTINGS = ("limits", "prices")
API_VERSION = "reconciler/v1"


@dataclass(frozen=True)
class MergedEntry:
    """What one file says under one name of a section.

    A member of a sweep has its own `name`, the `entry` of the file that it comes from, and its values of the
    `matrix`.
    """

    document: Document
    section: str
    name: str
    value: Any
    entry: str | None = None
    matrix: Mapping[str, Any] | None = None

    @property
    def names(self) -> tuple[str, ...]:
        """Its name, and that of its entry."""
        return (self.name,) if self.entry is None else (self.name, self.entry)

    @property
    def steps(self) -> tuple[PathStep, ...]:
        """Its path in the file."""
        return (self.section, self.name if self.entry is None else self.entry)


class MergedItem(NamedTuple):
    """What one file says in an item of a list of the first level, `policies` or `notify`."""

    document: Document
    section: str
    position: int
    value: Any

    @property
    def steps(self) -> tuple[PathStep, ...]:
        """Its path in the file."""
        return (self.section, self.position)


class DefaultsPart(NamedTuple):
    """What one file says of every job, for the whole stack or for one target; `steps` is where it says it."""

    document: Document
    steps: tuple[PathStep, ...]
    tree: dict[str, Any]


@dataclass
class MergedSection:
    """What the files say together under one key of the first level."""

    name: str
    documents: tuple[Document, ...]
    value: dict[str, Any] = field(default_factory=dict)


@dataclass
class MergedManifest:
    """What the files say together, as plain values that nobody has validated yet."""

    stack: str = ""
    target: str | None = None
    target_at: Document | None = None
    records_at: Document | None = None
    targets: dict[str, MergedEntry] = field(default_factory=dict)
    variables: dict[str, MergedEntry] = field(default_factory=dict)
    templates: dict[str, MergedEntry] = field(default_factory=dict)
    jobs: dict[str, MergedEntry] = field(default_factory=dict)
    settings: dict[str, MergedSection] = field(default_factory=dict)
    policies: tuple[MergedItem, ...] = ()
    notify: tuple[MergedItem, ...] = ()
    drift: tuple[Document, ...] = ()
    defaults: tuple[DefaultsPart, ...] = ()
    problems: list[Diagnostic] = field(default_factory=list)


def merge_files(documents: Sequence[Document]) -> MergedManifest:
    """Unite the files of a stack; what cannot be united is a problem, and the first file's word stands."""
    merged = MergedManifest()
    for document in documents:
        merged.problems += document.problems
        merged.problems += _shape_problems(document)
    _take_texts(merged, documents)
    for section, place in (("targets", merged.targets), ("variables", merged.variables)):
        for entry in _entries(documents, section):
            first = place.setdefault(entry.name, entry)
            if first is not entry and not same(first.value, entry.value):
                merged.problems.append(_disagreement(entry, first.document))
    _take_templates(merged, documents)
    _take_jobs(merged, documents)
    for name in SETTINGS:
        merged.settings[name] = setting = MergedSection(name, tuple(_having(documents, name)))
        for document in setting.documents:
            merged.problems += _unite(
                setting.value, document.tree[name], document, (name,), setting.documents
            )
    merged.policies = tuple(_items(documents, "policies"))
    merged.notify = tuple(_items(documents, "notify"))
    merged.drift = tuple(_having(documents, "drift"))
    _take_defaults(merged, documents)
    return merged


def _items(documents: Iterable[Document], section: str) -> Iterator[MergedItem]:
    for document in documents:
        items = document.tree.get(section)
        for position, value in enumerate(items if isinstance(items, list) else ()):
            yield MergedItem(document, section, position, value)


def _having(documents: Iterable[Document], section: str) -> list[Document]:
    return [document for document in documents if isinstance(document.tree.get(section), dict)]


def _entries(documents: Iterable[Document], section: str) -> Iterator[MergedEntry]:
    for document in _having(documents, section):
        for name, value in document.tree[section].items():
            yield MergedEntry(document, section, name, value)


def _shape_problems(document: Document) -> Iterator[Diagnostic]:
    """The first level: known names only, each of its type. A section without anything below is empty."""
    known = tuple(Manifest.model_fields)
    if document.tree and not document.shows_lines and not any(did_you_mean(k, known) for k in document.tree):
        # A file that looks like no manifest at all: what each of its keys means is nobody's business.
        why = f"no key of this file is one of {', '.join(known)}"
        first = next(iter(document.tree))
        problem = diagnose(document, (first,), "unknown field", why, "remove or rename it", at_key=True)
        yield problem._replace(path="")
        return
    for name, value in document.tree.items():
        if name in _MAPPINGS:
            if not isinstance(value, dict | None):
                yield diagnose(document, (name,), "wrong type", f"expected a mapping, got {found(value)}")
        elif name in _TEXTS:
            if not isinstance(value, str | None):
                why = f"expected text, got {found(value)}"
                yield diagnose(document, (name,), "wrong type", why, show_line=name != "records")
        elif name in _LISTS:
            if not isinstance(value, list | None):
                yield diagnose(document, (name,), "wrong type", f"expected a list, got {found(value)}")
        else:
            why, nearest = f'"{shorten(name)}" is not one of {", ".join(known)}', did_you_mean(name, known)
            # What is no slip may stand in a file that has nothing to do with us, beside a secret.
            is_slip = nearest is not None
            problem = diagnose(
                document, (name,), "unknown field", why, nearest, at_key=True, show_line=is_slip
            )
            yield problem._replace(path="")


def _take_texts(merged: MergedManifest, documents: Sequence[Document]) -> None:
    saying = {name: [one for one in documents if isinstance(one.tree.get(name), str)] for name in _TEXTS}
    for name, those in saying.items():
        # Every file that says stack: is reported as a root file of its own, see `load`.
        if name != "stack":
            merged.problems += _disagreements(name, those)
    for document in saying["apiVersion"]:
        if document.tree["apiVersion"] != API_VERSION:
            why = f"must be {API_VERSION}, got {found(document.tree['apiVersion'])}"
            merged.problems.append(diagnose(document, ("apiVersion",), "value not allowed", why))
    merged.records_at = next(iter(saying["records"]), None)
    merged.target_at = next(iter(saying["target"]), None)
    merged.target = merged.target_at.tree["target"] if merged.target_at else None
    _take_stack(merged, [document for document in documents if "stack" in document.tree])


def _disagreements(name: str, saying: Sequence[Document]) -> Iterator[Diagnostic]:
    for document in saying[1:]:
        if document.tree[name] != saying[0].tree[name]:
            entry = MergedEntry(document, name, name, None)
            # A password may stand in the URL of the records, though it should not.
            yield _disagreement(entry, saying[0], show_line=name != "records")


def _take_stack(merged: MergedManifest, roots: Sequence[Document]) -> None:
    if len(roots) > 1:
        names = [root.file for root in roots]
        # Where there are more than anybody means, one error says so.
        for root in roots if len(roots) <= MOST_LISTED else roots[:1]:
            others = listed([name for name in names if name != root.file])
            why = f"a stack has a single root file; stack: also stands in {others}"
            merged.problems.append(
                diagnose(root, ("stack",), "two root files", why, "keep it in one of them", at_key=True)
            )
    for root in roots[:1]:
        name: Any = root.tree["stack"]
        if name is None:
            merged.problems.append(diagnose(root, ("stack",), "wrong type", "expected text, got null"))
        elif isinstance(name, str):
            merged.stack = name
            if problem := stack_problem(name):
                merged.problems.append(diagnose(root, ("stack",), "invalid stack name", problem))


def _take_jobs(merged: MergedManifest, documents: Sequence[Document]) -> None:
    by_lower: dict[str, MergedEntry] = {}
    for entry in _entries(documents, "jobs"):
        if why := key_problem(entry.name):
            problem = diagnose(entry.document, entry.steps, "invalid key", why, at_key=True)
            merged.problems.append(problem._replace(path=f"jobs.{shorten(entry.name)}"))
        first = by_lower.setdefault(entry.name.lower(), entry)
        if first is entry:
            merged.jobs[entry.name] = entry
            continue
        place = location_of_key(first.document, first.steps)
        if first.name == entry.name:
            what, why = "duplicate key", f'the job "{entry.name}" is already defined at {place}'
        else:
            what = "keys differ only in case"
            why = f'"{entry.name}" and "{first.name}" at {place} would be the same job to the service'
        merged.problems.append(
            diagnose(entry.document, entry.steps, what, why, "rename one of them", at_key=True)
        )


def _take_templates(merged: MergedManifest, documents: Sequence[Document]) -> None:
    for entry in _entries(documents, "templates"):
        first = merged.templates.setdefault(entry.name, entry)
        if first is not entry and not same(first.value, entry.value):
            merged.problems.append(_disagreement(entry, first.document))
        if not isinstance(entry.value, dict):
            why = f"expected a mapping, got {found(entry.value)}"
            merged.problems.append(diagnose(entry.document, entry.steps, "wrong type", why))
            continue
        for name, says in NOT_IN_TEMPLATES.items():
            if name in entry.value:
                steps, why = (*entry.steps, name), f"{name} says {says}"
                merged.problems.append(
                    diagnose(
                        entry.document,
                        steps,
                        "not allowed in templates",
                        why,
                        "set it on the job",
                        at_key=True,
                    )
                )


def _take_defaults(merged: MergedManifest, documents: Sequence[Document]) -> None:
    having = _having(documents, "defaults")
    found = [DefaultsPart(document, ("defaults",), document.tree["defaults"]) for document in having]
    merged.problems += [problem for part in found for problem in problems_in_defaults(part)]
    merged.defaults = tuple(map(allowed_in_defaults, found))
    united: dict[str, Any] = {}
    for document, steps, tree in merged.defaults:
        merged.problems += _unite(united, desugar(tree), document, steps, having)


def problems_in_defaults(part: DefaultsPart) -> Iterator[Diagnostic]:
    """Yield what `defaults` say that only one job may."""
    for name, says in NOT_IN_DEFAULTS.items():
        if name in part.tree:
            yield diagnose(
                part.document, (*part.steps, name), "not allowed in defaults", f"{name} says {says}",
                "set it on the job", at_key=True,
            )  # fmt: skip


def allowed_in_defaults(part: DefaultsPart) -> DefaultsPart:
    """What is left of `defaults` without that."""
    return part._replace(tree={k: v for k, v in part.tree.items() if k not in NOT_IN_DEFAULTS})


def _unite(
    into: dict[str, Any],
    tree: Mapping[str, Any],
    document: Document,
    steps: tuple[PathStep, ...],
    earlier: Sequence[Document],
) -> Iterator[Diagnostic]:
    """Merge a tree into another, and yield where both say something, and not the same."""
    for name, value in tree.items():
        path = (*steps, name)
        if name not in into:
            into[name] = _copy(value)
        elif isinstance(into[name], dict) and isinstance(value, Mapping):
            yield from _unite(into[name], value, document, path, earlier)
        elif name in NAMED_LISTS and _is_named(into[name]) and _is_named(value):
            yield from _unite_named(into[name], value, document, path, earlier)
        elif not same(into[name], value):
            yield _disagree(document, path, earlier)


def _unite_named(
    into: list[Any],
    items: list[Any],
    document: Document,
    steps: tuple[PathStep, ...],
    earlier: Sequence[Document],
) -> Iterator[Diagnostic]:
    by_name = {item["name"]: item for item in into}
    for index, item in enumerate(items):
        if item["name"] in by_name:
            yield from _unite(
                by_name[item["name"]], item, document, (*steps, Member(index, item["name"])), earlier
            )
        else:
            into.append(_copy(item))


def _is_named(value: Any) -> bool:
    return isinstance(value, list) and all(
        isinstance(i, dict) and isinstance(i.get("name"), str) for i in value
    )


def _copy(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {key: _copy(member) for key, member in value.items()}
    return [_copy(member) for member in value] if isinstance(value, list) else value


def same(one: Any, other: Any) -> bool:
    """Whether two files say the same; 1, 1.0 and true are different words."""
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(same(one[key], other[key]) for key in one)
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(map(same, one, other))
    return type(one) is type(other) and bool(scalar_text(one) == scalar_text(other))


def _disagreement(entry: MergedEntry, first: Document, *, show_line: bool = True) -> Diagnostic:
    steps: tuple[PathStep, ...] = (entry.section,) if entry.section == entry.name else entry.steps
    return _disagree(entry.document, steps, [first], show_line=show_line)


def _disagree(
    document: Document, steps: tuple[PathStep, ...], earlier: Sequence[Document], *, show_line: bool = True
) -> Diagnostic:
    from reconciler.manifest.positions import find

    others = [other for other in earlier if other is not document]
    first = next((other for other in others if find(other, steps).found == len(steps)), others[0])
    why = f"{location_of_key(first, steps)} has a different value"
    return diagnose(
        document, steps, "files disagree", why, "set it in one file, or the same in both", at_key=True,
        show_line=show_line,
    )  # fmt: skip
