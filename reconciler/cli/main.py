"""The table of commands, and the entry point that runs one."""

from __future__ import annotations

import os
import sys
from contextlib import suppress
from importlib import import_module

import click

from reconciler.cli import exits
from reconciler.cli import options as opt
from reconciler.cli.console import console
from reconciler.cli.output import final_outputs, option_values
from reconciler.errors import ExitCode, first_of

#: Each command: the module that defines `<name>_command`, and its line in `--help`.
COMMANDS = {
    "init": ("project", "Write a manifest, a CI workflow and a .gitignore to start from."),
    "validate": ("project", "Check the manifest, without the service and without credentials."),
    "fmt": ("project", "Rewrite manifest files in the canonical layout; comments are kept."),
    "plan": ("plan", "Show what apply would do, without changing anything."),
    "review": (
        "plan",
        "Show what a change of the manifests means, between two directories or git revisions.",
    ),
    "policies": ("project", "Test the policies of a stack against small cases."),
    "notify": ("project", "Send a test message to each notification URL of a stack."),
    "apply": ("apply", "Make the service match the manifest."),
    "run": ("run", "Run a job once in the foreground, on this machine."),
    "destroy": ("apply", "Terminate the jobs that the stack owns."),
    "adopt": ("apply", "Make an unmanaged job the next revision of a key; nothing restarts."),
    "release": ("apply", "Remove the marker from all revisions of a key; its jobs continue."),
    "show": ("plan", "Show a saved plan, in any format."),
    "drift": ("drift", "Show what changed on the service since the last apply."),
    "watch": ("drift", "Check for drift on a schedule, or apply, until stopped."),
    "status": ("drift", "Show the current state of the stack's jobs, and what each is waiting for."),
    "why": ("plan", "Show why a key gets its action: values, rules, and what would change it."),
    "history": ("drift", "Show past applies, drift checks and revisions."),
    "jobs": ("jobs", "List, show, watch, terminate or delete single jobs of the target."),
    "code": ("code", "List and delete the code that was uploaded for jobs."),
    "export": ("jobs", "Print a manifest for existing jobs."),
    "flavors": ("jobs", "List the compute flavors that the target offers."),
    "engines": ("jobs", "List the preset engines that the target offers."),
    "doctor": ("project", "Check credentials, endpoint, clock and permissions, and say how to fix them."),
    "unlock": ("apply", "Break a lock, after asking."),
    "schema": ("project", "Print a JSON Schema: manifest, plan, drift or events."),
    "explain": ("project", "Print the decision tables: states, fields."),
    "completion": ("project", "Print the script that completes commands in a shell."),
    "emulator": ("project", "Run the embedded emulator as an HTTP server."),
}


class LazyGroup(click.Group):
    """A group whose commands are imported on first use."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return None
        module = import_module(f"reconciler.cli.{COMMANDS[cmd_name][0]}")
        command: click.Command = getattr(module, f"{cmd_name}_command")
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, text) for name, (_, text) in COMMANDS.items()])

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Suggest the nearest command for an unknown one."""
        if args and args[0] not in COMMANDS:
            from difflib import get_close_matches

            near = get_close_matches(args[0], COMMANDS, n=1)
            hint = f" Did you mean {near[0]!r}?" if near else ""
            raise click.UsageError(f"No such command {args[0]!r}.{hint}", ctx)
        return super().resolve_command(ctx, args)


@click.group(
    cls=LazyGroup,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    no_args_is_help=False,
    invoke_without_command=True,
)
@click.pass_context
def cli(context: click.Context) -> None:
    """Declare training jobs in YAML, review the change, and make the service match.

    Jobs live on Huawei Cloud ModelArts or Open Telekom Cloud, or on the embedded emulator
    (`kind: local`), which needs no account. Ownership is written on the jobs themselves: there is no
    state file to lose.
    """
    if context.invoked_subcommand is None:
        click.echo(context.get_help())


for add in opt.common():
    add(cli)


def import_command(args: list[str]) -> None:
    """Import a command before it runs, because a signal's exception may get lost during an import."""
    if _names_a_command(args):
        sys.unraisablehook = exits.not_raised
        with suppress(Exception):  # reported when it is run
            any(cli.get_command(click.Context(cli), word) for word in args)


def _names_a_command(args: list[str]) -> bool:
    """Whether a command will run, rather than only print help."""
    return any(not word.startswith("-") for word in args)


def _learn_credentials() -> None:
    """Redact all credentials in the environment, used or not."""
    from reconciler.modelarts.known_secrets import known_secrets

    console.redact.add_secrets(known_secrets(os.environ))


def run(command: click.Command, args: list[str]) -> int:
    """Run a click command and return its exit code (docs/reference/exit-codes.md). Raises nothing."""
    has_command = _names_a_command(args)
    if has_command:
        final_outputs.begin()
    try:
        if has_command:
            _learn_credentials()
        if "_RECONCILER_COMPLETE" in os.environ:  # shell completion
            command.main(args, prog_name="reconciler", standalone_mode=False)
        # Not `command.main`, which handles broken pipes and Ctrl-C in its own way.
        with command.make_context("reconciler", list(args)) as context:
            code = int(command.invoke(context) or 0)
        with suppress(BrokenPipeError):  # a closed pipe does not change the exit code
            sys.stdout.flush()
    except click.exceptions.Exit as error:
        code = error.exit_code
    except (Exception, KeyboardInterrupt, exits.Stopped) as error:
        _learn_credentials()
        if isinstance(error, click.UsageError):
            # The command line may not have been parsed up to --log-format.
            *_, log_format = [os.environ.get("RECONCILER_LOG_FORMAT"), *option_values(args, "--log-format")]
            console.log_format = "json" if log_format == "json" else "text"
        code = exits.of_exception(error)
    if not has_command:
        return code
    if code == ExitCode.WRONG_USAGE and not final_outputs.is_asked_for:
        final_outputs.find(args)
    try:
        final_outputs.finish(code)
    except (Exception, KeyboardInterrupt, exits.Stopped) as error:
        return first_of([ExitCode(code), exits.of_exception(error)])
    return code
