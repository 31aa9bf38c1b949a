"""The checks of `doctor`: one line each, judged from what was observed."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from enum import StrEnum
from shlex import quote
from typing import NamedTuple

from reconciler.core.ownership import Ownership
from reconciler.core.past import Holder
from reconciler.core.values import timestamp
from reconciler.decide.actions import adopt_command
from reconciler.errors import Rejected, ServiceError, Unauthorized
from reconciler.text import format_duration

#: The service's limit. Source: docs/reference/modelarts.md, "Signatures".
MAX_SKEW_S = 900.0
NOTABLE_SKEW_S = 300.0
#: Codes for credentials of another project. Source: docs/reference/modelarts.md, "Errors".
_WRONG_PROJECT = frozenset({"ModelArts.2786", "ModelArts.0207", "ModelArts.0210", "ModelArts.2823"})


class Health(StrEnum):
    """The result of a check. A note needs no action."""

    WELL = "ok"
    NOTE = "note"
    WRONG = "wrong"
    UNCHECKED = "not checked"


class Trouble(StrEnum):
    """The kind of problem, which decides the exit code."""

    ACCESS = "access"
    UNREACHABLE = "unreachable"
    OTHER = "other"


class Check(NamedTuple):
    """One check; `fix` says what to do about it."""

    name: str
    health: Health
    detail: str = ""
    fix: str | None = None
    trouble: Trouble = Trouble.OTHER


def passed(name: str, detail: str) -> Check:
    return Check(name, Health.WELL, detail)


def failed(name: str, detail: str, fix: str | None = None, trouble: Trouble = Trouble.OTHER) -> Check:
    return Check(name, Health.WRONG, detail, fix, trouble)


def unchecked(names: Iterable[str], why: str) -> list[Check]:
    """Return checks that could not be made because an earlier one failed."""
    return [Check(name, Health.UNCHECKED, why) for name in names]


def of_failure(name: str, failure: ServiceError) -> Check:
    """Judge a failed call: no access, no connection, or another refusal."""
    [problem] = failure.diagnostics
    if isinstance(failure, Unauthorized):
        name = "project" if failure.code in _WRONG_PROJECT else name
        return failed(name, problem.why, problem.fix, Trouble.ACCESS)
    trouble = Trouble.OTHER if isinstance(failure, Rejected) else Trouble.UNREACHABLE
    return failed(name, f"{problem.what}: {problem.why}", problem.fix, trouble)


def of_clock(skew_s: float | None) -> Check:
    """Judge how far our clock is ahead of the service's; None: the service did not report its time."""
    if skew_s is None:
        return Check("clock", Health.UNCHECKED, "the service did not report its time")
    where = "ahead of" if skew_s > 0 else "behind"
    detail = f"{format_duration(abs(round(skew_s)))} {where} the service's; 15 minutes are allowed"
    if abs(skew_s) > MAX_SKEW_S:
        return failed("clock", detail, "synchronize this machine's clock, e.g. with NTP", Trouble.ACCESS)
    return Check("clock", Health.NOTE if abs(skew_s) > NOTABLE_SKEW_S else Health.WELL, detail)


def of_history(*, is_local: bool, is_shared: bool) -> Check:
    """Judge whether finished work stays finished if the service drops its records.

    Whether and when the service does that is not known.
    """
    if is_local:
        return passed("history", "this machine keeps the job records")
    if is_shared:
        return passed("history", "shared: finished work stays finished even if the service drops its records")
    detail = (
        "only on this machine: if the service drops the records of finished jobs, which cannot be checked, "
        "a plan made elsewhere starts them again"
    )
    fix = "if others apply too, set a shared store in the manifest: records: postgresql://…"
    return Check("history", Health.NOTE, detail, fix)


def of_lock(holder: Holder | None, at_s: float) -> Check:
    """Say who holds the lock, and for how long."""
    if holder is None:
        return passed("lock", "not held")
    remaining = format_duration(max(0, round(holder.expires_s - at_s)))
    detail = (
        f"held by {holder.who} on {holder.where} since {timestamp(holder.since_s)}, for "
        f"{holder.command}; it expires in {remaining} unless renewed"
    )
    fix = "wait until it is released; if its process is gone: reconciler unlock"
    return Check("lock", Health.NOTE, detail, fix)


def of_duplicates(ownership: Ownership) -> list[Check]:
    """Find keys with more than one active revision."""
    checks = []
    for key in ownership.owned_keys:
        running = [revision.job for revision in ownership.view(key).owned if revision.job.is_live]
        if len(running) > 1:
            names = ", ".join(f"{job.name} ({job.phase_text}, {job.id})" for job in running)
            detail = f"{key} has {len(running)} active revisions: {names}"
            fix = "reconciler plan shows which one stays, reconciler apply terminates the others"
            checks.append(failed("duplicates", detail, fix))
    return checks or [passed("duplicates", "no key has more than one active revision")]


def of_conflicting_jobs(ownership: Ownership, declared: Collection[str]) -> list[Check]:
    """Find unmanaged jobs that have a remote name of a declared key: adoption candidates."""
    checks = []
    for key in sorted(declared):
        for holder in ownership.view(key).conflicting_jobs:
            if not holder.is_unmanaged:
                continue
            job = holder.job
            detail = f"{job.name} ({job.phase_text}, {job.id}) has a name that belongs to {key}: {holder.why}"
            fix = f"{adopt_command(key, job.id)}; or rename the key {key} in the manifest"
            if not job.is_active:
                fix += f"; or if its record is no longer needed: reconciler jobs delete {quote(job.id)}"
            checks.append(failed("adoption", detail, fix))
    return checks or [passed("adoption", "no unmanaged job has the name of a declared key")]
