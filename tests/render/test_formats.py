"""The table of formats is true: a row has its functions, and a module that renders plans has a row."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from reconciler import render
from reconciler.render import FORMATS, Content

_FUNCTIONS = {f"render_{content}": content for content in Content}


def _functions_of(module: str) -> set[Content]:
    """What a module renders; reports of fleets are rendered by one of the same name in a room of its own."""
    room = Path(str(render.__path__[0]))
    paths = [path for path in (room / f"{module}.py", room / "fleet" / f"{module}.py") if path.exists()]
    nodes = (node for path in paths for node in ast.parse(path.read_text()).body)
    names = {node.name for node in nodes if isinstance(node, ast.FunctionDef)}
    return {_FUNCTIONS[name] for name in names & _FUNCTIONS.keys()}


@pytest.mark.parametrize("name", FORMATS)
def test_row_says_what_its_module_renders(name: str) -> None:
    assert FORMATS[name].renders == _functions_of(FORMATS[name].module)


def test_every_module_that_renders_a_plan_or_a_report_has_a_row() -> None:
    modules = {path.stem for path in Path(str(render.__path__[0])).glob("*.py")} - {"__init__"}
    assert {module for module in modules if _functions_of(module)} == {row.module for row in FORMATS.values()}


def test_every_content_has_a_format() -> None:
    assert all(render.formats_of(content) for content in Content)
