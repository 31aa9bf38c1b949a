"""What can be said of a stack whose manifest is invalid: its name, its target, and which files it has."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from reconciler.errors import ManifestInvalid
from reconciler.manifest.files import StackFiles, find_stack
from reconciler.manifest.merge import merge_files


class Outline(NamedTuple):
    """The name of a stack and of its default target, None where they cannot be read, and its files.

    The names of the files are those of messages.
    """

    stack: str | None = None
    target: str | None = None
    files: tuple[str, ...] = ()


def outline(paths: Sequence[Path] | StackFiles, var_files: Sequence[Path] = ()) -> Outline:
    """Read the files that PATH stands for, if they were not found already, and check nothing.

    Raises:
        WrongUsage: a path does not exist, or there are several stacks to choose from.
    """
    try:
        found = paths if isinstance(paths, StackFiles) else find_stack(paths, var_files)
    except ManifestInvalid:
        return Outline()
    merged = merge_files(found.documents)
    target = merged.target or (next(iter(merged.targets)) if len(merged.targets) == 1 else None)
    return Outline(merged.stack or None, target, tuple(one.file for one in found.documents))
