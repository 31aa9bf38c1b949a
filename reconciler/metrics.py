"""An HTTP server for `/metrics` and `/healthz`, with a thread per connection.

Slow clients cannot block it: connections time out, and the oldest is closed when there are too many.
"""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler
from socketserver import ThreadingTCPServer
from typing import Any

MAX_CONNECTIONS = 32
#: Time limit for a whole connection, whatever the client sends.
REQUEST_TIMEOUT_S = 5.0
_TEXT = "text/plain; charset=utf-8"


class _Handler(BaseHTTPRequestHandler):
    server: MetricsServer
    server_version = "reconciler"

    def do_GET(self) -> None:
        path = self.path.partition("?")[0]
        status, kind, body = 404, _TEXT, "not found; available: /metrics, /healthz\n"
        if path == "/metrics":
            # Source: https://prometheus.io/docs/instrumenting/exposition_formats/
            status, kind, body = 200, "text/plain; version=0.0.4; charset=utf-8", self.server.metrics()
        elif path == "/healthz":
            bad = 503, "no check has compared anything for three intervals\n"
            status, body = (200, "ok\n") if self.server.is_healthy() else bad
        data = body.encode()
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        if self.command == "GET":
            self.wfile.write(data)

    do_HEAD = do_GET  # noqa: N815

    def log_message(self, *_: object) -> None:
        """Do not log requests."""


class MetricsServer(ThreadingTCPServer):
    """The server, bound to its address. `metrics` and `is_healthy` answer its two paths.

    Raises:
        OSError: the address cannot be bound.
    """

    allow_reuse_address = daemon_threads = True
    request_queue_size = MAX_CONNECTIONS

    def __init__(
        self, host: str, port: int, metrics: Callable[[], str], is_healthy: Callable[[], bool]
    ) -> None:
        self.metrics, self.is_healthy = metrics, is_healthy
        self._begun: dict[Any, float] = {}
        try:
            found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        except UnicodeError:
            raise OSError("not a valid host name") from None
        self.address_family, _, _, _, address = found[0]
        super().__init__((str(address[0]), int(address[1])), _Handler)

    @property
    def url(self) -> str:
        """The base URL, e.g. http://127.0.0.1:9464."""
        host, port = self.socket.getsockname()[:2]
        return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"

    @contextmanager
    def serving(self) -> Iterator[None]:
        """Serve on a thread inside the `with` block."""
        thread = threading.Thread(target=self.serve_forever, args=(0.1,), name="metrics", daemon=True)
        thread.start()
        try:
            yield
        finally:
            self.shutdown()
            self.server_close()
            for request in list(self._begun):
                self._end(request)

    def process_request(self, request: Any, client_address: Any) -> None:
        self._begun[request] = time.monotonic()
        super().process_request(request, client_address)

    def service_actions(self) -> None:
        """Close connections that are too old, and the oldest of too many."""
        oldest_first = list(self._begun.items())
        since_s = time.monotonic() - REQUEST_TIMEOUT_S
        for place, (request, begun_s) in enumerate(oldest_first):
            if place < len(oldest_first) - MAX_CONNECTIONS or begun_s < since_s:
                self._end(request)

    @staticmethod
    def _end(request: Any) -> None:
        with suppress(OSError):  # its thread then closes it
            request.shutdown(socket.SHUT_RDWR)

    def shutdown_request(self, request: Any) -> None:
        self._begun.pop(request, None)
        super().shutdown_request(request)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Ignore it: the client disconnected or sent no request."""
