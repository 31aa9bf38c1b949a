"""`python -m reconciler` is the command `reconciler`: its streams, its signals, and its exit code."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from types import FrameType, ModuleType
from typing import NoReturn

#: Signals that arrived inside pydantic and are not raised yet.
_pending_signals: list[int] = []


def main() -> NoReturn:
    """Run the command line and end the process.

    During imports and after the command, a signal ends the process at once with its exit code; during the
    command, signals are raised as exceptions, for a clean shutdown.
    """
    for name in ("SIGHUP", "SIGINT", "SIGTERM"):
        number = getattr(signal, name, None)
        # Signals that are ignored from the start (nohup, background jobs) stay ignored.
        if number is not None and (number == signal.SIGTERM or signal.getsignal(number) != signal.SIG_IGN):
            signal.signal(number, _exit)
    import gc
    import sys

    # Runs are short and keep what they read: collection would find nothing, and take a tenth of the time.
    gc.disable()
    from reconciler.cli import exits
    from reconciler.cli import main as command_line
    from reconciler.cli.console import console

    # pydantic looks for plugins in the metadata of every installed package. Even with plugins disabled, it
    # imports the modules that read metadata.
    os.environ.setdefault("PYDANTIC_DISABLE_PLUGINS", "__all__")
    plugins = ModuleType("pydantic.plugin._loader")
    plugins.__dict__["get_plugins"] = tuple
    sys.modules[plugins.__name__] = plugins
    # Treat a stream that the caller closed as one without a reader.
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
    if _pending_signals:
        code = 128 + _pending_signals[0]
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except (OSError, ValueError):
            # Otherwise Python would flush again at exit, print an error, and change the exit code.
            os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())
    # Everything is written and closed. The system frees memory faster than the interpreter.
    os._exit(code)


def _exit(number: int, frame: FrameType | None) -> None:
    """Exit at once, before or after the command. An exception could be lost in a callback of Python."""
    os._exit(128 + number)


def _raise(number: int, frame: FrameType | None) -> None:
    """Raise the exception for a signal.

    Exceptions may be lost while pydantic builds a model, so a signal that arrives then is sent again later.
    """
    while frame is not None:
        if frame.f_globals.get("__name__", "").startswith("pydantic."):
            _pending_signals.append(number)
            signal.signal(signal.SIGALRM, lambda *_: os.kill(os.getpid(), _pending_signals.pop()))
            signal.setitimer(signal.ITIMER_REAL, 0.005)
            return
        frame = frame.f_back
    from reconciler.cli import exits

    raise KeyboardInterrupt if number == signal.SIGINT else exits.Stopped(number)


if __name__ == "__main__":
    main()
