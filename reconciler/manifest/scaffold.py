"""What `reconciler init` writes: a manifest, a CI workflow and a `.gitignore` to start from."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

from reconciler.core.identity import stack_problem

MANIFEST_FILE = "jobs.yaml"
WORKFLOW_FILE = ".github/workflows/reconciler.yml"
IGNORE_FILE = ".gitignore"

_DEFAULT_STACK = "training"
_DEFAULT_TARGET = "prod"

_MANIFEST = """\
# The training jobs of one team or project. Check this file with `reconciler validate`, see what would be done
# with `reconciler plan`, and do it with `reconciler apply`.
apiVersion: reconciler/v1
stack: {stack}{space}# whose jobs these are; two stacks never touch each other's jobs
target: local             # the default; `--target prod` chooses another

targets:
  local: {{kind: local}}    # an embedded emulator that needs no account; its jobs lie in .reconciler/
  # prod:
  #   kind: modelarts
  #   region: cn-north-4    # or endpoint: https://modelarts.eu-de.otc.t-systems.com
  #   project_id: ${{env.HUAWEICLOUD_SDK_PROJECT_ID}}

variables:
  bucket: {{default: my-bucket, description: where code and data are}}

defaults:                 # merged under every job
  spec:
    resource: {{flavor_id: modelarts.vm.cpu.2u, node_count: 1}}

jobs:
  hello:                  # the key; the job on the service has this name
    description: a first training job
    algorithm:
      code_dir: obs://${{var.bucket}}/hello/
      boot_file: obs://${{var.bucket}}/hello/train.py
      engine: {{engine_id: pytorch_1.8.0-cuda_10.2-py_3.7-ubuntu_18.04-x86_64}}
      parameters: {{epochs: 1, lr: 0.1}}
      outputs: {{train_url: "obs://${{var.bucket}}/hello/out/"}}
    lifecycle:
      on_change: replace    # a change ends what runs and starts the job anew; keep leaves it running
      on_failure: keep      # retry starts a failed job again
"""

_IGNORE = """\
# Records, lock and the jobs of local targets: they belong to this checkout.
.reconciler/
# Saved plans, which may hold what a manifest does not, and what is shown of them.
*.plan.json
/plan.md
/drift.md
/drift.xml
"""


def starting_files(directory: str) -> Mapping[str, str]:
    """The files to start from, by their name in the directory; the stack is named after the `directory`."""
    stack = stack_name(directory)
    manifest = _MANIFEST.format(stack=stack, space=" " * max(1, 19 - len(stack)))
    return {MANIFEST_FILE: manifest, WORKFLOW_FILE: workflow_for(_DEFAULT_TARGET), IGNORE_FILE: _IGNORE}


def workflow_for(target: str) -> str:
    """The CI workflow for a manifest whose target has that name: that of examples/ci/github."""
    workflow = (Path(__file__).parent / "workflow.yml").read_text(encoding="utf-8")
    if not re.fullmatch(r"[A-Za-z0-9_.-]+", target):
        return workflow
    return workflow.replace(f"'{_DEFAULT_TARGET}'", f"'{target}'").replace(
        f"left out: {_DEFAULT_TARGET}\n", f"left out: {target}\n"
    )


def head_of_export(target: str) -> tuple[str, ...]:
    """The comment at the beginning of a manifest that declares jobs which exist already."""
    return (
        f"The training jobs that exist on target {target}. Check this file with `reconciler validate`, and",
        "make them jobs of this stack with `reconciler adopt --all`: nothing restarts. Until then a key",
        "is in conflict with the job of its name, and nothing is done to it. From then on `reconciler plan`",
        "shows what an edit of this file would do, and `reconciler apply` does it.",
        "`reconciler explain fields` says what else can stand here, and what a change of it means.",
    )


def stack_name(directory: str) -> str:
    """The name of a directory as the name of a stack."""
    name = re.sub(r"[^a-z0-9]+", "-", directory.lower()).strip("-")[:32].strip("-")
    return _DEFAULT_STACK if stack_problem(name) else name
