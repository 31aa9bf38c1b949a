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
from functools import cache
from pathlib import Path
from types import MappingProxyType
from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError

from reconciler.core.declared.stack import DesiredJob, Limits, Stack, Target, Variable, VariableSource
from reconciler.core.diagnostic import (
    Diagnostic,
    ManifestInvalid,
    Severity,
    Snippet,
    few_warnings,
    in_file_order,
)
from reconciler.core.store_url import looks_like_passwords
from reconciler.core.text.credential_names import service_credentials
from reconciler.core.text.secret import Redactor
from reconciler.manifests.expand import Expander, credentials_in
from reconciler.manifests.files import StackFiles, find_stack
from reconciler.manifests.jobs import JobReader
from reconciler.manifests.links import UNKNOWN, Links
from reconciler.manifests.mapping import stack_of
from reconciler.manifests.matrix import Sweeps
from reconciler.manifests.merge import MergedEntry, MergedManifest, merge_files
from reconciler.manifests.origins import ValueOrigin
from reconciler.manifests.problems import Origin, diagnostics, found
from reconciler.manifests.records import RecordsSetting
from reconciler.manifests.targets import Targets, default_problem
from reconciler.manifests.templates import Templates
from reconciler.manifests.variables import (
    NAME,
    NO_VALUE,
    VariableValues,
    marked_texts,
    problems_of,
    read_value_files,
    texts_in,
    unknown_names,
)
from reconciler.manifests.yaml.document import Document, shorten
from reconciler.manifests.yaml.positions import diagnose

#: What may be told only because a broken file does not say what it would say.
_ECHOES_OF_BROKEN = frozenset({"missing", "rule"})
#: Of a line beyond this that holds a secret nothing is shown.
_LONG_LINE = 12_000
_Model = TypeVar("_Model", bound=BaseModel)


@dataclass(frozen=True)
class LoadedStack:
    """A stack as its files declare it.

    `targets` are read as far as the environment goes; `target` gives one that is whole. `target_name`
    is the manifest's default, `secrets` every sensitive value that is known, used or not, and `sources`
    says of each sensitive variable with a value where it came from. `records_reference` is the URL of the
    record store without what is secret or comes from the environment; `records_url` gives it whole.
    `origins` says where the values of the job come from that `load` was asked to trace.
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
    records_reference: str | None = None
    sources: Mapping[str, VariableSource] = field(default_factory=dict)
    origins: tuple[ValueOrigin, ...] = field(default=(), repr=False)
    _targets: Targets = field(default_factory=Targets, repr=False, compare=False)
    _records: RecordsSetting = field(default_factory=RecordsSetting, repr=False, compare=False)

    def target(self, name: str | None = None) -> tuple[str, Target]:
        """Return a target with its name; left out, the manifest's default.

        Raises:
            WrongUsage: no target has that name, or none is named and there is no default.
            ManifestInvalid: its entry is invalid, or an expression in it has no value.
        """
        try:
            return self._targets.target(self.target_name if name is None else name)
        except ManifestInvalid as invalid:
            raise ManifestInvalid(*_shown(invalid.diagnostics, Redactor(self.secrets))) from None

    def records_url(self) -> str | None:
        """Return where the record store is: `postgresql://…`, `sqlite:////absolute/path`, or None if no
        file says it. A URL with a secret in it is a `SecretText`.

        Raises:
            ManifestInvalid: an expression in it has no value, or what comes out is no address of a store.
        """
        try:
            return self._records.url()
        except ManifestInvalid as invalid:
            raise ManifestInvalid(*_shown(invalid.diagnostics, Redactor(self.secrets))) from None


def load(
    paths: Sequence[Path],
    *,
    variables: Mapping[str, str] = MappingProxyType({}),
    var_files: Sequence[Path] = (),
    environ: Mapping[str, str],
    offline: bool = False,
    learn: Callable[[Iterable[str]], None] = lambda _: None,
    traced: str | None = None,
) -> LoadedStack:
    """Read the stack that PATH stands for.

    `variables` are the `--var` of the command line. `offline` is for commands that never send anything:
    a sensitive variable needs no value then. `learn` is told what must not be seen before anything else is
    done with it. `traced` is the key of a job whose values are traced to their places.

    Raises:
        ManifestInvalid: with all problems of all files, in file order.
        WrongUsage: a path does not exist, or there are several stacks to choose from.
    """
    with _no_garbage_collection():
        value_files = read_value_files(var_files)
        return _finish(find_stack(paths, var_files), value_files, variables, environ, offline, learn, traced)


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
    return _finish(stack_of(mapping, root), (), variables, environ, offline, learn)


def _finish(
    files: StackFiles,
    value_files: Sequence[Document],
    variables: Mapping[str, str],
    environ: Mapping[str, str],
    offline: bool,
    learn: Callable[[Iterable[str]], None],
    traced: str | None = None,
) -> LoadedStack:
    loading = _Loading(files, merge_files(files.documents), value_files)
    loaded = loading.finish(variables, environ, offline, learn, traced)
    for document in files.documents:
        document.forget()
    return loaded


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
    """One run of `load`: the merged manifest, and the problems found so far."""

    def __init__(self, files: StackFiles, merged: MergedManifest, value_files: Sequence[Document]) -> None:
        self._files, self._merged, self._value_files = files, merged, value_files
        self._problems = list(merged.problems)
        self._warnings: list[Diagnostic] = []
        self._problems += problems_of(value_files)
        self._is_broken = any(document.is_broken for document in (*files.documents, *value_files))

    def finish(
        self,
        given: Mapping[str, str],
        environ: Mapping[str, str],
        offline: bool,
        learn: Callable[[Iterable[str]], None],
        traced: str | None,
    ) -> LoadedStack:
        merged = self._merged
        declared = self._variables()
        if not self._is_broken:
            self._problems += unknown_names(given, self._value_files, declared)
        from_files = {name: value for document in self._value_files for name, value in document.tree.items()}
        values = VariableValues(declared, given, from_files, environ, offline)
        learn(self._secrets(values))
        targets = Targets(
            merged.targets, Expander(values, environ, takes_secrets=False, takes_credentials=True)
        )
        readable, problems, literals = targets.check()
        self._problems += problems
        records = self._records(values, environ)
        self._problems += records.check()
        target_name = self._default_target(targets)
        limits = self._limits()
        expander = Expander(values, environ)
        sweeps = Sweeps(expander)
        merged.jobs = sweeps.expand(merged.jobs)
        reader = JobReader(
            merged.stack,
            expander,
            Links(merged.jobs, sweeps.members),
            merged.defaults,
            Templates(merged.templates),
            skip=_ECHOES_OF_BROKEN if self._is_broken else frozenset(),
            traced=traced,
        )
        jobs = {key: job for key, entry in merged.jobs.items() if (job := reader.read(entry)) is not None}
        reader.check_defaults()
        reader.check_templates()
        self._problems += sweeps.problems
        self._problems += reader.templates.problems()
        self._problems += reader.problems
        self._problems += reader.links.problems()
        self._tell_missing_values(values)
        secrets = reader.secrets | self._secrets(values) | records.secrets()
        # They may stand in a target, and what is wrong there is told.
        secrets.update(service_credentials(environ))
        secrets.update(looks_like_passwords(environ.get("RECONCILER_RECORDS", "")))
        self._raise_problems(Redactor(secrets | literals))
        warnings = _shown(few_warnings(_distinct(in_file_order(self._warnings))), Redactor(secrets))
        return LoadedStack(
            stack=self._stack(jobs, limits, warnings),
            root=self._files.root,
            targets=readable,
            target_name=target_name,
            limits=limits,
            manifest_digest=manifest_digest(self._files.documents),
            secrets=tuple(sorted(secrets)),
            files=tuple(document.path for document in self._files.documents),
            warnings=warnings,
            records_reference=records.reference(),
            sources=self._sources(values),
            origins=reader.origins,
            _targets=targets,
            _records=records,
        )

    def _raise_problems(self, redact: Redactor) -> None:
        problems = self._problems
        if self._is_broken:
            # What a file that cannot be read declares is not known.
            problems = [one for one in problems if one.what not in ("unknown variable", UNKNOWN)]
        if problems:
            for document in self._files.documents:
                redact.learn(looks_like_passwords(document.text))
                redact.learn(marked_texts(document.tree))
            raise ManifestInvalid(*_shown(_distinct(in_file_order(problems)), redact))

    def _tell_missing_values(self, values: VariableValues) -> None:
        """Each variable without a value is told once, where it is declared, however often it is used."""
        self._problems = [problem for problem in self._problems if problem.what != NO_VALUE]
        if any(document.is_broken for document in self._value_files):
            return  # Who knows what it would have given.
        for name, error in values.without_value():
            entry = self._merged.variables[name]
            self._problems.append(
                diagnose(entry.document, entry.steps, error.what, error.why, error.fix, at_key=True)
            )

    def _secrets(self, values: VariableValues) -> set[str]:
        """Every value of a sensitive variable, of declarations that are wrong or contradict another too."""
        secrets: set[str] = set()
        for document in self._files.documents:
            section = document.tree.get("variables")
            for name, entry in section.items() if isinstance(section, dict) else ():
                if isinstance(entry, dict) and entry.get("sensitive", False) is not False:
                    for value in (entry.get("default"), *values.sources(name, entry.get("env"))):
                        secrets.update(texts_in(value))
        return secrets

    def _sources(self, values: VariableValues) -> dict[str, VariableSource]:
        """Where the value of each sensitive variable comes from."""
        file_by_name = {name: document.file for document in self._value_files for name in document.tree}
        found = {
            name: values.source(name, file_by_name)
            for name, variable in values.declared.items()
            if variable.sensitive
        }
        return {name: source for name, source in found.items() if source is not None}

    def _records(self, values: VariableValues, environ: Mapping[str, str]) -> RecordsSetting:
        document = self._merged.records_at
        if document is None:
            return RecordsSetting()
        return RecordsSetting(document, document.tree["records"], values, environ, self._files.root)

    def _stack(
        self, jobs: Mapping[str, DesiredJob], limits: Limits, warnings: tuple[Diagnostic, ...]
    ) -> Stack:
        entries = self._merged.jobs
        in_view = self._files.in_view
        return Stack(
            name=self._merged.stack,
            jobs={key: job for key, job in jobs.items() if entries[key].document.path in in_view},
            declared_keys=frozenset(key for key, job in jobs.items() if not job.is_absent),
            limits=limits,
            is_partial=self._files.is_partial,
            warnings=warnings,
            whole=jobs,
        )

    def _variables(self) -> dict[str, Variable]:
        declared: dict[str, Variable] = {}
        for name, entry in self._merged.variables.items():
            origin = Origin(((entry.document, entry.steps),))
            is_named = NAME.fullmatch(name) is not None
            if not is_named:
                why = "a variable name must consist of letters, digits, _ and -, and start with a letter or _"
                problem = origin.diagnose((), "invalid key", why, at_key=True)
                self._problems.append(replace(problem, path=f"variables.{shorten(name)}"))
            variable = self._validated(Variable, entry.value, origin)
            if variable is not None:
                for steps, found in credentials_in(variable.default, ("default",)):
                    self._problems.append(origin.diagnose(steps, *found[1:], text=found.text))
            # One that is invalid is declared all the same, and has a value, or that would be told too.
            declared[name] = variable if variable is not None and is_named else Variable(default="")
            if variable is not None and variable.sensitive and variable.default is not None:
                self._warnings.append(_literal_default(name, entry))
        return declared

    def _validated(self, model: type[_Model], value: Any, origin: Origin) -> _Model | None:
        if not isinstance(value, dict):
            why = f"expected a mapping, got {found(value)}"
            self._problems.append(origin.diagnose((), "wrong type", why, at_key=value is None))
            return None
        try:
            return model.model_validate(value)
        except ValidationError as error:
            self._problems += diagnostics(error, model, value, origin)
            return None

    def _limits(self) -> Limits:
        if not self._merged.limits_at:
            return Limits()
        origin = Origin(tuple((document, ("limits",)) for document in self._merged.limits_at))
        return self._validated(Limits, self._merged.limits, origin) or Limits()

    def _default_target(self, targets: Targets) -> str | None:
        merged = self._merged
        if merged.target is None:
            return next(iter(merged.targets)) if len(merged.targets) == 1 else None
        if merged.target not in merged.targets and not self._is_broken:
            self._problems.append(default_problem(merged.target, merged.target_at, targets))
        return merged.target


def _literal_default(name: str, entry: MergedEntry) -> Diagnostic:
    steps = (*entry.steps, "default")
    why = f'the sensitive variable "{name}" has its value in the file, where anyone can read it'
    fix = "use env: NAME instead"
    problem = diagnose(entry.document, steps, "literal secret", why, fix, at_key=True, show_line=False)
    return replace(problem, severity=Severity.WARNING)


def manifest_digest(documents: Iterable[Document]) -> str:
    """The digest of what the files of a stack hold, byte for byte, and of their names below the root."""
    digest = hashlib.sha256()
    for document in sorted(documents, key=lambda document: document.relative):
        name = document.relative.encode("utf-8", "surrogateescape")
        # The lengths keep apart what one file ends with and the next one begins with.
        digest.update(f"{len(name)} {len(document.data)}\n".encode() + name + b"\n")
        digest.update(document.data)
    return f"sha256:{digest.hexdigest()}"


def _distinct(problems: Iterable[Diagnostic]) -> tuple[Diagnostic, ...]:
    """Each problem once: a mistake in `defaults` is met by every job."""
    seen: dict[Any, Diagnostic] = {}
    for problem in problems:
        seen.setdefault((problem.location, problem.what, problem.why), problem)
    return tuple(seen.values())


def _shown(problems: Iterable[Diagnostic], redact: Redactor) -> tuple[Diagnostic, ...]:
    """The same problems, with no known secret in their words or lines, and long lines cut."""
    redact_line = cache(redact)  # all of a file may stand in one line

    def cut(line: Snippet) -> Snippet | None:
        text = redact_line(line.text)
        if text is line.text:
            return line.cut()
        if len(line.text) > _LONG_LINE:
            return None  # Looking for every secret before every place of it would take minutes.
        # The place has moved: what stands before it is shorter or longer now.
        start = _length_in_common(redact(line.text[: line.start]), text)
        length = len(redact(line.text[: line.start + line.length])) - start
        return Snippet(text, start, length).cut()

    return tuple(
        replace(
            problem,
            why=redact(problem.why),
            fix=None if problem.fix is None else redact(problem.fix),
            path=redact(problem.path),
            snippet=problem.snippet and cut(problem.snippet),
        )
        for problem in problems
    )


def _length_in_common(before: str, text: str) -> int:
    """How much of `before` the text begins with: less than all if a secret begins in it and ends behind."""
    if text.startswith(before):
        return len(before)
    pairs = enumerate(zip(before, text, strict=False))
    return next((at for at, (one, other) in pairs if one != other), len(text))
