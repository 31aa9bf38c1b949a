"""What is wrong, where, why, and how to fix it.

Exceptions carry diagnostics; only `cli/` shows them and picks the exit code::

    ReconcilerError
    ├── ManifestInvalid      the files say something that cannot be (65)
    ├── WrongUsage           a path, a key or an option that does not exist (64)
    ├── Refused              a guard or a person said no (3)
    └── ServiceError       the target did not do what it was asked, see `core.ports`
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol, TypeVar

from reconciler.core.exit_code import ExitCode
from reconciler.core.text.sanitize import printable


class Severity(StrEnum):
    """Whether the run can go on."""

    ERROR = "error"
    WARNING = "warning"


@dataclass(frozen=True, slots=True, order=True)
class Location:
    """A place in a file: `line` and `column` count from 1, as editors do."""

    file: str
    line: int
    column: int

    def __str__(self) -> str:
        return f"{self.file}:{self.line}:{self.column}"


#: So much of a long line is shown, and so much of that before what is meant.
_WIDTH, _BEFORE = 120, 50


@dataclass(frozen=True, slots=True)
class Snippet:
    """The line a diagnostic points at: `length` characters of it from `start` (0-based) on are meant."""

    text: str
    start: int
    length: int

    def cut(self) -> Snippet:
        """As much of the line as a person can take in, with nothing in it that is obeyed, or not seen."""
        begin = max(0, min(self.start - _BEFORE, len(self.text) - _WIDTH))
        end = min(len(self.text), begin + _WIDTH)
        head, tail = "…" * (begin > 0), "…" * (end < len(self.text))
        stop = max(self.start + 1, min(self.start + self.length, end))
        parts = self.text[begin : self.start], self.text[self.start : stop], self.text[stop:end]
        before, meant, after = map(_on_one_line, parts)
        return Snippet(head + before + meant + after + tail, len(head + before), max(1, len(meant)))


def _on_one_line(text: str) -> str:
    return "".join(char if char.isprintable() else " " for char in printable(text))


@dataclass(frozen=True, slots=True)
class Diagnostic:
    """One problem.

    `what` is the same words for the same problem, so that people can search for it.
    `why` holds the specifics, `fix` a command to paste or an edit to make (None where we know none),
    `path` the key path, e.g. `jobs.resnet50.spec.resource`.
    """

    what: str
    why: str = ""
    fix: str | None = None
    location: Location | None = None
    path: str = ""
    snippet: Snippet | None = None
    severity: Severity = Severity.ERROR


class ReconcilerError(Exception):
    """Something that a person has to know; `diagnostics` says it, in the order to be shown.

    `exit_code` is that of a command which ends by it.
    """

    exit_code: ExitCode = ExitCode.FAILED

    def __init__(self, *diagnostics: Diagnostic) -> None:
        self.diagnostics: tuple[Diagnostic, ...] = diagnostics
        super().__init__("; ".join(f"{d.what}: {d.why}" if d.why else d.what for d in diagnostics))


class ManifestInvalid(ReconcilerError):
    """The manifest, or another file that a person wrote, is invalid."""

    exit_code = ExitCode.INVALID


class WrongUsage(ReconcilerError):
    """The command line names something that does not exist, or is not to be had that way."""

    exit_code = ExitCode.WRONG_USAGE


class Refused(ReconcilerError):
    """A guard refused, or a person did not confirm."""

    exit_code = ExitCode.REFUSED


#: Of warnings that say the same of many things, so many are shown.
MOST_OF_A_KIND = 20


class _Named(Protocol):
    @property
    def what(self) -> str: ...


_Warning = TypeVar("_Warning", bound=_Named)


def first_of_a_kind(warnings: Iterable[_Warning]) -> tuple[list[_Warning], list[tuple[str, str]]]:
    """Return the first `MOST_OF_A_KIND` warnings of the same words, and the words that count the others."""
    counts: Counter[str] = Counter()
    kept = []
    for warning in warnings:
        counts[warning.what] += 1
        if counts[warning.what] <= MOST_OF_A_KIND:
            kept.append(warning)
    more = {what: number - MOST_OF_A_KIND for what, number in counts.items() if number > MOST_OF_A_KIND}
    return kept, [(what, f"{number} more like this") for what, number in more.items()]


def few_warnings(warnings: Iterable[Diagnostic]) -> tuple[Diagnostic, ...]:
    """Leave out what goes beyond `MOST_OF_A_KIND` warnings of the same words, and count it behind them."""
    kept, more = first_of_a_kind(warnings)
    return (*kept, *(Diagnostic(what, why, severity=Severity.WARNING) for what, why in more))


def in_file_order(diagnostics: Iterable[Diagnostic]) -> tuple[Diagnostic, ...]:
    """Sort by file, line and column; what has no place comes first."""
    nowhere = Location("", 0, 0)
    return tuple(sorted(diagnostics, key=lambda d: d.location or nowhere))
