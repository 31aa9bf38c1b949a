"""The command line as many real processes with fast startup: `python -m tests.scenarios.fork_server`.

A fork server imports the whole program once, then forks a child for each run: the child is a process of its
own, which can be killed, and does not pay for the imports. It has no threads when it forks. Each line on
stdin is a request, each line on stdout its answer; when stdin ends, so does the fork server.
"""

from __future__ import annotations

import gc
import importlib
import json
import os
import pkgutil
import signal
import subprocess
import sys
import tempfile
import threading
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, redirect_stderr, redirect_stdout, suppress
from io import StringIO
from pathlib import Path
from typing import Any, NamedTuple

from tests.builders import a_startable_entry
from tests.scenarios import hooks

ROOT = Path(__file__).parents[2]
OUT, ERR = "stdout.txt", "stderr.txt"
#: Longer than any run, in seconds; a hanging run must not hang the tests.
_LONGEST_S = 60


class Run(NamedTuple):
    """Exit code or -signal of a process, and its output."""

    code: int
    out: str
    err: str

    @property
    def events(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.out.splitlines()]


class ForkServer:
    """The fork server, as seen by a test."""

    def __init__(self) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.scenarios.fork_server"],
            cwd=ROOT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            start_new_session=True,  # Ctrl-C must reach only the tests
        )
        assert self._answer() == "ready"

    def close(self) -> None:
        """End it; its children should have ended."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(5)
        with suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
        assert self._process.stdout is not None
        self._process.stdout.close()

    def start(
        self,
        home: Path,
        *arguments: str,
        accidents: Sequence[hooks.Accident] = (),
        log: Path | None = None,
        clock_url: str | None = None,
        environ: Mapping[str, str] | None = None,
        name: str = "",
    ) -> Started:
        """Start `reconciler ARGUMENTS` in the directory `home`.

        `log` receives the passed moments; the `accidents` happen at some of them.
        Sleeping advances the clock of the service instead: at `clock_url`, or of the local target.
        Output goes to files in `home` that begin with `name`.
        """
        order = {
            "home": str(home),
            "arguments": arguments,
            "accidents": [accident._asdict() for accident in accidents],
            "log": str(log) if log else None,
            "clock_url": clock_url,
            "environ": {**(environ or {}), "HOME": str(home), "TMPDIR": str(home), "PATH": ""},
            "name": name,
        }
        return Started(self, self._ask(order), home, name)

    def run(self, home: Path, *arguments: str, **more: Any) -> Run:
        return self.start(home, *arguments, **more).end()

    def wait(self, pid: int) -> int:
        return self._ask({"wait": pid})

    def stands(self, pid: int) -> bool:
        return bool(self._ask({"stands": pid}))

    def _ask(self, order: Mapping[str, Any]) -> int:
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(order) + "\n")
        self._process.stdin.flush()
        return int(self._answer())

    def _answer(self) -> str:
        assert self._process.stdout is not None
        answer = self._process.stdout.readline().strip()
        assert answer, "the fork_server has died"
        return answer


class Started(NamedTuple):
    """A process that was started."""

    fork_server: ForkServer
    pid: int
    home: Path
    name: str

    def stands(self) -> bool:
        """Wait until it stands still; return False if it ended instead."""
        return self.fork_server.stands(self.pid)

    def go_on(self) -> None:
        os.kill(self.pid, signal.SIGCONT)

    def end(self) -> Run:
        code = self.fork_server.wait(self.pid)
        out, err = (self.home / (self.name + file) for file in (OUT, ERR))
        return Run(code, out.read_text(encoding="utf-8"), err.read_text(encoding="utf-8"))


# --- inside the fork server


#: Successive manifests: jobs are created, updated, replaced, terminated, renamed.
_WARM_UP = (
    {"a": a_startable_entry(lr=1), "b": a_startable_entry(lr=1), "c": a_startable_entry(lr=1)},
    {
        "a": {**a_startable_entry(lr=1), "description": "text"},
        "b": a_startable_entry(lr=2),
        "d": {**a_startable_entry(lr=1), "formerly": "c"},
    },
    {
        "b": {**a_startable_entry(lr=2), "needs": ["d"]},
        "d": a_startable_entry(lr=1),
        "e": {**a_startable_entry(lr=2), "needs": ["d"]},
    },
)


def _obey() -> None:
    import_everything()
    _warm_up()
    assert threading.enumerate() == [threading.main_thread()]
    gc.collect()
    gc.freeze()
    _say("ready")
    for line in sys.stdin:
        order = json.loads(line)
        if "wait" in order:
            _, status = os.waitpid(order["wait"], 0)
            _say(str(os.waitstatus_to_exitcode(status)))
            continue
        if "stands" in order:
            found = os.waitid(os.P_PID, order["stands"], os.WEXITED | os.WSTOPPED | os.WNOWAIT)
            _say(str(int(found is not None and found.si_code == os.CLD_STOPPED)))
            continue
        pid = os.fork()
        if pid == 0:
            _become(order)
        _say(str(pid))


def _say(text: str) -> None:
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


def import_everything() -> None:
    """Import each module of the program."""
    import reconciler

    os.environ.setdefault("PYDANTIC_DISABLE_PLUGINS", "__all__")
    for module in pkgutil.walk_packages(reconciler.__path__, "reconciler."):
        if not module.name.endswith("__main__"):
            importlib.import_module(module.name)
    for name in ("traceback", "reconciler.__main__"):
        importlib.import_module(name)


def _warm_up() -> None:
    """Do what is slow only the first time: compile patterns and statements, build models."""
    from reconciler.cli.main import cli, run

    hooks.do_not_sleep(None)
    head = {"apiVersion": "reconciler/v1", "stack": "warm", "targets": {"here": {"kind": "local"}}}
    before = Path.cwd()
    with tempfile.TemporaryDirectory() as directory, redirect_stdout(StringIO()), redirect_stderr(StringIO()):
        os.chdir(directory)
        for jobs in _WARM_UP:
            Path("jobs.yaml").write_text(json.dumps({**head, "jobs": jobs}), encoding="utf-8")
            for arguments in (["apply", "--yes"], ["plan"]):
                code = run(cli, arguments)
                assert code == 0, f"{arguments} ended with {code}"
        os.chdir(before)


def _become(order: Mapping[str, Any]) -> None:
    home, name = Path(order["home"]), order["name"]
    create = os.O_WRONLY | os.O_CREAT | os.O_TRUNC
    opened = [
        os.open(path, flags, 0o600)
        for path, flags in (
            (os.devnull, os.O_RDONLY),
            (home / (name + OUT), create),
            (home / (name + ERR), create),
        )
    ]
    accidents = [hooks.Accident(**accident) for accident in order["accidents"]]
    with become(home, order["environ"], order["arguments"], opened):
        hooks.install(accidents, order["log"], order["clock_url"])


@contextmanager
def become(
    directory: Path, environ: Mapping[str, str], arguments: Sequence[str], opened: Sequence[int]
) -> Iterator[None]:
    """Turn this child into a `reconciler` process."""
    try:
        signal.alarm(_LONGEST_S)  # ends the process
        os.chdir(directory)
        os.environ.clear()
        os.environ.update(environ)
        for place, descriptor in enumerate(opened):
            os.dup2(descriptor, place)
            os.close(descriptor)
        sys.stdin = open(0, encoding="utf-8")  # noqa: SIM115 - what a process begins with
        sys.stdout = open(1, "w", encoding="utf-8")  # noqa: SIM115
        sys.stderr = open(2, "w", encoding="utf-8", buffering=1)  # noqa: SIM115
        sys.argv = ["reconciler", *arguments]
        warnings.simplefilter("ignore")
        yield
        from reconciler.__main__ import main

        main()
    finally:
        import traceback

        traceback.print_exc()
        os._exit(99)


if __name__ == "__main__":
    _obey()
