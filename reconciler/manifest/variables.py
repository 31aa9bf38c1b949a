"""The variables of a stack: what its files declare, which source gives a value, and with which type.

First found wins: `--var`, `--var-file` (the later file), the variable's own `env:`, the target's `variables`,
its `default:`. An environment variable that is empty counts as not there: CI systems hand a missing secret
over that way. What a file of the stack gives may hold expressions; what comes from outside is never
expanded.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from enum import StrEnum
from functools import cache, cached_property, lru_cache
from graphlib import TopologicalSorter
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from reconciler.core.scalar import (
    VARIABLE_NAME,
    Reference,
    is_boolean,
    join_parts,
    parts_of,
    plain,
    scalar_text,
    spelled,
)
from reconciler.errors import Diagnostic, Severity, WrongUsage
from reconciler.manifest.expressions import Expander, ExpansionBudget, problems_in, settings_budget
from reconciler.manifest.merge import VARIABLES, MergedEntry, cycles, variables_on
from reconciler.manifest.problems import (
    ENV_NOT_SET,
    NO_VALUE,
    UNKNOWN_VARIABLE,
    Names,
    NotExpanded,
    NoValue,
    PathStep,
    Problem,
    WrongValue,
    diagnose,
    found,
    is_utf8,
    listed,
    location_of_key,
    not_utf8,
    validated,
)
from reconciler.manifest.yaml import MANIFEST_MAPPING, Document, parse, parse_scalar, read, shorten
from reconciler.secrets import SecretText, secret_parts

if TYPE_CHECKING:
    from reconciler.core.settings import Variable, VariableSource, VariableType


class _WrongType(Exception):
    """A value is not, and does not read as, one of the type."""


def typed(value: Any, variable: Variable) -> Any:
    """Return a value as one of the declared type. A number may be written as text, and a text as a number.

    Raises:
        WrongValue: it is of another type, or not one of the allowed values.
    """
    if variable.type is not None:
        kind, convert = _TYPES[variable.type]
        value = _converted(value, convert, f"must be {kind}", variable)
    return value if variable.allowed is None else _allowed(value, variable.allowed, variable)


def typed_text(text: str, variable: Variable) -> Any:
    """Return a text from outside as a value of the declared type; without one it takes that of the default.

    With neither, or a default that is an expression, it is a number, or true or false, only if it reads
    back the same.

    Raises:
        WrongValue: see `typed`.
    """
    default = variable.default
    if variable.type is None and not variable.sensitive:
        if default is None or (isinstance(default, str) and "${" in default):
            value = parse_scalar(text.strip()) if text.strip() else text
            is_one = type(value) in (bool, int, float) and scalar_text(value) == text
            text = value if is_one else text
        else:
            text = _like_default(text, variable)
    return typed(text, variable)


def _like_default(text: str, variable: Variable) -> Any:
    default = variable.default
    if is_boolean(default) or isinstance(default, list | dict):
        is_list = isinstance(default, list)
        kind, convert = _TYPES["bool" if is_boolean(default) else "list" if is_list else "mapping"]
    elif isinstance(default, int):
        kind, convert = "an integer", _integer
    elif isinstance(default, float):
        kind, convert = _TYPES["number"]
    else:
        return text
    value = _converted(text, convert, f"must be {kind}, like its default", variable)
    if isinstance(default, float) and isinstance(value, int):
        return spelled(float(value), scalar_text(value))
    return value


def _converted(value: Any, convert: Callable[[Any], Any], rule: str, variable: Variable) -> Any:
    if isinstance(value, SecretText) and not value.has_value:
        return value
    try:
        read = convert(str.__str__(value) if isinstance(value, SecretText) else value)
    except _WrongType:
        raise WrongValue("wrong type", f"{rule}{_got(value, variable)}") from None
    # A secret stays text, whatever it reads as: only text is kept out of sight.
    return value if isinstance(value, SecretText) else read


def _got(value: Any, variable: Variable) -> str:
    return "" if variable.sensitive and not isinstance(value, SecretText) else f"; got {found(value)}"


def _text(value: Any) -> Any:
    text = scalar_text(value)
    if not isinstance(text, str):
        raise _WrongType
    return text


def _scalar(value: Any) -> Any:
    return parse_scalar(value.strip()) if isinstance(value, str) and value.strip() else value


def _number(value: Any) -> Any:
    read = _scalar(value)
    if is_boolean(read) or not isinstance(read, int | float):
        raise _WrongType
    return read


def _integer(value: Any) -> Any:
    read = _number(value)
    if not isinstance(read, int):
        raise _WrongType
    return read


def _boolean(value: Any) -> Any:
    read = _scalar(value)
    if not is_boolean(read):
        raise _WrongType
    return read


def _of_kind(kind: type) -> Callable[[Any], Any]:
    def convert(value: Any) -> Any:
        read = _flow_value(value) if isinstance(value, str) else value
        if not isinstance(read, kind):
            raise _WrongType
        return read

    return convert


def _flow_value(text: str) -> Any:
    """The value of YAML on one line, or of JSON on any number of them."""
    document = parse(b"{value: " + text.encode() + b"\n}", Path(), "")
    if document.problems or document.tree.keys() != {"value"}:
        raise _WrongType
    return document.tree["value"]


#: Each type in words, and what makes a value of it.
_TYPES: dict[VariableType, tuple[str, Callable[[Any], Any]]] = {
    "string": ("text", _text),
    "number": ("a number", _number),
    "bool": ("true or false", _boolean),
    "list": ("a list, e.g. [1, 2]", _of_kind(list)),
    "mapping": ("a mapping, e.g. {a: 1}", _of_kind(dict)),
}


def _allowed(value: Any, allowed: list[Any], variable: Variable) -> Any:
    """The one of the allowed values that it equals, spelled as it is there."""
    if isinstance(value, SecretText) and (
        not value.has_value or any(_equal(str.__str__(value), one) for one in allowed)
    ):
        return value
    for one in allowed:
        if _equal(value, one):
            return one
    shown = ", ".join(
        found(one) if isinstance(one, dict | list) else shorten(str(scalar_text(one))) for one in allowed
    )
    rule = f"must be one of {'the values under allowed' if variable.sensitive else shown}"
    raise WrongValue("value not allowed", f"{rule}{_got(value, variable)}")


def _equal(value: Any, one: Any) -> bool:
    """Whether two values are the same; a number and the text that spells it are."""
    if isinstance(value, dict | list) or isinstance(one, dict | list):
        return bool(plain(value) == plain(one))
    if is_boolean(value) == is_boolean(one) and plain(value) == plain(one):
        return True
    return bool(scalar_text(value) == scalar_text(one))


class ValueSource(StrEnum):
    """What may give a variable its value, in the order in which they are asked."""

    OPTION = "--var"
    FILE = "--var-file"
    ENV = "env"
    TARGET = "target"
    DEFAULT = "default"

    @property
    def is_of_stack(self) -> bool:
        """Whether it is a file of the stack, where expressions may stand."""
        return self in (ValueSource.TARGET, ValueSource.DEFAULT)


class ValueProblem(NamedTuple):
    """What is wrong with the value of a variable, and below which path of it; no source: it has none."""

    name: str
    source: ValueSource | None
    problem: Problem
    steps: tuple[PathStep, ...] = ()


class _Unusable(Exception):
    """A value cannot be used; what is wrong with it may have been told of another one."""

    def __init__(self, *problems: tuple[tuple[PathStep, ...], Problem]) -> None:
        self.problems = problems
        super().__init__()


@dataclass
class VariableValues:
    """What `${var.NAME}` stands for. The values are looked up when the first of them is used.

    `on_target` are those that the target gives.
    """

    declared: Mapping[str, Variable]
    given: Mapping[str, str] = field(default_factory=dict)
    from_files: Mapping[str, Any] = field(default_factory=dict)
    environ: Mapping[str, str] = field(default_factory=dict)
    offline: bool = False
    on_target: Mapping[str, Any] = field(default_factory=dict)
    budget: ExpansionBudget = field(default_factory=settings_budget)
    _known: dict[str, Any] = field(default_factory=dict, init=False)
    _is_resolved: bool = field(default=False, init=False)
    _problems: list[ValueProblem] = field(default_factory=list, init=False)

    def get(self, name: str) -> Any:
        """Return the value of a variable; text that must not be seen is a `SecretText`.

        Raises:
            NoValue: there is no such variable, or it has no value, or not one of its type.
        """
        self._resolve()
        if name not in self._known:
            self._known[name] = NoValue(UNKNOWN_VARIABLE, *self._not_declared(name))
        value = self._known[name]
        if isinstance(value, NoValue):
            raise value
        return value

    def problems(self) -> tuple[ValueProblem, ...]:
        """What is wrong with the values of the declared variables, used or not; each thing once."""
        self._resolve()
        return tuple(self._problems)

    def on(self, on_target: Mapping[str, Any]) -> VariableValues:
        """The same with the values that another target gives."""
        return replace(self, on_target=on_target)

    def online(self) -> VariableValues:
        """The same, for what is to be sent: each variable needs its value."""
        return replace(self, offline=False, budget=settings_budget())

    def secrets(self) -> set[str]:
        """The values of the sensitive variables, those that hold a secret included."""
        self._resolve()
        found = (value for value in self._known.values() if isinstance(value, SecretText))
        return {str.__str__(value) for value in found if value.has_value}

    def sources(self, name: str, env: Any) -> Iterator[Any]:
        """Yield whatever is given for a name from outside, though another source may outdo it."""
        yield self.given.get(name)
        yield self.from_files.get(name)
        yield self.environ.get(env) if isinstance(env, str) else None

    @cached_property
    def _not_declared(self) -> Callable[[str], tuple[str, str | None]]:
        names = Names(self.declared)
        return cache(lambda name: _not_declared(name, names))

    def raw(self, name: str) -> tuple[ValueSource | None, Any]:
        """What the first source says that says anything, as it says it; None if none does."""
        variable = self.declared[name]
        if name in self.given:
            return ValueSource.OPTION, self.given[name]
        if (value := self.from_files.get(name)) is not None:
            return ValueSource.FILE, value
        if variable.env and (text := self.environ.get(variable.env)):
            return ValueSource.ENV, text
        if (value := self.on_target.get(name)) is not None:
            return ValueSource.TARGET, value
        return (None, None) if variable.default is None else (ValueSource.DEFAULT, variable.default)

    def _resolve(self) -> None:
        """Find the values of all variables, each after those that it is made of."""
        if self._is_resolved:
            return
        self._is_resolved = True
        raw = {name: self.raw(name) for name in self.declared}
        made_of = {
            name: tuple(part for part in _names_in(value) if part in raw)
            for name, (source, value) in raw.items()
            if source is not None and source.is_of_stack
        }
        for cycle in cycles(made_of, tuple(self.declared)):
            why = " uses ".join((*cycle, cycle[0]))
            problem = Problem("variable cycle", why, "remove one of these expressions")
            self._problems.append(ValueProblem(cycle[0], raw[cycle[0]][0], problem))
            self._known.update(dict.fromkeys(cycle, NoValue(NO_VALUE, why)))
            made_of.update(dict.fromkeys(cycle, ()))
        expander = Expander(self.get, self.environ, budget=self.budget)
        order = TopologicalSorter(made_of).static_order() if any(made_of.values()) else ()
        for name in dict.fromkeys((*order, *self.declared)):
            if name not in self._known:
                self._known[name] = self._found(name, *raw[name], expander)
        for name in self.declared:
            self._check_overridden(name, raw[name][0])

    def _check_overridden(self, name: str, source: ValueSource | None) -> None:
        """A value in a file of the stack that another source outdoes today has to be right all the same."""
        variable = self.declared[name]
        others = {ValueSource.TARGET: self.on_target.get(name), ValueSource.DEFAULT: variable.default}
        for other, value in others.items():
            if other is not source and _is_literal(value):
                try:
                    typed(value, variable)
                except WrongValue as error:
                    self._problems.append(_wrong(name, variable, other, error))

    def _found(self, name: str, source: ValueSource | None, value: Any, expander: Expander) -> Any:
        variable = self.declared[name]
        reference = f"${{var.{name}}}"
        try:
            if source is None:
                raise NoValue(NO_VALUE, *_ways_to_give(name, variable))
            value = self._typed(name, variable, source, value, expander)
            return value if not variable.sensitive else _secret(name, value, reference)
        except (NoValue, _Unusable) as error:
            problems: Sequence[tuple[tuple[PathStep, ...], Problem]] = (
                [((), error.problem)] if isinstance(error, NoValue) else error.problems
            )
            # There is nothing wrong but that somebody has not given a value yet.
            is_missing = {one.what for _, one in problems} <= {NO_VALUE, ENV_NOT_SET}
            if variable.sensitive and self.offline and is_missing:
                return SecretText(reference, reference, has_value=False)
            if isinstance(error, WrongValue) and source is not None:
                self._problems.append(_wrong(name, variable, source, error))
            elif isinstance(error, NoValue):
                self._problems.append(ValueProblem(name, source, error.problem))
            else:
                # That another variable has no value is told there.
                own = ((steps, one) for steps, one in problems if one.what != NO_VALUE)
                self._problems += [ValueProblem(name, source, one, steps) for steps, one in own]
                return NoValue(NO_VALUE, f'"{name}" has no value')
            return error

    def _typed(
        self, name: str, variable: Variable, source: ValueSource, value: Any, expander: Expander
    ) -> Any:
        if source in (ValueSource.OPTION, ValueSource.ENV):
            if not is_utf8(value):
                giver = f"--var {name}" if source is ValueSource.OPTION else _giver(variable, source)
                raise NoValue(*not_utf8(giver))
            return typed_text(value, variable)
        if source.is_of_stack:
            try:
                value = expander.tree(value)
            except NotExpanded as error:
                raise _Unusable(*(tuple(problems_in(value, expander)) or (((), error.problem),))) from None
        return typed(value, variable)


def _giver(variable: Variable, source: ValueSource) -> str:
    if source is ValueSource.ENV:
        return f"the environment variable {variable.env}"
    return {ValueSource.TARGET: "the target", ValueSource.DEFAULT: "its default"}.get(source, source.value)


def _wrong(name: str, variable: Variable, source: ValueSource, error: WrongValue) -> ValueProblem:
    """A value that is not what the variable declares, with the source that gave it."""
    what, why, fix, _ = error.problem
    why = f'the value of "{name}" from {_giver(variable, source)} {why}'
    return ValueProblem(name, source, Problem(what, why, fix))


def _names_in(value: Any) -> Iterator[str]:
    """The variables that a value is made of."""
    for text in texts_in(value):
        if "${" in text:
            for part in parts_of(text):
                if isinstance(part, Reference) and part.variable:
                    yield part.variable


def _secret(name: str, value: Any, reference: str) -> SecretText:
    has_value = not isinstance(value, SecretText) or value.has_value
    text = scalar_text(value)
    if not isinstance(text, str):
        raise NoValue("wrong type", f'the sensitive variable "{name}" is not text')
    return SecretText(str.__str__(text) if has_value else reference, reference, has_value=has_value)


def _not_declared(name: str, declared: Names) -> tuple[str, str | None]:
    found = f'"{shorten(name)}"'
    if not declared.known:
        return f"undefined variable {found}; declare it under `variables:`", None
    return f"undefined variable {found}; declared: {listed(declared.known)}", declared.did_you_mean(name)


def _ways_to_give(name: str, variable: Variable) -> tuple[str, str]:
    env = f"the environment variable {variable.env}" if variable.env else None
    ways = [
        f"--var {name}=VALUE",
        f"a line {name}: VALUE in a --var-file",
        env or "env: NAME and that environment variable",
    ]
    if not variable.sensitive:
        ways += [f"variables.{name} of the target", f"default: under variables.{name}"]
    return f'"{name}" has no value', "set it with " + ", ".join(ways[:-1]) + f" or {ways[-1]}"


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
_BESIDE_VALUE = frozenset(
    ("sensitive", "name", "description", "i18n_description", "env", "type", "constraint")
)


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
        is_marked = any(plain(mark) is not False for name, mark in tree.items() if _is_mark(name))
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
    mapping = "a mapping of names to values"
    return [
        problem._replace(why=problem.why.replace(MANIFEST_MAPPING, mapping), snippet=None)
        for document in files
        for problem in document.problems
    ]


def unknown_variable(name: str, declared: Names) -> Problem:
    """The words for a name that no file of the stack declares."""
    return Problem(UNKNOWN_VARIABLE, *_not_declared(name, declared))


def unknown_names(
    given: Mapping[str, str],
    files: Sequence[Document],
    declared: Mapping[str, Variable],
    also_known: Collection[str] = (),
) -> Iterator[Diagnostic]:
    """Yield the names in `--var` and in variable files that are neither declared nor known."""
    names = Names(declared)
    known = declared.keys() | set(also_known)
    for name in given:
        if name not in known:
            why, fix = _not_declared(name, names)
            yield Diagnostic(UNKNOWN_VARIABLE, f"--var {shorten(name)}: " + why, fix)
    for document in files:
        for name in (one for one in document.tree if one not in known):
            # Beside a name that is misspelt may stand a secret, and nobody knows that it is one.
            problem = unknown_variable(name, names)
            yield diagnose(document, (name,), *problem, at_key=True, show_line=False)


#: The fields of a `VariableSource`.
_Source = dict[str, Any]


def _saved_source(values: VariableValues, name: str, file_by_name: Mapping[str, str]) -> _Source | None:
    """Where the value of a declared variable is found again when a plan is applied without its manifest.

    None if it has none. Source: docs/saved-plans.md, "Secrets".

    `file_by_name` are the files of values (--var-file), the last that gives each variable its value.
    """
    source, value = values.raw(name)
    if source is ValueSource.OPTION:
        return {"given": True}
    if source is ValueSource.FILE:
        return {"file": file_by_name[name]}
    if source is ValueSource.ENV:
        return {"env": values.declared[name].env}
    return None if source is None else _composed(values, value)


def _composed(values: VariableValues, value: Any) -> _Source:
    """The source of a value in a file of the stack: the text around what has its value elsewhere."""
    parts = list(_parts(values, value, frozenset())) if isinstance(value, str) else []
    if len(parts) == 1 and isinstance(parts[0], Reference) and parts[0].inner.startswith("env."):
        return {"env": parts[0].inner.removeprefix("env.")}
    literal = "".join(part for part in parts if isinstance(part, str))
    is_composed = any(isinstance(part, Reference) for part in parts)
    # What looks like a secret itself is not written down.
    if not is_composed or secret_parts(literal):
        return {"default": True}
    return {"text": join_parts(parts)}


def _parts(values: VariableValues, text: str, within: frozenset[str]) -> Iterator[str | Reference]:
    """What a text is made of, where every variable that is not sensitive gives its own text."""
    for part in parts_of(text):
        name = None if isinstance(part, str) else part.variable
        if name is None or name in within or name not in values.declared or values.declared[name].sensitive:
            yield part
            continue
        source, value = values.raw(name)
        if source is ValueSource.ENV:
            env = f"env.{values.declared[name].env}"
            yield Reference(env, f"${{{env}}}", is_closed=True)
        elif source is not None and source.is_of_stack and isinstance(value, str):
            yield from _parts(values, value, within | {name})
        else:
            yield str(scalar_text(value))


def declared_sensitive(documents: Iterable[Document]) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield the variables that a file declares as sensitive, be the declaration valid or not."""
    for document in documents:
        section = document.tree.get("variables")
        for name, entry in section.items() if isinstance(section, dict) else ():
            if isinstance(entry, dict) and entry.get("sensitive", False) is not False:
                yield name, entry


@dataclass(frozen=True)
class LoadInputs:
    """What a stack is read with, its files aside; see `load`."""

    given: Mapping[str, str]
    value_files: Sequence[Document]
    environ: Mapping[str, str]
    offline: bool
    learn: Callable[[Iterable[str]], None]
    traced: str | None = None
    settings: ExpansionBudget = field(default_factory=settings_budget)
    jobs: ExpansionBudget = field(default_factory=ExpansionBudget)


class VariableSection:
    """The variables of one stack on one target.

    `problems` are those of the declarations; `value_problems` tells those of the values.
    """

    def __init__(
        self,
        entries: Mapping[str, MergedEntry],
        targets: Mapping[str, MergedEntry],
        target: MergedEntry | None,
        inputs: LoadInputs,
    ) -> None:
        self._entries, self._targets, self._target, self._inputs = entries, targets, target, inputs
        self.problems: list[Diagnostic] = []
        self.warnings: list[Diagnostic] = []
        self.declared = {name: self._variable(name, entry) for name, entry in entries.items()}
        self.values = VariableValues(
            self.declared,
            inputs.given,
            {name: value for document in inputs.value_files for name, value in document.tree.items()},
            inputs.environ,
            inputs.offline,
            variables_on(target),
            inputs.settings,
        )

    def _variable(self, name: str, entry: MergedEntry) -> Variable:
        from reconciler.core.settings import Variable

        is_named = re.fullmatch(VARIABLE_NAME, name) is not None
        if not is_named:
            why = "a variable name must consist of letters, digits, _ and -, and start with a letter or _"
            problem = entry.diagnose((), "invalid key", why, at_key=True)
            self.problems.append(problem._replace(path=f"variables.{shorten(name)}"))
        variable, problems = validated(Variable, entry.value, entry.origin)
        self.problems += problems
        if variable is None:
            # One that is invalid is declared all the same, and has a value, or that would be told too.
            return Variable(default="")
        if variable.sensitive:
            if _is_literal(variable.default):
                self._warn_of_literal(entry, ("default",), name)
            for target in self._targets.values():
                if _is_literal(variables_on(target).get(name)):
                    self._warn_of_literal(target, (VARIABLES, name), name)
        return variable if is_named else Variable(default="")

    def _warn_of_literal(self, entry: MergedEntry, steps: tuple[PathStep, ...], name: str) -> None:
        why = f'the sensitive variable "{name}" has its value in the file, where anyone can read it'
        fix = "use env: NAME instead"
        problem = entry.diagnose(steps, "literal secret", why, fix, at_key=True, show_line=False)
        self.warnings.append(problem._replace(severity=Severity.WARNING))

    def value_problems(self) -> Iterator[Diagnostic]:
        """Yield what is wrong with the values, used or not, each where it comes from."""
        files_are_broken = any(document.is_broken for document in self._inputs.value_files)
        for name, source, problem, below in self.values.problems():
            # Who knows what a broken file would have given.
            if source is None and files_are_broken:
                continue
            document, steps = self._place(name, source)
            show_line = source is not ValueSource.FILE
            if source in (ValueSource.OPTION, ValueSource.ENV):
                # What gave it is no file: the declaration is shown that it does not fit.
                rule = "type" if self.declared[name].type else "default"
                steps = (*steps, "allowed" if problem.what == "value not allowed" else rule)
            elif source is not None and source.is_of_stack:
                show_line = not self.declared[name].sensitive
            steps = (*steps, *below)
            yield diagnose(document, steps, *problem, at_key=source is None, show_line=show_line)

    def _place(self, name: str, source: ValueSource | None) -> tuple[Document, tuple[PathStep, ...]]:
        """Where a value stands in a file; for one from outside, where the variable is declared."""
        entry = self._entries[name]
        if source is ValueSource.FILE:
            files = reversed(self._inputs.value_files)
            return next(one for one in files if one.tree.get(name) is not None), (name,)
        if source is ValueSource.TARGET and self._target is not None:
            return self._target.document, (*self._target.steps, VARIABLES, name)
        return entry.document, (*entry.steps, "default") if source is ValueSource.DEFAULT else entry.steps

    def describe_source(self, name: str) -> str | None:
        """Which source gave the value of a variable, with its place where that is a file."""
        if name not in self.declared:
            return None
        source, _ = self.values.raw(name)
        if source is None or source is ValueSource.OPTION:
            return source
        if source is ValueSource.ENV:
            return f"environment variable {self.declared[name].env}"
        location = location_of_key(*self._place(name, source))
        return f"{location.file}:{location.line}"

    def secrets(self, documents: Iterable[Document]) -> set[str]:
        """Every value of a sensitive variable, of declarations that are wrong or contradict another too.

        What another target or another source gives it counts as well: a job may take that from elsewhere.
        """
        secrets, values = self.values.secrets(), self.values

        def expander(values: VariableValues) -> Expander:
            return Expander(values.get, self._inputs.environ, budget=self.values.budget)

        here = expander(values)
        there = [
            (on_target, expander(values if target is self._target else values.on(on_target)))
            for target in self._targets.values()
            for on_target in [variables_on(target)]
        ]
        for name, entry in declared_sensitive(documents):
            secrets.update(_texts_of(entry.get("default"), here))
            for on_target, there_expander in there:
                secrets.update(_texts_of(on_target.get(name), there_expander))
            for value in values.sources(name, entry.get("env")):
                secrets.update(texts_in(value))
        return secrets

    def saved_sources(self) -> dict[str, VariableSource]:
        """Where the value of each sensitive variable comes from."""
        sensitive = [name for name, variable in self.declared.items() if variable.sensitive]
        if not sensitive:
            return {}
        from reconciler.core.settings import VariableSource

        files = self._inputs.value_files
        file_by_name = {name: document.file for document in files for name in document.tree}
        found = {name: _saved_source(self.values, name, file_by_name) for name in sensitive}
        return {name: VariableSource(**source) for name, source in found.items() if source is not None}


def _texts_of(value: Any, expander: Expander) -> Iterator[str]:
    """The texts in a value that a file gives, as they stand there and as they are with their expressions."""
    for text in texts_in(value):
        yield text
        if "${" in text:
            with suppress(NoValue):
                expanded = expander.text(text)
                if not isinstance(expanded, SecretText) or expanded.has_value:
                    yield from texts_in(expanded)


def _is_literal(value: Any) -> bool:
    """Whether a value stands in the file itself."""
    return value is not None and not any("${" in text for text in texts_in(value))
