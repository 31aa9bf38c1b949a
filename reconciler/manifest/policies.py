"""The policies of a stack: what its files say under `policies`, checked and compiled."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from reconciler.core.policy import Policy, PolicyEntry
from reconciler.core.policy_expression import NAMES
from reconciler.errors import Diagnostic, Location
from reconciler.expressions.evaluator import find_invalid
from reconciler.manifest.merge import MergedItem
from reconciler.manifest.positions import diagnose, diagnose_inside, location_of_key
from reconciler.manifest.problems import Origin, validated
from reconciler.manifest.suggestions import did_you_mean


def read_policies(entries: Iterable[MergedItem]) -> tuple[tuple[Policy, ...], list[Diagnostic]]:
    """Return the policies that all files say together, in file order, and what is wrong with them."""
    problems: list[Diagnostic] = []
    policies: dict[str, Policy] = {}
    places: dict[str, Location] = {}
    valid: list[tuple[MergedItem, PolicyEntry]] = []
    for entry in entries:
        origin = Origin(((entry.document, entry.steps),))
        read, found = validated(PolicyEntry, entry.value, origin)
        problems += found
        if read is None:
            continue
        valid.append((entry, read))
        if read.name in places:
            why = f'the policy "{read.name}" is already defined at {places[read.name]}'
            steps = (*entry.steps, "name")
            problems.append(diagnose(entry.document, steps, "duplicate policy", why, "rename one of them"))
            continue
        places[read.name] = location_of_key(entry.document, (*entry.steps, "name"))
        place = location_of_key(entry.document, (*entry.steps, read.effect.value))
        policies[read.name] = Policy.of(read, place)
    return tuple(policies.values()), [*problems, *_invalid_expressions(valid)]


def _invalid_expressions(valid: Sequence[tuple[MergedItem, PolicyEntry]]) -> Iterator[Diagnostic]:
    """What does not compile. Nothing is started for a stack without policies."""
    if not valid:
        return
    found = find_invalid([Policy.of(read).expression for _, read in valid])
    for (entry, read), problem in zip(valid, found, strict=True):
        if problem is not None:
            unknown = problem.unknown_name
            yield diagnose_inside(
                entry.document,
                (*entry.steps, read.effect.value),
                (problem.line, problem.column),
                "invalid expression",
                problem.why,
                did_you_mean(unknown, NAMES) if unknown else None,
            )
