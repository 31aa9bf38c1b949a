"""A declared job becomes local directories, variables and commands."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

import pytest

from reconciler.processes.execution import CannotRun, Machine, PreparedJob, copy_output, prepare

ID = "0b1c"


class Here:
    """A machine with its storage in a test directory."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.storage = root / "obs"
        self.machine = Machine(storage={"obs://": str(self.storage)})
        self.put("code/src/train.py", "print()")

    def put(self, path: str, text: str = "") -> Path:
        file = self.storage / "b" / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text, encoding="utf-8")
        return file

    def prepare(
        self, *, nodes: int = 1, environ: dict[str, str] | None = None, **algorithm: Any
    ) -> PreparedJob:
        code = {"code_dir": "obs://b/code/src/", "boot_file": "obs://b/code/src/train.py"}
        body = {"algorithm": {**code, **algorithm}, "spec": {"resource": {"node_count": nodes}}}
        return prepare(ID, body, self.job, self.machine, environ or {})

    @property
    def job(self) -> Path:
        return self.root / "job"

    @property
    def code(self) -> Path:
        return self.job / "home/modelarts/user-job-dir/src"


@pytest.fixture
def here(tmp_path: Path) -> Here:
    return Here(tmp_path)


def channel(name: str, path: str, **more: str) -> dict[str, Any]:
    return {"name": name, "remote": {"obs": {"obs_url": f"obs://b/{path}"}}, **more}


def test_arguments_are_parameters_then_inputs_then_outputs_each_whole(here: Here) -> None:
    here.put("data/x")
    [task] = here.prepare(
        parameters=[{"name": "z", "value": "a b; rm"}, {"name": "lr", "value": "0.1"}, {"name": "flag"}],
        inputs=[channel("data", "data/")],
        outputs=[channel("out", "out/")],
    ).tasks
    output = here.job / "home/modelarts/outputs/out_0"
    data = here.storage / "b/data"
    assert task.command == (
        *(sys.executable, str(here.code / "train.py")),
        *("--z=a b; rm", "--lr=0.1", "--flag=", f"--data={data}", f"--out={output}"),
    )
    assert output.is_dir()


def test_code_is_a_copy_under_the_last_level_of_its_directory(here: Here) -> None:
    here.prepare()
    (here.code / "train.py").write_text("changed by the job", encoding="utf-8")
    assert (here.storage / "b/code/src/train.py").read_text(encoding="utf-8") == "print()"


def test_environment_is_that_of_a_container_plus_named_variables_of_the_caller(here: Here) -> None:
    environ = {"PATH": "/bin", "HUAWEICLOUD_SDK_SK": "secret", "CUDA_VISIBLE_DEVICES": "0,1"}
    first, second = here.prepare(nodes=2, environ=environ, environments={"A": "1", "MA_NUM_GPUS": "8"}).tasks
    home = here.job / "home"
    assert second.environment == {
        "PATH": "/bin",
        "LD_LIBRARY_PATH": "",
        "LIBRARY_PATH": "",
        "CUDA_VISIBLE_DEVICES": "0,1",
        "MA_HOME": str(home),
        "MA_MOUNT_PATH": str(home / "modelarts"),
        "MA_JOB_DIR": str(home / "modelarts/user-job-dir"),
        "MA_LOG_DIR": str(home / "modelarts/log"),
        "WORKSPACE": str(here.code),
        "MA_SCRIPT_INTERPRETER": "",
        "MA_CURRENT_IP": "127.0.0.1",
        "MA_NUM_GPUS": "8",
        "MA_TASK_NAME": "worker",
        "MA_NUM_HOSTS": "2",
        "VC_WORKER_NUM": "2",
        "VC_WORKER_HOSTS": "127.0.0.1,127.0.0.1",
        "VC_TASK_INDEX": "1",
        "MA_CURRENT_INSTANCE_NAME": f"modelarts-job-{ID}-worker-1",
        "MA_VJ_NAME": f"ma-job-{ID}",
        "PYTHONPATH": str(home / "modelarts/user-job-dir"),
        "PYTHONUNBUFFERED": "1",
        "A": "1",
        "RECONCILER_JOB_ID": ID,
    }
    assert first.name == "worker-0"
    assert first.environment["VC_TASK_INDEX"] == "0"


def test_channel_is_passed_by_variable_and_local_dir(here: Here) -> None:
    here.put("data/x", "1")
    [task] = here.prepare(
        inputs=[channel("data", "data/", access_method="env", local_dir="/home/ma-user/in")],
        outputs=[channel("out", "out/", access_method="env", local_dir="/home/ma-user/out")],
        working_dir="/home/ma-user/work",
    ).tasks
    home = here.job / "home"
    assert (task.environment["data"], task.environment["out"]) == (str(home / "in"), str(home / "out"))
    assert (home / "in/x").read_text(encoding="utf-8") == "1"
    assert task.directory == home / "work"
    assert len(task.command) == 2


def test_output_that_has_not_changed_is_not_copied_again(here: Here) -> None:
    execution = here.prepare(outputs=[channel("out", "out/")])
    source = execution.outputs[0].directory
    here.put("out/of an earlier run", "0")
    for name in ("old", "new"):
        (source / name).write_text("1", encoding="utf-8")
    os.utime(source / "old", (1, 1))
    copy_output(execution.outputs[0])
    target = here.storage / "b/out"
    # `new` may still be changing: its time is inconclusive.
    kept = [(target / name).stat().st_mtime == (source / name).stat().st_mtime for name in ("old", "new")]
    assert kept == [True, False]
    for name in ("old", "new"):
        (target / name).write_text("2", encoding="utf-8")
    os.utime(target / "old", (1, 1))
    copy_output(execution.outputs[0])
    assert {path.name: path.read_text(encoding="utf-8") for path in target.iterdir()} == {
        **{"old": "2", "new": "1", "of an earlier run": "0"}
    }


def test_output_may_contain_links_and_irregular_files(here: Here) -> None:
    execution = here.prepare(outputs=[channel("out", "out/")])
    source = execution.outputs[0].directory
    (source / "step").mkdir()
    (source / "step/model").write_text("m", encoding="utf-8")
    links = {"latest": "step", "model": "step/model", "gone": "none", "step/up": "..", "itself": "itself"}
    for link, place in links.items():
        (source / link).symlink_to(place)
    os.mkfifo(source / "pipe")
    copy_output(execution.outputs[0])
    target = here.storage / "b/out"
    assert {str(path.relative_to(target)) for path in target.rglob("*") if path.is_file()} == {
        *("step/model", "latest/model", "model")
    }


def test_output_containing_its_own_storage_is_copied_once(here: Here) -> None:
    execution = here.prepare(outputs=[channel("out", "out/", local_dir=str(here.root))])
    for _ in range(2):
        copy_output(execution.outputs[0])
    target = here.storage / "b/out"
    assert (target / "obs/b/code/src/train.py").exists()
    assert not (target / "obs/b/out").exists()


def test_channel_directory_is_below_the_home_of_the_job(here: Here) -> None:
    here.put("data/x")
    [task] = here.prepare(
        inputs=[channel("data", "data/", local_dir="/home/ma-user/modelarts/inputs")],
        outputs=[channel("out", "out/", local_dir="made/here")],
    ).tasks
    assert task.command[2:] == (
        f"--data={here.job / 'home/modelarts/inputs'}",
        f"--out={here.job / 'home/made/here'}",
    )
    assert (here.job / "home/modelarts/inputs/x").exists()


def test_image_command_runs_only_if_the_target_allows_it(here: Here) -> None:
    command = "cd x && python train.py"
    with pytest.raises(CannotRun, match="needs its container image"):
        here.prepare(command=command)
    here.machine = here.machine._replace(runs_images=True)
    [task] = here.prepare(command=f"{command}\n", parameters=[{"name": "p", "value": "a b"}]).tasks
    assert task.command == ("bash", "-c", f"{command} '--p=a b'")


def test_container_path_is_used_if_it_exists(here: Here, tmp_path: Path) -> None:
    here.put("data/x")
    there = str(tmp_path)
    [task] = here.prepare(
        working_dir=there,
        local_code_dir=f"{there}/",
        inputs=[channel("data", "data/", local_dir=there)],
        outputs=[channel("out", "out/", local_dir=there)],
    ).tasks
    assert task.directory == tmp_path
    assert task.command[1:] == (f"{there}/src/train.py", f"--data={there}", f"--out={there}")


@pytest.mark.parametrize(
    ("environ", "count"),
    [
        ({"CUDA_VISIBLE_DEVICES": "0,3"}, "2"),
        ({"CUDA_VISIBLE_DEVICES": ""}, "0"),
        ({"CUDA_VISIBLE_DEVICES": "-1"}, "0"),
    ],
)
def test_accelerators_visible_to_the_caller_are_used(here: Here, environ: dict[str, str], count: str) -> None:
    [task] = here.prepare(environ=environ).tasks
    assert task.environment["MA_NUM_GPUS"] == count


@pytest.mark.parametrize("prefix", ["obs://b/data/", "obs://b/data"])
@pytest.mark.parametrize(
    ("path", "place"),
    [("data/", "sample"), ("data", "sample"), ("data/x", "sample/x"), ("data2/", "obs/b/data2")],
)
def test_longest_storage_prefix_wins(here: Here, tmp_path: Path, prefix: str, path: str, place: str) -> None:
    (tmp_path / place).mkdir(parents=True)
    storage = {**here.machine.storage, prefix: str(tmp_path / "sample")}
    here.machine = here.machine._replace(storage=storage)
    [task] = here.prepare(inputs=[channel("data", path)]).tasks
    assert task.command[-1] == f"--data={tmp_path / place}"


def test_code_folder_has_the_last_name_of_its_address(here: Here) -> None:
    elsewhere = {
        "obs://b/code/src/": str(here.storage / "b/code/src"),
        "obs://b/plain": str(here.storage / "b/code/src"),
    }
    here.machine = here.machine._replace(storage=elsewhere)
    [task] = here.prepare(code_dir="/b/plain", boot_file="/b/plain/train.py").tasks
    assert task.command[1] == str(here.code.with_name("plain") / "train.py")
    assert task.environment["WORKSPACE"] == str(here.code.with_name("plain"))


@pytest.mark.parametrize(
    ("algorithm", "why"),
    [
        ({"inputs": [channel("data", "none/")]}, "input data: .*/obs/b/none does not exist"),
        ({"inputs": [channel("data", "../../../etc/")]}, "leads out of"),
        ({"inputs": [{"name": "d", "remote": {"dataset": {"id": "1"}}}]}, "d is not in OBS"),
        ({"code_dir": "obs://b/none/"}, "code_dir: .*/obs/b/none is not a directory"),
        ({"boot_file": "obs://b/code/src/other.py"}, "boot_file: .*other.py does not exist"),
        ({"code_dir": None}, "neither a `command` nor a `boot_file`"),
        ({"inputs": [channel("d", "code/", local_dir="/home/ma-user/modelarts")]}, "modelarts is taken by"),
        (
            {"inputs": [channel(n, "code/", local_dir=f"/home/ma-user/in{n}") for n in ("", "/x")]},
            "in/x is taken by the code or another input",
        ),
        ({"working_dir": "../../etc/none"}, "does not exist on this machine"),
        ({"working_dir": "/no/such/place"}, "/no/such/place does not exist on this machine"),
    ],
)
def test_job_that_cannot_run_here_is_refused_with_the_reason(
    here: Here, algorithm: dict[str, Any], why: str
) -> None:
    with pytest.raises(CannotRun, match=why):
        here.prepare(**algorithm)


def test_address_without_a_storage_prefix_is_named(here: Here) -> None:
    here.machine = here.machine._replace(storage={"obs://other/": "/tmp"})
    with pytest.raises(CannotRun, match="obs://b/code/src/ has no directory on this machine"):
        here.prepare()
