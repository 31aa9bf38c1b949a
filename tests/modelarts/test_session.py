"""HTTP: requests, responses, broken connections, and retries."""

from __future__ import annotations

import gzip
import math
import socket
import threading
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
import requests
import urllib3

from reconciler.core.stack import Target
from reconciler.emulator.server import running
from reconciler.errors import ServerError, ServiceError, Throttled, Unanswered, Unreachable, UnreadableAnswer
from reconciler.modelarts.auth import StaticToken
from reconciler.modelarts.clock import RetryPolicy, retry_wait_s
from reconciler.modelarts.connect import ModelArtsBackend, WsgiAdapter, connect
from reconciler.modelarts.http import Network, SessionOptions
from tests.modelarts.building import PROJECT, TOKEN, StoppedClock
from tests.modelarts.serving import Canned, a_request, a_session, a_socket, closed_port, session_to

OK = (200, "{}")
EMPTY_PAGE = b'{"items": [], "total": 0}'


def connected(url: str, environ: dict[str, str] | None = None, **members: Any) -> ModelArtsBackend:
    target = Target.model_validate({"kind": "modelarts", "endpoint": url, "project_id": PROJECT, **members})
    options = SessionOptions(clock=StoppedClock())
    return connect(target, {"MODELARTS_AUTH_TOKEN": TOKEN, **(environ or {})}, options)


# ── requests ───────────────────────────────────────────────────────────────────────────────────────


def test_request_has_json_body_sorted_query_token_and_time_limits() -> None:
    app, limits = Canned(OK), list[Any]()

    class Telling(WsgiAdapter):
        def send(self, *args: Any, **options: Any) -> requests.Response:
            limits.append(options["timeout"])
            return super().send(*args, **options)

    session = a_session(app, make_adapter=lambda: Telling(app))
    session.call("POST", "/v2/p/x", body={"name": "ä"}, query={"b": "a b~c", "a": 1, "none": None})
    [environ] = app.environs
    assert environ["wsgi.input"].getvalue() == '{"name":"ä"}'.encode()
    assert environ["CONTENT_TYPE"] == "application/json;charset=UTF-8"
    assert environ["QUERY_STRING"] == "a=1&b=a%20b~c"
    assert environ["HTTP_X_AUTH_TOKEN"] == TOKEN
    assert environ["HTTP_X_LANGUAGE"] == "en-us"
    assert limits == [(10.0, 60.0)]


@pytest.mark.parametrize("method", ["GET", "DELETE"])
def test_request_without_a_body_has_no_content_type(method: str) -> None:
    app = Canned(OK)
    a_session(app).call(method, "/v2/p/x")
    assert app.environs[0]["CONTENT_TYPE"] == ""


def test_endpoint_may_have_a_path() -> None:
    app = Canned(OK)
    with session_to("http://localhost/gate/", make_adapter=lambda: WsgiAdapter(app)) as session:
        session.call("GET", "/v2/p/x")
    assert app.environs[0]["PATH_INFO"] == "/gate/v2/p/x"


def test_netrc_adds_no_header_and_cookies_are_not_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / ".netrc").write_text("machine 127.0.0.1 login me password letmein\n")
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("NETRC", str(tmp_path / ".netrc"))
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:1")
    app = Canned((200, "{}", {"Set-Cookie": "session=1; Path=/"}))
    with running(app) as url, session_to(url) as session:
        for _ in range(2):
            session.call("GET", "/x")
    assert not {"HTTP_AUTHORIZATION", "HTTP_COOKIE"} & {name for one in app.environs for name in one}


def test_listener_is_called_for_each_request() -> None:
    calls: list[tuple[str, str, int | None]] = []
    session = a_session((503, ""), OK, listener=lambda m, p, s, seconds: calls.append((m, p, s)))
    assert session.call("GET", "/x", query={"a": 1}, repeat=RetryPolicy.SAFE).requests == 2
    assert calls == [("GET", "/x", 503), ("GET", "/x", 200)]


# ── responses ──────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
def test_redirect_is_never_followed(status: int) -> None:
    app = Canned((status, "", {"Location": "http://elsewhere.invalid/\x1b[2J"}))
    with running(app) as url, session_to(url, StaticToken(TOKEN, "T")) as session:
        with pytest.raises(UnreadableAnswer, match=r"elsewhere\.invalid") as failure:
            session.call("GET", "/x", repeat=RetryPolicy.SAFE)
        assert "\x1b" not in str(failure.value)
    assert len(app.environs) == 1


def test_non_json_answer_is_unreadable() -> None:
    with pytest.raises(UnreadableAnswer, match="request r1"):
        a_session((200, "<html>login</html>", {"X-Request-Id": "r1"})).call("GET", "/x").json()


@pytest.mark.parametrize("text", ["[" * 100_000, "1" * 5000, "", "\ufeff{}", '{"a": \ud800'])
def test_json_that_breaks_the_parser_is_unreadable(text: str) -> None:
    answer = a_session((200, text.encode("utf-8", "surrogatepass"))).call("GET", "/x")
    try:
        body = answer.json()
    except UnreadableAnswer:
        return
    # Only the containing value is affected.
    assert body in ({}, {"a": "\ud800"}) or math.isnan(body)


@pytest.mark.parametrize("packed", [gzip.compress(b'{"a": 1}'), b"not gzip"], ids=["gzip", "other"])
def test_compressed_answer_is_read_or_unreadable(packed: bytes) -> None:
    app = Canned((200, packed, {"Content-Encoding": "gzip"}))
    with running(app) as url, session_to(url) as session:
        if packed == b"not gzip":
            with pytest.raises(UnreadableAnswer):
                session.call("GET", "/x")
        else:
            assert session.call("GET", "/x").json() == {"a": 1}


@pytest.mark.parametrize("behind_s", [None, 0, -600, 600])
def test_retry_after_date_counts_by_the_clock_of_the_service(behind_s: float | None) -> None:
    headers = {"Retry-After": "Thu, 06 Aug 2026 07:07:10 GMT"}
    if behind_s is not None:
        headers["Date"] = "Thu, 06 Aug 2026 07:06:40 GMT"
    with pytest.raises(Throttled) as failure:
        a_session((429, "", headers), clock=StoppedClock(1_786_000_000 - (behind_s or 0))).call("GET", "/x")
    assert failure.value.retry_after_s == 30.0


@pytest.mark.parametrize(
    ("retry_after", "message"),
    [
        ("90", "; the service asks to retry after 90 s"),
        ("7", "; the service asks to retry after 7 s"),
        ("0", ""),
        (None, ""),
    ],
)
def test_throttled_error_has_the_retry_after_of_the_service(retry_after: str | None, message: str) -> None:
    headers = {"Retry-After": retry_after} if retry_after else {}
    with pytest.raises(Throttled) as failure:
        a_session((429, '{"error_code": "APIGW.0308", "error_msg": "Too many."}', headers)).call("POST", "/x")
    assert failure.value.message == f"Too many.{message}"


# ── which connections are used ─────────────────────────────────────────────────────────────────────


def test_connection_is_reused_by_other_threads() -> None:
    app = Canned(OK)
    with running(app) as url, session_to(url) as session:
        for _ in range(3):
            with ThreadPoolExecutor(1) as pool:
                pool.submit(session.call, "GET", "/x").result()
    assert len({environ["REMOTE_PORT"] for environ in app.environs}) == 1


def test_transport_is_used_by_one_thread_at_a_time() -> None:
    at_work, together = set(), threading.Barrier(4, timeout=5)
    made: list[WsgiAdapter] = []

    class Alone(WsgiAdapter):
        def __init__(self) -> None:
            super().__init__(Canned(OK))
            made.append(self)

        def send(self, *args: Any, **options: Any) -> requests.Response:
            assert self not in at_work
            at_work.add(self)
            together.wait()
            at_work.remove(self)
            return super().send(*args, **options)

    session = session_to("http://localhost", make_adapter=Alone)
    with ThreadPoolExecutor(4) as pool:
        for _ in range(3):
            assert [a.status for a in pool.map(lambda _: session.call("GET", "/x"), range(4))] == [200] * 4
    assert len(made) == 4


# ── where requests go ──────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("scheme", ["http", "https"])
def test_proxy_receives_its_own_password_and_over_https_no_token(scheme: str) -> None:
    heard: list[bytes] = []

    def serve(connection: socket.socket) -> None:
        heard.append(connection.recv(65536))
        connection.sendall(b"HTTP/1.1 407 Who?\r\nContent-Length: 0\r\n\r\n")

    with a_socket(serve) as url:
        network = Network(proxies={scheme: url.replace("//", "//me:p%40ss@")})
        token = StaticToken(TOKEN, "T")
        with (
            session_to(f"{scheme}://far.example", token, network=network) as session,
            pytest.raises(ServiceError),
        ):
            session.call("GET", "/x")
    assert b"Proxy-Authorization: Basic bWU6cEBzcw==" in heard[0]
    assert (TOKEN.encode() in heard[0]) == (scheme == "http"), "plain http takes `insecure: true`"


@pytest.mark.parametrize("name", ["HTTP_PROXY", "http_proxy", "ALL_PROXY"])
def test_proxy_of_the_environment_is_used(name: str) -> None:
    heard: list[bytes] = []

    def proxy(connection: socket.socket) -> None:
        heard.append(a_request(connection))
        connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s" % (len(EMPTY_PAGE), EMPTY_PAGE))

    with a_socket(proxy) as url, connected("http://far.example", {name: url}, insecure=True) as backend:
        assert backend.observe().problem is None
    assert heard[0].startswith(b"POST http://far.example/v2/")


# ── broken connections ─────────────────────────────────────────────────────────────────────────────


def respond_after_a_request(answer: bytes) -> Callable[[socket.socket], None]:
    def serve(connection: socket.socket) -> None:
        connection.recv(65536)
        connection.sendall(answer)

    return serve


NO_HTTP = respond_after_a_request(b"SSH-2.0-OpenSSH_9.9\r\n")


def _silent(connection: socket.socket) -> None:
    while connection.recv(65536):  # until the client disconnects
        pass


@pytest.mark.parametrize(
    "serve",
    [
        respond_after_a_request(b""),
        respond_after_a_request(b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n{"),
        NO_HTTP,
        _silent,
    ],
    ids=["reset", "half an answer", "no HTTP", "timeout"],
)
def test_connection_broken_after_sending_is_unanswered(serve: Callable[[socket.socket], None]) -> None:
    network = Network(read_timeout_s=0.05 if serve is _silent else 10)
    with a_socket(serve) as url, session_to(url, network=network) as session:
        with pytest.raises(Unanswered) as failure:
            session.call("POST", "/x", body={})
        assert not isinstance(failure.value, Unreachable)
        assert serve is not _silent or "timed out" in failure.value.message
        session.close()


def test_exception_in_the_wsgi_application_is_a_lost_answer() -> None:
    def broken(environ: Mapping[str, Any], start_response: object) -> list[bytes]:
        raise RuntimeError("boom")

    with pytest.raises(Unanswered, match="boom") as failure:
        a_session(broken).call("POST", "/x", body={})
    assert not isinstance(failure.value, Unreachable)


@pytest.mark.parametrize(
    ("proxies", "function", "error", "words"),
    [
        (
            {},
            "getaddrinfo",
            socket.gaierror(socket.EAI_NONAME, "Name or service not known"),
            "https://x.example: [Errno -2] Name or service not known",
        ),
        (
            {"https": "http://127.0.0.1:1"},
            "create_connection",
            ConnectionRefusedError(111, "Connection refused"),
            "https://x.example: the proxy: [Errno 111] Connection refused",
        ),
        (
            {},
            "create_connection",
            TimeoutError("timed out"),
            "https://x.example: Connection to x.example timed out. (connect timeout=10.0)",
        ),
    ],
)
def test_unreachable_service_is_explained_without_library_internals(
    monkeypatch: pytest.MonkeyPatch, proxies: dict[str, str], function: str, error: OSError, words: str
) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise error

    monkeypatch.setattr(socket if function == "getaddrinfo" else urllib3.util.connection, function, refuse)
    session = session_to("https://x.example", network=Network(proxies=proxies))
    with pytest.raises(Unreachable) as failure:
        session.call("GET", "/x")
    assert failure.value.message == words


@pytest.mark.parametrize(
    ("endpoint", "network"),
    [
        ("https://modelarts.example", Network(ca_bundle="/no/such/bundle.pem")),
        ("https://modelarts.example", Network(proxies={"https": "http://127.0.0.1:1"})),
        ("https://modelarts.example", Network(proxies={"https": "http://"})),
    ],
    ids=["no CA bundle", "no proxy", "no proxy URL"],
)
def test_request_that_cannot_have_been_sent_is_unreachable(endpoint: str, network: Network) -> None:
    with session_to(endpoint, network=network) as session, pytest.raises(Unreachable) as failure:
        session.call("POST", "/x", body={})
    assert failure.value.diagnostics[0].fix


def test_plain_http_answer_to_tls_is_unanswered() -> None:
    with a_socket(NO_HTTP) as url, session_to(url.replace("http:", "https:")) as session:
        with pytest.raises(Unanswered):
            session.call("POST", "/x", body={})
        session.close()


# ── retries ────────────────────────────────────────────────────────────────────────────────────────


def test_retry_delays_double_and_half_of_each_is_random() -> None:
    clock = StoppedClock()
    with pytest.raises(ServerError):
        a_session((503, ""), clock=clock).call("GET", "/x", repeat=RetryPolicy.SAFE)
    assert clock.slept == [0.5, 1.0, 2.0, 4.0]
    failure = ServerError("x", status=503)
    assert retry_wait_s(failure, 1, RetryPolicy.SAFE, lambda: 0.0) == 0.25
    chance = SessionOptions().chance
    assert len({chance() for _ in range(5)}) == 5, "no two clients come back at the same time"


@pytest.mark.parametrize(
    ("status", "repeat", "requests"),
    [
        (503, RetryPolicy.SAFE, 5),
        (408, RetryPolicy.SAFE, 5),
        (501, RetryPolicy.SAFE, 1),
        (400, RetryPolicy.SAFE, 1),
        (409, RetryPolicy.SAFE, 1),
        (401, RetryPolicy.SAFE, 1),
        (429, RetryPolicy.SAFE, 5),
        (429, RetryPolicy.WITHOUT_EFFECT, 5),
        (503, RetryPolicy.WITHOUT_EFFECT, 1),
        (503, RetryPolicy.NEVER, 1),
        (429, RetryPolicy.NEVER, 1),
    ],
)
def test_status_and_retry_policy_decide_the_number_of_requests(
    status: int, repeat: RetryPolicy, requests: int
) -> None:
    app = Canned((status, ""))
    with pytest.raises(ServiceError):
        a_session(app).call("POST", "/x", repeat=repeat)
    assert len(app.environs) == requests


def test_unreachable_service_is_retried_twice_only() -> None:
    clock = StoppedClock()
    with closed_port() as url, session_to(url, clock=clock) as session, pytest.raises(Unreachable):
        session.call("GET", "/x", repeat=RetryPolicy.SAFE)
    assert clock.slept == [0.5, 1.0]


@pytest.mark.parametrize("status", [429, 503])
@pytest.mark.parametrize(("retry_after", "slept"), [("7", [7.0]), ("0", [0.5]), ("3600", [])])
def test_retry_after_is_honoured_up_to_a_limit(retry_after: str, slept: list[float], status: int) -> None:
    clock = StoppedClock()
    session = a_session((status, "", {"Retry-After": retry_after}), OK, clock=clock)
    if slept:
        session.call("GET", "/x", repeat=RetryPolicy.SAFE)
    else:
        with pytest.raises(Throttled if status == 429 else ServerError):
            session.call("GET", "/x", repeat=RetryPolicy.SAFE)
    assert clock.slept == slept
