"""The calls of the service: `jobs`, `export`, `flavors`, `engines`."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from reconciler.cli.console import console
from reconciler.cli.context import learn_tokens, open_target, say_gaps
from reconciler.cli.options import (
    ADDRESS,
    BESIDE_JOBS,
    DURATION,
    FILTERS,
    FORCE,
    JSON,
    MOMENT,
    WHERE,
    YES,
    Address,
    keys,
    option,
    target_or_address,
    with_options,
)
from reconciler.cli.progress import reading
from reconciler.errors import Diagnostic, WrongUsage
from reconciler.files import write_new_file
from reconciler.text import printable

if TYPE_CHECKING:
    from reconciler.modelarts.jobs import Moment
    from reconciler.modelarts.operations import EventQuery


_JOB = click.argument("job", metavar="JOB", shell_complete=keys)
_JOBS = click.argument("jobs", metavar="JOB...", nargs=-1, required=True, shell_complete=keys)
_TASK = option("--task", default=None, metavar="TASK", help="Task of the job; default: the first one.")


@click.group("jobs", no_args_is_help=False, context_settings={"help_option_names": ["-h", "--help"]})
def jobs_command() -> None:
    """Call the service's own operations on single jobs.

    JOB is an id, a name, or a key of the stack, which means its newest revision and takes precedence over a
    name. The stack and its target are those of the current directory, or of PATH.
    """


@jobs_command.command("list")
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
    from reconciler.modelarts.jobs import JobFilters, search_jobs
    from reconciler.render.commands import render_jobs

    with open_target(paths, variables, var_files, target) as there, reading():
        now_s = there.clock.now()
        wanted = JobFilters(**filters)
        listing = search_jobs(there.target.search, wanted, now_s, sort_by=sort, order=order, limit=limit + 1)
    jobs, has_more = listing.jobs[:limit], len(listing.jobs) > limit
    for job in jobs:
        learn_tokens(job)
    if as_json:
        is_complete = not (has_more or listing.unreadable or listing.problem)
        items = [there.shown(job) for job in jobs]
        console.document({"count": len(items), "complete": is_complete, "items": items})
    else:
        console.result(render_jobs(jobs, now_s, console.style(sys.stdout)))
        if has_more:
            console.say(f"Showing the first {len(jobs)}; raise --limit to see more.")
        elif not jobs and not listing.problem:
            console.say("No matching jobs.")
    if wanted.looks_back:
        console.say("The service searched the last 31 days only; use --created-after to go further back.")
    return say_gaps(listing)


@jobs_command.command("show")
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


@jobs_command.command("logs")
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
    from reconciler.cli import job_actions
    from reconciler.modelarts.jobs import first_task

    if url and (follow or lines is not None):
        raise click.UsageError("--url only prints a link; it cannot be combined with --follow or --lines")
    with open_target(**where) as there:
        found = there.find(job)
        there.shown(found)  # a log may hold what the job was given
        task = task or first_task(found)
        if url:
            job_actions.print_url(there, found, task, as_json=as_json)
        elif follow:
            job_actions.stream_log(there, found, task, lines, as_json=as_json)
        else:
            job_actions.print_log(there, found, task, lines, as_json=as_json)


@jobs_command.command("events")
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
    option("--since", metavar="TIME", type=MOMENT, default=None, help="Only events after TIME."),
    option("--until", metavar="TIME", type=MOMENT, default=None, help="Only events before TIME."),
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
    from reconciler.render.text import render_table

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


@jobs_command.command("metrics")
@with_options(_JOB, WHERE, _TASK, JSON)
def metrics(job: str, task: str | None, as_json: bool, **where: Any) -> None:
    """Print the node utilization of a task, in percent. --json prints the value of every minute."""
    from reconciler.cli import job_actions
    from reconciler.modelarts.jobs import first_task
    from reconciler.render.text import render_table

    with open_target(**where) as there:
        found = there.find(job)
        task = task or first_task(found)
        measured = there.target.logs.metrics(found.id, task)
    if as_json:
        told = None if measured is None else {metric.metric: metric.value for metric in measured}
        console.document({"job": found.id, "task": task, "metrics": told})
        return
    rows = [job_actions.metric_row(metric) for metric in measured or ()]
    head = ("METRIC", "LAST", "MEAN", "MAX", "MINUTES")
    console.result(render_table(head, rows, console.style(sys.stdout)))
    if measured is None:
        console.say(printable(f"{found.name} has no metrics yet ({found.phase_text})."))


@jobs_command.command("terminate")
@with_options(_JOBS, BESIDE_JOBS, YES, FORCE, JSON)
def terminate(jobs: Sequence[str], yes: bool, force: bool, as_json: bool, **where: Any) -> int:
    """Terminate jobs, after asking.

    Jobs owned by a stack are refused without --force: they belong to its manifest. Protected jobs are
    always refused. All jobs are checked before the first one is touched.
    """
    from reconciler.cli.job_actions import terminate_all

    with open_target(**where) as there:
        found = there.find_all(jobs)
        return terminate_all(there, found, yes=yes, force=force, as_json=as_json)


@jobs_command.command("delete")
@with_options(_JOBS, BESIDE_JOBS, YES, FORCE, JSON)
def delete(jobs: Sequence[str], yes: bool, force: bool, as_json: bool, **where: Any) -> int:
    """Delete the records of jobs that have ended, with their logs, after asking.

    Jobs owned by a stack are refused without --force: the record is the proof that the job has run. All
    jobs are checked before the first one is touched.
    """
    from reconciler.cli.job_actions import delete_all

    with open_target(**where) as there:
        found = there.find_all(jobs)
        return delete_all(there, found, yes=yes, force=force, as_json=as_json)


@jobs_command.command("wait")
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
        type=DURATION,
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
    from reconciler.cli.job_actions import wait_for_all
    from reconciler.decide.wait import Goal

    with open_target(**where) as there:
        found = there.find_all(jobs)
        return wait_for_all(there, found, Goal(goal), timeout_s, as_json=as_json)


@click.command("export")
@with_options(
    click.argument("jobs", metavar="[JOB]...", nargs=-1, shell_complete=keys),
    option("--all", "all_jobs", is_flag=True, help="All jobs that no stack owns and that match the filters."),
    option("--match", "globs", metavar="GLOB", multiple=True, help="Only jobs with such a name; repeatable."),
    BESIDE_JOBS,
    ADDRESS,
    FILTERS,
    option("--stack", "stack", metavar="NAME", default=None, help="Stack that is to own the jobs."),
    option(
        "--out",
        "file",
        metavar="FILE",
        default=None,
        type=click.Path(path_type=Path, dir_okay=False),
        help="Write a new file instead of stdout; an existing one is never overwritten.",
    ),
)
def export_command(
    jobs: Sequence[str],
    all_jobs: bool,
    globs: Sequence[str],
    paths: Any,
    variables: Any,
    var_files: Any,
    target: str | None,
    stack: str | None,
    file: Path | None,
    **filters: Any,
) -> int:
    """Print the manifest of jobs that exist already.

    JOB is an id, a name, or a key of the stack in the current directory; jobs that a stack owns are
    exported only when named. --all takes jobs that run or have completed, or those in the phases of
    --phase. The target is that of the stack, or the one at --endpoint or --region.

    Secrets become variables whose values the environment gives, and what all jobs share becomes
    defaults. The stack is named after the one in the current directory, else after the directory.
    """
    from reconciler.cli.export import (
        USUAL_PHASES,
        exported,
        manifest_text,
        named_jobs,
        open_source,
        unmanaged_jobs,
    )
    from reconciler.core.identity import stack_problem
    from reconciler.manifest.export import head_of_export, stack_name
    from reconciler.modelarts.jobs import JobFilters

    address = Address(**{name: filters.pop(name) for name in Address._fields})
    if bool(jobs) is all_jobs:
        raise click.UsageError("name jobs, or use --all for all that no stack owns")
    if jobs and (globs or any(filters.values())):
        raise click.UsageError("filters choose among all jobs; use them with --all")
    if stack is not None and (problem := stack_problem(stack)):
        raise WrongUsage(Diagnostic("invalid stack name", f'"{stack}": {problem}'))
    exists = Diagnostic("the file exists", f"{file} is never overwritten", "name another file, or remove it")
    if file is not None and (file.exists() or file.is_symlink()):
        raise WrongUsage(exists)
    filters["phases"] = filters["phases"] or USUAL_PHASES
    target, address = target_or_address(target, address)
    with open_source(paths, variables, var_files, target, address) as source:
        if all_jobs:
            found = unmanaged_jobs(source.session, JobFilters(**filters), globs)
        else:
            found = named_jobs(source.session, jobs)
        result, code = exported(source, stack or source.stack or stack_name(Path.cwd().name), found)
    if not result.entries and code:
        return code
    text = manifest_text(result, head_of_export(result.target_name))
    if file is None:
        console.result(text)
    elif write_new_file(file, text.encode()):
        console.say(f"written: {file}")
    else:
        raise WrongUsage(exists)
    if not result.entries:
        console.say("No matching jobs.")
    return code


@click.command("flavors")
@with_options(
    WHERE,
    option(
        "--type",
        "flavor_type",
        type=click.Choice(["CPU", "GPU", "Ascend"], case_sensitive=False),
        default=None,
        help="Only this type.",
    ),
    JSON,
)
def flavors_command(flavor_type: str | None, as_json: bool, **where: Any) -> None:
    """List the flavors of the target's public pools: valid values of spec.resource.flavor_id.

    --json prints everything the service returns about each.
    """
    from reconciler.render.text import render_table

    with open_target(**where) as there:
        flavors = there.target.catalog.flavor_offers(flavor_type).items
    if as_json:
        console.document({"flavors": [flavor.reported for flavor in flavors]})
        return
    head = ("FLAVOR", "TYPE", "CORES", "MEMORY", "CARDS", "MAX NODES")
    rows = [(*flavor[:5], "" if flavor.max_nodes is None else str(flavor.max_nodes)) for flavor in flavors]
    console.result(render_table(head, rows, console.style(sys.stdout)))


@click.command("engines")
@with_options(
    WHERE,
    option("--name", metavar="TEXT", default="", help="Only engines whose name or id contains this text."),
    JSON,
)
def engines_command(name: str, as_json: bool, **where: Any) -> None:
    """List the preset engines of the target: valid values of algorithm.engine.engine_id.

    --json prints everything the service returns about each.
    """
    from reconciler.render.text import render_table

    with open_target(**where) as there:
        engines = there.target.catalog.engine_offers().items
    wanted = name.casefold()
    found = [e for e in engines if wanted in e.name.casefold() or wanted in e.engine_id.casefold()]
    if as_json:
        console.document({"engines": [engine.reported for engine in found]})
        return
    rows = [(engine.engine_id, engine.name, engine.run_user) for engine in found]
    console.result(render_table(("ENGINE", "NAME", "RUN USER"), rows, console.style(sys.stdout)))
