"""What every backend promises, whatever lies between it and the service: one set of tests, every place.

On the live service they run only when it is asked for, see `places`.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from typing import Any

import pytest

from reconciler.core.canonical import mutable_paths
from reconciler.core.fields.field_types import Cloud
from reconciler.core.identity import parse_description
from reconciler.core.observed import ObservedJob
from reconciler.core.phase import ACTIVE, Phase
from reconciler.core.ports import Backend
from reconciler.emulator.routes import HUAWEI, ROUTES
from reconciler.errors import NameTaken, NotFound, Rejected, WrongPhase
from reconciler.modelarts.backend import ModelArtsBackend
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


def test_backend_satisfies_the_port(place: Place) -> None:
    port: Backend = place.backend
    assert port.observe().problem is None
    assert place.ours() == []


def test_created_job_is_observed_with_its_marker(place: Place) -> None:
    created = place.create(description=MARKER)
    place.wait(lambda: bool(place.ours()))
    (seen,) = place.ours()
    assert (seen.id, seen.name) == (created.id, place.name("resnet50"))
    assert seen.node_count == place.body()["spec"]["resource"]["node_count"]
    # It is believed only under the name that it says.
    assert str(parse_description(seen.description).marker) == MARKER
    assert place.prefix or seen.marker is not None
    assert created.phase in {Phase.CREATING, Phase.PENDING}


def test_details_equal_the_search_result(place: Place) -> None:
    place.directed("time does not stand still")
    created = place.create()
    (listed,) = place.ours()
    assert place.backend.details(created.id) == listed


def test_new_job_is_in_the_workspace_of_the_target(place: Place) -> None:
    body = place.body()
    del body["metadata"]["workspace_id"]
    assert place.backend.create(body).body["metadata"]["workspace_id"] == place.backend.workspace_id


def test_secret_in_a_body_is_sent_as_it_is(place: Place) -> None:
    body = place.body()
    body["algorithm"]["environments"] = {"HF_TOKEN": SecretText("hf_välue", "${var.hf}")}
    created = place.backend.create(body)
    details = place.backend.details(created.id).body
    assert details["algorithm"]["environments"] == {"HF_TOKEN": "hf_välue"}


def test_second_job_with_the_same_name_is_refused(place: Place) -> None:
    place.create()
    with pytest.raises(NameTaken) as refusal:
        place.create()
    assert refusal.value.code == "ModelArts.2751"
    assert refusal.value.request_id


def test_refused_create_body_has_an_error_code(place: Place) -> None:
    with pytest.raises(Rejected) as refusal:
        place.create("not a name!")
    assert type(refusal.value) is Rejected
    assert refusal.value.code.startswith("ModelArts.")


@pytest.mark.parametrize(("name", "found"), [("resnet50", 1), ("RESNET50", 1), ("resnet", 0), ("x", 0)])
def test_find_matches_the_whole_name_case_insensitively(place: Place, name: str, found: int) -> None:
    place.create("resnet50")
    place.create("resnet50-r2")
    assert len(place.backend.find(place.name(name))) == found


def test_name_check_is_unknown_on_otc(place: Place) -> None:
    place.create()
    asked = [place.backend.name_is_taken(place.name(name)) for name in ("resnet50", "other")]
    assert asked == ([None, None] if place.backend.cloud is Cloud.OTC else [True, False])


def test_backend_can_be_shared_by_threads(place: Place) -> None:
    threads = [threading.Thread(target=place.create, args=(f"job-{n}",)) for n in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert set(names_of(place, place.ours())) == {f"job-{n}" for n in range(4)}


# ── search ─────────────────────────────────────────────────────────────────────────────────────────


def test_search_reads_all_pages_up_to_the_limit(place: Place) -> None:
    app = place.directed("a hundred jobs cost too much")
    wanted = [f"job-{n}" for n in range(120)]
    for name in wanted:
        app.store.create(PROJECT, a_body(name))
    oldest_first, newest_first = place.backend.search(), place.backend.search(order="desc")
    assert [job.name for job in oldest_first.jobs] == wanted
    assert [job.name for job in newest_first.jobs] == wanted[::-1]
    assert oldest_first.requests == newest_first.requests == 3
    assert place.backend.search(limit=60).requests == 2


def three_jobs(place: Place) -> dict[str, ObservedJob]:
    """Jobs a, b and ab; b is terminated."""
    made = {name: place.create(name) for name in ("a", "b", "ab")}
    place.backend.terminate(made["b"].id)
    place.wait(lambda: place.backend.details(made["b"].id).phase is Phase.TERMINATED)
    return made


@pytest.mark.parametrize(
    ("key", "operator", "value", "found"),
    [
        ("name", "like", ["{}a"], ["a", "ab"]),
        ("name", "in", ["{}a"], ["a"]),
        ("name", "not", ["{}a"], ["b", "ab"]),
        ("name", "like", ["{}a", "{}b"], ["a", "b", "ab"]),
        ("phase", "in", sorted(phase.value for phase in ACTIVE), ["a", "ab"]),
        ("phase", "not", ["Terminated"], ["a", "ab"]),
        ("kind", "in", ["job"], ["a", "b", "ab"]),
        ("algorithm_name", "like", ["no such algorithm"], []),
        ("create_time", "between", ["2020-01-01T00:00:00Z", "2020-01-31T00:00:00Z"], []),
    ],
)  # fmt: skip
def test_search_returns_the_jobs_matching_a_filter(
    place: Place, key: str, operator: str, value: list[str], found: list[str]
) -> None:
    three_jobs(place)
    asked = {"key": key, "operator": operator, "value": [text.format(place.prefix) for text in value]}
    ours = {"key": "name", "operator": "like", "value": [place.prefix or "a", place.prefix or "b"]}
    listing = place.backend.search([asked, ours])
    assert listing.problem is None
    assert names_of(place, listing.jobs) == found


def test_search_by_id_returns_those_jobs(place: Place) -> None:
    made = three_jobs(place)
    asked = {"key": "id", "operator": "in", "value": [made["b"].id, made["ab"].id]}
    assert names_of(place, place.backend.search([asked]).jobs) == ["b", "ab"]


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

#: What can be changed on a job that exists: the PUT body, and where details show it.
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
    assert not missing, "each needs a row of CHANGES, and one of FIELDS in emulator/mutable.py"


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


def test_description_is_cleared_by_an_empty_one(place: Place) -> None:
    created = place.create(description="old")
    place.backend.update(created.id, {"description": ""})
    assert place.backend.details(created.id).description == ""


def test_priority_of_a_running_job_is_refused(place: Place) -> None:
    app = place.directed("it needs a dedicated pool")
    created = place.create()
    app.store.set_phase(created.id, "Running")
    with pytest.raises(Rejected):
        place.backend.update(created.id, {"spec": {"schedule_policy": {"priority": 2}}})


# ── terminate, delete ──────────────────────────────────────────────────────────────────────────────


def test_terminated_job_is_terminating_and_then_terminated(place: Place) -> None:
    created = place.create()
    place.backend.terminate(created.id)
    assert place.backend.details(created.id).phase in {Phase.TERMINATING, Phase.TERMINATED}
    place.wait(lambda: place.backend.details(created.id).phase is Phase.TERMINATED)


@pytest.mark.parametrize("ended", [False, True])
def test_terminate_of_a_terminating_or_ended_job_raises_wrong_phase(place: Place, ended: bool) -> None:
    created = place.create()
    place.backend.terminate(created.id)
    if ended:
        place.wait(lambda: place.backend.details(created.id).phase is Phase.TERMINATED)
    else:
        place.directed("what a second terminate meets is not documented")
    with pytest.raises(WrongPhase) as refusal:
        place.backend.terminate(created.id)
    assert (refusal.value.status, refusal.value.code) == (409, "ModelArts.2796")


def test_deleted_job_is_gone_after_a_while(place: Place) -> None:
    three_jobs(place)
    (ended,) = [job for job in place.ours() if job.phase is Phase.TERMINATED]
    place.backend.delete(ended.id)
    place.wait(lambda: place.is_gone(ended.id))
    assert names_of(place, place.ours()) == ["a", "ab"]


def test_delete_many_deletes_the_given_jobs_only(place: Place) -> None:
    made = [place.create(name) for name in ("a", "b", "c")]
    for job in made[:2]:
        place.backend.terminate(job.id)
    place.wait(lambda: all(place.backend.details(job.id).phase is Phase.TERMINATED for job in made[:2]))
    place.backend.delete_many({job.id: "job" for job in made[:2]})
    place.wait(lambda: all(place.is_gone(job.id) for job in made[:2]))
    assert names_of(place, place.ours()) == ["c"]


@pytest.mark.parametrize("method", ["details", "terminate", "delete"])
@pytest.mark.parametrize("job_id", [NOBODY, "..", "a/b", "", "batch-delete"])
def test_unknown_job_raises_not_found(place: Place, method: str, job_id: str) -> None:
    with pytest.raises(NotFound) as refusal:
        getattr(place.backend, method)(job_id)
    # The service says 400 for it, never 404.
    sent = ("ModelArts.2775", 400)
    assert (refusal.value.code, refusal.value.status) == (sent if job_id == NOBODY else ("", None))


@pytest.mark.parametrize(
    "call",
    [
        lambda place: place.backend.update(NOBODY, {"description": "x"}),
        lambda place: place.backend.logs.events(NOBODY),
        lambda place: place.backend.delete_many({NOBODY: "job"}),
        lambda place: place.backend.logs.preview(NOBODY, "worker-0"),
        lambda place: place.backend.logs.metrics(NOBODY, "worker-0"),
    ],
    ids=["update", "events", "delete many", "log preview", "metrics"],
)
def test_unknown_job_raises_not_found_with_its_code(place: Place, call: Callable[[Place], object]) -> None:
    with pytest.raises(NotFound) as refusal:
        call(place)
    assert refusal.value.code == "ModelArts.2775"


# ── watching ───────────────────────────────────────────────────────────────────────────────────────


def a_running_job(place: Place) -> str:
    """The id of a job that runs, for three minutes where time can be moved."""
    job_id = place.create().id
    place.wait(lambda: place.backend.details(job_id).phase is Phase.RUNNING)
    if place.emulator:
        place.emulator.store.clock.advance(minutes=3)
    return job_id


def refused_on_otc(place: Place, call: Callable[[], object]) -> bool:
    """Whether this is Open Telekom Cloud, which does not support `call`."""
    if place.backend.cloud is not Cloud.OTC:
        return False
    with pytest.raises(Rejected, match="does not support"):
        call()
    return True


def test_events_can_be_paged_and_filtered(place: Place) -> None:
    job_id = a_running_job(place)
    backend = place.backend
    everything = backend.logs.events(job_id, order="asc").events
    assert len(everything) > 1
    page = backend.logs.events(job_id, order="asc", limit=1, offset=0)
    assert (page.limit, [event.message for event in page.events]) == (1, [everything[0].message])
    assert backend.logs.events(job_id, level="Error").events == ()
    assert backend.logs.events(job_id, pattern="no such words").events == ()
    with pytest.raises(Rejected) as refusal:
        backend.logs.events(job_id, level="Mood")
    assert refusal.value.code == "ModelArts.50004000"


def test_tasks_have_names_and_addresses(place: Place) -> None:
    job_id = a_running_job(place)
    tasks = place.backend.logs.tasks
    if refused_on_otc(place, lambda: tasks(job_id)):
        return
    assert [task.task for task in tasks(job_id)] == place.backend.details(job_id).body["status"]["tasks"]
    assert all(task.ip for task in tasks(job_id))


def test_stages_of_a_running_job_are_listed(place: Place) -> None:
    job_id = a_running_job(place)
    stages = place.backend.logs.stages
    if not refused_on_otc(place, lambda: stages(job_id)):
        (run,) = stages(job_id).running_records
        assert [stage.name for stage in run.stages] == ["scheduling", "preparing", "running"]


def test_log_has_a_preview_and_two_urls(place: Place) -> None:
    job_id = a_running_job(place)
    backend = place.backend
    place.wait(lambda: backend.logs.preview(job_id, "worker-0") is not None)
    preview = backend.logs.preview(job_id, "worker-0")
    assert preview is not None
    assert preview.content
    shown, kept = (backend.logs.url(job_id, "worker-0", download=download) for download in (False, True))
    assert (shown or "").startswith("https://")
    assert shown != kept


def test_log_lines_are_limited_to_the_requested_number(place: Place) -> None:
    job_id = a_running_job(place)
    backend = place.backend
    if refused_on_otc(place, lambda: backend.logs.lines(job_id, "worker-0")):
        return
    place.wait(lambda: backend.logs.lines(job_id, "worker-0") is not None)
    found = backend.logs.lines(job_id, "worker-0", lines=2)
    assert found is not None
    assert len(found.content.splitlines()) == found.lines == 2


def test_metrics_of_a_running_task_include_cpu_usage(place: Place) -> None:
    job_id = a_running_job(place)
    place.wait(lambda: place.backend.logs.metrics(job_id, "worker-0") is not None)
    found = place.backend.logs.metrics(job_id, "worker-0")
    assert "cpuUsage" in {metric.metric for metric in found or ()}


def test_logs_and_metrics_before_the_start_are_none(place: Place) -> None:
    place.directed("it may start sooner")
    job_id = place.create().id
    backend = place.backend
    assert backend.logs.preview(job_id, "worker-0") is None
    assert backend.logs.url(job_id, "worker-0") is None
    assert backend.logs.metrics(job_id, "worker-0") is None


# ── offers, tags ───────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("flavor_type", [None, "CPU", "GPU"])
def test_flavors_can_be_filtered_by_type(place: Place, flavor_type: str | None) -> None:
    flavors = place.backend.catalog.flavors(flavor_type)
    assert flavors
    assert all(flavor.flavor_id for flavor in flavors)
    assert flavor_type is None or {flavor.flavor_type for flavor in flavors} == {flavor_type}


def test_engines_have_id_and_name(place: Place) -> None:
    engines = place.backend.catalog.engines()
    assert engines
    assert all(engine.engine_id and engine.engine_name for engine in engines)


def test_job_quota_counts_the_created_job(place: Place) -> None:
    place.create()
    quotas = place.backend.catalog.quotas
    if not refused_on_otc(place, quotas):
        (quota,) = quotas("job-num")
        assert 1 <= (quota.used or 0) <= (quota.quota or 0)


def test_tags_can_be_added_found_and_removed(place: Place) -> None:
    job_id, value = place.create().id, place.name("vision")
    backend = place.backend
    if refused_on_otc(place, lambda: backend.tags.of_job(job_id)):
        return
    backend.tags.add(job_id, {"team": "nlp", "cost": "42"})
    backend.tags.add(job_id, {"team": value})
    assert backend.tags.of_job(job_id) == {"team": value, "cost": "42"}
    assert value in backend.tags.of_project()["team"]
    assert [job.resource_id for job in backend.tags.find({"team": [value, "x"]})] == [job_id]
    assert backend.tags.count({"team": [value], "cost": ["42"]}) == 1
    assert backend.tags.count({"team": [f"{value}x"]}) == 0
    assert [job.id for job in place.backend.search(more={"tags": [{"key": "team", "values": [value]}]}).jobs]
    backend.tags.remove(job_id, ["cost", "never there"])
    assert backend.tags.of_job(job_id) == {"team": value}


def test_operations_missing_on_otc_are_refused_unsent() -> None:
    """What the backend refuses there unsent is what the emulator does not have there."""
    refused: dict[str, Callable[[ModelArtsBackend], object]] = {
        "ListTrainingJobTasks": lambda backend: backend.logs.tasks(NOBODY),
        "ListTrainingJobStages": lambda backend: backend.logs.stages(NOBODY),
        "ShowTrainingJobLogsFromAom": lambda backend: backend.logs.lines(NOBODY, "worker-0"),
        "ShowTrainingQuotas": lambda backend: backend.catalog.quotas(),
        "CreateTrainJobTags": lambda backend: backend.tags.add(NOBODY, {"a": "b"}),
        "DeleteTrainJobTags": lambda backend: backend.tags.remove(NOBODY, ["a"]),
        "ShowTrainJobTags": lambda backend: backend.tags.of_job(NOBODY),
        "ListTrainingJobTags": lambda backend: backend.tags.of_project(),
        "ListTrainingJobsByTags": lambda backend: backend.tags.find({}),
        "CountTrainingJobsByTags": lambda backend: backend.tags.count({}),
    }
    otherwise = {"ValidateTrainingJobName", "BatchDeleteTrainingJob"}
    missing = {route.operation for route in ROUTES if route.clouds == HUAWEI}
    assert refused.keys() | otherwise == missing
    with emulated("otc") as place:
        assert place.emulator is not None
        for call in refused.values():
            with pytest.raises(Rejected, match="Open Telekom Cloud does not support"):
                call(place.backend)
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
            lambda: backend.tags.add(theirs, {"a": "b"}),
            lambda: backend.tags.remove(theirs, ["a"]),
            lambda: place.backend.session.call("PUT", f"/v2/{PROJECT}/training-quotas", body={}),
        ]
        for do in forbidden:
            with pytest.raises(NotOurs):
                do()
        assert place.backend.details(theirs).phase is Phase.CREATING
        backend.tags.add(mine, {"a": "b"})
        place.backend.terminate(mine)
        backend.delete_many({mine: "job"})
        assert names_of(place, place.ours()) == ["theirs"]
