"""The program does not grow by accident: the size figures of CONTRIBUTING.md hold."""

from __future__ import annotations

from pathlib import Path

from benchmarks.structure import FIGURES, measure, table

ROOT = Path(__file__).parents[1]


def test_no_structure_figure_has_grown() -> None:
    written = {name: columns[-1] for name, columns in table().items()}
    assert written.keys() == FIGURES.keys()
    figures = measure(ROOT)
    grown = {FIGURES[name]: (most, figures[name]) for name, most in written.items() if figures[name] > most}
    assert grown == {}, "make it smaller, or say in CONTRIBUTING.md's table why it is worth more"
