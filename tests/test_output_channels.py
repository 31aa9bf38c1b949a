"""Everything that is written goes through the console or a writer that redacts: read from the source."""

from __future__ import annotations

import ast
from functools import cache
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parents[1] / "reconciler"

#: What writes something that somebody may read: functions, and methods of whatever.
FUNCTIONS = frozenset({"print", "echo", "secho", "confirm", "prompt", "input", "pager", "open", "fdopen"})
METHODS = frozenset(
    {"write", "writelines", "write_text", "write_bytes", "print_exc", "print_exception", "mkstemp"}
    | {"NamedTemporaryFile", "getLogger", "basicConfig", "print_tb", "warn_explicit", "faulthandler"}
)
STREAMS = frozenset({"stdout", "stderr", "__stdout__", "__stderr__"})

#: Where it may stand, and why no secret gets out there.
ALLOWED: dict[tuple[str, str], str] = {
    ("api.py", "getLogger"): "the log of the Python API, whose lines it redacts",
    ("api.py", "write"): "a plan file without secrets",
    ("cli/main.py", "echo"): "the help",
    ("cli/execution.py", "confirm"): "our own function",
    ("cli/job_actions.py", "confirm"): "our own function",
    ("cli/drift.py", "confirm"): "our own function",
    ("cli/exits.py", "write"): "a fixed sequence",
    ("cli/apply.py", "confirm"): "our own function",
    ("cli/console.py", "write"): "the console",
    ("cli/console.py", "open"): "the null device, and the file that the console writes",
    ("cli/exits.py", "open"): "the null device",
    ("cli/plan.py", "write"): "a plan file without secrets",
    ("__main__.py", "open"): "the null device",
    ("cli/progress.py", "print"): "what the console cleaned, above what is drawn",
    ("expressions/evaluator.py", "write"): "to the pipe of a process, which has them by name only",
    ("expressions/worker.py", "print"): "the pipe of that process",
    ("records/process_lock.py", "open"): "a lock file, which stays empty",
    ("records/file.py", "open"): "a database file, to be read",
    ("records/dialects.py", "open"): "the database file, made empty",
    ("reconcile.py", "open"): "the record store",
    ("manifest/git.py", "open"): "a copy of a manifest in its owner's directory, for as long as it is read",
    ("manifest/git.py", "write"): "the same, and the names of objects to git",
    ("notify.py", "getLogger"): "the logs of Apprise and its libraries, made silent while it sends",
    ("metrics.py", "getLogger"): "the log of the server's queue, made silent",
    ("fleet.py", "getLogger"): "the log of dask, led to where that of any library goes",
    ("files.py", "open"): "the file that the console writes",
    ("files.py", "fdopen"): "the file that the console writes",
    ("files.py", "write"): "the file that the console writes",
}
#: Streams are named where a style or a terminal is asked for; only here are they written to, or replaced.
WRITES_STREAMS = frozenset(
    {"__main__.py", "cli/console.py", "cli/main.py", "cli/exits.py", "cli/progress.py"}
)


@cache
def _trees() -> dict[str, list[ast.AST]]:
    """The nodes of each file; the emulator is a service, and what it writes it writes to clients."""
    return {
        path.relative_to(PACKAGE).as_posix(): list(ast.walk(ast.parse(path.read_text(encoding="utf-8"))))
        for path in sorted(PACKAGE.rglob("*.py"))
        if path.relative_to(PACKAGE).parts[0] != "emulator"
    }


def _name(call: ast.Call) -> str:
    return call.func.attr if isinstance(call.func, ast.Attribute) else getattr(call.func, "id", "")


@cache
def _calls() -> list[tuple[str, str, int]]:
    return [
        (place, _name(node), node.lineno)
        for place, nodes in _trees().items()
        for node in nodes
        if isinstance(node, ast.Call) and _name(node) in METHODS | FUNCTIONS
    ]


def test_nothing_is_written_elsewhere() -> None:
    strays = [f"{place}:{line} {name}" for place, name, line in _calls() if (place, name) not in ALLOWED]
    assert strays == []


def test_every_exception_is_needed() -> None:
    assert set(ALLOWED) - {(place, name) for place, name, _ in _calls()} == set()


def test_search_finds_what_it_looks_for() -> None:
    found = {(place, name) for place, name, _ in _calls()}
    assert {("cli/console.py", "write"), ("cli/apply.py", "confirm")} <= found


@pytest.mark.parametrize("stream", sorted(STREAMS))
def test_streams_are_handed_to_nobody_but_those_who_draw(stream: str) -> None:
    strays = []
    for place, nodes in _trees().items():
        if place in WRITES_STREAMS:
            continue
        harmless = {id(inner) for node in nodes if _only_asks(node) for inner in ast.walk(node)}
        for node in nodes:
            if isinstance(node, ast.Attribute) and node.attr == stream and _is_sys(node.value):
                strays += [f"{place}:{node.lineno}"] * (id(node) not in harmless)
    assert strays == []


def _only_asks(node: ast.AST) -> bool:
    """Whether a call only asks something of a stream, or draws on it what the display redacts."""
    return isinstance(node, ast.Call) and _name(node) in {
        "style",
        "isatty",
        "fileno",
        "flush",
        "can_draw",
        "has_reader",
        "part",
    }


def _is_sys(node: ast.AST) -> bool:
    return isinstance(node, ast.Name) and node.id == "sys"
