"""Plans, drift reports and results as one HTML page that loads nothing.

The template, the style and the script are the files in `page/`. jinja2 escapes every text; beyond that the
page allows no script and no style but these two, by their hashes.
"""

from __future__ import annotations

import hashlib
from base64 import b64encode
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from jinja2 import Environment, StrictUndefined, Template

from reconciler.render.sheet import NONE, Sheet, sheet_of_drift, sheet_of_plan
from reconciler.render.sheets.history import sheet_of_history
from reconciler.render.sheets.result import sheet_of_result
from reconciler.render.sheets.review import sheet_of_review
from reconciler.render.sheets.validation import sheet_of_validation
from reconciler.render.style import View

if TYPE_CHECKING:
    from reconciler.decide.drift_report import DriftReport
    from reconciler.decide.history_report import HistoryReport
    from reconciler.decide.outcome import Result
    from reconciler.decide.plan import Plan
    from reconciler.decide.review_report import Review
    from reconciler.decide.validation_report import Validation

_FILES = Path(__file__).parent / "page"


def render_plan(plan: Plan, view: View) -> str:
    """A page with a row per action, what ends work first."""
    return _render(sheet_of_plan(plan, view))


def render_drift(report: DriftReport, view: View) -> str:
    """A page with a row per drift, and per key whose manifest is ahead."""
    return _render(sheet_of_drift(report, view))


def render_result(result: Result, view: View) -> str:
    """A page with a row per action and per wait, what failed first."""
    return _render(sheet_of_result(result, view))


def render_review(review: Review, view: View) -> str:
    """A page with a row per job that differs."""
    return _render(sheet_of_review(review, view))


def render_validation(report: Validation, view: View) -> str:
    """A page with a row per problem and per job that a policy denies."""
    return _render(sheet_of_validation(report, view))


def render_history(report: HistoryReport, view: View) -> str:
    """A page with a row per run and per revision; their actions and phases unfold."""
    return _render(sheet_of_history(report, view))


class Inline(NamedTuple):
    """A style or a script of ours, and the hash by which the page allows it."""

    text: str
    csp: str

    @classmethod
    def of(cls, *names: str) -> Inline:
        """The one that these files of `page/` make, one after the other."""
        text = "".join((_FILES / name).read_text(encoding="utf-8") for name in names)
        digest = b64encode(hashlib.sha256(text.encode()).digest()).decode()
        return cls(text, f"sha256-{digest}")


@cache
def template(name: str) -> Template:
    """A template of `page/`; whatever it is given is escaped."""
    environment = Environment(
        autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    return environment.from_string((_FILES / name).read_text(encoding="utf-8"))


def _render(sheet: Sheet) -> str:
    style, script = Inline.of("page.css"), Inline.of("page.js")
    page = template("page.html").render(
        sheet=sheet,
        rows=sorted(sheet.rows, key=lambda row: row.rank),
        none_word=NONE,
        style=style.text,
        style_hash=style.csp,
        script=script.text,
        script_hash=script.csp,
    )
    return f"{page}\n"
