"""A target whose jobs are local processes, from the command line."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from reconciler.emulator.lifecycle import ENDED
from reconciler.errors import ExitCode
from reconciler.processes.table import ProcessStore
from tests.cli.conftest import Reconciler, write

MANIFEST = """\
apiVersion: reconciler/v1
stack: vision
target: laptop
targets: {laptop: {kind: process, slots: 2, storage: store}}
jobs:
"""
JOB = """\
  {key}:
    {more}
    algorithm:
      code_dir: obs://b/code/
      boot_file: obs://b/code/{file}
      engine: {{engine_id: any}}
      parameters: {{text: "of {key}"}}
      outputs: {{out: "obs://b/out/{key}/"}}
    spec: {{resource: {{flavor_id: any}}{spec}}}
"""


def job(key: str, more: str = "description: a job", file: str = "train.py", spec: str = "") -> str:
    return JOB.format(key=key, more=more, file=file, spec=spec)


@pytest.fixture(autouse=True)
def code(reconciler: Reconciler) -> None:
    for name, program in {
        "train.py": "import sys; print(sys.argv[1]); open(sys.argv[-1][6:] + '/model', 'w').write('m')",
        "fail.py": "raise SystemExit(3)",
        "wait.py": "import time; print('waits'); time.sleep(600)",
    }.items():
        file = Path("store/b/code") / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(program, encoding="utf-8")


def test_declared_job_runs_and_the_next_plan_is_empty(reconciler: Reconciler) -> None:
    write(MANIFEST + job("a") + job("b", "needs: [a]"))
    result = reconciler.ends(
        ExitCode.DONE, "plan", out=["1 to create", "flavor, pool and engine have no effect"]
    )
    assert result.out.count("have no effect") == 1
    reconciler.ends(ExitCode.DONE, "apply --yes --wait completed", out="2 succeeded")
    assert Path("store/b/out/b/model").read_text(encoding="utf-8") == "m"
    reconciler.ends(ExitCode.DONE, "plan --detailed-exitcode", out="2 to keep")
    reconciler.ends(ExitCode.DONE, "drift", out="Drift: none")
    reconciler.ends(ExitCode.DONE, "jobs logs a", out=["--text=of a", "return code: 0"])
    reconciler.ends(ExitCode.DONE, "jobs events a", out="[worker-0] Training finished. Exit code 0.")
    metrics = reconciler.ends(ExitCode.DONE, "jobs metrics a --json").document["metrics"]
    assert {one["metric"] for one in metrics} >= {"cpuUsage", "memUsage"}
    reconciler.ends(ExitCode.DONE, "jobs metrics a", out=["METRIC", "memUsage"], lacks="gpuUtil")
    reconciler.ends(ExitCode.DONE, "status", out=["Completed", "2 Completed"])


def test_failed_job_reports_its_exit_code_and_is_retried(reconciler: Reconciler) -> None:
    write(MANIFEST + job("a", "lifecycle: {on_failure: retry, max_retries: 1, retry_delay: 0s}", "fail.py"))
    reconciler.ends(ExitCode.ENDED_BADLY, "apply --yes --wait completed")
    listed = reconciler.ends(ExitCode.DONE, "jobs list --json").document["items"]
    assert {one["metadata"]["name"] for one in listed} == {"a", "a-r2"}
    shown = reconciler.ends(ExitCode.DONE, "jobs show a --json").document
    assert shown["status"]["task_statuses"] == [{"task": "worker-0", "exit_code": 3, "message": ""}]


def test_removed_job_is_terminated(reconciler: Reconciler) -> None:
    write(MANIFEST + job("a", file="wait.py"))
    reconciler.ends(ExitCode.DONE, "apply --yes --wait running")
    while "waits" not in reconciler("jobs logs a").out:  # it has only just started
        time.sleep(0.05)
    write(MANIFEST + job("b"))
    reconciler.ends(ExitCode.DONE, "apply --yes --wait completed", out="2 succeeded")
    with ProcessStore(Path(".reconciler/processes")) as store:
        ended = next(one.id for one in store.jobs() if one.name == "a")
        deadline = time.monotonic() + 60
        while store.find(ended).life.phase not in ENDED and time.monotonic() < deadline:
            time.sleep(0.05)
        assert store.find(ended).life.phase == "Terminated"


def test_command_of_an_image_is_blocked_and_the_others_go_on(reconciler: Reconciler) -> None:
    image = """\
  image:
    algorithm:
      command: echo hello > $out/said
      engine: {image_url: org/image:1}
      outputs: {out: {access_method: env, remote: {obs: {obs_url: "obs://b/said/"}}}}
    spec: {resource: {flavor_id: any}}
"""
    write(MANIFEST + job("a") + image)
    result = reconciler.ends(ExitCode.REFUSED, "apply --yes --wait completed", out="1 succeeded")
    assert "needs its container image" in result.err
    assert "set `images: host` on target laptop" in " ".join(result.out.split())
    write((MANIFEST + job("a") + image).replace("slots: 2", "images: host"))
    reconciler.ends(ExitCode.DONE, "apply --yes --wait completed", out="1 succeeded")
    assert Path("store/b/said/said").read_text(encoding="utf-8") == "hello\n"


OWN_CODE = """\
  own:
    code: {source: src}
    algorithm: {boot_file: main.py, engine: {engine_id: any}}
    spec: {resource: {flavor_id: any}}
"""


def own_code(program: str) -> None:
    Path("src").mkdir()
    Path("src/main.py").write_text(program, encoding="utf-8")
    write(MANIFEST + OWN_CODE)


def test_missing_packages_are_a_plan_warning(reconciler: Reconciler) -> None:
    own_code("")
    Path("src/requirements.txt").touch()
    write(MANIFEST + OWN_CODE + OWN_CODE.replace("  own:", "  too:"))
    result = reconciler.ends(ExitCode.DONE, "plan", out="its code has a requirements.txt")
    assert result.out.count("packages are not installed") == result.out.count("own, too: packages") == 1
    assert "set `install_requirements: true` on target laptop" in " ".join(result.out.split())
    write((MANIFEST + OWN_CODE).replace("slots: 2", "install_requirements: true"))
    reconciler.ends(ExitCode.DONE, "plan", lacks="requirements.txt")


def test_log_of_any_bytes_is_sanitized_and_cut_at_5_mb(reconciler: Reconciler) -> None:
    own_code(
        "import sys\n"
        "for n in range(60_000): print(f'{n:0100}')\n"
        "sys.stdout.flush(); sys.stdout.buffer.write(b'\\x1b[2J\\xff\\x00end\\n')\n"
    )
    reconciler.ends(ExitCode.DONE, "apply --yes --wait completed")
    result = reconciler.ends(ExitCode.DONE, "jobs logs own", out=["end\n", "return code: 0"])
    assert not {"\x1b", "\0"} & set(result.out)
    assert 5_000_000 < len(result.out) <= 5 * 1024 * 1024 + 1000


def test_two_applies_at_once_start_a_job_once(reconciler: Reconciler) -> None:
    own_code(f"open({str(Path.cwd() / 'ran')!r}, 'a').write('once ')")
    command = [sys.executable, "-m", "reconciler", "apply", "--yes", "--wait", "completed"]
    applies = [subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT) for _ in range(2)]
    ends = [(apply.communicate(timeout=120)[0], apply.returncode) for apply in applies]
    assert ExitCode.DONE in [code for _, code in ends], ends
    assert len(reconciler("jobs list --json").document["items"]) == 1
    assert Path("ran").read_text(encoding="utf-8") == "once "


def test_paths_of_a_target_are_relative_to_its_root_file(reconciler: Reconciler) -> None:
    own_code("import os, sys; print(sys.executable, os.path.exists(sys.argv[1][7:] + '/x'))")
    Path("data").mkdir()
    Path("data/x").touch()
    Path("bin").mkdir()
    Path("bin/python").symlink_to(sys.executable)
    declared = OWN_CODE.replace("engine_id: any}}", 'engine_id: any}, inputs: {data: "obs://b/in/"}}')
    settings = '{kind: process, python: bin/python, storage: {"obs://": store, "obs://b/in/": ./data}}'
    write(MANIFEST.replace("{kind: process, slots: 2, storage: store}", settings) + declared)
    root = Path.cwd()
    Path("elsewhere").mkdir()
    os.chdir("elsewhere")
    reconciler.ends(ExitCode.DONE, "apply .. --yes --wait completed")
    reconciler.ends(ExitCode.DONE, "jobs logs own ..", out=f"{root}/bin/python True")


def test_auto_stop_below_an_hour_is_valid_only_on_a_process_target(reconciler: Reconciler) -> None:
    both = MANIFEST.replace("targets: {", "targets: {emulated: {kind: local}, ")
    write(both + job("a", file="wait.py", spec=", auto_stop: 1s"))
    reconciler.ends(ExitCode.DONE, "plan", out="at most 1 s")
    reconciler.ends(ExitCode.ENDED_BADLY, "apply --yes --wait completed", out="Terminated")
    reconciler.ends(ExitCode.DONE, "plan", out="1 to keep")
    reconciler.ends(ExitCode.DONE, "why a", out="auto_stop")
    for line in ("validate", "plan -t emulated"):
        reconciler.ends(ExitCode.INVALID, line, err="must be whole hours, such as 8h or 2d")
    write(both + job("a", file="wait.py", spec=", auto_stop: 1h30m"))
    reconciler.ends(ExitCode.DONE, "plan", out="at most 90 min")


@pytest.mark.parametrize(
    ("target", "why"),
    [
        ("kind: process, region: cn-north-4", "kind process does not support region"),
        ("kind: local, slots: 2", "kind local does not support slots"),
        ("kind: process, slots: 0", "slots"),
        ("kind: process, images: all", "images"),
    ],
)
def test_setting_of_another_kind_is_refused(reconciler: Reconciler, target: str, why: str) -> None:
    write(MANIFEST.replace("kind: process, slots: 2, storage: store", target) + job("a"))
    reconciler.ends(ExitCode.INVALID, "validate", err=why)
