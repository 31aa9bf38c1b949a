"""Commands that report on the jobs of a stack: `drift`, `watch`, `status`, `history`."""

from __future__ import annotations

import gc
import re
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

import click

from reconciler.cli import options as opt
from reconciler.cli.console import console
from reconciler.cli.context import load_stack, opened, runtime
from reconciler.cli.live import RANKS, LiveTable, TableRow
from reconciler.cli.output import OutputSpec, final_outputs, requested_outputs, show
from reconciler.cli.progress import can_draw, display, reading
from reconciler.errors import Diagnostic, ReconcilerError, WrongUsage
from reconciler.render import Content

if TYPE_CHECKING:
    from reconciler.decide.reports import JobStatus, StatusReport
    from reconciler.decide.watch_window import Window
    from reconciler.reconcile import Context


@opt.command(
    "drift",
    opt.TARGET,
    opt.flag(
        "--since-last", "Compare with the last check: only drift that is new, changed or due again counts."
    ),
    opt.remind("With --since-last: report again drift that has lasted for this long."),
    opt.output(Content.DRIFT),
    # Used by `watch`, which runs this command; see `watch.Handover`.
    click.option("--handover", default=None, hidden=True, type=opt.ANY_PATH),
    opt.FLEET,
)
def drift_command(
    since_last: bool,
    remind_s: float,
    outputs: Sequence[OutputSpec],
    handover: Path | None,
    fleet: bool,
    **options: Any,
) -> int:
    """Show what changed on the service since the last apply.

    Exits 0 without drift, 2 with drift, and 8 if too little could be read to decide. Changes in
    the manifest are not drift; they are listed separately as pending. Drift that drift.ignore lists as
    known is shown but not counted.
    """
    from reconciler import reconcile
    from reconciler.watch import handing_over, words_of

    if fleet:
        from reconciler.cli.fleet import check_fleet

        return check_fleet()
    unwritten = None
    with handing_over(handover, console.redact) as handed_over, opened(offline=True, **options) as context:
        report = reconcile.drift(context, since_last=since_last, remind_s=remind_s)
        handed_over.compared = report.compared
        if report.comparison is not None and report.comparison.problem is not None:
            handed_over.problem = f"not compared with the last check: {report.comparison.problem}"
        try:
            show(Content.DRIFT, report, requested_outputs(outputs))
        except (OSError, ReconcilerError) as error:
            if handover is None:
                raise
            # The watch still reports the drift.
            unwritten, handed_over.problem = error, f"the report was not written: {words_of(error)}"
        final_outputs.notifications_failed += reconcile.notify_drift(context, report)
        if unwritten is not None:
            raise unwritten
    return report.exit_code


#: Refresh intervals: on a terminal, and for output that is appended to a file.
REDRAW_EVERY_S, BLOCK_EVERY_S = 5.0, 60.0


@opt.command(
    "status",
    click.argument("words", nargs=-1, metavar="[KEY]... [PATH]...", type=opt.WORD),
    opt.TARGET[1:],
    opt.flag("--watch", "Refresh until Ctrl-C."),
    opt.output(Content.STATUS),
    opt.FLEET,
)
def status_command(
    words: Sequence[str],
    only: Sequence[str],
    watch: bool,
    outputs: Sequence[OutputSpec],
    fleet: bool,
    **options: Any,
) -> int:
    """Show the stack's jobs: revision, phase, times, nodes, last change, and what each is waiting for.

    The service is read once, and no lock is taken. An argument is a PATH if it is . or .., contains a /,
    or ends in .yaml or .yml; if there is none, an argument that exists is a PATH. Any other is a KEY.
    --watch redraws a terminal; elsewhere it prints changes, at most once a minute. With --json each
    update is one line. Exits 8 if something could not be read.
    """
    specs, (keys, paths) = requested_outputs(outputs), opt.split_arguments(words)
    if fleet:
        from reconciler.cli.fleet import check_fleet

        return check_fleet(paths=paths, only=(*keys, *only))
    as_json = specs == [_JSON]
    if watch and not as_json and specs != [_TEXT]:
        why, fix = "--watch prints updates as text or JSON only", "omit -o, or use --json"
        raise WrongUsage(Diagnostic("format not available with --watch", why, fix))
    with opened(paths=paths, only=(*keys, *only), offline=True, **options) as context:
        if watch:
            return _watch(context, as_json=as_json)
        from reconciler import reconcile

        report = reconcile.status(context)
    show(Content.STATUS, report, specs)
    return report.exit_code


_TEXT, _JSON = OutputSpec("text", None), OutputSpec("json", None)


def _watch(context: Context, *, as_json: bool) -> NoReturn:
    """Show the status until interrupted: redrawn on a terminal, else a block or line per change."""
    from reconciler import reconcile

    gc.enable()  # disabled for short runs; this one may last for days
    if can_draw(sys.stdout) and not as_json:
        _redraw(context)
    last: object = None
    while True:
        report = reconcile.status(context)
        jobs = []
        for one in report.jobs:
            # Without elapsed times, which always change.
            wait = one.waits_for and one.waits_for.model_copy(update={"detail": ""})
            jobs.append(one.model_copy(update={"queued_s": None, "ran_s": None, "waits_for": wait}))
        if (now := (report.complete, jobs, report.warnings)) != last:
            if as_json:
                console.document(report.document(), indent=None)
            else:
                show(Content.STATUS, report, [_TEXT])
        last = now
        context.target.clock.sleep(BLOCK_EVERY_S)


def _redraw(context: Context) -> NoReturn:
    """Redraw the status in place. The last one stays on the terminal, uncut."""
    from reconciler import reconcile
    from reconciler.render.reports import STATUS_COLUMNS, STATUS_ORDER, status_cells
    from reconciler.render.text import render_head

    table = LiveTable(STATUS_COLUMNS, STATUS_ORDER)
    report: StatusReport | None = None
    try:
        with reading.silenced(), display.part(table, sys.stdout):
            while True:
                report = reconcile.status(context)
                table.title = render_head(report.stack, report.target)
                table.foot = report.last_line
                table.rows = [
                    TableRow(status_cells(one, report), _rank(one), one.phase or "without a job")
                    for one in report.jobs
                ]
                display.refresh()
                context.target.clock.sleep(REDRAW_EVERY_S)
    finally:
        if report is not None:
            show(Content.STATUS, report, [_TEXT])


def _rank(one: JobStatus) -> int:
    """Rank jobs by importance: failed or unknown, running, waiting, the rest."""
    from reconciler.core.phase import parse_phase

    phase = parse_phase(one.phase or "")
    if one.problem is not None or (phase is not None and phase.ended_badly):
        return 0
    if phase is None or phase.is_terminal:
        return 5 if one.waits_for is None else 4
    return RANKS.get(phase.value, 3)


#: Default of `--limit` in text and JSON.
_SHOWN = 20


@opt.command(
    "history",
    click.argument("words", nargs=-1, metavar="[KEY] [PATH]...", type=opt.WORD),
    opt.VARIABLES,
    opt.TARGET_NAME,
    opt.RECORDS,
    opt.option(
        "--limit",
        "Maximum number of runs and revisions, newest first.  [default: 20; with --html: all]",
        type=click.IntRange(min=1),
    ),
    opt.option(
        "--html FILE",
        "Also write a page with a timeline: a lane per key, its revisions by phase, and what changed.",
        type=opt.ANY_PATH,
    ),
    opt.output(Content.HISTORY),
    opt.FLEET,
)
def history_command(
    words: Sequence[str],
    records: str | None,
    limit: int | None,
    html: Path | None,
    outputs: Sequence[OutputSpec],
    fleet: bool,
    **options: Any,
) -> int:
    """Show past applies, destroys, drift checks and revisions, newest first.

    With KEY: its revisions, each with its declaration, phases and duration, and the runs
    that acted on it. The first argument is KEY unless it is an existing path. -v shows each
    call. The service is not contacted. --html writes one page that loads nothing, to be
    opened in a browser.
    """
    from reconciler.connection import open_records_of

    specs = requested_outputs(outputs)
    if html is not None and html.suffix.lower() in (".yaml", ".yml") and html.exists():
        # `history --html jobs.yaml` probably means the stack, and would overwrite the manifest.
        why = f"{html} is a manifest, which the page would overwrite"
        fix = f"reconciler history {html} --html history.html"
        raise WrongUsage(Diagnostic("--html needs the file name of a page", why, fix))

    keys, paths = opt.split_arguments(words)
    if strays := [key for key in keys if key != words[0]]:
        raise WrongUsage(*(Diagnostic("no such path", f"{stray!r} does not exist") for stray in strays))
    key, shown = keys[0] if keys else None, limit or _SHOWN
    read = limit if html else shown
    if fleet:
        from reconciler.cli.fleet import check_fleet

        return check_fleet(paths=paths, key=key, limit=read, shown=shown)
    loaded = load_stack(paths, **options, offline=True)
    with open_records_of(loaded, options["target"], records, runtime()) as place:
        report = place.history(key, read)
    show(Content.HISTORY, report.limited_to(shown), specs)
    if html is not None:
        from reconciler.decide.history import make_timeline
        from reconciler.render.timeline import render_timeline

        page = render_timeline(make_timeline(report), console.redact)
        console.write_file(html, page, is_redacted=True)
    return 0


def _parse_share(text: str) -> float:
    """Parse a percentage such as 10%."""
    number = text.strip().removesuffix("%").strip()
    if not (number.isascii() and number.replace(".", "", 1).isdigit()) or float(number) > 100:
        raise ValueError(f"{text.strip()!r} is not a percentage from 0% to 100%")
    return float(number) / 100


def _parse_window(text: str) -> Window:
    from reconciler.decide.watch_window import Window

    return Window.parse(text)


def _parse_address(text: str) -> tuple[str, int]:
    """Parse HOST:PORT. The host defaults to loopback."""
    found = re.fullmatch(r"(?:\[([^\[\]]+)\]|([^\[\]]*)):([0-9]{1,5})", text)
    if found is None or int(found[3]) > 65535:
        raise ValueError(f"{text!r} is not an address; write 127.0.0.1:9464")
    return found[1] or found[2] or "127.0.0.1", int(found[3])


_INTERVAL = opt.Parsed("duration", opt.at_least_1s(""))


@opt.command(
    "watch",
    opt.TARGET,
    opt.option("--every", "Time between two checks.", "every_s", type=_INTERVAL, default="15m"),
    opt.option(
        "--jitter PERCENT",
        "Start each check later by a random part of the interval, up to this share.",
        type=opt.Parsed("percentage", _parse_share),
        default="0%",
    ),
    opt.option(
        "--check-timeout",
        "Time limit for a check, its apply included.",
        "check_timeout_s",
        type=_INTERVAL,
        default="5m",
    ),
    opt.remind("Notify again of drift that has lasted for this long."),
    opt.flag("--apply", "Apply changes, without asking; never past a guard.", "applies"),
    opt.option("--max-actions N", "With --apply: refuse a plan with more actions.", type=click.IntRange(0)),
    opt.many(
        "--window WINDOW",
        'With --apply: apply only in this window, e.g. "Mon-Fri 07:00-19:00 Europe/Berlin"; repeatable.',
        "windows",
        type=opt.Parsed("window", _parse_window, split=opt.by_line),
    ),
    opt.option(
        "--listen HOST:PORT",
        "Serve /metrics and /healthz on this address, e.g. 127.0.0.1:9464.",
        type=opt.Parsed("host:port", _parse_address),
    ),
    opt.output(Content.DRIFT),
    opt.LOCK,
)
def watch_command(outputs: Sequence[OutputSpec], **options: Any) -> int:
    """Check for drift at once and then once every interval, until stopped by a signal.

    Each check rereads the manifest and is a line on stdout: text, or JSON with --json. With --apply
    changes are applied, too. A failed check does not end the watch; after failures, checks are less frequent.
    """
    from reconciler.cli.watch import watch
    from reconciler.watch import WatchRequest

    request = WatchRequest(**{name: options[name] for name in WatchRequest._fields})
    return watch(request, requested_outputs(outputs), click.get_current_context())
