"""The contract of every backend: one set of tests for every place.

They run on the live service only on request, see `locations`.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from reconciler.core.canonical import mutable_paths
from reconciler.core.fields.field_types import Cloud
from reconciler.core.identity import parse_description
from reconciler.core.observed import ObservedJob
from reconciler.core.phase import ACTIVE, Phase
from reconciler.core.ports import Backend
from reconciler.errors import NameTaken, NotFound, Rejected, WrongPhase
from reconciler.modelarts.connect import ModelArtsBackend
from reconciler.secrets import SecretText
from tests.modelarts.building import MARKER, PROJECT, a_body
from tests.modelarts.locations import NOBODY, NotOurs, Place, emulated, guard, live_variables_missing

POOL = "pool-of-the-test"


def names_of(place: Place, jobs: list[ObservedJob]) -> list[str]:
    return [job.name.removeprefix(place.prefix) for job in jobs]


# ── create, read ───────────────────────────────────────────────────────────────────────────────────


def test_live_service_contract_is_skipped_without_its_variables() -> None:
    if missing := live_variables_missing(os.environ):
        pytest.skip(f"the contract is not proved against the live service: set {', '.join(missing)}")


def test_created_job_is_observed_with_its_marker(place: Place) -> None:
    port: Backend = place.backend
    assert (port.observe().problem, place.ours()) == (None, [])
    body = place.body(description=MARKER)
    del body["metadata"]["workspace_id"]
    body["algorithm"]["environments"] = {"HF_TOKEN": SecretText("hf_välue", "${var.hf}")}
    created = port.create(body)
    assert created.phase in {Phase.CREATING, Phase.PENDING}
    assert created.body["metadata"]["workspace_id"] == place.backend.workspace_id
    place.wait(lambda: bool(place.ours()))
    (seen,) = place.ours()
    assert (seen.id, seen.name) == (created.id, place.name("resnet50"))
    assert seen.node_count == body["spec"]["resource"]["node_count"]
    # A marker is valid only under the name it contains.
    assert str(parse_description(seen.description).marker) == MARKER
    assert place.prefix or seen.marker is not None
    details = port.details(created.id)
    assert details.body["algorithm"]["environments"] == {"HF_TOKEN": "hf_välue"}, "sent as it is"
    assert place.emulator is None or details == seen


def test_job_that_cannot_be_created_is_refused_with_its_code(place: Place) -> None:
    place.create()
    with pytest.raises(NameTaken) as taken:
        place.create()
    assert (taken.value.code, bool(taken.value.request_id)) == ("ModelArts.2751", True)
    with pytest.raises(Rejected) as refusal:
        place.create("not a name!")
    assert type(refusal.value) is Rejected
    assert refusal.value.code.startswith("ModelArts.")


def test_find_and_name_check_take_the_whole_name(place: Place) -> None:
    for name in ("resnet50", "resnet50-r2"):
        place.create(name)
    found = {
        name: len(place.backend.find(place.name(name))) for name in ("resnet50", "RESNET50", "resnet", "x")
    }
    assert found == {"resnet50": 1, "RESNET50": 1, "resnet": 0, "x": 0}
    taken = [place.backend.name_is_taken(place.name(name)) for name in ("resnet50", "other")]
    assert taken == ([None, None] if place.backend.cloud is Cloud.OTC else [True, False])


def test_backend_can_be_shared_by_threads(place: Place) -> None:
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(place.create, [f"job-{n}" for n in range(4)]))
    assert set(names_of(place, place.ours())) == {f"job-{n}" for n in range(4)}


# ── search ─────────────────────────────────────────────────────────────────────────────────────────


def test_search_reads_all_pages_in_either_order(place: Place) -> None:
    app = place.directed("a hundred jobs cost too much")
    wanted = [app.store.create(PROJECT, a_body(f"job-{n}")).name for n in range(120)]
    oldest_first, newest_first = place.backend.search(), place.backend.search(order="desc")
    assert [job.name for job in oldest_first.jobs] == wanted
    assert [job.name for job in newest_first.jobs] == wanted[::-1]
    assert oldest_first.requests == newest_first.requests == 3
    assert place.backend.search(limit=60).requests == 2


def three_jobs(place: Place) -> dict[str, ObservedJob]:
    made = {name: place.create(name) for name in ("a", "b", "ab")}
    place.backend.terminate(made["b"].id)
    place.wait(lambda: place.backend.details(made["b"].id).phase is Phase.TERMINATED)
    return made


def test_search_returns_the_jobs_matching_a_filter(place: Place) -> None:
    ids = {name: job.id for name, job in three_jobs(place).items()}
    a, b = place.name("a"), place.name("b")
    filters: list[tuple[str, str, list[str], list[str]]] = [
        ("name", "like", [a], ["a", "ab"]),
        ("name", "in", [a], ["a"]),
        ("name", "not", [a], ["b", "ab"]),
        ("name", "like", [a, b], ["a", "b", "ab"]),
        ("id", "in", [ids["b"], ids["ab"]], ["b", "ab"]),
        ("phase", "in", sorted(phase.value for phase in ACTIVE), ["a", "ab"]),
        ("phase", "not", ["Terminated"], ["a", "ab"]),
        ("kind", "in", ["job"], ["a", "b", "ab"]),
        ("algorithm_name", "like", ["no such algorithm"], []),
        ("create_time", "between", ["2020-01-01T00:00:00Z", "2020-01-31T00:00:00Z"], []),
    ]
    ours = {"key": "name", "operator": "like", "value": [place.prefix or "a", place.prefix or "b"]}
    for key, operator, value, found in filters:
        listing = place.backend.search([{"key": key, "operator": operator, "value": value}, ours])
        assert (listing.problem, names_of(place, listing.jobs)) == (None, found), (key, operator, value)


@pytest.mark.parametrize(
    ("asked", "codes"),
    [
        ({"filters": [{"key": "mood", "operator": "in", "value": ["good"]}]}, {"ModelArts.2807"}),
        ({"filters": [{"key": "phase", "operator": "near", "value": ["x"]}]}, {"ModelArts.2808"}),
        ({"filters": [{"key": "create_time", "operator": "between", "value": ["x"]}]}, {"ModelArts.2809"}),
        ({"sort_by": "mood"}, {"ModelArts.2790", "ModelArts.2789"}),
    ],
)
def test_invalid_search_is_a_problem(place: Place, asked: dict[str, Any], codes: set[str]) -> None:
    listing = place.backend.search(**({"filters": ()} | asked))
    assert isinstance(listing.problem, Rejected)
    assert listing.problem.code in codes


# ── update ─────────────────────────────────────────────────────────────────────────────────────────

#: Mutable fields: the PUT body, and the path in the details.
CHANGES: list[tuple[dict[str, Any], str, Any]] = [
    ({"description": f"new {MARKER}"}, "metadata.description", f"new {MARKER}"),
    ({"spec": {"schedule_policy": {"priority": 2}}}, "spec.schedule_policy.priority", 2),
    ({"spec": {"schedule_policy": {"preemptible": True}}}, "spec.schedule_policy.preemptible", True),
    (
        {"spec": {"notification": {"topic_urn": "urn:smn:x", "events": ["JobFailed"]}}},
        "spec.notification",
        {"topic_urn": "urn:smn:x", "events": ["JobFailed"]},
    ),
    ({"endpoints": {"ssh": {"key_pair_names": ["key-2"]}}}, "endpoints.ssh.key_pair_names", ["key-2"]),
    (
        {"metadata": {"annotation": {"jupyter-lab/enable": "true"}}},
        "metadata.annotations",
        {"job_template": "Template DL", "key_task": "worker", "jupyter-lab/enable": "true"},
    ),
]


def at(body: Any, path: str) -> Any:
    for part in path.split("."):
        body = body[part]
    return body


def test_every_mutable_field_is_in_the_table() -> None:
    tried = {path.removeprefix("metadata.") for _, path, _ in CHANGES}
    missing = {".".join(path) for path in mutable_paths()} - tried
    assert not missing, "each needs a row of CHANGES, and one of FIELDS in emulator/validation.py"


@pytest.mark.parametrize(("changes", "path", "value"), CHANGES, ids=[path for _, path, _ in CHANGES])
def test_update_changes_the_named_field_only(
    place: Place, changes: dict[str, Any], path: str, value: Any
) -> None:
    is_text = path == "metadata.description"
    if is_text:
        created = place.create(description="old")
    else:
        app = place.directed("it needs a dedicated pool, a topic and a key pair")
        body = place.body(description="old")
        body["spec"]["resource"] = {"pool_id": POOL, "node_count": 1}
        body["endpoints"] = {"ssh": {"key_pair_names": ["key-1"]}}
        created = place.backend.create(body)
        app.store.set_phase(created.id, "Pending")
    if place.backend.cloud is Cloud.OTC and not is_text:
        with pytest.raises(Rejected) as refusal:
            place.backend.update(created.id, changes)
        assert (refusal.value.status, refusal.value.code) == (400, "ModelArts.2788")
        return
    place.backend.update(created.id, changes)
    after = place.backend.details(created.id)
    assert at(after.body, path) == value
    assert (after.text == "old") is not is_text, "what is not named stays as it was"


def test_priority_of_a_running_job_is_refused(place: Place) -> None:
    app = place.directed("it needs a dedicated pool")
    created = place.create()
    app.store.set_phase(created.id, "Running")
    with pytest.raises(Rejected):
        place.backend.update(created.id, {"spec": {"schedule_policy": {"priority": 2}}})


# ── terminate, delete ──────────────────────────────────────────────────────────────────────────────


def test_terminated_job_is_terminating_and_then_terminated(place: Place) -> None:
    created, backend = place.create(), place.backend
    backend.terminate(created.id)
    assert backend.details(created.id).phase in {Phase.TERMINATING, Phase.TERMINATED}
    refusals = []
    if place.emulator:  # the effect of a second terminate is not documented
        with pytest.raises(WrongPhase) as refusal:
            backend.terminate(created.id)
        refusals.append(refusal.value)
    place.wait(lambda: backend.details(created.id).phase is Phase.TERMINATED)
    with pytest.raises(WrongPhase) as refusal:
        backend.terminate(created.id)
    assert {(one.status, one.code) for one in (*refusals, refusal.value)} == {(409, "ModelArts.2796")}


def test_deleted_jobs_are_gone_after_a_while(place: Place) -> None:
    made = [place.create(name) for name in ("a", "b", "c", "d")]
    for job in made[:3]:
        place.backend.terminate(job.id)
    place.wait(lambda: all(place.backend.details(job.id).phase is Phase.TERMINATED for job in made[:3]))
    place.backend.delete(made[0].id)
    place.backend.delete_many({job.id: "job" for job in made[1:3]})
    place.wait(lambda: all(place.is_gone(job.id) for job in made[:3]))
    assert names_of(place, place.ours()) == ["d"]


CALLS: dict[str, Callable[[ModelArtsBackend, str], object]] = {
    "details": lambda backend, job_id: backend.details(job_id),
    "terminate": lambda backend, job_id: backend.terminate(job_id),
    "delete": lambda backend, job_id: backend.delete(job_id),
    "update": lambda backend, job_id: backend.update(job_id, {"description": "x"}),
    "delete many": lambda backend, job_id: backend.delete_many({job_id: "job"}),
    "events": lambda backend, job_id: backend.logs.events(job_id),
    "log preview": lambda backend, job_id: backend.logs.preview(job_id, "worker-0"),
    "metrics": lambda backend, job_id: backend.logs.metrics(job_id, "worker-0"),
}


@pytest.mark.parametrize("call", CALLS)
def test_unknown_job_raises_not_found(place: Place, call: str) -> None:
    for job_id in (NOBODY, "..", "a/b", "", "batch-delete", "../x"):
        with pytest.raises(NotFound) as refusal:
            CALLS[call](place.backend, job_id)
        sent = ("ModelArts.2775", 400)
        assert (refusal.value.code, refusal.value.status) == (sent if job_id == NOBODY else ("", None))


# ── watching ───────────────────────────────────────────────────────────────────────────────────────


def a_running_job(place: Place) -> str:
    """Return the id of a running job, three minutes old on the emulator."""
    job_id = place.create().id
    place.wait(lambda: place.backend.details(job_id).phase is Phase.RUNNING)
    if place.emulator:
        place.emulator.store.clock.advance(minutes=3)
    return job_id


def refused_on_otc(place: Place, call: Callable[[], object]) -> bool:
    if place.backend.cloud is not Cloud.OTC:
        return False
    with pytest.raises(Rejected, match="does not support"):
        call()
    return True


def test_events_of_a_running_job(place: Place) -> None:
    job_id, logs = a_running_job(place), place.backend.logs
    everything = logs.events(job_id)
    assert len(everything) > 1
    assert logs.events(job_id, offset=1, limit=1) == everything[1:2]


def test_log_and_metrics_of_a_running_task(place: Place) -> None:
    job_id, logs = a_running_job(place), place.backend.logs
    place.wait(lambda: logs.preview(job_id, "worker-0") is not None)
    preview = logs.preview(job_id, "worker-0")
    assert preview is not None
    assert preview.content
    place.wait(lambda: logs.metrics(job_id, "worker-0") is not None)
    assert "cpuUsage" in {metric.metric for metric in logs.metrics(job_id, "worker-0") or ()}


def test_logs_and_metrics_before_the_start_are_none(place: Place) -> None:
    place.directed("it may start sooner")
    job_id, logs = place.create().id, place.backend.logs
    assert [ask(job_id, "worker-0") for ask in (logs.preview, logs.metrics)] == [None] * 2


# ── offers ─────────────────────────────────────────────────────────────────────────────────────────


def test_flavors_engines_and_quota_are_offered(place: Place) -> None:
    place.create()
    catalog = place.backend.catalog
    for flavor_type in (None, "CPU", "GPU"):
        flavors = catalog.flavor_offers(flavor_type).items
        assert flavors
        assert all(flavor.flavor_id for flavor in flavors)
        assert flavor_type is None or {flavor.type for flavor in flavors} == {flavor_type}
    engines = catalog.engine_offers().items
    assert engines
    assert all(engine.engine_id and engine.name for engine in engines)
    if not refused_on_otc(place, catalog.record_quota):
        quota = catalog.record_quota()
        assert quota is not None
        assert 1 <= (quota.used or 0) <= (quota.quota or 0)


def test_operations_missing_on_otc_are_refused_unsent() -> None:
    with emulated("otc") as place:
        assert place.emulator is not None
        for ask in (
            place.backend.catalog.record_quota,
            lambda: place.backend.catalog.pool_refusal("p", None),
        ):
            with pytest.raises(Rejected, match="Open Telekom Cloud does not support"):
                ask()
        assert place.backend.name_is_taken("x") is None
        assert not place.emulator.requests
        with pytest.raises(NotFound):
            place.backend.delete_many({NOBODY: "job"})
        assert [served.operation for served in place.emulator.requests] == ["DeleteTrainingJob"]


# ── the guard of the live service ──────────────────────────────────────────────────────────────────


def test_live_run_changes_only_its_own_jobs() -> None:
    with emulated("token") as place:
        theirs = place.create("theirs").id
        started = guard(place.backend, "mine-")
        mine = place.create("mine-1").id
        assert started == [mine]
        backend = place.backend
        forbidden: list[Callable[[], object]] = [
            lambda: place.create("not-mine"),
            lambda: place.backend.terminate(theirs),
            lambda: place.backend.delete(theirs),
            lambda: place.backend.update(theirs, {"description": "x"}),
            lambda: backend.delete_many({mine: "job", theirs: "job"}),
            lambda: place.backend.session.call("PUT", f"/v2/{PROJECT}/training-quotas", body={}),
        ]
        for do in forbidden:
            with pytest.raises(NotOurs):
                do()
        assert place.backend.details(theirs).phase is Phase.CREATING
        place.backend.terminate(mine)
        backend.delete_many({mine: "job"})
        assert names_of(place, place.ours()) == ["theirs"]
