"""A sweep is edited while its members run, or after they have finished: the plan says what keeps them."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest

from tests.cli.conftest import World, write

VALUES = "[0.1, 0.01, 1e-3, 0.5, 0.05]"
KEYS = ["sweep-lr-0_001", "sweep-lr-0_01", "sweep-lr-0_05", "sweep-lr-0_1", "sweep-lr-0_5"]


def a_sweep(world: World, matrix: str, axis: str = "lr", more: str = "") -> None:
    text = world.manifest("sweep").replace("lr: 0.1", f"lr: '${{matrix.{axis}}}'")
    write(text.replace("  sweep:\n", f"  sweep:\n    matrix: {{{matrix}}}\n{more}"))


@pytest.fixture(params=["recorded", "fresh"])
def checkout(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def leave(checkout: str) -> None:
    """What the next command knows: a fresh checkout has no records."""
    if checkout == "fresh":
        shutil.rmtree(Path(".reconciler"))


def five_hours_on(world: World) -> None:
    """Every member has run for five hours."""
    world.ends(0, "apply -y")
    world.time.sleep(300)
    for job in world.store.jobs():
        world.store.hold(job.id)
    world.time.sleep(18000)
    assert {job.life.phase for job in world.store.jobs()} == {"Running"}


def actions(document: dict[str, Any]) -> dict[str, str]:
    return {action["key"]: action["action"] for action in document["actions"]}


def fixes(document: dict[str, Any]) -> list[str]:
    return [one["fix"] for one in document["warnings"] if one["what"] == "may be a rename"]


def test_axis_added_while_members_run_is_a_conflict_and_ends_nothing(world: World, checkout: str) -> None:
    a_sweep(world, f"lr: {VALUES}")
    five_hours_on(world)
    leave(checkout)
    a_sweep(world, f"lr: {VALUES}, batch: [64, 128]")
    document = world("plan --json").document
    assert {actions(document)[key] for key in KEYS} == {"conflict"}
    assert fixes(document) == []
    assert "no longer produced by sweep" in world("why", KEYS[0]).out
    world("apply -y")
    assert {job.life.phase for job in world.store.jobs() if job.name in KEYS} == {"Running"}
    report = world("drift --json").document
    assert [entry["key"] for entry in report["drift"] if entry["key"] in KEYS] == []
    assert {entry["key"] for entry in report["pending"]} >= {*KEYS}
    # still so with the next plan, and until somebody says otherwise
    assert {actions(world("plan --json").document)[key] for key in KEYS} == {"conflict"}
    a_sweep(world, f"lr: {VALUES}, batch: [64, 128]", more="    lifecycle: {on_change: replace}\n")
    assert {actions(world("plan --json").document)[key] for key in KEYS} == {"terminate"}


def test_hint_that_is_followed_keeps_every_running_member(world: World, checkout: str) -> None:
    a_sweep(world, f"lr: {VALUES}")
    five_hours_on(world)
    leave(checkout)
    a_sweep(world, f"lr: {VALUES}, batch: [64]")
    document = world("plan --json").document
    assert fixes(document) == ['add `formerly: "sweep-lr-${matrix.lr}"` to sweep to keep its jobs']
    follow = '    formerly: "sweep-lr-${matrix.lr}"\n'
    a_sweep(world, f"lr: {VALUES}, batch: [64]", more=follow)
    assert {*actions(world("plan --json").document).values()} == {"update"}
    world.ends(0, "apply -y")
    assert sorted(job.name for job in world.store.jobs()) == KEYS
    assert {job.life.phase for job in world.store.jobs()} == {"Running"}
    assert {*actions(world("plan --json").document).values()} == {"keep"}
    a_sweep(world, f"lr: {VALUES}, batch: [64]")
    assert {*actions(world("plan --json").document).values()} == {"keep"}


@pytest.mark.parametrize("matrix", ["rate: {}", "rate: {}, batch: [64]"])
def test_renamed_axis_runs_finished_members_again_and_the_hint_keeps_them(
    world: World, checkout: str, matrix: str
) -> None:
    a_sweep(world, f"lr: {VALUES}")
    world.ends(0, "apply -y")
    world.time.sleep(86400)
    assert {job.life.phase for job in world.store.jobs()} == {"Completed"}
    leave(checkout)
    matrix = matrix.format(VALUES)
    a_sweep(world, matrix, axis="rate")
    said = world("plan --json")
    assert sorted(action["rerun_of_key"] for action in said.document["actions"]) == KEYS
    assert said.code == 3
    assert fixes(said.document) == ['add `formerly: "sweep-lr-${matrix.rate}"` to sweep to keep its jobs']
    world.ends(3, "apply -y")
    assert len(world.store.jobs()) == len(KEYS)
    a_sweep(world, matrix, axis="rate", more='    formerly: "sweep-lr-${matrix.rate}"\n')
    assert {*actions(world("plan --json").document).values()} == {"update"}


def test_value_taken_out_before_an_hour_ends_its_member(world: World) -> None:
    a_sweep(world, "lr: [0.1, 0.01]")
    world.ends(0, "apply -y")
    world.time.sleep(300)
    a_sweep(world, "lr: [0.1]")
    assert actions(world("plan --json").document) == {"sweep-lr-0_01": "terminate", "sweep-lr-0_1": "keep"}
    world.ends(0, "plan --out saved.plan")
    for job in world.store.jobs():
        world.store.hold(job.id)
    world.time.sleep(7200)
    world.ends(4, "apply --plan saved.plan -y")
