"""Pages with commands and what they print: run the commands again, and put in what they print now.

A block of `sh` holds commands; a block of `text` straight behind it holds what they print on stdout, and
with `2>&1` on stderr too; `> FILE` behind a command writes that to a file instead. A block of `yaml` whose
first line is a comment with the name of a file is that file: it is written before the commands behind it are
run. On a page that is run at the top, each section with files has a directory of its own. A block of `python`
with a block of `text` straight behind it is a cell of a notebook, which prints that.
The commands run in this process, on a clock that begins at a fixed time: `sleep 60` moves it on and
waits for nothing. `# exits 2` behind a command says which exit code it has, if that is not 0.
Where jobs are processes of this machine, time is real, and how long one ran is always written as two seconds.
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
#: A plan's digest covers the ids in it; the marker of an adopted job holds the first digits of one.
_DIGEST = re.compile(r"(?<=; plan )[0-9a-f]{12}$|(?<=^sha256:)[0-9a-f]{64}$|(?<=\.id)[0-9a-f]{8}\b", re.M)
#: How long a process ran is chance, too; what ended at once has no time at all.
#: How long a process ran: two seconds, or too short to be expected again.
_DURATION = re.compile(r"^(  Completed +\S+ +\S+).*$|; \d+ node-\w+ expected", re.M)
_AGE = re.compile(r"(?<=kB  )\d+ s +|(?<=AGE) +(?=STATE)")
#: Setting the program up is no part of what a page shows, nor is testing it.
_NOT_RUN = ("{ [ -x .venv/", ".venv/bin/python -m ")


class WentWrong(AssertionError):
    """A command did not exit as the page says."""


class PageRun:
    """One run of a page's commands: its directory, its time, and the ids that it has seen."""

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
        """Return the page with what its commands print now."""
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
        # Time leaps here, and whoever keeps the lock alive does so in real time.
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
        """The text without what is chance."""
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
        """Ids are chance; on a page the first one seen is always the same."""
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
