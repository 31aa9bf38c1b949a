"""A target that no manifest has: its address, as options say it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import click
from click.core import ParameterSource

from reconciler.cli.options import option

#: What the target is called in a manifest that is written for it, and in the CI workflow of `init`.
ADDRESSED = "prod"

ADDRESS: Sequence[Callable[[Any], Any]] = (
    option("--endpoint", metavar="URL", default=None, help="Service to read, instead of a stack's target."),
    option("--region", default=None, help="The same by its region, e.g. cn-north-4."),
    option(
        "--project-id",
        metavar="ID",
        default=None,
        help="Project there; default: HUAWEICLOUD_SDK_PROJECT_ID, or that of the credentials.",
    ),
    option("--workspace-id", metavar="ID", default=None, help='Workspace there; default: "0".'),
)


class Address(NamedTuple):
    """Where a service is; nothing is said where it is that of a stack's target."""

    endpoint: str | None = None
    region: str | None = None
    project_id: str | None = None
    workspace_id: str | None = None

    @property
    def is_given(self) -> bool:
        """Whether it names a service.

        Raises:
            UsageError: it says something of a service that it does not name.
        """
        if self.endpoint or self.region:
            return True
        if self.project_id or self.workspace_id:
            raise click.UsageError("--project-id and --workspace-id require --endpoint or --region")
        return False


def target_or_address(target: str | None, address: Address) -> tuple[str | None, Address]:
    """Which of the two is meant: what stands on the command line goes before the environment.

    Raises:
        UsageError: both stand there, or neither does more than the other.
    """
    if target is None or not address.is_given:
        return target, address
    if is_typed("target") is is_typed(*Address._fields):
        raise click.UsageError("--target names a target of a stack, --endpoint and --region do not; omit one")
    return (target, Address()) if is_typed("target") else (None, address)


def is_typed(*options: str) -> bool:
    """Whether one of these options of the running command stands on its command line."""
    context = click.get_current_context()
    return any(context.get_parameter_source(name) is ParameterSource.COMMANDLINE for name in options)
