"""A reviewer sees what is loaded: characters that hide or reorder text are errors."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from reconciler.errors import Diagnostic
from reconciler.manifest.yaml import Document, parse
from reconciler.render.text import render_diagnostics
from reconciler.text import visible
from tests.each import each
from tests.manifest.conftest import HEAD, JOB, Place, place_of, read

SEPARATORS = ("\x85", "\u2028", "\u2029")
DIRECTION = tuple(map(chr, (0x61C, 0x200E, 0x200F, *range(0x202A, 0x202F), *range(0x2066, 0x206A))))

#: Places outside quotes: `@` marks the character, and the location of the problem.
OUTSIDE = {
    "comment": "stack: s\n# one@jobs: {}\n",
    "comment behind a value": "stack: s # x@\n",
    "plain value": "stack: s\nx: a@b\n",
    "end of a plain value": "x: a@\n",
    "plain key": "x@y: 1\n",
    "before a key": "@x: 1\n",
    "hidden key": "stack: s # note@limits: {terminations: 9}\n",
    "after a plain value": "x: a@y: b\n",
    "literal block": "x: |\n  one\n  two@three\n",
    "folded block": "x: >-\n  one\n  two@three\n",
    "flow": "x: [a, @b]\n",
    "flow with an expression": "x: {u: obs://${var.b}/, v: c@d}\n",
    "between quoted texts": "x: ['a',@ \"b\"]\n",
    "before a syntax error": "x: a@b\ny: [\n",
    "anchor": "x: &a@ 1\n",
    "old mac": "x: 1\ry: 2\rz: a@b\r",
    "dos": "x: 1\r\nz: a@b\r\n",
}
#: Places in quotes, with the loaded value (None: the file has another error).
INSIDE: dict[str, tuple[str, dict[str, Any] | None]] = {
    "double": ('x: "a@b"\ny: 1\n', {"x": "a@b", "y": 1}),
    "single": ("x: 'a@b'\n", {"x": "a@b"}),
    "key": ('"a@b": 1\n', {"a@b": 1}),
    "at the ends": ('x: "@ @"\n', {"x": "@ @"}),
    "several lines": ("x: 'a\n  b@c\n  d'\n", {"x": "a b@c d"}),
    "flow": ("x: {u: o://${var.b}/, 'v': 'c@d'}\n", {"x": {"u": "o://${var.b}/", "v": "c@d"}}),
    "before a syntax error": ("x: 'a@b'\ny: [\n", None),
    "in quotes that do not end": ("y: 1\nx: 'a@b\n", None),
}


def refused(document: Document) -> list[Diagnostic]:
    return [one for one in document.problems if one.what == "character not allowed"]


def place_in(text: str, index: int) -> str:
    """Return the location as an editor shows it."""
    lines = text[:index].replace("\r\n", "\n").replace("\r", "\n").split("\n")
    return f"a.yaml:{len(lines)}:{len(lines[-1]) + 1}"


@each("char", [*SEPARATORS, *DIRECTION])
@pytest.mark.parametrize("text", OUTSIDE.values(), ids=OUTSIDE)
def test_character_outside_quotes_is_an_error_at_its_place(text: str, char: str) -> None:
    problem = refused(read(text.replace("@", char)))[0]
    assert place_of(problem) == place_in(text, text.index("@"))
    assert f"U+{ord(char):04X}" in problem.why
    assert f"\\u{ord(char):04x}" in (problem.fix or "")


@each("char", DIRECTION)
@pytest.mark.parametrize("text", [text for text, _ in INSIDE.values()], ids=INSIDE)
def test_direction_mark_in_quotes_is_an_error(text: str, char: str) -> None:
    problem = refused(read(text.replace("@", char)))[0]
    assert place_of(problem) == place_in(text, text.index("@"))


@each("char", SEPARATORS)
@pytest.mark.parametrize(("text", "tree"), INSIDE.values(), ids=INSIDE)
def test_separator_in_quotes_is_text(text: str, tree: dict[str, Any] | None, char: str) -> None:
    document = read(text.replace("@", char))
    assert not refused(document)
    if tree is not None:
        assert repr(document.tree) == repr(tree).replace("@", repr(char)[1:-1])


@pytest.mark.parametrize(
    "text", ["x: '\u2028'\ny: \x07\n", "x: \u2028" + "".join(map(chr, range(0xFDD0, 0xFDF0)))]
)
def test_unparsable_file_with_a_separator_has_one_error(text: str) -> None:
    document = read(text)
    assert [problem.what for problem in document.problems] == ["invalid YAML"]


def test_visible_escape_sequence_is_text() -> None:
    document = read(r'x: "a\u202eb\u2028c\Nd"')
    assert not document.problems
    assert document.tree == {"x": "a\u202eb\u2028c\x85d"}


def test_line_number_after_a_separator_equals_that_of_editors(place: Place) -> None:
    place.write(f"{HEAD}x1: 'a\u2028b\x85c'\njobs:\n  a: {{}}\n  '': {{}}\n")
    assert "main.yaml:3:1" in {place_of(problem) for problem in place.problems()}


def test_character_in_a_variable_file_is_an_error(place: Place) -> None:
    place.write(f"{HEAD}variables: {{v: {{default: 1}}}}\n")
    values = place.write("v: a\u202eb\n", "values.txt")
    problem = place.problem(var_files=[values])
    assert (problem.what, place_of(problem)) == ("character not allowed", "values.txt:1:5")
    assert problem.snippet is None


def test_hidden_character_does_not_mask_other_errors(place: Place) -> None:
    place.write(f"{HEAD}jbos: {{}}\njobs:\n  a:{JOB}    description: a\u200fb\n")
    assert {problem.what for problem in place.problems()} == {"character not allowed", "unknown field"}


def test_hidden_characters_beyond_a_limit_are_counted() -> None:
    problems = refused(read("x: " + "a\u202e" * 5000))
    assert len(problems) == 21
    assert problems[-1].why == "4,980 more like this"


@given(
    st.lists(
        st.sampled_from(
            (*SEPARATORS, *DIRECTION, *"'\"\\#:-|>[]{}, \n\r\t\x0b\x0c\x1b", "stack: s", "x: ", "\n::error::")
        )
        | st.text(max_size=3)
    ).map("".join)
)
@example("stack: '\u2028\n::error::x::'\n'a\u2028\n::error::x::': &b\n")
def test_diagnostics_are_sanitized_for_terminal_and_ci(text: str) -> None:
    document = parse(text.encode("utf-8", "replace"), Path("a.yaml"), "::error::x\u202e\n::.yaml")
    document.may_show_lines = True
    for line in render_diagnostics(document.problems).split("\n"):
        assert visible(line) == line
        assert not line.lstrip().startswith("::")
        assert len(line.splitlines()) <= 1


def test_snippet_escapes_a_hidden_character() -> None:
    snippet = refused(read("stack: s\u202e\n"))[0].snippet
    assert snippet is not None
    assert snippet.cut().text == r"stack: s\u202e"
