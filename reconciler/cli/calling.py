"""The service's own calls: on which target, and about which jobs."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import click

from reconciler.cli.console import console
from reconciler.cli.opening import load_stack, runtime
from reconciler.cli.options import STACK, TARGET_NAME, option
from reconciler.core.printable import printable
from reconciler.core.selection import nearest

if TYPE_CHECKING:
    from reconciler.backends.modelarts import ModelArtsBackend
    from reconciler.core.declared_secrets import DeclaredSecrets
    from reconciler.core.observed import ObservedJob
    from reconciler.core.ownership import KeyView
    from reconciler.core.plan import TargetIdentity
    from reconciler.core.ports import Clock
    from reconciler.core.stack import Stack

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

    stack: Stack
    identity: TargetIdentity
    backend: ModelArtsBackend
    clock: Clock
    secrets: DeclaredSecrets

    def shown(self, job: ObservedJob) -> dict[str, Any]:
        """The service's answer about a job, as it may be shown: no tokens, nothing declared sensitive.

        From then on the values that were taken out are in no output, in logs and events neither.
        """
        from reconciler.core.endpoints import without_tokens

        body, values = self.secrets.hide(job, without_tokens(job.body))
        console.redact.learn(values)
        return body


@contextmanager
def called(
    paths: Sequence[Path],
    variables: Sequence[tuple[str, str]],
    var_files: Sequence[Path],
    target: str | None,
) -> Iterator[Called]:
    """Connect to a target of the stack. Nothing of its jobs is sent, so their secrets need no values."""
    from reconciler.backends.modelarts import ModelArtsBackend
    from reconciler.core.declared_secrets import DeclaredSecrets
    from reconciler.targets import connected

    loaded = load_stack(paths, variables, var_files, offline=True)
    name, chosen = loaded.target(target)
    run_by = runtime()
    with connected(name, chosen, loaded.root, run_by) as place:
        assert isinstance(place.backend, ModelArtsBackend), "every kind of target speaks this API"
        secrets = DeclaredSecrets.of(loaded.stack)
        yield Called(loaded.stack, place.identity, place.backend, run_by.clock, secrets)


# --- which job is meant


def find_job(there: Called, named: str) -> ObservedJob:
    """Return the job that an argument means: a key's newest revision, else the job of this id or name.

    A key goes before a name, which another revision of it may have. Case counts for nothing in names.

    Raises:
        NotFound: there is none.
        WrongUsage: there are several of that name.
        ServiceFailure: the workspace could not be read, so nobody knows which revision is the newest.
    """
    from reconciler.core.ports import NotFound

    is_declared = named in there.stack.whole or named in there.stack.jobs
    if is_declared or not _is_uuid(named):
        job = _by_key(there, named, is_declared=is_declared)
        if job is not None:
            return _met(job)
    backend = there.backend
    ways = (_by_id, _by_name) if _is_uuid(named) else (_by_name, _by_id)
    job = next((found for way in ways if (found := way(backend, named))), None)
    if job is None and is_declared:
        why = f"stack {there.stack.name} owns no job of key {named!r}, and no job has that id or name"
        raise NotFound(why, fix="reconciler status shows where each key stands")
    if job is None:
        raise NotFound(
            f"workspace {backend.workspace_id} has no job with the id or the name {named!r}, and stack "
            f"{there.stack.name} no such key",
            fix=nearest(named, there.stack.whole) or "reconciler jobs list shows what there is",
        )
    if is_declared:
        console.say(printable(f"{named} is a key of which the stack owns no job; {job.id} has that name."))
    return _met(job)


def find_jobs(there: Called, named: Sequence[str]) -> list[ObservedJob]:
    """Return the jobs that these arguments mean, each once."""
    return list({job.id: job for job in (find_job(there, one) for one in named)}.values())


def _met(job: ObservedJob) -> ObservedJob:
    learn_tokens(job)
    return job


def _by_key(there: Called, key: str, *, is_declared: bool) -> ObservedJob | None:
    """The newest revision of a key that is declared, or owned; None if there is none.

    Of a key that is not declared only the names that it gives its jobs are looked for. A declared one
    may own a job of another name (it was adopted, or the key renamed): its absence takes a full scan.
    """
    from reconciler.core.decide import newest
    from reconciler.core.observed import Observation
    from reconciler.core.ownership import sort_by_key
    from reconciler.core.planner import Look
    from reconciler.core.ports import ServiceFailure

    stack = there.stack
    if not is_declared and not _owns_by_name(there, key):
        return None
    desired = stack.find(key)
    keys = frozenset({key, *(desired.formerly if desired else ())})

    def look_at(seen: Observation) -> KeyView:
        return Look(sort_by_key(seen, stack.name, keys)).view(key, desired)

    def owns_nothing(seen: Observation) -> bool:
        return is_declared and not look_at(seen).owned

    seen = there.backend.observe(keys, owns_nothing)
    view = look_at(seen)
    if view.unreadable or (seen.problem is not None and (view.owned or is_declared)):
        why = view.unreadable[0].why if view.unreadable else seen.problem
        raise ServiceFailure(f"{why}: nobody knows which revision of {key} is the newest")
    latest = newest(view, None if desired is None or desired.is_absent else desired)
    return latest.job if latest else None


def _owns_by_name(there: Called, key: str) -> bool:
    """Whether the stack owns a job that is a revision of this key, and has its name."""
    from reconciler.backends.workspace import named

    markers = (job.marker for job in there.backend.search([named(key)]).jobs)
    return any(marker and (marker.stack, marker.key) == (there.stack.name, key) for marker in markers)


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
