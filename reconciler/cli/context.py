"""The stack and the target that the options mean, run by this process and its console."""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from reconciler.cli.terminal.console import console
from reconciler.core.text.sanitize import printable

if TYPE_CHECKING:
    from reconciler.backends.target import Runtime
    from reconciler.manifests import LoadedStack
    from reconciler.reconcile import Context

#: The default of `--lease`: how long a lock outlives a holder who died (core.record.LEASE_S).
_LEASE_S = 60.0


def load_stack(
    paths: Sequence[Path],
    variables: Sequence[tuple[str, str]],
    var_files: Sequence[Path],
    *,
    offline: bool = False,
) -> LoadedStack:
    """Read the manifest; every secret in it is known to the console from then on."""
    from reconciler.manifests import load

    loaded = load(
        list(paths) or [Path()],
        variables=dict(variables),
        var_files=list(var_files),
        environ=os.environ,
        offline=offline,
        learn=console.redact.learn,
    )
    console.redact.learn(loaded.secrets)
    if loaded.warnings:
        console.diagnostics(loaded.warnings)
    return loaded


def runtime(stop: threading.Event | None = None) -> Runtime:
    """What runs a stack here: the environment of this process, the system clock, and the console."""
    from reconciler.backends.clock import SystemClock
    from reconciler.backends.target import Runtime
    from reconciler.cli.terminal import stray_output
    from reconciler.cli.terminal.reading import reading

    stray_output.redirect()
    return Runtime(
        environ=os.environ,
        clock=SystemClock(stop),
        redactor=console.redact,
        warn=lambda text: console.say(f"warning: {printable(text)}", "warning"),
        tell=console.detail,
        on_request=_show_request,
        reading=reading,
        stop=stop,
        # The name of the command only: its options may hold values that must not be seen.
        command=next((word for word in sys.argv[1:] if not word.startswith("-")), ""),
    )


def _show_request(method: str, path: str, status: int | None, seconds: float) -> None:
    """Show a request with `-vv`."""
    answer = "no answer" if status is None else str(status)
    console.detail(f"{method} {path}: {answer}, {seconds * 1000:.0f} ms", level=2)


@contextmanager
def opened(
    paths: Sequence[Path],
    variables: Sequence[tuple[str, str]],
    var_files: Sequence[Path],
    target: str | None,
    only: Sequence[str],
    parallelism: int,
    records: str | None,
    without_records: bool,
    *,
    lease_s: float = _LEASE_S,
    offline: bool = False,
    stop: threading.Event | None = None,
    **_: Any,
) -> Iterator[Context]:
    """Load the stack and connect to its target, see `connection.connect`."""
    from reconciler.connection import RecordOptions, connect

    loaded = load_stack(paths, variables, var_files, offline=offline)
    options = RecordOptions(records, lease_s, without_records)
    with connect(loaded, target, runtime(stop), options, offline=offline) as context:
        yield context._replace(only=tuple(only), parallelism=parallelism)
