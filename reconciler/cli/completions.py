"""What a shell offers where a key, a target, a variable or a guard is wanted: the names in the manifest.

A manifest that is broken offers what can be read of it, and nothing is ever said: somebody is typing.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from click.shell_completion import CompletionItem

if TYPE_CHECKING:
    from reconciler.manifests.yaml.document import Document


def target_names(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """The targets of the stack."""
    return _starting_with(incomplete, _names(_documents(ctx), "targets"))


def variable_names(ctx: click.Context, incomplete: str) -> list[CompletionItem]:
    """The variables of the stack, each with the = behind which its value stands."""
    if "=" in incomplete:
        return []
    return _starting_with(incomplete, (f"{name}=" for name in _names(_documents(ctx), "variables")))


def guards(ctx: click.Context, incomplete: str) -> list[CompletionItem]:
    """The guards, and lost-work for each key."""
    from reconciler.decide.plan import Guard

    before, equals, key = incomplete.partition("=")
    if equals and before == Guard.LOST_WORK:
        return _starting_with(key, _keys(ctx), prefix=f"{Guard.LOST_WORK}=")
    return _starting_with(incomplete, Guard)


def keys(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Keys of the stack; of several with commas between them the last one is completed."""
    before, comma, last = incomplete.rpartition(",")
    return _starting_with(last, _keys(ctx), prefix=before + comma)


def keys_and_paths(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Keys of the stack; where none fits, files and directories."""
    return keys(ctx, param, incomplete) or [CompletionItem(incomplete, type="file")]


def topics(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """What `explain` explains: its tables, and the keys of the language."""
    from reconciler.core.manifest_keys import language_keys

    return _starting_with(
        incomplete, ("states", "rules", "fields", "origin", *(key.path for key in language_keys()))
    )


def words_of_topic(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """What follows a topic of `explain`: keys behind `origin`, and nothing behind the others."""
    return keys_and_paths(ctx, param, incomplete) if ctx.params.get("topic") == "origin" else []


def _starting_with(incomplete: str, names: Iterable[str], prefix: str = "") -> list[CompletionItem]:
    return [CompletionItem(prefix + name) for name in names if name.startswith(incomplete)]


def _paths(ctx: click.Context) -> list[Path]:
    """The PATHs that stand on the line so far: what exists of its words.

    Before an option that has no value yet click has not made arguments of them.
    """
    words: list[Any] = [*(ctx.params.get("paths") or ()), *(ctx.params.get("words") or ()), *ctx.args]
    return [path for path in map(Path, words) if path.exists()]


def _documents(ctx: click.Context) -> Sequence[Document]:
    from reconciler.manifests.sources.files import find_stack

    try:
        return find_stack(_paths(ctx)).documents
    except Exception:  # whatever is wrong is said when the command is run
        return ()


def _keys(ctx: click.Context) -> Sequence[str]:
    """The keys of the stack's jobs, the members of a sweep in the place of its entry."""
    documents = _documents(ctx)
    entries = [entries for document in documents if isinstance(entries := document.tree.get("jobs"), dict)]
    if any(isinstance(entry, dict) and "matrix" in entry for one in entries for entry in one.values()):
        from reconciler.manifests.load import load

        with suppress(Exception):  # the entries are a help too
            return sorted(load(_paths(ctx), environ=os.environ, offline=True).stack.whole)
    return _names(documents, "jobs")


def _names(documents: Sequence[Document], section: str) -> list[str]:
    found = [document.tree.get(section) for document in documents]
    return sorted({str(name) for names in found if isinstance(names, dict) for name in names})
