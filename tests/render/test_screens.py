"""Screens of a terminal of 80 and 120 columns; `UPDATE_GOLDEN=1 pytest` rewrites the files.

One world: a sweep of nine, a pipeline, and a job that fails, on the local target. Ids and times are always
the same, and the commands run in this process, on a pseudo-terminal.
"""

from __future__ import annotations

import fcntl
import itertools
import os
import pty
import struct
import sys
import termios
import threading
from functools import partial
from pathlib import Path
from uuid import NAMESPACE_URL, uuid5

import pyte
import pytest

from reconciler.cli.console import console
from reconciler.cli.main import cli, run
from reconciler.emulator import ManualClock, Store
from reconciler.secrets import Redactor
from tests.apply.service import SharedTime
from tests.render.test_golden import GOLDEN, check

_ROWS = 100
MANIFEST = """\
apiVersion: reconciler/v1
stack: vision
targets:
  local: {kind: local}
defaults:
  algorithm:
    code_dir: obs://vision/code/
    boot_file: obs://vision/code/train.py
    engine: {engine_id: pytorch_1.8.0-cuda_10.2-py_3.7-ubuntu_18.04-x86_64}
  spec:
    resource: {flavor_id: modelarts.p3.large.public, node_count: 1}
    auto_stop: 48h
jobs:
  prepare:
    algorithm:
      environments: {EMULATOR_RUN_SECONDS: "600"}
      outputs: {data: "obs://vision/data/"}
  train:
    algorithm:
      inputs: {data: "${jobs.prepare.outputs.data}"}
      environments: {EMULATOR_RUN_SECONDS: "36000"}
    spec: {resource: {node_count: 4}}
  evaluate:
    needs: train
  lr-sweep:
    matrix: {lr: [0.1, 0.01, 0.001], batch: [64, 128, 256]}
    algorithm:
      environments: {EMULATOR_RUN_SECONDS: "36000"}
      parameters: {lr: "${matrix.lr}", batch: "${matrix.batch}", warmup: 5}
  tokenizer-of-the-large-corpus:
    algorithm:
      environments: {EMULATOR_RUN_SECONDS: "300", EMULATOR_RESULT: Failed}
  # gone soon
  baseline:
    algorithm:
      environments: {EMULATOR_RUN_SECONDS: "36000"}
"""


class Screen:
    """A pseudo-terminal of this process, of a given width."""

    def __init__(self, columns: int, patch: pytest.MonkeyPatch) -> None:
        self._columns, self._patch = columns, patch

    def __call__(self, line: str) -> str:
        """Run a command, and return the final screen contents."""
        master, slave = pty.openpty()
        fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", _ROWS, self._columns, 0, 0))
        screen = pyte.Screen(self._columns, _ROWS)
        reader = threading.Thread(target=_read, args=(master, pyte.ByteStream(screen)))
        reader.start()
        try:
            with self._patch.context() as patch, os.fdopen(slave, "w", encoding="utf-8") as stream:
                patch.setattr(sys, "stdout", stream)
                patch.setattr(sys, "stderr", stream)
                code = run(cli, line.split())
        finally:
            reader.join()
            os.close(master)
        shown = "\n".join(text.rstrip() for text in screen.display).rstrip()
        return f"$ reconciler {line}\n{shown}\n[exit code {int(code)}]\n"


def _read(master: int, stream: pyte.ByteStream) -> None:
    try:
        while data := os.read(master, 65_536):
            stream.feed(data)
    except OSError:  # closed by the other end
        return


@pytest.mark.parametrize("columns", [80, 120])
def test_screens_match_their_golden_files(
    columns: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock, numbers = ManualClock(), itertools.count(1)
    time = SharedTime(clock)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(console, "redact", Redactor())
    monkeypatch.setattr("reconciler.emulator.Store", partial(Store, clock=clock))
    monkeypatch.setattr(
        "reconciler.emulator.store.uuid.uuid4", lambda: uuid5(NAMESPACE_URL, str(next(numbers)))
    )
    monkeypatch.setattr("reconciler.modelarts.clock.SystemClock", lambda *_: time)
    for name in ("NO_COLOR", "LINES", "COLUMNS"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.setenv("LOGNAME", "alice")
    screen, manifest = Screen(columns, monkeypatch), tmp_path / "jobs.yaml"
    manifest.write_text(MANIFEST, encoding="utf-8")

    screens = [("apply", screen("apply --yes --parallelism 1"))]
    time.sleep(1800)
    edited = MANIFEST.replace("warmup: 5", "warmup: 10").partition("  # gone soon\n")[0]
    manifest.write_text(edited, encoding="utf-8")
    commands = (
        "plan",
        "status",
        "why train",
        "why lr-sweep",
        "why tokenizer-of-the-large-corpus",
        "jobs list",
        "drift",
    )
    screens += [(command, screen(command)) for command in commands]
    named = {f"{columns}-{name.replace(' ', '-')}.text": text for name, text in screens}
    for name, text in named.items():
        check(f"screens/{name}", text)
    assert {path.name for path in (GOLDEN / "screens").glob(f"{columns}-*")} == named.keys()
