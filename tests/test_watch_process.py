"""A process started by a watch: it always ends in time and leaves nothing behind."""

from __future__ import annotations

import os
import signal
import sys
import time
from itertools import accumulate, repeat
from pathlib import Path
from typing import Any

import pytest

from reconciler import watch
from reconciler.watch import ProcessEnd, run_process
from tests.processes import children

#: Longer than any process that ends by itself, shorter than the limit of a test.
LONG_S = 60.0
HANGING = "import time; print('begun', flush=True); time.sleep(60)"
DEAF = "import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN);" + HANGING
ORDERLY = (
    "import signal, sys; signal.signal(signal.SIGTERM, lambda *_: (print('stopped'), sys.exit(5)));" + HANGING
)


class Run:
    """The output and end of a process; its time starts with its first line."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.lines: list[bytes] = []
        self._stood_s = time.monotonic()
        self._began_s = 0.0
        monkeypatch.setattr(watch, "time", self)

    def monotonic(self) -> float:
        return self._stood_s + (time.monotonic() - self._began_s if self.lines else 0.0)

    def take(self, line: bytes) -> None:
        self._began_s = self._began_s or time.monotonic()
        self.lines.append(line)

    def __call__(
        self, code: str, limit_s: float = LONG_S, stops: int = 0, stop_s: float = 30.0
    ) -> ProcessEnd:
        """Run it, and check that no process and no file is left. `stops` become true once it has started."""
        counted = accumulate(repeat(1))
        descriptors, siblings = len(list(Path("/proc/self/fd").iterdir())), children()
        end = run_process(
            [sys.executable, "-c", code],
            dict(os.environ),
            limit_s,
            self.take,
            stops=lambda: min(stops, next(counted)) if self.lines else 0,
            stop_s=lambda: stop_s,
        )
        assert len(list(Path("/proc/self/fd").iterdir())) == descriptors
        assert children() <= siblings
        return end


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch) -> Run:
    return Run(monkeypatch)


def test_lines_and_exit_code_of_a_process_are_received(run: Run) -> None:
    assert run("print('x' * 200_000); print('end'); raise SystemExit(3)") == ProcessEnd(3)
    assert [len(line) for line in run.lines] == [200_001, 4]


@pytest.mark.parametrize(
    ("code", "told", "end"),
    [
        (HANGING, {"limit_s": 0.2}, ProcessEnd(-signal.SIGTERM, is_out_of_time=True)),
        (DEAF, {"limit_s": 0.2, "stop_s": 0.2}, ProcessEnd(-signal.SIGKILL, is_out_of_time=True)),
        (DEAF, {"stops": 2}, ProcessEnd(-signal.SIGKILL, is_stopped=True)),
        (ORDERLY, {"stops": 1}, ProcessEnd(5, is_stopped=True)),
    ],
    ids=["hangs", "does not listen", "the end is wanted twice", "ends in order"],
)
def test_process_is_ended_at_its_timeout(run: Run, code: str, told: dict[str, Any], end: ProcessEnd) -> None:
    assert run(code, **told) == end
    assert run.lines == [b"begun\n", *([b"stopped\n"] if code is ORDERLY else [])]


def test_children_of_a_process_end_with_it(run: Run, tmp_path: Path) -> None:
    child = f"import subprocess, sys; print(subprocess.Popen(['sleep', '60']).pid, flush=True);{DEAF}"
    run(child, limit_s=0.2, stop_s=0.2)
    ends_s = time.monotonic() + LONG_S
    while Path(f"/proc/{int(run.lines[0])}/cmdline").exists() and time.monotonic() < ends_s:
        if not Path(f"/proc/{int(run.lines[0])}/cmdline").read_bytes():
            break  # ended, and not yet reaped by init
        time.sleep(0.05)
    assert time.monotonic() < ends_s
