"""The tables that decide, as text: rules, legal transitions, and what a change of each field means."""

from __future__ import annotations

from difflib import get_close_matches

from reconciler.core.declared.canonical import FieldRule, mutable_paths, rule_at, walk_rules
from reconciler.core.observed.phase import RULES, Operation, Phase
from reconciler.core.planning import decide


def render_rules() -> str:
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
    return _table([["#", "rule", "action", "when"], *rows]) + "\n" + notes


def render_states() -> str:
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
    return _table([head, *rows]) + "\n".join(notes) + "\n"


def render_fields(only: str | None = None) -> str | None:
    """Print what an edit of each field means; of one field and those below it; None if there is no such."""
    rows = [["field", "an edit means", "description"]]
    for path, rule in walk_rules():
        name = format_field(path)
        if only is None or name == only or name.startswith((f"{only}.", f"{only}[")):
            rows.append([name, meaning(path, rule), rule.description])
    return _table(rows) if len(rows) > 1 else None


def nearest_field(name: str) -> str | None:
    """The field whose name is nearest to a misspelt one."""
    found = get_close_matches(name, [format_field(path) for path, _ in walk_rules()], n=1)
    return found[0] if found else None


def format_field(path: tuple[str, ...]) -> str:
    """`algorithm.inputs[].name`."""
    return ".".join(path).replace(".[]", "[]")


def meaning(path: tuple[str, ...], rule: FieldRule) -> str:
    """What an edit of the field means for a job that exists."""
    above = [path[:length] for length in range(1, len(path) + 1)]
    update = next((rule_at(p).update for p in above if p in mutable_paths()), None)
    if update is None:
        below = any(path == p[: len(path)] for p in mutable_paths())
        return "see its members" if below else "new job"
    clouds = ", ".join(sorted(update.clouds))
    when = "" if update.operation is Operation.UPDATE_DESCRIPTION else ", while Pending"
    return f"update ({clouds}{when})"


def _table(rows: list[list[str]]) -> str:
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    lines = ["  ".join(cell.ljust(w) for cell, w in zip(row, widths, strict=True)).rstrip() for row in rows]
    lines.insert(1, "  ".join("-" * width for width in widths))
    return "\n".join(lines) + "\n"
