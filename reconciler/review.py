"""Read BASE and HEAD for a review, without the service: each is a directory or a commit of the repository.

The manifest files of a commit are copied to a temporary directory that only its owner may read; messages name
them as `REVISION:path`, as git does.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from reconciler.code_changes import reviewed_code
from reconciler.core.ports import EvaluateExpressions
from reconciler.core.values import PlanWarning
from reconciler.decide.review import Review, ReviewedSide, Side, make_review, merge_reviews
from reconciler.errors import Diagnostic, ManifestInvalid, WrongUsage
from reconciler.expressions.evaluator import Evaluator
from reconciler.manifest.files import FileTree, StackFiles, find_stack
from reconciler.manifest.git import MAX_NAME, CommitFiles, Repository, copy_manifests
from reconciler.manifest.load import check, outline
from reconciler.manifest.yaml import shorten
from reconciler.modelarts.target import known_values
from reconciler.version import __version__


def review(
    base: str,
    head: str,
    paths: Sequence[Path],
    *,
    target: str | None,
    variables: Mapping[str, str],
    var_files: Sequence[Path],
    add_secrets: Callable[[Iterable[str]], None],
) -> Review:
    """Compare the manifests of BASE and HEAD; `paths` are the PATHs in each of them.

    `variables` and `var_files` apply to both sides. `add_secrets` gets secrets before anything else is done
    with them.

    Raises:
        WrongUsage: a directory, revision, path or target does not exist, or there are several stacks.
        ManifestInvalid: the manifest of BASE or HEAD is invalid; the problems of both are reported.
        GitFailed: git could not read what the repository should hold.
    """
    with _open_sources((base, head), paths, var_files) as sources:
        stacks = [source.find() for source in sources]
        if not any(stacks):
            last = sources[1]
            places = [place or "." for place in last.places] or [last.name]
            why = f"{last.name} has no manifest file at {', '.join(map(repr, places))}"
            fix = "pass the PATH of the stack in the repository"
            raise ManifestInvalid(Diagnostic("no root file", why, fix))
        # A given variable may be declared on one side only.
        known = frozenset(name for files in stacks for name in _names(files, "variables"))
        if target is not None and target not in _names(stacks[0], "targets"):
            stacks[0] = None  # BASE declares other targets only
        options = {
            "variables": variables,
            "var_files": var_files,
            "add_secrets": add_secrets,
            "target": target,
        }
        sides: list[_Sides] = []
        problems: list[Diagnostic] = []
        for source, files in zip(sources, stacks, strict=True):
            if files is not None:
                files = files._replace(known_variables=known)
            if files is not None and source.files is not None:
                files = files._replace(fetch_code=source.files.copy_code)
            try:
                sides.append(_read_sides(source, files, options))
            except ManifestInvalid as invalid:
                problems += invalid.diagnostics
        if problems:
            raise ManifestInvalid(*problems)
        with Evaluator() as evaluate:
            reviews = list(_reviews(sides[0], sides[1], evaluate))
    # Report what is skipped on both sides once.
    skipped = {one.why: one for side in sides for one in side.skipped}.values()
    if not reviews:
        raise ManifestInvalid(*skipped)
    merged = merge_reviews(reviews)
    return merged.model_copy(update={"warnings": (*map(_warning, skipped), *merged.warnings)})


class _Sides(NamedTuple):
    """A manifest on each target for which its expressions have values; `absent` stands for no manifest.

    `targets` are all declared ones, `default` is among them; `skipped` says why some were left out.
    """

    absent: Side
    by_target: Mapping[str | None, Side] = {}
    targets: frozenset[str] = frozenset()
    default: str | None = None
    skipped: tuple[Diagnostic, ...] = ()
    root: Path = Path()


def _reviews(base: _Sides, head: _Sides, evaluate: EvaluateExpressions) -> Iterator[Review]:
    """Yield a review for each target of HEAD (of BASE if HEAD has no manifest), the default first."""
    side = head if head.by_target else base
    for name in sorted(side.by_target, key=lambda name: name != side.default):
        base_name = name
        if name == side.default and name not in base.targets and base.default not in head.targets:
            base_name = base.default  # the target was renamed
        if base_name not in base.targets - base.by_target.keys():
            sides = base.by_target.get(base_name, base.absent), head.by_target.get(name, head.absent)
            target = name if base_name == name else None
            review_ = make_review(*sides, target=target, version=__version__, evaluate=evaluate)
            if any(job.code for side in sides if side.stack for job in side.stack.whole.values()):
                review_ = reviewed_code(review_, sides[0], base.root, sides[1], head.root)
            yield review_


def _names(files: StackFiles | None, section: str) -> set[str]:
    sections = [document.tree.get(section) for document in files.documents] if files else []
    return {name for names in sections if isinstance(names, dict) for name in names}


def _read_sides(source: ManifestSource, files: StackFiles | None, options: Mapping[str, Any]) -> _Sides:
    head = ReviewedSide(name=source.name, commit=source.commit)
    if files is None:
        return _Sides(Side(head))
    loaded, skipped = check(files, environ=os.environ, **options)
    _, default, _ = outline(files)
    left_out = [PlanWarning(what="not read", why=f"{name}: {why}") for name, why in source.left_out(files)]
    by_target = {}
    for name, on_target in loaded.on_targets(options["target"]).items():
        options["add_secrets"](on_target.secrets)
        policy_target: Mapping[str, Any] = {}
        if name is not None and on_target.stack.policies:
            policy_target = known_values(name, on_target.targets.get(name), os.environ)
        by_target[name] = Side(
            head.model_copy(
                update={"stack": on_target.stack.name, "manifest_digest": on_target.manifest_digest}
            ),
            on_target.stack,
            on_target.targets,
            default,
            on_target.records_reference,
            policy_target,
            source.prefix,
            (*left_out, *map(_warning, on_target.warnings)),
        )
    return _Sides(Side(head), by_target, frozenset(_names(files, "targets")), default, skipped, files.root)


def _warning(problem: Diagnostic) -> PlanWarning:
    place = f"{problem.location}: " if problem.location else ""
    return PlanWarning(what=problem.what, why=place + problem.why, fix=problem.fix)


# --- sources of BASE and HEAD


class ManifestSource(NamedTuple):
    """One side. `paths` are the PATHs to read from; `not_manifests` are variable files.

    Paths of this side are relative to `top`, or to `real_top` where the user has them. For a commit, `files`
    are those copied to `top`, and `places` the PATHs within the repository, "" for its top.
    """

    name: str
    paths: Sequence[Path]
    top: Path
    real_top: Path
    commit: str | None = None
    files: CommitFiles | None = None
    places: Sequence[str] = ()
    not_manifests: Sequence[Path] = ()

    @property
    def prefix(self) -> str:
        """The prefix of its file names in messages."""
        return f"{self.name}:" if self.files else ""

    @property
    def lacking(self) -> set[str]:
        """The PATHs that the commit does not have."""
        return {place for place in self.places if self.files and not self.files.has(place)}

    def find(self) -> StackFiles | None:
        """Return the files of its stack; None for a commit without a manifest there.

        Raises:
            WrongUsage: a path does not exist, or there are several stacks.
            ManifestInvalid: there are manifest files, but no root file.
        """
        tree = FileTree(self.top, self.prefix) if self.files else None
        try:
            return find_stack(self.paths, self.not_manifests, tree)
        except ManifestInvalid:
            if self.files is None or any(map(self.files.has_manifests_at, self.places)):
                raise
            return None

    def left_out(self, stack: StackFiles) -> Iterator[tuple[str, str]]:
        """Yield what could not be copied of a stack, by its name in messages, and why."""
        below = stack.root.relative_to(self.top).parts if self.files else ()
        for path, why in sorted(self.files.left_out.items()) if self.files else ():
            is_below, copy = Path(path).parts[: len(below)] == below, self.top / path
            if is_below and (stack.included(copy) or stack.included(copy, is_directory=True)):
                yield self.prefix + shorten(path, MAX_NAME), why


@contextmanager
def _open_sources(
    names: tuple[str, str], paths: Sequence[Path], var_files: Sequence[Path]
) -> Iterator[list[ManifestSource]]:
    """Provide the sources of BASE and HEAD, by their names, until they have been read.

    Raises:
        WrongUsage: a directory, revision or path does not exist.
        GitFailed: git could not read what the repository should hold.
    """
    repository = None if all(map(_exists, names)) else Repository.around(Path.cwd(), os.environ)
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
            temporary = tempfile.TemporaryDirectory(prefix="reconciler-review-", ignore_cleanup_errors=True)
            directory = Path(os.path.realpath(stack.enter_context(temporary)))
            # The top of the repository.
            levels = len(Path(repository.prefix).parts)
            top = repository.directory.resolve().joinpath(*[".."] * levels).resolve()
            places = _places(repository, top, paths, Path(other))
            files = copy_manifests(repository, commit, directory)
            inside = [directory / place for place in places]
            source = ManifestSource(name, inside, directory, top, commit, files, places)
            for place in source.lacking:
                # A missing path declares nothing, but the stack around it may exist.
                (directory / place).mkdir(parents=True, exist_ok=True)
            sources.append(source)
        # A PATH that neither side has is a mistake.
        for place in sorted(sources[0].lacking & sources[1].lacking):
            why = f"{place!r} exists neither in {names[0]} nor in {names[1]}"
            raise WrongUsage(Diagnostic("no such path", why))
        # Copies of variable files are not manifests either.
        relative = [
            real.relative_to(one.real_top)
            for real in (path.resolve() for path in var_files)
            for one in sources
            if real.is_relative_to(one.real_top)
        ]
        yield [
            one._replace(not_manifests=[*var_files, *(one.top / path for path in relative)])
            for one in sources
        ]


def _exists(name: str) -> bool:
    try:
        return bool(name) and Path(name).exists()
    except (OSError, ValueError):  # not a valid file name
        return False


def _directory(path: Path, name: str, paths: Sequence[Path]) -> ManifestSource:
    for below in paths:
        if below.is_absolute() or not path.is_dir():
            why = f"{str(below)!r} must be a path below the directories BASE and HEAD"
            raise WrongUsage(Diagnostic("invalid path", why))
    top = path.resolve()
    top = top if top.is_dir() else top.parent
    return ManifestSource(name, [path / below for below in paths] or [path], top, top)


def _places(repository: Repository, top: Path, paths: Sequence[Path], other: Path) -> list[str]:
    """Return the PATHs relative to the repository.

    Without PATHs it is the path of the other side, if that is a directory of the repository, else the current
    directory.

    Raises:
        WrongUsage: one of them is outside the repository.
    """
    if not paths and _exists(str(other)):
        directory = other if other.is_dir() else other.parent
        beside = Repository.around(directory.resolve(), os.environ)
        if beside is not None and beside.common_directory == repository.common_directory:
            return ["/".join(filter(None, (beside.prefix, "" if other.is_dir() else other.name)))]
    places = []
    for path in paths or [Path()]:
        place = os.path.relpath(repository.directory / path, top)
        if place == os.pardir or place.startswith(os.pardir + os.sep):
            why = f"{str(repository.directory / path)!r} is outside the git repository {top}"
            raise WrongUsage(Diagnostic("invalid path", why))
        places.append("" if place == os.curdir else Path(place).as_posix())
    return places
