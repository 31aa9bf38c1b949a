"""Run the commands on pages, and update their output.

An `sh` block has commands; a `text` block directly after it has their output on stdout, with `2>&1` also on
stderr; `> FILE` after a command writes the output to a file instead. A `yaml` block whose first line is a
comment with a file name is that file: it is written before the commands that follow it. On a page that is run
in the root directory, each section with files has its own directory. A `python` block with a `text` block
directly after it is a notebook cell with its output. The commands run in this process, on a clock that begins
at a fixed time: `sleep 60` advances it without waiting. `# exits 2` after a command declares its exit code,
if that is not 0. If jobs are processes on this machine, time is real, and durations are always written as two
seconds.
"""

from __future__ import annotations

import io
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, chdir, redirect_stderr, redirect_stdout
from hashlib import sha256
from pathlib import Path
from textwrap import dedent, indent
from unittest import mock
from uuid import NAMESPACE_URL, uuid5

from reconciler import run_metadata
from reconciler.cli.main import cli, run
from reconciler.emulator import database
from reconciler.modelarts.clock import SystemClock
from reconciler.records.recording import RunMetadata

BEGIN_S = 1_795_000_000.0
_PARTS = re.compile(
    r"^( *)```sh\n(?P<commands>.*?)^ *```\n(?:\n* *```text\n(?P<printed>.*?)^ *```\n)?"
    r"|^ *```yaml\n *# (?P<file>[\w./-]+\.yaml)\n(?P<content>.*?)^ *```\n"
    r"|^(?P<inset> *)```python\n(?P<cell>(?:(?! *```)[^\n]*\n)+) *```\n\n *```text\n(?P<shown>.*?)^ *```\n"
    r"|^## (?P<section>[^\n]+)\n",
    re.M | re.S,
)
_BOTH = " 2>&1"
_INTO = " > "
_EXITS = re.compile(r"# exits (\d+)")
_UUID = re.compile(r"[0-9a-f]{8}-(?:[0-9a-f]{4}-){3}[0-9a-f]{12}")
#: A plan's digest covers the ids in it; the marker of an adopted job has the first digits of one.
_DIGEST = re.compile(r"(?<=; plan )[0-9a-f]{12}$|(?<=^sha256:)[0-9a-f]{64}$|(?<=\.id)[0-9a-f]{8}\b", re.M)
#: The duration of a process is random, and missing if it ended at once; it becomes two seconds.
_DURATION = re.compile(r"^(  Completed +\S+ +\S+).*$|; \d+ node-\w+ expected", re.M)
_AGE = re.compile(r"(?<=kB  )\d+ s +|(?<=AGE) +(?=STATE)")
#: Commands that set up or test the program are not run.
_NOT_RUN = ("{ [ -x .venv/", ".venv/bin/python -m ")


class WentWrong(AssertionError):
    """A command did not exit with the documented exit code."""


class PageRun:
    """One run of a page's commands: its directory, clock, and the ids seen so far."""

    def __init__(self, directory: Path, *, is_real_time: bool = False, has_directories: bool = False) -> None:
        self._directory = directory
        self._is_real_time = is_real_time
        self._has_directories = has_directories
        self._now_s = BEGIN_S
        self._ids: dict[str, str] = {}
        self._digests: dict[str, str] = {}
        self._command = ""
        self._notebook: dict[str, object] = {}
        self._section = ""
        self._is_new_section = False

    def run_again(self, page: str) -> str:
        """Return the page with the current output of its commands."""
        with self._emulated_world():
            return _PARTS.sub(self._part, page)

    def _emulated_world(self) -> ExitStack:
        world = ExitStack()
        world.enter_context(chdir(self._directory))
        world.enter_context(mock.patch.object(run_metadata, "collect_metadata", side_effect=self._origin))
        if self._is_real_time:
            return world
        world.enter_context(mock.patch.object(database, "wall_ms", side_effect=self._wall_ms))
        world.enter_context(mock.patch.object(SystemClock, "now", side_effect=self._now))
        world.enter_context(mock.patch.object(SystemClock, "sleep", side_effect=self._pass))
        # The clock jumps here, but locks are renewed in real time.
        world.enter_context(mock.patch.dict(os.environ, RECONCILER_LEASE="1000h"))
        return world

    def _origin(self, environ: object, command: str) -> RunMetadata:
        return RunMetadata("alice", "laptop, process 4711", self._command)

    def _now(self) -> float:
        return self._now_s

    def _wall_ms(self) -> int:
        return round(self._now_s * 1000)

    def _pass(self, seconds: float) -> None:
        self._now_s += seconds

    def _part(self, found: re.Match[str]) -> str:
        if found["section"] is not None:
            self._section, self._is_new_section = found["section"], True
        elif found["file"] is not None:
            self._write(found["file"], dedent(found["content"]))
        elif found["cell"] is not None:
            return _in_place_of(found, "shown", indent(self._cell(dedent(found["cell"])), found["inset"]))
        else:
            return self._block(found)
        return found[0]

    def _write(self, name: str, content: str) -> None:
        if self._is_new_section and self._has_directories:
            directory = self._directory / self._section.lower().replace(" ", "-")
            directory.mkdir()
            os.chdir(directory)
            self._is_new_section = False
        path = Path(name)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content, encoding="utf-8")

    def _block(self, found: re.Match[str]) -> str:
        printed = "".join(self._run(command) for command in commands(found["commands"]))
        if found["printed"] is None:
            return found[0]
        return _in_place_of(found, "printed", indent(printed, found[1]))

    def _cell(self, code: str) -> str:
        self._command = "apply"
        with redirect_stdout(io.StringIO()) as out:
            exec(compile(code, "notebook", "exec"), self._notebook)  # noqa: S102
        return self._stable(out.getvalue())

    def _run(self, command: str) -> str:
        for shown, digest in self._digests.items():
            command = command.replace(shown, digest)
        command, _, file = command.partition(_INTO) if "reconciler " in command else (command, "", "")
        printed = self._printed(command)
        if not file:
            return printed
        Path(file).write_text(printed, encoding="utf-8")
        return ""

    def _printed(self, command: str) -> str:
        words = shlex.split(command.replace(_BOTH, ""), comments=True)
        if not words or command.startswith(_NOT_RUN):
            return ""
        if words[0] == "sleep":
            self._pass(float(words[1]))
            return ""
        if words[0].endswith("reconciler") and words[1] != "run":
            return self._reconciler(command, words[1:])
        path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
        done = subprocess.run(  # noqa: S603
            ["sh", "-c", command],  # noqa: S607
            check=True,
            capture_output=True,
            text=True,
            env={**os.environ, "PATH": path},
        )
        return done.stdout

    def _reconciler(self, command: str, arguments: list[str]) -> str:
        out = io.StringIO()
        err = out if _BOTH in command else io.StringIO()
        self._command = arguments[0]
        with redirect_stdout(out), redirect_stderr(err):
            code = run(cli, arguments)
        found = _EXITS.search(command)
        if code != int(found[1] if found else 0):
            raise WentWrong(
                f"{command}\nexits {code}\n{out.getvalue()}{'' if err is out else err.getvalue()}"
            )
        return self._stable(out.getvalue())

    def _stable(self, printed: str) -> str:
        """Return the text without random values."""
        printed = _UUID.sub(lambda found: self._id(found[0]), printed)
        if self._is_real_time:
            printed = _DURATION.sub(_two_seconds, printed)
            printed = _AGE.sub(lambda found: "2 s  " if found[0].strip() else "  ", printed)
        return _DIGEST.sub(lambda found: self._digest(found[0]), printed)

    def _digest(self, digest: str) -> str:
        shown = sha256(self._id(digest).encode()).hexdigest()[: len(digest)]
        self._digests[shown] = digest
        return shown

    def _id(self, job_id: str) -> str:
        """Replace a random id: the nth id of a page is always the same."""
        return self._ids.setdefault(job_id, str(uuid5(NAMESPACE_URL, f"job {len(self._ids) + 1}")))


def _in_place_of(found: re.Match[str], group: str, text: str) -> str:
    start, end = (place - found.start() for place in found.span(group))
    return found[0][:start] + text + found[0][end:]


def _two_seconds(found: re.Match[str]) -> str:
    return f"{found[1]} (2 s elapsed)" if found[1] else ""


def commands(block: str) -> Iterator[str]:
    """The commands of a block, one by one; `&&` at the end of a line only joins them."""
    for line in block.splitlines():
        yield line.strip().removesuffix("&&").strip()
