"""What is asked of the expressions of policies, and what they answer; `expressions` evaluates them.

Source of the language: https://github.com/google/cel-spec/blob/master/doc/langdef.md
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

#: What an expression may name.
NAMES = ("job", "action", "stack", "target")

TEXT_OR_COMMENT = re.compile(r"""//[^\n]*|"(?:\\.|[^"\\])*"|'(?:\\.|[^'\\])*'""")
_FIELD = re.compile(rf"(?<![\w.])(?:{'|'.join(NAMES)})\b(?:\.[A-Za-z_]\w*\b(?!\())*")


class InvalidExpression(NamedTuple):
    """Why an expression does not compile; line and column are places in its text and count from 1.

    `unknown_name` is the name in it that stands for nothing, if that is what is wrong.
    """

    why: str
    line: int = 1
    column: int = 1
    unknown_name: str | None = None


class NotJudged(NamedTuple):
    """Why an expression gives neither true nor false for some values.

    `missing` is the field that it asks for and that is not there, if that is why.
    """

    why: str
    missing: str | None = None


class Question(NamedTuple):
    """An expression, and the values that it is asked about, by their places in a list."""

    expression: str
    places: Sequence[int]


Answer = bool | NotJudged


def not_evaluated(
    questions: Sequence[Question], values: Sequence[Mapping[str, Any]]
) -> Sequence[Sequence[Answer]]:
    """Answer as `ports.EvaluateExpressions` where nobody evaluates expressions."""
    return [[NotJudged("no expressions are evaluated here")] * len(one.places) for one in questions]


def fields_in(text: str) -> tuple[str, ...]:
    """The fields that an expression names, each once: `job.spec.resource.node_count`, `stack`.

    A function that is called on a field is left out. This is for people who ask why: nothing rests on it.
    """
    return tuple(dict.fromkeys(_FIELD.findall(TEXT_OR_COMMENT.sub('""', text))))
