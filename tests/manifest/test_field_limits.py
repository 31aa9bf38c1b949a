"""Every rule and limit that the service's documents have for a field is checked, or it is said why not.

A rule is that of one field, or of fields that exclude or demand each other.
"""

# ruff: noqa: E501 - a reason is a line where it can be one

from __future__ import annotations

import copy
import re
from pathlib import Path
from typing import Any

import pytest

from reconciler.core.canonical import walk_rules
from reconciler.core.schema import format_field
from reconciler.errors import ManifestInvalid
from reconciler.manifest.load import load_mapping
from reconciler.manifest.yaml import read

ALGORITHM = {"code_dir": "/b/c/", "boot_file": "/b/c/t.py", "engine": {"engine_id": "pt"}}
JOB = {"algorithm": ALGORITHM, "spec": {"resource": {"flavor_id": "g"}}}
RULES = read(Path(__file__).with_name("field_limits.yaml"), "field_limits.yaml").tree
VOLUMES = [{"nfs": {"nfs_server_path": "h:/x", "local_path": f"/m{n}"}} for n in range(9)]
#: The path of each rule, what is said, and the change that breaks it.
CHECKED: list[tuple[str, str, dict[str, Any]]] = [
    *(
        (path, words, change)
        for path, rules in RULES.items()
        for one in rules
        for words, change in one.items()
    ),
    (
        "algorithm.environments",
        "at most 100 items",
        {"algorithm.environments": {f"A{n}": 1 for n in range(101)}},
    ),
    ("spec.volumes", "must have at most 8 items", {"spec.volumes": VOLUMES}),
]

#: What nobody can check without the service, or what the documents leave open.
NOT_CHECKED = {
    "algorithm.autosearch_config_path": "for kind autosearch_job: a job of another kind that has it must be exportable",
    "algorithm.autosearch_framework_path": "the same",
    "algorithm.summary.data_sources": "with annotations that show summaries: jobs that have none must be exportable",
    "tasks[].algorithm.inputs": "of OBS only: jobs that read a data set must be exportable",
    "spec.retention": "of kind job only: the same",
    "annotations": "other keys: which ones the service takes is not documented",
    "training_experiment_reference.id": "whether it exists: only the service knows",
    "training_experiment_reference.name": "special characters: which they are is not documented",
    "algorithm.name": "it should be left out, and the service ignores it",
    "algorithm.code_dir": "size, number of files and depth: nobody looks into the directory; beside id it is tolerated",
    "algorithm.boot_file": ".py: in one of the guides only; shell scripts are started too",
    "algorithm.engine": "beside id: the service tolerates it",
    "algorithm.engine.engine_id": "whether it exists: `plan` asks the catalogue of the service",
    "algorithm.engine.image_url": "its form: a full address with a registry is taken too",
    "algorithm.inputs[].name": "whether the algorithm has it: only the service knows",
    "algorithm.outputs[].name": "whether the algorithm has it: only the service knows",
    "algorithm.inputs[].remote.dataset.dataset_proportion": "for fine-tune jobs, whose rules are not documented",
    "algorithm.working_dir": "which ones are refused (2859) is not documented",
    "algorithm.environments": "references with $: they are sent as they stand; names of 8192: YAML ends at 1024",
    "tasks[].algorithm.engine.run_user": "for custom images only: elsewhere it has no effect",
    "spec.resource.flavor_id": "which ones a pool takes: only the service knows",
    "spec.resource.node_count": "the maximum of the flavor: only the service knows",
    "spec.resource.pool_id": "whether it exists and runs: only the service knows",
    "spec.runtime_type": "debug on a dedicated pool: one source of several",
    "spec.volumes": "on dedicated pools: one source of several",
    "spec.volumes[].nfs.local_path": "default directories of the platform: which they are is not documented",
    "spec.auto_stop.duration": "1 to 72: what the console offers; the call takes more",
    "spec.schedule_policy": "on dedicated pools: one source of several; the emulator takes it anywhere",
    "spec.schedule_policy.priority": "3 needs a permission: only the service knows",
    "spec.schedule_policy.required_affinity.affinity_group_size": "the step of the supernode: only the service knows",
    "spec.notification.topic_urn": "whether it is the URN of a topic: only the service knows",
    "spec.asset_id": "for fine-tune jobs, whose rules are not documented",
    "ftjob_config": "for fine-tune jobs, whose rules are not documented",
}


def problems_of(change: dict[str, Any], root: Path) -> list[str]:
    """Why a job with the change is invalid."""
    job = copy.deepcopy(change.get("job", JOB))
    for path, value in change.items() if "job" not in change else ():
        *above, last = path.split(".")
        place = job
        for step in above:
            place = place.setdefault(step, {})
        place[last] = long_text(value)
    manifest = {"stack": "vision", "targets": {"local": {"kind": "local"}}, "jobs": {"a": job}}
    try:
        load_mapping(manifest, root, environ={})
    except ManifestInvalid as invalid:
        return [one.why for one in invalid.diagnostics]
    return []


def long_text(value: Any) -> Any:
    """The value with a text of so many characters for `x*65`."""
    if isinstance(value, dict):
        return {name: long_text(member) for name, member in value.items()}
    found = re.fullmatch(r"x\*(\d+)", value) if isinstance(value, str) else None
    return "x" * int(found[1]) if found else value


@pytest.mark.parametrize(
    ("words", "change"), [row[1:] for row in CHECKED], ids=[f"{path}: {words}" for path, words, _ in CHECKED]
)
def test_rule_of_a_field_is_checked_and_its_reason_given(
    tmp_path: Path, words: str, change: dict[str, Any]
) -> None:
    problems = problems_of(change, tmp_path)
    assert any(words in why for why in problems), problems


@pytest.mark.parametrize(
    "change",
    [
        {},
        {
            "kind": "hetero_job",
            "spec": None,
            "algorithm": None,
            "tasks": [{"task_resource": {"node_count": 1}}],
        },
    ],
)
def test_job_that_breaks_no_rule_is_valid(tmp_path: Path, change: dict[str, Any]) -> None:
    assert problems_of(change, tmp_path) == []


def test_every_rule_is_one_of_a_field_that_there_is() -> None:
    known = {format_field(path) for path, _ in walk_rules()}
    assert {path for path, _, _ in CHECKED} - known == set()
    assert NOT_CHECKED.keys() - known == set()
    assert all(NOT_CHECKED.values())
