"""`reconciler doctor`: what stands between this machine and the service, and how to get it out of the way."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from reconciler.cli.options import RECORDS, with_options
from reconciler.cli.service_session import JSON, WHERE
from reconciler.cli.terminal.console import console
from reconciler.errors import ExitCode

if TYPE_CHECKING:
    from reconciler.decide.doctor import Check


@click.command("doctor")
@with_options(WHERE, RECORDS, JSON)
def command(
    paths: Sequence[Path],
    variables: Sequence[tuple[str, str]],
    var_files: Sequence[Path],
    target: str | None,
    records: str | None,
    as_json: bool,
) -> int:
    """Check records, lock, credentials, endpoint, clock, project, permissions, duplicates, adoption
    candidates.

    Nothing is changed, and no secret is shown. Exits 0 if there is no problem, 7 for credentials
    and permissions, 8 if the service cannot be reached, and 1 otherwise.
    """
    from reconciler.cli.context import load_stack
    from reconciler.cli.doctor.checks import Examination
    from reconciler.modelarts.clock import SystemClock
    from reconciler.render.commands import checks_document, render_checks

    loaded = load_stack(paths, variables, var_files, target, offline=True)
    name, chosen = loaded.target(target)
    examination = Examination(loaded, name, chosen, SystemClock(), records)
    checks = list(examination.checks())
    if as_json:
        head: dict[str, object] = {"stack": loaded.stack.name, "target": examination.place}
        console.document(checks_document(head, checks))
    else:
        head_line = f"Stack {loaded.stack.name} on {_spelled(examination.place)}"
        console.result(render_checks(head_line, checks, console.style(sys.stdout)))
    return _exit(checks)


def _spelled(place: Mapping[str, str | None]) -> str:
    if place["project_id"] is None:
        return f"{place['name']} ({place['kind']})"
    where = f"project {place['project_id']}, workspace {place['workspace_id']}"
    return f"{place['name']} ({place['kind']}, {place['endpoint']}, {where})"


def _exit(checks: Sequence[Check]) -> ExitCode:
    from reconciler.decide.doctor import Health, Trouble

    troubles = {check.trouble for check in checks if check.health is Health.WRONG}
    table = {
        Trouble.ACCESS: ExitCode.UNAUTHORIZED,
        Trouble.UNREACHABLE: ExitCode.UNKNOWN,
        Trouble.OTHER: ExitCode.FAILED,
    }
    return next((code for trouble, code in table.items() if trouble in troubles), ExitCode.DONE)
