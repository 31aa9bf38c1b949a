"""`--only`: a partial view of a stack, by key or by glob."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from difflib import get_close_matches
from fnmatch import fnmatchcase

from reconciler.core.diagnostic import Diagnostic, WrongUsage
from reconciler.core.stack import Stack

_GLOB = frozenset("*?[")


def narrow(stack: Stack, only: Sequence[str], owned: Iterable[str]) -> Stack:
    """Return the stack with only the keys that were asked for in view; without any, the stack as it is.

    A name means a declared or an owned key, a glob means declared ones only.

    Raises:
        WrongUsage: a name or glob matches nothing.
    """
    if not only:
        return stack
    known = {*stack.jobs, *owned}
    chosen: set[str] = set()
    unmatched = []
    for pattern in only:
        is_glob = bool(_GLOB & set(pattern))
        matches = {k for k in stack.jobs if fnmatchcase(k, pattern)} if is_glob else known & {pattern}
        chosen |= matches
        if not matches:
            unmatched.append(_no_match(pattern, known))
    if unmatched:
        raise WrongUsage(*unmatched)
    jobs = {key: job for key, job in stack.jobs.items() if key in chosen}
    left_out = stack.left_out + len(stack.jobs) - len(jobs)
    return replace(stack, jobs=jobs, is_partial=True, left_out=left_out, chosen=frozenset(chosen))


def _no_match(pattern: str, known: set[str]) -> Diagnostic:
    near = get_close_matches(pattern, sorted(known), n=1)
    why = f'"{pattern}" is neither a declared nor an owned key of the stack'
    return Diagnostic("--only matches nothing", why, f'did you mean "{near[0]}"?' if near else None)
