"""What a plan costs in requests, the whole way from the loop to the service's log."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from reconciler import reconcile
from reconciler.core.stack import DesiredJob
from reconciler.decide.plan import Action, Plan
from tests.apply.service import FIND, PROJECT, SHOW, Service, a_service, marker
from tests.builders import a_job, a_stack

DECLARED = ("resnet50", "bert", "lr-sweep")
OLD = {"kind": "job", "algorithm": {}, "spec": {"resource": {"node_count": 1}}}


def put(service: Service, names: list[str], description: Callable[[str], str] = lambda name: "") -> None:
    """Create jobs in one step, as somebody did long ago."""
    with service.store.database.transaction(write=True):
        for name in names:
            metadata = {"name": name, "workspace_id": "0", "description": description(name)}
            service.store.create(PROJECT, {**OLD, "metadata": metadata})


def finish_all(service: Service) -> None:
    service.clock.advance(hours=1)
    service.store.jobs()


@pytest.fixture(scope="module")
def old_project() -> Iterator[Service]:
    """A project with 5,000 finished jobs."""
    with a_service(running=60) as service:
        put(service, [f"old-{n}" for n in range(5000)])
        finish_all(service)
        yield service


@contextmanager
def measured(service: Service, at_most_s: float = 10.0) -> Iterator[None]:
    service.forget_requests()
    began = time.process_time()
    yield
    assert time.process_time() - began < at_most_s


def plan(service: Service, jobs: list[DesiredJob]) -> Plan:
    return reconcile.plan(service.context(a_stack(*jobs)))


@contextmanager
def there(service: Service, jobs: list[DesiredJob], lr: float | None = None) -> Iterator[None]:
    """Let the jobs be on the service, created by us; in the end they are gone again."""
    made: list[str] = []
    with service.store.database.transaction(write=True):
        for job in jobs:
            was = job if lr is None else a_job(job.key, algorithm__parameters={"lr": lr})
            body: dict[str, Any] = dict(was.body or {})
            body["metadata"] = {"name": job.key, "description": marker(job.key, 1, was.digest)}
            made.append(service.store.create(PROJECT, body).id)
    try:
        yield
    finally:
        service.store.delete(PROJECT, *made)


@pytest.mark.parametrize("ended", [False, True], ids=["running", "completed"])
def test_plan_of_3_jobs_among_5000_finished_needs_at_most_12_requests(
    old_project: Service, ended: bool
) -> None:
    jobs = [a_job(key) for key in DECLARED]
    with there(old_project, jobs), measured(old_project):
        if ended:
            finish_all(old_project)
        decided = plan(old_project, jobs)
        assert {action.action for action in decided.actions} == {Action.KEEP}
        assert len(decided.actions) == 3
        assert 0 < len(old_project.app.requests) <= 12
        assert old_project.asked(FIND) == len(old_project.app.requests)


@pytest.mark.parametrize(("lr", "action"), [(None, Action.CREATE), (0.9, Action.REPLACE)])
def test_plan_that_starts_jobs_needs_an_additional_full_scan(
    old_project: Service, lr: float | None, action: Action
) -> None:
    """That nothing newer of the key exists, only a full scan proves: docs/semantics.md, "Reading"."""
    jobs = [a_job(key) for key in DECLARED]
    with there(old_project, jobs if lr else [], lr), measured(old_project):
        decided = plan(old_project, jobs)
        assert {planned.action for planned in decided.actions} == {action}
        assert old_project.asked(SHOW) == (3 if lr else 0), "what was declared then is asked of each"
        assert len(old_project.app.requests) <= 12 + 101


def test_plan_reports_its_read_strategy(old_project: Service) -> None:
    said: list[str] = []
    jobs = [a_job(key) for key in DECLARED]
    with there(old_project, jobs), measured(old_project):
        reconcile.plan(old_project.context(a_stack(*jobs))._replace(tell=said.append))
        requests = len(old_project.app.requests)
    assert said == [f"read 3 jobs: 4 filtered searches (active jobs, 3 names), {requests} requests"]


def test_plan_of_1000_unchanged_jobs_needs_at_most_32_requests() -> None:
    jobs = [a_job(f"job-{n}") for n in range(1000)]
    with a_service() as service, there(service, jobs), measured(service):
        decided = plan(service, jobs)
        assert [action.action for action in decided.actions] == [Action.KEEP] * 1000
        assert len(service.app.requests) <= 32


def test_plan_of_1000_unchanged_jobs_in_an_old_project_needs_at_most_its_scan(
    old_project: Service,
) -> None:
    jobs = [a_job(f"job-{n}") for n in range(1000)]
    with there(old_project, jobs), measured(old_project):
        decided = plan(old_project, jobs)
        assert {action.action for action in decided.actions} == {Action.KEEP}
        assert len(old_project.app.requests) <= 122
