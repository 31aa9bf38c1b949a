"""A local receiver of Apprise's json:// messages."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


class Receiver:
    """The received messages by path. A path with `broken` responds 500.

    A path with `hanging` responds after the test, or after a request with `releasing`.
    """

    def __init__(self, port: int) -> None:
        self.port = port
        self.messages: dict[str, list[dict[str, Any]]] = {}
        self.is_over = threading.Event()

    def url(self, path: str) -> str:
        return f"json://127.0.0.1:{self.port}/{path}"

    def titles(self, path: str) -> list[str]:
        return [message["title"] for message in self.messages.get(path, [])]


@contextmanager
def receiving() -> Iterator[Receiver]:
    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            path = self.path.strip("/")
            receiver.messages.setdefault(path, []).append(body)
            if "releasing" in path:
                receiver.is_over.set()
            if "hanging" in path:
                receiver.is_over.wait()
            self.send_response(500 if "broken" in path else 200)
            self.end_headers()

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    receiver = Receiver(server.server_port)
    thread = threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True)
    thread.start()
    try:
        yield receiver
    finally:
        receiver.is_over.set()
        server.shutdown()
        server.server_close()
        thread.join()
