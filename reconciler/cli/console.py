"""Redacted output, the result to stdout and everything else to stderr; and prompts."""

from __future__ import annotations

import errno
import os
import stat
import sys
from collections.abc import Callable, Iterable
from contextlib import suppress
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO

import click

from reconciler.errors import Diagnostic, Refused, WrongUsage
from reconciler.files import NotRegular, write_file
from reconciler.render import Style
from reconciler.text import printable, visible

if TYPE_CHECKING:
    from reconciler.secrets import Redactor

#: Minimum width; a narrower terminal wraps the lines itself.
LEAST_COLUMNS = 20
#: Width of a terminal that does not report one: nothing is left out.
WIDEST = 10_000


def _columns_of(stream: TextIO) -> int:
    """The width of a terminal, from COLUMNS or the terminal itself."""
    given = os.environ.get("COLUMNS", "")
    columns = int(given) if given.isascii() and given.isdecimal() and len(given) < 6 else 0
    if not columns:
        with suppress(OSError, ValueError, AttributeError):
            columns = os.get_terminal_size(stream.fileno()).columns
    return max(LEAST_COLUMNS, columns) if columns else WIDEST


class Console:
    """The output of the process. Everything that is written is redacted first."""

    def __init__(self) -> None:
        self.colour = "auto"
        self.log_format = "text"
        self.verbosity = 0
        #: Receives lines for stderr while something is drawn there.
        self.divert: Callable[[str], object] | None = None
        self._unread: TextIO | None = None

    @cached_property
    def redact(self) -> Redactor:
        """The redactor of the process, created on first use: `--help` needs none."""
        from reconciler.secrets import Redactor

        return Redactor()

    @property
    def has_no_reader(self) -> bool:
        """Whether stdout is closed: its reader has exited (`| head`), or the caller closed it."""
        return self._unread is sys.stdout

    def style(self, stream: TextIO) -> Style:
        """The style for a stream: colours on a terminal or on request, a width on a terminal only."""
        is_terminal = stream.isatty()
        may_be = is_terminal and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"
        is_coloured = may_be if self.colour == "auto" else self.colour == "always"
        return Style(is_coloured, _columns_of(stream) if is_terminal else None, self.redact)

    def clean(self, text: str, *, is_redacted: bool = False) -> str:
        """Redact a text and escape invisible characters.

        `is_redacted`: its values have been redacted already.
        """
        return visible(text if is_redacted else self.redact(text))

    def encoded(self, text: str, *, is_redacted: bool = False) -> bytes:
        return self.clean(text, is_redacted=is_redacted).encode("utf-8", "backslashreplace")

    def result(self, text: str, *, is_redacted: bool = False) -> None:
        """Write to stdout. `is_redacted`: the values of the text have been redacted already.

        A closed pipe is ignored: it changes neither what is done nor the exit code.

        Raises:
            OSError: stdout cannot be written for another reason, e.g. a full disk.
        """
        if self.has_no_reader:
            return
        text = _encodable(self.clean(text, is_redacted=is_redacted), sys.stdout)
        try:
            sys.stdout.write(text)
            sys.stdout.flush()
        except OSError as error:
            # The pipe is closed, or the terminal hung up.
            is_device = False
            with suppress(OSError, ValueError):
                is_device = stat.S_ISCHR(os.fstat(sys.stdout.fileno()).st_mode)
            if not (isinstance(error, BrokenPipeError) or (is_device and error.errno == errno.EIO)):
                raise
            self.on_broken_pipe()

    def on_broken_pipe(self) -> None:
        """Discard the rest of stdout: its reader has exited."""
        self._unread = sys.stdout
        with suppress(OSError, ValueError):
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())

    def document(self, value: Any, *, indent: int | None = 2) -> None:
        self.result(self._json(value, indent), is_redacted=True)

    def _json(self, value: Any, indent: int | None) -> str:
        from reconciler.render.json import dump, redacted

        return dump(redacted(value, self.redact), indent=indent) + "\n"

    def say(self, text: str, level: str = "info") -> None:
        """Write a line to stderr. A closed stderr is ignored."""
        self.write_stderr(self._line(text, level))

    def line(self, text: str) -> bytes:
        return self._line(text, "info").encode(sys.stderr.encoding or "utf-8", "backslashreplace")

    def _line(self, text: str, level: str) -> str:
        if self.log_format == "json":
            return self._json({"level": level, "message": text}, None)
        return self.clean(text) + "\n"

    def write_stderr(self, text: str) -> None:
        """Write text to stderr unchanged. It must not hold secrets."""
        if self.divert is not None:
            self.divert(text)
            return
        # RuntimeError: a signal handler writes while a line is being written.
        with suppress(OSError, ValueError, RuntimeError):
            sys.stderr.write(_encodable(text, sys.stderr))
            sys.stderr.flush()

    def detail(self, text: str, level: int = 1) -> None:
        """Write a line to stderr with `-v` (level 1) or `-vv` (level 2)."""
        if self.verbosity >= level:
            text = self.redact(text)
            self.say(text if self.log_format == "json" else f"debug: {printable(text)}", "debug")

    def diagnostics(self, diagnostics: Iterable[Diagnostic]) -> None:
        """Write problems to stderr, if there are any."""
        if self.log_format == "json":
            for one in diagnostics:
                place = None if one.location is None else str(one.location)
                words = {"level": one.severity.value, "message": one.what, "why": one.why, "fix": one.fix}
                self.write_stderr(self._json({**words, "path": one.path, "location": place}, None))
            return
        if found := list(diagnostics):
            from reconciler.render.text import render_diagnostics

            style = self.style(sys.stderr)
            self.say(render_diagnostics(found, style, verbose=self.verbosity > 0).rstrip("\n"))

    def write_file(self, path: Path, text: str, *, is_redacted: bool = False) -> None:
        """Write a result to a file atomically; see `reconciler.files.write_file`.

        Raises:
            WrongUsage: the path is a directory, device, pipe or socket.
            OSError: it cannot be written.
        """
        try:
            # The path may be /dev/stdout, whose reader may have exited.
            with suppress(BrokenPipeError):
                write_file(path, self.encoded(text, is_redacted=is_redacted))
        except NotRegular as found:
            why = f"{found.filename} is {found.strerror}"
            fix = "use a regular file, or a new one"
            raise WrongUsage(Diagnostic("not a regular file", why, fix)) from None


def _encodable(text: str, stream: TextIO) -> str:
    encoding = stream.encoding or "utf-8"
    return text.encode(encoding, "backslashreplace").decode(encoding)


console = Console()


def has_terminal() -> bool:
    return sys.stdin is not None and not sys.stdin.closed and sys.stdin.isatty()


def confirm(question: str) -> None:
    """Ask for confirmation on the terminal.

    Raises:
        Refused: the answer is no, there is none (Ctrl-D), or there is no terminal for the question.
    """
    if not has_terminal():
        raise Refused(Diagnostic("not confirmed", "no terminal to ask for confirmation", "add --yes"))
    why, fix = "nothing was changed", None
    try:
        # Printed here, because a failure to print click's own prompt would go unnoticed.
        click.echo(f"{console.clean(question)} [y/N]: ", nl=False, err=True)
        if click.confirm("", prompt_suffix="", show_default=False, err=True):
            return
    except click.Abort as abort:
        if not isinstance(abort.__context__, EOFError):
            raise
        console.write_stderr("\n")
    except OSError:
        why, fix = f"the prompt could not be shown; {why}", "keep stderr open, or add --yes"
    raise Refused(Diagnostic("not confirmed", why, fix))
