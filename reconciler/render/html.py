"""Plans, drift reports and results as a self-contained HTML page.

Templates, style and script are in `page/`. jinja2 escapes every text, and a content security policy allows
only this style and script, by their hashes.
"""

from __future__ import annotations

import hashlib
from base64 import b64encode
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined

from reconciler.render import Content, View
from reconciler.render.sheet import NONE, sheet_of
from reconciler.text import format_count, printable

if TYPE_CHECKING:
    from reconciler.decide.fleet import FleetReport

_FILES = Path(__file__).parent / "page"


def render(content: Content, value: Any, view: View) -> str:
    """Render a page with a row per job and expandable changes."""
    sheet, part = sheet_of(content, value, view), _part()
    return _page(f"{sheet.title} {sheet.name}", part.head(sheet, 1), part.jobs(sheet), sheet.version)


def render_part(content: Content, value: Any, view: View) -> str:
    """Render a part of a page, without style and script."""
    sheet, part = sheet_of(content, value, view), _part()
    return str(part.head(sheet) + part.jobs(sheet))


def render_fleet(report: FleetReport, view: View) -> str:
    """Render one page for all stacks, with one filter."""
    part = _part()
    title = f"{report.command.capitalize()} of {format_count(len(report.results), 'stack')}"
    head, body = part.title(title, printable(report.last_line), 1), part.fleet(report)
    return _page(title, head, body, report.version, "timeline" if report.command == "history" else "")


def _part() -> Any:
    """The macros of `page/part.html`, with autoescaping."""
    return _environment().get_template("part.html").module


def _page(title: str, head: str, body: str, version: str, style: str = "") -> str:
    values = {"title": title, "head": head, "body": body, "version": version}
    return page("page", style, **values, script=_read("page.js"))


def page(name: str, style: str = "", **values: Any) -> str:
    """Render a page from a template and a style in `page/`."""
    style = "".join(map(_read, dict.fromkeys(("page.css", f"{style or name}.css"))))
    return fragment(name, **values, style=style) + "\n"


def fragment(name: str, **values: Any) -> str:
    """Render a template of `page/`, with autoescaping."""
    return _environment().get_template(f"{name}.html").render(**values)


@cache
def _environment() -> Environment:
    environment = Environment(
        loader=FileSystemLoader(_FILES),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters["hash"] = lambda text: b64encode(hashlib.sha256(text.encode()).digest()).decode()
    environment.filters["printable"] = printable
    environment.globals["none_word"] = NONE
    return environment


def _read(file: str) -> str:
    return (_FILES / file).read_text(encoding="utf-8")
