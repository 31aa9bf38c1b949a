"""`reconciler fmt`: manifest files in the canonical layout."""

from __future__ import annotations

import os
from collections.abc import Sequence
from difflib import unified_diff
from pathlib import Path
from typing import TYPE_CHECKING

import click

from reconciler.cli.options import option, with_options
from reconciler.cli.terminal.console import console
from reconciler.errors import ExitCode
from reconciler.text import printable

if TYPE_CHECKING:
    from reconciler.errors import Diagnostic
    from reconciler.manifests.yaml.document import Document


@click.command("fmt")
@with_options(
    click.argument("paths", nargs=-1, metavar="[PATH]...", type=click.Path(path_type=Path)),
    option("--check", is_flag=True, help="Change nothing; show a diff, and exit 1 if a file would change."),
)
def command(paths: Sequence[Path], check: bool) -> int:
    """Rewrite manifest files in the canonical layout.

    PATH is one or more manifest files or directories; default: the current directory. Keys are put
    in order and nesting is two spaces. Comments, blank lines, anchors, quotes and the spelling of
    values are kept, and no value changes. The names of the files that were changed go to stdout.
    """
    from reconciler.errors import ManifestInvalid
    from reconciler.manifests.sources.files import manifest_files

    problems: list[Diagnostic] = []
    changed = 0
    for document in manifest_files(paths):
        try:
            changed += _format(document, check)
        except ManifestInvalid as invalid:
            problems += invalid.diagnostics
    if problems:
        raise ManifestInvalid(*problems)
    return ExitCode.FAILED if check and changed else ExitCode.DONE


def _format(document: Document, check: bool) -> bool:
    from reconciler.errors import ManifestInvalid
    from reconciler.files import write_file
    from reconciler.manifests.layout.formatting import format_text
    from reconciler.manifests.layout.written_secrets import written_secrets

    if document.problems:
        raise ManifestInvalid(*document.problems)
    formatted = format_text(document.text, document.file)
    if formatted.encode("utf-8") == document.data:
        return False
    if check:
        console.redact.learn(written_secrets(document, os.environ))
        console.result(_diff(document, formatted))
    else:
        write_file(document.path, formatted.encode("utf-8"))
        console.result(printable(document.file) + "\n")
    return True


def _diff(document: Document, formatted: str) -> str:
    # Hidden before they are compared: the marks of a diff would cut a value of several lines to pieces.
    before = _lines(console.redact(document.data.decode("utf-8")))
    after = _lines(console.redact(formatted))
    return "".join(
        printable(line.removesuffix("\n"))
        + ("\n" if line.endswith("\n") else "\n\\ No newline at end of file\n")
        for line in unified_diff(before, after, document.file, document.file)
    )


def _lines(text: str) -> list[str]:
    """The lines as a reader of the log sees them; any other break is shown as an escape."""
    *lines, last = text.split("\n")
    return [*(f"{line}\n" for line in lines), *([last] if last else [])]
