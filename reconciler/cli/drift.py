"""What happened to the jobs of a stack: `drift`, `accept`, `watch`, `status`, `history`."""

from __future__ import annotations

import gc
import re
import sys
from collections.abc import Mapping, Sequence
from dataclasses import fields
from difflib import get_close_matches
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

import click

from reconciler.cli.console import confirm, console, paged
from reconciler.cli.context import load_stack, opened, runtime
from reconciler.cli.options import (
    DURATION,
    FLEET,
    JSON,
    LOCK,
    RECORDS,
    STACK,
    TARGET,
    TARGET_NAME,
    VARIABLES,
    YES,
    Parsed,
    by_line,
    keys,
    keys_and_paths,
    option,
    output,
    remind,
    split_arguments,
    with_options,
)
from reconciler.cli.output import OutputSpec, final_outputs, requested_outputs, show
from reconciler.cli.progress import RANKS, LiveTable, TableRow, can_draw, display, reading
from reconciler.errors import Diagnostic, ExitCode, ReconcilerError, WrongUsage
from reconciler.render import Content
from reconciler.text import format_count, parse_duration
from reconciler.version import __version__

if TYPE_CHECKING:
    from reconciler.connection import RecordedStack
    from reconciler.core.record import PastRevision
    from reconciler.decide.history import HistoryExcerpt
    from reconciler.decide.reports import JobStatus, StatusReport
    from reconciler.decide.watch_window import Window
    from reconciler.manifest import LoadedStack
    from reconciler.reconcile import Context
    from reconciler.records.store import Records


@click.command("drift")
@with_options(
    TARGET,
    option(
        "--since-last",
        is_flag=True,
        help="Compare with the last check: only drift that is new, changed or due again counts.",
    ),
    remind("With --since-last: report again drift that has lasted for this long."),
    output(Content.DRIFT),
    # For `watch`, whose checks this command does: what it has to know beside the report.
    click.option("--handover", default=None, hidden=True, type=click.Path(path_type=Path)),
    FLEET,
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
    the manifest are not drift; they are listed separately as pending. Drift that drift.ignore or
    `reconciler accept` says is known is listed and not counted.
    """
    from reconciler import reconcile
    from reconciler.watch import handing_over, words_of

    if fleet:
        from reconciler.cli.fleet import check_fleet

        return check_fleet()
    checked = reconcile.CheckOptions(since_last, remind_s, is_reported_later=True)
    unwritten = None
    with handing_over(handover, console.redact) as told, opened(offline=True, **options) as context:
        report = reconcile.drift(context, checked)
        told.compared = report.compared
        if report.comparison is not None and report.comparison.problem is not None:
            told.problem = f"not compared with the last check: {report.comparison.problem}"
        try:
            with paged(is_wanted=not outputs):
                show(Content.DRIFT, report, requested_outputs(outputs))
        except (OSError, ReconcilerError) as error:
            if handover is None:
                raise
            # The line of the watch has the drift all the same.
            unwritten, told.problem = error, f"the report was not written: {words_of(error)}"
        told.notified = notified = reconcile.notify_drift(context, report, told.notified)
        final_outputs.notifications_failed += notified.failed
        if unwritten is not None:
            raise unwritten
    return report.exit_code


@click.command("accept")
@with_options(
    click.argument("key", metavar="KEY", shell_complete=keys),
    click.argument("paths", nargs=-1, metavar="[PATH]...", type=click.Path(path_type=Path)),
    VARIABLES,
    TARGET_NAME,
    RECORDS,
    option("--reason", default="", metavar="TEXT", help="Why the drift is accepted; shown with it."),
    option("--remove", is_flag=True, help="Remove the acceptance: the drift of KEY counts again."),
    output(Content.DRIFT),
)
def accept_command(key: str, reason: str, remove: bool, outputs: Sequence[OutputSpec], **options: Any) -> int:
    """Record the present drift of KEY as known until it changes.

    Drift checks list it from then on and do not count it, until it has another class, is about
    another job, has other changes, or has gone. The service is read and not changed, so no lock is
    taken and nothing is asked; who accepted it, and when, is in the history.
    """
    from reconciler.reconcile import accept, remove_acceptance

    if remove and reason:
        why = "--remove takes back what was accepted, and needs no reason"
        raise WrongUsage(Diagnostic("not with --remove", why, "omit --reason"))
    with opened(offline=True, only=(), parallelism=8, without_records=False, **options) as context:
        report = remove_acceptance(context, key) if remove else accept(context, key, reason)
    show(Content.DRIFT, report, requested_outputs(outputs))
    return 0


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
def status_command(
    words: Sequence[str], only: Sequence[str], watch: bool, as_json: bool, **options: Any
) -> int:
    """Show the stack's jobs: revision, phase, times, nodes, last change, and what each is waiting for.

    The service is read once, and no lock is taken. An argument that exists, holds a / or ends in .yaml
    or .yml is a PATH, any other a KEY. --watch redraws a terminal; elsewhere it prints changes,
    at most once a minute. With --json each update is one line. Exits 8 if something could not be read.
    """
    values = {name: options[name] for name in ("variables", "var_files", "target")}

    def has_key(paths: Sequence[Path], key: str) -> bool:
        return key in load_stack(paths, **values, offline=True).stack.whole

    keys, paths = split_arguments(words, has_key, "status")
    with opened(paths=paths, only=(*keys, *only), offline=True, **options) as context:
        if watch:
            return _watch(context, as_json=as_json)
        from reconciler import reconcile

        report = reconcile.status(context)
    with paged(is_wanted=not as_json):
        _show(report, as_json=as_json)
    return ExitCode.DONE if report.complete else ExitCode.UNKNOWN


def _show(report: StatusReport, *, as_json: bool, indent: int | None = 2) -> None:
    if as_json:
        console.document(report.document(), indent=indent)
        return
    from reconciler.render.commands import render_status

    console.result(render_status(report, console.style(sys.stdout)))


def _watch(context: Context, *, as_json: bool) -> NoReturn:
    """Look until somebody stops it: on a terminal in place, elsewhere a block or a line for each change."""
    from reconciler import reconcile

    gc.enable()  # a run is spared it while it is short; this one may last for days
    if can_draw(sys.stdout) and not as_json:
        _redraw(context)
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
    from reconciler.render.commands import COLUMNS, cells, summary_line
    from reconciler.render.text import render_head

    table = LiveTable(COLUMNS)
    report: StatusReport | None = None
    try:
        with reading.silenced(), display.part(table, sys.stdout):
            while True:
                report = reconcile.status(context)
                table.title = render_head(report.stack, report.target)
                table.foot = summary_line(report)
                table.rows = [
                    TableRow(cells(one, report), _rank(one), one.phase or "without a job")
                    for one in report.jobs
                ]
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


#: What is older is pruned, if nobody says another age.
PRUNED_AFTER_S = 90 * 86_400.0
#: So much is shown in text and JSON, if nobody says another limit.
_SHOWN = 20
#: How it is told what was pruned.
_OF_PRUNE = (OutputSpec("text", None), OutputSpec("json", None))


class NotRecorded(ReconcilerError):
    """What was asked for was never written down."""


@click.command("history")
@with_options(
    click.argument("words", nargs=-1, metavar="[KEY] [PATH]...", shell_complete=keys_and_paths),
    STACK[1:],
    TARGET_NAME,
    RECORDS,
    option(
        "--limit",
        type=click.IntRange(min=1),
        default=None,
        help="Maximum number of runs and revisions, newest first.  [default: 20; with --html: all]",
    ),
    option(
        "--html",
        type=click.Path(path_type=Path),
        default=None,
        metavar="FILE",
        help="Also write a page with a timeline: a lane per key, its revisions by phase, and what changed.",
    ),
    option(
        "--diff",
        nargs=2,
        type=click.IntRange(min=1),
        default=None,
        metavar="A B",
        help="Show the differences between the declarations of two revisions of KEY.",
    ),
    option("--prune", is_flag=True, help="Delete old records, after asking."),
    option(
        "--older-than",
        "older_than_s",
        type=DURATION,
        default=None,
        help="With --prune: delete records of what ended longer ago than this.  [default: 90d]",
    ),
    YES,
    output(Content.HISTORY),
)
def history_command(
    words: Sequence[str],
    records: str | None,
    limit: int | None,
    html: Path | None,
    diff: tuple[int, int] | None,
    prune: bool,
    older_than_s: float | None,
    yes: bool,
    outputs: Sequence[OutputSpec],
    **options: Any,
) -> int:
    """Show past applies, destroys, drift checks and revisions, newest first.

    With KEY: its revisions, each with its declaration, phases and duration, and the runs
    that acted on it. The first argument is KEY unless it is an existing path. -v shows each
    call. The service is not contacted. --html writes one page that loads nothing, to be
    opened in a browser.
    """
    from reconciler.connection import open_records_of
    from reconciler.decide.history import make_history

    specs = requested_outputs(outputs)
    if html is not None and html.suffix.lower() in (".yaml", ".yml") and html.exists():
        # Whoever writes `history --html jobs.yaml`, and means the stack, would lose that file.
        why = f"{html} is a manifest, which the page would overwrite"
        fix = f"reconciler history {html} --html history.html"
        raise WrongUsage(Diagnostic("--html needs the file of a page", why, fix))
    loaded, key = _opened(words, records, options)
    strange = [spec for spec in specs if spec not in _OF_PRUNE]
    if prune and (key or diff or html):
        why = "--prune deletes old records of all keys and shows nothing"
        raise WrongUsage(Diagnostic("not with --prune", why, "omit KEY, --diff and --html"))
    if prune and strange:
        why = f"--prune tells on stdout what it deleted, as text or JSON, got -o {strange[0].format}"
        raise WrongUsage(Diagnostic("not with --prune", why, "omit -o, or use --json"))
    if diff and html:
        why = "the page shows when revisions ran, not what was declared for them"
        raise WrongUsage(Diagnostic("--diff and --html do not go together", why, "use one of them"))
    if diff and not key:
        why = "revisions are numbered per key"
        raise WrongUsage(Diagnostic("--diff needs KEY", why, "reconciler history KEY --diff 1 2"))
    with open_records_of(loaded, options["target"], records, runtime()) as place:
        at_s = place.clock.now()
        if prune:
            before_s = at_s - (PRUNED_AFTER_S if older_than_s is None else older_than_s)
            return _prune(place, before_s, yes, OutputSpec("json", None) in specs)
        shown = _excerpt(place, key, limit if html else limit or _SHOWN, diff)
        about = (place.scope.stack, place.target)
        page = ""
        if html is not None:
            from reconciler.decide.history import make_timeline
            from reconciler.render.timeline import render_timeline

            timeline = make_timeline(*about, shown, version=__version__, at_s=at_s)
            page = render_timeline(timeline, console.redact)
        report = make_history(
            *about,
            shown.limited_to(limit or _SHOWN),
            manifest_digest=loaded.manifest_digest,
            version=__version__,
            at_s=at_s,
        )
    with paged(is_wanted=not (outputs or html)):
        show(Content.HISTORY, report, specs)
    if html is not None:
        console.write_file(html, page, is_redacted=True)
    return 0


def _opened(
    words: Sequence[str], records: str | None, options: Mapping[str, Any]
) -> tuple[LoadedStack, str | None]:
    """Load the stack, and say which of the words is the key: the first one, if any is."""
    from reconciler.connection import open_records_of

    def has_key(paths: Sequence[Path], key: str) -> bool:
        loaded = load_stack(paths, **options, offline=True)
        if key in _declared(loaded):
            return True
        with open_records_of(loaded, options["target"], records, runtime()) as place:
            return place.store is not None and _was_recorded(place.store, place, key)

    keys, paths = split_arguments(words, has_key, "history")
    if strays := [key for key in keys if key != words[0]]:
        raise WrongUsage(*(Diagnostic("no such path", f"{stray!r} does not exist") for stray in strays))
    return load_stack(paths, **options, offline=True), keys[0] if keys else None


def _declared(loaded: LoadedStack) -> set[str]:
    return {*loaded.stack.whole, *loaded.stack.declared_keys, *loaded.stack.former_keys}


def _was_recorded(store: Records, place: RecordedStack, key: str) -> bool:
    return bool(store.revisions(place.scope, key) or store.runs(place.scope, key=key, limit=1))


def _excerpt(
    place: RecordedStack, key: str | None, limit: int | None, diff: tuple[int, int] | None
) -> HistoryExcerpt:
    """What a person wants to see: of one key or all, so many of each or all that is recorded."""
    from reconciler.core.masking import mask
    from reconciler.decide.history import HistoryDiff, HistoryExcerpt, changes_of, newest_revisions

    store, scope, declared = place.store, place.scope, _declared(place.loaded)
    if store is None:
        if diff is not None:
            raise NotRecorded(Diagnostic("nothing to compare", "nothing is recorded yet"))
        return HistoryExcerpt(key)
    if key is None:
        return HistoryExcerpt(
            None, store.runs(scope, limit=limit), newest_revisions(store.memory(scope), limit)
        )
    if key not in declared and not _was_recorded(store, place, key):
        by_fold = {one.casefold(): one for one in sorted({*store.memory(scope).by_key, *declared})}
        near = get_close_matches(key.casefold(), by_fold, n=1)
        why = f'"{key}" is not a key of stack {scope.stack}, and has no records there'
        fix = f'did you mean "{by_fold[near[0]]}"?' if near else "reconciler history lists the recorded keys"
        raise WrongUsage(Diagnostic("unknown key", why, fix))
    revisions = store.revisions(scope, key)
    if diff is None:
        runs = store.runs(scope, key=key, limit=limit)
        return HistoryExcerpt(key, runs, list(reversed(revisions))[:limit])
    before, after = (_numbered(revisions, key, number) for number in diff)
    changes = mask(
        changes_of(_declared_for(before), _declared_for(after)), (one.declared for one in revisions)
    )
    compared = HistoryDiff(before=before.number, after=after.number, changes=changes)
    return HistoryExcerpt(key, revisions=(after, before), diff=compared)


def _numbered(revisions: Sequence[PastRevision], key: str, number: int) -> PastRevision:
    found = next((one for one in revisions if one.number == number), None)
    if found is None:
        there = ", ".join(str(one.number) for one in revisions) or "none"
        raise WrongUsage(
            Diagnostic("no such revision", f"r{number} of {key} is not recorded; recorded: {there}")
        )
    return found


def _declared_for(one: PastRevision) -> Any:
    # An update of a job that keeps another digest tells what can be updated only.
    if one.declared is None or not one.declared.immutable:
        why = (
            f"the declaration of r{one.number} of {one.key} is not on record: it was pruned or made elsewhere"
        )
        raise NotRecorded(Diagnostic("not recorded", why))
    return one.declared


def _prune(place: RecordedStack, before_s: float, yes: bool, as_json: bool) -> int:
    from reconciler.core.values import timestamp

    store, scope, before = place.store, place.scope, timestamp(before_s)
    old = store and store.prunable(scope, before_s)
    runs, revisions = (old.runs, old.revisions) if old else (0, 0)
    if store is not None and old:
        if not yes:
            said = f"{format_count(runs, 'run')} and {format_count(revisions, 'revision')}"
            what = f"Delete the records of {said} that ended before {before}?"
            confirm(f"{what} The newest revision of each key stays.")
        runs = store.prune(scope, before_s)
    if as_json:
        gone = {"deleted_runs": runs, "deleted_revisions": revisions}
        console.document({"stack": scope.stack, "before": before, **gone})
    elif old:
        said = f"{format_count(runs, 'run')} and {format_count(revisions, 'revision')}"
        console.result(f"Deleted {said} that ended before {before}.\n")
    else:
        console.result(f"Nothing on record ended before {before}.\n")
    return 0


def _parse_interval(text: str) -> float:
    if (seconds := parse_duration(text)) < 1:
        raise ValueError("must be at least 1s")
    return seconds


def _parse_share(text: str) -> float:
    """A share such as 10%."""
    number = text.strip().removesuffix("%").strip()
    if not (number.isascii() and number.replace(".", "", 1).isdigit()) or float(number) > 100:
        raise ValueError(f"{text.strip()!r} is not a percentage from 0% to 100%")
    return float(number) / 100


def _parse_window(text: str) -> Window:
    from reconciler.decide.watch_window import Window

    return Window.parse(text)


def _parse_address(text: str) -> tuple[str, int]:
    """HOST:PORT; without a host this machine."""
    found = re.fullmatch(r"(?:\[([^\[\]]+)\]|([^\[\]]*)):([0-9]{1,5})", text)
    if found is None or int(found[3]) > 65535:
        raise ValueError(f"{text!r} is not an address; write 127.0.0.1:9464")
    return found[1] or found[2] or "127.0.0.1", int(found[3])


@click.command("watch")
@with_options(
    TARGET,
    option(
        "--every",
        "every_s",
        type=Parsed("duration", _parse_interval),
        default="15m",
        show_default=True,
        help="Time between two checks.",
    ),
    option(
        "--jitter",
        type=Parsed("percentage", _parse_share),
        default="0%",
        show_default=True,
        metavar="PERCENT",
        help="Start each check later by a random part of the interval, up to this share.",
    ),
    option(
        "--check-timeout",
        "check_timeout_s",
        type=Parsed("duration", _parse_interval),
        default="5m",
        show_default=True,
        help="Time limit for a check, its apply included.",
    ),
    remind("Notify again of drift that has lasted for this long."),
    option("--apply", "applies", is_flag=True, help="Apply changes, without asking; never past a guard."),
    option(
        "--max-actions",
        type=click.IntRange(0),
        default=None,
        metavar="N",
        help="With --apply: refuse a plan with more actions.",
    ),
    option(
        "--window",
        "windows",
        multiple=True,
        type=Parsed("window", _parse_window, split=by_line),
        metavar="WINDOW",
        help='With --apply: apply only in this window, e.g. "Mon-Fri 07:00-19:00 Europe/Berlin"; repeatable.',
    ),
    option(
        "--listen",
        type=Parsed("host:port", _parse_address),
        default=None,
        metavar="HOST:PORT",
        help="Serve /metrics and /healthz on this address, e.g. 127.0.0.1:9464.",
    ),
    option(
        "--push-gateway",
        default=None,
        metavar="URL",
        help="Push the metrics to this Prometheus Pushgateway after each check.",
    ),
    output(Content.DRIFT),
    LOCK,
)
def watch_command(outputs: Sequence[OutputSpec], **options: Any) -> int:
    """Check for drift at once and then once every interval, until stopped by a signal.

    Each check reads the manifest anew and is a line on stdout: text, or JSON with --json. With --apply
    changes are applied, too. A check that fails ends nothing; after failures checks come less often.
    """
    from reconciler.cli.watch import WatchRequest, watch

    request = WatchRequest(**{one.name: options[one.name] for one in fields(WatchRequest)})
    return watch(request, requested_outputs(outputs), click.get_current_context())
