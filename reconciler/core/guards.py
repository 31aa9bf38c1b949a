"""What a plan may not do unless somebody says so: SEMANTICS 7."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from reconciler.core.diagnostic import Diagnostic
from reconciler.core.plan import PlannedAction
from reconciler.core.record import NO_MEMORY, Memory
from reconciler.core.stack import Limits, Stack


def refusals(
    stack: Stack,
    actions: Sequence[PlannedAction],
    *,
    active_jobs: int,
    owns_nothing: bool = False,
    memory: Memory = NO_MEMORY,
    force: bool = False,
    allow_empty: bool = False,
) -> tuple[Diagnostic, ...]:
    """Return the reasons for which the plan must not be applied; none if it may be.

    `active_jobs` counts the whole stack, also where the plan is a partial view of it. `owns_nothing`
    says that no job of the stack was found on the target at all.
    """
    found = []
    if not stack.declared_keys and not stack.jobs and not allow_empty:
        found.append(
            Diagnostic(
                what="the manifest declares no job",
                why=f"every job of stack {stack.name} would end; an empty manifest is most often a mistake",
                fix="if that is meant, add --allow-empty",
            )
        )
    if not force:
        found += _too_many_terminations(stack.name, actions, active_jobs, stack.limits)
        if owns_nothing:
            found += _found_nothing(stack.name, actions, memory)
    return tuple(found)


def _found_nothing(name: str, actions: Iterable[PlannedAction], memory: Memory) -> list[Diagnostic]:
    """The wrong account, project or workspace looks like a stack of which nothing is left."""
    starting = sum(action.traits.starts_a_job for action in actions)
    if not starting or not (memory.knows_stack or memory.elsewhere):
        return []
    known = "on this target" if memory.knows_stack else f"on another target ({'; '.join(memory.elsewhere)})"
    why = (
        f"no job of stack {name} is here, though the history knows the stack {known}, and {starting} would "
        "be started"
    )
    fix = "look whether target, account and workspace are the right ones, then add --force"
    return [Diagnostic("nothing of the stack was found", why, fix)]


def _too_many_terminations(
    name: str, actions: Iterable[PlannedAction], active_jobs: int, limits: Limits
) -> list[Diagnostic]:
    stopping = sum(action.traits.stops_a_job for action in actions)
    is_many = stopping >= limits.terminations
    is_large_share = stopping * 100 >= limits.terminations_percent * active_jobs
    if not (is_many and is_large_share):
        return []
    why = (
        f"{stopping} of the {active_jobs} active jobs of stack {name} would stop; the limits are "
        f"{limits.terminations} jobs and {limits.terminations_percent:g} %"
    )
    return [Diagnostic("too many terminations", why, "read the plan again, then add --force")]
