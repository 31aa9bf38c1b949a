"""The code of a job is part of its declaration: planned, uploaded once, and run."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

import pytest

from reconciler.errors import ExitCode
from tests.cli.conftest import Reconciler, write
from tests.git_repository import Git, commit

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
    assert not Path("store").exists()
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


def test_linked_source_keeps_the_name_of_the_link(reconciler: Reconciler) -> None:
    Path("current").symlink_to("src")
    write(MANIFEST.replace("./src", "./current/"))
    reconciler.ends(ExitCode.DONE, "plan -v", out="/current/train.py")
    reconciler.ends(ExitCode.DONE, "apply --yes --wait completed", out="1 succeeded")
    [place] = STORED.iterdir()
    assert sorted(path.name for path in place.iterdir()) == ["current", "manifest.json"]


def test_edit_of_a_file_is_an_edit_of_the_job(reconciler: Reconciler) -> None:
    reconciler.ends(ExitCode.DONE, "apply --yes --wait completed")
    put("helper.py", "LOSS = 0.25\n")
    put("new.py", "")
    Path("src/data/big.bin").write_bytes(b"y" * 1000)
    result = reconciler.ends(
        ExitCode.DONE,
        "plan",
        out=["code: 2 files changed (helper.py +1 -1, new.py new)", "uploads 3 files, 53 B"],
    )
    assert "sha256" not in result.out
    [action] = reconciler.ends(ExitCode.DONE, "plan --json").document["actions"]
    assert action["code"]["upload_bytes"] == 53
    assert action["code"]["files"] == [
        {"path": "helper.py", "change": "changed", "size": 12},
        {"path": "new.py", "change": "added", "size": 0},
    ]
    reconciler.ends(ExitCode.DONE, "apply --yes --wait completed", out="1 succeeded")
    reconciler.ends(ExitCode.DONE, "jobs logs train", out="loss 0.25")
    assert len([*STORED.iterdir()]) == 2


def test_changed_lines_are_shown_sanitized_and_redacted(
    reconciler: Reconciler, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TOKEN", "tell-nobody-1")
    write(MANIFEST + "variables: {token: {env: TOKEN, sensitive: true}}\n")
    put("data.bin", "\0")
    put("long.py", "x" * 66_000)
    reconciler.ends(ExitCode.DONE, "apply --yes -t emulated")
    put("helper.py", 'LOSS = 0.25\nKEY = "tell-nobody-1"\n::error::no\n\x1b[31mred\n##[error]x\n')
    put("data.bin", "\0\1")
    put("long.py", "y" * 66_000)
    result = reconciler.ends(
        ExitCode.DONE,
        "plan -v -t emulated",
        out=[
            "code: 3 files changed (data.bin, helper.py +5 -1, long.py)",
            "          helper.py +5 -1, ",
            "          | -LOSS = 0.5\n          | +LOSS = 0.25\n",
            "          | +::error::no\n",
            r"          | +\x1b[31mred",
            r"          | +\x23#[error]x",
            "          long.py, 66 kB\n",
        ],
        lacks=["tell-nobody-1", "\x1b[31m", "##[error]"],
    )
    assert "|" not in reconciler("plan -t emulated").out
    for name, line in (("markdown", "+ code helper.py: 66 B, +5 -1"), ("html", "code helper.py")):
        reconciler.ends(ExitCode.DONE, f"plan -t emulated -o {name}", out=line, lacks="tell-nobody-1")
    reconciler.ends(ExitCode.DONE, "why train -t emulated", out="code: 3 files changed (data.bin, helper.py")
    assert result.out.count("sha256") == 0
    pending = ": code (data.bin, helper.py +5 -1, long.py) changed"
    reconciler.ends(ExitCode.DONE, "drift -t emulated", out=pending)


def test_history_has_the_files_of_each_revision_without_the_store(reconciler: Reconciler) -> None:
    put("old.py", "")
    reconciler.ends(ExitCode.DONE, "apply --yes --wait completed")
    put("helper.py", "LOSS = 0.25\n")
    Path("src/old.py").unlink()
    Path("store").rename("moved")
    changed = "code: 2 files changed (helper.py, old.py removed)"
    reconciler.ends(ExitCode.DONE, "plan", out=[changed, "uploads 2 files, 53 B"])
    Path("store").write_text("no directory", encoding="utf-8")
    result = reconciler.ends(ExitCode.DONE, "plan --json")
    [action] = result.document["actions"]
    assert action["code"]["upload_bytes"] is None
    assert [one["path"] for one in action["code"]["files"]] == ["helper.py", "old.py"]
    assert [one["what"] for one in result.document["warnings"]] == ["the code store could not be read"]
    Path("store").unlink()
    reconciler.ends(ExitCode.DONE, "apply --yes --wait completed", out=changed)
    reconciler.ends(ExitCode.DONE, "history train", out=[f"{changed} since r1", "    code: 3 files, 52 B\n"])
    newest, first = reconciler("history --json").document["revisions"]
    assert first["code"] == {
        "digest": first["declared"]["immutable"]["code"],
        **dict.fromkeys(("commit", "clean", "files")),
    }
    assert newest["code"]["files"] == action["code"]["files"]


def test_rerun_applies_ignored_code_edits(reconciler: Reconciler) -> None:
    write(MANIFEST.replace("{on_failure: keep}", "{ignore_changes: [code]}"))
    reconciler.ends(ExitCode.DONE, "apply --yes --wait completed")
    [action] = reconciler("plan --json --rerun train").document["actions"]
    assert action["code"]["files"] == []
    put("helper.py", "LOSS = 0.25\n")
    reconciler.ends(ExitCode.DONE, "drift", out="0 pending")
    reconciler.ends(
        ExitCode.DONE, "plan --rerun train", out=["rerun requested", "code: 1 file changed (helper.py +1 -1)"]
    )


def test_job_with_uploaded_code_is_exported_with_its_code_dir(reconciler: Reconciler) -> None:
    reconciler.ends(ExitCode.DONE, "apply --yes -t emulated")
    result = reconciler.ends(
        ExitCode.DONE,
        "export train -t emulated",
        out=["  # its code was uploaded from a directory src;", "code_dir: obs://local/code/"],
    )
    Path("exported").mkdir()
    Path("exported/jobs.yaml").write_text(result.out, encoding="utf-8")
    reconciler.ends(ExitCode.DONE, "validate exported")


def test_first_revision_has_new_files_only(reconciler: Reconciler) -> None:
    [action] = reconciler("plan --json").document["actions"]
    assert [one["change"] for one in action["code"]["files"]] == ["added", "added"]
    reconciler.ends(ExitCode.DONE, "plan", out="uploads 2 files", lacks="changed")


def declare_here() -> None:
    """Write the stack into the current directory."""
    write(MANIFEST)
    Path("src").mkdir()
    put("train.py", "import helper\nprint('loss', helper.LOSS)\n")
    put("helper.py", "LOSS = 0.5\n")


def test_review_of_commits_names_the_files_of_code(reconciler: Reconciler, git: Git) -> None:
    declare_here()
    Path("src/link.py").symlink_to("helper.py")
    put("ignored.txt", "")
    first = commit(git, {".gitignore": "ignored.txt\n"})
    put("helper.py", "LOSS = 0.25\n")
    commit(git, {"src/data/big.bin": "x", "src/new.py": ""})
    line = "code: 3 files changed (helper.py +1 -1, link.py +1 -1, new.py new)"
    reconciler.ends(ExitCode.DONE, f"review {first} HEAD -t emulated", out=line)
    reconciler.ends(ExitCode.DONE, "review HEAD~1 . -v -t emulated", out=[line, "          | -LOSS = 0.5\n"])
    [job] = reconciler("review HEAD~1 HEAD --json -t emulated").document["jobs"]
    assert [one["path"] for one in job["code"]["files"]] == ["helper.py", "link.py", "new.py"]
    reconciler.ends(ExitCode.DONE, "review HEAD~1 HEAD -o markdown", out="+ code helper.py: 12 B, +1 -1")
    of_all = "Stack vision on laptop, emulated, prod: HEAD~1"
    reconciler.ends(ExitCode.DONE, "review HEAD~1 HEAD", out=of_all)
    reconciler.ends(ExitCode.DONE, "review HEAD HEAD -t emulated", out="0 changed, 1 unchanged")
    reconciler.ends(ExitCode.DONE, "review HEAD . -t emulated", out="0 changed, 1 unchanged")


def test_commit_is_recorded_and_uncommitted_files_are_reported(reconciler: Reconciler, git: Git) -> None:
    declare_here()
    # Git normalizes line ends, and stores a pointer for LFS files.
    put("crlf.py", "a\nb\n")
    made = commit(git, {"elsewhere.txt": ""})
    Path("src/crlf.py").write_bytes(b"a\r\nb\r\n")
    git("config", "filter.run.clean", "touch ../was-run; cat")
    Path(".gitattributes").write_text("* filter=run\n", encoding="utf-8")
    reconciler.ends(ExitCode.DONE, "apply --yes -t emulated", lacks="uncommitted")
    assert not Path("../was-run").exists()
    [revision] = reconciler("history -t emulated --json").document["revisions"]
    assert (revision["code"]["commit"], revision["code"]["clean"]) == (made, True)
    put("new.py", "")
    Path("src/crlf.py").unlink()
    warning = f"uncommitted files: src has changes that are not in commit {made[:10]}: crlf.py, new.py"
    result = reconciler.ends(ExitCode.DONE, "plan -t emulated", out=warning)
    assert result.out.count("uncommitted") == 1
    write(MANIFEST.replace("{on_failure: keep}", "{on_change: replace}"))
    reconciler.ends(ExitCode.DONE, "apply --yes -t emulated")
    dirty = f"; commit {made[:10]} with uncommitted files"
    reconciler.ends(ExitCode.DONE, "history train -t emulated", out=dirty)
    put("helper.py", "")
    # An unreadable repository counts as none.
    Path(".git/HEAD").write_text("broken", encoding="utf-8")
    reconciler.ends(ExitCode.DONE, "plan -t emulated", out="code: 1 file changed", lacks="uncommitted")


def test_submodule_counts_as_committed_at_its_recorded_commit(reconciler: Reconciler, git: Git) -> None:
    declare_here()
    first = commit(git, {})
    # A repository in another one is added as a submodule.
    git("init", "--quiet", "src/module")
    Path("src/module/a.py").touch()
    git("-C", "src/module", "add", "a.py")
    git("-C", "src/module", "commit", "--quiet", "-m", "one")
    made = commit(git, {})
    changed = "code: 1 file changed (module new)"
    reconciler.ends(ExitCode.DONE, f"review {first} HEAD -t emulated", out=changed)
    reconciler.ends(ExitCode.DONE, "plan -t emulated", out="uploads 3 files", lacks="uncommitted")
    Path("src/module/a.py").write_text("edited", encoding="utf-8")
    told = f"uncommitted files: src has changes that are not in commit {made[:10]}: module/a.py"
    reconciler.ends(ExitCode.DONE, "plan -t emulated", out=told)
    shutil.rmtree("src/module")
    Path("src/module").mkdir()
    told = "module (a submodule that is not checked out)"
    reconciler.ends(ExitCode.DONE, "plan -t emulated", out=told)


@pytest.mark.parametrize(
    ("before", "after", "lacks"),
    [
        ("kind: process, storage: store", "kind: process, slot: 2", "no store"),
        ("target: laptop", "target: laptpo", "no store"),
        ("{source: ./src, exclude: [data/]}", "./src", "OBS path"),
    ],
)
def test_follow_up_errors_of_a_mistake_are_not_reported(
    reconciler: Reconciler, before: str, after: str, lacks: str
) -> None:
    write(MANIFEST.replace(before, after))
    result = reconciler.ends(ExitCode.INVALID, "plan")
    assert result.err.count("error:") == 1
    assert lacks not in result.err


@pytest.mark.parametrize(
    ("storage", "code_store", "place"),
    [
        ('{"obs://b/data/": ./data}', "", ".reconciler/obs/local/code"),
        ('{"obs://b/data/": ./data}', "code_store: obs://b/code\n", ".reconciler/obs/b/code"),
        ('{"obs://b/": ./b}', "code_store: obs://b/code/\n", "b/code"),
        ('{"obs://b": ./b}', "code_store: obs://b\n", "b"),
        ('{"obs://local/": ./mine}', "", "mine/code"),
    ],
)
def test_code_has_a_default_location_without_matching_storage(
    reconciler: Reconciler, storage: str, code_store: str, place: str
) -> None:
    write(MANIFEST.replace("storage: store", f"storage: {storage}") + code_store)
    reconciler.ends(ExitCode.DONE, "apply --yes --wait completed", out="1 succeeded")
    assert [*Path(place, "vision").iterdir()]


def test_job_is_not_started_if_its_code_cannot_be_uploaded(reconciler: Reconciler) -> None:
    reconciler.patch.setitem(sys.modules, "obstore", None)
    missing = "a package is missing: obstore, which uploads code, is not installed; to fix: pip install"
    reconciler.ends(ExitCode.PARTIAL, "apply --yes", out=missing)


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


def test_code_store_of_the_stack_is_the_default_of_its_targets(reconciler: Reconciler) -> None:
    own = ', code_store: "obs://vision/code/"'
    write(MANIFEST.replace(own, "") + "code_store: obs://all/${var.team}/\nvariables: {team: {default: a}}\n")
    reconciler.ends(ExitCode.DONE, "validate -t prod")
    reconciler.ends(ExitCode.DONE, "apply --yes --wait completed")
    assert Path("store/all/a/vision").is_dir()


def test_code_is_inherited_removed_and_overridden_per_target_and_member(reconciler: Reconciler) -> None:
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
        ("./src", "./none", "./none is not a directory"),
        ("./src", "x" * 300, "x is not a directory"),
        ("./src", "scr", 'did you mean "./src"?'),
        ("./src", "../..", "is outside"),
        ("boot_file: train.py", "boot_file: trian.py", 'did you mean "train.py"?'),
        ("boot_file: train.py", "code_dir: obs://b/x/", "`code` sets code_dir"),
        ("[data/]", "[data/], max_size: 10B", "`max_size` is 10 B"),
        ("[data/]", "[data/], max_size: 10", "a size must be text"),
        (', code_store: "obs://vision/code/"', "", "add code_store: obs://BUCKET/PREFIX/ to the target"),
        ("./src", "${env.HOME}/..", "is outside"),
    ],
)
def test_code_that_cannot_be_uploaded_is_refused_before_any_request(
    reconciler: Reconciler, old: str, new: str, says: str
) -> None:
    write(MANIFEST.replace(old, new))
    target = "prod" if "code_store" in old else "laptop"
    reconciler.ends(ExitCode.INVALID, f"validate -t {target}", err=says)
