"""`python -m reconciler` is the command `reconciler`: its streams, its signals, and its exit code."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from types import FrameType, ModuleType
from typing import NoReturn

#: Signals that came in the middle of pydantic and are not raised yet.
_late: list[int] = []


def main() -> NoReturn:
    """Run the command line of this process.

    A signal ends it at once, by its exit code, while its modules are still being imported and once all is
    done; in between signals are raised, so that it ends in order.
    """
    for name in ("SIGHUP", "SIGINT", "SIGTERM"):
        number = getattr(signal, name, None)
        # What is ignored from the start on (nohup, a job in the background) stays so.
        if number is not None and (number == signal.SIGTERM or signal.getsignal(number) != signal.SIG_IGN):
            signal.signal(number, _exit)
    import gc
    import sys

    # A run is short and keeps what it imports and reads: a collection would find nothing, and cost a tenth.
    gc.disable()
    from reconciler.cli import exits
    from reconciler.cli import main as command_line
    from reconciler.cli.console import console

    # pydantic would read the metadata of every installed package, to find no plugins: told to find none, it
    # would still import all that reads metadata.
    os.environ.setdefault("PYDANTIC_DISABLE_PLUGINS", "__all__")
    plugins = ModuleType("pydantic.plugin._loader")
    plugins.__dict__["get_plugins"] = tuple
    sys.modules[plugins.__name__] = plugins
    # A stream that the caller closed is a stream that nobody reads.
    sys.stdin = sys.stdin or Path(os.devnull).open(encoding="utf-8")  # noqa: SIM115
    if sys.stdout is None:
        sys.stdout = Path(os.devnull).open("w", encoding="utf-8")  # noqa: SIM115
        console.on_broken_pipe()
    sys.stderr = sys.stderr or Path(os.devnull).open("w", encoding="utf-8")  # noqa: SIM115
    args = sys.argv[1:]
    command_line.import_command(args)
    try:
        with exits.handled_by(_raise):
            code = command_line.run(command_line.cli, args)
    except KeyboardInterrupt:
        code = 128 + signal.SIGINT
    except exits.Stopped as stopped:
        code = 128 + stopped.number
    if _late:
        code = 128 + _late[0]
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except (OSError, ValueError):
            # Python would try again at its end, complain, and exit with a code of its own.
            os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())
    # Everything is written and closed; the system frees what was read faster than the interpreter does.
    os._exit(code)


def _exit(number: int, frame: FrameType | None) -> None:
    """Nothing has been begun, or all is done. An exception could be lost in a callback of Python's own."""
    os._exit(128 + number)


def _raise(number: int, frame: FrameType | None) -> None:
    """End the run in order.

    An exception may be lost while pydantic builds a model: a signal that comes then is sent again soon.
    """
    while frame is not None:
        if frame.f_globals.get("__name__", "").startswith("pydantic."):
            _late.append(number)
            signal.signal(signal.SIGALRM, lambda *_: os.kill(os.getpid(), _late.pop()))
            signal.setitimer(signal.ITIMER_REAL, 0.005)
            return
        frame = frame.f_back
    from reconciler.cli import exits

    raise KeyboardInterrupt if number == signal.SIGINT else exits.Stopped(number)


if __name__ == "__main__":
    main()
