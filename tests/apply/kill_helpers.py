"""A process that dies at a request: nothing after it runs, and nothing is cleaned up."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any

from tests.apply.service import Service


class Killed(BaseException):
    """`kill -9`: not caught by `except Exception`."""


@contextmanager
def killed_at(service: Service, nth: int, *, has_effect: bool = False) -> Iterator[list[bool]]:
    """Kill the sender of the nth request from here on, before it or after its effect.

    Every later request dies too: other threads of the process end with it. Yields a list that holds
    True once it happened.
    """
    gate, sent, happened = service.gate, 0, list[bool]()
    app = gate._app

    def dying(environ: dict[str, Any], start_response: Callable[..., Any]) -> Iterable[bytes]:
        nonlocal sent
        sent += 1
        if sent < nth:
            return app(environ, start_response)
        if sent == nth and has_effect:
            list(app(environ, start_response))
        happened.append(True)
        raise Killed

    gate._app = dying  # type: ignore[assignment]
    try:
        yield happened
    except Killed:
        pass
    finally:
        gate._app = app
