"""The expressions in the values of a manifest: `${var.x}`, `${env.X}`, `${matrix.x}`, `${job.key}`, and
`${jobs.KEY.outputs.NAME}`.

A text that is one expression keeps the value's type; `$${` is a literal `${`, and `${$}` a `$`, which is
how a `$` stands directly before an expression. A text that holds a sensitive value becomes a `SecretText`,
shown with the name of the variable in place of the value.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Protocol

from reconciler.core.scalar import (
    OutputName,
    Reference,
    UnresolvedText,
    as_released,
    escape,
    outputs_in,
    parts_of,
    scalar_text,
    text_released_as,
)
from reconciler.errors import Diagnostic
from reconciler.manifest.problems import (
    CREDENTIAL,
    ENV_NOT_SET,
    NO_VALUE,
    UNKNOWN_VARIABLE,
    NotExpanded,
    NoValue,
    PathStep,
    Problem,
    Unexpanded,
    diagnose,
    did_you_mean,
    is_utf8,
    listed,
    not_utf8,
    refused_credential,
)
from reconciler.manifest.yaml import Document, shorten
from reconciler.secrets import SecretText, holds_credential, is_credential_name

# Ten lines can say a variable of a megabyte a thousand times, and `defaults` stand in each of ten thousand
# jobs. What comes of it is reckoned before it is made, like what aliases stand for.

#: So many bytes, as estimated, may come of expressions and of defaults in the jobs of all targets.
MAX_EXPANDED = 150_000_000
#: The same for the values of variables, and for all that is no job: targets, records, notifications.
MAX_SETTINGS = 10_000_000
#: What a member of a sweep takes, beside what comes of its expressions, and what a key that a job names.
MEMBER, LINK = 4_000, 200
#: What a value takes beside its text.
_VALUE = 100


class BudgetExceeded(Exception):
    """There is more than anybody means."""


@dataclass
class ExpansionBudget:
    """What is left for one manifest, on whatever target it is read; one that was exceeded stays so."""

    limit: int = field(default_factory=lambda: MAX_EXPANDED)
    spent: int = 0
    _sizes: dict[int, tuple[Any, int]] = field(default_factory=dict, repr=False)

    def spend(self, amount: int) -> None:
        """Take note of so many bytes.

        Raises:
            BudgetExceeded: this is too much.
        """
        self.spent += amount
        if self.spent > self.limit:
            raise BudgetExceeded

    @property
    def is_exceeded(self) -> bool:
        """Whether there was too much."""
        return self.spent > self.limit

    def size_of(self, value: Any) -> int:
        """Estimate the bytes of plain data; what was asked for before is known."""
        if not isinstance(value, dict | list):
            return _VALUE + (len(value) if isinstance(value, str) else 0)
        # The value is kept with its size, so that its id is never another one's.
        if id(value) not in self._sizes:
            self._sizes[id(value)] = value, measure(value)
        return self._sizes[id(value)][1]


def measure(tree: Any) -> int:
    """Estimate the bytes of plain data."""
    size, waiting = 0, [tree]
    while waiting:
        value = waiting.pop()
        size += _VALUE
        if isinstance(value, str):
            size += len(value)
        elif isinstance(value, dict):
            size += sum(map(len, value))
            waiting.extend(value.values())
        elif isinstance(value, list):
            waiting.extend(value)
    return size


def settings_budget() -> ExpansionBudget:
    """What there is for variables, and for all that is no job."""
    return ExpansionBudget(MAX_SETTINGS)


_ALLOWED = (
    "${var.NAME}, ${env.NAME}, ${matrix.AXIS}, ${job.key} and ${jobs.KEY.outputs.NAME} are allowed; "
    "$${ is a literal ${"
)
#: Expressions that have another value in another job.
_OF_ONE_JOB = ("job.", "matrix.", "jobs.")
TOO_MUCH = "expansion too large"
_ENV_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


if TYPE_CHECKING:

    class Values(Protocol):
        """What `${var.NAME}` stands for."""

        def get(self, name: str) -> Any:
            """Return the value of a variable.

            Raises:
                NoValue: it has none that could be used.
            """


@dataclass
class Expander:
    """Puts values in the place of expressions.

    `takes_secrets` is False where no sensitive variable may stand, `takes_credentials` True in `records`,
    whose password may be a credential of reconciler itself. A text that names an output of a job is kept as
    an `UnresolvedText` if `keeps_outputs` (`kept` are those that were), else `outputs` gives the value, and
    None allows no such expression.
    """

    values: Values
    environ: Mapping[str, str]
    job: str | None = None
    matrix: Mapping[str, Any] | None = None
    takes_secrets: bool = True
    takes_credentials: bool = False
    keeps_outputs: bool = False
    outputs: Callable[[Reference, OutputName], Any] | None = None
    kept: set[str] = field(default_factory=set)
    budget: ExpansionBudget = field(default_factory=ExpansionBudget)
    _same_for_all: dict[str, Any] = field(default_factory=dict)

    def for_job(self, key: str, matrix: Mapping[str, Any] | None = None) -> Expander:
        """The same, for one job: what does not depend on the job is reckoned once."""
        return replace(self, job=key, matrix=matrix)

    def tree(self, tree: Any) -> Any:
        """Return plain data with every expression in it replaced.

        Raises:
            NotExpanded: one of them has no value.
        """
        if tree.__class__ is str:
            return self.text(tree) if "${" in tree else tree
        if tree.__class__ is dict:
            # Most values are text without an expression, and most calls are saved here.
            return {
                key: value if value.__class__ is str and "${" not in value else self.tree(value)
                for key, value in tree.items()
            }
        if tree.__class__ is list:
            return [self.tree(value) for value in tree]
        return tree

    def text(self, text: str) -> Any:
        """Return the value of one text."""
        if text in self._same_for_all:
            self._spend(text, self.budget.size_of(self._same_for_all[text]))
            return self._same_for_all[text]
        if self.keeps_outputs and outputs_in(text):
            self.kept.add(text)
            return UnresolvedText(text)
        parts = parts_of(text)
        value = self._joined(parts)
        if not any(isinstance(part, Reference) and part.inner.startswith(_OF_ONE_JOB) for part in parts):
            self._same_for_all[text] = value
        return value

    def _joined(self, parts: tuple[str | Reference, ...]) -> Any:
        if len(parts) == 1 and isinstance(parts[0], Reference):
            value = self._value(parts[0])
            self._spend(parts[0].text, self.budget.size_of(value))
            return value
        texts = [self._text(part) if isinstance(part, Reference) else part for part in parts]
        # Before they are joined: a megabyte may be said a thousand times in one line.
        first = next((part.text for part in parts if isinstance(part, Reference)), "")
        self._spend(first, sum(map(len, texts)))
        joined, released = _join(texts), _join([as_released(text) for text in texts])
        if isinstance(joined, SecretText) and isinstance(released, SecretText):
            reference = text_released_as(joined.reference, released.reference)
            return SecretText(joined, reference, joined.has_value)
        return text_released_as(joined, released)

    def _spend(self, text: str, amount: int) -> None:
        try:
            self.budget.spend(amount)
        except BudgetExceeded:
            raise NotExpanded(too_much(self.budget.limit, text)) from None

    def _text(self, reference: Reference) -> str:
        value = self._value(reference)
        text = scalar_text(value)
        if not isinstance(text, str):
            kind = "nothing" if value is None else "a list or a mapping"
            why = f"{reference.text} is {kind} and cannot be embedded in text"
            raise NotExpanded(Problem(reference.text, "wrong type", why, None))
        return text

    def _value(self, reference: Reference) -> Any:
        kind, _, name = reference.inner.partition(".")
        if not reference.is_closed:
            raise _wrong(
                reference,
                f"{shorten(reference.text)} has no closing }}",
                "add the closing }, or write $${ for a literal ${",
            )
        if reference.inner == "job.key" and self.job is not None:
            return self.job
        if kind == "var" and name:
            return self._variable(reference, name)
        if kind == "matrix" and self.matrix is not None:
            return self._axis(reference, name, self.matrix)
        if kind == "env" and _ENV_NAME.fullmatch(name):
            return self._environment(reference, name)
        if kind == "jobs":
            return self._output(reference)
        raise _not_an_expression(reference, in_job=self.job is not None)

    def _output(self, reference: Reference) -> Any:
        if self.outputs is None and not self.keeps_outputs:
            why = f"{shorten(reference.text)} is available only in the values of jobs, templates and defaults"
            raise _wrong(reference, why)
        if reference.output is None or self.outputs is None:
            why = f"{shorten(reference.text)} is not a valid expression"
            raise _wrong(reference, why, "write ${jobs.KEY.outputs.NAME}")
        return self.outputs(reference, reference.output)

    def _axis(self, reference: Reference, name: str, matrix: Mapping[str, Any]) -> Any:
        if name in matrix:
            return matrix[name]
        why = f"{shorten(reference.text)}: this job has no such axis; it has {listed(sorted(matrix))}"
        raise _wrong(reference, why, did_you_mean(name, sorted(matrix), "${{matrix.{}}}"))

    def _variable(self, reference: Reference, name: str) -> Any:
        try:
            value = self.values.get(name)
        except NoValue as error:
            # What is wrong with the value itself is told once, where it comes from.
            what = error.what if error.what == UNKNOWN_VARIABLE else NO_VALUE
            raise NotExpanded(Problem(reference.text, what, error.why, error.fix)) from None
        if isinstance(value, SecretText) and not self.takes_secrets:
            raise NotExpanded(
                Problem(
                    reference.text,
                    "secret not allowed here",
                    f'the sensitive variable "{name}" must not be used here; credentials come from the '
                    "environment or a credentials file",
                    None,
                )
            )
        return value

    def _environment(self, reference: Reference, name: str) -> str:
        value = self.environ.get(name)
        if not self.takes_credentials and holds_credential(name, value or ""):
            raise NotExpanded(Problem(reference.text, CREDENTIAL, *refused_credential(name)))
        if value is not None and not is_utf8(value):
            raise NotExpanded(Problem(reference.text, *not_utf8(f"the environment variable {name}")))
        if value is None:
            raise NotExpanded(
                Problem(
                    reference.text,
                    ENV_NOT_SET,
                    f"{name} is not set",
                    f"export {name}=VALUE",
                )
            )
        return value


def too_much(limit: int, text: str = "") -> Problem:
    """The words for a manifest that comes to more than anybody means."""
    at = f", reached at {shorten(text)}" if text else ""
    what = "variables and settings" if limit == MAX_SETTINGS else "expressions and defaults"
    return Problem(
        text, TOO_MUCH, f"{what} expand to more than {limit / 1_000_000:g} MB in this manifest{at}", None
    )


def _join(texts: Sequence[str]) -> str:
    """Join texts; with a secret among them to one that shows its name."""
    shown, literal, is_secret, has_value = "", "", False, True
    for text in texts:
        if isinstance(text, SecretText):
            is_secret, has_value = True, has_value and text.has_value
            shown += escape(literal, before_expression=True) + text.reference
            literal = ""
        else:
            literal += text
    shown += escape(literal)
    if not is_secret:
        return "".join(texts)
    return SecretText("".join(texts), shown) if has_value else SecretText(shown, shown, has_value=False)


def _wrong(reference: Reference, why: str, fix: str | None = None) -> NotExpanded:
    return NotExpanded(Problem(reference.text, "invalid expression", why, fix))


def _not_an_expression(reference: Reference, *, in_job: bool) -> NotExpanded:
    inner = reference.inner
    if inner.startswith("matrix."):
        return _wrong(
            reference, f"{shorten(reference.text)} is available only in an entry with a matrix; {_ALLOWED}"
        )
    if inner == "job.key" and not in_job:
        return _wrong(reference, "${job.key} is available only below jobs and defaults")
    fix = did_you_mean(inner, ["job.key"], "${{{}}}") if inner.startswith("job") else None
    return _wrong(reference, f"{shorten(reference.text)} is not a valid expression; {_ALLOWED}", fix)


def problems_in(
    tree: Any, expander: Expander, steps: tuple[PathStep, ...] = ()
) -> Iterator[tuple[tuple[PathStep, ...], Problem]]:
    """Yield every expression without a value, with the path of the text that holds it."""
    if isinstance(tree, dict):
        for key, value in tree.items():
            yield from problems_in(value, expander, (*steps, key))
    elif isinstance(tree, list):
        for index, value in enumerate(tree):
            yield from problems_in(value, expander, (*steps, index))
    elif isinstance(tree, str) and "${" in tree:
        is_open_told = False  # all that are not closed have the one problem of the whole text
        for part in parts_of(tree):
            if isinstance(part, Reference) and (part.is_closed or not is_open_told):
                is_open_told |= not part.is_closed
                try:
                    expander.text(part.text if part.is_closed else tree)
                except NotExpanded as error:
                    yield steps, error.problem
        try:
            expander.text(tree)
        except NotExpanded as error:
            if error.problem.what == "wrong type":
                yield steps, error.problem


def credential_problems(documents: Iterable[Document]) -> Iterator[Diagnostic]:
    """Yield every expression that names a credential of reconciler itself, wherever it is written.

    The password of `records` is the only place for one, and `manifest.settings` looks at that.
    """
    for document in documents:
        for section, value in document.tree.items():
            if section != "records":
                for steps, found in _credentials_in(value, (section,)):
                    yield diagnose(
                        document, steps, *found[1:], text=found.text, show_line=section != "notify"
                    )


def _credentials_in(tree: Any, steps: tuple[PathStep, ...]) -> Iterator[tuple[tuple[PathStep, ...], Problem]]:
    if isinstance(tree, dict | list):
        for step, value in tree.items() if isinstance(tree, dict) else enumerate(tree):
            if value.__class__ is not str or "${" in value:
                yield from _credentials_in(value, (*steps, step))
    elif isinstance(tree, str):
        for part in parts_of(tree):
            if isinstance(part, Reference) and (name := credential_in(part)):
                yield steps, Problem(part.text, CREDENTIAL, *refused_credential(name))


def credential_in(reference: Reference) -> str | None:
    """The name of the environment variable if it holds a credential of reconciler itself."""
    kind, _, name = reference.inner.partition(".")
    return name if kind == "env" and is_credential_name(name) else None


#: The key of no job: it stands for itself where `defaults` are looked at without a job.
ANY_KEY = "${job.key}"


def mentions_job(tree: Any) -> bool:
    """Whether an expression in it may have another value in another job."""
    if isinstance(tree, dict):
        return any(map(mentions_job, tree.values()))
    if isinstance(tree, list):
        return any(map(mentions_job, tree))
    return isinstance(tree, str) and "${" in tree and ("job." in tree or "matrix." in tree)


def expand_partly(tree: Any, expander: Expander) -> Any:
    """The tree with those expressions replaced that have a value; the other texts are marked."""
    if isinstance(tree, dict):
        return {key: expand_partly(value, expander) for key, value in tree.items()}
    if isinstance(tree, list):
        return [expand_partly(value, expander) for value in tree]
    try:
        return expander.tree(tree)
    except NotExpanded:
        return Unexpanded(tree)


def mark_job_key(tree: Any) -> Any:
    """The tree with those texts marked that depend on the job: nothing can be said of them."""
    return _marked(tree, lambda text: type(text) is str and ANY_KEY in text)


def mark_axes(tree: Any) -> Any:
    """The tree with those texts marked that depend on the combination of a sweep."""
    return _marked(tree, lambda text: "${matrix." in text)


def mark_outputs(tree: Any) -> Any:
    """The tree with those texts marked that name outputs of other jobs."""
    return _marked(tree, lambda text: isinstance(text, UnresolvedText))


def _marked(tree: Any, is_unknown: Callable[[str], bool]) -> Any:
    if isinstance(tree, dict):
        return {key: _marked(value, is_unknown) for key, value in tree.items()}
    if isinstance(tree, list):
        return [_marked(value, is_unknown) for value in tree]
    return Unexpanded(tree) if isinstance(tree, str) and is_unknown(tree) else tree
