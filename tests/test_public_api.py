"""The names that programs may import, and the example in the package's docstring."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

import reconciler


def test_every_public_name_is_there() -> None:
    for name in reconciler.__all__:
        assert getattr(reconciler, name)


def test_every_name_of_the_table_is_public_and_the_other_way_round() -> None:
    assert sorted([*reconciler._MODULE_BY_NAME, "__version__"]) == sorted(reconciler.__all__)


def test_failures_can_be_caught_by_their_public_names(tmp_path: Path) -> None:
    from reconciler import NotFound, Runtime, ServiceFailure, SystemClock, connected, load

    text = (Path(__file__).parents[1] / "examples/first-job/jobs.yaml").read_text(encoding="utf-8")
    (tmp_path / "jobs.yaml").write_text(text, encoding="utf-8")
    loaded = load([tmp_path], environ=os.environ)
    name, target = loaded.target(None)
    with connected(name, target, loaded.root, Runtime(os.environ, SystemClock())) as place:
        with pytest.raises(NotFound):
            place.backend.details("no-such-job")
        with pytest.raises(ServiceFailure):
            place.backend.terminate("no-such-job")


def test_planning_from_python(tmp_path: Path) -> None:
    from reconciler import Context, Runtime, SystemClock, connected, load, plan

    text = (Path(__file__).parents[1] / "examples/first-job/jobs.yaml").read_text(encoding="utf-8")
    (tmp_path / "jobs.yaml").write_text(text, encoding="utf-8")
    loaded = load([tmp_path], environ=os.environ)
    name, target = loaded.target(None)
    with connected(name, target, loaded.root, Runtime(os.environ, SystemClock())) as place:
        assert plan(Context(loaded, place)).document()["summary"]["create"] == 1
