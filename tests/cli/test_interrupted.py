"""What a signal does to a process that sleeps: nothing more is sent, and it ends within a second or two."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Callable
from typing import Annotated

import pytest
from pydantic import BaseModel, ConfigDict, GetPydanticSchema

from reconciler import __main__
from reconciler.cli import exits
from reconciler.emulator import Effect, Fault
from tests.cli.conftest import Reconciler, Service, manifest, write
from tests.cli.terminal import start
from tests.cli.test_adopt import UPDATE, by_hand
from tests.processes import Waited, wait_without_reaping

LIST, CREATE, STOP = "ListTrainingJobs", "CreateTrainingJob", "StopTrainingJob"
EXITS = {signal.SIGHUP: 129, signal.SIGINT: 130, signal.SIGTERM: 143}


def throttled(operation: str) -> Fault:
    return Fault(
        Effect.ANSWER, operation=operation, status=429, code="APIGW.0308", retry_after_s=60, count=None
    )


def asked(service: Service, operation: str) -> int:
    return sum(request.operation == operation for request in service.app.requests)


def interrupted(number: int, when: Callable[[], bool], *arguments: str) -> tuple[int, str]:
    """Run the command line, send a signal when something holds; returns the exit code and stderr."""
    process = start(*arguments, stdout=subprocess.DEVNULL)
    ends_s = time.monotonic() + 20
    while not when() and time.monotonic() < ends_s:
        time.sleep(0.02)
    time.sleep(0.2)
    waited = Waited(process.pid)
    process.send_signal(number)
    wait_without_reaping(process.pid)
    waited_s = waited.seconds
    _, err = process.communicate(timeout=20)
    assert waited_s < 1.5, "waits end within a second"
    return process.returncode, err


@pytest.mark.parametrize("number", EXITS)
def test_throttled_create_is_not_sent_after_the_signal(service: Service, number: int) -> None:
    write(manifest("a", url=service.url))
    service.app.faults.add(throttled(CREATE))
    code, err = interrupted(number, lambda: asked(service, CREATE) == 1, "apply", "--yes")
    assert code == EXITS[signal.Signals(number)], err
    assert asked(service, CREATE) == 1
    assert service.store.jobs() == []
    assert "Traceback" not in err


def test_throttled_terminate_is_not_sent_after_the_signal(reconciler: Reconciler, service: Service) -> None:
    reconciler.apply(manifest("a", url=service.url))
    service.app.faults.add(throttled(STOP))
    code, err = interrupted(signal.SIGINT, lambda: asked(service, STOP) == 1, "destroy", "--yes")
    assert (code, asked(service, STOP)) == (130, 1), err
    assert "a was marked as stopped, but not terminated" in err


def test_throttled_look_ends_with_the_signal_and_nothing_is_done(service: Service) -> None:
    write(manifest("a", url=service.url))
    service.app.faults.add(throttled(LIST))
    code, err = interrupted(signal.SIGINT, lambda: asked(service, LIST) >= 1, "apply", "--yes")
    assert (code, asked(service, CREATE), "Traceback" in err) == (130, 0, False), err


def test_wait_ends_with_the_signal_and_no_job_with_it(service: Service) -> None:
    write(manifest("a", url=service.url))
    arguments = ("apply", "--yes", "--wait", "completed", "--timeout", "1h")
    code, err = interrupted(signal.SIGTERM, lambda: len(service.store.jobs()) == 1, *arguments)
    assert (code, asked(service, STOP)) == (143, 0), err


def test_throttled_update_of_an_adoption_is_not_sent_after_the_signal(service: Service) -> None:
    write(manifest("a", url=service.url))
    job = by_hand(service)
    service.app.faults.add(throttled(UPDATE))
    code, err = interrupted(signal.SIGHUP, lambda: asked(service, UPDATE) == 1, "adopt", "a", job.id, "--yes")
    assert (code, asked(service, UPDATE), "Traceback" in err) == (129, 1, False), err
    assert service.store.find(job.id).body["metadata"]["description"] == "by hand"


class Late(BaseModel):
    """A model that is built on first use, when a signal arrives."""

    model_config = ConfigDict(defer_build=True)

    value: Annotated[
        int, GetPydanticSchema(lambda source, build: (os.kill(os.getpid(), signal.SIGTERM), build(int))[1])
    ]


def _build_and_wait() -> None:
    with exits.handled_by(__main__._raise):
        assert Late(value=1).value == 1
        signal.pause()


def test_signal_while_a_model_is_built_is_raised_once_it_is_built() -> None:
    with pytest.raises(exits.Stopped, match=str(int(signal.SIGTERM))):
        _build_and_wait()
    assert Late.__pydantic_complete__
