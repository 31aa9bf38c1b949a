"""The report of a fleet as metrics: the samples of all stacks, each metric once.

The labels are those of a stack alone. Where two stacks would have the same ones, a label `root` tells them
apart.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import TYPE_CHECKING

from reconciler.decide.metrics import RunReport
from reconciler.errors import SUCCESSES
from reconciler.render.prometheus import escape_label, render_run
from reconciler.render.style import View
from reconciler.text import printable

if TYPE_CHECKING:
    from reconciler.decide.fleet import FleetReport, StackResult


def render_fleet(report: FleetReport, view: View) -> str:
    """What was found in each stack, and how its run went."""
    names = Counter(map(_labels, report.results))
    heads: dict[str, list[str]] = {}
    samples: dict[str, list[str]] = {}
    for result in report.results:
        label = f'root="{escape_label(printable(result.root))}"' if names[_labels(result)] > 1 else ""
        for name, line in _lines(report.command, result):
            if line.startswith("#"):
                if line not in heads.setdefault(name, []):
                    heads[name].append(line)
            else:
                samples.setdefault(name, []).append(_labelled(line, label))
    return "".join(f"{line}\n" for name in heads for line in (*heads[name], *samples.get(name, ())))


def _labels(result: StackResult) -> tuple[str, str]:
    return result.stack or result.root, result.target


def _lines(command: str, result: StackResult) -> Iterator[tuple[str, str]]:
    """Each line with the name of its metric."""
    run = RunReport(
        command=command,
        stack=result.stack or result.root,
        target=result.target,
        is_success=result.exit_code in SUCCESSES,
        ended_at_s=result.ended_at_s,
        duration_s=result.duration_s,
        notifications_failed=result.notifications_failed,
    )
    for text in (result.parts.get("prometheus", ""), render_run(View(run=run))):
        for line in filter(None, text.split("\n")):
            words = line.split(" ", 3)
            yield (words[2] if line.startswith("#") else line.partition("{")[0]), line


def _labelled(line: str, label: str) -> str:
    labels, end, value = line.rpartition("} ")
    return f"{labels},{label}{end}{value}" if label else line
