"""`--fleet --scheduler`: the same report from the workers of a real dask cluster."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import threading
from collections.abc import Iterator
from contextlib import AbstractContextManager, suppress
from typing import Any

import distributed
import pytest

from reconciler.emulator import Effect, Fault, Store, create_app, running
from tests.cli.conftest import Reconciler, write
from tests.cli.dask_cluster import FATAL_FILE, HOSTILE, HOSTILE_FILE, DaskCluster, dask_cluster
from tests.conftest import FIGURE

TOKEN = "tell-nobody-1"
SECRET = "swordfish-of-the-worker"
HEAD = """\
apiVersion: reconciler/v1
stack: {name}
targets: {{there: {{kind: modelarts, endpoint: '{url}', project_id: {name}}}}}
variables:
  token: {{env: FLEET_TOKEN, sensitive: true}}
  lr: {{default: "0.1"}}
jobs:
"""
JOB = """\
  job-{n}:
    algorithm:
      code_dir: obs://b/code/
      boot_file: obs://b/code/train.py
      engine: {{engine_id: pytorch_1.8.0-cuda_10.2-py_3.7-ubuntu_18.04-x86_64}}
      parameters: {{lr: "${{var.lr}}"}}
      environments: {{TOKEN: "${{var.token}}"}}
    spec: {{resource: {{flavor_id: modelarts.vm.cpu.2u}}}}
"""


def a_cluster(workers: int) -> AbstractContextManager[DaskCluster]:
    """The workers have their own credentials, and the value of a secret the client lacks."""
    environ = {name: value for name, value in os.environ.items() if not name.startswith("RECONCILER_")}
    return dask_cluster({**environ, "MODELARTS_AUTH_TOKEN": TOKEN, "FLEET_TOKEN": SECRET}, workers)


@pytest.fixture(scope="module")
def cluster() -> Iterator[DaskCluster]:
    with a_cluster(3) as running_cluster:
        yield running_cluster


@pytest.fixture(scope="module")
def hostile_cluster() -> Iterator[DaskCluster]:
    """Workers that turn hostile on request."""
    with a_cluster(2) as running_cluster:
        yield running_cluster


class SlowService:
    """A service that responds after 50 ms, and runs a callback at its nth request."""

    def __init__(self, store: Store) -> None:
        self._requests = 0
        self._pause = threading.Event()
        self._goes_on = threading.Event()
        self._goes_on.set()
        self.at: tuple[int, Any] = (0, None)
        delay = Fault(Effect.DELAY, delay_s=0.05, count=None)
        self.app = create_app(store, token=TOKEN, faults=[delay], sleep=self._sleep)

    def _sleep(self, seconds: float) -> None:
        self._requests += 1
        if self._requests == self.at[0]:
            self.at[1]()
        self._goes_on.wait()
        self._pause.wait(seconds)

    def stand(self) -> None:
        """Stop responding until resumed."""
        self._goes_on.clear()

    def go_on(self) -> None:
        """Resume responding."""
        self._goes_on.set()


@pytest.fixture
def slow_service() -> Iterator[tuple[str, SlowService]]:
    with Store() as store:
        service = SlowService(store)
        with running(service.app) as url:
            yield url, service


def write_stacks(url: str, count: int, jobs: int = 3) -> None:
    for number in range(count):
        name = f"s{number:02}"
        text = HEAD.format(name=name, url=url) + "".join(JOB.format(n=n) for n in range(jobs))
        write(text, f"fleet/team-{number % 3}/{name}/stack.yaml")


def without_times(text: str) -> Any:
    return json.loads(re.sub(r'"created_at": "[^"]*"', '"created_at": ""', text))


def test_report_is_the_same_after_a_worker_is_killed(
    reconciler: Reconciler, cluster: DaskCluster, slow_service: tuple[str, SlowService]
) -> None:
    url, service = slow_service
    write_stacks(url, 24)
    write(HEAD.format(name="broken", url=url) + "  a: {algorithm: {}, oops: 1}\n", "fleet/broken/stack.yaml")
    with reconciler.patch.context() as environment:
        environment.setenv("MODELARTS_AUTH_TOKEN", TOKEN)
        environment.setenv("FLEET_TOKEN", SECRET)
        alone = reconciler("plan --fleet --json fleet")
    service.at = service._requests + 12, cluster.kill_worker
    there = reconciler("plan --fleet --json --scheduler", cluster.address, "fleet")
    assert (there.code, len(cluster.workers)) == (alone.code, 2) == (65, 2)
    assert without_times(there.out) == without_times(alone.out)
    assert there.document["summary"]["counts"]["create"] == 72
    assert SECRET not in there.out + there.err


def test_stack_that_kills_every_worker_fails_alone(
    reconciler: Reconciler, cluster: DaskCluster, slow_service: tuple[str, SlowService]
) -> None:
    write_stacks(slow_service[0], 4)
    write("", f"fleet/team-0/s00/{FATAL_FILE}")
    result = reconciler("plan --fleet --json --scheduler", cluster.address, "fleet")
    by_root = {entry["root"]: entry for entry in result.document["stacks"]}
    assert result.code == 8
    assert by_root["team-0/s00"]["error"]["message"].startswith(
        "the worker failed: it could not run the check, or workers were lost"
    )
    assert [entry["exit_code"] for entry in by_root.values()].count(0) == 3


@pytest.mark.parametrize("kind", HOSTILE)
def test_response_of_a_hostile_worker_executes_nothing_and_fails_its_stack(
    reconciler: Reconciler,
    hostile_cluster: DaskCluster,
    slow_service: tuple[str, SlowService],
    record_property: Any,
    kind: str,
) -> None:
    write_stacks(slow_service[0], 2)
    file = write(kind, f"fleet/team-0/s00/{HOSTILE_FILE}")
    result = reconciler("plan --fleet --json --scheduler", hostile_cluster.address, "fleet")
    codes = {entry["root"]: entry["exit_code"] for entry in result.document["stacks"]}
    assert (result.code, codes) == (8, {"team-0/s00": 8, "team-1/s01": 0})
    trace = file.with_suffix(".trace")
    readers = trace.read_text(encoding="utf-8").split() if trace.exists() else []
    assert str(os.getpid()) not in readers
    record_property(FIGURE, ["hostile workers of a fleet", 1])


class Wire:
    """A connection to the scheduler that records what the client sends."""

    def __init__(self, address: str) -> None:
        host, _, port = address.removeprefix("tcp://").partition(":")
        self._to = (host, int(port))
        self._listening = socket.create_server(("127.0.0.1", 0))
        self.address = f"tcp://127.0.0.1:{self._listening.getsockname()[1]}"
        self.sent = bytearray()
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                client, _ = self._listening.accept()
                scheduler = socket.create_connection(self._to)
                threading.Thread(target=self._pass_on, args=(client, scheduler, True), daemon=True).start()
                threading.Thread(target=self._pass_on, args=(scheduler, client, False), daemon=True).start()

    def _pass_on(self, source: socket.socket, sink: socket.socket, is_client: bool) -> None:
        with suppress(OSError), source, sink:
            while data := source.recv(65536):
                if is_client:
                    self.sent += data
                sink.sendall(data)

    def close(self) -> None:
        self._listening.close()


@pytest.fixture
def wire(cluster: DaskCluster) -> Iterator[Wire]:
    wire = Wire(cluster.address)
    yield wire
    wire.close()


def test_workers_get_variable_values_but_no_environment(
    reconciler: Reconciler, wire: Wire, slow_service: tuple[str, SlowService]
) -> None:
    secrets = {
        "MODELARTS_AUTH_TOKEN": "token-of-the-client",
        "HUAWEICLOUD_SDK_AK": "key-of-the-client",
        "HUAWEICLOUD_SDK_SK": "secret-key-of-the-client",
        "FLEET_TOKEN": "variable-of-the-client",
        "RECONCILER_RECORDS": "postgresql://me:password-of-the-client@127.0.0.1:1/records",
    }
    for name, value in secrets.items():
        reconciler.setenv(name, value)
    write_stacks(slow_service[0], 2)
    reconciler.ends(0, "plan --fleet --json --scheduler", wire.address, "--var", "lr=0.777", "fleet")
    assert b"0.777" in wire.sent  # so that the sent data can be read
    assert [name for name, value in secrets.items() if value.encode() in wire.sent] == []
    assert b"password-of-the-client" not in wire.sent


@pytest.mark.parametrize(
    ("more", "why"),
    [
        (["--var", "token=abcdef-secret"], "declares token as sensitive"),
        (["--records", "postgresql://me:abcdef-secret@h/r"], "a password is never sent"),
    ],
)
def test_secret_on_the_command_line_is_wrong_usage_and_not_sent(
    reconciler: Reconciler, wire: Wire, slow_service: tuple[str, SlowService], more: list[str], why: str
) -> None:
    write_stacks(slow_service[0], 2)
    result = reconciler("plan --fleet --scheduler", wire.address, *more, "fleet")
    assert (result.code, result.out, bytes(wire.sent)) == (64, "", b"")
    assert why in result.err
    assert "abcdef-secret" not in result.err


def test_interrupt_cancels_tasks_not_yet_started(
    reconciler: Reconciler, cluster: DaskCluster, slow_service: tuple[str, SlowService]
) -> None:
    url, service = slow_service
    write_stacks(url, 60)

    def interrupt() -> None:
        service.stand()
        os.kill(os.getpid(), signal.SIGINT)

    service.at = service._requests + 6, interrupt
    result = reconciler("plan --fleet --json --scheduler", cluster.address, "fleet")
    service.go_on()
    assert (result.code, result.out) == (130, "")
    # The workers are idle: running tasks have ended, and no other was started.
    reconciler.ends(0, "validate --fleet --scheduler", cluster.address, "fleet")
    assert service._requests < 50


def test_apply_on_workers_is_interrupted_cleanly(
    reconciler: Reconciler, cluster: DaskCluster, slow_service: tuple[str, SlowService]
) -> None:
    url, service = slow_service
    write_stacks(url, 20, jobs=1)
    created = service.app.store.jobs
    reconciler.ends(0, "apply --fleet --yes --scheduler", cluster.address, "fleet/team-0")
    assert len(created()) == 7

    def interrupt() -> None:
        service.stand()
        os.kill(os.getpid(), signal.SIGINT)

    run = distributed.Client.run

    def resuming(*arguments: Any) -> Any:
        answer = run(*arguments)
        service.go_on()
        return answer

    reconciler.patch.setattr(distributed.Client, "run", resuming)
    # Besides the first plans, each stack was read once for its plan and once for its apply.
    plans = 20 * (service._requests // 14)
    service.at = service._requests + plans, interrupt
    result = reconciler("apply --fleet --yes --json --scheduler", cluster.address, "fleet")
    assert (result.code, {one["exit_code"] for one in result.document["stacks"]}) == (130, {0, 130})
    assert len(result.document["stacks"]) == 20
    assert 7 + result.document["summary"]["counts"]["done"] == len(created()) < 20


@pytest.mark.parametrize(
    ("address", "code", "message"),
    [
        ("tcp://127.0.0.1:1", 8, "the scheduler is unavailable"),
        ("127.0.0.1:8786", 64, '"127.0.0.1:8786" is not tcp://HOST:PORT'),
        ("http://127.0.0.1:8786", 64, "is not tcp://HOST:PORT"),
    ],
)
def test_unreachable_scheduler_is_reported(
    reconciler: Reconciler, address: str, code: int, message: str
) -> None:
    reconciler.patch.setattr("reconciler.fleet.CONNECT_S", 0.2)
    write_stacks("http://127.0.0.1:1", 1)
    run = reconciler.ends(code, "validate --fleet --scheduler", address, "fleet", out="", err=message)
    assert "OSError" not in run.err  # the message of the system, not the exception


@pytest.fixture
def lonely_scheduler() -> Iterator[DaskCluster]:
    """A scheduler without workers."""
    with dask_cluster(os.environ, workers=0) as cluster:
        yield cluster


def test_scheduler_without_workers_or_gone_is_unavailable(
    reconciler: Reconciler, lonely_scheduler: DaskCluster
) -> None:
    reconciler.patch.setattr("reconciler.fleet.NO_WORKERS_S", 0.1)
    write_stacks("http://127.0.0.1:1", 1)
    command = ("validate --fleet --scheduler", lonely_scheduler.address, "fleet")
    reconciler.ends(8, *command, out="", err="has no workers")
    nthreads = distributed.Client.nthreads

    def nthreads_after_a_kill(client: Any) -> Any:
        with suppress(ProcessLookupError):
            os.kill(lonely_scheduler.scheduler, signal.SIGKILL)
        return nthreads(client)  # type: ignore[no-untyped-call]

    reconciler.patch.setattr(distributed.Client, "nthreads", nthreads_after_a_kill)
    reconciler.ends(8, *command, out="", err="the connection to")
