"""No healthy job is terminated for a create that would be refused; a refusal afterwards is reported."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

import pytest

from reconciler import reconcile
from reconciler.apply.catalog import CatalogReader
from reconciler.apply.executor import EventStream
from reconciler.core.catalog import EngineOffer, Offers, PoolChoice, missing
from reconciler.core.fields.field_types import Cloud
from reconciler.core.stack import DesiredJob
from reconciler.core.values import Source
from reconciler.decide.outcome import EventType, Result, Status
from reconciler.decide.plan import Plan
from reconciler.emulator import Effect, Fault
from reconciler.errors import Interrupted, ServerError
from reconciler.modelarts.http import ServiceResponse
from reconciler.modelarts.operations import Catalog
from tests.apply.service import CREATE, STOP, UPDATE, Service, a_service, the_only
from tests.builders import a_job, a_stack

FLAVORS, ENGINES = "ShowTrainingJobFlavors", "ShowTrainingJobEngines"
FLAVOR, ENGINE = "modelarts.vm.cpu.2u", "pytorch_1.8.0-cuda_10.2-py_3.7-ubuntu_18.04-x86_64"
POOL = "poolfaf38d76"
LR: dict[str, Any] = {"algorithm__parameters": {"lr": 0.5}}


class Target:
    """A service with a catalog, and the printed warnings."""

    def __init__(self, service: Service) -> None:
        self.service = service
        self.warnings: list[str] = []

    def carry_out(self, plan: Plan) -> Result:
        service = self.service
        service.forget_requests()
        service.events.clear()
        context = service.context(a_stack())
        target = context.target._replace(checks_offers=True)
        context.recording.warn = self.warnings.append
        context = context._replace(target=target)
        stream = EventStream(service.time, service.events.append)
        return reconcile.apply(context, plan, stream, service.stop, timeout_s=600)

    def apply(self, *jobs: DesiredJob) -> Result:
        return self.carry_out(self.service.plan(*jobs))


@contextmanager
def strict(cloud: Cloud = Cloud.HUAWEI) -> Iterator[Target]:
    """A service that refuses values missing from its catalog."""
    with a_service(cloud) as service:
        object.__setattr__(service.app.settings, "strict_catalogue", True)
        yield Target(service)


@pytest.fixture
def target() -> Iterator[Target]:
    with strict() as made:
        yield made


@pytest.fixture(params=list(Cloud), ids=str)
def either(request: pytest.FixtureRequest) -> Iterator[Target]:
    with strict(request.param) as made:
        yield made


def good(key: str = "a", **more: Any) -> DesiredJob:
    return a_job(key, algorithm__engine={"engine_id": ENGINE}, spec__resource={"flavor_id": FLAVOR}, **more)


def resource(key: str = "a", lifecycle: dict[str, Any] | None = None, **fields: Any) -> DesiredJob:
    return a_job(key, lifecycle=lifecycle, algorithm__engine={"engine_id": ENGINE}, spec__resource=fields)


def engine(**fields: Any) -> DesiredJob:
    return a_job(algorithm__engine=fields, spec__resource={"flavor_id": FLAVOR})


# --- values not offered: nothing is terminated


@pytest.mark.parametrize(
    ("edited", "path", "value"),
    [
        (resource(flavor_id=FLAVOR + "u"), "spec.resource.flavor_id", FLAVOR + "u"),
        (engine(engine_id=ENGINE + "x"), "algorithm.engine.engine_id", ENGINE + "x"),
        (
            engine(engine_name="PyTorhc", engine_version=ENGINE),
            *("algorithm.engine.engine_name", "PyTorhc"),
        ),
    ],
    ids=lambda value: str(value)[:30],
)
def test_replace_with_a_typo_leaves_the_running_job(
    either: Target, edited: DesiredJob, path: str, value: str
) -> None:
    service = either.service
    old = service.run(good())
    plan = service.plan(edited)
    source = Source(file="jobs.yaml", line=7, column=3)
    actions = tuple(action.model_copy(update={"source": source}) for action in plan.actions)
    outcome = the_only(either.carry_out(plan.model_copy(update={"actions": actions})))
    assert (outcome.status, outcome.job) == (Status.FAILED, old.id)
    for text in (f'{path} "{value}"', "(jobs.yaml:7:3); a was left unchanged"):
        assert text in outcome.detail
    assert (service.changes, service.phases(), either.warnings) == ([], {"a": "Running"}, [])


@pytest.mark.parametrize(
    ("fields", "code", "path"),
    [
        ({"pool_id": "poolfaf38d67"}, "ModelArts.2890", 'spec.resource.pool_id "poolfaf38d67"'),
        ({"pool_id": POOL, "flavor_id": "modelarts.pool.visual.huge"}, "ModelArts.2781", "visual.huge"),
    ],
)
def test_replace_with_a_refused_pool_leaves_the_running_job(
    target: Target, fields: dict[str, Any], code: str, path: str
) -> None:
    old = target.service.run(good())
    outcome = the_only(target.apply(resource(**fields)))
    assert (outcome.status, outcome.job, outcome.code) == (Status.FAILED, old.id, code)
    assert path in outcome.detail
    assert target.service.changes == []


def test_pool_check_is_skipped_on_a_cloud_without_pools() -> None:
    with strict(Cloud.OTC) as target:
        target.service.run(good())
        assert the_only(target.apply(resource(pool_id=POOL))).status is Status.DONE
        assert target.warnings == []


def test_replace_with_rejected_credentials_leaves_the_running_job(target: Target) -> None:
    target.service.run(good())
    plan = target.service.plan(good(**LR))
    target.service.fail(Fault(Effect.ANSWER, count=None, status=401, code="APIGW.0301"))
    assert the_only(target.carry_out(plan)).status is Status.DENIED
    assert target.service.changes == []


# --- values that may be offered: executed

FINE = [
    good(**LR),
    resource(pool_id=POOL, flavor_id="modelarts.pool.visual.4xlarge", node_count=99),
    engine(engine_name="Our-Own", engine_version="1", image_url="team/image:1"),
    a_job(algorithm={"id": "2e5451fe-913f-4ed6-a8ce-c5a9e1b4e9d1"}, spec__resource={"flavor_id": FLAVOR}),
]


@pytest.mark.parametrize("edited", FINE, ids=range(len(FINE)))
def test_replace_within_the_catalog_is_carried_out(either: Target, edited: DesiredJob) -> None:
    either.service.run(good())
    assert the_only(either.apply(edited)).status is Status.DONE
    assert (either.service.changes, either.warnings) == ([UPDATE, STOP, CREATE], [])


@pytest.mark.parametrize("status", [400, 401, 403, 404, 500])
def test_unavailable_catalogs_let_replaces_pass_with_one_warning_each(target: Target, status: int) -> None:
    service = target.service
    service.run(good("a"), good("b"))
    plan = service.plan(good("a", **LR), good("b", **LR))
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
    answer = ServiceResponse(200, text.encode(), {})
    monkeypatch.setattr(Catalog, "_get", lambda *_: answer)
    target.service.run(good())
    assert the_only(target.apply(resource(flavor_id="modelarts.vm.cpu.8u"))).status is Status.DONE


def test_several_replaces_read_the_catalog_once_and_a_typo_stops_no_other(target: Target) -> None:
    target.service.run(*map(good, "abc"))
    result = target.apply(good("a", **LR), resource("b", flavor_id="no-such"), good("c", **LR))
    assert [outcome.status for outcome in result.outcomes] == [Status.DONE, Status.FAILED, Status.DONE]
    assert target.service.phases()["b"] == "Running"
    assert (target.service.asked(FLAVORS), target.service.asked(ENGINES)) == (1, 1)


def test_only_a_replace_that_ends_a_job_first_reads_the_catalog(target: Target) -> None:
    assert the_only(target.apply(good())).status is Status.DONE
    assert target.service.asked(FLAVORS) + target.service.asked(ENGINES) == 0, "a create"
    target.service.time.sleep(10)
    wrong = resource(flavor_id="no-such", lifecycle={"replace_order": "create_first"})
    assert the_only(target.apply(wrong)).status is Status.FAILED
    assert (target.service.asked(FLAVORS), target.service.phases()) == (0, {"a": "Running"})
    assert the_only(target.apply()).status is Status.DONE
    assert target.service.asked(FLAVORS) + target.service.asked(ENGINES) == 0, "a terminate"


# --- refused later


@pytest.mark.parametrize(
    ("status", "code", "ended"),
    [(400, "ModelArts.2815", Status.FAILED), (403, "ModelArts.0112", Status.DENIED)],
)
def test_replace_refused_after_the_terminate_names_old_and_missing_revision(
    either: Target, status: int, code: str, ended: Status
) -> None:
    service = either.service
    old = service.run(good())
    service.fail(Fault(Effect.ANSWER, operation=CREATE, status=status, code=code))
    outcome = the_only(either.apply(good(**LR)))
    assert (outcome.status, outcome.job, outcome.code) == (ended, old.id, code)
    assert outcome.detail.startswith("r1 was ended; r2 could not be made: ")
    assert code in outcome.detail
    assert outcome.request_id
    [event] = [event.document() for event in service.events if event.type is EventType.ACTION_FAILED]
    assert (event["detail"], event["job"]) == (outcome.detail, old.id)
    assert service.phases() == {"a": "Terminated"}
    assert the_only(service.apply(good(**LR))).status is Status.DONE


@pytest.mark.parametrize(
    ("what", "message"),
    [
        ("over quota", "r1 was ended; r2 could not be made: the service rejected the request: The quota of"),
        ("name taken", "r1 was ended; r2 could not be made: a-r2 is taken by job "),
        ("Completed", "r1 is Completed; r2 could not be made: "),
        ("Failed", "r1 is Failed; r2 could not be made: "),
    ],
)
def test_failed_create_of_a_replace_says_how_the_old_job_ended(
    target: Target, what: str, message: str
) -> None:
    service = target.service
    old = service.run(good())
    plan = service.plan(good(**LR))
    if what == "over quota":
        service.store.quota = 1
    elif what == "name taken":
        service.gate.after(STOP, lambda: service.put_job("a-r2"))
    else:
        service.store.set_phase(old.id, what)
        service.fail(Fault(Effect.ANSWER, operation=CREATE, status=400, code="ModelArts.2815"))
    outcome = the_only(target.carry_out(plan))
    assert (outcome.status, outcome.job) == (
        Status.CONFLICT if what == "name taken" else Status.FAILED,
        old.id,
    )
    assert outcome.detail.startswith(message)


# --- the decision

OFFERS = Offers({FLAVOR: 16}, [EngineOffer("e-1", "PyTorch", "1"), EngineOffer("e-2", "PyTorch", "2")])


@pytest.mark.parametrize(
    ("body", "count"),
    [
        ({"tasks": [{"task_resource": {"flavor_id": FLAVOR}}, {"task_resource": {"flavor_id": "x"}}]}, 1),
        ({"tasks": [{"algorithm": {"engine": {"engine_id": "e-3"}}}]}, 1),
        ({"algorithm": {"engine": {"engine_id": "e-1", "engine_version": "other"}}}, 0),
        ({"algorithm": {"engine": {"engine_name": "PyTorch"}}}, 0),
        ({"algorithm": {"subscription_id": "s", "engine": {"engine_id": "x"}}}, 0),
    ],
)
def test_values_missing_from_the_catalog_are_found(body: dict[str, Any], count: int) -> None:
    assert len(missing(body, OFFERS)) == count
    assert missing(body, Offers()) == []


@pytest.mark.parametrize(("failure", "asked"), [(ServerError("down"), 1), (Interrupted("not sent"), 2)])
def test_only_service_failures_are_cached_by_the_catalog_reader(failure: Exception, asked: int) -> None:
    questions: list[object] = []

    def ask() -> None:
        questions.append(failure)
        raise failure

    reader = CatalogReader(lambda: SimpleNamespace(record_quota=ask))
    for _ in range(2):
        with pytest.raises(type(failure)):
            reader.quota()
    assert len(questions) == asked


def test_slow_catalog_part_does_not_block_another() -> None:
    is_asked, goes_on = threading.Event(), threading.Event()

    def ask_slowly() -> None:
        is_asked.set()
        goes_on.wait(10)

    catalog = SimpleNamespace(record_quota=ask_slowly, pool_refusal=lambda *_: None)
    reader = CatalogReader(lambda: catalog)
    with ThreadPoolExecutor(2) as pool:
        slow = pool.submit(reader.quota)
        try:
            assert is_asked.wait(10)
            assert pool.submit(reader.pool_refusal, PoolChoice(POOL, FLAVOR)).result(5) is None
        finally:
            goes_on.set()
        assert slow.result(10) is None
