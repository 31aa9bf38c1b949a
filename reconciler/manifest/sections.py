"""The sections `policies`, `drift` and `notify`. Imported only if a stack has one of them.

A URL of `notify` is always a secret. It is only expanded to send a notification, so that a drift check does
not need its values.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

from pydantic import ValidationError

from reconciler.core.addresses import HOLE
from reconciler.core.body import create_body, desugar
from reconciler.core.lifecycle import Lifecycle
from reconciler.core.policy_expression import NAMES
from reconciler.core.scalar import Reference, parts_of
from reconciler.core.settings import (
    NOTIFY_CLASSES,
    Destination,
    DriftSettings,
    NotifyEntry,
    PolicyEntry,
    refused_url,
)
from reconciler.core.stack import POLICY_ACTIONS, DesiredJob, IgnoreRule, JobEntry, Policy
from reconciler.decide.policies import CaseFile, PolicyCase
from reconciler.errors import Diagnostic, Location, ManifestInvalid, PackageMissing, WrongUsage, in_file_order
from reconciler.expressions.evaluator import find_invalid
from reconciler.manifest.expressions import Expander, expand_partly, problems_in
from reconciler.manifest.files import manifest_files
from reconciler.manifest.merge import MergedEntry
from reconciler.manifest.problems import (
    ENV_NOT_SET,
    NO_VALUE,
    SECONDARY_ERRORS,
    NoValue,
    Origin,
    PathStep,
    Problem,
    diagnose,
    diagnose_inside,
    diagnostics,
    did_you_mean,
    format_path,
    location_of_key,
    raw_problems,
    validated,
)
from reconciler.manifest.settings import known_text
from reconciler.manifest.variables import VariableValues
from reconciler.manifest.yaml import Document
from reconciler.secrets import whole_url_secrets


class NotifySetting(NamedTuple):
    """The valid entries of `notify`, with their origin. `written` are the literal URLs of all entries."""

    entries: tuple[tuple[MergedEntry, NotifyEntry], ...]
    values: VariableValues
    written: tuple[str, ...]

    @classmethod
    def read(
        cls, items: Sequence[MergedEntry], values: VariableValues
    ) -> tuple[NotifySetting, list[Diagnostic]]:
        """Return the setting and its problems, ignoring values that are not set."""
        entries: list[tuple[MergedEntry, NotifyEntry]] = []
        problems: list[Diagnostic] = []
        written: list[str] = []
        expander = values.expander()
        for item in items:
            entry, invalid = validated(NotifyEntry, item.value, item.origin)
            members = item.value if isinstance(item.value, dict) else {"": item.value}
            written += [str(text) for text in members.values() if isinstance(text, str) and "://" in text]
            url = members.get("url")
            parts = parts_of(url) if isinstance(url, str) else ()
            # If the URL is a single expression, its line can be shown.
            is_reference = len(parts) == 1 and isinstance(parts[0], Reference)
            problems += invalid if is_reference else [problem._replace(snippet=None) for problem in invalid]
            if entry is None:
                continue
            entries.append((item, entry))
            refused = [problem for _, problem in problems_in(entry.url, expander)]
            refused = [problem for problem in refused if problem.what not in (ENV_NOT_SET, NO_VALUE)]
            known = (part if isinstance(part, str) else _known(part, expander) for part in parts)
            if why := refused_url("".join(known)):
                refused.append(Problem(_NOT_A_DESTINATION, why))
            problems += [item.diagnose(("url",), *problem, show_line=False) for problem in refused]
        return cls(tuple(entries), values, tuple(written)), problems

    def destinations(self) -> tuple[Destination, ...]:
        """Return the destinations in file order. One whose URL has no value has a `problem`."""
        expander = self.values.online().expander()
        return tuple(_destination(*entry, expander) for entry in self.entries)

    def secrets(self) -> set[str]:
        """Return the known URLs, and their parts that may be a token."""
        urls = (_destination(*entry, self.values.expander()).url for entry in self.entries)
        return {part for url in (*urls, *self.written) if url for part in whole_url_secrets(url)}


_NOT_A_DESTINATION = "notification URL not allowed"


def _destination(item: MergedEntry, entry: NotifyEntry, expander: Expander) -> Destination:
    steps = (*item.steps, "url")
    url, problem = None, None
    try:
        if not (url := (known_text(expander.text(entry.url)) or "").strip()):
            raise NoValue("wrong type", "the URL of a notification must be text with a value")
        if why := refused_url(url):
            raise NoValue(_NOT_A_DESTINATION, why)
    except NoValue as error:
        url, problem = None, item.diagnose(("url",), *error.problem, show_line=False)
    on = frozenset(entry.on or NOTIFY_CLASSES)
    return Destination(url, on, location_of_key(item.document, steps), format_path(steps), problem)


def _known(reference: Reference, expander: Expander) -> str:
    """Return the text of an expression, or a placeholder if it has no value yet."""
    with suppress(NoValue):
        text = known_text(expander.text(reference.text))
        return HOLE if text is None else text
    return HOLE


def read_policies(entries: Iterable[MergedEntry]) -> tuple[tuple[Policy, ...], list[Diagnostic]]:
    """Return the policies of all files, in file order, and their problems."""
    problems: list[Diagnostic] = []
    policies: dict[str, Policy] = {}
    places: dict[str, Location] = {}
    valid: list[tuple[MergedEntry, PolicyEntry]] = []
    for entry in entries:
        rule, invalid = validated(PolicyEntry, entry.value, entry.origin)
        problems += invalid
        if rule is None:
            continue
        valid.append((entry, rule))
        if rule.name in places:
            why = f'the policy "{rule.name}" is already defined at {places[rule.name]}'
            problems.append(entry.diagnose(("name",), "duplicate policy", why, "rename one of them"))
            continue
        places[rule.name] = location_of_key(entry.document, (*entry.steps, "name"))
        place = location_of_key(entry.document, (*entry.steps, rule.effect.value))
        only = POLICY_ACTIONS if rule.only is None else tuple(rule.only)
        policies[rule.name] = Policy(rule.name, rule.effect, rule.expression, rule.message or "", only, place)
    # Without policies, the evaluator is not started.
    try:
        expression_problems = find_invalid([rule.expression for _, rule in valid]) if valid else []
    except PackageMissing:
        # Commands that evaluate policies will fail; `destroy` and `unlock` do not.
        expression_problems = [None] * len(valid)
    for (entry, rule), problem in zip(valid, expression_problems, strict=True):
        if problem is not None:
            steps: tuple[PathStep, ...] = (*entry.steps, rule.effect.value)
            position = (problem.line, problem.column)
            fix = did_you_mean(problem.unknown_name, NAMES) if problem.unknown_name else None
            problems.append(
                diagnose_inside(entry.document, steps, position, "invalid expression", problem.why, fix)
            )
    return tuple(policies.values()), problems


def read_ignore_rules(
    documents: Iterable[Document], expander: Expander
) -> tuple[tuple[IgnoreRule, ...], list[Diagnostic]]:
    """Return the `drift.ignore` rules of all files, in file order, and their problems."""
    problems: list[Diagnostic] = []
    rules: list[IgnoreRule] = []
    for document in documents:
        value = document.tree["drift"]
        for steps, problem in problems_in(value, expander, ("drift",)):
            problems.append(diagnose(document, steps, *problem))
        partly = expand_partly(value, expander)
        section, invalid = validated(DriftSettings, partly, Origin.at(document, "drift"))
        problems += invalid
        for position, entry in enumerate(section.ignore if section else ()):
            place = location_of_key(document, ("drift", "ignore", position))
            rules.append(IgnoreRule(entry.key, entry.class_, entry.reason, entry.until, place))
    return tuple(rules), problems


# --- Policy cases: files with a job as in a manifest, and the expected verdict of the policies

#: Fields that need a stack.
_STACK_FIELDS = ("extends", "matrix", "name", "state", "targets", "needs", "formerly", "max_parallel")


def read_cases(paths: Sequence[Path]) -> tuple[PolicyCase, ...]:
    """Read the cases in the files and directories of PATH, sorted by path.

    Raises:
        WrongUsage: a path does not exist, or there is no case.
        ManifestInvalid: with the problems of all cases, in file order.
    """
    problems: list[Diagnostic] = []
    cases: list[PolicyCase] = []
    documents = manifest_files(paths, lambda document: document.is_case)
    for document in sorted(documents, key=lambda document: document.path.parts):
        document.may_show_lines = True
        case, case_problems = _read(document)
        problems += case_problems
        if case is not None:
            cases.append(case)
    if problems:
        raise ManifestInvalid(*in_file_order(problems))
    if not cases:
        why = f"no YAML file at {', '.join(map(str, paths or [Path()]))} has both job: and expect:"
        raise WrongUsage(Diagnostic("no policy cases", why, "reconciler policies test --help"))
    return tuple(cases)


def _read(document: Document) -> tuple[PolicyCase | None, list[Diagnostic]]:
    if document.problems:
        return None, document.problems
    case, problems = validated(CaseFile, document.tree, Origin.at(document))
    if case is None:
        return None, problems
    job = desugar(case.job)
    problems = list(_job_problems(document, job))
    if problems:
        return None, problems
    key = case.key or document.path.stem
    lifecycle = Lifecycle.model_validate(job.get("lifecycle") or {})
    body = create_body(job)
    description = job.get("description") or ""
    return PolicyCase(document.file, case, DesiredJob(key, body, "", description, lifecycle)), []


def _job_problems(document: Document, job: dict[str, Any]) -> Iterator[Diagnostic]:
    for name in _STACK_FIELDS:
        if name in job:
            why = f"a case is a single new job; {name} needs a stack"
            yield diagnose(document, ("job", name), "not allowed in a case", why, at_key=True)
    try:
        JobEntry.model_validate(job)
    except ValidationError as error:
        # A case needs only the relevant fields of a job.
        yield from diagnostics(error, JobEntry, job, Origin.at(document, "job"), SECONDARY_ERRORS)
    yield from raw_problems(job.get("raw"), Origin.at(document, "job"))
