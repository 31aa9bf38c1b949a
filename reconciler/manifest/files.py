"""Which files make a stack: the root file, and every manifest file below it that has no nearer root.

Links to directories are followed, wherever they lead, and no directory is read twice. A file is read and
parsed at most once, whoever asks for it first.
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

#: So many candidates are shown; how many more there are is said.
MOST_SHOWN = 20
_WHAT = "no root file"


def _no_root_file(
    reader: FileReader, where: Sequence[Path], candidates: Iterable[Path], direction: str
) -> list[Diagnostic]:
    """Say that no file has `stack:`, of each candidate, in file order.

    `where` are the paths that were searched, in that `direction`.
    """
    names = [reader.shown(path) for path in where]
    files = sorted(candidates, key=lambda path: path.parts)
    begin = Location(names[0], 1, 1)
    if not files:
        why = f"there is no manifest file {direction} {', '.join(names)}"
        return [Diagnostic(_WHAT, why, "reconciler init", begin)]
    problems = [_reason(reader.document(file)) for file in files[:MOST_SHOWN]]
    if (more := len(files) - MOST_SHOWN) > 0:
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
    is_ours = "it has no stack:" if document.may_show_lines else "it has no key of a manifest"
    return Diagnostic(_WHAT, is_ours if document.tree else "it is empty", location=begin)


SUFFIXES = (".yaml", ".yml")
#: No path is longer. A longer glob fits none, and costs time with each.
LONGEST_GLOB = 4096


class StackFiles(NamedTuple):
    """The files of one stack, in the order of their names; `in_view` are those that PATH covers.

    `known_variables` are the names that may be given a value although no file here declares them. `included`
    says of a path below the root whether `include` lets it hold manifests, see `_included`. `fetch_code` is
    called with a directory before the code in it is read.
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
    """A copy of files that lie elsewhere: nothing above `directory`, which is resolved, belongs to them.

    In messages the name of a file is `prefix` and its path below the directory.
    """

    directory: Path
    prefix: str


class FileReader:
    """Reads files, each once. `not_manifests` are the variable files.

    `unlisted` are the directories that could not be listed.
    """

    def __init__(
        self, not_manifests: Iterable[Path] = (), here: Path | None = None, tree: FileTree | None = None
    ) -> None:
        self.not_manifests, self.tree = frozenset(not_manifests), tree
        self._here = here or Path.cwd()
        self._read: dict[Path, Document] = {}
        self._data: dict[Path, bytes] = {}
        self.unlisted: dict[Path, OSError] = {}

    def document(self, path: Path) -> Document:
        if path not in self._read:
            self._read[path] = read(path, self.shown(path), self._bytes)
        return self._read[path]

    def refuse(self, path: Path, target: Path) -> None:
        """Let a file that is a link leaves the stack say nothing but that."""
        shown = self.shown(path)
        problem = Diagnostic(
            "link leaves the stack",
            f"it points to {self.shown(target)}, outside the directory of the root file",
            f"replace the link with the file, or pass the link as a PATH of its own: {shown}",
            Location(shown, 1, 1),
        )
        self._read[path] = Document(path, shown, b"", problems=[problem], is_broken=True)

    def content(self, path: Path) -> bytes | None:
        """The bytes of a file; None if it cannot be read."""
        with suppress(OSError):
            return self._bytes(path)
        return None

    def _bytes(self, path: Path) -> bytes:
        if path not in self._data:
            self._data[path] = read_manifest_file(path)
        return self._data[path]

    def shown(self, path: Path) -> str:
        """The name of a file in messages: from the current directory, or from the top."""
        if self.tree is not None:
            if path == self.tree.directory:
                return self.tree.prefix
            below = path.is_relative_to(self.tree.directory)
            return self.tree.prefix + (path.relative_to(self.tree.directory) if below else path).as_posix()
        if path == self._here:
            return "."
        return path.as_posix().removeprefix(self._here.as_posix().rstrip("/") + "/")

    def upwards(self, directory: Path) -> Iterator[Path]:
        """Yield a directory and those above it, the nearest first; none above the tree."""
        for above in upwards(directory):
            yield above
            if self.tree is not None and above == self.tree.directory:
                return

    def candidates(self, directory: Path) -> list[Path]:
        return sorted(self._split(directory)[0], key=lambda path: path.name)

    def below(
        self, top: Path, ends_at: Callable[[Path, list[Path]], bool] = lambda *_: False
    ) -> Iterator[tuple[Path, list[Path]]]:
        """Yield each directory from `top` down, with its manifest files; none below one where it `ends_at`.

        Links to directories are followed after all the others, and each directory is met once, whatever
        leads to it. A link to a directory that it lies in is a cycle.
        """
        met: set[Path] = set()
        # Each directory by the name that leads to it, and by its own.
        waiting, links = [(top, top)], deque[Path]()
        while waiting or links:
            if waiting:
                directory, real = waiting.pop()
            else:
                directory = links.popleft()
                real = Path(os.path.realpath(directory))
                if real in top.parents or real in Path(os.path.realpath(directory.parent)).parents:
                    continue
            if real in met:
                continue
            files, directories, linked = self._split(directory)
            if ends_at(directory, files):
                continue  # Another name of it may lead on.
            met.add(real)
            yield directory, sorted(files, key=lambda path: path.name)
            waiting += [(inner, real / inner.name) for inner in directories]
            links += sorted(linked, key=lambda path: path.name)

    def _split(self, directory: Path) -> tuple[list[Path], list[Path], list[Path]]:
        """The manifest files of a directory, the directories in it, and the links to directories.

        An entry that is named like a manifest and cannot be read as one (a link that leads nowhere, a
        pipe) is one all the same: reading it says what is wrong. A directory that cannot be listed is
        remembered in `unlisted`: above the stack it is none of our business, below it it is.
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
            path, leads_to_directory = directory / entry.name, False
            with suppress(OSError):  # a loop of links
                leads_to_directory = entry.is_dir()
            if leads_to_directory:
                (links if entry.is_symlink() else directories).append(path)
            elif entry.name.endswith(SUFFIXES) and path not in self.not_manifests:
                files.append(path)
        return split

    def roots_in(self, files: Iterable[Path]) -> list[Path]:
        """Those of the files that say `stack:`."""
        return [path for path in files if self.may_be_root_file(path) and self.document(path).is_root_file]

    def may_be_root_file(self, path: Path) -> bool:
        """Whether the word stands in a file at all."""
        # Parsing every YAML file of the directories above would read other people's files.
        data = b"stack" if path in self._read else self.content(path) or b""
        return b"stack" in data or data.startswith(UTF_16)


def find_stack(
    paths: Sequence[Path], not_manifests: Sequence[Path] = (), tree: FileTree | None = None
) -> StackFiles:
    """Find the one stack that PATH stands for, and read its files; those of a tree lie in it, as PATH does.

    Raises:
        WrongUsage: a path does not exist, or there are several stacks to choose from.
        ManifestInvalid: there is no root file, or there are two in one directory.
    """
    reader = FileReader((path.resolve() for path in not_manifests), tree=tree)
    resolved = _resolved(paths or [Path()], reader)
    directories = sorted({directory for path in resolved for directory in _root_directories(path, reader)})
    if not directories:
        raise ManifestInvalid(*_no_root(resolved, reader))
    if len(directories) > 1:
        names = listed([reader.shown(directory) for directory in directories])
        why = f"PATH must select one stack; choose one of: {names}"
        raise WrongUsage(Diagnostic("several stacks", why))
    root = directories[0]
    included = _included(root, reader)
    documents = _documents(root, reader, included, named=frozenset(resolved))
    files = [document.path for document in documents]
    if strays := [path for path in resolved if not path.is_dir() and path not in files]:
        why = "manifest files end in .yaml or .yml; hidden ones and those that include leaves out are skipped"
        raise WrongUsage(*(Diagnostic("no manifest file", f"{reader.shown(path)}: {why}") for path in strays))
    whole = any(chosen == root or chosen in root.parents for chosen in resolved)
    in_view = files if whole else [path for path in files if not {path, *path.parents}.isdisjoint(resolved)]
    return StackFiles(root, documents, frozenset(in_view), included=included)


def has_root_file(directory: Path) -> bool:
    """Whether a file that says `stack:` lies directly in a directory."""
    reader = FileReader()
    return bool(reader.roots_in(reader.candidates(directory.resolve())))


def manifest_files(
    paths: Sequence[Path], counts: Callable[[Document], bool] = lambda document: document.may_show_lines
) -> Iterator[Document]:
    """Yield the manifest files that PATH names, or that lie in the directories it names, each once.

    In a directory a file `counts` that is a manifest by its keys, or by its look if it cannot be parsed; a
    link to a file leads elsewhere and is left out.

    Raises:
        WrongUsage: a path does not exist.
    """
    reader = FileReader()
    met: set[Path] = set()
    for path in paths or [Path()]:
        real = existing_path(path)
        if real.is_dir():
            inside = [file for _, files in reader.below(real) for file in files if not file.is_symlink()]
            found = [file for file in inside if counts(reader.document(file))]
        else:
            found = [real]
        for file in found:
            if file not in met:
                met.add(file)
                yield reader.document(file)


def _resolved(paths: Sequence[Path], reader: FileReader) -> list[Path]:
    """The absolute paths; a link to a file that lies in a stack is itself, any other what it leads to."""
    real = [existing_path(path) for path in paths]
    directories = {path for path in real if path.is_dir()}

    def resolved(path: Path, target: Path) -> Path:
        if target in directories or not path.is_symlink():
            return target
        link = path.parent.resolve() / path.name
        if not directories.isdisjoint(link.parents):
            return link
        # One that is a root file itself has always stood for the stack that it leads to.
        others = ([one for one in reader.candidates(up) if one != link] for up in reader.upwards(link.parent))
        return link if any(map(reader.roots_in, others)) else target

    return [resolved(path, target) for path, target in zip(paths, real, strict=True)]


def existing_path(path: Path) -> Path:
    """The absolute path of what exists.

    Raises:
        WrongUsage: nothing does.
    """
    try:
        return path.resolve(strict=True)
    except (OSError, RuntimeError, ValueError):
        raise WrongUsage(Diagnostic("no such path", f"{str(path)!r} does not exist")) from None


def _root_directories(path: Path, reader: FileReader) -> list[Path]:
    """The roots that one PATH may stand for: in it, else the nearest above it, else those below it."""
    directory = path if path.is_dir() else path.parent
    for above in reader.upwards(directory):
        if reader.roots_in(reader.candidates(above)):
            return [above]
    if path.is_dir():
        return [inner for inner, files in reader.below(path) if reader.roots_in(files)]
    return []


def upwards(directory: Path) -> Iterator[Path]:
    yield directory
    yield from directory.parents


def _documents(
    root: Path, reader: FileReader, included: Callable[..., bool], named: frozenset[Path]
) -> tuple[Document, ...]:
    found = list(_below(root, reader, included))
    for path, target in _links_out(root, found):
        if path not in named:
            reader.refuse(path, target)
    documents = []
    for path in sorted((path for _, files in found for path in files), key=lambda path: path.parts):
        document = reader.document(path)
        if path in named or not document.is_case:
            document.relative = "/".join(path.parts[len(root.parts) :])
            documents.append(document)
    # What cannot be listed may hold jobs of the stack: they must not count as absent.
    for directory, error in sorted(reader.unlisted.items(), key=lambda item: item[0].parts):
        if directory == root or (root in directory.parents and included(directory, is_directory=True)):
            documents.append(unreadable_document(directory, reader.shown(directory), error))
    return tuple(documents)


def _below(
    root: Path, reader: FileReader, included: Callable[..., bool]
) -> Iterator[tuple[Path, list[Path]]]:
    """Yield the directories of the stack in a directory, with their manifest files: no other stack's."""

    def ends_at(inner: Path, files: list[Path]) -> bool:
        return inner != root and (not included(inner, is_directory=True) or bool(reader.roots_in(files)))

    for directory, files in reader.below(root, ends_at):
        yield directory, [path for path in files if included(path)]


def _included(root: Path, reader: FileReader) -> Callable[..., bool]:
    """Whether a file is a manifest of the stack, or a directory may hold one, by `include` of the root file.

    The root file itself always counts.
    """
    files = reader.candidates(root)
    if not any(b"include" in (reader.content(path) or b"") for path in files):
        files = []  # Most stacks have none, and a fleet parses nothing to know that.
    roots = [reader.document(path) for path in reader.roots_in(files)]
    # What a file that cannot be parsed leaves out is not known: nothing is said of other files then.
    found = [
        one.tree.get("include", () if re.search(r"(?m)^include[ \t]*:", one.text) else None) for one in roots
    ]
    texts = [one for value in found for one in (value if isinstance(value, list) else [value])]
    usable = (one for one in texts if isinstance(one, str) and len(one) <= LONGEST_GLOB)
    globs = [one.removeprefix("./").split("/") for one in usable]
    by_itself = {one.path for one in roots}

    def included(path: Path, *, is_directory: bool = False) -> bool:
        names = path.parts[len(root.parts) :]
        return path in by_itself or any(_fits(names, glob, is_directory) for glob in globs)

    is_said = any(value is not None for value in found)
    return included if is_said else lambda *_, **_more: True


def _fits(names: Sequence[str], glob: Sequence[str], is_directory: bool) -> bool:
    """Whether the path of a file fits a glob, in which `**` stands for any number of directories.

    Of a directory: whether a file below it may.
    """
    at = {0}
    for name in names:
        for place, part in enumerate(glob):
            if place in at and part == "**":
                at.add(place + 1)
        at = {
            place if glob[place] == "**" else place + 1
            for place in at
            if place < len(glob) and fnmatchcase(name, glob[place])
        }
    end = len(glob)
    while end and glob[end - 1] == "**":
        end -= 1
    return any(place < len(glob) if is_directory else place >= end for place in at)


def _links_out(root: Path, found: Sequence[tuple[Path, list[Path]]]) -> Iterator[tuple[Path, Path]]:
    """Yield the files that are links out of the stack, and where they lead; a broken link leads nowhere.

    A directory that is a link is part of the stack: who made it meant all that lies there. A single file
    may have been slipped in to be read.
    """
    links = [path for _, files in found for path in files if path.is_symlink() and path.exists()]
    trees = {root, *(Path(os.path.realpath(directory)) for directory, _ in found)} if links else {root}
    for path in links:
        target = Path(os.path.realpath(path))
        if trees.isdisjoint(target.parents):
            yield path, target


def _no_root(paths: Sequence[Path], reader: FileReader) -> list[Diagnostic]:
    """Why none of the files in, above or below the paths is a root file."""
    found: set[Path] = set()
    for path in paths:
        directory = path if path.is_dir() else path.parent
        found.update(reader.candidates(directory))
        if path.is_dir():
            found.update(file for _, files in reader.below(path) for file in files)
        # What lies above is of interest only if it looks as if it said it.
        for up in islice(reader.upwards(directory), 1, None):
            found.update(filter(reader.may_be_root_file, reader.candidates(up)))
    return _no_root_file(reader, paths, found, "in, above or below")


#: What messages call it, and what stands for its file name in digests and plans.
NAME = "<mapping>"
#: JSON leaves them as they are; in a file, which it is then read as, they are forbidden.
_NOT_IN_YAML = f"[\x7f-\x9f\u2028\u2029\ufeff\ufffe\uffff{DIRECTION}]"


def stack_of(mapping: Mapping[str, Any], root: Path) -> StackFiles:
    """The stack whose one file holds this; `root` is where its records lie.

    Raises:
        WrongUsage: `root` is no directory.
        ManifestInvalid: there is something in it that no manifest can hold, or no `stack`.
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
    """The same as YAML, which JSON is."""
    try:
        text = json.dumps(mapping, indent=2, ensure_ascii=False, allow_nan=False, default=_refuse)
        return re.sub(_NOT_IN_YAML, lambda found: f"\\u{ord(found[0]):04x}", text).encode()
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
    paths = paths or [Path()]
    tops = [existing_path(path) for path in paths]
    if strays := [path for path, top in zip(paths, tops, strict=True) if not top.is_dir()]:
        why = "a fleet is all stacks in and below a directory"
        raise WrongUsage(*(Diagnostic("not a directory", f"{str(path)!r}: {why}") for path in strays))
    reader = FileReader(path.resolve() for path in not_manifests)
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
        raise ManifestInvalid(*_no_root_file(reader, tops, others, "in or below"))
    return sorted(roots.values(), key=lambda root: root.directory.parts)


def _root_in(directory: Path, files: Sequence[Path], reader: FileReader) -> StackRoot | None:
    """The root of a stack, if the directory has a root file, with the name if it has one that says one."""
    candidates = [path for path in files if reader.may_be_root_file(path)]
    # Whoever checks the stack parses its files: here a look at the only one that may say it is enough.
    if len(candidates) == 1 and (name := plain_stack_name(reader.content(candidates[0]) or b"")):
        return StackRoot(directory, name)
    names = [reader.document(path).tree.get("stack") for path in reader.roots_in(candidates)]
    if not names:
        return None
    return StackRoot(directory, str(names[0]) if len(names) == 1 and isinstance(names[0], str) else None)


def files_digest(directory: Path, not_manifests: Sequence[Path] = ()) -> str:
    """The digest of every manifest file that may belong to the stack of a root directory, and of its name.

    It is the same on two machines if they see the same files. Nothing is parsed but what may be a root
    file that says `include`, or that of another stack.
    """
    reader = FileReader(not_manifests, directory)
    below = len(directory.parts)
    paths = sorted(
        (path for _, found in _below(directory, reader, _included(directory, reader)) for path in found),
        key=lambda path: path.parts,
    )
    return digest_of(("/".join(path.parts[below:]), reader.content(path)) for path in paths)


def digest_of(files: Iterable[tuple[str, bytes | None]]) -> str:
    """The digest of names and of the bytes that these files hold; None if one cannot be read."""
    digest = hashlib.sha256()
    for path, data in files:
        name = path.encode("utf-8", "surrogateescape")
        # The lengths keep apart what one file ends with and the next one begins with.
        digest.update(b"unreadable\n" if data is None else f"{len(name)} {len(data)}\n".encode())
        digest.update(name + b"\n" + (data or b""))
    return f"sha256:{digest.hexdigest()}"
