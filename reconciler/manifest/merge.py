"""The files of a stack merged into one manifest, with the fields each may have and conflicts between them."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass, field
from functools import cache, cached_property
from typing import Any, NamedTuple

from reconciler.core.body import (
    NAMED_LISTS,
    desugar,
    is_named_environment,
    is_named_list,
    mapping_at,
    with_algorithms,
)
from reconciler.core.fields.job import EnvironmentItem
from reconciler.core.identity import key_problem, stack_problem
from reconciler.core.scalar import scalar_text
from reconciler.core.stack import NOT_IN_DEFAULTS, NOT_IN_TEMPLATES, SECTIONS, JobEntry
from reconciler.core.values import PROCESS
from reconciler.errors import Diagnostic, Location
from reconciler.manifest.files import MAX_GLOB, SUFFIXES
from reconciler.manifest.problems import (
    MAX_LISTED,
    Member,
    Origin,
    PathStep,
    Steps,
    Unexpanded,
    describe,
    diagnose,
    did_you_mean,
    find_node,
    listed,
    location_of_key,
    members_of,
    validated,
)
from reconciler.manifest.yaml import Document, shorten
from reconciler.secrets import SecretText
from reconciler.text import few

_MAPPINGS = ("targets", "variables", "limits", "prices", "drift", "defaults", "templates", "jobs")
_LISTS = ("policies", "notify")
_TEXTS = ("apiVersion", "stack", "target", "records", "code_store")
_KINDS = {
    **dict.fromkeys(_MAPPINGS, (dict, "a mapping")),
    **dict.fromkeys(_TEXTS, (str, "text")),
    **dict.fromkeys(_LISTS, (list, "a list")),
    "include": (str | list, "a glob or a list of globs"),
}
#: Sections to which each file may add fields.
SETTINGS = ("limits", "prices")
API_VERSION = "reconciler/v1"


class MergedEntry(NamedTuple):
    """The value of one file at a path: an entry of a section, an item of a list, or `defaults`.

    A member of a sweep has its own `name`, the name of its `entry` in the file, and its `matrix` values.
    """

    document: Document
    steps: tuple[PathStep, ...]
    value: Any
    name: str = ""
    entry: str | None = None
    matrix: Mapping[str, Any] | None = None

    @property
    def names(self) -> tuple[str, ...]:
        return (self.name,) if self.entry is None else (self.name, self.entry)

    @property
    def origin(self) -> Origin:
        return Origin(((self.document, self.steps),))

    @property
    def location(self) -> Location:
        return location_of_key(self.document, self.steps)

    def diagnose(
        self, steps: Steps, what: str, why: str = "", fix: str | None = None, text: str = "", **more: bool
    ) -> Diagnostic:
        return diagnose(self.document, (*self.steps, *steps), what, why, fix, text, **more)


@dataclass(eq=False, repr=False)
class MergedManifest:
    """The merged files, as plain values that are not validated yet."""

    stack: str = ""
    target: str | None = None
    target_at: Document | None = None
    records_at: Document | None = None
    code_store_at: Document | None = None
    targets: dict[str, MergedEntry] = field(default_factory=dict)
    variables: dict[str, MergedEntry] = field(default_factory=dict)
    templates: dict[str, MergedEntry] = field(default_factory=dict)
    jobs: dict[str, MergedEntry] = field(default_factory=dict)
    #: Origin and value of each of `SETTINGS`.
    settings: dict[str, tuple[Origin, dict[str, Any]]] = field(default_factory=dict)
    policies: tuple[MergedEntry, ...] = ()
    notify: tuple[MergedEntry, ...] = ()
    drift: tuple[Document, ...] = ()
    defaults: tuple[MergedEntry, ...] = ()
    problems: list[Diagnostic] = field(default_factory=list)

    @property
    def entries(self) -> tuple[MergedEntry, ...]:
        return (*self.jobs.values(), *self.templates.values())


def merge_files(documents: Sequence[Document]) -> MergedManifest:
    """Merge the files of a stack. Conflicts are problems; the value of the first file is kept."""
    merged = MergedManifest()
    problems = merged.problems
    for document in documents:
        problems += document.problems
        problems += _shape_problems(document)
    problems += _take_texts(merged, documents)
    for section in ("targets", "variables", "templates"):
        place: dict[str, MergedEntry] = getattr(merged, section)
        for entry in _entries(documents, section):
            first = place.setdefault(entry.name, entry)
            if first is not entry and not same(first.value, entry.value):
                problems.append(_disagree(entry.document, entry.steps, [first.document]))
    for name, entry in merged.templates.items():
        merged.templates[name] = _without(entry, NOT_IN_TEMPLATES, "templates", problems)
    problems += _take_jobs(merged, documents)
    for name in SETTINGS:
        if having := _having(documents, name):
            value: dict[str, Any] = {}
            for document in having:
                problems += _unite(value, document.tree[name], document, (name,), having)
            merged.settings[name] = Origin(tuple((document, (name,)) for document in having)), value
    merged.policies = tuple(_items(documents, "policies"))
    merged.notify = tuple(_items(documents, "notify"))
    merged.drift = tuple(_having(documents, "drift"))
    having = _having(documents, "defaults")
    parts = [MergedEntry(document, ("defaults",), document.tree["defaults"]) for document in having]
    merged.defaults = tuple(_without(part, NOT_IN_DEFAULTS, DEFAULTS, problems) for part in parts)
    united: dict[str, Any] = {}
    for part in merged.defaults:
        problems += _unite(united, desugar(part.value), part.document, part.steps, having)
    return merged


def _items(documents: Iterable[Document], section: str) -> Iterator[MergedEntry]:
    for document in documents:
        items = document.tree.get(section)
        for position, value in enumerate(items if isinstance(items, list) else ()):
            yield MergedEntry(document, (section, position), value)


def _having(documents: Iterable[Document], section: str) -> list[Document]:
    return [document for document in documents if isinstance(document.tree.get(section), dict)]


def _entries(documents: Iterable[Document], section: str) -> Iterator[MergedEntry]:
    for document in _having(documents, section):
        for name, value in document.tree[section].items():
            yield MergedEntry(document, (section, name), value, name)


def _shape_problems(document: Document) -> Iterator[Diagnostic]:
    """Report unknown keys and wrong types at the top level. An empty section may be null."""
    nearest = {name: did_you_mean(name, SECTIONS) for name in document.tree if name not in _KINDS}
    known = ", ".join(SECTIONS)
    is_manifest = document.may_show_lines or len(nearest) < len(document.tree) or any(nearest.values())
    is_manifest |= "algorithm" in nearest
    if document.tree and not is_manifest:
        # Not a manifest at all: one problem for the file, and none for each key.
        why = f"no key of this file is one of {known}"
        fix = "name the manifests by include in the root file; pass variable files with --var-file"
        first = next(iter(document.tree))
        yield diagnose(document, (first,), "unknown field", why, fix, at_key=True)._replace(path="")
        return
    for name, value in document.tree.items():
        if name in JobEntry.model_fields and name not in _KINDS:
            why = f'"{name}" is a field of a job, but is at the top level of the file'
            fix = f"indent it below a job, as jobs.KEY.{name}, or below defaults"
            yield diagnose(document, (name,), _MISPLACED, why, fix, at_key=True)._replace(path="")
        elif name not in _KINDS:
            why, near = f'"{shorten(name)}" is not one of {known}', nearest[name]
            # A name that is no typo may be from an unrelated file, next to a secret.
            is_typo = near is not None
            problem = diagnose(document, (name,), "unknown field", why, near, at_key=True, show_line=is_typo)
            yield problem._replace(path="")
        elif value is not None and not isinstance(value, _KINDS[name][0]):
            why = f"expected {_KINDS[name][1]}, got {describe(value)}"
            yield diagnose(document, (name,), "wrong type", why, show_line=name != "records")


def _take_texts(merged: MergedManifest, documents: Sequence[Document]) -> Iterator[Diagnostic]:
    by_field = {
        name: [document for document in documents if isinstance(document.tree.get(name), str)]
        for name in _TEXTS
    }
    for name, having in by_field.items():
        # Files with `stack` are reported below, as several root files.
        for document in having[1:] if name != "stack" else ():
            if document.tree[name] != having[0].tree[name]:
                # The URL of the records may contain a password, although it should not.
                yield _disagree(document, (name,), having[:1], show_line=name != "records")
    for document in by_field["apiVersion"]:
        if document.tree["apiVersion"] != API_VERSION:
            why = f"must be {API_VERSION}, got {describe(document.tree['apiVersion'])}"
            yield diagnose(document, ("apiVersion",), "value not allowed", why)
    for document in documents:
        yield from _include_problems(document)
    merged.records_at = next(iter(by_field["records"]), None)
    merged.code_store_at = next(iter(by_field["code_store"]), None)
    merged.target_at = next(iter(by_field["target"]), None)
    merged.target = merged.target_at.tree["target"] if merged.target_at else None
    roots = [document for document in documents if "stack" in document.tree]
    # Of many root files, only the first is reported.
    for root in () if len(roots) < 2 else roots if len(roots) <= MAX_LISTED else roots[:1]:
        others = listed([other.file for other in roots if other.file != root.file])
        why = f"a stack has a single root file; stack: is also in {others}"
        yield diagnose(root, ("stack",), "two root files", why, "keep it in one of them", at_key=True)
    for root in roots[:1]:
        name = root.tree["stack"]
        if name is None:
            yield diagnose(root, ("stack",), "wrong type", "expected text, got null")
        elif isinstance(name, str):
            merged.stack = name
            if problem := stack_problem(name):
                yield diagnose(root, ("stack",), "invalid stack name", problem)


def _include_problems(document: Document) -> Iterator[Diagnostic]:
    """Check the globs of a file strictly: jobs in files that they leave out are terminated."""
    value = document.tree.get("include")
    if value is not None and not document.is_root_file:
        why, fix = "only the root file defines which files are manifests", "move it next to stack:"
        yield diagnose(document, ("include",), "not allowed here", why, fix, at_key=True)
        return
    for steps, glob in one_or_more(value, "include"):
        if not isinstance(glob, str):
            if isinstance(value, list):
                yield diagnose(document, steps, "wrong type", f"expected text, got {describe(glob)}")
            continue
        *_, last = parts = glob.removeprefix("./").split("/")
        tail, why = re.split(r"[*?\]]", last)[-1], ""
        if "{" in glob or glob.startswith("!"):
            why = "only *, **, ? and [...] are wildcards"
        elif glob.startswith("/") or "" in parts[:-1] or any(part.startswith(".") for part in parts):
            why = "it must be a path below the directory of the root file, without hidden names, . and .."
        elif len(glob) > MAX_GLOB:
            why = f"it has {len(glob)} characters, and at most {MAX_GLOB} are allowed"
        elif not last or not (tail.endswith(SUFFIXES) or any(end.endswith(tail) for end in SUFFIXES)):
            why = "manifest files end in .yaml or .yml"
        if why:
            fix = "write it as jobs/*.yaml, or as jobs/**/*.yaml with the directories below"
            yield diagnose(document, steps, "invalid glob", f'{why}; got "{shorten(glob)}"', fix)


def _take_jobs(merged: MergedManifest, documents: Sequence[Document]) -> Iterator[Diagnostic]:
    by_lower: dict[str, MergedEntry] = {}
    above: MergedEntry | None = None
    for entry in _entries(documents, "jobs"):
        if _is_field_of_job(entry):
            parent = above if above is not None and above.document is entry.document else None
            below = f'"{parent.name}"' if parent is not None else "the key of a job"
            here = f'"{entry.name}" is a field of a job, but is where the key of a job belongs'
            yield entry.diagnose((), _MISPLACED, here, f"indent it further, below {below}", at_key=True)
            if parent is not None and isinstance(parent.value or {}, dict):
                # Read it as intended, or the field would also be reported as missing in the job.
                above = parent._replace(value={entry.name: entry.value, **(parent.value or {})})
                merged.jobs[above.name] = above
            continue
        above = entry
        if why := key_problem(entry.name):
            problem = entry.diagnose((), "invalid key", why, at_key=True)
            yield problem._replace(path=f"jobs.{shorten(entry.name)}")
        first = by_lower.setdefault(entry.name.lower(), entry)
        if first is entry:
            merged.jobs[entry.name] = entry
            continue
        what, why = "duplicate key", f'the job "{entry.name}" is already defined at {first.location}'
        if first.name != entry.name:
            what, other = "keys differ only in case", f'"{first.name}" at {first.location}'
            why = f'"{entry.name}" and {other} would be the same job to the service'
        yield entry.diagnose((), what, why, "rename one of them", at_key=True)


_MISPLACED = "misplaced field"


def _is_field_of_job(entry: MergedEntry) -> bool:
    """Whether an entry of `jobs` is not a job, but a field of the job above that lacks indentation."""
    names = entry.value.keys() if isinstance(entry.value, dict) else set()
    return not names <= JobEntry.model_fields.keys() and names <= set(members_of(JobEntry, entry.name))


def _without(
    entry: MergedEntry, names: Mapping[str, str], section: str, problems: list[Diagnostic]
) -> MergedEntry:
    """Return an entry without the given fields, and report those it has."""
    if not isinstance(entry.value, dict):
        problems.append(entry.diagnose((), "wrong type", f"expected a mapping, got {describe(entry.value)}"))
        return entry._replace(value={})
    for name in (name for name in entry.value if name in names):
        what, why = f"not allowed in {section}", f"{name} says {names[name]}"
        problems.append(entry.diagnose((name,), what, why, "set it on the job", at_key=True))
    return entry._replace(value={name: value for name, value in entry.value.items() if name not in names})


#: The fields of a target's entry that are about the jobs.
VARIABLES, DEFAULTS = "variables", "defaults"


def variables_on(entry: MergedEntry | None) -> dict[str, Any]:
    return _section(entry, VARIABLES)


def defaults_on(entry: MergedEntry | None, problems: list[Diagnostic]) -> tuple[MergedEntry, ...]:
    """Return the `defaults` of a target, if any, without the fields that only a job may have."""
    if not entry or not (tree := _section(entry, DEFAULTS)):
        return ()
    part = MergedEntry(entry.document, (*entry.steps, DEFAULTS), tree)
    return (_without(part, NOT_IN_DEFAULTS, DEFAULTS, problems),)


def has_target_overrides(merged: MergedManifest) -> bool:
    """Whether the jobs may differ between targets."""
    restricted = ("targets" in entry.value for entry in merged.entries if isinstance(entry.value, dict))
    overrides = (_section(entry, VARIABLES) or _section(entry, DEFAULTS) for entry in merged.targets.values())
    targets = [entry.value for entry in merged.targets.values() if isinstance(entry.value, dict)]
    # Kinds differ in the durations that `auto_stop` may have.
    processes = sum(target.get("kind") == PROCESS for target in targets)
    return 0 < processes < len(targets) or any(overrides) or any(restricted)


def declared_on(
    target: str | None,
    merged: MergedManifest,
    templates: Templates,
    unknown: Callable[[str], tuple[str, str | None]],
) -> tuple[dict[str, MergedEntry], dict[str, tuple[str, ...]], list[Diagnostic]]:
    """Return the entries of a target, the target names of each other entry, and the problems of `targets`.

    `targets` must not have expressions, which may have no value on other targets.
    """
    problems: list[Diagnostic] = []
    for entry in merged.entries:
        value = entry.value.get("targets") if isinstance(entry.value, dict) else None
        for steps, name in one_or_more(value, "targets"):
            if isinstance(name, str) and "${" in name:
                why = "the targets of an entry are determined before expressions are evaluated"
                problems.append(entry.diagnose(steps, "expression not allowed here", why, "write the names"))
            elif isinstance(name, str) and name not in merged.targets:
                problems.append(entry.diagnose(steps, "unknown target", *unknown(name)))
        if value == []:
            why = "the entry would not belong to any target"
            problems.append(entry.diagnose(("targets",), "empty list", why))
    here, elsewhere = dict[str, MergedEntry](), dict[str, tuple[str, ...]]()
    for key, entry in merged.jobs.items():
        values = [part.value for part in (*templates.chain(extended_by(entry.value)), entry)]
        own = (part["targets"] for part in reversed(values) if isinstance(part, dict) and "targets" in part)
        names = keys_in(next(own, None))
        if target is None or not names or target in names:
            here[key] = entry
        else:
            elsewhere[key] = names
    return here, elsewhere, problems


def _section(entry: MergedEntry | None, name: str) -> dict[str, Any]:
    value = entry.value.get(name) if entry is not None and isinstance(entry.value, dict) else None
    return value if isinstance(value, dict) else {}


def _unite(
    into: dict[str, Any],
    tree: Mapping[str, Any],
    document: Document,
    steps: tuple[PathStep, ...],
    earlier: Sequence[Document],
) -> Iterator[Diagnostic]:
    """Merge a tree into another, and report values that differ."""
    for name, value in tree.items():
        path = (*steps, name)
        if name not in into:
            into[name] = deepcopy(value)
        elif isinstance(into[name], dict) and isinstance(value, Mapping):
            yield from _unite(into[name], value, document, path, earlier)
        elif name in NAMED_LISTS and is_named_list(into[name]) and is_named_list(value):
            by_name = {item["name"]: item for item in into[name]}
            for index, item in enumerate(value):
                if (first := by_name.get(item["name"])) is None:
                    into[name].append(deepcopy(item))
                else:
                    item_path = (*path, Member(index, item["name"]))
                    yield from _unite(first, item, document, item_path, earlier)
        elif not same(into[name], value):
            yield _disagree(document, path, earlier)


def same(value: Any, other: Any) -> bool:
    """Whether two values are the same. 1, 1.0 and true are different."""
    if isinstance(value, dict) and isinstance(other, dict):
        return value.keys() == other.keys() and all(same(value[key], other[key]) for key in value)
    if isinstance(value, list) and isinstance(other, list):
        return len(value) == len(other) and all(map(same, value, other))
    return type(value) is type(other) and bool(scalar_text(value) == scalar_text(other))


def _disagree(
    document: Document, steps: tuple[PathStep, ...], earlier: Sequence[Document], *, show_line: bool = True
) -> Diagnostic:
    others = [other for other in earlier if other is not document]
    first = next((other for other in others if find_node(other, steps)[2] == len(steps)), others[0])
    why = f"{location_of_key(first, steps)} has a different value"
    fix = "set it in one file, or the same in both"
    return diagnose(document, steps, "files disagree", why, fix, at_key=True, show_line=show_line)


_ENVIRONMENTS = "environments"


def check_items(entry: dict[str, Any], origin: Origin) -> tuple[dict[str, Any], list[Diagnostic]]:
    """Return a part of an entry without its invalid items, and their problems.

    Invalid are duplicate names in a list, and items of environments that are not a variable. The models only
    see the merged parts, in which an item may hide another of its name.
    """
    problems: list[Diagnostic] = []
    if "tasks" not in entry and list not in map(type, mapping_at(entry, "algorithm").values()):
        return entry, problems  # it has no lists

    def checked(algorithm: Mapping[str, Any], steps: tuple[PathStep, ...]) -> dict[str, Any]:
        result = dict(algorithm)
        for name in (*NAMED_LISTS, _ENVIRONMENTS):
            if isinstance(items := algorithm.get(name), list):
                result[name] = _valid_items(name, items, origin, (*steps, name), problems)
        return result

    result = with_algorithms(entry, checked)
    return (result, problems) if problems else (entry, problems)


def _valid_items(
    kind: str, items: list[Any], origin: Origin, steps: tuple[PathStep, ...], problems: list[Diagnostic]
) -> list[Any]:
    valid: list[Any] = []
    first: dict[str, tuple[PathStep, ...]] = {}
    for number, item in enumerate(items):
        invalid = [] if kind != _ENVIRONMENTS else list(_variable_problems(item, origin, (*steps, number)))
        # The names that an item declares, if it is known and valid.
        names = list(item) if isinstance(item, Mapping) and not invalid else []
        is_named = kind != _ENVIRONMENTS or ("name" in names and is_named_environment(item))
        if names and is_named:
            names = [item["name"]] if _is_key(item.get("name")) else []
        for name in names:
            path = (*steps, number, "name" if is_named else name)
            at_key = path[-1] != "name"
            if (earlier := first.setdefault(name, path)) is not path:
                place = origin.diagnose(earlier, "", at_key=earlier[-1] != "name").location
                why, fix = f'the name "{shorten(name)}" is used twice, first at {place}', "remove one of them"
                invalid.append(origin.diagnose(path, "duplicate name", why, fix, at_key=at_key))
        problems += invalid
        if not invalid and not isinstance(item, Unexpanded):
            valid.append(item)
    return valid


def _variable_problems(item: Any, origin: Origin, steps: tuple[PathStep, ...]) -> Iterator[Diagnostic]:
    if isinstance(item, Unexpanded):
        return
    if not isinstance(item, dict):
        yield origin.diagnose(steps, "wrong type", f"expected a mapping, got {describe(item)}")
    elif is_named_environment(item):
        if isinstance(name := item["name"], SecretText):
            why = f"{name.reference} is sensitive, but this field is shown and compared"
            yield origin.diagnose((*steps, "name"), "secret not allowed here", why)
            return
        below = Origin(tuple((document, (*prefix, *steps)) for document, prefix in origin.places))
        yield from validated(EnvironmentItem, item, below)[1]


UNKNOWN, UNKNOWN_TEMPLATE = "unknown key", "unknown template"


class Link(NamedTuple):
    """A reference to a key, in `needs`, `formerly` or the expression `text`, with its origin.

    `owner` is the key of the job that has it, or "" in a part of an entry that belongs to no job.
    """

    owner: str
    key: str
    origin: Origin
    steps: tuple[PathStep, ...]
    text: str = ""

    def diagnose(self, what: str, why: str, fix: str | None = None) -> Diagnostic:
        return self.origin.diagnose(self.steps, what, why, fix, self.text)

    @property
    def location(self) -> Location | None:
        return self.diagnose("", "").location


def one_or_more(value: Any, name: str) -> Iterator[tuple[tuple[PathStep, ...], Any]]:
    """Yield the path and value of each item of a field that has one item or a list of them."""
    if isinstance(value, list):
        yield from (((name, number), item) for number, item in enumerate(value))
    elif value is not None:
        yield (name,), value


def keys_in(value: Any) -> tuple[str, ...]:
    """Return the distinct keys of a text or a list. Items of other types are ignored."""
    return tuple(dict.fromkeys(str(item) for _, item in one_or_more(value, "") if isinstance(item, str)))


@dataclass(eq=False, repr=False)
class Links:
    """The references between the jobs of one stack. `entries` are all declared entries by key.

    `members` are the keys of each sweep: to need the sweep is to need all of them. `elsewhere` maps entries
    of other targets to the names of these targets.
    """

    entries: Mapping[str, MergedEntry]
    members: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    elsewhere: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    needs: list[Link] = field(default_factory=list)
    formerly: list[Link] = field(default_factory=list)
    _members_of: dict[tuple[str, ...], tuple[str, ...]] = field(default_factory=dict)

    @cached_property
    def known(self) -> frozenset[str]:
        """The keys of all jobs and sweeps."""
        return frozenset((*self.entries, *self.members))

    def add(self, entry: MergedEntry, value: Mapping[str, Any], references: Iterable[Link] = ()) -> None:
        """Add the links of an expanded entry, and the `references` in its expressions."""
        self.needs += (*_links(entry, "needs", value.get("needs")), *references)
        self.formerly += _links(entry, "formerly", value.get("formerly"))

    def members_of(self, keys: Iterable[str]) -> tuple[str, ...]:
        """Replace the keys of sweeps with their members."""
        keys = tuple(keys)
        if keys not in self._members_of:
            # Cached, so that the thousands of members of a sweep share one tuple.
            expanded = dict.fromkeys(member for key in keys for member in self.members.get(key, (key,)))
            self._members_of[keys] = tuple(expanded)
        return self._members_of[keys]

    def problems(self) -> Iterator[Diagnostic]:
        yield from self._former_problems()
        owner_of = {link.key: link.owner for link in self.formerly}
        known = (*self.entries, *self.members)
        nearest = cache(lambda key, own: did_you_mean(key, known, but_not=own))
        by_key: dict[str, dict[str, Link]] = {}
        for link in self.needs:
            if link.key in self.known:
                by_key.setdefault(link.owner, {}).setdefault(link.key, link)
                continue
            why, fix = f'"{shorten(link.key)}" is not declared in any file of the stack', None
            if link.key in self.elsewhere:
                why = f'"{shorten(link.key)}" belongs to target {few(self.elsewhere[link.key])} only'
            elif owner_of.get(link.key, link.owner) != link.owner:
                fix = f'write "{owner_of[link.key]}", which was "{link.key}" before'
            else:
                owner = self.entries.get(link.owner)
                fix = nearest(link.key, owner.names if owner else (link.owner,))
            yield link.diagnose(UNKNOWN, why, fix)
        if by_key:
            yield from self._cycle_problems(by_key)

    def _cycle_problems(self, by_key: Mapping[str, Mapping[str, Link]]) -> Iterator[Diagnostic]:
        """Yield each cycle once as written, not once for each member of a sweep."""
        graph = {**self.members, **{key: tuple(links) for key, links in by_key.items()}}
        reported: set[tuple[object, ...]] = set()
        for cycle in cycles(graph, (*self.entries, *self.members)):
            pairs = zip(cycle, (*cycle[1:], cycle[0]), strict=True)
            links = [by_key[key][below] for key, below in pairs if key in by_key]
            why = " needs ".join(shorten(link.key) for link in (links[-1], *links))
            if (identity := (why, self.entries[cycle[0]].steps, links[0].steps)) not in reported:
                reported.add(identity)
                fix = "remove one of them" if len(links) > 1 else "remove it"
                yield links[0].diagnose("dependency cycle", why, fix)

    def _former_problems(self) -> Iterator[Diagnostic]:
        names = {name.lower(): name for name in self.entries} if self.formerly else {}
        claims: dict[str, Link] = {}
        still, alike = "former key still declared", "keys differ only in case"
        for link in self.formerly:
            key, lower = link.key, link.key.lower()
            if why := key_problem(key):
                yield link.diagnose("invalid key", why)
            elif lower in names:
                name, location = names[lower], self.entries[names[lower]].location
                if name != key:
                    why = f'"{key}" and "{name}" at {location} would be the same job to the service'
                    yield link.diagnose(alike, why)
                elif name == link.owner:
                    yield link.diagnose(still, f'"{name}" is the job\'s own key', "remove it")
                else:
                    fix = f"remove that entry, or this {name}"
                    yield link.diagnose(still, f'"{name}" is declared at {location}', fix)
            elif (first := claims.setdefault(lower, link)) is not link:
                if key == first.key:
                    why = f'"{first.owner}" also lists "{key}" at {first.location}'
                    yield link.diagnose("former key claimed twice", why, "keep one of them")
                else:
                    why = f'"{key}" and "{first.key}" at {first.location} were the same job to the service'
                    yield link.diagnose(alike, why)


def _links(entry: MergedEntry, name: str, value: Any) -> Iterator[Link]:
    first: dict[str, tuple[PathStep, ...]] = {}
    for steps, item in one_or_more(value, name):
        if _is_key(item) and first.setdefault(item, steps) is steps:
            yield Link(entry.name, item, entry.origin, steps)


def _is_key(value: Any) -> bool:
    """Whether it is text that can be checked: secrets and texts without a value were reported before."""
    return isinstance(value, str) and not isinstance(value, SecretText | Unexpanded)


def cycles(needs: Mapping[str, tuple[str, ...]], order: tuple[str, ...]) -> Iterator[tuple[str, ...]]:
    """Yield cycles, such that breaking each of them leaves none. Each starts with its first key in `order`.

    The number of all cycles may be exponential.
    """
    rank = {key: number for number, key in enumerate(order)}
    done: set[str] = set()
    for start in order:
        if start in done or start not in needs:
            continue
        path: dict[str, Iterator[str]] = {start: iter(needs[start])}
        while path:
            key = next(reversed(path))
            below = next(path[key], None)
            if below is None:
                done.add(key)
                del path[key]
            elif below in path:
                cycle = list(path)[list(path).index(below) :]
                first = cycle.index(min(cycle, key=rank.__getitem__))
                yield tuple(cycle[first:] + cycle[:first])
            elif below not in done and below in needs:
                path[below] = iter(needs[below])


EXTENDS = "extends"


@dataclass(eq=False, repr=False)
class Templates:
    """The templates of one stack. Each is merged into a job at most once, in its first position."""

    entries: Mapping[str, MergedEntry] = field(default_factory=dict)
    used: set[str] = field(default_factory=set)

    def chain(self, names: Iterable[str]) -> tuple[MergedEntry, ...]:
        """Return the named templates and all that they extend, overridden ones first."""
        chain: dict[str, MergedEntry] = {}
        seen: set[str] = set()
        path = [("", iter(names))]
        while path:
            name, bases = path[-1]
            base = next((base for base in bases if base in self.entries and base not in seen), None)
            if base is not None:
                seen.add(base)
                path.append((base, iter(extended_by(self.entries[base].value))))
            elif path.pop() and path:
                chain[name] = self.entries[name]
        self.used.update(chain)
        return tuple(chain.values())

    def check(self, entry: MergedEntry, value: Any) -> Iterator[Diagnostic]:
        """Report each template that an entry extends and that is not declared."""
        for steps, name in one_or_more(value.get(EXTENDS) if isinstance(value, dict) else None, EXTENDS):
            if isinstance(name, str) and name not in self.entries:
                why = f'"{shorten(name)}" is not declared under templates in any file of the stack'
                own = entry.names if entry.steps[0] == "templates" else ()
                nearest = did_you_mean(name, tuple(self.entries), but_not=own)
                yield entry.diagnose(steps, UNKNOWN_TEMPLATE, why, nearest)

    def problems(self) -> Iterator[Diagnostic]:
        for entry in self.entries.values():
            yield from self.check(entry, entry.value)
        extends = {name: extended_by(entry.value) for name, entry in self.entries.items()}
        for cycle in cycles(extends, tuple(self.entries)):
            why = " extends ".join(shorten(name) for name in (*cycle, cycle[0]))
            yield self.entries[cycle[0]].diagnose((EXTENDS,), "template cycle", why, "remove one of them")


def extended_by(value: Any) -> tuple[str, ...]:
    return keys_in(value.get(EXTENDS)) if isinstance(value, dict) else ()
