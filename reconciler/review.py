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

from reconciler.core.values import PlanWarning
from reconciler.decide.review import Review, ReviewedSide, Side, make_review
from reconciler.errors import Diagnostic, ManifestInvalid, WrongUsage
from reconciler.expressions.evaluator import evaluate
from reconciler.manifest import load
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
            head = sources[1]
            places = [place or "." for place in head.copy.places] if head.copy else [head.name]
            why = f"{head.name} has no manifest file at {', '.join(map(repr, places))}"
            fix = "pass the PATH of the stack in the repository"
            raise ManifestInvalid(Diagnostic("no root file", why, fix))
        # A variable that only one side declares may be given a value.
        known = frozenset(name for files in found for name in _names(files, "variables"))
        if request.target is not None and request.target not in _names(found[0], "targets"):
            found[0] = None  # What BASE declares is for other targets.
        sides: list[Side] = []
        problems: list[Diagnostic] = []
        for source, files in zip(sources, found, strict=True):
            try:
                sides.append(_side(source, files, known, request))
            except ManifestInvalid as invalid:
                problems += invalid.diagnostics
        if problems:
            raise ManifestInvalid(*problems)
    return make_review(*sides, target=request.target, version=__version__, evaluate=evaluate)


def _names(files: StackFiles | None, section: str) -> set[str]:
    """The names that a section of the files declares."""
    found = [document.tree.get(section) for document in files.documents] if files else []
    return {name for names in found if isinstance(names, dict) for name in names}


def _side(
    source: ManifestSource, files: StackFiles | None, known: frozenset[str], request: ReviewRequest
) -> Side:
    """Read one side; `known` are the variables of both."""
    head = ReviewedSide(name=source.name, commit=source.copy.commit if source.copy else None)
    if files is None:
        return Side(head)
    loaded = load(
        files._replace(known_variables=known),
        variables=request.variables,
        var_files=request.var_files,
        environ=request.environ,
        offline=True,
        learn=request.learn,
        target=request.target,
    )
    request.learn(loaded.secrets)
    warnings = [
        PlanWarning(what="not read", why=f"{name}: {why}")
        for name, why in source.left_out(loaded.root).items()
    ]
    for one in loaded.warnings:
        place = f"{one.location}: " if one.location else ""
        warnings.append(PlanWarning(what=one.what, why=place + one.why, fix=one.fix))
    name, policy_target = loaded.target_name, {}
    if name is not None and loaded.stack.policies:
        policy_target = known_values(name, loaded.targets.get(name), request.environ)
    return Side(
        head.model_copy(update={"stack": loaded.stack.name, "manifest_digest": loaded.manifest_digest}),
        loaded.stack,
        loaded.targets,
        name,
        loaded.records_reference,
        policy_target,
        source.file_prefix,
        tuple(warnings),
    )


# --- where BASE and HEAD are


@dataclass(frozen=True)
class CommitCopy:
    """The manifest files of a commit. `places` are the PATHs as paths of the repository, "" its top."""

    commit: str
    tree: FileTree
    files: CommitFiles
    places: Sequence[str]

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
            if self.copy is None or any(map(self.copy.files.has_manifests_at, self.copy.places)):
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
                continue
            commit = None if repository is None else repository.commit(name)
            if repository is None or commit is None:
                where, fix = "no git repository was found here", None
                if repository is not None:
                    where = "not a revision of this repository"
                    fix = "to get the revisions of a remote, run git fetch"
                why = f"{name!r} is not a directory, and {where}"
                raise WrongUsage(Diagnostic("no such directory or revision", why, fix))
            made = tempfile.TemporaryDirectory(prefix="reconciler-review-", ignore_cleanup_errors=True)
            directory = Path(os.path.realpath(stack.enter_context(made)))
            places = _places(repository, paths, Path(other), environ)
            sources.append(_copied(repository, commit, name, places, directory))
        base, head = sources
        # A PATH that neither side has is a slip.
        for place in sorted(base.copy.lacking & head.copy.lacking) if base.copy and head.copy else ():
            why = f"{place!r} does not exist in {base.name} nor in {head.name}"
            raise WrongUsage(Diagnostic("no such path", why))
        # The copies of files of values are no manifests on any side.
        relative = [
            real.relative_to(one.real_top)
            for real in (path.resolve() for path in var_files)
            for one in sources
            if real.is_relative_to(one.real_top)
        ]
        base, head = (
            replace(one, not_manifests=[*var_files, *(one.top / path for path in relative)])
            for one in sources
        )
        yield base, head


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
            return ["/".join(filter(None, (beside.prefix, "" if other.is_dir() else other.name)))]
    top, places = _top(repository), []
    for path in paths or [Path()]:
        place = os.path.relpath(repository.directory / path, top)
        if place == os.pardir or place.startswith(os.pardir + os.sep):
            why = f"{str(repository.directory / path)!r} is outside the git repository {top}"
            raise WrongUsage(Diagnostic("invalid path", why))
        places.append("" if place == os.curdir else Path(place).as_posix())
    return places


def _top(repository: Repository) -> Path:
    """The directory that the paths of the repository are relative to."""
    levels = len(Path(repository.prefix).parts)
    return repository.directory.resolve().joinpath(*[".."] * levels).resolve()


def _copied(
    repository: Repository, commit: str, name: str, places: Sequence[str], directory: Path
) -> ManifestSource:
    files = copy_manifests(repository, commit, directory)
    copy = CommitCopy(commit, FileTree(directory, f"{name}:"), files, places)
    for place in copy.lacking:
        # What is not there declares nothing, but the stack around it may be.
        (directory / place).mkdir(parents=True, exist_ok=True)
    return ManifestSource(name, [directory / place for place in places], directory, _top(repository), copy)
