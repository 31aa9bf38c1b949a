"""Fixtures for every test: nothing of the user who runs them is read or written."""

from __future__ import annotations

import gc
import os
import shutil
import signal
import tempfile
from collections import Counter
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import HealthCheck, settings

from tests.git_repository import Git, make_repository

#: A test records a count under this name: `record_property("figure", [subject, number])`.
FIGURE = "figure"
#: Temporary files in memory: each transaction of a record store would wait for a disk.
MEMORY, ENOUGH_BYTES = Path("/dev/shm"), 1 << 30
settings.register_profile("any machine", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("any machine")
_PERSONAL = ("RECONCILER_", "HUAWEICLOUD_", "HW_", "OS_", "MODELARTS_")


def pytest_configure() -> None:
    """Keep temporary files in memory if there is enough, and let child processes cache bytecode."""
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    if os.access(MEMORY, os.W_OK) and shutil.disk_usage(MEMORY).free > ENOUGH_BYTES:
        os.environ.setdefault("PYTEST_DEBUG_TEMPROOT", str(MEMORY))


@pytest.fixture(scope="session", autouse=True)
def _default_signal_handlers() -> None:
    """Restore handlers: background jobs ignore SIGINT and SIGQUIT, and nohup ignores SIGHUP."""
    for number in (signal.SIGINT, signal.SIGQUIT, signal.SIGHUP):
        if signal.getsignal(number) is signal.SIG_IGN:
            signal.signal(number, signal.default_int_handler if number == signal.SIGINT else signal.SIG_DFL)


@pytest.fixture(scope="session", autouse=True)
def _clean_environment(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """An empty home, and an environment without credentials or options (the live suite keeps its own)."""
    home: Path = tmp_path_factory.mktemp("home")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("HOME", str(home))
        if not any(name.startswith("RECONCILER_LIVE") for name in os.environ):
            for name in [name for name in os.environ if name.startswith(_PERSONAL)]:
                patch.delenv(name)
        yield


@pytest.fixture(scope="session", autouse=True)
def _temporary_files() -> Iterator[None]:
    """Remove with the tests what the program leaves in the directory for temporary files."""
    with pytest.MonkeyPatch.context() as patch, TemporaryDirectory(prefix="reconciler-tests-") as name:
        # A database server of the tests runs as another user.
        Path(name).chmod(0o711)
        patch.setenv("TMPDIR", name)
        patch.setattr(tempfile, "tempdir", None)
        yield


@pytest.fixture
def git(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Git:
    """Return git in a new repository, which is the current directory."""
    return make_repository(tmp_path / "repository", monkeypatch)


@pytest.fixture
def _growing_logs(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let jobs of the emulator log a line every ten seconds, like those of the service."""

    def log(_: object, job: Any, task: str, most: int | None = None) -> tuple[bytes, int]:
        count = min(job.status["duration"] // 10_000 + 1, 10_000)
        times = [datetime.fromtimestamp(job.life.started_ms / 1000 + n * 10, UTC) for n in range(count)]
        lines = (f"[{at:%Y-%m-%dT%H:%M:%SZ}] [{task}] step {n}\n" for n, at in enumerate(times))
        text = "".join(lines).encode()
        return text[-most:] if most else text, len(text)

    monkeypatch.setattr("reconciler.emulator.Store.log", log)


@pytest.fixture
def _no_retry_delay(monkeypatch: pytest.MonkeyPatch) -> None:
    """Skip the pauses between retries."""
    monkeypatch.setattr("reconciler.modelarts.clock.SystemClock.sleep", lambda clock, seconds: None)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: object) -> object:
    """Let idle workers steal tests, so that none waits for the long ones."""
    if config.getvalue("dist") != "load":  # the default with `--numprocesses`
        return None
    from xdist.scheduler import WorkStealingScheduling  # type: ignore[import-untyped]

    return WorkStealingScheduling(config, log)


def pytest_collectstart() -> None:
    """Disable garbage collection: collected tests stay alive."""
    gc.disable()


def pytest_collection_finish() -> None:
    """Enable garbage collection again."""
    gc.freeze()
    gc.set_threshold(50_000, 20, 50)
    gc.enable()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Start with the longest tests, so that all workers finish at about the same time."""
    items.sort(key=lambda item: "scenarios" not in item.path.parts)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Show the sums of all counts, so that a log says how much a green run proves."""
    sums: Counter[str] = Counter()
    for report in terminalreporter.getreports("passed"):
        for name, value in report.user_properties:
            if name == FIGURE and isinstance(value, list):
                sums[value[0]] += value[1]
    if sums:
        terminalreporter.section("counted")
        for what, many in sums.items():
            terminalreporter.write_line(f"{many:>6} {what}")
