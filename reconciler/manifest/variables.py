"""The variables of a stack: their declarations, and their values by source and type.

Sources in order of precedence: `--var`, `--var-file` (the last file first), the variable's `env:`, the
target's `variables`, `default:`. An empty environment variable counts as unset, since CI systems pass missing
secrets that way. Only values in files of the stack may have expressions; others are never expanded.
"""

from __future__ import annotations

import os
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

#: Sources of a value, in order of precedence.
OPTION, FILE, ENV, TARGET, DEFAULT = "--var", "--var-file", "env", "target", "default"
#: Sources in files of the stack, whose values may have expressions.
_STACK_SOURCES = (TARGET, DEFAULT)
#: Types for messages. Only a default can imply `integer`.
_TYPES = {
    "string": "text",
    "number": "a number",
    "integer": "an integer",
    "bool": "true or false",
    "list": "a list, e.g. [1, 2]",
    "mapping": "a mapping, e.g. {a: 1}",
}


def _typed(value: Any, variable: Variable, subject: str) -> Any:
    """Convert a value to the declared type. Numbers may be written as text, and text as a number.

    Raises:
        NoValue: it has another type, or is not one of the allowed values; `subject` names it in the message.
    """
    if variable.type is not None:
        value = _converted(value, variable.type, variable, subject)
    return value if variable.allowed is None else _allowed(value, variable.allowed, variable, subject)


def _typed_text(text: str, variable: Variable, subject: str) -> Any:
    """Convert a text from outside to the declared type, else to the type of the default.

    With neither, or if the default is an expression, it becomes a number or boolean only if that is spelled
    exactly like the text.

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
    # A secret stays text: only text can be redacted.
    return value if isinstance(value, SecretText) else read


def _read_as(kind: str, value: Any) -> Any:
    """Convert a value to a type. Raises ValueError if that fails."""
    if kind == "string":
        read = scalar_text(value)
        is_valid = isinstance(read, str)
    elif kind in ("list", "mapping"):
        read = _flow_value(value) if isinstance(value, str) else value
        is_valid = isinstance(read, list if kind == "list" else dict)
    else:
        read = parse_scalar(value.strip()) if isinstance(value, str) and value.strip() else value
        is_number = isinstance(read, int if kind == "integer" else int | float) and not is_boolean(read)
        is_valid = is_boolean(read) if kind == "bool" else is_number
    if not is_valid:
        raise ValueError
    return read


def _flow_value(text: str) -> Any:
    """Parse YAML in flow style, or JSON. Returns None if it is invalid."""
    document = parse(b"{value: " + text.encode() + b"\n}", Path(), "")
    return None if document.problems or document.tree.keys() != {"value"} else document.tree["value"]


def _got(value: Any, variable: Variable) -> str:
    return "" if variable.sensitive and not isinstance(value, SecretText) else f"; got {describe(value)}"


def _allowed(value: Any, allowed: list[Any], variable: Variable, subject: str) -> Any:
    """Return the equal value from `allowed`, with the spelling there."""
    is_secret = isinstance(value, SecretText)
    if is_secret and not value.has_value:
        return value
    text = str.__str__(value) if is_secret else value
    for choice in allowed:
        if _equal(text, choice):
            return value if is_secret else choice
    choices = ", ".join(
        describe(choice) if isinstance(choice, dict | list) else shorten(str(scalar_text(choice)))
        for choice in allowed
    )
    rule = f"must be one of {'the values under allowed' if variable.sensitive else choices}"
    raise NoValue("value not allowed", f"{subject} {rule}{_got(value, variable)}")


def _equal(value: Any, other: Any) -> bool:
    """Whether two values are equal. A number equals the text that spells it."""
    is_same = bool(plain(value) == plain(other))
    if isinstance(value, dict | list) or isinstance(other, dict | list):
        return is_same
    return (is_same and is_boolean(value) == is_boolean(other)) or bool(
        scalar_text(value) == scalar_text(other)
    )


#: A variable, the source of its value (None: it has none), the problem, and its path in the value.
_ValueProblem = tuple[str, str | None, Problem, tuple[PathStep, ...]]


@dataclass(eq=False, repr=False)
class VariableValues:
    """The values of `${var.NAME}`, resolved on first use. `on_target` are the values from the target."""

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
        """Return the value of a variable, a `SecretText` if it is sensitive.

        Raises:
            NoValue: the variable is not declared, has no value, or has a value of another type.
        """
        self._resolve()
        if name not in self._known:
            self._known[name] = NoValue(*unknown_variable(name, self.declared))
        value = self._known[name]
        if isinstance(value, NoValue):
            raise value
        return value

    def problems(self) -> Sequence[_ValueProblem]:
        """Return each problem with the values of declared variables once, used or not."""
        self._resolve()
        return self._problems

    def expander(self, budget: ExpansionBudget | None = None, **options: bool) -> Expander:
        return Expander(self.get, self.environ, budget=budget or self.budget, **options)  # type: ignore[arg-type]

    def online(self) -> VariableValues:
        """Return the values for requests, where each variable must have one."""
        return replace(self, offline=False, budget=settings_budget())

    def secrets(self) -> set[str]:
        """Return all sensitive values, including those of variables that use a sensitive one."""
        self._resolve()
        secrets = (value for value in self._known.values() if isinstance(value, SecretText))
        return {str.__str__(value) for value in secrets if value.has_value}

    def sources(self, name: str, env: Any) -> Iterator[Any]:
        """Yield the values of a name from all outside sources, regardless of precedence."""
        yield self.given.get(name)
        yield self.from_files.get(name)
        yield self.environ.get(env) if isinstance(env, str) else None

    def raw(self, name: str) -> tuple[str | None, Any]:
        """Return the source with the highest precedence and its unexpanded value; None if there is none."""
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
        """Resolve all variables in the order of their dependencies."""
        if self._is_resolved:
            return
        self._is_resolved = True
        raw = {name: self.raw(name) for name in self.declared}
        uses = {
            name: tuple(part for text in texts_in(value) for part in variables_of(text) if part in raw)
            for name, (source, value) in raw.items()
            if source in _STACK_SOURCES
        }
        for cycle in cycles(uses, tuple(self.declared)):
            why = " uses ".join((*cycle, cycle[0]))
            problem = Problem("variable cycle", why, "remove one of these expressions")
            self._problems.append((cycle[0], raw[cycle[0]][0], problem, ()))
            self._known.update(dict.fromkeys(cycle, NoValue(NO_VALUE, why)))
            uses.update(dict.fromkeys(cycle, ()))
        expander = self.expander()
        order = TopologicalSorter(uses).static_order() if any(uses.values()) else ()
        for name in dict.fromkeys((*order, *self.declared)):
            if name not in self._known:
                self._known[name] = self._value(name, *raw[name], expander)
        # Values in files of the stack must be valid even if another source overrides them.
        for name, variable in self.declared.items():
            for other, value in ((TARGET, self.on_target.get(name)), (DEFAULT, variable.default)):
                if other != raw[name][0] and _is_literal(value):
                    try:
                        _typed(value, variable, _subject(name, variable, other))
                    except NoValue as error:
                        self._problems.append((name, other, error.problem, ()))

    def _value(self, name: str, source: str | None, value: Any, expander: Expander) -> Any:
        """Return the value of a variable, or a `NoValue`, and record its problems."""
        variable, reference = self.declared[name], f"${{var.{name}}}"
        problems: Sequence[tuple[tuple[PathStep, ...], Problem]] = ()
        try:
            if source is None:
                raise NoValue(NO_VALUE, *_ways_to_set(name, variable))
            subject = _subject(name, variable, source)
            if source in (OPTION, ENV):
                if not is_utf8(value):
                    origin = f"--var {name}" if source == OPTION else _source_name(variable, source)
                    raise NoValue(*not_utf8(origin))
                value = _typed_text(value, variable, subject)
            else:
                if source in _STACK_SOURCES:
                    try:
                        value = expander.tree(value)
                    except NoValue as error:
                        problems = tuple(problems_in(value, expander)) or (((), error.problem),)
                        raise NoValue(NO_VALUE, f'"{name}" has no value') from None
                value = _typed(value, variable, subject)
            return _secret(name, value, reference) if variable.sensitive else value
        except NoValue as error:
            problems = problems or [((), error.problem)]
            # The only problem is that a value has not been set yet.
            is_missing = {problem.what for _, problem in problems} <= {NO_VALUE, ENV_NOT_SET}
            if variable.sensitive and self.offline and is_missing:
                return SecretText(reference, reference, has_value=False)
            # If another variable has no value, that is reported there.
            own = ((steps, one) for steps, one in problems if source is None or one.what != NO_VALUE)
            self._problems += [(name, source, problem, steps) for steps, problem in own]
            return error


def _source_name(variable: Variable, source: str) -> str:
    names = {ENV: f"the environment variable {variable.env}", TARGET: "the target", DEFAULT: "its default"}
    return names.get(source, source)


def _subject(name: str, variable: Variable, source: str) -> str:
    return f'the value of "{name}" from {_source_name(variable, source)}'


def _secret(name: str, value: Any, reference: str) -> SecretText:
    has_value = not isinstance(value, SecretText) or value.has_value
    text = scalar_text(value)
    if not isinstance(text, str):
        raise NoValue("wrong type", f'the sensitive variable "{name}" is not text')
    return SecretText(str.__str__(text) if has_value else reference, reference, has_value=has_value)


def _ways_to_set(name: str, variable: Variable) -> tuple[str, str]:
    ways = [
        f"--var {name}=VALUE",
        f"a line {name}: VALUE in a --var-file",
        _source_name(variable, ENV) if variable.env else "env: NAME and that environment variable",
    ]
    if not variable.sensitive:
        ways += [f"variables.{name} of the target", f"default: under variables.{name}"]
    return f'"{name}" has no value', "set it with " + ", ".join(ways[:-1]) + f" or {ways[-1]}"


def texts_in(value: Any) -> Iterator[str]:
    """Return the texts in a value. Numbers count as text, since a secret may look like one."""
    texts = map(scalar_text, leaves(value))
    return (text for text in texts if isinstance(text, str) and text)


_MARK = "sensitive"
#: Fields next to `sensitive` that are not the value.
_METADATA = frozenset(("sensitive", "name", "description", "i18n_description", "env", "type", "constraint"))


@lru_cache(maxsize=4096)
def _is_mark(name: str) -> bool:
    """Whether a name is `sensitive`, or a misspelling of it."""
    return name.lower() == _MARK or (
        abs(len(name) - len(_MARK)) < 4 and did_you_mean(name, (_MARK,)) is not None
    )


def marked_texts(tree: Any) -> Iterator[str]:
    """Yield the literal texts in mappings with a `sensitive` field, misspelt or misplaced ones included.

    An invalid manifest may have a secret where none is expected.
    """
    if isinstance(tree, list):
        for item in tree:
            yield from marked_texts(item)
    elif isinstance(tree, dict):
        is_marked = any(plain(mark) is not False for name, mark in tree.items() if _is_mark(name))
        for name, member in tree.items():
            if name.lower() in _METADATA:
                continue
            if is_marked:
                for text in texts_in(member):
                    yield from (part for part in parts_of(text) if isinstance(part, str))
            else:
                yield from marked_texts(member)


def read_value_files(paths: Sequence[Path]) -> list[Document]:
    """Read the variable files (--var-file).

    Raises:
        WrongUsage: one is not a file, or its directory cannot be read.
    """
    # By `os`: a name that is too long, and a directory that cannot be read, are no errors.
    if missing := [str(path) for path in paths if not os.path.isfile(path)]:  # noqa: PTH113
        raise WrongUsage(
            *(Diagnostic("no such path", f"{name!r} is not a readable file") for name in missing)
        )
    return [read(path, path.as_posix()) for path in paths]


def value_file_problems(files: Sequence[Document]) -> list[Diagnostic]:
    """Return the problems of variable files, without snippets: a broken line may contain a secret."""
    mapping = "a mapping of names to values"
    return [
        problem._replace(why=problem.why.replace(MANIFEST_MAPPING, mapping), snippet=None)
        for document in files
        for problem in document.problems
    ]


def unknown_variable(name: str, declared: Collection[str]) -> Problem:
    why = f'undefined variable "{shorten(name)}"'
    if not declared:
        return Problem(UNKNOWN_VARIABLE, f"{why}; declare it under `variables:`")
    return Problem(UNKNOWN_VARIABLE, f"{why}; declared: {listed(declared)}", did_you_mean(name, declared))


def unknown_names(
    given: Mapping[str, str],
    files: Sequence[Document],
    declared: Mapping[str, Variable],
    also_known: Collection[str],
) -> Iterator[Diagnostic]:
    """Yield the names in `--var` and in variable files that are neither declared nor known."""
    known = declared.keys() | set(also_known)
    for name in given:
        if name not in known:
            what, why, fix, _ = unknown_variable(name, declared)
            yield Diagnostic(what, f"--var {shorten(name)}: " + why, fix)
    for document in files:
        for name in (name for name in document.tree if name not in known):
            # The value of a misspelt variable may be a secret.
            yield diagnose(document, (name,), *unknown_variable(name, declared), at_key=True, show_line=False)


def declared_sensitive(documents: Iterable[Document]) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield each variable that a file declares as sensitive, including invalid declarations."""
    for document in documents:
        section = document.tree.get("variables")
        for name, entry in section.items() if isinstance(section, dict) else ():
            if isinstance(entry, dict) and entry.get("sensitive", False) is not False:
                yield name, entry


@dataclass(frozen=True)
class LoadInputs:
    """The arguments of `load` apart from the files, and the expansion budgets shared by all targets."""

    given: Mapping[str, str]
    value_files: Sequence[Document]
    environ: Mapping[str, str]
    offline: bool
    add_secrets: Callable[[Iterable[str]], None]
    traced: str | None = None
    settings: ExpansionBudget = field(default_factory=settings_budget)
    jobs: ExpansionBudget = field(default_factory=ExpansionBudget)


class VariableSection:
    """The variables of one stack on one target. `problems` are those of the declarations."""

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
                (target, (VARIABLES, name), variables_on(target).get(name))
                for target in self._targets.values()
            ]
            why = f'the sensitive variable "{name}" has its value in the file, where anyone can read it'
            fix = "use env: NAME instead"
            for part, steps, value in places:
                if _is_literal(value):
                    problem = part.diagnose(steps, "literal secret", why, fix, at_key=True, show_line=False)
                    self.warnings.append(problem._replace(severity=Severity.WARNING))
        # An invalid variable counts as declared and set, to avoid further problems.
        return variable if variable is not None and is_named else Variable(default="")

    def value_problems(self) -> Iterator[Diagnostic]:
        """Yield the problems of the values, used or not, each at its source."""
        files_are_broken = any(document.is_broken for document in self._files)
        for name, source, problem, below in self.values.problems():
            # A broken file may have the value.
            if source is None and files_are_broken:
                continue
            document, steps = self._place(name, source)
            show_line = source != FILE
            if source in (OPTION, ENV):
                # The source is not a file, so point to the declaration that it violates.
                rule = "type" if self.declared[name].type else "default"
                steps = (*steps, "allowed" if problem.what == "value not allowed" else rule)
            elif source in _STACK_SOURCES:
                show_line = not self.declared[name].sensitive
            steps = (*steps, *below)
            yield diagnose(document, steps, *problem, at_key=source is None, show_line=show_line)

    def _place(self, name: str, source: str | None) -> tuple[Document, tuple[PathStep, ...]]:
        """Return the path of a value in its file, or the variable's declaration for a value from outside."""
        entry = self._entries[name]
        if source == FILE:
            files = reversed(self._files)
            return next(file for file in files if file.tree.get(name) is not None), (name,)
        if source == TARGET and self._target is not None:
            return self._target.document, (*self._target.steps, VARIABLES, name)
        return entry.document, (*entry.steps, "default") if source == DEFAULT else entry.steps

    def describe_source(self, name: str) -> str | None:
        """Describe the source of a variable's value: file and line if it is a file; None if it has none."""
        source = self.values.raw(name)[0] if name in self.declared else None
        if source is None or source == OPTION:
            return source
        if source == ENV:
            return f"environment variable {self.declared[name].env}"
        location = location_of_key(*self._place(name, source))
        return f"{location.file}:{location.line}"

    def secrets(self, documents: Iterable[Document]) -> set[str]:
        """Return all values of sensitive variables, including those of invalid or conflicting declarations.

        Values from other targets and overridden sources are included, since jobs may get them elsewhere.
        """
        values = self.values
        secrets = values.secrets()

        def texts_of(value: Any, values: VariableValues) -> Iterator[str]:
            """Yield the texts in a value, both as written and expanded."""
            for text in texts_in(value):
                yield text
                if "${" in text:
                    with suppress(NoValue):
                        expanded = values.expander().text(text)
                        if not isinstance(expanded, SecretText) or expanded.has_value:
                            yield from texts_in(expanded)

        by_target = [
            (on_target, values if target is self._target else replace(values, on_target=on_target))
            for target in self._targets.values()
            for on_target in [variables_on(target)]
        ]
        for name, entry in declared_sensitive(documents):
            secrets.update(texts_of(entry.get("default"), values))
            for on_target, target_values in by_target:
                secrets.update(texts_of(on_target.get(name), target_values))
            for value in values.sources(name, entry.get("env")):
                secrets.update(texts_in(value))
        return secrets

    def saved_sources(self) -> dict[str, VariableSource]:
        """Return where a saved plan finds the value of each sensitive variable that has one.

        Source: docs/reference/saved-plans.md, "Secrets".
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
    """Return the source of a value in a file of the stack: its text with references to other sources."""
    parts = list(_parts(values, value, frozenset())) if isinstance(value, str) else []
    if len(parts) == 1 and isinstance(parts[0], Reference) and parts[0].inner.startswith("env."):
        return {"env": parts[0].inner.removeprefix("env.")}
    literal = "".join(part for part in parts if isinstance(part, str))
    is_composed = any(isinstance(part, Reference) for part in parts)
    # Literal text that looks like a secret, or like part of one, is not stored.
    is_storable = not looks_secret("", literal) and not re.search(r"(?=[A-Za-z]*\d)[A-Za-z0-9]{16,}", literal)
    return {"text": join_parts(parts)} if is_composed and is_storable else {"default": True}


def _parts(values: VariableValues, text: str, seen: frozenset[str]) -> Iterator[str | Reference]:
    """Yield the parts of a text, with variables that are not sensitive replaced with their parts."""
    for part in parts_of(text):
        name = None if isinstance(part, str) else part.variable
        if name is None or name in seen or name not in values.declared or values.declared[name].sensitive:
            yield part
            continue
        source, value = values.raw(name)
        if source == ENV:
            env = f"env.{values.declared[name].env}"
            yield Reference(env, f"${{{env}}}", is_closed=True)
        elif source in _STACK_SOURCES and isinstance(value, str):
            yield from _parts(values, value, seen | {name})
        else:
            yield str(scalar_text(value))


def _is_literal(value: Any) -> bool:
    return value is not None and not any("${" in text for text in texts_in(value))
