"""The format for people: the text of each content, and of a fleet a line or a block for each stack."""

from __future__ import annotations

import re
from collections.abc import Iterator
from importlib import import_module
from typing import TYPE_CHECKING, Any

from reconciler.render import Content
from reconciler.render.layout import fit
from reconciler.render.lines import render_diagnostics, render_keys
from reconciler.render.style import Style, View
from reconciler.text import printable

if TYPE_CHECKING:
    from reconciler.decide.fleet import FleetReport, StackResult
    from reconciler.errors import Diagnostic


def render(content: Content, value: Any, view: View) -> str:
    """The text of a plan, a drift report…; its last line counts."""
    return str(import_module(f"reconciler.render.{content.value}").text(value, view))


def render_fleet(report: FleetReport, view: View) -> str:
    """Each stack in the order of the roots, in a line where it is without changes; then what failed."""
    width = max((len(printable(one.root)) for one in report.results if not one.errors), default=0)
    lines = [line for one in report.results if not one.errors for line in _stack(one, view.style, width)]
    # Stacks that failed for the same reason stand together, wherever they are.
    alike: dict[tuple[tuple[Diagnostic, ...], int], list[StackResult]] = {}
    for one in report.failed:
        alike.setdefault((one.errors, int(one.exit_code)), []).append(one)
    if lines and lines[-1] and alike:
        lines.append("")
    lines += (line for group in alike.values() for line in _failed(group, view.style))
    if lines and lines[-1]:
        lines.append("")
    return fit("\n".join([*lines, printable(report.last_line)]) + "\n", view.style)


def _stack(result: StackResult, style: Style, width: int) -> Iterator[str]:
    root = printable(result.root)
    if result.is_quiet:
        yield style.paint(f"= {root:<{width}}  {printable(result.last_line)}", "dim")
        return
    yield style.paint(f"{root}:", "bold")
    text = result.parts["text"].rstrip("\n")
    # Colours are for the output on a terminal, and the same text may go to a file.
    yield from (text if style.colour else re.sub(r"\x1b\[[0-9;]*m", "", text)).split("\n")
    yield ""


def _failed(results: list[StackResult], style: Style) -> Iterator[str]:
    first = results[0]
    name = printable(first.root) if len(results) == 1 else f"{len(results)} stacks"
    yield style.paint(f"{name}: failed with exit code {int(first.exit_code)}", "red")
    if len(results) > 1:
        yield from render_keys([one.root for one in results], style.width)
    yield from render_diagnostics(first.errors, style).rstrip("\n").split("\n")
    yield ""
