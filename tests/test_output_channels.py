"""All output goes through the console or a redacting writer; checked in the source."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from tests.sources import modules

#: Functions and methods that write output.
FUNCTIONS = frozenset({"print", "echo", "secho", "confirm", "prompt", "input", "pager", "open", "fdopen"})
METHODS = frozenset(
    {"write", "writelines", "write_text", "write_bytes", "print_exc", "print_exception", "mkstemp"}
    | {"NamedTemporaryFile", "getLogger", "basicConfig", "print_tb", "warn_explicit", "faulthandler"}
)
STREAMS = frozenset({"stdout", "stderr", "__stdout__", "__stderr__"})

#: Where they may be used, and why no secret leaks there.
ALLOWED: dict[tuple[str, str], str] = {
    ("api.py", "getLogger"): "the log of the Python API, whose lines it redacts",
    ("cli/main.py", "echo"): "the help",
    ("cli/execution.py", "confirm"): "our own function",
    ("cli/job_actions.py", "confirm"): "our own function",
    ("cli/code.py", "confirm"): "our own function",
    ("cli/execution.py", "write"): "a fixed sequence, and a line of the console",
    ("cli/apply.py", "confirm"): "our own function",
    ("cli/console.py", "echo"): "a question, cleaned",
    ("cli/console.py", "write"): "the console",
    ("cli/console.py", "confirm"): "a question that the console cleaned",
    ("cli/console.py", "open"): "the null device, and the file that the console writes",
    ("cli/exits.py", "open"): "the null device",
    ("__main__.py", "open"): "the null device",
    ("cli/progress.py", "print"): "what the console cleaned, above what is drawn",
    ("expressions/evaluator.py", "write"): "to the pipe of a process, which has them by name only",
    ("expressions/worker.py", "print"): "the pipe of that process",
    ("records/file.py", "open"): "a database file, to be read, and a lock file, which stays empty",
    ("manifest/git.py", "write_bytes"): "a copy of a manifest in its owner's directory, while it is read",
    ("notify.py", "getLogger"): "the logs of Apprise and its libraries, made silent while it sends",
    ("metrics.py", "write"): "figures, and whether the last check went well",
    ("fleet.py", "getLogger"): "the log of dask, led to where that of any library goes",
    ("processes/execution.py", "open"): "the lock of a virtual environment that is built",
    ("code.py", "open"): "a file of code, to be read",
    ("code_store.py", "open"): "a file of code, to be uploaded",
    ("processes/table.py", "open"): "what a job wrote, and what its supervisor says of faults",
    ("processes/supervisor.py", "write"): "what a job writes: `jobs logs` redacts it",
    ("files.py", "open"): "the file that the console writes",
    ("files.py", "fdopen"): "the file that the console writes",
    ("files.py", "write"): "the file that the console writes",
}
#: Only here are streams written to or replaced; elsewhere only queried for style or terminal.
WRITES_STREAMS = frozenset(
    {"__main__.py", "cli/console.py", "cli/main.py", "cli/exits.py", "cli/execution.py", "cli/progress.py"}
)


def _trees() -> Iterator[tuple[str, ast.Module]]:
    """Yield the modules except the emulator, whose output goes to its clients."""
    return (module for module in modules().items() if not module[0].startswith("emulator/"))


def _name(call: ast.Call) -> str:
    return call.func.attr if isinstance(call.func, ast.Attribute) else getattr(call.func, "id", "")


def test_output_goes_through_the_console_with_listed_exceptions() -> None:
    calls = [
        (place, _name(node))
        for place, tree in _trees()
        for node in ast.walk(tree)
        if isinstance(node, ast.Call) and _name(node) in METHODS | FUNCTIONS
    ]
    assert {*calls} ^ ALLOWED.keys() == set()


def test_streams_are_passed_to_drawing_code_only() -> None:
    strays = []
    for place, tree in _trees():
        harmless = {id(inner) for node in ast.walk(tree) if _only_asks(node) for inner in ast.walk(node)}
        for node in ast.walk(tree):
            if isinstance(node, ast.Attribute) and node.attr in STREAMS and _is_sys(node.value):
                strays += [f"{place}:{node.lineno}"] * (id(node) not in harmless)
    assert [stray for stray in strays if stray.partition(":")[0] not in WRITES_STREAMS] == []
    assert {stray.partition(":")[0] for stray in strays} & WRITES_STREAMS, (
        "the search finds what it looks for"
    )


def _only_asks(node: ast.AST) -> bool:
    """Whether a call only queries a stream, or draws redacted content on it."""
    asking = {"style", "isatty", "fileno", "flush", "can_draw", "part"}
    return isinstance(node, ast.Call) and _name(node) in asking


def _is_sys(node: ast.AST) -> bool:
    return isinstance(node, ast.Name) and node.id == "sys"
