"""Plans, drift reports and results as one HTML page that loads nothing.

The template, the style and the script are the files in `page/`. jinja2 escapes every text; beyond that the
page allows no script and no style but these two, by their hashes.
"""

from __future__ import annotations

import hashlib
from base64 import b64encode
from pathlib import Path
from typing import Any

from jinja2 import Environment, StrictUndefined

from reconciler.render import Content, View
from reconciler.render.sheet import NONE, sheet_of

_FILES = Path(__file__).parent / "page"


def render(content: Content, value: Any, view: View) -> str:
    """A page with a row per job; changes unfold."""
    sheet = sheet_of(content, value, view)
    rows = sorted(sheet.rows, key=lambda row: row.rank)
    return page("page", sheet=sheet, rows=rows, none_word=NONE, script=_read("page.js"))


def page(name: str, **values: Any) -> str:
    """The page that a template of `page/` makes, with the style of that name."""
    environment = Environment(
        autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    environment.filters["hash"] = lambda text: b64encode(hashlib.sha256(text.encode()).digest()).decode()
    style = "".join(map(_read, dict.fromkeys(("page.css", f"{name}.css"))))
    return environment.from_string(_read(f"{name}.html")).render(**values, style=style) + "\n"


def _read(file: str) -> str:
    return (_FILES / file).read_text(encoding="utf-8")
