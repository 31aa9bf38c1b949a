"""Plan files: written by `plan --out`, shown by `show`, carried out by `apply --plan`."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

from reconciler.core.diagnostic import Diagnostic, ManifestInvalid, Refused, WrongUsage

if TYPE_CHECKING:
    from reconciler.core.plan import Plan
    from reconciler.core.saved import SavedPlan
    from reconciler.core.stack import VariableSource
    from reconciler.manifests import LoadedStack
    from reconciler.reconcile import Context

#: A plan of ten thousand jobs is a tenth of this.
_LARGEST = 256 * 1024 * 1024


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
    from reconciler.render.json import dump, redacted

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
        WrongUsage: there is no such file.
        ManifestInvalid: it is no plan, or damaged.
        StalePlan: another version of the program made it.
    """
    from reconciler.core import saved
    from reconciler.version import __version__

    if not file.is_file():
        raise WrongUsage(Diagnostic("no such plan file", f"{file} is no file", "reconciler plan --out FILE"))
    if file.stat().st_size > _LARGEST:
        raise ManifestInvalid(Diagnostic("invalid plan file", f"{file} is too large to be one"))
    try:
        data = json.loads(file.read_bytes())
    except (ValueError, RecursionError):
        why = f"{file} is no JSON document; it may have been cut off"
        raise ManifestInvalid(Diagnostic("invalid plan file", why, "make a new plan")) from None
    return saved.read(data, str(file), __version__, strict=strict)
