"""What can be said of a manifest without the service: whether it is valid, and what its policies say."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from reconciler.core.values import few_of_a_kind
from reconciler.decide.plan import Denial
from reconciler.decide.policies import Verdicts, judge_declared, refusals_of
from reconciler.decide.validation import StackFacts, Validation, invalid_manifest, valid_manifest
from reconciler.errors import Diagnostic, ExitCode, ManifestInvalid, Severity
from reconciler.expressions.evaluator import Evaluator
from reconciler.manifest import LoadedStack
from reconciler.manifest.files import StackFiles
from reconciler.manifest.load import check, outline
from reconciler.modelarts.target import known_values
from reconciler.version import __version__


class ValidatedStack(NamedTuple):
    """The report, and the stack if it is valid.

    `skipped` are warnings of targets that were not checked. `problems` are shown beside the report: what is
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


def validate_stack(
    paths: Sequence[Path] | StackFiles,
    *,
    environ: Mapping[str, str],
    variables: Mapping[str, str],
    var_files: Sequence[Path] = (),
    target: str | None = None,
    learn: Callable[[Iterable[str]], None] = lambda _: None,
) -> ValidatedStack:
    """Check a manifest, on every target or on one, and ask its policies; see `manifests.load.check`.

    Raises:
        WrongUsage: a path does not exist, or there are several stacks to choose from.
    """
    try:
        loaded, skipped = check(
            paths,
            variables=variables,
            var_files=var_files,
            environ=environ,
            learn=learn,
            target=target,
        )
        learn(loaded.secrets)
        of_urls: tuple[Diagnostic, ...] = ()
        if loaded.notifies:
            from reconciler.notify import check_destinations

            of_urls = check_destinations(loaded.destinations())
    except ManifestInvalid as invalid:
        found = outline(paths, var_files)
        named = (target,) if target else ()
        facts = StackFacts(__version__, found.stack, target or found.target, named, found.files)
        return ValidatedStack(invalid_manifest(facts, invalid.diagnostics), None, (), invalid.diagnostics)
    verdicts = _ask_policies(loaded, environ, target)
    denied = _denied(verdicts)
    of_policies = tuple(
        Diagnostic(
            one.what, one.why, one.fix, path=f"jobs.{one.key}" if one.key else "", severity=Severity.WARNING
        )
        for one in few_of_a_kind(dict.fromkeys(one for each in verdicts.values() for one in each.warnings))
    )
    names = [target] if target else [one.target_name for one in loaded.checked] or list(loaded.targets)
    checked = tuple(name for name in names if name is not None)
    facts = StackFacts(__version__, loaded.stack.name, loaded.target_name, checked, loaded.file_names)
    warnings = (*skipped, *loaded.warnings, *of_urls, *of_policies)
    report = valid_manifest(facts, loaded.stack, denied, warnings)
    refusals = _refusals(denied, len(verdicts))
    return ValidatedStack(report, loaded, skipped, (*of_urls, *of_policies, *refusals))


def _ask_policies(
    loaded: LoadedStack, environ: Mapping[str, str], target: str | None
) -> dict[str | None, Verdicts]:
    """What the policies say about all jobs in view, as if each had to be created, by the name of the target.

    Only a plan can ask those that need what nobody but the service knows; they are a warning.
    """
    if not loaded.stack.policies:
        return {}
    with Evaluator() as evaluate:
        return {
            name: judge_declared(
                one.stack,
                {} if name is None else known_values(name, one.targets.get(name), environ),
                evaluate,
            )
            for name, one in _by_target(loaded, target)
        }


def _by_target(loaded: LoadedStack, target: str | None) -> Iterator[tuple[str | None, LoadedStack]]:
    """The stack as it is on each target that was checked."""
    if loaded.checked:
        yield from ((one.target_name, one) for one in loaded.checked)
    elif target is not None or len(loaded.targets) < 2:
        yield loaded.target_name, loaded
    else:
        yield from ((name, loaded) for name in loaded.targets)


def _denied(verdicts: Mapping[str | None, Verdicts]) -> dict[Denial, tuple[str, ...]]:
    """What is denied, and on which targets."""
    found: dict[Denial, tuple[str, ...]] = {}
    for name, one in verdicts.items():
        for denial in one.denied:
            found[denial] = (*found.get(denial, ()), *(() if name is None else (name,)))
    return found


def _refusals(denied: Mapping[Denial, tuple[str, ...]], targets: int) -> Iterator[Diagnostic]:
    """Why apply would refuse the stack; targets are named where it would not on all of them."""
    by_targets: dict[tuple[str, ...], list[Denial]] = {}
    for denial, names in denied.items():
        by_targets.setdefault(names, []).append(denial)
    for names, found in by_targets.items():
        for refusal in refusals_of(found):
            if names and len(names) < targets:
                kind = "target" if len(names) == 1 else "targets"
                yield refusal._replace(why=f"{refusal.why} ({kind} {', '.join(names)})")
            else:
                yield refusal
