"""What a plan, a drift check and a destroy read from a large workspace, and what they record."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, NoReturn

import pytest

from reconciler import reconcile
from reconciler.core.observed import Observation
from reconciler.core.ownership import sort_by_key
from reconciler.core.phase import Phase
from reconciler.core.ports import Backend
from reconciler.core.stack import DesiredJob, Stack
from reconciler.decide.outcome import Status
from reconciler.decide.plan import Action, Reason
from reconciler.errors import ServerError
from reconciler.reconcile import Context
from reconciler.records.recording import Recording
from tests.apply.conftest import *  # noqa: F403
from tests.apply.service import PROJECT, Service
from tests.builders import STACK, a_job, a_stack, seen
from tests.crowd import FOREIGN, Workspace, as_recorded, context_of, foreign

OLD: dict[str, Any] = {"algorithm__parameters": {"lr": 0.5}}
DONE = Phase.COMPLETED

THOUSAND = foreign(1000)


def needing(*upstream: str, key: str) -> DesiredJob:
    return replace(a_job(key), needs=upstream)


def whole(*jobs: DesiredJob) -> Stack:
    stack = a_stack(*jobs)
    return replace(stack, whole=stack.jobs)


# --- reads


@pytest.mark.parametrize(
    ("jobs", "owned", "scans"),
    [
        # nothing is started: searches are enough
        ([a_job()], [seen(a_job())], False),
        ([a_job()], [seen(a_job(), phase=DONE)], False),
        ([a_job()], [seen(a_job(), phase=Phase.FAILED)], False),
        ([a_job(description="new")], [seen(a_job())], False),
        # a job is started: only a scan proves that there is none newer
        ([a_job()], [], True),
        ([a_job()], [seen(a_job(**OLD))], True),
        ([a_job()], [seen(a_job(**OLD), phase=DONE)], True),
        ([a_job()], [seen(a_job(), phase=Phase.TERMINATED, stopped=True)], True),
        # deferred by `needs`: starts nothing
        ([a_job(), needing("a", key="b")], [seen(a_job())], False),
        ([a_job(), needing("a", key="b"), needing("b", key="c")], [seen(a_job())], False),
        ([a_job(), needing("a", key="b")], [seen(a_job(), phase=Phase.FAILED)], False),
        ([a_job(), needing("a", key="b")], [seen(a_job(), phase=DONE)], True),
    ],
)
def test_plan_scans_the_workspace_only_to_start_a_job(
    jobs: list[DesiredJob], owned: list[Any], scans: bool
) -> None:
    workspace = Workspace([*THOUSAND, *owned])
    for memory in (None, as_recorded(owned, STACK)):
        workspace.scanned = 0
        plan = reconcile.plan(context_of(whole(*jobs), workspace, memory))
        assert not plan.unknown
        assert (workspace.scanned > 1) is scans, "the first page tells what the rest would cost"


def test_details_are_requested_once_although_the_plan_reads_twice() -> None:
    before = seen(a_job(**OLD))
    workspace = Workspace([*FOREIGN, before])
    reconcile.plan(context_of(whole(a_job()), workspace, None))
    assert workspace.detailed == [before.id]


def test_unknown_key_says_why_its_details_could_not_be_read(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(_: Workspace, job_id: str) -> NoReturn:
        raise ServerError("out of order", code="ModelArts.0010", status=500, request_id=job_id)

    monkeypatch.setattr(Workspace, "details", fail)
    stack = whole(a_job(), a_job("b"))
    workspace = Workspace([seen(a_job(**OLD)), seen(a_job("b", **OLD))])
    why = "its details could not be read: server error: out of order"
    plan = reconcile.plan(context_of(stack, workspace, None))
    assert [(one.action, one.detail) for one in plan.actions] == [(Action.UNKNOWN, why)] * 2


def test_destroy_needs_no_scan() -> None:
    workspace = Workspace([*FOREIGN, seen(a_job())])
    plan = reconcile.destroy_plan(context_of(whole(a_job(), a_job("b")), workspace, None))
    assert [a.action for a in plan.actions] == [Action.TERMINATE]
    assert workspace.scanned == 1


def test_job_under_another_name_is_found_by_the_scan_before_its_key_starts_again() -> None:
    """An adopted job completed with the current declaration; no search for the key finds its name."""
    adopted = seen(a_job(), revision=2, name="by-hand", id_part="12345678", job_id="12345678-x", phase=DONE)
    failed = seen(a_job(lifecycle={"rerun": "old"}), phase=DONE)
    workspace = Workspace([*FOREIGN, adopted, failed])
    [kept] = reconcile.plan(context_of(whole(a_job()), workspace, None)).actions
    assert (kept.action, kept.reason) == (Action.KEEP, Reason.COMPLETED)


@pytest.mark.parametrize(
    "jobs",
    [
        [],
        [seen(a_job())],
        [seen(a_job(), phase=DONE)],
        [seen(a_job(), phase=Phase.FAILED)],
        [seen(a_job(**OLD))],
        [seen(a_job(), description="marker wiped")],
        [seen(a_job(), stack="other")],
        [seen(a_job(), revision=2, description="by hand"), seen(a_job())],
    ],
    ids=lambda jobs: (
        ", ".join(f"{job.name} {job.phase_text} {job.description[:20]}" for job in jobs) or "none"
    ),
)
@pytest.mark.parametrize("recorded_phase", [None, Phase.RUNNING, DONE, Phase.FAILED])
def test_drift_among_350_foreign_jobs_is_that_of_an_empty_workspace(
    jobs: list[Any], recorded_phase: Phase | None
) -> None:
    memory = None
    if recorded_phase is not None:
        memory = as_recorded([seen(a_job(), phase=recorded_phase)], STACK)
    alone, crowded = (
        reconcile.drift(context_of(whole(a_job()), Workspace([*others, *jobs]), memory))
        for others in ((), FOREIGN)
    )
    assert crowded == alone
    assert crowded.complete


# --- records


def context_on(service: Service, root: Path, *jobs: DesiredJob, **more: Any) -> Context:
    return service.context(whole(*jobs))._replace(recording=Recording(None, root, service.time, **more))


class Late:
    """A backend that runs a callback after reading the service."""

    def __init__(self, backend: Backend, then: Callable[[], object]) -> None:
        self._backend, self._then = backend, then

    def observe(self, *arguments: Any) -> Observation:
        observation = self._backend.observe(*arguments)
        self._then()
        return observation

    def __getattr__(self, name: str) -> Any:
        return getattr(self._backend, name)


def recorded(service: Service, root: Path, key: str = "a") -> list[tuple[int, str, bool]]:
    recording = Recording(None, root, service.time)
    memory = recording.memory(context_on(service, root).scope)
    recording.close()
    return [(one.number, one.phase_text, one.stopped) for one in memory.by_key.get(key, ())]


def test_plan_in_a_fresh_checkout_records_what_it_saw(service: Service, tmp_path: Path) -> None:
    service.run(a_job())
    reconcile.plan(context_on(service, tmp_path, a_job()))
    assert recorded(service, tmp_path) == [(1, "Running", False)]


def test_plan_without_owned_jobs_creates_no_store(service: Service, tmp_path: Path) -> None:
    reconcile.plan(context_on(service, tmp_path, a_job()))
    assert not (tmp_path / ".reconciler").exists()


def complete(service: Service, job: DesiredJob, root: Path) -> str:
    """Run a job whose completion only a plan observes; return its id."""
    made = service.run(job)
    service.store.set_phase(made.id, "Completed")
    reconcile.plan(context_on(service, root, job))
    return made.id


def test_completion_seen_by_a_plan_survives_the_aging_out(service: Service, tmp_path: Path) -> None:
    service.store.delete(PROJECT, complete(service, a_job(), tmp_path))
    [kept] = reconcile.plan(context_on(service, tmp_path, a_job())).actions
    assert (kept.action, kept.reason) == (Action.KEEP, Reason.AGED_OUT)


@pytest.mark.parametrize("aged_out", [0, 1], ids=["the older one", "the newer one"])
def test_reverted_declaration_reruns_although_a_record_has_aged_out(
    service: Service, tmp_path: Path, aged_out: int
) -> None:
    """The older record matches the declaration, but the outputs are those of the newer one."""
    jobs = [complete(service, job, tmp_path) for job in (a_job(), a_job(**OLD))]
    service.store.delete(PROJECT, jobs[aged_out])
    [made] = reconcile.plan(context_on(service, tmp_path, a_job())).actions
    assert (made.action, made.after and made.after.name) == (Action.CREATE, "a-r3")


def test_uncreatable_store_changes_no_plan(service: Service, tmp_path: Path) -> None:
    service.run(a_job())
    (tmp_path / "file").write_text("")
    messages: list[str] = []
    context = context_on(service, tmp_path / "file", a_job(), log_debug=messages.append)
    assert [a.action for a in reconcile.plan(context).actions] == [Action.KEEP]
    assert any("observations are not recorded" in text for text in messages)


@pytest.mark.parametrize("is_shared", [False, True], ids=["file beside the manifest", "shared store"])
@pytest.mark.parametrize("has_store", [False, True], ids=["no store yet", "a store"])
def test_job_created_concurrently_has_not_aged_out(
    service: Service, tmp_path: Path, is_shared: bool, has_store: bool
) -> None:
    """It was created after the service was read, and recorded before the history was read."""
    url = f"sqlite:///{tmp_path}/shared.sqlite3" if is_shared else None
    context = context_on(service, tmp_path, a_job(), a_job("b"))

    def anew(*, then: Callable[[], object] = lambda: None) -> Context:
        backend = Late(service.backend, then)
        recording = Recording(url, tmp_path, service.time)
        return context._replace(target=context.target._replace(backend=backend), recording=recording)

    def colleague() -> None:
        service.run(a_job())
        reconcile.plan(anew())

    if has_store:
        service.run(a_job("b"))
        reconcile.plan(anew())
    of_a = next(one for one in reconcile.plan(anew(then=colleague)).actions if one.key == "a")
    assert (of_a.action, of_a.reason) == (Action.CREATE, Reason.NOT_FOUND)


def test_own_termination_is_recorded_without_another_observation(service: Service, tmp_path: Path) -> None:
    from reconciler.apply.executor import EventStream
    from reconciler.core.past import RunKind
    from reconciler.rollout import Rollout

    service.run(a_job())
    context = context_on(service, tmp_path, a_job())
    stream = EventStream(service.time, service.events.append)
    result = Rollout(context, RunKind.DESTROY, stream, service.stop).run(reconcile.destroy_plan(context))
    assert [outcome.status for outcome in result.outcomes] == [Status.DONE]
    [(number, _, stopped)] = recorded(service, tmp_path)
    assert (number, stopped) == (1, True)


def test_renamed_away_job_is_no_revision_of_its_old_key() -> None:
    job = seen(a_job("new"), name="old", id_part="12345678", job_id="12345678-x")

    view = sort_by_key(Observation((job,)), STACK, frozenset({"old", "new"})).view("old")
    assert (view.owned, view.conflicting_jobs, view.next_revision) == ([], [], 2)
