"""The stacks of a tree: every directory with a root file, the ones inside others included."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path

from reconciler.errors import Diagnostic, Location, ManifestInvalid, WrongUsage
from reconciler.manifest.files import FileReader, existing_path
from reconciler.manifest.recognition import plain_stack_name
from reconciler.manifest.root_candidates import MOST_SHOWN, no_root_file


@dataclass(frozen=True, slots=True)
class StackRoot:
    """The directory of a stack, absolute, and the name that its root file says; None where it says none.

    `problem` is why nobody knows which stacks lie in the directory.
    """

    directory: Path
    name: str | None = None
    problem: Diagnostic | None = None


def find_roots(paths: Sequence[Path], not_manifests: Sequence[Path] = ()) -> list[StackRoot]:
    """Find every stack in and below the directories, each once, sorted by directory.

    A directory that cannot be listed is one of them, with its problem: there may be a stack in it.

    Raises:
        WrongUsage: a path does not exist, or is no directory.
        ManifestInvalid: there is no root file; the candidates are named.
    """
    tops = _directories(paths or [Path()])
    reader = FileReader(frozenset(path.resolve() for path in not_manifests), Path.cwd())
    roots: dict[Path, StackRoot] = {}
    others: set[Path] = set()
    for directory, found in chain.from_iterable(map(reader.below, tops)):
        if root := _root_in(directory, found, reader):
            roots[directory] = root
        others.update(found)
    for directory, error in reader.unlisted.items():
        reason = error.strerror or type(error).__name__
        problem = Diagnostic("unreadable directory", reason, location=Location(reader.shown(directory), 1, 1))
        roots[directory] = StackRoot(directory, problem=problem)
    if not roots:
        raise ManifestInvalid(*_no_stack(tops, others, reader))
    return sorted(roots.values(), key=lambda root: root.directory.parts)


def _directories(paths: Sequence[Path]) -> list[Path]:
    tops = [existing_path(path) for path in paths]
    if files := [path for path, top in zip(paths, tops, strict=True) if not top.is_dir()]:
        why = "a fleet is all stacks in and below a directory"
        raise WrongUsage(*(Diagnostic("not a directory", f"{str(path)!r}: {why}") for path in files))
    return tops


def _root_in(directory: Path, files: Sequence[Path], reader: FileReader) -> StackRoot | None:
    """The root of a stack, if the directory has a root file, with the name if it has one that says one."""
    candidates = [path for path in files if reader.may_say_stack(path)]
    # Whoever checks the stack parses its files: here a look at the only one that may say it is enough.
    if len(candidates) == 1 and (name := plain_stack_name(reader.content(candidates[0]) or b"")):
        return StackRoot(directory, name)
    named = [reader.document(path) for path in reader.roots_in(candidates)]
    names = [document.tree.get("stack") for document in named]
    for document in named:
        document.forget()
    if not named:
        return None
    return StackRoot(directory, str(names[0]) if len(names) == 1 and isinstance(names[0], str) else None)


def _no_stack(tops: Sequence[Path], found: set[Path], reader: FileReader) -> list[Diagnostic]:
    files = sorted(found, key=lambda path: path.parts)
    shown = [reader.document(file) for file in files[:MOST_SHOWN]]
    return no_root_file([reader.shown(top) for top in tops], shown, len(files) - len(shown), "in or below")


def files_digest(directory: Path, not_manifests: Sequence[Path] = ()) -> str:
    """The digest of every manifest file that may belong to the stack of a root directory, and of its name.

    It is the same on two machines if they see the same files. Nothing is parsed but what may be the root
    file of another stack.
    """
    reader = FileReader(frozenset(not_manifests), directory)

    def is_another_stack(inner: Path, files: list[Path]) -> bool:
        return inner != directory and bool(reader.roots_in(files))

    digest = hashlib.sha256()
    below = len(directory.parts)
    files = [path for _, found in reader.below(directory, is_another_stack) for path in found]
    for path in sorted(files, key=lambda path: path.parts):
        name = "/".join(path.parts[below:]).encode("utf-8", "surrogateescape")
        data = reader.content(path)
        digest.update(b"unreadable\n" if data is None else f"{len(name)} {len(data)}\n".encode())
        digest.update(name + b"\n" + (data or b""))
    return f"sha256:{digest.hexdigest()}"
