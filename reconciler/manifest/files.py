"""The files of a stack: the root file, and every manifest file below it that has no nearer root file.

Links to directories are followed, wherever they lead. Each directory, and each file, is read at most once.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from fnmatch import fnmatchcase
from itertools import chain, islice
from pathlib import Path
from typing import Any, NamedTuple

from reconciler.errors import Diagnostic, Location, ManifestInvalid, WrongUsage
from reconciler.manifest.problems import diagnose, listed
from reconciler.manifest.yaml import (
    DIRECTION,
    UTF_16,
    Document,
    parse,
    plain_stack_name,
    read,
    read_manifest_file,
    unreadable_document,
)

#: Limit on the candidates that are listed; others are only counted.
MAX_SHOWN = 20
_WHAT = "no root file"


def _no_root_file(
    reader: FileReader, searched: Sequence[Path], candidates: Iterable[Path], direction: str
) -> list[Diagnostic]:
    """Report each candidate as no root file, in file order; `direction` says where from `searched`."""
    names = [reader.display_name(path) for path in searched]
    files = sorted(candidates, key=lambda path: path.parts)
    begin = Location(names[0], 1, 1)
    if not files:
        why = f"there is no manifest file {direction} {', '.join(names)}"
        return [Diagnostic(_WHAT, why, "reconciler init", begin)]
    problems = [_reason(reader.document(file)) for file in files[:MAX_SHOWN]]
    if (more := len(files) - MAX_SHOWN) > 0:
        why = f"{more} more files {direction} {', '.join(names)} have no stack: either"
        problems.append(Diagnostic(_WHAT, why, location=begin))
    if not any(problem.fix for problem in problems):
        problems[0] = problems[0]._replace(fix="add a line such as stack: my-stack to one file")
    return problems


def _reason(document: Document) -> Diagnostic:
    begin = Location(document.file, 1, 1)
    if document.is_broken:
        cause = next(iter(document.problems), None)
        why = f"it cannot be read: {cause.what}" if cause else "it cannot be read"
        return Diagnostic(_WHAT, why, location=(cause and cause.location) or begin)
    if document.tree and document.may_show_lines:
        from difflib import get_close_matches

        names = {name.lower(): name for name in document.tree}
        if near := get_close_matches("stack", names, n=1, cutoff=0.75):
            name = names[near[0]]
            fix = f'did you mean "stack" instead of "{name}"?'
            return diagnose(document, (name,), _WHAT, "it has no stack:", fix, at_key=True)
    why = "it has no stack:" if document.may_show_lines else "it has no key of a manifest"
    return Diagnostic(_WHAT, why if document.tree else "it is empty", location=begin)


SUFFIXES = (".yaml", ".yml")
#: The length limit of paths. A longer glob matches nothing and slows down each comparison.
MAX_GLOB = 4096


class StackFiles(NamedTuple):
    """The files of one stack, sorted by path; `in_view` are those that PATH covers.

    `known_variables` may be given a value although no file here declares them. `included` tells whether a
    path below the root may have manifests, see `_included`. `fetch_code` is called with a directory before
    the code in it is read.
    """

    root: Path
    documents: tuple[Document, ...]
    in_view: frozenset[Path]
    known_variables: frozenset[str] = frozenset()
    included: Callable[..., bool] = lambda *_, **_more: True
    fetch_code: Callable[[Path], None] = lambda _: None

    @property
    def is_partial(self) -> bool:
        return len(self.in_view) < len(self.documents)


class FileTree(NamedTuple):
    """A copy of files from elsewhere in `directory`, which must be resolved; nothing above it is read.

    Messages name a file by `prefix` and its path below the directory.
    """

    directory: Path
    prefix: str


class FileReader:
    """Reads each file once. `not_manifests` are variable files, `unlisted` unreadable directories."""

    def __init__(
        self, not_manifests: Iterable[Path] = (), cwd: Path | None = None, tree: FileTree | None = None
    ) -> None:
        self.not_manifests, self.tree = frozenset(map(os.path.realpath, not_manifests)), tree
        self._cwd = cwd or Path.cwd()
        self._read: dict[Path, Document] = {}
        self._data: dict[Path, bytes] = {}
        self.unlisted: dict[Path, OSError] = {}

    def document(self, path: Path) -> Document:
        if path not in self._read:
            self._read[path] = read(path, self.display_name(path), self._bytes)
        return self._read[path]

    def refuse(self, path: Path, target: Path) -> None:
        """Record a file that links out of the stack as a broken document."""
        name = self.display_name(path)
        problem = Diagnostic(
            "link leaves the stack",
            f"it points to {self.display_name(target)}, outside the directory of the root file",
            f"replace the link with the file, or pass the link as a PATH of its own: {name}",
            Location(name, 1, 1),
        )
        self._read[path] = Document(path, name, b"", problems=[problem], is_broken=True)

    def content(self, path: Path) -> bytes | None:
        """Return the bytes of a file, or None if it cannot be read."""
        with suppress(OSError):
            return self._bytes(path)
        return None

    def _bytes(self, path: Path) -> bytes:
        if path not in self._data:
            self._data[path] = read_manifest_file(path)
        return self._data[path]

    def display_name(self, path: Path) -> str:
        """Return the name of a file in messages: relative to the working directory, or absolute."""
        if self.tree is not None:
            if path == self.tree.directory:
                return self.tree.prefix
            below = path.is_relative_to(self.tree.directory)
            return self.tree.prefix + (path.relative_to(self.tree.directory) if below else path).as_posix()
        if path == self._cwd:
            return "."
        return path.as_posix().removeprefix(self._cwd.as_posix().rstrip("/") + "/")

    def upwards(self, directory: Path) -> Iterator[Path]:
        """Yield a directory and its parents, nearest first, but none above the tree."""
        for above in upwards(directory):
            yield above
            if self.tree is not None and above == self.tree.directory:
                return

    def candidates(self, directory: Path) -> list[Path]:
        return sorted(self._split(directory)[0], key=lambda path: path.name)

    def walk(
        self, top: Path, stops_at: Callable[[Path, list[Path]], bool] = lambda *_: False
    ) -> Iterator[tuple[Path, list[Path]]]:
        """Yield each directory from `top` down with its manifest files, but none where `stops_at`, nor below.

        Each directory is visited once; links to directories come last. A link to one of its own parents is
        a cycle and not followed.
        """
        seen: set[Path] = set()
        # Each directory with its resolved path.
        pending, links = [(top, top)], deque[Path]()
        while pending or links:
            if pending:
                directory, real = pending.pop()
            else:
                directory = links.popleft()
                real = Path(os.path.realpath(directory))
                if real in top.parents or real in Path(os.path.realpath(directory.parent)).parents:
                    continue
            if real in seen:
                continue
            files, directories, linked = self._split(directory)
            if stops_at(directory, files):
                continue  # not seen: the walk may go on under another name of it
            seen.add(real)
            yield directory, sorted(files, key=lambda path: path.name)
            pending += [(inner, real / inner.name) for inner in directories]
            links += sorted(linked, key=lambda path: path.name)

    def _split(self, directory: Path) -> tuple[list[Path], list[Path], list[Path]]:
        """List the manifest files, the directories and the links to directories of a directory.

        An unreadable entry with the name of a manifest (a broken link, a pipe) is included: reading it
        reports the problem. A directory that cannot be listed is added to `unlisted`, which only matters if
        it is below the root of the stack.
        """
        split: tuple[list[Path], list[Path], list[Path]] = [], [], []
        files, directories, links = split
        try:
            with os.scandir(directory) as scanned:
                entries = [entry for entry in scanned if not entry.name.startswith(".")]
        except OSError as error:
            self.unlisted[directory] = error
            return split
        for entry in entries:
            path, is_directory = directory / entry.name, False
            with suppress(OSError):  # a loop of links
                is_directory = entry.is_dir()
            if is_directory:
                (links if entry.is_symlink() else directories).append(path)
            elif entry.name.endswith(SUFFIXES) and not (
                # A variable file may be named by a link, such as a mounted secret.
                self.not_manifests and os.path.realpath(path) in self.not_manifests
            ):
                files.append(path)
        return split

    def roots_in(self, files: Iterable[Path]) -> list[Path]:
        return [path for path in files if self.may_be_root_file(path) and self.document(path).is_root_file]

    def may_be_root_file(self, path: Path) -> bool:
        """Whether a file contains the word `stack` at all."""
        # Not every YAML file in the directories above should be parsed: they may be anyone's.
        data = b"stack" if path in self._read else self.content(path) or b""
        return b"stack" in data or data.startswith(UTF_16)


def find_stack(
    paths: Sequence[Path], not_manifests: Sequence[Path] = (), tree: FileTree | None = None
) -> StackFiles:
    """Find the one stack that PATH selects, and read its files. With a `tree`, PATH must lie in it.

    Raises:
        WrongUsage: a path does not exist, or there are several stacks to choose from.
        ManifestInvalid: there is no root file, or there are two in one directory.
    """
    reader = FileReader(not_manifests, tree=tree)
    resolved = _resolved(paths or [Path()], reader)
    directories = sorted({directory for path in resolved for directory in _root_directories(path, reader)})
    if not directories:
        raise ManifestInvalid(*_no_root(resolved, reader))
    if len(directories) > 1:
        names = listed([reader.display_name(directory) for directory in directories])
        why = f"PATH must select one stack; choose one of: {names}"
        raise WrongUsage(Diagnostic("several stacks", why))
    root = directories[0]
    included = _included(root, reader)
    documents = _documents(root, reader, included, named=frozenset(resolved))
    files = [document.path for document in documents]
    if strays := [path for path in resolved if not path.is_dir() and path not in files]:
        why = "manifest files end in .yaml or .yml; hidden ones and those that include leaves out are skipped"
        raise WrongUsage(
            *(Diagnostic("no manifest file", f"{reader.display_name(path)}: {why}") for path in strays)
        )
    whole = any(chosen == root or chosen in root.parents for chosen in resolved)
    in_view = files if whole else [path for path in files if not {path, *path.parents}.isdisjoint(resolved)]
    return StackFiles(root, documents, frozenset(in_view), included=included)


def has_root_file(directory: Path) -> bool:
    """Whether a directory itself has a root file."""
    reader = FileReader()
    return bool(reader.roots_in(reader.candidates(directory.resolve())))


def manifest_files(
    paths: Sequence[Path], accepts: Callable[[Document], bool] = lambda document: document.may_show_lines
) -> Iterator[Document]:
    """Yield each file that PATH names, and each file in the directories it names, once.

    In directories only accepted files are yielded, by default those that look like a manifest, and no links
    to files.

    Raises:
        WrongUsage: a path does not exist.
    """
    reader = FileReader()
    seen: set[Path] = set()
    for path in paths or [Path()]:
        real = existing_path(path)
        if real.is_dir():
            inside = [file for _, files in reader.walk(real) for file in files if not file.is_symlink()]
            selected = [file for file in inside if accepts(reader.document(file))]
        else:
            selected = [real]
        for file in selected:
            if file not in seen:
                seen.add(file)
                yield reader.document(file)


def _resolved(paths: Sequence[Path], reader: FileReader) -> list[Path]:
    """Make paths absolute. A link to a file is kept if it is in a stack, else resolved."""
    real = [existing_path(path) for path in paths]
    directories = {path for path in real if path.is_dir()}

    def resolved(path: Path, target: Path) -> Path:
        if target in directories or not path.is_symlink():
            return target
        link = path.parent.resolve() / path.name
        if not directories.isdisjoint(link.parents):
            return link
        # A link that is itself a root file selects the stack of its target.
        others = (
            [other for other in reader.candidates(up) if other != link] for up in reader.upwards(link.parent)
        )
        return link if any(map(reader.roots_in, others)) else target

    return [resolved(path, target) for path, target in zip(paths, real, strict=True)]


def existing_path(path: Path) -> Path:
    """Resolve a path.

    Raises:
        WrongUsage: it does not exist.
    """
    try:
        return path.resolve(strict=True)
    except (OSError, RuntimeError, ValueError):
        raise WrongUsage(Diagnostic("no such path", f"{str(path)!r} does not exist")) from None


def _root_directories(path: Path, reader: FileReader) -> list[Path]:
    """Return the root directories for one PATH: itself, else the nearest above, else all below."""
    directory = path if path.is_dir() else path.parent
    for above in reader.upwards(directory):
        if reader.roots_in(reader.candidates(above)):
            return [above]
    if path.is_dir():
        return [inner for inner, files in reader.walk(path) if reader.roots_in(files)]
    return []


def upwards(directory: Path) -> Iterator[Path]:
    yield directory
    yield from directory.parents


def _documents(
    root: Path, reader: FileReader, included: Callable[..., bool], named: frozenset[Path]
) -> tuple[Document, ...]:
    listing = list(_stack_directories(root, reader, included))
    for path, target in _external_links(root, listing):
        if path not in named:
            reader.refuse(path, target)
    documents = []
    for path in sorted((path for _, files in listing for path in files), key=lambda path: path.parts):
        document = reader.document(path)
        if path in named or not document.is_case:
            document.relative = "/".join(path.parts[len(root.parts) :])
            documents.append(document)
    # A directory that cannot be listed may have jobs of the stack, which must not count as absent.
    for directory, error in sorted(reader.unlisted.items(), key=lambda item: item[0].parts):
        if directory == root or (root in directory.parents and included(directory, is_directory=True)):
            documents.append(unreadable_document(directory, reader.display_name(directory), error))
    return tuple(documents)


def _stack_directories(
    root: Path, reader: FileReader, included: Callable[..., bool]
) -> Iterator[tuple[Path, list[Path]]]:
    """Yield the directories of the stack with their manifest files, without those of stacks below it."""

    def stops_at(inner: Path, files: list[Path]) -> bool:
        return inner != root and (not included(inner, is_directory=True) or bool(reader.roots_in(files)))

    for directory, files in reader.walk(root, stops_at):
        yield directory, [path for path in files if included(path)]


def _included(root: Path, reader: FileReader) -> Callable[..., bool]:
    """Return the predicate for `include` of the root file.

    It tells whether a file is a manifest of the stack, or whether a directory may have one. The root file is
    always included.
    """
    files = reader.candidates(root)
    if not any(b"include" in (reader.content(path) or b"") for path in files):
        files = []  # parse nothing for the common case, e.g. in a large fleet
    roots = [reader.document(path) for path in reader.roots_in(files)]
    # If a root file with `include` cannot be parsed, no other file counts.
    values = [
        root_file.tree.get("include", () if re.search(r"(?m)^include[ \t]*:", root_file.text) else None)
        for root_file in roots
    ]
    texts = [text for value in values for text in (value if isinstance(value, list) else [value])]
    usable = (text for text in texts if isinstance(text, str) and len(text) <= MAX_GLOB)
    globs = [text.removeprefix("./").split("/") for text in usable]
    root_paths = {root_file.path for root_file in roots}

    def included(path: Path, *, is_directory: bool = False) -> bool:
        names = path.parts[len(root.parts) :]
        return path in root_paths or any(_matches(names, glob, is_directory) for glob in globs)

    has_include = any(value is not None for value in values)
    return included if has_include else lambda *_, **_more: True


def _matches(names: Sequence[str], glob: Sequence[str], is_directory: bool) -> bool:
    """Whether a file's path matches a glob, where `**` is any number of directories.

    For a directory: whether a file below it may match.
    """
    positions = {0}
    for name in names:
        for index, part in enumerate(glob):
            if index in positions and part == "**":
                positions.add(index + 1)
        positions = {
            index if glob[index] == "**" else index + 1
            for index in positions
            if index < len(glob) and fnmatchcase(name, glob[index])
        }
    end = len(glob)
    while end and glob[end - 1] == "**":
        end -= 1
    return any(index < len(glob) if is_directory else index >= end for index in positions)


def _external_links(root: Path, listing: Sequence[tuple[Path, list[Path]]]) -> Iterator[tuple[Path, Path]]:
    """Yield the files that are links out of the stack, with their targets. Broken links are left out.

    A linked directory is part of the stack, since linking it is a deliberate choice; a linked file may have
    been slipped in to be read.
    """
    links = [path for _, files in listing for path in files if path.is_symlink() and path.exists()]
    trees = {root, *(Path(os.path.realpath(directory)) for directory, _ in listing)} if links else {root}
    for path in links:
        target = Path(os.path.realpath(path))
        if trees.isdisjoint(target.parents):
            yield path, target


def _no_root(paths: Sequence[Path], reader: FileReader) -> list[Diagnostic]:
    candidates: set[Path] = set()
    for path in paths:
        directory = path if path.is_dir() else path.parent
        candidates.update(reader.candidates(directory))
        if path.is_dir():
            candidates.update(file for _, files in reader.walk(path) for file in files)
        # Files above are reported only if they may have been meant as root files.
        for up in islice(reader.upwards(directory), 1, None):
            candidates.update(filter(reader.may_be_root_file, reader.candidates(up)))
    return _no_root_file(reader, paths, candidates, "in, above or below")


#: The file name of a mapping in messages, digests and plans.
NAME = "<mapping>"
#: Characters that JSON does not escape and YAML does not allow.
_NOT_IN_YAML = f"[\x7f-\x9f\u2028\u2029\ufeff\ufffe\uffff{DIRECTION}]"


def stack_of(mapping: Mapping[str, Any], root: Path) -> StackFiles:
    """Return a mapping as the only file of a stack. `root` is the directory of its records.

    Raises:
        WrongUsage: `root` is not a directory.
        ManifestInvalid: the mapping has a value that YAML cannot represent, or no `stack`.
    """
    if not root.is_dir():
        raise WrongUsage(Diagnostic("no such directory", f"{root} is not a directory"))
    if not isinstance(mapping, Mapping):
        raise _invalid(f"expected a mapping, got {type(mapping).__name__}")
    if "stack" not in mapping:
        raise _invalid("`stack` is missing", 'add "stack": "my-stack"')
    directory = root.resolve()
    path = directory / NAME
    document = parse(_yaml(mapping), path, NAME)
    document.relative = NAME
    return StackFiles(directory, (document,), frozenset({path}))


def _yaml(mapping: Mapping[str, Any]) -> bytes:
    """Write a mapping as JSON, which is YAML."""
    try:
        text = json.dumps(mapping, indent=2, ensure_ascii=False, allow_nan=False, default=_refuse)
        return re.sub(_NOT_IN_YAML, lambda match: f"\\u{ord(match[0]):04x}", text).encode()
    except UnicodeEncodeError:
        raise _invalid("text contains an unpaired surrogate") from None
    except (ValueError, TypeError, RecursionError) as error:
        raise _invalid(str(error)) from None


def _refuse(value: object) -> dict[str, Any]:
    if isinstance(value, Mapping):
        return dict(value)
    raise TypeError(f"a manifest cannot contain a value of type {type(value).__name__}")


def _invalid(why: str, fix: str | None = None) -> ManifestInvalid:
    return ManifestInvalid(Diagnostic("invalid manifest", why, fix))


class StackRoot(NamedTuple):
    """The absolute directory of a stack, and its name, None if the root file has no valid one.

    `problem` is set if the directory could not be searched for stacks.
    """

    directory: Path
    name: str | None = None
    problem: Diagnostic | None = None


def find_roots(paths: Sequence[Path], not_manifests: Sequence[Path] = ()) -> list[StackRoot]:
    """Find each stack in and below the directories, sorted by directory.

    Directories that cannot be listed are included, with their problem: there may be a stack in them.

    Raises:
        WrongUsage: a path does not exist, or is not a directory.
        ManifestInvalid: there is no root file; the candidates are listed.
    """
    paths = paths or [Path()]
    tops = [existing_path(path) for path in paths]
    if strays := [path for path, top in zip(paths, tops, strict=True) if not top.is_dir()]:
        why = "a fleet is all stacks in and below a directory"
        raise WrongUsage(*(Diagnostic("not a directory", f"{str(path)!r}: {why}") for path in strays))
    reader = FileReader(not_manifests)
    roots: dict[Path, StackRoot] = {}
    others: set[Path] = set()
    for directory, files in chain.from_iterable(map(reader.walk, tops)):
        if root := _root_in(directory, files, reader):
            roots[directory] = root
        others.update(files)
    for directory, error in reader.unlisted.items():
        reason = error.strerror or type(error).__name__
        problem = Diagnostic(
            "unreadable directory", reason, location=Location(reader.display_name(directory), 1, 1)
        )
        roots[directory] = StackRoot(directory, problem=problem)
    if not roots:
        raise ManifestInvalid(*_no_root_file(reader, tops, others, "in or below"))
    return sorted(roots.values(), key=lambda root: root.directory.parts)


def _root_in(directory: Path, files: Sequence[Path], reader: FileReader) -> StackRoot | None:
    """Return the stack of a directory, or None if it has no root file."""
    candidates = [path for path in files if reader.may_be_root_file(path)]
    # With a single candidate, a text search usually saves parsing it.
    if len(candidates) == 1 and (name := plain_stack_name(reader.content(candidates[0]) or b"")):
        return StackRoot(directory, name)
    names = [reader.document(path).tree.get("stack") for path in reader.roots_in(candidates)]
    if not names:
        return None
    return StackRoot(directory, str(names[0]) if len(names) == 1 and isinstance(names[0], str) else None)


def files_digest(directory: Path, not_manifests: Sequence[Path] = ()) -> str:
    """Return a digest over names and content of the manifest files that may belong to a stack.

    It is the same on each machine with the same files. Only files that may be root files are parsed.
    """
    reader = FileReader(not_manifests, directory)
    below = len(directory.parts)
    paths = sorted(
        (
            path
            for _, files in _stack_directories(directory, reader, _included(directory, reader))
            for path in files
        ),
        key=lambda path: path.parts,
    )
    return digest_of(("/".join(path.parts[below:]), reader.content(path)) for path in paths)


def digest_of(files: Iterable[tuple[str, bytes | None]]) -> str:
    """Return a digest over names and content of files; the content is None if a file cannot be read."""
    digest = hashlib.sha256()
    for path, data in files:
        name = path.encode("utf-8", "surrogateescape")
        # The lengths make the boundary between files unambiguous.
        digest.update(b"unreadable\n" if data is None else f"{len(name)} {len(data)}\n".encode())
        digest.update(name + b"\n" + (data or b""))
    return f"sha256:{digest.hexdigest()}"
