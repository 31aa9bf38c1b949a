"""Code in a store: what is listed, deleted and, above all, kept."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from reconciler.cli import code as command
from reconciler.cli.execution import Interrupt
from reconciler.emulator import Store
from reconciler.errors import ExitCode
from tests.cli.conftest import Reconciler, World, write
from tests.cli.lock_helpers import held_by
from tests.code.obs_server import Answer, ObsServer, Seen, running

JOB = """\
apiVersion: reconciler/v1
stack: {stack}
target: here
targets:
{targets}
jobs:
  {key}:
    code: {{source: ./src}}
    algorithm:
      boot_file: train.py
      engine: {{engine_id: pytorch_1.8.0-cuda_10.2-py_3.7-ubuntu_18.04-x86_64}}
    spec: {{resource: {{flavor_id: modelarts.vm.cpu.2u}}}}
    lifecycle: {{on_change: replace}}
"""
LOCAL = "  here: {kind: local}\n  laptop: {kind: process}"
STORED = Path(".reconciler/obs/local/code")
GC = "code gc --yes --older-than"


def edit(text: str, where: str = ".") -> None:
    write(text, f"{where}/src/train.py")


def declare(targets: str = LOCAL, *, stack: str = "vision", key: str = "train", where: str = ".") -> None:
    write(JOB.format(stack=stack, key=key, targets=targets), f"{where}/jobs.yaml")
    edit("1", where)


def stored(stack: str = "vision") -> list[str]:
    """Return the contents in the local store, oldest prefix first."""
    places = sorted((STORED / stack).glob("*"), key=lambda place: place.stat().st_mtime)
    return [path.read_text() for place in places for path in place.rglob("train.py")]


@pytest.fixture
def three(reconciler: Reconciler) -> None:
    """A stack on the emulator whose code was edited twice."""
    declare()
    for number in "123":
        edit(number)
        reconciler.ends(ExitCode.DONE, "apply --yes --force")
        if number != "3":  # the next apply need not wait for its end
            with Store(".reconciler/local.sqlite3") as local:
                for job in local.jobs():
                    local.set_phase(job.id, "Terminated")


def age(days: float, pattern: str = "*/*/manifest.json") -> None:
    for path in STORED.glob(pattern):
        at_s = path.stat().st_mtime - days * 86_400
        os.utime(path, (at_s, at_s))


def test_only_old_unused_code_is_deleted(reconciler: Reconciler, three: None) -> None:
    listed = reconciler.ends(ExitCode.DONE, "code list --json").document
    assert (listed["count"], listed["complete"]) == (3, True)
    uses = {one["used_by"][0]["revision"]: one for one in listed["items"]}
    assert [(uses[n]["files"], uses[n]["size"], uses[n]["complete"]) for n in (1, 2, 3)] == [(1, 1, True)] * 3
    assert [uses[n]["used_by"][0]["newest"] for n in (1, 2, 3)] == [False, False, True]
    assert uses[3]["digest"].removeprefix("sha256:")[:16] in uses[3]["prefix"]
    reconciler.ends(ExitCode.DONE, "code list", out=["train r1", "train r3 ("])
    reconciler.ends(ExitCode.DONE, f"{GC} 90d", out="", err="Nothing was deleted")
    age(91)
    reconciler.ends(ExitCode.REFUSED, "code gc", err=["train r1", "add --yes"])
    assert stored() == ["1", "2", "3"]
    reconciler.ends(ExitCode.DONE, "code gc --yes", err=["Deleted 2 uploads (2 files, 2 B)", "1 kept"])
    assert stored() == ["3"]
    reconciler.ends(ExitCode.DONE, "plan --detailed-exitcode", out="1 to keep")
    document = reconciler.ends(ExitCode.DONE, "code gc --yes --json").document
    assert (document["items"], sum(document["kept"].values())) == ([], 1)
    # Deleted code is uploaded again when needed.
    edit("1")
    reconciler.ends(ExitCode.DONE, "apply --yes --force", out="1 succeeded")
    assert stored() == ["3", "1"]


def test_age_of_an_incomplete_upload_is_that_of_its_newest_file(reconciler: Reconciler, three: None) -> None:
    for manifest in STORED.glob("*/*/manifest.json"):
        manifest.unlink()
    reconciler.ends(ExitCode.DONE, "code list", out="incomplete")
    reconciler.ends(ExitCode.DONE, "code gc --yes", err="Nothing was deleted")
    age(91, "*/*/src/*")
    reconciler.ends(ExitCode.DONE, "code gc --yes", err="Deleted 2 uploads")
    assert stored() == ["3"]


def test_damaged_manifest_object_does_not_stop_gc(reconciler: Reconciler, three: None) -> None:
    for manifest in STORED.glob("*/*/manifest.json"):
        manifest.write_text("{", encoding="utf-8")
    listed = reconciler.ends(ExitCode.DONE, "code list --json").document["items"]
    assert {(one["digest"], one["complete"]) for one in listed} == {(None, False)}
    reconciler.ends(ExitCode.DONE, f"{GC} 0s", err="Deleted 2 uploads")


def test_code_of_other_stacks_and_other_objects_are_left_alone(reconciler: Reconciler, three: None) -> None:
    for name in ("other/0123456789abcdef/src/train.py", "vision/notes/train.py", "vision/train.py"):
        write("x", str(STORED / name))
    age(91, "**/*")
    reconciler.ends(ExitCode.DONE, "code list", out=["other", "vision"])
    reconciler.ends(ExitCode.DONE, "code gc --yes", err="Deleted 2 uploads")
    assert len([*STORED.rglob("train.py")]) == 4


def test_code_of_an_unlisted_job_is_kept_by_the_history(reconciler: Reconciler, three: None) -> None:
    Path(".reconciler/local.sqlite3").unlink()
    reconciler.ends(ExitCode.DONE, "code list", out="train r3")
    reconciler.ends(ExitCode.DONE, f"{GC} 0s", err="1 kept: used by the newest revision")
    assert stored() == ["3"]


def test_nothing_is_deleted_while_an_apply_runs(reconciler: Reconciler, three: None) -> None:
    with held_by("bob", stack="vision"):
        reconciler.ends(ExitCode.LOCKED, f"{GC} 0s", err="bob")
    assert stored() == ["1", "2", "3"]


def test_unreadable_history_keeps_all_code(reconciler: Reconciler, three: None) -> None:
    Path(".reconciler/records.sqlite3").write_bytes(b"no database" * 100)
    reconciler.ends(ExitCode.UNKNOWN, "code list", out="train r1", err="could not be listed completely")
    assert reconciler(f"{GC} 0s").code == ExitCode.FAILED
    assert stored() == ["1", "2", "3"]


def test_code_changed_during_the_prompt_is_kept(
    reconciler: Reconciler, three: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    age(91)

    def mend(question: str) -> None:
        [first] = [path for path in STORED.glob("*/*/src/train.py") if path.read_text() == "1"]
        os.utime(first.parents[1] / "manifest.json")

    monkeypatch.setattr(command, "confirm", mend)
    reconciler.ends(ExitCode.DONE, "code gc", err="Deleted 1 upload ")
    assert sorted(stored()) == ["1", "3"]


def test_nothing_is_deleted_once_the_lock_is_lost(
    reconciler: Reconciler, three: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    interrupt = Interrupt()
    monkeypatch.setattr("reconciler.cli.execution.Interrupt", lambda: interrupt)
    monkeypatch.setattr(command, "confirm", lambda question: interrupt.lock_lost())
    reconciler.ends(
        ExitCode.LOCKED, "code gc --older-than 0s", err=["the lock was lost", "Nothing was deleted"]
    )
    assert stored() == ["1", "2", "3"]


# ── on the service ─────────────────────────────────────────────────────────────────────────────────


@pytest.fixture
def obs() -> Iterator[ObsServer]:
    with running() as server:
        server.expires_at = "2999-01-01T00:00:00.000000Z"
        yield server


@pytest.fixture
def cloud(world: World, obs: ObsServer) -> World:
    """A stack on two workspaces of the service, which share a store; its code was edited twice on one."""
    more = f"endpoint: '{world.url}', project_id: p1, obs_endpoint: '{obs.url}', iam_endpoint: '{obs.url}'"
    one = f"{{kind: modelarts, {more}, region: r, code_store: 'obs://vision/code/'"
    declare(f'  here: {one}}}\n  there: {one}, workspace_id: "{"a" * 32}"}}')
    for number in "123":
        edit(number)
        world.ends(ExitCode.DONE, "apply --yes --force")
    return world


def contents(obs: ObsServer) -> list[bytes]:
    return sorted(body for path, body in obs.objects.items() if path.endswith(".py"))


def test_all_targets_with_the_store_are_read(cloud: World, obs: ObsServer) -> None:
    edit("2")
    cloud.ends(ExitCode.DONE, "apply --yes -t there")
    cloud.ends(ExitCode.DONE, "code list", out="train r2, train r1 (")
    cloud.ends(ExitCode.DONE, f"{GC} 5d", out="deleted", err="Deleted 1 upload")
    assert contents(obs) == [b"2", b"3"]
    cloud.ends(ExitCode.DONE, f"{GC} 6d", err="Nothing was deleted")


def test_code_of_foreign_active_jobs_is_kept(cloud: World, obs: ObsServer) -> None:
    prefix = next(f"/{path}" for path, body in obs.objects.items() if path.endswith(".py") and body == b"1")
    algorithm = {"code_dir": f"{prefix.removesuffix('train.py')}", "boot_file": f"{prefix}", "engine": {}}
    cloud.put("copied-by-hand", "Running", algorithm=algorithm)
    cloud.ends(ExitCode.DONE, "code list", out="copied-by-hand (Running)")
    cloud.ends(ExitCode.DONE, f"{GC} 0s", err="Deleted 1 upload")
    assert contents(obs) == [b"1", b"3"]


@pytest.mark.parametrize("nth", [1, 2])
def test_unlisted_jobs_keep_all_code(cloud: World, obs: ObsServer, nth: int) -> None:
    cloud.fail("ListTrainingJobs", nth=nth, count=None, status=400)
    cloud.ends(ExitCode.UNKNOWN, f"{GC} 0s", err=["could not be listed completely", "nothing was deleted"])
    assert contents(obs) == [b"1", b"2", b"3"]


def test_workspace_without_the_stack_does_not_release_its_code(cloud: World, obs: ObsServer) -> None:
    write(
        Path("jobs.yaml")
        .read_text(encoding="utf-8")
        .replace(", region", f", workspace_id: {'b' * 32}, region", 1)
    )
    text = Path("jobs.yaml").read_text(encoding="utf-8")
    write(text.replace("\n  there:", "\n#", 1))
    cloud.ends(ExitCode.DONE, f"{GC} 0s", err="3 kept: no job of the stack is known")
    assert contents(obs) == [b"1", b"2", b"3"]


def test_job_without_a_reported_code_dir_keeps_all_code(cloud: World, obs: ObsServer) -> None:
    cloud.store.edit(cloud.job("train").id, lambda body: body.pop("algorithm"))
    cloud.ends(ExitCode.UNKNOWN, "code list", out="train r3", err="train: its code is not shown")
    cloud.ends(ExitCode.UNKNOWN, f"{GC} 0s", err="nothing was deleted")
    assert contents(obs) == [b"1", b"2", b"3"]


@pytest.mark.parametrize(
    ("answer", "code", "says"),
    [
        ((403, "AccessDenied"), ExitCode.UNAUTHORIZED, "obs:object:DeleteObject"),
        ((400, "InvalidBucketName"), ExitCode.PARTIAL, "check `code_store`"),
    ],
)
def test_refused_deletion_does_not_stop_the_others(
    cloud: World, obs: ObsServer, answer: tuple[int, str], code: ExitCode, says: str
) -> None:
    obs.answers = [Answer(*answer, "DELETE")]
    result = cloud.ends(code, f"{GC} 0s --json", err=[says, "Deleted 1 upload"])
    assert [bool(one["error"]) for one in result.document["items"]] == [True, False]
    cloud.ends(ExitCode.DONE, f"{GC} 0s")
    assert contents(obs) == [b"3"]


def test_interrupted_gc_is_completed_by_the_next_gc(cloud: World, obs: ObsServer) -> None:
    on_delete(obs, lambda: os.kill(os.getpid(), signal.SIGINT))
    cloud.ends(ExitCode.INTERRUPTED, f"{GC} 0s", err="Nothing was deleted")
    assert len(obs.objects) == 5  # the first manifest object has gone
    assert contents(obs) == [b"1", b"2", b"3"]
    cloud.ends(ExitCode.DONE, "code list", out="incomplete")
    cloud.ends(ExitCode.DONE, f"{GC} 0s", err="Deleted 2 uploads")
    assert contents(obs) == [b"3"]


def on_delete(obs: ObsServer, do: Callable[[], object]) -> None:
    """Run something before the store responds to the first deletion."""
    left = [do]

    def first(seen: Seen) -> None:
        if left and seen.method == "DELETE":
            left.pop()()

    obs.before = first


@pytest.mark.parametrize(
    ("old", "new", "code", "says"),
    [
        (", code_store: 'obs://vision/code/'}", "}", ExitCode.INVALID, "add code_store"),
        ("a" * 32, "${env.NONE}", ExitCode.INVALID, "NONE"),
    ],
)
def test_store_with_unresolved_variables_is_not_touched(
    cloud: World, obs: ObsServer, old: str, new: str, code: ExitCode, says: str
) -> None:
    write(Path("jobs.yaml").read_text(encoding="utf-8").replace(old, new, 1))
    cloud.ends(code, f"{GC} 0s", err=says)
    assert contents(obs) == [b"1", b"2", b"3"]


def test_table_fits_a_terminal(reconciler: Reconciler, three: None) -> None:
    environ = {**os.environ, "COLUMNS": "80"}
    program = (
        "import pty, sys; sys.exit(pty.spawn([sys.executable, '-m', 'reconciler', 'code', 'list']) >> 8)"
    )
    completed = subprocess.run(
        [sys.executable, "-c", program], env=environ, stdin=subprocess.DEVNULL, capture_output=True, text=True
    )
    lines = completed.stdout.splitlines()
    assert "USED BY" in lines[0]
    assert len(lines) == 4
    assert max(map(len, lines)) <= 80
