"""What keeps a plan, or keys of it, from being carried out: one diagnostic per guard, policy and finding.

It is made of what a plan says itself, so that a saved one says the same.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType

from reconciler.core.values import node_hours
from reconciler.decide.cost import spell_cost, sum_of
from reconciler.decide.plan import Guard, Plan, PlannedAction, Reason, few, spell_work
from reconciler.decide.policy_verdict import refusals_of as denials
from reconciler.decide.preflight import refusals_of as findings
from reconciler.decide.reruns import ways_to_keep_work
from reconciler.errors import Diagnostic

#: So many keys stand in a message; the plan names all of them.
_MOST_KEYS = 5
#: What a guard that blocks keys is called, as a title.
_TITLES: Mapping[str, str] = MappingProxyType(
    {
        Guard.LOST_WORK.value: "too much work would be lost",
        Guard.RERUNS.value: "too much finished work would run again",
        Guard.BUDGET.value: "over budget",
    }
)


def blockers(plan: Plan) -> tuple[Diagnostic, ...]:
    """Why a plan is refused, and why keys of it are blocked; nothing where all of it may be done."""
    by_guard: dict[str, list[PlannedAction]] = {}
    for action in plan.blocked:
        if action.reason is Reason.GUARD:
            by_guard.setdefault(action.blocked_by[0], []).append(action)
    guards = (_of_guard(name, actions) for name, actions in by_guard.items())
    return (*plan.refusals, *denials(plan.denied), *findings(plan.preflight or ()), *guards)


def _of_guard(name: str, actions: Sequence[PlannedAction]) -> Diagnostic:
    keys = list(dict.fromkeys(action.key for action in actions))
    keeping = "".join(f"{way}, or " for way in ways_to_keep_work(actions))
    fix = f"{keeping}review the plan, then add --allow {name}"
    if name != Guard.BUDGET.value:
        fix += f", or --allow {name}=KEY for one key"
    return Diagnostic(_TITLES[name], f"blocks {few(keys, _MOST_KEYS)}: {_figures(name, actions)}", fix)


def _figures(name: str, actions: Sequence[PlannedAction]) -> str:
    if name == Guard.LOST_WORK.value:
        work = sum(node_hours(action.elapsed, action.nodes) for action in actions)
        return f"{spell_work(work)} of running work would be discarded"
    if name == Guard.BUDGET.value:
        return f"{spell_cost(sum_of(one.cost for one in actions if one.cost))} would be started"
    return "they would run finished work again"
