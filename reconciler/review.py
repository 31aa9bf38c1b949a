"""Reading BASE and HEAD for a review, without the service: each a directory or a commit of the repository.

The manifest files of a commit are copied to a directory that only its owner may read, for as long as they are
needed; messages name them as `REVISION:path`, as git does.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from reconciler.core.values import PlanWarning
from reconciler.decide.review import Review, ReviewedSide, Side, make_review
from reconciler.errors import Diagnostic, ManifestInvalid, WrongUsage
from reconciler.expressions.evaluator import evaluate
from reconciler.manifest import LoadedStack, load_files
from reconciler.manifest.files import FileTree, StackFiles, find_stack
from reconciler.manifest.git import CommitFiles, Repository, copy_manifests, shortened
from reconciler.modelarts.target import known_values
from reconciler.version import __version__


@dataclass(frozen=True)
class ReviewRequest:
    """What is to be compared: BASE and HEAD as they were given, and the PATHs in each of them.

    `variables` and `var_files` give variables their values on both sides. `learn` is told what must not be
    seen before anything else is done with it.
    """

    base: str
    head: str
    paths: Sequence[Path] = ()
    target: str | None = None
    variables: Mapping[str, str] = field(default_factory=dict)
    var_files: Sequence[Path] = ()
    environ: Mapping[str, str] = field(default_factory=lambda: os.environ)
    learn: Callable[[Iterable[str]], None] = lambda _: None


def review(request: ReviewRequest) -> Review:
    """Compare the manifests of BASE and HEAD.

    Raises:
        WrongUsage: a directory, revision, path or target does not exist, or there are several stacks to
            choose from.
        ManifestInvalid: the manifest of BASE or HEAD is invalid; the problems of both are told.
        GitFailed: git could not read what the repository should hold.
    """
    names = (request.base, request.head)
    with opened(names, request.paths, request.var_files, request.environ) as sources:
        found = [source.find() for source in sources]
        if not any(found):
            raise ManifestInvalid(_nothing(sources[1]))
        known = frozenset(name for files in found for name in _names(files, "variables"))
        if request.target is not None and request.target not in _names(found[0], "targets"):
            found[0] = None  # What BASE declares is for other targets.
        loaded = _loaded(found, known, request)
        sides = [_side(source, one, request.environ) for source, one in zip(sources, loaded, strict=True)]
    return make_review(*sides, target=request.target, version=__version__, evaluate=evaluate)


def _loaded(
    found: Sequence[StackFiles | None], known: frozenset[str], request: ReviewRequest
) -> list[LoadedStack | None]:
    """The manifests of both sides; the problems of both together, if there are any."""
    loaded: list[LoadedStack | None] = []
    problems: list[Diagnostic] = []
    for files in found:
        try:
            loaded.append(None if files is None else _load(files, known, request))
        except ManifestInvalid as invalid:
            problems += invalid.diagnostics
    if problems:
        raise ManifestInvalid(*problems)
    return loaded


def _load(files: StackFiles, known: frozenset[str], request: ReviewRequest) -> LoadedStack:
    """Read one side. A variable that only the other side declares may be given a value."""
    loaded = load_files(
        replace(files, known_variables=known),
        variables=request.variables,
        var_files=request.var_files,
        environ=request.environ,
        offline=True,
        learn=request.learn,
        target=request.target,
    )
    request.learn(loaded.secrets)
    return loaded


def _names(files: StackFiles | None, section: str) -> set[str]:
    """The names that a section of the files declares."""
    found = [document.tree.get(section) for document in files.documents] if files else []
    return {name for names in found if isinstance(names, dict) for name in names}


def _side(source: ManifestSource, loaded: LoadedStack | None, environ: Mapping[str, str]) -> Side:
    head = ReviewedSide(name=source.name, commit=source.copy.commit if source.copy else None)
    if loaded is None:
        return Side(head)
    left_out = source.left_out(loaded.root)
    return Side(
        head.model_copy(update={"stack": loaded.stack.name, "manifest_digest": loaded.manifest_digest}),
        loaded.stack,
        loaded.targets,
        loaded.target_name,
        loaded.records_reference,
        _policy_target(loaded, environ),
        source.file_prefix,
        (
            *(PlanWarning(what="not read", why=f"{name}: {why}") for name, why in left_out.items()),
            *(_warning(one) for one in loaded.warnings),
        ),
    )


def _policy_target(loaded: LoadedStack, environ: Mapping[str, str]) -> dict[str, Any]:
    """What policies see of the target that a side was read for."""
    name = loaded.target_name
    if name is None or not loaded.stack.policies:
        return {}
    return known_values(name, loaded.targets.get(name), environ)


def _warning(diagnostic: Diagnostic) -> PlanWarning:
    place = f"{diagnostic.location}: " if diagnostic.location else ""
    return PlanWarning(what=diagnostic.what, why=place + diagnostic.why, fix=diagnostic.fix)


def _nothing(source: ManifestSource) -> Diagnostic:
    why = f"{source.name} has no manifest file at {', '.join(map(repr, _shown(source)))}"
    return Diagnostic("no root file", why, "pass the PATH of the stack in the repository")


def _shown(source: ManifestSource) -> Sequence[str]:
    return [place or "." for place in source.copy.places] if source.copy else [source.name]


# --- where BASE and HEAD are


@dataclass(frozen=True)
class CommitCopy:
    """The manifest files of a commit. `places` are the PATHs as paths of the repository, "" its top."""

    commit: str
    tree: FileTree
    files: CommitFiles
    places: Sequence[str]

    @property
    def has_manifests(self) -> bool:
        """Whether a file that is named like a manifest stands at or below a PATH."""
        return any(map(self.files.has_manifests_at, self.places))

    @property
    def lacking(self) -> set[str]:
        """The PATHs that are not in the commit."""
        return {place for place in self.places if not self.files.has(place)}


@dataclass(frozen=True)
class ManifestSource:
    """One side. `paths` are the PATHs where they can be read, `copy` is None for a directory.

    `top` is what the paths of this side are relative to, `real_top` the same where the user has it;
    `not_manifests` are files of values.
    """

    name: str
    paths: Sequence[Path]
    top: Path
    real_top: Path
    copy: CommitCopy | None = None
    not_manifests: Sequence[Path] = ()

    @property
    def file_prefix(self) -> str:
        """What the names of its files begin with in messages."""
        return self.copy.tree.prefix if self.copy else ""

    def find(self) -> StackFiles | None:
        """The files of its stack; None for a commit that has no manifest there at all.

        Raises:
            WrongUsage: a path does not exist, or there are several stacks to choose from.
            ManifestInvalid: there are manifest files, and none is a root file.
        """
        tree = None if self.copy is None else self.copy.tree
        try:
            return find_stack(self.paths, self.not_manifests, tree)
        except ManifestInvalid:
            if self.copy is None or self.copy.has_manifests:
                raise
            return None

    def left_out(self, root: Path) -> dict[str, str]:
        """What of a stack could not be copied, by its name in messages, and why."""
        if self.copy is None:
            return {}
        below = root.relative_to(self.copy.tree.directory).parts
        return {
            self.file_prefix + shortened(path): why
            for path, why in sorted(self.copy.files.left_out.items())
            if Path(path).parts[: len(below)] == below
        }


@contextmanager
def opened(
    names: tuple[str, str], paths: Sequence[Path], var_files: Sequence[Path], environ: Mapping[str, str]
) -> Iterator[tuple[ManifestSource, ManifestSource]]:
    """The sources of BASE and HEAD, by their names, for as long as they are read.

    Raises:
        WrongUsage: a directory, revision or path does not exist.
        GitFailed: git could not read what the repository should hold.
    """
    repository = None if all(map(_exists, names)) else Repository.around(Path.cwd(), environ)
    with ExitStack() as stack:
        sources = []
        for name, other in (names, names[::-1]):
            if _exists(name):
                sources.append(_directory(Path(name), name, paths))
            else:
                commit = _commit(repository, name)
                assert repository is not None
                made = tempfile.TemporaryDirectory(prefix="reconciler-review-", ignore_cleanup_errors=True)
                directory = Path(os.path.realpath(stack.enter_context(made)))
                places = _places(repository, paths, Path(other), environ)
                sources.append(_copied(repository, commit, name, places, directory))
        base, head = sources
        _check_paths(base, head)
        yield _without(base, var_files, sources), _without(head, var_files, sources)


def _exists(name: str) -> bool:
    try:
        return Path(name).exists()
    except (OSError, ValueError):  # a name that no file can have
        return False


def _directory(path: Path, name: str, paths: Sequence[Path]) -> ManifestSource:
    for below in paths:
        if below.is_absolute() or not path.is_dir():
            why = f"{str(below)!r} must be a path below the directories BASE and HEAD"
            raise WrongUsage(Diagnostic("invalid path", why))
    top = path.resolve()
    top = top if top.is_dir() else top.parent
    return ManifestSource(name, [path / below for below in paths] or [path], top, top)


def _commit(repository: Repository | None, name: str) -> str:
    """The commit of a revision.

    Raises:
        WrongUsage: there is none.
    """
    commit = None if repository is None else repository.commit(name)
    if commit is not None:
        return commit
    where = "no git repository was found here" if repository is None else "not a revision of this repository"
    why = f"{name!r} is not a directory, and {where}"
    fix = None if repository is None else "to get the revisions of a remote, run git fetch"
    raise WrongUsage(Diagnostic("no such directory or revision", why, fix))


def _places(
    repository: Repository, paths: Sequence[Path], other: Path, environ: Mapping[str, str]
) -> list[str]:
    """The PATHs as paths of the repository; without one the place of the other side, if that is a directory
    of it, else of the current directory.

    Raises:
        WrongUsage: one of them lies outside.
    """
    if not paths and _exists(str(other)):
        directory = other if other.is_dir() else other.parent
        beside = Repository.around(directory.resolve(), environ)
        if beside is not None and beside.common_directory == repository.common_directory:
            return [_joined(beside.prefix, "" if other.is_dir() else other.name)]
    top = _top(repository)
    return [_place(top, repository.directory / path) for path in paths or [Path()]]


def _joined(*parts: str) -> str:
    return "/".join(filter(None, parts))


def _top(repository: Repository) -> Path:
    """The directory that the paths of the repository are relative to."""
    levels = len(Path(repository.prefix).parts)
    return repository.directory.resolve().joinpath(*[".."] * levels).resolve()


def _place(top: Path, path: Path) -> str:
    place = os.path.relpath(path, top)
    if place == os.pardir or place.startswith(os.pardir + os.sep):
        raise WrongUsage(Diagnostic("invalid path", f"{str(path)!r} is outside the git repository {top}"))
    return "" if place == os.curdir else Path(place).as_posix()


def _copied(
    repository: Repository, commit: str, name: str, places: Sequence[str], directory: Path
) -> ManifestSource:
    files = copy_manifests(repository, commit, directory)
    copy = CommitCopy(commit, FileTree(directory, f"{name}:"), files, places)
    for place in copy.lacking:
        # What is not there declares nothing, but the stack around it may be.
        (directory / place).mkdir(parents=True, exist_ok=True)
    return ManifestSource(name, [directory / place for place in places], directory, _top(repository), copy)


def _check_paths(base: ManifestSource, head: ManifestSource) -> None:
    """A PATH that neither side has is a slip.

    Raises:
        WrongUsage: there is one.
    """
    if base.copy is None or head.copy is None:
        return
    for place in sorted(base.copy.lacking & head.copy.lacking):
        why = f"{place!r} does not exist in {base.name} nor in {head.name}"
        raise WrongUsage(Diagnostic("no such path", why))


def _without(
    source: ManifestSource, var_files: Sequence[Path], sources: Sequence[ManifestSource]
) -> ManifestSource:
    """The source with its own copies of the files of values named, which are no manifests on any side."""
    relative = [
        real.relative_to(one.real_top)
        for real in (path.resolve() for path in var_files)
        for one in sources
        if real.is_relative_to(one.real_top)
    ]
    return replace(source, not_manifests=[*var_files, *(source.top / path for path in relative)])
