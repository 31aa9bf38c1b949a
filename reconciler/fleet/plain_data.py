"""What comes back from a cluster is data: results as JSON, and no pickle that could run code here.

A worker runs code of ours with credentials of its own, and whoever can connect to a scheduler can run code on
its workers. So nothing of what they send is believed to be more than text.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from pydantic import TypeAdapter, ValidationError

from reconciler.decide.fleet import StackResult

#: Of these a pickle may name: dask has it for each text of an error, and it runs nothing.
_HARMLESS = frozenset({("builtins", "bytes")})
_RESULTS = TypeAdapter(list[StackResult])


class InvalidAnswer(ValueError):
    """What a worker sent is not what it was asked for."""


class _PickleRefused(TypeError):
    """A pickle names a class or a function; a TypeError, which dask takes for one that it cannot read."""


class _Refusals:
    """How many connections there are, while which no pickle is read, whichever library does it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._count = 0
        self._is_installed = False

    def begin(self) -> None:
        with self._lock:
            self._count += 1
            if not self._is_installed:  # nothing can take it out again
                sys.addaudithook(self._hear)
                self._is_installed = True

    def end(self) -> None:
        with self._lock:
            self._count -= 1

    def _hear(self, event: str, arguments: tuple[Any, ...]) -> None:
        if event == "pickle.find_class" and self._count and arguments not in _HARMLESS:
            raise _PickleRefused(f"a pickle of {'.'.join(map(str, arguments))} is not read")


_refusals = _Refusals()


@contextmanager
def no_unpickling() -> Iterator[None]:
    """Let no pickle in this process name a class or a function: what is left of it is plain data."""
    _refusals.begin()
    try:
        yield
    finally:
        _refusals.end()


def to_json(results: Sequence[StackResult]) -> str:
    """Results as text."""
    return _RESULTS.dump_json(list(results)).decode()


def results_from(text: object, roots: Sequence[str]) -> list[StackResult]:
    """Read them again: one for each of the stacks that were asked for, and none for others.

    Raises:
        InvalidAnswer: they are something else.
    """
    if not isinstance(text, str):
        raise InvalidAnswer("it is no text")
    try:
        results = _RESULTS.validate_json(text)
    except ValidationError as error:
        first = error.errors()[0]
        place = ".".join(map(str, first["loc"]))
        raise InvalidAnswer(f"{place}: {first['msg']}") from None
    if sorted(result.root for result in results) != sorted(roots):
        raise InvalidAnswer("it is about other stacks")
    return results
