"""A fleet: what a command found in each of many stacks, and the one report of it.

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
    """What a command found in one stack; it travels between processes, and holds no secret.

    `root` is the directory of the stack, relative to PATH. `parts` are what the command prints for the
    stack, by the names of the formats that were asked for; `errors` say why there is none, and
    `traceback` is that of an internal error. `messages`, each of a level of `-v`, and `problems` are said on
    stderr. `summary` counts what the command counts, and `last_line`
    says so. `scopes` are what the stack would apply to. `unmatched` are keys that were named and that the
    stack does not have, `undeclared` variables that were given and that it does not declare; both None
    where that is not known. `approved` names what an apply is to be allowed to do. The run ended at
    `ended_at_s`, in seconds since 1970.
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
        """Whether its plan has something that is carried out."""
        return any(self.summary.get(one) for one, traits in ACTIONS.items() if traits.is_executed)

    @property
    def is_quiet(self) -> bool:
        """Whether there is nothing that a person has to see."""
        return not self.errors and not self.has_changes and self.exit_code is ExitCode.DONE


#: How the stacks are counted in which a command found something, where it looks for changes.
_FOUND = {"plan": "with changes", "apply": "with changes", "drift": "with drift"}


@dataclass(frozen=True)
class FleetReport:
    """The results of a command for all stacks, sorted by root; `version` is that of reconciler."""

    command: str
    results: tuple[StackResult, ...]
    version: str = ""

    @classmethod
    def of(cls, command: str, results: Iterable[StackResult], version: str = "") -> FleetReport:
        """Put results into the order of their roots; two stacks that own the same jobs are errors."""
        in_order = sorted(results, key=lambda result: result.root)
        return cls(command, tuple(_without_shared_scopes(in_order)), version)

    @property
    def exit_code(self) -> ExitCode:
        """The first by the order of docs/reference/exit-codes.md, over all stacks."""
        return first_of(result.exit_code for result in self.results)

    @property
    def failed(self) -> tuple[StackResult, ...]:
        return tuple(result for result in self.results if result.errors)

    @property
    def changed(self) -> tuple[StackResult, ...]:
        if self.command in ("status", "history"):  # what they have to show is no change
            return ()
        return tuple(result for result in self.results if result.has_changes)

    @property
    def counts(self) -> dict[str, int]:
        """The sums of the summaries, in the order of the documents'."""
        sums: Counter[str] = Counter()
        for result in self.results:
            sums.update(result.summary)
        return dict(sums)

    @property
    def last_line(self) -> str:
        """The last line of the text: the total."""
        words, counts = [format_count(len(self.results), "stack")], self.counts
        if found := _FOUND.get(self.command):
            words.append(f"{len(self.changed)} {found}")
        if self.failed:
            words.append(f"{len(self.failed)} failed")
        if self.command == "plan" or Action.CREATE in counts:  # what was counted is worded as for one stack
            counted = last_line({action: counts.get(action, 0) for action in Action}).partition(": ")[2]
        elif self.command == "apply":
            counted = f"{spell_counts(counts) or 'nothing to do'}."
        else:
            spelt = {name.replace("_", " "): number for name, number in counts.items() if number}
            listed = (f"{number} {n.removesuffix('s') if number == 1 else n}" for n, number in spelt.items())
            counted = f"{', '.join(listed) or 'none'}."
        return f"Fleet: {', '.join(words)}; {counted}"

    def document(self) -> dict[str, Any]:
        """The report as plain JSON data, with null for the documents: their texts are parts of the stacks."""
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
    """The same results, with an error for each stack that owns the same jobs as another one."""
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
