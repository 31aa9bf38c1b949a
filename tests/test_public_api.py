"""The names that programs may import, and the example in the package's docstring."""

from __future__ import annotations

import os
from pathlib import Path

import reconciler


def test_every_public_name_is_there() -> None:
    for name in reconciler.__all__:
        assert getattr(reconciler, name)


def test_planning_from_python(tmp_path: Path) -> None:
    from reconciler import Context, Surroundings, SystemClock, connected, load, plan

    text = (Path(__file__).parents[1] / "examples/first-job/jobs.yaml").read_text(encoding="utf-8")
    (tmp_path / "jobs.yaml").write_text(text, encoding="utf-8")
    loaded = load([tmp_path], environ=os.environ)
    name, target = loaded.target(None)
    with connected(name, target, Surroundings(loaded.root, os.environ, SystemClock())) as place:
        assert plan(Context(loaded, place)).document()["summary"]["create"] == 1
