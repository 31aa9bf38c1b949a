"""`reconciler watch`: starts the checks and publishes their results."""

from __future__ import annotations

import errno
import gc
import os
import random
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory

import click
from click.core import ParameterSource

from reconciler.cli import exits
from reconciler.cli.console import console
from reconciler.cli.context import names_for_metrics
from reconciler.cli.execution import Lines
from reconciler.cli.exits import Stopped, handled_by
from reconciler.cli.output import OutputSpec, final_outputs
from reconciler.core.values import timestamp
from reconciler.errors import Diagnostic, ExitCode, Severity, WrongUsage
from reconciler.render import FORMATS, Style
from reconciler.render.json import dump
from reconciler.render.prometheus import MetricSource, render_metrics
from reconciler.text import printable
from reconciler.watch import (
    Checker,
    CheckInterval,
    CheckReport,
    Watch,
    WatchClock,
    WatchRequest,
    watch_figures,
)

#: Maximum number of drift entries shown of each kind; the rest are counted.
_MOST_SHOWN = 20
_COLOURS = {ExitCode.DONE: "green", ExitCode.CHANGES: "yellow"}
#: The options that are passed on to the checks.
_PASSED_ON = frozenset(
    (
        *("paths", "variables", "var_files", "target", "only", "parallelism", "records", "without_records"),
        *("lease_s", "lock_timeout_s", "verbose", "log_format", "color", "no_color"),
    )
)


def watch(request: WatchRequest, specs: Sequence[OutputSpec], context: click.Context) -> int:
    """Watch until a signal arrives; `context` is that of the command.

    Raises:
        Stopped: a signal arrived, and everything has ended.
        WrongUsage: options conflict, or the address to listen on is in use.
    """
    _check_options(request, specs)
    gc.enable()  # disabled for short runs; this one may last for years
    signals: list[int] = []
    # A check that fails from the start does not report these names.
    names = names_for_metrics(*(context.params[name] for name in ("paths", "var_files", "target")))
    where = MetricSource(*(printable(console.redact(name)) for name in names))
    metric_files = [spec.file for spec in final_outputs.take() if spec.file is not None]
    files = [spec for spec in specs if spec.file is not None and not FORMATS[spec.format].is_final]
    reports = [word for spec in files for word in ("-o", f"{spec.format}={spec.file}")]

    def metrics() -> str:
        return render_metrics(watch_figures(loop.state, where))

    def report(check: CheckReport) -> None:
        nonlocal where
        if check.stack:
            where = MetricSource(check.stack, check.target)
        _show(check, specs)
        for file in metric_files:
            try:
                console.write_file(file, metrics(), is_redacted=True)
            except (OSError, WrongUsage) as error:
                exits.of_exception(error)  # the next check tries again

    def is_healthy() -> bool:
        return loop.state.is_healthy(loop.clock.elapsed(), request.every_s)

    with ExitStack() as cleanup:
        directory = Path(cleanup.enter_context(TemporaryDirectory(prefix="reconciler-watch-")))
        cleanup.enter_context(handled_by(lambda number, _: signals.append(number)))
        command = partial(check_command, context)
        checker = Checker(request, command, directory, reports, lambda: len(signals), Lines())
        schedule = CheckInterval(request.every_s, request.jitter)
        loop = Watch(schedule, checker.run, report, lambda: bool(signals), WatchClock(), random.random)
        if request.listen is not None:
            cleanup.enter_context(_listening(*request.listen, metrics, is_healthy))
        code = loop.run()
    if signals:
        raise Stopped(signals[0])
    return int(code or ExitCode.DONE)


def _check_options(request: WatchRequest, specs: Sequence[OutputSpec]) -> None:
    for format_ in (spec.format for spec in specs if spec.file is None):
        if FORMATS[format_].is_final:
            why, fix = "the metrics are rewritten after each check", ", or use --listen"
        elif format_ not in ("text", "json"):
            why, fix = f"{format_} is a single document, but stdout has a line for each check", ""
        else:
            continue
        raise WrongUsage(Diagnostic("format not available on stdout", why, f"write -o {format_}=FILE{fix}"))
    unused = {"--max-actions": request.max_actions is not None, "--window": bool(request.windows)}
    for name in (name for name, is_given in unused.items() if is_given and not request.applies):
        console.say(f"warning: {name} has no effect without --apply", "warning")


def check_command(
    context: click.Context, name: str, arguments: Sequence[str]
) -> tuple[list[str], dict[str, str]]:
    """Return the command line and environment for a command on the stack of a watch.

    Options from the command line stay on it, and those from the environment stay there, so that secrets in
    `RECONCILER_VAR` never appear on a command line.
    """
    # -P: do not import modules from the current directory.
    command = [sys.executable, "-P", "-m", "reconciler", name, *["-v"] * console.verbosity]
    command += ["--log-format", console.log_format, "--color", console.colour]
    environ = dict(os.environ)
    root = context.find_root().command
    assert isinstance(root, click.Group)
    child = root.get_command(context, name)
    assert child is not None
    for parameter in child.params:
        if parameter.name not in _PASSED_ON:
            environ.pop(str(parameter.envvar), None)
        elif (
            isinstance(parameter, click.Option)
            and parameter.expose_value  # the others are attributes of the console
            and context.get_parameter_source(parameter.name) is ParameterSource.COMMANDLINE
        ):
            value = context.params[parameter.name]
            option = next(one for one in parameter.opts if one.startswith("--"))
            if value is True:
                command.append(option)
                continue
            for one in value if isinstance(value, tuple) else () if value is None else (value,):
                text = f"{one:f}s" if isinstance(one, float) else str(one)
                command += [option, "=".join(one) if isinstance(one, tuple) else text]
    return [*command, *arguments, "--", *map(str, context.params["paths"])], environ


@contextmanager
def _listening(
    host: str, port: int, metrics: Callable[[], str], is_healthy: Callable[[], bool]
) -> Iterator[None]:
    """Serve the metrics inside the `with` block.

    Raises:
        WrongUsage: the address cannot be listened on.
    """
    from reconciler.metrics import MetricsServer

    try:
        server = MetricsServer(host, port, metrics, is_healthy)
    except OSError as error:
        is_in_use = error.errno == errno.EADDRINUSE
        fix = "stop what uses the port, or choose another one; 0 picks a free one" if is_in_use else None
        why = f"{host}:{port}: {error.strerror or error}"
        raise WrongUsage(Diagnostic("cannot listen", why, fix)) from None
    with server.serving():
        console.say(f"listening on {server.url}")
        yield


def _show(check: CheckReport, specs: Sequence[OutputSpec]) -> None:
    """Print a check. Its process has already shown errors on stderr."""
    if OutputSpec("json", None) in specs:
        console.result(dump(check.document(), indent=None) + "\n", is_redacted=True)
    if OutputSpec("text", None) in specs:
        console.result(render_check(check, console.style(sys.stdout)))
    console.diagnostics(
        Diagnostic(one["what"], one["why"], one.get("fix"), severity=Severity.WARNING)
        for one in check.warnings
    )
    if check.problem and not check.is_shown:
        console.say(f"error: {check.problem}", "error")


def render_check(check: CheckReport, style: Style) -> str:
    """Render a check as a line, with further lines for new, changed and gone drift."""
    if check.has_failed and not check.has_compared:
        found = f"failed: {check.problem or f'exit code {check.exit_code}'}"
    else:
        counts = ", ".join(f"{count} {name}" for name, count in check.summary.items() if count)
        found = counts or "no drift"
    words = printable("; ".join(part for part in (found, check.applied) if part))
    colour = _COLOURS.get(ExitCode(check.exit_code), "red")
    shown = [f"{timestamp(check.ended_at_s)} check {check.number}: {style.paint(words, colour)}"]
    for change in ("new", "changed", "gone"):
        entries: Sequence[Mapping[str, object]] = getattr(check, change)
        for entry in entries[:_MOST_SHOWN]:
            text = f"  {change}: {entry['class']} {entry['key']}: {entry.get('detail') or ''}"
            shown.append(printable(text.rstrip(": ")))
        if len(entries) > _MOST_SHOWN:
            shown.append(f"  {change}: {len(entries) - _MOST_SHOWN} more")
    return "".join(f"{line}\n" for line in shown)
