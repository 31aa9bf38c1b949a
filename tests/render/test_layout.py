"""Text fits the terminal, by cells; nothing of it is cut, and no name is broken."""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rich.cells import cell_len as cells_by_rich

from reconciler.errors import Diagnostic, Location, Snippet
from reconciler.render import Content, Style, View, render
from reconciler.render.groups import in_braces
from reconciler.render.text import cell_len, fit, pad, render_diagnostics, table, wrap
from tests.builders import a_job, a_stack, seen
from tests.core.test_decision_table import OLD, plan_for
from tests.render.test_folding import sweep, text_of
from tests.render.test_golden import drifted, every_action, interrupted_result
from tests.render.test_golden_files import denied, problems, recorded, reviewed

WIDTHS = (40, 80, 120, 200)
_ESCAPES = re.compile(r"\x1b\[[0-9;]*m")


def terminal(width: int) -> Style:
    return Style(colour=True, width=width)


def plain(text: str) -> str:
    return _ESCAPES.sub("", text)


def words_of(text: str) -> list[str]:
    return list(re.sub(r"\s", "", plain(text)))


MADE: tuple[Callable[[], Any], ...] = (every_action, drifted, interrupted_result, reviewed, recorded, denied)
KINDS = (Content.PLAN, Content.DRIFT, Content.RESULT, Content.REVIEW, Content.HISTORY, Content.VALIDATION)
VALUES = {content.value: (content, make) for content, make in zip(KINDS, MADE, strict=True)}


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("name", VALUES)
def test_report_fits_the_terminal_and_loses_nothing(name: str, width: int) -> None:
    content, make = VALUES[name]
    text = render(content, make(), "text", View(terminal(width), show_keep=True))
    assert max(map(cell_len, text.splitlines())) <= width
    # Tables become prose where they are too wide, long lists are cut and counted.
    if name not in ("history", "review"):
        whole = render(content, make(), "text", View(Style(colour=True), show_keep=True))
        assert words_of(text) == words_of(whole)


@pytest.mark.parametrize("width", WIDTHS)
def test_keys_are_never_broken_however_long(width: int) -> None:
    names = [f"{letter * 20}-{number}_{'x' * 30}" for number, letter in enumerate("abcdefg")]
    plan = plan_for(a_stack(*map(a_job, names)), *(seen(a_job(name, **OLD)) for name in names))
    lines = render(Content.PLAN, plan, "text", View(terminal(width))).splitlines()
    assert all(any(name in plain(line) for line in lines) for name in names)


@pytest.mark.parametrize("width", WIDTHS)
def test_wide_characters_and_marks_are_counted_by_cells(width: int) -> None:
    words = "训练一个很长的模型并且把它的结果写到桶里 cafe\u0301 🚂🚂🚂 " * 4
    plan = plan_for(a_stack(a_job("a", description=words.strip())), seen(a_job("a"), text="old"))
    text = render(Content.PLAN, plan, "text", View(terminal(width)))
    assert max(cells_by_rich(plain(line)) for line in text.splitlines()) <= width
    assert "".join(words_of(words)) in "".join(words_of(text))


@given(st.text(st.characters(exclude_categories=("Cs", "Cc")), max_size=60), st.integers(0, 60))
def test_cells_are_those_of_rich(text: str, width: int) -> None:
    assert cell_len(text) == cells_by_rich(text)
    assert cell_len(pad(text, width)) == max(width, cell_len(text))


@settings(max_examples=60)
@given(
    st.lists(st.text(st.sampled_from("ab-_/训\u0301x"), min_size=1, max_size=50), max_size=12),
    st.integers(20, 60),
    st.integers(0, 12),
)
def test_broken_line_fits_and_says_the_same(words: list[str], width: int, indent: int) -> None:
    line = " " * indent + Style(colour=True).paint(" ".join(words), "red")
    lines = wrap(line, width, (), indent + 2)
    assert all(cell_len(one) <= width for one in lines)
    assert words_of("".join(lines)) == words_of(line)
    # A pager begins each line without a colour.
    for one in lines[: len(lines) if len(lines) > 1 else 0]:
        assert one.count("\x1b[31m") == one.count("\x1b[0m")


def test_line_is_not_broken_where_the_next_would_read_as_a_command() -> None:
    for line in wrap("a" * 18 + " ::error file=x::y", 20):
        assert not line.lstrip().startswith("::error")


def test_digest_stays_whole() -> None:
    digest = f"sha256:{'0' * 64}"
    assert digest in fit(f"the digest is {digest}", Style(width=40)).split("\n")[1]


def test_text_for_a_file_is_laid_out_for_no_terminal() -> None:
    assert fit("x" * 500, Style()) == "x" * 500


# ── tables ─────────────────────────────────────────────────────────────────────────────────────────

HEAD = ("KEY", "PHASE", "WAITS FOR")
ROWS = (
    HEAD,
    ("resnet50-nightly", "Running", "apply, to replace it"),
    ("训练", "Pending", "other-job-of-the-stack"),
)


def test_table_that_fits_is_as_wide_as_it_needs_to_be() -> None:
    assert table(ROWS, Style(width=80)) == table(ROWS, Style())


def test_cells_of_a_table_are_wrapped_beside_whole_names() -> None:
    lines = table(ROWS, Style(width=42))
    assert max(map(cell_len, lines)) <= 42
    names = [line.split()[0] for line in lines if not line.startswith(" ")]
    assert names == ["KEY", "resnet50-nightly", "训练"]
    assert len(lines) > len(ROWS)


def test_table_without_room_for_its_columns_becomes_prose() -> None:
    lines = table(ROWS, Style(width=30))
    assert lines[:3] == ["resnet50-nightly", "  phase: Running; waits for:", "    apply, to replace it"]
    assert max(map(cell_len, lines)) <= 30


# ── the line that a problem is in ──────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("width", [40, 80, None])
@pytest.mark.parametrize(
    "text",
    ["        node_cout: 2", f"{{a: {'b' * 60}, node_cout: 2, c: {'d' * 60}}}", "训练: {node_cout: 2}"],
)
def test_marks_stand_below_what_is_meant(text: str, width: int | None) -> None:
    found = Diagnostic(
        "unknown field", location=Location("jobs.yaml", 14, 9), snippet=Snippet(text, text.index("node"), 9)
    )
    *_, line, marks = render_diagnostics([found], Style(width=width)).splitlines()
    before, _, _ = line.partition("node_cout")
    assert cell_len(before) == marks.index("^")
    assert marks.count("^") == 9
    assert width is None or max(map(cell_len, (line, marks))) <= width


@pytest.mark.parametrize(("width", "verbose", "shown"), [(80, False, 20), (80, True, 50), (None, False, 50)])
def test_terminal_gets_the_first_problems_and_a_count(width: int | None, verbose: bool, shown: int) -> None:
    found = [Diagnostic("unknown field", f"number {number}") for number in range(50)]
    lines = render_diagnostics(found, Style(width=width), verbose=verbose).splitlines()
    assert len([line for line in lines if line.startswith("error:")]) == shown
    assert (lines[-1] == "30 more; -v shows all") is (shown == 20)


@pytest.mark.parametrize("width", [40, 80])
def test_problems_fit_the_terminal(width: int) -> None:
    text = render(Content.VALIDATION, problems(), "text", View(terminal(width)))
    assert max(map(cell_len, text.splitlines())) <= width


# ── sweeps ─────────────────────────────────────────────────────────────────────────────────────────

SWEEP = [f"lr-sweep-batch-{batch}-lr-0_{lr}" for batch in range(1, 7) for lr in range(10)]


RATES = ",".join(f"0_{n}" for n in range(10))


@pytest.mark.parametrize(
    ("style", "named"),
    [
        (Style(), ", ".join(SWEEP)),
        (Style(width=100), f"lr-sweep-batch-{{1,2,3,4,5,6}}-lr-{{{RATES}}}"),
    ],
    ids=["for programs such as grep", "in braces on a terminal"],
)
def test_sixty_members_of_a_sweep_are_ten_lines_and_all_are_named(style: Style, named: str) -> None:
    plan = plan_for(a_stack(*sweep(SWEEP)), *(seen(a_job(key, **OLD)) for key in SWEEP))
    lines = render(Content.PLAN, plan, "text", View(style)).splitlines()
    assert len(lines) <= 10, lines
    assert lines[3].strip() == named


def expanded(word: str) -> list[str]:
    parts = [part.split(",") for part in re.split(r"[{}]", word)]
    return ["".join(one) for one in itertools.product(*parts)]


@given(st.lists(st.sampled_from(SWEEP), min_size=1, unique=True))
def test_braces_expand_to_the_very_names(names: list[str]) -> None:
    assert sorted(name for word in in_braces(names) for name in expanded(word)) == sorted(names)


def test_names_of_entries_of_their_own_stand_in_no_braces() -> None:
    plan = plan_for(a_stack(*map(a_job, SWEEP)), *(seen(a_job(key, **OLD)) for key in SWEEP))
    assert "{" not in text_of(plan)
