"""`reconciler watch`: checks on a schedule, each in a process of its own; time is moved, never waited for."""

from __future__ import annotations

import json
import os
import signal
import socket
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from prometheus_client.parser import text_string_to_metric_families

from reconciler import load
from reconciler import watch as loop
from reconciler.__main__ import main
from reconciler.cli import watch
from reconciler.cli.main import cli, run
from reconciler.emulator import Effect, Fault, Store
from tests.cli.conftest import Service, manifest, put_finished_job, write
from tests.cli.lock_helpers import held_by
from tests.cli.test_interrupted import CREATE, asked, interrupted
from tests.notify.receiver import receiving
from tests.processes import children

# Where tests run in several processes, each has a thread by which it is told what to do.
pytestmark = pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")

Between = Callable[[], object]


class Watched(NamedTuple):
    """What a watch ended with and wrote, the processes of its checks included."""

    code: int
    out: str
    err: str
    waits_s: list[float]

    @property
    def checks(self) -> list[dict[str, Any]]:
        """The lines of --json."""
        return [json.loads(line) for line in self.out.splitlines()]


class Forked:
    """In the place of `Popen`: a command of ours in a process that need not import anything."""

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

    def wait(self, timeout: float = 0.0) -> None:
        if self.returncode is None:
            self.returncode = os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])

    def terminate(self) -> None:
        os.kill(self.pid, signal.SIGTERM)


class TimeMachine(loop.WatchClock):
    """A clock that jumps to the next check; before each one something is done, and at last a signal comes."""

    def __init__(self, between: Sequence[Between], number: int) -> None:
        self._between, self._number = list(between), number
        self._ahead_s = 0.0
        self.waits_s: list[float] = []

    def now(self) -> float:
        return time.time()

    def elapsed(self) -> float:
        return time.monotonic() + self._ahead_s

    def wait(self, seconds: float, descriptor: int | None = None) -> None:
        if descriptor is not None:
            loop.sleep(seconds, descriptor)
        elif self._between:
            self._between.pop(0)()
            self.waits_s.append(seconds)
            self._ahead_s += seconds
        else:
            os.kill(os.getpid(), self._number)

    def take_place(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Let a watch have this clock, wait as it says, and start its checks quickly."""
        monkeypatch.setattr(loop, "Popen", Forked)
        monkeypatch.setattr(watch, "sleep", self.wait)
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
    """Leave all as it is before the next check."""


def jobs() -> list[Any]:
    """The jobs of the local target."""
    with Store(".reconciler/local.sqlite3") as store:
        return [job for job in store.jobs() if job.name != "earlier"]


@pytest.fixture
def stack() -> Path:
    put_finished_job()
    return write(manifest("a", "b"))


@pytest.mark.usefixtures("stack")
def test_json_prints_a_line_for_each_check(watching: Watching) -> None:
    def apply() -> None:
        with load(".").connect() as session:
            session.apply(session.plan(only="a"))

    said = watching("--json", between=[nothing, apply])
    first, second, third = said.checks
    assert said.code == 143
    assert list(first) == ["type", "ts", "number", "exit_code", "summary", "new", "gone"]
    assert (first["type"], first["number"], first["exit_code"]) == ("check", 1, 2)
    assert first["summary"]["missing"] == 2
    assert [(one["class"], one["key"]) for one in first["new"]] == [("missing", "a"), ("missing", "b")]
    assert (second["number"], second["exit_code"], second["new"], second["gone"]) == (2, 2, [], [])
    assert (third["exit_code"], [one["key"] for one in third["gone"]]) == (0, ["a", "b"])


@pytest.mark.usefixtures("stack")
def test_text_is_a_short_line_for_each_check_and_the_drift_that_is_new(watching: Watching) -> None:
    lines = watching(between=[nothing]).out.splitlines()
    words = [line.partition("Z ")[2] for line in (lines[0], lines[3])]
    assert words == ["check 1: 2 missing", "check 2: 2 missing"]
    assert lines[1] == "  new: missing a: declared, but no job exists"
    assert len(lines) == 4


@pytest.mark.usefixtures("stack")
def test_options_of_the_console_are_those_of_its_checks(watching: Watching) -> None:
    watched = watching("-v", "--no-pager", "--color", "never", "--log-format", "json")
    assert watched.code == 143
    assert all("level" in json.loads(line) for line in watched.err.splitlines())


@pytest.mark.usefixtures("stack")
@pytest.mark.parametrize(
    ("number", "code"), [(signal.SIGTERM, 143), (signal.SIGINT, 130), (signal.SIGHUP, 129)]
)
def test_signal_ends_it_in_order(watching: Watching, number: int, code: int) -> None:
    said = watching(number=number)
    assert (said.code, "Traceback" in said.err) == (code, False)
    assert "check 1" in said.out


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (("nowhere/",), 64, "nowhere"),
        (("--every", "0s"), 64, "at least 1s"),
        (("--jitter", "101%"), 64, "not a percentage"),
        (("--window", "Mon"), 64, "Mon-Fri 07:00-19:00 Europe/Berlin"),
        (("--listen", "nowhere"), 64, "127.0.0.1:9464"),
        (("--listen", "127.0.0.1:99999"), 64, "127.0.0.1:9464"),
        (("--listen", "127.0.0.1:" + "9" * 5000), 64, "127.0.0.1:9464"),
        (("--listen", "127.0.0.1:-1"), 64, "127.0.0.1:9464"),
        (("--listen", "[::1:9464"), 64, "127.0.0.1:9464"),
        (("--listen", "nowhere.invalid:9464"), 64, "cannot listen"),
        (("--listen", "192.0.2.1:9464"), 64, "cannot listen"),
        (("--listen", "x" * 300 + ":9464"), 64, "cannot listen"),
        (("--listen", "a..b:9464"), 64, "cannot listen"),
        (("--max-actions", "-1"), 64, "max-actions"),
        (("-o", "html"), 64, "html=FILE"),
        (("-o", "prometheus"), 64, "prometheus=FILE"),
        (("--target", "nowhere"), 64, "nowhere"),
    ],
)
@pytest.mark.usefixtures("stack")
def test_wrong_use_ends_it_at_once(
    watching: Watching, arguments: tuple[str, ...], code: int, words: str
) -> None:
    said = watching(*arguments, between=[nothing])
    assert said.code == code
    assert words in said.err
    assert "check 2" not in said.out


def test_manifest_that_is_invalid_from_the_start_ends_it(watching: Watching) -> None:
    write("stack: test\njobs: {a: {n: 1}}\n")
    said = watching("--json", between=[nothing])
    assert (said.code, len(said.checks)) == (65, 1)
    assert "jobs.yaml:2:" in said.err


@pytest.mark.usefixtures("stack")
def test_manifest_is_read_anew_and_an_invalid_one_is_a_failed_check(watching: Watching) -> None:
    said = watching(
        "--json", between=[lambda: write("stack: test\njobs: {a: {n: 1}}\n"), lambda: write(manifest("a"))]
    )
    assert [check["exit_code"] for check in said.checks] == [2, 65, 2]
    assert (said.checks[1]["summary"], said.checks[1]["new"]) == ({}, [])
    assert said.checks[1]["problem"]
    assert "jobs.yaml:2:" in said.err
    assert [one["key"] for one in said.checks[2]["gone"]] == ["b"]


@pytest.mark.usefixtures("stack")
def test_apply_asks_nobody_and_does_each_thing_once(watching: Watching) -> None:
    said = watching("--apply", "--json", between=[nothing])
    assert [check["applied"] for check in said.checks] == ["applied: 2 done", "nothing to apply"]
    assert [check["exit_code"] for check in said.checks] == [2, 0]
    assert sorted(job.body["metadata"]["name"] for job in jobs()) == ["a", "b"]


@pytest.mark.usefixtures("stack")
def test_plan_with_more_actions_than_allowed_is_refused(
    watching: Watching, capfd: pytest.CaptureFixture[str]
) -> None:
    said = watching("--apply", "--max-actions", "1", "--json")
    [check] = said.checks
    assert (check["exit_code"], check["applied"]) == (3, "refused: too many actions")
    assert "the plan has 2 actions; --max-actions allows 1" in said.err
    assert jobs() == []
    run(cli, ["history", "--json"])
    runs = json.loads(capfd.readouterr().out)["runs"]
    assert [(one["kind"], one["result"]) for one in runs if one["kind"] == "apply"] == [("apply", "refused")]


@pytest.mark.usefixtures("stack")
def test_outside_of_every_window_nothing_is_applied(watching: Watching) -> None:
    tomorrow = time.strftime("%a", time.gmtime(time.time() + 2 * 86400))
    said = watching("--apply", "--window", f"{tomorrow} 10:00-10:01", "--json")
    [check] = said.checks
    assert check["applied"].startswith(f"2 actions wait; the window opens {tomorrow} ")
    assert (check["plan"]["create"], jobs()) == (2, [])
    assert watching("--apply", "--window", "00:00-24:00", "--json").checks[0]["applied"] == "applied: 2 done"


def test_denied_job_hides_no_other_from_an_unattended_apply(watching: Watching) -> None:
    policy = "policies:\n  - {name: not-a, deny: job.key == 'a', message: not today}\n"
    keys = [f"job-{number:02}" for number in range(19)]
    write(manifest("a", *keys, more=policy))
    said = watching("--apply", "--json", between=[nothing])
    assert [check["exit_code"] for check in said.checks] == [3, 3]
    assert sorted(job.name for job in jobs()) == keys
    assert said.checks[1]["applied"] == "nothing to apply, 1 blocked"
    assert "not today" in said.err


def test_guard_that_doubts_all_of_a_plan_stands_in_the_way_of_an_unattended_apply(watching: Watching) -> None:
    write(manifest(*"abcdef"))
    watching("--apply")
    write(manifest("a"))
    said = watching("--apply", "--json")
    assert (said.checks[0]["exit_code"], said.checks[0]["applied"]) == (3, "refused: too many terminations")
    assert [job.name for job in jobs() if job.life.phase == "Terminating"] == []


def test_options_of_an_apply_without_one_are_told(watching: Watching, stack: Path) -> None:
    assert "--max-actions has no effect without --apply" in watching("--max-actions", "1").err


@pytest.fixture
def silent_service(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """A service that takes every connection and never says a word."""
    monkeypatch.setenv("MODELARTS_AUTH_TOKEN", "tell-nobody-1")
    with socket.create_server(("127.0.0.1", 0)) as listening:
        yield f"http://127.0.0.1:{listening.getsockname()[1]}"


def test_check_that_runs_out_of_time_is_ended_and_reported(watching: Watching, silent_service: str) -> None:
    write(manifest("a", url=silent_service))
    began_s = time.monotonic()
    said = watching("--check-timeout", "1s", "--json")
    assert time.monotonic() - began_s < 20
    [check] = said.checks
    assert check["exit_code"] == 8
    assert "--check-timeout" in check["problem"]
    assert "the check was ended" in said.err


def test_check_that_could_read_nothing_says_why(watching: Watching, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MODELARTS_AUTH_TOKEN", "t")
    write(manifest("a", url="http://127.0.0.1:9"))
    said = watching("--json")
    assert [check["exit_code"] for check in said.checks] == [8]
    assert "the service cannot be reached: http://127.0.0.1:9" in said.err
    assert "error: not everything could be read" in said.err


@pytest.mark.usefixtures("stack")
def test_metrics_file_is_written_after_each_check_and_left_as_it_is(watching: Watching) -> None:
    watching("-o", "prometheus=m.prom", between=[lambda: Path("m.prom").unlink()])
    families = text_string_to_metric_families(Path("m.prom").read_text(encoding="utf-8"))
    samples = {
        (sample.name, sample.labels.get("class", sample.labels.get("exit_code", ""))): sample.value
        for family in families
        for sample in family.samples
    }
    assert samples["reconciler_drift", "missing"] == 2
    assert samples["reconciler_run_success", ""] == 1
    assert samples["reconciler_watch_checks_total", "2"] == 2
    assert samples["reconciler_watch_interval_seconds", ""] == 900


@pytest.mark.usefixtures("stack")
def test_report_of_each_check_goes_to_its_files(watching: Watching) -> None:
    watching("-o", "json=drift.json", "-o", "html=drift.html")
    assert json.loads(Path("drift.json").read_text(encoding="utf-8"))["summary"]["missing"] == 2
    assert "data-key" in Path("drift.html").read_text(encoding="utf-8")


@pytest.mark.usefixtures("stack")
def test_report_that_cannot_be_written_hides_no_drift(watching: Watching) -> None:
    said = watching("--json", "-o", "markdown=nowhere/report.md")
    [check] = said.checks
    assert (check["exit_code"], check["summary"]["missing"]) == (1, 2)
    assert [one["key"] for one in check["new"]] == ["a", "b"]
    assert check["problem"] == "the report was not written: No such file or directory"
    assert said.err.count("No such file or directory") == 1


@pytest.mark.usefixtures("stack")
def test_port_in_use_is_wrong_use(watching: Watching) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        said = watching("--listen", f"127.0.0.1:{taken.getsockname()[1]}")
    assert said.code == 64
    assert "cannot listen" in said.err
    assert said.out == ""


@pytest.mark.usefixtures("stack")
def test_gateway_that_is_not_there_changes_nothing(watching: Watching) -> None:
    said = watching("--push-gateway", "http://user:tell-nobody@127.0.0.1:1", "--json", between=[nothing])
    assert [check["exit_code"] for check in said.checks] == [2, 2]
    assert said.err.count("metrics not pushed") == 2
    assert "tell-nobody" not in said.err


def test_signal_within_an_apply_ends_it_in_order(service: Service) -> None:
    write(manifest("a", url=service.url))
    fault = Fault(
        Effect.ANSWER, operation=CREATE, status=429, code="APIGW.0308", retry_after_s=60, count=None
    )
    service.app.faults.add(fault)
    code, err = interrupted(signal.SIGTERM, lambda: asked(service, CREATE) == 1, "watch", "--apply")
    assert code == 143, err
    assert asked(service, CREATE) == 1
    assert service.store.jobs() == []


@pytest.mark.usefixtures("stack")
def test_lock_of_somebody_else_keeps_an_apply_back_and_hides_no_drift(watching: Watching) -> None:
    with held_by("bob"):
        [check] = watching("--apply", "--json").checks
    assert (check["exit_code"], check["summary"]["missing"]) == (6, 2)
    assert check["applied"].startswith("not applied: ")
    assert jobs() == []


def test_url_that_works_is_not_told_again_while_another_one_fails(watching: Watching) -> None:
    with receiving() as receiver:
        urls = [receiver.url("good"), receiver.url("broken")]
        entries = "".join(f"  - {{url: '{url}'}}\n" for url in urls)
        write(manifest("a", more=f"notify:\n{entries}"))
        put_finished_job()
        said = watching("--json", between=[nothing, nothing])
        titles = receiver.titles
        assert (len(titles("good")), len(titles("broken"))) == (1, 3)
    assert said.err.count("not notified") == 3
    assert [check["exit_code"] for check in said.checks] == [2, 2, 2]
