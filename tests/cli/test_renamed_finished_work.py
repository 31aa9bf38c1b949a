"""Finished work that would run again because a key, an entry's stack or a stack's name was changed."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cli.conftest import Said, Service, World, manifest

KEYS = [f"train-{number}" for number in range(5)]


def a_stack(directory: str, *keys: str, service: Service, stack: str = "test", more: str = "") -> Path:
    """A stack in a directory of its own; the job of a key has the parameters of its number."""
    text = manifest(*keys, url=service.url, more=more).replace("stack: test", f"stack: {stack}")
    for key in keys:
        text = text.replace(f"description: {key} of the test", "description: a training")
    for number, part in enumerate(parts := text.split("lr: 0.1")):
        parts[number] = part + (f"lr: {number}" if number < len(parts) - 1 else "")
    path = Path(directory) / "jobs.yaml"
    path.parent.mkdir(exist_ok=True)
    path.write_text("".join(parts))
    return path


def age_out(world: World) -> None:
    """The service forgets every record."""
    for job in world.store.jobs():
        world.store.delete(job.project, job.id)


def applied_and_completed(world: World, directory: str) -> None:
    world.ends(0, "apply -y", directory)
    world.time.sleep(86400)
    assert {job.life.phase for job in world.store.jobs()} == {"Completed"}
    world.ends(0, "plan", directory)


def reruns(said: Said) -> list[tuple[str, str, str | None]]:
    """Of each key that would run finished work again, the key and stack of that."""
    return [
        (action["key"], action["rerun_of_key"], action["rerun_of_stack"])
        for action in said.document["actions"]
        if action["rerun_of"] is not None
    ]


SHARED = "records: sqlite:////{}/shared.sqlite3\n"


@pytest.fixture
def shared(tmp_path: Path) -> str:
    return SHARED.format(str(tmp_path).strip("/"))


NEW_KEYS = [key.replace("train", "fit") for key in KEYS]


def test_renamed_keys_run_finished_work_again_and_formerly_keeps_it(world: World) -> None:
    a_stack("here", *KEYS, service=world.service)
    applied_and_completed(world, "here")
    path = a_stack("here", *NEW_KEYS, service=world.service)
    said = world("plan --json here")
    assert reruns(said) == [(new, old, None) for new, old in zip(NEW_KEYS, KEYS, strict=True)]
    assert {action["blocked_by"][0] for action in said.document["actions"]} == {"reruns"}
    shown = world("plan here")
    assert "name the old key under `formerly` of the new one" in shown.err
    shown = world("plan --allow reruns here")
    assert shown.out.endswith("5 of them run finished work again.\n")
    world.ends(3, "apply -y here")
    assert len(world.store.jobs()) == 5
    text = path.read_text()
    for new, old in zip(NEW_KEYS, KEYS, strict=True):
        text = text.replace(f"  {new}:\n", f"  {new}:\n    formerly: {old}\n")
    path.write_text(text)
    assert {a["action"] for a in world("plan --json here").document["actions"]} == {"update"}


def test_keys_moved_to_another_stack_that_shares_the_store_run_finished_work_again(
    world: World, shared: str
) -> None:
    a_stack("here", *KEYS, "stays", service=world.service, more=shared)
    applied_and_completed(world, "here")
    a_stack("there", *NEW_KEYS, service=world.service, stack="other", more=shared)
    assert reruns(world("plan --json there")) == []  # each stack declares its own
    a_stack("here", "stays", service=world.service, more=shared)
    world.ends(0, "apply -y here")
    expected = [(new, old, "test") for new, old in zip(NEW_KEYS, KEYS, strict=True)]
    assert reruns(world("plan --json there")) == expected


def test_stack_renamed_in_place_runs_finished_work_again(world: World) -> None:
    a_stack("here", *KEYS, service=world.service)
    applied_and_completed(world, "here")
    age_out(world)
    a_stack("here", *KEYS, service=world.service, stack="renamed")
    said = world("plan --json here")
    assert reruns(said) == [(key, key, "test") for key in KEYS]
    assert "reconciler adopt --from-stack test" in world("plan here").err
    a_stack("elsewhere", *KEYS, service=world.service, stack="renamed")
    assert reruns(world("plan --json elsewhere")) == []
