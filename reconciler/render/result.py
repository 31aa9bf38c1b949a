"""An apply: what became of the actions of a plan, and of the jobs that were waited for."""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Sequence

from reconciler.decide.outcome import Outcome, Result, Status, Waited, WaitEnd, spell_status
from reconciler.decide.plan import Action, PlannedAction
from reconciler.render import Content
from reconciler.render.groups import fold_alike, is_one_sweep, look_of_action, without_name
from reconciler.render.layout import fit, pad
from reconciler.render.lines import printable_line, render_keys, width_of_names
from reconciler.render.sheet import Clean, Level, Row, Sheet, SheetHead, folded, head_of, place_of
from reconciler.render.style import Style, View
from reconciler.text import printable

_COLOURS = {Status.DONE: "green", Status.SKIPPED: "dim"}
_FAILED = frozenset(
    {Status.FAILED, Status.DENIED, Status.TIMED_OUT, Status.CONFLICT, Status.UNKNOWN, Status.INTERRUPTED}
)


def text(result: Result, view: View) -> str:
    """Text for people; the last line counts."""
    style = view.style
    groups = fold_alike(result.outcomes, _look, is_folded=not view.verbose)
    lines = [line for group in groups for line in _outcome_lines(group, style)]
    lines += _wait_lines(result.waits, view)
    lines.append(_last_line(result))
    names = {waited.key for waited in result.waits} | {_job_name(one.action) for one in result.outcomes}
    return fit("\n".join(lines) + "\n", style, names)


def _last_line(result: Result) -> str:
    counts = [
        f"{count} {spell_status(status)}"
        for status, count in result.summary.items()
        if count or status == Status.DONE
    ]
    return f"{'Apply interrupted' if result.interrupted else 'Applied'}: {', '.join(counts)}."


def _look(outcome: Outcome) -> Hashable | None:
    """What the plan shows once, the result shows once, if it ended in the same way."""
    planned = look_of_action(outcome.action)
    return planned and (outcome.status, without_name(outcome.detail, outcome.key), planned)


def _outcome_lines(group: Sequence[Outcome], style: Style) -> Iterator[str]:
    first = group[0]
    word = style.paint(f"{spell_status(first.status):<9}", _COLOURS.get(first.status, "red"))
    names = [_job_name(outcome.action) for outcome in group]
    name, detail = names[0], first.detail
    if len(group) > 1:
        name, detail = f"{len(group)} jobs", without_name(detail, first.key)
    yield printable_line(
        f"  {word} ", f"{first.action.action.value} {name}" + (f": {detail}" if detail else "")
    )
    if len(group) > 1:
        yield from render_keys(
            names,
            style.width,
            is_cut=first.status is Status.DONE and first.action.traits.is_harmless,
            is_sweep=is_one_sweep(outcome.action.source for outcome in group),
        )


def _job_name(action: PlannedAction) -> str:
    return action.after.name if action.after else action.before.name if action.before else action.key


def _wait_lines(waits: Sequence[Waited], view: View) -> Iterator[str]:
    width = width_of_names((waited.key for waited in waits), view.style)
    words = [_wait_end(waited, view.at_s) for waited in waits]
    ends = max((11, *(len(word) for word, _ in words)))
    for waited, (word, more) in zip(waits, words, strict=True):
        colour = "green" if waited.end is WaitEnd.REACHED else "red"
        end = view.style.paint(printable(f"{word:<{ends}}"), colour)
        yield printable_line(f"  {end} ", f"{pad(waited.key, width)}  {more}")


def _wait_end(waited: Waited, at_s: float) -> tuple[str, str]:
    """How a wait ended, in a word, and the rest: a goal that was reached is the phase of the job."""
    if waited.end is WaitEnd.REACHED and waited.job is not None:
        times = waited.times(at_s)
        return waited.job.phase_text, waited.job.name + (f" ({times})" if times else "")
    return waited.end.value.replace("_", " "), waited.describe(at_s)


# ── the sheet ───────────────────────────────────────────────────────────────────────────────────────


def sheet(result: Result, view: View, clean: Clean) -> Sheet:
    """A row per action and per wait; the plan, `view.plan`, says where it was and what else was looked at."""
    rows = (
        *(_row_of_outcome(outcome, clean) for outcome in result.outcomes),
        *(_row_of_wait(waited, view.at_s, clean) for waited in result.waits),
    )
    plan = view.plan
    head = SheetHead(stack="", target="", where="", created_at="", version="")
    if plan is not None:
        head = head_of(plan, clean)
    keys = () if plan is None else tuple(clean(action.key) for action in plan.actions)
    return Sheet(
        Content.RESULT,
        **head,
        last_line=_last_line(result),
        counts=result.summary,
        has_changes=any(outcome.status is Status.DONE for outcome in result.outcomes),
        rows=rows,
        folded=folded(rows),
        keys=tuple(dict.fromkeys((*keys, *(row.key for row in rows)))),
        digest=view.digest,
        columns=("Outcome", "Job", "Why"),
    )


def _row_of_outcome(outcome: Outcome, clean: Clean) -> Row:
    action, status = outcome.action, outcome.status
    is_bad = (
        status in _FAILED
        or action.action is Action.UNKNOWN
        or (status is Status.SKIPPED and action.traits.stands_in_the_way)
    )
    shown = action.after or action.before
    became = outcome.message or outcome.detail
    return Row(
        keys=(clean(action.key),),
        kind=status.value,
        words=spell_status(status),
        symbol=action.symbol,
        colour="red" if is_bad else action.traits.colour,
        rule=action.reason.value if status is Status.SKIPPED else status.value,
        rank=0 if is_bad else 2 if status is Status.SKIPPED else 1,
        revision=f"r{shown.revision}" if shown else "",
        text=clean(action.action.value + (f": {became}" if became else "")),
        source=place_of(action.source, clean),
        level=Level.ERROR if is_bad else Level.NONE,
        is_finding=is_bad,
        must_stay=is_bad,
        action=action.action.value,
    )


def _row_of_wait(waited: Waited, at_s: float, clean: Clean) -> Row:
    is_bad = waited.end is not WaitEnd.REACHED
    return Row(
        keys=(clean(waited.key),),
        kind=waited.end.value,
        words=waited.end.value.replace("_", " "),
        symbol="!" if is_bad else "=",
        colour="red" if is_bad else "green",
        rule=waited.end.value,
        rank=0 if is_bad else 1,
        text=clean(f"waited for: {waited.describe(at_s)}".rstrip(": ")),
        level=Level.ERROR if is_bad else Level.NONE,
        is_finding=is_bad,
        must_stay=is_bad,
    )
