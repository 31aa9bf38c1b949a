"""The service's own calls: on which target, and about which jobs."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import click

from reconciler.cli.console import console
from reconciler.cli.opening import load_stack, tell_request
from reconciler.cli.options import STACK, TARGET_NAME, option

if TYPE_CHECKING:
    from reconciler.backends.modelarts import ModelArtsBackend
    from reconciler.core.observed import ObservedJob
    from reconciler.core.plan import TargetIdentity
    from reconciler.core.ports import Clock

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
        help="Where the stack is whose targets are meant; left out, here. Repeatable.",
    ),
    *STACK[1:],
    TARGET_NAME,
)
JSON = option("--json", "as_json", is_flag=True, help="JSON on stdout.")


class Called(NamedTuple):
    """A target of a stack, to be asked directly."""

    stack: str
    identity: TargetIdentity
    backend: ModelArtsBackend
    clock: Clock


@contextmanager
def called(
    paths: Sequence[Path],
    variables: Sequence[tuple[str, str]],
    var_files: Sequence[Path],
    target: str | None,
) -> Iterator[Called]:
    """Connect to a target of the stack. Its jobs are not looked at, so their secrets need no values."""
    from reconciler.backends.clock import SystemClock
    from reconciler.backends.modelarts import ModelArtsBackend
    from reconciler.targets import Surroundings, connected

    loaded = load_stack(paths, variables, var_files, offline=True)
    name, chosen = loaded.target(target)
    clock = SystemClock()
    around = Surroundings(loaded.root, os.environ, clock, console.redact.learn, console.redact, tell_request)
    with connected(name, chosen, around) as place:
        assert isinstance(place.backend, ModelArtsBackend), "every kind of target speaks this API"
        yield Called(loaded.stack.name, place.identity, place.backend, clock)


def find_job(backend: ModelArtsBackend, named: str) -> ObservedJob:
    """Return the job with this id or, case aside, with this name.

    Raises:
        NotFound: there is none.
        WrongUsage: there are several of that name.
    """
    ways = (_by_id, _by_name) if _is_uuid(named) else (_by_name, _by_id)
    job = next((found for way in ways if (found := way(backend, named))), None)
    if job is None:
        from reconciler.core.ports import NotFound

        raise NotFound(
            f"workspace {backend.workspace_id} has no job with the id or the name {named!r}",
            fix="reconciler jobs list shows what there is",
        )
    learn_tokens(job)
    return job


def find_jobs(backend: ModelArtsBackend, named: Sequence[str]) -> list[ObservedJob]:
    """Return the jobs with these ids or names, each once."""
    return list({job.id: job for job in (find_job(backend, one) for one in named)}.values())


def learn_tokens(job: ObservedJob) -> None:
    """Keep the tokens of a job's endpoints out of every output."""
    from reconciler.core.endpoints import tokens_of

    if tokens := tokens_of(job.body):
        console.redact.learn(tokens)


def _is_uuid(text: str) -> bool:
    from uuid import UUID

    try:
        UUID(text)
    except ValueError:
        return False
    return True


def _by_id(backend: ModelArtsBackend, named: str) -> ObservedJob | None:
    from reconciler.core.ports import NotFound, Rejected

    try:
        return backend.details(named)
    except NotFound:
        return None
    except Rejected:
        # The service may say of a text that is no id that it is malformed.
        if _is_uuid(named):
            raise
        return None


def _by_name(backend: ModelArtsBackend, named: str) -> ObservedJob | None:
    jobs = backend.find(named)
    if len(jobs) > 1:
        jobs = [job for job in jobs if job.name == named] or jobs
    if len(jobs) > 1:
        from reconciler.core.diagnostic import Diagnostic, WrongUsage

        ids = ", ".join(f"{job.name} is {job.id}" for job in jobs)
        raise WrongUsage(Diagnostic("several jobs of one name", ids, "name the job by its id"))
    return jobs[0] if jobs else None
