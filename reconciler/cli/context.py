"""The stack and the target that the options mean, run by this process and its console."""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, NotRequired, TypedDict, Unpack

from reconciler.cli.final_outputs import final_outputs
from reconciler.cli.terminal import stray_output
from reconciler.cli.terminal.console import console
from reconciler.cli.terminal.reading import reading
from reconciler.core.record import LEASE_S
from reconciler.errors import ManifestInvalid, ReconcilerError
from reconciler.manifests import LoadedStack, load
from reconciler.modelarts import clock
from reconciler.text import printable

if TYPE_CHECKING:
    from reconciler.connection import RecordOptions
    from reconciler.modelarts.target import Runtime
    from reconciler.reconcile import Context


def load_stack(
    paths: Sequence[Path],
    variables: Sequence[tuple[str, str]],
    var_files: Sequence[Path],
    target: str | None,
    *,
    offline: bool = False,
    traced: str | None = None,
) -> LoadedStack:
    """Read the manifest as it is on a target; every secret in it is known to the console from then on."""
    try:
        loaded = load(
            list(paths) or [Path()],
            variables=dict(variables),
            var_files=list(var_files),
            environ=os.environ,
            offline=offline,
            learn=console.redact.learn,
            traced=traced,
            target=target,
        )
    except ManifestInvalid:
        _name_what_is_invalid(paths, var_files, target)
        raise
    return known(loaded)


def _name_what_is_invalid(paths: Sequence[Path], var_files: Sequence[Path], target: str | None) -> None:
    """Tell the outputs of the end whose manifest it is: metrics of a stack must not vanish when it breaks."""
    if not final_outputs.is_asked_for:
        return
    from reconciler.manifests.outline import outline

    with suppress(ReconcilerError):
        found = outline(list(paths) or [Path()], var_files)
        final_outputs.about(found.stack or "", target or found.target)


def known(loaded: LoadedStack) -> LoadedStack:
    """Let the console know the secrets of a stack, and the outputs its name; show its warnings."""
    final_outputs.about(loaded.stack.name, loaded.target_name)
    console.redact.learn(loaded.secrets)
    if loaded.warnings:
        console.diagnostics(loaded.warnings)
    return loaded


def runtime(stop: threading.Event | None = None) -> Runtime:
    """What runs a stack here: the environment of this process, the system clock, and the console."""
    from reconciler.modelarts.target import Runtime

    stray_output.redirect()
    return Runtime(
        environ=os.environ,
        clock=clock.SystemClock(stop),
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


class StackOptions(TypedDict):
    """What the options of `options.TARGET` and `options.LOCK` say, by their names."""

    paths: Sequence[Path]
    variables: Sequence[tuple[str, str]]
    var_files: Sequence[Path]
    target: str | None
    only: Sequence[str]
    parallelism: int
    records: str | None
    without_records: bool
    lease_s: NotRequired[float]


def record_options(options: StackOptions, url: str | None) -> RecordOptions:
    """How the record store at an address is used."""
    from reconciler.connection import RecordOptions

    return RecordOptions(url, options.get("lease_s", LEASE_S), options["without_records"])


@contextmanager
def opened(
    *, offline: bool = False, stop: threading.Event | None = None, **options: Unpack[StackOptions]
) -> Iterator[Context]:
    """Load the stack and connect to its target, see `connection.connect`."""
    from reconciler.connection import connect

    loaded = load_stack(
        options["paths"], options["variables"], options["var_files"], options["target"], offline=offline
    )
    records = record_options(options, options["records"])
    with connect(loaded, options["target"], runtime(stop), records, offline=offline) as context:
        yield context._replace(only=tuple(options["only"]), parallelism=options["parallelism"])
