"""Jobs as processes: each ends once, in its turn, and leaves no process behind."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from reconciler.emulator import Store
from reconciler.emulator.lifecycle import ENDED
from reconciler.processes import table, tree
from reconciler.processes.execution import Machine
from reconciler.processes.table import ProcessStore
from reconciler.processes.tree import JOB_VARIABLE, ProcessIdentity

PROJECT = "processes"
#: Longer than any of these tests, so that a leaked process is detected.
LONG_S = "600"


class Host:
    """The jobs of a process target, with helpers."""

    def __init__(self, root: Path, **machine: Any) -> None:
        self.root = root
        self.mark = f"0.{time.time_ns()}"
        storage = {"obs://": str(root / "obs")}
        (root / "jobs").mkdir()
        self.store = ProcessStore(
            root / "jobs", Machine(storage=storage, **{"stop_grace_s": 0.2, "failed_grace_s": 0.2, **machine})
        )

    def create(self, name: str, program: str, *, priority: str = "", **spec: Any) -> str:
        code = self.root / "obs/b" / name
        code.mkdir(parents=True)
        (code / "t.py").write_text(program.replace("LONG", LONG_S + self.mark[1:]), encoding="utf-8")
        if priority:
            spec["schedule_policy"] = {"priority": priority}
        address = f"obs://b/{name}/"
        body = {
            "kind": "job",
            "metadata": {"name": name},
            "algorithm": {
                "code_dir": address,
                "boot_file": f"{address}t.py",
                "inputs": [{"name": "data", "remote": {"obs": {"obs_url": address}}}],
                "outputs": [{"name": "out", "remote": {"obs": {"obs_url": f"obs://b/out/{name}/"}}}],
            },
            "spec": {"resource": {"flavor_id": "f", "node_count": 1}, **spec},
        }
        return self.store.create(PROJECT, body).id

    def waiting(self, name: str, program: str = "") -> str:
        """Create a job without starting it."""
        self.store.set_slots(0)
        job_id = self.create(name, program)
        self.store.set_slots(self.store.machine.slots)
        return job_id

    def phase(self, job_id: str) -> str:
        return self.store.find(job_id).life.phase

    def until(self, is_so: Callable[[], object], what: str = "") -> None:
        deadline = time.monotonic() + 120
        while not is_so():
            assert time.monotonic() < deadline, f"waited for too long: {what}"
            time.sleep(0.02)

    def until_gone(self, job_id: str) -> None:
        self.until(lambda: not self.store.layout(job_id).root.exists(), "the removal of its files")

    def end_of(self, job_id: str) -> str:
        self.until(lambda: self.phase(job_id) in ENDED, f"the end of a job in {self.phase(job_id)}")
        return self.phase(job_id)

    def log(self, job_id: str) -> str:
        return self.store.log(self.store.find(job_id), "worker-0")[0].decode()

    def owner(self, job_id: str) -> ProcessIdentity:
        row = self.store.database.one(
            "SELECT owner_pid, owner_started FROM runs WHERE job_id = ? AND owner_pid > 0", (job_id,)
        )
        return ProcessIdentity(*(row or (0, "")))

    def supervisors(self, job_id: str) -> list[psutil.Process]:
        processes = psutil.process_iter(["cmdline"])
        return [process for process in processes if (process.info["cmdline"] or [""])[-1] == job_id]

    def until_unattended(self, job_id: str) -> None:
        # An exiting process has no command line.
        self.until(
            lambda: not self.supervisors(job_id) and not self.owner(job_id).is_alive,
            "the end of a supervisor",
        )

    def left(self) -> list[psutil.Process]:
        """Return the remaining processes of the jobs of this test."""
        return [
            process
            for process in psutil.process_iter(["cmdline"])
            if self.mark[1:] in " ".join(process.info["cmdline"] or ())
        ]


#: Starts a supervisor that polls more often than usual.
DETACHED = f"""{table._DETACHED.partition("from reconciler")[0]}
from reconciler.processes import supervisor
supervisor.LOOK_S, supervisor.NOTE_S = 0.05, 0.1
"""


@pytest.fixture(autouse=True)
def _supervisors_look_often(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(table, "_DETACHED", f"{DETACHED}supervisor.main()\n")


@pytest.fixture
def host(tmp_path: Path) -> Iterator[Host]:
    yield from _host(tmp_path, slots=2)


@pytest.fixture
def one_slot(tmp_path: Path) -> Iterator[Host]:
    yield from _host(tmp_path, slots=1)


def _host(root: Path, **machine: Any) -> Iterator[Host]:
    host = Host(root, **machine)
    yield host
    for job in host.store.jobs():
        if job.life.phase not in ENDED:
            host.store.terminate(PROJECT, job.id)
            host.end_of(job.id)
    # The supervisor of the last one ends after reporting the end.
    host.until(
        lambda: (
            not any(str(root) in " ".join(p.info["cmdline"] or ()) for p in psutil.process_iter(["cmdline"]))
        )
    )
    host.store.close()


#: Starts processes in new sessions, with other environments, ignoring SIGTERM.
ESCAPES = """
import signal, subprocess, sys, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
subprocess.Popen(["sleep", "LONG"], start_new_session=True)
subprocess.Popen(["env", "-i", "setsid", "sleep", "LONG"])
subprocess.Popen(["sh", "-c", 'trap "" TERM; env -i setsid sh -c "sleep LONG" & exec sleep LONG'])
open("ready", "w").close()
"""


def wait_until_ready(host: Host, job_id: str) -> None:
    layout = host.store.layout(job_id)
    host.until(lambda: (layout.home / "ready").exists() and len(host.left()) >= 4, "processes that get away")
    known = {process.pid for process in host.left()}
    host.until(
        lambda: known <= {line["process"][0] for line in table._read_lines(layout.processes)}, "their record"
    )


def test_job_runs_and_its_output_is_stored(host: Host) -> None:
    job_id = host.create(
        "a", "import sys; open(sys.argv[2].partition('=')[2] + '/model', 'w').write('m'); print('loss')"
    )
    assert host.end_of(job_id) == "Completed"
    assert (host.root / "obs/b/out/a/model").read_text(encoding="utf-8") == "m"
    assert host.log(job_id) == "loss\n[ModelArts Service Log] Training end with return code: 0\n"
    messages = [event.message for event in host.store.events(host.store.find(job_id))]
    phases = {"Training job started running."}  # it may be of the same millisecond as the next step
    assert [message for message in messages if message not in phases] == [
        "Training job created.",
        "Training job is queuing for resources.",
        "Training job is being prepared.",
        "Training code is in place.",
        "Training input data is in place.",
        "Training started.",
        "[worker-0] Training finished. Exit code 0.",
        "Training output out is copied.",
        "Training job completed.",
    ]


def test_signal_that_ended_a_job_is_reported(host: Host) -> None:
    job_id = host.create("a", "import os; os.kill(os.getpid(), 9)")
    assert host.end_of(job_id) == "Failed"
    [status] = host.store.find(job_id).status["task_statuses"]
    assert (status["task"], status["exit_code"]) == ("worker-0", -9)


def test_line_of_the_service_does_not_continue_one_of_the_job(host: Host) -> None:
    job_id = host.create("bar", "print('99 %', end='')")
    host.end_of(job_id)
    assert host.log(job_id) == "99 %\n[ModelArts Service Log] Training end with return code: 0\n"


def test_first_failure_ends_the_other_nodes(host: Host) -> None:
    ready = str(host.root / "ready")
    program = (
        "import os, signal, sys, time\n"
        "index = os.environ['VC_TASK_INDEX']\n"
        f"while index == '1' and not os.path.exists({ready!r}): time.sleep(.01)\n"
        "if index == '1': sys.exit(7)\n"
        "if index == '2': signal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
        f"if index == '2': open({ready!r}, 'w').close()\n"
        "time.sleep(LONG)"
    )
    job_id = host.create("a", program, resource={"flavor_id": "f", "node_count": 3})
    assert host.end_of(job_id) == "Failed"
    statuses = host.store.find(job_id).status["task_statuses"]
    codes = {status["task"]: status["exit_code"] for status in statuses}
    assert codes == {"worker-0": -signal.SIGTERM, "worker-1": 7, "worker-2": -signal.SIGKILL}


@pytest.mark.parametrize("ends", ["raise SystemExit(3)", "time.sleep(LONG)"])
def test_output_is_copied_during_the_run_and_after_any_end(
    host: Host, monkeypatch: pytest.MonkeyPatch, ends: str
) -> None:
    monkeypatch.setattr(table, "_DETACHED", f"{DETACHED}supervisor.COPY_S = 0.1; supervisor.main()\n")
    model = host.root / "obs/b/out/a/model"
    job_id = host.create(
        "a",
        "import os, sys, time\n"
        "path = sys.argv[2].partition('=')[2] + '/model'\n"
        "open(path, 'w').write('first')\n"
        f"while not os.path.exists({str(model)!r}): time.sleep(.01)\n"
        f"open(path, 'w').write('last one'); {ends}",
    )
    if "sleep" in ends:
        host.until(lambda: model.exists() and model.read_text() == "last one", "its second copy")
        host.store.terminate(PROJECT, job_id)
    assert host.end_of(job_id) == ("Terminated" if "sleep" in ends else "Failed")
    assert model.read_text(encoding="utf-8") == "last one"


def test_job_that_is_terminated_does_not_wait_for_a_copy_of_its_output(
    host: Host, monkeypatch: pytest.MonkeyPatch
) -> None:
    host.store.machine = host.store.machine._replace(stop_grace_s=60)
    copies, ended = str(host.root / "copies"), str(host.root / "ended")
    slow = (
        "import time\n"
        "def slow(output):\n"
        f"    open({copies!r}, 'w').close()\n"
        f"    while not os.path.exists({ended!r}): time.sleep(.01)\n"
        "supervisor.copy_output, supervisor.COPY_S = slow, 0.1\n"
        "supervisor.main()\n"
    )
    monkeypatch.setattr(table, "_DETACHED", DETACHED + slow)
    job_id = host.create(
        "a",
        "import signal, sys, time\n"
        f"signal.signal(signal.SIGTERM, lambda *_: sys.exit(open({ended!r}, 'w').close()))\n"
        "time.sleep(LONG)",
    )
    host.until(Path(copies).exists, "a copy")
    host.store.terminate(PROJECT, job_id)
    assert host.end_of(job_id) == "Terminated"


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"environments": {"A": "a\0b"}}, "null byte"),
        (
            {"inputs": [{"name": "d", "remote": {"obs": {"obs_url": "obs://b/no/"}}}]},
            "input d: .*no does not exist",
        ),
    ],
)
def test_job_that_cannot_run_fails_with_a_line_in_its_log(
    host: Host, change: dict[str, Any], why: str
) -> None:
    first = host.create("a", "")
    body = host.store.find(first).body
    body["metadata"]["name"] = "b"
    body["algorithm"] |= change
    job_id = host.store.create(PROJECT, body).id
    assert host.end_of(job_id) == "Failed"
    assert re.search(why, host.log(job_id))
    [status] = host.store.find(job_id).status["task_statuses"]
    assert (status["exit_code"], bool(re.search(why, status["message"]))) == (None, True)
    host.end_of(first)


@pytest.mark.parametrize("ends", ["by itself", "terminated", "auto_stop"])
def test_no_process_of_a_job_survives_it(host: Host, ends: str) -> None:
    stop = {"time_unit": "SECONDS", "duration": 1} if ends == "auto_stop" else None
    job_id = host.create("a", ESCAPES + ("" if ends == "by itself" else "time.sleep(LONG)"), auto_stop=stop)
    if ends == "terminated":
        wait_until_ready(host, job_id)
        host.store.terminate(PROJECT, job_id)
    assert host.end_of(job_id) == ("Completed" if ends == "by itself" else "Terminated")
    assert host.left() == []


def test_terminated_job_may_start_a_process_to_save_its_work(tmp_path: Path) -> None:
    saves = (
        "import os, signal, subprocess, sys, time\n"
        "def save(*_): sys.exit(subprocess.call(['sh', '-c', 'sleep 0.5; echo all > saved']))\n"
        "signal.signal(signal.SIGTERM, save)\n"
        "open('ready', 'w').close(); time.sleep(LONG)"
    )
    for host in _host(tmp_path, stop_grace_s=60):
        job_id = host.create("a", saves)
        home = host.store.layout(job_id).home
        host.until((home / "ready").exists)
        host.store.terminate(PROJECT, job_id)
        assert host.end_of(job_id) == "Terminated"
        assert (home / "saved").read_text(encoding="utf-8") == "all\n"


def test_killed_supervisor_leaves_no_process_and_its_job_is_abnormal(host: Host) -> None:
    job_id = host.create("a", ESCAPES + "time.sleep(LONG)")
    wait_until_ready(host, job_id)
    os.kill(host.owner(job_id).pid, signal.SIGKILL)
    host.until(lambda: not host.owner(job_id).is_alive)
    assert host.phase(job_id) == "Running"
    # As any reading or polling command does.
    assert host.store.get(PROJECT, job_id).life.phase == "Abnormal"
    host.until(lambda: host.left() == [])


#: Tries to survive: new sessions, no parent, SIGTERM ignored.
STAYS = """
import os, signal, subprocess, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
subprocess.Popen(["sleep", "LONG"], start_new_session=True)
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        os.execlp("sleep", "sleep", "LONG")
    os._exit(0)
"""
#: A supervisor that signals itself before or after a function.
SIGNALLED = """
from reconciler.processes import table, tree
from reconciler.processes.supervisor import ProcessStore, Supervisor
def signalled(*args, **kwargs):
    if "WHEN" == "before":
        os.kill(os.getpid(), NUMBER)
    result = real(*args, **kwargs)
    if "WHEN" == "after":
        os.kill(os.getpid(), NUMBER)
    return result
real = OWNER.NAME
OWNER.NAME = signalled
supervisor.main()
"""
BEGINS = [
    *("before ProcessStore.take_over", "after ProcessStore.take_over"),
    *("after supervisor.prepare", "after ProcessStore.begin", "after Supervisor._start"),
]
ENDS = [
    *("before tree.end_all", "after Supervisor._wait", "after supervisor.copy_output"),
    *("before ProcessStore.finish", "after ProcessStore.finish"),
    *("before table._start_supervisor", "after table._start_supervisor"),
]


def signalled_at(point: str, number: int) -> str:
    when, _, function = point.partition(" ")
    owner, _, name = function.rpartition(".")
    words = {"WHEN": when, "NUMBER": str(int(number)), "OWNER": owner, "NAME": name}
    text = DETACHED + SIGNALLED
    for word, value in words.items():
        text = text.replace(word, value)
    return text


@pytest.mark.parametrize("point", [*BEGINS, *ENDS])
def test_supervisor_killed_at_any_point_leaves_no_process_and_frees_its_slot(
    one_slot: Host, monkeypatch: pytest.MonkeyPatch, point: str
) -> None:
    host = one_slot
    host.store.set_slots(0)
    job_id = host.create("a", STAYS + ("time.sleep(LONG)" if point in BEGINS else ""))
    ran = host.root / "ran"
    next_id = host.create("b", f"open({str(ran)!r}, 'a').write('once ')")
    host.store.set_slots(1)
    with monkeypatch.context() as patched:
        patched.setattr(table, "_DETACHED", signalled_at(point, signal.SIGKILL))
        host.store.start_due()
    for one in (job_id, next_id):
        host.until_unattended(one)
    # As any reading command does.
    host.store.start_due()
    is_recorded = point in ENDS[ENDS.index("after ProcessStore.finish") :]
    assert host.phase(job_id) == ("Completed" if is_recorded else "Abnormal")
    assert tree.processes_of(job_id) == []
    assert host.left() == []
    assert host.end_of(next_id) == "Completed"
    assert ran.read_text(encoding="utf-8") == "once "


@pytest.mark.parametrize("point", BEGINS)
@pytest.mark.parametrize("how", ["terminate", "delete"])
def test_job_terminated_during_startup_leaves_nothing(
    one_slot: Host, monkeypatch: pytest.MonkeyPatch, point: str, how: str
) -> None:
    host = one_slot
    with monkeypatch.context() as patched:
        patched.setattr(table, "_DETACHED", signalled_at(point, signal.SIGSTOP))
        job_id = host.create("a", STAYS + "time.sleep(LONG)")
    [supervisor] = host.supervisors(job_id)
    host.until(lambda: supervisor.status() == psutil.STATUS_STOPPED, "its stop")
    getattr(host.store, how)(PROJECT, job_id)
    supervisor.resume()
    if how == "terminate":
        assert host.end_of(job_id) == "Terminated"
    host.until_unattended(job_id)
    assert tree.processes_of(job_id) == []
    assert host.left() == []
    assert host.end_of(host.create("b", "")) == "Completed"


def test_reboot_ends_its_jobs_and_signals_no_foreign_process(host: Host) -> None:
    job_id = host.create("a", "import time; time.sleep(LONG)")
    host.until(lambda: host.phase(job_id) == "Running")
    supervisor = host.owner(job_id)
    with subprocess.Popen(["sleep", LONG_S]) as innocent:
        try:
            # All are gone; other processes reuse the pids, at the same time since boot.
            for process in (*host.supervisors(job_id), *tree.processes_of(job_id)):
                process.kill()
            host.until(lambda: not supervisor.is_alive)
            there = ProcessIdentity.of(psutil.Process(innocent.pid))
            earlier = there._replace(started=f"another-boot {there.started.rpartition(' ')[2]}")
            with host.store.layout(job_id).processes.open("a", encoding="utf-8") as file:
                file.write(json.dumps({"process": earlier}) + "\n")
            host.store.database.run("UPDATE runs SET owner_pid = ?, owner_started = ?", tuple(earlier))
            assert host.store.get(PROJECT, job_id).life.phase == "Abnormal"
            assert innocent.poll() is None
        finally:
            innocent.kill()


def test_job_files_are_private_under_any_umask(one_slot: Host) -> None:
    before = os.umask(0)
    try:
        job_id = one_slot.create("a", "print('secret')")
        assert one_slot.end_of(job_id) == "Completed"
    finally:
        os.umask(before)
    files = filter(Path.is_file, one_slot.store.layout(job_id).root.iterdir())
    modes = {file.name: oct(file.stat().st_mode & 0o777) for file in files}
    assert {"worker-0.log", "events.jsonl", "supervisor.log"} <= modes.keys()
    assert set(modes.values()) == {"0o600"}


def test_reused_pid_is_no_supervisor() -> None:
    own = ProcessIdentity.own()
    boot_id, _, ticks = own.started.partition(" ")
    assert own.is_alive
    assert not own._replace(started=f"{boot_id} {int(ticks) - 1}").is_alive
    # Likewise after a reboot, with the same start time since boot.
    assert not own._replace(started=f"another {ticks}").is_alive


def test_clock_change_does_not_change_the_process_identity(monkeypatch: pytest.MonkeyPatch) -> None:
    own, later_s = ProcessIdentity.own(), psutil.boot_time() + 100
    monkeypatch.setattr("psutil._psplatform.boot_time", lambda: later_s)
    assert own.is_alive


def test_one_slot_runs_jobs_sequentially_by_priority(one_slot: Host) -> None:
    host = one_slot
    gate = host.root / "gate"
    first = host.create("first", f"import os, time\nwhile not os.path.exists({str(gate)!r}): time.sleep(.02)")
    ids = [
        first,
        *(host.create(f"p{n}", "", priority=priority) for n, priority in enumerate(["", "1", "3", "2"])),
    ]
    assert [host.phase(one) for one in ids[1:]] == ["Pending"] * 4
    gate.touch()
    for one in ids:
        assert host.end_of(one) == "Completed"
    in_order = sorted(ids, key=lambda one: host.store.find(one).life.started_ms)
    assert [host.store.find(one).name for one in in_order] == ["first", "p2", "p3", "p0", "p1"]


#: The first eight prove that four run at once: each waits for the others of its batch.
TAKES_PART = """
import os, time
began, here, rank = time.monotonic(), "HERE", RANK
open(f"{here}/{rank}", "w").close()
four = range(rank // 4 * 4, rank // 4 * 4 + 4)
while rank < 8 and not all(os.path.exists(f"{here}/{one}") for one in four):
    time.sleep(0.01)
time.sleep(0.02)
with open(f"{here}/times", "a") as file:
    file.write(f"{began} {time.monotonic()}\\n")
"""


def test_many_jobs_go_through_four_slots_in_order(one_slot: Host) -> None:
    host, here, count = one_slot, one_slot.root / "here", 16
    here.mkdir()
    host.store.set_slots(0)
    priorities = [(n * 7) % 3 + 1 for n in range(count)]
    ranks = {n: rank for rank, n in enumerate(sorted(range(count), key=lambda n: -priorities[n]))}
    ids = [
        host.create(
            f"j{n}",
            TAKES_PART.replace("HERE", str(here)).replace("RANK", str(ranks[n])),
            priority=str(priorities[n]),
        )
        for n in range(count)
    ]
    host.store.set_slots(4)  # the machine of the jobs has one
    host.store.start_due()
    assert {host.end_of(one) for one in ids} == {"Completed"}
    times = [tuple(map(float, line.split())) for line in (here / "times").read_text().splitlines()]
    assert len(times) == count
    assert max(sum(began <= at < ended for began, ended in times) for at, _ in times) == 4
    started = {ranks[n]: host.store.find(ids[n]).life.started_ms for n in range(count)}
    # Jobs with a slot may start in any order; slots are assigned by priority.
    assert all(sum(started[better] > started[rank] for better in range(rank)) < 4 for rank in started)


@pytest.mark.parametrize("is_terminated", [False, True])
def test_claim_of_a_dead_starter_is_released(one_slot: Host, is_terminated: bool) -> None:
    host = one_slot
    dies = (
        "import os, sys; from pathlib import Path\n"
        "from reconciler.processes import table\n"
        "table._start_supervisor = lambda *_: os._exit(9)\n"
        "table.ProcessStore(Path(sys.argv[1])).start_due()\n"
    )
    job_id = host.waiting("a")
    assert subprocess.run([sys.executable, "-c", dies, str(host.store.directory)]).returncode == 9
    assert host.phase(job_id) == "Pending"
    if is_terminated:  # while the claimant existed
        Store.terminate(host.store, PROJECT, job_id)
    host.store.start_due()
    assert host.end_of(job_id) == ("Terminated" if is_terminated else "Completed")


def test_waiting_job_that_is_terminated_never_starts(one_slot: Host) -> None:
    host = one_slot
    blocker = host.create("blocker", "import time; time.sleep(LONG)")
    job_id = host.create("a", "")
    assert host.store.terminate(PROJECT, job_id).life.phase == "Terminated"
    host.store.terminate(PROJECT, blocker)
    assert host.end_of(blocker) == "Terminated"
    assert host.store.find(job_id).life.started_ms == 0


def test_log_is_capped_and_keeps_no_job_waiting(tmp_path: Path) -> None:
    for host in _host(tmp_path, max_log_bytes=1000):
        job_id = host.create(
            "a", "import sys\nfor _ in range(500): sys.stdout.buffer.write(b'\\xff' * 10_000)"
        )
        assert host.end_of(job_id) == "Completed"
        text, size = host.store.log(host.store.find(job_id), "worker-0")
        assert size == len(text) < 1200
        assert b"\n[ModelArts Service Log] the log ends at 1,000 bytes\n" in text


def test_files_of_recent_jobs_and_all_records_are_kept(tmp_path: Path) -> None:
    for host in _host(tmp_path, keep=1):
        first = host.create("a", "print(1)")
        host.end_of(first)
        second = host.create("b", "print(2)")
        host.end_of(second)
        host.until_gone(first)
        assert host.store.layout(second).root.exists()
        assert host.log(first) == "the files of this job are not kept any more\n"
        assert len(host.store.jobs()) == 2


def test_metrics_are_sampled_from_the_process(tmp_path: Path) -> None:
    environment = {**os.environ, JOB_VARIABLE: str(tmp_path)}
    with subprocess.Popen([sys.executable, "-c", "while True: pass"], env=environment) as busy:
        try:
            sampler = tree.Sampler(str(tmp_path))
            deadline = time.monotonic() + 20
            while not (found := sampler.sample())["cpu"] and time.monotonic() < deadline:
                pass
        finally:
            busy.kill()
    assert 0 < (found["cpu"] or 0) <= 100
    assert 0 < (found["memory"] or 0) < 50


def test_unkillable_process_blocks_no_command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(psutil.Process, "kill", lambda _: None)
    monkeypatch.setattr(tree, "STUCK_S", 0.3)
    with subprocess.Popen(["sleep", LONG_S], env={**os.environ, JOB_VARIABLE: str(tmp_path)}) as stuck:
        try:
            tree.end_all(str(tmp_path), list, grace_s=0)
            assert [process.pid for process in tree.processes_of(str(tmp_path))] == [stuck.pid]
        finally:
            stuck.kill()


@pytest.mark.parametrize(
    ("says", "gpu", "memory"),
    [("echo 50, 1000, 4000; echo 100, 3000, 4000", 75.0, 50.0), ("echo no devices; exit 9", None, None)],
)
def test_accelerators_are_sampled_if_available(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, says: str, gpu: float | None, memory: float | None
) -> None:
    program = tmp_path / "nvidia-smi"
    program.write_text(f"#!/bin/sh\n{says}\n", encoding="utf-8")
    program.chmod(0o700)
    monkeypatch.setenv("PATH", str(tmp_path))
    sample = tree.Sampler("none").sample()
    assert (sample["gpu"], sample["gpu_memory"]) == (gpu, memory)


def test_interrupted_start_leaves_no_slot_and_no_job(one_slot: Host, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(*_: object) -> int:
        raise KeyboardInterrupt

    host = one_slot
    job_id = host.waiting("a")
    with monkeypatch.context() as patched:
        patched.setattr(table, "_start_supervisor", interrupted)
        with pytest.raises(KeyboardInterrupt):
            host.store.start_due()
    host.store.start_due()
    assert host.end_of(job_id) == "Completed"


@pytest.mark.parametrize("starts", ["raise SystemExit(1)", "import os; os.write(1, b'%d' % os.getpid())"])
def test_job_without_a_started_supervisor_is_abnormal(
    one_slot: Host, monkeypatch: pytest.MonkeyPatch, starts: str
) -> None:
    host = one_slot
    with monkeypatch.context() as broken:
        broken.setattr(table, "_DETACHED", starts)
        job_id = host.create("a", "")
    assert host.store.get(PROJECT, job_id).life.phase == "Abnormal"
    assert host.end_of(host.create("b", "")) == "Completed"


def test_job_gets_the_environment_of_its_creator(one_slot: Host) -> None:
    host = one_slot
    ids = []
    for name in ("a", "b"):
        host.store.environ = {"LANG": name, "SECRET": name}
        ids.append(host.create(name, "import os; print(os.environ['LANG'], 'SECRET' in os.environ)"))
    for name, job_id in zip(("a", "b"), ids, strict=True):
        host.end_of(job_id)
        assert host.log(job_id).startswith(f"{name} False\n")


def test_ended_job_can_be_restarted(host: Host) -> None:
    job_id = host.create("a", "raise SystemExit(3)")
    assert host.end_of(job_id) == "Failed"
    (host.root / "obs/b/a/t.py").write_text("print('again')", encoding="utf-8")
    assert host.store.restart(PROJECT, job_id).life.phase == "Pending"
    assert host.end_of(job_id) == "Completed"
    assert host.log(job_id) == "again\n[ModelArts Service Log] Training end with return code: 0\n"
    assert host.store.find(job_id).status["task_statuses"][0]["exit_code"] == 0


def test_deleted_job_holds_its_slot_until_it_has_ended(one_slot: Host) -> None:
    host = one_slot
    files = host.store.directory
    job_id = host.create("a", ESCAPES + "time.sleep(LONG)")
    wait_until_ready(host, job_id)
    supervisor = host.owner(job_id)
    waits = [host.create(name, "") for name in "bc"]
    host.store.delete(PROJECT, job_id, waits[0])
    assert host.phase(waits[1]) == "Pending"
    assert host.end_of(waits[1]) == "Completed"
    assert host.left() == []
    host.until(lambda: not supervisor.is_alive)
    host.store.delete(PROJECT, waits[1])
    assert [path for path in files.iterdir() if path.is_dir()] == []
    assert host.store.database.all("SELECT * FROM runs") == []


def test_deleted_job_leaves_no_process_after_its_supervisor_is_killed(one_slot: Host) -> None:
    host = one_slot
    job_id = host.create("a", ESCAPES + "time.sleep(LONG)")
    wait_until_ready(host, job_id)
    supervisor = host.owner(job_id)
    psutil.Process(supervisor.pid).suspend()
    host.store.delete(PROJECT, job_id)
    psutil.Process(supervisor.pid).kill()
    host.until(lambda: not supervisor.is_alive)
    assert host.end_of(host.create("b", "")) == "Completed"
    assert host.left() == []


def test_removed_job_directory_ends_the_job(tmp_path: Path) -> None:
    host = Host(tmp_path)
    job_id = host.create("a", ESCAPES + "time.sleep(LONG)")
    wait_until_ready(host, job_id)
    shutil.rmtree(host.store.directory)
    host.until(lambda: host.left() == [], "their end")
    host.store.close()


def test_exit_code_is_reported_if_the_output_cannot_be_copied(host: Host) -> None:
    job_id = host.create("a", "print('loss')")
    (host.root / "obs/b/out").write_text("in the way", encoding="utf-8")
    assert host.end_of(job_id) == "Failed"
    [status] = host.store.find(job_id).status["task_statuses"]
    assert (status["exit_code"], "output out is not copied" in status["message"]) == (0, True)


def test_orphaned_processes_of_a_job_do_not_accumulate(host: Host) -> None:
    job_id = host.create(
        "a",
        "import subprocess, time\n"
        "for _ in range(50): subprocess.Popen(['sh', '-c', 'true & exit 0']).wait()\n"
        "open('ready', 'w').close(); time.sleep(LONG)",
    )
    host.until((host.store.layout(job_id).home / "ready").exists)
    supervisor = host.owner(job_id).process
    assert supervisor is not None
    host.until(lambda: len(supervisor.children()) == 1, "their end")


def wheel(directory: Path) -> None:
    with zipfile.ZipFile(directory / "own_package-1-py3-none-any.whl", "w") as file:
        for name, text in {
            "own_package.py": "WORD = 'installed'",
            "own_package-1.dist-info/METADATA": "Metadata-Version: 2.1\nName: own-package\nVersion: 1\n",
            "own_package-1.dist-info/WHEEL": "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
            "own_package-1.dist-info/RECORD": "",
        }.items():
            file.writestr(name, text)


def test_requirements_are_installed_once_for_jobs_that_start_together(tmp_path: Path) -> None:
    for host in _host(tmp_path, slots=2, install_requirements=True):
        ids = [host.waiting(name, "import own_package; print(own_package.WORD)") for name in "ab"]
        for name in "ab":
            code = host.root / "obs/b" / name
            wheel(code)
            (code / "requirements.txt").write_text("./own_package-1-py3-none-any.whl", encoding="utf-8")
        host.store.start_due()
        assert [host.end_of(one) for one in ids] == ["Completed"] * 2
        logs = [host.log(one) for one in ids]
        assert all("\ninstalled\n" in f"\n{log}" for log in logs)
        assert sum("Successfully installed" in log for log in logs) == 1
        events = host.store.events(host.store.find(ids[0]))
        assert "Python packages are installed." in [event.message for event in events]


def test_job_is_terminated_while_its_requirements_are_installed(tmp_path: Path) -> None:
    python = tmp_path / "python"
    python.write_text(f"#!/bin/sh\ntouch {tmp_path}/began\nexec sleep {LONG_S}\n", encoding="utf-8")
    python.chmod(0o700)
    for host in _host(tmp_path, install_requirements=True, python=str(python)):
        job_id = host.waiting("a")
        (host.root / "obs/b/a/requirements.txt").touch()
        host.store.start_due()
        host.until((tmp_path / "began").exists)
        host.store.terminate(PROJECT, job_id)
        assert host.end_of(job_id) == "Terminated"
        assert tree.processes_of(job_id) == []
