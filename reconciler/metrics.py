"""Metrics on the network, by prometheus-client: served to whoever scrapes them, or pushed to a gateway.

The process that watches waits most of the time, and its wait is the loop of the server, waitress without a
thread: a request is answered between two looks at the sockets, and nobody who asks slowly, or not at all,
holds up anything.
"""

from __future__ import annotations

import logging
import select
import socket
import time
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any

from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, generate_latest, push_to_gateway
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.metrics_core import Metric as Family
from prometheus_client.registry import Collector
from waitress import wasyncore
from waitress.server import create_server

from reconciler.decide.metrics import COUNTER, Measurement, MetricSource

if TYPE_CHECKING:
    from _typeshed.wsgi import StartResponse, WSGIApplication, WSGIEnvironment

#: How long a gateway may take to answer, in seconds.
PUSH_TIMEOUT_S = 10.0
#: So many connections are open at once: the oldest one makes room for a new one. One that has not been
#: answered, or whose answer has not been read, is closed after so many seconds, whatever it sends meanwhile.
MAX_CONNECTIONS = 32
REQUEST_TIMEOUT_S = 5.0
#: A request is a line and some headers.
MAX_HEADERS, MAX_BODY = 16 * 1024, 1024
#: A wait is cut into pieces of so many seconds, so that a signal is noticed in time.
_PIECE_S = 0.25
_TEXT = "text/plain; charset=utf-8"


class _Collector(Collector):
    def __init__(self, metrics: Iterable[Measurement]) -> None:
        self._metrics = tuple(metrics)

    def collect(self) -> Iterator[Family]:
        for metric in self._metrics:
            names = list(metric.samples[0][0]) if metric.samples else []
            kind = CounterMetricFamily if metric.type == COUNTER else GaugeMetricFamily
            family = kind(metric.name, metric.meaning, labels=names)
            for labels, value in metric.samples:
                family.add_metric([labels[name] for name in names], value)
            yield family


def _registry(metrics: Iterable[Measurement]) -> CollectorRegistry:
    registry = CollectorRegistry(auto_describe=False)
    registry.register(_Collector(metrics))
    return registry


class PushFailed(Exception):
    """The gateway did not accept the metrics; the text holds no secret."""


def push(url: str, metrics: Iterable[Measurement], where: MetricSource) -> None:
    """Replace what a Pushgateway has of this stack on this target.

    Raises:
        PushFailed: it did not accept them.

    Source: https://github.com/prometheus/pushgateway, "API".
    """
    try:
        push_to_gateway(
            url, "reconciler", _registry(metrics), grouping_key=where.labels, timeout=PUSH_TIMEOUT_S
        )
    except Exception as error:
        # The texts of the library may quote the URL, which may hold a password.
        status = getattr(error, "code", None)
        reason = getattr(error, "reason", error)
        why = (reason.strerror if isinstance(reason, OSError) else None) or type(reason).__name__
        raise PushFailed(f"the gateway answered HTTP {status}" if status else why) from None


def metrics_app(
    metrics: Callable[[], Iterable[Measurement]], is_healthy: Callable[[], bool]
) -> WSGIApplication:
    """The application: `/metrics`, and `/healthz` with 200 or 503."""

    def answer(method: str, path: str) -> tuple[str, str, bytes]:
        if method not in ("GET", "HEAD"):
            return "405 Method Not Allowed", _TEXT, b"GET it\n"
        if path == "/metrics":
            return "200 OK", CONTENT_TYPE_LATEST, generate_latest(_registry(metrics()))
        if path == "/healthz":
            if is_healthy():
                return "200 OK", _TEXT, b"ok\n"
            return "503 Service Unavailable", _TEXT, b"no check has compared anything for three intervals\n"
        return "404 Not Found", _TEXT, b"there are /metrics and /healthz\n"

    def app(environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
        status, kind, body = answer(environ["REQUEST_METHOD"], str(environ.get("PATH_INFO", "")))
        start_response(status, [("Content-Type", kind), ("Content-Length", str(len(body)))])
        return [body] if environ["REQUEST_METHOD"] != "HEAD" else []

    return app


class MetricsServer:
    """A bound socket; requests are answered while the process waits, see `watch.Wait`: it has no thread.

    Raises:
        OSError: the address cannot be bound.
    """

    def __init__(self, app: WSGIApplication, host: str, port: int) -> None:
        logging.getLogger("waitress.queue").setLevel(logging.ERROR)
        self._map: dict[int, Any] = {}
        self._waiting = _Requests()
        try:
            found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        except UnicodeError:
            raise OSError("not a valid host name") from None
        family, _, _, _, address = found[0]
        listening = socket.create_server(address[:2], family=family, backlog=MAX_CONNECTIONS)
        self.host, self.port = listening.getsockname()[:2]
        self._server = create_server(
            app,
            map=self._map,
            sockets=[listening],
            _dispatcher=self._waiting,
            ident="reconciler",
            # Above this limit it would take no new ones: `_close_slow` closes old ones long before.
            connection_limit=4 * MAX_CONNECTIONS,
            max_request_header_size=MAX_HEADERS,
            max_request_body_size=MAX_BODY,
        )

    @property
    def url(self) -> str:
        """Where it serves, e.g. http://127.0.0.1:9464."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"http://{host}:{self.port}"

    def wait(self, seconds: float, descriptor: int | None = None) -> None:
        """Serve until the time is over, there is something to be read, or a little earlier."""
        if descriptor is not None:
            self._map[descriptor] = _Readable(descriptor)
        try:
            wasyncore.loop(
                timeout=max(0.0, min(seconds, _PIECE_S)),
                map=self._map,
                use_poll=hasattr(select, "poll"),
                count=1,
            )
        finally:
            if descriptor is not None:
                self._map.pop(descriptor, None)
        self._waiting.answer_all()
        self._close_slow()

    def _close_slow(self) -> None:
        """Close the connections that last too long, and the oldest where there are too many."""
        oldest_first = sorted(self._server.active_channels.values(), key=lambda one: one.creation_time)
        spare = len(oldest_first) - MAX_CONNECTIONS
        since_s = time.time() - REQUEST_TIMEOUT_S
        for place, channel in enumerate(oldest_first):
            if place < spare or channel.creation_time < since_s:
                channel.handle_close()

    def close(self) -> None:
        """Release the socket and every connection."""
        self._server.close()
        wasyncore.close_all(self._map, ignore_all=True)


class _Requests:
    """Where waitress leaves what is to be answered; it would be a pool of threads elsewhere."""

    def __init__(self) -> None:
        self._tasks: list[Any] = []

    def set_thread_count(self, count: int) -> None:
        pass

    def add_task(self, task: Any) -> None:
        self._tasks.append(task)

    def answer_all(self) -> None:
        while self._tasks:
            channel = self._tasks.pop(0)
            # One request for each connection: who asks for more than he reads would be waited for.
            if channel.requests:
                channel.requests[0].headers["CONNECTION"] = "close"
                channel.service()

    def shutdown(self, cancel_pending: bool = True, timeout: float = 5) -> bool:
        self._tasks.clear()
        return True


class _Readable:
    """The descriptor that is waited for, among the sockets: the wait ends when it can be read."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor

    def fileno(self) -> int:
        return self._descriptor

    def readable(self) -> bool:
        return True

    def writable(self) -> bool:
        return False

    def handle_read_event(self) -> None:
        pass

    def handle_close(self) -> None:
        pass
