"""No healthy job ends for a create that would be refused; if it is refused all the same, that is said."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from reconciler import reconcile
from reconciler.apply.executor import EventStream
from reconciler.core.catalog import EngineOffer, Offers, missing, needs_engines, needs_flavors, pools
from reconciler.core.fields.field_types import Cloud
from reconciler.core.stack import DesiredJob
from reconciler.decide.outcome import EventType, Result, Status
from reconciler.decide.plan import Plan
from reconciler.emulator import Effect, Fault
from tests.apply.service import CREATE, STOP, UPDATE, Service, a_service, the_only
from tests.builders import a_job, a_stack

FLAVORS, ENGINES = "ShowTrainingJobFlavors", "ShowTrainingJobEngines"
FLAVOR, ENGINE = "modelarts.vm.cpu.2u", "pytorch_1.8.0-cuda_10.2-py_3.7-ubuntu_18.04-x86_64"
POOL = "poolfaf38d76"


class Target:
    """A service whose catalog is asked, and the warnings that were said."""

    def __init__(self, service: Service) -> None:
        self.service = service
        self.warnings: list[str] = []

    def carry_out(self, plan: Plan) -> Result:
        service = self.service
        service.forget_requests()
        service.events.clear()
        context = service.context(a_stack())
        context = context._replace(
            target=context.target._replace(checks_offers=True), tell=self.warnings.append
        )
        stream = EventStream(service.time, service.events.append)
        return reconcile.apply(context, plan, stream, service.stop, timeout_s=600)

    def replace(self, *jobs: DesiredJob) -> Result:
        """Apply changed jobs."""
        return self.carry_out(self.service.plan(*jobs))


@contextmanager
def strict(cloud: Cloud = Cloud.HUAWEI) -> Iterator[Target]:
    with a_service(cloud) as service:
        settings = service.app.settings
        object.__setattr__(settings, "strict_catalogue", True)
        yield Target(service)


@pytest.fixture
def target() -> Iterator[Target]:
    """A service that refuses what its catalog does not have."""
    with strict() as made:
        yield made


@pytest.fixture(params=list(Cloud), ids=str)
def either(request: pytest.FixtureRequest) -> Iterator[Target]:
    with strict(request.param) as made:
        yield made


def good(key: str = "a", **more: Any) -> DesiredJob:
    return a_job(key, algorithm__engine={"engine_id": ENGINE}, spec__resource={"flavor_id": FLAVOR}, **more)


def resource(**fields: Any) -> DesiredJob:
    return a_job(algorithm__engine={"engine_id": ENGINE}, spec__resource=fields)


def engine(**fields: Any) -> DesiredJob:
    return a_job(algorithm__engine=fields, spec__resource={"flavor_id": FLAVOR})


# ── what is not offered ends nothing ───────────────────────────────────────────────────────────────

TYPOS = [
    (resource(flavor_id="modelarts.vm.cpu.2uu"), "spec.resource.flavor_id", "modelarts.vm.cpu.2uu", FLAVOR),
    (resource(flavor_id=FLAVOR, node_count=17), "spec.resource.node_count", "17", "16"),
    (engine(engine_id=ENGINE + "x"), "algorithm.engine.engine_id", ENGINE + "x", ENGINE),
    (
        engine(engine_name="PyTorch", engine_version=ENGINE + "x"),
        "algorithm.engine.engine_version",
        ENGINE + "x",
        ENGINE,
    ),
    (
        engine(engine_name="PyTorhc", engine_version=ENGINE),
        "algorithm.engine.engine_name",
        "PyTorhc",
        "PyTorch",
    ),
]


@pytest.mark.parametrize(("edited", "path", "value", "nearest"), TYPOS, ids=lambda value: str(value)[:30])
def test_replace_with_a_typo_leaves_the_running_job(
    either: Target, edited: DesiredJob, path: str, value: str, nearest: str
) -> None:
    service = either.service
    old = service.run(good())
    outcome = the_only(either.replace(edited))
    assert (outcome.status, outcome.job) == (Status.FAILED, old.id)
    assert f'{path} "{value}"' in outcome.detail
    assert f'did you mean "{nearest}"?' in outcome.detail
    assert service.changes == []
    assert service.phases() == {"a": "Running"}
    assert ".stopped" not in service.description("a")
    assert either.warnings == []


@pytest.mark.parametrize(
    ("fields", "code", "path"),
    [
        ({"pool_id": "poolfaf38d67"}, "ModelArts.2890", 'spec.resource.pool_id "poolfaf38d67"'),
        ({"pool_id": POOL, "flavor_id": "modelarts.pool.visual.huge"}, "ModelArts.2781", "visual.huge"),
    ],
)
def test_replace_with_a_refused_pool_leaves_the_running_job(
    target: Target, fields: dict[str, str], code: str, path: str
) -> None:
    old = target.service.run(good())
    outcome = the_only(target.replace(resource(**fields)))
    assert (outcome.status, outcome.job, outcome.code) == (Status.FAILED, old.id, code)
    assert path in outcome.detail
    assert target.service.changes == []


def test_pool_is_no_question_and_no_warning_where_the_cloud_has_none() -> None:
    with strict(Cloud.OTC) as target:
        target.service.run(good())
        assert the_only(target.replace(resource(pool_id=POOL))).status is Status.DONE
        assert target.warnings == []


def test_failed_check_names_the_manifest_position(target: Target) -> None:
    from reconciler.core.values import Source

    target.service.run(good())
    plan = target.service.plan(resource(flavor_id="modelarts.vm.cpu.3u"))
    source = Source(file="jobs.yaml", line=7, column=3)
    plan = plan.model_copy(
        update={"actions": tuple(a.model_copy(update={"source": source}) for a in plan.actions)}
    )
    assert "(jobs.yaml:7:3); a was left unchanged" in the_only(target.carry_out(plan)).detail


def test_replace_with_rejected_credentials_leaves_the_running_job(target: Target) -> None:
    target.service.run(good())
    plan = target.service.plan(good(algorithm__parameters={"lr": 0.5}))
    target.service.fail(Fault(Effect.ANSWER, count=None, status=401, code="APIGW.0301"))
    assert the_only(target.carry_out(plan)).status is Status.DENIED
    assert target.service.changes == []


# ── what may be offered goes on ────────────────────────────────────────────────────────────────────

FINE = [
    good(algorithm__parameters={"lr": 0.5}),
    resource(flavor_id=FLAVOR, node_count=16),
    resource(pool_id=POOL),
    resource(pool_id=POOL, flavor_id="modelarts.pool.visual.4xlarge", node_count=99),
    engine(engine_name="PyTorch", engine_version=ENGINE),
    a_job(
        algorithm={"command": "python train.py", "engine": {"image_url": "team/image:1"}},
        spec__resource={"flavor_id": FLAVOR},
    ),
    engine(engine_name="Our-Own", engine_version="1", image_url="team/image:1"),
    a_job(algorithm={"id": "2e5451fe-913f-4ed6-a8ce-c5a9e1b4e9d1"}, spec__resource={"flavor_id": FLAVOR}),
]


@pytest.mark.parametrize("edited", FINE, ids=range(len(FINE)))
def test_replace_within_the_catalog_is_carried_out(either: Target, edited: DesiredJob) -> None:
    either.service.run(good())
    assert the_only(either.replace(edited)).status is Status.DONE
    assert either.service.changes == [UPDATE, STOP, CREATE]
    assert either.warnings == []


@pytest.mark.parametrize("status", [400, 401, 403, 404, 500])
def test_unavailable_catalogs_let_replaces_pass_with_one_warning_each(target: Target, status: int) -> None:
    service = target.service
    service.run(good("a"), good("b"))
    plan = service.plan(*(good(key, algorithm__parameters={"lr": 0.5}) for key in "ab"))
    for operation in (FLAVORS, ENGINES):
        service.fail(
            Fault(Effect.ANSWER, operation=operation, count=None, status=status, code="ModelArts.0112")
        )
    assert target.carry_out(plan).count(Status.DONE) == 2
    assert len(target.warnings) == 2
    assert any("cannot check flavors before replacing" in warning for warning in target.warnings)


@pytest.mark.parametrize("text", ['{"flavors": []}', '{"total_count": 99, "flavors": [{"flavor_id": "x"}]}'])
def test_incomplete_catalog_lets_the_replace_pass(
    target: Target, text: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    from reconciler.modelarts.operations import MODELS, Catalog

    listed = {"Flavors": MODELS["Flavors"].model_validate_json(text), "Engines": MODELS["Engines"]()}
    monkeypatch.setattr(Catalog, "_list", lambda _, shape, *__: listed[shape])
    target.service.run(good())
    assert the_only(target.replace(resource(flavor_id="modelarts.vm.cpu.8u"))).status is Status.DONE


def test_several_replaces_read_the_catalog_once(target: Target) -> None:
    keys = "abcd"
    target.service.run(*(good(key) for key in keys))
    result = target.replace(*(good(key, algorithm__parameters={"lr": 0.5}) for key in keys))
    assert result.count(Status.DONE) == len(keys)
    assert (target.service.asked(FLAVORS), target.service.asked(ENGINES)) == (1, 1)


def test_replace_with_a_typo_does_not_stop_another_replace(target: Target) -> None:
    target.service.run(good("a"), good("b"))
    wrong = a_job("b", algorithm__engine={"engine_id": ENGINE}, spec__resource={"flavor_id": "no-such"})
    result = target.replace(good("a", algorithm__parameters={"lr": 0.5}), wrong)
    assert [outcome.status for outcome in result.outcomes] == [Status.DONE, Status.FAILED]
    assert target.service.phases()["b"] == "Running"


def test_create_first_replace_reads_no_catalog(target: Target) -> None:
    target.service.run(good())
    wrong = a_job(
        algorithm__engine={"engine_id": ENGINE},
        spec__resource={"flavor_id": "no-such"},
        lifecycle={"replace_order": "create_first"},
    )
    assert the_only(target.replace(wrong)).status is Status.FAILED
    assert target.service.asked(FLAVORS) == 0
    assert target.service.phases() == {"a": "Running"}


def test_create_and_terminate_read_no_catalog(target: Target) -> None:
    assert the_only(target.replace(good())).status is Status.DONE
    assert the_only(target.carry_out(target.service.plan())).status is Status.DONE
    assert target.service.asked(FLAVORS) + target.service.asked(ENGINES) == 0


# ── refused all the same ───────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("fault", "status", "said"),
    [
        (Fault(Effect.ANSWER, operation=CREATE, status=400, code="ModelArts.2815"), Status.FAILED, "2815"),
        (Fault(Effect.ANSWER, operation=CREATE, status=403, code="ModelArts.0112"), Status.DENIED, "0112"),
    ],
)
def test_replace_refused_after_the_terminate_names_old_and_missing_revision(
    either: Target, fault: Fault, status: Status, said: str
) -> None:
    service = either.service
    old = service.run(good())
    service.fail(fault)
    outcome = the_only(either.replace(good(algorithm__parameters={"lr": 0.5})))
    assert (outcome.status, outcome.job, outcome.code) == (status, old.id, fault.code)
    assert outcome.detail.startswith("r1 was ended; r2 could not be made: ")
    assert said in outcome.detail
    assert outcome.request_id
    [event] = [event for event in service.events if event.type is EventType.ACTION_FAILED]
    assert event.document()["detail"] == outcome.detail
    assert event.document()["job"] == old.id
    assert service.phases() == {"a": "Terminated"}
    assert the_only(service.apply(good(algorithm__parameters={"lr": 0.5}))).status is Status.DONE


def test_replace_over_quota_names_the_terminated_revision(target: Target) -> None:
    old = target.service.run(good())
    target.service.store.quota = 1
    outcome = the_only(target.replace(good(algorithm__parameters={"lr": 0.5})))
    assert (outcome.job, outcome.code) == (old.id, "ModelArts.2815")
    assert (
        "r1 was ended; r2 could not be made: the service rejected the request: The quota of job-num"
        in outcome.detail
    )


def test_replace_with_name_taken_after_the_terminate_names_the_old_job(target: Target) -> None:
    service = target.service
    old = service.run(good())
    service.gate.after(STOP, lambda: service.put_job("a-r2"))
    outcome = the_only(target.replace(good(algorithm__parameters={"lr": 0.5})))
    assert (outcome.status, outcome.job) == (Status.CONFLICT, old.id)
    assert outcome.detail.startswith("r1 was ended; r2 could not be made: a-r2 is taken by job ")


@pytest.mark.parametrize(
    ("phase", "words"), [("Completed", "r1 is Completed; "), ("Failed", "r1 is Failed; ")]
)
def test_job_ended_by_itself_is_not_reported_as_ended_by_the_replace(
    target: Target, phase: str, words: str
) -> None:
    service = target.service
    old = service.run(good())
    plan = service.plan(good(algorithm__parameters={"lr": 0.5}))
    service.store.set_phase(old.id, phase)
    service.fail(Fault(Effect.ANSWER, operation=CREATE, status=400, code="ModelArts.2815"))
    assert the_only(target.carry_out(plan)).detail.startswith(words + "r2 could not be made: ")


# ── the decision ───────────────────────────────────────────────────────────────────────────────────

OFFERS = Offers(
    {FLAVOR: 16, "big": None}, [EngineOffer("e-1", "PyTorch", "1"), EngineOffer("e-2", "PyTorch", "2")]
)


@pytest.mark.parametrize(
    ("body", "paths"),
    [
        ({}, []),
        ({"spec": {"resource": {"flavor_id": "big", "node_count": 1000}}}, []),
        ({"spec": {"resource": {"pool_group_id": "g", "flavor_id": "x"}}}, []),
        ({"tasks": [{"task_resource": {"flavor_id": FLAVOR}}, {"task_resource": {"flavor_id": "x"}}]}, 1),
        ({"tasks": [{"algorithm": {"engine": {"engine_id": "e-3"}}}]}, 1),
        ({"algorithm": {"engine": {"engine_id": "e-1", "engine_version": "other"}}}, []),
        ({"algorithm": {"engine": {"engine_name": "PyTorch"}}}, []),
        ({"algorithm": {"subscription_id": "s", "engine": {"engine_id": "x"}}}, []),
    ],
)
def test_values_missing_from_the_catalog_are_found(body: dict[str, Any], paths: Any) -> None:
    found = missing(body, OFFERS)
    assert len(found) == (paths or 0)
    assert missing(body, Offers()) == []


@pytest.mark.parametrize(
    ("needs", "body"),
    [
        (needs_flavors, {"spec": {"resource": {"pool_id": "p", "flavor_id": "x"}}}),
        (needs_flavors, {}),
        (needs_engines, {"algorithm": {"engine": {"image_url": "x", "engine_id": "y"}}}),
        (needs_engines, {"algorithm": {"id": "x", "engine": {"engine_id": "y"}}}),
    ],
)
def test_body_without_checkable_values_needs_no_catalog(
    needs: Callable[[Any], bool], body: dict[str, Any]
) -> None:
    assert not needs(body)


def test_pools_of_tasks_are_found() -> None:
    body = {"tasks": [{"task_resource": {"pool_id": "p", "flavor_id": "f"}}], "spec": None}
    assert [*pools(body)] == [("tasks[0].task_resource.pool_id", ("p", "f"))]
