"""Startup is fast because little is imported. Modules are counted, not timed."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from tests.sources import modules

ROOT = Path(__file__).parents[1]
MANIFEST = """\
apiVersion: reconciler/v1
stack: imports
targets: {there: {kind: modelarts, endpoint: 'URL', project_id: p1}}
jobs:
  a:
    algorithm:
      code_dir: obs://b/code/
      boot_file: obs://b/code/train.py
      engine: {engine_id: pytorch_1.8.0-cuda_10.2-py_3.7-ubuntu_18.04-x86_64}
    spec: {resource: {flavor_id: modelarts.vm.cpu.2u}}
"""
_MODULES = 'import sys; print(*sys.modules, sep="\\n", file=sys.stderr)'
_PROBE = """\
import sys
from reconciler.cli.main import cli, run
code = run(cli, sys.argv[1:])
sys.stdout.flush()
print(*sys.modules, sep="\\n", file=sys.stderr)
sys.exit(code)
"""


def _loaded(*arguments: str, code: str = _PROBE) -> set[str]:
    """Run the command line in a fresh process; return the top-level packages it loaded."""
    command = [sys.executable, "-c", code, *arguments]
    done = subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True)
    return {name.partition(".")[0] for name in done.stderr.split()}


HEAVY = {
    *("cel", "cronsim", "deepdiff", "jinja2", "rich", "huaweicloudsdkcore"),
    *("psycopg", "apprise", "distributed", "obstore"),
}
MODELS_AND_NETWORK = {*HEAVY, "pydantic", "requests", "ruamel", "waitress", "werkzeug", "asyncio"}


_ALL_COMMANDS = """\
import sys
from reconciler.cli.main import COMMANDS, LazyGroup
for name in COMMANDS:
    LazyGroup().get_command(None, name)
print(*sys.modules, sep="\\n", file=sys.stderr)
"""


@pytest.mark.parametrize("code", [f"import sys; sys.argv[1:] = ['--help']\n{_PROBE}", _ALL_COMMANDS])
def test_help_and_options_load_neither_models_nor_network(code: str) -> None:
    """`COMMAND --help` and a misspelt option must be fast."""
    loaded = _loaded(code=code)
    assert "click" in loaded
    assert loaded & MODELS_AND_NETWORK == set()


def test_unchanged_plan_on_the_service_loads_no_more_than_it_needs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from reconciler.emulator import ManualClock, Store, create_app, running

    monkeypatch.setenv("MODELARTS_AUTH_TOKEN", "tell-nobody-1")
    with Store(clock=ManualClock()) as store, running(create_app(store, token="tell-nobody-1")) as url:
        (tmp_path / "jobs.yaml").write_text(MANIFEST.replace("URL", url), encoding="utf-8")
        _loaded("apply", "--yes", str(tmp_path))
        # The first plan records what it observed.
        _loaded("plan", str(tmp_path))
        loaded = _loaded("plan", "--detailed-exitcode", str(tmp_path))
    assert {"pydantic", "requests"} <= loaded
    assert loaded & {*HEAVY, "waitress", "werkzeug"} == set()


def test_job_supervisor_loads_no_models() -> None:
    assert "pydantic" not in _loaded(code=f"from reconciler.processes.supervisor import main\n{_MODULES}")


def test_validate_loads_no_planner_and_reads_no_package_metadata(tmp_path: Path) -> None:
    (tmp_path / "jobs.yaml").write_text(MANIFEST.replace("URL", "http://127.0.0.1:1"), encoding="utf-8")
    code = (
        "import os, sys, reconciler.__main__ as entry\n"
        "os._exit = lambda code: print(*sys.modules, file=sys.stderr)\n"
        "entry.main()"
    )
    command = [sys.executable, "-c", code, "validate", str(tmp_path)]
    done = subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True)
    loaded = set(done.stderr.split())
    assert "pydantic" in loaded
    assert loaded & {"importlib.metadata", "reconciler.decide.rules", "reconciler.decide.key_state"} == set()


def test_status_and_an_unchanged_plan_on_the_local_target_need_no_server(tmp_path: Path) -> None:
    text = MANIFEST.replace("{kind: modelarts, endpoint: 'URL', project_id: p1}", "{kind: local}")
    (tmp_path / "jobs.yaml").write_text(text, encoding="utf-8")
    assert _loaded("status", str(tmp_path)) & (HEAVY | {"waitress"}) == set()
    _loaded("apply", "--yes", str(tmp_path))
    assert _loaded("status", str(tmp_path)) & (HEAVY | {"waitress"}) == set()
    loaded = _loaded("plan", "--detailed-exitcode", str(tmp_path))
    assert "werkzeug" in loaded
    assert loaded & (HEAVY | {"waitress"}) == set()


OPTIONS = "loaded with the options of a command, whose --help needs nothing of what it does"
UNUSED = "what it imports is not needed by every command, an unchanged plan or a check of a manifest"

#: Modules in which a function may import, and why; all others import at the top.
LATE: Mapping[str, str] = {
    "__main__.py": "an interrupt while modules are imported ends it quietly, too",
    "expressions/worker.py": "the limits of the process come before the library",
    **{
        f"cli/{name}.py": OPTIONS
        for name in (
            "apply",
            "code",
            "context",
            "drift",
            "jobs",
            "main",
            "options",
            "output",
            "plan",
            "project",
            "run",
        )
    },
    **dict.fromkeys(
        [
            *("cli/console.py", "cli/exits.py", "cli/live.py", "cli/progress.py", "cli/watch.py"),
            *("connection.py", "core/addresses.py", "core/diff.py", "core/lifecycle.py", "core/mutable.py"),
            *("code.py", "core/stack.py"),
            *("decide/cost.py", "decide/guards.py", "decide/key_state.py", "decide/plan.py"),
            *("decide/planner.py", "decide/renames.py", "emulator/server.py"),
            *("expressions/evaluator.py", "fleet.py", "manifest/files.py", "manifest/load.py"),
            *(
                "manifest/problems.py",
                "manifest/variables.py",
                "manifest/yaml.py",
                "modelarts/auth.py",
                "modelarts/connect.py",
                "modelarts/objects.py",
                "plan_file.py",
            ),
            *("modelarts/local.py", "notify.py", "reconcile.py"),
            *("records/dialects.py", "records/recording.py", "records/store.py", "render/text.py"),
            *("run_metadata.py", "validation.py"),
        ],
        UNUSED,
    ),
}


def _importing_late() -> Iterator[str]:
    for path, tree in modules().items():
        functions = (node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef))
        inside = (node for function in functions for node in ast.walk(function))
        if any(isinstance(node, ast.Import | ast.ImportFrom) for node in inside):
            yield path


def test_function_level_imports_are_only_for_startup_time() -> None:
    """A command module holds only its options; its implementation is imported when called."""
    late = set(_importing_late())
    assert late - LATE.keys() == set(), "import at the top of the module, or say here why not"
    assert LATE.keys() - late == set(), "imports at the top by now: take it out of the table"
