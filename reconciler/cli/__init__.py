"""What the user types. Commands are imported when they are called, so that `--help` is quick."""

from __future__ import annotations

import click

from reconciler.cli.registry import LazyGroup
from reconciler.version import __version__


@click.group(
    cls=LazyGroup,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    no_args_is_help=False,
    invoke_without_command=True,
)
@click.version_option(__version__, prog_name="reconciler", message="%(prog)s %(version)s")
@click.pass_context
def cli(context: click.Context) -> None:
    """Declare training jobs in YAML, review the change, and make the service match.

    Jobs live on Huawei Cloud ModelArts or Open Telekom Cloud, or on the embedded emulator
    (`kind: local`), which needs no account. Ownership is written on the jobs themselves: there is no
    state file to lose.
    """
    if context.invoked_subcommand is None:
        click.echo(context.get_help())


def main() -> None:
    """Run the command line, and exit with a code of docs/cli.md, "Exit codes"."""
    from reconciler.cli import entrypoint

    entrypoint.main(cli)
