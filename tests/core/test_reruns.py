"""docs/semantics.md, "Guards": a create that runs again what another key has finished is a rerun.

Another key is one that nobody declares any more, of this stack or of another one.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from reconciler.core.observed import ObservedJob
from reconciler.core.record import FinishedWork, HistorySnapshot
from reconciler.core.stack import DesiredJob
from reconciler.decide.plan import Action, PlannedAction
from tests.builders import a_job, a_stack, absent, made_by_0_1_0, seen
from tests.core.history import a_memory, past
from tests.core.test_decision_table import AB, DONE, OLD, TD, F, R, T, around, plan_for

__all__ = ["around"]  # every row in three workspaces

NEW, OTHER = a_job("new"), a_job("other")
WAS = a_job("old")


def created(*jobs: ObservedJob, beside: tuple[DesiredJob, ...] = (), **more: Any) -> PlannedAction:
    """The create of the key `new`."""
    [action] = [a for a in plan_for(a_stack(NEW, *beside), *jobs, **more).actions if a.key == "new"]
    assert action.action is Action.CREATE
    return action


def work_of(action: PlannedAction) -> tuple[str | None, str | None, int | None]:
    return action.rerun_of_stack, action.rerun_of_key, action.rerun_of


NONE = (None, None, None)


def test_key_renamed_without_formerly_runs_finished_work_of_the_old_key_again() -> None:
    action = created(seen(WAS, phase=DONE), seen(WAS, revision=2, phase=DONE))
    assert work_of(action) == (None, "old", 2)
    assert action.explanation.startswith("new; runs finished work of old r2 again")


@pytest.mark.parametrize(
    "jobs",
    [
        *([seen(WAS, phase=phase)] for phase in (F, AB, TD, R, T)),
        [seen(a_job("old", **OLD), phase=DONE)],
        [seen(WAS, phase=DONE, stack="speech")],
        [seen(WAS, phase=DONE, description="by hand")],
        [],
    ],
)
def test_job_that_did_not_complete_this_declaration_is_no_finished_work(jobs: list[ObservedJob]) -> None:
    assert work_of(created(*jobs)) == NONE


def test_declared_key_with_the_same_declaration_is_no_renamed_one() -> None:
    assert work_of(created(seen(WAS, phase=DONE), beside=(WAS,))) == NONE


def test_key_that_another_one_had_formerly_is_that_ones() -> None:
    heir = replace(OTHER, formerly=("old",))
    assert work_of(created(seen(WAS, phase=DONE), beside=(heir,))) == NONE


def test_key_declared_absent_counts_as_renamed() -> None:
    assert work_of(created(seen(WAS, phase=DONE), beside=(absent("old"),))) == (None, "old", 1)


def test_work_of_an_older_version_counts_by_its_own_digest() -> None:
    assert work_of(created(seen(made_by_0_1_0(WAS), phase=DONE))) == (None, "old", 1)


def test_job_that_the_service_restarted_since_it_was_recorded_is_no_finished_work() -> None:
    assert work_of(created(seen(WAS, phase=AB), memory=a_memory(past(WAS, 1, DONE)))) == NONE


def test_finished_work_whose_record_has_aged_out_counts() -> None:
    assert work_of(created(memory=a_memory(past(WAS, 2)))) == (None, "old", 2)


def test_released_revision_counts_no_more() -> None:
    assert work_of(created(memory=a_memory(past(WAS)._replace(released_at_s=1.0)))) == NONE


@pytest.mark.parametrize("letter", ["a", "b"])
def test_work_that_another_stack_finished_counts(letter: str) -> None:
    finished = {letter + NEW.digest[1:]: FinishedWork("old", 3, "speech")}
    action = created(memory=HistorySnapshot(finished=finished))
    assert work_of(action) == ("speech", "old", 3)
    assert "runs finished work of old r3 of stack speech again" in action.explanation


def test_key_with_revisions_of_its_own_is_judged_by_them() -> None:
    memory = HistorySnapshot(finished={NEW.digest: FinishedWork("old", 3, "speech")})
    action = created(seen(a_job("new", **OLD), phase=F), seen(WAS, phase=DONE), memory=memory)
    assert work_of(action) == NONE


def test_deferred_key_counts_once_it_is_created() -> None:
    waiting = replace(NEW, needs=("other",))
    jobs = seen(WAS, phase=DONE), seen(OTHER, phase=R)
    plan = plan_for(a_stack(waiting, OTHER), *jobs)
    assert [(a.key, a.action, work_of(a)) for a in plan.actions if a.key == "new"] == [
        ("new", Action.DEFER, NONE)
    ]
    done = seen(OTHER, phase=DONE)
    [action] = [a for a in plan_for(a_stack(waiting, OTHER), jobs[0], done).actions if a.key == "new"]
    assert work_of(action) == (None, "old", 1)


def test_last_line_counts_the_members_of_a_renamed_sweep() -> None:
    old = [a_job(f"s-lr-{n}", algorithm__parameters={"lr": n}) for n in range(6)]
    new = [replace(job, key=job.key.replace("lr", "rate"), sweep="s") for job in old]
    jobs = [seen(job, phase=DONE) for job in old]
    plan = plan_for(a_stack(*new), *jobs, allow=("reruns",))
    assert plan.last_line.endswith("6 of them run finished work again.")
    assert {a.key: a.rerun_of_key for a in plan.actions} == {
        new_.key: old_.key for old_, new_ in zip(old, new, strict=True)
    }
    blocked = plan_for(a_stack(*new), *jobs)
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
def test_guard_of_reruns_names_what_keeps_the_work(finished: FinishedWork, way: str) -> None:
    jobs = [a_job(f"new-{n}", algorithm__parameters={"lr": n}) for n in range(5)]
    memory = HistorySnapshot(finished={job.digest: finished for job in jobs})
    actions = plan_for(a_stack(*jobs), memory=memory).actions
    assert {action.blocked_action for action in actions} == {Action.CREATE}
    assert all(f"{way}, or add --allow reruns, or --allow reruns=KEY" in action.detail for action in actions)
