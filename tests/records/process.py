"""Another process at the same store, controlled by commands: `python -m tests.records.process URL CLOCK`.

Each line on stdin is a command, each line on stdout its answer.
"""

from __future__ import annotations

import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path

from reconciler.errors import LockHeld, LockLost
from reconciler.records.journal import StoredJournal
from tests.records.locations import ALICE, LEASE_S, SCOPE, FileClock, Place, a_run, a_step

ROOT = Path(__file__).parents[2]


class Process:
    def __init__(self, place: Place) -> None:
        arguments = [sys.executable, "-m", __name__, place.kind, place.url, str(place.clock.path)]
        self._process = subprocess.Popen(
            arguments, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )

    def tell(self, command: str) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(command + "\n")
        self._process.stdin.flush()

    def answer(self) -> str:
        assert self._process.stdout is not None
        return self._process.stdout.readline().strip()

    def ask(self, command: str) -> str:
        self.tell(command)
        return self.answer()

    def send_signal(self, number: int) -> None:
        self._process.send_signal(number)

    def wait(self) -> None:
        self._process.wait()

    def close(self) -> None:
        self._process.kill()
        self._process.communicate()


def _obey(place: Place) -> None:
    records = place.open()
    journal: StoredJournal | None = None
    with ExitStack() as held:
        for command in sys.stdin:
            answer = "done"
            match command.strip():
                case "take":
                    try:
                        held.enter_context(
                            records.locked(SCOPE, ALICE, lease_s=LEASE_S, on_lost=lambda: None)
                        )
                        journal = records.begin(a_run())
                    except LockHeld:
                        answer = "held"
                case "write":
                    assert journal is not None
                    try:
                        journal.before(a_step())
                    except LockLost:
                        answer = "lost"
                case "leave":
                    held.close()
            sys.stdout.write(answer + "\n")
            sys.stdout.flush()


if __name__ == "__main__":
    _obey(Place(sys.argv[1], sys.argv[2], FileClock(Path(sys.argv[3]))))
