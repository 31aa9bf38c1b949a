"""Regression tests."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from shutil import rmtree

import pytest

from tests.cli.conftest import Reconciler, World, manifest, write


def test_destroy_and_drift_accept_an_owned_undeclared_key(reconciler: Reconciler) -> None:
    reconciler.apply(manifest("a", "b"))
    write(manifest("a"))
    result = reconciler("drift --only b --json")
    assert (result.code, result.document["drift"]) == (0, [])
    assert [pending["key"] for pending in result.document["pending"]] == ["b"]
    reconciler.ends(0, "destroy --only b --yes", out="terminate b")
    assert (
        reconciler("plan").out.splitlines()[-1].startswith("Plan: 0 to create, 0 to update, 0 to replace, 0")
    )


def test_skipped_actions_are_reported_if_nothing_is_executed(world: World) -> None:
    world.apply(world.manifest("a"))
    world.describe("a", "by hand")
    rmtree(".reconciler")  # the history would know the job as ours
    events = world.ends(3, "apply --yes --json").events
    types = ["version", "planned", "action_skipped", "apply_completed"]
    assert [event["type"] for event in events] == types
    assert (events[-1]["summary"]["skipped"], events[-1]["summary"]["done"]) == (1, 0)


def test_refused_plan_executes_nothing_and_reports_every_action(reconciler: Reconciler) -> None:
    reconciler.apply(manifest(*"abcdef"))
    write(manifest("a", "new"))
    summary = reconciler.ends(3, "apply --yes --json").events[-1]["summary"]
    assert (summary["skipped"], summary["done"]) == (6, 0)
    assert reconciler("plan --json --force").document["summary"]["create"] == 1


@pytest.mark.parametrize("file", ["nowhere/plan.json", "jobs.yaml/plan.json", "/dev/full", "x" * 300])
def test_unwritable_file_is_named(reconciler: Reconciler, file: str, tmp_path: Path) -> None:
    write(manifest("a"))
    result = reconciler.ends(1, "plan -o", f"json={file}")
    assert result.err.endswith(f"\n  --> {tmp_path / file}\n")


@pytest.mark.parametrize("option", ["--out ", "-o json="])
def test_output_to_a_non_file_is_wrong_usage(reconciler: Reconciler, option: str) -> None:
    write(manifest("a"))
    reconciler.ends(64, f"plan {option}.")
    if option == "--out ":
        reconciler.ends(64, "plan --out /dev/null", err="/dev/null is a device")
    assert not list(Path().glob(".*.tmp"))


def broken_link(path: Path) -> None:
    path.symlink_to("nowhere.yaml")


def loop(path: Path) -> None:
    path.symlink_to(path.name)


def pipe(path: Path) -> None:
    os.mkfifo(path)


@pytest.mark.parametrize("make", [broken_link, loop, pipe])
def test_unreadable_file_terminates_no_job(reconciler: Reconciler, make: Callable[[Path], None]) -> None:
    write(manifest("a"), "stack/jobs.yaml")
    write("jobs:\n" + manifest("b").split("jobs:\n")[1], "stack/sub/more.yaml")
    reconciler.ends(0, "apply --yes stack")
    make(Path("stack/sub/another.yaml"))
    reconciler.ends(65, "plan stack", err="unreadable file")
    Path("stack/sub/more.yaml").unlink()
    make(Path("stack/sub/more.yaml"))
    reconciler.ends(65, "apply --yes stack")


def test_sensitive_value_in_a_mutable_field_converges(world: World) -> None:
    world.setenv("MY_TOPIC", "urn:smn:secret-topic")
    text = world.manifest("a", more="variables:\n  topic: {env: MY_TOPIC, sensitive: true}\n")
    world.apply(text + '      notification: {topic_urn: "${var.topic}", events: [JobFailed]}\n')
    world.ends(0, "plan --detailed-exitcode")
    world.setenv("MY_TOPIC", "urn:smn:another-topic")
    result = world.ends(0, "apply --yes")
    assert "topic" not in result.out.replace("topic_urn", "").replace("var.topic", "")
    world.ends(0, "plan --detailed-exitcode")


def test_corrupt_local_store_is_reported(reconciler: Reconciler) -> None:
    write(manifest("a"))
    reconciler.ends(0, "plan")
    Path(".reconciler/local.sqlite3").write_bytes(b"this is no database" * 100)
    for other in Path(".reconciler").glob("local.sqlite3-*"):
        other.unlink()
    for arguments in (["plan"], ["apply", "--yes"], ["drift"], ["jobs", "list"]):
        result = reconciler.ends(1, *arguments, err="error: cannot use the file of the local target\n  why: ")
        assert "local.sqlite3: file is not a database\n  fix: remove " in result.err
    result = reconciler.ends(1, "doctor", out="wrong        target")
    assert "not checked  credentials" not in result.out


def test_local_store_corrupted_later_is_reported(reconciler: Reconciler) -> None:
    write(manifest("a"))
    reconciler.ends(0, "plan")
    with closing(sqlite3.connect(".reconciler/local.sqlite3")) as file:
        file.execute("DROP TABLE jobs")
    reconciler.ends(8, "plan", out="cannot use the file of the local target")
    reconciler.ends(1, "jobs list", out="", err="no such table: jobs\n  fix: remove ")
    reconciler.ends(1, "doctor")


def test_every_command_that_shows_the_emulator_names_it(reconciler: Reconciler) -> None:
    write(manifest("a"))
    shown = ("plan --out p", "show p", "status", "drift", "why a", "history", "doctor", "plan -o markdown")
    for line in ("apply --yes", *shown, "destroy --yes", "release a --yes"):
        assert "(emulator: jobs are pretended)" in reconciler(line).out, line
    assert "emulator: jobs are pretended" in reconciler("plan -o html").out


def test_stack_renamed_in_place_would_run_finished_work_again(world: World) -> None:
    text = world.manifest(*"abcde")
    write(text, "here/jobs.yaml")
    world.ends(0, "apply -y here")
    world.time.sleep(86400)
    world.ends(0, "plan here")
    for job in world.store.jobs():  # the service forgets every record
        world.store.delete(job.project, job.id)
    for place, other in (("here", "test"), ("elsewhere", None)):
        write(text.replace("stack: test", "stack: renamed"), f"{place}/jobs.yaml")
        actions = world(f"plan --json {place}").document["actions"]
        assert [action["rerun_of_stack"] for action in actions] == [other] * 5
    world.ends(3, "plan here", err="reconciler adopt --from-stack test")


def test_renamed_key_without_formerly_keeps_aged_out_work(world: World) -> None:
    world.apply(world.manifest("old", "other"))
    world.time.sleep(86400)
    world.ends(0, "plan")
    world.store.delete("p1", world.job("old").id)
    text = world.manifest("new", "other")
    write(text.replace("  new:\n", "  new:\n    formerly: old\n"))
    world.ends(0, "plan --show-keep", out="completed on")
    write(text)
    world.ends(0, "plan", out="1 to create")  # a plan alone renames nothing
    world.apply(text.replace("  new:\n", "  new:\n    formerly: old\n"))
    write(text)
    world.ends(0, "plan --show-keep", out=["0 to create", "completed on"])
