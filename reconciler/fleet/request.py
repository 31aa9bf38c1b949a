"""What is asked of a fleet: one command with its options, and the stacks that it is done for.

Both are plain data, for they may travel to a worker of a cluster. No credentials are in them, and nothing
of the environment.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from reconciler.core.record import Scope
from reconciler.decide.drift_check import DriftId
from reconciler.decide.fleet import DriftToShow
from reconciler.version import __version__


@dataclass(frozen=True, slots=True)
class FleetRequest:
    """A command, and its options as they are the same for every stack.

    `options` are those of the command line by the names of their parameters, as JSON can hold them;
    `formats` what the report is wanted in. The rest says how texts are to be made:
    `directory` is where in its repository the current directory is.
    """

    command: str
    options: Mapping[str, Any] = field(default_factory=dict, repr=False)
    formats: tuple[str, ...] = ()
    colour: bool = False
    verbosity: int = 0
    directory: str = ""
    version: str = __version__


@dataclass(frozen=True, slots=True)
class StackTask:
    """One stack: its directory, absolute, and what the report calls it.

    `prefix` is what the names of its files begin with in messages: they are relative to where the command
    was started, wherever it is done. `digest` is that of its files, "" if they are known to be the same.
    """

    directory: str
    root: str
    prefix: str
    name: str | None = None
    digest: str = ""


@dataclass(frozen=True, slots=True)
class FleetBatch:
    """Stacks that one worker checks, so many `at_once`; `share` is its part of the rate of requests."""

    request: FleetRequest
    tasks: tuple[StackTask, ...]
    share: float = 1.0
    at_once: int = 1

    def to_json(self) -> str:
        """The batch as text."""
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, text: str) -> FleetBatch:
        """Read it again."""
        data = json.loads(text)
        return cls(
            _request_of(data),
            tuple(StackTask(**task) for task in data["tasks"]),
            data["share"],
            data["at_once"],
        )


@dataclass(frozen=True, slots=True)
class ShownBatch:
    """Stacks whose drift the report has shown: one worker writes that down."""

    request: FleetRequest
    shown: tuple[tuple[StackTask, DriftToShow], ...]

    def to_json(self) -> str:
        """The batch as text."""
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, text: str) -> ShownBatch:
        """Read it again."""
        data = json.loads(text)
        shown = [
            (
                StackTask(**task),
                DriftToShow(
                    Scope(**drift["scope"]), tuple(DriftId(*one) for one in drift["drift"]), drift["at_s"]
                ),
            )
            for task, drift in data["shown"]
        ]
        return cls(_request_of(data), tuple(shown))


def _request_of(data: Mapping[str, Any]) -> FleetRequest:
    return FleetRequest(**{**data["request"], "formats": tuple(data["request"]["formats"])})


def as_plain(value: Any) -> Any:
    """An option as JSON can hold it.

    Raises:
        TypeError: it cannot.
    """
    if isinstance(value, Path):
        return str(value)
    if isinstance(value, Mapping):
        return {str(name): as_plain(member) for name, member in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [as_plain(item) for item in value]
    if value is None or isinstance(value, str | int | float | bool):
        return value
    raise TypeError(f"an option of type {type(value).__name__} cannot be sent")
