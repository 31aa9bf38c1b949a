"""Answers that nobody should give: secrets in them, no end, no sense; and proxies that are none."""

from __future__ import annotations

import gzip
import json
import socket
import threading
import time
import traceback
from collections.abc import Callable
from typing import Any

import pytest

from reconciler.core.stack import Target
from reconciler.emulator.server import running
from reconciler.errors import (
    NotFound,
    Rejected,
    ServiceError,
    Throttled,
    Unanswered,
    Unreachable,
    UnreadableAnswer,
)
from reconciler.modelarts import content as content_module
from reconciler.modelarts.auth import Anonymous, StaticToken
from reconciler.modelarts.connect import connect
from reconciler.modelarts.http import (
    Network,
    ServiceSession,
    SessionOptions,
    WsgiAdapter,
    json_bytes,
    query_of,
)
from reconciler.secrets import Redactor
from tests.modelarts.building import PROJECT, TOKEN, StoppedClock
from tests.modelarts.serving import Canned, a_socket

LONG = "".join(f"Tk{n:04d}/" for n in range(500))  # 3,500 characters


def a_session(*answers: Any, token: str = TOKEN, **options: Any) -> ServiceSession:
    app = Canned(*answers)
    return ServiceSession(
        "http://localhost",
        StaticToken(token, "TEST"),
        SessionOptions(make_adapter=lambda: WsgiAdapter(app), clock=StoppedClock(), **options),
    )


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
def test_long_token_echoed_by_the_service_is_redacted_whole(
    status: int, body: str, headers: dict[str, str]
) -> None:
    said = all_of(failure_of(a_session((status, body, headers), token=LONG)))
    assert "Tk0000" not in said
    assert "sensitive" in said


@pytest.mark.parametrize("secret", ["line one\nline two", "tab\tbed value", "two  spaces", "zero\x00byte"])
@pytest.mark.parametrize("form", [lambda s: json.dumps({"error_msg": f"no: {s}"}), lambda s: f"<p>{s}</p>"])
def test_secret_with_white_space_is_redacted(secret: str, form: Callable[[str], str]) -> None:
    failure = failure_of(a_session((400, form(secret)), redact=Redactor([secret])))
    assert "(sensitive)" in failure.message
    assert not any(word in failure.message for word in ("line", "value", "spaces", "byte"))


def test_secret_with_white_space_widened_by_the_service_is_redacted() -> None:
    said = json.dumps({"error_msg": "no: my  secret\n words"})
    assert (
        failure_of(a_session((400, said), redact=Redactor(["my secret words"]))).message == "no: (sensitive)"
    )


def test_session_redacts_its_own_credentials() -> None:
    said = json.dumps({"error_msg": f"{TOKEN} and Manifest1"})
    failure = failure_of(a_session((400, said), redact=Redactor(["Manifest1"])))
    assert failure.message == "(sensitive) and (sensitive)"


def test_part_of_a_hidden_value_does_not_show_the_rest() -> None:
    elsewhere = Redactor(["Pass"])
    session = a_session((400, '{"error_msg": "Pass1234"}'), redact=elsewhere, learn=elsewhere.learn)
    session.hide(["Pass1234"])
    assert failure_of(session).message == "(sensitive)"


def test_secret_that_is_a_part_of_a_code_does_not_change_what_the_code_means() -> None:
    body = '{"error_code": "ModelArts.2775", "error_msg": "x"}'
    assert isinstance(failure_of(a_session((400, body), redact=Redactor(["2775"]))), NotFound)


def test_connect_passes_the_redactor_to_the_session() -> None:
    with running(Canned((400, '{"error_msg": "no: Manifest1"}'))) as url:
        target = Target.model_validate({"kind": "modelarts", "endpoint": url, "project_id": PROJECT})
        environ = {"MODELARTS_AUTH_TOKEN": TOKEN}
        with connect(target, environ, SessionOptions(redact=Redactor(["Manifest1"]))) as backend:
            assert failure_of(backend.session).message == "no: (sensitive)"


# ── proxies ────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    "proxy",
    [
        "http://u:S3cretPass@127.0.0.1:99999",
        "http://u:S3cretPass@[::1",
        "http://u:S3cretPass@",
        "u:S3cretPass@127.0.0.1:99999",
        "nonsense://u:S3cretPass@127.0.0.1:80",
        "http://S3cretPass@127.0.0.1:99999",
        "http://u:S3cret%50ass@127.0.0.1:99999",
    ],
)
def test_unusable_proxy_error_does_not_show_its_url(proxy: str) -> None:
    learnt: list[str] = []
    target = Target.model_validate({"kind": "modelarts", "region": "cn-north-4", "project_id": PROJECT})
    environ = {"MODELARTS_AUTH_TOKEN": TOKEN, "HTTPS_PROXY": proxy}
    with connect(target, environ, SessionOptions(learn=learnt.extend, clock=StoppedClock())) as backend:
        failure = failure_of(backend.session)
    assert isinstance(failure, Unreachable)
    assert "invalid proxy" in failure.message
    assert "HTTPS_PROXY" in (failure.diagnostics[0].fix or "")
    assert not any(part in all_of(failure) for part in ("S3cret", "127.0.0.1", "99999"))
    assert "S3cretPass" in learnt


@pytest.mark.parametrize("password", ["p/a#s?s", "p@ssw0rd", "p:a:s:s"])
def test_proxy_password_with_any_characters_is_a_known_secret(password: str) -> None:
    network = Network(proxies={"https": f"http://u:{password}@127.0.0.1:1"})
    with ServiceSession("https://modelarts.example", Anonymous(), SessionOptions(network=network)) as session:
        assert password in session.secrets()


# ── times of the service ───────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    "said",
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
def test_absurd_retry_after_and_date_are_ignored_or_bounded(said: str) -> None:
    session = a_session((429, "", {"Retry-After": said, "Date": said}))
    failure = failure_of(session)
    assert isinstance(failure, Throttled)
    assert failure.retry_after_s is None or 0 <= failure.retry_after_s <= 3600
    assert session.skew_s is None or session.skew_s


# ── answers without end ────────────────────────────────────────────────────────────────────────────


OK = b"HTTP/1.1 200 OK\r\n"


def endless(begin: bytes, piece: bytes) -> Callable[[socket.socket], None]:
    pause = threading.Event()

    def serve(connection: socket.socket) -> None:
        connection.recv(65536)
        try:
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            connection.sendall(begin)
            while True:
                connection.sendall(piece)
                if len(piece) < 100:
                    pause.wait(0.01)
        except OSError:
            pass  # the client has gone

    return serve


DRIPPING = {
    "status": (b"", b"H"),
    "header": (OK + b"X-Request-Id: ", b"r"),
    "headers": (OK, b"X: y\r\n"),
    "100 Continue": (b"", b"HTTP/1.1 100 Continue\r\n\r\n"),
    "length": (OK + b"Content-Length: 9999999\r\n\r\n", b" "),
    "no length": (OK + b"\r\n", b" "),
    "chunked": (OK + b"Transfer-Encoding: chunked\r\n\r\n", b"1\r\n \r\n"),
    "a chunk": (OK + b"Transfer-Encoding: chunked\r\n\r\n", b"0"),
    "compressed": (OK + b"Content-Encoding: gzip\r\n\r\n" + gzip.compress(b"{}")[:10], b"\x00"),
}
HASTY = Network(answer_timeout_s=0.3)


@pytest.mark.parametrize("dripping", DRIPPING)
def test_slowly_dripping_answer_is_unanswered(dripping: str) -> None:
    with (
        a_socket(endless(*DRIPPING[dripping])) as url,
        ServiceSession(url, Anonymous(), SessionOptions(network=HASTY)) as session,
    ):
        began = time.monotonic()
        with pytest.raises(Unanswered, match=r"was not complete after 0\.3 s") as failure:
            session.call("POST", "/x", body={})
        assert time.monotonic() - began < 20
    assert not isinstance(failure.value, Unreachable)


def test_slowly_dripping_proxy_is_given_up() -> None:
    with a_socket(endless(*DRIPPING["headers"])) as url:
        network = HASTY._replace(proxies={"https": url})
        with (
            ServiceSession("https://far.example", Anonymous(), SessionOptions(network=network)) as session,
            pytest.raises(Unanswered, match=r"was not complete after 0\.3 s"),
        ):
            session.call("POST", "/x", body={})


@pytest.mark.parametrize(
    ("head", "piece"),
    [(b"", b" " * 65536), (b"Transfer-Encoding: chunked\r\n", b"10000\r\n" + b" " * 65536 + b"\r\n")],
    ids=["no length", "chunked"],
)
@pytest.mark.timeout(20)
def test_overlong_answer_is_unreadable(head: bytes, piece: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(content_module, "LONGEST_ANSWER", 2**21)
    with (
        a_socket(endless(OK + head + b"\r\n", piece)) as url,
        ServiceSession(url, Anonymous()) as session,
        pytest.raises(UnreadableAnswer, match="larger than 2 MB"),
    ):
        session.call("GET", "/x")


def test_answer_that_expands_on_decompression_is_unreadable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(content_module, "LONGEST_ANSWER", 2**21)
    app = Canned((200, gzip.compress(b" " * 2**23), {"Content-Encoding": "gzip"}))
    with (
        running(app) as url,
        ServiceSession(url, Anonymous()) as session,
        pytest.raises(UnreadableAnswer, match="larger than 2 MB"),
    ):
        session.call("GET", "/x")


def test_connection_is_reused_after_an_answer_was_read() -> None:
    served: list[int] = []

    def serve(connection: socket.socket) -> None:
        while connection.recv(65536):
            served.append(id(connection))
            connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 200000\r\n\r\n" + b" " * 200_000)

    with a_socket(serve) as url, ServiceSession(url, Anonymous()) as session:
        assert [len(session.call("GET", "/x").content) for _ in range(3)] == [200_000] * 3
        session.close()
    assert len(set(served)) == 1


@pytest.mark.parametrize("content", ["[" * 100_000, '{"a":' * 100_000])
@pytest.mark.parametrize("status", [200, 400])
def test_deeply_nested_json_is_an_unreadable_or_rejected_answer(content: str, status: int) -> None:
    failure = failure_of(a_session((status, content)))
    assert isinstance(failure, UnreadableAnswer if status == 200 else Rejected)


# ── what cannot be sent ────────────────────────────────────────────────────────────────────────────


def test_invalid_unicode_text_is_rejected() -> None:
    for make in (lambda: json_bytes({"a": "S3cret\ud800"}), lambda: query_of({"a": "S3cret\udfff"})):
        with pytest.raises(Rejected, match="not valid Unicode") as failure:
            make()
        assert "S3cret" not in str(failure.value)
        assert failure.value.diagnostics[0].fix
