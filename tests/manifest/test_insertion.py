"""Entries that are put into a manifest file: nothing that stands there is touched."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reconciler.errors import ManifestInvalid
from reconciler.manifest.format import insert_members, yaml_text
from reconciler.manifest.yaml import parse

ENTRY: dict[str, Any] = {"new": {"description": "x: y", "algorithm": {"parameters": {"lr": "0.1"}}}}
LINES = '  new:\n    description: "x: y"\n    algorithm:\n      parameters:\n        lr: "0.1"\n'


def inserted(text: str, sections: dict[str, Any] | None = None) -> str:
    document = parse(text.encode(), Path("jobs.yaml"), "jobs.yaml")
    return insert_members(document, sections or {"jobs": ENTRY}).decode()


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("jobs:\n  a: {}\n", f"jobs:\n  a: {{}}\n{LINES}"),
        ("jobs:\n  a: {}", f"jobs:\n  a: {{}}\n{LINES}"),
        (
            "jobs:\n  a: {} # c\n  # foot\n\n# top\nstack: s\n",
            f"jobs:\n  a: {{}} # c\n  # foot\n{LINES}\n# top\nstack: s\n",
        ),
        ("jobs:\n  a: {}\n\n  b: {}\n\nstack: s\n", f"jobs:\n  a: {{}}\n\n  b: {{}}\n\n{LINES}\nstack: s\n"),
        ("stack: s\n", f"stack: s\njobs:\n{LINES}"),
        ("stack: s", f"stack: s\njobs:\n{LINES}"),
        ("stack: s\n...\n", f"stack: s\njobs:\n{LINES}...\n"),
        ("", f"jobs:\n{LINES}"),
        ("# only\n", f"# only\njobs:\n{LINES}"),
        ("jobs: {}\n", f"jobs:\n{LINES}"),
        ("jobs: {} # none yet\nstack: s\n", f"jobs: # none yet\n{LINES}stack: s\n"),
        ("jobs:\n", f"jobs:\n{LINES}"),
        ("jobs: null # n\n", f"jobs: # n\n{LINES}"),
        ("jobs: &j\n  a: &a {}\n  b: *a\n", f"jobs: &j\n  a: &a {{}}\n  b: *a\n{LINES}"),
        (
            "jobs:\n  a: |\n    x\n    # y\n\nstack: s\n",
            f"jobs:\n  a: |\n    x\n    # y\n{LINES}\nstack: s\n",
        ),
        ("\ufeffjobs:\r\n  a: {}\r\n", "\ufeffjobs:\r\n  a: {}\r\n" + LINES.replace("\n", "\r\n")),
        (
            "jobs: {a: {}}\n",
            'jobs: {a: {}, "new": {"description": "x: y", "algorithm": {"parameters": {"lr": "0.1"}}}}\n',
        ),
        ("jobs:\n    a: {}\n", "jobs:\n    a: {}\n" + "".join(f"  {line}\n" for line in LINES.splitlines())),
    ],
)
def test_entry_stands_behind_those_that_are_there(before: str, after: str) -> None:
    assert inserted(before) == after


@pytest.mark.parametrize(
    "text",
    [
        "{stack: s}",
        "jobs:\n  a: |+\n    x\n\n\nstack: s\n",
        "jobs: {a: {},\n  # c\n}\n",
        "base: &b {}\njobs: *b\n",
    ],
)
def test_file_without_a_place_is_left_alone_and_named(text: str) -> None:
    with pytest.raises(ManifestInvalid) as refused:
        inserted(text)
    [problem] = refused.value.diagnostics
    assert problem.what == "cannot be edited"
    assert problem.location is not None
    assert problem.location.file == "jobs.yaml"


def test_file_that_is_not_valid_says_so() -> None:
    with pytest.raises(ManifestInvalid, match="invalid YAML"):
        inserted("jobs: [")


def test_several_sections_go_to_their_places() -> None:
    text = "stack: s\njobs:\n  a: {}\n"
    variables = {"T": {"env": "T", "sensitive": True}}
    assert inserted(text, {"variables": variables, "jobs": ENTRY}) == (
        f"{text}{LINES}variables:\n  T:\n    env: T\n    sensitive: true\n"
    )


_NAMES = st.from_regex(r"[a-z][a-z0-9_]{0,6}", fullmatch=True)
_TEXTS = st.text(st.characters(codec="utf-8", exclude_characters="\x00"), max_size=12)
_TREES = st.recursive(
    _TEXTS | st.integers() | st.booleans(),
    lambda inner: st.dictionaries(_NAMES, inner, max_size=3),
    max_leaves=6,
)


@given(st.dictionaries(_NAMES, _TREES, max_size=4), _TREES)
def test_whatever_is_there_and_comes_the_lines_that_were_there_stay(jobs: dict[str, Any], entry: Any) -> None:
    before = yaml_text({"stack": "s", "jobs": jobs}) if jobs else "stack: s\n"
    after = inserted(before, {"jobs": {"the-new-one": entry}})
    left = iter(after.splitlines())
    assert all(line in left for line in before.splitlines())
