"""What the formats beside text and JSON show of an apply: a row per action and per wait."""

from __future__ import annotations

from typing import TYPE_CHECKING

from reconciler.decide.outcome import Status, WaitEnd, spell_status
from reconciler.decide.plan import ACTIONS, Action
from reconciler.render.sheet import Clean, Level, Row, Sheet, folded, harmless, place_of, place_of_target
from reconciler.render.style import View
from reconciler.render.text import render_result as result_text

if TYPE_CHECKING:
    from reconciler.decide.outcome import Outcome, Result, Waited

_FAILED = frozenset(
    {Status.FAILED, Status.DENIED, Status.TIMED_OUT, Status.CONFLICT, Status.UNKNOWN, Status.INTERRUPTED}
)


def sheet_of_result(result: Result, view: View) -> Sheet:
    """What is shown of an apply; its plan, `view.plan`, says where it was and what else was looked at."""
    return harmless(lambda clean: _result_as_sheet(result, view, clean), view.redact)


def _result_as_sheet(result: Result, view: View, clean: Clean) -> Sheet:
    outcomes = [_row_of_outcome(outcome, clean) for outcome in result.outcomes]
    waits = [_row_of_wait(waited, view.at_s, clean) for waited in result.waits]
    rows = tuple(outcomes + waits)
    plan = view.plan
    keys = () if plan is None else tuple(clean(action.key) for action in plan.actions)
    return Sheet(
        title="Apply",
        stack=clean(plan.stack) if plan else "",
        target=clean(plan.target.name) if plan else "",
        where=clean(place_of_target(plan.target)) if plan else "",
        last_line=result_text(result, View(at_s=view.at_s)).splitlines()[-1],
        counts=result.summary,
        has_changes=any(outcome.status is Status.DONE for outcome in result.outcomes),
        created_at=clean(plan.created_at) if plan else "",
        version=clean(plan.reconciler_version) if plan else "",
        rows=rows,
        folded=folded(rows),
        keys=tuple(dict.fromkeys((*keys, *(row.key for row in rows)))),
        digest=view.digest,
        columns=("Outcome", "Job", "Why"),
    )


def _row_of_outcome(outcome: Outcome, clean: Clean) -> Row:
    action, status = outcome.action, outcome.status
    is_bad = status in _FAILED or (status is Status.SKIPPED and action.traits.stands_in_the_way)
    if action.action is Action.UNKNOWN:
        is_bad = True
    shown = action.after or action.before
    became = outcome.message or outcome.detail
    said = action.action.value + (f": {became}" if became else "")
    return Row(
        keys=(clean(action.key),),
        kind=status.value,
        words=spell_status(status),
        symbol=action.symbol,
        colour="red" if is_bad else ACTIONS[action.action].colour,
        rule=action.reason.value if status is Status.SKIPPED else status.value,
        rank=0 if is_bad else 2 if status is Status.SKIPPED else 1,
        revision=f"r{shown.revision}" if shown else "",
        text=clean(said),
        source=place_of(action.source, clean),
        level=Level.ERROR if is_bad else Level.NONE,
        is_finding=is_bad,
        must_stay=is_bad,
        action=action.action.value,
    )


def _row_of_wait(waited: Waited, at_s: float, clean: Clean) -> Row:
    is_bad = waited.end is not WaitEnd.REACHED
    word = waited.end.value.replace("_", " ")
    return Row(
        keys=(clean(waited.key),),
        kind=waited.end.value,
        words=word,
        symbol="!" if is_bad else "=",
        colour="red" if is_bad else "green",
        rule=waited.end.value,
        rank=0 if is_bad else 1,
        revision="",
        text=clean(f"waited for: {waited.describe(at_s)}".rstrip(": ")),
        level=Level.ERROR if is_bad else Level.NONE,
        is_finding=is_bad,
        must_stay=is_bad,
    )
