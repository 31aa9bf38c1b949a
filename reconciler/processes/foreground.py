"""One job in the foreground: no revision, no record; its output is passed through."""

from __future__ import annotations

import shlex
import subprocess
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import psutil

from reconciler.errors import ExitCode
from reconciler.processes import tree
from reconciler.processes.execution import Machine, PreparedJob, TaskProcess, install
from reconciler.processes.tree import ProcessIdentity


def run(
    job_id: str, execution: PreparedJob, machine: Machine, root: Path, say: Callable[[str], object]
) -> int:
    """Run the processes of a job to their end, and return an exit code: the first that is not 0, up to 63.

    `root` holds the environments that its requirements are installed into.
    """
    processes: list[subprocess.Popen[bytes]] = []
    started: list[ProcessIdentity] = []

    def start(task: TaskProcess) -> subprocess.Popen[bytes]:
        processes.append(task.start())
        started.append(ProcessIdentity.of(psutil.Process(processes[-1].pid)))
        return processes[-1]

    end_all = partial(tree.end_all, job_id, partial(tree.with_descendants, started))

    grace_s = machine.stop_grace_s
    try:
        tasks = install(
            execution, machine, root, say, lambda task: start(task).wait(), lambda: time.sleep(0.2)
        )
        running = [start(task) for task in tasks]
        while None in (codes := [process.poll() for process in running]) and not any(codes):
            time.sleep(0.05)
        grace_s = machine.failed_grace_s
    except KeyboardInterrupt:
        say(f"interrupted: the job has {grace_s:.0f} s to end; interrupt again to kill it")
        raise
    finally:
        # Whatever ended it, Ctrl-C too: nothing goes on. Who presses it twice does not want to wait.
        try:
            end_all(grace_s=grace_s)
        except BaseException:
            end_all(grace_s=0)
            raise
        for process in processes:
            process.wait()
    code = next(filter(None, codes), 0)
    # A program that ends by itself can return these; the rest means something to a shell.
    return code if 0 <= code < 64 else ExitCode.FAILED


def spell(execution: PreparedJob) -> str:
    """Write what would run as a shell would take it: directory, variables, command."""
    blocks = []
    for task in execution.tasks:
        lines = [f"# {task.name}", f"cd {shlex.quote(str(task.directory))}"]
        lines += [f"export {name}={shlex.quote(value)}" for name, value in sorted(task.environment.items())]
        blocks.append("\n".join([*lines, shlex.join(task.command), ""]))
    return "\n".join(blocks)
