"""Notifications of drift and of failed applies, sent by Apprise: one message for each check and URL.

A failure is a warning, and changes nothing of the result. Drift that could not be delivered counts as not
reported, so that the next check sends it again. A URL is a secret, and Apprise quotes it in its log and its
exceptions: only text that holds no part of it is passed on. Apprise is an extra, and imported when needed.

Source: docs/operations/watch.md, "Notifications".
"""

from __future__ import annotations

import logging
import re
import threading
import time
import warnings
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from hashlib import sha256
from itertools import accumulate
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import unquote

from reconciler.core.settings import APPLY_FAILED, Destination
from reconciler.decide.drift_check import Drift, DriftComparison, DriftId
from reconciler.decide.outcome import Outcome, Status
from reconciler.errors import Diagnostic, ExitCode, ManifestInvalid, PackageMissing, Severity
from reconciler.extras import missing
from reconciler.secrets import Redactor
from reconciler.text import printable

if TYPE_CHECKING:
    from reconciler.decide.drift import DriftReport

Redact = Callable[[str], str]
Warn = Callable[[str], None]

#: How long a service may take to accept a message, in seconds.
SEND_LIMIT_S = 10.0
#: What the strictest services accept of one message, in bytes of UTF-8, and of its title.
MOST_BYTES, MOST_TITLE = 1800, 120
_MOST_LINE, _MOST_PROBLEM = 240, 200
#: Characters by which a chat, a mail or a page takes text for more than text; they become what reads alike.
_MARKUP = str.maketrans(
    {
        "<": "‹", ">": "›", "[": "(", "]": ")", "`": "'", "*": "∗", "|": "¦", "~": "∼", "@": "＠", "\\": "∖",
        "!": "ǃ", "&": "＆", "#": "＃",
    }
)  # fmt: skip
_BADLY = {
    Status.FAILED: "failed",
    Status.DENIED: "permission denied",
    Status.TIMED_OUT: "timed out",
    Status.UNKNOWN: "outcome unknown",
    Status.CONFLICT: "conflict",
    Status.INTERRUPTED: "interrupted",
}
#: The loggers that quote URLs: a filter concerns the very logger that it is added to.
_LOGGERS = ("apprise", "urllib3.connectionpool")


class Message(NamedTuple):
    """A title, and a text that is short enough for every service and holds no markup."""

    title: str
    text: str


class Notified(NamedTuple):
    """The result of the notifications of a check.

    `failed` counts the messages that could not be sent, `reported` is the drift that was reported by them or
    is by the exit code. `partly_delivered` is, by the digest of the URL, the drift that was sent there while
    another URL failed: it is not reported yet, and not sent to this URL again.
    """

    failed: int = 0
    partly_delivered: Mapping[str, frozenset[DriftId]] = MappingProxyType({})
    reported: frozenset[DriftId] = frozenset()


NOTHING_NOTIFIED = Notified()


def notify_drift(
    report: DriftReport,
    destinations: Collection[Destination],
    redact: Redact,
    warn: Warn,
    before: Notified = NOTHING_NOTIFIED,
) -> Notified:
    """Send what is due of a report that was compared with the last check; `before` is the previous result.

    Drift is reported once each URL that wants its class has it; of a class that no URL wants, once the exit
    code says that there is drift.
    """
    comparison = report.comparison
    assert comparison is not None
    if comparison.problem is not None:
        if destinations:
            warn(f"nothing was notified: {comparison.problem}, so it is not known what was sent before")
        return before._replace(failed=len(destinations), reported=frozenset())
    fresh = {DriftId.of(entry) for entry in (*comparison.new, *comparison.changed)}
    delivered = {digest: ids - fresh for digest, ids in before.partly_delivered.items()}
    messages = []
    for one in destinations:
        had = delivered.get(_digest(one), frozenset())
        due = tuple(entry for entry in comparison.due if DriftId.of(entry) not in had)
        where = report.stack, report.target.name
        message = drift_notification(comparison._replace(due=due), one.on, *where, redact)
        if message is not None:
            messages.append((one, message))
    problems = _send(messages, warn)
    for (one, _), problem in zip(messages, problems, strict=True):
        if not problem:
            sent = frozenset(map(DriftId.of, _of_classes(one.on, comparison.visible)))
            delivered[_digest(one)] = delivered.get(_digest(one), frozenset()) | sent
    visible = {DriftId.of(entry) for entry in comparison.visible}
    reported = set()
    for id_ in visible:
        wanting = [one for one in destinations if id_.class_ in one.on]
        has_all = all(id_ in delivered.get(_digest(one), ()) for one in wanting)
        if has_all if wanting else report.exit_code is ExitCode.CHANGES:
            reported.add(id_)
    left = {digest: ids & visible - reported for digest, ids in delivered.items()}
    partly_delivered = {digest: frozenset(ids) for digest, ids in left.items() if ids}
    return Notified(sum(map(bool, problems)), partly_delivered, frozenset(reported))


def notify_apply(
    outcomes: Iterable[Outcome],
    stack: str,
    target: str,
    destinations: Collection[Destination],
    redact: Redact,
    warn: Warn,
) -> int:
    """Send that an apply failed, if it did; return how many messages could not be sent."""
    message = apply_notification(outcomes, stack, target, redact)
    wanting = [one for one in destinations if APPLY_FAILED in one.on]
    if message is None or not wanting:
        return 0
    return sum(map(bool, _send([(one, message) for one in wanting], warn)))


def send_test(destinations: Sequence[Destination], stack: str) -> list[str]:
    """Send one message to each URL; return for each why it could not be sent, "" if it was."""
    message = Message(
        plain_text(f"{stack}: test message"), "Sent by reconciler notify test; nothing has happened."
    )
    return _send([(one, message) for one in destinations])


def check_destinations(destinations: Iterable[Destination]) -> tuple[Diagnostic, ...]:
    """Check the URLs that have a value, without sending anything; return warnings.

    Raises:
        ManifestInvalid: Apprise knows no such service, or a part of its URL is missing.
    """
    wrong = []
    try:
        for one in destinations:
            if one.url is not None and service_of(one.url) is None:
                why = "Apprise knows no such service, or the URL lacks a part that it needs"
                fix = "see the table of services in Apprise's documentation"
                wrong.append(Diagnostic("invalid notification URL", why, fix, one.place, one.path))
    except PackageMissing as missing:
        return tuple(one._replace(severity=Severity.WARNING) for one in missing.diagnostics)
    if wrong:
        raise ManifestInvalid(*wrong)
    return ()


def _digest(destination: Destination) -> str:
    """What identifies a URL without telling it."""
    return sha256((destination.url or "").encode()).hexdigest()


# ── texts ────────────────────────────────────────────────────────────────────────────────────────────
# `redact` takes the secrets out of each line before its markup is replaced and its end is cut off: either
# would make another text of a secret.


def plain_text(text: str) -> str:
    """One line that no service takes for a mention, a link, a style or a tag."""
    unlinked = re.sub(
        r"\b(?:https?|ftp)(?=://)",
        lambda found: f"{found[0][0]}xx{found[0][3:]}",
        printable(text),
        flags=re.IGNORECASE,
    )
    return unlinked.translate(_MARKUP)


def drift_notification(
    comparison: DriftComparison, classes: Collection[str], stack: str, target: str, redact: Redact = str
) -> Message | None:
    """The message about these classes of drift: what is new, then what lasts; None if nothing is due."""
    if not _of_classes(classes, comparison.due):
        return None
    new = _of_classes(classes, (*comparison.new, *comparison.changed))
    lasting = _of_classes(classes, comparison.lasting)
    counts = [f"{len(new)} new"] if new else []
    counts += [f"{len(lasting)} lasting"] if lasting else []
    title = f"{stack} on {target}: drift, {', '.join(counts)}"
    lines = [*_section("New", new, redact), *_section("Lasting", lasting, redact)]
    return Message(plain_text(redact(title))[:MOST_TITLE], _bounded(lines))


def apply_notification(
    outcomes: Iterable[Outcome], stack: str, target: str, redact: Redact = str
) -> Message | None:
    """The message about an apply that failed; None if all went well."""
    failed = [outcome for outcome in outcomes if outcome.status in _BADLY]
    if not failed:
        return None
    lines = []
    for one in failed:
        why = ", ".join(filter(None, (_BADLY[one.status], one.message or one.detail)))
        lines.append(_line(f"{one.action.action.value} {one.key}: {why}", redact))
    title = f"{stack} on {target}: apply failed, {len(failed)} of its actions"
    return Message(plain_text(redact(title))[:MOST_TITLE], _bounded(lines))


def _of_classes(classes: Collection[str], entries: Iterable[Drift]) -> tuple[Drift, ...]:
    return tuple(entry for entry in entries if entry.class_.value in classes)


def _section(heading: str, entries: Sequence[Drift], redact: Redact) -> Iterator[str]:
    if entries:
        yield f"{heading}:"
    for class_ in dict.fromkeys(entry.class_ for entry in entries):
        of_class = [entry for entry in entries if entry.class_ is class_]
        yield f"- {class_.value} ({len(of_class)})"
        for entry in of_class:
            since = f" (since {entry.since})" if entry.since and heading == "Lasting" else ""
            yield _line(f"  {entry.key}: {entry.detail}{since}", redact)


def _line(text: str, redact: Redact) -> str:
    line = plain_text(redact(text))
    return line if len(line) <= _MOST_LINE else f"{line[: _MOST_LINE - 1]}…"


def _bounded(lines: Sequence[str]) -> str:
    room = MOST_BYTES - len("\n… and 99999 more lines".encode())
    sizes = accumulate(len(line.encode()) + 1 for line in lines)
    kept = [line for line, size in zip(lines, sizes, strict=True) if size <= room]
    left = len(lines) - len(kept)
    return "\n".join([*kept, *([f"… and {left} more lines"] if left else [])])


# ── sending ──────────────────────────────────────────────────────────────────────────────────────────


def _send(
    messages: Sequence[tuple[Destination, Message]],
    warn: Warn = lambda _: None,
    limit_s: float = SEND_LIMIT_S,
) -> list[str]:
    """Send all messages at once; return for each why it was not accepted, "" if it was, and warn of failures.

    One that takes longer than `limit_s` has failed, even if it arrives later: its thread ends with the
    program.
    """
    problems = [f"no answer within {limit_s:g} s"] * len(messages)
    is_over = False

    def send(number: int, service: Any, url: str, message: Message) -> None:
        try:
            problem = _problem_of_sending(service, url, message)
        except Exception as error:  # its text may quote the URL
            problem = f"it could not be sent: {type(error).__name__}"
        if not is_over:
            problems[number] = problem

    threads = []
    for number, (one, message) in enumerate(messages):
        if one.url is None:
            problems[number] = one.problem.why if one.problem else "its URL has no value"
            continue
        try:
            given = number, service_of(one.url), one.url, message
        except PackageMissing as missing:
            problems[number] = f"{missing.message}; run: {missing.diagnostics[0].fix}"
            continue
        threads.append(threading.Thread(target=send, args=given, name="notification", daemon=True))
        threads[-1].start()
    ends_s = time.monotonic() + limit_s
    for thread in threads:
        thread.join(max(0.0, ends_s - time.monotonic()))
    is_over = True
    for (one, _), problem in zip(messages, problems, strict=True):
        if problem:
            warn(f"notification to {one.name} failed: {problem}")
    return problems


def _problem_of_sending(service: Any, url: str, message: Message) -> str:
    if service is None:
        return "the URL is not one that Apprise knows"
    with _captured_log() as lines:
        # "warning" and "text" are Apprise's words: nothing in the message is markup.
        is_accepted = service.notify(
            body=message.text, title=message.title, notify_type="warning", body_format="text"
        )
    if is_accepted:
        return ""
    problem = lines[0] if lines else "the service did not take it"
    parts = {part for text in (url, unquote(url)) for part in re.findall(r"[^/?&=:@;,#\s]{3,}", text)}
    return printable(Redactor(parts)(problem))[:_MOST_PROBLEM]


def service_of(url: str) -> Any:
    """What sends to a URL; None if Apprise knows no such service.

    Raises:
        PackageMissing: Apprise is not installed.
    """
    # Its plugins import whatever is there, and some of that is about to be removed from Python.
    with warnings.catch_warnings(), _captured_log():
        warnings.simplefilter("ignore")
        try:
            import apprise
        except ImportError:
            raise missing("apprise") from None

        asset = apprise.AppriseAsset(app_id="reconciler", app_desc="reconciler")
        return apprise.Apprise.instantiate(url, asset=asset, suppress_exceptions=True)


class _OfThread(threading.local):
    lines: list[str] | None = None


_captured = _OfThread()


class _Capture(logging.Filter):
    """Keeps what Apprise logs in threads of ours out of every handler; others are not concerned."""

    def filter(self, record: logging.LogRecord) -> bool:
        if _captured.lines is not None and record.levelno >= logging.WARNING:
            _captured.lines.append(record.getMessage())
        return _captured.lines is None


_CAPTURE = _Capture()


@contextmanager
def _captured_log() -> Iterator[list[str]]:
    """Yield the warnings that are logged in this thread meanwhile, and nowhere else."""
    for name in _LOGGERS:
        logging.getLogger(name).addFilter(_CAPTURE)  # once is enough; it keeps count of that itself
    _captured.lines = lines = list[str]()
    try:
        yield lines
    finally:
        _captured.lines = None
