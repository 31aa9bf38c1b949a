"""The text output of `jobs`, `doctor`, `why` and `explain`."""

from __future__ import annotations

import json
import re
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from reconciler.core.phase import RULES as PHASE_RULES
from reconciler.core.phase import Operation, Phase
from reconciler.core.scalar import plain_text, scalar_text
from reconciler.core.schema import fields
from reconciler.core.stack import Effect
from reconciler.core.values import timestamp
from reconciler.decide.doctor import Check, Health
from reconciler.decide.guards import REFUSES_THE_PLAN
from reconciler.decide.plan import BLOCKERS, Reason
from reconciler.render import PLAIN, Style
from reconciler.render.plan import change_lines
from reconciler.render.reports import span
from reconciler.render.text import (
    NOTHING,
    group_by,
    name_of,
    render_head,
    render_keys,
    render_table,
    render_tree,
    render_warnings,
    spell_place,
    table,
    without_name,
)
from reconciler.secrets import show
from reconciler.text import format_count, format_duration, printable

if TYPE_CHECKING:
    from reconciler.core.observed import ObservedJob
    from reconciler.decide.reports import Explanation
    from reconciler.errors import Location

_COLOURS = {Health.WELL: "green", Health.NOTE: "yellow", Health.WRONG: "red", Health.UNCHECKED: "dim"}


# ── jobs of the service ─────────────────────────────────────────────────────────────────────────────


def render_jobs(jobs: Iterable[ObservedJob], at_s: float, style: Style = PLAIN) -> str:
    """Render one line per job."""
    head = ("ID", "NAME", "PHASE", "OWNER", "AGE", "DURATION", "NODES")
    rows = (
        (
            job.id,
            job.name,
            job.phase_text,
            _owner(job),
            "" if job.created_at_s is None else format_duration(max(0, round(at_s - job.created_at_s))),
            span(job.ran_s(at_s)),
            str(job.node_count),
        )
        for job in jobs
    )
    order = ("NAME", "PHASE", "AGE", "DURATION", "OWNER", "NODES", "ID")
    return render_table(head, rows, style, order)


def _owner(job: ObservedJob) -> str:
    """The owner of a job by its believed marker: `stack/key r2`."""
    if job.marker is not None:
        return f"{job.marker.stack}/{job.marker.key} r{job.marker.revision}"
    return "(copied marker)" if job.claimed_marker else ""


def render_job(job: ObservedJob, body: Mapping[str, Any], at_s: float, style: Style = PLAIN) -> str:
    """Render a summary, then the full service response. `body` has no tokens."""
    phase = job.phase_text
    if job.secondary_phase and job.secondary_phase != phase:
        phase += f" ({job.secondary_phase})"
    first = {
        "name": job.name,
        "id": job.id,
        "phase": phase,
        "owner": _owner(job) or "none (unmanaged)",
        "description": job.text,
        "created": timestamp(job.created_at_s) if job.created_at_s else "",
        "started": timestamp(job.started_at_s) if job.started_at_s else "",
        "ran": span(job.ran_s(at_s)),
        "nodes": str(job.node_count),
    }
    width = max(map(len, first))
    lines = [f"{name:<{width}}  {printable(value) or NOTHING}" for name, value in first.items()]
    return "\n".join([*lines, "", style.paint("Service response", "bold"), *render_tree(body, 1)]) + "\n"


# ── doctor ──────────────────────────────────────────────────────────────────────────────────────────


def render_checks(head: str, checks: Sequence[Check], style: Style = PLAIN) -> str:
    """Render one line per check, with its fix below. The last line is a summary."""
    width = max(len(check.name) for check in checks)
    lines = [style.paint(printable(head), "bold"), ""]
    for check in checks:
        word = style.paint(f"{check.health.value:<11}", _COLOURS[check.health])
        lines.append(f"  {word}  {printable(f'{check.name:<{width}}  {check.detail}')}".rstrip())
        if check.fix:
            lines.append(printable(f"{'':{width + 17}}fix: {check.fix}"))
    counts = {health: sum(check.health is health for check in checks) for health in Health}
    total = ", ".join(f"{n} {health.value}" for health, n in counts.items() if n or health is Health.WRONG)
    return "\n".join([*lines, "", f"Doctor: {total}."]) + "\n"


def checks_document(head: Mapping[str, object], checks: Sequence[Check]) -> dict[str, object]:
    documents: list[dict[str, object]] = []
    for name, health, detail, fix, trouble in checks:
        why = trouble if health is Health.WRONG else None
        documents.append({"name": name, "status": health, "detail": detail, "fix": fix, "trouble": why})
    is_well = all(check.health is not Health.WRONG for check in checks)
    return {**head, "well": is_well, "checks": documents}


# ── why, explain ──────────────────────────────────────────────────────────────────────────────────────

_INDENT = "  "
_LONGEST_VALUE = 100
#: The settings that modify the action of a rule, apart from `needs`.
_CHANGED_BY = {
    Reason.WAITS_FOR_TURN: "`max_parallel`",
    Reason.UNREADABLE: "what could not be read",
    Reason.PROTECTED: "`protect`",
}


def render_why(found: Sequence[Explanation], style: Style = PLAIN, *, verbose: bool = False) -> str:
    """Render the answer, the deciding rule and its inputs; with `verbose` all rules, for each key by itself.

    Members of a sweep with the same answer are grouped.
    """
    if len(found) == 1 or verbose:
        return "\n".join(_explained(one, style, verbose=verbose) for one in found)

    def look(one: Explanation) -> Hashable:
        # The first line names the key and its revision, which differ within a group.
        first, *more = _answer([one], style)
        return without_name(first.partition(": ")[2], one.key), *more

    lines = list[str]()
    for group in group_by(found, look):
        lines += (*_answer(group, style), "")
    lines.append(style.paint(render_head(found[0].stack, found[0].target), "bold"))
    lines.append("`reconciler why KEY` explains the action of one of them, -v of each.")
    return "\n".join(lines) + "\n"


def _explained(explanation: Explanation, style: Style, *, verbose: bool) -> str:
    head = style.paint(render_head(explanation.stack, explanation.target), "bold")
    lines = [*_answer([explanation], style), "", head]
    for title, content in _sections(explanation, verbose=verbose):
        shown = [printable(line) for line in content]
        if shown:
            lines += ["", style.paint(title, "bold")]
        lines += (_INDENT + line for line in shown)
    if warnings := [*render_warnings(explanation.warnings, style)]:
        lines += ["", *warnings]
    return "\n".join(lines) + "\n"


def _answer(group: Sequence[Explanation], style: Style) -> Iterator[str]:
    """Render the action of a key or a group, what blocks it, and the rule that decided."""
    explanation, keys = group[0], [one.key for one in group]
    if not explanation.actions:
        yield f"{', '.join(map(printable, keys))}: nothing to do"
    for action in explanation.actions:
        word = style.paint(action.action.value, action.traits.colour)
        shown = action.after or action.before if len(keys) == 1 else None
        why = action.explanation if len(keys) == 1 else without_name(action.explanation, action.key)
        head = f"{name_of(keys)}{f' r{shown.revision}' if shown else ''}: {word} ({action.reason.value})"
        yield f"{head}: {printable(why)}"
        if len(keys) > 1 and action is explanation.actions[0]:
            yield from render_keys(keys, style.width)
        yield from (_INDENT + line for line in change_lines(action))
    # What prevents the action, briefly.
    against = [f"denied by {one.policy}" for one in explanation.policies if one.effect is Effect.DENY]
    for one in explanation.guards:
        word = "refused" if one.guard in REFUSES_THE_PLAN else "blocked"
        against.append(f"{word} by guard {one.guard.value}")
    if against:
        yield _INDENT + style.paint("not applied: ", "red") + printable(", ".join(against))
    for rule in explanation.rules[-1:]:
        yield f"{_INDENT}decided by the rule {rule.name}: {rule.when}"
    if explanation.chosen is not None:
        action = explanation.actions[0]
        changed_by = _CHANGED_BY.get(action.reason, "`needs`")
        if action.reason in BLOCKERS:
            changed_by = ", ".join(action.blocked_by)
        yield f"{_INDENT}It chose {explanation.chosen.value}; {changed_by} makes it {action.action.value}."


def _spell_setting(value: Any) -> str:
    """A value of `lifecycle` in manifest syntax."""
    if isinstance(value, list):
        return ", ".join(value)
    return format_duration(value) if isinstance(value, float) else str(plain_text(value))


def _sections(explanation: Explanation, *, verbose: bool) -> Iterator[tuple[str, Iterable[str]]]:
    declared = explanation.declared
    lines = ["nothing: no entry on this target has the key"]
    if declared is not None:
        place = spell_place(declared.source) if declared.source else "in the manifest"
        values: dict[str, Any] = {
            "state": "absent" if declared.is_absent else "",
            "starts": declared.starts,
            "needs": ", ".join(declared.needs),
            "formerly": ", ".join(declared.formerly),
            **{f"lifecycle.{name}": _spell_setting(one) for name, one in declared.lifecycle.items()},
        }
        lines = [f"{place}  digest {declared.digest}" if declared.digest else place]
        lines += (f"{name}: {value}" for name, value in values.items() if value not in ("", None))
    yield "Declared", lines

    same = {True: " (as declared)", False: " (differs from the declaration)", None: ""}
    lines = []
    if not explanation.observed:
        lines.append("no job of the key" if explanation.is_known else "no job of the key was read")
    for job in explanation.observed:
        facts = [f"r{job.revision} {job.name} ({job.id}): {job.phase}"]
        if job.created_at and declared is not None and "schedule" in declared.lifecycle:
            facts.append(f"created {job.created_at}")
        if job.ran_s:
            facts.append(f"ran {format_duration(round(job.ran_s))} on {format_count(job.nodes, 'node')}")
        facts.append(f"digest {job.digest}{same[job.as_declared]}")
        words = {"stopped by us": job.stopped, "protected": job.protected, "aged out": job.aged_out}
        lines.append(", ".join([*facts, *(word for word, is_so in words.items() if is_so)]))
    yield "Observed", lines

    lines = []
    for policy in explanation.policies:
        place = f" ({spell_place(policy.source)})" if policy.source else ""
        word = "denies" if policy.effect is Effect.DENY else "warns"
        why = policy.message or "its expression is true"
        if policy.problem is not None:
            why = f"the expression could not be evaluated: {policy.problem}"
        lines += (f"{policy.policy} {word}: {why}{place}", f"{_INDENT}{' '.join(policy.expression.split())}")
        for path, value in policy.values.items():
            text = json.dumps(value, ensure_ascii=False)
            short = text if len(text) <= _LONGEST_VALUE else f"{text[: _LONGEST_VALUE - 1]}…"
            lines.append(f"{_INDENT}{path}: {short}")
    yield "Policies", lines

    lines = []
    for one in explanation.guards:
        does = "refuses the plan" if one.guard in REFUSES_THE_PLAN else "blocks the key"
        lines.append(f"{one.guard.value} {does}: {one.what}: {one.why}")
        lines += [f"{_INDENT}fix: {one.fix}"] if one.fix else ()
    yield "Guards", lines
    yield "Otherwise", explanation.otherwise

    rules = explanation.rules if verbose else ()
    width = max((len(rule.name) for rule in rules), default=0)
    lines = [f"{'yes' if rule.applies else 'no ':<3}  {rule.name:<{width}}  {rule.when}" for rule in rules]
    yield "Rules, in the order in which they are checked", lines


def render_origins(
    origins: Sequence[tuple[str, Any, Location | None, str | None, tuple[tuple[str, str], ...]]],
    style: Style = PLAIN,
) -> str:
    """Render a table of the values of a job, by file and line; secrets by name.

    Each origin is a path, the value, its place, the original expression, and the sources of its variables.
    """
    rows = [("FIELD", "VALUE", "FROM", "WRITTEN AS")]
    for path, value, place, expression, sources in origins:
        where = NOTHING if place is None else printable(f"{place.file}:{place.line}")
        written = expression or ""
        if sources:
            written += f" ({', '.join(f'{name}: {source}' for name, source in sources)})"
        # Numbers and booleans as spelled: that is what a field of text is sent.
        is_spelled = isinstance(value, int | float)
        shown = scalar_text(value) if is_spelled else json.dumps(show(value), ensure_ascii=False)
        path, shown, written = (printable(text) or NOTHING for text in (path, shown, written))
        rows.append((path, shown, where, written))
    return "\n".join(table(rows, style)) + "\n" if origins else ""


# ── explain ─────────────────────────────────────────────────────────────────────────────────────────


def render_states(style: Style = PLAIN) -> str:
    """Render the legal operations of each phase: docs/concepts/revisions.md, "Phases"."""
    rows = [["phase", "expected next", *(operation.value for operation in Operation)]]
    for phase in Phase:
        rule = PHASE_RULES[phase]
        expected = ", ".join(one.value for one in Phase if one in rule.expected_next)
        verdicts = ("yes" if rule.verdicts[operation] else "no" for operation in Operation)
        rows.append([phase.value, expected, *verdicts])
    notes = ["", "Why not, and when it becomes legal:"]
    for operation in Operation:
        phases_by_verdict: dict[tuple[str, str], list[str]] = {}
        for phase in Phase:
            verdict = PHASE_RULES[phase].verdicts[operation]
            if not verdict:
                phases_by_verdict.setdefault((verdict.why, verdict.legal_when), []).append(phase.value)
        for (why, legal_when), phases in phases_by_verdict.items():
            notes.append(f"  {operation.value}, {', '.join(phases)}: {why}; legal {legal_when}")
    notes.append("  A phase that is not in the table is never acted on (blocked).")
    shown = table(rows, style, (rows[0][0], *rows[0][2:], rows[0][1]), rule=True)
    return "\n".join([*shown, *notes]) + "\n"


def render_fields(style: Style = PLAIN, path: str = "") -> str:
    """Render what an edit of each field of a job means; with a path, of that field and those below it."""
    shown = [one for one in fields() if not path or re.match(rf"{re.escape(path)}(?![^.[])", one.path)]
    rows = [("field", "an edit means", "description"), *shown]
    return "\n".join(table(rows, style, stay=3, rule=True)) + "\n"
