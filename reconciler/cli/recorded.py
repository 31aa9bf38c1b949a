"""The records of a stack, opened without its service: what history and unlock begin with."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, NamedTuple

from reconciler.cli.console import console
from reconciler.cli.opening import recording_at, records_url, tell_request
from reconciler.core.record import Scope

if TYPE_CHECKING:
    from reconciler.core.plan import TargetIdentity
    from reconciler.core.ports import Clock, Records
    from reconciler.core.stack import Target
    from reconciler.manifests import LoadedStack
    from reconciler.recording import Recording


class Recorded(NamedTuple):
    """A stack on a target, as its records know it."""

    loaded: LoadedStack
    target: TargetIdentity
    recording: Recording
    clock: Clock

    @property
    def scope(self) -> Scope:
        """What the lock and the records are about."""
        return Scope.of(self.loaded.stack.name, self.target)

    @property
    def store(self) -> Records | None:
        """The store, or None where there is none yet.

        Raises:
            RecordsAway: there is one, and it cannot be asked.
        """
        return self.recording.reading()


@contextmanager
def recorded(loaded: LoadedStack, target: str | None, records: str | None) -> Iterator[Recorded]:
    """Open the records of a stack on one of its targets; `records` is what `--records` says.

    Raises:
        ManifestInvalid: the target or the address of the store is not complete.
        Unauthorized: credentials have to say what the project is, and there are none.
    """
    from reconciler.backends.clock import SystemClock

    name, chosen = loaded.target(target)
    clock = SystemClock()
    identity = _identity(loaded, name, chosen, clock)
    recording = recording_at(records_url(chosen, records, loaded.records_url), loaded.root, clock)
    try:
        yield Recorded(loaded, identity, recording, clock)
    finally:
        recording.close()


def _identity(loaded: LoadedStack, name: str, target: Target, clock: Clock) -> TargetIdentity:
    from reconciler.targets import Surroundings, connected, identity_of

    if (known := identity_of(name, target, os.environ)) is not None:
        return known
    learn = console.redact.learn
    around = Surroundings(loaded.root, os.environ, clock, learn, console.redact, tell_request)
    with connected(name, target, around) as place:
        return place.identity
