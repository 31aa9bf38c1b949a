"""What `doctor` found, as text for people and as JSON for programs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict

from reconciler.decide.doctor import Check, Health
from reconciler.render.layout import fit, fit_line
from reconciler.render.style import PLAIN, Style
from reconciler.text import printable

_COLOURS = {Health.WELL: "green", Health.NOTE: "yellow", Health.WRONG: "red", Health.UNCHECKED: "dim"}


def render_text(head: str, checks: Sequence[Check], style: Style = PLAIN) -> str:
    """One line per check, its fix below it; the last line counts."""
    width = max(len(check.name) for check in checks)
    lines = [style.paint(printable(head), "bold"), ""]
    for check in checks:
        word = style.paint(f"{check.health.value:<11}", _COLOURS[check.health])
        said = [f"  {word}  {printable(f'{check.name:<{width}}  {check.detail}')}".rstrip()]
        if check.fix:
            said.append(printable(f"{'':{width + 17}}fix: {check.fix}"))
        for line in said:
            lines += fit_line(line, style, hanging=width + 17)
    counts = {health: sum(check.health is health for check in checks) for health in Health}
    told = ", ".join(f"{n} {health.value}" for health, n in counts.items() if n or health is Health.WRONG)
    return fit("\n".join([*lines, "", f"Doctor: {told}."]) + "\n", style)


def document(head: Mapping[str, object], checks: Sequence[Check]) -> dict[str, object]:
    """The same as plain data."""
    is_well = all(check.health is not Health.WRONG for check in checks)
    return {**head, "well": is_well, "checks": [_document(check) for check in checks]}


def _document(check: Check) -> dict[str, object]:
    told = asdict(check)
    told["status"] = told.pop("health")
    if check.health is not Health.WRONG:
        told["trouble"] = None
    return {name: told[name] for name in ("name", "status", "detail", "fix", "trouble")}
