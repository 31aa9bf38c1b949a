"""The table of formats is true: a row is a file of that name, and it renders what the row says."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path

import pytest

from reconciler import render
from reconciler.render import FORMATS, Content


@pytest.mark.parametrize("name", FORMATS)
def test_format_is_a_file_of_its_name(name: str) -> None:
    module = import_module(f"reconciler.render.{name}")
    assert callable(module.render)
    assert hasattr(module, "render_fleet") is (Content.FLEET in FORMATS[name].renders)
    assert hasattr(module, "render_run") is FORMATS[name].is_final


def test_every_file_that_renders_contents_has_a_row() -> None:
    names = {path.stem for path in Path(str(render.__path__[0])).glob("*.py")} - {"__init__"}
    assert {one for one in names if hasattr(import_module(f"reconciler.render.{one}"), "render")} == set(
        FORMATS
    )


def test_every_content_has_a_format() -> None:
    assert all(render.formats_of(content) for content in Content)
