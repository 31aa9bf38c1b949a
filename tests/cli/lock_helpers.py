"""Hold the lock of the tests' stack as another user."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from urllib.parse import urlsplit

from reconciler.core.past import Holder
from reconciler.core.record import Scope
from reconciler.records.store import open_records

ROOT = Path(__file__).parents[2]
FILE = Path(".reconciler/records.sqlite3")
#: The job directory of a local target.
LOCAL = "local"


def scope_of(place: str, stack: str) -> Scope:
    """A stack at the address of a service, or at the local target."""
    if place == LOCAL:
        return Scope(stack, LOCAL, LOCAL, "0")
    return Scope(stack, urlsplit(place).netloc, "p1", "0")


@contextmanager
def held_by(who: str, *, place: str = LOCAL, stack: str = "test") -> Iterator[None]:
    """Hold the lock of the stack in the current directory."""
    from reconciler.modelarts import clock

    FILE.parent.mkdir(exist_ok=True)
    url = f"sqlite:///{FILE.resolve()}"
    records = open_records(url, clock=clock.SystemClock(), redact=str, create=True)
    assert records is not None
    holder = Holder(who, "laptop, process 7", "apply", 0.0, 0.0)
    with ExitStack() as cleanup:
        cleanup.callback(records.close)
        cleanup.enter_context(
            records.locked(scope_of(place, stack), holder, lease_s=60.0, on_lost=lambda: None)
        )
        yield
