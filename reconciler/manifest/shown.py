"""Problems as people may see them: each once, without secrets, and no line longer than a screen can show."""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache
from typing import Any

from reconciler.errors import Diagnostic, Snippet
from reconciler.secrets import Redactor

#: Of a line beyond this that holds a secret nothing is shown.
_LONG_LINE = 12_000


def distinct(problems: Iterable[Diagnostic]) -> tuple[Diagnostic, ...]:
    """Each problem once: a mistake in `defaults` is met by every job."""
    seen: dict[Any, Diagnostic] = {}
    for problem in problems:
        seen.setdefault((problem.location, problem.what, problem.why), problem)
    return tuple(seen.values())


def shown(problems: Iterable[Diagnostic], redact: Redactor) -> tuple[Diagnostic, ...]:
    """The same problems, with no known secret in their words or lines, and long lines cut."""
    redact_line = cache(redact)  # all of a file may stand in one line

    def cut(line: Snippet) -> Snippet | None:
        text = redact_line(line.text)
        if text is line.text:
            return line.cut()
        if len(line.text) > _LONG_LINE:
            return None  # Looking for every secret before every place of it would take minutes.
        # The place has moved: what stands before it is shorter or longer now.
        start = _length_in_common(redact(line.text[: line.start]), text)
        length = len(redact(line.text[: line.start + line.length])) - start
        return Snippet(text, start, length).cut()

    return tuple(
        problem._replace(
            why=redact(problem.why),
            fix=None if problem.fix is None else redact(problem.fix),
            path=redact(problem.path),
            snippet=problem.snippet and cut(problem.snippet),
        )
        for problem in problems
    )


def _length_in_common(before: str, text: str) -> int:
    """How much of `before` the text begins with: less than all if a secret begins in it and ends behind."""
    if text.startswith(before):
        return len(before)
    pairs = enumerate(zip(before, text, strict=False))
    return next((at for at, (one, other) in pairs if one != other), len(text))
