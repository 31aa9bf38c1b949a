"""A transport of `requests` that calls a WSGI application inside this process, without a socket."""

from __future__ import annotations

import io
from collections.abc import Callable, Iterable, Mapping
from typing import Any
from urllib.parse import unquote_to_bytes

import requests
from requests.adapters import BaseAdapter
from requests.structures import CaseInsensitiveDict

from reconciler.errors import ServiceError

WsgiApp = Callable[[dict[str, Any], Callable[..., Any]], Iterable[bytes]]


class WsgiAdapter(BaseAdapter):
    """Calls `app` for each request. What the app raises is a connection that broke without an answer.

    A `ServiceError` is what it says.
    """

    def __init__(self, app: WsgiApp) -> None:
        super().__init__()
        self._app = app

    def send(
        self,
        request: requests.PreparedRequest,
        stream: bool = False,
        timeout: Any = None,
        verify: Any = True,
        cert: Any = None,
        proxies: Mapping[str, str] | None = None,
    ) -> requests.Response:
        """Return the app's answer.

        Raises:
            requests.ConnectionError: the app raised instead of answering.
            ServiceError: the app raised it.
        """
        said: list[tuple[str, list[tuple[str, str]]]] = []

        def start_response(status: str, headers: list[tuple[str, str]], _: Any = None) -> None:
            said.append((status, headers))

        try:
            chunks = self._app(_environ(request), start_response)
            try:
                content = b"".join(chunks)
            finally:
                if close := getattr(chunks, "close", None):
                    close()
            status, headers = said[-1]
        except ServiceError:
            raise
        except Exception as error:
            raise requests.ConnectionError(f"{type(error).__name__}: {error}") from error
        return _response(request, status, headers, content)

    def close(self) -> None:
        """There is no connection to close."""


def _environ(request: requests.PreparedRequest) -> dict[str, Any]:
    assert request.url is not None
    scheme, _, rest = request.url.partition("://")
    host, _, tail = rest.partition("/")
    path, _, query = tail.partition("?")
    name, _, port = host.partition(":")
    body = request.body or b""
    assert isinstance(body, bytes)
    environ: dict[str, Any] = {
        "REQUEST_METHOD": request.method,
        "SCRIPT_NAME": "",
        "PATH_INFO": unquote_to_bytes("/" + path).decode("latin-1"),
        "QUERY_STRING": query,
        "REQUEST_URI": "/" + tail,
        "RAW_URI": "/" + tail,
        "SERVER_NAME": name,
        "SERVER_PORT": port or ("443" if scheme == "https" else "80"),
        "SERVER_PROTOCOL": "HTTP/1.1",
        "REMOTE_ADDR": "127.0.0.1",
        "CONTENT_LENGTH": str(len(body)),
        "CONTENT_TYPE": request.headers.get("Content-Type", ""),
        "HTTP_HOST": request.headers.get("Host", host),
        "wsgi.version": (1, 0),
        "wsgi.url_scheme": scheme,
        "wsgi.input": io.BytesIO(body),
        "wsgi.errors": io.StringIO(),  # what goes wrong is an answer
        "wsgi.multithread": True,
        "wsgi.multiprocess": False,
        "wsgi.run_once": False,
    }
    for header, value in request.headers.items():
        if header.lower() not in {"content-type", "content-length", "host", "accept-encoding"}:
            environ["HTTP_" + header.upper().replace("-", "_")] = value
    return environ


def _response(
    request: requests.PreparedRequest, status: str, headers: list[tuple[str, str]], content: bytes
) -> requests.Response:
    response = requests.Response()
    response.status_code = int(status.partition(" ")[0])
    response.reason = status.partition(" ")[2]
    response.headers = CaseInsensitiveDict(headers)
    response.request = request
    response.url = request.url or ""
    response.raw = io.BytesIO(content)
    return response
