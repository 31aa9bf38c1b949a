"""The jobs of a workspace, for programs: typed, and without what must not be seen."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Literal

from reconciler.apply.waiter import JobWatch, watch_all
from reconciler.core.masking import DeclaredSecrets, tokens_of, without_tokens
from reconciler.core.observed import last_lines
from reconciler.core.phase import Operation, Phase, parse_phase
from reconciler.decide.outcome import WaitEnd
from reconciler.decide.wait import Goal
from reconciler.errors import Diagnostic, ExitCode, ReconcilerError, WrongUsage
from reconciler.modelarts.job_models import Found, ReportedJob
from reconciler.modelarts.jobs import (
    JobFilters,
    Moment,
    check_allowed,
    find_job,
    first_task,
    follow_log,
    read_events,
    search_jobs,
    terminate,
)
from reconciler.modelarts.operations import Event, Metric
from reconciler.render.json import redacted

if TYPE_CHECKING:
    from reconciler.core.observed import ObservedJob
    from reconciler.modelarts.job_models import Filter, TagFilter
    from reconciler.reconcile import Context
    from reconciler.secrets import Redactor

#: A time: a datetime, a text such as 2026-11-21T08:00:00Z, or a span such as "2d", for so long ago.
Time = datetime | str


class WaitFailed(ReconcilerError):
    """A job that was waited for ended badly (exit code 10), or not in time (9); `job` is as it was last."""

    def __init__(self, job: ReportedJob, exit_code: ExitCode, diagnostic: Diagnostic) -> None:
        super().__init__(diagnostic)
        self.job, self.exit_code = job, exit_code


class JobClient:
    """The service's own calls about single jobs; `job` is an id, a name, or a key of the stack.

    A key means its newest revision, and goes before a name. What the manifest calls sensitive is taken out
    of every answer, and so are the tokens of a job's endpoints.
    """

    def __init__(self, context: Context, redactor: Redactor) -> None:
        self._context = context
        self._stack, self._target = context.loaded.stack, context.target
        self._backend, self._clock = context.target.backend, context.target.clock
        self._secrets = DeclaredSecrets.of(self._stack)
        self._redactor = redactor

    def list(
        self,
        *,
        sort_by: str = "create_time",
        order: Literal["asc", "desc"] = "desc",
        limit: int | None = None,
        name: str | None = None,
        phase: str | Sequence[str] = (),
        kind: str | Sequence[str] = (),
        user: str | Sequence[str] = (),
        algorithm_name: str | None = None,
        created_after: Time | None = None,
        created_before: Time | None = None,
        filters: Sequence[Filter] = (),
        tags: Sequence[TagFilter] = (),
        host_ips: str | Sequence[str] = (),
        train_type: Literal["job", "ftjob"] | None = None,
        unified: bool = False,
        group_by: str | None = None,
    ) -> Found:
        """Return the jobs that match, regardless of owner, the newest first; the filters of `jobs list`.

        `name` and `algorithm_name` are parts of names; several values of one filter are alternatives.
        Entries that cannot be read hide no others: they are in the answer's `unreadable`.

        Raises:
            WrongUsage: a filter is none that the service takes.
            NotSupported: this kind of target cannot search.
            ServiceError: the list could not be read.
        """
        if limit is not None and limit < 0:
            raise WrongUsage(Diagnostic("invalid limit", f"must not be negative, got {limit}"))
        wanted = JobFilters(
            name=name,
            phases=[_phase(one) for one in _several(phase)],
            kinds=_several(kind),
            users=_several(user),
            algorithm_name=algorithm_name,
            after=_moment(created_after),
            before=_moment(created_before),
            filters=[one.body() for one in filters],
            tags=[{"key": tag.key, "values": [*tag.values]} for tag in tags],
            host_ips=_several(host_ips),
            train_type=train_type,
            unified=unified,
            group_by=group_by,
        )
        now_s = self._clock.now()
        listing = search_jobs(self._target.search, wanted, now_s, sort_by=sort_by, order=order, limit=limit)
        return Found.of(listing, limit, self._shown)

    def get(self, job: str) -> ReportedJob:
        """Return all that the service reports of a job.

        Raises:
            NotFound: there is no such job.
            WrongUsage: there are several of that name.
        """
        return self._shown(self._backend.details(self._find(job).id))

    def logs(
        self, job: str, follow: bool = False, *, task: str | None = None, lines: int | None = None
    ) -> str | Iterator[str]:
        """Return the end of a task's log, 5 MB at most, "" while there is none; left out, the first task's.

        With `lines` the last ones only. With `follow` return an iterator over the lines, those of the
        whole preview first, that ends when the job has ended.

        Raises:
            NotFound: there is no such job.
        """
        found = self._find(job)
        self._shown(found)  # a log may hold what the job was given
        task = task or first_task(found)
        if follow:
            return self._followed(found.id, task, lines)
        preview = self._target.logs.preview(found.id, task)
        text = self._redactor(preview.content if preview else "")
        return text if lines is None else last_lines(text, lines)

    def _followed(self, job_id: str, task: str, lines: int | None) -> Iterator[str]:
        for number, part in enumerate(follow_log(self._target, job_id, task)):
            text = self._redactor(part.text)
            yield from (text if lines is None or number else last_lines(text, lines)).splitlines()

    def events(self, job: str, *, limit: int = 500) -> tuple[Event, ...]:
        """Return what happened to a job, the oldest first.

        Raises:
            NotFound: there is no such job.
        """
        found = self._find(job)
        self._shown(found)
        events = read_events(self._target.logs, found.id, limit, {"order": "asc"})
        return tuple(
            Event.model_validate(redacted(event.model_dump(exclude_unset=True), self._redactor))
            for event in events
        )

    def metrics(self, job: str, *, task: str | None = None) -> tuple[Metric, ...]:
        """Return how busy a task's node was, in percent, minute by minute; empty while nothing is known.

        Raises:
            NotFound: there is no such job.
        """
        found = self._find(job)
        metrics = self._target.logs.metrics(found.id, task or first_task(found)) or ()
        return tuple(Metric.model_validate(metric.model_dump(exclude_unset=True)) for metric in metrics)

    def terminate(self, job: str, *, force: bool = False) -> ReportedJob:
        """Ask for the end of a job, and return it as it is then. To its stack it was terminated outside.

        Raises:
            Refused: it is protected, has ended, or a stack owns it and `force` is not given.
            NotFound: there is no such job.
        """
        found = self._backend.details(self._find(job).id)
        check_allowed([found], Operation.TERMINATE, force=force)

        def note(job: ObservedJob) -> None:
            if (recording := self._context.recording) is not None:
                recording.note_termination(self._context.scope, job)

        terminate(self._target, found, note)
        return self._shown(self._backend.details(found.id))

    def wait(
        self,
        job: str,
        until: Literal["running", "completed", "ended"] = "completed",
        timeout_s: float | None = None,
    ) -> ReportedJob:
        """Wait until a job is running, completed, or ended, and return it; without `timeout_s`, for ever.

        Raises:
            WaitFailed: it ended badly, its record is gone, or the time is up.
            NotFound: there is no such job.
        """
        try:
            goal = Goal(until)
        except ValueError:
            known = ", ".join(Goal)
            raise WrongUsage(Diagnostic("invalid goal", f'"{until}" is not one of {known}')) from None
        if timeout_s is not None and not isinstance(timeout_s, int | float):
            raise WrongUsage(
                Diagnostic("invalid timeout", f"expected a number of seconds, got {timeout_s!r}")
            )
        found = self._backend.details(self._find(job).id)
        watch = JobWatch(self._backend, found, goal, lambda *_: None)
        [end] = watch_all([watch], self._clock, timeout_s)
        shown = self._shown(watch.job)
        if end is WaitEnd.REACHED:
            return shown
        code, why = _ENDS[end]
        raise WaitFailed(
            shown, code, Diagnostic("the wait failed", f"{watch.job.name} is {watch.job.phase_text}: {why}")
        )

    def _find(self, job: str) -> ObservedJob:
        if not isinstance(job, str):
            why = f"expected an id, a name or a key, got {type(job).__name__}"
            raise WrongUsage(Diagnostic("invalid job", why))
        return find_job(self._stack, self._target, job)

    def _shown(self, job: ObservedJob) -> ReportedJob:
        """A job as it may be seen; what was taken out is in no later answer either."""
        self._redactor.learn(tokens_of(job.body))
        body, values = self._secrets.hide(job, without_tokens(job.body))
        self._redactor.learn(values)
        return ReportedJob.model_validate(redacted(body, self._redactor))


_ENDS = {
    WaitEnd.ENDED_BADLY: (ExitCode.ENDED_BADLY, "it ended badly"),
    WaitEnd.TIMED_OUT: (ExitCode.TIMED_OUT, "timed out"),
    WaitEnd.GONE: (ExitCode.UNKNOWN, "its record no longer exists"),
}


def _several(value: str | Iterable[str]) -> list[str]:
    return [value] if isinstance(value, str) else list(value)


def _phase(name: str) -> str:
    phase = parse_phase(name)
    if phase is None:
        raise WrongUsage(Diagnostic("invalid filter", f'"{name}" is not one of {", ".join(Phase)}'))
    return phase.value


def _moment(value: Time | None) -> Moment | None:
    try:
        return None if value is None else Moment.parse(value)
    except ValueError as error:
        raise WrongUsage(Diagnostic("invalid filter", str(error))) from None
