"""The process that evaluates expressions, and the only module that uses the CEL library.

The library stops no expression that takes long or much memory, and a deeply nested one crashes the process.
So this process limits itself before it reads any, and its parent kills it if it takes too long. Requests come
on stdin and answers go to stdout, each a line of JSON: nothing is unpickled. It imports little of our code,
since it is started for each plan that has policies.

    {"values": [{"job": …, "action": …, …}, …]}   null; the values for the questions that follow
    {"ask": TEXT, "places": [0, 2]}               [true, ["it divides by zero", null]]: a `NotJudged`
    {"compile": TEXT}                             null, or an `InvalidExpression`
"""

from __future__ import annotations

import json
import re
import signal
import sys
from collections.abc import Callable
from contextlib import suppress
from types import ModuleType
from typing import Any

from reconciler.core.policy_expression import NAMES, TEXT_OR_COMMENT, Answer, InvalidExpression, NotJudged

#: Names of types, not variables.
_TYPES = frozenset({"int", "uint", "double", "bool", "string", "bytes", "list", "map", "null_type", "type"})
_GAP = r"(?:\s|//[^\n]*)*"
#: The variable that a macro binds.
_BOUND = re.compile(rf"\.{_GAP}(?:all|exists|exists_one|existsOne|filter|map){_GAP}\({_GAP}(\w+){_GAP},")
_REPORT = re.compile(r"ERROR: <input>:(\d+):(\d+): ([^\n]*)")
#: The parts of a parser message that do not name the problem.
_NOISE = re.compile(r"^Syntax error: | expecting \{.*$")
_LONGEST_REASON = 200
_PR_SET_PDEATHSIG = 1


def main(cpu_s: int, memory_bytes: int) -> None:
    """Answer requests until stdin ends."""
    _limit(cpu_s, memory_bytes)
    # Importing its command line takes ten times as long as the library itself.
    sys.modules["cel.cli"] = ModuleType("cel.cli")
    import cel

    values: list[Any] = []
    for line in sys.stdin:
        request = json.loads(line)
        answer: Any = None
        if "values" in request:
            # Converted once for all expressions.
            values = [_call(cel.Context, value) for value in request["values"]]
        elif "compile" in request:
            answer = _compile_problem(cel, request["compile"])
        else:
            program = _call(cel.compile, request["ask"])
            answer = [_judge(program, values[place]) for place in request["places"]]
        print(json.dumps(answer), flush=True)  # noqa: T201 - the parent reads stdout


def _limit(cpu_s: int, memory_bytes: int) -> None:
    """Limit this process, and have it end with its parent."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent handles Ctrl-C
    if sys.platform == "linux":
        with suppress(OSError, AttributeError, ImportError):
            from ctypes import CDLL

            CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    try:
        import resource
    except ImportError:
        return
    for kind, limit in (("RLIMIT_CPU", cpu_s), ("RLIMIT_AS", memory_bytes), ("RLIMIT_CORE", 0)):
        with suppress(OSError, ValueError, AttributeError):  # a lower limit is set, or there is no such limit
            resource.setrlimit(getattr(resource, kind), (limit, limit))


def _judge(program: Any, values: Any) -> Answer:
    if isinstance(program, NotJudged):
        return NotJudged("it does not compile")
    result = values if isinstance(values, NotJudged) else _call(program.execute, values)
    if isinstance(result, bool | NotJudged):
        return result
    return NotJudged(f"its value is {_kind(result)}, not true or false")


def _compile_problem(library: Any, text: str) -> InvalidExpression | None:
    try:
        program = _call(library.compile, text, passes_on=ValueError)
    except ValueError as error:
        return _parser_problem(str(error), text)
    if isinstance(program, NotJudged):
        return InvalidExpression(program.why)
    unknown = set(program.variables()) - {*NAMES, *_TYPES, *_BOUND.findall(text)}
    code = TEXT_OR_COMMENT.sub(lambda match: " " * len(match[0]), text)
    matches = [re.search(rf"(?<![\w.]){re.escape(name)}\b", code) for name in unknown]
    if not any(matches):
        return None
    start, name = min((match.start(), match[0]) for match in matches if match)
    before = text[:start].split("\n")
    why = f'"{_short(name)}" is not one of {", ".join(NAMES)}'
    return InvalidExpression(why, len(before), len(before[-1]) + 1, name)


def _parser_problem(message: str, text: str) -> InvalidExpression:
    # The message begins with the expression, which may itself look like a message.
    report = _REPORT.search(message.removeprefix(f"Failed to parse expression '{text}'"))
    if report is None:
        return InvalidExpression("it is not valid CEL")
    if "Recursion" in report[3]:
        return InvalidExpression("it is nested too deeply")
    return InvalidExpression(_short(_NOISE.sub("", report[3])), int(report[1]), int(report[2]))


def _call(call: Callable[[Any], Any], argument: Any, passes_on: type[Exception] | None = None) -> Any:
    """Call the library. Whatever it raises, panics included, becomes `NotJudged`."""
    try:
        return call(argument)
    except MemoryError:
        raise
    except BaseException as error:
        is_its_own = isinstance(error, Exception) or type(error).__name__ == "PanicException"
        if not is_its_own or type(error) is passes_on:
            raise
        text = str(error.args[0]) if error.args else str(error)
        if isinstance(error, KeyError):
            return NotJudged(f'there is no field "{_short(text)}"', text)
        if isinstance(error, ZeroDivisionError):
            return NotJudged("it divides by zero")
        if isinstance(error, TypeError):
            return NotJudged("it compares or joins values of different types, or null")
        if (undefined := re.match(r"Undefined variable or function: '(\w+)'", text)) is not None:
            return NotJudged(f'"{undefined[1]}" is not known, or not for a value of this type')
        return NotJudged(_short(text))


def _short(text: str) -> str:
    """Return the first line of a message, shortened for people."""
    line = text.split("\n", 1)[0].rstrip(" .:")
    return line if len(line) <= _LONGEST_REASON else f"{line[: _LONGEST_REASON - 1]}…"


def _kind(value: Any) -> str:
    if value is None:
        return "null"
    kinds = {str: "text", int: "a number", float: "a number", list: "a list", dict: "a mapping"}
    return kinds.get(type(value), "something else")
