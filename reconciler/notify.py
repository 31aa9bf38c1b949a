"""Notifications of drift and of failed applies, sent by Apprise: one message per check and URL.

A failed notification is a warning and does not change the result. Drift that was not delivered counts as
unreported, so the next check sends it again. URLs are secrets, and Apprise quotes them in its log and its
exceptions, so no part of them is passed on. Apprise is an extra, imported when needed.

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

#: Timeout for a service to accept a message.
SEND_LIMIT_S = 10.0
#: The strictest limits of all services: UTF-8 bytes of a message, characters of its title.
MOST_BYTES, MOST_TITLE = 1800, 120
_MOST_LINE, _MOST_PROBLEM = 240, 200
#: Markup characters of chats, mail and web pages, and characters that look like them.
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
#: The loggers that quote URLs. Filters do not apply to child loggers, so each is listed.
_LOGGERS = ("apprise", "urllib3.connectionpool")


class Message(NamedTuple):
    """A title and a text without markup, within the limits of every service."""

    title: str
    text: str


class Notified(NamedTuple):
    """The result of the notifications of a check.

    `failed` counts the messages that could not be sent. `reported` is the drift that messages or the exit
    code report. `delivered` has the drift that some URLs received while another one failed, each with the
    times of the checks that sent it, by the key path of the URL: that drift is not reported yet, and not sent
    to these URLs again.
    """

    failed: int = 0
    reported: frozenset[DriftId] = frozenset()
    delivered: Mapping[DriftId, Mapping[str, float]] = MappingProxyType({})


def notify_drift(
    report: DriftReport, destinations: Collection[Destination], redact: Redact, warn: Warn
) -> Notified:
    """Send the due drift of a report that was compared with the last check.

    Drift counts as reported when every URL that subscribes to its class has received it. If none does, the
    exit code reports it.
    """
    comparison = report.comparison
    assert comparison is not None
    if comparison.problem is not None:
        if destinations:
            warn(f"no notifications were sent: {comparison.problem}, so it is unknown what was sent before")
        return Notified(failed=len(destinations))
    delivered = {one.id: dict(one.delivered) for one in comparison.standing if one.counts}
    messages = []
    for destination in destinations:
        due = tuple(one for one in comparison.due if destination.path not in delivered[DriftId.of(one)])
        where = report.stack, report.target.name
        message = drift_notification(comparison._replace(due=due), destination.on, *where, redact)
        if message is not None:
            messages.append((destination, message))
    problems = _send(messages, warn)
    for (destination, _), problem in zip(messages, problems, strict=True):
        for entry in () if problem else _of_classes(destination.on, comparison.visible):
            delivered[DriftId.of(entry)][destination.path] = comparison.at_s
    reported = set()
    for id_, sent in delivered.items():
        subscribers = {destination.path for destination in destinations if id_.class_ in destination.on}
        if subscribers <= sent.keys() if subscribers else report.exit_code is ExitCode.CHANGES:
            reported.add(id_)
    delivered = {id_: sent for id_, sent in delivered.items() if sent and id_ not in reported}
    return Notified(sum(map(bool, problems)), frozenset(reported), delivered)


def notify_apply(
    outcomes: Iterable[Outcome],
    stack: str,
    target: str,
    destinations: Collection[Destination],
    redact: Redact,
    warn: Warn,
) -> int:
    """Send a message if an apply failed. Returns the number of messages that could not be sent."""
    message = apply_notification(outcomes, stack, target, redact)
    subscribers = [destination for destination in destinations if APPLY_FAILED in destination.on]
    if message is None or not subscribers:
        return 0
    return sum(map(bool, _send([(destination, message) for destination in subscribers], warn)))


def send_test(destinations: Sequence[Destination], stack: str) -> list[str]:
    """Send one message to each URL. Returns the problem of each, "" if it was accepted."""
    text = "Sent by reconciler notify test; nothing has happened."
    message = Message(plain_text(f"{stack}: test message"), text)
    return _send([(destination, message) for destination in destinations])


def check_destinations(destinations: Iterable[Destination]) -> tuple[Diagnostic, ...]:
    """Check the URLs that have a value, without sending anything. Returns warnings.

    Raises:
        ManifestInvalid: Apprise knows no such service, or a part of its URL is missing.
    """
    wrong = []
    try:
        for destination in destinations:
            if destination.url is not None and service_of(destination.url) is None:
                why = "Apprise does not support this service, or the URL is incomplete"
                fix = "see the supported services in Apprise's documentation"
                wrong.append(
                    Diagnostic("invalid notification URL", why, fix, destination.place, destination.path)
                )
    except PackageMissing as missing:
        return tuple(problem._replace(severity=Severity.WARNING) for problem in missing.diagnostics)
    if wrong:
        raise ManifestInvalid(*wrong)
    return ()


# ── texts ────────────────────────────────────────────────────────────────────────────────────────────
# Secrets are redacted first: replacing markup or truncating a line would make them unrecognizable.


def plain_text(text: str) -> str:
    """Return the text as one line without mentions, links, styles and tags."""
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
    """Return the message about some classes of drift, new before lasting. None if nothing is due."""
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
    """Return the message about the failed actions of an apply. None if none failed."""
    failed = [outcome for outcome in outcomes if outcome.status in _BADLY]
    if not failed:
        return None
    lines = []
    for outcome in failed:
        why = ", ".join(filter(None, (_BADLY[outcome.status], outcome.message or outcome.detail)))
        lines.append(_line(f"{outcome.action.action.value} {outcome.key}: {why}", redact))
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
    """Send messages concurrently, and warn of failures. Returns the problem of each, "" if it was accepted.

    A message that takes longer than `limit_s` has failed, even if it arrives later; its thread is abandoned.
    """
    problems = [f"no response within {limit_s:g} s"] * len(messages)
    is_over = False

    def send(number: int, service: Any, url: str, message: Message) -> None:
        try:
            problem = _problem_of_sending(service, url, message)
        except Exception as error:  # its message may quote the URL
            problem = f"could not be sent: {type(error).__name__}"
        if not is_over:
            problems[number] = problem

    threads = []
    for number, (destination, message) in enumerate(messages):
        if destination.url is None:
            problems[number] = destination.problem.why if destination.problem else "its URL has no value"
            continue
        try:
            given = number, service_of(destination.url), destination.url, message
        except PackageMissing as missing:
            problems[number] = f"{missing.message}; run: {missing.diagnostics[0].fix}"
            continue
        threads.append(threading.Thread(target=send, args=given, name="notification", daemon=True))
        threads[-1].start()
    ends_s = time.monotonic() + limit_s
    for thread in threads:
        thread.join(max(0.0, ends_s - time.monotonic()))
    is_over = True
    for (destination, _), problem in zip(messages, problems, strict=True):
        if problem:
            warn(f"notification to {destination.name} failed: {problem}")
    return problems


def _problem_of_sending(service: Any, url: str, message: Message) -> str:
    if service is None:
        return "Apprise does not recognize the URL"
    with _captured_log() as lines:
        is_accepted = service.notify(
            body=message.text, title=message.title, notify_type="warning", body_format="text"
        )
    if is_accepted:
        return ""
    problem = lines[0] if lines else "the service did not accept it"
    parts = {part for text in (url, unquote(url)) for part in re.findall(r"[^/?&=:@;,#\s]{3,}", text)}
    return printable(Redactor(parts)(problem))[:_MOST_PROBLEM]


def service_of(url: str) -> Any:
    """Return Apprise's sender for a URL. None if Apprise does not know the service.

    Raises:
        PackageMissing: Apprise is not installed.
    """
    # Apprise's plugins import deprecated modules.
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
    """Collects what Apprise logs in a sending thread, and keeps it from the handlers."""

    def filter(self, record: logging.LogRecord) -> bool:
        if _captured.lines is not None and record.levelno >= logging.WARNING:
            _captured.lines.append(record.getMessage())
        return _captured.lines is None


_CAPTURE = _Capture()


@contextmanager
def _captured_log() -> Iterator[list[str]]:
    """Yield the warnings that this thread logs in the meantime."""
    for name in _LOGGERS:
        logging.getLogger(name).addFilter(_CAPTURE)  # idempotent
    _captured.lines = lines = list[str]()
    try:
        yield lines
    finally:
        _captured.lines = None
