"""Reading a stack: from PATH to desired jobs, or to every problem at once.

::

    PATH ──files──▶ documents ──merge──▶ one manifest ──variables, expand──▶ jobs ──▶ LoadedStack
"""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from itertools import islice
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from reconciler.core.addresses import looks_like_passwords
from reconciler.core.stack import NO_PRICES, Limits, Stack, Target
from reconciler.errors import Diagnostic, ManifestInvalid, Severity, WrongUsage, few_warnings, in_file_order
from reconciler.manifest.expressions import (
    TOO_MUCH,
    Expander,
    ExpansionBudget,
    credential_problems,
    settings_budget,
)
from reconciler.manifest.files import StackFiles, digest_of, find_stack, stack_of
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
    differs,
    merge_files,
    variables_on,
)
from reconciler.manifest.problems import (
    ENV_NOT_SET,
    NO_VALUE,
    UNKNOWN_VARIABLE,
    diagnose,
    distinct,
    shown,
    validated,
)
from reconciler.manifest.settings import RecordsSetting, Targets, misplaced_urls
from reconciler.manifest.variables import (
    LoadInputs,
    VariableSection,
    marked_texts,
    problems_of,
    read_value_files,
    unknown_names,
)
from reconciler.secrets import Redactor, service_credentials

if TYPE_CHECKING:
    from reconciler.core.settings import Destination, VariableSource
    from reconciler.core.stack import IgnoreRule, Policy
    from reconciler.manifest.sections import NotifySetting


@dataclass(frozen=True, eq=False, repr=False)
class LoadedStack:
    """A stack as its files declare it.

    `targets` are read as far as the environment goes; `target` gives one that is whole. `target_name` is
    the one that the jobs are declared for, `secrets` has every sensitive value that is known, used or not,
    and `sources` says of each sensitive variable with a value where it came from. `records_reference` is
    the URL of the record store without what is secret or comes from the environment; `records_url` gives it
    whole. `checked` are the same files as `check` read them on each target, where these differ. `origins`
    says by key where the values of the jobs come from that `load` was asked to trace. `file_names` are the
    names of the `files` in messages. `undeclared` are the variables that were given a value although no
    file of the stack declares them. `declared` has the keys of all files, each with its sweep, or "".
    """

    stack: Stack
    root: Path
    targets: Mapping[str, Target]
    target_name: str | None
    manifest_digest: str
    secrets: tuple[str, ...] = ()
    files: tuple[Path, ...] = ()
    file_names: tuple[str, ...] = ()
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
        """What is odd in the files, and no error."""
        return self.stack.warnings

    def on_targets(self, asked: str | None) -> Mapping[str | None, LoadedStack]:
        """Return the stack on each target that `check` read it for; `asked` is the one it was asked for."""
        if self.checked:
            return {one.target_name: one for one in self.checked}
        is_one = asked is not None or len(self.targets) < 2
        return dict.fromkeys([self.target_name] if is_one else self.targets, self)

    def target(self, name: str | None = None) -> tuple[str, Target]:
        """Return a target with its name; left out, the manifest's default.

        Raises:
            WrongUsage: no target has that name, or none is named and there is no default.
            ManifestInvalid: its entry is invalid, or an expression in it has no value.
        """
        assert self._targets is not None
        with self._redacted():
            return self._targets.target(self.target_name if name is None else name)

    def records_url(self) -> str | None:
        """Return where the record store is: `postgresql://…`, `sqlite:////absolute/path`, or None if no
        file says it. A URL with a secret in it is a `SecretText`.

        Raises:
            ManifestInvalid: an expression in it has no value, or what comes out is no address of a store.
        """
        with self._redacted():
            return self._records.url() if self._records else None

    @contextmanager
    def _redacted(self) -> Iterator[None]:
        try:
            yield
        except ManifestInvalid as invalid:
            raise ManifestInvalid(*shown(invalid.diagnostics, Redactor(self.secrets))) from None

    @property
    def notifies(self) -> bool:
        """Whether drift and failed applies are told somewhere."""
        return self._notify is not None and bool(self._notify.entries)

    def destinations(self) -> tuple[Destination, ...]:
        """Return where drift and failed applies are told; an entry whose URL has no value says why."""
        return tuple(
            replace(one, problem=shown([one.problem], Redactor(self.secrets))[0]) if one.problem else one
            for one in (self._notify.destinations() if self._notify else ())
        )


def outline(
    paths: Sequence[Path] | StackFiles, var_files: Sequence[Path] = ()
) -> tuple[str | None, str | None, tuple[str, ...]]:
    """Read the files that PATH stands for, if they were not found already, and check nothing.

    Returns the name of the stack and of its default target, None where they cannot be read, and the names
    of the files, as messages have them.

    Raises:
        WrongUsage: a path does not exist, or there are several stacks to choose from.
    """
    try:
        found = paths if isinstance(paths, StackFiles) else find_stack(paths, var_files)
    except ManifestInvalid:
        return None, None, ()
    merged = merge_files(found.documents)
    target = merged.target or (next(iter(merged.targets)) if len(merged.targets) == 1 else None)
    return merged.stack or None, target, tuple(one.file for one in found.documents)


#: What may be told only because a broken file does not say what it would say.
_ECHOES_OF_BROKEN = frozenset({"missing", "rule"})

#: A list of thousands of keys that are wrong may stand in each of thousands of jobs.
_MOST_LINK_PROBLEMS = 1000


def load(
    paths: Sequence[Path] | StackFiles,
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

    `paths` are PATH, or the files that were found already, see `find_stack`. `variables` are the `--var` of
    the command line. `offline` is for commands that never send anything: a sensitive variable needs no value
    then. `learn` is told what must not be seen before anything else is done with it. `traced` is the key of a
    job, or the name of a sweep, whose values are traced to their places.

    Raises:
        ManifestInvalid: with all problems of all files, in file order.
        WrongUsage: a path or the target does not exist, or there are several stacks to choose from.
    """
    with _no_garbage_collection():
        inputs = LoadInputs(variables, read_value_files(var_files), environ, offline, learn, traced)
        files = paths if isinstance(paths, StackFiles) else find_stack(paths, var_files)
        return _load(files, merge_files(files.documents), inputs, target)


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

    A target is skipped if an environment variable that its variables or defaults use is not set. Returns the
    stack as on the default target, else on the first that was not skipped; and a warning for each one that
    was. If all had to be skipped, none is.

    Raises:
        ManifestInvalid: with the problems on all targets, in file order.
        WrongUsage: as `load`.
    """
    with _no_garbage_collection():
        inputs = LoadInputs(variables, read_value_files(var_files), environ, True, learn)
        files = paths if isinstance(paths, StackFiles) else find_stack(paths, var_files)
        merged = merge_files(files.documents)
        is_default_known = merged.target in (None, *merged.targets)
        if target is not None or not (merged.targets and differs(merged) and is_default_known):
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
            # An environment variable is not set that the target's own variables or defaults use.
            own = [one for one in invalid.diagnostics if one.path.startswith(f"targets.{name}.")]
            unset = next((one for one in own if one.what == ENV_NOT_SET), None)
            if unset is None:
                problems += invalid.diagnostics
                continue
            why = f'the target "{name}" was not checked: {unset.why}'
            warning = unset._replace(what="target skipped", why=why, severity=Severity.WARNING)
            skipped.append((invalid, warning))
            # What is wrong in its own entry is wrong whatever the environment holds.
            problems += [one for one in own if one.what != ENV_NOT_SET]
    if len(skipped) == len(merged.targets):
        problems += skipped[0][0].diagnostics
    if problems:
        raise ManifestInvalid(*distinct(in_file_order(problems)))
    return replace(loaded[0], checked=tuple(loaded)), tuple(warning for _, warning in skipped)


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
    return load(stack_of(mapping, root), variables=variables, environ=environ, offline=offline, learn=learn)


def _load(files: StackFiles, merged: MergedManifest, inputs: LoadInputs, target: str | None) -> LoadedStack:
    default = merged.target if target is None else target
    if default is not None or not (merged.targets and differs(merged)):
        return _read(files, merged, inputs, default, target)
    invalid: list[ManifestInvalid] = []
    for name in merged.targets:  # The first that goes is taken.
        try:
            return _read(files, merged, inputs, name, target)
        except ManifestInvalid as error:
            invalid.append(error)
    raise invalid[0]


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


def _read(
    files: StackFiles, merged: MergedManifest, inputs: LoadInputs, name: str | None, asked: str | None
) -> LoadedStack:
    """Return the stack as it is on the target of that name; `asked` is the one that was asked for."""
    documents, environ = files.documents, inputs.environ
    is_broken = any(document.is_broken for document in (*documents, *inputs.value_files))
    on = None if name is None else merged.targets.get(name)
    variables = VariableSection(merged.variables, merged.targets, on, inputs)
    values = variables.values
    problems = [*merged.problems, *problems_of(inputs.value_files), *credential_problems(documents)]
    inputs.learn(variables.secrets(documents))

    entries_of_targets = merged.targets  # kept by the loaded stack, unlike all that the files say

    def expander_on(name: str, budget: ExpansionBudget | None = None) -> Expander:
        """What puts values into the entry of a target: those that hold on it."""
        on_target = variables_on(entries_of_targets[name])
        own = values if on_target == values.on_target else values.on(on_target)
        return own.expander(budget, takes_secrets=False)

    targets = Targets(merged.targets, expander_on, merged.code_store_at)
    readable, found, literals = targets.check(variables.declared)
    problems += found
    target_name, found = _target_name(asked, merged, targets, is_broken)
    problems += found
    records = None
    if (at := merged.records_at) is not None:
        records = RecordsSetting(at, at.tree["records"], values, files.root)
        problems += records.check()
    settings: dict[str, Any] = {"limits": Limits(), "prices": NO_PRICES}
    for section, (origin, value) in merged.settings.items():
        setting, found = validated(type(settings[section]), value, origin)
        problems += found
        settings[section] = setting or settings[section]
    policies: tuple[Policy, ...] = ()
    ignored_drift: tuple[IgnoreRule, ...] = ()
    notify = None
    if merged.policies or merged.drift or merged.notify:  # most stacks have none of them
        from reconciler.manifest.sections import NotifySetting, read_ignore_rules, read_policies

        policies, found = read_policies(merged.policies)
        problems += found
        ignored_drift, found = read_ignore_rules(merged.drift, values.expander(takes_secrets=False))
        problems += found
        notify, found = NotifySetting.read(merged.notify, values)
        problems += found
    expander = values.expander(inputs.jobs)
    sweeps = Sweeps(expander)
    templates = Templates(merged.templates)
    here, elsewhere, found = declared_on(target_name, merged, templates, targets.unknown)
    problems += found
    entries = sweeps.expand(here)
    target = readable.get(target_name or "")
    reader = JobReader(
        merged.stack,
        expander,
        Links(entries, sweeps.members, elsewhere),
        (*merged.defaults, *defaults_on(on, [])),  # what is wrong there, `targets` has said
        templates,
        codes=CodeReader(files.root, files.fetch_code, target.code_address if target else "", merged.stack)
        if target or target_name is None
        else None,
        takes_seconds=target_name in readable and readable[target_name].traits.takes_seconds,
        skip=_ECHOES_OF_BROKEN if is_broken else frozenset(),
        traced=inputs.traced,
        source_of=variables.describe_source,
    )
    jobs = {key: job for key, entry in entries.items() if (job := reader.read(entry)) is not None}
    if not is_broken:
        known = files.known_variables
        problems += unknown_names(inputs.given, inputs.value_files, variables.declared, known)
    reader.check_inherited()
    problems += (*variables.problems, *sweeps.problems, *reader.templates.problems(), *reader.problems)
    problems += islice(reader.links.problems(), _MOST_LINK_PROBLEMS)
    # That a variable has no value is told where it is declared, and not wherever it is used.
    problems = [problem for problem in problems if problem.what != NO_VALUE]
    problems += variables.value_problems()
    # That a manifest comes to too much is told once, wherever it showed.
    exceeded = next((one for one in (inputs.settings, inputs.jobs) if one.is_exceeded), None)
    if exceeded is not None:
        told = [problem for problem in problems if problem.what == TOO_MUCH]
        first = (*in_file_order(told), Diagnostic(*exceeded.problem()[:3]))[0]
        problems = [first, *(one for one in problems if one.what != TOO_MUCH)]
    if is_broken:
        # What a file that cannot be read declares is not known.
        unknown = (UNKNOWN_VARIABLE, UNKNOWN, UNKNOWN_OUTPUT, UNKNOWN_TEMPLATE)
        problems = [one for one in problems if one.what not in unknown]
    secrets = reader.secrets | variables.secrets(documents)
    secrets |= notify.secrets() if notify else set()
    secrets |= records.secrets() if records else set()
    # They may stand in a target, and what is wrong there is told.
    secrets.update(service_credentials(environ))
    secrets.update(looks_like_passwords(environ.get("RECONCILER_RECORDS", "")))
    if problems:
        redact = Redactor(secrets | literals | misplaced_urls(documents))
        for document in documents:
            redact.learn(looks_like_passwords(document.text))
            redact.learn(marked_texts(document.tree))
        raise ManifestInvalid(*shown(distinct(in_file_order(problems)), redact))
    # What is not declared is terminated: a job may be left out only with a problem that says so.
    assert jobs.keys() == entries.keys()
    warnings = distinct(in_file_order([*variables.warnings, *reader.warnings]))
    warnings = shown(few_warnings(warnings), Redactor(secrets))
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
        files=tuple(document.path for document in documents),
        file_names=tuple(document.file for document in documents),
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
    asked: str | None, merged: MergedManifest, targets: Targets, is_broken: bool
) -> tuple[str | None, list[Diagnostic]]:
    """The target that the stack is read for; None if none was asked for, and there are several.

    Raises:
        WrongUsage: the one that was asked for does not exist.
    """
    name = merged.target if asked is None else asked
    if name is None:
        return next(iter(merged.targets)) if len(merged.targets) == 1 else None, []
    if name in merged.targets or is_broken:
        return name, []
    if asked is not None or merged.target_at is None:
        raise WrongUsage(targets.no_such_target(name))
    why, fix = targets.unknown(name)
    return name, [diagnose(merged.target_at, ("target",), "unknown target", why, fix)]
