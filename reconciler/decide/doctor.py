"""What `doctor` finds: one line per check, judged from what was seen."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from enum import StrEnum
from shlex import quote
from typing import NamedTuple

from reconciler.core.ownership import Ownership, OwnershipState
from reconciler.core.past import Holder
from reconciler.core.phase import Phase
from reconciler.core.values import timestamp
from reconciler.decide.actions import adopt_command
from reconciler.errors import Rejected, ServiceError, Unauthorized
from reconciler.text import format_duration

#: What the service allows. Source: docs/reference/modelarts.md, "Signatures".
MAX_SKEW_S = 900.0
#: From here on a clock is worth a word.
NOTABLE_SKEW_S = 300.0
#: Credentials and path are of different projects. Source: docs/reference/modelarts.md, "Errors".
_WRONG_PROJECT = frozenset({"ModelArts.2786", "ModelArts.0207", "ModelArts.0210", "ModelArts.2823"})


class Health(StrEnum):
    """How a check turned out. A note is no reason to worry."""

    WELL = "ok"
    NOTE = "note"
    WRONG = "wrong"
    UNCHECKED = "not checked"


class Trouble(StrEnum):
    """What sort of thing is wrong, which decides the exit code."""

    ACCESS = "access"
    UNREACHABLE = "unreachable"
    OTHER = "other"


class Check(NamedTuple):
    """One thing that was looked at; `fix` says what to do about it."""

    name: str
    health: Health
    detail: str = ""
    fix: str | None = None
    trouble: Trouble = Trouble.OTHER


def well(name: str, detail: str) -> Check:
    """All is as it should be."""
    return Check(name, Health.WELL, detail)


def wrong(name: str, detail: str, fix: str | None = None, trouble: Trouble = Trouble.OTHER) -> Check:
    """Something has to be done."""
    return Check(name, Health.WRONG, detail, fix, trouble)


def unchecked(names: Iterable[str], why: str) -> list[Check]:
    """Checks that something above them made impossible."""
    return [Check(name, Health.UNCHECKED, why) for name in names]


def of_failure(name: str, failure: ServiceError) -> Check:
    """What a call that failed says: no access, no service, or another refusal."""
    [said] = failure.diagnostics
    if isinstance(failure, Unauthorized):
        name = "project" if failure.code in _WRONG_PROJECT else name
        return wrong(name, said.why, said.fix, Trouble.ACCESS)
    trouble = Trouble.OTHER if isinstance(failure, Rejected) else Trouble.UNREACHABLE
    return wrong(name, f"{said.what}: {said.why}", said.fix, trouble)


def of_clock(skew_s: float | None) -> Check:
    """Judge how far our clock is ahead of the service's (None: it told no time)."""
    if skew_s is None:
        return Check("clock", Health.UNCHECKED, "the service did not report its time")
    where = "ahead of" if skew_s > 0 else "behind"
    said = f"{format_duration(abs(round(skew_s)))} {where} the service's; 15 minutes are allowed"
    if abs(skew_s) > MAX_SKEW_S:
        return wrong("clock", said, "synchronize this machine's clock, e.g. with NTP", Trouble.ACCESS)
    return Check("clock", Health.NOTE if abs(skew_s) > NOTABLE_SKEW_S else Health.WELL, said)


def of_memory(*, is_local: bool, is_shared: bool) -> Check:
    """Judge whether finished work stays finished, whatever becomes of its record on the service.

    Whether a service ages out the records of finished jobs, and when, it tells nobody.
    """
    if is_local:
        return well("history", "this machine keeps the job records")
    if is_shared:
        return well("history", "shared: finished work stays finished even if the service drops its records")
    said = (
        "only on this machine: whether the service drops the records of finished jobs cannot be known; "
        "if it does, a plan made elsewhere starts them again"
    )
    fix = "if others apply too, set a shared store in the manifest: records: postgresql://…"
    return Check("history", Health.NOTE, said, fix)


def of_lock(holder: Holder | None, at_s: float) -> Check:
    """Tell who holds the lock, and for how long yet."""
    if holder is None:
        return well("lock", "not held")
    left = format_duration(max(0, round(holder.expires_s - at_s)))
    said = (
        f"held by {holder.who} on {holder.where} since {timestamp(holder.since_s)}, for "
        f"{holder.command}; it expires in {left} unless renewed"
    )
    fix = "wait until it is released; if its process is gone: reconciler unlock"
    return Check("lock", Health.NOTE, said, fix)


def of_duplicates(ownership: Ownership) -> list[Check]:
    """Find keys with more than one active revision."""
    found = []
    for key in ownership.owned_keys:
        jobs = [revision.job for revision in ownership.view(key).owned]
        running = [job for job in jobs if job.is_active and job.phase is not Phase.TERMINATING]
        if len(running) > 1:
            names = ", ".join(f"{job.name} ({job.phase_text}, {job.id})" for job in running)
            detail = f"{key} has {len(running)} active revisions: {names}"
            fix = "reconciler plan shows which one stays, reconciler apply terminates the others"
            found.append(wrong("duplicates", detail, fix))
    return found or [well("duplicates", "no key has more than one active revision")]


def of_conflicting_jobs(ownership: Ownership, declared: Collection[str]) -> list[Check]:
    """Find unmanaged jobs that have a remote name of a declared key: adoption candidates."""
    found = []
    for key in sorted(declared):
        for one in ownership.view(key).conflicting_jobs:
            if one.standing is not OwnershipState.UNMANAGED:
                continue
            job = one.job
            detail = f"{job.name} ({job.phase_text}, {job.id}) has a name of {key}: {one.why}"
            fix = f"{adopt_command(key, job.id)}; or rename the key {key} in the manifest"
            if not job.is_active:
                fix += f"; or if its record is no longer needed: reconciler jobs delete {quote(job.id)}"
            found.append(wrong("adoption", detail, fix))
    return found or [well("adoption", "no unmanaged job has the name of a declared key")]
