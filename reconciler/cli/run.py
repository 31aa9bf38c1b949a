"""`run`: runs one job in the foreground, on this machine."""

from __future__ import annotations

import json
import os
import shutil
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from reconciler.cli import options as opt
from reconciler.cli.console import console
from reconciler.cli.context import load_stack
from reconciler.errors import Diagnostic, WrongUsage
from reconciler.secrets import is_secret_name, show


@opt.command(
    "run",
    opt.KEY,
    opt.STACK,
    opt.TARGET_NAME,
    opt.many("--param", "Set a parameter of the job; repeatable.", "parameters", type=opt.ASSIGNMENT),
    opt.flag("--print", "Print what would run, and start nothing.", "only_print"),
)
def run_command(
    key: str, paths: Sequence[Path], parameters: Sequence[tuple[str, str]], only_print: bool, **options: Any
) -> int:
    """Run a job once in the foreground, on a target of kind process.

    Its output is passed through, Ctrl-C ends it, and its exit code is returned (above 63: 1). No job is
    created and nothing is recorded; outputs go to a directory of their own, whose path is printed.
    """
    from reconciler.core.stack import unknown_key
    from reconciler.core.values import PROCESS
    from reconciler.processes.execution import prepare, run_in_foreground, spell
    from reconciler.processes.target import completed_number, jobs_directory, machine_of

    loaded = load_stack(paths, **options, offline=only_print)
    name, target = loaded.target(options["target"])
    if target.kind != PROCESS:
        why = f"target {name} is of kind {target.kind}; run needs one of kind {PROCESS}"
        raise WrongUsage(Diagnostic("not a process target", why, "select one: --target NAME"))
    if key not in loaded.stack.jobs:
        raise WrongUsage(unknown_key(loaded.stack, key, loaded.stack.jobs, declared_only=True))
    job = loaded.stack.jobs[key].numbered(
        "run", lambda upstream: completed_number(loaded.root, loaded.stack.name, upstream)
    )
    if not job.body:
        raise WrongUsage(Diagnostic("nothing to run", f"{key} has `state: absent`"))
    body = with_parameters(job.body, parameters, key)
    scratch = Path(tempfile.mkdtemp(prefix=f"reconciler-{key}-"))
    machine = machine_of(target, loaded.root)
    environ: Mapping[str, str] = os.environ
    if only_print:
        environ = {name: f"${{env.{name}}}" if is_secret_name(name) else environ[name] for name in environ}
    # The code is read from its source directory, not from a store.
    code = job.code and {file.path: loaded.root / job.code.source / file.path for file in job.code.files}
    try:
        body = json.loads(json.dumps(show(body) if only_print else body))  # with plain texts
        execution = prepare(scratch.name, body, scratch, machine, environ, code)
    except BaseException:
        shutil.rmtree(scratch, ignore_errors=True)
        raise
    if only_print:
        console.result(spell(execution))
        return 0
    for output in execution.outputs:
        console.say(f"output: {output.directory}")
    try:
        return run_in_foreground(scratch.name, execution, machine, jobs_directory(loaded.root), console.say)
    finally:
        if not execution.outputs:
            shutil.rmtree(scratch, ignore_errors=True)


def with_parameters(
    body: Mapping[str, Any], parameters: Sequence[tuple[str, str]], key: str
) -> Mapping[str, Any]:
    """Replace the values of a job's parameters.

    Raises:
        WrongUsage: the job has no such parameter.
    """
    algorithm = dict(body.get("algorithm") or {})
    declared = [dict(one) for one in algorithm.get("parameters") or ()]
    for name, value in parameters:
        named = next((one for one in declared if one["name"] == name), None)
        if named is None:
            known = ", ".join(one["name"] for one in declared) or "none"
            raise WrongUsage(
                Diagnostic("unknown parameter", f"{key} has no parameter {name}; it has: {known}")
            )
        named["value"] = value
    return {**body, "algorithm": {**algorithm, "parameters": declared}}
