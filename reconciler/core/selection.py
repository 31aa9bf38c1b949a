"""A partial view of a stack, by key or by glob: `--only`, and the KEY arguments of `status`."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from difflib import get_close_matches
from fnmatch import fnmatchcase

from reconciler.core.stack import Stack
from reconciler.errors import Diagnostic, WrongUsage

_GLOB = frozenset("*?[")


#: Takes the patterns that match nothing.
TakeUnmatched = Callable[[Iterable[str]], None]


def narrow(
    stack: Stack, only: Sequence[str], owned: Iterable[str], unmatched: TakeUnmatched | None = None
) -> Stack:
    """Return the stack with only the keys that were asked for in view; without any, the stack as it is.

    A name means a declared or an owned key, a glob means declared ones only. What PATH left out of view
    stays out of it. Guards are not narrowed: they count over the whole stack. `unmatched` takes the names
    and globs that match nothing, where the stack is one of several; its view may be empty then.

    Raises:
        WrongUsage: a name or glob matches nothing, and `unmatched` is None.
    """
    if not only:
        return stack
    known = keys_to_name(stack, owned)
    found = {pattern: _matches(stack, pattern, known) for pattern in only}
    missing = [pattern for pattern, matches in found.items() if not matches]
    if unmatched is not None:
        unmatched(missing)
    elif missing:
        raise WrongUsage(*(_no_match(stack, pattern, known, is_glob=is_glob(pattern)) for pattern in missing))
    chosen = set().union(*found.values())
    jobs = {key: job for key, job in stack.jobs.items() if key in chosen}
    left_out = stack.left_out + len(stack.jobs) - len(jobs)
    return replace(stack, jobs=jobs, is_partial=True, left_out=left_out, chosen=frozenset(chosen))


def is_glob(pattern: str) -> bool:
    """Whether a pattern stands for declared keys, and not for one key."""
    return not _GLOB.isdisjoint(pattern)


def _matches(stack: Stack, pattern: str, known: set[str]) -> set[str]:
    if is_glob(pattern):
        return {key for key in stack.jobs if fnmatchcase(key, pattern)}
    return known & {pattern}


def keys_to_name(stack: Stack, owned: Iterable[str]) -> set[str]:
    """The keys that a person may name: declared in view, or owned and declared nowhere else."""
    out_of_view = stack.whole.keys() - stack.jobs.keys()
    return {*stack.jobs, *owned} - out_of_view


def unknown_key(stack: Stack, key: str, known: Iterable[str]) -> Diagnostic:
    """The problem of a key that the stack does not have, with the nearest one that it has."""
    what = "unknown key"
    if key in stack.whole:
        where = stack.whole[key].location
        why = f'PATH does not include "{key}"' + (f", which {where.file} declares" if where else "")
        return Diagnostic(what, why, "add its file to PATH")
    if members := stack.members_of(key):
        why = f'"{key}" is an entry with a matrix: its {len(members)} jobs have keys of their own'
        return Diagnostic(what, why, f"name one of them, e.g. {members[0]}")
    why = f'"{key}" is neither a declared nor an owned key of stack {stack.name}'
    return Diagnostic(what, why, suggest_key(key, known))


def _all_members(stack: Stack, entry: str) -> str | None:
    """The glob that means the members of a sweep and no other key, or None if there is none."""
    glob = f"{entry}-*"
    matching = {key for key in stack.whole if fnmatchcase(key, glob)}
    return glob if matching == set(stack.members_of(entry)) and matching else None


def suggest_key(key: str, known: Iterable[str]) -> str | None:
    """A question that offers the nearest of the known keys, or None if none is near."""
    by_fold = {one.casefold(): one for one in sorted(known)}
    near = get_close_matches(key.casefold(), by_fold, n=1)
    return f'did you mean "{by_fold[near[0]]}"?' if near else None


def _no_match(stack: Stack, pattern: str, known: Iterable[str], *, is_glob: bool) -> Diagnostic:
    if not is_glob:
        problem = unknown_key(stack, pattern, known)
        glob = _all_members(stack, pattern)
        return problem if glob is None else problem._replace(fix=f'write "{glob}" for all of them')
    why = f'no declared key of stack {stack.name} matches "{pattern}"'
    return Diagnostic("no matching key", why, "an owned key that is not declared must be given in full")


def check_keys(
    keys: Iterable[str], stack: Stack, owned: Iterable[str], unmatched: TakeUnmatched | None = None
) -> None:
    """See that keys that were named are keys of the stack, in view or not; `unmatched` as for `narrow`.

    Raises:
        WrongUsage: one is neither declared nor owned, and `unmatched` is None.
    """
    known = {*stack.whole, *stack.jobs, *stack.declared_keys, *owned}
    unknown = sorted(set(keys) - known)
    if unmatched is not None:
        unmatched(unknown)
    elif unknown:
        raise WrongUsage(*(unknown_key(stack, key, known) for key in unknown))
