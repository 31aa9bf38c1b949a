"""The policies of a stack, asked without the service: about every job as if it had to be created."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from reconciler.core.values import PlanWarning, few_of_a_kind
from reconciler.decide.plan import Denial
from reconciler.decide.policy_subject import Surroundings
from reconciler.decide.policy_verdict import Verdicts, judge_declared, refusals_of
from reconciler.errors import Diagnostic, Severity
from reconciler.expressions.evaluator import Evaluator
from reconciler.manifests import LoadedStack
from reconciler.modelarts.target import known_values


@dataclass(frozen=True, slots=True)
class PolicyCheck:
    """What the policies say on each target that was checked, by its name."""

    by_target: Mapping[str | None, Verdicts]

    @property
    def denied(self) -> dict[Denial, tuple[str, ...]]:
        """What is denied, and on which targets."""
        found: dict[Denial, tuple[str, ...]] = {}
        for name, verdicts in self.by_target.items():
            for denial in verdicts.denied:
                found[denial] = (*found.get(denial, ()), *(() if name is None else (name,)))
        return found

    @property
    def warnings(self) -> tuple[Diagnostic, ...]:
        """What is warned of on any target, each once."""
        verdicts = self.by_target.values()
        said = (one for found in verdicts for one in found.warnings)
        return tuple(map(_as_diagnostic, few_of_a_kind(dict.fromkeys(said))))

    @property
    def refusals(self) -> tuple[Diagnostic, ...]:
        """Why apply would refuse the stack; the targets are named where not all of them are meant."""
        by_targets: dict[tuple[str, ...], list[Denial]] = {}
        for denial, names in self.denied.items():
            by_targets.setdefault(names, []).append(denial)
        return tuple(
            self._on(names, refusal) for names, found in by_targets.items() for refusal in refusals_of(found)
        )

    def _on(self, names: tuple[str, ...], refusal: Diagnostic) -> Diagnostic:
        if len(names) == len(self.by_target) or not names:
            return refusal
        kind = "target" if len(names) == 1 else "targets"
        return refusal._replace(why=f"{refusal.why} ({kind} {', '.join(names)})")


def surroundings_of(loaded: LoadedStack, environ: Mapping[str, str]) -> Surroundings:
    """What policies see beside the job: the stack, and the target that it was read for."""
    name = loaded.target_name
    target = {} if name is None else known_values(name, loaded.targets.get(name), environ)
    return Surroundings(loaded.stack.name, target)


def _as_diagnostic(warning: PlanWarning) -> Diagnostic:
    path = f"jobs.{warning.key}" if warning.key else ""
    return Diagnostic(warning.what, warning.why, warning.fix, path=path, severity=Severity.WARNING)


def check_policies(
    loaded: LoadedStack, environ: Mapping[str, str], *, target: str | None = None
) -> PolicyCheck:
    """Ask the policies about all jobs in view, on every target that was checked, or on one.

    Only a plan can ask those that need what nobody but the service knows; they are a warning.
    """
    if not loaded.stack.policies:
        return PolicyCheck({})
    with Evaluator() as evaluate:
        return PolicyCheck(
            {
                name: judge_declared(
                    one.stack,
                    {} if name is None else known_values(name, one.targets.get(name), environ),
                    evaluate,
                )
                for name, one in _targets(loaded, target)
            }
        )


def _targets(loaded: LoadedStack, target: str | None) -> Iterator[tuple[str | None, LoadedStack]]:
    if loaded.checked:
        yield from ((one.target_name, one) for one in loaded.checked)
    elif target is not None or len(loaded.targets) < 2:
        yield loaded.target_name, loaded
    else:
        yield from ((name, loaded) for name in loaded.targets)
