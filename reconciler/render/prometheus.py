"""Metrics of plans, drift, runs and checks, in the text format of Prometheus.

Samples are labelled with stack and target, and those of runs with the command, so that the metrics of several
stacks can be combined.
Source: docs/reference/cli.md, "Formats"; docs/operations/metrics.md, "Values";
https://prometheus.io/docs/instrumenting/exposition_formats/
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple

from reconciler.decide.outcome import RunReport
from reconciler.errors import SUCCESSES
from reconciler.render import Content, View
from reconciler.text import printable

if TYPE_CHECKING:
    from reconciler.decide.fleet import FleetReport

GAUGE, COUNTER = "gauge", "counter"


class Measurement(NamedTuple):
    """A metric: its help text, its type, and a value per set of labels."""

    name: str
    meaning: str
    type: str
    samples: tuple[tuple[Mapping[str, str], float], ...]


class MetricSource(NamedTuple):
    """The labels that all metrics of a run share."""

    stack: str
    target: str


#: Metrics with one sample per kind: help text and label.
_COUNTED = {
    "plan_actions": ("Actions of the plan, by kind.", "action"),
    "drift": ("Drift found, by class.", "class"),
}


def counted(name: str, where: MetricSource, counts: Mapping[str, int]) -> Measurement:
    """Make a metric with counts by kind: plan_actions or drift."""
    meaning, label = _COUNTED[name]
    samples = tuple(({**where._asdict(), label: kind}, float(count)) for kind, count in counts.items())
    return Measurement(f"reconciler_{name}", meaning, GAUGE, samples)


def run_figures(run: RunReport) -> Iterator[Measurement]:
    failed = "Notifications of the last run that could not be sent."
    if run.command == "watch":
        failed = "Notifications that could not be sent."
    success = "1 unless the last run failed; changes and refusals are successes."
    ended = "When the last run ended, in seconds since 1970."
    labels = {"stack": run.stack, "target": run.target, "command": run.command}
    for name, meaning, type_, value in (
        ("run_success", success, GAUGE, run.is_success),
        ("run_timestamp_seconds", ended, GAUGE, run.ended_at_s),
        ("run_duration_seconds", "How long the last run took.", GAUGE, run.duration_s),
        ("notifications_failed_total", failed, COUNTER, run.notifications_failed),
    ):
        yield Measurement(f"reconciler_{name}", meaning, type_, ((labels, float(value)),))


# --- as text


def render(content: Content, value: Any, view: View) -> str:
    """Render the counts of actions (of an apply: those of its plan) or drift, and the metrics of the run."""
    metrics: list[Measurement] = []
    shown = view.plan if content is Content.RESULT else value
    if shown is not None:
        where = _where(shown.stack, shown.target.name, view)
        kind = "drift" if content is Content.DRIFT else "plan_actions"
        metrics = [counted(kind, where, {name.value: count for name, count in shown.summary.items()})]
    return render_metrics(metrics) + render_run(view)


def render_run(view: View) -> str:
    """Render the metrics of a run, as far as they are known."""
    if view.run is None:
        return ""
    where = _where(view.run.stack, view.run.target, view)
    return render_metrics(run_figures(replace(view.run, stack=where.stack, target=where.target)))


def _where(stack: str, target: str, view: View) -> MetricSource:
    return MetricSource(printable(view.redact(stack)), printable(view.redact(target)))


def render_metrics(metrics: Iterable[Measurement]) -> str:
    """Render metrics. Their labels must be redacted."""
    lines: list[str] = []
    for name, meaning, type_, samples in metrics:
        lines += (f"# HELP {name} {meaning}", f"# TYPE {name} {type_}")
        for labels, value in samples:
            listed = ",".join(f'{label}="{_escaped(text)}"' for label, text in labels.items())
            lines.append(f"{name}{{{listed}}} {float(value)!r}")
    return "".join(f"{line}\n" for line in lines)


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


def render_fleet(report: FleetReport, view: View) -> str:
    """Render the samples of all stacks, grouped by metric.

    The labels are those of a single stack; if two stacks share them, a label `root` is added.
    """
    names = Counter((one.stack or one.root, one.target) for one in report.results)
    lines: dict[str, list[str]] = {}
    for one in report.results:
        is_shared = names[one.stack or one.root, one.target] > 1
        label = f',root="{_escaped(printable(one.root))}"' if is_shared else ""
        ended = RunReport(
            report.command,
            one.stack or one.root,
            one.target,
            one.exit_code in SUCCESSES,
            one.ended_at_s,
            one.duration_s,
            one.notifications_failed,
        )
        run = render_run(View(run=ended))
        for line in filter(None, (one.parts.get("prometheus", "") + run).split("\n")):
            # HELP and TYPE lines come before the samples.
            words = line.split(" ", 3)
            name = words[2] if line.startswith("#") else line.partition("{")[0]
            found = lines.setdefault(name, [])
            labels, end, value = line.rpartition("} ")
            if not line.startswith("#"):
                found.append(f"{labels}{label}{end}{value}")
            elif line not in found:
                found.append(line)
    return "".join(f"{line}\n" for found in lines.values() for line in found)
