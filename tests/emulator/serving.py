"""`reconciler emulator serve` in a process of its own."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

ROOT = Path(__file__).parents[2]


@contextmanager
def served(*options: str) -> Iterator[str]:
    """`reconciler emulator serve` with options; yield its URL."""
    process = subprocess.Popen(
        [sys.executable, "-m", "reconciler", "emulator", "serve", *options],
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )
    try:
        assert process.stdout is not None
        yield process.stdout.readline().removeprefix("listening on ").strip()
    finally:
        process.send_signal(signal.SIGTERM)
        process.communicate(timeout=10)
    assert process.returncode == 0
