"""docs/concepts/guards.md: a create that repeats the finished work of another key is a rerun.

The other key is no longer declared; it may be of another stack.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from reconciler.core.fields.field_types import Cloud
from reconciler.core.observed import ObservedJob
from reconciler.core.past import FinishedWork
from reconciler.core.record import NO_HISTORY, HistorySnapshot
from reconciler.core.stack import DesiredJob
from reconciler.decide.plan import NO_ALLOWANCES, Action, PlannedAction
from tests.builders import a_job, a_stack, absent, made_by_0_1_0, seen
from tests.core.history import a_memory, past
from tests.core.test_decision_table import AB, DONE, OLD, TD, F, R, T, plan_everywhere, plan_for
from tests.crowd import plan_among_foreign_jobs

NEW, OTHER = a_job("new"), a_job("other")
WAS = a_job("old")


def created(*jobs: ObservedJob, beside: tuple[DesiredJob, ...] = (), **more: Any) -> PlannedAction:
    """Plan the create of the key `new`."""
    [action] = [a for a in plan_everywhere(a_stack(NEW, *beside), *jobs, **more).actions if a.key == "new"]
    assert action.action is Action.CREATE
    return action


def work_of(action: PlannedAction) -> tuple[str | None, str | None, int | None]:
    return action.rerun_of_stack, action.rerun_of_key, action.rerun_of


NONE = (None, None, None)


def test_key_renamed_without_formerly_runs_finished_work_of_the_old_key_again() -> None:
    action = created(seen(WAS, phase=DONE), seen(WAS, revision=2, phase=DONE))
    assert work_of(action) == (None, "old", 2)
    assert action.explanation.startswith("new; runs finished work of old r2 again")


HEIR = replace(OTHER, formerly=("old",))


@pytest.mark.parametrize(
    ("jobs", "beside", "memory", "work"),
    [
        # no finished work: not completed, of another declaration, or not owned
        *([[seen(WAS, phase=phase)], (), NO_HISTORY, NONE] for phase in (F, AB, TD, R, T)),
        ([seen(a_job("old", **OLD), phase=DONE)], (), NO_HISTORY, NONE),
        ([seen(WAS, phase=DONE, stack="speech")], (), NO_HISTORY, NONE),
        ([seen(WAS, phase=DONE, description="by hand")], (), NO_HISTORY, NONE),
        ([], (), NO_HISTORY, NONE),
        # still declared, or owned by another key; absent counts as renamed
        ([seen(WAS, phase=DONE)], (WAS,), NO_HISTORY, NONE),
        ([seen(WAS, phase=DONE)], (HEIR,), NO_HISTORY, NONE),
        ([seen(WAS, phase=DONE)], (absent("old"),), NO_HISTORY, (None, "old", 1)),
        # by the digest of an older version; restarted since; aged out; released
        ([seen(made_by_0_1_0(WAS), phase=DONE)], (), NO_HISTORY, (None, "old", 1)),
        ([seen(WAS, phase=AB)], (), a_memory(past(WAS, 1, DONE)), NONE),
        ([], (), a_memory(past(WAS, 2)), (None, "old", 2)),
        ([], (), a_memory(past(WAS)._replace(released_at_s=1.0)), NONE),
    ],
)
def test_create_runs_completed_work_of_an_undeclared_key_again(
    jobs: list[ObservedJob],
    beside: tuple[DesiredJob, ...],
    memory: HistorySnapshot,
    work: tuple[str | None, str | None, int | None],
) -> None:
    assert work_of(created(*jobs, beside=beside, memory=memory)) == work


@pytest.mark.parametrize("letter", ["a", "b"])
def test_work_finished_by_another_stack_counts_as_a_rerun(letter: str) -> None:
    finished = {letter + NEW.digest[1:]: FinishedWork("old", 3, "speech")}
    action = created(memory=HistorySnapshot(finished=finished))
    assert work_of(action) == ("speech", "old", 3)
    assert "runs finished work of old r3 of stack speech again" in action.explanation


def test_key_with_own_revisions_counts_by_them_only() -> None:
    memory = HistorySnapshot(finished={NEW.digest: FinishedWork("old", 3, "speech")})
    action = created(seen(a_job("new", **OLD), phase=F), seen(WAS, phase=DONE), memory=memory)
    assert work_of(action) == NONE


def test_deferred_key_counts_as_a_rerun_once_created() -> None:
    waiting = replace(NEW, needs=("other",))
    jobs = seen(WAS, phase=DONE), seen(OTHER, phase=R)
    # Among foreign jobs the ended one is not read, so there is no rename hint yet.
    among = plan_among_foreign_jobs(a_stack(waiting, OTHER), jobs, NO_HISTORY, Cloud.HUAWEI, NO_ALLOWANCES)
    for plan in (among, plan_for(a_stack(waiting, OTHER), *jobs)):
        assert [(a.action, work_of(a)) for a in plan.actions if a.key == "new"] == [(Action.DEFER, NONE)]
    done = seen(OTHER, phase=DONE)
    [action] = [a for a in plan_everywhere(a_stack(waiting, OTHER), jobs[0], done).actions if a.key == "new"]
    assert work_of(action) == (None, "old", 1)


def test_last_line_counts_the_members_of_a_renamed_sweep() -> None:
    old = [a_job(f"s-lr-{n}", algorithm__parameters={"lr": n}) for n in range(6)]
    new = [replace(job, key=job.key.replace("lr", "rate"), sweep="s") for job in old]
    jobs = [seen(job, phase=DONE) for job in old]
    plan = plan_everywhere(a_stack(*new), *jobs, allow=("reruns",))
    assert plan.last_line.endswith("6 of them run finished work again.")
    assert {a.key: a.rerun_of_key for a in plan.actions} == {
        new_.key: old_.key for old_, new_ in zip(old, new, strict=True)
    }
    blocked = plan_everywhere(a_stack(*new), *jobs)
    assert blocked.last_line.endswith("0 to keep. 6 blocked.")
    assert {a.blocked_by for a in blocked.actions} == {("reruns",)}


@pytest.mark.parametrize(
    ("finished", "way"),
    [
        (FinishedWork("old", 1), "name the old key under `formerly` of the new one"),
        (
            FinishedWork("old", 1, "speech"),
            "take the jobs of stack speech over (reconciler adopt --from-stack speech)",
        ),
    ],
)
def test_reruns_guard_names_the_edit_that_keeps_the_work(finished: FinishedWork, way: str) -> None:
    jobs = [a_job(f"new-{n}", algorithm__parameters={"lr": n}) for n in range(5)]
    memory = HistorySnapshot(finished={job.digest: finished for job in jobs})
    actions = plan_everywhere(a_stack(*jobs), memory=memory).actions
    assert {action.blocked_action for action in actions} == {Action.CREATE}
    assert all(f"{way}, or add --allow reruns, or --allow reruns=KEY" in action.detail for action in actions)
