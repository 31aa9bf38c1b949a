"""The emulator on a socket."""

from __future__ import annotations

import os
import socket
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress

import pytest
import requests

from reconciler.emulator import Server, running, serve
from tests.emulator.conftest import Api
from tests.processes import Waited

JOBS = "/v2/project/training-jobs"


def test_running_emulator_serves_until_its_context_ends(api: Api) -> None:
    job_id = api.create("over-http")
    with running(api.app) as url:
        assert url.startswith("http://127.0.0.1:")
        assert requests.get(f"{url}{JOBS}/{job_id}", timeout=5).json()["metadata"]["name"] == "over-http"
    with pytest.raises(requests.ConnectionError):
        requests.get(url, timeout=5)


def test_port_is_known_before_the_first_request(api: Api) -> None:
    ready: list[Server] = []
    listening = threading.Event()

    def on_ready(server: Server) -> None:
        ready.append(server)
        listening.set()

    thread = threading.Thread(target=serve, args=(api.app,), kwargs={"on_ready": on_ready})
    thread.start()
    assert listening.wait(5)
    assert requests.get(f"{ready[0].url}/nowhere", timeout=5).status_code == 404
    ready[0].stop()
    thread.join(5)
    assert not thread.is_alive()


def test_stopping_does_not_wait_for_idle_connections(api: Api) -> None:
    with requests.Session() as session:
        with running(api.app) as url:
            session.get(f"{url}/nowhere", timeout=5)
            waited = Waited(os.getpid())
        assert waited.seconds < 2


def test_address_in_use_is_an_error(api: Api) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        with pytest.raises(OSError, match="in use"):
            serve(api.app, port=taken.getsockname()[1])


def test_kept_connection_answers_without_delay(api: Api) -> None:
    # Head and body in two packets would cost 40 ms a request where Nagle's algorithm meets delayed ACKs.
    path = f"{JOBS}/{api.create()}"
    with running(api.app) as url, requests.Session() as session:
        times = []
        for _ in range(30):
            begun = time.perf_counter()
            session.get(url + path, timeout=5)
            times.append(time.perf_counter() - begun)
    # Each of them; a busy machine makes most of them longer.
    assert min(times) < 0.03


@pytest.mark.parametrize(("callers", "at_once"), [(1, 1), (3, 3), (6, 4)])
def test_server_serves_as_many_at_once_as_it_has_threads(callers: int, at_once: int) -> None:
    inside, most, lock, may_go = 0, 0, threading.Lock(), threading.Barrier(at_once + 1)

    def app(environ: object, start_response: Callable[..., object]) -> list[bytes]:
        nonlocal inside, most
        with lock:
            inside += 1
            most = max(most, inside)
        with suppress(threading.BrokenBarrierError):
            may_go.wait(5)
        with lock:
            inside -= 1
        start_response("200 OK", [("Content-Length", "0")])
        return []

    server = Server(app, threads=4)
    serving = threading.Thread(target=server.run)
    serving.start()
    with ThreadPoolExecutor(callers) as pool:
        answers = [pool.submit(requests.get, server.url, timeout=10) for _ in range(callers)]
        may_go.wait(5)
        may_go.abort()
        assert [answer.result().status_code for answer in answers] == [200] * callers
    server.stop()
    serving.join()
    assert most == at_once


def test_server_can_be_stopped_while_its_loop_ends(api: Api) -> None:
    for _ in range(25):
        with running(api.app) as url:
            requests.get(f"{url}/nowhere", timeout=5)


def test_stopping_and_closing_twice_does_nothing(api: Api) -> None:
    server = Server(api.app)
    server.stop()
    server.run()
    server.stop()
    server.close()
