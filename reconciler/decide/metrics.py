"""What is measured of plans, drift, runs and checks: metrics as values, whatever form they go out in.

Each sample says whose it is (stack and target, of a run the command too), so that the metrics of several
stacks stand beside each other.
Source: docs/reference/cli.md, "Formats"; docs/operations/metrics.md, "Values".
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import NamedTuple

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


@dataclass(frozen=True)
class RunReport:
    """How a command went, and on which stack and target, as far as it got to know them."""

    command: str
    stack: str
    target: str
    is_success: bool
    ended_at_s: float
    duration_s: float
    notifications_failed: int = 0


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
