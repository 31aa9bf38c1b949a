"""`reconciler status`: the state of each key, and what it waits for."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from reconciler.emulator import Job
from tests.apply.service import SharedTime
from tests.cli.conftest import Reconciler, Result, World, write
from tests.cli.lock_helpers import held_by


@pytest.fixture(autouse=True)
def time(world: World) -> SharedTime:
    world.setenv("GITHUB_ACTOR", "alice")
    return world.time


@pytest.fixture
def applied(world: World) -> Job:
    """The job of a stack that was applied."""
    world.write("a")
    world("apply -y")
    [job] = world.store.jobs()
    return job


def rows(result: Result) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = result.document["jobs"]
    return found


def row(reconciler: Reconciler, key: str = "a", *arguments: str) -> dict[str, Any]:
    """The one row of a key."""
    result = reconciler("status --json", *arguments)
    [found] = [one for one in rows(result) if one["key"] == key]
    return found


# ── output ─────────────────────────────────────────────────────────────────────────────────────────


def test_declared_key_without_a_job_is_waiting_for_apply(world: World) -> None:
    world.write("a")
    result = world.ends(0, "status --json")
    [one] = rows(result)
    assert (one["revision"], one["job"], one["phase"], one["last_change"]) == (None, None, None, None)
    assert (one["nodes"], one["flavor"]) == (1, "modelarts.vm.cpu.2u")
    assert (one["waits_for"]["kind"], one["waits_for"]["action"]) == ("apply", "create")
    text = world("status").out
    assert "apply, to create it" in text
    assert text.endswith(": 1 without a job.\n")


def test_running_job_shows_its_times_nodes_and_last_change(
    world: World, time: SharedTime, applied: Job
) -> None:
    time.sleep(63)
    one = row(world)
    assert (one["key"], one["revision"], one["phase"], one["newest"], one["declared"]) == (
        "a", 1, "Running", True, True,
    )  # fmt: skip
    assert one["job"] == applied.id
    assert one["queued_s"] + one["ran_s"] == 63
    assert (one["nodes"], one["flavor"]) == (1, "modelarts.vm.cpu.2u")
    assert one["waits_for"] is None
    assert (one["last_change"]["what"], one["last_change"]["who"]) == ("create", "alice")
    text = world("status").out.splitlines()
    assert text[0].startswith("Stack test on there (modelarts, ")
    head = re.split(" {2,}", text[2])
    assert head == ["KEY", "REVISION", "PHASE", "QUEUED", "RAN", "NODES", "LAST CHANGE", "WAITS FOR"]
    assert "create by alice, 63 s ago" in text[3]
    assert "1 × modelarts.vm.cpu.2u" in text[3]


def test_completed_key_with_an_aged_out_record_is_shown_from_the_history(
    world: World, time: SharedTime, applied: Job
) -> None:
    time.sleep(3600)
    world("drift")
    world.store.delete("p1", applied.id)
    one = row(world)
    assert (one["revision"], one["phase"], one["aged_out"], one["job"]) == (1, "Completed", True, applied.id)
    assert one["waits_for"] is None
    assert "Completed, aged out" in world("status").out


# ── which keys ─────────────────────────────────────────────────────────────────────────────────────


def test_keys_and_paths_are_distinguished(world: World) -> None:
    world.write("a", "b", "c")
    for words, keys in (
        ("", "abc"),
        *((words, "a") for words in ("a", "a jobs.yaml", "jobs.yaml a", "a .")),
        ("b a", "ab"),
        ("--only a,c", "ac"),
        ("--only a b", "ab"),
        ("--only [bc]", "bc"),
    ):
        result = world.ends(0, f"status --json {words}")
        assert [one["key"] for one in rows(result)] == [*keys], words
    Path("a").mkdir()
    result = world.ends(0, "status --json a .")  # beside a path the name of a directory is a key
    assert [one["key"] for one in rows(result)] == ["a"]
    assert rows(world.ends(0, "status --json a")) == []
    world.write("train")
    for word, why in (
        ("trian", 'did you mean "train"?'),
        ("none.yaml", "no such path"),
        ("no/where", "no such path"),
    ):
        world.ends(64, f"status {word}", out="", err=why)


# ── requirements and side effects ───────────────────────────────────────────────────────────────


def test_status_needs_no_secret_or_lock_and_reads_the_service_once(world: World) -> None:
    more = "variables: {t: {env: NO_SUCH_VARIABLE, sensitive: true}}\n"
    write(world.manifest("a", more=more).replace("lr: 0.1", "t: '${var.t}'"))
    world.ends(65, "plan")
    world.forget_requests()
    with held_by("bob", place=world.url):
        world.ends(0, "status")
    assert world.requests == ["ListTrainingJobs"]


def test_unreadable_list_is_8_and_shown(world: World, applied: Job) -> None:
    world.fail("ListTrainingJobs", count=None, status=500)
    result = world("status --json")
    assert (result.code, result.document["complete"]) == (8, False)
    [one] = rows(result)
    assert (one["revision"], one["phase"], one["aged_out"]) == (None, None, False)
    assert "could be read" in one["problem"] or "could not be read" in one["problem"]
    assert "1 unknown" in world("status").out


# ── --watch ────────────────────────────────────────────────────────────────────────────────────────


def watched(reconciler: Reconciler, time: SharedTime, looks: int, *arguments: str) -> Result:
    """Return the output of a watch of a few checks, ended by Ctrl-C."""

    def interrupt() -> None:
        raise KeyboardInterrupt

    time.at(60 * looks - 1, interrupt)
    return reconciler("status --watch", *arguments)


def test_watch_prints_a_block_per_change_once_a_minute_at_most(
    world: World, time: SharedTime, applied: Job
) -> None:
    world.store.hold(applied.id)
    time.at(150, lambda: world.store.set_phase(applied.id, "Running"))
    result = watched(world, time, 10)
    assert (result.code, result.out.count("Stack test on there")) == (130, 2)
    assert time.slept == [60.0] * 10
    # Growing ages are no change.
    world.write("a", lr="0.2")
    assert watched(world, time, 30).out.count("Stack test on there") == 1


def test_watch_json_prints_a_line_per_change(world: World, time: SharedTime, applied: Job) -> None:
    result = watched(world, time, 20, "--json")
    assert result.code == 130
    phases = [json.loads(line)["jobs"][0]["phase"] for line in result.out.splitlines()]
    assert phases == ["Creating", "Running", "Completed"]
    world.ends(64, "status --watch -o html", out="", err="as text or JSON")
