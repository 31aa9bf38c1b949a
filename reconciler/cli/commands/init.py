"""`reconciler init`: files to start from."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import click

from reconciler.cli.address import ADDRESS, Address, is_typed, target_or_address
from reconciler.cli.options import TARGET_NAME, VARIABLES, option, with_options
from reconciler.cli.terminal.console import console
from reconciler.errors import ExitCode
from reconciler.text import printable

if TYPE_CHECKING:
    from reconciler.cli.export import Where


@click.command("init")
@with_options(
    click.argument(
        "directory", metavar="[DIR]", default=".", type=click.Path(path_type=Path, file_okay=False)
    ),
    option("--from-service", is_flag=True, help="Start with the jobs that run and that no stack owns."),
    TARGET_NAME,
    VARIABLES,
    ADDRESS,
)
def command(
    directory: Path,
    from_service: bool,
    target: str | None,
    variables: Sequence[tuple[str, str]],
    var_files: Sequence[Path],
    **address: Any,
) -> int:
    """Write a commented manifest, a CI workflow and a .gitignore to start from.

    DIR is made if it does not exist; default: the current directory. A file that exists is never
    overwritten, and no manifest is written beside another one. The manifest uses the embedded
    emulator, so `reconciler plan` works at once.

    With --from-service it declares what runs: on the target at --endpoint or --region, or on that of
    the stack in the current directory. Secrets become variables.
    """
    from reconciler.cli.export import Where
    from reconciler.manifests.scaffold import MANIFEST_FILE, WORKFLOW_FILE, starting_files, workflow_for
    from reconciler.manifests.sources.files import has_root_file

    if not from_service and is_typed("target", *Address._fields):
        raise click.UsageError("a target is read only with --from-service")
    has_stack = directory.is_dir() and has_root_file(directory)
    files, code = dict(starting_files(directory.resolve().name)), ExitCode.DONE
    if from_service and not has_stack:
        target, service = target_or_address(target, Address(**address))
        start = _start_of(Where((), variables, var_files, target, service), directory)
        if start.manifest is None:
            return start.code
        code = start.code
        files[MANIFEST_FILE] = start.manifest
        files[WORKFLOW_FILE] = workflow_for(start.target)
    directory.mkdir(parents=True, exist_ok=True)
    for name, text in files.items():
        path = directory / name
        if name == MANIFEST_FILE and has_stack:
            console.say(f"exists, not written: {directory} has a manifest that says stack:")
        else:
            _write(path, text)
    return code


def _write(path: Path, text: str) -> None:
    from reconciler.files import write_new_file

    path.parent.mkdir(parents=True, exist_ok=True)
    if write_new_file(path, text.encode()):
        console.result(f"{path}\n")
    else:
        console.say(f"exists, not written: {path}")


class _Start(NamedTuple):
    """A manifest of what runs on a target, None where that could not be read, and how well it could."""

    manifest: str | None
    target: str
    code: ExitCode


def _start_of(where: Where, directory: Path) -> _Start:
    from reconciler.cli.export import RUNNING_PHASES, exported, manifest_text, open_source, unmanaged_jobs
    from reconciler.manifests.scaffold import head_of_export, stack_name
    from reconciler.modelarts.jobs import JobFilters

    with open_source(where) as source:
        found = unmanaged_jobs(source.session, JobFilters(phases=RUNNING_PHASES), ())
        result, code = exported(source, stack_name(directory.resolve().name), found)
    name = source.target_name
    if not result.entries and code:
        return _Start(None, name, code)
    if not result.entries:
        console.say("No job runs that no stack owns.")
    if source.target.traits.is_embedded and directory.resolve() != source.root.resolve():
        where_they_are = f"lie beside the manifest in {source.root}, and {directory} does not see them"
        console.say(printable(f"warning: the jobs of target {name} {where_they_are}"), "warning")
    return _Start(manifest_text(result, head_of_export(name)), name, code)
