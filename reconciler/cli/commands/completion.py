"""`reconciler completion`: the script that a shell reads to complete command lines."""

from __future__ import annotations

import click

from reconciler.cli.options import with_options
from reconciler.cli.terminal.console import console

SHELLS = ("bash", "zsh", "fish")


@click.command("completion")
@with_options(click.argument("shell", type=click.Choice(SHELLS)))
def command(shell: str) -> int:
    """Print the script that completes commands, options, keys and targets in a shell.

    \b
    bash: reconciler completion bash > ~/.local/share/bash-completion/completions/reconciler
    zsh:  reconciler completion zsh > "${fpath[1]}/_reconciler"
    fish: reconciler completion fish > ~/.config/fish/completions/reconciler.fish
    """
    from click.shell_completion import get_completion_class

    from reconciler.cli import cli

    found = get_completion_class(shell)
    assert found is not None, "one of SHELLS"
    completion = found(cli, {}, "reconciler", "_RECONCILER_COMPLETE")
    # Not `source()`: for bash it runs the bash of this machine to ask for its version.
    console.result(completion.source_template % completion.source_vars() + "\n")
    return 0
