"""The sections `policies`, `drift` and `notify`, read where a stack has one of them.

A URL of `notify` is a secret, whatever it is made of: it is put together only where something is sent, so
that a check for drift needs no value of it.
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
from reconciler.core.scalar import Reference, parts_of, scalar_text
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
from reconciler.manifest.variables import VariableValues
from reconciler.manifest.yaml import Document
from reconciler.secrets import SecretText, whole_url_secrets


class NotifySetting(NamedTuple):
    """The entries of `notify` of a stack that could be read, each with where it stands."""

    entries: tuple[tuple[MergedEntry, NotifyEntry], ...]
    values: VariableValues
    written: tuple[str, ...]

    @classmethod
    def read(
        cls, items: Sequence[MergedEntry], values: VariableValues
    ) -> tuple[NotifySetting, list[Diagnostic]]:
        """Return the setting, and what is wrong with it whatever the environment holds."""
        entries: list[tuple[MergedEntry, NotifyEntry]] = []
        problems: list[Diagnostic] = []
        written: list[str] = []
        expander = values.expander()
        for item in items:
            entry, found = validated(NotifyEntry, item.value, item.origin)
            members = item.value if isinstance(item.value, dict) else {"": item.value}
            written += [str(one) for one in members.values() if isinstance(one, str) and "://" in one]
            url = members.get("url")
            parts = parts_of(url) if isinstance(url, str) else ()
            # Where its URL is one expression, its line holds nothing of it.
            is_reference = len(parts) == 1 and isinstance(parts[0], Reference)
            problems += found if is_reference else [one._replace(snippet=None) for one in found]
            if entry is None:
                continue
            entries.append((item, entry))
            wrong = [one for _, one in problems_in(entry.url, expander)]
            wrong = [one for one in wrong if one.what not in (ENV_NOT_SET, NO_VALUE)]
            # The URL with something in place of each expression that has no value yet.
            known = (one if isinstance(one, str) else _known(one, expander) for one in parts)
            if why := refused_url("".join(known)):
                wrong.append(Problem(_NOT_A_DESTINATION, why))
            problems += [item.diagnose(("url",), *one, show_line=False) for one in wrong]
        return cls(tuple(entries), values, tuple(written)), problems

    def destinations(self) -> tuple[Destination, ...]:
        """Where something is told, in file order; a URL without a value says why it has none."""
        expander = self.values.online().expander()
        return tuple(_destination(*entry, expander) for entry in self.entries)

    def secrets(self) -> set[str]:
        """The URLs, and what in them may be a token, as far as they are known."""
        found = (_destination(*entry, self.values.expander()).url for entry in self.entries)
        return {part for url in (*found, *self.written) if url for part in whole_url_secrets(url)}


_NOT_A_DESTINATION = "notification URL not allowed"


def _destination(item: MergedEntry, entry: NotifyEntry, expander: Expander) -> Destination:
    steps = (*item.steps, "url")
    url, problem = None, None
    try:
        if not (url := (_text(expander.text(entry.url)) or "").strip()):
            raise NoValue("wrong type", "the URL of a notification must be text with a value")
        if why := refused_url(url):
            raise NoValue(_NOT_A_DESTINATION, why)
    except NoValue as error:
        url, problem = None, item.diagnose(("url",), *error.problem, show_line=False)
    on = frozenset(entry.on or NOTIFY_CLASSES)
    return Destination(url, on, location_of_key(item.document, steps), format_path(steps), problem)


def _known(reference: Reference, expander: Expander) -> str:
    with suppress(NoValue):
        text = _text(expander.text(reference.text))
        return HOLE if text is None else text
    return HOLE


def _text(value: Any) -> str | None:
    """A value as text; None if it is none, or is not known."""
    text = scalar_text(value)
    is_known = isinstance(text, str) and not (isinstance(text, SecretText) and not text.has_value)
    return str.__str__(text) if is_known else None


def read_policies(entries: Iterable[MergedEntry]) -> tuple[tuple[Policy, ...], list[Diagnostic]]:
    """Return the policies that all files say together, in file order, and what is wrong with them."""
    problems: list[Diagnostic] = []
    policies: dict[str, Policy] = {}
    places: dict[str, Location] = {}
    valid: list[tuple[MergedEntry, PolicyEntry]] = []
    for entry in entries:
        read, found = validated(PolicyEntry, entry.value, entry.origin)
        problems += found
        if read is None:
            continue
        valid.append((entry, read))
        if read.name in places:
            why = f'the policy "{read.name}" is already defined at {places[read.name]}'
            problems.append(entry.diagnose(("name",), "duplicate policy", why, "rename one of them"))
            continue
        places[read.name] = location_of_key(entry.document, (*entry.steps, "name"))
        place = location_of_key(entry.document, (*entry.steps, read.effect.value))
        only = POLICY_ACTIONS if read.only is None else tuple(read.only)
        policies[read.name] = Policy(read.name, read.effect, read.expression, read.message or "", only, place)
    # Nothing is started for a stack without policies.
    try:
        found_invalid = find_invalid([read.expression for _, read in valid]) if valid else []
    except PackageMissing:
        # A command that asks a policy fails; `destroy` and `unlock` ask none.
        found_invalid = [None] * len(valid)
    for (entry, read), problem in zip(valid, found_invalid, strict=True):
        if problem is not None:
            steps: tuple[PathStep, ...] = (*entry.steps, read.effect.value)
            place_inside = (problem.line, problem.column)
            fix = did_you_mean(problem.unknown_name, NAMES) if problem.unknown_name else None
            problems.append(
                diagnose_inside(entry.document, steps, place_inside, "invalid expression", problem.why, fix)
            )
    return tuple(policies.values()), problems


def read_ignore_rules(
    documents: Iterable[Document], expander: Expander
) -> tuple[tuple[IgnoreRule, ...], list[Diagnostic]]:
    """Return the rules that all files say together, in file order, and what is wrong with them."""
    problems: list[Diagnostic] = []
    rules: list[IgnoreRule] = []
    for document in documents:
        value = document.tree["drift"]
        for steps, problem in problems_in(value, expander, ("drift",)):
            problems.append(diagnose(document, steps, *problem))
        partly = expand_partly(value, expander)
        section, found = validated(DriftSettings, partly, Origin.at(document, "drift"))
        problems += found
        for position, entry in enumerate(section.ignore if section else ()):
            place = location_of_key(document, ("drift", "ignore", position))
            rules.append(IgnoreRule(entry.key, entry.class_, entry.reason, entry.until, place))
    return tuple(rules), problems


# --- Cases for policies: files with a job as in a manifest, and what the policies are to say of it

#: What a case may lack: it says as much of a job as matters.
_LACKING = frozenset({"missing", "rule"})
#: What only a stack can make sense of.
_OF_A_STACK = ("extends", "matrix", "name", "state", "targets", "needs", "formerly", "max_parallel")


def read_cases(paths: Sequence[Path]) -> tuple[PolicyCase, ...]:
    """Read the cases that PATH names, or that lie in the directories it names, in the order of their files.

    Raises:
        WrongUsage: a path does not exist, or there is no case.
        ManifestInvalid: with the problems of all cases, in file order.
    """
    problems: list[Diagnostic] = []
    cases: list[PolicyCase] = []
    found = manifest_files(paths, lambda document: document.is_case)
    for document in sorted(found, key=lambda document: document.path.parts):
        document.may_show_lines = True
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
