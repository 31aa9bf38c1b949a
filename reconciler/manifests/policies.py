"""The policies of a stack: what its files say under `policies`, checked and compiled."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from reconciler.core.declared.policy import Policy, PolicyEntry
from reconciler.core.diagnostic import Diagnostic, Location
from reconciler.core.policies.expression import NAMES, Expression, InvalidExpression
from reconciler.manifests.diagnostics.problems import Origin, validated
from reconciler.manifests.diagnostics.suggestions import did_you_mean
from reconciler.manifests.merge import MergedItem
from reconciler.manifests.yaml.positions import diagnose, diagnose_inside, location_of_key


def read_policies(entries: Iterable[MergedItem]) -> tuple[tuple[Policy, ...], list[Diagnostic]]:
    """Return the policies that all files say together, in file order, and what is wrong with them."""
    problems: list[Diagnostic] = []
    policies: dict[str, Policy] = {}
    places: dict[str, Location] = {}
    for entry in entries:
        origin = Origin(((entry.document, entry.steps),))
        read, found = validated(PolicyEntry, entry.value, origin)
        problems += found
        if read is None:
            continue
        problems += _compile_problems(entry, read)
        if read.name in places:
            why = f'the policy "{read.name}" is already defined at {places[read.name]}'
            steps = (*entry.steps, "name")
            problems.append(diagnose(entry.document, steps, "duplicate policy", why, "rename one of them"))
            continue
        places[read.name] = location_of_key(entry.document, (*entry.steps, "name"))
        place = location_of_key(entry.document, (*entry.steps, read.effect.value))
        policies[read.name] = Policy.of(read, place)
    return tuple(policies.values()), problems


def _compile_problems(entry: MergedItem, read: PolicyEntry) -> Iterator[Diagnostic]:
    text = Policy.of(read).expression
    try:
        Expression(text)
    except InvalidExpression as error:
        unknown = error.unknown_name
        yield diagnose_inside(
            entry.document,
            (*entry.steps, read.effect.value),
            (error.line, error.column),
            "invalid expression",
            error.why,
            did_you_mean(unknown, NAMES) if unknown else None,
        )
