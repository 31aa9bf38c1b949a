"""Why a key gets its action, where its values come from, and the tables that decide."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Protocol

from reconciler.core.canonical import walk_rules
from reconciler.core.manifest_keys import LanguageKey, format_field, keys_below, meaning, yaml_text
from reconciler.core.phase import RULES as PHASE_RULES
from reconciler.core.phase import Operation, Phase
from reconciler.core.policy import Effect
from reconciler.core.secret import show
from reconciler.decide.guards import REFUSES_THE_PLAN
from reconciler.decide.plan import BLOCKERS, PlannedAction, PreflightFinding
from reconciler.decide.rules import RULES
from reconciler.render.drift import since_and_cost
from reconciler.render.layout import fit, table
from reconciler.render.lines import NOTHING, render_change, render_head, render_warnings, spell_place
from reconciler.render.style import PLAIN, Style
from reconciler.text import format_duration, printable

if TYPE_CHECKING:
    from reconciler.decide.explanation import DeclaredValues, Explanation, ObservedRevision, RuleCheck
    from reconciler.decide.objections import GuardVerdict, PolicyVerdict
    from reconciler.decide.plan import Guard
    from reconciler.errors import Location

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


# ── where the values of a job come from ─────────────────────────────────────────────────────────────


class OriginRow(Protocol):
    """A value of a job, the place of the text that gave it, and that text where it is an expression."""

    @property
    def path(self) -> str:
        """Where the value stands in the job."""

    @property
    def value(self) -> object:
        """The value, a secret included."""

    @property
    def location(self) -> Location | None:
        """File, line and column."""

    @property
    def expression(self) -> str | None:
        """The text as it was written."""

    @property
    def sources(self) -> tuple[tuple[str, str], ...]:
        """The expressions in it, each with what gave it its value."""


def render_origins(origins: Sequence[OriginRow], style: Style = PLAIN) -> str:
    """One line a value, in the order of the file and line that gave it; secrets by their names."""
    rows = [_row(origin, style) for origin in origins]
    return "\n".join(table([("FIELD", "VALUE", "FROM", "WRITTEN AS"), *rows], style)) + "\n" if rows else ""


def _row(origin: OriginRow, style: Style) -> tuple[str, ...]:
    place = origin.location
    where = NOTHING if place is None else printable(f"{place.file}:{place.line}")
    value = json.dumps(show(origin.value), ensure_ascii=False)
    path, value, written = (printable(text) or NOTHING for text in (origin.path, value, _written(origin)))
    return path, value, style.link(where, place), written


def _written(origin: OriginRow) -> str:
    """The text as it was written, with what gave its expressions their values."""
    sources = ", ".join(f"{name}: {source}" for name, source in origin.sources)
    return f"{origin.expression} ({sources})" if sources else origin.expression or ""


# ── the tables that decide ──────────────────────────────────────────────────────────────────────────


def render_rules(style: Style = PLAIN) -> str:
    """Print the rules of the decision in their order: docs/semantics.md, "Decisions"."""
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
    """Print what is legal in each phase, from the table that decides: docs/semantics.md, "Phases"."""
    head = ["phase", "expected next", *(operation.value for operation in Operation)]
    rows = [
        [
            phase.value,
            ", ".join(p.value for p in Phase if p in PHASE_RULES[phase].expected_next),
            *("yes" if PHASE_RULES[phase].verdicts[operation] else "no" for operation in Operation),
        ]
        for phase in Phase
    ]
    notes = ["", "Why not, and when it becomes legal:"]
    for operation in Operation:
        verdicts: dict[tuple[str, str], list[str]] = {}
        for phase in Phase:
            verdict = PHASE_RULES[phase].verdicts[operation]
            if not verdict:
                verdicts.setdefault((verdict.why, verdict.legal_when), []).append(phase.value)
        for (why, legal_when), phases in verdicts.items():
            notes.append(f"  {operation.value}, {', '.join(phases)}: {why}; legal {legal_when}")
    notes.append("  A phase that is not in the table is never acted on (blocked).")
    return _table([head, *rows], style) + fit("\n".join(notes) + "\n", style)


def render_fields(style: Style = PLAIN) -> str:
    """Print what an edit of each field of a job means."""
    rows = [["field", "an edit means", "description"]]
    rows += [[format_field(path), meaning(path, rule), rule.description] for path, rule in walk_rules()]
    return _table(rows, style)


def render_key(key: LanguageKey, style: Style = PLAIN) -> str:
    """Print what is known of one key of the language, and the keys below it."""
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
