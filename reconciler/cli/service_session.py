"""The service's own calls: on which target, and about which jobs."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import click

from reconciler.cli.options import STACK, TARGET_NAME, option
from reconciler.cli.terminal.console import console
from reconciler.text import printable

if TYPE_CHECKING:
    from reconciler.core.listing import Listing
    from reconciler.core.masking import DeclaredSecrets
    from reconciler.core.observed_job import ObservedJob
    from reconciler.core.ports import Clock
    from reconciler.core.stack import Stack, Target
    from reconciler.errors import ExitCode
    from reconciler.manifests import LoadedStack
    from reconciler.modelarts.target import Connected

#: Where the stack is, for a command whose arguments end in PATH….
WHERE: Sequence[Callable[[Any], Any]] = (*STACK, TARGET_NAME)
#: The same for a command whose arguments are jobs, as many as one likes.
BESIDE_JOBS: Sequence[Callable[[Any], Any]] = (
    option(
        "--in",
        "paths",
        multiple=True,
        metavar="PATH",
        type=click.Path(path_type=Path),
        help="Stack whose targets to use; default: the current directory. Repeatable.",
    ),
    *STACK[1:],
    TARGET_NAME,
)
JSON = option("--json", "as_json", is_flag=True, help="JSON on stdout.")


class TargetSession(NamedTuple):
    """A target of a stack, to be asked directly."""

    stack: Stack
    target: Connected
    clock: Clock
    secrets: DeclaredSecrets
    loaded: LoadedStack
    declared_target: Target

    def shown(self, job: ObservedJob) -> dict[str, Any]:
        """The service's answer about a job, as it may be shown: no tokens, nothing declared sensitive.

        From then on the values that were taken out are in no output, in logs and events neither.
        """
        from reconciler.core.masking import without_tokens

        body, values = self.secrets.hide(job, without_tokens(job.body))
        console.redact.learn(values)
        return body

    def find(self, named: str) -> ObservedJob:
        """Return the job that an argument means, see `jobs.lookup`. No output shows its tokens."""
        from reconciler.modelarts.jobs import find_job

        job = find_job(self.stack, self.target, named, lambda text: console.say(printable(text)))
        learn_tokens(job)
        return job

    def note_termination(self, job: ObservedJob) -> None:
        """Write down in the records of the stack that one of its jobs was terminated by hand."""
        from reconciler.cli.context import runtime
        from reconciler.connection import open_recording, records_url
        from reconciler.core.record import Scope
        from reconciler.errors import ReconcilerError

        run_by = runtime()
        given = run_by.environ.get("RECONCILER_RECORDS")
        try:
            url = records_url(self.declared_target, given, self.loaded.records_url, run_by)
            with closing(open_recording(url, self.loaded.root, run_by)) as recording:
                recording.note_termination(Scope.of(self.stack.name, self.target.identity), job)
        except ReconcilerError as problem:  # the job was terminated, wherever the records are
            console.say(printable(f"{problem}; the termination is not recorded"))

    def find_all(self, named: Sequence[str]) -> list[ObservedJob]:
        """Return the jobs that these arguments mean, each once."""
        return list({job.id: job for job in map(self.find, named)}.values())


@contextmanager
def open_target(
    paths: Sequence[Path],
    variables: Sequence[tuple[str, str]],
    var_files: Sequence[Path],
    target: str | None,
) -> Iterator[TargetSession]:
    """Connect to a target of the stack. Nothing of its jobs is sent, so their secrets need no values."""
    from reconciler.cli.context import load_stack

    loaded = load_stack(paths, variables, var_files, target, offline=True)
    with open_loaded(loaded, *loaded.target(target)) as session:
        yield session


@contextmanager
def open_loaded(loaded: LoadedStack, name: str, target: Target) -> Iterator[TargetSession]:
    """Connect to one of the targets of a stack that was loaded."""
    from reconciler.cli.context import runtime
    from reconciler.core.masking import DeclaredSecrets
    from reconciler.modelarts.target import connected

    run_by = runtime()
    with connected(name, target, loaded.root, run_by) as place:
        secrets = DeclaredSecrets.of(loaded.stack)
        yield TargetSession(loaded.stack, place, run_by.clock, secrets, loaded, target)


def say_gaps(listing: Listing) -> ExitCode:
    """Say what could not be read; a list with gaps is not the list that was asked for."""
    from reconciler.errors import Diagnostic, ExitCode, ReconcilerError, Severity

    gaps = [
        Diagnostic(
            "a job cannot be read", f"{lost.name or lost.id or '?'}: {lost.why}", severity=Severity.WARNING
        )
        for lost in listing.unreadable
    ]
    if gaps:
        console.diagnostics(gaps)
    if isinstance(listing.problem, ReconcilerError):
        console.diagnostics(listing.problem.diagnostics)
        return ExitCode(listing.problem.exit_code)
    if listing.problem is not None:
        console.diagnostics([Diagnostic("the list could not be read", listing.problem)])
    return ExitCode.UNKNOWN if listing.problem or listing.unreadable else ExitCode.DONE


def learn_tokens(job: ObservedJob) -> None:
    """Keep the tokens of a job's endpoints out of every output."""
    from reconciler.core.masking import tokens_of

    if tokens := tokens_of(job.body):
        console.redact.learn(tokens)
