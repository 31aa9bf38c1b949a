"""A key has one active job: what a new job waits for."""

from __future__ import annotations

from typing import Any

from hypothesis import event, given, settings
from hypothesis import strategies as st

from reconciler.core.observed import ObservedJob
from reconciler.core.past import PastRevision
from reconciler.core.phase import TERMINAL, Phase
from reconciler.core.stack import DesiredJob
from reconciler.decide.key_state import Snapshot
from reconciler.decide.plan import Action, Plan, PlannedAction
from tests.builders import a_job, a_stack, seen
from tests.core.history import a_memory, past
from tests.core.worlds import World, a_world, lifecycles


def beside(plan: Plan, look: Snapshot, jobs: dict[str, DesiredJob]) -> list[str]:
    """Return active jobs that a new job of their key would neither replace nor wait for."""
    found = []
    for action in plan.actions:
        if not action.traits.starts_a_job or action.replace_order == "create_first":
            continue
        ended = {a.before.id for a in plan.actions if a.before and a.traits.stops_a_job}
        for revision in look.view(action.key, jobs[action.key]).owned:
            job = revision.job
            is_ended = job.phase is Phase.TERMINATING or job.id in ended
            # A replace adds no active job, even beside a protected one.
            is_left = revision.marker.protected and action.action is Action.REPLACE
            if job.is_active and not is_left and not (is_ended and job.id in awaited(action)):
                found.append(f"{action.after} beside {job.name} {job.phase_text}")
    return found


def awaited(action: PlannedAction) -> set[str | None]:
    """Return the jobs whose end an action waits for."""
    return {action.follows, *action.waits_for_jobs, action.before.id if action.before else None}


@st.composite
def older_beside_newer(draw: st.DrawFn) -> World:
    """Draw revisions of one key in any phase; the newest may have aged out."""
    desired = a_job(lifecycle=draw(lifecycles))
    there: list[ObservedJob] = []
    remembered: list[PastRevision] = []
    last = draw(st.integers(2, 3))
    for number in range(1, last + 1):
        made_of = a_job(algorithm__parameters={"lr": draw(st.sampled_from([0.1, 0.5]))})
        flags: dict[str, Any] = {
            "stopped": draw(st.booleans()),
            "protected": draw(st.sampled_from([True, False, False, False])),
        }
        is_aged_out = number == last and draw(st.booleans())
        phase = draw(st.sampled_from(sorted(TERMINAL) if is_aged_out else list(Phase)))
        job = seen(made_of, revision=number, phase=phase, **flags)
        if is_aged_out or draw(st.booleans()):
            remembered.append(past(made_of, number, phase, job=job))
        if not is_aged_out:
            there.append(job)
    stack = a_stack(desired)
    return a_world(stack, *there, memory=a_memory(*remembered))


@settings(max_examples=300)
@given(older_beside_newer())
def test_new_job_waits_for_older_active_revisions(world: World) -> None:
    plan = world.plan()
    for action in plan.actions:
        if action.traits.starts_a_job:
            event(f"{action.action} waits for {len(action.waits_for_jobs)} others")
    assert beside(plan, world.look, dict(world.stack.jobs)) == []
    assert all(a.action in (Action.CREATE, Action.REPLACE) for a in plan.actions if a.waits_for_jobs)
