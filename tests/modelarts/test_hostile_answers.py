"""Hostile responses: containing secrets, endless, or senseless; and invalid proxies."""

from __future__ import annotations

import json
import socket
import ssl
import traceback
import tracemalloc
import zlib
from collections.abc import Callable
from functools import cache
from pathlib import Path

import pytest

from reconciler.core.stack import Target
from reconciler.emulator.server import running
from reconciler.errors import (
    NotFound,
    Rejected,
    ServiceError,
    Throttled,
    Unreachable,
    UnreadableAnswer,
)
from reconciler.modelarts import errors as bodies
from reconciler.modelarts.auth import StaticToken
from reconciler.modelarts.connect import connect
from reconciler.modelarts.http import Network, ServiceSession, SessionOptions, json_bytes, query_of
from reconciler.secrets import Redactor
from tests.hostile.wire import make_certificate
from tests.modelarts.building import PROJECT, TOKEN, StoppedClock, a_body
from tests.modelarts.serving import Canned, a_request, a_session, a_socket, session_to

LONG = "".join(f"Tk{n:04d}/" for n in range(500))  # 3,500 characters
MB = 2**20


def failure_of(session: ServiceSession) -> ServiceError:
    with pytest.raises(ServiceError) as failure:
        session.call("GET", "/x").json()
    return failure.value


def all_of(failure: ServiceError) -> str:
    return "".join(traceback.format_exception(failure)) + repr(failure.diagnostics) + repr(vars(failure))


# ── secrets ────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("status", "body", "headers"),
    [
        (401, json.dumps({"error_code": "APIG.0301", "error_msg": f"bad {LONG}"}), {}),
        (400, json.dumps({"error_code": LONG, "error_msg": LONG, "error_solution": LONG}), {}),
        (400, json.dumps({"error_msg": "no", "request_id": LONG}), {}),
        (400, json.dumps({"said": {"deep": [LONG]}}), {}),
        (400, json.dumps({"said": {"deep": [LONG]}}).replace("/", "\\/"), {}),
        (502, f"<html>{LONG}</html>", {}),
        (502, f"<html>{' ' * 300}{LONG}</html>", {}),
        (400, "{}", {"X-Request-Id": LONG}),
        (200, "no JSON", {"X-Request-Id": LONG}),
        (302, "", {"Location": f"http://elsewhere.invalid/{LONG}"}),
    ],
)
def test_token_echoed_by_the_service_is_redacted_whole(
    status: int, body: str, headers: dict[str, str], caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("DEBUG")
    text = all_of(failure_of(a_session((status, body, headers), credentials=StaticToken(LONG, "T"))))
    assert "Tk0000" not in text + caplog.text
    assert "sensitive" in text


@pytest.mark.parametrize("secret", ["line one\nline two", "tab\tbed value", "two  spaces", "zero\x00byte"])
@pytest.mark.parametrize("form", [lambda s: json.dumps({"error_msg": f"no: {s}"}), lambda s: f"<p>{s}</p>"])
def test_secret_with_white_space_is_redacted(secret: str, form: Callable[[str], str]) -> None:
    failure = failure_of(a_session((400, form(secret)), redactor=Redactor([secret])))
    assert "(sensitive)" in failure.message
    assert not any(word in failure.message for word in ("line", "value", "spaces", "byte"))


@pytest.mark.parametrize(
    ("message", "secret", "shown"),
    [
        ("no: my  secret\n words", "my secret words", "no: (sensitive)"),  # widened by the service
        (f"{TOKEN} and Manifest1", "Manifest1", "(sensitive) and (sensitive)"),  # and its own credentials
    ],
)
def test_secret_in_an_error_is_redacted(message: str, secret: str, shown: str) -> None:
    answer = (400, json.dumps({"error_msg": message}))
    assert failure_of(a_session(answer, redactor=Redactor([secret]))).message == shown


def test_part_of_a_hidden_value_does_not_show_the_rest() -> None:
    session = a_session((400, '{"error_msg": "Pass1234"}'), redactor=Redactor(["Pass"]))
    session.redactor.add_secrets(["Pass1234"])
    assert failure_of(session).message == "(sensitive)"


def test_secret_contained_in_an_error_code_does_not_change_its_meaning() -> None:
    body = '{"error_code": "ModelArts.2775", "error_msg": "x"}'
    assert isinstance(failure_of(a_session((400, body), redactor=Redactor(["2775"]))), NotFound)


def test_connect_passes_the_redactor_to_the_session() -> None:
    with running(Canned((400, '{"error_msg": "no: Manifest1"}'))) as url:
        target = Target.model_validate({"kind": "modelarts", "endpoint": url, "project_id": PROJECT})
        options = SessionOptions(redactor=Redactor(["Manifest1"]))
        with connect(target, {"MODELARTS_AUTH_TOKEN": TOKEN}, options) as backend:
            assert failure_of(backend.session).message == "no: (sensitive)"


def test_invalid_unicode_text_is_not_sent_and_not_shown() -> None:
    for make in (lambda: json_bytes({"a": "S3cret\ud800"}), lambda: query_of({"a": "S3cret\udfff"})):
        with pytest.raises(Rejected, match="not valid Unicode") as failure:
            make()
        assert "S3cret" not in str(failure.value)
        assert failure.value.diagnostics[0].fix


# ── proxies ────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("proxy", "message"),
    [
        ("http://u:S3cretPass@127.0.0.1:99999", "invalid proxy"),
        ("http://u:S3cretPass@[::1", "invalid proxy"),
        ("http://u:S3cretPass@", "invalid proxy"),
        ("u:S3cretPass@127.0.0.1:99999", "invalid proxy"),
        ("nonsense://u:S3cretPass@127.0.0.1:80", "invalid proxy"),
        ("http://S3cretPass@127.0.0.1:99999", "invalid proxy"),
        ("http://u:S3cret%50ass@127.0.0.1:99999", "invalid proxy"),
        ("http://me:S3cretPass@127.0.0.1:1", "the proxy: "),
    ],
)
def test_unusable_proxy_error_does_not_show_its_password(proxy: str, message: str) -> None:
    redactor = Redactor()
    target = Target.model_validate({"kind": "modelarts", "region": "cn-north-4", "project_id": PROJECT})
    environ = {"MODELARTS_AUTH_TOKEN": TOKEN, "HTTPS_PROXY": proxy}
    with connect(target, environ, SessionOptions(redactor=redactor, clock=StoppedClock())) as backend:
        failure = failure_of(backend.session)
    assert isinstance(failure, Unreachable)
    assert message in failure.message
    assert "HTTPS_PROXY" in (failure.diagnostics[0].fix or "")
    hidden = ("S3cret", "127.0.0.1", "99999") if message == "invalid proxy" else ("S3cret",)
    assert not any(part in all_of(failure) for part in hidden)
    assert redactor("S3cretPass") == "(sensitive)"


@pytest.mark.parametrize("password", ["p/a#s?s", "p@ssw0rd", "p:a:s:s"])
def test_proxy_password_with_any_characters_is_a_known_secret(password: str) -> None:
    network = Network(proxies={"https": f"http://u:{password}@127.0.0.1:1"})
    with session_to("https://modelarts.example", network=network) as session:
        assert password in session.secrets()


# ── times of the service ───────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    "header",
    [
        "99999999999999999999",
        "9" * 5000,
        "Thu, 06 Aug 99999999999 07:07:10 GMT",
        "Thu, 99 Aug 9999 99:99:99 GMT",
        "Thu, 06 Aug 9999 07:07:10 +99999999999999",
        "Thu, 06 Aug 0000 07:07:10 GMT",
        "1e9",
        "-5",
        "\u00b2",
        ", , , :",
    ],
)
def test_absurd_retry_after_and_date_are_ignored_or_bounded(header: str) -> None:
    session = a_session((429, "", {"Retry-After": header, "Date": header}))
    failure = failure_of(session)
    assert isinstance(failure, Throttled)
    assert failure.retry_after_s is None or 0 <= failure.retry_after_s <= 3600
    assert session.skew_s is None or session.skew_s


# ── answers without end ────────────────────────────────────────────────────────────────────────────

OK = b"HTTP/1.1 200 OK\r\n"


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    return make_certificate(tmp_path_factory.mktemp("tls"))


def secured(
    serve: Callable[[socket.socket], None], certificate: tuple[Path, Path]
) -> Callable[[socket.socket], None]:
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    server.load_cert_chain(*certificate)

    def serve_secured(connection: socket.socket) -> None:
        try:
            with server.wrap_socket(connection, server_side=True) as inner:
                serve(inner)
        except OSError:
            pass  # the client disconnected, or does not trust us

    return serve_secured


def endless(begin: bytes, piece: bytes) -> Callable[[socket.socket], None]:
    def serve(connection: socket.socket) -> None:
        connection.recv(65536)
        try:
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            connection.sendall(begin)
            while True:
                connection.sendall(piece)
        except OSError:
            pass  # the client disconnected

    return serve


@pytest.mark.parametrize("name", ["REQUESTS_CA_BUNDLE", "SSL_CERT_FILE", None])
def test_ca_bundle_of_the_environment_is_used(certificate: tuple[Path, Path], name: str | None) -> None:
    page, heard = b'{"items": [], "total": 0}', list[bytes]()

    def serve(connection: socket.socket) -> None:
        heard.append(a_request(connection))
        connection.sendall(OK + b"Content-Length: %d\r\n\r\n%s" % (len(page), page))

    environ = {"MODELARTS_AUTH_TOKEN": TOKEN, **({name: str(certificate[0])} if name else {})}
    with a_socket(secured(serve, certificate)) as url:
        target = {"kind": "modelarts", "endpoint": url.replace("http:", "https:"), "project_id": PROJECT}
        options = SessionOptions(clock=StoppedClock())
        with connect(Target.model_validate(target), environ, options) as backend:
            if name:
                assert backend.observe().problem is None
                assert TOKEN.encode() in heard[0]
                return
            with pytest.raises(Unreachable) as refusal:
                backend.create(a_body())
    assert "REQUESTS_CA_BUNDLE" in (refusal.value.diagnostics[0].fix or "")
    assert heard == [], "nothing is said to a server that we do not know"


@pytest.mark.parametrize(
    ("head", "piece"),
    [(b"", b" " * 65536), (b"Transfer-Encoding: chunked\r\n", b"10000\r\n" + b" " * 65536 + b"\r\n")],
    ids=["no length", "chunked"],
)
@pytest.mark.timeout(20)
def test_overlong_answer_is_unreadable(head: bytes, piece: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bodies, "LONGEST_ANSWER", 2 * MB)
    with (
        a_socket(endless(OK + head + b"\r\n", piece)) as url,
        session_to(url) as session,
        pytest.raises(UnreadableAnswer, match="larger than 2 MB"),
    ):
        session.call("GET", "/x")


@cache
def packed(*encodings: str) -> bytes:
    """128 MB of white space, compressed in each encoding."""
    pieces = [b" " * MB] * 128
    for encoding in encodings:
        packer = zlib.compressobj(wbits={"gzip": 31, "deflate": zlib.MAX_WBITS}[encoding])
        pieces = [*map(packer.compress, pieces), packer.flush()]
    return b"".join(pieces)


@pytest.mark.parametrize(
    ("encodings", "announced"),
    [
        (("gzip",), ("gzip",)),
        (("deflate",), ("deflate",)),
        (("gzip", "gzip"), ("gzip", "gzip")),
        (("deflate", "gzip"), ("deflate", "gzip")),
        (("gzip",), ("gzip",) * 100),
    ],
    ids=["gzip", "deflate", "gzip gzip", "deflate gzip", "gzip, said a hundred times"],
)
def test_inflating_answer_is_refused_before_decompression(
    encodings: tuple[str, ...], announced: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A decompression bomb costs no memory: the reason for the lower bound of urllib3."""
    monkeypatch.setattr(bodies, "LONGEST_ANSWER", 2 * MB)
    app = Canned((200, packed(*encodings), {"Content-Encoding": ", ".join(announced)}))
    with running(app) as url, session_to(url) as session:
        tracemalloc.start()
        try:
            with pytest.raises(UnreadableAnswer, match=r"larger than 2 MB|cannot be decompressed"):
                session.call("GET", "/x")
            _, peak = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
    assert peak < 16 * MB
