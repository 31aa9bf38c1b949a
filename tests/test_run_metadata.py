"""The place of a stack's manifests: equal in every checkout, different elsewhere."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from reconciler import run_metadata
from reconciler.run_metadata import find_place
from tests.git_repository import make_repository


@pytest.mark.parametrize(
    "remote",
    [
        "https://github.com/o/r",
        "https://alice:tell-nobody-1@GitHub.com/o/r.git",
        "ssh://git@github.com:22/o/r.git",
        "git@github.com:o/r.git",
        "github.com:o/r",
    ],
)
def test_place_in_a_shared_repository_is_its_name_and_path(
    remote: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    git = make_repository(tmp_path / "checkout", monkeypatch)
    git("remote", "add", "origin", remote)
    root = tmp_path / "checkout" / "stacks" / "vision"
    root.mkdir(parents=True)
    assert find_place(root) == "github.com/o/r//stacks/vision"
    assert find_place(tmp_path / "checkout") == "github.com/o/r//"


@pytest.mark.parametrize("remote", ["/srv/git/r.git", "file:///srv/git/r.git"])
def test_repository_on_a_disk_is_named_by_its_path(
    remote: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    git = make_repository(tmp_path / "checkout", monkeypatch)
    git("remote", "add", "origin", remote)
    assert find_place(tmp_path / "checkout") == f"{remote}//"


@pytest.mark.parametrize("is_repository", [False, True])
def test_place_outside_of_a_shared_repository_is_the_directory(
    is_repository: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if is_repository:
        make_repository(tmp_path / "checkout", monkeypatch)
    (tmp_path / "checkout" / "vision").mkdir(parents=True)
    (tmp_path / "link").symlink_to(tmp_path / "checkout")
    assert find_place(tmp_path / "link" / "vision") == str((tmp_path / "checkout" / "vision").resolve())


def test_unresponsive_git_is_not_waited_for_long(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert run_metadata._GIT_TIMEOUT_S <= 5
    monkeypatch.setattr(run_metadata, "_GIT_TIMEOUT_S", 0.2)
    git = make_repository(tmp_path / "checkout", monkeypatch)
    os.mkfifo(tmp_path / "checkout" / ".git" / "pipe")
    git("config", "include.path", "pipe")
    began_s = time.monotonic()
    assert find_place(tmp_path / "checkout") == str(tmp_path / "checkout")
    assert time.monotonic() - began_s < 10
