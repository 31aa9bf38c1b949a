"""Policy expressions: the questions to evaluate and their answers; `expressions` evaluates them.

Source of the language: https://github.com/google/cel-spec/blob/master/doc/langdef.md
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

#: The variables of an expression.
NAMES = ("job", "action", "stack", "target")

TEXT_OR_COMMENT = re.compile(r"""//[^\n]*|"(?:\\.|[^"\\])*"|'(?:\\.|[^'\\])*'""")
_FIELD = re.compile(rf"(?<![\w.])(?:{'|'.join(NAMES)})\b(?:\.[A-Za-z_]\w*\b(?!\())*")


class InvalidExpression(NamedTuple):
    """Why an expression does not compile. Line and column refer to its text and count from 1.

    `unknown_name` is the undefined variable in it, if that is the problem.
    """

    why: str
    line: int = 1
    column: int = 1
    unknown_name: str | None = None


class NotJudged(NamedTuple):
    """Why an expression is neither true nor false for some values.

    `missing` is the missing field, if that is the problem.
    """

    why: str
    missing: str | None = None


class Question(NamedTuple):
    """An expression, and the indices of the values to evaluate it for."""

    expression: str
    places: Sequence[int]


Answer = bool | NotJudged


def not_evaluated(
    questions: Sequence[Question], values: Sequence[Mapping[str, Any]]
) -> Sequence[Sequence[Answer]]:
    """Satisfy `ports.EvaluateExpressions` without evaluating anything."""
    return [[NotJudged("no expressions are evaluated here")] * len(question.places) for question in questions]


def fields_in(text: str) -> tuple[str, ...]:
    """Return the distinct fields in an expression: `job.spec.resource.node_count`, `stack`.

    Functions called on a field are left out. For explanations only; no decision depends on it.
    """
    return tuple(dict.fromkeys(_FIELD.findall(TEXT_OR_COMMENT.sub('""', text))))
