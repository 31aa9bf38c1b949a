"""`reconciler review`: what a change of the manifests means."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import click

from reconciler.cli.options import TARGET_NAME, VARIABLES, OutputSpec, output, with_options
from reconciler.cli.terminal.console import console
from reconciler.errors import ExitCode
from reconciler.render import Content


@click.command("review")
@with_options(
    click.argument("base"),
    click.argument("head"),
    click.argument("paths", nargs=-1, metavar="[PATH]...", type=click.Path(path_type=Path)),
    VARIABLES,
    TARGET_NAME,
    output(Content.REVIEW),
)
def command(
    base: str,
    head: str,
    paths: Sequence[Path],
    variables: Sequence[tuple[str, str]],
    var_files: Sequence[Path],
    target: str | None,
    outputs: Sequence[OutputSpec],
    as_json: bool,
) -> int:
    """Show what a change of the manifests means, from BASE to HEAD.

    BASE and HEAD are directories, or git revisions of the repository around the current directory.
    PATH is the stack in both of them; default: the current directory's place in the repository, or
    the whole directory. Neither the service nor credentials are needed.
    """
    from reconciler.cli.output import requested_outputs, show_review
    from reconciler.cli.terminal.pager import paged
    from reconciler.review import ReviewRequest, review

    found = review(
        ReviewRequest(
            base,
            head,
            paths,
            target=target,
            variables=dict(variables),
            var_files=var_files,
            learn=console.redact.learn,
        )
    )
    with paged(is_wanted=not (outputs or as_json)):
        show_review(found, requested_outputs(outputs, as_json=as_json))
    return ExitCode.REFUSED if found.denied else ExitCode.DONE
