"""A temporary git repository for tests."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Protocol

import pytest

WHEN = "2026-01-01T00:00:00Z"


class Git(Protocol):
    """Runs git in the current directory and returns its output; `feed` goes to its stdin."""

    def __call__(self, *arguments: str, feed: bytes = b"") -> str: ...


def make_repository(directory: Path, monkeypatch: pytest.MonkeyPatch) -> Git:
    """Make a new repository, which becomes the current directory."""
    for name in [name for name in os.environ if name.startswith("GIT_")]:
        monkeypatch.delenv(name)
    for who in ("AUTHOR", "COMMITTER"):
        for name, value in (("NAME", "somebody"), ("EMAIL", "somebody@example.org"), ("DATE", WHEN)):
            monkeypatch.setenv(f"GIT_{who}_{name}", value)
    directory.mkdir()
    monkeypatch.chdir(directory)

    def call(*arguments: str, feed: bytes = b"") -> str:
        done = subprocess.run(["git", *arguments], check=True, capture_output=True, input=feed)
        return done.stdout.decode().strip()

    call("init", "--quiet", "--initial-branch=main")
    return call


def write(files: Mapping[str, str]) -> None:
    """Write files below the current directory."""
    for name, text in files.items():
        path = Path(name)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")


def commit(git: Git, files: Mapping[str, str]) -> str:
    """Commit these files and all others that changed; returns the id of the commit."""
    write(files)
    git("add", "--all")
    git("commit", "--quiet", "--allow-empty", "-m", "one")
    return git("rev-parse", "HEAD")
