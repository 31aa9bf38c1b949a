"""A git repository with the manifest of a stack, on an emulated service."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from reconciler.emulator import Store
from tests.git_repository import Git, commit

PROJECT, ACCESS_KEY, SECRET_KEY = "p1", "AK-of-the-team", "tell-nobody-the-secret-key"
SECRETS = {
    "HUAWEICLOUD_SDK_AK": ACCESS_KEY,
    "HUAWEICLOUD_SDK_SK": SECRET_KEY,
    "HUAWEICLOUD_SDK_PROJECT_ID": PROJECT,
}
HEAD = """\
apiVersion: reconciler/v1
stack: {stack}
target: local

targets:
  local: {{kind: local}}
  prod:
    kind: modelarts
    endpoint: {url}
    project_id: ${{env.HUAWEICLOUD_SDK_PROJECT_ID}}

jobs:
"""
JOB = """\
  {key}:
    algorithm:
      code_dir: obs://b/code/
      boot_file: obs://b/code/train.py
      engine: {{engine_id: pytorch_1.8.0-cuda_10.2-py_3.7-ubuntu_18.04-x86_64}}
      parameters: {{lr: {lr}}}
    spec:
      resource: {{flavor_id: modelarts.vm.cpu.2u, node_count: 1}}
"""


class Repository(NamedTuple):
    path: Path
    git: Git
    store: Store
    url: str

    def manifest(self, stack: str = "vision", /, more: str = "", **lr_by_key: float) -> str:
        """A manifest with these jobs."""
        jobs = "".join(JOB.format(key=key, lr=lr) for key, lr in lr_by_key.items())
        return HEAD.format(stack=stack, url=self.url) + jobs + more

    def commit(self, files: Mapping[str, str] | None = None, /, **jobs: Any) -> str:
        """Commit a manifest with these jobs, and other files, on the current branch."""
        return commit(self.git, {**(files or {}), "jobs.yaml": self.manifest(**jobs)})

    def merge(self, branch: str) -> str:
        """Merge a branch into the current one; return the id of the commit."""
        self.git("merge", "--quiet", "--no-ff", "--no-edit", branch)
        return self.git("rev-parse", "HEAD")

    @property
    def running(self) -> dict[str, str]:
        return {job.name: str(job.body["algorithm"]["parameters"][0]["value"]) for job in self.store.jobs()}
