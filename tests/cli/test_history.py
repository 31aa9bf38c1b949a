"""`reconciler history`: what was done to a stack, by whom, and what its jobs were."""

from __future__ import annotations

import io
import os
import re
import shutil
import sqlite3
import sys
import time
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft202012Validator

from reconciler.emulator import database
from reconciler.modelarts.clock import SystemClock
from tests.cli.conftest import Reconciler, Said, World, manifest, write
from tests.cli.lock_helpers import FILE

SECRET = "hunter2-tell-nobody"
ROOT = Path(__file__).parents[2]
NOTHING = "Nothing is recorded yet.\n"


def sql(statement: str, *values: object) -> list[Any]:
    """Ask, or change, the records of the stack that is here."""
    with closing(sqlite3.connect(FILE)) as file, file:
        return file.execute(statement, values).fetchall()


def runs(said: Said) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = said.document["runs"]
    return found


#: How far the clock of these tests is ahead, in seconds.
AHEAD = [0.0]


@pytest.fixture
def nobody_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    """Sleeping moves the clock on, that of the embedded emulator too."""

    def sleep(_: object, seconds: float) -> None:
        AHEAD[0] += seconds

    monkeypatch.setattr(SystemClock, "now", lambda _: time.time() + AHEAD[0])
    monkeypatch.setattr(SystemClock, "sleep", sleep)
    monkeypatch.setattr(database, "wall_ms", lambda: round((time.time() + AHEAD[0]) * 1000))


@pytest.fixture
def two_revisions(
    reconciler: Reconciler, nobody_waits: None, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """A job that was replaced, another one that was not, and a drift check: made once, and copied."""
    made = tmp_path_factory.getbasetemp() / "two-revisions"
    if made.exists():
        shutil.copytree(made, ".", dirs_exist_ok=True)
        return
    write(manifest("a", "b"))
    reconciler.ends(0, "apply --yes")
    write(manifest("a", "b").replace("lr: 0.1", "lr: 0.01", 1))
    reconciler.ends(0, "apply --yes")
    reconciler.ends(0, "drift")
    shutil.copytree(".", made)


# ── nothing yet ────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        ([], 0, "Nothing is recorded yet.\n"),
        (["a"], 0, "Nothing is recorded of a yet.\n"),
        (["jobs.yaml"], 0, "Nothing is recorded yet.\n"),
        (["whatever", "jobs.yaml"], 0, "Nothing is recorded "),
        (["--prune"], 0, "Nothing on record ended before 20"),
        (["--html", "page.html"], 0, "Nothing is recorded yet.\n"),
        (["a", "--diff", "1", "2"], 1, "nothing is recorded yet"),
    ],
)
def test_nothing_recorded_yet(reconciler: Reconciler, arguments: list[str], code: int, words: str) -> None:
    write(manifest("a"))
    said = reconciler("history", *arguments)
    assert (said.code, (said.err if code else said.out).count(words)) == (code, 1)
    assert not Path(".reconciler").exists()
    if "--html" in arguments:
        assert "Nothing is recorded yet." in Path("page.html").read_text(encoding="utf-8")
    elif not arguments:
        assert runs(reconciler("history --json")) == []


# ── the runs ───────────────────────────────────────────────────────────────────────────────────────


def test_each_run_says_who_when_from_where_and_what(reconciler: Reconciler, two_revisions: None) -> None:
    said = reconciler.ends(0, "history")
    head, drift, second, first, table = said.out.rstrip("\n").split("\n\n")
    assert head == "Stack test on there (local)"
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


def test_history_document_has_the_fields_of_its_schema(reconciler: Reconciler, two_revisions: None) -> None:
    said = reconciler("history --json")
    schema = reconciler("schema history").document
    Draft202012Validator(schema).validate(said.document)
    assert list(said.document)[:6] == [
        "format_version",
        "reconciler_version",
        "created_at",
        "stack",
        "target",
        "manifest_digest",
    ]
    assert said.document["key"] is said.document["diff"] is None
    drift, second, first = runs(said)
    assert [run["kind"] for run in (drift, second, first)] == ["drift", "apply", "apply"]
    assert first["result"] == "complete"
    assert first["summary"]["done"] == 2
    assert first["duration_s"] >= 0
    assert re.fullmatch("sha256:[0-9a-f]{64}", first["plan_digest"])
    assert sorted((one["key"], one["action"], one["status"], one["reason"]) for one in first["actions"]) == [
        ("a", "create", "done", "not_found"),
        ("b", "create", "done", "not_found"),
    ]
    assert [(step["call"], step["ok"]) for step in second["steps"]] == [
        ("update", True),
        ("terminate", True),
        ("create", True),
    ]
    by_name = {one["name"]: one for one in said.document["revisions"]}
    assert by_name.keys() == {"a", "a-r2", "b"}
    assert by_name["a"]["phase"] == by_name["a"]["phases"][-1]["phase"] == "Terminated"
    assert by_name["a-r2"]["declared"]["immutable"]["algorithm"]["parameters"] == {"lr": {"value": "0.01"}}


def test_run_in_ci_is_recorded_with_its_commit_and_job_url(
    reconciler: Reconciler, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GITHUB_ACTOR", "alice")
    monkeypatch.setenv("GITHUB_SHA", "c0ffee" + "0" * 34)
    monkeypatch.setenv("CI_JOB_URL", "https://ci.example/jobs/7")
    write(manifest("a"))
    reconciler("apply --yes")
    [run] = runs(reconciler("history --json"))
    assert (run["who"], run["commit"]) == ("alice", "c0ffee" + "0" * 34)
    assert run["where"].endswith(f", process {os.getpid()}, https://ci.example/jobs/7")
    assert "commit c0ffee000000; plan " in reconciler("history").out


def test_what_failed_says_why(world: World) -> None:
    world.write("a", "b")
    world.fail("CreateTrainingJob", status=400, code="ModelArts.2815", message="full")
    world.ends(5, "apply --yes --parallelism 1")
    said = world("history a")
    assert "#1 apply: partial, " in said.out
    assert re.search(r"      failed    create a: .*full.*ModelArts\.2815", said.out)
    told = world("history a -v").out
    assert re.search(
        r"call create a 20\S+Z, took [\d.]+ s: failed: full \(ModelArts.2815, request\s+\S+\)", told
    )
    assert "call create b" not in told


def test_limit_counts_from_the_newest(reconciler: Reconciler, two_revisions: None) -> None:
    assert [run["id"] for run in runs(reconciler("history --json --limit 2"))] == [3, 2]
    said = reconciler("history a --json --limit 1")
    assert [one["revision"] for one in said.document["revisions"]] == [2]
    reconciler.ends(64, "history --limit 0")


def test_run_that_died_says_so_and_its_open_call_is_shown(
    reconciler: Reconciler, two_revisions: None
) -> None:
    sql("UPDATE reconciler_runs SET ended_at_s = NULL, result = '', summary = '' WHERE id = 2")
    sql("DELETE FROM reconciler_outcomes WHERE run_id = 2")
    sql("DELETE FROM reconciler_lines WHERE run_id = 2 AND line = 3")
    sql("UPDATE reconciler_lines SET ended_at_s = NULL, ok = NULL WHERE run_id = 2 AND line = 2")
    said = reconciler("history")
    assert re.search(r"^#2 apply: interrupted, 20\S+Z$", said.out, re.M)
    assert "1 call has no recorded answer; use -v to list the calls" in said.out
    told = reconciler("history a -v").out
    assert re.search(r"call update a 20\S+Z, took [\d.]+ s: succeeded", told)
    assert re.search(r"call terminate a 20\S+Z: no answer recorded", told)
    run = runs(reconciler("history --json"))[1]
    assert run["ended_at"] is run["duration_s"] is None
    assert run["result"] == "interrupted"
    assert run["steps"][-1]["ok"] is None


# ── a key ──────────────────────────────────────────────────────────────────────────────────────────


def test_of_a_key_each_revision_is_shown_with_what_was_declared(
    reconciler: Reconciler, two_revisions: None
) -> None:
    said = reconciler.ends(0, "history a")
    head, newest, oldest, second, first = said.out.rstrip("\n").split("\n\n")
    assert head == "Stack test on there (local)\nKey a"
    assert re.match(r"r2  a-r2  \w+\n    job ", newest)
    assert "        parameters:\n          lr: 0.01\n" in newest
    assert oldest.startswith("r1  a  Terminated\n    job ")
    assert "description: a of the test" in oldest
    assert re.search(r"    created 20\S+Z(, \w+ 20\S+Z)*\n    first observed: \w+ 20", oldest)
    assert [first.splitlines()[0].split(",")[0], second.splitlines()[0].split(",")[0]] == [
        "#1 apply: complete",
        "#2 apply: complete",
    ]
    assert "create b" not in said.out
    write(manifest("a", "c"))  # what is gone from the manifest is not forgotten
    assert reconciler("history b").out.count("\n#") == 1
    assert reconciler("history c").out == "Nothing is recorded of c yet.\n"


@pytest.mark.parametrize(
    ("key", "fix"),
    [
        ("resnt50", 'did you mean "resnet50"?'),
        ("RESNET50", 'did you mean "resnet50"?'),
        ("x", "reconciler history"),
    ],
)
def test_key_that_nobody_heard_of(reconciler: Reconciler, key: str, fix: str) -> None:
    write(manifest("resnet50"))
    reconciler("apply --yes")
    said = reconciler.ends(64, "history", key, out="", err=f'why: "{key}" is not a key of stack test')
    assert f"fix: {fix}" in said.err


# ── KEY, or PATH ───────────────────────────────────────────────────────────────────────────────────


def test_first_word_is_the_key_unless_it_is_a_path(reconciler: Reconciler) -> None:
    write(manifest("a"), "stack/jobs.yaml")
    reconciler("apply --yes stack")
    for words, key in (
        ([], None),
        (["stack"], None),
        (["./stack"], None),
        (["stack/jobs.yaml"], None),
        (["a"], "a"),
        (["a", "stack"], "a"),
        (["a", "stack/jobs.yaml"], "a"),
    ):
        said = reconciler("history --json", *words)
        assert (said.code, said.err, said.document["key"]) == (0, "", key), words
        assert len(runs(said)) == 1


@pytest.mark.parametrize("words", [["none.yaml"], ["./a"], ["a", "none"], ["a", "b", "."], ["stack", "none"]])
def test_missing_path_is_wrong_use(reconciler: Reconciler, words: list[str]) -> None:
    write(manifest("a"), "stack/jobs.yaml")
    reconciler.ends(64, "history", *words, err="no such path")


def test_key_whose_code_lies_in_a_directory_of_its_name(reconciler: Reconciler) -> None:
    write(manifest("a"))
    write("import torch\n", "a/train.py")
    reconciler("apply --yes")
    said = reconciler("history a --json")
    assert said.document["key"] is None
    assert said.err == "a is both a path and a key; for the key use: reconciler history a .\n"
    for words in (["a", "."], ["a", "jobs.yaml"], ["a", "a"]):
        said = reconciler("history --json", *words)
        assert (said.err, said.document["key"]) == ("", "a")
    write("jobs: {}\n")
    write(manifest("b"))
    assert "for the key" in reconciler("history a").err  # declared no more, and recorded
    Path("b").mkdir()
    Path("c").mkdir()
    assert reconciler("history b c --json").document["key"] == "b"
    assert reconciler("history c b --json").document["key"] is None


# ── --diff ─────────────────────────────────────────────────────────────────────────────────────────


def test_diff_shows_the_fields_as_a_plan_does(reconciler: Reconciler, two_revisions: None) -> None:
    said = reconciler.ends(0, "history a --diff 1 2")
    assert said.out == (
        "Stack test on there (local)\nKey a, r1 -> r2\n\n"
        '    algorithm.parameters.lr: "0.1" -> "0.01"  # forces a new job\n\n1 field differs.\n'
    )
    document = reconciler("history a --diff 2 1 --json").document
    Draft202012Validator(reconciler("schema history").document).validate(document)
    assert document["diff"]["before"] == 2
    [change] = document["diff"]["changes"]
    assert (change["path"], change["before"], change["after"]) == ("algorithm.parameters.lr", "0.01", "0.1")
    assert sorted(one["revision"] for one in document["revisions"]) == [1, 2]
    assert reconciler("history a --diff 2 2").out.endswith("\n\nNo field differs.\n")


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (["--diff", "1", "2"], 64, "--diff needs KEY"),
        (["jobs.yaml", "--diff", "1", "2"], 64, "--diff needs KEY"),
        (["a", "--diff", "1", "3"], 64, "r3 of a is not recorded; recorded: 1, 2"),
        (["a", "--diff", "0", "1"], 64, "not in the range"),
        (["a", "--diff", "1"], 64, "requires 2 arguments"),
        (["a", "--prune"], 64, "not with --prune"),
        (["--prune", "--diff", "1", "2"], 64, "not with --prune"),
        (["--prune", "--html", "page.html"], 64, "--html"),
        (["a", "--diff", "1", "2", "--html", "page.html"], 64, "--html"),
        (["--nonsense"], 64, "No such option"),
        # Who forgets the name of the page gives that of the manifest, which stands behind --html then.
        (["--html", "jobs.yaml"], 64, "jobs.yaml is a manifest"),
    ],
)
def test_what_does_not_fit_together(
    reconciler: Reconciler, two_revisions: None, arguments: list[str], code: int, words: str
) -> None:
    reconciler.ends(code, "history", *arguments, err=words, out="")
    assert not Path("page.html").exists()
    assert "stack: test" in Path("jobs.yaml").read_text(encoding="utf-8")


def test_revision_whose_declaration_is_not_on_record(reconciler: Reconciler, two_revisions: None) -> None:
    sql("UPDATE reconciler_revisions SET declared = NULL WHERE number = 1")
    reconciler.ends(1, "history a --diff 1 2", err="the declaration of r1 of a is not on record")
    assert "its declaration is not on record" in reconciler("history a").out


def test_key_that_was_renamed_keeps_its_past(reconciler: Reconciler, two_revisions: None) -> None:
    shown = reconciler.ends(0, "history a --diff 1 2")
    text = manifest("a", "b").replace("lr: 0.1", "lr: 0.01", 1)
    write(text.replace("  a:\n", "  new:\n    formerly: a\n", 1))
    reconciler.ends(0, "apply --yes")
    revisions = reconciler("history --json").document["revisions"]
    assert sorted((one["key"], one["revision"]) for one in revisions) == [("b", 1), ("new", 1), ("new", 2)]
    said = reconciler("history new --diff 1 2")
    assert (said.code, said.out.replace("Key new", "Key a")) == (0, shown.out)


# ── --prune ────────────────────────────────────────────────────────────────────────────────────────


def age(days: int, ids: str = "1, 2") -> None:
    """Make the runs, and the first revision of a, older than they are."""
    sql(f"UPDATE reconciler_runs SET at_s = at_s - ?, ended_at_s = ended_at_s - ? WHERE id IN ({ids})",
        days * 86_400, days * 86_400)  # fmt: skip
    for column in ("created_at_s", "started_at_s", "seen_at_s"):
        sql(f"UPDATE reconciler_revisions SET {column} = {column} - ? WHERE number = 1", days * 86_400)


def test_prune_deletes_what_is_old_and_says_how_much(reconciler: Reconciler, two_revisions: None) -> None:
    age(100)
    for older_than in ("101d", "2401h"):
        said = reconciler("history --prune --older-than", older_than, "--yes", "--json")
        assert (said.document["deleted_runs"], said.document["deleted_revisions"]) == (0, 0)
    said = reconciler.ends(0, "history --prune --yes")
    assert re.fullmatch(r"Deleted 2 runs and 1 revision that ended before 20\S+Z\.\n", said.out)
    said = reconciler("history --json")
    assert [run["id"] for run in runs(said)] == [3]
    # The newest of each key stays, however old it is.
    assert sorted((one["key"], one["revision"]) for one in said.document["revisions"]) == [("a", 2), ("b", 1)]
    said = reconciler.ends(0, "history --prune")
    assert said.out.startswith("Nothing on record ended before 20")
    said = reconciler("history --prune --older-than 0s --yes --json")
    assert said.document["deleted_runs"] == 1


def test_prune_asks(reconciler: Reconciler, two_revisions: None, monkeypatch: pytest.MonkeyPatch) -> None:
    age(100)
    reconciler.ends(3, "history --prune", err="fix: add --yes")

    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    for text, left in (("n\n", 3), ("y\n", 1)):
        monkeypatch.setattr(sys, "stdin", Terminal(text))
        said = reconciler("history --prune")
        assert "Delete the records of 2 runs and 1 revision that ended before 20" in said.err
        assert len(runs(reconciler("history --json"))) == left


def test_finished_work_stays_finished_after_pruning(world: World) -> None:
    world.write("a")
    world("apply --yes")
    world.time.sleep(3600)
    world.ends(0, "drift")
    sql("UPDATE reconciler_runs SET at_s = 0, ended_at_s = 1")
    world.ends(0, "history --prune --yes")
    for job in world.store.jobs():
        world.store.delete("p1", job.id)
    said = world("plan --json")
    assert said.document["actions"][0]["reason"] == "aged_out"


# ── what it does not need, and never shows ─────────────────────────────────────────────────────────


def test_neither_the_service_nor_credentials_nor_secrets_are_needed(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    more = "variables: {token: {env: A_TOKEN, sensitive: true}}\n"
    text = world.manifest("a", more=more).replace(
        "parameters: {lr", "environments: {T: 'Bearer ${var.token}'}\n      parameters: {lr"
    )
    write(text)
    monkeypatch.setenv("A_TOKEN", SECRET)
    world.ends(0, "apply --yes")
    with_secret = world("history a")
    monkeypatch.delenv("A_TOKEN")
    monkeypatch.delenv("MODELARTS_AUTH_TOKEN")
    asked = len(world.requests)
    said = world("history a")
    assert said == with_secret
    assert said.code == 0
    assert "T: Bearer ${var.token}" in said.out
    assert len(world.requests) == asked
    assert SECRET.encode() not in FILE.read_bytes()


def test_another_target_has_another_history(world: World) -> None:
    world.write("a")
    world("apply --yes")
    write(world.manifest("a").replace("project_id: p1", "project_id: p2"))
    assert world("history").out == NOTHING
    write(world.manifest("a").replace("  there:", "  renamed:"))
    assert len(runs(world("history --json"))) == 1
    world.ends(64, "history -t there")


def test_records_says_another_store(world: World, tmp_path: Path) -> None:
    world.write("a")
    store = f"sqlite:///{tmp_path}/elsewhere.sqlite3"
    world("apply --yes --records", store)
    assert world("history").out == NOTHING
    assert len(runs(world("history --json --records", store))) == 1
    world.write("a", more="records: 'sqlite:///elsewhere.sqlite3'\n")
    assert len(runs(world("history --json"))) == 1


@pytest.mark.parametrize("arguments", [[], ["a"], ["--prune", "--yes"], ["--json"]])
def test_store_that_is_away_is_1(reconciler: Reconciler, arguments: list[str]) -> None:
    write(manifest("a"))
    write("this is no database, " * 100, ".reconciler/records.sqlite3")
    reconciler.ends(1, "history", *arguments, out="", err="the record store cannot be read")


# ── the page ───────────────────────────────────────────────────────────────────────────────────────


def lanes(file: str = "page.html") -> list[str]:
    """The keys that have a lane on the page."""
    return re.findall(r'<tr data-key="([^"]*)"', Path(file).read_text(encoding="utf-8"))


def test_page_has_a_lane_per_key_and_the_text_is_shown_as_ever(
    reconciler: Reconciler, two_revisions: None
) -> None:
    text = reconciler("history").out
    said = reconciler("history --html page.html")
    assert (said.code, said.out, said.err) == (0, text, "")
    assert lanes() == ["a", "b"]
    page = Path("page.html").read_text(encoding="utf-8")
    assert "2 keys, 3 revisions: 2 queued, 1 terminated." in page
    assert "1 drift check: 1 no drift" in page
    reconciler.ends(0, "history b --html page.html")
    assert lanes() == ["b"]
    said = reconciler("history --html nowhere/page.html")
    assert (said.code, said.out, bool(said.err)) == (1, text, True)


def test_page_shows_all_that_is_recorded_unless_there_is_a_limit(
    reconciler: Reconciler, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("reconciler.cli.drift._SHOWN", 1)
    write(manifest("a", "b", "c"))
    reconciler("apply --yes")
    assert len(reconciler("history --json --html page.html").document["revisions"]) == 1
    assert lanes() == ["a", "b", "c"]
    reconciler("history --html page.html --limit 2")
    assert "3 keys, 2 revisions" not in Path("page.html").read_text(encoding="utf-8")
    assert len(lanes()) == 2


def test_page_is_written_in_place_of_the_one_before(reconciler: Reconciler, two_revisions: None) -> None:
    Path("page.html").write_text("old", encoding="utf-8")
    before = Path("page.html").stat().st_ino
    reconciler("history --html page.html")
    assert Path("page.html").stat().st_ino != before
    assert {one.name for one in Path().iterdir()} == {"page.html", "jobs.yaml", ".reconciler"}
