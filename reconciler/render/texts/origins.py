"""Where the values of a job come from, as a table."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Protocol

from reconciler.core.secret import show
from reconciler.errors import Location
from reconciler.render.layout import table
from reconciler.render.style import PLAIN, Style
from reconciler.render.texts.listing import NOTHING
from reconciler.text import printable


class OriginRow(Protocol):
    """A value of a job, the place of the text that gave it, and that text where it is an expression."""

    @property
    def path(self) -> str:
        """Where the value stands in the job."""

    @property
    def value(self) -> object:
        """The value, a secret included."""

    @property
    def location(self) -> Location | None:
        """File, line and column."""

    @property
    def expression(self) -> str | None:
        """The text as it was written."""

    @property
    def sources(self) -> tuple[tuple[str, str], ...]:
        """The expressions in it, each with what gave it its value."""


def render_origins(origins: Sequence[OriginRow], style: Style = PLAIN) -> str:
    """One line a value, in the order of the file and line that gave it; secrets by their names."""
    rows = [_row(origin, style) for origin in origins]
    return "\n".join(table([("FIELD", "VALUE", "FROM", "WRITTEN AS"), *rows], style)) + "\n" if rows else ""


def _row(origin: OriginRow, style: Style) -> tuple[str, ...]:
    place = origin.location
    where = NOTHING if place is None else printable(f"{place.file}:{place.line}")
    value = json.dumps(show(origin.value), ensure_ascii=False)
    path, value, written = (printable(text) or NOTHING for text in (origin.path, value, _written(origin)))
    return path, value, style.link(where, place), written


def _written(origin: OriginRow) -> str:
    """The text as it was written, with what gave its expressions their values."""
    sources = ", ".join(f"{name}: {source}" for name, source in origin.sources)
    return f"{origin.expression} ({sources})" if sources else origin.expression or ""
