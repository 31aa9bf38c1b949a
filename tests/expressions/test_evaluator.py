"""docs/reference/policies.md, "Expressions": compilation, evaluation, and limits."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from reconciler.core.policy_expression import Answer, InvalidExpression, NotJudged, Question, fields_in
from reconciler.errors import Interrupted
from reconciler.expressions import evaluator
from reconciler.expressions.evaluator import evaluate, find_invalid
from tests.conftest import FIGURE
from tests.processes import TIME_OF_CHILDREN, Waited, children, children_of, children_ran_s

ROOT = Path(__file__).parents[2]

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


JUDGED = [
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
]
NOT_JUDGED = [
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
]
INVALID = [
    ("", (1, 1), "mismatched input '<EOF>'"),
    ("1 +", (1, 4), "mismatched input '<EOF>'"),
    ("true\n && &&", (2, 5), "mismatched input '&&'"),
    ("job.key == 'a' 'b'", (1, 16), "extraneous input"),
    ("((true)", (1, 8), "missing ')' at '<EOF>'"),
    ("'日本' == @", (1, 9), "token recognition error at: '@'"),
    ("jbo.key == 'a'", (1, 1), '"jbo" is not one of job, action, stack, target'),
    ("job.key == 'a' &&\n  foo", (2, 3), '"foo" is not one of job, action, stack, target'),
    ("job.key == 'ERROR: <input>:9:9: x", (1, 12), None),
    ("job.key == 'jbo' || // jbo\n stack == jbo", (2, 11), '"jbo" is not one of'),
    ("now() > timestamp('2026-01-01T00:00:00Z') || p", (1, 46), '"p" is not one of'),
]


@cache
def answers() -> Mapping[str, Answer]:
    """Evaluate all tables in one process."""
    texts = [*(text for text, _ in JUDGED), *(text for text, *_ in NOT_JUDGED)]
    found = evaluate([Question(text, [0]) for text in texts], [VALUES])
    return {text: one for text, [one] in zip(texts, found, strict=True)}


@cache
def problems() -> Mapping[str, InvalidExpression | None]:
    texts = [text for text, *_ in INVALID]
    return dict(zip(texts, find_invalid(texts), strict=True))


def answer(text: str, values: Mapping[str, Any] = VALUES) -> Answer:
    [[found]] = evaluate([Question(text, [0])], [values])
    return found


@pytest.mark.parametrize(("text", "verdict"), JUDGED)
def test_expression_is_evaluated_to_true_or_false(text: str, verdict: bool) -> None:
    assert answers()[text] is verdict


@pytest.mark.parametrize(("text", "why", "missing"), NOT_JUDGED)
def test_failing_expression_says_why(text: str, why: str, missing: str | None) -> None:
    assert answers()[text] == NotJudged(why, missing)


@pytest.mark.parametrize(("text", "place", "why"), INVALID)
def test_expression_that_does_not_compile_has_a_position(
    text: str, place: tuple[int, int], why: str | None
) -> None:
    problem = problems()[text]
    assert problem is not None
    assert (problem.line, problem.column) == place
    if why is not None:
        assert problem.why.startswith(why)


def test_variable_of_a_macro_and_type_are_known_names() -> None:
    texts = [
        "job.algorithm.parameters.all(job2, job2.name != 'x')",
        "job.algorithm.parameters. // each of them\n all // now\n (\n p, p.name != 'x')",
        "type(job.algorithm.parameters) == list",
    ]
    assert find_invalid(texts) == [None] * 3
    assert evaluate([Question(text, [0]) for text in texts], [VALUES]) == [[True]] * 3


def test_job_with_text_invalid_in_cel_is_not_judged() -> None:
    [[broken, whole]] = evaluate(
        [Question("job.x == 'a'", [0, 1])], [{"job": {"x": "\ud800"}}, {"job": {"x": "a"}}]
    )
    assert isinstance(broken, NotJudged)
    assert whole is True


def test_expression_on_an_odd_job_value_is_false() -> None:
    values = [{"job": {"x": value}} for value in (10**18, 1e308, "\ufffd", "x" * 100_000, True, None)]
    assert evaluate([Question("job.x == 'other'", range(6))], values) == [[False] * 6]


def test_more_values_than_are_sent_at_once_are_answered_in_order() -> None:
    values = [{"job": {"n": number}} for number in range(250)]
    odd, late = evaluate([Question("job.n % 2 == 1", range(250)), Question("job.n == 249", [0, 249])], values)
    assert odd == [number % 2 == 1 for number in range(250)]
    assert late == [False, True]


# ── limits ─────────────────────────────────────────────────────────────────────────────────────────

LONG: Mapping[str, Any] = {"job": {"l": list(range(1000)), "text": "a" * 50_000}}
ENDLESS = "job.l.all(a, job.l.all(b, job.l.all(c, job.l.all(d, a + b + c + d >= 0))))"
#: Each would need hours or gigabytes.
ENDLESS_OR_LARGE = {
    "nested macros": ENDLESS,
    "list that doubles": "[[1]" + ".map(x, [x, x])" * 60 + "].size() == 1",
    "text that doubles": "[job.text]" + ".map(t, t + t + t + t)" * 12 + ".size() == 1",
    "list of lists": "job.l.map(a, job.l.map(b, job.l.map(c, job.text))).size() == 1",
    "regular expression": "job.text.matches('(a*)*(a*)*(a*)*(a*)*(a*)*b')",
    "regular expression for each member": "job.l.all(x, job.l.all(y, !job.text.matches('(.*){500}b')))",
    "large regular expression": "job.text.matches('((((a{100}){100}){100}){100}){100}')",
}
#: Each is too large for the parser, or too deeply nested for the stack.
LARGE_OR_DEEP = {
    "brackets": "(" * 10_000 + "true" + ")" * 10_000,
    "lists in lists": "[" * 10_000 + "]" * 10_000 + " == []",
    "conditions": "true?false:" * 10_000 + "true",
    "negations": "!" * 1_000_000 + "true",
    "path": "job" + ".a" * 500_000 + " == 1",
    "sum": "+".join(["1"] * 500_000) + " > 0",
    "literal": "'" + "x" * 20_000_000 + "' == job.text",
}
#: Longer than any test may take.
HOUR_S = 3600.0


@pytest.fixture
def limited(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Limit evaluation to one second of CPU time; check that no process remains or ran longer."""
    monkeypatch.setattr(evaluator, "TIME_LIMIT_S", 1.0)
    monkeypatch.setattr(evaluator, "time", TIME_OF_CHILDREN)
    before, begun_s = children(), children_ran_s()
    yield
    assert children() <= before
    assert children_ran_s() - begun_s < 3


@pytest.mark.usefixtures("limited")
def test_hostile_expressions_end_within_the_limits_and_harm_no_other(record_property: Any) -> None:
    texts = [*ENDLESS_OR_LARGE.values(), "job.l.size() == 1000"]
    *found, harmless = evaluate([Question(text, [0, 1]) for text in texts], [LONG, LONG])
    assert harmless == [True, True]
    for name, hostile in zip(ENDLESS_OR_LARGE, found, strict=True):
        # The library's regular expressions do not backtrack.
        assert hostile == [False, False] if name == "regular expression" else are_not_judged(hostile), name
    record_property(FIGURE, ["hostile policies", len(found)])


def are_not_judged(answers: Sequence[Answer]) -> bool:
    return all(isinstance(one, NotJudged) for one in answers)


@pytest.mark.usefixtures("limited")
def test_hostile_expressions_are_compiled_or_invalid_within_the_limits(record_property: Any) -> None:
    *_, harmless = find_invalid([*LARGE_OR_DEEP.values(), "job.l.size() == 1000"])
    assert harmless is None
    record_property(FIGURE, ["hostile policies", len(LARGE_OR_DEEP)])


def test_expression_that_is_nested_too_deeply_is_invalid() -> None:
    assert find_invalid([LARGE_OR_DEEP["brackets"]]) == [InvalidExpression("it is nested too deeply")]


def test_expression_that_exceeds_a_limit_says_which(monkeypatch: pytest.MonkeyPatch) -> None:
    assert answer(ENDLESS_OR_LARGE["text that doubles"], LONG) == NotJudged(
        "it exceeds the limit of 512 MB of memory, or is nested too deeply"
    )
    monkeypatch.setattr(evaluator, "TIME_LIMIT_S", 1.0)
    assert answer(ENDLESS, LONG) == NotJudged("it exceeds the limit of 10 s for the policies of a plan")


@pytest.mark.usefixtures("limited")
def test_expression_exceeding_the_limit_on_one_job_has_no_result() -> None:
    small = {"job": {"l": [1]}}
    [answers] = evaluate([Question(ENDLESS, [0, 1, 2])], [small, LONG, small])
    assert are_not_judged(answers)


def test_slow_expression_gets_the_remaining_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Here a share is 0.1 s, and counting to a million takes longer."""
    monkeypatch.setattr(evaluator, "time", TIME_OF_CHILDREN)
    slow = Question("job.l.all(a, job.l.all(b, a + b >= 0))", [0])
    answers = evaluate([slow, *([Question("job.l.size() == 1000", [0])] * 99)], [LONG])
    assert answers == [[True]] * 100


def test_stop_ends_an_evaluation_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(evaluator, "TIME_LIMIT_S", HOUR_S)
    stop, waits, before = threading.Event(), list[Waited](), children()

    def stop_it() -> None:
        wait_for_worker(os.getpid())
        waits.append(Waited(os.getpid()))
        stop.set()

    threading.Thread(target=stop_it).start()
    with pytest.raises(Interrupted):
        evaluate([Question(ENDLESS, [0])], [LONG], stop)
    assert waits[0].seconds < 1.5
    assert children() <= before


def test_evaluations_in_several_threads_are_independent() -> None:
    def one(number: int) -> list[list[Answer]]:
        return evaluate(
            [Question(f"job.n == {number}", [0, 1])], [{"job": {"n": number}}, {"job": {"n": -1}}]
        )

    with ThreadPoolExecutor(4) as pool:
        assert list(pool.map(one, range(8))) == [[[True, False]]] * 8


@pytest.mark.usefixtures("limited")
def test_interpreter_that_cannot_be_started_denies_and_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "executable", "/nonexistent/python")
    why = "cannot start a process to evaluate it: No such file or directory"
    assert answer("true") == NotJudged(why)
    assert find_invalid(["true"]) == [InvalidExpression(why)]
    monkeypatch.setattr(sys, "executable", "/bin/false")
    assert answer("true") == NotJudged("cannot start a process to evaluate it (exit code 1)")


def test_no_process_is_started_without_a_question(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "executable", "/nonexistent/python")
    assert evaluate([Question("true", [])], [LONG]) == [[]]
    assert find_invalid([]) == []


# ── the process ────────────────────────────────────────────────────────────────────────────────────

_ENDLESS_IN_A_PROCESS = """\
from reconciler.core.policy_expression import Question
from reconciler.expressions import evaluator
from reconciler.expressions.evaluator import evaluate
from tests.expressions.test_evaluator import ENDLESS, HOUR_S, LONG
evaluator.TIME_LIMIT_S = HOUR_S
evaluate([Question(ENDLESS, [0])], [LONG])
"""


def _line(limits: Path, name: str) -> str:
    return next(line for line in limits.read_text().splitlines() if line.startswith(name))


@contextmanager
def evaluating(environ: Mapping[str, str]) -> Iterator[tuple[subprocess.Popen[bytes], int]]:
    """A process that evaluates for an hour, and the id of its child."""
    with subprocess.Popen(
        [sys.executable, "-c", _ENDLESS_IN_A_PROCESS], cwd=ROOT, env=dict(environ)
    ) as process:
        try:
            yield process, wait_for_worker(process.pid)
        finally:
            process.kill()


def wait_for_worker(pid: int) -> int:
    """Wait for the evaluator process of another process."""
    assert wait_until(lambda: any(map(is_worker, children_of(pid))))
    return next(filter(is_worker, children_of(pid)))


def is_worker(pid: int) -> bool:
    return b"expressions.worker" in command_line(pid)


def command_line(pid: int) -> bytes:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:  # gone meanwhile
        return b""


def wait_until(holds: Callable[[], bool]) -> bool:
    """Whether a condition comes to hold, allowing for a busy machine."""
    ends_s = time.monotonic() + 30
    while not (has_come := holds()) and time.monotonic() < ends_s:
        time.sleep(0.02)
    return has_come


def test_evaluator_process_is_limited_isolated_and_ends_with_its_parent() -> None:
    secrets = {"HUAWEICLOUD_SDK_SK": "hunter2", "HF_TOKEN": "hunter2"}
    with evaluating({**os.environ, **secrets}) as (process, child):
        limits = Path(f"/proc/{child}/limits")
        assert wait_until(lambda: f"{evaluator.MEMORY_LIMIT} " in _line(limits, "Max address space"))
        assert _line(limits, "Max core file size").split()[4:6] == ["0", "0"]
        environ = Path(f"/proc/{child}/environ").read_bytes()
        names = {one.partition(b"=")[0] for one in environ.split(b"\0") if one}
        assert names <= {name.encode() for name in evaluator._ENVIRONMENT}
        assert Path(f"/proc/{child}/cwd").readlink() == Path("/")
        process.kill()
        process.wait(timeout=30)
        assert wait_until(lambda: not command_line(child))


# ── for people ─────────────────────────────────────────────────────────────────────────────────────


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
def test_fields_of_an_expression_are_found(text: str, fields: tuple[str, ...]) -> None:
    assert fields_in(text) == fields
