"""Pre-flight: what the target would refuse of the jobs that a plan starts, found before anything is changed.

The catalog's answers are values here; requests are made elsewhere. Source: docs/concepts/guards.md,
"Pre-flight".
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Any, NamedTuple

from reconciler.core.catalog import Missing, Offers, PoolChoice, RecordQuota, missing, pools
from reconciler.core.stack import Stack
from reconciler.core.values import PlanWarning, PreflightReason, fold_similar_warnings
from reconciler.decide.guards import CatalogCheck, block, blocks_of, sums_of
from reconciler.decide.plan import Plan, PlannedAction, PreflightFinding, in_order

#: The command that lists what is offered.
_COMMANDS = {PreflightReason.FLAVOR_NOT_OFFERED: "flavors", PreflightReason.ENGINE_NOT_OFFERED: "engines"}
_DELETE = "delete records that are no longer needed (reconciler jobs delete), or ask for a larger quota"


class UncheckedPart(NamedTuple):
    """A part of the catalog that could not be read, and why."""

    part: str
    why: str


class CatalogAnswers(NamedTuple):
    """What was read of a catalog. Whatever is unknown blocks no job.

    `refused_pools` has the service's message for each pool that it would refuse.
    """

    offers: Offers = Offers()
    refused_pools: Mapping[PoolChoice, str] = MappingProxyType({})
    quota: RecordQuota | None = None
    unchecked: tuple[UncheckedPart, ...] = ()


def jobs_to_start(actions: Iterable[PlannedAction]) -> list[PlannedAction]:
    """Return the actions that start a job, in order of execution; each uses one record of the quota."""
    return [action for action in in_order(actions) if action.traits.starts_a_job]


def find(
    starting: Sequence[PlannedAction], answers: CatalogAnswers, target: str
) -> tuple[PreflightFinding, ...]:
    """Return what a target would refuse of a plan's jobs, sorted by key, then in the order of the body.

    A job that is refused for its body uses no record of the quota. If the quota is too low for all others, it
    blocks all of them; a negative quota means none.
    """
    findings: list[PreflightFinding] = []
    for action in starting:
        for refusal in refused_in_body(action.desired or {}, answers):
            fix = None
            if command := _COMMANDS.get(refusal.reason):
                fix = f"use one of: reconciler {command} --target {target}"
            elif refusal.reason is PreflightReason.NEEDS_ITS_CONTAINER_IMAGE:
                fix = f"set `images: host` on target {target} to run the command without its image"
            more: dict[str, Any] = {
                "reason": refusal.reason,
                "path": refusal.path,
                "detail": refusal.detail,
                "fix": fix,
            }
            findings.append(PreflightFinding(key=action.key, source=action.source, **more))
    refused_keys = {refusal.key for refusal in findings}
    starting = [action for action in starting if action.key not in refused_keys]
    quota = answers.quota
    if quota is not None and quota.quota is not None and quota.used is not None and quota.quota >= 0:
        remaining = max(0, quota.quota - quota.used)
        detail = f"{remaining} of {quota.quota} job records are left in the project, "
        detail += f"and {len(starting)} would be created"
        more = {"reason": PreflightReason.QUOTA_EXCEEDED, "detail": detail, "fix": _DELETE}
        for action in starting if len(starting) > remaining else ():
            findings.append(PreflightFinding(key=action.key, source=action.source, **more))
    return tuple(sorted(findings, key=lambda refusal: refusal.key))


def refused_in_body(body: Mapping[str, Any], answers: CatalogAnswers) -> list[Missing]:
    """Return what a create body names and the target does not accept."""
    refused = [*missing(body, answers.offers)]
    for path, pool in pools(body):
        if (message := answers.refused_pools.get(pool)) is not None:
            why = f"is rejected by the service: {message}"
            refused.append(Missing(PreflightReason.POOL_REJECTED, path, pool.pool_id, why=why))
    return refused


def with_check(plan: Plan, checked: CatalogCheck, stack: Stack) -> Plan:
    """Block the keys with findings in a plan whose guards were applied before."""
    actions = block(plan.actions, blocks_of(checked.found), stack)
    warnings = tuple(dict.fromkeys((*plan.warnings, *fold_similar_warnings(checked.warnings))))
    findings = sorted((*(plan.preflight or ()), *checked.found), key=lambda one: one.key)
    more = {"preflight": tuple(findings), "warnings": warnings}
    return plan.model_copy(update={**sums_of(actions, plan.refusals), **more})


def unchecked_warnings(unchecked: Iterable[UncheckedPart]) -> Iterator[PlanWarning]:
    """Warn of parts that could not be checked, grouped by cause."""
    parts_by_reason: dict[str, list[str]] = {}
    for one in unchecked:
        parts_by_reason.setdefault(one.why, []).append(one.part)
    for why, parts in parts_by_reason.items():
        yield PlanWarning(what="pre-flight is incomplete", why=f"{', '.join(parts)} not checked: {why}")
