"""Stacks in a tree: every root file below it, found with minimal parsing."""

from __future__ import annotations

from pathlib import Path

import pytest

from reconciler.errors import WrongUsage
from reconciler.manifest.files import StackRoot, files_digest, find_roots
from reconciler.manifest.yaml import parse, plain_stack_name

TEXTS = {
    "plain": ("stack: vision\n", "vision"),
    "not first": (
        "# a comment\n\n---\napiVersion: reconciler/v1\nstack: vision  # ours\njobs: {}\n",
        "vision",
    ),
    "line ends of Windows": ("apiVersion: reconciler/v1\r\nstack: vision\r\n", "vision"),
    "quoted": ("stack: 'vision'\n", None),
    "quoted key": ("'stack': vision\n", None),
    "flow mapping": ("{stack: vision}\n", None),
    "nested": ("jobs:\n  stack: vision\n", None),
    "in a text": ("jobs: |\n  stack: vision\n", None),
    "in a comment": ("jobs: {}\n# stack: vision\n", None),
    "no text": ("stack: 1\n", None),
    "a word of YAML": ("stack: true\n", None),
    "nothing": ("stack:\n", None),
    "twice": ("stack: a\nstack: b\n", None),
    "a list": ("- a\nstack: vision\n", None),
    "two documents": ("stack: a\n---\nstack: b\n", None),
    "another key": ("stacks: vision\nmystack: vision\n", None),
    "empty": ("", None),
}


@pytest.mark.parametrize(("text", "name"), TEXTS.values(), ids=TEXTS)
def test_stack_name_found_without_the_parser_equals_the_parsed_one(text: str, name: str | None) -> None:
    seen = plain_stack_name(text.encode())
    assert seen == name
    document = parse(text.encode(), Path("a.yaml"), "a.yaml")
    assert seen in (None, document.tree.get("stack"))


@pytest.mark.parametrize("name", TEXTS)
def test_root_file_is_found_in_any_spelling_of_stack(tmp_path: Path, name: str) -> None:
    text, _ = TEXTS[name]
    (tmp_path / "stack.yaml").write_text("stack: top\n", encoding="utf-8")
    (tmp_path / "inner").mkdir()
    (tmp_path / "inner" / "a.yaml").write_text(text, encoding="utf-8", newline="")
    document = parse(text.encode(), Path("a.yaml"), "a.yaml")
    stack_name = document.tree.get("stack")
    inner = [StackRoot(tmp_path / "inner", stack_name if isinstance(stack_name, str) else None)]
    assert find_roots([tmp_path]) == [StackRoot(tmp_path, "top"), *(inner if document.is_root_file else [])]


def test_directory_reached_twice_is_one_root(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "stack.yaml").write_text("stack: a\n", encoding="utf-8")
    (tmp_path / "link").symlink_to(tmp_path / "a")
    assert [root.directory for root in find_roots([tmp_path, tmp_path / "a"])] == [tmp_path / "a"]


def test_variable_file_is_no_root_file_and_file_is_no_tree(tmp_path: Path) -> None:
    (tmp_path / "stack.yaml").write_text("stack: a\n", encoding="utf-8")
    (tmp_path / "values").mkdir()
    values = tmp_path / "values" / "values.yaml"
    values.write_text("stack: b\n", encoding="utf-8")
    assert [root.name for root in find_roots([tmp_path], [values])] == ["a"]
    with pytest.raises(WrongUsage, match="not a directory"):
        find_roots([values])


@pytest.mark.parametrize("same", [True, False])
def test_files_digest_covers_names_and_bytes(tmp_path: Path, same: bool) -> None:
    for name in ("one", "two"):
        (tmp_path / name / "below").mkdir(parents=True)
        (tmp_path / name / "stack.yaml").write_text("stack: a\n", encoding="utf-8")
        other = "jobs" if same else name
        (tmp_path / name / "below" / f"{other}.yaml").write_text("jobs: {}\n", encoding="utf-8")
    assert (files_digest(tmp_path / "one") == files_digest(tmp_path / "two")) is same
