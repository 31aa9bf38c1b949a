"""Files are written atomically and never through a link; only small regular files are read."""

from __future__ import annotations

import errno
import os
import socket
import stat
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NoReturn

import pytest

from reconciler import files
from reconciler.files import NotRegular, TooLarge, read_file, remove_temporary_files, write_file
from tests.hostile.sizes import RecordProperty, count_tried

ROOT = Path(__file__).parents[1]
PLANTED = "links at the path of an output"


def link_to_directory(path: Path) -> None:
    (path.parent / "elsewhere").mkdir()
    path.symlink_to("elsewhere")


def bound_socket(path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(path))


ODD: list[tuple[Callable[[Path], None], str]] = [
    (Path.mkdir, "a directory"),
    (link_to_directory, "a directory"),
    (os.mkfifo, "a pipe"),
    (bound_socket, "a socket"),
]


@pytest.fixture
def target(tmp_path: Path) -> Path:
    return tmp_path / "target"


@pytest.fixture(autouse=True)
def _leaves_no_temporary_file(tmp_path: Path) -> Iterator[None]:
    yield
    assert not list(tmp_path.glob(".*.tmp"))


# ── written ────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(("make", "kind"), ODD)
def test_write_over_an_irregular_file_is_refused(
    target: Path, make: Callable[[Path], None], kind: str, record_property: RecordProperty
) -> None:
    make(target)
    before = target.lstat()
    with pytest.raises(NotRegular, match=kind):
        write_file(target, b"x")
    assert target.lstat().st_ino == before.st_ino
    count_tried(record_property, PLANTED, 1)


@pytest.mark.parametrize("leads_to", ["victim", "nowhere", "/dev/null", "target"])
def test_planted_link_is_replaced_and_not_followed(
    target: Path, leads_to: str, record_property: RecordProperty
) -> None:
    victim = target.with_name("victim")
    victim.write_text("precious")
    target.symlink_to(leads_to)
    write_file(target, b"ours")
    assert not target.is_symlink()
    assert target.read_bytes() == b"ours"
    assert victim.read_text() == "precious"
    assert Path("/dev/null").is_char_device()
    assert not target.with_name("nowhere").exists()
    count_tried(record_property, PLANTED, 1)


def test_temporary_name_cannot_be_guessed_and_a_planted_one_is_not_followed(
    target: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    names: list[str] = []
    replace = Path.replace

    def noted(self: Path, to: Path) -> Path:
        names.append(self.name)
        return replace(self, to)

    monkeypatch.setattr(Path, "replace", noted)
    for _ in range(50):
        write_file(target.with_name("other"), b"x")
    assert len(set(names)) == 50
    assert f".{os.getpid()}.tmp" not in names
    (victim := target.with_name("victim")).write_text("precious")
    monkeypatch.setattr(os, "urandom", bytes)
    target.with_name(f".{'00' * 8}.tmp").symlink_to(victim)
    with pytest.raises(FileExistsError):
        write_file(target, b"ours")
    assert victim.read_text() == "precious"
    assert not target.exists()


@pytest.mark.parametrize(
    ("was", "mode", "umask", "becomes"),
    [
        (None, None, 0o022, 0o644),
        (None, None, 0o077, 0o600),
        (0o640, None, 0o022, 0o640),
        (0o644, 0o600, 0o000, 0o600),
        (None, 0o600, 0o000, 0o600),
        (None, 0o600, 0o777, 0o600),
    ],
)
def test_written_file_has_the_expected_mode(
    target: Path, was: int | None, mode: int | None, umask: int, becomes: int
) -> None:
    if was is not None:
        target.touch()
        target.chmod(was)
    before = os.umask(umask)
    try:
        write_file(target, b"x", mode)
    finally:
        os.umask(before)
    assert stat.S_IMODE(target.stat().st_mode) == becomes


@pytest.mark.parametrize("step", ["write", "fsync", "replace"])
@pytest.mark.parametrize("error", [OSError(errno.ENOSPC, "No space left on device"), KeyboardInterrupt()])
def test_failed_write_leaves_the_old_file(
    target: Path, monkeypatch: pytest.MonkeyPatch, step: str, error: BaseException
) -> None:
    target.write_text("before")

    def fail(*_: object) -> NoReturn:
        raise error

    with monkeypatch.context() as patch:
        place = Path if step == "replace" else os
        patch.setattr(place, step, fail)
        with pytest.raises(type(error)) as caught:
            write_file(target, b"after")
    if isinstance(caught.value, OSError):
        assert caught.value.filename == str(target)
    assert target.read_text() == "before"
    assert [path.name for path in target.parent.iterdir()] == ["target"]


def test_failed_write_of_a_new_file_names_it_and_leaves_nothing(target: Path) -> None:
    """With a file size limit of 0, like a full disk."""
    script = (
        "import resource, signal, sys; from pathlib import Path\n"
        "from reconciler.files import write_new_file\n"
        "signal.signal(signal.SIGXFSZ, signal.SIG_IGN)\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))\n"
        "try: write_new_file(Path(sys.argv[1]), b'x')\n"
        "except OSError as error: print(error.filename, end='')"
    )
    with program(script, str(target)) as process:
        assert process.communicate()[0] == bytes(target)
    assert not target.exists()


def program(*arguments: str, **options: Any) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-c", *arguments]
    return subprocess.Popen(command, env={"PYTHONPATH": str(ROOT)}, **{"stdout": subprocess.PIPE, **options})


def test_temporary_file_is_removed_on_immediate_exit(target: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    there: list[list[Path]] = []

    def stop(descriptor: int) -> None:
        there.append(list(target.parent.iterdir()))
        remove_temporary_files()
        there.append(list(target.parent.iterdir()))
        raise KeyboardInterrupt

    monkeypatch.setattr(os, "fsync", stop)
    with pytest.raises(KeyboardInterrupt):
        write_file(target, b"x")
    assert [len(found) for found in there] == [1, 0]


SLOW_WRITER = """\
import os, signal, sys, time
from pathlib import Path
from reconciler.cli import main
from reconciler.__main__ import main as program
from reconciler import files

def write():
    def slow(descriptor):
        print("writing", flush=True)
        time.sleep(60)
    files.os.fsync = slow
    files.write_file(Path(sys.argv[1]), b"x")

target, sys.argv[1:] = sys.argv[1], []
sys.argv.append(target)
main.run = lambda *_: write()
program()
"""


def test_temporary_file_is_removed_after_a_signal(target: Path) -> None:
    """Any signal; for exit codes see tests/cli/test_interrupted.py."""
    with program(SLOW_WRITER, str(target), stderr=subprocess.DEVNULL) as process:
        assert process.stdout is not None
        process.stdout.readline()
        process.terminate()
        assert process.wait(30) == 143
    assert list(target.parent.iterdir()) == []


@pytest.mark.parametrize("goes_to", ["pipe", "file"])
def test_system_file_is_written_in_place(tmp_path: Path, goes_to: str) -> None:
    """Through a link such as `/dev/stdout`, which must not be replaced."""
    assert Path("/dev") == files._DEVICES
    (link := tmp_path / "stdout").symlink_to("/proc/self/fd/1")
    path, out = link if goes_to == "pipe" else Path("/dev/fd/1"), tmp_path / "out"
    script = (
        "import sys; from reconciler import files; from pathlib import Path; path = Path(sys.argv[1])\n"
        "files._DEVICES = path.parent\n"
        "for text in (b'one', b'two'): files.write_file(path, text)"
    )
    with (
        out.open("wb") as stream,
        program(script, str(path), **({} if goes_to == "pipe" else {"stdout": stream})) as done,
    ):
        said, _ = done.communicate()
    assert (said if goes_to == "pipe" else out.read_bytes()) == b"onetwo"
    assert link.is_symlink()


def test_pipe_without_a_reader_does_not_block_a_write(monkeypatch: pytest.MonkeyPatch, target: Path) -> None:
    os.mkfifo(target)
    monkeypatch.setattr(files, "_DEVICES", target.parent)
    with pytest.raises(OSError, match="No such device"):
        write_file(target, b"x")


# ── read ───────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(("make", "kind"), [*ODD, (lambda path: path.symlink_to("/dev/zero"), "a device")])
def test_read_of_an_irregular_file_is_refused_without_blocking(
    target: Path, make: Callable[[Path], None], kind: str
) -> None:
    make(target)
    with pytest.raises(NotRegular, match=kind):
        read_file(target, 10)


def test_read_follows_a_link_to_a_regular_file(target: Path) -> None:
    target.write_bytes(b"x")
    link = target.with_name("link")
    link.symlink_to(target)
    assert read_file(link, 10) == b"x"


@pytest.mark.parametrize("name", ["/dev/zero", "/dev/tty", "/dev/stdin"])
def test_device_is_not_read(name: str) -> None:
    with pytest.raises((NotRegular, FileNotFoundError)):
        read_file(Path(name), 10)


def test_read_beyond_the_limit_is_refused_with_the_limit(target: Path) -> None:
    with target.open("wb") as stream:
        stream.truncate(2 * 1024 * 1024)
    assert len(read_file(target, 2 * 1024 * 1024)) == 2 * 1024 * 1024
    with pytest.raises(TooLarge, match="larger than 1 MB"):
        read_file(target, 1024 * 1024)
    with pytest.raises(TooLarge):
        read_file(Path("/proc/self/environ"), 1)  # which has no size
