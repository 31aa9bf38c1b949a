"""Where output goes: the result to stdout, everything else to stderr, and no secret to either."""

from __future__ import annotations

import os
import stat
import sys
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO

from reconciler.core.diagnostic import Diagnostic, WrongUsage
from reconciler.core.secret import Redactor

if TYPE_CHECKING:
    from reconciler.render.style import Style


class Console:
    """One for the whole process: what is written passes the redactor first."""

    def __init__(self) -> None:
        self.redact = Redactor()
        self.colour = "auto"
        self.log_format = "text"
        self.verbosity = 0

    def style(self, stream: TextIO) -> Style:
        """The style for a stream: colours on a terminal only, unless asked for."""
        from reconciler.render.style import Style

        if self.colour == "auto":
            return Style(stream.isatty() and not os.environ.get("NO_COLOR"))
        return Style(self.colour == "always")

    def result(self, text: str, *, is_redacted: bool = False) -> None:
        """Write to stdout. `is_redacted`: secrets were taken out value by value already."""
        sys.stdout.write(_encodable(text if is_redacted else self.redact(text), sys.stdout))
        sys.stdout.flush()

    def document(self, value: Any, *, indent: int | None = 2) -> None:
        """Write plain data to stdout as JSON."""
        self.result(self._json(value, indent), is_redacted=True)

    def _json(self, value: Any, indent: int | None) -> str:
        from reconciler.render.json import dump, redacted

        return dump(redacted(value, self.redact), indent=indent) + "\n"

    def say(self, text: str) -> None:
        """Write a line to stderr. Nobody reading it is no reason to stop."""
        self._tell(self.redact(text) + "\n")

    def _tell(self, text: str) -> None:
        with suppress(OSError, ValueError):
            sys.stderr.write(_encodable(text, sys.stderr))
            sys.stderr.flush()

    def detail(self, text: str, level: int = 1) -> None:
        """Write a line to stderr if `-v` (1) or `-vv` (2) asks for it."""
        if self.verbosity >= level:
            self._log("debug", text)

    def diagnostics(self, diagnostics: Iterable[Diagnostic]) -> None:
        """Write problems to stderr."""
        if self.log_format == "json":
            for diagnostic in diagnostics:
                self._log(diagnostic.severity.value, diagnostic.what, diagnostic)
            return
        from reconciler.render.text import render_diagnostics

        self.say(render_diagnostics(diagnostics, self.style(sys.stderr)).rstrip("\n"))

    def _log(self, level: str, message: str, diagnostic: Diagnostic | None = None) -> None:
        if self.log_format != "json":
            self.say(f"{level}: {message}")
            return
        line: dict[str, object] = {"level": level, "message": message}
        if diagnostic is not None:
            line |= {"why": diagnostic.why, "fix": diagnostic.fix, "path": diagnostic.path}
            place = diagnostic.location
            line["location"] = None if place is None else str(place)
        self._tell(self._json(line, None))

    def write_file(self, path: Path, text: str, *, is_redacted: bool = False) -> None:
        """Write a result to a file: under a temporary name, then renamed; a device is written into."""
        data = (text if is_redacted else self.redact(text)).encode("utf-8", "backslashreplace")
        path = Path(os.path.realpath(path))
        if path.is_dir():
            raise WrongUsage(Diagnostic("not a file", f"{path} is a directory", "name a file behind ="))
        if path.exists() and not path.is_file():
            path.write_bytes(data)
            return
        mode = stat.S_IMODE(path.stat().st_mode) if path.exists() else None
        temporary = path.with_name(f".{path.name}.{os.getpid()}")
        try:
            temporary.write_bytes(data)
            if mode is not None:
                temporary.chmod(mode)
            temporary.replace(path)
        finally:
            temporary.unlink(missing_ok=True)


def _encodable(text: str, stream: TextIO) -> str:
    encoding = stream.encoding or "utf-8"
    return text.encode(encoding, "backslashreplace").decode(encoding)


console = Console()
