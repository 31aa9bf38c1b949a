"""WSGI applications around the emulator that make its list behave as other services' lists do."""

from __future__ import annotations

import io
import json
import threading
from collections.abc import Callable, Iterable
from typing import Any

from reconciler.modelarts.http import WsgiApp

StartResponse = Callable[..., Any]
#: Answers one search: the body of the request → the body of the answer.
Search = Callable[[dict[str, Any]], Any]


class Searches:
    """Takes the searches of an application apart: `change` is given the body, and what answers one."""

    def __init__(self, app: WsgiApp, change: Callable[[dict[str, Any], Search], Any]) -> None:
        self._app = app
        self._change = change
        self._lock = threading.Lock()
        self.asked: list[dict[str, Any]] = []

    def __call__(self, environ: dict[str, Any], start_response: StartResponse) -> Iterable[bytes]:
        """Serve one request."""
        if not environ["PATH_INFO"].endswith("/training-job-searches"):
            return self._app(environ, start_response)
        body = json.loads(environ["wsgi.input"].read(int(environ["CONTENT_LENGTH"])))
        with self._lock:
            self.asked.append(body)
        said: list[tuple[str, list[tuple[str, str]]]] = []

        def search(other: dict[str, Any]) -> Any:
            data = json.dumps(other).encode()
            inner = {**environ, "wsgi.input": io.BytesIO(data), "CONTENT_LENGTH": str(len(data))}
            chunks = self._app(inner, lambda status, headers, _=None: said.append((status, headers)))
            return json.loads(b"".join(chunks))

        answer = json.dumps(self._change(body, search)).encode()
        status, headers = said[-1]
        kept = [(name, value) for name, value in headers if name.lower() != "content-length"]
        start_response(status, [*kept, ("Content-Length", str(len(answer)))])
        return [answer]


def counting_items(body: dict[str, Any], search: Search) -> Any:
    """`offset` counts items, as some documents say."""
    limit = body["limit"]
    page, rest = divmod(body["offset"], limit)
    answer = search({**body, "offset": page})
    items = answer["items"][rest:]
    if rest:
        items += search({**body, "offset": page + 1})["items"][:rest]
    return {**answer, "items": items}


def telling(**lies: Any) -> Callable[[dict[str, Any], Search], Any]:
    """Other values of `total` and `count`; `...` leaves one out, "page" is the length of the page."""

    def change(body: dict[str, Any], search: Search) -> Any:
        answer = search(body)
        for name, value in lies.items():
            answer[name] = len(answer["items"]) if value == "page" else value
            if value is ...:
                del answer[name]
        return answer

    return change
