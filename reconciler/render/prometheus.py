"""What is measured of plans, drift, runs and checks, and its text in the format of Prometheus.

Each sample says whose it is (stack and target, of a run the command too), so that the metrics of several
stacks stand beside each other.
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
    """One metric: its meaning, its type, and a value for each set of labels."""

    name: str
    meaning: str
    type: str
    samples: tuple[tuple[Mapping[str, str], float], ...]


class MetricSource(NamedTuple):
    """Whose metrics they are."""

    stack: str
    target: str

    @property
    def labels(self) -> dict[str, str]:
        return {"stack": self.stack, "target": self.target}


NOWHERE = MetricSource("", "")


#: What is counted: its meaning, and the label of what it is counted by.
_COUNTED = {
    "plan_actions": ("Actions of the plan, by kind.", "action"),
    "drift": ("Drift found, by class.", "class"),
}


def counted(name: str, where: MetricSource, counts: Mapping[str, int]) -> Measurement:
    """How many of each kind there are: plan_actions or drift."""
    meaning, label = _COUNTED[name]
    samples = tuple(({**where.labels, label: kind}, float(count)) for kind, count in counts.items())
    return Measurement(f"reconciler_{name}", meaning, GAUGE, samples)


def run_figures(run: RunReport) -> Iterator[Measurement]:
    """How a run went."""
    failed = "Notifications of the last run that could not be sent."
    if run.command == "watch":
        failed = "Notifications that could not be sent."
    success = "1 unless the last run failed; changes and refusals are successes."
    ended = "When the last run ended, in seconds since 1970."
    labels = {**MetricSource(run.stack, run.target).labels, "command": run.command}
    for name, meaning, type_, value in (
        ("run_success", success, GAUGE, run.is_success),
        ("run_timestamp_seconds", ended, GAUGE, run.ended_at_s),
        ("run_duration_seconds", "How long the last run took.", GAUGE, run.duration_s),
        ("notifications_failed_total", failed, COUNTER, run.notifications_failed),
    ):
        yield Measurement(f"reconciler_{name}", meaning, type_, ((labels, float(value)),))


# --- as text


def render(content: Content, value: Any, view: View) -> str:
    """How many actions, of the plan that was applied, or drifts of each kind; and how the run went."""
    metrics: list[Measurement] = []
    shown = view.plan if content is Content.RESULT else value
    if shown is not None:
        where = _where(shown.stack, shown.target.name, view)
        kind = "drift" if content is Content.DRIFT else "plan_actions"
        metrics = [counted(kind, where, {name.value: count for name, count in shown.summary.items()})]
    return render_metrics(metrics) + render_run(view)


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
