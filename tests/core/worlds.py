"""Hypothesis strategies for any stack on any service with any history."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from hypothesis import strategies as st

from reconciler.core.identity import ScheduleMark
from reconciler.core.lifecycle import Schedule
from reconciler.core.observed import Observation, ObservedJob, Unreadable
from reconciler.core.ownership import sort_by_key
from reconciler.core.record import NO_HISTORY, HistorySnapshot
from reconciler.core.scalar import spelled
from reconciler.core.stack import DesiredJob, Stack
from reconciler.decide.actions import KeyDecision
from reconciler.decide.drift import DriftReport, make_drift_report
from reconciler.decide.guards import ProposedPlan
from reconciler.decide.key_state import PlanContext, Snapshot
from reconciler.decide.plan import NO_ALLOWANCES, Allowances, Plan
from reconciler.decide.planner import decisions_of, make_destroy_plan, make_plan, propose_plan
from reconciler.secrets import SecretText
from tests.builders import HOUR, NOW, STACK, TARGET, a_job, a_stack, absent, made_by_0_1_0, seen
from tests.core.history import a_memory, past

#: `new` was `old`, `down` needs it, `last` needs that one, `gone` is never declared.
KEYS = ("new", "old", "down", "last", "gone")
PHASES = ("Creating", "Pending", "Running", "Terminating", "Completed", "Failed", "Terminated", "Abnormal")


def a_context(**more: Any) -> PlanContext:
    """The context of a command that is given now."""
    return PlanContext(STACK, **{"at_s": NOW, "manifest_digest": "sha256:0", "version": "0", **more})


@dataclass(frozen=True)
class World:
    """A stack, its observed jobs and its history."""

    stack: Stack
    look: Snapshot
    allowances: Allowances = NO_ALLOWANCES

    @property
    def context(self) -> PlanContext:
        """The plan context: time and allowances."""
        return a_context(allowances=self.allowances)

    def decisions(self) -> dict[str, KeyDecision]:
        """Decide every key."""
        return decisions_of(self.stack, self.look, self.context)

    def drift(self) -> DriftReport:
        """Report drift."""
        return make_drift_report(self.stack, self.look, self.context, TARGET)

    def plan(self) -> Plan:
        """Plan it."""
        return make_plan(self.stack, self.look, self.context, TARGET)

    def proposed(self) -> ProposedPlan:
        """Plan before guards."""
        return propose_plan(self.stack, self.look, self.context, TARGET)

    def destroy_plan(self) -> Plan:
        """Plan a destroy."""
        return make_destroy_plan(self.stack, self.look, self.context, TARGET)


lifecycles = st.fixed_dictionaries(
    {},
    optional={
        "on_change": st.sampled_from(["replace", "keep", "fail"]),
        "on_failure": st.sampled_from(["keep", "retry"]),
        "on_terminated": st.sampled_from(["keep", "recreate"]),
        "on_upstream": st.sampled_from(["keep", "rerun"]),
        "max_retries": st.integers(0, 3),
        "replace_order": st.sampled_from(["terminate_first", "create_first"]),
        "protect": st.booleans(),
        "rerun": st.sampled_from(["once", "twice"]),
        "schedule": st.sampled_from(["0 2 * * *", "0 0 1 1 *"]),
        "overlap": st.sampled_from(["skip", "replace"]),
    },
)


@st.composite
def entries(draw: st.DrawFn, /, key: str, **more: Any) -> DesiredJob | None:
    """Draw the entry of a key: none, absent, or a job."""
    how = draw(st.sampled_from(["job", "job", "job", "absent", "nothing"]))
    if how == "nothing":
        return None
    lifecycle = draw(lifecycles)
    if how == "absent":
        return replace(absent(key, **lifecycle), **more)
    return replace(a_job(key, lifecycle=lifecycle, **draw(declarations)), **more)


#: 1.10 was 1.1 to version 0.1.0, which computed the digests with the letter `a`.
LR = st.sampled_from([0.1, 0.5, spelled(1.1, "1.10")])
TEXT = st.sampled_from(["", "a text"])
SECRET = SecretText("hush", "${var.token}")
#: Edits of a job: fields that force a new one, and mutable fields.
declarations: st.SearchStrategy[dict[str, Any]] = st.fixed_dictionaries(
    {"algorithm__parameters": st.fixed_dictionaries({"lr": LR}), "description": TEXT},
    optional={
        "algorithm__environments": st.fixed_dictionaries({"T": st.sampled_from(["open", SECRET])}),
        "spec__schedule_policy": st.fixed_dictionaries({"priority": st.integers(1, 3)}),
        "spec__notification": st.fixed_dictionaries(
            {"topic_urn": st.sampled_from(["urn", SECRET]), "events": st.just(["JobFailed"])}
        ),
    },
)
flags = st.sampled_from(["", "", "", "protected", "stopped"])
_NIGHTLY = Schedule("0 2 * * *").digest
schedule_marks = st.sampled_from(
    [None, ScheduleMark(_NIGHTLY), ScheduleMark(_NIGHTLY, int(NOW - 3 * HOUR)), ScheduleMark("0000")]
)
whose = st.sampled_from(["ours", "ours", "ours", "ours", "renamed", "wiped", "foreign", "unknown digest"])


@st.composite
def jobs(draw: st.DrawFn, key: str, revision: int) -> tuple[ObservedJob, str, DesiredJob]:
    """Draw a job on the service, and the key and declaration it is recorded under."""
    declared = a_job(key, **draw(declarations))
    if draw(st.booleans()):
        declared = made_by_0_1_0(declared)
    flag, how = draw(flags), draw(whose)
    phase = draw(st.sampled_from([*PHASES, *PHASES, "Frozen"]))
    observed: dict[str, Any] = {
        "revision": revision,
        "phase": phase,
        "protected": flag == "protected",
        "stopped": flag == "stopped",
        "schedule": draw(schedule_marks),
        "ran_s": draw(st.sampled_from([60.0, 2 * HOUR])),
        "ended_s_ago": draw(st.sampled_from([1.0, 24 * HOUR])),
    }
    job = seen(declared, **observed)
    if how == "renamed" and key == "old":
        marker = job.marker._replace(key="new", id_part=job.id[:8]) if job.marker else None
        job = replace(job, description=str(marker))
    elif how == "wiped":
        job = replace(job, description="mine now")
    elif how == "foreign":
        job = seen(declared, **observed, stack="other")
    elif how == "unknown digest":
        job = seen(declared, **observed, digest="z" + "0" * 12)
    return job, key, declared


@st.composite
def worlds(draw: st.DrawFn) -> World:
    """Any world."""
    declared = [
        draw(entries("new", formerly=("old",))),
        draw(entries("down", needs=("new",))),
        draw(entries("last", needs=("down",))),
    ]
    stack = a_stack(*(entry for entry in declared if entry is not None))
    places = draw(st.sets(st.tuples(st.sampled_from(KEYS), st.integers(1, 3)), max_size=8))
    there, remembered = [], []
    for key, revision in sorted(places):
        job, owner, made_of = draw(jobs(key, revision))
        if draw(st.booleans()):
            remembered.append(past(replace(made_of, key=owner), revision, job.phase_text, job=job))
        if draw(st.integers(0, 3)):
            there.append(job)
    unreadable = (Unreadable("status is missing", name="down-r9"),) if draw(st.integers(0, 9)) == 9 else ()
    memory = draw(
        st.sampled_from([a_memory(*remembered), a_memory(), HistorySnapshot(problem="unavailable")])
    )
    details = {job.id: job for job in there if draw(st.integers(0, 9))}
    world = a_world(stack, *there, unreadable=unreadable, details=details, memory=memory)
    return replace(world, allowances=Allowances.of(["empty"], force=draw(st.booleans())))


def a_world(
    stack: Stack,
    *jobs: ObservedJob,
    details: Mapping[str, ObservedJob] | None = None,
    memory: HistorySnapshot = NO_HISTORY,
    skew_s: float = 0.0,
    **observation: Any,
) -> World:
    """Build a stack with its jobs; by default all details are readable."""
    names = stack.declared_keys | frozenset(stack.jobs) | stack.former_keys
    ownership = sort_by_key(Observation(jobs, **observation), STACK, names)
    known = {job.id: job for job in jobs} if details is None else details
    return World(stack, Snapshot(ownership, known, memory=memory, skew_s=skew_s))


def a_look(stack: Stack, *jobs: ObservedJob, **more: Any) -> Snapshot:
    """Build an observation without details."""
    return a_world(stack, *jobs, details={}, **more).look
