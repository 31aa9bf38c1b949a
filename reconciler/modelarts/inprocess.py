"""A WSGI application that is called inside this process, without a socket, as if it were the service."""

from __future__ import annotations

import contextlib
import io
from collections.abc import Callable, Iterable
from typing import Any
from urllib.parse import unquote_to_bytes

import requests
from requests.adapters import BaseAdapter
from requests.structures import CaseInsensitiveDict

from reconciler.core.fields.field_types import Cloud
from reconciler.errors import ServiceError
from reconciler.modelarts.auth import Anonymous
from reconciler.modelarts.connect import ModelArtsBackend
from reconciler.modelarts.http import DEFAULT_OPTIONS, Credentials, ServiceSession, SessionOptions

#: Where the emulator inside this process answers; nothing is ever sent there.
INPROCESS_ENDPOINT = "http://localhost"

WsgiApp = Callable[[dict[str, Any], Callable[..., Any]], Iterable[bytes]]


class WsgiAdapter(BaseAdapter):
    """Calls a WSGI application inside this process for each request, without a socket.

    A `ServiceError` that the app raises goes on to the caller; any other error is a connection that broke
    without an answer.
    """

    def __init__(self, app: WsgiApp) -> None:
        super().__init__()
        self._app = app

    def send(self, request: requests.PreparedRequest, *_: Any, **options: Any) -> requests.Response:
        """Return the app's answer.

        Raises:
            requests.ConnectionError: the app raised instead of answering.
            ServiceError: the app raised it.
        """
        assert request.url is not None
        scheme, rest = request.url.partition("://")[::2]
        host, tail = rest.partition("/")[::2]
        path, query = tail.partition("?")[::2]
        name, port = host.partition(":")[::2]
        body = request.body or b""
        assert isinstance(body, bytes)
        own = {"content-type", "content-length", "host", "accept-encoding"}
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
            **{
                "HTTP_" + header.upper().replace("-", "_"): value
                for header, value in request.headers.items()
                if header.lower() not in own
            },
        }
        started: list[tuple[str, list[tuple[str, str]]]] = []
        try:
            with contextlib.ExitStack() as cleanup:
                chunks = self._app(environ, lambda status, headers, *_: started.append((status, headers)))
                cleanup.callback(getattr(chunks, "close", bool))
                content = b"".join(chunks)
            status, headers = started[-1]
        except ServiceError:
            raise
        except Exception as error:
            raise requests.ConnectionError(f"{type(error).__name__}: {error}") from error
        response = requests.Response()
        code, response.reason = status.partition(" ")[::2]
        response.status_code = int(code)
        response.headers = CaseInsensitiveDict(headers)
        response.request = request
        response.url = request.url or ""
        response.raw = io.BytesIO(content)
        return response

    def close(self) -> None:
        pass


def connect_inprocess(
    app: WsgiApp,
    *,
    project_id: str,
    workspace_id: str = "0",
    cloud: Cloud = Cloud.HUAWEI,
    credentials: Credentials | None = None,
    options: SessionOptions = DEFAULT_OPTIONS,
) -> ModelArtsBackend:
    """Return a backend that calls a WSGI application inside this process, without a socket."""
    session = ServiceSession(
        INPROCESS_ENDPOINT,
        credentials or Anonymous(),
        options._replace(make_adapter=lambda: WsgiAdapter(app)),
    )
    return ModelArtsBackend(session, project_id, workspace_id, cloud)
