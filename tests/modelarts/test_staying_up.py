"""Slow networks, throttling, proxies: a test for each promise; `test_session` has the finer points."""

from __future__ import annotations

import shutil
import socket
import ssl
import subprocess
import threading
from pathlib import Path
from typing import Any

import pytest
import requests

from reconciler.core.stack import Target
from reconciler.emulator import Application, Effect, Fault, running
from reconciler.errors import ManifestInvalid, Unanswered, Unreachable, UnreadableAnswer
from reconciler.modelarts.auth import Anonymous
from reconciler.modelarts.backend import ModelArtsBackend
from reconciler.modelarts.clock import RateLimiter
from reconciler.modelarts.connect import PROCESS_LIMITER, connect, connect_inprocess
from reconciler.modelarts.http import (
    CONNECT_TIMEOUT_S,
    READ_TIMEOUT_S,
    Network,
    ServiceSession,
    SessionOptions,
    WsgiAdapter,
)
from tests.modelarts.building import ACCESS_KEY, PROJECT, SECRET_KEY, TOKEN, StoppedClock, a_body
from tests.modelarts.serving import Canned, a_request, a_socket

KEYS = {"HUAWEICLOUD_SDK_AK": ACCESS_KEY, "HUAWEICLOUD_SDK_SK": SECRET_KEY}
EMPTY_PAGE = b'{"items": [], "total": 0}'


def connected(
    url: str, environ: dict[str, str] | None = None, limiter: RateLimiter | None = None, **said: Any
) -> ModelArtsBackend:
    target = Target.model_validate({"kind": "modelarts", "endpoint": url, "project_id": PROJECT, **said})
    options = SessionOptions(clock=StoppedClock(), limiter=limiter)
    return connect(target, {"MODELARTS_AUTH_TOKEN": TOKEN, **(environ or {})}, options)


# ── limits and repetition ──────────────────────────────────────────────────────────────────────────


def test_connecting_and_reading_have_time_limits() -> None:
    limits: list[Any] = []

    class Telling(WsgiAdapter):
        def send(self, *args: Any, **options: Any) -> requests.Response:
            limits.append(options["timeout"])
            return super().send(*args, **options)

    app = Canned((200, "{}"))
    with ServiceSession(
        "http://localhost", Anonymous(), SessionOptions(make_adapter=lambda: Telling(app))
    ) as session:
        session.call("GET", "/x")
    assert limits == [(CONNECT_TIMEOUT_S, READ_TIMEOUT_S)] == [(10.0, 60.0)]


def test_retry_delays_double_and_half_of_each_is_random(emulator: Application) -> None:
    waits = set()
    for _ in range(5):
        emulator.faults.add(Fault(Effect.ANSWER, count=3, status=503, code="ModelArts.4302"))
        clock = StoppedClock()
        with connect_inprocess(emulator, project_id=PROJECT, options=SessionOptions(clock=clock)) as backend:
            assert backend.observe().problem is None
        assert [0.25 <= clock.slept[0] <= 0.5, 0.5 <= clock.slept[1] <= 1, 1 <= clock.slept[2] <= 2] == [
            True
        ] * 3
        waits.add(tuple(clock.slept))
    assert len(waits) == 5, "no two clients come back at the same time"


def test_create_with_a_lost_answer_is_posted_once(emulator: Application, local: ModelArtsBackend) -> None:
    emulator.faults.add(Fault(Effect.LOST_AFTER, operation="CreateTrainingJob"))
    with pytest.raises(Unanswered):
        local.create(a_body())
    assert [served.operation for served in emulator.requests] == ["CreateTrainingJob"]


# ── one rate limiter per process ───────────────────────────────────────────────────────────────────


def test_all_targets_of_a_process_share_one_rate_limiter() -> None:
    there = [connected(f"https://{host}.example") for host in ("one", "two")]
    assert {id(backend.session._limiter) for backend in there} == {id(PROCESS_LIMITER)}
    assert connected("http://127.0.0.1:1").session._limiter is None, "an emulator is not held back"


def test_target_takes_the_rate_limiter_that_it_is_given() -> None:
    own = RateLimiter(per_second=1)
    there = connected("https://one.example", limiter=own)
    assert there.session._limiter is own
    assert connected("http://127.0.0.1:1", limiter=own).session._limiter is None


def test_default_rate_is_well_below_200_requests_a_second() -> None:
    limiter = RateLimiter()
    sent_at = [limiter.reserve(1_000_000.0) for _ in range(1000)]
    busiest = max(sum(begin <= at < begin + 1 for at in sent_at) for begin in sent_at)
    assert busiest <= 151
    assert sent_at[-1] == pytest.approx(9.5, abs=0.1), "100 a second in the long run"


# ── where requests go, and with what ───────────────────────────────────────────────────────────────


@pytest.mark.parametrize("environ", [{}, KEYS], ids=["token", "access key"])
def test_redirect_does_not_forward_credentials(environ: dict[str, str]) -> None:
    elsewhere = Canned((200, EMPTY_PAGE))
    with (
        running(elsewhere) as other,
        running(Canned((307, "", {"Location": f"{other}/x"}))) as url,
        connected(url, environ) as backend,
    ):
        assert "redirect" in (backend.observe().problem or "").lower()
        with pytest.raises(UnreadableAnswer):
            backend.details("id")
    assert elsewhere.environs == []


@pytest.mark.parametrize("name", ["HTTP_PROXY", "http_proxy", "ALL_PROXY"])
def test_proxy_of_the_environment_is_used(name: str) -> None:
    heard: list[bytes] = []

    def proxy(connection: socket.socket) -> None:
        heard.append(a_request(connection))
        connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s" % (len(EMPTY_PAGE), EMPTY_PAGE))

    with a_socket(proxy) as url, connected("http://far.example", {name: url}, insecure=True) as backend:
        assert backend.observe().problem is None
    assert heard[0].startswith(b"POST http://far.example/v2/")


def test_https_proxy_receives_no_credentials() -> None:
    heard: list[bytes] = []

    def proxy(connection: socket.socket) -> None:
        heard.append(connection.recv(65536))
        connection.sendall(b"HTTP/1.1 403 Forbidden\r\nContent-Length: 0\r\n\r\n")

    with a_socket(proxy) as url, connected("https://far.example", {"HTTPS_PROXY": url}) as backend:
        assert backend.observe().problem
        with pytest.raises(Unreachable):
            backend.create(a_body())
    assert all(said.startswith(b"CONNECT far.example:443") for said in heard)
    assert not any(TOKEN.encode() in said for said in heard)


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """A certificate of 127.0.0.1 that nobody knows, and its key."""
    if not (openssl := shutil.which("openssl")):
        pytest.skip("no openssl to make a certificate with")
    directory = tmp_path_factory.mktemp("tls")
    certificate, key = directory / "cert.pem", directory / "key.pem"
    asked = "req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 2 -subj /CN=test"
    files = ["-keyout", str(key), "-out", str(certificate), "-addext", "subjectAltName=IP:127.0.0.1"]
    subprocess.run([openssl, *asked.split(), *files], check=True, capture_output=True)
    return certificate, key


@pytest.mark.parametrize("name", ["REQUESTS_CA_BUNDLE", "SSL_CERT_FILE", None])
def test_ca_bundle_of_the_environment_is_used(certificate: tuple[Path, Path], name: str | None) -> None:
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    server.load_cert_chain(*certificate)
    heard: list[bytes] = []

    def serve(connection: socket.socket) -> None:
        try:
            with server.wrap_socket(connection, server_side=True) as secured:
                heard.append(a_request(secured))
                secured.sendall(
                    b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s" % (len(EMPTY_PAGE), EMPTY_PAGE)
                )
        except OSError:
            pass  # the client does not trust us

    environ = {name: str(certificate[0])} if name else {}
    with a_socket(serve) as url, connected(url.replace("http:", "https:"), environ) as backend:
        if name:
            assert backend.observe().problem is None
            assert TOKEN.encode() in heard[0]
            return
        with pytest.raises(Unreachable) as refusal:
            backend.create(a_body())
        assert "REQUESTS_CA_BUNDLE" in (refusal.value.diagnostics[0].fix or "")
    assert heard == [], "nothing is said to a server that we do not know"


def test_slowly_dripping_tls_answer_is_given_up(certificate: tuple[Path, Path]) -> None:
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    server.load_cert_chain(*certificate)
    pause = threading.Event()

    def drip(connection: socket.socket) -> None:
        try:
            with server.wrap_socket(connection, server_side=True) as secured:
                secured.recv(65536)
                secured.sendall(b"HTTP/1.1 200 OK\r\nX-Request-Id: ")
                while not pause.wait(0.01):
                    secured.sendall(b"r")
        except OSError:
            pass  # the client has gone

    network = Network(ca_bundle=str(certificate[0]), answer_timeout_s=0.3)
    with (
        a_socket(drip) as url,
        ServiceSession(
            url.replace("http:", "https:"), Anonymous(), SessionOptions(network=network)
        ) as session,
        pytest.raises(Unanswered, match=r"was not complete after 0\.3 s"),
    ):
        session.call("POST", "/x", body={})


@pytest.mark.parametrize(
    ("endpoint", "said", "is_fine"),
    [
        ("http://127.0.0.1:8080", {}, True),
        ("http://[::1]:8080", {}, True),
        ("http://localhost:8080", {}, True),
        ("http://10.0.0.1", {}, False),
        ("http://10.0.0.1", {"insecure": True}, True),
        ("http://modelarts.example", {}, False),
        ("http://127.0.0.1.example", {}, False),
    ],
)
def test_plain_http_to_another_host_is_refused_unless_insecure(
    endpoint: str, said: dict[str, Any], is_fine: bool
) -> None:
    if is_fine:
        assert connected(endpoint, **said).endpoint == endpoint
        return
    with pytest.raises(ManifestInvalid, match="unencrypted") as refusal:
        connected(endpoint, **said)
    assert "insecure: true" in (refusal.value.diagnostics[0].fix or "")
