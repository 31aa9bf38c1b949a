"""Why a value cannot be used: the words that variables, expressions and models have in common."""

from __future__ import annotations

from typing import NamedTuple

NO_VALUE = "variable without a value"
UNKNOWN_VARIABLE = "unknown variable"
ENV_NOT_SET = "environment variable not set"
CREDENTIAL = "credential not allowed here"


class NoValue(Exception):
    """A variable cannot be used. The words are those of a diagnostic."""

    def __init__(self, what: str, why: str, fix: str | None = None) -> None:
        self.what, self.why, self.fix = what, why, fix
        super().__init__(why)


class WrongValue(NoValue):
    """A value is there, and is not what the variable declares; `why` has no subject yet."""


class Problem(NamedTuple):
    """An expression that has no value, and the words to say so."""

    text: str
    what: str
    why: str
    fix: str | None


class NotExpanded(Exception):
    """Some expression has no value; `expand.problems_in` finds out which."""

    def __init__(self, problem: Problem) -> None:
        self.problem = problem
        super().__init__(problem.why)


def is_utf8(text: str) -> bool:
    """Whether a text can be sent: one from outside may hold bytes that are none."""
    return text.isascii() or not any("\ud800" <= char <= "\udfff" for char in text)


def not_utf8(source: str) -> tuple[str, str, str]:
    """The words for a text that cannot be sent."""
    return "invalid text", f"{source} contains bytes that are not valid UTF-8", "use UTF-8"


def refused_credential(name: str) -> tuple[str, str]:
    """Why an environment variable may not be used in a manifest, and what to do."""
    why = (
        f"{name} contains a credential of reconciler itself; only the password in the URL of records may "
        f"use it, as ${{env.{name}}}"
    )
    return why, "use a different environment variable"
