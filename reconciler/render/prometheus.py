"""Plans, drift reports and results as metrics, in the text format of Prometheus.

For the textfile collector, and for whatever else scrapes a file. Each sample says whose it is (stack and
target, of a run the command too), so that the files of several stacks stand beside each other.
Source: https://prometheus.io/docs/instrumenting/exposition_formats/
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, NamedTuple

from reconciler.core.drift.entry import Drift, DriftClass
from reconciler.core.text.sanitize import printable
from reconciler.render.style import RunReport, View

if TYPE_CHECKING:
    from reconciler.core.drift.report import DriftReport
    from reconciler.core.outcome import Result
    from reconciler.core.planning.plan import Plan


class _Metric(NamedTuple):
    """One metric: what it means, its type, and a value for each set of labels."""

    name: str
    meaning: str
    type: str
    samples: Iterable[tuple[Mapping[str, str], float]]


def render_plan(plan: Plan, view: View) -> str:
    """How many actions of each kind, and how the run went, if that is known."""
    return _render([_plan_actions(plan, view), *_run(view)])


def render_drift(report: DriftReport, view: View) -> str:
    """How many drifts of each class, and how the run went, if that is known."""
    where = _where(report.stack, report.target.name, view)
    samples = [({**where, "class": name.value}, count) for name, count in report.summary.items()]
    metrics = [_Metric("reconciler_drift", "Drift found, by class.", "gauge", samples)]
    if report.ignored:
        ignored = _by_class(report.ignored, where)
        metrics.append(
            _Metric("reconciler_drift_ignored", "Drift that is known, by class.", "gauge", ignored)
        )
    if report.since_last:
        new = _by_class((*report.new, *report.changed), where)
        about = "Drift that is new or has changed since the last check, by class."
        metrics.append(_Metric("reconciler_drift_new", about, "gauge", new))
    return _render([*metrics, *_run(view)])


def _by_class(entries: Iterable[Drift], where: Mapping[str, str]) -> list[tuple[Mapping[str, str], float]]:
    counts = Counter(entry.class_ for entry in entries)
    return [({**where, "class": name.value}, counts[name]) for name in DriftClass]


def render_result(result: Result, view: View) -> str:
    """The actions of the plan that was applied, and how the run went, if that is known."""
    plan = [] if view.plan is None else [_plan_actions(view.plan, view)]
    return _render([*plan, *_run(view)])


def render_run(view: View) -> str:
    """How a run went that had nothing to show."""
    return _render(_run(view))


def _plan_actions(plan: Plan, view: View) -> _Metric:
    where = _where(plan.stack, plan.target.name, view)
    samples = [({**where, "action": action.value}, count) for action, count in plan.summary.items()]
    return _Metric("reconciler_plan_actions", "Actions of the plan, by kind.", "gauge", samples)


def _run(view: View) -> Iterator[_Metric]:
    """What is known of the run that all this comes from."""
    run = view.run
    if run is None:
        return
    labels = {**_where(run.stack, run.target, view), "command": run.command}
    for name, meaning, value in _figures(run):
        type_ = "counter" if name.endswith("_total") else "gauge"
        yield _Metric(f"reconciler_{name}", meaning, type_, [(labels, value)])


def _figures(run: RunReport) -> Iterator[tuple[str, str, float]]:
    yield "run_success", "1 unless the last run failed; changes and refusals are successes.", run.is_success
    yield "run_timestamp_seconds", "When the last run ended, in seconds since 1970.", run.ended_at_s
    yield "run_duration_seconds", "How long the last run took.", run.duration_s
    failed = "Notifications of the last run that could not be sent."
    yield "notifications_failed_total", failed, run.notifications_failed


def _where(stack: str, target: str, view: View) -> dict[str, str]:
    return {"stack": printable(view.redact(stack)), "target": printable(view.redact(target))}


def _render(metrics: Iterable[_Metric]) -> str:
    return "".join(f"{line}\n" for metric in metrics for line in _lines(metric))


def _lines(metric: _Metric) -> Iterator[str]:
    yield f"# HELP {metric.name} {metric.meaning}"
    yield f"# TYPE {metric.name} {metric.type}"
    for labels, value in metric.samples:
        said = ",".join(f'{name}="{_escaped(text)}"' for name, text in labels.items())
        yield f"{metric.name}{{{said}}} {float(value)!r}"


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
