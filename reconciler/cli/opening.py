"""From options to a stack on a target: what plan, apply, destroy and drift begin with."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from reconciler.cli.console import console

if TYPE_CHECKING:
    from reconciler.manifests import LoadedStack
    from reconciler.reconcile import Context


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
    )
    console.redact.learn(loaded.secrets)
    if loaded.warnings:
        console.diagnostics(loaded.warnings)
    return loaded


@contextmanager
def opened(
    paths: Sequence[Path],
    variables: Sequence[tuple[str, str]],
    var_files: Sequence[Path],
    target: str | None,
    only: Sequence[str],
    parallelism: int,
    **_: Any,
) -> Iterator[Context]:
    """Load the stack and connect to its target."""
    loaded = load_stack(paths, variables, var_files)
    name, chosen = loaded.target(target)
    from reconciler.backends.clock import SystemClock
    from reconciler.reconcile import Context
    from reconciler.targets import Surroundings, connected

    around = Surroundings(
        loaded.root, os.environ, SystemClock(), console.redact.learn, console.redact, _tell_request
    )
    with connected(name, chosen, around) as place:
        yield Context(loaded, place, tuple(only), parallelism, console.detail)


def _tell_request(method: str, path: str, status: int | None, seconds: float) -> None:
    answer = "no answer" if status is None else str(status)
    console.detail(f"{method} {path}: {answer}, {seconds * 1000:.0f} ms", level=2)
