"""What `reconciler init` writes: a manifest, a CI workflow and a `.gitignore` to start from."""

from __future__ import annotations

import re
from collections.abc import Mapping

from reconciler.core.observed.identity import stack_problem

MANIFEST_FILE = "jobs.yaml"
WORKFLOW_FILE = ".github/workflows/reconciler.yml"
IGNORE_FILE = ".gitignore"

_DEFAULT_STACK = "training"

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

_WORKFLOW = """\
# Checks the manifest on each pull request, applies it once it is merged, and looks for drift every hour.
name: reconciler
on:
  pull_request:
  push:
    branches: [main]
  schedule:
    - cron: "17 * * * *"
permissions:
  contents: read
env:
  # What `pip install` takes, e.g. git+https://…@TAG: set it as a variable of the repository. There is no
  # default, because an index may have another project of that name, which would get your credentials.
  RECONCILER: ${{ vars.RECONCILER }}
  # The target to plan, apply and check, as the manifest names it.
  TARGET: ${{ vars.RECONCILER_TARGET || 'prod' }}
jobs:
  check:
    if: github.event_name == 'pull_request'
    runs-on: ubuntu-latest
    steps:
      - uses: actions/checkout@v4
      - uses: actions/setup-python@v5
        with: {python-version: "3.12"}
      - run: python -m pip install "$RECONCILER"
      - run: reconciler fmt --check
      - run: reconciler validate
  apply:
    if: github.event_name == 'push'
    runs-on: ubuntu-latest
    environment: production
    concurrency: reconciler-apply    # one at a time
    env:
      HUAWEICLOUD_SDK_AK: ${{ secrets.HUAWEICLOUD_SDK_AK }}
      HUAWEICLOUD_SDK_SK: ${{ secrets.HUAWEICLOUD_SDK_SK }}
      HUAWEICLOUD_SDK_PROJECT_ID: ${{ secrets.HUAWEICLOUD_SDK_PROJECT_ID }}
      RECONCILER_RECORDS: ${{ secrets.RECONCILER_RECORDS }}
    steps:
      - uses: actions/checkout@v4
      - uses: actions/setup-python@v5
        with: {python-version: "3.12"}
      - run: python -m pip install "$RECONCILER"
      - run: reconciler apply --yes --target "$TARGET"
  drift:
    if: github.event_name == 'schedule'
    runs-on: ubuntu-latest
    env:
      HUAWEICLOUD_SDK_AK: ${{ secrets.HUAWEICLOUD_SDK_AK }}
      HUAWEICLOUD_SDK_SK: ${{ secrets.HUAWEICLOUD_SDK_SK }}
      HUAWEICLOUD_SDK_PROJECT_ID: ${{ secrets.HUAWEICLOUD_SDK_PROJECT_ID }}
      RECONCILER_RECORDS: ${{ secrets.RECONCILER_RECORDS }}
    steps:
      - uses: actions/checkout@v4
      - uses: actions/setup-python@v5
        with: {python-version: "3.12"}
      - run: python -m pip install "$RECONCILER"
      - run: reconciler drift --target "$TARGET"
"""

_IGNORE = """\
# Records, lock and the jobs of local targets: they belong to this checkout.
.reconciler/
# Saved plans may hold what a manifest does not.
*.plan.json
"""


def starting_files(directory: str) -> Mapping[str, str]:
    """The files to start from, by their name in the directory; the stack is named after the `directory`."""
    stack = stack_name(directory)
    manifest = _MANIFEST.format(stack=stack, space=" " * max(1, 19 - len(stack)))
    return {MANIFEST_FILE: manifest, WORKFLOW_FILE: _WORKFLOW, IGNORE_FILE: _IGNORE}


def workflow_for(target: str) -> str:
    """The CI workflow for a manifest whose target has that name."""
    is_plain = re.fullmatch(r"[A-Za-z0-9_.-]+", target)
    return _WORKFLOW.replace("'prod'", f"'{target}'") if is_plain else _WORKFLOW


def head_of_export(target: str) -> tuple[str, ...]:
    """The comment at the beginning of a manifest that declares jobs which exist already."""
    return (
        f"The training jobs that exist on target {target}. Check this file with `reconciler validate`, see",
        "what would be done with `reconciler plan`, and do it with `reconciler apply`. No job is touched",
        "before it belongs to this stack: until it is adopted, its key is in conflict with it.",
        "`reconciler explain fields` says what else can stand here, and what a change of it means.",
    )


def stack_name(directory: str) -> str:
    """The name of a directory as the name of a stack."""
    name = re.sub(r"[^a-z0-9]+", "-", directory.lower()).strip("-")[:32].strip("-")
    return _DEFAULT_STACK if stack_problem(name) else name
