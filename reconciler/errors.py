"""What is wrong, where, why, and how to fix it.

Exceptions carry diagnostics; only `cli/` shows them and picks the exit code::

    ReconcilerError
    ├── ManifestInvalid      the files say something that cannot be (65)
    ├── WrongUsage           a path, a key or an option that does not exist (64)
    ├── Refused              a guard or a person said no (3)
    ├── LockHeld, LockLost   another process holds the lock, or took it (6)
    └── ServiceError         the target did not do what it was asked
        ├── Unanswered        no answer came: whether the call took effect is not known
        │   └── Unreachable   the call was never sent: it had no effect
        ├── UnreadableAnswer  an answer came, and cannot be understood: the effect is not known either
        ├── ServerError       5xx: the effect is not known
        ├── Throttled         429: no effect; `retry_after_s`
        ├── Interrupted       the program is to stop, so it was not sent, or not sent again: no effect
        ├── Unauthorized      401, 403 and the service's own codes for them
        └── Rejected          any other refusal; no effect
            ├── NotFound      no such job (the service answers 400 ModelArts.2775, never 404)
            ├── NotOffered    what a create names does not exist there (seen before it is sent)
            ├── NameTaken     a job of that name exists (ModelArts.2751)
            └── WrongPhase    too late or too early for the phase (409)
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from enum import IntEnum, StrEnum
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, TypeVar

from reconciler.text import printable


class ExitCode(IntEnum):
    """The exit codes of the command line."""

    DONE = 0
    FAILED = 1
    CHANGES = 2
    REFUSED = 3
    STALE = 4
    PARTIAL = 5
    LOCKED = 6
    UNAUTHORIZED = 7
    UNKNOWN = 8
    TIMED_OUT = 9
    ENDED_BADLY = 10
    WRONG_USAGE = 64
    INVALID = 65
    INTERNAL_ERROR = 70
    HUNG_UP = 129
    INTERRUPTED = 130
    TERMINATED = 143


#: Where several hold, the first of these.
PRECEDENCE = (
    ExitCode.HUNG_UP,
    ExitCode.INTERRUPTED,
    ExitCode.TERMINATED,
    ExitCode.INTERNAL_ERROR,
    ExitCode.UNAUTHORIZED,
    ExitCode.LOCKED,
    ExitCode.STALE,
    ExitCode.PARTIAL,
    ExitCode.ENDED_BADLY,
    ExitCode.TIMED_OUT,
    ExitCode.UNKNOWN,
    ExitCode.INVALID,
    ExitCode.WRONG_USAGE,
    ExitCode.FAILED,
    ExitCode.REFUSED,
    ExitCode.CHANGES,
    ExitCode.DONE,
)


#: The run did what it was asked for; that there are changes, or that a guard refused, is an answer.
SUCCESSES = frozenset({ExitCode.DONE, ExitCode.CHANGES, ExitCode.REFUSED})


def first_of(codes: Iterable[ExitCode]) -> ExitCode:
    """The code that says the most, of those that hold; 0 if none does."""
    return min(codes, key=PRECEDENCE.index, default=ExitCode.DONE)


class Severity(StrEnum):
    """Whether the run can go on."""

    ERROR = "error"
    WARNING = "warning"


class Location(NamedTuple):
    """A place in a file: `line` and `column` count from 1, as editors do."""

    file: str
    line: int
    column: int

    def __str__(self) -> str:
        return f"{self.file}:{self.line}:{self.column}"


class Snippet(NamedTuple):
    """The line a diagnostic points at: `length` characters of it from `start` (0-based) on are meant."""

    text: str
    start: int
    length: int

    def cut(self, width: int = 120) -> Snippet:
        """As much of the line as a person can take in, with nothing in it that is obeyed, or not seen."""
        begin = max(0, min(self.start - width * 5 // 12, len(self.text) - width))
        end = min(len(self.text), begin + width)
        head, tail = "…" * (begin > 0), "…" * (end < len(self.text))
        stop = max(self.start + 1, min(self.start + self.length, end))
        parts = self.text[begin : self.start], self.text[self.start : stop], self.text[stop:end]
        before, meant, after = ("".join(c if c.isprintable() else " " for c in printable(p)) for p in parts)
        return Snippet(head + before + meant + after + tail, len(head + before), max(1, len(meant)))


class Diagnostic(NamedTuple):
    """One problem.

    `what` has the same words for the same problem, so that it can be searched for.
    `why` has the specifics, `fix` a command to paste or an edit to make (None if unknown),
    `path` the key path, e.g. `jobs.resnet50.spec.resource`.
    """

    what: str
    why: str = ""
    fix: str | None = None
    location: Location | None = None
    path: str = ""
    snippet: Snippet | None = None
    severity: Severity = Severity.ERROR

    @property
    def message(self) -> str:
        """The problem in one line."""
        return f"{self.what}: {self.why}" if self.why else self.what

    def document(self) -> dict[str, Any]:
        """The problem as plain JSON data."""
        place, line = self.location and self.location._asdict(), self.snippet and self.snippet._asdict()
        return {**self._asdict(), "location": place, "snippet": line, "severity": self.severity.value}


class ReconcilerError(Exception):
    """The base of all errors. `diagnostics` describe it, in the order to be shown.

    `exit_code` is that of a command that ends with it.
    """

    exit_code: ExitCode = ExitCode.FAILED

    def __init__(self, *diagnostics: Diagnostic) -> None:
        self.diagnostics: tuple[Diagnostic, ...] = diagnostics
        super().__init__("; ".join(one.message for one in diagnostics))


class ManifestInvalid(ReconcilerError):
    """The manifest, or another file that a person wrote, is invalid."""

    exit_code = ExitCode.INVALID


class WrongUsage(ReconcilerError):
    """A path, a key or an option does not exist, or cannot be used that way."""

    exit_code = ExitCode.WRONG_USAGE


class Refused(ReconcilerError):
    """A guard refused, or a person did not confirm."""

    exit_code = ExitCode.REFUSED


class LockHeld(ReconcilerError):
    """Another process holds the lock."""

    exit_code = ExitCode.LOCKED


class LockLost(ReconcilerError):
    """The lease of our lock ran out, or somebody broke it: nothing more may be sent."""

    exit_code = ExitCode.LOCKED


#: Of warnings that say the same of many things, so many are shown.
MOST_OF_A_KIND = 20
#: The same about so many jobs is shown once (docs/reference/cli.md, "Text output").
FOLDED_FROM = 5


if TYPE_CHECKING:

    class _Named(Protocol):
        @property
        def what(self) -> str: ...


_Warning = TypeVar("_Warning", bound="_Named")


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


class ServiceError(ReconcilerError):
    """The target did not do what it was asked.

    `code` is the service's error code (e.g. ModelArts.2751) or "", `message` its text, `status` the
    HTTP status or None, `request_id` what its support asks for or "".
    """

    what = "service error"
    exit_code = ExitCode.UNKNOWN

    def __init__(
        self,
        message: str,
        *,
        code: str = "",
        status: int | None = None,
        request_id: str = "",
        fix: str | None = None,
        retry_after_s: float | None = None,
    ) -> None:
        self.message = message
        self.code = code
        self.status = status
        self.request_id = request_id
        self.retry_after_s = retry_after_s
        marks = [code, f"HTTP {status}" if status else "", f"request {request_id}" if request_id else ""]
        said = ", ".join(mark for mark in marks if mark)
        super().__init__(Diagnostic(self.what, f"{message} ({said})" if said else message, fix))


class Unanswered(ServiceError):
    """No answer came: whether the call took effect is not known."""

    what = "no answer from the service"


class Unreachable(Unanswered):
    """The call was never sent, so it had no effect."""

    what = "the service cannot be reached"


class UnreadableAnswer(ServiceError):
    """An answer came that cannot be understood: whether the call took effect is not known."""

    what = "invalid response from the service"


class ServerError(ServiceError):
    """A server error (5xx): whether the call took effect is not known."""

    what = "server error"


class Throttled(ServiceError):
    """Too many requests; `retry_after_s` says how long to wait, in seconds, where the service says it."""

    what = "too many requests"


class Interrupted(ServiceError):
    """The program is to stop, so the call was not sent, or not sent again; it had no effect."""

    what = "interrupted"


class Unauthorized(ServiceError):
    """The service does not know the caller, or does not let the caller do this."""

    what = "authentication or permission failed"
    exit_code = ExitCode.UNAUTHORIZED


class Rejected(ServiceError):
    """The service rejected the request; it had no effect."""

    what = "the service rejected the request"
    exit_code = ExitCode.FAILED


class NotFound(Rejected):
    """There is no job with that id."""

    what = "no such job"


class NotOffered(Rejected):
    """The target does not offer what a job wants."""

    what = "not offered"


class NotSupported(Rejected):
    """This kind of target, or this cloud, does not support the request; nothing was sent."""

    what = "not supported by the target"


class PackageMissing(Rejected):
    """What was asked takes a package of an extra, which is not installed; nothing was sent."""

    what = "a package is missing"


class NameTaken(Rejected):
    """A job of that name exists, seen or not."""

    what = "name already taken"


class WrongPhase(Rejected):
    """The job is not in a phase in which that is possible: read it again."""

    what = "wrong phase for this operation"


#: After these it is not known whether the call took effect.
UNCERTAIN = (Unanswered, ServerError, UnreadableAnswer)
