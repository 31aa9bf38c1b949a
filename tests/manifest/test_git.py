"""Manifest files of a commit: copied without a checkout, and confined to the copy."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from reconciler.manifest.git import GitFailed, Repository, copy_manifests
from tests.git_repository import Git, commit, write
from tests.hostile.sizes import RecordProperty, count_tried
from tests.processes import children


def repository() -> Repository:
    found = Repository.around(Path.cwd(), os.environ)
    assert found is not None
    return found


def copied(directory: Path) -> dict[str, str]:
    return {
        path.relative_to(directory).as_posix(): path.read_text(encoding="utf-8")
        for path in sorted(directory.rglob("*"))
        if path.is_file() and not path.is_symlink()
    }


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    place = tmp_path / "copy"
    place.mkdir()
    return place


def test_only_manifest_files_are_copied(git: Git, directory: Path) -> None:
    made = commit(git, {"a.yaml": "a", "deep/er/b.yml": "b", "train.py": "c", "data.bin": "d"})
    files = copy_manifests(repository(), made, directory)
    assert copied(directory) == {"a.yaml": "a", "deep/er/b.yml": "b"}
    assert files.has("train.py")
    assert files.has("deep")
    assert files.has("")
    assert not files.has("dee")
    assert files.has_manifests_at("deep")
    assert not files.has_manifests_at("train.py")


def test_work_tree_and_index_stay_as_they_are(git: Git, directory: Path) -> None:
    made = commit(git, {"a.yaml": "committed"})
    write({"a.yaml": "edited", "new.yaml": "untracked"})
    copy_manifests(repository(), made, directory)
    assert copied(directory) == {"a.yaml": "committed"}
    assert Path("a.yaml").read_text(encoding="utf-8") == "edited"
    assert git("status", "--porcelain") == "M a.yaml\n?? new.yaml"


def test_link_within_the_commit_stays_a_link(git: Git, directory: Path) -> None:
    Path("link.yaml").symlink_to("shared/jobs.txt")
    Path("linked").symlink_to("shared")
    made = commit(git, {"shared/a.yaml": "a", "shared/jobs.txt": "jobs"})
    files = copy_manifests(repository(), made, directory)
    assert (directory / "link.yaml").read_text(encoding="utf-8") == "jobs"
    assert (directory / "linked" / "a.yaml").read_text(encoding="utf-8") == "a"
    assert files.left_out == {}


@pytest.mark.parametrize("target", ["/etc/passwd", "../outside.yaml", "../../etc", "/"])
def test_link_that_leads_out_of_the_commit_is_left_out(git: Git, directory: Path, target: str) -> None:
    (directory.parent / "outside.yaml").write_text("secret", encoding="utf-8")
    Path("link.yaml").symlink_to(target)
    made = commit(git, {})
    files = copy_manifests(repository(), made, directory)
    assert files.left_out == {"link.yaml": f"it is a link to {target}, outside the repository"}
    assert not (directory / "link.yaml").is_symlink()


def test_link_that_leads_out_by_way_of_another_link_is_left_out(git: Git, directory: Path) -> None:
    """`z/../..` seems to stay inside, but z is a link to the top."""
    (directory.parent / "outside.yaml").write_text("secret", encoding="utf-8")
    Path("a/b").mkdir(parents=True)
    Path("a/b/z").symlink_to("../../c")
    Path("a/b/jobs.yaml").symlink_to("z/../../outside.yaml")
    made = commit(git, {"c/d.yaml": "d"})
    files = copy_manifests(repository(), made, directory)
    assert list(files.left_out) == ["a/b/jobs.yaml"]


#: A file, a link, a directory and a submodule, as a tree writes them.
FILE, LINK, DIRECTORY, SUBMODULE = "100644", "120000", "40000", "160000"


def tree_of(git: Git, *entries: tuple[str, str, str]) -> str:
    """Write a tree of (mode, name, object), also with names that git would refuse."""
    data = b"".join(f"{mode} {name}\0".encode() + bytes.fromhex(oid) for mode, name, oid in entries)
    return git("hash-object", "-t", "tree", "-w", "--literally", "--stdin", feed=data)


def crafted(git: Git, *entries: tuple[str, str, str]) -> str:
    """Commit such a tree."""
    return git("commit-tree", tree_of(git, *entries), "-m", "crafted")


def blob(git: Git, content: str) -> str:
    return git("hash-object", "-w", "--stdin", feed=content.encode())


def test_submodule_is_left_out(git: Git, directory: Path) -> None:
    made = crafted(git, (SUBMODULE, "module", "1" * 40))
    assert copy_manifests(repository(), made, directory).left_out == {"module": "it is a submodule"}


@pytest.mark.parametrize("name", ["..", "."])
def test_path_that_leads_out_of_the_repository_is_refused(git: Git, directory: Path, name: str) -> None:
    made = crafted(git, (DIRECTORY, name, tree_of(git, (FILE, "evil.yaml", blob(git, "evil")))))
    with pytest.raises(GitFailed):
        copy_manifests(repository(), made, directory)
    assert not (directory.parent / "evil.yaml").exists()


def test_file_below_a_link_of_the_same_name_is_refused(git: Git, directory: Path) -> None:
    inner = tree_of(git, (LINK, "evil.yaml", blob(git, "evil")))
    made = crafted(git, (LINK, "a", blob(git, str(directory.parent))), (DIRECTORY, "a", inner))
    with pytest.raises(GitFailed, match="is below a link"):
        copy_manifests(repository(), made, directory)
    assert [path.name for path in directory.parent.iterdir() if "evil" in path.name] == []


def test_missing_object_is_reported_and_not_fetched(git: Git, directory: Path) -> None:
    made = crafted(git, (FILE, "a.yaml", "2" * 40))
    with pytest.raises(GitFailed, match="shallow or partial clone"):
        copy_manifests(repository(), made, directory)


def test_configured_commands_of_the_repository_are_not_run(git: Git, directory: Path) -> None:
    trap = directory.parent / "trap"
    trap.write_text("#!/bin/sh\ntouch sprung\n", encoding="utf-8")
    trap.chmod(0o700)
    made = commit(git, {"a.yaml": "a", ".gitattributes": "*.yaml filter=trap diff=trap\n"})
    for name in ("fsmonitor", "pager", "sshCommand"):
        git("config", f"core.{name}", str(trap))
    for name in ("filter.trap.smudge", "diff.trap.textconv"):
        git("config", name, str(trap))
    for hook in ("post-checkout", "pre-commit", "reference-transaction"):
        Path(".git/hooks", hook).write_bytes(trap.read_bytes())
        Path(".git/hooks", hook).chmod(0o700)
    copy_manifests(repository(), made, directory)
    assert copied(directory) == {"a.yaml": "a"}
    assert not list(directory.parent.rglob("sprung"))


@pytest.mark.parametrize(
    "revision", ["main", "HEAD", "HEAD~0", "tagged", "@", ":/on", ":/^on", "HEAD^{/one}"]
)
def test_revision_names_a_commit(git: Git, revision: str) -> None:
    made = commit(git, {"a.yaml": "a"})
    git("tag", "-a", "tagged", "-m", "a tag")
    assert repository().commit(revision) == made
    assert repository().commit(made[:10]) == made


@pytest.mark.parametrize(
    "revision",
    [
        *("nothing", "-h", "--all", "--output=x", "HEAD:a.yaml", "^HEAD", "HEAD..HEAD"),
        *("", ":/two", "a\0b", "\x1b[2J"),
    ],
)
def test_revision_that_is_no_commit_is_none(git: Git, revision: str) -> None:
    commit(git, {"a.yaml": "a"})
    assert repository().commit(revision) is None
    assert not Path("x").exists()


def test_directory_outside_any_repository_has_no_repository(tmp_path: Path) -> None:
    assert (
        Repository.around(tmp_path, {**os.environ, "GIT_CEILING_DIRECTORIES": str(tmp_path.parent)}) is None
    )


def test_refused_repository_quotes_the_git_error(git: Git, monkeypatch: pytest.MonkeyPatch) -> None:
    commit(git, {"a.yaml": "a"})
    monkeypatch.setenv("GIT_TEST_ASSUME_DIFFERENT_OWNER", "1")
    with pytest.raises(GitFailed, match="dubious ownership"):
        repository()


def test_place_in_the_repository_is_that_of_the_directory(git: Git) -> None:
    commit(git, {"deep/er/a.yaml": "a"})
    found = Repository.around(Path.cwd() / "deep/er", os.environ)
    assert found is not None
    assert (found.prefix, found.common_directory) == ("deep/er", repository().common_directory)
    assert repository().prefix == ""


def test_without_git_there_is_no_repository(git: Git) -> None:
    assert Repository.around(Path.cwd(), {**os.environ, "PATH": ""}) is None


def test_oversized_file_is_not_copied_whole(
    git: Git, directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("reconciler.manifest.git.MAX_FILE_BYTES", 4)
    made = commit(git, {"a.yaml": "123456", "b.yaml": "b"})
    copy_manifests(repository(), made, directory)
    assert (directory / "a.yaml").read_bytes() == b"12345"
    assert (directory / "b.yaml").read_bytes() == b"b"


# ── deceptive repositories, and ones that block git ────────────────────────────────────────────────


def test_replaced_object_is_read_in_its_original_form(git: Git, directory: Path) -> None:
    first = commit(git, {"a.yaml": "as reviewed"})
    shown = git("rev-parse", "HEAD:a.yaml")
    git("replace", shown, blob(git, "something else"))
    other = git("commit-tree", git("mktree", feed=b""), "-m", "empty")
    git("replace", "-f", first, other)
    copy_manifests(repository(), first, directory)
    assert copied(directory) == {"a.yaml": "as reviewed"}


def test_grafted_parent_is_ignored(git: Git) -> None:
    first = commit(git, {"a.yaml": "a"})
    second = commit(git, {"a.yaml": "b"})
    other = git("commit-tree", git("mktree", feed=b""), "-m", "other")
    Path(".git/info/grafts").write_text(f"{second} {other}\n", encoding="utf-8")
    assert repository().commit("HEAD~1") == first


#: Repository files that block git if replaced by a pipe.
BLOCKING = (
    *("config", "HEAD", "commondir", "refs/heads/main", "packed-refs", "objects/info/alternates", "shallow"),
    "included",
)


@pytest.mark.parametrize("name", BLOCKING)
def test_git_blocked_on_a_pipe_is_stopped_at_the_timeout(
    git: Git, directory: Path, monkeypatch: pytest.MonkeyPatch, name: str, record_property: RecordProperty
) -> None:
    made = commit(git, {"a.yaml": "a"})
    git("config", "include.path", "included")
    Path(".git", name).unlink(missing_ok=True)
    os.mkfifo(Path(".git", name))
    before = children()
    monkeypatch.setattr("reconciler.manifest.git._TIMEOUT_S", 0.2)
    with pytest.raises(GitFailed, match="did not end within"):
        _read_all(made, directory)
    assert children() == before
    count_tried(record_property, "hostile git repositories", 1)


def _read_all(made: str, directory: Path) -> None:
    found = repository()
    found.commit("main")
    copy_manifests(found, made, directory)


LONG = "x" * 10_000


@pytest.mark.parametrize(
    ("path", "why"),
    [
        (f"{LONG}.yaml", "File name too long"),
        (f"{'é' * 150}.yaml", "File name too long"),
        ("/".join(["x" * 200] * 30) + "/a.yaml", "File name too long"),
        ("d/" * 250 + "a.yaml", "it is more than 200 directories deep"),
    ],
    ids=["name", "name in bytes", "path", "depth"],
)
@pytest.mark.parametrize("mode", [FILE, LINK])
def test_path_of_any_length_is_left_out_with_the_reason(
    git: Git, directory: Path, path: str, why: str, mode: str, record_property: RecordProperty
) -> None:
    *above, name = path.split("/")
    entry = (mode, name, blob(git, "jobs.yaml"))
    for part in reversed(above):
        entry = (DIRECTORY, part, tree_of(git, entry))
    made = crafted(git, (FILE, "!.yaml", blob(git, "jobs.yaml")), entry)
    files = copy_manifests(repository(), made, directory)
    assert files.left_out == {path: why}
    assert copied(directory) == {"!.yaml": "jobs.yaml"}
    count_tried(record_property, "hostile git repositories", 1)


@pytest.mark.parametrize("target", [LONG, "../" * 2000, "x/" * 10_000_000], ids=["name", "up", "20 MB"])
def test_link_of_any_length_is_left_out(
    git: Git, directory: Path, target: str, record_property: RecordProperty
) -> None:
    made = crafted(git, (LINK, "link.yaml", blob(git, target)))
    files = copy_manifests(repository(), made, directory)
    assert files.left_out == {"link.yaml": "File name too long"}
    assert copied(directory) == {}
    count_tried(record_property, "hostile git repositories", 1)


def test_environment_of_the_caller_does_not_affect_git(
    git: Git, directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = commit(git, {"a.yaml": "a"})
    trace = directory.parent / "trace"
    for name in ("GIT_TRACE", "GIT_TRACE2_EVENT", "GIT_TRACE_SETUP"):
        monkeypatch.setenv(name, str(trace))
    monkeypatch.setenv("GIT_CONFIG_PARAMETERS", "'core.fsmonitor'='touch sprung'")
    monkeypatch.setenv("HUAWEICLOUD_SDK_SK", "tell-nobody-1")
    copy_manifests(repository(), made, directory)
    assert not trace.exists()
    assert "tell-nobody-1" not in str(repository().environ)


def test_repository_marked_safe_by_the_environment_is_read(
    git: Git, directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = commit(git, {"a.yaml": "a"})
    monkeypatch.setenv("GIT_TEST_ASSUME_DIFFERENT_OWNER", "1")
    for name, value in (("COUNT", "1"), ("KEY_0", "safe.directory"), ("VALUE_0", str(Path.cwd()))):
        monkeypatch.setenv(f"GIT_CONFIG_{name}", value)
    copy_manifests(repository(), made, directory)
    assert copied(directory) == {"a.yaml": "a"}
