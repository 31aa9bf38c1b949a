"""`reconciler validate`: everything that can be said without the service and without credentials."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

import click

from reconciler.cli.fleet_options import FLEET, with_fleet
from reconciler.cli.options import STACK, TARGET_NAME, OutputSpec, output, with_options
from reconciler.cli.terminal.console import console
from reconciler.render import Content


@click.command("validate")
@with_options(STACK, TARGET_NAME, output(Content.VALIDATION), FLEET)
@with_fleet
def command(
    paths: Sequence[Path],
    variables: Sequence[tuple[str, str]],
    var_files: Sequence[Path],
    target: str | None,
    outputs: Sequence[OutputSpec],
    as_json: bool,
) -> int:
    """Check the manifest of a stack, on every target or on the one that --target names.

    PATH is one or more manifest files or directories; default: the current directory. Neither
    the service nor credentials are needed, and sensitive variables may have no value. A target is
    skipped, with a warning, if its variables or defaults use an environment variable that is not set.
    Policies are asked about every job as if it had to be created.
    """
    from reconciler.cli.context import known
    from reconciler.cli.output import requested_outputs, show_validation
    from reconciler.validation import validate_stack

    specs = requested_outputs(outputs, as_json=as_json)
    files = list(paths) or [Path()]
    learn = console.redact.learn
    found = validate_stack(
        files, environ=os.environ, variables=dict(variables), var_files=var_files, target=target, learn=learn
    )
    if found.skipped:
        console.diagnostics(found.skipped)
    if found.loaded is not None:
        known(found.loaded)
    show_validation(found.report, specs, found.problems)
    return found.exit_code
