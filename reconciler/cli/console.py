"""Where output goes: the result to stdout, all else to stderr, no secret to either; and prompts."""

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

#: Narrower ones are treated as this wide: the terminal breaks the lines then.
LEAST_COLUMNS = 20
#: So wide is a terminal of which nobody knows how wide it is: nothing is left out there.
WIDEST = 10_000


def _columns_of(stream: TextIO) -> int:
    """How wide COLUMNS says that a terminal is, or the terminal itself."""
    given = os.environ.get("COLUMNS", "")
    columns = int(given) if given.isascii() and given.isdecimal() and len(given) < 6 else 0
    if not columns:
        with suppress(OSError, ValueError, AttributeError):
            columns = os.get_terminal_size(stream.fileno()).columns
    return max(LEAST_COLUMNS, columns) if columns else WIDEST


class Console:
    """One for the whole process: what is written passes the redactor first."""

    def __init__(self) -> None:
        self.colour = "auto"
        self.log_format = "text"
        self.verbosity = 0
        #: Takes what would go to stderr while something is drawn there.
        self.divert: Callable[[str], object] | None = None
        self._unread: TextIO | None = None

    @cached_property
    def redact(self) -> Redactor:
        """Takes every secret that was learnt out of a text. The help has none."""
        from reconciler.secrets import Redactor

        return Redactor()

    @property
    def has_no_reader(self) -> bool:
        """Whether nobody reads stdout: its reader has gone (`| head`), or the caller had closed it."""
        return self._unread is sys.stdout

    def style(self, stream: TextIO) -> Style:
        """The style for a stream: colours on a terminal, or if asked for; a width on one only."""
        is_terminal = stream.isatty()
        may_be = is_terminal and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"
        is_coloured = may_be if self.colour == "auto" else self.colour == "always"
        return Style(is_coloured, _columns_of(stream) if is_terminal else None, self.redact)

    def clean(self, text: str, *, is_redacted: bool = False) -> str:
        """What of a text may be written, to whatever place: no secret, and nothing that is not seen.

        `is_redacted`: secrets were taken out value by value already.
        """
        return visible(text if is_redacted else self.redact(text))

    def encoded(self, text: str, *, is_redacted: bool = False) -> bytes:
        return self.clean(text, is_redacted=is_redacted).encode("utf-8", "backslashreplace")

    def result(self, text: str, *, is_redacted: bool = False) -> None:
        """Write to stdout. `is_redacted`: secrets were taken out value by value already.

        A reader that has gone changes nothing of what is done, nor the exit code.

        Raises:
            OSError: stdout cannot be written for another reason: a full disk, say.
        """
        if self.has_no_reader:
            return
        text = _encodable(self.clean(text, is_redacted=is_redacted), sys.stdout)
        try:
            sys.stdout.write(text)
            sys.stdout.flush()
        except OSError as error:
            # The other end of the pipe is closed, or the terminal was hung up.
            is_device = False
            with suppress(OSError, ValueError):
                is_device = stat.S_ISCHR(os.fstat(sys.stdout.fileno()).st_mode)
            if not (isinstance(error, BrokenPipeError) or (is_device and error.errno == errno.EIO)):
                raise
            self.lose_reader()

    def lose_reader(self) -> None:
        """Nobody reads stdout any more: what is left of it, and all that follows, goes nowhere."""
        self._unread = sys.stdout
        with suppress(OSError, ValueError):
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())

    def document(self, value: Any, *, indent: int | None = 2) -> None:
        self.result(self._json(value, indent), is_redacted=True)

    def _json(self, value: Any, indent: int | None) -> str:
        from reconciler.render.json import dump, redacted

        return dump(redacted(value, self.redact), indent=indent) + "\n"

    def say(self, text: str, level: str = "info") -> None:
        """Write a line to stderr. Nobody reading it is no reason to stop."""
        self.tell(self._line(text, level))

    def line(self, text: str) -> bytes:
        """A line as `say` would write it."""
        return self._line(text, "info").encode(sys.stderr.encoding or "utf-8", "backslashreplace")

    def _line(self, text: str, level: str) -> str:
        if self.log_format == "json":
            return self._json({"level": level, "message": text}, None)
        return self.clean(text) + "\n"

    def tell(self, text: str) -> None:
        """Write text to stderr as it is; it holds no secret."""
        if self.divert is not None:
            self.divert(text)
            return
        # RuntimeError: a signal came while a line was being written, and its handler writes one, too.
        with suppress(OSError, ValueError, RuntimeError):
            sys.stderr.write(_encodable(text, sys.stderr))
            sys.stderr.flush()

    def detail(self, text: str, level: int = 1) -> None:
        """Write a line to stderr if `-v` (1) or `-vv` (2) asks for it."""
        if self.verbosity >= level:
            text = self.redact(text)
            self.say(text if self.log_format == "json" else f"debug: {printable(text)}", "debug")

    def diagnostics(self, diagnostics: Iterable[Diagnostic]) -> None:
        if self.log_format == "json":
            for one in diagnostics:
                place = None if one.location is None else str(one.location)
                words = {"level": one.severity.value, "message": one.what, "why": one.why, "fix": one.fix}
                self.tell(self._json({**words, "path": one.path, "location": place}, None))
            return
        from reconciler.render.text import render_diagnostics

        style = self.style(sys.stderr)
        self.say(render_diagnostics(diagnostics, style, verbose=self.verbosity > 0).rstrip("\n"))

    def write_file(self, path: Path, text: str, *, is_redacted: bool = False) -> None:
        """Write a result to a file, whole or not at all; see `reconciler.files.write_file`.

        Raises:
            WrongUsage: a directory, a device, a pipe or a socket stands there.
            OSError: it cannot be written.
        """
        try:
            # The reader of /dev/stdout, say, may have gone: that changes nothing of what is done.
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
    """Ask on the terminal.

    Raises:
        Refused: the answer is no, or none (Ctrl-D), there is no terminal, or nobody can see the question.
    """
    if not has_terminal():
        raise Refused(Diagnostic("not confirmed", "no terminal to ask for confirmation", "add --yes"))
    why, fix = "nothing was changed", None
    try:
        # Said by us: what click hands to `input` may fail to be shown, and nobody would know.
        click.echo(f"{console.clean(question)} [y/N]: ", nl=False, err=True)
        if click.confirm("", prompt_suffix="", show_default=False, err=True):
            return
    except click.Abort as abort:
        if not isinstance(abort.__context__, EOFError):
            raise
        console.tell("\n")
    except OSError:
        why, fix = f"the prompt could not be shown; {why}", "keep stderr open, or add --yes"
    raise Refused(Diagnostic("not confirmed", why, fix))
