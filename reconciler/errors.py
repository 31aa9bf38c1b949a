"""What is wrong, where, why, and how to fix it.

Exceptions carry diagnostics; only `cli/` shows them and picks the exit code::

    ReconcilerError
    ├── ManifestInvalid      the manifest has errors (65)
    ├── WrongUsage           a path, a key or an option that does not exist (64)
    ├── Refused              a guard refused, or the user did not confirm (3)
    ├── LockHeld, LockLost   another process holds the lock, or took it (6)
    └── ServiceError         the target did not carry out a request
        ├── Unanswered        no response: the effect is unknown
        │   └── Unreachable   never sent: no effect
        ├── UnreadableAnswer  the response cannot be parsed: the effect is unknown
        ├── ServerError       5xx: the effect is unknown
        ├── Throttled         429: no effect; `retry_after_s`
        ├── Interrupted       not sent, or not sent again, since the program is stopping: no effect
        ├── Unauthorized      401, 403 and the service's own codes for them
        └── Rejected          any other refusal; no effect
            ├── NotFound      no such job (the service answers 400 ModelArts.2775, never 404)
            ├── NotOffered    the create names something that the target does not offer (seen before sending)
            ├── NameTaken     a job of that name exists (ModelArts.2751)
            └── WrongPhase    too late or too early for the phase (409)
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
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


#: If several apply, the first one wins.
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


#: Codes of runs that worked: changes, or a refusal by a guard, are a result and not a failure.
SUCCESSES = frozenset({ExitCode.DONE, ExitCode.CHANGES, ExitCode.REFUSED})


def first_of(codes: Iterable[ExitCode]) -> ExitCode:
    """Return the code that takes precedence; `DONE` if there is none."""
    return min(codes, key=PRECEDENCE.index, default=ExitCode.DONE)


class Severity(StrEnum):
    """Whether the run can continue."""

    ERROR = "error"
    WARNING = "warning"


class Location(NamedTuple):
    """A place in a file. `line` and `column` count from 1."""

    file: str
    line: int
    column: int

    def __str__(self) -> str:
        return f"{self.file}:{self.line}:{self.column}"


class Snippet(NamedTuple):
    """The line that a diagnostic points at; `length` characters from `start` (0-based) are marked."""

    text: str
    start: int
    length: int

    def cut(self, width: int = 120) -> Snippet:
        """Shorten the line to `width` characters around the mark, and blank out what cannot be printed."""
        begin = max(0, min(self.start - width * 5 // 12, len(self.text) - width))
        end = min(len(self.text), begin + width)
        head, tail = "…" * (begin > 0), "…" * (end < len(self.text))
        stop = max(self.start + 1, min(self.start + self.length, end))
        parts = self.text[begin : self.start], self.text[self.start : stop], self.text[stop:end]
        before, marked, after = ("".join(c if c.isprintable() else " " for c in printable(p)) for p in parts)
        return Snippet(head + before + marked + after + tail, len(head + before), max(1, len(marked)))


class Diagnostic(NamedTuple):
    """One problem.

    `what` is always worded the same, so that it can be searched for; `why` has the specifics.
    `fix` is a command to paste or an edit to make (None if unknown),
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
    """Base of all errors. `diagnostics` are in display order; `exit_code` is that of the command."""

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
    """Our lease ran out, or the lock was broken: no further request may be sent."""

    exit_code = ExitCode.LOCKED


#: The message about a lock that is lost while actions are executed.
LOCK_LOST = "the lock was lost: its lease expired, or it was broken; no new actions will start"
#: Limit for warnings with the same `what`.
MAX_SIMILAR = 20
#: From this many jobs on, the same change is shown once (docs/reference/cli.md, "Text output").
FOLD_FROM = 5


if TYPE_CHECKING:

    class _Named(Protocol):
        @property
        def what(self) -> str: ...


_Warning = TypeVar("_Warning", bound="_Named")


def limit_warnings(
    warnings: Iterable[_Warning], make: Callable[[str, str], _Warning]
) -> tuple[_Warning, ...]:
    """Keep `MAX_SIMILAR` warnings of each `what`, and make one of `what` and `why` that counts the rest."""
    counts: Counter[str] = Counter()
    kept = []
    for warning in warnings:
        counts[warning.what] += 1
        if counts[warning.what] <= MAX_SIMILAR:
            kept.append(warning)
    more = {what: number - MAX_SIMILAR for what, number in counts.items() if number > MAX_SIMILAR}
    return (*kept, *(make(what, f"{number} more like this") for what, number in more.items()))


def in_file_order(diagnostics: Iterable[Diagnostic]) -> tuple[Diagnostic, ...]:
    """Sort by file, line and column; diagnostics without a location come first."""
    nowhere = Location("", 0, 0)
    return tuple(sorted(diagnostics, key=lambda d: d.location or nowhere))


class ServiceError(ReconcilerError):
    """The target did not carry out a request.

    `code` is the service's error code (e.g. ModelArts.2751) or "", `message` its text, `status` the
    HTTP status or None, `request_id` the id to give to its support or "".
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
        details = ", ".join(mark for mark in marks if mark)
        super().__init__(Diagnostic(self.what, f"{message} ({details})" if details else message, fix))


class Unanswered(ServiceError):
    """No response: whether the call took effect is unknown."""

    what = "no answer from the service"


class Unreachable(Unanswered):
    """The call was never sent, so it had no effect."""

    what = "the service cannot be reached"


class UnreadableAnswer(ServiceError):
    """The response cannot be parsed: whether the call took effect is unknown."""

    what = "invalid response from the service"


class ServerError(ServiceError):
    """A server error (5xx): whether the call took effect is unknown."""

    what = "server error"


class Throttled(ServiceError):
    """Too many requests. `retry_after_s` is the wait that the service asks for, in seconds, if any."""

    what = "too many requests"


class Interrupted(ServiceError):
    """The program is stopping, so the call was not sent, or not sent again; it had no effect."""

    what = "interrupted"


class Unauthorized(ServiceError):
    """The service rejected the caller's credentials or permissions."""

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
    """The target does not offer something that a job needs."""

    what = "not offered"


class NotSupported(Rejected):
    """This kind of target, or this cloud, does not support the request; it was not sent."""

    what = "not supported by the target"


class PackageMissing(Rejected):
    """The request needs a package of an extra that is not installed; it was not sent."""

    what = "a package is missing"


class NameTaken(Rejected):
    """A job of that name exists, visible or not."""

    what = "name already taken"


class WrongPhase(Rejected):
    """The job's phase does not allow this: read it again."""

    what = "wrong phase for this operation"


#: After these it is unknown whether the call took effect.
UNCERTAIN = (Unanswered, ServerError, UnreadableAnswer)
