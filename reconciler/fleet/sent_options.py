"""The options that may travel to the workers of a cluster: none that holds a secret.

What is sent stands in the memory of the scheduler, and may stand in its logs. Workers take credentials, the
variables of the environment and the address of the record store from their own environment.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from reconciler.core.store_url import passwords_in
from reconciler.errors import Diagnostic, ReconcilerError, WrongUsage
from reconciler.fleet.request import FleetRequest, StackTask
from reconciler.manifest.files import find_stack
from reconciler.manifest.stack_roots import files_digest
from reconciler.manifest.variable_section import declared_sensitive


def sent(request: FleetRequest, *, is_records_from_environment: bool) -> FleetRequest:
    """The request as it is sent; the address of the record store is left out if the environment gave it.

    Raises:
        WrongUsage: the address on the command line holds a password.
    """
    url = request.options.get("records")
    if url and not is_records_from_environment and any(passwords_in(url)):
        raise WrongUsage(
            Diagnostic(
                "--records with a password and --scheduler",
                "a password is never sent to a scheduler",
                "set RECONCILER_RECORDS in the environment of the workers",
            )
        )
    if url and is_records_from_environment:
        return replace(request, options={**request.options, "records": None})
    return request


def with_digest(task: StackTask, request: FleetRequest) -> StackTask:
    """The task with the digest of the stack's files, which a worker compares with what it sees."""
    return replace(task, digest=files_digest(Path(task.directory), _var_files(request)))


def check_variables(request: FleetRequest, tasks: Sequence[StackTask]) -> list[StackTask]:
    """See that no value of a sensitive variable is sent; returns the stacks for which nobody knows.

    Raises:
        WrongUsage: a stack declares a variable as sensitive that --var gives.
    """
    given = {name for name, _ in request.options.get("variables") or ()}
    if not given:
        return []
    unclear = []
    for task in tasks:
        try:
            files = find_stack([Path(task.directory)], _var_files(request))
        except ReconcilerError:
            unclear.append(task)
            continue
        if any(document.is_broken for document in files.documents):
            unclear.append(task)
        elif secret := sorted(given & declared_sensitive(files.documents)):
            raise WrongUsage(_sensitive(secret[0], task))
    return unclear


def _var_files(request: FleetRequest) -> list[Path]:
    return [Path(path) for path in request.options.get("var_files") or ()]


def _sensitive(name: str, task: StackTask) -> Diagnostic:
    return Diagnostic(
        "--var of a sensitive variable with --scheduler",
        f"{task.root} declares {name} as sensitive, and its value is never sent to a scheduler",
        f"declare `env` for {name}, and set that variable in the environment of the workers",
    )
