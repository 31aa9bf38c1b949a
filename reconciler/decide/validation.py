"""What a check of a manifest found, as a document: problems, what policies deny, and warnings.

`Validation` crosses the process boundary (`validate --json`), so it is a frozen model with a schema.
"""

from __future__ import annotations

from typing import Any

from pydantic import Field

from reconciler.core.values import FORMAT_VERSION, Denial, Frozen, Source
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
        files = format_count(len(self.files), "file")
        about = f"stack {self.stack}, " if self.stack else ""
        if not self.valid:
            return f"Invalid: {about}{format_count(len(self.diagnostics), 'problem')}, {files}."
        denied = len({denial.key for denial in self.denied})
        said = f" {denied} job{' is' if denied == 1 else 's are'} denied by a policy." if denied else ""
        return f"Valid: {about}{format_count(self.jobs, 'job')} in view, {files}.{said}"
