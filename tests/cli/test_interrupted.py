"""A signal during a sleep: nothing more is sent, and the command ends within two seconds."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable
from typing import Annotated, TypeVar

import pytest
from pydantic import BaseModel, ConfigDict, GetPydanticSchema

from reconciler import __main__
from reconciler.cli import exits
from reconciler.emulator import Effect, Fault
from tests.cli.conftest import Reconciler, Service

CREATE, STOP = "CreateTrainingJob", "StopTrainingJob"
EXITS = {signal.SIGHUP: 129, signal.SIGINT: 130, signal.SIGTERM: 143}


Ended = TypeVar("Ended")


def throttled(service: Service, operation: str) -> None:
    service.app.faults.add(
        Fault(Effect.ANSWER, operation=operation, status=429, code="APIGW.0308", retry_after_s=60, count=None)
    )


def asked(service: Service, operation: str) -> int:
    return sum(request.operation == operation for request in service.app.requests)


def interrupt(number: int, when: Callable[[], bool], run: Callable[[], Ended]) -> Ended:
    """Run something like the main program; signal it once a condition holds, and check that it ends soon."""
    sent_s: list[float] = []

    def send() -> None:
        ends_s = time.monotonic() + 20
        while not when() and time.monotonic() < ends_s:
            time.sleep(0.01)
        time.sleep(0.1)
        sent_s.append(time.monotonic())
        ident = threading.main_thread().ident
        assert ident is not None
        signal.pthread_kill(ident, number)

    sending = threading.Thread(target=send)
    sending.start()
    with exits.handled_by(__main__._raise):
        result = run()
    assert time.monotonic() - sent_s[0] < 1.5, "waits end within a second"
    sending.join()
    return result


def interrupted(reconciler: Reconciler, code: int, when: Callable[[], bool], line: str) -> None:
    number = next(number for number, own in EXITS.items() if own == code)
    result = interrupt(number, when, lambda: reconciler(line))
    assert (result.code, "Traceback" in result.err) == (code, False), result


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


def test_signal_during_model_building_is_raised_afterwards() -> None:
    with pytest.raises(exits.Stopped, match=str(int(signal.SIGTERM))):
        _build_and_wait()
    assert Late.__pydantic_complete__
