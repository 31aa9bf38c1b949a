"""A fleet: the results of one command in many stacks, and the report on them.

Source: docs/operations/fleets.md.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from reconciler.core.record import Scope
from reconciler.core.values import FORMAT_VERSION
from reconciler.decide.outcome import spell_counts
from reconciler.decide.plan import ACTIONS, Action, last_line
from reconciler.errors import Diagnostic, ExitCode, first_of
from reconciler.text import format_count


@dataclass(frozen=True)
class StackResult:
    """The result of a command in one stack. It travels between processes, and holds no secret.

    `root` is the directory of the stack, relative to PATH. `parts` are the outputs for the stack by format;
    if there is none, `errors` say why, with a `traceback` for an internal error. `messages`, each with its
    level of `-v`, and `problems` go to stderr. `summary` has the counts behind `last_line`. `scopes` are what
    the stack would apply to. `unmatched` are named keys that the stack lacks, `undeclared` given variables
    that it does not declare; None if unknown. `has_notes` says that there is more to show than `last_line`,
    even without changes. `approved` names what an apply may do. `ended_at_s` is in
    seconds since 1970.
    """

    root: str
    stack: str | None
    exit_code: ExitCode
    errors: tuple[Diagnostic, ...] = ()
    traceback: str = ""
    target: str = ""
    summary: Mapping[str, int] = field(default_factory=dict)
    last_line: str = ""
    has_changes: bool = False
    has_notes: bool = False
    parts: Mapping[str, str] = field(default_factory=dict)
    messages: tuple[tuple[int, str], ...] = ()
    problems: tuple[Diagnostic, ...] = ()
    scopes: tuple[Scope, ...] = ()
    unmatched: frozenset[str] | None = None
    undeclared: frozenset[str] | None = None
    approved: str = ""
    ended_at_s: float = 0.0
    duration_s: float = 0.0
    notifications_failed: int = 0

    @property
    def has_actions(self) -> bool:
        """Whether its plan has something to execute."""
        return any(self.summary.get(action) for action, traits in ACTIONS.items() if traits.is_executed)

    @property
    def is_quiet(self) -> bool:
        """Whether there is nothing to show."""
        is_worth_showing = self.errors or self.has_changes or self.has_notes
        return not is_worth_showing and self.exit_code is ExitCode.DONE


#: Label for the number of changed stacks, for commands that look for changes.
_FOUND = {"plan": "with changes", "apply": "with changes", "drift": "with drift"}


@dataclass(frozen=True)
class FleetReport:
    """The results of a command for all stacks, sorted by root; `version` is that of reconciler."""

    command: str
    results: tuple[StackResult, ...]
    version: str = ""

    @classmethod
    def of(cls, command: str, results: Iterable[StackResult], version: str = "") -> FleetReport:
        """Sort the results by root; stacks that own the same jobs become errors."""
        in_order = sorted(results, key=lambda result: result.root)
        return cls(command, tuple(_without_shared_scopes(in_order)), version)

    @property
    def exit_code(self) -> ExitCode:
        """The exit code of all stacks that comes first in docs/reference/exit-codes.md."""
        return first_of(result.exit_code for result in self.results)

    @property
    def failed(self) -> tuple[StackResult, ...]:
        return tuple(result for result in self.results if result.errors)

    @property
    def changed(self) -> tuple[StackResult, ...]:
        if self.command in ("status", "history"):  # these report no changes
            return ()
        return tuple(result for result in self.results if result.has_changes)

    @property
    def counts(self) -> dict[str, int]:
        """The sums of the summaries, in the order of the documents."""
        sums: Counter[str] = Counter()
        for result in self.results:
            sums.update(result.summary)
        return dict(sums)

    @property
    def last_line(self) -> str:
        """The last line of the text, with the totals."""
        parts, counts = [format_count(len(self.results), "stack")], self.counts
        if label := _FOUND.get(self.command):
            parts.append(f"{len(self.changed)} {label}")
        if self.failed:
            parts.append(f"{len(self.failed)} failed")
        if self.command == "plan" or Action.CREATE in counts:  # worded as for one stack
            counted = last_line({action: counts.get(action, 0) for action in Action}).partition(": ")[2]
        elif self.command == "apply":
            counted = f"{spell_counts(counts) or 'nothing to do'}."
        else:
            words = {name.replace("_", " "): number for name, number in counts.items() if number}
            listed = (f"{number} {n.removesuffix('s') if number == 1 else n}" for n, number in words.items())
            counted = f"{', '.join(listed) or 'none'}."
        return f"Fleet: {', '.join(parts)}; {counted}"

    def document(self) -> dict[str, Any]:
        """Return the report as plain JSON data; the documents are null, since they are in `parts`."""
        codes = Counter(str(int(result.exit_code)) for result in self.results)
        return {
            "format_version": FORMAT_VERSION,
            "stacks": [_entry(result) for result in self.results],
            "summary": {
                "stacks": len(self.results),
                "changed": len(self.changed),
                "failed": len(self.failed),
                "exit_codes": {code: codes[code] for code in sorted(codes, key=int)},
                "counts": self.counts,
            },
        }


def _entry(result: StackResult) -> dict[str, Any]:
    head = {"root": result.root, "stack": result.stack, "exit_code": int(result.exit_code)}
    if not result.errors:
        return {**head, "document": None}
    problems = [problem.document() for problem in result.errors]
    return {**head, "error": {"message": result.errors[0].message, "diagnostics": problems}}


def _without_shared_scopes(results: list[StackResult]) -> Iterable[StackResult]:
    """Turn the result of each stack that owns the same jobs as another one into an error."""
    roots: dict[Scope, list[str]] = defaultdict(list)
    for result in results:
        for scope in set(result.scopes):
            if not scope.is_local:
                roots[scope].append(result.root)
    for result in results:
        shared = [scope for scope in result.scopes if len(roots[scope]) > 1]
        if not shared:
            yield result
            continue
        scope, others = shared[0], ", ".join(root for root in roots[shared[0]] if root != result.root)
        problem = Diagnostic(
            "two stacks own the same jobs",
            f"{result.root} and {others} both declare stack {scope.stack} on {scope.place}: "
            "each would terminate the jobs of the other",
            "give one of them another name, or another target",
        )
        errors = (problem,)
        yield replace(
            result, exit_code=ExitCode.INVALID, errors=errors, summary={}, has_changes=False, parts={}
        )
