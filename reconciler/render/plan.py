"""A plan: its text, with a fixed last line (docs/reference/cli.md, "Text output"), sheet and sources."""

from __future__ import annotations

import json
import re
from collections.abc import Hashable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

from reconciler.core.masking import texts_in
from reconciler.core.scalar import Reference, parts_of
from reconciler.core.values import node_hours
from reconciler.decide.cost import spell_cost
from reconciler.decide.plan import Action, PlannedAction, Reason, lost_sum, spell_code_changes, spell_work
from reconciler.errors import FOLD_FROM
from reconciler.render import Style, View
from reconciler.render.text import (
    FORCES_NEW_JOB,
    INDENT,
    group_by,
    grouping_key_of_changes,
    name_of,
    place_in,
    render_change,
    render_entry,
    render_head,
    render_starts,
    render_warnings,
    width_of_names,
    without_name,
)
from reconciler.secrets import show
from reconciler.text import few, format_count, format_size, printable

if TYPE_CHECKING:
    from reconciler.core.settings import VariableSource
    from reconciler.decide.plan import Plan
    from reconciler.decide.review import ReviewedJob
    from reconciler.decide.saved_plan import SavedOptions

#: When the detail of a retry says that it is due.
_RETRY_TIME = r" at (\d{4}-\d\d-\d\dT[\d:]+Z)"
#: The id of the job that has the name of a key.
_HOLDER = r" is taken by job (\S+)"
_Acting = TypeVar("_Acting", PlannedAction, "ReviewedJob")


def in_order_for_people(items: Iterable[_Acting]) -> list[_Acting]:
    """Sort actions that end work first. The sort is stable."""
    return sorted(items, key=lambda item: item.traits.place)


def shared_detail(action: PlannedAction) -> str:
    """The detail of an action, without what may differ among actions of equal look."""
    if action.reason is Reason.RETRY_LATER:  # jobs seldom end in the same second
        return re.sub(_RETRY_TIME, "", action.detail)
    if action.reason is Reason.NAME_TAKEN:
        holders = re.findall(_HOLDER, action.detail)
        detail = without_name(action.detail, action.key, "KEY")
        return detail.replace(holders[0], "JOB") if holders else detail
    return action.detail


def grouping_key(action: PlannedAction) -> Hashable:
    """The shown parts of an action, without its key, what it starts and what grows with time."""
    shown = (action.symbol, action.action, action.reason, shared_detail(action), action.ended_badly)
    return (*shown, action.next_run, grouping_key_of_changes(action.changes), action.rerun_of is not None)


def explain_group(actions: Sequence[PlannedAction]) -> str:
    """The detail of a group of actions of equal look, with the sum of the lost work."""
    first, is_folded, lost = actions[0], len(actions) > 1, lost_sum(actions)
    if is_folded and first.reason is Reason.WOULD_LOSE_WORK:
        return first.would_lose(spell_work(sum(node_hours(one.elapsed, one.nodes) for one in actions)))
    if is_folded and first.reason is Reason.NAME_TAKEN:
        return shared_detail(first)
    if is_folded and any(one.detail != first.detail for one in actions):  # retries
        first = min(actions, key=lambda one: re.findall(_RETRY_TIME, one.detail))
        return re.sub(_RETRY_TIME, r", the first at \1", first.explanation)
    if is_folded and lost:
        return f"{first.detail}; discards {spell_work(lost)} of work"
    if is_folded:  # each repeats the work of another key
        first = first.model_copy(update={"rerun_of_key": None})
    if len(first.waits_for) < FOLD_FROM:
        return first.explanation
    return first.explanation.replace(", ".join(first.waits_for), few(first.waits_for))


def plan_text(plan: Plan, view: View) -> str:
    """Render a plan. Kept keys are listed on request, or if they ended badly."""
    style = view.style
    lines = [style.paint(render_head(plan.stack, plan.target), "bold"), ""]
    shown = in_order_for_people(
        action
        for action in plan.actions
        if view.show_keep or action.action is not Action.KEEP or action.ended_badly
    )
    groups = group_by(shown, grouping_key, place_in(plan.declared), is_folded=not view.verbose)
    names = [name_of([one.key for one in group]) for group in groups]
    width = width_of_names([*names, *(key for key, _ in plan.history)], style)
    for group in groups:
        first, keys, revisions = group[0], [one.key for one in group], [revision_of(one) for one in group]
        # Revisions that differ are shown beside the keys.
        is_same = len(set(revisions)) == 1
        pairs = zip(keys, revisions, strict=True)
        lines += job_lines(
            first,
            keys,
            f"{revisions[0] if is_same else '':<4} {explain_group(group)}",
            style,
            width,
            starts=[what_starts(one, plan) for one in group],
            listed=keys if is_same else [" ".join(filter(None, pair)) for pair in pairs],
            # Keys that need no attention may be cut.
            is_cut=first.traits.is_harmless and not first.ended_badly,
            is_braced=is_same,
            is_verbose=view.verbose,
        )
        if view.verbose and first.desired is not None:
            # The whole request body, with secrets by name.
            body = json.dumps(show(first.desired), indent=2, ensure_ascii=False)
            lines += (INDENT + printable(line) for line in body.splitlines())
    # Of many such marks only the first is spelled out.
    ends = (FORCES_NEW_JOB, f"{FORCES_NEW_JOB}  # sensitive")
    marked = [number for number, line in enumerate(lines) if line.endswith(ends)]
    for number in marked[1:] if len(marked) >= FOLD_FROM and not view.verbose else ():
        lines[number] = "  # new job".join(lines[number].rsplit(FORCES_NEW_JOB, 1))
    for key, job in plan.history:
        head = style.paint(f"{'.':>3} {'history':<9}", "dim")
        lines += render_entry(head, [key], f"r{job.revision:<3} {job.name} is {job.phase}", style, width)
    if shown or plan.history:
        lines.append("")
    lines += render_warnings(plan.warnings, style, plan.declared)
    lines += sums_of(plan)
    lines.append(plan.last_line)
    return "\n".join(lines) + "\n"


def job_lines(
    job: PlannedAction | ReviewedJob,
    keys: Sequence[str],
    words: str,
    style: Style,
    width: int,
    *,
    starts: Sequence[str],
    is_verbose: bool = False,
    **more: Any,
) -> Iterator[str]:
    """Render a job of a plan or a review, or a group: what it starts, and its changes."""
    head = style.paint(f"{job.symbol:>3} {job.action.value:<9}", job.traits.colour)
    yield from render_entry(head, keys, words, style, width, **more)
    yield from render_starts(starts)
    yield from (INDENT + line for line in change_lines(job, is_verbose=is_verbose))
    code = job.code
    if code is not None and code.upload_count:
        size = format_size(code.upload_bytes or 0)
        yield INDENT + f"uploads {format_count(code.upload_count, 'file')}, {size}"


def change_lines(job: PlannedAction | ReviewedJob, *, is_verbose: bool = False) -> Iterator[str]:
    """Render changed fields, and changed files of code; with `is_verbose` their changed lines."""
    code = job.code
    files = code.files if code is not None else None
    yield from (render_change(change) for change in job.changes if change.path != "code" or files is None)
    change = next((change for change in job.changes if change.path == "code"), None)
    # A new revision also takes over ignored edits.
    if code is not None and files is not None and (change or (code.before and files)):
        mark = FORCES_NEW_JOB if change and change.forces_new_job else ""
        yield printable(f"code: {spell_code_changes(files)}") + mark
        for file in files if is_verbose else ():
            yield "  " + printable(f"{file.words}, {format_size(file.size)}")
            # The bar sets off the contents of the file, which are untrusted.
            yield from (f"  | {printable(line)}".rstrip() for line in file.diff or ())


def revision_of(action: PlannedAction) -> str:
    shown = action.after or action.before
    return f"r{shown.revision}" if shown else ""


def what_starts(action: PlannedAction, plan: Plan) -> str:
    cost = ""
    if action.cost is not None and _shows_cost(action):
        cost = spell_cost(action.cost, has_budget=plan.has_budget)
    return "; ".join(filter(None, (action.starts, cost)))


def _shows_cost(action: PlannedAction) -> bool:
    """Whether the cost of an action is shown; of a deferred or blocked one, if it is bounded."""
    cost = action.cost
    return cost is not None and (action.traits.starts_a_job or cost.node_hours_max is not None)


def sums_of(plan: Plan) -> Iterator[str]:
    """Render the work that a plan discards, and its cost."""
    if plan.lost_node_hours:
        yield f"Discards {spell_work(plan.lost_node_hours)} of work."
    # The sum for a single action would repeat its line.
    counted = sum(_shows_cost(one) for one in plan.actions if one.action is not Action.BLOCKED)
    cost = spell_cost(plan.cost, has_budget=plan.has_budget) if plan.cost and counted > 1 else ""
    if cost:
        yield f"Starts {cost}."


# ── sources of a saved plan ─────────────────────────────────────────────────────────────────────────


def render_sources(plan: Plan, options: SavedOptions, records: str | None) -> str:
    """Render where applying the plan connects to, and which values it looks up. "" if nothing.

    `records` is the redacted address of the record store, None if it is beside the root file.
    """
    bodies = [action.desired for action in plan.to_execute]
    texts = (options.records or "", *(text for text in texts_in(bodies) if "${" in text))
    named = [part for one in texts for part in parts_of(one) if isinstance(part, Reference)]
    # Those in the address of the store, then the variables.
    values = list(dict.fromkeys(one.text for one in named if one.variable is None))
    variables = {one.variable for one in named if one.variable is not None}
    for name in sorted({*options.sources, *variables}):
        values.append(f"${{var.{name}}} {_place(options.sources.get(name))}")
    profile = options.target.profile
    if records is None and not values and not profile:
        return ""
    lines = [f"Root: {options.root}", f"Records: {records or 'beside the root file'}"]
    if profile:
        lines.append(f"Credentials: profile {profile}")
    if values:
        lines += ["Values to look up:", *(f"  {value}" for value in values)]
    return "".join(printable(line) + "\n" for line in lines)


def _place(source: VariableSource | None) -> str:
    if source is None:
        return "from --var or --var-file"
    if source.env is not None:
        return f"from the environment variable {source.env}"
    if source.file is not None:
        return f"from the file {source.file}"
    if source.text is not None:
        return f"from the text {source.text}"
    return "from --var" if source.given else "from --var or --var-file (it was in the manifest)"
