"""Saved plans as files: written, read again, and made ready to be carried out without their manifest."""

from __future__ import annotations

import os
import re
import shlex
import stat
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from reconciler.core.expression import parts_of, save, unresolvable_references
from reconciler.core.stack import Limits, Stack
from reconciler.core.store_url import absolute_url, passwords_in
from reconciler.decide import saved_plan as saved_document
from reconciler.decide import saved_plan_parser as parser
from reconciler.decide.preconditions import StalePlan
from reconciler.decide.saved_plan import SavedOptions, SavedPlan
from reconciler.errors import (
    Diagnostic,
    ManifestInvalid,
    Refused,
    Severity,
    WrongUsage,
)
from reconciler.files import NotRegular, TooLarge, read_file, write_file
from reconciler.manifests import LoadedStack
from reconciler.manifests.saved import resolve, resolve_records
from reconciler.render.json import dump, redacted
from reconciler.version import __version__

if TYPE_CHECKING:
    from reconciler.core.stack import VariableSource
    from reconciler.decide.plan import Plan
    from reconciler.secrets import Redactor

_DIGEST = re.compile("sha256:[0-9a-f]{64}")


@dataclass(frozen=True, slots=True)
class PlanFile:
    """A saved plan as it is written: its document, without secrets, and the digest that names it."""

    document: dict[str, Any]

    @property
    def digest(self) -> str:
        """What `apply --approve` is told."""
        return saved_document.digest(self.document)

    def write(self, file: Path) -> None:
        """Write it, whole or not at all, so that only its owner may read it.

        Raises:
            WrongUsage: a directory, a device, a pipe or a socket stands there.
            OSError: it cannot be written.
        """
        try:
            write_file(file, (dump(self.document) + "\n").encode("utf-8", "backslashreplace"), 0o600)
        except NotRegular as found:
            why = f"{found.filename} is {found.strerror}"
            raise WrongUsage(
                Diagnostic("not a regular file", why, "use a regular file, or a new one")
            ) from None


def plan_file_of(
    plan: Plan,
    loaded: LoadedStack,
    file: Path,
    *,
    only: tuple[str, ...],
    allow: tuple[str, ...],
    records: str | None,
    environ: Mapping[str, str],
    redact: Callable[[str], str],
) -> PlanFile:
    """Make the document of a plan that is to be written to `file`, to which its paths are relative.

    `records` is the URL that was given for the record store, None for what the manifest says.

    Raises:
        Refused: a body holds a secret that nobody could find again without the manifest, or a number that
            JSON does not know.
    """
    _check_secrets(plan)
    # A link at the file's own place is replaced by it.
    directory = os.path.realpath(file.parent)
    _, target = loaded.target(plan.target.name)
    options = SavedOptions(
        target=target,
        root=os.path.relpath(loaded.root.resolve(), directory),
        records=None if target.traits.is_embedded else _reference(records, loaded, environ),
        only=only,
        allow=allow,
        declared=dict(loaded.declared),
        sources={name: _seen_from(directory, source) for name, source in loaded.sources.items()},
    )
    document = _without_secrets(saved_document.document(plan, options), redact)
    return PlanFile(saved_document.sealed(document))


def _seen_from(directory: str, source: VariableSource) -> VariableSource:
    """The same source, a file named from the plan file's directory: the plan may be applied elsewhere."""
    if source.file is None:
        return source
    return source.model_copy(update={"file": os.path.relpath(Path(source.file).resolve(), directory)})


def _reference(records: str | None, loaded: LoadedStack, environ: Mapping[str, str]) -> str | None:
    """Where the store is, without a secret: as the manifest says, or as `--records` or its variable does.

    Raises:
        Refused: a password was given on the command line, and nobody could find it again.
    """
    if records is None:
        return loaded.records_reference
    if environ.get("RECONCILER_RECORDS") == records:
        return "${env.RECONCILER_RECORDS}"
    if any(passwords_in(records)):
        why = "--records contains a password, and a plan file must not contain secrets"
        raise Refused(Diagnostic("a secret that cannot be saved", why, "set the URL in RECONCILER_RECORDS"))
    reference: str = save(absolute_url(records, str(loaded.root.resolve())))
    return reference


def _check_secrets(plan: Plan) -> None:
    found = {
        (action.key, reference)
        for action in plan.to_execute
        for reference in unresolvable_references(action.desired)
    }
    if found:
        raise Refused(
            *(
                Diagnostic(
                    "a secret that cannot be saved",
                    f"jobs.{key}: {reference} is in the manifest, and a plan file must not contain secrets",
                    "declare a variable with `sensitive: true` and `env: NAME`, and use ${var.…} instead",
                )
                for key, reference in sorted(found)
            )
        )


#: Members of the document, of its actions and of its options that nobody but people reads: a secret in them
#: is masked. One in any other member would make the plan another one, so such a plan is not written.
_FOR_PEOPLE = frozenset({"detail", "changes", "source", "warnings", "denied", "preflight", "refusals"})


def _without_secrets(document: dict[str, Any], redact: Callable[[str], str]) -> dict[str, Any]:
    """The document as it is sealed: secrets masked where only people read them.

    Raises:
        Refused: a secret, or a number that JSON does not know, is in what the plan is carried out by.
    """
    if not parser.is_json(document):
        why = "a body contains infinity or NaN, which JSON does not allow"
        raise Refused(Diagnostic("a value that cannot be saved", why, "use a finite number, or quoted text"))
    shown: dict[str, Any] = redacted(document, redact)
    # Elsewhere the text of a sensitive variable is masked as a whole; here it names other variables.
    for name, source in document["options"]["sources"].items():
        if all(redact(part) == part for part in parts_of(source.get("text", "")) if isinstance(part, str)):
            shown["options"]["sources"][name] = source
    if masked := [*_masked(document, shown)]:
        raise Refused(*map(_not_saved, masked))
    return shown


def _masked(tree: Any, shown: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    """Where plain data was masked that is not for people alone; an action goes by its key."""
    if tree == shown:
        return
    if isinstance(tree, Mapping) and tree.keys() == shown.keys():
        is_read = path in ((), ("options",)) or (path[:1] == ("jobs",) and len(path) == 2)
        for name, value in tree.items():
            if not (is_read and name in _FOR_PEOPLE):
                yield from _masked(value, shown[name], (*path, name))
    elif path == ("actions",):
        for action, masked in zip(tree, shown, strict=True):
            yield from _masked(action, masked, ("jobs", action["key"]))
    else:
        yield path


def _not_saved(path: tuple[str, ...]) -> Diagnostic:
    what = "a secret that cannot be saved"
    if path[:2] == ("options", "sources"):
        why = f"variables.{path[2]}: its text also contains the value of a secret as plain text"
        return Diagnostic(what, why, "use ${var.…} wherever the secret is intended, or `env: NAME`")
    if "desired" in path:
        why = f"{'.'.join(path[:2])}: its body also contains the value of a secret as plain text"
        return Diagnostic(what, why, "use ${var.…} wherever the secret is intended, or another value")
    why = f"{'.'.join(path)} has the letters of a secret, and a plan without it could not be carried out"
    return Diagnostic(what, why, "choose another name")


@dataclass(frozen=True, slots=True)
class ReadPlan:
    """A saved plan as it was read from a file; secrets in its bodies are references yet."""

    file: Path
    saved: SavedPlan
    document: Mapping[str, Any]

    @property
    def digest(self) -> str:
        """What names it."""
        return saved_document.digest(self.document)

    @property
    def plan(self) -> Plan:
        """What is to be done."""
        return self.saved.plan

    @property
    def options(self) -> SavedOptions:
        """What shaped it."""
        return self.saved.options

    def copied_to(self, file: Path) -> PlanFile:
        """The same plan as a file elsewhere: its paths are relative to there."""
        directory = os.path.realpath(file.parent)

        def moved(path: str) -> str:
            return os.path.relpath(self._base / path, directory)

        options = self.options
        sources = {
            name: one if one.file is None else one.model_copy(update={"file": moved(one.file)})
            for name, one in options.sources.items()
        }
        elsewhere = options.model_copy(update={"root": moved(options.root), "sources": sources})
        options_there = elsewhere.model_dump(mode="json", exclude_none=True)
        return PlanFile(saved_document.sealed({**self.document, "options": options_there}))

    @property
    def _base(self) -> Path:
        return Path(os.path.realpath(self.file)).parent

    def check_approved(self, digest: str | None) -> None:
        """See that this is the plan that was approved.

        Raises:
            StalePlan: another one was.
        """
        if digest is None or digest == self.digest:
            return
        if not digest:
            why = f"{self.file} is {self.digest}, and no digest was approved: --approve is empty"
            raise StalePlan(Diagnostic("no plan was approved", why, "pass the digest of the approved plan"))
        why = f"{self.file} is {self.digest}, and {digest} was approved"
        if not _DIGEST.fullmatch(digest):
            why += "; digests are compared whole: sha256: and 64 hex digits in lower case"
        raise StalePlan(Diagnostic("a different plan was approved", why, "review this plan"))

    def as_loaded(self) -> LoadedStack:
        """What the rest of the program asks of a stack, without its manifest.

        Raises:
            ManifestInvalid: the stack's root is not where the plan says.
        """
        plan, options = self.saved
        keys = {key for action in plan.actions for key in (action.key, *action.former_keys, *action.needs)}
        root = (self._base / options.root).resolve()
        if not os.path.isdir(root):  # noqa: PTH112 - a name that is too long is none, and no error
            why = f"it names {options.root}, as the stack's root, relative to it; {root} is not a directory"
            raise ManifestInvalid(
                Diagnostic("invalid plan file", why, "keep the plan file where it was created")
            )
        return LoadedStack(
            stack=Stack(plan.stack, {}, frozenset(keys)),
            root=root,
            targets={plan.target.name: options.target},
            target_name=plan.target.name,
            limits=Limits(),
            manifest_digest=plan.manifest_digest,
            secrets=(),
            files=(),
            warnings=(),
            declared=options.declared,
        )

    def resolve(self, values: SecretSources) -> Plan:
        """The plan with the secrets in its bodies, from where their values came from.

        Raises:
            ManifestInvalid: a secret has no value now.
        """
        plan, options = self.saved
        bodies = [action.desired if action.traits.is_executed else None for action in plan.actions]
        bodies = resolve(bodies, options.sources, **values.known(self._base))
        pairs = zip(plan.actions, bodies, strict=True)
        actions = tuple(action.model_copy(update={"desired": body}) for action, body in pairs)
        return plan.model_copy(update={"actions": actions})

    def records_url(self, values: SecretSources, root: Path) -> str | None:
        """The URL of the record store that the plan names; None for the file beside the root file.

        Raises:
            ManifestInvalid: something in it has no value now.
        """
        if self.options.records is None:
            return None
        known = values.known(self._base)
        return resolve_records(self.options.records, self.options.sources, **known, root=root)


@dataclass(frozen=True, slots=True)
class SecretSources:
    """Where the values of a saved plan's secrets are looked for, beside where they came from."""

    variables: Mapping[str, str]
    var_files: Sequence[Path]
    environ: Mapping[str, str]
    redactor: Redactor

    def known(self, base: Path) -> dict[str, Any]:
        """The same for `manifests.saved`; files are named from `base`."""
        return {
            "variables": self.variables,
            "var_files": self.var_files,
            "environ": self.environ,
            "base": base,
            "learn": self.redactor.learn,
        }


def read_plan(file: Path, warn: Callable[[Diagnostic], object], *, strict: bool) -> ReadPlan:
    """Read a plan file; `strict` is for one that is to be applied.

    Raises:
        WrongUsage: there is no such file, or it is no regular one.
        Refused: it is to be applied, and others than we and root can write it.
        ManifestInvalid: it is no plan, or damaged.
        StalePlan: another version of the program made it.
    """
    try:
        data, status = read_file(file, parser.MOST_BYTES)
    except (FileNotFoundError, NotADirectoryError, NotRegular) as error:
        found = error.strerror if isinstance(error, NotRegular) else "file not found"
        why = f"{file} is {found}"
        raise WrongUsage(Diagnostic("no such plan file", why, "reconciler plan --out FILE")) from None
    except TooLarge as error:
        why = f"{file} is {error.strerror}, not a plan"
        raise ManifestInvalid(Diagnostic("invalid plan file", why, "create a new plan")) from None
    _check_access(file, status, warn, strict=strict)
    try:
        document = parser.parse(data)
    except parser.NotAPlanFile as error:
        why = f"{file}: {error}"
        raise ManifestInvalid(Diagnostic("invalid plan file", why, "create a new plan")) from None
    saved = saved_document.read(document, str(file), __version__, strict=strict)
    is_ours = saved_document.made_by_other(document, __version__) is None
    if not strict and is_ours and saved_document.is_modified(document, saved.plan):
        why = f"{file}: its seal does not match, so it cannot be applied"
        modified = Diagnostic("plan file modified since it was written", why, "create a new plan")
        warn(modified._replace(severity=Severity.WARNING))
    return ReadPlan(file, saved, document)


def _check_access(
    file: Path, status: os.stat_result, warn: Callable[[Diagnostic], object], *, strict: bool
) -> None:
    """See who else can write the file, or read it. Whoever can write it decides what is carried out.

    Raises:
        Refused: it is to be applied, and somebody else can write it.
    """
    own = f"chmod 600 {shlex.quote(str(file))}"
    mode = stat.S_IMODE(status.st_mode)
    look = f"review it with reconciler show {shlex.quote(str(file))}, then: "
    found = None
    if status.st_uid not in (os.geteuid(), 0):
        why = f"{file} is owned by user {status.st_uid}, who can modify it"
        found = Diagnostic("plan file owned by another user", why, f"{look}copy it to a file that you own")
    elif mode & (stat.S_IWGRP | stat.S_IWOTH):
        why = f"{file} has mode {mode:04o}: it may have been modified since it was approved"
        found = Diagnostic("plan file writable by others", why, look + own)
    if found is not None and strict:
        raise Refused(found)
    if found is None and mode & (stat.S_IRGRP | stat.S_IROTH):
        why = f"{file} has mode {mode:04o}, and contains whole jobs, although no secrets"
        found = Diagnostic("plan file readable by others", why, own)
    if found is not None:
        warn(found._replace(severity=Severity.WARNING))
