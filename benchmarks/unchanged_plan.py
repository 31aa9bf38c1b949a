"""What a plan costs that finds nothing to change: ours beside Terraform's.

    python benchmarks/unchanged_plan.py [--jobs 1000] [--rounds 5] [--check]

Ours plans N jobs that run on the emulator, over HTTP. Theirs plans N `terraform_data` resources of the same
content, which are built into Terraform and ask no service at all. Both are timed as whole processes, in turn.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.request import Request, urlopen

sys.path.insert(0, str(Path(__file__).parents[1]))

from benchmarks.measuring import Run, in_turn, line, run

ROOT = Path(__file__).parents[1]
FILES = 20
TOKEN = "benchmark-token"  # the emulator's, and nobody else's
#: `--check` fails above this share of Terraform's time.
MOST = 0.1

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


def write_in_files(directory: Path, suffix: str, block: str, jobs: int, head: str = "") -> None:
    """Write the blocks of all jobs to `FILES` files."""
    directory.mkdir()
    for number in range(FILES):
        blocks = [block.format(n=n, nodes=1 + n % 8) for n in range(number, jobs, FILES)]
        if blocks:
            (directory / f"jobs-{number:02}{suffix}").write_text(head + "".join(blocks), encoding="utf-8")


@contextmanager
def emulator(*more: str) -> Iterator[str]:
    """Run the emulator as a process, with these options; yield its address."""
    command = [
        sys.executable,
        "-m",
        "reconciler",
        "emulator",
        "serve",
        "--token",
        TOKEN,
        *more,
    ]
    with subprocess.Popen(
        command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    ) as server:
        try:
            assert server.stdout is not None
            yield server.stdout.readline().removeprefix("listening on ").strip()
        finally:
            server.send_signal(signal.SIGTERM)


class Ours:
    """A stack of `jobs` jobs that were applied."""

    def __init__(self, directory: Path, url: str, jobs: int) -> None:
        self._url = url
        write_in_files(directory, ".yaml", JOB, jobs, head="jobs:\n")
        (directory / "stack.yaml").write_text(MANIFEST_HEAD.format(url=url), encoding="utf-8")
        self._directory = str(directory)
        self.applied = self._reconciler("apply", "--yes")

    def _reconciler(self, *arguments: str) -> Run:
        command = [sys.executable, "-m", "reconciler", *arguments, self._directory]
        environ = {name: value for name, value in os.environ.items() if not name.startswith("RECONCILER_")}
        return run(command, cwd=ROOT, environ={**environ, "MODELARTS_AUTH_TOKEN": TOKEN})

    def plan(self) -> Run:
        """Plan; anything to change is a failure."""
        return self._reconciler("plan", "--detailed-exitcode")

    def requests(self) -> Counter[str]:
        """How often one plan asks for what."""
        self._control("DELETE")
        self.plan()
        return Counter(served["operation"] for served in self._control("GET")["requests"])

    def _control(self, method: str) -> Any:
        with urlopen(
            Request(f"{self._url}/emulator/requests", None, {"X-Auth-Token": TOKEN}, method=method)
        ) as answer:
            text = answer.read()
        return json.loads(text) if text else None


class Theirs:
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


def main() -> int:
    """Measure, and report."""
    parser = argparse.ArgumentParser(description="Time a plan that finds nothing to change.")
    parser.add_argument("--jobs", type=int, default=1000)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--check", action="store_true", help=f"fail above {MOST:g} of their time")
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch, emulator() as url:
        ours = Ours(Path(scratch) / "ours", url, asked.jobs)
        print(f"{asked.jobs} jobs in {FILES} files, {os.cpu_count()} cores, Python {sys.version.split()[0]}")
        print(f"{'reconciler apply, all new':<34} once   {ours.applied.wall_s:7.3f} s")
        asks = ", ".join(f"{count} {name}" for name, count in sorted(ours.requests().items()))
        print(f"one plan asks for: {asks}")
        if shutil.which("terraform") is None:
            print("terraform is not on PATH: that side is left out")
            print(line("reconciler plan, unchanged", [ours.plan() for _ in range(asked.rounds + 1)][1:]))
            return 1 if asked.check else 0
        theirs = Theirs(Path(scratch) / "theirs", asked.jobs)
        compared = in_turn(ours.plan, theirs.plan, rounds=asked.rounds)
    print(line("reconciler plan, unchanged", compared.ours))
    print(line("terraform plan, unchanged", compared.theirs))
    ratios = sorted(compared.ratios)
    print(f"ratio, pair by pair: median {compared.ratio:.3f} ({ratios[0]:.3f} to {ratios[-1]:.3f})")
    return 1 if asked.check and compared.ratio > MOST else 0


if __name__ == "__main__":
    sys.exit(main())
