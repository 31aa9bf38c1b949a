"""The same content for three tools: our jobs on the emulator, Terraform resources, ConfigMaps.

Terraform's `terraform_data` is built in and needs no service, so its task is lighter. kubectl talks to
`fake_kubernetes.py`, which only stores objects.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any
from urllib.request import Request, urlopen

from benchmarks.measuring import Run, run

ROOT = Path(__file__).parents[1]
FILES = 20
TOKEN = "benchmark-token"  # the emulator's, and nobody else's

MANIFEST_HEAD = """\
apiVersion: reconciler/v1
stack: benchmark
targets:
  emulator: {{kind: modelarts, endpoint: "{url}", project_id: p1}}
"""
JOB = """\
  train-{n:04}:
    description: ResNet-50 on split {n}, nightly
    algorithm:
      code_dir: obs://vision-data/resnet/v{n}/
      boot_file: obs://vision-data/resnet/v{n}/train.py
      engine:
        engine_id: pytorch_1.8.0-cuda_10.2-py_3.7-ubuntu_18.04-x86_64
      parameters:
        epochs: 90
        lr: 0.{n:04}1
        batch_size: 256
        warmup: true
      inputs:
        data_url: obs://vision-data/imagenet/split-{n}/
      outputs:
        train_url: obs://vision-data/out/{n}/
      environments:
        NCCL_DEBUG: INFO
        EMULATOR_RUN_SECONDS: 86400000
    spec:
      resource:
        flavor_id: modelarts.p3.large.public
        node_count: {nodes}
      log_export_path:
        obs_url: obs://vision-data/log/{n}/
      auto_stop:
        time_unit: HOURS
        duration: 720
    lifecycle:
      on_change: replace
      on_failure: retry
      max_retries: 2
"""
RESOURCE = """\
resource "terraform_data" "train-{n:04}" {{
  input = {{
    description = "ResNet-50 on split {n}, nightly"
    algorithm = {{
      code_dir  = "obs://vision-data/resnet/v{n}/"
      boot_file = "obs://vision-data/resnet/v{n}/train.py"
      engine = {{
        engine_id = "pytorch_1.8.0-cuda_10.2-py_3.7-ubuntu_18.04-x86_64"
      }}
      parameters = {{
        epochs     = 90
        lr         = 0.{n:04}1
        batch_size = 256
        warmup     = true
      }}
      inputs  = {{ data_url = "obs://vision-data/imagenet/split-{n}/" }}
      outputs = {{ train_url = "obs://vision-data/out/{n}/" }}
      environments = {{
        NCCL_DEBUG           = "INFO"
        EMULATOR_RUN_SECONDS = 86400000
      }}
    }}
    spec = {{
      resource = {{
        flavor_id  = "modelarts.p3.large.public"
        node_count = {nodes}
      }}
      log_export_path = {{ obs_url = "obs://vision-data/log/{n}/" }}
      auto_stop       = {{ time_unit = "HOURS", duration = 720 }}
    }}
    lifecycle = {{ on_change = "replace", on_failure = "retry", max_retries = 2 }}
  }}
}}
"""


CONFIG_MAP = """\
---
apiVersion: v1
kind: ConfigMap
metadata:
  name: train-{n:04}
  namespace: default
data:
  description: ResNet-50 on split {n}, nightly
  code_dir: obs://vision-data/resnet/v{n}/
  boot_file: obs://vision-data/resnet/v{n}/train.py
  engine_id: pytorch_1.8.0-cuda_10.2-py_3.7-ubuntu_18.04-x86_64
  epochs: "90"
  lr: "0.{n:04}1"
  batch_size: "256"
  warmup: "true"
  data_url: obs://vision-data/imagenet/split-{n}/
  train_url: obs://vision-data/out/{n}/
  NCCL_DEBUG: INFO
  EMULATOR_RUN_SECONDS: "86400000"
  flavor_id: modelarts.p3.large.public
  node_count: "{nodes}"
  obs_url: obs://vision-data/log/{n}/
  auto_stop: 720 HOURS
  on_change: replace
  on_failure: retry
  max_retries: "2"
"""


def write_in_files(directory: Path, suffix: str, block: str, jobs: int, head: str = "") -> None:
    """Write the blocks of all jobs to `FILES` files."""
    directory.mkdir()
    for number in range(FILES):
        blocks = [block.format(n=n, nodes=1 + n % 8) for n in range(number, jobs, FILES)]
        if blocks:
            (directory / f"jobs-{number:02}{suffix}").write_text(head + "".join(blocks), encoding="utf-8")


@contextmanager
def serving(*command: str) -> Iterator[str]:
    """Run a Python program as a process that prints its address in its first line; yield the address."""
    with subprocess.Popen(
        [sys.executable, *command], cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    ) as server:
        try:
            assert server.stdout is not None
            yield server.stdout.readline().removeprefix("listening on ").strip()
        finally:
            server.send_signal(signal.SIGTERM)


def emulator(*more: str) -> AbstractContextManager[str]:
    """Run the emulator as a process, with these options."""
    return serving("-m", "reconciler", "emulator", "serve", "--token", TOKEN, *more)


def control(url: str, method: str, path: str, body: object = None) -> Any:
    """Call the control API of an emulator."""
    data = None if body is None else json.dumps(body).encode()
    headers = {"Content-Type": "application/json", "X-Auth-Token": TOKEN}
    with urlopen(Request(f"{url}/emulator/{path}", data, headers, method=method)) as answer:
        text = answer.read()
    return json.loads(text) if text else None


def environment() -> dict[str, str]:
    """Return the environment of our commands: the caller's without our own settings, plus the token."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("RECONCILER_")}
    return {**kept, "MODELARTS_AUTH_TOKEN": TOKEN}


class Ours:
    """A stack of `jobs` jobs that were applied."""

    def __init__(self, directory: Path, url: str, jobs: int) -> None:
        self.url = url
        write_in_files(directory, ".yaml", JOB, jobs, head="jobs:\n")
        (directory / "stack.yaml").write_text(MANIFEST_HEAD.format(url=url), encoding="utf-8")
        self.directory = str(directory)
        self.applied = self.run("apply", "--yes")
        # The jobs start to run, and the new phases are recorded: later plans change nothing.
        time.sleep(3)
        self.plan()

    def run(self, *arguments: str, under: Sequence[str] = ()) -> Run:
        """Run one of our commands on the stack, perhaps under another program."""
        command = [*under, sys.executable, "-m", "reconciler", *arguments, self.directory]
        return run(command, cwd=ROOT, environ=environment())

    def plan(self) -> Run:
        """Plan; anything to change is a failure."""
        return self.run("plan", "--detailed-exitcode")

    def requests(self) -> Counter[str]:
        """Return the number of requests of one plan, by operation."""
        control(self.url, "DELETE", "requests")
        self.plan()
        served = control(self.url, "GET", "requests")["requests"]
        return Counter(one["operation"] for one in served)


class Terraform:
    """The same content as resources of Terraform, applied. Nothing is written outside the directory."""

    def __init__(self, directory: Path, jobs: int) -> None:
        self._directory = directory
        write_in_files(directory, ".tf", RESOURCE, jobs)
        settings = directory / "settings.tfrc"
        settings.touch()
        self._environ = {
            "PATH": os.environ["PATH"],
            "HOME": str(directory),
            "TF_CLI_CONFIG_FILE": str(settings),
            "CHECKPOINT_DISABLE": "1",
            "TF_IN_AUTOMATION": "1",
            "TF_INPUT": "0",
        }
        self._terraform("init")
        self._terraform("apply", "-auto-approve")

    def _terraform(self, *arguments: str) -> Run:
        return run(["terraform", *arguments, "-no-color"], cwd=self._directory, environ=self._environ)

    def plan(self) -> Run:
        """Plan; anything to change is a failure."""
        return self._terraform("plan", "-detailed-exitcode")


class Kubectl:
    """The same content as ConfigMaps, applied to a server that keeps them in memory."""

    def __init__(self, directory: Path, url: str, jobs: int) -> None:
        self._directory, self._url = directory, url
        write_in_files(directory, ".yaml", CONFIG_MAP, jobs)
        self.plan()

    def plan(self) -> Run:
        """Apply the existing objects: kubectl compares them, and changes nothing."""
        command = ["kubectl", "apply", "--server", self._url, "--validate=false", "-f", str(self._directory)]
        return run(command, cwd=ROOT, environ={"PATH": os.environ["PATH"], "HOME": str(self._directory)})
