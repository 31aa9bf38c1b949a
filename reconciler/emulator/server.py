"""The server: an application on a TCP port, by waitress."""

from __future__ import annotations

import json
import logging
import select
import socket
import threading
import uuid
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from reconciler.emulator.faults import ResponseLost

if TYPE_CHECKING:
    from _typeshed.wsgi import StartResponse, WSGIApplication, WSGIEnvironment

#: The most requests and connections at once, and the seconds after which an idle one is closed.
THREADS = 32
MAX_CONNECTIONS = 800
IDLE_TIMEOUT_S = 20
#: The application refuses a shorter one in the service's words; of a longer one no more than this is read.
MAX_BODY_READ = 16 * 1024 * 1024


class Server:
    """A bound socket that serves an application while `run` runs. Port 0 means any free one.

    Raises:
        OSError: the address cannot be bound.
    """

    def __init__(self, app: WSGIApplication, host: str = "127.0.0.1", port: int = 0) -> None:
        # More callers than threads is no trouble worth a line: they wait their turn.
        logging.getLogger("waitress.queue").setLevel(logging.ERROR)
        # Imported here, for an application called in-process needs no server.
        from waitress.server import create_server

        self._map: dict[int, Any] = {}
        self._stopping = False
        self._closed = False
        # A signal handler may call `stop` while its thread is in `close`, hence an RLock.
        self._closing = threading.RLock()
        # waitress leaves things open when it cannot bind, so it is given a socket that is bound.
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        family, _, _, _, address = found[0]
        listening = socket.create_server(address[:2], family=family, backlog=1024)
        self.host, self.port = listening.getsockname()[:2]
        self._server = create_server(
            _close_on_lost_responses(app),
            map=self._map,
            sockets=[listening],
            threads=THREADS,
            ident="emulator",
            # Idle connections do not keep other clients out for long.
            connection_limit=MAX_CONNECTIONS,
            channel_timeout=IDLE_TIMEOUT_S,
            cleanup_interval=IDLE_TIMEOUT_S // 4,
            max_request_body_size=MAX_BODY_READ,
        )
        self._server.channel_class = _channel_class()

    @property
    def url(self) -> str:
        """Where it serves, e.g. http://127.0.0.1:8080."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"http://{host}:{self.port}"

    def run(self) -> None:
        """Serve until `stop` is called or an exception (a signal) comes; then release the socket."""
        from waitress import wasyncore

        try:
            while not self._stopping:
                wasyncore.loop(timeout=30, map=self._map, use_poll=hasattr(select, "poll"), count=1)
        finally:
            self.close()

    def stop(self) -> None:
        """Make `run` return soon. May be called from any thread, and from a signal handler."""
        self._stopping = True
        with self._closing:
            # The loop may have seen the wish by itself, and be gone with the pipe that would wake it.
            if not self._closed:
                self._server.pull_trigger()

    def close(self) -> None:
        """Release the socket and every connection. Closing twice does nothing."""
        from waitress import wasyncore

        self._stopping = True
        with self._closing:
            if self._closed:
                return
            self._closed = True
            self._server.task_dispatcher.shutdown(cancel_pending=True, timeout=5)
            self._server.close()
            wasyncore.close_all(self._map, ignore_all=True)


def serve(
    app: WSGIApplication,
    host: str = "127.0.0.1",
    port: int = 0,
    on_ready: Callable[[Server], object] | None = None,
) -> None:
    """Serve an application until its server is stopped or an exception comes.

    `on_ready` is called with the server, with its `url`, `port` and `stop`, once the socket listens.
    """
    server = Server(app, host, port)
    try:
        if on_ready:
            on_ready(server)
        server.run()
    finally:
        server.close()


@contextmanager
def running(app: WSGIApplication, host: str = "127.0.0.1", port: int = 0) -> Iterator[str]:
    """Serve an application in a thread; yield its URL."""
    server = Server(app, host, port)
    thread = threading.Thread(target=server.run, name="emulator", daemon=True)
    thread.start()
    try:
        yield server.url
    finally:
        server.stop()
        thread.join()


def _channel_class() -> type:
    """Connections that say in the service's form what the server itself has to say of a request."""
    from waitress.channel import HTTPChannel
    from waitress.task import ErrorTask

    class Refusal(ErrorTask):  # type: ignore[misc]
        def execute(self) -> None:
            error = self.request.error
            # A request that cannot be parsed is the client's mistake; of some waitress says 501.
            status = 400 if error.code == 501 else error.code
            code = "ModelArts.0010" if status == 500 else "APIGW.0201"
            fields = {"error_msg": error.reason, "error_code": code, "request_id": uuid.uuid4().hex}
            body = json.dumps(fields).encode()
            self.status = f"{status} {error.reason}"
            self.response_headers.append(("Content-Type", "application/json"))
            self.set_close_on_finish()
            self.content_length = len(body)
            self.write(body)

    return type("Channel", (HTTPChannel,), {"error_task_class": Refusal})


def _close_on_lost_responses(app: WSGIApplication) -> WSGIApplication:
    from waitress.channel import ClientDisconnected

    def serve_one(environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
        try:
            return app(environ, start_response)
        except ResponseLost as lost:
            # waitress closes the connection without a word when it believes that the client left.
            raise ClientDisconnected from lost

    return serve_one
