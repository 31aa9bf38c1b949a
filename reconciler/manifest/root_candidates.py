"""Where no root file is found: each file that could have been it, and why it is none."""

from __future__ import annotations

from collections.abc import Sequence
from difflib import get_close_matches

from reconciler.errors import Diagnostic, Location
from reconciler.manifest.positions import diagnose
from reconciler.manifest.yaml import Document

#: So many candidates are shown; how many more there are is said.
MOST_SHOWN = 20
_WHAT = "no root file"
_FIX = "add a line such as stack: my-stack to one file"


def no_root_file(
    where: Sequence[str], candidates: Sequence[Document], more: int, direction: str = "in, above or below"
) -> list[Diagnostic]:
    """Say that no file has `stack:`, of each candidate, in file order; `more` are those that are not shown.

    `where` are the paths that were searched, in that `direction`.
    """
    places = ", ".join(where)
    if not candidates:
        why = f"there is no manifest file {direction} {places}"
        return [Diagnostic(_WHAT, why, "reconciler init", Location(where[0], 1, 1))]
    problems = [_reason(document) for document in candidates]
    if more:
        why = f"{more} more files {direction} {places} have no stack: either"
        problems.append(Diagnostic(_WHAT, why, location=Location(where[0], 1, 1)))
    if not any(problem.fix for problem in problems):
        problems[0] = problems[0]._replace(fix=_FIX)
    return problems


def _reason(document: Document) -> Diagnostic:
    begin = Location(document.file, 1, 1)
    if document.is_broken:
        cause = next(iter(document.problems), None)
        why = f"it cannot be read: {cause.what}" if cause else "it cannot be read"
        return Diagnostic(_WHAT, why, location=(cause and cause.location) or begin)
    if not document.tree:
        return Diagnostic(_WHAT, "it is empty", location=begin)
    if not document.shows_lines:
        return Diagnostic(_WHAT, "it has no key of a manifest", location=begin)
    names = {name.lower(): name for name in document.tree}
    if near := get_close_matches("stack", names, n=1, cutoff=0.75):
        name = names[near[0]]
        fix = f'did you mean "stack" instead of "{name}"?'
        return diagnose(document, (name,), _WHAT, "it has no stack:", fix, at_key=True)
    return Diagnostic(_WHAT, "it has no stack:", location=begin)
