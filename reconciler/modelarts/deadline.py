"""A transport of `requests` whose answers end in time, however slowly they come.

The read timeout of requests holds for each piece: of a server that sends a byte now and then, be it of the
status line or a header, one would wait for ever. Here all reading of an answer ends at one moment.
"""

from __future__ import annotations

import http.client
import io
import socket
import time
from typing import Any

import requests
from requests.adapters import HTTPAdapter

from reconciler.text import format_duration


class Overdue(OSError):
    """An answer did not end in time. No TimeoutError: urllib3 would tell of its own limit instead."""


class DeadlineAdapter(HTTPAdapter):
    """Gives each answer `longest_s` seconds, from the moment when the request has been sent.

    `has_begun` says of the last request whether any of it may have left: what its failure means rests on
    that alone, since the library raises the same errors before a connection exists and after it broke.
    """

    def __init__(self, longest_s: float) -> None:
        self._longest_s = longest_s
        self._classes: dict[type, type] = {}
        self.has_begun = False
        super().__init__()

    def send(self, *args: Any, **options: Any) -> requests.Response:
        """Send a request and return its answer, as the adapter of requests does."""
        self.has_begun = False
        return super().send(*args, **options)

    def get_connection_with_tls_context(self, *args: Any, **options: Any) -> Any:
        """Return the connections to a host, which may be plain, TLS, or by a proxy of either kind."""
        pool: Any = super().get_connection_with_tls_context(*args, **options)
        plain = type(pool).ConnectionCls
        if plain not in self._classes:
            self._classes[plain] = _punctual(plain, self, self._longest_s)
        pool.ConnectionCls = self._classes[plain]
        return pool


def _punctual(connection: type, adapter: DeadlineAdapter, longest_s: float) -> Any:
    """The same class of connections; the answers of a proxy to CONNECT are read in the same way."""

    class Response(http.client.HTTPResponse):
        def __init__(self, sock: socket.socket, *args: Any, **options: Any) -> None:
            super().__init__(sock, *args, **options)
            assert isinstance(self.fp, io.BufferedReader)
            self.fp = io.BufferedReader(_Punctual(longest_s, sock, self.fp.detach()))

    def endheaders(self: Any, *args: Any, **options: Any) -> Any:
        # Only a request ends its headers here: TLS and a tunnel through a proxy are part of connecting.
        if self.sock is None:
            self.connect()
        adapter.has_begun = True
        return connection.endheaders(self, *args, **options)  # type: ignore[attr-defined]

    return type(connection.__name__, (connection,), {"response_class": Response, "endheaders": endheaders})


class _Punctual(io.RawIOBase):
    """What comes out of a socket from now on, for so long; `raw` is the socket as a stream."""

    def __init__(self, longest_s: float, sock: socket.socket, raw: io.RawIOBase) -> None:
        super().__init__()
        self._ends_at_s = time.monotonic() + longest_s
        self._longest_s, self._sock, self._raw = longest_s, sock, raw

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int | None:
        left_s = self._ends_at_s - time.monotonic()
        if left_s > 0:
            timeout_s = self._sock.gettimeout()
            if timeout_s is None or left_s < timeout_s:
                self._sock.settimeout(left_s)
            try:
                return self._raw.readinto(buffer)
            except TimeoutError:
                if time.monotonic() < self._ends_at_s:
                    raise
        raise Overdue(f"the response was not complete after {format_duration(self._longest_s)}")

    def close(self) -> None:
        if not self.closed:
            self._raw.close()
        super().close()
