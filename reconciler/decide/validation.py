"""What a check of a manifest found, as a document: problems, what policies deny, and warnings.

`Validation` crosses the process boundary (`validate --json`), so it is a frozen model with a schema.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from pydantic import Field

from reconciler.core.stack import Stack
from reconciler.core.values import (
    FORMAT_VERSION,
    Frozen,
    Source,
)
from reconciler.decide.plan import (
    Denial,
)
from reconciler.errors import Diagnostic, Severity
from reconciler.secrets import show
from reconciler.text import format_count


class ProblemLine(Frozen):
    """The line that a problem is in: `length` characters from `start` (0-based) on are meant."""

    text: str
    start: int
    length: int


class ManifestProblem(Frozen):
    """One problem of the manifest, or a warning."""

    what: str = Field(description="The same words for the same problem.")
    why: str = Field("", description="The specifics.")
    fix: str | None = Field(None, description="How to fix it; null: not known.")
    location: Source | None = Field(None, description="Location in the manifest.")
    path: str = Field("", description="Path of the key, such as jobs.resnet50.spec.resource.")
    snippet: ProblemLine | None = Field(None, description="The line of the file.")
    severity: Severity = Field(Severity.ERROR, description="Whether the manifest is invalid because of it.")

    @classmethod
    def of(cls, diagnostic: Diagnostic) -> ManifestProblem:
        """Take over a diagnostic."""
        line = diagnostic.snippet
        return cls(
            what=diagnostic.what,
            why=diagnostic.why,
            fix=diagnostic.fix,
            location=Source.of(diagnostic.location),
            path=diagnostic.path,
            snippet=line and ProblemLine(text=line.text, start=line.start, length=line.length),
            severity=diagnostic.severity,
        )


class DeniedJob(Denial):
    """A job that a policy denies, as if it had to be created."""

    targets: tuple[str, ...] = Field((), description="Targets on which it is denied.")
    job: Source | None = Field(None, description="Location of the job in the manifest.")


class Validation(Frozen):
    """What a check of a manifest found. `valid` is about the manifest alone, whatever policies deny."""

    format_version: str = Field(
        FORMAT_VERSION, pattern=r"^\d+\.\d+$", description="Version of the document format."
    )
    reconciler_version: str = Field(description="Version of reconciler that created it.")
    valid: bool = Field(description="Whether the manifest has no problem.")
    stack: str | None = Field(None, description="The ownership scope; null: it could not be read.")
    target: str | None = Field(None, description="Name of the target that was asked for, or the default.")
    targets: tuple[str, ...] = Field((), description="Targets on which it was checked.")
    jobs: int = Field(0, description="How many jobs are in view; 0 if the manifest is invalid.")
    files: tuple[str, ...] = Field((), description="Files of the stack.")
    diagnostics: tuple[ManifestProblem, ...] = Field((), description="Problems, in file order.")
    denied: tuple[DeniedJob, ...] = Field((), description="Jobs that policies deny.")
    warnings: tuple[ManifestProblem, ...] = Field((), description="Warnings.")

    def document(self) -> dict[str, Any]:
        """The report as plain JSON data, as `validate --json` shows it. No secret is in it."""
        document: dict[str, Any] = show(self.model_dump(mode="json"))
        return document

    @property
    def last_line(self) -> str:
        """What was found, in a line."""
        files = format_count(len(self.files), "file")
        if self.valid:
            return (
                f"Valid: stack {self.stack}, {format_count(self.jobs, 'job')} in view, {files}.{self._denied}"
            )
        about = f"stack {self.stack}, " if self.stack else ""
        return f"Invalid: {about}{format_count(len(self.diagnostics), 'problem')}, {files}."

    @property
    def _denied(self) -> str:
        keys = {denial.key for denial in self.denied}
        if not keys:
            return ""
        return f" {'1 job is' if len(keys) == 1 else f'{len(keys)} jobs are'} denied by a policy."


class StackFacts(NamedTuple):
    """What was checked, as far as it is known."""

    version: str
    stack: str | None
    target: str | None
    targets: tuple[str, ...]
    files: tuple[str, ...]


def invalid_manifest(facts: StackFacts, problems: Iterable[Diagnostic]) -> Validation:
    """The report about a manifest that is invalid."""
    return Validation(
        reconciler_version=facts.version,
        valid=False,
        stack=facts.stack,
        target=facts.target,
        targets=facts.targets,
        files=facts.files,
        diagnostics=tuple(map(ManifestProblem.of, problems)),
    )


def valid_manifest(
    facts: StackFacts,
    stack: Stack,
    denied: Mapping[Denial, tuple[str, ...]],
    warnings: Iterable[Diagnostic],
) -> Validation:
    """The report about a manifest that is valid; `denied` says of each denial on which targets it holds."""
    return Validation(
        reconciler_version=facts.version,
        valid=True,
        stack=facts.stack,
        target=facts.target,
        targets=facts.targets,
        jobs=len(stack.jobs),
        files=facts.files,
        denied=tuple(_denied_job(stack, denial, targets) for denial, targets in denied.items()),
        warnings=tuple(map(ManifestProblem.of, warnings)),
    )


def _denied_job(stack: Stack, denial: Denial, targets: tuple[str, ...]) -> DeniedJob:
    job = stack.find(denial.key)
    place = None if job is None else Source.of(job.location)
    return DeniedJob(**dict(denial), targets=targets, job=place)
