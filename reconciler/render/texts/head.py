"""The line that a text about a stack begins with."""

from __future__ import annotations

from reconciler.core.values import TargetIdentity
from reconciler.text import printable


def render_head(stack: str, target: TargetIdentity) -> str:
    """Say what a text is about."""
    where = f"{target.name} ({target.kind}"
    where += f", {target.endpoint}, project {target.project_id}" if target.endpoint != target.kind else ""
    return printable(f"Stack {stack} on {where})")
