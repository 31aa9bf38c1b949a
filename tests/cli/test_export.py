"""`reconciler export`: jobs on a target become a manifest."""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from reconciler.emulator.faults import Effect, Fault
from reconciler.manifest.yaml import parse
from tests.builders import CODE
from tests.cli.conftest import Reconciler, Service, World, manifest, write

BODY: dict[str, Any] = {
    "kind": "job",
    "algorithm": {**CODE, "parameters": [{"name": "lr", "value": "0.1"}]},
    "spec": {"resource": {"flavor_id": "modelarts.vm.cpu.2u", "node_count": 1}},
}

Make = Callable[..., str]
Export = Callable[..., Any]
LISTED, SHOWN = "ListTrainingJobs", "ShowTrainingJobDetails"


@pytest.fixture
def make(service: Service) -> Make:
    """Create a job on the service, in a phase; returns its id."""

    def create(name: str, phase: str = "Running", description: str = "", **algorithm: Any) -> str:
        body = copy.deepcopy(BODY)
        body["metadata"] = {"name": name, "description": description}
        body["algorithm"].update(algorithm)
        job = service.store.create("p1", body)
        service.store.set_phase(job.id, phase)
        return job.id

    return create


@pytest.fixture
def export(world: World) -> Export:
    """Call `export` on the target of a stack that lies elsewhere."""
    write(world.manifest(), "source/stack.yaml")
    return lambda *arguments: world("export", *arguments, "--in", "source")


def tree(text: str) -> dict[str, Any]:
    """Parse a manifest."""
    document = parse(text.encode(), Path("jobs.yaml"), "jobs.yaml")
    assert not document.problems
    return document.tree


# --- from jobs to their manifest


def test_exported_job_with_a_foreign_name_is_adopted_by_id(
    reconciler: Reconciler, export: Export, make: Make
) -> None:
    """There would be no conflict for its key, and the work would start twice."""
    commands = {
        key: f"reconciler adopt {key} {make(name)}"
        for key, name in {"x": "x-r2", "x_2": "x", "w_R2": "w-R2", "y" * 58: "y" * 61}.items()
    }
    result = export("--all")
    assert result.code == 0
    written = result.out
    write(written)
    by_name = commands.pop("x")
    assert by_name not in result.err + written
    for key, command in commands.items():
        assert f"fix: before anything is applied, {command}" in result.err
        assert f"apply would create it; first: {command}\n" in written, key
        reconciler.ends(0, *command.split()[1:], "--yes")
    reconciler.ends(0, *by_name.split()[1:], "--yes")
    plan = reconciler("plan --json").document
    assert (plan["summary"]["keep"], plan["applyable"]) == (4, False)


def test_target_of_the_stack_in_the_directory_is_exported(world: World, make: Make) -> None:
    make("resnet")
    world.write("other")
    result = world.ends(0, "export --all")
    written = tree(result.out)
    assert (written["stack"], written["target"], list(written["jobs"])) == ("test", "there", ["resnet"])
    assert written["targets"] == {"there": {"kind": "modelarts", "endpoint": world.url, "project_id": "p1"}}


# --- which jobs


@pytest.mark.parametrize(
    ("options", "keys"),
    [
        ((), ["LR-c", "completed", "lr-a", "lr-b", "pending", "running"]),
        (("--phase", "Failed"), ["failed"]),
        (("--name", "nothing"), []),
    ],
)
def test_export_all_takes_active_and_completed_jobs(
    export: Export, make: Make, options: tuple[str, ...], keys: list[str]
) -> None:
    for phase in ("Pending", "Running", "Completed", "Failed", "Terminated"):
        make(phase.lower(), phase)
    for name in ("lr-a", "lr-b", "LR-c"):
        make(name)
    result = export("--all", *options)
    assert result.code == 0
    assert list(tree(result.out)["jobs"]) == keys
    assert ("No matching jobs" in result.err) is (not keys)


def test_job_that_a_stack_owns_is_exported_only_by_name(world: World, export: Export, make: Make) -> None:
    write(world.manifest("owned"), "stack/jobs.yaml")
    world.ends(0, "apply --yes stack")
    make("free")
    result = export("--all")
    assert list(tree(result.out)["jobs"]) == ["free"]
    assert "1 job owned by a stack is left out" in result.err
    named = tree(export("owned").out)
    assert named["jobs"]["owned"]["description"] == "owned of the test"
    assert "reconciler." not in str(named["jobs"])


def test_missing_job_does_not_stop_the_export_of_others(export: Export, make: Make) -> None:
    job_id = make("resnet")
    result = export(job_id, "nothing")
    assert result.code == 1
    assert list(tree(result.out)["jobs"]) == ["resnet"]
    assert "'nothing'" in result.err
    assert (export("nothing").code, export("nothing").out) == (1, "")


# --- errors


def test_export_wrong_usage_is_64(reconciler: Reconciler) -> None:
    write(manifest("a"))
    for line in ("export", "export resnet --all", "export resnet --phase Running"):
        reconciler.ends(64, line, out="")


def test_export_without_a_stack_suggests_init(reconciler: Reconciler) -> None:
    reconciler.ends(65, "export --all", out="", err="fix: reconciler init")


@pytest.mark.usefixtures("_no_retry_delay")
@pytest.mark.parametrize(
    ("fault", "told"),
    [
        (Fault(Effect.ANSWER, operation=SHOWN, status=504, count=None), ["a job cannot be read", "lost"]),
        (Fault(Effect.MALFORMED_JOB, operation=LISTED, count=None), []),
    ],
    ids=["by itself", "in the list"],
)
def test_unreadable_job_is_named_and_the_others_are_exported(
    export: Export, make: Make, service: Service, fault: Fault, told: list[str]
) -> None:
    lost = make("lost")
    make("b")
    service.app.faults.add(replace(fault, path=f"*{lost}") if fault.operation == SHOWN else fault)
    result = export("--all")
    assert (result.code, list(tree(result.out)["jobs"])) == (8, ["b"])
    assert [one for one in told if one not in result.err] == []


def test_job_not_expressible_in_a_manifest_is_named(export: Export, make: Make, service: Service) -> None:
    make("resnet")
    task = {"role": "a", "algorithm": {"code_dir": "obs://b/"}, "task_resource": {"flavor_id": "f"}}
    body = {"kind": "hetero_job", "metadata": {"name": "hetero"}, "tasks": [task]}
    service.store.set_phase(service.store.create("p1", body).id, "Running")
    result = export("--all")
    assert (result.code, list(tree(result.out)["jobs"])) == (8, ["resnet"])
    assert "hetero: tasks" in result.err


# --- secrets


def test_value_that_the_stack_declares_sensitive_is_a_variable(world: World, make: Make) -> None:
    make("resnet", environments={"PLAIN": "ordinary-value-1"})
    declared = world.manifest("resnet").replace(
        "parameters: {lr: 0.1}", "environments: {PLAIN: {value: x1-declared, sensitive: true}}"
    )
    write(declared)
    result = world("export --all")
    assert "ordinary-value-1" not in result.out + result.err
    assert tree(result.out)["jobs"]["resnet"]["algorithm"]["environments"] == {"PLAIN": "${var.PLAIN}"}
