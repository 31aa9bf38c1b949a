"""The rules by which drift is ignored: what the files of a stack say under `drift`, expanded and checked."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from reconciler.core.drift_rule import DriftSettings, IgnoreRule
from reconciler.errors import Diagnostic
from reconciler.manifest.expressions import Expander, problems_in
from reconciler.manifest.positions import diagnose, location_of_key
from reconciler.manifest.problems import Origin, validated
from reconciler.manifest.unexpanded import expand_partly
from reconciler.manifest.yaml import Document

SECTION = "drift"


def read_ignore_rules(
    documents: Iterable[Document], expander: Expander
) -> tuple[tuple[IgnoreRule, ...], list[Diagnostic]]:
    """Return the rules that all files say together, in file order, and what is wrong with them."""
    problems: list[Diagnostic] = []
    rules: list[IgnoreRule] = []
    for document in documents:
        value = document.tree[SECTION]
        problems += _not_expanded(document, value, expander)
        section, found = validated(
            DriftSettings, expand_partly(value, expander), Origin(((document, (SECTION,)),))
        )
        problems += found
        for position, entry in enumerate(section.ignore if section else ()):
            place = location_of_key(document, (SECTION, "ignore", position))
            rules.append(IgnoreRule.of(entry, place))
    return tuple(rules), problems


def _not_expanded(document: Document, value: Any, expander: Expander) -> Iterator[Diagnostic]:
    for steps, problem in problems_in(value, expander, (SECTION,)):
        yield diagnose(document, steps, problem.what, problem.why, problem.fix, text=problem.text)
