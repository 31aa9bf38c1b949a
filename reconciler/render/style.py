"""The words and colours of texts for people. Every action reads without colour, too."""

from __future__ import annotations

import posixpath
from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

if TYPE_CHECKING:
    from reconciler.core.values import Source
    from reconciler.decide.metrics import RunReport
    from reconciler.decide.plan import Plan
    from reconciler.errors import Location

_CODES = {"green": "32", "yellow": "33", "red": "31", "blue": "34", "magenta": "35", "dim": "2", "bold": "1"}


#: A line of a file.
Place: TypeAlias = "Location | Source"


class Style(NamedTuple):
    """What a text may use: colours, a width in columns (None: as many as it needs), and links.

    `url_of` finds the address of a place, if it has one; `link_id` tells links of ours from those that text
    from outside may hold.
    """

    colour: bool = False
    width: int | None = None
    url_of: Callable[[Place], str | None] | None = None
    link_id: str = ""

    def paint(self, text: str, colour: str) -> str:
        """Colour a text."""
        return f"\x1b[{_CODES[colour]}m{text}\x1b[0m" if self.colour else text

    def link(self, text: str, place: Place | None) -> str:
        """Make a text a link to a place of a file, where the terminal has links."""
        url = self.url_of(place) if self.url_of is not None and place is not None else None
        return text if url is None else f"\x1b]8;id={self.link_id};{url}\x1b\\{text}\x1b]8;;\x1b\\"


PLAIN = Style()


class View(NamedTuple):
    """How a value is to be shown. `redact` takes every known secret out of one text.

    `verbose` shows whole bodies, and each key by itself. `at_s` is the time, in seconds since 1970, up to
    which what goes on has lasted. `digest` is that of a saved plan, and `plan` the one that a result is of.
    `directory` is where in its repository the current directory is, and `run` how the run went, once it has
    ended.
    """

    style: Style = PLAIN
    show_keep: bool = False
    redact: Callable[[str], str] = str
    verbose: bool = False
    at_s: float = 0.0
    digest: str = ""
    plan: Plan | None = None
    directory: str = ""
    run: RunReport | None = None

    def in_repository(self, file: str) -> str:
        """The name of a file as the repository has it."""
        return posixpath.normpath(posixpath.join(self.directory, file))
