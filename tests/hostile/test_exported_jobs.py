"""Jobs with any value anywhere: exported so that they can be read back, or skipped by name."""

from __future__ import annotations

import copy
import random
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from reconciler.core.observed import ObservedJob
from reconciler.core.stack import Target
from reconciler.manifest.export import export_stack
from reconciler.manifest.files import stack_of
from reconciler.manifest.format import format_text
from reconciler.manifest.load import load
from reconciler.manifest.yaml import parse
from tests.core.fields import FIELDS, FORMS, declared, is_accepted, reported
from tests.hostile.sizes import RecordProperty, count_tried, size

SERVICE = Target(kind="modelarts", endpoint="https://service", project_id="p")
Steps = tuple[str | int, ...]
ODD: tuple[Any, ...] = (
    None, "", [], {}, 0, -1, 1e400, 10**40, float("nan"), True, "x", ["a"], [[]], [None], [{"a": 1}, "b"],
    {"name": "x"}, {"name": None}, [{"name": 1}], {"a": {"b": [1]}}, "\ud800", "\x00", "${x}", "$${",
    "a" * 2000, "\x1b[31m", "##[error]", "1.10", "<<", {"<<": 1}, {"\ud800": 1},
)  # fmt: skip


def _steps(tree: Any, above: Steps = ()) -> Iterator[Steps]:
    for step, value in tree.items() if isinstance(tree, dict) else enumerate(tree):
        yield (*above, step)
        if isinstance(value, dict | list):
            yield from _steps(value, (*above, step))


def _spoil(job: ObservedJob, chance: random.Random) -> ObservedJob:
    body: dict[str, Any] = dict(copy.deepcopy(job.body))
    for _ in range(chance.randint(1, 3)):
        *above, last = chance.choice([steps for steps in _steps(body) if steps[0] != "status"])
        place: Any = body
        for step in above:
            place = place[step]
        name = "new" if isinstance(last, str) and chance.random() < 0.1 else last
        place[name] = copy.deepcopy(chance.choice(ODD))
    return replace(job, body=body)


@pytest.mark.parametrize("form", FORMS)
def test_job_with_odd_values_is_exported_or_skipped(form: str, record_property: RecordProperty) -> None:
    chance, tried = random.Random(f"exported {form}"), size(100)
    made = [declared(field.base, {field: field.value}) for field in FIELDS]
    there = [reported(job, form) for job in made if is_accepted(job)]
    for _ in range(tried):
        job = _spoil(chance.choice(there), chance)
        stack = export_stack("vision", "prod", SERVICE, [job])
        assert len(stack.entries) + len(stack.skipped) == 1
        text = stack.text(["head"])
        document = parse(text.encode(), Path("jobs.yaml"), "jobs.yaml")
        assert not document.problems
        assert format_text(text, "jobs.yaml") == text
        load(stack_of(document.tree, Path()), environ=stack.variables.value_by_name)
    count_tried(record_property, "jobs with unusual values, exported", tried)
