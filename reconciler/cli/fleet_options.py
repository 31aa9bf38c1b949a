"""--fleet and --scheduler: a command for one stack becomes one for all stacks of a tree."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import wraps
from typing import Any

import click
from click.core import ParameterSource

from reconciler.cli.options import option

FLEET: Sequence[Callable[[Any], Any]] = (
    option(
        "--fleet",
        is_flag=True,
        help="Process each stack in and below PATH by itself; one report, one exit code.",
    ),
    option(
        "--scheduler",
        default=None,
        metavar="tcp://HOST:PORT",
        help="With --fleet: use the workers of this dask scheduler, which see the same files.",
    ),
)


def with_fleet(function: Callable[..., int]) -> Callable[..., int]:
    """Do the command for all stacks where --fleet is given, with whatever other options it has."""

    @wraps(function)
    def run(fleet: bool, scheduler: str | None, **options: Any) -> int:
        context = click.get_current_context()
        if fleet:
            from reconciler.cli.fleet import check_fleet

            is_from_environment = context.get_parameter_source("records") is ParameterSource.ENVIRONMENT
            return check_fleet(context.info_name or "", options, scheduler, is_from_environment)
        if scheduler and context.get_parameter_source("scheduler") is ParameterSource.COMMANDLINE:
            raise click.UsageError("--scheduler needs --fleet: a single stack is not sent to workers.")
        return function(**options)

    return run
