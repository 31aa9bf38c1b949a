"""A server on a bare socket that executes requests, and breaks the response to a create."""

from __future__ import annotations

import io
import shutil
import socket
import ssl
import struct
import subprocess
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

App = Callable[[dict[str, Any], Callable[..., Any]], Iterable[bytes]]


class Line:
    """A connection, for code that breaks a response."""

    def __init__(self, sock: socket.socket) -> None:
        self.sock = sock

    def say(self, data: bytes) -> None:
        self.sock.sendall(data)

    def say_below_tls(self, data: bytes) -> None:
        """Send raw bytes below TLS."""
        if isinstance(self.sock, ssl.SSLSocket):
            with socket.socket(fileno=self.sock.detach()) as bare:
                bare.sendall(data)
                bare.shutdown(socket.SHUT_WR)
                with suppress(OSError):
                    bare.recv(65536)
        else:
            self.sock.sendall(data)

    def reset(self) -> None:
        """Close it with a reset."""
        self.sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))


#: Called with the connection and the correct response; the connection is closed afterwards.
Break = Callable[[Line, bytes], None]


class Wire:
    """Serves an application; `breaks` breaks the next response to a create, `posts` counts creates."""

    def __init__(self, app: App, context: ssl.SSLContext | None = None) -> None:
        self.app, self._context = app, context
        self.breaks: Break | None = None
        self.posts = 0
        self._listening = socket.create_server(("127.0.0.1", 0))
        self._thread = threading.Thread(target=self._accept, daemon=True)

    @property
    def url(self) -> str:
        scheme = "https" if self._context else "http"
        return f"{scheme}://127.0.0.1:{self._listening.getsockname()[1]}"

    def __enter__(self) -> Wire:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._listening.shutdown(socket.SHUT_RDWR)
        self._listening.close()
        self._thread.join()

    def _accept(self) -> None:
        while True:
            try:
                sock, _ = self._listening.accept()
            except OSError:
                return
            sock.settimeout(5)
            threading.Thread(target=self._serve, args=(sock,), daemon=True).start()

    def _serve(self, sock: socket.socket) -> None:
        with suppress(OSError, ValueError):
            if self._context:
                sock = self._context.wrap_socket(sock, server_side=True)
            with sock:
                while request := _read(sock):
                    answer = self._answer(*request)
                    if request[0] == "POST" and request[1].endswith("/training-jobs"):
                        self.posts += 1
                        if self.breaks:
                            self.breaks(Line(sock), answer)
                            return
                    sock.sendall(answer)

    def _answer(self, method: str, target: str, headers: dict[str, str], body: bytes) -> bytes:
        path, _, query = target.partition("?")
        environ = {
            "REQUEST_METHOD": method,
            "PATH_INFO": path,
            "QUERY_STRING": query,
            "SERVER_NAME": "127.0.0.1",
            "SERVER_PORT": "80",
            "SERVER_PROTOCOL": "HTTP/1.1",
            "CONTENT_LENGTH": str(len(body)),
            "CONTENT_TYPE": headers.get("content-type", ""),
            "HTTP_HOST": headers.get("host", ""),
            "wsgi.url_scheme": "http",
            "wsgi.input": io.BytesIO(body),
        }
        said: list[Any] = []
        content = b"".join(self.app(environ, lambda status, headers, _=None: said.append((status, headers))))
        status, told = said[-1]
        head = "".join(f"{name}: {value}\r\n" for name, value in told)
        return f"HTTP/1.1 {status}\r\n{head}\r\n".encode("latin-1") + content


def _read(sock: socket.socket) -> tuple[str, str, dict[str, str], bytes] | None:
    text = b""
    while b"\r\n\r\n" not in text:
        if not (piece := sock.recv(65536)):
            return None
        text += piece
    head, _, body = text.partition(b"\r\n\r\n")
    first, *lines = head.decode("latin-1").split("\r\n")
    headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
    while len(body) < int(headers.get("content-length", "0")):
        body += sock.recv(65536)
    method, target, _ = first.split(" ")
    return method, target, headers, body


def make_certificate(directory: Path) -> tuple[Path, Path]:
    """Make a self-signed certificate for 127.0.0.1, and its key."""
    if not (openssl := shutil.which("openssl")):
        pytest.skip("no openssl to make a certificate with")
    certificate, key = directory / "cert.pem", directory / "key.pem"
    asked = "req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 2 -subj /CN=test"
    files = ["-keyout", str(key), "-out", str(certificate), "-addext", "subjectAltName=IP:127.0.0.1"]
    subprocess.run([openssl, *asked.split(), *files], check=True, capture_output=True)
    return certificate, key


@contextmanager
def a_wire(app: App, files: tuple[Path, Path] | None) -> Iterator[Wire]:
    context = None
    if files:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(*files)
    with Wire(app, context) as wire:
        yield wire
