"""Properties of every manifest: it loads or is refused with locations, and the digest follows the meaning."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from reconciler.errors import Diagnostic, ManifestInvalid
from reconciler.manifest import load
from tests.hostile.broken_manifests import damaged
from tests.manifest.conftest import HEAD

SECRET = "hunter2-swordfish"


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("stack")


@settings(max_examples=500)
@given(st.integers(0, 2**32).map(damaged) | st.text(st.characters(exclude_categories=["Cs"])).map(str.encode))
def test_any_manifest_loads_or_is_refused_with_a_location(root: Path, data: bytes) -> None:
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


# Digests follow the meaning only.

ENTRIES = st.fixed_dictionaries(
    {
        "algorithm": st.fixed_dictionaries(
            {
                "code_dir": st.just("obs://b/code/"),
                "boot_file": st.just("obs://b/code/train.py"),
                "engine": st.just({"engine_id": "pt"}),
                "parameters": st.dictionaries(
                    st.from_regex(r"[a-z]{1,4}", fullmatch=True),
                    st.integers() | st.booleans() | st.from_regex("[a-z]{0,4}", fullmatch=True),
                ),
                "inputs": st.dictionaries(
                    st.sampled_from(["x", "y", "z"]), st.sampled_from(["obs://b/x/", "obs://b/y/"])
                ),
                "environments": st.dictionaries(st.sampled_from(["A", "B", "C"]), st.integers()),
            }
        ),
        "spec": st.fixed_dictionaries(
            {"resource": st.fixed_dictionaries({"flavor_id": st.just("g"), "node_count": st.integers(1, 9)})}
        ),
    }
)


def reordered(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {key: reordered(value[key]) for key in reversed(list(value))}
    return value


def as_lists(entry: Mapping[str, Any]) -> dict[str, Any]:
    algorithm = entry["algorithm"]
    return {
        **entry,
        "algorithm": {
            **algorithm,
            "parameters": [{"name": name, "value": value} for name, value in algorithm["parameters"].items()],
            "environments": [
                {name: str(value)} if value % 2 else {"name": name, "value": value}
                for name, value in algorithm["environments"].items()
            ],
        },
    }


def without_prefixes(entry: Mapping[str, Any]) -> Any:
    return json.loads(json.dumps(entry).replace("obs:/", ""))


@settings(max_examples=60)
@given(ENTRIES)
def test_digests_are_independent_of_order_form_and_prefix(root: Path, entry: dict[str, Any]) -> None:
    variants = [
        entry,
        reordered(entry),
        as_lists(entry),
        without_prefixes(entry),
        {**entry, "description": "x"},
    ]
    jobs = {f"j{number}": variant for number, variant in enumerate(variants)}
    (root / "main.yaml").write_text(HEAD + json.dumps({"jobs": jobs})[1:-1] + "\n")
    loaded = load([root / "main.yaml"], environ={})
    assert len({job.digest for job in loaded.stack.jobs.values()}) == 1
