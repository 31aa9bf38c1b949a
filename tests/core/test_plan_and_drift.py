"""A plan and a drift report of the same moment never contradict one another."""

from __future__ import annotations

from hypothesis import given, settings

from reconciler.core.drift.report import make_drift_report
from reconciler.core.observed.ownership import KeyView
from reconciler.core.observed.phase import Phase
from reconciler.core.planning.action_builder import PlanContext
from tests.builders import NOW, STACK, TARGET
from tests.core.plan_and_drift import contradictions
from tests.core.worlds import World, worlds


@settings(max_examples=500, deadline=None)
@given(worlds())
def test_plan_and_drift_agree(world: World) -> None:
    report = make_drift_report(
        world.stack, world.look, PlanContext(STACK, at_s=NOW), TARGET, manifest_digest="sha256:0", version="0"
    )
    is_known = world.look.memory.problem is None
    ending = {key for key, job in world.stack.jobs.items() if _is_ending(world.look.view(key, job))}
    assert contradictions(world.plan(), report, ending, history_is_known=is_known) == []


def _is_ending(view: KeyView) -> bool:
    return any(revision.job.phase is Phase.TERMINATING for revision in view.owned)
