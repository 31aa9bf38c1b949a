"""The part of an entry that would make a declaration equal to a job: what `adopt` shows where they differ.

Merged over the entry it leaves no difference: it says what the job has, and null for what the job has not.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from reconciler.core.aliases import one_spelling
from reconciler.core.body import create_body, desugar, manifest_form, merge
from reconciler.core.canonical import Canonical, FieldRule, canonical, rules, split
from reconciler.core.diff import changes_between, comparable_with_details, differing_paths
from reconciler.core.digest import RERUN
from reconciler.core.expression import save
from reconciler.core.manifest_entry import manifest_entry
from reconciler.core.observed_job import ObservedJob
from reconciler.core.secret_variables import SecretVariables
from reconciler.core.stack import DesiredJob
from reconciler.core.values import Change

_Path = tuple[str, ...]
#: A difference that goes on once its values are those of the job is tried with more of what surrounds it.
_DEPTHS = (2, 1)
#: A path that is longer leads into an object with several ways to say something: `algorithm.engine`.
_OF_AN_OBJECT = 2


class JobComparison(NamedTuple):
    """A job beside a declaration, as far as the service reports it.

    `changes` lead from the job to the declaration, `paths` are their places in a canonical form. What is
    declared and not reported is `unreported`; `secrets` are sensitive values that the job has otherwise.
    """

    changes: tuple[Change, ...] = ()
    paths: tuple[_Path, ...] = ()
    unreported: tuple[str, ...] = ()
    secrets: tuple[str, ...] = ()


@dataclass(frozen=True)
class EntryPatch:
    """What the entry of a key has to say, secrets by the variables that `variables` declares."""

    key: str
    entry: Mapping[str, Any]
    variables: Mapping[str, Any]

    @property
    def says_null(self) -> bool:
        """Whether something has to go from the entry."""
        return _says_null(self.entry)

    @property
    def tree(self) -> dict[str, Any]:
        """The same as a part of a manifest."""
        declared = {"variables": self.variables} if self.variables else {}
        return {**declared, "jobs": {self.key: self.entry}}


def compare_with_job(desired: DesiredJob, job: ObservedJob) -> JobComparison:
    """Compare what a digest covers of a declaration with the details of a job that nobody declared.

    What only the service sets is passed over: docs/semantics.md, "Comparison".
    """
    return _compare(desired.covered_by(desired.digest[:1]), job)


def _compare(wanted: Canonical, job: ObservedJob) -> JobComparison:
    wanted = {name: value for name, value in wanted.items() if name != RERUN}
    found = comparable_with_details(split(canonical(_reported(job))).immutable, wanted)
    return JobComparison(
        changes_between(found.before, found.after, forces_new_job=True),
        differing_paths(found.before, found.after),
        found.unreported,
        tuple(change.path for change in found.secrets),
    )


def _reported(job: ObservedJob) -> dict[str, Any]:
    return one_spelling(manifest_form(job.body))


def entry_patch(
    desired: DesiredJob, job: ObservedJob, stack: str, secrets: Collection[str] = ()
) -> EntryPatch:
    """Return what an entry has to say instead, so that it declares the job as it is.

    `secrets` are values that are known to be secret; others are recognized by name or look.

    Raises:
        NotDeclarable: no entry can declare the job.
    """
    variables = SecretVariables()
    entry = manifest_entry(
        job, stack=stack, key=desired.key, variables=variables, is_secret=lambda text: text in secrets
    )
    paths: set[_Path] = set(compare_with_job(desired, job).paths)
    patch = _at_places(paths, entry.tree, job)
    for depth in _DEPTHS:
        left = _compare(_patched(desired, patch), job).paths
        if not left:
            break
        paths |= {*left, *(path[:depth] for path in left)}
        patch = _at_places(paths, entry.tree, job)
    written = save(_sugared(patch))
    return EntryPatch(desired.key, written, variables.declarations([written]))


def _patched(desired: DesiredJob, patch: Mapping[str, Any]) -> Canonical:
    """What a digest would cover of an entry with the patch merged over it."""
    own = {name: value for name, value in patch.items() if name != "raw"}
    merged = merge(manifest_form(desired.body or {}), desugar(own))
    return split(canonical(manifest_form(create_body({**merged, "raw": patch.get("raw")})))).immutable


def _at_places(paths: Iterable[_Path], entry: Mapping[str, Any], job: ObservedJob) -> dict[str, Any]:
    patch: dict[str, Any] = {}
    for path in sorted(paths):
        is_known = _is_known(path)
        part = _part(entry, path, rules()) if is_known else _part(_reported(job), path, FieldRule())
        raw = _part(entry.get("raw") or {}, path, FieldRule())
        if not _ends_in_null(raw):  # the models know the field, and not the value that the job has
            patch = _joined(patch, {"raw": raw})
            continue
        patch = _joined(patch, part if is_known else {"raw": part})
        if is_known and len(path) > _OF_AN_OBJECT and _ends_in_null(part) and not _is_named(path[:-1]):
            # One way to say something goes, and the other one, which the job has, comes.
            patch = _joined(patch, _part(entry, path[:-1], rules()))
    return patch


def _part(value: Any, path: Sequence[str], rule: FieldRule) -> Any:
    """What stands at a place, below the names that lead there; null for nothing, or else its default."""
    name, *below = path
    is_argument, rule = rule.keyed_by == "name", _rule_of(name, rule)
    inner = value.get(name)
    if is_argument and below and inner is not None:
        # Whole: merged over another one, an argument of nulls would take that away.
        inner = _unsugared(inner, rule)
        return {name: _joined(inner, _part(inner, below, rule))}
    if inner is None and rule.default is not None:
        inner = rule.scalar(rule.default) if rule.scalar in (int, float) else rule.default
        inner = inner == "true" if rule.scalar is bool else inner
    return {name: _part(inner, below, rule) if below and isinstance(inner, Mapping) else inner}


def _unsugared(argument: Any, rule: FieldRule) -> Any:
    """A parameter, an input or an output with its fields."""
    if isinstance(argument, Mapping):
        return argument
    return {"value": argument} if "value" in rule.members else {"remote": {"obs": {"obs_url": argument}}}


def _ends_in_null(part: Any) -> bool:
    while isinstance(part, Mapping) and len(part) == 1:
        [part] = part.values()
    return part is None


def _is_named(path: _Path) -> bool:
    """Whether the members of a place are people's own."""
    rule = rules()
    for name in path:
        rule = _rule_of(name, rule)
    return rule.has_named_members


def _rule_of(name: str, rule: FieldRule) -> FieldRule:
    return (rule.item or rule.others) if rule.has_named_members else rule.member(name)


def _is_known(path: _Path) -> bool:
    """Whether the models know the place; others are declared by `raw`."""
    rule = rules()
    for name in path:
        if rule.has_named_members:
            rule = rule.item or rule.others
        elif name not in rule.members:
            return False
        else:
            rule = rule.members[name]
    return True


def _joined(one: Any, other: Any) -> Any:
    """Both patches; where both speak of a value, what is there goes before null."""
    if isinstance(one, Mapping) and isinstance(other, Mapping):
        both = {name: _joined(one[name], other[name]) for name in one if name in other}
        return {**one, **other, **both}
    return one if other is None else other


def _sugared(value: Any) -> Any:
    """The patch with arguments that have a value only as that value."""
    if isinstance(value, Mapping):
        if value.keys() == {"value"}:
            return value["value"]
        return {name: _sugared(member) for name, member in value.items()}
    return value


def _says_null(value: Any) -> bool:
    if isinstance(value, Mapping):
        return any(map(_says_null, value.values()))
    return any(map(_says_null, value)) if isinstance(value, list) else value is None
