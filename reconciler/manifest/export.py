"""The files that `reconciler init` and `export` write: a first manifest, or one of existing jobs."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain, count
from pathlib import Path
from typing import Any, NamedTuple

from reconciler.core.code import place_of
from reconciler.core.entry import (
    IsSecret,
    ManifestEntry,
    NotDeclarable,
    SecretVariables,
    job_key,
    legal_key,
    manifest_entry,
)
from reconciler.core.identity import MAX_KEY, parse_remote_name, stack_problem
from reconciler.core.observed import ObservedJob
from reconciler.core.scalar import save
from reconciler.core.stack import Target
from reconciler.decide.actions import adopt_command
from reconciler.errors import ManifestInvalid
from reconciler.manifest.files import stack_of
from reconciler.manifest.format import indented, yaml_lines, yaml_text
from reconciler.manifest.load import load
from reconciler.manifest.merge import API_VERSION
from reconciler.secrets import is_distinctive
from reconciler.text import printable

MANIFEST_FILE = "jobs.yaml"
PROGRAM_FILE = str(Path("src", "train.py"))
WORKFLOW_FILE = ".github/workflows/reconciler.yml"
IGNORE_FILE = ".gitignore"

_MANIFEST = """\
# The training jobs of one team or project. Check this file with `reconciler validate`, preview changes
# with `reconciler plan`, and make them with `reconciler apply`.
apiVersion: reconciler/v1
stack: {stack}{space}# the owner of the jobs; two stacks never touch each other's jobs
target: laptop            # the default; `--target prod` chooses another
include: ["*.yaml", "jobs/**/*.yaml"]   # which files are manifests

targets:
  laptop: {{kind: process}} # jobs are processes of this machine; all they write is in .reconciler/
  local: {{kind: local}}    # an embedded emulator: its jobs are pretended
  prod:                   # planned and applied by the workflow in .github/workflows
    kind: modelarts
    region: cn-north-4      # or endpoint: https://modelarts.eu-de.otc.t-systems.com
    project_id: ${{env.HUAWEICLOUD_SDK_PROJECT_ID}}
    code_store: obs://${{var.bucket}}/code/   # where the code of the jobs is uploaded

variables:
  bucket: {{default: my-bucket, description: where code and models are}}

defaults:                 # merged under every job
  spec:
    resource: {{flavor_id: modelarts.vm.cpu.2u, node_count: 1}}

jobs:
  hello:                  # the key; the job on the target has this name
    description: a first training job
    code: {{source: src}}   # an edit of it is an edit of the job
    algorithm:
      boot_file: train.py
      engine: {{engine_id: pytorch_1.8.0-cuda_10.2-py_3.7-ubuntu_18.04-x86_64}}
      parameters: {{epochs: 100, lr: 0.1}}  # train.py --epochs=100 --lr=0.1
      outputs: {{train_url: "obs://${{var.bucket}}/hello/r${{job.revision}}/"}}
    lifecycle:
      on_change: replace    # an edit replaces a running job; keep leaves it running
      on_failure: keep      # retry starts a failed job again
"""

_PROGRAM = '''\
"""A first training: it fits a line to noisy points. Put your own in its place."""

import argparse
import json
import random
from pathlib import Path

arguments = argparse.ArgumentParser()
arguments.add_argument("--epochs", type=int, default=100)
arguments.add_argument("--lr", type=float, default=0.1)
arguments.add_argument("--train_url", default=".", help="the directory of the model")
args = arguments.parse_args()

random.seed(1)
points = [(x / 50, 2 * x / 50 + 1 + random.gauss(0, 0.1)) for x in range(-50, 51)]
slope = offset = 0.0
for epoch in range(1, args.epochs + 1):
    errors = [(x, slope * x + offset - y) for x, y in points]
    slope -= args.lr * sum(error * x for x, error in errors) / len(points)
    offset -= args.lr * sum(error for _, error in errors) / len(points)
    loss = sum(error**2 for _, error in errors) / len(points)
    if epoch % (args.epochs // 10 or 1) == 0:
        print(f"epoch {epoch:3}  loss {loss:.4f}")

model = {"slope": slope, "offset": offset}
Path(args.train_url, "model.json").write_text(json.dumps(model))
'''

_IGNORE = """\
# Records, lock and the jobs of local targets: they belong to this checkout.
.reconciler/
# Saved plans, which may contain more than the manifest, and their reports.
*.plan.json
/plan.md
/drift.md
/drift.xml
"""


def starting_files(directory: str) -> Mapping[str, str]:
    """Return the content of the first files by their name; the stack is named after the `directory`."""
    stack = stack_name(directory)
    manifest = _MANIFEST.format(stack=stack, space=" " * max(1, 19 - len(stack)))
    workflow = (Path(__file__).parent / "workflow.yml").read_text(encoding="utf-8")
    return {MANIFEST_FILE: manifest, PROGRAM_FILE: _PROGRAM, WORKFLOW_FILE: workflow, IGNORE_FILE: _IGNORE}


def head_of_export(target: str) -> tuple[str, ...]:
    """Return the lines of the first comment in a manifest of existing jobs."""
    return (
        f"The training jobs that exist on target {target}. Check this file with `reconciler validate`, and",
        "make each a job of this stack with `reconciler adopt KEY JOB_ID`: nothing restarts. Until then its",
        "key is in conflict with it, as `reconciler plan` shows, and nothing is done to it. From then on",
        "`reconciler plan` shows what an edit of this file would do, and `reconciler apply` does it.",
        "`reconciler explain fields` lists all fields, and what changing each of them means.",
    )


def stack_name(directory: str) -> str:
    """Convert the name of a directory to a valid stack name."""
    name = re.sub(r"[^a-z0-9]+", "-", directory.lower()).strip("-")[:32].strip("-")
    return "training" if stack_problem(name) else name


Tree = dict[str, Any]
Learn = Callable[[Iterable[str]], None]
#: The fields of a target that say where it is; the others are choices.
_ADDRESS = ("kind", "region", "endpoint", "project_id", "workspace_id", "cloud", "profile", "insecure")


class SkippedJob(NamedTuple):
    """A job that cannot be declared in a manifest, and why."""

    job: ObservedJob
    why: str


@dataclass(frozen=True)
class ExportedStack:
    """Jobs as the entries of a stack on a target.

    `variables` replace the secrets of the jobs, whose values are not written.
    """

    name: str
    target_name: str
    target: Target
    entries: tuple[ManifestEntry, ...] = ()
    skipped: tuple[SkippedJob, ...] = ()
    variables: SecretVariables = field(default_factory=SecretVariables)

    @property
    def unreported(self) -> tuple[str, ...]:
        """The fields that the service does not report for at least one job."""
        return tuple(dict.fromkeys(path for entry in self.entries for path in entry.unreported))

    @property
    def unmatched(self) -> tuple[ManifestEntry, ...]:
        """The entries whose job does not have the name of their key, so that there is no conflict."""
        return tuple(entry for entry in self.entries if parse_remote_name(entry.job.name).key != entry.key)

    def text(self, head: Sequence[str]) -> str:
        """Return the manifest in the layout of `fmt`. `head` are the lines of its first comment."""
        written = self._written()
        sections = [yaml_text(self._frame())]
        if declarations := self.variables.declarations(written.values()):
            comment = "# Secrets of the jobs are not in this file: set these environment variables.\n"
            sections.append(comment + yaml_text({"variables": declarations}))
        sections.append("".join(f"{line}\n" for line in self._jobs(written)))
        return "".join(f"# {printable(line)}\n" for line in head) + "\n".join(sections)

    def _frame(self) -> Tree:
        given = self.target.model_dump(mode="json", include=set(_ADDRESS), exclude_defaults=True)
        place = {name: given[name] for name in _ADDRESS if name in given}
        return {
            "apiVersion": API_VERSION,
            "stack": self.name,
            "target": self.target_name,
            "targets": {self.target_name: save(place)},
        }

    def _jobs(self, written: Mapping[str, Tree]) -> Iterator[str]:
        if not self.entries:
            yield "jobs: {}"
            return
        yield "jobs:"
        for number, entry in enumerate(self.entries):
            if number:
                yield ""
            job = entry.job
            named = "" if job.name == entry.key else f", named {printable(job.name)}"
            yield f"  # job {printable(job.id)}{named}"
            if entry in self.unmatched:
                command = printable(adopt_command(entry.key, job.id))
                yield f"  # that name is not one of the key, so apply would create it; first: {command}"
            if place_of(entry.tree):
                name = printable(str(entry.tree["algorithm"]["code_dir"]).rstrip("/").rpartition("/")[2])
                yield f"  # its code was uploaded from a directory {name}; if you have it, declare it with"
                yield "  # code: {source: DIRECTORY} instead of code_dir, and boot_file relative to it"
            yield from indented(yaml_lines({entry.key: written[entry.key]}))

    def mapping(self) -> Tree:
        """Return the manifest as data."""
        written = self._written()
        variables = self.variables.declarations(written.values())
        return {**self._frame(), "variables": variables, "jobs": written}

    def _written(self) -> dict[str, Tree]:
        return {entry.key: entry.written() for entry in self.entries}


def export_stack(
    name: str,
    target_name: str,
    target: Target,
    jobs: Sequence[ObservedJob],
    *,
    is_secret: IsSecret = lambda _: False,
    add_secrets: Learn = lambda _: None,
) -> ExportedStack:
    """Return the stack that declares the jobs, sorted by key.

    `is_secret` tells whether a text contains a known secret. `add_secrets` is called with the secrets that
    were found in the jobs, before all texts are searched for them.
    """
    stack = ExportedStack(name, target_name, target)
    variables, key_by_job = stack.variables, unique_keys(jobs)
    ordered = sorted(jobs, key=lambda job: key_by_job[job.id])

    def entry(job: ObservedJob) -> ManifestEntry | SkippedJob:
        key = key_by_job[job.id]
        try:
            return manifest_entry(job, stack=name, key=key, variables=variables, is_secret=is_secret)
        except NotDeclarable as problem:
            return SkippedJob(job, problem.why)

    # Twice, since a job may contain the secret of another one.
    for _ in range(2):
        results = [entry(job) for job in ordered]
        add_secrets(filter(is_distinctive, variables.value_by_name.values()))
    entries = tuple(result for result in results if isinstance(result, ManifestEntry))
    skipped = tuple(result for result in results if isinstance(result, SkippedJob))
    return _without_invalid(replace(stack, entries=entries, skipped=skipped))


def _without_invalid(stack: ExportedStack) -> ExportedStack:
    """Skip the entries that `load` rejects."""
    if _problem(stack) is None:
        return stack
    kept, skipped = [], list(stack.skipped)
    for entry in stack.entries:
        problem = _problem(replace(stack, entries=(entry,)))
        if problem is None:
            kept.append(entry)
        else:
            skipped.append(SkippedJob(entry.job, problem))
    return replace(stack, entries=tuple(kept), skipped=tuple(skipped))


def _problem(stack: ExportedStack) -> str | None:
    try:
        load(stack_of(stack.mapping(), Path()), environ={}, offline=True)
    except ManifestInvalid as invalid:
        return "; ".join(f"{problem.what}: {problem.why}" for problem in invalid.diagnostics)
    return None


def unique_keys(jobs: Iterable[ObservedJob]) -> dict[str, str]:
    """Return a distinct key for each job, by job id. Of jobs with the same key, the newest keeps it."""
    keys: dict[str, str] = {}
    taken: set[str] = set()
    # Counters are kept, since thousands of names may begin with the same characters.
    numbers_by_key: dict[str, Iterator[int]] = defaultdict(lambda: count(2))
    # Owned jobs first, whose markers have their keys; then the newest revisions.
    for job in sorted(jobs, key=lambda job: (job.marker is None, -_revision(job), job.name, job.id)):
        key = job_key(job)
        by_revision = [] if _revision(job) == 1 else [_numbered(key, f"r{_revision(job)}")]
        numbered = (_numbered(key, number) for number in numbers_by_key[key.casefold()])
        candidates = chain([key, *by_revision], numbered)
        keys[job.id] = free = next(name for name in candidates if name.casefold() not in taken)
        taken.add(free.casefold())
    return keys


def _numbered(key: str, number: object) -> str:
    suffix = f"_{number}"
    return legal_key(key[: MAX_KEY - len(suffix)] + suffix)


def _revision(job: ObservedJob) -> int:
    return job.marker.revision if job.marker else parse_remote_name(job.name).revision
