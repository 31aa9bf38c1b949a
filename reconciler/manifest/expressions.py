"""The expressions in the values of a manifest: `${var.x}`, `${env.X}`, `${matrix.x}`, `${job.key}`,
`${job.revision}`, and `${jobs.KEY.outputs.NAME}`.

A text that is a single expression keeps the type of the value. `$${` is a literal `${`; `${$}` is a `$`, for
use directly before an expression. A text with a sensitive value becomes a `SecretText`, which is displayed
with the expression instead of the value.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from reconciler.core.scalar import (
    OutputName,
    Reference,
    RevisionText,
    UnresolvedText,
    as_released,
    is_out_of_range,
    join_parts,
    outputs_in,
    parts_of,
    scalar_text,
    text_released_as,
    walk_texts,
)
from reconciler.errors import Diagnostic
from reconciler.manifest.problems import (
    ENV_NOT_SET,
    NO_VALUE,
    UNKNOWN_VARIABLE,
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

# Ten lines can use a variable of a megabyte a thousand times, and `defaults` are copied to ten thousand jobs.
# So the size is estimated before values are expanded, as for YAML aliases. All sizes are in bytes.

#: Limit for expressions and defaults in the jobs of all targets.
MAX_EXPANDED = 150_000_000
#: Limit for variables, and for everything else but jobs: targets, records, notifications.
MAX_SETTINGS = 10_000_000
#: Size of a member of a sweep without its expressions, and of a key that a job refers to.
MEMBER, LINK = 4_000, 200
#: Size of a value without its text.
_VALUE = 100
TOO_MUCH, SECRET_NOT_ALLOWED = "expansion too large", "secret not allowed here"


@dataclass(eq=False, repr=False)
class ExpansionBudget:
    """The expansion budget of one manifest, shared by all targets. Once exceeded, it stays exceeded."""

    limit: int = field(default_factory=lambda: MAX_EXPANDED)
    spent: int = 0
    _sizes: dict[int, tuple[Any, int]] = field(default_factory=dict, repr=False)

    def allows(self, amount: int) -> bool:
        """Spend an amount of bytes. Returns False if the budget is exceeded."""
        self.spent += amount
        return not self.is_exceeded

    @property
    def is_exceeded(self) -> bool:
        return self.spent > self.limit

    def size_of(self, value: Any) -> int:
        """Estimate the bytes of plain data. Cached."""
        if not isinstance(value, dict | list):
            return _VALUE + (len(value) if isinstance(value, str) else 0)
        # Keep a reference to the value, so that its id is not reused.
        if id(value) not in self._sizes:
            self._sizes[id(value)] = value, measure(value)
        return self._sizes[id(value)][1]

    def problem(self, text: str = "") -> Problem:
        at = f", reached at {shorten(text)}" if text else ""
        what = "variables and settings" if self.limit == MAX_SETTINGS else "expressions and defaults"
        why = f"{what} expand to more than {self.limit / 1_000_000:g} MB in this manifest{at}"
        return Problem(TOO_MUCH, why, None, text)


def measure(tree: Any) -> int:
    """Estimate the bytes of plain data."""
    size, pending = 0, [tree]
    while pending:
        value = pending.pop()
        size += _VALUE
        if isinstance(value, str):
            size += len(value)
        elif isinstance(value, dict):
            size += sum(map(len, value))
            pending.extend(value.values())
        elif isinstance(value, list):
            pending.extend(value)
    return size


def settings_budget() -> ExpansionBudget:
    return ExpansionBudget(MAX_SETTINGS)


_ALLOWED = (
    "${var.NAME}, ${env.NAME}, ${matrix.AXIS}, ${job.key}, ${job.revision} and ${jobs.KEY.outputs.NAME} are "
    "allowed; $${ is a literal ${"
)
#: Prefixes of expressions whose value depends on the job.
_JOB_PREFIXES = ("job.", "matrix.", "jobs.")


@dataclass(eq=False, repr=False)
class Expander:
    """Replaces expressions with values. `value_of` returns the value of a variable, or raises `NoValue`.

    `takes_secrets` is False where sensitive variables are not allowed. `takes_credentials` is True for
    `records`, whose password may be a credential of reconciler itself. With `keeps_outputs`, a text that
    refers to an output of a job becomes an `UnresolvedText`, and is added to `kept`; else `outputs` returns
    the value, and None forbids such expressions. `numbered` are the jobs that use `${job.revision}`.
    """

    value_of: Callable[[str], Any]
    environ: Mapping[str, str]
    job: str | None = None
    matrix: Mapping[str, Any] | None = None
    takes_secrets: bool = True
    takes_credentials: bool = False
    keeps_outputs: bool = False
    outputs: Callable[[Reference, OutputName], Any] | None = None
    kept: set[str] = field(default_factory=set)
    numbered: set[str] = field(default_factory=set)
    budget: ExpansionBudget = field(default_factory=ExpansionBudget)
    _shared: dict[str, Any] = field(default_factory=dict)

    def for_job(self, key: str, matrix: Mapping[str, Any] | None = None) -> Expander:
        """Return an expander for one job. Values that do not depend on the job are shared."""
        return replace(self, job=key, matrix=matrix)

    def tree(self, tree: Any) -> Any:
        """Return plain data with all expressions replaced.

        Raises:
            NoValue: one of them has no value.
        """
        if tree.__class__ is str:
            return self.text(tree) if "${" in tree else tree
        if tree.__class__ is dict:
            # Most values are text without an expression: save the calls.
            return {
                key: value if value.__class__ is str and "${" not in value else self.tree(value)
                for key, value in tree.items()
            }
        if tree.__class__ is list:
            return [self.tree(value) for value in tree]
        return tree

    def text(self, text: str) -> Any:
        """Return the value of one text."""
        if text in self._shared:
            self._spend(text, self.budget.size_of(self._shared[text]))
            return self._shared[text]
        if self.keeps_outputs and outputs_in(text):
            self.kept.add(text)
            return UnresolvedText(text)
        parts = parts_of(text)
        value = self._joined(parts)
        if not any(isinstance(part, Reference) and part.inner.startswith(_JOB_PREFIXES) for part in parts):
            self._shared[text] = value
        return value

    def _joined(self, parts: tuple[str | Reference, ...]) -> Any:
        if len(parts) == 1 and isinstance(parts[0], Reference):
            value = self._value(parts[0])
            self._spend(parts[0].text, self.budget.size_of(value))
            return value
        texts = [self._text(part) if isinstance(part, Reference) else part for part in parts]
        # Spend before joining: one line may use a value of a megabyte a thousand times.
        first = next((part.text for part in parts if isinstance(part, Reference)), "")
        self._spend(first, sum(map(len, texts)))
        joined, released = _join(texts), _join([as_released(text) for text in texts])
        if isinstance(joined, RevisionText):
            return joined
        if isinstance(joined, SecretText) and isinstance(released, SecretText):
            reference = text_released_as(joined.reference, released.reference)
            return SecretText(joined, reference, joined.has_value)
        return text_released_as(joined, released)

    def _spend(self, text: str, amount: int) -> None:
        if not self.budget.allows(amount):
            raise NoValue(*self.budget.problem(text))

    def _text(self, reference: Reference) -> str:
        value = self._value(reference)
        text = scalar_text(value)
        if not isinstance(text, str):
            kind = "nothing" if value is None else "a list or a mapping"
            why = f"{reference.text} is {kind} and cannot be embedded in text"
            raise NoValue("wrong type", why, text=reference.text)
        return text

    def _value(self, reference: Reference) -> Any:
        kind, _, name = reference.inner.partition(".")
        if not reference.is_closed:
            why, how = "has no closing }", "add the closing }, or write $${ for a literal ${"
            raise _wrong(reference, why, how)
        if reference.inner == "job.key" and self.job is not None:
            return self.job
        if reference.inner == "job.revision" and self.job is not None:
            self.numbered.add(self.job)
            return RevisionText([None])
        if kind == "var" and name:
            return self._variable(reference, name)
        if kind == "matrix" and self.matrix is not None:
            if name in self.matrix:
                return self.matrix[name]
            axes = sorted(self.matrix)
            fix = did_you_mean(name, axes, "${{matrix.{}}}")
            why = f"{shorten(reference.text)}: this job has no such axis; it has {listed(axes)}"
            raise NoValue("invalid expression", why, fix, reference.text)
        if kind == "env" and re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", name):
            return self._environment(reference, name)
        if kind == "jobs":
            if self.outputs is None and not self.keeps_outputs:
                raise _wrong(reference, "is available only in the values of jobs, templates and defaults")
            if reference.output is None or self.outputs is None:
                raise _wrong(reference, "is not a valid expression", "write ${jobs.KEY.outputs.NAME}")
            return self.outputs(reference, reference.output)
        if reference.inner.startswith("matrix."):
            raise _wrong(reference, f"is available only in an entry with a matrix; {_ALLOWED}")
        if reference.inner in ("job.key", "job.revision"):
            why = f"{reference.text} is available only below jobs and defaults"
            raise NoValue("invalid expression", why, text=reference.text)
        is_near = reference.inner.startswith("job")
        fix = did_you_mean(reference.inner, ["job.key", "job.revision"], "${{{}}}") if is_near else None
        raise _wrong(reference, f"is not a valid expression; {_ALLOWED}", fix)

    def _variable(self, reference: Reference, name: str) -> Any:
        try:
            value = self.value_of(name)
        except NoValue as error:
            # Other problems of the value are reported once, at its source.
            what, why, fix, _ = error.problem
            what = what if what == UNKNOWN_VARIABLE else NO_VALUE
            raise NoValue(what, why, fix, reference.text) from None
        if isinstance(value, SecretText) and not self.takes_secrets:
            why = (
                f'the sensitive variable "{name}" must not be used here; credentials come from the '
                "environment or a credentials file"
            )
            raise NoValue(SECRET_NOT_ALLOWED, why, text=reference.text)
        return value

    def _environment(self, reference: Reference, name: str) -> str:
        value = self.environ.get(name)
        if not self.takes_credentials and holds_credential(name, value or ""):
            raise NoValue(*refused_credential(name, reference.text))
        if value is None:
            raise NoValue(ENV_NOT_SET, f"{name} is not set", f"export {name}=VALUE", reference.text)
        if not is_utf8(value):
            raise NoValue(*not_utf8(f"the environment variable {name}"), reference.text)
        return value


def _join(texts: Sequence[str]) -> str:
    """Join texts. The result is a `SecretText` if one of them is."""
    secrets = [text for text in texts if isinstance(text, SecretText)]
    if any(isinstance(text, RevisionText) for text in texts):
        if secrets:
            why = f"{secrets[0].reference} is sensitive, but text that contains a revision number is shown"
            raise NoValue(SECRET_NOT_ALLOWED, why)
        numbered = (text.parts if isinstance(text, RevisionText) else (str(text),) for text in texts)
        return RevisionText(part for parts in numbered for part in parts)
    if not secrets:
        return "".join(texts)
    shown = join_parts(
        Reference("", text.reference, is_closed=True) if isinstance(text, SecretText) else text
        for text in texts
    )
    has_value = all(secret.has_value for secret in secrets)
    return SecretText("".join(texts) if has_value else shown, shown, has_value=has_value)


def _wrong(reference: Reference, why: str, fix: str | None = None) -> NoValue:
    return NoValue("invalid expression", f"{shorten(reference.text)} {why}", fix, reference.text)


_Steps = tuple[PathStep, ...]


def _expressions_in(tree: Any, steps: _Steps = ()) -> Iterator[tuple[_Steps, str]]:
    """Yield every text with an expression, with its path."""
    if isinstance(tree, dict | list):
        for step, value in tree.items() if isinstance(tree, dict) else enumerate(tree):
            if value.__class__ is not str or "${" in value:
                yield from _expressions_in(value, (*steps, step))
    elif isinstance(tree, str) and "${" in tree:
        yield steps, tree


def problems_in(tree: Any, expander: Expander, steps: _Steps = ()) -> Iterator[tuple[_Steps, Problem]]:
    """Yield the problem of each expression without a value, with the path of its text."""
    for place, text in _expressions_in(tree, steps):
        is_unclosed_reported = False  # unclosed expressions share the problem of the whole text
        for part in parts_of(text):
            if isinstance(part, Reference) and (part.is_closed or not is_unclosed_reported):
                is_unclosed_reported |= not part.is_closed
                try:
                    expander.text(part.text if part.is_closed else text)
                except NoValue as error:
                    yield place, error.problem
        try:
            expander.text(text)
        except NoValue as error:
            if error.problem.what in ("wrong type", SECRET_NOT_ALLOWED):
                yield place, error.problem


def credential_problems(documents: Iterable[Document]) -> Iterator[Diagnostic]:
    """Report each expression that names a credential of reconciler itself.

    Only the password of `records` may use one, which `manifest.settings` checks.
    """
    for document in documents:
        # In double quotes $ may be escaped.
        may_have_expressions = "${" in document.text or "\\" in document.text
        for steps, text in _expressions_in(document.tree) if may_have_expressions else ():
            for part in parts_of(text) if steps[0] != "records" else ():
                if isinstance(part, Reference) and (name := credential_in(part)):
                    problem = refused_credential(name, part.text)
                    yield diagnose(document, steps, *problem, show_line=steps[0] != "notify")


def credential_in(reference: Reference) -> str | None:
    """Return the name of the environment variable if it is a credential of reconciler itself, else None."""
    kind, _, name = reference.inner.partition(".")
    return name if kind == "env" and is_credential_name(name) else None


#: Placeholder for the key where `defaults` are checked without a job.
ANY_KEY = "${job.key}"


def is_plain(tree: Any) -> bool:
    """Whether a mapping has no expression, null, sensitive value, or number that JSON cannot represent.

    True of nearly all entries: one check replaces a separate one for each.
    """
    for value in tree.values() if tree.__class__ is dict else tree:
        cls = value.__class__
        if cls is str:
            if "${" in value:
                return False
        elif cls is dict:
            if "sensitive" in value or not is_plain(value):
                return False
        elif cls is list:
            if not is_plain(value):
                return False
        elif not (cls is int or cls is bool or cls is float) or is_out_of_range(value):
            return False
    return True


def mentions_job(tree: Any) -> bool:
    """Whether it has an expression whose value may depend on the job."""
    return any("job." in text or "matrix." in text for _, text in _expressions_in(tree))


def expand_partly(tree: Any, expander: Expander) -> Any:
    """Replace the expressions that have a value; other texts become `Unexpanded`."""

    def expanded(text: str) -> Any:
        try:
            return expander.tree(text)
        except NoValue:
            return Unexpanded(text)

    return walk_texts(tree, expanded)


def mark_unknown(tree: Any, is_unknown: Callable[[str], bool]) -> Any:
    """Replace the texts that match `is_unknown` with `Unexpanded`."""
    return walk_texts(tree, lambda text: Unexpanded(text) if is_unknown(text) else text)
