"""A command for all stacks of a tree: which they are, where they are checked, and the one report."""

from __future__ import annotations

import gc
import os
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path

import click
from click.core import ParameterSource

from reconciler.cli import exits
from reconciler.cli.console import console
from reconciler.cli.exits import Stopped
from reconciler.cli.output import OutputSpec, directory_in_repository, requested_outputs, show
from reconciler.cli.progress import SAY_AFTER_S, SAY_EVERY_S, BusyLine, can_draw, display
from reconciler.decide.fleet import FleetReport, StackResult
from reconciler.errors import Diagnostic, ExitCode, ManifestInvalid, ReconcilerError, WrongUsage
from reconciler.fleet import (
    FleetRequest,
    StackTask,
    as_plain,
    check_here,
    check_on_cluster,
    check_variables,
    sent,
    with_digest,
)
from reconciler.manifest.files import find_roots
from reconciler.render import Content
from reconciler.text import printable
from reconciler.version import __version__

#: Options that say how the report is shown, and where; they are not for a stack.
_OF_REPORT = frozenset({"paths", "outputs", "plan_file", "fleet", "handover"})


def check_fleet() -> int:
    """Do the running command for every stack in and below PATH; returns the exit code of all of them.

    Raises:
        WrongUsage: an option has no meaning for a fleet, or a key was named that no stack has.
        ManifestInvalid: there is no stack, or a variable was given that none declares.
    """
    context = click.get_current_context()
    command, options = context.info_name or "", context.params
    scheduler: str | None = context.meta["scheduler"]
    specs = requested_outputs(options.get("outputs") or ())
    if options.get("plan_file") is not None:
        why = "--out saves the plan of one stack; with --fleet there are many"
        fix = "save the plan of one stack: reconciler plan PATH --out FILE"
        raise WrongUsage(Diagnostic("--out with --fleet", why, fix))
    # A fleet is many short runs: what one leaves behind has to go.
    gc.enable()
    exits.redirect()
    var_files = [Path(path).resolve() for path in options.get("var_files") or ()]
    roots = find_roots(options["paths"], var_files)
    formats = {spec.format for spec in specs}
    request = FleetRequest(
        command,
        {n: as_plain(v) for n, v in {**options, "var_files": var_files}.items() if n not in _OF_REPORT},
        # The summary of a step of a workflow is Markdown.
        formats=tuple(sorted(formats | {"markdown"} if "github" in formats else formats)),
        colour=OutputSpec("text", None) in specs and console.style(sys.stdout).colour,
        verbosity=console.verbosity,
        directory=directory_in_repository(),
    )
    is_from_environment = context.get_parameter_source("records") is ParameterSource.ENVIRONMENT
    to_send = request if scheduler is None else sent(request, is_records_from_environment=is_from_environment)
    top = Path(os.path.commonpath([Path(path).resolve() for path in options["paths"] or [Path()]]))
    results = [
        StackResult(
            root.directory.relative_to(top).as_posix(), None, ExitCode.INVALID, errors=(root.problem,)
        )
        for root in roots
        if root.problem is not None
    ]
    tasks, here = [], Path.cwd()
    for root in (root for root in roots if root.problem is None):
        place = root.directory
        shown = place.relative_to(here) if place.is_relative_to(here) else place
        prefix = "" if shown == Path() else f"{shown.as_posix().rstrip('/')}/"
        tasks.append(StackTask(str(place), place.relative_to(top).as_posix(), prefix, root.name))
    with fleet_progress(len(roots)) as tell:

        def take(result: StackResult) -> None:
            results.append(result)
            tell(result)

        for result in results:
            tell(result)
        try:
            unclear = tasks if scheduler is None else check_variables(request, tasks)
            check_here(request, unclear, take, os.environ, console.redact.learn)
            if scheduler is not None:
                there = [with_digest(task, request) for task in tasks if task not in unclear]
                check_on_cluster(scheduler, to_send, there, take)
        except (KeyboardInterrupt, Stopped, ReconcilerError):
            for result in results:  # there will be no report of it
                if not result.is_quiet:
                    console.say(_line_of(result))
            raise
    report = FleetReport.of(command, results, __version__)
    _check_names(report)
    _show_messages(report)
    show(Content.FLEET, report, specs, is_redacted=True)
    return report.exit_code


def _check_names(report: FleetReport) -> None:
    """Check that what was named is known to a stack, unless one failed that may know it.

    Raises:
        WrongUsage: a key is neither declared nor owned by any stack.
        ManifestInvalid: a variable that was given a value is declared by none.
    """

    def unknown_to_all(names_by_stack: list[frozenset[str] | None]) -> list[str]:
        known = [names for names in names_by_stack if names is not None]
        return sorted(frozenset.intersection(*known)) if len(known) == len(names_by_stack) else []

    if names := unknown_to_all([result.undeclared for result in report.results]):
        why = "no stack of the fleet declares it"
        raise ManifestInvalid(*(Diagnostic("unknown variable", f"{name}: {why}") for name in names))
    if names := unknown_to_all([result.unmatched for result in report.results]):
        why = "is neither a declared nor an owned key of any stack of the fleet"
        raise WrongUsage(*(Diagnostic("unknown key", f'"{name}" {why}') for name in names))


def _show_messages(report: FleetReport) -> None:
    """Say on stderr what was said of each stack, and where the reports of internal errors are."""
    for result in report.results:
        root = printable(result.root)
        for message in result.messages:
            if message.diagnostic is None:
                console.say(f"{root}: {message.text}", "warning" if not message.level else "debug")
        if problems := [one.diagnostic for one in result.messages if one.diagnostic is not None]:
            console.say(f"{root}:")
            console.diagnostics(problems)
        if result.traceback:
            console.say(f"{root}:")
            exits.report_traceback(result.traceback, result.errors[0].why)


def _line_of(result: StackResult) -> str:
    said = result.errors[0].message if result.errors else result.last_line
    return printable(f"{result.root}: {said}")


@contextmanager
def fleet_progress(total: int) -> Iterator[Callable[[StackResult], None]]:
    """Yield what is told of each stack that is done; with `-v` each has a line."""
    done = failed = 0
    next_s = time.monotonic() + SAY_AFTER_S
    is_drawn = can_draw(sys.stderr)

    def count() -> str:
        return f"{done} of {total} stacks done" + (f", {failed} failed" if failed else "")

    line = BusyLine(count())

    def take(result: StackResult) -> None:
        nonlocal done, failed, next_s
        done += 1
        failed += bool(result.errors)
        console.detail(f"{count()}; {_line_of(result)}")
        line.text = f"{count()}  {_line_of(result)}"
        if not is_drawn and not console.verbosity and time.monotonic() >= next_s:
            next_s = time.monotonic() + SAY_EVERY_S
            console.say(count())

    with display.part(line, sys.stderr) if is_drawn else nullcontext():
        yield take
