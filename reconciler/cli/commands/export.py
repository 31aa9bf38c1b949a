"""`reconciler export`: manifest YAML for jobs that exist already."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click

from reconciler.cli.address import ADDRESS, Address, target_or_address
from reconciler.cli.completions import keys
from reconciler.cli.filters import FILTERS
from reconciler.cli.options import option, with_options
from reconciler.cli.service_session import BESIDE_JOBS
from reconciler.cli.terminal.console import console


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
def command(
    jobs: Sequence[str],
    all_jobs: bool,
    globs: Sequence[str],
    paths: Any,
    variables: Any,
    var_files: Any,
    target: str | None,
    endpoint: str | None,
    region: str | None,
    project_id: str | None,
    workspace_id: str | None,
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
        Where,
        exported,
        manifest_text,
        named_jobs,
        open_source,
        unmanaged_jobs,
    )
    from reconciler.manifests.scaffold import head_of_export, stack_name
    from reconciler.modelarts.jobs import JobFilters

    _check(jobs, all_jobs, [*globs, *(value for value in filters.values() if value)])
    _check_names(stack, file)
    filters["phases"] = filters["phases"] or USUAL_PHASES
    address = Address(endpoint, region, project_id, workspace_id)
    target, address = target_or_address(target, address)
    with open_source(Where(paths, variables, var_files, target, address)) as source:
        if all_jobs:
            found = unmanaged_jobs(source.session, JobFilters(**filters), globs)
        else:
            found = named_jobs(source.session, jobs)
        result, code = exported(source, stack or source.stack or stack_name(Path.cwd().name), found)
    if not result.entries and code:
        return code
    _write(manifest_text(result, head_of_export(result.target_name)), file)
    if not result.entries:
        console.say("No matching jobs.")
    return code


def _check(jobs: Sequence[str], all_jobs: bool, filters: Sequence[object]) -> None:
    if bool(jobs) is all_jobs:
        raise click.UsageError("name jobs, or use --all for all that no stack owns")
    if jobs and filters:
        raise click.UsageError("filters choose among all jobs; use them with --all")


def _check_names(stack: str | None, file: Path | None) -> None:
    from reconciler.core.identity import stack_problem
    from reconciler.errors import Diagnostic, WrongUsage

    if stack is not None and (problem := stack_problem(stack)):
        raise WrongUsage(Diagnostic("invalid stack name", f'"{stack}": {problem}'))
    if file is not None and (file.exists() or file.is_symlink()):
        raise WrongUsage(_exists(file))


def _exists(file: Path) -> Any:
    from reconciler.errors import Diagnostic

    return Diagnostic("the file exists", f"{file} is never overwritten", "name another file, or remove it")


def _write(text: str, file: Path | None) -> None:
    from reconciler.errors import WrongUsage
    from reconciler.files import write_new_file

    if file is None:
        console.result(text)
    elif write_new_file(file, text.encode()):
        console.say(f"written: {file}")
    else:
        raise WrongUsage(_exists(file))
