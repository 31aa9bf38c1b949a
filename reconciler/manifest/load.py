"""Load a stack: from PATH to desired jobs, or to all problems at once.

::

    PATH ──files──▶ documents ──merge──▶ one manifest ──variables, expand──▶ jobs ──▶ LoadedStack
"""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import islice
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from reconciler.core.addresses import looks_like_passwords
from reconciler.core.stack import NO_PRICES, Limits, Stack, Target
from reconciler.errors import Diagnostic, ManifestInvalid, Severity, WrongUsage, in_file_order, limit_warnings
from reconciler.manifest.expressions import (
    TOO_MUCH,
    Expander,
    ExpansionBudget,
    credential_problems,
    settings_budget,
)
from reconciler.manifest.files import StackFiles, digest_of, find_stack
from reconciler.manifest.jobs import UNKNOWN_OUTPUT, CodeReader, JobReader, ValueOrigin
from reconciler.manifest.matrix import Sweeps
from reconciler.manifest.merge import (
    UNKNOWN,
    UNKNOWN_TEMPLATE,
    Links,
    MergedManifest,
    Templates,
    declared_on,
    defaults_on,
    has_target_overrides,
    merge_files,
    variables_on,
)
from reconciler.manifest.problems import (
    ENV_NOT_SET,
    NO_VALUE,
    SECONDARY_ERRORS,
    UNKNOWN_VARIABLE,
    diagnose,
    distinct,
    redact_diagnostics,
    validated,
)
from reconciler.manifest.settings import RecordsSetting, Targets, misplaced_urls
from reconciler.manifest.variables import (
    LoadInputs,
    VariableSection,
    marked_texts,
    read_value_files,
    unknown_names,
    value_file_problems,
)
from reconciler.secrets import Redactor, service_credentials

if TYPE_CHECKING:
    from reconciler.core.settings import Destination, VariableSource
    from reconciler.core.stack import IgnoreRule, Policy
    from reconciler.manifest.sections import NotifySetting


@dataclass(frozen=True, eq=False, repr=False)
class LoadedStack:
    """A stack as its files declare it, on the target `target_name`.

    `targets` may lack values from the environment; `target` returns one in full. `secrets` has every known
    sensitive value, used or not; `sources` has the source of each sensitive variable that has a value.
    `records_reference` is the URL of the record store without secrets and values from the environment;
    `records_url` returns it in full. `checked` has the stack on each target, if `check` found that targets
    differ. `origins` has the origins of values by key, for the jobs that `load` traced. `files` are
    named as in messages. `undeclared` are variables with a value that no file of the stack declares.
    `declared` maps the keys of all files to their sweep, or "".
    """

    stack: Stack
    root: Path
    targets: Mapping[str, Target]
    target_name: str | None
    manifest_digest: str
    secrets: tuple[str, ...] = ()
    files: tuple[str, ...] = ()
    records_reference: str | None = None
    sources: Mapping[str, VariableSource] = field(default_factory=dict)
    origins: Mapping[str, tuple[ValueOrigin, ...]] = field(default_factory=dict)
    undeclared: frozenset[str] = frozenset()
    declared: Mapping[str, str] = field(default_factory=dict)
    checked: tuple[LoadedStack, ...] = ()
    _targets: Targets | None = None
    _records: RecordsSetting | None = None
    _notify: NotifySetting | None = None

    @property
    def warnings(self) -> tuple[Diagnostic, ...]:
        return self.stack.warnings

    def on_targets(self, requested: str | None) -> Mapping[str | None, LoadedStack]:
        """Return the stack on each target that `check` covered; `requested` is the one passed to it."""
        if self.checked:
            return {stack.target_name: stack for stack in self.checked}
        is_single = requested is not None or len(self.targets) < 2
        return dict.fromkeys([self.target_name] if is_single else self.targets, self)

    def target(self, name: str | None = None) -> tuple[str, Target]:
        """Return a target with its name; by default the one that the stack was loaded for.

        Raises:
            WrongUsage: no target has that name, or there is neither a name nor a default.
            ManifestInvalid: its entry is invalid, or an expression in it has no value.
        """
        assert self._targets is not None
        with self._redacted():
            return self._targets.target(self.target_name if name is None else name)

    def records_url(self) -> str | None:
        """Return the URL of the record store, or None if no file declares one.

        A URL that contains a secret is a `SecretText`. The path of an SQLite file is absolute.

        Raises:
            ManifestInvalid: an expression in it has no value, or the result is not the URL of a record store.
        """
        with self._redacted():
            return self._records.url() if self._records else None

    @contextmanager
    def _redacted(self) -> Iterator[None]:
        try:
            yield
        except ManifestInvalid as invalid:
            raise ManifestInvalid(*redact_diagnostics(invalid.diagnostics, Redactor(self.secrets))) from None

    @property
    def notifies(self) -> bool:
        """Whether anyone is notified of drift and failed applies."""
        return self._notify is not None and bool(self._notify.entries)

    def destinations(self) -> tuple[Destination, ...]:
        """Return the destinations of notifications. One whose URL has no value has a `problem`."""
        return tuple(
            replace(entry, problem=redact_diagnostics([entry.problem], Redactor(self.secrets))[0])
            if entry.problem
            else entry
            for entry in (self._notify.destinations() if self._notify else ())
        )


def outline(
    paths: Sequence[Path] | StackFiles, var_files: Sequence[Path] = ()
) -> tuple[str | None, str | None, tuple[str, ...]]:
    """Read the files of PATH, unless they are given as `StackFiles`, without checking them.

    Returns the names of the stack and of its default target, None if they cannot be read, and the names of
    the files in messages.

    Raises:
        WrongUsage: a path does not exist, or there are several stacks to choose from.
    """
    try:
        files = paths if isinstance(paths, StackFiles) else find_stack(paths, var_files)
    except ManifestInvalid:
        return None, None, ()
    merged = merge_files(files.documents)
    target = merged.target or (next(iter(merged.targets)) if len(merged.targets) == 1 else None)
    return merged.stack or None, target, tuple(document.file for document in files.documents)


#: Each of thousands of jobs may have a list of thousands of wrong keys.
_MAX_LINK_PROBLEMS = 1000


def load(
    paths: Sequence[Path] | StackFiles,
    *,
    variables: Mapping[str, str] = MappingProxyType({}),
    var_files: Sequence[Path] = (),
    environ: Mapping[str, str],
    offline: bool = False,
    add_secrets: Callable[[Iterable[str]], None] = lambda _: None,
    traced: str | None = None,
    target: str | None = None,
) -> LoadedStack:
    """Load the stack of PATH on one target.

    `target` defaults to that of the manifest, else to the first whose expressions have a value. `paths` are
    PATH, or files that were found already, see `find_stack`. `variables` are those of `--var`. `offline` is
    for commands that never send anything: sensitive variables need no value. `add_secrets` is called with
    secrets before they are used. `traced` is the key of a job, or the name of a sweep, whose values are
    traced.

    Raises:
        ManifestInvalid: with all problems of all files, in file order.
        WrongUsage: a path or the target does not exist, or there are several stacks to choose from.
    """
    with _no_garbage_collection():
        inputs = LoadInputs(variables, read_value_files(var_files), environ, offline, add_secrets, traced)
        files = paths if isinstance(paths, StackFiles) else find_stack(paths, var_files)
        return _load(files, merge_files(files.documents), inputs, target)


def check(
    paths: Sequence[Path] | StackFiles,
    *,
    variables: Mapping[str, str] = MappingProxyType({}),
    var_files: Sequence[Path] = (),
    environ: Mapping[str, str],
    add_secrets: Callable[[Iterable[str]], None] = lambda _: None,
    target: str | None = None,
) -> tuple[LoadedStack, tuple[Diagnostic, ...]]:
    """Load a stack on each of its targets, or on one, without values of sensitive variables.

    A target is skipped if its variables or defaults use an environment variable that is not set, unless all
    targets would be. Returns the stack on the default target, else on the first that was not skipped, and a
    warning for each skipped target.

    Raises:
        ManifestInvalid: with the problems on all targets, in file order.
        WrongUsage: as `load`.
    """
    with _no_garbage_collection():
        inputs = LoadInputs(variables, read_value_files(var_files), environ, True, add_secrets)
        files = paths if isinstance(paths, StackFiles) else find_stack(paths, var_files)
        merged = merge_files(files.documents)
        is_default_known = merged.target in (None, *merged.targets)
        if target is not None or not (merged.targets and has_target_overrides(merged) and is_default_known):
            return _load(files, merged, inputs, target), ()
        return _check_each(files, merged, inputs)


def _check_each(
    files: StackFiles, merged: MergedManifest, inputs: LoadInputs
) -> tuple[LoadedStack, tuple[Diagnostic, ...]]:
    default = [merged.target] if merged.target in merged.targets else []
    loaded: list[LoadedStack] = []
    skipped: list[tuple[ManifestInvalid, Diagnostic]] = []
    problems: list[Diagnostic] = []
    for name in dict.fromkeys((*default, *merged.targets)):
        try:
            loaded.append(_read(files, merged, inputs, name, name))
        except ManifestInvalid as invalid:
            own = [problem for problem in invalid.diagnostics if problem.path.startswith(f"targets.{name}.")]
            unset = next((problem for problem in own if problem.what == ENV_NOT_SET), None)
            if unset is None:
                problems += invalid.diagnostics
                continue
            why = f'the target "{name}" was not checked: {unset.why}'
            warning = unset._replace(what="target skipped", why=why, severity=Severity.WARNING)
            skipped.append((invalid, warning))
            # Other problems of its entry do not depend on the environment.
            problems += [problem for problem in own if problem.what != ENV_NOT_SET]
    if len(skipped) == len(merged.targets):
        problems += skipped[0][0].diagnostics
    if problems:
        raise ManifestInvalid(*distinct(in_file_order(problems)))
    return replace(loaded[0], checked=tuple(loaded)), tuple(warning for _, warning in skipped)


def _load(files: StackFiles, merged: MergedManifest, inputs: LoadInputs, target: str | None) -> LoadedStack:
    default = merged.target if target is None else target
    if default is not None or not (merged.targets and has_target_overrides(merged)):
        return _read(files, merged, inputs, default, target)
    invalid: list[ManifestInvalid] = []
    for name in merged.targets:
        try:
            return _read(files, merged, inputs, name, target)
        except ManifestInvalid as error:
            invalid.append(error)
    raise invalid[0]


@contextmanager
def _no_garbage_collection() -> Iterator[None]:
    """Pause the collector, which would scan a hundred thousand new values repeatedly and free none."""
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()


def _read(
    files: StackFiles, merged: MergedManifest, inputs: LoadInputs, name: str | None, requested: str | None
) -> LoadedStack:
    """Return the stack on the target `name`. `requested` is the target that the caller named, if any."""
    documents, environ = files.documents, inputs.environ
    is_broken = any(document.is_broken for document in (*documents, *inputs.value_files))
    target_entry = None if name is None else merged.targets.get(name)
    variables = VariableSection(merged.variables, merged.targets, target_entry, inputs)
    values = variables.values
    problems = [*merged.problems, *value_file_problems(inputs.value_files), *credential_problems(documents)]
    inputs.add_secrets(variables.secrets(documents))

    target_entries = merged.targets  # so that the closure, which the stack keeps, does not keep `merged`

    def expander_on(name: str, budget: ExpansionBudget | None = None) -> Expander:
        """Return the expander for the entry of a target, with the variables of that target."""
        on_target = variables_on(target_entries[name])
        own = values if on_target == values.on_target else replace(values, on_target=on_target)
        return own.expander(budget, takes_secrets=False)

    targets = Targets(merged.targets, expander_on, merged.code_store_at)
    readable, more, literals = targets.check(variables.declared)
    problems += more
    target_name, more = _target_name(requested, merged, targets, is_broken)
    problems += more
    records = None
    if (at := merged.records_at) is not None:
        records = RecordsSetting(at, at.tree["records"], values, files.root)
        problems += records.check()
    settings: dict[str, Any] = {"limits": Limits(), "prices": NO_PRICES}
    for section, (origin, value) in merged.settings.items():
        setting, more = validated(type(settings[section]), value, origin)
        problems += more
        settings[section] = setting or settings[section]
    policies: tuple[Policy, ...] = ()
    ignored_drift: tuple[IgnoreRule, ...] = ()
    notify = None
    if merged.policies or merged.drift or merged.notify:  # imported on demand: most stacks have none
        from reconciler.manifest.sections import NotifySetting, read_ignore_rules, read_policies

        policies, more = read_policies(merged.policies)
        problems += more
        ignored_drift, more = read_ignore_rules(merged.drift, values.expander(takes_secrets=False))
        problems += more
        notify, more = NotifySetting.read(merged.notify, values)
        problems += more
    expander = values.expander(inputs.jobs)
    sweeps = Sweeps(expander)
    templates = Templates(merged.templates)
    declared_here, elsewhere, more = declared_on(target_name, merged, templates, targets.unknown)
    problems += more
    entries = sweeps.expand(declared_here)
    target = readable.get(target_name or "")
    reader = JobReader(
        merged.stack,
        expander,
        Links(entries, sweeps.members, elsewhere),
        (*merged.defaults, *defaults_on(target_entry, [])),  # `targets` has reported the problems
        templates,
        codes=CodeReader(files.root, files.fetch_code, target.code_address if target else "", merged.stack)
        if target or target_name is None
        else None,
        takes_seconds=target is not None and target.traits.takes_seconds,
        skip=SECONDARY_ERRORS if is_broken else frozenset(),
        traced=inputs.traced,
        source_of=variables.describe_source,
    )
    jobs = {key: job for key, entry in entries.items() if (job := reader.read(entry)) is not None}
    if not is_broken:
        known = files.known_variables
        problems += unknown_names(inputs.given, inputs.value_files, variables.declared, known)
    reader.check_inherited()
    problems += (*variables.problems, *sweeps.problems, *reader.templates.problems(), *reader.problems)
    problems += islice(reader.links.problems(), _MAX_LINK_PROBLEMS)
    # A variable without a value is reported at its declaration, not at each use.
    problems = [problem for problem in problems if problem.what != NO_VALUE]
    problems += variables.value_problems()
    # An exceeded expansion budget is reported once.
    exceeded = next((budget for budget in (inputs.settings, inputs.jobs) if budget.is_exceeded), None)
    if exceeded is not None:
        reported = [problem for problem in problems if problem.what == TOO_MUCH]
        first = (*in_file_order(reported), Diagnostic(*exceeded.problem()[:3]))[0]
        problems = [first, *(problem for problem in problems if problem.what != TOO_MUCH)]
    if is_broken:
        # The broken file may declare them.
        unknown = (UNKNOWN_VARIABLE, UNKNOWN, UNKNOWN_OUTPUT, UNKNOWN_TEMPLATE)
        problems = [problem for problem in problems if problem.what not in unknown]
    secrets = reader.secrets | variables.secrets(documents)
    secrets |= notify.secrets() if notify else set()
    secrets |= records.secrets() if records else set()
    # A target may contain them, and messages quote the problems of targets.
    secrets.update(service_credentials(environ))
    secrets.update(looks_like_passwords(environ.get("RECONCILER_RECORDS", "")))
    if problems:
        redact = Redactor(secrets | literals | misplaced_urls(documents))
        for document in documents:
            redact.add_secrets(looks_like_passwords(document.text))
            redact.add_secrets(marked_texts(document.tree))
        raise ManifestInvalid(*redact_diagnostics(distinct(in_file_order(problems)), redact))
    # Jobs that are not declared are terminated, so none may be dropped without a problem.
    assert jobs.keys() == entries.keys()
    warnings = distinct(in_file_order([*variables.warnings, *reader.warnings]))
    warnings = limit_warnings(warnings, partial(Diagnostic, severity=Severity.WARNING))
    warnings = redact_diagnostics(warnings, Redactor(secrets))
    given = {*inputs.given, *(name for document in inputs.value_files for name in document.tree)}
    declared = {key: job.sweep or "" for key, job in jobs.items() if not job.is_absent}
    return LoadedStack(
        stack=Stack(
            name=merged.stack,
            jobs={key: job for key, job in jobs.items() if entries[key].document.path in files.in_view},
            declared_keys=frozenset(declared),
            is_partial=files.is_partial,
            warnings=warnings,
            whole=jobs,
            elsewhere=elsewhere,
            policies=policies,
            ignored_drift=ignored_drift,
            **settings,
        ),
        root=files.root,
        targets=readable,
        target_name=target_name,
        manifest_digest=digest_of(sorted((document.relative, document.data) for document in documents)),
        secrets=tuple(sorted(secrets)),
        files=tuple(document.file for document in documents),
        records_reference=records.reference() if records else None,
        sources=variables.saved_sources(),
        origins=reader.origins,
        undeclared=frozenset(given - variables.declared.keys()),
        declared=declared,
        _targets=targets._replace(expander_on=lambda name: expander_on(name, settings_budget())),
        _records=records,
        _notify=notify,
    )


def _target_name(
    requested: str | None, merged: MergedManifest, targets: Targets, is_broken: bool
) -> tuple[str | None, list[Diagnostic]]:
    """Return the requested, default or only target; None if there is none of these.

    Raises:
        WrongUsage: the requested target does not exist.
    """
    name = merged.target if requested is None else requested
    if name is None:
        return next(iter(merged.targets)) if len(merged.targets) == 1 else None, []
    if name in merged.targets or is_broken:
        return name, []
    if requested is not None or merged.target_at is None:
        raise WrongUsage(targets.no_such_target(name))
    why, fix = targets.unknown(name)
    return name, [diagnose(merged.target_at, ("target",), "unknown target", why, fix)]
