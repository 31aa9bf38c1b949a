"""Templates: what a job takes over, in which order, and where it is said to come from."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping
from typing import Any

import pytest

from reconciler.core.body import merge
from reconciler.core.stack import DesiredJob
from tests.manifest.conftest import DEFAULTS, HEAD, Place


def manifest(templates: str, jobs: str) -> str:
    sections = (("templates", templates), ("jobs", jobs))
    return (
        HEAD
        + DEFAULTS
        + "".join(f"{name}:\n{textwrap.indent(textwrap.dedent(text), '  ')}\n" for name, text in sections)
    )


def jobs_of(place: Place, templates: str, jobs: str, **options: Any) -> dict[str, DesiredJob]:
    place.write(manifest(templates, jobs))
    return dict(place.load(**options).stack.jobs)


@pytest.mark.parametrize("last", ["{description: deep}", "{extends: t0}"])
def test_depth_of_templates_is_bounded_by_nothing_but_the_file(place: Place, last: str) -> None:
    templates = [f"t{n}: {{extends: t{n + 1}}}" for n in range(3000)]
    place.write(manifest("\n".join([*templates, f"t3000: {last}"]), "a: {extends: t0}"))
    if "extends" in last:
        assert [problem.what for problem in place.problems()] == ["template cycle"]
    else:
        assert place.load().stack.jobs["a"].description == "deep"


def test_many_templates_that_extend_each_other_are_merged_once_each(place: Place) -> None:
    """Each names the two before it: without the rule of the first place there would be billions."""
    templates = "t0: {}\nt1: {}\n" + "".join(
        f"t{n}: {{extends: [t{n - 1}, t{n - 2}]}}\n" for n in range(2, 60)
    )
    assert list(jobs_of(place, templates, "a: {extends: t59}\n")) == ["a"]


def test_jobs_of_one_chain_of_templates_share_what_it_says(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However many templates a job builds on, and however many jobs there are, each is merged once."""
    merges: list[object] = []

    def counted(under: Mapping[str, Any], over: Mapping[str, Any]) -> dict[str, Any]:
        merges.append(over)
        return merge(under, over)

    def count(depth: int, jobs: int) -> int:
        templates = "".join(f"t{n}: {{extends: t{n - 1}}}\n" if n else "t0: {}\n" for n in range(depth))
        entries = "".join(f"j{n}: {{extends: t{depth - 1}}}\n" for n in range(jobs))
        place.write(manifest(templates, entries))
        merges.clear()
        assert len(place.load().stack.jobs) == jobs
        return len(merges)

    monkeypatch.setattr("reconciler.manifest.jobs.merge", counted)
    per_job = count(1, 101) - count(1, 1)
    assert count(40, 101) - count(40, 1) == per_job
