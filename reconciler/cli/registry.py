"""The table of commands: what `--help` shows, and where each lives. A new command is a row here."""

from __future__ import annotations

from importlib import import_module
from typing import NamedTuple

import click


class CommandRow(NamedTuple):
    """One command: the attribute `command` of a module, and its line in `--help`."""

    module: str
    help: str


COMMANDS: dict[str, CommandRow] = {
    "init": CommandRow("init", "Write a manifest, a CI workflow and a .gitignore to start from."),
    "validate": CommandRow("validate", "Check the manifest, without the service and without credentials."),
    "fmt": CommandRow("fmt", "Rewrite manifest files in the canonical layout; comments are kept."),
    "plan": CommandRow("plan", "Show what apply would do, without changing anything."),
    "review": CommandRow(
        "review", "Show what a change of the manifests means, between two directories or git revisions."
    ),
    "policies": CommandRow("policies", "Test the policies of a stack against small cases."),
    "apply": CommandRow("apply", "Make the service match the manifest."),
    "destroy": CommandRow("destroy", "Terminate the jobs that the stack owns."),
    "adopt": CommandRow("adopt", "Make an unmanaged job the next revision of a key; nothing restarts."),
    "release": CommandRow("release", "Take the marker off every revision of a key; what runs goes on."),
    "show": CommandRow("show", "Show a saved plan, in any format."),
    "drift": CommandRow("drift", "Show what changed on the service behind the manifest's back."),
    "accept": CommandRow("accept", "Record the present drift of a key as known until it changes."),
    "watch": CommandRow("watch", "Check for drift on a schedule, or apply, until stopped."),
    "status": CommandRow(
        "status", "Show the current state of the stack's jobs, and what each is waiting for."
    ),
    "why": CommandRow("why", "Show why a key gets its action: values, rules, and what would change it."),
    "history": CommandRow("history", "Show past applies, drift checks and revisions."),
    "jobs": CommandRow("jobs", "List, show, watch, terminate or delete single jobs of the target."),
    "export": CommandRow("export", "Print the manifest of jobs that exist already."),
    "flavors": CommandRow("flavors", "List the compute flavors that the target offers."),
    "engines": CommandRow("engines", "List the preset engines that the target offers."),
    "doctor": CommandRow(
        "doctor", "Check credentials, endpoint, clock and permissions, and say how to fix them."
    ),
    "unlock": CommandRow("unlock", "Break a lock, after asking."),
    "schema": CommandRow(
        "schema",
        "Print a JSON Schema: manifest, plan, drift, events, history, status, review, "
        "validate, why or fleet.",
    ),
    "explain": CommandRow("explain", "Print the decision tables: states, rules, fields."),
    "completion": CommandRow("completion", "Print the script that completes commands in a shell."),
    "emulator": CommandRow("emulator", "Run the embedded emulator as an HTTP server."),
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
