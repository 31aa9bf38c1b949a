"""`/metrics` and `/healthz`: served in spite of slow or malformed clients."""

from __future__ import annotations

import socket
import time
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

from reconciler import metrics
from reconciler.metrics import MAX_CONNECTIONS, MetricsServer
from reconciler.render.prometheus import MetricSource, render_metrics
from reconciler.watch import CheckReport, WatchState, watch_figures
from tests.conftest import FIGURE

#: Longer than any response takes on a busy machine.
HOUR_S, END_S = 3600.0, 30.0
WHERE = MetricSource('vi"sion', "prod\\1")
CHECK = CheckReport(
    2, has_compared=True, summary={"missing": 2}, plan={"create": 1}, number=1, ended_at_s=1.8e9
)
STATE = WatchState().after(CHECK, 10.0)


class Served:
    """A server with a changeable state, and its clients."""

    def __init__(self) -> None:
        self.state = WatchState()
        self.server = MetricsServer(
            "127.0.0.1",
            0,
            lambda: render_metrics(watch_figures(self.state, WHERE)),
            lambda: self.state.is_healthy(11, 900),
        )
        self.clients: list[socket.socket] = []

    def connect(self, data: bytes) -> socket.socket:
        client = socket.create_connection(self.server.server_address[:2], timeout=END_S)  # type: ignore[arg-type]
        client.sendall(data)
        self.clients.append(client)
        return client

    @staticmethod
    def receive(client: socket.socket) -> bytes:
        text = b""
        with suppress(ConnectionResetError):
            while data := client.recv(1 << 16):
                text += data
        return text

    def get(self, path: str, method: str = "GET") -> tuple[int, str]:
        client = self.connect(f"{method} {path} HTTP/1.1\r\nHost: here\r\n\r\n".encode())
        head, _, body = self.receive(client).partition(b"\r\n\r\n")
        return int(head.split()[1]), body.decode()


@pytest.fixture
def served(monkeypatch: pytest.MonkeyPatch) -> Iterator[Served]:
    """A server that closes no connection for its duration."""
    monkeypatch.setattr(metrics, "REQUEST_TIMEOUT_S", HOUR_S)
    served = Served()
    with served.server.serving():
        yield served
        for client in served.clients:
            client.close()


def test_health_is_bad_before_the_first_comparison(served: Served) -> None:
    assert served.get("/healthz")[0] == 503
    served.state = STATE
    assert served.get("/healthz") == (200, "ok\n")


def test_served_metrics_equal_the_file(served: Served) -> None:
    served.state = STATE
    status, body = served.get("/metrics?name=x")
    assert (status, body) == (200, render_metrics(watch_figures(STATE, WHERE)))
    [drift] = [one for one in text_string_to_metric_families(body) if one.name == "reconciler_drift"]
    expected = {**WHERE._asdict(), "class": "missing"}, 2.0
    assert [(one.labels, one.value) for one in drift.samples] == [expected]


@pytest.mark.parametrize(
    ("path", "method", "status"),
    [("/", "GET", 404), ("/metrics/", "GET", 404), ("/metrics", "POST", 501), ("/metrics", "HEAD", 200)],
)
def test_unknown_path_is_404_and_other_method_is_405(
    served: Served, capfd: pytest.CaptureFixture[str], path: str, method: str, status: int
) -> None:
    found, body = served.get(path, method)
    assert (found, method == "HEAD" and body) == (status, "" if method == "HEAD" else False)
    assert capfd.readouterr() == ("", "")


@pytest.mark.parametrize(
    "data", [b"\x00\xff\r\n\r\n", b"GET /metrics HTTP/1.1\r\n" + b"X: " + b"x" * 70_000 + b"\r\n\r\n"]
)
def test_malformed_request_is_refused(served: Served, capfd: pytest.CaptureFixture[str], data: bytes) -> None:
    assert b"200" not in served.receive(served.connect(data))[:20]
    assert served.get("/healthz")[0] == 503
    assert capfd.readouterr() == ("", "")


@pytest.mark.parametrize(
    "data", [b"", b"GET /met", b"GET /metrics HTTP/1.1\r\nX: "], ids=["silent", "begun", "slow"]
)
def test_idle_connections_do_not_block_new_ones(served: Served, data: bytes, record_property: Any) -> None:
    held = 0
    for _ in range(10):
        for _ in range(MAX_CONNECTIONS):
            served.connect(data)
            held += 1
        for client in served.clients[-MAX_CONNECTIONS:]:
            with suppress(OSError):  # closed in favor of a later one
                client.send(b"x")
        assert served.get("/healthz")[0] == 503
    record_property(FIGURE, ["half-open connections to `watch --listen`", held])


def test_slow_connection_is_closed(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(metrics, "REQUEST_TIMEOUT_S", 0.2)
    client = served.connect(b"GET /met")
    client.settimeout(0.05)
    received, ends_s = b"?", time.monotonic() + END_S
    while received and time.monotonic() < ends_s:
        with suppress(TimeoutError, ConnectionResetError):
            received = client.recv(1)
        with suppress(OSError):
            client.send(b"x")
    assert received == b""


def test_server_releases_its_port() -> None:
    served = Served()
    with served.server.serving():
        assert served.get("/healthz")[0] == 503
    served.clients[0].close()
    with socket.create_server(served.server.server_address[:2]):
        pass
