"""What a change of the manifests means: both sides are read without the service, and compared."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from reconciler.core.values import PlanWarning
from reconciler.decide.review_comparison import make_review
from reconciler.decide.review_report import Review, ReviewedSide
from reconciler.decide.review_side import Side
from reconciler.errors import Diagnostic, ManifestInvalid
from reconciler.expressions.evaluator import evaluate
from reconciler.manifests import LoadedStack, load_files
from reconciler.manifests.sources.files import StackFiles
from reconciler.modelarts.target import known_values
from reconciler.review.sources import ManifestSource, opened
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
