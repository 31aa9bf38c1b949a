"""What a check of a manifest found, as a document: problems, what policies deny, and warnings.

`Validation` crosses the process boundary (`validate --json`), so it is a frozen model.
"""

from __future__ import annotations

from typing import Any

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

    what: str
    why: str = ""
    fix: str | None = None
    location: Source | None = None
    path: str = ""
    snippet: ProblemLine | None = None
    severity: Severity = Severity.ERROR

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

    targets: tuple[str, ...] = ()
    job: Source | None = None


class Validation(Frozen):
    """What a check of a manifest found. `valid` is about the manifest alone, whatever policies deny."""

    format_version: str = FORMAT_VERSION
    reconciler_version: str
    valid: bool
    stack: str | None = None
    target: str | None = None
    targets: tuple[str, ...] = ()
    jobs: int = 0
    files: tuple[str, ...] = ()
    diagnostics: tuple[ManifestProblem, ...] = ()
    denied: tuple[DeniedJob, ...] = ()
    warnings: tuple[ManifestProblem, ...] = ()

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
