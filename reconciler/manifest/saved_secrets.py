"""Restore the secrets of data that was saved without them (`core.scalar.save`).

No manifest is read. Saved data has references to secrets, `Bearer ${var.hf_token}`; the source of each
variable's value is saved with it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

from reconciler.core.addresses import looks_like_passwords, passwords_in
from reconciler.core.scalar import Reference, parts_of, variables_of
from reconciler.core.settings import Variable, VariableSource
from reconciler.errors import Diagnostic, ManifestInvalid
from reconciler.files import NotRegular, TooLarge, read_file
from reconciler.manifest.expressions import Expander, problems_in
from reconciler.manifest.problems import NO_VALUE, NoValue
from reconciler.manifest.settings import misplaced_credential, resolve_url
from reconciler.manifest.variables import VariableValues, read_value_files, texts_in, value_file_problems
from reconciler.manifest.yaml import parse, shorten
from reconciler.secrets import REDACTED, SecretText, show

#: Limit for a variable file.
_MAX_BYTES = 16 * 1024 * 1024


class SecretSources(NamedTuple):
    """Where to look for values: `variables` (--var), then `var_files`, then the saved sources.

    `add_secrets` is called with each secret before the secret is used.
    """

    variables: Mapping[str, str]
    var_files: Sequence[Path]
    environ: Mapping[str, str]
    add_secrets: Callable[[Iterable[str]], None]


def resolve(tree: Any, sources: Mapping[str, VariableSource], base: Path, given: SecretSources) -> Any:
    """Return saved data with its secrets: the inverse of `core.scalar.save`.

    `sources` are the saved sources of variables; their files are relative to `base`.

    Raises:
        ManifestInvalid: a variable no longer has a value, or an expression is invalid; with all problems.
        WrongUsage: a file of --var-file does not exist.
    """
    tree = show(tree)
    values = _current_values(_names_in(texts_in(tree)), sources, base, given)
    return Expander(values.get, {}).tree(tree)


def resolve_records(
    reference: str, sources: Mapping[str, VariableSource], base: Path, given: SecretSources, root: Path
) -> str:
    """Return the URL of the record store from its reference. Relative paths in it are relative to `root`.

    Raises:
        ManifestInvalid: it is not the URL of a record store, or an expression in it no longer has a value.
        WrongUsage: a file of --var-file does not exist.
    """
    values = _current_values(variables_of(reference), sources, base, given)
    expander = Expander(values.get, given.environ, takes_credentials=True)
    try:
        if problem := misplaced_credential(reference):
            raise NoValue(*problem)
        url = resolve_url(reference, expander, root)
    except NoValue as error:
        problems = [problem for _, problem in problems_in(reference, expander)] or [error.problem]
        raise ManifestInvalid(*(Diagnostic(*problem[:3]) for problem in problems)) from None
    if isinstance(url, SecretText):
        given.add_secrets(passwords_in(url))
    return url


def shown_address(reference: str) -> str:
    """Redact the passwords in a record store's URL.

    References to values are kept, and so are options, some of which name the host.
    """
    passwords = {*passwords_in(reference), *looks_like_passwords(reference)}
    for password in sorted(passwords, key=len, reverse=True):
        if not all(isinstance(part, Reference) for part in parts_of(password)):
            reference = reference.replace(password, REDACTED)
    return reference


def _names_in(texts: Iterable[str]) -> tuple[str, ...]:
    references = [part for text in texts for part in parts_of(text) if isinstance(part, Reference)]
    if unknown := dict.fromkeys(reference.text for reference in references if not reference.variable):
        why = "is not allowed in saved data; only ${var.NAME} is"
        raise ManifestInvalid(
            *(Diagnostic("invalid expression", f"{shorten(text)} {why}") for text in unknown)
        )
    return tuple(dict.fromkeys(reference.variable for reference in references if reference.variable))


def _current_values(
    names: Sequence[str], sources: Mapping[str, VariableSource], base: Path, given: SecretSources
) -> VariableValues:
    """Return the values of variables. Raises ManifestInvalid if one of `names` has no value."""
    documents = read_value_files(given.var_files)
    if invalid := value_file_problems(documents):
        raise ManifestInvalid(*invalid)
    from_files = {name: value for document in documents for name, value in document.tree.items()}
    read = cache(lambda file: _values_in(base, file))
    declared = {}
    for name in dict.fromkeys((*sources, *names)):
        source = sources.get(name)
        env, text = (source.env, source.text) if source else (None, None)
        declared[name] = Variable(env=env, default=text, sensitive=True)
        if from_files.get(name) is None and name not in given.variables and source and source.file:
            from_files[name] = read(source.file)[0].get(name)
    values = VariableValues(declared, given.variables, from_files, given.environ)
    given.add_secrets(
        text
        for name, variable in declared.items()
        for value in values.sources(name, variable.env)
        for text in texts_in(value)
    )

    def without_value(name: str) -> list[str]:
        """Return the variables without a value that a variable is composed of."""
        source = sources.get(name)
        missing = []
        for part in variables_of(source.text) if source and source.text else ():
            try:
                values.get(part)
            except NoValue:
                missing += without_value(part) or [part]
        return missing

    problems: dict[str, Diagnostic] = {}
    for name in names:
        try:
            given.add_secrets([str(values.get(name))])
        except NoValue as error:
            for missing in without_value(name) or [name]:
                problem = Diagnostic(*error.problem[:3])
                if problem.what == NO_VALUE:
                    source = sources.get(missing)
                    read_error = read(source.file)[1] if source and source.file else None
                    problem = _missing(missing, source, read_error)
                problems.setdefault(missing, problem)
    if problems:
        raise ManifestInvalid(*problems.values())
    return values


def _values_in(base: Path, file: str) -> tuple[Mapping[str, Any], str | None]:
    """Return the values in a saved source file, or {} and the reason if it cannot be read.

    It must be a regular file, since it was not chosen on the command line.
    """
    path = base / file
    try:
        document = parse(read_file(path, _MAX_BYTES), path, file)
    except OSError as error:
        kind = "it is " if isinstance(error, NotRegular | TooLarge) else ""
        return {}, f"{kind}{error.strerror or type(error).__name__}"
    why = document.problems[0].why if document.problems else None
    return ({} if why else document.tree), why


def _missing(name: str, source: VariableSource | None, read_error: str | None) -> Diagnostic:
    """Report a variable that no longer has a value, and the source of its former value."""
    subject, fix = f'the value of "{name}"', f"pass --var {name}=VALUE"
    if source is None:
        why = f"the source of {subject} is not recorded"
    elif source.env is not None:
        why = f"{subject} came from the environment variable {source.env}, which is not set"
        fix = f"export {source.env}=VALUE, or {fix}"
    elif source.file is not None:
        state = f"which cannot be read: {read_error}" if read_error else "which no longer contains it"
        why = f"{subject} came from {source.file}, {state}"
        fix = f"pass --var-file FILE or --var {name}=VALUE"
    elif source.given:
        why = f"{subject} was given by --var and is not stored"
    elif source.text is not None:
        why = f"{subject} is {source.text}, and a variable of the environment is not set"
    else:
        why = f"{subject} was in the manifest and is not stored"
    return Diagnostic(NO_VALUE, why, fix)
