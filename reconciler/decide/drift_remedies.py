"""What to do about each class of drift: a command to run, or an edit to make.

KEY and JOB stand for the key and the id of the job.
"""

from __future__ import annotations

import re

from reconciler.decide.drift_entry import DriftClass

REMEDIES: dict[DriftClass, str] = {
    DriftClass.MISSING: "reconciler plan --only KEY shows whether apply creates it; "
    "edit `lifecycle.rerun` of KEY to run it again, or remove KEY from the manifest",
    DriftClass.FAILED: "reconciler jobs logs KEY; then edit `lifecycle.rerun` of KEY to run it again, "
    "or set `lifecycle.on_failure: retry`",
    DriftClass.TERMINATED: "edit `lifecycle.rerun` of KEY to run it again, set "
    "`lifecycle.on_terminated: recreate`, or remove KEY from the manifest",
    DriftClass.MISSED: "reconciler why KEY shows what holds it back, if anything; run reconciler apply more "
    "often, or set a longer `lifecycle.starting_deadline`",
    DriftClass.MODIFIED: "reconciler apply --only KEY restores it; or declare the new value and apply",
    DriftClass.DUPLICATE: "reconciler apply --only KEY terminates all but one revision",
    DriftClass.ORPHANED: "declare KEY to keep it, reconciler release KEY to let it go on unmanaged, "
    "or reconciler apply to terminate it",
    DriftClass.UNOWNED: "reconciler apply --only KEY restores a marker that was removed; "
    "else reconciler adopt KEY JOB, or rename KEY",
    DriftClass.STUCK: "reconciler jobs events JOB; ask the service's support, and name the job's id",
    DriftClass.UNKNOWN: "check again; reconciler doctor says what cannot be reached",
}


#: An edit alone does nothing before the next time of a schedule.
_RERUN, _RERUN_NOW = "edit `lifecycle.rerun`", "set `lifecycle.on_change: replace` and edit `lifecycle.rerun`"


def remedy_for(class_: DriftClass, key: str, job: str | None, *, edits_wait: bool = False) -> str:
    """What to do about a drift of a key, and of the job with this id.

    `edits_wait` says that an edit of the key waits for the next time of its schedule.
    """
    values = {"KEY": key, "JOB": job or "JOB"}
    text = REMEDIES[class_].replace(_RERUN, _RERUN_NOW) if edits_wait else REMEDIES[class_]
    return _PLACEHOLDER.sub(lambda found: values[found[0]], text)


_PLACEHOLDER = re.compile(r"\b(?:KEY|JOB)\b")
