"""The documented rules and limits of the service for fields are checked.

A rule concerns one field, or fields that exclude or require each other.
"""

from __future__ import annotations

import copy
import re
from pathlib import Path
from typing import Any

import pytest

from reconciler.core.canonical import walk_rules
from reconciler.core.schema import format_field
from reconciler.errors import ManifestInvalid
from reconciler.manifest.files import stack_of
from reconciler.manifest.load import load
from reconciler.manifest.yaml import read

ALGORITHM = {"code_dir": "/b/c/", "boot_file": "/b/c/t.py", "engine": {"engine_id": "pt"}}
JOB = {"algorithm": ALGORITHM, "spec": {"resource": {"flavor_id": "g"}}}
RULES = read(Path(__file__).with_name("field_limits.yaml"), "field_limits.yaml").tree
VOLUMES = [{"nfs": {"nfs_server_path": "h:/x", "local_path": f"/m{n}"}} for n in range(9)]
#: The path of each rule, its message, and a change that violates it.
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
        load(stack_of(manifest, root), environ={})
    except ManifestInvalid as invalid:
        return [one.why for one in invalid.diagnostics]
    return []


def long_text(value: Any) -> Any:
    """Return the value with the text `x*65` expanded to this many characters."""
    if isinstance(value, dict):
        return {name: long_text(member) for name, member in value.items()}
    found = re.fullmatch(r"x\*(\d+)", value) if isinstance(value, str) else None
    return "x" * int(found[1]) if found else value


@pytest.mark.parametrize(
    ("words", "change"), [row[1:] for row in CHECKED], ids=[f"{path}: {words}" for path, words, _ in CHECKED]
)
def test_field_rule_violation_is_refused_with_its_reason(
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
def test_job_within_all_field_rules_is_valid(tmp_path: Path, change: dict[str, Any]) -> None:
    assert problems_of(change, tmp_path) == []


def test_every_tested_field_rule_exists() -> None:
    known = {format_field(path) for path, _ in walk_rules()}
    assert {path for path, _, _ in CHECKED} - known == set()
