"""docs/guides: quoted manifests are in an example, and the Airflow task can be retried.

The output of their commands is checked in tests/test_docs.py.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path
from types import ModuleType

import pytest

from docs.doc_runner import PageRun
from docs.generate import ROOT, RUN_PAGES

GUIDES = sorted(path for path in (ROOT / "docs/guides").glob("*.md") if "." not in path.stem)
_QUOTED = re.compile(r"^```yaml\n(?!# )(.*?)^```$", re.M | re.S)
_MANIFESTS = [path.read_text(encoding="utf-8") for path in sorted((ROOT / "examples").glob("*/*.yaml"))]


@pytest.mark.parametrize("guide", GUIDES, ids=lambda path: path.stem)
def test_every_guide_runs_its_commands_and_quotes_an_example(guide: Path) -> None:
    assert guide.relative_to(ROOT) in RUN_PAGES
    quoted = _QUOTED.findall(guide.read_text(encoding="utf-8"))
    assert [text for text in quoted if not any(text in manifest for manifest in _MANIFESTS)] == []


def test_airflow_task_can_be_retried(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    decorators = ModuleType("airflow.decorators")
    decorators.task = lambda **_: lambda function: function  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "airflow", ModuleType("airflow"))
    monkeypatch.setitem(sys.modules, "airflow.decorators", decorators)
    manifest = (ROOT / "examples/nightly/jobs.yaml").read_text(encoding="utf-8")
    variables = "variables:\n  bucket: {default: any}\n"
    (tmp_path / "jobs.yaml").write_text(manifest.replace("variables:\n", variables), encoding="utf-8")
    page = (ROOT / "docs/guides/notebook.md").read_text(encoding="utf-8")
    [task] = re.findall(r"^```python\n(.*?)^```$", page, re.M | re.S)
    twice = "for _ in range(2):\n    print('done:', train('.', 'vision')['done'])\n"
    shown = PageRun(tmp_path).run_again(f"```python\n{task}{twice}```\n\n```text\n```\n")
    assert re.findall(r"^done: (\d+)$", shown, re.M) == ["1", "0"]
