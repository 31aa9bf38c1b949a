"""The size of the program, and the depth from a command line to the service.

    python benchmarks/structure.py [--tree DIRECTORY] [--write]

Prints each figure of this tree, or of another checkout. `--write` updates the table of CONTRIBUTING.md, whose
figures `tests/test_structure.py` keeps from growing. The plan is that of 60 jobs over HTTP.
"""

from __future__ import annotations

import argparse
import ast
import json
import os
import re
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterable, Mapping
from pathlib import Path

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))
TABLE = ROOT / "CONTRIBUTING.md"
JOBS = 60
TOKEN = "structure-token"  # the emulator's, and nobody else's
MANIFEST = """\
apiVersion: reconciler/v1
stack: structure
targets: {{there: {{kind: modelarts, endpoint: "{url}", project_id: p1}}}}
defaults:
  algorithm:
    code_dir: obs://b/code/
    boot_file: obs://b/code/train.py
    engine: {{engine_id: pytorch_1.8.0-cuda_10.2-py_3.7-ubuntu_18.04-x86_64}}
    environments: {{EMULATOR_RUN_SECONDS: 86400000}}
  spec: {{resource: {{flavor_id: modelarts.vm.cpu.2u}}}}
jobs:
"""
#: Figure → what it counts, in the order of the table.
FIGURES: Mapping[str, str] = {
    "lines": "Lines of `reconciler/**/*.py`",
    "test_lines": "Lines of `tests/**/*.py`",
    "modules": "Modules of `reconciler/`",
    "plan_modules": "Own modules that an unchanged plan imports",
    "plan_classes": "Own classes that it creates",
    "frames": "Own frames from the command line to an HTTP request, at most",
    "crossing_types": "Own types that cross from one room to another in a plan with one edited job",
    "used_once": "Private functions that are used once",
    "files_in_cycles": "Files that import each other in a circle",
    "rooms_in_cycles": "Rooms that import each other in a circle",
}
#: Runs a command of the tree in the working directory, and writes its figures to a file.
_PROBE = """
import gc, json, os, runpy, sys, threading
from pathlib import Path
import requests.adapters

tree, written, is_profiled = Path(sys.argv[1]) / "reconciler", sys.argv[2], sys.argv[3] == "types"
prefix, deepest, types = str(tree) + "/", 0, set()
send = requests.adapters.HTTPAdapter.send

def counted(self, *args, **kwargs):
    global deepest
    frame, depth = sys._getframe(1), 0
    while frame is not None:
        depth += frame.f_code.co_filename.startswith(prefix)
        frame = frame.f_back
    deepest = max(deepest, depth)
    return send(self, *args, **kwargs)

def room(frame):
    name = frame.f_code.co_filename
    return name.removeprefix(prefix).split("/")[0] if name.startswith(prefix) else None

def note(value):
    kind = type(value)
    if kind.__module__.startswith("reconciler.") and not isinstance(value, (BaseException, int, str)):
        types.add(kind.__module__ + "." + kind.__qualname__)

def profile(frame, event, value):
    if event not in ("call", "return") or frame.f_back is None:
        return
    here, there = room(frame), room(frame.f_back)
    if here is None or there is None or here == there:
        return
    if event == "return":
        note(value)
    else:
        code = frame.f_code
        for name in code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]:
            note(frame.f_locals.get(name))

requests.adapters.HTTPAdapter.send = counted
sys.argv = ["reconciler", *sys.argv[4:]]
if is_profiled:
    threading.setprofile(profile)
    sys.setprofile(profile)
def write(code):
    sys.setprofile(None)
    own = lambda name: (str(name) + ".").startswith("reconciler.")
    classes = [one for one in gc.get_objects() if isinstance(one, type) and own(one.__module__)]
    figures = {"code": code, "plan_modules": sum(map(own, sys.modules)), "plan_classes": len(classes),
        "frames": deepest, "crossing_types": len(types)}
    Path(written).write_text(json.dumps(figures))
    leave(code)

leave, os._exit = os._exit, write
runpy.run_module("reconciler", run_name="__main__", alter_sys=True)
"""


def measure(tree: Path) -> dict[str, int]:
    """Count every figure of a checkout."""
    sources = {path: path.read_text(encoding="utf-8") for path in sorted((tree / "reconciler").rglob("*.py"))}
    parsed = {path: ast.parse(text) for path, text in sources.items()}
    imports = _imports(tree, parsed)
    rooms: dict[str, set[str]] = {}
    for name, targets in imports.items():
        rooms.setdefault(_room(name), set()).update(map(_room, targets))
    return {
        "lines": sum(text.count("\n") for text in sources.values()),
        "test_lines": sum(path.read_bytes().count(b"\n") for path in (tree / "tests").rglob("*.py")),
        "modules": len(sources),
        **_plan_figures(tree),
        "used_once": _used_once(parsed.values()),
        "files_in_cycles": _in_cycles(imports),
        "rooms_in_cycles": _in_cycles({name: targets - {name} for name, targets in rooms.items()}),
    }


def _room(module: str) -> str:
    return ".".join(module.split(".")[:2])


def _imports(tree: Path, parsed: Mapping[Path, ast.Module]) -> dict[str, set[str]]:
    """Return module → the own modules that it imports anywhere, also for types only."""
    names = {}
    for path in parsed:
        parts = path.relative_to(tree).with_suffix("").parts
        names[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    found: dict[str, set[str]] = {}
    for name, path in names.items():
        targets = found[name] = set()
        for node in ast.walk(parsed[path]):
            if isinstance(node, ast.Import):
                targets.update(alias.name for alias in node.names)
            elif isinstance(node, ast.ImportFrom) and node.module:
                for alias in node.names:
                    member = f"{node.module}.{alias.name}"
                    targets.add(member if member in names else node.module)
        targets &= names.keys() - {name}
    return found


def _in_cycles(graph: Mapping[str, set[str]]) -> int:
    """Return the number of nodes that can be reached from themselves."""

    def reached(start: str) -> set[str]:
        seen: set[str] = set()
        waiting = list(graph[start])
        while waiting:
            if (node := waiting.pop()) not in seen:
                seen.add(node)
                waiting += graph.get(node, ())
        return seen

    return sum(node in reached(node) for node in graph)


def _used_once(modules: Iterable[ast.Module]) -> int:
    defined: Counter[str] = Counter()
    used: Counter[str] = Counter()
    for node in (node for module in modules for node in ast.walk(module)):
        match node:
            case ast.FunctionDef(name=name) if name.startswith("_") and not name.startswith("__"):
                defined[name] += 1
            case ast.Name(id=name) | ast.Attribute(attr=name):
                used[name] += 1
    return sum(count for name, count in defined.items() if used[name] == count)


def _plan_figures(tree: Path) -> dict[str, int]:
    from reconciler.emulator import ManualClock, Store, create_app, running

    job = "  train-{n:02}: {{algorithm: {{parameters: {{lr: 0.{n:02}1}}}}}}\n"
    with (
        tempfile.TemporaryDirectory() as name,
        Store(clock=ManualClock()) as store,
        running(create_app(store, token=TOKEN)) as url,
    ):
        stack = Path(name, "stack")
        stack.mkdir()
        written = Path(name, "figures.json")
        text = MANIFEST.format(url=url) + "".join(job.format(n=n) for n in range(JOBS))
        (stack / "jobs.yaml").write_text(text, encoding="utf-8")

        def run(mode: str, *arguments: str) -> dict[str, int]:
            environment = {"PATH": os.environ["PATH"], "HOME": name, "MODELARTS_AUTH_TOKEN": TOKEN}
            done = subprocess.run(
                [sys.executable, "-c", _PROBE, str(tree), str(written), mode, *arguments, str(stack)],
                cwd=tree,
                env={**environment, "PYTHONPATH": str(tree)},
                capture_output=True,
                text=True,
                check=False,
            )
            if not written.exists():
                sys.exit(f"{arguments[0]} failed:\n{done.stderr[-2000:]}")
            said: dict[str, int] = json.loads(written.read_text(encoding="utf-8"))
            written.unlink()
            return said

        run("count", "apply", "--yes")
        run("count", "plan")
        unchanged = run("count", "plan", "--detailed-exitcode")
        (stack / "jobs.yaml").write_text(text.replace("lr: 0.001", "lr: 0.5"), encoding="utf-8")
        edited = run("types", "plan", "--detailed-exitcode")
    if (unchanged.pop("code"), edited["code"]) != (0, 2):
        sys.exit(f"the plans ended with {unchanged} and {edited}")
    return {**unchanged, "crossing_types": edited["crossing_types"]}


def table() -> dict[str, list[int]]:
    """Return figure → its columns in CONTRIBUTING.md."""
    rows = re.findall(
        r"^\| (.+?) \| ([\d,]+) \| ([\d,]+) \|$", TABLE.read_text(encoding="utf-8"), re.MULTILINE
    )
    name_by_text = {text: name for name, text in FIGURES.items()}
    return {
        name_by_text[text]: [int(figure.replace(",", "")) for figure in figures]
        for text, *figures in rows
        if text in name_by_text
    }


def _write(figures: Mapping[str, int]) -> None:
    text = TABLE.read_text(encoding="utf-8")
    for name, what in FIGURES.items():
        row = re.compile(rf"^(\| {re.escape(what)} \| [\d,]+ \| )[\d,]+ \|$", re.MULTILINE)
        text = row.sub(lambda found, name=name: f"{found[1]}{figures[name]:,} |", text)  # type: ignore[misc]
    TABLE.write_text(text, encoding="utf-8")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--tree", type=Path, default=ROOT)
    parser.add_argument("--write", action="store_true")
    options = parser.parse_args()
    figures = measure(options.tree.resolve())
    for name, what in FIGURES.items():
        print(f"{figures[name]:>8,}  {what}")
    if options.write:
        _write(figures)


if __name__ == "__main__":
    main()
