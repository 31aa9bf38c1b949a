"""Why a key gets its action, where its values come from, and the tables that decide."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from reconciler.core.canonical import walk_rules
from reconciler.core.phase import RULES as PHASE_RULES
from reconciler.core.phase import Operation, Phase
from reconciler.core.schema import LanguageKey, format_field, keys_below, meaning, yaml_text
from reconciler.core.settings import Effect
from reconciler.decide.guards import REFUSES_THE_PLAN
from reconciler.decide.plan import BLOCKERS
from reconciler.decide.rules import RULES
from reconciler.render.drift import since_and_cost
from reconciler.render.layout import fit, table
from reconciler.render.lines import NOTHING, render_change, render_head, render_warnings, spell_place
from reconciler.render.style import PLAIN, Style
from reconciler.secrets import show
from reconciler.text import format_count, format_duration, printable

if TYPE_CHECKING:
    from reconciler.decide.reports import DeclaredValues, Explanation, ObservedRevision
    from reconciler.errors import Location

_INDENT = "  "
_LONGEST_VALUE = 100


def render_why(explanation: Explanation, style: Style = PLAIN) -> str:
    """What is declared and observed, the rules in their order, and what would make the action another."""
    sections: dict[str, Iterable[str]] = {
        "Declared": _declared(explanation.declared),
        "Observed": _observed(explanation),
        "Rules, in the order in which they are asked": _rules(explanation),
        "Policies": _policies(explanation),
        "Guards": _guards(explanation),
        "Pre-flight": _preflight(explanation),
        "Drift": _drift(explanation),
        "Otherwise": explanation.otherwise,
    }
    declared = explanation.declared
    source = declared.source if declared else None
    place = spell_place(source) if source else ""
    lines = [style.paint(render_head(explanation.stack, explanation.target), "bold"), ""]
    lines += _actions(explanation, style)
    for title, content in sections.items():
        shown = [printable(line) for line in content]
        if shown:
            lines += ["", style.paint(title, "bold")]
        for line in shown:
            if place and line.startswith(place):
                line = style.link(place, source) + line.removeprefix(place)
            lines.append(_INDENT + line)
    if warnings := [*render_warnings(explanation.warnings, style)]:
        lines += ["", *warnings]
    return fit("\n".join(lines) + "\n", style, {explanation.key})


def _actions(explanation: Explanation, style: Style) -> Iterator[str]:
    if not explanation.actions:
        yield f"{printable(explanation.key)}: nothing to do"
    for action in explanation.actions:
        word = style.paint(action.action.value, action.traits.colour)
        revision = f" r{shown.revision}" if (shown := action.after or action.before) else ""
        head = f"{printable(explanation.key)}{revision}: {word} ({action.reason.value})"
        yield f"{head}: {printable(action.explanation)}"
        yield from (_INDENT + render_change(change) for change in action.changes)
    # What keeps the action from being done, in a few words each.
    against = [f"denied by {one.policy}" for one in explanation.policies if one.effect is Effect.DENY]
    against += dict.fromkeys(one.reason.words for one in explanation.preflight or ())
    for one in explanation.guards:
        word = "refused" if one.guard in REFUSES_THE_PLAN else "blocked"
        against.append(f"{word} by guard {one.guard.value}")
    if against:
        yield _INDENT + style.paint("not applied: ", "red") + printable(", ".join(against))


def _declared(declared: DeclaredValues | None) -> Iterator[str]:
    if declared is None:
        yield "nothing: no file of the stack has the key"
        return
    place = spell_place(declared.source) if declared.source else "in the manifest"
    yield f"{place}  digest {declared.digest}" if declared.digest else place
    values: dict[str, Any] = {
        "state": "absent" if declared.is_absent else "",
        "starts": declared.starts,
        "needs": ", ".join(declared.needs),
        "formerly": ", ".join(declared.formerly),
        **{f"lifecycle.{name}": value for name, value in declared.lifecycle.items()},
    }
    yield from (f"{name}: {value}" for name, value in values.items() if value not in ("", None))


def _observed(explanation: Explanation) -> Iterator[str]:
    is_scheduled = explanation.declared is not None and "schedule" in explanation.declared.lifecycle
    if not explanation.observed:
        yield "no job of the key"
    for one in explanation.observed:
        yield ", ".join(_facts(one, is_scheduled))


def _facts(one: ObservedRevision, is_scheduled: bool) -> Iterator[str]:
    yield f"r{one.revision} {one.name} ({one.id}): {one.phase}"
    if is_scheduled and one.created_at:
        yield f"created {one.created_at}"
    if one.ran_s:
        yield f"ran {format_duration(round(one.ran_s))} on {format_count(one.nodes, 'node')}"
    same = {True: " (as declared)", False: " (differs from the declaration)", None: ""}
    yield f"digest {one.digest}{same[one.as_declared]}"
    words = {"stopped by us": one.stopped, "protected": one.protected, "aged out": one.aged_out}
    yield from (word for word, is_so in words.items() if is_so)


def _rules(explanation: Explanation) -> Iterator[str]:
    width = max((len(rule.name) for rule in explanation.rules), default=0)
    for rule in explanation.rules:
        yield f"{'yes' if rule.applies else 'no ':<3}  {rule.name:<{width}}  {rule.when}"
    if explanation.chosen is not None:
        action = explanation.actions[0]
        changed_by = "`needs`" if action.reason.value.startswith("needs") else "what could not be read"
        if action.reason in BLOCKERS:
            changed_by = ", ".join(action.blocked_by)
        yield f"It chose {explanation.chosen.value}; {changed_by} makes it {action.action.value}."


def _policies(explanation: Explanation) -> Iterator[str]:
    for one in explanation.policies:
        place = f" ({spell_place(one.source)})" if one.source else ""
        word = "denies" if one.effect is Effect.DENY else "warns"
        why = one.message or "its expression is true"
        if one.problem is not None:
            why = f"the expression could not be evaluated: {one.problem}"
        yield f"{one.policy} {word}: {why}{place}"
        yield f"{_INDENT}{' '.join(one.expression.split())}"
        for path, value in one.values.items():
            text = json.dumps(value, ensure_ascii=False)
            short = text if len(text) <= _LONGEST_VALUE else f"{text[: _LONGEST_VALUE - 1]}…"
            yield f"{_INDENT}{path}: {short}"


def _guards(explanation: Explanation) -> Iterator[str]:
    for one in explanation.guards:
        does = "refuses the plan" if one.guard in REFUSES_THE_PLAN else "blocks the key"
        yield f"{one.guard.value} {does}: {one.what}: {one.why}"
        yield f"{_INDENT}this key: {one.share}"
        if one.fix:
            yield f"{_INDENT}fix: {one.fix}"


def _preflight(explanation: Explanation) -> Iterator[str]:
    found = explanation.preflight
    if found is not None and not found:
        yield "nothing found"
    for one in found or ():
        yield f"{one.reason.words}: {one.detail}"
        if one.fix:
            yield f"{_INDENT}fix: {one.fix}"


def _drift(explanation: Explanation) -> Iterator[str]:
    for one in explanation.drift:
        yield f"{one.class_.value}: {one.detail}{since_and_cost(one)}"
        if one.fix:
            yield f"{_INDENT}fix: {one.fix}"
    yield from (f"pending: {one.detail}" for one in explanation.pending)


def render_origins(
    origins: Sequence[tuple[str, Any, Location | None, str | None, tuple[tuple[str, str], ...]]],
    style: Style = PLAIN,
) -> str:
    """A table of the values of a job, in the order of the file and line that gave them; secrets by name.

    Each is a path, the value, its place, the expression that it was written as, and what gave the values to
    that.
    """
    rows = [("FIELD", "VALUE", "FROM", "WRITTEN AS")]
    for path, value, place, expression, sources in origins:
        where = NOTHING if place is None else printable(f"{place.file}:{place.line}")
        written = expression or ""
        if sources:
            written += f" ({', '.join(f'{name}: {source}' for name, source in sources)})"
        shown = json.dumps(show(value), ensure_ascii=False)
        path, shown, written = (printable(text) or NOTHING for text in (path, shown, written))
        rows.append((path, shown, style.link(where, place), written))
    return "\n".join(table(rows, style)) + "\n" if origins else ""


# ── the tables that decide ──────────────────────────────────────────────────────────────────────────


def render_rules(style: Style = PLAIN) -> str:
    """The rules of the decision in their order: docs/semantics.md, "Decisions"."""
    rows = [
        [str(number), rule.name, ", ".join(rule.actions), rule.when]
        for number, rule in enumerate(RULES, start=1)
    ]
    notes = (
        "The first rule that applies decides. A keep becomes an update where a mutable field or the marker\n"
        "differs. What would start a job is held back while a job that it needs is not completed (defer,\n"
        "blocked), where its name would be too long (blocked), and where a newer job of the key may exist\n"
        "that could not be read (unknown).\n"
    )
    return _table([["#", "rule", "action", "when"], *rows], style) + fit("\n" + notes, style)


def render_states(style: Style = PLAIN) -> str:
    """The operations that are legal in each phase: docs/semantics.md, "Phases"."""
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
    return _table(rows, style) + fit("\n".join(notes) + "\n", style)


def render_fields(style: Style = PLAIN) -> str:
    """What an edit of each field of a job means."""
    rows = [["field", "an edit means", "description"]]
    rows += [[format_field(path), meaning(path, rule), rule.description] for path, rule in walk_rules()]
    return _table(rows, style)


def render_key(key: LanguageKey, style: Style = PLAIN) -> str:
    """One key of the language, and the keys below it."""
    facts = {
        "type": key.type,
        "limits": key.limits,
        "default": "" if key.default is None else yaml_text(key.default),
        "example": f"{key.path.rpartition('.')[2]}: {yaml_text(key.example)}",
        "an edit": key.edit,
        "see": key.see,
    }
    width = max(map(len, facts))
    lines = [f"  {name.ljust(width)}  {value}" for name, value in facts.items() if value]
    text = fit(f"{key.path}: {key.description}\n\n" + "\n".join(lines) + "\n", style)
    below = [[one.path, one.edit, one.description] for one in keys_below(key)]
    return f"{text}\n{_table([['key', 'an edit means', 'description'], *below], style)}" if below else text


def _table(rows: list[list[str]], style: Style) -> str:
    return "\n".join(table(rows, style, rule=True)) + "\n"
