"""A WSGI application that is called inside this process, without a socket, as if it were the service."""

from __future__ import annotations

import io
from collections.abc import Callable, Iterable
from typing import Any
from urllib.parse import urlsplit

import requests
from requests.adapters import BaseAdapter
from requests.structures import CaseInsensitiveDict
from werkzeug.test import EnvironBuilder, run_wsgi_app

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
        parts = urlsplit(request.url or "")
        builder = EnvironBuilder(
            parts.path,
            base_url=f"{parts.scheme}://{parts.netloc}",
            query_string=parts.query,
            method=request.method or "GET",
            headers=[*request.headers.items()],
            data=request.body or b"",
        )
        try:
            chunks, status, headers = run_wsgi_app(self._app, builder.get_environ(), buffered=True)
        except ServiceError:
            raise
        except Exception as error:
            raise requests.ConnectionError(f"{type(error).__name__}: {error}") from error
        response = requests.Response()
        code, response.reason = status.partition(" ")[::2]
        response.status_code = int(code)
        response.headers = CaseInsensitiveDict(headers)
        response.request = request
        response.raw = io.BytesIO(b"".join(chunks))
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
