"""A plan and a drift report of the same moment never contradict each other."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from hypothesis import example, given, settings

from reconciler.core.ownership import KeyView
from reconciler.core.phase import Phase
from tests.builders import HOUR, a_job, a_stack, seen
from tests.core.plan_and_drift import contradictions
from tests.core.worlds import World, a_world, worlds


def held_back(**lifecycle: Any) -> World:
    """`down` has completed and would rerun, but `new`, formerly `old`, completed since and is running."""
    new = replace(a_job("new"), formerly=("old",))
    down = replace(a_job("down", lifecycle=lifecycle), needs=("new",))
    return a_world(
        a_stack(new, down),
        seen(new, phase="Completed", ended_s_ago=46 * HOUR),
        seen(new, revision=2),
        seen(down, phase="Completed", ended_s_ago=48 * HOUR),
    )


def scheduled_over_a_protected_job() -> World:
    """At its scheduled time the job should be replaced, but is protected: the start is blocked."""
    new = a_job("new", lifecycle={"schedule": "0 2 * * *", "overlap": "replace"})
    return a_world(a_stack(new), seen(new, phase="Creating", protected=True, ran_s=24 * HOUR))


@settings(max_examples=300)
@given(worlds())
@example(held_back(schedule="0 2 * * *"))
@example(held_back(on_upstream="rerun"))
@example(scheduled_over_a_protected_job())
def test_plan_and_drift_agree(world: World) -> None:
    report = world.drift()
    is_known = world.look.memory.problem is None
    ending = {key for key, job in world.stack.jobs.items() if _is_ending(world.look.view(key, job))}
    found = contradictions(world.plan(), report, ending, world.decisions(), history_is_known=is_known)
    assert found == []


def _is_ending(view: KeyView) -> bool:
    return any(revision.job.phase is Phase.TERMINATING for revision in view.owned)
