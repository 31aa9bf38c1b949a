"""Jobs of a plan that the target would refuse, by its catalog."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any

import pytest

from reconciler.apply.catalog import answers_about
from reconciler.core.catalog import EngineOffer, Offers, PoolChoice, RecordQuota
from reconciler.core.stack import DesiredJob
from reconciler.core.values import PreflightReason as Why
from reconciler.decide.guards import CatalogCheck, blockers
from reconciler.decide.plan import Action, Plan, PlannedAction, Reason
from reconciler.decide.preflight import (
    CatalogAnswers,
    UncheckedPart,
    find,
    jobs_to_start,
    unchecked_warnings,
    with_check,
)
from reconciler.errors import Location
from reconciler.secrets import SecretText
from tests.builders import a_job, a_stack, absent, seen
from tests.core.test_decision_table import plan_for

FLAVOR, ENGINE, POOL = "modelarts.vm.cpu.2u", "pytorch_1.8", PoolChoice("pool1", None)
OFFERED = CatalogAnswers(
    Offers({FLAVOR: 16}, [EngineOffer(ENGINE, "PyTorch", "1.8")]), quota=RecordQuota(100, 10)
)
NOTHING_KNOWN = CatalogAnswers(unchecked=(UncheckedPart("flavors", "no answer"),))
NOTHING_OFFERED = OFFERED._replace(offers=Offers({}, []))


def left(number: int, quota: int = 10) -> CatalogAnswers:
    """Catalog responses with this many records left."""
    return OFFERED._replace(quota=RecordQuota(quota, quota - number))


def good(key: str = "a", **more: Any) -> DesiredJob:
    job = a_job(key, algorithm__engine={"engine_id": ENGINE}, spec__resource={"flavor_id": FLAVOR}, **more)
    return replace(job, location=Location("jobs.yaml", 7, 3))


def resource(**fields: Any) -> DesiredJob:
    return replace(good(), body={**(good().body or {}), "spec": {"resource": fields}})


def image(**more: Any) -> DesiredJob:
    engine = {"algorithm": {"command": "run", "engine": {"image_url": "team/image:1", **more}}}
    return replace(good(), body={**(good().body or {}), **engine})


def by_id() -> DesiredJob:
    return replace(good(), body={**(good().body or {}), "algorithm": {"id": "2e5451fe"}})


def by_name(version: str) -> DesiredJob:
    return a_job("a", algorithm__engine={"engine_name": "PyTorch", "engine_version": version})


def of_kind(kind: str) -> DesiredJob:
    return replace(good(), body={**(good().body or {}), "kind": kind})


def most(nodes: int | None) -> CatalogAnswers:
    """Catalog responses with a maximum number of nodes."""
    return OFFERED._replace(offers=Offers({FLAVOR: nodes}, OFFERED.offers.engines))


#: A secret without a value in this run: `why` needs none.
VALUELESS = SecretText("${var.secret}", "${var.secret}", has_value=False)
NAMELESS = OFFERED._replace(offers=Offers({FLAVOR: 16}, [EngineOffer(ENGINE, "", "")]))


def plan_of(*jobs: DesiredJob, edited: Iterable[DesiredJob] = ()) -> Plan:
    """Plan creates of some jobs and replaces of others."""
    ran = [seen(a_job(job.key)) for job in edited]
    return plan_for(a_stack(*jobs, *edited), *ran)


def found(plan: Plan, answers: CatalogAnswers) -> list[tuple[str, Why]]:
    return [(one.key, one.reason) for one in find(jobs_to_start(plan.actions), answers, "prod")]


REFUSED_POOL = OFFERED._replace(refused_pools={POOL: "Pool pool1 not found."})
IN_POOL = resource(pool_id="pool1")


@pytest.mark.parametrize(
    ("job", "answers", "reasons"),
    [
        (good(), OFFERED, []),
        (good(), NOTHING_KNOWN, []),
        (good(), NOTHING_OFFERED, [Why.ENGINE_NOT_OFFERED, Why.FLAVOR_NOT_OFFERED]),
        (good(), left(0), [Why.QUOTA_EXCEEDED]),
        (good(), left(-5), [Why.QUOTA_EXCEEDED]),
        (good(), left(0, quota=0), [Why.QUOTA_EXCEEDED]),
        (good(), left(1), []),
        (good(), OFFERED._replace(quota=None), []),
        (good(), OFFERED._replace(quota=RecordQuota(None, 10)), []),
        (good(), OFFERED._replace(quota=RecordQuota(5, None)), []),
        (good(), OFFERED._replace(quota=RecordQuota(-1, 10)), []),
        (resource(flavor_id=FLAVOR, node_count=16), OFFERED, []),
        (resource(flavor_id=FLAVOR, node_count=17), OFFERED, [Why.TOO_MANY_NODES]),
        (resource(flavor_id=FLAVOR, node_count=17), most(None), []),
        (resource(flavor_id=FLAVOR, node_count=17), most(0), []),
        (resource(flavor_id="other"), OFFERED, [Why.FLAVOR_NOT_OFFERED]),
        (resource(flavor_id="other"), OFFERED._replace(offers=Offers()), []),
        (IN_POOL, OFFERED, []),
        (IN_POOL, NOTHING_OFFERED._replace(offers=Offers({})), []),
        (IN_POOL, REFUSED_POOL, [Why.POOL_REJECTED]),
        (resource(pool_id="pool1", flavor_id="other"), OFFERED, []),
        (resource(pool_id="pool1", flavor_id="other"), REFUSED_POOL, []),
        (resource(pool_group_id="group", flavor_id="other"), OFFERED, []),
        (resource(pool_id="pool1", flavor_id={"of": "another type"}), OFFERED, []),
        (of_kind("edge_job"), NOTHING_OFFERED, []),
        (image(), NOTHING_OFFERED, [Why.FLAVOR_NOT_OFFERED]),
        (image(engine_name="PyTorch"), NOTHING_OFFERED._replace(offers=Offers({FLAVOR: 1}, [])), []),
        (by_id(), NOTHING_OFFERED._replace(offers=Offers({FLAVOR: 1}, [])), []),
        (by_name("1.8"), OFFERED, []),
        (by_name("1.9"), OFFERED, [Why.ENGINE_NOT_OFFERED]),
        (by_name("1.9"), NAMELESS, []),
        (by_name(VALUELESS), OFFERED, []),
        (resource(flavor_id=VALUELESS), OFFERED, []),
        (
            resource(pool_id=VALUELESS),
            OFFERED._replace(refused_pools={PoolChoice(VALUELESS, None): "no"}),
            [],
        ),
        (a_job("a", algorithm__engine={"engine_id": VALUELESS}), OFFERED, []),
    ],
)
def test_create_has_a_finding_for_each_invalid_value(
    job: DesiredJob, answers: CatalogAnswers, reasons: list[Why]
) -> None:
    assert found(plan_of(job), answers) == [("a", reason) for reason in reasons]


@pytest.mark.parametrize(
    "plan",
    [
        plan_for(a_stack(good()), seen(good())),
        plan_for(a_stack(good(description="other")), seen(good())),
        plan_for(a_stack(absent()), seen(good())),
        plan_for(a_stack(good(lifecycle={"on_change": "fail"})), seen(a_job())),
    ],
    ids=lambda plan: plan.actions[0].action.value,
)
def test_action_starting_no_job_has_no_findings(plan: Plan) -> None:
    assert not plan.actions[0].traits.starts_a_job
    assert found(plan, NOTHING_OFFERED._replace(quota=RecordQuota(0, 0))) == []
    assert asked(plan.actions) == ""


# ── quota ───────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(("records", "keys"), [(3, ""), (2, "abc"), (1, "abc"), (0, "abc")])
def test_insufficient_quota_blocks_every_create(records: int, keys: str) -> None:
    plan = plan_of(good("a"), good("b"), good("c"))
    assert found(plan, left(records)) == [(key, Why.QUOTA_EXCEEDED) for key in keys]
    text = f"{records} of 10 job records are left in the project, and 3 would be created"
    assert all(one.detail == text for one in find(jobs_to_start(plan.actions), left(records), "prod"))


def test_replaces_are_checked_and_counted_against_the_quota_like_creates() -> None:
    plan = plan_of(good("a"), edited=[good("b"), good("c")])
    assert [action.action for action in plan.actions] == [Action.CREATE, Action.REPLACE, Action.REPLACE]
    assert found(plan, left(3)) == []
    assert found(plan, left(2)) == [(key, Why.QUOTA_EXCEEDED) for key in "abc"]
    plan = plan_of(good("a"), edited=[replace(resource(flavor_id="other"), key="b")])
    assert found(plan, OFFERED) == [("b", Why.FLAVOR_NOT_OFFERED)]


def test_job_refused_for_its_body_is_not_counted_against_the_quota() -> None:
    plan = plan_of(good("a"), replace(resource(flavor_id="other"), key="b"))
    assert found(plan, left(1)) == [("b", Why.FLAVOR_NOT_OFFERED)]


# ── requests ──────────────────────────────────────────────────────────────────────────────────────


class Reader:
    """A catalog that records what was read."""

    def __init__(self) -> None:
        self.asked: list[str] = []

    def most_nodes(self) -> None:
        self.asked.append("flavors")

    def engines(self) -> None:
        self.asked.append("engines")

    def pool_refusal(self, choice: PoolChoice) -> None:
        self.asked.append(choice.pool_id)

    def quota(self) -> None:
        self.asked.append("quota")


def asked(actions: Iterable[PlannedAction], *, with_offers: bool = True) -> str:
    reader: Any = Reader()
    answers_about(reader, jobs_to_start(actions), with_offers=with_offers)
    return " ".join(sorted(reader.asked))


@pytest.mark.parametrize(
    ("jobs", "parts"),
    [
        ([good()], "engines flavors quota"),
        ([image()], "flavors quota"),
        ([by_name(VALUELESS)], "flavors quota"),
        ([resource(flavor_id=VALUELESS)], "engines quota"),
        ([resource(pool_id=VALUELESS)], "engines quota"),
        ([resource(pool_id="pool1", flavor_id=VALUELESS)], "engines pool1 quota"),
        ([by_id()], "flavors quota"),
        ([IN_POOL, replace(IN_POOL, key="b")], "engines pool1 quota"),
        (
            [a_job("a", tasks=[{"task_resource": {"pool_id": "pool1", "flavor_id": "f"}}])],
            "engines flavors pool1 quota",
        ),
    ],
)
def test_only_the_catalogs_that_jobs_refer_to_are_read(jobs: list[DesiredJob], parts: str) -> None:
    actions = plan_of(*jobs).actions
    assert asked(actions) == parts
    assert asked(actions, with_offers=False) == "quota"


# ── effect on the plan ────────────────────────────────────────────────────────────────────────────


def checked_plan(plan: Plan, answers: CatalogAnswers) -> Plan:
    found = find(jobs_to_start(plan.actions), answers, "prod")
    return with_check(plan, CatalogCheck(found, tuple(unchecked_warnings(answers.unchecked))), a_stack())


def test_finding_blocks_its_key_and_no_other() -> None:
    plan = checked_plan(plan_of(good("a"), replace(resource(flavor_id="other"), key="b")), OFFERED)
    assert [(one.action, one.reason, one.blocked_action) for one in plan.actions] == [
        (Action.CREATE, Reason.NOT_FOUND, None),
        (Action.BLOCKED, Reason.PREFLIGHT, Action.CREATE),
    ]
    assert plan.applyable
    assert plan.refusals == ()
    assert (plan.summary[Action.CREATE], plan.summary[Action.BLOCKED]) == (1, 1)
    assert plan.actions[1].blocked_by == ("flavor_not_offered",)
    assert plan.actions[1].detail == (
        'pre-flight: spec.resource.flavor_id "other" is not offered by the target; '
        "use one of: reconciler flavors --target prod; blocks create"
    )


@pytest.mark.parametrize(("jobs", "refusals"), [(4, 4), (5, 1)])
def test_finding_shared_by_five_or_more_jobs_is_reported_once(jobs: int, refusals: int) -> None:
    keys = [f"k{number:02}" for number in range(jobs)]
    wrong = (replace(resource(flavor_id="other"), key=key) for key in keys)
    plan = checked_plan(plan_of(*wrong), OFFERED)
    assert len(blockers(plan)) == refusals
    assert [one.key for one in plan.preflight or ()] == keys
    assert all(key in " ".join(one.why for one in blockers(plan)) for key in keys[:5])


@pytest.mark.parametrize("of", [by_name, lambda value: resource(flavor_id=value)], ids=["engine", "flavor"])
def test_secret_value_is_named_and_not_shown(of: Callable[[SecretText], DesiredJob]) -> None:
    plan = plan_of(of(SecretText("hush-hush", "${var.secret}")))
    [finding] = find(plan.actions, OFFERED, "prod")
    assert '"${var.secret}" is not offered by the target' in finding.detail
    assert "hush" not in finding.model_dump_json()
