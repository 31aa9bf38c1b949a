"""Finished work that would run again because a key, an entry's stack or a stack's name was changed."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cli.conftest import Reconciler, Said, Service, manifest

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


def age_out(service: Service) -> None:
    """The service forgets every record."""
    for job in service.store.jobs():
        service.store.delete(job.project, job.id)


def applied_and_completed(reconciler: Reconciler, service: Service, directory: str) -> None:
    assert reconciler("apply", "-y", directory).code == 0
    service.clock.advance(hours=24)
    assert {job.life.phase for job in service.store.jobs()} == {"Completed"}
    assert reconciler("plan", directory).code == 0


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


def test_renamed_keys_run_finished_work_again_and_formerly_keeps_it(
    reconciler: Reconciler, service: Service
) -> None:
    a_stack("here", *KEYS, service=service)
    applied_and_completed(reconciler, service, "here")
    path = a_stack("here", *NEW_KEYS, service=service)
    said = reconciler("plan", "--json", "here")
    assert reruns(said) == [(new, old, None) for new, old in zip(NEW_KEYS, KEYS, strict=True)]
    assert {action["blocked_by"][0] for action in said.document["actions"]} == {"reruns"}
    shown = reconciler("plan", "here")
    assert "name the old key under `formerly` of the new one" in shown.err
    shown = reconciler("plan", "--allow", "reruns", "here")
    assert shown.out.endswith("5 of them run finished work again.\n")
    assert reconciler("apply", "-y", "here").code == 3
    assert len(service.store.jobs()) == 5
    text = path.read_text()
    for new, old in zip(NEW_KEYS, KEYS, strict=True):
        text = text.replace(f"  {new}:\n", f"  {new}:\n    formerly: {old}\n")
    path.write_text(text)
    assert {a["action"] for a in reconciler("plan", "--json", "here").document["actions"]} == {"update"}


def test_keys_moved_to_another_stack_that_shares_the_store_run_finished_work_again(
    reconciler: Reconciler, service: Service, shared: str
) -> None:
    a_stack("here", *KEYS, "stays", service=service, more=shared)
    applied_and_completed(reconciler, service, "here")
    a_stack("there", *NEW_KEYS, service=service, stack="other", more=shared)
    assert reruns(reconciler("plan", "--json", "there")) == []  # each stack declares its own
    a_stack("here", "stays", service=service, more=shared)
    assert reconciler("apply", "-y", "here").code == 0
    expected = [(new, old, "test") for new, old in zip(NEW_KEYS, KEYS, strict=True)]
    assert reruns(reconciler("plan", "--json", "there")) == expected


def test_keys_moved_to_another_target_run_there_for_the_first_time(
    reconciler: Reconciler, service: Service, shared: str
) -> None:
    a_stack("here", *KEYS, service=service, more=shared)
    applied_and_completed(reconciler, service, "here")
    a_stack("here", service=service, more=shared)
    assert reconciler("apply", "-y", "--allow", "empty", "here").code == 0
    path = a_stack("there", *NEW_KEYS, service=service, stack="other", more=shared)
    assert len(reruns(reconciler("plan", "--json", "there"))) == 5
    path.write_text(path.read_text().replace("project_id: p1", f"project_id: p1, workspace_id: {'1' * 32}"))
    assert reruns(reconciler("plan", "--json", "there")) == []


def test_stack_renamed_in_place_runs_finished_work_again(reconciler: Reconciler, service: Service) -> None:
    a_stack("here", *KEYS, service=service)
    applied_and_completed(reconciler, service, "here")
    age_out(service)
    a_stack("here", *KEYS, service=service, stack="renamed")
    said = reconciler("plan", "--json", "here")
    assert reruns(said) == [(key, key, "test") for key in KEYS]
    assert "reconciler adopt --from-stack test" in reconciler("plan", "here").err
    a_stack("elsewhere", *KEYS, service=service, stack="renamed")
    assert reruns(reconciler("plan", "--json", "elsewhere")) == []


def test_saved_plan_records_what_it_applies(reconciler: Reconciler, service: Service, shared: str) -> None:
    a_stack("here", *KEYS, "stays", service=service, more=shared)
    applied_and_completed(reconciler, service, "here")
    a_stack("here", "stays", service=service, more=shared)
    assert reconciler("plan", "--out", "saved.plan", "here").code == 0
    assert reconciler("apply", "--plan", "saved.plan", "-y").code == 0
    a_stack("there", *NEW_KEYS, service=service, stack="other", more=shared)
    assert len(reruns(reconciler("plan", "--json", "there"))) == 5


def test_unreadable_store_makes_new_keys_unknown(
    reconciler: Reconciler, service: Service, shared: str, tmp_path: Path
) -> None:
    a_stack("here", *KEYS, service=service, more=shared)
    (tmp_path / "shared.sqlite3").write_bytes(b"no database" * 1000)
    said = reconciler("plan", "--json", "here")
    assert said.code == 8
    assert {action["action"] for action in said.document["actions"]} == {"unknown"}
