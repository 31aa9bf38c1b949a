"""Evaluate expressions in a child process that can be killed: see `worker`.

An expression that exceeds a limit fails alone: its process is killed, and a new one evaluates the others.
"""

from __future__ import annotations

import json
import os
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING, Any, Self

from reconciler.core.policy_expression import Answer, InvalidExpression, NotJudged, Question
from reconciler.errors import Interrupted

if TYPE_CHECKING:
    import subprocess

#: Limits for all expressions of a plan together, and for the process.
TIME_LIMIT_S, MEMORY_LIMIT = 10.0, 512 * 1024 * 1024
#: Number of values that the process holds at a time.
_BATCH = 100
#: Seconds between checks for a stop while waiting.
_PIECE_S = 0.1
#: The environment variables that the process gets: what Python needs to find its own parts.
_ENVIRONMENT = ("PATH", "LD_LIBRARY_PATH", "DYLD_LIBRARY_PATH", "PYTHONHOME", "SYSTEMROOT")
_START = (
    "import json, sys; sys.path[:] = json.loads(sys.argv[1]); "
    "from reconciler.expressions.worker import main; main(int(sys.argv[2]), int(sys.argv[3]))"
)
_TOO_SLOW = f"it exceeds the limit of {TIME_LIMIT_S:g} s for the policies of a plan"
_NO_TIME_LEFT = f"other policies used up the limit of {TIME_LIMIT_S:g} s for the policies of a plan"
_TOO_LARGE = f"it exceeds the limit of {MEMORY_LIMIT // 1024**2} MB of memory, or is nested too deeply"

_NO_PROCESS = "cannot start a process to evaluate it"


class _Failed(Exception):
    """There is no answer, and the process has ended. The message says why."""


class _TooSlow(_Failed):
    """No answer came in time."""


class Evaluator:
    """Answers questions (`ports.EvaluateExpressions`), all within one time limit.

    The process is started for the first question, and again after it was killed.
    """

    def __init__(self, stop: threading.Event | None = None) -> None:
        self._stop = stop
        self._ends_s = time.monotonic() + TIME_LIMIT_S
        self._process: subprocess.Popen[bytes] | None = None
        self._lines: SimpleQueue[bytes] = SimpleQueue()
        #: Indices of the values that the process holds.
        self._loaded: range | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._end()

    def __call__(
        self, questions: Sequence[Question], values: Sequence[Mapping[str, Any]]
    ) -> list[list[Answer]]:
        """Answer each question about each of its values.

        Each expression gets an equal share of the time first. Those that need more are asked again, one after
        the other, while time is left. One that exceeds a limit is `NotJudged` for all of its values.

        Raises:
            Interrupted: the program is stopping.
        """
        self._loaded = None  # the values of an earlier call
        answers: list[dict[int, Answer]] = [{} for _ in questions]
        failed: dict[int, str] = {}

        def ask(numbers: Sequence[int], share_s: float) -> list[int]:
            """Ask some questions, each for up to `share_s` seconds. Returns those that need more."""
            left_s, slow = dict.fromkeys(numbers, share_s), []
            for begin in range(0, len(values), _BATCH):
                batch = range(begin, min(begin + _BATCH, len(values)))
                for number in tuple(left_s):
                    question = questions[number]
                    places = [at for at in question.places if at in batch and at not in answers[number]]
                    if not places:
                        continue
                    request = {"ask": question.expression, "places": [at - begin for at in places]}
                    try:
                        if self._process is None or self._loaded != batch:
                            self._ask({"values": [values[place] for place in batch]}, self._left_s)
                            self._loaded = batch
                        began_s = time.monotonic()
                        results = self._ask(request, left_s[number])
                    except _Failed as error:
                        failed[number] = str(error)
                        del left_s[number]
                        slow += [number] if isinstance(error, _TooSlow) else []
                        continue
                    verdicts = (one if isinstance(one, bool) else NotJudged(*one) for one in results)
                    answers[number].update(zip(places, verdicts, strict=True))
                    left_s[number] -= time.monotonic() - began_s
            for number in left_s:
                failed.pop(number, None)
            return slow

        asked = [number for number, question in enumerate(questions) if question.places]
        slow = ask(asked, self._left_s / max(1, len(asked)))
        while slow and self._left_s:
            first, *slow = slow
            ask([first], self._left_s / (1 + len(slow)))
        return [
            [NotJudged(failed[number]) if number in failed else answers[number][at] for at in question.places]
            for number, question in enumerate(questions)
        ]

    def find_invalid(self, expressions: Sequence[str]) -> list[InvalidExpression | None]:
        """Return for each expression why it does not compile, or None."""
        problems: list[InvalidExpression | None] = []
        for text in expressions:
            try:
                problem = self._ask({"compile": text}, self._left_s / (len(expressions) - len(problems)))
                problems.append(None if problem is None else InvalidExpression(*problem))
            except _Failed as error:
                problems.append(InvalidExpression(str(error)))
        return problems

    @property
    def _left_s(self) -> float:
        return max(0.0, self._ends_s - time.monotonic())

    def _ask(self, request: Mapping[str, Any], limit_s: float) -> Any:
        """Send a request to the process and return the answer.

        Raises:
            _Failed: it takes too long, or the process has ended.
            Interrupted: the program is stopping.
        """
        process = self._process or self._start()
        ends_s = min(self._ends_s, time.monotonic() + limit_s)
        assert process.stdin is not None
        with suppress(BrokenPipeError):  # the reason is found below
            process.stdin.write(json.dumps(request).encode() + b"\n")
            process.stdin.flush()
        while True:
            if self._stop is not None and self._stop.is_set():
                raise Interrupted("while policies were evaluated")
            left_s = ends_s - time.monotonic()
            with suppress(Empty):
                line = self._lines.get(timeout=max(0.0, min(left_s, _PIECE_S)))
                break
            if left_s <= 0:
                self._end()
                raise _TooSlow(_TOO_SLOW)
        if line:
            return json.loads(line)
        self._end()
        raise _Failed(_TOO_LARGE)

    def _start(self) -> subprocess.Popen[bytes]:
        """Start the process, and wait until it is ready.

        Raises:
            _Failed: it cannot be started, or not in time.
            PackageMissing: the extra `policies` is not installed.
        """
        if not self._left_s:
            raise _TooSlow(_NO_TIME_LEFT)
        import subprocess  # most plans have no policies

        from reconciler.extras import require

        require("cel")
        limits = str(int(TIME_LIMIT_S) + 1), str(MEMORY_LIMIT)
        try:
            path = json.dumps([str(Path(place).absolute()) for place in sys.path])
            process = subprocess.Popen(  # noqa: S603 - our own interpreter and module
                [sys.executable or "", "-P", "-s", "-c", _START, path, *limits],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                cwd=os.sep,
                env={name: os.environ[name] for name in _ENVIRONMENT if name in os.environ},
            )
        except OSError as error:
            raise _Failed(f"{_NO_PROCESS}: {error.strerror or error}") from None
        self._process, self._lines, self._loaded = process, SimpleQueue(), None
        threading.Thread(target=_read, args=(process, self._lines), name="expressions", daemon=True).start()
        try:
            self._ask({"values": []}, self._left_s)
        except _TooSlow:
            raise
        except _Failed:
            raise _Failed(f"{_NO_PROCESS} (exit code {process.returncode})") from None
        return process

    def _end(self) -> None:
        """Kill the process, and wait until it is gone."""
        process, self._process = self._process, None
        if process is None:
            return
        process.kill()
        assert process.stdin is not None
        with suppress(BrokenPipeError):
            process.stdin.close()
        process.wait()


def evaluate(
    questions: Sequence[Question], values: Sequence[Mapping[str, Any]], stop: threading.Event | None = None
) -> list[list[Answer]]:
    """Answer the questions of one plan; see `Evaluator`."""
    with Evaluator(stop) as evaluator:
        return evaluator(questions, values)


def find_invalid(expressions: Sequence[str]) -> list[InvalidExpression | None]:
    """See `Evaluator.find_invalid`."""
    with Evaluator() as evaluator:
        return evaluator.find_invalid(expressions)


def _read(process: subprocess.Popen[bytes], lines: SimpleQueue[bytes]) -> None:
    """Queue the lines of a process, then an empty one."""
    assert process.stdout is not None
    with process.stdout as stdout:
        for line in stdout:
            lines.put(line)
    lines.put(b"")
