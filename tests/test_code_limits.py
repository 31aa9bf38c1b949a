"""No function branches more than a reader can hold, and none takes a list of arguments to be counted."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

ROOT = Path(__file__).parents[1]
MOST_BRANCHES, MOST_ARGUMENTS = 12, 8

_BRANCHES = (
    ast.If,
    ast.For,
    ast.AsyncFor,
    ast.While,
    ast.ExceptHandler,
    ast.IfExp,
    ast.comprehension,
    ast.match_case,
)
_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
_Function = ast.FunctionDef | ast.AsyncFunctionDef


class Size(NamedTuple):
    """How large a function is, and where it stands."""

    file: str
    name: str
    line: int
    branches: int
    arguments: int

    @property
    def is_over(self) -> bool:
        """Whether it is over a limit."""
        return self.branches > MOST_BRANCHES or self.arguments > MOST_ARGUMENTS

    def __str__(self) -> str:
        return f"{self.file}:{self.line} {self.name}: {self.branches} branches, {self.arguments} arguments"


def _branches(function: _Function) -> int:
    """How many ways there are to go; functions and classes within it are counted on their own."""
    count, waiting = 0, [*function.body]
    while waiting:
        node: ast.AST = waiting.pop()
        if isinstance(node, (*_FUNCTIONS, ast.ClassDef)):
            continue
        count += isinstance(node, _BRANCHES)
        count += len(node.ifs) if isinstance(node, ast.comprehension) else 0
        count += len(node.values) - 1 if isinstance(node, ast.BoolOp) else 0
        waiting += ast.iter_child_nodes(node)  # type: ignore[arg-type]
    return count


def _arguments(function: _Function) -> int:
    """How many arguments there are, `self` and `cls` aside; none of a command, whose options are no list."""
    if any(_is_of_click(decorator) for decorator in function.decorator_list):
        return 0
    found = function.args
    named = [*found.posonlyargs, *found.args, *found.kwonlyargs]
    is_bound = bool(named) and named[0].arg in ("self", "cls")
    return len(named) - is_bound + (found.vararg is not None) + (found.kwarg is not None)


def _is_of_click(decorator: ast.expr) -> bool:
    """`@click.command(…)`, `@group.command(…)`, `@with_options(…)`."""
    called = decorator.func if isinstance(decorator, ast.Call) else decorator
    name = called.attr if isinstance(called, ast.Attribute) else getattr(called, "id", "")
    return name in ("command", "with_options")


def _sizes(text: str, file: str) -> Iterator[Size]:
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, _FUNCTIONS):
            yield Size(file, node.name, node.lineno, _branches(node), _arguments(node))


def test_no_function_is_over_a_limit() -> None:
    sizes = [
        size
        for path in sorted((ROOT / "reconciler").rglob("*.py"))
        for size in _sizes(path.read_text(encoding="utf-8"), str(path.relative_to(ROOT)))
    ]
    assert sizes
    assert [str(size) for size in sizes if size.is_over] == []


@pytest.mark.parametrize(
    ("text", "branches", "arguments"),
    [
        ("def f(self, a, *b, c, **d): pass", 0, 4),
        ("def f(a, /, b): pass", 0, 2),
        ("@click.command('f')\ndef f(a, b): pass", 0, 0),
        ("@with_options(A, B)\ndef f(a, b): pass", 0, 0),
        ("@jobs.command\ndef f(a, b): pass", 0, 0),
        ("@contextmanager\ndef f(a, b): pass", 0, 2),
        ("def f():\n if a: pass\n elif b: pass\n else: pass", 2, 0),
        ("def f():\n for a in b:\n  while c: pass", 2, 0),
        ("def f():\n try: pass\n except A: pass\n except B: pass", 2, 0),
        ("def f(): return a and b and c or d", 3, 0),
        ("def f(): return [a if b else c for d in e if g if h]", 4, 0),
        ("def f():\n match a:\n  case 1: pass\n  case _: pass", 2, 0),
        ("def f():\n def g():\n  if a: pass\n return lambda: b if c else d", 1, 0),
    ],
)
def test_branches_and_arguments_are_counted(text: str, branches: int, arguments: int) -> None:
    found = next(size for size in _sizes(text, "f.py") if size.name == "f")
    assert (found.branches, found.arguments) == (branches, arguments)


def test_function_over_a_limit_is_named_with_its_file_and_counts() -> None:
    [size] = _sizes("def f(a):\n" + " if a: pass\n" * 13, "cli/f.py")
    assert size.is_over
    assert str(size) == "cli/f.py:1 f: 13 branches, 1 arguments"
