"""`reconciler adopt`, as a user calls it: jobs that were started by hand, and stacks that were renamed."""

from __future__ import annotations

import copy
import json
import re
from pathlib import Path
from typing import Any

import pytest
from ruamel.yaml import YAML

from reconciler.core.identity import parse_description
from reconciler.emulator import Effect, Fault, Job
from reconciler.emulator.validation import KINDS as JOB_KINDS
from tests.cli.conftest import Reconciler, Said, Service, manifest, write
from tests.cli.lock_helpers import held_by

SHOW, UPDATE, CREATE = "ShowTrainingJobDetails", "ChangeTrainingJobDescription", "CreateTrainingJob"
CHANGING = {UPDATE, CREATE, "StopTrainingJob", "DeleteTrainingJob"}


def by_hand(service: Service, name: str = "a", description: str = "by hand", **parameters: str) -> Job:
    """Start the job of the manifest by hand."""
    body: dict[str, Any] = {
        "kind": "job",
        "metadata": {"name": name, "workspace_id": "0", "description": description},
        "algorithm": {
            "code_dir": "obs://b/code/",
            "boot_file": "obs://b/code/train.py",
            "engine": {"engine_id": "pytorch_1.8.0-cuda_10.2-py_3.7-ubuntu_18.04-x86_64"},
            "parameters": [
                {"name": name, "value": value} for name, value in {"lr": "0.1", **parameters}.items()
            ],
        },
        "spec": {"resource": {"flavor_id": "modelarts.vm.cpu.2u", "node_count": 1}},
    }
    return service.store.create("p1", body)


@pytest.fixture
def job(service: Service) -> Job:
    """A declared key `a`, and its job that was started by hand."""
    write(manifest("a", url=service.url))
    return by_hand(service)


def descriptions(service: Service) -> dict[str, str]:
    """Name → description of each job."""
    return {job.body["metadata"]["name"]: job.body["metadata"]["description"] for job in service.store.jobs()}


def running(service: Service) -> None:
    """Let the jobs run."""
    service.clock.advance(seconds=60)


def check_nothing_changes(reconciler: Reconciler, keep: int = 1) -> None:
    """`plan` has nothing to do."""
    said = reconciler("plan", "--detailed-exitcode")
    assert said.code == 0, said.out
    assert f"0 to create, 0 to update, 0 to replace, 0 to terminate, {keep} to keep." in said.out


def changing(service: Service) -> list[str]:
    """The requests that may have changed something."""
    return [served.operation for served in service.app.requests if served.operation in CHANGING]


def pasted(text: str, printed: str) -> str:
    """The manifest with the YAML of an output merged into it, as a person would."""
    yaml = YAML(typ="safe")
    tree, patch = yaml.load(text), yaml.load(printed[printed.index("\njobs:") :])

    def merge(under: Any, over: Any) -> Any:
        for name, value in over.items():
            if value is None:
                under.pop(name, None)
            elif isinstance(value, dict) and isinstance(under.get(name), dict):
                merge(under[name], value)
            else:
                under[name] = value
        return under

    return json.dumps(merge(tree, patch))


# --- one job


@pytest.mark.parametrize("name", ["a", "somebodys-experiment"])
def test_job_that_was_started_by_hand_is_adopted_and_kept(
    reconciler: Reconciler, service: Service, name: str
) -> None:
    write(manifest("a", url=service.url))
    job = by_hand(service, name)
    running(service)
    said = reconciler("adopt", "a", job.id, "--yes")
    assert said.code == 0, said.err
    assert 'description: "by hand" -> "a of the test"' in said.out
    text, marker = parse_description(descriptions(service)[name])
    assert text == "a of the test"
    assert marker is not None
    assert (marker.stack, marker.key, marker.revision, marker.id_part) == ("test", "a", 1, job.id[:8])
    assert changing(service) == [UPDATE]
    check_nothing_changes(reconciler)
    assert "Drift: none" in reconciler("drift").out
    history = reconciler("history", "a").out
    assert "adopt: complete" in history
    assert "declared:" in history
    assert "train.py" in history


def test_adopted_job_is_replaced_by_an_edit_as_any_other(reconciler: Reconciler, service: Service) -> None:
    write(manifest("a", url=service.url))
    job = by_hand(service, "odd")
    running(service)
    assert reconciler("adopt", "a", job.id, "--yes").code == 0
    write(manifest("a", url=service.url, lr="0.2"))
    said = reconciler("plan", "--json").document
    [action] = said["actions"]
    assert (action["action"], action["after"]["name"]) == ("replace", "a-r2")
    assert [change["path"] for change in action["changes"]] == ["algorithm.parameters.lr"]


@pytest.mark.parametrize("phase", ["Completed", "Failed", "Terminated", "Abnormal"])
def test_job_that_has_ended_is_adopted_too(
    reconciler: Reconciler, service: Service, job: Job, phase: str
) -> None:
    service.store.set_phase(job.id, phase)
    assert reconciler("adopt", "a", job.id, "--yes").code == 0
    check_nothing_changes(reconciler)


def test_job_that_differs_is_refused_with_the_yaml_that_makes_it_equal(
    reconciler: Reconciler, service: Service
) -> None:
    path = write(manifest("a", url=service.url, more="limits: {lost_time: 1h}\n", lr="0.5, epochs: 3"))
    job = by_hand(service, batch="64")
    said = reconciler("adopt", "a", job.id, "--yes")
    assert said.code == 3
    assert 'algorithm.parameters.lr: "0.1" -> "0.5"' in said.out
    assert (
        "To declare the job of a as it is, merge this into its entry (null: leave the field out):" in said.out
    )
    assert changing(service) == []
    path.write_text(pasted(path.read_text(), said.out))
    assert reconciler("adopt", "a", job.id, "--yes").code == 0
    check_nothing_changes(reconciler)


def test_job_that_differs_is_taken_as_it_is_on_request(reconciler: Reconciler, service: Service) -> None:
    write(manifest("a", url=service.url, lr="0.5"))
    job = by_hand(service)
    said = reconciler("adopt", "a", job.id, "--accept", "--yes")
    assert said.code == 0
    assert "warning: a: differs from the declaration: algorithm.parameters.lr" in said.out
    check_nothing_changes(reconciler)


def test_secret_of_a_job_is_not_shown(reconciler: Reconciler, service: Service) -> None:
    write(manifest("a", url=service.url))
    job = by_hand(service, hf_token="hf_abcdefghijklmnopqrstuvwxyz0123")
    said = reconciler("adopt", "a", job.id)
    assert said.code == 3
    assert "hf_token: ${var.HF_TOKEN}" in said.out
    assert "hf_abc" not in said.out + said.err


def test_priority_of_a_queued_job_becomes_the_declared_one(reconciler: Reconciler, service: Service) -> None:
    text = manifest("a", url=service.url)
    write(text.replace("    spec:\n", "    spec:\n      schedule_policy: {priority: 3}\n"))
    job = by_hand(service)
    service.store.set_phase(job.id, "Pending")
    service.store.hold(job.id)
    assert reconciler("adopt", "a", job.id, "--yes").code == 0
    assert service.store.find(job.id).body["spec"]["schedule_policy"]["priority"] == 3
    check_nothing_changes(reconciler)


HOSTILE = "\x1b[31m <b> ::error:: reconciler.test.a.r1.b000000000000 & `rm` $(x) ${var.x}"


def test_hostile_description_steers_nothing(reconciler: Reconciler, service: Service, job: Job) -> None:
    service.store.edit(job.id, lambda body: body["metadata"].update(description=HOSTILE))
    said = reconciler("adopt", "a", job.id, "--yes")
    assert said.code == 0
    assert "\x1b" not in said.out + said.err
    check_nothing_changes(reconciler)


# --- what is refused


def refused(said: Said, *words: str) -> None:
    assert said.code == 3
    for word in words:
        assert word in said.out


def test_job_of_another_stack_is_its_own(reconciler: Reconciler, service: Service) -> None:
    write(manifest("a", url=service.url))
    job = by_hand(service, description="x reconciler.other.a.r1.b000000000000")
    refused(reconciler("adopt", "a", job.id, "--yes"), "stack other", "reconciler release a")
    assert "have stack other release it (there: reconciler release a)" in reconciler("plan").out


def test_job_that_is_ours_already_is_nothing_to_do(reconciler: Reconciler, service: Service) -> None:
    write(manifest("a", "b", url=service.url))
    assert reconciler("apply", "--yes").code == 0
    job = service.store.jobs()[0]
    own, other = job.body["metadata"]["name"], {"a": "b", "b": "a"}[job.body["metadata"]["name"]]
    said = reconciler("adopt", own, job.id)
    assert said.code == 0
    assert f"nothing to do: {own} is already r1 of this key" in said.out
    refused(reconciler("adopt", other, job.id), f"write `formerly: {own}`")


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (("adopt",), 64, "a key and the id of a job are needed"),
        (("adopt", "a"), 64, "a key and the id of a job are needed"),
        (("adopt", "aa", "ID"), 64, 'did you mean "a"?'),
        (("adopt", "a", "NAME"), 64, "fix: reconciler adopt a ID"),
        (("adopt", "a", "0b5e7a1e-0000-0000-0000-000000000000"), 1, "no such job"),
        (("adopt", "--all", "--from-stack", "x"), 64, "two ways to choose jobs"),
        (("adopt", "--match", "*", "a", "ID"), 64, "--match chooses among the jobs of --all"),
        (("adopt", "--from-stack", "x", "--accept"), 64, "compares nothing"),
        (("adopt", "--from-stack", "test"), 64, "is the name of this stack"),
        (("adopt", "--from-stack", "Not A Stack"), 64, "not a stack name"),
        (("adopt", "--write", "new", "ID"), 64, "without FILE it stands last"),
        (("adopt", "a", "ID", "--write"), 64, "already declared"),
        (("adopt", "new", "ID", "--write", "no.yaml"), 64, "no such manifest file"),
        (("adopt", "not.a.key", "ID", "--write"), 64, "not a key"),
    ],
)
def test_wrong_use(
    reconciler: Reconciler, service: Service, arguments: tuple[str, ...], code: int, said: str
) -> None:
    write(manifest("a", url=service.url))
    job = by_hand(service, "somebodys")
    words = [{"ID": job.id, "NAME": "somebodys"}.get(word, word) for word in arguments]
    found = reconciler(*words)
    assert found.code == code
    assert said.replace("ID", job.id) in found.err
    assert changing(service) == []


@pytest.mark.parametrize(
    ("operation", "effect", "more", "code"),
    [
        (None, None, (), 3),  # there is nobody to ask
        (SHOW, Effect.MALFORMED_JOB, ("--yes",), 8),
        ("ListTrainingJobs", Effect.MALFORMED_JOB, ("--yes",), 8),
    ],
    ids=["not confirmed", "unreadable job", "unreadable list"],
)
def test_adoption_that_is_not_confirmed_or_rests_on_an_unreadable_job_changes_nothing(
    reconciler: Reconciler,
    service: Service,
    job: Job,
    operation: str | None,
    effect: Effect | None,
    more: tuple[str, ...],
    code: int,
) -> None:
    if effect is not None:
        service.app.faults.add(Fault(effect, operation=operation, count=None))
    said = reconciler("adopt", "a", job.id, *more)
    assert (said.code, changing(service)) == (code, [])
    assert ("fix: add --yes" in said.err) is (code == 3)


@pytest.mark.parametrize("holds", ["test", "old"])
def test_held_lock_of_either_stack_is_6(
    reconciler: Reconciler, service: Service, job: Job, holds: str
) -> None:
    arguments = ("a", job.id) if holds == "test" else ("--from-stack", "old")
    with held_by("alice", place=service.url, stack=holds):
        assert reconciler("adopt", *arguments, "--yes").code == 6
    assert changing(service) == []


def test_events_are_those_of_an_apply(reconciler: Reconciler, service: Service, job: Job) -> None:
    path = write(manifest("a", url=service.url, lr="0.5"))
    said = reconciler("adopt", "a", job.id, "--json")
    assert (said.code, said.events[-1]["type"]) == (3, "apply_completed")
    assert "    algorithm:\n      parameters:\n        lr:" in said.err, "the YAML is apart"
    path.write_text(manifest("a", url=service.url))
    events = reconciler("adopt", "a", job.id, "--yes", "--json").events
    types = ["version", "planned", "action_started", "action_completed", "apply_completed"]
    assert [event["type"] for event in events] == types
    assert {event["job"] for event in events if event.get("key")} == {job.id}


# --- many jobs


def test_all_that_match_are_adopted_and_one_that_is_refused_hides_no_other(
    reconciler: Reconciler, service: Service
) -> None:
    write(manifest("a", "b", "c", "d", url=service.url))
    for name in ("a", "b", "d", "unrelated"):
        by_hand(service, name)
    by_hand(service, "c", lr="0.7")
    said = reconciler("adopt", "--all", "--match", "[abc]", "--yes")
    assert said.code == 3
    assert "2 to update" in said.out
    assert "1 in conflict" in said.out
    assert "jobs:\n  c:\n    algorithm:\n      parameters:\n        lr:" in said.out
    owned = {name for name, text in descriptions(service).items() if parse_description(text).marker}
    assert owned == {"a", "b"}
    said = reconciler("adopt", "--all", "--match", "e*")
    assert (said.code, "nothing to do" in said.out) == (0, True)


@pytest.mark.parametrize(
    ("phases", "taken", "left", "rank"),
    [
        (("Running", "Running"), "a-r2", "a", "newer"),
        (("Completed", "Running"), "a-r2", "a", "active"),
        (("Running", "Completed"), "a", "a-r2", "active"),
    ],
)
def test_of_several_jobs_of_a_key_the_one_is_adopted_that_the_conflict_names(
    reconciler: Reconciler, service: Service, phases: tuple[str, str], taken: str, left: str, rank: str
) -> None:
    write(manifest("a", url=service.url))
    ids = {name: by_hand(service, name).id for name in ("a", "a-r2")}
    for job_id, phase in zip(ids.values(), phases, strict=True):
        service.store.set_phase(job_id, phase)
    assert f"adopt it (reconciler adopt a {ids[taken]})" in reconciler("plan").out
    said = reconciler("adopt", "--all", "--yes")
    assert said.code == 3
    assert f"{left} ({ids[left]}) stays unmanaged: {taken} is the {rank} job of this key" in said.out
    assert "reconciler.test.a.r3" in descriptions(service)[taken]
    check_nothing_changes(reconciler)


# --- with its entry


def test_entry_is_added_to_the_root_file_and_the_job_adopted(
    reconciler: Reconciler, service: Service
) -> None:
    text = manifest("a", url=service.url) + "\n# the end\n"
    path = write(text)
    job = by_hand(service, "experiment-7")
    said = reconciler("adopt", "new", job.id, "--write", "--yes")
    assert said.code == 0, said.err
    written = path.read_text()
    assert written.startswith(manifest("a", url=service.url))
    assert written.endswith("\n# the end\n")
    assert "  new:\n    description: by hand\n    algorithm:" in written
    assert reconciler("plan", "--json").document["summary"]["keep"] == 1
    assert reconciler("plan", "--only", "new", "--detailed-exitcode").code == 0


def test_entry_goes_to_the_file_that_is_named(reconciler: Reconciler, service: Service) -> None:
    root = write(manifest("a", url=service.url))
    other = write("# of the team\njobs: {}\n", "team/more.yaml")
    before = root.read_text()
    job = by_hand(service, "experiment-7")
    assert reconciler("adopt", "new", job.id, "--write", "team/more.yaml", "--yes").code == 0
    assert root.read_text() == before
    assert other.read_text().startswith("# of the team\njobs:\n  new:\n")


@pytest.mark.parametrize(
    ("defaults", "nulls"),
    [
        ("{algorithm: {environments: {TEAM: x}, parameters: {lr: 9, seed: 1}}}", ["seed", "environments"]),
        # What excludes what the job has.
        ("{algorithm: {id: someones, parameters: {seed: 1}}}", ["seed"]),
        ("{algorithm: {engine: {image_url: 'swr/i:1', engine_name: pt}, command: run}}", []),
    ],
)
def test_entry_takes_away_what_the_defaults_would_add(
    reconciler: Reconciler, service: Service, defaults: str, nulls: list[str]
) -> None:
    path = write(manifest(url=service.url, more=f"defaults: {defaults}\n"))
    job = by_hand(service, "experiment-7")
    said = reconciler("adopt", "new", job.id, "--write", "--yes")
    assert said.code == 0, said.out + said.err
    assert all(f"{name}: null" in path.read_text() for name in nulls)
    check_nothing_changes(reconciler)


@pytest.mark.parametrize(
    ("description", "more"),
    [("by hand", ()), ("reconciler.other.a.r1.b000000000000", ("--yes",))],
    ids=["not confirmed", "of another stack"],
)
def test_file_stays_as_it_was_where_nothing_is_adopted(
    reconciler: Reconciler, service: Service, description: str, more: tuple[str, ...]
) -> None:
    path = write(manifest("a", url=service.url))
    before = path.read_text()
    job = by_hand(service, description=description)
    assert reconciler("adopt", "new", job.id, "--write", *more).code == 3
    assert path.read_text() == before


def test_secret_of_the_job_becomes_a_variable_of_the_file(
    reconciler: Reconciler, service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    secret = "hf_abcdefghijklmnopqrstuvwxyz0123"
    path = write(manifest("a", url=service.url))
    job = by_hand(service, "experiment-7", hf_token=secret)
    said = reconciler("adopt", "new", job.id, "--write", "--yes")
    assert said.code == 0, said.err
    assert "set HF_TOKEN in the environment" in said.out
    assert secret not in path.read_text() + said.out + said.err
    monkeypatch.setenv("HF_TOKEN", secret)
    assert reconciler("plan", "--only", "new", "--detailed-exitcode").code == 0


# --- a stack that was renamed


def renamed(text: str, new: str = "vision") -> str:
    return text.replace("stack: test", f"stack: {new}")


def test_renamed_stack_takes_its_jobs_along_and_nothing_restarts(
    reconciler: Reconciler, service: Service
) -> None:
    text = manifest("a", "b", url=service.url)
    write(text)
    assert reconciler("apply", "--yes").code == 0
    [b] = [job for job in service.store.jobs() if job.body["metadata"]["name"] == "b"]
    service.store.set_phase(b.id, "Completed")
    assert reconciler("plan").code == 0
    before = descriptions(service)
    write(renamed(text))
    said = reconciler("plan")
    assert "2 in conflict" in said.out
    assert "(reconciler adopt --from-stack test)" in said.out
    service.app.requests.clear()
    said = reconciler("adopt", "--from-stack", "test", "--yes")
    assert said.code == 0, said.err
    assert changing(service) == [UPDATE, UPDATE]
    moved = {name: text.replace("reconciler.test.", "reconciler.vision.") for name, text in before.items()}
    assert descriptions(service) == moved
    check_nothing_changes(reconciler, keep=2)
    assert "declared:" in reconciler("history", "a").out
    assert "nothing to do" in reconciler("adopt", "--from-stack", "test").out


def test_keys_that_are_not_declared_stay_with_the_old_stack(reconciler: Reconciler, service: Service) -> None:
    write(manifest("a", "b", url=service.url))
    assert reconciler("apply", "--yes").code == 0
    write(renamed(manifest("a", url=service.url)))
    said = reconciler("adopt", "--from-stack", "tset")
    assert (said.code, 'did you mean "test"?' in said.err) == (64, True)
    said = reconciler("adopt", "--from-stack", "test", "--yes")
    assert said.code == 0
    assert "not declared here, so still owned by stack test: b" in said.out
    assert "reconciler.test.b" in descriptions(service)["b"]
    check_nothing_changes(reconciler)


def test_history_of_the_old_stack_is_taken_over_only_when_confirmed(
    reconciler: Reconciler, service: Service
) -> None:
    text = manifest("a", url=service.url)
    write(text)
    assert reconciler("apply", "--yes").code == 0
    [job] = service.store.jobs()
    service.store.set_phase(job.id, "Completed")
    assert reconciler("plan").code == 0
    service.store.delete("p1", job.id)
    service.clock.advance(minutes=10)
    write(renamed(text))
    said = reconciler("adopt", "--from-stack", "test")
    assert (said.code, "not confirmed" in said.err) == (3, True)
    assert "taken over from the history of stack test, for their records have aged out: a r1" in said.out
    assert "1 to create" in reconciler("plan").out
    assert reconciler("adopt", "--from-stack", "test", "--yes").code == 0
    check_nothing_changes(reconciler)
    said = reconciler("adopt", "--from-stack", "test")
    assert (said.code, "nothing to do" in said.out) == (0, True)


def test_work_that_finished_between_two_renames_of_a_stack_stays_finished(
    reconciler: Reconciler, service: Service
) -> None:
    """The history of the first name saw it running only."""
    text = manifest("a", url=service.url)
    write(text)
    assert reconciler("apply", "--yes").code == 0
    running(service)
    assert reconciler("plan").code == 0
    write(renamed(text))
    assert reconciler("adopt", "--from-stack", "test", "--yes").code == 0
    [job] = service.store.jobs()
    service.store.set_phase(job.id, "Completed")
    assert reconciler("plan").code == 0
    service.store.delete("p1", job.id)
    service.clock.advance(minutes=10)
    write(text)
    assert reconciler("adopt", "--from-stack", "vision", "--yes").code == 0
    assert "completed on" in reconciler("plan", "--show-keep").out
    assert "nothing to do" in reconciler("adopt", "--from-stack", "vision").out


@pytest.mark.usefixtures("_nobody_sleeps")
@pytest.mark.parametrize("arguments", [("--all",), ("--from-stack", "old")])
def test_list_that_cannot_be_read_is_not_called_nothing_to_do(
    reconciler: Reconciler, service: Service, arguments: tuple[str, ...]
) -> None:
    write(manifest("a", url=service.url))
    service.app.faults.add(Fault(Effect.ANSWER, operation="ListTrainingJobs", count=None, status=500))
    said = reconciler("adopt", *arguments, "--yes")
    assert said.code == 8
    assert "the list could not be read" in said.out
    assert "nothing to do" not in said.out
    said = reconciler("adopt", *arguments, "--yes", "--json")
    assert said.code == 8
    assert "warning: the list could not be read" in said.err


# --- every kind of job that the service knows

_CODE = {"code_dir": "obs://b/code/", "boot_file": "obs://b/code/train.py"}
_ENGINE = {"engine_id": "pytorch_1.8.0-cuda_10.2-py_3.7-ubuntu_18.04-x86_64"}
_RESOURCE = {"resource": {"flavor_id": "modelarts.vm.cpu.2u", "node_count": 2}}
_POOL = {"pool_id": "pool-1", "flavor_id": "modelarts.vm.cpu.2u", "node_count": 1}
KINDS: dict[str, dict[str, Any]] = {
    "preset engine": {"algorithm": {**_CODE, "engine": _ENGINE}, "spec": _RESOURCE},
    "custom image": {
        "algorithm": {"command": "python /train.py", "engine": {"image_url": "org/image:1"}},
        "spec": _RESOURCE,
    },
    "framework on an image": {
        "algorithm": {
            **_CODE,
            "engine": {"engine_name": "PyTorch", "engine_version": "v", "image_url": "org/image:1"},
        },
        "spec": _RESOURCE,
    },
    "algorithm by id": {
        "algorithm": {
            "id": "3f5d6706-7b67-408d-8ba0-ec08048c45ed",
            "parameters": [{"name": "lr", "value": "1"}],
        },
        "spec": _RESOURCE,
    },
    "algorithm by subscription": {
        "algorithm": {"subscription_id": "sub", "item_version_id": "1.0.0"},
        "spec": _RESOURCE,
    },
    "tasks": {
        "kind": "hetero_job",
        "tasks": [
            {"role": role, "algorithm": {**_CODE, "engine": _ENGINE}, "task_resource": _POOL}
            for role in ("learner", "worker")
        ],
    },
    "volumes, notification, ssh, log export": {
        "algorithm": {
            **_CODE,
            "engine": _ENGINE,
            "environments": {"A": "1"},
            "inputs": [{"name": "data_url", "remote": {"obs": {"obs_url": "obs://b/in/"}}}],
            "outputs": [{"name": "train_url", "remote": {"obs": {"obs_url": "obs://b/out/"}}}],
        },
        "spec": {
            "resource": _POOL,
            "volumes": [{"nfs": {"nfs_server_path": "1.2.3.4:/", "local_path": "/mnt", "read_only": False}}],
            "log_export_path": {"obs_url": "obs://b/log/"},
            "notification": {"topic_urn": "urn:smn:x", "events": ["JobCompleted"]},
            "auto_stop": {"time_unit": "HOURS", "duration": 2},
            "schedule_policy": {"priority": 2},
        },
        "endpoints": {"ssh": {"key_pair_names": ["mine"]}},
    },
}


_TOKEN = "hf_AbCdEfGhIjKlMnOpQrStUvWxYz012345"
#: The bodies above, one of each further kind that the emulator takes, and one with a secret.
EXPORTED: dict[str, dict[str, Any]] = {
    **KINDS,
    **{
        kind: {"kind": kind, "algorithm": {**_CODE, "engine": _ENGINE}, "spec": _RESOURCE}
        for kind in sorted(JOB_KINDS - {"job", "hetero_job"})
    },
    "federated_pool_job": {
        "kind": "federated_pool_job",
        "algorithm": {**_CODE, "engine": _ENGINE},
        "spec": {"resource": {"pool_group_id": "group", "flavor_id": "modelarts.vm.cpu.2u"}},
    },
    "visualization_job": {
        "kind": "visualization_job",
        "algorithm": {"summary": {"log_type": "tensorboard", "data_sources": [{"job": {"job_id": "j"}}]}},
        "spec": _RESOURCE,
    },
    "auto search": {"algorithm": {"autosearch_config_path": "obs://b/search.yaml"}, "spec": _RESOURCE},
    "secret": {
        "algorithm": {**_CODE, "engine": _ENGINE, "environments": {"HF_TOKEN": _TOKEN}},
        "spec": _RESOURCE,
    },
}


@pytest.mark.parametrize(
    "arguments",
    [("export", "--all", "--out", "jobs.yaml"), ("init", "--from-service")],
    ids=lambda way: way[0],
)
def test_exported_jobs_are_in_conflict_then_adopted_and_kept(
    reconciler: Reconciler, service: Service, monkeypatch: pytest.MonkeyPatch, arguments: tuple[str, ...]
) -> None:
    for kind, body in EXPORTED.items():
        for form in "ab":  # answers have two forms, by the last digit of the id
            name = f"{re.sub(r'[^A-Za-z0-9]+', '-', kind)}-{form}"
            metadata = {"name": name, "workspace_id": "0", "description": f"{kind} by hand"}
            service.store.create("p1", {"kind": "job", **copy.deepcopy(body), "metadata": metadata})
    running(service)
    said = reconciler(*arguments, "--endpoint", service.url, "--project-id", "p1")
    assert said.code == 0, said.err
    written = Path("jobs.yaml").read_text(encoding="utf-8")
    assert _TOKEN not in written
    [variable] = YAML(typ="safe").load(written)["variables"].values()
    monkeypatch.setenv(variable["env"], _TOKEN)
    assert reconciler("validate").code == 0

    jobs = {job.body["metadata"]["name"]: job.id for job in service.store.jobs()}
    plan = reconciler("plan", "--json").document
    assert {action["key"]: action["reason"] for action in plan["actions"]} == dict.fromkeys(
        jobs, "name_taken"
    )
    for action in plan["actions"]:
        assert f"(reconciler adopt {action['key']} {jobs[action['key']]})" in action["detail"]

    service.app.requests.clear()
    said = reconciler("adopt", "--all", "--yes")
    assert said.code == 0, said.out + said.err
    assert changing(service) == [UPDATE] * len(jobs)
    check_nothing_changes(reconciler, keep=len(jobs))
