"""The variables of a stack: what its files declare and give, with the place of each."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from reconciler.core.scalar import Reference, escape, parts_of, scalar_text
from reconciler.core.stack import Variable, VariableSource
from reconciler.errors import Diagnostic, Severity
from reconciler.manifest.expressions import Expander, ExpansionBudget, settings_budget
from reconciler.manifest.merge import MergedEntry
from reconciler.manifest.positions import PathStep, diagnose, location_of_key
from reconciler.manifest.problems import NotExpanded, NoValue, Origin, validated
from reconciler.manifest.targets import VARIABLES, variables_on
from reconciler.manifest.variables import (
    NAME,
    ValueProblem,
    ValueSource,
    VariableValues,
    texts_in,
)
from reconciler.manifest.yaml import Document, shorten
from reconciler.secrets import SecretText, secret_parts

_NOT_STORED = VariableSource(default=True)


def saved_source(values: VariableValues, name: str, file_by_name: Mapping[str, str]) -> VariableSource | None:
    """Where the value of a declared variable is found again when a plan is applied without its manifest.

    None if it has none. Source: docs/saved-plans.md, "Secrets".

    `file_by_name` are the files of values (--var-file), the last that gives each variable its value.
    """
    source, value = values.raw(name)
    if source is ValueSource.OPTION:
        return VariableSource(given=True)
    if source is ValueSource.FILE:
        return VariableSource(file=file_by_name[name])
    if source is ValueSource.ENV:
        return VariableSource(env=values.declared[name].env)
    return None if source is None else _composed(values, value)


def _composed(values: VariableValues, value: Any) -> VariableSource:
    """The source of a value in a file of the stack: the text around what has its value elsewhere."""
    parts = list(_parts(values, value, frozenset())) if isinstance(value, str) else []
    if len(parts) == 1 and isinstance(parts[0], Reference) and parts[0].inner.startswith("env."):
        return VariableSource(env=parts[0].inner.removeprefix("env."))
    literal = "".join(part for part in parts if isinstance(part, str))
    is_composed = any(isinstance(part, Reference) for part in parts)
    # What looks like a secret itself is not written down.
    return VariableSource(text=_joined(parts)) if is_composed and not secret_parts(literal) else _NOT_STORED


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


def _joined(parts: Iterable[str | Reference]) -> str:
    """The text that `parts_of` takes apart into these."""
    result = literal = ""
    for part in parts:
        if isinstance(part, str):
            literal += part
        else:
            result += escape(literal, before_expression=True) + part.text
            literal = ""
    return result + escape(literal)


def declared_sensitive(documents: Iterable[Document]) -> set[str]:
    """The names of all variables that a file declares as sensitive, be the declaration valid or not."""
    return {
        name
        for document in documents
        for name, entry in _entries_of(document)
        if isinstance(entry, dict) and entry.get("sensitive", False) is not False
    }


def _entries_of(document: Document) -> Iterator[tuple[str, Any]]:
    section = document.tree.get("variables")
    yield from section.items() if isinstance(section, dict) else ()


@dataclass(frozen=True)
class GivenValues:
    """What gives values from outside: `--var`, `--var-file` and the environment; see `load`."""

    given: Mapping[str, str]
    value_files: tuple[Document, ...]
    environ: Mapping[str, str]
    offline: bool
    settings: ExpansionBudget = field(default_factory=settings_budget, kw_only=True)


class VariableSection:
    """The variables of one stack on one target.

    `problems` are those of the declarations; `value_problems` tells those of the values.
    """

    def __init__(
        self,
        entries: Mapping[str, MergedEntry],
        targets: Mapping[str, MergedEntry],
        target: MergedEntry | None,
        outside: GivenValues,
    ) -> None:
        self._entries, self._targets, self._target, self._outside = entries, targets, target, outside
        self.problems: list[Diagnostic] = []
        self.warnings: list[Diagnostic] = []
        self.declared = {name: self._variable(name, entry) for name, entry in entries.items()}
        files = outside.value_files
        from_files = {name: value for document in files for name, value in document.tree.items()}
        self.values = VariableValues(
            self.declared,
            outside.given,
            from_files,
            outside.environ,
            outside.offline,
            variables_on(target),
            outside.settings,
        )

    def _variable(self, name: str, entry: MergedEntry) -> Variable:
        origin = Origin(((entry.document, entry.steps),))
        is_named = NAME.fullmatch(name) is not None
        if not is_named:
            why = "a variable name must consist of letters, digits, _ and -, and start with a letter or _"
            problem = origin.diagnose((), "invalid key", why, at_key=True)
            self.problems.append(problem._replace(path=f"variables.{shorten(name)}"))
        variable, problems = validated(Variable, entry.value, origin)
        self.problems += problems
        if variable is None:
            # One that is invalid is declared all the same, and has a value, or that would be told too.
            return Variable(default="")
        if variable.sensitive:
            self._warn_of_literals(name, entry, variable)
        return variable if is_named else Variable(default="")

    def _warn_of_literals(self, name: str, entry: MergedEntry, variable: Variable) -> None:
        if _is_literal(variable.default):
            self.warnings.append(_literal_secret(entry.document, (*entry.steps, "default"), name))
        for target in self._targets.values():
            if _is_literal(variables_on(target).get(name)):
                steps = (*target.steps, VARIABLES, name)
                self.warnings.append(_literal_secret(target.document, steps, name))

    def value_problems(self) -> Iterator[Diagnostic]:
        """Yield what is wrong with the values, used or not, each where it comes from."""
        files_are_broken = any(document.is_broken for document in self._outside.value_files)
        for problem in self.values.problems():
            # Who knows what a broken file would have given.
            if problem.source is not None or not files_are_broken:
                yield self._value_problem(problem, self.declared[problem.name])

    def _value_problem(self, problem: ValueProblem, variable: Variable) -> Diagnostic:
        text, what, why, fix = problem.problem
        document, steps = self._place(problem.name, problem.source)
        show_line = problem.source is not ValueSource.FILE
        if problem.source in (ValueSource.OPTION, ValueSource.ENV):
            # What gave it is no file: the declaration is shown that it does not fit.
            rule = "allowed" if what == "value not allowed" else "type" if variable.type else "default"
            steps = (*steps, rule)
        elif problem.source is not None and problem.source.is_of_stack:
            show_line = not variable.sensitive
        return diagnose(
            document, (*steps, *problem.steps), what, why, fix, text=text or None,
            at_key=problem.source is None, show_line=show_line,
        )  # fmt: skip

    def _place(self, name: str, source: ValueSource | None) -> tuple[Document, tuple[PathStep, ...]]:
        """Where a value stands in a file; for one from outside, where the variable is declared."""
        entry = self._entries[name]
        if source is ValueSource.FILE:
            files = reversed(self._outside.value_files)
            return next(one for one in files if one.tree.get(name) is not None), (name,)
        if source is ValueSource.TARGET and self._target is not None:
            return self._target.document, (*self._target.steps, VARIABLES, name)
        if source is ValueSource.DEFAULT:
            return entry.document, (*entry.steps, "default")
        return entry.document, entry.steps

    def describe_source(self, name: str) -> str | None:
        """Which source gave the value of a variable, with its place where that is a file."""
        if name not in self.declared:
            return None
        source = self.values.source(name)
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
        secrets = self.values.secrets()
        here = Expander(self.values, self._outside.environ, budget=self.values.budget)
        there = [
            (variables_on(one), Expander(self._values_on(one), here.environ, budget=here.budget))
            for one in self._targets.values()
        ]
        for document in documents:
            for name, entry in _entries_of(document):
                if isinstance(entry, dict) and entry.get("sensitive", False) is not False:
                    secrets.update(_texts_of(entry.get("default"), here))
                    for on_target, expander in there:
                        secrets.update(_texts_of(on_target.get(name), expander))
                    for value in self.values.sources(name, entry.get("env")):
                        secrets.update(texts_in(value))
        return secrets

    def _values_on(self, target: MergedEntry) -> VariableValues:
        is_here = target is self._target
        return self.values if is_here else self.values.on(variables_on(target))

    def saved_sources(self) -> dict[str, VariableSource]:
        """Where the value of each sensitive variable comes from."""
        files = self._outside.value_files
        file_by_name = {name: document.file for document in files for name in document.tree}
        found = {
            name: saved_source(self.values, name, file_by_name)
            for name, variable in self.declared.items()
            if variable.sensitive
        }
        return {name: source for name, source in found.items() if source is not None}


def _texts_of(value: Any, expander: Expander) -> Iterator[str]:
    """The texts in a value that a file gives, as they stand there and as they are with their expressions."""
    for text in texts_in(value):
        yield text
        if "${" in text:
            with suppress(NotExpanded, NoValue):
                expanded = expander.text(text)
                if not isinstance(expanded, SecretText) or expanded.has_value:
                    yield from texts_in(expanded)


def _is_literal(value: Any) -> bool:
    """Whether a secret stands in the file itself."""
    return value is not None and not any("${" in text for text in texts_in(value))


def _literal_secret(document: Document, steps: tuple[PathStep, ...], name: str) -> Diagnostic:
    why = f'the sensitive variable "{name}" has its value in the file, where anyone can read it'
    fix = "use env: NAME instead"
    problem = diagnose(document, steps, "literal secret", why, fix, at_key=True, show_line=False)
    return problem._replace(severity=Severity.WARNING)
