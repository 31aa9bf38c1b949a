"""`reconciler validate`: everything that can be said without the service and without credentials."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from reconciler.cli.options import STACK, TARGET_NAME, option, with_options
from reconciler.cli.terminal.console import console
from reconciler.core.exit_code import ExitCode

if TYPE_CHECKING:
    from reconciler.policy_checks import PolicyCheck


@click.command("validate")
@with_options(STACK, TARGET_NAME, option("--json", "as_json", is_flag=True, help="JSON on stdout."))
def command(
    paths: Sequence[Path],
    variables: Sequence[tuple[str, str]],
    var_files: Sequence[Path],
    target: str | None,
    as_json: bool,
) -> int:
    """Check the manifest of a stack, on every target or on the one that --target names.

    PATH is one or more manifest files or directories; default: the current directory. Neither
    the service nor credentials are needed, and sensitive variables may have no value. A target is
    skipped, with a warning, if its variables or defaults use an environment variable that is not set.
    Policies are asked about every job as if it had to be created.
    """
    from reconciler.cli.context import check_stack
    from reconciler.core.diagnostic import Diagnostic, ManifestInvalid
    from reconciler.policy_checks import check_policies

    found: tuple[Diagnostic, ...] = ()
    try:
        loaded = check_stack(paths, variables, var_files, target)
    except ManifestInvalid as invalid:
        if not as_json:
            raise
        found = invalid.diagnostics
        console.document(_document(None, 0, found))
        return ExitCode.INVALID
    jobs = len(loaded.stack.jobs)
    checked = check_policies(loaded, os.environ, target=target)
    if as_json:
        denied = [{**one.model_dump(mode="json"), "targets": names} for one, names in checked.denied.items()]
        console.document({**_document(loaded.stack.name, jobs, ()), "denied": denied})
    else:
        count = "1 job" if jobs == 1 else f"{jobs} jobs"
        files = "1 file" if len(loaded.files) == 1 else f"{len(loaded.files)} files"
        console.result(f"Valid: stack {loaded.stack.name}, {count} in view, {files}.{_refusal(checked)}\n")
    if said := (*checked.warnings, *checked.refusals):
        console.diagnostics(said)
    return ExitCode.REFUSED if checked.denied else ExitCode.DONE


def _refusal(checked: PolicyCheck) -> str:
    keys = {denial.key for denial in checked.denied}
    if not keys:
        return ""
    return f" {'1 job is' if len(keys) == 1 else f'{len(keys)} jobs are'} denied by a policy."


def _document(stack: str | None, jobs: int, diagnostics: Sequence[object]) -> dict[str, object]:
    from dataclasses import asdict, is_dataclass

    problems = [asdict(d) for d in diagnostics if is_dataclass(d) and not isinstance(d, type)]
    return {"valid": not problems, "stack": stack, "jobs": jobs, "diagnostics": problems}
