"""An entry for a job that exists, added to a manifest file: what `adopt --write` does before it adopts.

The file is written when all has been planned and confirmed, as if it had been written before.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from reconciler.adoption import AdoptionPlan, adopt_plan, read_job
from reconciler.core.entry import ManifestEntry, NotDeclarable, manifest_entry
from reconciler.core.identity import key_problem
from reconciler.core.secret_variables import IsSecret, SecretVariables
from reconciler.core.stack import Stack
from reconciler.core.values import PlanWarning
from reconciler.errors import Diagnostic, ManifestInvalid, Refused, WrongUsage
from reconciler.files import write_file
from reconciler.manifest import LoadedStack
from reconciler.manifest.files import StackFiles
from reconciler.manifest.format import insert_members
from reconciler.manifest.yaml import Document, read_manifest_file
from reconciler.reconcile import Context, survey

#: Reads the stack as if a file held something else, with values for variables that have none.
LoadEdited = Callable[[Mapping[Path, bytes], Mapping[str, str]], LoadedStack]
#: What an entry says of itself, and not of its job.
_OF_THE_ENTRY = frozenset({"description", "lifecycle", "raw", "state"})


@dataclass(frozen=True)
class JobDeclaration:
    """The plan that adopts a job, and the file with its entry that the plan rests on."""

    adoption: AdoptionPlan
    context: Context
    document: Document
    data: bytes
    tree: Mapping[str, Any]

    def write(self) -> None:
        """Write the file.

        Raises:
            Refused: somebody has edited it meanwhile.
        """
        if read_manifest_file(self.document.path) != self.document.data:
            why = f"{self.document.file} was edited in the meantime; nothing was changed"
            raise Refused(Diagnostic("the manifest has changed", why, "run it again"))
        write_file(self.document.path, self.data)


def file_to_edit(files: StackFiles, named: Path | None) -> Document:
    """The file of a stack that is to hold a new entry: the one that is named, else the root file.

    Raises:
        WrongUsage: the stack has no such file.
    """
    if named is None:
        return next(document for document in files.documents if document.says_stack)
    found = [document for document in files.documents if document.path == named.resolve()]
    if not found:
        there = ", ".join(document.file for document in files.documents)
        raise WrongUsage(
            Diagnostic("no such manifest file", f"{named} is no file of the stack; there are: {there}")
        )
    return found[0]


def declare_job(
    context: Context,
    key: str,
    job_id: str,
    files: StackFiles,
    document: Document,
    load: LoadEdited,
    is_secret: IsSecret = lambda _: False,
) -> JobDeclaration:
    """Make the entry of a job, put it into a file, and plan with that.

    What the entry inherits from defaults and the job does not have is taken away in it.

    Raises:
        WrongUsage: the key is declared already, or cannot be a key.
        Refused: no entry can declare the job.
        ManifestInvalid: the file has no place for the entry, or the stack is not valid with it.
    """
    stack = context.loaded.stack
    _check_new_key(stack, key)
    seen, _ = survey(context)
    job = read_job(context, key, job_id, seen)
    variables = SecretVariables(_declared_variables(files.documents))
    try:
        entry = manifest_entry(job, stack=stack.name, key=key, variables=variables, is_secret=is_secret)
    except NotDeclarable as refusal:
        raise Refused(Diagnostic("no manifest can declare the job", f"{job.name}: {refusal.why}")) from None
    tree = entry.written()
    while True:
        sections: dict[str, Any] = {"variables": variables.declarations([tree]), "jobs": {key: tree}}
        data = insert_members(document, {name: members for name, members in sections.items() if members})
        try:
            edited = context._replace(loaded=load({document.path: data}, variables.value_by_name))
        except ManifestInvalid:
            # What the entry inherits may exclude what the job has: an engine by its id, an image of its own.
            alone = _without_inherited(tree, _inherited(files.documents, context.loaded.target_name))
            if alone == tree:
                raise
            tree = alone
            continue
        adoption = adopt_plan(edited, key, job_id)
        more = _without(tree, adoption.patches[0].entry) if adoption.patches else tree
        if more == tree:
            break
        tree = more
    plan = adoption.plan
    told = plan.model_copy(update={"warnings": (*plan.warnings, *_warnings(entry, variables))})
    shown = {name: members for name, members in sections.items() if members}
    return JobDeclaration(adoption._replace(plan=told), edited, document, data, shown)


def _check_new_key(stack: Stack, key: str) -> None:
    if key in stack.whole or key in stack.jobs:
        why = f'"{key}" is a declared key of stack {stack.name}'
        raise WrongUsage(Diagnostic("already declared", why, "omit --write"))
    if problem := key_problem(key):
        raise WrongUsage(Diagnostic("not a key", f'"{key}": {problem}'))


def _declared_variables(documents: Sequence[Document]) -> set[str]:
    trees = (document.tree.get("variables") for document in documents)
    return {str(name) for tree in trees if isinstance(tree, Mapping) for name in tree}


def _inherited(documents: Sequence[Document], target: str | None) -> Iterator[Mapping[str, Any]]:
    """What files, and the target, say of every job, without what is no part of what the service is sent."""
    for document in documents:
        targets = document.tree.get("targets")
        on_target = targets.get(target) if isinstance(targets, Mapping) else None
        for place in (document.tree, on_target):
            defaults = place.get("defaults") if isinstance(place, Mapping) else None
            if isinstance(defaults, Mapping):
                yield {name: value for name, value in defaults.items() if name not in _OF_THE_ENTRY}


def _without_inherited(tree: Mapping[str, Any], inherited: Iterable[Mapping[str, Any]]) -> dict[str, Any]:
    """The entry with null for what it would inherit and does not say itself."""
    result = dict(tree)
    for defaults in inherited:
        for name, value in defaults.items():
            below = result.setdefault(name, None)
            if isinstance(below, Mapping) and isinstance(value, Mapping):
                result[name] = _without_inherited(below, [value])
    return result


def _without(tree: Mapping[str, Any], patch: Mapping[str, Any]) -> dict[str, Any]:
    """The entry with what the patch says instead."""
    result = dict(tree)
    for name, value in patch.items():
        below = result.get(name)
        if isinstance(below, Mapping) and isinstance(value, Mapping):
            value = _without(below, value)
        result[name] = value
    return result


def _warnings(entry: ManifestEntry, variables: SecretVariables) -> list[PlanWarning]:
    told = [
        PlanWarning(what="not declared as it is", why=f"{omission.path}: {omission.why}", key=entry.key)
        for omission in entry.omissions
    ]
    if names := sorted(variables.value_by_name):
        why = f"the entry refers to {', '.join(names)}; every later command needs the value"
        told.append(
            PlanWarning(what="secret variable", why=why, fix=f"set {', '.join(names)} in the environment")
        )
    return told
