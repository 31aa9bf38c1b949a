"""The parsed modules of the program; each is parsed once."""

from __future__ import annotations

import ast
from collections.abc import Mapping
from functools import cache
from pathlib import Path

PACKAGE = Path(__file__).parents[1] / "reconciler"


@cache
def modules() -> Mapping[str, ast.Module]:
    """Return each module by its path below the package."""
    paths = sorted(PACKAGE.rglob("*.py"))
    return {str(path.relative_to(PACKAGE)): ast.parse(path.read_text(encoding="utf-8")) for path in paths}
