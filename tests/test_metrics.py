"""`/metrics` and `/healthz`: answered between two waits, whoever asks and however."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

from reconciler import metrics
from reconciler.decide.metrics import MetricSource
from reconciler.metrics import MAX_CONNECTIONS, MetricsServer, metrics_app
from reconciler.render.prometheus import render_metrics
from reconciler.watch import CheckReport, WatchState, watch_figures
from tests.conftest import FIGURE

#: Longer than any test may take, and long enough for an answer however busy the machine is.
HOUR_S, END_S = 3600.0, 30.0
WHERE = MetricSource('vi"sion', "prod\\1")
CHECK = CheckReport(
    2, has_compared=True, summary={"missing": 2}, plan={"create": 1}, number=1, ended_at_s=1.8e9
)
STATE = WatchState().after(CHECK, 10.0)


class Served:
    """A server with a state that a test can change, and clients that never block."""

    def __init__(self) -> None:
        self.state = WatchState()
        app = metrics_app(
            lambda: watch_figures(self.state, WHERE, 900.0), lambda: self.state.is_healthy(11, 900)
        )
        self.server = MetricsServer(app, "127.0.0.1", 0)
        self.clients: list[socket.socket] = []

    def connect(self, data: bytes) -> socket.socket:
        client = socket.create_connection(("127.0.0.1", self.server.port))
        client.setblocking(False)
        client.sendall(data)
        self.clients.append(client)
        return client

    def receive(self, client: socket.socket) -> bytes:
        said, data, ends_s = b"", b"?", time.monotonic() + END_S
        with suppress(ConnectionResetError):
            while data and time.monotonic() < ends_s:
                self.server.wait(0.01)
                with suppress(BlockingIOError):
                    data = client.recv(1 << 16)
                    said += data
        return said

    def get(self, path: str, method: str = "GET") -> tuple[int, str]:
        client = self.connect(f"{method} {path} HTTP/1.1\r\nHost: here\r\n\r\n".encode())
        head, _, body = self.receive(client).partition(b"\r\n\r\n")
        return int(head.split()[1]), body.decode()


@pytest.fixture
def served(monkeypatch: pytest.MonkeyPatch) -> Iterator[Served]:
    """One that closes no connection because it lasts."""
    monkeypatch.setattr(metrics, "REQUEST_TIMEOUT_S", HOUR_S)
    served = Served()
    yield served
    for client in served.clients:
        client.close()
    served.server.close()


def test_health_is_bad_until_something_was_compared(served: Served) -> None:
    assert served.get("/healthz")[0] == 503
    served.state = STATE
    assert served.get("/healthz") == (200, "ok\n")


def test_metrics_are_those_of_the_file(served: Served) -> None:
    served.state = STATE
    status, body = served.get("/metrics")
    assert status == 200

    def samples(text: str) -> set[tuple[str, str, tuple[tuple[str, str], ...], float]]:
        return {
            (family.type, sample.name, tuple(sorted(sample.labels.items())), sample.value)
            for family in text_string_to_metric_families(text)
            for sample in family.samples
        }

    assert samples(body) == samples(render_metrics(watch_figures(STATE, WHERE, 900.0)))
    labels = (("class", "missing"), *sorted(WHERE.labels.items()))
    assert ("gauge", "reconciler_drift", labels, 2.0) in samples(body)
    assert "python_info" not in body, "nothing of the registry of the process"


@pytest.mark.parametrize(
    ("path", "method", "status"),
    [("/", "GET", 404), ("/metrics/", "GET", 404), ("/metrics", "POST", 405), ("/metrics", "HEAD", 200)],
)
def test_anything_else_is_not_there(served: Served, path: str, method: str, status: int) -> None:
    assert served.get(path, method)[0] == status


@pytest.mark.parametrize(
    "data",
    [
        b"\x00\xff\r\n\r\n",
        b"GET /metrics HTTP/1.1\r\n" + b"X: " + b"x" * 40_000 + b"\r\n\r\n",
        b"POST /metrics HTTP/1.1\r\nContent-Length: 999999\r\n\r\n" + b"x" * 5000,
    ],
)
def test_what_is_no_request_is_refused(served: Served, data: bytes) -> None:
    assert served.receive(served.connect(data)).split()[1][:1] == b"4"
    assert served.get("/healthz")[0] == 503


def test_who_asks_slowly_or_without_reading_holds_up_nobody(served: Served) -> None:
    served.connect(b"GET /met")
    flood = b"GET /metrics HTTP/1.1\r\nHost: here\r\n\r\n" * 2000
    client = socket.create_connection(("127.0.0.1", served.server.port))
    client.settimeout(0.2)
    served.clients.append(client)
    with suppress(TimeoutError, ConnectionError):
        client.sendall(flood)
    assert served.get("/healthz")[0] == 503


@pytest.mark.parametrize(
    "data", [b"", b"GET /met", b"GET /metrics HTTP/1.1\r\nX: "], ids=["silent", "begun", "slow"]
)
def test_connections_that_are_held_open_keep_nobody_out(
    served: Served, data: bytes, record_property: Any
) -> None:
    held = 0
    for _ in range(10):
        for _ in range(MAX_CONNECTIONS):
            served.connect(data)
            held += 1
        for client in served.clients[-MAX_CONNECTIONS:]:
            with suppress(OSError):  # it was closed for a later one
                client.send(b"x")
        assert served.get("/healthz")[0] == 503
    record_property(FIGURE, ["half-open connections to `watch --listen`", held])


def test_connection_that_sends_a_little_now_and_then_is_closed(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(metrics, "REQUEST_TIMEOUT_S", 0.2)
    client = served.connect(b"GET /met")
    said, ends_s = b"?", time.monotonic() + END_S
    while said and time.monotonic() < ends_s:
        served.server.wait(0.01)
        with suppress(BlockingIOError):
            said = client.recv(1)
        with suppress(OSError):
            client.send(b"x")
    assert said == b""


def test_server_has_no_thread_and_gives_its_port_back(served: Served) -> None:
    names = {thread.name for thread in threading.enumerate()}
    served.get("/metrics")
    assert {thread.name for thread in threading.enumerate()} == names
    served.server.close()
    with socket.create_server(("127.0.0.1", served.server.port)):
        pass
    assert MAX_CONNECTIONS < 100


def test_wait_ends_when_there_is_something_to_be_read(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(metrics, "_PIECE_S", HOUR_S)
    ours, theirs = socket.socketpair()
    with ours, theirs:
        theirs.send(b"x")
        served.server.wait(HOUR_S, ours.fileno())
        assert ours.recv(1) == b"x"
