"""The emulator on a socket."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
import requests
from click.testing import CliRunner
from werkzeug.test import Client

from reconciler.cli.exits import Stopped
from reconciler.cli.main import cli
from reconciler.emulator import ResponseLost, Server, Store, chaos, create_app, running, serve
from tests.emulator.conftest import Api, a_job
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


SEARCH = "/v2/project/training-job-searches"
ROOT = Path(__file__).parents[2]


@contextmanager
def served(*options: str) -> Iterator[str]:
    process = subprocess.Popen(
        [sys.executable, "-m", "reconciler", "emulator", "serve", *options],
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )
    try:
        assert process.stdout is not None
        yield process.stdout.readline().removeprefix("listening on ").strip()
    finally:
        process.send_signal(signal.SIGTERM)
        process.communicate(timeout=10)
    assert process.returncode == 128 + signal.SIGTERM


def test_signal_during_a_request_stops_the_server(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    def receive(*_: object) -> None:
        raise Stopped(signal.SIGTERM)

    def ask(server: Server) -> None:
        client = cleanup.enter_context(socket.create_connection((server.host, server.port)))
        client.sendall(b"GET")
        timer = threading.Timer(5, server.stop)
        cleanup.callback(timer.cancel)
        timer.start()

    monkeypatch.setattr("waitress.channel.HTTPChannel.received", receive)
    with ExitStack() as cleanup, pytest.raises(Stopped):
        serve(create_app(store), on_ready=ask)


# ── the address ────────────────────────────────────────────────────────────────────────────────

SETTINGS = "/emulator/settings"


def test_emulator_listens_on_localhost_by_default() -> None:
    with served() as url:
        assert url.startswith("http://127.0.0.1:")
        assert requests.get(f"{url}{SETTINGS}", timeout=10).status_code == 200


def test_emulator_on_a_public_address_has_no_control_api() -> None:
    with served("--host", "0.0.0.0") as url:
        here = url.replace("0.0.0.0", "127.0.0.1")
        assert requests.get(f"{here}{SETTINGS}", timeout=10).status_code == 404


# ── options ────────────────────────────────────────────────────────────────────────────────────


def test_strict_service_with_item_offsets_refuses_unknown_flavors_and_counts_items() -> None:
    with served("--strict", "--item-offsets") as url, requests.Session() as session:
        body = a_job(edits={"spec.resource.flavor_id": "my.flavor"})
        refused = session.post(f"{url}{JOBS}", json=body, timeout=10).json()
        assert refused["error_code"] == "ModelArts.2781"
        for name in ("a", "b", "c"):
            assert session.post(f"{url}{JOBS}", json=a_job(name), timeout=10).status_code == 201
        search = {"offset": 1, "limit": 2, "order": "asc"}
        items = session.post(f"{url}{SEARCH}", json=search, timeout=10).json()["items"]
        settings = session.get(f"{url}{SETTINGS}", timeout=10).json()
    assert [job["metadata"]["name"] for job in items] == ["b", "c"]
    assert settings == {"offset_counts": "items"}


def test_security_token_option_without_access_key_is_wrong_usage() -> None:
    result = CliRunner().invoke(cli, ["emulator", "serve", "--security-token", "t"])
    assert result.exit_code == 2
    assert "goes with --access-key" in result.output


def test_flavors_and_engines_of_another_account_are_listed_among_the_others() -> None:
    with Store() as store:
        client = Client(create_app(store, flavors=("my.flavor",), engines=("my-engine",)))
        flavors = client.get("/v2/project/training-job-flavors").get_json()
        engines = client.get("/v2/project/training-job-engines").get_json()
    listed = [one["flavor_id"] for one in flavors["flavors"]]
    assert {"my.flavor", "modelarts.vm.cpu.2u"} <= set(listed)
    assert flavors["total_count"] == len(listed)
    assert "my-engine" in [one["engine_id"] for one in engines["items"]]


def test_strict_catalogue_takes_no_more_flavors() -> None:
    result = CliRunner().invoke(cli, ["emulator", "serve", "--strict", "--flavor", "my.flavor"])
    assert result.exit_code == 2
    assert "--flavor and --engine cannot be used with --strict" in result.output
    with Store() as store, pytest.raises(ValueError, match="strict catalogue"):
        create_app(store, strict_catalogue=True, engines=("my-engine",))


# ── chaos: a share of all answers fails at random, the same ones for the same seed ─────────────


def outcomes(client: Client, count: int, body: Callable[[int], Any] = lambda _: {}) -> list[Any]:
    """The responses to searches, or to creates; None where the connection closed."""
    found: list[Any] = []
    for number in range(count):
        try:
            sent = body(number)
            found.append(client.post(JOBS if "metadata" in sent else SEARCH, json=sent))
        except ResponseLost:
            found.append(None)
    return found


def statuses(found: list[Any]) -> list[int | None]:
    return [one.status_code if one is not None else None for one in found]


@pytest.mark.parametrize("probability", [0.05, 0.5])
def test_chaos_fails_its_share_of_answers_repeatably(store: Store, probability: float) -> None:
    runs = [outcomes(Client(create_app(store, faults=chaos(probability, seed))), 200) for seed in (7, 7, 8)]
    count = Counter(statuses(runs[0]))
    assert count.keys() == {200, 429, 500, 503, 504, None}, "every kind comes"
    assert 200 - count[200] == pytest.approx(200 * probability, rel=0.5)
    throttled = next(one for one in runs[0] if one is not None and one.status_code == 429)
    assert (throttled.headers["Retry-After"], throttled.json["error_code"]) == ("1", "APIGW.0308")
    assert statuses(runs[0]) == statuses(runs[1]) != statuses(runs[2])


def test_chaos_fails_some_requests_after_their_effect_and_spares_the_control_api(store: Store) -> None:
    client = Client(create_app(store, control=True, faults=chaos(1.0, seed=3)))
    assert 200 not in statuses(outcomes(client, 60, lambda number: a_job(f"job-{number}")))
    assert 5 < store.count("project") < 40
    assert {client.get("/emulator/clock").status_code for _ in range(30)} == {200}
    assert client.delete("/emulator/faults").status_code == 204
    assert statuses(outcomes(client, 1)) == [200]


# ── the command line ───────────────────────────────────────────────────────────────────────────────


def test_served_emulator_with_chaos_fails_requests_and_without_noise_echoes_jobs() -> None:
    with served("--chaos", "0.3", "--chaos-seed", "4", "--no-noise") as url:
        count: Counter[int | None] = Counter()
        with requests.Session() as session:
            for _ in range(200):
                with suppress(requests.ConnectionError):
                    count[session.post(f"{url}{SEARCH}", json={}, timeout=10).status_code] += 1
        count[None] = 200 - count.total()
        assert {429, 500, None} < count.keys()
        assert 200 - count[200] == pytest.approx(60, abs=30)
        with requests.Session() as session:
            session.delete(f"{url}/emulator/faults", timeout=10)
            made = session.post(f"{url}{JOBS}", json=a_job("plain"), timeout=10).json()
    assert made["algorithm"] == a_job()["algorithm"], "without noise a job is answered as it was sent"


@pytest.mark.parametrize("share", ["-0.1", "1.5", "many"])
def test_chaos_share_out_of_range_is_refused(share: str) -> None:
    assert CliRunner().invoke(cli, ["emulator", "serve", "--chaos", share]).exit_code == 2
