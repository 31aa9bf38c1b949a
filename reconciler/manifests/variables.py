"""The values of variables: which source gives one, and with which type.

First found wins: `--var`, `--var-file` (the later file), the variable's own `env:`, its `default:`. An
environment variable that is empty counts as not there: CI systems hand a missing secret over that way.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache, cached_property, lru_cache
from pathlib import Path
from typing import Any

from reconciler.core.declared.expression import VARIABLE_NAME, parts_of
from reconciler.core.declared.scalar import is_boolean, plain, scalar_text, spelled
from reconciler.core.declared.stack import Variable, VariableSource
from reconciler.core.diagnostic import Diagnostic, WrongUsage
from reconciler.core.text.secret import SecretText
from reconciler.manifests.suggestions import Names, listed
from reconciler.manifests.yaml.document import Document, parse_scalar, read, shorten
from reconciler.manifests.yaml.positions import diagnose

NAME = re.compile(VARIABLE_NAME)
NO_VALUE = "variable without a value"
CREDENTIAL = "credential not allowed here"


class NoValue(Exception):
    """A variable cannot be used. The words are those of a diagnostic; `is_unknown`: it is not declared."""

    def __init__(self, what: str, why: str, fix: str | None = None) -> None:
        self.what, self.why, self.fix = what, why, fix
        super().__init__(why)


@dataclass
class VariableValues:
    """What `${var.NAME}` stands for. Values are looked up when they are used, each once."""

    declared: Mapping[str, Variable]
    given: Mapping[str, str] = field(default_factory=dict)
    from_files: Mapping[str, Any] = field(default_factory=dict)
    environ: Mapping[str, str] = field(default_factory=dict)
    offline: bool = False
    _known: dict[str, Any] = field(default_factory=dict)

    def get(self, name: str) -> Any:
        """Return the value of a variable; text that must not be seen is a `SecretText`.

        Raises:
            NoValue: there is no such variable, or it has no value, or not one of its type.
        """
        if name not in self._known:
            self._known[name] = self._find(name)
        return self._known[name]

    def without_value(self) -> Iterator[tuple[str, NoValue]]:
        """Yield the declared variables that have no value, used or not."""
        for name in self.declared:
            try:
                self.get(name)
            except NoValue as error:
                if error.what == NO_VALUE:
                    yield name, error

    def sources(self, name: str, env: Any) -> Iterator[Any]:
        """Yield whatever is given for a name from outside, though another source may outdo it."""
        yield self.given.get(name)
        yield self.from_files.get(name)
        yield self.environ.get(env) if isinstance(env, str) else None

    def source(self, name: str, file_by_name: Mapping[str, str]) -> VariableSource | None:
        """Where the value of a declared variable comes from; None if it has none."""
        variable = self.declared[name]
        if name in self.given:
            return VariableSource(given=True)
        if self.from_files.get(name) is not None:
            return VariableSource(file=file_by_name[name])
        if variable.env and self.environ.get(variable.env):
            return VariableSource(env=variable.env)
        return None if variable.default is None else VariableSource(default=True)

    @cached_property
    def _not_declared(self) -> Callable[[str], tuple[str, str | None]]:
        names = Names(self.declared)
        return cache(lambda name: _not_declared(name, names))

    def _find(self, name: str) -> Any:
        variable = self.declared.get(name)
        if variable is None:
            raise NoValue("unknown variable", *self._not_declared(name))
        value = self._lookup(name, variable)
        reference = f"${{var.{name}}}"
        if value is None:
            if variable.sensitive and self.offline:
                return SecretText(reference, reference, has_value=False)
            raise NoValue(NO_VALUE, *_ways_to_give(name, variable))
        if not variable.sensitive:
            return value
        text = scalar_text(value)
        if not isinstance(text, str):
            raise NoValue("wrong type", f'the sensitive variable "{name}" is not text')
        return SecretText(text, reference)

    def _lookup(self, name: str, variable: Variable) -> Any:
        if name in self.given:
            return _typed(name, _sendable(self.given[name], f"--var {name}"), variable)
        if self.from_files.get(name) is not None:
            return self.from_files[name]
        if variable.env and self.environ.get(variable.env):
            given = _sendable(self.environ[variable.env], f"the environment variable {variable.env}")
            return _typed(name, given, variable)
        return variable.default


def _sendable(text: str, source: str) -> str:
    if not is_utf8(text):
        raise NoValue(*not_utf8(source))
    return text


def _typed(name: str, text: str, variable: Variable) -> Any:
    """Text from outside takes the type of the default; without one it is a number only if it reads so."""
    if variable.sensitive:
        return text
    value = parse_scalar(text.strip()) if text.strip() else text
    default = variable.default
    if is_boolean(default):
        return _wanted(name, value, is_boolean(value), "true or false")
    if isinstance(default, int):
        return _wanted(name, value, isinstance(value, int) and not is_boolean(value), "an integer")
    if isinstance(default, float):
        number = _wanted(name, value, isinstance(value, int | float) and not is_boolean(value), "a number")
        return spelled(float(number), scalar_text(value))
    if default is None and type(value) in (bool, int, float):
        return value if scalar_text(value) == text else text
    return text


def _wanted(name: str, value: Any, fits: bool, kind: str) -> Any:
    if not fits:
        text = shorten(str(scalar_text(value)))
        why = f'the value of "{name}" must be {kind}, like its default; got "{text}"'
        raise NoValue("wrong type", why)
    return value


def _not_declared(name: str, declared: Names) -> tuple[str, str | None]:
    found = f'"{shorten(name)}"'
    if not declared.known:
        return f"undefined variable {found}; declare it under `variables:`", None
    return f"undefined variable {found}; declared: {listed(declared.known)}", declared.did_you_mean(name)


def _ways_to_give(name: str, variable: Variable) -> tuple[str, str]:
    ways = [f"--var {name}=VALUE", f"a line {name}: VALUE in a --var-file"]
    if variable.env:
        ways.append(f"the environment variable {variable.env}")
    else:
        ways.append("env: NAME and that environment variable")
    if not variable.sensitive:
        ways.append(f"default: under variables.{name}")
    return f'"{name}" has no value', "set it with " + ", ".join(ways[:-1]) + f" or {ways[-1]}"


def is_utf8(text: str) -> bool:
    """Whether a text can be sent: one from outside may hold bytes that are none."""
    return text.isascii() or not any("\ud800" <= char <= "\udfff" for char in text)


def not_utf8(source: str) -> tuple[str, str, str]:
    """The words for a text that cannot be sent."""
    return "invalid text", f"{source} contains bytes that are not valid UTF-8", "use UTF-8"


def refused_credential(name: str) -> tuple[str, str]:
    """Why an environment variable may not be used in a manifest, and what to do."""
    why = (
        f"{name} contains a credential of reconciler itself; only targets and records may use it, "
        f"as ${{env.{name}}}"
    )
    return why, "give the job its own secret, from a different environment variable"


def texts_in(value: Any) -> Iterator[str]:
    """The texts in a value; a number is a text as well, for a secret may look like one."""
    if isinstance(value, dict | list):
        for member in value.values() if isinstance(value, dict) else value:
            yield from texts_in(member)
    elif isinstance(text := scalar_text(value), str) and text:
        yield text


_MARK = "sensitive"
_NAMES_OF_MARK = Names((_MARK,))
#: What stands beside a value that is marked as sensitive, and is none.
_BESIDE_VALUE = frozenset(("sensitive", "name", "description", "i18n_description", "env", "constraint"))


@lru_cache(maxsize=4096)
def _is_mark(name: str) -> bool:
    """Whether a name says `sensitive`, or was meant to."""
    return name.lower() == _MARK or (
        abs(len(name) - len(_MARK)) < 4 and _NAMES_OF_MARK.did_you_mean(name) is not None
    )


def marked_texts(tree: Any) -> Iterator[str]:
    """The literal texts in mappings that say `sensitive`, misspelt and misplaced ones too.

    Where a manifest is wrong, what was meant as a secret may stand where no secret is looked for.
    """
    if isinstance(tree, list):
        for item in tree:
            yield from marked_texts(item)
    elif isinstance(tree, dict):
        marks = [value for name, value in tree.items() if _is_mark(name)]
        is_marked = any(plain(mark) is not False for mark in marks)
        for name, member in tree.items():
            if name.lower() in _BESIDE_VALUE:
                continue
            if is_marked:
                for text in texts_in(member):
                    yield from (part for part in parts_of(text) if isinstance(part, str))
            else:
                yield from marked_texts(member)


def read_value_files(paths: Sequence[Path]) -> list[Document]:
    """Read the files of values (--var-file).

    Raises:
        WrongUsage: one of them does not exist.
    """
    missing = [path for path in paths if not path.is_file()]
    if missing:
        raise WrongUsage(*(Diagnostic("no such path", f"{str(path)!r}: file not found") for path in missing))
    return [read(path, path.as_posix()) for path in paths]


def problems_of(files: Sequence[Document]) -> list[Diagnostic]:
    """What is wrong with files of values; a line that cannot be read may hold a secret."""
    return [replace(problem, snippet=None) for document in files for problem in document.problems]


def unknown_names(
    given: Mapping[str, str], files: Sequence[Document], declared: Mapping[str, Variable]
) -> list[Diagnostic]:
    """The names in `--var` and in variable files that no file of the stack declares."""
    names = Names(declared)
    problems = [
        Diagnostic("unknown variable", f"--var {shorten(name)}: " + why, fix)
        for name in given
        if name not in declared
        for why, fix in [_not_declared(name, names)]
    ]
    for document in files:
        problems += [
            # Beside a name that is misspelt may stand a secret, and nobody knows that it is one.
            diagnose(
                document,
                (name,),
                "unknown variable",
                *_not_declared(name, names),
                at_key=True,
                show_line=False,
            )
            for name in document.tree
            if name not in declared
        ]
    return problems
