"""Why a key gets its action, as text for people."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from typing import Any

from reconciler.core.policy import Effect
from reconciler.decide.allowance import Guard
from reconciler.decide.explanation import (
    DeclaredValues,
    Explanation,
    ObservedRevision,
    RuleCheck,
)
from reconciler.decide.guards import REFUSES_THE_PLAN
from reconciler.decide.objections import GuardVerdict, PolicyVerdict
from reconciler.decide.plan import BLOCKERS, PlannedAction, PreflightFinding
from reconciler.render.layout import fit
from reconciler.render.style import PLAIN, Style
from reconciler.render.texts.denials import spell_place
from reconciler.render.texts.drift import since_and_cost
from reconciler.render.texts.groups import render_change
from reconciler.render.texts.head import render_head
from reconciler.render.texts.warnings import render_warnings
from reconciler.text import format_duration, printable

_INDENT = "  "
_LONGEST_VALUE = 100


def render_why(explanation: Explanation, style: Style = PLAIN) -> str:
    """What is declared, what was observed, the rules that were asked, and what would make it otherwise."""
    sections: tuple[tuple[str, Iterable[str]], ...] = (
        ("Declared", _declared(explanation.declared)),
        ("Observed", _observed(explanation)),
        ("Rules, in the order in which they are asked", _rules(explanation)),
        ("Policies", _policies(explanation.policies)),
        ("Guards", _guards(explanation.guards)),
        ("Pre-flight", _preflight(explanation.preflight)),
        ("Drift", _drift(explanation)),
        ("Otherwise", explanation.otherwise),
    )
    lines = [style.paint(render_head(explanation.stack, explanation.target), "bold"), ""]
    lines += _actions(explanation, style)
    for title, content in sections:
        if shown := [_linked(printable(line), explanation, style) for line in content]:
            lines += ["", style.paint(title, "bold"), *(_INDENT + line for line in shown)]
    if warnings := [*render_warnings(explanation.warnings, style)]:
        lines += ["", *warnings]
    return fit("\n".join(lines) + "\n", style, {explanation.key})


def _linked(line: str, explanation: Explanation, style: Style) -> str:
    """A line that is, or begins with, the place of the declaration, as a link to it."""
    declared = explanation.declared
    place = "" if declared is None or declared.source is None else spell_place(declared.source)
    if declared is None or not place or not line.startswith(place):
        return line
    return style.link(place, declared.source) + line.removeprefix(place)


def _actions(explanation: Explanation, style: Style) -> Iterator[str]:
    if not explanation.actions:
        yield f"{printable(explanation.key)}: nothing to do"
    for action in explanation.actions:
        word = style.paint(action.action.value, action.traits.colour)
        revision = f" r{shown.revision}" if (shown := action.after or action.before) else ""
        head = f"{printable(explanation.key)}{revision}: {word} ({action.reason.value})"
        yield f"{head}: {printable(action.explanation)}"
        yield from (_INDENT + render_change(change) for change in action.changes)
    if against := [*_against(explanation)]:
        yield _INDENT + style.paint("not applied: ", "red") + printable(", ".join(against))


def _against(explanation: Explanation) -> Iterator[str]:
    """What keeps the action from being done, in a few words each."""
    yield from (f"denied by {one.policy}" for one in explanation.policies if one.effect is Effect.DENY)
    yield from dict.fromkeys(one.reason.words for one in explanation.preflight or ())
    yield from (f"{_word_of(one.guard)} by guard {one.guard.value}" for one in explanation.guards)


def _word_of(guard: Guard) -> str:
    return "refused" if guard in REFUSES_THE_PLAN else "blocked"


def _policies(verdicts: Iterable[PolicyVerdict]) -> Iterator[str]:
    for one in verdicts:
        place = f" ({spell_place(one.source)})" if one.source else ""
        word = "denies" if one.effect is Effect.DENY else "warns"
        why = one.message or "its expression is true"
        if one.problem is not None:
            why = f"the expression could not be evaluated: {one.problem}"
        yield f"{one.policy} {word}: {why}{place}"
        yield f"{_INDENT}{' '.join(one.expression.split())}"
        yield from (f"{_INDENT}{path}: {_short(value)}" for path, value in one.values.items())


def _short(value: Any) -> str:
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= _LONGEST_VALUE else f"{text[: _LONGEST_VALUE - 1]}…"


def _guards(verdicts: Iterable[GuardVerdict]) -> Iterator[str]:
    for one in verdicts:
        does = "refuses the plan" if one.guard in REFUSES_THE_PLAN else "blocks the key"
        yield f"{one.guard.value} {does}: {one.what}: {one.why}"
        yield f"{_INDENT}this key: {one.share}"
        if one.fix:
            yield f"{_INDENT}fix: {one.fix}"


def _preflight(findings: Iterable[PreflightFinding] | None) -> Iterator[str]:
    if findings is None:
        return
    found = list(findings)
    if not found:
        yield "nothing found"
    for one in found:
        yield f"{one.reason.words}: {one.detail}"
        if one.fix:
            yield f"{_INDENT}fix: {one.fix}"


def _declared(declared: DeclaredValues | None) -> Iterator[str]:
    if declared is None:
        yield "nothing: no file of the stack has the key"
        return
    where = declared.source
    place = spell_place(where) if where else "in the manifest"
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
        yield ", ".join(_of_revision(one, is_scheduled=is_scheduled))


def _of_revision(one: ObservedRevision, *, is_scheduled: bool) -> Iterator[str]:
    yield f"r{one.revision} {one.name} ({one.id}): {one.phase}"
    if is_scheduled and one.created_at:
        yield f"created {one.created_at}"
    if one.ran_s:
        yield f"ran {format_duration(round(one.ran_s))} on {one.nodes} node{'' if one.nodes == 1 else 's'}"
    same = {True: " (as declared)", False: " (differs from the declaration)", None: ""}
    yield f"digest {one.digest}{same[one.as_declared]}"
    words = {"stopped by us": one.stopped, "protected": one.protected, "aged out": one.aged_out}
    yield from (word for word, is_so in words.items() if is_so)


def _rules(explanation: Explanation) -> Iterator[str]:
    width = max((len(rule.name) for rule in explanation.rules), default=0)
    for rule in explanation.rules:
        yield _rule(rule, width)
    if explanation.chosen is not None:
        becomes = explanation.actions[0]
        yield f"It chose {explanation.chosen.value}; {_changed_by(becomes)} makes it {becomes.action.value}."


def _rule(rule: RuleCheck, width: int) -> str:
    return f"{'yes' if rule.applies else 'no ':<3}  {rule.name:<{width}}  {rule.when}"


def _changed_by(action: PlannedAction) -> str:
    if action.reason in BLOCKERS:
        return ", ".join(action.blocked_by)
    return "`needs`" if action.reason.value.startswith("needs") else "what could not be read"


def _drift(explanation: Explanation) -> Iterator[str]:
    for one in explanation.drift:
        yield f"{one.class_.value}: {one.detail}{since_and_cost(one)}"
        if one.fix:
            yield f"  fix: {one.fix}"
    yield from (f"pending: {one.detail}" for one in explanation.pending)
