"""What a command does for one stack of a fleet: the same as for that stack alone, as a value."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

from reconciler import reconcile
from reconciler.connection import RecordOptions, connect, open_recording, records_url
from reconciler.core.record import REMIND_S, Scope
from reconciler.decide import exit_code
from reconciler.decide.drift import DriftReport
from reconciler.decide.drift_check import DriftId
from reconciler.decide.fleet import DriftToShow
from reconciler.decide.guards import blockers
from reconciler.decide.plan import Allowances
from reconciler.errors import Diagnostic, ExitCode, ManifestInvalid
from reconciler.manifest import LoadedStack, load_files
from reconciler.manifest.files import StackFiles
from reconciler.modelarts.target import Runtime, identity_of
from reconciler.reconcile import CheckOptions, Context
from reconciler.render import Content, render
from reconciler.render.json import redacted
from reconciler.render.style import View
from reconciler.validation import validate_stack

Render = Callable[[str, View], str]


@dataclass(frozen=True)
class StackInputs:
    """One stack: its files, the options of the command, and what runs it.

    `warn` takes what is said on stderr; `note_unmatched` and `note_undeclared` what the stack does not have
    of what was named: keys, and variables.
    """

    files: StackFiles
    options: Mapping[str, Any]
    runtime: Runtime
    warn: Callable[[tuple[Diagnostic, ...]], None]
    note_unmatched: Callable[[Any], None]
    note_undeclared: Callable[[Any], None]

    def load(self, *, offline: bool) -> LoadedStack:
        """Read the stack as it is on the target that was asked for."""
        loaded = load_files(
            self.files,
            target=self.options.get("target"),
            offline=offline,
            **self.values(),
        )
        return self.known(loaded)

    def known(self, loaded: LoadedStack) -> LoadedStack:
        """Let the redactor know the secrets of the stack; its warnings are told."""
        self.runtime.redactor.learn(loaded.secrets)
        self.note_undeclared(loaded.undeclared)
        self.warn(loaded.warnings)
        return loaded

    def values(self) -> dict[str, Any]:
        """What gives values to variables, and who learns the secret ones."""
        return {
            "variables": dict(self.options.get("variables") or ()),
            "var_files": tuple(self.options.get("var_files") or ()),
            "environ": self.runtime.environ,
            "learn": self.runtime.redactor.learn,
        }


class Finding(NamedTuple):
    """What a command found in one stack. `problems` are said beside it, on stderr."""

    stack: str | None
    target: str
    exit_code: ExitCode
    document: dict[str, Any]
    summary: Mapping[str, int]
    last_line: str
    has_changes: bool
    scopes: tuple[Scope, ...]
    render: Render
    problems: tuple[Diagnostic, ...] = ()
    notifications_failed: int = 0
    to_show: DriftToShow | None = None


def plan(inputs: StackInputs) -> Finding:
    """What apply would do."""
    options = inputs.options
    allowed = Allowances.of(options.get("allow") or (), force=bool(options.get("force")))
    with _connected(inputs, offline=False) as context:
        made = reconcile.plan(context, allowed, with_preflight=bool(options.get("preflight")))
    return Finding(
        stack=made.stack,
        target=made.target.name,
        exit_code=exit_code.of_plan(made, detailed=bool(options.get("detailed_exitcode"))),
        document=redacted(made.document(), inputs.runtime.redactor),
        summary={action.value: number for action, number in made.summary.items()},
        last_line=made.last_line,
        has_changes=bool(made.to_execute) or not made.complete or bool(made.in_the_way or made.refusals),
        scopes=(context.scope,),
        render=partial(_rendered, Content.PLAN, made),
        problems=blockers(made),
    )


def drift(inputs: StackInputs) -> Finding:
    """What changed on the service. The check is recorded; its drift counts as reported when it was shown."""
    options = inputs.options
    since_last = bool(options.get("since_last"))
    checked = CheckOptions(since_last, options.get("remind_s", REMIND_S), is_reported_later=True)
    with _connected(inputs, offline=True) as context:
        report = reconcile.drift(context, checked)
        # What no notification tells counts as reported when the report of the fleet was shown.
        failed = reconcile.notify_drift(context, report).failed if context.loaded.notifies else 0
    summary = {name.value: number for name, number in report.summary.items()}
    return Finding(
        stack=report.stack,
        target=report.target.name,
        exit_code=exit_code.of_drift(report),
        document=redacted(report.document(), inputs.runtime.redactor),
        summary={**summary, "pending": len(report.pending)},
        last_line=_rendered(Content.DRIFT, report, "text", View()).splitlines()[-1],
        has_changes=(report.is_due if since_last else bool(report.drift)) or not report.complete,
        scopes=(context.scope,),
        render=partial(_rendered, Content.DRIFT, report),
        notifications_failed=failed,
        to_show=None if context.loaded.notifies else _to_show(report, context.scope),
    )


def _to_show(report: DriftReport, scope: Scope) -> DriftToShow | None:
    """What the exit code of the report tells of."""
    comparison = report.comparison
    if comparison is None or exit_code.of_drift(report) is not ExitCode.CHANGES:
        return None
    return DriftToShow(scope, tuple(map(DriftId.of, comparison.visible)), comparison.at_s)


def mark_shown(inputs: StackInputs, shown: DriftToShow) -> None:
    """Write down that somebody has seen the drift of a check."""
    loaded = inputs.load(offline=True)
    _, target = loaded.target(inputs.options.get("target"))
    records = _records(inputs)
    url = records_url(target, records.url, loaded.records_url, inputs.runtime)
    recording = open_recording(url, loaded.root, inputs.runtime, records)
    try:
        recording.mark_reported(shown.scope, shown.drift, shown.at_s)
    finally:
        recording.close()


def validate(inputs: StackInputs) -> Finding:
    """Whether the manifest is valid, and what policies say.

    Raises:
        ManifestInvalid: it is not; there is no document of such a stack, whatever the command.
    """
    target = inputs.options.get("target")
    found = validate_stack(inputs.files, target=target, **inputs.values())
    inputs.warn(found.skipped)
    report = found.report
    if not report.valid:
        raise ManifestInvalid(*found.problems)
    if found.loaded is not None:
        inputs.known(found.loaded)
    return Finding(
        stack=report.stack,
        target=report.target or "",
        exit_code=found.exit_code,
        document=redacted(report.document(), inputs.runtime.redactor),
        summary={"jobs": report.jobs, "denied": len(report.denied)},
        last_line=report.last_line,
        has_changes=bool(report.denied),
        scopes=() if found.loaded is None else _scopes_of(found.loaded, target, inputs.runtime),
        render=partial(_rendered, Content.VALIDATION, report),
        problems=found.problems,
    )


#: What --fleet is for.
COMMANDS: Mapping[str, Callable[[StackInputs], Finding]] = {
    "validate": validate,
    "plan": plan,
    "drift": drift,
}


def _rendered(content: Content, value: object, format_: str, view: View) -> str:
    return render(content, value, format_, view)


@contextmanager
def _connected(inputs: StackInputs, *, offline: bool) -> Iterator[Context]:
    """Load the stack and connect to its target; keys that it does not have are no wrong use."""
    options, runtime = inputs.options, inputs.runtime
    loaded = inputs.load(offline=offline)
    with connect(loaded, options.get("target"), runtime, _records(inputs), offline=offline) as context:
        yield context._replace(
            only=tuple(options.get("only") or ()),
            parallelism=options.get("parallelism") or context.parallelism,
            unmatched=inputs.note_unmatched,
        )


def _records(inputs: StackInputs) -> RecordOptions:
    options = inputs.options
    url = options.get("records") or inputs.runtime.environ.get("RECONCILER_RECORDS") or None
    return RecordOptions(url, without_records=bool(options.get("without_records")))


def _scopes_of(loaded: LoadedStack, target: str | None, runtime: Runtime) -> tuple[Scope, ...]:
    """What the stack would apply to, as far as that is known without credentials."""
    found = []
    for name, declared in loaded.targets.items():
        if target in (None, name):
            with suppress(ManifestInvalid):
                identity = identity_of(name, declared, runtime.environ)
                found += [] if identity is None else [Scope.of(loaded.stack.name, identity)]
    return tuple(found)
