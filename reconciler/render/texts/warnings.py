"""Warnings as text for people."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from reconciler.core.values import PlanWarning
from reconciler.render.style import Style
from reconciler.render.texts.groups import printable_line


def render_warnings(warnings: Iterable[PlanWarning], style: Style) -> Iterator[str]:
    """What a person should know, and how to fix it."""
    for warning in warnings:
        about = f"{warning.key}: " if warning.key else ""
        yield printable_line(style.paint("warning: ", "yellow"), f"{about}{warning.what}: {warning.why}")
        if warning.fix:
            yield printable_line("  fix: ", warning.fix)
