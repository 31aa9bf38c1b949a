"""The registry of output formats: value in, text out. A new format is a module of this package and its row.

The command line and the Python API ask the registry which formats there are for a value, and have it render.
"""

from __future__ import annotations

from enum import StrEnum
from importlib import import_module
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from reconciler.render.style import View


class Content(StrEnum):
    """What is rendered; a module renders it by `render_plan(plan, view)`, and so on.

    A saved plan is rendered as the plan that it is. The report of a fleet is made of what a format says of
    each stack, by a module of the same name in `render/fleet`.
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
    """A format: the module of this package that renders it, imported when it is used, and what it renders.

    `redacts` says that its module takes secrets out value by value: replacing them in the finished
    text would break it. `is_whole` says that a file holds one value: of an apply the result, which takes the
    place of the plan; of other formats it holds both. `is_final` says that it is written when
    the run has ended, also where that failed, and tells how; its module has `render_run`, too.
    """

    module: str
    renders: frozenset[Content]
    redacts: bool = False
    is_whole: bool = False
    is_final: bool = False


_EVERY = frozenset(Content)
_FINDINGS = _EVERY - {Content.CASES, Content.HISTORY}
_OF_JOBS = frozenset({Content.PLAN, Content.DRIFT, Content.RESULT})
FORMATS: dict[str, Format] = {
    "text": Format("text", _EVERY),
    "json": Format("json", _EVERY - {Content.RESULT}, redacts=True),
    "markdown": Format("markdown", _EVERY - {Content.CASES}, redacts=True, is_whole=True),
    "html": Format("html", _EVERY - {Content.CASES, Content.FLEET}, redacts=True, is_whole=True),
    "github": Format("github", _FINDINGS, redacts=True, is_whole=True),
    "junit": Format("junit", _FINDINGS | {Content.CASES}, redacts=True, is_whole=True),
    "sarif": Format("sarif", _FINDINGS, redacts=True, is_whole=True),
    "prometheus": Format(
        "prometheus", _OF_JOBS | {Content.FLEET}, redacts=True, is_whole=True, is_final=True
    ),
}


def formats_of(content: Content) -> list[str]:
    """The names of the formats that can render it, in the order of the table."""
    return [name for name, format_ in FORMATS.items() if content in format_.renders]


def render(content: Content, value: Any, format_: str, view: View) -> str:
    """Show a plan, a drift report or a result in one of its formats."""
    return _called(_module_of(content, format_), f"render_{content}", value, view)


def render_run(format_: str, view: View) -> str:
    """Show how a run went, `view.run`, that had nothing else to show."""
    return str(import_module(f"{__name__}.{FORMATS[format_].module}").render_run(view))


def step_outputs(content: Content, value: Any, view: View) -> str:
    """What the step of a GitHub workflow hands on of it, a line each, as GITHUB_OUTPUT takes them."""
    return _called(_module_of(content, "github"), f"{content}_outputs", value, view)


def _module_of(content: Content, format_: str) -> str:
    module = FORMATS[format_].module
    return f"fleet.{module}" if content is Content.FLEET else module


def _called(module: str, function: str, value: Any, view: View) -> str:
    return str(getattr(import_module(f"{__name__}.{module}"), function)(value, view))
