"""A stub of OBS, S3 over HTTP with OBS errors, and of IAM, which issues its keys.

It accepts path style, as needed for local addresses; OBS itself would refuse that.
"""

from __future__ import annotations

import hashlib
import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, NamedTuple
from urllib.parse import parse_qs, unquote, urlsplit
from xml.sax.saxutils import escape

SECURITY_TOKENS = "/v3.0/OS-CREDENTIAL/securitytokens"
#: Further members of an OBS error; the last one must never be shown.
ERROR = (
    "<?xml version='1.0' encoding='UTF-8'?><Error><Code>{code}</Code><Message>the words of OBS for {code}"
    "</Message><RequestId>R-1</RequestId><HostId>h</HostId><StringToSign>{secret}</StringToSign></Error>"
)


class Seen(NamedTuple):
    """A request as it arrived."""

    method: str
    path: str
    query: dict[str, list[str]]
    headers: dict[str, str]
    body: bytes

    @property
    def access_key(self) -> str:
        return self.headers.get("authorization", "").partition("Credential=")[2].partition("/")[0]


class Answer(NamedTuple):
    """An overriding response to requests of a method, `times` of them (None: all)."""

    status: int
    code: str = ""
    method: str = ""
    times: int | None = 1
    headers: dict[str, str] = {}  # noqa: RUF012 - read only
    body: bytes | None = None
    path: str = ""


class ObsServer:
    """A server with its objects by key, its requests, and overriding responses."""

    def __init__(self) -> None:
        self.objects: dict[str, bytes] = {}
        self.seen: list[Seen] = []
        self.answers: list[Answer] = []
        #: Called with each request, before and after its effect; raising drops the connection.
        self.before: Callable[[Seen], object] = lambda seen: None
        self.after: Callable[[Seen], object] = lambda seen: None
        self.expires_at = "2026-01-01T01:00:00.000000Z"
        self.url = ""
        self._lock = threading.Lock()

    def requests(self, method: str) -> list[Seen]:
        return [seen for seen in self.seen if seen.method == method]

    @property
    def puts(self) -> list[str]:
        """The written keys, in order."""
        return [seen.path.removeprefix("/") for seen in self.requests("PUT")]

    @property
    def asked_for_keys(self) -> list[Any]:
        return [json.loads(seen.body) for seen in self.seen if seen.path == SECURITY_TOKENS]

    def respond(self, seen: Seen) -> tuple[int, bytes, dict[str, str]]:
        with self._lock:
            self.seen.append(seen)
            for answer in self.answers:
                if answer.method in ("", seen.method) and seen.path.startswith(answer.path):
                    if answer.times is not None:
                        self.answers.remove(answer)
                        if answer.times > 1:
                            self.answers.append(answer._replace(times=answer.times - 1))
                    error = ERROR.format(code=answer.code, secret=seen.headers.get("authorization", ""))
                    body = error.encode() if answer.body is None else answer.body
                    return answer.status, body, answer.headers
        if seen.path == SECURITY_TOKENS:
            number = len(self.asked_for_keys)
            keys = {"access": f"TEMPORARY{number}", "secret": f"temporary-secret-{number}"}
            keys |= {"securitytoken": f"security-token-{number}", "expires_at": self.expires_at}
            return 201, json.dumps({"credential": keys}).encode(), {}
        key = seen.path.removeprefix("/")
        if seen.method == "PUT":
            self.objects[key] = seen.body
            return 200, b"", {"ETag": etag(seen.body)}
        if "list-type" in seen.query:
            return 200, self._listing(key, seen.query.get("prefix", [""])[0]).encode(), {}
        if seen.method == "DELETE":
            self.objects.pop(key, None)
            return 204, b"", {}
        if key in self.objects:
            data = self.objects[key]
            return 200, data, {"ETag": etag(data), "Last-Modified": "Thu, 01 Jan 2026 00:00:00 GMT"}
        return 404, ERROR.format(code="NoSuchKey", secret="").encode(), {}

    def _listing(self, bucket: str, prefix: str) -> str:
        found = "".join(
            f"<Contents><Key>{escape(key.partition('/')[2])}</Key><Size>{len(data)}</Size>"
            f"<LastModified>2026-01-01T00:00:00.000Z</LastModified><ETag>{etag(data)}</ETag></Contents>"
            for key, data in sorted(self.objects.items())
            if key.startswith(f"{bucket}/{prefix}")
        )
        return f"<ListBucketResult><IsTruncated>false</IsTruncated>{found}</ListBucketResult>"


def etag(data: bytes) -> str:
    return f'"{hashlib.md5(data, usedforsecurity=False).hexdigest()}"'


@contextmanager
def running() -> Iterator[ObsServer]:
    """Run a server on this machine."""
    obs = ObsServer()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        disable_nagle_algorithm = True

        def handle_any(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            parts = urlsplit(self.path)
            headers = {name.lower(): value for name, value in self.headers.items()}
            seen = Seen(self.command, unquote(parts.path), parse_qs(parts.query), headers, body)
            try:
                obs.before(seen)
                status, data, more = obs.respond(seen)
                obs.after(seen)
            except ConnectionError:
                self.close_connection = True
                return
            self.send_response(status)
            for name, value in {**more, "Content-Length": str(len(data))}.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(data)

        do_GET = do_PUT = do_POST = do_DELETE = do_HEAD = handle_any  # noqa: N815 - as http.server has them

        def log_message(self, *_: object) -> None:
            pass

    class Server(ThreadingHTTPServer):
        daemon_threads = True

        def handle_error(self, *_: object) -> None:
            """Ignore disconnected clients."""

    with Server(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
        obs.url = f"http://127.0.0.1:{server.server_port}"
        try:
            yield obs
        finally:
            server.shutdown()
