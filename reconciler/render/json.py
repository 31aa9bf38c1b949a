"""Plans, drift reports and events as JSON for programs."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from reconciler.core.plan import Plan
from reconciler.core.printable import COMMAND_MARK, INVISIBLE
from reconciler.core.secret import REDACTED
from reconciler.render.style import View

if TYPE_CHECKING:
    from reconciler.core.drift import DriftReport

# json.dumps escapes C0 only. A terminal that shows the document obeys C1 too; marks that reorder what is
# shown, or are not shown at all, hide what it says; and a lone surrogate cannot be written.
_FIELD = re.compile("[a-z_]+")
_HARMFUL = re.compile(f"[{INVISIBLE}]")


def dump(value: Any, *, indent: int | None = 2) -> str:
    """Plain data as JSON text that is safe to show on a terminal and in the log of a CI job."""
    text = json.dumps(value, indent=indent, ensure_ascii=False)
    text = _HARMFUL.sub(lambda found: json.dumps(found[0])[1:-1], text)
    return COMMAND_MARK.sub(r"\\u0023", text)


def redacted(value: Any, redact: Callable[[str], str]) -> Any:
    """Take secrets out of plain data, text by text: in the finished document it would break the JSON."""
    text = json.dumps(value, ensure_ascii=False)
    # One look at all of it is quicker than one at each of ten thousand texts.
    return value if redact(text) == text else _redacted(value, redact)


def _redacted(value: Any, redact: Callable[[str], str]) -> Any:
    if isinstance(value, str):
        return redact(value)
    if isinstance(value, Mapping):
        return {_name(str(key), redact): _redacted(member, redact) for key, member in value.items()}
    if isinstance(value, list | tuple):
        return [_redacted(item, redact) for item in value]
    if isinstance(value, int | float) and not isinstance(value, bool) and redact(str(value)) == REDACTED:
        return REDACTED  # a PIN is a number
    return value


def _name(name: str, redact: Callable[[str], str]) -> str:
    # Programs look for the fields of a document, though a secret may have the same letters.
    return name if _FIELD.fullmatch(name) else redact(name)


def render_plan(plan: Plan, view: View) -> str:
    """The document of docs/cli.md, "Plan document"."""
    return dump(redacted(plan.document(), view.redact)) + "\n"


def render_drift(report: DriftReport, view: View) -> str:
    """The document of `drift --json`."""
    return dump(redacted(report.document(), view.redact)) + "\n"
