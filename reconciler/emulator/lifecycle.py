"""The life of a job: its phases, their times, and which actions each of them allows.

A life is data: the current phase, and the next steps with their times. Nothing here waits or reads a clock;
`Life.at` computes the phase at any time.

Source: phases and transitions of the API documents (Creating, Pending, Running, then an end). Not documented:
the phase after `auto_stop` (here Terminated), that `restart` starts an ended job again under the same id, and
that a job which returns from Running to the queue keeps its start time.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from reconciler.emulator.schemas import refuse_if, value_at

RUN_SECONDS = "EMULATOR_RUN_SECONDS"
"""Environment variable of a job: for how many emulated seconds it runs."""
RESULT = "EMULATOR_RESULT"
"""Environment variable of a job: how its run ends, one of `RESULTS`."""

SECONDARY = {
    "Creating": "Creating",
    "Pending": "Queuing",
    "Running": "Running",
    "Terminating": "Terminating",
    "Terminated": "Terminated",
    "Completed": "Completed",
    "Failed": "Failed",
    "Abnormal": "Lost",
}
"""The level-2 status that goes with each phase."""
RESULTS = frozenset({"Completed", "Failed", "Abnormal"})
ENDED = frozenset({"Completed", "Failed", "Terminated", "Abnormal"})
CAN_TERMINATE = frozenset({"Creating", "Pending", "Running"})


@dataclass(frozen=True)
class Durations:
    """How long each step takes, in emulated seconds.

    `deleting` is how long a deleted job can still be read; until then its name stays taken.
    """

    creating: float = 1
    pending: float = 2
    running: float = 600
    terminating: float = 1
    deleting: float = 0


class LifecycleStep(NamedTuple):
    """One phase still to come, and when it begins (ms)."""

    at_ms: int
    phase: str
    secondary: str


class RunOutcome(NamedTuple):
    """How the run of one job goes: for how long (ms), and the phase it ends in."""

    run_ms: int
    result: str


@dataclass(frozen=True)
class Life:
    """Where a job is, where it is going and where it has been.

    `started_ms` and `ended_ms` are 0 until they happen. `held_ms` is when the job began to be held
    in its phase, 0 when it moves on by itself. `past` holds the phases entered, oldest first.
    """

    phase: str
    secondary: str
    steps: tuple[LifecycleStep, ...] = ()
    started_ms: int = 0
    ended_ms: int = 0
    held_ms: int = 0
    past: tuple[LifecycleStep, ...] = ()

    @property
    def next_ms(self) -> int | None:
        """When the next step is due; None if none is."""
        return self.steps[0].at_ms if self.steps and not self.held_ms else None

    def at(self, now_ms: int) -> Life:
        """Return the life once every step that is due has been taken."""
        life = self
        while (due := life.next_ms) is not None and due <= now_ms:
            step = life.steps[0]
            life = life.enter(step.phase, step.secondary, due, life.steps[1:])
        return life

    def enter(self, phase: str, secondary: str, at_ms: int, steps: tuple[LifecycleStep, ...]) -> Life:
        started, ended = self.started_ms, self.ended_ms
        if phase == "Running":
            started, ended = started or at_ms, 0
        elif phase in ENDED:
            ended = at_ms
        elif phase in {"Creating", "Pending"} and self.phase not in {"Running", "Creating", "Pending"}:
            # A job that is queued again out of Running keeps its start; one that is restarted begins anew.
            started, ended = 0, 0
        past = (*self.past, LifecycleStep(at_ms, phase, secondary))
        return dataclasses.replace(
            self, phase=phase, secondary=secondary, steps=steps, started_ms=started, ended_ms=ended, past=past
        )

    def since(self, phase: str) -> int:
        """Return when the job last entered a phase (ms); 0 if it never did."""
        return next((step.at_ms for step in reversed(self.past) if step.phase == phase), 0)

    def hold(self, now_ms: int) -> Life:
        """Return the life with no step taken until `release`."""
        return self if self.held_ms else dataclasses.replace(self, held_ms=now_ms)

    def release(self, now_ms: int) -> Life:
        """Return the life going on; the time it was held does not count."""
        if not self.held_ms:
            return self
        waited = max(0, now_ms - self.held_ms)
        steps = tuple(step._replace(at_ms=step.at_ms + waited) for step in self.steps)
        return dataclasses.replace(self, held_ms=0, steps=steps)

    def terminate(self, now_ms: int, durations: Durations) -> Life:
        """Return the life after the action `terminate`."""
        is_wrong = self.phase not in CAN_TERMINATE
        refuse_if(is_wrong, "The job cannot be terminated.", "ModelArts.2796")
        return self.set_phase("Terminating", None, now_ms, durations, RunOutcome(0, "Terminated"))

    @property
    def was_restarted(self) -> bool:
        """Whether the job had come to an end before it ran last."""
        phases = [step.phase for step in self.past]
        if "Running" not in phases:
            return False
        return not ENDED.isdisjoint(phases[: len(phases) - phases[::-1].index("Running")])

    def restart(self, now_ms: int, durations: Durations, outcome: RunOutcome) -> Life:
        """Return the life after the action `restart`: from an end it begins anew, with the same id."""
        refuse_if(self.phase not in ENDED, "The job cannot be restarted.", "ModelArts.2813")
        return self.set_phase("Creating", None, now_ms, durations, outcome)

    def set_phase(
        self, phase: str, secondary: str | None, now_ms: int, durations: Durations, outcome: RunOutcome
    ) -> Life:
        """Return the life in `phase`, any text, with the steps that follow from there.

        A held life stays held. A phase that is an end, or unknown, has no steps.
        """
        steps = _steps_after(phase, now_ms, durations, outcome)
        held = now_ms if self.held_ms else 0
        shown = secondary if secondary is not None else SECONDARY.get(phase, phase)
        return dataclasses.replace(self.enter(phase, shown, now_ms, steps), held_ms=held)


def run_outcome(body: Mapping[str, Any], durations: Durations) -> RunOutcome:
    """Return how a job's run goes, from its environment variables and its `auto_stop` hours."""
    environments = value_at(body, "algorithm.environments") or {}
    result = environments.get(RESULT) or "Completed"
    is_wrong, words = result not in RESULTS, ", ".join(sorted(RESULTS))
    refuse_if(is_wrong, f"environment variable {RESULT} must be one of {words}")
    try:
        seconds = float(environments.get(RUN_SECONDS) or durations.running)
    except ValueError:
        seconds = -1
    is_wrong = not 0 <= seconds < 1e9
    refuse_if(is_wrong, f"environment variable {RUN_SECONDS} must be a number of seconds")
    run_ms = round(seconds * 1000)
    hours = value_at(body, "spec.auto_stop.duration")
    if hours and hours * 3_600_000 < run_ms:
        return RunOutcome(hours * 3_600_000, "Terminated")
    return RunOutcome(run_ms, result)


def _steps_after(
    phase: str, now_ms: int, durations: Durations, outcome: RunOutcome
) -> tuple[LifecycleStep, ...]:
    spans = {
        "Creating": (durations.creating * 1000, "Pending"),
        "Pending": (durations.pending * 1000, "Running"),
        "Running": outcome,
        "Terminating": (durations.terminating * 1000, "Terminated"),
    }
    steps = []
    while phase in spans:
        span_ms, phase = spans[phase]
        now_ms += round(span_ms)
        steps.append(LifecycleStep(now_ms, phase, SECONDARY[phase]))
    return tuple(steps)
