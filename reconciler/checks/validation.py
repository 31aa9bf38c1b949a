"""What a check of one stack's manifest finds, as a value: for that stack alone, and in a fleet."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from reconciler.checks.policies import check_policies
from reconciler.decide.validation_report import (
    StackFacts,
    Validation,
    invalid_manifest,
    valid_manifest,
)
from reconciler.errors import Diagnostic, ExitCode, ManifestInvalid
from reconciler.manifests import LoadedStack
from reconciler.manifests.load import check
from reconciler.manifests.outline import outline
from reconciler.manifests.sources.files import StackFiles
from reconciler.version import __version__


@dataclass(frozen=True)
class StackToValidate:
    """PATH, or the files that were found for it, and what their expressions see; see `manifests.load.check`.

    `target` is the only one that it is checked on, if any.
    """

    paths: Sequence[Path] | StackFiles
    environ: Mapping[str, str] = field(repr=False)
    variables: Mapping[str, str] = field(default_factory=dict, repr=False)
    var_files: Sequence[Path] = ()
    target: str | None = None
    learn: Callable[[Iterable[str]], None] = lambda _: None


class ValidatedStack(NamedTuple):
    """The report, and the stack if it is valid.

    `skipped` are warnings of targets that were not checked; `problems` are said beside the report: what is
    wrong with the manifest, or what policies say of it.
    """

    report: Validation
    loaded: LoadedStack | None
    skipped: tuple[Diagnostic, ...]
    problems: tuple[Diagnostic, ...]

    @property
    def exit_code(self) -> ExitCode:
        """That of `validate`."""
        if not self.report.valid:
            return ExitCode.INVALID
        return ExitCode.REFUSED if self.report.denied else ExitCode.DONE


def validate_stack(given: StackToValidate) -> ValidatedStack:
    """Check a manifest, and ask its policies.

    Raises:
        WrongUsage: a path does not exist, or there are several stacks to choose from.
    """
    target = given.target
    try:
        loaded, skipped = check(
            given.paths,
            variables=given.variables,
            var_files=given.var_files,
            environ=given.environ,
            learn=given.learn,
            target=target,
        )
        given.learn(loaded.secrets)
        of_urls = _check_notifications(loaded)
    except ManifestInvalid as invalid:
        report = invalid_manifest(_facts_of_files(given), invalid.diagnostics)
        return ValidatedStack(report, None, (), invalid.diagnostics)
    checked = check_policies(loaded, given.environ, target=target)
    warnings = (*skipped, *loaded.warnings, *of_urls, *checked.warnings)
    report = valid_manifest(_facts(loaded, target), loaded.stack, checked.denied, warnings)
    return ValidatedStack(report, loaded, skipped, (*of_urls, *checked.warnings, *checked.refusals))


def _check_notifications(loaded: LoadedStack) -> tuple[Diagnostic, ...]:
    """Check the URLs of `notify` that have a value; Apprise is imported only where there are some."""
    if not loaded.notifies:
        return ()
    from reconciler.notify import check_destinations

    return check_destinations(loaded.destinations())


def _facts(loaded: LoadedStack, target: str | None) -> StackFacts:
    """What was checked: on one target, on those that differ, or on all alike."""
    targets = [target] if target else [one.target_name for one in loaded.checked] or list(loaded.targets)
    named = tuple(name for name in targets if name is not None)
    return StackFacts(__version__, loaded.stack.name, loaded.target_name, named, loaded.file_names)


def _facts_of_files(given: StackToValidate) -> StackFacts:
    """What was to be checked, as far as files that are invalid say it."""
    found = outline(given.paths, given.var_files)
    named = (given.target,) if given.target else ()
    return StackFacts(__version__, found.stack, given.target or found.target, named, found.files)
