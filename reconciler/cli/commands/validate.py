"""`reconciler validate`: everything that can be said without the service and without credentials."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from reconciler.cli.options import STACK, TARGET_NAME, OutputSpec, output, with_options
from reconciler.core.diagnostic import ManifestInvalid
from reconciler.core.exit_code import ExitCode
from reconciler.render import Content

if TYPE_CHECKING:
    from reconciler.core.diagnostic import Diagnostic
    from reconciler.core.planning.reports.validation import StackFacts
    from reconciler.manifests import LoadedStack


@click.command("validate")
@with_options(STACK, TARGET_NAME, output(Content.VALIDATION))
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
    from reconciler.cli.context import check_stack
    from reconciler.cli.output import requested_outputs, show_validation
    from reconciler.core.planning.reports.validation import invalid_manifest, valid_manifest
    from reconciler.policy_checks import check_policies

    specs = requested_outputs(outputs, as_json=as_json)
    try:
        loaded, warnings = check_stack(paths, variables, var_files, target)
        of_urls = _check_notifications(loaded)
    except ManifestInvalid as invalid:
        facts = _facts_of_files(paths, var_files, target)
        show_validation(invalid_manifest(facts, invalid.diagnostics), specs, invalid.diagnostics)
        return ExitCode.INVALID
    checked = check_policies(loaded, os.environ, target=target)
    report = valid_manifest(
        _facts(loaded, target), loaded.stack, checked.denied, (*warnings, *of_urls, *checked.warnings)
    )
    show_validation(report, specs, (*of_urls, *checked.warnings, *checked.refusals))
    return ExitCode.REFUSED if checked.denied else ExitCode.DONE


def _check_notifications(loaded: LoadedStack) -> tuple[Diagnostic, ...]:
    """Check the URLs of `notify` that have a value; Apprise is imported only where there are some."""
    if not loaded.notifies:
        return ()
    from reconciler.notifications import check_destinations

    return check_destinations(loaded)


def _facts(loaded: LoadedStack, target: str | None) -> StackFacts:
    """What was checked: on one target, on those that differ, or on all alike."""
    from reconciler.core.planning.reports.validation import StackFacts
    from reconciler.version import __version__

    targets = [target] if target else [one.target_name for one in loaded.checked] or list(loaded.targets)
    named = tuple(name for name in targets if name is not None)
    return StackFacts(__version__, loaded.stack.name, loaded.target_name, named, loaded.file_names)


def _facts_of_files(paths: Sequence[Path], var_files: Sequence[Path], target: str | None) -> StackFacts:
    """What was to be checked, as far as files that are invalid say it."""
    from reconciler.core.planning.reports.validation import StackFacts
    from reconciler.manifests.outline import outline
    from reconciler.version import __version__

    found = outline(paths, var_files)
    named = (target,) if target else ()
    return StackFacts(__version__, found.stack, target or found.target, named, found.files)
