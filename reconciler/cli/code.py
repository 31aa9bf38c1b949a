"""Uploaded code: `code list` and `code gc`."""

from __future__ import annotations

import sys
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, Any, NamedTuple

from reconciler.cli import options as opt
from reconciler.cli.console import confirm, console
from reconciler.cli.context import load_stack, runtime
from reconciler.cli.exits import handled_by
from reconciler.errors import Diagnostic, ExitCode, ServiceError, Unauthorized, WrongUsage, first_of
from reconciler.text import few, format_count, format_duration, format_size

if TYPE_CHECKING:
    import threading

    from reconciler.code_store import CodeStore
    from reconciler.decide.code import CodeUse, Prefix
    from reconciler.reconcile import Context
    from reconciler.render import Style


class JobsUnknown(ServiceError):
    """Some jobs or records that may use the code could not be read."""

    what = "the jobs could not be listed completely"


@opt.group("code")
def code_command() -> None:
    """List and delete the code that was uploaded for jobs."""


#: The fields of a job that refer to its code.
_SHOWN = {"algorithm", "tasks"}
_WHERE = (opt.WHERE, opt.RECORDS, opt.WITHOUT_RECORDS)


@opt.command("list", *_WHERE, opt.JSON, of=code_command)
def list_(as_json: bool, **options: Any) -> int:
    """List the code in the target's store, of every stack, and the revisions that use it.

    An upload is incomplete if its manifest object or a file is missing; the next apply that needs it
    completes it.
    """
    with _opened(options) as shelf:
        uploads, problems, _ = shelf.look()
    if as_json:
        items = [one.document(shelf.store.address) for one in uploads]
        console.document({"count": len(items), "complete": not problems, "items": items})
    else:
        console.result(_table(uploads, shelf.now_s, console.style(sys.stdout)))
        if not uploads:
            console.say("No code is stored.")
    console.diagnostics(Diagnostic(JobsUnknown.what, why) for why in problems)
    return ExitCode.UNKNOWN if problems else ExitCode.DONE


@opt.command(
    "gc",
    *_WHERE,
    opt.option("--older-than", "Only uploads older than this.", "age_s", type=opt.DURATION, default="90d"),
    opt.YES,
    opt.LOCK,
    opt.JSON,
    of=code_command,
)
def collect(age_s: float, yes: bool, as_json: bool, **options: Any) -> int:
    """Delete code of the stack that is no longer used, after asking.

    Code used by an active job or by the newest revision of a key is kept, for any stack in the workspace, as
    is the code of other stacks. Nothing is deleted unless all jobs can be listed.
    """
    from reconciler.cli.execution import Interrupt, hold_lock, interruptible

    interrupt = Interrupt()
    ended: dict[Prefix, ServiceError | None] = {}
    with ExitStack() as cleanup:
        with handled_by(interrupt.abort):
            shelf = cleanup.enter_context(_opened(options, interrupt.stop))
            # An apply of the stack must not rely on code that is about to be deleted.
            for context in shelf.contexts:
                hold_lock(cleanup, context, interrupt)
            chosen, kept = shelf.unused(age_s)
            if chosen and not yes:
                console.say(_table(chosen, shelf.now_s, console.style(sys.stderr)).rstrip("\n"))
                confirm(f"Delete {_sum(chosen)}?")
            if chosen and not interrupt.stop.is_set():  # it may be in use again
                chosen = [one for one in shelf.unused(age_s)[0] if one in chosen]
        with interruptible(interrupt):
            for one in chosen:
                ended[one] = None
                try:
                    shelf.store.delete(one)
                except ServiceError as problem:
                    ended[one] = problem
                if not as_json:
                    console.result(f"{'failed ' if ended[one] else 'deleted'}  {'/'.join(one.place)}\n")
                if interrupt.stop.is_set():
                    break
    if as_json:
        address = shelf.store.address
        items = [{**one.document(address), "error": error and error.message} for one, error in ended.items()]
        console.document({"items": items, "kept": kept})
    failures = [failure for failure in ended.values() if failure]
    console.diagnostics(one for failure in failures for one in failure.diagnostics)
    deleted = [one for one, failure in ended.items() if not failure]
    words = [f"Deleted {_sum(deleted)}" if deleted else "Nothing was deleted"]
    console.say("; ".join([*words, *(f"{number} kept: {why}" for why, number in kept.items())]) + ".")
    codes = [ExitCode.UNAUTHORIZED if isinstance(one, Unauthorized) else ExitCode.PARTIAL for one in failures]
    return first_of([interrupt.exit or ExitCode.DONE, *codes])


def _table(uploads: Sequence[Prefix], now_s: float, style: Style) -> str:
    from reconciler.render.text import render_table

    rows = [
        (
            *(one.place.digits, one.place.stack, str(one.files), format_size(one.size)),
            format_duration(max(0, round(now_s - one.changed_s))),
            "complete" if one.is_complete else "incomplete",
            few([use.spell(one.place.stack) for use in one.uses]),
        )
        for one in uploads
    ]
    head = ("DIGEST", "STACK", "FILES", "SIZE", "AGE", "STATE", "USED BY")
    return render_table(head, rows, style, ("DIGEST", "USED BY", "SIZE", "AGE", "STATE", "FILES", "STACK"))


def _sum(uploads: Sequence[Prefix]) -> str:
    files, size = sum(one.files for one in uploads), sum(one.size for one in uploads)
    return f"{format_count(len(uploads), 'upload')} ({format_count(files, 'file')}, {format_size(size)})"


class _Shelf(NamedTuple):
    """The code store of a target. `contexts` are all targets of the stack with this store."""

    store: CodeStore
    context: Context
    contexts: Sequence[Context]

    @property
    def now_s(self) -> float:
        """The current time by the clock of the service, if known."""
        backend, clock = self.context.target.backend, self.context.recording.clock
        return clock.now() - (getattr(backend, "skew_s", None) or 0.0)

    def look(self, stack: str | None = None) -> tuple[list[Prefix], list[str], bool]:
        """Return the prefixes of one stack or of all, and the problems of reading their uses.

        The last value is false if neither jobs nor records of the stack are known.
        """
        from reconciler.core.values import TARGET_KINDS
        from reconciler.decide.code import uses_of

        prefixes, problems = [*self.store.prefixes(stack)], []
        is_known = TARGET_KINDS[self.context.target.identity.kind].is_embedded
        uses: defaultdict[tuple[str, str], list[CodeUse]] = defaultdict(list)
        for context in self.contexts:
            seen = context.target.backend.observe()
            # The history, too: a new job may not be listed yet.
            memory = context.recording.memory(context.scope)
            own = (job for job in seen.jobs if job.marker and job.marker.stack == context.scope.stack)
            is_known = is_known or memory.knows_stack or any(own)
            for place, use in uses_of(seen.jobs, context.scope.stack, memory.revisions):
                uses[place].append(use)
            lost = [f"{one.name or one.id or 'a job'}: {one.why}" for one in seen.unreadable]
            owned = (job for job in seen.jobs if job.marker)
            lost += [f"{one.name}: its code is not shown" for one in owned if not _SHOWN & one.body.keys()]
            name = context.target.identity.name
            problems += [f"target {name}: {why}" for why in (seen.problem, memory.problem, *lost) if why]
        return [one._replace(uses=tuple(uses.get(one.place, ()))) for one in prefixes], problems, is_known

    def unused(self, age_s: float) -> tuple[list[Prefix], Mapping[str, int]]:
        """Return the prefixes of the stack that may be deleted, and the number of those kept, by reason.

        Raises:
            JobsUnknown: jobs or records that may use it could not be read.
        """
        from reconciler.decide.code import why_kept

        uploads, problems, is_known = self.look(self.context.scope.stack)
        if problems:
            raise JobsUnknown(f"{few(problems)}; nothing was deleted")
        reasons = {one: why_kept(one, self.now_s - age_s, is_known=is_known) for one in uploads}
        return [one for one in uploads if not reasons[one]], Counter(filter(None, reasons.values()))


@contextmanager
def _opened(options: Mapping[str, Any], stop: threading.Event | None = None) -> Iterator[_Shelf]:
    """Open the code store of a target, and all targets of the stack with the same store.

    Raises:
        WrongUsage: the target has no code store.
        ManifestInvalid: the store of another target is unknown, because an expression has no value.
    """
    from reconciler.connection import RecordOptions, connect
    from reconciler.reconcile import open_code_store

    where = {name: options[name] for name in ("paths", "variables", "var_files", "target")}
    loaded = load_stack(**where, offline=True)
    name, target = loaded.target(options["target"])
    if not (address := target.code_address.rstrip("/")):
        fix = "add code_store: obs://BUCKET/PREFIX/ to the target"
        raise WrongUsage(Diagnostic("no code store", f"target {name} has none", fix))
    names = dict.fromkeys([name])
    for other, one in loaded.targets.items():
        may_share = one.code_address.rstrip("/") == address or "${" in one.code_address
        if may_share and one.traits.is_embedded is target.traits.is_embedded:
            names[other] = None
    run_by, records = runtime(stop), RecordOptions.of(options, options["records"])
    with ExitStack() as cleanup:
        opened = [cleanup.enter_context(connect(loaded, one, run_by, records, offline=True)) for one in names]
        by_scope = {context.scope: context for context in reversed(opened)}
        # Several locks are always taken in the same order.
        in_order = [by_scope[scope] for scope in sorted(by_scope)]
        yield _Shelf(open_code_store(opened[0], address, stop), opened[0], in_order)
