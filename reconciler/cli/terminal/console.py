"""Where output goes: the result to stdout, everything else to stderr, and no secret to either."""

from __future__ import annotations

import errno
import os
import select
import stat
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO

from reconciler.errors import Diagnostic, WrongUsage
from reconciler.files import NotRegular, write_file
from reconciler.secrets import Redactor
from reconciler.text import printable, visible

if TYPE_CHECKING:
    from reconciler.render.style import Style


class Console:
    """One for the whole process: what is written passes the redactor first."""

    def __init__(self) -> None:
        self.redact = Redactor()
        self.colour = "auto"
        self.log_format = "text"
        self.verbosity = 0
        #: Takes what would go to stderr while something is drawn there.
        self.divert: Callable[[str], object] | None = None
        self._unread: TextIO | None = None
        self._link_id = ""
        #: Whether a long text may be shown by a pager.
        self.may_page = True
        self._page: list[str] | None = None
        self._show_page: Callable[[str], bool] = lambda _: False

    @property
    def has_no_reader(self) -> bool:
        """Whether nobody reads stdout: its reader has gone (`| head`), or the caller had closed it."""
        return self._unread is sys.stdout

    def style(self, stream: TextIO) -> Style:
        """The style for a stream: colours on a terminal, or if asked for; a width and links on one only."""
        from reconciler.render.style import Style

        is_terminal = stream.isatty()
        is_coloured = self.colour == "always" if self.colour != "auto" else _may_be_coloured(is_terminal)
        if not is_terminal:
            return Style(is_coloured)
        from reconciler.cli.terminal import links, screen

        style = Style(is_coloured, width=screen.columns(stream))
        if not is_coloured or not links.are_shown(os.environ):
            return style
        self._link_id = self._link_id or links.new_id()
        return style._replace(url_of=links.url_of, link_id=self._link_id)

    def clean(self, text: str, *, is_redacted: bool = False) -> str:
        """What of a text may be written, to whatever place: no secret, and nothing that is not seen.

        `is_redacted`: secrets were taken out value by value already.
        """
        return visible(text if is_redacted else self.redact(text), self._link_id)

    def encoded(self, text: str, *, is_redacted: bool = False) -> bytes:
        """What of a text may be written to a file."""
        return self.clean(text, is_redacted=is_redacted).encode("utf-8", "backslashreplace")

    def result(self, text: str, *, is_redacted: bool = False) -> None:
        """Write to stdout. `is_redacted`: secrets were taken out value by value already.

        A reader that has gone changes nothing of what is done, nor the exit code.

        Raises:
            OSError: stdout cannot be written for another reason: a full disk, say.
        """
        if self.has_no_reader:
            return
        text = self.clean(text, is_redacted=is_redacted)
        if self._page is None:
            self._write(text)
        else:
            self._page.append(text)

    def _write(self, text: str) -> None:
        try:
            sys.stdout.write(_encodable(text, sys.stdout))
            sys.stdout.flush()
        except OSError as error:
            if not _says_that_nobody_reads(error, sys.stdout):
                raise
            self.lose_reader()

    @contextmanager
    def collected(self, show: Callable[[str], bool]) -> Iterator[None]:
        """Keep what is written to stdout until the block ends, or something is written to stderr.

        Then `show` is given it; what it did not show is written.
        """
        self._page, self._show_page = [], show
        try:
            yield
            self._turn_page()
        finally:
            page, self._page = self._page, None
            if page:
                self._write("".join(page))

    def _turn_page(self) -> None:
        """Show what was kept: what comes now is about it."""
        page, self._page = self._page, None
        if page is None:
            return
        try:
            if page and not self._show_page(text := "".join(page)):
                self._write(text)
        finally:
            self._page = []

    def lose_reader(self) -> None:
        """Nobody reads stdout any more: what is left of it, and all that follows, goes nowhere."""
        self._unread = sys.stdout
        with suppress(OSError, ValueError):
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())

    def document(self, value: Any, *, indent: int | None = 2) -> None:
        """Write plain data to stdout as JSON."""
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
        if self._page:
            self._turn_page()
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
        """Write problems to stderr."""
        if self.log_format == "json":
            for diagnostic in diagnostics:
                self.tell(self._json(_log_line(diagnostic), None))
            return
        from reconciler.render.lines import render_diagnostics

        style = self.style(sys.stderr)
        self.say(render_diagnostics(diagnostics, style, verbose=self.verbosity > 0).rstrip("\n"))

    def write_file(
        self, path: Path, text: str, *, is_redacted: bool = False, mode: int | None = None
    ) -> None:
        """Write a result to a file, whole or not at all; see `reconciler.files.write_file`.

        Raises:
            WrongUsage: a directory, a device, a pipe or a socket stands there.
            OSError: it cannot be written.
        """
        data = self.encoded(text, is_redacted=is_redacted)
        try:
            write_file(path, data, mode)
        except BrokenPipeError:
            # The reader of /dev/stdout, say, has gone: that changes nothing of what is done.
            return
        except NotRegular as found:
            why = f"{found.filename} is {found.strerror}"
            raise WrongUsage(
                Diagnostic("not a regular file", why, "use a regular file, or a new one")
            ) from None


def _may_be_coloured(is_terminal: bool) -> bool:
    return is_terminal and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"


def _log_line(diagnostic: Diagnostic) -> dict[str, object]:
    place = diagnostic.location
    return {
        "level": diagnostic.severity.value,
        "message": diagnostic.what,
        "why": diagnostic.why,
        "fix": diagnostic.fix,
        "path": diagnostic.path,
        "location": None if place is None else str(place),
    }


def _says_that_nobody_reads(error: OSError, stream: TextIO) -> bool:
    """Whether the other end of a pipe is closed, or the terminal was hung up."""
    if isinstance(error, BrokenPipeError):
        return True
    try:
        is_device = stat.S_ISCHR(os.fstat(stream.fileno()).st_mode)
    except (OSError, ValueError):
        return False
    return is_device and error.errno == errno.EIO


def has_reader(stream: TextIO) -> bool:
    """Whether somebody may read a stream: not where the other end of a pipe or terminal is closed.

    Writing would not tell: what asks a question ignores that nobody could see it.
    """
    try:
        poll = select.poll()
        poll.register(stream.fileno(), 0)
    except (OSError, ValueError):  # it is no file of the system
        return True
    return not poll.poll(0)


def _encodable(text: str, stream: TextIO) -> str:
    encoding = stream.encoding or "utf-8"
    return text.encode(encoding, "backslashreplace").decode(encoding)


console = Console()
