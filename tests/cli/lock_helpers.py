"""The lock of the tests' stack in somebody else's hands: in this process, or in one that can be killed."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from urllib.parse import urlsplit

from reconciler.core.past import Holder
from reconciler.core.record import Scope
from reconciler.records.store import open_records

ROOT = Path(__file__).parents[2]
FILE = Path(".reconciler/records.sqlite3")
#: Where the jobs of a local target are.
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


class OtherProcess:
    """A process of somebody else's that holds the lock of the local target's stack, until it is ended."""

    def __init__(self, who: str = "bob") -> None:
        command = [sys.executable, "-m", "tests.cli.lock_helpers", who, str(Path.cwd())]
        self.process = subprocess.Popen(
            command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        assert self.process.stdout is not None
        assert self.process.stdout.readline() == "held\n"

    def __enter__(self) -> OtherProcess:
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()

    def kill(self) -> None:
        """End it as `kill -9` does: it lets nothing go."""
        self.process.kill()
        self.process.wait()
        for stream in (self.process.stdin, self.process.stdout):
            if stream is not None:
                stream.close()


def main(who: str, directory: str) -> None:
    """Hold the lock until stdin ends."""
    import os

    os.chdir(directory)
    with held_by(who):
        sys.stdout.write("held\n")
        sys.stdout.flush()
        sys.stdin.read()


if __name__ == "__main__":
    main(*sys.argv[1:])
