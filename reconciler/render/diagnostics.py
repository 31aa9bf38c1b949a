"""Problems as text for people: what, where, the line, why, and how to fix it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from reconciler.core.diagnostic import Diagnostic, Severity
from reconciler.core.text.sanitize import printable
from reconciler.render.groups import printable_line
from reconciler.render.style import PLAIN, Style


def render_diagnostics(diagnostics: Iterable[Diagnostic], style: Style = PLAIN) -> str:
    """Show problems: what, where, the line, why, and how to fix it."""
    return "\n".join("\n".join(_diagnostic(d, style)) for d in diagnostics) + "\n"


def _diagnostic(diagnostic: Diagnostic, style: Style) -> Iterator[str]:
    is_error = diagnostic.severity is Severity.ERROR
    word = style.paint(diagnostic.severity.value, "red" if is_error else "yellow")
    yield printable_line(f"{word}: ", diagnostic.what)
    if diagnostic.location is not None:
        yield printable(f"  --> {diagnostic.location}" + (f"  {diagnostic.path}" if diagnostic.path else ""))
        if diagnostic.snippet is not None:
            number = str(diagnostic.location.line)
            snippet = diagnostic.snippet
            yield f"{' ' * len(number)} |"
            yield f"{number} | {printable(snippet.text)}"
            yield f"{' ' * len(number)} | {' ' * snippet.start}{'^' * snippet.length}"
    elif diagnostic.path:
        yield printable(f"  --> {diagnostic.path}")
    if diagnostic.why:
        yield printable(f"  why: {diagnostic.why}")
    if diagnostic.fix:
        yield printable(f"  fix: {diagnostic.fix}")
