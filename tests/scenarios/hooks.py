"""Moments of a run, counted, and the accidents that happen at them.

A process passes a *moment* right before and right after each request that it sends, and right before and
right after each commit of its record store. A moment is named by operation, object, and number of the
occurrence: `after StopTrainingJob a-r2 #1`, `before write #12`. Names, and not a bare count, since two
threads prefetch while a third one acts, in varying order.

A run with a log lists the moments; each later run has an accident at one of them. A run can also stand
still at each moment until resumed.
"""

from __future__ import annotations

import http.client
import io
import json
import os
import signal
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from types import FrameType
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import parse_qs, urlsplit

import requests
from requests.adapters import BaseAdapter, HTTPAdapter

if TYPE_CHECKING:
    from reconciler.records.dialects import Transaction

BEFORE, AFTER = "before", "after"
#: Catalog operations by path suffix.
CATALOG = {
    "training-job-flavors": "ShowTrainingJobFlavors",
    "training-job-engines": "ShowTrainingJobEngines",
    "training-quotas": "ShowTrainingQuotas",
}


class Accident(NamedTuple):
    """An accident at a moment: a signal, or an effect on a request, by its name without `before`."""

    at: str
    what: str


#: The process dies at once.
KILL = "SIGKILL"
#: The process stops with all threads until SIGCONT; here or at every moment.
STAND, EVERY = "SIGSTOP", "every moment"
#: A line in the log of moments: the program has handled a signal.
HANDLED = "signal handled"
#: Maximum seconds until a signal is handled; without a handler it ends the process.
HEARD_WITHIN_S = 10.0
#: Effects on a request: never arrives; takes effect but the connection closes, or no response comes.
LOST_BEFORE, LOST_AFTER, TIMED_OUT = "lost before", "lost after", "timed out"
#: Throttled; gateway timeout although it takes effect; garbled response.
THROTTLED, GAVE_UP, GARBLED = "throttled", "gave up", "garbled"
#: Takes effect during one or two signals, and no response comes.
HUNG = {name: f"{name}, hung" for name in ("SIGHUP", "SIGINT", "SIGTERM")}

Send = Callable[..., requests.Response]


def install(accidents: Sequence[Accident], log: str | None, clock_url: str | None) -> None:
    """Hook the requests and writes of this process, and simulate its clock."""
    from reconciler.modelarts.connect import WsgiAdapter
    from reconciler.records.database import Database

    watch = _Watch(accidents, log)
    for adapter in (WsgiAdapter, HTTPAdapter):
        _watch_requests(adapter, watch)
    _watch_writes(Database, watch)
    signal.signal(signal.SIGURG, lambda number, frame: None)
    _watch_signals(watch)
    do_not_sleep(clock_url)


class _Watch:
    """Counts the passed moments, and triggers accidents."""

    def __init__(self, accidents: Sequence[Accident], log: str | None) -> None:
        self._what_at = {accident.at: accident.what for accident in accidents}
        self._passed: Counter[str] = Counter()
        self._lock, self._turn = threading.Lock(), threading.RLock()
        self._log = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600) if log else None
        self.names: dict[str, str] = {}
        self.heard = threading.Event()

    def count(self, what: str) -> str:
        with self._lock:
            self._passed[what] += 1
            return f"{what} #{self._passed[what]}"

    def accident(self, name: str) -> str | None:
        return self._what_at.get(name)

    def note(self, line: str) -> None:
        if self._log is not None:
            os.write(self._log, (line + "\n").encode())

    def passes(self, when: str, name: str) -> None:
        """Pass a moment, which may end the process."""
        moment = f"{when} {name}"
        with self._turn:
            self.note(moment)
            names = (moment, self.count("moment"), EVERY)
            whats = [what for one in names if (what := self.accident(one))]
            if STAND in whats:
                # To this thread, which handles it before continuing.
                signal.pthread_kill(threading.get_ident(), signal.SIGSTOP)
        for what in whats:
            if what != STAND:
                self.heard.clear()
                os.kill(os.getpid(), signal.Signals[what])
                # The main thread takes it before this one goes on, however busy the machine is. If it was
                # about to wait, it sleeps with the signal pending until another one interrupts its wait.
                main, ends_s = threading.main_thread().ident, time.monotonic() + HEARD_WITHIN_S
                while main and not self.heard.wait(0.1) and time.monotonic() < ends_s:
                    signal.pthread_kill(main, signal.SIGURG)

    def learn_names(self, response: requests.Response) -> None:
        """Learn job names by id."""
        try:
            told = json.loads(response.content)
            for job in told.get("items", [told]):
                self.names[job["metadata"]["id"]] = job["metadata"]["name"]
        except (ValueError, KeyError, TypeError, AttributeError):
            pass  # a response without a job

    def name(self, request: requests.PreparedRequest) -> str:
        """Return the operation and job of a request."""
        url, body = urlsplit(str(request.url)), json.loads(request.body or b"{}")
        match url.path.split("/")[3:]:
            case ["training-jobs"]:
                return f"CreateTrainingJob {body['metadata']['name']}"
            case ["training-job-searches"]:
                filters = [
                    f"{f['key']} {f['operator']} {','.join(f['value'])}" for f in body.get("filters", ())
                ]
                return " ".join(["ListTrainingJobs", *filters])
            case ["training-job-names"]:
                return f"ValidateTrainingJobName {parse_qs(url.query)['job_name'][0]}"
            case [catalog] if catalog in CATALOG:
                return CATALOG[catalog]
            case ["training-jobs", job_id]:
                operation = {"GET": "ShowTrainingJobDetails", "PUT": "ChangeTrainingJobDescription"}
                return f"{operation[str(request.method)]} {self.names.get(job_id, job_id)}"
            case ["training-jobs", job_id, "actions"]:
                return f"StopTrainingJob {self.names.get(job_id, job_id)}"
            case ["training-jobs", job_id, "tasks", _, "logs", "preview"]:
                return f"ShowTrainingJobLogsPreview {self.names.get(job_id, job_id)}"
        raise AssertionError(f"no name for {request.method} {request.url}")


def _watch_requests(adapter: type[BaseAdapter], watch: _Watch) -> None:
    sends: Send = adapter.send

    def send(self: BaseAdapter, request: requests.PreparedRequest, **options: Any) -> requests.Response:
        name = watch.count(watch.name(request))
        watch.passes(BEFORE, name)
        response = _suffer(watch.accident(name), request, lambda: sends(self, request, **options))
        watch.learn_names(response)
        response.raw = io.BytesIO(response.content)  # for the next reader
        response.headers.pop("Content-Encoding", None)
        watch.passes(AFTER, name)
        return response

    adapter.send = send  # type: ignore[assignment, method-assign]


def _suffer(
    accident: str | None, request: requests.PreparedRequest, send: Callable[[], requests.Response]
) -> requests.Response:
    if accident == LOST_BEFORE:
        raise requests.ConnectionError("Connection aborted.", ConnectionResetError("reset by peer"))
    if accident == THROTTLED:
        return _answer(request, 429, b'{"error_code":"APIGW.0308","error_msg":"too many requests"}')
    response = send()
    if accident == LOST_AFTER:
        raise requests.ConnectionError("Connection aborted.", http.client.RemoteDisconnected("closed"))
    if accident == TIMED_OUT:
        raise requests.ReadTimeout("Read timed out.")
    if accident == GAVE_UP:
        return _answer(request, 504, b'{"error_code":"APIGW.0201","error_msg":"backend timeout"}')
    if accident in HUNG.values():
        while True:  # simultaneous signals are seen once
            os.kill(os.getpid(), signal.Signals[str(accident).partition(",")[0]])
            time.sleep(0.05)
    if accident == GARBLED:
        return _answer(request, response.status_code, response.content[: len(response.content) // 2] or b"{")
    return response


def _answer(request: requests.PreparedRequest, status: int, content: bytes) -> requests.Response:
    response = requests.Response()
    response.status_code, response._content, response.request = status, content, request
    response.url = str(request.url)
    if status == 429:
        response.headers["Retry-After"] = "1"
    return response


def _watch_signals(watch: _Watch) -> None:
    set_handler = signal.signal

    def watched(number: int, handler: Any) -> Any:
        def handle(number: int, frame: FrameType | None) -> None:
            try:
                handler(number, frame)
            finally:
                watch.note(HANDLED)
                watch.heard.set()

        return set_handler(number, handle if callable(handler) else handler)

    signal.signal = watched  # type: ignore[assignment]


def _watch_writes(database: Any, watch: _Watch) -> None:
    writing = database.writing

    @contextmanager
    def watched(self: Any) -> Iterator[Transaction]:
        name = ""
        with writing(self) as connection:
            yield connection
            name = watch.count("write")
            watch.passes(BEFORE, name)
        watch.passes(AFTER, name)

    database.writing = watched


def do_not_sleep(clock_url: str | None) -> None:
    """Advance the clock of the service instead: at a URL, or of the local target."""
    from reconciler.modelarts import local as local_target
    from reconciler.modelarts.clock import SystemClock

    def put_local_clock_forward(clock: Any, seconds: float) -> None:
        clock._store.clock.advance(seconds=seconds)

    def put_clock_forward(clock: Any, seconds: float) -> None:
        if clock_url is not None:
            place = urlsplit(clock_url)
            token = {"X-Auth-Token": os.environ.get("MODELARTS_AUTH_TOKEN", "")}
            connection = http.client.HTTPConnection(place.netloc)
            connection.request("POST", "/emulator/clock", json.dumps({"advance_s": seconds}), token)
            connection.getresponse().read()
            connection.close()

    local_target._LocalClock.sleep = put_local_clock_forward  # type: ignore[method-assign, assignment]
    SystemClock.sleep = put_clock_forward  # type: ignore[method-assign, assignment]
