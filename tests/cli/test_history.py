"""`reconciler history`: the runs of a stack, their authors, and its jobs."""

from __future__ import annotations

import os
import re
import shutil
import sqlite3
import time
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from reconciler.emulator import database
from reconciler.modelarts.clock import SystemClock
from tests.cli.conftest import Reconciler, Result, World, manifest, write
from tests.cli.lock_helpers import FILE

SECRET = "hunter2-tell-nobody"
NOTHING = "Nothing is recorded yet.\n"
PAGE = Path("page.html")


def sql(statement: str, *values: object) -> None:
    """Change the records of the stack in the current directory."""
    with closing(sqlite3.connect(FILE)) as file, file:
        file.execute(statement, values)


def runs(result: Result) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = result.document["runs"]
    return found


def revisions(result: Result, name: str = "revision") -> list[tuple[str, Any]]:
    return sorted((one["key"], one[name]) for one in result.document["revisions"])


#: Offset of the clock in these tests, in seconds.
AHEAD = [0.0]


@pytest.fixture
def applied(reconciler: Reconciler, tmp_path_factory: pytest.TempPathFactory) -> Reconciler:
    """A replaced job, a kept one, and a drift check: made once, then copied.

    Sleeping advances the clock, also that of the embedded emulator.
    """

    def sleep(_: object, seconds: float) -> None:
        AHEAD[0] += seconds

    reconciler.patch.setattr(SystemClock, "now", lambda _: time.time() + AHEAD[0])
    reconciler.patch.setattr(SystemClock, "sleep", sleep)
    reconciler.patch.setattr(database, "wall_ms", lambda: round((time.time() + AHEAD[0]) * 1000))
    made = tmp_path_factory.getbasetemp() / "two-revisions"
    if made.exists():
        shutil.copytree(made, ".", dirs_exist_ok=True)
    else:
        reconciler.apply(manifest("a", "b"))
        reconciler.apply(manifest("a", "b").replace("lr: 0.1", "lr: 0.01", 1))
        reconciler.ends(0, "drift")
        shutil.copytree(".", made)
    return reconciler


def test_empty_history_says_so(reconciler: Reconciler) -> None:
    write(manifest("a"))
    for line, words in (
        ("", NOTHING),
        ("a", "Nothing is recorded for a yet.\n"),
        ("jobs.yaml", NOTHING),
        ("whatever jobs.yaml", "Nothing is recorded "),
        ("--html page.html", NOTHING),
    ):
        reconciler.ends(0, f"history {line}", out=words)
    assert runs(reconciler("history --json")) == []
    assert NOTHING.strip() in PAGE.read_text(encoding="utf-8")
    assert not Path(".reconciler").exists()


# ── the runs ───────────────────────────────────────────────────────────────────────────────────────


def test_each_run_shows_author_time_origin_and_actions(applied: Reconciler) -> None:
    head, drift, second, first, table = applied.ends(0, "history").out.rstrip("\n").split("\n\n")
    assert head == "Stack test on there (emulator: jobs are pretended)"
    at = r"20\d\d-\d\d-\d\dT\d\d:\d\d:\d\dZ"
    assert re.match(
        rf"#3 drift: no drift, {at}, took [\d.]+ s\n    by \S+ on \S.*; manifest \w{{12}}$", drift
    )
    assert re.match(rf"#2 apply: complete, {at}, took [\d.]+ s\n", second)
    assert second.splitlines()[2:] == ["      succeeded replace a"]
    assert sorted(first.splitlines()[2:]) == ["      succeeded create a", "      succeeded create b"]
    assert re.search(rf"process {os.getpid()}; plan [0-9a-f]{{12}}$", first.splitlines()[1])
    rows = [tuple(line.split()[:2]) for line in table.splitlines()]
    assert rows[:2] == [("KEY", "REVISION"), ("a", "r2")]
    assert sorted(rows[2:]) == [("a", "r1"), ("b", "r1")]


def test_history_document_has_its_fields(applied: Reconciler) -> None:
    result = applied("history --json")
    document = result.document
    head = ["format_version", "reconciler_version", "created_at", "stack", "target", "manifest_digest"]
    assert list(document)[:6] == head
    assert document["key"] is None
    drift, second, first = runs(result)
    assert [run["kind"] for run in (drift, second, first)] == ["drift", "apply", "apply"]
    assert (first["result"], first["summary"]["done"]) == ("complete", 2)
    assert first["duration_s"] >= 0
    assert re.fullmatch("sha256:[0-9a-f]{64}", first["plan_digest"])
    assert sorted((one["key"], one["action"], one["status"], one["reason"]) for one in first["actions"]) == [
        (key, "create", "done", "not_found") for key in "ab"
    ]
    calls = [(step["call"], step["ok"]) for step in second["steps"]]
    assert calls == [("update", True), ("terminate", True), ("create", True)]
    by_name = {one["name"]: one for one in document["revisions"]}
    assert by_name.keys() == {"a", "a-r2", "b"}
    assert by_name["a"]["phase"] == by_name["a"]["phases"][-1]["phase"] == "Terminated"
    assert by_name["a-r2"]["declared"]["immutable"]["algorithm"]["parameters"] == {"lr": {"value": "0.01"}}


def test_limit_keeps_the_newest_runs(applied: Reconciler) -> None:
    assert [run["id"] for run in runs(applied("history --json --limit 2"))] == [3, 2]
    assert revisions(applied("history a --json --limit 1")) == [("a", 2)]


def test_run_in_ci_is_recorded_with_its_job_url(reconciler: Reconciler) -> None:
    reconciler.setenv("GITHUB_ACTOR", "alice")
    reconciler.setenv("CI_JOB_URL", "https://ci.example/jobs/7")
    reconciler.apply(manifest("a"))
    [run] = runs(reconciler("history --json"))
    assert run["who"] == "alice"
    assert run["where"].endswith(f", process {os.getpid()}, https://ci.example/jobs/7")


def test_failed_action_shows_its_cause(world: World) -> None:
    world.write("a", "b")
    world.fail("CreateTrainingJob", status=400, code="ModelArts.2815", message="full")
    world.ends(5, "apply --yes --parallelism 1")
    result = world.ends(0, "history a", out="#1 apply: partial, ")
    assert re.search(r"      failed    create a: .*full.*ModelArts\.2815", result.out)
    told = world.ends(0, "history a -v", lacks="call create b").out
    assert re.search(
        r"call create a 20\S+Z, took [\d.]+ s: failed: full \(ModelArts.2815, request\s+\S+\)", told
    )


def test_interrupted_run_is_marked_with_its_unfinished_call(applied: Reconciler) -> None:
    sql("UPDATE reconciler_runs SET ended_at_s = NULL, result = '', summary = '' WHERE id = 2")
    sql("DELETE FROM reconciler_outcomes WHERE run_id = 2")
    sql("DELETE FROM reconciler_lines WHERE run_id = 2 AND line = 3")
    sql("UPDATE reconciler_lines SET ended_at_s = NULL, ok = NULL WHERE run_id = 2 AND line = 2")
    result = applied.ends(0, "history", out="1 call has no recorded answer; use -v to list the calls")
    assert re.search(r"^#2 apply: unfinished, 20\S+Z$", result.out, re.M)
    told = applied("history a -v").out
    assert re.search(r"call update a 20\S+Z, took [\d.]+ s: succeeded", told)
    assert re.search(r"call terminate a 20\S+Z: no answer recorded", told)
    run = runs(applied("history --json"))[1]
    assert (run["ended_at"], run["duration_s"], run["result"]) == (None, None, "unfinished")
    assert run["steps"][-1]["ok"] is None


# ── a key, or a path ───────────────────────────────────────────────────────────────────────────────


def test_key_history_shows_each_revision_with_its_declaration(applied: Reconciler) -> None:
    result = applied.ends(0, "history a", lacks="create b")
    head, newest, oldest, second, first = result.out.rstrip("\n").split("\n\n")
    assert head == "Stack test on there (emulator: jobs are pretended)\nKey a"
    assert re.match(r"r2  a-r2  \w+\n    job ", newest)
    assert "        parameters:\n          lr: 0.01\n" in newest
    assert oldest.startswith("r1  a  Terminated\n    job ")
    assert "description: a of the test" in oldest
    assert re.search(r"    created 20\S+Z(, \w+ 20\S+Z)*\n    first observed: \w+ 20", oldest)
    assert [first[:18], second[:18]] == ["#1 apply: complete", "#2 apply: complete"]
    write(manifest("a", "c"))  # a key removed from the manifest is still known
    assert applied("history b").out.count("\n#") == 1
    assert applied("history c").out == "Nothing is recorded for c yet.\n"


def test_unknown_key_is_wrong_usage_with_the_nearest_key(reconciler: Reconciler) -> None:
    reconciler.apply(manifest("resnet50"))
    near = 'did you mean "resnet50"?'
    for key, fix in (("resnt50", near), ("RESNET50", near), ("x", "reconciler history")):
        why = f'why: "{key}" is not a key of stack test'
        reconciler.ends(64, f"history {key}", out="", err=[why, f"fix: {fix}"])


def test_first_argument_is_the_key_unless_it_is_a_path(reconciler: Reconciler) -> None:
    write(manifest("a"), "stack/jobs.yaml")
    reconciler("apply --yes stack")
    paths = ("", "stack", "./stack", "stack/jobs.yaml")
    for words, key in (
        *((path, None) for path in paths),
        ("a", "a"),
        ("a stack", "a"),
        ("a stack/jobs.yaml", "a"),
    ):
        result = reconciler.ends(0, f"history --json {words}", err="")
        assert (result.document["key"], len(runs(result))) == (key, 1), words
    for words in ("none.yaml", "./a", "a none", "a b .", "stack none"):
        reconciler.ends(64, f"history {words}", err="no such path")


# ── errors ────────────────────────────────────────────────────────────────────────────────────────────────


def test_incompatible_history_options_are_wrong_usage(applied: Reconciler) -> None:
    for line, words in (
        ("--nonsense", "No such option"),
        # If the page name is omitted, the manifest becomes the value of --html.
        ("--html jobs.yaml", "jobs.yaml is a manifest"),
        ("-t elsewhere", "elsewhere"),
    ):
        applied.ends(64, f"history {line}", out="", err=words)
    assert not PAGE.exists()
    assert "stack: test" in Path("jobs.yaml").read_text(encoding="utf-8")


def test_renamed_key_keeps_its_history(applied: Reconciler) -> None:
    text = manifest("a", "b").replace("lr: 0.1", "lr: 0.01", 1)
    applied.apply(text.replace("  a:\n", "  new:\n    formerly: a\n", 1))
    assert revisions(applied("history --json")) == [("b", 1), ("new", 1), ("new", 2)]


# ── not needed, and never shown ───────────────────────────────────────────────────────────────────


def test_command_needs_no_service_credentials_or_secrets(world: World) -> None:
    text = world.manifest("a", more="variables: {token: {env: A_TOKEN, sensitive: true}}\n")
    secret = "environments: {T: 'Bearer ${var.token}'}\n      parameters: {lr"
    world.setenv("A_TOKEN", SECRET)
    world.apply(text.replace("parameters: {lr", secret))
    with_secret = world("history a")
    world.patch.delenv("A_TOKEN")
    world.patch.delenv("MODELARTS_AUTH_TOKEN")
    world.forget_requests()
    assert world.ends(0, "history a", out="T: Bearer ${var.token}") == with_secret
    assert world.requests == []
    assert SECRET.encode() not in FILE.read_bytes()


# ── the page ───────────────────────────────────────────────────────────────────────────────────────


def lanes() -> list[str]:
    """Return the lanes of the page: two of the runs, and one per key."""
    return re.findall(r'<tr data-key="([^"]*)"', PAGE.read_text(encoding="utf-8"))


def test_html_page_has_a_lane_per_key_and_text_is_unchanged(applied: Reconciler) -> None:
    text = applied("history").out
    PAGE.write_text("old", encoding="utf-8")
    before = PAGE.stat().st_ino
    result = applied("history --html page.html")
    assert (result.code, result.out, result.err) == (0, text, "")
    assert PAGE.stat().st_ino != before
    assert {one.name for one in Path().iterdir()} == {"page.html", "jobs.yaml", ".reconciler"}
    assert lanes() == ["Applies", "Drift checks", "a", "b"]
    page = PAGE.read_text(encoding="utf-8")
    assert "2 keys, 3 revisions." in page
    assert "1 no drift" in page
    applied.ends(0, "history b --html page.html")
    assert lanes()[2:] == ["b"]
    result = applied("history --html nowhere/page.html")
    assert (result.code, result.out, bool(result.err)) == (1, text, True)
