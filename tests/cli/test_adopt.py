"""`reconciler adopt` and `release`: jobs started by hand, renamed stacks, and releases."""

from __future__ import annotations

import copy
import json
import re
from typing import Any

import pytest
from ruamel.yaml import YAML

from reconciler.core.identity import parse_description
from reconciler.emulator import Effect, Job
from tests.builders import CODE
from tests.cli.conftest import JOB, World, write
from tests.cli.lock_helpers import held_by

UPDATE = "ChangeTrainingJobDescription"
SECRET = "hf_abcdefghijklmnopqrstuvwxyz0123"


def by_hand(world: World, name: str = "a", description: str = "by hand", **parameters: str) -> Job:
    """Start the job of the manifest by hand."""
    values = {"lr": "0.1", **parameters}
    algorithm = {**CODE, "parameters": [{"name": name, "value": value} for name, value in values.items()]}
    spec = {"resource": {"flavor_id": "modelarts.vm.cpu.2u", "node_count": 1}}
    return world.put(name, description=description, algorithm=algorithm, spec=spec)


@pytest.fixture
def here(world: World) -> World:
    """A declared key `a`."""
    world.write("a")
    return world


def check_nothing_changes(world: World, keep: int = 1) -> None:
    """`plan` has nothing to do."""
    counts = f"0 to create, 0 to update, 0 to replace, 0 to terminate, {keep} to keep."
    world.ends(0, "plan --detailed-exitcode", out=counts)


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


def test_adopted_reference_resolves_to_the_newest_completed_revision(world: World) -> None:
    numbered = world.manifest("p", lr="1}\n      outputs: {o: 'obs://b/o/${job.revision}/'")
    world.apply(numbered)
    world.set_phase("Completed")
    write(numbered + JOB.format(key="a", lr="0.1, from: '${jobs.p.outputs.o}'"))
    job = by_hand(world, "by-hand", **{"from": "obs://b/o/1/"})
    world.ends(0, f"adopt a {job.id} --yes")
    check_nothing_changes(world, keep=2)


@pytest.mark.parametrize(("name", "attribute"), [("a", "id"), ("somebodys-experiment", "name")])
def test_hand_started_job_is_adopted_and_kept(here: World, name: str, attribute: str) -> None:
    job = by_hand(here, name)
    here.time.sleep(60)
    here.ends(0, f"adopt a {getattr(job, attribute)} --yes", out='description: "by hand" -> "a of the test"')
    text, marker = parse_description(here.descriptions()[name])
    assert text == "a of the test"
    assert marker is not None
    assert (marker.stack, marker.key, marker.revision, marker.id_part) == ("test", "a", 1, job.id[:8])
    assert here.changes == [UPDATE]
    check_nothing_changes(here)
    here.ends(0, "drift", out="Drift: none")
    here.ends(0, "history a", out=["adopt: complete", "declared:", "train.py"])
    here.write("a", lr="0.2")
    [action] = here("plan --json").document["actions"]
    assert (action["action"], action["after"]["name"]) == ("replace", "a-r2")
    assert [change["path"] for change in action["changes"]] == ["algorithm.parameters.lr"]


def test_adoption_of_a_differing_job_is_refused_with_the_matching_yaml(world: World) -> None:
    path = world.write("a", more="limits: {lost_time: 1h}\n", lr="0.5, epochs: 3")
    job = by_hand(world, batch="64")
    words = "To match the job of a, merge this into its entry (null: leave the field out):"
    result = world.ends(3, f"adopt a {job.id} --yes", out=['algorithm.parameters.lr: "0.1" -> "0.5"', words])
    assert world.changes == []
    path.write_text(pasted(path.read_text(), result.out))
    world.ends(0, f"adopt a {job.id} --yes")
    check_nothing_changes(world)


def test_differing_job_is_adopted_with_accept(world: World) -> None:
    world.write("a", lr="0.5")
    words = "warning: a: differs from the declaration: algorithm.parameters.lr"
    world.ends(0, f"adopt a {by_hand(world).id} --accept --yes", out=words)
    check_nothing_changes(world)


# --- refused


def test_job_of_another_stack_is_not_adopted(here: World) -> None:
    job = by_hand(here, description="x reconciler.other.a.r1.b000000000000")
    here.ends(3, f"adopt a {job.id} --yes", out=["stack other", "reconciler release a"])
    assert "have stack other release it (there: reconciler release a)" in here("plan").out


def test_adoption_of_an_owned_job_has_nothing_to_do(world: World) -> None:
    world.apply(world.manifest("a", "b"))
    job = world.job("a").id
    world.ends(0, f"adopt a {job}", out="nothing to do: a is already r1 of this key")
    world.ends(3, f"adopt b {job}", out="write `formerly: a`")


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        ("", 64, "a key and a job id are required"),
        ("a", 64, "a key and a job id are required"),
        ("aa ID", 64, 'did you mean "a"?'),
        ("a twice", 64, "2 jobs have the name twice: "),
        ("a 0b5e7a1e-0000-0000-0000-000000000000", 1, "no such job"),
        ("--from-stack x --accept", 64, "compares nothing"),
        ("--from-stack test", 64, "is the current name of this stack"),
        ("--from-stack Not-A-Stack", 64, "not a stack name"),
        ("not.a.key ID", 64, "reconciler export ID prints its entry"),
    ],
)
def test_wrong_usage_of_adopt_changes_nothing(here: World, arguments: str, code: int, message: str) -> None:
    job, _ = by_hand(here, "twice"), by_hand(here, "other")
    here.store.database.run("UPDATE jobs SET head = replace(head, 'other', 'twice')")
    here.ends(code, f"adopt {arguments.replace('ID', job.id)}", err=message.replace("ID", job.id))
    assert here.changes == []


@pytest.mark.parametrize(
    ("operation", "more", "code"),
    [
        (None, "", 3),  # no terminal to prompt on
        ("ShowTrainingJobDetails", "--yes", 8),
        ("ListTrainingJobs", "--yes", 8),
    ],
    ids=["not confirmed", "unreadable job", "unreadable list"],
)
def test_unconfirmed_or_unreadable_adoption_changes_nothing(
    here: World, operation: str | None, more: str, code: int
) -> None:
    if operation:
        here.fail(operation, Effect.MALFORMED_JOB, count=None)
    result = here.ends(code, f"adopt a {by_hand(here).id} {more}")
    assert here.changes == []
    assert ("fix: add --yes" in result.err) is (code == 3)


@pytest.mark.parametrize("holds", ["test", "old"])
def test_adoption_exits_6_if_either_stack_is_locked(here: World, holds: str) -> None:
    job = by_hand(here).id
    with held_by("alice", place=here.url, stack=holds):
        here.ends(6, "adopt --yes", *(["a", job] if holds == "test" else ["--from-stack", "old"]))
    assert here.changes == []


# --- a stack that was renamed


def rename(world: World, *keys: str, to: str = "vision") -> None:
    write(world.manifest(*keys).replace("stack: test", f"stack: {to}"))


def age_out(world: World, name: str) -> None:
    """Complete the job, observe it, and delete its record from the service."""
    world.time.sleep(60)
    world.set_phase("Completed", name)
    world.ends(0, "plan")
    world.store.delete("p1", world.job(name).id)
    world.time.sleep(600)


def test_renamed_stack_keeps_its_jobs_running(world: World) -> None:
    world.apply(world.manifest("a", "b"))
    world.set_phase("Completed", "b")
    world.ends(0, "plan")
    before = world.descriptions()
    rename(world, "a", "b")
    output = world("plan").out
    assert "2 in conflict" in output
    assert "(reconciler adopt --from-stack test)" in output
    world.forget_requests()
    world.ends(0, "adopt --from-stack test --yes")
    assert world.changes == [UPDATE, UPDATE]
    moved = {name: text.replace("reconciler.test.", "reconciler.vision.") for name, text in before.items()}
    assert world.descriptions() == moved
    check_nothing_changes(world, keep=2)
    world.ends(0, "history a", out="declared:")
    world.ends(0, "adopt --from-stack test", out="nothing to do")


def test_history_of_the_old_stack_is_taken_over_only_when_confirmed(world: World) -> None:
    world.apply(world.manifest("a"))
    age_out(world, "a")
    rename(world, "a")
    words = "taken over from the history of stack test, because their records have aged out: a r1"
    world.ends(3, "adopt --from-stack test", out=words, err="not confirmed")
    world.ends(0, "plan", out="1 to create")
    world.ends(0, "adopt --from-stack test --yes")
    check_nothing_changes(world)
    world.ends(0, "adopt --from-stack test", out="nothing to do")


def test_work_that_finished_between_two_renames_of_a_stack_stays_finished(world: World) -> None:
    """The history under the first name has it running only."""
    world.apply(world.manifest("a"))
    world.time.sleep(60)
    world.ends(0, "plan")
    rename(world, "a")
    world.ends(0, "adopt --from-stack test --yes")
    age_out(world, "a")
    rename(world, "a", to="test")
    world.ends(0, "adopt --from-stack vision --yes")
    world.ends(0, "plan --show-keep", out="completed on")
    world.ends(0, "adopt --from-stack vision", out="nothing to do")


def test_unreadable_list_is_not_reported_as_nothing_to_do(here: World) -> None:
    here.fail("ListTrainingJobs", count=None, status=500)
    here.ends(8, "adopt --from-stack old --yes", out="the list could not be read", lacks="nothing to do")
    here.ends(8, "adopt --from-stack old --yes --json", err="warning: the list could not be read")


# --- every kind of job

_RESOURCE = {"resource": {"flavor_id": "modelarts.vm.cpu.2u", "node_count": 2}}
_POOL = {"pool_id": "pool-1", "flavor_id": "modelarts.vm.cpu.2u", "node_count": 1}
_TOKEN = "hf_AbCdEfGhIjKlMnOpQrStUvWxYz012345"
#: Bodies of another kind, and one with every field and a secret.
EXPORTED: dict[str, dict[str, Any]] = {
    "tasks": {
        "kind": "hetero_job",
        "tasks": [
            {"role": role, "algorithm": CODE, "task_resource": _POOL} for role in ("learner", "worker")
        ],
    },
    "volumes, notification, ssh, log export": {
        "algorithm": {
            **CODE,
            "environments": {"HF_TOKEN": _TOKEN},
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


def test_exported_jobs_are_in_conflict_then_adopted_and_kept(world: World) -> None:
    for kind, body in EXPORTED.items():
        for form in "ab":  # responses have two forms, by the last digit of the id
            name = f"{re.sub(r'[^A-Za-z0-9]+', '-', kind)}-{form}"
            metadata = {"name": name, "workspace_id": "0", "description": f"{kind} by hand"}
            world.store.create("p1", {"kind": "job", **copy.deepcopy(body), "metadata": metadata})
    world.time.sleep(60)
    write(world.manifest(), "elsewhere/stack.yaml")
    written = world.ends(0, "export --all --in elsewhere").out
    write(written)
    assert _TOKEN not in written
    [variable] = YAML(typ="safe").load(written)["variables"].values()
    world.setenv(variable["env"], _TOKEN)
    world.ends(0, "validate")

    jobs = {job.name: job.id for job in world.store.jobs()}
    actions = world("plan --json").document["actions"]
    assert {action["key"]: action["reason"] for action in actions} == dict.fromkeys(jobs, "name_taken")
    for action in actions:
        assert f"(reconciler adopt {action['key']} {jobs[action['key']]})" in action["detail"]

    world.forget_requests()
    for action in actions:
        world.ends(0, f"adopt {action['key']} {jobs[action['key']]} --yes")
    assert world.changes == [UPDATE] * len(jobs)
    check_nothing_changes(world, keep=len(jobs))


# --- released: the job keeps running, without an owner


@pytest.fixture
def stack(world: World) -> World:
    """A stack with a job of key `a` that runs."""
    world.apply(world.manifest("a"))
    world.time.sleep(60)
    world.forget_requests()
    return world


def test_release_removes_the_marker_and_keeps_the_description(stack: World) -> None:
    words = ["the next plan will be in conflict (name taken)", "fix: remove a from jobs.yaml"]
    stack.ends(0, "release a --yes", out=words)
    assert stack.descriptions() == {"a": "a of the test"}
    assert stack.phases() == {"a": "Running"}
    assert stack.changes == [UPDATE]
    stack.ends(0, "history a", out="release: complete")


def test_released_job_is_not_restored_from_the_history(world: World) -> None:
    world.apply(world.manifest("a", "b"))
    world.ends(0, "release a --yes")
    for _ in range(2):
        fix = f"adopt it (reconciler adopt a {world.job('a').id}), or rename the key"
        world.ends(0, "plan", out=["1 in conflict", fix])
    assert "unowned" in world("drift").out
    world.write("b")
    check_nothing_changes(world)
    world.ends(0, "apply --yes")
    assert world.descriptions()["a"] == "a of the test"


def test_released_job_is_adopted_again_as_the_next_revision(stack: World) -> None:
    stack.ends(0, "release a --yes")
    stack.ends(0, f"adopt a {stack.job('a').id} --yes")
    assert ".r2." in stack.descriptions()["a"]
    check_nothing_changes(stack)
    revisions = stack("history a --json").document["revisions"]
    assert [(one["revision"], one["released_at"] is not None) for one in revisions] == [(2, False), (1, True)]
    assert all(one["declared"] for one in revisions)


def test_release_needs_no_value_of_a_secret(stack: World) -> None:
    text = stack.manifest("a", more="variables: {token: {env: TOKEN_OF_NOBODY, sensitive: true}}\n")
    write(text.replace("parameters:", "environments: {T: '${var.token}'}\n      parameters:"))
    stack.ends(65, "plan")
    stack.ends(0, "release a --yes")


def test_unconfirmed_or_empty_release_changes_nothing(stack: World) -> None:
    stack.write("a", "b", "resnet")
    stack.ends(3, "release a", err="fix: add --yes")
    stack.ends(0, "release b", out="nothing to do: stack test owns no job of key b")
    stack.ends(64, "release ressnet", err='did you mean "resnet"?')
    assert stack.changes == []
