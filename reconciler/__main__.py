"""`python -m reconciler` is the command `reconciler`."""

from __future__ import annotations

import os
import signal
from types import FrameType


def main() -> None:
    """Run the command line. A signal while its modules are still being imported ends it by its exit code."""
    for name in ("SIGHUP", "SIGINT", "SIGTERM"):
        number = getattr(signal, name, None)
        # What is ignored from the start on (nohup, a job in the background) stays so.
        if number is not None and (number == signal.SIGTERM or signal.getsignal(number) != signal.SIG_IGN):
            signal.signal(number, _exit)
    from reconciler.cli.main import main as run

    run()


def _exit(number: int, frame: FrameType | None) -> None:
    """Nothing has been begun, or all is done. An exception could be lost in a callback of Python's own."""
    os._exit(128 + number)


if __name__ == "__main__":
    main()
