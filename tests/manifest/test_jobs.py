"""An entry becomes a desired job; what is wrong with it is told where a person would look."""

from __future__ import annotations

from typing import Any

import pytest

from reconciler.core.identity import room_for_description
from tests.manifest.conftest import HEAD, JOB, Place, marked, place_of


def test_description_leaves_room_for_the_marker(place: Place) -> None:
    room = room_for_description("vision", "a")
    assert place.job(f"    description: {'x' * room}{JOB}").description == "x" * room
    place.write(f"{HEAD}jobs:\n  a:\n    description: {'x' * (room + 1)}{JOB}")
    problem = place.problem()
    assert (problem.what, place_of(problem)) == ("description too long", "main.yaml:5:18")
    assert f"it has {room + 1} characters" in problem.why
    assert f"at most {room} are allowed" in problem.why


@pytest.mark.parametrize("member", ["parameters", "inputs", "volumes", "environments", "annotations"])
@pytest.mark.parametrize("value", ["null", "[]", "{}", "[null]", "[{}]", "3", "x", "[[1]]", "{a: {b: 1}}"])
def test_raw_may_be_strange_and_breaks_nothing(place: Place, member: str, value: str) -> None:
    from reconciler.errors import ManifestInvalid

    for raw in (f"{{algorithm: {{{member}: {value}}}}}", f"{{spec: {{{member}: {value}}}}}"):
        place.write(f"{HEAD}jobs:\n  a:{JOB}    raw: {raw}\n")
        try:
            loaded: Any = place.load()
        except ManifestInvalid:
            continue
        assert loaded.stack.jobs["a"].digest


def test_value_of_a_named_item_that_is_too_long_is_told_at_the_value(place: Place) -> None:
    place.write(f"{HEAD}defaults: {{algorithm: {{environments: [{{name: A, value: '${{var.v}}'}}]}}}}\n"
                f"variables: {{v: {{default: {'x' * 4097}}}}}\njobs:\n  a:{JOB}")  # fmt: skip
    problem = place.problem()
    assert marked(problem) == "'${var.v}'"
    assert "4096" in problem.why


@pytest.mark.parametrize(
    ("cron", "why"),
    [("0 " * 200, "must have at most 256 characters"), ("9" * 200 + " 0 1 * *", "is not a valid minute")],
)
def test_long_schedule_is_refused(cron: str, why: str, place: Place) -> None:
    place.write(f'{HEAD}jobs:\n  a:{JOB}    lifecycle: {{schedule: "{cron}"}}\n')
    assert why in place.problem().why
