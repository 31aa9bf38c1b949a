"""The number of requests of a plan, from the loop to the service's log."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from reconciler import reconcile
from reconciler.core.stack import DesiredJob
from reconciler.decide.plan import Action
from tests.apply.service import FIND, PROJECT, SHOW, Service, a_service, marker
from tests.builders import a_job, a_stack

OLD = {"kind": "job", "algorithm": {}, "spec": {"resource": {"node_count": 1}}}


@pytest.fixture(scope="module")
def old_project() -> Iterator[Service]:
    with a_service(running=60) as service:
        with service.store.database.transaction(write=True):
            for n in range(5000):
                metadata = {"name": f"old-{n}", "workspace_id": "0", "description": ""}
                service.store.create(PROJECT, {**OLD, "metadata": metadata})
        service.clock.advance(hours=1)
        service.store.jobs()
        yield service


@contextmanager
def there(service: Service, jobs: list[DesiredJob], lr: float | None = None) -> Iterator[None]:
    """Create jobs on the service, and remove them at the end."""
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


@pytest.mark.parametrize(
    ("count", "state", "action", "at_most", "shown"),
    [
        (3, "running", Action.KEEP, 5, 0),
        (3, "ended", Action.KEEP, 5, 0),
        # Only a full scan proves that the key has nothing newer: docs/concepts/crash-safety.md,
        # "Reading".
        (3, "absent", Action.CREATE, 5 + 101, 0),
        # The earlier declaration of each is requested.
        (3, "edited", Action.REPLACE, 8 + 101, 3),
        (1000, "running", Action.KEEP, 122, 0),
    ],
)
def test_requests_of_a_plan_among_5000_finished_jobs(
    old_project: Service, count: int, state: str, action: Action, at_most: int, shown: int
) -> None:
    jobs = [a_job(f"job-{n}") for n in range(count)]
    said: list[str] = []
    with there(old_project, [] if state == "absent" else jobs, 0.9 if state == "edited" else None):
        if state == "ended":
            old_project.clock.advance(hours=1)
            old_project.store.jobs()
        old_project.forget_requests()
        began = time.process_time()
        context = old_project.context(a_stack(*jobs))._replace(log_debug=said.append)
        decided = reconcile.plan(context, with_preflight=False)
        assert time.process_time() - began < 10.0
    assert [planned.action for planned in decided.actions] == [action] * count
    requests = len(old_project.app.requests)
    assert 0 < requests <= at_most
    assert (old_project.asked(SHOW), old_project.asked(FIND)) == (shown, requests - shown)
    if (count, state) == (3, "running"):
        assert said == [f"read 3 jobs: 4 filtered searches (active jobs, 3 names), {requests} requests"]


def test_plan_of_1000_unchanged_jobs_needs_at_most_32_requests() -> None:
    jobs = [a_job(f"job-{n}") for n in range(1000)]
    with a_service() as service, there(service, jobs):
        service.forget_requests()
        decided = reconcile.plan(service.context(a_stack(*jobs)))
        assert [action.action for action in decided.actions] == [Action.KEEP] * 1000
        assert len(service.app.requests) <= 32
