"""Validate a manifest without the service: its problems, and the verdicts of its policies."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from reconciler.core.values import Denial, Source, fold_similar_warnings
from reconciler.decide.validation import DeniedJob, Validation
from reconciler.errors import Diagnostic, ExitCode, ManifestInvalid, Severity
from reconciler.manifest import LoadedStack
from reconciler.manifest.files import StackFiles
from reconciler.manifest.load import check, outline
from reconciler.version import __version__

if TYPE_CHECKING:
    from reconciler.decide.policies import Verdicts


class ValidatedStack(NamedTuple):
    """The report, and the stack if it is valid.

    `skipped` are warnings about targets that were not checked. `problems` are shown with the report: errors
    in the manifest, or verdicts of policies.
    """

    report: Validation
    loaded: LoadedStack | None
    skipped: tuple[Diagnostic, ...]
    problems: tuple[Diagnostic, ...]

    @property
    def exit_code(self) -> ExitCode:
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
    add_secrets: Callable[[Iterable[str]], None] = lambda _: None,
) -> ValidatedStack:
    """Check a manifest on all targets or on one, and evaluate its policies; see `manifest.load.check`.

    Raises:
        WrongUsage: a path does not exist, or there are several stacks.
    """
    try:
        loaded, skipped = check(
            paths,
            variables=variables,
            var_files=var_files,
            environ=environ,
            add_secrets=add_secrets,
            target=target,
        )
        add_secrets(loaded.secrets)
        url_warnings: tuple[Diagnostic, ...] = ()
        if loaded.notifies:
            from reconciler.notify import check_destinations

            url_warnings = check_destinations(loaded.destinations())
    except ManifestInvalid as invalid:
        name, default, files = outline(paths, var_files)
        report = Validation(
            reconciler_version=__version__,
            valid=False,
            stack=name,
            target=target or default,
            targets=(target,) if target else (),
            files=files,
            diagnostics=invalid.diagnostics,
        )
        return ValidatedStack(report, None, (), invalid.diagnostics)
    verdicts = _evaluate_policies(loaded, environ, target)
    denied: dict[Denial, tuple[str, ...]] = {}
    for name, verdict in verdicts.items():
        for denial in verdict.denied:
            denied[denial] = (*denied.get(denial, ()), *(() if name is None else (name,)))
    policy_warnings = tuple(
        Diagnostic(
            one.what, one.why, one.fix, path=f"jobs.{one.key}" if one.key else "", severity=Severity.WARNING
        )
        for one in fold_similar_warnings(
            dict.fromkeys(one for each in verdicts.values() for one in each.warnings)
        )
    )
    stack, jobs = loaded.stack, []
    for denial, denied_on in denied.items():
        job = stack.find(denial.key)
        place = None if job is None else Source.of(job.location)
        jobs.append(DeniedJob(**dict(denial), targets=denied_on, job=place))
    names = [target] if target else [one.target_name for one in loaded.checked] or list(loaded.targets)
    report = Validation(
        reconciler_version=__version__,
        valid=True,
        stack=stack.name,
        target=loaded.target_name,
        targets=tuple(name for name in names if name is not None),
        jobs=len(stack.jobs),
        files=loaded.files,
        denied=tuple(jobs),
        warnings=(*skipped, *loaded.warnings, *url_warnings, *policy_warnings),
    )
    refusals = _refusals(denied, len(verdicts))
    return ValidatedStack(report, loaded, skipped, (*url_warnings, *policy_warnings, *refusals))


def _evaluate_policies(
    loaded: LoadedStack, environ: Mapping[str, str], target: str | None
) -> dict[str | None, Verdicts]:
    """Evaluate the policies for all jobs in view, as if each had to be created; the result is by target.

    Policies that need the service cannot be evaluated, and give a warning.
    """
    if not loaded.stack.policies:
        return {}
    from reconciler.decide.policies import judge_declared
    from reconciler.expressions.evaluator import Evaluator
    from reconciler.modelarts.target import known_values

    with Evaluator() as evaluate:
        return {
            name: judge_declared(
                one.stack,
                {} if name is None else known_values(name, one.targets.get(name), environ),
                evaluate,
            )
            for name, one in loaded.on_targets(target).items()
        }


def _refusals(denied: Mapping[Denial, tuple[str, ...]], targets: int) -> Iterator[Diagnostic]:
    """Yield why apply would refuse the stack; names targets unless it is all of them."""
    if not denied:
        return
    from reconciler.decide.policies import refusals_of

    by_targets: dict[tuple[str, ...], list[Denial]] = {}
    for denial, names in denied.items():
        by_targets.setdefault(names, []).append(denial)
    for names, denials in by_targets.items():
        kind = "target" if len(names) == 1 else "targets"
        where = f" ({kind} {', '.join(names)})" if names and len(names) < targets else ""
        yield from (refusal._replace(why=refusal.why + where) for refusal in refusals_of(denials))
