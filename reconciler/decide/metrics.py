"""What is measured of plans, drift, runs and checks: metrics as values, whatever form they go out in.

Each sample says whose it is (stack and target, of a run the command too), so that the metrics of several
stacks stand beside each other.
Source: docs/cli.md, "Formats"; docs/watch.md, "Metrics".
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from reconciler.decide.watch_schedule import HEALTHY_INTERVALS

if TYPE_CHECKING:
    from reconciler.decide.watch_state import WatchState

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
        """The same as labels."""
        return {"stack": self.stack, "target": self.target}


NOWHERE = MetricSource("", "")


@dataclass(frozen=True, slots=True)
class RunReport:
    """How a command went, and on which stack and target, as far as it got to know them."""

    command: str
    stack: str
    target: str
    is_success: bool
    ended_at_s: float
    duration_s: float
    notifications_failed: int = 0


def plan_actions(where: MetricSource, counts: Mapping[str, int]) -> Measurement:
    """How many actions of each kind a plan has."""
    samples = tuple(({**where.labels, "action": name}, float(count)) for name, count in counts.items())
    return Measurement("reconciler_plan_actions", "Actions of the plan, by kind.", GAUGE, samples)


def drift_found(where: MetricSource, counts: Mapping[str, int]) -> Measurement:
    """How many drifts of each class were found."""
    return _by_class("reconciler_drift", "Drift found, by class.", where, counts)


def drift_ignored(where: MetricSource, counts: Mapping[str, int]) -> Measurement:
    """How many drifts of each class are known, and not counted."""
    return _by_class("reconciler_drift_ignored", "Drift that is known, by class.", where, counts)


def drift_new(where: MetricSource, counts: Mapping[str, int]) -> Measurement:
    """How many drifts of each class the last check did not see."""
    meaning = "Drift that is new or has changed since the last check, by class."
    return _by_class("reconciler_drift_new", meaning, where, counts)


def _by_class(name: str, meaning: str, where: MetricSource, counts: Mapping[str, int]) -> Measurement:
    samples = tuple(({**where.labels, "class": class_}, float(count)) for class_, count in counts.items())
    return Measurement(name, meaning, GAUGE, samples)


def run_figures(run: RunReport) -> Iterator[Measurement]:
    """How a run went."""
    labels = {**MetricSource(run.stack, run.target).labels, "command": run.command}
    for name, meaning, value in _figures(run):
        type_ = COUNTER if name.endswith("_total") else GAUGE
        yield Measurement(f"reconciler_{name}", meaning, type_, ((labels, float(value)),))


def _figures(run: RunReport) -> Iterator[tuple[str, str, float]]:
    yield "run_success", "1 unless the last run failed; changes and refusals are successes.", run.is_success
    yield "run_timestamp_seconds", "When the last run ended, in seconds since 1970.", run.ended_at_s
    yield "run_duration_seconds", "How long the last run took.", run.duration_s
    failed = "Notifications of the last run that could not be sent."
    if run.command == "watch":
        failed = "Notifications that could not be sent."
    yield "notifications_failed_total", failed, run.notifications_failed


def watch_figures(state: WatchState, where: MetricSource, every_s: float) -> list[Measurement]:
    """What is known after the last check: its run, the drift of the last that could compare, and counts."""
    metrics: list[Measurement] = []
    if state.plan is not None:
        metrics.append(plan_actions(where, state.plan))
    if state.compared is not None:
        found = state.compared.summary
        new = Counter(str(entry["class"]) for entry in (*state.compared.new, *state.compared.changed))
        metrics.append(drift_found(where, found))
        metrics.append(drift_ignored(where, dict.fromkeys(found, 0) | state.compared.ignored))
        metrics.append(drift_new(where, dict.fromkeys(found, 0) | new))
    if state.last is not None:
        last = state.last
        run = RunReport(
            "watch",
            where.stack,
            where.target,
            not last.result.has_failed,
            last.ended_at_s,
            last.duration_s,
            state.notifications_failed,
        )
        metrics += run_figures(run)
    labels = where.labels
    if state.compared_at_s is not None:
        meaning = "When the last check that could compare ended, in seconds since 1970."
        name = "reconciler_watch_compared_timestamp_seconds"
        metrics.append(Measurement(name, meaning, GAUGE, ((labels, state.compared_at_s),)))
    meaning = f"Seconds between two checks; healthy is what was compared within {HEALTHY_INTERVALS} of them."
    metrics.append(Measurement("reconciler_watch_interval_seconds", meaning, GAUGE, ((labels, every_s),)))
    counts = sorted(state.by_exit_code.items())
    samples = tuple(({**labels, "exit_code": str(code)}, float(count)) for code, count in counts)
    metrics.append(Measurement("reconciler_watch_checks_total", "Checks, by exit code.", COUNTER, samples))
    return metrics
