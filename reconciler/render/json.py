"""Plans, drift reports and events as JSON for programs."""

from __future__ import annotations

import json
import re
from typing import Any

from reconciler.core.drift import DriftReport
from reconciler.core.outcome import Event
from reconciler.core.plan import Plan
from reconciler.core.secret import show

# json.dumps escapes C0 only; a terminal that shows the document obeys C1 too.
_C1 = re.compile("[\x7f-\x9f\u2028\u2029]")


def dump(value: Any, *, indent: int | None = 2) -> str:
    """Plain data as JSON text that is safe to show on a terminal."""
    text = json.dumps(value, indent=indent, ensure_ascii=False)
    return _C1.sub(lambda found: f"\\u{ord(found[0]):04x}", text)


def render_plan(plan: Plan) -> str:
    """The document of CLI.md 6."""
    return dump(plan.document()) + "\n"


def render_drift(report: DriftReport) -> str:
    """The document of `drift --json`."""
    return dump(show(report.model_dump(mode="json", by_alias=True))) + "\n"


def render_event(event: Event) -> str:
    """One line of `apply --json`."""
    return dump(event.document(), indent=None) + "\n"
