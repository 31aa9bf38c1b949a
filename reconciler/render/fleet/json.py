"""The report of a fleet as JSON for programs.

The documents of the stacks come as text, from whoever checked them: here one would be written after the
other, however many workers there are.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from reconciler.render.json import dump
from reconciler.render.style import View

if TYPE_CHECKING:
    from reconciler.decide.fleet import FleetReport


def render_fleet(report: FleetReport, view: View) -> str:
    """The document of docs/fleets.md; those of the stacks hold no secret."""
    document = report.document()
    parts = [result.parts.get("json") for result in report.results]
    entries = [_entry(*pair) for pair in zip(document["stacks"], parts, strict=True)]
    before, after = dump({**document, "stacks": []}).split('"stacks": []', 1)
    stacks = ",".join(_indented(f"\n{entry}", 4) for entry in entries)
    return f'{before}"stacks": [{stacks}\n  ]{after}\n'


def _entry(entry: dict[str, Any], part: str | None) -> str:
    """One stack; the text of its document stands in the place of the null at the end."""
    text = dump(entry)
    return text if part is None else text.removesuffix("null\n}") + _indented(part.rstrip("\n"), 2) + "\n}"


def _indented(text: str, by: int) -> str:
    """Text with its lines further to the right; in JSON a line never ends within a string."""
    return text.replace("\n", "\n" + by * " ")
