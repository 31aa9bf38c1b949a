"""HTTP: what is sent, what an answer means, and what a broken connection means."""

from __future__ import annotations

import gzip
import json
import logging
import math
import os
import socket
import threading
import traceback
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
import requests
import urllib3

from reconciler.emulator.server import running
from reconciler.errors import (
    Rejected,
    ServerError,
    ServiceError,
    Throttled,
    Unanswered,
    Unauthorized,
    Unreachable,
    UnreadableAnswer,
)
from reconciler.modelarts.auth import Anonymous, StaticToken
from reconciler.modelarts.clock import Backoff, RateLimiter, RetryPolicy
from reconciler.modelarts.http import Network, ServiceSession, SessionOptions, WsgiAdapter
from tests.modelarts.building import TOKEN, StoppedClock
from tests.modelarts.serving import Canned, a_socket, nobody

JSON_OK = (200, "{}")


def a_session(app: Canned, **options: Any) -> ServiceSession:
    options.setdefault("clock", StoppedClock())
    credentials = options.pop("credentials", StaticToken(TOKEN, "TEST"))
    return ServiceSession(
        "http://localhost",
        credentials,
        SessionOptions(make_adapter=lambda: WsgiAdapter(app), chance=lambda: 1.0, **options),
    )


# ── what is sent ───────────────────────────────────────────────────────────────────────────────────


def test_request_has_json_body_sorted_query_and_token() -> None:
    app = Canned(JSON_OK)
    a_session(app).call("POST", "/v2/p/x", body={"name": "ä"}, query={"b": "a b~c", "a": 1, "none": None})
    (environ,) = app.environs
    assert environ["wsgi.input"].getvalue() == '{"name":"ä"}'.encode()
    assert environ["CONTENT_TYPE"] == "application/json;charset=UTF-8"
    assert environ["QUERY_STRING"] == "a=1&b=a%20b~c"
    assert environ["HTTP_X_AUTH_TOKEN"] == TOKEN
    assert environ["HTTP_X_LANGUAGE"] == "en-us"


@pytest.mark.parametrize("method", ["GET", "DELETE"])
def test_request_without_a_body_has_no_content_type(method: str) -> None:
    app = Canned(JSON_OK)
    a_session(app).call(method, "/v2/p/x")
    assert app.environs[0]["CONTENT_TYPE"] == ""


def test_endpoint_may_have_a_path() -> None:
    app = Canned(JSON_OK)
    with ServiceSession(
        "http://localhost/gate/", Anonymous(), SessionOptions(make_adapter=lambda: WsgiAdapter(app))
    ) as session:
        session.call("GET", "/v2/p/x")
    assert app.environs[0]["PATH_INFO"] == "/gate/v2/p/x"


def test_netrc_adds_no_header(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / ".netrc").write_text("machine 127.0.0.1 login me password letmein\n")
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("NETRC", str(tmp_path / ".netrc"))
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:1")
    app = Canned(JSON_OK)
    with running(app) as url, ServiceSession(url, Anonymous()) as session:
        session.call("GET", "/x")
    assert "HTTP_AUTHORIZATION" not in app.environs[0]


def test_listener_is_called_for_each_request() -> None:
    told: list[tuple[str, str, int | None]] = []
    session = a_session(Canned((503, ""), JSON_OK), listener=lambda m, p, s, seconds: told.append((m, p, s)))
    session.call("GET", "/x", query={"a": 1}, repeat=RetryPolicy.SAFE)
    assert told == [("GET", "/x", 503), ("GET", "/x", 200)]


# ── what an answer means ───────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
def test_redirect_is_never_followed(status: int) -> None:
    app = Canned((status, "", {"Location": "http://elsewhere.invalid/\x1b[2J"}))
    with (
        running(app) as url,
        ServiceSession(url, StaticToken(TOKEN, "T"), SessionOptions(clock=StoppedClock())) as session,
    ):
        with pytest.raises(UnreadableAnswer, match=r"elsewhere\.invalid") as failure:
            session.call("GET", "/x", repeat=RetryPolicy.SAFE)
        assert "\x1b" not in str(failure.value)
    assert len(app.environs) == 1


def test_non_json_answer_is_unreadable() -> None:
    answer = a_session(Canned((200, "<html>login</html>", {"X-Request-Id": "r1"}))).call("GET", "/x")
    with pytest.raises(UnreadableAnswer, match="request r1"):
        answer.json()


@pytest.mark.parametrize("text", ["[" * 100_000, "1" * 5000, "", "\ufeff{}", '{"a": \ud800'])
def test_json_that_breaks_the_parser_is_unreadable(text: str) -> None:
    content = text.encode("utf-8", "surrogatepass")
    answer = a_session(Canned((200, content))).call("GET", "/x")
    try:
        told = answer.json()
    except UnreadableAnswer:
        return
    # What can be read of it spoils the one value that holds it.
    assert told in ({}, {"a": "\ud800"}) or math.isnan(told)


def test_compressed_answer_is_read() -> None:
    app = Canned((200, gzip.compress(b'{"a": 1}'), {"Content-Encoding": "gzip"}))
    with running(app) as url, ServiceSession(url, Anonymous()) as session:
        assert session.call("GET", "/x").json() == {"a": 1}


def test_answer_with_wrong_content_encoding_is_unreadable() -> None:
    app = Canned((200, b"not gzip", {"Content-Encoding": "gzip"}))
    with running(app) as url, ServiceSession(url, Anonymous()) as session, pytest.raises(UnreadableAnswer):
        session.call("GET", "/x")


def test_retry_after_date_is_converted_to_seconds() -> None:
    clock = StoppedClock(1_786_000_000)
    app = Canned((429, "", {"Retry-After": "Thu, 06 Aug 2026 07:07:10 GMT"}))
    with pytest.raises(Throttled) as failure:
        a_session(app, clock=clock).call("GET", "/x")
    assert failure.value.retry_after_s == 30.0


@pytest.mark.parametrize("behind_s", [-600, 600])
def test_retry_after_date_counts_by_the_clock_of_the_service(behind_s: float) -> None:
    headers = {"Date": "Thu, 06 Aug 2026 07:06:40 GMT", "Retry-After": "Thu, 06 Aug 2026 07:07:10 GMT"}
    with pytest.raises(Throttled) as failure:
        a_session(Canned((429, "", headers)), clock=StoppedClock(1_786_000_000 - behind_s)).call("GET", "/x")
    assert failure.value.retry_after_s == 30.0


# ── which connections are used ─────────────────────────────────────────────────────────────────────


def test_connection_is_reused_by_other_threads() -> None:
    app = Canned(JSON_OK)
    with running(app) as url, ServiceSession(url, Anonymous()) as session:
        for _ in range(3):
            with ThreadPoolExecutor(1) as pool:
                pool.submit(session.call, "GET", "/x").result()
    assert len({environ["REMOTE_PORT"] for environ in app.environs}) == 1


def test_transport_is_used_by_one_thread_at_a_time() -> None:
    at_work, together = set(), threading.Barrier(4, timeout=5)

    class Alone(WsgiAdapter):
        def send(self, *args: Any, **options: Any) -> requests.Response:
            assert self not in at_work
            at_work.add(self)
            together.wait()
            at_work.remove(self)
            return super().send(*args, **options)

    made = []

    def make() -> Alone:
        made.append(Alone(Canned(JSON_OK)))
        return made[-1]

    session = ServiceSession("http://localhost", Anonymous(), SessionOptions(make_adapter=make))
    with ThreadPoolExecutor(4) as pool:
        for _ in range(3):
            assert [a.status for a in pool.map(lambda _: session.call("GET", "/x"), range(4))] == [200] * 4
    assert len(made) == 4


def test_cookies_are_not_kept() -> None:
    app = Canned((200, "{}", {"Set-Cookie": "session=1; Path=/"}))
    with running(app) as url, ServiceSession(url, Anonymous()) as session:
        for _ in range(2):
            session.call("GET", "/x")
    assert "HTTP_COOKIE" not in app.environs[1]


@pytest.mark.parametrize("scheme", ["http", "https"])
def test_proxy_receives_its_own_password_and_over_https_no_token(scheme: str) -> None:
    heard: list[bytes] = []

    def serve(connection: socket.socket) -> None:
        heard.append(connection.recv(65536))
        connection.sendall(b"HTTP/1.1 407 Who?\r\nContent-Length: 0\r\n\r\n")

    with a_socket(serve) as url:
        network = Network(proxies={scheme: url.replace("//", "//me:p%40ss@")})
        with (
            ServiceSession(
                f"{scheme}://far.example", StaticToken(TOKEN, "T"), SessionOptions(network=network)
            ) as session,
            pytest.raises(ServiceError),
        ):
            session.call("GET", "/x")
    assert b"Proxy-Authorization: Basic bWU6cEBzcw==" in heard[0]
    assert (TOKEN.encode() in heard[0]) == (scheme == "http"), "plain http takes `insecure: true`"


# ── what a broken connection means ─────────────────────────────────────────────────────────────────


def _reset(connection: socket.socket) -> None:
    connection.recv(65536)


def _half_an_answer(connection: socket.socket) -> None:
    connection.recv(65536)
    connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n{")


def _no_http(connection: socket.socket) -> None:
    connection.recv(65536)
    connection.sendall(b"SSH-2.0-OpenSSH_9.9\r\n")


@pytest.mark.parametrize("serve", [_reset, _half_an_answer, _no_http])
def test_connection_broken_after_sending_is_unanswered(serve: Callable[[socket.socket], None]) -> None:
    with a_socket(serve) as url, ServiceSession(url, Anonymous()) as session:
        with pytest.raises(Unanswered) as failure:
            session.call("POST", "/x", body={})
        assert not isinstance(failure.value, Unreachable)


def test_answer_after_the_timeout_is_unanswered() -> None:
    def wait(connection: socket.socket) -> None:
        while connection.recv(65536):  # until the client goes
            pass

    with (
        a_socket(wait) as url,
        ServiceSession(url, Anonymous(), SessionOptions(network=Network(read_timeout_s=0.05))) as session,
    ):
        with pytest.raises(Unanswered, match="timed out") as failure:
            session.call("POST", "/x", body={})
        assert not isinstance(failure.value, Unreachable)
        session.close()


def test_refused_connection_is_unreachable() -> None:
    with nobody() as url, ServiceSession(url, Anonymous()) as session, pytest.raises(Unreachable):
        session.call("POST", "/x", body={})


def refusing(error: OSError) -> Callable[..., None]:
    def refuse(*_: object, **__: object) -> None:
        raise error

    return refuse


NO_NAME = socket.gaierror(socket.EAI_NONAME, "Name or service not known")


@pytest.mark.parametrize(
    ("proxies", "function", "error", "words"),
    [
        ({}, "getaddrinfo", NO_NAME, "https://x.example: [Errno -2] Name or service not known"),
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
    place = socket if function == "getaddrinfo" else urllib3.util.connection
    monkeypatch.setattr(place, function, refusing(error))
    network = Network(proxies=proxies)
    with ServiceSession(
        "https://x.example", Anonymous(), SessionOptions(network=network, clock=StoppedClock())
    ) as session:
        with pytest.raises(Unreachable) as failure:
            session.call("GET", "/x")
        assert failure.value.message == words


@pytest.mark.parametrize(
    ("endpoint", "network"),
    [
        ("https://does-not-exist.invalid", Network()),
        ("https://modelarts.example", Network(ca_bundle="/no/such/bundle.pem")),
        ("https://modelarts.example", Network(proxies={"https": "http://127.0.0.1:1"})),
        ("https://modelarts.example", Network(proxies={"https": "http://"})),
    ],
    ids=["no such host", "no CA bundle", "no proxy", "no proxy URL"],
)
def test_request_that_cannot_have_been_sent_is_unreachable(endpoint: str, network: Network) -> None:
    with (
        ServiceSession(endpoint, Anonymous(), SessionOptions(network=network)) as session,
        pytest.raises(Unreachable) as failure,
    ):
        session.call("POST", "/x", body={})
    assert failure.value.diagnostics[0].fix


def test_plain_http_answer_to_tls_is_unreachable() -> None:
    with a_socket(_no_http) as url, ServiceSession(url.replace("http:", "https:"), Anonymous()) as session:
        with pytest.raises(Unreachable):
            session.call("POST", "/x", body={})
        session.close()


def test_exception_in_the_wsgi_application_is_a_lost_answer() -> None:
    def broken(environ: Mapping[str, Any], start_response: object) -> list[bytes]:
        raise RuntimeError("boom")

    with ServiceSession(
        "http://localhost", Anonymous(), SessionOptions(make_adapter=lambda: WsgiAdapter(broken))
    ) as session:
        with pytest.raises(Unanswered, match="boom") as failure:
            session.call("POST", "/x", body={})
        assert not isinstance(failure.value, Unreachable)


# ── what is sent again ─────────────────────────────────────────────────────────────────────────────


def test_retry_delays_double_with_jitter() -> None:
    clock = StoppedClock()
    with pytest.raises(ServerError):
        a_session(Canned((503, "")), clock=clock).call("GET", "/x", repeat=RetryPolicy.SAFE)
    assert clock.slept == [0.5, 1.0, 2.0, 4.0]
    failure = ServerError("x", status=503)
    assert Backoff().wait_s(failure, 1, RetryPolicy.SAFE, lambda: 0.0) == 0.25


def test_answer_has_the_number_of_its_requests() -> None:
    answer = a_session(Canned((503, ""), (502, ""), JSON_OK)).call("GET", "/x", repeat=RetryPolicy.SAFE)
    assert answer.requests == 3


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
    with (
        nobody() as url,
        ServiceSession(url, Anonymous(), SessionOptions(clock=clock, chance=lambda: 1.0)) as session,
        pytest.raises(Unreachable),
    ):
        session.call("GET", "/x", repeat=RetryPolicy.SAFE)
    assert clock.slept == [0.5, 1.0]


@pytest.mark.parametrize("status", [429, 503])
@pytest.mark.parametrize(("retry_after", "slept"), [("7", [7.0]), ("0", [0.5]), ("3600", [])])
def test_retry_after_is_honoured_up_to_a_limit(retry_after: str, slept: list[float], status: int) -> None:
    clock = StoppedClock()
    session = a_session(Canned((status, "", {"Retry-After": retry_after}), JSON_OK), clock=clock)
    if slept:
        session.call("GET", "/x", repeat=RetryPolicy.SAFE)
    else:
        with pytest.raises(Throttled if status == 429 else ServerError):
            session.call("GET", "/x", repeat=RetryPolicy.SAFE)
    assert clock.slept == slept


@pytest.mark.parametrize(
    ("retry_after", "said"),
    [
        ("90", "; the service asks to retry after 90 s"),
        ("7", "; the service asks to retry after 7 s"),
        ("0", ""),
        (None, ""),
    ],
)
def test_throttled_error_has_the_retry_after_of_the_service(retry_after: str | None, said: str) -> None:
    headers = {"Retry-After": retry_after} if retry_after else {}
    busy = a_session(Canned((429, '{"error_code": "APIGW.0308", "error_msg": "Too many."}', headers)))
    with pytest.raises(Throttled) as failure:
        busy.call("POST", "/x")
    assert failure.value.message == f"Too many.{said}"


def test_rate_limiter_spreads_requests_after_a_burst() -> None:
    clock = StoppedClock()
    session = a_session(Canned(JSON_OK), clock=clock, limiter=RateLimiter(per_second=10, burst=5))
    for _ in range(25):
        session.call("GET", "/x")
    assert sum(clock.slept) == pytest.approx(2.0, abs=0.11)


def test_throttling_holds_back_every_thread() -> None:
    limiter, clock = RateLimiter(), StoppedClock()
    busy = a_session(Canned((429, "", {"Retry-After": "9"})), clock=clock, limiter=limiter)
    with pytest.raises(Throttled):
        busy.call("POST", "/x")
    assert limiter.reserve(clock.now()) == pytest.approx(9.0)
    assert limiter.reserve(clock.now() + 10) == 0.0


def test_clock_set_back_does_not_block_the_rate_limiter() -> None:
    limiter = RateLimiter()
    limiter.reserve(2_000_000_000.0)
    assert limiter.reserve(1_000_000_000.0) == 0.0


# ── what must not be seen ──────────────────────────────────────────────────────────────────────────


def test_token_echoed_by_the_service_is_redacted(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    body = json.dumps({"error_code": "APIG.0301", "error_msg": f"bad {TOKEN}", "error_solution": TOKEN})
    with pytest.raises(Unauthorized) as failure:
        a_session(Canned((401, body, {"X-Request-Id": TOKEN}))).call("GET", "/x")
    assert TOKEN not in "".join(traceback.format_exception(failure.value))
    assert TOKEN not in repr(failure.value.diagnostics)
    assert TOKEN not in caplog.text


def test_proxy_password_is_redacted() -> None:
    network = Network(proxies={"https": "http://me:Pr0xyPassw0rd@127.0.0.1:1"})
    with ServiceSession("https://modelarts.example", Anonymous(), SessionOptions(network=network)) as session:
        assert "Pr0xyPassw0rd" in session.secrets()
        with pytest.raises(Unreachable) as failure:
            session.call("GET", "/x")
    assert "Pr0xyPassw0rd" not in "".join(traceback.format_exception(failure.value))


def test_terminal_escapes_of_the_service_are_made_printable() -> None:
    with pytest.raises(Rejected) as failure:
        a_session(Canned((400, '{"error_msg": "\\u001b]0;pwned\\u0007\\u202e", "error_code": "X"}'))).call(
            "GET", "/"
        )
    assert str(failure.value).isprintable()
    assert os.linesep not in str(failure.value)
