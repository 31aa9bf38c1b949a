"""`reconciler watch`: drift checks on a schedule, each in a process of its own.

A check runs `reconciler drift --since-last --json` and, with `--apply`, `reconciler apply --json`. A child
process can be killed even when it hangs, and frees its memory, files and threads; the watch itself keeps only
its state. Clock and randomness are parameters.

Source: docs/operations/watch.md.
"""

from __future__ import annotations

import json
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from subprocess import DEVNULL, PIPE, Popen, TimeoutExpired
from typing import Any, NamedTuple

from reconciler.core.values import timestamp
from reconciler.decide.outcome import ApplyEvent, EventType, RunReport
from reconciler.decide.plan import BLOCKERS
from reconciler.decide.watch_window import Window, closes_at
from reconciler.errors import SUCCESSES, ExitCode, ReconcilerError, first_of
from reconciler.files import write_file
from reconciler.render.prometheus import Measurement, MetricSource, counted, run_figures
from reconciler.text import format_duration

#: The longest back-off after consecutive failures, in intervals.
MOST_INTERVALS = 4
#: The watch is unhealthy after this many intervals without a conclusive check.
HEALTHY_INTERVALS = 3
#: Longest single sleep, so that signals are noticed promptly.
PIECE_S = 0.25
#: Grace period between SIGTERM and SIGKILL. It is longer once an apply has started actions: calls in flight
#: must be answered and recorded.
STOP_S, STOP_APPLY_S = 1.0, 90.0
#: Exit codes of the first check that end the watch: retrying cannot help.
_WRONG_FROM_THE_START = frozenset({ExitCode.WRONG_USAGE, ExitCode.INVALID})


class WatchClock:
    """The system's wall clock and monotonic clock. `wait` may return early."""

    def now(self) -> float:
        return time.time()

    def elapsed(self) -> float:
        return time.monotonic()

    def wait(self, seconds: float) -> None:
        time.sleep(max(0.0, min(seconds, PIECE_S)))


# ── schedule ─────────────────────────────────────────────────────────────────────────────────────────


class CheckInterval(NamedTuple):
    """A check every `every_s` seconds, delayed by a random fraction of it, at most `jitter`."""

    every_s: float
    jitter: float = 0.0


class Due(NamedTuple):
    """The next check: its interval, counted from the start of the watch, and its time."""

    interval: int
    at_s: float


def next_check(
    schedule: CheckInterval, started_s: float, last: Due, now_s: float, *, failures: int, chance: float
) -> Due:
    """Return when the check after `last` is due.

    Intervals are counted from `started_s`, so that jitter and the duration of checks do not accumulate;
    intervals that have already begun are skipped. After `failures` consecutive failures the next check is 1,
    2 or at most 4 intervals later. `chance` is a random number from 0 to 1.
    """
    backoff = min(MOST_INTERVALS, 1 << min(max(0, failures - 1), MOST_INTERVALS))
    begun = int((now_s - started_s) // schedule.every_s) + 1
    interval = max(last.interval + backoff, begun)
    at_s = started_s + interval * schedule.every_s + chance * schedule.jitter * schedule.every_s
    return Due(interval, at_s)


# ── the result of a check, and the state of the watch ────────────────────────────────────────────────


@dataclass(frozen=True)
class CheckReport:
    """One check, with the redacted drift entries of `drift --json`.

    `number` counts from 1. `ended_at_s` is in seconds since 1970. `has_compared` is true if the check
    compared at least one key. `summary` counts drift by class, `plan` actions by kind. `applied` and
    `problem` describe the outcome of the apply and the reason for a failure; `is_shown` is set if stderr
    already shows the problem. `warnings` still have to be shown.
    """

    exit_code: int
    stack: str = ""
    target: str = ""
    has_compared: bool = False
    summary: Mapping[str, int] = field(default_factory=dict)
    new: tuple[Mapping[str, Any], ...] = ()
    changed: tuple[Mapping[str, Any], ...] = ()
    gone: tuple[Mapping[str, Any], ...] = ()
    plan: Mapping[str, int] | None = None
    applied: str = ""
    problem: str = ""
    is_shown: bool = False
    warnings: tuple[Mapping[str, Any], ...] = ()
    notifications_failed: int = 0
    number: int = 0
    ended_at_s: float = 0.0
    duration_s: float = 0.0

    @property
    def has_failed(self) -> bool:
        """Whether the check itself failed. Drift and a refused plan are results, not failures."""
        return self.exit_code not in SUCCESSES

    def document(self) -> dict[str, Any]:
        """The line of `watch --json`; fields after `gone` are omitted when empty."""
        more = {"changed": list(self.changed), "plan": self.plan, "applied": self.applied}
        return {
            "type": "check",
            "ts": timestamp(self.ended_at_s),
            "number": self.number,
            "exit_code": self.exit_code,
            "summary": self.summary,
            "new": list(self.new),
            "gone": list(self.gone),
            **{name: value for name, value in {**more, "problem": self.problem}.items() if value},
        }


@dataclass(frozen=True)
class WatchState:
    """What later checks and the metrics need to know about earlier ones. Its size is constant.

    `failures` counts consecutive failures. `compared` is the last check that compared something, `compared_s`
    the monotonic time at which it ended.
    """

    last: CheckReport | None = None
    failures: int = 0
    compared: CheckReport | None = None
    compared_s: float | None = None
    plan: Mapping[str, int] | None = None
    notifications_failed: int = 0

    @property
    def checks(self) -> int:
        return self.last.number if self.last else 0

    def after(self, check: CheckReport, elapsed_s: float) -> WatchState:
        """Return the state after `check`, which ended at the monotonic time `elapsed_s`."""
        state = replace(
            self,
            last=check,
            failures=self.failures + 1 if check.has_failed else 0,
            plan=self.plan if check.plan is None else check.plan,
            notifications_failed=self.notifications_failed + check.notifications_failed,
        )
        return replace(state, compared=check, compared_s=elapsed_s) if check.has_compared else state

    def is_healthy(self, elapsed_s: float, every_s: float) -> bool:
        """Whether the last check that compared something is younger than three intervals."""
        return self.compared_s is not None and elapsed_s - self.compared_s < HEALTHY_INTERVALS * every_s


def watch_figures(state: WatchState, where: MetricSource) -> list[Measurement]:
    """Return the metrics: the last run, the drift of the last check that compared, and the last plan."""
    metrics = [] if state.plan is None else [counted("plan_actions", where, state.plan)]
    if state.compared is not None:
        metrics.append(counted("drift", where, state.compared.summary))
    if (last := state.last) is not None:
        times, failed = (last.ended_at_s, last.duration_s), state.notifications_failed
        metrics += run_figures(RunReport("watch", *where, not last.has_failed, *times, failed))
    return metrics


# ── the loop ─────────────────────────────────────────────────────────────────────────────────────────


@dataclass
class Watch:
    """Runs one check after another, on a schedule.

    `check` returns None if it was ended because the watch is stopping. `report` receives each check with its
    number and times.
    """

    schedule: CheckInterval
    check: Callable[[], CheckReport | None]
    report: Callable[[CheckReport], None]
    is_to_stop: Callable[[], bool]
    clock: WatchClock
    chance: Callable[[], float] = lambda: 0.0
    state: WatchState = field(default_factory=WatchState)

    def run(self) -> ExitCode | None:
        """Check now and then once per interval, until the watch is stopped.

        Returns the exit code of the first check if that makes watching pointless, e.g. an invalid manifest;
        otherwise None.
        """
        clock = self.clock
        started_s = clock.elapsed()
        due = Due(0, started_s)
        while True:
            while not self.is_to_stop() and (left_s := due.at_s - clock.elapsed()) > 0:
                clock.wait(left_s)
            if self.is_to_stop():
                return None
            began_s = clock.elapsed()
            result = self.check()
            if result is None:
                return None
            check = replace(
                result,
                number=self.state.checks + 1,
                ended_at_s=clock.now(),
                duration_s=clock.elapsed() - began_s,
            )
            self.state = self.state.after(check, clock.elapsed())
            self.report(check)
            if check.number == 1 and check.exit_code in _WRONG_FROM_THE_START:
                return ExitCode(check.exit_code)
            failures, chance = self.state.failures, self.chance()
            due = next_check(self.schedule, started_s, due, clock.elapsed(), failures=failures, chance=chance)


# ── one check ────────────────────────────────────────────────────────────────────────────────────────


class ProcessEnd(NamedTuple):
    """How a process ended: its exit code (negative: a signal), and whether the watch ended it."""

    code: int
    is_out_of_time: bool = False
    is_stopped: bool = False


def run_process(
    command: Sequence[str],
    environ: Mapping[str, str],
    limit_s: float,
    take_line: Callable[[bytes], None],
    *,
    stops: Callable[[], int] = lambda: 0,
    stop_s: Callable[[], float] = lambda: STOP_S,
) -> ProcessEnd:
    """Run a command and wait for its end; `take_line` receives the lines of its stdout.

    After `limit_s`, or when the watch is stopped (`stops` counts the requests), it gets SIGTERM. After
    another `stop_s`, or on a second request, its process group is killed.
    """
    # In a session of its own Ctrl-C does not reach it: the watch decides when it ends.
    process = Popen(command, env=environ, stdin=DEVNULL, stdout=PIPE, start_new_session=True)  # noqa: S603
    output = process.stdout
    assert output is not None

    def read() -> None:
        for line in output:
            if line.endswith(b"\n"):
                take_line(line)

    reader = threading.Thread(target=read, name="check", daemon=True)
    reader.start()
    ends_s, is_out_of_time, is_stopped = time.monotonic() + limit_s, False, False
    try:
        while process.poll() is None:
            now_s = time.monotonic()
            if is_stopped or is_out_of_time:
                if now_s >= ends_s or stops() > 1:
                    break
            elif stops() or now_s >= ends_s:
                is_stopped, is_out_of_time = bool(stops()), not stops()
                ends_s = now_s + stop_s()
                process.terminate()
            with suppress(TimeoutExpired):
                process.wait(PIECE_S)
    finally:
        with suppress(ProcessLookupError):  # its children may have outlived it
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        reader.join(STOP_S)
        output.close()
    return ProcessEnd(process.returncode, is_out_of_time, is_stopped)


@dataclass
class Handover:
    """What a check passes to the watch besides its report, through a file; see `handing_over`.

    `compared` is the number of keys compared, `problem` the reason for a failure.
    """

    compared: int = 0
    problem: str = ""

    @classmethod
    def read(cls, file: Path) -> Handover:
        """Read the file; empty if it is missing or invalid."""
        try:
            return cls(**json.loads(file.read_text(encoding="utf-8")))
        except (OSError, ValueError, TypeError):
            return cls()


@contextmanager
def handing_over(file: Path | None, redact: Callable[[str], str]) -> Iterator[Handover]:
    """Yield the handover of a check to its watch, and write it at the end, even after a failure."""
    handover = Handover()
    try:
        yield handover
    except BaseException as error:
        handover.problem = handover.problem or words_of(error)
        raise
    finally:
        if file is not None:
            handover.problem = redact(handover.problem)
            write_file(file, json.dumps(asdict(handover)).encode(), 0o600)


def words_of(error: BaseException) -> str:
    """Summarize an error without file names and values."""
    if isinstance(error, ReconcilerError):
        return "; ".join(one.what for one in error.diagnostics[:3])
    if isinstance(error, OSError):
        return error.strerror or type(error).__name__
    return "internal error" if isinstance(error, Exception) else "interrupted"


class WatchRequest(NamedTuple):
    """The options of a watch. `windows` and `max_actions` limit `--apply`; no windows means any time."""

    every_s: float
    jitter: float
    check_timeout_s: float
    remind_s: float
    applies: bool = False
    max_actions: int | None = None
    windows: tuple[Window, ...] = ()
    listen: tuple[str, int] | None = None


@dataclass
class Checker:
    """Runs the checks of a watch.

    `command` returns the command line and environment for a subcommand and its arguments. `directory` is
    private to the watch, `reports` are the `-o` arguments for the reports of a check, and `show_event`
    receives the events of an apply.
    """

    request: WatchRequest
    command: Callable[[str, Sequence[str]], tuple[Sequence[str], Mapping[str, str]]]
    directory: Path
    reports: Sequence[str] = ()
    stops: Callable[[], int] = lambda: 0
    show_event: Callable[[ApplyEvent], None] = lambda _: None

    def run(self) -> CheckReport | None:
        """Check for drift and then, if requested, apply. None: ended because the watch is stopping."""
        request = self.request
        ends_s = time.monotonic() + request.check_timeout_s
        check = self._check_drift()
        if check is None or not check.stack or not request.applies or self.stops():
            return check
        now_s, left_s = time.time(), ends_s - time.monotonic()
        closes_s = closes_at(request.windows, now_s) if request.windows else float("inf")
        if closes_s is None:
            return replace(check, applied="outside the window")
        return self._apply(check, left_s, closes_s - now_s)

    def _check_drift(self) -> CheckReport | None:
        lines: list[bytes] = []
        file = self.directory / "handover.json"
        arguments = ["--since-last", "--remind", f"{self.request.remind_s:f}s", "--handover", str(file)]
        arguments += ["-o", "json", *self.reports]
        ended, failed = self._run("drift", arguments, self.request.check_timeout_s, lines.append)
        handover = Handover.read(file)
        try:
            document = json.loads(b"".join(lines))
        except ValueError:
            if ended.is_stopped:
                return None
            code, problem = self._failure(ended, handover.problem)
            is_shown = ended.code >= 0 and not ended.is_out_of_time
            return CheckReport(code, problem=problem, is_shown=is_shown, notifications_failed=failed)
        codes, is_complete = [_exit_code(ended)], document["complete"]
        if any(entry["class"] != "unknown" for entry in document["drift"]):
            codes.append(ExitCode.CHANGES)  # for any drift, not only what is new
        if not is_complete or handover.problem.startswith("not compared"):
            codes.append(ExitCode.UNKNOWN)
        problems = ["" if is_complete else "not everything could be read", handover.problem]
        return CheckReport(
            first_of(codes),
            document["stack"],
            document["target"]["name"],
            handover.compared > 0,
            document["summary"],
            tuple(document["new"]),
            tuple(document["changed"]),
            tuple(document["gone"]),
            problem="; ".join(filter(None, problems)),
            is_shown=is_complete,
            warnings=() if is_complete else tuple(document["warnings"]),
            notifications_failed=failed,
        )

    def _apply(self, check: CheckReport, left_s: float, open_s: float) -> CheckReport:
        """Apply within the time left for the check and in the window."""
        events: dict[str, Mapping[str, Any]] = {}
        file = self.directory / "plan.json"

        def take(line: bytes) -> None:
            event = json.loads(line)
            events[event["type"]] = event
            self.show_event(ApplyEvent.model_validate(event))

        def stop_s() -> float:
            return STOP_APPLY_S if EventType.ACTION_STARTED in events else STOP_S

        timeout_s, most = self.request.check_timeout_s, self.request.max_actions
        arguments = ["--yes", "--json", "-o", f"json={file}", "--timeout", f"{timeout_s:f}s"]
        arguments += [] if most is None else ["--max-actions", str(most)]
        limit_s = min(left_s, open_s)
        ended, failed = self._run("apply", arguments, limit_s, take, stop_s)
        check = replace(check, notifications_failed=check.notifications_failed + failed)
        planned, completed = (events.get(name, {}) for name in (EventType.PLANNED, EventType.APPLY_COMPLETED))
        counts = ", ".join(f"{count} {name}" for name, count in completed.get("summary", {}).items() if count)
        if EventType.ACTION_STARTED in events and (ended.is_stopped or ended.is_out_of_time):
            stopped = f"stopped before the end: {counts}"
            return _with_apply(check, ExitCode.PARTIAL, planned["summary"], stopped)
        if ended.is_stopped:
            return check
        if ended.is_out_of_time and limit_s < left_s:
            return _with_apply(check, ExitCode.DONE, None, "not applied: the window closed")
        if ended.is_out_of_time or not planned or not completed:
            code, problem = self._failure(ended, completed.get("message") or "")
            if ended.is_out_of_time:
                check = replace(check, problem=problem, is_shown=False)
            return _with_apply(check, code, None, f"not applied: {problem}")
        if planned["applyable"]:
            applied = f"applied: {counts}"
        elif message := completed.get("message"):
            applied = f"refused: {message}"
        else:
            actions = json.loads(file.read_text(encoding="utf-8"))["actions"]
            blocked = sum(action["reason"] in BLOCKERS for action in actions)
            applied = "nothing to apply" + (f", {blocked} blocked" if blocked else "")
        return _with_apply(check, _exit_code(ended), planned["summary"], applied)

    def _run(
        self,
        name: str,
        arguments: Sequence[str],
        limit_s: float,
        take_line: Callable[[bytes], None],
        stop_s: Callable[[], float] = lambda: STOP_S,
    ) -> tuple[ProcessEnd, int]:
        """Run a subcommand; returns how it ended, and how many notifications failed."""
        metrics = self.directory / "metrics.prom"
        metrics.unlink(missing_ok=True)
        command, environ = self.command(name, ["-o", f"prometheus={metrics}", *arguments])
        ended = run_process(command, environ, limit_s, take_line, stops=self.stops, stop_s=stop_s)
        with suppress(OSError):
            for line in metrics.read_text(encoding="utf-8").splitlines():
                if line.startswith("reconciler_notifications_failed_total{"):
                    return ended, int(float(line.rpartition(" ")[2]))
        return ended, 0

    def _failure(self, ended: ProcessEnd, problem: str) -> tuple[ExitCode, str]:
        """Return the exit code of a command that printed no result, and the reason."""
        if ended.is_out_of_time:
            limit = format_duration(self.request.check_timeout_s)
            problem = f"the check timed out after {limit} and was ended"
            return ExitCode.UNKNOWN, f"{problem}; raise --check-timeout to give it more time"
        if ended.code < 0:
            problem = f"the process of the check ended without a result (signal {-ended.code})"
            return ExitCode.INTERNAL_ERROR, problem
        return _exit_code(ended), problem or f"exit code {_exit_code(ended)}"


def _exit_code(ended: ProcessEnd) -> ExitCode:
    """Return the exit code of a command that printed its result, even if it was ended afterwards."""
    if ended.code < 0 or ended.is_out_of_time or ended.is_stopped:
        return ExitCode.DONE
    return ExitCode(ended.code)


def _with_apply(
    check: CheckReport, code: ExitCode, plan: Mapping[str, int] | None, applied: str
) -> CheckReport:
    return replace(check, exit_code=first_of([ExitCode(check.exit_code), code]), plan=plan, applied=applied)
