"""Plans, drift reports and results as metrics, in the text format of Prometheus.

For the textfile collector, and for whatever else scrapes a file.
Source: https://prometheus.io/docs/instrumenting/exposition_formats/
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import TYPE_CHECKING

from reconciler.decide.drift_entry import Drift, DriftClass
from reconciler.decide.metrics import (
    Measurement,
    MetricSource,
    drift_found,
    drift_ignored,
    drift_new,
    plan_actions,
    run_figures,
)
from reconciler.render.style import View
from reconciler.text import printable

if TYPE_CHECKING:
    from reconciler.decide.drift_report import DriftReport
    from reconciler.decide.outcome import Result
    from reconciler.decide.plan import Plan


def render_plan(plan: Plan, view: View) -> str:
    """How many actions of each kind, and how the run went, if that is known."""
    return render_metrics([_plan_actions(plan, view), *_run(view)])


def render_drift(report: DriftReport, view: View) -> str:
    """How many drifts of each class, and how the run went, if that is known."""
    counts = {name.value: count for name, count in report.summary.items()}
    where = _where(report.stack, report.target.name, view)
    metrics = [drift_found(where, counts)]
    if report.ignored:
        metrics.append(drift_ignored(where, _by_class(report.ignored)))
    if report.since_last:
        metrics.append(drift_new(where, _by_class((*report.new, *report.changed))))
    return render_metrics([*metrics, *_run(view)])


def _by_class(entries: Iterable[Drift]) -> dict[str, int]:
    counts = Counter(entry.class_ for entry in entries)
    return {name.value: counts[name] for name in DriftClass}


def render_result(result: Result, view: View) -> str:
    """The actions of the plan that was applied, and how the run went, if that is known."""
    plan = [] if view.plan is None else [_plan_actions(view.plan, view)]
    return render_metrics([*plan, *_run(view)])


def render_run(view: View) -> str:
    """How a run went that had nothing to show."""
    return render_metrics(_run(view))


def render_metrics(metrics: Iterable[Measurement]) -> str:
    """Any metrics; their labels hold no secret."""
    return "".join(f"{line}\n" for metric in metrics for line in _lines(metric))


def _plan_actions(plan: Plan, view: View) -> Measurement:
    counts = {action.value: count for action, count in plan.summary.items()}
    return plan_actions(_where(plan.stack, plan.target.name, view), counts)


def _run(view: View) -> Iterator[Measurement]:
    """What is known of the run that all this comes from."""
    if view.run is not None:
        where = _where(view.run.stack, view.run.target, view)
        yield from run_figures(replace(view.run, stack=where.stack, target=where.target))


def _where(stack: str, target: str, view: View) -> MetricSource:
    return MetricSource(printable(view.redact(stack)), printable(view.redact(target)))


def _lines(metric: Measurement) -> Iterator[str]:
    yield f"# HELP {metric.name} {metric.meaning}"
    yield f"# TYPE {metric.name} {metric.type}"
    for labels, value in metric.samples:
        said = ",".join(f'{name}="{escape_label(text)}"' for name, text in labels.items())
        yield f"{metric.name}{{{said}}} {float(value)!r}"


def escape_label(text: str) -> str:
    """A text as the value of a label."""
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
