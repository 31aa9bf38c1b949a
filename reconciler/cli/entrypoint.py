"""Runs the command line. What went wrong is dealt with by `exits`, imported only then."""

from __future__ import annotations

import gc
import os
import signal
import sys
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from types import FrameType
from typing import NoReturn

import click

from reconciler.errors import ExitCode, first_of

_SIGNALS = [getattr(signal, name) for name in ("SIGHUP", "SIGINT", "SIGTERM") if hasattr(signal, name)]


class Stopped(BaseException):
    """A signal came; like KeyboardInterrupt it is no error that anybody should catch on the way."""

    def __init__(self, number: int) -> None:
        super().__init__(number)
        self.number = number


def number_of_signal(error: BaseException | None) -> int | None:
    """The signal that an exception came of; in some places Python wraps what is raised."""
    while error is not None:
        if isinstance(error, Stopped):
            return error.number
        if isinstance(error, KeyboardInterrupt):
            return signal.SIGINT
        error = error.__cause__ or error.__context__
    return None


def main(command: click.Group) -> NoReturn:
    """Run the command line of this process.

    Signals end it at once while nothing has been begun, and once all is done (`__main__`); in between they
    are raised, so that it ends in order.
    """
    # A run is short and keeps what it reads: a collection would find nothing, and cost a tenth of it.
    gc.disable()
    # Looking for plugins of pydantic reads the metadata of every installed package.
    os.environ.setdefault("PYDANTIC_DISABLE_PLUGINS", "__all__")
    # A stream that the caller closed is a stream that nobody reads.
    sys.stdin = sys.stdin or Path(os.devnull).open(encoding="utf-8")  # noqa: SIM115
    if sys.stdout is None:
        from reconciler.cli.terminal.console import console

        sys.stdout = Path(os.devnull).open("w", encoding="utf-8")  # noqa: SIM115
        console.lose_reader()
    sys.stderr = sys.stderr or Path(os.devnull).open("w", encoding="utf-8")  # noqa: SIM115
    if sys.stdout.isatty() or sys.stderr.isatty():
        from reconciler.cli.terminal.signals import restore_on_signals

        restore_on_signals()
    _import_command(command, sys.argv[1:])
    code = _run_in_order(command, sys.argv[1:])
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except (OSError, ValueError):
            # Python would try again at its end, complain, and exit with a code of its own.
            os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())
    # Everything is written and closed; the system frees what was read faster than the interpreter does.
    os._exit(code)


def _import_command(command: click.Group, args: list[str]) -> None:
    """Import what is run, and what tells how it ended: an exception of a signal may be lost in an import."""
    if not _names_a_command(args):
        return
    for name in ("final_outputs", "exit_codes"):
        import_module(f"reconciler.cli.{name}")
    from reconciler.cli.terminal import stray_output

    sys.unraisablehook = stray_output.not_raised
    with suppress(Exception):  # what is wrong with it is told when it is run
        any(command.get_command(click.Context(command), word) for word in args)


def _run_in_order(command: click.Group, args: list[str]) -> int:
    """Run a click command, with the signals raised; one more while it ends cuts that short."""
    handlers = {number: signal.getsignal(number) for number in _SIGNALS}
    handlers = {number: handler for number, handler in handlers.items() if handler is not signal.SIG_IGN}
    try:
        try:
            for number in handlers:
                signal.signal(number, _raise)
            return run(command, args)
        finally:
            for number, handler in handlers.items():
                signal.signal(number, handler)
    except KeyboardInterrupt:
        return ExitCode.INTERRUPTED
    except Stopped as stopped:
        return 128 + stopped.number


def _raise(number: int, frame: FrameType | None) -> None:
    raise KeyboardInterrupt if number == signal.SIGINT else Stopped(number)


def run(command: click.Command, args: list[str]) -> int:
    """Run a click command and return its exit code (docs/cli.md, "Exit codes"); nothing is raised."""
    if not _names_a_command(args):
        return _exit_code(command, args)
    from reconciler.cli.final_outputs import final_outputs

    final_outputs.begin()
    return _with_final_outputs(_exit_code(command, args), args)


def _names_a_command(args: list[str]) -> bool:
    """Whether anything is to be done; the help alone is our own words."""
    return any(not word.startswith("-") for word in args)


def _with_final_outputs(code: int, args: list[str]) -> int:
    """Write what says how the run ended; where that fails the run has failed, too."""
    from reconciler.cli.final_outputs import final_outputs

    if code == ExitCode.WRONG_USAGE and not final_outputs.is_asked_for:
        final_outputs.find(args)
    if not final_outputs.is_asked_for:
        return code
    try:
        final_outputs.finish(code)
    except (Exception, KeyboardInterrupt, Stopped) as error:
        from reconciler.cli.exit_codes import of_exception

        return first_of([ExitCode(code), of_exception(error)])
    return code


def _exit_code(command: click.Command, args: list[str]) -> int:
    try:
        if _names_a_command(args):
            _learn_secrets()
        code = _invoke(command, args)
        with suppress(BrokenPipeError):  # whoever has read enough changes no exit code
            sys.stdout.flush()
    except click.exceptions.Exit as error:
        return error.exit_code
    except (Exception, KeyboardInterrupt, Stopped) as error:
        from reconciler.cli.exit_codes import of_exception

        _learn_secrets()
        if isinstance(error, click.UsageError):
            _heed_log_format(args)
        return of_exception(error)
    return int(code or 0)


def _learn_secrets() -> None:
    """Keep all credentials at hand out of every output, those too that are not used."""
    from reconciler.cli.terminal.console import console
    from reconciler.modelarts.known_secrets import known_secrets

    console.redact.learn(known_secrets(os.environ))


def _invoke(command: click.Command, args: list[str]) -> int | None:
    if "_RECONCILER_COMPLETE" in os.environ:  # the shell asks how a line may go on
        command.main(args, prog_name="reconciler", standalone_mode=False)
    # Not `command.main`: it says things on stderr, and exits, where a reader is gone or Ctrl-C came.
    with command.make_context("reconciler", list(args)) as context:
        code: int | None = command.invoke(context)
        return code


def _heed_log_format(args: list[str]) -> None:
    """Take the form of stderr from a command line that was too wrong to be parsed as far as that."""
    from reconciler.cli.terminal.console import console

    wanted = os.environ.get("RECONCILER_LOG_FORMAT")
    words = args[: args.index("--")] if "--" in args else args
    for word, following in zip(words, [*words[1:], ""], strict=True):
        name, equals, value = word.partition("=")
        if name == "--log-format":
            wanted = value if equals else following
    console.log_format = "json" if wanted == "json" else "text"
