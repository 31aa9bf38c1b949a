"""A connection to PostgreSQL on which nothing is waited for without end."""

from __future__ import annotations

import time
from collections.abc import Generator
from typing import Any, TypeVar

import psycopg

#: How long we wait for a connection, the server for a row that another process holds, the server for a
#: statement to end, and we for a server that does not even say that it did not.
CONNECT_S, ROW_S, STATEMENT_S, ANSWER_S = 5, 5.0, 10.0, 15.0

_R = TypeVar("_R")
#: What the network does to a server that vanished; said in a URL, these are the user's.
_NETWORK = {
    "connect_timeout": CONNECT_S,
    "keepalives_idle": 10,
    "keepalives_interval": 3,
    "keepalives_count": 3,
    "application_name": "reconciler",
}


class TimedConnection(psycopg.Connection[Any]):
    """Gives up on a server that took a statement and does not answer: it hangs, or is cut off."""

    def wait(self, gen: Generator[Any, Any, _R], *args: Any, **options: Any) -> _R:
        """Consume what the driver does on the socket, for so long."""
        return super().wait(self._until(gen, time.monotonic() + ANSWER_S), *args, **options)

    def _until(self, gen: Generator[Any, Any, _R], deadline: float) -> Generator[Any, Any, _R]:
        # The driver comes by ten times a second, also if nothing has come (before psycopg 3.3 it did not).
        try:
            wanted = next(gen)
            while True:
                ready = yield wanted
                if not ready and time.monotonic() > deadline:
                    self.pgconn.finish()
                    raise psycopg.OperationalError(f"no answer within {ANSWER_S:g} s")
                wanted = gen.send(ready)
        except StopIteration as end:
            return end.value  # type: ignore[no-any-return]


def connect(*arguments: Any, **options: Any) -> psycopg.Connection[Any]:
    """Connect; what the URL says about timeouts goes before what we say."""
    connection = TimedConnection.connect(*arguments, **{**_NETWORK, **options})
    with connection.cursor() as cursor:
        cursor.execute(f"SET statement_timeout = {STATEMENT_S * 1000:.0f}")
        cursor.execute(f"SET lock_timeout = {ROW_S * 1000:.0f}")
    connection.commit()
    return connection
