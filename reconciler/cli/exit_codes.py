"""Errors to text and exit code; the codes are those of `errors`."""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path

import click

from reconciler.cli.entrypoint import number_of_signal
from reconciler.cli.terminal.console import console
from reconciler.errors import Diagnostic, ExitCode, ReconcilerError
from reconciler.files import write_file
from reconciler.text import printable_lines
from reconciler.version import __version__

#: The signals that end a run in order; not every system has each.
SIGNALS: dict[int, ExitCode] = {
    number: code
    for name, code in (
        ("SIGHUP", ExitCode.HUNG_UP),
        ("SIGINT", ExitCode.INTERRUPTED),
        ("SIGTERM", ExitCode.TERMINATED),
    )
    if (number := getattr(signal, name, None)) is not None
}
_SIGNAL_WORDS = {
    ExitCode.HUNG_UP: "hung up",
    ExitCode.INTERRUPTED: "interrupted",
    ExitCode.TERMINATED: "terminated",
}


def of_exception(error: BaseException) -> ExitCode:
    """Show what ended a run, and return its code; never a traceback."""
    if (number := number_of_signal(error)) is not None:
        return _of_signal(SIGNALS[number])
    match error:
        case click.Abort():
            return _of_signal(ExitCode.INTERRUPTED)
        case click.ClickException():
            _show_usage(error)
            return ExitCode.WRONG_USAGE
        case ReconcilerError():
            console.diagnostics(error.diagnostics)
            return ExitCode(error.exit_code)
        case BrokenPipeError():
            # The reader has gone (`| head`); nobody is left to be told.
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            return ExitCode.DONE
        case OSError():
            what = error.strerror or type(error).__name__
            console.diagnostics([Diagnostic(what, path=str(error.filename or ""))])
            return ExitCode.FAILED
        case EOFError():
            console.diagnostics([Diagnostic("not confirmed", "the input ended")])
            return ExitCode.REFUSED
    return report_fault(error)


def _of_signal(code: ExitCode) -> ExitCode:
    # A terminal shows ^C where the line was.
    is_on_its_own_line = console.log_format == "json" or code is not ExitCode.INTERRUPTED
    console.say(_SIGNAL_WORDS[code] if is_on_its_own_line else f"\n{_SIGNAL_WORDS[code]}")
    return code


def _show_usage(error: click.ClickException) -> None:
    context = getattr(error, "ctx", None)
    if console.log_format == "json":
        fix = f"{context.command_path} --help" if context is not None else None
        console.diagnostics([Diagnostic(error.format_message(), fix=fix)])
        return
    if context is not None:
        console.say(context.get_usage())
        console.say(f"Try '{context.command_path} --help' for help.\n")
    console.say(f"error: {printable_lines(error.format_message())}")


def report_fault(error: BaseException) -> ExitCode:
    """Write a report, without secrets, and say where it is."""
    import traceback

    report_traceback("".join(traceback.format_exception(error)), type(error).__name__)
    return ExitCode.INTERNAL_ERROR


def report_traceback(text: str, why: str) -> None:
    """The same for an error that came as the text of its traceback."""
    file = _write_report(f"reconciler {__version__}, Python {sys.version}\n\n{console.clean(text)}")
    if file is None:
        fix = "please report it; the report could not be written: run again with a TMPDIR that has free space"
    else:
        fix = f"please report it with the file {file} (it contains no secrets)"
    console.diagnostics([Diagnostic("internal error", why, fix)])


def _write_report(text: str) -> Path | None:
    """Write a report that only its owner may read; None if that cannot be done."""
    import tempfile

    try:
        file = Path(tempfile.gettempdir(), f"reconciler-report-{os.urandom(8).hex()}.txt")
        write_file(file, text.encode("utf-8", "backslashreplace"), 0o600)
    except OSError:
        return None
    return file
