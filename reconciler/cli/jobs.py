"""Commands for the calls of the service: `jobs`, `export`, `flavors`, `engines`."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import click

from reconciler.cli import options as opt
from reconciler.cli.console import console
from reconciler.cli.context import open_target, report_unreadable
from reconciler.cli.progress import reading
from reconciler.errors import Diagnostic, ExitCode, ServiceError, Severity, Unauthorized, first_of

if TYPE_CHECKING:
    from reconciler.cli.context import TargetSession
    from reconciler.core.observed import ObservedJob
    from reconciler.modelarts.jobs import JobFilters

_JOB = click.argument("job", metavar="JOB")
_JOBS = click.argument("jobs", metavar="JOB... [PATH]...", nargs=-1, required=True)
_TASK = opt.option("--task TASK", "Task of the job; default: the first one.")
#: The options that select the target.
_WHERE = ("paths", "variables", "var_files", "target")


@opt.group("jobs")
def jobs_command() -> None:
    """Call the service's own operations on single jobs.

    JOB is an id, a name, or a key of the stack, which means its newest revision and takes precedence over a
    name. The stack and its target are those of the current directory, or of PATH.
    """


@opt.command(
    "list",
    opt.WHERE,
    opt.FILTERS,
    opt.option("--sort", "Field to sort by.", default="create_time"),
    opt.option("--order", "Order.", type=click.Choice(["desc", "asc"]), default="desc"),
    opt.option("--limit", "Maximum number of jobs.", type=click.IntRange(min=1), default=100),
    opt.JSON,
    of=jobs_command,
)
def list_(sort: str, order: str, limit: int, as_json: bool, **filters: Any) -> int:
    """List the jobs of the workspace, newest first, regardless of owner.

    OWNER is the stack, key and revision in the job's marker. --json prints the whole jobs.
    """
    from reconciler.modelarts.jobs import JobFilters, search_jobs
    from reconciler.render.commands import render_jobs

    with open_target(**{name: filters.pop(name) for name in _WHERE}) as session, reading():
        now_s = session.target.clock.now()
        search, wanted = session.target.search, JobFilters(**filters)
        listing = search_jobs(search, wanted, now_s, sort_by=sort, order=order, limit=limit + 1)
        session.see(*listing.jobs)
    jobs, has_more = listing.jobs[:limit], len(listing.jobs) > limit
    if as_json:
        is_complete = not (has_more or listing.unreadable or listing.problem)
        items = [session.shown(job) for job in jobs]
        console.document({"count": len(items), "complete": is_complete, "items": items})
    else:
        console.result(render_jobs(jobs, now_s, console.style(sys.stdout)))
        if has_more:
            console.say(f"Showing the first {len(jobs)}; raise --limit to see more.")
        elif not jobs and not listing.problem:
            console.say("No matching jobs.")
    return report_unreadable(listing)


@opt.command("show", _JOB, opt.WHERE, opt.JSON, of=jobs_command)
def show(job: str, as_json: bool, **where: Any) -> None:
    """Show one job: the full service response, without tokens and sensitive values.

    --json prints it as JSON, including fields that this program does not know.
    """
    from reconciler.render.commands import render_job

    with open_target(**where) as session:
        now_s = session.target.clock.now()
        found = session.target.backend.details(session.find(job).id)
        session.see(found)
    body = session.shown(found)
    if as_json:
        console.document(body)
    else:
        console.result(render_job(found, body, now_s, console.style(sys.stdout)))


@opt.command(
    "logs",
    _JOB,
    opt.WHERE,
    _TASK,
    opt.option("--lines", "Only the last N lines.", type=click.IntRange(min=0)),
    opt.flag("-f --follow", "Follow the log until the job has ended."),
    opt.JSON,
    of=jobs_command,
)
def logs(job: str, task: str | None, lines: int | None, follow: bool, as_json: bool, **where: Any) -> None:
    """Print the end of a task's log, at most 5 MB."""
    from reconciler.cli import job_actions
    from reconciler.modelarts.jobs import first_task

    with open_target(**where) as session:
        found = session.find(job)
        show_log = job_actions.stream_log if follow else job_actions.print_log
        show_log(session, found, task or first_task(found), lines, as_json=as_json)


@opt.command(
    "events",
    _JOB,
    opt.WHERE,
    opt.option("--limit", "Maximum number of events.", type=click.IntRange(min=1), default=500),
    opt.JSON,
    of=jobs_command,
)
def events(job: str, limit: int, as_json: bool, **where: Any) -> None:
    """Print the events of a job, oldest first."""
    from reconciler.modelarts.jobs import read_events
    from reconciler.render.text import render_table

    with open_target(**where) as session:
        found = session.find(job)
        happened = read_events(session.target.logs, found.id, limit)
    if as_json:
        documents = [event.model_dump(mode="json", exclude_unset=True) for event in happened]
        console.document({"job": found.id, "events": documents})
        return
    rows = [(event.time, event.level, event.source, event.message) for event in happened]
    head, order = ("TIME", "LEVEL", "SOURCE", "MESSAGE"), ("TIME", "MESSAGE", "LEVEL", "SOURCE")
    console.result(render_table(head, rows, console.style(sys.stdout), order))
    if not rows:
        console.say("No matching events.")


@opt.command("metrics", _JOB, opt.WHERE, _TASK, opt.JSON, of=jobs_command)
def metrics(job: str, task: str | None, as_json: bool, **where: Any) -> None:
    """Print the utilization of a task's node, in percent: newest value, mean and maximum of each metric.

    The service has one value per minute, a target of kind process one every ten seconds.
    """
    from statistics import fmean

    from reconciler.modelarts.jobs import first_task
    from reconciler.render.text import render_table

    with open_target(**where) as session:
        found = session.find(job)
        measured = session.target.logs.metrics(found.id, task or first_task(found)) or ()
    if as_json:
        documents = [metric.model_dump(mode="json") for metric in measured]
        console.document({"job": found.id, "metrics": documents})
        return
    known = [(one.metric, [value for value in one.value if value is not None]) for one in measured]
    rows = [
        (name, *(f"{amount:.1f} %" for amount in (values[-1], fmean(values), max(values))))
        for name, values in known
        if values
    ]
    head = ("METRIC", "NEWEST", "MEAN", "HIGHEST")
    console.result(render_table(head, rows, console.style(sys.stdout), head))
    if not rows:
        console.say("No values yet.")


@opt.command("terminate", _JOBS, opt.STACK_OPTIONS_FOR_JOBS, opt.YES, opt.FORCE, opt.JSON, of=jobs_command)
def terminate(jobs: Sequence[str], yes: bool, force: bool, as_json: bool, **where: Any) -> int:
    """Terminate jobs, after asking.

    Jobs owned by a stack are refused without --force: they belong to its manifest. Protected jobs are
    always refused. All jobs are checked before the first one is touched.
    """
    from reconciler.cli.job_actions import terminate_all

    named = opt.take_paths(jobs, where)
    with open_target(**where) as session:
        return terminate_all(session, session.find_all(named), yes=yes, force=force, as_json=as_json)


@opt.command("delete", _JOBS, opt.STACK_OPTIONS_FOR_JOBS, opt.YES, opt.FORCE, opt.JSON, of=jobs_command)
def delete(jobs: Sequence[str], yes: bool, force: bool, as_json: bool, **where: Any) -> int:
    """Delete the records of jobs that have ended, with their logs, after asking.

    Jobs owned by a stack are refused without --force: the record is the proof that the job has run. All
    jobs are checked before the first one is touched.
    """
    from reconciler.cli.job_actions import delete_all

    named = opt.take_paths(jobs, where)
    with open_target(**where) as session:
        return delete_all(session, session.find_all(named), yes=yes, force=force, as_json=as_json)


@opt.command(
    "wait",
    _JOBS,
    opt.STACK_OPTIONS_FOR_JOBS,
    opt.option(
        "--for",
        "What to wait for.",
        "goal",
        type=click.Choice(["running", "completed", "ended"]),
        default="completed",
    ),
    opt.option("--timeout", "How long to wait; default: no limit.", "timeout_s", type=opt.DURATION),
    opt.JSON,
    of=jobs_command,
)
def wait(jobs: Sequence[str], goal: str, timeout_s: float | None, as_json: bool, **where: Any) -> int:
    """Wait until all the jobs are running, completed, or ended.

    Exits 0 when they are, 9 on timeout, and 10 if one ended badly: Failed or Abnormal, or
    Terminated unless any end was waited for. Phase changes are reported on stderr.
    """
    from reconciler.cli.job_actions import wait_for_all
    from reconciler.decide.outcome import Goal

    named = opt.take_paths(jobs, where)
    with open_target(**where) as session:
        return wait_for_all(session, session.find_all(named), Goal(goal), timeout_s, as_json=as_json)


@opt.command(
    "export",
    click.argument("jobs", metavar="[JOB]... [PATH]...", nargs=-1),
    opt.flag("--all", "All jobs that no stack owns and that match the filters.", "all_jobs"),
    opt.STACK_OPTIONS_FOR_JOBS,
    opt.FILTERS,
)
def export_command(jobs: Sequence[str], all_jobs: bool, **options: Any) -> int:
    """Print a manifest for existing jobs.

    JOB is an id, a name, or a key of the stack in PATH or the current directory; jobs that a stack owns are
    exported only when named. --all exports jobs that are active or completed, or those in the phases of
    --phase.

    Secrets become variables that take their values from the environment, and settings that all jobs share
    become defaults. The stack has the name of the one in the current directory.
    """
    from reconciler.adoption import export_jobs
    from reconciler.core.phase import ACTIVE, Phase
    from reconciler.manifest.export import head_of_export
    from reconciler.modelarts.jobs import JobFilters

    where = {name: options.pop(name) for name in _WHERE}
    jobs = opt.take_paths(jobs, where, needs_job=False)
    if bool(jobs) is all_jobs:
        raise click.UsageError("name jobs, or use --all for all that no stack owns")
    if jobs and any(options.values()):
        raise click.UsageError("filters can only be used with --all")
    usual = sorted(phase.value for phase in (ACTIVE | {Phase.COMPLETED}) - {Phase.TERMINATING})
    filters = JobFilters(**{**options, "phases": options["phases"] or usual})
    with open_target(**where) as session:
        found, codes = _unmanaged_jobs(session, filters) if all_jobs else _named_jobs(session, jobs)
        result, problems, notes = export_jobs(session.loaded, session.target, found, console.redact)
    console.diagnostics([*problems, *notes])
    code = first_of([*codes, ExitCode.UNKNOWN if problems else ExitCode.DONE])
    if not result.entries and code:
        return code
    text = result.text(head_of_export(result.target_name))
    if console.redact(text) != text:
        why = "a name contains a known secret, and is printed as (sensitive)"
        fix = "edit the manifest before you use it"
        console.diagnostics([Diagnostic("a secret is hidden", why, fix, severity=Severity.WARNING)])
    console.result(text)
    if not result.entries:
        console.say("No matching jobs.")
    return code


def _named_jobs(session: TargetSession, names: Sequence[str]) -> tuple[list[ObservedJob], list[ExitCode]]:
    """Return the named jobs, owned or not. One that cannot be found hides no other.

    Raises:
        Unauthorized: the account may not read them.
    """
    jobs: list[ObservedJob] = []
    codes: list[ExitCode] = []
    for name in names:
        try:
            jobs.append(session.find(name))
        except Unauthorized:
            raise
        except ServiceError as failure:
            console.diagnostics(failure.diagnostics)
            codes.append(ExitCode(failure.exit_code))
    return jobs, codes


def _unmanaged_jobs(session: TargetSession, filters: JobFilters) -> tuple[list[ObservedJob], list[ExitCode]]:
    from reconciler.modelarts.jobs import search_jobs

    with reading():
        listing = search_jobs(session.target.search, filters, session.target.clock.now(), order="asc")
    session.see(*listing.jobs)
    unmanaged = [job for job in listing.jobs if job.marker is None]
    if owned := len(listing.jobs) - len(unmanaged):
        are = "1 job owned by a stack is" if owned == 1 else f"{owned} jobs owned by a stack are"
        console.say(f"{are} left out; name a job to export it anyway.")
    return unmanaged, [report_unreadable(listing)]


@opt.command(
    "flavors",
    opt.WHERE,
    opt.option(
        "--type", "Only this type.", "flavor_type", type=click.Choice(["CPU", "GPU", "Ascend"], False)
    ),
    opt.JSON,
)
def flavors_command(flavor_type: str | None, as_json: bool, **where: Any) -> None:
    """List the flavors of the target's public pools: valid values of spec.resource.flavor_id.

    --json prints everything the service returns about each.
    """
    from reconciler.render.text import render_table

    with open_target(**where) as session:
        flavors = session.target.catalog.flavor_offers(flavor_type).items
    if as_json:
        console.document({"flavors": [flavor.reported for flavor in flavors]})
        return
    head = ("FLAVOR", "TYPE", "CORES", "MEMORY", "CARDS", "MAX NODES")
    rows = [(*flavor[:5], "" if flavor.max_nodes is None else str(flavor.max_nodes)) for flavor in flavors]
    console.result(render_table(head, rows, console.style(sys.stdout)))


@opt.command(
    "engines",
    opt.WHERE,
    opt.option("--name TEXT", "Only engines whose name or id contains this text.", default=""),
    opt.JSON,
)
def engines_command(name: str, as_json: bool, **where: Any) -> None:
    """List the preset engines of the target: valid values of algorithm.engine.engine_id.

    --json prints everything the service returns about each.
    """
    from reconciler.render.text import render_table

    with open_target(**where) as session:
        engines = session.target.catalog.engine_offers().items
    wanted = name.casefold()
    found = [e for e in engines if wanted in e.name.casefold() or wanted in e.engine_id.casefold()]
    if as_json:
        console.document({"engines": [engine.reported for engine in found]})
        return
    rows = [(engine.engine_id, engine.name, engine.run_user) for engine in found]
    console.result(render_table(("ENGINE", "NAME", "RUN USER"), rows, console.style(sys.stdout)))
