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
from functools import lru_cache
from graphlib import TopologicalSorter
from pathlib import Path
from typing import TYPE_CHECKING, Any

from reconciler.core.scalar import (
    VARIABLE_NAME,
    Reference,
    is_boolean,
    join_parts,
    parts_of,
    plain,
    scalar_text,
    spelled,
    variables_of,
)
from reconciler.errors import Diagnostic, Severity, WrongUsage
from reconciler.manifest.expressions import Expander, ExpansionBudget, problems_in, settings_budget
from reconciler.manifest.merge import VARIABLES, MergedEntry, cycles, variables_on
from reconciler.manifest.problems import (
    ENV_NOT_SET,
    NO_VALUE,
    UNKNOWN_VARIABLE,
    NoValue,
    PathStep,
    Problem,
    describe,
    diagnose,
    did_you_mean,
    is_utf8,
    listed,
    location_of_key,
    not_utf8,
    validated,
)
from reconciler.manifest.yaml import MANIFEST_MAPPING, Document, parse, parse_scalar, read, shorten
from reconciler.secrets import SecretText, leaves, looks_secret

if TYPE_CHECKING:
    from reconciler.core.settings import Variable, VariableSource

#: What may give a variable its value, in the order in which they are asked.
OPTION, FILE, ENV, TARGET, DEFAULT = "--var", "--var-file", "env", "target", "default"
#: Those that are files of the stack, where expressions may stand.
_OF_STACK = (TARGET, DEFAULT)
#: Each type of a variable in words, and that of a whole number, which only a default asks for.
_TYPES = {
    "string": "text",
    "number": "a number",
    "integer": "an integer",
    "bool": "true or false",
    "list": "a list, e.g. [1, 2]",
    "mapping": "a mapping, e.g. {a: 1}",
}


def _typed(value: Any, variable: Variable, subject: str) -> Any:
    """Return a value as one of the declared type. A number may be written as text, and a text as a number.

    Raises:
        NoValue: it is of another type, or not one of the allowed values; `subject` says whose value it is.
    """
    if variable.type is not None:
        value = _converted(value, variable.type, variable, subject)
    return value if variable.allowed is None else _allowed(value, variable.allowed, variable, subject)


def _typed_text(text: str, variable: Variable, subject: str) -> Any:
    """Return a text from outside as a value of the declared type; without one it takes that of the default.

    With neither, or a default that is an expression, it is a number, or true or false, only if it reads
    back the same.

    Raises:
        NoValue: see `_typed`.
    """
    value, default = text, variable.default
    if variable.type is None and not variable.sensitive:
        if default is None or (isinstance(default, str) and "${" in default):
            read = parse_scalar(text.strip()) if text.strip() else text
            is_same = type(read) in (bool, int, float) and scalar_text(read) == text
            value = read if is_same else text
        elif not isinstance(default, str):
            kinds = {list: "list", dict: "mapping", int: "integer", float: "number"}
            kind = next(kind for cls, kind in kinds.items() if isinstance(default, cls))
            kind = "bool" if is_boolean(default) else kind
            value = _converted(text, kind, variable, subject, ", like its default")
            if kind == "number" and isinstance(value, int):
                value = spelled(float(value), scalar_text(value))
    return _typed(value, variable, subject)


def _converted(value: Any, kind: str, variable: Variable, subject: str, like: str = "") -> Any:
    if isinstance(value, SecretText) and not value.has_value:
        return value
    try:
        read = _read_as(kind, str.__str__(value) if isinstance(value, SecretText) else value)
    except ValueError:
        why = f"{subject} must be {_TYPES[kind]}{like}{_got(value, variable)}"
        raise NoValue("wrong type", why) from None
    # A secret stays text, whatever it reads as: only text is kept out of sight.
    return value if isinstance(value, SecretText) else read


def _read_as(kind: str, value: Any) -> Any:
    """A value as one of a type, or ValueError."""
    if kind == "string":
        read = scalar_text(value)
        is_one = isinstance(read, str)
    elif kind in ("list", "mapping"):
        read = _flow_value(value) if isinstance(value, str) else value
        is_one = isinstance(read, list if kind == "list" else dict)
    else:
        read = parse_scalar(value.strip()) if isinstance(value, str) and value.strip() else value
        is_number = isinstance(read, int if kind == "integer" else int | float) and not is_boolean(read)
        is_one = is_boolean(read) if kind == "bool" else is_number
    if not is_one:
        raise ValueError
    return read


def _flow_value(text: str) -> Any:
    """The value of YAML on one line, or of JSON on any number of them; None if it is neither."""
    document = parse(b"{value: " + text.encode() + b"\n}", Path(), "")
    return None if document.problems or document.tree.keys() != {"value"} else document.tree["value"]


def _got(value: Any, variable: Variable) -> str:
    return "" if variable.sensitive and not isinstance(value, SecretText) else f"; got {describe(value)}"


def _allowed(value: Any, allowed: list[Any], variable: Variable, subject: str) -> Any:
    """The one of the allowed values that it equals, spelled as it is there."""
    is_secret = isinstance(value, SecretText)
    if is_secret and not value.has_value:
        return value
    text = str.__str__(value) if is_secret else value
    for one in allowed:
        if _equal(text, one):
            return value if is_secret else one
    shown = ", ".join(
        describe(one) if isinstance(one, dict | list) else shorten(str(scalar_text(one))) for one in allowed
    )
    rule = f"must be one of {'the values under allowed' if variable.sensitive else shown}"
    raise NoValue("value not allowed", f"{subject} {rule}{_got(value, variable)}")


def _equal(value: Any, one: Any) -> bool:
    """Whether two values are the same; a number and the text that spells it are."""
    is_same = bool(plain(value) == plain(one))
    if isinstance(value, dict | list) or isinstance(one, dict | list):
        return is_same
    return (is_same and is_boolean(value) == is_boolean(one)) or bool(scalar_text(value) == scalar_text(one))


#: A variable, the source of its value (None: it has none), the problem, and below which path of the value.
_ValueProblem = tuple[str, str | None, Problem, tuple[PathStep, ...]]


@dataclass(eq=False, repr=False)
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
    _problems: list[_ValueProblem] = field(default_factory=list, init=False)

    def get(self, name: str) -> Any:
        """Return the value of a variable; text that must not be seen is a `SecretText`.

        Raises:
            NoValue: there is no such variable, or it has no value, or not one of its type.
        """
        self._resolve()
        if name not in self._known:
            self._known[name] = NoValue(*unknown_variable(name, self.declared))
        value = self._known[name]
        if isinstance(value, NoValue):
            raise value
        return value

    def problems(self) -> Sequence[_ValueProblem]:
        """What is wrong with the values of the declared variables, used or not; each thing once."""
        self._resolve()
        return self._problems

    def expander(self, budget: ExpansionBudget | None = None, **options: bool) -> Expander:
        """What puts the values in the place of expressions, see `Expander` for the options."""
        return Expander(self.get, self.environ, budget=budget or self.budget, **options)  # type: ignore[arg-type]

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

    def raw(self, name: str) -> tuple[str | None, Any]:
        """What the first source says that says anything, as it says it; None if none does."""
        variable = self.declared[name]
        if name in self.given:
            return OPTION, self.given[name]
        if (value := self.from_files.get(name)) is not None:
            return FILE, value
        if variable.env and (text := self.environ.get(variable.env)):
            return ENV, text
        if (value := self.on_target.get(name)) is not None:
            return TARGET, value
        return (None, None) if variable.default is None else (DEFAULT, variable.default)

    def _resolve(self) -> None:
        """Find the values of all variables, each after those that it is made of."""
        if self._is_resolved:
            return
        self._is_resolved = True
        raw = {name: self.raw(name) for name in self.declared}
        made_of = {
            name: tuple(part for text in texts_in(value) for part in variables_of(text) if part in raw)
            for name, (source, value) in raw.items()
            if source in _OF_STACK
        }
        for cycle in cycles(made_of, tuple(self.declared)):
            why = " uses ".join((*cycle, cycle[0]))
            problem = Problem("variable cycle", why, "remove one of these expressions")
            self._problems.append((cycle[0], raw[cycle[0]][0], problem, ()))
            self._known.update(dict.fromkeys(cycle, NoValue(NO_VALUE, why)))
            made_of.update(dict.fromkeys(cycle, ()))
        expander = self.expander()
        order = TopologicalSorter(made_of).static_order() if any(made_of.values()) else ()
        for name in dict.fromkeys((*order, *self.declared)):
            if name not in self._known:
                self._known[name] = self._value(name, *raw[name], expander)
        # A value in a file of the stack that another source outdoes today has to be right all the same.
        for name, variable in self.declared.items():
            for other, value in ((TARGET, self.on_target.get(name)), (DEFAULT, variable.default)):
                if other != raw[name][0] and _is_literal(value):
                    try:
                        _typed(value, variable, _subject(name, variable, other))
                    except NoValue as error:
                        self._problems.append((name, other, error.problem, ()))

    def _value(self, name: str, source: str | None, value: Any, expander: Expander) -> Any:
        """The value of a variable, or `NoValue`; what is wrong with it is a problem."""
        variable, reference = self.declared[name], f"${{var.{name}}}"
        problems: Sequence[tuple[tuple[PathStep, ...], Problem]] = ()
        try:
            if source is None:
                raise NoValue(NO_VALUE, *_ways_to_give(name, variable))
            subject = _subject(name, variable, source)
            if source in (OPTION, ENV):
                if not is_utf8(value):
                    giver = f"--var {name}" if source == OPTION else _giver(variable, source)
                    raise NoValue(*not_utf8(giver))
                value = _typed_text(value, variable, subject)
            else:
                if source in _OF_STACK:
                    try:
                        value = expander.tree(value)
                    except NoValue as error:
                        problems = tuple(problems_in(value, expander)) or (((), error.problem),)
                        raise NoValue(NO_VALUE, f'"{name}" has no value') from None
                value = _typed(value, variable, subject)
            return _secret(name, value, reference) if variable.sensitive else value
        except NoValue as error:
            problems = problems or [((), error.problem)]
            # There is nothing wrong but that somebody has not given a value yet.
            is_missing = {one.what for _, one in problems} <= {NO_VALUE, ENV_NOT_SET}
            if variable.sensitive and self.offline and is_missing:
                return SecretText(reference, reference, has_value=False)
            # That another variable has no value is told there.
            own = ((steps, one) for steps, one in problems if source is None or one.what != NO_VALUE)
            self._problems += [(name, source, one, steps) for steps, one in own]
            return error


def _giver(variable: Variable, source: str) -> str:
    givers = {ENV: f"the environment variable {variable.env}", TARGET: "the target", DEFAULT: "its default"}
    return givers.get(source, source)


def _subject(name: str, variable: Variable, source: str) -> str:
    return f'the value of "{name}" from {_giver(variable, source)}'


def _secret(name: str, value: Any, reference: str) -> SecretText:
    has_value = not isinstance(value, SecretText) or value.has_value
    text = scalar_text(value)
    if not isinstance(text, str):
        raise NoValue("wrong type", f'the sensitive variable "{name}" is not text')
    return SecretText(str.__str__(text) if has_value else reference, reference, has_value=has_value)


def _ways_to_give(name: str, variable: Variable) -> tuple[str, str]:
    ways = [
        f"--var {name}=VALUE",
        f"a line {name}: VALUE in a --var-file",
        _giver(variable, ENV) if variable.env else "env: NAME and that environment variable",
    ]
    if not variable.sensitive:
        ways += [f"variables.{name} of the target", f"default: under variables.{name}"]
    return f'"{name}" has no value', "set it with " + ", ".join(ways[:-1]) + f" or {ways[-1]}"


def texts_in(value: Any) -> Iterator[str]:
    """The texts in a value; a number is a text as well, for a secret may look like one."""
    texts = map(scalar_text, leaves(value))
    return (text for text in texts if isinstance(text, str) and text)


_MARK = "sensitive"
#: What stands beside a value that is marked as sensitive, and is none.
_BESIDE_VALUE = frozenset(
    ("sensitive", "name", "description", "i18n_description", "env", "type", "constraint")
)


@lru_cache(maxsize=4096)
def _is_mark(name: str) -> bool:
    """Whether a name says `sensitive`, or was meant to."""
    return name.lower() == _MARK or (
        abs(len(name) - len(_MARK)) < 4 and did_you_mean(name, (_MARK,)) is not None
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


def value_file_problems(files: Sequence[Document]) -> list[Diagnostic]:
    """What is wrong with files of values; a line that cannot be read may hold a secret."""
    mapping = "a mapping of names to values"
    return [
        problem._replace(why=problem.why.replace(MANIFEST_MAPPING, mapping), snippet=None)
        for document in files
        for problem in document.problems
    ]


def unknown_variable(name: str, declared: Collection[str]) -> Problem:
    """The words for a name that no file of the stack declares."""
    why = f'undefined variable "{shorten(name)}"'
    if not declared:
        return Problem(UNKNOWN_VARIABLE, f"{why}; declare it under `variables:`")
    return Problem(UNKNOWN_VARIABLE, f"{why}; declared: {listed(declared)}", did_you_mean(name, declared))


def unknown_names(
    given: Mapping[str, str],
    files: Sequence[Document],
    declared: Mapping[str, Variable],
    also_known: Collection[str] = (),
) -> Iterator[Diagnostic]:
    """Yield the names in `--var` and in variable files that are neither declared nor known."""
    known = declared.keys() | set(also_known)
    for name in given:
        if name not in known:
            what, why, fix, _ = unknown_variable(name, declared)
            yield Diagnostic(what, f"--var {shorten(name)}: " + why, fix)
    for document in files:
        for name in (one for one in document.tree if one not in known):
            # Beside a name that is misspelt may stand a secret, and nobody knows that it is one.
            yield diagnose(document, (name,), *unknown_variable(name, declared), at_key=True, show_line=False)


def declared_sensitive(documents: Iterable[Document]) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield the variables that a file declares as sensitive, be the declaration valid or not."""
    for document in documents:
        section = document.tree.get("variables")
        for name, entry in section.items() if isinstance(section, dict) else ():
            if isinstance(entry, dict) and entry.get("sensitive", False) is not False:
                yield name, entry


@dataclass(frozen=True)
class LoadInputs:
    """What a stack is read with, its files aside, and what that may come to on all targets; see `load`."""

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
        self._entries, self._targets, self._target = entries, targets, target
        self._files = inputs.value_files
        self.problems: list[Diagnostic] = []
        self.warnings: list[Diagnostic] = []
        self.declared = {name: self._variable(name, entry) for name, entry in entries.items()}
        self.values = VariableValues(
            self.declared,
            inputs.given,
            {name: value for document in self._files for name, value in document.tree.items()},
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
        if variable is not None and variable.sensitive:
            places: list[tuple[MergedEntry, tuple[str, ...], Any]] = [(entry, ("default",), variable.default)]
            places += [
                (one, (VARIABLES, name), variables_on(one).get(name)) for one in self._targets.values()
            ]
            why = f'the sensitive variable "{name}" has its value in the file, where anyone can read it'
            fix = "use env: NAME instead"
            for where, steps, value in places:
                if _is_literal(value):
                    problem = where.diagnose(steps, "literal secret", why, fix, at_key=True, show_line=False)
                    self.warnings.append(problem._replace(severity=Severity.WARNING))
        # One that is invalid is declared all the same, and has a value, or that would be told too.
        return variable if variable is not None and is_named else Variable(default="")

    def value_problems(self) -> Iterator[Diagnostic]:
        """Yield what is wrong with the values, used or not, each where it comes from."""
        files_are_broken = any(document.is_broken for document in self._files)
        for name, source, problem, below in self.values.problems():
            # Who knows what a broken file would have given.
            if source is None and files_are_broken:
                continue
            document, steps = self._place(name, source)
            show_line = source != FILE
            if source in (OPTION, ENV):
                # What gave it is no file: the declaration is shown that it does not fit.
                rule = "type" if self.declared[name].type else "default"
                steps = (*steps, "allowed" if problem.what == "value not allowed" else rule)
            elif source in _OF_STACK:
                show_line = not self.declared[name].sensitive
            steps = (*steps, *below)
            yield diagnose(document, steps, *problem, at_key=source is None, show_line=show_line)

    def _place(self, name: str, source: str | None) -> tuple[Document, tuple[PathStep, ...]]:
        """Where a value stands in a file; for one from outside, where the variable is declared."""
        entry = self._entries[name]
        if source == FILE:
            files = reversed(self._files)
            return next(one for one in files if one.tree.get(name) is not None), (name,)
        if source == TARGET and self._target is not None:
            return self._target.document, (*self._target.steps, VARIABLES, name)
        return entry.document, (*entry.steps, "default") if source == DEFAULT else entry.steps

    def describe_source(self, name: str) -> str | None:
        """Which source gave the value of a variable, with its place where that is a file."""
        source = self.values.raw(name)[0] if name in self.declared else None
        if source is None or source == OPTION:
            return source
        if source == ENV:
            return f"environment variable {self.declared[name].env}"
        location = location_of_key(*self._place(name, source))
        return f"{location.file}:{location.line}"

    def secrets(self, documents: Iterable[Document]) -> set[str]:
        """Every value of a sensitive variable, of declarations that are wrong or contradict another too.

        What another target or another source gives it counts as well: a job may take that from elsewhere.
        """
        values = self.values
        secrets = values.secrets()

        def texts_of(value: Any, values: VariableValues) -> Iterator[str]:
            """The texts in a value that a file gives, as they are there and with their expressions."""
            for text in texts_in(value):
                yield text
                if "${" in text:
                    with suppress(NoValue):
                        expanded = values.expander().text(text)
                        if not isinstance(expanded, SecretText) or expanded.has_value:
                            yield from texts_in(expanded)

        there = [
            (on_target, values if target is self._target else values.on(on_target))
            for target in self._targets.values()
            for on_target in [variables_on(target)]
        ]
        for name, entry in declared_sensitive(documents):
            secrets.update(texts_of(entry.get("default"), values))
            for on_target, values_there in there:
                secrets.update(texts_of(on_target.get(name), values_there))
            for value in values.sources(name, entry.get("env")):
                secrets.update(texts_in(value))
        return secrets

    def saved_sources(self) -> dict[str, VariableSource]:
        """Where the value of each sensitive variable is found again by a plan without its manifest.

        One without a value has no source. Source: docs/reference/saved-plans.md, "Secrets".
        """
        sensitive = [name for name, variable in self.declared.items() if variable.sensitive]
        if not sensitive:
            return {}
        from reconciler.core.settings import VariableSource

        file_by_name = {name: document.file for document in self._files for name in document.tree}
        saved = {}
        for name in sensitive:
            source, value = self.values.raw(name)
            if source is None:
                continue
            outside: dict[str, dict[str, Any]] = {
                OPTION: {"given": True},
                FILE: {"file": file_by_name.get(name)},
                ENV: {"env": self.declared[name].env},
            }
            saved[name] = VariableSource(**outside.get(source) or _composed(self.values, value))
        return saved


def _composed(values: VariableValues, value: Any) -> dict[str, Any]:
    """The source of a value in a file of the stack: the text around what has its value elsewhere."""
    parts = list(_parts(values, value, frozenset())) if isinstance(value, str) else []
    if len(parts) == 1 and isinstance(parts[0], Reference) and parts[0].inner.startswith("env."):
        return {"env": parts[0].inner.removeprefix("env.")}
    literal = "".join(part for part in parts if isinstance(part, str))
    is_composed = any(isinstance(part, Reference) for part in parts)
    # What looks like a secret itself, or like a part of one, is not written down.
    is_shown = not looks_secret("", literal) and not re.search(r"(?=[A-Za-z]*\d)[A-Za-z0-9]{16,}", literal)
    return {"text": join_parts(parts)} if is_composed and is_shown else {"default": True}


def _parts(values: VariableValues, text: str, within: frozenset[str]) -> Iterator[str | Reference]:
    """What a text is made of, where every variable that is not sensitive gives its own text."""
    for part in parts_of(text):
        name = None if isinstance(part, str) else part.variable
        if name is None or name in within or name not in values.declared or values.declared[name].sensitive:
            yield part
            continue
        source, value = values.raw(name)
        if source == ENV:
            env = f"env.{values.declared[name].env}"
            yield Reference(env, f"${{{env}}}", is_closed=True)
        elif source in _OF_STACK and isinstance(value, str):
            yield from _parts(values, value, within | {name})
        else:
            yield str(scalar_text(value))


def _is_literal(value: Any) -> bool:
    return value is not None and not any("${" in text for text in texts_in(value))
