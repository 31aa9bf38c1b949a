"""Plans, drift reports and results as one HTML page that loads nothing.

The template, the style and the script are the files in `page/`. jinja2 escapes every text; beyond that the
page allows no script and no style but these two, by their hashes.
"""

from __future__ import annotations

import hashlib
from base64 import b64encode
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

from jinja2 import Environment, StrictUndefined, Template

from reconciler.render import Content
from reconciler.render.sheet import NONE, sheet_of
from reconciler.render.style import View

_FILES = Path(__file__).parent / "page"


def render(content: Content, value: Any, view: View) -> str:
    """A page with a row per job; changes unfold."""
    sheet = sheet_of(content, value, view)
    rows = sorted(sheet.rows, key=lambda row: row.rank)
    return page("page", sheet=sheet, rows=rows, none_word=NONE)


def page(name: str, **values: Any) -> str:
    """The page that a template of `page/` makes, with the style and the script of that name."""
    style = Inline.of(*dict.fromkeys(("page.css", f"{name}.css")))
    script = Inline.of(f"{name}.js")
    made = _template(f"{name}.html").render(
        **values, style=style.text, style_hash=style.csp, script=script.text, script_hash=script.csp
    )
    return f"{made}\n"


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
def _template(name: str) -> Template:
    """A template; whatever it is given is escaped."""
    environment = Environment(
        autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    return environment.from_string((_FILES / name).read_text(encoding="utf-8"))
