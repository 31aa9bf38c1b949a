"""`reconciler review`: the effect of a manifest change, between directories or git revisions."""

from __future__ import annotations

import json
import stat
import tempfile
from pathlib import Path

import pytest

from reconciler.manifest import git as git_module
from tests.cli.conftest import Reconciler, Result, manifest
from tests.git_repository import Git, commit, write

ONE, TWO = manifest("a"), manifest("a", "b")


@pytest.fixture(autouse=True)
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The directory commits are copied to; empty after each test."""
    place = tmp_path / "temporary"
    place.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(place))
    return place


@pytest.fixture(autouse=True)
def _nothing_is_left(temporary: Path, reconciler: Reconciler) -> object:
    yield
    assert list(temporary.iterdir()) == []


def documented(result: Result) -> dict[str, object]:
    assert result.code == 0, result.err
    found: dict[str, object] = result.document
    return found


def keys(result: Result) -> list[tuple[str, str]]:
    return [(job["key"], job["change"]) for job in documented(result)["jobs"]]  # type: ignore[attr-defined]


# ── BASE and HEAD ──────────────────────────────────────────────────────────────────────────────────


def test_two_directories_or_files_are_compared(reconciler: Reconciler) -> None:
    write({"old/jobs.yaml": ONE, "new/jobs.yaml": TWO})
    assert keys(reconciler("review old/jobs.yaml new/jobs.yaml --json")) == [("b", "added")]
    result = reconciler("review old new -o json=review.json -o text")
    assert result.out.splitlines()[-1].startswith("Review: 1 added, 0 removed")
    assert json.loads(Path("review.json").read_text(encoding="utf-8"))["summary"]["added"] == 1


def test_two_revisions_are_compared_without_a_checkout(reconciler: Reconciler, git: Git) -> None:
    first = commit(git, {"jobs.yaml": ONE})
    second = commit(git, {"jobs.yaml": TWO})
    write({"jobs.yaml": "broken: ["})
    result = reconciler("review HEAD~1 main --json")
    assert keys(result) == [("b", "added")]
    assert [result.document[one]["commit"] for one in ("base", "head")] == [first, second]
    assert result.document["jobs"][0]["source"]["file"] == "jobs.yaml"
    assert reconciler("review HEAD~1 main --json") == result
    assert git("status", "--porcelain") == "M jobs.yaml"


def test_each_side_has_the_files_that_its_root_file_includes(reconciler: Reconciler, git: Git) -> None:
    root = manifest("a", more="include: jobs/*.yaml\n")
    other = "jobs:" + manifest("b").partition("jobs:")[2]
    Path("notes").symlink_to("/elsewhere")
    commit(git, {"jobs.yaml": root, "more/b.yaml": other, "values.yaml": "bucket: data\n"})
    commit(git, {"jobs.yaml": root.replace("jobs/", "more/")})
    assert keys(reconciler("review HEAD~1 HEAD --json")) == [("b", "added")]
    result = reconciler("review HEAD . --json")
    assert (keys(result), result.document["warnings"]) == ([], [])
    commit(git, {"jobs.yaml": manifest("a"), "values.yaml": "{}"})
    assert "notes: it is a link to /elsewhere" in reconciler("review HEAD .").out


def test_revision_is_compared_with_the_work_tree(reconciler: Reconciler, git: Git) -> None:
    commit(git, {"stacks/one/jobs.yaml": ONE, "stacks/two/jobs.yaml": ONE})
    write({"stacks/two/jobs.yaml": TWO})
    assert keys(reconciler("review HEAD stacks/two --json")) == [("b", "added")]
    assert keys(reconciler("review HEAD stacks/two/jobs.yaml --json")) == [("b", "added")]
    assert keys(reconciler("review HEAD . stacks/two --json")) == [("b", "added")]


def test_directory_wins_over_a_revision_of_that_name(reconciler: Reconciler, git: Git) -> None:
    commit(git, {"jobs.yaml": ONE})
    git("branch", "other")
    write({"other/jobs.yaml": TWO.replace("stack: test", "stack: elsewhere")})
    result = reconciler("review main other --json")
    assert documented(result)["head"]["commit"] is None  # type: ignore[index]


def test_stack_is_the_one_of_the_current_directory(reconciler: Reconciler, git: Git) -> None:
    commit(git, {"one/jobs.yaml": ONE, "two/jobs.yaml": ONE})
    commit(git, {"two/jobs.yaml": TWO})
    reconciler.patch.chdir("two")
    assert keys(reconciler("review HEAD~1 HEAD --json")) == [("b", "added")]
    assert keys(reconciler("review HEAD~1 HEAD ../one --json")) == []
    top = Path.cwd().parent
    assert keys(reconciler("review HEAD~1 HEAD", str(top / "two"), "--json")) == [("b", "added")]


def test_stack_missing_from_base_is_all_added(reconciler: Reconciler, git: Git) -> None:
    commit(git, {"README": "nothing yet"})
    commit(git, {"stacks/one/jobs.yaml": ONE})
    result = reconciler("review HEAD~1 HEAD stacks/one --json")
    assert keys(result) == [("a", "added")]
    assert result.document["base"]["stack"] is None


# ── exit codes ─────────────────────────────────────────────────────────────────────────────────────


def test_nonexistent_revision_or_path_is_wrong_usage(reconciler: Reconciler, git: Git) -> None:
    commit(git, {"jobs.yaml": ONE})
    for line in (
        *("nowhere HEAD", "HEAD nowhere", "HEAD^{tree} HEAD", "HEAD HEAD nowhere", "HEAD HEAD ../outside"),
        *("HEAD HEAD /", "--all HEAD", "-- --all HEAD", "-- -h HEAD", "HEAD..HEAD HEAD", "HEAD"),
        "HEAD HEAD -t nowhere",
    ):
        reconciler.ends(64, f"review {line}", out="")


def test_revision_without_a_repository_is_wrong_usage(reconciler: Reconciler) -> None:
    reconciler.setenv("GIT_CEILING_DIRECTORIES", str(Path.cwd().parent))
    write({"new/jobs.yaml": ONE})
    result = reconciler.ends(64, "review main new")
    assert "'main' is not a directory, and no git repository was found here" in result.err


def test_several_stacks_are_wrong_usage_and_named_relative_to_the_repository(
    reconciler: Reconciler, git: Git
) -> None:
    commit(git, {"one/jobs.yaml": ONE, "two/jobs.yaml": ONE})
    reconciler.ends(64, "review HEAD HEAD", err="choose one of: HEAD:one, HEAD:two")


def test_problems_of_both_sides_are_reported_with_repository_paths(
    reconciler: Reconciler, git: Git, temporary: Path
) -> None:
    commit(git, {"stack/jobs.yaml": ONE.replace("lr: 0.1", "lr: ${var.x}")})
    commit(git, {"stack/jobs.yaml": ONE.replace("boot_file", "bootfile")})
    result = reconciler.ends(65, "review main~1 main stack", err="--> main~1:stack/jobs.yaml:12:")
    assert "--> main:stack/jobs.yaml:10:" in result.err
    assert str(temporary) not in result.err
    assert result.out == ""


def test_root_file_above_the_copy_is_never_read(reconciler: Reconciler, git: Git, temporary: Path) -> None:
    """The directory for temporary files is writable by everybody."""
    stray = temporary / "stray.yaml"
    stray.write_text(TWO, encoding="utf-8")
    commit(git, {"jobs.yaml": "jobs: {}\n"})
    result = reconciler("review HEAD HEAD")
    stray.unlink()
    assert (result.code, "no root file" in result.err) == (65, True)


# ── variables and targets ──────────────────────────────────────────────────────────────────────────

WITH_VARIABLE = manifest("a", lr="${var.lr}", more="variables: {lr: {}}\n")


def test_variable_declared_by_one_side_only_may_be_given(reconciler: Reconciler) -> None:
    write({"old/jobs.yaml": ONE, "new/jobs.yaml": WITH_VARIABLE})
    result = reconciler("review old new --var lr=0.1 --json")
    assert keys(result) == []
    reconciler.ends(65, "review old new --var lr=0.1 --var oops=1")


def test_neither_service_nor_credentials_are_needed(reconciler: Reconciler) -> None:
    texts = (
        text.replace("{kind: local}", "{kind: modelarts, endpoint: 'https://nowhere.invalid', project_id: p}")
        for text in (ONE, TWO)
    )
    old, new = texts
    write({"old/jobs.yaml": old, "new/jobs.yaml": new})
    assert keys(reconciler("review old new --json")) == [("b", "added")]
    assert not Path("old/.reconciler").exists()


# ── unreadable ─────────────────────────────────────────────────────────────────────────────────────


def test_copy_is_for_its_owner_only(reconciler: Reconciler, git: Git, temporary: Path) -> None:
    seen: list[int] = []
    copy = git_module.copy_manifests

    def watched(repository: object, made: str, directory: Path) -> object:
        seen.append(stat.S_IMODE(directory.stat().st_mode))
        return copy(repository, made, directory)  # type: ignore[arg-type]

    reconciler.patch.setattr("reconciler.review.copy_manifests", watched)
    commit(git, {"jobs.yaml": ONE})
    reconciler.ends(0, "review HEAD HEAD")
    assert seen == [0o700, 0o700]


# ── output ─────────────────────────────────────────────────────────────────────────────────────────


ON_TARGETS = manifest("a", lr="${var.lr}", more="target: dev\nvariables: {lr: {}}\n").replace(
    "  there: {kind: local}\n",
    "  dev: {kind: local, variables: {lr: 0.1}}\n  prod: {kind: local, variables: {lr: 0.2}}\n",
)


def targets(result: Result) -> list[tuple[list[str], list[str]]]:
    """Return the target groups of a review, with the keys that differ there."""
    found = result.document
    return [(one["targets"], [job["key"] for job in one["jobs"]]) for one in (found, *found["others"])]


@pytest.mark.parametrize(
    ("old", "new", "reviewed", "last_line"),
    [
        (
            "lr: 0.2",
            "lr: 0.3",
            [(["dev"], []), (["prod"], ["a"])],
            "Review: 0 added, 0 removed, 0 renamed, 1",
        ),
        ("train.py", "other.py", [(["dev", "prod"], ["a"])], "Review: 0 added, 0 removed, 0 renamed, 1"),
        ("target: dev", "target: prod", [(["prod", "dev"], [])], "Review: 0 added"),
        # A renamed target is the same one; a new one has no jobs yet.
        ("dev", "test", [(["test", "prod"], [])], "Review: 0 added"),
        (
            "targets:\n",
            "targets:\n  new: {kind: local, variables: {lr: 1}}\n",
            [(["dev", "prod"], []), (["new"], ["a"])],
            "Review: 1 added",
        ),
        # A target without values for its expressions is skipped and named.
        ("lr: 0.2", "lr: '${env.NOT_SET}'", [(["dev"], [])], "Review: 0 added"),
    ],
)
def test_every_target_is_reviewed_and_equal_ones_are_grouped(
    reconciler: Reconciler, old: str, new: str, reviewed: list[tuple[list[str], list[str]]], last_line: str
) -> None:
    write({"old/jobs.yaml": ON_TARGETS, "new/jobs.yaml": ON_TARGETS.replace(old, new)})
    assert targets(reconciler("review old new --json")) == reviewed
    result = reconciler.ends(
        0, "review old new", out=[f"Stack test on {', '.join(names)}:" for names, _ in reviewed]
    )
    assert result.out.splitlines()[-1].startswith(last_line)
    if "NOT_SET" in new:
        for line in ("review old new", "review new old"):
            result = reconciler.ends(0, line, out='the target "prod" was not checked: NOT_SET is not set')
            assert result.out.count("warning:") == 1
    for format_ in ("markdown", "html", "junit"):
        shown = reconciler("review old new -o", format_).out
        assert ("(target prod)" in shown) is (len(reviewed) > 1 and reviewed[1][0] == ["prod"])


def test_policy_denying_on_one_target_refuses_the_review(reconciler: Reconciler) -> None:
    policies = "policies: [{name: dev-only, deny: target.name == 'prod', message: not yet}]\n"
    write({"old/jobs.yaml": ON_TARGETS, "new/jobs.yaml": ON_TARGETS.replace("train.py", "b.py") + policies})
    result = reconciler.ends(3, "review old new --json", err="dev-only denies a: not yet")
    assert [len(one["denied"]) for one in (result.document, *result.document["others"])] == [0, 1]
    reconciler.ends(0, "review old new -t dev")


@pytest.mark.parametrize(
    ("spec", "nodes", "message"),
    [
        ("", 2, "Cost of all jobs per hour: CNY 1.50 -> 3.00 (+1.50)"),
        ("    auto_stop: 8h\n", 3, "Cost of all jobs at most: CNY 12.00 -> 36.00 (+24.00)"),
        ("    auto_stop: 8h\n", 1, "Cost of all jobs at most: CNY 12.00, unchanged"),
        (None, 2, "Cost of all jobs: unknown, a flavor has no price"),
    ],
)
def test_change_shows_its_additional_cost(
    reconciler: Reconciler, spec: str | None, nodes: int, message: str
) -> None:
    flavor = "elsewhere" if spec is None else "modelarts.vm.cpu.2u"
    one = manifest("a", more=f"prices: {{currency: CNY, node_hour: {{{flavor}: 1.5}}}}\n")
    one = one.replace("    spec:\n", f"    spec:\n  {spec}") if spec else one
    write({"old/jobs.yaml": one, "new/jobs.yaml": one.replace("cpu.2u}", f"cpu.2u, node_count: {nodes}}}")})
    reconciler.ends(0, "review old new", out=message)
    cost = reconciler("review old new --json").document["cost"]
    assert (cost["currency"], cost["cost_max"]["after"]) == ("CNY", 12.0 * nodes if spec else None)


def test_manifests_can_be_compared_on_one_target(reconciler: Reconciler) -> None:
    write({"old/jobs.yaml": ON_TARGETS, "new/jobs.yaml": ON_TARGETS.replace("lr: 0.2", "lr: 0.3")})
    result = reconciler("review old new -t prod --json")
    assert keys(result) == [("a", "changed")]
    # Variable values of targets may be secrets; their effect shows in the jobs.
    assert (result.document["target"], result.document["settings"]) == ("prod", [])
