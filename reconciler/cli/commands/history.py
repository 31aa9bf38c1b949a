"""`reconciler history`: what was recorded of a stack: runs, and the revisions of its jobs."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import click

from reconciler.cli.completions import keys_and_paths
from reconciler.cli.options import (
    RECORDS,
    STACK,
    TARGET_NAME,
    YES,
    DurationType,
    OutputSpec,
    option,
    output,
    with_options,
)
from reconciler.cli.terminal.console import console
from reconciler.errors import Diagnostic, ReconcilerError, WrongUsage
from reconciler.render import Content
from reconciler.text import format_count

if TYPE_CHECKING:
    from reconciler.connection import RecordedStack
    from reconciler.core.record import PastRevision
    from reconciler.decide.history_report import HistoryExcerpt, HistoryReport
    from reconciler.decide.journal import Records
    from reconciler.manifests import LoadedStack

#: What is older is pruned, if nobody says another age.
PRUNED_AFTER_S = 90 * 86_400.0
#: So much is shown in text and JSON, if nobody says another limit.
_SHOWN = 20


#: How it is told what was pruned.
_OF_PRUNE = (OutputSpec("text", None), OutputSpec("json", None))


class NotRecorded(ReconcilerError):
    """What was asked for was never written down."""


class HistoryRequest(NamedTuple):
    """What a person wants to see. `key` is None for all keys, `limit` for all that is recorded."""

    key: str | None
    limit: int | None
    diff: tuple[int, int] | None


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
        type=DurationType(),
        default=None,
        help="With --prune: delete records of what ended longer ago than this.  [default: 90d]",
    ),
    YES,
    output(Content.HISTORY),
)
def command(
    words: Sequence[str],
    variables: Sequence[tuple[str, str]],
    var_files: Sequence[Path],
    target: str | None,
    records: str | None,
    limit: int | None,
    html: Path | None,
    diff: tuple[int, int] | None,
    prune: bool,
    older_than_s: float | None,
    yes: bool,
    outputs: Sequence[OutputSpec],
    as_json: bool,
) -> int:
    """Show past applies, destroys, drift checks and revisions, newest first.

    With KEY: its revisions, each with its declaration, phases and duration, and the runs
    that acted on it. The first argument is KEY unless it is an existing path. -v shows each
    call. The service is not contacted. --html writes one page that loads nothing, to be
    opened in a browser.
    """
    from reconciler.cli.context import runtime
    from reconciler.cli.output import requested_outputs, show_history
    from reconciler.cli.terminal.pager import paged
    from reconciler.connection import open_records_of

    specs = requested_outputs(outputs, as_json=as_json)
    if html is not None:
        _check_is_no_manifest(html)
    loaded, key = _opened(words, variables, var_files, target, records)
    _check_it_fits(key, diff, prune, specs, html)
    with open_records_of(loaded, target, records, runtime()) as place:
        if prune:
            age_s = PRUNED_AFTER_S if older_than_s is None else older_than_s
            return _prune(place, age_s, yes, OutputSpec("json", None) in specs)
        shown = _excerpt(place, HistoryRequest(key, limit if html else limit or _SHOWN, diff))
        page = _page(place, shown) if html else ""
        report = _report(place, shown.limited_to(limit or _SHOWN))
    with paged(is_wanted=not (outputs or as_json or html)):
        show_history(report, specs)
    if html is not None:
        console.write_file(html, page, is_redacted=True)
    return 0


def _check_it_fits(
    key: str | None,
    diff: tuple[int, int] | None,
    prune: bool,
    specs: Sequence[OutputSpec],
    html: Path | None,
) -> None:
    if prune and (key or diff or html):
        why = "--prune deletes old records of all keys and shows nothing"
        raise WrongUsage(Diagnostic("not with --prune", why, "omit KEY, --diff and --html"))
    if prune and (strange := [spec for spec in specs if spec not in _OF_PRUNE]):
        why = f"--prune tells on stdout what it deleted, as text or JSON, got -o {strange[0].format}"
        raise WrongUsage(Diagnostic("not with --prune", why, "omit -o, or use --json"))
    if diff and html:
        why = "the page shows when revisions ran, not what was declared for them"
        raise WrongUsage(Diagnostic("--diff and --html do not go together", why, "use one of them"))
    if diff and not key:
        why = "revisions are numbered per key"
        raise WrongUsage(Diagnostic("--diff needs KEY", why, "reconciler history KEY --diff 1 2"))


def _check_is_no_manifest(page: Path) -> None:
    """See that the page would not take the place of what stands there, and looks like a manifest.

    Whoever writes `history --html jobs.yaml`, and means the stack, would lose that file.
    """
    if page.suffix.lower() in (".yaml", ".yml") and page.exists():
        why = f"{page} is a manifest, which the page would overwrite"
        fix = f"reconciler history {page} --html history.html"
        raise WrongUsage(Diagnostic("--html needs the file of a page", why, fix))


# --- KEY, or PATH


def _opened(
    words: Sequence[str],
    variables: Sequence[tuple[str, str]],
    var_files: Sequence[Path],
    target: str | None,
    records: str | None,
) -> tuple[LoadedStack, str | None]:
    """Load the stack, and say which of the words is the key: the first one, if any is."""
    from reconciler.cli.arguments import split_arguments
    from reconciler.cli.context import load_stack

    def has_key(paths: Sequence[Path], key: str) -> bool:
        loaded = load_stack(paths, variables, var_files, target, offline=True)
        return _knows(loaded, key, target, records)

    keys, paths = split_arguments(words, has_key, "history")
    if strays := [key for key in keys if key != words[0]]:
        raise WrongUsage(*(Diagnostic("no such path", f"{stray!r} does not exist") for stray in strays))
    return load_stack(paths, variables, var_files, target, offline=True), keys[0] if keys else None


def _knows(loaded: LoadedStack, key: str, target: str | None, records: str | None) -> bool:
    from reconciler.cli.context import runtime
    from reconciler.connection import open_records_of

    if key in _declared(loaded):
        return True
    with open_records_of(loaded, target, records, runtime()) as place:
        return place.store is not None and _was_recorded(place.store, place, key)


def _declared(loaded: LoadedStack) -> set[str]:
    return {*loaded.stack.whole, *loaded.stack.declared_keys, *loaded.stack.former_keys}


def _was_recorded(store: Records, place: RecordedStack, key: str) -> bool:
    return bool(store.revisions(place.scope, key) or store.runs(place.scope, key=key, limit=1))


# --- showing


def _report(place: RecordedStack, shown: HistoryExcerpt) -> HistoryReport:
    from reconciler.decide.history_report import make_history
    from reconciler.version import __version__

    return make_history(
        place.scope.stack,
        place.target,
        shown,
        manifest_digest=place.loaded.manifest_digest,
        version=__version__,
        at_s=place.clock.now(),
    )


def _page(place: RecordedStack, shown: HistoryExcerpt) -> str:
    from reconciler.decide.timeline import make_timeline
    from reconciler.render.timeline import render_timeline
    from reconciler.version import __version__

    at_s = place.clock.now()
    timeline = make_timeline(place.scope.stack, place.target, shown, version=__version__, at_s=at_s)
    return render_timeline(timeline, console.redact)


def _excerpt(place: RecordedStack, asked: HistoryRequest) -> HistoryExcerpt:
    from reconciler.decide.history_report import HistoryExcerpt, newest_revisions

    store, scope = place.store, place.scope
    if store is None:
        if asked.diff is not None:
            raise NotRecorded(Diagnostic("nothing to compare", "nothing is recorded yet"))
        return HistoryExcerpt(asked.key)
    if asked.key is None:
        revisions = newest_revisions(store.memory(scope), asked.limit)
        return HistoryExcerpt(None, store.runs(scope, limit=asked.limit), revisions)
    if asked.key not in _declared(place.loaded) and not _was_recorded(store, place, asked.key):
        raise _unknown_key(store, place, asked.key)
    every = store.revisions(scope, asked.key)
    if asked.diff is not None:
        return _compared(every, asked.key, asked.diff)
    runs = store.runs(scope, key=asked.key, limit=asked.limit)
    return HistoryExcerpt(asked.key, runs, list(reversed(every))[: asked.limit])


def _compared(revisions: Sequence[PastRevision], key: str, numbers: tuple[int, int]) -> HistoryExcerpt:
    from reconciler.core.masking import mask
    from reconciler.decide.history_report import HistoryDiff, HistoryExcerpt, changes_of

    before, after = (_numbered(revisions, key, number) for number in numbers)
    changes = mask(
        changes_of(_declared_for(before), _declared_for(after)), (one.declared for one in revisions)
    )
    diff = HistoryDiff(before=before.number, after=after.number, changes=changes)
    return HistoryExcerpt(key, revisions=(after, before), diff=diff)


def _unknown_key(store: Records, place: RecordedStack, key: str) -> WrongUsage:
    from difflib import get_close_matches

    known = sorted({*store.memory(place.scope).by_key, *_declared(place.loaded)})
    by_fold = {one.casefold(): one for one in known}
    near = get_close_matches(key.casefold(), by_fold, n=1)
    why = f'"{key}" is not a key of stack {place.scope.stack}, and has no records there'
    fix = f'did you mean "{by_fold[near[0]]}"?' if near else "reconciler history lists the recorded keys"
    return WrongUsage(Diagnostic("unknown key", why, fix))


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


# --- pruning


def _prune(place: RecordedStack, age_s: float, yes: bool, as_json: bool) -> int:
    from reconciler.cli.terminal.confirmation import confirm
    from reconciler.core.values import timestamp

    store, scope, before_s = place.store, place.scope, place.clock.now() - age_s
    deleted = 0
    before = timestamp(before_s)
    old = store and store.prunable(scope, before_s)
    if store is not None and old:
        runs, revisions = format_count(old.runs, "run"), format_count(old.revisions, "revision")
        said = f"{runs} and {revisions} that ended before {before}"
        if not yes:
            confirm(f"Delete the records of {said}? The newest revision of each key stays.")
        deleted = store.prune(scope, before_s)
    if as_json:
        gone = {"deleted_runs": deleted, "deleted_revisions": old.revisions if old else 0}
        console.document({"stack": scope.stack, "before": before, **gone})
    elif old:
        gone_too = format_count(old.revisions, "revision")
        console.result(f"Deleted {format_count(deleted, 'run')} and {gone_too} that ended before {before}.\n")
    else:
        console.result(f"Nothing on record ended before {before}.\n")
    return 0
