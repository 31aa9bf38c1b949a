"""A signal at any moment while the program starts: its exit code, and no traceback.

The moments are function calls counted from program start, so they are reproducible.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from itertools import cycle
from pathlib import Path

import pytest

from tests.cli.conftest import manifest, write
from tests.hostile.sizes import RecordProperty, count_tried, some

ROOT = Path(__file__).parents[2]
EXITS = {signal.SIGHUP: 129, signal.SIGINT: 130, signal.SIGTERM: 143}
COMMANDS = {
    "--help": ("--help",),
    "plan": ("plan", "-o", "text", "-o", "prometheus=metrics.prom"),
}
#: Runs the program as its console script does; sends itself a signal at one call, or says how many there are,
#: and what was imported when the handlers had been set.
_PROBE = """\
import os, signal, sys
at, number = int(sys.argv[1]), int(sys.argv[2])
sys.argv[:] = ["reconciler", *sys.argv[3:]]
calls, end, imported = 0, os._exit, ""

def count(frame, event, argument):
    global calls, imported
    if event == "call" and (calls or callable(signal.getsignal(signal.SIGTERM))):
        imported = imported or " ".join(name for name in sys.modules if name.startswith("reconciler"))
        calls += 1
        if calls == at:
            signal.raise_signal(number)

def exit(code):
    sys.setprofile(None)
    if not at:
        os.write(2, f"calls {calls} {imported}".encode())
    end(code)

os._exit = exit
from reconciler.__main__ import main
sys.setprofile(count)
main()
"""


def run(at: int, number: int, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", _PROBE, str(at), str(number), *arguments],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


@pytest.mark.parametrize("command", COMMANDS)
def test_signal_during_startup_sets_its_exit_code(command: str, record_property: RecordProperty) -> None:
    write(manifest("a"))
    arguments = COMMANDS[command]
    calls, *imported = run(0, 0, *arguments).stderr.rpartition("calls ")[2].split()
    assert set(imported) == {"reconciler", "reconciler.version", "reconciler.__main__"}
    moments = some(range(1, int(calls)), few=6)
    for at, number in zip(moments, cycle(EXITS)):
        done = run(at, number, *arguments)
        assert done.returncode == EXITS[number], (at, calls, done.stderr)
        assert "Traceback" not in done.stderr, (at, calls, done.stderr)
        assert "internal error" not in done.stderr, (at, calls, done.stderr)
    count_tried(record_property, "signals", len(moments))
