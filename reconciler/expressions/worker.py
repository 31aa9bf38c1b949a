"""The process that evaluates expressions: the one module that knows the library.

The library stops no expression that runs for long or takes much memory, and a deep one ends the process that
it runs in. So this process limits itself before it takes anything, and whoever started it ends it when it
takes too long. Requests come on stdin and answers go to stdout, each a line of JSON: nothing is unpickled.
It imports next to nothing of ours, since it is started for each plan that has policies.

    {"values": [{"job": …, "action": …, …}, …]}   null; the questions that follow are about these
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

#: Names that are no variables.
_TYPES = frozenset({"int", "uint", "double", "bool", "string", "bytes", "list", "map", "null_type", "type"})
_GAP = r"(?:\s|//[^\n]*)*"
#: The name that a macro gives to a member.
_BOUND = re.compile(rf"\.{_GAP}(?:all|exists|exists_one|existsOne|filter|map){_GAP}\({_GAP}(\w+){_GAP},")
_REPORTED = re.compile(r"ERROR: <input>:(\d+):(\d+): ([^\n]*)")
#: What the parser says beside what is wrong.
_ASIDE = re.compile(r"^Syntax error: | expecting \{.*$")
_LONGEST_REASON = 200
_PR_SET_PDEATHSIG = 1


def main(cpu_s: int, memory_bytes: int) -> None:
    """Answer until stdin ends."""
    _limit(cpu_s, memory_bytes)
    # Its command line takes ten times as long to import as the library does.
    sys.modules["cel.cli"] = ModuleType("cel.cli")
    import cel

    values: list[Any] = []
    for line in sys.stdin:
        request = json.loads(line)
        answer: Any = None
        if "values" in request:
            # As the library takes them, converted once for all expressions.
            values = [_called(cel.Context, one) for one in request["values"]]
        elif "compile" in request:
            answer = _compile_problem(cel, request["compile"])
        else:
            program = _called(cel.compile, request["ask"])
            answer = [_judge(program, values[place]) for place in request["places"]]
        print(json.dumps(answer), flush=True)  # noqa: T201 - who started it reads its stdout


def _limit(cpu_s: int, memory_bytes: int) -> None:
    """Limit this process, and have it end with the one that started it."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # a Ctrl-C is for the one that started it
    if sys.platform == "linux":
        with suppress(OSError, AttributeError, ImportError):
            from ctypes import CDLL

            CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    try:
        import resource
    except ImportError:
        return
    for kind, most in (("RLIMIT_CPU", cpu_s), ("RLIMIT_AS", memory_bytes), ("RLIMIT_CORE", 0)):
        with suppress(OSError, ValueError, AttributeError):  # a lower limit holds, or there is no such limit
            resource.setrlimit(getattr(resource, kind), (most, most))


def _judge(program: Any, values: Any) -> Answer:
    if isinstance(program, NotJudged):
        return NotJudged("it does not compile")
    found = values if isinstance(values, NotJudged) else _called(program.execute, values)
    if isinstance(found, bool | NotJudged):
        return found
    return NotJudged(f"its value is {_kind(found)}, not true or false")


def _compile_problem(library: Any, text: str) -> InvalidExpression | None:
    try:
        program = _called(library.compile, text, passes_on=ValueError)
    except ValueError as error:
        return _parser_problem(str(error), text)
    if isinstance(program, NotJudged):
        return InvalidExpression(program.why)
    unknown = set(program.variables()) - {*NAMES, *_TYPES, *_BOUND.findall(text)}
    code = TEXT_OR_COMMENT.sub(lambda one: " " * len(one[0]), text)
    found = [re.search(rf"(?<![\w.]){re.escape(name)}\b", code) for name in unknown]
    if not any(found):
        return None
    start, name = min((one.start(), one[0]) for one in found if one)
    before = text[:start].split("\n")
    why = f'"{_short(name)}" is not one of {", ".join(NAMES)}'
    return InvalidExpression(why, len(before), len(before[-1]) + 1, name)


def _parser_problem(said: str, text: str) -> InvalidExpression:
    # The text stands in front, and may hold whatever the parser could say.
    found = _REPORTED.search(said.removeprefix(f"Failed to parse expression '{text}'"))
    if found is None:
        return InvalidExpression("it is not valid CEL")
    if "Recursion" in found[3]:
        return InvalidExpression("it is nested too deeply")
    return InvalidExpression(_short(_ASIDE.sub("", found[3])), int(found[1]), int(found[2]))


def _called(call: Callable[[Any], Any], argument: Any, passes_on: type[Exception] | None = None) -> Any:
    """Call the library; whatever it raises is `NotJudged`, also where its own code gave up."""
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
    """The first line of what the library says, or as much of it as a person reads."""
    line = text.split("\n", 1)[0].rstrip(" .:")
    return line if len(line) <= _LONGEST_REASON else f"{line[: _LONGEST_REASON - 1]}…"


def _kind(value: Any) -> str:
    if value is None:
        return "null"
    kinds = {str: "text", int: "a number", float: "a number", list: "a list", dict: "a mapping"}
    return kinds.get(type(value), "something else")
