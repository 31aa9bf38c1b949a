"""The table of commands: what `--help` shows, and where each lives. A new command is a row here."""

from __future__ import annotations

from importlib import import_module
from typing import NamedTuple

import click


class Row(NamedTuple):
    """One command: the attribute `command` of a module, and its line in `--help`."""

    module: str
    help: str


COMMANDS: dict[str, Row] = {
    "validate": Row("validate", "Check the manifest, without the service and without credentials."),
    "plan": Row("plan", "Show what apply would do, without changing anything."),
    "apply": Row("apply", "Make the service match the manifest."),
    "destroy": Row("destroy", "Terminate the jobs that the stack owns."),
    "show": Row("show", "Show a saved plan, in any format."),
    "drift": Row("drift", "Show what changed on the service behind the manifest's back."),
    "status": Row("status", "Show the current state of the stack's jobs, and what each is waiting for."),
    "history": Row("history", "Show past applies, drift checks and revisions."),
    "jobs": Row("jobs", "List, show, watch, terminate or delete single jobs of the target."),
    "flavors": Row("flavors", "List the compute flavors that the target offers."),
    "engines": Row("engines", "List the preset engines that the target offers."),
    "doctor": Row("doctor", "Check credentials, endpoint, clock and permissions, and say how to fix them."),
    "unlock": Row("unlock", "Break a lock, after asking."),
    "schema": Row("schema", "Print a JSON Schema: manifest, plan, drift, events, history or status."),
    "explain": Row("explain", "Print the decision tables: states, fields."),
    "emulator": Row("emulator", "Run the embedded emulator as an HTTP server."),
}


class LazyGroup(click.Group):
    """A group whose commands are imported on first use."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """In the order of the table, which is the order of use."""
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import the command."""
        row = COMMANDS.get(cmd_name)
        if row is None:
            return None
        command: click.Command = import_module(f"reconciler.cli.commands.{row.module}").command
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the list of commands without importing one of them."""
        with formatter.section("Commands"):
            formatter.write_dl([(name, row.help) for name, row in COMMANDS.items()])

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Name the nearest command where there is none of that name."""
        if args and args[0] not in COMMANDS:
            from difflib import get_close_matches

            near = get_close_matches(args[0], COMMANDS, n=1)
            hint = f" Did you mean {near[0]!r}?" if near else ""
            raise click.UsageError(f"No such command {args[0]!r}.{hint}", ctx)
        return super().resolve_command(ctx, args)
