"""From options to a stack on a target: what plan, apply, destroy and drift begin with."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from reconciler.cli.console import console
from reconciler.core.diagnostic import ManifestInvalid
from reconciler.core.printable import printable

if TYPE_CHECKING:
    from reconciler.core.ports import Clock
    from reconciler.core.stack import Target
    from reconciler.manifests import LoadedStack
    from reconciler.reconcile import Context
    from reconciler.recording import Origin, Recording


#: The default of `--lease`: how long a lock outlives a holder who died (core.record.LEASE_S).
_LEASE_S = 60.0


class LockOptions(NamedTuple):
    """How the lock is held, and whether to go on without a store."""

    lease_s: float = _LEASE_S
    without_records: bool = False


_NO_LOCK = LockOptions()


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


def tell_request(method: str, path: str, status: int | None, seconds: float) -> None:
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
    """Load the stack and connect to its target.

    `offline` is for what creates nothing: an emergency stop rests on no secret, so none needs a value. Once
    `stop` is set nobody sleeps any more, and nothing that changes something is sent.
    """
    loaded = load_stack(paths, variables, var_files, offline=offline)
    name, chosen = loaded.target(target)
    url, missing = None, None
    try:
        url = records_url(chosen, records, loaded.records_url)
    except ManifestInvalid as invalid:
        if not offline:
            raise
        missing = invalid.diagnostics
    lock = LockOptions(lease_s, without_records)
    with opened_at(loaded, name, chosen, url, lock=lock, stop=stop) as context:
        if missing is not None and context.recording is not None:
            context.recording.unavailable = missing
        yield context._replace(only=tuple(only), parallelism=parallelism)


@contextmanager
def opened_at(
    loaded: LoadedStack,
    name: str,
    target: Target,
    records: str | None,
    *,
    lock: LockOptions,
    stop: threading.Event | None = None,
) -> Iterator[Context]:
    """Connect to a target. `records` is the URL of the store, or None for the one beside the root file."""
    from reconciler.backends.clock import SystemClock
    from reconciler.cli.reading import reading
    from reconciler.reconcile import Context
    from reconciler.targets import Surroundings, connected

    clock, learn = SystemClock(stop), console.redact.learn
    around = Surroundings(loaded.root, os.environ, clock, learn, console.redact, tell_request, reading, stop)
    recording = recording_at(records, loaded.root, clock, lock)
    with ExitStack() as cleanup:
        cleanup.callback(recording.close)
        place = cleanup.enter_context(connected(name, target, around))
        yield Context(loaded, place, tell=console.detail, recording=recording)


def records_url(target: Target, given: str | None, declared: Callable[[], str | None]) -> str | None:
    """Where the records of a stack on a target lie; None is the file beside the root file.

    `given` is what `--records` or its variable says, `declared` what the manifest does. Neither counts for
    a local target: its jobs lie beside the root file, and so does what is known of them.

    Raises:
        WrongUsage: `given` is not the address of a store.
        ManifestInvalid: the declared address is not complete.
    """
    from reconciler.core.stack import TargetKind

    if target.kind is not TargetKind.LOCAL:
        return given or declared()
    if given:
        from reconciler.manifests.records import passwords_in
        from reconciler.records.address import parse_address

        console.redact.learn(passwords_in(given))
        parse_address(given)
    return None


def recording_at(records: str | None, root: Path, clock: Clock, lock: LockOptions = _NO_LOCK) -> Recording:
    """The records of the stack whose root file is in `root`. The store is opened when it is first asked."""
    from reconciler.recording import Recording

    if records is not None:
        from reconciler.manifests.records import passwords_in, whole_address

        console.redact.learn(passwords_in(records))
        records = whole_address(records, root)
    return Recording(
        records,
        root,
        clock,
        console.redact,
        partial(_origin, root),
        lease_s=lock.lease_s,
        goes_on_without=lock.without_records,
        warn=lambda text: console.say(f"warning: {printable(text)}", "warning"),
        tell=console.detail,
    )


def _origin(root: Path) -> Origin:
    from reconciler.cli.origin import origin

    return origin(root, os.environ)
