"""The expressions of CI services, as far as the workflows use them: `a.b == 'c' && !cancelled()`."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from typing import Any

_TOKEN = re.compile(
    r"\s*(?:(?P<text>'[^']*')|(?P<operator>&&|\|\||==|!=|!|[()])|(?P<function>\w+)\(\)"
    r"|fromJSON\((?P<json>[\w.-]+)\)|(?P<name>[\w.-]+))"
)
_OPERATORS = {"&&": "and", "||": "or", "!": "not"}
_STATUS = re.compile(r"\b(success|failure|cancelled|always)\(\)")


def evaluate(expression: str, context: Mapping[str, Any], *, failed: bool = False) -> Any:
    """Evaluate an expression; missing values are empty text. `failed`: an earlier step failed."""
    status = {"success": not failed, "failure": failed, "cancelled": False, "always": True}

    def value_of(found: re.Match[str]) -> Any:
        if found["text"]:
            return found["text"][1:-1]
        if found["json"]:
            return json.loads(_look_up(found["json"], context))
        return status[found["function"]] if found["function"] else _look_up(found["name"], context)

    return evaluate_tokens(_TOKEN, expression, value_of)


def evaluate_tokens(token: re.Pattern[str], expression: str, value_of: Callable[[re.Match[str]], Any]) -> Any:
    """Evaluate tokens, each an `operator` or a name known to `value_of`."""
    source, at = [], 0
    while at < len(expression.rstrip()):
        found = token.match(expression, at)
        assert found, f"not understood: {expression[at:]!r}"
        at, operator = found.end(), found["operator"]
        source.append(_OPERATORS.get(operator, operator) if operator else repr(value_of(found)))
    return eval(" ".join(source))


def holds(condition: str | None, context: Mapping[str, Any], *, failed: bool = False) -> bool:
    """Whether an `if` holds; without a status function nothing before it may have failed."""
    condition = (condition or "success()").strip().removeprefix("${{").removesuffix("}}")
    if not _STATUS.search(condition):
        condition = f"success() && ({condition})"
    return bool(evaluate(condition, context, failed=failed))


def filled_in(text: object, context: Mapping[str, Any]) -> str:
    return re.sub(r"\$\{\{(.*?)\}\}", lambda found: str(evaluate(found[1], context)), str(text))


def _look_up(name: str, context: Mapping[str, Any]) -> Any:
    value: Any = context
    for part in name.split("."):
        value = value.get(part, "") if isinstance(value, Mapping) else ""
    return value
