"""Plans, drift reports and results as metrics, in the text format of Prometheus.

For the textfile collector, and for whatever else scrapes a file.
Source: https://prometheus.io/docs/instrumenting/exposition_formats/
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from reconciler.decide.drift_check import Drift, DriftClass
from reconciler.decide.metrics import (
    Measurement,
    MetricSource,
    RunReport,
    drift_found,
    drift_ignored,
    drift_new,
    plan_actions,
    run_figures,
)
from reconciler.errors import SUCCESSES
from reconciler.render import Content, View
from reconciler.text import printable

if TYPE_CHECKING:
    from reconciler.decide.drift import DriftReport
    from reconciler.decide.fleet import FleetReport


def render(content: Content, value: Any, view: View) -> str:
    """How many actions, of the plan that was applied, or drifts of each kind; and how the run went."""
    if content is Content.DRIFT:
        metrics = list(_drift(value, view))
    else:
        plan = view.plan if content is Content.RESULT else value
        metrics = []
        if plan is not None:
            counts = {action.value: count for action, count in plan.summary.items()}
            metrics = [plan_actions(_where(plan.stack, plan.target.name, view), counts)]
    return render_metrics(metrics) + render_run(view)


def _drift(report: DriftReport, view: View) -> Iterator[Measurement]:
    where = _where(report.stack, report.target.name, view)
    yield drift_found(where, {name.value: count for name, count in report.summary.items()})
    if report.ignored:
        yield drift_ignored(where, _by_class(report.ignored))
    if report.since_last:
        yield drift_new(where, _by_class((*report.new, *report.changed)))


def _by_class(entries: Iterable[Drift]) -> dict[str, int]:
    counts = Counter(entry.class_ for entry in entries)
    return {name.value: counts[name] for name in DriftClass}


def render_run(view: View) -> str:
    """How a run went, as far as that is known."""
    if view.run is None:
        return ""
    where = _where(view.run.stack, view.run.target, view)
    return render_metrics(run_figures(replace(view.run, stack=where.stack, target=where.target)))


def _where(stack: str, target: str, view: View) -> MetricSource:
    return MetricSource(printable(view.redact(stack)), printable(view.redact(target)))


def render_metrics(metrics: Iterable[Measurement]) -> str:
    """Any metrics; their labels hold no secret."""
    return "".join(f"{line}\n" for metric in metrics for line in _lines(metric))


def _lines(metric: Measurement) -> Iterator[str]:
    yield f"# HELP {metric.name} {metric.meaning}"
    yield f"# TYPE {metric.name} {metric.type}"
    for labels, value in metric.samples:
        listed = ",".join(f'{name}="{_escaped(text)}"' for name, text in labels.items())
        yield f"{metric.name}{{{listed}}} {float(value)!r}"


def _escaped(text: str) -> str:
    """A text as the value of a label."""
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


def render_fleet(report: FleetReport, view: View) -> str:
    """The samples of all stacks, each metric once, and how each run went.

    The labels are those of a stack alone. Where two stacks would have the same ones, a label `root` tells
    them apart.
    """
    names = Counter((one.stack or one.root, one.target) for one in report.results)
    lines: dict[str, list[str]] = {}
    for one in report.results:
        is_shared = names[one.stack or one.root, one.target] > 1
        label = f',root="{_escaped(printable(one.root))}"' if is_shared else ""
        ended = RunReport(
            command=report.command,
            stack=one.stack or one.root,
            target=one.target,
            is_success=one.exit_code in SUCCESSES,
            ended_at_s=one.ended_at_s,
            duration_s=one.duration_s,
            notifications_failed=one.notifications_failed,
        )
        run = render_run(View(run=ended))
        for line in filter(None, (one.parts.get("prometheus", "") + run).split("\n")):
            # The lines of a metric begin with those about it.
            words = line.split(" ", 3)
            name = words[2] if line.startswith("#") else line.partition("{")[0]
            found = lines.setdefault(name, [])
            labels, end, value = line.rpartition("} ")
            if not line.startswith("#"):
                found.append(f"{labels}{label}{end}{value}")
            elif line not in found:
                found.append(line)
    return "".join(f"{line}\n" for found in lines.values() for line in found)
