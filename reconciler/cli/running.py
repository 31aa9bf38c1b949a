"""Runs the command line. What went wrong is dealt with by `exits`, imported only then."""

from __future__ import annotations

import sys

import click


def run(command: click.Command, args: list[str]) -> int:
    """Run a click command and return the exit code of CLI.md 3; nothing is raised."""
    try:
        code = command.main(args, prog_name="reconciler", standalone_mode=False)
        sys.stdout.flush()
    except click.exceptions.Exit as error:
        return error.exit_code
    except (Exception, KeyboardInterrupt) as error:
        from reconciler.cli.exits import of_exception

        return of_exception(error)
    return int(code or 0)
