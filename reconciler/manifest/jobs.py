"""From an entry under `jobs` to a desired job: expressions, defaults, outputs of others, models, create body.

Entries are merged before `${jobs.KEY.outputs.NAME}` is resolved: an output in `defaults` that the job
overrides needs no other job. The path of an output may refer to an output of a third job.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial, reduce
from pathlib import Path
from typing import Any, NamedTuple

from pydantic import ValidationError

from reconciler.code import CodeRejected, CodeSource, check_keys, read_code
from reconciler.core.body import (
    CURRENT,
    OWN_KEYS,
    covered_by,
    create_body,
    desugar,
    digest_of,
    mapping_at,
    merge,
)
from reconciler.core.canonical import FieldRule, member_rule, rules, value_at, walk_rules
from reconciler.core.code import Code, declared_form
from reconciler.core.identity import room_for_description
from reconciler.core.lifecycle import Lifecycle
from reconciler.core.scalar import (
    OutputName,
    Reference,
    RevisionText,
    UnresolvedText,
    holds,
    is_out_of_range,
    numbered,
    out_of_range_numbers,
    parts_of,
    plain,
    plain_text,
    scalar_text,
)
from reconciler.core.stack import CodeEntry, DesiredJob, JobEntry
from reconciler.errors import Diagnostic, Location
from reconciler.manifest.expressions import (
    ANY_KEY,
    LINK,
    Expander,
    expand_partly,
    is_plain,
    mark_unknown,
    measure,
    mentions_job,
    problems_in,
)
from reconciler.manifest.matrix import MATRIX, member_key, value_texts, with_member_keys
from reconciler.manifest.merge import (
    EXTENDS,
    Link,
    Links,
    MergedEntry,
    Templates,
    check_items,
    extended_by,
    keys_in,
)
from reconciler.manifest.problems import (
    SECONDARY_ERRORS,
    NoValue,
    Origin,
    PathStep,
    Problem,
    Unexpanded,
    describe,
    diagnostics,
    did_you_mean,
    format_path,
    listed,
    location_of_key,
    member_at,
    not_a_mapping,
    raw_problems,
    steps_of,
)
from reconciler.manifest.yaml import shorten
from reconciler.secrets import SecretText, leaves
from reconciler.text import few

UNKNOWN_OUTPUT = "unknown output"
#: The path of an output's URL.
_URL = ("remote", "obs", "obs_url")
_Path = tuple[str | int, ...]


class MergedJob(NamedTuple):
    """An entry merged with all that it inherits.

    `tree` has references to outputs as written, until `Outputs.resolve` replaces them and sets `references`,
    one for each other job. If it `is_plain`, it has no references, nulls and secrets.
    """

    tree: dict[str, Any]
    origin: Origin
    expander: Expander
    has_body: bool = True
    is_whole: bool = True
    references: tuple[Link, ...] = ()
    is_plain: bool = False

    @property
    def is_absent(self) -> bool:
        return bool(self.tree.get("state") == "absent")


#: An output has no path, for a reason that is reported elsewhere.
_REPORTED_ELSEWHERE = Problem("")
#: The URL of an output, if any, and the path of that in the entry.
_Output = tuple[Any, tuple[PathStep, ...]]


@dataclass(eq=False, repr=False)
class Outputs:
    """Replaces references to outputs with paths, and adds needs to `links` and problems to `problems`.

    `merged` merges an entry, or returns None after it has reported why not.
    """

    links: Links
    merged: Callable[[MergedEntry], MergedJob | None]
    problems: list[Diagnostic]
    _jobs: dict[str, tuple[MergedJob | None, dict[str, _Output]]] = field(default_factory=dict)
    _known: dict[OutputName, Any] = field(default_factory=dict)

    def resolve(self, job: MergedJob, owner: str | None) -> MergedJob:
        """Return the job with all references to outputs replaced, and with `references` set.

        `owner` is its key, None for a part of an entry that is checked without a job.
        """
        if job.is_plain or not job.expander.kept:
            return job
        links: dict[str, Link] = {}
        is_whole = job.is_whole

        def place(tree: Any, path: _Path) -> Any:
            nonlocal is_whole
            if isinstance(tree, dict):
                return {name: place(value, (*path, name)) for name, value in tree.items()}
            if isinstance(tree, list):
                return [place(value, (*path, number)) for number, value in enumerate(tree)]
            if not isinstance(tree, UnresolvedText):
                return tree
            steps = steps_of(path, job.tree)
            for reference, (key, _) in self._outputs_in(tree, job):
                # References to outputs of an absent job, or of a sweep, are refused.
                is_sweep = key in self.links.members and key not in self.links.entries
                is_refused = key == owner or is_sweep
                if not is_refused and not ((other := self._job(key)[0]) and other.is_absent):
                    links.setdefault(key, Link(owner or "", key, job.origin, steps, reference.text))
            value = self._value(tree, job, owner, steps)
            is_whole = is_whole and not isinstance(value, Unexpanded)
            return value

        tree = place(job.tree, ())
        return job._replace(tree=tree, is_whole=is_whole, references=tuple(links.values()))

    def location_of(self, named: OutputName, job: MergedJob) -> Location | None:
        """Return the location of an output that a job refers to; None if it does not exist."""
        with suppress(NoValue):
            named = self._expanded(named, job)
        other, outputs = self._job(named.key)
        if other is None or named.name not in outputs:
            return None
        return other.origin.diagnose(outputs[named.name][1], "").location

    def _value(self, text: UnresolvedText, job: MergedJob, owner: str | None, steps: Any) -> Any:
        """Return the text with its paths. If one has no path, report it and return `Unexpanded`."""
        outputs = partial(self._path, job, owner)
        expander = replace(job.expander, keeps_outputs=False, outputs=outputs)
        try:
            value = expander.text(text)
        except NoValue:
            problems = (problem for _, problem in problems_in(str(text), expander) if problem.what)
            self.problems += [job.origin.diagnose(steps, *problem) for problem in problems]
            return Unexpanded(text)
        return SecretText(value, text.secret) if text.secret and not isinstance(value, SecretText) else value

    def _outputs_in(self, text: UnresolvedText, job: MergedJob) -> Iterator[tuple[Reference, OutputName]]:
        """Yield the outputs that a text refers to, except those whose name cannot be expanded."""
        for reference, named in text.outputs:
            with suppress(NoValue):
                yield reference, self._expanded(named, job)

    def _expanded(self, named: OutputName, job: MergedJob) -> OutputName:
        """Replace `${matrix.AXIS}` in the name of an output.

        Raises:
            NoValue: the job has no such axis.
        """
        if "${" not in named.key + named.name:
            return named
        matrix = job.expander.matrix
        literal = str(job.expander.text(named.key))
        spelled = str(replace(job.expander, matrix=matrix and value_texts(matrix)).text(named.key))
        return OutputName(member_key(literal, spelled, self.links.known), str(job.expander.text(named.name)))

    def _path(self, job: MergedJob, owner: str | None, reference: Reference, named: OutputName) -> Any:
        """Return the path of one output. Iterative, since chains of references may be long.

        Raises:
            NoValue: it has none. The problem is empty if it is reported elsewhere.
        """
        named = self._expanded(named, job)
        if named.key == owner:
            own = shorten(named.key)
            why = f'"{own}" is the job that refers to it; only outputs of other jobs can be named'
            fix = "write the path, or a variable that holds it"
            raise NoValue("reference to itself", why, fix, reference.text)
        pending = {} if named in self._known else {named: self._dependencies(named)}
        while pending:
            current = next(reversed(pending))
            other = next((other for other in pending[current] if other not in self._known), None)
            if other is not None and other not in pending:
                pending[other] = self._dependencies(other)
                continue
            del pending[current]
            # A cycle of references is reported as a cycle of needs.
            self._known[current] = self._evaluated(current) if other is None else _REPORTED_ELSEWHERE
        if isinstance(path := self._known[named], Problem):
            raise NoValue(*path[:3], reference.text)
        if isinstance(path, RevisionText) and owner is not None:
            job.expander.numbered.add(owner)
        return path

    def _dependencies(self, named: OutputName) -> Iterator[OutputName]:
        """Yield the outputs of other jobs that the path of an output refers to."""
        job, outputs = self._job(named.key)
        url, _ = outputs.get(named.name, (None, ()))
        if job is not None and isinstance(url, UnresolvedText):
            yield from (other for _, other in self._outputs_in(url, job) if other.key != named.key)

    def _evaluated(self, named: OutputName) -> Any:
        """Return the path of an output whose dependencies are known, or the problem if it has none."""
        key, name = named
        if key not in self.links.entries:
            # Unknown keys are reported with the links, sweeps without members with the sweeps.
            if not (members := self.links.members.get(key)):
                return _REPORTED_ELSEWHERE
            why = f'"{key}" is a sweep of {len(members)} jobs: {few(members)}'
            fix = f"name one job: ${{jobs.{members[0]}.outputs.{name}}}"
            return Problem("reference to a sweep", why, fix)
        job, outputs = self._job(key)
        place = f'"{key}" at {self.links.entries[key].location}'
        if job is None:
            return _REPORTED_ELSEWHERE
        if job.is_absent:
            why = f"{place} has state: absent, so nothing writes its outputs"
            return Problem("reference to an absent job", why)
        if name not in outputs:
            declared = f"it has {listed(tuple(map(shorten, outputs)))}" if outputs else "it declares none"
            why = f'{place} has no output "{shorten(name)}"; {declared}'
            return Problem(UNKNOWN_OUTPUT, why, did_you_mean(name, tuple(outputs)))
        url, steps = outputs[name]
        if isinstance(url, UnresolvedText):
            # Report its problems now: once the budget is exceeded, that job is not read.
            url = self._value(url, job, key, steps)
        if isinstance(url, Unexpanded):
            return _REPORTED_ELSEWHERE
        if isinstance(url, RevisionText):
            if url.is_of_outputs:
                why = f"the path of {place} already contains another job's revision number"
                return Problem(
                    "reference to a numbered path", why, "write the path, or name that job's output"
                )
            return RevisionText([(named, url)])
        if isinstance(url, Problem) or (isinstance(url, str) and url):
            return url
        return Problem(
            "output without an OBS path", f'"{shorten(name)}" of {place} has no remote.obs.obs_url'
        )

    def _job(self, key: str) -> tuple[MergedJob | None, dict[str, _Output]]:
        """Return the job of a key, None if it cannot be read, and its declared outputs."""
        if key not in self._jobs:
            entry = self.links.entries.get(key)
            job = None if entry is None else self.merged(entry)
            self._jobs[key] = job, {} if job is None else _declared_by(job.tree)
        return self._jobs[key]


def _declared_by(tree: Mapping[str, Any]) -> dict[str, _Output]:
    """Return the outputs of a merged entry, including those of its tasks and of `raw`."""
    raw = tree.get("raw")
    if isinstance(raw, Mapping):
        tree = {**tree, "raw": desugar(raw)}
    in_tasks: dict[str, _Output] = {}
    for number, _ in enumerate(tasks if isinstance(tasks := tree.get("tasks"), list) else ()):
        for path in (("tasks", number, "algorithm"), ("tasks", number, "algorithm", "job_config")):
            for name, (url, steps) in _outputs_at(tree, path):
                if in_tasks.setdefault(name, (url, steps))[0] != url:
                    why = f'more than one task declares "{shorten(name)}", with different paths'
                    in_tasks[name] = Problem("ambiguous output", why, "write the path"), steps
    return in_tasks | dict(_outputs_at(tree, ("algorithm",))) | dict(_outputs_at(tree, ("raw", "algorithm")))


def _outputs_at(tree: Any, path: _Path) -> Iterator[tuple[str, _Output]]:
    outputs = reduce(member_at, (*path, "outputs"), tree)
    for number, output in enumerate(outputs if isinstance(outputs, list) else ()):
        if isinstance(name := member_at(output, "name"), str):
            yield name, (reduce(member_at, _URL, output), steps_of((*path, "outputs", number, *_URL), tree))


class ValueOrigin(NamedTuple):
    """One value of a job, its location, and its text if that has expressions.

    `sources` are the expressions in the text, each with the source of its value if that is known.
    """

    path: str
    value: Any
    location: Location | None
    expression: str | None
    sources: tuple[tuple[str, str], ...] = ()


def _leaves(tree: Any, path: _Path) -> Iterator[tuple[_Path, Any]]:
    """Yield all values with their paths, except the names in named lists."""
    if isinstance(tree, Mapping) and tree:
        for name, member in tree.items():
            if not (name == "name" and path and isinstance(path[-1], int)):
                yield from _leaves(member, (*path, name))
    elif isinstance(tree, list) and tree:
        for number, member in enumerate(tree):
            yield from _leaves(member, (*path, number))
    else:
        yield path, tree


#: Fields of an absent entry that do not declare a body.
_NO_BODY = frozenset({"state", "lifecycle", "description", "extends", "needs", "formerly"})
#: Fields that are shown or compared, so that they must not be secret.
_SHOWN = ("description", "lifecycle", "state", "kind", "needs", "formerly")
#: The same, at any level.
_SHOWN_MEMBERS = ("name", "local_path")

_Secrets = list[tuple[_Path, SecretText]]


class _Inherited(NamedTuple):
    """The tree that an entry is merged over, and its `parts`, overridden ones first.

    It `is_whole` if all expressions have a value, `is_shared` if no expression depends on the job, `is_plain`
    if it is shared and has no references, nulls and secrets.
    """

    tree: dict[str, Any]
    parts: list[dict[str, Any]]
    is_whole: bool
    is_shared: bool
    is_plain: bool


@dataclass(eq=False, repr=False)
class JobReader:
    """Reads the entries of one stack, and collects `problems`, `warnings` and `secrets`.

    `origins` has the origins of the values of the `traced` job, or of each member of the traced sweep.
    `takes_seconds` is True if `auto_stop` need not be whole hours on this target.
    """

    stack: str
    expander: Expander
    links: Links
    defaults: tuple[MergedEntry, ...] = ()
    templates: Templates = field(default_factory=Templates)
    traced: str | None = None
    origins: dict[str, tuple[ValueOrigin, ...]] = field(default_factory=dict)
    source_of: Callable[[str], str | None] = lambda _: None
    skip: frozenset[str] = frozenset()
    takes_seconds: bool = False
    codes: CodeReader | None = None
    problems: list[Diagnostic] = field(default_factory=list)
    warnings: list[Diagnostic] = field(default_factory=list)
    secrets: set[str] = field(default_factory=set)
    _defaults_are_used: bool = False
    #: By id of the entry: expanded defaults and templates that do not depend on the job, and whether whole.
    _parts: dict[int, tuple[dict[str, Any], bool]] = field(default_factory=dict)
    #: By the names of templates, see `_inherited`.
    _chains: dict[tuple[str, ...], _Inherited] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.expander = replace(self.expander, keeps_outputs=True)
        self._outputs = Outputs(self.links, self._merged, self.problems)

    def read(self, entry: MergedEntry) -> DesiredJob | None:
        """Return the desired job of an entry, or None if it has problems."""
        if self.expander.budget.is_exceeded:
            return None  # already reported, and this job may be just as large
        before = len(self.problems)
        merged = self._merged(entry)
        if merged is None:
            return None
        job = self._outputs.resolve(merged, entry.name)
        if entry.name in job.expander.numbered:
            job = self._check_revision_numbers(job)
        keys = (*keys_in(job.tree.get("needs")), *keys_in(job.tree.get("formerly")))
        if not self._is_affordable(LINK * len(keys), job.origin):
            return None
        self.links.add(entry, job.tree, job.references)
        if self.traced in entry.names:
            # The needs that are implied by references.
            implied = (ValueOrigin("needs", link.key, link.location, link.text) for link in job.references)
            self.origins[entry.name] = (*self._origins(entry, job), *implied)
        desired = self._validated(entry, job)
        return desired if len(self.problems) == before else None

    def _check_revision_numbers(self, job: MergedJob) -> MergedJob:
        """Report revision numbers in fields that are not sent to the service, and make them unknown."""
        tree = dict(job.tree)
        for name in OWN_KEYS - {"raw"} & tree.keys():
            for path, value in _leaves(tree[name], (name,)):
                if isinstance(value, RevisionText):
                    why = "a revision number is allowed only in fields sent to the service"
                    steps = steps_of(path, job.tree)
                    self.problems.append(job.origin.diagnose(steps, "expression not allowed here", why))
                    tree[name] = mark_unknown(tree[name], lambda text: isinstance(text, RevisionText))
        return job._replace(tree=tree, is_whole=job.is_whole and tree == job.tree)

    def check_inherited(self) -> None:
        """Check `defaults` and templates on their own: each job may override their errors."""
        for part in () if self.expander.budget.is_exceeded else self.defaults:
            self._check_alone(part.value, part.origin, is_used=self._defaults_are_used)
        for name, template in self.templates.entries.items():
            self._check_alone(template.value, template.origin, is_used=name in self.templates.used)

    def _check_alone(self, tree: dict[str, Any], origin: Origin, *, is_used: bool) -> None:
        """Check an inherited part without a job. `is_used` is True if a job inherits it."""
        expander = self.expander.for_job(ANY_KEY)
        tree, _ = self._expanded(mark_unknown(tree, lambda text: "${matrix." in text), expander, origin)
        tree = desugar(tree)
        self._secrets_in(tree)
        if is_used:
            # Resolved by the jobs that do not override them.
            tree = mark_unknown(tree, lambda text: isinstance(text, UnresolvedText))
        # What depends on the job is unknown.
        tree = mark_unknown(_without_templates(tree), lambda text: type(text) is str and ANY_KEY in text)
        part = self._outputs.resolve(MergedJob(_without_removed(tree), origin, expander), None)
        self.links.needs += part.references
        # The boot file may be relative to the code of a job.
        tree = _with_unknown_boot_file(part.tree)
        try:
            JobEntry.model_validate(tree)
        except ValidationError as error:
            self.problems += diagnostics(error, JobEntry, tree, origin, SECONDARY_ERRORS)
        self.problems += raw_problems(part.tree.get("raw"), origin)

    def _merged(self, entry: MergedEntry) -> MergedJob | None:
        """Merge an entry with all that it inherits. Returns None if its problems leave nothing to check."""
        own = entry.origin
        if not isinstance(entry.value, dict):
            self.problems.append(not_a_mapping(entry.value, own))
            return None
        plain, expander = is_plain(entry.value), self.expander
        if plain:
            value, is_whole = self._with_valid_items(entry.value, own)
        else:
            expander = expander.for_job(entry.name, entry.matrix)
            value, is_whole = self._expanded(entry.value, expander, own)
            value = with_member_keys(entry, value, expander, self.links.known)
        templates: tuple[MergedEntry, ...] = ()
        if EXTENDS in value:
            self.problems += self.templates.check(entry, value)
            templates = self.templates.chain(extended_by(value))
        inherited = self._inherited(templates, entry)
        base = inherited.tree
        if plain and not inherited.is_plain:
            plain, expander = False, expander.for_job(entry.name, entry.matrix)
        has_body = value.get("state") != "absent" or not value.keys() <= _NO_BODY
        if not has_body:
            base = {"lifecycle": base["lifecycle"]} if "lifecycle" in base else {}
        self._defaults_are_used |= has_body
        size = self.expander.budget.size_of if inherited.is_shared else measure
        if base and not self._is_affordable(size(base), own):
            return None
        own_part = desugar(_without_templates(value))
        merged = merge(base, own_part)
        if not plain and holds(merged, lambda value: value is None):
            merged = _without_removed(merged)
        layers = (entry, *reversed(templates), *reversed(self.defaults))
        places = tuple((layer.document, layer.steps) for layer in layers)
        origin = Origin(places, (own_part, *reversed(inherited.parts)))
        is_whole = is_whole and inherited.is_whole
        return MergedJob(merged, origin, expander, has_body, is_whole, is_plain=plain)

    def _origins(self, entry: MergedEntry, job: MergedJob) -> Iterator[ValueOrigin]:

        def source(reference: Reference) -> str | None:
            kind, _, name = reference.inner.partition(".")
            location = None
            if kind == "matrix" and name in (entry.matrix or {}):
                location = location_of_key(entry.document, (*entry.steps, MATRIX, name))
            elif reference.output is not None:
                location = self._outputs.location_of(reference.output, job)
            if location is not None:
                return f"{location.file}:{location.line}"
            return self.source_of(name) if kind == "var" else None

        for path, value in _leaves(job.tree, ()):
            steps = steps_of(path, job.tree)
            text = job.origin.expression(steps)
            references = (part for part in dict.fromkeys(parts_of(text or "")) if isinstance(part, Reference))
            sources = tuple((part.inner, origin) for part in references if (origin := source(part)))
            yield ValueOrigin(
                format_path(steps), value, job.origin.diagnose(steps, "").location, text, sources
            )

    def _is_affordable(self, size: int, origin: Origin) -> bool:
        """Whether the budget allows one more job of this size, without its expressions; else report it."""
        budget = self.expander.budget
        is_allowed = budget.allows(size)
        if not is_allowed:
            self.problems.append(origin.diagnose((), *budget.problem(), at_key=True))
        return is_allowed

    def _inherited(self, templates: Sequence[MergedEntry], entry: MergedEntry) -> _Inherited:
        """Merge the defaults and the templates of an entry.

        Cached by templates, which thousands of jobs may share, if no expression depends on the job.
        """
        chain = tuple(template.name for template in templates)
        if chain in self._chains:
            return self._chains[chain]
        expander = self.expander.for_job(entry.name, entry.matrix)
        tree: dict[str, Any] = {}
        parts, are_whole = [], True
        for source in (*self.defaults, *templates):
            part, is_whole = self._part(source, expander)
            tree, are_whole = merge(tree, part), is_whole and are_whole
            parts.append(part)
        is_shared = all(id(source) in self._parts for source in (*self.defaults, *templates))
        inherited = _Inherited(tree, parts, are_whole, is_shared, is_shared and is_plain(tree))
        if is_shared:
            self._chains[chain] = inherited
        return inherited

    def _part(self, entry: MergedEntry, expander: Expander) -> tuple[dict[str, Any], bool]:
        """Expand defaults or a template. Cached, unless an expression depends on the job."""
        if id(entry) in self._parts:
            return self._parts[id(entry)]
        tree = {name: member for name, member in entry.value.items() if name != EXTENDS}
        expanded, is_whole = self._expanded(tree, expander, entry.origin)
        part = desugar(expanded), is_whole
        if not mentions_job(tree):
            self._parts[id(entry)] = part
        return part

    def _expanded(
        self, tree: dict[str, Any], expander: Expander, origin: Origin
    ) -> tuple[dict[str, Any], bool]:
        """Return the expanded tree, and whether all of it is valid and has a value.

        Named lists are checked here: after merging by name, an item may hide another.
        """
        is_whole = True
        try:
            expanded = expander.tree(tree)
        except NoValue:
            for steps, problem in problems_in(tree, expander):
                self.problems.append(origin.diagnose(steps, *problem))
            expanded, is_whole = expand_partly(tree, expander), False
        expanded, are_valid = self._with_valid_items(expanded, origin)
        return expanded, is_whole and are_valid

    def _with_valid_items(self, tree: dict[str, Any], origin: Origin) -> tuple[dict[str, Any], bool]:
        tree, problems = check_items(tree, origin)
        self.problems += problems
        return tree, not problems

    def _validated(self, entry: MergedEntry, job: MergedJob) -> DesiredJob | None:
        merged, origin, has_body = job.tree, job.origin, job.has_body
        secrets = [] if job.is_plain else self._secrets_in(merged)
        lifecycle, max_parallel = Lifecycle(), None
        is_numbered = entry.name in job.expander.numbered
        code = None
        if "code" in merged:
            merged, code = self._with_code(merged, origin, job.is_absent)
        problems: list[Diagnostic] = []
        is_valid = True
        try:
            valid = JobEntry.model_validate(numbered(merged, 1, lambda _: 1) if is_numbered else merged)
            lifecycle, max_parallel = valid.lifecycle, valid.max_parallel
        except ValidationError as error:
            skip = self.skip if job.is_whole and not job.is_absent else SECONDARY_ERRORS
            problems = list(diagnostics(error, JobEntry, merged, origin, skip))
            is_valid = not problems and job.is_whole  # if not, other problems can be found all the same
            # Not an error: an absent job needs no body, and a secret may be unknown offline.
            has_body = has_body and not job.is_absent
            with suppress(ValidationError):
                lifecycle = Lifecycle.model_validate(merged.get("lifecycle") or {})
        reported = {problem.location for problem in problems}
        description = merged.get("description") or ""
        description = description if isinstance(description, str) else ""
        # With the longest revision numbers that `room_for_description` allows for.
        length = len(numbered(description, 9999, lambda _: 9999))
        if length > (room := room_for_description(self.stack, entry.name)):
            why = f"it has {length} characters; next to the marker at most {room} are allowed"
            problems.append(origin.diagnose(("description",), "description too long", why))
        for steps, secret in secrets:
            if is_numbered and "${job.revision}" in str.__str__(secret):
                why = f"{secret.reference} is sensitive, but text that contains a revision number is shown"
            elif steps[0] in _SHOWN or steps[-1] in _SHOWN_MEMBERS:
                why = f"{secret.reference} is sensitive, but this field is shown and compared"
            else:
                continue
            problem = origin.diagnose(steps_of(steps, merged), "secret not allowed here", why)
            if problem.location not in reported:
                problems.append(problem)
        if mapping_at(merged, "spec", "auto_stop").get("time_unit") == "SECONDS" and not self.takes_seconds:
            why, fix = (
                "must be whole hours, such as 8h or 2d",
                "a target of kind process accepts any duration",
            )
            problems.append(origin.diagnose(("spec", "auto_stop"), "value not allowed", why, fix))
        self.problems += problems
        self.problems += _ignored_problems(lifecycle.ignore_changes, merged, origin)
        found_in_raw = list(raw_problems(merged.get("raw"), origin)) if has_body else []
        self.problems += found_in_raw
        if found_in_raw or not is_valid:
            return None
        body = None
        if has_body:
            body = create_body(merged, holds_null=not job.is_plain)
            if "raw" in merged:
                self._secrets_in(body)  # `raw` may replace a sensitive value by another
            if not job.is_plain and holds(body, is_out_of_range):
                self.problems += _number_problems(merged, body, origin)
                return None
        implied = (link.key for link in job.references)
        return DesiredJob(
            key=entry.name,
            body=body,
            digest=_digest(body, lifecycle.rerun, code),
            description=description,
            lifecycle=lifecycle,
            is_absent=job.is_absent,
            needs=self.links.members_of((*keys_in(merged.get("needs")), *implied)),
            formerly=keys_in(merged.get("formerly")),
            location=entry.location,
            sweep=entry.entry,
            matrix=value_texts(entry.matrix or {}),
            max_parallel=max_parallel,
            is_numbered=is_numbered,
            code=code,
            code_store=self.codes.store if self.codes and code else "",
        )

    def _with_code(
        self, merged: dict[str, Any], origin: Origin, is_absent: bool
    ) -> tuple[dict[str, Any], Code | None]:
        """Return the job with the future paths of its code, and the code, which is None if it is invalid.

        The code of an absent job may be gone, and is not read.
        """
        try:
            entry = None if is_absent else CodeEntry.model_validate(merged["code"])
        except ValidationError:
            entry = None  # reported by `_validated`
        unexpanded = any(isinstance(value, Unexpanded) for value in leaves(merged["code"]))
        if entry is None or self.codes is None or unexpanded:
            return _with_unknown_boot_file(merged), None

        def refused(path: str, what: str, why: str, fix: str | None) -> tuple[dict[str, Any], None]:
            self.problems.append(origin.diagnose(tuple(path.split(".")), what, why, fix))
            return _with_unknown_boot_file(merged), None

        algorithm = mapping_at(merged, "algorithm")
        if not self.codes.store:
            fix = "add code_store: obs://BUCKET/PREFIX/ to the target, or to the root file for all"
            return refused("code", "code has no store", "the target has no code_store", fix)
        if algorithm.get("code_dir") or value_at(merged.get("raw") or {}, ("algorithm", "code_dir")):
            why = "`code` sets code_dir, so they cannot be declared together"
            return refused("algorithm.code_dir", "incompatible fields", why, "remove one of them")
        try:
            code = self.codes.read(origin.directory(("code", "source")), entry)
        except CodeRejected as problem:
            return refused("code.source", problem.what, problem.message, problem.diagnostics[0].fix)
        place = code.place(self.codes.store, self.stack)
        placed = {**algorithm, "code_dir": place}
        boot_file = algorithm.get("boot_file")
        if isinstance(boot_file, str):
            if not boot_file.endswith(".py") or boot_file not in (file.path for file in code.files):
                programs = [file.path for file in code.files if file.path.endswith(".py")]
                why = f'"{boot_file}" is not a Python file in {entry.source}'
                return refused("algorithm.boot_file", "no such file", why, did_you_mean(boot_file, programs))
            placed["boot_file"] = place + boot_file
        return {**merged, "algorithm": placed}, code

    def _secrets_in(self, merged: dict[str, Any]) -> _Secrets:
        """Return the secrets in a tree with their paths, and add their values to `secrets`."""
        secrets: _Secrets = []
        _find_secrets(merged, (), secrets)
        for _, secret in secrets:
            if secret.has_value:
                self.secrets.add(str.__str__(secret))
        return secrets


def _digest(body: Mapping[str, Any] | None, rerun: str | None, code: Code | None) -> str:
    if body is None:
        return ""
    form = covered_by(CURRENT, body, rerun)
    return digest_of(form if code is None else declared_form(form, code.digest))


class CodeReader:
    """Reads the code of jobs, each directory once. `store` is the code store of the target, or "".

    `root` is the directory of the stack's root file; code must be below it, or in the same work tree. `fetch`
    is called with a directory before it is read.
    """

    def __init__(self, root: Path, fetch: Callable[[Path], None], store: str, stack: str) -> None:
        self.store, self._stack, self._root, self._fetch = store, stack, root.resolve(), fetch
        above = [root.resolve(), *root.resolve().parents]
        self._within = next((path for path in above if (path / ".git").exists()), above[0])
        self._read: dict[tuple[object, ...], Code | CodeRejected] = {}

    def read(self, directory: Path, entry: CodeEntry) -> Code:
        """Return the code of an entry in a file of `directory`.

        Raises:
            CodeRejected: it is not a directory, is outside the work tree, or cannot be the code of a job.
        """
        identity = (directory, entry.source, tuple(entry.exclude), tuple(entry.include), entry.max_size)
        if identity not in self._read:
            try:
                self._read[identity] = self._read_uncached(directory, entry)
            except CodeRejected as problem:
                self._read[identity] = problem
        result = self._read[identity]
        if isinstance(result, CodeRejected):
            raise result
        return result

    def _read_uncached(self, directory: Path, entry: CodeEntry) -> Code:
        # By `os`: a name that is too long, and a link to itself, are no directories, and no errors.
        source = Path(os.path.realpath(directory / entry.source))
        fix = "name a directory, relative to this file"
        self._fetch(source)
        if not os.path.isdir(source):  # noqa: PTH112
            near = [f"./{path.name}" for path in directory.iterdir() if path.is_dir()]
            fix = did_you_mean(f"./{os.path.normpath(entry.source)}", near) or fix
            raise CodeRejected(f"{entry.source} is not a directory", fix=fix)
        if not source.is_relative_to(self._within):
            raise CodeRejected(f"{entry.source} is outside {self._within}", fix=fix)
        spec = CodeSource(source, tuple(entry.exclude), tuple(entry.include), entry.max_size)
        # Use the name as written, since the target of a link may change.
        name = Path(os.path.normpath(directory.absolute() / entry.source)).name
        code = read_code(spec)._replace(name=name)
        check_keys(code, code.place(self.store, self._stack))
        path = os.path.relpath(source, self._root)
        return code._replace(source=path, exclude=spec.exclude, include=spec.include, max_size=spec.max_size)


def _with_unknown_boot_file(tree: dict[str, Any]) -> dict[str, Any]:
    algorithm = mapping_at(tree, "algorithm")
    boot_file = algorithm.get("boot_file")
    if not isinstance(boot_file, str) or "://" in boot_file or boot_file.startswith("/"):
        return tree
    return {**tree, "algorithm": {**algorithm, "boot_file": Unexpanded(boot_file)}}


def _without_templates(value: dict[str, Any]) -> dict[str, Any]:
    """Remove `extends`, unless it has the wrong type, which the models report."""
    names = value.get(EXTENDS)
    if isinstance(names, str) or (isinstance(names, list) and all(isinstance(name, str) for name in names)):
        return {name: member for name, member in value.items() if name != EXTENDS}
    return value


def _without_removed(tree: Any) -> Any:
    """Remove members that are null, which removes what they would have inherited.

    Nulls in `raw`, which are sent, and null values of parameters are kept. Trees without null are not copied,
    since other jobs may share them.
    """
    if tree.__class__ is list:
        items = [_without_removed(item) for item in tree]
        return tree if all(new is old for new, old in zip(items, tree, strict=True)) else items
    if tree.__class__ is not dict:
        return tree
    kept = {
        name: value if name == "raw" else _without_removed(value)
        for name, value in tree.items()
        if value is not None or (name == "value" and "name" in tree)
    }
    is_same = len(kept) == len(tree) and all(value is tree[name] for name, value in kept.items())
    return tree if is_same else kept


def _find_secrets(tree: Any, steps: tuple[str | int, ...], into: _Secrets) -> None:
    for step, value in tree.items() if tree.__class__ is dict else enumerate(tree):
        cls = value.__class__
        if cls is str:
            continue
        if cls is dict or cls is list:
            _find_secrets(value, (*steps, step), into)
        elif cls is SecretText:
            into.append(((*steps, step), value))


def _ignored_problems(
    paths: Iterable[str], merged: Mapping[str, Any], origin: Origin
) -> Iterator[Diagnostic]:
    """Report paths in `lifecycle.ignore_changes` that are unknown or mutable."""
    for number, path in enumerate(paths):
        rule: FieldRule | None
        parts, rule = path.split("."), rules()
        for part in parts if path != "code" else ():
            rule = member_rule(rule, part) if rule and not rule.update else rule
        if rule is None and value_at(merged.get("raw") or {}, parts) is None:
            known = (".".join(names) for names, _ in walk_rules() if "[]" not in names)
            problem = "unknown path", f'"{shorten(path)}" is not a field of a job', did_you_mean(path, known)
        elif rule is not None and rule.update:
            problem = "field is not fixed at creation", f"{path} is updated in place", "remove it"
        else:
            continue
        yield origin.diagnose(("lifecycle", "ignore_changes", number), *problem)


def _number_problems(
    merged: Mapping[str, Any], body: Mapping[str, Any], origin: Origin
) -> Iterator[Diagnostic]:
    """Report numbers that cannot be sent to the service. In text fields they have become text."""
    sent = {plain_text(plain(value)) for _, value in out_of_range_numbers(body)}
    for steps, value in out_of_range_numbers(merged) if sent else ():
        if plain_text(plain(value)) in sent:
            why = f"must be finite, and an integer must fit in 64 bits; got {describe(value)}"
            fix = f'if text is intended, quote it: "{shorten(str(scalar_text(value)))}"'
            yield origin.diagnose(steps_of(steps, merged), "number out of range", why, fix)
