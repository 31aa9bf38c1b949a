"""What is written down of drift checks: the drift that stands, and what the last check found of it.

Of each drift there is one record, however many checks saw it, and it goes when the drift does; what was new,
changed or gone is an event of the check that saw it. Times are seconds since 1970.

Source: docs/records.md, "Drift checks".
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, NamedTuple

from reconciler.decide.drift_entry import Drift, DriftClass
from reconciler.secrets import show


@dataclass(frozen=True, slots=True)
class Acceptance:
    """That somebody took a drift for known."""

    at_s: float
    who: str = ""
    reason: str = ""


class DriftId(NamedTuple):
    """What makes two entries of two checks the same drift; `job` is "" where there is none."""

    key: str
    class_: str
    job: str

    @classmethod
    def of(cls, entry: Drift) -> DriftId:
        """The id of an entry."""
        return cls(entry.key, entry.class_.value, entry.job or "")


@dataclass(frozen=True, slots=True)
class StandingDrift:
    """A drift as the last check that looked at its key left it.

    `content` is what makes it another one if it changes, see `content_of`. `since_s` is the first check that
    saw it, `reported_at_s` the last one that reported it; None: none has yet. `is_hidden` says that it was
    ignored or accepted then.
    """

    entry: Drift
    content: str
    since_s: float
    reported_at_s: float | None = None
    is_hidden: bool = False
    acceptance: Acceptance | None = None

    @property
    def id(self) -> DriftId:
        """What it is known by."""
        return DriftId.of(self.entry)

    @property
    def counts(self) -> bool:
        """Whether it is drift that somebody has to know of; what could not be read says nothing of drift."""
        return not self.is_hidden and self.entry.class_ is not DriftClass.UNKNOWN

    def is_due(self, at_s: float, remind_s: float) -> bool:
        """Whether it has to be reported although it is not new: nobody was told, or too long ago."""
        return self.reported_at_s is None or at_s - self.reported_at_s > remind_s


@dataclass(frozen=True, slots=True)
class LastCheck:
    """What the record store has of earlier checks of a scope.

    `at_s` is the last check that could compare, None if there was none. `problem` says why the store could
    not be read: then nothing is known of earlier checks, and nothing may be taken for new.
    """

    at_s: float | None = None
    standing: tuple[StandingDrift, ...] = ()
    problem: str | None = None


NO_CHECK = LastCheck()


class DriftChange(StrEnum):
    """What became of a drift since the last check, or was done about it."""

    NEW = "new"
    CHANGED = "changed"
    GONE = "gone"
    ACCEPTED = "accepted"
    REMOVED = "removed"


class DriftEvent(NamedTuple):
    """Something that became of a drift; `detail` for people, in the place of that of the entry."""

    change: DriftChange
    entry: Drift
    detail: str = ""


@dataclass(frozen=True, slots=True)
class CheckRecord:
    """What a check leaves in the store.

    `compared_at_s` is None for a check that compared nothing. `standing` are the drifts that it saw, and
    `gone` those that are not there any more; of any other it says nothing.
    """

    compared_at_s: float | None = None
    standing: tuple[StandingDrift, ...] = ()
    gone: tuple[DriftId, ...] = ()
    events: tuple[DriftEvent, ...] = ()


def content_of(entry: Drift, redact: Callable[[str], str]) -> str:
    """What makes a drift another one if it changes, as text without secrets: its job, its changes.

    The detail is none of it, for it names the phases of jobs that run on.
    """
    changes = [[change.path, change.before, change.after] for change in entry.changes]
    tree = [entry.class_.value, entry.job, list(entry.others), changes]
    # As the store writes it: a text that it would change again would be another one at each check.
    return redact(json.dumps(_redacted(show(tree), redact), separators=(",", ":")))


def _redacted(tree: Any, redact: Callable[[str], str]) -> Any:
    if isinstance(tree, dict):
        return {redact(str(name)): _redacted(value, redact) for name, value in tree.items()}
    if isinstance(tree, list | tuple):
        return [_redacted(value, redact) for value in tree]
    return redact(tree) if isinstance(tree, str) else tree
