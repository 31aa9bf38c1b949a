"""Cases for policies: files with a job as in a manifest, and what the policies are to say of it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from reconciler.core.body import create_body, desugar
from reconciler.core.lifecycle import Lifecycle
from reconciler.core.stack import DesiredJob, JobEntry
from reconciler.decide.policies import CaseFile, PolicyCase
from reconciler.errors import Diagnostic, ManifestInvalid, WrongUsage, in_file_order
from reconciler.manifest.files import case_files
from reconciler.manifest.problems import Origin, diagnose, diagnostics, raw_problems, validated
from reconciler.manifest.yaml import Document

#: What a case may lack: it says as much of a job as matters.
_LACKING = frozenset({"missing", "rule"})
#: What only a stack can make sense of.
_OF_A_STACK = ("extends", "matrix", "name", "state", "needs", "formerly")


def read_cases(paths: Sequence[Path]) -> tuple[PolicyCase, ...]:
    """Read the cases that PATH names, or that lie in the directories it names, in the order of their files.

    Raises:
        WrongUsage: a path does not exist, or there is no case.
        ManifestInvalid: with the problems of all cases, in file order.
    """
    problems: list[Diagnostic] = []
    cases: list[PolicyCase] = []
    for document in sorted(case_files(paths), key=lambda document: document.path.parts):
        document.shows_lines = True
        read, wrong = _read(document)
        problems += wrong
        if read is not None:
            cases.append(read)
    if problems:
        raise ManifestInvalid(*in_file_order(problems))
    if not cases:
        why = f"no YAML file at {', '.join(map(str, paths or [Path()]))} has both job: and expect:"
        raise WrongUsage(Diagnostic("no policy cases", why, "reconciler policies test --help"))
    return tuple(cases)


def _read(document: Document) -> tuple[PolicyCase | None, list[Diagnostic]]:
    if document.problems:
        return None, document.problems
    says, problems = validated(CaseFile, document.tree, Origin.at(document))
    if says is None:
        return None, problems
    job = desugar(says.job)
    problems = list(_job_problems(document, job))
    if problems:
        return None, problems
    key = says.key or document.path.stem
    lifecycle = Lifecycle.model_validate(job.get("lifecycle") or {})
    body = create_body(job)
    description = job.get("description") or ""
    return PolicyCase(document.file, says, DesiredJob(key, body, "", description, lifecycle)), []


def _job_problems(document: Document, job: dict[str, Any]) -> Iterator[Diagnostic]:
    """What is wrong with the job of a case, apart from what it lacks."""
    for name in _OF_A_STACK:
        if name in job:
            why = f"a case is one job that starts; {name} says more than that"
            yield diagnose(document, ("job", name), "not allowed in a case", why, at_key=True)
    try:
        JobEntry.model_validate(job)
    except ValidationError as error:
        yield from diagnostics(error, JobEntry, job, Origin.at(document, "job"), _LACKING)
    yield from raw_problems(job.get("raw"), Origin.at(document, "job"))
