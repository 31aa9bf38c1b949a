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
