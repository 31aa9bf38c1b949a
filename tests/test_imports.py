"""Starting is quick because little is imported. Not timed: the modules are counted."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
MANIFEST = """\
apiVersion: reconciler/v1
stack: imports
targets: {there: {kind: modelarts, endpoint: 'URL', project_id: p1}}
jobs:
  a:
    algorithm: {code_dir: obs://b/code/, boot_file: obs://b/code/train.py, engine: {engine_id: pytorch}}
    spec: {resource: {flavor_id: modelarts.vm.cpu.2u}}
"""
_PROBE = """\
import sys
from reconciler.cli import cli
from reconciler.cli.entrypoint import run
code = run(cli, sys.argv[1:])
sys.stdout.flush()
print(*sys.modules, sep="\\n", file=sys.stderr)
sys.exit(code)
"""


def _loaded(*arguments: str) -> set[str]:
    """Run the command line in a fresh process; return the top-level packages that it loaded."""
    done = subprocess.run(
        [sys.executable, "-c", _PROBE, *arguments], cwd=ROOT, check=True, capture_output=True, text=True
    )
    return {name.partition(".")[0] for name in done.stderr.split()}


HEAVY = {"deepdiff", "sqlalchemy", "jinja2", "rich", "huaweicloudsdkcore", "prometheus_client"}


@pytest.mark.parametrize("arguments", [["--help"], ["--version"]])
def test_help_loads_neither_models_nor_network(arguments: list[str]) -> None:
    loaded = _loaded(*arguments)
    assert "click" in loaded
    assert loaded & {*HEAVY, "pydantic", "requests", "ruamel", "waitress", "werkzeug", "asyncio"} == set()


def test_an_unchanged_plan_on_the_service_loads_no_more_than_it_needs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from reconciler.emulator import ManualClock, Store, create_app, running

    monkeypatch.setenv("MODELARTS_AUTH_TOKEN", "tell-nobody-1")
    with Store(clock=ManualClock()) as store, running(create_app(store, token="tell-nobody-1")) as url:
        (tmp_path / "jobs.yaml").write_text(MANIFEST.replace("URL", url), encoding="utf-8")
        _loaded("apply", "--yes", str(tmp_path))
        # The first plan writes down what it saw.
        _loaded("plan", str(tmp_path))
        loaded = _loaded("plan", "--detailed-exitcode", str(tmp_path))
    assert {"pydantic", "requests"} <= loaded
    assert loaded & {*HEAVY, "waitress", "werkzeug"} == set()


def test_status_loads_no_more_than_a_plan_and_the_records(
    tmp_path: Path,
) -> None:
    text = MANIFEST.replace("{kind: modelarts, endpoint: 'URL', project_id: p1}", "{kind: local}")
    (tmp_path / "jobs.yaml").write_text(text, encoding="utf-8")
    assert _loaded("status", str(tmp_path)) & (HEAVY | {"waitress"}) == set()
    _loaded("apply", "--yes", str(tmp_path))
    assert _loaded("status", str(tmp_path)) & (HEAVY | {"waitress"}) == {"sqlalchemy"}


def test_an_unchanged_plan_on_the_local_target_needs_no_server(tmp_path: Path) -> None:
    text = MANIFEST.replace("{kind: modelarts, endpoint: 'URL', project_id: p1}", "{kind: local}")
    (tmp_path / "jobs.yaml").write_text(text, encoding="utf-8")
    _loaded("apply", "--yes", str(tmp_path))
    loaded = _loaded("plan", "--detailed-exitcode", str(tmp_path))
    assert "werkzeug" in loaded
    # Its job moves on between the two commands, and what moved is written down.
    assert loaded & {*HEAVY - {"sqlalchemy"}, "waitress"} == set()
