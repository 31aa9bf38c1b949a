"""Problems as text for people: what, where, the line, why, and how to fix it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from reconciler.errors import Diagnostic, Severity, Snippet
from reconciler.render.layout import cell_len, fit_line
from reconciler.render.style import PLAIN, Style
from reconciler.render.texts.groups import printable_line
from reconciler.text import printable

#: Where what goes on below a line begins: behind `why: `.
_HANGING = 7


#: So many problems are shown to a person at a terminal, who can ask for all of them.
_MOST_SHOWN = 20


def render_diagnostics(
    diagnostics: Iterable[Diagnostic], style: Style = PLAIN, *, verbose: bool = False
) -> str:
    """Show problems: what, where, the line, why, and how to fix it. A terminal gets the first ones."""
    found = list(diagnostics)
    most = len(found) if verbose or style.width is None else _MOST_SHOWN
    lines = [line for one in found[:most] for line in _diagnostic(one, style)]
    if (more := len(found) - most) > 0:
        lines.append(f"{more:,} more; -v shows all")
    return "\n".join(lines) + "\n"


def _diagnostic(diagnostic: Diagnostic, style: Style) -> Iterator[str]:
    is_error = diagnostic.severity is Severity.ERROR
    word = style.paint(diagnostic.severity.value, "red" if is_error else "yellow")
    place = diagnostic.location
    where = [] if place is None else [style.link(printable(str(place)), place)]
    where += [printable(diagnostic.path)] if diagnostic.path else []
    yield from fit_line(printable_line(f"{word}: ", diagnostic.what), style)
    if where:
        yield from fit_line(f"  --> {'  '.join(where)}", style, hanging=_HANGING)
    if place is not None and diagnostic.snippet is not None:
        yield from _snippet(str(place.line), diagnostic.snippet, style)
    if diagnostic.why:
        yield from fit_line(printable(f"  why: {diagnostic.why}"), style, hanging=_HANGING)
    if diagnostic.fix:
        yield from fit_line(printable(f"  fix: {diagnostic.fix}"), style, hanging=_HANGING)


def _snippet(number: str, snippet: Snippet, style: Style) -> Iterator[str]:
    """The line, as much of it as there is room for, with marks below what is meant."""
    if style.width is not None:
        snippet = _narrowed(snippet, style.width - len(number) - 3)
    before, meant = snippet.text[: snippet.start], snippet.text[snippet.start :][: snippet.length]
    marks = " " * cell_len(before) + "^" * max(1, cell_len(meant))
    yield f"{' ' * len(number)} |"
    yield f"{number} | {printable(snippet.text)}"
    yield f"{' ' * len(number)} | {marks}"


def _narrowed(snippet: Snippet, width: int) -> Snippet:
    """The part of a line around what is meant that takes so many cells; what is left out shows as `…`."""
    text, start, length = snippet.text, snippet.start, snippet.length
    if cell_len(text) <= width:
        return snippet
    begin = start
    while begin > 0 and cell_len(text[begin - 1 : start]) < width // 3:
        begin -= 1
    end = start
    while end < len(text) and cell_len(text[begin : end + 1]) <= width - 2:
        end += 1
    head, tail = "…" * (begin > 0), "…" * (end < len(text))
    at = len(head) + start - begin
    return Snippet(head + text[begin:end] + tail, at, max(1, min(length, end - start)))
