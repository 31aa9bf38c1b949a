"""Turns a job into directories, variables and commands on this machine.

Source: docs/reference/process-target.md, "Containers and processes".
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
import shlex
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import psutil

from reconciler.core.code import REQUIREMENTS
from reconciler.errors import ExitCode, Rejected
from reconciler.processes import tree
from reconciler.processes.tree import JOB_VARIABLE, ProcessIdentity

if sys.platform != "win32":
    import fcntl

#: The caller's variables that a job gets by default. None of them is a credential.
INHERITED = (
    "PATH",
    "HOME",
    "USER",
    "LANG",
    "LC_ALL",
    "TZ",
    "TMPDIR",
    "LD_LIBRARY_PATH",
    "LIBRARY_PATH",
    "CUDA_VISIBLE_DEVICES",
)
#: The home directory in a container. Paths below it are mapped to the directory of the job.
CONTAINER_HOME = "/home/ma-user"


class CannotRun(Rejected):
    """The job cannot run on this machine. `message` goes into its log."""

    what = "cannot run the job here"


class Machine(NamedTuple):
    """The settings of a target for this machine.

    `storage` maps prefixes of OBS addresses to directories. `keep` is the number of ended jobs whose files
    are kept. Not settable in a manifest: the grace periods before a terminated job is killed, and before the
    other processes of a failed job are; and the maximum size of a log.
    """

    python: str = sys.executable
    storage: Mapping[str, str] = {}
    slots: int = 1
    inherit: tuple[str, ...] = INHERITED
    install_requirements: bool = False
    runs_images: bool = False
    keep: int = 20
    stop_grace_s: float = 30.0
    failed_grace_s: float = 15.0
    max_log_bytes: int = 100_000_000

    def directory(self, address: str) -> Path:
        """Return the directory of an `obs://` address, by the longest prefix."""
        by_prefix = {prefix.rstrip("/") + "/": directory for prefix, directory in self.storage.items()}
        whole = address.rstrip("/") + "/"
        prefix = max(filter(whole.startswith, by_prefix), key=len, default=None)
        if prefix is None:
            raise CannotRun(f"{address} has no directory on this machine", fix="add its prefix to `storage`")
        place = Path(os.path.normpath(Path(by_prefix[prefix]) / whole[len(prefix) :].lstrip("/")))
        if not place.is_relative_to(os.path.normpath(by_prefix[prefix])):
            raise CannotRun(f"{address} leads out of {by_prefix[prefix]}", fix="write it without `..`")
        return place


class Layout:
    """The directories and files of one job, below `root`."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.home = root / "home"
        self.mount = self.home / "modelarts"
        self.code = self.mount / "user-job-dir"
        self.logs = self.mount / "log"
        self.metrics = root / "metrics.jsonl"
        self.events = root / "events.jsonl"
        #: The processes seen by the supervisor, which are ended if it is killed.
        self.processes = root / "processes.jsonl"

    def log(self, task: str) -> Path:
        return self.root / f"{task}.log"

    def place(self, container_path: str) -> Path:
        """Return the local path of a container path.

        Raises:
            CannotRun: it is not below the home of a container, and does not exist here.
        """
        path = Path(os.path.normpath(Path(CONTAINER_HOME, container_path)))
        if path.is_relative_to(CONTAINER_HOME):
            return self.home / path.relative_to(CONTAINER_HOME)
        if not path.exists():
            raise CannotRun(
                f"{container_path} does not exist on this machine", fix=f"use a path below {CONTAINER_HOME}"
            )
        return path


class OutputCopy(NamedTuple):
    """A directory that the job writes, and its destination."""

    name: str
    directory: Path
    target: Path


class TaskProcess(NamedTuple):
    """A process of a job: `worker-N` on node N."""

    name: str
    command: tuple[str, ...]
    directory: Path
    environment: Mapping[str, str]

    def start(self, output: int | None = None) -> subprocess.Popen[bytes]:
        """Start it in a session of its own. Its output goes to `output`, or is passed through."""
        self.directory.mkdir(parents=True, exist_ok=True)
        return subprocess.Popen(  # noqa: S603 - the job that was declared
            self.command,
            cwd=self.directory,
            env=dict(self.environment),
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=None if output is None else subprocess.STDOUT,
            start_new_session=True,
        )


class PreparedJob(NamedTuple):
    """A job that is ready to run: its processes, its outputs, and a requirements file to install."""

    tasks: tuple[TaskProcess, ...]
    outputs: tuple[OutputCopy, ...]
    requirements: Path | None


def prepare(
    job_id: str,
    body: Mapping[str, Any],
    root: Path,
    machine: Machine,
    environ: Mapping[str, str],
    code_files: Mapping[str, Path] | None = None,
) -> PreparedJob:
    """Create the directories of a job, copy its code, and return what to run.

    `body` is the create request, `environ` the variables of the caller. `code_files` maps paths in the code
    to files, if the code is not in the storage.

    Raises:
        CannotRun: something that the job needs is missing.
        OSError: the directories cannot be created, or the code cannot be copied.
    """
    algorithm = body.get("algorithm") or {}
    if algorithm.get("command") and not machine.runs_images:
        raise CannotRun("it needs its container image", fix="set `images: host` on the target")
    layout = Layout(root)
    for directory in (layout.code, layout.logs, layout.mount / "inputs", layout.mount / "outputs"):
        directory.mkdir(parents=True, exist_ok=True)
    code = _copy_code(algorithm, layout, machine, code_files)
    variables = _own_variables(job_id, layout, body, machine, environ)
    if code:
        variables["WORKSPACE"] = str(code)
    arguments = [f"--{one['name']}={one.get('value') or ''}" for one in algorithm.get("parameters") or ()]
    outputs: list[OutputCopy] = []
    for channel in algorithm.get("inputs") or ():
        source = machine.directory(_address(channel))
        if not source.exists():
            raise CannotRun(
                f"input {channel['name']}: {source} does not exist", fix=f"put {_address(channel)} there"
            )
        _pass(channel, _linked(channel, source, layout), arguments, variables)
    for index, channel in enumerate(algorithm.get("outputs") or ()):
        directory = layout.place(
            channel.get("local_dir") or f"{CONTAINER_HOME}/modelarts/outputs/{channel['name']}_{index}"
        )
        directory.mkdir(parents=True, exist_ok=True)
        outputs.append(OutputCopy(channel["name"], directory, machine.directory(_address(channel))))
        _pass(channel, directory, arguments, variables)
    declared = {name: str(value) for name, value in (algorithm.get("environments") or {}).items()}
    declared[JOB_VARIABLE] = job_id
    command = _command(algorithm, code, arguments, machine)
    directory = layout.place(algorithm.get("working_dir") or CONTAINER_HOME)
    tasks = []
    for index in range(int(variables["MA_NUM_HOSTS"])):
        name = f"worker-{index}"
        node = {"VC_TASK_INDEX": str(index), "MA_CURRENT_INSTANCE_NAME": f"modelarts-job-{job_id}-{name}"}
        tasks.append(TaskProcess(name, command, directory, {**variables, **node, **declared}))
    named = [code / name for name in REQUIREMENTS] if code and not algorithm.get("command") else []
    return PreparedJob(tuple(tasks), tuple(outputs), next(filter(Path.is_file, named), None))


def copy_output(output: OutputCopy) -> None:
    """Copy the output of a job to the storage, as the service does periodically.

    Links are followed. Special files, links that lead nowhere, and files that disappear are skipped.
    """
    place = output.target.resolve()
    for parent, directories, names in os.walk(output.directory, followlinks=True):
        here = Path(parent).resolve()
        # Skip links to parent directories, and a storage inside the directory: the copy would not end.
        real = {one: Path(parent, one).resolve() for one in directories}
        directories[:] = [one for one in real if real[one] != place and not here.is_relative_to(real[one])]
        target = output.target / Path(parent).relative_to(output.directory)
        target.mkdir(parents=True, exist_ok=True)
        for name in names:
            with contextlib.suppress(FileNotFoundError):
                _copy_changed(Path(parent, name), target / name)


def _copy_changed(source: Path, target: Path) -> None:
    if not source.is_file():
        return
    status = source.stat()
    with contextlib.suppress(FileNotFoundError):
        there = target.stat()
        if (there.st_size, there.st_mtime_ns) == (status.st_size, status.st_mtime_ns):
            return
    shutil.copyfile(source, target)
    # A file that is being written may change without a new time, so it is copied again.
    if time.time() - status.st_mtime > 2:
        os.utime(target, ns=(status.st_atime_ns, status.st_mtime_ns))


def install(
    job: PreparedJob,
    machine: Machine,
    root: Path,
    say: Callable[[str], object],
    run: Callable[[TaskProcess], int],
    pause: Callable[[], object],
) -> tuple[TaskProcess, ...]:
    """Install the requirements of a job, if the target does so. Returns the tasks with their Python.

    Virtual environments are kept below `root`, by the digest of the file. `run` runs a command to its end;
    `pause` is called while another job creates the same environment.

    Raises:
        CannotRun: the installation failed.
    """
    if job.requirements is None:
        return job.tasks
    if not machine.install_requirements:
        say(f"{job.requirements.name} is not installed: `install_requirements` is not set")
        return job.tasks
    digest = hashlib.sha256(job.requirements.read_bytes() + machine.python.encode()).hexdigest()[:16]
    place = root / "environments" / digest
    python, done = str(place / "bin" / "python"), place / "installed"
    place.mkdir(parents=True, exist_ok=True)
    with (place / "lock").open("wb") as lock:
        while not done.exists():
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                pause()
                continue
            variables = {k: v for k, v in job.tasks[0].environment.items() if k != "PYTHONPATH"}
            for command in (
                (machine.python, "-m", "venv", "--system-site-packages", str(place)),
                (python, "-m", "pip", "install", "-r", str(job.requirements)),
            ):
                if code := run(TaskProcess("worker-0", command, job.requirements.parent, variables)):
                    raise CannotRun(
                        f"{shlex.join(command[1:])} failed with exit code {code}", fix="see the log"
                    )
            done.touch()
    return tuple(task._replace(command=(python, *task.command[1:])) for task in job.tasks)


def _copy_code(
    algorithm: Mapping[str, Any], layout: Layout, machine: Machine, files: Mapping[str, Path] | None
) -> Path | None:
    code_dir = algorithm.get("code_dir")
    if not code_dir:
        return None
    address = _obs_address(code_dir)
    parent = layout.place(algorithm["local_code_dir"]) if algorithm.get("local_code_dir") else layout.code
    code = parent / address.rstrip("/").rpartition("/")[2]
    for path, file in (files or {}).items():
        (code / path).parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(file, code / path)
    if files is None:
        source = machine.directory(address)
        if not source.is_dir():
            why = f"code_dir: {source} is not a directory"
            raise CannotRun(why, fix=f"put {address} there, or declare `code`")
        shutil.copytree(source, code, ignore_dangling_symlinks=True, dirs_exist_ok=True)
    return code


def _command(
    algorithm: Mapping[str, Any], code: Path | None, arguments: Sequence[str], machine: Machine
) -> tuple[str, ...]:
    if command := algorithm.get("command"):
        return ("bash", "-c", " ".join([command.rstrip(), *map(shlex.quote, arguments)]))
    if code is None or not algorithm.get("boot_file"):
        raise CannotRun(
            "it has neither a `command` nor a `boot_file` in a `code_dir`", fix="declare its code"
        )
    base = _obs_address(algorithm["code_dir"]).rstrip("/") + "/"
    boot_file = code / _obs_address(algorithm["boot_file"]).removeprefix(base)
    if not boot_file.is_file():
        raise CannotRun(f"boot_file: {boot_file} does not exist", fix="set it to a file of the code")
    if not shutil.which(machine.python):
        raise CannotRun(
            f"python: {machine.python} cannot be executed", fix="create it, or set `python` of the target"
        )
    return (machine.python, str(boot_file), *arguments)


def _own_variables(
    job_id: str, layout: Layout, body: Mapping[str, Any], machine: Machine, environ: Mapping[str, str]
) -> dict[str, str]:
    nodes = int(((body.get("spec") or {}).get("resource") or {}).get("node_count") or 1)
    return {
        **{"PATH": os.defpath, "LD_LIBRARY_PATH": "", "LIBRARY_PATH": ""},
        **{name: environ[name] for name in machine.inherit if name in environ},
        "MA_HOME": str(layout.home),
        "MA_MOUNT_PATH": str(layout.mount),
        "MA_JOB_DIR": str(layout.code),
        "MA_LOG_DIR": str(layout.logs),
        "MA_SCRIPT_INTERPRETER": "",
        "MA_CURRENT_IP": "127.0.0.1",
        "MA_NUM_GPUS": str(_gpu_count(environ)),
        "MA_TASK_NAME": "worker",
        "MA_NUM_HOSTS": str(nodes),
        "VC_WORKER_NUM": str(nodes),
        "VC_WORKER_HOSTS": ",".join(["127.0.0.1"] * nodes),
        "MA_VJ_NAME": f"ma-job-{job_id}",
        "PYTHONPATH": str(layout.code),
        "PYTHONUNBUFFERED": "1",
    }


def _gpu_count(environ: Mapping[str, str]) -> int:
    visible = environ.get("CUDA_VISIBLE_DEVICES")
    if visible is not None:
        return len([one for one in visible.split(",") if one.strip() not in {"", "-1"}])
    return len([one for one in Path("/dev").glob("nvidia*") if re.fullmatch(r"nvidia\d+", one.name)])


def _linked(channel: Mapping[str, Any], source: Path, layout: Layout) -> Path:
    """Return the local directory of an input, linked at the path that the job names for it, if any."""
    if not channel.get("local_dir"):
        return source
    place = layout.place(channel["local_dir"])
    if not place.is_relative_to(layout.home):
        return place
    with contextlib.suppress(OSError):
        place.rmdir()  # created by us, and empty
    parent = place.parent.resolve()
    if os.path.lexists(place) or not parent.is_relative_to(layout.home.resolve()):
        why = f"input {channel['name']}: {channel['local_dir']} is taken by the code or another input"
        raise CannotRun(why, fix="set another `local_dir`")
    parent.mkdir(parents=True, exist_ok=True)
    place.symlink_to(source, target_is_directory=source.is_dir())
    return place


def _pass(channel: Mapping[str, Any], place: Path, arguments: list[str], variables: dict[str, str]) -> None:
    if channel.get("access_method") == "env":
        variables[channel["name"]] = str(place)
    else:
        arguments.append(f"--{channel['name']}={place}")


def _address(channel: Mapping[str, Any]) -> str:
    address = ((channel.get("remote") or {}).get("obs") or {}).get("obs_url")
    if not address:
        raise CannotRun(f"{channel['name']} is not in OBS", fix="declare it as an obs:// path")
    return _obs_address(address)


def _obs_address(path: str) -> str:
    return path if path.startswith("obs://") else f"obs://{path.lstrip('/')}"


# ── in the foreground ────────────────────────────────────────────────────────────────────────────────


def run_in_foreground(
    job_id: str, execution: PreparedJob, machine: Machine, root: Path, say: Callable[[str], object]
) -> int:
    """Run the processes of a job, and return the first exit code that is not 0 (above 63: 1).

    Creates no revision and no record; output is passed through. `root` holds the virtual environments.
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
        # End all processes, also after Ctrl-C; without a grace period after a second one.
        try:
            end_all(grace_s=grace_s)
        except BaseException:
            end_all(grace_s=0)
            raise
        for process in processes:
            process.wait()
    code = next(filter(None, codes), 0)
    # Exit codes from 64 have a meaning of their own.
    return code if 0 <= code < 64 else ExitCode.FAILED


def spell(execution: PreparedJob) -> str:
    """Render directory, variables and command in shell syntax."""
    blocks = []
    for task in execution.tasks:
        lines = [f"# {task.name}", f"cd {shlex.quote(str(task.directory))}"]
        lines += [f"export {name}={shlex.quote(value)}" for name, value in sorted(task.environment.items())]
        blocks.append("\n".join([*lines, shlex.join(task.command), ""]))
    return "\n".join(blocks)
