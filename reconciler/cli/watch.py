"""`reconciler watch`: the process that watches, and what each check does in a process of its own."""

from __future__ import annotations

import errno
import gc
import random
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from importlib import import_module
from types import FrameType
from typing import TYPE_CHECKING, Any, ClassVar

from reconciler.checks.process import Waiter, Work, run_process
from reconciler.checks.watch import ApplyLimits
from reconciler.cli import exit_codes
from reconciler.cli.check import CheckRequest, run_check
from reconciler.cli.entrypoint import Stopped
from reconciler.cli.final_outputs import OutputSpec, final_outputs
from reconciler.cli.terminal.console import console
from reconciler.cli.terminal.interrupts import handled_by
from reconciler.decide.drift_check import DriftId
from reconciler.decide.metrics import NOWHERE, Measurement, MetricSource, watch_figures
from reconciler.decide.watch_check import CheckReport, CheckResult, ended_early, out_of_time
from reconciler.decide.watch_schedule import CheckInterval
from reconciler.decide.watch_state import WatchState
from reconciler.decide.watch_window import Window
from reconciler.errors import Diagnostic, ExitCode, WrongUsage
from reconciler.notify import NOTHING_NOTIFIED, Notified
from reconciler.render import FORMATS
from reconciler.render.drift import render_check
from reconciler.render.json import dump
from reconciler.render.prometheus import render_metrics
from reconciler.text import format_duration
from reconciler.watch import Sleeper, SystemWatchClock, Watch, WatchClock

if TYPE_CHECKING:
    from reconciler.metrics.server import MetricsServer

#: A gateway that takes the metrics, or does not, is not waited for longer, in seconds.
_PUSH_LIMIT_S = 15.0
#: What every check uses is imported once, by the process that makes the processes of the checks.
_USED_BY_CHECKS = ("reconciler.modelarts.connect", "reconciler.checks.drift", "reconciler.records.store")


@dataclass(frozen=True, slots=True)
class WatchRequest:
    """What the options of `watch` say, those of the stack and of outputs aside."""

    every_s: float
    jitter: float
    check_timeout_s: float
    remind_s: float
    applies: bool
    max_actions: int | None
    windows: tuple[Window, ...]
    listen: tuple[str, int] | None
    push_gateway: str | None

    given: ClassVar[tuple[str, ...]] = (
        "every_s", "jitter", "check_timeout_s", "remind_s", "applies", "max_actions", "windows", "listen",
        "push_gateway",
    )  # fmt: skip


def watch(request: WatchRequest, specs: Sequence[OutputSpec], stack: Mapping[str, Any]) -> int:
    """Watch until a signal comes.

    Raises:
        Stopped: it came, and everything has ended.
        WrongUsage: an option is of no use, or the address to listen on is in use.
    """
    _check_options(request, specs)
    for name in _USED_BY_CHECKS:
        import_module(name)
    gc.enable()  # a run is spared it while it is short; this one may last for years
    signals = _Signals()
    with ExitStack() as cleanup:
        cleanup.enter_context(handled_by(signals.handle))
        supervisor = _Supervisor(request, tuple(specs), stack, signals, Sleeper(), SystemWatchClock())
        if request.listen is not None:
            cleanup.enter_context(supervisor.listening(*request.listen))
        code = supervisor.run()
    if signals.numbers:
        raise Stopped(signals.numbers[0])
    return int(code or ExitCode.DONE)


def _check_options(request: WatchRequest, specs: Sequence[OutputSpec]) -> None:
    for spec in specs:
        if spec.file is None and spec.format not in ("text", "json") and not FORMATS[spec.format].is_final:
            why = f"{spec.format} is one document, and stdout has a line for each check"
            raise WrongUsage(Diagnostic("not on stdout", why, f"write -o {spec.format}=FILE"))
        if spec.file is None and FORMATS[spec.format].is_final:
            why = "the metrics are written anew after each check"
            raise WrongUsage(
                Diagnostic("not on stdout", why, f"write -o {spec.format}=FILE, or use --listen")
            )
    if not request.applies:
        unused = {"--max-actions": request.max_actions is not None, "--window": bool(request.windows)}
        for name in (name for name, is_given in unused.items() if is_given):
            console.say(f"warning: {name} has no effect without --apply", "warning")


class _Signals:
    """The signals that came; the first of them says how the program ends."""

    def __init__(self) -> None:
        self.numbers: list[int] = []

    def handle(self, number: int, frame: FrameType | None) -> None:
        """Take one."""
        self.numbers.append(number)

    def count(self) -> int:
        """How often somebody wanted the end."""
        return len(self.numbers)


@dataclass
class _Supervisor:
    """Starts checks, says what came of them, and keeps nothing but the state of the watch."""

    request: WatchRequest
    specs: tuple[OutputSpec, ...]
    stack: Mapping[str, Any]
    signals: _Signals
    waiter: Waiter
    clock: WatchClock
    where: MetricSource = NOWHERE
    _notified: Notified = NOTHING_NOTIFIED
    _watch: Watch = field(init=False)

    def __post_init__(self) -> None:
        self._watch = Watch(
            CheckInterval(self.request.every_s, self.request.jitter),
            check=self._check,
            report=self._report,
            wait=lambda seconds: self.waiter.wait(seconds),
            is_to_stop=lambda: bool(self.signals.numbers),
            clock=self.clock,
            chance=random.random,
        )
        self._metric_files = [spec for spec in final_outputs.take() if spec.file is not None]

    def run(self) -> ExitCode | None:
        """Watch until the end is wanted."""
        return self._watch.run()

    @contextmanager
    def listening(self, host: str, port: int) -> Iterator[None]:
        """Serve the metrics while it watches.

        Raises:
            WrongUsage: the address cannot be listened on.
        """
        from reconciler.metrics.server import MetricsServer, metrics_app

        app = metrics_app(self.metrics, self.is_healthy)
        try:
            server: MetricsServer = MetricsServer(app, host, port)
        except OSError as error:
            fix = "stop what uses the port, or choose another one; 0 picks a free one"
            why = f"{host}:{port}: {error.strerror or error}"
            raise WrongUsage(
                Diagnostic("cannot listen", why, fix if error.errno == errno.EADDRINUSE else None)
            ) from None
        try:
            self.waiter = server
            console.say(f"listening on {server.url}")
            yield
        finally:
            self.waiter = Sleeper()
            server.close()

    def is_healthy(self) -> bool:
        """Whether the last check that could compare is young enough."""
        return self._watch.state.is_healthy(self.clock.elapsed(), self.request.every_s)

    def metrics(self) -> list[Measurement]:
        """What is known by now."""
        return watch_figures(self._watch.state, self.where, self.request.every_s)

    def _check(self, number: int) -> CheckResult | None:
        request = CheckRequest(
            stack=self.stack,
            remind_s=self.request.remind_s,
            files=tuple(s for s in self.specs if s.file is not None and not FORMATS[s.format].is_final),
            limits=None if not self.request.applies else self._apply_limits(),
            notified=self._notified,
        )
        limit_s = self.request.check_timeout_s
        ended = run_process(
            lambda work: run_check(request, work), self.waiter, limit_s, stops=self.signals.count
        )
        if ended.result is not None:
            result = CheckResult.model_validate(ended.result)
            if result.partly_delivered is not None:
                partly_delivered = result.partly_delivered.items()
                self._notified = Notified(
                    partly_delivered={
                        digest: frozenset(map(DriftId._make, ids)) for digest, ids in partly_delivered
                    }
                )
            return result
        if ended.is_stop_requested:
            return None
        limit = format_duration(limit_s)
        return out_of_time(limit) if ended.is_out_of_time else ended_early(ended.status)

    def _apply_limits(self) -> ApplyLimits:
        request = self.request
        return ApplyLimits(request.windows, request.max_actions, request.check_timeout_s)

    def _report(self, report: CheckReport, state: WatchState) -> None:
        result = report.result
        if result.stack:
            self.where = MetricSource(result.stack, result.target)
        is_json = OutputSpec("json", None) in self.specs
        if is_json:
            console.result(dump(report.document(), indent=None) + "\n", is_redacted=True)
        if OutputSpec("text", None) in self.specs:
            console.result(render_check(report, console.style(sys.stdout)))
        if result.problem and not result.is_shown:
            console.say(f"error: {result.problem}", "error")
        metrics = watch_figures(state, self.where, self.request.every_s)
        self._publish(metrics)

    def _publish(self, metrics: Sequence[Measurement]) -> None:
        """Write and push the metrics; where that fails, it is said, and the next check tries again."""
        for spec in self._metric_files:
            assert spec.file is not None
            try:
                console.write_file(spec.file, render_metrics(metrics), is_redacted=True)
            except (OSError, WrongUsage) as error:
                exit_codes.of_exception(error)
        if self.request.push_gateway:
            push = _pushing(self.request.push_gateway, metrics, self.where)
            ended = run_process(push, self.waiter, _PUSH_LIMIT_S, stops=self.signals.count)
            problem = (
                "the gateway did not answer in time" if ended.result is None else ended.result["problem"]
            )
            if problem and not ended.is_stop_requested:
                console.say(f"warning: metrics not pushed: {problem}", "warning")


def _pushing(url: str, metrics: Sequence[Measurement], where: MetricSource) -> Callable[[Work], None]:
    def push_all(work: Work) -> None:
        from reconciler.metrics.push import PushFailed, push

        problem = ""
        try:
            push(url, metrics, where)
        except PushFailed as failure:
            problem = str(failure)
        work.send_result({"problem": problem})

    return push_all
