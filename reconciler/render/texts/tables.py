"""The tables that decide, as text: rules, legal transitions, and what a change of each field means."""

from __future__ import annotations

from reconciler.core.canonical import walk_rules
from reconciler.core.manifest_keys import LanguageKey, format_field, keys_below, meaning, yaml_text
from reconciler.core.phase import RULES, Operation, Phase
from reconciler.decide import rules as decide
from reconciler.render.layout import fit, table
from reconciler.render.style import PLAIN, Style


def render_rules(style: Style = PLAIN) -> str:
    """Print the rules of the decision in their order: docs/semantics.md, "Decisions"."""
    rows = [
        [str(number), rule.name, ", ".join(rule.actions), rule.when]
        for number, rule in enumerate(decide.RULES, start=1)
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
            ", ".join(p.value for p in Phase if p in RULES[phase].expected_next),
            *("yes" if RULES[phase].verdicts[operation] else "no" for operation in Operation),
        ]
        for phase in Phase
    ]
    notes = ["", "Why not, and when it becomes legal:"]
    for operation in Operation:
        verdicts: dict[tuple[str, str], list[str]] = {}
        for phase in Phase:
            verdict = RULES[phase].verdicts[operation]
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
