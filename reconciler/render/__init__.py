"""What was decided, shown: a content (a plan, a drift report…) in an output format.

A file is a format, which says how a sheet looks, and how a fleet of stacks does; or has the texts of
contents. Each is imported when it is asked for. A file imports only files that stand before it::

    text plan reports history                         the format for people, and the contents' texts
    sheet                                             what the other formats are made of
    json markdown html github junit sarif prometheus  a format each
    commands timeline                                 what single commands show
"""

from __future__ import annotations

import posixpath
from collections.abc import Callable
from enum import StrEnum
from importlib import import_module
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

if TYPE_CHECKING:
    from reconciler.core.values import Source
    from reconciler.decide.outcome import RunReport
    from reconciler.decide.plan import Plan
    from reconciler.errors import Location

_CODES = {"green": "32", "yellow": "33", "red": "31", "blue": "34", "magenta": "35", "dim": "2", "bold": "1"}

#: A line of a file.
Place: TypeAlias = "Location | Source"


class Style(NamedTuple):
    """What a text may use: colours, and a width in columns (None: as many as it needs).

    `redact` takes every known secret out of a text that is about to be broken.
    """

    colour: bool = False
    width: int | None = None
    redact: Callable[[str], str] = str

    def paint(self, text: str, colour: str) -> str:
        """Colour a text."""
        return f"\x1b[{_CODES[colour]}m{text}\x1b[0m" if self.colour else text


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


class Content(StrEnum):
    """What is shown: `text` has the file of its text, `sheet` makes its sheet.

    A saved plan is shown as the plan that it is. The report of a fleet is made of what a format says of each
    stack, by `render_fleet` of the format's file.
    """

    PLAN = "plan"
    DRIFT = "drift"
    STATUS = "status"
    RESULT = "result"
    REVIEW = "review"
    CASES = "cases"
    VALIDATION = "validation"
    HISTORY = "history"
    FLEET = "fleet"


class Format(NamedTuple):
    """An output format: the file of its name in this room has `render(content, value, view)`.

    `redacts` says that it takes secrets out value by value: replacing them in the finished text would break
    it. `is_whole` says that a file holds one value: of an apply the result, which takes the place of the
    plan; of other formats it holds both. `is_final` says that it is written when the run has ended, also
    where that failed, and tells how; its file has `render_run`, too.
    """

    renders: frozenset[Content]
    redacts: bool = False
    is_whole: bool = False
    is_final: bool = False


_EVERY = frozenset(Content)
_FINDINGS = _EVERY - {Content.CASES, Content.HISTORY}
_JOBS = frozenset({Content.PLAN, Content.DRIFT, Content.RESULT})
FORMATS: dict[str, Format] = {
    "text": Format(_EVERY),
    "json": Format(_EVERY - {Content.RESULT}, redacts=True),
    "markdown": Format(_FINDINGS, redacts=True, is_whole=True),
    "html": Format(_FINDINGS, redacts=True, is_whole=True),
    "github": Format(_FINDINGS, redacts=True, is_whole=True),
    "junit": Format(_FINDINGS | {Content.CASES}, redacts=True, is_whole=True),
    "sarif": Format(_FINDINGS, redacts=True, is_whole=True),
    "prometheus": Format(_JOBS | {Content.FLEET}, redacts=True, is_whole=True, is_final=True),
}


def formats_of(content: Content) -> list[str]:
    """The names of the formats that can render it, in the order of the table."""
    return [name for name, format_ in FORMATS.items() if content in format_.renders]


def render(content: Content, value: Any, format_: str, view: View) -> str:
    """Show a plan, a drift report or a result in one of its formats."""
    module = import_module(f"{__name__}.{format_}")
    if content is Content.FLEET:
        return str(module.render_fleet(value, view))
    return str(module.render(content, value, view))


def render_part(content: Content, value: Any, format_: str, view: View) -> str:
    """What the report of a fleet has of a stack; of a page, what stands in it."""
    module = import_module(f"{__name__}.{format_}")
    return str(getattr(module, "render_part", module.render)(content, value, view))


def render_run(format_: str, view: View) -> str:
    """Show how a run went, `view.run`, that had nothing else to show."""
    return str(import_module(f"{__name__}.{format_}").render_run(view))


def step_outputs(content: Content, value: Any, view: View) -> str:
    """The outputs of a step of a GitHub workflow, a line each, as GITHUB_OUTPUT takes them."""
    return str(import_module(f"{__name__}.github").outputs_of(content, value, view))
