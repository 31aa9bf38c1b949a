"""What a shell offers where a key or a target is wanted: the names in the manifest."""

from __future__ import annotations

from pathlib import Path

import click
from click.shell_completion import CompletionItem


def target_names(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """The targets of the stack."""
    return [CompletionItem(name) for name in _names(ctx, "targets") if name.startswith(incomplete)]


def keys(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Keys of the stack; of several with commas between them the last one is completed."""
    before, comma, last = incomplete.rpartition(",")
    return [CompletionItem(before + comma + name) for name in _names(ctx, "jobs") if name.startswith(last)]


def keys_and_paths(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Keys of the stack; where none fits, files and directories."""
    return keys(ctx, param, incomplete) or [CompletionItem(incomplete, type="file")]


def _names(ctx: click.Context, section: str) -> list[str]:
    from reconciler.core.diagnostic import ReconcilerError
    from reconciler.manifests.files import find_stack

    paths = [Path(path) for path in ctx.params.get("paths") or ()]
    try:
        documents = find_stack(paths).documents
    except (ReconcilerError, OSError):  # nothing is said while somebody types
        return []
    found = [document.tree.get(section) for document in documents]
    return sorted({str(name) for names in found if isinstance(names, dict) for name in names})
