"""Data that was written down without its secrets (`core.scalar.save`): how these are found again.

No manifest is read. A secret stands in the data by its reference, `Bearer ${var.hf_token}`; where each
variable had its value from was written down beside it.
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

#: A file of values is a few lines.
_MOST_BYTES = 16 * 1024 * 1024


class SecretSources(NamedTuple):
    """What gives values now: `variables` (--var), else the `var_files`, else what a value came from.

    `learn` is told every secret value before anything else happens.
    """

    variables: Mapping[str, str]
    var_files: Sequence[Path]
    environ: Mapping[str, str]
    learn: Callable[[Iterable[str]], None]


def resolve(tree: Any, sources: Mapping[str, VariableSource], base: Path, given: SecretSources) -> Any:
    """Return saved data with its secrets: the inverse of `core.scalar.save`.

    `sources` say where values came from; a file is looked for below `base`.

    Raises:
        ManifestInvalid: with each variable that has no value any more, or with what is no expression.
        WrongUsage: one of the files that are given now does not exist.
    """
    tree = show(tree)
    values = _values_again(_names_in(texts_in(tree)), sources, base, given)
    return Expander(values.get, {}).tree(tree)


def resolve_records(
    reference: str, sources: Mapping[str, VariableSource], base: Path, given: SecretSources, root: Path
) -> str:
    """Return the URL of the record store from its reference; a relative path in it is one below `root`.

    Raises:
        ManifestInvalid: it is no address of a store, or something in it has no value any more.
        WrongUsage: one of the files that are given now does not exist.
    """
    values = _values_again(variables_of(reference), sources, base, given)
    expander = Expander(values.get, given.environ, takes_credentials=True)
    try:
        if problem := misplaced_credential(reference):
            raise NoValue(*problem)
        url = resolve_url(reference, expander, root)
    except NoValue as error:
        problems = [problem for _, problem in problems_in(reference, expander)] or [error.problem]
        raise ManifestInvalid(*(Diagnostic(*one[:3]) for one in problems)) from None
    if isinstance(url, SecretText):
        given.learn(passwords_in(url))
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


def _names_in(texts: Iterable[str]) -> tuple[str, ...]:
    references = [part for text in texts for part in parts_of(text) if isinstance(part, Reference)]
    if unknown := dict.fromkeys(one.text for one in references if not one.variable):
        why = "is not allowed in saved data; only ${var.NAME} is"
        raise ManifestInvalid(*(Diagnostic("invalid expression", f"{shorten(one)} {why}") for one in unknown))
    return tuple(dict.fromkeys(one.variable for one in references if one.variable))


def _values_again(
    names: Sequence[str], sources: Mapping[str, VariableSource], base: Path, given: SecretSources
) -> VariableValues:
    """The values of variables, looked for wherever one may be found now; each of the `names` has one."""
    documents = read_value_files(given.var_files)
    if wrong := value_file_problems(documents):
        raise ManifestInvalid(*wrong)
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
    given.learn(
        text
        for name, variable in declared.items()
        for value in values.sources(name, variable.env)
        for text in texts_in(value)
    )

    def without_value(name: str) -> list[str]:
        """The variables that a composed one is made of and that have no value."""
        source = sources.get(name)
        found = []
        for part in variables_of(source.text) if source and source.text else ():
            try:
                values.get(part)
            except NoValue:
                found += without_value(part) or [part]
        return found

    problems: dict[str, Diagnostic] = {}
    for name in names:
        try:
            given.learn([str(values.get(name))])
        except NoValue as error:
            for missing in without_value(name) or [name]:
                told = Diagnostic(*error.problem[:3])
                if told.what == NO_VALUE:
                    source = sources.get(missing)
                    unread = read(source.file)[1] if source and source.file else None
                    told = _missing(missing, source, unread)
                problems.setdefault(missing, told)
    if problems:
        raise ManifestInvalid(*problems.values())
    return values


def _values_in(base: Path, file: str) -> tuple[Mapping[str, Any], str | None]:
    """What a file says that gave values before, and why it says nothing, if it cannot be read.

    Only a regular file counts, for nobody chose it on the command line.
    """
    path = base / file
    try:
        document = parse(read_file(path, _MOST_BYTES), path, file)
    except OSError as error:
        kind = "it is " if isinstance(error, NotRegular | TooLarge) else ""
        return {}, f"{kind}{error.strerror or type(error).__name__}"
    why = document.problems[0].why if document.problems else None
    return ({} if why else document.tree), why


def _missing(name: str, source: VariableSource | None, unread: str | None) -> Diagnostic:
    """Say that a variable has no value any more, and where it had it from."""
    subject, fix = f'the value of "{name}"', f"give --var {name}=VALUE"
    if source is None:
        why = f"the source of {subject} is not recorded"
    elif source.env is not None:
        why = f"{subject} came from the environment variable {source.env}, which is not set"
        fix = f"export {source.env}=VALUE, or {fix}"
    elif source.file is not None:
        said = f"which cannot be read: {unread}" if unread else "which no longer contains it"
        why = f"{subject} came from {source.file}, {said}"
        fix = f"give --var-file FILE or --var {name}=VALUE"
    elif source.given:
        why = f"{subject} was given by --var and is not stored"
    elif source.text is not None:
        why = f"{subject} is {source.text}, and a variable of the environment is not set"
    else:
        why = f"{subject} was in the manifest and is not stored"
    return Diagnostic(NO_VALUE, why, fix)
