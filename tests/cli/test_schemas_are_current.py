"""`schemas/` is written by `reconciler schema NAME`; a model change must be committed there."""

from __future__ import annotations

from pathlib import Path

import pytest

from reconciler.cli.project import NAMES
from tests.cli.conftest import Reconciler

SCHEMAS = Path(__file__).parents[2] / "schemas"


@pytest.mark.parametrize("name", NAMES)
def test_schema_is_up_to_date(name: str, reconciler: Reconciler) -> None:
    written = (SCHEMAS / f"{name}.schema.json").read_text(encoding="utf-8")
    assert reconciler("schema", name).out == written, f"reconciler schema {name} > schemas/{name}.schema.json"


def test_schema_directory_has_no_other_files() -> None:
    assert {path.name for path in SCHEMAS.iterdir()} == {f"{name}.schema.json" for name in NAMES}


def test_schema_without_a_name_is_that_of_the_manifest(reconciler: Reconciler) -> None:
    assert reconciler("schema").out == reconciler("schema manifest").out
