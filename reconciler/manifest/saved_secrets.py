"""Data that was written down without its secrets (`core.scalar.save`): how these are found again.

No manifest is read. A secret stands in the data by its reference, `Bearer ${var.hf_token}`; where each
variable had its value from was written down beside it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from reconciler.core.addresses import looks_like_passwords, passwords_in
from reconciler.core.scalar import Reference, parts_of, variables_of
from reconciler.core.settings import Variable, VariableSource
from reconciler.errors import Diagnostic, ManifestInvalid
from reconciler.files import NotRegular, TooLarge, read_file
from reconciler.manifest.expressions import Expander, problems_in
from reconciler.manifest.problems import NO_VALUE, NoValue
from reconciler.manifest.settings import misplaced_credential, resolve_url
from reconciler.manifest.variables import VariableValues, problems_of, read_value_files, texts_in
from reconciler.manifest.yaml import parse, shorten
from reconciler.secrets import REDACTED, SecretText, show

#: A file of values is a few lines.
_MOST_BYTES = 16 * 1024 * 1024


def resolve(
    tree: Any,
    sources: Mapping[str, VariableSource],
    *,
    variables: Mapping[str, str],
    var_files: Sequence[Path] = (),
    environ: Mapping[str, str],
    base: Path,
    learn: Callable[[Iterable[str]], None] = lambda _: None,
) -> Any:
    """Return saved data with its secrets: the inverse of `core.scalar.save`.

    A value is taken from `variables` (--var), else from the `var_files` that are given now, else from where
    it came from; a file is looked for below `base`. `learn` is told every secret value before anything
    else happens.

    Raises:
        ManifestInvalid: with each variable that has no value any more, or with what is no expression.
        WrongUsage: one of `var_files` does not exist.
    """
    again = _Again.read(sources, variables, var_files, environ, base)
    tree = show(tree)
    values = again.values(_names_in(texts_in(tree)), learn)
    return Expander(values.get, {}).tree(tree)


def resolve_records(
    reference: str,
    sources: Mapping[str, VariableSource],
    *,
    variables: Mapping[str, str],
    var_files: Sequence[Path] = (),
    environ: Mapping[str, str],
    base: Path,
    root: Path,
    learn: Callable[[Iterable[str]], None] = lambda _: None,
) -> str:
    """Return the URL of the record store from its reference; a relative path in it is one below `root`.

    Raises:
        ManifestInvalid: it is no address of a store, or something in it has no value any more.
        WrongUsage: one of `var_files` does not exist.
    """
    again = _Again.read(sources, variables, var_files, environ, base)
    parts = [part for part in parts_of(reference) if isinstance(part, Reference)]
    values = again.values([part.variable for part in parts if part.variable], learn)
    expander = Expander(values.get, environ, takes_credentials=True)
    try:
        if problem := misplaced_credential(reference):
            raise NoValue(*problem)
        url = resolve_url(reference, expander, root)
    except NoValue as error:
        problems = [problem for _, problem in problems_in(reference, expander)] or [error.problem]
        raise ManifestInvalid(*(Diagnostic(*one[:3]) for one in problems)) from None
    if isinstance(url, SecretText):
        learn(passwords_in(url))
    return url


def shown_address(reference: str) -> str:
    """A store's address as people may see it: passwords are hidden, references to values stay.

    Options stay, too: some of them say which host is asked.
    """
    found = {*passwords_in(reference), *looks_like_passwords(reference)}
    for password in sorted(found, key=len, reverse=True):
        if not all(isinstance(part, Reference) for part in parts_of(password)):
            reference = reference.replace(password, REDACTED)
    return reference


def _names_in(texts: Iterable[str]) -> list[str]:
    """The variables in saved texts, each once."""
    names: dict[str, None] = {}
    problems: dict[str, Diagnostic] = {}
    for text in texts:
        for part in parts_of(text):
            if not isinstance(part, Reference):
                continue
            if part.variable:
                names[part.variable] = None
            else:
                why = f"{shorten(part.text)} is not allowed in saved data; only ${{var.NAME}} is"
                problems[part.text] = Diagnostic("invalid expression", why)
    if problems:
        raise ManifestInvalid(*problems.values())
    return list(names)


@dataclass(frozen=True)
class _Again:
    """All places where a value may be found now."""

    sources: Mapping[str, VariableSource]
    given: Mapping[str, str]
    from_files: Mapping[str, Any]
    environ: Mapping[str, str]
    base: Path
    _files: dict[str, tuple[Mapping[str, Any], str | None]] = field(default_factory=dict)

    @classmethod
    def read(
        cls,
        sources: Mapping[str, VariableSource],
        given: Mapping[str, str],
        var_files: Sequence[Path],
        environ: Mapping[str, str],
        base: Path,
    ) -> _Again:
        """Read the files that are given now."""
        documents = read_value_files(var_files)
        if problems := problems_of(documents):
            raise ManifestInvalid(*problems)
        merged = {name: value for document in documents for name, value in document.tree.items()}
        return cls(sources, given, merged, environ, base)

    def values(self, names: Sequence[str], learn: Callable[[Iterable[str]], None]) -> VariableValues:
        """The values of variables; each of them has one."""
        declared, from_files = {}, dict[str, Any]()
        for name in dict.fromkeys((*self.sources, *names)):
            source = self.sources.get(name)
            env, text = (source.env, source.text) if source else (None, None)
            declared[name] = Variable(env=env, default=text, sensitive=True)
            from_files[name] = self.from_files.get(name)
            if from_files[name] is None and name not in self.given and source and source.file:
                from_files[name] = self._file(source.file)[0].get(name)
        values = VariableValues(declared, self.given, from_files, self.environ)
        learn(
            text
            for name, variable in declared.items()
            for value in values.sources(name, variable.env)
            for text in texts_in(value)
        )
        problems: dict[str, Diagnostic] = {}
        for name in names:
            try:
                learn([str(values.get(name))])
            except NoValue as error:
                what = error.problem.what
                for missing in self._without_value(name, values) or [name]:
                    told = self._missing(missing) if what == NO_VALUE else Diagnostic(*error.problem[:3])
                    problems.setdefault(missing, told)
        if problems:
            raise ManifestInvalid(*problems.values())
        return values

    def _without_value(self, name: str, values: VariableValues) -> list[str]:
        """The variables that a composed one is made of and that have no value."""
        source = self.sources.get(name)
        found = []
        for part in variables_of(source.text) if source and source.text else ():
            try:
                values.get(part)
            except NoValue:
                found += self._without_value(part, values) or [part]
        return found

    def _file(self, file: str) -> tuple[Mapping[str, Any], str | None]:
        """What a file says that gave values before, and why it says nothing, if it cannot be read."""
        if file not in self._files:
            self._files[file] = self._values_in(file)
        return self._files[file]

    def _values_in(self, file: str) -> tuple[Mapping[str, Any], str | None]:
        """Only a regular file counts, for nobody chose it on the command line."""
        path = self.base / file
        try:
            document = parse(read_file(path, _MOST_BYTES).data, path, file)
        except OSError as error:
            kind = "it is " if isinstance(error, NotRegular | TooLarge) else ""
            return {}, f"{kind}{error.strerror or type(error).__name__}"
        why = document.problems[0].why if document.problems else None
        return ({} if why else document.tree), why

    def _missing(self, name: str) -> Diagnostic:
        source = self.sources.get(name)
        fix = f"--var {name}=VALUE"
        if source is None:
            why = f'the source of the value of "{name}" is not recorded'
        elif source.env is not None:
            why = f'the value of "{name}" came from the environment variable {source.env}, which is not set'
            fix = f"export {source.env}=VALUE, or give {fix}"
        elif source.file is not None:
            unread = self._file(source.file)[1]
            said = f"which cannot be read: {unread}" if unread else "which no longer contains it"
            why = f'the value of "{name}" came from {source.file}, {said}'
            fix = f"give --var-file FILE or {fix}"
        elif source.given:
            why = f'the value of "{name}" was given by --var and is not stored'
        elif source.text is not None:
            why = f'the value of "{name}" is {source.text}, and a variable of the environment is not set'
        else:
            why = f'the value of "{name}" was in the manifest and is not stored'
        return Diagnostic(NO_VALUE, why, fix if source and (source.env or source.file) else f"give {fix}")
