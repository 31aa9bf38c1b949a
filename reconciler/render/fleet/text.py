"""The report of a fleet as text: a line for each stack without changes, and all of the others."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING

from reconciler.errors import Diagnostic
from reconciler.render.layout import fit
from reconciler.render.style import Style, View
from reconciler.render.texts.diagnostics import render_diagnostics
from reconciler.render.texts.groups import KeyList, render_keys
from reconciler.text import printable

if TYPE_CHECKING:
    from reconciler.decide.fleet import FleetReport, StackResult

#: Colours are for the output on a terminal, and the same text may go to a file.
_COLOURS = re.compile(r"\x1b\[[0-9;]*m")
_Alike = tuple[tuple[Diagnostic, ...], int]


def render_fleet(report: FleetReport, view: View) -> str:
    """Each stack in the order of the roots, what failed behind them, and the total in the last line."""
    width = max((len(printable(one.root)) for one in report.results if not one.errors), default=0)
    lines: list[str] = []
    for result in report.results:
        if not result.errors:
            lines += _stack(result, view.style, width)
    failed = [line for group in _alike(report) for line in _failed(group, view.style)]
    lines += [*([""] if lines and lines[-1] and failed else []), *failed]
    lines += [*([""] if lines and lines[-1] else []), printable(report.last_line)]
    return fit("\n".join(lines) + "\n", view.style)


def _stack(result: StackResult, style: Style, width: int) -> Iterator[str]:
    root = printable(result.root)
    if result.is_quiet:
        yield style.paint(f"= {root:<{width}}  {printable(result.last_line)}", "dim")
        return
    yield style.paint(f"{root}:", "bold")
    text = result.parts["text"].rstrip("\n")
    yield from (text if style.colour else _COLOURS.sub("", text)).split("\n")
    yield ""


def _alike(report: FleetReport) -> list[list[StackResult]]:
    """The stacks that failed, those together that failed for the same reason, wherever it stands."""
    groups: dict[_Alike, list[StackResult]] = {}
    for result in report.failed:
        groups.setdefault((result.errors, int(result.exit_code)), []).append(result)
    return list(groups.values())


def _failed(results: list[StackResult], style: Style) -> Iterator[str]:
    first = results[0]
    name = printable(first.root) if len(results) == 1 else f"{len(results)} stacks"
    yield style.paint(f"{name}: failed with exit code {int(first.exit_code)}", "red")
    if len(results) > 1:
        yield from render_keys([one.root for one in results], KeyList(width=style.width))
    yield from render_diagnostics(first.errors, style).rstrip("\n").split("\n")
    yield ""
