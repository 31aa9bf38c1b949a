"""The direction of imports, read from the source, as described in CONTRIBUTING.md."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from typing import NamedTuple

import pytest

from tests.sources import modules

CORE, DECIDE, EMULATOR, CLI = "core", "decide", "emulator", "cli"
#: Jobs that run as processes of this machine.
PROCESSES = "processes"
EDGES = frozenset({"manifest", "modelarts", "apply", "records", "render", "notify", "metrics"})
#: The loop, and modules that combine edges.
LOOP = frozenset(
    {
        "adoption",
        "code_changes",
        "connection",
        "fleet",
        "reconcile",
        "review",
        "rollout",
        "run_metadata",
        "plan_file",
        "validation",
        "watch",
    }
)
#: The version is a text; the package itself has the public API.
FREE = frozenset({"version"})
#: Below the core: exceptions, optional packages, secrets, and text for people.
BASE = frozenset({"errors", "extras", "secrets", "text"})
#: Code and code stores.
CODE = frozenset({"code", "code_store"})
#: File access, for every room.
FILES = "files"
#: Expression evaluation, for every room.
EXPRESSIONS = "expressions"
#: Known to every edge.
FACTS = BASE | {CORE, DECIDE}

#: Room → the rooms it may import besides itself and FREE.
MAY_IMPORT: Mapping[str, frozenset[str]] = {
    "text": frozenset(),
    "errors": frozenset({"text"}),
    "secrets": frozenset({"errors", "text"}),
    CORE: BASE,
    DECIDE: BASE | {CORE},
    EMULATOR: frozenset(),
    "version": frozenset(),
    "extras": frozenset({"errors"}),
    FILES: BASE,
    # The manifest reads code; the code store is an edge.
    "code": BASE | {CORE, FILES},
    "code_store": FACTS | {"code"},
    EXPRESSIONS: BASE | {CORE},
    **{edge: FACTS | {FILES, EXPRESSIONS, "code"} for edge in EDGES},
    # The embedded target is the emulator, called inside the process.
    "modelarts": FACTS | {FILES, EMULATOR},
    # They are stored like emulated ones.
    PROCESSES: FACTS | {FILES, EMULATOR, "modelarts"},
    **{module: FACTS | LOOP | EDGES | CODE | {EMULATOR, FILES, EXPRESSIONS} for module in LOOP},
    "api": FACTS | LOOP | EDGES | {FILES},
    CLI: FACTS | LOOP | EDGES | {EMULATOR, PROCESSES, FILES, EXPRESSIONS, "api", "code_store", ""},
    "": FACTS | LOOP | EDGES | {EMULATOR, FILES, "api"},
    "__main__": frozenset({CLI}),
}

#: Library → path prefixes below the package where it may be imported.
ONLY_IN: Mapping[str, tuple[str, ...]] = {
    "apprise": ("notify.py",),
    "cel": ("expressions/worker.py",),
    "click": ("cli/",),
    "cronsim": ("core/lifecycle.py",),
    "distributed": ("fleet.py",),
    "deepdiff": ("core/diff.py",),
    "huaweicloudsdkcore": ("modelarts/",),
    "psycopg": ("records/",),
    "requests": ("modelarts/",),
    "rich": ("cli/", "render/"),
    "ruamel": ("manifest/",),
    "sqlite3": ("emulator/", "records/"),
    "psutil": ("processes/",),
    "subprocess": (
        "cli/console.py",
        "expressions/evaluator.py",
        "manifest/git.py",
        "processes/",
        "run_metadata.py",
        "watch.py",
    ),
    "urllib3": ("modelarts/",),
    "waitress": ("emulator/",),
    "werkzeug": ("emulator/",),
}

#: Calls that would make a decision depend on more than its arguments.
IMPURE_MODULES = frozenset(
    {
        "asyncio",
        "concurrent",
        "glob",
        "http",
        "io",
        "logging",
        "os",
        "pathlib",
        "random",
        "secrets",
        "shutil",
        "socket",
        "subprocess",
        "sys",
        "tempfile",
        "threading",
        "time",
        "urllib.request",
        "uuid",
    }
)
IMPURE_CALLS = frozenset({"open", "input", "print", "exec", "eval"})
IMPURE_METHODS = frozenset({"now", "utcnow", "today", "read_text", "write_text", "read_bytes", "write_bytes"})


class Import(NamedTuple):
    """An import: the importing module, by its path below the package, and the imported one."""

    path: str
    line: int
    name: str

    @property
    def library(self) -> str:
        """The top-level package."""
        return self.name.partition(".")[0]

    def __str__(self) -> str:
        return f"reconciler/{self.path}:{self.line} imports {self.name}"


def _imports_of(path: str) -> Iterator[Import]:
    top = {path.removesuffix(".py").partition("/")[0] for path in modules()}
    for node in ast.walk(modules()[path]):
        if isinstance(node, ast.Import):
            yield from (Import(path, node.lineno, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}:{node.lineno} imports relatively, which this test cannot follow"
            # `from reconciler.emulator import jobs` imports both the module and the package.
            for alias in node.names:
                name = f"{node.module}.{alias.name}"
                inside = name.removeprefix("reconciler.").replace(".", "/")
                is_module = inside in top or f"{inside}.py" in modules()
                yield Import(path, node.lineno, name if is_module else str(node.module))


@cache
def _imports() -> Sequence[Import]:
    return [found for path in modules() for found in _imports_of(path)]


def _room(path: str) -> str:
    """`decide/plan.py` is in core, `modelarts/target.py` is a room of its own, the package itself is ""."""
    return "" if path == "__init__.py" else path.partition("/")[0].removesuffix(".py")


def test_every_package_is_in_the_layer_table() -> None:
    assert {_room(path) for path in modules()} - set(MAY_IMPORT) == set()


def test_imports_point_down() -> None:
    wrong = []
    for found in _imports():
        if found.library == "reconciler":
            room = _room(found.path)
            target = found.name.removeprefix("reconciler").removeprefix(".").partition(".")[0]
            if target not in MAY_IMPORT[room] | FREE | {room}:
                wrong.append(str(found))
    assert wrong == []


def _order(room: str) -> list[str]:
    """Return the files of a room by its docstring: an indented block, two spaces before a remark."""
    _, _, listed = (ast.get_docstring(modules()[f"{room}/__init__.py"]) or "").partition("::\n")
    return [name for line in listed.splitlines() for name in line.strip().split("  ")[0].split()]


@pytest.mark.parametrize(
    "room",
    [
        CORE,
        DECIDE,
        EMULATOR,
        "apply",
        "manifest",
        "modelarts",
        "render",
        "records",
        CLI,
    ],
)
def test_module_imports_only_earlier_modules(room: str) -> None:
    order = _order(room)
    names = {path.split("/")[1].removesuffix(".py") for path in modules() if path.startswith(f"{room}/")}
    assert sorted(order) == sorted(names - {"__init__"}), f"the docstring of {room} lists other files"
    wrong = []
    for found in _imports():
        importer = found.path.removesuffix(".py").split("/")
        imported = found.name.split(".")
        if (
            importer[0] == room
            and importer[1] != "__init__"
            and imported[:2] == ["reconciler", room]
            and len(imported) > 2
        ):
            is_within = importer[1] == imported[2]
            if not is_within and order.index(importer[1]) < order.index(imported[2]):
                wrong.append(str(found))
    assert wrong == []


@pytest.mark.parametrize("library", ONLY_IN)
def test_library_is_imported_only_in_its_module(library: str) -> None:
    found = [found for found in _imports() if found.library == library]
    assert [str(one) for one in found if not one.path.startswith(ONLY_IN[library])] == []


def test_core_and_decide_are_free_of_side_effects() -> None:
    pure = ("core/", "decide/")
    wrong = [str(f) for f in _imports() if f.path.startswith(pure) and IMPURE_MODULES & {f.library, f.name}]
    for path, module in modules().items():
        if path.startswith(pure):
            wrong += [f"reconciler/{path}:{line} calls {name}" for line, name in _impure_calls(module)]
    assert wrong == []


def _impure_calls(module: ast.Module) -> Iterator[tuple[int, str]]:
    for node in ast.walk(module):
        match node:
            case ast.Call(func=ast.Name(id=name)) if name in IMPURE_CALLS:
                yield node.lineno, name
            case ast.Call(func=ast.Attribute(attr=name)) if name in IMPURE_METHODS:
                yield node.lineno, name


def test_checker_detects_known_violations() -> None:
    assert len(modules()) > 50
    assert {found.library for found in _imports()} >= {"click", "deepdiff", "requests", "ruamel", "werkzeug"}
    assert list(_impure_calls(ast.parse("datetime.now()\nopen('x')"))) == [(1, "now"), (2, "open")]
