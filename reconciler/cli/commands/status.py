"""`reconciler status`: the stack's jobs now, once or again and again."""

from __future__ import annotations

import gc
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

import click

from reconciler.cli.completions import keys_and_paths
from reconciler.cli.options import TARGET, option, with_options
from reconciler.cli.service_session import JSON
from reconciler.cli.terminal.console import console
from reconciler.cli.terminal.reading import reading
from reconciler.cli.terminal.wait_table import RANKS, LiveTable, TableRow, can_draw, display
from reconciler.errors import ExitCode

if TYPE_CHECKING:
    from reconciler.cli.arguments import Arguments
    from reconciler.decide.reports import JobStatus, StatusReport
    from reconciler.reconcile import Context

#: Seconds between two looks: on a terminal, and where each block is one more in a file.
REDRAW_EVERY_S, BLOCK_EVERY_S = 5.0, 60.0
#: What grows by itself is no change.
_ELAPSED = {"queued_s", "ran_s"}


@click.command("status")
@with_options(
    click.argument("words", nargs=-1, metavar="[KEY]... [PATH]...", shell_complete=keys_and_paths),
    TARGET[1:],
    option("--watch", is_flag=True, help="Refresh until Ctrl-C."),
    JSON,
)
def command(
    words: Sequence[str],
    variables: Sequence[tuple[str, str]],
    var_files: Sequence[Path],
    only: Sequence[str],
    watch: bool,
    as_json: bool,
    **options: Any,
) -> int:
    """Show the stack's jobs: revision, phase, times, nodes, last change, and what each is waiting for.

    The service is read once, and no lock is taken. An argument that exists, holds a / or ends in .yaml
    or .yml is a PATH, any other a KEY. --watch redraws a terminal; elsewhere it prints changes,
    at most once a minute. With --json each update is one line. Exits 8 if something could not be read.
    """
    from reconciler.cli.context import opened
    from reconciler.cli.terminal.pager import paged

    keys, paths = _arguments(words, variables, var_files, options["target"])
    with opened(
        paths=paths,
        variables=variables,
        var_files=var_files,
        only=(*keys, *only),
        offline=True,
        **options,
    ) as context:
        if watch:
            return _watch(context, as_json=as_json)
        from reconciler import reconcile

        report = reconcile.status(context)
    with paged(is_wanted=not as_json):
        _show(report, as_json=as_json)
    return ExitCode.DONE if report.complete else ExitCode.UNKNOWN


def _arguments(
    words: Sequence[str],
    variables: Sequence[tuple[str, str]],
    var_files: Sequence[Path],
    target: str | None,
) -> Arguments:
    from reconciler.cli.arguments import split_arguments
    from reconciler.cli.context import load_stack

    def has_key(paths: Sequence[Path], key: str) -> bool:
        return key in load_stack(paths, variables, var_files, target, offline=True).stack.whole

    return split_arguments(words, has_key, "status")


def _show(report: StatusReport, *, as_json: bool, indent: int | None = 2) -> None:
    if as_json:
        console.document(report.document(), indent=indent)
        return
    from reconciler.render.commands import render_status

    console.result(render_status(report, console.style(sys.stdout)))


# --- again and again


def _watch(context: Context, *, as_json: bool) -> NoReturn:
    """Look until somebody stops it."""
    gc.enable()  # a run is spared it while it is short; this one may last for days
    if can_draw(sys.stdout) and not as_json:
        _redraw(context)
    _print_changes(context, as_json=as_json)


def _print_changes(context: Context, *, as_json: bool) -> NoReturn:
    from reconciler import reconcile

    last: object = None
    while True:
        report = reconcile.status(context)
        if (now := _unmoving(report)) != last:
            _show(report, as_json=as_json, indent=None)
        last = now
        context.target.clock.sleep(BLOCK_EVERY_S)


def _unmoving(report: StatusReport) -> object:
    """A report without what changes by itself: elapsed times, also those in a detail for people."""
    jobs = []
    for one in report.jobs:
        waiting = one.waits_for and one.waits_for.model_copy(update={"detail": ""})
        jobs.append(one.model_copy(update={**dict.fromkeys(_ELAPSED), "waits_for": waiting}))
    return report.complete, jobs, report.warnings


def _redraw(context: Context) -> NoReturn:
    """Draw it in place; the last one stays, whole, when somebody stops it."""
    from reconciler import reconcile
    from reconciler.render.commands import COLUMNS, cells, head_line, summary_line

    table = LiveTable(COLUMNS)
    report: StatusReport | None = None
    try:
        with reading.silenced(), display.part(table, sys.stdout):
            while True:
                report = reconcile.status(context)
                table.title = head_line(report)
                table.rows = [
                    TableRow(cells(one, report), _rank(one), one.phase or "without a job")
                    for one in report.jobs
                ]
                table.foot = summary_line(report)
                display.refresh()
                context.target.clock.sleep(REDRAW_EVERY_S)
    finally:
        if report is not None:
            _show(report, as_json=False)


def _rank(one: JobStatus) -> int:
    """What matters most stands first: what failed or cannot be judged, what runs, what waits, the rest."""
    from reconciler.core.phase import parse_phase

    phase = parse_phase(one.phase or "")
    if one.problem is not None or (phase is not None and phase.ended_badly):
        return 0
    if phase is None or phase.is_terminal:
        return 5 if one.waits_for is None else 4
    return RANKS.get(phase.value, 3)
