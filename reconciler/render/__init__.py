"""Output: a content (a plan, a drift report…) in a format.

Each format is a module, with `render` for one content and `render_fleet` for a fleet, imported on demand. A
module imports only modules listed before it::

    text plan reports history                         the text format
    sheet                                             the common value behind the other formats
    json markdown html github junit sarif prometheus  one format each
    commands timeline                                 the output of single commands
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

#: A line in a file.
Place: TypeAlias = "Location | Source"


class Style(NamedTuple):
    """Whether a text may use colours, and its width in columns (None: unlimited).

    `redact` redacts a text before it is wrapped.
    """

    colour: bool = False
    width: int | None = None
    redact: Callable[[str], str] = str

    def paint(self, text: str, colour: str) -> str:
        return f"\x1b[{_CODES[colour]}m{text}\x1b[0m" if self.colour else text


PLAIN = Style()


class View(NamedTuple):
    """The options of an output. `redact` redacts one text.

    `verbose` shows whole request bodies, and each key by itself. `at_s` is the current time, in seconds since
    1970. `digest` is that of a saved plan, `plan` the plan of a result. `directory` is the current directory
    relative to its repository, and `run` the report of a run that has ended.
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
        """Return the path of a file relative to the repository."""
        return posixpath.normpath(posixpath.join(self.directory, file))


class Content(StrEnum):
    """What can be rendered. A saved plan is rendered as a plan, and a fleet by `render_fleet`."""

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
    """An output format: the module of that name has `render(content, value, view)`.

    `redacts` formats redact each value, because replacing secrets in the finished text would break it. A file
    of an `is_whole` format holds one value, so the result of an apply replaces its plan; with other formats
    it holds both. `is_final` formats are written when the run has ended, even if it failed; their modules
    also have `render_run`.
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
    """Return the names of the formats that can render a content."""
    return [name for name, format_ in FORMATS.items() if content in format_.renders]


def render(content: Content, value: Any, format_: str, view: View) -> str:
    """Render a content in one of its formats."""
    module = import_module(f"{__name__}.{format_}")
    if content is Content.FLEET:
        return str(module.render_fleet(value, view))
    return str(module.render(content, value, view))


def render_part(content: Content, value: Any, format_: str, view: View) -> str:
    """Render the part of a stack in the report of a fleet."""
    module = import_module(f"{__name__}.{format_}")
    return str(getattr(module, "render_part", module.render)(content, value, view))


def render_run(format_: str, view: View) -> str:
    """Render `view.run`, the report of a run without other output."""
    return str(import_module(f"{__name__}.{format_}").render_run(view))


def step_outputs(content: Content, value: Any, view: View, *, is_result: bool = False) -> str:
    """Render the outputs of a GitHub workflow step, as lines for GITHUB_OUTPUT."""
    return str(import_module(f"{__name__}.github").outputs_of(content, value, view, is_result=is_result))
