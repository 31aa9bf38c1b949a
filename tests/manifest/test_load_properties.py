"""What holds for every manifest: it loads, or is refused with places."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from reconciler.errors import Diagnostic, ManifestInvalid
from reconciler.manifest import load
from tests.hostile.broken_manifests import damaged

SECRET = "hunter2-swordfish"


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("stack")


@settings(max_examples=500)
@given(st.integers(0, 2**32).map(damaged) | st.text(st.characters(exclude_categories=["Cs"])).map(str.encode))
def test_any_manifest_loads_or_is_refused_with_a_place(root: Path, data: bytes) -> None:
    (root / "main.yaml").write_bytes(data)
    problems: tuple[Diagnostic, ...] = ()
    try:
        load([root / "main.yaml"], environ={"TOKEN": SECRET, "PROJECT": "p"})
    except ManifestInvalid as error:
        problems = error.diagnostics or (Diagnostic("said nothing"),)
    for problem in problems:
        assert problem.what
        assert problem.location is not None
        assert min(problem.location.line, problem.location.column) >= 1
        assert SECRET not in repr(problem)
