"""Servers other than the emulator: a canned WSGI app, an IAM, and misbehaving sockets."""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any

from reconciler.modelarts.auth import Anonymous, StaticToken
from reconciler.modelarts.connect import WsgiAdapter
from reconciler.modelarts.http import Credentials, ServiceSession, SessionOptions
from tests.modelarts.building import TOKEN, StoppedClock

StartResponse = Callable[..., Any]


class Canned:
    """Gives one response always, or several in turn; `environs` are the requests."""

    def __init__(self, *answers: tuple[int, bytes | str] | tuple[int, bytes | str, dict[str, str]]) -> None:
        self.answers = list(answers)
        self.environs: list[dict[str, Any]] = []

    def __call__(self, environ: dict[str, Any], start_response: StartResponse) -> Iterable[bytes]:
        self.environs.append(environ)
        status, content, *headers = self.answers[min(len(self.environs), len(self.answers)) - 1]
        start_response(f"{status} Said", list(headers[0].items()) if headers else [])
        return [content.encode() if isinstance(content, str) else content]


class Iam:
    """Issues token-1, token-2…, each until `ends_at`; `logins` are the received bodies."""

    def __init__(
        self, ends_at: str = "2030-01-01T00:00:00.000000Z", status: int = 201, code: str = "IAM.1"
    ) -> None:
        self.ends_at = ends_at
        self.status, self.code = status, code
        self.logins: list[dict[str, Any]] = []

    def __call__(self, environ: dict[str, Any], start_response: StartResponse) -> Iterable[bytes]:
        assert (environ["REQUEST_METHOD"], environ["PATH_INFO"]) == ("POST", "/v3/auth/tokens")
        self.logins.append(json.load(environ["wsgi.input"]))
        if self.status != 201:
            start_response(f"{self.status} Said", [])
            return [json.dumps({"error": {"code": self.code, "message": "no: S3cretPassword"}}).encode()]
        start_response("201 Created", [("X-Subject-Token", f"token-{len(self.logins)}")])
        return [json.dumps({"token": {"expires_at": self.ends_at, "project": {"id": "p1"}}}).encode()]


@contextmanager
def a_socket(serve: Callable[[socket.socket], None]) -> Iterator[str]:
    """Accept connections in turn and pass each to `serve`; yield the URL."""
    listening = socket.create_server(("127.0.0.1", 0))

    def run() -> None:
        while True:
            try:
                connection, _ = listening.accept()
            except OSError:
                return
            with connection:
                serve(connection)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{listening.getsockname()[1]}"
    finally:
        listening.shutdown(socket.SHUT_RDWR)
        listening.close()
        thread.join()


def a_request(connection: socket.socket) -> bytes:
    """Read a whole request with a JSON body: closing earlier may discard the response."""
    text = b""
    while not text.endswith(b"}") and (piece := connection.recv(65536)):
        text += piece
    return text


@contextmanager
def closed_port() -> Iterator[str]:
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        yield f"http://127.0.0.1:{bound.getsockname()[1]}"


def a_session(*answers: Any, credentials: Credentials | None = None, **options: Any) -> ServiceSession:
    """A session on a WSGI application, or on canned answers, without a socket; sleeping takes no time."""
    app = answers[0] if callable(answers[0]) else Canned(*answers)
    defaults: dict[str, Any] = {"clock": StoppedClock(), "chance": lambda: 1.0}
    options = {**defaults, "make_adapter": lambda: WsgiAdapter(app), **options}
    return ServiceSession(
        "http://localhost", credentials or StaticToken(TOKEN, "T"), SessionOptions(**options)
    )


def session_to(url: str, credentials: Credentials | None = None, **options: Any) -> ServiceSession:
    """A session to a URL, on a stopped clock."""
    defaults: dict[str, Any] = {"clock": StoppedClock(), "chance": lambda: 1.0}
    return ServiceSession(url, credentials or Anonymous(), SessionOptions(**{**defaults, **options}))
