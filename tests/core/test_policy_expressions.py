"""docs/policies.md, "Expressions": what compiles, what it says of a job, and what nobody may ask for."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

import pytest

from reconciler.core.policies import expression as module
from reconciler.core.policies.expression import (
    Expression,
    ExpressionValues,
    InvalidExpression,
    NotJudged,
    fields_in,
)

VALUES: dict[str, Any] = {
    "job": {
        "key": "train",
        "description": "",
        "spec": {"resource": {"flavor_id": "gpu", "node_count": 9}},
        "algorithm": {"parameters": [{"name": "lr", "value": "0.1"}], "code_dir": "obs://b/code/"},
        "lifecycle": {"retry_delay": "120s"},
    },
    "action": {"kind": "create", "node_hours": None, "cost": 12.5, "lost_node_hours": 0.0},
    "stack": "vision",
    "target": {"name": "prod"},
}


def holds(text: str, values: dict[str, Any] = VALUES) -> bool:
    return Expression(text).holds(ExpressionValues(values))


@pytest.mark.parametrize(
    ("text", "verdict"),
    [
        ("job.spec.resource.node_count > 8", True),
        ("job.spec.resource.node_count > 8.5", True),
        ("job.spec.resource.node_count > 9", False),
        ('!(job.spec.resource.flavor_id in ["cpu", "gpu"])', False),
        ('job.description == ""', True),
        ("size(job.key) == 5", True),
        ("has(job.spec.auto_stop)", False),
        ("has(job.spec.auto_stop) && job.spec.auto_stop.duration > 3", False),
        ("action.node_hours == null || action.node_hours > 500", True),
        ("action.cost > 12", True),
        ('action.kind == "replace" && action.lost_node_hours > 24', False),
        ('job.algorithm.parameters.exists(p, p.name == "lr" && double(p.value) > 0.05)', True),
        ('job.algorithm.code_dir.startsWith("obs://b/")', True),
        ('job.key.matches("^tr.*n$")', True),
        ('duration(job.lifecycle.retry_delay) < duration("1h")', True),
        ('stack == "vision" && target.name == "prod"', True),
        ('"all(x, all(y, all(z, 1)))" == job.key', False),
        ("true // job.a.all(x, job.b.all(y, job.c.all(z, true)))", True),
    ],
)
def test_expression_is_evaluated_to_true_or_false(text: str, verdict: bool) -> None:
    assert holds(text) is verdict


@pytest.mark.parametrize(
    ("text", "why", "missing"),
    [
        ("job.spec.auto_stop.duration > 3", 'there is no field "auto_stop"', "auto_stop"),
        ("action.node_hours > 500", "it compares or joins values of different types, or null", None),
        ('job.key + 1 == ""', "it compares or joins values of different types, or null", None),
        ("1 / 0 == 1", "it divides by zero", None),
        ("job.algorithm.parameters[3].name == ''", "index out of bounds: 3", None),
        ("job.key.nonsense()", '"nonsense" is not known, or not for a value of this type', None),
        ("job.key", "its value is text, not true or false", None),
        ("job.spec.resource.node_count", "its value is a number, not true or false", None),
        ("action.node_hours", "its value is null, not true or false", None),
        ("job.algorithm.parameters", "its value is a list, not true or false", None),
        ("job.spec", "its value is a mapping, not true or false", None),
        ('duration("1h")', "its value is something else, not true or false", None),
        ('job.key.matches("(")', "Function 'matches' error: '(' not a valid regex", None),
    ],
)
def test_expression_that_fails_on_a_job_says_why(text: str, why: str, missing: str | None) -> None:
    with pytest.raises(NotJudged) as caught:
        holds(text)
    assert (str(caught.value), caught.value.missing) == (why, missing)


@pytest.mark.parametrize(
    ("text", "place", "why"),
    [
        ("", (1, 1), "unexpected end"),
        ("1 +", (1, 4), "unexpected end"),
        ("true\n && &&", (2, 5), "unexpected '&&'"),
        ("job.key == 'a' 'b'", (1, 16), "unexpected"),
        ("((true)", (1, 8), "missing ')' at the end"),
        ("'日本' == @", (1, 9), "token recognition error at: '@'"),
        ("jbo.key == 'a'", (1, 1), '"jbo" is not one of job, action, stack, target'),
        ("job.key == 'a' &&\n  foo", (2, 3), '"foo" is not one of job, action, stack, target'),
        ("job.key == 'ERROR: <input>:9:9: x", (1, 12), None),
        ("now() > timestamp('2026-01-01T00:00:00Z') || p", (1, 46), '"p" is not one of'),
    ],
)
def test_expression_that_does_not_compile_says_where(
    text: str, place: tuple[int, int], why: str | None
) -> None:
    with pytest.raises(InvalidExpression) as caught:
        Expression(text)
    assert (caught.value.line, caught.value.column) == place
    if why is not None:
        assert caught.value.why.startswith(why)


def test_macro_variable_is_a_known_name() -> None:
    assert holds("job.algorithm.parameters.all(job2, job2.name != 'x')")


# ── what is bounded ────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("x" * 2001, "2,001 characters; at most 2,000 are allowed"),
        ("job.l.all(a, job.l.all(b, job.l.all(c, true)))", "3 macros nested in each other"),
        ("job.l.map(a, a).map(a, a).map(a, a) == []", "3 uses of map"),
        (" && ".join(["job.l.all(a, true)"] * 21), "21 macros"),
        ("+".join(["1"] * 52) + " > 0", "51 uses of +"),
        ("job.l.all(a, job.l . \n all // no\n (b, job.l.exists_one(c, true)))", "3 macros nested"),
    ],
)
def test_expression_over_a_limit_is_refused(text: str, why: str) -> None:
    with pytest.raises(InvalidExpression, match=why.replace("+", r"\+")):
        Expression(text)


@pytest.mark.parametrize(
    "text", ["(" * 999 + "1" + ")" * 999, "[" * 990 + "]" * 990, "true?false:" * 180 + "true"]
)
def test_deeply_nested_expression_is_invalid(text: str) -> None:
    with pytest.raises(InvalidExpression):
        Expression(text)


@pytest.mark.parametrize(
    "text",
    ["!" * 1996 + "true", "-" * 1990 + "1 == 1", "||".join(["false"] * 280), "job" + ".a" * 990 + " == 1"],
)
def test_longest_expression_is_evaluated_or_not_judged(text: str) -> None:
    assert len(text) <= module.MOST_CHARACTERS
    expression = Expression(text)
    with suppress(NotJudged):
        expression.holds(ExpressionValues(VALUES))


def test_nested_loops_over_a_long_list_are_not_run() -> None:
    values = {**VALUES, "job": {"l": list(range(module.MOST_MEMBERS + 1))}}
    with pytest.raises(NotJudged, match="the job has a list of 201 items; nested macros take 200"):
        holds("job.l.all(a, job.l.all(b, true))", values)
    assert holds("job.l.all(a, a < 1000)", values)


def test_expressions_at_their_limits_are_evaluated_in_bounded_time() -> None:
    """Without the bounds such expressions run for hours, or out of memory."""
    values = {**VALUES, "job": {"l": list(range(module.MOST_MEMBERS)), "text": "x" * 10_000}}
    assert holds(" && ".join(["job.l.all(a, job.l.all(b, !(b in [-1])))"] * 10), values)
    sums = "+".join(["t"] * 26)
    assert holds(f"[job.text].map(t, {sums}).map(t, {sums}).size() == 1", values)


@pytest.mark.parametrize("value", [10**30, -(10**30), 1e308, "\ufffd", "x" * 100_000, True, None])
def test_expression_on_an_odd_job_value_is_false(value: Any) -> None:
    assert not holds("job.x == 'other'", {**VALUES, "job": {"x": value}})


@pytest.mark.parametrize(
    ("text", "fields"),
    [
        ("job.spec.resource.node_count > 8", ("job.spec.resource.node_count",)),
        ("job.key == stack || job.key == target.name", ("job.key", "stack", "target.name")),
        ('job.description.startsWith("x")', ("job.description",)),
        ('job.algorithm.parameters.exists(p, p.name == "job.key")', ("job.algorithm.parameters",)),
        ("has(job.spec.volumes)", ("job.spec.volumes",)),
        ('job["spec"].resource == null', ("job",)),
        ("true", ()),
        ("// job.key\naction.cost > 1.0", ("action.cost",)),
    ],
)
def test_fields_that_an_expression_names(text: str, fields: tuple[str, ...]) -> None:
    assert fields_in(text) == fields
