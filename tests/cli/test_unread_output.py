"""A reader that closes stdout (`| head -1`) changes neither what is executed nor the exit code."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TextIO

import pytest

from reconciler.cli import jobs
from reconciler.cli.console import Console, console
from reconciler.cli.main import COMMANDS, cli, run
from reconciler.emulator import Effect, Fault, Job, ManualClock, Store, create_app, running
from reconciler.emulator.store import Body
from reconciler.modelarts.connect import ModelArtsBackend
from tests.cli.conftest import Service, manifest, write
from tests.cli.terminal import ROOT, Terminal
from tests.hostile.sizes import RecordProperty, count_tried


@contextmanager
def closed_stdout() -> Iterator[TextIO]:
    """A stdout with a closed reader."""
    reading, writing = os.pipe()
    os.close(reading)
    with os.fdopen(writing, "w", encoding="utf-8") as stream, pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "stdout", stream)
        yield stream


def run_unread(*arguments: str) -> int:
    """Call the command line with an unread stdout."""
    with closed_stdout():
        return run(cli, list(arguments))


#: Command → read-only command lines, each with its exit code.
LINES: dict[str, list[tuple[str, int]]] = {
    "export": [("export a", 0), ("export nothing", 1)],
    "init": [("init other", 0)],
    "fmt": [("fmt --check broken", 0)],
    "validate": [("validate --json", 0), ("validate broken", 65)],
    "review": [("review . .", 0), ("review --json . .", 0)],
    "plan": [("plan", 0), ("plan --json", 0), ("plan --detailed-exitcode", 2), ("plan refused", 3)],
    "policies": [("policies test cases", 0)],
    "notify": [("notify test", 0)],
    "apply": [("apply", 3), ("apply --json", 3), ("apply refused", 3), ("apply --plan old.plan", 4)],
    "destroy": [("destroy", 3), ("destroy --json", 3)],
    "adopt": [("adopt a nothing", 1), ("adopt --from-stack before", 0)],
    "release": [("release a", 3), ("release nothing", 64)],
    "show": [("show saved.plan", 0), ("show --json saved.plan", 0), ("show jobs.yaml", 65)],
    "drift": [("drift", 2), ("drift --json", 2)],
    "watch": [("watch nowhere", 64)],
    "status": [("status", 0), ("status --json", 0)],
    "why": [("why a", 0), ("why --json a", 0)],
    "history": [("history", 0), ("history --json", 0)],
    "jobs": [
        *(("jobs list", 0), ("jobs list --json", 0), ("jobs show a", 0), ("jobs logs a", 0)),
        *(("jobs logs a --json", 0), ("jobs events a", 0), ("jobs metrics a", 0)),
        *(("jobs wait a --for running --timeout 0s", 9), ("jobs terminate a", 3), ("jobs delete a", 3)),
    ],
    "code": [("code list", 64)],
    "flavors": [("flavors", 0)],
    "engines": [("engines", 0)],
    "run": [("run a --print", 64)],
    "doctor": [("doctor", 0), ("doctor --json", 0)],
    "unlock": [("unlock", 0)],
    "schema": [("schema", 0)],
    "explain": [("explain states", 0), ("explain origin a", 0)],
    "completion": [("completion bash", 0)],
    "emulator": [("emulator --help", 0)],
}


def test_every_command_has_an_unread_output_test() -> None:
    assert set(LINES) == set(COMMANDS)
    tried = {line.split()[1] for line, _ in LINES["jobs"]}
    assert tried == set(jobs.jobs_command.commands)


@pytest.fixture(scope="module")
def stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A running job with drift, an edit, a valid plan and a stale one."""
    clock, home = ManualClock(), tmp_path_factory.mktemp("unread")
    with pytest.MonkeyPatch.context() as patch, Store(clock=clock) as store:
        patch.chdir(home)
        patch.setenv("MODELARTS_AUTH_TOKEN", "tell-nobody-1")
        with running(create_app(store, project_id="p1", token="tell-nobody-1")) as url:
            write(manifest("a", url=url))
            assert run(cli, ["plan", "--out", "old.plan"]) == 0
            assert run(cli, ["apply", "--yes"]) == 0
            [job] = store.jobs()
            store.change("p1", job.id, _reword)
            write(manifest("a", "b", url=url))
            assert run(cli, ["plan", "--out", "saved.plan"]) == 0
            write("job: {}\nexpect: {}\n", "cases/one.yaml")
            write("stack: broken\njobs: []\n", "broken/jobs.yaml")
            write(manifest(url=url).replace("stack: test", "stack: empty"), "refused/jobs.yaml")
            yield home


def _reword(_: Job, body: Body) -> None:
    body["metadata"]["description"] = body["metadata"]["description"].replace("a of", "b of")


@pytest.fixture(autouse=True)
def _there(stack: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(stack)
    monkeypatch.setenv("MODELARTS_AUTH_TOKEN", "tell-nobody-1")


def run_closed(*arguments: str) -> int:
    """Call the command line without a stdout, like `>&-`."""
    with Path(os.devnull).open("w", encoding="utf-8") as nowhere, pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "stdout", nowhere)
        console.on_broken_pipe()
        return run(cli, list(arguments))


def run_full(*arguments: str) -> int:
    """Call the command line with stdout on a full disk."""
    full = os.fdopen(os.open("/dev/full", os.O_WRONLY), "w", encoding="utf-8")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "stdout", full)
        code = run(cli, list(arguments))
    with suppress(OSError):
        full.close()
    return code


ALL = [(line, code) for lines in LINES.values() for line, code in lines]


@pytest.mark.parametrize(("line", "code"), ALL)
def test_unread_output_does_not_change_the_exit_code(
    line: str, code: int, capsys: pytest.CaptureFixture[str], record_property: RecordProperty
) -> None:
    assert run(cli, line.split()) == code, "as it is where somebody reads"
    is_first = line == LINES[line.split()[0]][0][0]  # all lines of a command share their exit path
    for run_it in (run_unread, run_closed) if is_first else (run_unread,):
        assert run_it(*line.split()) == code, run_it.__name__
        assert "Traceback" not in capsys.readouterr().err
        count_tried(record_property, "output whose reader has exited", 1)


@pytest.mark.parametrize("line", ["plan", "plan --json", "status", "schema"])
def test_unwritable_stdout_is_a_failure(line: str) -> None:
    """Unlike with a closed pipe, requested output is lost."""
    assert run_full(*line.split()) == 1


@pytest.mark.parametrize(
    ("line", "redirection"),
    [("validate broken", ">&-"), ("apply --yes", "| head -c 0")],
)
def test_unread_output_does_not_change_the_exit_code_in_a_shell(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, line: str, redirection: str
) -> None:
    code = dict(ALL).get(line, 0)
    if code == 0:
        monkeypatch.chdir(tmp_path)
        write(manifest("a"))
    script = f"{sys.executable} -m reconciler {line} {redirection}; exit ${{PIPESTATUS[0]}}"
    environ = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        ["bash", "-c", script], env=environ, capture_output=True, text=True, check=False, timeout=60
    )
    assert (done.returncode, "Traceback" in done.stderr) == (code, False), done.stderr
    assert "apply" not in line or run(cli, ["plan", "--detailed-exitcode"]) == 0, "it was done"


# ── prompts ──────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("run_it", [run_unread, run_closed, run_full])
@pytest.mark.parametrize("line", ["apply", "destroy", "apply --plan saved.plan"])
def test_nothing_is_executed_if_the_plan_could_not_be_shown(
    monkeypatch: pytest.MonkeyPatch, run_it: Callable[..., int], line: str
) -> None:
    changing: list[str] = []
    monkeypatch.setattr("reconciler.rollout.Rollout.run", lambda *_: changing.append(line))
    monkeypatch.setattr(sys, "stdin", Terminal("y\n" * 9))
    assert run_it(*line.split()) == (1 if run_it is run_full else 3)
    assert changing == []


@pytest.mark.parametrize("line", ["apply", "destroy", "apply --plan saved.plan", "jobs terminate a --force"])
def test_nothing_is_executed_if_the_prompt_could_not_be_shown(
    monkeypatch: pytest.MonkeyPatch, line: str
) -> None:
    changing: list[str] = []
    monkeypatch.setattr("reconciler.rollout.Rollout.run", lambda *_: changing.append(line))
    monkeypatch.setattr(ModelArtsBackend, "terminate", lambda *_: changing.append(line))
    monkeypatch.setattr(sys, "stdin", Terminal("y\n" * 9))
    reading, writing = os.pipe()
    os.close(reading)
    stream = os.fdopen(writing, "w", encoding="utf-8")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "stderr", stream)
        code = run(cli, line.split())
    with suppress(OSError):  # the unwritten output is still buffered
        stream.close()
    assert code == 3
    assert changing == []


# ── execution ──────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("form", [(), ("--json",), ("-v",)])
def test_apply_wait_and_destroy_complete_with_unread_output(
    service: Service, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, form: tuple[str, ...]
) -> None:
    monkeypatch.chdir(tmp_path)
    write(manifest("a", url=service.url))
    service.app.faults.add(Fault(Effect.ANSWER, operation="CreateTrainingJob", status=400, count=1))
    assert run_unread("apply", "--yes", "--wait", "completed", *form) == 5
    write(manifest("a", "b", url=service.url))
    assert run_unread("apply", "--yes", *form) == 0
    assert {job.name for job in service.store.jobs()} == {"a", "b"}
    service.clock.advance(seconds=10)
    assert run_unread("destroy", "--yes", *form) == 0
    assert "Terminating" in {job.life.phase for job in service.store.jobs()}


def test_unread_stdout_does_not_stop_output_files() -> None:
    assert run_unread("plan", "-o", "text", "-o", "json=plan.json") == 0
    assert Path("plan.json").stat().st_size > 0


def test_broken_pipe_is_tracked_per_stdout() -> None:
    console = Console()
    with closed_stdout():
        console.result("lost")
        assert console.has_no_reader
    assert not console.has_no_reader
