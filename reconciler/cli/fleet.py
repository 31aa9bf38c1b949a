"""`--fleet`: finds the stacks of a tree, runs the command for each, and prints one report."""

from __future__ import annotations

import gc
import os
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any

import click
from click.core import ParameterSource

from reconciler.cli import exits
from reconciler.cli.console import console
from reconciler.cli.execution import Interrupt, confirm_shown, interruptible
from reconciler.cli.exits import Stopped
from reconciler.cli.output import OutputSpec, directory_in_repository, requested_outputs, show
from reconciler.cli.progress import SAY_AFTER_S, SAY_EVERY_S, BusyLine, can_draw, display
from reconciler.decide.fleet import FleetReport, StackResult
from reconciler.decide.outcome import Result
from reconciler.decide.plan import Action
from reconciler.errors import (
    Diagnostic,
    ExitCode,
    ManifestInvalid,
    ReconcilerError,
    Refused,
    WrongUsage,
    first_of,
)
from reconciler.fleet import FleetRequest, StackTask, check_here, check_on_cluster, check_sendable
from reconciler.manifest.files import find_roots
from reconciler.render import PLAIN, Content, View, render
from reconciler.text import format_count, printable
from reconciler.version import __version__

#: Options that need a single stack, by command and name, and what to do instead.
_OF_ONE_STACK = {
    ("plan", "plan_file"): ("--out", "plan PATH --out FILE"),
    ("apply", "plan_file"): ("--plan", "apply --plan FILE"),
    ("apply", "approved"): ("--approve", "apply --plan FILE --approve DIGEST"),
    ("status", "watch"): ("--watch", "status PATH --watch"),
}
#: Options of the report, which are not passed to the stacks.
_OF_REPORT = frozenset({"paths", "outputs", "plan_file", "fleet", "handover"})


def check_fleet(**more: Any) -> int:
    """Run the current command for every stack in and below PATH. Returns the common exit code.

    `more` are values of arguments, in addition to the options.

    Raises:
        WrongUsage: an option cannot be used with a fleet, or no stack has a named key.
        ManifestInvalid: there is no stack, or no stack declares a given variable.
    """
    context = click.get_current_context()
    command, options = context.info_name or "", {**context.params, **more}
    if context.get_parameter_source("records") is ParameterSource.ENVIRONMENT:
        options["records"] = None  # each worker takes it from its own environment
    specs = requested_outputs(options.get("outputs") or ())
    for (of_command, name), (flag, usage) in _OF_ONE_STACK.items():
        if command == of_command and options.get(name) not in (None, False):
            why = f"{flag} works on a single stack"
            raise WrongUsage(Diagnostic(f"{flag} cannot be used with --fleet", why, f"reconciler {usage}"))
    # A fleet is many runs in one process, so memory has to be reclaimed.
    gc.enable()
    exits.redirect()
    var_files = [Path(path).resolve() for path in options.get("var_files") or ()]
    formats = {spec.format for spec in specs}
    style = console.style(sys.stdout) if OutputSpec("text", None) in specs else PLAIN
    if [spec.format for spec in specs].count("text") > 1:  # files have no width
        style = style._replace(width=None)
    request = FleetRequest(
        command,
        {n: v for n, v in {**options, "var_files": var_files}.items() if n not in _OF_REPORT},
        # The step summary of a GitHub workflow is Markdown.
        formats=tuple(sorted(formats | {"markdown"} if "github" in formats else formats)),
        colour=style.colour,
        width=style.width,
        verbosity=console.verbosity,
        directory=directory_in_repository(),
        run=os.urandom(16).hex() if command == "apply" else "",
    )
    top = Path(os.path.commonpath([Path(path).resolve() for path in options["paths"] or [Path()]]))
    tasks, unreadable, here = list[StackTask](), list[StackResult](), Path.cwd()
    for directory, stack, problem in find_roots(options["paths"], var_files):
        root = directory.relative_to(top).as_posix()
        if problem is not None:
            unreadable.append(StackResult(root, None, ExitCode.INVALID, errors=(problem,)))
            continue
        shown = directory.relative_to(here) if directory.is_relative_to(here) else directory
        prefix = "" if shown == Path() else f"{shown.as_posix().rstrip('/')}/"
        tasks.append(StackTask(str(directory), root, prefix, stack))
    report = FleetReport.of(command, _check_all(request, tasks, unreadable), __version__)
    _check_names(report)
    _show_messages(report)
    if command == "apply":
        return _apply(request, tasks, report, specs, is_confirmed=options["yes"])
    show(Content.FLEET, report, specs, is_redacted=True)
    if page := options.get("html"):
        console.write_file(page, render(Content.FLEET, report, "html", View()), is_redacted=True)
    return report.exit_code


def _apply(
    request: FleetRequest,
    tasks: Sequence[StackTask],
    planned: FleetReport,
    specs: Sequence[OutputSpec],
    *,
    is_confirmed: bool,
) -> int:
    """Show the plans, ask once, and apply those with changes. Without confirmation each is refused."""
    events = [spec for spec in specs if spec.format == "json"]
    others = [spec for spec in specs if spec not in events]
    show(Content.FLEET, planned, others, is_redacted=True)
    to_do = {one.root: one for one in planned.results if one.approved and not one.errors}
    refused: list[ExitCode] = []
    goal = request.options.get("goal")  # a wait starts later what is deferred now
    count = sum(bool(one.has_actions or (goal and one.summary.get(Action.DEFER))) for one in to_do.values())
    if count and not is_confirmed:
        try:
            confirm_shown(f"Apply the plans of {format_count(count, 'stack')}?")
        except Refused as refusal:
            console.diagnostics(refusal.diagnostics)
            refused, to_do = [ExitCode.REFUSED], {}
    results, interrupt = list[StackResult](), Interrupt()
    # The counts of the plan are not those of a result.
    not_done: Any = {"summary": Result().summary, "has_changes": False, "messages": (), "problems": ()}
    for one in planned.results:
        if one.root not in to_do:
            code = first_of([one.exit_code, *(refused if one.approved else ())])
            results.append(replace(one, exit_code=code, **not_done))
    if to_do:
        there = [replace(one, approved=to_do[one.root].approved) for one in tasks if one.root in to_do]
        with interruptible(interrupt):
            done = _check_all(request, there, stop=interrupt.stop)
        signals = {ExitCode.INTERRUPTED: interrupt.exit or ExitCode.INTERRUPTED}
        results += (replace(one, exit_code=signals.get(one.exit_code, one.exit_code)) for one in done)
    report = FleetReport.of("apply", results, __version__)
    _show_messages(report)
    if to_do:
        show(Content.FLEET, report, others, before=(Content.FLEET, planned), is_redacted=True)
    show(Content.FLEET, report, events, is_redacted=True)
    return first_of([report.exit_code, interrupt.exit or ExitCode.DONE])


def _check_all(
    request: FleetRequest,
    tasks: Sequence[StackTask],
    unreadable: Sequence[StackResult] = (),
    stop: threading.Event | None = None,
) -> list[StackResult]:
    """Run the command for each stack, here or on the cluster. Returns the results, with `unreadable` ones."""
    scheduler: str | None = click.get_current_context().meta["scheduler"]
    results: list[StackResult] = []
    with taking(results, len(tasks) + len(unreadable)) as take:
        for result in unreadable:
            take(result)
        try:
            unclear = tasks if scheduler is None else check_sendable(request, tasks)
            stop = stop or threading.Event()
            check_here(request, unclear, take, console.redact.add_secrets, stop)
            if scheduler is not None:
                there = [task for task in tasks if task not in unclear]
                check_on_cluster(scheduler, request, there, take, stop)
        except (KeyboardInterrupt, Stopped, ReconcilerError):
            for result in results:  # there will be no report
                if not result.is_quiet:
                    console.say(_line_of(result))
            raise
    return results


#: Names that a stack may not know, and the error if no stack knows one.
_UNKNOWN: dict[str, tuple[type[ReconcilerError], str, str]] = {
    "undeclared": (ManifestInvalid, "unknown variable", "{}: no stack of the fleet declares it"),
    "unmatched": (
        WrongUsage,
        "unknown key",
        '"{}" is neither a declared nor an owned key of any stack of the fleet',
    ),
}


def _check_names(report: FleetReport) -> None:
    """Check that some stack knows each given name. Failed stacks may know any.

    Raises:
        WrongUsage: a key is neither declared nor owned by any stack.
        ManifestInvalid: no stack declares a given variable.
    """
    for field, (error, what, why) in _UNKNOWN.items():
        unknown = [getattr(one, field) for one in report.results]
        if None not in unknown and (names := frozenset.intersection(*unknown)):
            raise error(*(Diagnostic(what, why.format(name)) for name in sorted(names)))


def _show_messages(report: FleetReport) -> None:
    """Print the messages of each stack and the paths of error reports on stderr."""
    for result in report.results:
        root = printable(result.root)
        for level, text in result.messages:
            console.say(f"{root}: {text}", "debug" if level else "warning")
        if result.problems:
            console.say(f"{root}:")
            console.diagnostics(result.problems)
        if result.traceback:
            console.say(f"{root}:")
            why = result.errors[0].why if result.errors else "an action failed unexpectedly"
            exits.report_traceback(result.traceback, why)


def _line_of(result: StackResult) -> str:
    outcome = result.errors[0].message if result.errors else result.last_line
    return printable(f"{result.root}: {outcome}")


@contextmanager
def taking(results: list[StackResult], total: int) -> Iterator[Callable[[StackResult], None]]:
    """Yield a function that collects results and shows their number; with `-v` a line for each."""
    next_s, is_drawn = time.monotonic() + SAY_AFTER_S, can_draw(sys.stderr)

    def count() -> str:
        failed = sum(bool(one.errors) for one in results)
        return f"{len(results)} of {total} stacks done" + (f", {failed} failed" if failed else "")

    line = BusyLine(count())

    def take(result: StackResult) -> None:
        nonlocal next_s
        results.append(result)
        console.detail(f"{count()}; {_line_of(result)}")
        line.text = f"{count()}  {_line_of(result)}"
        if not is_drawn and not console.verbosity and time.monotonic() >= next_s:
            next_s = time.monotonic() + SAY_EVERY_S
            console.say(count())

    with display.part(line, sys.stderr) if is_drawn else nullcontext():
        yield take
