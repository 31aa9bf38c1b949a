"""Sends messages to Apprise URLs, all at once, each within a time limit; says of each why it failed.

A URL is a secret, and Apprise quotes it in its log and its exceptions: of both only so much gets out as holds
no part of it. Apprise is imported here, when something is sent: it is an extra, and takes a while.
"""

from __future__ import annotations

import logging
import re
import threading
import time
import warnings
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import unquote

from reconciler.core.secret import Redactor
from reconciler.text import printable

#: Longer than that nobody waits for a service to take a message, in seconds.
SEND_LIMIT_S = 10.0
INSTALL = "pip install 'reconciler[notify]'"
_MOST_WORDS = 200
#: The loggers that quote URLs: a filter concerns the very logger that it is added to.
_LOGGERS = ("apprise", "urllib3.connectionpool")
_PART = re.compile(r"[^/?&=:@;,#\s]{3,}")


class NotInstalled(Exception):
    """Apprise is not installed."""


@dataclass(frozen=True, slots=True)
class Delivery:
    """One message, and where it goes."""

    url: str = field(repr=False)
    title: str
    text: str


def knows(url: str) -> bool:
    """Whether Apprise knows what to do with a URL.

    Raises:
        NotInstalled: nobody can tell.
    """
    return _service(url) is not None


def send_all(deliveries: Sequence[Delivery], limit_s: float = SEND_LIMIT_S) -> tuple[str, ...]:
    """Send every message, and return for each why it was not taken: "" if it was.

    One that takes longer than `limit_s` has failed, whatever becomes of it.

    Raises:
        NotInstalled: nothing can be sent.
    """
    sendings = [_Sending(delivery, _service(delivery.url)) for delivery in deliveries]
    ends_s = time.monotonic() + limit_s
    for one in sendings:
        one.start()
    for one in sendings:
        one.join(max(0.0, ends_s - time.monotonic()))
    late = f"no answer within {limit_s:g} s"
    return tuple(late if one.problem is None else one.problem for one in sendings)


class _Sending(threading.Thread):
    """One message under way. It is waited for so long; a thread that hangs on ends with the program."""

    def __init__(self, delivery: Delivery, service: Any) -> None:
        super().__init__(name="notification", daemon=True)
        self._delivery, self._service = delivery, service
        self.problem: str | None = None

    def run(self) -> None:
        """Send it."""
        try:
            self.problem = self._send()
        except Exception as error:
            # Its text may quote the URL.
            self.problem = f"it could not be sent: {type(error).__name__}"

    def _send(self) -> str:
        if self._service is None:
            return "the URL is not one that Apprise knows"
        message = self._delivery
        with _Silence.lines() as said:
            # "warning" and "text" are Apprise's words: nothing in the message is markup.
            is_taken = self._service.notify(
                body=message.text, title=message.title, notify_type="warning", body_format="text"
            )
        if is_taken:
            return ""
        words = said[0] if said else "the service did not take it"
        parts = {*_PART.findall(message.url), *_PART.findall(unquote(message.url))}
        return printable(Redactor(parts)(words))[:_MOST_WORDS]


def _service(url: str) -> Any:
    """What sends to a URL; None if Apprise knows no such service."""
    # Its plugins import whatever is there, and some of that is about to be removed from Python.
    with warnings.catch_warnings(), _Silence.lines():
        warnings.simplefilter("ignore")
        try:
            import apprise
        except ImportError:
            raise NotInstalled from None
        asset = apprise.AppriseAsset(app_id="reconciler", app_desc="reconciler")
        return apprise.Apprise.instantiate(url, asset=asset, suppress_exceptions=True)


class _Silence(logging.Filter):
    """Keeps what Apprise logs in threads of ours out of every handler; others are not concerned."""

    _here = threading.local()
    _installed = threading.Lock()
    _filter: _Silence | None = None

    @classmethod
    def lines(cls) -> _CapturedLines:
        """Take what is logged in this thread, while the result is entered."""
        with cls._installed:
            if cls._filter is None:
                cls._filter = cls()
                for name in _LOGGERS:
                    logging.getLogger(name).addFilter(cls._filter)
        return _CapturedLines(cls._here)

    def filter(self, record: logging.LogRecord) -> bool:
        """Let a record pass unless this thread takes it."""
        taken: list[str] | None = getattr(self._here, "lines", None)
        if taken is None:
            return True
        if record.levelno >= logging.WARNING:
            taken.append(record.getMessage())
        return False


class _CapturedLines:
    """The lines that are logged in this thread."""

    def __init__(self, here: threading.local) -> None:
        self._here = here

    def __enter__(self) -> list[str]:
        self._here.lines = lines = list[str]()
        return lines

    def __exit__(self, *_: object) -> None:
        self._here.lines = None
