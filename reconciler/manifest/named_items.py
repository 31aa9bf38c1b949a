"""The items of parameters, inputs, outputs and environments in list form, before they are merged by name."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from pydantic import ValidationError

from reconciler.core.body import is_named_environment
from reconciler.core.fields.algorithm import EnvironmentItem
from reconciler.errors import Diagnostic
from reconciler.manifest.positions import PathStep
from reconciler.manifest.problems import NAMED_LISTS, Origin, Unexpanded, diagnostics, found
from reconciler.manifest.yaml import shorten
from reconciler.secrets import SecretText

_ENVIRONMENTS = "environments"
_ALGORITHM = "algorithm"
_Steps = tuple[PathStep, ...]


def check_items(entry: dict[str, Any], origin: Origin) -> tuple[dict[str, Any], list[Diagnostic]]:
    """Return a part of an entry without wrong items, of which nothing more is to be said, and the problems.

    Wrong are a name that a list has twice, and an item of environments that is no variable. The models see
    only what all parts are together, where an item may have hidden another of its name.
    """
    problems: list[Diagnostic] = []
    result = dict(entry)
    if isinstance(entry.get(_ALGORITHM), dict):
        result[_ALGORITHM] = _checked(entry[_ALGORITHM], origin, (_ALGORITHM,), problems)
    if isinstance(tasks := entry.get("tasks"), list):
        result["tasks"] = [
            {**task, _ALGORITHM: _checked(task[_ALGORITHM], origin, ("tasks", number, _ALGORITHM), problems)}
            if isinstance(task, dict) and isinstance(task.get(_ALGORITHM), dict)
            else task
            for number, task in enumerate(tasks)
        ]
    return (result, problems) if problems else (entry, problems)


def _checked(
    algorithm: dict[str, Any], origin: Origin, steps: _Steps, problems: list[Diagnostic]
) -> dict[str, Any]:
    result = dict(algorithm)
    for kind in (*NAMED_LISTS, _ENVIRONMENTS):
        if isinstance(items := algorithm.get(kind), list):
            result[kind] = _right_items(kind, items, origin, (*steps, kind), problems)
    if isinstance(config := algorithm.get("job_config"), dict):
        result["job_config"] = _checked(config, origin, (*steps, "job_config"), problems)
    return result


def _right_items(
    kind: str, items: list[Any], origin: Origin, steps: _Steps, problems: list[Diagnostic]
) -> list[Any]:
    right: list[Any] = []
    first: dict[str, _Steps] = {}
    for number, item in enumerate(items):
        wrong = [] if kind != _ENVIRONMENTS else list(_variable_problems(item, origin, (*steps, number)))
        for name, place in () if wrong else _names(kind, item, (*steps, number)):
            if (earlier := first.setdefault(name, place)) is not place:
                there = origin.diagnose(earlier, "", at_key=earlier[-1] != "name").location
                why = f'the name "{shorten(name)}" is used twice, first at {there}'
                wrong.append(
                    origin.diagnose(
                        place, "duplicate name", why, "remove one of them", at_key=place[-1] != "name"
                    )
                )
        problems += wrong
        if not wrong and not isinstance(item, Unexpanded):
            right.append(item)
    return right


def _names(kind: str, item: Any, steps: _Steps) -> Iterator[tuple[str, _Steps]]:
    """The names that an item gives, each with where it stands; of one without a value nothing is known."""
    if not isinstance(item, Mapping):
        return
    if kind != _ENVIRONMENTS or is_named_environment(item):
        if isinstance(name := item.get("name"), str) and not isinstance(name, SecretText | Unexpanded):
            yield name, (*steps, "name")
    else:
        for name in item:
            yield name, (*steps, name)


def _variable_problems(item: Any, origin: Origin, steps: _Steps) -> Iterator[Diagnostic]:
    if isinstance(item, Unexpanded):
        return
    if not isinstance(item, dict):
        yield origin.diagnose(steps, "wrong type", f"expected a mapping, got {found(item)}")
    elif is_named_environment(item):
        if isinstance(name := item["name"], SecretText):
            why = f"{name.reference} is sensitive, but this field is shown and compared"
            yield origin.diagnose((*steps, "name"), "secret not allowed here", why)
            return
        try:
            EnvironmentItem.model_validate(item)
        except ValidationError as error:
            below = Origin(tuple((document, (*prefix, *steps)) for document, prefix in origin.places))
            yield from diagnostics(error, EnvironmentItem, item, below)
