"""What can be said of a manifest field beside its type: the marks on the lines of the models.

Normal form, digest, diff, `explain fields` and the schemas all read these marks.
"""

from __future__ import annotations

from enum import Enum, StrEnum
from typing import NamedTuple

from reconciler.core.phase import Operation


class Cloud(StrEnum):
    """Which vendor's cloud a target is: their update calls differ."""

    HUAWEI = "huawei"
    OTC = "otc"


class UpdateInPlace(NamedTuple):
    """An edit of the field is an update of the running job. A field without this mark needs a new job.

    `clouds` offer the update, in the phases in which `operation` is legal (see `phase.RULES`).
    `on_ended` says whether it may still be changed when the job has ended.
    """

    clouds: frozenset[Cloud]
    operation: Operation
    on_ended: bool = False


class KeyedBy(NamedTuple):
    """A list whose items are told apart by one field, so that their order means nothing."""

    field: str


class DefaultTemplate(NamedTuple):
    """A documented default that depends on the item's name and its place in the list."""

    template: str


class Mark(Enum):
    """Marks that need no more than their name."""

    AS_SET = "the order of the list means nothing"
    OBS_PATH = "a path with or without obs:// is the same path"
    SECONDS = '"30s", "30" and 30 are the same'
    FILLED_IN = "the service may return a value that was never sent"
    NOT_REPORTED = "the service does not (reliably) return it"
    FREE_MEMBERS = "a mapping whose keys are the user's own"


class Edit(StrEnum):
    """What an edit of a key of the reconciler's own means for a job that exists, and of all keys below it."""

    NEW_JOB = "new job"
    OF_MARKER = "update (the marker in the description)"
    OF_DECISION = "nothing on the service; the next plan goes by it"
    OF_STATE = "absent terminates the job; present starts it again"
    OF_KEYS = "jobs of new keys are created, those of keys that are gone terminated"
    OF_PLACE = "other jobs are meant; those that were meant before are left alone"
    OF_USERS = "as the fields of the jobs that it changes"


class SeeAlso(NamedTuple):
    """The page that tells more of a key and of all keys below it, with its section."""

    page: str
