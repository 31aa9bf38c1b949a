"""`reconciler policies test`: the policies of a stack against small cases."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

import click

from reconciler.cli.options import TARGET_NAME, VARIABLES, OutputSpec, output, with_options
from reconciler.errors import ExitCode
from reconciler.render import Content


@click.group("policies", no_args_is_help=False, context_settings={"help_option_names": ["-h", "--help"]})
def command() -> None:
    """Work with the policies of a stack."""


@command.command("test")
@click.argument("paths", nargs=-1, metavar="[DIR]...", type=click.Path(path_type=Path))
@with_options(VARIABLES, TARGET_NAME, output(Content.CASES))
def test(
    paths: Sequence[Path],
    variables: Sequence[tuple[str, str]],
    var_files: Sequence[Path],
    target: str | None,
    outputs: Sequence[OutputSpec],
    as_json: bool,
) -> int:
    """Ask the policies of a stack about the cases in DIR, and compare what they say.

    DIR holds the cases, YAML files with `job` and `expect`, and stands for a stack like PATH of
    other commands; default: the current directory. Neither the service nor credentials are needed.
    Exits 1 if a case fails.
    """
    from reconciler.cli.context import load_stack
    from reconciler.cli.output import requested_outputs, show_cases
    from reconciler.decide.policies import Surroundings
    from reconciler.decide.policy_cases import run_cases
    from reconciler.expressions.evaluator import Evaluator
    from reconciler.manifests.policy_cases import read_cases
    from reconciler.modelarts.target import known_values

    cases = read_cases(paths)
    directories = [path if path.is_dir() else path.parent for path in paths]
    loaded = load_stack(directories, variables, var_files, target, offline=True)
    stack = loaded.stack
    name = loaded.target_name
    target_values = {} if name is None else known_values(name, loaded.targets.get(name), os.environ)
    surroundings = Surroundings(stack.name, target_values)
    with Evaluator() as evaluate:
        report = run_cases(cases, stack.policies, surroundings, evaluate, stack.prices)
    show_cases(report, requested_outputs(outputs, as_json=as_json))
    return ExitCode.FAILED if report.failed else ExitCode.DONE
