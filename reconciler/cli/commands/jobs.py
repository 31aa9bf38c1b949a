"""`reconciler jobs`: the service's own calls about jobs, on one target."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import click

from reconciler.cli.completions import keys
from reconciler.cli.filters import FILTERS, MomentType
from reconciler.cli.options import FORCE, YES, DurationType, option, with_options
from reconciler.cli.service_session import BESIDE_JOBS, JSON, WHERE, learn_tokens, open_target, say_gaps
from reconciler.cli.terminal.console import console
from reconciler.text import printable

if TYPE_CHECKING:
    from reconciler.cli.service_session import TargetSession
    from reconciler.core.job_reports import EventQuery
    from reconciler.core.listing import Listing
    from reconciler.core.observed_job import ObservedJob
    from reconciler.modelarts.jobs import Moment

_JOB = click.argument("job", metavar="JOB", shell_complete=keys)
_JOBS = click.argument("jobs", metavar="JOB...", nargs=-1, required=True, shell_complete=keys)
_TASK = option("--task", default=None, metavar="TASK", help="Task of the job; default: the first one.")


@click.group("jobs", no_args_is_help=False, context_settings={"help_option_names": ["-h", "--help"]})
def command() -> None:
    """Call the service's own operations on single jobs.

    JOB is an id, a name, or a key of the stack, which means its newest revision and takes precedence over a
    name. The stack and its target are those of the current directory, or of PATH.
    """


@command.command("list")
@with_options(
    WHERE,
    FILTERS,
    option("--sort", default="create_time", show_default=True, help="Field to sort by."),
    option("--order", type=click.Choice(["desc", "asc"]), default="desc", show_default=True, help="Order."),
    option(
        "--limit", type=click.IntRange(min=1), default=100, show_default=True, help="Maximum number of jobs."
    ),
    JSON,
)
def list_(
    paths: Any,
    variables: Any,
    var_files: Any,
    target: str | None,
    sort: str,
    order: str,
    limit: int,
    as_json: bool,
    **filters: Any,
) -> int:
    """List the jobs of the workspace, newest first, regardless of owner.

    OWNER is the stack, key and revision in the job's marker. --json prints the whole jobs.
    """
    from reconciler.cli.terminal.reading import reading
    from reconciler.modelarts.jobs import JobFilters, search_jobs

    with open_target(paths, variables, var_files, target) as there, reading():
        now_s = there.clock.now()
        wanted = JobFilters(**filters)
        listing = search_jobs(there.target.search, wanted, now_s, sort_by=sort, order=order, limit=limit + 1)
    has_more = len(listing.jobs) > limit
    _show_list(there, listing, listing.jobs[:limit], now_s, has_more=has_more, as_json=as_json)
    if wanted.looks_back:
        console.say("The service searched the last 31 days only; use --created-after to go further back.")
    return say_gaps(listing)


def _show_list(
    there: TargetSession,
    listing: Listing,
    jobs: Sequence[ObservedJob],
    now_s: float,
    *,
    has_more: bool,
    as_json: bool,
) -> None:
    from reconciler.render.commands import render_jobs

    for job in jobs:
        learn_tokens(job)
    if as_json:
        is_complete = not (has_more or listing.unreadable or listing.problem)
        items = [there.shown(job) for job in jobs]
        console.document({"count": len(items), "complete": is_complete, "items": items})
        return
    console.result(render_jobs(jobs, now_s, console.style(sys.stdout)))
    if has_more:
        console.say(f"Showing the first {len(jobs)}; raise --limit to see more.")
    elif not jobs and not listing.problem:
        console.say("No matching jobs.")


@command.command("show")
@with_options(_JOB, WHERE, JSON)
def show(job: str, as_json: bool, **where: Any) -> None:
    """Show one job: the full service response, without tokens and sensitive values.

    --json prints it as JSON, including fields that this program does not know.
    """
    from reconciler.render.commands import render_job

    with open_target(**where) as there:
        now_s = there.clock.now()
        found = there.target.backend.details(there.find(job).id)
    learn_tokens(found)
    body = there.shown(found)
    if as_json:
        console.document(body)
    else:
        console.result(render_job(found, body, now_s, console.style(sys.stdout)))


@command.command("logs")
@with_options(
    _JOB,
    WHERE,
    _TASK,
    option("--lines", type=click.IntRange(min=0), default=None, help="Only the last N lines."),
    option("--follow", "-f", is_flag=True, help="Follow the log until the job has ended."),
    option("--url", is_flag=True, help="Print a link to the whole log, valid for five minutes."),
    JSON,
)
def logs(
    job: str, task: str | None, lines: int | None, follow: bool, url: bool, as_json: bool, **where: Any
) -> None:
    """Print the end of a task's log, at most 5 MB.

    Anyone with the link of --url can read the log without credentials.
    """
    from reconciler.cli import logs
    from reconciler.modelarts.jobs import first_task

    if url and (follow or lines is not None):
        raise click.UsageError("--url only prints a link; it cannot be combined with --follow or --lines")
    with open_target(**where) as there:
        found = there.find(job)
        there.shown(found)  # a log may hold what the job was given
        task = task or first_task(found)
        if url:
            logs.print_url(there, found, task, as_json=as_json)
        elif follow:
            logs.follow(there, found, task, lines, as_json=as_json)
        else:
            logs.print_log(there, found, task, lines, as_json=as_json)


@command.command("events")
@with_options(
    _JOB,
    WHERE,
    option(
        "--level",
        type=click.Choice(["Info", "Warning", "Error"]),
        default=None,
        help="Only events of this level.",
    ),
    option("--pattern", metavar="TEXT", default=None, help="Only events whose message contains this text."),
    option(
        "--source", default=None, help="Only events from this source: K8S, Job or Task (Open Telekom Cloud)."
    ),
    option("--order", type=click.Choice(["desc", "asc"]), default="asc", show_default=True, help="Order."),
    option("--since", metavar="TIME", type=MomentType(), default=None, help="Only events after TIME."),
    option("--until", metavar="TIME", type=MomentType(), default=None, help="Only events before TIME."),
    option(
        "--offset",
        type=click.IntRange(min=0),
        default=0,
        show_default=True,
        help="Number of events to skip.",
    ),
    option(
        "--limit",
        type=click.IntRange(min=1),
        default=500,
        show_default=True,
        help="Maximum number of events.",
    ),
    JSON,
)
def events(
    job: str,
    level: str | None,
    pattern: str | None,
    source: str | None,
    order: str,
    since: Moment | None,
    until: Moment | None,
    offset: int,
    limit: int,
    as_json: bool,
    **where: Any,
) -> None:
    """Print the events of a job.

    TIME is 2026-11-21, 2026-11-21T08:00:00Z, or 2d (two days ago).
    """
    from reconciler.modelarts.jobs import event_times, read_events
    from reconciler.render.lines import render_table

    with open_target(**where) as there:
        found = there.find(job)
        there.shown(found)
        times = event_times(there.clock.now(), since, until, found.created_at_s or 0.0)
        query: EventQuery = {"level": level, "pattern": pattern, "source": source, "order": order, **times}
        happened = read_events(there.target.logs, found.id, limit, query, offset)
    if as_json:
        told = [event.model_dump(mode="json", exclude_unset=True) for event in happened]
        console.document({"job": found.id, "events": told})
        return
    rows = [(event.time, event.level, event.source, event.message) for event in happened]
    console.result(render_table(("TIME", "LEVEL", "SOURCE", "MESSAGE"), rows, console.style(sys.stdout)))
    if not rows:
        console.say("No matching events.")


@command.command("metrics")
@with_options(_JOB, WHERE, _TASK, JSON)
def metrics(job: str, task: str | None, as_json: bool, **where: Any) -> None:
    """Print the node utilization of a task, in percent. --json prints the value of every minute."""
    from reconciler.cli import logs
    from reconciler.modelarts.jobs import first_task
    from reconciler.render.lines import render_table

    with open_target(**where) as there:
        found = there.find(job)
        task = task or first_task(found)
        measured = there.target.logs.metrics(found.id, task)
    if as_json:
        told = None if measured is None else {metric.metric: metric.value for metric in measured}
        console.document({"job": found.id, "task": task, "metrics": told})
        return
    rows = [logs.metric_row(metric) for metric in measured or ()]
    head = ("METRIC", "LAST", "MEAN", "MAX", "MINUTES")
    console.result(render_table(head, rows, console.style(sys.stdout)))
    if measured is None:
        console.say(printable(f"{found.name} has no metrics yet ({found.phase_text})."))


@command.command("terminate")
@with_options(_JOBS, BESIDE_JOBS, YES, FORCE, JSON)
def terminate(jobs: Sequence[str], yes: bool, force: bool, as_json: bool, **where: Any) -> int:
    """Terminate jobs, after asking.

    Jobs owned by a stack are refused without --force: they belong to its manifest. Protected jobs are
    always refused. All jobs are checked before the first one is touched.
    """
    from reconciler.cli.job_actions import terminate_all

    with open_target(**where) as there:
        found = there.find_all(jobs)
        return terminate_all(
            there.target, found, there.note_termination, yes=yes, force=force, as_json=as_json
        )


@command.command("delete")
@with_options(_JOBS, BESIDE_JOBS, YES, FORCE, JSON)
def delete(jobs: Sequence[str], yes: bool, force: bool, as_json: bool, **where: Any) -> int:
    """Delete the records of jobs that have ended, with their logs, after asking.

    Jobs owned by a stack are refused without --force: the record is the proof that the job has run. All
    jobs are checked before the first one is touched.
    """
    from reconciler.cli.job_actions import delete_all

    with open_target(**where) as there:
        found = there.find_all(jobs)
        return delete_all(there.target, found, yes=yes, force=force, as_json=as_json)


@command.command("wait")
@with_options(
    _JOBS,
    BESIDE_JOBS,
    option(
        "--for",
        "goal",
        type=click.Choice(["running", "completed", "ended"]),
        default="completed",
        show_default=True,
        help="What to wait for.",
    ),
    option(
        "--timeout",
        "timeout_s",
        type=DurationType(),
        default=None,
        help="How long to wait; default: no limit.",
    ),
    JSON,
)
def wait(jobs: Sequence[str], goal: str, timeout_s: float | None, as_json: bool, **where: Any) -> int:
    """Wait until all the jobs are running, completed, or ended.

    Exits 0 when they are, 9 on timeout, and 10 if one ended badly: Failed or Abnormal, or
    Terminated unless any end was waited for. Phase changes are reported on stderr.
    """
    from reconciler.cli.wait import wait_for_all
    from reconciler.decide.wait import Goal

    with open_target(**where) as there:
        found = there.find_all(jobs)
        return wait_for_all(there, found, Goal(goal), timeout_s, as_json=as_json)
