"""The result of checking a manifest, as a document: problems, denials by policies, and warnings.

`Validation` crosses the process boundary (`validate --json`), so it is a frozen model.
"""

from __future__ import annotations

from typing import Any

from reconciler.core.values import FORMAT_VERSION, Denial, Frozen, Source
from reconciler.errors import Diagnostic
from reconciler.secrets import show
from reconciler.text import format_count


class DeniedJob(Denial):
    """A job that a policy denies, as if it had to be created."""

    targets: tuple[str, ...] = ()
    job: Source | None = None


class Validation(Frozen):
    """The result of checking a manifest. `valid` is about the manifest alone, whatever policies deny."""

    format_version: str = FORMAT_VERSION
    reconciler_version: str
    valid: bool
    stack: str | None = None
    target: str | None = None
    targets: tuple[str, ...] = ()
    jobs: int = 0
    files: tuple[str, ...] = ()
    diagnostics: tuple[Diagnostic, ...] = ()
    denied: tuple[DeniedJob, ...] = ()
    warnings: tuple[Diagnostic, ...] = ()

    def document(self) -> dict[str, Any]:
        """Return the report as plain JSON data, as `validate --json` prints it, without secrets."""
        document = self.model_dump(mode="json")
        document["diagnostics"] = [one.document() for one in self.diagnostics]
        document["warnings"] = [one.document() for one in self.warnings]
        shown: dict[str, Any] = show(document)
        return shown

    @property
    def last_line(self) -> str:
        files = format_count(len(self.files), "file")
        prefix = f"stack {self.stack}, " if self.stack else ""
        if not self.valid:
            return f"Invalid: {prefix}{format_count(len(self.diagnostics), 'problem')}, {files}."
        denied = len({denial.key for denial in self.denied})
        denials = f" {denied} job{' is' if denied == 1 else 's are'} denied by a policy." if denied else ""
        return f"Valid: {prefix}{format_count(self.jobs, 'job')} in view, {files}.{denials}"
