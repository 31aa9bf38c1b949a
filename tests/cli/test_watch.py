"""`reconciler watch`: scheduled checks, each in its own process, on a simulated clock."""

from __future__ import annotations

import json
import os
import signal
import socket
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from pathlib import Path
from subprocess import TimeoutExpired
from typing import Any, NamedTuple

import pytest
from prometheus_client.parser import text_string_to_metric_families

from reconciler import load
from reconciler import watch as loop
from reconciler.__main__ import main
from reconciler.cli import watch
from reconciler.cli.main import cli, run
from reconciler.emulator import Store
from tests.cli.conftest import Service, manifest, put_finished_job, write
from tests.cli.lock_helpers import held_by
from tests.cli.test_interrupted import CREATE, asked, interrupt, throttled
from tests.notify.receiver import receiving
from tests.processes import children

# Under xdist each worker has a control thread.
pytestmark = pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")

Between = Callable[[], object]


class Watched(NamedTuple):
    """The exit code and output of a watch, including the processes of its checks."""

    code: int
    out: str
    err: str
    waits_s: list[float]

    @property
    def checks(self) -> list[dict[str, Any]]:
        """The lines of --json."""
        return [json.loads(line) for line in self.out.splitlines()]


class Forked:
    """A replacement for `Popen` that forks, so the command needs no imports."""

    def __init__(self, command: Sequence[str], *, env: Mapping[str, str], **_: object) -> None:
        reading, writing = os.pipe()
        self.returncode: int | None = None
        self.stdout = os.fdopen(reading, "rb", buffering=0)
        self.pid = os.fork()
        if self.pid == 0:
            try:
                os.setsid()
                os.dup2(writing, 1)
                os.environ.clear()
                os.environ.update(env)
                sys.stdout, sys.stderr = open(1, "w", closefd=False), open(2, "w", closefd=False)  # noqa: SIM115
                sys.argv = command[command.index("reconciler") :]  # type: ignore[assignment]
                main()
            finally:
                os._exit(70)
        os.close(writing)

    def poll(self) -> int | None:
        if self.returncode is None:
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            self.returncode = os.waitstatus_to_exitcode(status) if pid else None
        return self.returncode

    def wait(self, timeout: float = 60.0) -> None:
        ends_s = time.monotonic() + timeout
        while self.poll() is None:
            if time.monotonic() > ends_s:
                raise TimeoutExpired("reconciler", timeout)
            time.sleep(0.01)

    def terminate(self) -> None:
        os.kill(self.pid, signal.SIGTERM)


class TimeMachine(loop.WatchClock):
    """A clock that jumps to the next check; runs a callback before each, and sends a signal at the end."""

    def __init__(self, between: Sequence[Between], number: int) -> None:
        self._between, self._number = list(between), number
        self._ahead_s = 0.0
        self.waits_s: list[float] = []

    def now(self) -> float:
        return time.time()

    def elapsed(self) -> float:
        return time.monotonic() + self._ahead_s

    def wait(self, seconds: float) -> None:
        if self._between:
            self._between.pop(0)()
            self.waits_s.append(seconds)
            self._ahead_s += seconds
        else:
            os.kill(os.getpid(), self._number)

    def take_place(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Patch a watch to use this clock and to fork its checks."""
        monkeypatch.setattr(loop, "Popen", Forked)
        monkeypatch.setattr(watch, "WatchClock", lambda: self)


Watching = Callable[..., Watched]


@pytest.fixture
def watching(monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> Watching:
    """Run a watch: `watching("--apply", between=[…])` does a check, then one after each of these."""

    def call(*arguments: str, between: Sequence[Between] = (), number: int = signal.SIGTERM) -> Watched:
        machine, before = TimeMachine(between, number), children()
        machine.take_place(monkeypatch)
        code = run(cli, ["watch", *arguments])
        out, err = capfd.readouterr()
        assert children() <= before, "no process is left behind"
        return Watched(code, out, err, machine.waits_s)

    return call


def nothing() -> None:
    """Change nothing before the next check."""


def jobs(phase: str = "") -> list[str]:
    """The names of the jobs of the local target, in a phase or in any."""
    with Store(".reconciler/local.sqlite3") as store:
        return sorted(
            job.name for job in store.jobs() if job.name != "earlier" and phase in ("", job.life.phase)
        )


@pytest.fixture
def stack() -> Path:
    put_finished_job()
    return write(manifest("a", "b"))


def codes(result: Watched) -> list[int]:
    return [check["exit_code"] for check in result.checks]


@pytest.mark.usefixtures("stack")
def test_json_prints_a_line_for_each_check(watching: Watching) -> None:
    def apply() -> None:
        with load(".").connect() as session:
            session.apply(session.plan(only="a"))

    result = watching("--json", between=[nothing, apply])
    first, second, third = result.checks
    assert (result.code, codes(result)) == (143, [2, 2, 0])
    assert list(first) == ["type", "ts", "number", "exit_code", "summary", "new", "gone"]
    assert (first["type"], first["number"], first["summary"]["missing"]) == ("check", 1, 2)
    assert [(one["class"], one["key"]) for one in first["new"]] == [("missing", "a"), ("missing", "b")]
    assert (second["number"], second["new"], second["gone"]) == (2, [], [])
    assert [one["key"] for one in third["gone"]] == ["a", "b"]


@pytest.mark.usefixtures("stack")
def test_text_is_a_line_for_each_check_and_the_new_drift(watching: Watching) -> None:
    lines = [line.rpartition("Z ")[2] for line in watching(between=[nothing]).out.splitlines()]
    expected = ["check 1: 2 missing", "  new: missing a: declared, but no job exists", "check 2: 2 missing"]
    assert [lines[n] for n in (0, 1, 3)] == expected
    assert len(lines) == 4


@pytest.mark.usefixtures("stack")
@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGHUP, 129)])
def test_signal_ends_the_watch_cleanly(watching: Watching, number: int, code: int) -> None:
    result = watching(number=number)
    assert (result.code, "Traceback" in result.err) == (code, False)
    assert "check 1" in result.out


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["nowhere/"], "nowhere"),
        (["--every", "0s"], "at least 1s"),
        (["--jitter", "101%"], "not a percentage"),
        (["--window", "Mon"], "Mon-Fri 07:00-19:00 Europe/Berlin"),
        (["--listen", "127.0.0.1:99999"], "127.0.0.1:9464"),
        (["--listen", "nowhere.invalid:9464"], "cannot listen"),
        (["--max-actions", "-1"], "max-actions"),
        (["-o", "html"], "html=FILE"),
        (["-o", "prometheus"], "prometheus=FILE"),
        (["--target", "nowhere"], "nowhere"),
    ],
    ids=lambda value: " ".join(value)[:40] if isinstance(value, list) else "",
)
@pytest.mark.usefixtures("stack")
def test_wrong_usage_ends_the_watch_at_once(watching: Watching, arguments: list[str], words: str) -> None:
    result = watching(*arguments, between=[nothing])
    assert (result.code, "check 2" in result.out) == (64, False)
    assert words in result.err


INVALID = "stack: test\njobs: {a: {n: 1}}\n"


def test_initially_invalid_manifest_ends_the_watch(watching: Watching) -> None:
    write(INVALID)
    result = watching("--json", between=[nothing])
    assert (result.code, len(result.checks)) == (65, 1)
    assert "jobs.yaml:2:" in result.err


@pytest.mark.usefixtures("stack")
def test_manifest_is_reread_and_an_invalid_one_fails_the_check(watching: Watching) -> None:
    result = watching("--json", between=[lambda: write(INVALID), lambda: write(manifest("a"))])
    assert codes(result) == [2, 65, 2]
    assert (result.checks[1]["summary"], result.checks[1]["new"]) == ({}, [])
    assert result.checks[1]["problem"]
    assert "jobs.yaml:2:" in result.err
    assert [one["key"] for one in result.checks[2]["gone"]] == ["b"]


# ── --apply ────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.usefixtures("stack")
def test_unattended_apply_executes_each_action_once_without_prompting(watching: Watching) -> None:
    result = watching("--apply", "--json", between=[nothing])
    assert [check["applied"] for check in result.checks] == ["applied: 2 done", "nothing to apply"]
    assert (codes(result), jobs()) == ([2, 0], ["a", "b"])


@pytest.mark.usefixtures("stack")
def test_plan_with_more_actions_than_allowed_is_refused(
    watching: Watching, capfd: pytest.CaptureFixture[str]
) -> None:
    result = watching("--apply", "--max-actions", "1", "--json")
    [check] = result.checks
    assert (check["exit_code"], check["applied"]) == (3, "refused: too many actions")
    assert "the plan has 2 actions; --max-actions allows 1" in result.err
    assert jobs() == []
    run(cli, ["history", "--json"])
    runs = json.loads(capfd.readouterr().out)["runs"]
    assert [one["result"] for one in runs if one["kind"] == "apply"] == ["refused"]
    assert "--max-actions has no effect without --apply" in watching("--max-actions", "1").err


@pytest.mark.usefixtures("stack")
def test_nothing_is_applied_outside_every_window(watching: Watching) -> None:
    tomorrow = time.strftime("%a", time.gmtime(time.time() + 2 * 86400))
    [check] = watching("--apply", "--window", f"{tomorrow} 10:00-10:01", "--json").checks
    assert (check["applied"], check["exit_code"], jobs()) == ("outside the window", 2, [])
    assert watching("--apply", "--window", "00:00-24:00", "--json").checks[0]["applied"] == "applied: 2 done"


def test_denied_job_hides_no_other_from_an_unattended_apply(watching: Watching) -> None:
    policy = "policies:\n  - {name: not-a, deny: job.key == 'a', message: not today}\n"
    keys = [f"job-{number:02}" for number in range(19)]
    write(manifest("a", *keys, more=policy))
    result = watching("--apply", "--json", between=[nothing])
    assert (codes(result), jobs()) == ([3, 3], keys)
    assert result.checks[1]["applied"] == "nothing to apply, 1 blocked"
    assert "not today" in result.err


def test_plan_guard_refuses_an_unattended_apply(watching: Watching) -> None:
    write(manifest(*"abcdef"))
    watching("--apply")
    write(manifest("a"))
    [check] = watching("--apply", "--json").checks
    assert (check["exit_code"], check["applied"]) == (3, "refused: too many terminations")
    assert jobs("Terminating") == []


@pytest.mark.usefixtures("stack")
def test_foreign_lock_blocks_the_apply_but_not_the_drift_check(watching: Watching) -> None:
    with held_by("bob"):
        [check] = watching("--apply", "--json").checks
    assert (check["exit_code"], check["summary"]["missing"]) == (6, 2)
    assert check["applied"].startswith("not applied: ")
    assert jobs() == []


def test_signal_during_an_apply_ends_it_cleanly(watching: Watching, service: Service) -> None:
    write(manifest("a", url=service.url))
    throttled(service, CREATE)
    result = interrupt(signal.SIGTERM, lambda: asked(service, CREATE) == 1, lambda: watching("--apply"))
    assert (result.code, asked(service, CREATE)) == (143, 1), result.err
    assert service.store.jobs() == []


# ── checks that fail ───────────────────────────────────────────────────────────────────────────────


def test_timed_out_check_is_ended_and_reported(watching: Watching, monkeypatch: pytest.MonkeyPatch) -> None:
    """The service accepts every connection and never responds."""
    monkeypatch.setenv("MODELARTS_AUTH_TOKEN", "tell-nobody-1")
    with socket.create_server(("127.0.0.1", 0)) as listening:
        write(manifest("a", url=f"http://127.0.0.1:{listening.getsockname()[1]}"))
        began_s = time.monotonic()
        result = watching("--check-timeout", "1s", "--json")
    assert time.monotonic() - began_s < 20
    assert codes(result) == [8]
    assert "--check-timeout" in result.checks[0]["problem"]
    assert "the check timed out" in result.err


@pytest.mark.usefixtures("stack")
def test_check_without_a_problem_writes_nothing_to_stderr(watching: Watching) -> None:
    assert watching().err == "terminated\n"


def test_check_that_reads_nothing_says_why(watching: Watching, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MODELARTS_AUTH_TOKEN", "t")
    write(manifest("a", url="http://127.0.0.1:9"))
    result = watching("--json")
    assert codes(result) == [8]
    assert "the service cannot be reached: http://127.0.0.1:9" in result.err
    assert "error: not everything could be read" in result.err


# ── reports, metrics, notifications ────────────────────────────────────────────────────────────────


@pytest.mark.usefixtures("stack")
def test_files_are_written_after_each_check(watching: Watching) -> None:
    outputs = ("-o", "json=drift.json", "-o", "html=drift.html", "-o", "prometheus=m.prom")
    watching(*outputs, between=[lambda: Path("m.prom").unlink()])
    families = text_string_to_metric_families(Path("m.prom").read_text(encoding="utf-8"))
    samples = {
        (sample.name, sample.labels.get("class", "")): sample.value
        for family in families
        for sample in family.samples
    }
    assert samples["reconciler_drift", "missing"] == 2
    assert samples["reconciler_run_success", ""] == 1
    assert json.loads(Path("drift.json").read_text(encoding="utf-8"))["summary"]["missing"] == 2
    assert "data-key" in Path("drift.html").read_text(encoding="utf-8")


def test_metrics_of_an_initially_failing_watch_name_the_stack(watching: Watching) -> None:
    write(manifest("a", url="http://127.0.0.1:9"))
    assert codes(watching("--json", "-o", "prometheus=m.prom")) == [7]
    text = Path("m.prom").read_text(encoding="utf-8")
    assert 'reconciler_run_success{stack="test",target="there",command="watch"} 0.0' in text


def test_working_url_is_not_notified_again_while_another_fails(watching: Watching) -> None:
    import_module("apprise")  # each check is forked from here

    with receiving() as receiver:
        entries = "".join(f"  - {{url: '{receiver.url(name)}'}}\n" for name in ("good", "broken"))
        write(manifest("a", more=f"notify:\n{entries}"))
        put_finished_job()
        result = watching("--json", between=[nothing, nothing])
        assert [len(receiver.titles(name)) for name in ("good", "broken")] == [1, 3]
    assert (codes(result), result.err.count("notification to ")) == ([2, 2, 2], 3)
