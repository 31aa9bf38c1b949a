"""`reconciler explain`: the tables that decide, and where the values of a job come from."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from reconciler.cli.completions import topics, words_of_topic
from reconciler.cli.options import TARGET_NAME, VARIABLES, with_options
from reconciler.cli.terminal.console import console

if TYPE_CHECKING:
    from reconciler.render.style import Style

ORIGIN = "origin"


@click.command("explain")
@click.argument(
    "topic",
    metavar="[states|rules|fields|NAME|origin KEY [PATH]...]",
    default="states",
    shell_complete=topics,
)
@click.argument("words", nargs=-1, metavar="", shell_complete=words_of_topic)
@with_options(VARIABLES, TARGET_NAME)
def command(
    topic: str,
    words: Sequence[str],
    variables: Sequence[tuple[str, str]],
    var_files: Sequence[Path],
    target: str | None,
) -> None:
    """Print one of the tables that decide, or where the values of a job come from.

    states: what is legal in each phase. rules: how the action for a key is chosen. fields: what
    changing each field of a job means. NAME is any key of a manifest, such as matrix, limits.lost_time
    or node_count: its type, limits, default and example, and what changing it means. origin KEY: each
    value of the job with the file and line that gave it; PATH is as in plan.
    """
    from reconciler.cli.terminal.pager import paged

    if topic == ORIGIN:
        with paged(is_wanted=True):
            _explain_origin(words, variables, var_files, target)
        return
    from reconciler.render import explain

    if words:
        raise click.UsageError(f'got unexpected arguments after "{topic}": {" ".join(words)}')
    style = console.style(sys.stdout)
    printed: dict[str, Callable[[Style], str]] = {
        "states": explain.render_states,
        "rules": explain.render_rules,
        "fields": explain.render_fields,
    }
    shown = printed[topic](style) if topic in printed else _explain_key(topic, (*printed, ORIGIN), style)
    with paged(is_wanted=True):
        console.result(shown)


def _explain_key(name: str, others: Sequence[str], style: Style) -> str:
    from reconciler.core.manifest_keys import NoSuchKey, find_key
    from reconciler.render.explain import render_key

    try:
        return render_key(find_key(name), style)
    except NoSuchKey as unknown:
        if unknown.candidates:
            listed = "".join(f"\n  {path}" for path in unknown.candidates)
            raise click.UsageError(f'several keys are called "{name}"; choose one of:{listed}') from None
        hint = f' Did you mean "{unknown.nearest}"?' if unknown.nearest else ""
        allowed = ", ".join(f'"{topic}"' for topic in others)
        raise click.UsageError(f'"{name}" is not {allowed} or a key of a manifest.{hint}') from None


def _explain_origin(
    words: Sequence[str],
    variables: Sequence[tuple[str, str]],
    var_files: Sequence[Path],
    target: str | None,
) -> None:
    from reconciler.cli.context import load_stack
    from reconciler.core.selection import unknown_key
    from reconciler.errors import WrongUsage
    from reconciler.render.explain import render_origins

    if not words:
        raise click.UsageError("origin needs the key of a job: reconciler explain origin KEY [PATH]...")
    key, *paths = words
    files = [Path(path) for path in paths]
    loaded = load_stack(files, variables, var_files, target, offline=True, traced=key)
    if key not in loaded.stack.whole:
        raise WrongUsage(unknown_key(loaded.stack, key, loaded.stack.whole))
    console.result(render_origins(loaded.origins, console.style(sys.stdout)))
