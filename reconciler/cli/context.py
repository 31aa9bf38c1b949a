"""Loads the stack, connects to the target, and finds the jobs that the options of a command name."""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, NotRequired, TypedDict, Unpack

import click

from reconciler.cli import exits
from reconciler.cli.console import console
from reconciler.cli.output import command_in, final_outputs
from reconciler.cli.progress import reading, uploading
from reconciler.errors import Diagnostic, ExitCode, ManifestInvalid, ReconcilerError, Severity
from reconciler.modelarts import clock
from reconciler.text import printable

if TYPE_CHECKING:
    from reconciler.core.masking import DeclaredSecrets
    from reconciler.core.observed import Listing, ObservedJob
    from reconciler.core.record import Scope
    from reconciler.core.stack import Target
    from reconciler.manifest import LoadedStack
    from reconciler.modelarts.target import Connected, Runtime
    from reconciler.reconcile import Context
    from reconciler.records.recording import Recording

    class StackOptions(TypedDict):
        """The values of the options in `options.TARGET` and `options.LOCK`."""

        paths: Sequence[Path]
        variables: Sequence[tuple[str, str]]
        var_files: Sequence[Path]
        target: str | None
        only: Sequence[str]
        rerun: NotRequired[Sequence[str]]
        parallelism: int
        records: str | None
        without_records: bool
        lease_s: NotRequired[float]
        lock_timeout_s: NotRequired[float]


def load_stack(
    paths: Sequence[Path],
    variables: Sequence[tuple[str, str]],
    var_files: Sequence[Path],
    target: str | None,
    *,
    offline: bool = False,
    traced: str | None = None,
) -> LoadedStack:
    """Load the manifest for a target, and let the console redact its secrets."""
    from reconciler.manifest import load

    places, add_secrets = list(paths) or [Path()], console.redact.add_secrets
    values: Any = {"variables": dict(variables), "var_files": list(var_files), "environ": os.environ}
    try:
        return known(
            load(places, **values, offline=offline, add_secrets=add_secrets, traced=traced, target=target)
        )
    except ManifestInvalid:
        if final_outputs.is_asked_for:
            final_outputs.about(*names_for_metrics(paths, var_files, target))
        raise


def names_for_metrics(
    paths: Sequence[Path], var_files: Sequence[Path], target: str | None
) -> tuple[str, str]:
    """The stack and the target of a manifest, even if that is invalid; "" if unknown."""
    from reconciler.manifest.load import outline

    stack, default = None, None
    with suppress(ReconcilerError):
        stack, default, _ = outline(list(paths) or [Path()], var_files)
    return stack or "", target or default or ""


def known(loaded: LoadedStack) -> LoadedStack:
    """Register the secrets of a stack with the console and its name with the outputs; show its warnings."""
    final_outputs.about(loaded.stack.name, loaded.target_name)
    console.redact.add_secrets(loaded.secrets)
    console.diagnostics(loaded.warnings)
    return loaded


def runtime(stop: threading.Event | None = None) -> Runtime:
    """The runtime of the command line: this process's environment, the system clock, the console."""
    from reconciler.modelarts.target import Runtime

    def show_request(method: str, path: str, status: int | None, seconds: float) -> None:
        answer = "no answer" if status is None else str(status)
        console.detail(f"{method} {path}: {answer}, {seconds * 1000:.0f} ms", level=2)

    exits.redirect()
    return Runtime(
        environ=os.environ,
        clock=clock.SystemClock(stop),
        redactor=console.redact,
        warn=lambda text: console.say(f"warning: {printable(text)}", "warning"),
        log_debug=console.detail,
        on_request=show_request,
        reading=reading,
        uploading=uploading,
        stop=stop,
        # Only the name of the command: its options may hold secrets.
        command=command_in(sys.argv[1:]),
    )


@contextmanager
def opened(
    *, offline: bool = False, stop: threading.Event | None = None, **options: Unpack[StackOptions]
) -> Iterator[Context]:
    """Load the stack and connect to its target; see `connection.connect`."""
    from reconciler.connection import RecordOptions, connect

    where = options["paths"], options["variables"], options["var_files"], options["target"]
    loaded = load_stack(*where, offline=offline)
    records = RecordOptions.of(options, options["records"])
    with connect(loaded, options["target"], runtime(stop), records, offline=offline) as context:
        only, rerun = tuple(options["only"]), tuple(options.get("rerun", ()))
        yield context._replace(only=only, rerun=rerun, parallelism=options["parallelism"])


class TargetSession(NamedTuple):
    loaded: LoadedStack
    declared_target: Target
    target: Connected
    secrets: DeclaredSecrets
    seen: dict[str, tuple[float, ObservedJob]]

    def see(self, *jobs: ObservedJob) -> None:
        """Redact the secrets of jobs in all output, and remember what was observed when."""
        at_s = self.target.clock.now()
        for job in jobs:
            self.shown(job)
            self.seen[job.id] = at_s, job

    def shown(self, job: ObservedJob) -> dict[str, Any]:
        """The redacted body of a job. Later output redacts its secrets, too."""
        return self.secrets.hide(job, console.redact.add_secrets)

    def find(self, named: str) -> ObservedJob:
        """Return the job that an argument names; see `modelarts.jobs`."""
        from reconciler.modelarts.jobs import find_job

        job = find_job(self.loaded.stack, self.target, named, lambda text: console.say(printable(text)))
        self.see(job)
        return job

    def find_all(self, named: Sequence[str]) -> list[ObservedJob]:
        return list({job.id: job for job in map(self.find, named)}.values())

    def note_termination(self, job: ObservedJob) -> None:
        try:
            with self._recording() as recording:
                recording.note_termination(self._scope, job)
        except ReconcilerError as problem:  # the job is terminated all the same
            console.say(printable(f"{problem}; the termination is not recorded"))

    def remember(self) -> None:
        """Record what was observed of the stack's jobs, if possible."""
        from reconciler.core.ownership import Revision

        owned: dict[float, list[Revision]] = {}
        for at_s, job in self.seen.values():
            if job.marker is not None and job.marker.stack == self.loaded.stack.name:
                owned.setdefault(at_s, []).append(Revision(job, job.marker))
        if owned:
            with suppress(ReconcilerError), self._recording() as recording:
                for at_s, revisions in owned.items():
                    recording.remember(self._scope, revisions, at_s)

    @property
    def _scope(self) -> Scope:
        from reconciler.core.record import Scope

        return Scope.of(self.loaded.stack.name, self.target.identity)

    def _recording(self) -> closing[Recording]:
        from reconciler.connection import open_recording, records_url

        run_by = runtime()
        given = run_by.environ.get("RECONCILER_RECORDS")
        url = records_url(self.declared_target, given, self.loaded.records_url, run_by)
        return closing(open_recording(url, self.loaded.root, run_by))


@contextmanager
def open_target(
    paths: Sequence[Path], variables: Sequence[tuple[str, str]], var_files: Sequence[Path], target: str | None
) -> Iterator[TargetSession]:
    """Connect to a target of the stack. Secrets need no values, because no job is created."""
    from reconciler.core.masking import DeclaredSecrets
    from reconciler.core.values import LOCAL
    from reconciler.modelarts.target import connected

    loaded = load_stack(paths, variables, var_files, target, offline=True)
    run_by, (name, declared) = runtime(), loaded.target(target)
    with connected(name, declared, loaded.root, run_by) as place:
        if place.identity.kind == LOCAL and not click.get_current_context().params.get("as_json"):
            from reconciler.render.text import render_head

            console.say(render_head(loaded.stack.name, place.identity))  # says that jobs are pretended
        session = TargetSession(loaded, declared, place, DeclaredSecrets.of(loaded.stack), {})
        yield session
        session.remember()


def report_unreadable(listing: Listing) -> ExitCode:
    """Report what could not be read. Returns the exit code for an incomplete list."""
    what, problem = "a job cannot be read", listing.problem
    lost = [(one.name or one.id or "?", one.why) for one in listing.unreadable]
    console.diagnostics(Diagnostic(what, f"{n}: {w}", severity=Severity.WARNING) for n, w in lost)
    if isinstance(problem, ReconcilerError):
        console.diagnostics(problem.diagnostics)
        return ExitCode(problem.exit_code)
    if problem is not None:
        console.diagnostics([Diagnostic("the list could not be read", problem)])
    return ExitCode.UNKNOWN if problem or lost else ExitCode.DONE
