"""A piece of work in a process of its own, which can be ended at any moment, whatever it hangs on.

A thread cannot be ended from outside, and not every wait has a time limit: a name that is looked up, a file
system that has gone away. A process can; and it takes along its memory, its files and its threads. It sends
messages as JSON lines, the last of them at its end. What it was told to leave alone by a signal to the whole
group (Ctrl-C, the end of a service) it leaves to the process that watches, which asks it to stop.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from enum import StrEnum
from types import FrameType
from typing import Any, NoReturn, Protocol

#: What has only looked ends so many seconds after it was asked to; after that it is killed.
UNWIND_S = 1.0
#: Calls that change something and are in flight may take so long to be answered and recorded.
APPLY_GRACE_S = 90.0
#: What comes after the result may take so long: notifications have limits of their own.
AFTERMATH_S = 60.0
#: No check has so much to say.
_MOST_BYTES = 64 * 1024 * 1024
_CHUNK = 1 << 16

Message = Mapping[str, Any]


class StopRequested(BaseException):
    """The process was asked to stop while it only looked; no error that anybody should catch on the way."""


class Waiter(Protocol):
    """Waits for the process that watches, and does meanwhile what is to be done there."""

    def wait(self, seconds: float, descriptor: int | None = None) -> None:
        """Return when the time is over, when there is something to be read, or a little earlier."""
        ...

    def release(self) -> None:
        """Let go of what a new process has inherited and must not keep."""
        ...


class ProcessStage(StrEnum):
    """What a process is doing: that decides how it may be ended."""

    LOOKING = "looking"
    APPLYING = "applying"
    ENDING = "ending"


#: How long a process may go on after it was asked to stop.
_GRACE_S = {
    ProcessStage.LOOKING: UNWIND_S,
    ProcessStage.APPLYING: APPLY_GRACE_S,
    ProcessStage.ENDING: AFTERMATH_S,
}


class Work:
    """What the work sees of its process: whom it tells, and whether it is to stop.

    While it only looks, being asked to stop raises `StopRequested`. After `begin_to_apply` it sets `stop`.
    """

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self.stop = threading.Event()
        self._stage = ProcessStage.LOOKING

    def handle(self, number: int, frame: FrameType | None) -> None:
        """Take the signal that asks to stop."""
        self.stop.set()
        if self._stage is ProcessStage.LOOKING:
            raise StopRequested

    def begin_to_apply(self, most_s: float | None) -> None:
        """From now on things are changed, for `most_s` seconds at most (None: the limit of the check).

        Raises:
            StopRequested: the process was asked to stop; nothing may be changed.
        """
        self._stage = ProcessStage.APPLYING
        if self.stop.is_set():
            raise StopRequested
        self._send({"stage": ProcessStage.APPLYING, "most_s": most_s})

    @property
    def is_given_up(self) -> bool:
        """Whether it was asked to stop while it only looked, whatever became of `StopRequested`."""
        return self.stop.is_set() and self._stage is ProcessStage.LOOKING

    @property
    def grace_s(self) -> float:
        """How long it may go on after it was asked to stop."""
        return _GRACE_S[self._stage]

    @property
    def has_sent_result(self) -> bool:
        """Whether the result was sent."""
        return self._stage is ProcessStage.ENDING

    def send_result(self, result: Message) -> None:
        """Send what was found; what comes afterwards changes nothing of it."""
        self._stage = ProcessStage.ENDING
        self._send({"stage": ProcessStage.ENDING, "result": result})

    def send_more(self, fields: Message) -> None:
        """Send what was not known when the result was sent."""
        self._send({"more": fields})

    def _send(self, message: Message) -> None:
        data = json.dumps(message, ensure_ascii=True).encode() + b"\n"
        while data:
            data = data[os.write(self._descriptor, data) :]


@dataclass
class Ended:
    """How a process ended: its result, if it came so far, and what cut it short."""

    result: dict[str, Any] | None = None
    is_out_of_time: bool = False
    is_stop_requested: bool = False
    was_applying: bool = False
    was_killed: bool = False
    status: int = 0


@dataclass
class _Process:
    """A process that was started, as the one that watches sees it."""

    pid: int
    descriptor: int
    lifeline: int
    limit_s: float
    ended: Ended = field(default_factory=Ended)
    stage: ProcessStage = ProcessStage.LOOKING
    _began_s: float = field(default_factory=time.monotonic)
    _ends_s: float | None = None
    _kill_s: float | None = None
    _read: bytearray = field(default_factory=bytearray)

    def __post_init__(self) -> None:
        self._ends_s = self._began_s + self.limit_s

    @property
    def left_s(self) -> float:
        """How long nothing has to be done about it."""
        moments = [at_s for at_s in (self._ends_s, self._kill_s) if at_s is not None]
        return max(0.0, min(moments, default=time.monotonic() + 1.0) - time.monotonic())

    def keep_limits(self, stops: int) -> None:
        """End it where its time is over, or all is to stop: in order first, and then at once."""
        now_s = time.monotonic()
        if stops and not self.ended.is_stop_requested:
            self.ended.is_stop_requested = True
            self._ask_to_stop(now_s)
        if stops > 1:
            self._kill_s = now_s
        if self._ends_s is not None and now_s >= self._ends_s:
            self._ends_s = None
            self.ended.is_out_of_time = True
            self._ask_to_stop(now_s)
        if self._kill_s is not None and now_s >= self._kill_s and not self.ended.was_killed:
            self._kill_s, self.ended.was_killed = None, True
            self._signal(signal.SIGKILL)

    def _ask_to_stop(self, now_s: float) -> None:
        grace_s = APPLY_GRACE_S if self.stage is ProcessStage.APPLYING else UNWIND_S
        self._kill_s = min(now_s + grace_s, self._kill_s or now_s + grace_s)
        self._signal(signal.SIGUSR1)

    def _signal(self, number: int) -> None:
        with suppress(ProcessLookupError):
            os.kill(self.pid, number)

    def receive(self) -> bool:
        """Read what it has sent; False if it has ended."""
        try:
            data = os.read(self.descriptor, _CHUNK)
        except BlockingIOError:
            return True
        if not data or len(self._read) > _MOST_BYTES:
            return False
        self._read += data
        while (end := self._read.find(b"\n")) >= 0:
            self._take(json.loads(self._read[:end]))
            del self._read[: end + 1]
        return True

    def _take(self, message: dict[str, Any]) -> None:
        if (stage := message.get("stage")) is not None:
            self.stage = ProcessStage(stage)
        if (most_s := message.get("most_s")) is not None and self._ends_s is not None:
            self._ends_s = min(self._ends_s, time.monotonic() + float(most_s))
        self.ended.was_applying |= self.stage is ProcessStage.APPLYING
        if "result" in message:
            self.ended.result = dict(message["result"])
            self._ends_s = time.monotonic() + AFTERMATH_S
        if "more" in message and self.ended.result is not None:
            self.ended.result |= message["more"]

    def reap(self) -> Ended:
        """Make sure that it is over, and nothing of it is left."""
        os.close(self.descriptor)
        os.close(self.lifeline)
        if self.stage is not ProcessStage.ENDING or self.ended.is_out_of_time:
            self._signal(signal.SIGKILL)
        _, self.ended.status = os.waitpid(self.pid, 0)
        return self.ended


def run_process(
    work: Callable[[Work], None],
    waiter: Waiter,
    limit_s: float,
    stops: Callable[[], int] = lambda: 0,
) -> Ended:
    """Run `work` in a process of its own, and return when that is over: nothing of it goes on after that.

    Work that takes longer than `limit_s` is asked to stop, and killed soon after. So is all work once there
    are `stops`: how often somebody wanted the end. Where it applies changes, the calls in flight may be
    answered first, unless the end was wanted twice.
    """
    process = _start(work, waiter, limit_s)
    is_running = True
    while is_running:
        process.keep_limits(stops())
        waiter.wait(process.left_s, process.descriptor)
        is_running = process.receive()
    return process.reap()


def _start(work: Callable[[Work], None], waiter: Waiter, limit_s: float) -> _Process:
    _flush_streams()
    reading, writing = os.pipe()
    watched, lifeline = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.close(reading)
        os.close(lifeline)
        _run_and_exit(work, waiter, writing, watched, limit_s)
    os.close(writing)
    os.close(watched)
    os.set_blocking(reading, False)
    return _Process(pid, reading, lifeline, limit_s)


def _run_and_exit(
    work: Callable[[Work], None], waiter: Waiter, writing: int, watched: int, limit_s: float
) -> NoReturn:
    """Do the work in the new process, and end it: nothing of the old one is unwound."""
    code = 1
    try:
        own = Work(writing)
        for name in ("SIGINT", "SIGTERM", "SIGHUP"):
            signal.signal(getattr(signal, name), signal.SIG_IGN)
        signal.signal(signal.SIGUSR1, own.handle)
        # Where both threads hang in a library, nobody else keeps the limit.
        signal.signal(signal.SIGALRM, signal.SIG_DFL)
        signal.setitimer(signal.ITIMER_REAL, limit_s + APPLY_GRACE_S + AFTERMATH_S)
        waiter.release()
        threading.Thread(target=_end_alone, args=(watched, own), name="lifeline", daemon=True).start()
        work(own)
        code = 0
    except (StopRequested, BrokenPipeError):
        pass
    finally:
        _flush_streams()
        os._exit(code)


def _end_alone(watched: int, work: Work) -> None:
    """End this process in order when the one that watches has been killed, and asks nobody to stop."""
    os.read(watched, 1)  # nobody writes: it returns at the end of the other process
    os.kill(os.getpid(), signal.SIGUSR1)
    time.sleep(work.grace_s)
    os.kill(os.getpid(), signal.SIGKILL)


def _flush_streams() -> None:
    """Write out what is buffered, so that it is written once, and by the process that said it."""
    with suppress(OSError, ValueError):
        sys.stdout.flush()
    with suppress(OSError, ValueError):
        sys.stderr.flush()
