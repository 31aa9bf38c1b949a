"""A reader that closes our stdout (`| head -1`) changes nothing of what is done, nor the exit code."""

from __future__ import annotations

import io
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TextIO

import pytest

from reconciler.cli.console import Console
from reconciler.cli.main import cli, run
from reconciler.emulator import Effect, Fault
from tests.cli.conftest import Service, manifest, write


@contextmanager
def closed_stdout() -> Iterator[TextIO]:
    """A stdout whose reader has gone."""
    reading, writing = os.pipe()
    os.close(reading)
    with os.fdopen(writing, "w", encoding="utf-8") as stream, pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "stdout", stream)
        yield stream


def run_unread(*arguments: str) -> int:
    """Call the command line; nobody reads what it writes to stdout."""
    with closed_stdout():
        return run(cli, list(arguments))


FORMS = [(), ("--json",), ("-v",)]


@pytest.mark.parametrize("form", FORMS)
def test_apply_whose_output_nobody_reads_is_done(service: Service, form: tuple[str, ...]) -> None:
    write(manifest("a", "b", url=service.url))
    assert run_unread("apply", "--yes", *form) == 0
    assert {job.name for job in service.store.jobs()} == {"a", "b"}


@pytest.mark.parametrize("form", FORMS)
def test_wait_whose_output_nobody_reads_ends_as_it_would_have(
    service: Service, form: tuple[str, ...]
) -> None:
    write(manifest("a", url=service.url))
    service.app.faults.add(Fault(Effect.ANSWER, operation="CreateTrainingJob", status=400, count=1))
    assert run_unread("apply", "--yes", "--wait", "completed", *form) == 5


@pytest.mark.parametrize("form", FORMS)
def test_destroy_whose_output_nobody_reads_is_done(service: Service, form: tuple[str, ...]) -> None:
    write(manifest("a", url=service.url))
    assert run_unread("apply", "--yes") == 0
    service.clock.advance(seconds=10)
    assert run_unread("destroy", "--yes", *form) == 0
    assert {job.life.phase for job in service.store.jobs()} == {"Terminating"}


@pytest.mark.parametrize("form", [(), ("--json",)])
def test_plan_whose_output_nobody_reads_has_its_code(service: Service, form: tuple[str, ...]) -> None:
    write(manifest("a", url=service.url))
    assert run_unread("plan", "--detailed-exitcode", *form) == 2


def test_other_outputs_are_written_all_the_same(service: Service) -> None:
    write(manifest("a", url=service.url))
    assert run_unread("plan", "-o", "text", "-o", "json=plan.json") == 0
    assert Path("plan.json").stat().st_size > 0


@pytest.mark.parametrize("command", ["apply", "destroy"])
def test_nobody_is_asked_about_a_plan_that_could_not_be_shown(
    service: Service,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    command: str,
) -> None:
    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    write(manifest("a", url=service.url))
    if command == "destroy":
        assert run_unread("apply", "--yes") == 0
    service.app.requests.clear()
    monkeypatch.setattr(sys, "stdin", Terminal("y\n"))
    assert run_unread(command) == 3
    assert "the plan could not be shown" in capsys.readouterr().err
    assert all(request.operation.startswith(("List", "Show")) for request in service.app.requests)
    assert [job.life.phase for job in service.store.jobs()] in ([], ["Creating"])


def test_disk_that_is_full_is_still_a_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    write(manifest("a"))
    full = os.fdopen(os.open("/dev/full", os.O_WRONLY), "w", encoding="utf-8")
    with monkeypatch.context() as patch:
        patch.setattr(sys, "stdout", full)
        assert run(cli, ["plan"]) == 1
    with suppress(OSError):
        full.close()


def test_another_stdout_has_its_own_reader() -> None:
    console = Console()
    with closed_stdout():
        console.result("lost")
        assert console.has_no_reader
    assert not console.has_no_reader


@pytest.mark.parametrize("redirection", ["| head -c 1", ">&-"])
def test_apply_into_a_closed_pipe_of_the_shell(tmp_path: Path, redirection: str) -> None:
    write(manifest("a"))
    script = f"{sys.executable} -m reconciler apply --yes {redirection} >/dev/null; exit ${{PIPESTATUS[0]}}"
    if "head" not in redirection:
        script = f"{sys.executable} -m reconciler apply --yes {redirection}"
    environ = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])}
    done = subprocess.run(
        ["bash", "-c", script], env=environ, capture_output=True, text=True, check=False, timeout=60
    )
    assert (done.returncode, "Traceback" in done.stderr) == (0, False), done.stderr
    again = subprocess.run(
        [sys.executable, "-m", "reconciler", "plan", "--detailed-exitcode"],
        env=environ,
        capture_output=True,
        check=False,
        timeout=60,
    )
    assert again.returncode == 0
