"""Tables and lists of keys fit the terminal, by cells, and no name is broken."""

from __future__ import annotations

import itertools
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len as cells_by_rich

from reconciler.errors import Diagnostic, Location, Snippet
from reconciler.render import Style
from reconciler.render.text import brace_expansion, cell_len, pad, render_diagnostics, table


@given(st.text(st.characters(exclude_categories=("Cs", "Cc")), max_size=60), st.integers(0, 60))
def test_cell_width_equals_that_of_rich(text: str, width: int) -> None:
    assert cell_len(text) == cells_by_rich(text)
    assert cell_len(pad(text, width)) == max(width, cell_len(text))


# ── tables ─────────────────────────────────────────────────────────────────────────────────────────

HEAD = ("KEY", "PHASE", "WAITS FOR")
ROWS = (
    HEAD,
    ("resnet50-nightly", "Running", "apply, to replace it"),
    ("训练", "Pending", "other-job-of-the-stack"),
)


def test_table_that_fits_has_its_minimal_width() -> None:
    assert table(ROWS, Style(width=80)) == table(ROWS, Style())


_CELL = st.lists(st.text("ab训", min_size=1, max_size=9), min_size=1, max_size=5).map(" ".join)


@given(
    st.lists(st.tuples(st.text("ab训", min_size=1, max_size=30), *[_CELL] * 3), min_size=2),
    st.integers(44, 70),
    st.permutations(range(1, 4)),
)
def test_wide_table_drops_the_least_important_columns_and_wraps_at_spaces(
    rows: list[tuple[str, ...]], width: int, places: list[int]
) -> None:
    head = ("key", "one", "two", "three")
    lines = table([head, *rows], Style(width=width), [head[place] for place in (0, *places)])
    assert max(map(cell_len, lines)) <= max(width, max(cell_len(row[0]) for row in rows))
    shown = [name in lines[0] for name in (head[place] for place in (0, *places))]
    assert shown[:2] == [True, True]
    assert shown == sorted(shown, reverse=True)
    assert lines[0].endswith("…") is not all(shown)
    names = [line for line in lines if not line.startswith(" ")]
    assert [line.split("  ")[0].rstrip() for line in names] == ["key", *(row[0] for row in rows)]
    words = [
        word
        for row in rows
        for place in (0, *places)
        if head[place] in lines[0]
        for word in row[place].split()
    ]
    assert sorted(words) == sorted(" ".join(lines[1:]).split())


def test_dropped_columns_depend_on_their_order_only() -> None:
    assert table(ROWS, Style(width=45)) == [
        "KEY               PHASE  …", "resnet50-nightly  Running", "训练              Pending",
    ]  # fmt: skip
    # A few cells are wrapped; if too many, the column is dropped.
    few = (*ROWS[:2], ("b", "Failed", "apply, to create its next revision"), *[("c", "Failed", "")] * 2)
    assert table(few, Style(width=52))[:4] == [
        "KEY               PHASE    WAITS FOR", "resnet50-nightly  Running  apply, to replace it",
        "b                 Failed   apply, to create its next", "                           revision",
    ]  # fmt: skip
    assert table(few[:-1], Style(width=52))[0] == "KEY               PHASE  …"
    rows = (("KEY", "VALUE", "FROM"), ("a", "x" * 60, "jobs.yaml:3"))
    assert table(rows, Style(width=40), ("KEY", "FROM", "VALUE")) == ["KEY  FROM  …", "a    jobs.yaml:3"]


def test_name_of_more_than_two_fifths_of_a_terminal_has_a_line_of_its_own() -> None:
    rows = (("KEY", "PHASE"), ("lr-sweep-batch-64", "Terminated, aged out"), ("a", "Running"))
    assert table(rows, Style(width=30)) == [
        "KEY           PHASE", "lr-sweep-batch-64", "              Terminated, aged out",
        "a             Running",
    ]  # fmt: skip


def test_no_secret_is_broken() -> None:
    rows = (("TIME", "MESSAGE"), ("1", "logged in with the pass phrase open sesame"))
    style = Style(width=30, redact=lambda text: text.replace("open sesame", "(sensitive)"))
    assert table(rows, style)[-1].split() == ["phrase", "(sensitive)"]


# ── the line that a problem is in ──────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("width", [40, 80, None])
@pytest.mark.parametrize(
    "text",
    ["        node_cout: 2", f"{{a: {'b' * 60}, node_cout: 2, c: {'d' * 60}}}", "训练: {node_cout: 2}"],
)
def test_marks_are_below_the_marked_text(text: str, width: int | None) -> None:
    found = Diagnostic(
        "unknown field", location=Location("jobs.yaml", 14, 9), snippet=Snippet(text, text.index("node"), 9)
    )
    *_, line, marks = render_diagnostics([found], Style(width=width)).splitlines()
    before, _, _ = line.partition("node_cout")
    assert cell_len(before) == marks.index("^")
    assert marks.count("^") == 9
    assert width is None or max(map(cell_len, (line, marks))) <= width


@pytest.mark.parametrize(("width", "verbose", "shown"), [(80, False, 20), (80, True, 50), (None, False, 50)])
def test_terminal_shows_the_first_problems_and_a_count(width: int | None, verbose: bool, shown: int) -> None:
    found = [Diagnostic("unknown field", f"number {number}") for number in range(50)]
    lines = render_diagnostics(found, Style(width=width), verbose=verbose).splitlines()
    assert len([line for line in lines if line.startswith("error:")]) == shown
    assert (lines[-1] == "30 more; -v shows all") is (shown == 20)


# ── sweeps ─────────────────────────────────────────────────────────────────────────────────────────

SWEEP = [f"lr-sweep-batch-{batch}-lr-0_{lr}" for batch in range(1, 7) for lr in range(10)]


def expanded(word: str) -> list[str]:
    parts = [part.split(",") for part in re.split(r"[{}]", word)]
    return ["".join(one) for one in itertools.product(*parts)]


@given(st.lists(st.sampled_from(SWEEP), min_size=1, unique=True))
def test_brace_list_expands_to_the_same_names(names: list[str]) -> None:
    assert sorted(name for word in brace_expansion(names) for name in expanded(word)) == sorted(names)
