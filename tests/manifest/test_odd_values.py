"""Values that no service, store or JSON parser can represent: refused with their location."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.each import each
from tests.manifest.conftest import HEAD, JOB, Place, marked

HUGE = "9" * 400
NO_NUMBERS = [".inf", "-.inf", "+.Inf", ".nan", ".NaN", "1e400", "-1e999", HUGE, f"-{HUGE}", str(2**64)]


def body_with(line: str) -> str:
    return f"{JOB}    {line}\n"


@pytest.mark.parametrize("number", NO_NUMBERS)
def test_non_json_number_is_refused_in_raw(place: Place, number: str) -> None:
    raws = (
        *("{x: %s}", "{x: {y: [1, {z: %s}]}}", "{metadata: {x: %s}}"),
        *("{algorithm: {inputs: {a: {x: %s}}}}", "{spec: {x: [%s]}}", "{x: '${var.v}'}"),
    )
    jobs = "".join(f"  j{n}:{body_with(f'raw: {raw}'.replace('%s', number))}" for n, raw in enumerate(raws))
    place.write(f"{HEAD}variables: {{v: {{default: {number}}}}}\njobs:\n{jobs}")
    problems = place.problems()
    assert [problem.path.partition(".raw")[0] for problem in problems] == [f"jobs.j{n}" for n in range(6)]
    for problem, raw in zip(problems, raws, strict=True):
        assert problem.what == "number out of range"
        assert "var" in raw or number.startswith(marked(problem).rstrip("…"))
        assert number[:50] in (problem.fix or "")


@pytest.mark.parametrize("number", [str(-(2**63)), str(2**64 - 1), "1e308", "-0.0", "5e-324"])
def test_json_number_is_accepted_in_raw(place: Place, number: str) -> None:
    job = place.job(body_with(f"raw: {{x: {number}}}"))
    assert job.body is not None
    assert job.body["x"] == json.loads(number)


@pytest.mark.parametrize("number", NO_NUMBERS)
@pytest.mark.parametrize(
    "line",
    [
        "spec: {resource: {flavor_id: gpu, node_count: %s}}",
        "spec: {resource: {flavor_id: gpu}, schedule_policy: {priority: %s}}",
        "spec: {resource: {flavor_id: gpu}, auto_stop: {time_unit: HOURS, duration: %s}}",
        "spec: {resource: {flavor_detail: {x: %s}}}",
    ],
)
def test_non_json_number_is_refused_in_any_field(place: Place, line: str, number: str) -> None:
    lines = (
        JOB.replace("    spec: {resource: {flavor_id: gpu, node_count: 1}}\n", "") if "spec" in line else JOB
    )
    place.write(f"{HEAD}jobs:\n  a:{lines}    {line % number}\n")
    marks = [marked(problem).rstrip("…") for problem in place.problems()]
    assert any(number.startswith(mark) or mark == "flavor_detail" for mark in marks)


@pytest.mark.parametrize("number", NO_NUMBERS[:-1])
def test_infinite_number_is_refused_in_settings(place: Place, number: str) -> None:
    limits = ("terminations", "reruns", "terminations_percent", "lost_time", "lost_node_hours")
    text = ", ".join(f"{name}: {number}" for name in limits)
    lifecycle = f"lifecycle: {{max_retries: {number}, retry_delay: {number}}}"
    place.write(f"{HEAD}limits: {{{text}}}\njobs:\n  a:{body_with(lifecycle)}")
    assert {problem.path for problem in place.problems()} == {
        *(f"limits.{name}" for name in limits),
        *("jobs.a.lifecycle.max_retries", "jobs.a.lifecycle.retry_delay"),
    }


@pytest.mark.parametrize("number", NO_NUMBERS)
def test_number_in_a_text_field_keeps_its_spelling(place: Place, number: str) -> None:
    line = f"engine: {{engine_id: pt}}, parameters: {{p: {number}}}, environments: {{E: {number}}}"
    job = place.job(f"{JOB.replace('engine: {engine_id: pt}', line)}    lifecycle: {{rerun: {number}}}\n")
    assert job.body is not None
    assert job.body["algorithm"]["parameters"] == [{"name": "p", "value": number}]
    assert job.body["algorithm"]["environments"] == {"E": number}
    assert job.lifecycle.rerun == number


@pytest.mark.parametrize("duration", ["99999999999d", f"{HUGE}s", "1" * 30 + "h"])
def test_duration_beyond_a_century_is_refused(place: Place, duration: str) -> None:
    place.write(f"{HEAD}limits: {{lost_time: {duration}}}\n")
    assert "at most 1000 years" in place.problem().why


# ── NUL, and halves of characters ──────────────────────────────────────────────────────────────────

PLACES = [
    'stack: "{}"',
    'target: "{}"',
    'records: "sqlite:///{}"',
    'records: "postgresql://{}@h/d"',
    'targets: {{t: {{kind: modelarts, endpoint: "https://{}"}}}}',
    'targets: {{t: {{kind: modelarts, region: r, profile: "{}"}}}}',
    'variables: {{v: {{default: "{}"}}}}',
    'variables: {{v: {{env: "{}"}}}}',
    'variables: {{"{}": {{default: 1}}}}',
    'limits: {{lost_time: "{}"}}',
    'defaults: {{description: "{}"}}',
    'jobs: {{"{}": {{}}}}',
    'jobs: {{a: {{description: "{}"}}}}',
    'jobs: {{a: {{state: absent, needs: ["{}"], formerly: "{}"}}}}',
    'jobs: {{a: {{raw: {{"{}": 1}}}}}}',
    'jobs: {{a: {{raw: {{x: ["{}"]}}}}}}',
    'jobs: {{a: {{algorithm: {{environments: {{"{}": "{}"}}}}}}}}',
    'jobs: {{a: {{algorithm: {{code_dir: "obs://b/{}/"}}}}}}',
    '"{}": 1',
]


@pytest.mark.parametrize("text", PLACES)
@each(
    ("escape", "what"),
    [
        (r"a\0b", "character not allowed"),
        (r"\ud800", "invalid YAML"),
        ("\ufffe", "invalid YAML"),
    ],
)
def test_unstorable_character_is_refused_everywhere(place: Place, text: str, escape: str, what: str) -> None:
    line = text.format(escape, escape)
    if not line.startswith("stack"):
        place.write(HEAD if "target" not in line else "stack: s\n")
    place.write(line + "\n", "x.yaml")
    problems = place.problems()
    assert {problem.what for problem in problems} == {what}
    assert all(problem.location is not None for problem in problems)


def test_each_text_with_nul_is_reported(place: Place) -> None:
    place.write('stack: "\\0"\njobs: {"a\\0": {description: "\\0"}}\n')
    assert [problem.what for problem in place.problems()] == ["character not allowed"] * 3


def test_backslash_before_a_zero_is_no_nul(place: Place) -> None:
    place.write(f"{HEAD}variables: {{a: {{default: \"\\\\0\"}}, b: {{default: '\\0'}}}}\n")
    place.load()


@pytest.mark.parametrize(
    ("more", "given"),
    [
        ("", {"environ": {"X": "a\udcff"}}),
        ("variables: {v: {env: X}}\n", {"environ": {"X": "a\udcff"}}),
        ("variables: {v: {env: X, sensitive: true}}\n", {"environ": {"X": "a\udcff"}}),
        ("variables: {v: {}}\n", {"variables": {"v": "a\udcff"}}),
    ],
)
def test_invalid_utf8_from_the_environment_is_refused(place: Place, more: str, given: dict[str, Any]) -> None:
    expression = "${var.v}" if more else "${env.X}"
    place.write(f"{HEAD}{more}jobs:\n  a:{JOB}    description: '{expression}'\n")
    problem = place.problem(**given)
    assert problem.what == "invalid text"
    assert "not valid UTF-8" in problem.why
    assert marked(problem) == ("v" if more else expression)
