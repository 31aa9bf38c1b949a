"""A format is a module and its table row: every command with formats then offers it."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import click
import pytest

from reconciler.cli.main import COMMANDS, LazyGroup
from reconciler.render import FORMATS, Content, Format, View, formats_of
from tests.cli.conftest import Reconciler, manifest, write


def _takes_formats(name: str) -> bool:
    """Whether the help of a command mentions formats."""
    command = LazyGroup().get_command(click.Context(LazyGroup()), name)
    assert command is not None
    return any(parameter.name == "outputs" for parameter in command.params)


TAKES_FORMATS = [name for name in COMMANDS if _takes_formats(name)]
#: Command → its further arguments, and the contents it shows, in order.
ARGUMENTS: dict[str, tuple[tuple[str, ...], list[Content]]] = {
    "plan": ((), [Content.PLAN]),
    "apply": (("--yes",), [Content.PLAN, Content.RESULT]),
    "destroy": (("--yes",), [Content.PLAN, Content.RESULT]),
    "show": (("plan.json",), [Content.PLAN]),
    "drift": ((), [Content.DRIFT]),
    "review": ((".", "."), [Content.REVIEW]),
    "adopt": (("--from-stack", "before", "--yes"), [Content.PLAN]),
    "validate": ((), [Content.VALIDATION]),
    "history": ((), [Content.HISTORY]),
    "status": ((), [Content.STATUS]),
    "release": (("a", "--yes"), [Content.PLAN, Content.RESULT]),
    "watch": ((), [Content.DRIFT]),
}
#: Commands that run until stopped are tested in test_watch.py.
ENDLESS = {"watch"}


def _shout(content: Content, value: Any, view: View) -> str:
    return f"SHOUTED {content} {type(value).__name__}\n"


@pytest.fixture
def shout(monkeypatch: pytest.MonkeyPatch) -> None:
    """An added format: a module of the package, and a row."""
    module = ModuleType("reconciler.render.shout")
    module.render = _shout  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, module.__name__, module)
    monkeypatch.setitem(FORMATS, "shout", Format(frozenset(Content)))


@pytest.fixture
def stack(reconciler: Reconciler) -> None:
    """A stack of one job that runs, and a plan file."""
    write(manifest("a"))
    reconciler.ends(0, "plan --out plan.json")
    reconciler.ends(0, "apply --yes")
    write(manifest("a", "b"))


def test_every_command_with_formats_is_tested() -> None:
    assert set(TAKES_FORMATS) == set(ARGUMENTS)


@pytest.mark.usefixtures("stack", "shout")
@pytest.mark.parametrize("command", [name for name in TAKES_FORMATS if name not in ENDLESS])
def test_added_format_row_is_offered(reconciler: Reconciler, command: str) -> None:
    arguments, contents = ARGUMENTS[command]
    result = reconciler(command, *arguments, "-o", "shout", "-o", "shout=shown.txt")
    lines = [line for line in result.out.splitlines() if line.startswith("SHOUTED")]
    assert [line.split()[1] for line in lines] == contents, result.err
    assert write("", "empty.txt").with_name("shown.txt").read_text().split()[1] == contents[0]


@pytest.mark.usefixtures("stack")
def test_all_formats_are_written_by_one_run_and_from_a_saved_plan(
    reconciler: Reconciler, tmp_path: Path
) -> None:
    names = formats_of(Content.PLAN)
    for line in ("plan --out plan.json", "show plan.json"):
        reconciler.ends(0, line, *(word for name in names for word in ("-o", f"{name}=out.{name}")))
        shown = {name: (tmp_path / f"out.{name}").read_text(encoding="utf-8") for name in names}
        assert shown["markdown"].startswith("<!-- reconciler: test@there -->\n")
        assert 'data-key="b" data-action="create"' in shown["html"]
        assert all("sha256:" in shown[name] for name in ("markdown", "html"))
        assert shown["github"].startswith("::notice ")
        assert '<testcase name="b"' in shown["junit"]
        assert json.loads(shown["sarif"])["version"] == "2.1.0"
        assert (
            'reconciler_plan_actions{stack="test",target="there",action="create"} 1.0' in shown["prometheus"]
        )


@pytest.mark.usefixtures("stack")
def test_output_file_of_a_refused_apply_holds_the_plan(reconciler: Reconciler, tmp_path: Path) -> None:
    reconciler.ends(3, "apply -o markdown=out.md")
    assert "Plan: 1 to create" in Path("out.md").read_text(encoding="utf-8")
