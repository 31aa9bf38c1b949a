"""What a saved plan makes its reader look up: the record store, and the values that are not in the file."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from reconciler.core.expression import Reference, parts_of
from reconciler.core.stack import VariableSource
from reconciler.decide.plan import Plan
from reconciler.decide.saved_plan import SavedOptions
from reconciler.text import printable


def render_sources(plan: Plan, options: SavedOptions, records: str | None) -> str:
    """Say where applying the plan connects to and what it reads; "" where that is nothing.

    `records` is the address of the store as it may be shown, None if the store lies beside the root file.
    """
    values = [*_values(plan, options)]
    profile = options.target.profile
    if records is None and not values and not profile:
        return ""
    lines = [f"Root: {options.root}", f"Records: {records or 'beside the root file'}"]
    if profile:
        lines.append(f"Credentials: profile {profile}")
    if values:
        lines += ["Values to look up:", *(f"  {value}" for value in values)]
    return "".join(printable(line) + "\n" for line in lines)


def _values(plan: Plan, options: SavedOptions) -> Iterator[str]:
    """Every value that is looked up, each once: those that a store's address names, then the variables."""
    bodies = [action.desired for action in plan.to_execute]
    named = list(dict.fromkeys(_references([options.records or "", *_texts(bodies)])))
    for reference in named:
        if reference.variable is None:
            yield reference.text
    variables = [reference.variable for reference in named if reference.variable is not None]
    for name in sorted({*options.sources, *variables}):
        yield f"${{var.{name}}} {_place(options.sources.get(name))}"


def _place(source: VariableSource | None) -> str:
    if source is None:
        return "from --var or --var-file"
    if source.env is not None:
        return f"from the environment variable {source.env}"
    if source.file is not None:
        return f"from the file {source.file}"
    if source.text is not None:
        return f"from the text {source.text}"
    return "from --var" if source.given else "from --var or --var-file (it was in the manifest)"


def _references(texts: Iterable[str]) -> Iterator[Reference]:
    for text in texts:
        yield from (part for part in parts_of(text) if isinstance(part, Reference))


def _texts(tree: object) -> Iterator[str]:
    if isinstance(tree, str):
        if "${" in tree:
            yield tree
    elif isinstance(tree, dict | list | tuple):
        for value in tree.values() if isinstance(tree, dict) else tree:
            yield from _texts(value)
