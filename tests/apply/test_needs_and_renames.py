"""Executing `needs`, `formerly` and history actions: the resulting jobs."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from reconciler import reconcile
from reconciler.apply.executor import EventStream
from reconciler.core.past import RunKind
from reconciler.core.stack import DesiredJob
from reconciler.decide.outcome import Result
from reconciler.decide.plan import EVERY_GUARD, Action, Plan, Reason
from reconciler.reconcile import Context
from reconciler.records.recording import Recording
from reconciler.rollout import Rollout
from tests.apply.service import PROJECT, Service
from tests.builders import a_job, a_stack

NEW: dict[str, Any] = {"algorithm__parameters": {"lr": 0.5}}


@pytest.fixture
def recorded(service: Service, tmp_path: Path) -> Iterator[Service]:
    service.recording = Recording(f"sqlite://{tmp_path}/records.sqlite3", tmp_path, service.time)
    yield service
    service.recording.close()


def in_context(service: Service, *jobs: DesiredJob) -> Context:
    stack = a_stack(*jobs)
    return service.context(replace(stack, whole=stack.jobs), parallelism=1)


def planned(service: Service, *jobs: DesiredJob) -> Plan:
    return reconcile.plan(in_context(service, *jobs), EVERY_GUARD)


def applied(service: Service, *jobs: DesiredJob) -> Result:
    context = in_context(service, *jobs)
    stream = EventStream(service.time, service.events.append)
    rollout = Rollout(context, RunKind.APPLY, stream, service.stop, allowances=EVERY_GUARD)
    return rollout.run(reconcile.plan(context, EVERY_GUARD))


def decisions(plan: Plan) -> dict[str, tuple[Action, Reason]]:
    return {action.key: (action.action, action.reason) for action in plan.actions}


def renamed(**members: Any) -> DesiredJob:
    return replace(a_job("new", **members), formerly=("old",))


def test_renamed_job_is_remembered_under_its_new_key(recorded: Service) -> None:
    applied(recorded, a_job("old"))
    applied(recorded, renamed())
    recorded.store.set_phase(recorded.job("old").id, "Completed")
    planned(recorded, a_job("new"))
    recorded.store.delete(PROJECT, recorded.job("old").id)
    assert decisions(planned(recorded, a_job("new"))) == {"new": (Action.KEEP, Reason.AGED_OUT)}
    assert decisions(planned(recorded, a_job("old"))) == {"old": (Action.CREATE, Reason.NOT_FOUND)}


def test_marker_put_back_since_the_plan_is_not_overwritten(recorded: Service) -> None:
    applied(recorded, a_job())
    whole = recorded.description("a")
    recorded.describe("a", "mine now")
    plan = planned(recorded, a_job())
    recorded.describe("a", f"somebody put it back {whole}")
    recorded.carry_out(plan)
    assert recorded.description("a").endswith(whole)


def test_restored_job_of_another_declaration_is_replaced_by_the_next_apply(recorded: Service) -> None:
    applied(recorded, a_job())
    recorded.time.sleep(10)
    recorded.describe("a", "mine now")
    changed = a_job(**NEW, lifecycle={"on_change": "replace"})
    applied(recorded, changed)
    assert recorded.phases() == {"a": "Running"}
    applied(recorded, changed)
    assert recorded.phases() == {"a": "Terminated", "a-r2": "Creating"}
