"""Trees in which some expressions have no value: these texts are marked, and nothing is said of them."""

from __future__ import annotations

from typing import Any

from reconciler.core.expression import UnresolvedText
from reconciler.manifest.expression_problems import NotExpanded
from reconciler.manifest.expressions import Expander
from reconciler.manifest.problems import Unexpanded

#: The key of no job: it stands for itself where `defaults` are looked at without a job.
ANY_KEY = "${job.key}"


def mentions_job(tree: Any) -> bool:
    """Whether an expression in it may have another value in another job."""
    if isinstance(tree, dict):
        return any(map(mentions_job, tree.values()))
    if isinstance(tree, list):
        return any(map(mentions_job, tree))
    return isinstance(tree, str) and "${" in tree and ("job." in tree or "matrix." in tree)


def expand_partly(tree: Any, expander: Expander) -> Any:
    """The tree with those expressions replaced that have a value; the other texts are marked."""
    if isinstance(tree, dict):
        return {key: expand_partly(value, expander) for key, value in tree.items()}
    if isinstance(tree, list):
        return [expand_partly(value, expander) for value in tree]
    try:
        return expander.tree(tree)
    except NotExpanded:
        return Unexpanded(tree)


def mark_job_key(tree: Any) -> Any:
    """The tree with those texts marked that depend on the job: nothing can be said of them."""
    if isinstance(tree, dict):
        return {key: mark_job_key(value) for key, value in tree.items()}
    if isinstance(tree, list):
        return [mark_job_key(value) for value in tree]
    return Unexpanded(tree) if type(tree) is str and ANY_KEY in tree else tree


def mark_axes(tree: Any) -> Any:
    """The tree with those texts marked that depend on the combination of a sweep."""
    if isinstance(tree, dict):
        return {key: mark_axes(value) for key, value in tree.items()}
    if isinstance(tree, list):
        return [mark_axes(value) for value in tree]
    return Unexpanded(tree) if isinstance(tree, str) and "${matrix." in tree else tree


def mark_outputs(tree: Any) -> Any:
    """The tree with those texts marked that name outputs of other jobs."""
    if isinstance(tree, dict):
        return {key: mark_outputs(value) for key, value in tree.items()}
    if isinstance(tree, list):
        return [mark_outputs(value) for value in tree]
    return Unexpanded(tree) if isinstance(tree, UnresolvedText) else tree
