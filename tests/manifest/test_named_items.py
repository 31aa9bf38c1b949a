"""The list form of environments, `{name, value, sensitive}`; and names that a list has twice."""

from __future__ import annotations

from tests.manifest.conftest import HEAD, JOB, Place, marked


def with_algorithm(text: str) -> str:
    return JOB.replace("engine:", f"{text}, engine:")


def test_value_too_long_is_told_at_the_value_of_its_item(place: Place) -> None:
    place.write(f"{HEAD}defaults: {{algorithm: {{environments: [{{name: A, value: '${{var.v}}'}}]}}}}\n"
                f"variables: {{v: {{default: {'x' * 4097}}}}}\njobs:\n  a:{JOB}")  # fmt: skip
    problem = place.problem()
    assert marked(problem) == "'${var.v}'"
    assert "4096" in problem.why
