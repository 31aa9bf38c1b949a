"""Where output goes: the result to stdout, everything else to stderr, and no secret to either."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO

from reconciler.core.diagnostic import Diagnostic
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
        """Write a line to stderr."""
        print(_encodable(self.redact(text), sys.stderr), file=sys.stderr, flush=True)  # noqa: T201

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
        sys.stderr.write(_encodable(self._json(line, None), sys.stderr))

    def write_file(self, path: Path, text: str, *, is_redacted: bool = False) -> None:
        """Write a result to a file: under a temporary name, then renamed."""
        temporary = path.with_name(f".{path.name}.{os.getpid()}")
        temporary.write_text(text if is_redacted else self.redact(text), encoding="utf-8")
        temporary.replace(path)


def _encodable(text: str, stream: TextIO) -> str:
    encoding = stream.encoding or "utf-8"
    return text.encode(encoding, "backslashreplace").decode(encoding)


console = Console()
