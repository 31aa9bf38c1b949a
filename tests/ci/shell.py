"""Runs workflow scripts: bash with the commands of a CI machine."""

from __future__ import annotations

import shlex
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from tests.ci import program

ROOT = Path(__file__).parents[2]
#: `pip install` arguments; already installed, so nothing is fetched.
RECONCILER = "git+https://example.org/reconciler@v1"

_PYTHON = """\
#!/bin/sh
if [ "$1 $2 $3" = "-m pip install" ]; then
  shift 3
  [ "$1" = --quiet ] && shift
  [ "$*" = {package} ]
  exit
fi
exec {python} "$@"
"""


class Script(NamedTuple):
    code: int
    log: str


class Shell:
    """bash with `reconciler`, `python` and further commands."""

    def __init__(self, directory: Path, commands: Mapping[str, str] | None = None) -> None:
        self._bin, self._home = directory / "bin", directory / "home"
        self._bin.mkdir(parents=True)
        self._home.mkdir()
        python = _PYTHON.format(package=shlex.quote(RECONCILER), python=shlex.quote(sys.executable))
        own = {"python": python, "reconciler": program.script()}
        for name, text in {**own, **(commands or {})}.items():
            file = self._bin / name
            file.write_text(text, encoding="utf-8")
            file.chmod(0o755)

    def run(self, script: str, directory: Path, environ: Mapping[str, str]) -> Script:
        """Run a script as a CI machine does: the first command that fails ends it."""
        command = ["bash", "--noprofile", "--norc", "-eo", "pipefail", "-c", script]
        path = f"{self._bin}:/usr/bin:/bin"
        done = subprocess.run(
            command,
            cwd=directory,
            env={"PATH": path, "HOME": str(self._home), "LANG": "C.UTF-8", **environ},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=60,
        )
        return Script(done.returncode, done.stdout)


def check_out(repository: Path, commit: str, directory: Path, depth: int = 0) -> None:
    """Check out a commit with this many ancestors; 0 means all."""
    directory.mkdir(parents=True, exist_ok=True)
    limit = [f"--depth={depth}"] if depth else []
    for command in (
        ["init", "--quiet"],
        ["fetch", "--quiet", *limit, f"file://{repository}", commit],
        ["checkout", "--quiet", "FETCH_HEAD"],
    ):
        subprocess.run(["git", *command], cwd=directory, check=True, capture_output=True)


def read_assignments(file: Path) -> dict[str, str]:
    lines = file.read_text(encoding="utf-8").splitlines() if file.is_file() else []
    return dict(line.split("=", 1) for line in lines)
