"""Plans, drift reports and results as text for people."""

from __future__ import annotations

import json
from collections.abc import Hashable, Iterator, Sequence
from typing import TYPE_CHECKING

from reconciler.core.secret import show
from reconciler.decide.cost import spell_cost
from reconciler.decide.groups import (
    FOLDED_FROM,
    Group,
    few,
    fold,
    fold_alike,
    in_order_for_people,
    is_harmless,
    is_one_sweep,
    look_of_action,
    spell_work,
    without_name,
)
from reconciler.decide.outcome import Outcome, Result, Status, Waited, WaitEnd, spell_status
from reconciler.decide.plan import Action, Plan, PlannedAction
from reconciler.render.layout import fit, pad
from reconciler.render.style import Style, View
from reconciler.render.texts.drift import drift_text
from reconciler.render.texts.groups import (
    INDENT,
    GroupText,
    KeyList,
    printable_line,
    render_group,
    render_keys,
    width_of_names,
)
from reconciler.render.texts.head import render_head
from reconciler.render.texts.history import history_text
from reconciler.render.texts.policy_cases import cases_text
from reconciler.render.texts.review import review_text
from reconciler.render.texts.validation import validation_text
from reconciler.render.texts.warnings import render_warnings
from reconciler.text import printable

if TYPE_CHECKING:
    from reconciler.decide.drift_report import DriftReport
    from reconciler.decide.history_report import HistoryReport
    from reconciler.decide.policy_cases import CasesReport
    from reconciler.decide.review_report import Review
    from reconciler.decide.validation_report import Validation

#: So many times of schedules are named of keys that are not listed.
_MOST_TIMES = 5


def render_plan(plan: Plan, view: View) -> str:
    """Show a plan; the last line is fixed: docs/cli.md, "Text output"."""
    style = view.style
    lines = [style.paint(render_head(plan.stack, plan.target), "bold"), ""]
    shown = in_order_for_people(action for action in plan.actions if _is_shown(action, view))
    groups = [Group((action,)) for action in shown] if view.verbose else fold(shown)
    texts = [_text_of(group) for group in groups]
    width = width_of_names((text.name for text in texts), style)
    for group, text in zip(groups, texts, strict=True):
        lines += render_group(text, style, width)
        if view.verbose and group.first.desired is not None:
            lines += _body(group.first)
    if shown:
        lines.append("")
    lines += render_warnings(plan.warnings, style)
    lines += _next_runs(plan, view)
    lines += sums_of(plan)
    lines.append(plan.last_line)
    return fit("\n".join(lines) + "\n", style, {action.key for action in plan.actions})


def _next_runs(plan: Plan, view: View) -> Iterator[str]:
    """When the schedules of keys that are not listed start them next, the soonest first."""
    keys_by_time: dict[tuple[str, str], list[str]] = {}
    for action in plan.actions:
        if action.next_run_at and action.next_run and not _is_shown(action, view):
            keys_by_time.setdefault((action.next_run_at, action.next_run), []).append(action.key)
    for (_, said), keys in sorted(keys_by_time.items())[:_MOST_TIMES]:
        yield printable(f"next: {said}: {few(keys, FOLDED_FROM)}")
    if (more := len(keys_by_time) - _MOST_TIMES) > 0:
        yield f"next: {more} later {'time' if more == 1 else 'times'}; --show-keep lists all keys"


def sums_of(plan: Plan) -> Iterator[str]:
    """What the plan throws away, and what it may take."""
    if plan.lost_node_hours:
        yield f"Discards {spell_work(plan.lost_node_hours)} of work."
    # Of one action the sum says what its own line says.
    counted = sum(_shows_cost(one) for one in plan.actions if one.action is not Action.BLOCKED)
    if plan.cost is not None and counted > 1:
        yield f"Starts {spell_cost(plan.cost)}."


def _is_shown(action: PlannedAction, view: View) -> bool:
    """Whether an action is listed: what is kept only on request, unless it ended badly."""
    return view.show_keep or action.action is not Action.KEEP or action.ended_badly


def _text_of(group: Group) -> GroupText:
    action = group.first
    return GroupText(
        symbol=action.symbol,
        word=action.action.value,
        colour=action.traits.colour,
        names=[one.key for one in group.actions],
        explanation=group.explanation,
        revisions=[_revision(one) for one in group.actions],
        starts=[what_starts(one) for one in group.actions],
        changes=action.changes,
        is_cut=group.is_harmless,
        place=action.source,
        is_sweep=is_one_sweep(one.source for one in group.actions),
    )


def what_starts(action: PlannedAction) -> str:
    """What an action starts, and what that costs."""
    cost = spell_cost(action.cost) if action.cost is not None and _shows_cost(action) else ""
    return "; ".join(part for part in (action.starts, cost) if part)


def _shows_cost(action: PlannedAction) -> bool:
    """Whether an action says what its job costs: a deferred or blocked one does if that is bounded."""
    cost = action.cost
    return cost is not None and (action.traits.starts_a_job or cost.node_hours_max is not None)


def _revision(action: PlannedAction) -> str:
    shown = action.after or action.before
    return f"r{shown.revision}" if shown else ""


def _body(action: PlannedAction) -> Iterator[str]:
    """The whole body that is sent, secrets by name."""
    for line in json.dumps(show(action.desired), indent=2, ensure_ascii=False).splitlines():
        yield INDENT + printable(line)


def render_drift(report: DriftReport, view: View) -> str:
    """Show a drift report; the last line counts."""
    return drift_text(report, view)


def render_review(review: Review, view: View) -> str:
    """Show a review; the last line is fixed: docs/cli.md, "Review"."""
    return review_text(review, view)


def render_cases(report: CasesReport, view: View) -> str:
    """Show what became of the cases of policies."""
    return cases_text(report, view)


def render_validation(report: Validation, view: View) -> str:
    """Show what a check of a manifest found."""
    return validation_text(report, view)


def render_history(report: HistoryReport, view: View) -> str:
    """Show what was recorded."""
    return history_text(report, view)


def render_result(result: Result, view: View) -> str:
    """Show what became of a plan, and of the jobs that were waited for."""
    style = view.style
    groups = fold_alike(result.outcomes, _look_of_outcome, is_folded=not view.verbose)
    lines = [line for group in groups for line in _outcome_lines(group, style)]
    lines += _wait_lines(result.waits, view)
    counts = result.summary
    told = [
        f"{count} {spell_status(status)}"
        for status, count in counts.items()
        if count or status == Status.DONE
    ]
    lines.append(f"{'Apply interrupted' if result.interrupted else 'Applied'}: {', '.join(told)}.")
    names = {waited.key for waited in result.waits} | {_job_name(one.action) for one in result.outcomes}
    return fit("\n".join(lines) + "\n", style, names)


def _wait_lines(waits: Sequence[Waited], view: View) -> Iterator[str]:
    width = width_of_names((waited.key for waited in waits), view.style)
    words = [_wait_end(waited, view.at_s) for waited in waits]
    ends = max((11, *(len(word) for word, _ in words)))
    for waited, (word, said) in zip(waits, words, strict=True):
        colour = "green" if waited.end is WaitEnd.REACHED else "red"
        end = view.style.paint(printable(f"{word:<{ends}}"), colour)
        yield printable_line(f"  {end} ", f"{pad(waited.key, width)}  {said}")


def _wait_end(waited: Waited, at_s: float) -> tuple[str, str]:
    """How a wait ended, in a word, and the rest: a goal that was reached is the phase of the job."""
    if waited.end is WaitEnd.REACHED and waited.job is not None:
        times = waited.times(at_s)
        return waited.job.phase_text, waited.job.name + (f" ({times})" if times else "")
    return waited.end.value.replace("_", " "), waited.describe(at_s)


_STATUS_COLOURS = {Status.DONE: "green", Status.SKIPPED: "dim"}


def _look_of_outcome(outcome: Outcome) -> Hashable | None:
    """What the plan shows once, the result shows once, if it ended in the same way."""
    planned = look_of_action(outcome.action)
    return planned and (outcome.status, without_name(outcome.detail, outcome.key), planned)


def _outcome_lines(group: Sequence[Outcome], style: Style) -> Iterator[str]:
    first = group[0]
    word = style.paint(f"{spell_status(first.status):<9}", _STATUS_COLOURS.get(first.status, "red"))
    names = [_job_name(outcome.action) for outcome in group]
    name, detail = names[0], first.detail
    if len(group) > 1:
        name, detail = f"{len(group)} jobs", without_name(detail, first.key)
    yield printable_line(
        f"  {word} ", f"{first.action.action.value} {name}" + (f": {detail}" if detail else "")
    )
    if len(group) > 1:
        is_cut = first.status is Status.DONE and is_harmless(first.action.action)
        is_sweep = is_one_sweep(outcome.action.source for outcome in group)
        yield from render_keys(names, KeyList(is_cut, is_sweep, style.width))


def _job_name(action: PlannedAction) -> str:
    return action.after.name if action.after else action.before.name if action.before else action.key
