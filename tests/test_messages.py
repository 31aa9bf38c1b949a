"""Messages name only existing commands and options."""

from __future__ import annotations

import ast
import re
import shlex
from collections.abc import Callable, Iterator, Sequence
from functools import cache
from pathlib import Path
from typing import NamedTuple

import click
import pytest

from reconciler.cli.main import cli
from tests.sources import modules

ROOT = Path(__file__).parents[1]
PAGES = [
    page
    for pattern in ("README.md", "CONTRIBUTING.md", "docs/**/*.md", "examples/**/*.md", "benchmarks/*.md")
    for page in sorted(ROOT.glob(pattern))
]

#: Placeholders for values in messages.
_VALUE = "X"
_MENTION = re.compile(r"(?<![\w./`-])`?reconciler((?: +[a-z][a-z-]*)+)([^`\n;]*)")
_OPTION = re.compile(r"(?<![\w-])--[a-z][a-z0-9-]*")
#: The program as a noun: "a reconciler that knows it".
_PROSE = frozenset(
    [
        *("and", "can", "cannot", "did", "does", "has", "is", "itself", "keeps", "knows", "nor", "or"),
        *("that", "to"),
    ]
)
_IMPORT = re.compile(r"from reconciler import .*")
#: Options of git and pip, and of the training that `init` writes.
_OF_OTHERS = frozenset(
    [
        *("--no-optional-locks", "--porcelain", "--no-pager", "--git-common-dir", "--show-prefix"),
        *("--epochs", "--lr", "--train"),
        *("--verify", "--quiet", "--full-tree", "--batch", "--get", "--get-regexp", "--name-only"),
        *("--ignore-submodules", "--upgrade", "--system-site-packages", "--query-gpu", "--format"),
    ]
)


class Text(NamedTuple):
    """A text of the program or of a page, with its location."""

    place: str
    line: int
    text: str

    def __str__(self) -> str:
        return f"{self.place}:{self.line}: {self.text[:100]!r}"


def _texts(place: str, tree: ast.Module) -> Iterator[Text]:
    """Yield every string literal of a module, an f-string as one text."""
    parts = {id(part) for node in ast.walk(tree) if isinstance(node, ast.JoinedStr) for part in node.values}
    for node in ast.walk(tree):
        match node:
            case ast.JoinedStr(values=values):
                said = (v.value if isinstance(v, ast.Constant) else _VALUE for v in values)
                yield Text(place, node.lineno, "".join(map(str, said)))
            case ast.Constant(value=str(text)) if id(node) not in parts:
                yield Text(place, node.lineno, text)


@cache
def of_the_program() -> Sequence[Text]:
    return [text for place, tree in modules().items() for text in _texts(place, tree)]


def of_the_pages() -> Sequence[Text]:
    return [
        Text(str(page.relative_to(ROOT)), number, line)
        for page in PAGES
        for number, line in enumerate(page.read_text(encoding="utf-8").splitlines(), start=1)
    ]


def _commands(
    group: click.Group, words: tuple[str, ...] = ()
) -> Iterator[tuple[tuple[str, ...], click.Command]]:
    context = click.Context(group)
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        assert command is not None
        yield (*words, name), command
        if isinstance(command, click.Group):
            yield from _commands(command, (*words, name))


BY_WORDS = dict(_commands(cli))
OPTIONS = {
    words: {o for p in command.params for o in p.opts} | {"--help"} for words, command in BY_WORDS.items()
}
EVERY_OPTION = set().union(*OPTIONS.values())


def wrong_commands(text: str) -> list[str]:
    """Return the mentions of `reconciler …` with an unknown command or option."""
    wrong = []
    for words, rest in _MENTION.findall(_IMPORT.sub("", text)):
        command = tuple(words.split()[:1])
        if command[0] in _PROSE:
            continue
        if isinstance(BY_WORDS.get(command), click.Group):
            command = tuple(words.split()[:2])
        name = " ".join(("reconciler", *command))
        if command not in BY_WORDS:
            wrong.append(name)
        else:
            wrong += [f"{name} {o}" for o in _OPTION.findall(rest) if o not in OPTIONS[command]]
    return wrong


def wrong_options(text: str) -> list[str]:
    """Return the options that no command has."""
    return [option for option in _OPTION.findall(text) if option not in EVERY_OPTION | _OF_OTHERS]


_BLOCK = re.compile(r"^ *```bash\n(.*?)^ *```$", re.M | re.S)
_COMMAND_LINE = re.compile(r"^ *(?:[A-Z_]+=\S+ )*reconciler (.*?)(?: [|>&].*)?$", re.M)


def _parse(line: str) -> None:
    """Parse a command line without running it."""
    words = shlex.split(line, comments=True)
    name = tuple(words[: 2 if isinstance(BY_WORDS.get((words[0],)), click.Group) else 1])
    context = click.Context(cli, info_name="reconciler", **cli.context_settings)
    BY_WORDS[name].make_context(" ".join(name), words[len(name) :], parent=context)


def test_documented_command_lines_are_valid() -> None:
    """Command lines that are not run when the pages are generated."""
    blocks = "".join(block for page in PAGES for block in _BLOCK.findall(page.read_text(encoding="utf-8")))
    lines = _COMMAND_LINE.findall(blocks.replace("\\\n", " "))
    assert len(lines) > 25
    for line in lines:
        _parse(line)


@pytest.mark.parametrize(
    ("read", "find"),
    [(of_the_program, wrong_commands), (of_the_program, wrong_options), (of_the_pages, wrong_commands)],
    ids=["commands of texts", "options of texts", "commands of pages"],
)
def test_messages_name_only_existing_commands_and_options(
    read: Callable[[], Sequence[Text]], find: Callable[[str], list[str]]
) -> None:
    texts = read()
    assert sum("reconciler " in text.text for text in texts) > 20
    assert sum(bool(_OPTION.search(text.text)) for text in texts) > 60
    assert [(str(text), wrong) for text in texts if (wrong := find(text.text))] == []


def test_checker_detects_known_violations() -> None:
    assert wrong_commands("reconciler jobs lst; reconciler plan --wait; a reconciler that knows it") == [
        "reconciler jobs lst",
        "reconciler plan --wait",
    ]
    assert wrong_options("add --froce, or --force") == ["--froce"]
    with pytest.raises(click.UsageError):
        _parse("watch --every soon  # a value that the option does not take")
