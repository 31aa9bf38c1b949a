"""Reading a stack: from PATH to desired jobs, or to every problem at once.

::

    PATH ──files──▶ documents ──merge──▶ one manifest ──variables, expand──▶ jobs ──▶ LoadedStack
"""

from __future__ import annotations

import gc
import hashlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from itertools import islice
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from pydantic import BaseModel

from reconciler.core.addresses import looks_like_passwords
from reconciler.core.stack import NO_PRICES, SECTIONS, DesiredJob, Limits, Stack, Target
from reconciler.errors import (
    Diagnostic,
    ManifestInvalid,
    Severity,
    WrongUsage,
    few_warnings,
    in_file_order,
)
from reconciler.manifest.expressions import (
    TOO_MUCH,
    Expander,
    ExpansionBudget,
    credential_problems,
    settings_budget,
    too_much,
)
from reconciler.manifest.files import StackFiles, find_stack, stack_of
from reconciler.manifest.jobs import UNKNOWN_OUTPUT, JobReader, ValueOrigin
from reconciler.manifest.matrix import Sweeps
from reconciler.manifest.merge import (
    UNKNOWN,
    Links,
    MergedEntry,
    MergedManifest,
    Templates,
    defaults_on,
    differs,
    merge_files,
    variables_on,
)
from reconciler.manifest.problems import (
    ENV_NOT_SET,
    NO_VALUE,
    UNKNOWN_VARIABLE,
    Origin,
    distinct,
    shown,
    validated,
)
from reconciler.manifest.settings import (
    RecordsSetting,
    Targets,
    default_problem,
    entry_problems,
    misplaced_urls,
)
from reconciler.manifest.variables import (
    GivenValues,
    VariableSection,
    VariableValues,
    marked_texts,
    problems_of,
    read_value_files,
    unknown_names,
)
from reconciler.manifest.yaml import Document
from reconciler.secrets import Redactor, service_credentials

if TYPE_CHECKING:
    from reconciler.core.settings import (
        Destination,
        VariableSource,
    )
    from reconciler.core.stack import IgnoreRule, Policy
    from reconciler.manifest.sections import NotifySetting


@dataclass(frozen=True)
class LoadedStack:
    """A stack as its files declare it.

    `targets` are read as far as the environment goes; `target` gives one that is whole. `target_name`
    is the one that the jobs are declared for, `differs` says whether they may be others on another one, and
    `on` gives the stack there. `secrets` every sensitive value that is known, used or not, and `sources`
    says of each sensitive variable with a value where it came from. `records_reference` is the URL of the
    record store without what is secret or comes from the environment; `records_url` gives it whole.
    `checked` are the same files as `check` read them on each target, where these differ. `origins` says
    where the values of the job come from that `load` was asked to trace. `file_names` are the names of the
    `files` in messages. `undeclared` are the variables that were given a value although no file of the stack
    declares them. `declared` has the keys of all files, each with its sweep, or "".
    """

    stack: Stack
    root: Path
    targets: Mapping[str, Target]
    target_name: str | None
    limits: Limits
    manifest_digest: str
    secrets: tuple[str, ...] = field(repr=False)
    files: tuple[Path, ...]
    warnings: tuple[Diagnostic, ...]
    file_names: tuple[str, ...] = ()
    records_reference: str | None = None
    sources: Mapping[str, VariableSource] = field(default_factory=dict)
    origins: tuple[ValueOrigin, ...] = field(default=(), repr=False)
    differs: bool = False
    undeclared: frozenset[str] = frozenset()
    declared: Mapping[str, str] = field(default_factory=dict)
    checked: tuple[LoadedStack, ...] = field(default=(), repr=False, compare=False)
    _targets: Targets = field(default_factory=Targets, repr=False, compare=False)
    _records: RecordsSetting = field(default_factory=RecordsSetting, repr=False, compare=False)
    _notify: NotifySetting | None = field(default=None, repr=False, compare=False)
    _on: Callable[[str | None, bool], LoadedStack] | None = field(default=None, repr=False, compare=False)

    def on(self, name: str | None, *, offline: bool) -> LoadedStack:
        """Return the stack as its files, as they were read, declare it on another target.

        Raises:
            ManifestInvalid: it is invalid there.
            WrongUsage: no target has that name.
        """
        assert self._on is not None
        return self._on(name, offline)

    def target(self, name: str | None = None) -> tuple[str, Target]:
        """Return a target with its name; left out, the manifest's default.

        Raises:
            WrongUsage: no target has that name, or none is named and there is no default.
            ManifestInvalid: its entry is invalid, or an expression in it has no value.
        """
        try:
            return self._targets.target(self.target_name if name is None else name)
        except ManifestInvalid as invalid:
            raise ManifestInvalid(*shown(invalid.diagnostics, Redactor(self.secrets))) from None

    def records_url(self) -> str | None:
        """Return where the record store is: `postgresql://…`, `sqlite:////absolute/path`, or None if no
        file says it. A URL with a secret in it is a `SecretText`.

        Raises:
            ManifestInvalid: an expression in it has no value, or what comes out is no address of a store.
        """
        try:
            return self._records.url()
        except ManifestInvalid as invalid:
            raise ManifestInvalid(*shown(invalid.diagnostics, Redactor(self.secrets))) from None

    @property
    def notifies(self) -> bool:
        """Whether drift and failed applies are told somewhere."""
        return bool(self._notify and self._notify.entries)

    def destinations(self) -> tuple[Destination, ...]:
        """Return where drift and failed applies are told; an entry whose URL has no value says why."""
        return tuple(
            replace(one, problem=shown([one.problem], Redactor(self.secrets))[0]) if one.problem else one
            for one in (self._notify.destinations() if self._notify else ())
        )


class Outline(NamedTuple):
    """The name of a stack and of its default target, None where they cannot be read, and its files.

    The names of the files are those of messages.
    """

    stack: str | None = None
    target: str | None = None
    files: tuple[str, ...] = ()


def outline(paths: Sequence[Path] | StackFiles, var_files: Sequence[Path] = ()) -> Outline:
    """Read the files that PATH stands for, if they were not found already, and check nothing.

    Raises:
        WrongUsage: a path does not exist, or there are several stacks to choose from.
    """
    try:
        found = paths if isinstance(paths, StackFiles) else find_stack(paths, var_files)
    except ManifestInvalid:
        return Outline()
    merged = merge_files(found.documents)
    target = merged.target or (next(iter(merged.targets)) if len(merged.targets) == 1 else None)
    return Outline(merged.stack or None, target, tuple(one.file for one in found.documents))


_Model = TypeVar("_Model", bound=BaseModel)
#: What may be told only because a broken file does not say what it would say.
_ECHOES_OF_BROKEN = frozenset({"missing", "rule"})

#: A list of thousands of keys that are wrong may stand in each of thousands of jobs.
_MOST_LINK_PROBLEMS = 1000


def load(
    paths: Sequence[Path],
    *,
    variables: Mapping[str, str] = MappingProxyType({}),
    var_files: Sequence[Path] = (),
    environ: Mapping[str, str],
    offline: bool = False,
    learn: Callable[[Iterable[str]], None] = lambda _: None,
    traced: str | None = None,
    target: str | None = None,
) -> LoadedStack:
    """Read the stack that PATH stands for, as it is on one target; left out, on the manifest's default.

    Where there is no default, it is read as it is on the first target whose expressions have a value.

    `variables` are the `--var` of the command line. `offline` is for commands that never send anything:
    a sensitive variable needs no value then. `learn` is told what must not be seen before anything else is
    done with it. `traced` is the key of a job whose values are traced to their places.

    Raises:
        ManifestInvalid: with all problems of all files, in file order.
        WrongUsage: a path or the target does not exist, or there are several stacks to choose from.
    """
    with _no_garbage_collection():
        inputs = _Inputs(variables, tuple(read_value_files(var_files)), environ, offline, learn, traced)
        return _load(find_stack(paths, var_files), inputs, target)


def check(
    paths: Sequence[Path] | StackFiles,
    *,
    variables: Mapping[str, str] = MappingProxyType({}),
    var_files: Sequence[Path] = (),
    environ: Mapping[str, str],
    learn: Callable[[Iterable[str]], None] = lambda _: None,
    target: str | None = None,
) -> tuple[LoadedStack, tuple[Diagnostic, ...]]:
    """Read a stack as it is on each of its targets, or on one, without values of sensitive variables.

    `paths` are PATH, or the files that were found already, see `find_stack`. A target is skipped if an
    environment variable that its variables or defaults use is not set. Returns the stack as on the default
    target, else on the first that was not skipped; and a warning for each one that was. If all had to be
    skipped, none is.

    Raises:
        ManifestInvalid: with the problems on all targets, in file order.
        WrongUsage: as `load`.
    """
    with _no_garbage_collection():
        inputs = _Inputs(variables, tuple(read_value_files(var_files)), environ, True, learn)
        files = paths if isinstance(paths, StackFiles) else find_stack(paths, var_files)
        merged = merge_files(files.documents)
        if target is not None or not any(map(differs, merged.targets.values())):
            return _load(files, inputs, target), ()
        return _check_each(files, merged, inputs)


def _check_each(
    files: StackFiles, merged: MergedManifest, inputs: _Inputs
) -> tuple[LoadedStack, tuple[Diagnostic, ...]]:
    default = [merged.target] if merged.target in merged.targets else []
    loaded: list[LoadedStack] = []
    skipped: dict[str, ManifestInvalid] = {}
    problems: list[Diagnostic] = []
    for name in dict.fromkeys((*default, *merged.targets)):
        try:
            loaded.append(_Loading(files, merged, inputs, name).finish(name))
        except ManifestInvalid as invalid:
            if any(_is_unset_on(name, problem) for problem in invalid.diagnostics):
                skipped[name] = invalid
                # What is wrong in its own entry is wrong whatever the environment holds.
                problems += [one for one in invalid.diagnostics if _is_wrong_in(name, one)]
            else:
                problems += invalid.diagnostics
    if len(skipped) == len(merged.targets):
        problems += next(iter(skipped.values())).diagnostics
    if problems:
        raise ManifestInvalid(*distinct(in_file_order(problems)))
    return replace(loaded[0], checked=tuple(loaded)), tuple(
        _skipped(name, invalid) for name, invalid in skipped.items()
    )


def _is_unset_on(name: str, problem: Diagnostic) -> bool:
    """Whether an environment variable is not set that a target's own variables or defaults use."""
    return problem.what == ENV_NOT_SET and problem.path.startswith(f"targets.{name}.")


def _is_wrong_in(name: str, problem: Diagnostic) -> bool:
    return problem.what != ENV_NOT_SET and problem.path.startswith(f"targets.{name}.")


def _skipped(name: str, invalid: ManifestInvalid) -> Diagnostic:
    first = next(problem for problem in invalid.diagnostics if _is_unset_on(name, problem))
    why = f'the target "{name}" was not checked: {first.why}'
    return first._replace(what="target skipped", why=why, severity=Severity.WARNING)


def load_files(
    files: StackFiles,
    *,
    variables: Mapping[str, str] = MappingProxyType({}),
    var_files: Sequence[Path] = (),
    environ: Mapping[str, str],
    offline: bool = False,
    learn: Callable[[Iterable[str]], None] = lambda _: None,
    target: str | None = None,
) -> LoadedStack:
    """Read a stack whose files were found already, see `find_stack`; the rest as `load`.

    Raises:
        ManifestInvalid: with all problems of all files, in file order.
        WrongUsage: the target does not exist.
    """
    with _no_garbage_collection():
        inputs = _Inputs(variables, tuple(read_value_files(var_files)), environ, offline, learn)
        return _load(files, inputs, target)


def load_mapping(
    mapping: Mapping[str, Any],
    root: Path,
    *,
    variables: Mapping[str, str] = MappingProxyType({}),
    environ: Mapping[str, str],
    offline: bool = False,
    learn: Callable[[Iterable[str]], None] = lambda _: None,
) -> LoadedStack:
    """Read a stack whose manifest is data; `root` is the directory where its records lie. `learn` as above.

    Raises:
        ManifestInvalid: with all problems.
        WrongUsage: there is no such directory.
    """
    return _load(stack_of(mapping, root), _Inputs(variables, (), environ, offline, learn), None)


@dataclass(frozen=True)
class _Inputs(GivenValues):
    """What a stack is read with, its files aside; see `load`."""

    learn: Callable[[Iterable[str]], None]
    traced: str | None = None
    jobs: ExpansionBudget = field(default_factory=ExpansionBudget, kw_only=True)

    @property
    def names(self) -> frozenset[str]:
        """The variables that were given a value from outside."""
        return frozenset((*self.given, *(name for document in self.value_files for name in document.tree)))


def _load(files: StackFiles, inputs: _Inputs, target: str | None) -> LoadedStack:
    merged = merge_files(files.documents)
    names = _names_to_try(merged, target)
    loaded, first = None, None
    for name in names:
        try:
            loaded = _Loading(files, merged, inputs, name).finish(target)
            break
        except ManifestInvalid as invalid:
            first = first or invalid
    if loaded is None:
        assert first is not None
        raise first
    for document in files.documents:
        document.forget()
    return replace(
        loaded,
        _on=lambda name, offline: _load(files.again(), replace(inputs, offline=offline, traced=None), name),
    )


def _names_to_try(merged: MergedManifest, target: str | None) -> tuple[str | None, ...]:
    """The targets that a stack may be read for, the first that goes is taken."""
    name = merged.target if target is None else target
    if name is not None:
        return (name,)
    return tuple(merged.targets) if any(map(differs, merged.targets.values())) else (None,)


@contextmanager
def _no_garbage_collection() -> Iterator[None]:
    """The collector would walk a hundred thousand young values over and over, and free none of them."""
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()


class _Loading:
    """One run of `load` for one target: the merged manifest, and the problems found so far."""

    def __init__(
        self, files: StackFiles, merged: MergedManifest, inputs: _Inputs, target: str | None
    ) -> None:
        self._files, self._merged, self._inputs = files, merged, inputs
        self._on = None if target is None else merged.targets.get(target)
        self._problems = list(merged.problems)
        self._problems += problems_of(inputs.value_files)
        self._is_broken = any(document.is_broken for document in (*files.documents, *inputs.value_files))

    def finish(self, target: str | None) -> LoadedStack:
        """Return the stack; `target` is the one that was asked for, None for the default."""
        merged, environ = self._merged, self._inputs.environ
        variables = VariableSection(merged.variables, merged.targets, self._on, self._inputs)
        values = variables.values
        documents = self._files.documents
        self._problems += credential_problems(documents)
        self._inputs.learn(variables.secrets(documents))
        targets = Targets(merged.targets, self._expanders(values, values.budget))
        readable, literals = self._checked(targets, variables)
        target_name = self._target_name(target, targets)
        records = self._records(values)
        self._problems += records.check()
        limits, prices = self._setting("limits", Limits()), self._setting("prices", NO_PRICES)
        policies, ignored_drift, notify = self._sections(values)
        expander = Expander(values, environ, budget=self._inputs.jobs)
        sweeps = Sweeps(expander)
        entries = sweeps.expand(merged.jobs)
        reader = JobReader(
            merged.stack,
            expander,
            Links(entries, sweeps.members),
            (*merged.defaults, *defaults_on(self._on)),
            Templates(merged.templates),
            skip=_ECHOES_OF_BROKEN if self._is_broken else frozenset(),
            traced=self._inputs.traced,
            source_of=variables.describe_source,
        )
        jobs = {key: job for key, entry in entries.items() if (job := reader.read(entry)) is not None}
        self._take_problems(reader, sweeps, variables)
        self._note_exceeded(self._inputs.settings, self._inputs.jobs)
        secrets = reader.secrets | variables.secrets(documents) | records.secrets()
        secrets |= notify.secrets() if notify else set()
        # They may stand in a target, and what is wrong there is told.
        secrets.update(service_credentials(environ))
        secrets.update(looks_like_passwords(environ.get("RECONCILER_RECORDS", "")))
        unread = misplaced_urls(documents, SECTIONS)
        self._raise_problems(Redactor(secrets | literals | unread))
        # What is not declared is terminated: a job may be left out only with a problem that says so.
        assert jobs.keys() == entries.keys()
        found = distinct(in_file_order([*variables.warnings, *reader.warnings]))
        warnings = shown(few_warnings(found), Redactor(secrets))
        return LoadedStack(
            stack=replace(
                self._stack(jobs, entries, warnings),
                limits=limits,
                prices=prices,
                policies=policies,
                ignored_drift=ignored_drift,
            ),
            root=self._files.root,
            targets=readable,
            target_name=target_name,
            limits=limits,
            manifest_digest=manifest_digest(documents),
            secrets=tuple(sorted(secrets)),
            files=tuple(document.path for document in documents),
            file_names=tuple(document.file for document in documents),
            warnings=warnings,
            records_reference=records.reference(),
            sources=variables.saved_sources(),
            origins=reader.origins,
            differs=any(map(differs, merged.targets.values())),
            undeclared=self._inputs.names - variables.declared.keys(),
            declared={key: job.sweep or "" for key, job in jobs.items() if not job.is_absent},
            _targets=Targets(merged.targets, self._expanders(values)),
            _records=records,
            _notify=notify,
        )

    def _expanders(
        self, values: VariableValues, budget: ExpansionBudget | None = None
    ) -> Callable[[str], Expander]:
        """What puts values into the entry of a target: those that hold on it."""
        environ = self._inputs.environ

        def expander_on(name: str) -> Expander:
            on_target = variables_on(self._merged.targets[name])
            own = values if on_target == values.on_target else values.on(on_target)
            return Expander(own, environ, takes_secrets=False, budget=budget or settings_budget())

        return expander_on

    def _checked(self, targets: Targets, variables: VariableSection) -> tuple[dict[str, Target], set[str]]:
        """The targets as far as they can be read, and literal secrets in them."""
        readable, problems, literals = targets.check()
        self._problems += problems
        for entry in self._merged.targets.values():
            self._problems += entry_problems(entry, variables.declared)
        return readable, literals

    def _take_problems(self, reader: JobReader, sweeps: Sweeps, variables: VariableSection) -> None:
        inputs = self._inputs
        if not self._is_broken:
            self._problems += unknown_names(
                inputs.given, inputs.value_files, variables.declared, self._files.known_variables
            )
        self._problems += variables.problems
        reader.check_defaults()
        reader.check_templates()
        self._problems += sweeps.problems
        self._problems += reader.templates.problems()
        self._problems += reader.problems
        self._problems += islice(reader.links.problems(), _MOST_LINK_PROBLEMS)
        # That a variable has no value is told where it is declared, and not wherever it is used.
        self._problems = [problem for problem in self._problems if problem.what != NO_VALUE]
        self._problems += variables.value_problems()

    def _note_exceeded(self, *budgets: ExpansionBudget) -> None:
        """Tell once that a manifest comes to too much, wherever that showed."""
        told = [problem for problem in self._problems if problem.what == TOO_MUCH]
        exceeded = next((one for one in budgets if one.is_exceeded), None)
        if exceeded is not None:
            _, what, why, fix = too_much(exceeded.limit)
            first = (*in_file_order(told), Diagnostic(what, why, fix))[0]
            self._problems = [first, *(one for one in self._problems if one.what != TOO_MUCH)]

    def _raise_problems(self, redact: Redactor) -> None:
        problems = self._problems
        if self._is_broken:
            # What a file that cannot be read declares is not known.
            unknown = (UNKNOWN_VARIABLE, UNKNOWN, UNKNOWN_OUTPUT)
            problems = [one for one in problems if one.what not in unknown]
        if problems:
            for document in self._files.documents:
                redact.learn(looks_like_passwords(document.text))
                redact.learn(marked_texts(document.tree))
            raise ManifestInvalid(*shown(distinct(in_file_order(problems)), redact))

    def _sections(
        self, values: VariableValues
    ) -> tuple[tuple[Policy, ...], tuple[IgnoreRule, ...], NotifySetting | None]:
        """The policies, the drift that is ignored and the notifications; most stacks have none of them."""
        merged, environ = self._merged, self._inputs.environ
        if not merged.policies and not merged.drift and not merged.notify:
            return (), (), None
        from reconciler.manifest.sections import NotifySetting, read_ignore_rules, read_policies

        policies, problems = read_policies(merged.policies)
        self._problems += problems
        ignored_drift, problems = read_ignore_rules(
            merged.drift, Expander(values, environ, takes_secrets=False, budget=values.budget)
        )
        self._problems += problems
        notify, problems = NotifySetting.read(merged.notify, values, environ)
        self._problems += problems
        return policies, ignored_drift, notify

    def _records(self, values: VariableValues) -> RecordsSetting:
        document = self._merged.records_at
        if document is None:
            return RecordsSetting()
        environ = self._inputs.environ
        return RecordsSetting(document, document.tree["records"], values, environ, self._files.root)

    def _stack(
        self,
        jobs: Mapping[str, DesiredJob],
        entries: Mapping[str, MergedEntry],
        warnings: tuple[Diagnostic, ...],
    ) -> Stack:
        in_view = self._files.in_view
        return Stack(
            name=self._merged.stack,
            jobs={key: job for key, job in jobs.items() if entries[key].document.path in in_view},
            declared_keys=frozenset(key for key, job in jobs.items() if not job.is_absent),
            is_partial=self._files.is_partial,
            warnings=warnings,
            whole=jobs,
        )

    def _setting(self, name: str, unset: _Model) -> _Model:
        """A section of settings, as all files say it together."""
        section = self._merged.settings[name]
        if not section.documents:
            return unset
        origin = Origin(tuple((document, (name,)) for document in section.documents))
        setting, problems = validated(type(unset), section.value, origin)
        self._problems += problems
        return setting or unset

    def _target_name(self, name: str | None, targets: Targets) -> str | None:
        """The target that the stack is read for; None if none was asked for, and there are several.

        Raises:
            WrongUsage: the one that was asked for does not exist.
        """
        merged = self._merged
        if name is not None:
            if name not in merged.targets and not self._is_broken:
                raise WrongUsage(targets.no_such_target(name))
            return name
        if merged.target is None:
            return next(iter(merged.targets)) if len(merged.targets) == 1 else None
        if merged.target not in merged.targets and not self._is_broken:
            self._problems.append(default_problem(merged.target, merged.target_at, targets))
        return merged.target


def manifest_digest(documents: Iterable[Document]) -> str:
    """The digest of what the files of a stack hold, byte for byte, and of their names below the root."""
    digest = hashlib.sha256()
    for document in sorted(documents, key=lambda document: document.relative):
        name = document.relative.encode("utf-8", "surrogateescape")
        # The lengths keep apart what one file ends with and the next one begins with.
        digest.update(f"{len(name)} {len(document.data)}\n".encode() + name + b"\n")
        digest.update(document.data)
    return f"sha256:{digest.hexdigest()}"
