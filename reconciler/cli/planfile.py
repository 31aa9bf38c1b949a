"""Plan files: written by `plan --out`, shown by `show`, carried out by `apply --plan`."""

from __future__ import annotations

import os
import shlex
import stat
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from reconciler.core.diagnostic import Diagnostic, ManifestInvalid, Refused, Severity, WrongUsage
from reconciler.files import NotRegular, TooLarge, read_file

if TYPE_CHECKING:
    from reconciler.core.plan import Plan
    from reconciler.core.saved import SavedPlan
    from reconciler.core.stack import VariableSource
    from reconciler.manifests import LoadedStack
    from reconciler.reconcile import Context


def save_plan(
    context: Context, plan: Plan, file: Path, *, records: str | None, allow: tuple[str, ...]
) -> None:
    """Write a plan to a file that only its owner may read, under a temporary name, then renamed.

    Raises:
        Refused: a body holds a secret that nobody could find again without the manifest.
    """
    from reconciler.core.saved import SavedOptions, document
    from reconciler.core.stack import TargetKind

    _see_that_secrets_can_be_found(plan)
    loaded = context.loaded
    # A link at the file's own place is replaced by it.
    file = Path(os.path.realpath(file.parent)) / file.name
    _, target = loaded.target(plan.target.name)
    options = SavedOptions(
        target=target,
        root=os.path.relpath(loaded.root.resolve(), file.parent),
        records=None if target.kind is TargetKind.LOCAL else _reference(records, loaded),
        only=context.only,
        allow=allow,
        sources={name: _seen_from(file, source) for name, source in loaded.sources.items()},
    )
    _write(file, document(plan, options))


def _seen_from(file: Path, source: VariableSource) -> VariableSource:
    """The same source, a file named from the plan file's directory: the plan may be applied elsewhere."""
    if source.file is None:
        return source
    return source.model_copy(update={"file": os.path.relpath(Path(source.file).resolve(), file.parent)})


def _reference(records: str | None, loaded: LoadedStack) -> str | None:
    """Where the store is, without a secret: as the manifest says, or as `--records` or its variable does.

    Raises:
        Refused: a password was given on the command line, and nobody could find it again.
    """
    from reconciler.core.secret import save

    if records is None:
        return loaded.records_reference
    if os.environ.get("RECONCILER_RECORDS") == records:
        return "${env.RECONCILER_RECORDS}"
    from reconciler.manifests.records import passwords_in, whole_address

    if any(passwords_in(records)):
        why = "--records holds a password, and a plan file holds no secret"
        raise Refused(
            Diagnostic("a secret that cannot be saved", why, "give the address by RECONCILER_RECORDS")
        )
    reference: str = save(whole_address(records, loaded.root))
    return reference


def _see_that_secrets_can_be_found(plan: Plan) -> None:
    from reconciler.core.secret import unsavable

    found = {(action.key, reference) for action in plan.to_execute for reference in unsavable(action.desired)}
    if found:
        raise Refused(
            *(
                Diagnostic(
                    "a secret that cannot be saved",
                    f"jobs.{key}: {reference} stands in the manifest, and a plan file holds no secret",
                    "declare a variable with `sensitive: true` and `env: NAME`, and write ${var.…} there",
                )
                for key, reference in sorted(found)
            )
        )


def _write(file: Path, document: dict[str, Any]) -> None:
    from reconciler.cli.console import console
    from reconciler.core.plan_file import is_json
    from reconciler.render.json import dump, redacted

    if not is_json(document):
        why = "a body holds infinity or NaN, which is no number of JSON"
        raise Refused(Diagnostic("a value that cannot be saved", why, "write a number, or text in quotes"))
    shown = redacted(document, console.redact)
    for before, after in zip(document["actions"], shown["actions"], strict=True):
        if before.get("desired") != after.get("desired"):
            why = f"jobs.{before['key']}: a value of a secret stands in its body as plain text as well"
            fix = "write ${var.…} wherever the secret is meant, or another value where it is not"
            raise Refused(Diagnostic("a secret that cannot be saved", why, fix))
    console.write_file(file, dump(shown) + "\n", is_redacted=True, mode=0o600)


def read_plan(file: Path, *, strict: bool) -> SavedPlan:
    """Read a plan file; `strict` is for one that is to be applied.

    Raises:
        WrongUsage: there is no such file, or it is no regular one.
        Refused: it is to be applied, and others than we and root can write it.
        ManifestInvalid: it is no plan, or damaged.
        StalePlan: another version of the program made it.
    """
    from reconciler.core import plan_file, saved
    from reconciler.version import __version__

    try:
        data, status = read_file(file, plan_file.MOST_BYTES)
    except (FileNotFoundError, NotADirectoryError, NotRegular) as error:
        found = error.strerror if isinstance(error, NotRegular) else "no file"
        why = f"{file} is {found}"
        raise WrongUsage(Diagnostic("no such plan file", why, "reconciler plan --out FILE")) from None
    except TooLarge as error:
        why = f"{file} is {error.strerror}, and no plan is"
        raise ManifestInvalid(Diagnostic("invalid plan file", why, "make a new plan")) from None
    _check_access(file, status, strict=strict)
    try:
        document = plan_file.parse(data)
    except plan_file.NotAPlanFile as error:
        why = f"{file}: {error}"
        raise ManifestInvalid(Diagnostic("invalid plan file", why, "make a new plan")) from None
    return saved.read(document, str(file), __version__, strict=strict)


def _check_access(file: Path, status: os.stat_result, *, strict: bool) -> None:
    """See who else can write the file, or read it. Whoever can write it decides what is carried out.

    Raises:
        Refused: it is to be applied, and somebody else can write it.
    """
    from reconciler.cli.console import console

    own = f"chmod 600 {shlex.quote(str(file))}"
    mode = stat.S_IMODE(status.st_mode)
    look = f"read it again, reconciler show {shlex.quote(str(file))}, then: "
    found = None
    if status.st_uid not in (os.geteuid(), 0):
        why = f"{file} belongs to user {status.st_uid}, who can change it"
        found = Diagnostic("plan file of another user", why, f"{look}copy it to a file of your own")
    elif mode & (stat.S_IWGRP | stat.S_IWOTH):
        why = f"{file} has mode {mode:04o}: what is carried out may not be what was approved"
        found = Diagnostic("plan file that others can write", why, look + own)
    if found is not None and strict:
        raise Refused(found)
    if found is None and mode & (stat.S_IRGRP | stat.S_IROTH):
        why = f"{file} has mode {mode:04o}, and holds whole jobs, though no secret"
        found = Diagnostic("plan file that others can read", why, own)
    if found is not None:
        console.diagnostics([replace(found, severity=Severity.WARNING)])
