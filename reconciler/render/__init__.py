"""What was decided, shown: a content (a plan, a drift report…) in an output format.

A file is a content, with its text and its sheet; or a format, which says how a sheet looks, and how a fleet
of stacks does. Each is imported when it is asked for. A file imports only files that stand before it::

    style layout groups lines sheet                        what all of them use
    plan result drift review cases validation history      a content each
    json text markdown html github junit sarif prometheus  a format each
    explain commands timeline                              what single commands show
"""

from __future__ import annotations

from enum import StrEnum
from importlib import import_module
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from reconciler.render.style import View


class Content(StrEnum):
    """What is shown. The file of that name in this room has its `text` and its `sheet`.

    A saved plan is shown as the plan that it is. The report of a fleet is made of what a format says of each
    stack, by `render_fleet` of the format's file.
    """

    PLAN = "plan"
    DRIFT = "drift"
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
    "markdown": Format(_EVERY - {Content.CASES}, redacts=True, is_whole=True),
    "html": Format(_EVERY - {Content.CASES, Content.FLEET}, redacts=True, is_whole=True),
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


def render_run(format_: str, view: View) -> str:
    """Show how a run went, `view.run`, that had nothing else to show."""
    return str(import_module(f"{__name__}.{format_}").render_run(view))


def step_outputs(content: Content, value: Any, view: View) -> str:
    """The outputs of a step of a GitHub workflow, a line each, as GITHUB_OUTPUT takes them."""
    return str(import_module(f"{__name__}.github").outputs_of(content, value, view))
