"""Notifications of drift and of failed applies to the URLs of the manifest: one message per check and URL.

A failure is a warning, and changes nothing of the result. Drift that could not be delivered counts as not
reported, so that the next check sends it.
Source: docs/watch.md, "Notifications".
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import replace
from hashlib import sha256
from types import MappingProxyType
from typing import TYPE_CHECKING, NamedTuple

from reconciler import reconcile
from reconciler.core.notify_entry import APPLY_FAILED, Destination
from reconciler.decide import exit_code
from reconciler.decide.drift_check import DriftId
from reconciler.decide.notification import (
    NotificationText,
    apply_notification,
    drift_notification,
    drift_of_classes,
)
from reconciler.errors import Diagnostic, ExitCode, ManifestInvalid, Severity
from reconciler.notify.sender import INSTALL, Delivery, NotInstalled, knows, send_all
from reconciler.reconcile import EVERY_DRIFT, CheckOptions

if TYPE_CHECKING:
    from reconciler.decide.drift_comparison import DriftComparison
    from reconciler.decide.drift_report import DriftReport
    from reconciler.decide.outcome import Result
    from reconciler.decide.plan import Plan
    from reconciler.manifests import LoadedStack
    from reconciler.reconcile import Context

_NOT_INSTALLED = f"Apprise is not installed; run: {INSTALL}"

Warn = Callable[[str], None]


class _Message(NamedTuple):
    """A notification, and where it goes; `problem` says why it was not taken, "" if it was."""

    destination: Destination
    notification: NotificationText
    problem: str = ""


def check(context: Context, options: CheckOptions = EVERY_DRIFT) -> DriftReport:
    """A drift check whose report is written next; then `notify_drift` is called.

    Until then nothing counts as reported, so that a report that nobody got is due again.
    """
    return reconcile.drift(context, options._replace(is_reported_later=True))


class Notified(NamedTuple):
    """What became of the notifications of a check: how many messages failed, and what was partly delivered.

    That is, by the digest of the URL, the drift that this URL was sent while another one failed: it does not
    count as reported, and is not sent to this URL again.
    """

    failed: int = 0
    partly_delivered: Mapping[str, frozenset[DriftId]] = MappingProxyType({})


NOTHING_NOTIFIED = Notified()


def notify_drift(context: Context, report: DriftReport, before: Notified = NOTHING_NOTIFIED) -> Notified:
    """Send what is due of a drift report, and record what was reported, by that or by the exit code.

    `before` is what the last call returned.
    """
    destinations = context.loaded.destinations()
    comparison, recording = report.comparison, context.recording
    if comparison is None or recording is None:
        return Notified()
    if comparison.problem is not None:
        if not destinations:
            return Notified()
        recording.warn(f"nothing was notified: {comparison.problem}, so it is not known what was sent before")
        return before._replace(failed=len(destinations))
    fresh = {DriftId.of(entry) for entry in (*comparison.new, *comparison.changed)}
    partly_delivered = {digest: ids - fresh for digest, ids in before.partly_delivered.items()}
    found = [
        _message(one, report, comparison, partly_delivered.get(_digest(one), frozenset()), recording.redact)
        for one in destinations
    ]
    messages = _sent([message for message in found if message is not None], recording.warn)
    for message in messages:
        if not message.problem:
            digest, ids = _digest(message.destination), _ids(comparison, message.destination)
            partly_delivered[digest] = partly_delivered.get(digest, frozenset()) | ids
    reported, left = _reported(report, comparison, destinations, partly_delivered)
    recording.mark_reported(context.scope, reported, comparison.at_s)
    return Notified(sum(bool(message.problem) for message in messages), left)


def _message(
    destination: Destination,
    report: DriftReport,
    comparison: DriftComparison,
    delivered: frozenset[DriftId],
    redact: Callable[[str], str],
) -> _Message | None:
    """What one URL is sent; None if nothing that it wants is due but what it was sent already."""
    due = tuple(entry for entry in comparison.due if DriftId.of(entry) not in delivered)
    where = (report.stack, report.target.name)
    said = drift_notification(replace(comparison, due=due), destination.on, *where, redact)
    return None if said is None else _Message(destination, said)


def notify_apply(context: Context, plan: Plan, result: Result) -> int:
    """Tell of an apply that failed; return how many messages failed."""
    wanting = [one for one in context.loaded.destinations() if APPLY_FAILED in one.on]
    recording = context.recording
    if not wanting or recording is None:
        return 0
    said = apply_notification(result.outcomes, "", plan.stack, plan.target.name, recording.redact)
    if said is None:
        return 0
    messages = [_Message(one, said) for one in wanting]
    return sum(bool(message.problem) for message in _sent(messages, recording.warn))


def check_destinations(loaded: LoadedStack) -> tuple[Diagnostic, ...]:
    """Look at the URLs that have a value, without sending anything; return what a person should know.

    Raises:
        ManifestInvalid: Apprise knows no such service, or a part of its URL is missing.
    """
    wrong = []
    try:
        for one in loaded.destinations():
            if one.url is not None and not knows(one.url):
                why = "Apprise knows no such service, or the URL lacks a part that it needs"
                fix = "see the table of services in Apprise's documentation"
                wrong.append(Diagnostic("invalid notification URL", why, fix, one.place, one.path))
    except NotInstalled:
        why = "notifications are declared, and nothing can be sent without it"
        return (Diagnostic("Apprise is not installed", why, INSTALL, severity=Severity.WARNING),)
    if wrong:
        raise ManifestInvalid(*wrong)
    return ()


def _sent(messages: list[_Message], warn: Warn) -> list[_Message]:
    """Send all messages at once, and warn of each that was not taken."""
    deliveries = [
        Delivery(one.destination.url, one.notification.title, one.notification.text)
        for one in messages
        if one.destination.url is not None
    ]
    try:
        answers = iter(send_all(deliveries) if deliveries else ())
    except NotInstalled:
        answers = iter([_NOT_INSTALLED] * len(deliveries))
    sent = []
    for message in messages:
        problem = _why_without_url(message.destination) or next(answers)
        if problem:
            warn(f"not notified ({message.destination.name}): {problem}")
        sent.append(message._replace(problem=problem))
    return sent


def _why_without_url(destination: Destination) -> str:
    if destination.url is not None:
        return ""
    return destination.problem.why if destination.problem else "its URL has no value"


def _reported(
    report: DriftReport,
    comparison: DriftComparison,
    destinations: Collection[Destination],
    delivered: Mapping[str, frozenset[DriftId]],
) -> tuple[set[DriftId], dict[str, frozenset[DriftId]]]:
    """The drift that was delivered to every URL that wants its class, and what was partly delivered.

    Drift of a class that no URL wants is reported by the exit code.
    """
    reported: set[DriftId] = set()
    for entry in comparison.visible:
        id_ = DriftId.of(entry)
        wanting = [one for one in destinations if entry.class_.value in one.on]
        is_delivered = all(id_ in delivered.get(_digest(one), ()) for one in wanting)
        if is_delivered if wanting else exit_code.of_drift(report) is ExitCode.CHANGES:
            reported.add(id_)
    visible = {DriftId.of(entry) for entry in comparison.visible}
    left = {digest: ids & visible - reported for digest, ids in delivered.items()}
    return reported, {digest: ids for digest, ids in left.items() if ids}


def _ids(comparison: DriftComparison, destination: Destination) -> frozenset[DriftId]:
    return frozenset(DriftId.of(entry) for entry in drift_of_classes(comparison, destination.on))


def _digest(destination: Destination) -> str:
    """What names a URL without telling it."""
    return sha256((destination.url or "").encode()).hexdigest()
