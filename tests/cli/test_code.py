"""The code of a job is part of its declaration: planned, uploaded once, and run."""

from __future__ import annotations

from pathlib import Path

import pytest

from reconciler.errors import ExitCode
from tests.cli.conftest import Reconciler, write

MANIFEST = """\
apiVersion: reconciler/v1
stack: vision
target: laptop
targets:
  laptop: {kind: process, storage: store}
  emulated: {kind: local}
  prod: {kind: modelarts, region: cn-north-4, project_id: p1, code_store: "obs://vision/code/"}
jobs:
  train:
    code: {source: ./src, exclude: [data/]}
    algorithm:
      boot_file: train.py
      engine: {engine_id: any}
    spec: {resource: {flavor_id: any}}
    lifecycle: {on_failure: keep}
"""
TEMPLATES = """\
templates:
  any:
    algorithm: {boot_file: train.py, engine: {engine_id: any}}
    spec: {resource: {flavor_id: any}}
  own: {code: {source: "./${matrix.model}"}}
"""
STORED = Path("store/local/code/vision")


@pytest.fixture(autouse=True)
def stack(reconciler: Reconciler) -> None:
    write(MANIFEST)
    Path("src/data").mkdir(parents=True)
    Path("src/data/big.bin").write_bytes(b"x" * 1000)
    put("train.py", "import helper\nprint('loss', helper.LOSS)\n")
    put("helper.py", "LOSS = 0.5\n")


def put(name: str, text: str) -> None:
    Path("src", name).write_text(text, encoding="utf-8")


def test_code_is_uploaded_once_and_run(reconciler: Reconciler) -> None:
    reconciler.ends(ExitCode.DONE, "plan", out="uploads 2 files, 52 B")
    reconciler.ends(ExitCode.DONE, "apply --yes --wait completed", out="1 succeeded")
    reconciler.ends(ExitCode.DONE, "jobs logs train", out="loss 0.5")
    [place] = STORED.iterdir()
    assert sorted(path.name for path in place.rglob("*") if path.is_file()) == [
        "helper.py",
        "manifest.json",
        "train.py",
    ]
    reconciler.ends(ExitCode.DONE, "plan --detailed-exitcode", out="1 to keep")
    reconciler.ends(ExitCode.DONE, "drift", out="Drift: none")


def test_edit_of_a_file_is_an_edit_of_the_job(reconciler: Reconciler) -> None:
    reconciler.ends(ExitCode.DONE, "apply --yes --wait completed")
    put("helper.py", "LOSS = 0.25\n")
    put("new.py", "")
    Path("src/data/big.bin").write_bytes(b"y" * 1000)
    said = reconciler.ends(
        ExitCode.DONE,
        "plan",
        out=["code: 2 files changed (helper.py +1 -1, new.py new)", "uploads 3 files, 53 B"],
    )
    assert "sha256" not in said.out
    [action] = reconciler.ends(ExitCode.DONE, "plan --json").document["actions"]
    assert action["code"]["upload_bytes"] == 53
    assert action["code"]["files"] == [
        {"path": "helper.py", "change": "changed", "size": 12},
        {"path": "new.py", "change": "added", "size": 0},
    ]
    reconciler.ends(ExitCode.DONE, "apply --yes --wait completed", out="1 succeeded")
    reconciler.ends(ExitCode.DONE, "jobs logs train", out="loss 0.25")
    assert len([*STORED.iterdir()]) == 2


def test_same_edit_is_known_without_a_history(reconciler: Reconciler) -> None:
    reconciler.ends(ExitCode.DONE, "apply --yes --wait completed --without-records")
    for file in Path(".reconciler").glob("*.sqlite3*"):
        file.unlink()
    reconciler.ends(ExitCode.DONE, "plan", out="1 to keep")
    put("helper.py", "LOSS = 0.25\n")
    reconciler.ends(ExitCode.DONE, "plan", out="code: 1 file changed (helper.py +1 -1)")


def test_ignored_edit_of_the_code_keeps_the_job(reconciler: Reconciler) -> None:
    reconciler.ends(ExitCode.DONE, "apply --yes --wait completed")
    write(MANIFEST.replace("{on_failure: keep}", "{ignore_changes: [code]}"))
    put("helper.py", "LOSS = 0.25\n")
    reconciler.ends(ExitCode.DONE, "plan --show-keep", out=["1 to keep", "ignored: code"])


def test_same_tree_has_the_same_digest_on_every_target(reconciler: Reconciler) -> None:
    digests = {
        target: reconciler(f"plan --json -t {target}").document["actions"][0]["after"]
        for target in ("laptop", "emulated")
    }
    assert digests["laptop"] == digests["emulated"]


def test_saved_plan_is_stale_once_the_code_has_changed(reconciler: Reconciler) -> None:
    reconciler.ends(ExitCode.DONE, "plan --out plan.json")
    put("helper.py", "LOSS = 0.25\n")
    reconciler.ends(
        ExitCode.STALE, "apply --plan plan.json --yes", err="the code in src has changed: helper.py"
    )
    assert not STORED.exists()
    put("helper.py", "LOSS = 0.5\n")
    reconciler.ends(ExitCode.DONE, "apply --plan plan.json --yes", out="1 succeeded")
    assert STORED.exists()


def test_store_of_the_stack_holds_on_targets_that_name_none(reconciler: Reconciler) -> None:
    own = ', code_store: "obs://vision/code/"'
    write(MANIFEST.replace(own, "") + "code_store: obs://all/${var.team}/\nvariables: {team: {default: a}}\n")
    reconciler.ends(ExitCode.DONE, "validate -t prod")
    reconciler.ends(ExitCode.DONE, "apply --yes --wait completed")
    assert Path("store/all/a/vision").is_dir()


def test_code_is_inherited_taken_away_and_differs_by_target_and_member(reconciler: Reconciler) -> None:
    Path("jobs").mkdir()
    Path("src").rename("jobs/base")
    plain = "algorithm: {code_dir: obs://b/c/, boot_file: obs://b/c/train.py}\n"
    write(
        MANIFEST.replace("  laptop: {", "  laptop: {defaults: {code: {source: jobs/base}}, ").replace(
            "    code: {source: ./src, exclude: [data/]}\n", ""
        )
        + "  sweep: {extends: [any, own], matrix: {model: [base, large]}}\n"
        + f"  plain:\n    extends: any\n    code: null\n    {plain}"
    )
    # A path is relative to the file that says it.
    Path("jobs/templates.yaml").write_text(TEMPLATES, encoding="utf-8")
    Path("jobs/large").mkdir()
    Path("jobs/large/train.py").write_text("", encoding="utf-8")
    actions = reconciler.ends(ExitCode.DONE, "plan --json").document["actions"]
    digests = {one["key"]: one["code"] and one["code"]["digest"] for one in actions}
    assert digests["plain"] is None
    assert digests["train"] == digests["sweep-model-base"] != digests["sweep-model-large"]


@pytest.mark.parametrize(
    ("old", "new", "says"),
    [
        ("./src", "./none", "./none is no directory"),
        ("./src", "../..", "lies outside"),
        ("boot_file: train.py", "boot_file: trian.py", 'did you mean "train.py"?'),
        ("boot_file: train.py", "code_dir: obs://b/x/", "`code` gives code_dir"),
        ("[data/]", "[data/], max_size: 10B", "`max_size` is 10 B"),
        ("[data/]", "[data/], max_size: 10", "a size must be text"),
        (', code_store: "obs://vision/code/"', "", "add code_store: obs://BUCKET/PREFIX/ to the target"),
        ("./src", "${env.HOME}/..", "lies outside"),
    ],
)
def test_what_cannot_be_uploaded_is_told_before_anything_is_sent(
    reconciler: Reconciler, old: str, new: str, says: str
) -> None:
    write(MANIFEST.replace(old, new))
    target = "prod" if "code_store" in old else "laptop"
    reconciler.ends(ExitCode.INVALID, f"validate -t {target}", err=says)


def test_upload_that_fails_leaves_the_old_job_alone(reconciler: Reconciler) -> None:
    put("train.py", "import time; time.sleep(600)\n")
    write(MANIFEST.replace("{on_failure: keep}", "{on_change: replace}"))
    reconciler.ends(ExitCode.DONE, "apply --yes --wait running")
    put("helper.py", "LOSS = 0.25\n")
    # A file stands where a directory would have to be made.
    digest = reconciler("plan --json").document["actions"][0]["code"]["digest"]
    (STORED / digest.removeprefix("sha256:")[:16]).write_text("in the way", encoding="utf-8")
    said = reconciler("apply --yes")
    assert said.code == ExitCode.PARTIAL, said
    assert "the code store" in said.out
    reconciler.ends(ExitCode.DONE, "status", out="1 Running")
    reconciler.ends(ExitCode.DONE, "destroy --yes")
